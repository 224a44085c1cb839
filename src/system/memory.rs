//! The rows of `hw.memory`: what holds how much of the memory that there is.

use std::collections::BTreeMap;

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

/// The part that is no part, but all that there may be.
const LIMIT: &str = "limit";

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
    /// What each part holds for each query, in bytes; the query is empty for what belongs to none.
    pub(super) fn memory_by_query(&self) -> Vec<(&'static str, String, u64)> {
        let mut sums: BTreeMap<(&'static str, String), u64> = BTreeMap::new();
        for own in self.held().into_iter().filter(|own| own.part != LIMIT) {
            *sums.entry((own.part, own.query.unwrap_or_default())).or_default() += own.bytes;
        }
        sums.into_iter()
            .map(|((part, query), bytes)| (part, query, bytes))
            .collect()
    }

    fn held(&self) -> Vec<Held> {
        let mut all = vec![Held::of_database(LIMIT, self.memory.limit as u64)];
        let pipelines = self.pipelines.iter();
        for query in pipelines.flat_map(|pipeline| &pipeline.queries) {
            all.extend(query.operators.iter().filter_map(|operator| {
                let stats = operator.stats?;
                Some(Held {
                    node: i64::try_from(operator.node).ok(),
                    operator: Some(operator.description.to_string()),
                    bytes: stats.state_bytes,
                    evictions: Some(stats.evictions),
                    ..Held::of_query("state", query, 0)
                })
            }));
            let memory = query.memory;
            if query.kind != ObjectKind::Sink {
                all.push(Held::of_query("changed rows", query, memory.overlay_bytes));
            } else if query.sink.is_some() {
                all.push(Held::of_query("outbox", query, memory.outbox_bytes));
            }
            if memory.subscribed_bytes > 0 {
                all.push(Held::of_query("subscriptions", query, memory.subscribed_bytes));
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
        all
    }

    /// `hw.memory`
    pub(super) fn memory(&self) -> RecordBatch {
        let all = self.held();
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
