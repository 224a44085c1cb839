//! COPY, and cursors: DECLARE, FETCH, CLOSE.

use datafusion::sql::sqlparser::ast;
use datafusion::sql::sqlparser::tokenizer::Token;

use super::commands::subscription;
use super::copy_options::options;
use super::cursor::{Cursor, Name};
use super::with::with_clause;
use crate::error::{SqlError, SqlState};
use crate::statement::{
    Copy, CopyDirection, CopyRelation, CopySource, CursorQuery, Declare, Fetch, Statement,
};

/// Takes `COPY relation [(column, …)] | (query | SUBSCRIBE …) TO STDOUT | FROM STDIN [options]`.
///
/// # Errors
/// A malformed statement, a file or a program, options that do not go together.
pub(crate) fn copy(cursor: &mut Cursor<'_>) -> Result<Statement, SqlError> {
    cursor.expect(&["copy"])?;
    let source = copy_source(cursor)?;
    let position = cursor.position();
    let direction = if cursor.eat(&["from"]) {
        if !matches!(source, CopySource::Relation(_)) {
            return Err(
                SqlError::new(SqlState::SyntaxError, "COPY FROM takes a table, not a query").at(position),
            );
        }
        CopyDirection::In
    } else if cursor.eat(&["to"]) {
        CopyDirection::Out
    } else {
        return Err(cursor.unexpected("FROM STDIN or TO STDOUT"));
    };
    let stream: &[&str] = match direction {
        CopyDirection::In => &["stdin"],
        CopyDirection::Out => &["stdout"],
    };
    if !cursor.eat(stream) {
        let position = cursor.position();
        let name = stream[0].to_uppercase();
        return match cursor.peek() {
            Token::SingleQuotedString(_) => Err(SqlError::unsupported("COPY with a file of the server")
                .with_hint(format!("Use {name}; in psql, \\copy reads and writes files."))
                .at(position)),
            _ if cursor.sees(&["program"]) => Err(SqlError::unsupported("COPY with a program").at(position)),
            _ => Err(cursor.unexpected(&name)),
        };
    }
    let options = options(cursor, direction)?;
    if cursor.sees(&["where"]) {
        return Err(SqlError::unsupported("WHERE in COPY").at(cursor.position()));
    }
    cursor.expect_end()?;
    Ok(Statement::Copy(Copy {
        source,
        direction,
        options,
    }))
}

fn copy_source(cursor: &mut Cursor<'_>) -> Result<CopySource, SqlError> {
    if *cursor.peek() != Token::LParen {
        let name = cursor.object_name("the name of a relation")?;
        let columns = cursor.name_list("a column name")?;
        return Ok(CopySource::Relation(CopyRelation {
            name: name.text,
            position: name.position,
            columns: columns
                .into_iter()
                .map(|Name { text, position }| (text, position))
                .collect(),
        }));
    }
    cursor.take();
    let source = if cursor.sees(&["subscribe"]) {
        CopySource::Subscribe(subscription(cursor)?)
    } else {
        let end = cursor.closing();
        CopySource::Query(cursor.query_to(end)?)
    };
    cursor.expect_token(&Token::RParen)?;
    Ok(source)
}

/// Takes `DECLARE name [NO SCROLL] CURSOR [WITH | WITHOUT HOLD] FOR query | SUBSCRIBE …`.
///
/// # Errors
/// A malformed statement, a cursor that goes back.
pub(crate) fn declare(cursor: &mut Cursor<'_>) -> Result<Statement, SqlError> {
    cursor.expect(&["declare"])?;
    let name = cursor.name("a name for the cursor")?;
    loop {
        let position = cursor.position();
        if cursor.sees(&["scroll"]) || cursor.sees(&["binary"]) {
            let word = if cursor.sees(&["scroll"]) {
                "SCROLL"
            } else {
                "BINARY"
            };
            return Err(SqlError::unsupported(format!("a cursor with {word}")).at(position));
        }
        let known: [&[&str]; 3] = [&["no", "scroll"], &["insensitive"], &["asensitive"]];
        if !known.iter().any(|words| cursor.eat(words)) {
            break;
        }
    }
    cursor.expect(&["cursor"])?;
    let hold = cursor.eat(&["with", "hold"]);
    if !hold {
        cursor.eat(&["without", "hold"]);
    }
    cursor.expect(&["for"])?;
    let query = if cursor.sees(&["subscribe"]) {
        CursorQuery::Subscribe(subscription(cursor)?)
    } else {
        let end = cursor.tokens().len();
        CursorQuery::Query(cursor.query_to(end)?)
    };
    cursor.expect_end()?;
    Ok(Statement::Declare(Declare {
        name: name.text,
        hold,
        query,
    }))
}

