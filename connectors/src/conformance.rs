//! What every connector must do, as checks that any connector can be put through.
//!
//! Each check is a function that gives `Err` with a sentence about what was violated. [`check_source`] and
//! [`check_sink`] run all that apply:
//!
//! ```
//! use highwater_connectors::conformance::{SourceFixture, check_source};
//! use highwater_connectors::datagen::NexmarkConnector;
//!
//! let options = [("event.num", "500"), ("rows.per.second", "0")].map(|(name, text)| (name.into(), text.into()));
//! check_source(&mut SourceFixture::new(&NexmarkConnector, options.into()))?;
//! # Ok::<(), String>(())
//! ```

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use arrow::util::display::{ArrayFormatter, FormatOptions};
use parking_lot::{Condvar, Mutex};

use crate::error::ConnectorError;
use crate::options::OptionMap;
use crate::sink::{Sink, SinkChunk, SinkConnector, SinkRecord};
use crate::source::{
    Batch, BatchBody, LaneState, LaneWaker, PartitionId, Positions, Source, SourceConnector, SourceContext,
    SourceEvent, SourceLane, Wants,
};

const PATIENCE: Duration = Duration::from_secs(20);

/// What a poll may take beyond its timeout.
const SLACK: Duration = Duration::from_secs(2);

/// A source connector to check, with something to read behind it.
pub struct SourceFixture<'a> {
    /// The connector.
    pub connector: &'a dyn SourceConnector,
    /// Options of a source that has rows to read from its start positions on.
    pub options: OptionMap,
    /// Rows to read from each partition of a source that does not end; every partition must have them.
    pub rows: usize,
    /// Makes one more row appear in every partition, if the test can.
    pub feed: Option<Box<dyn FnMut() + 'a>>,
    /// How long anything may take before it counts as never.
    pub patience: Duration,
}

impl<'a> SourceFixture<'a> {
    /// A fixture that reads a source to its end, without a way to feed it.
    #[must_use]
    pub fn new(connector: &'a dyn SourceConnector, options: OptionMap) -> Self {
        Self {
            connector,
            options,
            rows: usize::MAX,
            feed: None,
            patience: PATIENCE,
        }
    }
}

/// One row: its offset, and everything that it holds as text.
type SeenRow = (i64, String);

/// What was read from one partition.
#[derive(Default)]
struct SeenRows {
    rows: Vec<SeenRow>,
    /// After how many rows which position was given out.
    cuts: Vec<(usize, i64)>,
}

/// Runs all source checks that apply.
///
/// # Errors
/// The first violation.
pub fn check_source(fixture: &mut SourceFixture<'_>) -> Result<(), String> {
    check_contract(fixture)?;
    check_offsets(fixture)?;
    check_replay(fixture)?;
    check_end(fixture)?;
    check_pause(fixture)?;
    check_waker(fixture)
}

/// The connector and its source promise the same, and say what a position is.
///
/// # Errors
/// The violation.
pub fn check_contract(fixture: &SourceFixture<'_>) -> Result<(), String> {
    let connector = fixture.connector;
    connector.validate(&fixture.options).map_err(told)?;
    let promised = connector.contract(&fixture.options);
    let kept = connector.create(&fixture.options).map_err(told)?.contract();
    ensure(promised == kept, || {
        format!("the connector promises {promised:?}, its source {kept:?}")
    })?;
    ensure(!promised.position.is_empty(), || {
        "the contract does not say what a position is".to_owned()
    })
}

/// Offsets grow within a partition, batches keep to `max_records` and meet at `next_offset`, polls keep to their
/// timeout, and acknowledged offsets can be committed.
///
/// # Errors
/// The violation.
pub fn check_offsets(fixture: &SourceFixture<'_>) -> Result<(), String> {
    let start = probe(fixture)?;
    for max_records in [1, 7, 1000] {
        let (mut source, mut lanes) = open(fixture, &start)?;
        let limit = fixture.rows.min(max_records * 50);
        for lane in &mut lanes {
            let seen = read(fixture, lane.as_mut(), limit, max_records)?;
            if let Some((_, next_offset)) = seen.cuts.last() {
                source.commit(&[(lane.partition(), *next_offset)]).map_err(told)?;
            }
        }
        source.flush_commits(fixture.patience).map_err(told)?;
        source.close();
    }
    Ok(())
}

