//! [`EncodedRows`]: the rows of a delta on their way into arrangements: keys hashed, rows as bytes, by shard.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef};
use arrow::buffer::ScalarBuffer;

use super::hash;
use super::key::{KeyBatch, KeyLayout};
use crate::engine::delta::Delta;
use crate::engine::error::EngineError;

/// Rows ready to be put into arrangements.
#[derive(Debug)]
pub(crate) struct EncodedRows {
    /// Their keys.
    pub(crate) keys: KeyBatch,
    bytes: Vec<u8>,
    /// Where each row ends.
    ends: Vec<usize>,
    weights: Option<ScalarBuffer<i64>>,
    /// The rows of each shard.
    pub(crate) shards: Vec<Vec<u32>>,
}

impl EncodedRows {
    /// The rows of `delta` for `shards` shards: a key of the columns `key_columns`, and the bytes that `append` writes.
    ///
    /// # Errors
    /// Those of `append`, and key columns that are not of the layout.
    pub(crate) fn of(
        (key, key_columns): (&KeyLayout, &[usize]),
        delta: &Delta,
        shards: usize,
        mut append: impl FnMut(usize, &mut Vec<u8>) -> Result<(), EngineError>,
    ) -> Result<Self, EngineError> {
        let columns = key_columns.iter();
        let columns: Vec<ArrayRef> = columns
            .map(|column| Arc::clone(delta.batch.column(*column)))
            .collect();
        let keys = key.batch(&columns)?;
        let rows = delta.num_rows();
        let mut bytes = Vec::with_capacity(rows * (delta.batch.num_columns() + 1) * 9);
        let mut ends = Vec::with_capacity(rows);
        for row in 0..rows {
            append(row, &mut bytes)?;
            ends.push(bytes.len());
        }
        let shards = hash::rows_by_shard(rows, &keys.hashes, shards);
        Ok(Self {
            keys,
            bytes,
            ends,
            weights: delta.weights.clone(),
            shards,
        })
    }

    /// How many rows there are.
    pub(crate) fn num_rows(&self) -> usize {
        self.ends.len()
    }

    /// The bytes of a row.
    #[inline]
    pub(crate) fn row(&self, row: u32) -> &[u8] {
        let row = row as usize;
        let start = if row == 0 { 0 } else { self.ends[row - 1] };
        &self.bytes[start..self.ends[row]]
    }

    /// The weight of a row.
    #[inline]
    pub(crate) fn weight(&self, row: u32) -> i64 {
        self.weights.as_ref().map_or(1, |weights| weights[row as usize])
    }

    /// Takes the rows out of the shards that have a NULL in one of `columns` of `delta`, which is where the rows come from:
    /// those, by shard; nothing if there are none.
    pub(crate) fn take_nulls(&mut self, delta: &Delta, columns: &[usize]) -> Vec<Vec<u32>> {
        let nullable: Vec<_> = columns
            .iter()
            .filter_map(|column| delta.batch.column(*column).nulls())
            .filter(|nulls| nulls.null_count() > 0)
            .collect();
        if nullable.is_empty() {
            return Vec::new();
        }
        let has_null = |row: &u32| nullable.iter().any(|nulls| nulls.is_null(*row as usize));
        let take = |rows: &mut Vec<u32>| {
            let (with, without) = std::mem::take(rows).into_iter().partition(has_null);
            *rows = without;
            with
        };
        self.shards.iter_mut().map(take).collect()
    }
}
