//! The running engine of one database: its pipelines, and which query runs in which.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use highwater_storage::{Epoch, ObjectId, Store, progress};

use super::clock::Clock;
use super::error::EngineError;
use super::errors_log::ErrorLog;
use super::followed;
use super::lane::pool::LanePool;
use super::memory::MemoryBudget;
use super::pipeline::checkpoint::Checkpointer;
use super::pipeline::{Command, Pipeline, PipelineOptions, PipelineStatus};
use super::query::Query;
use super::query::change::TableChange;
use super::query::header::QueryHeader;
use super::query::output::{Output, SharedView};
use super::query::spec::{EngineParts, QuerySpec};
use super::status::{Phase, QueryStatus};

/// How an engine is started.
pub(crate) struct EngineOptions {
    /// Where everything is kept.
    pub(crate) store: Arc<dyn Store>,
    /// Lane threads.
    pub(crate) lane_threads: usize,
    /// Threads for shards of operators.
    pub(crate) shard_threads: usize,
    /// Time between checkpoints.
    pub(crate) checkpoint_interval: Duration,
    /// Memory for what queries hold, in bytes.
    pub(crate) memory_bytes: usize,
    /// The last epoch that any checkpoint wrote.
    pub(crate) last_epoch: Epoch,
    /// The wall clock.
    pub(crate) clock: Arc<dyn Clock>,
    /// Rows of a relation that a new query takes in one step.
    pub(crate) backfill_rows: usize,
}

/// A running engine.
pub(crate) struct Engine {
    options: PipelineOptions,
    state: tokio::sync::Mutex<EngineState>,
    views: parking_lot::RwLock<BTreeMap<ObjectId, Arc<SharedView>>>,
    /// How many queries were followed so far.
    followed: AtomicU32,
}

#[derive(Default)]
struct EngineState {
    pipelines: BTreeMap<u32, Arc<Pipeline>>,
    next_pipeline: u32,
    /// Which pipeline runs a query.
    homes: BTreeMap<ObjectId, u32>,
    /// Queries that could not be started, with the reason.
    broken: BTreeMap<ObjectId, (Arc<QuerySpec>, EngineError)>,
    /// Queries that are only followed, with what each reads: relations and sources.
    followed: BTreeMap<ObjectId, Vec<ObjectId>>,
    closed: bool,
}

impl EngineState {
    fn check_open(&self) -> Result<(), EngineError> {
        if self.closed {
            return Err(EngineError::new("57P01", "the database is closed"));
        }
        Ok(())
    }
}

impl Engine {
    /// Starts the threads; no query runs yet.
    ///
    /// # Errors
    /// When the operating system gives no thread, or the error log cannot be read.
    pub(crate) fn start(options: EngineOptions) -> Result<Self, EngineError> {
        let no_thread =
            |error: &dyn std::fmt::Display| EngineError::new("53000", format!("no thread: {error}"));
        let errors = ErrorLog::load(options.store.snapshot().as_ref())?;
        let shards = rayon::ThreadPoolBuilder::new()
            .num_threads(options.shard_threads)
            .thread_name(|number| format!("hw-shard-{number}"))
            .build()
            .map_err(|error| no_thread(&error))?;
        let parts = EngineParts {
            store: options.store,
            lanes: Arc::new(LanePool::start(options.lane_threads).map_err(|error| no_thread(&error))?),
            shards: Arc::new(shards),
            clock: options.clock,
            errors: Arc::new(errors),
            late: Arc::default(),
            backfill_rows: options.backfill_rows,
            memory: Arc::new(MemoryBudget::new(options.memory_bytes)),
            publish: Arc::default(),
        };
        let checkpointer = Arc::new(Checkpointer::start(&parts, options.last_epoch)?);
        Ok(Self {
            options: PipelineOptions {
                parts,
                checkpointer,
                checkpoint_interval: options.checkpoint_interval,
            },
            state: tokio::sync::Mutex::default(),
            views: parking_lot::RwLock::default(),
            followed: AtomicU32::new(0),
        })
    }

    /// What all queries share.
    pub(crate) fn parts(&self) -> &EngineParts {
        &self.options.parts
    }

