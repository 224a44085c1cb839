//! The log of bad records behind `hw.errors`: bounded, in memory for reads, written by checkpoints.

use std::collections::VecDeque;

use highwater_connectors::format::BadRecord;
use highwater_storage::{CheckpointWriter, Family, Snapshot};
use parking_lot::Mutex;

use super::error::EngineError;

/// Rows that are kept.
pub(crate) const ROWS_MAX: usize = 10_000;
/// Bytes of a record that are kept.
const BYTES_MAX: usize = 4096;
const VERSION: u8 = 1;

/// A row of `hw.errors`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ErrorRow {
    /// Its number, ascending.
    pub(crate) sequence: u64,
    /// When it was seen (µs since the epoch).
    pub(crate) at_us: i64,
    /// The source.
    pub(crate) source: String,
    /// The view or sink that read it.
    pub(crate) query: String,
    /// Partition and offset of the record.
    pub(crate) place: (i32, i64),
    /// The column at fault.
    pub(crate) column: Option<String>,
    /// Why it could not be decoded.
    pub(crate) reason: String,
    /// The record, at most its first 4 KiB.
    pub(crate) bytes: Vec<u8>,
}

impl ErrorRow {
    /// The row of a bad record; the log gives it its number, the query its names.
    pub(crate) fn new(partition: i32, at_us: i64, bad: BadRecord) -> Self {
        let mut bytes = bad.bytes;
        bytes.truncate(BYTES_MAX);
        Self {
            sequence: 0,
            at_us,
            source: String::new(),
            query: String::new(),
            place: (partition, bad.offset),
            column: bad.column,
            reason: bad.reason,
            bytes,
        }
    }
}

#[derive(Debug, Default)]
struct State {
    rows: VecDeque<ErrorRow>,
    next: u64,
    /// Rows below this are not in the store any more.
    trimmed: u64,
}

/// The log of one database.
#[derive(Debug, Default)]
pub(crate) struct ErrorLog {
    state: Mutex<State>,
}

impl ErrorLog {
    /// Loads what checkpoints wrote.
    ///
    /// # Errors
    /// Rows that cannot be read exactly.
    pub(crate) fn load(snapshot: &dyn Snapshot) -> Result<Self, EngineError> {
        let mut state = State::default();
        snapshot.for_each(Family::Errors, &[], None, &mut |key, value| {
            if let Some(row) = decode(key, value) {
                state.next = row.sequence + 1;
                state.rows.push_back(row);
            }
            Ok(true)
        })?;
        state.trimmed = state.rows.front().map_or(state.next, |row| row.sequence);
        Ok(Self {
            state: Mutex::new(state),
        })
    }

    /// Adds a row, which gets its number here.
    pub(crate) fn add(&self, row: &mut ErrorRow) {
        let mut state = self.state.lock();
        row.sequence = state.next;
        state.next += 1;
        state.rows.push_back(row.clone());
        if state.rows.len() > ROWS_MAX {
            state.rows.pop_front();
        }
    }

    /// The rows, oldest first.
    pub(crate) fn rows(&self) -> Vec<ErrorRow> {
        self.state.lock().rows.iter().cloned().collect()
    }

    /// Writes rows and removes those that are no longer kept.
    pub(crate) fn write(&self, rows: &[ErrorRow], writer: &mut CheckpointWriter) {
        for row in rows {
            writer.put_error(row.sequence, &encode(row));
        }
        let mut state = self.state.lock();
        let first = state.rows.front().map_or(state.next, |row| row.sequence);
        if first > state.trimmed {
            writer.delete_error_range(state.trimmed, first);
            state.trimmed = first;
        }
    }
}

fn encode(row: &ErrorRow) -> Vec<u8> {
    let mut out = vec![VERSION];
    out.extend_from_slice(&row.at_us.to_le_bytes());
    out.extend_from_slice(&row.place.0.to_le_bytes());
    out.extend_from_slice(&row.place.1.to_le_bytes());
    out.push(u8::from(row.column.is_some()));
    let column = row.column.as_deref().unwrap_or("");
    for text in [
        row.source.as_bytes(),
        row.query.as_bytes(),
        column.as_bytes(),
        row.reason.as_bytes(),
        &row.bytes,
    ] {
        out.extend_from_slice(&(text.len() as u32).to_le_bytes());
        out.extend_from_slice(text);
    }
    out
}

fn decode(key: &[u8], value: &[u8]) -> Option<ErrorRow> {
    let sequence = u64::from_be_bytes(key.try_into().ok()?);
    let mut rest = value.strip_prefix(&[VERSION])?;
    let mut fixed = |count: usize| {
        let (head, tail) = rest.split_at_checked(count)?;
        rest = tail;
        Some(head)
    };
    let at_us = i64::from_le_bytes(fixed(8)?.try_into().ok()?);
    let partition = i32::from_le_bytes(fixed(4)?.try_into().ok()?);
    let offset = i64::from_le_bytes(fixed(8)?.try_into().ok()?);
    let has_column = fixed(1)? == [1];
    let mut text = || {
        let len = u32::from_le_bytes(fixed(4)?.try_into().ok()?) as usize;
        Some(fixed(len)?.to_vec())
    };
    let mut string = || String::from_utf8(text()?).ok();
    let (source, query, column, reason) = (string()?, string()?, string()?, string()?);
    let bytes = text()?;
    Some(ErrorRow {
        sequence,
        at_us,
        source,
        query,
        place: (partition, offset),
        column: has_column.then_some(column),
        reason,
        bytes,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(offset: i64) -> ErrorRow {
        let reason = "not a number".to_owned();
        ErrorRow::new(
            3,
            12,
            BadRecord {
                offset,
                column: Some("price".to_owned()),
                reason,
                bytes: vec![1; 9000],
            },
        )
    }

    #[test]
    fn a_row_survives_its_codec() {
        let mut row = row(77);
        ErrorLog::default().add(&mut row);
        assert_eq!(row.bytes.len(), BYTES_MAX);
        assert_eq!(decode(&row.sequence.to_be_bytes(), &encode(&row)), Some(row));
    }

    #[test]
    fn the_log_keeps_the_newest_rows() {
        let log = ErrorLog::default();
        for offset in 0..ROWS_MAX as i64 + 5 {
            log.add(&mut row(offset));
        }
        let rows = log.rows();
        assert_eq!(rows.len(), ROWS_MAX);
        assert_eq!(rows[0].place, (3, 5));
    }
}
