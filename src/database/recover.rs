//! Opening: catalog rows → statements → plans → restored queries. Nothing outside is asked before the lanes open.

use std::collections::BTreeSet;
use std::sync::Arc;

use highwater_connectors::registry::Registry;
use highwater_sql::catalog::{Catalog, Object, ObjectBody, ObjectId};
use highwater_sql::host::HostFunctions;
use highwater_sql::parse;
use highwater_sql::plan::HostTypes;
use highwater_storage::catalog::{self, CatalogRow};
use highwater_storage::{
    Durability, Epoch, Family, ObjectId as StoredId, Store, WriteBatch, layout, prefix_end, progress,
};
use parking_lot::RwLock;

use super::body::{Purpose, body_of};
use super::builder::{OpenOptions, OwnRuntime};
use super::specs::{FUNCTION_FACT, Facts, query_spec};
use super::{Database, DdlState, Shared, machine, users};
use crate::activity::Activity;
use crate::engine::run::{Engine, EngineOptions};
use crate::error::{Error, Result};

/// Opens the database that `store` holds and runs its queries.
pub(super) async fn open(store: Arc<dyn Store>, options: OpenOptions) -> Result<Database> {
    machine::started_us();
    let content = catalog::load(store.snapshot().as_ref())?;
    let own_runtime = OwnRuntime::start()?;
    let runtime = own_runtime.handle();
    let purpose = if store.is_read_only() {
        Purpose::Look
    } else {
        Purpose::Run
    };
    let (objects, facts) = restore_catalog(&content.rows, &options.registry, options.functions, purpose)?;
    let activity = Arc::new(Activity::new(Arc::clone(&options.clock)));
    if !store.is_read_only() {
        sweep(store.as_ref(), &content.rows)?;
    }
    let engine = Engine::start(EngineOptions {
        last_epoch: last_epoch(store.as_ref(), &content.rows)?,
        store: Arc::clone(&store),
        lane_threads: options.lane_threads,
        shard_threads: options.lane_threads,
        memory_bytes: options.configured.memory.state(),
        checkpoint_interval: options.checkpoint_interval,
        clock: options.clock,
        backfill_rows: options.backfill_rows,
    })?;
    let next_sequence = content.rows.last().map_or(0, |row| row.sequence + 1);
    let shared = Arc::new(Shared {
        store,
        dir: options.dir,
        engine,
        catalog: RwLock::new(Arc::new(objects)),
        facts: RwLock::new(facts),
        users: RwLock::new(users::restore(&content.rows)?),
        registry: options.registry,
        ddl: tokio::sync::Mutex::new(DdlState {
            next_object: content.next_object_id.0,
            next_sequence,
        }),
        runtime,
        own_runtime: Some(own_runtime),
        configured: options.configured,
        activity,
    });
    let database = Database { shared };
    if !database.is_read_only() {
        run_queries(&database.shared).await?;
    }
    Ok(database)
}

/// Removes what is stored of objects that the catalog does not have any more: a process died while they were dropped.
fn sweep(store: &dyn Store, rows: &[CatalogRow]) -> Result<()> {
    let known: BTreeSet<StoredId> = rows.iter().map(|row| row.id).collect();
    let snapshot = store.snapshot();
    let mut batch = WriteBatch::new();
    // Each checkpoint of an object writes a row of its progress.
    let mut from = Some(Vec::new());
    while let Some(start) = from.take() {
        let mut found = None;
        snapshot.for_each(Family::Progress, &start, None, &mut |key, _| {
            found = Some(layout::split_progress_key(key)?.0);
            Ok(false)
        })?;
        let Some(object) = found else { break };
        if !known.contains(&object) {
            layout::delete_object(&mut batch, object);
        }
        from = prefix_end(&layout::object_prefix(object));
    }
    if !batch.is_empty() {
        store.commit(batch, Durability::Sync)?;
    }
    Ok(())
}

