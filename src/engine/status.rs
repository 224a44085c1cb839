//! Figures for people: what `SHOW` and the `hw.*` tables show of running queries.

use std::sync::Arc;

use highwater_connectors::statistics::ClientStatistics;
use highwater_sql::statement::ObjectKind;
use highwater_storage::{LaneCounts, ObjectId};

use super::error::EngineError;
use super::followed::is_followed;
use super::node_figures::NodeFigures;
use super::operators::OperatorStats;

/// One partition as one query reads it.
#[derive(Debug, Clone)]
pub(crate) struct LaneStatus {
    /// The source.
    pub(crate) source: String,
    /// The view or sink.
    pub(crate) query: String,
    /// The partition number.
    pub(crate) partition: i32,
    /// Next offset: one past the last row taken.
    pub(crate) position: i64,
    /// The same as of the last durable checkpoint.
    pub(crate) durable_offset: Option<i64>,
    /// One past the last record of the partition, as last heard.
    pub(crate) end_offset: Option<i64>,
    /// How far its event time is.
    pub(crate) time: LaneTime,
    /// Why it stands still, if it does.
    pub(crate) paused: Option<String>,
    /// How its records add up.
    pub(crate) counts: LaneCounts,
    /// How much comes.
    pub(crate) traffic: LaneTraffic,
    /// The last error.
    pub(crate) last_error: Option<String>,
}

/// How much comes of a partition.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct LaneTraffic {
    /// Rows per second, over the last seconds.
    pub(crate) rows_per_second: f64,
    /// Bytes of records since the start of the process, or of rows where the source gives rows.
    pub(crate) bytes: u64,
}

/// The event time of a partition.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct LaneTime {
    /// The partition's watermark (µs).
    pub(crate) watermark_us: Option<i64>,
    /// Whether it is left out of the source's watermark.
    pub(crate) idle: bool,
    /// Since when it is silent (wall clock, µs); `None` before the first row of this process.
    pub(crate) silent_since_us: Option<i64>,
}

/// One operator of a query.
#[derive(Debug, Clone)]
pub(crate) struct OperatorStatus {
    /// Its place in the plan.
    pub(crate) node: usize,
    /// What it is, in a word.
    pub(crate) kind: &'static str,
    /// What it is.
    pub(crate) description: Arc<str>,
    /// What it has taken and given.
    pub(crate) figures: NodeFigures,
    /// Its state; `None` for one that has none.
    pub(crate) stats: Option<OperatorStats>,
    /// Its watermark (µs).
    pub(crate) watermark_us: Option<i64>,
    /// The end of the first window that is open (µs), where windows close and one is.
    pub(crate) next_close_us: Option<i64>,
    /// When its output changes although nothing comes (wall clock, µs), if it ever does.
    pub(crate) due_us: Option<i64>,
}

/// One query.
#[derive(Debug, Clone)]
pub(crate) struct QueryStatus {
    /// Its number.
    pub(crate) id: ObjectId,
    /// Its name.
    pub(crate) name: String,
    /// Whether it is a table, a materialized view or a sink.
    pub(crate) kind: ObjectKind,
    /// Why it stopped, if it did.
    pub(crate) failure: Option<EngineError>,
    /// The watermark of its result (µs).
    pub(crate) watermark_us: Option<i64>,
    /// Its lanes.
    pub(crate) lanes: Vec<LaneStatus>,
    /// Its operators.
    pub(crate) operators: Vec<OperatorStatus>,
    /// Rows of a view (for a sink: rows made so far).
    pub(crate) rows: u64,
    /// For a sink: what waits, and how it is.
    pub(crate) sink: Option<SinkStatus>,
    /// How far it is, where it did not fail.
    pub(crate) phase: Phase,
    /// What it holds in memory beside its operators' state.
    pub(crate) memory: MemoryStatus,
    /// What the clients of its sources and its sink told of themselves last.
    pub(crate) clients: Vec<Arc<ClientStatistics>>,
}

impl QueryStatus {
    /// What it is, for people.
    pub(crate) fn noun(&self) -> &'static str {
        if is_followed(self.id) {
            return "subscription";
        }
        self.kind.noun()
    }
}

