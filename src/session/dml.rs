//! INSERT, UPDATE, DELETE: read the rows that change, resolve conflicts, hand the change to the pipeline, wait.
//!
//! ```text
//! lock the table ─▶ read ─▶ NOT NULL, keys ─▶ RETURNING ─▶ change ─▶ visible ─▶ unlock ─▶ durable ─▶ acknowledged
//! ```
//!
//! The lock ends when the change is visible, so that statements on one table share the checkpoint that makes them durable.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use arrow::array::Array;
use arrow::datatypes::SchemaRef;
use arrow::record_batch::RecordBatch;
use datafusion::datasource::{MemTable, provider_as_source};
use datafusion::logical_expr::{ScalarUDF, TableSource};
use datafusion::scalar::ScalarValue;
use datafusion::sql::sqlparser::ast::{self, SelectItem};
use highwater_sql::catalog::{Catalog, FilledDef, Object, ObjectBody, TableDef};
use highwater_sql::plan::{self, PlannedSelect, TableRef};
use highwater_sql::statement::{OnConflict, Statement, Target};
use highwater_storage::ObjectId;

use super::reuse::{Bound, ReadyPlan};
use super::select;
use crate::database::{Database, objects_of};
use crate::engine::query::change::{READ_AGAIN, TableChange};
use crate::engine::query::output::SharedView;
use crate::engine::table::{self, ConflictRule, Resolved};
use crate::error::{Error, Result};
use crate::outcome::{Outcome, Rows};
use crate::query::{self, Work};
use crate::recall::Recall;
use crate::system;
use crate::text::ColumnText;

/// How often a statement reads the rows that it changes before it gives up.
const ATTEMPTS_MAX: usize = 100;

/// What the query of a statement calls the rows that come with it. No relation can have this name.
pub(super) const GIVEN_ROWS: &str = "?given rows?";

/// Told when a change is durable, with the epoch.
type Durable = tokio::sync::oneshot::Receiver<std::result::Result<u64, crate::engine::error::EngineError>>;

/// Runs a statement of a user that changes a table; it is durable when this comes back.
pub(super) async fn change(
    (database, user): (&Database, Option<&str>),
    statement: &Statement,
    bound: Option<Bound<'_>>,
) -> Result<Outcome> {
    let change = Change::of(database, user, statement);
    let ready = match bound {
        // A plan that is kept knows no user.
        Some(bound) if change.user.is_none() => bound.ready(database, &change.catalog).await,
        _ => None,
    };
    run(database, Change { ready, ..change }).await
}

/// Runs a statement of a user whose query may read `given` under the name [`GIVEN_ROWS`].
pub(super) async fn change_with(
    (database, user): (&Database, Option<&str>),
    statement: &Statement,
    given: Option<Arc<dyn TableSource>>,
) -> Result<Outcome> {
    let change = Change::of(database, user, statement);
    run(database, Change { given, ..change }).await
}

/// Computes a query that reads `given` under the name [`GIVEN_ROWS`], for its errors.
///
/// # Errors
/// What the query fails with.
pub(super) async fn computed(
    database: &Database,
    select: &ast::Query,
    given: Arc<dyn TableSource>,
) -> Result<()> {
    let catalog = database.shared.catalog();
    let system = system::Snapshot::take(database, &plan::relations_of(select)).await?;
    let planned = select::planned(database, &catalog, &system, |rest| {
        let resolver: plan::Resolver<'_> = &WithGiven {
            given: Some(&given),
            rest,
        };
        plan::plan_select(&catalog, select, resolver)
    })?;
    let runtime = &database.shared.runtime;
    query::collect_in_order(runtime, Work::Plan(planned.plan), &planned.columns)
        .await
        .map(drop)
}

async fn run(database: &Database, change: Change) -> Result<Outcome> {
    let (verb, target, _) = parts(&change.statement)?;
    database.refuse_read_only(verb)?;
    change.table(target, verb)?;
    // Half of a change is none: the lock is held until it is visible, whoever waits. Until its rows are read it ends with
    // whoever waits for it.
    let (waits, left) = tokio::sync::oneshot::channel::<()>();
    let mut wanted = Wanted {
        left,
        recall: Recall::current(),
    };
    let (outcome, durable) = database
        .to_its_end(move |database| async move { change.run(&database, &mut wanted).await })
        .await?;
    drop(waits);
    if let Some(durable) = durable {
        durable.await.map_err(|_| ended())??;
    }
    Ok(outcome)
}

