//! [`Prepared`]: a delta on its way into the shards: late rows dropped, keys hashed, rows behind their times.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray};
use arrow::datatypes::TimestampMicrosecondType;

use super::layout::{LEFT, Layout};
use crate::engine::delta::Delta;
use crate::engine::error::EngineError;
use crate::engine::operators::state::encoded::EncodedRows;
use crate::engine::operators::state::{arrangement, order, values};
use crate::engine::operators::stateless;

/// Rows ready to be joined.
#[derive(Debug)]
pub(super) struct Prepared {
    /// Which input they are of.
    pub(super) side: usize,
    pub(super) rows: EncodedRows,
    /// Left rows of each shard that have no match because their time or key is NULL; only where these are in the output.
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
        let mut rows = encode(layout, side, delta, shards)?;
        let unmatched = rows.take_nulls(delta, &own.not_null);
        let shows_unmatched = side == LEFT && layout.is_outer;
        Ok(Self {
            side,
            rows,
            unmatched: if shows_unmatched { unmatched } else { Vec::new() },
        })
    }
}

/// The stored columns of all rows behind their times.
fn encode(layout: &Layout, side: usize, delta: &Delta, shards: usize) -> Result<EncodedRows, EngineError> {
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
    EncodedRows::of((&layout.key, &own.key_columns), delta, shards, |row, out| {
        let start = out.len();
        if let Some(places) = &places {
            places.append(row, out);
        } else if let Some(times) = times {
            arrangement::put_time(out, times.is_valid(row).then(|| times.value(row)));
        }
        order::append_behind(start, out, |out| {
            if let Some(left) = &left {
                left.append(row, out);
            } else if let Some(right) = &right {
                right.append(row, out);
            }
        })
    })
}
