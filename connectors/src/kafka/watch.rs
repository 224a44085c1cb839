//! What happens beside the data: a mailbox that the lanes and a watching thread write to and the control plane reads,
//! and the thread, which asks the brokers what may take its time so that the control plane never waits for them.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use super::native::Consumer;
use super::probe::{Asking, Range, check_identity};
use super::pulse::{Pulses, StallCheck};
use crate::error::{ConnectorError, ErrorKind};
use crate::source::{PartitionId, Positions, RecoveryIdentity};

/// How long the watching thread waits for one answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);
/// How often it looks, if not for new partitions.
const LOOK_INTERVAL: Duration = Duration::from_secs(10);
/// How often it looks while no broker answers.
const UNANSWERED_INTERVAL: Duration = Duration::from_secs(1);
/// For how many intervals a topic must be missing to be gone: a broker that has just started, or has more to do than
/// it can, says that topics are missing which are not.
const GONE_AFTER: u32 = 2;

/// One thing for the control plane to act on.
#[derive(Debug)]
pub(super) enum Note {
    /// A lane's position is gone at the broker; the client has stopped fetching for it.
    Lost { partition: PartitionId, position: i64 },
    /// What the broker holds of a partition whose position is gone.
    Found {
        partition: PartitionId,
        position: i64,
        range: Range,
    },
    /// A lane has got nothing for long, and the broker has records for it.
    Stalled { partition: PartitionId, position: i64 },
    /// Something to be shown, which may pass.
    Trouble(ConnectorError),
    /// The brokers answer: a trouble that was shown has passed.
    Answered,
    /// librdkafka complained about one partition and goes on.
    Fault {
        partition: PartitionId,
        code: i32,
        text: String,
    },
    /// Partitions that were not there before, with their first offsets.
    Appeared(Positions),
    /// The topic is not the one that positions belong to any more.
    Ended(ConnectorError),
}

/// A queue of notes, and the bell that wakes the control plane.
#[derive(Debug, Default)]
pub(super) struct Mailbox {
    state: Mutex<MailboxState>,
    bell: Condvar,
}

#[derive(Debug, Default)]
struct MailboxState {
    notes: Vec<Note>,
    rung: bool,
}

impl Mailbox {
    /// Leaves a note and rings.
    pub(super) fn post(&self, note: Note) {
        self.state.lock().notes.push(note);
        self.ring();
    }

    /// Wakes the control plane without a note: the client has events to serve.
    pub(super) fn ring(&self) {
        self.state.lock().rung = true;
        self.bell.notify_all();
    }

    /// Takes all notes.
    pub(super) fn take(&self) -> Vec<Note> {
        std::mem::take(&mut self.state.lock().notes)
    }

    /// Sleeps until somebody has rung since the last return, at most until `deadline`. Whether somebody has.
    pub(super) fn wait_until(&self, deadline: Instant) -> bool {
        let mut state = self.state.lock();
        while !state.rung {
            if self.bell.wait_until(&mut state, deadline).timed_out() {
                break;
            }
        }
        std::mem::take(&mut state.rung)
    }
}

/// The control plane's hold on the watching thread; dropping it lets the thread end at its next turn.
pub(super) struct Watch {
    orders: Arc<Orders>,
}

#[derive(Default)]
struct Orders {
    state: Mutex<OrdersState>,
    changed: Condvar,
}

#[derive(Default)]
struct OrdersState {
    stop: bool,
    /// Whether the topic is to be looked at now.
    look: bool,
    /// Partitions whose range is asked for, with the position that is gone.
    lost: Positions,
}

/// What the watching thread looks after.
pub(super) struct Watched {
    /// The client to ask with.
    pub consumer: Arc<Consumer>,
    /// Bootstrap addresses, for errors.
    pub servers: String,
    /// The topic.
    pub topic: String,
    /// Partitions that have lanes already.
    pub known: BTreeSet<PartitionId>,
    /// What the positions belong to.
    pub identity: RecoveryIdentity,
    /// How often to look for new partitions; `None` for never.
    pub interval: Option<Duration>,
    /// What the lanes show of themselves.
    pub pulses: Pulses,
}

impl Watch {
    /// Starts the thread, which writes to `mailbox`.
    ///
    /// # Errors
    /// When the system gives no thread.
    pub(super) fn start(watched: Watched, mailbox: Arc<Mailbox>) -> Result<Self, ConnectorError> {
        let orders = Arc::new(Orders::default());
        let thread = WatchThread {
            watched,
            mailbox,
            orders: Arc::clone(&orders),
            missing_since: None,
            is_answered: true,
            stalls: StallCheck::default(),
        };
        std::thread::Builder::new()
            .name("kafka-watch".into())
            .spawn(move || thread.run())
            .map_err(|error| {
                ConnectorError::new(
                    ErrorKind::Permanent,
                    "cannot start a thread to watch Kafka partitions",
                )
                .with_detail(format!("{error}."))
            })?;
        Ok(Self { orders })
    }

    /// Asks for the range of `partition`, to be answered by [`Note::Found`], as often as it takes.
    pub(super) fn find(&self, partition: PartitionId, position: i64) {
        self.orders.state.lock().lost.insert(partition, position);
        self.orders.changed.notify_all();
    }

    /// Looks at the topic without waiting for the next time.
    pub(super) fn look(&self) {
        self.orders.state.lock().look = true;
        self.orders.changed.notify_all();
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.orders.state.lock().stop = true;
        self.orders.changed.notify_all();
    }
}

