//! What COPY carries: rows as lines of text or CSV, or in PostgreSQL's binary format. The server and the shell read and write it;
//! `session` has the statement itself.

mod place;
mod read_binary;
mod read_lines;
mod write_binary;
mod write_lines;

use arrow::array::{ArrayRef, StringBuilder};
use arrow::datatypes::{DataType, Schema, SchemaRef};
use arrow::record_batch::RecordBatch;
use bytes::BytesMut;

pub use self::place::CopiedRows;
use self::place::Lines;
pub(crate) use self::place::context;
use self::read_binary::BinaryReader;
use self::read_lines::LineReader;
use self::write_binary::{BinaryRows, TRAILER};
use self::write_lines::LineWriter;
use crate::sql::statement::{CopyFormat, CopyHeader, CopyOptions};
use crate::text::ColumnText;
use crate::{Error, Result};

/// The most that one COPY may bring, in bytes: all of it is one change.
const COPY_BYTES_MAX: usize = 256 << 20;
/// Rows of a batch.
const BATCH_ROWS: usize = 65_536;

/// Reads what COPY FROM brings, in pieces that are cut anywhere, as columns of texts.
pub struct CopyReader<'a> {
    form: ReaderForm<'a>,
    bytes: usize,
}

enum ReaderForm<'a> {
    Lines(LineReader<'a>),
    Binary(BinaryReader),
}

impl<'a> CopyReader<'a> {
    /// For rows with a value for each column of `schema`, for the table of this name; `types` are the types of these values.
    ///
    /// # Errors
    /// Options that name a column which is none of them.
    pub fn new(
        options: &'a CopyOptions,
        table: &str,
        schema: &SchemaRef,
        types: &[DataType],
    ) -> Result<Self> {
        let rows = TextRows::new(table, schema);
        let form = match options.format {
            CopyFormat::Text | CopyFormat::Csv => ReaderForm::Lines(LineReader::new(options, rows)?),
            CopyFormat::Binary => ReaderForm::Binary(BinaryReader::new(rows, types)),
        };
        Ok(Self { form, bytes: 0 })
    }

    /// Takes a piece.
    ///
    /// # Errors
    /// What is no row of this form, with its place; more than one COPY may bring.
    pub fn take(&mut self, piece: &[u8]) -> Result<()> {
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
        match &mut self.form {
            ReaderForm::Lines(lines) => lines.take(piece),
            ReaderForm::Binary(binary) => binary.take(piece),
        }
    }

    /// All rows.
    ///
    /// # Errors
    /// A last row that is none.
    pub fn finish(self) -> Result<CopiedRows> {
        match self.form {
            ReaderForm::Lines(lines) => lines.finish(),
            ReaderForm::Binary(binary) => binary.finish(),
        }
    }
}

/// Rows that were read, as batches of texts.
struct TextRows {
    /// The table that they are for.
    table: String,
    schema: SchemaRef,
    lines: Lines,
    columns: Vec<StringBuilder>,
    rows: usize,
    batches: Vec<RecordBatch>,
}

impl TextRows {
    fn new(table: &str, schema: &SchemaRef) -> Self {
        Self {
            table: table.to_owned(),
            lines: Lines::default(),
            schema: SchemaRef::clone(schema),
            columns: schema.fields().iter().map(|_| StringBuilder::new()).collect(),
            rows: 0,
            batches: Vec::new(),
        }
    }

    /// Notes that each column has the value of one more row, which is on this line.
    fn row_is_whole(&mut self, line: u64) -> Result<()> {
        self.lines.add(line);
        self.rows += 1;
        match self.rows >= BATCH_ROWS {
            true => self.cut(),
            false => Ok(()),
        }
    }

    /// Makes a batch of the rows so far.
    fn cut(&mut self) -> Result<()> {
        let columns = self.columns.iter_mut();
        let columns = columns
            .map(|column| std::sync::Arc::new(column.finish()) as ArrayRef)
            .collect();
        let batch = RecordBatch::try_new(SchemaRef::clone(&self.schema), columns);
        self.batches
            .push(batch.map_err(|error| Error::new("XX000", error.to_string()))?);
        self.rows = 0;
        Ok(())
    }

    fn finish(mut self) -> Result<CopiedRows> {
        if self.rows > 0 {
            self.cut()?;
        }
        Ok(CopiedRows {
            batches: self.batches,
            lines: self.lines,
        })
    }
}

/// Writes what COPY TO gives.
pub struct CopyWriter<'a> {
    options: &'a CopyOptions,
    lines: LineWriter<'a>,
}

/// The values of a batch, to be written row by row.
pub struct CopyRows(RowsForm);

enum RowsForm {
    Lines(Vec<ColumnText>),
    Binary(BinaryRows),
}

impl<'a> CopyWriter<'a> {
    /// For rows of these columns, in the form that the statement says.
    ///
    /// # Errors
    /// Options that name a column which is none of them.
    pub fn new(options: &'a CopyOptions, schema: &Schema) -> Result<Self> {
        let lines = LineWriter::new(options, schema)?;
        if options.format == CopyFormat::Binary {
            write_binary::check(schema)?;
        }
        Ok(Self { options, lines })
    }

    /// Appends what stands before all rows: nothing, the line with the names of the columns, or the header of the binary format.
    pub fn start(&mut self, schema: &Schema, out: &mut BytesMut) {
        match (self.options.format, &self.options.header) {
            (CopyFormat::Binary, _) => write_binary::header(out),
            (_, CopyHeader::None) => {}
            (_, CopyHeader::Names | CopyHeader::Match) => self.lines.header(schema, out),
        }
    }

    /// What writes the values of a batch.
    ///
    /// # Errors
    /// A type that has no binary format.
    pub fn rows(&self, batch: &RecordBatch) -> Result<CopyRows> {
        Ok(CopyRows(match self.options.format {
            CopyFormat::Binary => RowsForm::Binary(BinaryRows::new(batch)?),
            _ => RowsForm::Lines(batch.columns().iter().map(ColumnText::new).collect()),
        }))
    }

    /// Appends a row.
    ///
    /// # Errors
    /// A value that has no binary format: an array whose parts have different lengths.
    pub fn row(&mut self, rows: &CopyRows, row: usize, out: &mut BytesMut) -> Result<()> {
        match &rows.0 {
            RowsForm::Binary(rows) => rows.write(row, out),
            RowsForm::Lines(columns) => {
                self.lines.row(columns, row, out);
                Ok(())
            }
        }
    }

    /// What stands behind all rows.
    #[must_use]
    pub fn end(&self) -> &'static [u8] {
        match self.options.format {
            CopyFormat::Binary => &TRAILER,
            CopyFormat::Text | CopyFormat::Csv => &[],
        }
    }
}

/// Which columns an option names: one flag for each column of `schema`.
fn named_columns(option: &str, names: &[String], schema: &Schema) -> Result<Vec<bool>> {
    let mut flags = vec![false; schema.fields().len()];
    for name in names {
        let Ok(at) = schema.index_of(name) else {
            let message = format!("{option} column \"{name}\" not referenced by COPY");
            return Err(Error::new("42P10", message));
        };
        flags[at] = true;
    }
    Ok(flags)
}
