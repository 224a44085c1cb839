//! A reader: one query's way into one source. A control thread serves the connector; its lanes run in the pool.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use highwater_connectors::source::{
    PartitionId, Positions, RecoveryIdentity, Source, SourceContext, SourceEvent, SourceLane,
};
use highwater_connectors::statistics::ClientStatistics;
use highwater_connectors::{ConnectorError, ErrorKind};
use parking_lot::Mutex;

use super::error::EngineError;
use super::lane::pool::{LanePool, LaneSlot, ReaderId};
use super::lane::queue::{LaneShared, Signal};
use super::lane::scan::ScanSpec;
use super::lane::task::{LaneEnvironment, LaneTask};
use super::reaper::Predecessors;

/// How long the control thread waits for an event before it looks at its own commands.
const EVENT_WAIT: Duration = Duration::from_millis(100);
const FLUSH_WAIT: Duration = Duration::from_secs(1);
const RETRY_FIRST: Duration = Duration::from_millis(250);
const RETRY_MAX: Duration = Duration::from_secs(10);
/// How long a source that was there before may be missing when it is opened: a broker that has just started does not
/// know all of its topics yet.
const MISSING_MAX: Duration = Duration::from_secs(20);

/// Makes the source, once per attempt to open it.
pub(crate) type MakeSource = Box<dyn Fn() -> Result<Box<dyn Source>, ConnectorError> + Send>;

/// What a reader is opened with.
pub(crate) struct ReaderOptions {
    /// Name of the source, for client ids and messages.
    pub(crate) source_name: String,
    /// Where to start; empty: at the beginning of each partition.
    pub(crate) start: Positions,
    /// What the positions belong to.
    pub(crate) identity: RecoveryIdentity,
    /// What is read and how.
    pub(crate) scan: Arc<ScanSpec>,
    /// What the lanes have in common.
    pub(crate) environment: Arc<LaneEnvironment>,
    /// Wakes the pipeline.
    pub(crate) signal: Arc<Signal>,
    /// Readers of the same query that have to be closed first.
    pub(crate) predecessors: Predecessors,
}

/// What the control thread and the pipeline share.
struct Shared {
    lanes: Mutex<Vec<Arc<LaneSlot>>>,
    failure: Mutex<Option<EngineError>>,
    degraded: Mutex<Option<ConnectorError>>,
    lost: Mutex<Lost>,
    statistics: Mutex<Option<Arc<ClientStatistics>>>,
    /// Changes when lanes are added.
    generation: AtomicI64,
    closing: AtomicBool,
}

/// Records that were gone before they were read, by partition.
#[derive(Default)]
struct Lost {
    /// As the source counts them.
    known: BTreeMap<PartitionId, u64>,
    /// How many of them were taken already.
    taken: BTreeMap<PartitionId, u64>,
}

enum Command {
    Commit(Vec<(PartitionId, i64)>),
}

/// Tells the outside world (advisory) what is durable.
#[derive(Clone)]
pub(crate) struct Committer(Sender<Command>);

impl Committer {
    /// Everything below these offsets is durable.
    pub(crate) fn commit(&self, offsets: Vec<(PartitionId, i64)>) {
        // A closed control thread no longer commits; the positions that count are our own.
        let _ = self.0.send(Command::Commit(offsets));
    }
}

/// A running reader. Dropping it closes the source.
pub(crate) struct Reader {
    shared: Arc<Shared>,
    commands: Sender<Command>,
    thread: Option<JoinHandle<()>>,
}

