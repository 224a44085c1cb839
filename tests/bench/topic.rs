//! A real broker for as long as the bench runs, and the bids in it.

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use highwater::connectors::datagen::{BidSpec, Bids};
use highwater::connectors::kafka::{KafkaSinkConnector, SINK_OPTIONS};
use highwater::connectors::options::{OptionMap, validate};
use highwater::connectors::sink::{Sink, SinkChunk, SinkConnector as _, SinkRecord};
use tempfile::TempDir;

use crate::Failure;

/// The topic of the bids.
pub(crate) const TOPIC: &str = "bids";
/// How many partitions it has.
pub(crate) const PARTITIONS: i64 = 4;
/// How many keys a view by bidder has, given enough bids.
const KEYS_MAX: f64 = 1e6;
/// How many records are handed over in one go.
const CHUNK: i64 = 20_000;
/// How long the client may take to take or confirm records at once.
const TIMEOUT: Duration = Duration::from_secs(1);

/// A running broker; dropping it kills it and deletes what it kept.
pub(crate) struct Broker {
    home: TempDir,
    address: String,
}

impl Broker {
    /// Starts a broker on a free port and creates the topic.
    pub(crate) fn start() -> Result<Self, Failure> {
        let mut broker = Self {
            home: tempfile::tempdir()?,
            address: String::new(),
        };
        broker.address = broker.script(&["start", broker.dir()?, "0"])?;
        broker.create(TOPIC)?;
        Ok(broker)
    }

    /// Host and port.
    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    fn dir(&self) -> Result<&str, Failure> {
        Ok(self.home.path().to_str().ok_or("the directory is no text")?)
    }

    fn script(&self, arguments: &[&str]) -> Result<String, Failure> {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/kafka/broker");
        let output = Command::new(script)
            .args(arguments)
            .env("KAFKA_WHILE_PID", std::process::id().to_string())
            .stdin(Stdio::null())
            .stderr(Stdio::inherit())
            .output()?;
        if !output.status.success() {
            return Err(format!("tests/kafka/broker {} failed", arguments.join(" ")).into());
        }
        Ok(String::from_utf8(output.stdout)?.trim().to_owned())
    }

    /// Creates a topic.
    pub(crate) fn create(&self, topic: &str) -> Result<(), Failure> {
        let partitions = PARTITIONS.to_string();
        self.script(&["topic", self.dir()?, "create", topic, &partitions])?;
        Ok(())
    }

    /// Puts bids into the topic and returns their mean size in bytes. Each has its number as its key, which spreads
    /// them over the partitions in the order of their times.
    pub(crate) fn produce(&self, events: i64) -> Result<i64, Failure> {
        let bids = bids(events);
        self.fill(TOPIC, events, |k, value| bids.json(0, k, value))
    }

    /// Puts `count` records into a topic and returns their mean size in bytes; `write` is given the number of a record and
    /// writes its value.
    pub(crate) fn fill(
        &self,
        topic: &str,
        count: i64,
        write_value: impl Fn(i64, &mut Vec<u8>),
    ) -> Result<i64, Failure> {
        let given: OptionMap = [("topic", topic), ("properties.bootstrap.server", &self.address)]
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .into();
        let options = validate(SINK_OPTIONS, &given)?;
        let mut sink = KafkaSinkConnector.open("bench", &options)?;
        sink.rewind(0);
        let mut bytes = 0;
        for first in (0..count).step_by(CHUNK as usize) {
            let record = |k: i64| {
                let mut value = Vec::with_capacity(256);
                write_value(k, &mut value);
                bytes += value.len() as i64;
                SinkRecord {
                    key: Some(k.to_string().into_bytes().into()),
                    value: Some(value.into()),
                }
            };
            let records = (first..count.min(first + CHUNK)).map(record).collect();
            write(sink.as_mut(), first as u64, records)?;
        }
        while sink.poll_confirmed(TIMEOUT)? < count as u64 {}
        sink.close(TIMEOUT);
        Ok(bytes / count.max(1))
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        // What is left of it ends with this process all the same.
        if let Some(dir) = self.home.path().to_str() {
            let _ = self.script(&["remove", dir]);
        }
    }
}

/// The bids in the topic: 10,000 a second of event time on 1,000 auctions; a million bidders if there are enough bids.
fn bids(events: i64) -> Bids {
    let events = events as f64;
    Bids::new(BidSpec {
        bidders: bidders_for(events, KEYS_MAX.min(events / 2.0)),
        ..BidSpec::default()
    })
}

/// Of how many bidders `events` bids must draw so that about `keys` different ones bid: b of them leave
/// b · e^(−events / b) who never do.
fn bidders_for(events: f64, keys: f64) -> u64 {
    let (mut low, mut high) = (1.0, 10.0 * events);
    while high - low > 1.0 {
        let middle = f64::midpoint(low, high);
        if middle * (1.0 - (-events / middle).exp()) < keys {
            low = middle;
        } else {
            high = middle;
        }
    }
    high as u64
}

fn write(sink: &mut dyn Sink, first_seq: u64, records: Vec<SinkRecord>) -> Result<(), Failure> {
    let chunk = SinkChunk {
        first_seq,
        records: Arc::new(records),
    };
    let mut taken = 0;
    while taken < chunk.records.len() {
        taken += sink.write(&chunk, taken, TIMEOUT)?;
        sink.poll_confirmed(Duration::ZERO)?;
    }
    Ok(())
}
