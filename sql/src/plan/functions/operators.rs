//! Operators whose operands DataFusion does not take, or takes for something else: those of dates and intervals, `||` of
//! values that are no texts, those of NUMERIC, `^`, `#` and the operators that stand for LIKE.

use arrow::datatypes::{
    DataType, Date32Type, Float64Type, Int64Type, IntervalMonthDayNanoType, Time64MicrosecondType,
    TimestampMicrosecondType,
};
use datafusion::common::{DFSchema, Result as PlanResult, ScalarValue};
use datafusion::logical_expr::planner::{ExprPlanner, PlannerResult, RawBinaryExpr};
use datafusion::logical_expr::{BinaryExpr, Expr, ExprSchemable, Like, Operator, cast};
use datafusion::sql::sqlparser::ast::BinaryOperator;

use super::args::{Args, Computed};
use super::define::{Definition, Kind, Overload};
use super::moment::{DAYS, MICROS_PER_DAY};
use super::span::{Span, timestamp_out_of_range};
use super::{Functions, fields, numeric};
use crate::plan::literals::{exact_constant, to_text};
use crate::plan::mixed;
use crate::plan::parameters::marker;
use crate::plan::types::{DECIMAL_DIGITS, DECIMAL_SCALE, column_type};
use crate::{SqlError, SqlState};

use Kind::{Date, Float8, Int8, Interval, Time, Timestamp, TimestampTz};

static DATE_PLUS: Definition = Definition::new(
    "date_pl",
    &[
        Overload::new(&[Date, Int8], Date, |args| moved_days(args, 1)),
        Overload::new(&[Date, Time], Timestamp, date_and_time),
    ],
);
static DATE_MINUS: Definition = Definition::new(
    "date_mi",
    &[
        Overload::new(&[Date, Date], Kind::Int4, days_between),
        Overload::new(&[Date, Int8], Date, |args| moved_days(args, -1)),
    ],
);
static TIMESTAMP_MINUS: Definition = Definition::new(
    "timestamp_mi",
    &[
        Overload::new(&[Timestamp, Timestamp], Interval, between),
        Overload::new(&[TimestampTz, TimestampTz], Interval, between),
    ],
);
static TIME_MOVED: [Definition; 2] = [
    Definition::new(
        "time_pl",
        &[Overload::new(&[Time, Interval], Time, |args| moved_time(args, 1))],
    ),
    Definition::new(
        "time_mi",
        &[
            Overload::new(&[Time, Time], Interval, between_times),
            Overload::new(&[Time, Interval], Time, |args| moved_time(args, -1)),
        ],
    ),
];
static INTERVAL_TIMES: Definition = Definition::new(
    "interval_mul",
    &[Overload::new(&[Interval, Float8], Interval, |args| {
        scaled(args, |span, factor| span.times(factor))
    })],
);
static INTERVAL_DIVIDED: Definition = Definition::new(
    "interval_div",
    &[Overload::new(&[Interval, Float8], Interval, |args| {
        scaled(args, |span, divisor| match divisor == 0.0 {
            true => Err(SqlError::new(SqlState::DivisionByZero, "division by zero")),
            false => span.divided(divisor),
        })
    })],
);
static BYTES_JOINED: Definition = Definition::new(
    "byteacat",
    &[Overload::new(&[Kind::Bytea, Kind::Bytea], Kind::Bytea, joined)],
);

/// Plans the operators, and `extract`.
#[derive(Debug)]
pub(crate) struct PgOperators;