    /// The rows of a view.
    pub(crate) fn view(&self, id: ObjectId) -> Option<Arc<SharedView>> {
        self.views.read().get(&id).cloned()
    }

    /// A number for a query that is only followed, and which one it is, counted from 1.
    pub(crate) fn next_followed(&self) -> (ObjectId, u32) {
        let count = self.followed.fetch_add(1, Ordering::Relaxed);
        (followed::id(count), count.wrapping_add(1))
    }

    /// Runs a new query. Pipelines whose relations it connects become one.
    ///
    /// # Errors
    /// What its first step meets; nothing of it stays.
    pub(crate) async fn create(&self, spec: Arc<QuerySpec>) -> Result<(), EngineError> {
        let mut state = self.state.lock().await;
        state.check_open()?;
        let mut needed = spec
            .relations
            .iter()
            .map(|(_, id)| *id)
            .chain(spec.target_table());
        if let Some((broken, error)) = needed.find_map(|id| state.broken.get(&id)) {
            return Err(
                EngineError::new("55000", format!("\"{}\" does not run", broken.name))
                    .with_detail(error.message.clone()),
            );
        }
        let query = Query::restore(Arc::clone(&spec), &self.options.parts)?;
        let view = shared_view(&query);
        let home = self.join_pipelines(&mut state, &spec).await?;
        let pipeline = Arc::clone(&state.pipelines[&home]);
        let attached = pipeline.ask(|reply| Command::Attach(vec![query], reply)).await;
        if let Err(error) = attached.and_then(|attached| attached) {
            Self::end_if_empty(&mut state, home).await?;
            return Err(error);
        }
        state.homes.insert(spec.id, home);
        if spec.is_followed() {
            let relations = spec.relations.iter().map(|(_, id)| *id);
            let sources = spec.sources.iter().map(|source| source.id);
            state.followed.insert(spec.id, relations.chain(sources).collect());
        }
        if let Some(view) = view {
            self.views.write().insert(spec.id, view);
        }
        Ok(())
    }

    /// The pipeline of all relations that a query reads; merged into one where they are several.
    async fn join_pipelines(&self, state: &mut EngineState, spec: &QuerySpec) -> Result<u32, EngineError> {
        let homes: BTreeSet<u32> = spec
            .relations
            .iter()
            .map(|(_, id)| *id)
            .chain(spec.target_table())
            .filter_map(|id| state.homes.get(&id).copied())
            .collect();
        let mut homes = homes.into_iter();
        let Some(home) = homes.next() else {
            return self.new_pipeline(state);
        };
        for other in homes {
            self.move_queries(state, other, home).await?;
        }
        Ok(home)
    }

    /// Moves all queries of one pipeline into another one, after a checkpoint. If that fails they stay where they are.
    async fn move_queries(&self, state: &mut EngineState, from: u32, to: u32) -> Result<(), EngineError> {
        let (Some(pipeline), Some(target)) = (state.pipelines.get(&from), state.pipelines.get(&to).cloned())
        else {
            return Ok(());
        };
        let released = pipeline
            .ask(|reply| Command::Release {
                checkpoint: true,
                reply,
            })
            .await?;
        pipeline.join();
        if let Err(error) = released.outcome {
            // The thread is gone, so another one takes them: FAILED, but there to be seen, resumed and dropped.
            let again = Arc::new(Pipeline::start(from, self.options.clone())?);
            again
                .ask(|reply| Command::Attach(released.queries, reply))
                .await??;
            state.pipelines.insert(from, again);
            return Err(error);
        }
        state.pipelines.remove(&from);
        for query in &released.queries {
            state.homes.insert(query.spec.id, to);
        }
        target
            .ask(|reply| Command::Attach(released.queries, reply))
            .await?
    }

    fn new_pipeline(&self, state: &mut EngineState) -> Result<u32, EngineError> {
        let number = state.next_pipeline;
        state.next_pipeline += 1;
        let pipeline = Pipeline::start(number, self.options.clone())?;
        state.pipelines.insert(number, Arc::new(pipeline));
        Ok(number)
    }

