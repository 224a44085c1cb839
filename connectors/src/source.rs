//! The source seam: a control plane ([`Source`]) on one thread, and a data plane of lanes ([`SourceLane`]).
//!
//! ```text
//! SourceConnector ── probe ──▶ Probe            (CREATE SOURCE, leaves the process, bounded in time)
//!        └────────── open ───▶ Source ── poll_events ──▶ LanesAssigned(lanes) …
//!                                │                            │
//!                             commit ◀── durable ──── lane.poll ──▶ Batch{ payloads, next_offset, ack }
//! ```

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use arrow::record_batch::RecordBatch;

use crate::ack::{AckRef, DrainBarrier};
use crate::error::ConnectorError;
use crate::options::{OptionMap, OptionSpec};
pub use crate::partition::{PartitionId, Positions};
use crate::statistics::ClientStatistics;

/// Where a source starts, as the user asked; a probe turns it into [`Positions`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StartMode {
    /// The first record that the partition still holds.
    Earliest,
    /// Only what is written after the statement.
    Latest,
    /// The first record at or after this time (milliseconds since the epoch).
    Timestamp(i64),
    /// Stated offsets; partitions that are not listed start at their beginning.
    Offsets(Positions),
}

/// What a connector promises; a query that needs more is refused at CREATE.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SourceContract {
    /// Rows can be read again from a recorded position.
    pub replayable: bool,
    /// The source ends: lanes report [`LaneState::Ended`].
    pub bounded: bool,
    /// Offsets of a partition only grow.
    pub ordered: bool,
    /// What a position is, for people: "Kafka offset", "row number".
    pub position: &'static str,
    /// Commits of all readers go to one place outside, for people to look at. Otherwise each reader has its own, and what all have
    /// committed may be let go.
    pub shares_commits: bool,
}

/// What identifies the outside thing that positions belong to (topic id, cluster id, format options). Stored with the
/// positions; a mismatch at a restart is an error that names both values (INV-6).
pub type RecoveryIdentity = BTreeMap<String, String>;

/// What the one look at the outside world found, at CREATE.
#[derive(Debug, Clone, Default)]
pub struct Probe {
    /// Start positions of all partitions, resolved to numbers.
    pub start: Positions,
    /// Whether `start` is the beginning of each partition: a reader that comes later starts at what is its beginning then.
    pub from_beginning: bool,
    /// What the positions belong to.
    pub identity: RecoveryIdentity,
    /// Columns found in a sample or registry, if the statement declared none (name, Arrow type).
    pub columns: Option<arrow::datatypes::SchemaRef>,
    /// What the user should know ("the topic is empty").
    pub notices: Vec<String>,
}

/// A kind of source: its name, its options, and how to make one. Registered by name for `connector = '…'`.
pub trait SourceConnector: Send + Sync {
    /// The value of `connector = '…'`.
    fn name(&self) -> &'static str;
    /// All options that it takes.
    fn options(&self) -> &'static [OptionSpec];
    /// What it promises, given its options.
    fn contract(&self, options: &OptionMap) -> SourceContract;
    /// The column names and types the connector itself dictates (datagen), if it does.
    fn fixed_schema(&self, _options: &OptionMap) -> Option<arrow::datatypes::SchemaRef> {
        None
    }
    /// Checks option values against each other without leaving the process.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`](crate::ErrorKind::Invalid), naming the option.
    fn validate(&self, options: &OptionMap) -> Result<(), ConnectorError>;
    /// Looks at the outside world once: connects, reads metadata, resolves start positions. Takes at most `timeout`.
    ///
    /// # Errors
    /// With a translated reason ("no broker answered at 127.0.0.1:9092 …"), never a bare client code.
    fn probe(&self, options: &OptionMap, timeout: Duration) -> Result<Probe, ConnectorError>;
    /// Where each partition ends now, for people: asked of a source that nothing reads. Takes at most `timeout`.
    ///
    /// # Errors
    /// With a translated reason.
    fn end_offsets(&self, _options: &OptionMap, _timeout: Duration) -> Result<Positions, ConnectorError> {
        Ok(Positions::new())
    }
    /// The options under which all that is there is read once: without those that say how fast rows are made.
    fn unpaced(&self, options: &OptionMap) -> OptionMap {
        options.clone()
    }
    /// A source that is not open yet.
    ///
    /// # Errors
    /// When the options cannot be turned into a client.
    fn create(&self, options: &OptionMap) -> Result<Box<dyn Source>, ConnectorError>;
}

/// What a source is opened with.
pub struct SourceContext {
    /// Name of the source object, for client ids, logs and errors.
    pub name: String,
    /// Which parts of a record the reader needs beyond its value.
    pub wants: Wants,
    /// What the recorded positions belong to; empty at the first start.
    pub identity: RecoveryIdentity,
}

/// Which metadata the reader needs; lanes skip the rest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Wants {
    /// Record keys.
    pub key: bool,
    /// Record headers (a client call per record).
    pub headers: bool,
    /// Record timestamps (a client call per record).
    pub timestamp: bool,
}

/// An event of the control plane.
pub enum SourceEvent {
    /// The first lanes.
    LanesAssigned(Vec<Box<dyn SourceLane>>),
    /// Lanes of partitions that appeared while running; they start at their beginning.
    LanesAdded(Vec<Box<dyn SourceLane>>),
    /// Lanes that go away: drain, checkpoint, commit, then release the barrier.
    LanesRevoked {
        /// Which lanes.
        lanes: Vec<PartitionId>,
        /// Released when their rows are durable.
        barrier: DrainBarrier,
    },
    /// The source met an error that it goes on from (broker down, reconnecting); shown, not fatal.
    Degraded(ConnectorError),
    /// What was shown as [`SourceEvent::Degraded`] has passed.
    Recovered,
    /// Nothing happened within the timeout.
    Idle,
}

