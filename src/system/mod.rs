//! The `hw.*` tables: what runs, how far it is, what went wrong; and PostgreSQL's tables about tables.

mod analyze;
mod connections;
pub(crate) mod health;
mod information_schema;
mod late_rows;
mod memory;
pub(crate) mod metrics;
mod operators;
pub(crate) mod pg_catalog;
mod tables;
mod why;

use std::sync::Arc;

use datafusion::catalog::TableProvider;
use datafusion::datasource::MemTable;
use datafusion::sql::sqlparser::ast;
use highwater_sql::catalog::Catalog;

use crate::activity::{ActivityCounts, Connected};
use crate::database::Database;
use crate::engine::errors_log::ErrorRow;
use crate::engine::late_rows::LateRow;
use crate::engine::pipeline::PipelineStatus;
use crate::engine::status::QueryStatus;
use crate::error::Result;

pub(crate) use self::pg_catalog::Facts;

/// The schema of the system tables.
pub(crate) const SCHEMA: &str = "hw";

/// The names of the system tables, as `pg_class` shows them.
pub(crate) const TABLES: [&str; 13] = [
    "checkpoints",
    "connections",
    "errors",
    "lanes",
    "late_rows",
    "memory",
    "operators",
    "queries",
    "settings",
    "sinks",
    "sources",
    "tables",
    "views",
];
/// How far a look goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Look {
    /// How things are, as the process knows it.
    Inside,
    /// That, the bad and late rows that are kept, and where the sources end now that nothing reads.
    Outside,
}

/// What the system tables show, taken once per query.
#[derive(Default)]
pub(crate) struct Snapshot {
    catalog: Arc<Catalog>,
    pipelines: Vec<PipelineStatus>,
    broken: Vec<QueryStatus>,
    errors: Vec<Arc<ErrorRow>>,
    late: Vec<LateRow>,
    settings: Vec<(&'static str, String)>,
    memory: memory::DatabaseMemory,
    /// When it was taken (µs since the epoch).
    now_us: i64,
    connected: Vec<Connected>,
    counts: ActivityCounts,
    stored: tables::Stored,
}

impl Snapshot {
    /// Asks the pipelines, if one of the relations that a statement reads is a system table at all.
    pub(crate) async fn take(database: &Database, relations: &[ast::ObjectName]) -> Result<Self> {
        let is_system = |name: &ast::ObjectName| {
            let first = name.0.first().and_then(ast::ObjectNamePart::as_ident);
            name.0.len() > 1 && first.is_some_and(|ident| ident.value.eq_ignore_ascii_case(SCHEMA))
        };
        if !relations.iter().any(is_system) {
            return Ok(Self::default());
        }
        Self::whole(database, Look::Outside).await
    }

    /// Asks the pipelines.
    ///
    /// # Errors
    /// Progress that cannot be read.
    pub(crate) async fn whole(database: &Database, look: Look) -> Result<Self> {
        let shared = &database.shared;
        let pipelines = shared.engine.status().await;
        let broken = shared.engine.broken();
        let running: Vec<&str> = pipelines
            .iter()
            .flat_map(|pipeline| pipeline.queries.iter().map(|query| query.name.as_str()))
            .collect();
        let parts = shared.engine.parts();
        let (errors, late) = match look {
            Look::Inside => (Vec::new(), Vec::new()),
            Look::Outside => (parts.errors.rows(), parts.late.rows()),
        };
        Ok(Self {
            catalog: shared.catalog(),
            errors,
            late,
            settings: shared.configured.settings.clone(),
            now_us: parts.clock.now_us(),
            connected: shared.activity.connected(),
            counts: shared.activity.counts(),
            memory: memory::DatabaseMemory {
                limit: shared.configured.memory.limit,
                store: shared.store.metrics(),
            },
            stored: tables::Stored::read(shared, (&running, &broken), look).await?,
            broken,
            pipelines,
        })
    }

    /// The system table of this name.
    pub(crate) fn table(&self, name: &str) -> Option<Arc<dyn TableProvider>> {
        let batch = match name {
            "sources" => self.sources(),
            "lanes" => self.lanes(),
            "queries" => self.queries(),
            "operators" => self.operators(),
            "sinks" => self.sinks(),
            "checkpoints" => self.checkpoints(),
            "connections" => self.connections(),
            "errors" => self.errors(),
            "late_rows" => self.late_rows(),
            "memory" => self.memory(),
            "settings" => self.settings(),
            "views" => self.views(),
            "tables" => self.tables(),
            _ => return None,
        };
        let table =
            MemTable::try_new(batch.schema(), vec![vec![batch]]).expect("the batch has the table's schema");
        Some(Arc::new(table))
    }
}
