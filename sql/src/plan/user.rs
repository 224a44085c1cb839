//! Who a session is of: `current_user` and its other names.
//!
//! A session puts the name in the place of each of them before it plans, and so does an INSERT in the DEFAULTs of its table; a view
//! has no session, and keeps the functions.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{CastKind, DataType, Expr, Ident, SelectItem, Value};

use crate::SqlError;
use crate::plan::parameters::parts;
use crate::plan::spelled::plain_args;
use crate::plan::walk::{PartMut, walk_mut};
use crate::statement::Statement;

/// What asks for the user.
const NAMES: [&str; 4] = ["current_user", "session_user", "current_role", "user"];

/// Whether a text may ask for the user: a quick look.
#[must_use]
pub fn may_ask_user(text: &str) -> bool {
    let bytes = text.as_bytes();
    let is_part = |at: Option<usize>| {
        let byte = at.and_then(|at| bytes.get(at));
        byte.is_some_and(|byte| byte.is_ascii_alphanumeric() || b"_$\"".contains(byte))
    };
    NAMES.iter().any(|name| {
        let mut places = bytes.windows(name.len()).enumerate();
        places.any(|(at, place)| {
            place.eq_ignore_ascii_case(name.as_bytes())
                && !is_part(at.checked_sub(1))
                && !is_part(Some(at + name.len()))
        })
    })
}

/// The statement with the name of the user where it asks for it. A column that is the question alone keeps its name.
///
/// # Errors
/// None that a statement that has been read can have.
pub fn with_user(statement: &Statement, user: &str) -> Result<Statement, SqlError> {
    let mut statement = statement.clone();
    if let Statement::CreateView(_) | Statement::CreateMaterializedView(_) | Statement::CreateSink(_) =
        statement
    {
        return Ok(statement);
    }
    parts(&mut statement, &mut |part| {
        match part {
            PartMut::Select(select) => {
                for item in &mut select.projection {
                    if let SelectItem::UnnamedExpr(expr) = item
                        && let Some(name) = column_name(expr)
                    {
                        *item = SelectItem::ExprWithAlias {
                            expr: expr.clone(),
                            alias: Ident::with_quote('"', name),
                        };
                    }
                }
            }
            PartMut::Expr(expr) if asked(expr).is_some() => *expr = constant(user),
            PartMut::Expr(_) | PartMut::Query(_) | PartMut::QueryEnd(_) | PartMut::TableFactor(_) => {}
        }
        ControlFlow::Continue(())
    })?;
    Ok(statement)
}

/// An expression that is stored as a text, with the name of the user where it asks for it.
///
/// # Errors
/// None that an expression that has been read can have.
pub(crate) fn expr_with_user(mut expr: Expr, user: &str) -> Result<Expr, SqlError> {
    walk_mut(&mut expr, &mut |part| {
        if let PartMut::Expr(expr) = part
            && asked(expr).is_some()
        {
            *expr = constant(user);
        }
        ControlFlow::Continue(())
    })?;
    Ok(expr)
}

/// Which of the names an expression is.
fn asked(expr: &Expr) -> Option<&'static str> {
    let name = match expr {
        Expr::Function(function) if plain_args(function).is_empty() => match function.name.0.as_slice() {
            [name] => name.as_ident()?,
            _ => return None,
        },
        // It is a word without parentheses that sqlparser takes for a column.
        Expr::Identifier(ident) if ident.value.eq_ignore_ascii_case("current_role") => ident,
        _ => return None,
    };
    let is_it = |known: &&&str| name.quote_style.is_none() && known.eq_ignore_ascii_case(&name.value);
    NAMES.iter().find(is_it).copied()
}

fn column_name(expr: &Expr) -> Option<&'static str> {
    match expr {
        Expr::Nested(inner) | Expr::Cast { expr: inner, .. } => column_name(inner),
        _ => asked(expr),
    }
}

fn constant(user: &str) -> Expr {
    Expr::Cast {
        kind: CastKind::Cast,
        expr: Box::new(Expr::value(Value::SingleQuotedString(user.to_owned()))),
        data_type: DataType::Text,
        array: false,
        format: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse::parse;

    #[test]
    fn the_user_stands_where_it_was_asked_for() {
        for (sql, expected) in [
            (
                "SELECT current_user, upper(session_user), user AS u, current_role",
                "SELECT CAST('it''s' AS TEXT) AS \"current_user\", upper(CAST('it''s' AS TEXT)), \
                 CAST('it''s' AS TEXT) AS u, CAST('it''s' AS TEXT) AS \"current_role\"",
            ),
            (
                "SELECT \"user\", t.user_id FROM t",
                "SELECT \"user\", t.user_id FROM t",
            ),
        ] {
            let parsed = parse(sql).unwrap().remove(0);
            let Statement::Query(query) = with_user(&parsed.statement, "it's").unwrap() else {
                panic!("{sql}");
            };
            assert_eq!(query.to_string(), expected);
        }
    }

    #[test]
    fn a_quick_look_sees_whole_words() {
        for sql in [
            "SELECT USER",
            "select current_user::text",
            "SELECT (session_user)",
        ] {
            assert!(may_ask_user(sql), "{sql}");
        }
        for sql in ["SELECT user_id FROM users", "SELECT \"user\"", "SELECT 1"] {
            assert!(!may_ask_user(sql), "{sql}");
        }
    }
}
