//! Where a source starts and goes on: start modes, commits, identities, and records that are gone.

use std::collections::BTreeMap;
use std::time::Instant;

use highwater_connectors::kafka::KafkaConnector;
use highwater_connectors::options::OptionMap;
use highwater_connectors::source::{
    PartitionId, Positions, RecoveryIdentity, SourceConnector, SourceContext, SourceEvent, Wants,
};
use highwater_connectors::{ConnectorError, ErrorKind};
use rdkafka::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer as _};
use rdkafka::producer::{BaseRecord, Producer as _};
use rdkafka::{Offset, TopicPartitionList};

use crate::support::{
    P0, PATIENCE, TURN, broker, context, flush, numbered, open, options, poll, produce, producer, read_to,
};

fn refused(options: &OptionMap, start: &Positions) -> ConnectorError {
    let mut source = KafkaConnector.create(options).expect("the options are accepted");
    source
        .open(context(Wants::default()), start)
        .expect_err("the source does not open")
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