impl ExprPlanner for PgOperators {
    fn plan_binary_op(
        &self,
        expr: RawBinaryExpr,
        schema: &DFSchema,
    ) -> PlanResult<PlannerResult<RawBinaryExpr>> {
        // An operand with outer columns has its type elsewhere; the operation is left to DataFusion.
        let (Ok(left), Ok(right)) = (expr.left.get_type(schema), expr.right.get_type(schema)) else {
            return Ok(PlannerResult::Original(expr));
        };
        let types = (column_type(&left), column_type(&right));
        if is_arithmetic(&expr.op)
            && let Some((left, right)) = mixed::operands(&expr.left, &expr.right, schema)
        {
            return Ok(PlannerResult::Original(RawBinaryExpr { left, right, ..expr }));
        }
        if let Some((left, right)) = parameters_typed(&expr, (&left, &right)) {
            return self.plan_binary_op(RawBinaryExpr { left, right, ..expr }, schema);
        }
        if let Some((left, right)) = constants_typed(&expr, &types) {
            return Ok(PlannerResult::Original(RawBinaryExpr { left, right, ..expr }));
        }
        let is_null = |data_type: &DataType| *data_type == DataType::Null;
        let expr = with_intervals(expr, &types);
        let planned = match expr.op {
            BinaryOperator::Plus => plus(&expr, &types),
            BinaryOperator::Minus => minus(&expr, &types),
            BinaryOperator::Multiply => times(&expr, &types),
            BinaryOperator::Divide => divided(&expr, &types)?,
            BinaryOperator::StringConcat if !is_null(&left) && !is_null(&right) => {
                concatenated(&expr, &types)
            }
            BinaryOperator::Eq | BinaryOperator::NotEq => compared_with_truth(&expr, &types),
            BinaryOperator::PGExp => function("power", &expr),
            BinaryOperator::PGStartsWith => function("starts_with", &expr),
            BinaryOperator::PGBitwiseXor => Some(binary(&expr, Operator::BitwiseXor)),
            BinaryOperator::PGLikeMatch => Some(like(&expr, false, false)),
            BinaryOperator::PGILikeMatch => Some(like(&expr, false, true)),
            BinaryOperator::PGNotLikeMatch => Some(like(&expr, true, false)),
            BinaryOperator::PGNotILikeMatch => Some(like(&expr, true, true)),
            _ => None,
        };
        Ok(match planned {
            Some(planned) => PlannerResult::Planned(planned),
            None => PlannerResult::Original(expr),
        })
    }

    fn plan_substring(&self, args: Vec<Expr>) -> PlanResult<PlannerResult<Vec<Expr>>> {
        Ok(by_name("substring", args))
    }

    fn plan_position(&self, args: Vec<Expr>) -> PlanResult<PlannerResult<Vec<Expr>>> {
        Ok(by_name("strpos", args))
    }

    fn plan_overlay(&self, args: Vec<Expr>) -> PlanResult<PlannerResult<Vec<Expr>>> {
        Ok(by_name("overlay", args))
    }

    fn plan_extract(&self, args: Vec<Expr>) -> PlanResult<PlannerResult<Vec<Expr>>> {
        Ok(match args.as_slice() {
            [Expr::Literal(ScalarValue::Utf8(Some(field)), _), value] => {
                PlannerResult::Planned(fields::untyped(field, value.clone()))
            }
            _ => PlannerResult::Original(args),
        })
    }
}

/// A comparison with the interval that a constant in quotes is beside another one.
fn with_intervals(expr: RawBinaryExpr, (left, right): &(DataType, DataType)) -> RawBinaryExpr {
    use BinaryOperator as B;
    let is_meant = matches!(expr.op, B::Eq | B::NotEq | B::Lt | B::LtEq | B::Gt | B::GtEq);
    let is_interval = |data_type: &DataType| matches!(data_type, DataType::Interval(_));
    let as_interval = |expr: Expr| cast(expr, Interval.data_type());
    match expr {
        expr if !is_meant => expr,
        expr if is_interval(left) && is_constant_text(&expr.right) => RawBinaryExpr {
            right: as_interval(expr.right),
            ..expr
        },
        expr if is_interval(right) && is_constant_text(&expr.left) => RawBinaryExpr {
            left: as_interval(expr.left),
            ..expr
        },
        expr => expr,
    }
}

fn is_arithmetic(op: &BinaryOperator) -> bool {
    matches!(
        op,
        BinaryOperator::Plus | BinaryOperator::Minus | BinaryOperator::Multiply | BinaryOperator::Divide
    )
}

/// The operands of arithmetic of a time or a length of time and a parameter that has no type yet, with the type that PostgreSQL
/// gives it; `None` where it has several.
fn parameters_typed(expr: &RawBinaryExpr, (left, right): (&DataType, &DataType)) -> Option<(Expr, Expr)> {
    let (a, b) = (&expr.left, &expr.right);
    let is_marker = |operand: &Expr| marker(operand).is_some();
    let typed = |operand: &Expr, data_type: DataType| cast(operand.clone(), data_type);
    match (is_marker(a), is_marker(b)) {
        (false, true) => Some((a.clone(), typed(b, beside(&expr.op, left, true)?))),
        (true, false) => Some((typed(a, beside(&expr.op, right, false)?), b.clone())),
        _ => None,
    }
}

