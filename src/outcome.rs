//! What a statement gives back.

use std::sync::Arc;

use arrow::array::{ArrayRef, StringArray};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use arrow::record_batch::{RecordBatch, RecordBatchOptions};

use crate::error::{Error, Result};

/// What the user should know beside the result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Notice {
    /// As a sentence or phrase.
    pub message: String,
}

/// The rows of a query.
#[derive(Debug, Clone)]
pub struct Rows {
    /// Their columns.
    pub schema: SchemaRef,
    /// The rows, in order.
    pub batches: Vec<RecordBatch>,
}

impl Rows {
    /// How many there are.
    #[must_use]
    pub fn num_rows(&self) -> usize {
        self.batches.iter().map(RecordBatch::num_rows).sum()
    }
}

/// What a statement gives back.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// As PostgreSQL's command tags: `CREATE SOURCE`, `SELECT 3`, `INSERT 0 1`.
    pub tag: String,
    /// Rows, if the statement returns any.
    pub rows: Option<Rows>,
    /// What the user should know.
    pub notices: Vec<Notice>,
}

impl Outcome {
    /// A statement without rows.
    pub(crate) fn done(tag: impl Into<String>) -> Self {
        Self {
            tag: tag.into(),
            rows: None,
            notices: Vec::new(),
        }
    }

    /// A statement with rows.
    pub(crate) fn rows(tag: impl Into<String>, rows: Rows) -> Self {
        Self {
            tag: tag.into(),
            rows: Some(rows),
            notices: Vec::new(),
        }
    }

    /// Rows of text columns.
    pub(crate) fn text_rows(tag: &str, columns: &[&str], rows: Vec<Vec<Option<String>>>) -> Result<Self> {
        let fields: Vec<Field> = columns
            .iter()
            .map(|name| Field::new(*name, DataType::Utf8, true))
            .collect();
        let schema = Arc::new(Schema::new(fields));
        let arrays = (0..columns.len()).map(|column| {
            let values = rows.iter().map(|row| row.get(column).cloned().flatten());
            Arc::new(values.collect::<StringArray>()) as ArrayRef
        });
        let options = RecordBatchOptions::new().with_row_count(Some(rows.len()));
        let batch = RecordBatch::try_new_with_options(Arc::clone(&schema), arrays.collect(), &options)
            .map_err(|error| Error::new("XX000", error.to_string()))?;
        Ok(Self::rows(
            tag,
            Rows {
                schema,
                batches: vec![batch],
            },
        ))
    }

    /// Adds notices.
    #[must_use]
    pub(crate) fn with_notices(mut self, notices: Vec<String>) -> Self {
        self.notices
            .extend(notices.into_iter().map(|message| Notice { message }));
        self
    }
}
