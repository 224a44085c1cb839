//! DataFusion's errors in PostgreSQL's words, with SQLSTATE and position.

use arrow::error::ArrowError;
use datafusion::common::{Column, DataFusionError, Diagnostic, SchemaError, Span as PlanSpan};
use datafusion::sql::sqlparser::tokenizer::Span;

use crate::plan::functions::Functions;
use crate::plan::place::planned_position_of;
use crate::suggest::closest;
use crate::{SqlError, SqlState};

/// Layers of context around an error that are looked through.
const LAYERS_MAX: usize = 64;

/// Our error on its way through DataFusion.
pub(crate) fn external(error: SqlError) -> DataFusionError {
    DataFusionError::External(Box::new(error))
}

/// The error, with its place unless a closer one is known already.
pub(crate) fn placed(error: DataFusionError, span: Span) -> DataFusionError {
    match PlanSpan::try_from_sqlparser_span(span) {
        Some(span) => error.with_diagnostic(Diagnostic::new_error("", Some(span))),
        None => error,
    }
}

/// Our error for an error of DataFusion's planner.
pub(crate) fn translate(error: DataFusionError) -> SqlError {
    let (core, span) = innermost(error);
    let position = span.and_then(planned_position_of);
    let translated = match core {
        DataFusionError::External(error) => match error.downcast::<SqlError>() {
            Ok(error) => *error,
            Err(error) => SqlError::new(SqlState::InternalError, sentence_fragment(&error.to_string())),
        },
        DataFusionError::SchemaError(error, _) => schema_error(&error),
        DataFusionError::Plan(message) => plan_error(&message),
        DataFusionError::NotImplemented(message) => not_implemented(&message),
        DataFusionError::SQL(error, _) => {
            SqlError::new(SqlState::SyntaxError, sentence_fragment(&error.to_string()))
        }
        DataFusionError::ArrowError(error, _) => arrow_error(&error),
        DataFusionError::Execution(message) => plan_error(&message),
        DataFusionError::Internal(message) => SqlError::new(
            SqlState::InternalError,
            format!("the planner failed: {}", sentence_fragment(&message)),
        ),
        other => SqlError::new(
            SqlState::InternalError,
            sentence_fragment(&other.strip_backtrace()),
        ),
    };
    match position {
        Some(position) => translated.at(position),
        None => translated,
    }
}

/// The error without its layers, and the span of the innermost layer that has one.
fn innermost(error: DataFusionError) -> (DataFusionError, Option<PlanSpan>) {
    let mut error = error;
    let mut span = None;
    for _ in 0..LAYERS_MAX {
        error = match error {
            DataFusionError::Context(_, inner) => *inner,
            DataFusionError::Diagnostic(diagnostic, inner) => {
                span = diagnostic.span.or(span);
                *inner
            }
            DataFusionError::Collection(errors) => match errors.into_iter().next() {
                Some(first) => first,
                None => DataFusionError::Internal("no error in a list of errors".into()),
            },
            DataFusionError::Shared(shared) => match std::sync::Arc::try_unwrap(shared) {
                Ok(inner) => inner,
                Err(shared) => return (DataFusionError::Plan(shared.strip_backtrace()), span),
            },
            core => return (core, span),
        };
    }
    (error, span)
}

fn schema_error(error: &SchemaError) -> SqlError {
    match error {
        SchemaError::FieldNotFound { field, valid_fields } => {
            let error = no_such_column(field, valid_fields);
            match field.spans().first().and_then(planned_position_of) {
                Some(position) => error.at(position),
                None => error,
            }
        }
        SchemaError::AmbiguousReference { field } => SqlError::new(
            SqlState::AmbiguousColumn,
            format!("column reference \"{}\" is ambiguous", field.name),
        )
        .with_hint("Write the relation in front of the column."),
        SchemaError::DuplicateQualifiedField { name, .. }
        | SchemaError::DuplicateUnqualifiedField { name } => SqlError::new(
            SqlState::DuplicateColumn,
            format!("column \"{name}\" specified more than once"),
        ),
    }
}

