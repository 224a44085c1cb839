//! Errors about values, in PostgreSQL's words: texts that are no values, results that do not fit their types.

use arrow::datatypes::DataType;
use arrow::error::ArrowError;

use crate::plan::functions::timestamp_out_of_range;
use crate::plan::types::sql_type_name;
use crate::plan::words::in_words;
use crate::{SqlError, SqlState};

/// The error for a text that cannot be read as a value of this type.
pub(crate) fn invalid_text(text: &str, wanted: &DataType) -> SqlError {
    let name = match wanted {
        DataType::Decimal128(..) => "numeric".to_owned(),
        other => sql_type_name(other),
    };
    let name = name.strip_suffix(" without time zone").unwrap_or(&name);
    let trimmed = text.trim();
    let is_time = matches!(
        wanted,
        DataType::Date32 | DataType::Time64(_) | DataType::Timestamp(..)
    );
    if is_time {
        let separated = trimmed.starts_with(|c: char| c.is_ascii_digit()) && trimmed.contains(['-', ':']);
        let digits = trimmed
            .chars()
            .all(|c| c.is_ascii_digit() || "-:. +TZ".contains(c));
        return if separated && digits {
            SqlError::new(
                SqlState::DatetimeFieldOverflow,
                format!("date/time field value out of range: \"{text}\""),
            )
        } else {
            SqlError::new(
                SqlState::InvalidDatetimeFormat,
                format!("invalid input syntax for type {name}: \"{text}\""),
            )
        };
    }
    let digits = trimmed.trim_start_matches(['-', '+']);
    let is_integer = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    if wanted.is_integer() && is_integer {
        return SqlError::new(
            SqlState::NumericValueOutOfRange,
            format!("value \"{text}\" is out of range for type {name}"),
        );
    }
    if matches!(wanted, DataType::Decimal128(..)) && trimmed.parse::<f64>().is_ok_and(f64::is_finite) {
        return numeric_overflow(wanted);
    }
    SqlError::new(
        SqlState::InvalidTextRepresentation,
        format!("invalid input syntax for type {name}: \"{text}\""),
    )
}

/// The error of one of Arrow's kernels.
pub(crate) fn arrow_error(error: &ArrowError) -> SqlError {
    match error {
        ArrowError::DivideByZero => SqlError::new(SqlState::DivisionByZero, "division by zero"),
        ArrowError::ArithmeticOverflow(text) => overflow(text),
        ArrowError::CastError(text) | ArrowError::ParseError(text) => {
            told(text, SqlState::InvalidTextRepresentation)
        }
        ArrowError::InvalidArgumentError(text) | ArrowError::ComputeError(text) => {
            told(text, SqlState::InvalidParameterValue)
        }
        ArrowError::OffsetOverflowError(_) => texts_too_large(),
        other => SqlError::new(SqlState::InternalError, in_words(&other.to_string())),
    }
}

/// The error for a column of texts, bytes or lists that is longer than its offsets reach.
pub fn texts_too_large() -> SqlError {
    SqlError::new(
        SqlState::ProgramLimitExceeded,
        "the texts of a column are too large",
    )
    .with_detail("Those of one batch have more than 2 GiB.")
    .with_hint("Read fewer rows at once, or shorter texts.")
}

fn told(text: &str, otherwise: SqlState) -> SqlError {
    kernel_error(text).unwrap_or_else(|| SqlError::new(otherwise, in_words(text)))
}

/// The error that this message of a kernel tells, where it is one about a value.
pub(crate) fn kernel_error(text: &str) -> Option<SqlError> {
    let parsed = |name: &str| name.parse::<DataType>().ok();
    if let Some((value, name)) = quoted_and_type(text) {
        return Some(invalid_text(value, &parsed(name)?));
    }
    if let Some((value, _)) = text
        .strip_prefix("Error parsing timestamp from '")
        .and_then(|rest| rest.rsplit_once("': "))
    {
        return Some(invalid_text(
            value,
            &DataType::Timestamp(arrow::datatypes::TimeUnit::Microsecond, None),
        ));
    }
    for between in [" to type ", " is out of range "] {
        if let Some((before, name)) = text.split_once(between)
            && (before.starts_with("Can't cast value ") || before.starts_with("value of "))
        {
            return Some(out_of_range(&parsed(name)?));
        }
    }
    if let Some((name, _)) = text
        .strip_prefix("Cannot cast to ")
        .and_then(|rest| rest.rsplit_once(". "))
    {
        return Some(out_of_range(&parsed(name)?));
    }
    if text.contains(" is too large to store in a Decimal")
        || text.contains(" is too small to store in a Decimal")
    {
        return Some(SqlError::new(
            SqlState::NumericValueOutOfRange,
            "numeric field overflow",
        ));
    }
    if text.contains("cannot take square root of a negative number") {
        return Some(SqlError::new(
            SqlState::InvalidArgumentForPowerFunction,
            "cannot take square root of a negative number",
        ));
    }
    if text.contains("converted value exceeds the representable i64 range") {
        let message = "date out of range for timestamp";
        return Some(SqlError::new(SqlState::DatetimeFieldOverflow, message));
    }
    let is_beyond_clocks = text.contains("Cannot cast timezone to different timezone")
        || (text.contains("Cannot convert arrow_array::types::Timestamp") && text.contains("to datetime"));
    if text.contains("Timestamp out of range") || is_beyond_clocks {
        return Some(timestamp_out_of_range());
    }
    if let Some((array, _)) = text.split_once(" overflow on abs(") {
        let name = array
            .rsplit(' ')
            .next()
            .and_then(|array| array.strip_suffix("Array"));
        return Some(out_of_range(&parsed(name?)?));
    }
    text.contains("Divide by zero")
        .then(|| SqlError::new(SqlState::DivisionByZero, "division by zero"))
}

