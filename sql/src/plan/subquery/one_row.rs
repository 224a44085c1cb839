//! Subqueries over an aggregate without GROUP BY: they have one row whatever they read, which a join would miss for the outer
//! rows that match nothing.
//!
//! ```text
//! EXISTS (SELECT count(*) …)               true
//! EXISTS (SELECT … HAVING p)               (p with a subquery for each of its columns) IS TRUE
//! EXISTS (S LIMIT 0)                       false
//! EXISTS (S OFFSET n)                      (SELECT count(*) FROM S) > n
//! EXISTS (S ORDER BY … LIMIT n)            EXISTS (S)
//! x IN (SELECT count(*) …)                 x = (SELECT count(*) …)
//! x IN (SELECT count(*) … HAVING p)        CASE WHEN p, as above, THEN x = (SELECT count(*) …) ELSE false END
//! ```
//!
//! An IN that reads no outer column stays as it is.

use std::sync::Arc;

use datafusion::common::Result as PlanResult;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::functions_aggregate::count::count;
use datafusion::logical_expr::expr::{Exists, InSubquery};
use datafusion::logical_expr::{
    Distinct, Expr, FetchType, Filter, Limit, LogicalPlan, LogicalPlanBuilder, Operator, SkipType, Subquery,
    binary_expr, lit, when,
};

use crate::plan::correlated::holds_subquery;
use crate::plan::rewrite;

/// EXISTS and IN in the forms above, wherever they stand.
///
/// # Errors
/// What DataFusion finds wrong with the rewritten plan.
pub(super) fn as_values(plan: LogicalPlan) -> PlanResult<LogicalPlan> {
    rewrite::expressions(plan, |expr, _| match expr {
        Expr::Exists(own) => exists(own),
        Expr::InSubquery(own) => membership(own),
        other => Ok(Transformed::no(other)),
    })
}

fn exists(own: Exists) -> PlanResult<Transformed<Expr>> {
    let found = match rows_of(own.subquery.subquery.as_ref())? {
        Rows::None => lit(own.negated),
        Rows::One => lit(!own.negated),
        Rows::OneIf(filter) => match condition(filter, &own.subquery)? {
            Some(holds) if own.negated => holds.is_not_true(),
            Some(holds) => holds.is_true(),
            None => return Ok(Transformed::no(Expr::Exists(own))),
        },
        Rows::Beyond(plan, skipped) => {
            let counted = LogicalPlanBuilder::from(plan.clone())
                .aggregate(Vec::<Expr>::new(), vec![count(lit(1_i64))])?
                .build()?;
            let number = Expr::ScalarSubquery(in_place(&own.subquery, counted));
            let skipped = lit(i64::try_from(skipped).unwrap_or(i64::MAX));
            match own.negated {
                true => number.lt_eq(skipped),
                false => number.gt(skipped),
            }
        }
        Rows::Any => {
            let plan = unordered(own.subquery.subquery.as_ref())?;
            if !plan.transformed {
                return Ok(Transformed::no(Expr::Exists(own)));
            }
            let subquery = in_place(&own.subquery, plan.data);
            return Ok(Transformed::yes(Expr::Exists(Exists { subquery, ..own })));
        }
        Rows::Unknown => return Ok(Transformed::no(Expr::Exists(own))),
    };
    Ok(Transformed::yes(found))
}

fn membership(own: InSubquery) -> PlanResult<Transformed<Expr>> {
    if own.subquery.outer_ref_columns.is_empty() {
        return Ok(Transformed::no(Expr::InSubquery(own)));
    }
    let op = match own.negated {
        true => Operator::NotEq,
        false => Operator::Eq,
    };
    let plan = own.subquery.subquery.as_ref();
    let value = |plan| Expr::ScalarSubquery(in_place(&own.subquery, plan));
    let found = match rows_of(plan)? {
        Rows::One => binary_expr(own.expr.as_ref().clone(), op, value(without_order(plan))),
        Rows::OneIf(filter) => {
            let Some(holds) = condition(filter, &own.subquery)? else {
                return Ok(Transformed::no(Expr::InSubquery(own)));
            };
            let compared = binary_expr(own.expr.as_ref().clone(), op, value(without_filter(plan)?));
            when(holds.is_true(), compared).otherwise(lit(own.negated))?
        }
        Rows::None => lit(own.negated),
        Rows::Beyond(..) | Rows::Any | Rows::Unknown => {
            return Ok(Transformed::no(Expr::InSubquery(own)));
        }
    };
    Ok(Transformed::yes(found))
}

