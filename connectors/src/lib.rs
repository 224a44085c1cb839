//! Highwater's connectors: the outside world as lanes of Arrow rows, and sinks that confirm.

pub mod ack;
pub mod error;
pub mod format;
pub mod options;
pub mod sink;
pub mod source;

pub use error::{ConnectorError, ErrorKind};
