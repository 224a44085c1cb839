//! Opening a database with settings.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use highwater_connectors::registry::Registry;
use highwater_sql::host::{AggregateFunction, HostFunctions, ScalarFunction};
use highwater_sql::plan::HostTypes;
use highwater_storage::{MemoryStore, RocksStore, Store, StoreOptions};

use super::{Database, machine, recover};
use crate::engine::clock::{Clock, HeldClock, SystemClock};
use crate::error::{Error, Result};

/// Settings of a database, each with a default that works.
#[derive(Clone)]
pub struct DatabaseBuilder {
    checkpoint_interval: Duration,
    checkpoint_overdue: Duration,
    lane_threads: usize,
    memory_limit: Option<usize>,
    storage_memory_bytes: Option<usize>,
    registry: Arc<Registry>,
    clock: Arc<dyn Clock>,
    backfill_rows: usize,
    scalar_functions: Vec<ScalarFunction>,
    aggregates: Vec<AggregateFunction>,
    plans_only: bool,
}

/// What was asked for when a database was opened.
#[derive(Debug, Clone)]
pub(crate) struct Configured {
    /// How its memory is shared out.
    pub(crate) memory: MemoryShares,
    /// Settings, for people.
    pub(crate) settings: Vec<(&'static str, String)>,
    /// After how long a checkpoint that is not durable is overdue.
    pub(crate) checkpoint_overdue: Duration,
    /// Statements are planned, and nothing runs.
    pub(crate) plans_only: bool,
}

/// Everything that opening needs.
pub(super) struct OpenOptions {
    pub(super) checkpoint_interval: Duration,
    pub(super) lane_threads: usize,
    pub(super) configured: Configured,
    pub(super) registry: Arc<Registry>,
    pub(super) functions: HostFunctions,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) backfill_rows: usize,
    pub(super) dir: Option<std::path::PathBuf>,
}

/// How the memory of a database is shared out, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct MemoryShares {
    /// All of it.
    pub(crate) limit: usize,
    /// RocksDB's cache and write buffers.
    pub(crate) storage: usize,
}

impl MemoryShares {
    /// What was asked for, with defaults: half of the machine, and of that a quarter for storage, from 16 to 256 MiB.
    ///
    /// # Errors
    /// Nothing left for the state of queries.
    fn of(limit: Option<usize>, storage: Option<usize>) -> Result<Self> {
        let limit = limit.unwrap_or_else(|| machine::memory_bytes() / 2);
        let storage = storage.unwrap_or((limit / 4).clamp(STORAGE_BYTES_MIN, STORAGE_BYTES_MAX));
        if limit <= storage {
            let message =
                format!("memory_limit cannot be {limit} bytes: storage takes {storage} bytes of it");
            return Err(Error::new("22023", message)
                .with_hint("Give more than 16 MiB, of which the rest is for the state of views."));
        }
        Ok(Self { limit, storage })
    }

    /// What queries may hold.
    pub(crate) fn state(self) -> usize {
        self.limit - self.storage
    }
}

/// Storage has at least this share of the memory.
const STORAGE_BYTES_MIN: usize = 16 << 20;
/// More than this is for state, unless it is asked for.
const STORAGE_BYTES_MAX: usize = 256 << 20;

/// A runtime that may be dropped inside another one.
pub(crate) struct OwnRuntime(Option<tokio::runtime::Runtime>);

impl OwnRuntime {
    /// Starts a runtime with its own threads.
    pub(super) fn start() -> Result<Self> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .thread_name("hw-read")
            .enable_all()
            .build()
            .map_err(|error| Error::new("53000", format!("no threads for reads: {error}")))?;
        Ok(Self(Some(runtime)))
    }

    /// Where to run things.
    pub(super) fn handle(&self) -> tokio::runtime::Handle {
        let runtime = self
            .0
            .as_ref()
            .expect("the runtime is only taken when it is dropped");
        runtime.handle().clone()
    }
}

impl Drop for OwnRuntime {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

impl Default for DatabaseBuilder {
    fn default() -> Self {
        Self::new()
    }
}

impl DatabaseBuilder {
    /// The defaults: a checkpoint each second, one lane thread per core, half of the machine's memory, the built-in
    /// connectors.
    #[must_use]
    pub fn new() -> Self {
        Self {
            checkpoint_interval: Duration::from_secs(1),
            checkpoint_overdue: Duration::from_secs(30),
            lane_threads: std::thread::available_parallelism().map_or(2, usize::from),
            memory_limit: None,
            storage_memory_bytes: None,
            registry: Arc::new(Registry::with_builtin()),
            clock: Arc::new(SystemClock),
            backfill_rows: 65_536,
            scalar_functions: Vec::new(),
            aggregates: Vec::new(),
            plans_only: false,
        }
    }

    /// Time between checkpoints: how much is read again after a crash. Zero: one after each step.
    #[must_use]
    pub fn checkpoint_interval(mut self, interval: Duration) -> Self {
        self.checkpoint_interval = interval;
        self
    }

    /// How long a checkpoint may be written until [`Database::problems`] and `/healthz` call it overdue (30 s).
    #[must_use]
    pub fn checkpoint_overdue(mut self, limit: Duration) -> Self {
        self.checkpoint_overdue = limit;
        self
    }

    /// Threads that read and decode lanes, shared by all pipelines.
    #[must_use]
    pub fn lane_threads(mut self, threads: usize) -> Self {
        self.lane_threads = threads;
        self
    }

    /// Memory for all that the database holds, in bytes: the state of queries, rows on their way, and storage. The default is half
    /// of the machine's memory, or of the control group's if that has less. State that does not fit is evicted to disk and read
    /// back when it is needed; other memory of the process, such as batches being decoded, comes on top.
    #[must_use]
    pub fn memory_limit(mut self, bytes: usize) -> Self {
        self.memory_limit = Some(bytes);
        self
    }

