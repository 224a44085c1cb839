//! SHOW, DESCRIBE and EXPLAIN.

use std::sync::Arc;
use std::time::Instant;

use highwater_connectors::format;
use highwater_connectors::options::{self, OptionSpec, is_secret};
use highwater_sql::catalog::{Catalog, FilledDef, IndexDef, Object, ObjectBody, TableDef};
use highwater_sql::explain::explain as explain_plan;
use highwater_sql::plan::{self, ViewOptions, schema_of_source, sql_type_name};
use highwater_sql::show::{self, masked};
use highwater_sql::statement::{ObjectKind, Show, Statement};

use super::select;
use crate::database::{Database, QUERY_OPTIONS, SINK_OPTIONS, objects_of, options_of, view_options};
use crate::engine::source_settings::SOURCE_OPTIONS;
use crate::error::{Error, Result};
use crate::outcome::Outcome;
use crate::query;
use crate::system::{Facts, pg_catalog};

/// `SHOW …`
pub(super) async fn show(database: &Database, asked: &Show) -> Result<Outcome> {
    match asked {
        Show::Objects(kind) => objects(database, *kind),
        Show::Create { kind, name, position } => create(database, *kind, name, *position),
        Show::Lanes(None) => {
            select::show(
                database,
                "SELECT * FROM hw.lanes ORDER BY source, query, partition",
            )
            .await
        }
        Show::Lanes(Some(source)) => {
            database
                .shared
                .catalog()
                .resolve_kind(source, ObjectKind::Source, "SHOW LANES FROM")?;
            let text = source.replace('\'', "''");
            let sql = format!("SELECT * FROM hw.lanes WHERE source = '{text}' ORDER BY query, partition");
            select::show(database, &sql).await
        }
        Show::Watermarks => {
            let sql = "SELECT source, query, partition, watermark, idle FROM hw.lanes ORDER BY source, query, partition";
            select::show(database, sql).await
        }
        Show::System(table) => {
            let order = match *table {
                "operators" => "query, node",
                "checkpoints" => "queries",
                "errors" => "at",
                _ => "name",
            };
            select::show(database, &format!("SELECT * FROM hw.{table} ORDER BY {order}")).await
        }
        Show::None(told) => {
            let outcome = Outcome::text_rows("SHOW", &["name", "type"], Vec::new())?;
            Ok(outcome.with_notices(vec![(*told).to_owned()]))
        }
        Show::Options(Some(connector)) => connector_options(database, connector),
        Show::Options(None) => all_options(database),
        Show::Setting(_) | Show::Settings => Err(Error::new("XX000", "settings belong to the session")),
    }
}

fn objects(database: &Database, kind: ObjectKind) -> Result<Outcome> {
    let catalog = database.shared.catalog();
    let rows = catalog
        .iter()
        .filter(|object| object.body.kind() == kind)
        .map(|object| {
            let detail = match &object.body {
                ObjectBody::Source(source) => Some(source.connector.clone()),
                ObjectBody::Table(table) => key_of(table),
                ObjectBody::Sink(sink) => Some(match &sink.into {
                    Some(table) => format!("table {}", show::name(table)),
                    None => sink.connector.clone(),
                }),
                ObjectBody::View(view) => Some(view.query.clone()),
                ObjectBody::MaterializedView(view) => Some(view.definition()),
                ObjectBody::Function(function) => Some(sql_type_name(&function.returns)),
                ObjectBody::Index(index) => Some(on_columns(index)),
            };
            vec![Some(object.name.clone()), detail]
        });
    let second = match kind {
        ObjectKind::Source | ObjectKind::Sink => "connector",
        ObjectKind::Table => "primary_key",
        ObjectKind::Function => "returns",
        ObjectKind::Index => "columns",
        ObjectKind::View | ObjectKind::MaterializedView => "query",
    };
    Outcome::text_rows("SHOW", &["name", second], rows.collect())
}