/// What a query holds in memory beside the state of its operators, in bytes.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct MemoryStatus {
    /// Rows of its view that are not durable yet.
    pub(crate) overlay_bytes: usize,
    /// What its view's subscribers have not taken yet.
    pub(crate) subscribed_bytes: usize,
    /// Batches that wait in its lanes.
    pub(crate) queue_bytes: usize,
    /// Rows that its sink has not confirmed.
    pub(crate) outbox_bytes: usize,
}

impl MemoryStatus {
    /// All of it.
    pub(crate) fn sum(self) -> usize {
        self.overlay_bytes + self.subscribed_bytes + self.queue_bytes + self.outbox_bytes
    }
}

/// How far a query is that did not fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    /// It takes what comes.
    Running,
    /// It takes what comes, and what was there before it: rows taken of those, and how many there are.
    Filling(u64, u64),
    /// All its sources are bounded and taken to their end.
    Ended,
    /// It is recorded, and this process does not run it.
    NotRunning,
}

impl QueryStatus {
    /// A query that could not be started.
    pub(crate) fn broken(id: ObjectId, name: String, kind: ObjectKind, error: EngineError) -> Self {
        Self {
            failure: Some(error),
            ..Self::not_running(id, name, kind)
        }
    }

    /// A recorded query that this process only looks at.
    pub(crate) fn not_running(id: ObjectId, name: String, kind: ObjectKind) -> Self {
        Self {
            id,
            name,
            kind,
            failure: None,
            watermark_us: None,
            lanes: Vec::new(),
            operators: Vec::new(),
            rows: 0,
            sink: None,
            phase: Phase::NotRunning,
            memory: MemoryStatus::default(),
            clients: Vec::new(),
        }
    }

    /// `RUNNING`, `BACKFILLING`, `ENDED`, `FAILED` or `NOT RUNNING`.
    pub(crate) fn state(&self) -> &'static str {
        match (&self.failure, self.phase) {
            (Some(_), _) => "FAILED",
            (None, Phase::Ended) => "ENDED",
            (None, Phase::Running) => "RUNNING",
            (None, Phase::Filling(..)) => "BACKFILLING",
            (None, Phase::NotRunning) => "NOT RUNNING",
        }
    }
}

/// The delivery of a sink.
#[derive(Debug, Clone)]
pub(crate) struct SinkStatus {
    /// `running`, `retrying` or `failed`.
    pub(crate) state: &'static str,
    /// The last error.
    pub(crate) error: Option<EngineError>,
    /// Rows that are not confirmed.
    pub(crate) pending_rows: u64,
    /// Their bytes.
    pub(crate) pending_bytes: u64,
    /// Rows confirmed, over all runs.
    pub(crate) confirmed: u64,
    /// Deliveries that failed since the sink was started.
    pub(crate) failures: u64,
}

/// A pipeline's checkpoints.
#[derive(Debug, Clone, Default)]
pub(crate) struct CheckpointStatus {
    /// The last durable epoch.
    pub(crate) epoch: u64,
    /// How long the step thread stood still for the last freeze (µs).
    pub(crate) freeze_us: u64,
    /// The longest freeze so far (µs).
    pub(crate) freeze_max_us: u64,
    /// How long building and writing the last one took (µs).
    pub(crate) write_us: u64,
    /// Its size.
    pub(crate) bytes: u64,
    /// When it became durable (µs since the epoch).
    pub(crate) at_us: i64,
    /// Why the last one failed, if it did.
    pub(crate) failure: Option<EngineError>,
    /// How long one has been written that is not durable yet (µs); 0 if there is none.
    pub(crate) in_flight_us: u64,
    /// All of them.
    pub(crate) totals: CheckpointTotals,
}

/// The checkpoints of a pipeline since it was started.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct CheckpointTotals {
    /// How many became durable.
    pub(crate) count: u64,
    /// How many failed.
    pub(crate) failures: u64,
    /// How long the step thread stood still for them (µs).
    pub(crate) freeze_us: u64,
    /// How long building and writing took (µs).
    pub(crate) write_us: u64,
    /// Their bytes.
    pub(crate) bytes: u64,
}
