//! What several of these tests need: a topic on mock brokers, records in it, a source that reads them.

use std::time::{Duration, Instant};

use highwater_connectors::kafka::KafkaConnector;
use highwater_connectors::kafka::mock::MockBroker;
use highwater_connectors::options::OptionMap;
use highwater_connectors::source::{
    BatchBody, LaneState, PartitionId, Positions, RecoveryIdentity, Source, SourceConnector, SourceContext,
    SourceEvent, SourceLane, Wants,
};
use rdkafka::ClientConfig;
use rdkafka::producer::{BaseProducer, BaseRecord, Producer as _};

/// How long anything may take before a test fails.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);
pub(crate) const TURN: Duration = Duration::from_millis(50);
pub(crate) const P0: PartitionId = PartitionId(0);

/// One record as a test wants to see it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) offset: i64,
    pub(crate) key: Option<Vec<u8>>,
    pub(crate) value: Option<Vec<u8>>,
}

pub(crate) fn broker(topic: &str, partitions: i32) -> MockBroker {
    let broker = MockBroker::start(1).expect("the mock broker starts");
    broker
        .create_topic(topic, partitions)
        .expect("the topic is created");
    broker
}

pub(crate) fn options(servers: &str, topic: &str, extra: &[(&str, &str)]) -> OptionMap {
    let base = [("topic", topic), ("properties.bootstrap.server", servers)];
    base.iter()
        .chain(extra)
        .map(|(name, text)| ((*name).to_owned(), (*text).to_owned()))
        .collect()
}

pub(crate) fn producer(servers: &str) -> BaseProducer {
    ClientConfig::new()
        .set("bootstrap.servers", servers)
        .create()
        .expect("a producer")
}

pub(crate) fn flush(producer: &BaseProducer) {
    producer.flush(PATIENCE).expect("the records are delivered");
}

pub(crate) fn produce(servers: &str, topic: &str, partition: i32, values: impl IntoIterator<Item = String>) {
    let producer = producer(servers);
    for value in values {
        let record = BaseRecord::to(topic)
            .partition(partition)
            .key(&value)
            .payload(&value);
        producer
            .send(record)
            .map_err(|(error, _)| error)
            .expect("the record is queued");
        producer.poll(Duration::ZERO);
    }
    flush(&producer);
}

pub(crate) fn numbered(range: std::ops::Range<i64>) -> impl Iterator<Item = String> {
    range.map(|number| format!("value {number}"))
}

pub(crate) fn context(wants: Wants) -> SourceContext {
    SourceContext {
        name: "bids".into(),
        wants,
        identity: RecoveryIdentity::new(),
    }
}

/// Opens a source and waits for its lanes.
pub(crate) fn open(
    options: &OptionMap,
    start: &Positions,
    wants: Wants,
) -> (Box<dyn Source>, Vec<Box<dyn SourceLane>>) {
    let mut source = KafkaConnector.create(options).expect("the options are accepted");
    source.open(context(wants), start).expect("the source opens");
    let SourceEvent::LanesAssigned(lanes) = source.poll_events(PATIENCE).expect("an event") else {
        panic!("the first event assigns lanes");
    };
    (source, lanes)
}

/// Takes one batch, resolved at once.
pub(crate) fn poll(lane: &mut dyn SourceLane, max: usize) -> Option<(Vec<Seen>, i64)> {
    let batch = lane.poll(max, TURN).expect("the lane goes on")?;
    let BatchBody::Payloads(payloads) = &batch.body else {
        panic!("Kafka gives payloads")
    };
    let seen = payloads.iter().map(|payload| Seen {
        offset: payload.offset,
        key: payload.key.map(<[u8]>::to_vec),
        value: payload.value.map(<[u8]>::to_vec),
    });
    let seen = seen.collect();
    let next_offset = batch.next_offset;
    batch.ack.resolve();
    Some((seen, next_offset))
}

/// Reads until the lane is at its end with `next_offset` there.
pub(crate) fn read_to(lane: &mut dyn SourceLane, end: i64) -> Vec<Seen> {
    let deadline = Instant::now() + PATIENCE;
    let (mut seen, mut next) = (Vec::new(), None);
    while lane.state() != LaneState::AtEnd || next.is_some_and(|next| next < end) || next.is_none() && end > 0
    {
        if let Some((more, next_offset)) = poll(lane, 100) {
            seen.extend(more);
            next = Some(next_offset);
        }
        assert!(
            Instant::now() < deadline,
            "the lane is at {next:?}, not at its end {end}, after {} records",
            seen.len()
        );
    }
    seen
}

pub(crate) fn values(seen: &[Seen]) -> Vec<String> {
    let text = |seen: &Seen| String::from_utf8(seen.value.clone().expect("a value")).expect("UTF-8");
    seen.iter().map(text).collect()
}
