//! The control plane of a Kafka source: one consumer, all partitions assigned by hand, no consumer group joined.
//!
//! ```text
//! librdkafka ── main queue ──▶ poll_events ──▶ LanesAssigned, LanesAdded, Degraded
//!      │                          ▲ notes
//!      ├─ partition queues ─▶ lanes, watching thread (new partitions, ranges of lost positions)
//! ```

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rdkafka::config::FromClientConfigAndContext as _;
use rdkafka::consumer::Consumer as _;
use rdkafka::types::RDKafkaErrorCode as Code;
use rdkafka::{Offset, TopicPartitionList};

use super::context::ClientEvents;
use super::error;
use super::lane::{KafkaLane, LaneShared};
use super::native::{self, Consumer, PartitionQueue};
use super::options::{OnOffsetLost, SourceOptions};
use super::probe::{Asking, Range, check_identity, serve};
use super::pulse::Pulses;
use super::watch::{Mailbox, Note, Watch, Watched};
use crate::ack::AckIssuer;
use crate::error::{ConnectorError, ErrorKind};
use crate::source::{
    PartitionId, Positions, RecoveryIdentity, Source, SourceContext, SourceContract, SourceEvent, SourceLane,
};
use crate::statistics::ClientStatistics;

/// What a Kafka source promises.
pub(super) const CONTRACT: SourceContract = SourceContract {
    replayable: true,
    bounded: false,
    ordered: true,
    position: "Kafka offset",
    shares_commits: true,
};

/// A reader of one topic.
pub(super) struct KafkaSource {
    options: SourceOptions,
    issuer: AckIssuer,
    mailbox: Arc<Mailbox>,
    events: VecDeque<SourceEvent>,
    /// Records that were deleted before they were read, by partition.
    lost: BTreeMap<PartitionId, u64>,
    committed: Positions,
    open: Option<Open>,
}

/// What exists while the source is open.
struct Open {
    consumer: Arc<Consumer>,
    shared: LaneShared,
    watch: Watch,
    /// End offsets as heard at the start, for partitions of which nothing was fetched yet.
    ends: Positions,
    /// What was shown last, so that a lasting trouble is shown once.
    shown: Option<ConnectorError>,
}

impl KafkaSource {
    /// A source that is not open yet.
    pub(super) fn new(options: SourceOptions) -> Self {
        Self {
            options,
            issuer: AckIssuer::new(),
            mailbox: Arc::default(),
            events: VecDeque::new(),
            lost: BTreeMap::new(),
            committed: Positions::new(),
            open: None,
        }
    }

    fn topic(&self) -> &str {
        &self.options.connection.topic
    }

    fn client(&self, name: &str, partitions: usize) -> Result<Arc<Consumer>, ConnectorError> {
        let config = self.options.consumer(name, partitions);
        let created = Consumer::from_config_and_context(&config, ClientEvents::default());
        let mut consumer = created.map_err(|failure| error::of_client(&failure))?;
        let mailbox = Arc::clone(&self.mailbox);
        consumer.set_nonempty_callback(move || mailbox.ring());
        Ok(Arc::new(consumer))
    }

    /// Where each partition is read from: its recorded position, or its beginning if it has none.
    fn positions(
        &mut self,
        start: &Positions,
        ranges: &BTreeMap<PartitionId, Range>,
    ) -> Result<Positions, ConnectorError> {
        if let Some(missing) = start.keys().find(|partition| !ranges.contains_key(partition)) {
            return Err(ConnectorError::new(
                ErrorKind::PositionLost,
                format!(
                    "partition {} of Kafka topic \"{}\" is gone",
                    missing.0,
                    self.topic()
                ),
            )
            .with_detail(format!(
                "A position is recorded for it, and the topic has {} partitions.",
                ranges.len()
            ))
            .with_hint("The topic was probably created again with fewer partitions."));
        }
        let mut positions = Positions::new();
        for (partition, range) in ranges {
            let recorded = start.get(partition).copied().unwrap_or(range.low);
            let position = self.within(*partition, recorded, *range)?;
            positions.insert(*partition, position);
        }
        Ok(positions)
    }

