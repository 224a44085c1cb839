//! The passthrough of `properties.*` to librdkafka: what is refused and why, and what the client does not know.

use std::collections::BTreeMap;

use rdkafka::ClientConfig;
use rdkafka::error::KafkaError;
use rdkafka::types::RDKafkaConfRes;

use super::native;
use crate::error::ConnectorError;
use crate::options::{OptionMap, is_secret, nearest};

const PREFIX: &str = "properties.";

/// Which kind of client the properties are for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    /// A source's.
    Consumer,
    /// A sink's.
    Producer,
}

/// The properties among `options`, without their prefix.
pub(super) fn of(options: &OptionMap) -> BTreeMap<String, String> {
    let own = |name: &str| name == "properties.bootstrap.server";
    let stripped = options
        .iter()
        .filter(|(name, _)| !own(name))
        .filter_map(|(name, text)| {
            name.strip_prefix(PREFIX)
                .map(|name| (name.to_owned(), text.clone()))
        });
    stripped.collect()
}

/// Those that a consumer understands as well as a producer.
pub(super) fn of_both_roles(properties: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    properties
        .iter()
        .filter(|(name, _)| !PRODUCER_ONLY.contains(&name.as_str()))
        .map(|(name, text)| (name.clone(), text.clone()))
        .collect()
}

/// Why a property, under any of its names, is not passed through, and what to use instead.
struct Denied {
    names: &'static [&'static str],
    reason: &'static str,
    instead: &'static str,
}

/// Denied for sources and sinks.
const DENIED: &[Denied] = &[
    Denied {
        names: &["metadata.broker.list", "bootstrap.servers"],
        reason: "The brokers have an option of their own.",
        instead: "Use properties.bootstrap.server.",
    },
    Denied {
        names: &["plugin.library.paths", "interceptors"],
        reason: "A plugin is native code that would run inside the database.",
        instead: "",
    },
    Denied {
        names: &[
            "error_cb",
            "throttle_cb",
            "stats_cb",
            "log_cb",
            "background_event_cb",
            "socket_cb",
            "connect_cb",
            "closesocket_cb",
            "open_cb",
            "resolve_cb",
            "opaque",
            "oauthbearer_token_refresh_cb",
            "ssl.certificate.verify_cb",
            "default_topic_conf",
            "consume_cb",
            "rebalance_cb",
            "offset_commit_cb",
            "dr_cb",
            "dr_msg_cb",
            "partitioner_cb",
            "msg_order_cmp",
            "ssl_certificate",
            "ssl_ca",
            "ssl_key",
        ],
        reason: "Callbacks and pointers cannot be given as text.",
        instead: "",
    },
    Denied {
        names: &["log.queue", "log_level", "log.thread.name"],
        reason: "The client's log goes to the database's log.",
        instead: "Use properties.debug to see more, and the log filter to see less.",
    },
    Denied {
        names: &["statistics.interval.ms"],
        reason: "The metrics have librdkafka's statistics, of every five seconds.",
        instead: "Read /metrics of highwater serve --http.",
    },
    Denied {
        names: &["test.mock.num.brokers", "test.mock.broker.rtt"],
        reason: "The client would talk to a broker of its own instead of yours.",
        instead: "",
    },
    Denied {
        names: &["enable.metrics.push"],
        reason: "The client's own telemetry is off.",
        instead: "",
    },
];

