//! The rows of one relation of an arrangement, by slot, and how they changed since the last freeze.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::super::row_set::{Cell, RowSet, row_bytes};
use super::super::slots::Kept;
use super::time_of;

/// When the changes of a relation grow beyond this, those that a later one replaces are dropped.
pub(super) const CHANGES_MIN: usize = 1 << 16;

/// Times that agree but for so many bits (µs, about a second) are noted together.
const SPAN_BITS: u32 = 20;

/// The rows of one relation.
#[derive(Debug, Default)]
pub(super) struct Relation {
    pub(super) slots: Vec<RowSet>,
    /// Sum of the counts of each slot.
    pub(super) totals: Vec<i64>,
    pub(super) changes: Vec<RowChange>,
    changes_max: usize,
    pub(super) rows: usize,
    heap_bytes: usize,
    /// Slots by time, where rows start with one: each slot that has, or had, a row of that span of time.
    pub(super) times: Option<BTreeMap<i64, Vec<u32>>>,
}

/// A row that changed.
#[derive(Debug, Clone)]
pub(super) struct RowChange {
    pub(super) slot: u32,
    pub(super) row: Arc<[u8]>,
    pub(super) cell: Cell,
}

impl Relation {
    pub(super) fn new() -> Self {
        Self {
            changes_max: CHANGES_MIN,
            ..Self::default()
        }
    }

    pub(super) fn grow(&mut self, slots: usize) {
        if slots > self.slots.len() {
            self.slots.resize_with(slots, RowSet::default);
            self.totals.resize(slots, 0);
        }
    }

    pub(super) fn set(&mut self, slot: u32, row: &Arc<[u8]>, cell: Cell) -> Cell {
        let before = self.put(slot, row, cell);
        self.changes.push(RowChange {
            slot,
            row: Arc::clone(row),
            cell,
        });
        if self.changes.len() >= self.changes_max {
            keep_last(&mut self.changes);
            self.changes_max = CHANGES_MIN.max(2 * self.changes.len());
        }
        before
    }

    pub(super) fn put(&mut self, slot: u32, row: &Arc<[u8]>, cell: Cell) -> Cell {
        let before = self.slots[slot as usize].set(row, cell);
        self.totals[slot as usize] += cell.count - before.count;
        match (before.count, cell.count) {
            (0, 0) => {}
            (0, _) => {
                self.rows += 1;
                self.heap_bytes += row_bytes(row);
                self.note_time(slot, row);
            }
            (_, 0) => {
                self.rows -= 1;
                self.heap_bytes -= row_bytes(row);
            }
            _ => {}
        }
        before
    }

    fn note_time(&mut self, slot: u32, row: &[u8]) {
        if let Some(times) = &mut self.times {
            let slots = times.entry(time_of(row) >> SPAN_BITS).or_default();
            if slots.last() != Some(&slot) {
                slots.push(slot);
            }
        }
    }

    /// The slots with rows of spans of time that end at or before `through`, each once.
    pub(super) fn slots_of_times(&mut self, through: i64) -> Vec<u32> {
        let mut slots = Vec::new();
        let Some(times) = &mut self.times else {
            return slots;
        };
        let span = |through: i64| through.saturating_add(1) >> SPAN_BITS;
        while let Some(first) = times.first_entry().filter(|first| *first.key() < span(through)) {
            slots.extend(first.remove());
        }
        slots.sort_unstable();
        slots.dedup();
        slots
    }

    /// Keeps the rows of the slots that stay, under their new numbers. Times are not renumbered: rows that expire stay.
    pub(super) fn keep(&mut self, kept: &Kept) {
        let slots = kept.slots().iter();
        let slots: Vec<RowSet> = slots
            .map(|slot| std::mem::take(&mut self.slots[*slot as usize]))
            .collect();
        let gone = std::mem::replace(&mut self.slots, slots);
        self.rows -= gone.iter().map(RowSet::len).sum::<usize>();
        let rows = gone.iter().flat_map(RowSet::iter);
        self.heap_bytes -= rows.map(|(row, _)| row_bytes(row)).sum::<usize>();
        self.totals = kept
            .slots()
            .iter()
            .map(|slot| self.totals[*slot as usize])
            .collect();
        self.changes.retain_mut(|change| match kept.number(change.slot) {
            Some(number) => {
                change.slot = number;
                true
            }
            None => false,
        });
        self.changes.shrink_to_fit();
    }

    /// Forgets the rows of a slot without a trace in the changes.
    pub(super) fn clear(&mut self, slot: u32) {
        let rows = std::mem::take(&mut self.slots[slot as usize]);
        self.totals[slot as usize] = 0;
        self.rows -= rows.len();
        self.heap_bytes -= rows.iter().map(|(row, _)| row_bytes(row)).sum::<usize>();
    }

    pub(super) fn take_changes(&mut self) -> Vec<RowChange> {
        self.changes_max = CHANGES_MIN;
        std::mem::take(&mut self.changes)
    }

    /// Estimated: maps keep some room.
    pub(super) fn bytes(&self) -> usize {
        let slot = size_of::<RowSet>() + size_of::<i64>();
        // Keys of more than one row hold them outside of their slot.
        let beside = self.rows.saturating_sub(self.slots.len()) * (size_of::<RowChange>() * 3 / 2);
        let times = self.times.iter().flat_map(|times| times.values());
        self.slots.capacity() * slot
            + times.map(|slots| slots.capacity() * 4 + 32).sum::<usize>()
            + beside
            + self.heap_bytes
            + self.changes.capacity() * size_of::<RowChange>()
    }
}

/// Sorts changes by slot and row and keeps the last one of each.
pub(super) fn keep_last(changes: &mut Vec<RowChange>) {
    changes.reverse();
    changes.sort_by(|left, right| (left.slot, &left.row).cmp(&(right.slot, &right.row)));
    changes.dedup_by(|later, first| later.slot == first.slot && later.row == first.row);
}
