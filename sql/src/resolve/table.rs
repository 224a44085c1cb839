//! From `CREATE TABLE` to the table: types, key, conflicts, defaults and generated columns.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Schema};

use super::{connector_options, expression_text, include_type};
use crate::catalog::{
    ChangeFormat, ColumnDef, ColumnOrigin, FilledDef, SourceChanges, SourceDef, TableColumnDef, TableDef,
};
use crate::error::{SqlError, SqlState};
use crate::jsonb::holds_documents;
use crate::options::{Lookup, interpolate_all};
use crate::plan::types::{arrow_type, limited_text, sql_type_name, written_type};
use crate::plan::{check_default, check_source, scan_of};
use crate::statement::{CreateTable, Filled, OnConflict, TableColumn, TableConnector};
use crate::stream_plan::{PlanNode, StreamOp, StreamPlan};

/// Resolves `CREATE TABLE`.
///
/// # Errors
/// An unknown column or type, a default or a generated column that does not work, clauses that exclude each other; each
/// with its place in the script.
pub fn resolve_table(statement: &CreateTable, lookup: Lookup<'_>) -> Result<TableDef, SqlError> {
    let primary_key = key_columns(statement)?;
    let mut columns = statement
        .columns
        .iter()
        .map(|column| column_def(column, statement.connector.is_some()))
        .collect::<Result<Vec<_>, _>>()?;
    for column in &primary_key {
        columns[*column].nullable = false;
    }
    check_generated(statement, &columns)?;
    let source = match &statement.connector {
        Some(connector) => Some(source_of(statement, connector, (&columns, &primary_key), lookup)?),
        None => None,
    };
    check_conflicts(statement, &primary_key)?;
    let version_column = match &statement.version_column {
        Some((name, position)) => Some(column_named(statement, name, *position, "version column")?),
        None => None,
    };
    let on_conflict = statement
        .on_conflict
        .map_or(OnConflict::Update, |(given, _)| given);
    check_key_types(statement, &columns, &primary_key)?;
    let plan = Arc::new(plan_of(statement, (&columns, &primary_key), source.as_ref())?);
    Ok(TableDef {
        columns,
        primary_key,
        append_only: statement.append_only,
        on_conflict,
        version_column,
        plan,
        source,
    })
}

fn key_columns(statement: &CreateTable) -> Result<Vec<usize>, SqlError> {
    let mut key = Vec::new();
    for (name, position) in &statement.primary_key {
        let column = column_named(statement, name, *position, "key")?;
        if key.contains(&column) {
            let message = format!("column \"{name}\" appears twice in primary key constraint");
            return Err(SqlError::new(SqlState::DuplicateColumn, message).at(*position));
        }
        key.push(column);
    }
    Ok(key)
}

/// Keys are told apart by their bytes, and equal documents and intervals may differ in theirs.
fn check_key_types(
    statement: &CreateTable,
    columns: &[TableColumnDef],
    primary_key: &[usize],
) -> Result<(), SqlError> {
    let is_interval = |data_type: &DataType| matches!(data_type, DataType::Interval(_));
    let equal_in_value = |data_type: &DataType| holds_documents(data_type) || is_interval(data_type);
    let Some(place) = primary_key
        .iter()
        .position(|column| equal_in_value(&columns[*column].data_type))
    else {
        return Ok(());
    };
    let data_type = &columns[primary_key[place]].data_type;
    let error = SqlError::unsupported(format!("a primary key of type {}", sql_type_name(data_type)));
    let error = match is_interval(data_type) {
        true => error.with_hint("Make a number of it, for instance of seconds, and make that the key."),
        false => {
            error.with_hint("Take a field of the document into a column of its own, and make that the key.")
        }
    };
    Err(match statement.primary_key.get(place) {
        Some((_, position)) => error.at(*position),
        None => error,
    })
}

fn column_named(
    statement: &CreateTable,
    name: &str,
    position: usize,
    place: &str,
) -> Result<usize, SqlError> {
    let found = statement.columns.iter().position(|column| column.name == name);
    found.ok_or_else(|| {
        let message = format!("column \"{name}\" named in {place} does not exist");
        SqlError::new(SqlState::UndefinedColumn, message).at(position)
    })
}

