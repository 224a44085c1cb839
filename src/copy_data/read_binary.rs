//! Rows that come in PostgreSQL's binary format.

use arrow::datatypes::DataType;

use super::{CopiedRows, TextRows, context};
use crate::binary::text_of;
use crate::sql::oids::wire_type;
use crate::{Error, Result};

/// What stands before all rows.
pub(super) const SIGNATURE: &[u8; 11] = b"PGCOPY\n\xff\r\n\0";
/// Bytes of the signature, the flags, and the length of an extension.
const HEADER_BYTES: usize = 19;
/// Flags that a reader must know; PostgreSQL has had one of them, for rows with numbers.
const CRITICAL_FLAGS: u32 = 0xffff_0000;

/// Reads rows.
pub(super) struct BinaryReader {
    rows: TextRows,
    oids: Vec<u32>,
    /// What came and is no whole row yet.
    rest: Vec<u8>,
    at: At,
    row: u64,
}

/// What comes next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum At {
    Header,
    /// Bytes of an extension of the header that are passed over.
    Extension(usize),
    Row,
    /// Nothing: the trailer has come.
    End,
}

impl BinaryReader {
    /// For rows with a value of each of these types.
    pub(super) fn new(rows: TextRows, types: &[DataType]) -> Self {
        Self {
            rows,
            oids: types.iter().map(|data_type| wire_type(data_type).oid).collect(),
            rest: Vec::new(),
            at: At::Header,
            row: 0,
        }
    }

    pub(super) fn take(&mut self, piece: &[u8]) -> Result<()> {
        self.rest.extend_from_slice(piece);
        let mut rest = std::mem::take(&mut self.rest);
        let mut from = 0;
        while let Some(length) = self.part(&rest[from..])? {
            from += length;
        }
        rest.drain(..from);
        self.rest = rest;
        Ok(())
    }

    /// Takes the next part, if all of it is there; gives its length.
    fn part(&mut self, bytes: &[u8]) -> Result<Option<usize>> {
        match self.at {
            At::Header => self.header(bytes),
            At::Extension(length) if bytes.len() < length => Ok(None),
            At::Extension(length) => {
                self.at = At::Row;
                Ok(Some(length))
            }
            At::Row => self.row(bytes),
            At::End if bytes.is_empty() => Ok(None),
            At::End => Err(broken("received copy data after EOF marker")),
        }
    }

    fn header(&mut self, bytes: &[u8]) -> Result<Option<usize>> {
        let known = bytes.len().min(SIGNATURE.len());
        if bytes[..known] != SIGNATURE[..known] {
            return Err(broken("COPY file signature not recognized"));
        }
        let (Some(flags), Some(extension)) = (number(bytes, 11), number(bytes, 15)) else {
            return Ok(None);
        };
        if flags as u32 & CRITICAL_FLAGS != 0 {
            return Err(broken("unrecognized critical flags in COPY file header"));
        }
        let length =
            usize::try_from(extension).map_err(|_| broken("invalid COPY file header (wrong length)"))?;
        self.at = At::Extension(length);
        Ok(Some(HEADER_BYTES))
    }

    /// Takes a row. Nothing of it is kept before all of it is there.
    fn row(&mut self, bytes: &[u8]) -> Result<Option<usize>> {
        let Some(count) = bytes.first_chunk::<2>() else {
            return Ok(None);
        };
        let count = i16::from_be_bytes(*count);
        if count == -1 {
            self.at = At::End;
            return Ok(Some(2));
        }
        let width = self.oids.len();
        if usize::try_from(count) != Ok(width) {
            let message = format!("row field count is {count}, expected {width}");
            return Err(self.on_row(None, broken(&message)));
        }
        let mut values = Vec::with_capacity(width);
        let mut at = 2;
        for place in 0..width {
            let Some(length) = number(bytes, at) else {
                return Ok(None);
            };
            at += 4;
            match usize::try_from(length) {
                Ok(length) => {
                    let Some(value) = bytes.get(at..at + length) else {
                        return Ok(None);
                    };
                    values.push(Some(value));
                    at += length;
                }
                Err(_) if length == -1 => values.push(None),
                Err(_) => return Err(self.on_row(Some(place), broken("invalid field size"))),
            }
        }
        for (place, value) in values.into_iter().enumerate() {
            let text = value.map(|value| text_of(self.oids[place], value)).transpose();
            let text = text.map_err(|error| self.on_row(Some(place), error))?;
            self.rows.columns[place].append_option(text);
        }
        self.row += 1;
        self.rows.row_is_whole(self.row)?;
        Ok(Some(at))
    }

