//! Rows to JSON records.
//!
//! All records of a batch are written into one buffer and handed out as slices of it. Columns are downcast once per
//! batch; a row costs its copies, not a call per value through a trait object.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, BinaryArray, BinaryViewArray, BooleanArray, Decimal128Array, ListArray,
    PrimitiveArray, StringArray, StringViewArray, StructArray,
};
use arrow::datatypes::{
    DataType, Date32Type, Field, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type,
    SchemaRef, Time64MicrosecondType, TimeUnit, TimestampMicrosecondType, TimestampMillisecondType,
    TimestampNanosecondType, TimestampSecondType, UInt8Type, UInt16Type, UInt32Type, UInt64Type,
};
use arrow::record_batch::RecordBatch;
use bytes::Bytes;

use super::scan::Cursor;
use super::write_string_content;
use crate::error::{ConnectorError, ErrorKind};
use crate::format::decimal::write_decimal;
use crate::format::time::{TimestampFormat, write_date, write_time};
use crate::format::{Change, EncodeOptions, Encoder, base64, is_jsonb};
use crate::sink::{SinkMode, SinkRecord};

/// Writes JSON objects.
pub(crate) struct JsonEncoder {
    schema: SchemaRef,
    mode: SinkMode,
    key: Vec<usize>,
    format: TimestampFormat,
    /// `{"a":`, `,"b":` … for the value and for the key.
    value_names: Vec<Box<[u8]>>,
    key_names: Vec<Box<[u8]>>,
    /// Bytes of the last batch, the room for the next.
    room: usize,
}

impl JsonEncoder {
    /// An encoder of these rows; `format` is the sink's `timestamp.format`.
    pub(crate) fn new(options: &EncodeOptions, format: TimestampFormat) -> Result<Self, ConnectorError> {
        for field in options.schema.fields() {
            check_type(field.data_type()).map_err(|detail| {
                type_error(field.name()).with_detail(format!("The Arrow type is {detail}."))
            })?;
        }
        if options.mode == SinkMode::Upsert && options.key.is_empty() {
            return Err(ConnectorError::invalid("an upsert sink needs key columns")
                .with_hint("Name them in the option primary_key."));
        }
        if let Some(index) = options
            .key
            .iter()
            .find(|index| **index >= options.schema.fields().len())
        {
            return Err(ConnectorError::invalid(format!(
                "the sink has no column number {index} for its key"
            )));
        }
        let names = |indices: &mut dyn Iterator<Item = usize>| {
            let fields = options.schema.fields();
            indices
                .enumerate()
                .map(|(place, index)| quoted_name(place == 0, fields[index].name()))
                .collect()
        };
        Ok(Self {
            schema: Arc::clone(&options.schema),
            mode: options.mode,
            value_names: names(&mut (0..options.schema.fields().len())),
            key_names: names(&mut options.key.iter().copied()),
            key: options.key.clone(),
            format,
            room: 0,
        })
    }
}

fn type_error(column: &str) -> ConnectorError {
    ConnectorError::invalid(format!(
        "column \"{column}\" has a type that JSON records cannot carry"
    ))
    .with_hint("Cast it to VARCHAR in the query.")
}

/// `{"name":` or `,"name":`.
fn quoted_name(first: bool, name: &str) -> Box<[u8]> {
    let mut text = vec![if first { b'{' } else { b',' }, b'"'];
    write_string_content(name.as_bytes(), &mut text);
    text.extend_from_slice(b"\":");
    text.into()
}

/// Whether values of this type can be written; the offending type otherwise.
fn check_type(data_type: &DataType) -> Result<(), String> {
    match data_type {
        DataType::List(item) => check_type(item.data_type()),
        DataType::Struct(fields) => fields.iter().try_for_each(|field| check_type(field.data_type())),
        DataType::Null
        | DataType::Boolean
        | DataType::Int8
        | DataType::Int16
        | DataType::Int32
        | DataType::Int64
        | DataType::UInt8
        | DataType::UInt16
        | DataType::UInt32
        | DataType::UInt64
        | DataType::Float32
        | DataType::Float64
        | DataType::Decimal128(..)
        | DataType::Utf8
        | DataType::Utf8View
        | DataType::Binary
        | DataType::BinaryView
        | DataType::Date32
        | DataType::Time64(TimeUnit::Microsecond)
        | DataType::Timestamp(..) => Ok(()),
        other => Err(other.to_string()),
    }
}

