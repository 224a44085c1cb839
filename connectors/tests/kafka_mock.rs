//! The Kafka source and sink against librdkafka's mock brokers: reading, ends, pauses, positions, confirmations and
//! the errors that a user sees.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use highwater_connectors::conformance::{SinkFixture, SourceFixture, check_sink, check_source};
use highwater_connectors::kafka::mock::{ApiKey, MockBroker, ResponseError};
use highwater_connectors::kafka::{KafkaConnector, KafkaSinkConnector};
use highwater_connectors::options::OptionMap;
use highwater_connectors::sink::{Sink, SinkChunk, SinkConnector, SinkRecord};
use highwater_connectors::source::{
    BatchBody, LaneState, PartitionId, Positions, RecoveryIdentity, Source, SourceConnector, SourceContext,
    SourceEvent, SourceLane, Wants,
};
use highwater_connectors::{ConnectorError, ErrorKind};
use rdkafka::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer as _};
use rdkafka::message::{Header, OwnedHeaders};
use rdkafka::producer::{BaseProducer, BaseRecord, Producer as _};
use rdkafka::{Offset, TopicPartitionList};

/// How long anything may take before a test fails.
const PATIENCE: Duration = Duration::from_secs(30);
const TURN: Duration = Duration::from_millis(50);
const P0: PartitionId = PartitionId(0);

/// One record as a test wants to see it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Seen {
    offset: i64,
    key: Option<Vec<u8>>,
    value: Option<Vec<u8>>,
}

fn broker(topic: &str, partitions: i32) -> MockBroker {
    let broker = MockBroker::start(1).expect("the mock broker starts");
    broker
        .create_topic(topic, partitions)
        .expect("the topic is created");
    broker
}

fn options(servers: &str, topic: &str, extra: &[(&str, &str)]) -> OptionMap {
    let base = [("topic", topic), ("properties.bootstrap.server", servers)];
    base.iter()
        .chain(extra)
        .map(|(name, text)| ((*name).to_owned(), (*text).to_owned()))
        .collect()
}

fn producer(servers: &str) -> BaseProducer {
    ClientConfig::new()
        .set("bootstrap.servers", servers)
        .create()
        .expect("a producer")
}

fn flush(producer: &BaseProducer) {
    producer.flush(PATIENCE).expect("the records are delivered");
}

