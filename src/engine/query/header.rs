//! The engine's own part of a query's progress row: source watermarks, the time of its last step, and whether the query missed
//! changes.

use highwater_storage::ObjectId;

use crate::engine::error::EngineError;

const VERSION: u8 = 2;
/// Without the time.
const VERSION_TIMELESS: u8 = 1;

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
}

impl QueryHeader {
    /// As bytes: version, stale, the time, then per source its id, a flag and the watermark, little endian.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut bytes = vec![VERSION, u8::from(self.stale)];
        bytes.extend_from_slice(&self.time_us.to_le_bytes());
        for (source, watermark) in &self.watermarks {
            bytes.extend_from_slice(&source.0.to_le_bytes());
            bytes.push(u8::from(watermark.is_some()));
            bytes.extend_from_slice(&watermark.unwrap_or(0).to_le_bytes());
        }
        bytes
    }

    /// Reads what [`Self::encode`] wrote, now or before it wrote the time.
    ///
    /// # Errors
    /// Anything else (INV-6).
    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, EngineError> {
        let damaged = || EngineError::recovery("the header of a query cannot be read");
        let [version @ (VERSION | VERSION_TIMELESS), stale @ (0 | 1), rest @ ..] = bytes else {
            return Err(damaged());
        };
        let (time_us, rest) = match (version, rest.split_first_chunk()) {
            (&VERSION_TIMELESS, _) => (i64::MIN, rest),
            (_, Some((time, rest))) => (i64::from_le_bytes(*time), rest),
            (_, None) => return Err(damaged()),
        };
        let mut watermarks = Vec::new();
        let mut entries = rest.chunks_exact(13);
        for entry in &mut entries {
            let source = u32::from_le_bytes(entry[..4].try_into().map_err(|_| damaged())?);
            let watermark = i64::from_le_bytes(entry[5..].try_into().map_err(|_| damaged())?);
            watermarks.push((ObjectId(source), (entry[4] == 1).then_some(watermark)));
        }
        if !entries.remainder().is_empty() {
            return Err(damaged());
        }
        Ok(Self {
            stale: *stale == 1,
            time_us,
            watermarks,
        })
    }

    /// The recorded watermark of a source or upstream relation.
    pub(crate) fn watermark(&self, source: ObjectId) -> Option<i64> {
        let (_, watermark) = self.watermarks.iter().find(|(id, _)| *id == source)?;
        *watermark
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_reads_back_and_a_damaged_one_is_refused() {
        let header = QueryHeader {
            stale: true,
            time_us: 77,
            watermarks: vec![(ObjectId(3), None), (ObjectId(9), Some(-5))],
        };
        let bytes = header.encode();
        assert_eq!(QueryHeader::decode(&bytes), Ok(header.clone()));
        let before: Vec<u8> = [&[1, 1], &bytes[10..]].concat();
        let timeless = QueryHeader {
            time_us: i64::MIN,
            ..header
        };
        assert_eq!(QueryHeader::decode(&before), Ok(timeless));
        assert!(QueryHeader::decode(&bytes[..bytes.len() - 1]).is_err());
        assert!(QueryHeader::decode(&[2, 0]).is_err());
        assert!(QueryHeader::decode(&[3, 0]).is_err());
    }
}
