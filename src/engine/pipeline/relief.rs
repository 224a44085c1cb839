//! [`Relief`]: what a pipeline does when more memory is used than there is (ADR-23).
//!
//! ```text
//! over the budget ─▶ checkpoint, no steps meanwhile ─▶ durable: all is clean ─▶ evict down to the low water ─▶ steps
//! ```

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::checkpoint::{InFlight, has_news};
use super::failure::fail;
use crate::engine::error::EngineError;
use crate::engine::lane::queue::Signal;
use crate::engine::memory::{MemoryBudget, Wake};
use crate::engine::query::Query;

/// Memory is measured at most this often.
const MEASURE_PAUSE: Duration = Duration::from_millis(1);

/// Measuring takes at most one part in so many of the time.
const MEASURE_SHARE: u32 = 50;

/// When eviction has not helped it is tried again after a further part of the budget is used, one in so many.
const RETRY_SHARE: usize = 16;

/// Watches the memory of a pipeline.
pub(super) struct Relief {
    memory: Arc<MemoryBudget>,
    state: State,
    /// Bytes that were used after an eviction that did not help enough.
    in_vain: usize,
    measure_at: Instant,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// There is enough.
    Enough,
    /// A checkpoint is on its way. What it has is clean then.
    Waits,
}

impl Wake for Signal {
    fn wake(&self) {
        self.raise();
    }
}

impl Relief {
    /// Of a pipeline that `signal` wakes.
    pub(super) fn new(memory: &Arc<MemoryBudget>, signal: &Arc<Signal>) -> Self {
        let signal = Arc::downgrade(signal);
        memory.wakes(signal);
        Self {
            memory: Arc::clone(memory),
            state: State::Enough,
            in_vain: 0,
            measure_at: Instant::now(),
        }
    }

    /// Looks at the memory between two steps; evicts, if too much is used and no checkpoint is on its way. Whether a checkpoint
    /// is wanted first.
    pub(super) fn run(&mut self, queries: &mut [Query], in_flight: &InFlight) -> bool {
        if self.state == State::Waits {
            if !in_flight.is_busy() {
                self.state = State::Enough;
                self.evict(queries, in_flight);
            }
            return false;
        }
        self.measure(queries, false);
        if !self.memory.is_over() {
            self.in_vain = 0;
            return false;
        }
        let retry_at = match self.in_vain {
            0 => 0,
            in_vain => in_vain + self.memory.bytes_max() / RETRY_SHARE,
        };
        if self.memory.used() <= retry_at {
            return false;
        }
        if in_flight.is_busy() || queries.iter().any(has_news) {
            self.state = State::Waits;
            return !in_flight.is_busy();
        }
        self.evict(queries, in_flight);
        false
    }

    /// Why no step is taken, while a checkpoint is on its way that must be durable first.
    pub(super) fn blocks(&self, in_flight: &InFlight) -> Option<String> {
        let blocks = self.state == State::Waits && in_flight.is_busy() && self.memory.is_over();
        blocks.then(|| "memory_limit is reached".to_owned())
    }

    /// Evicts this pipeline's part of what is too much.
    fn evict(&mut self, queries: &mut [Query], in_flight: &InFlight) {
        self.measure(queries, true);
        // What is marked as clean is in the store only if the last checkpoint went well.
        if in_flight.has_failed() || !self.memory.is_over() {
            return;
        }
        let own: usize = queries.iter().map(|query| query.stages.memory_bytes()).sum();
        let goal = self.memory.to_be_freed(own);
        let running = || queries.iter().filter(|query| query.failure.is_none());
        let evictable: usize = running().map(|query| query.stages.evictable_bytes()).sum();
        let part = (goal as f64 / evictable.max(1) as f64).min(1.0);
        for query in queries.iter_mut().filter(|query| query.failure.is_none()) {
            query.stages.evict(part);
        }
        self.measure(queries, true);
        self.end_followed(queries);
        self.in_vain = if self.memory.is_over() {
            self.memory.used()
        } else {
            0
        };
        tracing::debug!(
            used = self.memory.used(),
            limit = self.memory.bytes_max(),
            "evicted clean state"
        );
    }

    /// What only somebody follows has no state in the store, so none can be evicted: where that has not helped enough the largest
    /// of them ends.
    fn end_followed(&self, queries: &mut [Query]) {
        if !self.memory.is_over() {
            return;
        }
        let followed = queries
            .iter_mut()
            .filter(|query| query.spec.is_followed() && query.failure.is_none());
        if let Some(largest) = followed.max_by_key(|query| query.stages.memory_bytes() + query.memory().sum())
        {
            let error = EngineError::new("53200", "memory_limit is reached")
                .with_detail("The state of a subscription to a query is in memory only.")
                .with_hint("Create a materialized view of the query and subscribe to that.");
            fail(largest, error);
        }
    }

    fn measure(&mut self, queries: &mut [Query], at_once: bool) {
        let started = Instant::now();
        if started < self.measure_at && !at_once {
            return;
        }
        queries.iter_mut().for_each(Query::measure);
        let took = started.elapsed();
        self.measure_at = started + MEASURE_PAUSE.max(took * MEASURE_SHARE);
    }
}
