//! Text to statements.
//!
//! ```text
//! script ─▶ tokens (script) ─▶ statements' tokens ─▶ our spelling (flink, asof) ─▶ Statement (create, source, commands)
//!                                                                              └▶ queries, expressions, types: sqlparser
//! ```
//!
//! Positions in errors and in [`Statement`]s are byte offsets into the whole script; [`offset_of`] gives them for
//! places in sqlparser's AST.

mod asof;
mod commands;
mod copy;
mod copy_options;
mod create;
mod cursor;
mod deep_stack;
mod dialect;
mod dml;
mod escapes;
mod flink;
mod function;
mod index;
mod null_tests;
mod order_using;
mod row_columns;
mod script;
mod source;
mod table;
mod table_command;
mod transaction;
mod trim;
mod user;
mod with;

use datafusion::sql::sqlparser::ast;
use datafusion::sql::sqlparser::tokenizer::{Location, Token, TokenWithSpan};

use self::cursor::{Cursor, Name};
use self::dialect::HighwaterDialect;
use self::script::StatementTokens;
use crate::error::{SqlError, SqlState};
use crate::statement::{Parsed, Statement};
use crate::suggest::closest;

pub use self::copy::{milliseconds, query_of};
pub(crate) use self::cursor::is_reserved;
pub(crate) use self::row_columns::ROW;
pub(crate) use self::script::{SETS_MAX, tokenize, too_many_chained};

/// Words that begin a statement.
const STARTS: &[&str] = &[
    "select",
    "with",
    "values",
    "table",
    "insert",
    "update",
    "delete",
    "truncate",
    "flush",
    "create",
    "drop",
    "alter",
    "show",
    "describe",
    "desc",
    "explain",
    "subscribe",
    "checkpoint",
    "set",
    "reset",
    "begin",
    "start",
    "commit",
    "end",
    "rollback",
    "abort",
    "prepare",
    "execute",
    "deallocate",
    "discard",
    "unlisten",
    "copy",
    "declare",
    "fetch",
    "close",
];

/// Words that begin a statement of PostgreSQL or RisingWave that is not there.
const REFUSED: &[&str] = &[
    "savepoint",
    "release",
    "merge",
    "move",
    "grant",
    "revoke",
    "comment",
    "analyze",
    "vacuum",
    "cluster",
    "reindex",
    "lock",
    "listen",
    "notify",
    "do",
    "call",
    "refresh",
    "import",
    "load",
    "use",
    "backup",
    "export",
    "security",
    "kill",
    "wait",
    "recover",
    "cancel",
];

/// Reads all statements of a script, separated by semicolons; empty ones are skipped.
///
/// # Errors
/// The first error in the script, with its byte position: a syntax error, or a construct that is not there, by name.
/// Nothing of the script is to be run then.
pub fn parse(sql: &str) -> Result<Vec<Parsed>, SqlError> {
    let statements = script::split(sql)?;
    deep_stack::run(longest(&statements), move || {
        statements
            .into_iter()
            .map(|statement| parse_one(sql, statement))
            .collect()
    })
}

/// Where a statement starts in its script, and the statement or what is wrong with it.
pub type ReadStatement = (usize, Result<Parsed, SqlError>);

/// Reads all statements of a script as [`parse`] does, each for itself.
///
/// # Errors
/// A text that cannot be cut into statements: a quote or a comment that does not end.
pub fn parse_each(sql: &str) -> Result<Vec<ReadStatement>, SqlError> {
    let statements = script::split(sql)?;
    deep_stack::run(longest(&statements), move || {
        let read = |statement: StatementTokens| (statement.bytes.start, parse_one(sql, statement));
        Ok(statements.into_iter().map(read).collect())
    })
}

/// How many tokens the longest of these statements has.
fn longest(statements: &[StatementTokens]) -> usize {
    let tokens = statements.iter().map(|statement| statement.tokens.len());
    tokens.max().unwrap_or(0)
}

/// Words that begin a statement.
#[must_use]
pub fn starts() -> &'static [&'static str] {
    STARTS
}

/// Whether `sql` ends in a complete statement: its last token is a semicolon, and no quote, comment or parenthesis is
/// open. A shell reads on until then. `false` for a text without a statement.
#[must_use]
pub fn is_complete(sql: &str) -> bool {
    script::is_complete(sql)
}

/// Byte offset in the script of a place in the AST of one of its statements; `None` where sqlparser knows no place.
///
/// All spans of our ASTs are on line 1 and count bytes as columns.
#[must_use]
pub fn offset_of(place: Location) -> Option<usize> {
    script::offset_of(place)
}

/// Reads one expression, as the catalog stores them.
///
/// # Errors
/// The text is not one expression; positions count from its start.
pub fn parse_expression(sql: &str) -> Result<ast::Expr, SqlError> {
    with_cursor(sql, |cursor| {
        let expression = cursor.expression()?;
        cursor.expect_end()?;
        Ok(expression)
    })
}

/// Reads one query, as the catalog stores them.
///
/// # Errors
/// The text is not one query; positions count from its start.
pub fn parse_query(sql: &str) -> Result<Box<ast::Query>, SqlError> {
    with_cursor(sql, |cursor| {
        let end = cursor.tokens().len();
        cursor.query_to(end)
    })
}

