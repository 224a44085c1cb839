//! Rows as the lines of COPY TO.

use arrow::datatypes::Schema;
use arrow::record_batch::RecordBatch;
use bytes::{BufMut, BytesMut};

use crate::sql::statement::CopyOptions;
use crate::text::ColumnText;

/// Writes lines.
pub struct CopyWriter<'a> {
    options: &'a CopyOptions,
    value: String,
}

impl<'a> CopyWriter<'a> {
    /// In the form that the statement says.
    pub fn new(options: &'a CopyOptions) -> Self {
        Self {
            options,
            value: String::new(),
        }
    }

    /// What writes the values of a batch.
    pub fn rows(&self, batch: &RecordBatch) -> Vec<ColumnText> {
        batch.columns().iter().map(ColumnText::new).collect()
    }

    /// Appends the line with the names of the columns.
    pub fn header(&mut self, schema: &Schema, out: &mut BytesMut) {
        let names: Vec<Option<&str>> = schema
            .fields()
            .iter()
            .map(|field| Some(field.name().as_str()))
            .collect();
        for (index, name) in names.iter().enumerate() {
            self.separate(index, out);
            self.written(*name, names.len() == 1, out);
        }
        out.put_u8(b'\n');
    }

    /// Appends the line of a row.
    pub fn row(&mut self, columns: &[ColumnText], row: usize, out: &mut BytesMut) {
        for (index, column) in columns.iter().enumerate() {
            self.separate(index, out);
            let mut value = std::mem::take(&mut self.value);
            value.clear();
            let is_there = column.write(row, &mut value);
            self.written(is_there.then_some(value.as_str()), columns.len() == 1, out);
            self.value = value;
        }
        out.put_u8(b'\n');
    }

    fn separate(&self, index: usize, out: &mut BytesMut) {
        if index > 0 {
            out.put_u8(self.options.delimiter);
        }
    }

    fn written(&self, value: Option<&str>, is_alone: bool, out: &mut BytesMut) {
        match value {
            None => out.put_slice(self.options.null.as_bytes()),
            Some(value) if self.options.csv => self.csv(value, is_alone, out),
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
    fn csv(&self, value: &str, is_alone: bool, out: &mut BytesMut) {
        let (quote, escape) = (self.options.quote, self.options.escape);
        let is_special =
            |byte: u8| byte == self.options.delimiter || byte == quote || matches!(byte, b'\n' | b'\r');
        let needs_quotes =
            value == self.options.null || value.bytes().any(is_special) || (is_alone && value == "\\.");
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
