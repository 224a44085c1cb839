//! Every connector that needs no broker, put through the conformance checks; and the checks put to connectors that
//! break their promises.

use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant};

use arrow::array::{Int64Array, RecordBatch, StringArray};
use highwater_connectors::ack::AckIssuer;
use highwater_connectors::blackhole::BlackholeConnector;
use highwater_connectors::conformance::{SinkFixture, SourceFixture, check_sink, check_source};
use highwater_connectors::datagen::NexmarkConnector;
use highwater_connectors::memory::{MemoryConnector, MemorySinkConnector};
use highwater_connectors::options::{OptionMap, OptionSpec};
use highwater_connectors::source::{
    Batch, BatchBody, LaneState, LaneWaker, PartitionId, Positions, Probe, Source, SourceConnector,
    SourceContext, SourceContract, SourceEvent, SourceLane, Wants,
};
use highwater_connectors::{ConnectorError, ErrorKind};
use parking_lot::Mutex;

const PATIENCE: Duration = Duration::from_secs(20);

#[path = "../../docs/examples/line_source.rs"]
#[expect(dead_code, unreachable_pub, reason = "it is a program of its own")]
mod line_source;

fn options(given: &[(&str, &str)]) -> OptionMap {
    given
        .iter()
        .map(|(name, text)| ((*name).to_owned(), (*text).to_owned()))
        .collect()
}

fn numbers(values: std::ops::Range<i64>) -> RecordBatch {
    RecordBatch::try_from_iter([("n", Arc::new(Int64Array::from_iter_values(values)) as _)])
        .expect("one column makes a batch")
}

/// A source and its lanes.
type OpenSource = (Box<dyn Source>, Vec<Box<dyn SourceLane>>);

/// An open source and its first lanes.
fn open(
    connector: &dyn SourceConnector,
    options: &OptionMap,
    start: &Positions,
) -> Result<OpenSource, ConnectorError> {
    let mut source = connector.create(options)?;
    let context = SourceContext {
        name: "test".to_owned(),
        wants: Wants::default(),
        identity: connector.probe(options, Duration::ZERO)?.identity,
    };
    source.open(context, start)?;
    match source.poll_events(Duration::ZERO)? {
        SourceEvent::LanesAssigned(lanes) => Ok((source, lanes)),
        _ => panic!("a source that is open has lanes"),
    }
}

/// The numbers of one poll.
fn poll_numbers(lane: &mut dyn SourceLane, max_records: usize) -> Vec<i64> {
    match lane
        .poll(max_records, Duration::ZERO)
        .expect("the fixture is sound")
        .map(|batch| batch.body)
    {
        Some(BatchBody::Rows { rows, .. }) => rows
            .column(0)
            .as_any()
            .downcast_ref::<Int64Array>()
            .expect("the fixture is sound")
            .values()
            .to_vec(),
        Some(BatchBody::Payloads(_)) => panic!("rows were expected"),
        None => Vec::new(),
    }
}

#[test]
fn the_memory_source_keeps_its_promises() {
    let connector = MemoryConnector::new();
    let handle = connector.handle("t");
    handle.ensure_partitions(2);
    for partition in 0..2 {
        for first in [0, 40, 41] {
            handle.push_to(partition, numbers(first..first + 50)).unwrap();
        }
    }
    let feed = handle.clone();
    let mut fixture = SourceFixture {
        connector: &connector,
        options: options(&[("topic", "t"), ("partitions", "2")]),
        rows: 150,
        feed: Some(Box::new(move || {
            (0..2).for_each(|partition| assert!(feed.push_to(partition, numbers(7..8)).is_ok()));
        })),
        patience: PATIENCE,
    };
    // A reader that never commits keeps the rows of all checks.
    let keeper = open(&connector, &fixture.options, &Positions::new()).unwrap();
    check_source(&mut fixture).unwrap();
    drop(keeper);
}

#[test]
fn the_nexmark_source_keeps_its_promises() {
    for (rate, partitions) in [("0", "1"), ("0", "3"), ("100000", "2")] {
        let options = options(&[
            ("event.num", "1000"),
            ("rows.per.second", rate),
            ("partitions", partitions),
        ]);
        check_source(&mut SourceFixture::new(&NexmarkConnector, options)).unwrap();
    }
}