fn produce(servers: &str, topic: &str, partition: i32, values: impl IntoIterator<Item = String>) {
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

fn numbered(range: std::ops::Range<i64>) -> impl Iterator<Item = String> {
    range.map(|number| format!("value {number}"))
}

fn context(wants: Wants) -> SourceContext {
    SourceContext {
        name: "bids".into(),
        wants,
        identity: RecoveryIdentity::new(),
    }
}

/// Opens a source and waits for its lanes.
fn open(options: &OptionMap, start: &Positions, wants: Wants) -> (Box<dyn Source>, Vec<Box<dyn SourceLane>>) {
    let mut source = KafkaConnector.create(options).expect("the options are accepted");
    source.open(context(wants), start).expect("the source opens");
    let SourceEvent::LanesAssigned(lanes) = source.poll_events(PATIENCE).expect("an event") else {
        panic!("the first event assigns lanes");
    };
    (source, lanes)
}

fn refused(options: &OptionMap, start: &Positions) -> ConnectorError {
    let mut source = KafkaConnector.create(options).expect("the options are accepted");
    source
        .open(context(Wants::default()), start)
        .expect_err("the source does not open")
}

/// Takes one batch, resolved at once.
fn poll(lane: &mut dyn SourceLane, max: usize) -> Option<(Vec<Seen>, i64)> {
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
fn read_to(lane: &mut dyn SourceLane, end: i64) -> Vec<Seen> {
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

fn values(seen: &[Seen]) -> Vec<String> {
    let text = |seen: &Seen| String::from_utf8(seen.value.clone().expect("a value")).expect("UTF-8");
    seen.iter().map(text).collect()
}

fn wait_for(source: &mut dyn Source, wanted: impl Fn(&SourceEvent) -> bool) -> SourceEvent {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let event = source.poll_events(TURN).expect("the source goes on");
        if wanted(&event) {
            return event;
        }
        assert!(Instant::now() < deadline, "the event does not come");
    }
}

#[test]
fn every_record_of_every_partition_is_read_once_and_in_order() {
    let broker = broker("bids", 3);
    let servers = broker.bootstrap_servers();
    (0..3).for_each(|partition| produce(&servers, "bids", partition, numbered(0..250)));
    let options = options(&servers, "bids", &[]);
    let probe = KafkaConnector
        .probe(&options, PATIENCE)
        .expect("the probe finds the topic");
    assert_eq!(
        probe.start,
        (0..3).map(|partition| (PartitionId(partition), 0)).collect()
    );

    let (mut source, mut lanes) = open(
        &options,
        &probe.start,
        Wants {
            key: true,
            ..Wants::default()
        },
    );

    assert_eq!(lanes.len(), 3);
    for lane in &mut lanes {
        let seen = read_to(lane.as_mut(), 250);
        assert_eq!(values(&seen), numbered(0..250).collect::<Vec<_>>());
        assert!(
            seen.iter()
                .enumerate()
                .all(|(index, seen)| seen.offset == index as i64 && seen.key == seen.value)
        );
        assert_eq!(lane.end_offset(), Some(250));
    }
    source.close();
}

#[test]
fn a_null_value_is_not_an_empty_one_and_headers_and_timestamps_come_when_wanted() {
    let broker = broker("t", 1);
    let servers = broker.bootstrap_servers();
    let producer = producer(&servers);
    let send =
        |record: BaseRecord<'_, str, str>| producer.send(record).map_err(|(error, _)| error).expect("queued");
    send(
        BaseRecord::to("t")
            .partition(0)
            .key("k")
            .timestamp(1_700_000_000_123),
    );
    let headers = OwnedHeaders::new()
        .insert(Header {
            key: "trace",
            value: Some("abc"),
        })
        .insert(Header::<&str> {
            key: "none",
            value: None,
        });
    send(BaseRecord::to("t").partition(0).payload("").headers(headers));
    flush(&producer);
    let wants = Wants {
        key: true,
        headers: true,
        timestamp: true,
    };
    let (_source, mut lanes) = open(&options(&servers, "t", &[]), &Positions::from([(P0, 0)]), wants);

    let deadline = Instant::now() + PATIENCE;
    let mut seen = Vec::new();
    while seen.len() < 2 {
        assert!(Instant::now() < deadline, "both records come");
        let Some(batch) = lanes[0].poll(10, TURN).expect("the lane goes on") else {
            continue;
        };
        let BatchBody::Payloads(payloads) = &batch.body else {
            panic!("Kafka gives payloads")
        };
        seen.extend(payloads.iter().map(|payload| {
            let headers = payload.headers.expect("headers are wanted");
            let headers: Vec<(String, Option<Vec<u8>>)> = (0..headers.len())
                .map(|index| headers.get(index))
                .map(|(name, value)| (name.to_owned(), value.map(<[u8]>::to_vec)))
                .collect();
            (payload.value.map(<[u8]>::to_vec), payload.timestamp_ms, headers)
        }));
        batch.ack.resolve();
    }

    assert_eq!(seen[0], (None, Some(1_700_000_000_123), vec![]));
    assert_eq!(seen[1].0, Some(vec![]));
    assert_eq!(
        seen[1].2,
        vec![("trace".into(), Some(b"abc".to_vec())), ("none".into(), None)]
    );
}

#[test]
fn keys_timestamps_and_headers_that_nobody_wants_are_left_out() {
    let broker = broker("t", 1);
    let servers = broker.bootstrap_servers();
    produce(&servers, "t", 0, numbered(0..1));
    let (_source, mut lanes) = open(
        &options(&servers, "t", &[]),
        &Positions::from([(P0, 0)]),
        Wants::default(),
    );
    let seen = read_to(lanes[0].as_mut(), 1);
    assert_eq!(seen[0].key, None);
}

#[test]
fn an_empty_topic_is_at_its_end_at_once_and_wakes_its_lane_when_a_record_comes() {
    let broker = broker("t", 1);
    let servers = broker.bootstrap_servers();
    let options = options(&servers, "t", &[]);
    let probe = KafkaConnector
        .probe(&options, PATIENCE)
        .expect("the probe finds the topic");
    assert_eq!(probe.notices, ["Kafka topic \"t\" is empty."]);
    let (_source, mut lanes) = open(&options, &probe.start, Wants::default());
    let lane = lanes[0].as_mut();
    assert_eq!(read_to(lane, 0), []);

    let (woken, wake) = mpsc::channel();
    lane.set_waker(Arc::new(move || {
        let _ = woken.send(());
    }));
    produce(&servers, "t", 0, numbered(0..1));

    wake.recv_timeout(PATIENCE).expect("the waker is called");
    assert_eq!(values(&read_to(lane, 1)), ["value 0"]);
}

#[test]
fn a_panic_of_a_waker_does_not_reach_the_client() {
    let broker = broker("t", 1);
    let servers = broker.bootstrap_servers();
    let (_source, mut lanes) = open(
        &options(&servers, "t", &[]),
        &Positions::from([(P0, 0)]),
        Wants::default(),
    );
    assert_eq!(read_to(lanes[0].as_mut(), 0), []);
    let (woken, wake) = mpsc::channel();
    lanes[0].set_waker(Arc::new(move || {
        let _ = woken.send(());
        panic!("a waker that fails");
    }));
    produce(&servers, "t", 0, numbered(0..1));
    wake.recv_timeout(PATIENCE).expect("the waker is called");
    assert_eq!(read_to(lanes[0].as_mut(), 1).len(), 1);
}

#[test]
fn reading_starts_at_the_given_positions_and_at_the_beginning_of_partitions_without_one() {
    let broker = broker("t", 2);
    let servers = broker.bootstrap_servers();
    (0..2).for_each(|partition| produce(&servers, "t", partition, numbered(0..10)));
    let (_source, mut lanes) = open(
        &options(&servers, "t", &[]),
        &Positions::from([(P0, 7)]),
        Wants::default(),
    );
    let seen: BTreeMap<PartitionId, Vec<String>> = lanes
        .iter_mut()
        .map(|lane| (lane.partition(), values(&read_to(lane.as_mut(), 10))))
        .collect();
    assert_eq!(seen[&P0], numbered(7..10).collect::<Vec<_>>());
    assert_eq!(seen[&PartitionId(1)].len(), 10);
}

#[test]
fn a_paused_partition_gives_nothing_and_goes_on_without_loss_or_repetition() {
    let broker = broker("t", 1);
    let servers = broker.bootstrap_servers();
    produce(&servers, "t", 0, numbered(0..500));
    let (mut source, mut lanes) = open(
        &options(&servers, "t", &[]),
        &Positions::from([(P0, 0)]),
        Wants::default(),
    );
    let lane = lanes[0].as_mut();
    let deadline = Instant::now() + PATIENCE;
    let mut seen = Vec::new();
    while seen.is_empty() {
        assert!(Instant::now() < deadline, "the first records come");
        seen.extend(poll(lane, 100).map(|(seen, _)| seen).unwrap_or_default());
    }

    source.pause(&[P0]);
    assert_eq!(
        poll(lane, 100),
        None,
        "what was fetched before the pause is not given"
    );
    source.resume(&[P0]);

    seen.extend(read_to(lane, 500));
    assert_eq!(values(&seen), numbered(0..500).collect::<Vec<_>>());
}

#[test]
fn resolved_batches_can_be_committed_and_the_broker_has_the_next_offset() {
    let broker = broker("t", 1);
    let servers = broker.bootstrap_servers();
    produce(&servers, "t", 0, numbered(0..20));
    let (mut source, mut lanes) = open(
        &options(&servers, "t", &[]),
        &Positions::from([(P0, 0)]),
        Wants::default(),
    );
    read_to(lanes[0].as_mut(), 20);

    source.commit(&[(P0, 20)]).expect("the commit is sent");
    source.flush_commits(PATIENCE).expect("the commit is answered");

    let asking: BaseConsumer = ClientConfig::new()
        .set("bootstrap.servers", &servers)
        .set("group.id", "highwater.bids")
        .create()
        .expect("a consumer");
    let mut asked = TopicPartitionList::new();
    asked.add_partition("t", 0);
    let committed = asking.committed_offsets(asked, PATIENCE).expect("an answer");
    assert_eq!(
        committed.find_partition("t", 0).map(|found| found.offset()),
        Some(Offset::Offset(20))
    );
}

#[test]
fn start_modes_are_resolved_to_numbers_by_the_probe() {
    let broker = broker("t", 2);
    let servers = broker.bootstrap_servers();
    produce(&servers, "t", 0, numbered(0..10));
    let start = |extra: &[(&str, &str)]| {
        let found = KafkaConnector.probe(&options(&servers, "t", extra), PATIENCE);
        found.map(|probe| probe.start.into_values().collect::<Vec<_>>())
    };
    assert_eq!(start(&[("scan.startup.mode", "latest")]), Ok(vec![10, 0]));
    let specific = |offsets| {
        [
            ("scan.startup.mode", "specific-offsets"),
            ("scan.startup.specific-offsets", offsets),
        ]
    };
    assert_eq!(start(&specific("partition:0,offset:4")), Ok(vec![4, 0]));
    let error = start(&specific("partition:0,offset:11")).expect_err("the offset is behind the end");
    assert_eq!(error.kind, ErrorKind::Invalid);
    assert_eq!(
        error.detail.as_deref(),
        Some("The partition holds offsets from 0 up to 10.")
    );
    let error = start(&specific("partition:9,offset:0")).expect_err("no such partition");
    assert!(error.message.contains("has no partition 9"), "{}", error.message);
}

#[test]
fn a_port_where_nobody_listens_is_named_within_the_timeout() {
    let begun = Instant::now();
    let error = KafkaConnector
        .probe(&options("127.0.0.1:1", "t", &[]), Duration::from_secs(5))
        .expect_err("nobody listens there");
    assert!(
        begun.elapsed() < Duration::from_secs(8),
        "it took {:?}",
        begun.elapsed()
    );
    assert_eq!(
        error.message,
        "Kafka broker \"127.0.0.1:1\" refused the connection"
    );
    assert!(error.hint.is_some());
}

#[test]
fn a_host_that_does_not_exist_is_named() {
    let options = options("no-such-host.invalid:9092", "t", &[]);
    let error = KafkaConnector
        .probe(&options, Duration::from_secs(5))
        .expect_err("there is no such host");
    assert_eq!(
        error.message,
        "the host of Kafka broker \"no-such-host.invalid:9092\" is not known"
    );
}

#[test]
fn a_listener_that_is_no_kafka_broker_ends_in_a_reason_and_not_in_a_hang() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("an address").to_string();
    let begun = Instant::now();
    let timeout = ("connect.timeout", "1500ms");
    let error = KafkaConnector
        .probe(&options(&address, "t", &[timeout]), PATIENCE)
        .expect_err("it does not answer");
    assert!(
        begun.elapsed() < Duration::from_secs(6),
        "it took {:?}",
        begun.elapsed()
    );
    assert!(error.message.contains(&address), "{}", error.message);
}

#[test]
fn a_tls_client_at_a_plain_listener_is_told_about_the_handshake() {
    let broker = broker("t", 1);
    let options = options(
        &broker.bootstrap_servers(),
        "t",
        &[("properties.security.protocol", "ssl")],
    );
    let error = KafkaConnector
        .probe(&options, Duration::from_secs(5))
        .expect_err("the handshake fails");
    let text = format!("{} {:?} {:?}", error.message, error.detail, error.hint);
    assert!(
        text.contains("TLS") || text.contains("security.protocol"),
        "{text}"
    );
}

#[test]
fn a_refused_topic_says_so() {
    let broker = broker("t", 1);
    broker
        .fail_topic("t", ResponseError::RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED)
        .expect("the mock obeys");
    let error = KafkaConnector
        .probe(&options(&broker.bootstrap_servers(), "t", &[]), PATIENCE)
        .expect_err("refused");
    assert_eq!(
        (error.kind, error.message.as_str()),
        (ErrorKind::Denied, "access to Kafka topic \"t\" was refused")
    );
}

#[test]
fn an_unknown_topic_is_refused_with_the_nearest_one() {
    let broker = broker("orders", 1);
    broker
        .fail_topic("ordres", ResponseError::RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART)
        .expect("the mock obeys");
    let servers = broker.bootstrap_servers();
    for error in [
        KafkaConnector
            .probe(&options(&servers, "ordres", &[]), PATIENCE)
            .err(),
        KafkaSinkConnector
            .probe(&options(&servers, "ordres", &[]), PATIENCE)
            .err(),
    ] {
        let error = error.expect("the topic is not there");
        assert_eq!(
            (error.kind, error.message.as_str()),
            (ErrorKind::NotFound, "Kafka has no topic \"ordres\"")
        );
        assert_eq!(error.hint.as_deref(), Some("Did you mean \"orders\"?"));
    }
}

#[test]
fn brokers_that_go_down_are_shown_and_reading_goes_on_when_they_come_back() {
    let broker = broker("t", 1);
    let servers = broker.bootstrap_servers();
    produce(&servers, "t", 0, numbered(0..5));
    let (mut source, mut lanes) = open(
        &options(&servers, "t", &[]),
        &Positions::from([(P0, 0)]),
        Wants::default(),
    );
    assert_eq!(read_to(lanes[0].as_mut(), 5).len(), 5);

    broker.go_down().expect("the mock obeys");
    let event = wait_for(source.as_mut(), |event| matches!(event, SourceEvent::Degraded(_)));
    let SourceEvent::Degraded(error) = event else {
        unreachable!("it was waited for")
    };
    assert_eq!(error.kind, ErrorKind::Transient);
    assert!(
        error.message.contains("127.0.0.1") || error.message.contains("localhost"),
        "{}",
        error.message
    );

    broker.come_up().expect("the mock obeys");
    produce(&servers, "t", 0, numbered(5..8));
    assert_eq!(
        values(&read_to(lanes[0].as_mut(), 8)),
        numbered(5..8).collect::<Vec<_>>()
    );
}

#[test]
fn an_identity_other_than_the_recorded_one_is_refused_with_both() {
    let broker = broker("t", 1);
    let options = options(&broker.bootstrap_servers(), "t", &[]);
    let found = KafkaConnector
        .probe(&options, PATIENCE)
        .expect("the probe finds the topic");
    let name = "cluster id";
    let is = found
        .identity
        .get(name)
        .expect("the mock broker has a cluster id")
        .clone();
    let open = |identity: RecoveryIdentity| {
        let mut source = KafkaConnector.create(&options).expect("the options are accepted");
        source.open(
            SourceContext {
                name: "s".into(),
                wants: Wants::default(),
                identity,
            },
            &found.start,
        )
    };
    assert_eq!(open(found.identity.clone()), Ok(()));
    let mut other = found.identity.clone();
    other.insert(name.into(), "another".into());
    let error = open(other).expect_err("another cluster");
    assert_eq!(error.kind, ErrorKind::PositionLost);
    let detail = error.detail.expect("a detail");
    assert!(detail.contains("another") && detail.contains(&is), "{detail}");
}

#[test]
fn a_position_behind_the_end_and_a_missing_partition_are_never_jumped_over() {
    let broker = broker("t", 1);
    let servers = broker.bootstrap_servers();
    produce(&servers, "t", 0, numbered(0..5));
    for policy in ["fail", "earliest", "latest"] {
        let options = options(&servers, "t", &[("on_offset_lost", policy)]);
        let error = refused(&options, &Positions::from([(P0, 6)]));
        assert_eq!(error.kind, ErrorKind::PositionLost);
        assert!(
            error.message.contains("ends before its position"),
            "{}",
            error.message
        );
        let error = refused(&options, &Positions::from([(P0, 0), (PartitionId(1), 0)]));
        assert_eq!(error.message, "partition 1 of Kafka topic \"t\" is gone");
    }
}

/// Fills a partition until the mock broker, which keeps some 5 MB, has deleted its first records. Gives its range.
fn overfill(servers: &str, topic: &str) -> (i64, i64) {
    let producer = producer(servers);
    let value = "x".repeat(900_000);
    for _ in 0..10 {
        let record = BaseRecord::<(), str>::to(topic).partition(0).payload(&value);
        producer
            .send(record)
            .map_err(|(error, _)| error)
            .expect("the record is queued");
        flush(&producer);
    }
    let (low, high) = producer
        .client()
        .fetch_watermarks(topic, 0, PATIENCE)
        .expect("an answer");
    assert!(low > 3, "the mock broker has deleted records");
    (low, high)
}

#[test]
fn records_deleted_while_the_database_was_away_are_a_gap_that_is_named_or_counted() {
    let broker = broker("t", 1);
    let servers = broker.bootstrap_servers();
    let (low, high) = overfill(&servers, "t");
    let options = |policy| options(&servers, "t", &[("on_offset_lost", policy)]);
    let start = Positions::from([(P0, 0)]);

    let error = refused(&options("fail"), &start);
    assert_eq!(error.kind, ErrorKind::PositionLost);
    assert_eq!(
        error.message,
        format!("{low} records of partition 0 of Kafka topic \"t\" are gone")
    );

    for (policy, next) in [("earliest", low), ("latest", high)] {
        let (mut source, mut lanes) = open(&options(policy), &start, Wants::default());
        let event = source.poll_events(PATIENCE).expect("an event");
        assert!(matches!(event, SourceEvent::Degraded(error) if error.kind == ErrorKind::PositionLost));
        assert_eq!(source.lost_records(), BTreeMap::from([(P0, next as u64)]));
        let seen = read_to(lanes[0].as_mut(), if next == high { 0 } else { high });
        assert_eq!(seen.len() as i64, high - next);
    }
}

#[test]
fn records_deleted_while_reading_follow_the_same_policy() {
    let broker = broker("t", 1);
    let servers = broker.bootstrap_servers();
    for policy in ["earliest", "fail"] {
        let topic = format!("t-{policy}");
        broker.create_topic(&topic, 1).expect("the topic is created");
        produce(&servers, &topic, 0, numbered(0..3));
        let options = options(&servers, &topic, &[("on_offset_lost", policy)]);
        let (mut source, mut lanes) = open(&options, &Positions::from([(P0, 0)]), Wants::default());
        read_to(lanes[0].as_mut(), 3);
        source.pause(&[P0]);
        let (low, high) = overfill(&servers, &topic);
        source.resume(&[P0]);

        let deadline = Instant::now() + PATIENCE;
        let mut seen = Vec::new();
        let ended = loop {
            assert!(Instant::now() < deadline, "the gap is noticed");
            seen.extend(
                poll(lanes[0].as_mut(), 100)
                    .map(|(seen, _)| seen)
                    .unwrap_or_default(),
            );
            match source.poll_events(TURN) {
                Err(error) => break Some(error),
                Ok(_) if seen.len() as i64 == high - low => break None,
                Ok(_) => {}
            }
        };
        match policy {
            "earliest" => {
                assert_eq!(ended, None);
                assert_eq!(source.lost_records(), BTreeMap::from([(P0, (low - 3) as u64)]));
                assert_eq!(seen.first().map(|seen| seen.offset), Some(low));
            }
            _ => {
                let error = ended.expect("the source ends");
                assert_eq!(error.kind, ErrorKind::PositionLost);
                assert!(
                    error.message.starts_with(&format!("{} records", low - 3)),
                    "{}",
                    error.message
                );
            }
        }
    }
}

#[test]
fn the_source_conforms() {
    let broker = broker("t", 2);
    let servers = broker.bootstrap_servers();
    (0..2).for_each(|partition| produce(&servers, "t", partition, numbered(0..200)));
    let mut fixture = SourceFixture::new(&KafkaConnector, options(&servers, "t", &[]));
    fixture.rows = 200;
    fixture.feed = Some(Box::new(|| {
        (0..2).for_each(|partition| produce(&servers, "t", partition, numbered(0..1)))
    }));
    assert_eq!(check_source(&mut fixture), Ok(()));
}

fn sink(servers: &str, topic: &str, extra: &[(&str, &str)]) -> Box<dyn Sink> {
    KafkaSinkConnector
        .open("out", &options(servers, topic, extra))
        .expect("the sink opens")
}

fn chunk(first_seq: u64, records: impl IntoIterator<Item = SinkRecord>) -> SinkChunk {
    SinkChunk {
        first_seq,
        records: Arc::new(records.into_iter().collect()),
    }
}

fn record(number: u64) -> SinkRecord {
    SinkRecord {
        key: Some(format!("key {number}").into()),
        value: Some(format!("value {number}").into()),
    }
}

fn write_all(sink: &mut dyn Sink, chunk: &SinkChunk) {
    let deadline = Instant::now() + PATIENCE;
    let mut from = 0;
    while from < chunk.records.len() {
        from += sink.write(chunk, from, TURN).expect("the records are taken");
        assert!(Instant::now() < deadline, "the records are taken in time");
    }
}

fn confirm(sink: &mut dyn Sink, until: u64) -> Result<u64, ConnectorError> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let confirmed = sink.poll_confirmed(TURN)?;
        if confirmed >= until {
            return Ok(confirmed);
        }
        assert!(Instant::now() < deadline, "{confirmed} of {until} are confirmed");
    }
}

