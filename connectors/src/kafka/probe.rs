//! Questions to the brokers with one deadline and a translated reason when it passes: partitions, ranges, start
//! positions, identity.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use rdkafka::consumer::Consumer as _;
use rdkafka::error::{KafkaError, KafkaResult};
use rdkafka::message::Message as _;
use rdkafka::types::RDKafkaErrorCode as Code;
use rdkafka::{Offset, TopicPartitionList};

use super::error;
use super::native::{self, Consumer, TopicId};
use crate::error::{ConnectorError, ErrorKind};
use crate::options::nearest;
use crate::source::{PartitionId, Positions, Probe, RecoveryIdentity, StartMode};

/// The first wait for an answer; each next one is twice as long, so that a slow broker is waited for as well.
const FIRST_TURN: Duration = Duration::from_millis(250);
/// How long brokers that refuse may take to come up before the question is given up, within its deadline.
const PATIENCE: Duration = Duration::from_secs(2);
/// How long one broker may take to tell a topic's id.
const ID_TIMEOUT: Duration = Duration::from_secs(3);

/// The key of the topic's name in a recovery identity.
pub(super) const TOPIC: &str = "topic";
/// The key of the broker's id of the topic.
pub(super) const TOPIC_ID: &str = "topic id";
/// The key of the cluster's id.
pub(super) const CLUSTER_ID: &str = "cluster id";

/// What a broker holds of a partition: `low .. high`, where a consumer that reads committed records only sees the last
/// stable offset as `high`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Range {
    /// Offset of the first record there is.
    pub low: i64,
    /// One past the last.
    pub high: i64,
}

/// Questions about one topic, all within one deadline.
pub(super) struct Asking<'a> {
    consumer: &'a Consumer,
    servers: &'a str,
    topic: &'a str,
    begun: Instant,
    timeout: Duration,
}

impl<'a> Asking<'a> {
    /// Questions that are all answered within `timeout` from now, or fail.
    pub(super) fn new(consumer: &'a Consumer, servers: &'a str, topic: &'a str, timeout: Duration) -> Self {
        Self {
            consumer,
            servers,
            topic,
            begun: Instant::now(),
            timeout,
        }
    }

    fn left(&self) -> Duration {
        self.timeout.saturating_sub(self.begun.elapsed())
    }

    /// Asks again while the answer may still come.
    fn until_answered<T>(
        &self,
        mut ask: impl FnMut(Duration) -> KafkaResult<T>,
    ) -> Result<T, ConnectorError> {
        let mut turn = FIRST_TURN;
        loop {
            let failure = match ask(turn.min(self.left()).max(Duration::from_millis(1))) {
                Ok(answer) => return Ok(answer),
                Err(failure) => failure,
            };
            let code = failure.rdkafka_error_code().unwrap_or(Code::Unknown);
            if error::kind(code) != ErrorKind::Transient {
                return Err(self.failed(code));
            }
            serve(self.consumer);
            if let Some(denied) = self.denied() {
                return Err(denied);
            }
            let hopeless =
                self.consumer.context().all_down() && self.begun.elapsed() >= PATIENCE.min(self.timeout / 2);
            if hopeless || self.left().is_zero() {
                return Err(self.unanswered());
            }
            turn *= 2;
        }
    }

    fn failed(&self, code: Code) -> ConnectorError {
        error::of_topic(code, self.topic)
    }

    /// The reason for which waiting is of no use, if there is one.
    fn denied(&self) -> Option<ConnectorError> {
        let trouble = self.consumer.context().trouble()?;
        let error = error::unreachable(&trouble, self.servers);
        (error.kind == ErrorKind::Denied).then_some(error)
    }

    fn unanswered(&self) -> ConnectorError {
        match self.consumer.context().trouble() {
            Some(trouble) => error::unreachable(&trouble, self.servers),
            None => ConnectorError::new(
                ErrorKind::Transient,
                format!(
                    "Kafka at \"{}\" did not answer within {:?}",
                    self.servers, self.timeout
                ),
            )
            .with_hint("Check properties.bootstrap.server and properties.security.protocol."),
        }
    }

