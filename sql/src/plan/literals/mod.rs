//! Texts that stand for values of other types: read as PostgreSQL reads them, and refused with their place.
//!
//! ```text
//! ast::Query ──[typed]──▶ intervals in DataFusion's spelling, constants checked   the text is there, so places are known
//!      │ SqlToRel, Analyzer
//!      ▼
//! LogicalPlan ─[casts]──▶ casts from text to BYTEA and INTERVAL are functions     constants and columns alike
//! ```

mod bytea;
mod casts;
mod datetime;
mod interval;
mod nested;
mod nested_text;
mod numeric;
mod zone;

use std::ops::ControlFlow;

use arrow::datatypes::DataType;
use datafusion::common::ScalarValue;
use datafusion::sql::sqlparser::ast::{
    self, BinaryOperator, CastKind, DateTimeField, Expr, LimitClause, SetExpr, UnaryOperator, Value,
    ValueWithSpan, VisitMut,
};
use datafusion::sql::sqlparser::tokenizer::Span;

pub(crate) use self::casts::{text_casts, to_text};
pub(crate) use self::datetime::offset_micros;
use self::interval::{Interval, Unit};
pub(crate) use self::nested::{constant as nested_constant, nested_cast};
pub(crate) use self::numeric::exact_constant;
pub(crate) use self::zone::{all_in_zone, in_zone, shown_in_zone};
use crate::calls;
use crate::plan::arrays;
use crate::plan::functions::arrays::own;
use crate::plan::json;
use crate::plan::numbers;
use crate::plan::place::position_of;
use crate::plan::row_values;
use crate::plan::types::arrow_type;
use crate::plan::values;
use crate::plan::walk::{PartMut, walk_mut};
use crate::{SqlError, SqlState, jsonb};

/// Reads the constants of a query or an expression. Intervals are written as DataFusion reads them.
///
/// # Errors
/// The first text that is no value of its type, with its place.
pub(crate) fn typed(ast: &mut impl VisitMut) -> Result<(), SqlError> {
    walk_mut(ast, &mut |part| {
        match part {
            PartMut::Query(query) => {
                fetch_as_limit(query);
                if let Err(error) = limit_in_quotes(query) {
                    return ControlFlow::Break(Box::new(error));
                }
                alike_in_values(query);
                if let Err(error) = json::spread_from(query) {
                    return ControlFlow::Break(Box::new(error));
                }
            }
            PartMut::Expr(expr) => {
                bind_tightly(expr);
                arrays::untyped_distinct(expr);
                json::spread(expr);
                let replaced = match row_values::by_column(expr) {
                    Ok(None) => literal(expr),
                    other => other,
                };
                match replaced {
                    Ok(Some(replaced)) => *expr = replaced,
                    Ok(None) => {}
                    Err(error) => return ControlFlow::Break(Box::new(error)),
                }
            }
            PartMut::QueryEnd(_) | PartMut::Select(_) | PartMut::TableFactor(_) => {}
        }
        ControlFlow::Continue(())
    })
}

/// Gives `IS [NOT] DISTINCT FROM` its precedence: what the parser takes for its right side may be a chain of AND and OR, of
/// which only the first operand is meant. Parentheses stand in the tree, so they are left alone.
fn bind_tightly(expr: &mut Expr) {
    let is_chain = |expr: &Expr| {
        matches!(
            expr,
            Expr::BinaryOp {
                op: BinaryOperator::And | BinaryOperator::Or,
                ..
            }
        )
    };
    let (left, right) = match expr {
        Expr::IsDistinctFrom(left, right) | Expr::IsNotDistinctFrom(left, right) if is_chain(right) => {
            (left, right)
        }
        _ => return,
    };
    let nothing = || Box::new(Expr::Value(Value::Null.with_empty_span()));
    let left = std::mem::replace(left, nothing());
    let mut chain = std::mem::replace(right, nothing());
    let mut first = chain.as_mut();
    while is_chain(first) {
        match first {
            Expr::BinaryOp { left, .. } => first = left.as_mut(),
            _ => return,
        }
    }
    let operand = Box::new(std::mem::replace(
        first,
        Expr::Value(Value::Null.with_empty_span()),
    ));
    *first = match expr {
        Expr::IsDistinctFrom(..) => Expr::IsDistinctFrom(left, operand),
        _ => Expr::IsNotDistinctFrom(left, operand),
    };
    *expr = *chain;
}