/// The text and the name of the type in the message of a cast from text.
fn quoted_and_type(text: &str) -> Option<(&str, &str)> {
    let rest = text
        .strip_prefix("Cannot cast string '")
        .or_else(|| text.strip_prefix("Cannot cast value '"))?;
    let (value, rest) = rest.rsplit_once("' to value of ")?;
    Some((value, rest.strip_suffix(" type")?))
}

/// The error for a result that does not fit this type.
fn out_of_range(data_type: &DataType) -> SqlError {
    match data_type {
        DataType::Decimal128(..) | DataType::Decimal256(..) => numeric_overflow(data_type),
        other => SqlError::new(
            SqlState::NumericValueOutOfRange,
            format!("{} out of range", sql_type_name(other)),
        ),
    }
}

/// The error for a number that this type of decimals has no room for.
pub(crate) fn numeric_overflow(data_type: &DataType) -> SqlError {
    let error = SqlError::new(SqlState::NumericValueOutOfRange, "numeric field overflow");
    match data_type {
        DataType::Decimal128(precision, scale) => {
            let before = i16::from(*precision) - i16::from(*scale);
            error.with_detail(format!(
                "A field with precision {precision}, scale {scale} has at most {before} digits before the point."
            ))
        }
        _ => error,
    }
}

/// The error for arithmetic that overflowed: `Overflow happened on: 2147483647 + 1`. The type is the one that has both
/// numbers and not the result.
fn overflow(text: &str) -> SqlError {
    let state = SqlState::NumericValueOutOfRange;
    let Some((_, operation)) = text.split_once("Overflow happened on: ") else {
        return SqlError::new(state, "value out of range")
            .with_detail(format!("The operation was: {}.", in_words(text)));
    };
    let parts: Vec<&str> = operation.split(' ').collect();
    let name = match parts.as_slice() {
        [left, operator, right] => match (left.parse::<i128>(), right.parse::<i128>()) {
            (Ok(left), Ok(right)) => overflowing_type(left, operator, right),
            _ => "numeric",
        },
        ["-", number] => match number.parse::<i128>() {
            Ok(number) => overflowing_type(0, "-", number),
            Err(_) => "numeric",
        },
        _ => "value",
    };
    SqlError::new(state, format!("{name} out of range"))
        .with_detail(format!("The operation was {}.", operation.trim_end_matches('.')))
}

fn overflowing_type(left: i128, operator: &str, right: i128) -> &'static str {
    let result = match operator {
        "+" => left.checked_add(right),
        "-" => left.checked_sub(right),
        "*" => left.checked_mul(right),
        _ => left.checked_div(right),
    };
    let types = [
        ("smallint", i128::from(i16::MAX)),
        ("integer", i128::from(i32::MAX)),
        ("bigint", i128::from(i64::MAX)),
    ];
    let fits = |number: i128, max: i128| (-max - 1..=max).contains(&number);
    types
        .into_iter()
        .find(|(_, max)| {
            fits(left, *max) && fits(right, *max) && result.is_none_or(|result| !fits(result, *max))
        })
        .map_or("numeric", |(name, _)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_speak_postgresqls_words() {
        let told = |text: &str| {
            let error = arrow_error(&ArrowError::CastError(text.into()));
            (error.state.code(), error.message)
        };
        for (text, state, message) in [
            (
                "Cannot cast string 'a' b' to value of Int32 type",
                "22P02",
                "invalid input syntax for type integer: \"a' b\"",
            ),
            (
                "Cannot cast string '99999999999' to value of Int32 type",
                "22003",
                "value \"99999999999\" is out of range for type integer",
            ),
            (
                "Cannot cast value 'x' to value of Boolean type",
                "22P02",
                "invalid input syntax for type boolean: \"x\"",
            ),
            (
                "Can't cast value 70000 to type Int16",
                "22003",
                "smallint out of range",
            ),
            (
                "value of 1e30 is out of range Int64",
                "22003",
                "bigint out of range",
            ),
            (
                "Cannot cast to Decimal128(5, 2). Overflowing on 12345",
                "22003",
                "numeric field overflow",
            ),
            (
                "Int64Array overflow on abs(-9223372036854775808)",
                "22003",
                "bigint out of range",
            ),
            ("Timestamp out of range", "22008", "timestamp out of range"),
            (
                "Cannot convert arrow_array::types::TimestampMicrosecondType 9089348860800000000 to datetime",
                "22008",
                "timestamp out of range",
            ),
            (
                "Cannot cast string '2020-13-01' to value of Date32 type",
                "22008",
                "date/time field value out of range: \"2020-13-01\"",
            ),
            (
                "Error parsing timestamp from 'x': timestamp must contain at least 10 characters",
                "22007",
                "invalid input syntax for type timestamp: \"x\"",
            ),
        ] {
            assert_eq!(told(text), (state, message.to_owned()), "{text}");
        }
    }

    #[test]
    fn an_overflow_names_the_type_that_both_numbers_have() {
        let told = |text: &str| overflow(&format!("Overflow happened on: {text}")).message;
        assert_eq!(told("30000 + 30000"), "smallint out of range");
        assert_eq!(told("2147483647 + 1"), "integer out of range");
        assert_eq!(told("9223372036854775807 * 2"), "bigint out of range");
        assert_eq!(told("- -9223372036854775808"), "bigint out of range");
        assert_eq!(
            told("170141183460469231731687303715884105727 + 1"),
            "numeric out of range"
        );
    }
}