/// A source that says it is replayable gives the same rows again from any position that it gave out.
///
/// # Errors
/// The violation.
pub fn check_replay(fixture: &SourceFixture<'_>) -> Result<(), String> {
    if !fixture.connector.contract(&fixture.options).replayable {
        return Ok(());
    }
    let start = probe(fixture)?;
    // A source that is open and has not committed is one more reader whose rows must stay.
    let (mut keeper, kept_lanes) = open(fixture, &start)?;
    for (partition, whole) in read_all(fixture, &start)? {
        let rows = &whole.rows;
        ensure(rows.len() > 1, || {
            format!("the fixture has nothing to read in partition {}", partition.0)
        })?;
        let last = whole.cuts.len() - 1;
        for cut in [0, last / 3, last / 2, last.saturating_sub(1), last] {
            let (skipped, position) = whole.cuts[cut];
            let (mut source, mut lanes) = open(fixture, &start_at(&start, partition, position))?;
            let lane = lanes.iter_mut().find(|lane| lane.partition() == partition);
            let lane = lane.expect("open gives a lane for each partition of the start");
            let again = read(fixture, lane.as_mut(), rows.len() - skipped, 64)?;
            ensure(again.rows[..] == rows[skipped..], || {
                format!(
                    "partition {} gives other rows when it is read from {position} again",
                    partition.0
                )
            })?;
            source.close();
        }
    }
    drop(kept_lanes);
    keeper.close();
    Ok(())
}

fn start_at(start: &Positions, partition: PartitionId, position: i64) -> Positions {
    let mut moved = start.clone();
    moved.insert(partition, position);
    moved
}

/// A bounded source ends and stays so; any other lane that has been read out returns from a poll in time.
///
/// # Errors
/// The violation.
pub fn check_end(fixture: &SourceFixture<'_>) -> Result<(), String> {
    let bounded = fixture.connector.contract(&fixture.options).bounded;
    let start = probe(fixture)?;
    let (mut source, mut lanes) = open(fixture, &start)?;
    for lane in &mut lanes {
        let partition = lane.partition().0;
        let rows = read(fixture, lane.as_mut(), fixture.rows, 100)?.rows;
        if !bounded {
            poll_once(lane.as_mut(), 10, Duration::from_millis(50))?;
            continue;
        }
        ensure(lane.state() == LaneState::Ended, || {
            format!(
                "partition {partition} is bounded, but {:?} after {} rows",
                lane.state(),
                rows.len()
            )
        })?;
        let more = lane.poll(10, Duration::ZERO).map_err(told)?.is_some();
        ensure(!more && lane.state() == LaneState::Ended, || {
            format!("partition {partition} goes on after its end")
        })?;
        ensure(lane.due().is_none(), || {
            format!("partition {partition} has ended and still is due")
        })?;
    }
    source.close();
    Ok(())
}

/// A lane that was paused in the middle loses nothing.
///
/// # Errors
/// The violation.
pub fn check_pause(fixture: &SourceFixture<'_>) -> Result<(), String> {
    let start = probe(fixture)?;
    let (mut keeper, kept_lanes) = open(fixture, &start)?;
    let whole = read_all(fixture, &start)?;
    let (mut source, mut lanes) = open(fixture, &start)?;
    for lane in &mut lanes {
        let partition = lane.partition();
        let expected = &whole[&partition].rows;
        let mut rows = read(fixture, lane.as_mut(), expected.len() / 2, 10)?.rows;
        lane.pause();
        source.pause(&[partition]);
        // What was fetched before may still come.
        rows.extend(poll_once(lane.as_mut(), 10, Duration::ZERO)?.rows);
        source.resume(&[partition]);
        lane.resume();
        let left = expected.len().saturating_sub(rows.len());
        rows.extend(read(fixture, lane.as_mut(), left, 10)?.rows);
        ensure(rows[..rows.len().min(expected.len())] == expected[..], || {
            format!("partition {} gives other rows around a pause", partition.0)
        })?;
    }
    source.close();
    drop(kept_lanes);
    keeper.close();
    Ok(())
}

