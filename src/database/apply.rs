//! DDL: probe outside the lock, plan against the catalog, write the row, run.

use std::sync::Arc;
use std::time::Duration;

use highwater_connectors::options::OptionMap;
use highwater_connectors::registry::Registry;
use highwater_connectors::source::Probe;
use highwater_sql::catalog::{
    Catalog, MaterializedViewDef, NewName, Object, ObjectBody, ObjectId, SinkDef, ViewDef,
};
use highwater_sql::resolve::{SinkTarget, resolve_sink, resolve_source};
use highwater_sql::statement::{CreateSink, CreateSource, Drop, ObjectKind, Parsed, Statement};
use highwater_sql::stream_plan::{StreamOp, StreamPlan};
use highwater_sql::{plan, show};
use highwater_storage::catalog::{self, CatalogRow};
use highwater_storage::{Durability, LaneProgress, PartitionNo, WriteBatch, layout};

use super::specs::{checked_source, facts_of, only_of, query_spec, sink_options, sources_of, start_of};
use super::{Database, Shared};
use crate::error::{Error, Result};
use crate::outcome::{Notice, Outcome};

/// The longest that a statement looks at the outside world.
const PROBE_TIMEOUT: Duration = Duration::from_secs(10);

/// Reads `${NAME}` from the environment of the process.
pub(crate) fn environment(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

/// What objects are read for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    /// To run them: the environment must have what their options name, and the options must work.
    Run,
    /// To look at what is recorded: nothing is opened, so options may stay as they are written.
    Look,
}

impl Purpose {
    fn variable(self, name: &str) -> Option<String> {
        match self {
            Self::Run => environment(name),
            Self::Look => environment(name).or_else(|| Some(format!("${{{name}}}"))),
        }
    }

    /// What was checked; where nothing runs, what is written does as well.
    fn settled<T>(self, checked: Result<T>, written: impl FnOnce() -> T) -> Result<T> {
        match self {
            Self::Run => checked,
            Self::Look => Ok(checked.unwrap_or_else(|_| written())),
        }
    }
}

/// What the statement that makes an object says, against the objects that are there, and what it depends on. Asks nobody.
///
/// # Errors
/// What the statement reports.
pub(super) fn body_of(
    objects: &Catalog,
    registry: &Registry,
    parsed: &Parsed,
    probe: Option<&Probe>,
    purpose: Purpose,
) -> Result<(ObjectBody, Vec<String>)> {
    match &parsed.statement {
        Statement::CreateSource(source) => {
            let found = probe.and_then(|probe| probe.columns.as_deref());
            let def = resolve_source(source, &|name| purpose.variable(name), found)?.def;
            plan::check_source(&def)?;
            let checked = purpose.settled(checked_source(registry, def.clone()), || def)?;
            Ok((ObjectBody::Source(checked), Vec::new()))
        }
        Statement::CreateView(view) => {
            let planned = plan::plan_logical_view(objects, &view.query, &view.columns)?;
            let body = ViewDef {
                schema: planned.schema,
                query: view.query.to_string(),
            };
            Ok((ObjectBody::View(body), planned.depends_on))
        }
        Statement::CreateMaterializedView(view) => {
            let planned = plan::plan_view(objects, &view.query, &view.columns, view.emit_on_window_close)?;
            let body = MaterializedViewDef {
                plan: Arc::new(planned.plan),
                query: view.query.to_string(),
            };
            Ok((ObjectBody::MaterializedView(body), planned.depends_on))
        }
        Statement::CreateSink(sink) => sink_body(objects, registry, sink, purpose),
        _ => Err(Error::new("XX000", "the statement makes no object")),
    }
}

fn sink_body(
    objects: &Catalog,
    registry: &Registry,
    sink: &CreateSink,
    purpose: Purpose,
) -> Result<(ObjectBody, Vec<String>)> {
    let planned = plan::plan_view(objects, &sink.query, &[], sink.emit_on_window_close)?;
    let schema = &planned.plan.root().schema;
    let mut target = resolve_sink(sink, schema, &|name| purpose.variable(name))?;
    let names: Vec<String> = target
        .primary_key
        .iter()
        .map(|column| schema.field(*column).name().clone())
        .collect();
    let mut stream = planned.plan;
    let notices = plan::plan_sink_checks(&stream, target.upsert, &names)?.notices;
    stream.notices.extend(notices);
    target.options.append(&mut target.encode_options);
    let place = sink.with.get("connector").map(|given| given.position);
    let checked = checked_sink_options(registry, &target).map_err(|error| error.at(place));
    let options = purpose.settled(checked, || target.options.clone())?;
    let body = SinkDef {
        plan: Arc::new(stream),
        connector: target.connector,
        options,
        upsert: target.upsert,
        primary_key: target.primary_key,
        encode: target.encode,
        encode_options: Default::default(),
    };
    Ok((ObjectBody::Sink(body), planned.depends_on))
}

