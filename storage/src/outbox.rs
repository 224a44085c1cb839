//! Output rows that a sink has not confirmed: their codec and the way back after a restart.
//!
//! ```text
//! record = version:u8 | flags:u8 | partition:i32? | timestamp:i64? | key length:u32 key? | value…
//! ```
//!
//! An absent value is a tombstone and differs from an empty one; the value runs to the end.

use crate::codec::{RowReader, RowWriter};
use crate::error::StorageError;
use crate::family::Family;
use crate::ids::ObjectId;
use crate::layout;
use crate::store::{Snapshot, prefix_end};

const OUTBOX_VERSION: u8 = 1;

const HAS_KEY: u8 = 1;
const HAS_VALUE: u8 = 2;
const HAS_PARTITION: u8 = 4;
const HAS_TIMESTAMP: u8 = 8;
const KNOWN_FLAGS: u8 = HAS_KEY | HAS_VALUE | HAS_PARTITION | HAS_TIMESTAMP;

/// One message for the outside world, borrowed from the buffer that holds it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct OutboxRecord<'a> {
    /// The message key.
    pub key: Option<&'a [u8]>,
    /// The payload; `None` is a tombstone.
    pub value: Option<&'a [u8]>,
    /// The partition to write to; `None` leaves the choice to the connector.
    pub partition: Option<i32>,
    /// The message's timestamp in milliseconds since 1970; `None` leaves it to the connector.
    pub timestamp_ms: Option<i64>,
}

impl<'a> OutboxRecord<'a> {
    /// Appends the record's bytes to `out`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let mut row = RowWriter::new(out, OUTBOX_VERSION);
        row.put_u8(self.flags());
        if let Some(partition) = self.partition {
            row.put_u32(partition.cast_unsigned());
        }
        if let Some(timestamp_ms) = self.timestamp_ms {
            row.put_i64(timestamp_ms);
        }
        if let Some(key) = self.key {
            row.put_bytes(key);
        }
        if let Some(value) = self.value {
            row.put_rest(value);
        }
    }

    /// Reads a record from its bytes, without copying key and value.
    ///
    /// # Errors
    ///
    /// [`StorageError::Corrupt`], or [`StorageError::FormatVersion`] for an unknown version.
    pub fn decode(bytes: &'a [u8]) -> Result<Self, StorageError> {
        let mut row = RowReader::new(bytes, "outbox record", OUTBOX_VERSION)?;
        let flags = row.u8()?;
        if flags & !KNOWN_FLAGS != 0 {
            return Err(row.corrupt(format!("Its flags are {flags:#x}.")));
        }
        let has = |flag| flags & flag != 0;
        let partition = if has(HAS_PARTITION) {
            Some(row.u32()?.cast_signed())
        } else {
            None
        };
        let timestamp_ms = if has(HAS_TIMESTAMP) {
            Some(row.i64()?)
        } else {
            None
        };
        let key = if has(HAS_KEY) { Some(row.bytes()?) } else { None };
        let value = if has(HAS_VALUE) { Some(row.rest()) } else { None };
        row.finish()?;
        Ok(Self {
            key,
            value,
            partition,
            timestamp_ms,
        })
    }

    fn flags(&self) -> u8 {
        let mut flags = 0;
        for (present, flag) in [
            (self.key.is_some(), HAS_KEY),
            (self.value.is_some(), HAS_VALUE),
            (self.partition.is_some(), HAS_PARTITION),
            (self.timestamp_ms.is_some(), HAS_TIMESTAMP),
        ] {
            if present {
                flags |= flag;
            }
        }
        flags
    }
}

/// Calls `visit` with the stored output rows of `sink` from sequence `from` on, in order, until it
/// answers `false`.
///
/// # Errors
///
/// What `visit` returns, or a record that cannot be read.
pub fn for_each(
    snapshot: &dyn Snapshot,
    sink: ObjectId,
    from: u64,
    visit: &mut dyn FnMut(u64, OutboxRecord<'_>) -> Result<bool, StorageError>,
) -> Result<(), StorageError> {
    let to = prefix_end(&layout::object_prefix(sink));
    let from = layout::outbox_key(sink, from);
    snapshot.for_each(Family::Outbox, &from, to.as_deref(), &mut |key, value| {
        visit(layout::sequence_of(key)?, OutboxRecord::decode(value)?)
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_record_survives_its_codec(
            key: Option<Vec<u8>>,
            value: Option<Vec<u8>>,
            partition: Option<i32>,
            timestamp_ms: Option<i64>,
        ) {
            let (key, value) = (key.as_deref(), value.as_deref());
            let record = OutboxRecord { key, value, partition, timestamp_ms };
            let mut bytes = Vec::new();
            record.encode(&mut bytes);
            prop_assert_eq!(OutboxRecord::decode(&bytes).unwrap(), record);
        }

        #[test]
        fn no_bytes_make_the_decoder_panic(bytes: Vec<u8>) {
            let _ = OutboxRecord::decode(&bytes);
        }
    }

    #[test]
    fn a_tombstone_differs_from_an_empty_value() {
        let (mut tombstone, mut empty) = (Vec::new(), Vec::new());
        OutboxRecord {
            key: Some(b"k"),
            ..OutboxRecord::default()
        }
        .encode(&mut tombstone);
        OutboxRecord {
            key: Some(b"k"),
            value: Some(b""),
            ..OutboxRecord::default()
        }
        .encode(&mut empty);
        assert_eq!(OutboxRecord::decode(&tombstone).unwrap().value, None);
        assert_eq!(OutboxRecord::decode(&empty).unwrap().value, Some(b"".as_slice()));
    }

    #[test]
    fn bytes_after_a_tombstone_are_corrupt() {
        let mut bytes = Vec::new();
        OutboxRecord {
            key: Some(b"k"),
            ..OutboxRecord::default()
        }
        .encode(&mut bytes);
        bytes.push(1);
        assert!(OutboxRecord::decode(&bytes).is_err());
    }
}
