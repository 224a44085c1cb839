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
use super::slots::SlotSet;
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
    /// Slots whose key is new, in the order of the rows.
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
                let hash = by_form!(
                    &self.keys, Keys,
                    single: unreachable!("the only key stays"),
                    words: |keys| key::hash_key(keys.words.get(*slot), *keys.nulls.get(*slot)),
                    bytes: |keys| hash::bytes(keys.get(*slot))
                );
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
    fn run(
        &self,
        (index, keys): (&mut HashTable<Entry>, &mut WordKeys<W>),
        (null_slot, slots): (&mut Option<u32>, &mut SlotNumbers),
        rows: &[u32],
        probed: &mut Probed,
    ) {
        probed.slots.reserve(rows.len());
        for row in rows {
            let row = *row as usize;
            let nulls = self.nulls.map_or(0, |nulls| nulls[row]);
            if W == 1 && nulls != 0 {
                let slot = *null_slot.get_or_insert_with(|| {
                    let slot = slots.next();
                    keys.put(slot, [0; W], nulls);
                    probed.created.push(slot);
                    slot
                });
                probed.slots.push(slot);
                continue;
            }
            let hash = self.hashes[row];
            // The hash of a single word determines it.
            let found = index.find(hash, |entry| {
                entry.hash() == hash && (W == 1 || self.is_key(keys, entry.slot, row, nulls))
            });
            let slot = match found {
                Some(entry) => entry.slot,
                None => {
                    let slot = slots.next();
                    keys.put(slot, self.columns.map(|column| column[row]), nulls);
                    index.insert_unique(hash, Entry::new(hash, slot), Entry::hash);
                    probed.created.push(slot);
                    slot
                }
            };
            probed.slots.push(slot);
        }
    }

    #[inline]
    fn is_key(&self, keys: &WordKeys<W>, slot: u32, row: usize, nulls: u8) -> bool {
        let words = keys.words.get(slot);
        (0..W).all(|at| words[at] == self.columns[at][row]) && *keys.nulls.get(slot) == nulls
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
