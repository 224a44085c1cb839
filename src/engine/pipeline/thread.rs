//! The thread of a pipeline: steps, time, checkpoints, commands. It sleeps on one signal.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, TryRecvError};
use std::time::{Duration, Instant};

use highwater_storage::ObjectId;

use super::checkpoint::{CheckpointJob, InFlight, checkpoint_of, has_news};
use super::failure::{end_unfollowed, fail, fail_all, failed_table, failed_with};
use super::order::{self, Write};
use super::relief::Relief;
use super::{Command, PipelineOptions, Reply, members, step};
use crate::engine::error::EngineError;
use crate::engine::lane::queue::Signal;
use crate::engine::merge::Origin;
use crate::engine::operators::StepContext;
use crate::engine::query::change::{TableChange, TableInput};
use crate::engine::query::intake::IntakeOutput;
use crate::engine::query::output::{Output, Prepared};
use crate::engine::query::{Query, UpstreamChange};

/// How far steps are apart that are taken only because time has passed.
const TICK: Duration = Duration::from_millis(100);

/// How long the thread sleeps at most for what is due by the clock, which may be set meanwhile.
const WAIT_MAX: Duration = Duration::from_secs(1);

/// The state of a pipeline's thread.
pub(super) struct PipelineThread {
    pub(super) number: u32,
    pub(super) options: PipelineOptions,
    commands: Receiver<Command>,
    pub(super) signal: Arc<Signal>,
    /// In dependency order.
    pub(super) queries: Vec<Query>,
    pub(super) steps: u64,
    /// No step is taken before this only because time has passed.
    tick_at: Instant,
    checkpoint_at: Instant,
    pub(super) waiting: Vec<Waiting>,
    /// Who waits for a query to have everything that it starts from.
    pub(super) filling: Vec<(ObjectId, Reply<Result<(), EngineError>>)>,
    pub(super) in_flight: Arc<InFlight>,
    relief: Relief,
}

/// Who waits for the next checkpoint.
pub(super) struct Waiting {
    /// The table whose change it has made.
    table: Option<ObjectId>,
    pub(super) reply: Reply<Result<u64, EngineError>>,
}

impl PipelineThread {
    /// A pipeline with no query yet.
    pub(super) fn new(
        number: u32,
        options: PipelineOptions,
        commands: Receiver<Command>,
        signal: Arc<Signal>,
    ) -> Self {
        let in_flight = Arc::new(InFlight::new(Arc::clone(&signal)));
        let checkpoint_at = Instant::now() + options.checkpoint_interval;
        let relief = Relief::new(&options.parts.memory, &signal);
        Self {
            number,
            options,
            commands,
            signal,
            queries: Vec::new(),
            steps: 0,
            tick_at: Instant::now(),
            checkpoint_at,
            waiting: Vec::new(),
            filling: Vec::new(),
            in_flight,
            relief,
        }
    }

    /// Runs until released.
    pub(super) fn run(mut self) {
        loop {
            if !self.serve_commands() {
                return;
            }
            if self.relief.run(&mut self.queries, &self.in_flight) {
                // A failure is in the queries.
                let _ = self.checkpoint();
            }
            let moved = self.blocked_by().is_none() && self.step();
            self.answer_filled();
            self.checkpoint_if_due();
            if !moved {
                self.signal.wait(self.next_deadline());
            }
        }
    }

    /// Why no step is taken: memory, or the sink whose outbox is full.
    pub(super) fn blocked_by(&self) -> Option<String> {
        if let Some(why) = self.relief.blocks(&self.in_flight) {
            return Some(why);
        }
        let full = self
            .queries
            .iter()
            .find(|query| query.failure.is_none() && query.output.is_full())?;
        Some(format!("the outbox of sink \"{}\" is full", full.spec.name))
    }

    /// Takes what there is and runs every query once; false if there was nothing to do.
    fn step(&mut self) -> bool {
        let now_us = self.options.parts.clock.now_us();
        let step_us = self.step_us(now_us);
        let mut moved = self.tick(step_us) || self.queries.iter().any(Query::is_filling);
        let mut taken = Vec::with_capacity(self.queries.len());
        self.fail_sinks();
        for query in &mut self.queries {
            if query.failure.is_some() {
                taken.push(None);
                continue;
            }
            match step::take(query, &self.options.parts, now_us) {
                Ok(outputs) => {
                    moved |= takes_change(query);
                    moved |= outputs
                        .iter()
                        .any(|output| output.moved || output.watermark_moved);
                    query.is_dirty |= outputs
                        .iter()
                        .any(|output| output.moved || output.watermark_moved || output.idle_changed);
                    taken.push(Some(outputs));
                }
                Err(error) => {
                    fail(query, error);
                    taken.push(None);
                }
            }
        }
        if moved {
            self.run_queries(taken, step_us);
        } else {
            self.fail_dependents();
        }
        order::fail_writers(&mut self.queries);
        moved
    }