#[test]
fn an_endless_nexmark_source_keeps_its_promises() {
    let options = options(&[("rows.per.second", "20000")]);
    let mut fixture = SourceFixture {
        rows: 500,
        ..SourceFixture::new(&NexmarkConnector, options)
    };
    check_source(&mut fixture).unwrap();
}

#[test]
fn the_source_of_the_examples_keeps_its_promises() {
    let path = std::env::temp_dir().join(format!("highwater-lines-{}", std::process::id()));
    let mut file = std::fs::File::create(&path).unwrap();
    (0..200).for_each(|n| writeln!(file, "line {n}").unwrap());
    let options = options(&[("path", path.to_str().unwrap())]);
    let checked = check_source(&mut SourceFixture::new(&line_source::LineConnector, options));
    std::fs::remove_file(path).unwrap();
    checked.unwrap();
}

#[test]
fn the_sinks_keep_their_promises() {
    let memory = MemorySinkConnector::new();
    let handle = memory.handle("out");
    let delivered = || {
        handle
            .deliveries()
            .into_iter()
            .map(|(_, record)| record)
            .collect()
    };
    let options = options(&[("topic", "out")]);
    check_sink(&mut SinkFixture {
        connector: &memory,
        options,
        delivered: Some(Box::new(delivered)),
    })
    .unwrap();
    let options = OptionMap::new();
    check_sink(&mut SinkFixture {
        connector: &BlackholeConnector,
        options,
        delivered: None,
    })
    .unwrap();
}

/// How a source can break its promises.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    None,
    /// Reads on from one row further than it was told.
    SkipsARow,
    /// Gives the last row taken as the position, not the one after it.
    NextIsLast,
    /// Gives one record more than was asked for.
    GivesTooMany,
    /// Says it is bounded and never ends.
    NeverEnds,
    /// Starts over at its beginning, wherever it is told to start.
    ForgetsItsStart,
    /// Does not call its waker.
    WakesNobody,
}

/// A source of one partition that breaks one promise.
#[derive(Clone)]
struct Faulty {
    fault: Fault,
    rows: Arc<AtomicI64>,
    position: i64,
    acks: AckIssuer,
    bell: Arc<Mutex<Option<LaneWaker>>>,
    assigned: bool,
}

impl Faulty {
    fn new(fault: Fault) -> Self {
        Self {
            fault,
            rows: Arc::new(AtomicI64::new(50)),
            position: 0,
            acks: AckIssuer::new(),
            bell: Arc::default(),
            assigned: false,
        }
    }

    fn feed(&self) {
        self.rows.fetch_add(1, Ordering::SeqCst);
        if self.fault != Fault::WakesNobody
            && let Some(waker) = &*self.bell.lock()
        {
            waker();
        }
    }

    fn is_bounded(&self) -> bool {
        self.fault != Fault::WakesNobody && self.fault != Fault::None
    }
}

impl SourceConnector for Faulty {
    fn name(&self) -> &'static str {
        "faulty"
    }
    fn options(&self) -> &'static [OptionSpec] {
        &[]
    }
    fn contract(&self, _: &OptionMap) -> SourceContract {
        SourceContract {
            replayable: true,
            bounded: self.is_bounded(),
            ordered: true,
            position: "row number",
            shares_commits: false,
        }
    }
    fn validate(&self, _: &OptionMap) -> Result<(), ConnectorError> {
        Ok(())
    }
    fn probe(&self, _: &OptionMap, _: Duration) -> Result<Probe, ConnectorError> {
        Ok(Probe {
            start: Positions::from([(PartitionId(0), 0)]),
            ..Probe::default()
        })
    }
    fn create(&self, _: &OptionMap) -> Result<Box<dyn Source>, ConnectorError> {
        Ok(Box::new(self.clone()))
    }
}

