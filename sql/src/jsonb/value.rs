//! SQL values as documents: `to_jsonb` and all that is built on it.

use std::fmt::Write;

use arrow::array::{
    Array, ArrayRef, AsArray, BinaryArray, BooleanArray, Float32Array, Float64Array, Int64Array, ListArray,
    PrimitiveArray, StringArray,
};
use arrow::compute::cast;
use arrow::datatypes::{
    DataType, Date32Type, Decimal128Type, Time64MicrosecondType, TimeUnit, TimestampMicrosecondType,
};
use arrow::temporal_conversions::{date32_to_datetime, time64us_to_time, timestamp_us_to_datetime};

use super::scan::push_escaped;
use super::write::{push_quoted, sorted_object};
use super::{DEPTH_MAX, texts, too_deep};
use crate::SqlError;

/// Writes the values of one column as documents. It looks at the type once, not for each value.
#[derive(Debug)]
pub struct Writer {
    nulls: Option<arrow::buffer::NullBuffer>,
    values: Values,
}

#[derive(Debug)]
enum Values {
    Null,
    Boolean(BooleanArray),
    Integer(Int64Array),
    Real(Float32Array),
    Double(Float64Array),
    Numeric(PrimitiveArray<Decimal128Type>, i8),
    Text(StringArray),
    Jsonb(StringArray),
    Bytes(BinaryArray),
    Date(PrimitiveArray<Date32Type>),
    Time(PrimitiveArray<Time64MicrosecondType>),
    /// And what stands behind it.
    Timestamp(PrimitiveArray<TimestampMicrosecondType>, &'static str),
    List(ListArray, Box<Writer>),
    /// Names, escaped, and values.
    Struct(Vec<(String, Writer)>),
}

impl Writer {
    /// For the values of `column`.
    ///
    /// # Errors
    /// 0A000 for a type that has no form in JSON here.
    pub fn new(column: &ArrayRef) -> Result<Self, SqlError> {
        Self::at_depth(column, 0)
    }

    fn at_depth(column: &ArrayRef, depth: usize) -> Result<Self, SqlError> {
        if depth > DEPTH_MAX {
            return Err(too_deep());
        }
        let converted =
            |data_type: &DataType| cast(column, data_type).map_err(|_| no_form(column.data_type()));
        let values = match column.data_type() {
            DataType::Null => Values::Null,
            DataType::Boolean => Values::Boolean(column.as_boolean().clone()),
            DataType::Int16 | DataType::Int32 | DataType::Int64 => {
                Values::Integer(converted(&DataType::Int64)?.as_primitive().clone())
            }
            DataType::Float32 => Values::Real(column.as_primitive().clone()),
            DataType::Float64 => Values::Double(column.as_primitive().clone()),
            DataType::Decimal128(_, scale) => Values::Numeric(column.as_primitive().clone(), *scale),
            DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => {
                Values::Text(converted(&DataType::Utf8)?.as_string().clone())
            }
            DataType::Binary => Values::Bytes(column.as_binary().clone()),
            DataType::Date32 => Values::Date(column.as_primitive().clone()),
            DataType::Time64(TimeUnit::Microsecond) => Values::Time(column.as_primitive().clone()),
            DataType::Timestamp(TimeUnit::Microsecond, zone) => {
                let zone = if zone.is_some() { "+00:00" } else { "" };
                Values::Timestamp(column.as_primitive().clone(), zone)
            }
            DataType::List(_) => {
                let list = column.as_list::<i32>().clone();
                let elements = Self::at_depth(list.values(), depth + 1)?;
                Values::List(list, Box::new(elements))
            }
            DataType::Struct(fields) => match texts(column) {
                Some(documents) => {
                    return Ok(Self {
                        nulls: documents.nulls().cloned(),
                        values: Values::Jsonb(documents),
                    });
                }
                None => {
                    let columns = fields.iter().zip(column.as_struct().columns());
                    let writers = columns.map(|(field, column)| {
                        let mut name = String::new();
                        push_escaped(field.name(), &mut name);
                        Ok((name, Self::at_depth(column, depth + 1)?))
                    });
                    Values::Struct(writers.collect::<Result<_, SqlError>>()?)
                }
            },
            other => return Err(no_form(other)),
        };
        Ok(Self {
            nulls: column.nulls().cloned(),
            values,
        })
    }

    /// Whether the value of `row` is NULL.
    #[must_use]
    pub fn is_null(&self, row: usize) -> bool {
        match &self.values {
            Values::Null => true,
            _ => self.nulls.as_ref().is_some_and(|nulls| nulls.is_null(row)),
        }
    }

