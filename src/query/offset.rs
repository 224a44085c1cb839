//! `ORDER BY … OFFSET n` within a query: what leaves rows out stands right above the sort.
//!
//! ```text
//! Limit skip=2                      Project x
//! └─ Project x                ▶     └─ Limit skip=2
//!    └─ Sort by c                      └─ Sort by c
//! ```
//!
//! With a projection in between that gives no column of the order on, DataFusion's physical planner takes the sort for one that nobody
//! needs. A limit of so many rows it pushes down by itself.

use std::sync::Arc;

use datafusion::common::Result;
use datafusion::common::tree_node::Transformed;
use datafusion::logical_expr::{Limit, LogicalPlan, Projection, SubqueryAlias};
use datafusion::optimizer::{ApplyOrder, OptimizerConfig, OptimizerRule};

/// The rule, to run after all others.
#[derive(Debug)]
pub(super) struct OffsetAboveSort;

impl OptimizerRule for OffsetAboveSort {
    fn name(&self) -> &'static str {
        "offset_above_sort"
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        Some(ApplyOrder::TopDown)
    }

    fn rewrite(&self, plan: LogicalPlan, _: &dyn OptimizerConfig) -> Result<Transformed<LogicalPlan>> {
        match plan {
            LogicalPlan::Limit(limit)
                if limit.fetch.is_none()
                    && !matches!(limit.input.as_ref(), LogicalPlan::Sort(_))
                    && is_sorted(&limit.input) =>
            {
                let input = Arc::clone(&limit.input);
                moved(limit, input).map(Transformed::yes)
            }
            plan => Ok(Transformed::no(plan)),
        }
    }
}

/// Whether the rows come from a sort, one for one.
fn is_sorted(plan: &LogicalPlan) -> bool {
    match plan {
        LogicalPlan::Sort(_) => true,
        LogicalPlan::Projection(node) => is_sorted(&node.input),
        LogicalPlan::SubqueryAlias(node) => is_sorted(&node.input),
        _ => false,
    }
}

/// The plan with the limit above the sort that is its first node of another kind.
fn moved(limit: Limit, plan: Arc<LogicalPlan>) -> Result<LogicalPlan> {
    match Arc::unwrap_or_clone(plan) {
        LogicalPlan::Projection(node) => {
            let input = moved(limit, node.input)?;
            Projection::try_new_with_schema(node.expr, Arc::new(input), node.schema)
                .map(LogicalPlan::Projection)
        }
        LogicalPlan::SubqueryAlias(node) => {
            let input = moved(limit, node.input)?;
            SubqueryAlias::try_new(Arc::new(input), node.alias).map(LogicalPlan::SubqueryAlias)
        }
        plan => Ok(LogicalPlan::Limit(Limit {
            input: Arc::new(plan),
            ..limit
        })),
    }
}
