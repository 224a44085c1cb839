//! Subscriptions: the changes of a view as they happen. A slow subscriber never holds back a pipeline: it is told
//! that it lagged.

use std::sync::{Arc, OnceLock};

use arrow::datatypes::SchemaRef;
use arrow::record_batch::RecordBatch;
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
    pub(crate) receiver: mpsc::Receiver<ChangeSet>,
    ending: Arc<OnceLock<Ending>>,
}

impl ChangeReceiver {
    /// Why nothing more comes; `None` where the view was dropped or the database closed.
    pub(crate) fn ending(&self) -> Option<&Ending> {
        self.ending.get()
    }
}

impl Subscribers {
    /// Adds a subscriber; it gets what steps change from now on.
    pub(crate) fn add(&self) -> ChangeReceiver {
        let (sender, receiver) = mpsc::channel(STEPS_MAX);
        let ending = Arc::new(OnceLock::new());
        let mut all = self.all.lock();
        match self.failure.get() {
            Some(failure) => drop(ending.set(Ending::Failed(failure.clone()))),
            None => all.push(Subscriber {
                sender,
                ending: Arc::clone(&ending),
            }),
        }
        ChangeReceiver { receiver, ending }
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
        let Ok(Some(delta)) = Delta::concat(schema, deltas) else {
            return;
        };
        let weights = (0..delta.num_rows()).map(|row| delta.weight(row)).collect();
        let change = ChangeSet {
            step,
            rows: delta.batch,
            weights,
        };
        all.retain(|subscriber| match subscriber.sender.try_send(change.clone()) {
            Ok(()) => true,
            Err(mpsc::error::TrySendError::Closed(_)) => false,
            Err(mpsc::error::TrySendError::Full(_)) => {
                let _ = subscriber.ending.set(Ending::Lagged);
                false
            }
        });
    }
}
