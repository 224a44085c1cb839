//! One lane at work: a turn polls, decodes, stamps, runs the prefix and hands the result to the pipeline.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant};

use highwater_connectors::source::{BatchBody, LaneState, SourceLane};

use super::pool::{LaneSlot, LaneTurn, Turn};
use super::prefix::Prefix;
use super::queue::{LaneOutput, LaneShared};
use super::scan::Scan;
use crate::engine::clock::Clock;
use crate::engine::error::EngineError;

/// Records that one turn takes, at most.
const RECORDS_MAX: usize = 8192;
/// Rows that the prefix may make of the records of one turn, about: a HOP gives each row once per window.
const ROWS_MAX: usize = 65_536;

/// What happens to a record that cannot be decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OnError {
    /// It is kept in `hw.errors` and the source goes on.
    Skip,
    /// The queries that read the source stop before it.
    Fail,
}

/// What the lanes of one reader have in common.
pub(crate) struct LaneEnvironment {
    /// The stateless operators.
    pub(crate) prefix: Prefix,
    /// What happens to bad records.
    pub(crate) on_error: OnError,
    /// How far a lane may be ahead of the reader's watermark (µs).
    pub(crate) drift_max_us: Option<i64>,
    /// The reader's watermark as the pipeline last worked it out; `i64::MIN` before the first.
    pub(crate) reader_watermark: Arc<AtomicI64>,
    /// The wall clock.
    pub(crate) clock: Arc<dyn Clock>,
}

/// A lane in the pool.
pub(crate) struct LaneTask {
    lane: Box<dyn SourceLane>,
    scan: Scan,
    shared: Arc<LaneShared>,
    environment: Arc<LaneEnvironment>,
    client_paused: bool,
    records_max: usize,
}

impl LaneTask {
    /// A lane that wakes `slot` when records arrive.
    pub(crate) fn new(
        mut lane: Box<dyn SourceLane>,
        scan: Scan,
        environment: Arc<LaneEnvironment>,
        slot: &Arc<LaneSlot>,
    ) -> Self {
        let weak = Arc::downgrade(slot);
        lane.set_waker(Arc::new(move || {
            if let Some(slot) = weak.upgrade() {
                slot.wake();
            }
        }));
        Self {
            lane,
            scan,
            shared: Arc::clone(&slot.shared),
            client_paused: false,
            records_max: (ROWS_MAX / environment.prefix.fan_out()).clamp(1, RECORDS_MAX),
            environment,
        }
    }

    /// Whether this lane must wait for slower partitions.
    fn is_ahead(&self) -> bool {
        let Some(drift) = self.environment.drift_max_us else {
            return false;
        };
        let own = self.shared.event_time.load(Ordering::Relaxed);
        let is_ahead = || {
            let reader = self.environment.reader_watermark.load(Ordering::SeqCst);
            reader != i64::MIN && own > reader.saturating_add(drift)
        };
        let ahead = is_ahead();
        self.shared.ahead.store(ahead, Ordering::SeqCst);
        // The pipeline wakes the lanes that it sees ahead after it has moved the watermark: if it moved between the two
        // lines above, it saw nothing.
        ahead && is_ahead()
    }

    fn set_client_paused(&mut self, paused: bool) {
        if self.client_paused != paused {
            self.client_paused = paused;
            if paused {
                self.lane.pause()
            } else {
                self.lane.resume()
            }
        }
    }

    fn read(&mut self) -> Result<Turn, EngineError> {
        let now_us = self.environment.clock.now_us();
        let Some(batch) = self.lane.poll(self.records_max, Duration::ZERO)? else {
            return Ok(self.rest());
        };
        self.shared
            .read_bytes
            .fetch_add(bytes_of(&batch.body), Ordering::Relaxed);
        let started = Instant::now();
        let scanned = self.scan.run(&batch.body, now_us)?;
        let (counts, prefix) = (&scanned.counts, &self.environment.prefix);
        let records = counts.rows + counts.bad + counts.tombstones;
        prefix.note_scan(records, scanned.rows.num_rows(), started.elapsed());
        if self.environment.on_error == OnError::Fail
            && let Some(bad) = scanned.bad.first()
        {
            return Err(bad_record(bad));
        }
        if let Some(watermark) = scanned.watermark {
            self.shared.event_time.fetch_max(watermark, Ordering::Relaxed);
        }
        self.shared.rows.fetch_add(scanned.counts.rows, Ordering::Relaxed);
        let taps = prefix.run(scanned.rows)?;
        let rows = taps.iter().flatten();
        let output = LaneOutput {
            bytes: rows.map(|delta| delta.batch.get_array_memory_size()).sum(),
            taps,
            next_offset: batch.next_offset,
            watermark: scanned.watermark,
            counts: scanned.counts,
            bad: scanned.bad,
            ack: batch.ack,
        };
        self.shared.push(output);
        self.publish_place();
        Ok(Turn::Again)
    }

    fn publish_place(&self) {
        let state = self.lane.state();
        self.shared.set_place(
            state != LaneState::Reading,
            state == LaneState::Ended,
            self.lane.end_offset(),
        );
    }

    fn rest(&self) -> Turn {
        self.publish_place();
        match (self.lane.state(), self.lane.due()) {
            (LaneState::Ended, _) => Turn::Finished,
            (_, Some(at)) => Turn::Due(at),
            _ => Turn::Wait,
        }
    }
}

impl LaneTurn for LaneTask {
    fn turn(&mut self) -> Turn {
        if self.shared.failure().is_some() {
            return Turn::Finished;
        }
        if self.is_ahead() || self.shared.is_full() {
            self.set_client_paused(true);
            return Turn::Wait;
        }
        self.set_client_paused(false);
        let read = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| self.read()));
        match read.unwrap_or_else(|_| Err(EngineError::internal("a lane panicked"))) {
            Ok(turn) => turn,
            Err(error) => {
                self.shared.fail(error);
                Turn::Finished
            }
        }
    }
}

/// Bytes of records with their keys, or of rows in memory.
fn bytes_of(body: &BatchBody<'_>) -> u64 {
    let bytes = match body {
        BatchBody::Payloads(payloads) => {
            let len = |bytes: Option<&[u8]>| bytes.map_or(0, <[u8]>::len);
            payloads.iter().map(|own| len(own.value) + len(own.key)).sum()
        }
        BatchBody::Rows { rows, .. } => rows.get_array_memory_size(),
    };
    bytes as u64
}

/// Of a source that stops at it.
pub(crate) fn bad_record(bad: &highwater_connectors::format::BadRecord) -> EngineError {
    let column = bad
        .column
        .as_ref()
        .map(|column| format!(" in column \"{column}\""))
        .unwrap_or_default();
    EngineError::new("22P04", format!("a record cannot be decoded: {}", bad.reason))
        .with_detail(format!("It stands at offset {}{column}.", bad.offset))
        .with_hint("Correct the producer, or create the source with on_error = 'skip'.")
}
