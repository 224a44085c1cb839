//! Where each row lives: the one home of every key that the database uses.
//!
//! ```text
//! meta      "format" | "next_object_id" | "system_version" | "catalog/" object:u32
//! progress  object:u32 0                                   header of a query
//!           object:u32 1                                   progress of a sink
//!           object:u32 2 source:u32 partition:i32          progress of a lane
//!           object:u32 3 operator:u16                      header of an operator's state
//! state     object:u32 operator:u16 table:u8 key…
//! views     object:u32 key…
//! outbox    object:u32 sequence:u64
//! errors    sequence:u64
//! ```
//!
//! Numbers are big-endian and signed ones have their sign bit flipped, so keys sort as their numbers
//! do, and everything that belongs to one object lies together and can be dropped as one range.

use crate::batch::WriteBatch;
use crate::error::StorageError;
use crate::family::Family;
use crate::ids::{ObjectId, OperatorId, PartitionNo, StateTable};
use crate::store::prefix_end;

/// Key of the on-disk format in [`Family::Meta`].
pub const FORMAT_KEY: &[u8] = b"format";
/// Key of the object id allocator in [`Family::Meta`].
pub const NEXT_OBJECT_ID_KEY: &[u8] = b"next_object_id";
/// Key of the version of the program that wrote last, in [`Family::Meta`].
pub const SYSTEM_VERSION_KEY: &[u8] = b"system_version";
/// What every catalog row's key in [`Family::Meta`] starts with.
pub const CATALOG_PREFIX: &[u8] = b"catalog/";

const QUERY_TAG: u8 = 0;
const SINK_TAG: u8 = 1;
const LANE_TAG: u8 = 2;
const OPERATOR_TAG: u8 = 3;

/// What a key in [`Family::Progress`] belongs to, without its object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProgressKey {
    /// The header of the object as a query.
    Query,
    /// The progress of the object as a sink.
    Sink,
    /// A lane of the object: a partition of one of its sources.
    Lane(ObjectId, PartitionNo),
    /// The header of an operator's state.
    Operator(OperatorId),
}

/// Key of a catalog row in [`Family::Meta`].
pub fn catalog_key(object: ObjectId) -> [u8; 12] {
    let mut key = [0; 12];
    key[..8].copy_from_slice(CATALOG_PREFIX);
    key[8..].copy_from_slice(&object.0.to_be_bytes());
    key
}

/// What all keys of `object` in [`Family::Progress`], [`Family::State`], [`Family::Views`] and
/// [`Family::Outbox`] start with.
pub fn object_prefix(object: ObjectId) -> [u8; 4] {
    object.0.to_be_bytes()
}

/// What the keys of one table of an operator in [`Family::State`] start with.
pub fn state_prefix(table: StateTable) -> [u8; 7] {
    let [a, b, c, d] = table.object.0.to_be_bytes();
    let [e, f] = table.operator.0.to_be_bytes();
    [a, b, c, d, e, f, table.table.0]
}

/// What the keys of a table or materialized view in [`Family::Views`] start with.
pub fn view_prefix(object: ObjectId) -> [u8; 4] {
    object_prefix(object)
}

/// Key of a query's header in [`Family::Progress`].
pub fn query_key(query: ObjectId) -> [u8; 5] {
    tagged(query, QUERY_TAG)
}

/// Key of a sink's progress in [`Family::Progress`].
pub fn sink_key(sink: ObjectId) -> [u8; 5] {
    tagged(sink, SINK_TAG)
}

/// Key of a lane's progress in [`Family::Progress`]: `partition` of `source` as read by `query`.
pub fn lane_key(query: ObjectId, source: ObjectId, partition: PartitionNo) -> [u8; 13] {
    let mut key = [0; 13];
    key[..5].copy_from_slice(&tagged(query, LANE_TAG));
    key[5..9].copy_from_slice(&source.0.to_be_bytes());
    key[9..].copy_from_slice(&(partition.0 ^ i32::MIN).to_be_bytes());
    key
}

/// Key of the header of an operator's state in [`Family::Progress`].
pub fn operator_key(query: ObjectId, operator: OperatorId) -> [u8; 7] {
    let mut key = [0; 7];
    key[..5].copy_from_slice(&tagged(query, OPERATOR_TAG));
    key[5..].copy_from_slice(&operator.0.to_be_bytes());
    key
}

