//! LATERAL queries that take the first rows of each outer row: their rows are numbered among those of the same values, so that
//! the outer columns can be joined on.
//!
//! ```text
//! a, LATERAL (SELECT x FROM b WHERE b.k = a.k ORDER BY x LIMIT 2)
//!     ▶  a, LATERAL (SELECT x FROM (SELECT …, row_number() OVER (PARTITION BY b.k ORDER BY x) AS n FROM b) WHERE b.k = a.k AND n <= 2)
//! ```
//!
//! Outer columns may be compared by equality alone. Other such queries stay as they are.

use std::sync::Arc;

use datafusion::common::tree_node::Transformed;
use datafusion::common::{Column, Result as PlanResult, internal_err};
use datafusion::logical_expr::expr::WindowFunction;
use datafusion::logical_expr::utils::split_conjunction;
use datafusion::logical_expr::{
    Distinct, Expr, ExprFunctionExt, FetchType, Join, Limit, LogicalPlan, LogicalPlanBuilder, Projection,
    SkipType, Subquery, SubqueryAlias, WindowFunctionDefinition, lit,
};

use crate::SqlError;
use crate::plan::correlated::{Keys, compared};
use crate::plan::functions::Functions;
use crate::plan::outer_columns::equal_sides;
use crate::plan::translate::external;

/// How the names of the columns begin that nobody sees.
const OWN: &str = "__lateral";

/// The plan with numbered rows in place of LIMIT in such queries.
///
/// # Errors
/// What DataFusion finds wrong with the rewritten plan.
pub(crate) fn numbered(plan: LogicalPlan) -> PlanResult<LogicalPlan> {
    plan.transform_up_with_subqueries(|node| {
        let LogicalPlan::Join(join) = node else {
            return Ok(Transformed::no(node));
        };
        match lateral(&join.right)? {
            Some(right) => Ok(Transformed::yes(LogicalPlan::Join(Join {
                right: Arc::new(right),
                ..join
            }))),
            None => Ok(Transformed::no(LogicalPlan::Join(join))),
        }
    })
    .map(|plan| plan.data)
}

/// The LATERAL query on the right side of a join; `None` for anything else, and for one that may stay as it is.
fn lateral(plan: &LogicalPlan) -> PlanResult<Option<LogicalPlan>> {
    match plan {
        LogicalPlan::SubqueryAlias(node) => match lateral(&node.input)? {
            Some(input) => {
                let alias = SubqueryAlias::try_new(Arc::new(input), node.alias.clone())?;
                Ok(Some(LogicalPlan::SubqueryAlias(alias)))
            }
            None => Ok(None),
        },
        LogicalPlan::Projection(node) if !has_outer(node) => match lateral(&node.input)? {
            Some(input) => {
                let list = LogicalPlanBuilder::from(input).project(node.expr.clone())?;
                list.build().map(Some)
            }
            None => Ok(None),
        },
        LogicalPlan::Subquery(own) => {
            let plan = without_limit(&own.subquery)?;
            Ok(plan.map(|plan| {
                LogicalPlan::Subquery(Subquery {
                    subquery: Arc::new(plan),
                    ..own.clone()
                })
            }))
        }
        _ => Ok(None),
    }
}

fn without_limit(plan: &LogicalPlan) -> PlanResult<Option<LogicalPlan>> {
    Ok(match plan {
        LogicalPlan::Projection(node) if !has_outer(node) => match without_limit(&node.input)? {
            Some(input) => Some(
                LogicalPlanBuilder::from(input)
                    .project(node.expr.clone())?
                    .build()?,
            ),
            None => None,
        },
        LogicalPlan::SubqueryAlias(node) => match without_limit(&node.input)? {
            Some(input) => Some(LogicalPlan::SubqueryAlias(SubqueryAlias::try_new(
                Arc::new(input),
                node.alias.clone(),
            )?)),
            None => None,
        },
        LogicalPlan::Limit(limit) => ranked(limit)?,
        _ => None,
    })
}

