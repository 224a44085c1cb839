//! Rows as the lines of COPY TO.

use arrow::datatypes::Schema;
use bytes::{BufMut, BytesMut};

use super::named_columns;
use crate::Result;
use crate::sql::statement::{CopyFormat, CopyOptions, ForceQuote};
use crate::text::ColumnText;

/// Writes lines.
pub(super) struct LineWriter<'a> {
    options: &'a CopyOptions,
    /// Of each column, whether its values stand in quotes always.
    quoted: Vec<bool>,
    value: String,
}

impl<'a> LineWriter<'a> {
    /// For rows of these columns, in the form that the statement says.
    pub(super) fn new(options: &'a CopyOptions, schema: &Schema) -> Result<Self> {
        Ok(Self {
            options,
            quoted: match &options.force_quote {
                ForceQuote::All => vec![true; schema.fields().len()],
                ForceQuote::Columns(names) => named_columns("FORCE_QUOTE", names, schema)?,
            },
            value: String::new(),
        })
    }

    /// Appends the line with the names of the columns.
    pub(super) fn header(&mut self, schema: &Schema, out: &mut BytesMut) {
        let names: Vec<Option<&str>> = schema
            .fields()
            .iter()
            .map(|field| Some(field.name().as_str()))
            .collect();
        for (index, name) in names.iter().enumerate() {
            self.separate(index, out);
            self.written(*name, (names.len() == 1, false), out);
        }
        out.put_u8(b'\n');
    }

    /// Appends the line of a row.
    pub(super) fn row(&mut self, columns: &[ColumnText], row: usize, out: &mut BytesMut) {
        for (index, column) in columns.iter().enumerate() {
            self.separate(index, out);
            let mut value = std::mem::take(&mut self.value);
            value.clear();
            let is_there = column.write(row, &mut value);
            let how = (columns.len() == 1, self.quoted[index]);
            self.written(is_there.then_some(value.as_str()), how, out);
            self.value = value;
        }
        out.put_u8(b'\n');
    }

    fn separate(&self, index: usize, out: &mut BytesMut) {
        if index > 0 {
            out.put_u8(self.options.delimiter);
        }
    }

    /// Writes a value, which stands alone in its line or not, and in quotes or as it needs.
    fn written(&self, value: Option<&str>, how: (bool, bool), out: &mut BytesMut) {
        match value {
            None => out.put_slice(self.options.null.as_bytes()),
            Some(value) if self.options.format == CopyFormat::Csv => self.csv(value, how, out),
            Some(value) => self.text(value, out),
        }
    }

    fn text(&self, value: &str, out: &mut BytesMut) {
        for byte in value.bytes() {
            let escaped = match byte {
                b'\\' => b'\\',
                0x08 => b'b',
                0x0c => b'f',
                b'\n' => b'n',
                b'\r' => b'r',
                b'\t' => b't',
                0x0b => b'v',
                byte if byte == self.options.delimiter => byte,
                byte => {
                    out.put_u8(byte);
                    continue;
                }
            };
            out.put_u8(b'\\');
            out.put_u8(escaped);
        }
    }

    /// A value that reads back as it is: in quotes where it would be taken for something else.
    fn csv(&self, value: &str, (is_alone, in_quotes): (bool, bool), out: &mut BytesMut) {
        let (quote, escape) = (self.options.quote, self.options.escape);
        let is_special =
            |byte: u8| byte == self.options.delimiter || byte == quote || matches!(byte, b'\n' | b'\r');
        let needs_quotes = in_quotes
            || value == self.options.null
            || value.bytes().any(is_special)
            || (is_alone && value == "\\.");
        if !needs_quotes {
            out.put_slice(value.as_bytes());
            return;
        }
        out.put_u8(quote);
        for byte in value.bytes() {
            if byte == quote || byte == escape {
                out.put_u8(escape);
            }
            out.put_u8(byte);
        }
        out.put_u8(quote);
    }
}