/// Gives constants in quotes in a column of VALUES the type that another row casts its constant to.
fn alike_in_values(query: &mut ast::Query) {
    let SetExpr::Values(values) = query.body.as_mut() else {
        return;
    };
    let width = values.rows.first().map_or(0, |row| row.content.len());
    for column in 0..width {
        let written = values.rows.iter().find_map(|row| match row.content.get(column) {
            Some(Expr::Cast { data_type, .. }) => Some(data_type.clone()),
            Some(Expr::TypedString(typed)) => Some(typed.data_type.clone()),
            _ => None,
        });
        let Some(data_type) = written else {
            alike_arrays(values, column);
            continue;
        };
        for row in &mut values.rows {
            let Some(cell) = row.content.get_mut(column) else {
                continue;
            };
            if matches!(cell, Expr::Value(value) if text_of(&value.value).is_some()) {
                let text = std::mem::replace(cell, Expr::Value(Value::Null.with_empty_span()));
                *cell = Expr::Cast {
                    kind: CastKind::DoubleColon,
                    expr: Box::new(text),
                    data_type: data_type.clone(),
                    array: false,
                    format: None,
                };
            }
        }
    }
}

/// Gives constants in quotes in a column of VALUES the type of an array that another row makes: what COALESCE makes of them.
fn alike_arrays(values: &mut ast::Values, column: usize) {
    let is_array = |cell: &&Expr| matches!(cell, Expr::Function(call) if call.name.to_string() == own::ARRAY);
    let mut cells = values.rows.iter().filter_map(|row| row.content.get(column));
    let Some(sample) = cells.find(is_array).cloned() else {
        return;
    };
    for row in &mut values.rows {
        if let Some(cell) = row.content.get_mut(column)
            && matches!(cell, Expr::Value(value) if text_of(&value.value).is_some())
        {
            *cell = calls::call("coalesce", vec![cell.clone(), sample.clone()]);
        }
    }
}

/// Writes `FETCH FIRST n ROWS ONLY` as `LIMIT n`, which it means; without a number it means one row.
fn fetch_as_limit(query: &mut ast::Query) {
    let is_plain = |fetch: &ast::Fetch| !fetch.with_ties && !fetch.percent;
    let (offset, limit_by) = match &query.limit_clause {
        None => (None, Vec::new()),
        Some(LimitClause::LimitOffset {
            limit: None,
            offset,
            limit_by,
        }) => (offset.clone(), limit_by.clone()),
        Some(_) => return,
    };
    if let Some(fetch) = query.fetch.take_if(|fetch| is_plain(fetch)) {
        let one = || Expr::Value(Value::Number("1".to_owned(), false).with_empty_span());
        query.limit_clause = Some(LimitClause::LimitOffset {
            limit: Some(fetch.quantity.unwrap_or_else(one)),
            offset,
            limit_by,
        });
    }
}

/// Reads the numbers of LIMIT and OFFSET that stand in quotes.
///
/// # Errors
/// A text that is no BIGINT, with its place.
fn limit_in_quotes(query: &mut ast::Query) -> Result<(), SqlError> {
    let Some(LimitClause::LimitOffset { limit, offset, .. }) = &mut query.limit_clause else {
        return Ok(());
    };
    let offset = offset.as_mut().map(|offset| &mut offset.value);
    for number in limit.iter_mut().chain(offset) {
        let Expr::Value(value) = &*number else {
            continue;
        };
        let Some(text) = text_of(&value.value) else {
            continue;
        };
        check(value, &ast::DataType::BigInt(None))?;
        let Ok(given) = text.trim().parse::<i64>() else {
            continue;
        };
        // What is below nothing is refused, however far.
        let digits = given.checked_abs().unwrap_or(i64::MAX).to_string();
        let positive = Expr::Value(ValueWithSpan {
            value: Value::Number(digits, false),
            span: value.span,
        });
        *number = match given < 0 {
            true => Expr::UnaryOp {
                op: UnaryOperator::Minus,
                expr: Box::new(positive),
            },
            false => positive,
        };
    }
    Ok(())
}

