//! The lines of COPY FROM as columns of texts. They come in pieces, cut anywhere.

use super::{CopiedRows, TextRows, context, named_columns};
use crate::binary::utf8;
use crate::sql::statement::{CopyFormat, CopyHeader, CopyOptions};
use crate::{Error, Result};

/// Reads lines.
pub(super) struct LineReader<'a> {
    options: &'a CopyOptions,
    rows: TextRows,
    /// Of each column, whether what stands for NULL is a value there.
    not_null: Vec<bool>,
    /// Of each column, whether what stands for NULL is NULL there in quotes too.
    null_in_quotes: Vec<bool>,
    /// What came and is no whole line yet.
    rest: Vec<u8>,
    /// How much of it was looked at, and whether that ends within quotes.
    looked: (usize, bool),
    /// The last line that was read; values with line breaks have several.
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

impl<'a> LineReader<'a> {
    /// For lines with a value for each column of `rows`.
    pub(super) fn new(options: &'a CopyOptions, rows: TextRows) -> Result<Self> {
        Ok(Self {
            options,
            not_null: named_columns("FORCE_NOT_NULL", &options.force_not_null, &rows.schema)?,
            null_in_quotes: named_columns("FORCE_NULL", &options.force_null, &rows.schema)?,
            rows,
            rest: Vec::new(),
            looked: (0, false),
            line: 0,
            is_over: false,
        })
    }

    pub(super) fn take(&mut self, piece: &[u8]) -> Result<()> {
        if self.is_over {
            return Ok(());
        }
        self.rest.extend_from_slice(piece);
        let mut rest = std::mem::take(&mut self.rest);
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
        // What is left of a long line stays where it is, however many pieces it comes in.
        rest.drain(..from);
        self.rest = rest;
        Ok(())
    }

