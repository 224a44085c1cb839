//! One-shot reads: plan, take a consistent view of what is read, run.

use std::cell::{OnceCell, RefCell};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use datafusion::catalog::TableProvider;
use datafusion::datasource::DefaultTableSource;
use datafusion::logical_expr::{ScalarUDF, TableSource};
use datafusion::sql::sqlparser::ast;
use highwater_sql::catalog::{Catalog, ColumnDef, ColumnOrigin, Object, ObjectBody};
use highwater_sql::plan::{PlannedSelect, Resolve, Resolver};
use highwater_sql::statement::{Include, Statement};
use highwater_sql::{SqlError, parse, plan};
use highwater_storage::ObjectId;
use tokio::runtime::RuntimeFlavor;

use super::lookup;
use super::reuse::Bound;
use crate::answer::{Answer, RowStream};
use crate::database::{Database, bounded_read, objects_of};
use crate::engine::view::ViewReader;
use crate::error::{Error, Result};
use crate::outcome::{Notice, Outcome};
use crate::query::{self, MakeRead, Readers, RecordColumns, SourceProvider, ViewProvider, Work};
use crate::system::{self, Facts, pg_catalog};

/// Starts a query.
pub(super) async fn open(database: &Database, query: &ast::Query, verb: &'static str) -> Result<Answer> {
    open_bound(database, query, verb, None).await
}

/// Starts a query that is perhaps one of a prepared statement.
pub(super) async fn open_bound(
    database: &Database,
    query: &ast::Query,
    verb: &'static str,
    bound: Option<Bound<'_>>,
) -> Result<Answer> {
    let catalog = database.shared.catalog();
    let relations = plan::relations_of(query);
    let objects = objects_of(&catalog, &relations);
    database.shared.filled(&catalog, &objects).await?;
    let notices = stopped(database, &objects);
    if let Some(rows) = lookup::rows(database, &catalog, &objects, query)? {
        return Ok(Answer::counted(verb, rows.into()).with_notices(notices));
    }
    if let Some(bound) = bound
        && let Some((ready, values)) = bound.ready(database, &catalog).await
        && let Some(work) = ready.work(database, &catalog, values)?
    {
        let rows = query::stream(&database.shared.runtime, work, &ready.columns, &[]).await?;
        return Ok(Answer::counted(verb, RowStream::query(rows)).with_notices(notices));
    }
    let system = system::Snapshot::take(database, &relations).await?;
    let planned = planned(database, &catalog, &system, |resolver| {
        plan::plan_select(&catalog, query, resolver)
    })?;
    let told = pg_catalog::told(&planned.plan);
    let work = Work::Plan(planned.plan);
    let rows = query::stream(&database.shared.runtime, work, &planned.columns, &told).await?;
    Ok(Answer::counted(verb, RowStream::query(rows)).with_notices(notices))
}

/// What is said of relations that follow nothing any more: their rows are as they were.
fn stopped(database: &Database, objects: &[Arc<Object>]) -> Vec<Notice> {
    let engine = &database.shared.engine;
    let has_failed = |object: &&Arc<Object>| {
        let view = engine.view(ObjectId(object.id.0));
        view.is_some_and(|view| view.subscribers.have_ended())
    };
    let message = |object: &Arc<Object>| {
        let (noun, name) = (object.body.kind().noun(), &object.name);
        format!("{noun} \"{name}\" has failed: its rows are as of the failure; hw.queries has the reason")
    };
    let stored = objects.iter();
    let failed = stored.filter(|object| object.body.stored().is_some());
    failed.filter(has_failed).map(message).map(Notice::from).collect()
}

/// How a query that is run now reads each table and view; nothing for one that cannot be.
pub(super) async fn reads(database: &Database, query: &ast::Query) -> Result<Vec<String>> {
    let catalog = database.shared.catalog();
    match plan_of(database, &catalog, query).await {
        // Constants are computed, which may take long.
        Ok(planned) => {
            let reads = database.shared.runtime.spawn(query::reads(planned.plan));
            reads
                .await
                .map_err(|_| Error::new("XX000", "the planner panicked"))?
        }
        Err(_) => Ok(Vec::new()),
    }
}

/// The plan of a read.
pub(super) async fn plan_of(
    database: &Database,
    catalog: &Catalog,
    query: &ast::Query,
) -> Result<PlannedSelect> {
    let system = system::Snapshot::take(database, &plan::relations_of(query)).await?;
    planned(database, catalog, &system, |resolver| {
        plan::plan_select(catalog, query, resolver)
    })
}

