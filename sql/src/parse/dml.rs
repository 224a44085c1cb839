//! Statements that change the rows of a table: INSERT, UPDATE, DELETE, TRUNCATE.

use datafusion::sql::sqlparser::ast::{self, Expr, SetExpr};
use datafusion::sql::sqlparser::tokenizer::Token;

use super::cursor::{Cursor, Name};
use super::row_columns;
use super::script::is_word;
use crate::error::{SqlError, SqlState};
use crate::statement::{
    Assignment, ConflictTarget, ConflictUpdate, Delete, Insert, InsertConflict, InsertSource, Statement,
    Target, Update,
};

/// Takes `INSERT INTO table [AS alias] [(column, …)] VALUES … | query | DEFAULT VALUES [ON CONFLICT …] [RETURNING …]`.
///
/// # Errors
/// A malformed statement, a column listed twice.
pub(crate) fn insert(cursor: &mut Cursor<'_>) -> Result<Statement, SqlError> {
    insert_with(cursor, None)
}

/// Takes `WITH … INSERT …`, if that is what stands there and no query.
///
/// # Errors
/// As [`insert`], [`update`] and [`delete`].
pub(crate) fn behind_with(cursor: &mut Cursor<'_>) -> Result<Option<Statement>, SqlError> {
    const STARTS: [&str; 6] = ["select", "values", "insert", "update", "delete", "merge"];
    let tokens = cursor.tokens();
    let mut open = 0usize;
    let start = tokens
        .iter()
        .enumerate()
        .skip(cursor.index())
        .find(|(index, token)| {
            match token.token {
                Token::LParen => open += 1,
                Token::RParen => open = open.saturating_sub(1),
                _ => {}
            }
            let is_behind_list = *index > 0 && tokens[*index - 1].token == Token::RParen;
            open == 0 && is_behind_list && is_word(&token.token, &STARTS)
        });
    let Some((index, token)) = start else {
        return Ok(None);
    };
    let change = match &token.token {
        insert if is_word(insert, &["insert"]) => insert_with,
        update if is_word(update, &["update"]) => update_with,
        delete if is_word(delete, &["delete"]) => delete_with,
        _ => return Ok(None),
    };
    let with = cursor.common_tables(index)?;
    change(cursor, Some(with)).map(Some)
}

fn insert_with(cursor: &mut Cursor<'_>, with: Option<ast::With>) -> Result<Statement, SqlError> {
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
    let source = source(cursor, with)?;
    let on_conflict = on_conflict(cursor)?;
    let returning = returning(cursor)?;
    Ok(Statement::Insert(Insert {
        target: target(name, alias),
        columns,
        source,
        on_conflict,
        returning,
    }))
}

