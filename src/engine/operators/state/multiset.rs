//! [`Multiset`]: per slot, values and how often each is there; what a DISTINCT or a retractable minimum rests on.
//!
//! ```text
//! in memory   slot → { value → count }
//! changes     (slot, value, count after it), appended; a checkpoint takes them all and writes the last of each
//! stored      key of the slot, value → count
//! ```

use std::borrow::Borrow;
use std::collections::BTreeMap;
use std::hash::Hash;
use std::sync::Arc;

use hashbrown::HashMap;

use super::slots::Kept;

/// A value that is kept in state, in one of the three forms of [`super::values::Form`].
pub(crate) trait StateValue:
    Clone + Ord + Hash + Borrow<Self::Raw> + Send + Sync + std::fmt::Debug + 'static
{
    /// A value of an input column.
    type Raw: ?Sized + Ord + Hash;

    /// What is stored behind the key of the slot. Sorts as the values do.
    fn encode(&self, out: &mut Vec<u8>);

    /// What [`encode`](Self::encode) was given; `None` for other bytes.
    fn decode(bytes: &[u8]) -> Option<Self>;

    /// The value on its own.
    fn of(raw: &Self::Raw) -> Self;

    /// How many bytes [`encode`](Self::encode) appends.
    fn encoded_len(&self) -> usize;

    /// Bytes that it points to.
    fn heap_bytes(&self) -> usize;
}

/// The values of one slot.
pub(crate) trait Counts<V: StateValue>: Default + Send + std::fmt::Debug {
    /// The count of a value that is there.
    fn get_mut(&mut self, value: &V::Raw) -> Option<&mut i64>;

    /// Adds a value that is not there.
    fn insert(&mut self, value: V, count: i64);

    /// Removes a value.
    fn remove(&mut self, value: &V::Raw);

    /// How many values there are.
    fn len(&self) -> usize;

    /// Bytes that the values point to.
    fn heap_bytes(&self) -> usize;
}

/// Values per slot.
#[derive(Debug)]
pub(crate) struct Multiset<V, C> {
    slots: Vec<C>,
    changes: Vec<Change<V>>,
    /// When the changes grow beyond this, those that a later one replaces are dropped.
    changes_max: usize,
    entries: usize,
    heap_bytes: usize,
}

/// A count that changed.
#[derive(Debug, Clone)]
pub(crate) struct Change<V> {
    /// Where.
    pub(crate) slot: u32,
    /// Which value's.
    pub(crate) value: V,
    /// What it is now; 0 if the value is gone.
    pub(crate) count: i64,
}

/// Counts in the order of the values.
pub(crate) type Ordered<V> = BTreeMap<V, i64>;
/// Counts without an order.
pub(crate) type Unordered<V> = HashMap<V, i64, foldhash::fast::FixedState>;

const CHANGES_MIN: usize = 1 << 16;

impl<V: StateValue, C: Counts<V>> Multiset<V, C> {
    /// No values.
    pub(crate) fn new() -> Self {
        Self {
            slots: Vec::new(),
            changes: Vec::new(),
            changes_max: CHANGES_MIN,
            entries: 0,
            heap_bytes: 0,
        }
    }

    /// Makes room for slots below `slots`.
    pub(crate) fn grow(&mut self, slots: usize) {
        if slots > self.slots.len() {
            self.slots.resize_with(slots, C::default);
        }
    }

    /// The values of a slot.
    pub(crate) fn get(&self, slot: u32) -> &C {
        &self.slots[slot as usize]
    }

    /// Adds `weight` to the count of a value: the count before and after it.
    #[inline]
    pub(crate) fn add(&mut self, slot: u32, raw: &V::Raw, weight: i64) -> (i64, i64) {
        let counts = &mut self.slots[slot as usize];
        let value = V::of(raw);
        let (before, after) = match counts.get_mut(raw) {
            Some(count) => {
                let before = *count;
                *count += weight;
                (before, *count)
            }
            None => {
                self.entries += 1;
                self.heap_bytes += value.heap_bytes();
                counts.insert(value.clone(), weight);
                (0, weight)
            }
        };
        if after == 0 {
            self.entries -= 1;
            self.heap_bytes -= value.heap_bytes();
            counts.remove(raw);
        }
        self.changes.push(Change {
            slot,
            value,
            count: after,
        });
        if self.changes.len() >= self.changes_max {
            self.drop_replaced();
        }
        (before, after)
    }

    /// Adds a value if it is not there; whether it was not. Its count stays 1 however often it is added.
    #[inline]
    pub(crate) fn add_once(&mut self, slot: u32, raw: &V::Raw) -> bool {
        let counts = &mut self.slots[slot as usize];
        if counts.get_mut(raw).is_some() {
            return false;
        }
        let value = V::of(raw);
        self.entries += 1;
        self.heap_bytes += value.heap_bytes();
        counts.insert(value.clone(), 1);
        self.changes.push(Change {
            slot,
            value,
            count: 1,
        });
        true
    }

    /// Forgets the values of a slot without a trace in the changes.
    pub(crate) fn clear(&mut self, slot: u32) {
        if let Some(counts) = self.slots.get_mut(slot as usize) {
            self.entries -= counts.len();
            self.heap_bytes -= counts.heap_bytes();
            *counts = C::default();
        }
    }

