//! [`GroupTable`]: gives each key a slot, a small number under which columns of state hold its values.
//!
//! ```text
//! hash ──▶ index (hash, slot) ──▶ keys[slot], compared unless the hash determines the key
//! ```
//!
//! A slot whose key is removed is *retired*: it stays unused until [`GroupTable::reuse_retired`], so that between two
//! freezes a slot stands for one key only.

use arrow::array::ArrayRef;
use hashbrown::HashTable;

use super::chunks::{Chunks, FrozenChunks};
use super::hash;
use super::key::{self, BatchKeys, KeyBatch, KeyForm, KeyLayout};
use super::key_bytes::{ByteKeys, FrozenByteKeys};
use super::slots::{Kept, SlotSet};
use crate::engine::error::EngineError;

/// Keys and their slots.
#[derive(Debug)]
pub(crate) struct GroupTable {
    index: HashTable<Entry>,
    keys: Keys,
    /// The slot of the key that is one NULL: its hash is not its own.
    null_slot: Option<u32>,
    slots: SlotNumbers,
}

/// The keys of a table as of a freeze.
#[derive(Debug)]
pub(crate) enum FrozenKeys {
    /// There is one key, without columns.
    Single,
    /// Keys of words.
    Words1(FrozenWordKeys<1>),
    /// Keys of words.
    Words2(FrozenWordKeys<2>),
    /// Keys of words.
    Words3(FrozenWordKeys<3>),
    /// Keys of words.
    Words4(FrozenWordKeys<4>),
    /// Stored keys.
    Bytes(FrozenByteKeys),
}

/// Keys of words as of a freeze.
#[derive(Debug)]
pub(crate) struct FrozenWordKeys<const W: usize> {
    words: FrozenChunks<[i64; W]>,
    nulls: FrozenChunks<u8>,
}

/// 12 bytes: an aligned `u64` would make it 16.
#[derive(Debug, Clone, Copy)]
struct Entry {
    hash_low: u32,
    hash_high: u32,
    slot: u32,
}

#[derive(Debug)]
enum Keys {
    Single,
    Words1(WordKeys<1>),
    Words2(WordKeys<2>),
    Words3(WordKeys<3>),
    Words4(WordKeys<4>),
    Bytes(ByteKeys),
}

#[derive(Debug)]
struct WordKeys<const W: usize> {
    words: Chunks<[i64; W]>,
    nulls: Chunks<u8>,
}

/// Which slots are in use.
#[derive(Debug, Default)]
struct SlotNumbers {
    /// All slots are below.
    end: u32,
    free: Vec<u32>,
    retired: Vec<u32>,
}

/// What a probe of some rows gives.
#[derive(Debug, Default)]
pub(crate) struct Probed {
    /// The slot of each row.
    pub(crate) slots: Vec<u32>,
    /// Slots whose key is new.
    pub(crate) created: Vec<u32>,
}

/// Runs `$run` with `$keys` bound to the word keys of whatever width, or one of the other two arms.
macro_rules! by_form {
    ($on:expr, $type:ident, single: $single:expr, words: |$keys:ident| $run:expr, bytes: |$bytes:ident| $run_bytes:expr) => {
        match $on {
            $type::Single => $single,
            $type::Words1($keys) => $run,
            $type::Words2($keys) => $run,
            $type::Words3($keys) => $run,
            $type::Words4($keys) => $run,
            $type::Bytes($bytes) => $run_bytes,
        }
    };
}

impl Entry {
    #[inline]
    fn new(hash: u64, slot: u32) -> Self {
        Self {
            hash_low: hash as u32,
            hash_high: (hash >> 32) as u32,
            slot,
        }
    }

    #[inline]
    fn hash(&self) -> u64 {
        u64::from(self.hash_high) << 32 | u64::from(self.hash_low)
    }
}

impl SlotNumbers {
    #[inline]
    fn next(&mut self) -> u32 {
        self.free.pop().unwrap_or_else(|| {
            let slot = self.end;
            self.end = slot.checked_add(1).expect("memory ends before 2^32 groups");
            slot
        })
    }
}

