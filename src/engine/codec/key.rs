//! [`KeyEncoding`]: columns as order-preserving keys.
//!
//! The bytes of single values are those of [`highwater_storage::keys`], ascending with nulls last. What that module has no
//! value for is put together from what it has:
//!
//! ```text
//! list     = (true element)* false          a list sorts before those that it is the start of
//! struct   = true field*
//! interval = length in nanoseconds: i128, months: i32, days: i32        (a month has 30 days, a day 24 hours)
//! ```

use arrow::array::ArrayRef;
use arrow::datatypes::IntervalMonthDayNano;
use highwater_storage::keys::{KeyOrder, KeyReader, KeyWriter};

use super::builder::{Builder, BuilderValues};
use super::column::{Column, Values};
use super::encoding::{Codec, Decoder, Encoder, Encoding};
use super::kind::Kind;
use crate::engine::error::EngineError;

const NANOS_PER_DAY: i128 = 86_400_000_000_000;
const DAYS_PER_MONTH: i128 = 30;

/// Keys that sort as their columns do; equal values have equal keys.
///
/// Floats come back as PostgreSQL compares them: -0.0 as 0.0, any NaN as the one NaN. All else comes back as it was.
#[derive(Debug, Clone, Copy)]
pub(crate) enum KeyEncoding {}

/// Encodes columns of fixed types as keys.
pub(crate) type KeyCodec = Codec<KeyEncoding>;
/// The key columns of one batch.
pub(crate) type KeyEncoder<'a> = Encoder<'a, KeyEncoding>;
/// Gathers the columns of keys.
pub(crate) type KeyDecoder<'c> = Decoder<'c, KeyEncoding>;

impl Encoding for KeyEncoding {
    fn put(columns: &[Column<'_>], row: usize, out: &mut Vec<u8>) {
        for column in columns {
            put(column, row, KeyOrder::ASCENDING, out);
        }
    }

    fn take(kinds: &[Kind], builders: &mut [Option<Builder>], bytes: &[u8]) -> Result<(), EngineError> {
        let mut reader = KeyReader::new(bytes);
        for (kind, builder) in kinds.iter().zip(builders) {
            match builder {
                Some(builder) => take(builder, &mut reader)?,
                None => skip(kind, &mut reader)?,
            }
        }
        if reader.is_empty() {
            Ok(())
        } else {
            Err(corrupt("Bytes follow its last column."))
        }
    }
}

impl KeyCodec {
    /// Appends what keys start with whose first columns have the values in the first row of `columns`, and sort in these orders.
    ///
    /// # Errors
    /// Columns that do not fit (internal).
    pub(crate) fn append_prefix(
        &self,
        columns: &[ArrayRef],
        orders: impl Iterator<Item = KeyOrder>,
        out: &mut Vec<u8>,
    ) -> Result<(), EngineError> {
        for (column, order) in self.first_columns(columns)?.iter().zip(orders) {
            put(column, 0, order, out);
        }
        Ok(())
    }
}

impl KeyEncoder<'_> {
    /// Appends the key of `row` whose columns sort in these orders.
    pub(crate) fn append_ordered(
        &self,
        row: usize,
        orders: impl Iterator<Item = KeyOrder>,
        out: &mut Vec<u8>,
    ) {
        for (column, order) in self.columns().iter().zip(orders) {
            put(column, row, order, out);
        }
    }
}

impl KeyDecoder<'_> {
    /// Takes the columns of one key, which sort in these orders.
    ///
    /// # Errors
    /// Bytes that are no such key (`XX001`).
    pub(crate) fn append_ordered(
        &mut self,
        bytes: &[u8],
        orders: impl Iterator<Item = KeyOrder>,
    ) -> Result<(), EngineError> {
        let mut reader = KeyReader::new(bytes);
        for ((kind, builder), order) in self.parts().zip(orders) {
            reader.set_order(order);
            match builder {
                Some(builder) => take(builder, &mut reader)?,
                None => skip(kind, &mut reader)?,
            }
        }
        match reader.is_empty() {
            true => Ok(()),
            false => Err(corrupt("Bytes follow its last column.")),
        }
    }
}

fn corrupt(detail: impl Into<String>) -> EngineError {
    EngineError::recovery("a stored key is corrupt").with_detail(detail)
}

fn damaged(error: &highwater_storage::StorageError) -> EngineError {
    corrupt(error.detail().unwrap_or_default())
}

fn put(column: &Column<'_>, row: usize, order: KeyOrder, out: &mut Vec<u8>) {
    let mut writer = KeyWriter::new(out);
    writer.set_order(order);
    if column.is_null(row) {
        return writer.put_null();
    }
    match &column.values {
        Values::Null => writer.put_null(),
        Values::Bool(values) => writer.put_bool(values.value(row)),
        Values::I8(values) => writer.put_i8(values[row]),
        Values::I16(values) => writer.put_i16(values[row]),
        Values::I32(values) => writer.put_i32(values[row]),
        Values::I64(values) => writer.put_i64(values[row]),
        Values::I128(values) => writer.put_i128(values[row]),
        Values::U8(values) => writer.put_u8(values[row]),
        Values::U16(values) => writer.put_u16(values[row]),
        Values::U32(values) => writer.put_u32(values[row]),
        Values::U64(values) => writer.put_u64(values[row]),
        Values::F32(values) => writer.put_f32(values[row]),
        Values::F64(values) => writer.put_f64(values[row]),
        Values::Interval(values) => put_interval(&mut writer, values[row]),
        Values::Bytes(values) => writer.put_bytes(values.get(row)),
        Values::List { offsets, elements } => {
            for element in offsets[row] as usize..offsets[row + 1] as usize {
                put_flag(true, order, out);
                put(elements, element, order, out);
            }
            put_flag(false, order, out);
        }
        Values::Struct(fields) => {
            writer.put_bool(true);
            for field in fields {
                put(field, row, order, out);
            }
        }
    }
}

