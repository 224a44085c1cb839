//! Who is connected and what they run: `hw.connections`, and counts of connections and statements.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use highwater_sql::statement::Parsed;
use parking_lot::Mutex;

use crate::engine::bounded::ReadProgress;
use crate::engine::clock::Clock;
use crate::masking::shown;

/// For whom a session is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientInfo {
    /// The number by which the client is cancelled.
    pub pid: i32,
    /// Its user; empty for one that has none.
    pub user: String,
    /// Where it is.
    pub address: Option<SocketAddr>,
}

/// What clients do in one database.
#[derive(Debug)]
pub(crate) struct Activity {
    clock: Arc<dyn Clock>,
    clients: Mutex<BTreeMap<u64, Arc<Client>>>,
    /// Reads of sources that run, and some that have ended.
    reads: Mutex<Vec<Weak<ReadProgress>>>,
    /// Clients that have come so far.
    connections: AtomicU64,
    statements: AtomicU64,
    failed_statements: AtomicU64,
    reused_plans: AtomicU64,
}

/// A client that is connected.
#[derive(Debug)]
struct Client {
    info: ClientInfo,
    connected_us: i64,
    doing: Mutex<Doing>,
}

/// What a client does.
#[derive(Debug, Clone, Default)]
pub(crate) struct Doing {
    /// As it calls itself.
    pub(crate) application_name: String,
    /// `active`, or how it is idle.
    pub(crate) state: &'static str,
    /// Its last statement, or the one that runs.
    pub(crate) statement: Option<String>,
    /// Since when it is in this state (µs since the epoch).
    pub(crate) since_us: i64,
}

/// One row of `hw.connections`.
#[derive(Debug, Clone)]
pub(crate) struct Connected {
    /// Who it is.
    pub(crate) info: ClientInfo,
    /// When it came (µs since the epoch).
    pub(crate) connected_us: i64,
    /// What it does.
    pub(crate) doing: Doing,
}

/// Counts since the database was opened.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct ActivityCounts {
    /// Clients that have come.
    pub(crate) connections: u64,
    /// Statements begun, by whatever way.
    pub(crate) statements: u64,
    /// Those of them that failed.
    pub(crate) failed_statements: u64,
    /// Runs of prepared statements whose plan was there already.
    pub(crate) reused_plans: u64,
}

/// The place of one client among those connected, which it leaves when this is dropped.
#[derive(Debug)]
pub(crate) struct Place {
    activity: Arc<Activity>,
    number: u64,
    client: Arc<Client>,
}

impl Activity {
    /// Nobody is there yet.
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Self {
        Self {
            clock,
            clients: Mutex::default(),
            reads: Mutex::default(),
            connections: AtomicU64::new(0),
            statements: AtomicU64::new(0),
            failed_statements: AtomicU64::new(0),
            reused_plans: AtomicU64::new(0),
        }
    }

    /// A client comes.
    pub(crate) fn enter(self: &Arc<Self>, info: ClientInfo) -> Place {
        let now_us = self.clock.now_us();
        let client = Arc::new(Client {
            info,
            connected_us: now_us,
            doing: Mutex::new(Doing {
                state: "idle",
                since_us: now_us,
                ..Doing::default()
            }),
        });
        let number = self.connections.fetch_add(1, Ordering::Relaxed);
        self.clients.lock().insert(number, Arc::clone(&client));
        Place {
            activity: Arc::clone(self),
            number,
            client,
        }
    }

    /// A read of a source begins; it ends when what is given is dropped.
    pub(crate) fn reading(&self) -> Arc<ReadProgress> {
        let progress = Arc::new(ReadProgress::default());
        let mut reads = self.reads.lock();
        reads.retain(|read| read.strong_count() > 0);
        reads.push(Arc::downgrade(&progress));
        progress
    }

    /// Records that all reads of sources that run have read, and that there are for them to read; `None` where none runs.
    pub(crate) fn read_so_far(&self) -> Option<(u64, u64)> {
        let reads = self.reads.lock();
        let running: Vec<_> = reads
            .iter()
            .filter_map(Weak::upgrade)
            .map(|read| read.so_far())
            .collect();
        let sum =
            |of: fn(&(i64, i64)) -> i64| u64::try_from(running.iter().map(of).sum::<i64>()).unwrap_or(0);
        let (done, total) = (sum(|(done, _)| *done), sum(|(_, total)| *total));
        (total > 0).then_some((done, total))
    }

    /// A statement begins.
    pub(crate) fn count(&self) {
        self.statements.fetch_add(1, Ordering::Relaxed);
    }

    /// A statement has failed.
    pub(crate) fn count_failed(&self) {
        self.failed_statements.fetch_add(1, Ordering::Relaxed);
    }

    /// Notes that a prepared statement has run with a plan that was there already.
    pub(crate) fn count_reused(&self) {
        self.reused_plans.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts so far.
    pub(crate) fn counts(&self) -> ActivityCounts {
        ActivityCounts {
            connections: self.connections.load(Ordering::Relaxed),
            statements: self.statements.load(Ordering::Relaxed),
            failed_statements: self.failed_statements.load(Ordering::Relaxed),
            reused_plans: self.reused_plans.load(Ordering::Relaxed),
        }
    }

    /// Who is connected, in the order in which they came.
    pub(crate) fn connected(&self) -> Vec<Connected> {
        let clients = self.clients.lock();
        let connected = clients.values().map(|client| Connected {
            info: client.info.clone(),
            connected_us: client.connected_us,
            doing: client.doing.lock().clone(),
        });
        connected.collect()
    }
}

impl Place {
    /// The number by which the client is cancelled.
    pub(crate) fn pid(&self) -> i32 {
        self.client.info.pid
    }

    /// The client's user.
    pub(crate) fn user(&self) -> &str {
        &self.client.info.user
    }

    /// The client runs a statement.
    pub(crate) fn begin(&self, parsed: &Parsed) {
        let mut doing = self.client.doing.lock();
        doing.state = "active";
        doing.statement = Some(shown(parsed));
        doing.since_us = self.activity.clock.now_us();
    }

    /// The client is idle, in this way.
    pub(crate) fn rest(&self, state: &'static str) {
        let mut doing = self.client.doing.lock();
        if doing.state != state {
            doing.state = state;
            doing.since_us = self.activity.clock.now_us();
        }
    }

    /// The client calls itself otherwise.
    pub(crate) fn rename(&self, application_name: &str) {
        application_name.clone_into(&mut self.client.doing.lock().application_name);
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.activity.clients.lock().remove(&self.number);
    }
}
