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

use super::HeldParts;
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
    index: HashTable<Slot>,
    garbage_bytes: usize,
}

/// Finds an entry. It carries its hash, so that a growing table need not look at the arena.
#[derive(Debug, Clone, Copy)]
struct Slot {
    /// The low half of the key's hash.
    hash: u32,
    /// Where the entry is in the arena.
    offset: u32,
}

/// The part that a hash belongs to: bits that [`Slot`] does not keep, so they do not make the hashes of a part alike.
#[inline]
pub(super) fn part_of(hash: u64) -> usize {
    (hash >> 48) as usize % PARTS
}

impl Overlay {
    pub(super) fn new(hasher: RandomState) -> Self {
        Self {
            parts: std::iter::repeat_n(Arc::new(Part::default()), PARTS).collect(),
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
        self.parts.iter().map(|part| part.bytes()).sum()
    }

    /// Adds its parts.
    pub(super) fn hold(&self, held: &mut HeldParts) {
        let filled = self.parts.iter().filter(|part| !part.index.is_empty());
        filled.for_each(|part| held.add(part, part.bytes()));
    }

    /// Bytes of the largest arena.
    pub(super) fn arena_bytes_max(&self) -> usize {
        self.parts.iter().map(|part| part.arena.len()).max().unwrap_or(0)
    }

    /// What became of `key`, if it changed.
    pub(super) fn get(&self, hash: u64, key: &[u8]) -> Option<Entry<'_>> {
        let part = &self.parts[part_of(hash)];
        part.find(hash, key).map(|(offset, _)| part.entry(offset))
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
            for slot in &part.index {
                let entry = part.entry(slot.offset);
                let hash = own.hasher.hash_one(entry.key);
                own.set(hash, entry);
            }
        }
    }

    fn entry(&self, place: Place) -> Entry<'_> {
        self.parts[usize::from(place.part)].entry(place.offset)
    }
}

impl Slot {
    fn new(hash: u64, offset: u32) -> Self {
        Self {
            hash: hash as u32,
            offset,
        }
    }

    /// The hash by which the table places the slot: it looks at the lowest and at the highest bits.
    #[inline]
    fn spread(&self) -> u64 {
        spread(u64::from(self.hash))
    }
}

#[inline]
fn spread(hash: u64) -> u64 {
    hash << 32 | hash & 0xffff_ffff
}

impl Part {
    fn bytes(&self) -> usize {
        self.arena.capacity() + self.index.allocation_size()
    }

    fn entry(&self, offset: u32) -> Entry<'_> {
        let extent = Extent::of(&self.arena, offset);
        let value = |len| &self.arena[extent.value_start()..extent.value_start() + len];
        Entry {
            key: extent.key(&self.arena),
            value: extent.value_len.map(value),
        }
    }

    #[inline]
    fn find(&self, hash: u64, key: &[u8]) -> Option<(u32, Extent)> {
        let mut found = None;
        self.index.find(spread(hash), |slot| {
            if slot.hash != hash as u32 {
                return false;
            }
            let extent = Extent::of(&self.arena, slot.offset);
            found = Some((slot.offset, extent));
            extent.key(&self.arena) == key
        })?;
        found
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
        for slot in &mut index {
            slot.offset = swept.append(self.entry(slot.offset));
        }
        *self = Self { index, ..swept };
    }
}

/// Where the parts of an entry lie in an arena.
#[derive(Debug, Clone, Copy)]
struct Extent {
    /// Where the length of the value stands.
    value_len_at: usize,
    key_start: usize,
    key_len: usize,
    /// `None` for a deleted key.
    value_len: Option<usize>,
}

