//! What a lane hands to its pipeline: a bounded queue, and figures that anyone may read.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};

use highwater_connectors::ack::AckRef;
use highwater_connectors::format::BadRecord;
use highwater_connectors::source::PartitionId;
use highwater_storage::LaneCounts;
use parking_lot::{Condvar, Mutex};

use crate::engine::delta::Delta;
use crate::engine::error::EngineError;

/// Batches that may wait in a lane's queue before the lane is paused.
const BATCHES_MAX: usize = 4;

/// Wakes a pipeline thread; set while nobody waits it is not lost.
#[derive(Debug, Default)]
pub(crate) struct Signal {
    raised: Mutex<bool>,
    condvar: Condvar,
}

impl Signal {
    /// Wakes the waiter, or lets its next wait return at once.
    pub(crate) fn raise(&self) {
        let mut raised = self.raised.lock();
        if !*raised {
            *raised = true;
            self.condvar.notify_one();
        }
    }

    /// Waits until raised, at most to `deadline` (for ever without one), and lowers it.
    pub(crate) fn wait(&self, deadline: Option<std::time::Instant>) {
        let mut raised = self.raised.lock();
        while !*raised {
            match deadline {
                Some(deadline) => {
                    if self.condvar.wait_until(&mut raised, deadline).timed_out() {
                        break;
                    }
                }
                None => self.condvar.wait(&mut raised),
            }
        }
        *raised = false;
    }
}

/// One batch of a lane, decoded and through the stateless prefix.
pub(crate) struct LaneOutput {
    /// Per tap of the prefix: its rows of this batch.
    pub(crate) taps: Vec<Option<Delta>>,
    /// Bytes of memory that the rows take.
    pub(crate) bytes: usize,
    /// One past the last record taken.
    pub(crate) next_offset: i64,
    /// The largest WATERMARK expression of the rows (µs), skewed rows left out.
    pub(crate) watermark: Option<i64>,
    /// How the records of the batch add up (INV-5).
    pub(crate) counts: LaneCounts,
    /// Records that could not be decoded.
    pub(crate) bad: Vec<BadRecord>,
    /// Resolved when the batch is durable.
    pub(crate) ack: AckRef,
}

/// The place where a lane and its pipeline meet.
pub(crate) struct LaneShared {
    /// Which partition.
    pub(crate) partition: PartitionId,
    queue: Mutex<VecDeque<LaneOutput>>,
    /// Wakes the pipeline.
    pub(crate) signal: Arc<Signal>,
    /// Everything that the partition holds has been taken (and is in the queue or further).
    at_end: AtomicBool,
    /// The source is bounded and the lane has nothing more.
    ended: AtomicBool,
    /// The queue was full at the lane's last turn.
    full: AtomicBool,
    /// The lane waits for slower partitions (`watermark.max.drift`).
    pub(crate) ahead: AtomicBool,
    /// End offset as last heard, −1 if unknown.
    end_offset: AtomicI64,
    /// The lane's own watermark, `i64::MIN` before the first row; ahead of what the pipeline has taken.
    pub(crate) event_time: AtomicI64,
    /// Rows since the start of the process.
    pub(crate) rows: AtomicU64,
    /// Bytes of records since the start of the process, or of rows where the source gives rows.
    pub(crate) read_bytes: AtomicU64,
    failure: Mutex<Option<EngineError>>,
}

impl LaneShared {
    /// An empty queue for one partition.
    pub(crate) fn new(partition: PartitionId, signal: Arc<Signal>) -> Self {
        Self {
            partition,
            queue: Mutex::new(VecDeque::new()),
            signal,
            at_end: AtomicBool::new(false),
            ended: AtomicBool::new(false),
            full: AtomicBool::new(false),
            ahead: AtomicBool::new(false),
            end_offset: AtomicI64::new(-1),
            event_time: AtomicI64::new(i64::MIN),
            rows: AtomicU64::new(0),
            read_bytes: AtomicU64::new(0),
            failure: Mutex::new(None),
        }
    }

    /// Whether there is no room for another batch. A lane that hears yes is woken by the next [`Self::drain`].
    pub(crate) fn is_full(&self) -> bool {
        let queue = self.queue.lock();
        let full = queue.len() >= BATCHES_MAX;
        self.full.store(full, Ordering::Release);
        full
    }

    /// Whether the lane stands still because its queue is full.
    pub(crate) fn is_paused(&self) -> bool {
        self.full.load(Ordering::Acquire)
    }

    /// Adds a batch and wakes the pipeline.
    pub(crate) fn push(&self, output: LaneOutput) {
        self.queue.lock().push_back(output);
        self.signal.raise();
    }

    /// Takes all batches; true if the lane stood still for lack of room and must be woken.
    pub(crate) fn drain(&self, into: &mut Vec<LaneOutput>) -> bool {
        let mut queue = self.queue.lock();
        into.extend(queue.drain(..));
        self.full.swap(false, Ordering::AcqRel)
    }

    /// Bytes of the batches that wait.
    pub(crate) fn bytes(&self) -> usize {
        self.queue.lock().iter().map(|output| output.bytes).sum()
    }

    /// Whether a batch waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.queue.lock().is_empty()
    }

    /// The lane says where it stands in the partition.
    pub(crate) fn set_place(&self, at_end: bool, ended: bool, end_offset: Option<i64>) {
        if let Some(end_offset) = end_offset {
            self.end_offset.store(end_offset, Ordering::Release);
        }
        let news = self.at_end.swap(at_end, Ordering::AcqRel) != at_end;
        if news | (ended && !self.ended.swap(true, Ordering::AcqRel)) {
            self.signal.raise();
        }
    }

    /// Whether everything that the partition holds has been taken by the pipeline too.
    pub(crate) fn is_at_end(&self) -> bool {
        self.at_end.load(Ordering::Acquire) && self.is_empty()
    }

    /// Whether a bounded lane has ended and the pipeline has taken all of it.
    pub(crate) fn is_ended(&self) -> bool {
        self.ended.load(Ordering::Acquire) && self.is_empty()
    }

    /// End offset as last heard.
    pub(crate) fn end_offset(&self) -> Option<i64> {
        Some(self.end_offset.load(Ordering::Acquire)).filter(|offset| *offset >= 0)
    }

    /// The lane stops with an error.
    pub(crate) fn fail(&self, error: EngineError) {
        self.failure.lock().get_or_insert(error);
        self.signal.raise();
    }

    /// The error that stopped the lane.
    pub(crate) fn failure(&self) -> Option<EngineError> {
        self.failure.lock().clone()
    }
}
