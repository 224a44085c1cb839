//! CREATE: probe outside the lock, plan against the catalog, hand the draft on to be added ([`change`](super::change)).

use std::sync::Arc;
use std::time::Duration;

use arrow::datatypes::SchemaRef;
use highwater_connectors::source::Probe;
use highwater_sql::catalog::{Catalog, NewName, ObjectBody};
use highwater_sql::plan;
use highwater_sql::show;
use highwater_sql::statement::{CreateSource, ObjectKind, Parsed, Statement};

use super::body::{Purpose, body_of, environment, source_of};
use super::change::{Draft, IfTaken, Reads};
use super::specs::{FUNCTION_FACT, QUERY_OPTIONS, facts_of, only_of};
use super::{Database, Shared};
use crate::error::{Error, Result};
use crate::outcome::{Notice, Outcome};

/// The longest that a statement looks at the outside world.
const PROBE_TIMEOUT: Duration = Duration::from_secs(10);

impl Database {
    /// `CREATE SOURCE`
    pub(crate) async fn create_source(&self, source: &CreateSource) -> Result<Outcome> {
        const TAG: &str = "CREATE SOURCE";
        self.refuse_read_only(TAG)?;
        let taken = IfTaken::skip_if(source.if_not_exists);
        if let Some(done) = self.skip_existing(TAG, &source.name, taken)? {
            return Ok(done);
        }
        let probe = self.probe_source(source).await?;
        let resolved = source_of(
            &self.shared.registry,
            source,
            probe.columns.as_deref(),
            Purpose::Run,
        )?;
        let draft = Draft {
            name: source.name.clone(),
            definition: resolved.definition,
            reads: Reads::nothing(),
            body: ObjectBody::Source(resolved.def),
            facts: facts_of(&probe),
        };
        if let Some(done) = self.add(TAG, draft, taken).await? {
            return Ok(done);
        }
        Ok(Outcome::done(TAG).with_notices(probe.notices))
    }

    async fn probe_source(&self, source: &CreateSource) -> Result<Probe> {
        let registry = &self.shared.registry;
        // A first look at the statement alone: what is wrong with it must not cost a connection.
        let draft = source_of(
            registry,
            source,
            self.fixed_columns(source)?.as_deref(),
            Purpose::Run,
        )?
        .def;
        let connector = Arc::clone(registry.source(&draft.connector)?);
        let options = only_of(connector.options(), &draft.options);
        let fixed = connector.fixed_schema(&options);
        if self.plans_only() {
            return Ok(Probe {
                columns: fixed,
                ..Probe::default()
            });
        }
        let probe = run_blocking(&self.shared, move || connector.probe(&options, PROBE_TIMEOUT)).await?;
        let mut probe = probe?;
        probe.columns = fixed.or(probe.columns);
        Ok(probe)
    }

    /// The columns that the connector dictates to a statement that declares none.
    fn fixed_columns(&self, source: &CreateSource) -> Result<Option<SchemaRef>> {
        if !source.wants_columns() {
            return Ok(None);
        }
        let options = highwater_sql::options::interpolate_all(&source.with, &environment)?;
        let (Some(name), Some(given)) = (options.get("connector"), source.with.get("connector")) else {
            return Ok(None);
        };
        let connector = self.shared.registry.source(&name.trim().to_lowercase());
        let connector = connector.map_err(|error| Error::from(error).at(Some(given.value_position)))?;
        Ok(connector.fixed_schema(&options))
    }

    /// `CREATE TABLE`
    pub(crate) async fn create_table(&self, parsed: &Parsed) -> Result<Outcome> {
        const TAG: &str = "CREATE TABLE";
        let Statement::CreateTable(table) = &parsed.statement else {
            return Err(wrong_statement());
        };
        self.refuse_read_only(TAG)?;
        let taken = IfTaken::skip_if(table.if_not_exists);
        if let Some(done) = self.skip_existing(TAG, &table.name, taken)? {
            return Ok(done);
        }
        if table.connector.is_none() {
            return self.add_planned(TAG, parsed, &table.name, taken).await;
        }
        let probe = self.probe_table(parsed).await?;
        let planned = Planned {
            tag: TAG,
            name: &table.name,
            taken,
            facts: facts_of(&probe),
        };
        let outcome = self.add_with(planned, parsed).await?;
        Ok(outcome.with_notices(probe.notices))
    }