    /// The time of a step that is taken when the clock says `now_us`: all queries have the same, and it never goes back.
    pub(super) fn step_us(&self, now_us: i64) -> i64 {
        let before = self.queries.iter().map(|query| query.time_us);
        before.max().map_or(now_us, |before| before.max(now_us))
    }

    /// Whether a step is due because time has passed.
    fn tick(&mut self, step_us: i64) -> bool {
        let is_due = self.due_us().is_some_and(|due_us| due_us <= step_us) && Instant::now() >= self.tick_at;
        if is_due {
            self.tick_at = Instant::now() + TICK;
        }
        is_due
    }

    /// When a result changes next although nothing comes.
    fn due_us(&self) -> Option<i64> {
        let running = self.queries.iter().filter(|query| query.failure.is_none());
        running.filter_map(|query| query.stages.due_us()).min()
    }

    /// Runs the queries that have taken something and makes their results visible together. They stand in dependency order,
    /// so a query meets the failures of all that it reads before its turn.
    fn run_queries(&mut self, taken: Vec<Option<Vec<IntakeOutput>>>, step_us: i64) {
        self.steps += 1;
        let shards = Arc::clone(&self.options.parts.shards);
        let context = StepContext::at(step_us, &shards);
        let mut changes: HashMap<ObjectId, UpstreamChange> = HashMap::with_capacity(self.queries.len());
        let mut prepared = Vec::with_capacity(self.queries.len());
        let mut failed = failed_queries(&self.queries);
        let writes = order::writes(&self.queries);
        let relations = match self.queries.iter().any(Query::is_filling) {
            true => members::relations(&self.queries),
            false => HashMap::new(),
        };
        for (query, taken) in self.queries.iter_mut().zip(taken) {
            let Some(taken) = taken.filter(|_| !fail_with_upstream(query, &writes, &mut failed)) else {
                prepared.push(None);
                continue;
            };
            query.is_dirty |= query.is_filling();
            take_from_sinks(query, &writes, &changes);
            match step::run(query, taken, (&changes, &relations), &context) {
                Ok((output, change)) => {
                    query.is_dirty |= query.stages.has_worked();
                    changes.insert(query.spec.id, change);
                    prepared.push(Some(output));
                }
                Err(error) => {
                    fail(query, error);
                    failed.push((query.spec.id, query.spec.name.clone()));
                    prepared.push(None);
                }
            }
        }
        self.options.parts.late.add(context.late);
        self.publish(prepared);
        end_unfollowed(&mut self.queries);
        self.queries.iter_mut().for_each(members::note_filled);
        self.acknowledge();
    }

    /// Tells the statements whose changes the step has made visible; those that wait for them to be durable wait for the
    /// next checkpoint, which has the step.
    fn acknowledge(&mut self) {
        for query in &mut self.queries {
            if let (Some(table), Output::View(view)) = (&mut query.table, &query.output)
                && table.take_written()
            {
                // Whoever reads this number reads the rows of the step.
                view.written.fetch_add(1, Ordering::SeqCst);
            }
            let durable = query.table.as_mut().and_then(TableInput::publish);
            self.waiting.extend(durable.map(|reply| Waiting {
                table: Some(query.spec.id),
                reply,
            }));
        }
    }

    /// Hands a change to its table.
    fn change(&mut self, table: ObjectId, change: TableChange) {
        let query = self.queries.iter_mut().find(|query| query.spec.id == table);
        let Some(query) = query else {
            return change.refuse(EngineError::new("42P01", "the table was dropped"));
        };
        let is_read = matches!(&query.output, Output::View(view) if Arc::ptr_eq(view, &change.read));
        match (&query.failure, &mut query.table) {
            (Some(error), _) => change.refuse(failed_table(&query.spec.name, error)),
            (None, Some(input)) if is_read => input.push(change),
            (None, _) => {
                let message = format!(
                    "table \"{}\" was resumed while the statement ran",
                    query.spec.name
                );
                change.refuse(EngineError::new("40001", message).with_hint("Run the statement again."));
            }
        }
    }

