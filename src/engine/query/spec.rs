//! What a query is made from, and the parts of the engine that all queries share.

use std::collections::BTreeMap;
use std::sync::Arc;

use highwater_connectors::format::EncodeOptions;
use highwater_connectors::options::OptionMap;
use highwater_connectors::sink::SinkConnector;
use highwater_connectors::source::{RecoveryIdentity, SourceConnector};
use highwater_sql::statement::ObjectKind;
use highwater_sql::stream_plan::{NodeId, StreamOp, StreamPlan};
use highwater_storage::{KeyOrder, ObjectId, ObjectProgress, Store};

use super::into_table::TableTarget;
use crate::engine::clock::Clock;
use crate::engine::error::EngineError;
use crate::engine::errors_log::ErrorLog;
use crate::engine::lane::pool::LanePool;
use crate::engine::lane::scan::ScanSpec;
use crate::engine::late_rows::LateLog;
use crate::engine::memory::MemoryBudget;
use crate::engine::reaper::Reaper;
use crate::engine::source_settings::SourceSettings;
use crate::engine::table::ConflictRule;

/// A table, view or sink to run.
pub(crate) struct QuerySpec {
    /// Its number.
    pub(crate) id: ObjectId,
    /// Its name.
    pub(crate) name: String,
    /// What it computes.
    pub(crate) plan: Arc<StreamPlan>,
    /// The sources that it reads.
    pub(crate) sources: Vec<SourceBinding>,
    /// The stored relations that it reads: plan node and relation.
    pub(crate) relations: Vec<(NodeId, ObjectId)>,
    /// Where its result goes.
    pub(crate) target: Target,
    /// Of a table: what becomes of rows whose key is there.
    pub(crate) rule: Option<ConflictRule>,
    /// Why it cannot run in this process, if it cannot.
    pub(crate) obstacle: Option<EngineError>,
    /// Why it is FAILED from the beginning while what it reads runs, if it is: a function of the program is missing.
    pub(crate) missing: Option<EngineError>,
    /// How long it is there.
    pub(crate) lifetime: Lifetime,
}

/// How long a query is there.
pub(crate) enum Lifetime {
    /// As long as the catalog has it. Checkpoints record it.
    Stored,
    /// As long as somebody follows its changes. Nothing of it is ever written; it starts in its sources at these positions.
    Followed(ObjectProgress),
}

impl QuerySpec {
    /// What kind of object it runs.
    pub(crate) fn kind(&self) -> ObjectKind {
        match (&self.plan.root().op, &self.target) {
            (_, Target::Sink(_) | Target::Table(_)) => ObjectKind::Sink,
            (_, Target::Index(_)) => ObjectKind::Index,
            (StreamOp::TableChanges, Target::View) => ObjectKind::Table,
            (_, Target::View) => ObjectKind::MaterializedView,
        }
    }

    /// Whether it goes with who follows it, and leaves nothing in the store.
    pub(crate) fn is_followed(&self) -> bool {
        matches!(self.lifetime, Lifetime::Followed(_))
    }

    /// The table that it writes into, if it is such a sink.
    pub(crate) fn target_table(&self) -> Option<ObjectId> {
        match &self.target {
            Target::Table(table) => Some(table.id),
            Target::View | Target::Index(_) | Target::Sink(_) => None,
        }
    }
}

/// A source as one query reads it.
pub(crate) struct SourceBinding {
    /// The plan's scan.
    pub(crate) node: NodeId,
    /// The source's number.
    pub(crate) id: ObjectId,
    /// The source's name.
    pub(crate) name: String,
    /// Makes readers.
    pub(crate) connector: Arc<dyn SourceConnector>,
    /// The connector's own options.
    pub(crate) options: OptionMap,
    /// The engine's options.
    pub(crate) settings: SourceSettings,
    /// What is decoded and how.
    pub(crate) scan: Arc<ScanSpec>,
    /// What the positions belong to.
    pub(crate) identity: RecoveryIdentity,
}

/// Where a result goes.
pub(crate) enum Target {
    /// Into a stored view.
    View,
    /// Out through a connector.
    Sink(SinkTarget),
    /// Into a table of the same pipeline.
    Table(TableTarget),
    /// Into an index: stored rows that are sorted by these columns (ADR-27).
    Index(Vec<(usize, KeyOrder)>),
}

/// How a sink delivers.
pub(crate) struct SinkTarget {
    /// Makes clients.
    pub(crate) connector: Arc<dyn SinkConnector>,
    /// The connector's own options.
    pub(crate) options: OptionMap,
    /// The format's name; `None`: the connector takes no bytes.
    pub(crate) encode: Option<String>,
    /// The format's own options.
    pub(crate) format_options: OptionMap,
    /// Columns, mode and key.
    pub(crate) encoding: EncodeOptions,
    /// Unconfirmed bytes at which the pipeline waits.
    pub(crate) outbox_bytes_max: usize,
}

/// What all queries share.
#[derive(Clone)]
pub(crate) struct EngineParts {
    /// Where everything is kept.
    pub(crate) store: Arc<dyn Store>,
    /// The lane threads.
    pub(crate) lanes: Arc<LanePool>,
    /// Runs shards of operators.
    pub(crate) shards: Arc<rayon::ThreadPool>,
    /// The wall clock.
    pub(crate) clock: Arc<dyn Clock>,
    /// Bad records.
    pub(crate) errors: Arc<ErrorLog>,
    /// Late rows.
    pub(crate) late: Arc<LateLog>,
    /// Rows of a relation that a new query takes in one step.
    pub(crate) backfill_rows: usize,
    /// How much memory there is for what queries hold, and how much they hold.
    pub(crate) memory: Arc<MemoryBudget>,
    /// Held for writing while a step's results become visible; for reading while a read takes its snapshot.
    pub(crate) publish: Arc<parking_lot::RwLock<()>>,
    /// Closes what queries have stopped.
    pub(crate) reaper: Arc<Reaper>,
}

/// Next offsets by partition number, for people.
pub(crate) type OffsetsByPartition = BTreeMap<i32, i64>;