struct WatchThread {
    watched: Watched,
    mailbox: Arc<Mailbox>,
    orders: Arc<Orders>,
    /// Since when every look has missed the topic.
    missing_since: Option<Instant>,
    /// Whether the last look was answered.
    is_answered: bool,
    stalls: StallCheck,
}

impl WatchThread {
    fn run(mut self) {
        let mut due = Instant::now() + self.interval();
        while let Some(lost) = self.wait(due) {
            self.find(lost);
            let is_due = due <= Instant::now();
            let is_ordered = std::mem::take(&mut self.orders.state.lock().look);
            if (is_due || is_ordered)
                && let Err(error) = self.look()
            {
                self.mailbox.post(Note::Ended(error));
                return;
            }
            if is_due {
                self.look_for_stalls();
            }
            if is_due || !self.is_answered {
                due = Instant::now() + self.pause();
            }
        }
    }

    fn interval(&self) -> Duration {
        self.watched.interval.unwrap_or(LOOK_INTERVAL)
    }

    /// How long to wait for the next look: not long while nobody answers.
    fn pause(&self) -> Duration {
        let interval = self.interval();
        if self.is_answered {
            interval
        } else {
            interval.min(UNANSWERED_INTERVAL)
        }
    }

    /// Sleeps until an order or `due`. `None` to stop.
    fn wait(&self, due: Instant) -> Option<Positions> {
        let mut state = self.orders.state.lock();
        while !state.stop && !state.look && state.lost.is_empty() && due > Instant::now() {
            self.orders.changed.wait_until(&mut state, due);
        }
        if state.stop {
            None
        } else {
            Some(std::mem::take(&mut state.lost))
        }
    }

    fn asking(&self) -> Asking<'_> {
        let watched = &self.watched;
        Asking::new(
            &watched.consumer,
            &watched.servers,
            &watched.topic,
            ANSWER_TIMEOUT,
        )
    }

    fn find(&self, lost: Positions) {
        for (partition, position) in lost {
            match self.asking().range(partition) {
                Ok(range) => self.mailbox.post(Note::Found {
                    partition,
                    position,
                    range,
                }),
                // Asked again until it is answered: the lane cannot go on without. Each question waits for seconds
                // before it fails, unless the answer is a refusal.
                Err(error) if error.kind == ErrorKind::Transient => {
                    self.orders.state.lock().lost.insert(partition, position);
                }
                Err(error) => self.mailbox.post(Note::Ended(error)),
            }
        }
    }

    /// The topic is missing, which is shown, and ends the source when it stays so.
    fn miss(&mut self, error: ConnectorError) -> Result<(), ConnectorError> {
        let since = *self.missing_since.get_or_insert_with(Instant::now);
        if since.elapsed() >= self.interval() * GONE_AFTER {
            return Err(error.with_detail("The topic was deleted while the source was reading it."));
        }
        self.mailbox.post(Note::Trouble(error));
        Ok(())
    }

    /// Looks for lanes that get nothing although there is something.
    fn look_for_stalls(&mut self) {
        let mut stalls = std::mem::take(&mut self.stalls);
        let end = |partition| self.asking().range(partition).ok().map(|range| range.high);
        for (partition, position) in stalls.look(&self.watched.pulses, end) {
            self.mailbox.post(Note::Stalled { partition, position });
        }
        self.stalls = stalls;
    }

    /// Looks for new partitions, and whether the topic is still the same one.
    ///
    /// # Errors
    /// When it is not. A broker that does not answer is no news: the client's own complaints show it.
    fn look(&mut self) -> Result<(), ConnectorError> {
        let found = match self.asking().partitions() {
            Ok(found) => found,
            Err(error) if error.kind == ErrorKind::NotFound => return self.miss(error),
            Err(_) => {
                self.is_answered = false;
                return Ok(());
            }
        };
        self.is_answered = true;
        self.mailbox.post(Note::Answered);
        self.missing_since = None;
        match self
            .asking()
            .identity()
            .and_then(|found| check_identity(&self.watched.identity, &found))
        {
            Err(error) if error.kind == ErrorKind::PositionLost => return Err(error),
            _ => {}
        }
        if self.watched.interval.is_none() {
            return Ok(());
        }
        let mut appeared = Positions::new();
        for partition in found.difference(&self.watched.known) {
            if let Ok(range) = self.asking().range(*partition) {
                appeared.insert(*partition, range.low);
            }
        }
        if !appeared.is_empty() {
            self.watched.known.extend(appeared.keys());
            self.mailbox.post(Note::Appeared(appeared));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bell_that_rang_before_the_wait_is_heard_once() {
        let mailbox = Mailbox::default();
        mailbox.ring();
        assert!(mailbox.wait_until(Instant::now()));
        assert!(!mailbox.wait_until(Instant::now()));
    }

    #[test]
    fn notes_are_taken_in_order() {
        let mailbox = Mailbox::default();
        mailbox.post(Note::Lost {
            partition: PartitionId(1),
            position: 5,
        });
        mailbox.post(Note::Appeared(Positions::new()));
        let notes = mailbox.take();
        assert!(matches!(
            notes[..],
            [Note::Lost { position: 5, .. }, Note::Appeared(_)]
        ));
        assert!(mailbox.take().is_empty());
    }
}
