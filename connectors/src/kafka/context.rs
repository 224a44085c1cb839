//! What a client tells beside its data: errors, log lines and the fate of commits, kept until somebody asks for the
//! reason why nothing moves.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use parking_lot::Mutex;
use rdkafka::ClientContext;
use rdkafka::TopicPartitionList;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::consumer::ConsumerContext;
use rdkafka::error::{KafkaError, KafkaResult};
use rdkafka::statistics::Statistics;
use rdkafka::types::RDKafkaErrorCode;

use super::statistics;
use crate::statistics::ClientStatistics;

/// How many troubles are kept until they are asked for.
const TROUBLES_MAX: usize = 32;

/// One thing that librdkafka complained about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Trouble {
    /// Its code.
    pub code: RDKafkaErrorCode,
    /// Its words, with the broker and the system's reason.
    pub text: String,
}

impl Trouble {
    /// How much it explains: an authentication failure explains why all brokers are down, not the other way round.
    fn rank(&self) -> u8 {
        match self.code {
            RDKafkaErrorCode::Authentication | RDKafkaErrorCode::SaslAuthenticationFailed => 5,
            RDKafkaErrorCode::SSL => 4,
            RDKafkaErrorCode::Resolve => 3,
            RDKafkaErrorCode::AllBrokersDown => 0,
            RDKafkaErrorCode::OperationTimedOut => 1,
            _ => 2,
        }
    }
}

/// The callbacks of one client. Clones share what was heard.
#[derive(Debug, Clone, Default)]
pub(super) struct ClientEvents {
    heard: Arc<Mutex<Heard>>,
}

#[derive(Debug, Default)]
struct Heard {
    served: u64,
    troubles: VecDeque<Trouble>,
    all_down: bool,
    commits_in_flight: u64,
    strays: BTreeSet<i32>,
    statistics: Option<Arc<ClientStatistics>>,
}

impl ClientEvents {
    /// A record of `partition` came where only events should come, and is gone.
    pub(super) fn stray(&self, partition: i32) {
        let mut heard = self.heard.lock();
        heard.served += 1;
        heard.strays.insert(partition);
    }

    /// Takes the partitions of which records have gone astray.
    pub(super) fn take_strays(&self) -> BTreeSet<i32> {
        std::mem::take(&mut self.heard.lock().strays)
    }

    /// How many callbacks have run; unchanged after a poll means that there was nothing to serve.
    pub(super) fn served(&self) -> u64 {
        self.heard.lock().served
    }

    /// Takes what explains most of what was heard since the last call, the latest of equals.
    pub(super) fn take_trouble(&self) -> Option<Trouble> {
        let mut heard = self.heard.lock();
        std::mem::take(&mut heard.troubles)
            .into_iter()
            .max_by_key(Trouble::rank)
    }

    /// What explains most of what was heard since troubles were last taken, without taking it.
    pub(super) fn trouble(&self) -> Option<Trouble> {
        self.heard
            .lock()
            .troubles
            .iter()
            .max_by_key(|trouble| trouble.rank())
            .cloned()
    }

    /// Forgets the troubles: the client has made progress since.
    pub(super) fn forget(&self) {
        let mut heard = self.heard.lock();
        heard.troubles.clear();
        heard.all_down = false;
    }

    /// Whether the client has said that no broker can be reached, and nothing has gone well since.
    pub(super) fn all_down(&self) -> bool {
        self.heard.lock().all_down
    }

    /// What the client told of itself last.
    pub(super) fn statistics(&self) -> Option<Arc<ClientStatistics>> {
        self.heard.lock().statistics.clone()
    }

    /// Notes that a commit was handed to the client.
    pub(super) fn commit_sent(&self) {
        self.heard.lock().commits_in_flight += 1;
    }

    /// How many commits were sent and not answered yet.
    pub(super) fn commits_in_flight(&self) -> u64 {
        self.heard.lock().commits_in_flight
    }

    fn hear(&self, code: RDKafkaErrorCode, text: &str) {
        let mut heard = self.heard.lock();
        heard.served += 1;
        heard.all_down |= code == RDKafkaErrorCode::AllBrokersDown;
        let trouble = Trouble {
            code,
            text: text.to_owned(),
        };
        heard.troubles.retain(|known| known.text != trouble.text);
        if heard.troubles.len() == TROUBLES_MAX {
            heard.troubles.pop_front();
        }
        heard.troubles.push_back(trouble);
    }
}

impl ClientContext for ClientEvents {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, line: &str) {
        self.heard.lock().served += 1;
        tracing::debug!(target: "librdkafka", level = ?level, facility, line);
    }

    fn stats(&self, statistics: Statistics) {
        let mut heard = self.heard.lock();
        heard.served += 1;
        heard.statistics = Some(Arc::new(statistics::of(statistics)));
    }

    fn error(&self, error: KafkaError, reason: &str) {
        self.hear(
            error.rdkafka_error_code().unwrap_or(RDKafkaErrorCode::Unknown),
            reason,
        );
    }
}

impl ConsumerContext for ClientEvents {
    fn commit_callback(&self, result: KafkaResult<()>, _offsets: &TopicPartitionList) {
        let mut heard = self.heard.lock();
        heard.served += 1;
        heard.commits_in_flight = heard.commits_in_flight.saturating_sub(1);
        drop(heard);
        // Advisory: the positions that count are in the database. `NoOffset` says that nothing was to be committed.
        if let Some(code) = result.err().and_then(|error| error.rdkafka_error_code())
            && code != RDKafkaErrorCode::NoOffset
        {
            self.hear(code, &format!("committing offsets failed: {code}"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(code: RDKafkaErrorCode) -> KafkaError {
        KafkaError::Global(code)
    }

    #[test]
    fn the_trouble_that_explains_most_is_taken_and_the_rest_forgotten() {
        let events = ClientEvents::default();
        events.error(error(RDKafkaErrorCode::Authentication), "wrong password");
        events.error(error(RDKafkaErrorCode::BrokerTransportFailure), "disconnected");
        events.error(error(RDKafkaErrorCode::AllBrokersDown), "1/1 brokers are down");

        assert!(events.all_down());
        assert_eq!(
            events.take_trouble().map(|trouble| trouble.text).as_deref(),
            Some("wrong password")
        );
        assert_eq!(events.take_trouble(), None);
    }

    #[test]
    fn repeated_complaints_are_kept_once_and_in_bounds() {
        let events = ClientEvents::default();
        for number in 0..100 {
            events.error(
                error(RDKafkaErrorCode::BrokerTransportFailure),
                &format!("broker {}", number % 50),
            );
        }
        assert_eq!(events.heard.lock().troubles.len(), TROUBLES_MAX);
        assert_eq!(
            events.trouble().map(|trouble| trouble.text).as_deref(),
            Some("broker 49")
        );
    }
}
