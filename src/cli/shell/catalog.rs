//! What is in the database, for `\d` and for completion.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::array::{ArrayRef, BooleanArray, StringArray};
use arrow::compute::filter_record_batch;
use arrow::datatypes::{DataType, Field, Schema};
use arrow::record_batch::RecordBatch;

use super::words::SYSTEM_TABLES;
use crate::cli::client::Client;
use crate::cli::failure::{Failure, told};
use crate::cli::figures::Figures;
use crate::cli::link::Link;
use crate::sql::plan::sql_type_name;
use crate::sql::show;
use crate::text::ColumnText;
use crate::{Error, Rows};

/// Kinds of objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// `\dso`
    Source,
    /// `\dt`
    Table,
    /// `\dv`
    View,
    /// `\dm`
    MaterializedView,
    /// `\dsi`
    Sink,
}

const KINDS: [Kind; 5] = [
    Kind::Source,
    Kind::Table,
    Kind::View,
    Kind::MaterializedView,
    Kind::Sink,
];

impl Kind {
    fn noun(self) -> &'static str {
        match self {
            Self::Source => "source",
            Self::Table => "table",
            Self::View => "view",
            Self::MaterializedView => "materialized view",
            Self::Sink => "sink",
        }
    }
}

/// One object.
struct Relation {
    name: String,
    kind: Kind,
    /// Of a source or sink.
    connector: Option<String>,
}

async fn relations(client: &Client) -> Result<Vec<Relation>, Error> {
    let mut relations = Vec::new();
    for kind in KINDS {
        let sql = format!("SHOW {}S", kind.noun().to_uppercase());
        let figures = Figures::new(&client.link.ask(&sql).await?)?;
        for row in figures.rows() {
            let connector = matches!(kind, Kind::Source | Kind::Sink)
                .then(|| row.text("connector"))
                .flatten();
            let name = row.text("name").unwrap_or_default();
            relations.push(Relation {
                name,
                kind,
                connector,
            });
        }
    }
    Ok(relations)
}

/// The names of all objects; none while they cannot be read.
pub(super) async fn names(client: &Client) -> Vec<String> {
    let relations = relations(client).await.unwrap_or_default();
    relations
        .into_iter()
        .map(|relation| show::name(&relation.name))
        .collect()
}

/// Lists the objects of one kind, or of all, whose names match a pattern with `*` and `?`.
///
/// # Errors
/// An output that takes no more.
pub(super) async fn list(
    client: &mut Client,
    kind: Option<Kind>,
    pattern: Option<&str>,
) -> Result<(), Failure> {
    let states = Figures::new(&client.link.ask("SELECT name, state FROM hw.queries").await?)?;
    let states: HashMap<String, String> = states
        .rows()
        .filter_map(|row| Some((row.text("name")?, row.text("state")?)))
        .collect();
    let found: Vec<_> = relations(client)
        .await?
        .into_iter()
        .filter(|relation| kind.is_none_or(|kind| kind == relation.kind))
        .filter(|relation| pattern.is_none_or(|pattern| matches(pattern, &relation.name)))
        .collect();
    if found.is_empty() {
        let what = kind.map_or("relation", Kind::noun);
        return Ok(client.output.line(&match pattern {
            Some(pattern) => format!("Did not find any {what} named \"{pattern}\"."),
            None => format!("There is no {what} yet."),
        })?);
    }
    let cells = found.into_iter().map(|relation| {
        let state = states.get(&relation.name).cloned();
        vec![
            Some(relation.name),
            Some(relation.kind.noun().to_owned()),
            relation.connector,
            state,
        ]
    });
    let rows = text_rows(&["Name", "Type", "Connector", "State"], cells.collect())?;
    let title = kind.map_or_else(
        || "List of relations".to_owned(),
        |kind| format!("List of {}s", kind.noun()),
    );
    client.output.rows(&rows, Some(&title), &client.interrupt)?;
    Ok(())
}

/// Shows the rows of a statement whose first column has names, of which a pattern may leave some.
///
/// # Errors
/// What the statement reports; an output that takes no more.
pub(super) async fn list_by(
    client: &mut Client,
    sql: &str,
    title: &str,
    pattern: Option<&str>,
) -> Result<(), Failure> {
    let rows = client.link.ask(sql).await?;
    let mut batches = Vec::with_capacity(rows.batches.len());
    for batch in rows.batches {
        let names = ColumnText::new(batch.column(0));
        let kept: BooleanArray = (0..batch.num_rows())
            .map(|row| {
                let mut name = String::new();
                names.write(row, &mut name);
                Some(pattern.is_none_or(|pattern| matches(pattern, &name)))
            })
            .collect();
        let kept = filter_record_batch(&batch, &kept);
        batches.push(kept.map_err(|error| Error::new("XX000", error.to_string()))?);
    }
    let rows = Rows {
        schema: rows.schema,
        batches,
    };
    client.output.rows(&rows, Some(title), &client.interrupt)?;
    Ok(())
}

