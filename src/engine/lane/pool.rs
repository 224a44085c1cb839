//! The pool of lane threads, shared by all pipelines. A thread sleeps on one condition variable until a lane has
//! something to do: no spinning and no polling interval. Readers take turns; of one reader's lanes the one that is furthest
//! behind in event time goes first.

use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::Instant;

use parking_lot::{Condvar, Mutex};

use super::queue::LaneShared;

/// What a lane says after a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Turn {
    /// There may be more at once.
    Again,
    /// Nothing to do until woken.
    Wait,
    /// Nothing to do until this time, or until woken.
    Due(Instant),
    /// It will never have anything to do again.
    Finished,
}

/// What the pool runs.
pub(crate) trait LaneTurn: Send {
    /// Does a bounded piece of work.
    fn turn(&mut self) -> Turn;
}

/// A lane in the pool.
pub(crate) struct LaneSlot {
    task: Mutex<Option<Box<dyn LaneTurn>>>,
    reader: ReaderId,
    /// What the lane shares with its pipeline.
    pub(crate) shared: Arc<LaneShared>,
    schedule: AtomicU8,
    pool: Weak<PoolShared>,
}

/// Which reader a lane belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ReaderId(u64);

const IDLE: u8 = 0;
const QUEUED: u8 = 1;
const RUNNING: u8 = 2;
const RUNNING_WOKEN: u8 = 3;
const DEAD: u8 = 4;

struct PoolState {
    /// In the order in which they became ready.
    ready: Vec<Arc<LaneSlot>>,
    readers: u64,
    timers: Vec<(Instant, Weak<LaneSlot>)>,
    closed: bool,
}

struct PoolShared {
    state: Mutex<PoolState>,
    condvar: Condvar,
}

/// The threads.
pub(crate) struct LanePool {
    shared: Arc<PoolShared>,
    threads: Vec<JoinHandle<()>>,
}

impl LanePool {
    /// Starts `threads` threads.
    ///
    /// # Errors
    /// When the operating system gives no thread.
    pub(crate) fn start(threads: usize) -> std::io::Result<Self> {
        let shared = Arc::new(PoolShared {
            state: Mutex::new(PoolState {
                ready: Vec::new(),
                readers: 0,
                timers: Vec::new(),
                closed: false,
            }),
            condvar: Condvar::new(),
        });
        let threads = (0..threads.max(1))
            .map(|number| {
                let shared = Arc::clone(&shared);
                std::thread::Builder::new()
                    .name(format!("hw-lane-{number}"))
                    .spawn(move || shared.run())
            })
            .collect::<Result<Vec<_>, _>>()?;
        Ok(Self { shared, threads })
    }

    /// A new reader, to add lanes for.
    pub(crate) fn reader(&self) -> ReaderId {
        let mut state = self.shared.state.lock();
        state.readers += 1;
        ReaderId(state.readers)
    }

    /// Adds a lane; it gets its first turn at once. `make` receives the slot so that the lane can wake itself.
    pub(crate) fn add(
        &self,
        reader: ReaderId,
        shared: Arc<LaneShared>,
        make: impl FnOnce(&Arc<LaneSlot>) -> Box<dyn LaneTurn>,
    ) -> Arc<LaneSlot> {
        let slot = Arc::new(LaneSlot {
            task: Mutex::new(None),
            reader,
            shared,
            schedule: AtomicU8::new(IDLE),
            pool: Arc::downgrade(&self.shared),
        });
        {
            // The lane's waker may fire while the task is being made; a thread that comes too early waits here.
            let mut task = slot.task.lock();
            *task = Some(make(&slot));
        }
        slot.wake();
        slot
    }
}

impl Drop for LanePool {
    fn drop(&mut self) {
        self.shared.state.lock().closed = true;
        self.shared.condvar.notify_all();
        for thread in self.threads.drain(..) {
            // The last owner of the pool may be one of its own threads (a lane's waker); it cannot wait for itself.
            if thread.thread().id() != std::thread::current().id() {
                let _ = thread.join();
            }
        }
    }
}

impl LaneSlot {
    /// Lets the lane have a turn soon. Cheap, never blocks for long, callable from any thread.
    pub(crate) fn wake(self: &Arc<Self>) {
        loop {
            let now = self.schedule.load(Ordering::Acquire);
            let next = match now {
                IDLE => QUEUED,
                RUNNING => RUNNING_WOKEN,
                _ => return,
            };
            if self
                .schedule
                .compare_exchange(now, next, Ordering::AcqRel, Ordering::Acquire)
                .is_ok()
            {
                if next == QUEUED {
                    self.enqueue();
                }
                return;
            }
        }
    }

    /// Takes the lane out of the pool and drops its task, waiting for a turn that runs.
    pub(crate) fn remove(&self) {
        self.schedule.store(DEAD, Ordering::Release);
        let task = self.task.lock().take();
        drop(task);
    }

