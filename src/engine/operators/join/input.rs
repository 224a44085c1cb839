//! [`Prepared`]: a delta on its way into the shards: late rows dropped, keys hashed, rows as they are kept.

use arrow::array::{Array, ArrayRef, AsArray, PrimitiveArray};
use arrow::datatypes::TimestampMicrosecondType;

use super::layout::{Layout, Side};
use crate::engine::delta::Delta;
use crate::engine::error::EngineError;
use crate::engine::operators::state::encoded::EncodedRows;
use crate::engine::operators::state::{arrangement, values};
use crate::engine::operators::stateless;

/// Rows ready to be joined.
#[derive(Debug)]
pub(super) struct Prepared {
    /// Which input they are of.
    pub(super) side: usize,
    pub(super) rows: EncodedRows,
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
        let mut rows = encode(layout, own, delta, shards)?;
        let unmatched = rows.take_nulls(delta, &own.not_null);
        Ok(Self {
            side,
            rows,
            unmatched: if own.shows_unmatched {
                unmatched
            } else {
                Vec::new()
            },
        })
    }
}

fn times(delta: &Delta, column: usize) -> Result<&PrimitiveArray<TimestampMicrosecondType>, EngineError> {
    let column = delta.batch.column(column).as_primitive_opt();
    column.ok_or_else(|| EngineError::internal("a join closes by a column that is no time"))
}

/// The stored columns of all rows as bytes. Rows that SQL takes for equal have equal bytes.
fn encode(layout: &Layout, side: &Side, delta: &Delta, shards: usize) -> Result<EncodedRows, EngineError> {
    let columns: Vec<ArrayRef> = side
        .stored
        .iter()
        .map(|column| values::plain_floats(delta.batch.column(*column)))
        .collect();
    let encoder = side.codec.encoder(&columns)?;
    let leading = match side.times.expiry {
        Some((column, _)) => Some(times(delta, column)?),
        None => None,
    };
    EncodedRows::of((&layout.key, &side.key_columns), delta, shards, |row, out| {
        if let Some(times) = leading {
            arrangement::put_time(out, times.is_valid(row).then(|| times.value(row)));
        }
        encoder.append(row, out);
        Ok(())
    })
}
