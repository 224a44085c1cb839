//! One-shot reads: plan, take a consistent view of what is read, run.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::Arc;

use datafusion::catalog::TableProvider;
use datafusion::datasource::DefaultTableSource;
use datafusion::logical_expr::TableSource;
use datafusion::sql::sqlparser::ast;
use highwater_sql::catalog::{Catalog, ObjectBody};
use highwater_sql::plan::{PlannedSelect, Resolver};
use highwater_sql::statement::Statement;
use highwater_sql::{SqlError, parse, plan};
use highwater_storage::ObjectId;

use crate::answer::{Answer, RowStream};
use crate::database::{Database, names_of};
use crate::engine::view::ViewReader;
use crate::error::{Error, Result};
use crate::outcome::Outcome;
use crate::query::{self, ViewProvider};
use crate::system;

/// Starts a query.
pub(super) async fn open(database: &Database, query: &ast::Query, verb: &'static str) -> Result<Answer> {
    let catalog = database.shared.catalog();
    let relations = plan::relations_of(query);
    database.shared.filled(&catalog, names_of(&relations)).await?;
    let system = system::Snapshot::take(database, &relations).await?;
    let planned = planned(database, &catalog, &system, |resolver| {
        plan::plan_select(&catalog, query, resolver)
    })?;
    let rows = query::stream(&database.shared.runtime, planned.plan, &planned.columns).await?;
    Ok(Answer::counted(verb, RowStream::query(rows)))
}

/// Plans a read by `plan`, which is given the tables. All views are read as of one instant between two steps, after the
/// planning: no step waits for that.
pub(super) fn planned(
    database: &Database,
    catalog: &Catalog,
    system: &system::Snapshot,
    plan: impl FnOnce(Resolver<'_>) -> std::result::Result<PlannedSelect, SqlError>,
) -> Result<PlannedSelect> {
    let views = RefCell::new(HashMap::<String, Arc<ViewProvider>>::new());
    let failure = RefCell::new(None);
    let resolver = |schema: Option<&str>, name: &str| -> Option<Arc<dyn TableSource>> {
        let provider: Arc<dyn TableProvider> = match schema {
            Some(system::SCHEMA) => system.table(name)?,
            None | Some("public") => {
                let known = views.borrow().get(name).cloned();
                match known {
                    Some(known) => known,
                    None => {
                        let reader = reader(database, catalog, name)
                            .map_err(|error| *failure.borrow_mut() = Some(error))
                            .ok()??;
                        let view = Arc::new(ViewProvider::new(reader));
                        views.borrow_mut().insert(name.to_owned(), Arc::clone(&view));
                        view
                    }
                }
            }
            Some(_) => return None,
        };
        Some(Arc::new(DefaultTableSource::new(provider)))
    };
    let planned = plan(&resolver);
    let still = database.shared.engine.parts().publish.read();
    for (name, view) in views.borrow().iter() {
        let object = catalog.get(name);
        // One that was dropped meanwhile is read as it was.
        let running = object.and_then(|object| database.shared.engine.view(ObjectId(object.id.0)));
        if let Some(running) = running {
            view.renew(running.rows.lock().reader());
        }
    }
    drop(still);
    if let Some(error) = failure.into_inner() {
        return Err(error);
    }
    let planned = planned?;
    refuse_sources(catalog, &planned.plan)?;
    Ok(planned)
}

/// Runs a query of ours for a SHOW statement.
pub(super) async fn show(database: &Database, sql: &str) -> Result<Outcome> {
    let parsed = parse::parse(sql)?;
    match parsed.first().map(|parsed| &parsed.statement) {
        Some(Statement::Query(query)) => {
            let outcome = open(database, query, "SELECT").await?.collect().await?;
            Ok(Outcome {
                tag: "SHOW".to_owned(),
                ..outcome
            })
        }
        _ => Err(Error::new("XX000", "a SHOW statement is no query")),
    }
}

/// A reader of a table or a materialized view; `None` for a name that is neither.
fn reader(database: &Database, catalog: &Catalog, name: &str) -> Result<Option<ViewReader>> {
    let Some(object) = catalog.get(name) else {
        return Ok(None);
    };
    let Some(plan) = object.body.stored() else {
        return Ok(None);
    };
    let id = ObjectId(object.id.0);
    match database.shared.filled_view(object)? {
        Some(shared) => Ok(Some(shared.rows.lock().reader())),
        // Nothing runs (read-only, or its pipeline did not start): the last checkpoint is there all the same.
        None => Ok(Some(query::stored_view(&database.shared.store, id, plan.root())?)),
    }
}

/// Sources are streams: nothing of them is stored.
fn refuse_sources(catalog: &Catalog, plan: &datafusion::logical_expr::LogicalPlan) -> Result<()> {
    for name in query::table_names(plan) {
        if let Some(object) = catalog.get(&name)
            && matches!(object.body, ObjectBody::Source(_))
        {
            return Err(Error::new(
                "0A000",
                format!("reading source \"{name}\" by SELECT is not supported"),
            )
            .with_detail("A source is a stream; its rows are not stored.")
            .with_hint("Create a materialized view over it and read that."));
        }
    }
    Ok(())
}