impl Source for Faulty {
    fn contract(&self) -> SourceContract {
        SourceConnector::contract(self, &OptionMap::new())
    }
    fn open(&mut self, _: SourceContext, start: &Positions) -> Result<(), ConnectorError> {
        let start = start.get(&PartitionId(0)).copied().unwrap_or(0);
        self.position = match self.fault {
            Fault::ForgetsItsStart => 0,
            Fault::SkipsARow if start > 0 => start + 1,
            _ => start,
        };
        Ok(())
    }
    fn poll_events(&mut self, _: Duration) -> Result<SourceEvent, ConnectorError> {
        if std::mem::replace(&mut self.assigned, true) {
            return Ok(SourceEvent::Idle);
        }
        Ok(SourceEvent::LanesAssigned(vec![Box::new(self.clone())]))
    }
    fn commit(&mut self, _: &[(PartitionId, i64)]) -> Result<(), ConnectorError> {
        Ok(())
    }
    fn flush_commits(&mut self, _: Duration) -> Result<(), ConnectorError> {
        Ok(())
    }
    fn pause(&mut self, _: &[PartitionId]) {}
    fn resume(&mut self, _: &[PartitionId]) {}
    fn end_offsets(&self) -> Positions {
        Positions::new()
    }
    fn close(&mut self) {}
}

impl SourceLane for Faulty {
    fn partition(&self) -> PartitionId {
        PartitionId(0)
    }
    fn set_waker(&mut self, waker: LaneWaker) {
        *self.bell.lock() = Some(waker);
    }
    fn poll(&mut self, max_records: usize, timeout: Duration) -> Result<Option<Batch<'_>>, ConnectorError> {
        let extra = i64::from(self.fault == Fault::GivesTooMany);
        let next = (self.position + max_records as i64 + extra).min(self.rows.load(Ordering::SeqCst));
        let first_offset = self.position;
        if next <= first_offset {
            std::thread::sleep(timeout);
            return Ok(None);
        }
        self.position = next;
        let next_offset = next - i64::from(self.fault == Fault::NextIsLast);
        let body = BatchBody::Rows {
            rows: numbers(first_offset..next),
            first_offset,
        };
        Ok(Some(Batch {
            body,
            next_offset,
            ack: self.acks.issue(PartitionId(0), first_offset, next),
        }))
    }
    fn state(&self) -> LaneState {
        let ends = self.is_bounded() && self.fault != Fault::NeverEnds;
        match self.position == self.rows.load(Ordering::SeqCst) {
            true if ends => LaneState::Ended,
            true => LaneState::AtEnd,
            false => LaneState::Reading,
        }
    }
    fn end_offset(&self) -> Option<i64> {
        None
    }
}

/// What the checks say of a source with this fault.
fn verdict(fault: Fault) -> Result<(), String> {
    let faulty = Faulty::new(fault);
    let feed = faulty.clone();
    let rows = if faulty.is_bounded() { usize::MAX } else { 50 };
    check_source(&mut SourceFixture {
        connector: &faulty,
        options: OptionMap::new(),
        rows,
        feed: Some(Box::new(move || feed.feed())),
        patience: Duration::from_millis(300),
    })
}

#[test]
fn the_checks_notice_each_broken_promise() {
    verdict(Fault::None).unwrap();
    for (fault, violation) in [
        (Fault::SkipsARow, "gives other rows when it is read from"),
        (Fault::NextIsLast, "gives next offset 0 after offset 0"),
        (Fault::GivesTooMany, "a poll for 1 records gave 2"),
        (Fault::NeverEnds, "gives no more after 50 of"),
        (Fault::ForgetsItsStart, "gives other rows when it is read from"),
        (Fault::WakesNobody, "woke nobody"),
    ] {
        let told = verdict(fault)
            .err()
            .unwrap_or_else(|| panic!("{fault:?} goes unnoticed"));
        assert!(told.contains(violation), "{fault:?}: {told}");
    }
}