impl GroupTable {
    /// An empty table for keys of `layout`.
    pub(crate) fn new(layout: &KeyLayout) -> Self {
        let keys = match layout.form() {
            KeyForm::Single => Keys::Single,
            KeyForm::Words(1) => Keys::Words1(WordKeys::new()),
            KeyForm::Words(2) => Keys::Words2(WordKeys::new()),
            KeyForm::Words(3) => Keys::Words3(WordKeys::new()),
            KeyForm::Words(_) => Keys::Words4(WordKeys::new()),
            KeyForm::Bytes => Keys::Bytes(ByteKeys::default()),
        };
        Self {
            index: HashTable::new(),
            keys,
            null_slot: None,
            slots: SlotNumbers::default(),
        }
    }

    /// How many keys it has.
    pub(crate) fn len(&self) -> usize {
        self.slots.end as usize - self.slots.free.len() - self.slots.retired.len()
    }

    /// All slots are below this number.
    pub(crate) fn slots_end(&self) -> usize {
        self.slots.end as usize
    }

    /// Gives the keys of `rows` of `batch` their slots, new ones where they are not there yet.
    pub(crate) fn find_or_insert(&mut self, batch: &KeyBatch, rows: &[u32], probed: &mut Probed) {
        let Self {
            index,
            keys,
            null_slot,
            slots,
        } = self;
        by_form!(
            keys, Keys,
            single: {
                if slots.end == 0 {
                    probed.created.push(slots.next());
                }
                probed.slots.resize(probed.slots.len() + rows.len(), 0);
            },
            words: |keys| match &batch.keys {
                BatchKeys::Words(columns, nulls) => {
                    let columns = std::array::from_fn(|at| &columns[at][..]);
                    let probe = WordProbe { hashes: &batch.hashes, columns, nulls: nulls.as_deref() };
                    probe.run((index, keys), (null_slot, slots), rows, probed);
                }
                _ => unreachable!("the batch is of the layout of the table"),
            },
            bytes: |keys| match &batch.keys {
                BatchKeys::Bytes(bytes, ends) => {
                    let key_of = |row: usize| &bytes[if row == 0 { 0 } else { ends[row - 1] }..ends[row]];
                    for row in rows {
                        let (hash, key) = (batch.hashes[*row as usize], key_of(*row as usize));
                        let same = |entry: &Entry| entry.hash() == hash && keys.get(entry.slot) == key;
                        let slot = match index.find(hash, same) {
                            Some(entry) => entry.slot,
                            None => {
                                let slot = slots.next();
                                keys.put(slot, key);
                                index.insert_unique(hash, Entry::new(hash, slot), Entry::hash);
                                probed.created.push(slot);
                                slot
                            }
                        };
                        probed.slots.push(slot);
                    }
                }
                _ => unreachable!("the batch is of the layout of the table"),
            }
        );
    }

    /// Removes the keys of `slots` and retires the slots.
    pub(crate) fn remove(&mut self, slots: &[u32]) {
        for slot in slots {
            if self.null_slot == Some(*slot) {
                self.null_slot = None;
            } else {
                let hash = self.hash(*slot).expect("the only key stays");
                let entry = self.index.find_entry(hash, |entry| entry.slot == *slot);
                entry.expect("a slot in use has an entry").remove();
            }
            if let Keys::Bytes(keys) = &mut self.keys {
                keys.remove(*slot);
            }
        }
        self.slots.retired.extend_from_slice(slots);
    }

    /// Lets the slots of removed keys be used again, and gives memory back if many were removed.
    pub(crate) fn reuse_retired(&mut self) {
        if self.slots.retired.is_empty() {
            return;
        }
        let retired = std::mem::take(&mut self.slots.retired);
        self.slots.free.extend(retired);
        if self.index.capacity() > 4 * self.index.len() + 1024 {
            self.index.shrink_to(2 * self.index.len(), Entry::hash);
        }
        if let Keys::Bytes(keys) = &mut self.keys {
            keys.compact();
        }
    }

