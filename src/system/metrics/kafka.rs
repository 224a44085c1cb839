//! Metrics of the clients of brokers: librdkafka's statistics, which it tells every five seconds.

use highwater_connectors::statistics::{BrokerStatistics, ClientStatistics, PartitionStatistics};

use super::{Metric, Seen, Unit, Values, counter, flag, gauge, number, seconds};

const CLIENT: &[&str] = &["query", "client", "role"];
const BROKER: &[&str] = &["query", "client", "broker"];
const PARTITION: &[&str] = &["query", "client", "topic", "partition"];

/// Adds the value of each client.
fn clients(seen: &Seen<'_>, values: &mut Values, of: impl Fn(&ClientStatistics) -> f64) {
    for query in seen.queries() {
        for own in &query.clients {
            values.add(&[&query.name, &own.client, &own.role], of(own));
        }
    }
}

/// Adds the value of each broker of each client.
fn brokers(seen: &Seen<'_>, values: &mut Values, of: impl Fn(&BrokerStatistics) -> f64) {
    for query in seen.queries() {
        for client in &query.clients {
            for own in &client.brokers {
                values.add(&[&query.name, &client.client, &own.name], of(own));
            }
        }
    }
}

/// Adds the value of each partition of each client that has one.
fn partitions(seen: &Seen<'_>, values: &mut Values, of: impl Fn(&PartitionStatistics) -> Option<f64>) {
    for query in seen.queries() {
        for client in &query.clients {
            for own in &client.partitions {
                if let Some(value) = of(own) {
                    let number = own.partition.to_string();
                    values.add(&[&query.name, &client.client, &own.topic, &number], value);
                }
            }
        }
    }
}

pub(super) const METRICS: &[Metric] = &[
    gauge(
        "kafka_client_waiting_messages",
        None,
        CLIENT,
        "Messages that wait in the client.",
        |seen, values| clients(seen, values, |own| number(own.waiting_messages)),
    ),
    gauge(
        "kafka_client_waiting",
        Some(Unit::Bytes),
        CLIENT,
        "Bytes of the messages that wait in the client.",
        |seen, values| clients(seen, values, |own| number(own.waiting_bytes)),
    ),
    counter(
        "kafka_client_sent",
        Some(Unit::Bytes),
        CLIENT,
        "Bytes sent to brokers.",
        |seen, values| clients(seen, values, |own| number(own.sent.bytes)),
    ),
    counter(
        "kafka_client_received",
        Some(Unit::Bytes),
        CLIENT,
        "Bytes received from brokers.",
        |seen, values| clients(seen, values, |own| number(own.received.bytes)),
    ),
    counter(
        "kafka_client_sent_messages",
        None,
        CLIENT,
        "Records sent.",
        |seen, values| clients(seen, values, |own| number(own.sent.messages)),
    ),
    counter(
        "kafka_client_received_messages",
        None,
        CLIENT,
        "Records received.",
        |seen, values| clients(seen, values, |own| number(own.received.messages)),
    ),
    gauge(
        "kafka_broker_up",
        None,
        BROKER,
        "1 while the client is connected to the broker.",
        |seen, values| brokers(seen, values, |own| flag(own.is_up)),
    ),
    counter(
        "kafka_broker_requests",
        None,
        BROKER,
        "Requests sent to the broker.",
        |seen, values| brokers(seen, values, |own| number(own.sent.requests)),
    ),
    counter(
        "kafka_broker_sent",
        Some(Unit::Bytes),
        BROKER,
        "Bytes sent to the broker.",
        |seen, values| brokers(seen, values, |own| number(own.sent.bytes)),
    ),
    counter(
        "kafka_broker_received",
        Some(Unit::Bytes),
        BROKER,
        "Bytes received from the broker.",
        |seen, values| brokers(seen, values, |own| number(own.received.bytes)),
    ),
    counter(
        "kafka_broker_errors",
        None,
        BROKER,
        "Requests and answers that failed.",
        |seen, values| brokers(seen, values, |own| number(own.sent.errors + own.received.errors)),
    ),
    counter(
        "kafka_broker_timeouts",
        None,
        BROKER,
        "Requests that were not answered in time.",
        |seen, values| brokers(seen, values, |own| number(own.timeouts)),
    ),
    gauge(
        "kafka_broker_waiting_requests",
        None,
        BROKER,
        "Requests that wait for an answer.",
        |seen, values| brokers(seen, values, |own| number(own.waiting_requests)),
    ),
    gauge(
        "kafka_broker_round_trip",
        Some(Unit::Seconds),
        BROKER,
        "How long an answer took on average, in the last seconds.",
        |seen, values| brokers(seen, values, |own| seconds(own.round_trip_us)),
    ),
    counter(
        "kafka_broker_connects",
        None,
        BROKER,
        "How often the client has connected or tried to.",
        |seen, values| brokers(seen, values, |own| number(own.connects)),
    ),
    counter(
        "kafka_broker_disconnects",
        None,
        BROKER,
        "How often the client was disconnected.",
        |seen, values| brokers(seen, values, |own| number(own.disconnects)),
    ),
    gauge(
        "kafka_partition_queued_messages",
        None,
        PARTITION,
        "Records that were fetched and not taken yet, or that wait to be sent.",
        |seen, values| partitions(seen, values, |own| Some(number(own.queued_messages))),
    ),
    gauge(
        "kafka_partition_queued",
        Some(Unit::Bytes),
        PARTITION,
        "Bytes of the records that were fetched and not taken yet, or that wait to be sent.",
        |seen, values| partitions(seen, values, |own| Some(number(own.queued_bytes))),
    ),
    gauge(
        "kafka_partition_low_offset",
        None,
        PARTITION,
        "The first offset that the broker has.",
        |seen, values| partitions(seen, values, |own| own.low_offset.map(|offset| offset as f64)),
    ),
    gauge(
        "kafka_partition_high_offset",
        None,
        PARTITION,
        "One past the last offset that the broker has.",
        |seen, values| partitions(seen, values, |own| own.high_offset.map(|offset| offset as f64)),
    ),
    counter(
        "kafka_partition_sent_messages",
        None,
        PARTITION,
        "Records sent to the partition.",
        |seen, values| partitions(seen, values, |own| Some(number(own.sent_messages))),
    ),
    counter(
        "kafka_partition_received_messages",
        None,
        PARTITION,
        "Records received from the partition.",
        |seen, values| partitions(seen, values, |own| Some(number(own.received_messages))),
    ),
    counter(
        "kafka_partition_received",
        Some(Unit::Bytes),
        PARTITION,
        "Bytes of the records received from the partition.",
        |seen, values| partitions(seen, values, |own| Some(number(own.received_bytes))),
    ),
];