#[test]
fn rows_stay_until_every_open_reader_has_committed_them() {
    let connector = MemoryConnector::new();
    let handle = connector.handle("t");
    handle.push(numbers(0..10)).unwrap();
    let given = options(&[("topic", "t")]);
    let (mut first, mut lanes) = open(&connector, &given, &Positions::new()).unwrap();
    let (mut second, _lanes) = open(&connector, &given, &Positions::new()).unwrap();
    assert_eq!(poll_numbers(lanes[0].as_mut(), 4), [0, 1, 2, 3]);
    // when one of two readers commits, then nothing goes
    first.commit(&[(PartitionId(0), 10)]).unwrap();
    assert_eq!(handle.first_offset(0), Some(0));
    // when both have, then what both have goes
    second.commit(&[(PartitionId(0), 6)]).unwrap();
    assert_eq!(handle.first_offset(0), Some(6));
    let lost = open(&connector, &given, &Positions::from([(PartitionId(0), 5)]))
        .err()
        .unwrap();
    assert_eq!(lost.kind, ErrorKind::PositionLost);
    assert!(open(&connector, &given, &Positions::from([(PartitionId(0), 6)])).is_ok());
}

#[test]
fn row_numbers_go_on_where_an_earlier_process_stopped() {
    let connector = MemoryConnector::new();
    let given = options(&[("topic", "t")]);
    let (_source, mut lanes) = open(&connector, &given, &Positions::from([(PartitionId(0), 500)])).unwrap();
    assert_eq!(connector.handle("t").push(numbers(0..3)).unwrap(), 503);
    let batch = lanes[0].poll(10, Duration::ZERO).unwrap().unwrap();
    assert_eq!(batch.next_offset, 503);
}

#[test]
fn a_lane_ends_after_the_last_row_of_a_topic_that_has_ended() {
    let connector = MemoryConnector::new();
    let handle = connector.handle("t");
    handle.push(numbers(0..3)).unwrap();
    let (_source, mut lanes) = open(&connector, &options(&[("topic", "t")]), &Positions::new()).unwrap();
    assert_eq!(poll_numbers(lanes[0].as_mut(), 10), [0, 1, 2]);
    assert_eq!(lanes[0].state(), LaneState::AtEnd);
    handle.end();
    assert!(poll_numbers(lanes[0].as_mut(), 10).is_empty());
    assert_eq!(lanes[0].state(), LaneState::Ended);
    assert!(handle.push(numbers(0..1)).is_err());
}

#[test]
fn partitions_added_while_running_get_lanes() {
    let connector = MemoryConnector::new();
    let handle = connector.handle("t");
    let (mut source, lanes) = open(&connector, &options(&[("topic", "t")]), &Positions::new()).unwrap();
    assert_eq!(lanes.len(), 1);
    handle.ensure_partitions(2);
    handle.push_to(1, numbers(0..2)).unwrap();
    let SourceEvent::LanesAdded(mut added) = source.poll_events(Duration::from_secs(10)).unwrap() else {
        panic!("the new partition has no lane");
    };
    assert_eq!(poll_numbers(added[0].as_mut(), 10), [0, 1]);
}

#[test]
fn rows_of_other_columns_are_refused() {
    let connector = MemoryConnector::new();
    let handle = connector.create_topic("t", &numbers(0..0).schema(), 1).unwrap();
    let texts = RecordBatch::try_from_iter([("n", Arc::new(StringArray::from(vec!["x"])) as _)]).unwrap();
    let error = handle.push(texts).unwrap_err();
    assert_eq!(
        error.detail.as_deref(),
        Some("Its columns are (n Int64); the rows have (n Utf8).")
    );
    let schema = connector.fixed_schema(&options(&[("topic", "t")])).unwrap();
    assert_eq!(schema, numbers(0..0).schema());
}

#[test]
fn a_full_topic_refuses_rows_until_some_are_committed() {
    let connector = MemoryConnector::new();
    let given = options(&[("topic", "t"), ("retention.rows", "5")]);
    let (mut source, _lanes) = open(&connector, &given, &Positions::new()).unwrap();
    let handle = connector.handle("t");
    handle.push(numbers(0..5)).unwrap();
    assert_eq!(handle.push(numbers(5..6)).unwrap_err().kind, ErrorKind::Transient);
    source.commit(&[(PartitionId(0), 5)]).unwrap();
    handle.push(numbers(5..6)).unwrap();
}