    /// `position` if the broker has it, else what the policy for lost offsets makes of it.
    fn within(&mut self, partition: PartitionId, position: i64, range: Range) -> Result<i64, ConnectorError> {
        if (range.low..=range.high).contains(&position) {
            return Ok(position);
        }
        let lost = Lost {
            topic: self.topic(),
            partition,
            position,
            range,
        };
        let next = match self.options.on_offset_lost {
            _ if position > range.high => return Err(lost.behind_the_end()),
            OnOffsetLost::Fail => return Err(lost.gap()),
            OnOffsetLost::Earliest => range.low,
            OnOffsetLost::Latest => range.high,
        };
        let skipped = lost.skipped(next);
        *self.lost.entry(partition).or_default() += next.abs_diff(position);
        self.events.push_back(SourceEvent::Degraded(skipped));
        Ok(next)
    }

    fn lanes(
        &self,
        consumer: &Arc<Consumer>,
        shared: &LaneShared,
        positions: &Positions,
    ) -> Result<Vec<Box<dyn SourceLane>>, ConnectorError> {
        let lane = |(partition, position): (&PartitionId, &i64)| {
            let queue = self.queue(consumer, *partition)?;
            let lane = KafkaLane::new(queue, *partition, *position, shared.clone());
            Ok(Box::new(lane) as Box<dyn SourceLane>)
        };
        positions.iter().map(lane).collect()
    }

    fn queue(
        &self,
        consumer: &Arc<Consumer>,
        partition: PartitionId,
    ) -> Result<PartitionQueue, ConnectorError> {
        PartitionQueue::split(consumer, self.topic(), partition.0).ok_or_else(|| {
            ConnectorError::new(
                ErrorKind::Permanent,
                format!("the Kafka client gives no queue for partition {}", partition.0),
            )
        })
    }

    fn list(&self, positions: &Positions) -> Result<TopicPartitionList, ConnectorError> {
        let mut list = TopicPartitionList::with_capacity(positions.len());
        for (partition, offset) in positions {
            list.add_partition_offset(self.topic(), partition.0, Offset::Offset(*offset))
                .map_err(refused)?;
        }
        Ok(list)
    }

    fn act_on(&mut self, note: Note) -> Result<(), ConnectorError> {
        let Some(open) = &self.open else { return Ok(()) };
        match note {
            Note::Lost { partition, position } => {
                self.committed.remove(&partition);
                tracing::info!(
                    partition = partition.0,
                    position,
                    "the position is not at the broker any more"
                );
                open.watch.find(partition, position);
                Ok(())
            }
            Note::Found {
                partition,
                position,
                range,
            } => self.reposition(partition, position, range),
            Note::Fault {
                partition,
                code,
                text,
            } => self.show_fault(partition, code, &text),
            Note::Appeared(positions) => self.add(&positions),
            Note::Stalled { partition, position } => self.renew(partition, position),
            Note::Trouble(error) => {
                self.show(error);
                Ok(())
            }
            Note::Answered => {
                self.recover();
                Ok(())
            }
            Note::Ended(error) => Err(error),
        }
    }

    /// Goes on after a position was lost while running. The client has given the partition up, so it is assigned anew.
    fn reposition(
        &mut self,
        partition: PartitionId,
        position: i64,
        range: Range,
    ) -> Result<(), ConnectorError> {
        let next = self.within(partition, position, range)?;
        let list = self.list(&Positions::from([(partition, next)]))?;
        self.assign_again(&list)
    }

    fn assign_again(&self, list: &TopicPartitionList) -> Result<(), ConnectorError> {
        let Some(open) = &self.open else { return Ok(()) };
        if let Err(failure) = open.consumer.incremental_unassign(list) {
            tracing::debug!(%failure, "the partition was not assigned");
        }
        open.consumer.incremental_assign(list).map_err(refused)
    }

