//! Deltas: changes to a relation as columns plus a weight per row.

use arrow::buffer::ScalarBuffer;
use arrow::compute::concat_batches;
use arrow::datatypes::SchemaRef;
use arrow::error::ArrowError;
use arrow::record_batch::RecordBatch;

/// Rows and how often each is added (+1) or taken away (−1). Absent weights mean that every row is added once: the
/// fast path of append-only inputs.
#[derive(Debug, Clone)]
pub(crate) struct Delta {
    /// The rows.
    pub(crate) batch: RecordBatch,
    /// One weight per row, never zero.
    pub(crate) weights: Option<ScalarBuffer<i64>>,
}

impl Delta {
    /// Rows that are all added once.
    pub(crate) fn inserts(batch: RecordBatch) -> Self {
        Self { batch, weights: None }
    }

    /// Rows with a weight each.
    pub(crate) fn weighted(batch: RecordBatch, weights: ScalarBuffer<i64>) -> Self {
        debug_assert_eq!(batch.num_rows(), weights.len());
        Self {
            batch,
            weights: Some(weights),
        }
    }

    /// Some of its columns, in this order.
    pub(crate) fn project(&self, columns: &[usize]) -> Result<Self, ArrowError> {
        Ok(Self {
            batch: self.batch.project(columns)?,
            weights: self.weights.clone(),
        })
    }

    /// How many rows it has, whatever their weights.
    pub(crate) fn num_rows(&self) -> usize {
        self.batch.num_rows()
    }

    /// The weight of row `row`.
    pub(crate) fn weight(&self, row: usize) -> i64 {
        self.weights.as_ref().map_or(1, |weights| weights[row])
    }

    /// One delta of all rows of several; `None` for no rows at all.
    pub(crate) fn concat(schema: &SchemaRef, deltas: &[Delta]) -> Result<Option<Delta>, ArrowError> {
        let rows: usize = deltas.iter().map(Delta::num_rows).sum();
        if rows == 0 {
            return Ok(None);
        }
        let batch = concat_batches(schema, deltas.iter().map(|delta| &delta.batch))?;
        let weights = deltas.iter().any(|delta| delta.weights.is_some()).then(|| {
            let mut weights = Vec::with_capacity(rows);
            for delta in deltas {
                match &delta.weights {
                    Some(own) => weights.extend_from_slice(own),
                    None => weights.resize(weights.len() + delta.num_rows(), 1),
                }
            }
            ScalarBuffer::from(weights)
        });
        Ok(Some(Delta { batch, weights }))
    }
}