/// Counts calls and can be waited for.
#[derive(Default)]
struct Bell {
    rung: Mutex<bool>,
    changed: Condvar,
}

impl Bell {
    fn waker(self: &Arc<Self>) -> LaneWaker {
        let bell = Arc::clone(self);
        Arc::new(move || {
            *bell.rung.lock() = true;
            bell.changed.notify_all();
        })
    }

    /// Whether the bell was rung since the last call, waiting for it up to `timeout`.
    fn wait(&self, timeout: Duration) -> bool {
        let mut rung = self.rung.lock();
        self.changed.wait_while_for(&mut rung, |rung| !*rung, timeout);
        std::mem::take(&mut *rung)
    }
}

/// A lane that has been read out calls its waker (or is due) when a row appears, and then gives it.
///
/// # Errors
/// The violation.
pub fn check_waker(fixture: &mut SourceFixture<'_>) -> Result<(), String> {
    let Some(mut feed) = fixture.feed.take() else {
        return Ok(());
    };
    let start = probe(fixture)?;
    let (mut source, mut lanes) = open(fixture, &start)?;
    let bells: Vec<Arc<Bell>> = lanes.iter().map(|_| Arc::default()).collect();
    for (lane, bell) in lanes.iter_mut().zip(&bells) {
        lane.set_waker(bell.waker());
        while !poll_once(lane.as_mut(), 1000, Duration::ZERO)?.rows.is_empty() || bell.wait(SLACK / 4) {}
    }
    feed();
    for (lane, bell) in lanes.iter_mut().zip(&bells) {
        let partition = lane.partition().0;
        let deadline = Instant::now() + fixture.patience;
        loop {
            let due = lane.due();
            let wait = due.map_or(fixture.patience, |due| {
                due.saturating_duration_since(Instant::now())
            });
            let rung = bell.wait(wait);
            ensure(rung || due.is_some(), || {
                format!("a row came to partition {partition} and woke nobody")
            })?;
            if !poll_once(lane.as_mut(), 1000, Duration::ZERO)?.rows.is_empty() {
                break;
            }
            ensure(Instant::now() < deadline, || {
                format!("a row came to partition {partition} and is not given out")
            })?;
        }
    }
    source.close();
    fixture.feed = Some(feed);
    Ok(())
}

fn ensure(holds: bool, violation: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(violation()) }
}

fn told(error: ConnectorError) -> String {
    [Some(error.message), error.detail, error.hint]
        .into_iter()
        .flatten()
        .collect::<Vec<_>>()
        .join(" / ")
}

fn probe(fixture: &SourceFixture<'_>) -> Result<Positions, String> {
    let begun = Instant::now();
    let probe = fixture
        .connector
        .probe(&fixture.options, PATIENCE)
        .map_err(told)?;
    ensure(begun.elapsed() < PATIENCE + SLACK, || {
        "the probe took longer than it was given".to_owned()
    })?;
    ensure(!probe.start.is_empty(), || {
        "the probe found no partition".to_owned()
    })?;
    Ok(probe.start)
}

/// A source and its lanes.
type OpenSource = (Box<dyn Source>, Vec<Box<dyn SourceLane>>);

/// An open source and a lane for each of `start`'s partitions.
fn open(fixture: &SourceFixture<'_>, start: &Positions) -> Result<OpenSource, String> {
    let mut source = fixture.connector.create(&fixture.options).map_err(told)?;
    let wants = Wants {
        key: true,
        headers: true,
        timestamp: true,
    };
    let context = SourceContext {
        name: "conformance".to_owned(),
        wants,
        identity: BTreeMap::new(),
    };
    source.open(context, start).map_err(told)?;
    let deadline = Instant::now() + fixture.patience;
    let mut lanes = Vec::new();
    while Instant::now() < deadline && lanes.len() < start.len() {
        match source.poll_events(Duration::from_millis(100)).map_err(told)? {
            SourceEvent::LanesAssigned(more) | SourceEvent::LanesAdded(more) => lanes.extend(more),
            SourceEvent::LanesRevoked { .. }
            | SourceEvent::Degraded(_)
            | SourceEvent::Recovered
            | SourceEvent::Idle => {}
        }
    }
    let assigned: Vec<PartitionId> = lanes.iter().map(|lane| lane.partition()).collect();
    ensure(start.keys().all(|partition| assigned.contains(partition)), || {
        format!("the source has lanes for {assigned:?} only")
    })?;
    Ok((source, lanes))
}