    /// Brings a lane back to life that gets nothing from the client although the broker has records for it: it gets a
    /// new queue, and its partition is assigned again where the lane stands.
    fn renew(&mut self, partition: PartitionId, position: i64) -> Result<(), ConnectorError> {
        let Some(open) = &self.open else { return Ok(()) };
        let Some(pulse) = open.shared.pulses.get(partition) else {
            return Ok(());
        };
        if pulse.next_offset() != position {
            return Ok(());
        }
        let list = self.list(&Positions::from([(partition, position)]))?;
        pulse.renew(self.queue(&open.consumer, partition)?);
        self.assign_again(&list)?;
        self.show(stalled(self.topic(), partition, position));
        Ok(())
    }

    fn add(&mut self, positions: &Positions) -> Result<(), ConnectorError> {
        let list = self.list(positions)?;
        let Some(open) = &self.open else { return Ok(()) };
        let lanes = self.lanes(&open.consumer, &open.shared, positions)?;
        open.consumer.incremental_assign(&list).map_err(refused)?;
        self.events.push_back(SourceEvent::LanesAdded(lanes));
        Ok(())
    }

    fn show_fault(&mut self, partition: PartitionId, code: i32, text: &str) -> Result<(), ConnectorError> {
        let error = fault(self.topic(), partition, code, text);
        match (error.kind, &self.open) {
            (ErrorKind::Denied, _) => return Err(error),
            // Whether it is true is seen by several looks at the topic.
            (ErrorKind::NotFound, Some(open)) => open.watch.look(),
            _ => {}
        }
        self.show(error);
        Ok(())
    }

    /// Queues a trouble to be shown, unless it was the last one shown.
    fn show(&mut self, error: ConnectorError) {
        if let Some(open) = &mut self.open
            && open.shown.as_ref() != Some(&error)
        {
            open.shown = Some(error.clone());
            open.watch.look();
            self.events.push_back(SourceEvent::Degraded(error));
        }
    }

    /// Queues that what was shown last has passed.
    fn recover(&mut self) {
        if let Some(open) = &mut self.open
            && open.shown.take().is_some()
        {
            self.events.push_back(SourceEvent::Recovered);
        }
    }

    /// Serves the client and the mailbox, without waiting.
    fn serve(&mut self) -> Result<(), ConnectorError> {
        let Some(open) = &self.open else { return Ok(()) };
        serve(&open.consumer);
        for partition in open.consumer.context().take_strays().into_iter().map(PartitionId) {
            if let Some(pulse) = open.shared.pulses.get(partition) {
                self.mailbox.post(Note::Stalled {
                    partition,
                    position: pulse.next_offset(),
                });
            }
        }
        if let Some(trouble) = open.consumer.context().take_trouble() {
            self.show(error::unreachable(&trouble, &self.options.connection.servers));
        }
        for note in self.mailbox.take() {
            self.act_on(note)?;
        }
        Ok(())
    }

    /// Tells the stall check which lanes get nothing because nobody fetches for them.
    fn hold(&self, partitions: &[PartitionId], held: bool) {
        let Some(open) = &self.open else { return };
        for pulse in partitions
            .iter()
            .filter_map(|partition| open.shared.pulses.get(*partition))
        {
            pulse.hold(held);
        }
    }

    fn partition_list(&self, partitions: &[PartitionId]) -> TopicPartitionList {
        let mut list = TopicPartitionList::with_capacity(partitions.len());
        for partition in partitions {
            list.add_partition(self.topic(), partition.0);
        }
        list
    }
}

impl Source for KafkaSource {
    fn contract(&self) -> SourceContract {
        CONTRACT
    }

