//! The one error of the connectors: what happened, in which kind, and what to do about it.

use std::fmt;

/// What a caller does about a [`ConnectorError`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorKind {
    /// The statement is wrong: an option, a column, a format. Never retried.
    Invalid,
    /// The outside world did not answer or not yet; the same call may succeed later.
    Transient,
    /// Access was refused: wrong password, missing permission, failed TLS handshake.
    Denied,
    /// The named thing does not exist: an unknown topic, a deleted partition.
    NotFound,
    /// Recorded positions are no longer there (retention, re-created topic).
    PositionLost,
    /// A record cannot be decoded, and the source is declared `on_error = 'fail'`.
    BadRecord,
    /// Anything else that will not go away by itself.
    Permanent,
}

/// An error from a connector. `message` is lowercase without a full stop, `detail` and `hint` are sentences.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConnectorError {
    /// What a caller does about it.
    pub kind: ErrorKind,
    /// What happened.
    pub message: String,
    /// The circumstances, as a sentence.
    pub detail: Option<String>,
    /// What the user can do, as a sentence.
    pub hint: Option<String>,
}

impl ConnectorError {
    /// An error of `kind` that says `message`.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self {
            kind,
            message: message.into(),
            detail: None,
            hint: None,
        }
    }

    /// Shorthand for [`ErrorKind::Invalid`].
    pub fn invalid(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Invalid, message)
    }

    /// Adds the circumstances.
    #[must_use]
    pub fn with_detail(mut self, detail: impl Into<String>) -> Self {
        self.detail = Some(detail.into());
        self
    }

    /// Adds what the user can do.
    #[must_use]
    pub fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}

impl fmt::Display for ConnectorError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for ConnectorError {}
