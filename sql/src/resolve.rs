//! From the statement to the object: types, options after interpolation, and the checks that need no planner.

mod table;

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Fields, Schema, SchemaRef, TimeUnit};
use datafusion::sql::sqlparser::ast;

use crate::catalog::{ColumnDef, ColumnOrigin, SourceDef, WatermarkDef};
use crate::error::{SqlError, SqlState};
use crate::options::{Lookup, interpolate_all};
use crate::parse::{parse_data_type, parse_expression};
use crate::plan::types::{arrow_type, sql_type_name};
use crate::show::definition_of_source;
use crate::statement::{CreateSink, CreateSource, Include, SourceColumn, SourceColumnKind, WithOptions};
use crate::suggest::closest;

pub use self::table::resolve_table;

/// A source as the catalog keeps it.
#[derive(Debug, Clone)]
pub struct ResolvedSource {
    /// What it is.
    pub def: SourceDef,
    /// The statement that makes it again without a probe: found columns are written in, options stand as given.
    pub definition: String,
}

/// Resolves `CREATE SOURCE`. `found` are the columns that the probe found; they come first, before generated and
/// INCLUDE columns, and are only taken if the statement declares no field ([`CreateSource::wants_columns`]).
/// The expressions in the result are checked by the planner (`plan::check_source`).
///
/// # Errors
/// An unknown or doubled column, a type or option that is not there, no connector, an environment variable that is not
/// set; each with its place in the script.
pub fn resolve_source(
    statement: &CreateSource,
    lookup: Lookup<'_>,
    found: Option<&Schema>,
) -> Result<ResolvedSource, SqlError> {
    let (connector, options) = connector_options(&statement.with, "source", &statement.name, lookup)?;
    let statement = with_found_columns(statement, found)?;
    let columns = statement
        .columns
        .iter()
        .map(column_def)
        .collect::<Result<Vec<_>, _>>()?;
    let watermark = watermark_def(&statement, &columns)?;
    let def = SourceDef {
        columns,
        watermark,
        connector,
        options,
        encode: statement.encode.clone(),
        encode_options: interpolate_all(&statement.encode_options, lookup)?,
        changes: None,
    };
    Ok(ResolvedSource {
        def,
        definition: definition_of_source(&statement),
    })
}

/// What `CREATE SINK` says about delivery, resolved against the rows that it delivers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SinkTarget {
    /// The connector's name.
    pub connector: String,
    /// `WITH` options after interpolation, without `connector` and `primary_key`.
    pub options: BTreeMap<String, String>,
    /// Whether it takes updates and deletes (`FORMAT UPSERT`).
    pub upsert: bool,
    /// Columns of the record key, in the order of `primary_key`; empty if it is not given.
    pub primary_key: Vec<usize>,
    /// Lowercase encode name, absent where the connector takes rows.
    pub encode: Option<String>,
    /// Options of the encode clause, after interpolation.
    pub encode_options: BTreeMap<String, String>,
}

/// Resolves what `CREATE SINK` says about delivery; `schema` is that of its query. Whether the query fits (a retracting
/// query into a sink that only appends) is for the caller to say, who has its plan.
///
/// # Errors
/// No connector, a key column that is not there or given twice, an environment variable that is not set.
pub fn resolve_sink(
    statement: &CreateSink,
    schema: &SchemaRef,
    lookup: Lookup<'_>,
) -> Result<SinkTarget, SqlError> {
    let (connector, mut options) = connector_options(&statement.with, "sink", &statement.name, lookup)?;
    let primary_key = match (options.remove("primary_key"), statement.with.get("primary_key")) {
        (Some(text), Some(given)) => {
            key_columns(&text, schema, &statement.name).map_err(|error| error.at(given.position))?
        }
        _ => Vec::new(),
    };
    Ok(SinkTarget {
        connector,
        options,
        upsert: statement.format.as_deref() == Some("upsert"),
        primary_key,
        encode: statement.encode.clone(),
        encode_options: interpolate_all(&statement.encode_options, lookup)?,
    })
}