    /// Keeps the keys of the slots that stay, under their new numbers, and gives the memory of the others back.
    pub(crate) fn keep(&mut self, kept: &Kept) {
        self.null_slot = self.null_slot.and_then(|slot| kept.number(slot));
        self.index = HashTable::new();
        by_form!(
            &mut self.keys, Keys,
            single: (),
            words: |keys| {
                keys.words.keep(kept);
                keys.nulls.keep(kept);
            },
            bytes: |keys| keys.keep(kept)
        );
        let end = u32::try_from(kept.len()).expect("there were more slots before");
        self.slots = SlotNumbers {
            end,
            ..SlotNumbers::default()
        };
        self.index.reserve(kept.len(), Entry::hash);
        for slot in (0..end).filter(|slot| self.null_slot != Some(*slot)) {
            let Some(hash) = self.hash(slot) else { break };
            self.index
                .insert_unique(hash, Entry::new(hash, slot), Entry::hash);
        }
    }

    /// Appends the key of a slot as it is stored.
    pub(crate) fn encode(&self, slot: u32, out: &mut Vec<u8>) {
        by_form!(
            &self.keys, Keys,
            single: (),
            words: |keys| key::encode_words(keys.words.get(slot), *keys.nulls.get(slot), out),
            bytes: |keys| out.extend_from_slice(keys.get(slot))
        );
    }

    /// The hash of a slot's key; `None` if there is one key only.
    fn hash(&self, slot: u32) -> Option<u64> {
        by_form!(
            &self.keys, Keys,
            single: None,
            words: |keys| Some(key::hash_key(keys.words.get(slot), *keys.nulls.get(slot))),
            bytes: |keys| Some(hash::bytes(keys.get(slot)))
        )
    }

    /// The first column of a slot's key, if it is held in 64 bits and not null.
    pub(crate) fn first_word(&self, slot: u32) -> Option<i64> {
        by_form!(
            &self.keys, Keys,
            single: None,
            words: |keys| (keys.nulls.get(slot) & 1 == 0).then(|| keys.words.get(slot)[0]),
            bytes: |keys| first_word_of_stored(keys.get(slot))
        )
    }

    /// The key columns of `slots`, in key order.
    ///
    /// # Errors
    /// Values that are not of their type, as only damaged state holds them.
    pub(crate) fn columns(&self, layout: &KeyLayout, slots: &[u32]) -> Result<Vec<ArrayRef>, EngineError> {
        by_form!(
            &self.keys, Keys,
            single: Ok(Vec::new()),
            words: |keys| {
                let words: Vec<_> = slots.iter().map(|slot| *keys.words.get(*slot)).collect();
                let nulls: Vec<_> = slots.iter().map(|slot| *keys.nulls.get(*slot)).collect();
                layout.columns_of_words(&words, &nulls)
            },
            bytes: |keys| layout.columns_of_stored(slots.iter().map(|slot| keys.get(*slot)))
        )
    }

    /// The keys of `slots`, shared with the caller.
    pub(crate) fn freeze(&mut self, slots: &SlotSet) -> FrozenKeys {
        match &mut self.keys {
            Keys::Single => FrozenKeys::Single,
            Keys::Words1(keys) => FrozenKeys::Words1(keys.freeze(slots)),
            Keys::Words2(keys) => FrozenKeys::Words2(keys.freeze(slots)),
            Keys::Words3(keys) => FrozenKeys::Words3(keys.freeze(slots)),
            Keys::Words4(keys) => FrozenKeys::Words4(keys.freeze(slots)),
            Keys::Bytes(keys) => FrozenKeys::Bytes(keys.freeze(slots)),
        }
    }

    /// Bytes of memory.
    pub(crate) fn bytes(&self) -> usize {
        let keys = by_form!(
            &self.keys, Keys,
            single: 0,
            words: |keys| keys.words.bytes() + keys.nulls.bytes(),
            bytes: |keys| keys.bytes()
        );
        let numbers = (self.slots.free.capacity() + self.slots.retired.capacity()) * 4;
        self.index.allocation_size() + keys + numbers
    }
}

impl<const W: usize> WordKeys<W> {
    fn new() -> Self {
        Self {
            words: Chunks::new(),
            nulls: Chunks::new(),
        }
    }

    fn put(&mut self, slot: u32, words: [i64; W], nulls: u8) {
        if slot as usize == self.words.len() {
            self.words.push(words);
            self.nulls.push(nulls);
        } else {
            *self.words.get_mut(slot) = words;
            *self.nulls.get_mut(slot) = nulls;
        }
    }

    fn freeze(&mut self, slots: &SlotSet) -> FrozenWordKeys<W> {
        FrozenWordKeys {
            words: self.words.freeze(slots),
            nulls: self.nulls.freeze(slots),
        }
    }
}

