//! Rows as bytes that sort by an ORDER BY.
//!
//! ```text
//! place: the ORDER BY columns as a key | row | length of the place: u32, little-endian
//! ```

use highwater_sql::stream_plan::SortKey;
use highwater_storage::{Direction, KeyOrder, Nulls};

use crate::engine::codec::{KeyEncoder, RowEncoder};
use crate::engine::error::EngineError;

/// Bytes of the length at the end.
const PLACE_LENGTH_BYTES: usize = 4;

/// The order of a key, as storage has it.
pub(crate) fn key_order(key: &SortKey) -> KeyOrder {
    KeyOrder {
        direction: match key.descending {
            true => Direction::Descending,
            false => Direction::Ascending,
        },
        nulls: match key.nulls_first {
            true => Nulls::First,
            false => Nulls::Last,
        },
    }
}

/// Appends a row behind its place.
///
/// # Errors
/// A place of more than 4 GiB (`54000`).
pub(crate) fn append_ordered(
    place: &KeyEncoder<'_>,
    row_encoder: &RowEncoder<'_>,
    orders: &[KeyOrder],
    row: usize,
    out: &mut Vec<u8>,
) -> Result<(), EngineError> {
    let start = out.len();
    place.append_ordered(row, orders.iter().copied(), out);
    append_behind(start, out, |out| row_encoder.append(row, out))
}

/// Appends a row behind its place, which stands in `out` from `start` on.
///
/// # Errors
/// A place of more than 4 GiB (`54000`).
pub(crate) fn append_behind(
    start: usize,
    out: &mut Vec<u8>,
    row: impl FnOnce(&mut Vec<u8>),
) -> Result<(), EngineError> {
    let length = u32::try_from(out.len() - start)
        .map_err(|_| EngineError::new("54000", "a value in ORDER BY is larger than 4 GiB"))?;
    row(out);
    out.extend_from_slice(&length.to_le_bytes());
    Ok(())
}

/// The place of a row: equal for rows of which ORDER BY says nothing.
///
/// # Errors
/// Bytes that are no such row, as only damaged state holds them.
pub(crate) fn place_of(bytes: &[u8]) -> Result<&[u8], EngineError> {
    parts(bytes).map(|(place, _)| place)
}

/// The row behind its place.
///
/// # Errors
/// Bytes that are no such row, as only damaged state holds them.
pub(crate) fn row_of(bytes: &[u8]) -> Result<&[u8], EngineError> {
    parts(bytes).map(|(_, row)| row)
}

fn parts(bytes: &[u8]) -> Result<(&[u8], &[u8]), EngineError> {
    let damaged = || EngineError::recovery("an ordered row in operator state cannot be read");
    let (rest, length) = bytes
        .split_last_chunk::<PLACE_LENGTH_BYTES>()
        .ok_or_else(damaged)?;
    rest.split_at_checked(u32::from_le_bytes(*length) as usize)
        .ok_or_else(damaged)
}
