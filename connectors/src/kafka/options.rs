//! The options of the Kafka source and sink, and the client settings that come from them.

use std::collections::BTreeMap;
use std::time::Duration;

use rdkafka::ClientConfig;
use rdkafka::config::RDKafkaLogLevel;

use super::properties::{self, Role};
use super::statistics::INTERVAL_MS;
use crate::error::ConnectorError;
use crate::options::{Given, OptionKind, OptionMap, OptionSpec, validate};
use crate::source::{PartitionId, Positions, StartMode};

const SERVERS: OptionSpec = OptionSpec {
    name: "properties.bootstrap.server",
    aliases: &[
        "properties.bootstrap.servers",
        "bootstrap.servers",
        "bootstrap.server",
        "brokers",
    ],
    required: true,
    doc: "Addresses of one or more brokers, host:port, comma separated.",
    ..OptionSpec::TEXT
};

const TOPIC: OptionSpec = OptionSpec {
    name: "topic",
    aliases: &["kafka.topic"],
    required: true,
    doc: "The topic. It must exist.",
    ..OptionSpec::TEXT
};

const CONNECT_TIMEOUT: OptionSpec = OptionSpec {
    name: "connect.timeout",
    kind: OptionKind::Duration,
    default: Some("10s"),
    doc: "How long a statement or a restart waits for the brokers before it fails with the reason.",
    ..OptionSpec::TEXT
};

const PROPERTIES: OptionSpec = OptionSpec {
    name: "properties.*",
    doc: "Any property of librdkafka, without change; those that would break a promise are refused with the reason.",
    ..OptionSpec::TEXT
};

/// Options of `connector = 'kafka'` in CREATE SOURCE.
pub const SOURCE_OPTIONS: &[OptionSpec] = &[
    SERVERS,
    TOPIC,
    OptionSpec {
        name: "scan.startup.mode",
        kind: OptionKind::Choice(&[
            "earliest",
            "latest",
            "timestamp",
            "specific-offsets",
            "earliest-offset",
            "latest-offset",
        ]),
        default: Some("earliest"),
        doc: "Where reading starts; resolved to offsets when the source is created.",
        ..OptionSpec::TEXT
    },
    OptionSpec {
        name: "scan.startup.timestamp.millis",
        aliases: &["scan.startup.timestamp-millis", "scan.startup.timestamp_millis"],
        kind: OptionKind::Integer {
            min: 0,
            max: i64::MAX,
        },
        doc: "For mode timestamp: start at the first record at or after this time, in milliseconds since the epoch.",
        ..OptionSpec::TEXT
    },
    OptionSpec {
        name: "scan.startup.specific-offsets",
        aliases: &["scan.startup.specific.offsets"],
        doc: "For mode specific-offsets: 'partition:0,offset:42;partition:1,offset:7'. Other partitions start at their \
              beginning.",
        ..OptionSpec::TEXT
    },
    CONNECT_TIMEOUT,
    OptionSpec {
        name: "partition.discovery.interval",
        aliases: &["scan.topic-partition-discovery.interval"],
        kind: OptionKind::Duration,
        default: Some("10s"),
        doc: "How often to look for new partitions, which are read from their beginning; 0 means never.",
        ..OptionSpec::TEXT
    },
    OptionSpec {
        name: "on_offset_lost",
        kind: OptionKind::Choice(&["fail", "earliest", "latest"]),
        default: Some("fail"),
        doc: "What to do when the broker has deleted records that were not read yet: fail and name the gap, or count \
              it and go on at the earliest or latest record.",
        ..OptionSpec::TEXT
    },
    OptionSpec {
        name: "group.id",
        aliases: &["properties.group.id"],
        doc: "Consumer group that durable offsets are committed to, for lag tools only (default: highwater.<source>).",
        ..OptionSpec::TEXT
    },
    OptionSpec {
        name: "fetch.queue.bytes",
        kind: OptionKind::Bytes,
        default: Some("64MB"),
        doc: "Memory for records that were fetched ahead of the reader, shared by all partitions of the source.",
        ..OptionSpec::TEXT
    },
    PROPERTIES,
];

