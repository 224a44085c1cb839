//! The one error of the public interface: what a PostgreSQL user expects to see.

use std::fmt;

use highwater_connectors::ConnectorError;
use highwater_sql::SqlError;

use crate::engine::error::EngineError;

/// An error with its SQLSTATE. `message` is lowercase without a full stop; `detail` and `hint` are sentences.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Error {
    sqlstate: &'static str,
    message: String,
    detail: Option<String>,
    hint: Option<String>,
    context: Option<Box<str>>,
    position: Option<usize>,
}

/// What most calls return.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// An error with the five characters of its SQLSTATE.
    pub(crate) fn new(sqlstate: &'static str, message: impl Into<String>) -> Self {
        Self {
            sqlstate,
            message: message.into(),
            detail: None,
            hint: None,
            context: None,
            position: None,
        }
    }

    /// Adds the circumstances.
    #[must_use]
    pub(crate) fn with_detail(mut self, detail: impl Into<String>) -> Self {
        self.detail = Some(detail.into());
        self
    }

    /// Adds what the user can do.
    #[must_use]
    pub(crate) fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Adds where in what was read it came up, unless that is known.
    #[must_use]
    pub(crate) fn with_context(mut self, context: impl Into<String>) -> Self {
        self.context.get_or_insert_with(|| context.into().into());
        self
    }

    /// Adds the place, unless one is known.
    #[must_use]
    pub(crate) fn at(mut self, position: Option<usize>) -> Self {
        self.position = self.position.or(position);
        self
    }

    /// The same error with its message, detail and hint changed by `change`.
    #[must_use]
    pub(crate) fn map_texts(self, change: impl Fn(String) -> String) -> Self {
        Self {
            message: change(self.message),
            detail: self.detail.map(&change),
            hint: self.hint.map(&change),
            context: self.context.map(|context| change(context.into()).into()),
            ..self
        }
    }

    /// The same error of a longer text, in which the one that it is of starts at `start`.
    #[must_use]
    pub(crate) fn moved(mut self, start: usize) -> Self {
        self.position = self.position.map(|position| start + position);
        self
    }

    /// The five characters of the SQLSTATE, as PostgreSQL's appendix A lists them.
    #[must_use]
    pub fn sqlstate(&self) -> &str {
        self.sqlstate
    }

    /// What is wrong.
    #[must_use]
    pub fn message(&self) -> &str {
        &self.message
    }

    /// The circumstances, as a sentence.
    #[must_use]
    pub fn detail(&self) -> Option<&str> {
        self.detail.as_deref()
    }

    /// What the user can do, as a sentence.
    #[must_use]
    pub fn hint(&self) -> Option<&str> {
        self.hint.as_deref()
    }

    /// Where in what was read it came up, as PostgreSQL says it: `COPY t, line 3, column b: "x"`.
    #[must_use]
    pub fn context(&self) -> Option<&str> {
        self.context.as_deref()
    }

    /// Where in the text: a byte offset.
    #[must_use]
    pub fn position(&self) -> Option<usize> {
        self.position
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Error {}

impl From<SqlError> for Error {
    fn from(error: SqlError) -> Self {
        Self {
            sqlstate: error.state.code(),
            message: error.message,
            detail: error.detail,
            hint: error.hint,
            context: None,
            position: error.position,
        }
    }
}

impl From<Error> for EngineError {
    /// For a query that cannot run: the engine keeps its reason.
    fn from(error: Error) -> Self {
        let mut reason = Self::new(error.sqlstate, error.message);
        (reason.detail, reason.hint) = (error.detail, error.hint);
        reason
    }
}

impl From<EngineError> for Error {
    fn from(error: EngineError) -> Self {
        Self {
            sqlstate: error.sqlstate,
            message: error.message,
            detail: error.detail,
            hint: error.hint,
            context: None,
            position: None,
        }
    }
}

impl From<ConnectorError> for Error {
    fn from(error: ConnectorError) -> Self {
        EngineError::from(error).into()
    }
}

impl From<highwater_storage::StorageError> for Error {
    fn from(error: highwater_storage::StorageError) -> Self {
        EngineError::from(error).into()
    }
}
