//! The rows of `hw.memory`: what holds how much of the memory that there is.

use arrow::record_batch::RecordBatch;
use highwater_sql::statement::ObjectKind;
use highwater_storage::StoreMetrics;

use super::Snapshot;
use super::tables::{Columns, big};
use crate::engine::operators::state::evicted::EvictionFigures;
use crate::engine::status::QueryStatus;

/// What does not belong to a query.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct DatabaseMemory {
    /// All that there may be, in bytes.
    pub(super) limit: usize,
    /// What storage has.
    pub(super) store: StoreMetrics,
}

/// One row.
struct Held {
    part: &'static str,
    query: Option<String>,
    node: Option<i64>,
    operator: Option<String>,
    bytes: u64,
    evictions: Option<EvictionFigures>,
}

impl Held {
    fn of_database(part: &'static str, bytes: u64) -> Self {
        Self {
            part,
            query: None,
            node: None,
            operator: None,
            bytes,
            evictions: None,
        }
    }

    fn of_query(part: &'static str, query: &QueryStatus, bytes: usize) -> Self {
        Self {
            query: Some(query.name.clone()),
            ..Self::of_database(part, bytes as u64)
        }
    }
}

impl Snapshot {
    /// `hw.memory`
    pub(super) fn memory(&self) -> RecordBatch {
        let mut all = vec![Held::of_database("limit", self.memory.limit as u64)];
        let pipelines = self.pipelines.iter();
        for query in pipelines.flat_map(|pipeline| &pipeline.queries) {
            all.extend(query.operators.iter().map(|operator| Held {
                node: i64::try_from(operator.node).ok(),
                operator: Some(operator.description.clone()),
                bytes: operator.stats.state_bytes,
                evictions: Some(operator.stats.evictions),
                ..Held::of_query("state", query, 0)
            }));
            let memory = query.memory;
            if query.kind != ObjectKind::Sink {
                all.push(Held::of_query("changed rows", query, memory.overlay_bytes));
            } else if query.sink.is_some() {
                all.push(Held::of_query("outbox", query, memory.outbox_bytes));
            }
            if !query.lanes.is_empty() {
                all.push(Held::of_query("lanes", query, memory.queue_bytes));
            }
        }
        let store = self.memory.store;
        // Write buffers are charged to the cache.
        let blocks = store.block_cache_bytes.saturating_sub(store.memtable_bytes);
        all.push(Held::of_database("block cache", blocks));
        all.push(Held::of_database("write buffers", store.memtable_bytes));
        let evictions = |of: fn(&EvictionFigures) -> u64| {
            let figures = all.iter().map(|own| own.evictions.as_ref());
            figures.map(move |own| own.map(of).and_then(big))
        };
        Columns::new()
            .text("part", all.iter().map(|own| Some(own.part)))
            .text("query", all.iter().map(|own| own.query.clone()))
            .big("node", all.iter().map(|own| own.node))
            .text("operator", all.iter().map(|own| own.operator.clone()))
            .big("bytes", all.iter().map(|own| big(own.bytes)))
            .big("evicted", evictions(|own| own.evicted))
            .big("read_back", evictions(|own| own.read_back))
            .build()
    }
}
