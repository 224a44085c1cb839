//! [`SlotSet`]: a set of slots as a bitmap; and [`Kept`]: the slots that stay when others are evicted.

/// A set of slots.
#[derive(Debug, Clone, Default)]
pub(crate) struct SlotSet {
    words: Vec<u64>,
}

/// Slots that stay. They get new numbers: from 0 on, in their order.
#[derive(Debug)]
pub(crate) struct Kept {
    slots: Vec<u32>,
    /// The new number of each slot, [`GONE`] for those that do not stay.
    numbers: Vec<u32>,
}

/// The number of a slot that does not stay.
const GONE: u32 = u32::MAX;

impl Kept {
    /// Of the slots below `end`, those of `slots`, which ascend.
    pub(crate) fn new(slots: Vec<u32>, end: usize) -> Self {
        let mut numbers = vec![GONE; end];
        for (slot, number) in slots.iter().zip(0u32..) {
            numbers[*slot as usize] = number;
        }
        Self { slots, numbers }
    }

    /// The slots as they were numbered before, ascending.
    pub(crate) fn slots(&self) -> &[u32] {
        &self.slots
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.slots.len()
    }

    /// The new number of a slot, if it stays.
    pub(crate) fn number(&self, slot: u32) -> Option<u32> {
        let number = self.numbers.get(slot as usize).copied();
        number.filter(|number| *number != GONE)
    }

    /// Brings a list of slots to the new numbers, without those that do not stay.
    pub(crate) fn renumber(&self, slots: &mut Vec<u32>) {
        let numbers = slots.iter().filter_map(|slot| self.number(*slot));
        *slots = numbers.collect();
    }
}

impl SlotSet {
    /// Makes room for slots below `slots`, so that [`insert`](Self::insert) does not grow.
    pub(crate) fn grow(&mut self, slots: usize) {
        let words = slots.div_ceil(64);
        if words > self.words.len() {
            self.words.resize(words, 0);
        }
    }

    /// Adds a slot; whether it was not there.
    #[inline]
    pub(crate) fn insert(&mut self, slot: u32) -> bool {
        let word = slot as usize / 64;
        if word >= self.words.len() {
            self.grow(slot as usize + 1);
        }
        let bit = 1 << (slot % 64);
        let fresh = self.words[word] & bit == 0;
        self.words[word] |= bit;
        fresh
    }

    /// Removes a slot.
    #[inline]
    pub(crate) fn remove(&mut self, slot: u32) {
        if let Some(word) = self.words.get_mut(slot as usize / 64) {
            *word &= !(1 << (slot % 64));
        }
    }

    /// Removes slots that are all there are.
    pub(crate) fn remove_all(&mut self, slots: &[u32]) {
        if slots.len() > self.words.len() {
            self.words.fill(0);
        } else {
            slots.iter().for_each(|slot| self.remove(*slot));
        }
    }

    /// Whether a slot is there.
    #[inline]
    pub(crate) fn contains(&self, slot: u32) -> bool {
        self.words
            .get(slot as usize / 64)
            .is_some_and(|word| word & (1 << (slot % 64)) != 0)
    }

    /// Whether any slot of `from..from + count` is there; both are multiples of 64.
    pub(crate) fn any_in(&self, from: usize, count: usize) -> bool {
        let from = (from / 64).min(self.words.len());
        let to = (from + count / 64).min(self.words.len());
        self.words[from..to].iter().any(|word| *word != 0)
    }

    /// Whether there is no slot.
    pub(crate) fn is_empty(&self) -> bool {
        self.words.iter().all(|word| *word == 0)
    }

    /// How many slots there are.
    pub(crate) fn count(&self) -> usize {
        self.words.iter().map(|word| word.count_ones() as usize).sum()
    }

    /// The slots in ascending order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = u32> {
        self.words.iter().zip(0u32..).flat_map(|(word, at)| {
            let mut rest = *word;
            std::iter::from_fn(move || {
                let bit = rest.trailing_zeros();
                (rest != 0).then(|| {
                    rest &= rest - 1;
                    at * 64 + bit
                })
            })
        })
    }

    /// Adds all slots of another set.
    pub(crate) fn add_all(&mut self, other: &Self) {
        self.grow(other.words.len() * 64);
        for (word, other) in self.words.iter_mut().zip(&other.words) {
            *word |= other;
        }
    }

    /// Keeps the slots that stay, under their new numbers.
    pub(crate) fn keep(&mut self, kept: &Kept) {
        let mut renumbered = Self::default();
        renumbered.grow(kept.len());
        for (slot, number) in kept.slots.iter().zip(0u32..) {
            if self.contains(*slot) {
                renumbered.insert(number);
            }
        }
        *self = renumbered;
    }

    /// Takes all slots out.
    pub(crate) fn take(&mut self) -> Self {
        std::mem::take(self)
    }

    /// Bytes of memory.
    pub(crate) fn bytes(&self) -> usize {
        self.words.capacity() * 8
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_come_back_in_order_and_once() {
        let mut set = SlotSet::default();
        for slot in [4100, 3, 64, 3, 63] {
            set.insert(slot);
        }
        set.remove(64);
        assert_eq!(set.iter().collect::<Vec<_>>(), [3, 63, 4100]);
        assert!(set.any_in(0, 4096) && set.any_in(4096, 4096) && !set.any_in(8192, 4096));
        assert_eq!(set.take().count(), 3);
        assert!(set.is_empty());
    }
}
