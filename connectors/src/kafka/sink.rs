//! The Kafka sink: an idempotent producer whose delivery reports become a contiguous confirmed prefix.
//!
//! Each record carries its sequence number through librdkafka as the opaque pointer, together with the number of the
//! attempt, so that a report from before a rewind is not taken for one after it. Nothing is allocated per record here.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rdkafka::ClientContext;
use rdkafka::config::{FromClientConfigAndContext as _, RDKafkaLogLevel};
use rdkafka::error::KafkaError;
use rdkafka::message::DeliveryResult;
use rdkafka::producer::{BaseProducer, BaseRecord, Producer as _, ProducerContext, PurgeConfig};
use rdkafka::statistics::Statistics;
use rdkafka::types::RDKafkaErrorCode as Code;

use super::context::ClientEvents;
use super::error;
use super::options::SinkOptions;
use crate::error::{ConnectorError, ErrorKind};
use crate::sink::{Sink, SinkChunk};
use crate::statistics::ClientStatistics;

/// Bits of the opaque pointer for the sequence number; the rest is the attempt.
const SEQ_BITS: u32 = 48;
const SEQ_MASK: u64 = (1 << SEQ_BITS) - 1;
/// How long one turn of serving the client lasts at most while records are in flight.
const TURN: Duration = Duration::from_millis(5);
/// How long a rewind waits for the reports of purged records.
const PURGE_TIMEOUT: Duration = Duration::from_secs(5);

type Producer = BaseProducer<SinkEvents>;

/// A running sink into one topic.
pub(super) struct KafkaSink {
    name: String,
    options: SinkOptions,
    events: SinkEvents,
    producer: Producer,
    /// What was confirmed at the last look.
    seen: u64,
}

impl KafkaSink {
    /// A sink that can be written to at once.
    ///
    /// # Errors
    /// When the options do not make a client.
    pub(super) fn new(name: &str, options: SinkOptions) -> Result<Self, ConnectorError> {
        let events = SinkEvents::default();
        let producer = producer(name, &options, &events)?;
        Ok(Self {
            name: name.to_owned(),
            options,
            events,
            producer,
            seen: 0,
        })
    }

    fn topic(&self) -> &str {
        &self.options.connection.topic
    }

    /// Serves the client once, without waiting; whether there was anything.
    fn serve(&self) -> bool {
        let served = self.events.served();
        self.producer.poll(Duration::ZERO);
        self.events.served() != served
    }

    fn failure(&self, code: Code) -> ConnectorError {
        let error = error::of_topic(code, self.topic());
        match (error.kind, self.events.client.trouble()) {
            (ErrorKind::Transient, Some(trouble)) => {
                error::unreachable(&trouble, &self.options.connection.servers)
            }
            _ => error,
        }
    }

    /// Hands `chunk.records[first..]` to the client until it takes no more. Gives how many it took, and why not all.
    fn send(&self, chunk: &SinkChunk, first: usize) -> (usize, Option<Code>) {
        let first_seq = chunk.first_seq + first as u64;
        let attempt = self.events.window.lock().attempt;
        let mut sent = 0;
        let mut failure = None;
        for record in chunk.records.get(first..).unwrap_or_default() {
            let mut message = BaseRecord::with_opaque_to(self.topic(), opaque(attempt, first_seq + sent));
            message.key = record.key.as_deref();
            message.payload = record.value.as_deref();
            if let Err((refusal, _)) = self.producer.send(message) {
                failure = Some(refusal.rdkafka_error_code().unwrap_or(Code::Fail));
                break;
            }
            sent += 1;
        }
        // Reports are only heard when the producer is polled, on this thread: none came in between.
        self.events.window.lock().sent(first_seq, sent);
        (sent as usize, failure)
    }

    /// The error that has to be acted on before anything else is written.
    fn check(&self) -> Result<(), ConnectorError> {
        if let Some((_, reason)) = self.producer.client().fatal_error() {
            return Err(ConnectorError::new(
                ErrorKind::Transient,
                format!(
                    "the Kafka producer of topic \"{}\" has to start again",
                    self.topic()
                ),
            )
            .with_detail(format!("{}.", reason.trim_end_matches('.'))));
        }
        if let Some(code) = self.events.window.lock().failed {
            return Err(self.failure(code));
        }
        match self.events.client.trouble() {
            Some(trouble) if error::kind(trouble.code) == ErrorKind::Denied => {
                Err(error::unreachable(&trouble, &self.options.connection.servers))
            }
            _ => Ok(()),
        }
    }
}

