//! [`BoundedRead`]: the records of a source from one position up to another one, for a query that ends.
//!
//! ```text
//! start, end of each partition ─▶ Source::open ─▶ its lanes, on this thread ─▶ Scan ─▶ rows below the end ─▶ give
//! ```
//!
//! Nothing of it is recorded, and nothing outside is told how far it came.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant};

use arrow::array::{AsArray, BooleanArray, RecordBatch};
use arrow::compute::filter_record_batch;
use arrow::datatypes::Int64Type;
use highwater_connectors::source::{
    LaneState, PartitionId, Positions, Source, SourceContext, SourceEvent, SourceLane,
};

use super::clock::Clock;
use super::error::EngineError;
use super::lane::scan::Scan;
use super::lane::task::{OnError, bad_record};
use super::query::spec::SourceBinding;

/// Records that are taken at once.
const RECORDS_MAX: usize = 8192;
/// How long to wait for a client at once.
const WAIT: Duration = Duration::from_millis(100);
/// How long a source in trouble may give nothing.
const PATIENCE: Duration = Duration::from_secs(30);

/// How far a read has come, in records of all partitions. What is compacted away counts.
#[derive(Debug, Default)]
pub(crate) struct ReadProgress {
    done: AtomicI64,
    total: AtomicI64,
}

impl ReadProgress {
    /// Records that were read, and records that there are to read; the second is 0 before that is known.
    pub(crate) fn so_far(&self) -> (i64, i64) {
        (
            self.done.load(Ordering::Relaxed),
            self.total.load(Ordering::Relaxed),
        )
    }
}

/// What is read.
pub(crate) struct BoundedRead {
    /// The source, with what is decoded of it.
    pub(crate) binding: SourceBinding,
    /// The place of the offset among the columns of the scan.
    pub(crate) offset: usize,
    /// The places of the wanted columns among those of the scan.
    pub(crate) columns: Vec<usize>,
    /// Where each partition is read from; one that is not there from its beginning.
    pub(crate) start: Positions,
    /// Where each partition ends; one that is not there is not read.
    pub(crate) end: Positions,
    /// The wall clock.
    pub(crate) clock: Arc<dyn Clock>,
    /// How far it has come, for who looks on.
    pub(crate) progress: Arc<ReadProgress>,
}

/// A partition that is being read.
struct Part {
    lane: Box<dyn SourceLane>,
    scan: Scan,
    partition: PartitionId,
    /// The offset of the record that comes next.
    next: i64,
    end: i64,
    is_done: bool,
}

impl BoundedRead {
    /// Reads all partitions to their ends and gives the rows; ends early when `give` says that no more are wanted.
    ///
    /// # Errors
    /// A source that cannot be read, or a record that cannot be decoded where the source says that this is an error.
    pub(crate) fn run(&self, give: &mut dyn FnMut(Option<RecordBatch>) -> bool) -> Result<(), EngineError> {
        if self.end.is_empty() {
            return Ok(());
        }
        let left = self
            .end
            .iter()
            .map(|(partition, end)| (end - self.first(*partition)).max(0));
        self.progress.total.store(left.sum(), Ordering::Relaxed);
        let mut source = self.open()?;
        let read = self.read(source.as_mut(), give);
        source.close();
        read
    }

    /// Where the partitions end, as the source itself knows it; none if it does not.
    ///
    /// # Errors
    /// A source that cannot be opened.
    pub(crate) fn ends(&self) -> Result<Positions, EngineError> {
        let mut source = self.open()?;
        let ends = source.end_offsets();
        source.close();
        Ok(ends)
    }

    /// Where a partition is read from.
    fn first(&self, partition: PartitionId) -> i64 {
        self.start.get(&partition).copied().unwrap_or(0)
    }