/// The type of what has none beside an operand of a type; `is_right` says whether it stands on the right.
fn beside(op: &BinaryOperator, known: &DataType, is_right: bool) -> Option<DataType> {
    let is_interval = matches!(known, DataType::Interval(_));
    let is_moving = is_interval || matches!(known, DataType::Timestamp(..) | DataType::Time64(_));
    match op {
        // A day takes a number, a time or an interval.
        BinaryOperator::Plus if is_moving => Some(Interval.data_type()),
        BinaryOperator::Minus if is_moving || *known == DataType::Date32 => Some(known.clone()),
        BinaryOperator::Multiply if is_interval => Some(Float8.data_type()),
        BinaryOperator::Divide if is_interval && is_right => Some(Float8.data_type()),
        _ => None,
    }
}

/// The operands of arithmetic of a number and a constant in quotes, which is a number of the same type.
fn constants_typed(expr: &RawBinaryExpr, (left, right): &(DataType, DataType)) -> Option<(Expr, Expr)> {
    let is_meant = is_arithmetic(&expr.op) || matches!(expr.op, BinaryOperator::Modulo);
    let (a, b) = (&expr.left, &expr.right);
    match (is_constant_text(a), is_constant_text(b)) {
        (true, false) if is_meant && is_number(right) => Some((constant_number(a, right), b.clone())),
        (false, true) if is_meant && is_number(left) => Some((a.clone(), constant_number(b, left))),
        _ => None,
    }
}

/// A constant in quotes as a number of a type; as NUMERIC with the digits that it has.
fn constant_number(constant: &Expr, data_type: &DataType) -> Expr {
    if let (Expr::Literal(ScalarValue::Utf8(Some(text)), _), DataType::Decimal128(..)) = (constant, data_type)
        && let Some(number) = exact_constant(text)
    {
        return Expr::Literal(number, None);
    }
    match data_type {
        DataType::Decimal128(..) => cast(
            constant.clone(),
            DataType::Decimal128(DECIMAL_DIGITS, DECIMAL_SCALE),
        ),
        other => cast(constant.clone(), other.clone()),
    }
}

fn binary(expr: &RawBinaryExpr, op: Operator) -> Expr {
    Expr::BinaryExpr(BinaryExpr::new(
        Box::new(expr.left.clone()),
        op,
        Box::new(expr.right.clone()),
    ))
}

fn by_name(name: &str, args: Vec<Expr>) -> PlannerResult<Vec<Expr>> {
    match Functions::all().scalar.get(name) {
        Some(function) => PlannerResult::Planned(function.call(args)),
        None => PlannerResult::Original(args),
    }
}

fn function(name: &str, expr: &RawBinaryExpr) -> Option<Expr> {
    let function = Functions::all().scalar.get(name)?;
    Some(function.call(vec![expr.left.clone(), expr.right.clone()]))
}

fn like(expr: &RawBinaryExpr, negated: bool, case_insensitive: bool) -> Expr {
    Expr::Like(Like::new(
        negated,
        Box::new(expr.left.clone()),
        Box::new(expr.right.clone()),
        None,
        case_insensitive,
    ))
}

fn call(function: &'static Definition, left: &Expr, right: &Expr) -> Option<Expr> {
    Some(function.udf().call(vec![left.clone(), right.clone()]))
}

/// A truth compared with a constant in quotes, which is a truth too.
fn compared_with_truth(expr: &RawBinaryExpr, (left, right): &(DataType, DataType)) -> Option<Expr> {
    let op = match expr.op {
        BinaryOperator::Eq => Operator::Eq,
        _ => Operator::NotEq,
    };
    let truth = |constant: &Expr| cast(constant.clone(), DataType::Boolean);
    let (a, b) = match (left, right) {
        (DataType::Boolean, DataType::Utf8) if is_constant_text(&expr.right) => {
            (expr.left.clone(), truth(&expr.right))
        }
        (DataType::Utf8, DataType::Boolean) if is_constant_text(&expr.left) => {
            (truth(&expr.left), expr.right.clone())
        }
        _ => return None,
    };
    Some(Expr::BinaryExpr(BinaryExpr::new(Box::new(a), op, Box::new(b))))
}

fn is_integer(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Int16 | DataType::Int32 | DataType::Int64)
}

fn is_number(data_type: &DataType) -> bool {
    is_integer(data_type)
        || matches!(
            data_type,
            DataType::Float32 | DataType::Float64 | DataType::Decimal128(..)
        )
}

fn is_timestamp(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Timestamp(..))
}

fn is_constant_text(expr: &Expr) -> bool {
    matches!(expr, Expr::Literal(ScalarValue::Utf8(Some(_)), _))
}

