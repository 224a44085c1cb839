//! librdkafka's statistics as those of any client.

use rdkafka::statistics::{Broker, Partition, Statistics};

use crate::statistics::{BrokerStatistics, ClientStatistics, PartitionStatistics, Traffic};

/// How often a client tells them.
pub(super) const INTERVAL_MS: &str = "5000";

/// The part of the statistics that is shown.
pub(super) fn of(statistics: Statistics) -> ClientStatistics {
    let mut brokers: Vec<_> = statistics
        .brokers
        .values()
        // A logical broker stands for another one that is in the list.
        .filter(|broker| broker.source != "logical")
        .map(of_broker)
        .collect();
    brokers.sort_by(|left, right| left.name.cmp(&right.name));
    let partitions = statistics.topics.values().flat_map(|topic| {
        // Partition −1 is where records wait whose partition is not chosen yet.
        let known = topic.partitions.values().filter(|own| own.partition >= 0);
        known.map(|own| of_partition(&topic.topic, own))
    });
    let mut partitions: Vec<_> = partitions.collect();
    partitions.sort_by(|left, right| (&left.topic, left.partition).cmp(&(&right.topic, right.partition)));
    ClientStatistics {
        client: statistics.client_id,
        role: statistics.client_type,
        waiting_messages: statistics.msg_cnt,
        waiting_bytes: statistics.msg_size,
        sent: Traffic {
            requests: positive(statistics.tx),
            bytes: positive(statistics.tx_bytes),
            messages: positive(statistics.txmsgs),
            errors: brokers.iter().map(|broker| broker.sent.errors).sum(),
        },
        received: Traffic {
            requests: positive(statistics.rx),
            bytes: positive(statistics.rx_bytes),
            messages: positive(statistics.rxmsgs),
            errors: brokers.iter().map(|broker| broker.received.errors).sum(),
        },
        brokers,
        partitions,
    }
}

fn of_broker(broker: &Broker) -> BrokerStatistics {
    BrokerStatistics {
        name: broker.name.clone(),
        is_up: broker.state == "UP",
        sent: Traffic {
            requests: broker.tx,
            bytes: broker.txbytes,
            messages: 0,
            errors: broker.txerrs,
        },
        received: Traffic {
            requests: broker.rx,
            bytes: broker.rxbytes,
            messages: 0,
            errors: broker.rxerrs,
        },
        timeouts: broker.req_timeouts,
        waiting_requests: positive(broker.waitresp_cnt),
        round_trip_us: broker.rtt.as_ref().map_or(0, |window| positive(window.avg)),
        connects: broker.connects.map_or(0, positive),
        disconnects: broker.disconnects.map_or(0, positive),
    }
}

fn of_partition(topic: &str, own: &Partition) -> PartitionStatistics {
    let known = |offset: i64| Some(offset).filter(|offset| *offset >= 0);
    PartitionStatistics {
        topic: topic.to_owned(),
        partition: own.partition,
        queued_messages: positive(own.fetchq_cnt + own.msgq_cnt + own.xmit_msgq_cnt),
        queued_bytes: own.fetchq_size + own.msgq_bytes + own.xmit_msgq_bytes,
        low_offset: known(own.lo_offset),
        high_offset: known(own.hi_offset),
        sent_messages: own.txmsgs,
        received_messages: own.rxmsgs,
        received_bytes: own.rxbytes,
    }
}

/// What is not known is below zero.
fn positive(number: i64) -> u64 {
    u64::try_from(number).unwrap_or(0)
}
