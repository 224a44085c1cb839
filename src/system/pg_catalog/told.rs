//! The types that clients are told of columns which a query gives on from a table of the catalogs as they are.

use std::sync::Arc;

use datafusion::common::Column;
use datafusion::logical_expr::{Distinct, Expr, JoinType, LogicalPlan};
use highwater_sql::oids::oid;

use super::shape::{INFORMATION_SCHEMA, PG_CATALOG, Shape};

/// For each column of a plan the number of the type that its column has in the catalogs; `None` for what is computed, and for
/// types that users have too.
pub(crate) fn told(plan: &LogicalPlan) -> Vec<Option<u32>> {
    let width = plan.schema().fields().len();
    let columns = (0..width).map(|at| trace(plan, at));
    columns.collect()
}

/// Follows a column down to its table.
fn trace(plan: &LogicalPlan, at: usize) -> Option<u32> {
    let (mut plan, mut at) = (plan, at);
    loop {
        plan = match plan {
            LogicalPlan::Projection(node) => {
                at = place_of(node.expr.get(at)?, &node.input)?;
                &node.input
            }
            LogicalPlan::SubqueryAlias(node) => &node.input,
            LogicalPlan::Filter(node) => &node.input,
            LogicalPlan::Sort(node) => &node.input,
            LogicalPlan::Limit(node) => &node.input,
            LogicalPlan::Distinct(Distinct::All(input)) => input,
            LogicalPlan::Join(node)
                if !matches!(node.join_type, JoinType::RightSemi | JoinType::RightAnti) =>
            {
                let left = node.left.schema().fields().len();
                if at < left {
                    &node.left
                } else {
                    at -= left;
                    &node.right
                }
            }
            LogicalPlan::TableScan(scan) => {
                let schema = scan.source.schema();
                let mut shapes = PG_CATALOG.values().chain(INFORMATION_SCHEMA.values());
                let shape = shapes.find(|shape| Arc::ptr_eq(&shape.arrow, &schema))?;
                let at = match &scan.projection {
                    Some(columns) => *columns.get(at)?,
                    None => at,
                };
                return type_of(shape, at);
            }
            _ => return None,
        };
    }
}

/// Which column of the input an expression gives on as it is.
fn place_of(expr: &Expr, input: &LogicalPlan) -> Option<usize> {
    match expr {
        Expr::Alias(alias) => place_of(&alias.expr, input),
        Expr::Column(column) => index_of(column, input),
        _ => None,
    }
}

fn index_of(column: &Column, input: &LogicalPlan) -> Option<usize> {
    input.schema().maybe_index_of_column(column)
}

fn type_of(shape: &Shape, at: usize) -> Option<u32> {
    match shape.columns.get(at)?.type_name {
        "oid" | "regproc" | "regtype" | "xid" => Some(oid::OID),
        "name" => Some(oid::NAME),
        "\"char\"" => Some(oid::CHAR),
        "text" | "pg_node_tree" => Some(oid::TEXT),
        _ => None,
    }
}