/// The control plane of one reader of a source; all calls come from one thread.
pub trait Source: Send {
    /// What this source promises.
    fn contract(&self) -> SourceContract;
    /// Starts reading at `start`; partitions that are missing in it start at their beginning.
    ///
    /// # Errors
    /// [`ErrorKind::PositionLost`](crate::ErrorKind::PositionLost) names the gap; an identity mismatch names both values.
    fn open(&mut self, context: SourceContext, start: &Positions) -> Result<(), ConnectorError>;
    /// Waits up to `timeout` for an event.
    ///
    /// # Errors
    /// Only what ends the source; everything else is [`SourceEvent::Degraded`].
    fn poll_events(&mut self, timeout: Duration) -> Result<SourceEvent, ConnectorError>;
    /// Tells the outside world (advisory) that everything below these offsets is durable. Returns at once.
    ///
    /// # Errors
    /// When the client refuses outright.
    fn commit(&mut self, offsets: &[(PartitionId, i64)]) -> Result<(), ConnectorError>;
    /// Waits for outstanding commits.
    ///
    /// # Errors
    /// When they did not finish in time.
    fn flush_commits(&mut self, timeout: Duration) -> Result<(), ConnectorError>;
    /// Stops fetching for these partitions; the control plane goes on.
    fn pause(&mut self, partitions: &[PartitionId]);
    /// Fetches again.
    fn resume(&mut self, partitions: &[PartitionId]);
    /// End offsets as last heard from the outside world, for partitions whose lane knows none yet.
    fn end_offsets(&self) -> Positions;
    /// How many records of each partition were gone before they were read (INV-5), since the source was opened.
    fn lost_records(&self) -> BTreeMap<PartitionId, u64> {
        BTreeMap::new()
    }
    /// What the client told of itself last, if it tells anything.
    fn statistics(&self) -> Option<Arc<ClientStatistics>> {
        None
    }
    /// Lets go of everything. Lanes may still be dropped later.
    fn close(&mut self);
}

/// Called by a lane (from any thread, cheap, non-blocking) when it may have become non-empty.
pub type LaneWaker = Arc<dyn Fn() + Send + Sync>;

/// What a lane knows about its place in the partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LaneState {
    /// Records are waiting or may come soon.
    Reading,
    /// Everything that the partition holds has been taken.
    AtEnd,
    /// A bounded source has nothing more, ever.
    Ended,
}

/// The data plane of one partition; all calls come from one thread at a time.
pub trait SourceLane: Send {
    /// The partition that it reads.
    fn partition(&self) -> PartitionId;
    /// Whom to call when the lane may have become non-empty: called at once if it is, and for what arrives after a
    /// poll. A poll that gave a batch is followed by another one, since the waker is not called for what it left. The
    /// waker runs on a thread of the client, under its locks: it only signals, and never calls back into the lane.
    fn set_waker(&mut self, waker: LaneWaker);
    /// Takes up to `max_records`, blocking at most `timeout` (zero: not at all). Never spins. A batch may be empty
    /// and still move `next_offset` (control records, compacted gaps).
    ///
    /// # Errors
    /// What ends the lane; transient faults are the source's [`SourceEvent::Degraded`].
    fn poll(&mut self, max_records: usize, timeout: Duration) -> Result<Option<Batch<'_>>, ConnectorError>;
    /// Its place in the partition after the last poll.
    fn state(&self) -> LaneState;
    /// The end offset of the partition (one past its last record) as last heard, if known.
    fn end_offset(&self) -> Option<i64>;
    /// For lanes driven by a clock (datagen): when to poll next although no waker was called.
    fn due(&self) -> Option<Instant> {
        None
    }
    /// Stops the client from fetching while the reader's queue is full; cheap, called on transitions only. A lane
    /// whose client bounds what it fetches ahead need not do anything: what was fetched would be thrown away.
    fn pause(&mut self) {}
    /// Fetches again.
    fn resume(&mut self) {}
}

/// What one poll took.
pub struct Batch<'a> {
    /// The records.
    pub body: BatchBody<'a>,
    /// One past the last record taken (also of those that were skipped).
    pub next_offset: i64,
    /// Resolved by the runtime when the checkpoint that covers the batch is durable.
    pub ack: AckRef,
}

/// Records as bytes to decode, or as rows that need no decoding.
pub enum BatchBody<'a> {
    /// Borrowed from the lane's buffers.
    Payloads(Vec<RawPayload<'a>>),
    /// Already columns, in the order of the source's declared columns; row `i` has offset `first_offset + i`.
    Rows {
        /// The rows.
        rows: RecordBatch,
        /// Offset of the first row.
        first_offset: i64,
    },
}

/// One record as it lies in the lane's buffers.
#[derive(Debug, Clone, Copy)]
pub struct RawPayload<'a> {
    /// The value; `None` is a null payload (a tombstone), which is not an empty one.
    pub value: Option<&'a [u8]>,
    /// The key, if the record has one and the reader wants it.
    pub key: Option<&'a [u8]>,
    /// Its offset in the partition.
    pub offset: i64,
    /// Milliseconds since the epoch, if the record has a timestamp and the reader wants it.
    pub timestamp_ms: Option<i64>,
    /// Headers, if the reader wants them.
    pub headers: Option<&'a dyn RecordHeaders>,
}

/// The headers of a record, read on demand.
pub trait RecordHeaders {
    /// How many there are.
    fn len(&self) -> usize;
    /// Whether there are none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// Name and value of header `index`; a value may be null.
    fn get(&self, index: usize) -> (&str, Option<&[u8]>);
}

impl std::fmt::Debug for dyn RecordHeaders + '_ {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "RecordHeaders({})", self.len())
    }
}
