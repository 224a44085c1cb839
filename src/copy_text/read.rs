//! The lines of COPY FROM as columns of texts. They come in pieces, cut anywhere.

use std::sync::Arc;

use arrow::array::{ArrayRef, StringBuilder};
use arrow::datatypes::SchemaRef;
use arrow::record_batch::RecordBatch;

use super::utf8;
use crate::sql::statement::CopyOptions;
use crate::{Error, Result};

/// The most that one COPY may bring, in bytes: all of it is one change.
const COPY_BYTES_MAX: usize = 256 << 20;
/// Rows of a batch.
const BATCH_ROWS: usize = 65_536;

/// Reads lines.
pub struct CopyReader<'a> {
    options: &'a CopyOptions,
    schema: SchemaRef,
    columns: Vec<StringBuilder>,
    rows: usize,
    batches: Vec<RecordBatch>,
    /// What came and is no whole line yet.
    rest: Vec<u8>,
    /// How much of it was looked at, and whether that ends within quotes.
    looked: (usize, bool),
    bytes: usize,
    line: u64,
    /// The line that says the end has come.
    is_over: bool,
}

/// A value of a line.
#[derive(Debug, PartialEq, Eq)]
enum Field {
    Null,
    Value(Vec<u8>),
}

impl<'a> CopyReader<'a> {
    /// For lines with a value for each column of `schema`.
    pub fn new(options: &'a CopyOptions, schema: &SchemaRef) -> Self {
        Self {
            options,
            schema: Arc::clone(schema),
            columns: schema.fields().iter().map(|_| StringBuilder::new()).collect(),
            rows: 0,
            batches: Vec::new(),
            rest: Vec::new(),
            looked: (0, false),
            bytes: 0,
            line: 0,
            is_over: false,
        }
    }

    /// Takes a piece.
    ///
    /// # Errors
    /// A line that is none, or more than one COPY may bring.
    pub fn take(&mut self, piece: &[u8]) -> Result<()> {
        if self.is_over {
            return Ok(());
        }
        self.bytes += piece.len();
        if self.bytes > COPY_BYTES_MAX {
            let message = format!(
                "a COPY of more than {} MiB is not supported",
                COPY_BYTES_MAX >> 20
            );
            return Err(Error::new("54000", message)
                .with_detail("All of its rows become visible at once.")
                .with_hint("Cut it into several."));
        }
        self.rest.extend_from_slice(piece);
        let rest = std::mem::take(&mut self.rest);
        let mut from = 0;
        while let Some(end) = self.line_end(&rest, from) {
            self.looked = (0, false);
            let mut line = &rest[from..end];
            if line.last() == Some(&b'\r') {
                line = &line[..line.len() - 1];
            }
            self.one(line)?;
            from = end + 1;
            if self.is_over {
                return Ok(());
            }
        }
        self.rest = rest[from..].to_vec();
        Ok(())
    }

    /// Where the line ends that starts at `from`.
    fn line_end(&mut self, text: &[u8], from: usize) -> Option<usize> {
        let (looked, mut in_quotes) = self.looked;
        let mut at = from + looked;
        while at < text.len() {
            let byte = text[at];
            if self.options.csv {
                // Doubled quotes go out and in again; another escape hides the byte behind it.
                if in_quotes && byte == self.options.escape && self.options.escape != self.options.quote {
                    if at + 1 >= text.len() {
                        break;
                    }
                    at += 2;
                    continue;
                }
                if byte == self.options.quote {
                    in_quotes = !in_quotes;
                }
            } else if byte == b'\\' {
                if at + 1 >= text.len() {
                    break;
                }
                at += 2;
                continue;
            }
            if byte == b'\n' && !in_quotes {
                return Some(at);
            }
            at += 1;
        }
        self.looked = (at - from, in_quotes);
        None
    }

