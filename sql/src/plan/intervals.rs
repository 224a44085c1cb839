//! Comparisons of intervals go by their lengths, as PostgreSQL's do: one month is 30 days, and one day 24 hours.

use arrow::datatypes::{DataType, IntervalUnit};
use datafusion::common::tree_node::Transformed;
use datafusion::common::{DFSchema, Result as PlanResult, ScalarValue};
use datafusion::logical_expr::expr::{Between, InList};
use datafusion::logical_expr::{BinaryExpr, Case, Expr, ExprSchemable, cast, not, when};

use crate::plan::functions::{greatest_interval, least_interval, length_of};
use crate::plan::unlike::is_comparison;

/// Whether an expression is an interval.
pub(crate) fn is_interval(expr: &Expr, schema: &DFSchema) -> bool {
    let data_type = expr.get_type(schema);
    data_type.is_ok_and(|data_type| matches!(data_type, DataType::Interval(_)))
}

/// The expression with comparisons of intervals by their lengths. A fixed point: lengths are numbers.
pub(crate) fn by_length(expr: Expr, schema: &DFSchema) -> PlanResult<Transformed<Expr>> {
    let changed = match &expr {
        Expr::BinaryExpr(BinaryExpr { left, op, right }) if is_comparison(*op) => {
            match all_intervals([left.as_ref(), right.as_ref()], schema) {
                true => Some(Expr::BinaryExpr(BinaryExpr::new(
                    length(left),
                    *op,
                    length(right),
                ))),
                false => None,
            }
        }
        Expr::Between(own) if all_intervals([&*own.expr, &*own.low, &*own.high], schema) => {
            Some(Expr::Between(Between {
                expr: length(&own.expr),
                negated: own.negated,
                low: length(&own.low),
                high: length(&own.high),
            }))
        }
        Expr::InList(own) if all_intervals(std::iter::once(&*own.expr).chain(&own.list), schema) => {
            Some(Expr::InList(InList {
                expr: length(&own.expr),
                list: own.list.iter().map(|item| *length(item)).collect(),
                negated: own.negated,
            }))
        }
        Expr::Case(case) => by_case(case, schema),
        Expr::ScalarFunction(call) if all_intervals(&call.args, schema) => {
            match (call.name(), call.args.as_slice()) {
                ("nullif", [value, other]) => {
                    let is_other = (*length(value)).eq(*length(other)).is_true();
                    Some(when(not(is_other), value.clone()).end()?)
                }
                ("greatest", args) => Some(greatest_interval(args.to_vec())),
                ("least", args) => Some(least_interval(args.to_vec())),
                _ => None,
            }
        }
        _ => None,
    };
    Ok(match changed {
        Some(changed) => Transformed::yes(changed),
        None => Transformed::no(expr),
    })
}

/// `CASE interval WHEN …`.
fn by_case(case: &Case, schema: &DFSchema) -> Option<Expr> {
    let operand = case.expr.as_deref()?;
    let whens = case.when_then_expr.iter().map(|(when, _)| when.as_ref());
    if !all_intervals(std::iter::once(operand).chain(whens), schema) {
        return None;
    }
    let mut changed = case.clone();
    changed.expr = Some(length(operand));
    for (when, _) in &mut changed.when_then_expr {
        *when = length(when);
    }
    Some(Expr::Case(changed))
}

/// Whether one of the expressions is an interval, and the others are intervals or constants that become one.
fn all_intervals<'a>(exprs: impl IntoIterator<Item = &'a Expr>, schema: &DFSchema) -> bool {
    let mut has_interval = false;
    for expr in exprs {
        match is_interval(expr, schema) {
            true => has_interval = true,
            false if is_unknown(expr) => {}
            false => return false,
        }
    }
    has_interval
}

/// A constant in quotes, or NULL.
fn is_unknown(expr: &Expr) -> bool {
    matches!(expr, Expr::Literal(ScalarValue::Utf8(_) | ScalarValue::Null, _))
}

fn length(interval: &Expr) -> Box<Expr> {
    let interval = match is_unknown(interval) {
        true => cast(interval.clone(), DataType::Interval(IntervalUnit::MonthDayNano)),
        false => interval.clone(),
    };
    Box::new(length_of(interval))
}
