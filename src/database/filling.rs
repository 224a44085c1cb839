//! Views that have not taken all rows yet that were there when they were created: who reads them waits.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use datafusion::sql::sqlparser::ast;
use highwater_sql::catalog::{Catalog, Object, ObjectBody};
use highwater_storage::ObjectId as StoredId;

use super::{Database, Shared};
use crate::engine::query::output::SharedView;
use crate::error::{Error, Result};

impl Shared {
    /// The rows of a table or a materialized view, if it runs.
    ///
    /// # Errors
    /// `55000` if it has not all rows yet that it starts with.
    pub(crate) fn filled_view(&self, object: &Object) -> Result<Option<Arc<SharedView>>> {
        let view = self.engine.view(StoredId(object.id.0));
        match view {
            Some(view) if view.is_filling.load(Ordering::SeqCst) => Err(not_filled(object)),
            Some(view) => Ok(Some(view)),
            // Nothing runs: what the last checkpoint has may be a part.
            None if self.engine.was_filling(StoredId(object.id.0))? => Err(not_filled(object)),
            None => Ok(None),
        }
    }

    /// Waits until these and everything that stands behind them have all rows that they start with.
    ///
    /// # Errors
    /// `55000` for what failed before.
    pub(crate) async fn filled(&self, catalog: &Catalog, objects: &[Arc<Object>]) -> Result<()> {
        let mut objects: Vec<&Arc<Object>> = objects.iter().collect();
        let mut seen = BTreeSet::new();
        while let Some(object) = objects.pop() {
            if let ObjectBody::View(_) = &object.body {
                // A view may be reached in many ways.
                let below = object.depends_on.iter().filter_map(|name| catalog.get(name));
                objects.extend(below.filter(|object| seen.insert(object.id)));
            }
            let id = StoredId(object.id.0);
            let view = self.engine.view(id);
            if view.is_some_and(|view| view.is_filling.load(Ordering::SeqCst)) {
                self.engine.filled(id).await.map_err(|error| {
                    let message = format!(
                        "{} \"{}\" failed before it had all rows",
                        object.body.kind().noun(),
                        object.name
                    );
                    Error::new("55000", message)
                        .with_detail(format!("Its error is: {}.", error.message))
                        .with_hint("SELECT * FROM hw.queries tells more.")
                })?;
            }
        }
        Ok(())
    }
}

impl Database {
    /// What is said of an object that goes on filling behind its CREATE.
    pub(super) async fn filling_notice(&self, name: &str) -> Option<String> {
        let catalog = self.shared.catalog();
        let object = catalog.get(name)?;
        let id = StoredId(object.id.0);
        let (rows, of_rows) = self.shared.engine.backfill(id).await?;
        Some(format!(
            "{} \"{}\" is being filled: it has {rows} of {of_rows} rows; hw.queries shows how far it is",
            object.body.kind().noun(),
            object.name
        ))
    }
}

/// The objects that a query names, each once.
pub(crate) fn objects_of(catalog: &Catalog, relations: &[ast::ObjectName]) -> Vec<Arc<Object>> {
    let mut objects: Vec<Arc<Object>> = Vec::with_capacity(relations.len());
    for ident in relations.iter().filter_map(|name| name.0.last()?.as_ident()) {
        let found = match ident.quote_style {
            Some(_) => catalog.get(&ident.value),
            None => catalog.get(&ident.value.to_lowercase()),
        };
        objects.extend(
            found
                .filter(|found| objects.iter().all(|own| own.id != found.id))
                .cloned(),
        );
    }
    objects
}

fn not_filled(object: &Object) -> Error {
    let message = format!(
        "{} \"{}\" is being filled",
        object.body.kind().noun(),
        object.name
    );
    Error::new("55000", message)
        .with_detail("It has not taken all rows yet that were there when it was created.")
        .with_hint("hw.queries shows how far it is: backfill_done of backfill_rows.")
}