fn topic_values(servers: &str, topic: &str) -> Vec<Seen> {
    let options = options(servers, topic, &[]);
    let ends = options.iter().map(|(name, text)| (name.clone(), text.clone()));
    let mut ends: OptionMap = ends.collect();
    ends.insert("scan.startup.mode".into(), "latest".into());
    let ends = KafkaConnector
        .probe(&ends, PATIENCE)
        .expect("the probe finds the topic")
        .start;
    let (_source, mut lanes) = open(
        &options,
        &Positions::new(),
        Wants {
            key: true,
            ..Wants::default()
        },
    );
    let read = |lane: &mut Box<dyn SourceLane>| {
        let end = ends[&lane.partition()];
        read_to(lane.as_mut(), end)
    };
    lanes.iter_mut().flat_map(read).collect()
}

#[test]
fn all_that_is_confirmed_is_in_the_topic_with_keys_and_tombstones() {
    let broker = broker("out", 4);
    let servers = broker.bootstrap_servers();
    let mut sink = sink(&servers, "out", &[]);
    sink.rewind(1000);
    let tombstone = SinkRecord {
        key: Some("key 7".into()),
        value: None,
    };
    write_all(
        sink.as_mut(),
        &chunk(1000, (0..500).map(record).chain([tombstone])),
    );

    assert_eq!(confirm(sink.as_mut(), 1501), Ok(1501));

    let seen = topic_values(&servers, "out");
    assert_eq!(seen.len(), 501);
    let of_key: Vec<_> = seen
        .iter()
        .filter(|seen| seen.key.as_deref() == Some(b"key 7"))
        .collect();
    let of_key: Vec<_> = of_key.iter().map(|seen| seen.value.as_deref()).collect();
    assert_eq!(
        of_key,
        [Some(&b"value 7"[..]), None],
        "records of one key keep their order"
    );
}