/// Plans a statement that changes a table without running it, and gives the columns that RETURNING gives.
pub(super) async fn described(
    database: &Database,
    statement: &Statement,
) -> Result<(PlannedSelect, Option<SchemaRef>)> {
    let (verb, target, returning) = parts(statement)?;
    let change = Change::of(database, None, statement);
    let (object, def) = change.table(target, verb)?;
    let table = change.table_ref(object, def);
    let planned = change.plan(database, table).await?;
    let schema = match returning {
        Some(items) => {
            let rows = RecordBatch::new_empty(Arc::clone(def.schema()));
            let planned = change.plan_returned((target, items), &rows)?;
            Some(query::renamed(planned.plan.schema().inner(), &planned.columns)?)
        }
        None => None,
    };
    Ok((planned, schema))
}

/// The verb of TRUNCATE, which is all that it tells.
const TRUNCATE: &str = "TRUNCATE TABLE";

/// The verb of a statement, what it changes, and what it returns.
fn parts(statement: &Statement) -> Result<(&'static str, &Target, Option<&[SelectItem]>)> {
    match statement {
        Statement::Insert(insert) => Ok(("INSERT", &insert.target, insert.returning.as_deref())),
        Statement::Update(update) => Ok(("UPDATE", &update.target, update.returning.as_deref())),
        Statement::Delete(delete) if delete.truncates => Ok((TRUNCATE, &delete.target, None)),
        Statement::Delete(delete) => Ok(("DELETE", &delete.target, delete.returning.as_deref())),
        _ => Err(Error::new("XX000", "the statement changes no table")),
    }
}

/// Whether somebody wants the statement.
struct Wanted {
    /// Ends when nobody waits for it any longer.
    left: tokio::sync::oneshot::Receiver<()>,
    recall: Recall,
}

fn cancelled() -> Error {
    Error::new("57014", "canceling statement due to user request")
}

/// Whether the table that a statement changes has a DEFAULT that asks for the user.
fn asks_user(catalog: &Catalog, statement: &Statement) -> bool {
    let target = parts(statement).ok().map(|(_, target, _)| target);
    let object = target.and_then(|target| catalog.get(&target.name));
    let Some(ObjectBody::Table(table)) = object.map(|object| &object.body) else {
        return false;
    };
    let asks = |filled: &FilledDef| matches!(filled, FilledDef::Default(text) if plan::may_ask_user(text));
    table.columns.iter().any(|column| asks(&column.filled))
}

fn ended() -> Error {
    Error::new(
        "57P01",
        "the table was dropped or the database closed while the statement ran",
    )
}

/// A statement and the objects as it sees them.
struct Change {
    catalog: Arc<Catalog>,
    statement: Statement,
    /// Rows that come with the statement.
    given: Option<Arc<dyn TableSource>>,
    /// The plan of its query, if it has been made before, and the values for it.
    ready: Option<(Arc<ReadyPlan>, Vec<ScalarValue>)>,
    /// Who runs it, where the table asks for that.
    user: Option<String>,
}

/// What the query of a statement can name: the rows that come with it too.
struct WithGiven<'a> {
    given: Option<&'a Arc<dyn TableSource>>,
    rest: plan::Resolver<'a>,
}

impl plan::Resolve for WithGiven<'_> {
    fn table(&self, schema: Option<&str>, name: &str) -> Option<Arc<dyn TableSource>> {
        match self.given {
            Some(given) if schema.is_none() && name == GIVEN_ROWS => Some(Arc::clone(given)),
            _ => self.rest.table(schema, name),
        }
    }

    fn names(&self, schema: &str) -> Vec<String> {
        self.rest.names(schema)
    }

    fn table_function(&self, name: &str) -> Option<Arc<dyn TableSource>> {
        self.rest.table_function(name)
    }

    fn function(&self, name: &str) -> Option<Arc<ScalarUDF>> {
        self.rest.function(name)
    }
}

impl Change {
    fn of(database: &Database, user: Option<&str>, statement: &Statement) -> Self {
        let catalog = database.shared.catalog();
        let user = user.filter(|_| asks_user(&catalog, statement));
        Self {
            user: user.map(str::to_owned),
            catalog,
            statement: statement.clone(),
            given: None,
            ready: None,
        }
    }