    /// Whether its values are arrays, rows or documents.
    #[must_use]
    pub fn is_composite(&self) -> bool {
        matches!(
            self.values,
            Values::List(..) | Values::Struct(_) | Values::Jsonb(_)
        )
    }

    /// Appends the value of `row` in normal form; NULL is `null`.
    pub fn write(&self, row: usize, out: &mut String) {
        if self.is_null(row) {
            return out.push_str("null");
        }
        match &self.values {
            Values::Null => out.push_str("null"),
            Values::Boolean(values) => out.push_str(if values.value(row) { "true" } else { "false" }),
            Values::Integer(values) => put(out, format_args!("{}", values.value(row))),
            Values::Real(values) => match values.value(row) {
                value if value.is_finite() => put(out, format_args!("{}", value + 0.0)),
                value => push_special(f64::from(value), out),
            },
            Values::Double(values) => match values.value(row) {
                value if value.is_finite() => put(out, format_args!("{}", value + 0.0)),
                value => push_special(value, out),
            },
            Values::Numeric(values, scale) => push_decimal(values.value(row), *scale, out),
            Values::Text(values) => push_quoted(values.value(row), out),
            Values::Jsonb(values) => out.push_str(values.value(row)),
            Values::Bytes(values) => {
                out.push_str("\"\\\\x");
                values
                    .value(row)
                    .iter()
                    .for_each(|byte| put(out, format_args!("{byte:02x}")));
                out.push('"');
            }
            Values::Date(_) | Values::Time(_) | Values::Timestamp(..) => self.write_time(row, out),
            Values::List(list, elements) => {
                let (from, to) = (list.value_offsets()[row], list.value_offsets()[row + 1]);
                out.push('[');
                for element in from..to {
                    if element > from {
                        out.push_str(", ");
                    }
                    elements.write(usize::try_from(element).unwrap_or(0), out);
                }
                out.push(']');
            }
            Values::Struct(fields) => {
                let values: Vec<String> = fields
                    .iter()
                    .map(|(_, writer)| {
                        let mut value = String::new();
                        writer.write(row, &mut value);
                        value
                    })
                    .collect();
                let pairs = fields.iter().zip(&values);
                sorted_object(
                    pairs.map(|((name, _), value)| (name.as_str(), value.as_str())),
                    out,
                );
            }
        }
    }

    fn write_time(&self, row: usize, out: &mut String) {
        match &self.values {
            Values::Date(values) => match date32_to_datetime(values.value(row)) {
                Some(at) => put(out, format_args!("\"{}\"", at.format("%Y-%m-%d"))),
                None => out.push_str("null"),
            },
            Values::Time(values) => match time64us_to_time(values.value(row)) {
                Some(at) => put(
                    out,
                    format_args!("\"{}\"", trimmed(&at.format("%H:%M:%S%.6f").to_string())),
                ),
                None => out.push_str("null"),
            },
            Values::Timestamp(values, zone) => match timestamp_us_to_datetime(values.value(row)) {
                Some(at) => {
                    let text = at.format("%Y-%m-%dT%H:%M:%S%.6f").to_string();
                    put(out, format_args!("\"{}{zone}\"", trimmed(&text)));
                }
                None => out.push_str("null"),
            },
            _ => {}
        }
    }
}

/// A time without zeros at the end of its fraction.
fn trimmed(text: &str) -> &str {
    text.trim_end_matches('0')
        .strip_suffix('.')
        .unwrap_or_else(|| text.trim_end_matches('0'))
}

fn push_special(value: f64, out: &mut String) {
    out.push_str(match value {
        value if value.is_nan() => "\"NaN\"",
        value if value > 0.0 => "\"Infinity\"",
        _ => "\"-Infinity\"",
    });
}

fn push_decimal(value: i128, scale: i8, out: &mut String) {
    if value < 0 {
        out.push('-');
    }
    let scale = usize::from(scale.max(0).unsigned_abs());
    let digits = format!("{:0>width$}", value.unsigned_abs(), width = scale + 1);
    let (whole, fraction) = digits.split_at(digits.len() - scale);
    out.push_str(whole);
    if !fraction.is_empty() {
        out.push('.');
        out.push_str(fraction);
    }
}

fn put(out: &mut String, text: std::fmt::Arguments<'_>) {
    out.write_fmt(text).expect("a string takes what is written to it");
}

fn no_form(data_type: &DataType) -> SqlError {
    let name = match data_type {
        DataType::Interval(_) => "interval".to_owned(),
        other => other.to_string().to_lowercase(),
    };
    SqlError::unsupported(format!("JSON of a value of type {name}")).with_hint("Cast it to VARCHAR.")
}
