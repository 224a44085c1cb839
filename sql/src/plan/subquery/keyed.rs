//! What subqueries compare with outer columns, computed by a projection below where it is no column: DataFusion groups by columns
//! alone where it turns a subquery into a join.
//!
//! ```text
//! Filter length(b.i) = length(outer a.i)     ▶     Project b.* ◀─ Filter __key_1 = length(outer a.i)
//! └─ b                                                            └─ Project *, length(b.i) AS __key_1 ◀─ b
//! ```

use std::cell::Cell;

use datafusion::common::tree_node::Transformed;
use datafusion::common::{Column, Result as PlanResult};
use datafusion::logical_expr::utils::{conjunction, split_conjunction};
use datafusion::logical_expr::{Expr, Filter, LogicalPlan, LogicalPlanBuilder, Operator, binary_expr, lit};

use crate::plan::outer_columns::equal_sides;

/// The plan with columns for what is compared.
///
/// # Errors
/// What DataFusion finds wrong with the rewritten plan.
pub(crate) fn keyed(plan: LogicalPlan) -> PlanResult<LogicalPlan> {
    let count = Cell::new(0_usize);
    let plan = plan.transform_up_with_subqueries(|node| match node {
        LogicalPlan::Filter(filter) if filter.predicate.contains_outer() => in_filter(filter, &count),
        other => Ok(Transformed::no(other)),
    });
    plan.map(|plan| plan.data)
}

fn in_filter(filter: Filter, count: &Cell<usize>) -> PlanResult<Transformed<LogicalPlan>> {
    let mut computed = Vec::new();
    let conditions = split_conjunction(&filter.predicate).into_iter();
    let conditions: Vec<Expr> = conditions
        .map(|condition| match computed_side(condition) {
            Some((own, outer)) => {
                count.set(count.get() + 1);
                let name = format!("__key_{}", count.get());
                computed.push(own.clone().alias(name.as_str()));
                let key = Expr::Column(Column::new_unqualified(name));
                binary_expr(key, Operator::Eq, outer.clone())
            }
            None => condition.clone(),
        })
        .collect();
    if computed.is_empty() {
        return Ok(Transformed::no(LogicalPlan::Filter(filter)));
    }
    let columns = || filter.input.schema().columns().into_iter().map(Expr::Column);
    LogicalPlanBuilder::from(filter.input.as_ref().clone())
        .project(columns().chain(computed).collect::<Vec<_>>())?
        .filter(conjunction(conditions).unwrap_or_else(|| lit(true)))?
        .project(columns().collect::<Vec<_>>())?
        .build()
        .map(Transformed::yes)
}

/// The side of an equality that is computed from columns of the subquery, and the one that reads outer columns alone.
fn computed_side(condition: &Expr) -> Option<(&Expr, &Expr)> {
    let (own, outer) = equal_sides(condition)?;
    let is_column = match own {
        Expr::Column(_) => true,
        Expr::Cast(cast) => matches!(cast.expr.as_ref(), Expr::Column(_)),
        other => other.column_refs().is_empty(),
    };
    (!is_column).then_some((own, outer))
}
