//! Subqueries that read columns of the query around them: those that DataFusion would turn into a join with another answer are
//! rewritten, or refused.
//!
//! ```text
//! Window, DISTINCT ON, a derived table …            Filter key = outer a.k
//! └─ … Filter b.k = outer a.k                   ▶   └─ Window, DISTINCT ON, a derived table …, by key
//! ```

mod joined;
mod keys;

use std::ops::ControlFlow;
use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, Result as PlanResult};
use datafusion::logical_expr::expr::{Exists, InSubquery, SetComparison};
use datafusion::logical_expr::{
    Distinct, DistinctOn, Expr, Join, JoinType, Limit, LogicalPlan, LogicalPlanBuilder, Projection, Subquery,
    SubqueryAlias,
};
use datafusion::sql::sqlparser::ast::{Expr as Written, Query, Spanned};

pub(crate) use self::joined::{Place, holds_subquery, is_joined, outer_columns, reads_outer, subquery_of};
pub(crate) use self::keys::{Keys, compared};
use crate::SqlError;
use crate::plan::place::position_of;
use crate::plan::rewrite;
use crate::plan::translate::{external, translate};
use crate::plan::types::folded;
use crate::plan::walk::{Part, walk};

/// How the names of the columns begin that nobody sees.
const OWN: &str = "__outer";

/// The plan with the comparisons with outer columns above what they would otherwise be pulled out of.
///
/// # Errors
/// What DataFusion finds wrong with the rewritten plan.
pub(crate) fn lifted(plan: LogicalPlan) -> PlanResult<LogicalPlan> {
    let keys = Keys::named(OWN);
    let plan = plan.transform_up_with_subqueries(|node| {
        let node = rewrite::of_node(node, |expr, _| in_expression(expr, &keys))?;
        let LogicalPlan::Join(join) = node.data else {
            return match node.transformed {
                true => node.data.recompute_schema().map(Transformed::yes),
                false => Ok(Transformed::no(node.data)),
            };
        };
        let right = match place_of(&join) {
            Some(place) => in_lateral(&join.right, place, &keys)?,
            None => None,
        };
        Ok(match right {
            Some(right) => Transformed::yes(LogicalPlan::Join(Join {
                right: Arc::new(right),
                ..join
            })),
            None => Transformed::new_transformed(LogicalPlan::Join(join), node.transformed),
        })
    });
    plan.map(|plan| plan.data)
}

/// Refuses subqueries that would become a join with another answer, or none.
///
/// # Errors
/// FeatureNotSupported, with the place of an outer column.
pub(crate) fn refuse_others(plan: &LogicalPlan, query: &Query) -> Result<(), SqlError> {
    let found = plan.apply_with_subqueries(|node| {
        if joined::subqueries_read_further(node) {
            return Err(external(further_out()));
        }
        if let LogicalPlan::Join(join) = node
            && let Some(place) = place_of(join)
            && let Some(own) = lateral(&join.right)
            && (!is_joined(&own.subquery, place) || is_limited(&own.subquery))
        {
            return Err(external(at(otherwise_read(), own, query)));
        }
        node.apply_expressions(|expr| {
            expr.apply(|expr| match (subquery_of(expr), place_in(expr)) {
                (Some(own), Some(place)) if reads_outer(&own.subquery) && !is_right(expr, own, place) => {
                    Err(external(at(otherwise_read(), own, query)))
                }
                _ => Ok(TreeNodeRecursion::Continue),
            })
        })
    });
    found.map(drop).map_err(translate)
}

fn otherwise_read() -> SqlError {
    SqlError::unsupported("a subquery that reads outer columns in this way").with_hint(
        "Compare its own columns with outer ones by = in its own WHERE clause, below no outer join, and no LIMIT and no \
         aggregate without GROUP BY in FROM, or write it as a join.",
    )
}

fn further_out() -> SqlError {
    SqlError::unsupported("a subquery that reads columns of a query further out than the one around it")
        .with_hint("Compare with a column of the query around it that is equal to that one.")
}

/// The error with the place where an outer column of the subquery is written, if that is found.
fn at(error: SqlError, own: &Subquery, query: &Query) -> SqlError {
    let outer = outer_columns(&own.subquery).into_iter();
    let columns: Vec<Column> = outer
        .filter_map(|expr| match expr {
            Expr::OuterReferenceColumn(_, column) => Some(column),
            _ => None,
        })
        .collect();
    match written_at(&columns, query) {
        Some(position) => error.at(position),
        None => error,
    }
}