#[test]
fn keys_go_to_the_partition_that_a_java_producer_chooses() {
    let broker = broker("out", 4);
    let servers = broker.bootstrap_servers();
    let mut sink = sink(&servers, "out", &[]);
    // toPositive(murmur2(key)) % 4, as org.apache.kafka.clients.producer computes it.
    let keys = ["a", "b", "21", "foobar"];
    let records = keys.map(|key| SinkRecord {
        key: Some(key.into()),
        value: Some(key.into()),
    });
    write_all(sink.as_mut(), &chunk(0, records));
    confirm(sink.as_mut(), 4).expect("the records are confirmed");
    let (_source, mut lanes) = open(
        &options(&servers, "out", &[]),
        &Positions::new(),
        Wants {
            key: true,
            ..Wants::default()
        },
    );
    for lane in &mut lanes {
        let expected = keys
            .iter()
            .filter(|key| murmur2_partition(key.as_bytes(), 4) == lane.partition().0)
            .count();
        assert_eq!(read_to(lane.as_mut(), expected as i64).len(), expected);
    }
}

/// Kafka's default partitioner for keys, by its description.
fn murmur2_partition(key: &[u8], partitions: u32) -> i32 {
    const M: u32 = 0x5bd1_e995;
    let mut hash = 0x9747_b28c_u32 ^ key.len() as u32;
    let (words, rest) = key.as_chunks::<4>();
    for word in words {
        let mut k = u32::from_le_bytes(*word).wrapping_mul(M);
        k ^= k >> 24;
        hash = hash.wrapping_mul(M) ^ k.wrapping_mul(M);
    }
    for (index, byte) in rest.iter().enumerate() {
        hash ^= u32::from(*byte) << (8 * index);
    }
    if !rest.is_empty() {
        hash = hash.wrapping_mul(M);
    }
    hash ^= hash >> 13;
    hash = hash.wrapping_mul(M);
    hash ^= hash >> 15;
    ((hash & 0x7fff_ffff) % partitions) as i32
}