    fn enqueue(self: &Arc<Self>) {
        if let Some(pool) = self.pool.upgrade() {
            pool.state.lock().ready.push(Arc::clone(self));
            pool.condvar.notify_one();
        }
    }

    fn run(self: &Arc<Self>) {
        if self
            .schedule
            .compare_exchange(QUEUED, RUNNING, Ordering::AcqRel, Ordering::Acquire)
            .is_err()
        {
            return;
        }
        let turn = match self.task.lock().as_mut() {
            Some(task) => task.turn(),
            None => Turn::Finished,
        };
        match turn {
            Turn::Again => self.requeue(),
            Turn::Wait => self.rest(),
            Turn::Due(at) => {
                self.set_timer(at);
                self.rest();
            }
            Turn::Finished => self.schedule.store(DEAD, Ordering::Release),
        }
    }

    fn requeue(self: &Arc<Self>) {
        let was = self.schedule.swap(QUEUED, Ordering::AcqRel);
        if was == DEAD {
            self.schedule.store(DEAD, Ordering::Release);
        } else {
            self.enqueue();
        }
    }

    fn rest(self: &Arc<Self>) {
        if self
            .schedule
            .compare_exchange(RUNNING, IDLE, Ordering::AcqRel, Ordering::Acquire)
            .is_err()
        {
            self.requeue();
        }
    }

    fn set_timer(self: &Arc<Self>, at: Instant) {
        if let Some(pool) = self.pool.upgrade() {
            pool.state.lock().timers.push((at, Arc::downgrade(self)));
        }
    }
}

impl PoolShared {
    fn run(&self) {
        while let Some(slot) = self.next() {
            slot.run();
        }
    }

    /// The next lane to run, or `None` when the pool closes.
    fn next(&self) -> Option<Arc<LaneSlot>> {
        let mut state = self.state.lock();
        loop {
            if state.closed {
                return None;
            }
            let now = Instant::now();
            let due = take_due(&mut state.timers, now);
            if !due.is_empty() {
                drop(state);
                due.iter().for_each(LaneSlot::wake);
                state = self.state.lock();
            }
            if let Some(next) = take_next(&mut state.ready) {
                return Some(next);
            }
            match state.timers.iter().map(|(at, _)| *at).min() {
                Some(at) => {
                    self.condvar.wait_until(&mut state, at);
                }
                None => self.condvar.wait(&mut state),
            }
        }
    }
}

fn take_due(timers: &mut Vec<(Instant, Weak<LaneSlot>)>, now: Instant) -> Vec<Arc<LaneSlot>> {
    let mut due = Vec::new();
    timers.retain(|(at, slot)| {
        let is_due = *at <= now;
        if is_due && let Some(slot) = slot.upgrade() {
            due.push(slot);
        }
        !is_due && slot.strong_count() > 0
    });
    due
}

/// Of the reader that has waited longest the lane that is furthest behind. The reader has had its turn then: no reader
/// keeps another one waiting.
fn take_next(ready: &mut Vec<Arc<LaneSlot>>) -> Option<Arc<LaneSlot>> {
    let reader = ready.first()?.reader;
    let lanes = (0..ready.len()).filter(|index| ready[*index].reader == reader);
    let behind = lanes.min_by_key(|index| ready[*index].shared.event_time.load(Ordering::Relaxed))?;
    let slot = ready.remove(behind);
    if behind > 0 {
        ready.rotate_left(1);
    }
    Some(slot)
}

#[cfg(test)]
mod tests {
    use highwater_connectors::source::PartitionId;

    use super::*;
    use crate::engine::lane::queue::Signal;

    fn slot(reader: u64, event_time: i64) -> Arc<LaneSlot> {
        let shared = LaneShared::new(PartitionId(0), Arc::new(Signal::default()));
        shared.event_time.store(event_time, Ordering::Relaxed);
        Arc::new(LaneSlot {
            task: Mutex::new(None),
            reader: ReaderId(reader),
            shared: Arc::new(shared),
            schedule: AtomicU8::new(QUEUED),
            pool: Weak::new(),
        })
    }

    #[test]
    fn readers_take_turns_and_the_lane_furthest_behind_is_the_first_of_its_reader() {
        let mut ready = vec![slot(1, 70), slot(2, 9), slot(1, 5), slot(3, i64::MIN)];
        let mut order = Vec::new();
        for _ in 0..8 {
            let next = take_next(&mut ready).expect("there is one");
            order.push((next.reader.0, next.shared.event_time.load(Ordering::Relaxed)));
            // It has more at once, as in a catch-up.
            ready.push(next);
        }
        let min = i64::MIN;
        assert_eq!(
            order,
            [(1, 5), (2, 9), (3, min), (1, 5), (2, 9), (3, min), (1, 5), (2, 9)]
        );
    }
}
