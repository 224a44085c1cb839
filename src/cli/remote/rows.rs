//! Rows of texts, as the server sends them, in columns.

use std::sync::Arc;

use arrow::array::{
    ArrayBuilder, ArrayRef, BooleanBuilder, Float32Builder, Float64Builder, Int16Builder, Int32Builder,
    Int64Builder, StringBuilder,
};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use arrow::record_batch::{RecordBatch, RecordBatchOptions};
use fallible_iterator::FallibleIterator as _;
use postgres_protocol::message::backend::{DataRowBody, RowDescriptionBody};

use super::connection::unreadable;
use crate::Error;
use crate::cli::render::{Element, Meaning};
use crate::sql::oids::element_of;

/// Columns that fill with rows.
pub(super) struct Columns {
    schema: SchemaRef,
    columns: Vec<Column>,
    rows: usize,
}

/// A column of values whose type the shell knows, or of texts.
enum Column {
    Boolean(BooleanBuilder),
    Int16(Int16Builder),
    Int32(Int32Builder),
    Int64(Int64Builder),
    Float32(Float32Builder),
    Float64(Float64Builder),
    Text(StringBuilder),
}

impl Columns {
    /// Columns as the server describes them.
    pub(super) fn of(description: &RowDescriptionBody) -> Result<Self, Error> {
        let (mut fields, mut columns) = (Vec::new(), Vec::new());
        let mut described = description.fields();
        while let Some(field) = described.next().map_err(unreadable)? {
            let (data_type, column, meaning) = column(field.type_oid());
            let field = Field::new(field.name(), data_type, true);
            fields.push(match meaning {
                Some(meaning) => meaning.mark(field),
                None => field,
            });
            columns.push(column);
        }
        Ok(Self {
            schema: Arc::new(Schema::new(fields)),
            columns,
            rows: 0,
        })
    }

    /// Their names and types.
    pub(super) fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// How many rows they have.
    pub(super) fn rows(&self) -> usize {
        self.rows
    }

    /// Adds a row.
    pub(super) fn push(&mut self, row: &DataRowBody) -> Result<(), Error> {
        let mut ranges = row.ranges();
        for column in &mut self.columns {
            let cell = ranges.next().map_err(unreadable)?.flatten();
            let text = cell
                .map(|range| std::str::from_utf8(&row.buffer()[range]))
                .transpose()
                .map_err(|error| unreadable(std::io::Error::other(error)))?;
            column.push(text)?;
        }
        self.rows += 1;
        Ok(())
    }

    /// Takes the rows out.
    pub(super) fn take(&mut self) -> Result<RecordBatch, Error> {
        let arrays = self.columns.iter_mut().map(Column::finish).collect();
        let rows = std::mem::take(&mut self.rows);
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        RecordBatch::try_new_with_options(Arc::clone(&self.schema), arrays, &options)
            .map_err(|error| Error::new("XX000", error.to_string()))
    }
}

/// What holds values of a type, by its number in `pg_type`, and how its texts meaning.
fn column(oid: u32) -> (DataType, Column, Option<Meaning>) {
    let text = |meaning| (DataType::Utf8, Column::Text(StringBuilder::new()), meaning);
    match oid {
        16 => (DataType::Boolean, Column::Boolean(BooleanBuilder::new()), None),
        20 => (DataType::Int64, Column::Int64(Int64Builder::new()), None),
        21 => (DataType::Int16, Column::Int16(Int16Builder::new()), None),
        23 => (DataType::Int32, Column::Int32(Int32Builder::new()), None),
        700 => (DataType::Float32, Column::Float32(Float32Builder::new()), None),
        701 => (DataType::Float64, Column::Float64(Float64Builder::new()), None),
        26 | 1700 => text(Some(Meaning::Number)),
        114 | 3802 => text(Some(Meaning::Document)),
        1114 => text(Some(Meaning::Instant { zoned: false })),
        1184 => text(Some(Meaning::Instant { zoned: true })),
        // What the fields of rows are, no server says.
        2287 => text(None),
        other => text(element_of(other).map(|of| Meaning::Array(element(of)))),
    }
}

/// What the elements of an array are, by the number of their type.
fn element(oid: u32) -> Element {
    match oid {
        16 => Element::Boolean,
        20 | 21 | 23 | 26 | 700 | 701 | 1700 => Element::Number,
        114 | 3802 => Element::Document,
        1114 => Element::Instant { zoned: false },
        1184 => Element::Instant { zoned: true },
        _ => Element::Text,
    }
}

impl Column {
    fn push(&mut self, text: Option<&str>) -> Result<(), Error> {
        fn read<T: std::str::FromStr>(text: Option<&str>) -> Result<Option<T>, Error> {
            let wrong = |text| unreadable(std::io::Error::other(format!("\"{text}\" is not of its type")));
            text.map(|text| text.parse().map_err(|_| wrong(text))).transpose()
        }
        match self {
            Self::Boolean(builder) => builder.append_option(text.map(|text| text == "t")),
            Self::Int16(builder) => builder.append_option(read(text)?),
            Self::Int32(builder) => builder.append_option(read(text)?),
            Self::Int64(builder) => builder.append_option(read(text)?),
            Self::Float32(builder) => builder.append_option(read(text)?),
            Self::Float64(builder) => builder.append_option(read(text)?),
            Self::Text(builder) => builder.append_option(text),
        }
        Ok(())
    }

    fn finish(&mut self) -> ArrayRef {
        match self {
            Self::Boolean(builder) => ArrayBuilder::finish(builder),
            Self::Int16(builder) => ArrayBuilder::finish(builder),
            Self::Int32(builder) => ArrayBuilder::finish(builder),
            Self::Int64(builder) => ArrayBuilder::finish(builder),
            Self::Float32(builder) => ArrayBuilder::finish(builder),
            Self::Float64(builder) => ArrayBuilder::finish(builder),
            Self::Text(builder) => ArrayBuilder::finish(builder),
        }
    }
}