/// Takes `ON CONFLICT [(column, …) | ON CONSTRAINT name] DO NOTHING | DO UPDATE SET … [WHERE …]`, if it stands there.
fn on_conflict(cursor: &mut Cursor<'_>) -> Result<Option<InsertConflict>, SqlError> {
    let position = cursor.position();
    if !cursor.eat(&["on", "conflict"]) {
        return Ok(None);
    }
    let target = if cursor.eat(&["on", "constraint"]) {
        let name = cursor.name("the name of a constraint")?;
        Some(ConflictTarget::Constraint(name.text, name.position))
    } else if *cursor.peek() == Token::LParen {
        Some(ConflictTarget::Columns(listed(
            cursor.name_list("a column name")?,
        )?))
    } else {
        None
    };
    if target.is_some() && cursor.sees(&["where"]) {
        return Err(SqlError::unsupported("ON CONFLICT … WHERE before DO")
            .with_hint("A key has no condition; DO UPDATE may have one.")
            .at(cursor.position()));
    }
    if cursor.eat(&["do", "nothing"]) {
        return Ok(Some(InsertConflict {
            position,
            target,
            update: None,
        }));
    }
    cursor.expect(&["do", "update", "set"])?;
    if target.is_none() {
        let message = "ON CONFLICT DO UPDATE requires inference specification or constraint name";
        return Err(SqlError::new(SqlState::SyntaxError, message)
            .with_hint("For example, ON CONFLICT (column_name).")
            .at(position));
    }
    let update = ConflictUpdate {
        assignments: assignments(cursor)?,
        selection: selection(cursor)?,
    };
    Ok(Some(InsertConflict {
        position,
        target,
        update: Some(update),
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

/// Takes the rows; `with` are the queries with names that stand before the statement.
fn source(cursor: &mut Cursor<'_>, with: Option<ast::With>) -> Result<InsertSource, SqlError> {
    if cursor.eat(&["default", "values"]) {
        return Ok(InsertSource::Defaults);
    }
    let (end, position) = (source_end(cursor), cursor.position());
    let mut query = cursor.query_to(end)?;
    if with.is_some() && query.with.is_some() {
        return Err(SqlError::unsupported("WITH both before INSERT and in its query")
            .with_hint("Write one list of both.")
            .at(position));
    }
    if with.is_some() && matches!(*query.body, SetExpr::Values(_)) {
        return Err(SqlError::unsupported("WITH before INSERT … VALUES")
            .with_hint("Write INSERT … SELECT.")
            .at(position));
    }
    query.with = query.with.or(with);
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

/// Takes `UPDATE table [[AS] alias] SET column = expression, … [FROM …] [WHERE …] [RETURNING …]`.
///
/// # Errors
/// A malformed statement, a column that is set twice.
pub(crate) fn update(cursor: &mut Cursor<'_>) -> Result<Statement, SqlError> {
    update_with(cursor, None)
}

fn update_with(cursor: &mut Cursor<'_>, with: Option<ast::With>) -> Result<Statement, SqlError> {
    cursor.expect(&["update"])?;
    let name = cursor.object_name("the name of a table")?;
    let alias = alias_before(cursor, &["set"])?;
    cursor.expect(&["set"])?;
    let assignments = assignments(cursor)?;
    let others = others(cursor, "from")?;
    let selection = selection(cursor)?;
    let returning = returning_target(cursor, &others)?;
    Ok(Statement::Update(Update {
        with,
        target: target(name, alias),
        assignments,
        others,
        selection,
        returning,
    }))
}

/// Takes `column = value, (column, …) = (value, …), …`
fn assignments(cursor: &mut Cursor<'_>) -> Result<Vec<Assignment>, SqlError> {
    let mut all: Vec<Assignment> = Vec::new();
    loop {
        let taken = match *cursor.peek() == Token::LParen {
            true => assigned_list(cursor)?,
            false => {
                let column = cursor.name("a column name")?;
                cursor.expect_token(&Token::Eq)?;
                vec![(column.text, column.position, cursor.expression()?)]
            }
        };
        for (column, position, value) in taken {
            if all.iter().any(|(earlier, ..)| *earlier == column) {
                let message = format!("multiple assignments to same column \"{column}\"");
                return Err(SqlError::new(SqlState::SyntaxError, message).at(position));
            }
            all.push((column, position, value));
        }
        if !cursor.eat_token(&Token::Comma) {
            return Ok(all);
        }
    }
}

/// Takes `(column, …) = [ROW] (value, …)`.
fn assigned_list(cursor: &mut Cursor<'_>) -> Result<Vec<Assignment>, SqlError> {
    let columns = cursor.name_list("a column name")?;
    cursor.expect_token(&Token::Eq)?;
    let _ = cursor.eat(&["row"]);
    let position = cursor.position();
    let opened = cursor.tokens().get(cursor.index().saturating_add(1));
    let values = match opened.is_some_and(|token| is_word(&token.token, &["select", "with", "values"])) {
        true => {
            cursor.expect_token(&Token::LParen)?;
            let query = cursor.query_to(cursor.closing())?;
            cursor.expect_token(&Token::RParen)?;
            row_columns::of_subquery(&query, columns.len())
        }
        false => Some(values(cursor)?),
    };
    let Some(values) = values.filter(|values| values.len() == columns.len()) else {
        let message = "number of columns does not match number of values";
        return Err(SqlError::new(SqlState::SyntaxError, message).at(position));
    };
    let pairs = columns.into_iter().zip(values);
    Ok(pairs
        .map(|(column, value)| (column.text, column.position, value))
        .collect())
}

/// Takes `(value, …)`.
fn values(cursor: &mut Cursor<'_>) -> Result<Vec<Expr>, SqlError> {
    cursor.expect_token(&Token::LParen)?;
    let mut values = Vec::new();
    loop {
        values.push(cursor.expression()?);
        if !cursor.eat_token(&Token::Comma) {
            break;
        }
    }
    cursor.expect_token(&Token::RParen)?;
    Ok(values)
}

/// Takes `DELETE FROM table [[AS] alias] [USING …] [WHERE …] [RETURNING …]`.
///
/// # Errors
/// A malformed statement.
pub(crate) fn delete(cursor: &mut Cursor<'_>) -> Result<Statement, SqlError> {
    delete_with(cursor, None)
}

/// Takes `TRUNCATE [TABLE] [ONLY] table [RESTART IDENTITY | CONTINUE IDENTITY] [CASCADE | RESTRICT]`, which takes all rows away as
/// DELETE does.
///
/// # Errors
/// A malformed statement; several tables.
pub(crate) fn truncate(cursor: &mut Cursor<'_>) -> Result<Statement, SqlError> {
    cursor.expect(&["truncate"])?;
    let _ = cursor.eat(&["table"]);
    let _ = cursor.eat(&["only"]);
    let name = cursor.object_name("the name of a table")?;
    let position = cursor.position();
    if *cursor.peek() == Token::Comma {
        return Err(SqlError::unsupported("TRUNCATE of several tables")
            .with_hint("Write one statement for each of them.")
            .at(position));
    }
    // No column counts by itself, and no table depends on the rows of another one: these change nothing.
    let _ = cursor.eat(&["restart", "identity"]) || cursor.eat(&["continue", "identity"]);
    let _ = cursor.eat(&["cascade"]) || cursor.eat(&["restrict"]);
    cursor.expect_end()?;
    Ok(Statement::Delete(Delete {
        truncates: true,
        with: None,
        target: target(name, None),
        others: Vec::new(),
        selection: None,
        returning: None,
    }))
}

fn delete_with(cursor: &mut Cursor<'_>, with: Option<ast::With>) -> Result<Statement, SqlError> {
    cursor.expect(&["delete", "from"])?;
    let name = cursor.object_name("the name of a table")?;
    let alias = alias_before(cursor, &["where", "returning", "using"])?;
    let others = others(cursor, "using")?;
    let selection = selection(cursor)?;
    let returning = returning_target(cursor, &others)?;
    Ok(Statement::Delete(Delete {
        truncates: false,
        with,
        target: target(name, alias),
        others,
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

/// Takes the other relations that a statement reads, if `word` stands there.
fn others(cursor: &mut Cursor<'_>, word: &str) -> Result<Vec<ast::TableWithJoins>, SqlError> {
    match cursor.eat(&[word]) {
        true => cursor.relation_list(),
        false => Ok(Vec::new()),
    }
}

fn selection(cursor: &mut Cursor<'_>) -> Result<Option<Box<Expr>>, SqlError> {
    match cursor.eat(&["where"]) {
        true => Ok(Some(Box::new(cursor.expression()?))),
        false => Ok(None),
    }
}

/// Takes `RETURNING …` of a statement that may read other relations too, whose columns it does not give.
fn returning_target(
    cursor: &mut Cursor<'_>,
    others: &[ast::TableWithJoins],
) -> Result<Option<Vec<ast::SelectItem>>, SqlError> {
    let position = cursor.position();
    let items = returning(cursor)?;
    let gives_all = |item: &ast::SelectItem| matches!(item, ast::SelectItem::Wildcard(_));
    if !others.is_empty() && items.iter().flatten().any(gives_all) {
        return Err(SqlError::unsupported("RETURNING the columns of other relations")
            .with_hint("Name the changed table: RETURNING table.*")
            .at(position));
    }
    Ok(items)
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
