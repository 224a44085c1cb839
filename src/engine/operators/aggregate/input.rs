//! [`Prepared`]: a delta on its way into the shards: late rows dropped, keys hashed, arguments in their forms.

use arrow::buffer::ScalarBuffer;

use super::accumulator::Argument;
use super::{Layout, Windows};
use crate::engine::delta::Delta;
use crate::engine::error::EngineError;
use crate::engine::operators::state::hash;
use crate::engine::operators::state::key::KeyBatch;
use crate::engine::operators::stateless;

/// Rows ready to be grouped.
#[derive(Debug)]
pub(super) struct Prepared {
    rows: usize,
    /// Their keys.
    pub(super) keys: KeyBatch,
    /// The argument of each aggregate.
    pub(super) arguments: Vec<Argument>,
    /// One per row; absent: 1.
    pub(super) weights: Option<ScalarBuffer<i64>>,
    /// The rows of each shard.
    pub(super) shards: Vec<Vec<u32>>,
}

impl Prepared {
    /// Prepares a delta for `shards` shards. Rows of windows that end at or before `closed_to` (µs) are late and dropped.
    ///
    /// # Errors
    /// Columns that are not of the planned types.
    pub(super) fn of(
        layout: &Layout,
        delta: &Delta,
        closed_to: Option<i64>,
        shards: usize,
    ) -> Result<Self, EngineError> {
        let in_time = match (layout.windows, closed_to) {
            (Some(windows), Some(closed_to)) => windows.in_time(delta, closed_to)?,
            _ => None,
        };
        let delta = in_time.as_ref().unwrap_or(delta);
        let key_columns: Vec<_> = layout
            .key_columns
            .iter()
            .map(|column| delta.batch.column(*column).clone())
            .collect();
        let keys = layout.key.batch(&key_columns)?;
        let calls = layout.calls.iter();
        let arguments = calls
            .map(|call| Argument::of(call, &delta.batch))
            .collect::<Result<_, _>>()?;
        let rows = delta.num_rows();
        let shards = hash::rows_by_shard(rows, &keys.hashes, shards);
        if layout.append_only && delta.weights.is_some() {
            return Err(EngineError::internal(
                "a delta of an append-only input has weights",
            ));
        }
        Ok(Self {
            rows,
            keys,
            arguments,
            weights: delta.weights.clone(),
            shards,
        })
    }

    /// How many rows there are.
    pub(super) fn num_rows(&self) -> usize {
        self.rows
    }
}

impl Windows {
    /// The rows that are not late; `None` if that is all of them.
    fn in_time(&self, delta: &Delta, closed_to: i64) -> Result<Option<Delta>, EngineError> {
        stateless::in_time(delta, self.column, closed_to.saturating_sub(self.add_us))
    }
}