    fn one(&mut self, line: &[u8]) -> Result<()> {
        self.line += 1;
        if line == b"\\." {
            self.is_over = true;
            return Ok(());
        }
        if self.line == 1 && self.options.header {
            return Ok(());
        }
        let fields = match self.options.csv {
            true => self.csv(line)?,
            false => self.text(line),
        };
        let width = self.columns.len();
        if fields.len() < width {
            let name = fields.len() + 1;
            return Err(self.error("22P04", format!("missing data for column {name}")));
        }
        if fields.len() > width {
            return Err(self.error("22P04", "extra data after last expected column".to_owned()));
        }
        let line = self.line;
        for (column, field) in self.columns.iter_mut().zip(fields) {
            match field {
                Field::Null => column.append_null(),
                Field::Value(bytes) => {
                    let text = utf8(&bytes).map_err(|error| on_line(error, line))?;
                    column.append_value(text);
                }
            }
        }
        self.rows += 1;
        match self.rows >= BATCH_ROWS {
            true => self.cut(),
            false => Ok(()),
        }
    }

    fn text(&self, line: &[u8]) -> Vec<Field> {
        let mut fields = Vec::with_capacity(self.columns.len());
        let mut start = 0;
        let mut at = 0;
        loop {
            match line.get(at) {
                Some(b'\\') => at += 2,
                Some(byte) if *byte != self.options.delimiter => at += 1,
                end => {
                    let raw = &line[start..at.min(line.len())];
                    fields.push(match raw == self.options.null.as_bytes() {
                        true => Field::Null,
                        false => Field::Value(unescaped(raw)),
                    });
                    if end.is_none() {
                        return fields;
                    }
                    at += 1;
                    start = at;
                }
            }
        }
    }

    fn csv(&self, line: &[u8]) -> Result<Vec<Field>> {
        let CopyOptions {
            quote,
            escape,
            delimiter,
            null,
            ..
        } = self.options;
        let mut fields = Vec::with_capacity(self.columns.len());
        let (mut value, mut was_quoted, mut in_quotes) = (Vec::new(), false, false);
        let mut bytes = line.iter().copied().peekable();
        loop {
            let next = bytes.next();
            match next {
                Some(byte) if in_quotes => {
                    let next = bytes.peek().copied();
                    if byte == *escape && next.is_some_and(|next| next == *quote || next == *escape) {
                        value.extend(next);
                        bytes.next();
                    } else if byte == *quote {
                        in_quotes = false;
                    } else {
                        value.push(byte);
                    }
                }
                Some(byte) if byte == *quote => {
                    in_quotes = true;
                    was_quoted = true;
                }
                Some(byte) if byte != *delimiter => value.push(byte),
                end => {
                    if in_quotes {
                        return Err(self.error("22P04", "unterminated CSV quoted field".to_owned()));
                    }
                    let value = std::mem::take(&mut value);
                    fields.push(match !was_quoted && value == null.as_bytes() {
                        true => Field::Null,
                        false => Field::Value(value),
                    });
                    was_quoted = false;
                    if end.is_none() {
                        return Ok(fields);
                    }
                }
            }
        }
    }

    fn error(&self, state: &'static str, message: String) -> Error {
        on_line(Error::new(state, message), self.line)
    }

    /// Makes a batch of the rows so far.
    fn cut(&mut self) -> Result<()> {
        let columns = self.columns.iter_mut();
        let columns = columns
            .map(|column| Arc::new(column.finish()) as ArrayRef)
            .collect();
        let batch = RecordBatch::try_new(Arc::clone(&self.schema), columns);
        self.batches
            .push(batch.map_err(|error| Error::new("XX000", error.to_string()))?);
        self.rows = 0;
        Ok(())
    }

    /// All rows.
    ///
    /// # Errors
    /// A last line that is none.
    pub fn finish(mut self) -> Result<Vec<RecordBatch>> {
        let rest = std::mem::take(&mut self.rest);
        if !self.is_over && !rest.is_empty() {
            self.one(rest.strip_suffix(b"\r").unwrap_or(&rest))?;
        }
        if self.rows > 0 {
            self.cut()?;
        }
        Ok(self.batches)
    }
}

fn on_line(error: Error, line: u64) -> Error {
    error.with_detail(format!("It is on line {line} of the COPY."))
}

