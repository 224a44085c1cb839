//! [`WriteBatch`]: the writes of one atomic commit, gathered in flat buffers.
//!
//! ```text
//! record = operation and family: u8 | key length: u32 | value length: u32 | key | value
//! chunk  = record record record …            at most CHUNK_BYTES, or one larger record
//! batch  = chunk chunk chunk …
//! ```
//!
//! Appending a record allocates nothing but, once per mebibyte, the next chunk. At the commit the
//! records are replayed into the store and each chunk is freed when it has been read, so a large
//! batch never lies in memory twice.

use crate::family::Family;

/// Large enough that allocation does not show, small enough that freeing one by one helps.
const CHUNK_BYTES: usize = 1 << 20;

/// Operation and family, and the two lengths.
const HEADER_BYTES: usize = 1 + 4 + 4;

const PUT: u8 = 0;
const DELETE: u8 = 1;
const DELETE_RANGE: u8 = 2;

/// Writes that become durable together or not at all.
///
/// Within a batch the writes apply in the order in which they were added: a put after a range
/// delete over its key survives.
#[derive(Debug, Default)]
pub struct WriteBatch {
    chunks: Vec<Vec<u8>>,
    len: usize,
    bytes: usize,
}

/// One write of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Operation<'a> {
    /// Set `key` to `value`.
    Put {
        family: Family,
        key: &'a [u8],
        value: &'a [u8],
    },
    /// Remove `key`.
    Delete { family: Family, key: &'a [u8] },
    /// Remove every key in `from..to`.
    DeleteRange {
        family: Family,
        from: &'a [u8],
        to: &'a [u8],
    },
}

impl WriteBatch {
    /// An empty batch. Allocates nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets `key` to `value`.
    ///
    /// # Panics
    ///
    /// If key or value exceeds 4 GiB, the limit of the storage engine.
    pub fn put(&mut self, family: Family, key: &[u8], value: &[u8]) {
        self.append_record(PUT, family, [key, &[]], value);
    }

    /// Sets the key `prefix ++ key` to `value`, without building that key first.
    ///
    /// # Panics
    ///
    /// If key or value exceeds 4 GiB, the limit of the storage engine.
    pub fn put_prefixed(&mut self, family: Family, prefix: &[u8], key: &[u8], value: &[u8]) {
        self.append_record(PUT, family, [prefix, key], value);
    }

    /// Removes `key`; it need not exist.
    pub fn delete(&mut self, family: Family, key: &[u8]) {
        self.append_record(DELETE, family, [key, &[]], &[]);
    }

    /// Removes the key `prefix ++ key`, without building that key first.
    pub fn delete_prefixed(&mut self, family: Family, prefix: &[u8], key: &[u8]) {
        self.append_record(DELETE, family, [prefix, key], &[]);
    }

    /// Removes every key in `from..to`, the upper end excluded. An empty range is no write at all.
    ///
    /// The cost does not depend on the number of rows, but each range that is not compacted away
    /// yet slows reads of its family a little: right for closed windows and dropped objects, wrong
    /// for single keys.
    pub fn delete_range(&mut self, family: Family, from: &[u8], to: &[u8]) {
        if from < to {
            self.append_record(DELETE_RANGE, family, [from, &[]], to);
        }
    }

    /// Adds the writes of `later` after those of this batch, by moving its buffers.
    pub fn append(&mut self, later: Self) {
        self.chunks.extend(later.chunks);
        self.len += later.len;
        self.bytes += later.bytes;
    }

