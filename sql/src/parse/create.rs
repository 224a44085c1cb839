//! `CREATE …`: which kind of object, and the statements for views and sinks.

use datafusion::sql::sqlparser::ast;
use datafusion::sql::sqlparser::tokenizer::Token;

use super::cursor::{Cursor, Name};
use super::function::create_function;
use super::index::create_index;
use super::script::is_word;
use super::source::create_source;
use super::table::create_table;
use super::user::user_password;
use super::with::{FormatClause, check_with, format_clause, with_clause};
use crate::error::{SqlError, SqlState};
use crate::statement::{CreateMaterializedView, CreateSink, CreateView, SinkInto, Statement, UserChange};
use crate::suggest::closest;

/// Kinds that other systems create and we refuse, with what to do instead.
const REFUSED: [(&[&str], &str); 18] = [
    (&["unique", "index"], "The primary key of a table is unique."),
    (
        &["secret"],
        "Take secrets from the environment: '${NAME}' in an option.",
    ),
    (
        &["connection"],
        "Give the options of the connection in each statement.",
    ),
    (&["aggregate"], ""),
    (&["procedure"], ""),
    (&["schema"], "All objects are in the schema \"public\"."),
    (&["database"], "A database is a directory: open another one."),
    (&["catalog"], ""),
    (&["type"], ""),
    (&["domain"], ""),
    (&["role"], "A role that logs in is a user: CREATE USER."),
    (&["sequence"], ""),
    (&["trigger"], ""),
    (&["extension"], ""),
    (&["policy"], ""),
    (&["publication"], ""),
    (&["subscription"], ""),
    (
        &["stream"],
        "Use CREATE SOURCE to read a stream, CREATE MATERIALIZED VIEW to compute one.",
    ),
];

/// Takes a `CREATE` statement.
///
/// # Errors
/// A malformed statement, or a kind that is not there.
pub(crate) fn create(cursor: &mut Cursor<'_>) -> Result<Statement, SqlError> {
    let position = cursor.position();
    cursor.expect(&["create"])?;
    let or_replace = cursor.eat(&["or", "replace"]);
    let no_replace = |what: &str| {
        if or_replace {
            Err(SqlError::unsupported(format!("OR REPLACE for {what}")).at(position))
        } else {
            Ok(())
        }
    };
    if cursor.eat(&["source"]) {
        no_replace("a source")?;
        return create_source(cursor).map(Statement::CreateSource);
    }
    if cursor.eat(&["table"]) {
        no_replace("a table")?;
        return create_table(cursor).map(Statement::CreateTable);
    }
    if cursor.eat(&["user"]) {
        no_replace("a user")?;
        return Ok(Statement::User(UserChange::Create(user_password(cursor)?)));
    }
    if cursor.eat(&["materialized", "view"]) {
        no_replace("a materialized view")?;
        return create_materialized_view(cursor).map(Statement::CreateMaterializedView);
    }
    if cursor.eat(&["view"]) {
        return create_view(cursor, or_replace).map(Statement::CreateView);
    }
    if cursor.eat(&["sink"]) {
        no_replace("a sink")?;
        return create_sink(cursor).map(Statement::CreateSink);
    }
    if cursor.eat(&["function"]) {
        return create_function(cursor, or_replace).map(Statement::CreateFunction);
    }
    if cursor.eat(&["index"]) {
        no_replace("an index")?;
        return create_index(cursor).map(Statement::CreateIndex);
    }
    Err(refused_kind(cursor, "CREATE", position))
}