    /// Stops the dependents of queries that failed outside of a run.
    fn fail_dependents(&mut self) {
        let mut failed = failed_queries(&self.queries);
        let writes = order::writes(&self.queries);
        for query in self.queries.iter_mut().filter(|query| query.failure.is_none()) {
            fail_with_upstream(query, &writes, &mut failed);
        }
    }

    /// Stops the queries of sinks that have stopped, or whose rows no checkpoint can write.
    fn fail_sinks(&mut self) {
        let unwritten = self.in_flight.take_failures();
        for query in &mut self.queries {
            let written = unwritten.iter().find(|(id, _)| *id == query.spec.id);
            let error = written.map(|(_, error)| error.clone());
            if let Some(error) = error.or_else(|| query.output.sink_failure()) {
                fail(query, error);
            }
        }
    }

    fn publish(&self, prepared: Vec<Option<Prepared>>) {
        let _visible = self.options.parts.publish.write();
        for (query, prepared) in self.queries.iter().zip(prepared) {
            if let Some(prepared) = prepared {
                query
                    .output
                    .publish(prepared, self.steps, &query.spec.plan.root().schema);
            }
        }
    }

    fn next_deadline(&self) -> Option<Instant> {
        let now_us = self.options.parts.clock.now_us();
        // While an outbox is full nothing is taken, so nothing changes before its sink has confirmed.
        let is_blocked = self.blocked_by().is_some();
        let running = self
            .queries
            .iter()
            .filter(|query| query.failure.is_none() && !is_blocked);
        let changes = running
            .flat_map(|query| query.intakes.iter())
            .filter_map(|intake| intake.next_change_us(now_us));
        let change = changes.min().map(|at_us| {
            let wait_us = u64::try_from(at_us.saturating_sub(now_us)).unwrap_or(0);
            // A floor keeps a clock that stands still from making the thread spin.
            Instant::now() + Duration::from_micros(wait_us.max(1_000))
        });
        let due = self.due_us().filter(|_| !is_blocked).map(|at_us| {
            let wait_us = u64::try_from(at_us.saturating_sub(now_us)).unwrap_or(0);
            let wait = Duration::from_micros(wait_us.max(1_000)).min(WAIT_MAX);
            (Instant::now() + wait).max(self.tick_at)
        });
        let has_work = self.is_dirty() && !self.in_flight.is_busy();
        let checkpoint = has_work.then_some(self.checkpoint_at);
        change.into_iter().chain(due).chain(checkpoint).min()
    }

    pub(super) fn is_dirty(&self) -> bool {
        self.queries.iter().any(has_news)
    }

    fn checkpoint_if_due(&mut self) {
        if self.in_flight.is_busy() {
            return;
        }
        let due = Instant::now() >= self.checkpoint_at && self.is_dirty();
        if due || !self.waiting.is_empty() {
            // A failure is in the queries and with those who wait for it.
            let _ = self.checkpoint();
        }
    }

    /// Freezes what changed and hands it to the checkpoint thread.
    ///
    /// # Errors
    /// The last checkpoint failed: the queries are FAILED, and nothing is written.
    fn checkpoint(&mut self) -> Result<(), EngineError> {
        self.checkpoint_at = Instant::now() + self.options.checkpoint_interval;
        self.note_failure()?;
        let waiting = std::mem::take(&mut self.waiting);
        let started = Instant::now();
        let failed: Vec<ObjectId> = failed_queries(&self.queries)
            .into_iter()
            .map(|(id, _)| id)
            .collect();
        let queries = self
            .queries
            .iter_mut()
            .filter_map(|query| checkpoint_of(query, &failed))
            .collect::<Vec<_>>();
        let waiting = self.still_waiting(waiting);
        if queries.is_empty() && waiting.is_empty() {
            return Ok(());
        }
        self.in_flight.begin(started.elapsed());
        let job = CheckpointJob {
            queries,
            waiting,
            in_flight: Arc::clone(&self.in_flight),
        };
        self.options.checkpointer.submit(job);
        Ok(())
    }

    /// Those whose changes the coming checkpoint has. Of a table that has failed meanwhile nothing is written.
    fn still_waiting(&self, waiting: Vec<Waiting>) -> Vec<Reply<Result<u64, EngineError>>> {
        let failure = |table: ObjectId| {
            let query = self.queries.iter().find(|query| query.spec.id == table)?;
            let error = query.failure.as_ref()?;
            Some(failed_table(&query.spec.name, error))
        };
        let mut still = Vec::with_capacity(waiting.len());
        for own in waiting {
            match own.table.and_then(failure) {
                // Who does not wait any more needs no answer.
                Some(error) => drop(own.reply.send(Err(error))),
                None => still.push(own.reply),
            }
        }
        still
    }