impl Reader {
    /// Opens the source on a thread of its own; lanes appear when the source has assigned them. A source that cannot
    /// be opened for the moment (broker away) is tried again.
    ///
    /// # Errors
    /// When the operating system gives no thread. Errors of the source itself show in [`Self::failure`].
    pub(crate) fn open(
        make: MakeSource,
        pool: &Arc<LanePool>,
        options: ReaderOptions,
    ) -> Result<Self, EngineError> {
        let shared = Arc::new(Shared {
            lanes: Mutex::new(Vec::new()),
            failure: Mutex::new(None),
            degraded: Mutex::new(None),
            lost: Mutex::default(),
            statistics: Mutex::new(None),
            generation: AtomicI64::new(0),
            closing: AtomicBool::new(false),
        });
        let (commands, receiver) = channel();
        let control = Control {
            make,
            reader: pool.reader(),
            pool: Arc::clone(pool),
            options,
            shared: Arc::clone(&shared),
            commands: receiver,
        };
        let thread = std::thread::Builder::new()
            .name(format!("hw-src-{}", control.options.source_name))
            .spawn(move || control.run())
            .map_err(|error| EngineError::new("53000", format!("no thread for a source: {error}")))?;
        Ok(Self {
            shared,
            commands,
            thread: Some(thread),
        })
    }

    /// The lanes so far.
    pub(crate) fn lanes(&self) -> Vec<Arc<LaneSlot>> {
        self.shared.lanes.lock().clone()
    }

    /// Changes when [`Self::lanes`] does.
    pub(crate) fn generation(&self) -> i64 {
        self.shared.generation.load(Ordering::Acquire)
    }

    /// The error that ended the source.
    pub(crate) fn failure(&self) -> Option<EngineError> {
        self.shared.failure.lock().clone()
    }

    /// A fault that the source goes on from (broker away).
    pub(crate) fn degraded(&self) -> Option<ConnectorError> {
        self.shared.degraded.lock().clone()
    }

    /// What the client told of itself last.
    pub(crate) fn statistics(&self) -> Option<Arc<ClientStatistics>> {
        self.shared.statistics.lock().clone()
    }

    /// Records that were gone before they were read, since the last call.
    pub(crate) fn take_lost(&self) -> Vec<(PartitionId, u64)> {
        let mut lost = self.shared.lost.lock();
        let Lost { known, taken } = &mut *lost;
        let mut new = Vec::new();
        for (partition, count) in known.iter() {
            let before = taken.insert(*partition, *count).unwrap_or(0);
            if *count > before {
                new.push((*partition, count - before));
            }
        }
        new
    }

    /// Lets a checkpoint tell the outside world what is durable.
    pub(crate) fn committer(&self) -> Committer {
        Committer(self.commands.clone())
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.shared.closing.store(true, Ordering::Release);
        for lane in self.shared.lanes.lock().iter() {
            lane.remove();
        }
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// The control plane of a reader, on its thread.
struct Control {
    make: MakeSource,
    reader: ReaderId,
    pool: Arc<LanePool>,
    options: ReaderOptions,
    shared: Arc<Shared>,
    commands: Receiver<Command>,
}

impl Control {
    fn run(self) {
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| self.serve()));
        let failure = match outcome {
            Ok(Ok(())) => None,
            Ok(Err(error)) => Some(error),
            Err(_) => Some(EngineError::internal("a source panicked")),
        };
        if let Some(error) = failure {
            tracing::error!(source = %self.options.source_name, error = %error, "source stopped");
            *self.shared.failure.lock() = Some(error);
            self.options.signal.raise();
        }
    }

    fn serve(&self) -> Result<(), EngineError> {
        let Some(mut source) = self.open()? else {
            return Ok(());
        };
        let served = self.serve_open(source.as_mut());
        source.close();
        served
    }

