//! The nexmark source: bids by the clock, or as fast as they are read.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use arrow::datatypes::SchemaRef;

use super::bids::{BidSpec, Bids};
use crate::ack::AckIssuer;
use crate::error::{ConnectorError, ErrorKind};
use crate::format::parse_timestamp;
use crate::in_process::{InProcessSource, LaneFactory};
use crate::options::{Given, OptionKind, OptionMap, OptionSpec};
use crate::source::{
    Batch, BatchBody, LaneState, LaneWaker, PartitionId, Positions, Probe, RecoveryIdentity, Source,
    SourceConnector, SourceContext, SourceContract, SourceLane,
};

const ALL_COLUMNS: [usize; 7] = [0, 1, 2, 3, 4, 5, 6];

/// A paced lane is due no more often than this.
const TICK: Duration = Duration::from_millis(5);

const fn integer(
    name: &'static str,
    aliases: &'static [&'static str],
    min: i64,
    default: Option<&'static str>,
    doc: &'static str,
) -> OptionSpec {
    let kind = OptionKind::Integer {
        min,
        max: 1_000_000_000_000,
    };
    OptionSpec {
        name,
        aliases,
        kind,
        default,
        doc,
        ..OptionSpec::TEXT
    }
}

const OPTIONS: &[OptionSpec] = &[
    OptionSpec {
        name: "table.type",
        aliases: &["nexmark.table.type"],
        default: Some("bid"),
        doc: "Which of Nexmark's streams; only bid is there.",
        ..OptionSpec::TEXT
    },
    integer(
        "rows.per.second",
        &["nexmark.rows.per.second"],
        0,
        Some("10000"),
        "Bids per second over all partitions; 0 is as fast as they are read.",
    ),
    integer(
        "event.num",
        &["nexmark.event.num"],
        0,
        None,
        "How many bids there are over all partitions; without it they never end.",
    ),
    OptionSpec {
        name: "partitions",
        aliases: &["nexmark.split.num"],
        kind: OptionKind::Integer { min: 1, max: 4096 },
        default: Some("1"),
        doc: "How many partitions the bids go round.",
        ..OptionSpec::TEXT
    },
    integer(
        "seed",
        &["nexmark.seed"],
        0,
        Some("42"),
        "Decides the rows: the same seed gives the same bids.",
    ),
    OptionSpec {
        name: "start.time",
        default: Some("2015-07-15 00:00:00"),
        doc: "Event time of the first bid.",
        ..OptionSpec::TEXT
    },
    integer(
        "event.gap.us",
        &[],
        0,
        Some("100"),
        "Event time from one bid to the next, in microseconds.",
    ),
    integer("auctions", &[], 1, Some("1000"), "How many auctions there are."),
    integer("bidders", &[], 1, Some("10000"), "How many bidders there are."),
];

/// `connector = 'nexmark'`: auction bids, the same for the same options, readable from any position.
#[derive(Debug, Default, Clone, Copy)]
pub struct NexmarkConnector;

/// The options of a nexmark source, parsed.
#[derive(Debug, Clone)]
struct Settings {
    spec: BidSpec,
    rows_per_second: u64,
    rows: Option<i64>,
}

impl Settings {
    fn parse(options: &OptionMap) -> Result<Self, ConnectorError> {
        let given = Given::new(OPTIONS, options);
        let integer = |name: &str| -> Result<i64, ConnectorError> { Ok(given.integer(name)?.unwrap_or(0)) };
        let table = given.required("table.type")?;
        if !table.eq_ignore_ascii_case("bid") {
            let message = format!("option \"table.type\" does not take \"{table}\"");
            return Err(ConnectorError::invalid(message).with_hint("Only bid is there."));
        }
        let start = given.required("start.time")?;
        let start_us = parse_timestamp(start).map_err(|reason| {
            ConnectorError::invalid(format!("option \"start.time\" does not take \"{start}\""))
                .with_detail(format!("It is a timestamp: {reason}."))
        })?;
        let partitions = integer("partitions")?;
        let spec = BidSpec {
            seed: integer("seed")? as u64,
            partitions: i32::try_from(partitions).unwrap_or(1),
            start_us,
            gap_us: integer("event.gap.us")?,
            auctions: integer("auctions")? as u64,
            bidders: integer("bidders")? as u64,
        };
        Ok(Self {
            spec,
            rows_per_second: integer("rows.per.second")? as u64,
            rows: given.integer("event.num")?,
        })
    }

    fn contract(&self) -> SourceContract {
        SourceContract {
            replayable: true,
            bounded: self.rows.is_some(),
            ordered: true,
            position: "row number",
            shares_commits: false,
        }
    }

