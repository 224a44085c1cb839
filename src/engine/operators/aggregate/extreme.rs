//! min and max: the best value per slot while rows are only added, an ordered multiset per slot where they are also taken away.

use std::borrow::Borrow;
use std::sync::Arc;

use arrow::array::{ArrayRef, BinaryArray};
use arrow::buffer::ScalarBuffer;
use arrow::datatypes::DataType;

use super::accumulator::{Accumulator, Argument, ArgumentValue, FrozenAccumulator, Rows};
use super::distinct::FrozenChanges;
use crate::engine::error::EngineError;
use crate::engine::operators::state::chunks::{Chunks, FrozenChunks};
use crate::engine::operators::state::multiset::{Multiset, Ordered, StateValue};
use crate::engine::operators::state::slots::{Kept, SlotSet};
use crate::engine::operators::state::values::{self, Values};
use crate::engine::operators::state::varint;

/// The least or greatest value of each slot.
pub(super) struct Extreme<V> {
    best: Chunks<Option<V>>,
    max: bool,
    heap_bytes: usize,
    results: Results<V>,
}

/// All values of each slot, the least or greatest of which counts.
pub(super) struct RetractableExtreme<V: StateValue> {
    values: Multiset<V, Ordered<V>>,
    max: bool,
    results: Results<V>,
}

/// The values that count, as columns; and those of them that are remembered.
struct Results<V> {
    data_type: DataType,
    saved: Vec<Option<V>>,
}

impl<V: ArgumentValue> Results<V> {
    fn new(data_type: DataType) -> Self {
        Self {
            data_type,
            saved: Vec::new(),
        }
    }

    fn save<'v>(&mut self, values: impl Iterator<Item = Option<&'v V>>) {
        self.saved.extend(values.map(|value| value.cloned()));
    }

    fn column<'v>(&self, values: impl Iterator<Item = Option<&'v V>>) -> Result<ArrayRef, EngineError> {
        V::array(&self.data_type, values.map(|value| value.cloned()).collect())
    }

    fn saved_column(&self, positions: &[u32]) -> Result<ArrayRef, EngineError> {
        self.column(positions.iter().map(|at| self.saved[*at as usize].as_ref()))
    }

    fn bytes(&self) -> usize {
        self.saved.capacity() * size_of::<Option<V>>()
    }
}

impl<V: ArgumentValue> Extreme<V> {
    /// No slots.
    pub(super) fn new(max: bool, result: DataType) -> Self {
        Self {
            best: Chunks::new(),
            max,
            heap_bytes: 0,
            results: Results::new(result),
        }
    }

    fn improve<const MAX: bool>(&mut self, rows: Rows<'_>, column: &V::Column) {
        for (row, slot) in rows.rows.iter().zip(rows.slots) {
            let raw = V::raw(column, *row);
            let is_better = match self.best.get(*slot) {
                None => true,
                Some(best) if MAX => raw > Borrow::<V::Raw>::borrow(best),
                Some(best) => raw < Borrow::<V::Raw>::borrow(best),
            };
            if is_better {
                let value = V::of(raw);
                self.heap_bytes += value.heap_bytes();
                if let Some(old) = self.best.get_mut(*slot).replace(value) {
                    self.heap_bytes -= old.heap_bytes();
                }
            }
        }
    }
}

impl<V: ArgumentValue> Accumulator for Extreme<V> {
    fn grow(&mut self, slots: usize) {
        self.best.grow(slots, None);
    }

    fn save(&mut self, slots: &[u32]) {
        self.results
            .save(slots.iter().map(|slot| self.best.get(*slot).as_ref()));
    }

    fn update(&mut self, rows: Rows<'_>, argument: &Argument) -> Result<(), EngineError> {
        let column = V::column(argument).ok_or_else(wrong_form)?;
        if self.max {
            self.improve::<true>(rows, column);
        } else {
            self.improve::<false>(rows, column);
        }
        Ok(())
    }

    fn results(&self, slots: &[u32]) -> Result<ArrayRef, EngineError> {
        self.results
            .column(slots.iter().map(|slot| self.best.get(*slot).as_ref()))
    }

    fn saved_results(&self, positions: &[u32]) -> Result<ArrayRef, EngineError> {
        self.results.saved_column(positions)
    }

    fn forget_saved(&mut self) {
        self.results.saved.clear();
    }

    fn clear(&mut self, slots: &[u32]) {
        for slot in slots {
            if self.best.get(*slot).is_some()
                && let Some(old) = self.best.get_mut(*slot).take()
            {
                self.heap_bytes -= old.heap_bytes();
            }
        }
    }

    fn freeze(&mut self, slots: &SlotSet) -> Box<dyn FrozenAccumulator> {
        Box::new(FrozenExtreme(self.best.freeze(slots)))
    }

    fn restore(&mut self, slot: u32, bytes: &mut &[u8]) -> Result<(), EngineError> {
        let len = usize::try_from(varint::read_i64(bytes)?).map_err(|_| damaged())?;
        let value = match len.checked_sub(1) {
            None => None,
            Some(len) => {
                let (value, rest) = bytes.split_at_checked(len).ok_or_else(damaged)?;
                *bytes = rest;
                Some(V::decode(value).ok_or_else(damaged)?)
            }
        };
        self.heap_bytes += value.as_ref().map_or(0, V::heap_bytes);
        *self.best.get_mut(slot) = value;
        Ok(())
    }

    fn keep(&mut self, kept: &Kept) {
        self.best.keep(kept);
        let values = (0..u32::try_from(kept.len()).unwrap_or(u32::MAX))
            .filter_map(|slot| self.best.get(slot).as_ref());
        self.heap_bytes = values.map(V::heap_bytes).sum();
    }