/// A column; what comes from outside is not checked against a length.
fn column_def(column: &TableColumn, from_outside: bool) -> Result<TableColumnDef, SqlError> {
    let place = |error: SqlError| error.at(column.position);
    let limited = limited_text(&column.data_type)
        .map_err(place)?
        .filter(|_| !from_outside);
    let (data_type, length) = match limited {
        Some((plain, length)) => (arrow_type(&plain), Some(length)),
        None => (arrow_type(&column.data_type), None),
    };
    let data_type = data_type.map_err(place)?;
    let filled = match &column.filled {
        Filled::Null => FilledDef::Null,
        Filled::Default(expression) => {
            check_default(&column.name, expression, &data_type).map_err(place)?;
            FilledDef::Default(expression_text(expression).map_err(place)?)
        }
        Filled::Generated(expression) => FilledDef::Generated(expression_text(expression).map_err(place)?),
        Filled::Included(include) => {
            include_type(&column.name, include, Some(data_type.clone())).map_err(place)?;
            FilledDef::Included(include.clone())
        }
    };
    Ok(TableColumnDef {
        name: column.name.clone(),
        data_type,
        length,
        nullable: !column.not_null,
        filled,
    })
}

/// Generated columns of a table are those of a source: over the columns of the same row that are not generated.
fn check_generated(statement: &CreateTable, columns: &[TableColumnDef]) -> Result<(), SqlError> {
    let as_source = SourceDef {
        columns: source_columns(columns),
        watermark: None,
        connector: String::new(),
        options: BTreeMap::new(),
        encode: None,
        encode_options: BTreeMap::new(),
        changes: None,
    };
    let first = columns
        .iter()
        .position(|column| matches!(column.filled, FilledDef::Generated(_)));
    match first {
        Some(first) => check_source(&as_source).map_err(|error| error.at(statement.columns[first].position)),
        None => Ok(()),
    }
}

/// The columns of a table as a source has them.
fn source_columns(columns: &[TableColumnDef]) -> Vec<ColumnDef> {
    let columns = columns.iter().map(|column| ColumnDef {
        name: column.name.clone(),
        data_type: column.data_type.clone(),
        nullable: column.nullable,
        origin: match &column.filled {
            FilledDef::Generated(text) => ColumnOrigin::Generated(text.clone()),
            FilledDef::Included(include) => ColumnOrigin::Include(include.clone()),
            FilledDef::Null | FilledDef::Default(_) => ColumnOrigin::Field,
        },
    });
    columns.collect()
}

/// What a table reads from outside.
fn source_of(
    statement: &CreateTable,
    connector: &TableConnector,
    (columns, key): (&[TableColumnDef], &[usize]),
    lookup: Lookup<'_>,
) -> Result<SourceDef, SqlError> {
    let format = match connector.format.as_str() {
        "upsert" => Some(ChangeFormat::Upsert),
        "debezium" => Some(ChangeFormat::Debezium),
        _ => None,
    };
    let at = |error: SqlError| error.at(connector.position);
    if let Some(column) = statement
        .columns
        .iter()
        .find(|column| matches!(column.filled, Filled::Default(_)))
    {
        let error = SqlError::unsupported("DEFAULT in a table with a connector")
            .with_detail("A field that a record does not have is NULL.")
            .with_hint("Give the value in the query, with coalesce().");
        return Err(error.at(column.position));
    }
    if let Some(format) = format {
        check_changes(statement, key, format).map_err(at)?;
    }
    let (name, options) = connector_options(&connector.with, "table", &statement.name, lookup)?;
    let source = SourceDef {
        columns: source_columns(columns),
        watermark: None,
        connector: name,
        options,
        encode: connector.encode.clone(),
        encode_options: interpolate_all(&connector.encode_options, lookup)?,
        changes: format.map(|format| SourceChanges {
            format,
            key: key.iter().map(|column| columns[*column].name.clone()).collect(),
        }),
    };
    check_source(&source).map_err(at)?;
    Ok(source)
}

