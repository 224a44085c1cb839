//! The memory of queries: all of them together have a bound.
//!
//! Beyond it sorts and aggregates go to temporary files, which they learn from a `ResourcesExhausted`. A nested loop join that gets one, be
//! it of what stands below it, would run its left input once more: an input that is distributed over threads panics at that, and an outer
//! join in several parts would give unmatched rows more than once (its own comments say so). Such a join is told another error and ends.

use std::fmt;
use std::sync::Arc;

use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{DataFusionError, Result as PlanResult, internal_err};
use datafusion::execution::memory_pool::{
    GreedyMemoryPool, MemoryConsumer, MemoryLimit, MemoryPool, MemoryReservation,
};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    ChildrenPropertiesMode, DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties,
    ReplaceChildrenOptions,
};
use futures::StreamExt as _;
use highwater_sql::{SqlError, SqlState};

/// What the reservations of nested loop joins are called.
const NESTED_LOOP_JOIN: &str = "NestedLoopJoin";

/// First come, first served, up to a number of bytes.
#[derive(Debug)]
pub(super) struct QueryMemory {
    pool: GreedyMemoryPool,
    bytes: usize,
}

impl QueryMemory {
    /// Memory of so many bytes.
    pub(super) fn of(bytes: usize) -> Self {
        Self {
            pool: GreedyMemoryPool::new(bytes),
            bytes,
        }
    }

    fn used_up(&self, additional: usize) -> DataFusionError {
        let error = SqlError::new(SqlState::OutOfMemory, "out of memory")
            .with_detail(format!(
                "A join holds all rows of one of its sides: it wants {additional} more bytes, and all queries together may take {}.",
                self.bytes
            ))
            .with_hint("Join fewer rows or columns at once, let columns of both sides be equal, or run fewer queries together.");
        DataFusionError::External(Box::new(error))
    }
}

impl fmt::Display for QueryMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.pool.fmt(f)
    }
}

impl MemoryPool for QueryMemory {
    fn name(&self) -> &str {
        "queries"
    }

    fn register(&self, consumer: &MemoryConsumer) {
        self.pool.register(consumer);
    }

    fn unregister(&self, consumer: &MemoryConsumer) {
        self.pool.unregister(consumer);
    }

    fn grow(&self, reservation: &MemoryReservation, additional: usize) {
        self.pool.grow(reservation, additional);
    }

    fn shrink(&self, reservation: &MemoryReservation, shrink: usize) {
        self.pool.shrink(reservation, shrink);
    }

    fn try_grow(&self, reservation: &MemoryReservation, additional: usize) -> PlanResult<()> {
        let grown = self.pool.try_grow(reservation, additional);
        match reservation.consumer().name().starts_with(NESTED_LOOP_JOIN) {
            true => grown.map_err(|_| self.used_up(additional)),
            false => grown,
        }
    }

    fn reserved(&self) -> usize {
        self.pool.reserved()
    }

    fn memory_limit(&self) -> MemoryLimit {
        self.pool.memory_limit()
    }
}

/// The left input of a nested loop join: that memory is used up is the end of the query, and nothing that the join goes round.
#[derive(Debug)]
pub(super) struct LastErrors(pub(super) Arc<dyn ExecutionPlan>);

impl DisplayAs for LastErrors {
    fn fmt_as(&self, _format: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LastErrors")
    }
}

impl ExecutionPlan for LastErrors {
    fn name(&self) -> &'static str {
        "LastErrors"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        self.0.properties()
    }

    fn maintains_input_order(&self) -> Vec<bool> {
        vec![true]
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.0]
    }

    fn apply_expressions(
        &self,
        _f: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> PlanResult<TreeNodeRecursion>,
    ) -> PlanResult<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn replace_children(
        self: Arc<Self>,
        mut children: Vec<Arc<dyn ExecutionPlan>>,
        _options: ReplaceChildrenOptions,
    ) -> PlanResult<Arc<dyn ExecutionPlan>> {
        match (children.pop(), children.pop()) {
            (Some(input), None) => Ok(Arc::new(Self(input))),
            _ => internal_err!("the input of a join is one"),
        }
    }

    fn with_new_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> PlanResult<Arc<dyn ExecutionPlan>> {
        let options = ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute);
        self.replace_children(children, options)
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> PlanResult<SendableRecordBatchStream> {
        let rows = self.0.execute(partition, context)?;
        let schema = rows.schema();
        let rows = rows.map(|batch| batch.map_err(last));
        Ok(Box::pin(RecordBatchStreamAdapter::new(schema, rows)))
    }
}

/// The error as one that says the same and that no operator looks at.
fn last(error: DataFusionError) -> DataFusionError {
    match error.find_root() {
        DataFusionError::ResourcesExhausted(_) => {
            DataFusionError::External(Box::new(highwater_sql::plan::translate(error)))
        }
        _ => error,
    }
}

#[cfg(test)]
mod tests {
    use datafusion::execution::runtime_env::RuntimeEnvBuilder;
    use datafusion::physical_optimizer::PhysicalOptimizerRule as _;
    use datafusion::physical_plan::collect;
    use datafusion::prelude::{SessionConfig, SessionContext};

    use super::super::stop::{StopJoins, Stopped};
    use super::*;

    /// The error of a query that may take 200 KB.
    async fn error_of(sql: &str) -> SqlError {
        let memory = Arc::new(QueryMemory::of(200_000));
        let env = RuntimeEnvBuilder::new()
            .with_memory_pool(memory)
            .build_arc()
            .unwrap();
        let config = SessionConfig::new().with_target_partitions(3);
        let context = SessionContext::new_with_config_rt(config, env);
        let plan = context.sql(sql).await.unwrap();
        let plan = plan.create_physical_plan().await.unwrap();
        let stop = StopJoins(Stopped::default());
        let plan = stop.optimize(plan, context.state().config_options()).unwrap();
        highwater_sql::plan::translate(collect(plan, context.task_ctx()).await.unwrap_err())
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_join_that_uses_up_memory_ends_and_does_not_begin_again() {
        let numbers = "(SELECT unnest(range(0, 50000)) AS n)";
        let few = "(SELECT unnest(range(0, 3000)) AS n)";
        let own = error_of(&format!(
            "SELECT count(*) FROM {numbers} a JOIN {numbers} b ON a.n + 1 < b.n"
        ))
        .await;
        assert!(
            own.detail
                .is_some_and(|detail| detail.starts_with("A join holds all rows"))
        );
        for below in [
            format!("SELECT a.n + b.n AS n FROM {numbers} a CROSS JOIN {numbers} b"),
            format!("SELECT a.n FROM {numbers} a JOIN {numbers} b ON a.n = b.n"),
        ] {
            let sql =
                format!("SELECT count(*) FROM ({below}) q JOIN {few} c ON q.n + c.n = 10 AND q.n < c.n");
            let error = error_of(&sql).await;
            assert_eq!(error.state, SqlState::OutOfMemory, "{sql}: {error:?}");
        }
    }
}
