//! Evicted state: [`StateHome`] is where it stands, [`Evicted`] what a shard knows of it, [`SlotKeys`] how it is asked for.
//!
//! ```text
//! in memory ──evict: clean keys, the coldest first──▶ only in the store ──a row of the key comes──▶ read back, in memory
//! ```
//!
//! A key that is not in memory has not changed since it was evicted, for whatever changes it reads it back first. So any later
//! snapshot has it as it is (ADR-23).

use std::collections::BTreeSet;
use std::sync::Arc;

use highwater_storage::{Family, KeyWriter, Snapshot, StorageError, Store, TableId, layout as places};

use super::group_table::GroupTable;
use super::slots::SlotSet;
use super::stored::{StoredRows, for_each_batch_in};
use crate::engine::error::EngineError;
use crate::engine::memory::MemoryBudget;
use crate::engine::operators::StateAddress;

/// Where an operator's state stands.
pub(crate) struct StateHome {
    store: Arc<dyn Store>,
    address: StateAddress,
    memory: Arc<MemoryBudget>,
}

/// Stored state at one instant.
pub(crate) struct StateReader {
    snapshot: Box<dyn Snapshot>,
    address: StateAddress,
}

/// Takes the slot of a key and its value.
pub(crate) type TakeValue<'a> = dyn FnMut(u32, &[u8]) -> Result<(), EngineError> + 'a;

/// Takes the slot of a key, what stands behind the key, and the value.
pub(crate) type TakeRow<'a> = dyn FnMut(u32, &[u8], &[u8]) -> Result<(), EngineError> + 'a;

/// What a shard has evicted.
#[derive(Default)]
pub(crate) struct Evicted {
    home: Option<Arc<StateHome>>,
    /// Whether keys may be in the store that are not in memory.
    is_any: bool,
    /// The window columns of such keys, where keys start with one.
    windows: BTreeSet<i64>,
    /// Whether some of these windows closed since the last freeze.
    has_closed: bool,
    figures: EvictionFigures,
}

/// Figures since the start of the process.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct EvictionFigures {
    /// Keys that were evicted.
    pub(crate) evicted: u64,
    /// Keys that were read back.
    pub(crate) read_back: u64,
}

/// Keys of slots as they are stored, ascending.
pub(crate) struct SlotKeys {
    bytes: Vec<u8>,
    /// Where each key ends in `bytes`, and its slot.
    keys: Vec<(usize, usize, u32)>,
}

impl StateHome {
    /// Of the operator at `address`.
    pub(crate) fn new(store: Arc<dyn Store>, address: StateAddress, memory: Arc<MemoryBudget>) -> Self {
        Self {
            store,
            address,
            memory,
        }
    }

    /// The state as it is stored now.
    pub(crate) fn reader(&self) -> StateReader {
        StateReader {
            snapshot: self.store.snapshot(),
            address: self.address,
        }
    }
}

impl StateReader {
    /// Gives the values of those of `keys` that are there.
    ///
    /// # Errors
    /// Those of `take`, and a store that cannot be read.
    pub(crate) fn get(
        &self,
        table: TableId,
        keys: &SlotKeys,
        take: &mut TakeValue<'_>,
    ) -> Result<(), EngineError> {
        let mut failed = None;
        let placed = keys.placed(self.address, table);
        self.snapshot
            .get_sorted(Family::State, &placed.keys(), &mut |place, _, value| {
                if failed.is_none() {
                    failed = take(keys.slot(place), value).err();
                }
                Ok(())
            })?;
        failed.map_or(Ok(()), Err)
    }

    /// Gives all rows under each of `keys`: the slot, what stands behind the key, and the value.
    ///
    /// # Errors
    /// Those of `take`, and a store that cannot be read.
    pub(crate) fn under(
        &self,
        table: TableId,
        keys: &SlotKeys,
        take: &mut TakeRow<'_>,
    ) -> Result<(), EngineError> {
        let mut failed = None;
        let placed = keys.placed(self.address, table);
        let prefixes = placed.keys();
        self.snapshot
            .scan_under(Family::State, &prefixes, &mut |place, key, value| {
                if failed.is_none() {
                    failed = take(keys.slot(place), &key[prefixes[place].len()..], value).err();
                }
                Ok(())
            })?;
        failed.map_or(Ok(()), Err)
    }

