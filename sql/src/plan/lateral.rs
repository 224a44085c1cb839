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

/// The name of the column of lists; no query can name it.
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
    let (Some(list), [_]) = (list_of(&join.right), join.right.schema().fields().as_ref()) else {
        return Ok(None);
    };
    if !is_plain || !list.contains_outer() {
        return Ok(None);
    }
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
    let left = || join.left.schema().columns().into_iter().map(Expr::Column);
    let (qualifier, field) = join.right.schema().qualified_field(0);
    let element =
        Expr::Column(Column::new_unqualified(LISTS)).alias_qualified(qualifier.cloned(), field.name());
    LogicalPlanBuilder::from(join.left.as_ref().clone())
        .project(left().chain([list.alias(LISTS)]))?
        .unnest_column_with_options(
            LISTS,
            UnnestOptions {
                null_handling: NullHandling::Drop,
                ..UnnestOptions::default()
            },
        )?
        .project(left().chain([element]))?
        .build()
        .map(Some)
}

/// The list that a relation unnests and does nothing else with but to call it otherwise.
fn list_of(plan: &LogicalPlan) -> Option<Expr> {
    let mut plan = plan;
    loop {
        plan = match plan {
            LogicalPlan::SubqueryAlias(alias) => &alias.input,
            LogicalPlan::Subquery(subquery) => &subquery.subquery,
            LogicalPlan::Projection(projection) => match projection.expr.as_slice() {
                [expr] if matches!(expr.clone().unalias_nested().data, Expr::Column(_)) => &projection.input,
                _ => return None,
            },
            LogicalPlan::Unnest(unnest) if unnest.list_type_columns.len() == 1 => {
                let LogicalPlan::Projection(lists) = unnest.input.as_ref() else {
                    return None;
                };
                let is_alone = matches!(
                    lists.input.as_ref(),
                    LogicalPlan::EmptyRelation(empty) if empty.produce_one_row
                );
                return match lists.expr.as_slice() {
                    [list] if is_alone => Some(list.clone().unalias()),
                    _ => None,
                };
            }
            _ => return None,
        };
    }
}