    /// The partitions of the topic.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] with the nearest topic there is, or why there is no answer.
    pub(super) fn partitions(&self) -> Result<BTreeSet<PartitionId>, ConnectorError> {
        let metadata = self.until_answered(|turn| self.consumer.fetch_metadata(Some(self.topic), turn));
        let metadata = match metadata {
            Err(error) if error.kind == ErrorKind::NotFound => return Err(self.unknown_topic()),
            other => other?,
        };
        let Some(topic) = metadata.topics().iter().find(|topic| topic.name() == self.topic) else {
            return Err(self.unknown_topic());
        };
        match topic.error().map(Code::from) {
            None => {}
            Some(Code::UnknownTopicOrPartition | Code::UnknownTopic) => return Err(self.unknown_topic()),
            Some(code) => return Err(self.failed(code)),
        }
        if topic.partitions().is_empty() {
            return Err(self.unknown_topic());
        }
        Ok(topic
            .partitions()
            .iter()
            .map(|partition| PartitionId(partition.id()))
            .collect())
    }

    fn unknown_topic(&self) -> ConnectorError {
        let missing = error::unknown_topic(self.topic);
        let Ok(metadata) = self.until_answered(|turn| self.consumer.fetch_metadata(None, turn)) else {
            return missing;
        };
        let names = metadata
            .topics()
            .iter()
            .map(|topic| topic.name())
            .filter(|name| !name.starts_with("__"));
        let names: Vec<&str> = names.filter(|name| *name != self.topic).collect();
        match nearest(self.topic, names.iter().copied()) {
            Some(near) => missing.with_hint(format!("Did you mean \"{near}\"?")),
            None if names.is_empty() => {
                missing.with_detail("There is no topic at all that this user may see.")
            }
            None => missing.with_detail(format!(
                "There are {} topics that this user may see.",
                names.len()
            )),
        }
    }

    /// What the broker holds of `partition`.
    ///
    /// # Errors
    /// Why there is no answer.
    pub(super) fn range(&self, partition: PartitionId) -> Result<Range, ConnectorError> {
        let (low, high) =
            self.until_answered(|turn| self.consumer.fetch_watermarks(self.topic, partition.0, turn))?;
        Ok(Range { low, high })
    }

    /// What the broker holds of each partition of the topic.
    ///
    /// # Errors
    /// As for [`Asking::partitions`].
    pub(super) fn ranges(&self) -> Result<BTreeMap<PartitionId, Range>, ConnectorError> {
        self.partitions()?
            .into_iter()
            .map(|partition| Ok((partition, self.range(partition)?)))
            .collect()
    }

    /// What positions in this topic belong to: its name, its id and the cluster's id, as far as the broker tells.
    ///
    /// # Errors
    /// When there is no answer.
    pub(super) fn identity(&self) -> Result<RecoveryIdentity, ConnectorError> {
        let mut identity = RecoveryIdentity::from([(TOPIC.to_owned(), self.topic.to_owned())]);
        if let Some(id) = self.topic_id()? {
            identity.insert(TOPIC_ID.into(), id);
        }
        if let Some(id) = self.consumer.client().fetch_cluster_id(self.left()) {
            identity.insert(CLUSTER_ID.into(), id);
        }
        Ok(identity)
    }

    /// The id of the topic from the first broker that answers; `None` if brokers do not tell.
    fn topic_id(&self) -> Result<Option<String>, ConnectorError> {
        let metadata = self.until_answered(|turn| self.consumer.fetch_metadata(Some(self.topic), turn))?;
        for broker in metadata.brokers() {
            let timeout = self.left().min(ID_TIMEOUT).max(Duration::from_millis(1));
            match native::topic_id(self.consumer.client(), self.topic, broker.id(), timeout) {
                TopicId::Known(id) => return Ok(Some(id)),
                TopicId::NotTold => return Ok(None),
                TopicId::NoAnswer => serve(self.consumer),
            }
        }
        Err(self.unanswered())
    }