/// The relation of an index and what its rows are sorted by, as CREATE INDEX takes them.
fn on_columns(index: &IndexDef) -> String {
    let schema = &index.plan.root().schema;
    let column = |(column, descending, nulls_first): &(usize, bool, bool)| {
        let order = if *descending { " DESC" } else { "" };
        let nulls = match (descending, nulls_first) {
            (true, false) => " NULLS LAST",
            (false, true) => " NULLS FIRST",
            _ => "",
        };
        format!("{}{order}{nulls}", show::name(schema.field(*column).name()))
    };
    let columns: Vec<String> = index.columns.iter().map(column).collect();
    format!("{} ({})", show::name(&index.relation), columns.join(", "))
}

/// The columns of a table's primary key, if it has one.
fn key_of(table: &TableDef) -> Option<String> {
    let names = table
        .primary_key
        .iter()
        .map(|column| show::name(&table.columns[*column].name));
    Some(names.collect::<Vec<_>>().join(", ")).filter(|names| !names.is_empty())
}

fn create(database: &Database, kind: Option<ObjectKind>, name: &str, position: usize) -> Result<Outcome> {
    let catalog = database.shared.catalog();
    let object = match kind {
        Some(kind) => catalog.resolve_kind(name, kind, "SHOW CREATE"),
        None => catalog.resolve(name),
    };
    let object = object.map_err(|error| Error::from(error).at(Some(position)))?;
    let specs = options_of(&database.shared.registry, &object.body);
    let text = masked(&object.definition, &|option| is_secret(&specs, option));
    let row = vec![Some(object.name.clone()), Some(text)];
    Outcome::text_rows("SHOW", &["name", "create_statement"], vec![row])
}

/// Rows of SHOW OPTIONS.
#[derive(Default)]
struct OptionRows(Vec<Vec<Option<String>>>);

impl OptionRows {
    fn add(&mut self, of: &str, specs: &[OptionSpec]) {
        for row in options::rows(specs) {
            let required = if row.required { "yes" } else { "no" };
            let cells = [
                of,
                row.name,
                &row.aliases,
                &row.kind,
                row.default,
                required,
                row.doc,
            ];
            self.0
                .push(cells.iter().map(|cell| Some((*cell).to_owned())).collect());
        }
    }

    fn outcome(self) -> Result<Outcome> {
        let columns = [
            "of",
            "option",
            "aliases",
            "value",
            "default",
            "required",
            "description",
        ];
        Outcome::text_rows("SHOW", &columns, self.0)
    }
}

/// `SHOW OPTIONS`: those of all connectors, each under its name.
fn all_options(database: &Database) -> Result<Outcome> {
    let registry = &database.shared.registry;
    let mut rows = OptionRows::default();
    for name in registry.source_names() {
        rows.add(&format!("{name} source"), registry.source(name)?.options());
    }
    rows.add("any source", SOURCE_OPTIONS);
    for name in registry.sink_names() {
        rows.add(&format!("{name} sink"), registry.sink(name)?.options());
    }
    rows.add("any sink", SINK_OPTIONS);
    rows.add("any view or sink", QUERY_OPTIONS);
    rows.add("format json", format::options("json")?);
    rows.outcome()
}

/// `SHOW OPTIONS FOR connector`
fn connector_options(database: &Database, connector: &str) -> Result<Outcome> {
    let registry = &database.shared.registry;
    let mut rows = OptionRows::default();
    let source = registry.source(connector);
    let sink = registry.sink(connector);
    if let (Err(error), Err(_)) = (&source, &sink) {
        return Err(error.clone().into());
    }
    if let Ok(source) = source {
        rows.add("source", source.options());
        rows.add("source", SOURCE_OPTIONS);
    }
    if let Ok(sink) = sink {
        rows.add("sink", sink.options());
        rows.add("sink", SINK_OPTIONS);
        rows.add("sink", QUERY_OPTIONS);
    }
    rows.add("format json", format::options("json")?);
    rows.outcome()
}