/// Denied for sources.
const DENIED_CONSUMER: &[Denied] = &[
    Denied {
        names: &[
            "enable.auto.commit",
            "auto.commit.enable",
            "auto.commit.interval.ms",
            "enable.auto.offset.store",
            "offset.store.method",
            "offset.store.path",
            "offset.store.sync.interval.ms",
        ],
        reason: "Positions are part of the database's checkpoint, in the same write as the state they belong to; \
                 offsets are committed to Kafka after it, for lag tools.",
        instead: "",
    },
    Denied {
        names: &["auto.offset.reset"],
        reason: "It would jump over records without a word when offsets are gone.",
        instead: "Use scan.startup.mode for the start and on_offset_lost for gaps.",
    },
    Denied {
        names: &["enable.partition.eof"],
        reason: "The source needs the end of a partition to know that it is there.",
        instead: "",
    },
    Denied {
        names: &[
            "group.instance.id",
            "group.protocol",
            "group.protocol.type",
            "group.remote.assignor",
            "partition.assignment.strategy",
            "session.timeout.ms",
            "heartbeat.interval.ms",
            "max.poll.interval.ms",
        ],
        reason: "The source reads all partitions and joins no consumer group, so this has no effect.",
        instead: "",
    },
    Denied {
        names: &[
            "queued.max.messages.kbytes",
            "queued.min.messages",
            "fetch.queue.backoff.ms",
        ],
        reason: "All partitions share one memory budget.",
        instead: "Use fetch.queue.bytes.",
    },
    Denied {
        names: &["allow.auto.create.topics"],
        reason: "A source does not create its topic: a misspelt name would become an empty one.",
        instead: "",
    },
    Denied {
        names: &["topic.metadata.refresh.interval.ms"],
        reason: "New partitions are looked for by the source itself.",
        instead: "Use partition.discovery.interval.",
    },
    Denied {
        names: &["consume.callback.max.messages"],
        reason: "Records are not consumed by callback, so this has no effect.",
        instead: "",
    },
];

/// Denied for sinks.
const DENIED_PRODUCER: &[Denied] = &[
    Denied {
        names: &[
            "enable.idempotence",
            "enable.gapless.guarantee",
            "acks",
            "request.required.acks",
            "retries",
            "message.send.max.retries",
            "max.in.flight",
            "max.in.flight.requests.per.connection",
        ],
        reason: "A record counts as delivered when all replicas have it, once and in order.",
        instead: "",
    },
    Denied {
        names: &["transactional.id", "transaction.timeout.ms"],
        reason: "The sink does not write in transactions.",
        instead: "",
    },
    Denied {
        names: &["partitioner"],
        reason: "The partitioner has an option of its own.",
        instead: "Use partitioner.",
    },
    Denied {
        names: &["queue.buffering.max.messages", "queue.buffering.max.kbytes"],
        reason: "The memory of the sink has an option of its own.",
        instead: "Use buffer.bytes.",
    },
    Denied {
        names: &["delivery.report.only.error"],
        reason: "The sink needs the confirmation of every record.",
        instead: "",
    },
    Denied {
        names: &["allow.auto.create.topics"],
        reason: "A sink does not create its topic: a misspelt name would become a new one.",
        instead: "",
    },
];

/// Properties without effect on a consumer (librdkafka's documentation of its configuration, column P).
const PRODUCER_ONLY: &[&str] = &[
    "transactional.id",
    "transaction.timeout.ms",
    "enable.idempotence",
    "enable.gapless.guarantee",
    "queue.buffering.max.messages",
    "queue.buffering.max.kbytes",
    "queue.buffering.max.ms",
    "linger.ms",
    "message.send.max.retries",
    "retries",
    "queue.buffering.backpressure.threshold",
    "compression.codec",
    "compression.type",
    "compression.level",
    "batch.num.messages",
    "batch.size",
    "delivery.report.only.error",
    "sticky.partitioning.linger.ms",
    "request.required.acks",
    "acks",
    "request.timeout.ms",
    "message.timeout.ms",
    "delivery.timeout.ms",
    "queuing.strategy",
    "produce.offset.report",
    "partitioner",
];

/// Properties without effect on a producer (column C).
const CONSUMER_ONLY: &[&str] = &[
    "group.id",
    "group.instance.id",
    "partition.assignment.strategy",
    "session.timeout.ms",
    "heartbeat.interval.ms",
    "group.protocol.type",
    "group.protocol",
    "group.remote.assignor",
    "coordinator.query.interval.ms",
    "max.poll.interval.ms",
    "enable.auto.commit",
    "auto.commit.interval.ms",
    "enable.auto.offset.store",
    "queued.min.messages",
    "queued.max.messages.kbytes",
    "fetch.wait.max.ms",
    "fetch.queue.backoff.ms",
    "fetch.message.max.bytes",
    "max.partition.fetch.bytes",
    "fetch.max.bytes",
    "fetch.min.bytes",
    "fetch.error.backoff.ms",
    "offset.store.method",
    "isolation.level",
    "enable.partition.eof",
    "check.crcs",
    "client.rack",
    "auto.commit.enable",
    "auto.offset.reset",
    "offset.store.path",
    "offset.store.sync.interval.ms",
    "consume.callback.max.messages",
];