fn producer(name: &str, options: &SinkOptions, events: &SinkEvents) -> Result<Producer, ConnectorError> {
    let created = Producer::from_config_and_context(&options.producer(name), events.clone());
    created.map_err(|failure| error::of_client(&failure))
}

impl Sink for KafkaSink {
    fn write(&mut self, chunk: &SinkChunk, from: usize, timeout: Duration) -> Result<usize, ConnectorError> {
        let deadline = Instant::now() + timeout;
        self.serve();
        self.check()?;
        let mut taken = 0;
        loop {
            let first = from + taken;
            let (sent, failure) = self.send(chunk, first);
            taken += sent;
            match failure {
                None => return Ok(taken),
                Some(Code::QueueFull) if Instant::now() >= deadline => return Ok(taken),
                Some(Code::QueueFull) => {
                    self.producer
                        .poll(TURN.min(deadline.saturating_duration_since(Instant::now())));
                    self.check()?;
                }
                // What was taken before stays taken: the caller hears of it first, and of the error at its next call.
                Some(_) if taken > 0 => return Ok(taken),
                Some(code) => return Err(self.failure(code)),
            }
        }
    }

    fn poll_confirmed(&mut self, timeout: Duration) -> Result<u64, ConnectorError> {
        let deadline = Instant::now() + timeout;
        let before = self.events.window.lock().confirmed;
        loop {
            while self.serve() {}
            self.check()?;
            let confirmed = self.events.window.lock().confirmed;
            if confirmed > self.seen {
                // Whatever the client complained about before has passed.
                self.events.client.forget();
            }
            self.seen = confirmed;
            let left = deadline.saturating_duration_since(Instant::now());
            if confirmed > before || left.is_zero() {
                return Ok(confirmed);
            }
            let turn = if self.producer.in_flight_count() == 0 {
                left
            } else {
                TURN.min(left)
            };
            self.producer.poll(turn);
        }
    }

    fn trouble(&self) -> Option<ConnectorError> {
        let trouble = self.events.client.trouble()?;
        Some(error::unreachable(&trouble, &self.options.connection.servers))
    }

    fn statistics(&mut self) -> Option<Arc<ClientStatistics>> {
        while self.serve() {}
        self.events.client.statistics()
    }

    fn rewind(&mut self, seq: u64) {
        self.producer.purge(PurgeConfig::default().queue().inflight());
        if let Err(failure) = self.producer.flush(PURGE_TIMEOUT) {
            tracing::warn!(%failure, "purged Kafka records were not reported");
        }
        self.events.window.lock().restart(seq);
        self.events.client.forget();
        if self.producer.client().fatal_error().is_some() {
            // A producer with a fatal error never works again.
            match producer(&self.name, &self.options, &self.events) {
                Ok(producer) => self.producer = producer,
                Err(error) => tracing::error!(%error, "cannot start the Kafka producer again"),
            }
        }
    }

    fn close(&mut self, timeout: Duration) {
        if let Err(failure) = self.producer.flush(timeout) {
            tracing::info!(%failure, "Kafka records in flight are given up; they are sent again after a restart");
        }
        self.producer.purge(PurgeConfig::default().queue().inflight());
    }
}

/// A sequence number and its attempt as librdkafka carries them.
fn opaque(attempt: u16, seq: u64) -> usize {
    ((u64::from(attempt) << SEQ_BITS) | (seq & SEQ_MASK)) as usize
}

/// The callbacks of a producer.
#[derive(Debug, Clone, Default)]
struct SinkEvents {
    client: ClientEvents,
    window: Arc<Mutex<Window>>,
}

impl SinkEvents {
    fn served(&self) -> u64 {
        self.client.served() + self.window.lock().reports
    }
}

