//! Functions of several rows over columns of the relations before them: the join with a LATERAL query becomes the
//! unnesting of a list that each row has.
//!
//! ```text
//! Join ◀─ left, SubqueryAlias ◀─ Subquery ◀─ … Unnest ◀─ list over outer columns
//!     becomes   Project left, element ◀─ Unnest list ◀─ Project left, list ◀─ left
//! ```

use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{Column, NullHandling, Result as PlanResult, ScalarValue, UnnestOptions};
use datafusion::logical_expr::{Expr, Join, JoinType, LogicalPlan, LogicalPlanBuilder};

use crate::plan::functions::or_one_null;

/// How the names of the columns of lists begin; no query can name them.
const LISTS: &str = "?lists?";

/// The plan with such joins rewritten.
pub(crate) fn unnested(plan: LogicalPlan) -> PlanResult<LogicalPlan> {
    plan.transform_up_with_subqueries(|node| {
        let LogicalPlan::Join(join) = &node else {
            return Ok(Transformed::no(node));
        };
        match rewritten(join)? {
            Some(plan) => Ok(Transformed::yes(plan)),
            None => Ok(Transformed::no(node)),
        }
    })
    .map(|plan| plan.data)
}

fn rewritten(join: &Join) -> PlanResult<Option<LogicalPlan>> {
    let is_plain = join.on.is_empty()
        && matches!(
            join.filter,
            None | Some(Expr::Literal(ScalarValue::Boolean(Some(true)), _))
        );
    let keeps_left = match join.join_type {
        JoinType::Inner => false,
        JoinType::Left => true,
        _ => return Ok(None),
    };
    let Some(lists) = lists_of(&join.right) else {
        return Ok(None);
    };
    if !is_plain || !lists.iter().any(Expr::contains_outer) {
        return Ok(None);
    }
    let own = |at: usize| format!("{LISTS}{at}");
    let mut columns: Vec<Expr> = Vec::with_capacity(lists.len());
    for (at, list) in lists.into_iter().enumerate() {
        let list = list.transform_up(|expr| {
            Ok(match expr {
                Expr::OuterReferenceColumn(_, column) => Transformed::yes(Expr::Column(column)),
                other => Transformed::no(other),
            })
        })?;
        // Where the left side is kept, a list without elements counts as one with NULL.
        let list = if keeps_left {
            or_one_null(list.data)
        } else {
            list.data
        };
        columns.push(list.alias(own(at)));
    }
    let left = || join.left.schema().columns().into_iter().map(Expr::Column);
    let unnested = (0..columns.len())
        .map(|at| Column::new_unqualified(own(at)))
        .collect();
    let elements = join
        .right
        .schema()
        .iter()
        .enumerate()
        .map(|(at, (qualifier, field))| {
            let element = Expr::Column(Column::new_unqualified(own(at)));
            element.alias_qualified(qualifier.cloned(), field.name())
        });
    let elements: Vec<Expr> = elements.collect();
    LogicalPlanBuilder::from(join.left.as_ref().clone())
        .project(left().chain(columns))?
        .unnest_columns_with_options(
            unnested,
            UnnestOptions {
                null_handling: NullHandling::Drop,
                ..UnnestOptions::default()
            },
        )?
        .project(left().chain(elements))?
        .build()
        .map(Some)
}

/// The lists that a relation unnests, for each of its columns, if it does nothing else with them but to call them otherwise.
fn lists_of(plan: &LogicalPlan) -> Option<Vec<Expr>> {
    // For each column of the relation, which one it is of the plan at hand.
    let mut places: Vec<usize> = (0..plan.schema().fields().len()).collect();
    let mut plan = plan;
    loop {
        plan = match plan {
            LogicalPlan::SubqueryAlias(alias) => &alias.input,
            LogicalPlan::Subquery(subquery) => &subquery.subquery,
            LogicalPlan::Projection(projection) => {
                let below = places.iter().map(|place| {
                    match projection.expr.get(*place)?.clone().unalias_nested().data {
                        Expr::Column(column) => projection.input.schema().maybe_index_of_column(&column),
                        _ => None,
                    }
                });
                places = below.collect::<Option<_>>()?;
                &projection.input
            }
            LogicalPlan::Unnest(unnest) if unnest.list_type_columns.len() == places.len() => {
                let LogicalPlan::Projection(lists) = unnest.input.as_ref() else {
                    return None;
                };
                let is_alone = matches!(
                    lists.input.as_ref(),
                    LogicalPlan::EmptyRelation(empty) if empty.produce_one_row
                );
                if !is_alone || lists.expr.len() != places.len() {
                    return None;
                }
                let lists = places
                    .iter()
                    .map(|place| Some(lists.expr.get(*place)?.clone().unalias()));
                return lists.collect();
            }
            _ => return None,
        };
    }
}