    /// How many writes the batch holds.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is nothing to write.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Bytes of the records in memory: keys, values and nine bytes for each write.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Hands each write to `apply` in order and frees the buffers on the way.
    pub(crate) fn replay<E>(self, mut apply: impl FnMut(Operation<'_>) -> Result<(), E>) -> Result<(), E> {
        for chunk in self.chunks {
            let mut rest = chunk.as_slice();
            while !rest.is_empty() {
                let (operation, after) = split_record(rest);
                apply(operation)?;
                rest = after;
            }
        }
        Ok(())
    }

    fn append_record(&mut self, operation: u8, family: Family, key: [&[u8]; 2], value: &[u8]) {
        let key_len = key[0].len() + key[1].len();
        let record_len = HEADER_BYTES + key_len + value.len();
        let chunk = self.chunk_with_room(record_len);
        chunk.push((operation << 4) | family as u8);
        chunk.extend_from_slice(&length(key_len));
        chunk.extend_from_slice(&length(value.len()));
        chunk.extend_from_slice(key[0]);
        chunk.extend_from_slice(key[1]);
        chunk.extend_from_slice(value);
        self.len += 1;
        self.bytes += record_len;
    }

    /// The first chunk grows from nothing, so that a batch of one row stays small.
    fn chunk_with_room(&mut self, record_len: usize) -> &mut Vec<u8> {
        let full = self
            .chunks
            .last()
            .is_none_or(|chunk| !chunk.is_empty() && chunk.len() + record_len > CHUNK_BYTES);
        if full {
            let capacity = if self.chunks.is_empty() {
                record_len
            } else {
                CHUNK_BYTES
            };
            self.chunks.push(Vec::with_capacity(capacity.max(record_len)));
        }
        self.chunks
            .last_mut()
            .expect("a chunk was pushed if there was none")
    }
}

fn length(len: usize) -> [u8; 4] {
    u32::try_from(len)
        .expect("a key or value is smaller than 4 GiB")
        .to_le_bytes()
}

/// Splits the first record off. `bytes` was written by [`WriteBatch::append_record`].
fn split_record(bytes: &[u8]) -> (Operation<'_>, &[u8]) {
    let (header, rest) = bytes.split_at(HEADER_BYTES);
    let key_len = u32::from_le_bytes([header[1], header[2], header[3], header[4]]) as usize;
    let value_len = u32::from_le_bytes([header[5], header[6], header[7], header[8]]) as usize;
    let (key, rest) = rest.split_at(key_len);
    let (value, rest) = rest.split_at(value_len);
    let family = Family::ALL[usize::from(header[0] & 0x0f)];
    let operation = match header[0] >> 4 {
        PUT => Operation::Put { family, key, value },
        DELETE => Operation::Delete { family, key },
        _ => Operation::DeleteRange {
            family,
            from: key,
            to: value,
        },
    };
    (operation, rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn operations(batch: WriteBatch) -> Vec<String> {
        let mut seen = Vec::new();
        batch
            .replay(|operation| {
                seen.push(format!("{operation:?}"));
                Ok::<(), ()>(())
            })
            .unwrap();
        seen
    }

    #[test]
    fn writes_replay_in_the_order_in_which_they_were_added() {
        let mut batch = WriteBatch::new();
        batch.delete_range(Family::State, b"a", b"b");
        batch.put_prefixed(Family::State, b"a", b"1", b"one");
        batch.delete(Family::Views, b"gone");

        assert_eq!(batch.len(), 3);
        assert_eq!(batch.bytes(), 3 * HEADER_BYTES + 2 + 5 + 4);
        let expected = [
            Operation::DeleteRange {
                family: Family::State,
                from: b"a",
                to: b"b",
            },
            Operation::Put {
                family: Family::State,
                key: b"a1",
                value: b"one",
            },
            Operation::Delete {
                family: Family::Views,
                key: b"gone",
            },
        ]
        .map(|operation| format!("{operation:?}"));
        assert_eq!(operations(batch), expected);
    }

    #[test]
    fn an_empty_range_is_no_write() {
        let mut batch = WriteBatch::new();
        batch.delete_range(Family::State, b"b", b"b");
        batch.delete_range(Family::State, b"b", b"a");
        assert!(batch.is_empty());
    }

    #[test]
    fn records_larger_than_a_chunk_and_many_small_ones_survive() {
        let mut batch = WriteBatch::new();
        let large = vec![7; 3 * CHUNK_BYTES];
        batch.put(Family::Views, b"large", &large);
        for number in 0..200_000u32 {
            batch.put(Family::State, &number.to_be_bytes(), b"value");
        }
        let mut later = WriteBatch::new();
        later.delete(Family::State, b"last");
        batch.append(later);

        assert_eq!(batch.len(), 200_002);
        let mut next = 0;
        batch
            .replay(|operation| {
                if let Operation::Put {
                    family: Family::State,
                    key,
                    ..
                } = operation
                {
                    assert_eq!(key, u32::to_be_bytes(next));
                    next += 1;
                }
                Ok::<(), ()>(())
            })
            .unwrap();
        assert_eq!(next, 200_000);
    }
}
