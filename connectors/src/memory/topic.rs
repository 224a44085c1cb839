//! A memory topic: partitions of Arrow rows, kept until every reader has committed them.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Instant;

use arrow::datatypes::SchemaRef;
use arrow::record_batch::RecordBatch;
use parking_lot::{Condvar, Mutex};

use crate::error::{ConnectorError, ErrorKind};
use crate::source::{LaneWaker, PartitionId, Positions};

/// Rows a topic keeps unless told otherwise.
pub(super) const ROWS_MAX: usize = 10_000_000;

/// A reader of a topic, for as long as its source is open.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ReaderId(u64);

/// A named topic.
pub(super) struct Topic {
    name: String,
    state: Mutex<TopicState>,
    changed: Condvar,
}

struct TopicState {
    schema: Option<SchemaRef>,
    partitions: Vec<Partition>,
    ended: bool,
    rows_max: usize,
    /// What each open reader has committed.
    readers: BTreeMap<ReaderId, Positions>,
    readers_seen: u64,
    wakers: BTreeMap<(ReaderId, PartitionId), LaneWaker>,
}

/// Rows with the offsets `base .. end`; those before `base` have been let go.
#[derive(Default)]
struct Partition {
    base: i64,
    end: i64,
    /// Batches with the offsets of their first rows.
    batches: VecDeque<(i64, RecordBatch)>,
}

/// What a lane found at its position.
pub(super) enum Found {
    /// Rows from the position on.
    Rows(RecordBatch),
    /// Nothing yet.
    Nothing,
    /// Nothing, ever.
    Ended,
}

impl Partition {
    fn push(&mut self, batch: RecordBatch) {
        let first = self.end;
        self.end += batch.num_rows() as i64;
        self.batches.push_back((first, batch));
    }

    /// Up to `rows_max` rows of one batch from `offset` on.
    fn rows_at(&self, offset: i64, rows_max: usize) -> Option<RecordBatch> {
        let index = self
            .batches
            .partition_point(|(first, _)| *first <= offset)
            .checked_sub(1)?;
        let (first, batch) = &self.batches[index];
        let skipped = usize::try_from(offset - first).ok()?;
        let rows = batch.num_rows().checked_sub(skipped)?.min(rows_max);
        (rows > 0).then(|| batch.slice(skipped, rows))
    }

    /// Lets go of the batches that lie below `offset` as a whole.
    fn release(&mut self, offset: i64) {
        self.base = self.base.max(offset.min(self.end));
        while self
            .batches
            .front()
            .is_some_and(|(first, batch)| first + batch.num_rows() as i64 <= self.base)
        {
            self.batches.pop_front();
        }
    }

    fn rows(&self) -> usize {
        self.batches.iter().map(|(_, batch)| batch.num_rows()).sum()
    }
}

impl Topic {
    pub(super) fn new(name: &str, partitions: usize) -> Self {
        let state = TopicState {
            schema: None,
            partitions: (0..partitions).map(|_| Partition::default()).collect(),
            ended: false,
            rows_max: ROWS_MAX,
            readers: BTreeMap::new(),
            readers_seen: 0,
            wakers: BTreeMap::new(),
        };
        Self {
            name: name.to_owned(),
            state: Mutex::new(state),
            changed: Condvar::new(),
        }
    }

    pub(super) fn schema(&self) -> Option<SchemaRef> {
        self.state.lock().schema.clone()
    }

    /// Grows the topic to at least `partitions`.
    pub(super) fn ensure_partitions(&self, partitions: usize) {
        let mut state = self.state.lock();
        while state.partitions.len() < partitions {
            state.partitions.push(Partition::default());
        }
        self.changed.notify_all();
    }

    pub(super) fn set_rows_max(&self, rows_max: usize) {
        self.state.lock().rows_max = rows_max;
    }

    /// Offsets of the first row that is kept, by partition.
    pub(super) fn bases(&self) -> Positions {
        self.positions(|partition| partition.base)
    }

    /// One past the last row, by partition.
    pub(super) fn ends(&self) -> Positions {
        self.positions(|partition| partition.end)
    }

    fn positions(&self, of: impl Fn(&Partition) -> i64) -> Positions {
        let state = self.state.lock();
        (0..)
            .map(PartitionId)
            .zip(state.partitions.iter().map(of))
            .collect()
    }

    /// Makes the topic's schema `schema`, or checks that it is.
    pub(super) fn declare(&self, schema: &SchemaRef) -> Result<(), ConnectorError> {
        self.state.lock().check_schema(&self.name, schema)
    }