    /// Sets a count as it was stored.
    pub(crate) fn restore(&mut self, slot: u32, value: V, count: i64) {
        self.grow(slot as usize + 1);
        self.entries += 1;
        self.heap_bytes += value.heap_bytes();
        self.slots[slot as usize].insert(value, count);
    }

    /// Keeps the values of the slots that stay, under their new numbers.
    pub(crate) fn keep(&mut self, kept: &Kept) {
        let old = &mut self.slots;
        let slots = kept.slots().iter();
        let slots = slots.map(|slot| {
            old.get_mut(*slot as usize)
                .map(std::mem::take)
                .unwrap_or_default()
        });
        let slots: Vec<C> = slots.collect();
        let gone = std::mem::replace(&mut self.slots, slots);
        self.entries -= gone.iter().map(Counts::len).sum::<usize>();
        self.heap_bytes -= gone.iter().map(Counts::heap_bytes).sum::<usize>();
        self.changes.retain_mut(|change| match kept.number(change.slot) {
            Some(number) => {
                change.slot = number;
                true
            }
            None => false,
        });
        self.changes.shrink_to_fit();
    }

    /// Takes the changes since the last call; of several for one value the last one counts.
    pub(crate) fn take_changes(&mut self) -> Vec<Change<V>> {
        self.changes_max = CHANGES_MIN;
        std::mem::take(&mut self.changes)
    }

    /// How many values there are in all slots.
    pub(crate) fn len(&self) -> usize {
        self.entries
    }

    /// Bytes of memory, estimated: maps keep some room.
    pub(crate) fn bytes(&self) -> usize {
        let entry = (size_of::<V>() + 8) * 3 / 2;
        self.slots.capacity() * size_of::<C>()
            + self.entries * entry
            + self.heap_bytes
            + self.changes.capacity() * size_of::<Change<V>>()
    }

    #[cold]
    fn drop_replaced(&mut self) {
        keep_last(&mut self.changes);
        self.changes_max = CHANGES_MIN.max(2 * self.changes.len());
    }
}

/// Sorts changes by slot and value and keeps the last one of each.
pub(crate) fn keep_last<V: StateValue>(changes: &mut Vec<Change<V>>) {
    changes.reverse();
    changes.sort_by(|left, right| (left.slot, &left.value).cmp(&(right.slot, &right.value)));
    changes.dedup_by(|later, first| later.slot == first.slot && later.value == first.value);
}

macro_rules! counts_in_map {
    ($map:ident) => {
        impl<V: StateValue> Counts<V> for $map<V> {
            #[inline]
            fn get_mut(&mut self, value: &V::Raw) -> Option<&mut i64> {
                self.get_mut(value)
            }

            fn insert(&mut self, value: V, count: i64) {
                self.insert(value, count);
            }

            fn remove(&mut self, value: &V::Raw) {
                self.remove(value);
            }

            fn len(&self) -> usize {
                self.len()
            }

            fn heap_bytes(&self) -> usize {
                self.keys().map(StateValue::heap_bytes).sum()
            }
        }
    };
}

counts_in_map!(Ordered);
counts_in_map!(Unordered);

macro_rules! fixed_state_value {
    ($type:ty) => {
        impl StateValue for $type {
            type Raw = $type;

            fn encode(&self, out: &mut Vec<u8>) {
                out.extend_from_slice(&(self ^ <$type>::MIN).to_be_bytes());
            }

            fn decode(bytes: &[u8]) -> Option<Self> {
                Some(<$type>::from_be_bytes(bytes.try_into().ok()?) ^ <$type>::MIN)
            }

            #[inline]
            fn of(raw: &$type) -> Self {
                *raw
            }

            fn encoded_len(&self) -> usize {
                size_of::<$type>()
            }

            #[inline]
            fn heap_bytes(&self) -> usize {
                0
            }
        }
    };
}

fixed_state_value!(i64);
fixed_state_value!(i128);

impl StateValue for Arc<[u8]> {
    type Raw = [u8];

    fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self);
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        Some(Self::from(bytes))
    }

    fn of(raw: &[u8]) -> Self {
        Self::from(raw)
    }

    fn encoded_len(&self) -> usize {
        self.len()
    }

    fn heap_bytes(&self) -> usize {
        self.len() + 16
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_the_changes_of_a_value_the_last_one_is_kept() {
        let mut set = Multiset::<i64, Ordered<i64>>::new();
        set.grow(2);
        assert_eq!(set.add(1, &-5, 1), (0, 1));
        assert_eq!(set.add(1, &-5, 2), (1, 3));
        assert_eq!(set.add(0, &7, 1), (0, 1));
        assert_eq!(set.add(0, &7, -1), (1, 0));
        assert_eq!(set.len(), 1);

        let mut changes = set.take_changes();
        keep_last(&mut changes);
        let changes: Vec<_> = changes
            .iter()
            .map(|change| (change.slot, change.value, change.count))
            .collect();
        assert_eq!(changes, [(0, 7, 0), (1, -5, 3)]);
        assert!(set.take_changes().is_empty());
    }

    #[test]
    fn values_sort_as_their_bytes_do() {
        let encoded = |value: i64| {
            let mut bytes = Vec::new();
            value.encode(&mut bytes);
            assert_eq!(i64::decode(&bytes), Some(value));
            bytes
        };
        let ascending = [i64::MIN, -2, 0, 3, i64::MAX].map(encoded);
        assert!(ascending.is_sorted());
    }
}