    /// Runs recorded queries again, given in the order of their creation. A pipeline of which one query cannot be
    /// restored exactly does not start (INV-6); the others do.
    ///
    /// # Errors
    /// When the operating system gives no thread.
    pub(crate) async fn recover(&self, specs: Vec<Arc<QuerySpec>>) -> Result<(), EngineError> {
        let mut state = self.state.lock().await;
        self.recover_groups(&mut state, specs).await
    }

    async fn recover_groups(
        &self,
        state: &mut EngineState,
        specs: Vec<Arc<QuerySpec>>,
    ) -> Result<(), EngineError> {
        for group in connected(specs) {
            let restored: Result<Vec<Query>, (usize, EngineError)> = group
                .iter()
                .enumerate()
                .map(|(at, spec)| {
                    Query::restore(Arc::clone(spec), &self.options.parts).map_err(|error| (at, error))
                })
                .collect();
            match restored {
                Ok(queries) => self.start_group(state, queries).await?,
                Err((at, error)) => Self::break_group(state, &group, at, &error),
            }
        }
        Ok(())
    }

    async fn start_group(&self, state: &mut EngineState, queries: Vec<Query>) -> Result<(), EngineError> {
        let home = self.new_pipeline(state)?;
        for query in &queries {
            state.homes.insert(query.spec.id, home);
            if let Some(view) = shared_view(query) {
                self.views.write().insert(query.spec.id, view);
            }
        }
        state.pipelines[&home]
            .ask(|reply| Command::Restore(queries, reply))
            .await
    }

    fn break_group(state: &mut EngineState, group: &[Arc<QuerySpec>], at: usize, error: &EngineError) {
        tracing::error!(query = %group[at].name, error = %error, "pipeline not started");
        for (place, spec) in group.iter().enumerate() {
            let reason = if place == at {
                error.clone()
            } else {
                EngineError::recovery(format!(
                    "\"{}\" of the same pipeline cannot be restored",
                    group[at].name
                ))
                .with_detail(error.message.clone())
            };
            state.broken.insert(spec.id, (Arc::clone(spec), reason));
        }
    }

    /// Stops a query for good, and with it the queries that read it and are only followed; of a source only those.
    ///
    /// # Errors
    /// When its pipeline has ended.
    pub(crate) async fn drop_query(&self, id: ObjectId) -> Result<(), EngineError> {
        let mut state = self.state.lock().await;
        let was_broken = state.broken.remove(&id).is_some();
        let followed = state.followed.iter().filter(|(_, reads)| reads.contains(&id));
        for reader in followed.map(|(reader, _)| *reader).collect::<Vec<_>>() {
            self.take_out(&mut state, reader).await?;
        }
        self.take_out(&mut state, id).await?;
        if was_broken {
            // The others of its pipeline may have been kept from running by this one alone.
            let rest = std::mem::take(&mut state.broken).into_values();
            self.recover_groups(&mut state, rest.map(|(spec, _)| spec).collect())
                .await?;
        }
        Ok(())
    }

    /// A query that was dropped to be run again, and could not be: it does not run, and says why.
    pub(crate) async fn leave_broken(&self, spec: Arc<QuerySpec>, error: EngineError) {
        self.state.lock().await.broken.insert(spec.id, (spec, error));
    }

    /// Whether a query that failed has missed changes of the relations that it reads, as of the last checkpoint.
    ///
    /// # Errors
    /// A header that cannot be read.
    pub(crate) fn is_stale(&self, id: ObjectId) -> Result<bool, EngineError> {
        let found = progress::load(self.parts().store.snapshot().as_ref(), id)?;
        let header = found
            .query
            .map(|query| QueryHeader::decode(&query.extra))
            .transpose()?;
        Ok(header.is_some_and(|header| header.stale))
    }

    /// Whether a query had not taken all rows yet that it starts from, as of the last checkpoint.
    ///
    /// # Errors
    /// A header that cannot be read.
    pub(crate) fn was_filling(&self, id: ObjectId) -> Result<bool, EngineError> {
        let found = progress::load(self.parts().store.snapshot().as_ref(), id)?;
        let header = found
            .query
            .map(|query| QueryHeader::decode(&query.extra))
            .transpose()?;
        Ok(header.is_some_and(|header| !header.backfill.is_empty()))
    }