    pub(super) fn push(&self, partition: i32, batch: RecordBatch) -> Result<i64, ConnectorError> {
        let mut state = self.state.lock();
        state.check_schema(&self.name, &batch.schema())?;
        if state.ended {
            return Err(ConnectorError::new(
                ErrorKind::Permanent,
                format!("memory topic \"{}\" has ended", self.name),
            ));
        }
        let kept: usize = state.partitions.iter().map(Partition::rows).sum();
        if kept + batch.num_rows() > state.rows_max {
            let message = format!("memory topic \"{}\" is full", self.name);
            let detail = format!(
                "It keeps {kept} rows that its readers have not committed; its limit is {}.",
                state.rows_max
            );
            return Err(ConnectorError::new(ErrorKind::Transient, message)
                .with_detail(detail)
                .with_hint("Push again after the next checkpoint, or raise retention.rows."));
        }
        let count = state.partitions.len();
        let place = usize::try_from(partition)
            .ok()
            .and_then(|index| state.partitions.get_mut(index));
        let Some(place) = place else {
            let message = format!("memory topic \"{}\" has no partition {partition}", self.name);
            return Err(ConnectorError::invalid(message).with_detail(format!("It has {count}.")));
        };
        if batch.num_rows() > 0 {
            place.push(batch);
        }
        let end = place.end;
        let wakers = state.wakers_of(Some(PartitionId(partition)));
        drop(state);
        self.wake(&wakers);
        Ok(end)
    }

    pub(super) fn end(&self) {
        let mut state = self.state.lock();
        state.ended = true;
        let wakers = state.wakers_of(None);
        drop(state);
        self.wake(&wakers);
    }

    fn wake(&self, wakers: &[LaneWaker]) {
        self.changed.notify_all();
        for waker in wakers {
            waker();
        }
    }

    /// Registers a reader that has committed everything below `start`.
    ///
    /// # Errors
    /// When rows from `start` on have been let go, or were never there.
    pub(super) fn open(&self, start: &Positions) -> Result<ReaderId, ConnectorError> {
        let mut state = self.state.lock();
        for (id, offset) in start {
            let place = usize::try_from(id.0).ok();
            let Some(partition) = place.and_then(|index| state.partitions.get_mut(index)) else {
                let message = format!("memory topic \"{}\" has no partition {}", self.name, id.0);
                return Err(ConnectorError::new(ErrorKind::PositionLost, message));
            };
            if partition.end == 0 && partition.base == 0 {
                // Nothing was pushed in this process yet: row numbers go on where an earlier process stopped.
                partition.base = *offset;
                partition.end = *offset;
            }
            if *offset < partition.base || *offset > partition.end {
                let message = format!(
                    "memory topic \"{}\" does not hold row {offset} of partition {}",
                    self.name, id.0
                );
                let detail = format!("It holds the rows {} to {}.", partition.base, partition.end);
                return Err(ConnectorError::new(ErrorKind::PositionLost, message).with_detail(detail).with_hint(
                    "Rows of a memory source last as long as the process, and until all open readers committed them.",
                ));
            }
        }
        let id = ReaderId(state.readers_seen);
        state.readers_seen += 1;
        let bases = state.partitions.iter().map(|partition| partition.base);
        let mut committed: Positions = (0..).map(PartitionId).zip(bases).collect();
        committed.extend(start.iter().map(|(partition, offset)| (*partition, *offset)));
        state.readers.insert(id, committed);
        Ok(id)
    }

    /// Forgets a reader; what only it kept goes with the next commit of another one.
    pub(super) fn close(&self, reader: ReaderId) {
        let mut state = self.state.lock();
        state.readers.remove(&reader);
        state.wakers.retain(|(owner, _), _| *owner != reader);
    }

    /// The committed offset of a reader in a partition.
    pub(super) fn committed(&self, reader: ReaderId, partition: PartitionId) -> i64 {
        let state = self.state.lock();
        state
            .readers
            .get(&reader)
            .and_then(|positions| positions.get(&partition))
            .copied()
            .unwrap_or(0)
    }

    /// Lets go of the rows that every open reader has committed.
    pub(super) fn commit(&self, reader: ReaderId, offsets: &[(PartitionId, i64)]) {
        let mut state = self.state.lock();
        if let Some(committed) = state.readers.get_mut(&reader) {
            committed.extend(offsets.iter().copied());
        }
        for (id, _) in offsets {
            let lowest = state
                .readers
                .values()
                .map(|positions| positions.get(id).copied().unwrap_or(0))
                .min();
            let place = usize::try_from(id.0)
                .ok()
                .and_then(|index| state.partitions.get_mut(index));
            if let (Some(lowest), Some(partition)) = (lowest, place) {
                partition.release(lowest);
            }
        }
    }

    pub(super) fn set_waker(&self, reader: ReaderId, partition: PartitionId, waker: LaneWaker) {
        self.state.lock().wakers.insert((reader, partition), waker);
    }

