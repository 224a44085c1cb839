//! Kafka: topics as sources and sinks, by librdkafka.
//!
//! | file | what it is |
//! |---|---|
//! | `options`, `properties` | the options, and the passthrough to librdkafka |
//! | `probe` | questions to the brokers with one deadline and a translated reason |
//! | `source`, `watch` | the control plane, and the thread that watches the topic |
//! | `lane`, `native` | the data plane; all unsafe code is in `native` |
//! | `pulse` | whether the lanes still move |
//! | `sink` | the idempotent producer and its confirmed prefix |
//! | `context`, `error` | what the client complains about, and what it means |
//! | `statistics` | what the client tells of itself |
//! | [`mock`] | brokers inside the process |

mod context;
mod error;
mod lane;
pub mod mock;
mod native;
mod options;
mod probe;
mod properties;
mod pulse;
mod sink;
mod source;
mod statistics;
mod watch;

use std::time::Duration;

pub use options::{SINK_OPTIONS, SOURCE_OPTIONS};

use crate::error::ConnectorError;
use crate::options::{OptionMap, OptionSpec};
use crate::sink::{Sink, SinkConnector};
use crate::source::{Positions, Probe, Source, SourceConnector, SourceContract, StartMode};
use options::{SinkOptions, SourceOptions};
use probe::Asking;

/// `connector = 'kafka'` in CREATE SOURCE.
#[derive(Debug, Clone, Copy, Default)]
pub struct KafkaConnector;

impl SourceConnector for KafkaConnector {
    fn name(&self) -> &'static str {
        "kafka"
    }

    fn options(&self) -> &'static [OptionSpec] {
        SOURCE_OPTIONS
    }

    fn contract(&self, _options: &OptionMap) -> SourceContract {
        source::CONTRACT
    }

    fn validate(&self, options: &OptionMap) -> Result<(), ConnectorError> {
        SourceOptions::parse(options).map(drop)
    }

    fn probe(&self, options: &OptionMap, timeout: Duration) -> Result<Probe, ConnectorError> {
        let options = SourceOptions::parse(options)?;
        let connection = &options.connection;
        let consumer = probe::client(&connection.asking())?;
        let timeout = timeout.min(connection.connect_timeout);
        probe::look(
            &Asking::new(&consumer, &connection.servers, &connection.topic, timeout),
            &options.start,
        )
    }

    fn end_offsets(&self, options: &OptionMap, timeout: Duration) -> Result<Positions, ConnectorError> {
        let options = SourceOptions::parse(options)?;
        let connection = &options.connection;
        let consumer = probe::client(&connection.asking())?;
        let timeout = timeout.min(connection.connect_timeout);
        let asking = Asking::new(&consumer, &connection.servers, &connection.topic, timeout);
        Ok(probe::look(&asking, &StartMode::Latest)?.start)
    }

    fn create(&self, options: &OptionMap) -> Result<Box<dyn Source>, ConnectorError> {
        Ok(Box::new(source::KafkaSource::new(SourceOptions::parse(options)?)))
    }
}

/// `connector = 'kafka'` in CREATE SINK.
#[derive(Debug, Clone, Copy, Default)]
pub struct KafkaSinkConnector;

impl SinkConnector for KafkaSinkConnector {
    fn name(&self) -> &'static str {
        "kafka"
    }

    fn options(&self) -> &'static [OptionSpec] {
        SINK_OPTIONS
    }

    fn validate(&self, options: &OptionMap) -> Result<(), ConnectorError> {
        SinkOptions::parse(options).map(drop)
    }

    fn probe(&self, options: &OptionMap, timeout: Duration) -> Result<Vec<String>, ConnectorError> {
        let options = SinkOptions::parse(options)?;
        let connection = &options.connection;
        let consumer = probe::client(&options.asking())?;
        let timeout = timeout.min(connection.connect_timeout);
        let asking = Asking::new(&consumer, &connection.servers, &connection.topic, timeout);
        asking.partitions()?;
        Ok(Vec::new())
    }

    fn open(&self, name: &str, options: &OptionMap) -> Result<Box<dyn Sink>, ConnectorError> {
        Ok(Box::new(sink::KafkaSink::new(
            name,
            SinkOptions::parse(options)?,
        )?))
    }
}