    /// How many rows a partition has in all.
    fn end_of(&self, partition: PartitionId) -> Option<i64> {
        let partitions = i64::from(self.spec.partitions);
        self.rows.map(|rows| {
            (rows - i64::from(partition.0) + partitions - 1)
                .div_euclid(partitions)
                .max(0)
        })
    }

    fn partitions(&self) -> impl Iterator<Item = PartitionId> {
        (0..self.spec.partitions).map(PartitionId)
    }

    /// What decides the rows, so that positions mean the same rows after a restart.
    fn identity(&self) -> RecoveryIdentity {
        let spec = &self.spec;
        [
            ("seed", spec.seed.to_string()),
            ("partitions", spec.partitions.to_string()),
            ("start.time (µs)", spec.start_us.to_string()),
            ("event.gap.us", spec.gap_us.to_string()),
            ("auctions", spec.auctions.to_string()),
            ("bidders", spec.bidders.to_string()),
        ]
        .into_iter()
        .map(|(name, value)| (name.to_owned(), value))
        .collect()
    }
}

impl SourceConnector for NexmarkConnector {
    fn name(&self) -> &'static str {
        "nexmark"
    }

    fn options(&self) -> &'static [OptionSpec] {
        OPTIONS
    }

    fn contract(&self, options: &OptionMap) -> SourceContract {
        let bounded = options.contains_key("event.num");
        SourceContract {
            replayable: true,
            bounded,
            ordered: true,
            position: "row number",
            shares_commits: false,
        }
    }

    fn unpaced(&self, options: &OptionMap) -> OptionMap {
        let mut options = options.clone();
        options.insert("rows.per.second".to_owned(), "0".to_owned());
        options
    }

    fn fixed_schema(&self, _options: &OptionMap) -> Option<SchemaRef> {
        Some(Bids::new(BidSpec::default()).schema())
    }

    fn validate(&self, options: &OptionMap) -> Result<(), ConnectorError> {
        Settings::parse(options).map(drop)
    }

    fn probe(&self, options: &OptionMap, _timeout: Duration) -> Result<Probe, ConnectorError> {
        let settings = Settings::parse(options)?;
        Ok(Probe {
            start: settings.partitions().map(|partition| (partition, 0)).collect(),
            from_beginning: true,
            identity: settings.identity(),
            columns: self.fixed_schema(options),
            notices: Vec::new(),
        })
    }

    fn create(&self, options: &OptionMap) -> Result<Box<dyn Source>, ConnectorError> {
        let settings = Settings::parse(options)?;
        let bids = Bids::new(settings.spec.clone());
        Ok(Box::new(InProcessSource::new(NexmarkLanes { settings, bids })))
    }
}

/// Makes the lanes of one stream of bids.
struct NexmarkLanes {
    settings: Settings,
    bids: Bids,
}

impl LaneFactory for NexmarkLanes {
    /// Where lanes start; those that are not named start at their first row.
    type Reader = Positions;

    fn name(&self) -> &'static str {
        "nexmark"
    }

    fn contract(&self) -> SourceContract {
        self.settings.contract()
    }

    fn open(&self, context: &SourceContext, start: &Positions) -> Result<Positions, ConnectorError> {
        let identity = self.settings.identity();
        for (name, recorded) in &context.identity {
            let now = identity.get(name).map_or("nothing", String::as_str);
            if now != recorded {
                let message = format!(
                    "the recorded positions of source \"{}\" belong to other rows",
                    context.name
                );
                let detail = format!("They were taken with {name} = {recorded}, which is {now} now.");
                return Err(ConnectorError::new(ErrorKind::PositionLost, message).with_detail(detail));
            }
        }
        if let Some(partition) = start
            .keys()
            .find(|partition| !(0..self.settings.spec.partitions).contains(&partition.0))
        {
            let message = format!("source \"{}\" has no partition {}", context.name, partition.0);
            return Err(ConnectorError::new(ErrorKind::PositionLost, message));
        }
        Ok(start.clone())
    }

    fn await_partitions(&self, known: usize, deadline: Instant) -> usize {
        let partitions = self.settings.partitions().count();
        if partitions <= known {
            // Partitions never come or go, so there is nothing to wait for but the time.
            std::thread::sleep(deadline.saturating_duration_since(Instant::now()));
        }
        partitions
    }

    fn lane(
        &self,
        start: &Positions,
        partition: PartitionId,
        acks: AckIssuer,
        paused: Arc<AtomicBool>,
    ) -> Box<dyn SourceLane> {
        Box::new(NexmarkLane {
            bids: self.bids.clone(),
            partition,
            position: start.get(&partition).copied().unwrap_or(0),
            end: self.settings.end_of(partition),
            pace: Pace::new(self.settings.rows_per_second, self.settings.spec.partitions),
            state: LaneState::Reading,
            acks,
            paused,
            waker: None,
        })
    }

    fn end_offsets(&self) -> Positions {
        let ends = self
            .settings
            .partitions()
            .map(|partition| Some((partition, self.settings.end_of(partition)?)));
        ends.flatten().collect()
    }
}