/// `DESCRIBE [schema.]name`
pub(super) fn describe(database: &Database, schema: Option<&str>, name: &str) -> Result<Outcome> {
    let catalog = database.shared.catalog();
    let rows = match (schema, catalog.resolve(name)) {
        (None, Ok(object)) => described(object),
        (schema, found) => {
            let schema = schema.unwrap_or("pg_catalog");
            let columns = pg_catalog::columns_of(&Facts::of(database, &catalog), schema, name);
            match (columns, found) {
                (Some(columns), _) => columns.into_iter().map(system_row).collect(),
                (None, Err(error)) if schema == "pg_catalog" => return Err(error.into()),
                (None, _) => {
                    let message = format!("relation \"{schema}.{name}\" does not exist");
                    return Err(Error::new("42P01", message));
                }
            }
        }
    };
    Outcome::text_rows("DESCRIBE", &["column", "type", "nullable", "extra"], rows)
}

/// The row of a column of a system table.
fn system_row((name, data_type, not_null): (String, String, bool)) -> Vec<Option<String>> {
    let nullable = if not_null { "not null" } else { "" };
    vec![Some(name), Some(data_type), Some(nullable.to_owned()), None]
}

/// The rows of the columns of an object.
fn described(object: &Object) -> Vec<Vec<Option<String>>> {
    match &object.body {
        ObjectBody::Source(source) => {
            let extra = |index: usize| {
                use highwater_sql::catalog::ColumnOrigin as Origin;
                let watermark = source
                    .watermark
                    .as_ref()
                    .filter(|watermark| watermark.column == index);
                let origin = match &source.columns[index].origin {
                    Origin::Field => None,
                    Origin::Include(include) => Some(format!("INCLUDE {}", show::include(include))),
                    Origin::Generated(expression) => Some(format!("AS {expression}")),
                };
                watermark
                    .map(|watermark| format!("WATERMARK AS {}", watermark.expression))
                    .or(origin)
            };
            let schema = schema_of_source(source);
            let fields = schema.fields().iter().enumerate();
            fields
                .map(|(index, field)| column_row(field, extra(index)))
                .collect()
        }
        ObjectBody::Table(table) => {
            let fields = table.schema().fields().iter().zip(&table.columns).enumerate();
            fields
                .map(|(index, (field, column))| {
                    let mut row = column_row(field, column_extra(table, index));
                    if let (Some(length), Some(data_type)) = (column.length, &mut row[1]) {
                        *data_type = format!("{data_type}({length})");
                    }
                    row
                })
                .collect()
        }
        _ => schema_of(object)
            .fields()
            .iter()
            .map(|field| column_row(field, None))
            .collect(),
    }
}

/// What DESCRIBE says of a column of a table beside its type.
fn column_extra(table: &TableDef, column: usize) -> Option<String> {
    let key = table
        .primary_key
        .contains(&column)
        .then(|| "PRIMARY KEY".to_owned());
    let filled = match &table.columns[column].filled {
        FilledDef::Null => None,
        FilledDef::Default(text) => Some(format!("DEFAULT {text}")),
        FilledDef::Generated(text) => Some(format!("AS {text}")),
        FilledDef::Included(what) => Some(format!("INCLUDE {}", show::include(what))),
    };
    let all: Vec<String> = key.into_iter().chain(filled).collect();
    (!all.is_empty()).then(|| all.join(", "))
}

fn schema_of(object: &Object) -> arrow::datatypes::SchemaRef {
    match &object.body {
        ObjectBody::Source(source) => schema_of_source(source),
        ObjectBody::Table(table) => table.schema().clone(),
        ObjectBody::View(view) => view.schema.clone(),
        ObjectBody::MaterializedView(view) => view.plan.root().schema.clone(),
        ObjectBody::Sink(sink) => sink.plan.root().schema.clone(),
        ObjectBody::Index(index) => index.plan.root().schema.clone(),
        ObjectBody::Function(_) => Arc::new(arrow::datatypes::Schema::empty()),
    }
}

