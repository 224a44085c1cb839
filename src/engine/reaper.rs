//! [`Reaper`]: closes readers and sinks that have stopped, each on a thread of its own. A step, a lock and a command never wait
//! for the outside world; who comes after them in the same query does.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use highwater_storage::ObjectId;
use parking_lot::{Condvar, Mutex};

/// The longest that a statement waits for a sink to close, or a database for all that it has stopped.
pub(crate) const CLOSE_MAX: Duration = Duration::from_secs(10);

/// What is closing in one database.
#[derive(Debug, Default)]
pub(crate) struct Reaper {
    /// How much of each query is.
    closing: Mutex<BTreeMap<ObjectId, usize>>,
    condvar: Condvar,
}

/// What a query has stopped before: what it starts again waits for that, so that two clients never write into one topic at the
/// same time.
#[derive(Debug, Clone)]
pub(crate) struct Predecessors {
    reaper: Arc<Reaper>,
    query: ObjectId,
}

/// Dropped on the way out: first what was stopped, which closes it, then the note of it.
struct Closing<T> {
    _stopped: T,
    _note: Note,
}

struct Note(Predecessors);

impl Drop for Note {
    fn drop(&mut self) {
        let mut closing = self.0.reaper.closing.lock();
        if let Some(count) = closing.get_mut(&self.0.query) {
            *count -= 1;
            if *count == 0 {
                closing.remove(&self.0.query);
            }
        }
        self.0.reaper.condvar.notify_all();
    }
}

impl Reaper {
    /// Drops what a query has stopped, on a thread of its own; here if the operating system gives none.
    pub(crate) fn close<T: Send + 'static>(self: &Arc<Self>, query: ObjectId, stopped: T) {
        *self.closing.lock().entry(query).or_default() += 1;
        let closing = Closing {
            _stopped: stopped,
            _note: Note(self.predecessors(query)),
        };
        let close = std::thread::Builder::new().name("hw-close".to_owned());
        if let Err(error) = close.spawn(move || drop(closing)) {
            tracing::warn!(error = %error, "no thread to close a client: its pipeline has waited for it");
        }
    }

    /// What of a query is closing, for those that come after.
    pub(crate) fn predecessors(self: &Arc<Self>, query: ObjectId) -> Predecessors {
        Predecessors {
            reaper: Arc::clone(self),
            query,
        }
    }

    /// Waits until nothing of these queries is closing, at most `at_most`; whether it came to that.
    pub(crate) fn wait(&self, queries: &[ObjectId], at_most: Duration) -> bool {
        self.wait_while(at_most, |closing| {
            queries.iter().any(|query| closing.contains_key(query))
        })
    }

    /// Waits until nothing is closing, at most `at_most`; whether it came to that.
    pub(crate) fn wait_all(&self, at_most: Duration) -> bool {
        self.wait_while(at_most, |closing| !closing.is_empty())
    }

    fn wait_while(&self, at_most: Duration, is_closing: impl Fn(&BTreeMap<ObjectId, usize>) -> bool) -> bool {
        let deadline = Instant::now() + at_most;
        let mut closing = self.closing.lock();
        while is_closing(&closing) {
            if self.condvar.wait_until(&mut closing, deadline).timed_out() {
                return !is_closing(&closing);
            }
        }
        true
    }
}

impl Predecessors {
    /// Waits until all have closed, at most `at_most`; whether it came to that.
    pub(crate) fn wait(&self, at_most: Duration) -> bool {
        self.reaper.wait(&[self.query], at_most)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, channel};

    use super::*;

    /// Closes when it is told to.
    struct Slow(Receiver<()>);

    impl Drop for Slow {
        fn drop(&mut self) {
            let _ = self.0.recv();
        }
    }

    #[test]
    fn who_comes_after_a_slow_client_waits_and_nobody_else_does() {
        let reaper = Arc::new(Reaper::default());
        let (let_go, slow) = channel();
        reaper.close(ObjectId(1), Slow(slow));
        assert!(!reaper.predecessors(ObjectId(1)).wait(Duration::ZERO));
        assert!(reaper.predecessors(ObjectId(2)).wait(Duration::ZERO));
        assert!(!reaper.wait_all(Duration::ZERO));
        let_go.send(()).unwrap();
        assert!(reaper.wait_all(Duration::from_secs(30)));
        assert!(reaper.predecessors(ObjectId(1)).wait(Duration::ZERO));
    }
}
