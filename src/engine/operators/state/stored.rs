//! [`StoredRows`]: state as a checkpoint left it, read back in batches.

use highwater_storage::{Family, Snapshot, StateTable, StorageError, TableId, layout as places, prefix_end};

use super::group_table::Probed;
use super::hash;
use super::key::{BatchKeys, KeyBatch, KeyLayout};
use super::slots::SlotSet;
use crate::engine::error::EngineError;
use crate::engine::operators::StateAddress;

/// The first byte of every value.
pub(crate) const VALUE_VERSION: u8 = 1;

/// Rows that are decoded together.
const BATCH_ROWS: usize = 8192;

/// Stored rows, read in one go.
#[derive(Default)]
pub(crate) struct StoredRows {
    bytes: Vec<u8>,
    /// End of each row's key and of its value.
    ends: Vec<(usize, usize)>,
}

/// Where a stored key is found.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Located {
    /// Its shard.
    pub(crate) shard: usize,
    /// Its slot there.
    pub(crate) slot: u32,
    /// Whether it was not there yet.
    pub(crate) is_new: bool,
}

/// Gives all rows of a table to `take`, some at a time, in ascending order, until it answers `false`. Whether it never did.
///
/// # Errors
/// Those of `take`, and a store that cannot be read.
pub(crate) fn for_each_batch(
    address: StateAddress,
    table: TableId,
    snapshot: &dyn Snapshot,
    take: &mut dyn FnMut(&StoredRows) -> Result<bool, EngineError>,
) -> Result<bool, EngineError> {
    for_each_batch_in(address.table(table), None, snapshot, take)
}

/// The same for the keys of a range.
///
/// # Errors
/// Those of `take`, and a store that cannot be read.
pub(crate) fn for_each_batch_in(
    table: StateTable,
    range: Option<(&[u8], &[u8])>,
    snapshot: &dyn Snapshot,
    take: &mut dyn FnMut(&StoredRows) -> Result<bool, EngineError>,
) -> Result<bool, EngineError> {
    let prefix = places::state_prefix(table);
    let (from, to) = match range {
        Some((from, to)) => (
            [prefix.as_slice(), from].concat(),
            Some([prefix.as_slice(), to].concat()),
        ),
        None => (prefix.to_vec(), prefix_end(&prefix)),
    };
    let mut rows = StoredRows::default();
    let mut ended = None;
    snapshot.for_each(Family::State, &from, to.as_deref(), &mut |key, value| {
        rows.push(&key[prefix.len()..], value);
        if rows.len() == BATCH_ROWS {
            let goes_on = take(&rows);
            if !matches!(goes_on, Ok(true)) {
                ended = Some(goes_on);
                return Ok(false);
            }
            rows.clear();
        }
        Ok::<bool, StorageError>(true)
    })?;
    match ended {
        Some(ended) => ended,
        None if rows.len() > 0 => take(&rows),
        None => Ok(true),
    }
}

/// Finds stored keys, with new slots for those that are not there yet. `find` finds some keys of a batch in a shard.
///
/// # Errors
/// Keys that are not of this layout.
pub(crate) fn locate(
    layout: &KeyLayout,
    keys: &[&[u8]],
    shards: usize,
    mut find: impl FnMut(usize, &KeyBatch, &[u32], &mut Probed),
) -> Result<Vec<Located>, EngineError> {
    let batch = layout.batch_of_stored(keys)?;
    let by_shard = match batch.keys {
        BatchKeys::Single => vec![(0..u32::try_from(keys.len()).expect("a batch is small")).collect()],
        _ => hash::rows_by_shard(keys.len(), &batch.hashes, shards),
    };
    let mut located = vec![Located::default(); keys.len()];
    for (shard, rows) in by_shard.iter().enumerate() {
        let mut probed = Probed::default();
        find(shard, &batch, rows, &mut probed);
        let mut created = SlotSet::default();
        for slot in &probed.created {
            created.insert(*slot);
        }
        for (row, slot) in rows.iter().zip(&probed.slots) {
            located[*row as usize] = Located {
                shard,
                slot: *slot,
                is_new: created.contains(*slot),
            };
            created.remove(*slot);
        }
    }
    Ok(located)
}

/// What stands behind the version of a value.
///
/// # Errors
/// A version of which this program knows nothing (INV-6).
pub(crate) fn versioned(value: &[u8]) -> Result<&[u8], EngineError> {
    match value.split_first() {
        Some((&VALUE_VERSION, rest)) => Ok(rest),
        Some((version, _)) => Err(EngineError::recovery(format!(
            "operator state has version {version}, not {VALUE_VERSION}"
        ))
        .with_hint("Open the database with the version of Highwater that wrote it.")),
        None => Err(EngineError::recovery("operator state has an empty value")),
    }
}

impl StoredRows {
    fn push(&mut self, key: &[u8], value: &[u8]) {
        self.bytes.extend_from_slice(key);
        let key_end = self.bytes.len();
        self.bytes.extend_from_slice(value);
        self.ends.push((key_end, self.bytes.len()));
    }

    fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.ends.len()
    }

    /// The key of a row, behind what names the table.
    pub(crate) fn key(&self, row: usize) -> &[u8] {
        let start = if row == 0 { 0 } else { self.ends[row - 1].1 };
        &self.bytes[start..self.ends[row].0]
    }

    /// The value of a row.
    pub(crate) fn value(&self, row: usize) -> &[u8] {
        let (start, end) = self.ends[row];
        &self.bytes[start..end]
    }
}