    /// Rows that a query has taken of those that it starts from, and how many there are, while it has not all.
    pub(crate) async fn backfill(&self, id: ObjectId) -> Option<(u64, u64)> {
        let home = {
            let state = self.state.lock().await;
            Arc::clone(state.pipelines.get(state.homes.get(&id)?)?)
        };
        let status = home.ask(Command::Status).await.ok()?;
        let query = status.queries.into_iter().find(|query| query.id == id)?;
        match (query.failure, query.phase) {
            (None, Phase::Filling(rows, of_rows)) => Some((rows, of_rows)),
            _ => None,
        }
    }

    async fn take_out(&self, state: &mut EngineState, id: ObjectId) -> Result<(), EngineError> {
        self.views.write().remove(&id);
        state.followed.remove(&id);
        let Some(home) = state.homes.remove(&id) else {
            return Ok(());
        };
        let Some(pipeline) = state.pipelines.get(&home).cloned() else {
            return Ok(());
        };
        drop(pipeline.ask(|reply| Command::Detach(id, reply)).await?);
        Self::end_if_empty(state, home).await
    }

    /// Ends a pipeline that has no query.
    async fn end_if_empty(state: &mut EngineState, home: u32) -> Result<(), EngineError> {
        if state.homes.values().any(|other| *other == home) {
            return Ok(());
        }
        let Some(pipeline) = state.pipelines.remove(&home) else {
            return Ok(());
        };
        pipeline
            .ask(|reply| Command::Release {
                checkpoint: false,
                reply,
            })
            .await?;
        pipeline.join();
        Ok(())
    }

    /// Whether a query stopped with an error or could not be started.
    pub(crate) async fn has_failed(&self, id: ObjectId) -> bool {
        let state = self.state.lock().await;
        if state.broken.contains_key(&id) {
            return true;
        }
        let Some(pipeline) = state.homes.get(&id).and_then(|home| state.pipelines.get(home)) else {
            return true;
        };
        let status = pipeline.ask(Command::Status).await;
        status.is_ok_and(|status| {
            status
                .queries
                .iter()
                .any(|query| query.id == id && query.failure.is_some())
        })
    }

    /// Makes every step so far durable; returns the last epoch.
    ///
    /// # Errors
    /// When a checkpoint fails.
    pub(crate) async fn checkpoint(&self) -> Result<u64, EngineError> {
        let pipelines: Vec<_> = {
            let state = self.state.lock().await;
            state.check_open()?;
            state.pipelines.values().cloned().collect()
        };
        let mut epoch = 0;
        for pipeline in pipelines {
            epoch = epoch.max(pipeline.ask(Command::Checkpoint).await??);
        }
        Ok(epoch)
    }

    /// Hands the change of a statement to its table. It goes through one of the coming steps: `change` tells when that is
    /// visible, and when it is durable.
    ///
    /// # Errors
    /// A table that does not run.
    pub(crate) async fn change(&self, table: ObjectId, change: TableChange) -> Result<(), EngineError> {
        // No pipeline ends and no table moves while the lock is held.
        let state = self.state.lock().await;
        state.check_open()?;
        if let Some((spec, error)) = state.broken.get(&table) {
            return Err(
                EngineError::new("55000", format!("table \"{}\" does not run", spec.name))
                    .with_detail(error.message.clone()),
            );
        }
        let home = state.homes.get(&table).and_then(|home| state.pipelines.get(home));
        match home {
            Some(pipeline) => pipeline.send(Command::Change(table, change)),
            None => Err(EngineError::new("42P01", "the table was dropped")),
        }
    }