    /// An error in the row that is being read, and in the column at a place.
    fn on_row(&self, place: Option<usize>, error: Error) -> Error {
        let column = place.map(|place| self.rows.schema.field(place).name().as_str());
        error.with_context(context(&self.rows.table, self.row + 1, column, None))
    }

    pub(super) fn finish(self) -> Result<CopiedRows> {
        // PostgreSQL takes a file without a trailer, too, if it ends with a whole row.
        if !self.rest.is_empty() || matches!(self.at, At::Header | At::Extension(1..)) {
            let error = broken("unexpected EOF in COPY data");
            return Err(match self.at {
                At::Row => self.on_row(None, error),
                _ => error,
            });
        }
        self.rows.finish()
    }
}

fn number(bytes: &[u8], at: usize) -> Option<i32> {
    let four = bytes.get(at..at + 4)?;
    four.try_into().ok().map(i32::from_be_bytes)
}

fn broken(message: &str) -> Error {
    Error::new("22P04", message)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{Array as _, AsArray as _};
    use arrow::datatypes::{Field, Schema};

    use super::*;

    /// Two columns: a number and a text.
    fn read(bytes: &[u8], piece: usize) -> Result<Vec<(Option<String>, Option<String>)>> {
        let fields = ["a", "b"].map(|name| Field::new(name, DataType::Utf8, true));
        let rows = TextRows::new("t", &Arc::new(Schema::new(fields.to_vec())));
        let mut reader = BinaryReader::new(rows, &[DataType::Int32, DataType::Utf8]);
        bytes.chunks(piece).try_for_each(|piece| reader.take(piece))?;
        let mut rows = Vec::new();
        for batch in reader.finish()?.batches {
            let text = |column: usize, row: usize| {
                let texts = batch.column(column).as_string::<i32>();
                texts.is_valid(row).then(|| texts.value(row).to_owned())
            };
            rows.extend((0..batch.num_rows()).map(|row| (text(0, row), text(1, row))));
        }
        Ok(rows)
    }

    fn file(rows: &[u8]) -> Vec<u8> {
        [SIGNATURE.as_slice(), &[0, 0, 0, 0, 0, 0, 0, 2, 9, 9], rows].concat()
    }

    const ROW: &[u8] = &[0, 2, 0, 0, 0, 4, 0, 0, 0, 7, 0, 0, 0, 1, b'x'];
    const NULLS: &[u8] = &[0, 2, 255, 255, 255, 255, 255, 255, 255, 255];

    #[test]
    fn rows_are_read_however_they_are_cut() {
        let expected = vec![(Some("7".to_owned()), Some("x".to_owned())), (None, None)];
        for piece in [1, 2, 3, 7, 1000] {
            let whole = file(&[ROW, NULLS, &[255, 255]].concat());
            assert_eq!(read(&whole, piece).unwrap(), expected, "{piece}");
            assert_eq!(read(&file(&[ROW, NULLS].concat()), piece).unwrap(), expected);
        }
    }

    #[test]
    fn what_is_no_such_file_is_refused() {
        for (bytes, message, context) in [
            (b"PGCOPX\n".to_vec(), "COPY file signature not recognized", None),
            (b"PGCO".to_vec(), "unexpected EOF in COPY data", None),
            (
                file(&[ROW, &[255, 255], ROW].concat()),
                "received copy data after EOF marker",
                None,
            ),
            (
                file(&ROW[..9]),
                "unexpected EOF in COPY data",
                Some("COPY t, line 1"),
            ),
            (
                file(&[ROW, &[0, 1]].concat()),
                "row field count is 1, expected 2",
                Some("COPY t, line 2"),
            ),
            (
                file(&[0, 2, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0]),
                "incorrect binary data format",
                Some("COPY t, line 1, column a"),
            ),
            (
                file(&[ROW, &[0, 2, 0, 0, 0, 4, 0, 0, 0, 7, 255, 255, 255, 254]].concat()),
                "invalid field size",
                Some("COPY t, line 2, column b"),
            ),
        ] {
            let error = read(&bytes, 1000).unwrap_err();
            assert_eq!(error.message(), message);
            assert_eq!(error.context(), context, "{message}");
        }
    }
}
