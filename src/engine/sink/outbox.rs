//! The outbox: output rows that a sink has not confirmed yet, in sequence.
//!
//! A step appends; the sink's thread delivers and reports the confirmed prefix; a freeze takes what a checkpoint must
//! write: rows neither confirmed nor written yet, and the range that no longer needs to be there. So rows that the sink
//! confirms before the next checkpoint are never written (INV-1).

use std::collections::VecDeque;
use std::sync::{Arc, OnceLock};

use highwater_connectors::ConnectorError;
use highwater_connectors::format::Encoder;
use highwater_connectors::sink::{SinkChunk, SinkRecord};
use highwater_storage::{CheckpointWriter, ObjectId, OutboxRecord, SinkProgress, Snapshot, outbox};
use parking_lot::{Condvar, Mutex};

use super::rows::SinkRows;
use crate::engine::error::EngineError;

/// Consecutive output rows of one step.
pub(crate) struct OutChunk {
    first_seq: u64,
    count: usize,
    bytes: usize,
    rows: Option<SinkRows>,
    records: OnceLock<Result<Arc<Vec<SinkRecord>>, ConnectorError>>,
}

/// Encodes the rows of one sink; shared by the sink's thread and the checkpoint, whoever comes first.
pub(crate) struct SharedEncoder(pub(crate) Mutex<Option<Box<dyn Encoder>>>);

impl OutChunk {
    /// The rows as records, encoded at the first call.
    ///
    /// # Errors
    /// A value that the format cannot carry.
    pub(crate) fn records(&self, encoder: &SharedEncoder) -> Result<SinkChunk, ConnectorError> {
        let encode = || {
            let Some(rows) = &self.rows else {
                return Ok(Arc::new(Vec::new()));
            };
            let mut records = Vec::with_capacity(self.count);
            match encoder.0.lock().as_mut() {
                Some(encoder) => encoder.encode(&rows.rows, &rows.changes, &mut records)?,
                None => records.resize(self.count, SinkRecord::default()),
            }
            Ok(Arc::new(records))
        };
        let records = self.records.get_or_init(encode).clone()?;
        Ok(SinkChunk {
            first_seq: self.first_seq,
            records,
        })
    }

    /// One past the sequence of its last row.
    pub(crate) fn end_seq(&self) -> u64 {
        self.first_seq + self.count as u64
    }

    /// Sequence of its first row.
    pub(crate) fn first_seq(&self) -> u64 {
        self.first_seq
    }
}

#[derive(Default)]
struct State {
    chunks: VecDeque<Arc<OutChunk>>,
    bytes: usize,
    next_seq: u64,
    confirmed_seq: u64,
    /// Rows below this have been handed to a checkpoint (or were confirmed before).
    written_seq: u64,
    /// Rows below this are not in the store (deleted or never written).
    trimmed_seq: u64,
    /// Whose turn it is to deliver: threads that deliver are counted.
    turn: u64,
}

/// The outbox of one sink.
pub(crate) struct Outbox {
    sink: ObjectId,
    state: Mutex<State>,
    condvar: Condvar,
    bytes_max: usize,
    pub(crate) encoder: SharedEncoder,
}

/// What a checkpoint writes of an outbox.
pub(crate) struct FrozenOutbox {
    sink: ObjectId,
    progress: SinkProgress,
    chunks: Vec<Arc<OutChunk>>,
    write_from: u64,
    delete: std::ops::Range<u64>,
}

impl Outbox {
    /// An empty outbox that counts as full at `bytes_max` bytes of unconfirmed rows.
    pub(crate) fn new(sink: ObjectId, encoder: Option<Box<dyn Encoder>>, bytes_max: usize) -> Self {
        Self {
            sink,
            state: Mutex::new(State::default()),
            condvar: Condvar::new(),
            bytes_max,
            encoder: SharedEncoder(Mutex::new(encoder)),
        }
    }

