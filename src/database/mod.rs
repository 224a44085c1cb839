//! A database: open it, run statements, read and follow views, close it.

mod apply;
mod body;
mod builder;
mod change;
mod filling;
mod follow;
mod machine;
mod recover;
mod specs;
mod users;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use highwater_connectors::memory::MemoryHandle;
use highwater_connectors::registry::Registry;
use highwater_sql::catalog::Catalog;
use highwater_storage::Store;
use parking_lot::RwLock;

pub(crate) use self::body::{environment, view_options};
pub use self::builder::DatabaseBuilder;
pub(crate) use self::filling::objects_of;
pub(crate) use self::follow::Followed;
pub(crate) use self::machine::started_us;
pub(crate) use self::specs::{QUERY_OPTIONS, SINK_OPTIONS, bounded_read, only_of, options_of};
use crate::activity::Activity;
use crate::engine::run::Engine;
use crate::error::{Error, Result};

/// A handle to an open database; cheap to clone. The last handle that goes stops everything without a last
/// checkpoint, as a crash would: call [`Self::close`] to end cleanly.
#[derive(Clone)]
pub struct Database {
    pub(crate) shared: Arc<Shared>,
}

/// What all handles and sessions share.
pub(crate) struct Shared {
    /// Where everything is kept.
    pub(crate) store: Arc<dyn Store>,
    /// The directory, if there is one.
    pub(crate) dir: Option<PathBuf>,
    /// What runs.
    pub(crate) engine: Engine,
    /// The objects; replaced as a whole by each DDL statement.
    pub(crate) catalog: RwLock<Arc<Catalog>>,
    /// Who may open a session from outside.
    pub(crate) users: RwLock<users::Users>,
    /// What is known of objects beside their statements.
    pub(crate) facts: RwLock<specs::Facts>,
    /// The connectors.
    pub(crate) registry: Arc<Registry>,
    /// Held by one DDL statement at a time while it changes the catalog; never while it probes.
    pub(crate) ddl: tokio::sync::Mutex<DdlState>,
    /// Runs probes and reads.
    pub(crate) runtime: tokio::runtime::Handle,
    /// Keeps the runtime alive where the database has its own.
    #[expect(
        dead_code,
        reason = "it is kept for its threads, which end when it is dropped"
    )]
    pub(crate) own_runtime: Option<builder::OwnRuntime>,
    /// What was asked for when it was opened.
    pub(crate) configured: builder::Configured,
    /// Who is connected and what runs.
    pub(crate) activity: Arc<Activity>,
}

/// The next numbers to hand out.
#[derive(Debug, Clone, Copy)]
pub(crate) struct DdlState {
    /// For an object.
    pub(crate) next_object: u32,
    /// For the order of creation.
    pub(crate) next_sequence: u64,
}

impl Database {
    /// Opens the database in a directory, which is made if it is not there, and goes on from its last checkpoint.
    ///
    /// # Errors
    /// A directory that another process holds (its pid is named) or that a newer version wrote; state that cannot be
    /// restored exactly.
    pub async fn open(dir: impl AsRef<Path>) -> Result<Self> {
        DatabaseBuilder::new().open(dir).await
    }

    /// A database that lives as long as its handle.
    ///
    /// # Errors
    /// When the operating system gives no threads.
    pub async fn in_memory() -> Result<Self> {
        DatabaseBuilder::new().in_memory().await
    }

    /// Settings before opening.
    #[must_use]
    pub fn builder() -> DatabaseBuilder {
        DatabaseBuilder::new()
    }

    /// Makes everything that views show now durable; returns the epoch.
    ///
    /// # Errors
    /// When the checkpoint fails.
    pub async fn checkpoint(&self) -> Result<u64> {
        self.refuse_read_only("CHECKPOINT")?;
        Ok(self.shared.engine.checkpoint().await?)
    }

    /// The writing end of the source `name` with `connector = 'memory'`.
    ///
    /// # Errors
    /// A name that is no such source.
    pub fn memory_source(&self, name: &str) -> Result<MemoryHandle> {
        specs::memory_handle(&self.shared, name)
    }

    /// Stops all pipelines after a last checkpoint. Later calls on any handle fail.
    ///
    /// # Errors
    /// When the last checkpoint fails; everything is stopped all the same.
    pub async fn close(self) -> Result<()> {
        Ok(self.shared.engine.close().await?)
    }

    /// Whether this handle only looks at the last checkpoint; another process may run the database.
    #[must_use]
    pub fn is_read_only(&self) -> bool {
        self.shared.store.is_read_only()
    }

    /// The directory, if the database has one.
    #[must_use]
    pub fn dir(&self) -> Option<&Path> {
        self.shared.dir.as_deref()
    }

    /// Whether statements are planned and nothing runs.
    #[must_use]
    pub fn plans_only(&self) -> bool {
        self.shared.configured.plans_only
    }

    /// Refuses a statement that would change something.
    pub(crate) fn refuse_read_only(&self, what: &str) -> Result<()> {
        if !self.is_read_only() {
            return Ok(());
        }
        Err(
            Error::new("25006", format!("cannot execute {what} in a read-only database"))
                .with_detail("It was opened to look at; what you see is its last checkpoint.")
                .with_hint("Run the statement in the process that runs the database; if none does, open it without read-only."),
        )
    }
}

impl Shared {
    /// The objects as they are now.
    pub(crate) fn catalog(&self) -> Arc<Catalog> {
        Arc::clone(&self.catalog.read())
    }
}