impl Extent {
    #[inline]
    fn of(arena: &[u8], offset: u32) -> Self {
        let start = offset as usize;
        let head = &arena[start..];
        // Nearly all keys and values are short.
        if let [key_len @ ..0x80, value_len @ ..0x80, ..] = *head {
            return Self::new(start + 1, start + 2, usize::from(key_len), usize::from(value_len));
        }
        let mut rest = head;
        let mut next = || {
            let len = take_varint(&mut rest).expect("each entry of an arena starts with two lengths");
            (len as usize, start + head.len() - rest.len())
        };
        let (key_len, value_len_at) = next();
        let (value_len, key_start) = next();
        Self::new(value_len_at, key_start, key_len, value_len)
    }

    #[inline]
    fn new(value_len_at: usize, key_start: usize, key_len: usize, value_len_and_one: usize) -> Self {
        Self {
            value_len_at,
            key_start,
            key_len,
            value_len: value_len_and_one.checked_sub(1),
        }
    }

    #[inline]
    fn value_start(&self) -> usize {
        self.key_start + self.key_len
    }

    #[inline]
    fn key<'a>(&self, arena: &'a [u8]) -> &'a [u8] {
        &arena[self.key_start..self.value_start()]
    }
}

/// A part that is being written to.
pub(super) struct PartMut<'a> {
    part: &'a mut Part,
    hasher: &'a RandomState,
}

impl PartMut<'_> {
    /// Loads what [`PartMut::set`] of keys with these hashes will look at. The loads depend on nothing, so they wait for
    /// memory together and not one after the other: of random keys, most of the time is that wait.
    pub(super) fn touch(&self, hashes: impl Iterator<Item = u64>) {
        let first_bytes = hashes.filter_map(|hash| {
            let slot = self.part.index.iter_hash(spread(hash)).next()?;
            Some(self.part.arena[slot.offset as usize])
        });
        std::hint::black_box(first_bytes.fold(0, u8::wrapping_add));
    }

    /// Sets a key. `hash` is that of the key and belongs to this part.
    pub(super) fn set(&mut self, hash: u64, entry: Entry<'_>) {
        let part = &mut *self.part;
        let Some((offset, old)) = part.find(hash, entry.key) else {
            let slot = Slot::new(hash, part.append(entry));
            part.index.insert_unique(spread(hash), slot, Slot::spread);
            return;
        };
        match (old.value_len, entry.value) {
            (None, None) => {}
            (Some(old_len), None) => {
                part.arena[old.value_len_at] = 0;
                part.garbage_bytes += old_len;
            }
            (Some(old_len), Some(value)) if old_len == value.len() => {
                let at = old.value_start();
                part.arena[at..at + old_len].copy_from_slice(value);
            }
            (_, Some(_)) => {
                part.garbage_bytes += 2 + old.key_len + old.value_len.unwrap_or(0);
                let appended = part.append(entry);
                let slot = part.index.find_mut(spread(hash), |slot| slot.offset == offset);
                slot.expect("the entry was found under this hash a moment ago")
                    .offset = appended;
            }
        }
    }

    /// Ends a series of writes.
    pub(super) fn finish(self) {
        self.part.sweep();
    }
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
    /// Sorts the entries of `layers` from the key `from` on and before `to`; where several have a key, the first of them counts.
    pub(super) fn new(layers: Vec<Overlay>, (from, to): (&[u8], Option<&[u8]>)) -> Self {
        let is_all = from.is_empty() && to.is_none();
        let entries = layers.iter().flat_map(|layer| &layer.parts);
        let all: usize = entries.map(|part| part.index.len()).sum();
        let mut places = Vec::with_capacity(if is_all { all } else { 0 });
        for (layer, overlay) in layers.iter().enumerate() {
            for (part, entries) in overlay.parts.iter().enumerate() {
                let own = entries.index.iter().map(|slot| Place {
                    prefix: 0,
                    offset: slot.offset,
                    part: part as u8,
                    layer: layer as u8,
                });
                if is_all {
                    places.extend(own);
                    continue;
                }
                places.extend(own.filter(|place| {
                    let key = entries.entry(place.offset).key;
                    key >= from && to.is_none_or(|to| key < to)
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

    /// Turns their order around.
    pub(super) fn reverse(&mut self) {
        self.places.reverse();
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