    /// Gives the rows of all windows from `first` through `last`, some at a time.
    ///
    /// # Errors
    /// Those of `take`, and a store that cannot be read.
    pub(crate) fn windows(
        &self,
        table: TableId,
        (first, last): (i64, i64),
        take: &mut dyn FnMut(&StoredRows) -> Result<(), EngineError>,
    ) -> Result<(), EngineError> {
        let (mut from, mut to) = (Vec::new(), Vec::new());
        KeyWriter::new(&mut from).put_i64(first);
        KeyWriter::new(&mut to).put_i64(last.saturating_add(1));
        let table = self.address.table(table);
        let snapshot = self.snapshot.as_ref();
        for_each_batch_in(
            table,
            Some((from.as_slice(), to.as_slice())),
            snapshot,
            &mut |rows| take(rows).map(|()| true),
        )?;
        Ok(())
    }
}

impl Evicted {
    /// Lets keys be evicted: they are found again at `home`.
    pub(crate) fn attach(&mut self, home: &Arc<StateHome>) {
        self.home = Some(Arc::clone(home));
    }

    /// Whether keys can be evicted.
    pub(crate) fn is_attached(&self) -> bool {
        self.home.is_some()
    }

    /// Whether keys may be in the store that are not in memory.
    #[inline]
    pub(crate) fn is_any(&self) -> bool {
        self.is_any
    }

    /// Bytes that a restart may load before it leaves all in the store.
    pub(crate) fn room(&self) -> usize {
        self.home.as_ref().map_or(usize::MAX, |home| home.memory.room())
    }

    /// Reads what was evicted; `None` if nothing was.
    pub(crate) fn reader(&self) -> Option<StateReader> {
        let home = self.home.as_ref().filter(|_| self.is_any)?;
        Some(home.reader())
    }

    /// Notes that a key is only in the store from now on, and its window column if it has one.
    pub(crate) fn note(&mut self, window: Option<i64>) {
        self.is_any = true;
        self.figures.evicted += 1;
        self.windows.extend(window);
    }

    /// When one shard of an operator has evicted something, all have: who reads windows back gets the keys of all shards, so none
    /// may forget a key of which the store still has rows.
    pub(crate) fn together<'s>(shards: impl Iterator<Item = &'s mut Self>) {
        let shards: Vec<_> = shards.collect();
        let is_any = shards.iter().any(|shard| shard.is_any);
        shards.into_iter().for_each(|shard| shard.is_any = is_any);
    }

    /// Notes that nothing was loaded: keys of these windows may be in the store.
    pub(crate) fn start_cold(&mut self, windows: &[i64]) {
        self.is_any = true;
        self.windows.extend(windows);
    }

    /// Notes that keys were read back.
    pub(crate) fn note_read_back(&mut self, keys: usize) {
        self.figures.read_back += keys as u64;
    }

    /// Windows through `through` close.
    pub(crate) fn close(&mut self, through: i64) {
        while self.first_window(through).is_some() {
            self.windows.pop_first();
            self.has_closed = true;
        }
    }

    /// The first window at or before `through` with evicted keys.
    pub(crate) fn first_window(&self, through: i64) -> Option<i64> {
        self.windows.first().copied().filter(|window| *window <= through)
    }

    /// Notes that windows closed since the last freeze.
    pub(crate) fn note_closed(&mut self) {
        self.has_closed = true;
    }

    /// Whether windows with evicted keys closed since the last freeze.
    pub(crate) fn has_closed(&self) -> bool {
        self.has_closed
    }

    /// A freeze takes note of what closed.
    pub(crate) fn forget_closed(&mut self) {
        self.has_closed = false;
    }

    /// Figures for people.
    pub(crate) fn figures(&self) -> EvictionFigures {
        self.figures
    }
}

impl EvictionFigures {
    /// Of several shards.
    pub(crate) fn sum(figures: impl Iterator<Item = Self>) -> Self {
        figures.fold(Self::default(), |sum, own| Self {
            evicted: sum.evicted + own.evicted,
            read_back: sum.read_back + own.read_back,
        })
    }
}

impl SlotKeys {
    /// The keys of `slots` of a table.
    pub(crate) fn new(table: &GroupTable, slots: &[u32]) -> Self {
        let mut bytes = Vec::with_capacity(slots.len() * 18);
        let mut keys = Vec::with_capacity(slots.len());
        for slot in slots {
            let start = bytes.len();
            table.encode(*slot, &mut bytes);
            keys.push((start, bytes.len(), *slot));
        }
        keys.sort_unstable_by(|left, right| bytes[left.0..left.1].cmp(&bytes[right.0..right.1]));
        Self { bytes, keys }
    }

