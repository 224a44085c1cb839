//! One JSON value into one column: exactly, or refused with the reason.

use super::decode::{Shape, push_object};
use super::document;
use super::scan::{Cursor, unescape};
use crate::format::base64;
use crate::format::column::{Column, Values};
use crate::format::decimal::{DecimalFault, parse_decimal};
use crate::format::fault::{Fault, quote, unfit};
use crate::format::time::{TimestampFormat, parse_date, parse_time};

/// Takes the value at the cursor as the next row of `column`. On an error the column may hold half a row, which the
/// caller cuts off.
#[inline]
pub(super) fn push_value(
    column: &mut Column,
    nested: Option<&mut Shape>,
    cursor: &mut Cursor<'_>,
    scratch: &mut Vec<u8>,
) -> Result<(), Fault> {
    if cursor.peek() == b'n' {
        return push_null_literal(column, cursor);
    }
    match &mut column.values {
        Values::I64(values) => values.push(take_integer(cursor, "BIGINT")?),
        Values::Utf8(blobs) => {
            if cursor.peek() != b'"' {
                return Err(wrong_type("a string", cursor));
            }
            let text = cursor.string()?;
            if text.escaped {
                unescape(text, &mut blobs.data)?;
            } else {
                blobs.data.extend_from_slice(text.raw);
            }
            blobs.finish_value();
        }
        Values::Timestamp { values, zone, format } => {
            values.push(take_timestamp(format, zone.is_some(), cursor, scratch)?);
        }
        _ => return push_other(column, nested, cursor, scratch),
    }
    column.rows += 1;
    Ok(())
}

/// The types that are not worth a place in the hot function.
fn push_other(
    column: &mut Column,
    nested: Option<&mut Shape>,
    cursor: &mut Cursor<'_>,
    scratch: &mut Vec<u8>,
) -> Result<(), Fault> {
    match &mut column.values {
        Values::Bool(values) => values.push(take_bool(cursor)?),
        Values::I16(values) => {
            let value = take_integer(cursor, "SMALLINT")?;
            values.push(i16::try_from(value).map_err(|_| out_of_range(&value.to_string(), "SMALLINT"))?);
        }
        Values::I32(values) => {
            let value = take_integer(cursor, "INTEGER")?;
            values.push(i32::try_from(value).map_err(|_| out_of_range(&value.to_string(), "INTEGER"))?);
        }
        Values::F32(values) => values.push(take_float(cursor, scratch, "REAL", f32::INFINITY)?),
        Values::F64(values) => values.push(take_float(cursor, scratch, "DOUBLE PRECISION", f64::INFINITY)?),
        Values::Decimal {
            values,
            precision,
            scale,
        } => {
            values.push(take_decimal(cursor, scratch, *precision, *scale)?);
        }
        Values::Json(blobs, _) => {
            let start = cursor.pos();
            cursor.skip_value()?;
            document::check(cursor.since(start))?;
            blobs.data.extend_from_slice(cursor.since(start));
            blobs.finish_value();
        }
        Values::Binary(blobs) => {
            let text = take_text(cursor, scratch, "a string in base64 or \\x hexadecimal")?;
            base64::decode_bytea(text, &mut blobs.data).map_err(unfit)?;
            blobs.finish_value();
        }
        Values::Date(values) => {
            let text = take_text(cursor, scratch, "a date as YYYY-MM-DD")?;
            values.push(parse_date(text).ok_or_else(|| not_a("a date as YYYY-MM-DD", text))?);
        }
        Values::Time(values) => {
            let text = take_text(cursor, scratch, "a time as HH:MM:SS")?;
            values.push(parse_time(text).ok_or_else(|| not_a("a time as HH:MM:SS", text))?);
        }
        Values::List { offsets, items } => {
            push_items(items, nested, cursor, scratch)?;
            offsets.push(items.rows as i32);
        }
        Values::Struct { columns, .. } => {
            if cursor.peek() != b'{' {
                return Err(wrong_type("an object", cursor));
            }
            let shape = nested.expect("a struct column has a shape: both are made from its type");
            push_object(columns, shape, cursor, column.rows)?;
        }
        Values::I64(_) | Values::Utf8(_) | Values::Timestamp { .. } => {
            unreachable!("these are taken by the caller")
        }
    }
    column.rows += 1;
    Ok(())
}

fn push_null_literal(column: &mut Column, cursor: &mut Cursor<'_>) -> Result<(), Fault> {
    cursor.literal("null")?;
    if !column.field.is_nullable() {
        return Err(unfit("is null, but declared NOT NULL"));
    }
    column.push_null();
    Ok(())
}

/// Takes the array at the cursor.
fn push_items(
    items: &mut Column,
    mut nested: Option<&mut Shape>,
    cursor: &mut Cursor<'_>,
    scratch: &mut Vec<u8>,
) -> Result<(), Fault> {
    if cursor.peek() != b'[' {
        return Err(wrong_type("an array", cursor));
    }
    cursor.step();
    if cursor.skip_space() == b']' {
        cursor.step();
        return Ok(());
    }
    loop {
        push_value(items, nested.as_deref_mut(), cursor, scratch)?;
        match cursor.skip_space() {
            b',' => {
                cursor.step();
                cursor.skip_space();
            }
            b']' => {
                cursor.step();
                return Ok(());
            }
            _ => return Err(cursor.unexpected("',' or ']'")),
        }
    }
}

#[inline]
fn take_integer(cursor: &mut Cursor<'_>, sql_type: &'static str) -> Result<i64, Fault> {
    if !matches!(cursor.peek(), b'-' | b'0'..=b'9') {
        return Err(wrong_type(sql_type, cursor));
    }
    match cursor.integer()? {
        Some(value) => Ok(value),
        None => Err(not_an_integer(cursor, sql_type)),
    }
}