    /// Loads what the last checkpoint left unconfirmed.
    ///
    /// # Errors
    /// Rows that cannot be read exactly, or are missing (INV-6).
    pub(crate) fn restore(&self, progress: SinkProgress, snapshot: &dyn Snapshot) -> Result<(), EngineError> {
        let mut records = Vec::new();
        let mut expected = progress.confirmed_seq;
        let mut bytes = 0;
        outbox::for_each(snapshot, self.sink, progress.confirmed_seq, &mut |seq, record| {
            if seq == expected {
                expected += 1;
            }
            bytes += record.key.map_or(0, <[u8]>::len) + record.value.map_or(0, <[u8]>::len);
            records.push(owned(&record));
            Ok(true)
        })?;
        if expected != progress.next_seq || records.len() as u64 != progress.next_seq - progress.confirmed_seq
        {
            return Err(
                EngineError::recovery("the outbox of a sink is incomplete").with_detail(format!(
                    "Rows {} to {} should be there; {} were read.",
                    progress.confirmed_seq,
                    progress.next_seq,
                    records.len()
                )),
            );
        }
        let mut state = self.state.lock();
        state.next_seq = progress.next_seq;
        state.written_seq = progress.next_seq;
        state.confirmed_seq = progress.confirmed_seq;
        state.trimmed_seq = progress.confirmed_seq;
        if !records.is_empty() {
            let count = records.len();
            let cell = OnceLock::new();
            let _ = cell.set(Ok(Arc::new(records)));
            let first_seq = progress.confirmed_seq;
            state.bytes = bytes;
            state.chunks.push_back(Arc::new(OutChunk {
                first_seq,
                count,
                bytes,
                rows: None,
                records: cell,
            }));
        }
        Ok(())
    }

    /// Appends the rows of a step.
    pub(crate) fn append(&self, rows: SinkRows) {
        let count = rows.changes.len();
        if count == 0 {
            return;
        }
        let bytes = rows.rows.get_array_memory_size();
        let mut state = self.state.lock();
        let first_seq = state.next_seq;
        state.next_seq += count as u64;
        state.bytes += bytes;
        let records = OnceLock::new();
        state.chunks.push_back(Arc::new(OutChunk {
            first_seq,
            count,
            bytes,
            rows: Some(rows),
            records,
        }));
        self.condvar.notify_all();
    }

    /// Whether the pipeline must wait before it makes more output.
    pub(crate) fn is_full(&self) -> bool {
        self.state.lock().bytes >= self.bytes_max
    }

    /// Bytes and rows that wait for confirmation.
    pub(crate) fn pending(&self) -> (u64, u64) {
        let state = self.state.lock();
        (state.bytes as u64, state.next_seq - state.confirmed_seq)
    }

    /// Every row below this is confirmed.
    pub(crate) fn confirmed_seq(&self) -> u64 {
        self.state.lock().confirmed_seq
    }

    /// The chunk that holds row `seq`, waiting up to `timeout` for it; `None` if there is none yet or the turn is over.
    pub(crate) fn chunk_at(
        &self,
        seq: u64,
        timeout: std::time::Duration,
        turn: u64,
    ) -> Option<Arc<OutChunk>> {
        let deadline = std::time::Instant::now() + timeout;
        let mut state = self.state.lock();
        loop {
            if let Some(chunk) = state.chunks.iter().find(|chunk| chunk.end_seq() > seq) {
                return Some(Arc::clone(chunk));
            }
            if state.turn != turn || self.condvar.wait_until(&mut state, deadline).timed_out() {
                return None;
            }
        }
    }

    /// Whether the thread whose turn it was has to end.
    pub(crate) fn is_over(&self, turn: u64) -> bool {
        self.state.lock().turn != turn
    }

    /// Begins the turn of a new thread, and ends that of the one before.
    pub(crate) fn begin(&self) -> u64 {
        let mut state = self.state.lock();
        state.turn += 1;
        self.condvar.notify_all();
        state.turn
    }