    /// Leaves the keys of these slots.
    pub(crate) fn retain(&mut self, slots: &SlotSet) {
        self.keys.retain(|(.., slot)| slots.contains(*slot));
    }

    fn slot(&self, place: usize) -> u32 {
        self.keys[place].2
    }

    fn placed(&self, address: StateAddress, table: TableId) -> PlacedKeys {
        let prefix = places::state_prefix(address.table(table));
        let mut placed = PlacedKeys {
            bytes: Vec::with_capacity(self.bytes.len() + self.keys.len() * prefix.len()),
            ends: Vec::with_capacity(self.keys.len()),
        };
        for (start, end, _) in &self.keys {
            placed.bytes.extend_from_slice(&prefix);
            placed.bytes.extend_from_slice(&self.bytes[*start..*end]);
            placed.ends.push(placed.bytes.len());
        }
        placed
    }
}

/// Keys with what names their table.
struct PlacedKeys {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl PlacedKeys {
    fn keys(&self) -> Vec<&[u8]> {
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        let places = starts.zip(&self.ends);
        places.map(|(start, end)| &self.bytes[start..*end]).collect()
    }
}

/// How many of `keys` keys, which take `bytes`, make `goal_bytes`.
pub(crate) fn keys_for(goal_bytes: usize, bytes: usize, keys: usize) -> usize {
    let wanted = (goal_bytes as u128 * keys as u128).div_ceil(bytes.max(1) as u128);
    usize::try_from(wanted).unwrap_or(usize::MAX)
}

/// The part of `goal_bytes` that falls to `own` of `all` bytes.
pub(crate) fn share_of(goal_bytes: usize, own: usize, all: usize) -> usize {
    keys_for(goal_bytes, all, own)
}

/// At most `wanted` of the slots that are `live` and not `dirty`: first those that are not `warm`, then those with low numbers.
pub(crate) fn coldest(live: &SlotSet, dirty: &SlotSet, warm: &SlotSet, wanted: usize) -> SlotSet {
    let clean = || live.iter().filter(|slot| !dirty.contains(*slot));
    let mut coldest = SlotSet::default();
    let cold = clean().filter(|slot| !warm.contains(*slot));
    let mut found = 0;
    for slot in cold.take(wanted) {
        coldest.insert(slot);
        found += 1;
    }
    for slot in clean().filter(|slot| warm.contains(*slot)).take(wanted - found) {
        coldest.insert(slot);
    }
    coldest
}

/// The window columns that the keys of a table start with, each once.
///
/// # Errors
/// Keys that do not start with one, and a store that cannot be read.
pub(crate) fn stored_windows(
    address: StateAddress,
    table: TableId,
    snapshot: &dyn Snapshot,
) -> Result<Vec<i64>, EngineError> {
    let prefix = places::state_prefix(address.table(table));
    let to = highwater_storage::prefix_end(&prefix);
    let (mut from, mut windows) = (prefix.to_vec(), Vec::new());
    loop {
        let mut next = None;
        snapshot.for_each(Family::State, &from, to.as_deref(), &mut |key, _| {
            let mut reader = highwater_storage::KeyReader::new(&key[prefix.len()..]);
            next = Some(reader.read_i64()?);
            Ok::<bool, StorageError>(false)
        })?;
        // Keys without a window stand behind all others.
        let Some(window) = next.flatten() else {
            return Ok(windows);
        };
        windows.push(window);
        let Some(behind) = window.checked_add(1) else {
            return Ok(windows);
        };
        from.truncate(prefix.len());
        KeyWriter::new(&mut from).put_i64(behind);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_dirty_stays_and_what_is_warm_goes_last() {
        let set = |slots: &[u32]| {
            let mut set = SlotSet::default();
            slots.iter().for_each(|slot| {
                set.insert(*slot);
            });
            set
        };
        let (live, dirty, warm) = (set(&[0, 1, 2, 3, 5, 6, 7]), set(&[0, 5]), set(&[1, 5, 6]));
        let coldest = |wanted: usize| coldest(&live, &dirty, &warm, wanted).iter().collect::<Vec<_>>();
        assert_eq!(coldest(2), [2, 3]);
        assert_eq!(coldest(4), [1, 2, 3, 7]);
        assert_eq!(coldest(usize::MAX), [1, 2, 3, 6, 7]);
        assert_eq!(
            (keys_for(10, 100, 30), keys_for(1, 100, 30), keys_for(0, 0, 0)),
            (3, 1, 0)
        );
    }
}
