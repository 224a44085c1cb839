//! Loads arrangements from the store: all of it at a restart, windows that were evicted when they close.

use std::sync::Arc;

use highwater_storage::Snapshot;

use super::super::evicted::stored_windows;
use super::super::key::KeyLayout;
use super::super::row_set::Cell;
use super::super::slots::SlotSet;
use super::super::stored::{self, StoredRows, for_each_batch, versioned};
use super::super::varint;
use super::{Arrangement, table_of};
use crate::engine::error::EngineError;
use crate::engine::operators::StateAddress;

/// Loads all rows of `address` into `shards`, each of which is an arrangement of the same relations. If they are more than
/// there is memory for, nothing is loaded: they are read back as they are needed.
///
/// # Errors
/// State that is not of this layout or cannot be read (INV-6).
pub(crate) fn restore(
    layout: &KeyLayout,
    shards: &mut [&mut Arrangement],
    address: StateAddress,
    snapshot: &dyn Snapshot,
) -> Result<(), EngineError> {
    let relations = shards.first().map_or(0, |shard| shard.relations.len());
    let room = shards.first().map_or(usize::MAX, |shard| shard.room());
    let mut is_loaded = true;
    for relation in 0..relations {
        is_loaded &= for_each_batch(address, table_of(relation), snapshot, &mut |rows| {
            restore_rows(layout, shards, relation, rows, None)?;
            Ok(shards.iter().map(|shard| shard.bytes()).sum::<usize>() <= room)
        })?;
        if !is_loaded {
            break;
        }
    }
    for shard in shards.iter_mut() {
        shard.marks.dirty.take();
    }
    if !is_loaded {
        start_cold(shards, address, snapshot)?;
    }
    Ok(())
}

fn start_cold(
    shards: &mut [&mut Arrangement],
    address: StateAddress,
    snapshot: &dyn Snapshot,
) -> Result<(), EngineError> {
    let mut windows = Vec::new();
    if shards.iter().any(|shard| shard.windows.is_some()) {
        for relation in 0..shards.first().map_or(0, |shard| shard.relations.len()) {
            windows.extend(stored_windows(address, table_of(relation), snapshot)?);
        }
    }
    for shard in shards {
        shard.start_cold(&windows);
    }
    Ok(())
}

/// Reads the evicted keys back whose windows are at or before `through`.
///
/// # Errors
/// State that is not of this layout or cannot be read (INV-6).
pub(crate) fn read_closing(
    layout: &KeyLayout,
    shards: &mut [&mut Arrangement],
    through: i64,
) -> Result<(), EngineError> {
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
    for relation in 0..shards.first().map_or(0, |shard| shard.relations.len()) {
        reader.windows(table_of(relation), (first, through), &mut |rows| {
            restore_rows(layout, shards, relation, rows, Some(&mut fresh))
        })?;
    }
    for (shard, fresh) in shards.iter_mut().zip(&fresh) {
        shard.evicted.note_read_back(fresh.count());
    }
    Ok(())
}

/// With `fresh`, only the rows of keys that are in none of the shards or were found by earlier calls: what is in memory is newer.
fn restore_rows(
    layout: &KeyLayout,
    shards: &mut [&mut Arrangement],
    relation: usize,
    rows: &StoredRows,
    mut fresh: Option<&mut Vec<SlotSet>>,
) -> Result<(), EngineError> {
    let mut keys = Vec::with_capacity(rows.len());
    for row in 0..rows.len() {
        let key = rows.key(row);
        keys.push(&key[..layout.key_len(key)?]);
    }
    let located = stored::locate(layout, &keys, shards.len(), |shard, batch, rows, probed| {
        shards[shard].find_in_memory(batch, rows, probed)
    })?;
    for (row, place) in located.into_iter().enumerate() {
        if let Some(fresh) = &mut fresh {
            let fresh = &mut fresh[place.shard];
            if place.is_new {
                fresh.insert(place.slot);
            } else if !fresh.contains(place.slot) {
                continue;
            }
        }
        let cell = cell_of(rows.value(row))?;
        let bytes: Arc<[u8]> = Arc::from(&rows.key(row)[keys[row].len()..]);
        let shard = &mut shards[place.shard];
        shard.relations[relation].put(place.slot, &bytes, cell);
    }
    Ok(())
}

/// What the value of a row says of it.
///
/// # Errors
/// A value that is not of an arrangement (INV-6).
pub(super) fn cell_of(value: &[u8]) -> Result<Cell, EngineError> {
    let mut value = versioned(value)?;
    let count = varint::read_i64(&mut value)?;
    let note = if value.is_empty() {
        0
    } else {
        varint::read_i64(&mut value)?
    };
    if count <= 0 || !value.is_empty() {
        return Err(EngineError::recovery("a row in operator state cannot be read"));
    }
    Ok(Cell { count, note })
}
