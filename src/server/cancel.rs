//! Ending statements from outside: by a cancel request, and by statement_timeout.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::wire::{Stop, Wire};
use crate::recall::{self, Recall};
use crate::{Error, Result, scram};

/// Where a connection waits for its statement to be cancelled; empty while none runs.
type Bell = Arc<Mutex<Option<oneshot::Sender<()>>>>;

/// All connections that a cancel request can name.
#[derive(Default)]
pub(super) struct Cancellations(Mutex<Registered>);

#[derive(Default)]
struct Registered {
    next: i32,
    bells: HashMap<i32, (i32, Bell)>,
}

/// The place of one connection among them, which it leaves when it is dropped.
pub(super) struct CancelKey {
    all: Arc<Cancellations>,
    bell: Bell,
    /// The number that names the connection.
    pub(super) pid: i32,
    /// What a cancel request has to know beside it.
    pub(super) secret: i32,
}

impl Cancellations {
    /// Adds a connection.
    ///
    /// # Errors
    /// When the operating system gives no random bytes.
    pub(super) fn register(self: &Arc<Self>) -> Result<CancelKey> {
        let secret = i32::from_be_bytes(scram::random()?);
        let bell = Bell::default();
        let mut registered = self.0.lock();
        loop {
            registered.next = registered.next.checked_add(1).unwrap_or(1);
            let pid = registered.next;
            if let Entry::Vacant(place) = registered.bells.entry(pid) {
                place.insert((secret, Arc::clone(&bell)));
                return Ok(CancelKey {
                    all: Arc::clone(self),
                    bell,
                    pid,
                    secret,
                });
            }
        }
    }

    /// Cancels what a connection runs, if the secret is right. Nobody is told whether it was.
    pub(super) fn cancel(&self, pid: i32, secret: i32) {
        let registered = self.0.lock();
        if let Some((own, bell)) = registered.bells.get(&pid)
            && *own == secret
            && let Some(bell) = bell.lock().take()
        {
            // The statement may be over just now.
            let _ = bell.send(());
        }
    }
}

impl Drop for CancelKey {
    fn drop(&mut self) {
        self.all.0.lock().bells.remove(&self.pid);
    }
}

/// A statement that runs. Dropping it makes cancel requests miss.
pub(super) struct Running {
    bell: Bell,
    cancelled: oneshot::Receiver<()>,
    deadline: Option<Instant>,
    recall: Recall,
}

impl CancelKey {
    /// Begins a statement that may take `limit`.
    pub(super) fn begin(&self, limit: Option<Duration>) -> Running {
        let (sender, cancelled) = oneshot::channel();
        *self.bell.lock() = Some(sender);
        Running {
            bell: Arc::clone(&self.bell),
            cancelled,
            deadline: limit.map(|limit| Instant::now() + limit),
            recall: Recall::default(),
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        *self.bell.lock() = None;
    }
}

impl Running {
    /// Comes back when the statement is to end, with the reason. One that has taken effect is not to: its rows are sent to their end.
    async fn ended(&mut self) -> Stop {
        if self.recall.has_passed() {
            return std::future::pending().await;
        }
        let late = async {
            match self.deadline {
                Some(deadline) => tokio::time::sleep_until(deadline).await,
                None => std::future::pending().await,
            }
        };
        let why = tokio::select! {
            Ok(()) = &mut self.cancelled => "user request",
            () = late => "statement timeout",
        };
        Stop::Error(Error::new("57014", format!("canceling statement due to {why}")))
    }

    /// Waits for a part of the statement, as long as the client is there and nothing ends the statement before it has taken effect.
    pub(super) async fn wait<T>(
        &mut self,
        wire: &mut Wire,
        part: impl Future<Output = Result<T>>,
    ) -> Result<T, Stop> {
        let recall = self.recall.clone();
        tokio::select! {
            biased;
            done = recall::until(&recall, part, self.ended()) => Ok(done??),
            () = wire.gone() => Err(Stop::Gone),
        }
    }

    /// Waits for what the client does.
    pub(super) async fn with_client<T>(
        &mut self,
        part: impl Future<Output = Result<T, Stop>>,
    ) -> Result<T, Stop> {
        tokio::select! {
            biased;
            done = part => done,
            stop = self.ended() => Err(stop),
        }
    }
}
