//! The aggregate operator: groups in a hash table, aggregates in columns beside it, split in shards by the hash of the key.
//!
//! ```text
//! deltas ─▶ late rows out ─▶ keys hashed ─▶ rows by shard ─▶ slots ─▶ one kernel per aggregate ─▶ changed groups ─▶ −1, +1
//!           └─ per delta, whole columns ──┘                  └─ per shard, in parallel when there is enough to do ───┘
//! ```
//!
//! State on disk (keys start with the window column, so that closed windows are one range):
//!
//! | table | key | value |
//! |---|---|---|
//! | 0 | group | version, rows of the group if the input retracts, then each aggregate's own bytes |
//! | 1 + n | group, value | version, how often aggregate n has it (DISTINCT, retractable min and max) |

mod accumulator;
mod collected;
mod distinct;
mod evict;
mod extreme;
mod floats;
mod frozen;
mod input;
mod intervals;
mod linear;
mod output;
mod restore;
mod shard;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use arrow::datatypes::{DataType, SchemaRef, TimeUnit};
use highwater_sql::stream_plan::{Aggregate, AggregateCall};
use highwater_storage::{Snapshot, TableId};

use self::frozen::FrozenAggregate;
use self::input::Prepared;
use self::output::ShardOutput;
use self::shard::Shard;
use super::state::evicted::{EvictionFigures, StateHome};
use super::state::key::KeyLayout;
use super::{FrozenState, Input, Operator, OperatorStats, StateAddress, StepContext};
use crate::engine::delta::Delta;
use crate::engine::error::EngineError;

/// The table of the groups.
const GROUPS: TableId = TableId(0);

/// More aggregates than this in one query are refused: each may need a table of its own.
const CALLS_MAX: usize = 200;

/// What all shards know.
#[derive(Debug)]
struct Layout {
    key: KeyLayout,
    /// Key columns of the input, in key order: the window column first.
    key_columns: Vec<usize>,
    /// For each of them, where it stands among the group columns.
    key_positions: Vec<usize>,
    calls: Vec<AggregateCall>,
    output: SchemaRef,
    windows: Option<Windows>,
    /// Whether the input only ever inserts.
    append_only: bool,
}

/// Groups that are complete at some time.
#[derive(Debug, Clone, Copy)]
struct Windows {
    /// The column of the input that tells.
    column: usize,
    /// What leads from it to the end of the window (µs).
    add_us: i64,
    /// Whether groups are emitted only then.
    emit_on_close: bool,
}

/// Groups rows and aggregates them.
pub(crate) struct AggregateOperator {
    layout: Layout,
    shards: Vec<Shard>,
    /// Groups with this or a smaller window column are closed.
    closed_through: Option<i64>,
    /// Those with this or a smaller one are deleted in the store, as of the last freeze.
    deleted_through: Option<i64>,
    /// Whether groups go that nothing changes.
    has_ttl: bool,
    stats: OperatorStats,
}

impl AggregateOperator {
    /// An operator without groups; `shards` of them run in parallel.
    ///
    /// # Errors
    /// Types that cannot be grouped or aggregated (`0A000`).
    pub(crate) fn try_new(
        aggregate: &Aggregate,
        input: &SchemaRef,
        append_only: bool,
        output: SchemaRef,
        shards: usize,
    ) -> Result<Self, EngineError> {
        let layout = Layout::try_new(aggregate, input, append_only, output)?;
        let shards = if layout.key_columns.is_empty() {
            1
        } else {
            shards.max(1)
        };
        let shards = (0..shards)
            .map(|_| Shard::try_new(&layout, input))
            .collect::<Result<_, _>>()?;
        Ok(Self {
            layout,
            shards,
            closed_through: None,
            deleted_through: None,
            has_ttl: false,
            stats: OperatorStats::default(),
        })
    }

    fn run_shards(
        &mut self,
        context: &StepContext<'_>,
        prepared: &[Prepared],
        close_through: Option<i64>,
    ) -> Result<Vec<ShardOutput>, EngineError> {
        let layout = &self.layout;
        let rows: usize = prepared.iter().map(Prepared::num_rows).sum();
        context.for_each_shard(&mut self.shards, rows, |number, shard| {
            for batch in prepared {
                shard.apply(layout, batch, number)?;
            }
            shard.finish_step(layout, (close_through, context.now_us))
        })
    }

    fn prepare(
        &mut self,
        context: &StepContext<'_>,
        input: &Input<'_>,
    ) -> Result<Vec<Prepared>, EngineError> {
        let (layout, shards) = (&self.layout, self.shards.len());
        let (closed_to, input) = (input.closed_to, input.deltas);
        let prepare = |delta: &Delta| Prepared::of(layout, delta, closed_to, shards);
        let rows: usize = input.iter().map(Delta::num_rows).sum();
        let prepared = context.for_each_delta(input, rows, shards, prepare)?;
        let taken: usize = prepared.iter().map(Prepared::num_rows).sum();
        self.stats.late_rows += (rows - taken) as u64;
        if let (true, Some(windows), Some(closed_to)) = (taken < rows, layout.windows, closed_to) {
            let last_late = closed_to.saturating_sub(windows.add_us);
            context.late.note(input, windows.column, last_late, closed_to)?;
        }
        Ok(prepared)
    }
}