    /// False when the pipeline is released.
    fn serve_commands(&mut self) -> bool {
        loop {
            let command = self.commands.try_recv();
            // Whoever asks is told of it: it is in the queries, and the outcome of a release.
            let noted = self.note_failure();
            match command {
                Ok(Command::Attach(query, reply)) => {
                    let outcome = self.attach(*query);
                    self.fill_tables();
                    let _ = reply.send(outcome);
                }
                Ok(Command::Restore(queries, reply)) => {
                    let outcome = self.restore(queries);
                    self.fill_tables();
                    let _ = reply.send(outcome);
                }
                Ok(Command::Detach(departure, reply)) => {
                    let _ = reply.send(self.detach(departure));
                }
                Ok(Command::Change(table, change)) => self.change(table, change),
                Ok(Command::Filled(id, reply)) => self.filling.push((id, reply)),
                Ok(Command::Barrier(reply)) => drop(reply.send(())),
                Ok(Command::Checkpoint(reply)) => self.waiting.push(Waiting { table: None, reply }),
                Ok(Command::Status(reply)) => {
                    let _ = reply.send(self.status());
                }
                Ok(Command::Release(ending, reply)) => {
                    let mut released = self.release(ending);
                    released.outcome = noted.and(released.outcome);
                    let _ = reply.send(released);
                    return false;
                }
                Err(TryRecvError::Empty) => return true,
                Err(TryRecvError::Disconnected) => return false,
            }
        }
    }

    /// What a new sink starts with is in its table before anything is written.
    fn fill_tables(&mut self) {
        if self.queries.iter().any(is_written) {
            self.step();
        }
    }

    pub(super) fn checkpoint_now(&mut self) -> Result<(), EngineError> {
        self.in_flight.wait();
        self.checkpoint()?;
        self.in_flight.wait();
        self.note_failure()
    }

    /// Takes note of a checkpoint that failed: the queries stop, and nobody sees what it was to write any more.
    ///
    /// # Errors
    /// Why it failed.
    fn note_failure(&mut self) -> Result<(), EngineError> {
        let Some(failed) = self.in_flight.take_failure() else {
            return Ok(());
        };
        fail_all(&mut self.queries, &failed.error);
        {
            let _visible = self.options.parts.publish.write();
            for query in &self.queries {
                if let Err(error) = query.output.revert() {
                    tracing::error!(query = %query.spec.name, error = %error, "rows that were not written are still seen");
                }
            }
        }
        let error = failed.error.clone();
        failed.tell();
        // What they wait for is among what is lost.
        for own in self.waiting.drain(..) {
            let _ = own.reply.send(Err(error.clone()));
        }
        Err(error)
    }
}

pub(super) fn failed_queries(queries: &[Query]) -> Vec<(ObjectId, String)> {
    let failed = queries.iter().filter(|query| query.failure.is_some());
    failed
        .map(|query| (query.spec.id, query.spec.name.clone()))
        .collect()
}

/// Stops a query that reads one of `failed`, and adds it to them. What a failed query made since the last checkpoint is not
/// durable, so nothing that has taken it may become so (INV-2): its dependents stop with it, at the same checkpoint.
pub(super) fn fail_with_upstream(
    query: &mut Query,
    writes: &[Write],
    failed: &mut Vec<(ObjectId, String)>,
) -> bool {
    let table = query.spec.id;
    let upstream = failed
        .iter()
        .find(|(id, _)| query.upstream().any(|upstream| upstream == *id) || writes.contains(&(*id, table)));
    let Some((_, name)) = upstream else {
        return false;
    };
    fail(query, failed_with(name));
    failed.push((query.spec.id, query.spec.name.clone()));
    true
}

/// Whether a sink has something for the table.
fn is_written(query: &Query) -> bool {
    query.table.as_ref().is_some_and(TableInput::has_incoming)
}

/// Takes what waits for a table.
fn takes_change(query: &mut Query) -> bool {
    match (&mut query.table, &query.output) {
        (Some(table), Output::View(view)) => table.take(view.written.load(Ordering::SeqCst)),
        _ => false,
    }
}

/// Gives a table what the sinks that write into it have made in the step.
fn take_from_sinks(query: &mut Query, writes: &[Write], changes: &HashMap<ObjectId, UpstreamChange>) {
    let Some(table) = &mut query.table else { return };
    for (sink, _) in writes.iter().filter(|(_, into)| *into == query.spec.id) {
        if let Some(change) = changes.get(sink) {
            table.add(Origin::Sink, change.deltas.clone());
        }
    }
}