/// The error for a kind of object that is not there.
pub(crate) fn refused_kind(cursor: &Cursor<'_>, verb: &str, position: usize) -> SqlError {
    if let Some(word) = ["temp", "temporary", "unlogged", "recursive", "external"]
        .iter()
        .find(|word| cursor.sees(&[word]))
    {
        return SqlError::unsupported(format!("{verb} {}", word.to_uppercase())).at(position);
    }
    if let Some((words, hint)) = REFUSED.iter().find(|(words, _)| cursor.sees(words)) {
        let error = SqlError::unsupported(format!("{verb} {}", words.join(" ").to_uppercase())).at(position);
        return if hint.is_empty() || verb != "CREATE" {
            error
        } else {
            error.with_hint(*hint)
        };
    }
    let error = cursor.unexpected("SOURCE, TABLE, VIEW, MATERIALIZED VIEW or SINK");
    match cursor.peek() {
        Token::Word(word) => {
            match closest(
                &word.value.to_lowercase(),
                ["source", "table", "view", "materialized", "sink"].into_iter(),
            ) {
                Some(meant) => error.with_hint(format!("Did you mean {verb} {}?", kind_named(meant))),
                None => error,
            }
        }
        _ => error,
    }
}

fn kind_named(word: &str) -> String {
    if word == "materialized" {
        "MATERIALIZED VIEW".to_owned()
    } else {
        word.to_uppercase()
    }
}

fn create_view(cursor: &mut Cursor<'_>, or_replace: bool) -> Result<CreateView, SqlError> {
    let if_not_exists = cursor.eat(&["if", "not", "exists"]);
    if or_replace && if_not_exists {
        return Err(cursor.unexpected("a name: OR REPLACE and IF NOT EXISTS exclude each other"));
    }
    let name = super::new_name(cursor, "a name for the view")?;
    let columns = column_names(cursor)?;
    cursor.expect(&["as"])?;
    let tail = query_tail(cursor)?;
    if let Some(position) = tail.emit {
        return Err(SqlError::unsupported("EMIT ON WINDOW CLOSE in a view")
            .with_detail("A view is a name for its query; it emits nothing.")
            .with_hint("Write EMIT ON WINDOW CLOSE in the materialized view or sink that reads it.")
            .at(position));
    }
    cursor.expect_end()?;
    Ok(CreateView {
        name: name.text,
        or_replace,
        if_not_exists,
        columns,
        query: tail.query,
    })
}

fn create_materialized_view(cursor: &mut Cursor<'_>) -> Result<CreateMaterializedView, SqlError> {
    let if_not_exists = cursor.eat(&["if", "not", "exists"]);
    let name = super::new_name(cursor, "a name for the materialized view")?;
    let columns = column_names(cursor)?;
    let before = with_clause(cursor)?;
    cursor.expect(&["as"])?;
    let tail = query_tail(cursor)?;
    let position = cursor.position();
    let with = match (before, with_clause(cursor)?) {
        (Some(_), Some(_)) => {
            return Err(SqlError::new(SqlState::SyntaxError, "the WITH clause is given twice").at(position));
        }
        (before, after) => before.or(after).unwrap_or_default(),
    };
    cursor.expect_end()?;
    Ok(CreateMaterializedView {
        name: name.text,
        if_not_exists,
        columns,
        query: tail.query,
        emit_on_window_close: tail.emit.is_some(),
        with,
    })
}

fn create_sink(cursor: &mut Cursor<'_>) -> Result<CreateSink, SqlError> {
    let if_not_exists = cursor.eat(&["if", "not", "exists"]);
    let name = super::new_name(cursor, "a name for the sink")?;
    let into = into_table(cursor)?;
    let (query, from, emit) = if cursor.eat(&["from"]) {
        let (query, name) = whole_relation(cursor)?;
        (query, Some(name), cursor.eat(&EMIT))
    } else if cursor.eat(&["as"]) {
        let tail = query_tail(cursor)?;
        (tail.query, None, tail.emit.is_some())
    } else {
        return Err(cursor.unexpected("FROM and a relation, or AS and a query"));
    };
    if into.is_some() && !cursor.at_end() {
        let error = cursor.unexpected("the end of the statement");
        return Err(error.with_hint("A sink into a table has no connector, no options and no format."));
    }
    let mut with = with_clause(cursor)?.unwrap_or_default();
    check_with(&with)?;
    let clause = format_clause(cursor)?;
    cursor.expect_end()?;
    let clause = clause.or_else(|| FormatClause::from_option(&mut with));
    if let Some(clause) = &clause {
        clause.check(&["plain", "upsert"], &["json"])?;
    }
    let (format, encode, encode_options) = match clause {
        Some(clause) => (Some(clause.format), clause.encode, clause.encode_options),
        None => Default::default(),
    };
    Ok(CreateSink {
        name: name.text,
        if_not_exists,
        query,
        from,
        into,
        emit_on_window_close: emit,
        with,
        format,
        encode,
        encode_options,
    })
}

