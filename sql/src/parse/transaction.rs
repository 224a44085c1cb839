//! BEGIN, COMMIT, ROLLBACK, SET TRANSACTION, and prepared statements.

use datafusion::sql::sqlparser::ast;
use datafusion::sql::sqlparser::tokenizer::Token;

use super::cursor::Cursor;
use crate::error::{SqlError, SqlState};
use crate::statement::{Execute, Parsed, Prepare, Statement, Transaction, TransactionModes};

/// Takes `BEGIN [WORK | TRANSACTION] [modes]` or `START TRANSACTION [modes]`.
///
/// # Errors
/// A malformed statement.
pub(crate) fn begin(cursor: &mut Cursor<'_>) -> Result<Statement, SqlError> {
    if cursor.eat(&["start"]) {
        cursor.expect(&["transaction"])?;
    } else {
        cursor.expect(&["begin"])?;
        eat_noun(cursor);
    }
    let modes = modes(cursor)?;
    cursor.expect_end()?;
    Ok(Statement::Transaction(Transaction::Begin(modes)))
}

/// Takes `COMMIT | END [WORK | TRANSACTION] [AND NO CHAIN]`.
///
/// # Errors
/// A malformed statement, a transaction in two phases, AND CHAIN.
pub(crate) fn commit(cursor: &mut Cursor<'_>) -> Result<Statement, SqlError> {
    cursor.take();
    if cursor.sees(&["prepared"]) {
        return Err(SqlError::unsupported("COMMIT PREPARED").at(cursor.position()));
    }
    eat_noun(cursor);
    no_chain(cursor)?;
    Ok(Statement::Transaction(Transaction::Commit))
}

/// Takes `ROLLBACK | ABORT [WORK | TRANSACTION] [AND NO CHAIN]`.
///
/// # Errors
/// A malformed statement, a savepoint, a transaction in two phases, AND CHAIN.
pub(crate) fn rollback(cursor: &mut Cursor<'_>) -> Result<Statement, SqlError> {
    cursor.take();
    if cursor.sees(&["prepared"]) {
        return Err(SqlError::unsupported("ROLLBACK PREPARED").at(cursor.position()));
    }
    eat_noun(cursor);
    if cursor.sees(&["to"]) {
        return Err(SqlError::unsupported("ROLLBACK TO SAVEPOINT").at(cursor.position()));
    }
    no_chain(cursor)?;
    Ok(Statement::Transaction(Transaction::Rollback))
}

fn eat_noun(cursor: &mut Cursor<'_>) {
    if !cursor.eat(&["work"]) {
        cursor.eat(&["transaction"]);
    }
}

fn no_chain(cursor: &mut Cursor<'_>) -> Result<(), SqlError> {
    if cursor.sees(&["and", "chain"]) {
        return Err(SqlError::unsupported("AND CHAIN").at(cursor.position()));
    }
    cursor.eat(&["and", "no", "chain"]);
    cursor.expect_end()
}

/// Takes `ISOLATION LEVEL …`, `READ ONLY | WRITE` and `[NOT] DEFERRABLE`, with or without commas between.
pub(crate) fn modes(cursor: &mut Cursor<'_>) -> Result<TransactionModes, SqlError> {
    const LEVELS: [&[&str]; 4] = [
        &["read", "committed"],
        &["read", "uncommitted"],
        &["repeatable", "read"],
        &["serializable"],
    ];
    let mut modes = TransactionModes::default();
    while !cursor.at_end() {
        let position = cursor.position();
        if cursor.eat(&["isolation", "level"]) {
            let level = LEVELS.iter().find(|words| cursor.eat(words));
            let Some(level) = level else {
                return Err(cursor.unexpected("an isolation level"));
            };
            modes.isolation = Some((level.join(" "), position));
        } else if cursor.eat(&["read", "only"]) {
            modes.read_only = Some(true);
        } else if cursor.eat(&["read", "write"]) {
            modes.read_only = Some(false);
        } else if !cursor.eat(&["deferrable"]) && !cursor.eat(&["not", "deferrable"]) {
            return Err(cursor.unexpected("a transaction mode"));
        }
        cursor.eat_token(&Token::Comma);
    }
    Ok(modes)
}

