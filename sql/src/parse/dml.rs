//! Statements that change the rows of a table: INSERT, UPDATE, DELETE.

use datafusion::sql::sqlparser::ast::{self, SetExpr};
use datafusion::sql::sqlparser::tokenizer::Token;

use super::cursor::{Cursor, Name};
use super::script::is_word;
use crate::error::{SqlError, SqlState};
use crate::statement::{Delete, Insert, InsertSource, Statement, Target, Update};

/// Takes `INSERT INTO table [AS alias] [(column, …)] VALUES … | query | DEFAULT VALUES [RETURNING …]`.
///
/// # Errors
/// A malformed statement, a column listed twice, `ON CONFLICT`.
pub(crate) fn insert(cursor: &mut Cursor<'_>) -> Result<Statement, SqlError> {
    cursor.expect(&["insert", "into"])?;
    let name = cursor.object_name("the name of a table")?;
    let alias = match cursor.eat(&["as"]) {
        true => Some(cursor.name("an alias")?.text),
        false => None,
    };
    let columns = match starts_query(cursor) {
        true => Vec::new(),
        false => listed(cursor.name_list("a column name")?)?,
    };
    let source = source(cursor)?;
    if cursor.sees(&["on", "conflict"]) {
        return Err(SqlError::unsupported("ON CONFLICT in INSERT")
            .with_hint("CREATE TABLE … ON CONFLICT says what becomes of a row whose key is there already.")
            .at(cursor.position()));
    }
    let returning = returning(cursor)?;
    Ok(Statement::Insert(Insert {
        target: target(name, alias),
        columns,
        source,
        returning,
    }))
}

/// Whether a parenthesis opens a query, not a list of columns.
fn starts_query(cursor: &Cursor<'_>) -> bool {
    *cursor.peek() == Token::LParen
        && (*cursor.peek_nth(1) == Token::LParen
            || is_word(cursor.peek_nth(1), &["select", "with", "values", "table"]))
}

fn listed(names: Vec<Name>) -> Result<Vec<(String, usize)>, SqlError> {
    for (index, name) in names.iter().enumerate() {
        if names[..index].iter().any(|earlier| earlier.text == name.text) {
            let message = format!("column \"{}\" specified more than once", name.text);
            return Err(SqlError::new(SqlState::DuplicateColumn, message).at(name.position));
        }
    }
    Ok(names
        .into_iter()
        .map(|Name { text, position }| (text, position))
        .collect())
}

fn source(cursor: &mut Cursor<'_>) -> Result<InsertSource, SqlError> {
    if cursor.eat(&["default", "values"]) {
        return Ok(InsertSource::Defaults);
    }
    let end = source_end(cursor);
    let query = cursor.query_to(end)?;
    let plain = query.with.is_none()
        && query.order_by.is_none()
        && query.limit_clause.is_none()
        && query.fetch.is_none();
    match *query.body {
        SetExpr::Values(values) if plain => Ok(InsertSource::Rows(
            values.rows.into_iter().map(|row| row.content).collect(),
        )),
        body => Ok(InsertSource::Query(Box::new(ast::Query {
            body: Box::new(body),
            ..*query
        }))),
    }
}

/// Index of the first token after the rows: `ON CONFLICT` or `RETURNING` outside of parentheses, or the end.
fn source_end(cursor: &Cursor<'_>) -> usize {
    let tokens = cursor.tokens();
    let mut open = 0usize;
    for index in cursor.index()..tokens.len() {
        let word = |n: usize, words: &[&str]| {
            tokens
                .get(index + n)
                .is_some_and(|token| is_word(&token.token, words))
        };
        let opens = |n: usize| tokens.get(index + n).is_some_and(|t| t.token == Token::LParen);
        match &tokens[index].token {
            Token::LParen => open += 1,
            Token::RParen => open = open.saturating_sub(1),
            _ if open > 0 => {}
            _ if word(0, &["returning"]) => return index,
            _ if word(0, &["on"])
                && word(1, &["conflict"])
                && (opens(2) || word(2, &["do"]) || word(2, &["on"])) =>
            {
                return index;
            }
            _ => {}
        }
    }
    tokens.len()
}

