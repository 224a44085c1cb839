//! Rows as messages: each column in the format that the client wants, a whole batch at a time.

use std::ops::Range;

use arrow::array::{Array, ArrayRef};
use arrow::datatypes::{Field, Schema};
use arrow::record_batch::RecordBatch;
use bytes::{BufMut, BytesMut};

use super::types::wire_type_of;
use crate::binary::{self, ColumnBinary, put_length};
use crate::text::ColumnText;
use crate::{Error, Result};

/// How the values of a column are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Format {
    /// As PostgreSQL writes them.
    Text,
    /// As PostgreSQL's `typsend` functions do.
    Binary,
}

impl Format {
    /// The format of a code of the protocol.
    pub(super) fn of_code(code: i16) -> Result<Self> {
        match code {
            0 => Ok(Self::Text),
            1 => Ok(Self::Binary),
            other => Err(Error::new("22023", format!("invalid format code: {other}"))),
        }
    }

    /// Its code.
    pub(super) fn code(self) -> i16 {
        match self {
            Self::Text => 0,
            Self::Binary => 1,
        }
    }
}

/// The formats of all columns, from the codes of a Bind message: none, one for all, or one for each.
pub(super) fn formats(codes: &[i16], columns: usize) -> Result<Vec<Format>> {
    match codes {
        [] => Ok(vec![Format::Text; columns]),
        [one] => Ok(vec![Format::of_code(*one)?; columns]),
        each if each.len() == columns => each.iter().map(|code| Format::of_code(*code)).collect(),
        each => {
            let message = format!(
                "bind message has {} result formats but query has {columns} columns",
                each.len()
            );
            Err(Error::new("08P01", message))
        }
    }
}

/// Refuses columns that cannot be written as the client wants.
pub(super) fn check(schema: &Schema, formats: &[Format]) -> Result<()> {
    for (field, format) in schema.fields().iter().zip(formats) {
        if *format == Format::Binary && !binary::is_there(field.data_type()) {
            let message = format!("column \"{}\" has no binary format", field.name());
            return Err(Error::new("42883", message).with_hint("Ask for it as text."));
        }
    }
    Ok(())
}

enum Column {
    Text(ColumnText),
    Binary(ColumnBinary),
}

impl Column {
    fn new(array: &ArrayRef, field: &Field, format: Format) -> Result<Self> {
        Ok(match format {
            Format::Text => Self::Text(ColumnText::new(array)),
            Format::Binary => Self::Binary(ColumnBinary::told(array, wire_type_of(field).oid)?),
        })
    }
}

/// Appends a DataRow message for each of `rows`. `scratch` is memory that is used again and again.
pub(super) fn data_rows(
    batch: &RecordBatch,
    rows: Range<usize>,
    formats: &[Format],
    scratch: &mut String,
    out: &mut BytesMut,
) -> Result<()> {
    let fields = batch.schema_ref().fields().iter();
    let columns = batch.columns().iter().zip(fields).zip(formats);
    let columns = columns
        .map(|((array, field), format)| Column::new(array, field, *format))
        .collect::<Result<Vec<_>>>()?;
    let count = i16::try_from(columns.len())
        .map_err(|_| Error::new("54011", "a result has more columns than the protocol can say"))?;
    for row in rows {
        out.put_u8(b'D');
        let start = out.len();
        out.put_i32(0);
        out.put_i16(count);
        for (column, array) in columns.iter().zip(batch.columns()) {
            let at = out.len();
            out.put_i32(-1);
            let is_there = match column {
                Column::Text(column) => {
                    scratch.clear();
                    let is_there = column.write(row, scratch);
                    out.put_slice(scratch.as_bytes());
                    is_there
                }
                Column::Binary(column) => {
                    let is_there = !array.is_null(row);
                    if is_there {
                        column.write(row, out)?;
                    }
                    is_there
                }
            };
            if is_there {
                put_length(out, at, out.len() - at - 4)?;
            }
        }
        put_length(out, start, out.len() - start)?;
    }
    Ok(())
}
