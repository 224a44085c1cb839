//! Checkpoints: what a freeze takes, the thread that writes it as one WriteBatch, and what follows once it is durable.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use highwater_storage::{
    CheckpointWriter, Durability, Epoch, ObjectId, OperatorHeader, OperatorId, QueryProgress, Store,
};
use parking_lot::{Condvar, Mutex};

use super::Reply;
use crate::engine::error::EngineError;
use crate::engine::errors_log::ErrorLog;
use crate::engine::lane::queue::Signal;
use crate::engine::operators::{FrozenState, StateAddress};
use crate::engine::query::Query;
use crate::engine::query::backfill::Backfill;
use crate::engine::query::header::QueryHeader;
use crate::engine::query::intake::FrozenIntake;
use crate::engine::query::output::FrozenOutput;
use crate::engine::query::spec::EngineParts;
use crate::engine::status::CheckpointStatus;

/// What one checkpoint writes of one query.
pub(crate) struct FrozenQuery {
    id: ObjectId,
    /// Whether an earlier checkpoint has it.
    is_recorded: bool,
    reads_relations: bool,
    header: QueryHeader,
    /// Set while the query has no checkpoint yet: what its operators are.
    operator_headers: Vec<(OperatorId, OperatorHeader)>,
    operators: Vec<(OperatorId, Box<dyn FrozenState>)>,
    intakes: Vec<FrozenIntake>,
    output: FrozenOutput,
}

impl FrozenQuery {
    /// Takes what changed since the last freeze; `failed` are the queries of the pipeline that have stopped.
    pub(super) fn freeze(query: &mut Query, failed: &[ObjectId]) -> Self {
        if query.failure.is_some() {
            return Self::failed(query, failed);
        }
        let operator_headers = if query.is_recorded {
            Vec::new()
        } else {
            query.stages.headers()
        };
        let intakes: Vec<_> = query.intakes.iter_mut().map(|intake| intake.freeze()).collect();
        let mut watermarks: Vec<_> = intakes
            .iter()
            .map(|intake| (intake.source, intake.watermark))
            .collect();
        watermarks.extend(query.stages.relation_watermarks());
        let frozen = Self {
            id: query.spec.id,
            is_recorded: query.is_recorded,
            reads_relations: !query.spec.relations.is_empty(),
            header: QueryHeader {
                stale: false,
                cause: None,
                time_us: query.time_us,
                watermarks,
                backfill: query
                    .backfill
                    .as_ref()
                    .map(Backfill::recorded)
                    .unwrap_or_default(),
            },
            operator_headers,
            operators: query.stages.freeze(),
            intakes,
            output: query.output.freeze(),
        };
        query.is_recorded = true;
        frozen
    }

    /// Makes sure that everything in it can be written. What cannot is left out, as of a query that failed.
    fn check(&mut self) -> Option<EngineError> {
        let FrozenOutput::Sink(outbox, Some(frozen)) = &self.output else {
            return None;
        };
        let error = frozen.encode(&outbox.encoder).err()?;
        let stale = self.is_recorded && self.reads_relations;
        *self = Self::of_failed(self.id, stale.then(|| error.clone()));
        Some(error)
    }

    /// Of a failed query only the header is written: its state in memory may be half of a step, and what stands in the
    /// store is its last consistent one. If it reads relations that go on, it misses their changes for good; those that
    /// have failed too stand at the same checkpoint.
    fn failed(query: &Query, failed: &[ObjectId]) -> Self {
        let stale = query.is_recorded && query.upstream().any(|upstream| !failed.contains(&upstream));
        let cause = query.failure.as_ref().filter(|_| stale);
        Self::of_failed(query.spec.id, cause.cloned())
    }

