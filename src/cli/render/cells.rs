//! The cells of a batch as PostgreSQL's output text.

use arrow::array::{Array as _, ArrayRef};
use arrow::datatypes::DataType;
use arrow::record_batch::RecordBatch;

use crate::text::ColumnText;

/// One column.
pub(super) struct Column {
    array: ArrayRef,
    text: ColumnText,
}

impl Column {
    /// Looks at the type once, not for each value.
    pub(super) fn new(array: &ArrayRef) -> Self {
        Self {
            array: ArrayRef::clone(array),
            text: ColumnText::new(array),
        }
    }

    /// Appends a value; `false`, and nothing appended, for NULL.
    pub(super) fn write(&self, row: usize, text: &mut String) -> bool {
        if self.array.is_null(row) || self.array.data_type() == &DataType::Null {
            return false;
        }
        self.text.write(row, text);
        true
    }
}

/// The columns of a batch.
pub(super) struct Cells(Vec<Column>);

impl Cells {
    /// The cells of a batch.
    pub(super) fn new(batch: &RecordBatch) -> Self {
        Self(batch.columns().iter().map(Column::new).collect())
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