/// Column positions of `primary_key = 'a, b'`; names are as in SQL, lowercase unless in double quotes.
fn key_columns(text: &str, schema: &SchemaRef, sink: &str) -> Result<Vec<usize>, SqlError> {
    let mut key = Vec::new();
    for part in text.split(',') {
        let part = part.trim();
        let name = match part.strip_prefix('"').and_then(|part| part.strip_suffix('"')) {
            Some(quoted) => quoted.replace("\"\"", "\""),
            None => part.to_lowercase(),
        };
        let Some((index, _)) = schema.column_with_name(&name) else {
            let error = SqlError::new(
                SqlState::UndefinedColumn,
                format!("sink \"{sink}\" has no column \"{name}\""),
            )
            .with_detail(format!(
                "Option \"primary_key\" takes the record key from \"{name}\"."
            ));
            return Err(
                match closest(&name, schema.fields().iter().map(|field| field.name().as_str())) {
                    Some(near) => error.with_hint(format!("Did you mean \"{near}\"?")),
                    None => error,
                },
            );
        };
        if key.contains(&index) {
            let message = format!("column \"{name}\" is twice in \"primary_key\"");
            return Err(SqlError::new(SqlState::DuplicateColumn, message));
        }
        key.push(index);
    }
    Ok(key)
}

/// The options after interpolation, and the connector's name taken out of them.
fn connector_options(
    with: &WithOptions,
    sort: &str,
    name: &str,
    lookup: Lookup<'_>,
) -> Result<(String, BTreeMap<String, String>), SqlError> {
    let mut options = interpolate_all(with, lookup)?;
    match options.remove("connector") {
        Some(connector) if !connector.trim().is_empty() => Ok((connector.trim().to_lowercase(), options)),
        _ => {
            let error = SqlError::new(
                SqlState::InvalidParameterValue,
                format!("{sort} \"{name}\" has no connector"),
            )
            .with_hint("Say where the data is: WITH (connector = 'kafka', …).");
            let near = closest("connector", with.keys().map(String::as_str));
            Err(
                match near.and_then(|near| with.get(near).map(|value| (near, value.position))) {
                    Some((near, position)) => error
                        .with_hint(format!("Did you mean \"connector\" instead of \"{near}\"?"))
                        .at(position),
                    None => error,
                },
            )
        }
    }
}

/// The statement with the columns that were found, if it declares none.
fn with_found_columns(statement: &CreateSource, found: Option<&Schema>) -> Result<CreateSource, SqlError> {
    let mut statement = statement.clone();
    if !statement.wants_columns() {
        return Ok(statement);
    }
    let Some(found) = found else {
        let message = format!("source \"{}\" has no columns", statement.name);
        return Err(SqlError::new(SqlState::InvalidObjectDefinition, message)
            .with_hint("Declare them: CREATE SOURCE name (column TYPE, …) ….".to_owned()));
    };
    let declared = std::mem::take(&mut statement.columns);
    for field in found.fields() {
        if let Some(twice) = declared.iter().find(|column| column.name == *field.name()) {
            let message = format!("column \"{}\" is given twice", twice.name);
            return Err(SqlError::new(SqlState::DuplicateColumn, message)
                .with_detail("The records have a field of this name.")
                .with_hint("Give the column another name.")
                .at(twice.position));
        }
        statement.columns.push(SourceColumn {
            name: field.name().clone(),
            data_type: Some(sql_type_of(field)?),
            not_null: !field.is_nullable(),
            kind: SourceColumnKind::Field,
            position: 0,
        });
    }
    statement.columns.extend(declared);
    Ok(statement)
}

/// The SQL type that means the type of a found column.
fn sql_type_of(field: &Field) -> Result<ast::DataType, SqlError> {
    let text = match field.data_type() {
        DataType::Decimal128(precision, scale) => format!("numeric({precision},{scale})"),
        other => sql_type_name(other),
    };
    match parse_data_type(&text) {
        Ok(read) if arrow_type(&read).is_ok_and(|means| means == *field.data_type()) => Ok(read),
        _ => Err(
            SqlError::unsupported(format!("type {text} of column \"{}\"", field.name()))
                .with_detail("The column was found in the data, not declared.")
                .with_hint("Declare the columns of the source."),
        ),
    }
}

