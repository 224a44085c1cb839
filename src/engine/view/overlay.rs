//! [`Overlay`]: keys and values that changed since the last checkpoint, shared with readers and copied on write.
//!
//! ```text
//! overlay = 64 parts by hash, each behind an Arc
//! part    = arena: entry entry entry …        index: hash table of offsets into the arena
//! entry   = key length, value length + 1 or 0 for a deleted key: varints | key | value
//! ```
//!
//! A reader clones the Arcs; a later write copies only the parts that it touches and a reader still holds. Values of the
//! same length are overwritten in place; else a new entry is appended and the old one is garbage, which is swept when it is
//! half of an arena.

use std::cmp::Ordering;
use std::hash::BuildHasher;
use std::sync::Arc;

use foldhash::fast::RandomState;
use hashbrown::HashTable;

use crate::engine::codec::{put_varint, take_varint};

/// How many parts an overlay has.
pub(super) const PARTS: usize = 64;

/// Garbage below this is not worth a sweep.
const GARBAGE_BYTES_MIN: usize = 4096;

/// Changed keys; `None` as a value says that the key is deleted.
#[derive(Debug, Clone)]
pub(super) struct Overlay {
    parts: Vec<Arc<Part>>,
    hasher: RandomState,
}

/// A key and what became of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Entry<'a> {
    pub(super) key: &'a [u8],
    pub(super) value: Option<&'a [u8]>,
}

#[derive(Debug, Clone, Default)]
pub(super) struct Part {
    arena: Vec<u8>,
    index: HashTable<u32>,
    garbage_bytes: usize,
}

/// The part that a hash belongs to. Neither the lowest bits, which place an entry in a part's table, nor the highest
/// seven, which tell entries of a group apart there.
#[inline]
pub(super) fn part_of(hash: u64) -> usize {
    (hash >> 48) as usize % PARTS
}

impl Overlay {
    pub(super) fn new(hasher: RandomState) -> Self {
        Self {
            parts: vec![Arc::new(Part::default()); PARTS],
            hasher,
        }
    }

    /// An empty overlay with the same hashes.
    pub(super) fn emptied(&self) -> Self {
        Self::new(self.hasher.clone())
    }

    pub(super) fn hash(&self, key: &[u8]) -> u64 {
        self.hasher.hash_one(key)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.parts.iter().all(|part| part.index.is_empty())
    }

    /// Bytes of memory that its parts take.
    pub(super) fn bytes(&self) -> usize {
        self.parts
            .iter()
            .map(|part| part.arena.capacity() + part.index.allocation_size())
            .sum()
    }

    /// Bytes of the largest arena.
    pub(super) fn arena_bytes_max(&self) -> usize {
        self.parts.iter().map(|part| part.arena.len()).max().unwrap_or(0)
    }

    /// What became of `key`, if it changed.
    pub(super) fn get(&self, hash: u64, key: &[u8]) -> Option<Entry<'_>> {
        let part = &self.parts[part_of(hash)];
        part.find(hash, key).map(|offset| part.entry(offset))
    }

    /// The part `part`, to be written to: copied first if a reader holds it.
    pub(super) fn part_mut(&mut self, part: usize) -> PartMut<'_> {
        PartMut {
            part: Arc::make_mut(&mut self.parts[part]),
            hasher: &self.hasher,
        }
    }

    /// Takes over all entries of `newer`.
    pub(super) fn absorb(&mut self, newer: &Self) {
        for (index, part) in newer
            .parts
            .iter()
            .enumerate()
            .filter(|(_, part)| !part.index.is_empty())
        {
            let mut own = self.part_mut(index);
            for offset in &part.index {
                let entry = part.entry(*offset);
                let hash = own.hasher.hash_one(entry.key);
                own.set(hash, entry);
            }
        }
    }

    fn entry(&self, place: Place) -> Entry<'_> {
        self.parts[usize::from(place.part)].entry(place.offset)
    }
}

impl Part {
    fn entry(&self, offset: u32) -> Entry<'_> {
        let mut rest = &self.arena[offset as usize..];
        let (key_len, value_len) = lengths(&mut rest);
        let (key, rest) = rest.split_at(key_len);
        Entry {
            key,
            value: value_len.map(|len| &rest[..len]),
        }
    }

    #[inline]
    fn find(&self, hash: u64, key: &[u8]) -> Option<u32> {
        self.index
            .find(hash, |offset| self.entry(*offset).key == key)
            .copied()
    }

    fn append(&mut self, entry: Entry<'_>) -> u32 {
        let offset =
            u32::try_from(self.arena.len()).expect("a change that would exceed 4 GiB is refused before");
        put_varint(entry.key.len() as u64, &mut self.arena);
        put_varint(
            entry.value.map_or(0, |value| value.len() as u64 + 1),
            &mut self.arena,
        );
        self.arena.extend_from_slice(entry.key);
        self.arena.extend_from_slice(entry.value.unwrap_or_default());
        offset
    }

    /// Copies all entries into a new arena, if enough of the old one is garbage.
    fn sweep(&mut self) {
        if self.garbage_bytes < GARBAGE_BYTES_MIN.max(self.arena.len() / 2) {
            return;
        }
        let mut swept = Self {
            arena: Vec::with_capacity(self.arena.len()),
            ..Self::default()
        };
        let mut index = std::mem::take(&mut self.index);
        for offset in &mut index {
            *offset = swept.append(self.entry(*offset));
        }
        *self = Self { index, ..swept };
    }
}