    /// Of a query that is stale nothing but that is read again, with its error, which is `stale`.
    fn of_failed(id: ObjectId, stale: Option<EngineError>) -> Self {
        Self {
            id,
            is_recorded: false,
            reads_relations: false,
            header: QueryHeader {
                stale: stale.is_some(),
                cause: stale,
                time_us: i64::MIN,
                watermarks: Vec::new(),
                backfill: Vec::new(),
            },
            operator_headers: Vec::new(),
            operators: Vec::new(),
            intakes: Vec::new(),
            output: FrozenOutput::Nothing,
        }
    }

    fn write(&mut self, writer: &mut CheckpointWriter, errors: &ErrorLog) -> Result<(), EngineError> {
        if matches!(self.output, FrozenOutput::Nothing) && !self.header.stale {
            return Ok(());
        }
        let progress = QueryProgress {
            epoch: writer.epoch(),
            next_row_id: 0,
            extra: self.header.encode(),
        };
        writer.put_query_progress(self.id, &progress);
        for (operator, header) in &self.operator_headers {
            writer.put_operator_header(self.id, *operator, header);
        }
        for (operator, state) in self.operators.drain(..) {
            state.write(
                StateAddress {
                    object: self.id,
                    operator,
                },
                writer,
            )?;
        }
        for intake in &self.intakes {
            for (partition, lane) in &intake.lanes {
                writer.put_lane_progress(self.id, intake.source, *partition, lane);
            }
            errors.write(&intake.errors, writer);
        }
        match &mut self.output {
            FrozenOutput::Nothing | FrozenOutput::Table => Ok(()),
            FrozenOutput::View(_, frozen) => match frozen.take() {
                Some(frozen) => frozen.write(writer),
                None => Ok(()),
            },
            FrozenOutput::Sink(outbox, frozen) => match frozen.take() {
                Some(frozen) => frozen.write(&outbox.encoder, writer),
                None => Ok(()),
            },
        }
    }

    /// The checkpoint is durable.
    fn resolve(self) {
        if let FrozenOutput::View(view, _) = &self.output {
            view.rows.lock().thaw();
        }
        self.intakes.into_iter().for_each(|intake| intake.resolve(true));
    }
}

/// Whether a checkpoint would record anything of a query. Of one that failed only that it did: what its sink confirms is
/// confirmed again after it was resumed.
pub(super) fn has_news(query: &Query) -> bool {
    query.is_dirty || (query.failure.is_none() && query.output.is_unrecorded())
}

/// What the next checkpoint writes of a query; `failed` are those of the pipeline that have stopped.
pub(super) fn checkpoint_of(query: &mut Query, failed: &[ObjectId]) -> Option<FrozenQuery> {
    let has_news = has_news(query);
    query.is_dirty = false;
    if query.spec.is_followed() {
        if has_news && query.failure.is_none() {
            query.let_go();
        }
        return None;
    }
    has_news.then(|| FrozenQuery::freeze(query, failed))
}

/// What is handed to the checkpoint thread.
pub(crate) struct CheckpointJob {
    /// The queries with changes.
    pub(super) queries: Vec<FrozenQuery>,
    /// Who waits for it.
    pub(super) waiting: Vec<Reply<Result<u64, EngineError>>>,
    /// The pipeline's view of it.
    pub(super) in_flight: Arc<InFlight>,
}

/// Whether a pipeline's checkpoint is being written, and how the last went.
pub(crate) struct InFlight {
    state: Mutex<FlightState>,
    condvar: Condvar,
    signal: Arc<Signal>,
}

/// A checkpoint that could not be written.
pub(super) struct FailedCheckpoint {
    /// Why.
    pub(super) error: EngineError,
    waiting: Vec<Reply<Result<u64, EngineError>>>,
}

impl FailedCheckpoint {
    /// Tells those who wait for it, when what it was to write is seen nowhere any more.
    pub(super) fn tell(self) {
        for waiting in self.waiting {
            // Who does not wait any more needs no answer.
            let _ = waiting.send(Err(self.error.clone()));
        }
    }
}