    /// Waits until a query has taken everything that it starts from.
    ///
    /// # Errors
    /// Why it failed before; `57P01` when the database is closed meanwhile.
    pub(crate) async fn filled(&self, id: ObjectId) -> Result<(), EngineError> {
        let mut asked: Option<Arc<Pipeline>> = None;
        loop {
            let home = {
                let state = self.state.lock().await;
                let home = state.homes.get(&id).and_then(|home| state.pipelines.get(home));
                match home {
                    Some(home) => Arc::clone(home),
                    // It was dropped, or could not be started: nobody waits for it.
                    None => return state.check_open(),
                }
            };
            let asked_again = asked.as_ref().is_some_and(|asked| Arc::ptr_eq(asked, &home));
            match home.ask(|reply| Command::Filled(id, reply)).await {
                Ok(outcome) => return outcome,
                Err(error) if asked_again => return Err(error),
                // One that ends meanwhile has given the query to another one.
                Err(_) => asked = Some(home),
            }
        }
    }

    /// Whether it was closed.
    pub(crate) async fn is_closed(&self) -> bool {
        self.state.lock().await.closed
    }

    /// Comes back at the end of a step of every pipeline: what was acknowledged before is visible everywhere.
    ///
    /// # Errors
    /// When the database is closed.
    pub(crate) async fn barrier(&self) -> Result<(), EngineError> {
        let pipelines: Vec<_> = {
            let state = self.state.lock().await;
            state.check_open()?;
            state.pipelines.values().cloned().collect()
        };
        for pipeline in pipelines {
            // One that has ended meanwhile has nothing left to show.
            let _ = pipeline.ask(Command::Barrier).await;
        }
        Ok(())
    }

    /// How every pipeline is.
    pub(crate) async fn status(&self) -> Vec<PipelineStatus> {
        let pipelines: Vec<_> = self.state.lock().await.pipelines.values().cloned().collect();
        let mut all = Vec::with_capacity(pipelines.len());
        for pipeline in pipelines {
            if let Ok(status) = pipeline.ask(Command::Status).await {
                all.push(status);
            }
        }
        all
    }

    /// Queries that could not be started, with the reason.
    pub(crate) async fn broken(&self) -> Vec<QueryStatus> {
        let state = self.state.lock().await;
        let broken = state.broken.values();
        broken
            .map(|(spec, error)| QueryStatus::broken(spec.id, spec.name.clone(), spec.kind(), error.clone()))
            .collect()
    }

    /// Stops all pipelines after a last checkpoint.
    ///
    /// # Errors
    /// When a last checkpoint fails; everything is stopped all the same.
    pub(crate) async fn close(&self) -> Result<(), EngineError> {
        let mut state = self.state.lock().await;
        let mut outcome = Ok(());
        state.closed = true;
        for pipeline in std::mem::take(&mut state.pipelines).into_values() {
            match pipeline
                .ask(|reply| Command::Release {
                    checkpoint: true,
                    reply,
                })
                .await
            {
                Ok(released) => outcome = outcome.and(released.outcome),
                Err(error) => outcome = outcome.and(Err(error)),
            }
            pipeline.join();
        }
        state.homes.clear();
        state.followed.clear();
        // Whoever follows a view hears that nothing more comes.
        self.views.write().clear();
        outcome
    }
}

fn shared_view(query: &Query) -> Option<Arc<SharedView>> {
    match &query.output {
        Output::View(view) => Some(Arc::clone(view)),
        Output::Sink(_) | Output::Table(_) => None,
    }
}

/// Groups queries that are connected through relations that they read or write into, keeping their order.
fn connected(specs: Vec<Arc<QuerySpec>>) -> Vec<Vec<Arc<QuerySpec>>> {
    let mut groups: Vec<Vec<Arc<QuerySpec>>> = Vec::new();
    for spec in specs {
        let reads = |group: &Vec<Arc<QuerySpec>>| {
            group.iter().any(|other| {
                let is_read = spec.relations.iter().any(|(_, id)| *id == other.id);
                is_read || spec.target_table() == Some(other.id)
            })
        };
        let (joined, mut apart): (Vec<_>, Vec<_>) = groups.into_iter().partition(reads);
        let mut group: Vec<_> = joined.into_iter().flatten().collect();
        group.push(spec);
        group.sort_by_key(|spec| spec.id);
        apart.push(group);
        groups = apart;
    }
    groups
}