/// A part that is being written to.
pub(super) struct PartMut<'a> {
    part: &'a mut Part,
    hasher: &'a RandomState,
}

impl PartMut<'_> {
    /// Sets a key. `hash` is that of the key and belongs to this part.
    pub(super) fn set(&mut self, hash: u64, entry: Entry<'_>) {
        let part = &mut *self.part;
        let Some(offset) = part.find(hash, entry.key) else {
            let offset = part.append(entry);
            let Part { arena, index, .. } = part;
            let hash_at = |offset: &u32| self.hasher.hash_one(key_at(arena, *offset));
            index.insert_unique(hash, offset, hash_at);
            return;
        };
        let old = part.entry(offset);
        let (old_key_len, old_value_len) = (old.key.len(), old.value.map(<[u8]>::len));
        match (old_value_len, entry.value) {
            (None, None) => {}
            (Some(old_len), None) => {
                let lengths_at = offset as usize + varint_bytes(old_key_len);
                part.arena[lengths_at] = 0;
                part.garbage_bytes += old_len;
            }
            (Some(old_len), Some(value)) if old_len == value.len() => {
                let header = varint_bytes(old_key_len) + varint_bytes(old_len + 1);
                let at = offset as usize + header + old_key_len;
                part.arena[at..at + old_len].copy_from_slice(value);
            }
            (_, Some(_)) => {
                part.garbage_bytes += 2 + old_key_len + old_value_len.unwrap_or(0);
                let appended = part.append(entry);
                let slot = part.index.find_mut(hash, |slot| *slot == offset);
                *slot.expect("the entry was found under this hash a moment ago") = appended;
            }
        }
    }

    /// Ends a series of writes.
    pub(super) fn finish(self) {
        self.part.sweep();
    }
}

#[inline]
fn lengths(rest: &mut &[u8]) -> (usize, Option<usize>) {
    let mut next = || take_varint(rest).expect("each entry of an arena starts with two lengths") as usize;
    let (key_len, value_len) = (next(), next());
    (key_len, value_len.checked_sub(1))
}

#[inline]
fn key_at(arena: &[u8], offset: u32) -> &[u8] {
    let mut rest = &arena[offset as usize..];
    let (key_len, _) = lengths(&mut rest);
    &rest[..key_len]
}

fn varint_bytes(value: usize) -> usize {
    (usize::BITS - (value | 1).leading_zeros()).div_ceil(7) as usize
}

/// Where an entry lies, with the part of its key that decides most comparisons.
#[derive(Debug, Clone, Copy)]
struct Place {
    /// Eight bytes of the key, behind what all keys have in common.
    prefix: u64,
    offset: u32,
    part: u8,
    layer: u8,
}

/// All entries of some overlays in key order, each key once.
#[derive(Debug)]
pub(super) struct SortedEntries {
    layers: Vec<Overlay>,
    places: Vec<Place>,
}

impl SortedEntries {
    /// Sorts the entries of `layers`; where several have a key, the first of them counts.
    pub(super) fn new(layers: Vec<Overlay>) -> Self {
        let mut places = Vec::with_capacity(
            layers
                .iter()
                .flat_map(|layer| &layer.parts)
                .map(|part| part.index.len())
                .sum(),
        );
        for (layer, overlay) in layers.iter().enumerate() {
            for (part, entries) in overlay.parts.iter().enumerate() {
                places.extend(entries.index.iter().map(|offset| Place {
                    prefix: 0,
                    offset: *offset,
                    part: part as u8,
                    layer: layer as u8,
                }));
            }
        }
        let mut sorted = Self {
            layers,
            places: Vec::new(),
        };
        let common = sorted.common_prefix(&places);
        for place in &mut places {
            place.prefix = eight_bytes(&sorted.entry_at(*place).key[common..]);
        }
        places.sort_unstable_by(|a, b| sorted.compare(*a, *b).then(a.layer.cmp(&b.layer)));
        places.dedup_by(|later, kept| sorted.compare(*later, *kept) == Ordering::Equal);
        sorted.places = places;
        sorted
    }

    /// The entry at a position.
    pub(super) fn get(&self, position: usize) -> Option<Entry<'_>> {
        self.places.get(position).map(|place| self.entry_at(*place))
    }

    /// All entries in order.
    pub(super) fn iter(&self) -> impl Iterator<Item = Entry<'_>> {
        self.places.iter().map(|place| self.entry_at(*place))
    }

    fn entry_at(&self, place: Place) -> Entry<'_> {
        self.layers[usize::from(place.layer)].entry(place)
    }

    fn compare(&self, a: Place, b: Place) -> Ordering {
        a.prefix
            .cmp(&b.prefix)
            .then_with(|| self.entry_at(a).key.cmp(self.entry_at(b).key))
    }

    /// How many bytes all keys start with alike.
    fn common_prefix(&self, places: &[Place]) -> usize {
        let Some(first) = places.first() else {
            return 0;
        };
        let first = self.entry_at(*first).key;
        places.iter().fold(first.len(), |common, place| {
            let pairs = first[..common].iter().zip(self.entry_at(*place).key);
            pairs.take_while(|(a, b)| a == b).count()
        })
    }
}

/// The first eight bytes as a number that sorts as they do, filled up with zeros.
fn eight_bytes(bytes: &[u8]) -> u64 {
    let mut eight = [0; 8];
    let len = bytes.len().min(8);
    eight[..len].copy_from_slice(&bytes[..len]);
    u64::from_be_bytes(eight)
}