#[derive(Default)]
struct FlightState {
    is_busy: bool,
    /// When the last one was begun.
    begun: Option<Instant>,
    status: CheckpointStatus,
    /// Queries that could not be written, until the pipeline takes note.
    failures: Vec<(ObjectId, EngineError)>,
    /// Why the last one failed and who waits for it, until the pipeline takes note.
    failed: Option<FailedCheckpoint>,
}

impl InFlight {
    /// None is being written.
    pub(super) fn new(signal: Arc<Signal>) -> Self {
        Self {
            state: Mutex::new(FlightState::default()),
            condvar: Condvar::new(),
            signal,
        }
    }

    /// Whether something could not be written of which the pipeline has not taken note: the state in memory is then not in the
    /// store, even if it is marked so.
    pub(super) fn has_failed(&self) -> bool {
        let state = self.state.lock();
        state.failed.is_some() || !state.failures.is_empty()
    }

    /// Whether one is being written.
    pub(super) fn is_busy(&self) -> bool {
        self.state.lock().is_busy
    }

    /// One is about to be written; the freeze held the steps up for `stall`.
    pub(super) fn begin(&self, stall: Duration) {
        let mut state = self.state.lock();
        state.is_busy = true;
        state.begun = Some(Instant::now());
        state.status.totals.freeze_us += micros(stall);
        state.status.freeze_us = micros(stall);
        state.status.freeze_max_us = state.status.freeze_max_us.max(micros(stall));
    }

    /// Waits until none is being written.
    pub(super) fn wait(&self) {
        let mut state = self.state.lock();
        while state.is_busy {
            self.condvar.wait(&mut state);
        }
    }

    /// Takes why the last one failed. What it was to write is lost, so the queries stop; those that are resumed start from
    /// the checkpoint before.
    pub(super) fn take_failure(&self) -> Option<FailedCheckpoint> {
        self.state.lock().failed.take()
    }

    /// Takes the queries whose rows could not be written.
    pub(super) fn take_failures(&self) -> Vec<(ObjectId, EngineError)> {
        std::mem::take(&mut self.state.lock().failures)
    }

    fn leave_out(&self, query: ObjectId, error: EngineError) {
        self.state.lock().failures.push((query, error));
    }

    /// How the last went.
    pub(super) fn status(&self) -> CheckpointStatus {
        let state = self.state.lock();
        let begun = state.begun.filter(|_| state.is_busy);
        CheckpointStatus {
            in_flight_us: begun.map_or(0, |begun| micros(begun.elapsed())),
            ..state.status.clone()
        }
    }

    fn end(&self, failed: Option<FailedCheckpoint>, change: impl FnOnce(&mut CheckpointStatus)) {
        let mut state = self.state.lock();
        change(&mut state.status);
        state.failed = failed;
        state.is_busy = false;
        self.condvar.notify_all();
        drop(state);
        self.signal.raise();
    }
}