/// A value of the text format without its backslashes.
fn unescaped(raw: &[u8]) -> Vec<u8> {
    let mut value = Vec::with_capacity(raw.len());
    let mut at = 0;
    let number = |from: usize, digits: usize, radix: u32| {
        let text = raw[from..].iter().take(digits);
        let text: String = text
            .take_while(|byte| char::from(**byte).is_digit(radix))
            .map(|byte| char::from(*byte))
            .collect();
        let number = u32::from_str_radix(&text, radix).ok()?;
        Some(((number & 0xff) as u8, text.len()))
    };
    while at < raw.len() {
        if raw[at] != b'\\' || at + 1 == raw.len() {
            value.push(raw[at]);
            at += 1;
            continue;
        }
        at += 1;
        let (byte, length) = match raw[at] {
            b'b' => (0x08, 1),
            b'f' => (0x0c, 1),
            b'n' => (b'\n', 1),
            b'r' => (b'\r', 1),
            b't' => (b'\t', 1),
            b'v' => (0x0b, 1),
            b'0'..=b'7' => number(at, 3, 8).unwrap_or((raw[at], 1)),
            b'x' => number(at + 1, 2, 16).map_or((b'x', 1), |(byte, length)| (byte, length + 1)),
            other => (other, 1),
        };
        value.push(byte);
        at += length;
    }
    value
}

#[cfg(test)]
mod tests {
    use arrow::array::AsArray as _;
    use arrow::datatypes::{DataType, Field, Schema};

    use super::*;

    fn read(options: &CopyOptions, text: &str, piece: usize) -> Result<Vec<Vec<Option<String>>>> {
        let fields = ["a", "b"].map(|name| Field::new(name, DataType::Utf8, true));
        let schema = Arc::new(Schema::new(fields.to_vec()));
        let mut reader = CopyReader::new(options, &schema);
        for piece in text.as_bytes().chunks(piece) {
            reader.take(piece)?;
        }
        let mut rows = Vec::new();
        for batch in reader.finish()? {
            for row in 0..batch.num_rows() {
                let cells = batch.columns().iter().map(|column| {
                    let texts = column.as_string::<i32>();
                    texts.is_valid(row).then(|| texts.value(row).to_owned())
                });
                rows.push(cells.collect());
            }
        }
        Ok(rows)
    }

    use arrow::array::Array as _;

    fn row(a: Option<&str>, b: Option<&str>) -> Vec<Option<String>> {
        vec![a.map(str::to_owned), b.map(str::to_owned)]
    }

    #[test]
    fn lines_of_text_are_read_however_they_are_cut() {
        let text = "1\t\\N\r\na\\tb\\\\\tx\\x41\\101\\q\n\t\\\\N\nlast\tline\\\nbreak\n\\.\nignored";
        let expected = [
            row(Some("1"), None),
            row(Some("a\tb\\"), Some("xAAq")),
            row(Some(""), Some("\\N")),
            row(Some("last"), Some("line\nbreak")),
        ];
        for piece in [1, 2, 3, 7, 1000] {
            assert_eq!(
                read(&CopyOptions::text(), text, piece).unwrap(),
                expected,
                "{piece}"
            );
        }
    }

    #[test]
    fn lines_of_csv_are_read_however_they_are_cut() {
        let text = "a,b\n1,\n\"x \"\"y\"\"\",\"two\nlines, and more\"\n\"\",plain \"quoted\" rest\nlast,one";
        let expected = [
            row(Some("1"), None),
            row(Some("x \"y\""), Some("two\nlines, and more")),
            row(Some(""), Some("plain quoted rest")),
            row(Some("last"), Some("one")),
        ];
        let options = CopyOptions {
            header: true,
            ..CopyOptions::csv()
        };
        for piece in [1, 2, 3, 7, 1000] {
            assert_eq!(read(&options, text, piece).unwrap(), expected, "{piece}");
        }
    }

    #[test]
    fn lines_with_too_few_or_too_many_values_are_refused() {
        for (text, message) in [
            ("1\n", "missing data for column 2"),
            ("1\t2\t3\n", "extra data after last expected column"),
        ] {
            let error = read(&CopyOptions::text(), text, 100).unwrap_err();
            assert_eq!((error.sqlstate(), error.message()), ("22P04", message));
            assert_eq!(error.detail(), Some("It is on line 1 of the COPY."));
        }
        let error = read(&CopyOptions::csv(), "1,\"2", 100).unwrap_err();
        assert_eq!(error.message(), "unterminated CSV quoted field");
    }
}
