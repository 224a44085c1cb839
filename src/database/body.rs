//! What the statement that makes an object says: text and catalog → the object's body. Asks nobody.

use std::sync::Arc;

use arrow::datatypes::Schema;
use highwater_connectors::options::{OptionMap, parse_duration, validate};
use highwater_connectors::registry::Registry;
use highwater_sql::catalog::{Catalog, MaterializedViewDef, ObjectBody, SinkDef, TableDef, ViewDef};
use highwater_sql::options::interpolate;
use highwater_sql::plan::{self, TableRef, ViewOptions};
use highwater_sql::resolve::{ResolvedSource, SinkTarget, resolve_sink, resolve_source, resolve_table};
use highwater_sql::statement::{
    CreateSink, CreateSource, CreateTable, Parsed, SinkInto, Statement, WithOptions,
};

use super::specs::{QUERY_OPTIONS, checked_source, only_of, sink_options};
use crate::error::{Error, Result};

/// The option by which state goes that nothing changes.
const STATE_TTL: &str = "state.ttl";

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

/// What the statement that makes an object says, against the objects that are there, and what it depends on.
///
/// # Errors
/// What the statement reports.
pub(super) fn body_of(
    objects: &Catalog,
    registry: &Registry,
    parsed: &Parsed,
    purpose: Purpose,
) -> Result<(ObjectBody, Vec<String>)> {
    match &parsed.statement {
        Statement::CreateSource(source) => {
            let resolved = source_of(registry, source, None, purpose)?;
            Ok((ObjectBody::Source(resolved.def), Vec::new()))
        }
        Statement::CreateTable(table) => {
            Ok((ObjectBody::Table(table_of(registry, table, purpose)?), Vec::new()))
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
            let options = view_options(&view.with, view.emit_on_window_close)?;
            let planned = plan::plan_view(objects, &view.query, &view.columns, options)?;
            let body = MaterializedViewDef {
                plan: Arc::new(planned.plan),
                query: view.query.to_string(),
            };
            Ok((ObjectBody::MaterializedView(body), planned.depends_on))
        }
        Statement::CreateSink(sink) => sink_of(objects, registry, sink, purpose),
        Statement::CreateIndex(index) => {
            let (index, depends_on) = plan::plan_index(objects, index)?;
            Ok((ObjectBody::Index(index), depends_on))
        }
        Statement::CreateFunction(function) => {
            let planned = plan::plan_function(objects, function)?;
            Ok((ObjectBody::Function(planned.def), planned.depends_on))
        }
        _ => Err(Error::new("XX000", "the statement makes no object")),
    }
}

/// What `CREATE SOURCE` says; `found` are the columns of a source that declares none.
///
/// # Errors
/// What the statement reports.
pub(super) fn source_of(
    registry: &Registry,
    source: &CreateSource,
    found: Option<&Schema>,
    purpose: Purpose,
) -> Result<ResolvedSource> {
    let mut resolved = resolve_source(source, &|name| purpose.variable(name), found)?;
    plan::check_source(&resolved.def)?;
    let checked = known_source(registry, &source.with, &resolved.def.connector)
        .and_then(|()| checked_source(registry, resolved.def.clone()));
    resolved.def = purpose.settled(checked, || resolved.def)?;
    Ok(resolved)
}

/// Looks for a source connector.
///
/// # Errors
/// There is none of this name; with the place of the name in the statement.
fn known_source(registry: &Registry, with: &WithOptions, connector: &str) -> Result<()> {
    let found = registry.source(connector).map(|_| ());
    found.map_err(|error| Error::from(error).at(connector_place(with)))
}

/// Where the name of the connector stands.
fn connector_place(with: &WithOptions) -> Option<usize> {
    with.get("connector").map(|given| given.value_position)
}

/// What `CREATE TABLE` says.
///
/// # Errors
/// What the statement reports.
fn table_of(registry: &Registry, table: &CreateTable, purpose: Purpose) -> Result<TableDef> {
    let mut def = resolve_table(table, &|name| purpose.variable(name))?;
    if let Some(source) = def.source.take() {
        let place = table.connector.as_ref().map(|connector| connector.position);
        let with = table.connector.as_ref().map(|connector| &connector.with);
        let checked = with
            .map_or(Ok(()), |with| known_source(registry, with, &source.connector))
            .and_then(|()| checked_source(registry, source.clone()).map_err(|error| error.at(place)));
        def.source = Some(purpose.settled(checked, || source)?);
    }
    Ok(def)
}