fn column_def(column: &SourceColumn) -> Result<ColumnDef, SqlError> {
    let place = |error: SqlError| error.at(column.position);
    let declared = column
        .data_type
        .as_ref()
        .map(arrow_type)
        .transpose()
        .map_err(place)?;
    let (data_type, nullable, origin) = match &column.kind {
        SourceColumnKind::Field => (declared, !column.not_null, ColumnOrigin::Field),
        SourceColumnKind::Generated(expression) => {
            let text = expression_text(expression).map_err(place)?;
            (declared, !column.not_null, ColumnOrigin::Generated(text))
        }
        SourceColumnKind::Include(include) => {
            let data_type = include_type(&column.name, include, declared).map_err(place)?;
            let always_there = matches!(include, Include::Partition | Include::Offset);
            (
                Some(data_type),
                !always_there && !column.not_null,
                ColumnOrigin::Include(include.clone()),
            )
        }
    };
    let data_type = data_type.ok_or_else(|| {
        let message = format!("column \"{}\" has no type", column.name);
        SqlError::new(SqlState::InvalidObjectDefinition, message).at(column.position)
    })?;
    Ok(ColumnDef {
        name: column.name.clone(),
        data_type,
        nullable,
        origin,
    })
}

/// The type of an INCLUDE column: what is declared, if the metadata has it.
fn include_type(column: &str, include: &Include, declared: Option<DataType>) -> Result<DataType, SqlError> {
    let (names, types): (&str, Vec<DataType>) = match include {
        Include::Key => ("BYTEA", vec![DataType::Binary]),
        Include::Partition => ("INTEGER", vec![DataType::Int32]),
        Include::Offset => ("BIGINT", vec![DataType::Int64]),
        Include::Timestamp => (
            "TIMESTAMPTZ",
            vec![DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()))],
        ),
        Include::Headers => (
            "an array of (name VARCHAR, value BYTEA), which is written without a type",
            vec![headers_type()],
        ),
        Include::Header(_) => ("BYTEA or VARCHAR", vec![DataType::Binary, DataType::Utf8]),
    };
    match declared {
        None => Ok(types.into_iter().next().expect("each metadata has a type")),
        Some(declared) if types.contains(&declared) => Ok(declared),
        Some(declared) => {
            let message = format!(
                "column \"{column}\" cannot be of type {}",
                sql_type_name(&declared)
            );
            Err(SqlError::new(SqlState::DatatypeMismatch, message)
                .with_detail(format!("The {} of a record is {names}.", include_noun(include)))
                .with_hint("Convert it in a generated column, or in the query."))
        }
    }
}

fn include_noun(include: &Include) -> &'static str {
    match include {
        Include::Key => "key",
        Include::Partition => "partition",
        Include::Offset => "offset",
        Include::Timestamp => "timestamp",
        Include::Headers => "list of headers",
        Include::Header(_) => "header",
    }
}

/// `List<Struct<name: Utf8, value: Binary>>`: a header always has a name, its value may be NULL.
#[must_use]
pub fn headers_type() -> DataType {
    let header = Fields::from(vec![
        Field::new("name", DataType::Utf8, false),
        Field::new("value", DataType::Binary, true),
    ]);
    DataType::List(Arc::new(Field::new("item", DataType::Struct(header), true)))
}

fn watermark_def(statement: &CreateSource, columns: &[ColumnDef]) -> Result<Option<WatermarkDef>, SqlError> {
    let Some(clause) = &statement.watermark else {
        return Ok(None);
    };
    let Some(column) = columns.iter().position(|column| column.name == clause.column) else {
        let name = &clause.column;
        let message = format!("source \"{}\" has no column \"{name}\"", statement.name);
        let hint = match closest(name, columns.iter().map(|column| column.name.as_str())) {
            Some(near) => format!("Did you mean \"{near}\"?"),
            None => format!("Add \"{name}\" to the column list, or remove the WATERMARK clause."),
        };
        return Err(SqlError::new(SqlState::UndefinedColumn, message)
            .with_detail(format!(
                "The WATERMARK clause takes its event time from \"{name}\"."
            ))
            .with_hint(hint)
            .at(clause.position));
    };
    let expression = expression_text(&clause.expression).map_err(|error| error.at(clause.position))?;
    Ok(Some(WatermarkDef { column, expression }))
}

/// The expression as the catalog keeps it: text that reads back to the same expression.
fn expression_text(expression: &ast::Expr) -> Result<String, SqlError> {
    let text = expression.to_string();
    match parse_expression(&text) {
        Ok(read) if read == *expression => Ok(text),
        _ => Err(SqlError::unsupported("an expression that cannot be written back")
            .with_detail(format!("It would be kept as: {text}."))),
    }
}
