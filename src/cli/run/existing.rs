//! Whether a CREATE statement says what the object of that name was made by.

use crate::sql::parse::parse;
use crate::sql::show;
use crate::sql::statement::{
    CreateFunction, CreateIndex, CreateMaterializedView, CreateSink, CreateSource, CreateTable, CreateView,
    Filled, IndexColumn, Parsed, SourceColumnKind, Statement, TableConnector, WithOptions,
};
use crate::{Error, Session};

/// What SHOW CREATE shows instead of a secret.
const MASK: &str = "********";

/// An object that is there already.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Existing {
    /// It was made by the same statement.
    Same {
        /// What it is.
        noun: &'static str,
        /// Its name.
        name: String,
    },
    /// It was made by another statement, and IF NOT EXISTS says to keep it.
    Kept {
        /// What the statement makes.
        noun: &'static str,
        /// Its name.
        name: String,
    },
    /// It was made by another statement.
    Different {
        /// What the statement makes.
        noun: &'static str,
        /// Its name.
        name: String,
        /// That statement, secrets masked.
        stored: String,
    },
}

/// What there is under the name that `parsed` would make; `None` when the statement is to be run.
///
/// # Errors
/// When the database cannot be asked.
pub(super) async fn look_up(session: &Session, parsed: &Parsed) -> Result<Option<Existing>, Error> {
    let Some((noun, name, if_not_exists)) = made_by(&parsed.statement) else {
        return Ok(None);
    };
    let shown = session
        .execute(&format!("SHOW CREATE {}", show::name(name)))
        .await;
    let outcomes = match shown {
        Ok(outcomes) => outcomes,
        Err(error) if error.sqlstate() == "42P01" => return Ok(None),
        Err(error) => return Err(error),
    };
    let rows = outcomes.into_iter().find_map(|outcome| outcome.rows);
    let figures = rows.as_ref().map(crate::cli::figures::Figures::new).transpose()?;
    let stored = figures.and_then(|figures| figures.rows().find_map(|row| row.text("create_statement")));
    let stored = stored.ok_or_else(|| Error::new("XX000", "SHOW CREATE shows nothing"))?;
    let recorded = parse(&stored)?;
    let is_same = recorded
        .first()
        .is_some_and(|recorded| is_same(&recorded.statement, &parsed.statement));
    let name = name.to_owned();
    Ok(Some(match (is_same, if_not_exists) {
        (true, _) => Existing::Same { noun, name },
        (false, true) => Existing::Kept { noun, name },
        (false, false) => Existing::Different { noun, name, stored },
    }))
}

/// What a statement makes, its name, and IF NOT EXISTS; `None` for one that makes nothing, or replaces what is there.
fn made_by(statement: &Statement) -> Option<(&'static str, &str, bool)> {
    match statement {
        Statement::CreateSource(source) => Some(("source", &source.name, source.if_not_exists)),
        Statement::CreateTable(table) => Some(("table", &table.name, table.if_not_exists)),
        Statement::CreateView(view) if !view.or_replace => Some(("view", &view.name, view.if_not_exists)),
        Statement::CreateMaterializedView(view) => {
            Some(("materialized view", &view.name, view.if_not_exists))
        }
        Statement::CreateSink(sink) => Some(("sink", &sink.name, sink.if_not_exists)),
        Statement::CreateIndex(index) => Some(("index", &index.name, index.if_not_exists)),
        Statement::CreateFunction(function) if !function.or_replace => {
            Some(("function", &function.name, false))
        }
        _ => None,
    }
}

fn is_same(recorded: &Statement, given: &Statement) -> bool {
    match (recorded, given) {
        (Statement::CreateSource(recorded), Statement::CreateSource(given)) => {
            is_same_source(recorded, given)
        }
        (Statement::CreateTable(recorded), Statement::CreateTable(given)) => is_same_table(recorded, given),
        (Statement::CreateView(recorded), Statement::CreateView(given)) => is_same_view(recorded, given),
        (Statement::CreateMaterializedView(recorded), Statement::CreateMaterializedView(given)) => {
            is_same_materialized_view(recorded, given)
        }
        (Statement::CreateSink(recorded), Statement::CreateSink(given)) => is_same_sink(recorded, given),
        (Statement::CreateIndex(recorded), Statement::CreateIndex(given)) => is_same_index(recorded, given),
        (Statement::CreateFunction(recorded), Statement::CreateFunction(given)) => {
            is_same_function(recorded, given)
        }
        _ => false,
    }
}

/// The recorded statement has the columns that the probe found, if the given one declares none.
fn is_same_source(recorded: &CreateSource, given: &CreateSource) -> bool {
    let mut recorded = recorded.clone();
    let mut given = given.clone();
    if given.wants_columns() {
        recorded
            .columns
            .retain(|column| !matches!(column.kind, SourceColumnKind::Field));
    }
    for (options, other) in [
        (&mut given.with, &recorded.with),
        (&mut given.encode_options, &recorded.encode_options),
    ] {
        for (name, option) in options {
            if other.get(name).is_some_and(|other| other.text == MASK) {
                MASK.clone_into(&mut option.text);
            }
        }
    }
    show::definition_of_source(&recorded) == show::definition_of_source(&given)
}

