//! The blackhole sink: confirms everything and keeps nothing, to measure a query without its output.

use std::time::Duration;

use crate::error::ConnectorError;
use crate::options::{OptionMap, OptionSpec};
use crate::sink::{Sink, SinkChunk, SinkConnector};

/// `connector = 'blackhole'`.
#[derive(Debug, Default, Clone, Copy)]
pub struct BlackholeConnector;

impl SinkConnector for BlackholeConnector {
    fn name(&self) -> &'static str {
        "blackhole"
    }

    fn options(&self) -> &'static [OptionSpec] {
        &[]
    }

    fn validate(&self, _options: &OptionMap) -> Result<(), ConnectorError> {
        Ok(())
    }

    fn probe(&self, _options: &OptionMap, _timeout: Duration) -> Result<Vec<String>, ConnectorError> {
        Ok(Vec::new())
    }

    fn open(&self, _name: &str, _options: &OptionMap) -> Result<Box<dyn Sink>, ConnectorError> {
        Ok(Box::new(Blackhole { confirmed: 0 }))
    }
}

struct Blackhole {
    confirmed: u64,
}

impl Sink for Blackhole {
    fn write(&mut self, chunk: &SinkChunk, from: usize, _timeout: Duration) -> Result<usize, ConnectorError> {
        let taken = chunk.records.len().saturating_sub(from);
        self.confirmed = chunk.first_seq + chunk.records.len() as u64;
        Ok(taken)
    }

    fn poll_confirmed(&mut self, _timeout: Duration) -> Result<u64, ConnectorError> {
        Ok(self.confirmed)
    }

    fn rewind(&mut self, seq: u64) {
        self.confirmed = seq;
    }

    fn close(&mut self, _timeout: Duration) {}
}
