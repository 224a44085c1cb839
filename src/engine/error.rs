//! Why a query, lane or pipeline stops.

use std::fmt;

use datafusion::error::DataFusionError;
use highwater_sql::SqlError;

/// An error of the engine: what a FAILED state shows. `message` is lowercase without a full stop.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct EngineError {
    /// The five characters of the SQLSTATE.
    pub(crate) sqlstate: &'static str,
    /// What happened.
    pub(crate) message: String,
    /// The circumstances, as a sentence (a row sample, an offset).
    pub(crate) detail: Option<String>,
    /// What the user can do, as a sentence.
    pub(crate) hint: Option<String>,
    /// Whether trying again later may succeed.
    pub(crate) transient: bool,
}

impl EngineError {
    /// A lasting error.
    pub(crate) fn new(sqlstate: &'static str, message: impl Into<String>) -> Self {
        Self {
            sqlstate,
            message: message.into(),
            detail: None,
            hint: None,
            transient: false,
        }
    }

    /// A broken invariant: a defect of ours.
    pub(crate) fn internal(message: impl Into<String>) -> Self {
        Self::new("XX000", message)
    }

    /// State, offsets or catalog that cannot be restored exactly (INV-6).
    pub(crate) fn recovery(message: impl Into<String>) -> Self {
        Self::new("XX001", message)
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
}

impl fmt::Display for EngineError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for EngineError {}

impl From<SqlError> for EngineError {
    fn from(error: SqlError) -> Self {
        Self {
            sqlstate: error.state.code(),
            message: error.message,
            detail: error.detail,
            hint: error.hint,
            transient: false,
        }
    }
}

impl From<arrow::error::ArrowError> for EngineError {
    fn from(error: arrow::error::ArrowError) -> Self {
        Self::from(DataFusionError::from(error))
    }
}

impl From<DataFusionError> for EngineError {
    fn from(error: DataFusionError) -> Self {
        highwater_sql::plan::translate(error).into()
    }
}

impl From<highwater_storage::StorageError> for EngineError {
    fn from(error: highwater_storage::StorageError) -> Self {
        use highwater_storage::StorageError as S;
        let sqlstate = match &error {
            S::Locked { .. } => "55006",
            S::NotADatabase { .. } | S::NotFound { .. } => "3D000",
            S::FormatVersion { .. } | S::Corrupt { .. } => "XX001",
            S::DiskFull { .. } => "53100",
            S::ReadOnly => "25006",
            S::InvalidOption { .. } => "22023",
            _ => "58030",
        };
        Self {
            sqlstate,
            message: error.to_string(),
            detail: error.detail(),
            hint: error.hint(),
            transient: false,
        }
    }
}

impl From<highwater_connectors::ConnectorError> for EngineError {
    fn from(error: highwater_connectors::ConnectorError) -> Self {
        use highwater_connectors::ErrorKind as K;
        let sqlstate = match error.kind {
            K::Invalid => "22023",
            K::Transient => "08006",
            K::Denied => "28000",
            K::NotFound => "42704",
            K::PositionLost => "XX001",
            K::BadRecord => "22P04",
            K::Permanent => "58000",
        };
        Self {
            sqlstate,
            message: error.message,
            detail: error.detail,
            hint: error.hint,
            transient: error.kind == K::Transient,
        }
    }
}
