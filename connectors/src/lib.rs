//! Highwater's connectors: the outside world as lanes of Arrow rows, and sinks that confirm.

pub mod ack;
pub mod blackhole;
pub mod conformance;
pub mod datagen;
pub mod error;
pub mod format;
mod in_process;
pub mod kafka;
pub mod memory;
pub mod options;
mod partition;
pub mod registry;
pub mod sink;
pub mod source;
pub mod statistics;

pub use error::{ConnectorError, ErrorKind};
