//! GROUPING SETS, ROLLUP and CUBE over expressions: each expression becomes a column below the aggregate.

use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{Column, Result as PlanResult};
use datafusion::logical_expr::expr::GroupingSet;
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::{Aggregate, Expr, LogicalPlan, LogicalPlanBuilder};

/// The plan whose grouping sets hold columns only.
///
/// # Errors
/// What DataFusion finds wrong with the rewritten plan.
pub(crate) fn below(plan: LogicalPlan) -> PlanResult<LogicalPlan> {
    let plan = plan.transform_up_with_subqueries(|node| match node {
        LogicalPlan::Aggregate(aggregate) => over_columns(aggregate),
        other => Ok(Transformed::no(other)),
    });
    plan.map(|plan| plan.data)
}

fn over_columns(aggregate: Aggregate) -> PlanResult<Transformed<LogicalPlan>> {
    let [Expr::GroupingSet(set)] = aggregate.group_expr.as_slice() else {
        return Ok(Transformed::no(LogicalPlan::Aggregate(aggregate)));
    };
    let computed: Vec<Expr> = set
        .distinct_expr()
        .into_iter()
        .filter(|expr| !matches!(expr, Expr::Column(_)))
        .cloned()
        .collect();
    if computed.is_empty() {
        return Ok(Transformed::no(LogicalPlan::Aggregate(aggregate)));
    }
    let as_column = |expr: &Expr| match computed.contains(expr) {
        true => Expr::Column(Column::new_unqualified(expr.schema_name().to_string())),
        false => expr.clone(),
    };
    let all = |exprs: &[Expr]| exprs.iter().map(as_column).collect::<Vec<_>>();
    let set = match set {
        GroupingSet::Rollup(exprs) => GroupingSet::Rollup(all(exprs)),
        GroupingSet::Cube(exprs) => GroupingSet::Cube(all(exprs)),
        GroupingSet::GroupingSets(sets) => {
            GroupingSet::GroupingSets(sets.iter().map(|set| all(set)).collect())
        }
    };
    let columns = aggregate.input.schema().columns().into_iter().map(Expr::Column);
    let named = computed.iter().map(|expr| {
        let name = expr.schema_name().to_string();
        expr.clone().unalias().alias(name)
    });
    let input = LogicalPlanBuilder::from(aggregate.input.as_ref().clone())
        .project(columns.chain(named).collect::<Vec<_>>())?
        .build()?;
    let names = NamePreserver::new_for_projection();
    let aggr_expr = aggregate.aggr_expr.iter().map(|expr| {
        let name = names.save(expr);
        // The arguments of grouping() are what is grouped by.
        let changed = expr.clone().transform_up(|expr| match expr {
            Expr::AggregateFunction(mut call) if call.func.name() == "grouping" => {
                call.params.args = all(&call.params.args);
                Ok(Transformed::yes(Expr::AggregateFunction(call)))
            }
            other => Ok(Transformed::no(other)),
        })?;
        Ok(name.restore(changed.data))
    });
    let aggr_expr = aggr_expr.collect::<PlanResult<Vec<_>>>()?;
    let node = Aggregate::try_new(Arc::new(input), vec![Expr::GroupingSet(set)], aggr_expr)?;
    Ok(Transformed::yes(LogicalPlan::Aggregate(node)))
}
