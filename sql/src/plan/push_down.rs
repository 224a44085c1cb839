//! Filters go down to the rows that they are about, but not below an aggregate that has a row for no rows: there a condition that
//! is never true would leave that row standing.

use datafusion::common::Result as PlanResult;
use datafusion::common::tree_node::Transformed;
use datafusion::logical_expr::{Expr, LogicalPlan};
use datafusion::optimizer::push_down_filter::PushDownFilter;
use datafusion::optimizer::{ApplyOrder, OptimizerConfig, OptimizerRule};

/// DataFusion's rule with that exception.
#[derive(Debug, Default)]
pub(crate) struct PushFilters {
    rule: PushDownFilter,
}

impl OptimizerRule for PushFilters {
    fn name(&self) -> &'static str {
        "push_filters"
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        self.rule.apply_order()
    }

    fn rewrite(
        &self,
        plan: LogicalPlan,
        config: &dyn OptimizerConfig,
    ) -> PlanResult<Transformed<LogicalPlan>> {
        match &plan {
            LogicalPlan::Filter(filter) if has_row_for_no_rows(&filter.input) => Ok(Transformed::no(plan)),
            _ => self.rule.rewrite(plan, config),
        }
    }
}

fn has_row_for_no_rows(plan: &LogicalPlan) -> bool {
    let LogicalPlan::Aggregate(aggregate) = plan else {
        return false;
    };
    let is_set = |expr: &Expr| matches!(expr, Expr::GroupingSet(_));
    aggregate.group_expr.is_empty() || aggregate.group_expr.iter().any(is_set)
}