    fn open(&mut self, context: SourceContext, start: &Positions) -> Result<(), ConnectorError> {
        let mut consumer = self.client(&context.name, start.len())?;
        let connection = self.options.connection.clone();
        let (ranges, identity) = {
            let asking = Asking::new(
                &consumer,
                &connection.servers,
                &connection.topic,
                connection.connect_timeout,
            );
            (asking.ranges()?, asking.identity()?)
        };
        if ranges.len() > start.len().max(1) {
            // Partitions share the memory for fetched records, so their number must be known when the client is made.
            consumer = self.client(&context.name, ranges.len())?;
        }
        check_identity(&context.identity, &identity)?;
        let positions = self.positions(start, &ranges)?;

        let shared = LaneShared {
            issuer: self.issuer.clone(),
            wants: context.wants,
            mailbox: Arc::clone(&self.mailbox),
            pulses: Pulses::default(),
        };
        self.issuer.begin_epoch();
        let lanes = self.lanes(&consumer, &shared, &positions)?;
        consumer.assign(&self.list(&positions)?).map_err(refused)?;
        consumer.context().forget();
        let watched = Watched {
            consumer: Arc::clone(&consumer),
            servers: connection.servers,
            topic: connection.topic,
            known: positions.keys().copied().collect::<BTreeSet<_>>(),
            identity: watched_identity(identity, &context.identity),
            interval: self.options.discovery_interval,
            pulses: shared.pulses.clone(),
        };
        let watch = Watch::start(watched, Arc::clone(&self.mailbox))?;
        let ends = ranges
            .iter()
            .map(|(partition, range)| (*partition, range.high))
            .collect();
        self.open = Some(Open {
            consumer,
            shared,
            watch,
            ends,
            shown: None,
        });
        self.events.push_front(SourceEvent::LanesAssigned(lanes));
        Ok(())
    }

    fn poll_events(&mut self, timeout: Duration) -> Result<SourceEvent, ConnectorError> {
        let deadline = Instant::now() + timeout;
        loop {
            self.serve()?;
            if let Some(event) = self.events.pop_front() {
                return Ok(event);
            }
            if !self.mailbox.wait_until(deadline) {
                return Ok(SourceEvent::Idle);
            }
        }
    }

    fn commit(&mut self, offsets: &[(PartitionId, i64)]) -> Result<(), ConnectorError> {
        let Some(open) = &self.open else { return Ok(()) };
        let moved = offsets
            .iter()
            .filter(|(partition, offset)| self.committed.get(partition) != Some(offset));
        let moved: Positions = moved.copied().collect();
        if moved.is_empty() {
            return Ok(());
        }
        native::commit(&open.consumer, &self.list(&moved)?)
            .map_err(|code| error::of_topic(code, self.topic()))?;
        open.consumer.context().commit_sent();
        self.committed.extend(moved);
        Ok(())
    }

    fn flush_commits(&mut self, timeout: Duration) -> Result<(), ConnectorError> {
        let deadline = Instant::now() + timeout;
        loop {
            self.serve()?;
            let in_flight = self
                .open
                .as_ref()
                .map_or(0, |open| open.consumer.context().commits_in_flight());
            if in_flight == 0 {
                return Ok(());
            }
            if !self.mailbox.wait_until(deadline) && Instant::now() >= deadline {
                return Err(ConnectorError::new(
                    ErrorKind::Transient,
                    format!("{in_flight} offset commits to Kafka were not answered within {timeout:?}"),
                ));
            }
        }
    }

    fn pause(&mut self, partitions: &[PartitionId]) {
        self.hold(partitions, true);
        if let Some(open) = &self.open
            && let Err(failure) = open.consumer.pause(&self.partition_list(partitions))
        {
            tracing::warn!(%failure, "cannot pause Kafka partitions");
        }
    }

    fn resume(&mut self, partitions: &[PartitionId]) {
        self.hold(partitions, false);
        if let Some(open) = &self.open
            && let Err(failure) = open.consumer.resume(&self.partition_list(partitions))
        {
            tracing::warn!(%failure, "cannot resume Kafka partitions");
        }
    }

    fn end_offsets(&self) -> Positions {
        self.open
            .as_ref()
            .map(|open| open.ends.clone())
            .unwrap_or_default()
    }