/// How many rows may have been given out by now.
struct Pace {
    /// Rows per second of this lane; `None`: any number.
    rows_per_second: Option<f64>,
    started: Option<Instant>,
    given: u64,
}

impl Pace {
    fn new(rows_per_second: u64, partitions: i32) -> Self {
        let own = (rows_per_second > 0).then(|| rows_per_second as f64 / f64::from(partitions));
        Self {
            rows_per_second: own,
            started: None,
            given: 0,
        }
    }

    /// How many rows are due at `now`.
    fn due_rows(&mut self, now: Instant) -> usize {
        let started = *self.started.get_or_insert(now);
        match self.rows_per_second {
            None => usize::MAX,
            Some(rate) => {
                let due = (now.duration_since(started).as_secs_f64() * rate) as u64;
                due.saturating_sub(self.given) as usize
            }
        }
    }

    /// When the next row is due, if it is not already.
    fn next_due(&self, now: Instant) -> Instant {
        match (self.rows_per_second, self.started) {
            (Some(rate), Some(started)) => {
                let wait = Duration::try_from_secs_f64((self.given + 1) as f64 / rate)
                    .unwrap_or(Duration::from_secs(3600));
                (started + wait).max(now + TICK)
            }
            _ => now,
        }
    }
}

struct NexmarkLane {
    bids: Bids,
    partition: PartitionId,
    position: i64,
    /// One past the last row, if there is a last one.
    end: Option<i64>,
    pace: Pace,
    state: LaneState,
    acks: AckIssuer,
    paused: Arc<AtomicBool>,
    waker: Option<LaneWaker>,
}

impl NexmarkLane {
    /// How many rows are due, waiting for the first one until `deadline`.
    fn await_rows(&mut self, deadline: Instant) -> usize {
        loop {
            let now = Instant::now();
            let rows = self.pace.due_rows(now);
            if rows > 0 || now >= deadline {
                return rows;
            }
            std::thread::sleep(
                self.pace
                    .next_due(now)
                    .min(deadline)
                    .saturating_duration_since(now),
            );
        }
    }
}

impl SourceLane for NexmarkLane {
    fn partition(&self) -> PartitionId {
        self.partition
    }

    fn set_waker(&mut self, waker: LaneWaker) {
        waker();
        self.waker = Some(waker);
    }

    fn poll(&mut self, max_records: usize, timeout: Duration) -> Result<Option<Batch<'_>>, ConnectorError> {
        let left = self.end.map_or(usize::MAX, |end| {
            usize::try_from(end - self.position).unwrap_or(0)
        });
        if left == 0 {
            self.state = LaneState::Ended;
            return Ok(None);
        }
        if max_records == 0 || self.paused.load(Ordering::Acquire) {
            return Ok(None);
        }
        let due = self.await_rows(Instant::now() + timeout);
        let count = due.min(max_records).min(left);
        if count == 0 {
            // A lane that has yet to give its first row is not an empty partition, whose silence holds nobody back.
            if self.position > 0 {
                self.state = LaneState::AtEnd;
            }
            return Ok(None);
        }
        let first_offset = self.position;
        let next_offset = first_offset + count as i64;
        let rows = self
            .bids
            .rows(self.partition.0, first_offset..next_offset, &ALL_COLUMNS);
        self.position = next_offset;
        self.pace.given += count as u64;
        self.state = match (count == left, count == due) {
            (true, _) => LaneState::Ended,
            (false, true) => LaneState::AtEnd,
            (false, false) => LaneState::Reading,
        };
        let ack = self.acks.issue(self.partition, first_offset, next_offset);
        Ok(Some(Batch {
            body: BatchBody::Rows { rows, first_offset },
            next_offset,
            ack,
        }))
    }

    fn state(&self) -> LaneState {
        self.state
    }

    fn end_offset(&self) -> Option<i64> {
        self.end
    }

    fn due(&self) -> Option<Instant> {
        if self.state == LaneState::Ended || self.paused.load(Ordering::Acquire) {
            return None;
        }
        let now = Instant::now();
        Some(match self.state == LaneState::Reading && self.position > 0 {
            true => now,
            false => self.pace.next_due(now),
        })
    }

    fn pause(&mut self) {
        self.paused.store(true, Ordering::Release);
    }

    fn resume(&mut self) {
        self.paused.store(false, Ordering::Release);
        if let Some(waker) = &self.waker {
            waker();
        }
    }
}
