//! [`RowEncoding`]: rows as compact bytes.
//!
//! ```text
//! row     = nulls value*                    nulls: a bit per column, lowest first, 1 for a null
//! value   = little-endian                   booleans (one byte), integers, floats by their bits
//!         | months: i32 days: i32 nanoseconds: i64
//!         | length: varint, bytes           text and bytes
//!         | length: varint, nulls value*    lists: a bit per element
//!         | nulls value*                    structs: a bit per field
//! varint  = seven bits a byte, lowest first, the high bit set in all bytes but the last
//! ```
//!
//! Nulls have no value.

use arrow::datatypes::IntervalMonthDayNano;

use super::builder::{Builder, BuilderValues};
use super::column::{Column, Values};
use super::encoding::{Codec, Decoder, Encoder, Encoding};
use super::kind::Kind;
use crate::engine::error::EngineError;

/// Rows in little space; each value comes back bit by bit.
#[derive(Debug, Clone, Copy)]
pub(crate) enum RowEncoding {}

/// Encodes rows of fixed column types.
pub(crate) type RowCodec = Codec<RowEncoding>;
/// The columns of one batch.
pub(crate) type RowEncoder<'a> = Encoder<'a, RowEncoding>;
/// Gathers the columns of rows.
pub(crate) type RowDecoder<'c> = Decoder<'c, RowEncoding>;

impl Encoding for RowEncoding {
    fn put(columns: &[Column<'_>], row: usize, out: &mut Vec<u8>) {
        put_group(columns.iter().map(|column| (column, row)), out);
    }

    fn take(kinds: &[Kind], builders: &mut [Option<Builder>], bytes: &[u8]) -> Result<(), EngineError> {
        let mut reader = Reader { rest: bytes };
        let nulls = reader.nulls(kinds.len())?;
        for (index, (kind, builder)) in kinds.iter().zip(builders).enumerate() {
            match (builder, is_null(nulls, index)) {
                (Some(builder), true) => builder.append_null(),
                (Some(builder), false) => take(builder, &mut reader)?,
                (None, true) => {}
                (None, false) => skip(kind, &mut reader)?,
            }
        }
        if reader.rest.is_empty() {
            Ok(())
        } else {
            Err(corrupt("Bytes follow its last column."))
        }
    }
}

/// Appends `value` as a varint.
pub(crate) fn put_varint(mut value: u64, out: &mut Vec<u8>) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Takes a varint from the start of `bytes`; `None` if there is none.
pub(crate) fn take_varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let (byte, rest) = bytes.split_first()?;
        *bytes = rest;
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

/// The bytes of a row that are not taken yet.
struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    fn bytes(&mut self, len: usize) -> Result<&'a [u8], EngineError> {
        let (bytes, rest) = self
            .rest
            .split_at_checked(len)
            .ok_or_else(|| corrupt("It ends in a value."))?;
        self.rest = rest;
        Ok(bytes)
    }

    fn fixed<const N: usize>(&mut self) -> Result<[u8; N], EngineError> {
        let (bytes, rest) = self
            .rest
            .split_first_chunk()
            .ok_or_else(|| corrupt("It ends in a value."))?;
        self.rest = rest;
        Ok(*bytes)
    }

    fn nulls(&mut self, columns: usize) -> Result<&'a [u8], EngineError> {
        self.bytes(columns.div_ceil(8))
    }

    fn len(&mut self) -> Result<usize, EngineError> {
        take_varint(&mut self.rest)
            .and_then(|len| usize::try_from(len).ok())
            .ok_or_else(|| corrupt("A length is cut off or too large."))
    }
}

fn is_null(nulls: &[u8], index: usize) -> bool {
    nulls[index / 8] >> (index % 8) & 1 == 1
}

fn corrupt(detail: &str) -> EngineError {
    EngineError::recovery("a stored row is corrupt").with_detail(detail)
}

/// Appends the bits of nulls and the values of a row, list or struct.
fn put_group<'a, 'b: 'a>(values: impl ExactSizeIterator<Item = (&'a Column<'b>, usize)>, out: &mut Vec<u8>) {
    let start = out.len();
    out.resize(start + values.len().div_ceil(8), 0);
    for (index, (column, row)) in values.enumerate() {
        if column.is_null(row) {
            out[start + index / 8] |= 1 << (index % 8);
        } else {
            put(column, row, out);
        }
    }
}

