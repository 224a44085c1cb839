//! [`Log`]: rows that were appended since the last checkpoint, as the batches in which they came.

use std::sync::Arc;

use arrow::record_batch::RecordBatch;
use highwater_storage::CheckpointWriter;

use super::HeldParts;
use super::format::{ROW_TAG, ViewFormat};
use crate::engine::error::EngineError;

/// Appended rows. They are encoded when they are written, not before.
#[derive(Debug, Clone, Default)]
pub(super) struct Log {
    chunks: Vec<Arc<Chunk>>,
}

/// Rows with consecutive sequences.
#[derive(Debug)]
pub(super) struct Chunk {
    /// The sequence of the first.
    pub(super) first_sequence: u64,
    /// The rows, with the view's schema.
    pub(super) batch: RecordBatch,
}

impl Chunk {
    /// Its rows from a sequence on, if it has any.
    pub(super) fn starting_at(&self, sequence: u64) -> Option<RecordBatch> {
        let skipped = sequence.saturating_sub(self.first_sequence);
        let skipped = usize::try_from(skipped).unwrap_or(usize::MAX);
        let rows = self
            .batch
            .num_rows()
            .checked_sub(skipped)
            .filter(|rows| *rows > 0)?;
        Some(self.batch.slice(skipped, rows))
    }
}

impl Log {
    /// Appends rows from the sequence `next_sequence` on; gives the sequence behind them.
    pub(super) fn append(&mut self, next_sequence: u64, batch: RecordBatch) -> u64 {
        let rows = batch.num_rows() as u64;
        self.chunks.push(Arc::new(Chunk {
            first_sequence: next_sequence,
            batch,
        }));
        next_sequence + rows
    }

    /// Takes over the rows of `newer`, which follow these.
    pub(super) fn absorb(&mut self, newer: Self) {
        self.chunks.extend(newer.chunks);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.chunks.is_empty()
    }

    /// Bytes of memory that the batches take; memory that they share is counted for each.
    pub(super) fn bytes(&self) -> usize {
        let batches = self.chunks.iter().map(|chunk| &chunk.batch);
        batches.map(RecordBatch::get_array_memory_size).sum()
    }

    /// Adds its batches.
    pub(super) fn hold(&self, held: &mut HeldParts) {
        for chunk in &self.chunks {
            held.add(chunk, chunk.batch.get_array_memory_size());
        }
    }

    /// The rows in order.
    pub(super) fn chunks(&self) -> &[Arc<Chunk>] {
        &self.chunks
    }

    /// Adds the rows to a checkpoint.
    ///
    /// # Errors
    /// Columns that do not fit the view (internal).
    pub(super) fn write(
        &self,
        format: &ViewFormat,
        writer: &mut CheckpointWriter,
    ) -> Result<(), EngineError> {
        let mut value = Vec::new();
        for chunk in &self.chunks {
            let columns = format.value_columns(&chunk.batch);
            let encoder = format.rows.encoder(&columns)?;
            for row in 0..chunk.batch.num_rows() {
                value.clear();
                encoder.append(row, &mut value);
                writer.put_view(format.object, &row_key(chunk.first_sequence + row as u64), &value);
            }
        }
        Ok(())
    }
}

/// The key of a row, behind its object.
fn row_key(sequence: u64) -> [u8; 9] {
    let mut key = [ROW_TAG; 9];
    key[1..].copy_from_slice(&sequence.to_be_bytes());
    key
}
