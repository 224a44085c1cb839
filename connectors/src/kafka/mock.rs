//! librdkafka's mock cluster: brokers inside this process, for the demo and for tests.
//!
//! It has no lookup by timestamp, no admin calls and keeps some 5 MB per partition; a real broker is the truth.

use std::time::Duration;

use rdkafka::mocking::MockCluster;
use rdkafka::producer::DefaultProducerContext;
use rdkafka::types::{RDKafkaApiKey, RDKafkaRespErr};

use crate::error::{ConnectorError, ErrorKind};

pub use rdkafka::types::{RDKafkaApiKey as ApiKey, RDKafkaRespErr as ResponseError};

/// Brokers inside this process, gone when dropped.
pub struct MockBroker {
    cluster: MockCluster<'static, DefaultProducerContext>,
}

impl MockBroker {
    /// Starts `brokers` brokers on free ports of the loopback address.
    ///
    /// # Errors
    /// When they cannot be started.
    pub fn start(brokers: i32) -> Result<Self, ConnectorError> {
        MockCluster::new(brokers)
            .map(|cluster| Self { cluster })
            .map_err(failed)
    }

    /// Their addresses, for `properties.bootstrap.server`.
    #[must_use]
    pub fn bootstrap_servers(&self) -> String {
        self.cluster.bootstrap_servers()
    }

    /// Creates a topic.
    ///
    /// # Errors
    /// When it exists already.
    pub fn create_topic(&self, name: &str, partitions: i32) -> Result<(), ConnectorError> {
        self.cluster.create_topic(name, partitions, 1).map_err(failed)
    }

    /// Makes the next requests of a kind fail, one per error, in order.
    pub fn fail_next(&self, api: RDKafkaApiKey, errors: &[RDKafkaRespErr]) {
        self.cluster.request_errors(api, errors);
    }

    /// Makes the brokers answer questions about a topic with an error.
    ///
    /// # Errors
    /// When the name contains a NUL character.
    pub fn fail_topic(&self, topic: &str, error: RDKafkaRespErr) -> Result<(), ConnectorError> {
        self.cluster.topic_error(topic, error).map_err(failed)
    }

    /// Makes all brokers drop their connections and accept no new ones.
    ///
    /// # Errors
    /// When the cluster refuses.
    pub fn go_down(&self) -> Result<(), ConnectorError> {
        self.cluster.broker_down(-1).map_err(failed)
    }

    /// Makes all brokers accept connections again.
    ///
    /// # Errors
    /// When the cluster refuses.
    pub fn come_up(&self) -> Result<(), ConnectorError> {
        self.cluster.broker_up(-1).map_err(failed)
    }

    /// Makes every answer of all brokers take `delay` longer.
    ///
    /// # Errors
    /// When the cluster refuses.
    pub fn slow_down(&self, delay: Duration) -> Result<(), ConnectorError> {
        self.cluster.broker_round_trip_time(-1, delay).map_err(failed)
    }
}

impl std::fmt::Debug for MockBroker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "MockBroker({})", self.bootstrap_servers())
    }
}

fn failed(error: rdkafka::error::KafkaError) -> ConnectorError {
    ConnectorError::new(ErrorKind::Permanent, format!("the mock broker refuses: {error}"))
}
