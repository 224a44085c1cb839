//! Operators: synchronous functions from input deltas to an output delta, with their state.
//!
//! An operator does no I/O and reads no clock; time comes in with the step. How the input is cut into steps never
//! changes what its outputs add up to (INV-9).

pub(crate) mod aggregate;
pub(crate) mod asof;
pub(crate) mod join;
pub(crate) mod over;
pub(crate) mod session;
pub(crate) mod single_row;
pub(crate) mod state;
pub(crate) mod stateless;
pub(crate) mod temporal;
pub(crate) mod unnest;

use std::sync::Arc;

use highwater_sql::stream_plan::{PlanNode, StreamOp, StreamPlan};
use highwater_storage::{CheckpointWriter, ObjectId, OperatorId, Snapshot, StateTable, TableId};
use rayon::prelude::*;

use self::aggregate::AggregateOperator;
use self::asof::AsOfOperator;
use self::join::JoinOperator;
use self::over::OverOperator;
use self::session::SessionOperator;
use self::single_row::SingleRowOperator;
use self::state::evicted::{EvictionFigures, StateHome};
use self::temporal::TemporalOperator;
use crate::engine::delta::Delta;
use crate::engine::error::EngineError;
use crate::engine::late_rows::LateRows;

/// What a step tells its operators.
pub(crate) struct StepContext<'a> {
    /// Runs the shards of an operator in parallel.
    pub(crate) shards: &'a rayon::ThreadPool,
    /// The time of the step (µs since the epoch): what `now()` is. It never goes back, over restarts either.
    pub(crate) now_us: i64,
    /// Takes some of the rows that came after their window had closed.
    pub(crate) late: LateRows,
}

/// Below so many rows a step runs on the pipeline's own thread.
const PARALLEL_ROWS: usize = 4096;

impl<'a> StepContext<'a> {
    /// Of a step at a time.
    pub(crate) fn at(now_us: i64, shards: &'a rayon::ThreadPool) -> Self {
        Self {
            shards,
            now_us,
            late: LateRows::default(),
        }
    }

    /// Runs `run` on each shard, with its number, over `rows` rows: in parallel where that is enough to do.
    ///
    /// # Errors
    /// Those of `run`.
    pub(crate) fn for_each_shard<S: Send, T: Send>(
        &self,
        shards: &mut [S],
        rows: usize,
        run: impl Fn(usize, &mut S) -> Result<T, EngineError> + Sync,
    ) -> Result<Vec<T>, EngineError> {
        let run = |(number, shard): (usize, &mut S)| run(number, shard);
        if rows > PARALLEL_ROWS && shards.len() > 1 {
            let pool = self.shards;
            pool.install(|| shards.par_iter_mut().enumerate().map(run).collect())
        } else {
            shards.iter_mut().enumerate().map(run).collect()
        }
    }

    /// Runs `run` on each delta of an input, of `rows` rows together: in parallel where that is enough to do for an operator
    /// of `shards` shards.
    ///
    /// # Errors
    /// Those of `run`.
    pub(crate) fn for_each_delta<D: Sync, T: Send>(
        &self,
        deltas: &[D],
        rows: usize,
        shards: usize,
        run: impl Fn(&D) -> Result<T, EngineError> + Sync + Send,
    ) -> Result<Vec<T>, EngineError> {
        if rows > PARALLEL_ROWS && deltas.len() > 1 && shards > 1 {
            let pool = self.shards;
            pool.install(|| deltas.par_iter().map(run).collect())
        } else {
            deltas.iter().map(run).collect()
        }
    }

    /// Of a step for operators that do not ask for the time.
    #[cfg(test)]
    pub(crate) fn of(shards: &'a rayon::ThreadPool) -> Self {
        Self::at(0, shards)
    }
}

/// What a step brings of one input of an operator.
pub(crate) struct Input<'a> {
    /// Its deltas, in order.
    pub(crate) deltas: &'a [Delta],
    /// Its event-time watermark at the end of the previous step (µs): windows that it closed are final.
    pub(crate) closed_to: Option<i64>,
    /// The same at the end of this step; never less than `closed_to`.
    pub(crate) watermark: Option<i64>,
}