/// Checks that a table can take records that replace and delete rows.
fn check_changes(statement: &CreateTable, key: &[usize], format: ChangeFormat) -> Result<(), SqlError> {
    let name = match format {
        ChangeFormat::Upsert => "FORMAT UPSERT",
        ChangeFormat::Debezium => "FORMAT DEBEZIUM",
    };
    let wrong = |message: String| SqlError::new(SqlState::InvalidObjectDefinition, message);
    if key.is_empty() {
        return Err(wrong(format!("{name} needs a primary key"))
            .with_detail("Its records say which row they replace or delete.")
            .with_hint("Declare the columns of the record's key as the PRIMARY KEY."));
    }
    if statement.append_only {
        return Err(wrong(format!("{name} and APPEND ONLY exclude each other"))
            .with_detail("Its records replace and delete rows."));
    }
    if let Some(generated) = key
        .iter()
        .find(|column| matches!(statement.columns[**column].filled, Filled::Generated(_)))
    {
        let column = &statement.columns[*generated].name;
        return Err(
            SqlError::unsupported(format!("generated column \"{column}\" in the key of {name}"))
                .with_detail("A record that deletes a row has its key and nothing to compute it from."),
        );
    }
    Ok(())
}

/// Checks what is said of conflicts: only a key makes them, and a row that stays is not versioned.
fn check_conflicts(statement: &CreateTable, primary_key: &[usize]) -> Result<(), SqlError> {
    let wrong = |message: &str| SqlError::new(SqlState::InvalidObjectDefinition, message);
    if primary_key.is_empty() {
        let hint = "Declare a PRIMARY KEY: without one no two rows are in conflict.";
        if let Some((_, position)) = statement.on_conflict {
            return Err(wrong("ON CONFLICT needs a primary key")
                .with_hint(hint)
                .at(position));
        }
        if let Some((_, position)) = statement.version_column {
            return Err(wrong("WITH VERSION COLUMN needs a primary key")
                .with_hint(hint)
                .at(position));
        }
        return Ok(());
    }
    let on_conflict = statement.on_conflict.map(|(given, _)| given);
    if statement.append_only && on_conflict != Some(OnConflict::Nothing) {
        let error = wrong("a table with APPEND ONLY and a primary key needs ON CONFLICT DO NOTHING")
            .with_detail("A row that replaces another one is no row that is appended.");
        let place = match (statement.on_conflict, statement.primary_key.first()) {
            (Some((_, position)), _) => position,
            (None, Some((_, position))) => *position,
            (None, None) => 0,
        };
        return Err(error
            .with_hint("Say ON CONFLICT DO NOTHING, or leave out APPEND ONLY.")
            .at(place));
    }
    if let Some((OnConflict::UpdateIfNotNull, position)) = statement.on_conflict
        && statement
            .columns
            .iter()
            .any(|column| matches!(column.filled, Filled::Generated(_)))
    {
        return Err(SqlError::unsupported(
            "ON CONFLICT DO UPDATE IF NOT NULL on a table with generated columns",
        )
        .with_detail("A generated column would be computed from a row that is not stored.")
        .at(position));
    }
    match &statement.version_column {
        Some((_, position)) if on_conflict == Some(OnConflict::Nothing) => {
            Err(wrong("WITH VERSION COLUMN has no effect with ON CONFLICT DO NOTHING").at(*position))
        }
        _ => Ok(()),
    }
}

/// The plan of a table is the node that takes its changes, behind the scan of what it reads from outside.
fn plan_of(
    statement: &CreateTable,
    (columns, primary_key): (&[TableColumnDef], &[usize]),
    source: Option<&SourceDef>,
) -> Result<StreamPlan, SqlError> {
    let fields: Vec<Field> = columns
        .iter()
        .map(|column| Field::new(&column.name, column.data_type.clone(), column.nullable))
        .collect();
    let types: Vec<String> = columns
        .iter()
        .map(|column| written_type(&column.data_type))
        .collect();
    let mut nodes = Vec::new();
    if let Some(source) = source {
        let mut source = source.clone();
        if source.changes.is_some() {
            // A row that is gone has nothing but its key.
            let of_key = |at: usize| primary_key.contains(&at);
            let columns = source.columns.iter_mut().enumerate();
            columns.for_each(|(at, column)| column.nullable |= !of_key(at));
        }
        nodes.push(scan_of(&statement.name, &source)?);
    }
    let node = PlanNode {
        op: StreamOp::TableChanges,
        inputs: (0..nodes.len()).collect(),
        schema: Arc::new(Schema::new(fields)),
        append_only: statement.append_only,
        key: (!primary_key.is_empty()).then(|| primary_key.to_vec()),
        event_time: None,
        fingerprint: format!("table {}: {}", statement.name, types.join(", ")),
    };
    nodes.push(node);
    Ok(StreamPlan {
        nodes,
        notices: Vec::new(),
        state_ttl_us: None,
        closing: Vec::new(),
        is_endless: false,
    })
}
