//! The Session operator: rows by key and time, each with the start and the end of its session.
//!
//! ```text
//! deltas ─▶ late rows out ─▶ keys hashed, rows encoded behind their time ─▶ rows by shard
//!     per shard, in parallel when there is enough to do:                          │
//!     rows in and out ─▶ sessions near them that changed ─▶ their rows: −1 with the old window, +1 with the new one
//!     watermark at or past an end ─▶ session emitted, if it is not yet ─▶ its rows go, but for one
//! ```
//!
//! A row belongs to the session of another one that is less than a gap away. A row is looked up among the sessions of its key, so
//! a change costs what it changes: one row within a session, the rows of those that it joins or parts.
//!
//! The last row of a closed session stays for another gap: a row that belongs to it is late although its own gap is not over, and
//! is counted as such.
//!
//! State on disk:
//!
//! | table | key | value |
//! |---|---|---|
//! | 0 | key, time, row | version, how often it is there, whether only it is left of its session |

mod input;
mod output;
mod shard;
mod spans;
#[cfg(test)]
mod tests;

use arrow::datatypes::SchemaRef;
use highwater_sql::stream_plan::Session;
use highwater_storage::Snapshot;

use self::input::{Layout, Prepared};
use self::output::ShardOutput;
use self::shard::Shard;
use super::state::arrangement::{self, Closed, FrozenArrangements};
use super::{FrozenState, Input, Operator, OperatorStats, StateAddress, StepContext};
use crate::engine::delta::Delta;
use crate::engine::error::EngineError;

/// Finds the session of each row.
pub(crate) struct SessionOperator {
    layout: Layout,
    shards: Vec<Shard>,
    stats: OperatorStats,
}

impl SessionOperator {
    /// An operator without rows; `shards` of them run in parallel.
    ///
    /// # Errors
    /// Types that cannot be partitioned by or stored (`0A000`).
    pub(crate) fn try_new(
        session: &Session,
        input: &SchemaRef,
        output: SchemaRef,
        shards: usize,
    ) -> Result<Self, EngineError> {
        let layout = Layout::try_new(session, input, output)?;
        let shards = match session.partition.is_empty() {
            true => 1,
            false => shards.max(1),
        };
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
        input: &Input<'_>,
    ) -> Result<Vec<Prepared>, EngineError> {
        let (layout, shards) = (&self.layout, self.shards.len());
        let prepare = |delta: &Delta| Prepared::of(layout, delta, input.closed_to, shards);
        let rows: usize = input.deltas.iter().map(Delta::num_rows).sum();
        let prepared = context.for_each_delta(input.deltas, rows, shards, prepare)?;
        let late: usize = prepared.iter().map(|own| own.late).sum();
        self.stats.late_rows += late as u64;
        if let (true, Some(closed_to)) = (late > 0, input.closed_to) {
            let session = &layout.session;
            let last_late = closed_to.saturating_sub(session.gap_us);
            context
                .late
                .note(input.deltas, session.time, last_late, closed_to)?;
        }
        Ok(prepared)
    }

    fn run_shards(
        &mut self,
        context: &StepContext<'_>,
        prepared: &[Prepared],
        watermark: Option<i64>,
    ) -> Result<Vec<ShardOutput>, EngineError> {
        let layout = &self.layout;
        let rows: usize = prepared.iter().map(|own| own.rows.num_rows()).sum();
        context.for_each_shard(&mut self.shards, rows, |number, shard| {
            shard.step(layout, prepared, number, watermark)
        })
    }
}

impl Operator for SessionOperator {
    fn step(&mut self, context: &StepContext<'_>, inputs: &[Input<'_>]) -> Result<Vec<Delta>, EngineError> {
        let [input] = inputs else {
            return Err(EngineError::internal("sessions have one input"));
        };
        let prepared = self.prepare(context, input)?;
        let outputs = self.run_shards(context, &prepared, input.watermark)?;
        self.stats.late_rows += outputs.iter().map(|output| output.late as u64).sum::<u64>();
        if let Some(closed_to) = input.closed_to {
            output::note_late(&self.layout, &outputs, closed_to, &context.late)?;
        }
        output::merge(&self.layout, outputs)
    }

    fn freeze(&mut self) -> Option<Box<dyn FrozenState>> {
        let shards = self.shards.iter_mut().map(Shard::arrangement).collect();
        FrozenArrangements::freeze(shards, &mut Closed::default())
    }

    fn next_close_us(&self) -> Option<i64> {
        let first = self.shards.iter().filter_map(Shard::first_open).min();
        first.map(|last| last.saturating_add(self.layout.session.gap_us))
    }

    fn restore(&mut self, address: StateAddress, snapshot: &dyn Snapshot) -> Result<(), EngineError> {
        let mut shards: Vec<_> = self.shards.iter_mut().map(Shard::arrangement).collect();
        arrangement::restore(&self.layout.key, &mut shards, address, snapshot)?;
        for shard in &mut self.shards {
            shard.find_sessions(&self.layout);
        }
        Ok(())
    }

    fn stats(&self) -> OperatorStats {
        OperatorStats {
            state_rows: self.shards.iter().map(|shard| shard.state_rows() as u64).sum(),
            state_bytes: self.shards.iter().map(|shard| shard.state_bytes() as u64).sum(),
            ..self.stats
        }
    }
}