    /// Opens the source, trying again while the fault may pass; `None` if the reader closes before.
    fn open(&self) -> Result<Option<Box<dyn Source>>, EngineError> {
        while !self.is_closing() && !self.options.predecessors.wait(EVENT_WAIT) {}
        let mut retry = RETRY_FIRST;
        let begun = Instant::now();
        let may_pass = |error: &ConnectorError| match error.kind {
            ErrorKind::Transient => true,
            ErrorKind::NotFound => !self.options.identity.is_empty() && begun.elapsed() < MISSING_MAX,
            _ => false,
        };
        while !self.is_closing() {
            let context = SourceContext {
                name: self.options.source_name.clone(),
                wants: self.options.scan.wants(),
                identity: self.options.identity.clone(),
            };
            let opened = (self.make)().and_then(|mut source| {
                source.open(context, &self.options.start)?;
                Ok(source)
            });
            match opened {
                Ok(source) => return Ok(Some(source)),
                Err(error) if may_pass(&error) => self.degrade(error),
                Err(error) => return Err(error.into()),
            }
            self.pause(retry);
            retry = (retry * 2).min(RETRY_MAX);
        }
        Ok(None)
    }

    /// Waits, at most `wait`, for the reader to close.
    fn pause(&self, wait: Duration) {
        let deadline = Instant::now() + wait;
        while !self.is_closing() && Instant::now() < deadline {
            std::thread::park_timeout(EVENT_WAIT);
        }
    }

    fn is_closing(&self) -> bool {
        self.shared.closing.load(Ordering::Acquire)
    }

    fn serve_open(&self, source: &mut dyn Source) -> Result<(), EngineError> {
        while !self.is_closing() {
            match source.poll_events(EVENT_WAIT)? {
                SourceEvent::LanesAssigned(lanes) | SourceEvent::LanesAdded(lanes) => self.add(lanes)?,
                SourceEvent::LanesRevoked { lanes, .. } => {
                    return Err(EngineError::new(
                        "0A000",
                        format!("{} partitions were taken away", lanes.len()),
                    )
                    .with_detail("The source is read by assignment; nobody may take partitions away."));
                }
                SourceEvent::Degraded(error) => self.degrade(error),
                SourceEvent::Recovered => self.recover(),
                SourceEvent::Idle => {}
            }
            self.note_lost(source);
            *self.shared.statistics.lock() = source.statistics();
            self.serve_commands(source);
        }
        self.serve_commands(source);
        if let Err(error) = source.flush_commits(FLUSH_WAIT) {
            tracing::debug!(source = %self.options.source_name, error = %error, "last offsets not committed to the broker");
        }
        Ok(())
    }

    fn add(&self, lanes: Vec<Box<dyn SourceLane>>) -> Result<(), EngineError> {
        self.recover();
        for lane in lanes {
            let partition = lane.partition();
            let scan = self.options.scan.start(partition)?;
            let shared = Arc::new(LaneShared::new(partition, Arc::clone(&self.options.signal)));
            let environment = Arc::clone(&self.options.environment);
            let slot = self.pool.add(self.reader, shared, |slot| {
                Box::new(LaneTask::new(lane, scan, environment, slot))
            });
            self.shared.lanes.lock().push(slot);
        }
        self.shared.generation.fetch_add(1, Ordering::AcqRel);
        self.options.signal.raise();
        Ok(())
    }

    fn note_lost(&self, source: &dyn Source) {
        let known = source.lost_records();
        let mut lost = self.shared.lost.lock();
        if lost.known != known {
            lost.known = known;
            self.options.signal.raise();
        }
    }

    fn degrade(&self, error: ConnectorError) {
        let mut degraded = self.shared.degraded.lock();
        if degraded.as_ref() != Some(&error) {
            tracing::warn!(source = %self.options.source_name, error = %error, "source degraded");
            *degraded = Some(error);
            // Whether partitions are at their end is not known any more.
            self.options.signal.raise();
        }
    }

    fn recover(&self) {
        if self.shared.degraded.lock().take().is_some() {
            tracing::info!(source = %self.options.source_name, "source recovered");
            self.options.signal.raise();
        }
    }

    fn serve_commands(&self, source: &mut dyn Source) {
        while let Ok(Command::Commit(offsets)) = self.commands.try_recv() {
            fail::fail_point!("offsets-before-commit");
            if let Err(error) = source.commit(&offsets) {
                tracing::warn!(source = %self.options.source_name, error = %error, "offsets not committed to the broker");
            }
        }
    }
}
