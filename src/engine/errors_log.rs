//! The log of bad records behind `hw.errors`: bounded, in memory for reads, written by checkpoints.

use std::collections::VecDeque;
use std::sync::Arc;

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
    rows: VecDeque<Arc<ErrorRow>>,
    next: u64,
    /// Rows below this are not in the store any more, as of the last checkpoint that is durable.
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
                state.rows.push_back(Arc::new(row));
            }
            Ok(true)
        })?;
        state.trimmed = state.rows.front().map_or(state.next, |row| row.sequence);
        Ok(Self {
            state: Mutex::new(state),
        })
    }

    /// Adds a row, which gets its number here.
    pub(crate) fn add(&self, row: &mut Arc<ErrorRow>) {
        let mut state = self.state.lock();
        Arc::make_mut(row).sequence = state.next;
        state.next += 1;
        state.rows.push_back(Arc::clone(row));
        if state.rows.len() > ROWS_MAX {
            state.rows.pop_front();
        }
    }

    /// The rows, oldest first.
    pub(crate) fn rows(&self) -> Vec<Arc<ErrorRow>> {
        self.state.lock().rows.iter().cloned().collect()
    }

    /// The first row that is kept.
    fn first(&self) -> u64 {
        let state = self.state.lock();
        state.rows.front().map_or(state.next, |row| row.sequence)
    }

    /// Writes rows, those that are still kept: nobody would remove the others.
    pub(crate) fn write(&self, rows: &[Arc<ErrorRow>], writer: &mut CheckpointWriter) {
        let first = self.first();
        for row in rows.iter().filter(|row| row.sequence >= first) {
            writer.put_error(row.sequence, &encode(row));
        }
    }

    /// Removes the rows that are no longer kept. Gives what [`Self::trimmed`] is told when the checkpoint is durable.
    pub(crate) fn trim(&self, writer: &mut CheckpointWriter) -> u64 {
        let first = self.first();
        let trimmed = self.state.lock().trimmed;
        if first > trimmed {
            writer.delete_error_range(trimmed, first);
        }
        first
    }

    /// Rows below `first` are not in the store any more.
    pub(crate) fn trimmed(&self, first: u64) {
        let mut state = self.state.lock();
        state.trimmed = state.trimmed.max(first);
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
    use highwater_storage::{Durability, Epoch, MemoryStore, Store as _};

    use super::*;

    fn row(offset: i64) -> Arc<ErrorRow> {
        let reason = "not a number".to_owned();
        let bad = BadRecord {
            offset,
            column: Some("price".to_owned()),
            reason,
            bytes: vec![1; 9000],
        };
        Arc::new(ErrorRow::new(3, 12, bad))
    }

    #[test]
    fn a_row_survives_its_codec() {
        let mut row = row(77);
        ErrorLog::default().add(&mut row);
        assert_eq!(row.bytes.len(), BYTES_MAX);
        let decoded = decode(&row.sequence.to_be_bytes(), &encode(&row));
        assert_eq!(decoded.as_ref(), Some(&*row));
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
        assert!(
            Arc::ptr_eq(&rows[0], &log.rows()[0]),
            "who reads the log copies no record"
        );
    }

    /// The numbers of the rows that a store has.
    fn stored(store: &MemoryStore) -> Vec<u64> {
        let log = ErrorLog::load(store.snapshot().as_ref()).unwrap();
        log.rows().iter().map(|row| row.sequence).collect()
    }

    #[test]
    fn the_store_keeps_what_the_log_keeps_though_checkpoints_fail_and_come_in_another_order() {
        let (log, store) = (ErrorLog::default(), MemoryStore::new());
        let checkpoint = |rows: &[Arc<ErrorRow>], is_durable: bool| {
            let mut writer = CheckpointWriter::new(Epoch(1));
            log.write(rows, &mut writer);
            let trimmed = log.trim(&mut writer);
            if is_durable {
                store.commit(writer.finish(), Durability::Sync).unwrap();
                log.trimmed(trimmed);
            }
        };
        let add = |count: usize| {
            let mut rows = vec![row(1); count];
            rows.iter_mut().for_each(|row| log.add(row));
            rows
        };
        let of_one = add(4);
        let of_another = add(ROWS_MAX - 2);
        checkpoint(&of_another[..10], true);
        checkpoint(&of_one, true);
        assert_eq!(stored(&store), [2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13]);
        add(10);
        // The first one of these removes rows, and is lost.
        checkpoint(&[], false);
        checkpoint(&[], true);
        assert_eq!(stored(&store), [12, 13]);
    }
}