#[test]
fn a_transient_refusal_is_retried_without_anyone_noticing() {
    let broker = broker("out", 1);
    let servers = broker.bootstrap_servers();
    let mut sink = sink(&servers, "out", &[]);
    let refusal = ResponseError::RD_KAFKA_RESP_ERR_NOT_LEADER_FOR_PARTITION;
    broker.fail_next(ApiKey::Produce, &[refusal, refusal]);
    write_all(sink.as_mut(), &chunk(0, (0..10).map(record)));
    assert_eq!(confirm(sink.as_mut(), 10), Ok(10));
    assert_eq!(topic_values(&servers, "out").len(), 10);
}

#[test]
fn a_permanent_refusal_is_an_error_and_after_a_rewind_the_records_go_out() {
    let broker = broker("out", 1);
    let servers = broker.bootstrap_servers();
    let mut sink = sink(&servers, "out", &[]);
    write_all(sink.as_mut(), &chunk(0, (0..10).map(record)));
    confirm(sink.as_mut(), 10).expect("the first records are confirmed");

    broker.fail_next(
        ApiKey::Produce,
        &[ResponseError::RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE],
    );
    let refused = chunk(10, (10..20).map(record));
    let error = sink
        .write(&refused, 0, TURN)
        .and_then(|_| confirm(sink.as_mut(), 20))
        .expect_err("refused");
    assert_eq!(
        (error.kind, error.message.as_str()),
        (
            ErrorKind::Permanent,
            "a record is too large for Kafka topic \"out\""
        )
    );

    sink.rewind(10);
    write_all(sink.as_mut(), &chunk(10, (10..20).map(record)));
    assert_eq!(confirm(sink.as_mut(), 20), Ok(20));
    let seen = topic_values(&servers, "out");
    assert_eq!(
        values(&seen),
        (0..20)
            .map(|number| format!("value {number}"))
            .collect::<Vec<_>>()
    );
}