/// What is known of the number of rows of a subquery.
enum Rows<'a> {
    None,
    One,
    /// One if this filter, which stands over one row, lets it pass.
    OneIf(&'a Filter),
    /// Those of the plan less so many.
    Beyond(&'a LogicalPlan, usize),
    /// Any number, which ORDER BY and LIMIT at the top leave at zero or not.
    Any,
    /// The number that LIMIT or OFFSET says is not known yet.
    Unknown,
}

fn rows_of(plan: &LogicalPlan) -> PlanResult<Rows<'_>> {
    let mut plan = plan;
    loop {
        plan = match plan {
            LogicalPlan::Limit(limit) => match (limit.get_skip_type()?, limit.get_fetch_type()?) {
                (_, FetchType::Literal(Some(0))) => return Ok(Rows::None),
                (SkipType::Literal(0), FetchType::Literal(_)) => &limit.input,
                (SkipType::Literal(skipped), FetchType::Literal(_)) => {
                    return Ok(match rows_of(&limit.input)? {
                        Rows::None | Rows::One | Rows::OneIf(_) => Rows::None,
                        Rows::Beyond(..) | Rows::Any | Rows::Unknown => Rows::Beyond(&limit.input, skipped),
                    });
                }
                _ => return Ok(Rows::Unknown),
            },
            LogicalPlan::Filter(filter) if has_one_row(&filter.input) => return Ok(Rows::OneIf(filter)),
            LogicalPlan::Aggregate(node) if node.group_expr.is_empty() => return Ok(Rows::One),
            other => match same_rows(other) {
                Some(input) => input,
                None => return Ok(Rows::Any),
            },
        }
    }
}

/// The input of a node that has no row if and only if its input has none.
fn same_rows(plan: &LogicalPlan) -> Option<&LogicalPlan> {
    match plan {
        LogicalPlan::Projection(node) => Some(&node.input),
        LogicalPlan::SubqueryAlias(node) => Some(&node.input),
        LogicalPlan::Sort(node) => Some(&node.input),
        LogicalPlan::Distinct(Distinct::All(input)) => Some(input),
        _ => None,
    }
}

/// Whether a plan has exactly one row whatever it reads.
pub(super) fn has_one_row(plan: &LogicalPlan) -> bool {
    let mut plan = plan;
    loop {
        plan = match plan {
            LogicalPlan::Aggregate(node) => return node.group_expr.is_empty(),
            LogicalPlan::EmptyRelation(node) => return node.produce_one_row,
            other => match same_rows(other) {
                Some(input) => input,
                None => return false,
            },
        }
    }
}

/// The condition of a filter over one row as the outer query can compute it: each column is a subquery of its own. `None`
/// where that cannot be said.
fn condition(filter: &Filter, own: &Subquery) -> PlanResult<Option<Expr>> {
    if holds_subquery(&filter.predicate) {
        return Ok(None);
    }
    let holds = filter.predicate.clone().transform_up(|expr| match expr {
        Expr::Column(column) => {
            let value = LogicalPlanBuilder::from(filter.input.as_ref().clone())
                .project(vec![Expr::Column(column)])?
                .build()?;
            Ok(Transformed::yes(Expr::ScalarSubquery(in_place(own, value))))
        }
        Expr::OuterReferenceColumn(_, column) => Ok(Transformed::yes(Expr::Column(column))),
        other => Ok(Transformed::no(other)),
    })?;
    Ok(Some(holds.data))
}

/// The subquery, without ORDER BY and the like, which matter to no single row.
fn without_order(plan: &LogicalPlan) -> LogicalPlan {
    match plan {
        LogicalPlan::Sort(node) => without_order(&node.input),
        LogicalPlan::Limit(Limit { input, .. }) => without_order(input),
        LogicalPlan::Distinct(Distinct::All(input)) => without_order(input),
        other => other.clone(),
    }
}

/// The subquery without ORDER BY, LIMIT and DISTINCT at its top, which leave it with rows or without as it was.
fn unordered(plan: &LogicalPlan) -> PlanResult<Transformed<LogicalPlan>> {
    plan.clone().transform_down(|node| match node {
        LogicalPlan::Sort(node) => Ok(Transformed::yes(Arc::unwrap_or_clone(node.input))),
        LogicalPlan::Limit(node) => Ok(Transformed::yes(Arc::unwrap_or_clone(node.input))),
        LogicalPlan::Distinct(Distinct::All(input)) => Ok(Transformed::yes(Arc::unwrap_or_clone(input))),
        node @ (LogicalPlan::Projection(_) | LogicalPlan::SubqueryAlias(_)) => Ok(Transformed::no(node)),
        node => Ok(Transformed::new(node, false, TreeNodeRecursion::Jump)),
    })
}

/// The subquery with the one row that its filter may drop.
fn without_filter(plan: &LogicalPlan) -> PlanResult<LogicalPlan> {
    let plan = without_order(plan).transform_down(|node| match node {
        LogicalPlan::Filter(filter) if has_one_row(&filter.input) => {
            Ok(Transformed::yes(Arc::unwrap_or_clone(filter.input)))
        }
        other => Ok(Transformed::no(other)),
    })?;
    Ok(plan.data)
}

/// A subquery that reads the same outer columns as `own`.
fn in_place(own: &Subquery, plan: LogicalPlan) -> Subquery {
    Subquery {
        subquery: Arc::new(plan),
        ..own.clone()
    }
}
