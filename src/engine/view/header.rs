//! The header of a view in the store: what its rows look like, how many there are.

use highwater_storage::keys::KEY_ENCODING_VERSION;
use highwater_storage::{CheckpointWriter, Direction, Family, Nulls, Snapshot};

use super::format::{HEADER_TAG, ViewFormat, ViewLayout};
use crate::engine::codec::{ROW_FORMAT_VERSION, put_varint, take_varint};
use crate::engine::error::EngineError;

/// The version of the header and of the layouts.
const HEADER_VERSION: u8 = 1;

/// Numbers of a view that are stored beside its rows.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Counters {
    /// How many rows it has.
    pub(super) rows: u64,
    /// The sequence of the next row of a log.
    pub(super) next_sequence: u64,
}

/// Adds the header to a checkpoint.
pub(super) fn write(format: &ViewFormat, counters: Counters, writer: &mut CheckpointWriter) {
    let mut value = shape(format);
    put_varint(counters.rows, &mut value);
    put_varint(counters.next_sequence, &mut value);
    writer.put_view(format.object, &[HEADER_TAG], &value);
}

/// Reads the header, all zero for a view that was never stored.
///
/// # Errors
/// A header of another format, layout or columns, or rows without one (`XX001`).
pub(super) fn read(format: &ViewFormat, snapshot: &dyn Snapshot) -> Result<Counters, EngineError> {
    let mut key = format.row_prefix();
    key[4] = HEADER_TAG;
    let Some(value) = snapshot.get(Family::Views, &key)? else {
        let orphan = snapshot
            .last_key(Family::Views, &format.row_prefix(), Some(&format.rows_end()))?
            .is_some();
        return if orphan {
            Err(corrupt("It has rows and no header."))
        } else {
            Ok(Counters::default())
        };
    };
    let shape = shape(format);
    let Some(mut rest) = value.strip_prefix(&shape[..]) else {
        return Err(mismatch(&value, &shape));
    };
    match (take_varint(&mut rest), take_varint(&mut rest)) {
        (Some(rows), Some(next_sequence)) if rest.is_empty() => Ok(Counters { rows, next_sequence }),
        _ => Err(corrupt("Its header is cut off.")),
    }
}

/// Versions, layout and column types as bytes; equal shapes have equally encoded rows.
fn shape(format: &ViewFormat) -> Vec<u8> {
    let mut out = vec![HEADER_VERSION, ROW_FORMAT_VERSION, KEY_ENCODING_VERSION];
    match &format.layout {
        ViewLayout::Keyed { columns } => {
            out.push(0);
            put_varint(columns.len() as u64, &mut out);
            columns
                .iter()
                .for_each(|column| put_varint(*column as u64, &mut out));
        }
        ViewLayout::Log => out.push(1),
        ViewLayout::Bag => out.push(2),
        ViewLayout::Index { columns, has_key } => {
            out.push(if *has_key { 3 } else { 4 });
            put_varint(columns.len() as u64, &mut out);
            for (column, order) in columns {
                put_varint(*column as u64, &mut out);
                out.push(u8::from(order.direction == Direction::Descending));
                out.push(u8::from(order.nulls == Nulls::First));
            }
        }
    }
    let types = format!("{} {}", format.keys.signature(), format.rows.signature());
    put_varint(types.len() as u64, &mut out);
    out.extend_from_slice(types.as_bytes());
    out
}

fn mismatch(found: &[u8], wanted: &[u8]) -> EngineError {
    if found.get(..3) == wanted.get(..3) {
        let detail = "Its rows were stored with another key or with other column types.";
        return EngineError::recovery("stored rows do not fit their view").with_detail(detail);
    }
    let versions = |bytes: &[u8]| {
        bytes
            .iter()
            .take(3)
            .map(u8::to_string)
            .collect::<Vec<_>>()
            .join(".")
    };
    EngineError::recovery("stored rows have a format that this program does not read").with_detail(format!(
        "The rows have format {}, the program reads {}.",
        versions(found),
        versions(wanted)
    ))
}

fn corrupt(detail: &str) -> EngineError {
    EngineError::recovery("a stored view is corrupt").with_detail(detail)
}