/// Where the first of these columns stands within a query of the query.
fn written_at(columns: &[Column], query: &Query) -> Option<usize> {
    let mut depth = 0_usize;
    let mut found = None;
    let walked = walk(query, &mut |part| {
        match part {
            Part::Query(_) => depth += 1,
            Part::QueryEnd => depth -= 1,
            Part::Expr(expr @ (Written::CompoundIdentifier(_) | Written::Identifier(_)))
                if depth > 1 && found.is_none() && columns.iter().any(|column| is_named(expr, column)) =>
            {
                found = position_of(expr.span());
            }
            _ => {}
        }
        ControlFlow::Continue(())
    });
    walked.ok().and(found)
}

fn is_named(expr: &Written, column: &Column) -> bool {
    let relation = column.relation.as_ref().map(|relation| relation.table());
    match expr {
        Written::Identifier(name) => folded(name) == column.name,
        Written::CompoundIdentifier(parts) => match parts.as_slice() {
            [.., table, name] => folded(name) == column.name && relation == Some(folded(table).as_str()),
            _ => false,
        },
        _ => false,
    }
}

/// Where the subquery stands that an expression is.
fn place_in(expr: &Expr) -> Option<Place> {
    match expr {
        Expr::ScalarSubquery(_) => Some(Place::Value),
        Expr::Exists(_) | Expr::InSubquery(_) | Expr::SetComparison(_) => Some(Place::Rows),
        _ => None,
    }
}

/// What a LATERAL query on the right side of a join would be.
fn place_of(join: &Join) -> Option<Place> {
    match join.join_type {
        JoinType::Inner => Some(Place::Lateral { keeps_left: false }),
        JoinType::Left => Some(Place::Lateral { keeps_left: true }),
        _ => None,
    }
}

/// The LATERAL query that the right side of a join is, if that reads the left one.
fn lateral(plan: &LogicalPlan) -> Option<&Subquery> {
    let mut plan = plan;
    loop {
        plan = match plan {
            LogicalPlan::SubqueryAlias(node) => &node.input,
            LogicalPlan::Projection(node) => &node.input,
            LogicalPlan::Subquery(own) => return reads_outer(&own.subquery).then_some(own),
            _ => return None,
        };
    }
}

/// Whether the join that a subquery becomes has the same answer. Where rows are compared, it matters which of them LIMIT leaves.
fn is_right(expr: &Expr, own: &Subquery, place: Place) -> bool {
    match expr {
        Expr::InSubquery(_) | Expr::SetComparison(_) => is_compared_in_join(own),
        _ => is_joined(&own.subquery, place),
    }
}

/// The same for the subquery of IN, ANY or ALL.
pub(crate) fn is_compared_in_join(own: &Subquery) -> bool {
    is_joined(&own.subquery, Place::Rows) && !is_limited(&own.subquery)
}

/// Whether LIMIT stands above what reads outer columns.
fn is_limited(plan: &LogicalPlan) -> bool {
    let mut plan = plan;
    loop {
        plan = match plan {
            LogicalPlan::Limit(_) => return reads_outer(plan),
            LogicalPlan::Projection(node) => &node.input,
            LogicalPlan::SubqueryAlias(node) => &node.input,
            LogicalPlan::Sort(node) => &node.input,
            _ => return false,
        };
    }
}

fn in_expression(expr: Expr, keys: &Keys) -> PlanResult<Transformed<Expr>> {
    let (Some(own), Some(place)) = (subquery_of(&expr), place_in(&expr)) else {
        return Ok(Transformed::no(expr));
    };
    let Some(subquery) = in_subquery(own, place, keys)? else {
        return Ok(Transformed::no(expr));
    };
    Ok(Transformed::yes(match expr {
        Expr::Exists(own) => Expr::Exists(Exists { subquery, ..own }),
        Expr::InSubquery(own) => Expr::InSubquery(InSubquery { subquery, ..own }),
        Expr::SetComparison(own) => Expr::SetComparison(SetComparison { subquery, ..own }),
        _ => Expr::ScalarSubquery(subquery),
    }))
}