    /// Looks at what a table reads from outside.
    async fn probe_table(&self, parsed: &Parsed) -> Result<Probe> {
        let registry = &self.shared.registry;
        let (_, body, _) = self.body_aside(parsed).await?;
        let source = body.source().ok_or_else(wrong_statement)?;
        let connector = Arc::clone(registry.source(&source.connector)?);
        let options = only_of(connector.options(), &source.options);
        if self.plans_only() {
            return Ok(Probe::default());
        }
        run_blocking(&self.shared, move || connector.probe(&options, PROBE_TIMEOUT))
            .await?
            .map_err(Error::from)
    }

    /// `CREATE VIEW`
    pub(crate) async fn create_view(&self, parsed: &Parsed) -> Result<Outcome> {
        const TAG: &str = "CREATE VIEW";
        let Statement::CreateView(view) = &parsed.statement else {
            return Err(wrong_statement());
        };
        self.refuse_read_only(TAG)?;
        let taken = if view.or_replace {
            if self.is_unchanged(parsed, &view.name).await? {
                return Ok(Outcome::done(TAG));
            }
            IfTaken::Replace(ObjectKind::View)
        } else {
            IfTaken::skip_if(view.if_not_exists)
        };
        if let Some(done) = self.skip_existing(TAG, &view.name, taken)? {
            return Ok(done);
        }
        self.add_planned(TAG, parsed, &view.name, taken).await
    }

    /// Whether the view is there already just as the statement says: to replace it would change nothing.
    async fn is_unchanged(&self, parsed: &Parsed, name: &str) -> Result<bool> {
        let is_view = |catalog: &Catalog| {
            let object = catalog.get(name).map(|object| &object.body);
            matches!(object, Some(ObjectBody::View(_)))
        };
        if !is_view(&self.shared.catalog()) {
            return Ok(false);
        }
        let (catalog, body, _) = self.body_aside(parsed).await?;
        let Some(ObjectBody::View(old)) = catalog.get(name).map(|object| &object.body) else {
            return Ok(false);
        };
        Ok(matches!(body, ObjectBody::View(new) if new.query == old.query && new.schema == old.schema))
    }

    /// `CREATE FUNCTION`
    pub(crate) async fn create_function(&self, parsed: &Parsed) -> Result<Outcome> {
        const TAG: &str = "CREATE FUNCTION";
        let Statement::CreateFunction(function) = &parsed.statement else {
            return Err(wrong_statement());
        };
        self.refuse_read_only(TAG)?;
        let catalog = self.shared.catalog();
        let wanted = (Arc::clone(&catalog), function.clone());
        let planned = run_blocking(&self.shared, move || plan::plan_function(&wanted.0, &wanted.1)).await??;
        let taken = if function.or_replace {
            let old = catalog.get(&planned.key).map(|object| &object.body);
            if matches!(old, Some(ObjectBody::Function(old)) if *old == planned.def) {
                return Ok(Outcome::done(TAG));
            }
            IfTaken::Replace(ObjectKind::Function)
        } else {
            IfTaken::Fail
        };
        self.add_planned(TAG, parsed, &planned.key, taken).await
    }

    /// `CREATE MATERIALIZED VIEW`
    pub(crate) async fn create_materialized_view(&self, parsed: &Parsed) -> Result<Outcome> {
        const TAG: &str = "CREATE MATERIALIZED VIEW";
        let Statement::CreateMaterializedView(view) = &parsed.statement else {
            return Err(wrong_statement());
        };
        self.refuse_read_only(TAG)?;
        let is_unknown = |name: &str| QUERY_OPTIONS.iter().all(|known| known.name != name);
        if let Some((name, option)) = view.with.iter().find(|(name, _)| is_unknown(name)) {
            return Err(Error::new("22023", format!("unknown option \"{name}\""))
                .at(Some(option.position))
                .with_hint("A materialized view takes state.ttl."));
        }
        let taken = IfTaken::skip_if(view.if_not_exists);
        if let Some(done) = self.skip_existing(TAG, &view.name, taken)? {
            return Ok(done);
        }
        self.add_planned(TAG, parsed, &view.name, taken).await
    }

    /// `CREATE INDEX`
    pub(crate) async fn create_index(&self, parsed: &Parsed) -> Result<Outcome> {
        const TAG: &str = "CREATE INDEX";
        let Statement::CreateIndex(index) = &parsed.statement else {
            return Err(wrong_statement());
        };
        self.refuse_read_only(TAG)?;
        let taken = IfTaken::skip_if(index.if_not_exists);
        if let Some(done) = self.skip_existing(TAG, &index.name, taken)? {
            return Ok(done);
        }
        self.add_planned(TAG, parsed, &index.name, taken).await
    }

