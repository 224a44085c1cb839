//! The thread of a sink: takes rows from the outbox in sequence, hands them to the client, reports what is confirmed.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use highwater_connectors::sink::Sink;
use highwater_connectors::statistics::ClientStatistics;
use highwater_connectors::{ConnectorError, ErrorKind};
use parking_lot::Mutex;

use super::outbox::Outbox;
use crate::engine::error::EngineError;
use crate::engine::lane::queue::Signal;
use crate::engine::reaper::Predecessors;

const WRITE_WAIT: Duration = Duration::from_millis(200);
const CONFIRM_WAIT: Duration = Duration::from_millis(20);
const IDLE_WAIT: Duration = Duration::from_millis(500);
const RETRY_FIRST: Duration = Duration::from_millis(200);
const RETRY_MAX: Duration = Duration::from_secs(10);
const CLOSE_WAIT: Duration = Duration::from_secs(5);

/// How a sink is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum SinkState {
    /// Delivering, or waiting for rows.
    Running,
    /// A fault that is tried again.
    Retrying(EngineError),
    /// Stopped for good; rows stay in the outbox.
    Failed(EngineError),
}

/// Makes the sink's client, once per attempt to open it.
pub(crate) type MakeSink = Box<dyn Fn() -> Result<Box<dyn Sink>, ConnectorError> + Send>;

/// A running sink. Dropping it waits briefly for what is in flight.
pub(crate) struct SinkWorker {
    outbox: Arc<Outbox>,
    turn: u64,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

/// What the thread shows of itself.
struct Shared {
    state: Mutex<SinkState>,
    /// Deliveries that failed.
    failures: AtomicU64,
    statistics: Mutex<Option<Arc<ClientStatistics>>>,
}

impl SinkWorker {
    /// Starts delivering from the outbox's first unconfirmed row, once its predecessors have closed.
    ///
    /// # Errors
    /// When the operating system gives no thread.
    pub(crate) fn start(
        name: &str,
        make: MakeSink,
        outbox: Arc<Outbox>,
        (signal, predecessors): (Arc<Signal>, Predecessors),
    ) -> Result<Self, EngineError> {
        let turn = outbox.begin();
        let shared = Arc::new(Shared {
            state: Mutex::new(SinkState::Running),
            failures: AtomicU64::new(0),
            statistics: Mutex::new(None),
        });
        let delivery = Delivery {
            name: name.to_owned(),
            make,
            sink: None,
            outbox: Arc::clone(&outbox),
            shared: Arc::clone(&shared),
            turn,
            signal,
            predecessors,
            next: 0,
        };
        let thread = std::thread::Builder::new()
            .name(format!("hw-sink-{name}"))
            .spawn(move || delivery.run())
            .map_err(|error| EngineError::new("53000", format!("no thread for a sink: {error}")))?;
        Ok(Self {
            outbox,
            turn,
            shared,
            thread: Some(thread),
        })
    }

    /// How it is.
    pub(crate) fn state(&self) -> SinkState {
        self.shared.state.lock().clone()
    }

    /// Lets it end: nothing more is handed to the client. Dropping it waits for that.
    pub(crate) fn end(&self) {
        self.outbox.end(self.turn);
    }

    /// Deliveries that failed since it was started.
    pub(crate) fn failures(&self) -> u64 {
        self.shared.failures.load(Ordering::Relaxed)
    }