/// Appends a value that is not null.
fn put(column: &Column<'_>, row: usize, out: &mut Vec<u8>) {
    match &column.values {
        Values::Null => {}
        Values::Bool(values) => out.push(u8::from(values.value(row))),
        Values::I8(values) => out.extend_from_slice(&values[row].to_le_bytes()),
        Values::I16(values) => out.extend_from_slice(&values[row].to_le_bytes()),
        Values::I32(values) => out.extend_from_slice(&values[row].to_le_bytes()),
        Values::I64(values) => out.extend_from_slice(&values[row].to_le_bytes()),
        Values::I128(values) => out.extend_from_slice(&values[row].to_le_bytes()),
        Values::U8(values) => out.push(values[row]),
        Values::U16(values) => out.extend_from_slice(&values[row].to_le_bytes()),
        Values::U32(values) => out.extend_from_slice(&values[row].to_le_bytes()),
        Values::U64(values) => out.extend_from_slice(&values[row].to_le_bytes()),
        Values::F32(values) => out.extend_from_slice(&values[row].to_le_bytes()),
        Values::F64(values) => out.extend_from_slice(&values[row].to_le_bytes()),
        Values::Interval(values) => {
            let value = values[row];
            out.extend_from_slice(&value.months.to_le_bytes());
            out.extend_from_slice(&value.days.to_le_bytes());
            out.extend_from_slice(&value.nanoseconds.to_le_bytes());
        }
        Values::Bytes(values) => {
            let bytes = values.get(row);
            put_varint(bytes.len() as u64, out);
            out.extend_from_slice(bytes);
        }
        Values::List { offsets, elements } => {
            let (from, to) = (offsets[row] as usize, offsets[row + 1] as usize);
            put_varint((to - from) as u64, out);
            put_group((from..to).map(|element| (&**elements, element)), out);
        }
        Values::Struct(fields) => put_group(fields.iter().map(|field| (field, row)), out),
    }
}

/// Takes a value that is not null.
fn take(builder: &mut Builder, reader: &mut Reader<'_>) -> Result<(), EngineError> {
    macro_rules! fixed {
        ($values:ident, $type:ty) => {
            $values.push(<$type>::from_le_bytes(reader.fixed()?))
        };
    }
    match &mut builder.values {
        BuilderValues::Null => return Err(corrupt("A column of nulls has a value.")),
        BuilderValues::Bool(values) => values.append(reader.fixed::<1>()? != [0]),
        BuilderValues::I8(values) => fixed!(values, i8),
        BuilderValues::I16(values) => fixed!(values, i16),
        BuilderValues::I32(values) => fixed!(values, i32),
        BuilderValues::I64(values) => fixed!(values, i64),
        BuilderValues::I128(values) => fixed!(values, i128),
        BuilderValues::U8(values) => fixed!(values, u8),
        BuilderValues::U16(values) => fixed!(values, u16),
        BuilderValues::U32(values) => fixed!(values, u32),
        BuilderValues::U64(values) => fixed!(values, u64),
        BuilderValues::F32(values) => fixed!(values, f32),
        BuilderValues::F64(values) => fixed!(values, f64),
        BuilderValues::Interval(values) => values.push(IntervalMonthDayNano {
            months: i32::from_le_bytes(reader.fixed()?),
            days: i32::from_le_bytes(reader.fixed()?),
            nanoseconds: i64::from_le_bytes(reader.fixed()?),
        }),
        BuilderValues::Bytes { ends, data } => {
            let len = reader.len()?;
            data.extend_from_slice(reader.bytes(len)?);
            ends.push(data.len());
        }
        BuilderValues::List { ends, elements } => {
            let len = reader.len()?;
            let nulls = reader.nulls(len)?;
            for element in 0..len {
                take_or_null(elements, is_null(nulls, element), reader)?;
            }
            ends.push(elements.len());
        }
        BuilderValues::Struct(fields) => {
            let nulls = reader.nulls(fields.len())?;
            for (index, field) in fields.iter_mut().enumerate() {
                take_or_null(field, is_null(nulls, index), reader)?;
            }
        }
    }
    builder.count(true);
    Ok(())
}

fn take_or_null(builder: &mut Builder, null: bool, reader: &mut Reader<'_>) -> Result<(), EngineError> {
    if null {
        builder.append_null();
        return Ok(());
    }
    take(builder, reader)
}

/// Passes over a value that is not null.
fn skip(kind: &Kind, reader: &mut Reader<'_>) -> Result<(), EngineError> {
    let len = match kind {
        Kind::Null => return Err(corrupt("A column of nulls has a value.")),
        Kind::Bool | Kind::I8 | Kind::U8 => 1,
        Kind::I16 | Kind::U16 => 2,
        Kind::I32 | Kind::U32 | Kind::F32 => 4,
        Kind::I64 | Kind::U64 | Kind::F64 => 8,
        Kind::I128 | Kind::Interval => 16,
        Kind::Text | Kind::Bytes => reader.len()?,
        Kind::List(element) => {
            let len = reader.len()?;
            return skip_group(std::iter::repeat_n(&**element, len), reader);
        }
        Kind::Struct(fields) => return skip_group(fields.iter(), reader),
    };
    reader.bytes(len).map(drop)
}

fn skip_group<'a>(
    kinds: impl ExactSizeIterator<Item = &'a Kind>,
    reader: &mut Reader<'_>,
) -> Result<(), EngineError> {
    let nulls = reader.nulls(kinds.len())?;
    for (index, kind) in kinds.enumerate() {
        if !is_null(nulls, index) {
            skip(kind, reader)?;
        }
    }
    Ok(())
}
