//! [`Arrangement`]: the rows of one or several relations by key, and how often each is there; what joins rest on.
//!
//! ```text
//! in memory   key ─▶ slot ─▶ for each relation { row ─▶ count, note }, rows in the order of their bytes
//! changes     (slot, row, count and note after it), appended; a checkpoint takes them all and writes the last of each
//! stored      one table per relation: key, row ─▶ version, count, note
//! ```
//!
//! What a row is made of is up to the operator: bytes that sort as its order wants, if it has one. Where keys start with a
//! window column, keys of closed windows are let go together, and deleted in the store as one range. Where rows start with a
//! time, those up to some time are let go one by one.

mod evict;
mod frozen;
mod relation;
mod restore;

use std::collections::BTreeMap;
use std::sync::Arc;

use highwater_storage::TableId;

pub(crate) use self::evict::evict;
use self::frozen::FrozenArrangement;
pub(crate) use self::frozen::{Closed, FrozenArrangements};
use self::relation::Relation;
pub(crate) use self::restore::{read_closing, restore};
use super::evicted::Evicted;
use super::group_table::{GroupTable, Probed};
use super::key::{KeyBatch, KeyForm, KeyLayout};
use super::row_set::{Cell, RowSet};
use super::slots::SlotSet;
use crate::engine::error::EngineError;

/// Rows by key: one part of the keys, of all relations.
pub(crate) struct Arrangement {
    table: GroupTable,
    relations: Vec<Relation>,
    marks: Marks,
    /// Slots by window column, where keys start with one.
    windows: Option<BTreeMap<i64, Vec<u32>>>,
    /// Whether there is one key only, which stays.
    is_single: bool,
    evicted: Evicted,
}

/// What is known of each slot.
#[derive(Debug, Default)]
struct Marks {
    /// It has a key.
    live: SlotSet,
    /// It changed since the last freeze.
    dirty: SlotSet,
    /// Its window closed since the last freeze.
    closed: SlotSet,
    /// It lost its last row, and the checkpoint that deletes the row is not durable yet: until then the key stays, so that the
    /// row is not read back.
    emptied: SlotSet,
    /// It changed since something was evicted last.
    warm: SlotSet,
}

impl Arrangement {
    /// Of this many relations, without rows. `closes` says that keys start with a window column.
    pub(crate) fn new(key: &KeyLayout, relations: usize, closes: bool) -> Self {
        Self {
            table: GroupTable::new(key),
            relations: (0..relations).map(|_| Relation::new()).collect(),
            marks: Marks::default(),
            windows: closes.then(BTreeMap::new),
            is_single: key.form() == KeyForm::Single,
            evicted: Evicted::default(),
        }
    }

    /// The same; the rows of `relation` start with a time, as [`put_time`] writes it.
    pub(crate) fn with_times(mut self, relation: usize) -> Self {
        self.relations[relation].times = Some(BTreeMap::new());
        self
    }

    /// Finds the slots of keys, with new ones where there are none yet. What was evicted of a key is read back.
    ///
    /// # Errors
    /// State that cannot be read (INV-6).
    pub(crate) fn find(
        &mut self,
        keys: &KeyBatch,
        rows: &[u32],
        probed: &mut Probed,
    ) -> Result<(), EngineError> {
        self.find_in_memory(keys, rows, probed);
        if self.evicted.is_any() && !probed.created.is_empty() {
            self.read_back(&probed.created)?;
        }
        Ok(())
    }

    fn find_in_memory(&mut self, keys: &KeyBatch, rows: &[u32], probed: &mut Probed) {
        probed.slots.clear();
        probed.created.clear();
        self.table.find_or_insert(keys, rows, probed);
        if probed.created.is_empty() {
            return;
        }
        let slots = self.table.slots_end();
        for relation in &mut self.relations {
            relation.grow(slots);
        }
        for slot in &probed.created {
            self.marks.live.insert(*slot);
            // A key that stays without rows is let go at the next freeze.
            self.marks.dirty.insert(*slot);
            if let Some(windows) = &mut self.windows
                && let Some(window) = self.table.first_word(*slot)
            {
                windows.entry(window).or_default().push(*slot);
            }
        }
    }