/// A sink's options, checked and under their canonical names.
fn checked_sink_options(registry: &Registry, target: &SinkTarget) -> Result<OptionMap> {
    let specs = sink_options(registry, &target.connector, target.encode.as_deref())?;
    let options = highwater_connectors::options::validate(&specs, &target.options)?;
    let connector = registry.sink(&target.connector)?;
    connector.validate(&only_of(connector.options(), &options))?;
    Ok(options)
}

impl Database {
    /// `CREATE SOURCE`
    pub(crate) async fn create_source(&self, parsed: &Parsed, source: &CreateSource) -> Result<Outcome> {
        const TAG: &str = "CREATE SOURCE";
        self.refuse_read_only(TAG)?;
        if let Some(done) = self.skip_existing(TAG, &source.name, source.if_not_exists)? {
            return Ok(done);
        }
        let probe = self.probe_source(source).await?;
        let (body, depends_on) = body_of(
            &self.shared.catalog(),
            &self.shared.registry,
            parsed,
            Some(&probe),
            Purpose::Run,
        )?;
        let resolved = resolve_source(source, &environment, probe.columns.as_deref())?;
        let draft = Draft {
            name: source.name.clone(),
            definition: resolved.definition,
            depends_on,
            body,
            facts: facts_of(&probe.start, &probe.identity),
        };
        if let Some(done) = self.add(TAG, draft, source.if_not_exists).await? {
            return Ok(done);
        }
        Ok(Outcome::done(TAG).with_notices(probe.notices))
    }

    async fn probe_source(&self, source: &CreateSource) -> Result<Probe> {
        let registry = &self.shared.registry;
        // A first look at the statement alone: what is wrong with it must not cost a connection.
        let draft = resolve_source(source, &environment, self.fixed_columns(source)?.as_deref())?;
        plan::check_source(&draft.def)?;
        let checked = checked_source(registry, draft.def)?;
        let connector = Arc::clone(registry.source(&checked.connector)?);
        let options = only_of(connector.options(), &checked.options);
        let fixed = connector.fixed_schema(&options);
        let probe = run_blocking(&self.shared, move || connector.probe(&options, PROBE_TIMEOUT)).await?;
        let mut probe = probe?;
        probe.columns = fixed.or(probe.columns);
        Ok(probe)
    }

    fn fixed_columns(&self, source: &CreateSource) -> Result<Option<arrow::datatypes::SchemaRef>> {
        let options = highwater_sql::options::interpolate_all(&source.with, &environment)?;
        let (Some(name), Some(given)) = (options.get("connector"), source.with.get("connector")) else {
            return Ok(None);
        };
        let connector = self.shared.registry.source(&name.trim().to_lowercase());
        let connector = connector.map_err(|error| Error::from(error).at(Some(given.position)))?;
        Ok(connector.fixed_schema(&options))
    }

    /// `CREATE VIEW`
    pub(crate) async fn create_view(&self, parsed: &Parsed) -> Result<Outcome> {
        const TAG: &str = "CREATE VIEW";
        let Statement::CreateView(view) = &parsed.statement else {
            return Err(wrong_statement());
        };
        self.refuse_read_only(TAG)?;
        if view.or_replace {
            if let NewName::Replace(old) = self.shared.catalog().check_replace(&view.name)? {
                self.remove(&[old]).await?;
            }
        } else if let Some(done) = self.skip_existing(TAG, &view.name, view.if_not_exists)? {
            return Ok(done);
        }
        self.add_planned(TAG, parsed, &view.name, view.if_not_exists)
            .await
    }

    /// `CREATE MATERIALIZED VIEW`
    pub(crate) async fn create_materialized_view(&self, parsed: &Parsed) -> Result<Outcome> {
        const TAG: &str = "CREATE MATERIALIZED VIEW";
        let Statement::CreateMaterializedView(view) = &parsed.statement else {
            return Err(wrong_statement());
        };
        self.refuse_read_only(TAG)?;
        if let Some((name, option)) = view.with.iter().next() {
            return Err(Error::new("22023", format!("unknown option \"{name}\""))
                .at(Some(option.position))
                .with_hint("A materialized view takes no options."));
        }
        if let Some(done) = self.skip_existing(TAG, &view.name, view.if_not_exists)? {
            return Ok(done);
        }
        self.add_planned(TAG, parsed, &view.name, view.if_not_exists)
            .await
    }

