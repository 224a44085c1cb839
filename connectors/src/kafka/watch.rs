//! What happens beside the data: a mailbox that the lanes and a watching thread write to and the control plane reads,
//! and the thread, which asks the brokers what may take its time so that the control plane never waits for them.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use super::native::Consumer;
use super::probe::{Asking, Range, check_identity};
use crate::error::{ConnectorError, ErrorKind};
use crate::source::{PartitionId, Positions, RecoveryIdentity};

/// How long the watching thread waits for one answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

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
            missed: false,
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
    /// Whether the topic was missing at the last look.
    missed: bool,
}

impl WatchThread {
    fn run(mut self) {
        let mut due = self.next_due();
        while let Some(lost) = self.wait(due) {
            self.find(lost);
            if due.is_some_and(|due| due <= Instant::now()) {
                if let Err(error) = self.look() {
                    self.mailbox.post(Note::Ended(error));
                    return;
                }
                due = self.next_due();
            }
        }
    }

    fn next_due(&self) -> Option<Instant> {
        self.watched.interval.map(|interval| Instant::now() + interval)
    }

    /// Sleeps until an order or `due`. `None` to stop.
    fn wait(&self, due: Option<Instant>) -> Option<Positions> {
        let mut state = self.orders.state.lock();
        while !state.stop && state.lost.is_empty() && due.is_none_or(|due| due > Instant::now()) {
            match due {
                Some(due) => {
                    self.orders.changed.wait_until(&mut state, due);
                }
                None => self.orders.changed.wait(&mut state),
            }
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

    /// The topic is missing. A broker that has just started may not know it yet, so once is no news.
    fn miss(&mut self, error: ConnectorError) -> Result<(), ConnectorError> {
        if std::mem::replace(&mut self.missed, true) {
            return Err(error.with_detail("The topic was deleted while the source was reading it."));
        }
        Ok(())
    }

    /// Looks for new partitions, and whether the topic is still the same one.
    ///
    /// # Errors
    /// When it is not. A broker that does not answer is no news: the client's own complaints show it.
    fn look(&mut self) -> Result<(), ConnectorError> {
        let found = match self.asking().partitions() {
            Ok(found) => found,
            Err(error) if error.kind == ErrorKind::NotFound => return self.miss(error),
            Err(_) => return Ok(()),
        };
        self.missed = false;
        match self
            .asking()
            .identity()
            .and_then(|found| check_identity(&self.watched.identity, &found))
        {
            Err(error) if error.kind == ErrorKind::PositionLost => return Err(error),
            _ => {}
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
