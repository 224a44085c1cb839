//! Rebuilds an aggregate from what a checkpoint stored.

use highwater_storage::Snapshot;

use super::shard::Shard;
use super::{GROUPS, Layout, entries_table};
use crate::engine::error::EngineError;
use crate::engine::operators::StateAddress;
use crate::engine::operators::state::stored::{self, Located, StoredRows, for_each_batch, versioned};
use crate::engine::operators::state::varint;

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
    for (row, place) in located.into_iter().enumerate() {
        if !place.is_new {
            return Err(EngineError::recovery("operator state has a group twice"));
        }
        shards[place.shard].restore_group(
            place.slot,
            versioned(rows.value(row))?,
            !layout.emits_on_close(),
        )?;
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
    for (row, place) in located.into_iter().enumerate() {
        if place.is_new {
            return Err(EngineError::recovery(
                "operator state has a counted value without its group",
            ));
        }
        let mut value = versioned(rows.value(row))?;
        let count = varint::read_i64(&mut value)?;
        shards[place.shard].restore_entry(call, place.slot, &rows.key(row)[keys[row].len()..], count)?;
    }
    Ok(())
}

fn locate(layout: &Layout, shards: &mut [Shard], keys: &[&[u8]]) -> Result<Vec<Located>, EngineError> {
    stored::locate(&layout.key, keys, shards.len(), |shard, batch, rows, probed| {
        shards[shard].find(batch, rows, probed)
    })
}
