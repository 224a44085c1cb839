//! Without the engine: the lanes of a source on librdkafka's batch call, on one thread, and the decoder behind them.

use std::sync::Arc;
use std::time::{Duration, Instant};

use highwater::connectors::datagen::{BidSpec, Bids};
use highwater::connectors::format::{ColumnOrigin, DecodeColumn, Decoder, decoder};
use highwater::connectors::kafka::{KafkaConnector, SOURCE_OPTIONS};
use highwater::connectors::options::{OptionMap, validate};
use highwater::connectors::source::{
    Batch, BatchBody, PartitionId, Source, SourceConnector as _, SourceContext, SourceEvent, SourceLane,
    Wants,
};

use crate::Failure;
use crate::arguments::Arguments;
use crate::process::{Figures, Stretch};
use crate::topic::TOPIC;

/// As many records at once as the engine takes.
const RECORDS_MAX: usize = 8192;
/// How long to wait for the client at once.
const WAIT: Duration = Duration::from_millis(100);
/// Silence of this length is a fault.
const PATIENCE: Duration = Duration::from_secs(60);

/// What becomes of the records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Work {
    /// Only their number.
    Count,
    /// Arrow columns, all seven.
    Decode,
}

/// Takes all bids once.
pub(crate) fn consume(arguments: &Arguments, work: Work) -> Result<Figures, Failure> {
    let given: OptionMap = [
        ("topic", TOPIC),
        ("properties.bootstrap.server", arguments.servers.as_str()),
        ("scan.startup.mode", "earliest"),
    ]
    .map(|(name, value)| (name.to_owned(), value.to_owned()))
    .into();
    let options = validate(SOURCE_OPTIONS, &given)?;
    let probe = KafkaConnector.probe(&options, PATIENCE)?;
    let stretch = Stretch::begin()?;
    let mut source = KafkaConnector.create(&options)?;
    let context = SourceContext {
        name: "bench".to_owned(),
        wants: Wants::default(),
        identity: probe.identity,
    };
    source.open(context, &probe.start)?;
    let mut readers = readers(source.as_mut(), work)?;
    let mut taken = 0;
    let mut heard = Instant::now();
    while taken < arguments.events {
        let before = taken;
        for reader in &mut readers {
            taken += reader.take()?;
        }
        if taken > before {
            heard = Instant::now();
        } else if heard.elapsed() > PATIENCE {
            return Err(format!("only {taken} bids came").into());
        } else {
            source.poll_events(Duration::ZERO)?;
            std::thread::park_timeout(WAIT);
        }
    }
    let figures = stretch.end()?;
    drop(readers);
    source.close();
    Ok(figures)
}

fn readers(source: &mut dyn Source, work: Work) -> Result<Vec<Reader>, Failure> {
    let begun = Instant::now();
    while begun.elapsed() < PATIENCE {
        if let SourceEvent::LanesAssigned(lanes) = source.poll_events(WAIT)? {
            return lanes.into_iter().map(|lane| Reader::new(lane, work)).collect();
        }
    }
    Err("no lanes were assigned".into())
}

/// A lane and its decoder.
struct Reader {
    lane: Box<dyn SourceLane>,
    decoder: Option<Box<dyn Decoder>>,
}

impl Reader {
    fn new(mut lane: Box<dyn SourceLane>, work: Work) -> Result<Self, Failure> {
        let taker = std::thread::current();
        lane.set_waker(Arc::new(move || taker.unpark()));
        let decoder = match work {
            Work::Count => None,
            Work::Decode => Some(decoder("json", &columns(), &OptionMap::new())?),
        };
        Ok(Self { lane, decoder })
    }

    /// Takes one batch, if there is one; returns how many records it had.
    fn take(&mut self) -> Result<i64, Failure> {
        let partition = self.lane.partition();
        let Some(batch) = self.lane.poll(RECORDS_MAX, Duration::ZERO)? else {
            return Ok(0);
        };
        digest(batch, partition, self.decoder.as_mut())
    }
}

fn digest(
    batch: Batch<'_>,
    partition: PartitionId,
    decoder: Option<&mut Box<dyn Decoder>>,
) -> Result<i64, Failure> {
    let BatchBody::Payloads(payloads) = &batch.body else {
        return Err("a Kafka lane gave rows".into());
    };
    if let Some(decoder) = decoder {
        let decoded = std::hint::black_box(decoder.decode(partition, payloads)?);
        if decoded.rows.num_rows() != payloads.len() {
            return Err("not every bid could be decoded".into());
        }
    }
    let records = payloads.len() as i64;
    batch.ack.resolve();
    Ok(records)
}

/// All columns of a bid, by their names.
fn columns() -> Vec<DecodeColumn> {
    let schema = Bids::new(BidSpec::default()).schema();
    let column = |field: &Arc<arrow::datatypes::Field>| DecodeColumn {
        field: Arc::clone(field),
        origin: ColumnOrigin::Value(field.name().clone()),
        timestamp_format: None,
    };
    schema.fields().iter().map(column).collect()
}
