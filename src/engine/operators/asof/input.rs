//! [`Prepared`]: a delta on its way into the shards: late rows dropped, keys hashed, rows behind their times.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray};
use arrow::buffer::ScalarBuffer;
use arrow::datatypes::TimestampMicrosecondType;

use super::layout::{LEFT, Layout};
use crate::engine::delta::Delta;
use crate::engine::error::EngineError;
use crate::engine::operators::state::key::KeyBatch;
use crate::engine::operators::state::{arrangement, hash, order, values};
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
    /// The rows of each shard that may have a match.
    pub(super) shards: Vec<Vec<u32>>,
    /// Left rows of each shard that have none because their time or key is NULL; only where these are in the output.
    pub(super) unmatched: Vec<Vec<u32>>,
}

impl Prepared {
    /// Prepares a delta of input `side` for `shards` shards. Rows that both watermarks passed at `closed_to` (µs) are late
    /// and dropped, where rows expire.
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
        let in_time = match closed_to {
            // A row is late when the watermark is past its time.
            Some(closed_to) if layout.expires => {
                stateless::in_time(delta, own.time, closed_to.saturating_sub(1))?
            }
            _ => None,
        };
        let delta = in_time.as_ref().unwrap_or(delta);
        let keys: Vec<ArrayRef> = own
            .key_columns
            .iter()
            .map(|column| Arc::clone(delta.batch.column(*column)))
            .collect();
        let keys = layout.key.batch(&keys)?;
        let (bytes, ends) = encode(layout, side, delta)?;
        let by_shard = hash::rows_by_shard(delta.num_rows(), &keys.hashes, shards);
        let shows_unmatched = side == LEFT && layout.is_outer;
        let (shards, unmatched) = without_nulls(&own.not_null, delta, by_shard);
        Ok(Self {
            side,
            keys,
            bytes,
            ends,
            weights: delta.weights.clone(),
            shards,
            unmatched: if shows_unmatched { unmatched } else { Vec::new() },
        })
    }

    /// How many rows there are.
    pub(super) fn num_rows(&self) -> usize {
        self.ends.len()
    }

    /// The bytes of a row behind its time.
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

/// The stored columns of all rows behind their times.
fn encode(layout: &Layout, side: usize, delta: &Delta) -> Result<(Vec<u8>, Vec<usize>), EngineError> {
    let own = &layout.sides[side];
    let time = [Arc::clone(delta.batch.column(own.time))];
    let columns: Vec<ArrayRef> = own
        .stored
        .iter()
        .map(|column| values::plain_floats(delta.batch.column(*column)))
        .collect();
    let times = match &layout.places {
        None => time[0].as_primitive_opt::<TimestampMicrosecondType>(),
        Some(_) => None,
    };
    let places = match (&layout.places, times) {
        (Some(places), _) => Some(places.encoder(&time)?),
        (None, Some(_)) => None,
        (None, None) => {
            return Err(EngineError::internal(
                "an ASOF join compares a column that is no time",
            ));
        }
    };
    let (left, right) = match side {
        LEFT => (Some(layout.left_rows.encoder(&columns)?), None),
        _ => (None, Some(layout.right_rows.encoder(&columns)?)),
    };
    let rows = delta.num_rows();
    let mut bytes = Vec::with_capacity(rows * (columns.len() + 1) * 9);
    let mut ends = Vec::with_capacity(rows);
    for row in 0..rows {
        let start = bytes.len();
        if let Some(places) = &places {
            places.append(row, &mut bytes);
        } else if let Some(times) = times {
            arrangement::put_time(&mut bytes, times.is_valid(row).then(|| times.value(row)));
        }
        order::append_behind(start, &mut bytes, |out| {
            if let Some(left) = &left {
                left.append(row, out);
            } else if let Some(right) = &right {
                right.append(row, out);
            }
        })?;
        ends.push(bytes.len());
    }
    Ok((bytes, ends))
}

/// Rows by shard without those that have a NULL in one of `not_null`; and those.
fn without_nulls(
    not_null: &[usize],
    delta: &Delta,
    by_shard: Vec<Vec<u32>>,
) -> (Vec<Vec<u32>>, Vec<Vec<u32>>) {
    let nullable: Vec<_> = not_null
        .iter()
        .filter_map(|column| delta.batch.column(*column).nulls())
        .filter(|nulls| nulls.null_count() > 0)
        .collect();
    if nullable.is_empty() {
        return (by_shard, Vec::new());
    }
    let matches_nothing = |row: &u32| nullable.iter().any(|nulls| nulls.is_null(*row as usize));
    by_shard
        .into_iter()
        .map(|rows| {
            let (without, with): (Vec<u32>, Vec<u32>) = rows.into_iter().partition(matches_nothing);
            (with, without)
        })
        .unzip()
}
