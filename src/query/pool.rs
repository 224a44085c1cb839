//! Threads for queries: each query computes on a runtime of its own, so that one that computes for long, or goes on for a while after
//! it was cancelled, keeps no other waiting. Runtimes that are free are used again.

use std::num::NonZero;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use tokio::runtime::{Builder, Handle, Runtime};

/// Queries beyond so many share the threads of their database.
const LEASES_MAX: usize = 64;
/// More runtimes than these are not kept when they are free.
const IDLE_MAX: usize = 4;

static IDLE: Mutex<Vec<Runtime>> = Mutex::new(Vec::new());
static LEASED: AtomicUsize = AtomicUsize::new(0);

/// The threads of one query.
pub(super) struct Lease {
    /// None: those of its database.
    own: Option<Runtime>,
    /// Nothing runs on it any more.
    is_free: bool,
}

impl Lease {
    /// Threads for a query; where too many run already, or there are no more threads, it has none of its own.
    pub(super) fn take() -> Self {
        let none = Self {
            own: None,
            is_free: false,
        };
        if LEASED.fetch_add(1, Ordering::Relaxed) >= LEASES_MAX {
            LEASED.fetch_sub(1, Ordering::Relaxed);
            return none;
        }
        let idle = IDLE.lock().pop();
        let own = idle.or_else(|| {
            let threads = std::thread::available_parallelism().map_or(1, NonZero::get);
            Builder::new_multi_thread()
                .worker_threads(threads)
                .thread_name("hw-query")
                .enable_all()
                .build()
                .ok()
        });
        if own.is_none() {
            LEASED.fetch_sub(1, Ordering::Relaxed);
        }
        Self { own, ..none }
    }

    /// Where to run the query; `shared` has the threads of its database.
    pub(super) fn handle(&self, shared: &Handle) -> Handle {
        self.own.as_ref().map_or(shared, Runtime::handle).clone()
    }

    /// The query has come to its end: nothing of it runs any more.
    pub(super) fn free(&mut self) {
        self.is_free = true;
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let Some(runtime) = self.own.take() else { return };
        LEASED.fetch_sub(1, Ordering::Relaxed);
        if self.is_free {
            let mut idle = IDLE.lock();
            if idle.len() < IDLE_MAX {
                idle.push(runtime);
                return;
            }
        }
        // Its threads end when what still computes on them gives way.
        runtime.shutdown_background();
    }
}
