//! The ASOF join operator: each left row beside the nearest right row of its key.
//!
//! ```text
//! deltas ─▶ late rows out ─▶ keys hashed, rows encoded behind their time ─▶ rows by shard ─▶ net change of each row
//!     per shard, in parallel when there is enough to do:                                              │
//!     right rows that come or go ─▶ the left rows between them and their neighbours ─┐                ▼
//!     left rows that come or go ─────────────────────────────────────────────────────┴▶ match before and after: −1, +1
//! ```
//!
//! The rows of a key stand in the order of their times. A right row that comes or goes changes the matches of those left rows
//! for which it is the nearest, and these stand side by side: from it to its neighbour. So the work of a step is in proportion
//! to what it changes, beside a search in the order for each row.
//!
//! Where both times are event times, left rows below the watermark change no more and are let go, as are the right rows that
//! no later left row can be nearest to: of those below the watermark, the last of each key stays for later left rows.
//!
//! State on disk:
//!
//! | table | key | value |
//! |---|---|---|
//! | 0 | key, time, left row, length of the time | version, how often it is there |
//! | 1 | key, time, all columns of the right row as a key, length of the time | the same |

mod input;
mod layout;
mod output;
mod shard;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use highwater_sql::stream_plan::AsOf;
use highwater_storage::Snapshot;

use self::input::Prepared;
use self::layout::{Layout, SIDES};
use self::output::Changes;
use self::shard::Shard;
use super::state::arrangement::{self, Closed, FrozenArrangements};
use super::state::evicted::{EvictionFigures, StateHome};
use super::{FrozenState, Input, Operator, OperatorStats, StateAddress, StepContext};
use crate::engine::delta::Delta;
use crate::engine::error::EngineError;

/// Finds the nearest right row of each left row.
pub(crate) struct AsOfOperator {
    layout: Layout,
    shards: Vec<Shard>,
    stats: OperatorStats,
}

impl AsOfOperator {
    /// An operator without rows; `shards` of them run in parallel.
    ///
    /// # Errors
    /// Types that cannot be joined by, ordered or stored (`0A000`).
    pub(crate) fn try_new(
        asof: &AsOf,
        inputs: [&SchemaRef; SIDES],
        output: SchemaRef,
        shards: usize,
    ) -> Result<Self, EngineError> {
        let layout = Layout::try_new(asof, inputs, output)?;
        let shards = if asof.keys.is_empty() { 1 } else { shards.max(1) };
        let shards = (0..shards).map(|_| Shard::new(&layout)).collect();
        Ok(Self {
            layout,
            shards,
            stats: OperatorStats::default(),
        })
    }

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
        if let (true, true, Some(closed_to)) = (taken < rows, layout.expires, closed_to) {
            for (input, side) in inputs.iter().zip(&layout.sides) {
                let last_late = closed_to.saturating_sub(1);
                context.late.note(input.deltas, side.time, last_late, closed_to)?;
            }
        }
        Ok(prepared)
    }

    fn run_shards(
        &mut self,
        context: &StepContext<'_>,
        prepared: &[Prepared],
        watermark: Option<i64>,
    ) -> Result<Vec<Changes>, EngineError> {
        let layout = &self.layout;
        let rows: usize = prepared.iter().map(|own| own.rows.num_rows()).sum();
        context.for_each_shard(&mut self.shards, rows, |number, shard| {
            shard.step(layout, prepared, number, watermark)
        })
    }
}

impl Operator for AsOfOperator {
    fn step(&mut self, context: &StepContext<'_>, inputs: &[Input<'_>]) -> Result<Vec<Delta>, EngineError> {
        let inputs: &[Input<'_>; SIDES] = inputs
            .try_into()
            .map_err(|_| EngineError::internal("an ASOF join has two inputs"))?;
        let prepared = self.prepare(context, inputs)?;
        let watermark = inputs[0].watermark.min(inputs[1].watermark);
        let changes = self.run_shards(context, &prepared, watermark)?;
        output::merge(&self.layout, changes)
    }

    fn freeze(&mut self) -> Option<Box<dyn FrozenState>> {
        let shards = self.shards.iter_mut().map(Shard::arrangement).collect();
        FrozenArrangements::freeze(shards, &mut Closed::default())
    }

    fn attach(&mut self, home: &Arc<StateHome>) {
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