fn in_lateral(plan: &LogicalPlan, place: Place, keys: &Keys) -> PlanResult<Option<LogicalPlan>> {
    match plan {
        LogicalPlan::SubqueryAlias(node) => match in_lateral(&node.input, place, keys)? {
            Some(input) => {
                let alias = SubqueryAlias::try_new(Arc::new(input), node.alias.clone())?;
                Ok(Some(LogicalPlan::SubqueryAlias(alias)))
            }
            None => Ok(None),
        },
        LogicalPlan::Projection(node) => match in_lateral(&node.input, place, keys)? {
            Some(input) => {
                let list = Projection::try_new(node.expr.clone(), Arc::new(input))?;
                Ok(Some(LogicalPlan::Projection(list)))
            }
            None => Ok(None),
        },
        LogicalPlan::Subquery(own) => Ok(in_subquery(own, place, keys)?.map(LogicalPlan::Subquery)),
        _ => Ok(None),
    }
}

/// The subquery in a form that becomes the right join; `None` where it has one already, and where there is none.
fn in_subquery(own: &Subquery, place: Place, keys: &Keys) -> PlanResult<Option<Subquery>> {
    if !reads_outer(&own.subquery) || is_joined(&own.subquery, place) {
        return Ok(None);
    }
    let plan = above(&own.subquery, keys)?.filter(|plan| is_joined(plan, place));
    Ok(plan.map(|plan| Subquery {
        subquery: Arc::new(plan),
        ..own.clone()
    }))
}

/// The plan with the comparisons above all but ORDER BY, LIMIT and an aggregate without GROUP BY, which are about the rows of one
/// outer row.
fn above(plan: &LogicalPlan, keys: &Keys) -> PlanResult<Option<LogicalPlan>> {
    if joined::holds_outer(plan) || !is_of_one_row(plan) {
        return compared_above(plan, keys);
    }
    if let LogicalPlan::Limit(limit) = plan
        && let LogicalPlan::Distinct(Distinct::On(distinct)) = limit.input.as_ref()
    {
        return first_above(limit, distinct, keys);
    }
    match plan.inputs().as_slice() {
        [input] => match above(input, keys)? {
            Some(input) => plan.with_new_exprs(plan.expressions(), vec![input]).map(Some),
            None => Ok(None),
        },
        _ => Ok(None),
    }
}

/// The first rows of DISTINCT ON, which come in its order; `None` where that is about more than their columns.
fn first_above(limit: &Limit, distinct: &DistinctOn, keys: &Keys) -> PlanResult<Option<LogicalPlan>> {
    let order = distinct.sort_expr.iter().flatten().map(|key| {
        let is_it = |shown: &Expr| shown.clone().unalias() == key.expr;
        let place = distinct.select_expr.iter().position(is_it)?;
        let column = Expr::Column(Column::from(distinct.schema.qualified_field(place)));
        Some(column.sort(key.asc, key.nulls_first))
    });
    let order: Option<Vec<_>> = order.collect();
    let (Some(order), Some(rows)) = (order, compared_above(&limit.input, keys)?) else {
        return Ok(None);
    };
    let rows = match order.is_empty() {
        true => rows,
        false => LogicalPlanBuilder::from(rows).sort(order)?.build()?,
    };
    Ok(Some(LogicalPlan::Limit(Limit {
        input: Arc::new(rows),
        ..limit.clone()
    })))
}

fn compared_above(plan: &LogicalPlan, keys: &Keys) -> PlanResult<Option<LogicalPlan>> {
    let Some((rows, keys)) = keys.of(plan)? else {
        return Ok(None);
    };
    let mut builder = LogicalPlanBuilder::from(rows);
    if let Some(condition) = compared(keys) {
        builder = builder.filter(condition)?;
    }
    let columns = plan.schema().columns().into_iter().map(Expr::Column);
    builder.project(columns)?.build().map(Some)
}

/// Whether a plan is, or stands above, what must stay above the comparisons.
fn is_of_one_row(plan: &LogicalPlan) -> bool {
    let mut plan = plan;
    let mut is_list = true;
    loop {
        plan = match plan {
            LogicalPlan::Sort(_) | LogicalPlan::Limit(_) => return is_list,
            LogicalPlan::Aggregate(node) => return node.group_expr.is_empty(),
            LogicalPlan::Projection(node) => &node.input,
            LogicalPlan::Filter(node) => {
                is_list = false;
                &node.input
            }
            LogicalPlan::SubqueryAlias(node) => {
                is_list = false;
                &node.input
            }
            _ => return false,
        };
    }
}
