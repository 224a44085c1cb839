//! Arrow values to PostgreSQL's binary format.

use arrow::array::{
    Array, ArrayRef, AsArray, BinaryArray, BooleanArray, ListArray, PrimitiveArray, StringArray, StructArray,
};
use arrow::compute::cast;
use arrow::datatypes::{
    DataType, Date32Type, Decimal128Type, Float32Type, Float64Type, Int16Type, Int32Type, Int64Type,
    IntervalMonthDayNanoType, Time64MicrosecondType, TimestampMicrosecondType,
};
use bytes::{BufMut, BytesMut};

use super::{DAYS_TO_2000, MICROS_TO_2000};
use crate::sql::jsonb;
use crate::sql::oids::{element, element_of, oid, wire_type};
use crate::sql::plan::types::column_type;
use crate::{Error, Result};

/// Whether values of a type have a binary format.
pub fn is_there(data_type: &DataType) -> bool {
    let data_type = column_type(data_type);
    match &data_type {
        document if jsonb::is_jsonb(document) => true,
        DataType::Struct(fields) => fields.iter().all(|field| is_there(field.data_type())),
        DataType::List(item) => is_there(item.data_type()),
        DataType::Boolean
        | DataType::Int16
        | DataType::Int32
        | DataType::Int64
        | DataType::Float32
        | DataType::Float64
        | DataType::Decimal128(..)
        | DataType::Utf8
        | DataType::Binary
        | DataType::Date32
        | DataType::Time64(_)
        | DataType::Timestamp(..)
        | DataType::Interval(_) => true,
        _ => false,
    }
}

/// Writes the values of one column.
pub struct ColumnBinary(Values);

enum Values {
    Boolean(BooleanArray),
    Int2(PrimitiveArray<Int16Type>),
    Int4(PrimitiveArray<Int32Type>),
    Int8(PrimitiveArray<Int64Type>),
    Oid(PrimitiveArray<Int64Type>),
    Float4(PrimitiveArray<Float32Type>),
    Float8(PrimitiveArray<Float64Type>),
    Numeric(PrimitiveArray<Decimal128Type>, i8),
    Text(StringArray),
    Document(StringArray),
    Bytes(BinaryArray),
    Date(PrimitiveArray<Date32Type>),
    Time(PrimitiveArray<Time64MicrosecondType>),
    Timestamp(PrimitiveArray<TimestampMicrosecondType>),
    Interval(PrimitiveArray<IntervalMonthDayNanoType>),
    List(Box<ListBinary>),
    Record(Vec<(u32, ArrayRef, ColumnBinary)>),
}

impl ColumnBinary {
    /// For the values of `column`.
    ///
    /// # Errors
    /// A type that has no binary format.
    pub fn new(column: &ArrayRef) -> Result<Self> {
        let wanted = column_type(column.data_type());
        let array = match wanted == *column.data_type() {
            true => ArrayRef::clone(column),
            false => cast(column, &wanted).map_err(|error| Error::new("XX000", error.to_string()))?,
        };
        Ok(Self(match &wanted {
            document if jsonb::is_jsonb(document) => {
                let texts = jsonb::texts(&array).ok_or_else(|| no_format(&wanted))?;
                Values::Document(texts)
            }
            DataType::Boolean => Values::Boolean(array.as_boolean().clone()),
            DataType::Int16 => Values::Int2(array.as_primitive().clone()),
            DataType::Int32 => Values::Int4(array.as_primitive().clone()),
            DataType::Int64 => Values::Int8(array.as_primitive().clone()),
            DataType::Float32 => Values::Float4(array.as_primitive().clone()),
            DataType::Float64 => Values::Float8(array.as_primitive().clone()),
            DataType::Decimal128(_, scale) => Values::Numeric(array.as_primitive().clone(), *scale),
            DataType::Utf8 => Values::Text(array.as_string().clone()),
            DataType::Binary => Values::Bytes(array.as_binary().clone()),
            DataType::Date32 => Values::Date(array.as_primitive().clone()),
            DataType::Time64(_) => Values::Time(array.as_primitive().clone()),
            DataType::Timestamp(..) => Values::Timestamp(array.as_primitive().clone()),
            DataType::Interval(_) => Values::Interval(array.as_primitive().clone()),
            DataType::List(_) => Values::List(Box::new(ListBinary::new(array.as_list())?)),
            DataType::Struct(_) => Values::Record(fields(array.as_struct())?),
            other => return Err(no_format(other)),
        }))
    }

