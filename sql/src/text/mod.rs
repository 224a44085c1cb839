//! Values as PostgreSQL writes them: for the shell, and for the text format of the wire protocol.
//!
//! ```
//! use std::sync::Arc;
//! use arrow::array::{ArrayRef, BooleanArray};
//! use highwater_sql::text::ColumnText;
//!
//! let column: ArrayRef = Arc::new(BooleanArray::from(vec![Some(true), None]));
//! let text = ColumnText::new(&column);
//! let mut out = String::new();
//! assert!(text.write(0, &mut out));
//! assert_eq!(out, "t");
//! assert!(!text.write(1, &mut out));
//! ```

mod nested;
mod number;
mod time;

#[cfg(test)]
mod tests;

use std::fmt::Write;

use crate::jsonb;

pub(crate) use self::time::civil;
use arrow::array::{Array, ArrayRef, AsArray, BinaryArray, BooleanArray, PrimitiveArray, StringArray};
use arrow::compute::cast;
use arrow::datatypes::{
    ArrowPrimitiveType, DataType, Date32Type, Decimal128Type, Float32Type, Float64Type, Int64Type,
    IntervalMonthDayNanoType, IntervalUnit, TimeUnit, UInt64Type,
};
use arrow::util::display::array_value_to_string;

use self::nested::{ListText, StructText};

/// Writes the values of one column. It looks at the type once, not for each value, and shares the column's memory.
#[derive(Debug)]
pub struct ColumnText {
    array: ArrayRef,
    values: Values,
}

/// A column by the way in which it is written.
#[derive(Debug)]
enum Values {
    Null,
    Boolean(BooleanArray),
    /// All integers but UInt64.
    Integer(PrimitiveArray<Int64Type>),
    Unsigned(PrimitiveArray<UInt64Type>),
    Float4(PrimitiveArray<Float32Type>),
    Float8(PrimitiveArray<Float64Type>),
    Numeric(PrimitiveArray<Decimal128Type>, i8),
    Text(StringArray),
    Document(StringArray),
    Bytes(BinaryArray),
    Date(PrimitiveArray<Date32Type>),
    /// Times of day, counted in parts of a second.
    Time(PrimitiveArray<Int64Type>, i64),
    /// Counted in parts of a second since 1970.
    Timestamp(PrimitiveArray<Int64Type>, i64),
    /// The same, as an instant.
    TimestampTz(PrimitiveArray<Int64Type>, i64),
    Interval(PrimitiveArray<IntervalMonthDayNanoType>),
    /// Lengths of time, counted in parts of a second.
    Duration(PrimitiveArray<Int64Type>, i64),
    List(Box<ListText>),
    Struct(StructText),
    /// Types that PostgreSQL does not have, as Arrow writes them.
    Other,
}

impl ColumnText {
    /// For the values of `column`.
    #[must_use]
    pub fn new(column: &ArrayRef) -> Self {
        let array = ArrayRef::clone(column);
        let values = Values::new(&array).unwrap_or(Values::Other);
        Self { array, values }
    }

    /// Whether the texts are JSON, as those of JSONB are.
    #[must_use]
    pub fn is_json(&self) -> bool {
        matches!(self.values, Values::Document(_))
    }

    /// Appends the value of `row`; `false`, and nothing appended, for NULL.
    ///
    /// # Panics
    /// If the column has no such row.
    pub fn write(&self, row: usize, out: &mut String) -> bool {
        if self.array.is_null(row) {
            return false;
        }
        match &self.values {
            Values::Null => return false,
            Values::Boolean(values) => out.push(if values.value(row) { 't' } else { 'f' }),
            Values::Integer(values) => put(out, values.value(row)),
            Values::Unsigned(values) => put(out, values.value(row)),
            Values::Float4(values) => number::write_float4(values.value(row), out),
            Values::Float8(values) => number::write_float8(values.value(row), out),
            Values::Numeric(values, scale) => number::write_numeric(values.value(row), *scale, out),
            Values::Text(values) => out.push_str(values.value(row)),
            Values::Document(values) if values.is_null(row) => return false,
            Values::Document(values) => out.push_str(values.value(row)),
            Values::Bytes(values) => write_bytes(values.value(row), out),
            Values::Date(values) => time::write_date(values.value(row), out),
            Values::Time(values, per_second) => time::write_time(values.value(row), *per_second, out),
            Values::Timestamp(values, per_second) => {
                time::write_timestamp(values.value(row), *per_second, "", out);
            }
            Values::TimestampTz(values, per_second) => {
                time::write_timestamp(values.value(row), *per_second, "+00", out);
            }
            Values::Interval(values) => time::write_interval(values.value(row), out),
            Values::Duration(values, per_second) => time::write_duration(values.value(row), *per_second, out),
            Values::List(values) => values.write(row, out),
            Values::Struct(values) => values.write(row, out),
            Values::Other => match array_value_to_string(&self.array, row) {
                Ok(text) => out.push_str(&text),
                Err(_) => put(out, format_args!("<{}>", self.array.data_type())),
            },
        }
        true
    }
}