/// Takes a key of [`Family::Progress`] apart.
///
/// # Errors
///
/// [`StorageError::Corrupt`] if it is none that this module makes.
pub fn split_progress_key(key: &[u8]) -> Result<(ObjectId, ProgressKey), StorageError> {
    let corrupt = || StorageError::corrupt("a progress key", format!("Its bytes are {key:?}."));
    let (object, rest) = key.split_first_chunk().ok_or_else(corrupt)?;
    let object = ObjectId(u32::from_be_bytes(*object));
    let kind = match rest {
        [QUERY_TAG] => ProgressKey::Query,
        [SINK_TAG] => ProgressKey::Sink,
        [LANE_TAG, a, b, c, d, e, f, g, h] => ProgressKey::Lane(
            ObjectId(u32::from_be_bytes([*a, *b, *c, *d])),
            PartitionNo(i32::from_be_bytes([*e, *f, *g, *h]) ^ i32::MIN),
        ),
        [OPERATOR_TAG, a, b] => ProgressKey::Operator(OperatorId(u16::from_be_bytes([*a, *b]))),
        _ => return Err(corrupt()),
    };
    Ok((object, kind))
}

/// Key of an output row in [`Family::Outbox`].
pub fn outbox_key(sink: ObjectId, sequence: u64) -> [u8; 12] {
    let mut key = [0; 12];
    key[..4].copy_from_slice(&sink.0.to_be_bytes());
    key[4..].copy_from_slice(&sequence.to_be_bytes());
    key
}

/// The sequence in a key of [`Family::Outbox`] or [`Family::Errors`]: its last eight bytes.
///
/// # Errors
///
/// [`StorageError::Corrupt`] if the key is shorter than that.
pub fn sequence_of(key: &[u8]) -> Result<u64, StorageError> {
    let sequence = key
        .last_chunk()
        .ok_or_else(|| StorageError::corrupt("a key with a sequence", format!("Its bytes are {key:?}.")))?;
    Ok(u64::from_be_bytes(*sequence))
}

/// Key of a row in [`Family::Errors`].
pub fn error_key(sequence: u64) -> [u8; 8] {
    sequence.to_be_bytes()
}

/// Removes everything that `object` has stored: progress, state, rows and outbox. Its catalog row
/// is another matter: see [`catalog::delete_row`](crate::catalog::delete_row).
///
/// # Panics
///
/// For the greatest [`ObjectId`], which no object has.
pub fn delete_object(batch: &mut WriteBatch, object: ObjectId) {
    let from = object_prefix(object);
    let to = prefix_end(&from).expect("the greatest object id is never handed out");
    for family in [Family::Progress, Family::State, Family::Views, Family::Outbox] {
        batch.delete_range(family, &from, &to);
    }
}

fn tagged(object: ObjectId, tag: u8) -> [u8; 5] {
    let [a, b, c, d] = object.0.to_be_bytes();
    [a, b, c, d, tag]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_keys_split_into_what_they_were_made_of() {
        let (query, source) = (ObjectId(7), ObjectId(3));
        let cases: [(&[u8], ProgressKey); 5] = [
            (&query_key(query), ProgressKey::Query),
            (&sink_key(query), ProgressKey::Sink),
            (
                &lane_key(query, source, PartitionNo(-1)),
                ProgressKey::Lane(source, PartitionNo(-1)),
            ),
            (
                &lane_key(query, source, PartitionNo(9)),
                ProgressKey::Lane(source, PartitionNo(9)),
            ),
            (
                &operator_key(query, OperatorId(2)),
                ProgressKey::Operator(OperatorId(2)),
            ),
        ];
        for (key, kind) in cases {
            assert_eq!(split_progress_key(key).unwrap(), (query, kind));
        }
        assert!(split_progress_key(b"abc").is_err());
        assert!(split_progress_key(b"abcde").is_err());
    }

    #[test]
    fn lanes_sort_by_partition_and_stay_within_their_query() {
        let lane = |partition| lane_key(ObjectId(1), ObjectId(2), PartitionNo(partition));
        assert!(lane(-1) < lane(0));
        assert!(lane(0) < lane(1));
        assert!(lane(i32::MAX).as_slice() < query_key(ObjectId(2)).as_slice());
    }
}