    /// The rows of a key.
    pub(crate) fn rows(&self, relation: usize, slot: u32) -> &RowSet {
        &self.relations[relation].slots[slot as usize]
    }

    /// How many rows a key has, equal ones counted each.
    pub(crate) fn total(&self, relation: usize, slot: u32) -> i64 {
        self.relations[relation].totals[slot as usize]
    }

    /// Sets what is known of a row; a count of 0 removes it. What was known before.
    pub(crate) fn set(&mut self, relation: usize, slot: u32, row: &Arc<[u8]>, cell: Cell) -> Cell {
        self.marks.dirty.insert(slot);
        self.relations[relation].set(slot, row, cell)
    }

    /// The window column of the first keys that are open, where keys start with one.
    pub(crate) fn first_window(&self) -> Option<i64> {
        let in_memory = self.windows.as_ref()?.keys().next().copied();
        in_memory
            .into_iter()
            .chain(self.evicted.first_window(i64::MAX))
            .min()
    }

    /// The slots of keys whose window column is at or before `through`, in the order of their windows.
    pub(crate) fn closing(&self, through: i64) -> Vec<u32> {
        let mut closing = Vec::new();
        for (window, slots) in self.windows.iter().flat_map(|windows| windows.range(..=through)) {
            let is_of = |slot: &&u32| {
                self.marks.live.contains(**slot) && self.table.first_word(**slot) == Some(*window)
            };
            let mut own: Vec<u32> = slots.iter().filter(is_of).copied().collect();
            // A slot that was emptied may stand here twice.
            own.sort_unstable();
            own.dedup();
            closing.append(&mut own);
        }
        closing
    }

    /// Lets the keys go whose window column is at or before `through`.
    pub(crate) fn close(&mut self, through: i64) {
        let Some(windows) = &mut self.windows else {
            return;
        };
        self.evicted.close(through);
        let mut closed = Vec::new();
        while let Some(first) = windows.first_entry().filter(|first| *first.key() <= through) {
            let (window, slots) = first.remove_entry();
            for slot in slots {
                // A slot that was emptied may belong to another window by now, or stand here twice.
                if self.marks.live.contains(slot) && self.table.first_word(slot) == Some(window) {
                    self.marks.live.remove(slot);
                    self.marks.dirty.remove(slot);
                    self.marks.emptied.remove(slot);
                    self.marks.closed.insert(slot);
                    closed.push(slot);
                }
            }
        }
        self.discard(&closed);
    }

    /// The slots with rows of a relation whose time is at or before `through`, each once, not those of the last second: those
    /// are given, again, when it is over.
    pub(crate) fn slots_through(&mut self, relation: usize, through: i64) -> Vec<u32> {
        self.relations[relation].slots_of_times(through)
    }

    /// Lets rows of a relation go whose time is at or before `through`; some of the last second may stay a little longer.
    pub(crate) fn expire(&mut self, relation: usize, through: i64) {
        let own = &mut self.relations[relation];
        for slot in own.slots_of_times(through) {
            let rows = own.slots[slot as usize].iter().map(|(row, _)| row);
            let expired: Vec<_> = rows.take_while(|row| time_of(row) <= through).cloned().collect();
            for row in &expired {
                self.marks.dirty.insert(slot);
                own.set(slot, row, Cell::default());
            }
        }
    }

    /// Whether windows closed since the last freeze.
    pub(crate) fn has_closed(&self) -> bool {
        !self.marks.closed.is_empty() || self.evicted.has_closed()
    }

    /// What changed since the last freeze, but for closed windows.
    pub(crate) fn freeze(&mut self) -> Option<FrozenArrangement> {
        let closed = self.marks.closed.take();
        self.evicted.forget_closed();
        let dirty = self.marks.dirty.take();
        let changes: Vec<_> = self.relations.iter_mut().map(Relation::take_changes).collect();
        let unchanged = closed.is_empty() && changes.iter().all(Vec::is_empty);
        let keys = (!unchanged).then(|| self.table.freeze(&dirty));
        if self.is_evictable() {
            self.marks.warm.add_all(&dirty);
        }
        self.let_empty_go(&dirty);
        self.table.reuse_retired();
        Some(FrozenArrangement {
            keys: keys?,
            closed,
            changes,
        })
    }

