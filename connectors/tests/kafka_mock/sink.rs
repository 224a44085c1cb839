//! What a sink delivers and confirms: keys, order, refusals, full buffers.

use std::sync::Arc;
use std::time::Instant;

use highwater_connectors::conformance::{SinkFixture, check_sink};
use highwater_connectors::kafka::mock::{ApiKey, ResponseError};
use highwater_connectors::kafka::{KafkaConnector, KafkaSinkConnector};
use highwater_connectors::options::OptionMap;
use highwater_connectors::sink::{Sink, SinkChunk, SinkConnector, SinkRecord};
use highwater_connectors::source::{Positions, SourceConnector, SourceLane, Wants};
use highwater_connectors::{ConnectorError, ErrorKind};

use crate::support::{PATIENCE, Seen, TURN, broker, open, options, read_to, values};

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
