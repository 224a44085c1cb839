//! A thread that puts the house's bids into the topic as they happen.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use super::house::House;
use crate::Error;
use crate::cli::failure::Failure;
use crate::cli::figures::now_us;
use crate::connectors::ConnectorError;
use crate::connectors::kafka::{KafkaSinkConnector, SINK_OPTIONS};
use crate::connectors::options::{OptionMap, validate};
use crate::connectors::sink::{Sink, SinkChunk, SinkConnector as _, SinkRecord};

/// Time between two looks at which bids are due.
const TURN: Duration = Duration::from_millis(20);
/// How long the client may take to take or confirm records at once.
const TIMEOUT: Duration = Duration::from_millis(500);
/// How many records are handed over in one go.
const CHUNK: usize = 10_000;

/// The running thread; it ends when this is dropped.
pub(super) struct Producer {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<Result<i64, ConnectorError>>>,
}

impl Producer {
    /// Starts producing into the topic `bids`.
    ///
    /// # Errors
    /// When the broker's address makes no client, or there are no threads.
    pub(super) fn start(house: House, servers: &str) -> Result<Self, Failure> {
        let given = [("topic", "bids"), ("properties.bootstrap.server", servers)];
        let given: OptionMap = given
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect();
        let options = validate(SINK_OPTIONS, &given).map_err(Error::from)?;
        let sink = KafkaSinkConnector.open("demo", &options).map_err(Error::from)?;
        let stop = Arc::new(AtomicBool::new(false));
        let asked = Arc::clone(&stop);
        let thread = std::thread::Builder::new()
            .name("hw-demo-bids".to_owned())
            .spawn(move || produce(&house, sink, &asked))
            .map_err(|error| Failure::file("start a thread", error))?;
        Ok(Self {
            stop,
            thread: Some(thread),
        })
    }

    /// Stops after the bids that are due; returns how many chances of a bid are over, all of them confirmed.
    ///
    /// # Errors
    /// When the broker refused a record.
    pub(super) fn stop(mut self) -> Result<i64, Failure> {
        self.stop.store(true, Ordering::Release);
        let thread = self.thread.take().expect("only stop and drop take the thread");
        let ended = thread
            .join()
            .map_err(|_| Error::new("XX000", "the producer panicked"))?;
        Ok(ended.map_err(Error::from)?)
    }
}

impl Drop for Producer {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            // Whoever drops it instead of stopping it does not ask how it went.
            let _ = thread.join();
        }
    }
}

fn produce(house: &House, mut sink: Box<dyn Sink>, stop: &AtomicBool) -> Result<i64, ConnectorError> {
    let mut chance = 0;
    let mut sequence = 0;
    sink.rewind(0);
    loop {
        let is_last = stop.load(Ordering::Acquire);
        let due = house.chances_by(now_us());
        while chance < due {
            let until = due.min(chance + CHUNK as i64);
            let records: Vec<SinkRecord> = (chance..until)
                .filter(|chance| House::is_made(*chance))
                .map(|chance| SinkRecord {
                    key: Some(chance.to_string().into_bytes().into()),
                    value: Some(house.record(chance).into()),
                })
                .collect();
            let chunk = SinkChunk {
                first_seq: sequence,
                records: Arc::new(records),
            };
            sequence += write(sink.as_mut(), &chunk)?;
            chance = until;
        }
        let confirmed = sink.poll_confirmed(TURN)?;
        if is_last {
            return confirm(sink, confirmed, sequence).map(|()| chance);
        }
        std::thread::sleep(TURN);
    }
}

/// Hands over all records of a chunk; returns how many there were.
fn write(sink: &mut dyn Sink, chunk: &SinkChunk) -> Result<u64, ConnectorError> {
    let mut taken = 0;
    while taken < chunk.records.len() {
        taken += sink.write(chunk, taken, TIMEOUT)?;
        sink.poll_confirmed(Duration::ZERO)?;
    }
    Ok(taken as u64)
}

fn confirm(mut sink: Box<dyn Sink>, mut confirmed: u64, sequence: u64) -> Result<(), ConnectorError> {
    while confirmed < sequence {
        confirmed = sink.poll_confirmed(TIMEOUT)?;
    }
    sink.close(TIMEOUT);
    Ok(())
}