/// A stateful part of a query.
pub(crate) trait Operator: Send {
    /// Takes the deltas of one step, input by input in the plan's order, and gives the consolidated change of its output: at
    /// most one −1 and one +1 row per key, −1 rows first.
    ///
    /// # Errors
    /// Fails the query; the operator is not used again.
    fn step(&mut self, context: &StepContext<'_>, inputs: &[Input<'_>]) -> Result<Vec<Delta>, EngineError>;

    /// When its output changes although no input comes (µs since the epoch), if it ever does.
    fn due_us(&self) -> Option<i64> {
        None
    }

    /// The end of the first window that is open (µs), where windows close and one is.
    fn next_close_us(&self) -> Option<i64> {
        None
    }

    /// Takes what changed since the last freeze; a swap, not a copy of the values. `None` if nothing changed.
    fn freeze(&mut self) -> Option<Box<dyn FrozenState>>;

    /// Lets keys go that nothing has changed for so long (µs). Called before anything else, if it is; state is not evicted then.
    fn forget_idle(&mut self, _ttl_us: i64) {}

    /// Says where its state stands, so that it can be evicted. Called before anything else, if it is.
    fn attach(&mut self, _home: &Arc<StateHome>) {}

    /// Bytes of state that may be evicted, as far as it is clean.
    fn evictable_bytes(&self) -> usize {
        0
    }

    /// Lets state go that did not change since the last freeze, the coldest first, until about `goal_bytes` are free: how many
    /// are. The store has all that was frozen. What is needed again is read back by the step that needs it (ADR-23).
    fn evict(&mut self, _goal_bytes: usize) -> usize {
        0
    }

    /// Loads the state that `address` holds in `snapshot`. Called once, before the first step.
    ///
    /// # Errors
    /// State that cannot be read exactly (INV-6).
    fn restore(&mut self, address: StateAddress, snapshot: &dyn Snapshot) -> Result<(), EngineError>;

    /// Figures for `hw.operators`.
    fn stats(&self) -> OperatorStats;
}

/// The operator of a stateful node, without rows and in `shards` parts; `None` for a node without state.
///
/// # Errors
/// Types that the operator cannot take (`0A000`).
pub(crate) fn stateful(
    plan: &StreamPlan,
    node: &PlanNode,
    shards: usize,
) -> Result<Option<Box<dyn Operator>>, EngineError> {
    let mut operator = operator_of(plan, node, shards)?;
    if let (Some(operator), Some(ttl_us)) = (&mut operator, plan.ttl_us(node)) {
        operator.forget_idle(ttl_us);
    }
    Ok(operator)
}

fn operator_of(
    plan: &StreamPlan,
    node: &PlanNode,
    shards: usize,
) -> Result<Option<Box<dyn Operator>>, EngineError> {
    let output = Arc::clone(&node.schema);
    match &node.op {
        StreamOp::Aggregate(aggregate) => {
            let input = &plan.nodes[node.inputs[0]];
            let (schema, append_only) = (&input.schema, input.append_only);
            let operator = AggregateOperator::try_new(aggregate, schema, append_only, output, shards)?;
            Ok(Some(Box::new(operator)))
        }
        StreamOp::Join(join) => {
            let [left, right] = node.inputs[..] else {
                return Err(EngineError::internal("a join has two inputs"));
            };
            let inputs = [left, right].map(|input| &plan.nodes[input].schema);
            let operator = JoinOperator::try_new(join, inputs, output, node.append_only, shards)?;
            Ok(Some(Box::new(operator)))
        }
        StreamOp::AsOf(asof) => {
            let [left, right] = node.inputs[..] else {
                return Err(EngineError::internal("an ASOF join has two inputs"));
            };
            let inputs = [left, right].map(|input| &plan.nodes[input].schema);
            let operator = AsOfOperator::try_new(asof, inputs, output, shards)?;
            Ok(Some(Box::new(operator)))
        }
        StreamOp::Over(over) => {
            let input = &plan.nodes[node.inputs[0]];
            let (schema, append_only) = (&input.schema, input.append_only);
            let operator = OverOperator::try_new(over, schema, append_only, output, shards)?;
            Ok(Some(Box::new(operator)))
        }
        StreamOp::Session(session) => {
            let input = &plan.nodes[node.inputs[0]].schema;
            Ok(Some(Box::new(SessionOperator::try_new(
                session, input, output, shards,
            )?)))
        }
        StreamOp::TemporalFilter(filter) => Ok(Some(Box::new(TemporalOperator::try_new(
            filter,
            output,
            node.append_only,
        )?))),
        StreamOp::SingleRow => Ok(Some(Box::new(SingleRowOperator::default()))),
        _ => Ok(None),
    }
}

/// State as of a freeze, on its way into a checkpoint.
pub(crate) trait FrozenState: Send {
    /// Appends puts and deletes, sorted by key where that is cheap. Runs on the checkpoint thread.
    ///
    /// # Errors
    /// Values that cannot be encoded.
    fn write(
        self: Box<Self>,
        address: StateAddress,
        writer: &mut CheckpointWriter,
    ) -> Result<(), EngineError>;
}

/// Where an operator's state lies in the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct StateAddress {
    /// The view or sink.
    pub(crate) object: ObjectId,
    /// The operator's place in the plan.
    pub(crate) operator: OperatorId,
}

impl StateAddress {
    /// One of the operator's tables.
    pub(crate) fn table(self, table: TableId) -> StateTable {
        StateTable {
            object: self.object,
            operator: self.operator,
            table,
        }
    }
}

/// Figures of an operator since the start of the process, beside the rows that it took and gave.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct OperatorStats {
    /// Keys and rows of state in memory.
    pub(crate) state_rows: u64,
    /// Bytes of state in memory.
    pub(crate) state_bytes: u64,
    /// Rows that came after their window had closed.
    pub(crate) late_rows: u64,
    /// Keys that were evicted, and read back.
    pub(crate) evictions: EvictionFigures,
}