fn ranked(limit: &Limit) -> PlanResult<Option<LogicalPlan>> {
    let (SkipType::Literal(skip), FetchType::Literal(fetch)) =
        (limit.get_skip_type()?, limit.get_fetch_type()?)
    else {
        return Ok(None);
    };
    // What ORDER BY reads beside the list is left out above it.
    let (list, sorted) = match limit.input.as_ref() {
        LogicalPlan::Projection(node)
            if !has_outer(node) && matches!(node.input.as_ref(), LogicalPlan::Sort(_)) =>
        {
            (Some(node.expr.clone()), &node.input)
        }
        _ => (None, &limit.input),
    };
    let (order, rows) = match sorted.as_ref() {
        LogicalPlan::Sort(sort) => (sort.expr.clone(), &sort.input),
        _ => (Vec::new(), sorted),
    };
    // Those that come first in the order of DISTINCT ON are not told by a number without an order.
    let is_in_order =
        matches!(rows.as_ref(), LogicalPlan::Distinct(Distinct::On(own)) if own.sort_expr.is_some());
    if is_in_order || order.iter().any(|key| key.expr.contains_outer()) {
        return Ok(None);
    }
    let columns = rows.schema().columns();
    let keyed = Keys::named(OWN).of(rows)?;
    let Some((rows, keys)) = keyed.filter(|(_, keys)| !keys.is_empty()) else {
        return match is_compared_otherwise(rows) {
            true => Err(external(otherwise_compared())),
            false => Ok(None),
        };
    };
    let Some(row_number) = Functions::all().window.get("row_number") else {
        return internal_err!("there is no row_number()");
    };
    let function = WindowFunctionDefinition::WindowUDF(Arc::clone(row_number));
    let number = format!("{OWN}_number");
    let rank = Expr::from(WindowFunction::new(function, Vec::new()));
    let rank = rank.partition_by(keys.iter().map(|(key, _)| Expr::Column(key.clone())).collect());
    let rank = match order.is_empty() {
        true => rank,
        false => rank.order_by(order),
    };
    let rank = rank.build()?.alias(number.as_str());
    let number = || Expr::Column(Column::new_unqualified(number.as_str()));
    let count = |rows: usize| lit(i64::try_from(rows).unwrap_or(i64::MAX));
    let mut builder = LogicalPlanBuilder::from(rows).window([rank])?;
    if let Some(condition) = compared(keys) {
        builder = builder.filter(condition)?;
    }
    if let Some(fetch) = fetch {
        builder = builder.filter(number().lt_eq(count(skip.saturating_add(fetch))))?;
    }
    if skip > 0 {
        builder = builder.filter(number().gt(count(skip)))?;
    }
    let shown = list.unwrap_or_else(|| columns.into_iter().map(Expr::Column).collect());
    builder.project(shown)?.build().map(Some)
}

/// Whether rows are compared with outer columns by something else than equality.
fn is_compared_otherwise(plan: &LogicalPlan) -> bool {
    let mut plan = plan;
    loop {
        plan = match plan {
            LogicalPlan::Projection(node) => &node.input,
            LogicalPlan::SubqueryAlias(node) => &node.input,
            LogicalPlan::Filter(node) => {
                let conditions = split_conjunction(&node.predicate);
                return conditions
                    .into_iter()
                    .any(|condition| condition.contains_outer() && equal_sides(condition).is_none());
            }
            _ => return false,
        };
    }
}

fn otherwise_compared() -> SqlError {
    SqlError::unsupported("LATERAL with LIMIT and a comparison with outer columns that is no equality")
        .with_hint(
            "Join on the comparison, number the rows of each outer row with row_number() OVER (PARTITION BY … ORDER BY …), and \
             take the first ones.",
        )
}

fn has_outer(node: &Projection) -> bool {
    node.expr.iter().any(Expr::contains_outer)
}