/// Properties that librdkafka does not list because they have no default; for suggestions.
const WITHOUT_DEFAULT: &[&str] = &[
    "debug",
    "broker.address.family",
    "security.protocol",
    "client.rack",
    "sasl.mechanism",
    "sasl.mechanisms",
    "sasl.username",
    "sasl.password",
    "sasl.kerberos.service.name",
    "sasl.kerberos.principal",
    "sasl.kerberos.keytab",
    "sasl.oauthbearer.config",
    "sasl.oauthbearer.client.id",
    "sasl.oauthbearer.client.secret",
    "sasl.oauthbearer.scope",
    "sasl.oauthbearer.extensions",
    "sasl.oauthbearer.token.endpoint.url",
    "ssl.ca.location",
    "ssl.ca.pem",
    "ssl.certificate.location",
    "ssl.certificate.pem",
    "ssl.key.location",
    "ssl.key.password",
    "ssl.key.pem",
    "ssl.keystore.location",
    "ssl.keystore.password",
    "ssl.cipher.suites",
    "ssl.curves.list",
    "ssl.sigalgs.list",
    "ssl.crl.location",
    "ssl.endpoint.identification.algorithm",
    "enable.ssl.certificate.verification",
    "isolation.level",
    "compression.type",
    "compression.codec",
    "linger.ms",
    "message.timeout.ms",
    "message.max.bytes",
];

/// Checks properties for a client of `role`.
///
/// # Errors
/// A property that is denied (with the reason and what to use instead), that the client does not know (with the nearest
/// one), that has no effect on this kind of client, or whose value the client refuses.
pub(super) fn check(role: Role, properties: &BTreeMap<String, String>) -> Result<(), ConnectorError> {
    let (own, other_kind) = match role {
        Role::Consumer => (DENIED_CONSUMER, PRODUCER_ONLY),
        Role::Producer => (DENIED_PRODUCER, CONSUMER_ONLY),
    };
    for (name, text) in properties {
        let denied = DENIED
            .iter()
            .chain(own)
            .find(|denied| denied.names.contains(&name.as_str()));
        if let Some(denied) = denied {
            return Err(refused(name, denied));
        }
        if other_kind.contains(&name.as_str()) {
            let kind = if role == Role::Consumer {
                "producers"
            } else {
                "consumers"
            };
            return Err(
                ConnectorError::invalid(format!("option \"{PREFIX}{name}\" has no effect here"))
                    .with_detail(format!("It is a property of {kind}.")),
            );
        }
        check_value(name, text)?;
    }
    Ok(())
}

fn refused(name: &str, denied: &Denied) -> ConnectorError {
    let error = ConnectorError::invalid(format!("option \"{PREFIX}{name}\" is not passed to the client"))
        .with_detail(denied.reason);
    if denied.instead.is_empty() {
        error
    } else {
        error.with_hint(denied.instead)
    }
}

fn check_value(name: &str, text: &str) -> Result<(), ConnectorError> {
    let mut config = ClientConfig::new();
    config.set(name, text);
    match config.create_native_config() {
        Ok(_) => Ok(()),
        Err(KafkaError::ClientConfig(RDKafkaConfRes::RD_KAFKA_CONF_UNKNOWN, ..)) => Err(unknown(name)),
        Err(KafkaError::ClientConfig(_, reason, ..)) => {
            let error = ConnectorError::invalid(format!(
                "option \"{PREFIX}{name}\" has a value that the client refuses"
            ));
            // The reason quotes the value.
            if is_secret(&[], name) {
                Err(error)
            } else {
                Err(error.with_detail(format!("{}.", reason.trim_end_matches('.'))))
            }
        }
        Err(_) => Err(ConnectorError::invalid(format!(
            "option \"{PREFIX}{name}\" contains a NUL character"
        ))),
    }
}