    /// The part of [`Self::memory_limit`] that RocksDB's cache and write buffers have, in bytes. The default is a quarter, at least
    /// 16 MiB and at most 256 MiB.
    #[must_use]
    pub fn storage_memory_bytes(mut self, bytes: usize) -> Self {
        self.storage_memory_bytes = Some(bytes);
        self
    }

    /// Rows of a table or view that a new view or sink over it takes in one step at most, until it has all that are there
    /// (65,536). It takes fewer where a step would last long, so that the other views of the pipeline do not wait for it.
    #[must_use]
    pub fn backfill_rows(mut self, rows: usize) -> Self {
        self.backfill_rows = rows;
        self
    }

    /// Connectors of your own, beside or instead of the built-in ones.
    #[must_use]
    pub fn registry(mut self, registry: Registry) -> Self {
        self.registry = Arc::new(registry);
        self
    }

    /// What the time is, in microseconds since 1970-01-01 00:00:00 UTC, in place of the machine's clock: for `now()` in views, idle
    /// partitions and rows ahead of their time. For tests, which hold the clock.
    #[must_use]
    pub fn clock(mut self, now_us: impl Fn() -> i64 + Send + Sync + 'static) -> Self {
        self.clock = Arc::new(HeldClock(now_us));
        self
    }

    /// Adds a function that SQL can call. A database whose views call it must be opened with it again: without it those
    /// views are FAILED, and the others run.
    #[must_use]
    pub fn with_scalar_function(mut self, function: ScalarFunction) -> Self {
        self.scalar_functions.push(function);
        self
    }

    /// Adds an aggregate that SQL can call, as [`Self::with_scalar_function`].
    #[must_use]
    pub fn with_aggregate(mut self, function: AggregateFunction) -> Self {
        self.aggregates.push(function);
        self
    }

    /// A database that plans statements and does nothing else: objects are made and dropped in the catalog alone, no source or sink
    /// is asked for anything, no query runs, no row changes. It tells whether a script would be taken. For [`Self::in_memory`]: in
    /// a directory it is refused.
    #[must_use]
    pub fn plans_only(mut self) -> Self {
        self.plans_only = true;
        self
    }

    /// Opens the database in a directory.
    ///
    /// # Errors
    /// As [`Database::open`]; settings that do not work.
    pub async fn open(self, dir: impl AsRef<Path>) -> Result<Database> {
        if self.plans_only {
            return Err(Error::new("0A000", "a database that only plans has no directory"));
        }
        let memory = MemoryShares::of(self.memory_limit, self.storage_memory_bytes)?;
        let options = StoreOptions {
            memory_bytes: memory.storage,
            ..StoreOptions::default()
        };
        let path = dir.as_ref().to_path_buf();
        let opened = path.clone();
        let store = tokio::task::spawn_blocking(move || RocksStore::open(opened, &options));
        let store = store
            .await
            .map_err(|_| Error::new("XX000", "opening the store panicked"))??;
        self.start(store, Some(path)).await
    }

    /// Looks at a directory that another process may hold: its last checkpoint, without running anything.
    ///
    /// # Errors
    /// A directory that is no database.
    pub async fn open_read_only(self, dir: impl AsRef<Path>) -> Result<Database> {
        let path = dir.as_ref().to_path_buf();
        let store = RocksStore::open_read_only(&path)?;
        self.start(store, Some(path)).await
    }

    /// A database that lives as long as its handle.
    ///
    /// # Errors
    /// When the operating system gives no threads.
    pub async fn in_memory(self) -> Result<Database> {
        self.start(Arc::new(MemoryStore::new()), None).await
    }

    async fn start(self, store: Arc<dyn Store>, dir: Option<std::path::PathBuf>) -> Result<Database> {
        if self.lane_threads == 0 {
            return Err(Error::new("22023", "lane_threads must be at least 1"));
        }
        if self.backfill_rows == 0 {
            return Err(Error::new("22023", "backfill_rows must be at least 1"));
        }
        let memory = MemoryShares::of(self.memory_limit, self.storage_memory_bytes)?;
        let settings = vec![
            ("backfill_rows", self.backfill_rows.to_string()),
            ("checkpoint_interval", format!("{:?}", self.checkpoint_interval)),
            ("checkpoint_overdue", format!("{:?}", self.checkpoint_overdue)),
            ("lane_threads", self.lane_threads.to_string()),
            ("memory_limit", memory.limit.to_string()),
            ("storage_memory_bytes", memory.storage.to_string()),
            ("highwater_version", env!("CARGO_PKG_VERSION").to_owned()),
        ];
        let functions = HostFunctions::new(self.scalar_functions, self.aggregates, &HostTypes)?;
        let options = OpenOptions {
            functions,
            checkpoint_interval: self.checkpoint_interval,
            lane_threads: self.lane_threads,
            configured: Configured {
                memory,
                settings,
                checkpoint_overdue: self.checkpoint_overdue,
                plans_only: self.plans_only,
            },
            registry: self.registry,
            clock: self.clock,
            backfill_rows: self.backfill_rows,
            dir,
        };
        recover::open(store, options).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn storage_has_its_share_of_the_memory() {
        let shares = |limit: usize| MemoryShares::of(Some(limit), None).unwrap();
        assert_eq!(
            (shares(256 << 20).storage, shares(256 << 20).state()),
            (64 << 20, 192 << 20)
        );
        assert_eq!(shares(8 << 30).storage, 256 << 20);
        assert_eq!(shares(24 << 20).storage, 16 << 20);
        assert!(MemoryShares::of(Some(16 << 20), None).is_err());
        assert!(MemoryShares::of(None, None).is_ok());
    }
}