impl Encoder for JsonEncoder {
    fn encode(
        &mut self,
        rows: &RecordBatch,
        changes: &[Change],
        records: &mut Vec<SinkRecord>,
    ) -> Result<(), ConnectorError> {
        if rows.num_rows() != changes.len() || rows.num_columns() != self.schema.fields().len() {
            let message = format!(
                "{} rows and {} changes do not belong together",
                rows.num_rows(),
                changes.len()
            );
            return Err(ConnectorError::new(ErrorKind::Permanent, message));
        }
        let cells = self
            .schema
            .fields()
            .iter()
            .zip(rows.columns())
            .map(|(field, array)| Cells::new(field, array));
        let cells = cells.collect::<Result<Vec<_>, _>>()?;
        let mut out = Vec::with_capacity(self.room);
        let mut ends = Vec::with_capacity(rows.num_rows());
        for (row, change) in changes.iter().enumerate() {
            let keys = self
                .key_names
                .iter()
                .zip(self.key.iter().map(|index| &cells[*index]));
            write_object(keys, row, &self.format, &mut out).map_err(|reason| self.write_error(&reason))?;
            let key_end = out.len();
            match (change, self.mode) {
                (Change::Put, _) => {
                    write_object(self.value_names.iter().zip(&cells), row, &self.format, &mut out)
                        .map_err(|reason| self.write_error(&reason))?
                }
                (Change::Delete, SinkMode::Upsert) => {}
                (Change::Delete, SinkMode::Append) => {
                    return Err(ConnectorError::new(
                        ErrorKind::Permanent,
                        "an append-only sink cannot delete a row",
                    ));
                }
            }
            ends.push((key_end, out.len()));
        }
        self.room = out.len() + out.len() / 16;
        let arena = Bytes::from(out);
        let mut start = 0;
        records.extend(ends.into_iter().zip(changes).map(|((key_end, end), change)| {
            let key = (!self.key.is_empty()).then(|| arena.slice(start..key_end));
            let value = (*change == Change::Put).then(|| arena.slice(key_end..end));
            start = end;
            SinkRecord { key, value }
        }));
        Ok(())
    }
}

impl JsonEncoder {
    #[cold]
    fn write_error(&self, reason: &str) -> ConnectorError {
        ConnectorError::new(
            ErrorKind::Permanent,
            format!("a row cannot be written as JSON: {reason}"),
        )
    }
}

/// Writes an object from names (each with what goes before it) and cells; nothing at all without names.
#[inline]
fn write_object<'a, 'b: 'a>(
    cells: impl Iterator<Item = (&'a Box<[u8]>, &'a Cells<'b>)>,
    row: usize,
    format: &TimestampFormat,
    out: &mut Vec<u8>,
) -> Result<(), String> {
    let mut any = false;
    for (name, cell) in cells {
        out.extend_from_slice(name);
        cell.write(row, format, out)?;
        any = true;
    }
    if any {
        out.push(b'}');
    }
    Ok(())
}

/// One column of a batch, downcast.
struct Cells<'a> {
    /// The array if it has nulls.
    nulls: Option<&'a arrow::buffer::NullBuffer>,
    values: CellValues<'a>,
}

