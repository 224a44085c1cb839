//! Rebuilds an aggregate from what a checkpoint stored.

use highwater_storage::{Family, Snapshot, StorageError, TableId, layout as places, prefix_end};

use super::frozen::VALUE_VERSION;
use super::shard::Shard;
use super::{GROUPS, Layout, entries_table};
use crate::engine::error::EngineError;
use crate::engine::operators::StateAddress;
use crate::engine::operators::state::group_table::Probed;
use crate::engine::operators::state::hash;
use crate::engine::operators::state::key::BatchKeys;
use crate::engine::operators::state::slots::SlotSet;
use crate::engine::operators::state::varint;

/// Rows that are decoded together.
const BATCH_ROWS: usize = 8192;

/// Stored rows, read in one go.
#[derive(Default)]
struct StoredRows {
    bytes: Vec<u8>,
    /// End of each row's key and of its value.
    ends: Vec<(usize, usize)>,
}

/// Loads all groups and counted values of `address`.
///
/// # Errors
/// State that is not of this operator or cannot be read (INV-6).
pub(super) fn restore(
    layout: &Layout,
    shards: &mut [Shard],
    address: StateAddress,
    snapshot: &dyn Snapshot,
) -> Result<(), EngineError> {
    for_each_batch(address, GROUPS, snapshot, &mut |rows| {
        restore_groups(layout, shards, rows)
    })?;
    for call in 0..layout.calls.len() {
        let table = entries_table(call);
        for_each_batch(address, table, snapshot, &mut |rows| {
            restore_entries(layout, shards, call, rows)
        })?;
    }
    Ok(())
}

fn restore_groups(layout: &Layout, shards: &mut [Shard], rows: &StoredRows) -> Result<(), EngineError> {
    let keys: Vec<&[u8]> = (0..rows.len()).map(|row| rows.key(row)).collect();
    let located = locate(layout, shards, &keys)?;
    for (row, (shard, slot, is_new)) in located.into_iter().enumerate() {
        if !is_new {
            return Err(EngineError::recovery("operator state has a group twice"));
        }
        shards[shard].restore_group(slot, versioned(rows.value(row))?, !layout.emits_on_close())?;
    }
    Ok(())
}

fn restore_entries(
    layout: &Layout,
    shards: &mut [Shard],
    call: usize,
    rows: &StoredRows,
) -> Result<(), EngineError> {
    let mut keys = Vec::with_capacity(rows.len());
    for row in 0..rows.len() {
        let key = rows.key(row);
        keys.push(&key[..layout.key.key_len(key)?]);
    }
    let located = locate(layout, shards, &keys)?;
    for (row, (shard, slot, is_new)) in located.into_iter().enumerate() {
        if is_new {
            return Err(EngineError::recovery(
                "operator state has a counted value without its group",
            ));
        }
        let mut value = versioned(rows.value(row))?;
        let count = varint::read_i64(&mut value)?;
        shards[shard].restore_entry(call, slot, &rows.key(row)[keys[row].len()..], count)?;
    }
    Ok(())
}

/// For each key: its shard, its slot, and whether it was not there yet.
fn locate(
    layout: &Layout,
    shards: &mut [Shard],
    keys: &[&[u8]],
) -> Result<Vec<(usize, u32, bool)>, EngineError> {
    let batch = layout.key.batch_of_stored(keys)?;
    let count = u32::try_from(shards.len()).expect("there are few shards");
    let mut by_shard = vec![Vec::new(); shards.len()];
    for row in 0..u32::try_from(keys.len()).expect("a batch is small") {
        let shard = match batch.keys {
            BatchKeys::Single => 0,
            _ => hash::shard(batch.hashes[row as usize], count),
        };
        by_shard[shard as usize].push(row);
    }
    let mut located = vec![(0, 0, false); keys.len()];
    for (number, (shard, rows)) in shards.iter_mut().zip(&by_shard).enumerate() {
        let mut probed = Probed::default();
        shard.find(&batch, rows, &mut probed);
        let mut created = SlotSet::default();
        for slot in &probed.created {
            created.insert(*slot);
        }
        for (row, slot) in rows.iter().zip(&probed.slots) {
            let is_new = created.contains(*slot);
            created.remove(*slot);
            located[*row as usize] = (number, *slot, is_new);
        }
    }
    Ok(located)
}

fn for_each_batch(
    address: StateAddress,
    table: TableId,
    snapshot: &dyn Snapshot,
    take: &mut dyn FnMut(&StoredRows) -> Result<(), EngineError>,
) -> Result<(), EngineError> {
    let from = places::state_prefix(address.table(table));
    let to = prefix_end(&from);
    let mut rows = StoredRows::default();
    let mut failed = None;
    snapshot.for_each(Family::State, &from, to.as_deref(), &mut |key, value| {
        rows.push(&key[from.len()..], value);
        if rows.len() == BATCH_ROWS {
            if let Err(error) = take(&rows) {
                failed = Some(error);
                return Ok(false);
            }
            rows.clear();
        }
        Ok::<bool, StorageError>(true)
    })?;
    match failed {
        Some(error) => Err(error),
        None if rows.len() > 0 => take(&rows),
        None => Ok(()),
    }
}

fn versioned(value: &[u8]) -> Result<&[u8], EngineError> {
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

    fn len(&self) -> usize {
        self.ends.len()
    }

    fn key(&self, row: usize) -> &[u8] {
        let start = if row == 0 { 0 } else { self.ends[row - 1].1 };
        &self.bytes[start..self.ends[row].0]
    }

    fn value(&self, row: usize) -> &[u8] {
        let (start, end) = self.ends[row];
        &self.bytes[start..end]
    }
}