/// The last epoch that any query recorded.
fn last_epoch(store: &dyn Store, rows: &[CatalogRow]) -> Result<Epoch> {
    let snapshot = store.snapshot();
    let mut last = Epoch(0);
    for row in rows {
        if let Some(query) = progress::load(snapshot.as_ref(), row.id)?.query {
            last = last.max(query.epoch);
        }
    }
    Ok(last)
}

/// Plans all recorded statements again, in the order of their creation. What only cannot run here stays in the catalog,
/// with the reason.
fn restore_catalog(
    rows: &[CatalogRow],
    registry: &Registry,
    functions: HostFunctions,
    purpose: Purpose,
) -> Result<(Catalog, Facts)> {
    let mut objects = Catalog::with_host(functions);
    let mut facts = Facts::default();
    for row in rows.iter().filter(|row| row.kind != users::KIND) {
        let id = ObjectId(row.id.0);
        if let Some(why) = restore_functions(&mut objects, row) {
            facts.miss(id, why);
        }
        let restored = restore_body(&objects, row, registry, purpose).or_else(|why| {
            let recorded = restore_body(&objects, row, registry, Purpose::Look);
            let why = broken(row, &why);
            match recorded {
                Ok(recorded) => {
                    facts.obstruct(id, why);
                    Ok(recorded)
                }
                Err(_) => Err(why),
            }
        });
        let (body, depends_on) = restored?;
        let object = Object {
            id,
            name: row.name.clone(),
            definition: row.sql.clone(),
            depends_on,
            body,
        };
        facts.insert(object.id, row.found.clone());
        objects.insert(Arc::new(object));
    }
    Ok((objects, facts))
}

/// Lets a row be planned whose functions the program has not registered; says why it cannot run.
fn restore_functions(objects: &mut Catalog, row: &CatalogRow) -> Option<Error> {
    let mut obstacle = None;
    for (name, record) in &row.found {
        if name != FUNCTION_FACT {
            continue;
        }
        let (functions, why) = objects.host().with_recorded(record, &HostTypes);
        objects.set_host(functions);
        if let Some(why) = why {
            let error = Error::new("42883", why)
                .with_detail(format!("{} \"{}\" calls it.", capital(&row.kind), row.name))
                .with_hint("Register it with the builder that opens the database.");
            obstacle = obstacle.or(Some(error));
        }
    }
    obstacle
}

fn capital(kind: &str) -> String {
    let mut text = kind.to_owned();
    text.get_mut(..1).map(str::make_ascii_uppercase);
    text
}

fn broken(row: &CatalogRow, error: &Error) -> Error {
    let message = format!(
        "{} \"{}\" cannot be restored: {}",
        row.kind,
        row.name,
        error.message()
    );
    let detail = error
        .detail()
        .unwrap_or("Its recorded statement no longer works.");
    let hint = error
        .hint()
        .unwrap_or("Open the database with the version that wrote it.");
    Error::new("XX001", message).with_detail(detail).with_hint(hint)
}

fn restore_body(
    objects: &Catalog,
    row: &CatalogRow,
    registry: &Registry,
    purpose: Purpose,
) -> Result<(ObjectBody, Vec<String>)> {
    let parsed = parse::parse(&row.sql)?;
    let [statement] = parsed.as_slice() else {
        return Err(Error::new("XX001", "its recorded statement is not one statement"));
    };
    body_of(objects, registry, statement, purpose)
}

/// Starts the queries of the catalog.
pub(super) async fn run_queries(shared: &Shared) -> Result<()> {
    let catalog = shared.catalog();
    let mut queries: Vec<_> = catalog
        .iter()
        .filter(|object| object.body.plan().is_some())
        .cloned()
        .collect();
    queries.sort_by_key(|object| object.id);
    let mut specs = Vec::with_capacity(queries.len());
    for object in &queries {
        let facts = shared.facts.read();
        specs.push(Arc::new(query_spec(&shared.registry, &catalog, &facts, object)?));
    }
    shared.engine.recover(specs).await;
    Ok(())
}