    /// The slots that have a key.
    pub(crate) fn slots(&self) -> impl Iterator<Item = u32> + '_ {
        self.marks.live.iter()
    }

    /// How many different rows there are in all relations.
    pub(crate) fn len(&self) -> usize {
        self.relations.iter().map(|relation| relation.rows).sum()
    }

    /// Bytes of memory.
    pub(crate) fn bytes(&self) -> usize {
        let marks = &self.marks;
        let marks = [
            &marks.live,
            &marks.dirty,
            &marks.closed,
            &marks.emptied,
            &marks.warm,
        ];
        let windows = self.windows.iter().flat_map(|windows| windows.values());
        self.table.bytes()
            + self.relations.iter().map(Relation::bytes).sum::<usize>()
            + marks.iter().map(|set| set.bytes()).sum::<usize>()
            + windows.map(|slots| slots.capacity() * 4 + 32).sum::<usize>()
    }

    fn let_empty_go(&mut self, dirty: &SlotSet) {
        if self.is_single {
            return;
        }
        let before = self.marks.emptied.take();
        let durable = before.iter().filter(|slot| !dirty.contains(*slot));
        let (mut gone, mut emptied): (Vec<u32>, Vec<u32>) = (durable.collect(), Vec::new());
        emptied.extend(dirty.iter().filter(|slot| self.is_empty(*slot)));
        gone.retain(|slot| self.is_empty(*slot));
        if self.evicted.is_any() {
            for slot in emptied {
                self.marks.emptied.insert(slot);
            }
        } else {
            gone.append(&mut emptied);
        }
        for slot in &gone {
            self.marks.live.remove(*slot);
        }
        self.discard(&gone);
    }

    fn is_empty(&self, slot: u32) -> bool {
        let mut relations = self.relations.iter();
        relations.all(|own| own.slots[slot as usize].is_empty())
    }

    /// Forgets keys. Their slots stay unused until the next freeze is over.
    fn discard(&mut self, slots: &[u32]) {
        self.table.remove(slots);
        for relation in &mut self.relations {
            slots.iter().for_each(|slot| relation.clear(*slot));
        }
    }
}

/// Appends a time to a row that starts with it (µs): rows sort by it. A row without a time has the last one of all.
pub(crate) fn put_time(out: &mut Vec<u8>, time: Option<i64>) {
    out.extend_from_slice(&time_bytes(time.unwrap_or(i64::MAX)));
}

/// What rows of this time start with.
pub(crate) fn time_bytes(time: i64) -> [u8; 8] {
    (time ^ i64::MIN).to_be_bytes()
}

/// The time that a row starts with.
pub(crate) fn time_of(row: &[u8]) -> i64 {
    row.first_chunk()
        .map_or(i64::MAX, |time| i64::from_be_bytes(*time) ^ i64::MIN)
}

/// What stands behind the time that a row starts with.
///
/// # Errors
/// Bytes that are too short for a time, as only damaged state holds them.
pub(crate) fn row_behind_time(row: &[u8]) -> Result<&[u8], EngineError> {
    row.get(8..)
        .ok_or_else(|| EngineError::recovery("a row with a time in operator state cannot be read"))
}

fn table_of(relation: usize) -> TableId {
    TableId(u8::try_from(relation).expect("an operator arranges few relations"))
}

#[cfg(test)]
mod tests {
    use arrow::array::{ArrayRef, Int64Array};
    use arrow::datatypes::DataType;
    use highwater_storage::{CheckpointWriter, Durability, Epoch, MemoryStore, ObjectId, OperatorId, Store};

    use super::frozen::ClosedRange;
    use super::relation::CHANGES_MIN;
    use super::*;
    use crate::engine::operators::StateAddress;

    const ADDRESS: StateAddress = StateAddress {
        object: ObjectId(3),
        operator: OperatorId(1),
    };

