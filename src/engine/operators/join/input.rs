//! [`Prepared`]: a delta on its way into the shards: late rows dropped, keys hashed, rows as they are kept.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, PrimitiveArray};
use arrow::buffer::ScalarBuffer;
use arrow::datatypes::TimestampMicrosecondType;

use super::layout::{Layout, Side};
use crate::engine::delta::Delta;
use crate::engine::error::EngineError;
use crate::engine::operators::state::key::KeyBatch;
use crate::engine::operators::state::{arrangement, hash, values};
use crate::engine::operators::stateless;

/// Rows ready to be joined.
#[derive(Debug)]
pub(super) struct Prepared {
    /// Which input they are of.
    pub(super) side: usize,
    /// Their keys.
    pub(super) keys: KeyBatch,
    bytes: Vec<u8>,
    /// Where each row ends.
    ends: Vec<usize>,
    weights: Option<ScalarBuffer<i64>>,
    /// The rows of each shard.
    pub(super) shards: Vec<Vec<u32>>,
    /// Rows of each shard that match nothing because their key has a NULL; only of sides that show them.
    pub(super) unmatched: Vec<Vec<u32>>,
}

impl Prepared {
    /// Prepares a delta of input `side` for `shards` shards. Rows that both watermarks passed at `closed_to` (µs) are late
    /// and dropped.
    ///
    /// # Errors
    /// Columns that are not of the planned types.
    pub(super) fn of(
        layout: &Layout,
        side: usize,
        delta: &Delta,
        closed_to: Option<i64>,
        shards: usize,
    ) -> Result<Self, EngineError> {
        let own = &layout.sides[side];
        let in_time = match (own.times.late, closed_to) {
            (Some((column, add_us)), Some(closed_to)) => {
                stateless::in_time(delta, column, closed_to.saturating_sub(add_us))?
            }
            _ => None,
        };
        let delta = in_time.as_ref().unwrap_or(delta);
        let column = |at: &usize| Arc::clone(delta.batch.column(*at));
        let keys: Vec<ArrayRef> = own.key_columns.iter().map(column).collect();
        let keys = layout.key.batch(&keys)?;
        let (bytes, ends) = encode(own, delta)?;
        let by_shard = hash::rows_by_shard(delta.num_rows(), &keys.hashes, shards);
        let (shards, unmatched) = without_nulls(own, delta, by_shard);
        Ok(Self {
            side,
            keys,
            bytes,
            ends,
            weights: delta.weights.clone(),
            shards,
            unmatched,
        })
    }

    /// How many rows there are.
    pub(super) fn num_rows(&self) -> usize {
        self.ends.len()
    }

    /// The bytes of a row.
    #[inline]
    pub(super) fn row(&self, row: u32) -> &[u8] {
        let row = row as usize;
        let start = if row == 0 { 0 } else { self.ends[row - 1] };
        &self.bytes[start..self.ends[row]]
    }

    /// The weight of a row.
    #[inline]
    pub(super) fn weight(&self, row: u32) -> i64 {
        self.weights.as_ref().map_or(1, |weights| weights[row as usize])
    }
}

fn times(delta: &Delta, column: usize) -> Result<&PrimitiveArray<TimestampMicrosecondType>, EngineError> {
    let column = delta.batch.column(column).as_primitive_opt();
    column.ok_or_else(|| EngineError::internal("a join closes by a column that is no time"))
}

/// The stored columns of all rows as bytes. Rows that SQL takes for equal have equal bytes.
fn encode(side: &Side, delta: &Delta) -> Result<(Vec<u8>, Vec<usize>), EngineError> {
    let columns: Vec<ArrayRef> = side
        .stored
        .iter()
        .map(|column| values::plain_floats(delta.batch.column(*column)))
        .collect();
    let encoder = side.codec.encoder(&columns)?;
    let rows = delta.num_rows();
    let (mut bytes, mut ends) = (
        Vec::with_capacity(rows * columns.len() * 9),
        Vec::with_capacity(rows),
    );
    let leading = match side.times.expiry {
        Some((column, _)) => Some(times(delta, column)?),
        None => None,
    };
    for row in 0..rows {
        if let Some(times) = leading {
            arrangement::put_time(&mut bytes, times.is_valid(row).then(|| times.value(row)));
        }
        encoder.append(row, &mut bytes);
        ends.push(bytes.len());
    }
    Ok((bytes, ends))
}

/// Rows by shard without those that match nothing because of a NULL in their key; and those, if the side shows them.
fn without_nulls(side: &Side, delta: &Delta, by_shard: Vec<Vec<u32>>) -> (Vec<Vec<u32>>, Vec<Vec<u32>>) {
    let nullable: Vec<_> = side
        .not_null
        .iter()
        .filter_map(|column| delta.batch.column(*column).nulls())
        .filter(|nulls| nulls.null_count() > 0)
        .collect();
    if nullable.is_empty() {
        return (by_shard, Vec::new());
    }
    let matches_nothing = |row: &u32| nullable.iter().any(|nulls| nulls.is_null(*row as usize));
    let mut unmatched = Vec::new();
    let shards = by_shard.into_iter().map(|rows| {
        let (without, with): (Vec<u32>, Vec<u32>) = rows.into_iter().partition(matches_nothing);
        if side.shows_unmatched {
            unmatched.push(without);
        }
        with
    });
    let shards = shards.collect();
    (shards, unmatched)
}
