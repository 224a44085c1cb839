//! The rows of the system tables.

use std::sync::Arc;
use std::time::Duration;

use arrow::array::{
    ArrayRef, BinaryArray, BooleanArray, Float64Array, Int32Array, Int64Array, StringArray,
    TimestampMicrosecondArray,
};
use arrow::record_batch::RecordBatch;
use highwater_connectors::source::Positions;
use highwater_sql::catalog::{ObjectBody, TableDef};
use highwater_storage::{LaneProgress, progress};

use super::{Look, Snapshot};
use crate::database::{Shared, only_of};
use crate::engine::operators::OperatorStats;
use crate::engine::status::{
    CheckpointStatus, LaneStatus, LaneTime, LaneTraffic, Phase, QueryStatus, SinkStatus,
};
use crate::error::Result;

/// How long a look at the end offsets of a source that does not run may take.
const LOOK_TIMEOUT: Duration = Duration::from_secs(3);

/// A lane that no pipeline runs (read-only, or its pipeline did not start), as its last checkpoint has it.
pub(crate) struct StoredLane {
    source: String,
    query: String,
    partition: i32,
    progress: LaneProgress,
    end_offset: Option<i64>,
}

/// What the store tells of queries that do not run.
#[derive(Default)]
pub(crate) struct Stored {
    lanes: Vec<StoredLane>,
    /// Queries that nobody tried to run, with the epoch of their last checkpoint.
    pub(super) queries: Vec<(QueryStatus, Option<u64>)>,
}

impl Stored {
    /// Reads the lanes, with the end offsets that the outside world tells now, and the queries.
    ///
    /// # Errors
    /// Progress that cannot be read.
    pub(super) async fn read(
        shared: &Arc<Shared>,
        (running, broken): (&[&str], &[QueryStatus]),
        look: Look,
    ) -> Result<Self> {
        let lanes = stored_lanes(shared, running, look).await?;
        let catalog = shared.catalog();
        let snapshot = shared.store.snapshot();
        let mut queries = Vec::new();
        for object in catalog.iter() {
            let is_known = running.contains(&object.name.as_str())
                || broken.iter().any(|query| query.name == object.name);
            if object.body.plan().is_none() || is_known {
                continue;
            }
            let id = highwater_storage::ObjectId(object.id.0);
            let found = progress::load(snapshot.as_ref(), id)?;
            let mut status = QueryStatus::not_running(id, object.name.clone(), object.body.kind());
            status.sink = found.sink.map(|sink| SinkStatus {
                state: "not running",
                error: None,
                pending_rows: sink.next_seq.saturating_sub(sink.confirmed_seq),
                pending_bytes: 0,
                confirmed: sink.confirmed_seq,
                failures: 0,
            });
            queries.push((status, found.query.map(|query| query.epoch.0)));
        }
        Ok(Self { lanes, queries })
    }
}

async fn stored_lanes(shared: &Arc<Shared>, running: &[&str], look: Look) -> Result<Vec<StoredLane>> {
    let catalog = shared.catalog();
    let snapshot = shared.store.snapshot();
    let mut lanes = Vec::new();
    let mut sources = std::collections::BTreeMap::new();
    for object in catalog
        .iter()
        .filter(|object| !running.contains(&object.name.as_str()))
    {
        let found = progress::load(snapshot.as_ref(), highwater_storage::ObjectId(object.id.0))?;
        for (source, partition, progress) in found.lanes {
            let Some(source) = catalog.iter().find(|other| other.id.0 == source.0) else {
                continue;
            };
            sources.insert(source.name.clone(), Arc::clone(source));
            lanes.push(StoredLane {
                source: source.name.clone(),
                query: object.name.clone(),
                partition: partition.0,
                progress,
                end_offset: None,
            });
        }
    }
    drop(snapshot);
    if look == Look::Inside {
        return Ok(lanes);
    }
    for (name, source) in sources {
        let ends = end_offsets(shared, &source.body).await;
        for lane in lanes.iter_mut().filter(|lane| lane.source == name) {
            let partition = highwater_connectors::source::PartitionId(lane.partition);
            lane.end_offset = ends.get(&partition).copied();
        }
    }
    Ok(lanes)
}

