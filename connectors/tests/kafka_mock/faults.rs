//! Brokers and topics that are not there, not Kafka, or down, and what a user is told.

use std::time::{Duration, Instant};

use highwater_connectors::ErrorKind;
use highwater_connectors::kafka::mock::ResponseError;
use highwater_connectors::kafka::{KafkaConnector, KafkaSinkConnector};
use highwater_connectors::sink::SinkConnector;
use highwater_connectors::source::{Positions, Source, SourceConnector, SourceEvent, Wants};

use crate::support::{P0, PATIENCE, TURN, broker, numbered, open, options, produce, read_to, values};

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