#[test]
fn a_record_larger_than_the_client_takes_is_a_permanent_error() {
    let broker = broker("out", 1);
    let mut sink = sink(
        &broker.bootstrap_servers(),
        "out",
        &[("properties.message.max.bytes", "2000")],
    );
    let large = SinkRecord {
        key: None,
        value: Some(vec![b'x'; 5000].into()),
    };
    let error = sink
        .write(&chunk(0, [large]), 0, TURN)
        .expect_err("the record is too large");
    assert_eq!(error.kind, ErrorKind::Permanent);
    assert!(error.message.contains("too large"), "{}", error.message);
}

#[test]
fn a_full_buffer_takes_what_fits_and_the_rest_when_there_is_room() {
    let broker = broker("out", 1);
    let servers = broker.bootstrap_servers();
    broker.go_down().expect("the mock obeys");
    let mut sink = sink(&servers, "out", &[("buffer.bytes", "1MB")]);
    let records = chunk(
        0,
        (0..40).map(|_| SinkRecord {
            key: None,
            value: Some(vec![b'x'; 50_000].into()),
        }),
    );
    let taken = sink.write(&records, 0, TURN).expect("what fits is taken");
    assert!((1..40).contains(&taken), "{taken} records of 50 kB fit into 1 MB");
    assert_eq!(sink.poll_confirmed(TURN), Ok(0));

    broker.come_up().expect("the mock obeys");
    let deadline = Instant::now() + PATIENCE;
    let mut from = taken;
    while from < 40 {
        from += sink.write(&records, from, TURN).expect("the rest is taken");
        assert!(Instant::now() < deadline, "there is room again");
    }
    assert_eq!(confirm(sink.as_mut(), 40), Ok(40));
}