/// Takes `PREPARE name [(type, …)] AS statement`; `inner` reads the statement.
///
/// # Errors
/// A malformed statement.
pub(crate) fn prepare(
    cursor: &mut Cursor<'_>,
    inner: impl FnOnce(&mut Cursor<'_>) -> Result<Statement, SqlError>,
) -> Result<Statement, SqlError> {
    cursor.expect(&["prepare"])?;
    let name = cursor.name("a name for the prepared statement")?;
    let mut types = Vec::new();
    if cursor.eat_token(&Token::LParen) {
        loop {
            types.push(cursor.data_type()?);
            if !cursor.eat_token(&Token::Comma) {
                break;
            }
        }
        cursor.expect_token(&Token::RParen)?;
    }
    cursor.expect(&["as"])?;
    let (offset, text) = (cursor.position(), cursor.rest().to_owned());
    let statement = inner(cursor)?;
    let preparable = matches!(
        statement,
        Statement::Query(_) | Statement::Insert(_) | Statement::Update(_) | Statement::Delete(_)
    );
    if !preparable {
        return Err(SqlError::new(
            SqlState::SyntaxError,
            "PREPARE takes SELECT, VALUES, INSERT, UPDATE or DELETE",
        )
        .at(offset));
    }
    Ok(Statement::Prepare(Prepare {
        name: name.text,
        types,
        statement: Box::new(Parsed {
            statement,
            text,
            offset,
        }),
    }))
}

/// Takes `EXECUTE name [(value, …)]`.
///
/// # Errors
/// A malformed statement.
pub(crate) fn execute(cursor: &mut Cursor<'_>) -> Result<Statement, SqlError> {
    cursor.expect(&["execute"])?;
    let name = cursor.name("the name of a prepared statement")?;
    let mut values: Vec<ast::Expr> = Vec::new();
    if cursor.eat_token(&Token::LParen) {
        loop {
            values.push(cursor.expression()?);
            if !cursor.eat_token(&Token::Comma) {
                break;
            }
        }
        cursor.expect_token(&Token::RParen)?;
    }
    cursor.expect_end()?;
    Ok(Statement::Execute(Execute {
        name: name.text,
        values,
    }))
}

/// Takes `DEALLOCATE [PREPARE] name | ALL`.
///
/// # Errors
/// A malformed statement.
pub(crate) fn deallocate(cursor: &mut Cursor<'_>) -> Result<Statement, SqlError> {
    cursor.expect(&["deallocate"])?;
    cursor.eat(&["prepare"]);
    let name = match cursor.eat(&["all"]) {
        true => None,
        false => Some(cursor.name("the name of a prepared statement")?.text),
    };
    cursor.expect_end()?;
    Ok(Statement::Deallocate(name))
}

/// Takes `DISCARD ALL | PLANS | SEQUENCES | TEMP | TEMPORARY`.
///
/// # Errors
/// A malformed statement.
pub(crate) fn discard(cursor: &mut Cursor<'_>) -> Result<Statement, SqlError> {
    cursor.expect(&["discard"])?;
    let all = cursor.eat(&["all"]);
    let part = ["plans", "sequences", "temp", "temporary"];
    if !all && !part.iter().any(|word| cursor.eat(&[word])) {
        return Err(cursor.unexpected("ALL, PLANS, SEQUENCES or TEMP"));
    }
    cursor.expect_end()?;
    Ok(Statement::Discard { all })
}

/// Takes `UNLISTEN * | channel`.
///
/// # Errors
/// A malformed statement.
pub(crate) fn unlisten(cursor: &mut Cursor<'_>) -> Result<Statement, SqlError> {
    cursor.expect(&["unlisten"])?;
    if !cursor.eat_token(&Token::Mul) {
        cursor.name("* or the name of a channel")?;
    }
    cursor.expect_end()?;
    Ok(Statement::Unlisten)
}