/// Shows the columns of one object, and its definition.
///
/// # Errors
/// A name that is none; an output that takes no more.
pub(super) async fn describe(client: &mut Client, name: &str) -> Result<(), Failure> {
    if SYSTEM_TABLES.iter().any(|(table, _)| *table == name) {
        return describe_system_table(client, name).await;
    }
    let unquoted = unquote(name);
    let Some(relation) = relations(client)
        .await?
        .into_iter()
        .find(|relation| relation.name == unquoted)
    else {
        if name.contains(['*', '?']) {
            return list(client, None, Some(name)).await;
        }
        return Err(told(&format!("Did not find any relation named \"{unquoted}\".")));
    };
    let name = show::name(&relation.name);
    let described = Figures::new(&client.link.ask(&format!("DESCRIBE {name}")).await?)?;
    let cells = described.rows().map(|row| {
        ["column", "type", "nullable", "extra"]
            .iter()
            .map(|column| row.text(column))
            .collect()
    });
    let rows = text_rows(&["Column", "Type", "Nullable", "Extra"], cells.collect())?;
    let noun = relation.kind.noun();
    let title = format!("{}{} \"{}\"", noun[..1].to_uppercase(), &noun[1..], relation.name);
    client.output.rows(&rows, Some(&title), &client.interrupt)?;
    let created = Figures::new(&client.link.ask(&format!("SHOW CREATE {name}")).await?)?;
    let definition = created
        .rows()
        .find_map(|row| row.text("create_statement"))
        .unwrap_or_default();
    let indented: Vec<String> = definition.lines().map(|line| format!("  {line}")).collect();
    client
        .output
        .line(&format!("Definition:\n{};\n", indented.join("\n")))?;
    Ok(())
}

async fn describe_system_table(client: &mut Client, name: &str) -> Result<(), Failure> {
    let empty = client.link.ask(&format!("SELECT * FROM {name} LIMIT 0")).await?;
    let fields = empty.schema.fields().iter();
    let cells = fields.map(|field| vec![Some(field.name().clone()), Some(sql_type_name(field.data_type()))]);
    let rows = text_rows(&["Column", "Type"], cells.collect())?;
    client.output.rows(
        &rows,
        Some(&format!("System table \"{name}\"")),
        &client.interrupt,
    )?;
    Ok(())
}

/// Lists the system tables.
///
/// # Errors
/// An output that takes no more.
pub(super) fn list_system_tables(client: &mut Client) -> Result<(), Failure> {
    let cells = SYSTEM_TABLES
        .iter()
        .map(|(name, what)| vec![Some((*name).to_owned()), Some((*what).to_owned())]);
    let rows = text_rows(&["Name", "What it shows"], cells.collect())?;
    client
        .output
        .rows(&rows, Some("List of system tables"), &client.interrupt)?;
    Ok(())
}

/// Lists the one database that there is.
///
/// # Errors
/// An output that takes no more.
pub(super) fn list_databases(client: &mut Client) -> Result<(), Failure> {
    let place = match (&client.link, client.link.dir()) {
        (_, Some(dir)) => dir.display().to_string(),
        (Link::Own(_), None) => "in memory".to_owned(),
        (Link::Remote(_), None) => client.link.place(),
    };
    let access = if client.link.is_read_only() {
        "read-only"
    } else {
        "read and write"
    };
    let rows = text_rows(
        &["Directory", "Access"],
        vec![vec![Some(place), Some(access.to_owned())]],
    )?;
    client
        .output
        .rows(&rows, Some("List of databases"), &client.interrupt)?;
    Ok(())
}

/// A name as SQL reads it: lowercase unless quoted.
fn unquote(name: &str) -> String {
    match name.strip_prefix('"').and_then(|name| name.strip_suffix('"')) {
        Some(quoted) => quoted.replace("\"\"", "\""),
        None => name.to_lowercase(),
    }
}

/// Whether `name` matches a pattern in which `*` is any text and `?` one character.
fn matches(pattern: &str, name: &str) -> bool {
    let (pattern, name): (Vec<char>, Vec<char>) = (pattern.chars().collect(), name.chars().collect());
    let (mut p, mut n) = (0, 0);
    let mut star = None;
    while n < name.len() {
        match pattern.get(p) {
            Some('*') => {
                star = Some((p, n));
                p += 1;
            }
            Some(char) if *char == '?' || *char == name[n] => (p, n) = (p + 1, n + 1),
            _ => match star {
                Some((at, taken)) => {
                    star = Some((at, taken + 1));
                    (p, n) = (at + 1, taken + 1);
                }
                None => return false,
            },
        }
    }
    pattern[p..].iter().all(|char| *char == '*')
}

/// Rows of text columns.
fn text_rows(columns: &[&str], rows: Vec<Vec<Option<String>>>) -> Result<Rows, Error> {
    let fields: Vec<Field> = columns
        .iter()
        .map(|name| Field::new(*name, DataType::Utf8, true))
        .collect();
    let arrays = (0..columns.len()).map(|column| {
        let values = rows.iter().map(|row| row.get(column).cloned().flatten());
        Arc::new(values.collect::<StringArray>()) as ArrayRef
    });
    let schema = Arc::new(Schema::new(fields));
    let batch = RecordBatch::try_new(Arc::clone(&schema), arrays.collect());
    let batch = batch.map_err(|error| Error::new("XX000", error.to_string()))?;
    Ok(Rows {
        schema,
        batches: vec![batch],
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_as_in_psql() {
        for (pattern, name, expected) in [
            ("bid*", "bids", true),
            ("*s", "bids", true),
            ("b?ds", "bids", true),
            ("bid", "bids", false),
            ("*a*b", "xaxb", true),
            ("?", "", false),
        ] {
            assert_eq!(matches(pattern, name), expected, "{pattern} {name}");
        }
    }

    #[test]
    fn names_are_lowercase_unless_quoted() {
        assert_eq!(unquote("Bids"), "bids");
        assert_eq!(unquote("\"Bi\"\"ds\""), "Bi\"ds");
    }
}
