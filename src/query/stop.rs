//! Joins without equal columns compute for long: they let other queries have their turn, and stop when nobody listens any more.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arrow::datatypes::{FieldRef, Schema};
use arrow::record_batch::RecordBatch;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{DataFusionError, Result as PlanResult};
use datafusion::logical_expr::ColumnarValue;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::coop::CooperativeExec;
use datafusion::physical_plan::joins::utils::JoinFilter;
use datafusion::physical_plan::joins::{
    CrossJoinExec, HashJoinExec, NestedLoopJoinExec, NestedLoopJoinExecBuilder,
};

use super::memory::LastErrors;

/// Set when nobody listens any more.
pub(super) type Stopped = Arc<AtomicBool>;

/// Puts both into a plan.
#[derive(Debug)]
pub(super) struct StopJoins(pub(super) Stopped);

impl PhysicalOptimizerRule for StopJoins {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        _config: &ConfigOptions,
    ) -> PlanResult<Arc<dyn ExecutionPlan>> {
        let plan = plan.transform_up(|node| {
            let join: Arc<dyn ExecutionPlan> = match node.downcast_ref::<NestedLoopJoinExec>() {
                Some(join) => self.stoppable(join)?,
                None if node.is::<CrossJoinExec>() || node.is::<HashJoinExec>() => node,
                None => return Ok(Transformed::no(node)),
            };
            Ok(Transformed::yes(
                Arc::new(CooperativeExec::new(join)) as Arc<dyn ExecutionPlan>
            ))
        })?;
        Ok(plan.data)
    }

    fn name(&self) -> &str {
        "stop_joins"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

impl StopJoins {
    /// The join with a condition that fails when it is to stop. It does not start again when memory is used up.
    fn stoppable(&self, join: &NestedLoopJoinExec) -> PlanResult<Arc<dyn ExecutionPlan>> {
        let filter = join.filter().map(|filter| {
            let condition = Stoppable {
                condition: Arc::clone(filter.expression()),
                stopped: Arc::clone(&self.0),
            };
            JoinFilter::new(
                Arc::new(condition),
                filter.column_indices().to_vec(),
                Arc::clone(filter.schema()),
            )
        });
        let left = Arc::new(LastErrors(Arc::clone(join.left())));
        let right = Arc::clone(join.right());
        let join = NestedLoopJoinExecBuilder::new(left, right, *join.join_type())
            .with_filter(filter)
            .with_projection_ref(join.projection().clone())
            .build()?;
        Ok(Arc::new(join))
    }
}

/// A condition that fails once nobody wants to know it.
#[derive(Debug)]
struct Stoppable {
    condition: Arc<dyn PhysicalExpr>,
    stopped: Stopped,
}

impl PartialEq for Stoppable {
    fn eq(&self, other: &Self) -> bool {
        self.condition.eq(&other.condition)
    }
}

impl Eq for Stoppable {}

impl Hash for Stoppable {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.condition.hash(state);
    }
}

impl fmt::Display for Stoppable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.condition.fmt(f)
    }
}

impl PhysicalExpr for Stoppable {
    fn return_field(&self, input_schema: &Schema) -> PlanResult<FieldRef> {
        self.condition.return_field(input_schema)
    }

    fn evaluate(&self, batch: &RecordBatch) -> PlanResult<ColumnarValue> {
        if self.stopped.load(Ordering::Relaxed) {
            return Err(DataFusionError::Execution("the query was cancelled".to_owned()));
        }
        self.condition.evaluate(batch)
    }

    fn children(&self) -> Vec<&Arc<dyn PhysicalExpr>> {
        vec![&self.condition]
    }

    fn with_new_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn PhysicalExpr>>,
    ) -> PlanResult<Arc<dyn PhysicalExpr>> {
        let [condition] = children.try_into().map_err(|_| {
            DataFusionError::Internal("a condition that can be stopped has one child".to_owned())
        })?;
        Ok(Arc::new(Self {
            condition,
            stopped: Arc::clone(&self.stopped),
        }))
    }

    fn fmt_sql(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.condition.fmt_sql(f)
    }
}