fn read_all(
    fixture: &SourceFixture<'_>,
    start: &Positions,
) -> Result<BTreeMap<PartitionId, SeenRows>, String> {
    let (mut source, mut lanes) = open(fixture, start)?;
    let mut seen = BTreeMap::new();
    for lane in &mut lanes {
        seen.insert(lane.partition(), read(fixture, lane.as_mut(), fixture.rows, 10)?);
    }
    source.close();
    Ok(seen)
}

/// Reads up to `rows` rows, or to the end of a lane that ends.
fn read(
    fixture: &SourceFixture<'_>,
    lane: &mut dyn SourceLane,
    rows: usize,
    max_records: usize,
) -> Result<SeenRows, String> {
    let partition = lane.partition().0;
    let mut seen = SeenRows::default();
    let mut deadline = Instant::now() + fixture.patience;
    while seen.rows.len() < rows && lane.state() != LaneState::Ended {
        let more = poll_once(
            lane,
            max_records.min(rows - seen.rows.len()),
            Duration::from_millis(100),
        )?;
        if !more.rows.is_empty() {
            deadline = Instant::now() + fixture.patience;
        }
        let before = seen.cuts.last().map_or(i64::MIN, |(_, next_offset)| *next_offset);
        ensure(
            more.rows.first().is_none_or(|(offset, _)| *offset >= before),
            || format!("partition {partition} goes back behind next offset {before}"),
        )?;
        seen.rows.extend(more.rows);
        seen.cuts.extend(
            more.cuts
                .iter()
                .map(|(_, next_offset)| (seen.rows.len(), *next_offset)),
        );
        ensure(Instant::now() < deadline, || {
            format!(
                "partition {partition} gives no more after {} of {rows} rows",
                seen.rows.len()
            )
        })?;
    }
    Ok(seen)
}

/// One poll, its batch checked and acknowledged.
fn poll_once(lane: &mut dyn SourceLane, max_records: usize, timeout: Duration) -> Result<SeenRows, String> {
    let partition = lane.partition().0;
    let begun = Instant::now();
    let batch = lane.poll(max_records, timeout).map_err(told)?;
    let took = begun.elapsed();
    ensure(took < timeout + SLACK, || {
        format!("a poll of {timeout:?} on partition {partition} took {took:?}")
    })?;
    let Some(batch) = batch else {
        return Ok(SeenRows::default());
    };
    let rows = rows_of(&batch)?;
    ensure(rows.len() <= max_records, || {
        format!("a poll for {max_records} records gave {}", rows.len())
    })?;
    ensure(rows.is_sorted_by(|before, after| before.0 < after.0), || {
        format!("the offsets within a batch of partition {partition} do not grow")
    })?;
    let last = rows.last().map_or(i64::MIN, |(offset, _)| *offset);
    ensure(batch.next_offset > last, || {
        format!(
            "partition {partition} gives next offset {} after offset {last}",
            batch.next_offset
        )
    })?;
    batch.ack.resolve();
    Ok(SeenRows {
        cuts: vec![(rows.len(), batch.next_offset)],
        rows,
    })
}

fn rows_of(batch: &Batch<'_>) -> Result<Vec<SeenRow>, String> {
    match &batch.body {
        BatchBody::Payloads(payloads) => {
            let row = |payload: &crate::source::RawPayload<'_>| {
                (
                    payload.offset,
                    format!("{:?} {:?} {:?}", payload.key, payload.value, payload.timestamp_ms),
                )
            };
            Ok(payloads.iter().map(row).collect())
        }
        BatchBody::Rows { rows, first_offset } => {
            let options = FormatOptions::default();
            let columns = rows
                .columns()
                .iter()
                .map(|column| ArrayFormatter::try_new(column, &options));
            let columns = columns
                .collect::<Result<Vec<_>, _>>()
                .map_err(|error| error.to_string())?;
            let text = |row: usize| {
                columns
                    .iter()
                    .map(|column| column.value(row).to_string() + "|")
                    .collect()
            };
            Ok((0..rows.num_rows())
                .map(|row| (first_offset + row as i64, text(row)))
                .collect())
        }
    }
}