/// Takes `UPDATE table [[AS] alias] SET column = expression, … [WHERE …] [RETURNING …]`.
///
/// # Errors
/// A malformed statement, a column that is set twice, FROM.
pub(crate) fn update(cursor: &mut Cursor<'_>) -> Result<Statement, SqlError> {
    cursor.expect(&["update"])?;
    let name = cursor.object_name("the name of a table")?;
    let alias = alias_before(cursor, &["set"])?;
    cursor.expect(&["set"])?;
    let mut assignments: Vec<(String, usize, ast::Expr)> = Vec::new();
    loop {
        if *cursor.peek() == Token::LParen {
            return Err(SqlError::unsupported("SET of a list of columns")
                .with_hint("Set one column after the other: SET a = …, b = ….")
                .at(cursor.position()));
        }
        let column = cursor.name("a column name")?;
        cursor.expect_token(&Token::Eq)?;
        let value = cursor.expression()?;
        if assignments.iter().any(|(earlier, ..)| *earlier == column.text) {
            let message = format!("multiple assignments to same column \"{}\"", column.text);
            return Err(SqlError::new(SqlState::SyntaxError, message).at(column.position));
        }
        assignments.push((column.text, column.position, value));
        if !cursor.eat_token(&Token::Comma) {
            break;
        }
    }
    if cursor.sees(&["from"]) {
        return Err(SqlError::unsupported("FROM in UPDATE")
            .with_hint("Read the other relation in a subquery.")
            .at(cursor.position()));
    }
    let selection = selection(cursor)?;
    let returning = returning(cursor)?;
    Ok(Statement::Update(Update {
        target: target(name, alias),
        assignments,
        selection,
        returning,
    }))
}

/// Takes `DELETE FROM table [[AS] alias] [WHERE …] [RETURNING …]`.
///
/// # Errors
/// A malformed statement, USING.
pub(crate) fn delete(cursor: &mut Cursor<'_>) -> Result<Statement, SqlError> {
    cursor.expect(&["delete", "from"])?;
    let name = cursor.object_name("the name of a table")?;
    let alias = alias_before(cursor, &["where", "returning", "using"])?;
    if cursor.sees(&["using"]) {
        return Err(SqlError::unsupported("USING in DELETE")
            .with_hint("Read the other relation in a subquery.")
            .at(cursor.position()));
    }
    let selection = selection(cursor)?;
    let returning = returning(cursor)?;
    Ok(Statement::Delete(Delete {
        target: target(name, alias),
        selection,
        returning,
    }))
}

fn target(name: Name, alias: Option<String>) -> Target {
    Target {
        name: name.text,
        position: name.position,
        alias,
    }
}

/// Takes `[AS] alias`, if the next word is none of `clauses`.
fn alias_before(cursor: &mut Cursor<'_>, clauses: &[&str]) -> Result<Option<String>, SqlError> {
    let named = cursor.eat(&["as"])
        || (matches!(cursor.peek(), Token::Word(_)) && !clauses.iter().any(|clause| cursor.sees(&[clause])));
    Ok(match named {
        true => Some(cursor.name("an alias")?.text),
        false => None,
    })
}

fn selection(cursor: &mut Cursor<'_>) -> Result<Option<Box<ast::Expr>>, SqlError> {
    match cursor.eat(&["where"]) {
        true => Ok(Some(Box::new(cursor.expression()?))),
        false => Ok(None),
    }
}

/// Takes `RETURNING …`, if it stands there, and the end of the statement.
fn returning(cursor: &mut Cursor<'_>) -> Result<Option<Vec<ast::SelectItem>>, SqlError> {
    let items = match cursor.eat(&["returning"]) {
        true => Some(cursor.select_list()?),
        false => None,
    };
    cursor.expect_end()?;
    Ok(items)
}