    /// For the values of `column` as values of the type `oid`, which clients are told of: numbers of objects are BIGINT here and have
    /// four bytes for clients.
    ///
    /// # Errors
    /// A type that has no binary format.
    pub fn told(column: &ArrayRef, oid: u32) -> Result<Self> {
        match (element_of(oid), column.data_type()) {
            (_, DataType::Int64) if oid == oid::OID => Ok(Self(Values::Oid(column.as_primitive().clone()))),
            (Some(element), DataType::List(_)) => {
                let list = ListBinary::told(column.as_list(), element)?;
                Ok(Self(Values::List(Box::new(list))))
            }
            _ => Self::new(column),
        }
    }

    /// Appends the value of `row`, which is not NULL.
    ///
    /// # Errors
    /// An array whose parts have different lengths.
    pub fn write(&self, row: usize, out: &mut BytesMut) -> Result<()> {
        match &self.0 {
            Values::Boolean(values) => out.put_u8(u8::from(values.value(row))),
            Values::Int2(values) => out.put_i16(values.value(row)),
            Values::Int4(values) => out.put_i32(values.value(row)),
            // The bytes above these are zero.
            Values::Oid(values) => out.put_u32(values.value(row) as u32),
            Values::Int8(values) => out.put_i64(values.value(row)),
            Values::Float4(values) => out.put_f32(values.value(row)),
            Values::Float8(values) => out.put_f64(values.value(row)),
            Values::Numeric(values, scale) => put_numeric(values.value(row), *scale, out),
            Values::Text(values) => out.put_slice(values.value(row).as_bytes()),
            Values::Document(values) => {
                // The version of the format.
                out.put_u8(1);
                out.put_slice(values.value(row).as_bytes());
            }
            Values::Bytes(values) => out.put_slice(values.value(row)),
            Values::Date(values) => out.put_i32(values.value(row).saturating_sub(DAYS_TO_2000)),
            Values::Time(values) => out.put_i64(values.value(row)),
            Values::Timestamp(values) => out.put_i64(values.value(row).saturating_sub(MICROS_TO_2000)),
            Values::Interval(values) => {
                let value = values.value(row);
                out.put_i64(value.nanoseconds / 1_000);
                out.put_i32(value.days);
                out.put_i32(value.months);
            }
            Values::List(list) => list.write(row, out)?,
            Values::Record(fields) => {
                out.put_i32(fields.len() as i32);
                for (oid, array, field) in fields {
                    out.put_u32(*oid);
                    put_value(array, field, row, out)?;
                }
            }
        }
        Ok(())
    }
}

fn no_format(data_type: &DataType) -> Error {
    Error::new("42883", format!("type {data_type} has no binary format"))
}

fn fields(record: &StructArray) -> Result<Vec<(u32, ArrayRef, ColumnBinary)>> {
    let fields = record.columns().iter().map(|column| {
        let oid = wire_type(column.data_type()).oid;
        Ok((oid, ArrayRef::clone(column), ColumnBinary::new(column)?))
    });
    fields.collect()
}

/// Appends the length of a value and the value, or what says NULL.
///
/// # Errors
/// As [`ColumnBinary::write`].
pub fn put_value(array: &ArrayRef, column: &ColumnBinary, row: usize, out: &mut BytesMut) -> Result<()> {
    let at = out.len();
    out.put_i32(-1);
    if !array.is_null(row) {
        column.write(row, out)?;
        put_length(out, at, out.len() - at - 4)?;
    }
    Ok(())
}

/// Writes a length at a place that was kept for it.
///
/// # Errors
/// A length that has no four bytes.
pub fn put_length(out: &mut BytesMut, at: usize, length: usize) -> Result<()> {
    let length = i32::try_from(length)
        .map_err(|_| Error::new("54000", "a row is larger than the protocol can say"))?;
    out[at..at + 4].copy_from_slice(&length.to_be_bytes());
    Ok(())
}

/// Writes arrays: the lengths of all dimensions, then the elements one after another.
struct ListBinary {
    /// The arrays from the outermost to the innermost.
    levels: Vec<ListArray>,
    elements: ArrayRef,
    column: ColumnBinary,
    oid: u32,
}

impl ListBinary {
    fn new(list: &ListArray) -> Result<Self> {
        Self::told(list, element(list.data_type()))
    }