    fn statistics(&self) -> Option<Arc<ClientStatistics>> {
        self.open.as_ref()?.consumer.context().statistics()
    }

    fn lost_records(&self) -> BTreeMap<PartitionId, u64> {
        self.lost.clone()
    }

    fn close(&mut self) {
        self.events.clear();
        if let Some(open) = self.open.take() {
            // The lanes that the runtime still holds get nothing more.
            if let Err(failure) = open.consumer.unassign() {
                tracing::debug!(%failure, "cannot unassign Kafka partitions");
            }
        }
    }
}

/// What the watching thread compares with: what is recorded, or else what was found at the start.
fn watched_identity(found: RecoveryIdentity, recorded: &RecoveryIdentity) -> RecoveryIdentity {
    let mut identity = found;
    identity.extend(recorded.clone());
    identity
}

fn stalled(topic: &str, partition: PartitionId, position: i64) -> ConnectorError {
    ConnectorError::new(
        ErrorKind::Transient,
        format!(
            "the Kafka client gave nothing of partition {} of topic \"{topic}\" although there is more",
            partition.0
        ),
    )
    .with_detail(format!("The partition was assigned again at offset {position}."))
}

fn refused(failure: rdkafka::error::KafkaError) -> ConnectorError {
    ConnectorError::new(
        ErrorKind::Permanent,
        format!("the Kafka client refuses: {failure}"),
    )
}

/// A position that the broker does not have.
struct Lost<'a> {
    topic: &'a str,
    partition: PartitionId,
    position: i64,
    range: Range,
}

impl Lost<'_> {
    fn holds(&self) -> String {
        format!(
            "The source is at offset {}, and the broker holds offsets from {} up to {}.",
            self.position, self.range.low, self.range.high
        )
    }

    fn gap(&self) -> ConnectorError {
        let gap = self.range.low - self.position;
        ConnectorError::new(
            ErrorKind::PositionLost,
            format!("{gap} records of partition {} of Kafka topic \"{}\" are gone", self.partition.0, self.topic),
        )
        .with_detail(self.holds())
        .with_hint(
            "They were deleted before they were read. Set on_offset_lost = 'earliest' or 'latest' to go on without \
             them, and raise the topic's retention.",
        )
    }

    fn behind_the_end(&self) -> ConnectorError {
        ConnectorError::new(
            ErrorKind::PositionLost,
            format!(
                "partition {} of Kafka topic \"{}\" ends before its position",
                self.partition.0, self.topic
            ),
        )
        .with_detail(self.holds())
        .with_hint(
            "The topic was created again, or the broker lost records; on_offset_lost does not cover that.",
        )
    }

    fn skipped(&self, next: i64) -> ConnectorError {
        ConnectorError::new(
            ErrorKind::PositionLost,
            format!(
                "{} records of partition {} of Kafka topic \"{}\" were skipped",
                next.abs_diff(self.position),
                self.partition.0,
                self.topic
            ),
        )
        .with_detail(format!(
            "{} Reading goes on at offset {next}, as on_offset_lost says.",
            self.holds()
        ))
    }
}

/// librdkafka's complaint about one partition.
fn fault(topic: &str, partition: PartitionId, code: i32, text: &str) -> ConnectorError {
    let known = |code: Code| error::of_topic(code, topic);
    let error = match code {
        code if code == Code::UnknownTopicOrPartition as i32 || code == Code::UnknownTopic as i32 => {
            known(Code::UnknownTopicOrPartition)
        }
        code if code == Code::UnknownPartition as i32 => known(Code::UnknownPartition),
        code if code == Code::TopicAuthorizationFailed as i32 => known(Code::TopicAuthorizationFailed),
        _ => ConnectorError::new(
            ErrorKind::Transient,
            format!(
                "reading partition {} of Kafka topic \"{topic}\" failed for now",
                partition.0
            ),
        ),
    };
    error.with_detail(format!(
        "Partition {}: {}.",
        partition.0,
        text.trim_end_matches('.')
    ))
}

#[cfg(test)]
mod tests;