/// Plans a read by `plan`, which is given the tables. All views are read as of one instant between two steps, after the
/// planning: no step waits for that.
pub(super) fn planned(
    database: &Database,
    catalog: &Catalog,
    system: &system::Snapshot,
    plan: impl FnOnce(Resolver<'_>) -> std::result::Result<PlannedSelect, SqlError>,
) -> Result<PlannedSelect> {
    let known = Known {
        database,
        catalog,
        system,
        views: RefCell::default(),
        failure: RefCell::default(),
        facts: OnceCell::new(),
    };
    let planned = aside(|| plan(&known));
    let Known { views, failure, .. } = known;
    let still = database.shared.engine.parts().publish.read();
    for (name, view) in views.borrow().iter() {
        let object = catalog.get(name);
        // One that was dropped meanwhile is read as it was.
        let running = object.and_then(|object| database.shared.engine.view(ObjectId(object.id.0)));
        if let Some(running) = running {
            view.renew(readers(database, catalog, name, running.rows.lock().reader()));
        }
    }
    drop(still);
    if let Some(error) = failure.into_inner() {
        return Err(error);
    }
    Ok(planned?)
}

/// Runs what may take long, as the planning of a statement with thousands of constants does, so that it holds up no other task.
fn aside<T>(work: impl FnOnce() -> T) -> T {
    match tokio::runtime::Handle::try_current().map(|handle| handle.runtime_flavor()) {
        Ok(RuntimeFlavor::MultiThread) => tokio::task::block_in_place(work),
        _ => work(),
    }
}

/// What a query can name: the relations of users, the tables of the system and the functions that tell of the catalog.
struct Known<'a> {
    database: &'a Database,
    catalog: &'a Catalog,
    system: &'a system::Snapshot,
    views: RefCell<HashMap<String, Arc<ViewProvider>>>,
    failure: RefCell<Option<Error>>,
    facts: OnceCell<Arc<Facts>>,
}

impl Known<'_> {
    /// What pg_catalog tells of, gathered once.
    fn facts(&self) -> &Arc<Facts> {
        self.facts
            .get_or_init(|| Arc::new(Facts::of(self.database, self.catalog)))
    }

    fn relation(&self, name: &str) -> Option<Arc<dyn TableProvider>> {
        if let Some(known) = self.views.borrow().get(name) {
            return Some(Arc::clone(known) as Arc<dyn TableProvider>);
        }
        if let Some(source) = source(self.database, self.catalog, name) {
            return Some(Arc::new(source));
        }
        let reader = reader(self.database, self.catalog, name)
            .map_err(|error| *self.failure.borrow_mut() = Some(error))
            .ok()??;
        let own = readers(self.database, self.catalog, name, reader);
        let view = Arc::new(ViewProvider::new(name, own));
        self.views.borrow_mut().insert(name.to_owned(), Arc::clone(&view));
        Some(view)
    }
}

impl Resolve for Known<'_> {
    fn table(&self, schema: Option<&str>, name: &str) -> Option<Arc<dyn TableSource>> {
        let own = match schema {
            Some(system::SCHEMA) => self.system.table(name),
            None | Some("public") => self.relation(name),
            Some(_) => None,
        };
        let is_own = schema == Some("public") || (schema.is_none() && self.catalog.get(name).is_some());
        let provider = match own {
            Some(own) => own,
            None if !is_own && pg_catalog::is_known(schema, name) => {
                pg_catalog::table(self.facts(), schema, name)?
            }
            None => return None,
        };
        Some(Arc::new(DefaultTableSource::new(provider)))
    }

    fn names(&self, schema: &str) -> Vec<String> {
        match schema {
            system::SCHEMA => system::TABLES.map(str::to_owned).to_vec(),
            other => pg_catalog::names(other),
        }
    }

    fn table_function(&self, name: &str) -> Option<Arc<dyn TableSource>> {
        let provider = pg_catalog::table_function(name)?;
        Some(Arc::new(DefaultTableSource::new(provider)))
    }

    fn function(&self, name: &str) -> Option<Arc<ScalarUDF>> {
        pg_catalog::function(name, || Arc::clone(self.facts()))
    }
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
pub(super) fn reader(database: &Database, catalog: &Catalog, name: &str) -> Result<Option<ViewReader>> {
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

/// The rows of a relation in their own order and in those of its indexes that run and have all rows, as of now.
pub(super) fn readers(database: &Database, catalog: &Catalog, name: &str, own: ViewReader) -> Readers {
    let indexes = catalog.indexes_of(name).filter_map(|(object, _)| {
        let rows = database.shared.engine.view(ObjectId(object.id.0))?;
        if rows.is_filling.load(Ordering::SeqCst) || rows.subscribers.have_ended() {
            return None;
        }
        let reader = rows.rows.lock().reader();
        Some((object.name.clone(), reader))
    });
    Readers {
        indexes: indexes.collect(),
        own,
    }
}

/// A source as a table, up to where it ends when the query runs; `None` for what is none.
fn source(database: &Database, catalog: &Catalog, name: &str) -> Option<SourceProvider> {
    let object = Arc::clone(catalog.get(name)?);
    let ObjectBody::Source(def) = &object.body else {
        return None;
    };
    let place = |wanted: Include| {
        let is_it = |column: &ColumnDef| column.origin == ColumnOrigin::Include(wanted.clone());
        def.columns.iter().position(is_it)
    };
    let places = RecordColumns {
        partition: place(Include::Partition),
        offset: place(Include::Offset),
        timestamp: place(Include::Timestamp),
    };
    let schema = plan::schema_of_source(def);
    let (shared, catalog) = (Arc::clone(&database.shared), catalog.clone());
    let make: Arc<MakeRead> = Arc::new(move |columns| Ok(bounded_read(&shared, &catalog, &object, columns)?));
    Some(SourceProvider::new(name, schema, places, make))
}