    /// What the client told of itself last.
    pub(crate) fn statistics(&self) -> Option<Arc<ClientStatistics>> {
        self.shared.statistics.lock().clone()
    }
}

impl Drop for SinkWorker {
    fn drop(&mut self) {
        self.end();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

struct Delivery {
    name: String,
    make: MakeSink,
    sink: Option<Box<dyn Sink>>,
    outbox: Arc<Outbox>,
    turn: u64,
    shared: Arc<Shared>,
    signal: Arc<Signal>,
    predecessors: Predecessors,
    /// The next row to hand to the client.
    next: u64,
}

impl Delivery {
    fn run(mut self) {
        let mut retry = RETRY_FIRST;
        while !self.is_over() && !self.predecessors.wait(WRITE_WAIT) {}
        // What they have confirmed while they closed is not sent again.
        self.next = self.outbox.confirmed_seq();
        while !self.is_over() {
            let round = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| self.round()));
            if let Some(sink) = &mut self.sink {
                *self.shared.statistics.lock() = sink.statistics();
            }
            let error = match round {
                Ok(Ok(())) => {
                    retry = RETRY_FIRST;
                    continue;
                }
                Ok(Err(error)) => error,
                Err(_) => ConnectorError::new(ErrorKind::Permanent, "a sink panicked"),
            };
            self.shared.failures.fetch_add(1, Ordering::Relaxed);
            if error.kind != ErrorKind::Transient {
                tracing::error!(sink = %self.name, error = %error, "sink stopped");
                *self.shared.state.lock() = SinkState::Failed(error.into());
                self.signal.raise();
                break;
            }
            self.back_off(error, retry);
            retry = (retry * 2).min(RETRY_MAX);
        }
        let Some(sink) = &mut self.sink else { return };
        sink.close(CLOSE_WAIT);
        // What was confirmed while closing need not be sent again.
        if let Ok(confirmed) = sink.poll_confirmed(Duration::ZERO) {
            self.outbox.confirm(confirmed);
        }
    }

    fn is_over(&self) -> bool {
        self.outbox.is_over(self.turn)
    }

    /// The client, opened at the first use.
    fn sink(&mut self) -> Result<&mut Box<dyn Sink>, ConnectorError> {
        if self.sink.is_none() {
            let mut sink = (self.make)()?;
            sink.rewind(self.next);
            self.sink = Some(sink);
        }
        Ok(self.sink.as_mut().expect("the sink was just opened"))
    }

    /// Hands over what there is, then serves confirmations.
    fn round(&mut self) -> Result<(), ConnectorError> {
        let in_flight = self.next > self.outbox.confirmed_seq();
        let wait = if in_flight { Duration::ZERO } else { IDLE_WAIT };
        if let Some(chunk) = self.outbox.chunk_at(self.next, wait, self.turn) {
            let records = chunk.records(&self.outbox.encoder)?;
            let from = usize::try_from(self.next - chunk.first_seq()).unwrap_or(usize::MAX);
            fail::fail_point!("sink-before-write");
            self.next += self.sink()?.write(&records, from, WRITE_WAIT)? as u64;
            fail::fail_point!("sink-after-write");
            self.confirm(Duration::ZERO)
        } else if in_flight {
            self.confirm(CONFIRM_WAIT)
        } else {
            Ok(())
        }
    }

    fn confirm(&mut self, wait: Duration) -> Result<(), ConnectorError> {
        let before = self.outbox.confirmed_seq();
        let confirmed = self.sink()?.poll_confirmed(wait)?;
        if confirmed > before {
            fail::fail_point!("sink-before-confirm");
            if self.outbox.confirm(confirmed) {
                self.signal.raise();
            }
            *self.shared.state.lock() = SinkState::Running;
        } else if self.next > before
            && let Some(trouble) = self.sink()?.trouble()
        {
            *self.shared.state.lock() = SinkState::Retrying(trouble.into());
        }
        Ok(())
    }

    fn back_off(&mut self, error: ConnectorError, retry: Duration) {
        tracing::warn!(sink = %self.name, error = %error, "sink tries again");
        *self.shared.state.lock() = SinkState::Retrying(error.into());
        // A closing outbox ends the wait at once.
        let _ = self.outbox.chunk_at(u64::MAX, retry, self.turn);
        self.next = self.outbox.confirmed_seq();
        if let Some(sink) = &mut self.sink {
            sink.rewind(self.next);
        }
    }
}