    /// Rows of `partition` from `offset` on, waiting for them until `deadline`.
    pub(super) fn rows_at(
        &self,
        partition: PartitionId,
        offset: i64,
        rows_max: usize,
        deadline: Instant,
    ) -> Found {
        let mut state = self.state.lock();
        loop {
            let found = state
                .partitions
                .get(partition.0 as usize)
                .and_then(|it| it.rows_at(offset, rows_max));
            if let Some(rows) = found {
                return Found::Rows(rows);
            }
            if state.ended {
                return Found::Ended;
            }
            if Instant::now() >= deadline || self.changed.wait_until(&mut state, deadline).timed_out() {
                return Found::Nothing;
            }
        }
    }

    /// Waits until there are more than `known` partitions, at most until `deadline`.
    pub(super) fn await_partitions(&self, known: usize, deadline: Instant) -> usize {
        let mut state = self.state.lock();
        while state.partitions.len() <= known {
            if self.changed.wait_until(&mut state, deadline).timed_out() {
                break;
            }
        }
        state.partitions.len()
    }

    pub(super) fn has_ended(&self) -> bool {
        self.state.lock().ended
    }
}

impl TopicState {
    fn check_schema(&mut self, topic: &str, given: &SchemaRef) -> Result<(), ConnectorError> {
        let Some(schema) = &self.schema else {
            self.schema = Some(Arc::clone(given));
            return Ok(());
        };
        let columns = |schema: &SchemaRef| {
            let columns = schema
                .fields()
                .iter()
                .map(|field| format!("{} {}", field.name(), field.data_type()));
            columns.collect::<Vec<_>>().join(", ")
        };
        let same = schema.fields().len() == given.fields().len()
            && schema
                .fields()
                .iter()
                .zip(given.fields())
                .all(|(declared, given)| {
                    declared.name() == given.name() && declared.data_type() == given.data_type()
                });
        if same {
            return Ok(());
        }
        Err(
            ConnectorError::invalid(format!("rows do not fit memory topic \"{topic}\"")).with_detail(
                format!(
                    "Its columns are ({}); the rows have ({}).",
                    columns(schema),
                    columns(given)
                ),
            ),
        )
    }

    fn wakers_of(&self, partition: Option<PartitionId>) -> Vec<LaneWaker> {
        let wakers = self.wakers.iter();
        let wakers = wakers.filter(|((_, of), _)| partition.is_none_or(|partition| partition == *of));
        wakers.map(|(_, waker)| Arc::clone(waker)).collect()
    }
}

/// A program's way into a memory source. Cheap to clone; all clones mean one topic.
#[derive(Clone)]
pub struct MemoryHandle {
    pub(super) topic: Arc<Topic>,
}

impl MemoryHandle {
    /// Appends rows to partition 0 and gives its end offset. The first push decides the columns, unless
    /// [`MemoryConnector::create_topic`](super::MemoryConnector::create_topic) has.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`](crate::ErrorKind::Invalid) when the columns differ from the topic's;
    /// [`ErrorKind::Transient`](crate::ErrorKind::Transient) when the topic is full, push again later.
    pub fn push(&self, rows: RecordBatch) -> Result<i64, ConnectorError> {
        self.topic.push(0, rows)
    }

    /// Appends rows to a partition and gives its end offset.
    ///
    /// # Errors
    /// As [`MemoryHandle::push`], and an unknown partition.
    pub fn push_to(&self, partition: i32, rows: RecordBatch) -> Result<i64, ConnectorError> {
        self.topic.push(partition, rows)
    }

    /// Says that nothing more will come: lanes end when they have taken everything.
    pub fn end(&self) {
        self.topic.end();
    }

    /// One past the last row of a partition, if there is such a partition. After a restart of the process this is the
    /// number of the row to push next.
    #[must_use]
    pub fn end_offset(&self, partition: i32) -> Option<i64> {
        self.topic.ends().get(&PartitionId(partition)).copied()
    }

    /// The first row of a partition that is still kept, if there is such a partition.
    #[must_use]
    pub fn first_offset(&self, partition: i32) -> Option<i64> {
        self.topic.bases().get(&PartitionId(partition)).copied()
    }

    /// Grows the topic to at least `partitions`; running readers take the new ones up.
    pub fn ensure_partitions(&self, partitions: usize) {
        self.topic.ensure_partitions(partitions);
    }

    /// Keeps all rows that are there, and all that come, until the hold is dropped: for a program that closes its database
    /// and opens it again, while no reader is open that would keep what it has not committed.
    ///
    /// # Errors
    /// None today: the positions are those of the topic itself.
    pub fn hold(&self) -> Result<MemoryHold, ConnectorError> {
        let reader = self.topic.open(&self.topic.bases())?;
        Ok(MemoryHold {
            topic: Arc::clone(&self.topic),
            reader,
        })
    }
}

/// As long as it lives, a memory topic lets go of no row. Made by [`MemoryHandle::hold`].
pub struct MemoryHold {
    topic: Arc<Topic>,
    reader: ReaderId,
}

impl Drop for MemoryHold {
    fn drop(&mut self) {
        self.topic.close(self.reader);
    }
}