impl Operator for AggregateOperator {
    fn step(&mut self, context: &StepContext<'_>, inputs: &[Input<'_>]) -> Result<Vec<Delta>, EngineError> {
        let [input] = inputs else {
            return Err(EngineError::internal("an aggregate has one input"));
        };
        let prepared = self.prepare(context, input)?;
        let close_through = match (self.layout.windows, input.watermark) {
            (Some(windows), Some(watermark)) => Some(watermark.saturating_sub(windows.add_us)),
            _ => None,
        };
        if let (true, Some(through)) = (self.layout.emits_on_close(), close_through) {
            restore::read_closing(&self.layout, &mut self.shards, through)?;
        }
        let outputs = self.run_shards(context, &prepared, close_through)?;
        self.closed_through = self.closed_through.max(close_through);
        output::merge(&self.layout, outputs)
    }

    fn freeze(&mut self) -> Option<Box<dyn FrozenState>> {
        let any_closed = self.shards.iter().any(Shard::has_closed);
        let closed = match self.closed_through {
            Some(through) if any_closed => {
                let after = self.deleted_through.replace(through);
                Some((after, through))
            }
            _ => None,
        };
        let shards: Vec<_> = self.shards.iter_mut().filter_map(Shard::freeze).collect();
        (closed.is_some() || !shards.is_empty())
            .then(|| Box::new(FrozenAggregate::new(&self.layout, closed, shards)) as Box<dyn FrozenState>)
    }

    fn due_us(&self) -> Option<i64> {
        self.shards.iter().filter_map(Shard::due_us).min()
    }

    fn next_close_us(&self) -> Option<i64> {
        let add_us = self.layout.windows?.add_us;
        let first = self.shards.iter().filter_map(Shard::first_window).min();
        first.map(|window| window.saturating_add(add_us))
    }

    fn forget_idle(&mut self, ttl_us: i64) {
        self.shards.iter_mut().for_each(|shard| shard.forget_idle(ttl_us));
        self.has_ttl = true;
    }

    fn attach(&mut self, home: &Arc<StateHome>) {
        if !self.layout.is_global() && !self.has_ttl {
            self.shards.iter_mut().for_each(|shard| shard.attach(home));
        }
    }

    fn evictable_bytes(&self) -> usize {
        let evictable = self.shards.iter().filter(|shard| shard.is_evictable());
        evictable.map(Shard::state_bytes).sum()
    }

    fn evict(&mut self, goal_bytes: usize) -> usize {
        evict::evict(&mut self.shards, goal_bytes)
    }

    fn restore(&mut self, address: StateAddress, snapshot: &dyn Snapshot) -> Result<(), EngineError> {
        restore::restore(&self.layout, &mut self.shards, address, snapshot)
    }

    fn stats(&self) -> OperatorStats {
        let state_rows = self.shards.iter().map(|shard| shard.state_rows() as u64).sum();
        let state_bytes = self.shards.iter().map(|shard| shard.state_bytes() as u64).sum();
        OperatorStats {
            state_rows,
            state_bytes,
            evictions: EvictionFigures::sum(self.shards.iter().map(Shard::eviction_figures)),
            ..self.stats
        }
    }
}

impl Layout {
    fn try_new(
        aggregate: &Aggregate,
        input: &SchemaRef,
        append_only: bool,
        output: SchemaRef,
    ) -> Result<Self, EngineError> {
        if aggregate.calls.len() > CALLS_MAX {
            let message = format!("a query has at most {CALLS_MAX} aggregates");
            return Err(EngineError::new("54000", message));
        }
        let mut key_positions: Vec<usize> = (0..aggregate.groups.len()).collect();
        if let Some(closing) = aggregate.closing {
            key_positions[..=closing.group].rotate_right(1);
        }
        let key_columns: Vec<_> = key_positions
            .iter()
            .map(|position| aggregate.groups[*position])
            .collect();
        let types = key_columns
            .iter()
            .map(|column| input.field(*column).data_type().clone());
        let windows = aggregate.closing.map(|closing| Windows {
            column: aggregate.groups[closing.group],
            add_us: closing.add_us,
            emit_on_close: aggregate.emit_on_close,
        });
        if let Some(windows) = windows {
            let data_type = input.field(windows.column).data_type();
            if !matches!(data_type, DataType::Timestamp(TimeUnit::Microsecond, _)) {
                return Err(EngineError::internal(format!(
                    "groups close by a column of type {data_type}"
                )));
            }
        } else if aggregate.emit_on_close {
            return Err(EngineError::internal(
                "groups that never close are to be emitted when they do",
            ));
        }
        Ok(Self {
            key: KeyLayout::new(types)?,
            key_columns,
            key_positions,
            calls: aggregate.calls.clone(),
            output,
            windows,
            append_only,
        })
    }

    fn is_global(&self) -> bool {
        self.key_columns.is_empty()
    }

    fn emits_on_close(&self) -> bool {
        self.windows.is_some_and(|windows| windows.emit_on_close)
    }
}

/// The table of the counted values of aggregate `call`.
fn entries_table(call: usize) -> TableId {
    TableId(u8::try_from(1 + call).expect("there are at most CALLS_MAX aggregates"))
}
