//! The cells of a batch as PostgreSQL's output text.

use arrow::datatypes::DataType;
use arrow::record_batch::RecordBatch;

use crate::text::ColumnText;

/// The columns of a batch.
pub(super) struct Cells(Vec<ColumnText>);

impl Cells {
    /// The cells of a batch.
    pub(super) fn new(batch: &RecordBatch) -> Self {
        Self(batch.columns().iter().map(ColumnText::new).collect())
    }

    /// How many columns there are.
    pub(super) fn columns(&self) -> usize {
        self.0.len()
    }

    /// Appends a cell; `false`, and nothing appended, for NULL.
    pub(super) fn write(&self, column: usize, row: usize, text: &mut String) -> bool {
        self.0[column].write(row, text)
    }
}

/// Whether psql aligns values of this type to the right.
pub(super) fn aligns_right(data_type: &DataType) -> bool {
    data_type.is_numeric()
}
