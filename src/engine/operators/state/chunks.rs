//! [`Chunks`]: a column of state with one value per slot, in chunks that are copied only when written while shared.
//!
//! ```text
//! Chunks      [ owned ][ shared ][ shared ][ owned ]      a step writes: a shared chunk is taken back, or copied
//!                          │         │                     if the checkpoint still holds it
//! Frozen      [   -   ][ shared ][ shared ][   -   ]      a checkpoint reads: chunks with dirty slots
//! ```

use std::sync::Arc;

use super::slots::{Kept, SlotSet};

/// Slots in a chunk.
pub(crate) const CHUNK_SLOTS: usize = 1 << CHUNK_BITS;
const CHUNK_BITS: u32 = 12;

/// A growing column of values, one per slot.
#[derive(Debug, Clone, Default)]
pub(crate) struct Chunks<T> {
    chunks: Vec<Chunk<T>>,
}

/// A run of values. A hot loop tests one tag per value, no reference count.
#[derive(Debug, Clone)]
pub(crate) enum Chunk<T> {
    /// Nobody else sees it.
    Owned(Vec<T>),
    /// A checkpoint may be reading it.
    Shared(Arc<Vec<T>>),
}

/// Chunks as of a freeze; only those that were asked for.
#[derive(Debug)]
pub(crate) struct FrozenChunks<T> {
    chunks: Vec<Option<Arc<Vec<T>>>>,
}

impl<T: Clone> Chunk<T> {
    /// The values.
    #[inline]
    pub(crate) fn as_slice(&self) -> &[T] {
        match self {
            Self::Owned(values) => values,
            Self::Shared(values) => values,
        }
    }

    /// The values, to be changed.
    #[inline]
    pub(crate) fn owned(&mut self) -> &mut Vec<T> {
        if let Self::Shared(_) = self {
            self.take_back();
        }
        match self {
            Self::Owned(values) => values,
            Self::Shared(_) => unreachable!("the chunk was taken back"),
        }
    }

    /// The values, shared from now on.
    pub(crate) fn share(&mut self) -> Arc<Vec<T>> {
        if let Self::Owned(values) = self {
            *self = Self::Shared(Arc::new(std::mem::take(values)));
        }
        match self {
            Self::Shared(values) => Arc::clone(values),
            Self::Owned(_) => unreachable!("the chunk was shared"),
        }
    }

    #[cold]
    fn take_back(&mut self) {
        if let Self::Shared(shared) = self {
            let values = Arc::try_unwrap(std::mem::take(shared)).unwrap_or_else(|shared| {
                let mut copy = Vec::with_capacity(shared.capacity());
                copy.extend_from_slice(&shared);
                copy
            });
            *self = Self::Owned(values);
        }
    }
}

impl<T: Clone> Chunks<T> {
    /// An empty column. Allocates nothing.
    pub(crate) fn new() -> Self {
        Self { chunks: Vec::new() }
    }

    /// How many slots it has.
    pub(crate) fn len(&self) -> usize {
        match self.chunks.split_last() {
            Some((last, full)) => full.len() * CHUNK_SLOTS + last.as_slice().len(),
            None => 0,
        }
    }

    /// Appends slots with `value` until there are `slots`.
    pub(crate) fn grow(&mut self, slots: usize, value: T) {
        let mut missing = slots.saturating_sub(self.len());
        while missing > 0 {
            if self
                .chunks
                .last()
                .is_none_or(|last| last.as_slice().len() == CHUNK_SLOTS)
            {
                self.chunks.push(Chunk::Owned(Vec::new()));
            }
            let last = self
                .chunks
                .last_mut()
                .expect("there is a chunk with room")
                .owned();
            let added = missing.min(CHUNK_SLOTS - last.len());
            last.resize(last.len() + added, value.clone());
            missing -= added;
        }
    }

    /// Appends a slot.
    #[inline]
    pub(crate) fn push(&mut self, value: T) {
        if self
            .chunks
            .last()
            .is_none_or(|last| last.as_slice().len() == CHUNK_SLOTS)
        {
            self.chunks.push(Chunk::Owned(Vec::new()));
        }
        self.chunks
            .last_mut()
            .expect("there is a chunk with room")
            .owned()
            .push(value);
    }

    /// The value of a slot.
    #[inline]
    pub(crate) fn get(&self, slot: u32) -> &T {
        &self.chunks[chunk_of(slot)].as_slice()[offset_of(slot)]
    }

