//! Subscriptions: the rows of a view as they are, read in parts, and its changes as they happen. A slow subscriber never holds back
//! a pipeline: it is told that it lagged.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};

use arrow::array::UInt64Array;
use arrow::compute::take_record_batch;
use arrow::datatypes::SchemaRef;
use arrow::record_batch::RecordBatch;
use futures::task::AtomicWaker;
use parking_lot::Mutex;
use tokio::sync::mpsc;

use super::delta::Delta;
use super::error::EngineError;
use super::view::{HeldParts, StartRows};

/// Steps that may wait for a subscriber.
const STEPS_MAX: usize = 1024;
/// Bytes of their changes; one step may wait whatever it has.
const BYTES_MAX: usize = 64 << 20;
/// Memory beside their own that the rows of a step may keep; what has more is copied.
const WASTED_BYTES_MAX: usize = 4 << 10;

/// One batch of changes.
#[derive(Debug, Clone)]
pub(crate) struct ChangeSet {
    /// The step that made them; 0 for the snapshot.
    pub(crate) step: u64,
    /// The rows.
    pub(crate) rows: RecordBatch,
    /// +1 or −1 (or more) per row.
    pub(crate) weights: Arc<[i64]>,
    /// Memory that they take.
    bytes: usize,
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
    /// The step of the rows that it starts with.
    step: u64,
    start: StartRows,
}

/// How far the view is, for who wants to know although nothing changes.
struct Reached {
    step: AtomicU64,
    /// Bytes of the changes that wait.
    waiting_bytes: AtomicUsize,
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
    /// The database was closed.
    Closed,
}

/// The receiving side.
pub(crate) struct ChangeReceiver {
    /// Changes, step by step.
    receiver: mpsc::Receiver<ChangeSet>,
    ending: Arc<OnceLock<Ending>>,
    reached: Arc<Reached>,
    /// The step that was told last to who asks how far the view is.
    told: Option<u64>,
    /// The rows that come before all changes.
    pub(crate) start: StartRows,
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
            Poll::Ready(changes) => {
                let bytes = changes.as_ref().map_or(0, |changes| changes.bytes);
                self.reached.waiting_bytes.fetch_sub(bytes, Ordering::SeqCst);
                Poll::Ready(changes.map(Told::Changes))
            }
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

impl Drop for ChangeReceiver {
    fn drop(&mut self) {
        self.start.cut();
    }
}

impl Subscribers {
    /// Adds a subscriber; it gets the rows of `start`, and then what steps change from now on. `step` is the last one that is visible.
    pub(crate) fn add(&self, step: u64, start: StartRows) -> ChangeReceiver {
        let (sender, receiver) = mpsc::channel(STEPS_MAX);
        let ending = Arc::new(OnceLock::new());
        let reached = Arc::new(Reached {
            step: AtomicU64::new(step),
            waiting_bytes: AtomicUsize::new(0),
            waker: AtomicWaker::new(),
        });
        let mut all = self.all.lock();
        // Those that have gone while nothing changed.
        all.retain(|subscriber| !subscriber.sender.is_closed());
        match self.failure.get() {
            Some(failure) => drop(ending.set(Ending::Failed(failure.clone()))),
            None => all.push(Subscriber {
                sender,
                ending: Arc::clone(&ending),
                reached: Arc::clone(&reached),
                step,
                start: start.clone(),
            }),
        }
        ChangeReceiver {
            receiver,
            ending,
            reached,
            told: None,
            start,
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
            subscriber.start.cut();
        }
    }

    /// Lets go of every subscriber, because the database closes: who has not read all rows keeps nothing open.
    pub(crate) fn close(&self) {
        for subscriber in self.all.lock().drain(..) {
            let _ = subscriber.ending.set(Ending::Closed);
            subscriber.start.cut();
        }
    }