fn as_timestamp(expr: &Expr) -> Expr {
    cast(expr.clone(), Timestamp.data_type())
}

fn plus(expr: &RawBinaryExpr, (left, right): &(DataType, DataType)) -> Option<Expr> {
    use DataType as T;
    let (a, b) = (&expr.left, &expr.right);
    let sum = |left: Expr, right: Expr| Some(left + right);
    match (left, right) {
        (T::Date32, other) if is_integer(other) => call(&DATE_PLUS, a, b),
        (other, T::Date32) if is_integer(other) => call(&DATE_PLUS, b, a),
        (T::Date32, T::Time64(_)) => call(&DATE_PLUS, a, b),
        (T::Time64(_), T::Date32) => call(&DATE_PLUS, b, a),
        (T::Date32, T::Interval(_)) => sum(as_timestamp(a), b.clone()),
        (T::Interval(_), T::Date32) => sum(as_timestamp(b), a.clone()),
        (T::Interval(_), other) if is_timestamp(other) => sum(b.clone(), a.clone()),
        (other, T::Utf8) if is_timestamp(other) && is_constant_text(b) => {
            sum(a.clone(), cast(b.clone(), Interval.data_type()))
        }
        (T::Time64(_), T::Interval(_)) => call(&TIME_MOVED[0], a, b),
        (T::Interval(_), T::Time64(_)) => call(&TIME_MOVED[0], b, a),
        _ => None,
    }
}

fn minus(expr: &RawBinaryExpr, (left, right): &(DataType, DataType)) -> Option<Expr> {
    use DataType as T;
    let (a, b) = (&expr.left, &expr.right);
    match (left, right) {
        (T::Date32, other) if is_integer(other) => call(&DATE_MINUS, a, b),
        (T::Date32, T::Date32) => call(&DATE_MINUS, a, b),
        (T::Date32, T::Utf8) if is_constant_text(b) => {
            call(&DATE_MINUS, a, &cast(b.clone(), Date.data_type()))
        }
        (T::Date32, T::Interval(_)) => Some(as_timestamp(a) - b.clone()),
        (T::Time64(_), T::Time64(_) | T::Interval(_)) => call(&TIME_MOVED[1], a, b),
        (times, other) if is_timestamp(times) && (is_timestamp(other) || *other == T::Date32) => {
            call(&TIMESTAMP_MINUS, a, b)
        }
        (T::Date32, times) if is_timestamp(times) => call(&TIMESTAMP_MINUS, a, b),
        (times, T::Utf8) if is_timestamp(times) && is_constant_text(b) => {
            call(&TIMESTAMP_MINUS, a, &cast(b.clone(), times.clone()))
        }
        (T::Utf8, times) if is_timestamp(times) && is_constant_text(a) => {
            call(&TIMESTAMP_MINUS, &cast(a.clone(), times.clone()), b)
        }
        _ => None,
    }
}

fn times(expr: &RawBinaryExpr, (left, right): &(DataType, DataType)) -> Option<Expr> {
    match (left, right) {
        (DataType::Interval(_), factor) if is_number(factor) => {
            call(&INTERVAL_TIMES, &expr.left, &expr.right)
        }
        (factor, DataType::Interval(_)) if is_number(factor) => {
            call(&INTERVAL_TIMES, &expr.right, &expr.left)
        }
        (DataType::Decimal128(..), DataType::Decimal128(..)) => {
            numeric::times((&expr.left, left), (&expr.right, right))
        }
        _ => None,
    }
}

fn divided(expr: &RawBinaryExpr, (left, right): &(DataType, DataType)) -> PlanResult<Option<Expr>> {
    if matches!(left, DataType::Interval(_)) && is_number(right) {
        return Ok(call(&INTERVAL_DIVIDED, &expr.left, &expr.right));
    }
    let is_decimal = |data_type: &DataType| matches!(data_type, DataType::Decimal128(..));
    let is_exact = |data_type: &DataType| is_decimal(data_type) || is_integer(data_type);
    let is_numeric = (is_decimal(left) && is_exact(right)) || (is_exact(left) && is_decimal(right));
    match is_numeric {
        true => numeric::divided(&expr.left, &expr.right).map(Some),
        false => Ok(None),
    }
}

