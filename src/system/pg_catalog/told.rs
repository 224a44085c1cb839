//! The types that clients are told of columns that are those of tables of the catalogs, or made of them: numbers of objects, names, and
//! arrays of both.

use std::sync::Arc;

use arrow::datatypes::DataType;
use datafusion::common::Column;
use datafusion::logical_expr::expr::{AggregateFunction, Cast, TryCast};
use datafusion::logical_expr::{Aggregate, Distinct, Expr, JoinType, LogicalPlan};
use highwater_sql::oids::{array_of, element_of, oid};
use highwater_sql::plan::subplan::SubPlan;

use super::shape::{INFORMATION_SCHEMA, PG_CATALOG, Shape};

/// For each column of a plan the number of the type that its column has in the catalogs; `None` for what is computed, and for
/// types that users have too.
pub(crate) fn told(plan: &LogicalPlan) -> Vec<Option<u32>> {
    let width = plan.schema().fields().len();
    let columns = (0..width).map(|at| trace(plan, at));
    columns.collect()
}

/// Follows a column down to its table, or to the expression that makes it. The depth of a plan is bounded.
fn trace(plan: &LogicalPlan, at: usize) -> Option<u32> {
    let (mut plan, mut at) = (plan, at);
    loop {
        plan = match plan {
            LogicalPlan::Projection(node) => return of_expr(node.expr.get(at)?, &node.input),
            LogicalPlan::Aggregate(node) => return of_aggregate(node, at),
            LogicalPlan::SubqueryAlias(node) => &node.input,
            LogicalPlan::Filter(node) => &node.input,
            LogicalPlan::Sort(node) => &node.input,
            LogicalPlan::Limit(node) => &node.input,
            LogicalPlan::Distinct(Distinct::All(input)) => input,
            LogicalPlan::RecursiveQuery(node) => &node.static_term,
            LogicalPlan::Union(node) => node.inputs.first()?,
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

fn of_aggregate(node: &Aggregate, at: usize) -> Option<u32> {
    match node.group_expr.as_slice() {
        [Expr::GroupingSet(_)] => None,
        groups => {
            let made = groups.iter().chain(&node.aggr_expr).nth(at)?;
            of_expr(made, &node.input)
        }
    }
}

/// The type of an expression over `input`.
fn of_expr(expr: &Expr, input: &LogicalPlan) -> Option<u32> {
    match expr {
        Expr::Alias(alias) => of_expr(&alias.expr, input),
        Expr::Column(column) => trace(input, index_of(column, input)?),
        Expr::Cast(Cast { expr, field }) | Expr::TryCast(TryCast { expr, field }) => {
            cast(of_expr(expr, input)?, field.data_type())
        }
        Expr::Case(case) => {
            let branches = case.when_then_expr.iter().map(|(_, then)| then.as_ref());
            one_of(branches.chain(case.else_expr.as_deref()), input)
        }
        Expr::ScalarFunction(call) => match call.func.inner().downcast_ref::<SubPlan>() {
            Some(subplan) => trace(&subplan.plan, 0),
            None if call.func.name() == "coalesce" => one_of(call.args.iter(), input),
            None => None,
        },
        Expr::ScalarSubquery(own) => trace(&own.subquery, 0),
        Expr::AggregateFunction(AggregateFunction { func, params }) => {
            let argument = of_expr(params.args.first()?, input)?;
            match func.name() {
                "min" | "max" => Some(argument),
                // An array of texts is told of arrays of all that are texts.
                "array_agg" => Some(array_of(cast(argument, &DataType::Utf8).unwrap_or(argument))),
                _ => None,
            }
        }
        _ => None,
    }
}

/// What a value of the catalogs is when it is cast.
fn cast(own: u32, wanted: &DataType) -> Option<u32> {
    match (own, wanted) {
        (oid::NAME | oid::CHAR | oid::TEXT, DataType::Utf8) => Some(oid::TEXT),
        (array, DataType::List(item)) => {
            let element = element_of(array)?;
            let is_same = element == oid::OID && *item.data_type() == DataType::Int64;
            match is_same {
                true => Some(array),
                false => cast(element, item.data_type()).map(array_of),
            }
        }
        _ => None,
    }
}

/// The type that all of some expressions have that are not NULL.
fn one_of<'e>(exprs: impl Iterator<Item = &'e Expr>, input: &LogicalPlan) -> Option<u32> {
    let mut found = None;
    for expr in exprs.filter(|expr| !is_null(expr)) {
        let own = of_expr(expr, input)?;
        if found.is_some_and(|found| found != own) {
            return None;
        }
        found = Some(own);
    }
    found
}

fn is_null(expr: &Expr) -> bool {
    match expr {
        Expr::Literal(value, _) => value.is_null(),
        Expr::Cast(Cast { expr, .. }) | Expr::TryCast(TryCast { expr, .. }) => is_null(expr),
        _ => false,
    }
}

fn index_of(column: &Column, input: &LogicalPlan) -> Option<usize> {
    input.schema().maybe_index_of_column(column)
}

fn type_of(shape: &Shape, at: usize) -> Option<u32> {
    number_of(shape.columns.get(at)?.type_name)
}

fn number_of(type_name: &str) -> Option<u32> {
    if let Some(item) = type_name.strip_suffix("[]") {
        return number_of(item).map(array_of);
    }
    match type_name {
        "oid" | "regproc" | "regtype" | "xid" => Some(oid::OID),
        "name" => Some(oid::NAME),
        "\"char\"" => Some(oid::CHAR),
        "text" | "pg_node_tree" => Some(oid::TEXT),
        _ => None,
    }
}