/// The keys of a batch, typed.
struct WordProbe<'a, const W: usize> {
    hashes: &'a [u64],
    columns: [&'a [i64]; W],
    nulls: Option<&'a [u8]>,
}

impl<const W: usize> WordProbe<'_, W> {
    /// Two passes: the first one trusts the hashes, the second one compares the keys. So neither waits for memory twice
    /// per row.
    fn run(
        &self,
        (index, keys): (&mut HashTable<Entry>, &mut WordKeys<W>),
        (null_slot, slots): (&mut Option<u32>, &mut SlotNumbers),
        rows: &[u32],
        probed: &mut Probed,
    ) {
        let first = probed.slots.len();
        probed.slots.reserve(rows.len());
        for row in rows {
            let row = *row as usize;
            let slot = if W == 1 && self.nulls_of(row) != 0 {
                *null_slot.get_or_insert_with(|| self.create(keys, slots, row, &mut probed.created))
            } else {
                let hash = self.hashes[row];
                match index.find(hash, |entry| entry.hash() == hash) {
                    Some(entry) => entry.slot,
                    None => {
                        let slot = self.create(keys, slots, row, &mut probed.created);
                        index.insert_unique(hash, Entry::new(hash, slot), Entry::hash);
                        slot
                    }
                }
            };
            probed.slots.push(slot);
        }
        if W == 1 {
            // The hash of a single word determines it.
            return;
        }
        for (row, slot) in rows.iter().zip(&mut probed.slots[first..]) {
            let row = *row as usize;
            if !self.is_key(keys, *slot, row) {
                // Another key has the same hash.
                let hash = self.hashes[row];
                let same = |entry: &Entry| entry.hash() == hash && self.is_key(keys, entry.slot, row);
                *slot = match index.find(hash, same) {
                    Some(entry) => entry.slot,
                    None => {
                        let slot = self.create(keys, slots, row, &mut probed.created);
                        index.insert_unique(hash, Entry::new(hash, slot), Entry::hash);
                        slot
                    }
                };
            }
        }
    }

    fn create(
        &self,
        keys: &mut WordKeys<W>,
        slots: &mut SlotNumbers,
        row: usize,
        created: &mut Vec<u32>,
    ) -> u32 {
        let slot = slots.next();
        let nulls = self.nulls_of(row);
        keys.put(slot, self.columns.map(|column| column[row]), nulls);
        created.push(slot);
        slot
    }

    #[inline]
    fn nulls_of(&self, row: usize) -> u8 {
        self.nulls.map_or(0, |nulls| nulls[row])
    }

    #[inline]
    fn is_key(&self, keys: &WordKeys<W>, slot: u32, row: usize) -> bool {
        let words = keys.words.get(slot);
        (0..W).all(|at| words[at] == self.columns[at][row]) && *keys.nulls.get(slot) == self.nulls_of(row)
    }
}

impl FrozenKeys {
    /// Appends the key of a slot that was frozen, as it is stored.
    pub(crate) fn encode(&self, slot: u32, out: &mut Vec<u8>) {
        by_form!(
            self, FrozenKeys,
            single: (),
            words: |keys| key::encode_words(keys.words.get(slot), *keys.nulls.get(slot), out),
            bytes: |keys| out.extend_from_slice(keys.get(slot))
        );
    }
}