    fn bytes(&self) -> usize {
        self.best.bytes() + self.heap_bytes + self.results.bytes()
    }
}

struct FrozenExtreme<V>(FrozenChunks<Option<V>>);

impl<V: StateValue> FrozenAccumulator for FrozenExtreme<V> {
    /// Length + 1, or 0 for no value; then the value.
    fn encode(&self, slot: u32, out: &mut Vec<u8>) {
        match self.0.get(slot) {
            None => varint::put(out, 0),
            Some(value) => {
                varint::put(out, value.encoded_len() as i128 + 1);
                value.encode(out);
            }
        }
    }
}

impl<V: ArgumentValue> RetractableExtreme<V> {
    /// No slots.
    pub(super) fn new(max: bool, result: DataType) -> Self {
        Self {
            values: Multiset::new(),
            max,
            results: Results::new(result),
        }
    }
}

/// The greatest value of a slot if `max`, else the least.
fn best<V: StateValue>(values: &Multiset<V, Ordered<V>>, max: bool, slot: u32) -> Option<&V> {
    let values = values.get(slot);
    let best = if max {
        values.last_key_value()
    } else {
        values.first_key_value()
    };
    best.map(|(value, _)| value)
}

impl<V: ArgumentValue> Accumulator for RetractableExtreme<V> {
    fn grow(&mut self, slots: usize) {
        self.values.grow(slots);
    }

    fn save(&mut self, slots: &[u32]) {
        self.results
            .save(slots.iter().map(|slot| best(&self.values, self.max, *slot)));
    }

    fn update(&mut self, rows: Rows<'_>, argument: &Argument) -> Result<(), EngineError> {
        let column = V::column(argument).ok_or_else(wrong_form)?;
        for (at, (row, slot)) in rows.rows.iter().zip(rows.slots).enumerate() {
            let weight = rows.weights.map_or(1, |weights| weights[at]);
            self.values.add(*slot, V::raw(column, *row), weight);
        }
        Ok(())
    }

    fn results(&self, slots: &[u32]) -> Result<ArrayRef, EngineError> {
        self.results
            .column(slots.iter().map(|slot| best(&self.values, self.max, *slot)))
    }

    fn saved_results(&self, positions: &[u32]) -> Result<ArrayRef, EngineError> {
        self.results.saved_column(positions)
    }

    fn forget_saved(&mut self) {
        self.results.saved.clear();
    }

    fn clear(&mut self, slots: &[u32]) {
        for slot in slots {
            self.values.clear(*slot);
        }
    }

    fn freeze(&mut self, _slots: &SlotSet) -> Box<dyn FrozenAccumulator> {
        Box::new(FrozenChanges::new(None, self.values.take_changes()))
    }

    fn restore(&mut self, _slot: u32, _bytes: &mut &[u8]) -> Result<(), EngineError> {
        Ok(())
    }

    fn restore_entry(&mut self, slot: u32, value: &[u8], count: i64) -> Result<(), EngineError> {
        self.values
            .restore(slot, V::decode(value).ok_or_else(damaged)?, count);
        Ok(())
    }

    fn keep(&mut self, kept: &Kept) {
        self.values.keep(kept);
    }

    fn has_entries(&self) -> bool {
        true
    }

    fn entries(&self) -> usize {
        self.values.len()
    }

    fn bytes(&self) -> usize {
        self.values.bytes() + self.results.bytes()
    }
}

macro_rules! fixed_argument_value {
    ($type:ty, $form:ident, $array:path) => {
        impl ArgumentValue for $type {
            type Column = ScalarBuffer<$type>;

            fn column(argument: &Argument) -> Option<&Self::Column> {
                match &argument.values {
                    Some(Values::$form(values)) => Some(values),
                    _ => None,
                }
            }

            #[inline]
            fn raw(column: &Self::Column, row: u32) -> &$type {
                &column[row as usize]
            }

            fn array(data_type: &DataType, values: Vec<Option<Self>>) -> Result<ArrayRef, EngineError> {
                let nulls = values::nulls_of(values.len(), |row| values[row].is_some());
                $array(
                    data_type,
                    values.into_iter().map(Option::unwrap_or_default).collect(),
                    nulls,
                )
            }
        }
    };
}

fixed_argument_value!(i64, I64, values::column_of_i64);
fixed_argument_value!(i128, I128, values::column_of_i128);

impl ArgumentValue for Arc<[u8]> {
    type Column = BinaryArray;

    fn column(argument: &Argument) -> Option<&BinaryArray> {
        match &argument.values {
            Some(Values::Bytes(values)) => Some(values),
            _ => None,
        }
    }

    fn raw(column: &BinaryArray, row: u32) -> &[u8] {
        column.value(row as usize)
    }

    fn array(data_type: &DataType, values: Vec<Option<Self>>) -> Result<ArrayRef, EngineError> {
        let nulls = values::nulls_of(values.len(), |row| values[row].is_some());
        let len = |value: &Option<Self>| value.as_ref().map_or(0, |bytes| bytes.len());
        let mut bytes = Vec::with_capacity(values.iter().map(len).sum());
        for value in values.iter().flatten() {
            bytes.extend_from_slice(value);
        }
        values::column_of_bytes(data_type, bytes, values.iter().map(len), nulls)
    }
}

fn wrong_form() -> EngineError {
    EngineError::internal("the argument of an aggregate is not of its type")
}

fn damaged() -> EngineError {
    EngineError::recovery("a value in operator state cannot be read")
}