/// Reads one type.
///
/// # Errors
/// The text is not one type; positions count from its start.
pub(crate) fn parse_data_type(sql: &str) -> Result<ast::DataType, SqlError> {
    with_cursor(sql, |cursor| {
        let data_type = cursor.data_type()?;
        cursor.expect_end()?;
        Ok(data_type)
    })
}

/// A query that we wrote ourselves for something at `position`.
fn query_at(sql: &str, position: usize) -> Result<Box<ast::Query>, SqlError> {
    parse_query(sql).map_err(|mut error| {
        error.position = Some(position);
        error
    })
}

fn with_cursor<T>(
    sql: &str,
    read: impl FnOnce(&mut Cursor<'_>) -> Result<T, SqlError>,
) -> Result<T, SqlError> {
    let mut statements = script::split(sql)?;
    let (Some(mut statement), None) = (statements.pop(), statements.pop()) else {
        return Err(SqlError::new(
            SqlState::SyntaxError,
            "syntax error: one expression or query is wanted",
        )
        .at(0));
    };
    deep_stack::run(statement.tokens.len(), move || {
        statement.tokens = in_our_spelling(statement.tokens);
        let dialect = HighwaterDialect::for_tokens(&statement.tokens);
        read(&mut Cursor::new(sql, &statement, &dialect))
    })
}

/// The tokens with what sqlparser does not read, or reads otherwise, in words that it reads.
fn in_our_spelling(tokens: Vec<TokenWithSpan>) -> Vec<TokenWithSpan> {
    let tokens = table_command::rewrite(asof::rewrite(flink::rewrite(tokens)));
    null_tests::rewrite(order_using::rewrite(tokens))
}

fn parse_one(sql: &str, mut statement: StatementTokens) -> Result<Parsed, SqlError> {
    statement.tokens = in_our_spelling(statement.tokens);
    let dialect = HighwaterDialect::for_tokens(&statement.tokens);
    let mut cursor = Cursor::new(sql, &statement, &dialect);
    let parsed = dispatch(&mut cursor)?;
    let bytes = statement.bytes.clone();
    Ok(Parsed {
        statement: parsed,
        text: sql.get(bytes.clone()).unwrap_or_default().to_owned(),
        offset: bytes.start,
    })
}

fn dispatch(cursor: &mut Cursor<'_>) -> Result<Statement, SqlError> {
    let word = match cursor.peek() {
        Token::LParen => return commands::query(cursor),
        Token::Word(word) if word.quote_style.is_none() => word.value.to_lowercase(),
        _ => return Err(cursor.unexpected("a statement")),
    };
    match word.as_str() {
        "with" => match dml::behind_with(cursor)? {
            Some(change) => Ok(change),
            None => commands::query(cursor),
        },
        "select" | "values" => commands::query(cursor),
        "insert" => dml::insert(cursor),
        "update" => dml::update(cursor),
        "delete" => dml::delete(cursor),
        "truncate" => dml::truncate(cursor),
        "flush" => commands::flush(cursor),
        "create" => create::create(cursor),
        "drop" => commands::drop(cursor),
        "alter" => commands::alter(cursor),
        "show" => commands::show(cursor),
        "describe" | "desc" => commands::describe(cursor),
        "explain" => commands::explain(cursor),
        "subscribe" => commands::subscribe(cursor),
        "checkpoint" => commands::checkpoint(cursor),
        "set" => commands::set(cursor),
        "reset" => commands::reset(cursor),
        "begin" | "start" => transaction::begin(cursor),
        "commit" | "end" => transaction::commit(cursor),
        "rollback" | "abort" => transaction::rollback(cursor),
        "prepare" => transaction::prepare(cursor, dispatch),
        "execute" => transaction::execute(cursor),
        "deallocate" => transaction::deallocate(cursor),
        "discard" => transaction::discard(cursor),
        "unlisten" => transaction::unlisten(cursor),
        "copy" => copy::copy(cursor),
        "declare" => copy::declare(cursor),
        "fetch" => copy::fetch(cursor),
        "close" => copy::close(cursor),
        other => Err(no_statement(cursor, other)),
    }
}

fn no_statement(cursor: &Cursor<'_>, word: &str) -> SqlError {
    if REFUSED.contains(&word) {
        return SqlError::unsupported(word.to_uppercase()).at(cursor.position());
    }
    let error = cursor.unexpected("a statement");
    match closest(word, STARTS.iter().chain(REFUSED).copied()) {
        Some(meant) => error.with_hint(format!("Did you mean {}?", meant.to_uppercase())),
        None => error,
    }
}

/// Takes the name of an object that is to be made.
fn new_name(cursor: &mut Cursor<'_>, what: &str) -> Result<Name, SqlError> {
    let name = cursor.object_name(what)?;
    if ["hw", "pg_catalog", "information_schema", "public"].contains(&name.text.as_str()) {
        let message = format!("name \"{}\" is reserved", name.text);
        return Err(SqlError::new(SqlState::ReservedName, message)
            .with_detail("It is the name of a schema.")
            .at(name.position));
    }
    Ok(name)
}