fn no_such_column(field: &Column, valid: &[Column]) -> SqlError {
    let error = match &field.relation {
        Some(relation)
            if !valid
                .iter()
                .any(|c| c.relation.as_ref().is_some_and(|r| r.table() == relation.table())) =>
        {
            return SqlError::new(
                SqlState::UndefinedTable,
                format!("missing FROM-clause entry for table \"{}\"", relation.table()),
            );
        }
        Some(relation) => SqlError::new(
            SqlState::UndefinedColumn,
            format!("column {}.{} does not exist", relation.table(), field.name),
        ),
        None => SqlError::new(
            SqlState::UndefinedColumn,
            format!("column \"{}\" does not exist", field.name),
        ),
    };
    match closest(&field.name, valid.iter().map(|c| c.name.as_str())) {
        Some(name) => error.with_hint(format!("Did you mean \"{name}\"?")),
        None => error,
    }
}

fn plan_error(message: &str) -> SqlError {
    let message = message.strip_prefix("Error during planning: ").unwrap_or(message);
    if let Some(name) = quoted_after(message, "Invalid function '") {
        return no_such_function(&name);
    }
    if message.contains("must appear in the GROUP BY clause") {
        return grouping_error(message);
    }
    if message.starts_with("Projections require unique expression names") {
        return SqlError::new(
            SqlState::DuplicateColumn,
            "two columns of the query are the same expression",
        )
        .with_hint("Give one of them another name with AS.");
    }
    if message.contains("queries have different number of columns") {
        let operator = message.split(' ').next().unwrap_or("UNION");
        return SqlError::new(
            SqlState::SyntaxError,
            format!("each {operator} query must have the same number of columns"),
        );
    }
    if let Some(call) = quoted_after(message, "argument types '") {
        return SqlError::new(
            SqlState::UndefinedFunction,
            format!("function {} does not exist", sql_types_in(&call)),
        )
        .with_hint("No function matches the given name and argument types. You might need to add explicit type casts.");
    }
    for operators in ["for comparison operation ", "coerce arithmetic expression "] {
        if let Some((_, rest)) = message.split_once(operators) {
            let operation = rest.split(" to valid types").next().unwrap_or(rest);
            return SqlError::new(
                SqlState::UndefinedFunction,
                format!(
                    "operator does not exist: {}",
                    sentence_end(&sql_types_in(operation))
                ),
            )
            .with_hint(
                "No operator matches the given argument types. You might need to add explicit type casts.",
            );
        }
    }
    let message = sentence_fragment(message);
    if message.contains("Divide by zero") || message.contains("divide by zero") {
        return SqlError::new(SqlState::DivisionByZero, "division by zero");
    }
    SqlError::new(SqlState::InvalidStatement, sql_types_in(&message))
}

fn no_such_function(name: &str) -> SqlError {
    let error = SqlError::new(
        SqlState::UndefinedFunction,
        format!("function {name} does not exist"),
    );
    match name {
        "tumble" | "hop" => error
            .with_detail("Window functions stand in FROM.")
            .with_hint(format!(
                "Write FROM {}(relation, time column, …) and GROUP BY window_start.",
                name.to_uppercase()
            )),
        _ => match closest(name, Functions::all().names()) {
            Some(other) => error.with_hint(format!("Did you mean \"{other}\"?")),
            None => error,
        },
    }
}

fn grouping_error(message: &str) -> SqlError {
    let column = match message.split_once("column \"") {
        Some((_, rest)) => rest.split("\" must appear").next().unwrap_or(rest).to_owned(),
        None => match message.strip_prefix("HAVING clause references: ") {
            Some(rest) => rest.split(" must appear").next().unwrap_or(rest).to_owned(),
            None => "of the query".to_owned(),
        },
    };
    SqlError::new(
        SqlState::GroupingError,
        format!("column \"{column}\" must appear in the GROUP BY clause or be used in an aggregate function"),
    )
}