    fn table_ref<'a>(&'a self, object: &'a Object, def: &'a TableDef) -> TableRef<'a> {
        TableRef {
            name: &object.name,
            def,
            user: self.user.as_deref(),
        }
    }

    /// The table that the statement changes.
    fn table(&self, target: &Target, verb: &str) -> Result<(&Arc<Object>, &TableDef)> {
        let place = |error: Error| error.at(Some(target.position));
        let object = self.catalog.resolve(&target.name);
        let object = object.map_err(|error| place(error.into()))?;
        let ObjectBody::Table(table) = &object.body else {
            let noun = object.body.kind().noun();
            let error = Error::new("42809", format!("cannot change {noun} \"{}\"", object.name));
            return Err(place(error.with_hint(format!("{verb} takes a table."))));
        };
        if table.append_only && verb != "INSERT" {
            let message = format!("{verb} in table \"{}\" is not supported", object.name);
            let error = Error::new("0A000", message).with_detail("The table is APPEND ONLY.");
            return Err(place(error));
        }
        Ok((object, table))
    }

    /// Makes the change visible; what it gives is to be shown when it is durable too. Where a connector or a sink changes the
    /// table meanwhile, the rows are read again.
    async fn run(&self, database: &Database, wanted: &mut Wanted) -> Result<(Outcome, Option<Durable>)> {
        let mut attempts = ATTEMPTS_MAX;
        loop {
            attempts -= 1;
            match self.attempt(database, wanted).await {
                Err(error) if attempts > 0 && error.sqlstate() == READ_AGAIN => {
                    if !wanted.recall.reopen() {
                        return Err(cancelled());
                    }
                }
                outcome => return outcome,
            }
        }
    }

    async fn attempt(&self, database: &Database, wanted: &mut Wanted) -> Result<(Outcome, Option<Durable>)> {
        let (verb, target, _) = parts(&self.statement)?;
        let (object, table) = self.table(target, verb)?;
        let id = ObjectId(object.id.0);
        let view = database.shared.engine.view(id);
        let view = view.ok_or_else(|| {
            Error::new("55000", format!("table \"{}\" does not run", object.name))
                .with_hint("SELECT * FROM hw.queries tells why.")
        })?;
        let found = async {
            let relations = plan::relations_read_by(&self.statement);
            let objects = objects_of(&self.catalog, &relations);
            database.shared.filled(&self.catalog, &objects).await?;
            let writer = view.writer.lock().await;
            let written = view.written.load(Ordering::SeqCst);
            let batches = self.read(database, object, table).await?;
            let resolved = self.resolve(database, &view, batches).await?;
            let outcome = self.outcome(database, &resolved).await?;
            Ok::<_, Error>((writer, written, resolved, outcome))
        };
        let (_writer, written, resolved, outcome) = tokio::select! {
            found = found => found?,
            _ = &mut wanted.left => return Err(cancelled()),
        };
        if resolved.deltas.is_empty() || resolved.count == 0 {
            return Ok((outcome, None));
        }
        if !wanted.recall.pass() {
            return Err(cancelled());
        }
        let (visible, is_visible) = tokio::sync::oneshot::channel();
        let (durable, is_durable) = tokio::sync::oneshot::channel();
        let change = TableChange {
            deltas: resolved.deltas,
            read: Arc::clone(&view),
            written,
            visible,
            durable,
        };
        database.shared.engine.change(id, change).await?;
        is_visible.await.map_err(|_| ended())??;
        Ok((outcome, Some(is_durable)))
    }

    /// What the statement tells when its rows are changed.
    async fn outcome(&self, database: &Database, resolved: &Resolved) -> Result<Outcome> {
        let (verb, target, returning) = parts(&self.statement)?;
        let tag = match verb {
            "INSERT" => format!("INSERT 0 {}", resolved.count),
            TRUNCATE => TRUNCATE.to_owned(),
            verb => format!("{verb} {}", resolved.count),
        };
        Ok(match returning {
            Some(items) => {
                let rows = self.returned(database, (target, items), &resolved.rows).await?;
                Outcome::rows(tag, rows)
            }
            None => Outcome::done(tag),
        })
    }

    /// The rows that the statement inserts, updates (as they are, then as they become) or deletes.
    async fn read(&self, database: &Database, object: &Object, def: &TableDef) -> Result<Vec<RecordBatch>> {
        let table = self.table_ref(object, def);
        let runtime = &database.shared.runtime;
        if let Some((ready, values)) = &self.ready
            && let Some(work) = ready.work(database, &self.catalog, values.clone())?
        {
            let (_, batches) = query::collect_in_order(runtime, work, &ready.columns).await?;
            return Ok(batches);
        }
        let planned = self.plan(database, table).await?;
        let (_, batches) =
            query::collect_in_order(runtime, Work::Plan(planned.plan), &planned.columns).await?;
        Ok(batches)
    }

    async fn plan(&self, database: &Database, table: TableRef<'_>) -> Result<PlannedSelect> {
        let system = system::Snapshot::take(database, &plan::relations_read_by(&self.statement)).await?;
        let catalog = &self.catalog;
        select::planned(database, catalog, &system, |resolver| {
            let resolver: plan::Resolver<'_> = &WithGiven {
                given: self.given.as_ref(),
                rest: resolver,
            };
            match &self.statement {
                Statement::Update(update) => plan::plan_update(catalog, table, update, resolver),
                Statement::Delete(delete) => plan::plan_delete(catalog, table, delete, resolver),
                Statement::Insert(insert) => plan::plan_insert(catalog, table, insert, resolver),
                _ => unreachable!("only statements that change a table come here"),
            }
        })
    }

    /// Checks the rows and makes a change of them.
    async fn resolve(
        &self,
        database: &Database,
        view: &Arc<SharedView>,
        batches: Vec<RecordBatch>,
    ) -> Result<Resolved> {
        let (verb, target, _) = parts(&self.statement)?;
        let (object, def) = self.table(target, verb)?;
        let width = def.columns.len();
        let conflict = match &self.statement {
            Statement::Insert(insert) => insert.on_conflict.as_ref(),
            _ => None,
        };
        let is_upsert = conflict.is_some_and(|conflict| conflict.update.is_some());
        let new = match verb {
            "INSERT" if !is_upsert => Some(0..width),
            "INSERT" | "UPDATE" => Some(width..2 * width),
            _ => None,
        };
        if let Some(new) = &new {
            check_not_null(&object.name, def, &batches, new)?;
        }
        let rule = ConflictRule {
            on_conflict: match conflict {
                Some(_) => OnConflict::Nothing,
                None => def.on_conflict,
            },
            version_column: def.version_column,
        };
        let reader = view.rows.lock().reader();
        let (name, verb) = (object.name.clone(), verb.to_owned());
        // Keys are looked up in the store, which may wait for the disk.
        let resolved = database.shared.runtime.spawn_blocking(move || {
            let rows = |columns| table::conformed(&reader, &batches, columns);
            match verb.as_str() {
                "INSERT" if is_upsert => table::upsert(&reader, &batches),
                "INSERT" => table::insert(&reader, rows(0..width)?, rule),
                "UPDATE" => table::update(&reader, &name, rows(0..width)?, rows(width..2 * width)?),
                _ => Ok(table::delete(rows(0..width)?)),
            }
        });
        let resolved = resolved
            .await
            .map_err(|_| Error::new("XX000", "a background task panicked"))?;
        Ok(resolved?)
    }

    fn plan_returned(
        &self,
        (target, items): (&Target, &[SelectItem]),
        rows: &RecordBatch,
    ) -> Result<PlannedSelect> {
        let changed = MemTable::try_new(rows.schema(), vec![vec![rows.clone()]]).map_err(query::translate)?;
        let changed = provider_as_source(Arc::new(changed));
        Ok(plan::plan_returning(
            &self.catalog,
            target,
            items,
            &|schema: Option<&str>, name: &str| {
                (schema.is_none() && name == target.name).then(|| Arc::clone(&changed))
            },
        )?)
    }

    /// What RETURNING says of the changed rows.
    async fn returned(
        &self,
        database: &Database,
        (target, items): (&Target, &[SelectItem]),
        rows: &RecordBatch,
    ) -> Result<Rows> {
        let planned = self.plan_returned((target, items), rows)?;
        let runtime = &database.shared.runtime;
        let (schema, batches) =
            query::collect_in_order(runtime, Work::Plan(planned.plan), &planned.columns).await?;
        Ok(Rows { schema, batches })
    }
}

/// Refuses rows with NULL in a column that takes none; the columns of the table are those at `columns`.
fn check_not_null(name: &str, def: &TableDef, batches: &[RecordBatch], columns: &Range<usize>) -> Result<()> {
    for batch in batches {
        let given = batch.columns().get(columns.clone()).unwrap_or_default();
        for (column, def_column) in given.iter().zip(&def.columns) {
            if def_column.nullable || column.null_count() == 0 {
                continue;
            }
            let row = (0..column.len()).find(|row| column.is_null(*row)).unwrap_or(0);
            let values: Vec<String> = given.iter().map(|column| shown(column, row)).collect();
            let message = format!(
                "null value in column \"{}\" of relation \"{name}\" violates not-null constraint",
                def_column.name
            );
            return Err(Error::new("23502", message)
                .with_detail(format!("Failing row contains ({}).", values.join(", "))));
        }
    }
    Ok(())
}

fn shown(column: &arrow::array::ArrayRef, row: usize) -> String {
    let mut text = String::new();
    match ColumnText::new(column).write(row, &mut text) {
        true => text,
        false => "null".to_owned(),
    }
}
