//! [`MemoryBudget`]: how much memory what the engine keeps may take, and how much it takes (INV-10).
//!
//! Each query has a [`Charge`], which its pipeline sets between steps. Whoever is over the budget lets go of what the store
//! has too, in proportion to what he holds (ADR-23).

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

/// After an eviction this part of the budget is used: were it more, the next eviction would come soon.
const LOW_WATER: f64 = 0.7;

/// What can be woken: a pipeline.
pub(crate) trait Wake: Send + Sync {
    /// Lets it look at the memory soon.
    fn wake(&self);
}

/// The account of one database.
pub(crate) struct MemoryBudget {
    bytes_max: usize,
    used: AtomicUsize,
    /// Whether the pipelines were told that too much is used.
    told: AtomicBool,
    pipelines: Mutex<Vec<Weak<dyn Wake>>>,
}

/// What one query holds; given back when it is dropped.
pub(crate) struct Charge {
    budget: Arc<MemoryBudget>,
    bytes: usize,
}

impl MemoryBudget {
    /// Nothing used of `bytes_max`.
    pub(crate) fn new(bytes_max: usize) -> Self {
        Self {
            bytes_max,
            used: AtomicUsize::new(0),
            told: AtomicBool::new(false),
            pipelines: Mutex::default(),
        }
    }

    /// Bytes that may be used.
    pub(crate) fn bytes_max(&self) -> usize {
        self.bytes_max
    }

    /// Bytes that are used, as of the last measurements.
    pub(crate) fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }

    /// Whether more is used than may be.
    pub(crate) fn is_over(&self) -> bool {
        self.used() > self.bytes_max
    }

    /// Bytes that may be used more before something would have to be evicted, with the low water kept.
    pub(crate) fn room(&self) -> usize {
        ((self.bytes_max as f64 * LOW_WATER) as usize).saturating_sub(self.used())
    }

    /// How many of `own` bytes are to be given back so that, if all do so, the low water is reached.
    pub(crate) fn to_be_freed(&self, own: usize) -> usize {
        let keep = self.bytes_max as f64 * LOW_WATER / self.used().max(1) as f64;
        own.saturating_sub((own as f64 * keep) as usize)
    }

    /// Wakes a pipeline, as long as it is there, when others find that too much is used.
    pub(crate) fn wakes(&self, pipeline: Weak<dyn Wake>) {
        let mut pipelines = self.pipelines.lock();
        pipelines.retain(|other| other.strong_count() > 0);
        pipelines.push(pipeline);
    }

    /// An account for one query, with nothing on it.
    pub(crate) fn charge(self: &Arc<Self>) -> Charge {
        Charge {
            budget: Arc::clone(self),
            bytes: 0,
        }
    }

    /// Tells the pipelines, once each time that the budget is used up.
    fn tell(&self) {
        if !self.is_over() {
            self.told.store(false, Ordering::Relaxed);
        } else if !self.told.swap(true, Ordering::Relaxed) {
            let pipelines = self.pipelines.lock();
            pipelines
                .iter()
                .filter_map(Weak::upgrade)
                .for_each(|pipeline| pipeline.wake());
        }
    }
}

impl Charge {
    /// Sets what the query holds.
    pub(crate) fn set(&mut self, bytes: usize) {
        let used = &self.budget.used;
        if bytes >= self.bytes {
            used.fetch_add(bytes - self.bytes, Ordering::Relaxed);
        } else {
            used.fetch_sub(self.bytes - bytes, Ordering::Relaxed);
        }
        self.bytes = bytes;
        self.budget.tell();
    }

    /// What it was set to last.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.set(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_holds_more_gives_more_back() {
        let budget = Arc::new(MemoryBudget::new(1_000));
        let (mut large, mut small) = (budget.charge(), budget.charge());
        large.set(1_500);
        small.set(500);
        assert!(budget.is_over());
        assert_eq!((budget.to_be_freed(1_500), budget.to_be_freed(500)), (975, 325));
        drop(large);
        assert_eq!(
            (budget.used(), budget.room(), budget.is_over()),
            (500, 200, false)
        );
    }

    #[derive(Default)]
    struct Sleeper(AtomicBool);

    impl Wake for Sleeper {
        fn wake(&self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }

    #[test]
    fn pipelines_are_woken_when_too_much_is_used_and_forgotten_when_they_are_gone() {
        let budget = Arc::new(MemoryBudget::new(1_000));
        let stays = Arc::new(Sleeper::default());
        let weak = Arc::downgrade(&stays);
        budget.wakes(weak);
        for _ in 0..100 {
            let ends = Arc::new(Sleeper::default());
            let weak = Arc::downgrade(&ends);
            budget.wakes(weak);
        }
        assert!(budget.pipelines.lock().len() <= 2);
        budget.charge().set(1_001);
        assert!(stays.0.load(Ordering::Relaxed));
    }
}
