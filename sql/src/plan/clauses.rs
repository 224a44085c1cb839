//! DataFusion's errors about the clauses of a query, in PostgreSQL's words.

use crate::plan::types::sql_type_name;
use crate::plan::words::{in_words, quoted_after};
use crate::{SqlError, SqlState};

/// The error that this message tells, where it is one about a clause.
pub(crate) fn clause_error(message: &str) -> Option<SqlError> {
    row_count(message)
        .or_else(|| select_list(message))
        .or_else(|| aggregates(message))
        .or_else(|| subqueries(message))
        .or_else(|| time_parts(message))
        .or_else(|| condition(message))
}

/// LIMIT and OFFSET.
fn row_count(message: &str) -> Option<SqlError> {
    for (clause, state) in [
        ("LIMIT", SqlState::InvalidRowCountInLimit),
        ("OFFSET", SqlState::InvalidRowCountInOffset),
    ] {
        if message.contains(&format!("{clause} must be >= 0")) {
            return Some(SqlError::new(state, format!("{clause} must not be negative")));
        }
        let expected = format!("Expected {clause} to be an integer or null, but got ");
        if let Some((_, given)) = message.split_once(&expected) {
            let message = format!(
                "argument of {clause} must be type bigint, not type {}",
                in_words(given)
            );
            return Some(SqlError::new(SqlState::DatatypeMismatch, message));
        }
    }
    None
}

/// Names and numbers that stand for columns of the select list.
fn select_list(message: &str) -> Option<SqlError> {
    if let Some((_, names)) = message.split_once(" require unique expression names") {
        let named = names
            .rsplit_once(" AS ")
            .and_then(|(_, name)| name.split('"').next())
            .filter(|name| names.matches(&format!(" AS {name}\"")).count() > 1);
        let error = match named {
            Some(name) => format!("column \"{name}\" specified more than once"),
            None => "two columns of the query are the same expression".to_owned(),
        };
        return Some(
            SqlError::new(SqlState::DuplicateColumn, error)
                .with_hint("Give one of them another name with AS."),
        );
    }
    if let Some(name) = message.strip_prefix("Invalid qualifier ") {
        let error = format!("missing FROM-clause entry for table \"{name}\"");
        return Some(SqlError::new(SqlState::UndefinedTable, error));
    }
    if message.contains("queries have different number of columns") {
        let operator = message.split(' ').next().unwrap_or("UNION");
        let error = format!("each {operator} query must have the same number of columns");
        return Some(SqlError::new(SqlState::SyntaxError, error));
    }
    if message.starts_with("For SELECT DISTINCT, ORDER BY expressions ") {
        let error = "for SELECT DISTINCT, ORDER BY expressions must appear in select list";
        return Some(SqlError::new(SqlState::InvalidColumnReference, error));
    }
    if message.starts_with("SELECT DISTINCT ON expressions must match initial ORDER BY") {
        let error = "SELECT DISTINCT ON expressions must match initial ORDER BY expressions";
        return Some(SqlError::new(SqlState::InvalidColumnReference, error));
    }
    let (clause, rest) = match message.strip_prefix("Order by column out of bounds, specified: ") {
        Some(rest) => ("ORDER BY", rest),
        None => (
            "GROUP BY",
            message.strip_prefix("Cannot find column with position ")?,
        ),
    };
    let position = rest.split([' ', ',']).next()?;
    Some(SqlError::new(
        SqlState::InvalidColumnReference,
        format!("{clause} position {position} is not in select list"),
    ))
}

fn aggregates(message: &str) -> Option<SqlError> {
    if message.starts_with("Aggregate functions are not allowed in the WHERE clause") {
        let error = SqlError::new(
            SqlState::GroupingError,
            "aggregate functions are not allowed in WHERE",
        );
        return Some(error.with_hint("Write the condition in HAVING."));
    }
    message
        .starts_with("Aggregate function calls cannot be nested")
        .then(|| {
            SqlError::new(
                SqlState::GroupingError,
                "aggregate function calls cannot be nested",
            )
        })
}

fn subqueries(message: &str) -> Option<SqlError> {
    if message.contains("The subquery should only return one column")
        || message.contains("should only return one column")
    {
        return Some(SqlError::new(
            SqlState::SyntaxError,
            "subquery must return only one column",
        ));
    }
    message
        .contains("Scalar subquery returned more than one row")
        .then(|| {
            SqlError::new(
                SqlState::CardinalityViolation,
                "more than one row returned by a subquery used as an expression",
            )
        })
}

/// The first argument of `extract` and `date_trunc`.
fn time_parts(message: &str) -> Option<SqlError> {
    let known =
        "Units are microsecond, millisecond, second, minute, hour, day, week, month, quarter and year.";
    let unit = match quoted_after(message, "Unsupported date_trunc granularity: '") {
        Some(unit) => unit,
        None if message.ends_with("' not supported") => quoted_after(message, "Date part '")?,
        None => return None,
    };
    let error = SqlError::new(
        SqlState::InvalidParameterValue,
        format!("unit \"{unit}\" not recognized"),
    );
    Some(error.with_hint(known))
}

/// WHERE, HAVING and ON.
fn condition(message: &str) -> Option<SqlError> {
    if !message.contains("ilter") || !message.contains("non-boolean") {
        return None;
    }
    let (_, given) = message.rsplit_once(" returning ")?;
    let given = match given.parse() {
        Ok(data_type) => sql_type_name(&data_type),
        Err(_) => in_words(given),
    };
    Some(SqlError::new(
        SqlState::DatatypeMismatch,
        format!("a condition must be of type boolean, not of type {given}"),
    ))
}