fn is_same_table(recorded: &CreateTable, given: &CreateTable) -> bool {
    let columns = |table: &CreateTable| -> Vec<String> {
        let columns = table.columns.iter();
        columns
            .map(|column| {
                let filled = match &column.filled {
                    Filled::Null => String::new(),
                    Filled::Default(expression) => format!("DEFAULT {expression}"),
                    Filled::Generated(expression) => format!("AS {expression}"),
                    Filled::Included(what) => format!("INCLUDE {}", show::include(what)),
                };
                let (name, data_type, not_null) = (&column.name, &column.data_type, column.not_null);
                format!("{name:?} {data_type} {not_null} {filled}")
            })
            .collect()
    };
    let key = |table: &CreateTable| -> Vec<String> {
        let columns = table.primary_key.iter();
        columns.map(|(name, _)| name.clone()).collect()
    };
    let version = |table: &CreateTable| table.version_column.as_ref().map(|(name, _)| name.clone());
    let on_conflict = |table: &CreateTable| table.on_conflict.map(|(given, _)| given);
    columns(recorded) == columns(given)
        && key(recorded) == key(given)
        && recorded.append_only == given.append_only
        && on_conflict(recorded) == on_conflict(given)
        && version(recorded) == version(given)
        && is_same_connector(recorded.connector.as_ref(), given.connector.as_ref())
}

fn is_same_connector(recorded: Option<&TableConnector>, given: Option<&TableConnector>) -> bool {
    match (recorded, given) {
        (Some(recorded), Some(given)) => {
            recorded.format == given.format
                && recorded.encode == given.encode
                && is_same_options(&recorded.with, &given.with)
                && is_same_options(&recorded.encode_options, &given.encode_options)
        }
        (None, None) => true,
        _ => false,
    }
}

fn is_same_view(recorded: &CreateView, given: &CreateView) -> bool {
    recorded.columns == given.columns && recorded.query.to_string() == given.query.to_string()
}

fn is_same_materialized_view(recorded: &CreateMaterializedView, given: &CreateMaterializedView) -> bool {
    recorded.columns == given.columns
        && recorded.emit_on_window_close == given.emit_on_window_close
        && recorded.query.to_string() == given.query.to_string()
        && is_same_options(&recorded.with, &given.with)
}

fn is_same_index(recorded: &CreateIndex, given: &CreateIndex) -> bool {
    let columns = |index: &CreateIndex| -> Vec<_> {
        let columns = index.columns.iter().cloned();
        columns
            .map(|column| IndexColumn {
                position: 0,
                ..column
            })
            .collect()
    };
    recorded.relation == given.relation && columns(recorded) == columns(given)
}

fn is_same_function(recorded: &CreateFunction, given: &CreateFunction) -> bool {
    let shown = |function: &CreateFunction| {
        let arguments = function.arguments.iter();
        let arguments: Vec<String> = arguments
            .map(|argument| format!("{:?} {}", argument.name, argument.data_type))
            .collect();
        (
            arguments,
            function.returns.to_string(),
            function.body.to_string(),
            function.is_strict,
        )
    };
    shown(recorded) == shown(given)
}

fn is_same_sink(recorded: &CreateSink, given: &CreateSink) -> bool {
    let into = |sink: &CreateSink| {
        let into = sink.into.as_ref()?;
        let columns: Vec<String> = into.columns.iter().map(|(name, _)| name.clone()).collect();
        Some((into.table.clone(), columns))
    };
    recorded.emit_on_window_close == given.emit_on_window_close
        && into(recorded) == into(given)
        && recorded.query.to_string() == given.query.to_string()
        && recorded.format == given.format
        && recorded.encode == given.encode
        && is_same_options(&recorded.with, &given.with)
        && is_same_options(&recorded.encode_options, &given.encode_options)
}

fn is_same_options(recorded: &WithOptions, given: &WithOptions) -> bool {
    recorded.len() == given.len()
        && recorded.iter().all(|(name, option)| {
            given
                .get(name)
                .is_some_and(|other| option.text == MASK || option.text == other.text)
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn same(recorded: &str, given: &str) -> bool {
        let parsed = |text| parse(text).unwrap().remove(0).statement;
        is_same(&parsed(recorded), &parsed(given))
    }

    const SOURCE: &str = "CREATE SOURCE s (a BIGINT, WATERMARK FOR t AS t - INTERVAL '1' SECOND, t TIMESTAMP) \
        WITH (connector = 'kafka', topic = 't', properties.sasl.password = '********') FORMAT PLAIN ENCODE JSON";

    #[test]
    fn spelling_is_no_difference() {
        let given = SOURCE
            .replace("CREATE SOURCE s", "create source if not exists S")
            .replace("********", "secret");
        assert!(same(SOURCE, &given));
        assert!(same(
            "CREATE VIEW v AS SELECT a FROM s",
            "create view V as\n  select a from s"
        ));
    }

    #[test]
    fn another_column_option_or_query_is_a_difference() {
        assert!(!same(SOURCE, &SOURCE.replace("a BIGINT", "a INT")));
        assert!(!same(SOURCE, &SOURCE.replace("topic = 't'", "topic = 'u'")));
        assert!(!same(
            "CREATE VIEW v AS SELECT a FROM s",
            "CREATE VIEW v AS SELECT b FROM s"
        ));
        assert!(!same(
            "CREATE VIEW v AS SELECT a FROM s",
            "CREATE MATERIALIZED VIEW v AS SELECT a FROM s"
        ));
        let sink = "CREATE SINK k FROM v WITH (connector = 'kafka', topic = 't') FORMAT PLAIN ENCODE JSON";
        assert!(same(sink, sink));
        assert!(!same(sink, &sink.replace("PLAIN", "UPSERT")));
    }

    #[test]
    fn columns_that_were_found_are_no_difference() {
        let found = "CREATE SOURCE n (a BIGINT, b BIGINT) WITH (connector = 'nexmark')";
        assert!(same(found, "CREATE SOURCE n WITH (connector = 'nexmark')"));
        assert!(!same(
            found,
            "CREATE SOURCE n (a BIGINT) WITH (connector = 'nexmark')"
        ));
    }
}
