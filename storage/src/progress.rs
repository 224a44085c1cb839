//! How far things are: the rows of [`Family::Progress`] and their codecs.
//!
//! All of a query's progress is read back by [`load`], in one pass over its keys.

use crate::codec::{RowReader, RowWriter};
use crate::error::StorageError;
use crate::family::Family;
use crate::ids::{Epoch, ObjectId, OperatorId, PartitionNo};
use crate::layout::{self, ProgressKey};
use crate::store::{Snapshot, prefix_end};

const LANE_VERSION: u8 = 1;
const QUERY_VERSION: u8 = 1;
const SINK_VERSION: u8 = 1;
const OPERATOR_VERSION: u8 = 1;

const HAS_WATERMARK: u8 = 1;
const IS_IDLE: u8 = 2;
const HAS_COUNTS: u8 = 4;

/// How far one partition has been read by one query.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LaneProgress {
    /// One past the offset of the last row taken.
    pub next_offset: i64,
    /// Event time in microseconds since 1970 below which the partition expects no more rows;
    /// `None` before its first row.
    pub watermark: Option<i64>,
    /// Whether the partition is left out of the minimum over the source's partitions.
    pub idle: bool,
    /// How its records add up, from the first one on.
    pub counts: LaneCounts,
}

/// How the records of a partition add up: taken = rows + bad + tombstones (INV-5).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LaneCounts {
    /// Good rows.
    pub rows: u64,
    /// Records that could not be decoded.
    pub bad: u64,
    /// Null payloads.
    pub tombstones: u64,
    /// Good rows too far ahead of the wall clock to move the watermark.
    pub skewed: u64,
    /// Good rows without an event time, which stand in no window of it.
    pub untimed: u64,
    /// Records that were gone before they were read.
    pub lost: u64,
}

impl LaneCounts {
    /// Adds the counts of another batch.
    pub fn add(&mut self, other: &Self) {
        self.rows += other.rows;
        self.bad += other.bad;
        self.tombstones += other.tombstones;
        self.skewed += other.skewed;
        self.untimed += other.untimed;
        self.lost += other.lost;
    }

    fn fields(self) -> [u64; 6] {
        [
            self.rows,
            self.bad,
            self.tombstones,
            self.skewed,
            self.untimed,
            self.lost,
        ]
    }
}

/// The header of a query: what holds for all of its operators and lanes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct QueryProgress {
    /// The checkpoint that wrote this row.
    pub epoch: Epoch,
    /// The next number for a row without a key of its own.
    pub next_row_id: u64,
    /// What else the engine must find again; not interpreted here.
    pub extra: Vec<u8>,
}

/// How far the output of a sink has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SinkProgress {
    /// The sequence of the next output row.
    pub next_seq: u64,
    /// Every output row below this sequence is confirmed by the outside world.
    pub confirmed_seq: u64,
}

/// Which operator wrote a state, so that a changed plan is noticed and the operator named.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct OperatorHeader {
    /// Hash of everything that the layout of the state depends on.
    pub fingerprint: u64,
    /// The operator as EXPLAIN shows it.
    pub description: String,
}

/// Everything that an object has in [`Family::Progress`].
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ObjectProgress {
    /// Its header as a query, if it has had a checkpoint.
    pub query: Option<QueryProgress>,
    /// Its progress as a sink, if it is one.
    pub sink: Option<SinkProgress>,
    /// Its lanes by source and partition, ascending.
    pub lanes: Vec<(ObjectId, PartitionNo, LaneProgress)>,
    /// The headers of its operators' states, ascending.
    pub operators: Vec<(OperatorId, OperatorHeader)>,
}