fn first_word_of_stored(key: &[u8]) -> Option<i64> {
    highwater_storage::KeyReader::new(key).read_i64().ok().flatten()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::Int64Array;
    use arrow::datatypes::DataType;

    use super::*;

    fn batch(layout: &KeyLayout, keys: &[(i64, Option<i64>)]) -> KeyBatch {
        let first: ArrayRef = Arc::new(keys.iter().map(|key| Some(key.0)).collect::<Int64Array>());
        let second: ArrayRef = Arc::new(keys.iter().map(|key| key.1).collect::<Int64Array>());
        layout.batch(&[first, second]).unwrap()
    }

    fn slots(table: &mut GroupTable, batch: &KeyBatch, rows: u32) -> Vec<u32> {
        let mut probed = Probed::default();
        table.find_or_insert(batch, &(0..rows).collect::<Vec<_>>(), &mut probed);
        probed.slots
    }

    #[test]
    fn keys_with_the_same_hash_have_slots_of_their_own() {
        let layout = KeyLayout::new([DataType::Int64, DataType::Int64]).unwrap();
        let (one, two) = (hash::fold(0, 1), hash::fold(0, 2));
        let twin = (2, Some((7 ^ one ^ two).cast_signed()));
        let keys = batch(
            &layout,
            &[(1, Some(7)), twin, (1, None), (1, Some(7)), twin, (1, Some(0))],
        );
        assert_eq!(keys.hashes[0], keys.hashes[1]);

        let mut table = GroupTable::new(&layout);
        let found = slots(&mut table, &keys, 6);
        assert_eq!((found[0], found[1], found[2]), (found[3], found[4], found[2]));
        assert_eq!(table.len(), 4);
        table.remove(&[found[0]]);
        assert_eq!(
            slots(&mut table, &keys, 2)[1],
            found[1],
            "the twin stays when the other goes"
        );
    }

    #[test]
    fn a_removed_slot_is_not_used_again_before_it_may_be() {
        let layout = KeyLayout::new([DataType::Int64, DataType::Int64]).unwrap();
        let mut table = GroupTable::new(&layout);
        let own = slots(&mut table, &batch(&layout, &[(1, None)]), 1);
        table.remove(&own);
        let other = slots(&mut table, &batch(&layout, &[(2, None)]), 1);
        assert_ne!(own, other);

        table.reuse_retired();
        assert_eq!(slots(&mut table, &batch(&layout, &[(3, None)]), 1), own);
        assert_eq!(table.len(), 2);
    }

    #[test]
    fn keys_that_stay_are_found_under_their_new_numbers() {
        let layouts = [
            KeyLayout::new([DataType::Int64, DataType::Int64]).unwrap(),
            KeyLayout::new([DataType::Utf8, DataType::Int64]).unwrap(),
        ];
        for layout in layouts {
            let rows: Vec<(i64, Option<i64>)> = (0..9_000)
                .map(|row| (row % 3_000, (row % 7 != 0).then_some(row)))
                .collect();
            let batch = match layout.form() {
                KeyForm::Bytes => {
                    let text = rows.iter().map(|row| Some(row.0.to_string()));
                    let first: ArrayRef = Arc::new(text.collect::<arrow::array::StringArray>());
                    let second: ArrayRef = Arc::new(rows.iter().map(|row| row.1).collect::<Int64Array>());
                    layout.batch(&[first, second]).unwrap()
                }
                _ => batch(&layout, &rows),
            };
            let mut table = GroupTable::new(&layout);
            let before = slots(&mut table, &batch, 9_000);
            let bytes = table.bytes();
            let stay: Vec<u32> = (0..table.slots_end() as u32)
                .filter(|slot| slot % 10 == 3)
                .collect();
            let kept = Kept::new(stay, table.slots_end());
            table.keep(&kept);
            assert_eq!((table.len(), table.slots_end()), (kept.len(), kept.len()));
            assert!(
                table.bytes() < bytes / 4,
                "{} of {bytes} bytes are left",
                table.bytes()
            );
            let after = slots(&mut table, &batch, 9_000);
            for (old, new) in before.iter().zip(&after) {
                match kept.number(*old) {
                    Some(number) => assert_eq!(*new, number),
                    None => assert!(*new as usize >= kept.len(), "the others are new"),
                }
            }
            assert_eq!(
                table.len(),
                before.iter().max().map_or(0, |last| *last as usize + 1)
            );
        }
    }

    #[test]
    fn the_key_that_is_one_null_stays_too() {
        let layout = KeyLayout::new([DataType::Int64]).unwrap();
        let column: ArrayRef = Arc::new(Int64Array::from(vec![Some(0), None, Some(5)]));
        let batch = layout.batch(&[column]).unwrap();
        let mut table = GroupTable::new(&layout);
        assert_eq!(slots(&mut table, &batch, 3), [0, 1, 2]);
        table.keep(&Kept::new(vec![1, 2], 3));
        assert_eq!(slots(&mut table, &batch, 3), [2, 0, 1]);
        table.keep(&Kept::new(vec![1], 3));
        assert_eq!(slots(&mut table, &batch, 3), [1, 2, 0]);
    }
}