/// Integers of one width.
enum Integers<'a> {
    I8(&'a [i8]),
    I16(&'a [i16]),
    I32(&'a [i32]),
    I64(&'a [i64]),
    U8(&'a [u8]),
    U16(&'a [u16]),
    U32(&'a [u32]),
    U64(&'a [u64]),
}

enum CellValues<'a> {
    Null,
    Bool(&'a BooleanArray),
    Integers(Integers<'a>),
    F32(&'a [f32]),
    F64(&'a [f64]),
    Decimal(&'a Decimal128Array),
    Utf8(&'a StringArray),
    Utf8View(&'a StringViewArray),
    Json(&'a StringArray),
    Binary(&'a BinaryArray),
    BinaryView(&'a BinaryViewArray),
    Date(&'a [i32]),
    Time(&'a [i64]),
    Timestamp {
        values: &'a [i64],
        unit: TimeUnit,
        zoned: bool,
    },
    List {
        array: &'a ListArray,
        items: Box<Cells<'a>>,
    },
    Struct {
        names: Vec<Box<[u8]>>,
        cells: Vec<Cells<'a>>,
    },
}

fn values<T: arrow::datatypes::ArrowPrimitiveType>(array: &ArrayRef) -> &[T::Native] {
    let array: &PrimitiveArray<T> = array.as_primitive();
    array.values()
}

impl<'a> Cells<'a> {
    fn new(field: &Field, array: &'a ArrayRef) -> Result<Self, ConnectorError> {
        if !field.data_type().equals_datatype(array.data_type()) {
            let message = format!(
                "column \"{}\" has another type than the sink was made for",
                field.name()
            );
            let detail = format!("It has {} instead of {}.", array.data_type(), field.data_type());
            return Err(ConnectorError::new(ErrorKind::Permanent, message).with_detail(detail));
        }
        let values = match array.data_type() {
            DataType::Null => CellValues::Null,
            DataType::Boolean => CellValues::Bool(array.as_boolean()),
            DataType::Int8 => CellValues::Integers(Integers::I8(values::<Int8Type>(array))),
            DataType::Int16 => CellValues::Integers(Integers::I16(values::<Int16Type>(array))),
            DataType::Int32 => CellValues::Integers(Integers::I32(values::<Int32Type>(array))),
            DataType::Int64 => CellValues::Integers(Integers::I64(values::<Int64Type>(array))),
            DataType::UInt8 => CellValues::Integers(Integers::U8(values::<UInt8Type>(array))),
            DataType::UInt16 => CellValues::Integers(Integers::U16(values::<UInt16Type>(array))),
            DataType::UInt32 => CellValues::Integers(Integers::U32(values::<UInt32Type>(array))),
            DataType::UInt64 => CellValues::Integers(Integers::U64(values::<UInt64Type>(array))),
            DataType::Float32 => CellValues::F32(values::<Float32Type>(array)),
            DataType::Float64 => CellValues::F64(values::<Float64Type>(array)),
            DataType::Decimal128(..) => CellValues::Decimal(array.as_primitive()),
            DataType::Utf8 => CellValues::Utf8(array.as_string()),
            DataType::Utf8View => CellValues::Utf8View(array.as_string_view()),
            DataType::Binary => CellValues::Binary(array.as_binary()),
            DataType::BinaryView => CellValues::BinaryView(array.as_binary_view()),
            DataType::Date32 => CellValues::Date(values::<Date32Type>(array)),
            DataType::Time64(TimeUnit::Microsecond) => {
                CellValues::Time(values::<Time64MicrosecondType>(array))
            }
            DataType::Timestamp(unit, zone) => CellValues::Timestamp {
                values: timestamps(*unit, array),
                unit: *unit,
                zoned: zone.is_some(),
            },
            DataType::List(item) => {
                let array: &ListArray = array.as_list();
                CellValues::List {
                    array,
                    items: Box::new(Self::new(item, array.values())?),
                }
            }
            document if is_jsonb(document) => CellValues::Json(array.as_struct().column(0).as_string()),
            DataType::Struct(fields) => {
                let array: &StructArray = array.as_struct();
                let names = fields
                    .iter()
                    .enumerate()
                    .map(|(place, field)| quoted_name(place == 0, field.name()));
                let cells = fields
                    .iter()
                    .zip(array.columns())
                    .map(|(field, array)| Self::new(field, array));
                CellValues::Struct {
                    names: names.collect(),
                    cells: cells.collect::<Result<_, _>>()?,
                }
            }
            _ => return Err(type_error(field.name())),
        };
        Ok(Self {
            nulls: array.nulls(),
            values,
        })
    }

    #[inline]
    fn write(&self, row: usize, format: &TimestampFormat, out: &mut Vec<u8>) -> Result<(), String> {
        if self.nulls.is_some_and(|nulls| nulls.is_null(row)) {
            out.extend_from_slice(b"null");
            return Ok(());
        }
        match &self.values {
            CellValues::Integers(integers) => integers.write(row, out),
            CellValues::Utf8(array) => write_string(array.value(row).as_bytes(), out),
            CellValues::Timestamp { values, unit, zoned } => {
                let micros = micros(values[row], *unit).ok_or("a timestamp is out of range")?;
                if format.is_number() {
                    return format.write(micros, *zoned, out);
                }
                if format.is_pattern() {
                    let mut text = Vec::new();
                    format.write(micros, *zoned, &mut text)?;
                    write_string(&text, out);
                    return Ok(());
                }
                out.push(b'"');
                format.write(micros, *zoned, out)?;
                out.push(b'"');
            }
            _ => return self.write_other(row, format, out),
        }
        Ok(())
    }

    /// The types that are not worth a place in the hot function.
    fn write_other(&self, row: usize, format: &TimestampFormat, out: &mut Vec<u8>) -> Result<(), String> {
        match &self.values {
            CellValues::Null => out.extend_from_slice(b"null"),
            CellValues::Bool(array) => {
                out.extend_from_slice(if array.value(row) { b"true" } else { b"false" });
            }
            CellValues::F32(values) => match non_finite(values[row].into()) {
                Some(text) => out.extend_from_slice(text),
                None => out.extend_from_slice(zmij::Buffer::new().format_finite(values[row]).as_bytes()),
            },
            CellValues::F64(values) => match non_finite(values[row]) {
                Some(text) => out.extend_from_slice(text),
                None => out.extend_from_slice(zmij::Buffer::new().format_finite(values[row]).as_bytes()),
            },
            CellValues::Decimal(array) => write_decimal(array.value(row), array.scale(), out),
            CellValues::Utf8View(array) => write_string(array.value(row).as_bytes(), out),
            CellValues::Json(array) if array.is_null(row) => out.extend_from_slice(b"null"),
            CellValues::Json(array) => write_json(array.value(row), out)?,
            CellValues::Binary(array) => write_base64(array.value(row), out),
            CellValues::BinaryView(array) => write_base64(array.value(row), out),
            CellValues::Date(values) => {
                out.push(b'"');
                write_date(values[row].into(), out);
                out.push(b'"');
            }
            CellValues::Time(values) => {
                out.push(b'"');
                write_time(values[row], out);
                out.push(b'"');
            }
            CellValues::List { array, items } => {
                let offsets = array.value_offsets();
                out.push(b'[');
                for item in offsets[row] as usize..offsets[row + 1] as usize {
                    if item > offsets[row] as usize {
                        out.push(b',');
                    }
                    items.write(item, format, out)?;
                }
                out.push(b']');
            }
            CellValues::Struct { names, .. } if names.is_empty() => out.extend_from_slice(b"{}"),
            CellValues::Struct { names, cells } => write_object(names.iter().zip(cells), row, format, out)?,
            CellValues::Integers(_) | CellValues::Utf8(_) | CellValues::Timestamp { .. } => {
                unreachable!("these are written by the caller")
            }
        }
        Ok(())
    }
}

impl Integers<'_> {
    #[inline]
    fn write(&self, row: usize, out: &mut Vec<u8>) {
        let mut buffer = itoa::Buffer::new();
        let text = match self {
            Self::I8(values) => buffer.format(values[row]),
            Self::I16(values) => buffer.format(values[row]),
            Self::I32(values) => buffer.format(values[row]),
            Self::I64(values) => buffer.format(values[row]),
            Self::U8(values) => buffer.format(values[row]),
            Self::U16(values) => buffer.format(values[row]),
            Self::U32(values) => buffer.format(values[row]),
            Self::U64(values) => buffer.format(values[row]),
        };
        out.extend_from_slice(text.as_bytes());
    }
}

fn timestamps(unit: TimeUnit, array: &ArrayRef) -> &[i64] {
    match unit {
        TimeUnit::Second => values::<TimestampSecondType>(array),
        TimeUnit::Millisecond => values::<TimestampMillisecondType>(array),
        TimeUnit::Microsecond => values::<TimestampMicrosecondType>(array),
        TimeUnit::Nanosecond => values::<TimestampNanosecondType>(array),
    }
}

#[inline]
fn micros(value: i64, unit: TimeUnit) -> Option<i64> {
    match unit {
        TimeUnit::Second => value.checked_mul(1_000_000),
        TimeUnit::Millisecond => value.checked_mul(1_000),
        TimeUnit::Microsecond => Some(value),
        TimeUnit::Nanosecond => Some(value.div_euclid(1_000)),
    }
}

#[inline]
fn write_string(text: &[u8], out: &mut Vec<u8>) {
    out.push(b'"');
    write_string_content(text, out);
    out.push(b'"');
}

fn write_base64(bytes: &[u8], out: &mut Vec<u8>) {
    out.push(b'"');
    base64::encode(bytes, out);
    out.push(b'"');
}

/// As PostgreSQL's `to_json` does where JSON has no number.
fn non_finite(value: f64) -> Option<&'static [u8]> {
    if value.is_finite() {
        None
    } else if value.is_nan() {
        Some(b"\"NaN\"")
    } else if value > 0.0 {
        Some(b"\"Infinity\"")
    } else {
        Some(b"\"-Infinity\"")
    }
}

/// Appends a JSONB value as it is, if it is one: a record is never broken by what a query made.
fn write_json(text: &str, out: &mut Vec<u8>) -> Result<(), String> {
    let mut cursor = Cursor::new(text.as_bytes());
    cursor.skip_space();
    match cursor.skip_value().and_then(|()| cursor.end()) {
        Ok(()) => out.extend_from_slice(text.as_bytes()),
        Err(_) => return Err("a JSONB value is not JSON".to_owned()),
    }
    Ok(())
}
