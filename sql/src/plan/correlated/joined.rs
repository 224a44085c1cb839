//! Whether DataFusion turns a subquery that reads outer columns into a join with the same answer: it pulls the comparisons out of the
//! filters below, past whatever stands above them, and does not look at what that changes.

use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, DFSchema, Result as PlanResult};
use datafusion::logical_expr::utils::split_conjunction;
use datafusion::logical_expr::{Aggregate, Distinct, Expr, JoinType, Limit, LogicalPlan, SkipType, Subquery};

use crate::plan::outer_columns::equal_sides;
use crate::plan::rewrite;

/// Where a subquery stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    /// On the right side of a join, with LATERAL; rows of the left side without any may be kept.
    Lateral {
        /// Whether they are.
        keeps_left: bool,
    },
    /// In an expression, for its value.
    Value,
    /// In IN, EXISTS, ANY or ALL: how often a row is there does not matter.
    Rows,
}

/// Whether the subquery becomes a join with the same answer.
pub(crate) fn is_joined(plan: &LogicalPlan, place: Place) -> bool {
    let mut top = plan;
    let mut has_condition = false;
    while place != Place::Rows && !holds_outer(top) {
        top = match top {
            LogicalPlan::Projection(node) => &node.input,
            LogicalPlan::Sort(node) => &node.input,
            LogicalPlan::Limit(node) => &node.input,
            LogicalPlan::Filter(node) => {
                has_condition = true;
                &node.input
            }
            LogicalPlan::Aggregate(node) if node.group_expr.is_empty() => {
                // The join keeps the outer row for which the condition does not hold.
                let loses_rows = has_condition && place == Place::Lateral { keeps_left: false };
                return !reads_outer(&node.input) || (!loses_rows && rows(&node.input, place, true));
            }
            _ => break,
        };
    }
    match below_limit(plan, place) {
        Some(rows_below) => rows(rows_below, place, false),
        None => rows(plan, place, false),
    }
}

/// What LIMIT is about, where it stands at the top: the rows of one outer row are taken apart later, and EXISTS asks only whether
/// there are any. Anywhere else the join would know no rows of one outer row.
fn below_limit(plan: &LogicalPlan, place: Place) -> Option<&LogicalPlan> {
    let mut plan = plan;
    while !holds_outer(plan) && !reads_further(plan) {
        plan = match plan {
            LogicalPlan::Projection(node) => &node.input,
            LogicalPlan::Sort(node) => &node.input,
            LogicalPlan::SubqueryAlias(node) if keeps_compared(plan) => &node.input,
            LogicalPlan::Limit(limit) => {
                return (place != Place::Rows || begins_at_first(limit)).then_some(&*limit.input);
            }
            _ => return None,
        };
    }
    None
}

fn begins_at_first(limit: &Limit) -> bool {
    matches!(limit.get_skip_type(), Ok(SkipType::Literal(0)))
}

/// The same for rows of which an aggregate without GROUP BY makes none. With `by_equality`, what stands above would take rows that
/// are compared otherwise for others.
fn rows(plan: &LogicalPlan, place: Place, by_equality: bool) -> bool {
    if !reads_outer(plan) {
        return true;
    }
    if reads_further(plan) {
        return false;
    }
    match plan {
        LogicalPlan::Filter(node) => {
            let mut conditions = split_conjunction(&node.predicate).into_iter();
            let is_pulled = |condition: &Expr| {
                !by_equality
                    || !condition.contains_outer()
                    || condition.column_refs().is_empty()
                    || equal_sides(condition).is_some()
            };
            conditions.all(is_pulled) && rows(&node.input, place, by_equality)
        }
        _ if holds_outer(plan) => false,
        LogicalPlan::Projection(node) => rows(&node.input, place, by_equality),
        LogicalPlan::Sort(node) => rows(&node.input, place, by_equality),
        LogicalPlan::SubqueryAlias(node) => keeps_compared(plan) && rows(&node.input, place, by_equality),
        LogicalPlan::Distinct(Distinct::All(input)) => {
            rows(input, place, by_equality || place != Place::Rows)
        }
        LogicalPlan::Aggregate(node) if is_grouped(node) => {
            let counts = !node.aggr_expr.is_empty() || place != Place::Rows;
            rows(&node.input, place, by_equality || counts)
        }
        LogicalPlan::Join(join) => {
            let is_kept = match join.join_type {
                JoinType::Inner => true,
                JoinType::Left => !reads_outer(&join.right),
                JoinType::Right => !reads_outer(&join.left),
                _ => false,
            };
            let side = |side: &LogicalPlan| is_lateral(side) || rows(side, place, by_equality);
            is_kept && keeps_compared(plan) && side(&join.left) && side(&join.right)
        }
        _ => false,
    }
}