/// Options of `connector = 'kafka'` in CREATE SINK.
pub const SINK_OPTIONS: &[OptionSpec] = &[
    SERVERS,
    TOPIC,
    CONNECT_TIMEOUT,
    OptionSpec {
        name: "partitioner",
        kind: OptionKind::Choice(&[
            "murmur2_random",
            "murmur2",
            "consistent_random",
            "consistent",
            "fnv1a_random",
            "fnv1a",
            "random",
        ]),
        default: Some("murmur2_random"),
        doc: "How a record's key chooses its partition; the default is what Java producers do.",
        ..OptionSpec::TEXT
    },
    OptionSpec {
        name: "buffer.bytes",
        kind: OptionKind::Bytes,
        default: Some("64MB"),
        doc: "Memory for records on their way to the broker; when it is full, writing waits.",
        ..OptionSpec::TEXT
    },
    PROPERTIES,
];

/// What to do when records were deleted before they were read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum OnOffsetLost {
    /// End the source with an error that names the gap.
    Fail,
    /// Count the gap and go on at the first record there is.
    Earliest,
    /// Count the gap and go on at the end.
    Latest,
}

/// How to reach the brokers: shared by source and sink.
#[derive(Debug, Clone)]
pub(super) struct Connection {
    /// Bootstrap addresses.
    pub servers: String,
    /// The topic.
    pub topic: String,
    /// How long to wait for the brokers.
    pub connect_timeout: Duration,
    /// Properties for librdkafka as given, without the `properties.` prefix.
    properties: BTreeMap<String, String>,
}

impl Connection {
    fn parse(given: &Given<'_>, options: &OptionMap) -> Result<Self, ConnectorError> {
        let servers = given.required("properties.bootstrap.server")?;
        check_servers(servers)?;
        Ok(Self {
            servers: servers.to_owned(),
            topic: given.required("topic")?.to_owned(),
            connect_timeout: given.duration("connect.timeout")?,
            properties: properties::of(options),
        })
    }

    /// Settings of a client that only asks.
    pub(super) fn asking(&self) -> ClientConfig {
        let mut config = ClientConfig::new();
        config
            .set("bootstrap.servers", &self.servers)
            .set("client.id", "highwater")
            .set("allow.auto.create.topics", "false")
            .set("isolation.level", "read_committed");
        let mut config = self.finish(config);
        // A broker that hangs up on the first question is the only trace of a wrong security.protocol.
        config.set("log.connection.close", "true");
        config
    }

    fn finish(&self, mut config: ClientConfig) -> ClientConfig {
        config
            .set("socket.keepalive.enable", "true")
            .set("reconnect.backoff.max.ms", "2000")
            .set("enable.metrics.push", "false")
            .set("log.connection.close", "false")
            .set_log_level(RDKafkaLogLevel::Info);
        for (name, text) in &self.properties {
            config.set(name, text);
            if name == "debug" {
                config.set_log_level(RDKafkaLogLevel::Debug);
            }
        }
        config
    }
}

fn check_servers(servers: &str) -> Result<(), ConnectorError> {
    match servers
        .split(',')
        .map(str::trim)
        .find(|server| server.is_empty() || server.contains(char::is_whitespace))
    {
        Some(_) => Err(ConnectorError::invalid(
            "option \"properties.bootstrap.server\" is not a list of addresses",
        )
        .with_detail(format!("It is '{servers}'."))
        .with_hint("Give host:port, several separated by commas.")),
        None => Ok(()),
    }
}

/// The parsed options of a source.
#[derive(Debug, Clone)]
pub(super) struct SourceOptions {
    /// How to reach the brokers.
    pub connection: Connection,
    /// Where reading starts.
    pub start: StartMode,
    /// How often to look for new partitions.
    pub discovery_interval: Option<Duration>,
    /// What to do when records are gone.
    pub on_offset_lost: OnOffsetLost,
    /// The group for advisory commits, if named.
    group: Option<String>,
    /// Memory for fetched records.
    fetch_queue_bytes: u64,
}

impl SourceOptions {
    /// Reads and checks options, without leaving the process.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`](crate::ErrorKind::Invalid), naming the option.
    pub(super) fn parse(options: &OptionMap) -> Result<Self, ConnectorError> {
        let options = validate(SOURCE_OPTIONS, options)?;
        let given = Given::new(SOURCE_OPTIONS, &options);
        let connection = Connection::parse(&given, &options)?;
        properties::check(Role::Consumer, &connection.properties)?;
        let interval = given.duration("partition.discovery.interval")?;
        let on_offset_lost = match given.required("on_offset_lost")?.to_ascii_lowercase().as_str() {
            "earliest" => OnOffsetLost::Earliest,
            "latest" => OnOffsetLost::Latest,
            _ => OnOffsetLost::Fail,
        };
        let fetch_queue_bytes = given.bytes("fetch.queue.bytes")?;
        if fetch_queue_bytes < 1 << 20 {
            return Err(ConnectorError::invalid(
                "option \"fetch.queue.bytes\" must be at least 1MB",
            ));
        }
        Ok(Self {
            start: start_mode(&given)?,
            discovery_interval: (!interval.is_zero()).then_some(interval),
            on_offset_lost,
            group: given.text("group.id").map(str::to_owned),
            fetch_queue_bytes,
            connection,
        })
    }

