//! A pipeline: queries connected through stored relations, on one thread, advancing in steps.

pub(crate) mod checkpoint;
mod failure;
mod members;
mod order;
mod relief;
mod step;
mod thread;

use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use highwater_storage::{ObjectId, WriteBatch};
use parking_lot::Mutex;

use self::checkpoint::Checkpointer;
pub(crate) use self::failure::failed_with;
use self::thread::PipelineThread;
use super::error::EngineError;
use super::lane::queue::Signal;
use super::query::Query;
use super::query::change::TableChange;
use super::query::spec::EngineParts;
use super::status::{CheckpointStatus, QueryStatus};

/// Where an answer goes.
pub(crate) type Reply<T> = tokio::sync::oneshot::Sender<T>;

/// What a pipeline is asked to do, at the end of a step.
pub(crate) enum Command {
    /// Runs a new query too; the reply comes when it has taken its first step. If that fails nothing of it stays.
    Attach(Box<Query>, Reply<Result<(), EngineError>>),
    /// Adds queries as the last checkpoint has them, all of them before the next step: those that read each other miss nothing.
    /// One that cannot begin is FAILED alone; the reply has the first such error.
    Restore(Vec<Query>, Reply<Result<(), EngineError>>),
    /// Lets go of queries, all of them between the same two steps. The reply comes when they are out; their readers and sinks may
    /// be closing still.
    Detach(Departure, Reply<Result<(), EngineError>>),
    /// Changes a table in one of the coming steps.
    Change(ObjectId, TableChange),
    /// Answers when a query has taken everything that it starts from, or why it failed before.
    Filled(ObjectId, Reply<Result<(), EngineError>>),
    /// Answers at the end of a step: everything acknowledged before is visible then.
    Barrier(Reply<()>),
    /// Makes everything of the steps so far durable.
    Checkpoint(Reply<Result<u64, EngineError>>),
    /// Tells how things are.
    Status(Reply<PipelineStatus>),
    /// Ends the thread and gives the queries away.
    Release(Ending, Reply<Released>),
}

/// Which queries leave a pipeline.
pub(crate) struct Departure {
    /// Their numbers.
    pub(crate) queries: Vec<ObjectId>,
    /// Written before they leave, with no checkpoint of the pipeline between. If that fails they stay.
    pub(crate) batch: Option<WriteBatch>,
}

/// Why a pipeline ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ending {
    /// It has no queries.
    Empty,
    /// Its queries go to another one, checkpointed.
    Moved,
    /// The database closes: all is checkpointed, with what the sinks confirm while they close.
    Closed,
}

/// What a pipeline gives away when it ends.
pub(crate) struct Released {
    /// Its queries, stopped.
    pub(crate) queries: Vec<Query>,
    /// Why the last checkpoint failed, if it did; the queries are FAILED then.
    pub(crate) outcome: Result<(), EngineError>,
}

/// How a pipeline is.
#[derive(Debug, Clone)]
pub(crate) struct PipelineStatus {
    /// Its number.
    pub(crate) number: u32,
    /// Its queries.
    pub(crate) queries: Vec<QueryStatus>,
    /// Its checkpoints.
    pub(crate) checkpoint: CheckpointStatus,
    /// Steps since it started.
    pub(crate) steps: u64,
}

/// What a pipeline is started with.
#[derive(Clone)]
pub(crate) struct PipelineOptions {
    /// What all queries share.
    pub(crate) parts: EngineParts,
    /// Writes its checkpoints.
    pub(crate) checkpointer: Arc<Checkpointer>,
    /// Time between checkpoints.
    pub(crate) checkpoint_interval: Duration,
}

/// A running pipeline.
pub(crate) struct Pipeline {
    commands: Mutex<Option<Sender<Command>>>,
    signal: Arc<Signal>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Pipeline {
    /// Starts the thread, with no query yet.
    ///
    /// # Errors
    /// When the operating system gives no thread.
    pub(crate) fn start(number: u32, options: PipelineOptions) -> Result<Self, EngineError> {
        let signal = Arc::new(Signal::default());
        let (commands, receiver) = channel();
        let runner = PipelineThread::new(number, options, receiver, Arc::clone(&signal));
        let thread = std::thread::Builder::new()
            .name(format!("hw-pipeline-{number}"))
            .spawn(move || runner.run())
            .map_err(|error| EngineError::new("53000", format!("no thread for a pipeline: {error}")))?;
        Ok(Self {
            commands: Mutex::new(Some(commands)),
            signal,
            thread: Mutex::new(Some(thread)),
        })
    }

    /// Asks for something; `make` gets the place for the answer.
    ///
    /// # Errors
    /// When the pipeline has ended.
    pub(crate) async fn ask<T>(&self, make: impl FnOnce(Reply<T>) -> Command) -> Result<T, EngineError> {
        let (reply, answer) = tokio::sync::oneshot::channel();
        self.send(make(reply))?;
        answer.await.map_err(|_| ended())
    }

    /// Hands a command over.
    ///
    /// # Errors
    /// When the pipeline has ended.
    pub(crate) fn send(&self, command: Command) -> Result<(), EngineError> {
        let commands = self.commands.lock();
        let sent = commands.as_ref().map(|commands| commands.send(command));
        sent.and_then(Result::ok).ok_or_else(ended)?;
        self.signal.raise();
        Ok(())
    }

    /// Waits for the thread, after [`Command::Release`].
    pub(crate) fn join(&self) {
        if let Some(thread) = self.thread.lock().take() {
            let _ = thread.join();
        }
    }
}

fn ended() -> EngineError {
    EngineError::new("57P01", "the pipeline has ended")
}

impl Drop for Pipeline {
    /// Ends the thread without a last checkpoint, as a crash would.
    fn drop(&mut self) {
        self.commands.lock().take();
        self.signal.raise();
        self.join();
    }
}