#[test]
fn a_sink_whose_broker_is_down_tells_why_and_goes_on_when_it_is_back() {
    let broker = broker("out", 1);
    let mut sink = sink(&broker.bootstrap_servers(), "out", &[]);
    broker.go_down().expect("the mock obeys");
    write_all(sink.as_mut(), &chunk(0, (0..3).map(record)));
    let deadline = Instant::now() + PATIENCE;
    let trouble = loop {
        assert_eq!(sink.poll_confirmed(TURN), Ok(0));
        if let Some(trouble) = sink.trouble() {
            break trouble;
        }
        assert!(Instant::now() < deadline, "the trouble is told");
    };
    assert_eq!(trouble.kind, ErrorKind::Transient);
    broker.come_up().expect("the mock obeys");
    assert_eq!(confirm(sink.as_mut(), 3), Ok(3));
}

#[test]
fn the_sink_conforms() {
    let broker = broker("out", 1);
    let servers = broker.bootstrap_servers();
    let delivered = || {
        let record = |seen: Seen| SinkRecord {
            key: seen.key.map(Into::into),
            value: seen.value.map(Into::into),
        };
        topic_values(&servers, "out").into_iter().map(record).collect()
    };
    let mut fixture = SinkFixture {
        connector: &KafkaSinkConnector,
        options: options(&servers, "out", &[]),
        delivered: Some(Box::new(delivered)),
    };
    assert_eq!(check_sink(&mut fixture), Ok(()));
}