    /// The group that source `name` commits to.
    pub(super) fn group(&self, name: &str) -> String {
        self.group.clone().unwrap_or_else(|| format!("highwater.{name}"))
    }

    /// Settings of the consumer of source `name` over `partitions` partitions.
    pub(super) fn consumer(&self, name: &str, partitions: usize) -> ClientConfig {
        let budget = self.fetch_queue_bytes;
        // Split queues are bounded one by one, so each partition gets its share. A queued record costs librdkafka
        // some 300 bytes beside its own, so the number is bounded as well.
        let share = (budget / partitions.max(1) as u64).clamp(64 << 10, 2 << 30);
        let fetch = (budget / 2).clamp(1 << 20, 50 << 20);
        let mut config = ClientConfig::new();
        config
            .set("bootstrap.servers", &self.connection.servers)
            .set("client.id", format!("highwater-{name}"))
            .set("statistics.interval.ms", INTERVAL_MS)
            .set("group.id", self.group(name))
            .set("allow.auto.create.topics", "false")
            .set("isolation.level", "read_committed")
            .set("enable.auto.commit", "false")
            .set("enable.auto.offset.store", "false")
            .set("auto.offset.reset", "error")
            .set("enable.partition.eof", "true")
            .set(
                "queued.max.messages.kbytes",
                (share / 1024).min(2_097_151).to_string(),
            )
            .set(
                "queued.min.messages",
                (share / 512).clamp(1_000, 10_000_000).to_string(),
            )
            .set("fetch.message.max.bytes", share.min(1 << 20).to_string())
            .set("fetch.max.bytes", fetch.to_string())
            // A queue that was full is filled again soon after the reader has made room.
            .set("fetch.queue.backoff.ms", "10");
        self.connection.finish(config)
    }
}

fn start_mode(given: &Given<'_>) -> Result<StartMode, ConnectorError> {
    const MILLIS: &str = "scan.startup.timestamp.millis";
    const OFFSETS: &str = "scan.startup.specific-offsets";
    let mode = given.required("scan.startup.mode")?.to_ascii_lowercase();
    let (millis, offsets) = (given.integer(MILLIS)?, given.text(OFFSETS));
    let without_effect = |name: &str, wanted: &str| {
        ConnectorError::invalid(format!(
            "option \"{name}\" has no effect with scan.startup.mode = '{mode}'"
        ))
        .with_hint(format!(
            "Set scan.startup.mode = '{wanted}', or leave \"{name}\" out."
        ))
    };
    let needed =
        |name: &str| ConnectorError::invalid(format!("scan.startup.mode = '{mode}' needs option \"{name}\""));
    if millis.is_some() && mode != "timestamp" {
        return Err(without_effect(MILLIS, "timestamp"));
    }
    if offsets.is_some() && mode != "specific-offsets" {
        return Err(without_effect(OFFSETS, "specific-offsets"));
    }
    match mode.as_str() {
        "latest" | "latest-offset" => Ok(StartMode::Latest),
        "timestamp" => millis.map(StartMode::Timestamp).ok_or_else(|| needed(MILLIS)),
        "specific-offsets" => offsets.ok_or_else(|| needed(OFFSETS)).and_then(specific_offsets),
        _ => Ok(StartMode::Earliest),
    }
}

/// `partition:0,offset:42;partition:1,offset:7`, as in Flink.
fn specific_offsets(text: &str) -> Result<StartMode, ConnectorError> {
    let mut positions = Positions::new();
    for part in text.split(';').map(str::trim).filter(|part| !part.is_empty()) {
        let (partition, offset) = partition_and_offset(part).ok_or_else(|| {
            ConnectorError::invalid("option \"scan.startup.specific-offsets\" is not understood")
                .with_detail(format!("'{part}' is not a partition and its offset."))
                .with_hint("Write 'partition:0,offset:42;partition:1,offset:7'.")
        })?;
        if positions.insert(PartitionId(partition), offset).is_some() {
            return Err(ConnectorError::invalid(format!(
                "option \"scan.startup.specific-offsets\" names partition {partition} twice"
            )));
        }
    }
    if positions.is_empty() {
        return Err(ConnectorError::invalid(
            "option \"scan.startup.specific-offsets\" names no partition",
        ));
    }
    Ok(StartMode::Offsets(positions))
}