fn column_row(field: &arrow::datatypes::Field, extra: Option<String>) -> Vec<Option<String>> {
    let nullable = if field.is_nullable() { "" } else { "not null" };
    vec![
        Some(field.name().clone()),
        Some(sql_type_name(field.data_type())),
        Some(nullable.to_owned()),
        extra,
    ]
}

/// `EXPLAIN ANALYZE` of a query: it is run, and its rows are counted and let go.
pub(super) async fn analyze(database: &Database, statement: &Statement) -> Result<Outcome> {
    let Statement::Query(query) = statement else {
        return Err(Error::new("0A000", "EXPLAIN ANALYZE takes a query"));
    };
    let begun = Instant::now();
    let catalog = database.shared.catalog();
    let relations = plan::relations_of(query);
    let objects = objects_of(&catalog, &relations);
    database.shared.filled(&catalog, &objects).await?;
    let planned = select::plan_of(database, &catalog, query).await?;
    let lines = query::analyzed(&database.shared.runtime, planned.plan, begun).await?;
    let rows = lines.into_iter().map(|line| vec![Some(line)]).collect();
    Outcome::text_rows("EXPLAIN", &["QUERY PLAN"], rows)
}

/// `EXPLAIN [VERBOSE] …`
pub(super) async fn explain(database: &Database, statement: &Statement, verbose: bool) -> Result<Outcome> {
    let catalog = database.shared.catalog();
    let wanted = (Arc::clone(&catalog), statement.clone());
    let planned = database
        .shared
        .runtime
        .spawn_blocking(move || explained(&wanted.0, &wanted.1, verbose));
    let planned = planned
        .await
        .map_err(|_| Error::new("XX000", "the planner panicked"))?;
    let mut text = planned?.unwrap_or_default();
    if let Statement::Query(query) = statement {
        if text.is_empty() {
            // It can still be read once.
            let planned = select::plan_of(database, &catalog, query).await?;
            text = planned.plan.display_indent().to_string();
        }
        for read in select::reads(database, query).await? {
            if !text.ends_with('\n') {
                text.push('\n');
            }
            text.push_str("Read now: ");
            text.push_str(&read);
        }
    }
    let rows = text.lines().map(|line| vec![Some(line.to_owned())]).collect();
    Outcome::text_rows("EXPLAIN", &["QUERY PLAN"], rows)
}

/// The plan of a statement as text; none of a query that cannot be kept up to date.
fn explained(catalog: &Catalog, statement: &Statement, verbose: bool) -> Result<Option<String>> {
    Ok(Some(match statement {
        Statement::CreateMaterializedView(view) => {
            let options = view_options(&view.with, view.emit_on_window_close)?;
            let planned = plan::plan_view(catalog, &view.query, &view.columns, options)?;
            explain_plan(&planned.plan, verbose)
        }
        Statement::CreateSink(sink) => {
            let options = view_options(&sink.with, sink.emit_on_window_close)?;
            let planned = match &sink.into {
                Some(into) => {
                    let object = catalog.resolve_kind(&into.table, ObjectKind::Table, "CREATE SINK … INTO");
                    let object = object.map_err(|error| Error::from(error).at(Some(into.position)))?;
                    let ObjectBody::Table(def) = &object.body else {
                        return Err(Error::new("XX000", "a table is none"));
                    };
                    let name = &object.name;
                    plan::plan_sink_into(
                        catalog,
                        plan::TableRef {
                            name,
                            def,
                            user: None,
                        },
                        sink,
                        into,
                        options,
                    )?
                }
                None => plan::plan_view(catalog, &sink.query, &[], options)?,
            };
            explain_plan(&planned.plan, verbose)
        }
        Statement::Query(query) => match plan::plan_view(catalog, query, &[], ViewOptions::default()) {
            Ok(planned) => explain_plan(&planned.plan, verbose),
            Err(_) => return Ok(None),
        },
        _ => {
            return Err(Error::new(
                "0A000",
                "EXPLAIN takes a query, CREATE MATERIALIZED VIEW or CREATE SINK",
            ));
        }
    }))
}
