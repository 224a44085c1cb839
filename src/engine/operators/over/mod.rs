//! The Over operator: the rows of each partition in order, for Top-N, `DISTINCT ON`, ranks and window functions.
//!
//! ```text
//! deltas ─▶ late rows out ─▶ keys hashed, rows encoded behind their place ─▶ rows by shard
//!     per shard, in parallel when there is enough to do:                           │
//!     touched partitions: what they gave ─▶ rows in and out ─▶ what they give ─▶ the difference: −1, +1
//! ```
//!
//! What a partition gives is found anew when one of its rows changes: the rows of the slice, with the window functions over
//! them. Only what differs goes on. Where rows are only ever added, those behind the slice are not kept.
//!
//! State on disk (keys start with the window column, so that closed partitions are one range):
//!
//! | table | key | value |
//! |---|---|---|
//! | 0 | partition, place in the order, row, length of the place | version, how often it is there |

mod layout;
mod output;
mod partition;
mod shard;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use highwater_sql::stream_plan::Over;
use highwater_storage::Snapshot;

use self::layout::Layout;
use self::shard::{Shard, ShardOutput};
use super::state::arrangement::{self, Closed, FrozenArrangements};
use super::state::encoded::EncodedRows;
use super::state::evicted::{EvictionFigures, StateHome};
use super::{FrozenState, Input, Operator, OperatorStats, StateAddress, StepContext};
use crate::engine::delta::Delta;
use crate::engine::error::EngineError;

/// Orders rows by partition.
pub(crate) struct OverOperator {
    layout: Layout,
    shards: Vec<Shard>,
    closed: Closed,
    /// Whether partitions go that nothing changes.
    has_ttl: bool,
    stats: OperatorStats,
}

impl OverOperator {
    /// An operator without rows; `shards` of them run in parallel. `append_only` says that its input only ever inserts.
    ///
    /// # Errors
    /// Types that cannot be partitioned by, ordered or stored (`0A000`).
    pub(crate) fn try_new(
        over: &Over,
        input: &SchemaRef,
        append_only: bool,
        output: SchemaRef,
        shards: usize,
    ) -> Result<Self, EngineError> {
        let layout = Layout::try_new(over, input, append_only, output)?;
        let shards = if over.partition.is_empty() {
            1
        } else {
            shards.max(1)
        };
        let shards = (0..shards).map(|_| Shard::new(&layout)).collect();
        Ok(Self {
            layout,
            shards,
            closed: Closed::default(),
            has_ttl: false,
            stats: OperatorStats::default(),
        })
    }

    fn prepare(
        &mut self,
        context: &StepContext<'_>,
        input: &Input<'_>,
    ) -> Result<Vec<EncodedRows>, EngineError> {
        let (layout, shards) = (&self.layout, self.shards.len());
        let (closed_to, deltas) = (input.closed_to, input.deltas);
        let prepare = |delta: &Delta| layout::prepare(layout, delta, closed_to, shards);
        let rows: usize = deltas.iter().map(Delta::num_rows).sum();
        let prepared = context.for_each_delta(deltas, rows, shards, prepare)?;
        let taken: usize = prepared.iter().map(EncodedRows::num_rows).sum();
        self.stats.late_rows += (rows - taken) as u64;
        if let (true, Some((column, add_us)), Some(closed_to)) = (taken < rows, layout.closing, closed_to) {
            context
                .late
                .note(deltas, column, closed_to.saturating_sub(add_us), closed_to)?;
        }
        Ok(prepared)
    }

    fn run_shards(
        &mut self,
        context: &StepContext<'_>,
        prepared: &[EncodedRows],
        close_through: Option<i64>,
    ) -> Result<Vec<ShardOutput>, EngineError> {
        let layout = &self.layout;
        let rows: usize = prepared.iter().map(EncodedRows::num_rows).sum();
        context.for_each_shard(&mut self.shards, rows, |number, shard| {
            shard.step(layout, prepared, number, (close_through, context.now_us))
        })
    }
}

impl Operator for OverOperator {
    fn step(&mut self, context: &StepContext<'_>, inputs: &[Input<'_>]) -> Result<Vec<Delta>, EngineError> {
        let [input] = inputs else {
            return Err(EngineError::internal("an ordering has one input"));
        };
        let prepared = self.prepare(context, input)?;
        let close_through = match (self.layout.closing, input.watermark) {
            (Some((_, add_us)), Some(watermark)) => Some(watermark.saturating_sub(add_us)),
            _ => None,
        };
        if let (true, Some(through)) = (self.layout.emit_on_close, close_through) {
            let mut shards: Vec<_> = self.shards.iter_mut().map(Shard::arrangement).collect();
            arrangement::read_closing(&self.layout.key, &mut shards, through)?;
        }
        let outputs = self.run_shards(context, &prepared, close_through)?;
        self.closed.advance(close_through);
        output::merge(&self.layout, outputs)
    }

    fn freeze(&mut self) -> Option<Box<dyn FrozenState>> {
        let shards = self.shards.iter_mut().map(Shard::arrangement).collect();
        FrozenArrangements::freeze(shards, &mut self.closed)
    }

    fn due_us(&self) -> Option<i64> {
        self.shards.iter().filter_map(Shard::due_us).min()
    }

    fn next_close_us(&self) -> Option<i64> {
        let add_us = self.layout.closing?.1;
        let first = self.shards.iter().filter_map(Shard::first_window).min();
        first.map(|window| window.saturating_add(add_us))
    }

    fn forget_idle(&mut self, ttl_us: i64) {
        self.shards.iter_mut().for_each(|shard| shard.forget_idle(ttl_us));
        self.has_ttl = true;
    }

    fn attach(&mut self, home: &Arc<StateHome>) {
        if self.has_ttl {
            return;
        }
        self.shards
            .iter_mut()
            .for_each(|shard| shard.arrangement().attach(home));
    }

    fn evictable_bytes(&self) -> usize {
        let evictable = self.shards.iter().filter(|shard| shard.is_evictable());
        evictable.map(Shard::state_bytes).sum()
    }

    fn evict(&mut self, goal_bytes: usize) -> usize {
        arrangement::evict(self.shards.iter_mut().map(Shard::arrangement), goal_bytes)
    }

    fn restore(&mut self, address: StateAddress, snapshot: &dyn Snapshot) -> Result<(), EngineError> {
        let mut shards: Vec<_> = self.shards.iter_mut().map(Shard::arrangement).collect();
        arrangement::restore(&self.layout.key, &mut shards, address, snapshot)
    }

    fn stats(&self) -> OperatorStats {
        OperatorStats {
            state_rows: self.shards.iter().map(|shard| shard.state_rows() as u64).sum(),
            state_bytes: self.shards.iter().map(|shard| shard.state_bytes() as u64).sum(),
            evictions: EvictionFigures::sum(self.shards.iter().map(Shard::eviction_figures)),
            ..self.stats
        }
    }
}