fn partition_and_offset(part: &str) -> Option<(i32, i64)> {
    let (partition, offset) = part.split_once(',')?;
    let partition = partition.trim().strip_prefix("partition:")?.trim().parse().ok()?;
    let offset = offset.trim().strip_prefix("offset:")?.trim().parse().ok()?;
    (partition >= 0 && offset >= 0).then_some((partition, offset))
}

/// The parsed options of a sink.
#[derive(Debug, Clone)]
pub(super) struct SinkOptions {
    /// How to reach the brokers.
    pub connection: Connection,
    partitioner: String,
    buffer_bytes: u64,
}

impl SinkOptions {
    /// Reads and checks options, without leaving the process.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`](crate::ErrorKind::Invalid), naming the option.
    pub(super) fn parse(options: &OptionMap) -> Result<Self, ConnectorError> {
        let options = validate(SINK_OPTIONS, options)?;
        let given = Given::new(SINK_OPTIONS, &options);
        let connection = Connection::parse(&given, &options)?;
        properties::check(Role::Producer, &connection.properties)?;
        let buffer_bytes = given.bytes("buffer.bytes")?;
        if buffer_bytes < 1 << 20 {
            return Err(ConnectorError::invalid(
                "option \"buffer.bytes\" must be at least 1MB",
            ));
        }
        Ok(Self {
            partitioner: given.required("partitioner")?.to_ascii_lowercase(),
            buffer_bytes,
            connection,
        })
    }

    /// Settings of the client that the probe asks with: the sink's own connection and security, nothing that only a
    /// producer has.
    pub(super) fn asking(&self) -> ClientConfig {
        let mut asking = self.connection.clone();
        asking.properties = properties::of_both_roles(&asking.properties);
        asking.asking()
    }

