//! DISTINCT: a table of values per group in front of another accumulator, which sees a value when it comes and when it goes.

use arrow::array::ArrayRef;

use super::accumulator::{Accumulator, Argument, ArgumentValue, FrozenAccumulator, Rows};
use crate::engine::error::EngineError;
use crate::engine::operators::state::multiset::{Change, Multiset, StateValue, Unordered, keep_last};
use crate::engine::operators::state::slots::{Kept, SlotSet};

/// Counts the values of each slot; `inner` has each of them once.
pub(super) struct Distinct<V: StateValue> {
    values: Multiset<V, Unordered<V>>,
    inner: Box<dyn Accumulator>,
    append_only: bool,
}

impl<V: ArgumentValue> Distinct<V> {
    /// No slots. Without retractions a value need not be counted.
    pub(super) fn new(inner: Box<dyn Accumulator>, append_only: bool) -> Self {
        Self {
            values: Multiset::new(),
            inner,
            append_only,
        }
    }
}

impl<V: ArgumentValue> Accumulator for Distinct<V> {
    fn grow(&mut self, slots: usize) {
        self.values.grow(slots);
        self.inner.grow(slots);
    }

    fn save(&mut self, slots: &[u32]) {
        self.inner.save(slots);
    }

    fn update(&mut self, rows: Rows<'_>, argument: &Argument) -> Result<(), EngineError> {
        let column = V::column(argument)
            .ok_or_else(|| EngineError::internal("the argument of a DISTINCT is not of its type"))?;
        let (mut turned_rows, mut turned_slots, mut weights) = (Vec::new(), Vec::new(), Vec::new());
        for (at, (row, slot)) in rows.rows.iter().zip(rows.slots).enumerate() {
            let raw = V::raw(column, *row);
            let turn = if self.append_only {
                i64::from(self.values.add_once(*slot, raw))
            } else {
                let weight = rows.weights.map_or(1, |weights| weights[at]);
                let (before, after) = self.values.add(*slot, raw, weight);
                i64::from(after > 0) - i64::from(before > 0)
            };
            if turn != 0 {
                turned_rows.push(*row);
                turned_slots.push(*slot);
                weights.push(turn);
            }
        }
        let weights = (!self.append_only).then_some(weights.as_slice());
        self.inner.update(
            Rows {
                rows: &turned_rows,
                slots: &turned_slots,
                weights,
            },
            argument,
        )
    }

    fn results(&self, slots: &[u32]) -> Result<ArrayRef, EngineError> {
        self.inner.results(slots)
    }

    fn saved_results(&self, positions: &[u32]) -> Result<ArrayRef, EngineError> {
        self.inner.saved_results(positions)
    }

    fn forget_saved(&mut self) {
        self.inner.forget_saved();
    }

    fn clear(&mut self, slots: &[u32]) {
        for slot in slots {
            self.values.clear(*slot);
        }
        self.inner.clear(slots);
    }

    fn freeze(&mut self, slots: &SlotSet) -> Box<dyn FrozenAccumulator> {
        Box::new(FrozenChanges::new(
            Some(self.inner.freeze(slots)),
            self.values.take_changes(),
        ))
    }

    fn restore(&mut self, slot: u32, bytes: &mut &[u8]) -> Result<(), EngineError> {
        self.inner.restore(slot, bytes)
    }

    fn restore_entry(&mut self, slot: u32, value: &[u8], count: i64) -> Result<(), EngineError> {
        let value = V::decode(value)
            .ok_or_else(|| EngineError::recovery("a value in operator state cannot be read"))?;
        self.values.restore(slot, value, count);
        Ok(())
    }

    fn keep(&mut self, kept: &Kept) {
        self.values.keep(kept);
        self.inner.keep(kept);
    }

    fn has_entries(&self) -> bool {
        true
    }

    fn entries(&self) -> usize {
        self.values.len()
    }

    fn bytes(&self) -> usize {
        self.values.bytes() + self.inner.bytes()
    }
}

/// Changed counts as of a freeze, beside the value of another accumulator.
pub(super) struct FrozenChanges<V> {
    inner: Option<Box<dyn FrozenAccumulator>>,
    changes: Vec<Change<V>>,
}

impl<V: StateValue> FrozenChanges<V> {
    /// Changes as [`Multiset::take_changes`] gives them.
    pub(super) fn new(inner: Option<Box<dyn FrozenAccumulator>>, changes: Vec<Change<V>>) -> Self {
        Self { inner, changes }
    }
}

impl<V: StateValue> FrozenAccumulator for FrozenChanges<V> {
    fn encode(&self, slot: u32, out: &mut Vec<u8>) {
        if let Some(inner) = &self.inner {
            inner.encode(slot, out);
        }
    }

    fn entries(&mut self, visit: &mut dyn FnMut(u32, &[u8], i64)) {
        keep_last(&mut self.changes);
        let mut bytes = Vec::new();
        for change in std::mem::take(&mut self.changes) {
            bytes.clear();
            change.value.encode(&mut bytes);
            visit(change.slot, &bytes, change.count);
        }
    }
}