    fn open(&self) -> Result<Box<dyn Source>, EngineError> {
        let connector = &self.binding.connector;
        let mut source = connector.create(&connector.unpaced(&self.binding.options))?;
        let context = SourceContext {
            name: self.binding.name.clone(),
            wants: self.binding.scan.wants(),
            identity: self.binding.identity.clone(),
        };
        source.open(context, &self.start)?;
        Ok(source)
    }

    fn read(
        &self,
        source: &mut dyn Source,
        give: &mut dyn FnMut(Option<RecordBatch>) -> bool,
    ) -> Result<(), EngineError> {
        let mut parts: Vec<Part> = Vec::with_capacity(self.end.len());
        let mut heard = Instant::now();
        let mut trouble = None;
        loop {
            let mut has_moved = false;
            for part in parts.iter_mut().filter(|part| !part.is_done) {
                if let Some(rows) = self.take(part)? {
                    has_moved = true;
                    if !give(Some(rows)) {
                        return Ok(());
                    }
                }
            }
            if parts.len() == self.end.len() && parts.iter().all(|part| part.is_done) {
                return Ok(());
            }
            // Nobody may be left who waits.
            if !give(None) {
                return Ok(());
            }
            if has_moved {
                heard = Instant::now();
                trouble = None;
                continue;
            }
            match source.poll_events(if parts.is_empty() { WAIT } else { Duration::ZERO })? {
                SourceEvent::LanesAssigned(lanes) | SourceEvent::LanesAdded(lanes) => {
                    for lane in lanes {
                        parts.extend(self.part(source, lane)?);
                    }
                    continue;
                }
                SourceEvent::Degraded(error) => trouble = Some(error),
                SourceEvent::Recovered => trouble = None,
                SourceEvent::LanesRevoked { .. } | SourceEvent::Idle => {}
            }
            if heard.elapsed() > PATIENCE
                && let Some(error) = trouble.take()
            {
                return Err(error.into());
            }
            std::thread::park_timeout(WAIT);
        }
    }

    /// A lane, if its partition is read.
    fn part(
        &self,
        source: &mut dyn Source,
        mut lane: Box<dyn SourceLane>,
    ) -> Result<Option<Part>, EngineError> {
        let partition = lane.partition();
        let Some(end) = self.end.get(&partition) else {
            source.pause(&[partition]);
            return Ok(None);
        };
        let taker = std::thread::current();
        lane.set_waker(Arc::new(move || taker.unpark()));
        Ok(Some(Part {
            scan: self.binding.scan.start(partition)?,
            lane,
            partition,
            next: self.first(partition),
            end: *end,
            is_done: self.start.get(&partition).is_some_and(|start| start >= end),
        }))
    }

    /// The next rows of a partition; `None` if none are there for the moment.
    fn take(&self, part: &mut Part) -> Result<Option<RecordBatch>, EngineError> {
        let Some(batch) = part.lane.poll(RECORDS_MAX, Duration::ZERO)? else {
            // All that was there when the ends were asked for has come.
            part.is_done |= part.lane.state() != LaneState::Reading;
            return Ok(None);
        };
        let scanned = part.scan.run(&batch.body, self.clock.now_us())?;
        if self.binding.settings.on_error == OnError::Fail
            && let Some(bad) = scanned.bad.first()
        {
            return Err(bad_record(bad));
        }
        let next_offset = batch.next_offset;
        batch.ack.resolve();
        let read = next_offset.min(part.end) - part.next;
        self.progress.done.fetch_add(read.max(0), Ordering::Relaxed);
        part.next = part.next.max(next_offset);
        part.is_done |= next_offset >= part.end;
        let mut rows = scanned.rows.batch;
        if next_offset > part.end {
            let offsets = rows.column(self.offset).as_primitive::<Int64Type>();
            let is_before = offsets
                .iter()
                .map(|offset| Some(offset.is_some_and(|offset| offset < part.end)));
            rows = filter_record_batch(&rows, &BooleanArray::from_iter(is_before))?;
        }
        tracing::trace!(partition = part.partition.0, next_offset, "read");
        Ok(Some(rows.project(&self.columns)?))
    }
}
