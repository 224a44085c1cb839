//! The join operator: the rows of both inputs by key, and for each step the pairs that it adds and takes away.
//!
//! ```text
//! deltas ─▶ late rows out ─▶ keys hashed, rows encoded ─▶ rows by shard ─▶ net change of each row
//!           └─ per delta, whole columns ───────────────┘          │
//!     per shard, in parallel when there is enough to do:          ▼
//!     changed rows with all rows of their key on the other side ─▶ pairs ─▶ condition ─▶ −1, +1
//! ```
//!
//! The weight of a pair is the product of how often its rows are there, and a step gives the difference between the weight
//! after it and the one before. A pair changes only if one of its rows does, so each pair is looked at once, and the output
//! is consolidated as it is made. What becomes of a row alone (NULLs beside it, semi, anti and mark) depends on how many
//! matches it has: all rows of its key on the other side, or, if there is a condition, those that satisfy it, which are
//! counted with the row.
//!
//! Rows that can have no further match are let go: those of closed windows, if windows are among the equal columns, or each
//! row on its own, if the condition bounds the time between rows that match.
//!
//! A temporal join keeps the right rows alone: a left row is joined with those that are there when it comes, and forgotten.
//!
//! State on disk (keys start with the closing column, if there is one, so that what is closed is one range):
//!
//! | table | key | value |
//! |---|---|---|
//! | 0 | key, left row (after its time, if rows go one by one) | version, how often it is there, how many matches it has if those are counted |
//! | 1 | key, right row | the same |

mod input;
mod layout;
mod output;
mod shard;
mod temporal;
#[cfg(test)]
mod tests;
mod work;

use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use highwater_sql::stream_plan::Join;
use highwater_storage::Snapshot;

use self::input::Prepared;
use self::layout::{Layout, SIDES};
use self::output::Part;
use self::shard::Shard;
use super::state::arrangement::{self, Closed, FrozenArrangements};
use super::state::evicted::{EvictionFigures, StateHome};
use super::{FrozenState, Input, Operator, OperatorStats, StateAddress, StepContext};
use crate::engine::delta::Delta;
use crate::engine::error::EngineError;

/// Joins two inputs.
pub(crate) struct JoinOperator {
    layout: Layout,
    shards: Vec<Shard>,
    closed: Closed,
    /// Whether keys go that nothing changes.
    has_ttl: bool,
    stats: OperatorStats,
}

impl JoinOperator {
    /// An operator without rows; `shards` of them run in parallel. `append_only` says that its output only ever inserts.
    ///
    /// # Errors
    /// Types that cannot be joined by or stored (`0A000`).
    pub(crate) fn try_new(
        join: &Join,
        inputs: [&SchemaRef; SIDES],
        output: SchemaRef,
        append_only: bool,
        shards: usize,
    ) -> Result<Self, EngineError> {
        let layout = Layout::try_new(join, inputs, output, append_only)?;
        let shards = if join.keys.is_empty() { 1 } else { shards.max(1) };
        let shards = (0..shards).map(|_| Shard::new(&layout)).collect();
        Ok(Self {
            layout,
            shards,
            closed: Closed::default(),
            has_ttl: false,
            stats: OperatorStats::default(),
        })
    }

    /// The deltas of both inputs, the left ones first.
    fn prepare(
        &mut self,
        context: &StepContext<'_>,
        inputs: &[Input<'_>; SIDES],
    ) -> Result<Vec<Prepared>, EngineError> {
        let (layout, shards) = (&self.layout, self.shards.len());
        let closed_to = inputs[0].closed_to.min(inputs[1].closed_to);
        let deltas: Vec<(usize, &Delta)> = inputs
            .iter()
            .enumerate()
            .flat_map(|(side, input)| input.deltas.iter().map(move |delta| (side, delta)))
            .collect();
        let rows: usize = deltas.iter().map(|(_, delta)| delta.num_rows()).sum();
        let prepare = |(side, delta): &(usize, &Delta)| Prepared::of(layout, *side, delta, closed_to, shards);
        let prepared = context.for_each_delta(&deltas, rows, shards, prepare)?;
        let taken: usize = prepared.iter().map(|own| own.rows.num_rows()).sum();
        self.stats.late_rows += (rows - taken) as u64;
        if let (true, Some(closed_to)) = (taken < rows, closed_to) {
            for (input, side) in inputs.iter().zip(&layout.sides) {
                if let Some((column, add_us)) = side.times.late {
                    let last_late = closed_to.saturating_sub(add_us);
                    context.late.note(input.deltas, column, last_late, closed_to)?;
                }
            }
        }
        Ok(prepared)
    }

    fn run_shards(
        &mut self,
        context: &StepContext<'_>,
        prepared: &[Prepared],
        watermark: Option<i64>,
    ) -> Result<Vec<Vec<Part>>, EngineError> {
        let layout = &self.layout;
        let rows: usize = prepared.iter().map(|own| own.rows.num_rows()).sum();
        context.for_each_shard(&mut self.shards, rows, |number, shard| {
            shard.step(layout, prepared, number, (watermark, context.now_us))
        })
    }
}

impl Operator for JoinOperator {
    fn step(&mut self, context: &StepContext<'_>, inputs: &[Input<'_>]) -> Result<Vec<Delta>, EngineError> {
        let inputs: &[Input<'_>; SIDES] = inputs
            .try_into()
            .map_err(|_| EngineError::internal("a join has two inputs"))?;
        let prepared = self.prepare(context, inputs)?;
        let watermark = inputs[0].watermark.min(inputs[1].watermark);
        let close_through = match (self.layout.closing_add_us, watermark) {
            (Some(add_us), Some(watermark)) => Some(watermark.saturating_sub(add_us)),
            _ => None,
        };
        let parts = self.run_shards(context, &prepared, watermark)?;
        self.closed.advance(close_through);
        output::merge(parts.into_iter().flatten(), self.layout.append_only)
    }

    fn freeze(&mut self) -> Option<Box<dyn FrozenState>> {
        let shards = self.shards.iter_mut().map(Shard::arrangement).collect();
        FrozenArrangements::freeze(shards, &mut self.closed)
    }

    fn due_us(&self) -> Option<i64> {
        self.shards.iter().filter_map(Shard::due_us).min()
    }

    fn next_close_us(&self) -> Option<i64> {
        let add_us = self.layout.closing_add_us?;
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
