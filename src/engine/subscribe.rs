//! Subscriptions: the changes of a view as they happen. A slow subscriber never holds back a pipeline: it is told
//! that it lagged.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arrow::datatypes::SchemaRef;
use arrow::record_batch::RecordBatch;
use parking_lot::Mutex;
use tokio::sync::mpsc;

use super::delta::Delta;

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
}

struct Subscriber {
    sender: mpsc::Sender<ChangeSet>,
    lagged: Arc<AtomicBool>,
}

/// The receiving side.
pub(crate) struct ChangeReceiver {
    /// Changes, step by step.
    pub(crate) receiver: mpsc::Receiver<ChangeSet>,
    lagged: Arc<AtomicBool>,
}

impl ChangeReceiver {
    /// Whether changes were lost because the subscriber was too slow; nothing more comes then.
    pub(crate) fn has_lagged(&self) -> bool {
        self.lagged.load(Ordering::Acquire)
    }
}

impl Subscribers {
    /// Adds a subscriber; it gets what steps change from now on.
    pub(crate) fn add(&self) -> ChangeReceiver {
        let (sender, receiver) = mpsc::channel(STEPS_MAX);
        let lagged = Arc::new(AtomicBool::new(false));
        self.all.lock().push(Subscriber {
            sender,
            lagged: Arc::clone(&lagged),
        });
        ChangeReceiver { receiver, lagged }
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
                subscriber.lagged.store(true, Ordering::Release);
                false
            }
        });
    }
}