impl LaneProgress {
    /// Appends the row's bytes to `out`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let mut row = RowWriter::new(out, LANE_VERSION);
        let mut flags = 0;
        if self.watermark.is_some() {
            flags |= HAS_WATERMARK;
        }
        if self.idle {
            flags |= IS_IDLE;
        }
        let has_counts = self.counts != LaneCounts::default();
        if has_counts {
            flags |= HAS_COUNTS;
        }
        row.put_u8(flags);
        row.put_i64(self.next_offset);
        if let Some(watermark) = self.watermark {
            row.put_i64(watermark);
        }
        if has_counts {
            self.counts
                .fields()
                .into_iter()
                .for_each(|count| row.put_u64(count));
        }
    }

    /// Reads the row from its bytes.
    ///
    /// # Errors
    ///
    /// [`StorageError::Corrupt`], or [`StorageError::FormatVersion`] for an unknown version.
    pub fn decode(bytes: &[u8]) -> Result<Self, StorageError> {
        let mut row = RowReader::new(bytes, "lane progress", LANE_VERSION)?;
        let flags = row.u8()?;
        if flags & !(HAS_WATERMARK | IS_IDLE | HAS_COUNTS) != 0 {
            return Err(row.corrupt(format!("Its flags are {flags:#x}.")));
        }
        let next_offset = row.i64()?;
        let watermark = if flags & HAS_WATERMARK != 0 {
            Some(row.i64()?)
        } else {
            None
        };
        let counts = if flags & HAS_COUNTS != 0 {
            LaneCounts {
                rows: row.u64()?,
                bad: row.u64()?,
                tombstones: row.u64()?,
                skewed: row.u64()?,
                untimed: row.u64()?,
                lost: row.u64()?,
            }
        } else {
            LaneCounts::default()
        };
        row.finish()?;
        Ok(Self {
            next_offset,
            watermark,
            idle: flags & IS_IDLE != 0,
            counts,
        })
    }
}

impl QueryProgress {
    /// Appends the row's bytes to `out`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let mut row = RowWriter::new(out, QUERY_VERSION);
        row.put_u64(self.epoch.0);
        row.put_u64(self.next_row_id);
        row.put_rest(&self.extra);
    }

    /// Reads the row from its bytes.
    ///
    /// # Errors
    ///
    /// [`StorageError::Corrupt`], or [`StorageError::FormatVersion`] for an unknown version.
    pub fn decode(bytes: &[u8]) -> Result<Self, StorageError> {
        let mut row = RowReader::new(bytes, "query progress", QUERY_VERSION)?;
        Ok(Self {
            epoch: Epoch(row.u64()?),
            next_row_id: row.u64()?,
            extra: row.rest().to_vec(),
        })
    }
}

impl SinkProgress {
    /// Appends the row's bytes to `out`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let mut row = RowWriter::new(out, SINK_VERSION);
        row.put_u64(self.next_seq);
        row.put_u64(self.confirmed_seq);
    }

    /// Reads the row from its bytes.
    ///
    /// # Errors
    ///
    /// [`StorageError::Corrupt`], or [`StorageError::FormatVersion`] for an unknown version.
    pub fn decode(bytes: &[u8]) -> Result<Self, StorageError> {
        let mut row = RowReader::new(bytes, "sink progress", SINK_VERSION)?;
        let progress = Self {
            next_seq: row.u64()?,
            confirmed_seq: row.u64()?,
        };
        if progress.confirmed_seq > progress.next_seq {
            return Err(row.corrupt(format!(
                "Row {} is confirmed, but only {} were made.",
                progress.confirmed_seq, progress.next_seq
            )));
        }
        row.finish()?;
        Ok(progress)
    }
}

impl OperatorHeader {
    /// Appends the row's bytes to `out`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let mut row = RowWriter::new(out, OPERATOR_VERSION);
        row.put_u64(self.fingerprint);
        row.put_bytes(self.description.as_bytes());
    }

    /// Reads the row from its bytes.
    ///
    /// # Errors
    ///
    /// [`StorageError::Corrupt`], or [`StorageError::FormatVersion`] for an unknown version.
    pub fn decode(bytes: &[u8]) -> Result<Self, StorageError> {
        let mut row = RowReader::new(bytes, "operator header", OPERATOR_VERSION)?;
        let header = Self {
            fingerprint: row.u64()?,
            description: row.text()?,
        };
        row.finish()?;
        Ok(header)
    }
}