/// Checks one expression that may be a constant; gives what is to stand in its place.
fn literal(expr: &Expr) -> Result<Option<Expr>, SqlError> {
    match expr {
        Expr::Interval(interval) => interval_literal(interval, false),
        // DataFusion would negate the first amount of the text only.
        Expr::UnaryOp {
            op: UnaryOperator::Minus,
            expr,
        } => match expr.as_ref() {
            Expr::Interval(interval) => interval_literal(interval, true),
            _ => Ok(None),
        },
        Expr::TypedString(typed) => check(&typed.value, &typed.data_type).map(|()| None),
        Expr::Cast {
            kind: CastKind::Cast | CastKind::DoubleColon,
            expr,
            data_type,
            ..
        } => match expr.as_ref() {
            Expr::Value(value) => match (&value.value, arrow_type(data_type)) {
                (Value::Number(digits, _), Ok(DataType::Float32 | DataType::Float64)) => {
                    Ok(Some(float(digits, value.span, data_type.clone())))
                }
                _ => check(value, data_type).map(|()| None),
            },
            _ => Ok(None),
        },
        Expr::Value(ValueWithSpan {
            value: Value::Number(digits, _),
            span,
        }) if !numbers::is_exact(digits) => Ok(Some(float(digits, *span, ast::DataType::DoublePrecision))),
        _ => Ok(None),
    }
}

/// A number as a float: its text is read, so that all of its digits count.
fn float(digits: &str, span: Span, data_type: ast::DataType) -> Expr {
    let text = Value::SingleQuotedString(digits.replace('_', ""));
    Expr::Cast {
        kind: CastKind::DoubleColon,
        expr: Box::new(Expr::Value(ValueWithSpan { value: text, span })),
        data_type,
        array: false,
        format: None,
    }
}

fn interval_literal(interval: &ast::Interval, negative: bool) -> Result<Option<Expr>, SqlError> {
    let Expr::Value(value) = interval.value.as_ref() else {
        return Ok(None);
    };
    let text = match &value.value {
        Value::Number(digits, _) => digits.clone(),
        other => match text_of(other) {
            Some(text) => text.to_owned(),
            None => return Ok(None),
        },
    };
    let read = read_interval(&text, interval).and_then(|read| match negative {
        true => read.negated().ok_or_else(|| {
            SqlError::new(
                SqlState::DatetimeFieldOverflow,
                format!("interval out of range: \"{text}\""),
            )
        }),
        false => Ok(read),
    });
    let read = read.map_err(|error| at(error, value))?;
    let text = ValueWithSpan {
        value: Value::SingleQuotedString(read.plain_text()),
        span: value.span,
    };
    Ok(Some(Expr::Interval(ast::Interval {
        value: Box::new(Expr::Value(text)),
        leading_field: None,
        leading_precision: None,
        last_field: None,
        fractional_seconds_precision: None,
    })))
}

fn read_interval(text: &str, interval: &ast::Interval) -> Result<Interval, SqlError> {
    if interval.leading_precision.is_some() || interval.fractional_seconds_precision.is_some() {
        return Err(SqlError::unsupported("a precision of an interval")
            .with_hint("Intervals count microseconds: leave the precision out."));
    }
    let last = match interval.last_field.as_ref().or(interval.leading_field.as_ref()) {
        Some(field) => Some(unit(field)?),
        None => None,
    };
    interval::read(text, last)
}

fn unit(field: &DateTimeField) -> Result<Unit, SqlError> {
    let word = field.to_string();
    Unit::named(&word).ok_or_else(|| {
        SqlError::new(
            SqlState::SyntaxError,
            format!("{word} is not the field of an interval"),
        )
        .with_hint("Fields are YEAR, MONTH, WEEK, DAY, HOUR, MINUTE and SECOND.")
    })
}

/// Checks that a constant in quotes is a value of the type that is written with it.
fn check(value: &ValueWithSpan, data_type: &ast::DataType) -> Result<(), SqlError> {
    let (Some(text), Ok(wanted)) = (text_of(&value.value), arrow_type(data_type)) else {
        // A type that is not there is refused when it is planned.
        return Ok(());
    };
    if let Some(checked) = casts::check(text, &wanted).or_else(|| nested::check(text, &wanted)) {
        return checked.map_err(|error| at(error, value));
    }
    let checked = match &wanted {
        wanted if jsonb::is_jsonb(wanted) => jsonb::normalized(text).map(drop),
        DataType::Utf8 => Ok(()),
        _ => ScalarValue::from(text)
            .cast_to(&wanted)
            .map(drop)
            .map_err(|_| values::invalid_text(text, &wanted)),
    };
    checked.map_err(|error| at(error, value))
}

fn text_of(value: &Value) -> Option<&str> {
    match value {
        Value::SingleQuotedString(text) | Value::EscapedStringLiteral(text) => Some(text),
        Value::DollarQuotedString(text) => Some(&text.value),
        _ => None,
    }
}

fn at(error: SqlError, value: &ValueWithSpan) -> SqlError {
    match position_of(value.span) {
        Some(position) => error.at(position),
        None => error,
    }
}
