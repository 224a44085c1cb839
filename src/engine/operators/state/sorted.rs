//! [`Sorted`]: keys of state on their way into a checkpoint, in ascending order.

use highwater_storage::{CheckpointWriter, StateTable};

/// Keys to be written in order: a byte range of a common buffer each, and what goes with it.
pub(crate) struct Sorted<T> {
    bytes: Vec<u8>,
    keys: Vec<SortedKey<T>>,
}

struct SortedKey<T> {
    /// The first 16 bytes: they mostly decide.
    head: u128,
    start: usize,
    end: usize,
    with: T,
}

/// Where rows go.
pub(crate) struct Target<'a> {
    /// The table.
    pub(crate) table: StateTable,
    /// The checkpoint.
    pub(crate) writer: &'a mut CheckpointWriter,
}

impl<T> Sorted<T> {
    /// Room for about `keys` keys.
    pub(crate) fn new(keys: usize) -> Self {
        Self {
            bytes: Vec::with_capacity(keys * 18),
            keys: Vec::with_capacity(keys),
        }
    }

    /// Adds the key that `encode` appends.
    pub(crate) fn push(&mut self, with: T, encode: impl FnOnce(&mut Vec<u8>)) {
        let start = self.bytes.len();
        encode(&mut self.bytes);
        let key = &self.bytes[start..];
        let mut head = [0; 16];
        let len = key.len().min(16);
        head[..len].copy_from_slice(&key[..len]);
        let head = u128::from_be_bytes(head);
        self.keys.push(SortedKey {
            head,
            start,
            end: self.bytes.len(),
            with,
        });
    }

    /// Visits the keys in ascending order.
    pub(crate) fn for_each(&mut self, mut visit: impl FnMut(&[u8], &T)) {
        let bytes = &self.bytes;
        self.keys.sort_unstable_by(|left, right| {
            let by_bytes = || bytes[left.start..left.end].cmp(&bytes[right.start..right.end]);
            left.head.cmp(&right.head).then_with(by_bytes)
        });
        for key in &self.keys {
            visit(&bytes[key.start..key.end], &key.with);
        }
    }
}

impl Target<'_> {
    /// Sets a key.
    pub(crate) fn put(&mut self, key: &[u8], value: &[u8]) {
        self.writer.put_state(self.table, key, value);
    }

    /// Deletes a key.
    pub(crate) fn delete(&mut self, key: &[u8]) {
        self.writer.delete_state(self.table, key);
    }
}
