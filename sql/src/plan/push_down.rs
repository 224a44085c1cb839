//! Filters go down to the rows that they are about, but not below an aggregate that has a row for no rows: there a condition that
//! is never true would leave that row standing. Those with `now()` stay above aggregates, whose input would otherwise change
//! with the time, and do not become conditions of joins, which have no clock.

use datafusion::common::tree_node::Transformed;
use datafusion::common::{Column, Result as PlanResult};
use datafusion::logical_expr::utils::split_conjunction;
use datafusion::logical_expr::{Expr, LogicalPlan};
use datafusion::optimizer::push_down_filter::PushDownFilter;
use datafusion::optimizer::{ApplyOrder, OptimizerConfig, OptimizerRule};

use crate::plan::temporal::reads_clock;

/// DataFusion's rule with these exceptions.
#[derive(Debug, Default)]
pub struct PushFilters {
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
            LogicalPlan::Filter(filter) => {
                // DataFusion makes one of filters above each other and goes on below them.
                let input = below_filters(&filter.input);
                match has_row_for_no_rows(input) || keeps_its_clock(&filter.predicate, input) {
                    true => Ok(Transformed::no(plan)),
                    false => self.rule.rewrite(plan, config),
                }
            }
            _ => self.rule.rewrite(plan, config),
        }
    }
}

fn below_filters(plan: &LogicalPlan) -> &LogicalPlan {
    let mut plan = plan;
    while let LogicalPlan::Filter(filter) = plan {
        plan = &filter.input;
    }
    plan
}

/// Whether a part of the predicate that has `now()` must not go into `input`.
fn keeps_its_clock(predicate: &Expr, input: &LogicalPlan) -> bool {
    let mut timed = split_conjunction(predicate)
        .into_iter()
        .filter(|part| reads_clock(part));
    match input {
        LogicalPlan::Aggregate(_) => timed.next().is_some(),
        LogicalPlan::Join(join) => {
            let is_of = |side: &LogicalPlan, column: &Column| side.schema().has_column(column);
            timed.any(|part| {
                let columns = part.column_refs();
                !columns.iter().all(|column| is_of(&join.left, column))
                    && !columns.iter().all(|column| is_of(&join.right, column))
            })
        }
        _ => false,
    }
}

fn has_row_for_no_rows(plan: &LogicalPlan) -> bool {
    let LogicalPlan::Aggregate(aggregate) = plan else {
        return false;
    };
    let is_set = |expr: &Expr| matches!(expr, Expr::GroupingSet(_));
    aggregate.group_expr.is_empty() || aggregate.group_expr.iter().any(is_set)
}