    /// Turns a start mode into numbers.
    ///
    /// # Errors
    /// When the topic is missing or does not answer, or a stated offset is outside of what the broker holds.
    pub(super) fn start(
        &self,
        mode: &StartMode,
        ranges: &BTreeMap<PartitionId, Range>,
    ) -> Result<Positions, ConnectorError> {
        match mode {
            StartMode::Earliest => Ok(ranges
                .iter()
                .map(|(partition, range)| (*partition, range.low))
                .collect()),
            StartMode::Latest => Ok(ranges
                .iter()
                .map(|(partition, range)| (*partition, range.high))
                .collect()),
            StartMode::Timestamp(millis) => self.at_timestamp(*millis, ranges),
            StartMode::Offsets(stated) => stated_offsets(self.topic, stated, ranges),
        }
    }

    fn at_timestamp(
        &self,
        millis: i64,
        ranges: &BTreeMap<PartitionId, Range>,
    ) -> Result<Positions, ConnectorError> {
        let answer = self.until_answered(|turn| {
            let mut asked = TopicPartitionList::with_capacity(ranges.len());
            for partition in ranges.keys() {
                asked.add_partition_offset(self.topic, partition.0, Offset::Offset(millis))?;
            }
            let answer = self.consumer.offsets_for_times(asked, turn)?;
            match answer
                .elements()
                .iter()
                .find_map(|partition| partition.error().err())
            {
                Some(failure) => Err(failure),
                None => Ok(answer),
            }
        })?;
        let position = |(partition, range): (&PartitionId, &Range)| {
            let offset = answer
                .find_partition(self.topic, partition.0)
                .map(|found| found.offset());
            match offset {
                Some(Offset::Offset(offset)) => (*partition, offset),
                // Nothing at or after that time yet.
                _ => (*partition, range.high),
            }
        };
        Ok(ranges.iter().map(position).collect())
    }
}

fn stated_offsets(
    topic: &str,
    stated: &Positions,
    ranges: &BTreeMap<PartitionId, Range>,
) -> Result<Positions, ConnectorError> {
    let mut start: Positions = ranges
        .iter()
        .map(|(partition, range)| (*partition, range.low))
        .collect();
    for (partition, offset) in stated {
        let Some(range) = ranges.get(partition) else {
            return Err(ConnectorError::invalid(format!(
                "Kafka topic \"{topic}\" has no partition {}",
                partition.0
            ))
            .with_detail(format!(
                "It has partitions 0 to {}.",
                ranges.len().saturating_sub(1)
            )));
        };
        if !(range.low..=range.high).contains(offset) {
            return Err(ConnectorError::invalid(format!(
                "offset {offset} is outside of partition {} of Kafka topic \"{topic}\"",
                partition.0
            ))
            .with_detail(format!(
                "The partition holds offsets from {} up to {}.",
                range.low, range.high
            )));
        }
        start.insert(*partition, *offset);
    }
    Ok(start)
}

/// Serves what the client has to tell, without waiting. A record among it was fetched for a partition whose queue is not
/// split off, as it must be: its partition is remembered, so that it is read again.
pub(super) fn serve(consumer: &Consumer) {
    loop {
        let served = consumer.context().served();
        let answer = consumer.poll(Duration::ZERO);
        if let Some(Ok(record)) = &answer {
            consumer.context().stray(record.partition());
        }
        if consumer.context().served() == served && answer.is_none() {
            return;
        }
    }
}

