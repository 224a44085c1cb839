//! Lateral subqueries of `unnest()` as rows beside those of the relation in front of them.
//!
//! ```text
//! Join(left, Subquery(Project x AS value ◀─ Unnest x ◀─ Project f(outer left.j) AS x ◀─ one row))
//!      ─▶ Project left.*, x AS e.value ◀─ Unnest x ◀─ Project left.*, f(left.j) AS x ◀─ left
//! ```

use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{Result as PlanResult, TableReference};
use datafusion::logical_expr::{Expr, Join, JoinType, LogicalPlan, LogicalPlanBuilder};

use crate::SqlError;
use crate::plan::translate::external;

/// The plan without lateral subqueries of this form; others stay as they are.
pub(crate) fn unnested(plan: LogicalPlan) -> PlanResult<LogicalPlan> {
    plan.transform_up_with_subqueries(|node| match node {
        LogicalPlan::Join(join) if join.on.is_empty() => beside(join),
        other => Ok(Transformed::no(other)),
    })
    .map(|plan| plan.data)
}

fn beside(join: Join) -> PlanResult<Transformed<LogicalPlan>> {
    let (alias, subquery) = match join.right.as_ref() {
        LogicalPlan::SubqueryAlias(own) => match own.input.as_ref() {
            LogicalPlan::Subquery(subquery) => (Some(own.alias.clone()), &subquery.subquery),
            _ => return Ok(Transformed::no(LogicalPlan::Join(join))),
        },
        LogicalPlan::Subquery(subquery) => (None, &subquery.subquery),
        _ => return Ok(Transformed::no(LogicalPlan::Join(join))),
    };
    let names = join.right.schema().field_names();
    let names: Vec<String> = match alias {
        Some(_) => join
            .right
            .schema()
            .fields()
            .iter()
            .map(|field| field.name().clone())
            .collect(),
        None => names,
    };
    let top = Top { alias, names };
    let Some(plan) = over(subquery, &join.left, Some(&top))? else {
        return Ok(Transformed::no(LogicalPlan::Join(join)));
    };
    if join.join_type != JoinType::Inner {
        return Err(external(
            SqlError::unsupported(format!(
                "{} JOIN LATERAL of a set-returning function",
                join.join_type.to_string().to_uppercase()
            ))
            .with_hint("Use CROSS JOIN LATERAL; rows without elements have none in the result."),
        ));
    }
    let plan = match join.filter {
        Some(filter) => LogicalPlanBuilder::from(plan).filter(filter)?.build()?,
        None => plan,
    };
    Ok(Transformed::yes(plan))
}

/// What the columns of the subquery are called outside of it.
struct Top {
    alias: Option<TableReference>,
    names: Vec<String>,
}

/// The subquery over the rows of `left` instead of one row without columns; `None` if it is of another form.
fn over(plan: &LogicalPlan, left: &Arc<LogicalPlan>, top: Option<&Top>) -> PlanResult<Option<LogicalPlan>> {
    match plan {
        LogicalPlan::EmptyRelation(empty) if empty.produce_one_row && top.is_none() => {
            Ok(Some(left.as_ref().clone()))
        }
        LogicalPlan::Projection(projection) => {
            let Some(input) = over(&projection.input, left, None)? else {
                return Ok(None);
            };
            let kept = left.schema().columns().into_iter().map(Expr::Column);
            let mut exprs: Vec<Expr> = kept.collect();
            for (place, expr) in projection.expr.iter().enumerate() {
                let expr = expr.clone().transform_up(|expr| {
                    Ok(match expr {
                        Expr::OuterReferenceColumn(_, column) => Transformed::yes(Expr::Column(column)),
                        other => Transformed::no(other),
                    })
                })?;
                exprs.push(match top {
                    Some(top) => {
                        let name = top.names.get(place).cloned().unwrap_or_default();
                        expr.data.unalias().alias_qualified(top.alias.clone(), name)
                    }
                    None => expr.data,
                });
            }
            LogicalPlanBuilder::from(input).project(exprs)?.build().map(Some)
        }
        LogicalPlan::Unnest(unnest) if top.is_none() => {
            let Some(input) = over(&unnest.input, left, None)? else {
                return Ok(None);
            };
            let columns = unnest.exec_columns.clone();
            LogicalPlanBuilder::from(input)
                .unnest_columns_with_options(columns, unnest.options.clone())?
                .build()
                .map(Some)
        }
        // A subquery alias renames columns; the one that a derived relation has stands above.
        _ => Ok(None),
    }
}
