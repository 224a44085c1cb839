//! CREATE USER, ALTER USER, DROP USER.

use datafusion::sql::sqlparser::tokenizer::Token;

use super::cursor::Cursor;
use crate::error::SqlError;
use crate::statement::{Statement, UserChange, UserPassword};

/// Takes what follows `CREATE USER` or `ALTER USER`: `name [WITH] [ENCRYPTED] PASSWORD '…'`. No error text holds the password
/// (INV-10).
///
/// # Errors
/// A malformed statement; anything but a password.
pub(crate) fn user_password(cursor: &mut Cursor<'_>) -> Result<UserPassword, SqlError> {
    let name = cursor.name("the name of a user")?;
    cursor.eat(&["with"]);
    cursor.eat(&["encrypted"]);
    if !cursor.eat(&["password"]) {
        let error = cursor.unexpected("PASSWORD and a password in quotes");
        return Err(error.with_hint("A user has a name and a password, and may do everything."));
    }
    let password = cursor.string("a password in quotes")?;
    cursor.expect_end()?;
    Ok(UserPassword {
        name: name.text,
        position: name.position,
        password,
    })
}

/// Takes what follows `DROP USER`: `[IF EXISTS] name, …`.
///
/// # Errors
/// A malformed statement.
pub(crate) fn drop_user(cursor: &mut Cursor<'_>) -> Result<Statement, SqlError> {
    let if_exists = cursor.eat(&["if", "exists"]);
    let mut names = Vec::new();
    loop {
        let name = cursor.name("the name of a user")?;
        names.push((name.text, name.position));
        if !cursor.eat_token(&Token::Comma) {
            break;
        }
    }
    cursor.expect_end()?;
    Ok(Statement::User(UserChange::Drop { names, if_exists }))
}
