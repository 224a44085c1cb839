//! Whole constants have the type that PostgreSQL gives them: INTEGER where they fit, else BIGINT. DataFusion's planner has
//! made all of them BIGINT, and what it knows of types is brought up to date here.

use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{DFSchemaRef, Result as PlanResult, ScalarValue};
use datafusion::logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder, Subquery};

use crate::plan::rewrite;

/// The plan with such constants. A fixed point: what has become BIGINT by a cast stays so.
pub(crate) fn constants(plan: LogicalPlan) -> PlanResult<LogicalPlan> {
    let plan = plan.transform_up_with_subqueries(|node| {
        // How many rows a query gives is counted in BIGINT.
        if matches!(node, LogicalPlan::Limit(_)) {
            return node.recompute_schema().map(Transformed::yes);
        }
        match rewrite::of_node(node, |expr, _| Ok(constant(expr)))?.data {
            LogicalPlan::Values(values) => LogicalPlanBuilder::values(values.values)?.build(),
            other => other.recompute_schema(),
        }
        .map(Transformed::yes)
    })?;
    outer_columns_typed(plan.data)
}

/// The plan whose subqueries know the types of the outer columns that they read.
pub(crate) fn outer_columns_typed(plan: LogicalPlan) -> PlanResult<LogicalPlan> {
    outer_columns(plan, &mut Vec::new())
}

fn constant(expr: Expr) -> Transformed<Expr> {
    match &expr {
        // The number below all of INTEGER is written as the negative of one that is beyond it.
        Expr::Literal(ScalarValue::Int64(Some(number)), metadata) if *number != i64::from(i32::MIN) => {
            match i32::try_from(*number) {
                Ok(number) => {
                    Transformed::yes(Expr::Literal(ScalarValue::Int32(Some(number)), metadata.clone()))
                }
                Err(_) => Transformed::no(expr),
            }
        }
        _ => Transformed::no(expr),
    }
}

/// The plan whose subqueries know the types of the outer columns that they read; `outer` are the columns around it.
fn outer_columns(plan: LogicalPlan, outer: &mut Vec<DFSchemaRef>) -> PlanResult<LogicalPlan> {
    let plan = plan.transform_down(|node| {
        let own = rewrite::columns_below(&node);
        let node = match node {
            LogicalPlan::Join(mut join) if is_lateral(&join.right) => {
                outer.push(Arc::clone(join.left.schema()));
                let right = outer_columns(Arc::unwrap_or_clone(join.right), outer);
                outer.pop();
                join.right = Arc::new(right?);
                LogicalPlan::Join(join)
            }
            other => other,
        };
        node.map_expressions(|expr| expr.transform_down(|expr| outer_column(expr, &own, outer)))
    })?;
    plan.data.recompute_schema()
}

fn is_lateral(plan: &LogicalPlan) -> bool {
    match plan {
        LogicalPlan::SubqueryAlias(alias) => matches!(alias.input.as_ref(), LogicalPlan::Subquery(_)),
        other => matches!(other, LogicalPlan::Subquery(_)),
    }
}

fn outer_column(
    expr: Expr,
    own: &DFSchemaRef,
    outer: &mut Vec<DFSchemaRef>,
) -> PlanResult<Transformed<Expr>> {
    Ok(match expr {
        Expr::OuterReferenceColumn(field, column) => {
            let found = outer.iter().rev().find_map(|schema| {
                let found = schema.qualified_field_from_column(&column);
                found.ok().map(|(_, field)| Arc::clone(field))
            });
            Transformed::yes(Expr::OuterReferenceColumn(found.unwrap_or(field), column))
        }
        Expr::ScalarSubquery(subquery) => {
            Transformed::yes(Expr::ScalarSubquery(within(subquery, own, outer)?))
        }
        Expr::Exists(mut exists) => {
            exists.subquery = within(exists.subquery, own, outer)?;
            Transformed::yes(Expr::Exists(exists))
        }
        Expr::InSubquery(mut member) => {
            member.subquery = within(member.subquery, own, outer)?;
            Transformed::yes(Expr::InSubquery(member))
        }
        Expr::SetComparison(mut comparison) => {
            comparison.subquery = within(comparison.subquery, own, outer)?;
            Transformed::yes(Expr::SetComparison(comparison))
        }
        other => Transformed::no(other),
    })
}

fn within(subquery: Subquery, own: &DFSchemaRef, outer: &mut Vec<DFSchemaRef>) -> PlanResult<Subquery> {
    outer.push(Arc::clone(own));
    let columns = subquery
        .outer_ref_columns
        .into_iter()
        .map(|column| outer_column(column, own, outer).map(|column| column.data))
        .collect::<PlanResult<Vec<_>>>();
    let plan = outer_columns(Arc::unwrap_or_clone(subquery.subquery), outer);
    outer.pop();
    Ok(Subquery {
        subquery: Arc::new(plan?),
        outer_ref_columns: columns?,
        spans: subquery.spans,
    })
}