fn not_implemented(message: &str) -> SqlError {
    let shown = sentence_fragment(message);
    if shown.contains("ast node") || shown.contains('{') || shown.contains(": [") {
        return SqlError::unsupported("an expression or clause of this query");
    }
    if shown.contains("support") || shown.contains("implemented") {
        return SqlError::new(SqlState::FeatureNotSupported, sql_types_in(&shown));
    }
    SqlError::unsupported(shown)
}

fn arrow_error(error: &ArrowError) -> SqlError {
    match error {
        ArrowError::DivideByZero => SqlError::new(SqlState::DivisionByZero, "division by zero"),
        ArrowError::ArithmeticOverflow(_) => {
            SqlError::new(SqlState::NumericValueOutOfRange, "a number is out of range")
                .with_detail("The result of a constant expression does not fit its type.")
        }
        ArrowError::CastError(message) | ArrowError::ParseError(message) => SqlError::new(
            SqlState::InvalidTextRepresentation,
            sql_types_in(&sentence_fragment(message)),
        ),
        other => SqlError::new(
            SqlState::InvalidParameterValue,
            sentence_fragment(&other.to_string()),
        ),
    }
}

/// What stands between `start` and the next single quote.
fn quoted_after(message: &str, start: &str) -> Option<String> {
    let (_, rest) = message.split_once(start)?;
    rest.split_once('\'').map(|(quoted, _)| quoted.to_owned())
}

/// The first line as a message: lowercase, without a prefix and a full stop.
fn sentence_fragment(message: &str) -> String {
    let line = message.lines().next().unwrap_or_default();
    let line = line
        .trim_start_matches("Error during planning: ")
        .trim_start_matches("This feature is not implemented: ")
        .trim_start_matches("Execution error: ");
    let mut chars = line.chars();
    let (first, second) = (chars.next(), chars.clone().next());
    let acronym = second.is_some_and(|c| c.is_uppercase() || c == '(');
    let line = match first {
        Some(first) if !acronym => first.to_lowercase().chain(chars).collect(),
        _ => line.to_owned(),
    };
    sentence_end(&line)
}

fn sentence_end(message: &str) -> String {
    message.trim_end().trim_end_matches('.').to_owned()
}

/// The text with Arrow's type names replaced by SQL's.
fn sql_types_in(message: &str) -> String {
    const NAMES: [(&str, &str); 17] = [
        ("Timestamp(µs, \"UTC\")", "timestamp with time zone"),
        ("Timestamp(µs)", "timestamp without time zone"),
        ("Timestamp(ns)", "timestamp without time zone"),
        ("Interval(MonthDayNano)", "interval"),
        ("Time64(µs)", "time without time zone"),
        ("Utf8View", "character varying"),
        ("LargeUtf8", "character varying"),
        ("Utf8", "character varying"),
        ("Int64", "bigint"),
        ("Int32", "integer"),
        ("Int16", "smallint"),
        ("Float64", "double precision"),
        ("Float32", "real"),
        ("Boolean", "boolean"),
        ("Date32", "date"),
        ("Binary", "bytea"),
        ("Null", "unknown"),
    ];
    let mut text = message.to_owned();
    for (arrow, sql) in NAMES {
        text = text.replace(arrow, sql);
    }
    while let Some(start) = text.find("Decimal128(") {
        let end = text[start..].find(')').map_or(text.len(), |end| start + end + 1);
        text.replace_range(start..end, "numeric");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrow_type_names_become_sql_names() {
        assert_eq!(
            sql_types_in("Int64 + Decimal128(38, 0) = Utf8"),
            "bigint + numeric = character varying"
        );
    }

    #[test]
    fn messages_lose_prefix_capital_and_full_stop_but_keep_acronyms() {
        assert_eq!(
            sentence_fragment("Error during planning: Cannot do it.\nmore"),
            "cannot do it"
        );
        assert_eq!(sentence_fragment("UNNEST is odd"), "UNNEST is odd");
    }
}