impl ClientContext for SinkEvents {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, line: &str) {
        self.client.log(level, facility, line);
    }

    fn stats(&self, statistics: Statistics) {
        self.client.stats(statistics);
    }

    fn error(&self, error: KafkaError, reason: &str) {
        self.client.error(error, reason);
    }
}

impl ProducerContext for SinkEvents {
    type DeliveryOpaque = usize;

    fn delivery(&self, result: &DeliveryResult<'_>, opaque: usize) {
        let code = match result {
            Ok(_) => None,
            Err((failure, _)) => Some(failure.rdkafka_error_code().unwrap_or(Code::Fail)),
        };
        let progress = self.window.lock().report(opaque as u64, code);
        if progress && self.client.all_down() {
            self.client.forget();
        }
    }
}

/// Which of the records in flight are confirmed.
#[derive(Debug, Default)]
struct Window {
    /// Distinguishes reports from before and after a rewind.
    attempt: u16,
    /// Every record below is confirmed.
    confirmed: u64,
    /// Whether record `confirmed + i` is confirmed, for the records that were sent.
    flags: VecDeque<bool>,
    /// Why a record of this attempt was not delivered; the first such reason.
    failed: Option<Code>,
    reports: u64,
}

impl Window {
    fn sent(&mut self, first: u64, count: u64) {
        if self.flags.is_empty() && first > self.confirmed {
            // The first records after a start that nobody rewound to.
            self.confirmed = first;
        }
        debug_assert!(
            count == 0 || first == self.confirmed + self.flags.len() as u64,
            "records are sent in sequence"
        );
        self.flags.resize(self.flags.len() + count as usize, false);
    }

    /// Whether the report confirms a record of this attempt.
    fn report(&mut self, opaque: u64, code: Option<Code>) -> bool {
        self.reports += 1;
        if (opaque >> SEQ_BITS) as u16 != self.attempt {
            return false;
        }
        if let Some(code) = code {
            self.failed.get_or_insert(code);
            return false;
        }
        let index = (opaque & SEQ_MASK).wrapping_sub(self.confirmed & SEQ_MASK) & SEQ_MASK;
        if let Some(flag) = self.flags.get_mut(index as usize) {
            *flag = true;
        }
        while self.flags.front() == Some(&true) {
            self.flags.pop_front();
            self.confirmed += 1;
        }
        true
    }

    fn restart(&mut self, seq: u64) {
        self.attempt = self.attempt.wrapping_add(1);
        self.confirmed = seq;
        self.flags.clear();
        self.failed = None;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn window(first: u64, records: u64) -> Window {
        let mut window = Window::default();
        window.restart(first);
        window.sent(first, records);
        window
    }

    fn reported(window: &mut Window, seq: u64, code: Option<Code>) {
        window.report(opaque(window.attempt, seq) as u64, code);
    }

    #[test]
    fn a_failed_record_stops_the_prefix() {
        let mut window = window(100, 3);
        for (seq, code) in [(100, None), (101, Some(Code::MessageSizeTooLarge)), (102, None)] {
            reported(&mut window, seq, code);
        }
        assert_eq!(
            (window.confirmed, window.failed),
            (101, Some(Code::MessageSizeTooLarge))
        );
    }

    #[test]
    fn a_report_from_before_a_rewind_counts_for_nothing() {
        let mut window = window(100, 3);
        let stale = opaque(window.attempt, 100) as u64;
        window.restart(100);
        window.sent(100, 3);
        window.report(stale, None);
        window.report(stale, Some(Code::PurgeQueue));
        assert_eq!((window.confirmed, window.failed), (100, None));
    }

    proptest! {
        #[test]
        fn the_confirmed_prefix_ends_at_the_first_record_without_a_report(
            first in 0..1_u64 << 40,
            order in Just((0..40_u64).collect::<Vec<_>>()).prop_shuffle(),
            count in 0..40_usize,
        ) {
            let mut window = window(first, 40);
            for index in &order[..count] {
                reported(&mut window, first + index, None);
            }
            let unreported = order[count..].iter().min().copied().unwrap_or(40);
            prop_assert_eq!(window.confirmed, first + unreported);
        }
    }
}