/// Reads all progress of `object`; empty if it has had no checkpoint yet.
///
/// # Errors
///
/// If a row cannot be read exactly. Recovery must then stop (INV-6).
pub fn load(snapshot: &dyn Snapshot, object: ObjectId) -> Result<ObjectProgress, StorageError> {
    let from = layout::object_prefix(object);
    let to = prefix_end(&from);
    let mut progress = ObjectProgress::default();
    snapshot.for_each(Family::Progress, &from, to.as_deref(), &mut |key, value| {
        match layout::split_progress_key(key)?.1 {
            ProgressKey::Query => progress.query = Some(QueryProgress::decode(value)?),
            ProgressKey::Sink => progress.sink = Some(SinkProgress::decode(value)?),
            ProgressKey::Lane(source, partition) => {
                progress
                    .lanes
                    .push((source, partition, LaneProgress::decode(value)?));
            }
            ProgressKey::Operator(operator) => {
                progress
                    .operators
                    .push((operator, OperatorHeader::decode(value)?));
            }
        }
        Ok(true)
    })?;
    Ok(progress)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn lane_progress_survives_its_codec(
            next_offset: i64,
            watermark: Option<i64>,
            idle: bool,
            counts: [u64; 6],
        ) {
            let [rows, bad, tombstones, skewed, untimed, lost] = counts;
            let counts = LaneCounts { rows, bad, tombstones, skewed, untimed, lost };
            let progress = LaneProgress { next_offset, watermark, idle, counts };
            let mut bytes = Vec::new();
            progress.encode(&mut bytes);
            prop_assert_eq!(LaneProgress::decode(&bytes).unwrap(), progress);
        }

        #[test]
        fn headers_survive_their_codecs(
            epoch: u64,
            next_row_id: u64,
            extra: Vec<u8>,
            description: String,
        ) {
            let query = QueryProgress { epoch: Epoch(epoch), next_row_id, extra };
            let mut bytes = Vec::new();
            query.encode(&mut bytes);
            prop_assert_eq!(QueryProgress::decode(&bytes).unwrap(), query);

            let operator = OperatorHeader { fingerprint: epoch, description };
            let mut bytes = Vec::new();
            operator.encode(&mut bytes);
            prop_assert_eq!(OperatorHeader::decode(&bytes).unwrap(), operator);
        }

        #[test]
        fn no_bytes_make_a_decoder_panic(bytes: Vec<u8>) {
            let _ = LaneProgress::decode(&bytes);
            let _ = QueryProgress::decode(&bytes);
            let _ = SinkProgress::decode(&bytes);
            let _ = OperatorHeader::decode(&bytes);
        }
    }

    #[test]
    fn an_unknown_version_is_refused_by_number() {
        let mut bytes = Vec::new();
        SinkProgress {
            next_seq: 4,
            confirmed_seq: 3,
        }
        .encode(&mut bytes);
        bytes[0] = 9;
        let error = SinkProgress::decode(&bytes).unwrap_err();
        assert_eq!(
            error.to_string(),
            "sink progress has version 9, this program reads version 1"
        );
    }

    #[test]
    fn a_cut_or_padded_row_is_corrupt() {
        let mut bytes = Vec::new();
        LaneProgress {
            next_offset: 1,
            watermark: Some(2),
            idle: true,
            counts: LaneCounts::default(),
        }
        .encode(&mut bytes);
        assert!(LaneProgress::decode(&bytes[..bytes.len() - 1]).is_err());
        bytes.push(0);
        assert!(LaneProgress::decode(&bytes).is_err());
    }

    #[test]
    fn more_rows_confirmed_than_made_is_corrupt() {
        let mut bytes = Vec::new();
        SinkProgress {
            next_seq: 3,
            confirmed_seq: 4,
        }
        .encode(&mut bytes);
        assert!(SinkProgress::decode(&bytes).is_err());
    }
}
