//! Rebuilds an aggregate from what a checkpoint stored.

use highwater_storage::Snapshot;

use super::shard::Shard;
use super::{GROUPS, Layout, entries_table};
use crate::engine::error::EngineError;
use crate::engine::operators::StateAddress;
use crate::engine::operators::state::evicted::stored_windows;
use crate::engine::operators::state::slots::SlotSet;
use crate::engine::operators::state::stored::{self, Located, StoredRows, for_each_batch, versioned};
use crate::engine::operators::state::varint;

/// Loads all groups and counted values of `address`. If they are more than there is memory for, nothing is loaded: they are
/// read back as they are needed.
///
/// # Errors
/// State that is not of this operator or cannot be read (INV-6).
pub(super) fn restore(
    layout: &Layout,
    shards: &mut [Shard],
    address: StateAddress,
    snapshot: &dyn Snapshot,
) -> Result<(), EngineError> {
    let room = shards.first().map_or(usize::MAX, Shard::room);
    let fits = |shards: &[Shard]| shards.iter().map(Shard::state_bytes).sum::<usize>() <= room;
    let mut is_loaded = for_each_batch(address, GROUPS, snapshot, &mut |rows| {
        restore_groups(layout, shards, rows, None)?;
        Ok(fits(shards))
    })?;
    for call in 0..layout.calls.len() {
        is_loaded = is_loaded
            && for_each_batch(address, entries_table(call), snapshot, &mut |rows| {
                restore_entries(layout, shards, (call, rows), None)?;
                Ok(fits(shards))
            })?;
    }
    if !is_loaded {
        let windows = match layout.windows {
            Some(_) => stored_windows(address, GROUPS, snapshot)?,
            None => Vec::new(),
        };
        shards.iter_mut().for_each(|shard| shard.start_cold(&windows));
    }
    Ok(())
}

/// Reads the evicted groups back whose windows are at or before `through`.
///
/// # Errors
/// State that is not of this operator or cannot be read (INV-6).
pub(super) fn read_closing(layout: &Layout, shards: &mut [Shard], through: i64) -> Result<(), EngineError> {
    let windows = shards
        .iter()
        .filter_map(|shard| shard.evicted.first_window(through));
    let Some(first) = windows.min() else {
        return Ok(());
    };
    let Some(reader) = shards.iter().find_map(|shard| shard.evicted.reader()) else {
        return Ok(());
    };
    let mut fresh = vec![SlotSet::default(); shards.len()];
    reader.windows(GROUPS, (first, through), &mut |rows| {
        restore_groups(layout, shards, rows, Some(&mut fresh))
    })?;
    for call in 0..layout.calls.len() {
        reader.windows(entries_table(call), (first, through), &mut |rows| {
            restore_entries(layout, shards, (call, rows), Some(&fresh))
        })?;
    }
    for (shard, fresh) in shards.iter_mut().zip(&fresh) {
        shard.evicted.note_read_back(fresh.count());
    }
    Ok(())
}

/// With `fresh`, groups that are in memory stay as they are, and the others are noted there.
fn restore_groups(
    layout: &Layout,
    shards: &mut [Shard],
    rows: &StoredRows,
    mut fresh: Option<&mut Vec<SlotSet>>,
) -> Result<(), EngineError> {
    let keys: Vec<&[u8]> = (0..rows.len()).map(|row| rows.key(row)).collect();
    let located = locate(layout, shards, &keys)?;
    for (row, place) in located.into_iter().enumerate() {
        match &mut fresh {
            Some(fresh) if place.is_new => {
                fresh[place.shard].insert(place.slot);
            }
            Some(_) => continue,
            None if place.is_new => {}
            None => return Err(EngineError::recovery("operator state has a group twice")),
        }
        shards[place.shard].restore_group(
            place.slot,
            versioned(rows.value(row))?,
            !layout.emits_on_close(),
        )?;
    }
    Ok(())
}

/// With `fresh`, only those of the groups noted there.
fn restore_entries(
    layout: &Layout,
    shards: &mut [Shard],
    (call, rows): (usize, &StoredRows),
    fresh: Option<&Vec<SlotSet>>,
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
        if fresh.is_some_and(|fresh| !fresh[place.shard].contains(place.slot)) {
            continue;
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