    /// `CREATE SINK`
    pub(crate) async fn create_sink(&self, parsed: &Parsed) -> Result<Outcome> {
        const TAG: &str = "CREATE SINK";
        let Statement::CreateSink(sink) = &parsed.statement else {
            return Err(wrong_statement());
        };
        self.refuse_read_only(TAG)?;
        let taken = IfTaken::skip_if(sink.if_not_exists);
        if let Some(done) = self.skip_existing(TAG, &sink.name, taken)? {
            return Ok(done);
        }
        let (_, body, _) = self.body_aside(parsed).await?;
        let ObjectBody::Sink(def) = body else {
            return Err(wrong_statement());
        };
        if def.into.is_some() || self.plans_only() {
            return self.add_planned(TAG, parsed, &sink.name, taken).await;
        }
        let connector = Arc::clone(self.shared.registry.sink(&def.connector)?);
        let options = only_of(connector.options(), &def.options);
        let notices = run_blocking(&self.shared, move || connector.probe(&options, PROBE_TIMEOUT)).await??;
        let outcome = self.add_planned(TAG, parsed, &sink.name, taken).await?;
        Ok(outcome.with_notices(notices))
    }

    /// What a statement makes, and the catalog for which that holds. It is planned on a thread of its own, so that a constant that
    /// takes long to compute holds up nothing else, and whoever waits can stop waiting.
    async fn body_aside(&self, parsed: &Parsed) -> Result<(Arc<Catalog>, ObjectBody, Vec<String>)> {
        let (catalog, registry) = (self.shared.catalog(), Arc::clone(&self.shared.registry));
        let parsed = parsed.clone();
        run_blocking(&self.shared, move || {
            let (body, depends_on) = body_of(&catalog, &registry, &parsed, Purpose::Run)?;
            Ok((catalog, body, depends_on))
        })
        .await?
    }

    async fn add_planned(
        &self,
        tag: &'static str,
        parsed: &Parsed,
        name: &str,
        taken: IfTaken,
    ) -> Result<Outcome> {
        let planned = Planned {
            tag,
            name,
            taken,
            facts: Vec::new(),
        };
        self.add_with(planned, parsed).await
    }

    async fn add_with(&self, planned: Planned<'_>, parsed: &Parsed) -> Result<Outcome> {
        let Planned {
            tag,
            name,
            taken,
            facts,
        } = planned;
        let (catalog, body, depends_on) = self.body_aside(parsed).await?;
        let notices = body.plan().map(|plan| plan.notices.clone()).unwrap_or_default();
        let definition = show::definition(parsed);
        let draft = Draft {
            name: name.to_owned(),
            definition,
            reads: Reads::of(&catalog, depends_on)?,
            body,
            facts: facts
                .into_iter()
                .chain(functions_of(&catalog, &parsed.statement))
                .collect(),
        };
        let name = draft.name.clone();
        if let Some(done) = self.add(tag, draft, taken).await? {
            return Ok(done);
        }
        let outcome = Outcome::done(tag).with_notices(notices);
        match self.filling_notice(&name).await {
            Some(notice) => Ok(outcome.with_notices(vec![notice])),
            None => Ok(outcome),
        }
    }

    /// What there is to do about a name that is taken already: nothing, if the statement says so.
    fn skip_existing(&self, tag: &'static str, name: &str, taken: IfTaken) -> Result<Option<Outcome>> {
        match taken.check(&self.shared.catalog(), name)? {
            NewName::Skip { notice } => Ok(Some(Outcome::done(tag).with_notices(vec![notice]))),
            NewName::Free | NewName::Replace(_) => Ok(None),
        }
    }
}

/// A CREATE on its way into the catalog.
struct Planned<'a> {
    tag: &'static str,
    name: &'a str,
    taken: IfTaken,
    /// What a probe found.
    facts: Vec<(String, String)>,
}

/// The functions of the program that a statement calls, so that it can be planned again without them.
fn functions_of(catalog: &Catalog, statement: &Statement) -> Vec<(String, String)> {
    let called = plan::functions_called_by(statement).into_iter();
    let recorded = called.filter(|name| catalog.function(name).is_none());
    recorded
        .filter_map(|name| {
            Some((
                FUNCTION_FACT.to_owned(),
                catalog.host().record(&name, &plan::HostTypes)?,
            ))
        })
        .collect()
}

pub(super) async fn run_blocking<T: Send + 'static>(
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