/// Compares what positions belonged to with what was found now.
///
/// # Errors
/// [`ErrorKind::PositionLost`], naming both values; a value that cannot be compared any more counts as a mismatch.
pub(super) fn check_identity(
    recorded: &RecoveryIdentity,
    found: &RecoveryIdentity,
) -> Result<(), ConnectorError> {
    for (name, was) in recorded {
        match found.get(name) {
            Some(is) if is == was => {}
            Some(is) => {
                return Err(ConnectorError::new(ErrorKind::PositionLost, format!("the {name} is not the recorded one"))
                    .with_detail(format!("The positions belong to \"{was}\", and the broker now has \"{is}\"."))
                    .with_hint(
                        "The topic was created again, or the address leads to another cluster. Drop the source and \
                         create it again to read it from its start.",
                    ));
            }
            None => {
                return Err(ConnectorError::new(
                    ErrorKind::Transient,
                    format!("the broker did not tell its {name}, so the positions cannot be trusted"),
                )
                .with_detail(format!("The positions belong to \"{was}\".")));
            }
        }
    }
    Ok(())
}

/// Looks at a topic once, for CREATE SOURCE.
///
/// # Errors
/// With a translated reason.
pub(super) fn look(asking: &Asking<'_>, mode: &StartMode) -> Result<Probe, ConnectorError> {
    let ranges = asking.ranges()?;
    let start = asking.start(mode, &ranges)?;
    let identity = asking.identity()?;
    let mut notices = Vec::new();
    if ranges.values().all(|range| range.low >= range.high) {
        notices.push(format!("Kafka topic \"{}\" is empty.", asking.topic));
    }
    Ok(Probe {
        start,
        from_beginning: *mode == StartMode::Earliest,
        identity,
        columns: None,
        notices,
    })
}

/// A client that only asks.
///
/// # Errors
/// When the options do not make one.
pub(super) fn client(config: &rdkafka::ClientConfig) -> Result<Consumer, ConnectorError> {
    config
        .create_with_context(super::context::ClientEvents::default())
        .map_err(|error: KafkaError| error::of_client(&error))
}

#[cfg(test)]
mod tests {
    use super::*;

    const P0: PartitionId = PartitionId(0);

    fn identity(values: &[(&str, &str)]) -> RecoveryIdentity {
        values
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect()
    }

    #[test]
    fn stated_offsets_outside_of_the_partition_are_refused_with_its_range() {
        let ranges = BTreeMap::from([(P0, Range { low: 10, high: 20 })]);
        let stated = |partition, offset| {
            stated_offsets("t", &Positions::from([(PartitionId(partition), offset)]), &ranges)
        };
        assert_eq!(stated(0, 20), Ok(Positions::from([(P0, 20)])));
        let error = stated(0, 21).expect_err("the offset is behind the end");
        assert_eq!(
            error.detail.as_deref(),
            Some("The partition holds offsets from 10 up to 20.")
        );
        assert!(stated(0, 9).is_err());
        assert_eq!(
            stated(7, 0).expect_err("no such partition").message,
            "Kafka topic \"t\" has no partition 7"
        );
    }

    #[test]
    fn another_topic_id_is_an_error_that_names_both() {
        let recorded = identity(&[(TOPIC_ID, "aaa"), (CLUSTER_ID, "c")]);
        let error = check_identity(&recorded, &identity(&[(TOPIC_ID, "bbb"), (CLUSTER_ID, "c")]))
            .expect_err("mismatch");
        assert_eq!(error.kind, ErrorKind::PositionLost);
        let detail = error.detail.expect("a detail");
        assert!(detail.contains("aaa") && detail.contains("bbb"), "{detail}");
    }

    #[test]
    fn an_id_that_is_no_longer_told_is_not_taken_for_a_match() {
        let recorded = identity(&[(TOPIC_ID, "aaa")]);
        assert_eq!(
            check_identity(&recorded, &identity(&[]))
                .expect_err("unknown")
                .kind,
            ErrorKind::Transient
        );
        assert_eq!(check_identity(&identity(&[]), &recorded), Ok(()));
    }
}