/// Whether an aggregate has a row for each of its groups, and none for no rows.
pub(super) fn is_grouped(node: &Aggregate) -> bool {
    let is_set = |expr: &Expr| matches!(expr, Expr::GroupingSet(_));
    !node.group_expr.is_empty() && !node.group_expr.iter().any(is_set)
}

/// Whether a plan reads columns of the query around it.
pub(crate) fn reads_outer(plan: &LogicalPlan) -> bool {
    holds_outer(plan)
        || reads_further(plan)
        || match plan {
            LogicalPlan::Join(join) if is_lateral(&join.right) => reads_outer(&join.left),
            other => other.inputs().into_iter().any(reads_outer),
        }
}

/// Whether the expressions of a node hold columns of the query around it.
pub(super) fn holds_outer(plan: &LogicalPlan) -> bool {
    let mut found = Vec::new();
    held(plan, &mut found);
    !found.is_empty()
}

/// Whether a query within a node reads columns that the inputs of the node do not have.
pub(super) fn reads_further(plan: &LogicalPlan) -> bool {
    let mut found = Vec::new();
    held_by_subqueries(plan, &mut found);
    held_by_lateral(plan, &mut found);
    !found.is_empty()
}

/// The same for the subqueries of its expressions alone.
pub(super) fn subqueries_read_further(plan: &LogicalPlan) -> bool {
    let mut found = Vec::new();
    held_by_subqueries(plan, &mut found);
    !found.is_empty()
}

/// References to the outer columns that a plan reads, those that queries within read too.
pub(crate) fn outer_columns(plan: &LogicalPlan) -> Vec<Expr> {
    let mut found = Vec::new();
    collect(plan, &mut found);
    found
}

fn collect(plan: &LogicalPlan, found: &mut Vec<Expr>) {
    held(plan, found);
    held_by_subqueries(plan, found);
    held_by_lateral(plan, found);
    match plan {
        LogicalPlan::Join(join) if is_lateral(&join.right) => collect(&join.left, found),
        other => {
            for input in other.inputs() {
                collect(input, found);
            }
        }
    }
}

/// Takes away references to columns of these.
fn without(mut read: Vec<Expr>, schema: &DFSchema, found: &mut Vec<Expr>) {
    read.retain(|expr| !matches!(expr, Expr::OuterReferenceColumn(_, column) if schema.has_column(column)));
    found.append(&mut read);
}

fn held(plan: &LogicalPlan, found: &mut Vec<Expr>) {
    each(plan, &mut |expr| {
        if matches!(expr, Expr::OuterReferenceColumn(..)) {
            found.push(expr.clone());
        }
    });
}

fn held_by_subqueries(plan: &LogicalPlan, found: &mut Vec<Expr>) {
    let mut read = Vec::new();
    each(plan, &mut |expr| {
        if let Some(own) = subquery_of(expr) {
            collect(&own.subquery, &mut read);
        }
    });
    if !read.is_empty() {
        without(read, &rewrite::columns_below(plan), found);
    }
}

fn held_by_lateral(plan: &LogicalPlan, found: &mut Vec<Expr>) {
    if let LogicalPlan::Join(join) = plan
        && is_lateral(&join.right)
    {
        let mut read = Vec::new();
        collect(&join.right, &mut read);
        without(read, join.left.schema(), found);
    }
}

fn each(plan: &LogicalPlan, see: &mut dyn FnMut(&Expr)) {
    let walked: PlanResult<TreeNodeRecursion> = plan.apply_expressions(|expr| {
        expr.apply(|expr| {
            see(expr);
            Ok(TreeNodeRecursion::Continue)
        })
    });
    debug_assert!(walked.is_ok(), "the walk never breaks off");
}

