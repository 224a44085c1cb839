//! `DISTINCT ON` as the first row of each partition.
//!
//! ```text
//! DistinctOn (a) c ORDER BY a, b ─▶ Project c ─▶ Filter rank = 1 ─▶ row_number() OVER (PARTITION BY a ORDER BY a, b) AS rank
//! ```
//!
//! Below a LIMIT the rows that are left are sorted too: it takes those that come first in ORDER BY.

use std::sync::Arc;

use datafusion::common::tree_node::Transformed;
use datafusion::common::{Column, Result as PlanResult, internal_err};
use datafusion::logical_expr::expr::WindowFunction;
use datafusion::logical_expr::{
    Distinct, DistinctOn, Expr, ExprFunctionExt, LogicalPlan, LogicalPlanBuilder, WindowFunctionDefinition,
    lit,
};

use crate::plan::functions::Functions;

/// The column of the rank, which nobody sees.
const RANK: &str = "__distinct_on";

/// The plan without `DISTINCT ON`.
pub(crate) fn as_rank(plan: LogicalPlan) -> PlanResult<LogicalPlan> {
    plan.transform_down_with_subqueries(|node| match node {
        LogicalPlan::Distinct(Distinct::On(distinct)) => first_rows(distinct, false).map(Transformed::yes),
        LogicalPlan::Limit(mut limit) => match limit.input.as_ref() {
            LogicalPlan::Distinct(Distinct::On(distinct)) => {
                limit.input = Arc::new(first_rows(distinct.clone(), true)?);
                Ok(Transformed::yes(LogicalPlan::Limit(limit)))
            }
            _ => Ok(Transformed::no(LogicalPlan::Limit(limit))),
        },
        other => Ok(Transformed::no(other)),
    })
    .map(|plan| plan.data)
}

/// The first row of each partition; sorted, if the order of the rows decides something.
fn first_rows(distinct: DistinctOn, is_sorted: bool) -> PlanResult<LogicalPlan> {
    let Some(row_number) = Functions::all().window.get("row_number") else {
        return internal_err!("there is no row_number()");
    };
    let function = WindowFunctionDefinition::WindowUDF(Arc::clone(row_number));
    let order = distinct.sort_expr.unwrap_or_default();
    let rank = Expr::from(WindowFunction::new(function, Vec::new()))
        .partition_by(distinct.on_expr)
        .order_by(order.clone())
        .build()?
        .alias(RANK);
    let columns = distinct.schema.iter().zip(distinct.select_expr);
    let columns = columns.map(|((qualifier, field), expr)| {
        let is_same = |column: &Column| column.relation.as_ref() == qualifier && column.name == *field.name();
        match expr {
            Expr::Column(column) if is_same(&column) => Expr::Column(column),
            other => other.alias_qualified(qualifier.cloned(), field.name()),
        }
    });
    let first = LogicalPlanBuilder::from(distinct.input)
        .window([rank])?
        .filter(Expr::Column(Column::new_unqualified(RANK)).eq(lit(1_i64)))?;
    let first = match is_sorted && !order.is_empty() {
        true => first.sort(order)?,
        false => first,
    };
    first.project(columns.collect::<Vec<_>>())?.build()
}
