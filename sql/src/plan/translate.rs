//! DataFusion's errors in PostgreSQL's words, with SQLSTATE and position.

use arrow::error::ArrowError;
use datafusion::common::{Column, DataFusionError, Diagnostic, SchemaError, Span as PlanSpan};
use datafusion::sql::sqlparser::ast::Visit;
use datafusion::sql::sqlparser::tokenizer::Span;

use crate::plan::clauses;
use crate::plan::functions::{Functions, arrays};
use crate::plan::place::planned_position_of;
use crate::plan::planner_limits::limit_error;
use crate::plan::suspect::Suspect;
use crate::plan::values::{arrow_error, kernel_error};
use crate::plan::words::{in_words, quoted_after, sentence_end, sentence_fragment, sql_types_in};
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

/// As [`translate`]; where DataFusion knows no place, that of the one call or operator of `ast` that the error names.
pub(crate) fn translate_in(error: DataFusionError, ast: &impl Visit) -> SqlError {
    let suspect = Suspect::of(&error);
    let translated = translate(error);
    match suspect.and_then(|suspect| suspect.position(ast)) {
        Some(position) => translated.at(position),
        None => translated,
    }
}

/// Our error for an error of DataFusion, be it of the planner or of a query that runs.
#[must_use]
pub fn translate(error: DataFusionError) -> SqlError {
    let (core, span) = innermost(error);
    let position = span.and_then(planned_position_of);
    let limit = match &core {
        DataFusionError::Plan(message)
        | DataFusionError::NotImplemented(message)
        | DataFusionError::Execution(message)
        | DataFusionError::Internal(message) => limit_error(message),
        _ => None,
    };
    let translated = limit.unwrap_or_else(|| in_our_words(core));
    match position {
        Some(position) => translated.at(position),
        None => translated,
    }
}

fn in_our_words(core: DataFusionError) -> SqlError {
    match core {
        DataFusionError::External(error) => match error.downcast::<SqlError>() {
            Ok(error) => *error,
            Err(error) => {
                let text = error.to_string();
                pattern_error(&text)
                    .unwrap_or_else(|| SqlError::new(SqlState::InternalError, in_words(&text)))
            }
        },
        DataFusionError::SchemaError(error, _) => schema_error(&error),
        DataFusionError::Plan(message) => plan_error(&message),
        DataFusionError::NotImplemented(message) => not_implemented(&message),
        DataFusionError::SQL(error, _) => {
            SqlError::new(SqlState::SyntaxError, sentence_fragment(&error.to_string()))
        }
        DataFusionError::ArrowError(error, _) => arrow_error(&error),
        DataFusionError::Execution(message) => execution_error(&message),
        DataFusionError::ResourcesExhausted(message) => out_of_memory(&message),
        DataFusionError::IoError(error) => {
            SqlError::new(SqlState::IoError, "a temporary file of the query failed")
                .with_detail(format!("The operating system says: {error}."))
        }
        DataFusionError::Internal(message) => SqlError::new(
            SqlState::InternalError,
            format!("the planner failed: {}", sentence_fragment(&message)),
        ),
        other => SqlError::new(SqlState::InternalError, in_words(&other.strip_backtrace())),
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
                Err(shared) => return (copied(&shared), span),
            },
            DataFusionError::External(inner) => match inner.downcast::<DataFusionError>() {
                Ok(inner) => *inner,
                Err(inner) => return (DataFusionError::External(inner), span),
            },
            DataFusionError::ArrowError(inner, context) => match *inner {
                ArrowError::ExternalError(inner) => DataFusionError::External(inner),
                inner => return (DataFusionError::ArrowError(Box::new(inner), context), span),
            },
            core => return (core, span),
        };
    }
    (error, span)
}

/// The root of an error that several parts of a plan have at once and that cannot be taken out.
fn copied(shared: &DataFusionError) -> DataFusionError {
    match shared.find_root() {
        DataFusionError::External(inner) => match inner.downcast_ref::<SqlError>() {
            Some(error) => external(error.clone()),
            None => DataFusionError::Execution(inner.to_string()),
        },
        DataFusionError::ArrowError(inner, _) => {
            let copy = match inner.as_ref() {
                ArrowError::DivideByZero => ArrowError::DivideByZero,
                ArrowError::ArithmeticOverflow(text) => ArrowError::ArithmeticOverflow(text.clone()),
                ArrowError::CastError(text) | ArrowError::ParseError(text) => {
                    ArrowError::CastError(text.clone())
                }
                other => ArrowError::ComputeError(other.to_string()),
            };
            DataFusionError::ArrowError(Box::new(copy), None)
        }
        DataFusionError::ResourcesExhausted(text) => DataFusionError::ResourcesExhausted(text.clone()),
        DataFusionError::Plan(text) => DataFusionError::Plan(text.clone()),
        DataFusionError::NotImplemented(text) => DataFusionError::NotImplemented(text.clone()),
        other => DataFusionError::Execution(other.strip_backtrace()),
    }
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
    if message
        .to_lowercase()
        .contains("correlated scalar subquery must be aggregated")
    {
        return SqlError::unsupported(
            "a subquery that reads outer columns, stands for a value and is no aggregate",
        )
        .with_hint("Aggregate its column, for instance with max().");
    }
    if message
        .to_lowercase()
        .contains("correlated scalar subquery can only be used in")
    {
        return SqlError::unsupported("a subquery that reads outer columns in this clause")
            .with_hint("Move it to the select list or to WHERE.");
    }
    if let Some(error) = no_overload(message).or_else(|| clauses::clause_error(message)) {
        return error;
    }
    match kernel_error(message) {
        Some(error) => error,
        None => SqlError::new(SqlState::InvalidStatement, in_words(message)),
    }
}

