//! The engine's own part of a query's progress row: source watermarks, the time of its last step, whether the query missed
//! changes and why it failed, and how far it has taken what it started from.

use std::collections::BTreeSet;

use highwater_storage::ObjectId;
use parking_lot::Mutex;

use super::backfill::Progress;
use crate::engine::error::EngineError;
use crate::engine::view::Cursor;

const VERSION: u8 = 4;
/// Without the error of a query that is stale.
const VERSION_CAUSELESS: u8 = 3;
/// Without the time.
const VERSION_TIMELESS: u8 = 1;

/// Of one watermark.
const WATERMARK_BYTES: usize = 13;

/// The length of a text that is not there.
const NO_TEXT: u32 = u32::MAX;

/// Bytes of each text of an error that are kept, at most.
const TEXT_BYTES_MAX: usize = 8 << 10;

/// What a query's header says beyond its epoch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct QueryHeader {
    /// The query failed while the relations that it reads went on; its state is behind for good.
    pub(crate) stale: bool,
    /// Why it failed, of one that is stale.
    pub(crate) cause: Option<EngineError>,
    /// The time of the last step (µs since the epoch).
    pub(crate) time_us: i64,
    /// The watermark of each source as a whole, and of each upstream relation (µs); partitions have theirs in rows of
    /// their own.
    pub(crate) watermarks: Vec<(ObjectId, Option<i64>)>,
    /// The relations whose content it has not taken to the end.
    pub(crate) backfill: Vec<(ObjectId, Progress)>,
}

impl QueryHeader {
    /// As bytes: version, stale, whether there is a cause, and of that SQLSTATE, message, detail and hint, each behind its length;
    /// the time, how many watermarks; of each the source, a flag and the watermark; then of each relation that is not taken to the
    /// end its id, rows taken, rows there, and the cursor with its length. Little endian.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut bytes = vec![VERSION, u8::from(self.stale), u8::from(self.cause.is_some())];
        if let Some(cause) = &self.cause {
            put_text(Some(cause.sqlstate), &mut bytes);
            put_text(Some(&cause.message), &mut bytes);
            put_text(cause.detail.as_deref(), &mut bytes);
            put_text(cause.hint.as_deref(), &mut bytes);
        }
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
        let cause = match *version {
            VERSION => read_cause(&mut rest)?,
            _ => None,
        };
        let time_us = match *version {
            VERSION_TIMELESS => i64::MIN,
            _ => i64::from_le_bytes(*take(&mut rest)?),
        };
        let count = match *version {
            VERSION_CAUSELESS | VERSION => u32::from_le_bytes(*take(&mut rest)?) as usize,
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
            cause,
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

fn put_text(text: Option<&str>, bytes: &mut Vec<u8>) {
    let Some(text) = text else {
        return bytes.extend_from_slice(&NO_TEXT.to_le_bytes());
    };
    let text = &text[..text.floor_char_boundary(TEXT_BYTES_MAX)];
    let length = u32::try_from(text.len()).expect("it is cut above");
    bytes.extend_from_slice(&length.to_le_bytes());
    bytes.extend_from_slice(text.as_bytes());
}

/// A text, or that there is none.
fn read_text(rest: &mut &[u8]) -> Option<Option<String>> {
    let length = u32::from_le_bytes(*take(rest)?);
    if length == NO_TEXT {
        return Some(None);
    }
    let (text, behind) = rest.split_at_checked(length as usize)?;
    *rest = behind;
    Some(Some(std::str::from_utf8(text).ok()?.to_owned()))
}

/// The cause, or that there is none.
fn read_cause(rest: &mut &[u8]) -> Option<Option<EngineError>> {
    match *take(rest)? {
        [0] => return Some(None),
        [1] => {}
        _ => return None,
    }
    let sqlstate = read_text(rest)??;
    let mut cause = EngineError::new(static_sqlstate(&sqlstate)?, read_text(rest)??);
    cause.detail = read_text(rest)?;
    cause.hint = read_text(rest)?;
    Some(Some(cause))
}

/// The code for as long as the process lives. There are few, so they are kept for good.
fn static_sqlstate(code: &str) -> Option<&'static str> {
    static CODES: Mutex<BTreeSet<&'static str>> = Mutex::new(BTreeSet::new());
    if code.len() != 5 || !code.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
        return None;
    }
    let mut codes = CODES.lock();
    if let Some(known) = codes.get(code) {
        return Some(known);
    }
    let code: &'static str = Box::leak(code.into());
    codes.insert(code);
    Some(code)
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
            cause: Some(EngineError::new("22012", "division by zero").with_detail("The row is (1).")),
            time_us: 77,
            watermarks: vec![(ObjectId(3), None), (ObjectId(9), Some(-5))],
            backfill: vec![(ObjectId(9), progress), (ObjectId(11), Progress::default())],
        };
        let bytes = header.encode();
        assert_eq!(QueryHeader::decode(&bytes), Ok(header.clone()));
        assert!(QueryHeader::decode(&bytes[..bytes.len() - 1]).is_err());
        assert!(QueryHeader::decode(&[&bytes[..], &[0]].concat()).is_err());
        assert!(QueryHeader::decode(&[2, 0]).is_err());
        assert!(QueryHeader::decode(&[5, 0]).is_err());
    }

    #[test]
    fn headers_of_earlier_versions_are_read() {
        let header = QueryHeader {
            stale: true,
            cause: None,
            time_us: 77,
            watermarks: vec![(ObjectId(3), None), (ObjectId(9), Some(-5))],
            backfill: Vec::new(),
        };
        let bytes = header.encode();
        let causeless: Vec<u8> = [&[3, 1], &bytes[3..]].concat();
        assert_eq!(QueryHeader::decode(&causeless), Ok(header.clone()));
        let whole: Vec<u8> = [&[2, 1], &bytes[3..11], &bytes[15..]].concat();
        assert_eq!(QueryHeader::decode(&whole), Ok(header.clone()));
        let before: Vec<u8> = [&[1, 1], &bytes[15..]].concat();
        let timeless = QueryHeader {
            time_us: i64::MIN,
            ..header
        };
        assert_eq!(QueryHeader::decode(&before), Ok(timeless));
    }
}