/// The thread that writes the checkpoints of all pipelines.
pub(crate) struct Checkpointer {
    jobs: Mutex<Option<Sender<CheckpointJob>>>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Checkpointer {
    /// Starts the thread; the first checkpoint gets the epoch after `last`.
    ///
    /// # Errors
    /// When the operating system gives no thread.
    pub(crate) fn start(parts: &EngineParts, last: Epoch) -> Result<Self, EngineError> {
        let (jobs, receiver) = channel();
        let writer = Writer {
            store: Arc::clone(&parts.store),
            errors: Arc::clone(&parts.errors),
            publish: Arc::clone(&parts.publish),
            clock: Arc::clone(&parts.clock),
            epoch: last,
        };
        let thread = std::thread::Builder::new()
            .name("hw-checkpoint".to_owned())
            .spawn(move || writer.run(&receiver))
            .map_err(|error| EngineError::new("53000", format!("no thread for checkpoints: {error}")))?;
        Ok(Self {
            jobs: Mutex::new(Some(jobs)),
            thread: Mutex::new(Some(thread)),
        })
    }

    /// Hands a job over.
    pub(super) fn submit(&self, job: CheckpointJob) {
        let refused = match &*self.jobs.lock() {
            Some(jobs) => jobs.send(job).map_err(|refused| refused.0).err(),
            None => Some(job),
        };
        if let Some(job) = refused {
            finish(job, Err(EngineError::new("57P01", "the database is closed")));
        }
    }
}

impl Drop for Checkpointer {
    fn drop(&mut self) {
        self.jobs.lock().take();
        if let Some(thread) = self.thread.lock().take() {
            let _ = thread.join();
        }
    }
}

struct Written {
    epoch: u64,
    bytes: u64,
    write_us: u64,
    at_us: i64,
}

struct Writer {
    store: Arc<dyn Store>,
    errors: Arc<ErrorLog>,
    publish: Arc<parking_lot::RwLock<()>>,
    clock: Arc<dyn crate::engine::clock::Clock>,
    epoch: Epoch,
}

impl Writer {
    fn run(mut self, jobs: &Receiver<CheckpointJob>) {
        while let Ok(mut job) = jobs.recv() {
            let span = tracing::info_span!(
                "checkpoint",
                epoch = self.epoch.next().0,
                queries = job.queries.len()
            );
            let _in_span = span.enter();
            let started = Instant::now();
            let write = std::panic::AssertUnwindSafe(|| self.write(&mut job));
            let outcome = std::panic::catch_unwind(write)
                .unwrap_or_else(|_| Err(EngineError::internal("writing a checkpoint panicked")));
            let outcome = outcome.map(|bytes| Written {
                epoch: self.epoch.0,
                bytes,
                write_us: micros(started.elapsed()),
                at_us: self.clock.now_us(),
            });
            if let Err(error) = &outcome {
                tracing::error!(error = %error, "checkpoint failed");
            } else if let Ok(written) = &outcome {
                tracing::debug!(
                    bytes = written.bytes,
                    write_us = written.write_us,
                    "checkpoint durable"
                );
                let _visible = self.publish.write();
                job.queries.drain(..).for_each(FrozenQuery::resolve);
            }
            finish(job, outcome);
        }
    }

    fn write(&mut self, job: &mut CheckpointJob) -> Result<u64, EngineError> {
        let epoch = self.epoch.next();
        let mut writer = CheckpointWriter::new(epoch);
        for query in &mut job.queries {
            if let Some(error) = query.check() {
                job.in_flight.leave_out(query.id, error);
            }
            query.write(&mut writer, &self.errors)?;
        }
        let trimmed = self.errors.trim(&mut writer);
        let batch = writer.finish();
        let bytes = batch.bytes() as u64;
        if !batch.is_empty() {
            self.store.commit(batch, Durability::Sync)?;
        }
        self.errors.trimmed(trimmed);
        self.epoch = epoch;
        Ok(bytes)
    }
}

fn finish(job: CheckpointJob, outcome: Result<Written, EngineError>) {
    let CheckpointJob {
        waiting, in_flight, ..
    } = job;
    let written = match outcome {
        Ok(written) => written,
        Err(error) => {
            let failed = FailedCheckpoint {
                error: error.clone(),
                waiting,
            };
            in_flight.end(Some(failed), |status| {
                status.failure = Some(error);
                status.totals.failures += 1;
            });
            return;
        }
    };
    in_flight.end(None, |status| {
        status.epoch = written.epoch;
        status.bytes = written.bytes;
        status.write_us = written.write_us;
        status.at_us = written.at_us;
        status.failure = None;
        status.totals.count += 1;
        status.totals.bytes += written.bytes;
        status.totals.write_us += written.write_us;
    });
    for waiting in waiting {
        let _ = waiting.send(Ok(written.epoch));
    }
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}