    /// `CREATE SINK`
    pub(crate) async fn create_sink(&self, parsed: &Parsed) -> Result<Outcome> {
        const TAG: &str = "CREATE SINK";
        let Statement::CreateSink(sink) = &parsed.statement else {
            return Err(wrong_statement());
        };
        self.refuse_read_only(TAG)?;
        if let Some(done) = self.skip_existing(TAG, &sink.name, sink.if_not_exists)? {
            return Ok(done);
        }
        let (body, _) = body_of(
            &self.shared.catalog(),
            &self.shared.registry,
            parsed,
            None,
            Purpose::Run,
        )?;
        let ObjectBody::Sink(def) = body else {
            return Err(wrong_statement());
        };
        let connector = Arc::clone(self.shared.registry.sink(&def.connector)?);
        let options = only_of(connector.options(), &def.options);
        let notices = run_blocking(&self.shared, move || connector.probe(&options, PROBE_TIMEOUT)).await??;
        let outcome = self
            .add_planned(TAG, parsed, &sink.name, sink.if_not_exists)
            .await?;
        Ok(outcome.with_notices(notices))
    }

    async fn add_planned(
        &self,
        tag: &'static str,
        parsed: &Parsed,
        name: &str,
        skip: bool,
    ) -> Result<Outcome> {
        let (body, depends_on) = body_of(
            &self.shared.catalog(),
            &self.shared.registry,
            parsed,
            None,
            Purpose::Run,
        )?;
        let notices = match &body {
            ObjectBody::MaterializedView(view) => view.plan.notices.clone(),
            ObjectBody::Sink(sink) => sink.plan.notices.clone(),
            ObjectBody::Source(_) | ObjectBody::View(_) => Vec::new(),
        };
        let definition = show::definition(parsed);
        let draft = Draft {
            name: name.to_owned(),
            definition,
            depends_on,
            body,
            facts: Vec::new(),
        };
        if let Some(done) = self.add(tag, draft, skip).await? {
            return Ok(done);
        }
        Ok(Outcome::done(tag).with_notices(notices))
    }

    fn skip_existing(&self, tag: &'static str, name: &str, if_not_exists: bool) -> Result<Option<Outcome>> {
        match self.shared.catalog().check_new(name, if_not_exists)? {
            NewName::Skip { notice } => Ok(Some(Outcome::done(tag).with_notices(vec![notice]))),
            NewName::Free | NewName::Replace(_) => Ok(None),
        }
    }

    /// Writes the row and runs the object; `Some` if another statement was first and IF NOT EXISTS says to skip.
    async fn add(&self, tag: &'static str, draft: Draft, skip: bool) -> Result<Option<Outcome>> {
        let shared = &self.shared;
        let mut ddl = shared.ddl.lock().await;
        let catalog = shared.catalog();
        if let Some(done) = self.skip_existing(tag, &draft.name, skip)? {
            return Ok(Some(done));
        }
        for name in &draft.depends_on {
            catalog.resolve(name)?;
        }
        let id = ObjectId(ddl.next_object);
        let row = CatalogRow {
            id: highwater_storage::ObjectId(id.0),
            sequence: ddl.next_sequence,
            kind: draft.body.kind().noun().to_owned(),
            name: draft.name.clone(),
            sql: draft.definition.clone(),
            found: draft.facts.clone(),
        };
        let object = Arc::new(Object {
            id,
            name: draft.name,
            definition: draft.definition,
            depends_on: draft.depends_on,
            body: draft.body,
        });
        ddl.next_object += 1;
        ddl.next_sequence += 1;
        let mut batch = WriteBatch::new();
        catalog::put_row(&mut batch, &row);
        catalog::put_next_object_id(&mut batch, highwater_storage::ObjectId(ddl.next_object));
        put_start(shared, &catalog, &object, &mut batch);
        commit(shared, batch).await?;
        shared.facts.write().insert(id, draft.facts);
        if let Err(error) = self.run_object(&catalog, &object).await {
            self.forget(&object).await?;
            return Err(error);
        }
        let mut next = (*catalog).clone();
        next.insert(object);
        *shared.catalog.write() = Arc::new(next);
        Ok(None)
    }

    async fn run_object(&self, catalog: &Catalog, object: &Object) -> Result<()> {
        if plan_of(object).is_none() {
            return Ok(());
        }
        let spec = {
            let facts = self.shared.facts.read();
            query_spec(&self.shared.registry, catalog, &facts, object)?
        };
        Ok(self.shared.engine.create(Arc::new(spec)).await?)
    }

    /// `DROP …`
    pub(crate) async fn drop_objects(&self, drop: &Drop) -> Result<Outcome> {
        let tag = format!("DROP {}", drop.kind.noun().to_uppercase());
        self.refuse_read_only(&tag)?;
        let plan = self.shared.catalog().plan_drop(drop)?;
        self.remove(&plan.objects).await?;
        Ok(Outcome::done(tag).with_notices(plan.notices))
    }