    fn slot(arrangement: &mut Arrangement, layout: &KeyLayout, key: i64) -> u32 {
        let column: ArrayRef = Arc::new(Int64Array::from(vec![key]));
        let mut probed = Probed::default();
        arrangement
            .find(&layout.batch(&[column]).unwrap(), &[0], &mut probed)
            .unwrap();
        probed.slots[0]
    }

    fn set(arrangement: &mut Arrangement, slot: u32, row: &str, count: i64) {
        let row: Arc<[u8]> = Arc::from(row.as_bytes());
        arrangement.set(0, slot, &row, Cell { count, note: 0 });
    }

    fn write(frozen: Option<FrozenArrangement>, range: Option<ClosedRange>, store: &MemoryStore, epoch: u64) {
        let mut writer = CheckpointWriter::new(Epoch(epoch));
        if let Some(range) = range {
            range.delete(2, ADDRESS, &mut writer);
        }
        if let Some(frozen) = frozen {
            frozen.write(ADDRESS, &mut writer);
        }
        store.commit(writer.finish(), Durability::Sync).unwrap();
    }

    fn rows(arrangement: &Arrangement, slot: u32) -> Vec<(String, i64)> {
        let rows = arrangement.rows(0, slot).iter();
        rows.map(|(row, cell)| (String::from_utf8(row.to_vec()).unwrap(), cell.count))
            .collect()
    }

    #[test]
    fn rows_come_back_in_order_after_a_restart_and_those_of_closed_windows_do_not() {
        let layout = KeyLayout::new([DataType::Int64]).unwrap();
        let store = MemoryStore::new();
        let mut closed = Closed::default();
        let mut arrangement = Arrangement::new(&layout, 2, true);
        let (early, late) = (
            slot(&mut arrangement, &layout, 10),
            slot(&mut arrangement, &layout, 20),
        );
        set(&mut arrangement, early, "x", 1);
        set(&mut arrangement, late, "b", 2);
        set(&mut arrangement, late, "a", 1);
        write(arrangement.freeze(), None, &store, 1);

        set(&mut arrangement, late, "c", 1);
        set(&mut arrangement, late, "b", 0);
        set(&mut arrangement, early, "y", 1);
        arrangement.close(10);
        closed.advance(Some(10));
        assert!(arrangement.has_closed());
        write(arrangement.freeze(), closed.take_range(), &store, 2);

        let mut back = Arrangement::new(&layout, 2, true);
        restore(&layout, &mut [&mut back], ADDRESS, &*store.snapshot()).unwrap();
        assert_eq!(back.len(), 2);
        let late = slot(&mut back, &layout, 20);
        assert_eq!(rows(&back, late), [("a".to_owned(), 1), ("c".to_owned(), 1)]);
        assert_eq!(back.total(0, late), 2);
        assert!(back.freeze().is_none(), "nothing changed since");
    }

    #[test]
    fn a_key_without_rows_gives_its_slot_back_at_the_next_freeze() {
        let layout = KeyLayout::new([DataType::Int64]).unwrap();
        let mut arrangement = Arrangement::new(&layout, 2, false);
        let own = slot(&mut arrangement, &layout, 1);
        set(&mut arrangement, own, "x", 1);
        set(&mut arrangement, own, "x", 0);
        assert_ne!(slot(&mut arrangement, &layout, 2), own);
        arrangement.freeze();
        assert!([0, 1].contains(&slot(&mut arrangement, &layout, 3)));
        assert_eq!(arrangement.len(), 0);
    }

    #[test]
    fn of_the_changes_of_a_row_the_last_one_is_kept() {
        let layout = KeyLayout::new([DataType::Int64]).unwrap();
        let mut arrangement = Arrangement::new(&layout, 1, false);
        let own = slot(&mut arrangement, &layout, 1);
        for count in 1..=i64::try_from(CHANGES_MIN).unwrap() + 5 {
            set(&mut arrangement, own, "x", count);
        }
        assert!(arrangement.relations[0].changes.len() < 10);
        assert_eq!(arrangement.total(0, own), i64::try_from(CHANGES_MIN).unwrap() + 5);
    }
}