    /// Bytes of memory that are kept for subscribers who have not taken them.
    pub(crate) fn bytes(&self) -> usize {
        let all = self.all.lock();
        // What waits for one is the end of what waits for who is slower, and the same memory.
        let waiting = all
            .iter()
            .map(|subscriber| subscriber.reached.waiting_bytes.load(Ordering::SeqCst));
        // Those that start at one step share all they hold, those of other steps what was not changed in between.
        let (mut held, mut steps) = (HeldParts::default(), BTreeSet::new());
        for subscriber in all.iter() {
            if !steps.contains(&subscriber.step) && subscriber.start.hold(&mut held) {
                steps.insert(subscriber.step);
            }
        }
        waiting.max().unwrap_or(0) + held.bytes()
    }

    /// Hands a step's changes to every subscriber, as one batch: rows that go first, then rows that come.
    pub(crate) fn send(&self, step: u64, schema: &SchemaRef, deltas: &[Delta]) {
        let mut all = self.all.lock();
        if all.is_empty() {
            return;
        }
        // The deltas are of one view, so they are of one schema and always go together.
        let delta = Delta::concat(schema, deltas).ok().flatten();
        let change = delta.map(|delta| ChangeSet::of(step, delta));
        all.retain(|subscriber| {
            let sent = match &change {
                Some(change) => subscriber.send(change),
                None if subscriber.sender.is_closed() => return false,
                None => Ok(()),
            };
            match sent {
                Ok(()) => subscriber.reached.to(step),
                Err(mpsc::error::TrySendError::Closed(_)) => {}
                Err(mpsc::error::TrySendError::Full(_)) => {
                    let _ = subscriber.ending.set(Ending::Lagged);
                    // Without the changes after them they are of no use.
                    subscriber.start.cut();
                }
            }
            sent.is_ok()
        });
    }
}

impl ChangeSet {
    fn of(step: u64, delta: Delta) -> Self {
        let weights: Arc<[i64]> = (0..delta.num_rows()).map(|row| delta.weight(row)).collect();
        let rows = compact(delta.batch);
        Self {
            step,
            bytes: rows.get_array_memory_size() + size_of_val(&*weights),
            rows,
            weights,
        }
    }
}

/// The rows without the memory of others that their arrays are a part of.
fn compact(rows: RecordBatch) -> RecordBatch {
    let own = rows.columns().iter().map(|column| {
        let data = column.to_data();
        data.get_slice_memory_size()
            .unwrap_or_else(|_| column.get_array_memory_size())
    });
    if rows.get_array_memory_size() <= WASTED_BYTES_MAX + 2 * own.sum::<usize>() {
        return rows;
    }
    let all = UInt64Array::from_iter_values(0..rows.num_rows() as u64);
    take_record_batch(&rows, &all).unwrap_or(rows)
}

impl Subscriber {
    /// Puts changes into the queue, if there is room.
    fn send(&self, change: &ChangeSet) -> Result<(), mpsc::error::TrySendError<ChangeSet>> {
        let waiting = &self.reached.waiting_bytes;
        let before = waiting.fetch_add(change.bytes, Ordering::SeqCst);
        let sent = match before > 0 && before + change.bytes > BYTES_MAX {
            true => Err(mpsc::error::TrySendError::Full(change.clone())),
            false => self.sender.try_send(change.clone()),
        };
        if sent.is_err() {
            waiting.fetch_sub(change.bytes, Ordering::SeqCst);
        }
        sent
    }
}

impl Reached {
    fn to(&self, step: u64) {
        self.step.store(step, Ordering::SeqCst);
        self.waker.wake();
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::{ArrayRef, StringArray};
    use arrow::datatypes::{DataType, Field, Schema};
    use futures::task::noop_waker;
    use highwater_storage::{CheckpointWriter, Durability, Epoch, MemoryStore, ObjectId, Store};

    use super::*;
    use crate::engine::view::{ViewLayout, ViewStore};

    fn schema() -> SchemaRef {
        Arc::new(Schema::new(vec![Field::new("v", DataType::Utf8, false)]))
    }

    /// Rows with so many bytes each.
    fn rows(count: usize, bytes: usize) -> Delta {
        let text = "x".repeat(bytes);
        let column: ArrayRef = Arc::new(StringArray::from_iter_values((0..count).map(|_| &text)));
        Delta::inserts(RecordBatch::try_new(schema(), vec![column]).unwrap())
    }

    /// One row in the store, so that nothing of it is in memory.
    fn one_row() -> StartRows {
        let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
        let open = || ViewStore::open(Arc::clone(&store), ObjectId(1), schema(), ViewLayout::Log).unwrap();
        let mut view = open();
        let change = view.base().prepare(&[rows(1, 0)]).unwrap();
        view.apply(change);
        let mut writer = CheckpointWriter::new(Epoch(1));
        view.freeze().unwrap().write(&mut writer).unwrap();
        store.commit(writer.finish(), Durability::Sync).unwrap();
        StartRows::new(open().reader())
    }

    fn poll(receiver: &mut ChangeReceiver) -> Poll<Option<Told>> {
        receiver.poll(&mut Context::from_waker(&noop_waker()), false)
    }

    #[test]
    fn what_waits_for_a_subscriber_is_bounded_in_bytes() {
        let subscribers = Subscribers::default();
        let mut receiver = subscribers.add(0, one_row());
        let step_bytes = 1 << 20;
        let mut steps = 0;
        while !subscribers.is_empty() {
            steps += 1;
            subscribers.send(steps, &schema(), &[rows(1, step_bytes)]);
            assert!(subscribers.bytes() <= BYTES_MAX);
        }
        assert!((60..=64).contains(&steps), "{steps} steps");
        assert!(receiver.start.is_cut(), "rows at the start are let go of");
        let mut taken = 0;
        while let Poll::Ready(Some(Told::Changes(_))) = poll(&mut receiver) {
            taken += 1;
        }
        assert_eq!(taken, steps - 1);
        assert!(matches!(receiver.ending(), Some(Ending::Lagged)));
    }

    #[test]
    fn one_step_passes_whatever_it_has_and_room_comes_back_when_it_is_taken() {
        let subscribers = Subscribers::default();
        let mut receiver = subscribers.add(0, one_row());
        for step in 1..4 {
            subscribers.send(step, &schema(), &[rows(2, BYTES_MAX)]);
            assert!(subscribers.bytes() > BYTES_MAX);
            assert!(matches!(poll(&mut receiver), Poll::Ready(Some(Told::Changes(_)))));
            assert_eq!(subscribers.bytes(), 0);
        }
        subscribers.send(4, &schema(), &[rows(2, BYTES_MAX)]);
        subscribers.send(5, &schema(), &[rows(1, 1)]);
        assert!(subscribers.is_empty(), "nothing else waits beside it");
    }

    #[test]
    fn what_is_held_of_several_steps_is_counted_once_and_of_each() {
        let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
        let mut view = ViewStore::open(store, ObjectId(1), schema(), ViewLayout::Log).unwrap();
        let mut append = |rows: Delta| {
            let change = view.base().prepare(&[rows]).unwrap();
            view.apply(change);
            StartRows::new(view.reader())
        };
        let subscribers = Subscribers::default();
        let first = append(rows(100, 100));
        let _one = subscribers.add(1, first.clone());
        let one = subscribers.bytes();
        assert!(one >= 10_000, "{one}");
        let _same = subscribers.add(1, first);
        assert_eq!(subscribers.bytes(), one, "both hold the same rows");
        let later = subscribers.add(2, append(rows(300, 100)));
        let both = subscribers.bytes();
        assert!(
            both >= one + 30_000 && both < 2 * one + 30_000,
            "{both} bytes, and {one} of the first step, which are held once"
        );
        later.start.skip();
        assert_eq!(subscribers.bytes(), one);
    }

    #[test]
    fn a_few_rows_do_not_keep_the_batch_that_they_are_of() {
        let batch = rows(1000, 1000).batch;
        let subscribers = Subscribers::default();
        let _receiver = subscribers.add(0, one_row());
        let few = Delta::inserts(batch.slice(10, 2));
        subscribers.send(1, &schema(), &[few]);
        assert!(subscribers.bytes() < 5_000, "{}", subscribers.bytes());
    }
}
