//! What cannot be provoked from outside: lanes that the client forgets.

use std::time::{Duration, Instant};

use rdkafka::ClientConfig;
use rdkafka::producer::{BaseProducer, BaseRecord, Producer as _};

use super::*;
use crate::kafka::mock::MockBroker;
use crate::options::OptionMap;
use crate::source::{Batch, BatchBody, Wants};

const TOPIC: &str = "bids";
const P0: PartitionId = PartitionId(0);
const PATIENCE: Duration = Duration::from_secs(30);

fn produce(servers: &str, range: std::ops::Range<i64>) {
    let producer: BaseProducer = ClientConfig::new()
        .set("bootstrap.servers", servers)
        .create()
        .expect("a producer");
    for number in range {
        let value = number.to_string();
        producer
            .send(BaseRecord::<(), str>::to(TOPIC).partition(0).payload(&value))
            .expect("there is room");
    }
    producer.flush(PATIENCE).expect("the broker takes it");
}

fn source(servers: &str) -> KafkaSource {
    let options: OptionMap = [
        ("topic", TOPIC),
        ("properties.bootstrap.server", servers),
        ("partition.discovery.interval", "200ms"),
    ]
    .map(|(name, value)| (name.to_owned(), value.to_owned()))
    .into();
    KafkaSource::new(SourceOptions::parse(&options).expect("the options are right"))
}

fn open(source: &mut KafkaSource) -> Box<dyn SourceLane> {
    let context = SourceContext {
        name: TOPIC.into(),
        wants: Wants::default(),
        identity: RecoveryIdentity::new(),
    };
    source
        .open(context, &Positions::from([(P0, 0)]))
        .expect("it opens");
    match source.poll_events(Duration::ZERO) {
        Ok(SourceEvent::LanesAssigned(mut lanes)) => lanes.pop().expect("one lane"),
        _ => panic!("the lanes come first"),
    }
}

/// Serves both planes until the lane is at `end`; the offsets of the records, and the troubles that were shown.
fn read_to(source: &mut KafkaSource, lane: &mut dyn SourceLane, end: i64) -> (Vec<i64>, Vec<String>) {
    let (mut offsets, mut shown) = (Vec::new(), Vec::new());
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let SourceEvent::Degraded(error) = source.poll_events(Duration::ZERO).expect("the source lives") {
            shown.push(error.message);
        }
        let polled = lane.poll(100, Duration::from_millis(50)).expect("the lane lives");
        if let Some(Batch {
            body: BatchBody::Payloads(payloads),
            next_offset,
            ack,
        }) = polled
        {
            offsets.extend(payloads.iter().map(|payload| payload.offset));
            drop(payloads);
            drop(ack);
            if next_offset >= end {
                return (offsets, shown);
            }
        }
        assert!(
            Instant::now() < deadline,
            "the lane stands still after {offsets:?}"
        );
    }
}

#[test]
fn a_partition_that_the_client_forgets_is_assigned_again_where_the_lane_stands() {
    let broker = MockBroker::start(1).expect("a broker");
    broker.create_topic(TOPIC, 1).expect("a topic");
    let servers = broker.bootstrap_servers();
    produce(&servers, 0..10);
    let mut source = source(&servers);
    let mut lane = open(&mut source);
    assert_eq!(read_to(&mut source, lane.as_mut(), 10).0, Vec::from_iter(0..10));

    let forgotten = source.partition_list(&[P0]);
    let consumer = Arc::clone(&source.open.as_ref().expect("it is open").consumer);
    consumer
        .incremental_unassign(&forgotten)
        .expect("it was assigned");
    produce(&servers, 10..20);
    let (offsets, shown) = read_to(&mut source, lane.as_mut(), 20);
    assert_eq!(offsets, Vec::from_iter(10..20));
    assert!(
        shown
            .iter()
            .any(|message| message.contains("gave nothing of partition 0")),
        "it is shown: {shown:?}"
    );
}

#[test]
fn records_that_come_to_the_queue_of_events_are_read_again() {
    let broker = MockBroker::start(1).expect("a broker");
    broker.create_topic(TOPIC, 1).expect("a topic");
    let servers = broker.bootstrap_servers();
    produce(&servers, 0..10);
    let mut source = source(&servers);
    let mut lane = open(&mut source);
    assert_eq!(read_to(&mut source, lane.as_mut(), 10).0, Vec::from_iter(0..10));

    source
        .open
        .as_ref()
        .expect("it is open")
        .consumer
        .context()
        .stray(P0.0);
    produce(&servers, 10..20);
    let (offsets, shown) = read_to(&mut source, lane.as_mut(), 20);
    assert_eq!(offsets, Vec::from_iter(10..20), "each once, in order");
    assert!(!shown.is_empty(), "it is shown");
}

#[test]
fn a_record_among_the_events_is_noticed() {
    let broker = MockBroker::start(1).expect("a broker");
    broker.create_topic(TOPIC, 1).expect("a topic");
    let servers = broker.bootstrap_servers();
    produce(&servers, 0..3);
    let source = source(&servers);
    let consumer = source.client("astray", 1).expect("a client");
    let list = source.list(&Positions::from([(P0, 0)])).expect("a list");
    consumer
        .assign(&list)
        .expect("it is assigned, without a queue of its own");
    let deadline = Instant::now() + PATIENCE;
    while consumer.context().take_strays().is_empty() {
        assert!(Instant::now() < deadline, "records come to the main queue");
        serve(&consumer);
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn a_gap_is_named_with_its_size() {
    let range = Range { low: 15, high: 40 };
    let lost = Lost {
        topic: "t",
        partition: PartitionId(2),
        position: 5,
        range,
    };
    assert_eq!(
        lost.gap().message,
        "10 records of partition 2 of Kafka topic \"t\" are gone"
    );
    assert_eq!(
        lost.skipped(40).message,
        "35 records of partition 2 of Kafka topic \"t\" were skipped"
    );
}