    /// Settings of the producer of sink `name`.
    pub(super) fn producer(&self, name: &str) -> ClientConfig {
        let mut config = ClientConfig::new();
        config
            .set("bootstrap.servers", &self.connection.servers)
            .set("client.id", format!("highwater-{name}"))
            .set("statistics.interval.ms", INTERVAL_MS)
            .set("enable.idempotence", "true")
            .set("acks", "all")
            .set("partitioner", &self.partitioner)
            // Retried until it works or the sink is closed: a record that the client gave up on would have to be sent
            // again by us, without the broker's protection against duplicates.
            .set("message.timeout.ms", "0")
            .set("linger.ms", "5")
            .set("batch.num.messages", "10000")
            .set("batch.size", "1000000")
            .set(
                "queue.buffering.max.kbytes",
                (self.buffer_bytes / 1024).clamp(1, 2_147_483_647).to_string(),
            )
            .set(
                "queue.buffering.max.messages",
                (self.buffer_bytes / 128).clamp(1_000, 10_000_000).to_string(),
            );
        self.connection.finish(config)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(extra: &[(&str, &str)]) -> OptionMap {
        let base = [
            ("topic", "bids"),
            ("properties.bootstrap.servers", "b1:9092,b2:9092"),
        ];
        base.iter()
            .chain(extra)
            .map(|(name, text)| ((*name).to_owned(), (*text).to_owned()))
            .collect()
    }

    fn source(extra: &[(&str, &str)]) -> SourceOptions {
        SourceOptions::parse(&options(extra)).expect("the options are accepted")
    }

    fn refused(extra: &[(&str, &str)]) -> String {
        SourceOptions::parse(&options(extra))
            .expect_err("the options are refused")
            .message
    }

    #[test]
    fn every_start_mode_is_understood() {
        assert_eq!(source(&[]).start, StartMode::Earliest);
        assert_eq!(
            source(&[("scan.startup.mode", "latest")]).start,
            StartMode::Latest
        );
        assert_eq!(
            source(&[("scan.startup.mode", "latest-offset")]).start,
            StartMode::Latest
        );
        let timestamp = [
            ("scan.startup.mode", "timestamp"),
            ("scan.startup.timestamp.millis", "17"),
        ];
        assert_eq!(source(&timestamp).start, StartMode::Timestamp(17));
        let offsets = [
            ("scan.startup.mode", "specific-offsets"),
            (
                "scan.startup.specific-offsets",
                "partition:0,offset:42; partition:2,offset:7",
            ),
        ];
        let expected = Positions::from([(PartitionId(0), 42), (PartitionId(2), 7)]);
        assert_eq!(source(&offsets).start, StartMode::Offsets(expected));
    }

    #[test]
    fn a_start_option_without_effect_or_missing_is_refused() {
        assert!(refused(&[("scan.startup.timestamp.millis", "17")]).contains("has no effect"));
        assert!(
            refused(&[("scan.startup.specific-offsets", "partition:0,offset:1")]).contains("has no effect")
        );
        assert!(refused(&[("scan.startup.mode", "timestamp")]).contains("needs option"));
        let twice = "partition:0,offset:1;partition:0,offset:2";
        let mode = ("scan.startup.mode", "specific-offsets");
        assert!(refused(&[mode, ("scan.startup.specific-offsets", twice)]).contains("twice"));
        assert!(refused(&[mode, ("scan.startup.specific-offsets", "0:42")]).contains("not understood"));
    }

    #[test]
    fn the_fetch_budget_is_shared_by_the_partitions() {
        let config = source(&[("fetch.queue.bytes", "32MB")]).consumer("s", 4);
        assert_eq!(config.get("queued.max.messages.kbytes"), Some("8192"));
        assert_eq!(config.get("queued.min.messages"), Some("16384"));
        assert!(refused(&[("fetch.queue.bytes", "10")]).contains("at least 1MB"));
    }

    #[test]
    fn the_group_is_the_sources_own_unless_named() {
        assert_eq!(
            source(&[]).consumer("bids", 1).get("group.id"),
            Some("highwater.bids")
        );
        assert_eq!(
            source(&[("properties.group.id", "g")])
                .consumer("bids", 1)
                .get("group.id"),
            Some("g")
        );
    }

    #[test]
    fn properties_reach_the_client_and_what_we_rely_on_stays() {
        let config = source(&[
            ("properties.fetch.wait.max.ms", "7"),
            ("properties.client.id", "me"),
        ])
        .consumer("s", 1);
        assert_eq!(config.get("fetch.wait.max.ms"), Some("7"));
        assert_eq!(config.get("client.id"), Some("me"));
        assert_eq!(config.get("enable.auto.commit"), Some("false"));
        assert_eq!(config.get("auto.offset.reset"), Some("error"));
        assert_eq!(config.log_level as i32, RDKafkaLogLevel::Info as i32);
        let debugging = source(&[("properties.debug", "fetch")]).consumer("s", 1);
        assert_eq!(debugging.log_level as i32, RDKafkaLogLevel::Debug as i32);
    }

    #[test]
    fn discovery_and_the_policy_for_lost_offsets_follow_their_options() {
        assert_eq!(source(&[]).discovery_interval, Some(Duration::from_secs(10)));
        assert_eq!(
            source(&[("partition.discovery.interval", "0")]).discovery_interval,
            None
        );
        assert_eq!(source(&[]).on_offset_lost, OnOffsetLost::Fail);
        assert_eq!(
            source(&[("on_offset_lost", "latest")]).on_offset_lost,
            OnOffsetLost::Latest
        );
        assert_eq!(
            source(&[("connect.timeout", "3s")]).connection.connect_timeout,
            Duration::from_secs(3)
        );
    }

    #[test]
    fn the_sinks_options_reach_the_producer() {
        let sink =
            |extra: &[(&str, &str)]| SinkOptions::parse(&options(extra)).expect("the options are accepted");
        let config = sink(&[("partitioner", "fnv1a"), ("buffer.bytes", "2MB")]).producer("out");
        assert_eq!(config.get("partitioner"), Some("fnv1a"));
        assert_eq!(config.get("queue.buffering.max.kbytes"), Some("2048"));
        assert_eq!(config.get("acks"), Some("all"));
        assert_eq!(
            sink(&[]).producer("out").get("partitioner"),
            Some("murmur2_random")
        );
        let compressed = sink(&[("properties.compression.type", "lz4")]);
        assert_eq!(compressed.producer("out").get("compression.type"), Some("lz4"));
        assert_eq!(compressed.asking().get("compression.type"), None);
    }

    #[test]
    fn addresses_that_are_none_are_refused() {
        let mut given = options(&[]);
        given.insert("properties.bootstrap.servers".into(), "b1:9092,,b2:9092".into());
        assert!(SourceOptions::parse(&given).is_err());
    }
}