#[cold]
fn not_an_integer(cursor: &mut Cursor<'_>, sql_type: &'static str) -> Fault {
    match cursor.number() {
        Ok(text) if text.iter().all(|byte| matches!(byte, b'-' | b'0'..=b'9')) => {
            out_of_range(&quote(text), sql_type)
        }
        Ok(text) => unfit(format!(
            "expected {sql_type}, found {}, which is not written as an integer",
            quote(text)
        )),
        Err(fault) => fault,
    }
}

#[inline]
fn take_timestamp(
    format: &TimestampFormat,
    zoned: bool,
    cursor: &mut Cursor<'_>,
    scratch: &mut Vec<u8>,
) -> Result<i64, Fault> {
    match cursor.peek() {
        b'"' => format
            .parse_text(take_text(cursor, scratch, "a timestamp")?, zoned)
            .map_err(unfit),
        b'-' | b'0'..=b'9' => {
            let mut ahead = *cursor;
            if let TimestampFormat::Unix(unit) = format
                && let Some(micros) = ahead.integer()?.and_then(|value| unit.to_micros(value))
            {
                *cursor = ahead;
                return Ok(micros);
            }
            format.parse_number(cursor.number()?).map_err(unfit)
        }
        _ => Err(wrong_type("a timestamp", cursor)),
    }
}

/// Takes a string with its escapes resolved.
#[inline]
fn take_text<'s, 'a: 's>(
    cursor: &mut Cursor<'a>,
    scratch: &'s mut Vec<u8>,
    expected: &'static str,
) -> Result<&'s [u8], Fault> {
    if cursor.peek() != b'"' {
        return Err(wrong_type(expected, cursor));
    }
    let text = cursor.string()?;
    if !text.escaped {
        return Ok(text.raw);
    }
    scratch.clear();
    unescape(text, scratch)?;
    Ok(scratch)
}

fn take_bool(cursor: &mut Cursor<'_>) -> Result<bool, Fault> {
    match cursor.peek() {
        b't' => cursor.literal("true").map(|()| true),
        b'f' => cursor.literal("false").map(|()| false),
        _ => Err(wrong_type("BOOLEAN", cursor)),
    }
}

/// A float type that text can be read to.
trait Float: std::str::FromStr + PartialEq + std::ops::Neg<Output = Self> + Copy {
    /// Neither infinite nor NaN.
    fn finite(self) -> bool;
    /// NaN.
    fn nan() -> Self;
}

impl Float for f32 {
    fn finite(self) -> bool {
        self.is_finite()
    }

    fn nan() -> Self {
        Self::NAN
    }
}

impl Float for f64 {
    fn finite(self) -> bool {
        self.is_finite()
    }

    fn nan() -> Self {
        Self::NAN
    }
}

/// Takes a number, or one of the strings that PostgreSQL writes where JSON has no number.
fn take_float<F: Float>(
    cursor: &mut Cursor<'_>,
    scratch: &mut Vec<u8>,
    sql_type: &'static str,
    infinity: F,
) -> Result<F, Fault> {
    match cursor.peek() {
        b'-' | b'0'..=b'9' => {
            let text = cursor.number()?;
            let value = std::str::from_utf8(text)
                .ok()
                .and_then(|text| text.parse::<F>().ok());
            value
                .filter(|value| value.finite())
                .ok_or_else(|| out_of_range(&quote(text), sql_type))
        }
        b'"' => match take_text(cursor, scratch, sql_type)? {
            b"NaN" => Ok(F::nan()),
            b"Infinity" => Ok(infinity),
            b"-Infinity" => Ok(-infinity),
            other => Err(not_a(sql_type, other)),
        },
        _ => Err(wrong_type(sql_type, cursor)),
    }
}

/// Takes a number, or a string that holds one, as the unscaled value of a DECIMAL.
fn take_decimal(
    cursor: &mut Cursor<'_>,
    scratch: &mut Vec<u8>,
    precision: u8,
    scale: i8,
) -> Result<i128, Fault> {
    let text = match cursor.peek() {
        b'-' | b'0'..=b'9' => cursor.number()?,
        b'"' => take_text(cursor, scratch, "a number")?,
        _ => return Err(wrong_type(&format!("NUMERIC({precision},{scale})"), cursor)),
    };
    parse_decimal(text, precision, scale).map_err(|fault| {
        let text = quote(text);
        unfit(match fault {
            DecimalFault::NotANumber => format!("expected NUMERIC({precision},{scale}), found \"{text}\""),
            DecimalFault::Inexact => format!("{text} has more than {scale} digits after the point"),
            DecimalFault::TooLarge => format!("{text} is out of range for NUMERIC({precision},{scale})"),
        })
    })
}

#[cold]
fn not_a(expected: &str, text: &[u8]) -> Fault {
    unfit(format!("expected {expected}, found \"{}\"", quote(text)))
}

#[cold]
fn out_of_range(text: &str, sql_type: &str) -> Fault {
    unfit(format!("{text} is out of range for {sql_type}"))
}

/// The value at the cursor has another type than its column; if it is not even well formed, that is the fault.
#[cold]
fn wrong_type(expected: &str, cursor: &Cursor<'_>) -> Fault {
    let mut rest = *cursor;
    match rest.skip_value() {
        Ok(()) => unfit(format!(
            "expected {expected}, found {}",
            quote(rest.since(cursor.pos()))
        )),
        Err(fault) => fault,
    }
}
