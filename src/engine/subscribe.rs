//! Subscriptions: the changes of a view as they happen. A slow subscriber never holds back a pipeline: it is told
//! that it lagged.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};

use arrow::datatypes::SchemaRef;
use arrow::record_batch::RecordBatch;
use futures::task::AtomicWaker;
use parking_lot::Mutex;
use tokio::sync::mpsc;

use super::delta::Delta;
use super::error::EngineError;

/// Steps that may wait for a subscriber.
const STEPS_MAX: usize = 1024;

/// One batch of changes.
#[derive(Debug, Clone)]
pub(crate) struct ChangeSet {
    /// The step that made them; 0 for the snapshot.
    pub(crate) step: u64,
    /// The rows.
    pub(crate) rows: RecordBatch,
    /// +1 or −1 (or more) per row.
    pub(crate) weights: Vec<i64>,
}

/// The sending side, kept with the view.
#[derive(Default)]
pub(crate) struct Subscribers {
    all: Mutex<Vec<Subscriber>>,
    /// Why the view gives nothing more.
    failure: OnceLock<EngineError>,
}

struct Subscriber {
    sender: mpsc::Sender<ChangeSet>,
    ending: Arc<OnceLock<Ending>>,
    reached: Arc<Reached>,
}

/// How far the view is, for who wants to know although nothing changes.
struct Reached {
    step: AtomicU64,
    waker: AtomicWaker,
}

/// What a subscriber is told.
pub(crate) enum Told {
    /// Changes.
    Changes(ChangeSet),
    /// It has been told all changes up to this step.
    Reached(u64),
}

/// Why nothing more comes, although the view is there.
#[derive(Debug, Clone)]
pub(crate) enum Ending {
    /// Changes were lost because the subscriber was too slow.
    Lagged,
    /// The view has failed.
    Failed(EngineError),
}

/// The receiving side.
pub(crate) struct ChangeReceiver {
    /// Changes, step by step.
    receiver: mpsc::Receiver<ChangeSet>,
    ending: Arc<OnceLock<Ending>>,
    reached: Arc<Reached>,
    /// The step that was told last to who asks how far the view is.
    told: Option<u64>,
}

impl ChangeReceiver {
    /// The next changes; where there are none, and `wants_progress`, the step up to which there are none. `None` when nothing
    /// more comes.
    pub(crate) fn poll(&mut self, context: &mut Context<'_>, wants_progress: bool) -> Poll<Option<Told>> {
        let mut step = None;
        if wants_progress {
            self.reached.waker.register(context.waker());
            // Read before the queue: the changes up to this step are in it or were taken.
            step = Some(self.reached.step.load(Ordering::SeqCst));
        }
        match self.receiver.poll_recv(context) {
            Poll::Ready(changes) => Poll::Ready(changes.map(Told::Changes)),
            Poll::Pending if step != self.told && self.receiver.is_empty() => {
                self.told = step;
                match step {
                    Some(step) => Poll::Ready(Some(Told::Reached(step))),
                    None => Poll::Pending,
                }
            }
            Poll::Pending => Poll::Pending,
        }
    }

    /// Why nothing more comes; `None` where the view was dropped or the database closed.
    pub(crate) fn ending(&self) -> Option<&Ending> {
        self.ending.get()
    }
}

impl Subscribers {
    /// Adds a subscriber; it gets what steps change from now on. `step` is the last one that is visible.
    pub(crate) fn add(&self, step: u64) -> ChangeReceiver {
        let (sender, receiver) = mpsc::channel(STEPS_MAX);
        let ending = Arc::new(OnceLock::new());
        let reached = Arc::new(Reached {
            step: AtomicU64::new(step),
            waker: AtomicWaker::new(),
        });
        let mut all = self.all.lock();
        match self.failure.get() {
            Some(failure) => drop(ending.set(Ending::Failed(failure.clone()))),
            None => all.push(Subscriber {
                sender,
                ending: Arc::clone(&ending),
                reached: Arc::clone(&reached),
            }),
        }
        ChangeReceiver {
            receiver,
            ending,
            reached,
            told: None,
        }
    }

    /// Whether the view has failed: its rows stay as they were.
    pub(crate) fn have_ended(&self) -> bool {
        self.failure.get().is_some()
    }

    /// Whether there is none.
    pub(crate) fn is_empty(&self) -> bool {
        self.all.lock().is_empty()
    }

    /// Lets go of every subscriber, because the view has failed.
    pub(crate) fn end(&self, reason: &EngineError) {
        let mut all = self.all.lock();
        let _ = self.failure.set(reason.clone());
        for subscriber in all.drain(..) {
            let _ = subscriber.ending.set(Ending::Failed(reason.clone()));
        }
    }

    /// Hands a step's changes to every subscriber, as one batch: rows that go first, then rows that come.
    pub(crate) fn send(&self, step: u64, schema: &SchemaRef, deltas: &[Delta]) {
        let mut all = self.all.lock();
        if all.is_empty() {
            return;
        }
        // The deltas are of one view, so they are of one schema and always go together.
        let delta = Delta::concat(schema, deltas).ok().flatten();
        let change = delta.map(|delta| ChangeSet {
            step,
            weights: (0..delta.num_rows()).map(|row| delta.weight(row)).collect(),
            rows: delta.batch,
        });
        all.retain(|subscriber| {
            let sent = match &change {
                Some(change) => subscriber.sender.try_send(change.clone()),
                None if subscriber.sender.is_closed() => return false,
                None => Ok(()),
            };
            match sent {
                Ok(()) => subscriber.reached.to(step),
                Err(mpsc::error::TrySendError::Closed(_)) => {}
                Err(mpsc::error::TrySendError::Full(_)) => {
                    let _ = subscriber.ending.set(Ending::Lagged);
                }
            }
            sent.is_ok()
        });
    }
}

impl Reached {
    fn to(&self, step: u64) {
        self.step.store(step, Ordering::SeqCst);
        self.waker.wake();
    }
}