    /// Ends a turn, if it is not over yet: lets its thread end.
    pub(crate) fn end(&self, turn: u64) {
        let mut state = self.state.lock();
        if state.turn == turn {
            state.turn += 1;
        }
        self.condvar.notify_all();
    }

    /// The sink has confirmed every row below `seq`. True if the outbox was full and no longer is.
    pub(crate) fn confirm(&self, seq: u64) -> bool {
        let mut state = self.state.lock();
        let was_full = state.bytes >= self.bytes_max;
        assert!(
            seq <= state.next_seq,
            "a sink confirms only rows that it was given"
        );
        state.confirmed_seq = state.confirmed_seq.max(seq);
        while state
            .chunks
            .front()
            .is_some_and(|chunk| chunk.end_seq() <= state.confirmed_seq)
        {
            let chunk = state.chunks.pop_front().expect("the front was just seen");
            state.bytes = state.bytes.saturating_sub(chunk.bytes);
        }
        was_full && state.bytes < self.bytes_max
    }

    /// Whether rows have been confirmed that the store still holds.
    pub(crate) fn is_unrecorded(&self) -> bool {
        let state = self.state.lock();
        state.trimmed_seq < state.confirmed_seq.min(state.written_seq)
    }

    /// What the next checkpoint writes; `None` if nothing changed since the last.
    pub(crate) fn freeze(&self) -> Option<FrozenOutbox> {
        let mut state = self.state.lock();
        let write_from = state.written_seq.max(state.confirmed_seq);
        let delete = state.trimmed_seq..state.confirmed_seq.min(state.written_seq);
        if write_from == state.next_seq && delete.is_empty() && state.written_seq == state.next_seq {
            return None;
        }
        let chunks = state
            .chunks
            .iter()
            .filter(|chunk| chunk.end_seq() > write_from)
            .map(Arc::clone)
            .collect();
        let progress = SinkProgress {
            next_seq: state.next_seq,
            confirmed_seq: state.confirmed_seq,
        };
        state.written_seq = state.next_seq;
        state.trimmed_seq = state.confirmed_seq;
        Some(FrozenOutbox {
            sink: self.sink,
            progress,
            chunks,
            write_from,
            delete,
        })
    }
}

impl FrozenOutbox {
    /// Encodes the rows, as far as the sink's thread has not.
    ///
    /// # Errors
    /// A value that the format cannot carry.
    pub(crate) fn encode(&self, encoder: &SharedEncoder) -> Result<(), EngineError> {
        for chunk in &self.chunks {
            chunk.records(encoder)?;
        }
        Ok(())
    }

    /// Appends the rows and the deletions, after [`Self::encode`].
    ///
    /// # Errors
    /// A value that the format cannot carry.
    pub(crate) fn write(
        self,
        encoder: &SharedEncoder,
        writer: &mut CheckpointWriter,
    ) -> Result<(), EngineError> {
        let mut bytes = Vec::new();
        for chunk in &self.chunks {
            let records = chunk.records(encoder)?;
            for (seq, record) in (records.first_seq..).zip(records.records.iter()) {
                if seq < self.write_from {
                    continue;
                }
                bytes.clear();
                let row = OutboxRecord {
                    key: record.key.as_deref(),
                    value: record.value.as_deref(),
                    partition: None,
                    timestamp_ms: None,
                };
                row.encode(&mut bytes);
                writer.put_outbox(self.sink, seq, &bytes);
            }
        }
        if !self.delete.is_empty() {
            writer.delete_outbox_range(self.sink, self.delete.start, self.delete.end);
        }
        writer.put_sink_progress(self.sink, &self.progress);
        Ok(())
    }
}

fn owned(record: &OutboxRecord<'_>) -> SinkRecord {
    let copy = |bytes: Option<&[u8]>| bytes.map(<[u8]>::to_vec).map(Into::into);
    SinkRecord {
        key: copy(record.key),
        value: copy(record.value),
    }
}
