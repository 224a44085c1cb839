//! The running engine of one database: its pipelines, and which query runs in which.
//!
//! Two locks: who changes which queries run where holds `changes`, as long as that takes; `state` is held for a look or a note and
//! never while a pipeline is asked. So a pipeline, sink or source that takes its time holds up nobody who does not ask for it.

mod groups;
mod moves;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use highwater_storage::{Durability, Epoch, Family, ObjectId, Store, WriteBatch, layout, progress};

use super::clock::Clock;
use super::error::EngineError;
use super::errors_log::ErrorLog;
use super::followed;
use super::lane::pool::LanePool;
use super::memory::MemoryBudget;
use super::pipeline::checkpoint::Checkpointer;
use super::pipeline::{Command, Departure, Ending, Pipeline, PipelineOptions, PipelineStatus};
use super::query::Query;
use super::query::change::TableChange;
use super::query::header::QueryHeader;
use super::query::output::{Output, SharedView};
use super::query::spec::{EngineParts, QuerySpec};
use super::reaper::{CLOSE_MAX, Reaper};
use super::status::{Phase, QueryStatus};
use super::subscribe::ChangeReceiver;
use super::view::OpenStarts;

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
    /// Held by who changes which queries run where.
    changes: tokio::sync::Mutex<()>,
    state: parking_lot::Mutex<EngineState>,
    views: parking_lot::RwLock<BTreeMap<ObjectId, Arc<SharedView>>>,
    /// How many queries were followed so far.
    followed: AtomicU32,
    /// What subscriptions start with.
    starts: OpenStarts,
}

#[derive(Default)]
struct EngineState {
    pipelines: BTreeMap<u32, Arc<Pipeline>>,
    next_pipeline: u32,
    /// Which pipeline runs a query. It is one that is not there while the query is on its way from one to another.
    homes: BTreeMap<ObjectId, u32>,
    /// How a pipeline was whose queries are on their way.
    moving: Option<PipelineStatus>,
    /// Queries that could not be started, with the reason.
    broken: BTreeMap<ObjectId, (Arc<QuerySpec>, EngineError)>,
    /// Queries that are only followed, with what each reads: relations and sources.
    followed: BTreeMap<ObjectId, Vec<ObjectId>>,
    closed: bool,
}

/// The home of queries that have left one pipeline and are in no other yet.
const NOWHERE: u32 = u32::MAX;

/// Where a query is.
enum Place {
    /// In this pipeline.
    In(Arc<Pipeline>),
    /// On its way to one: it is there when whoever changes that is done.
    Moving,
    /// In none.
    Nowhere,
}

impl EngineState {
    fn check_open(&self) -> Result<(), EngineError> {
        if self.closed {
            return Err(EngineError::new("57P01", "the database is closed"));
        }
        Ok(())
    }

    fn place(&self, query: ObjectId) -> Place {
        match self.homes.get(&query) {
            Some(home) => match self.pipelines.get(home) {
                Some(pipeline) => Place::In(Arc::clone(pipeline)),
                None => Place::Moving,
            },
            None => Place::Nowhere,
        }
    }

