//! The `hw.*` tables: what runs, how far it is, what went wrong.

mod tables;

use std::ops::ControlFlow;
use std::sync::Arc;

use datafusion::catalog::TableProvider;
use datafusion::datasource::MemTable;
use datafusion::sql::sqlparser::ast;
use highwater_sql::catalog::Catalog;
use highwater_sql::statement::ObjectKind;

use crate::database::Database;
use crate::engine::error::EngineError;
use crate::engine::errors_log::ErrorRow;
use crate::engine::pipeline::PipelineStatus;
use crate::error::Result;

/// The schema of the system tables.
pub(crate) const SCHEMA: &str = "hw";

/// What the system tables show, taken once per query.
#[derive(Default)]
pub(crate) struct Snapshot {
    catalog: Arc<Catalog>,
    pipelines: Vec<PipelineStatus>,
    broken: Vec<(String, ObjectKind, EngineError)>,
    errors: Vec<ErrorRow>,
    settings: Vec<(&'static str, String)>,
    stored: tables::Stored,
}

/// Whether a query, or an expression, names a system table.
pub(crate) fn is_read_by(read: &impl ast::Visit) -> bool {
    let found = ast::visit_relations(read, |name| {
        let first = name.0.first().and_then(ast::ObjectNamePart::as_ident);
        match first {
            Some(ident) if name.0.len() > 1 && ident.value.eq_ignore_ascii_case(SCHEMA) => {
                ControlFlow::Break(())
            }
            _ => ControlFlow::Continue(()),
        }
    });
    found.is_break()
}

impl Snapshot {
    /// Asks the pipelines, if the statement reads a system table at all.
    pub(crate) async fn take(database: &Database, reads: bool) -> Result<Self> {
        if !reads {
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
            settings: shared.settings.clone(),
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
