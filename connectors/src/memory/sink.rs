//! The memory sink: keeps what it is given, for tests and for programs that take results as records.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use crate::error::{ConnectorError, ErrorKind};
use crate::options::{Given, OptionMap, OptionSpec};
use crate::sink::{Sink, SinkChunk, SinkConnector, SinkRecord};

const OPTIONS: &[OptionSpec] = &[OptionSpec {
    name: "topic",
    required: true,
    doc: "Name by which the program finds the records of the sink.",
    ..OptionSpec::TEXT
}];

/// `connector = 'memory'` for sinks.
#[derive(Default)]
pub struct MemorySinkConnector {
    topics: Mutex<BTreeMap<String, MemorySinkHandle>>,
}

impl MemorySinkConnector {
    /// A connector without topics.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The handle of the topic called `name`, which is made if it does not exist.
    #[must_use]
    pub fn handle(&self, name: &str) -> MemorySinkHandle {
        self.topics.lock().entry(name.to_owned()).or_default().clone()
    }
}

/// What a memory sink was given. Cheap to clone; all clones mean one topic.
#[derive(Clone, Default)]
pub struct MemorySinkHandle {
    state: Arc<Mutex<SinkState>>,
}

#[derive(Default)]
struct SinkState {
    records: Vec<(u64, SinkRecord)>,
    holds: bool,
    failures: u32,
}

impl MemorySinkHandle {
    /// All deliveries in their order, with their sequence numbers; after an error a record may be there twice.
    #[must_use]
    pub fn deliveries(&self) -> Vec<(u64, SinkRecord)> {
        self.state.lock().records.clone()
    }

    /// The last delivery of each sequence number, in order.
    #[must_use]
    pub fn records(&self) -> Vec<SinkRecord> {
        let last: BTreeMap<u64, SinkRecord> = self.state.lock().records.iter().cloned().collect();
        last.into_values().collect()
    }

    /// While `true`, the sink confirms nothing: it behaves as one whose other side does not answer.
    pub fn hold(&self, holds: bool) {
        self.state.lock().holds = holds;
    }

    /// Lets the next `count` writes fail with a transient error.
    pub fn fail_writes(&self, count: u32) {
        self.state.lock().failures = count;
    }
}

impl SinkConnector for MemorySinkConnector {
    fn name(&self) -> &'static str {
        "memory"
    }

    fn options(&self) -> &'static [OptionSpec] {
        OPTIONS
    }

    fn validate(&self, options: &OptionMap) -> Result<(), ConnectorError> {
        Given::new(OPTIONS, options).required("topic").map(drop)
    }

    fn probe(&self, _options: &OptionMap, _timeout: Duration) -> Result<Vec<String>, ConnectorError> {
        Ok(Vec::new())
    }

    fn open(&self, _name: &str, options: &OptionMap) -> Result<Box<dyn Sink>, ConnectorError> {
        let handle = self.handle(Given::new(OPTIONS, options).required("topic")?);
        Ok(Box::new(MemorySink {
            handle,
            written: 0,
            confirmed: 0,
        }))
    }
}

struct MemorySink {
    handle: MemorySinkHandle,
    /// One past the last record taken.
    written: u64,
    confirmed: u64,
}

impl Sink for MemorySink {
    fn write(&mut self, chunk: &SinkChunk, from: usize, _timeout: Duration) -> Result<usize, ConnectorError> {
        let mut state = self.handle.state.lock();
        if state.failures > 0 {
            state.failures -= 1;
            return Err(ConnectorError::new(
                ErrorKind::Transient,
                "the memory sink was told to fail",
            ));
        }
        let records = chunk.records.get(from..).unwrap_or_default();
        let first = chunk.first_seq + from as u64;
        state.records.extend((first..).zip(records.iter().cloned()));
        self.written = first + records.len() as u64;
        Ok(records.len())
    }

    fn poll_confirmed(&mut self, timeout: Duration) -> Result<u64, ConnectorError> {
        let holds = self.handle.state.lock().holds;
        if !holds {
            self.confirmed = self.written;
        } else if self.confirmed < self.written {
            // As a client that serves its connection and hears nothing.
            std::thread::sleep(timeout);
        }
        Ok(self.confirmed)
    }

    fn rewind(&mut self, seq: u64) {
        self.written = seq;
        self.confirmed = seq;
    }

    fn close(&mut self, _timeout: Duration) {}
}