/// The error for a function or an operator that is not there for these types.
fn no_overload(message: &str) -> Option<SqlError> {
    if let Some(call) = quoted_after(message, "argument types '") {
        if let Some(error) = arrays::no_form(&sql_types_in(&call)) {
            return Some(error);
        }
        let error = SqlError::new(
            SqlState::UndefinedFunction,
            format!("function {} does not exist", sql_types_in(&call)),
        );
        return Some(error.with_hint(
            "No function matches the given name and argument types. You might need to add explicit type casts.",
        ));
    }
    for operators in ["for comparison operation ", "coerce arithmetic expression "] {
        if let Some((_, rest)) = message.split_once(operators) {
            let operation = rest.split(" to valid types").next().unwrap_or(rest);
            return Some(no_operator(&sql_types_in(operation)));
        }
    }
    let (types, rest) = message
        .strip_prefix("There isn't a common type to coerce ")?
        .split_once(" in ")?;
    let operator = rest.split(' ').next().unwrap_or("LIKE");
    Some(no_operator(&sql_types_in(
        &types.replace(" and ", &format!(" {operator} ")),
    )))
}

fn no_operator(operation: &str) -> SqlError {
    SqlError::new(
        SqlState::UndefinedFunction,
        format!("operator does not exist: {}", sentence_end(operation)),
    )
    .with_hint("No operator matches the given argument types. You might need to add explicit type casts.")
}

/// The error of a function on the values that it was given.
fn execution_error(message: &str) -> SqlError {
    let message = message.strip_prefix("Execution error: ").unwrap_or(message);
    pattern_error(message)
        .or_else(|| kernel_error(message))
        .or_else(|| clauses::clause_error(message))
        .unwrap_or_else(|| SqlError::new(SqlState::DataException, in_words(message)))
}

/// The error of a regular expression that is none.
fn pattern_error(message: &str) -> Option<SqlError> {
    if !message.contains("regex parse error") {
        return None;
    }
    let mut lines = message.lines().rev();
    let reason = lines.find_map(|line| line.trim().strip_prefix("error: "));
    Some(SqlError::new(
        SqlState::InvalidRegularExpression,
        format!(
            "invalid regular expression: {}",
            reason.unwrap_or("it cannot be read")
        ),
    ))
}

fn out_of_memory(message: &str) -> SqlError {
    let first = message.lines().next().unwrap_or_default();
    SqlError::new(SqlState::OutOfMemory, "out of memory")
        .with_detail(format!("{}.", sentence_end(first)))
        .with_hint("Reduce what the query sorts, joins or groups at once, or run fewer queries together.")
}

fn no_such_function(name: &str) -> SqlError {
    let error = SqlError::new(
        SqlState::UndefinedFunction,
        format!("function {name} does not exist"),
    );
    match name {
        "tumble" | "hop" | "cumulate" | "session" => error
            .with_detail("Window functions stand in FROM.")
            .with_hint(format!(
                "Write FROM {}(relation, time column, …) and GROUP BY window_start.",
                name.to_uppercase()
            )),
        name if Functions::all().window.contains_key(name) => SqlError::new(
            SqlState::WrongObjectType,
            format!("window function {name} requires an OVER clause"),
        ),
        name if is_of_json_paths(name) => {
            let error = SqlError::unsupported(format!("{name}()"));
            error.with_hint(
                "Use ->, ->>, #>, @> and casts, or jsonb_array_elements() and jsonb_each() in FROM.",
            )
        }
        _ => match closest(name, Functions::all().names()) {
            Some(other) => error.with_hint(format!("Did you mean \"{other}\"?")),
            None => error,
        },
    }
}

/// Functions of PostgreSQL on JSONB that are not there.
fn is_of_json_paths(name: &str) -> bool {
    let rest = name.strip_prefix("jsonb_").or_else(|| name.strip_prefix("json_"));
    rest.is_some_and(|rest| {
        rest.starts_with("path_") || rest.starts_with("populate_") || rest.starts_with("to_record")
    })
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
    if let Some((_, expression)) = message.split_once("does not support logical expression ") {
        let what = match expression.split(['(', ' ', '{']).next() {
            Some("ScalarSubquery" | "InSubquery" | "Exists" | "SetComparison" | "OuterReferenceColumn") => {
                "a subquery of this form in an expression"
            }
            _ => "an expression or clause of this query",
        };
        return SqlError::unsupported(what);
    }
    if shown.contains("undecorrelated") {
        return SqlError::unsupported("a subquery that reads outer columns in this way")
            .with_hint("Write it as a join.");
    }
    if shown.contains("ast node") || shown.contains('{') || shown.contains(": [") {
        return SqlError::unsupported("an expression or clause of this query");
    }
    if shown.contains("support") || shown.contains("implemented") {
        return SqlError::new(SqlState::FeatureNotSupported, sql_types_in(&shown));
    }
    SqlError::unsupported(shown)
}