fn sink_of(
    objects: &Catalog,
    registry: &Registry,
    sink: &CreateSink,
    purpose: Purpose,
) -> Result<(ObjectBody, Vec<String>)> {
    if let Some(into) = &sink.into {
        return sink_into(objects, sink, into);
    }
    let options = view_options(&sink.with, sink.emit_on_window_close)?;
    let planned = plan::plan_view(objects, &sink.query, &[], options)?;
    let schema = &planned.plan.root().schema;
    let mut target = resolve_sink(sink, schema, &|name| purpose.variable(name))?;
    let mut stream = planned.plan;
    let notices = plan::plan_sink_checks(&stream, target.upsert, &target.primary_key)?;
    stream.notices.extend(notices);
    target.options.append(&mut target.encode_options);
    let place = sink.with.get("connector").map(|given| given.position);
    let checked = match registry.sink(&target.connector) {
        Ok(_) => checked_sink_options(registry, &target).map_err(|error| error.at(place)),
        Err(error) => Err(Error::from(error).at(connector_place(&sink.with))),
    };
    let options = purpose.settled(checked, || target.options.clone())?;
    let body = SinkDef {
        plan: Arc::new(stream),
        into: None,
        connector: target.connector,
        options,
        upsert: target.upsert,
        primary_key: target.primary_key,
        encode: target.encode,
        encode_options: Default::default(),
    };
    Ok((ObjectBody::Sink(body), planned.depends_on))
}

/// A sink that writes into a table.
fn sink_into(objects: &Catalog, sink: &CreateSink, into: &SinkInto) -> Result<(ObjectBody, Vec<String>)> {
    let at = |error: Error| error.at(Some(into.position));
    let object = objects.resolve(&into.table).map_err(|error| at(error.into()))?;
    let ObjectBody::Table(def) = &object.body else {
        let noun = object.body.kind().noun();
        let error = Error::new("42809", format!("cannot write into {noun} \"{}\"", object.name));
        return Err(at(error.with_hint("CREATE SINK … INTO takes a table.")));
    };
    let table = TableRef {
        name: &object.name,
        def,
        user: None,
    };
    let options = view_options(&sink.with, sink.emit_on_window_close)?;
    let planned = plan::plan_sink_into(objects, table, sink, into, options)?;
    if let Some(path) = objects.path_of_changes(&object.name, &planned.depends_on) {
        let message = format!("sink \"{}\" would write into what it reads", sink.name);
        return Err(at(Error::new("42P17", message)
            .with_detail(format!(
                "The changes would go round: {}, {}.",
                sink.name,
                path.join(", ")
            ))
            .with_hint("Write into another table.")));
    }
    let mut depends_on = planned.depends_on;
    depends_on.push(object.name.clone());
    depends_on.sort();
    let body = SinkDef {
        plan: Arc::new(planned.plan),
        into: Some(object.name.clone()),
        connector: String::new(),
        options: Default::default(),
        upsert: !def.primary_key.is_empty(),
        primary_key: def.primary_key.clone(),
        encode: None,
        encode_options: Default::default(),
    };
    Ok((ObjectBody::Sink(body), depends_on))
}

/// What a statement says of its query beside it.
///
/// # Errors
/// A `state.ttl` that is no time span.
pub(crate) fn view_options(with: &WithOptions, emit_on_close: bool) -> Result<ViewOptions> {
    let state_ttl_us = match with.get(STATE_TTL) {
        None => None,
        Some(given) => {
            let at = |error: Error| error.at(Some(given.position));
            let text = interpolate(&given.text, &environment).map_err(|error| at(error.into()))?;
            let options = OptionMap::from([(STATE_TTL.to_owned(), text)]);
            let options = validate(QUERY_OPTIONS, &options).map_err(|error| at(error.into()))?;
            let ttl = options.get(STATE_TTL).and_then(|ttl| parse_duration(ttl));
            let ttl_us = ttl.map_or(0, |ttl| i64::try_from(ttl.as_micros()).unwrap_or(i64::MAX));
            if ttl_us == 0 {
                return Err(at(Error::new(
                    "22023",
                    "option \"state.ttl\" must be more than zero",
                )));
            }
            Some(ttl_us)
        }
    };
    Ok(ViewOptions {
        emit_on_close,
        state_ttl_us,
    })
}

/// A sink's options, checked and under their canonical names.
fn checked_sink_options(registry: &Registry, target: &SinkTarget) -> Result<OptionMap> {
    let specs = sink_options(registry, &target.connector, target.encode.as_deref())?;
    let options = validate(&specs, &target.options)?;
    let connector = registry.sink(&target.connector)?;
    connector.validate(&only_of(connector.options(), &options))?;
    Ok(options)
}