/// Takes `FETCH [NEXT | FORWARD] [n | ALL] [FROM | IN] cursor [WITH (timeout = '1s')]`.
///
/// # Errors
/// A malformed statement, a fetch that goes back.
pub(crate) fn fetch(cursor: &mut Cursor<'_>) -> Result<Statement, SqlError> {
    cursor.expect(&["fetch"])?;
    for word in ["prior", "first", "last", "absolute", "relative", "backward"] {
        if cursor.sees(&[word]) {
            let error = SqlError::unsupported(format!("FETCH {}", word.to_uppercase()));
            return Err(error
                .with_detail("Cursors only go forward.")
                .at(cursor.position()));
        }
    }
    let moved = cursor.eat(&["next"]) || cursor.eat(&["forward"]);
    let rows = if let Token::Number(digits, _) = cursor.peek() {
        let rows = digits.parse();
        let rows = rows.map_err(|_| cursor.unexpected("a number of rows"))?;
        cursor.take();
        Some(rows)
    } else if cursor.eat(&["all"]) {
        None
    } else {
        Some(1)
    };
    if !cursor.eat(&["from"]) && !cursor.eat(&["in"]) && (moved || *cursor.peek() == Token::EOF) {
        return Err(cursor.unexpected("FROM and the name of a cursor"));
    }
    let name = cursor.name("the name of a cursor")?;
    let mut timeout_ms = None;
    for (option, value) in with_clause(cursor)?.unwrap_or_default() {
        if option != "timeout" {
            let error = SqlError::new(
                SqlState::InvalidParameterValue,
                format!("FETCH has no option \"{option}\""),
            );
            return Err(error.with_hint("There is timeout.").at(value.position));
        }
        let read = milliseconds(&value.text).ok_or_else(|| {
            SqlError::new(
                SqlState::InvalidParameterValue,
                "option \"timeout\" must be a time such as 500ms, 1s or 2min",
            )
            .at(value.position)
        });
        timeout_ms = Some(read?);
    }
    cursor.expect_end()?;
    Ok(Statement::Fetch(Fetch {
        cursor: name.text,
        rows,
        timeout_ms,
    }))
}

/// Reads `500ms`, `1s`, `2 min`, `1h`; a number alone counts milliseconds.
#[must_use]
pub fn milliseconds(text: &str) -> Option<u64> {
    let text = text.trim();
    let digits = text
        .find(|char: char| !char.is_ascii_digit())
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let per_unit = match unit.trim() {
        "" | "ms" => 1,
        "s" => 1_000,
        "min" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(per_unit)
}

/// Takes `CLOSE name | ALL`.
///
/// # Errors
/// A malformed statement.
pub(crate) fn close(cursor: &mut Cursor<'_>) -> Result<Statement, SqlError> {
    cursor.expect(&["close"])?;
    let name = match cursor.eat(&["all"]) {
        true => None,
        false => Some(cursor.name("the name of a cursor")?.text),
    };
    cursor.expect_end()?;
    Ok(Statement::Close(name))
}

/// The query that reads a relation with these columns.
#[must_use]
pub fn query_of(relation: &CopyRelation) -> Option<Box<ast::Query>> {
    let quoted = |name: &str| format!("\"{}\"", name.replace('"', "\"\""));
    let columns: Vec<String> = relation.columns.iter().map(|(name, _)| quoted(name)).collect();
    let columns = match columns.is_empty() {
        true => "*".to_owned(),
        false => columns.join(", "),
    };
    super::query_at(
        &format!("SELECT {columns} FROM {}", quoted(&relation.name)),
        relation.position,
    )
    .ok()
}
