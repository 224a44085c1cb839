//! The `hw.*` tables: what runs, how far it is, what went wrong.

mod late_rows;
mod memory;
mod tables;

use std::sync::Arc;

use datafusion::catalog::TableProvider;
use datafusion::datasource::MemTable;
use datafusion::sql::sqlparser::ast;
use highwater_sql::catalog::Catalog;

use crate::database::Database;
use crate::engine::errors_log::ErrorRow;
use crate::engine::late_rows::LateRow;
use crate::engine::pipeline::PipelineStatus;
use crate::engine::status::QueryStatus;
use crate::error::Result;

/// The schema of the system tables.
pub(crate) const SCHEMA: &str = "hw";

/// What the system tables show, taken once per query.
#[derive(Default)]
pub(crate) struct Snapshot {
    catalog: Arc<Catalog>,
    pipelines: Vec<PipelineStatus>,
    broken: Vec<QueryStatus>,
    errors: Vec<ErrorRow>,
    late: Vec<LateRow>,
    settings: Vec<(&'static str, String)>,
    memory: memory::DatabaseMemory,
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
        let shared = &database.shared;
        let pipelines = shared.engine.status().await;
        let broken = shared.engine.broken().await;
        let running: Vec<&str> = pipelines
            .iter()
            .flat_map(|pipeline| pipeline.queries.iter().map(|query| query.name.as_str()))
            .collect();
        Ok(Self {
            catalog: shared.catalog(),
            errors: shared.engine.parts().errors.rows(),
            late: shared.engine.parts().late.rows(),
            settings: shared.settings.clone(),
            memory: memory::DatabaseMemory {
                limit: shared.memory.limit,
                store: shared.store.metrics(),
            },
            stored: tables::Stored::read(shared, &running, &broken).await?,
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