    /// The value of a slot, to be changed.
    #[inline]
    pub(crate) fn get_mut(&mut self, slot: u32) -> &mut T {
        &mut self.chunks[chunk_of(slot)].owned()[offset_of(slot)]
    }

    /// The chunks that have a slot of `slots`, shared with the caller until they are next written.
    pub(crate) fn freeze(&mut self, slots: &SlotSet) -> FrozenChunks<T> {
        let chunks = self.chunks.iter_mut().enumerate();
        let chunks = chunks
            .map(|(at, chunk)| slots.any_in(at * CHUNK_SLOTS, CHUNK_SLOTS).then(|| chunk.share()))
            .collect();
        FrozenChunks { chunks }
    }

    /// Keeps the values of the slots that stay, under their new numbers; what is behind is given back as it goes.
    pub(crate) fn keep(&mut self, kept: &Kept) {
        let mut old = std::mem::take(&mut self.chunks);
        self.chunks.reserve_exact(kept.len().div_ceil(CHUNK_SLOTS));
        let mut passed = 0;
        for slots in kept.slots().chunks(CHUNK_SLOTS) {
            let first = chunk_of(slots[0]);
            old[passed..first].fill(Chunk::Owned(Vec::new()));
            passed = first;
            let mut values = Vec::with_capacity(slots.len());
            values.extend(
                slots
                    .iter()
                    .map(|slot| old[chunk_of(*slot)].as_slice()[offset_of(*slot)].clone()),
            );
            self.chunks.push(Chunk::Owned(values));
        }
    }

    /// Bytes of memory, without what the values point to.
    pub(crate) fn bytes(&self) -> usize {
        let slots: usize = self
            .chunks
            .iter()
            .map(|chunk| match chunk {
                Chunk::Owned(values) => values.capacity(),
                Chunk::Shared(values) => values.capacity(),
            })
            .sum();
        slots * size_of::<T>() + self.chunks.capacity() * size_of::<Chunk<T>>()
    }
}

impl<T> FrozenChunks<T> {
    /// The value of a slot of a chunk that was frozen.
    #[inline]
    pub(crate) fn get(&self, slot: u32) -> &T {
        let chunk = self.chunks[chunk_of(slot)]
            .as_ref()
            .expect("only frozen slots are read");
        &chunk[offset_of(slot)]
    }
}

#[inline]
fn chunk_of(slot: u32) -> usize {
    (slot >> CHUNK_BITS) as usize
}

#[inline]
fn offset_of(slot: u32) -> usize {
    slot as usize & (CHUNK_SLOTS - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_freeze_keeps_what_it_saw_while_writes_go_on() {
        let mut column = Chunks::new();
        column.grow(3 * CHUNK_SLOTS, 1i64);
        let mut dirty = SlotSet::default();
        dirty.insert(5);
        dirty.insert(u32::try_from(2 * CHUNK_SLOTS).unwrap());

        let frozen = column.freeze(&dirty);
        *column.get_mut(5) = 7;
        *column.get_mut(u32::try_from(CHUNK_SLOTS).unwrap()) = 9;

        assert_eq!((*frozen.get(5), *column.get(5)), (1, 7));
        assert!(
            frozen.chunks[1].is_none(),
            "a chunk without dirty slots is not shared"
        );
        drop(frozen);
        let before = column.get(u32::try_from(2 * CHUNK_SLOTS).unwrap()) as *const i64;
        *column.get_mut(u32::try_from(2 * CHUNK_SLOTS).unwrap()) = 3;
        let after = column.get(u32::try_from(2 * CHUNK_SLOTS).unwrap()) as *const i64;
        assert_eq!(
            before, after,
            "a chunk that the checkpoint has let go is written in place"
        );
    }

    #[test]
    fn slots_are_appended_one_by_one_or_many_at_once() {
        let mut column = Chunks::new();
        for value in 0..i64::try_from(CHUNK_SLOTS).unwrap() + 2 {
            column.push(value);
        }
        column.grow(CHUNK_SLOTS + 10, -1);
        assert_eq!(column.len(), CHUNK_SLOTS + 10);
        assert_eq!(*column.get(u32::try_from(CHUNK_SLOTS).unwrap() + 1), 4097);
        assert_eq!(*column.get(u32::try_from(CHUNK_SLOTS).unwrap() + 2), -1);
    }
}