#[test]
fn latest_starts_after_the_rows_that_are_there() {
    let connector = MemoryConnector::new();
    connector.handle("t").push(numbers(0..5)).unwrap();
    let start = |mode| {
        let given = options(&[("topic", "t"), ("scan.startup.mode", mode)]);
        connector.probe(&given, Duration::ZERO).unwrap().start
    };
    assert_eq!(start("latest"), Positions::from([(PartitionId(0), 5)]));
    assert_eq!(start("earliest"), Positions::from([(PartitionId(0), 0)]));
}

#[test]
fn a_nexmark_source_with_a_rate_gives_no_more_than_that() {
    let given = options(&[("rows.per.second", "1000")]);
    let (_source, mut lanes) = open(&NexmarkConnector, &given, &Positions::new()).unwrap();
    let begun = Instant::now();
    let mut rows = 0;
    while rows < 100 {
        rows += poll_numbers(lanes[0].as_mut(), 1000).len();
        // The lane says itself when to come again.
        let due = lanes[0].due().unwrap();
        std::thread::park_timeout(due.saturating_duration_since(Instant::now()));
    }
    let elapsed = begun.elapsed();
    assert!(elapsed >= Duration::from_millis(99), "{rows} rows in {elapsed:?}");
    assert!(rows as f64 <= elapsed.as_secs_f64() * 1000.0 + 1.0);
}

#[test]
fn nexmark_options_decide_the_rows_and_are_part_of_the_identity() {
    let rows = |given: &[(&str, &str)]| {
        let mut all = vec![("rows.per.second", "0"), ("event.num", "10")];
        all.extend(given);
        let (_source, mut lanes) = open(&NexmarkConnector, &options(&all), &Positions::new()).unwrap();
        match lanes[0].poll(100, Duration::ZERO).unwrap().unwrap().body {
            BatchBody::Rows { rows, .. } => rows,
            BatchBody::Payloads(_) => panic!("rows were expected"),
        }
    };
    let plain = rows(&[]);
    assert_eq!(plain, rows(&[("seed", "42"), ("table.type", "Bid")]));
    for other in [
        ("seed", "43"),
        ("start.time", "2026-01-01"),
        ("event.gap.us", "5000"),
        ("auctions", "5"),
        ("bidders", "7"),
        ("partitions", "2"),
    ] {
        assert_ne!(plain, rows(&[other]), "{} has no effect", other.0);
        let mut source = NexmarkConnector.create(&options(&[other])).unwrap();
        let identity = NexmarkConnector
            .probe(&OptionMap::new(), Duration::ZERO)
            .unwrap()
            .identity;
        let context = SourceContext {
            name: "bids".to_owned(),
            wants: Wants::default(),
            identity,
        };
        let error = source.open(context, &Positions::new()).unwrap_err();
        assert_eq!(error.kind, ErrorKind::PositionLost, "{}", other.0);
    }
    assert!(
        NexmarkConnector
            .validate(&options(&[("table.type", "person")]))
            .is_err()
    );
    assert!(
        NexmarkConnector
            .validate(&options(&[("start.time", "soon")]))
            .is_err()
    );
}

#[test]
fn a_memory_sink_can_be_told_to_fail_and_to_hold_back() {
    use highwater_connectors::sink::{SinkChunk, SinkConnector, SinkRecord};
    let connector = MemorySinkConnector::new();
    let handle = connector.handle("out");
    let mut sink = connector.open("s", &options(&[("topic", "out")])).unwrap();
    let chunk = SinkChunk {
        first_seq: 0,
        records: Arc::new(vec![SinkRecord::default()]),
    };
    handle.fail_writes(1);
    assert_eq!(
        sink.write(&chunk, 0, Duration::ZERO).unwrap_err().kind,
        ErrorKind::Transient
    );
    handle.hold(true);
    assert_eq!(sink.write(&chunk, 0, Duration::ZERO).unwrap(), 1);
    assert_eq!(sink.poll_confirmed(Duration::ZERO).unwrap(), 0);
    handle.hold(false);
    assert_eq!(sink.poll_confirmed(Duration::ZERO).unwrap(), 1);
    assert_eq!(handle.records().len(), 1);
}