    /// The pipelines of all relations that queries read or write into.
    fn homes_of(&self, specs: &[Arc<QuerySpec>]) -> BTreeSet<u32> {
        let needed = specs.iter().flat_map(|spec| {
            let relations = spec.relations.iter().map(|(_, id)| *id);
            relations.chain(spec.target_table())
        });
        let homes = needed.filter_map(|id| self.homes.get(&id).copied());
        homes.filter(|home| self.pipelines.contains_key(home)).collect()
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
            reaper: Arc::new(Reaper::default()),
        };
        let checkpointer = Arc::new(Checkpointer::start(&parts, options.last_epoch)?);
        Ok(Self {
            options: PipelineOptions {
                parts,
                checkpointer,
                checkpoint_interval: options.checkpoint_interval,
            },
            changes: tokio::sync::Mutex::default(),
            state: parking_lot::Mutex::default(),
            views: parking_lot::RwLock::default(),
            followed: AtomicU32::new(0),
            starts: OpenStarts::default(),
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

    /// Follows a view: its rows as they are, then what steps change. Of a query that `is_followed` only, the rows are kept no longer.
    pub(crate) fn follow(&self, view: &SharedView, is_followed: bool) -> ChangeReceiver {
        // No step is published between the snapshot and the first change.
        let _still = self.options.parts.publish.read();
        let receiver = view.follow(is_followed);
        self.starts.add(&receiver.start);
        receiver
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
        let _changes = self.changes.lock().await;
        let homes = {
            let state = self.state.lock();
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
            state.homes_of(std::slice::from_ref(&spec))
        };
        let query = Query::restore(Arc::clone(&spec), &self.options.parts)?;
        let view = shared_view(&query);
        let home = self.join_pipelines(homes).await?;
        let attached = self
            .ask(home, |reply| Command::Attach(Box::new(query), reply))
            .await;
        if let Err(error) = attached.and_then(|attached| attached) {
            self.end_if_empty(home).await?;
            return Err(error);
        }
        let mut state = self.state.lock();
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

    /// Asks the pipeline of this number.
    async fn ask<T>(
        &self,
        home: u32,
        make: impl FnOnce(super::pipeline::Reply<T>) -> Command,
    ) -> Result<T, EngineError> {
        let pipeline = self.state.lock().pipelines.get(&home).cloned();
        match pipeline {
            Some(pipeline) => pipeline.ask(make).await,
            None => Err(EngineError::internal("a pipeline is gone that runs queries")),
        }
    }

    /// Stops queries for good, all of a pipeline between the same two steps, and with them the queries that read them and are only
    /// followed; of a source only those. What the catalog still has of the pipelines that they kept from running runs then. Their
    /// sinks and sources may still be closing: [`Reaper::wait`].
    ///
    /// # Errors
    /// When a pipeline has ended.
    pub(crate) async fn drop_queries(&self, ids: &[ObjectId]) -> Result<(), EngineError> {
        let _changes = self.changes.lock().await;
        let was_broken = {
            let mut state = self.state.lock();
            let broken = ids.iter().filter_map(|id| state.broken.remove(id));
            broken.count() > 0
        };
        let all = self.with_followers(ids);
        let homes = self.take_out(&all, None).await?;
        {
            let mut state = self.state.lock();
            let mut views = self.views.write();
            for id in &all {
                views.remove(id);
                state.homes.remove(id);
                state.followed.remove(id);
            }
        }
        for home in homes.into_values() {
            self.end_if_empty(home).await?;
        }
        if was_broken {
            // The others of their pipelines may have been kept from running by these alone.
            let rest = std::mem::take(&mut self.state.lock().broken).into_values();
            let rest = rest.map(|(spec, _)| spec).collect();
            // Those that cannot run say why.
            let _ = self.run_groups(rest, &BTreeMap::new()).await;
        }
        Ok(())
    }

    /// Queries, behind those that read them and are only followed.
    fn with_followers(&self, ids: &[ObjectId]) -> Vec<ObjectId> {
        let state = self.state.lock();
        let followers = state.followed.iter().filter(|(id, reads)| {
            let reads_one = reads.iter().any(|read| ids.contains(read));
            reads_one && !ids.contains(*id)
        });
        followers.map(|(id, _)| *id).chain(ids.iter().copied()).collect()
    }

    /// Takes queries out of their pipelines, and gives which those were. The first of these writes `batch` before; if none is
    /// there it is written all the same.
    async fn take_out(
        &self,
        ids: &[ObjectId],
        mut batch: Option<WriteBatch>,
    ) -> Result<BTreeMap<ObjectId, u32>, EngineError> {
        let mut homes = BTreeMap::new();
        let mut by_home: BTreeMap<u32, Vec<ObjectId>> = BTreeMap::new();
        {
            let state = self.state.lock();
            for id in ids {
                let home = state.homes.get(id);
                if let Some(home) = home.filter(|home| state.pipelines.contains_key(home)) {
                    homes.insert(*id, *home);
                    by_home.entry(*home).or_default().push(*id);
                }
            }
        }
        for (home, queries) in by_home {
            let departure = Departure {
                queries,
                batch: batch.take(),
            };
            self.ask(home, |reply| Command::Detach(departure, reply))
                .await??;
        }
        if let Some(batch) = batch.filter(|batch| !batch.is_empty()) {
            let store = Arc::clone(&self.options.parts.store);
            let written = tokio::task::spawn_blocking(move || store.commit(batch, Durability::Sync)).await;
            written.map_err(|_| EngineError::internal("writing a change of the catalog panicked"))??;
        }
        Ok(homes)
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

    /// Records with `batch` that a query which has failed, for `cause`, misses changes of what it reads from then on.
    ///
    /// # Errors
    /// A header that cannot be read.
    pub(crate) fn put_stale(
        &self,
        id: ObjectId,
        cause: EngineError,
        batch: &mut WriteBatch,
    ) -> Result<(), EngineError> {
        let found = progress::load(self.parts().store.snapshot().as_ref(), id)?;
        // One that no checkpoint has recorded has nothing that could be behind.
        let Some(mut query) = found.query else {
            return Ok(());
        };
        let mut header = QueryHeader::decode(&query.extra)?;
        header.stale = true;
        header.cause.get_or_insert(cause);
        query.extra = header.encode();
        let mut row = Vec::new();
        query.encode(&mut row);
        batch.put(Family::Progress, &layout::query_key(id), &row);
        Ok(())
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
        let Place::In(home) = self.state.lock().place(id) else {
            return None;
        };
        let status = home.ask(Command::Status).await.ok()?;
        let query = status.queries.into_iter().find(|query| query.id == id)?;
        match (query.failure, query.phase) {
            (None, Phase::Filling(rows, of_rows)) => Some((rows, of_rows)),
            _ => None,
        }
    }

    /// Whether a query stopped with an error or could not be started.
    pub(crate) async fn has_failed(&self, id: ObjectId) -> bool {
        let Some(pipeline) = self.settled(id).await else {
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

    /// The pipeline of a query, which is waited for while it is on its way from one to another; `None` if it is in none.
    async fn settled(&self, id: ObjectId) -> Option<Arc<Pipeline>> {
        loop {
            let place = self.state.lock().place(id);
            match place {
                Place::In(pipeline) => return Some(pipeline),
                Place::Nowhere => return None,
                Place::Moving => drop(self.changes.lock().await),
            }
        }
    }

    /// Makes every step so far durable; returns the last epoch.
    ///
    /// # Errors
    /// When a checkpoint fails.
    pub(crate) async fn checkpoint(&self) -> Result<u64, EngineError> {
        // No query is on its way from one pipeline to another meanwhile.
        let _changes = self.changes.lock().await;
        let mut epoch = 0;
        for pipeline in self.open_pipelines()? {
            epoch = epoch.max(pipeline.ask(Command::Checkpoint).await??);
        }
        Ok(epoch)
    }

    fn open_pipelines(&self) -> Result<Vec<Arc<Pipeline>>, EngineError> {
        let state = self.state.lock();
        state.check_open()?;
        Ok(state.pipelines.values().cloned().collect())
    }

    /// Hands the change of a statement to its table. It goes through one of the coming steps: `change` tells when that is
    /// visible, and when it is durable.
    ///
    /// # Errors
    /// A table that does not run.
    pub(crate) async fn change(&self, table: ObjectId, change: TableChange) -> Result<(), EngineError> {
        loop {
            {
                // No table moves while the lock is held: what is sent before is taken along.
                let state = self.state.lock();
                state.check_open()?;
                if let Some((spec, error)) = state.broken.get(&table) {
                    let message = format!("table \"{}\" does not run", spec.name);
                    return Err(EngineError::new("55000", message).with_detail(error.message.clone()));
                }
                match state.place(table) {
                    Place::In(pipeline) => return pipeline.send(Command::Change(table, change)),
                    Place::Nowhere => return Err(EngineError::new("42P01", "the table was dropped")),
                    Place::Moving => {}
                }
            }
            drop(self.changes.lock().await);
        }
    }

    /// Waits until a query has taken everything that it starts from.
    ///
    /// # Errors
    /// Why it failed before; `57P01` when the database is closed meanwhile.
    pub(crate) async fn filled(&self, id: ObjectId) -> Result<(), EngineError> {
        let mut asked: Option<Arc<Pipeline>> = None;
        loop {
            // It was dropped, or could not be started: nobody waits for it.
            let Some(home) = self.settled(id).await else {
                return self.state.lock().check_open();
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
        self.state.lock().closed
    }

    /// Comes back at the end of a step of every pipeline: what was acknowledged before is visible everywhere.
    ///
    /// # Errors
    /// When the database is closed.
    pub(crate) async fn barrier(&self) -> Result<(), EngineError> {
        for pipeline in self.open_pipelines()? {
            // One that has ended meanwhile has nothing left to show.
            let _ = pipeline.ask(Command::Barrier).await;
        }
        Ok(())
    }

    /// How every pipeline is.
    pub(crate) async fn status(&self) -> Vec<PipelineStatus> {
        let (pipelines, moving) = {
            let state = self.state.lock();
            let pipelines: Vec<_> = state.pipelines.values().cloned().collect();
            (pipelines, state.moving.clone())
        };
        let mut all = Vec::with_capacity(pipelines.len());
        for pipeline in pipelines {
            if let Ok(status) = pipeline.ask(Command::Status).await {
                all.push(status);
            }
        }
        // Who has arrived meanwhile is told of once.
        let is_new = |query: &QueryStatus| {
            all.iter()
                .all(|other| other.queries.iter().all(|own| own.id != query.id))
        };
        if let Some(mut moving) = moving {
            moving.queries.retain(is_new);
            all.push(moving);
        }
        all
    }

    /// Queries that could not be started, with the reason.
    pub(crate) fn broken(&self) -> Vec<QueryStatus> {
        let state = self.state.lock();
        let broken = state.broken.values();
        broken
            .map(|(spec, error)| QueryStatus::broken(spec.id, spec.name.clone(), spec.kind(), error.clone()))
            .collect()
    }

    /// Stops all pipelines after a last checkpoint, all at the same time.
    ///
    /// # Errors
    /// When a last checkpoint fails; everything is stopped all the same.
    pub(crate) async fn close(&self) -> Result<(), EngineError> {
        let _changes = self.changes.lock().await;
        let pipelines = {
            let mut state = self.state.lock();
            state.closed = true;
            state.homes.clear();
            state.followed.clear();
            std::mem::take(&mut state.pipelines)
        };
        let endings = pipelines.into_values().map(|pipeline| async move {
            let released = pipeline
                .ask(|reply| Command::Release(Ending::Closed, reply))
                .await;
            pipeline.join();
            released.and_then(|released| released.outcome)
        });
        let outcomes = futures::future::join_all(endings).await;
        // What was dropped before may be closing still.
        self.options.parts.reaper.wait_all(CLOSE_MAX);
        self.close_views();
        outcomes.into_iter().collect()
    }

    /// Ends all subscriptions: whoever follows a view hears that nothing more comes.
    fn close_views(&self) {
        let views = std::mem::take(&mut *self.views.write());
        views.values().for_each(|view| view.subscribers.close());
        // Views that were dropped or resumed are not among them.
        self.starts.close();
    }
}

impl Drop for Engine {
    /// Ends everything without a last checkpoint, as a crash would, but waits for what is closing.
    fn drop(&mut self) {
        self.state.get_mut().pipelines.clear();
        self.close_views();
        self.options.parts.reaper.wait_all(CLOSE_MAX);
    }
}

fn shared_view(query: &Query) -> Option<Arc<SharedView>> {
    match &query.output {
        Output::View(view) => Some(Arc::clone(view)),
        Output::Sink(_) | Output::Table(_) => None,
    }
}
