//! Temporal filters: conditions that compare an expression of the row with `now()`.
//!
//! ```text
//! e >  now() + c    the row is there while now <  e - c
//! e >= now() + c    the row is there while now <= e - c
//! e <  now() + c    the row is there from the microsecond after e - c on
//! e <= now() + c    the row is there from e - c on
//! ```
//!
//! The conditions are read off the conjuncts of a Filter, before and after the optimizer has been over it.

use arrow::datatypes::{DataType, TimeUnit};
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::common::{DFSchema, Result as PlanResult, ScalarValue};
use datafusion::logical_expr::expr::{Between, Cast};
use datafusion::logical_expr::utils::{conjunction, split_conjunction};
use datafusion::logical_expr::{BinaryExpr, Expr, ExprSchemable, Filter, LogicalPlan, Operator, cast};

use crate::SqlError;
use crate::plan::translate::{external, translate};

/// How deep casts and sums may be nested around `now()`.
const DEPTH_MAX: usize = 32;

/// A bound on when a row is there: at an instant of its own, and what is added to it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct TimeBound {
    /// What the row names: a timestamp or a date.
    pub(crate) instant: Expr,
    /// What leads from it to the bound (µs).
    pub(crate) add_us: i64,
    /// Whether the row is there from the bound on; otherwise until then.
    pub(crate) is_from: bool,
}

/// The parts of a condition that must all be true.
#[derive(Debug, Default)]
pub(crate) struct Conjuncts {
    /// Those without `now()`.
    pub(crate) plain: Option<Expr>,
    /// Those with it.
    pub(crate) timed: Vec<TimeBound>,
}

impl Conjuncts {
    /// Takes a condition apart.
    ///
    /// # Errors
    /// A part with `now()` in another place than one side of a comparison (`0A000`).
    pub(crate) fn of(predicate: &Expr) -> Result<Self, SqlError> {
        let mut found = Self::default();
        let mut plain = Vec::new();
        for part in split_conjunction(predicate) {
            match reads_clock(part) {
                true => found
                    .timed
                    .extend(bounds_of(part).ok_or_else(|| not_bounds(part))?),
                false => plain.push(part.clone()),
            }
        }
        found.plain = conjunction(plain);
        Ok(found)
    }
}

/// Refuses `now()` wherever it does not bound the time of a row.
///
/// # Errors
/// Its first other use (`0A000`).
pub(crate) fn refuse_other_clocks(plan: &LogicalPlan) -> Result<(), SqlError> {
    let found = plan.apply_with_subqueries(|node| {
        if let LogicalPlan::Filter(Filter { predicate, .. }) = node {
            return match Conjuncts::of(predicate) {
                Ok(_) => Ok(TreeNodeRecursion::Continue),
                Err(error) => Err(external(error)),
            };
        }
        node.apply_expressions(|expr| match reads_clock(expr) {
            true => Err(external(not_a_bound())),
            false => Ok(TreeNodeRecursion::Continue),
        })
    });
    found.map(drop).map_err(translate)
}

/// Whether `now()` stands somewhere within.
pub(crate) fn reads_clock(expr: &Expr) -> bool {
    let mut found = false;
    let walked: PlanResult<TreeNodeRecursion> = expr.apply(|expr| {
        if is_now(expr) {
            found = true;
            return Ok(TreeNodeRecursion::Stop);
        }
        Ok(TreeNodeRecursion::Continue)
    });
    walked.is_err() || found
}

/// Whether the expression is `now()` or one of its other names.
pub(crate) fn is_now(expr: &Expr) -> bool {
    matches!(expr, Expr::ScalarFunction(call) if call.func.name() == "now")
}

/// The error for a condition with `now()` that says more, or something else.
fn not_bounds(part: &Expr) -> SqlError {
    match part {
        Expr::BinaryExpr(BinaryExpr { op: Operator::Or, .. }) => {
            SqlError::unsupported("now() below OR in a streaming query")
                .with_detail("A row is there for one stretch of time, which conditions joined by AND bound.")
                .with_hint("Make a query of each side, and join them by UNION.")
        }
        _ => not_a_bound(),
    }
}

