//! [`ByteKeys`]: keys of any length, one per slot, in blocks that a checkpoint shares with the steps.

use std::sync::Arc;

use super::chunks::{Chunk, Chunks, FrozenChunks};
use super::slots::{Kept, SlotSet};

/// A block takes no further key beyond this size.
const BLOCK_BYTES: usize = 64 << 10;

/// Where a key lies. A length of 0 stands for no key: no stored key is empty.
#[derive(Debug, Clone, Copy, Default)]
struct Place {
    block: u32,
    start: u32,
    len: u32,
}

/// Keys of any length, one per slot.
#[derive(Debug, Default)]
pub(crate) struct ByteKeys {
    places: Chunks<Place>,
    blocks: Vec<Chunk<u8>>,
    /// Keys per block that are still there.
    live: Vec<u32>,
    /// Blocks without keys, to be filled again.
    spare: Vec<u32>,
    /// The block that is being filled.
    open: u32,
    live_bytes: usize,
}

/// Keys as of a freeze.
#[derive(Debug)]
pub(crate) struct FrozenByteKeys {
    places: FrozenChunks<Place>,
    blocks: Vec<Arc<Vec<u8>>>,
}

impl ByteKeys {
    /// The key of a slot.
    #[inline]
    pub(crate) fn get(&self, slot: u32) -> &[u8] {
        let place = self.places.get(slot);
        let start = place.start as usize;
        &self.blocks[place.block as usize].as_slice()[start..start + place.len as usize]
    }

    /// Sets the key of a slot: a further one, or one whose key was removed.
    pub(crate) fn put(&mut self, slot: u32, key: &[u8]) {
        let place = self.append(key);
        if slot as usize == self.places.len() {
            self.places.push(place);
        } else {
            *self.places.get_mut(slot) = place;
        }
        self.live_bytes += key.len();
    }

    /// Removes the key of a slot.
    pub(crate) fn remove(&mut self, slot: u32) {
        let place = std::mem::take(self.places.get_mut(slot));
        self.live_bytes -= place.len as usize;
        let live = &mut self.live[place.block as usize];
        *live -= 1;
        if *live == 0 {
            self.blocks[place.block as usize] = Chunk::Owned(Vec::new());
            if place.block != self.open {
                self.spare.push(place.block);
            }
        }
    }

    /// Moves the keys together if most of the memory is no longer used.
    pub(crate) fn compact(&mut self) {
        let used: usize = self.blocks.iter().map(|block| block.as_slice().len()).sum();
        if used < 2 * self.live_bytes + 4 * BLOCK_BYTES {
            return;
        }
        let mut compacted = Self {
            places: std::mem::take(&mut self.places),
            ..Self::default()
        };
        for slot in 0..u32::try_from(compacted.places.len()).expect("slots have 32 bits") {
            let place = *compacted.places.get(slot);
            if place.len > 0 {
                let start = place.start as usize;
                let block = self.blocks[place.block as usize].as_slice();
                *compacted.places.get_mut(slot) = compacted.append(&block[start..start + place.len as usize]);
            }
        }
        compacted.live_bytes = self.live_bytes;
        *self = compacted;
    }

    /// Keeps the keys of the slots that stay, under their new numbers.
    pub(crate) fn keep(&mut self, kept: &Kept) {
        let old = std::mem::take(self);
        for (slot, number) in kept.slots().iter().zip(0u32..) {
            self.put(number, old.get(*slot));
        }
    }

    /// The keys of `slots`, shared with the caller.
    pub(crate) fn freeze(&mut self, slots: &SlotSet) -> FrozenByteKeys {
        let blocks = self.blocks.iter_mut().map(Chunk::share).collect();
        FrozenByteKeys {
            places: self.places.freeze(slots),
            blocks,
        }
    }

    /// Bytes of memory.
    pub(crate) fn bytes(&self) -> usize {
        let blocks: usize = self
            .blocks
            .iter()
            .map(|block| block.as_slice().len() + size_of::<Chunk<u8>>() + 4)
            .sum();
        self.places.bytes() + blocks
    }

    fn append(&mut self, key: &[u8]) -> Place {
        let has_room = self.blocks.get(self.open as usize).is_some_and(|block| {
            block.as_slice().is_empty() || block.as_slice().len() + key.len() <= BLOCK_BYTES
        });
        if !has_room {
            self.open_block();
        }
        let block = self.blocks[self.open as usize].owned();
        let start = block.len();
        block.extend_from_slice(key);
        self.live[self.open as usize] += 1;
        let number = |count: usize| u32::try_from(count).expect("a key has fewer than 2^32 bytes");
        Place {
            block: self.open,
            start: number(start),
            len: number(key.len()),
        }
    }

    fn open_block(&mut self) {
        self.open = self.spare.pop().unwrap_or_else(|| {
            self.blocks.push(Chunk::Owned(Vec::new()));
            self.live.push(0);
            u32::try_from(self.blocks.len() - 1).expect("fewer than 2^32 blocks")
        });
    }
}

impl FrozenByteKeys {
    /// The key of a slot that was frozen.
    pub(crate) fn get(&self, slot: u32) -> &[u8] {
        let place = self.places.get(slot);
        let start = place.start as usize;
        &self.blocks[place.block as usize][start..start + place.len as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(slot: u32) -> Vec<u8> {
        format!("key {slot} {}", "x".repeat(slot as usize % 90)).into_bytes()
    }

    #[test]
    fn keys_survive_removals_compaction_and_a_freeze() {
        let mut keys = ByteKeys::default();
        for slot in 0..20_000 {
            keys.put(slot, &key(slot));
        }
        let mut some = SlotSet::default();
        some.insert(17);
        some.insert(19_999);
        let frozen = keys.freeze(&some);
        let before = keys.bytes();

        for slot in (0..20_000).filter(|slot| slot % 10 != 9) {
            keys.remove(slot);
        }
        keys.compact();
        keys.put(17, b"another");

        assert!(keys.bytes() < before / 2, "memory follows what is left");
        assert_eq!(keys.get(17), b"another");
        for slot in (9..20_000).step_by(10) {
            assert_eq!(keys.get(slot), key(slot));
        }
        assert_eq!(frozen.get(17), key(17));
        assert_eq!(frozen.get(19_999), key(19_999));
    }

    #[test]
    fn blocks_without_keys_are_filled_again() {
        let mut keys = ByteKeys::default();
        for round in 0..20 {
            for slot in 0..5_000 {
                keys.put(slot, &key(slot + round));
            }
            for slot in 0..5_000 {
                keys.remove(slot);
            }
        }
        assert!(keys.bytes() < 1 << 20);
    }
}