/// A sink connector to check.
pub struct SinkFixture<'a> {
    /// The connector.
    pub connector: &'a dyn SinkConnector,
    /// Options of a sink that can be written to.
    pub options: OptionMap,
    /// All that arrived outside so far, in order, if the test can know.
    pub delivered: Option<Box<dyn FnMut() -> Vec<SinkRecord> + 'a>>,
}

/// Writes, rewinds and writes again; the confirmed prefix only grows, never passes what was written, and everything
/// that it covers has arrived in order.
///
/// # Errors
/// The first violation.
pub fn check_sink(fixture: &mut SinkFixture<'_>) -> Result<(), String> {
    fixture.connector.validate(&fixture.options).map_err(told)?;
    fixture
        .connector
        .probe(&fixture.options, PATIENCE)
        .map_err(told)?;
    let mut sink = fixture
        .connector
        .open("conformance", &fixture.options)
        .map_err(told)?;
    let records: Vec<SinkRecord> = (0..100).map(numbered_record).collect();
    let first = SinkChunk {
        first_seq: 5,
        records: Arc::new(records[..60].to_vec()),
    };
    let second = SinkChunk {
        first_seq: 65,
        records: Arc::new(records[60..].to_vec()),
    };
    sink.rewind(5);
    write_out(sink.as_mut(), &first, 0)?;
    write_out(sink.as_mut(), &second, 0)?;
    await_confirmed(sink.as_mut(), 105)?;
    // As after an error: from the middle of a chunk on again.
    sink.rewind(95);
    let confirmed = sink.poll_confirmed(Duration::ZERO).map_err(told)?;
    ensure(confirmed <= 95, || {
        format!("after a rewind to 95 the sink still has {confirmed} confirmed")
    })?;
    write_out(sink.as_mut(), &second, 30)?;
    await_confirmed(sink.as_mut(), 105)?;
    sink.close(PATIENCE);
    let Some(delivered) = &mut fixture.delivered else {
        return Ok(());
    };
    let delivered = delivered();
    let expected: Vec<&SinkRecord> = records.iter().chain(&records[90..]).collect();
    ensure(delivered.iter().collect::<Vec<_>>() == expected, || {
        format!(
            "{} records arrived, or not in order, where {} were confirmed",
            delivered.len(),
            expected.len()
        )
    })
}

/// Every tenth record is a tombstone.
fn numbered_record(number: usize) -> SinkRecord {
    let value = (!number.is_multiple_of(10)).then(|| format!("{{\"n\":{number}}}").into());
    SinkRecord {
        key: Some(format!("key {number}").into()),
        value,
    }
}

fn write_out(sink: &mut dyn Sink, chunk: &SinkChunk, mut from: usize) -> Result<(), String> {
    let deadline = Instant::now() + PATIENCE;
    while from < chunk.records.len() {
        let taken = sink
            .write(chunk, from, Duration::from_millis(200))
            .map_err(told)?;
        from += taken;
        ensure(from <= chunk.records.len(), || {
            format!("the sink took {taken} records where fewer were left")
        })?;
        ensure(Instant::now() < deadline, || {
            format!("the sink takes no more after {from} records")
        })?;
    }
    Ok(())
}

fn await_confirmed(sink: &mut dyn Sink, written: u64) -> Result<(), String> {
    let deadline = Instant::now() + PATIENCE;
    let mut confirmed = 0;
    while confirmed < written {
        let now = sink.poll_confirmed(Duration::from_millis(200)).map_err(told)?;
        ensure(now >= confirmed, || {
            format!("the confirmed prefix goes back from {confirmed} to {now}")
        })?;
        ensure(now <= written, || {
            format!("{now} is confirmed where only {written} was written")
        })?;
        ensure(Instant::now() < deadline, || {
            format!("the sink confirms no more than {now} of {written}")
        })?;
        confirmed = now;
    }
    Ok(())
}