/// The subquery that an expression is.
pub(crate) fn subquery_of(expr: &Expr) -> Option<&Subquery> {
    match expr {
        Expr::ScalarSubquery(own) => Some(own),
        Expr::Exists(own) => Some(&own.subquery),
        Expr::InSubquery(own) => Some(&own.subquery),
        Expr::SetComparison(own) => Some(&own.subquery),
        _ => None,
    }
}

/// Whether there is a subquery anywhere in an expression.
pub(crate) fn holds_subquery(expr: &Expr) -> bool {
    let found = expr.exists(|expr| Ok(subquery_of(expr).is_some()));
    debug_assert!(found.is_ok(), "the test never fails");
    found.unwrap_or(true)
}

/// Whether a side of a join is a LATERAL query.
pub(super) fn is_lateral(plan: &LogicalPlan) -> bool {
    let mut plan = plan;
    loop {
        plan = match plan {
            LogicalPlan::Subquery(_) => return true,
            LogicalPlan::SubqueryAlias(node) => &node.input,
            LogicalPlan::Projection(node) => &node.input,
            _ => return false,
        };
    }
}

/// Whether the columns that are compared with outer ones below an alias or a join are columns of it under their own names.
fn keeps_compared(plan: &LogicalPlan) -> bool {
    let mut compared: Vec<Column> = Vec::new();
    let walked = plan.apply(|node| {
        if let LogicalPlan::Filter(filter) = node {
            let conditions = split_conjunction(&filter.predicate).into_iter();
            let conditions = conditions.filter(|condition| condition.contains_outer());
            compared.extend(conditions.flat_map(Expr::column_refs).cloned());
        }
        Ok(TreeNodeRecursion::Continue)
    });
    walked.is_ok() && compared.iter().all(|column| keeps(plan, &column.name)) && compared_by(plan).is_some()
}

/// The columns of a plan that are compared with outer ones below it; `None` where it has not all of them. What a LATERAL query
/// compares is joined below.
fn compared_by(plan: &LogicalPlan) -> Option<Vec<Column>> {
    if matches!(plan, LogicalPlan::Subquery(_)) {
        return Some(Vec::new());
    }
    let mut compared = Vec::new();
    for input in plan.inputs() {
        compared.extend(compared_by(input)?);
    }
    let are_among = |exprs: &[Expr]| {
        let mut compared = compared.iter();
        compared.all(|column| {
            exprs
                .iter()
                .any(|expr| matches!(expr, Expr::Column(own) if own == column))
        })
    };
    match plan {
        LogicalPlan::Filter(filter) => {
            let conditions = split_conjunction(&filter.predicate).into_iter();
            let conditions = conditions.filter(|condition| condition.contains_outer());
            compared.extend(conditions.flat_map(Expr::column_refs).cloned());
        }
        LogicalPlan::Projection(node) if !are_among(&node.expr) => return None,
        LogicalPlan::Aggregate(node) if !are_among(&node.group_expr) => return None,
        LogicalPlan::SubqueryAlias(node) => {
            for column in &mut compared {
                column.relation = Some(node.alias.clone());
            }
        }
        _ => {}
    }
    Some(compared)
}

fn keeps(plan: &LogicalPlan, name: &str) -> bool {
    let is_it = |expr: &Expr| matches!(expr, Expr::Column(column) if column.name == name);
    match plan {
        LogicalPlan::Projection(node) => node.expr.iter().any(is_it) && keeps(&node.input, name),
        LogicalPlan::Aggregate(node) => node.group_expr.iter().any(is_it) && keeps(&node.input, name),
        LogicalPlan::TableScan(_) => plan.schema().fields().iter().any(|field| field.name() == name),
        // What else gives columns of its own is no way for those of below.
        LogicalPlan::Window(_) | LogicalPlan::Unnest(_) | LogicalPlan::Subquery(_) => false,
        other => {
            let inputs = other.inputs();
            inputs.is_empty() || inputs.into_iter().any(|input| keeps(input, name))
        }
    }
}
