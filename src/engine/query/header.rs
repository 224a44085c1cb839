//! The engine's own part of a query's progress row: source watermarks, the time of its last step, whether the query missed
//! changes, and how far it has taken what it started from.

use highwater_storage::ObjectId;

use super::backfill::Progress;
use crate::engine::error::EngineError;
use crate::engine::view::Cursor;

const VERSION: u8 = 3;
/// Without the time.
const VERSION_TIMELESS: u8 = 1;

/// Of one watermark.
const WATERMARK_BYTES: usize = 13;

/// What a query's header says beyond its epoch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct QueryHeader {
    /// The query failed while the relations that it reads went on; its state is behind for good.
    pub(crate) stale: bool,
    /// The time of the last step (µs since the epoch).
    pub(crate) time_us: i64,
    /// The watermark of each source as a whole, and of each upstream relation (µs); partitions have theirs in rows of
    /// their own.
    pub(crate) watermarks: Vec<(ObjectId, Option<i64>)>,
    /// The relations whose content it has not taken to the end.
    pub(crate) backfill: Vec<(ObjectId, Progress)>,
}

impl QueryHeader {
    /// As bytes: version, stale, the time, how many watermarks; of each the source, a flag and the watermark; then of each
    /// relation that is not taken to the end its id, rows taken, rows there, and the cursor with its length. Little endian.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut bytes = vec![VERSION, u8::from(self.stale)];
        bytes.extend_from_slice(&self.time_us.to_le_bytes());
        let count = u32::try_from(self.watermarks.len()).expect("a query reads few sources");
        bytes.extend_from_slice(&count.to_le_bytes());
        for (source, watermark) in &self.watermarks {
            bytes.extend_from_slice(&source.0.to_le_bytes());
            bytes.push(u8::from(watermark.is_some()));
            bytes.extend_from_slice(&watermark.unwrap_or(0).to_le_bytes());
        }
        for (relation, progress) in &self.backfill {
            bytes.extend_from_slice(&relation.0.to_le_bytes());
            bytes.extend_from_slice(&progress.rows.to_le_bytes());
            bytes.extend_from_slice(&progress.of_rows.to_le_bytes());
            let cursor = progress.cursor.encode();
            let length = u32::try_from(cursor.len()).expect("a key is small");
            bytes.extend_from_slice(&length.to_le_bytes());
            bytes.extend_from_slice(&cursor);
        }
        bytes
    }

    /// Reads what [`Self::encode`] wrote, now or in an earlier version.
    ///
    /// # Errors
    /// Anything else (INV-6).
    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, EngineError> {
        Self::read(bytes).ok_or_else(|| EngineError::recovery("the header of a query cannot be read"))
    }

    fn read(bytes: &[u8]) -> Option<Self> {
        let [version @ VERSION_TIMELESS..=VERSION, stale @ (0 | 1), rest @ ..] = bytes else {
            return None;
        };
        let mut rest = rest;
        let time_us = match *version {
            VERSION_TIMELESS => i64::MIN,
            _ => i64::from_le_bytes(*take(&mut rest)?),
        };
        let count = match *version {
            VERSION => u32::from_le_bytes(*take(&mut rest)?) as usize,
            _ => rest.len().div_ceil(WATERMARK_BYTES),
        };
        let mut watermarks = Vec::new();
        for _ in 0..count {
            let source = u32::from_le_bytes(*take(&mut rest)?);
            let [is_some] = *take(&mut rest)?;
            let watermark = i64::from_le_bytes(*take(&mut rest)?);
            watermarks.push((ObjectId(source), (is_some == 1).then_some(watermark)));
        }
        let mut backfill = Vec::new();
        while !rest.is_empty() {
            let relation = ObjectId(u32::from_le_bytes(*take(&mut rest)?));
            let rows = u64::from_le_bytes(*take(&mut rest)?);
            let of_rows = u64::from_le_bytes(*take(&mut rest)?);
            let length = u32::from_le_bytes(*take(&mut rest)?) as usize;
            let (cursor, behind) = rest.split_at_checked(length)?;
            rest = behind;
            let cursor = Cursor::decode(cursor)?;
            backfill.push((
                relation,
                Progress {
                    cursor,
                    rows,
                    of_rows,
                },
            ));
        }
        Some(Self {
            stale: *stale == 1,
            time_us,
            watermarks,
            backfill,
        })
    }

    /// The recorded watermark of a source or upstream relation.
    pub(crate) fn watermark(&self, source: ObjectId) -> Option<i64> {
        let (_, watermark) = self.watermarks.iter().find(|(id, _)| *id == source)?;
        *watermark
    }
}

/// Takes the first bytes.
fn take<'b, const N: usize>(rest: &mut &'b [u8]) -> Option<&'b [u8; N]> {
    let (first, behind) = rest.split_first_chunk()?;
    *rest = behind;
    Some(first)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_reads_back_and_a_damaged_one_is_refused() {
        let progress = Progress {
            cursor: Cursor::Key(vec![1, 0, 255]),
            rows: 5,
            of_rows: 9,
        };
        let header = QueryHeader {
            stale: true,
            time_us: 77,
            watermarks: vec![(ObjectId(3), None), (ObjectId(9), Some(-5))],
            backfill: vec![(ObjectId(9), progress), (ObjectId(11), Progress::default())],
        };
        let bytes = header.encode();
        assert_eq!(QueryHeader::decode(&bytes), Ok(header.clone()));
        assert!(QueryHeader::decode(&bytes[..bytes.len() - 1]).is_err());
        assert!(QueryHeader::decode(&[&bytes[..], &[0]].concat()).is_err());
        assert!(QueryHeader::decode(&[2, 0]).is_err());
        assert!(QueryHeader::decode(&[4, 0]).is_err());
    }

    #[test]
    fn headers_of_earlier_versions_are_read() {
        let header = QueryHeader {
            stale: true,
            time_us: 77,
            watermarks: vec![(ObjectId(3), None), (ObjectId(9), Some(-5))],
            backfill: Vec::new(),
        };
        let bytes = header.encode();
        let whole: Vec<u8> = [&[2, 1], &bytes[2..10], &bytes[14..]].concat();
        assert_eq!(QueryHeader::decode(&whole), Ok(header.clone()));
        let before: Vec<u8> = [&[1, 1], &bytes[14..]].concat();
        let timeless = QueryHeader {
            time_us: i64::MIN,
            ..header
        };
        assert_eq!(QueryHeader::decode(&before), Ok(timeless));
    }
}