fn put_flag(flag: bool, order: KeyOrder, out: &mut Vec<u8>) {
    let mut writer = KeyWriter::new(out);
    writer.set_order(order);
    writer.put_bool(flag);
}

fn put_interval(writer: &mut KeyWriter<'_>, value: IntervalMonthDayNano) {
    let days = i128::from(value.months) * DAYS_PER_MONTH + i128::from(value.days);
    writer.put_i128(days * NANOS_PER_DAY + i128::from(value.nanoseconds));
    writer.put_i32(value.months);
    writer.put_i32(value.days);
}

/// `None` is null.
fn read_interval(reader: &mut KeyReader<'_>) -> Result<Option<IntervalMonthDayNano>, EngineError> {
    let Some(length) = reader.read_i128().map_err(|error| damaged(&error))? else {
        return Ok(None);
    };
    let months = reader.read_i32().map_err(|error| damaged(&error))?;
    let days = reader.read_i32().map_err(|error| damaged(&error))?;
    let (Some(months), Some(days)) = (months, days) else {
        return Err(corrupt("An interval has no months or days."));
    };
    let whole = (i128::from(months) * DAYS_PER_MONTH + i128::from(days)) * NANOS_PER_DAY;
    let nanoseconds =
        i64::try_from(length - whole).map_err(|_| corrupt("An interval has too many nanoseconds."))?;
    Ok(Some(IntervalMonthDayNano {
        months,
        days,
        nanoseconds,
    }))
}

fn take(builder: &mut Builder, reader: &mut KeyReader<'_>) -> Result<(), EngineError> {
    macro_rules! fixed {
        ($values:ident, $read:ident) => {{
            let value = reader.$read().map_err(|error| damaged(&error))?;
            $values.push(value.unwrap_or_default());
            value.is_some()
        }};
    }
    let there = match &mut builder.values {
        BuilderValues::Null => {
            skip(&Kind::Null, reader)?;
            false
        }
        BuilderValues::Bool(values) => {
            let value = reader.read_bool().map_err(|error| damaged(&error))?;
            values.append(value.unwrap_or_default());
            value.is_some()
        }
        BuilderValues::I8(values) => fixed!(values, read_i8),
        BuilderValues::I16(values) => fixed!(values, read_i16),
        BuilderValues::I32(values) => fixed!(values, read_i32),
        BuilderValues::I64(values) => fixed!(values, read_i64),
        BuilderValues::I128(values) => fixed!(values, read_i128),
        BuilderValues::U8(values) => fixed!(values, read_u8),
        BuilderValues::U16(values) => fixed!(values, read_u16),
        BuilderValues::U32(values) => fixed!(values, read_u32),
        BuilderValues::U64(values) => fixed!(values, read_u64),
        BuilderValues::F32(values) => fixed!(values, read_f32),
        BuilderValues::F64(values) => fixed!(values, read_f64),
        BuilderValues::Interval(values) => {
            let value = read_interval(reader)?;
            values.push(value.unwrap_or_default());
            value.is_some()
        }
        BuilderValues::Bytes { ends, data } => {
            let there = reader.read_bytes_into(data).map_err(|error| damaged(&error))?;
            ends.push(data.len());
            there
        }
        BuilderValues::List { ends, elements } => {
            let mut more = reader.read_bool().map_err(|error| damaged(&error))?;
            let there = more.is_some();
            while more == Some(true) {
                take(elements, reader)?;
                more = reader.read_bool().map_err(|error| damaged(&error))?;
                if more.is_none() {
                    return Err(corrupt("A list has no end."));
                }
            }
            ends.push(elements.len());
            there
        }
        BuilderValues::Struct(fields) => {
            let there = reader.read_bool().map_err(|error| damaged(&error))?.is_some();
            for field in fields {
                if there {
                    take(field, reader)?
                } else {
                    field.append_null()
                }
            }
            there
        }
    };
    builder.count(there);
    Ok(())
}

fn skip(kind: &Kind, reader: &mut KeyReader<'_>) -> Result<(), EngineError> {
    let skipped = match kind {
        Kind::Null | Kind::Bool => reader.read_bool().map(drop),
        Kind::I8 => reader.read_i8().map(drop),
        Kind::I16 => reader.read_i16().map(drop),
        Kind::I32 => reader.read_i32().map(drop),
        Kind::I64 => reader.read_i64().map(drop),
        Kind::I128 => reader.read_i128().map(drop),
        Kind::U8 => reader.read_u8().map(drop),
        Kind::U16 => reader.read_u16().map(drop),
        Kind::U32 => reader.read_u32().map(drop),
        Kind::U64 => reader.read_u64().map(drop),
        Kind::F32 => reader.read_f32().map(drop),
        Kind::F64 => reader.read_f64().map(drop),
        Kind::Interval => return read_interval(reader).map(drop),
        Kind::Text | Kind::Bytes => reader.read_bytes().map(drop),
        Kind::List(element) => {
            while reader.read_bool().map_err(|error| damaged(&error))? == Some(true) {
                skip(element, reader)?;
            }
            Ok(())
        }
        Kind::Struct(fields) => {
            if reader.read_bool().map_err(|error| damaged(&error))?.is_some() {
                for field in fields {
                    skip(field, reader)?;
                }
            }
            Ok(())
        }
    };
    skipped.map_err(|error| damaged(&error))
}
