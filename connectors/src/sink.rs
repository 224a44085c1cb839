//! The sink seam: records go out in sequence, confirmations come back as a contiguous prefix.

use std::sync::Arc;
use std::time::Duration;

use crate::error::ConnectorError;
use crate::options::{OptionMap, OptionSpec};
use crate::statistics::ClientStatistics;

/// How a sink takes changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SinkMode {
    /// Inserts only: each row is a record.
    Append,
    /// The newest row per key; a delete is a tombstone.
    Upsert,
}

/// One record on its way out. `value: None` is a tombstone.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SinkRecord {
    /// The record key.
    pub key: Option<bytes::Bytes>,
    /// The record value.
    pub value: Option<bytes::Bytes>,
}

/// Records of consecutive sequence numbers `first_seq ..`, shared between the outbox and the sink's thread.
#[derive(Debug, Clone)]
pub struct SinkChunk {
    /// Sequence number of `records[0]`.
    pub first_seq: u64,
    /// The records.
    pub records: Arc<Vec<SinkRecord>>,
}

/// A kind of sink. Registered by name for `connector = '…'`.
pub trait SinkConnector: Send + Sync {
    /// The value of `connector = '…'`.
    fn name(&self) -> &'static str;
    /// All options that it takes.
    fn options(&self) -> &'static [OptionSpec];
    /// Checks option values against each other without leaving the process.
    ///
    /// # Errors
    /// Names the option.
    fn validate(&self, options: &OptionMap) -> Result<(), ConnectorError>;
    /// Looks at the outside world once, at CREATE. Takes at most `timeout`. Returns notices.
    ///
    /// # Errors
    /// With a translated reason.
    fn probe(&self, options: &OptionMap, timeout: Duration) -> Result<Vec<String>, ConnectorError>;
    /// A sink that can be written to at once (it may still be connecting).
    ///
    /// # Errors
    /// When the options cannot be turned into a client.
    fn open(&self, name: &str, options: &OptionMap) -> Result<Box<dyn Sink>, ConnectorError>;
}

/// One running sink; all calls come from its own thread, never from a step.
pub trait Sink: Send {
    /// Hands records to the client, from `chunk.records[from..]`. May block while the client's buffer is full, at
    /// most `timeout`; returns how many records were taken.
    ///
    /// # Errors
    /// A transient error: the caller waits and writes the same records again. Any other ends the sink.
    fn write(&mut self, chunk: &SinkChunk, from: usize, timeout: Duration) -> Result<usize, ConnectorError>;
    /// Serves the client up to `timeout` and returns the confirmed prefix: every record below this sequence number
    /// has been confirmed by the outside world. A record that failed in between stops the prefix and is an error.
    ///
    /// # Errors
    /// After a transient error the caller writes again from the confirmed prefix on.
    fn poll_confirmed(&mut self, timeout: Duration) -> Result<u64, ConnectorError>;
    /// Why nothing is confirmed at the moment although the client goes on trying, for people.
    fn trouble(&self) -> Option<ConnectorError> {
        None
    }
    /// What the client told of itself last, if it tells anything. Serves the client, without waiting.
    fn statistics(&mut self) -> Option<Arc<ClientStatistics>> {
        None
    }
    /// Forgets what is in flight and starts again at `seq` (after an error, and at a start).
    fn rewind(&mut self, seq: u64);
    /// Lets go of everything, waiting at most `timeout` for what is in flight.
    fn close(&mut self, timeout: Duration);
}