    /// Whose elements are of the type `oid` for clients.
    fn told(list: &ListArray, oid: u32) -> Result<Self> {
        let mut levels = vec![list.clone()];
        let mut elements = ArrayRef::clone(list.values());
        while let DataType::List(_) = elements.data_type() {
            let inner = elements.as_list::<i32>().clone();
            elements = ArrayRef::clone(inner.values());
            levels.push(inner);
        }
        Ok(Self {
            levels,
            oid,
            column: ColumnBinary::told(&elements, oid)?,
            elements,
        })
    }

    fn write(&self, row: usize, out: &mut BytesMut) -> Result<()> {
        let ragged = || {
            Error::new(
                "2202E",
                "multidimensional arrays must have sub-arrays with matching dimensions",
            )
            .with_hint("Ask for the column as text.")
        };
        let (mut from, mut to) = (row, row + 1);
        let mut lengths = Vec::with_capacity(self.levels.len());
        for level in &self.levels {
            let offsets = level.value_offsets();
            let length = match from < to {
                true => offsets[from + 1] - offsets[from],
                false => 0,
            };
            let is_even = (from..to).all(|at| !level.is_null(at) && offsets[at + 1] - offsets[at] == length);
            if !is_even {
                return Err(ragged());
            }
            lengths.push(length);
            (from, to) = (offsets[from] as usize, offsets[to] as usize);
        }
        let is_empty = from == to;
        out.put_i32(if is_empty { 0 } else { lengths.len() as i32 });
        let has_nulls = (from..to).any(|at| self.elements.is_null(at));
        out.put_i32(i32::from(has_nulls));
        out.put_u32(self.oid);
        if is_empty {
            return Ok(());
        }
        for length in lengths {
            out.put_i32(length);
            // The lower bound.
            out.put_i32(1);
        }
        (from..to).try_for_each(|at| put_value(&self.elements, &self.column, at, out))
    }
}

/// A NUMERIC: digits in base 10,000, the power of the first of them, the sign, and how many decimal digits are shown behind the point.
fn put_numeric(value: i128, scale: i8, out: &mut BytesMut) {
    const BASE: u128 = 10_000;
    let scale = u32::try_from(scale).unwrap_or(0);
    let mut rest = value.unsigned_abs();
    // Digits behind the point fill whole groups of four.
    let groups_behind = scale.div_ceil(4);
    let padding = groups_behind * 4 - scale;
    let mut digits: Vec<i16> = Vec::with_capacity(12);
    if padding > 0 {
        let part = 10u128.pow(4 - padding);
        digits.push(((rest % part) * 10u128.pow(padding)) as i16);
        rest /= part;
    }
    while rest > 0 {
        digits.push((rest % BASE) as i16);
        rest /= BASE;
    }
    let mut weight = digits.len() as i32 - groups_behind as i32 - 1;
    digits.reverse();
    let leading = digits.iter().take_while(|digit| **digit == 0).count();
    digits.drain(..leading);
    weight -= leading as i32;
    while digits.last() == Some(&0) {
        digits.pop();
    }
    if digits.is_empty() {
        weight = 0;
    }
    out.put_i16(digits.len() as i16);
    out.put_i16(weight as i16);
    out.put_u16(if value < 0 { 0x4000 } else { 0 });
    out.put_u16(scale as u16);
    digits.iter().for_each(|digit| out.put_i16(*digit));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn numeric(value: i128, scale: i8) -> (Vec<i16>, i16, u16, u16) {
        let mut out = BytesMut::new();
        put_numeric(value, scale, &mut out);
        let word = |at: usize| i16::from_be_bytes([out[at], out[at + 1]]);
        let digits = (0..word(0) as usize).map(|n| word(8 + 2 * n)).collect();
        (digits, word(2), word(4) as u16, word(6) as u16)
    }

    #[test]
    fn numerics_are_digits_in_base_ten_thousand() {
        // What PostgreSQL's numeric_send gives for these.
        assert_eq!(numeric(0, 2), (vec![], 0, 0, 2));
        assert_eq!(numeric(1, 0), (vec![1], 0, 0, 0));
        assert_eq!(numeric(12_345, 0), (vec![1, 2345], 1, 0, 0));
        assert_eq!(numeric(-12_345, 2), (vec![123, 4500], 0, 0x4000, 2));
        assert_eq!(numeric(1, 4), (vec![1], -1, 0, 4));
        assert_eq!(numeric(1, 5), (vec![1000], -2, 0, 5));
        assert_eq!(numeric(10_000, 0), (vec![1], 1, 0, 0));
        assert_eq!(numeric(1_234_567_890, 6), (vec![1234, 5678, 9000], 0, 0, 6));
    }
}
