//! Clients that have not been let in yet. They are counted apart from sessions, so that a socket that says nothing takes no session's
//! place; and who has waited longest makes room for who comes, so that such sockets keep nobody out.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::Notify;

/// All clients that wait to be let in.
pub(super) struct Waiting {
    clients_max: usize,
    line: Mutex<Line>,
}

/// The clients by the order in which they came.
#[derive(Default)]
struct Line {
    next: u64,
    clients: BTreeMap<u64, Arc<Notify>>,
}

/// The place of one of them; it is free when this is dropped.
pub(super) struct Place {
    waiting: Arc<Waiting>,
    number: u64,
    is_needed: Arc<Notify>,
}

impl Waiting {
    /// Room for so many, at least one.
    pub(super) fn new(clients_max: usize) -> Self {
        Self {
            clients_max: clients_max.max(1),
            line: Mutex::default(),
        }
    }

    /// A place for who has come. If there is none, whoever has waited longest is told to go.
    pub(super) fn enter(self: &Arc<Self>) -> Place {
        let is_needed = Arc::new(Notify::new());
        let mut line = self.line.lock();
        if line.clients.len() >= self.clients_max
            && let Some((_, first)) = line.clients.pop_first()
        {
            first.notify_one();
        }
        let number = line.next;
        line.next += 1;
        line.clients.insert(number, Arc::clone(&is_needed));
        Place {
            waiting: Arc::clone(self),
            number,
            is_needed,
        }
    }
}

impl Place {
    /// Comes back when somebody else has the place.
    pub(super) async fn is_needed(&self) {
        self.is_needed.notified().await;
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // Who was told to go is out of the line already.
        self.waiting.line.lock().clients.remove(&self.number);
    }
}