/// `INTO table [(column, …)]`, if it stands next.
fn into_table(cursor: &mut Cursor<'_>) -> Result<Option<Box<SinkInto>>, SqlError> {
    if !cursor.eat(&["into"]) {
        return Ok(None);
    }
    let table = cursor.object_name("the name of a table")?;
    let columns = cursor.name_list("a column name")?;
    Ok(Some(Box::new(SinkInto {
        table: table.text,
        position: table.position,
        columns: columns
            .into_iter()
            .map(|Name { text, position }| (text, position))
            .collect(),
    })))
}

fn column_names(cursor: &mut Cursor<'_>) -> Result<Vec<String>, SqlError> {
    let names = cursor.name_list("a column name")?;
    for (index, name) in names.iter().enumerate() {
        if names[..index].iter().any(|earlier| earlier.text == name.text) {
            let message = format!("column \"{}\" is given twice", name.text);
            return Err(SqlError::new(SqlState::DuplicateColumn, message).at(name.position));
        }
    }
    Ok(names.into_iter().map(|Name { text, .. }| text).collect())
}

/// Takes a relation's name: the query `SELECT * FROM relation`, and the name.
///
/// # Errors
/// No name stands there.
pub(crate) fn whole_relation(cursor: &mut Cursor<'_>) -> Result<(Box<ast::Query>, String), SqlError> {
    let name = cursor.object_name("the name of a relation")?;
    let quoted = name.text.replace('"', "\"\"");
    let sql = format!("SELECT * FROM \"{quoted}\"");
    let query = super::query_at(&sql, name.position)?;
    Ok((query, name.text))
}

const EMIT: [&str; 4] = ["emit", "on", "window", "close"];

/// A query, and the byte offset of the EMIT ON WINDOW CLOSE that follows it.
pub(crate) struct QueryTail {
    pub(crate) query: Box<ast::Query>,
    pub(crate) emit: Option<usize>,
}

/// Takes a query up to `EMIT ON WINDOW CLOSE`, `WITH (` or the end of the statement.
///
/// # Errors
/// The query is malformed.
pub(crate) fn query_tail(cursor: &mut Cursor<'_>) -> Result<QueryTail, SqlError> {
    let end = query_end(cursor);
    let query = cursor.query_to(end)?;
    let position = cursor.position();
    let emit = cursor.eat(&EMIT).then_some(position);
    if emit.is_none() && cursor.sees(&["emit"]) {
        return Err(cursor.unexpected("EMIT ON WINDOW CLOSE"));
    }
    Ok(QueryTail { query, emit })
}

/// Index of the first token after the query: outside of parentheses a clause of ours, or the end.
fn query_end(cursor: &Cursor<'_>) -> usize {
    let tokens = cursor.tokens();
    let mut open = 0usize;
    for index in cursor.index()..tokens.len() {
        let words = |n: usize, word: &str| {
            tokens
                .get(index + n)
                .is_some_and(|token| is_word(&token.token, &[word]))
        };
        match &tokens[index].token {
            Token::LParen => open += 1,
            Token::RParen => open = open.saturating_sub(1),
            _ if open > 0 => {}
            _ if words(0, "emit") && words(1, "on") => return index,
            _ if words(0, "with")
                && tokens
                    .get(index + 1)
                    .is_some_and(|next| next.token == Token::LParen) =>
            {
                return index;
            }
            _ if words(0, "format") && words(2, "encode") => return index,
            _ => {}
        }
    }
    tokens.len()
}