    /// Where the line ends that starts at `from`.
    fn line_end(&mut self, text: &[u8], from: usize) -> Option<usize> {
        let (looked, mut in_quotes) = self.looked;
        let mut at = from + looked;
        while at < text.len() {
            let byte = text[at];
            if self.options.format == CopyFormat::Csv {
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
        let is_first = self.line == 0;
        self.line += 1;
        if line == b"\\." {
            self.is_over = true;
            return Ok(());
        }
        if self.options.format == CopyFormat::Csv {
            self.line += line.iter().filter(|byte| **byte == b'\n').count() as u64;
        }
        self.record(line, is_first).map_err(|error| {
            let text = String::from_utf8_lossy(line);
            error.with_context(context(&self.rows.table, self.line, None, Some(&text)))
        })
    }

    fn record(&mut self, line: &[u8], is_first: bool) -> Result<()> {
        let is_header = is_first && self.options.header != CopyHeader::None;
        if is_header && self.options.header == CopyHeader::Names {
            return Ok(());
        }
        let fields = match self.options.format {
            CopyFormat::Csv => self.csv(line)?,
            CopyFormat::Text | CopyFormat::Binary => self.text(line),
        };
        if is_header {
            return self.matched(&fields);
        }
        let width = self.rows.columns.len();
        if fields.len() < width {
            let name = fields.len() + 1;
            return Err(broken(format!("missing data for column {name}")));
        }
        if fields.len() > width {
            return Err(broken("extra data after last expected column".to_owned()));
        }
        for (column, field) in self.rows.columns.iter_mut().zip(fields) {
            match field {
                Field::Null => column.append_null(),
                Field::Value(bytes) => {
                    // What cannot be read is not shown.
                    let place =
                        |error: Error| error.with_context(context(&self.rows.table, self.line, None, None));
                    let text = utf8(&bytes).map_err(place)?;
                    column.append_value(text);
                }
            }
        }
        self.rows.row_is_whole(self.line)
    }

    /// Checks that the first line has the names of the columns.
    fn matched(&self, fields: &[Field]) -> Result<()> {
        let names = self.rows.schema.fields();
        if fields.len() != names.len() {
            let message = format!(
                "wrong number of fields in header line: got {}, expected {}",
                fields.len(),
                names.len()
            );
            return Err(broken(message));
        }
        for (place, (field, name)) in fields.iter().zip(names).enumerate() {
            let got = match field {
                Field::Value(bytes) if bytes == name.name().as_bytes() => continue,
                Field::Value(bytes) => format!("\"{}\"", String::from_utf8_lossy(bytes)),
                Field::Null => format!("null value (\"{}\")", self.options.null),
            };
            let message = format!(
                "column name mismatch in header line field {}: got {got}, expected \"{}\"",
                place + 1,
                name.name()
            );
            return Err(broken(message));
        }
        Ok(())
    }

    fn text(&self, line: &[u8]) -> Vec<Field> {
        let mut fields = Vec::with_capacity(self.rows.columns.len());
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
        let mut fields = Vec::with_capacity(self.rows.columns.len());
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
                        return Err(broken("unterminated CSV quoted field".to_owned()));
                    }
                    let value = std::mem::take(&mut value);
                    let has = |flags: &[bool]| flags.get(fields.len()).is_some_and(|flag| *flag);
                    let is_null = match was_quoted {
                        true => has(&self.null_in_quotes),
                        false => !has(&self.not_null),
                    };
                    fields.push(match is_null && value == null.as_bytes() {
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

    pub(super) fn finish(mut self) -> Result<CopiedRows> {
        let rest = std::mem::take(&mut self.rest);
        if !self.is_over && !rest.is_empty() {
            self.one(rest.strip_suffix(b"\r").unwrap_or(&rest))?;
        }
        self.rows.finish()
    }
}

fn broken(message: String) -> Error {
    Error::new("22P04", message)
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
    use std::sync::Arc;

    use arrow::array::AsArray as _;
    use arrow::datatypes::{DataType, Field, Schema};

    use super::*;

    fn rows() -> TextRows {
        let fields = ["a", "b"].map(|name| Field::new(name, DataType::Utf8, true));
        TextRows::new("t", &Arc::new(Schema::new(fields.to_vec())))
    }

    fn read(options: &CopyOptions, text: &str, piece: usize) -> Result<Vec<Vec<Option<String>>>> {
        let mut reader = LineReader::new(options, rows())?;
        for piece in text.as_bytes().chunks(piece) {
            reader.take(piece)?;
        }
        let mut all = Vec::new();
        for batch in reader.finish()?.batches {
            for row in 0..batch.num_rows() {
                let cells = batch.columns().iter().map(|column| {
                    let texts = column.as_string::<i32>();
                    texts.is_valid(row).then(|| texts.value(row).to_owned())
                });
                all.push(cells.collect());
            }
        }
        Ok(all)
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
            header: CopyHeader::Names,
            ..CopyOptions::csv()
        };
        for piece in [1, 2, 3, 7, 1000] {
            assert_eq!(read(&options, text, piece).unwrap(), expected, "{piece}");
        }
    }

    #[test]
    fn lines_with_too_few_or_too_many_values_are_refused() {
        for (text, message, context) in [
            ("1\n", "missing data for column 2", "COPY t, line 1: \"1\""),
            (
                "a\tb\n1\t2\t3\n",
                "extra data after last expected column",
                "COPY t, line 2: \"1\t2\t3\"",
            ),
        ] {
            let error = read(&CopyOptions::text(), text, 100).unwrap_err();
            assert_eq!((error.sqlstate(), error.message()), ("22P04", message));
            assert_eq!(error.context(), Some(context));
        }
        let error = read(&CopyOptions::csv(), "\"a\nb\",1\n1,\"2", 100).unwrap_err();
        assert_eq!(error.message(), "unterminated CSV quoted field");
        assert_eq!(error.context(), Some("COPY t, line 3: \"1,\"2\""));
        let bytes =
            LineReader::new(&CopyOptions::text(), rows()).and_then(|mut reader| reader.take(b"1\t\xff\n"));
        let error = bytes.unwrap_err();
        assert_eq!(
            (error.sqlstate(), error.context()),
            ("22021", Some("COPY t, line 1"))
        );
    }

    #[test]
    fn a_header_may_have_to_match() {
        let options = CopyOptions {
            header: CopyHeader::Match,
            ..CopyOptions::csv()
        };
        assert_eq!(
            read(&options, "a,\"b\"\n1,2\n", 100).unwrap(),
            [row(Some("1"), Some("2"))]
        );
        for (text, message) in [
            ("a\n", "wrong number of fields in header line: got 1, expected 2"),
            (
                "a,B\n",
                "column name mismatch in header line field 2: got \"B\", expected \"b\"",
            ),
            (
                "a,\n",
                "column name mismatch in header line field 2: got null value (\"\"), expected \"b\"",
            ),
        ] {
            assert_eq!(read(&options, text, 100).unwrap_err().message(), message);
        }
    }

    #[test]
    fn columns_may_take_null_as_a_value_and_quotes_as_null() {
        let options = CopyOptions {
            force_not_null: vec!["a".to_owned()],
            force_null: vec!["b".to_owned()],
            ..CopyOptions::csv()
        };
        let expected = [row(Some(""), None), row(Some(""), None)];
        assert_eq!(read(&options, ",\n\"\",\"\"\n", 100).unwrap(), expected);
        let options = CopyOptions {
            force_null: vec!["c".to_owned()],
            ..CopyOptions::csv()
        };
        let error = read(&options, "", 100).unwrap_err();
        assert_eq!(error.message(), "FORCE_NULL column \"c\" not referenced by COPY");
    }
}