/// A value joined to a text is a text.
fn concatenated(expr: &RawBinaryExpr, (left, right): &(DataType, DataType)) -> Option<Expr> {
    let is_text = |data_type: &DataType| *data_type == DataType::Utf8;
    let is_plain = |data_type: &DataType| {
        !is_text(data_type)
            && !matches!(
                data_type,
                DataType::List(_) | DataType::Struct(_) | DataType::Null
            )
    };
    let joined = |a: Expr, b: Expr| {
        Expr::BinaryExpr(BinaryExpr::new(Box::new(a), Operator::StringConcat, Box::new(b)))
    };
    let (a, b) = (&expr.left, &expr.right);
    match (left, right) {
        (DataType::Binary, DataType::Binary) => call(&BYTES_JOINED, a, b),
        (DataType::Binary, text) if is_text(text) && is_constant_text(b) => call(&BYTES_JOINED, a, b),
        (text, DataType::Binary) if is_text(text) && is_constant_text(a) => call(&BYTES_JOINED, a, b),
        (text, other) if is_text(text) && is_plain(other) => Some(joined(a.clone(), to_text(b.clone()))),
        (other, text) if is_text(text) && is_plain(other) => Some(joined(to_text(a.clone()), b.clone())),
        _ => None,
    }
}

fn moved_days(args: &Args, sign: i64) -> Computed {
    let (dates, days) = (args.numbers::<Date32Type>(0), args.numbers::<Int64Type>(1));
    args.strict::<Date32Type>(|row| {
        let moved = days
            .get(row)
            .checked_mul(sign)
            .and_then(|by| by.checked_add(i64::from(dates.get(row))));
        let moved = moved.filter(|day| DAYS.contains(day));
        let moved = moved.and_then(|day| i32::try_from(day).ok());
        moved.ok_or_else(|| SqlError::new(SqlState::DatetimeFieldOverflow, "date out of range"))
    })
}

fn days_between(args: &Args) -> Computed {
    let (to, from) = (args.numbers::<Date32Type>(0), args.numbers::<Date32Type>(1));
    args.strict::<arrow::datatypes::Int32Type>(|row| {
        let days = to.get(row).checked_sub(from.get(row));
        days.ok_or_else(|| SqlError::new(SqlState::NumericValueOutOfRange, "integer out of range"))
    })
}

fn date_and_time(args: &Args) -> Computed {
    let (dates, times) = (
        args.numbers::<Date32Type>(0),
        args.numbers::<Time64MicrosecondType>(1),
    );
    args.strict::<TimestampMicrosecondType>(|row| {
        let start = i64::from(dates.get(row)).checked_mul(MICROS_PER_DAY);
        let at = start.and_then(|start| start.checked_add(times.get(row)));
        at.ok_or_else(timestamp_out_of_range)
    })
}

fn between(args: &Args) -> Computed {
    let (to, from) = (
        args.numbers::<TimestampMicrosecondType>(0),
        args.numbers::<TimestampMicrosecondType>(1),
    );
    args.strict::<IntervalMonthDayNanoType>(|row| Span::between(from.get(row), to.get(row))?.arrow())
}

fn between_times(args: &Args) -> Computed {
    let (to, from) = (
        args.numbers::<Time64MicrosecondType>(0),
        args.numbers::<Time64MicrosecondType>(1),
    );
    args.strict::<IntervalMonthDayNanoType>(|row| {
        let micros = to.get(row) - from.get(row);
        Span {
            micros,
            ..Span::default()
        }
        .arrow()
    })
}

/// A time of day goes around the clock; whole days and months do not move it.
fn moved_time(args: &Args, sign: i64) -> Computed {
    let times = args.numbers::<Time64MicrosecondType>(0);
    let spans = args.numbers::<IntervalMonthDayNanoType>(1);
    args.strict::<Time64MicrosecondType>(|row| {
        let by = sign * (Span::of(spans.get(row)).micros % MICROS_PER_DAY);
        Ok((times.get(row) + by).rem_euclid(MICROS_PER_DAY))
    })
}

fn scaled(args: &Args, change: fn(Span, f64) -> Result<Span, SqlError>) -> Computed {
    let (spans, numbers) = (
        args.numbers::<IntervalMonthDayNanoType>(0),
        args.numbers::<Float64Type>(1),
    );
    args.strict::<IntervalMonthDayNanoType>(|row| change(Span::of(spans.get(row)), numbers.get(row))?.arrow())
}

fn joined(args: &Args) -> Computed {
    let (left, right) = (args.bytes(0), args.bytes(1));
    args.strict_bytes(|row, bytes| {
        bytes.extend_from_slice(left.get(row));
        bytes.extend_from_slice(right.get(row));
        Ok(())
    })
}