    /// `ALTER MATERIALIZED VIEW | SINK name RESUME`: runs a FAILED query again from its last checkpoint. One that missed
    /// changes of what it reads is built anew, with all that reads it.
    pub(crate) async fn resume(&self, kind: ObjectKind, name: &str) -> Result<Outcome> {
        let tag = format!("ALTER {}", kind.noun().to_uppercase());
        self.refuse_read_only(&tag)?;
        let _ddl = self.shared.ddl.lock().await;
        let catalog = self.shared.catalog();
        let object = Arc::clone(catalog.resolve_kind(name, kind, "ALTER")?);
        let id = highwater_storage::ObjectId(object.id.0);
        if !self.shared.engine.has_failed(id).await {
            return Ok(Outcome::done(tag).with_notices(vec![format!("{} \"{name}\" runs", kind.noun())]));
        }
        // What it reads has gone on without it, and what reads it must start from the same content: both are built anew.
        let mut rebuilt = catalog.dependents_of(name);
        rebuilt.retain(|other| plan_of(other).is_some());
        let is_behind = !rebuilt.is_empty() || plan_of(&object).is_some_and(reads_relations);
        rebuilt.push(Arc::clone(&object));
        for other in &rebuilt {
            self.shared
                .engine
                .drop_query(highwater_storage::ObjectId(other.id.0))
                .await?;
            if is_behind {
                let mut batch = WriteBatch::new();
                layout::delete_object(&mut batch, highwater_storage::ObjectId(other.id.0));
                put_start(&self.shared, &catalog, other, &mut batch);
                commit(&self.shared, batch).await?;
            }
        }
        for other in rebuilt.iter().rev() {
            self.run_object(&catalog, other).await?;
        }
        Ok(Outcome::done(tag))
    }

    async fn remove(&self, objects: &[Arc<Object>]) -> Result<()> {
        let _ddl = self.shared.ddl.lock().await;
        for object in objects {
            self.shared
                .engine
                .drop_query(highwater_storage::ObjectId(object.id.0))
                .await?;
            self.forget(object).await?;
            let mut next = (*self.shared.catalog()).clone();
            next.remove(&object.name);
            *self.shared.catalog.write() = Arc::new(next);
        }
        Ok(())
    }

    async fn forget(&self, object: &Object) -> Result<()> {
        let id = highwater_storage::ObjectId(object.id.0);
        let mut batch = WriteBatch::new();
        catalog::delete_row(&mut batch, id);
        layout::delete_object(&mut batch, id);
        commit(&self.shared, batch).await?;
        self.shared.facts.write().remove(&object.id);
        Ok(())
    }
}

/// An object before it has a number.
struct Draft {
    name: String,
    definition: String,
    depends_on: Vec<String>,
    body: ObjectBody,
    facts: Vec<(String, String)>,
}

/// What a view or sink runs; `None` for what does not run.
fn plan_of(object: &Object) -> Option<&StreamPlan> {
    match &object.body {
        ObjectBody::MaterializedView(view) => Some(&view.plan),
        ObjectBody::Sink(sink) => Some(&sink.plan),
        ObjectBody::Source(_) | ObjectBody::View(_) => None,
    }
}

fn reads_relations(plan: &StreamPlan) -> bool {
    plan.nodes
        .iter()
        .any(|node| matches!(node.op, StreamOp::RelationScan { .. }))
}

/// Records where a new query starts in each of its sources, so that it starts there whenever it first runs.
fn put_start(shared: &Shared, catalog: &Catalog, object: &Object, batch: &mut WriteBatch) {
    let Some(plan) = plan_of(object) else { return };
    let facts = shared.facts.read();
    for name in sources_of(plan) {
        let Some(source) = catalog.get(&name) else {
            continue;
        };
        let Some(found) = facts.get(&source.id) else {
            continue;
        };
        for (partition, next_offset) in start_of(found) {
            let key = layout::lane_key(
                highwater_storage::ObjectId(object.id.0),
                highwater_storage::ObjectId(source.id.0),
                PartitionNo(partition.0),
            );
            let mut value = Vec::new();
            LaneProgress {
                next_offset,
                watermark: None,
                idle: false,
            }
            .encode(&mut value);
            batch.put(highwater_storage::Family::Progress, &key, &value);
        }
    }
}

async fn commit(shared: &Shared, batch: WriteBatch) -> Result<()> {
    let store = Arc::clone(&shared.store);
    Ok(run_blocking(shared, move || store.commit(batch, Durability::Sync)).await??)
}

async fn run_blocking<T: Send + 'static>(
    shared: &Shared,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T> {
    let done = shared.runtime.spawn_blocking(work).await;
    done.map_err(|_| Error::new("XX000", "a background task panicked"))
}

fn wrong_statement() -> Error {
    Error::new("XX000", "the statement is of another kind")
}

/// A notice as the session shows it.
impl From<String> for Notice {
    fn from(message: String) -> Self {
        Self { message }
    }
}