fn not_a_bound() -> SqlError {
    SqlError::unsupported("this use of now() in a streaming query")
        .with_detail(
            "A streaming query has now() in WHERE or HAVING, compared with an expression of the row by <, <=, > or >=, \
             or BETWEEN; intervals of days and shorter may be added to it, and several such conditions joined by AND.",
        )
        .with_hint("Write column > now() - INTERVAL '1' HOUR, or take the time from a column, for instance INCLUDE timestamp.")
}

/// The bounds that a part says, if it says no more than that.
fn bounds_of(part: &Expr) -> Option<Vec<TimeBound>> {
    match part {
        Expr::BinaryExpr(BinaryExpr { left, op, right }) => Some(vec![bound(left, *op, right)?]),
        Expr::Between(Between {
            expr,
            negated: false,
            low,
            high,
        }) => {
            // Of the two only one needs to have now().
            let both = [(low, Operator::GtEq), (high, Operator::LtEq)];
            both.map(|(side, op)| bound(expr, op, side)).into_iter().collect()
        }
        _ => None,
    }
}

fn bound(left: &Expr, op: Operator, right: &Expr) -> Option<TimeBound> {
    let (instant, op, now) = match (reads_clock(left), reads_clock(right)) {
        (false, true) => (left, op, right),
        (true, false) => (right, op.swap()?, left),
        _ => return None,
    };
    let add_us = after_now(now, 0)?.checked_neg()?;
    let (is_from, later_us) = match op {
        Operator::Gt => (false, 0),
        Operator::GtEq => (false, 1),
        Operator::Lt => (true, 1),
        Operator::LtEq => (true, 0),
        _ => return None,
    };
    Some(TimeBound {
        instant: instant.clone(),
        add_us: add_us.checked_add(later_us)?,
        is_from,
    })
}

/// What is added to `now()` (µs).
fn after_now(expr: &Expr, depth: usize) -> Option<i64> {
    if depth > DEPTH_MAX {
        return None;
    }
    match expr {
        now if is_now(now) => Some(0),
        Expr::Cast(Cast { expr, field }) if matches!(field.data_type(), DataType::Timestamp(..)) => {
            after_now(expr, depth + 1)
        }
        Expr::BinaryExpr(BinaryExpr { left, op, right }) => match op {
            Operator::Plus => match reads_clock(left) {
                true => after_now(left, depth + 1)?.checked_add(micros(right)?),
                false => after_now(right, depth + 1)?.checked_add(micros(left)?),
            },
            Operator::Minus => after_now(left, depth + 1)?.checked_sub(micros(right)?),
            _ => None,
        },
        _ => None,
    }
}

/// The length of a constant interval without months, of whole microseconds.
fn micros(expr: &Expr) -> Option<i64> {
    let Expr::Literal(value, _) = expr else {
        return match expr {
            Expr::Cast(Cast { expr, .. }) => micros(expr),
            Expr::Negative(inner) => micros(inner)?.checked_neg(),
            _ => None,
        };
    };
    let (days, nanos) = match value {
        ScalarValue::IntervalMonthDayNano(Some(i)) if i.months == 0 => (i.days, i.nanoseconds),
        ScalarValue::IntervalDayTime(Some(i)) => (i.days, i64::from(i.milliseconds) * 1_000_000),
        ScalarValue::DurationMicrosecond(Some(micros)) => return Some(*micros),
        _ => return None,
    };
    let micros = i64::from(days).checked_mul(86_400_000_000)?;
    (nanos % 1000 == 0).then_some(())?;
    micros.checked_add(nanos / 1000)
}

/// The instant as a timestamp in microseconds, without casts that only change its unit or its time zone, which is UTC.
///
/// # Errors
/// An expression that has no type there.
pub(crate) fn as_micros(instant: &Expr, schema: &DFSchema) -> PlanResult<Expr> {
    let mut expr = instant;
    while let Expr::Cast(Cast { expr: inner, field }) = expr {
        let keeps_micros = matches!(
            field.data_type(),
            DataType::Timestamp(TimeUnit::Microsecond | TimeUnit::Nanosecond, _)
        );
        let from = inner.get_type(schema)?;
        if !keeps_micros || !matches!(from, DataType::Timestamp(..) | DataType::Date32) {
            break;
        }
        expr = inner;
    }
    match expr.get_type(schema)? {
        DataType::Timestamp(TimeUnit::Microsecond, _) => Ok(expr.clone()),
        _ => Ok(cast(
            expr.clone(),
            DataType::Timestamp(TimeUnit::Microsecond, None),
        )),
    }
}
