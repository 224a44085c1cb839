//! The memory source: lanes over a topic in the process.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use arrow::datatypes::SchemaRef;
use parking_lot::Mutex;

use super::topic::{Found, MemoryHandle, ROWS_MAX, ReaderId, Topic};
use crate::ack::AckIssuer;
use crate::error::ConnectorError;
use crate::in_process::{InProcessSource, LaneFactory};
use crate::options::{Given, OptionKind, OptionMap, OptionSpec};
use crate::source::{
    Batch, BatchBody, LaneState, LaneWaker, PartitionId, Positions, Probe, RecoveryIdentity, Source,
    SourceConnector, SourceContext, SourceContract, SourceLane,
};

const OPTIONS: &[OptionSpec] = &[
    OptionSpec {
        name: "topic",
        required: true,
        doc: "Name by which the program finds the source to push rows into.",
        ..OptionSpec::TEXT
    },
    OptionSpec {
        name: "partitions",
        kind: OptionKind::Integer { min: 1, max: 4096 },
        default: Some("1"),
        doc: "How many partitions the topic has at least.",
        ..OptionSpec::TEXT
    },
    OptionSpec {
        name: "scan.startup.mode",
        kind: OptionKind::Choice(&["earliest", "latest"]),
        default: Some("earliest"),
        doc: "Whether a new reader takes the rows that are kept, or only those pushed after the statement.",
        ..OptionSpec::TEXT
    },
    OptionSpec {
        name: "retention.rows",
        kind: OptionKind::Integer {
            min: 1,
            max: i64::MAX,
        },
        default: Some("10000000"),
        doc: "How many uncommitted rows the topic keeps before it refuses more.",
        ..OptionSpec::TEXT
    },
];

const CONTRACT: SourceContract = SourceContract {
    replayable: true,
    bounded: false,
    ordered: true,
    position: "row number",
    shares_commits: false,
};

/// `connector = 'memory'`: sources that the program itself feeds. Rows can be read again within the life of the
/// process, until every open reader has committed them.
#[derive(Default)]
pub struct MemoryConnector {
    topics: Mutex<BTreeMap<String, Arc<Topic>>>,
}

impl MemoryConnector {
    /// A connector without topics.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The handle of the topic called `name`, which is made with one partition if it does not exist.
    #[must_use]
    pub fn handle(&self, name: &str) -> MemoryHandle {
        MemoryHandle {
            topic: self.topic(name, 1),
        }
    }

    /// A topic with stated columns: pushed rows are checked against them, and a `CREATE SOURCE` need not repeat them.
    ///
    /// # Errors
    /// When the topic exists with other columns.
    pub fn create_topic(
        &self,
        name: &str,
        schema: &SchemaRef,
        partitions: usize,
    ) -> Result<MemoryHandle, ConnectorError> {
        let topic = self.topic(name, partitions.max(1));
        topic.declare(schema)?;
        Ok(MemoryHandle { topic })
    }

    /// Lets go of a topic and its rows. Sources that are open on it keep it until they close.
    pub fn drop_topic(&self, name: &str) {
        self.topics.lock().remove(name);
    }

    fn topic(&self, name: &str, partitions: usize) -> Arc<Topic> {
        let mut topics = self.topics.lock();
        let topic = topics
            .entry(name.to_owned())
            .or_insert_with(|| Arc::new(Topic::new(name, partitions)));
        topic.ensure_partitions(partitions);
        Arc::clone(topic)
    }

    fn topic_of(&self, options: &OptionMap) -> Result<Arc<Topic>, ConnectorError> {
        let given = Given::new(OPTIONS, options);
        let partitions = given
            .integer("partitions")?
            .and_then(|count| usize::try_from(count).ok())
            .unwrap_or(1);
        let topic = self.topic(given.required("topic")?, partitions);
        if let Some(rows) = options
            .get("retention.rows")
            .and_then(|_| given.integer("retention.rows").transpose())
        {
            topic.set_rows_max(usize::try_from(rows?).unwrap_or(ROWS_MAX));
        }
        Ok(topic)
    }
}