fn unknown(name: &str) -> ConnectorError {
    let names = native::property_names();
    let error = ConnectorError::invalid(format!("unknown option \"{PREFIX}{name}\""))
        .with_detail("The Kafka client (librdkafka) has no such property.");
    match nearest(
        name,
        names
            .iter()
            .map(String::as_str)
            .chain(WITHOUT_DEFAULT.iter().copied()),
    ) {
        Some(near) => error.with_hint(format!("Did you mean \"{PREFIX}{near}\"?")),
        None => error,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(role: Role, name: &str, text: &str) -> ConnectorError {
        check(role, &BTreeMap::from([(name.to_owned(), text.to_owned())]))
            .expect_err("the property is refused")
    }

    #[test]
    fn each_denied_property_is_refused_with_a_reason() {
        for (role, own) in [
            (Role::Consumer, DENIED_CONSUMER),
            (Role::Producer, DENIED_PRODUCER),
        ] {
            for denied in DENIED.iter().chain(own) {
                for name in denied.names {
                    let error = refusal(role, name, "1");
                    assert!(error.message.contains(name), "{}", error.message);
                    assert!(
                        error.detail.is_some_and(|detail| detail.len() > 10),
                        "{name} has a reason"
                    );
                }
            }
        }
    }

    #[test]
    fn each_property_of_the_tables_is_one_that_librdkafka_has() {
        let denied = DENIED.iter().chain(DENIED_CONSUMER).chain(DENIED_PRODUCER);
        let denied = denied.flat_map(|denied| denied.names.iter().copied());
        let tables = denied.chain(WITHOUT_DEFAULT.iter().copied());
        for name in tables
            .chain(PRODUCER_ONLY.iter().copied())
            .chain(CONSUMER_ONLY.iter().copied())
        {
            let result = ClientConfig::new().set(name, "1").create_native_config();
            let unknown = matches!(
                result.map(drop),
                Err(KafkaError::ClientConfig(
                    RDKafkaConfRes::RD_KAFKA_CONF_UNKNOWN,
                    ..
                ))
            );
            assert!(!unknown, "librdkafka has no property {name}");
        }
    }

    #[test]
    fn aliases_of_a_denied_property_are_denied_too() {
        for name in [
            "acks",
            "request.required.acks",
            "max.in.flight",
            "retries",
            "message.send.max.retries",
        ] {
            assert!(refusal(Role::Producer, name, "1").message.contains("not passed"));
        }
        for name in ["enable.auto.commit", "auto.commit.enable"] {
            assert!(
                refusal(Role::Consumer, name, "true")
                    .message
                    .contains("not passed")
            );
        }
    }

    #[test]
    fn an_unknown_property_is_refused_with_the_nearest_one() {
        let error = refusal(Role::Consumer, "sasl.pasword", "x");
        assert_eq!(
            error.hint.as_deref(),
            Some("Did you mean \"properties.sasl.password\"?")
        );
    }

    #[test]
    fn a_property_of_the_other_kind_of_client_is_refused() {
        assert!(
            refusal(Role::Consumer, "linger.ms", "5")
                .message
                .contains("no effect")
        );
        assert!(
            refusal(Role::Producer, "fetch.min.bytes", "5")
                .message
                .contains("no effect")
        );
    }

    #[test]
    fn a_value_that_the_client_refuses_is_refused_at_once() {
        let error = refusal(Role::Consumer, "security.protocol", "carrier-pigeon");
        assert!(
            error
                .detail
                .is_some_and(|detail| detail.contains("carrier-pigeon"))
        );
    }

    #[test]
    fn security_and_tuning_properties_pass() {
        let given = [
            ("security.protocol", "SASL_SSL"),
            ("sasl.mechanism", "PLAIN"),
            ("sasl.username", "u"),
            ("sasl.password", "p"),
            ("ssl.ca.location", "/etc/ca.pem"),
            ("fetch.wait.max.ms", "50"),
            ("isolation.level", "read_uncommitted"),
            ("client.rack", "r1"),
            ("check.crcs", "true"),
        ];
        let properties = given
            .iter()
            .map(|(name, text)| ((*name).to_owned(), (*text).to_owned()))
            .collect();
        assert_eq!(check(Role::Consumer, &properties), Ok(()));
    }
}