/// End offsets as the outside world tells them now; nothing if it does not answer.
async fn end_offsets(shared: &Arc<Shared>, body: &ObjectBody) -> Positions {
    let Some(source) = body.source() else {
        return Positions::new();
    };
    let Ok(connector) = shared.registry.source(&source.connector).map(Arc::clone) else {
        return Positions::new();
    };
    let options = only_of(connector.options(), &source.options);
    // An environment variable that is not set here names no place to ask.
    if options.values().any(|text| text.contains("${")) {
        return Positions::new();
    }
    let look = shared
        .runtime
        .spawn_blocking(move || connector.end_offsets(&options, LOOK_TIMEOUT));
    look.await.ok().and_then(Result::ok).unwrap_or_default()
}

/// Builds a batch column by column.
pub(super) struct Columns(Vec<(&'static str, ArrayRef)>);

impl Columns {
    pub(super) fn new() -> Self {
        Self(Vec::new())
    }

    pub(super) fn text<T: Into<String>>(
        mut self,
        name: &'static str,
        values: impl Iterator<Item = Option<T>>,
    ) -> Self {
        let values = values.map(|value| value.map(Into::into));
        self.0.push((name, Arc::new(values.collect::<StringArray>())));
        self
    }

    pub(super) fn big(mut self, name: &'static str, values: impl Iterator<Item = Option<i64>>) -> Self {
        self.0.push((name, Arc::new(values.collect::<Int64Array>())));
        self
    }

    pub(super) fn int(mut self, name: &'static str, values: impl Iterator<Item = i32>) -> Self {
        self.0
            .push((name, Arc::new(Int32Array::from_iter_values(values))));
        self
    }

    fn float(mut self, name: &'static str, values: impl Iterator<Item = f64>) -> Self {
        self.0
            .push((name, Arc::new(Float64Array::from_iter_values(values))));
        self
    }

    fn flag(mut self, name: &'static str, values: impl Iterator<Item = bool>) -> Self {
        self.0
            .push((name, Arc::new(values.map(Some).collect::<BooleanArray>())));
        self
    }

    pub(super) fn time(mut self, name: &'static str, values: impl Iterator<Item = Option<i64>>) -> Self {
        let values: TimestampMicrosecondArray = values.collect();
        self.0.push((name, Arc::new(values.with_timezone("UTC"))));
        self
    }

    /// Event time is of the columns' own type: without a zone.
    pub(super) fn event_time(
        mut self,
        name: &'static str,
        values: impl Iterator<Item = Option<i64>>,
    ) -> Self {
        self.0
            .push((name, Arc::new(values.collect::<TimestampMicrosecondArray>())));
        self
    }

    fn bytes<'a>(mut self, name: &'static str, values: impl Iterator<Item = &'a [u8]>) -> Self {
        self.0
            .push((name, Arc::new(BinaryArray::from_iter_values(values))));
        self
    }

    pub(super) fn build(self) -> RecordBatch {
        RecordBatch::try_from_iter_with_nullable(self.0.into_iter().map(|(name, array)| (name, array, true)))
            .expect("the columns are of one length")
    }
}

pub(super) fn big(value: u64) -> Option<i64> {
    i64::try_from(value).ok()
}

/// Whether the figures of a query are kept: nobody counts what does not run.
fn is_counted(query: &QueryStatus) -> bool {
    query.failure.is_some() || query.phase != Phase::NotRunning
}

/// Rows that a query has taken of those that were there before it, and how many there are; `None` for one that has them all.
fn backfill(query: &QueryStatus) -> Option<(u64, u64)> {
    match (&query.failure, query.phase) {
        (None, Phase::Filling(done, rows)) => Some((done, rows)),
        _ => None,
    }
}

impl Snapshot {
    pub(super) fn all_queries(&self) -> impl Iterator<Item = &QueryStatus> + Clone {
        self.pipelines.iter().flat_map(|pipeline| pipeline.queries.iter())
    }

    pub(super) fn all_lanes(&self) -> Vec<LaneStatus> {
        let stored = self.stored.lanes.iter().map(|lane| LaneStatus {
            source: lane.source.clone(),
            query: lane.query.clone(),
            partition: lane.partition,
            position: lane.progress.next_offset,
            durable_offset: Some(lane.progress.next_offset),
            end_offset: lane.end_offset,
            time: LaneTime {
                watermark_us: lane.progress.watermark,
                idle: lane.progress.idle,
                silent_since_us: None,
            },
            paused: None,
            counts: lane.progress.counts,
            traffic: LaneTraffic::default(),
            last_error: None,
        });
        self.all_queries()
            .flat_map(|query| query.lanes.iter().cloned())
            .chain(stored)
            .collect()
    }

    /// `hw.lanes`
    pub(super) fn lanes(&self) -> RecordBatch {
        let lanes = self.all_lanes();
        let lag = |lane: &LaneStatus| lane.end_offset.map(|end| (end - lane.position).max(0));
        Columns::new()
            .text("source", lanes.iter().map(|lane| Some(lane.source.clone())))
            .text("query", lanes.iter().map(|lane| Some(lane.query.clone())))
            .int("partition", lanes.iter().map(|lane| lane.partition))
            .big("position", lanes.iter().map(|lane| Some(lane.position)))
            .big("durable_offset", lanes.iter().map(|lane| lane.durable_offset))
            .big("end_offset", lanes.iter().map(|lane| lane.end_offset))
            .big("lag", lanes.iter().map(lag))
            .event_time("watermark", lanes.iter().map(|lane| lane.time.watermark_us))
            .flag("idle", lanes.iter().map(|lane| lane.time.idle))
            .text("paused", lanes.iter().map(|lane| lane.paused.clone()))
            .big("rows", lanes.iter().map(|lane| big(lane.counts.rows)))
            .float(
                "rows_per_second",
                lanes.iter().map(|lane| lane.traffic.rows_per_second),
            )
            .big("bytes", lanes.iter().map(|lane| big(lane.traffic.bytes)))
            .big("bad", lanes.iter().map(|lane| big(lane.counts.bad)))
            .big("tombstones", lanes.iter().map(|lane| big(lane.counts.tombstones)))
            .big("skewed", lanes.iter().map(|lane| big(lane.counts.skewed)))
            .big("untimed", lanes.iter().map(|lane| big(lane.counts.untimed)))
            .big("lost", lanes.iter().map(|lane| big(lane.counts.lost)))
            .text("last_error", lanes.iter().map(|lane| lane.last_error.clone()))
            .build()
    }

    /// `hw.sources`
    pub(super) fn sources(&self) -> RecordBatch {
        let lanes = self.all_lanes();
        let sources: Vec<_> = self
            .catalog
            .iter()
            .filter_map(|object| match &object.body {
                ObjectBody::Source(source) => Some((&object.name, source)),
                _ => None,
            })
            .collect();
        let of = |name: &String| {
            lanes
                .iter()
                .filter(move |lane| &lane.source == name)
                .collect::<Vec<_>>()
        };
        let partitions = |name: &String| {
            of(name)
                .iter()
                .map(|lane| lane.partition)
                .collect::<std::collections::BTreeSet<_>>()
                .len() as i64
        };
        Columns::new()
            .text("name", sources.iter().map(|(name, _)| Some((*name).clone())))
            .text(
                "connector",
                sources.iter().map(|(_, source)| Some(source.connector.clone())),
            )
            .big(
                "partitions",
                sources.iter().map(|(name, _)| Some(partitions(name))),
            )
            .big(
                "rows",
                sources
                    .iter()
                    .map(|(name, _)| big(of(name).iter().map(|lane| lane.counts.rows).sum())),
            )
            .big(
                "bad",
                sources
                    .iter()
                    .map(|(name, _)| big(of(name).iter().map(|lane| lane.counts.bad).sum())),
            )
            .big(
                "lost",
                sources
                    .iter()
                    .map(|(name, _)| big(of(name).iter().map(|lane| lane.counts.lost).sum())),
            )
            .text(
                "last_error",
                sources
                    .iter()
                    .map(|(name, _)| of(name).iter().find_map(|lane| lane.last_error.clone())),
            )
            .build()
    }

    /// `hw.views`
    pub(super) fn views(&self) -> RecordBatch {
        let views: Vec<_> = self
            .catalog
            .iter()
            .filter_map(|object| match &object.body {
                ObjectBody::View(view) => Some((&object.name, false, view.query.clone())),
                ObjectBody::MaterializedView(view) => Some((&object.name, true, view.definition())),
                _ => None,
            })
            .collect();
        let rows = |name: &str| {
            self.all_queries()
                .find(|query| query.name == name)
                .and_then(|query| big(query.rows))
        };
        Columns::new()
            .text("name", views.iter().map(|(name, ..)| Some((*name).clone())))
            .flag(
                "materialized",
                views.iter().map(|(_, materialized, _)| *materialized),
            )
            .big("rows", views.iter().map(|(name, ..)| rows(name)))
            .text("query", views.iter().map(|(.., query)| Some((*query).clone())))
            .build()
    }

    /// `hw.tables`
    pub(super) fn tables(&self) -> RecordBatch {
        let tables: Vec<_> = self
            .catalog
            .iter()
            .filter_map(|object| match &object.body {
                ObjectBody::Table(table) => Some((&object.name, table)),
                _ => None,
            })
            .collect();
        let key = |table: &TableDef| {
            let names = table
                .primary_key
                .iter()
                .map(|column| table.columns[*column].name.as_str());
            Some(names.collect::<Vec<_>>().join(", ")).filter(|names| !names.is_empty())
        };
        let rows = |name: &str| {
            self.all_queries()
                .find(|query| query.name == name)
                .and_then(|query| big(query.rows))
        };
        Columns::new()
            .text("name", tables.iter().map(|(name, _)| Some((*name).clone())))
            .text("primary_key", tables.iter().map(|(_, table)| key(table)))
            .flag("append_only", tables.iter().map(|(_, table)| table.append_only))
            .big("rows", tables.iter().map(|(name, _)| rows(name)))
            .build()
    }

    /// `hw.queries`
    pub(super) fn queries(&self) -> RecordBatch {
        let broken = self.broken.iter().cloned();
        let stored = self.stored.queries.iter().map(|(query, _)| query.clone());
        let queries: Vec<QueryStatus> = self.all_queries().cloned().chain(broken).chain(stored).collect();
        let sum = |query: &QueryStatus, of: fn(&OperatorStats) -> u64| {
            let stats = query
                .operators
                .iter()
                .filter_map(|operator| operator.stats.as_ref());
            is_counted(query).then(|| stats.map(of).sum()).and_then(big)
        };
        let error = |query: &QueryStatus| query.failure.clone();
        Columns::new()
            .text("name", queries.iter().map(|query| Some(query.name.clone())))
            .text("kind", queries.iter().map(|query| Some(query.noun())))
            .text("state", queries.iter().map(|query| Some(query.state())))
            .big(
                "rows",
                queries
                    .iter()
                    .map(|query| big(query.rows).filter(|_| is_counted(query))),
            )
            .big(
                "backfill_done",
                queries.iter().map(|query| big(backfill(query)?.0)),
            )
            .big(
                "backfill_rows",
                queries.iter().map(|query| big(backfill(query)?.1)),
            )
            .event_time("watermark", queries.iter().map(|query| query.watermark_us))
            .big(
                "late_rows",
                queries.iter().map(|query| sum(query, |stats| stats.late_rows)),
            )
            .big(
                "state_rows",
                queries.iter().map(|query| sum(query, |stats| stats.state_rows)),
            )
            .big(
                "state_bytes",
                queries.iter().map(|query| sum(query, |stats| stats.state_bytes)),
            )
            .text(
                "sqlstate",
                queries
                    .iter()
                    .map(|query| error(query).map(|error| error.sqlstate)),
            )
            .text(
                "error",
                queries
                    .iter()
                    .map(|query| error(query).map(|error| error.message)),
            )
            .text(
                "detail",
                queries
                    .iter()
                    .map(|query| error(query).and_then(|error| error.detail)),
            )
            .text(
                "hint",
                queries
                    .iter()
                    .map(|query| error(query).and_then(|error| error.hint)),
            )
            .build()
    }

    /// `hw.sinks`
    pub(super) fn sinks(&self) -> RecordBatch {
        let stored = self.stored.queries.iter().map(|(query, _)| query);
        let sinks: Vec<_> = self
            .all_queries()
            .chain(stored)
            .filter_map(|query| query.sink.as_ref().map(|sink| (&query.name, sink)))
            .collect();
        Columns::new()
            .text("name", sinks.iter().map(|(name, _)| Some((*name).clone())))
            .text("state", sinks.iter().map(|(_, sink)| Some(sink.state)))
            .big("confirmed", sinks.iter().map(|(_, sink)| big(sink.confirmed)))
            .big(
                "pending_rows",
                sinks.iter().map(|(_, sink)| big(sink.pending_rows)),
            )
            .big(
                "pending_bytes",
                sinks
                    .iter()
                    .map(|(_, sink)| big(sink.pending_bytes).filter(|_| sink.state != "not running")),
            )
            .big("failures", sinks.iter().map(|(_, sink)| big(sink.failures)))
            .text(
                "sqlstate",
                sinks
                    .iter()
                    .map(|(_, sink)| sink.error.as_ref().map(|error| error.sqlstate)),
            )
            .text(
                "error",
                sinks
                    .iter()
                    .map(|(_, sink)| sink.error.as_ref().map(|error| error.message.clone())),
            )
            .text(
                "detail",
                sinks
                    .iter()
                    .map(|(_, sink)| sink.error.as_ref().and_then(|error| error.detail.clone())),
            )
            .build()
    }

    /// `hw.checkpoints`
    pub(super) fn checkpoints(&self) -> RecordBatch {
        let written = self.pipelines.iter().map(|pipeline| {
            let queries = pipeline.queries.iter().map(|query| query.name.as_str());
            let names = queries.collect::<Vec<_>>().join(", ");
            (names, pipeline.checkpoint.clone(), big(pipeline.steps))
        });
        let recorded = self.stored.queries.iter().filter_map(|(query, epoch)| {
            let checkpoint = CheckpointStatus {
                epoch: (*epoch)?,
                ..CheckpointStatus::default()
            };
            Some((query.name.clone(), checkpoint, None))
        });
        let all: Vec<_> = written.chain(recorded).collect();
        // What this process did not write it has not measured.
        let each = |of: fn(&CheckpointStatus) -> u64| {
            all.iter()
                .map(move |(_, checkpoint, steps)| steps.and_then(|_| big(of(checkpoint))))
        };
        let at = |at_us: i64| Some(at_us).filter(|at_us| *at_us > 0);
        Columns::new()
            .text("queries", all.iter().map(|(queries, ..)| Some(queries.clone())))
            .big(
                "epoch",
                all.iter().map(|(_, checkpoint, _)| big(checkpoint.epoch)),
            )
            .time("at", all.iter().map(|(_, checkpoint, _)| at(checkpoint.at_us)))
            .big("bytes", each(|checkpoint| checkpoint.bytes))
            .big("write_us", each(|checkpoint| checkpoint.write_us))
            .big("freeze_us", each(|checkpoint| checkpoint.freeze_us))
            .big("freeze_max_us", each(|checkpoint| checkpoint.freeze_max_us))
            .big("checkpoints", each(|checkpoint| checkpoint.totals.count))
            .big("failures", each(|checkpoint| checkpoint.totals.failures))
            .big("in_flight_us", each(|checkpoint| checkpoint.in_flight_us))
            .big("steps", all.iter().map(|(.., steps)| *steps))
            .text(
                "error",
                all.iter()
                    .map(|(_, checkpoint, _)| checkpoint.failure.as_ref().map(|error| error.message.clone())),
            )
            .build()
    }

    /// `hw.errors`
    pub(super) fn errors(&self) -> RecordBatch {
        let errors = &self.errors;
        Columns::new()
            .time("at", errors.iter().map(|row| Some(row.at_us)))
            .text("source", errors.iter().map(|row| Some(row.source.clone())))
            .text("query", errors.iter().map(|row| Some(row.query.clone())))
            .int("partition", errors.iter().map(|row| row.place.0))
            .big("offset", errors.iter().map(|row| Some(row.place.1)))
            .text("column", errors.iter().map(|row| row.column.clone()))
            .text("reason", errors.iter().map(|row| Some(row.reason.clone())))
            .bytes("bytes", errors.iter().map(|row| row.bytes.as_slice()))
            .build()
    }

    /// `hw.settings`
    pub(super) fn settings(&self) -> RecordBatch {
        Columns::new()
            .text("name", self.settings.iter().map(|(name, _)| Some(*name)))
            .text(
                "value",
                self.settings.iter().map(|(_, value)| Some(value.clone())),
            )
            .build()
    }
}