impl SourceConnector for MemoryConnector {
    fn name(&self) -> &'static str {
        "memory"
    }

    fn options(&self) -> &'static [OptionSpec] {
        OPTIONS
    }

    fn contract(&self, _options: &OptionMap) -> SourceContract {
        CONTRACT
    }

    fn fixed_schema(&self, options: &OptionMap) -> Option<SchemaRef> {
        let topics = self.topics.lock();
        topics.get(options.get("topic")?)?.schema()
    }

    fn validate(&self, options: &OptionMap) -> Result<(), ConnectorError> {
        let name = Given::new(OPTIONS, options).required("topic")?;
        if name.is_empty() {
            return Err(ConnectorError::invalid("option \"topic\" is empty"));
        }
        Ok(())
    }

    fn probe(&self, options: &OptionMap, _timeout: Duration) -> Result<Probe, ConnectorError> {
        let topic = self.topic_of(options)?;
        let given = Given::new(OPTIONS, options);
        let from_beginning = given.required("scan.startup.mode")? != "latest";
        let start = if from_beginning {
            topic.bases()
        } else {
            topic.ends()
        };
        let identity = RecoveryIdentity::from([("topic".to_owned(), given.required("topic")?.to_owned())]);
        Ok(Probe {
            start,
            from_beginning,
            identity,
            columns: topic.schema(),
            notices: Vec::new(),
        })
    }

    fn end_offsets(&self, options: &OptionMap, _timeout: Duration) -> Result<Positions, ConnectorError> {
        Ok(self.topic_of(options)?.ends())
    }

    fn create(&self, options: &OptionMap) -> Result<Box<dyn Source>, ConnectorError> {
        let topic = self.topic_of(options)?;
        Ok(Box::new(InProcessSource::new(MemoryLanes { topic })))
    }
}

/// Makes the lanes of a topic.
struct MemoryLanes {
    topic: Arc<Topic>,
}

/// One reader of a topic, which keeps what the reader has not committed.
struct MemoryReader {
    topic: Arc<Topic>,
    id: ReaderId,
}

impl Drop for MemoryReader {
    fn drop(&mut self) {
        self.topic.close(self.id);
    }
}

impl LaneFactory for MemoryLanes {
    type Reader = MemoryReader;

    fn name(&self) -> &'static str {
        "memory"
    }

    fn contract(&self) -> SourceContract {
        CONTRACT
    }

    fn open(&self, _context: &SourceContext, start: &Positions) -> Result<MemoryReader, ConnectorError> {
        if let Some(highest) = start
            .keys()
            .next_back()
            .and_then(|highest| usize::try_from(highest.0).ok())
        {
            self.topic.ensure_partitions(highest + 1);
        }
        Ok(MemoryReader {
            id: self.topic.open(start)?,
            topic: Arc::clone(&self.topic),
        })
    }

    fn await_partitions(&self, known: usize, deadline: Instant) -> usize {
        self.topic.await_partitions(known, deadline)
    }

    fn lane(
        &self,
        reader: &MemoryReader,
        partition: PartitionId,
        acks: AckIssuer,
        paused: Arc<AtomicBool>,
    ) -> Box<dyn SourceLane> {
        Box::new(MemoryLane {
            topic: Arc::clone(&self.topic),
            reader: reader.id,
            partition,
            position: self.topic.committed(reader.id, partition),
            state: LaneState::Reading,
            acks,
            paused,
            waker: None,
        })
    }

    fn commit(&self, reader: &MemoryReader, offsets: &[(PartitionId, i64)]) {
        self.topic.commit(reader.id, offsets);
    }

    fn end_offsets(&self) -> Positions {
        self.topic.ends()
    }
}

/// One partition of a topic.
struct MemoryLane {
    topic: Arc<Topic>,
    reader: ReaderId,
    partition: PartitionId,
    position: i64,
    state: LaneState,
    acks: AckIssuer,
    paused: Arc<AtomicBool>,
    waker: Option<LaneWaker>,
}

impl SourceLane for MemoryLane {
    fn partition(&self) -> PartitionId {
        self.partition
    }

    fn set_waker(&mut self, waker: LaneWaker) {
        self.topic
            .set_waker(self.reader, self.partition, Arc::clone(&waker));
        // Rows that were pushed before have woken nobody.
        waker();
        self.waker = Some(waker);
    }

    fn poll(&mut self, max_records: usize, timeout: Duration) -> Result<Option<Batch<'_>>, ConnectorError> {
        if max_records == 0 || self.paused.load(Ordering::Acquire) {
            return Ok(None);
        }
        let deadline = Instant::now() + timeout;
        let rows = match self
            .topic
            .rows_at(self.partition, self.position, max_records, deadline)
        {
            Found::Rows(rows) => rows,
            Found::Nothing => {
                self.state = LaneState::AtEnd;
                return Ok(None);
            }
            Found::Ended => {
                self.state = LaneState::Ended;
                return Ok(None);
            }
        };
        let first_offset = self.position;
        let next_offset = first_offset + rows.num_rows() as i64;
        self.position = next_offset;
        self.state = match self.end_offset() {
            Some(end) if next_offset < end => LaneState::Reading,
            _ if self.topic.has_ended() => LaneState::Ended,
            _ => LaneState::AtEnd,
        };
        let ack = self.acks.issue(self.partition, first_offset, next_offset);
        Ok(Some(Batch {
            body: BatchBody::Rows { rows, first_offset },
            next_offset,
            ack,
        }))
    }

    fn state(&self) -> LaneState {
        self.state
    }

    fn end_offset(&self) -> Option<i64> {
        self.topic.ends().get(&self.partition).copied()
    }

    fn resume(&mut self) {
        if let Some(waker) = &self.waker {
            waker();
        }
    }
}
