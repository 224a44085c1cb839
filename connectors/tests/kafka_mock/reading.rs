//! What a source reads: records, keys, headers, ends, wake-ups and pauses.

use std::collections::BTreeMap;
use std::sync::{Arc, mpsc};
use std::time::Instant;

use highwater_connectors::conformance::{SourceFixture, check_source};
use highwater_connectors::kafka::KafkaConnector;
use highwater_connectors::source::{BatchBody, PartitionId, Positions, SourceConnector, Wants};
use rdkafka::message::{Header, OwnedHeaders};
use rdkafka::producer::BaseRecord;

use crate::support::{
    P0, PATIENCE, TURN, broker, flush, numbered, open, options, poll, produce, producer, read_to, values,
};

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