impl Values {
    /// `None` for a type that PostgreSQL does not have.
    fn new(array: &ArrayRef) -> Option<Self> {
        use DataType as T;
        let as_integers = || integers::<Int64Type>(array, &T::Int64);
        Some(match array.data_type() {
            T::Null => Self::Null,
            T::Boolean => Self::Boolean(array.as_boolean().clone()),
            T::Int8 | T::Int16 | T::Int32 | T::Int64 | T::UInt8 | T::UInt16 | T::UInt32 => {
                Self::Integer(as_integers()?)
            }
            T::UInt64 => Self::Unsigned(array.as_primitive().clone()),
            T::Float16 => Self::Float4(integers(array, &T::Float32)?),
            T::Float32 => Self::Float4(array.as_primitive().clone()),
            T::Float64 => Self::Float8(array.as_primitive().clone()),
            T::Decimal128(_, scale) => Self::Numeric(array.as_primitive().clone(), *scale),
            T::Utf8 => Self::Text(array.as_string().clone()),
            T::LargeUtf8 | T::Utf8View => Self::Text(cast(array, &T::Utf8).ok()?.as_string().clone()),
            T::Binary => Self::Bytes(array.as_binary().clone()),
            T::LargeBinary | T::BinaryView | T::FixedSizeBinary(_) => {
                Self::Bytes(cast(array, &T::Binary).ok()?.as_binary().clone())
            }
            T::Date32 => Self::Date(array.as_primitive().clone()),
            T::Date64 => Self::Timestamp(as_integers()?, per_second(TimeUnit::Millisecond)),
            T::Time32(unit) => {
                let narrow = cast(array, &T::Int32).ok()?;
                Self::Time(integers(&narrow, &T::Int64)?, per_second(*unit))
            }
            T::Time64(unit) => Self::Time(as_integers()?, per_second(*unit)),
            T::Timestamp(unit, None) => Self::Timestamp(as_integers()?, per_second(*unit)),
            T::Timestamp(unit, Some(_)) => Self::TimestampTz(as_integers()?, per_second(*unit)),
            T::Interval(IntervalUnit::MonthDayNano) => Self::Interval(array.as_primitive().clone()),
            T::Duration(unit) => Self::Duration(as_integers()?, per_second(*unit)),
            T::List(_) => Self::List(Box::new(ListText::new(array.as_list()))),
            T::LargeList(element) | T::FixedSizeList(element, _) => {
                let list = cast(array, &T::List(element.clone())).ok()?;
                Self::List(Box::new(ListText::new(list.as_list())))
            }
            T::Struct(_) if jsonb::is_jsonb(array.data_type()) => Self::Document(jsonb::texts(array)?),
            T::Struct(_) => Self::Struct(StructText::new(array.as_struct())),
            T::Dictionary(_, values) => Self::new(&cast(array, values).ok()?)?,
            _ => return None,
        })
    }
}

/// The values as numbers of another width, or as the numbers that times are.
fn integers<T: ArrowPrimitiveType>(array: &ArrayRef, data_type: &DataType) -> Option<PrimitiveArray<T>> {
    cast(array, data_type).ok()?.as_primitive_opt().cloned()
}

fn per_second(unit: TimeUnit) -> i64 {
    match unit {
        TimeUnit::Second => 1,
        TimeUnit::Millisecond => 1_000,
        TimeUnit::Microsecond => 1_000_000,
        TimeUnit::Nanosecond => 1_000_000_000,
    }
}

fn write_bytes(bytes: &[u8], out: &mut String) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    out.push_str("\\x");
    out.reserve(bytes.len() * 2);
    for byte in bytes {
        out.push(char::from(DIGITS[usize::from(byte >> 4)]));
        out.push(char::from(DIGITS[usize::from(byte & 15)]));
    }
}

fn put(out: &mut String, value: impl std::fmt::Display) {
    write!(out, "{value}").expect("a string takes what is written to it");
}
