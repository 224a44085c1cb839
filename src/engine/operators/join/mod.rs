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

use arrow::datatypes::SchemaRef;
use highwater_sql::stream_plan::Join;
use highwater_storage::{CheckpointWriter, Snapshot};
use rayon::prelude::*;

use self::input::Prepared;
use self::layout::{Layout, SIDES};
use self::output::Part;
use self::shard::Shard;
use super::state::arrangement::{self, Closed, ClosedRange, FrozenArrangement};
use super::{FrozenState, Input, Operator, OperatorStats, StateAddress, StepContext};
use crate::engine::delta::Delta;
use crate::engine::error::EngineError;

/// Below so many rows a step runs on the pipeline's own thread.
const PARALLEL_ROWS: usize = 4096;

/// Joins two inputs.
pub(crate) struct JoinOperator {
    layout: Layout,
    shards: Vec<Shard>,
    closed: Closed,
    stats: OperatorStats,
}

/// The state of a join as of a freeze.
struct FrozenJoin {
    closed: Option<ClosedRange>,
    shards: Vec<FrozenArrangement>,
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
        let prepared: Vec<_> = if rows > PARALLEL_ROWS && deltas.len() > 1 && shards > 1 {
            context
                .shards
                .install(|| deltas.par_iter().map(prepare).collect::<Result<_, _>>())?
        } else {
            deltas.iter().map(prepare).collect::<Result<_, _>>()?
        };
        let taken: usize = prepared.iter().map(Prepared::num_rows).sum();
        self.stats.rows_in += rows as u64;
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
        let rows: usize = prepared.iter().map(Prepared::num_rows).sum();
        let step = |(number, shard): (usize, &mut Shard)| shard.step(layout, prepared, number, watermark);
        if rows > PARALLEL_ROWS && self.shards.len() > 1 {
            context
                .shards
                .install(|| self.shards.par_iter_mut().enumerate().map(step).collect())
        } else {
            self.shards.iter_mut().enumerate().map(step).collect()
        }
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
        let deltas = output::merge(parts.into_iter().flatten(), self.layout.append_only)?;
        self.stats.rows_out += deltas.iter().map(|delta| delta.num_rows() as u64).sum::<u64>();
        Ok(deltas)
    }

    fn freeze(&mut self) -> Option<Box<dyn FrozenState>> {
        let any_closed = self.shards.iter().any(Shard::has_closed);
        let closed = if any_closed {
            self.closed.take_range()
        } else {
            None
        };
        let shards: Vec<_> = self.shards.iter_mut().filter_map(Shard::freeze).collect();
        (closed.is_some() || !shards.is_empty())
            .then(|| Box::new(FrozenJoin { closed, shards }) as Box<dyn FrozenState>)
    }

    fn restore(&mut self, address: StateAddress, snapshot: &dyn Snapshot) -> Result<(), EngineError> {
        let mut shards: Vec<_> = self.shards.iter_mut().map(Shard::arrangement).collect();
        arrangement::restore(&self.layout.key, &mut shards, address, snapshot)
    }

    fn stats(&self) -> OperatorStats {
        OperatorStats {
            state_rows: self.shards.iter().map(|shard| shard.state_rows() as u64).sum(),
            state_bytes: self.shards.iter().map(|shard| shard.state_bytes() as u64).sum(),
            ..self.stats
        }
    }
}

impl FrozenState for FrozenJoin {
    fn write(
        self: Box<Self>,
        address: StateAddress,
        writer: &mut CheckpointWriter,
    ) -> Result<(), EngineError> {
        if let Some(closed) = self.closed {
            closed.delete(SIDES, address, writer);
        }
        for shard in self.shards {
            shard.write(address, writer);
        }
        Ok(())
    }
}
