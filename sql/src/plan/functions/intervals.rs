//! What intervals are compared by: their length, in which months have 30 days and days 24 hours.

use arrow::array::{ArrayRef, AsArray, Decimal128Array};
use arrow::datatypes::{DataType, Decimal128Type, IntervalMonthDayNano, IntervalMonthDayNanoType};
use datafusion::logical_expr::Expr;
use std::sync::Arc;

use super::args::{Args, Computed};
use super::define::{Definition, Gives, Kind, Overload};
use super::span::{Span, length};
use crate::SqlError;
use crate::plan::types::DECIMAL_DIGITS;

/// The type of lengths: nanoseconds.
const LENGTH: DataType = DataType::Decimal128(DECIMAL_DIGITS, 0);

static LENGTH_OF: Definition = Definition::new(
    "length of",
    &[Overload::giving(
        &[Kind::Interval],
        Gives::Of(|_| LENGTH),
        |args| {
            let intervals = args.numbers::<IntervalMonthDayNanoType>(0);
            args.strict::<Decimal128Type>(|row| Ok(length(intervals.get(row))))
        },
    )],
);

/// Of all intervals of one length the one in whole months, days and hours.
static CANONICAL: Definition = Definition::new(
    "interval of",
    &[Overload::new(&[Kind::Interval], Kind::Interval, |args| {
        let intervals = args.numbers::<IntervalMonthDayNanoType>(0);
        args.strict::<IntervalMonthDayNanoType>(|row| Span::of(intervals.get(row)).justified().arrow())
    })],
);

static GREATEST: Definition = Definition::new(
    "interval_larger",
    &[Overload::variadic(&[Kind::Interval], Kind::Interval, |args| {
        chosen(args, |one, other| other >= one)
    })],
);
static LEAST: Definition = Definition::new(
    "interval_smaller",
    &[Overload::variadic(&[Kind::Interval], Kind::Interval, |args| {
        chosen(args, |one, other| other <= one)
    })],
);

/// The length of an interval.
pub(crate) fn length_of(interval: Expr) -> Expr {
    LENGTH_OF.udf().call(vec![interval])
}

/// The one interval of all that are equal.
pub(crate) fn canonical_interval(interval: Expr) -> Expr {
    match &interval {
        Expr::ScalarFunction(call) if call.name() == CANONICAL.name => interval,
        _ => CANONICAL.udf().call(vec![interval]),
    }
}

/// `greatest` of intervals.
pub(crate) fn greatest_interval(intervals: Vec<Expr>) -> Expr {
    GREATEST.udf().call(intervals)
}

/// `least` of intervals.
pub(crate) fn least_interval(intervals: Vec<Expr>) -> Expr {
    LEAST.udf().call(intervals)
}

/// The lengths of a column of intervals.
pub(super) fn lengths(column: &ArrayRef) -> Result<ArrayRef, SqlError> {
    let intervals = column.as_primitive::<IntervalMonthDayNanoType>();
    let lengths: Decimal128Array = intervals.iter().map(|value| value.map(length)).collect();
    Ok(Arc::new(lengths.with_data_type(LENGTH)))
}

/// Of the intervals that are there the one that stands last among those chosen by their lengths.
fn chosen(args: &Args, is_better: fn(i128, i128) -> bool) -> Computed {
    let columns: Vec<_> = (0..args.len())
        .map(|arg| args.numbers::<IntervalMonthDayNanoType>(arg))
        .collect();
    let rows = (0..args.rows()).map(|row| {
        let there = columns.iter().filter_map(|column| column.opt(row));
        there.reduce(|best, next| match is_better(length(best), length(next)) {
            true => next,
            false => best,
        })
    });
    let intervals: Vec<Option<IntervalMonthDayNano>> = rows.collect();
    Ok(Arc::new(arrow::array::IntervalMonthDayNanoArray::from(intervals)))
}
