//! What a query asks of the settings of its session: `current_setting(name)` and `set_config(name, value, is_local)`.
//!
//! A session answers the calls of [`setting_calls`] one after another; [`with_settings`] puts its answers in their place.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    self, CastKind, DataType, Expr, Function, GroupByExpr, Ident, Query, SelectItem, SetExpr, Value,
};

use crate::SqlError;
use crate::plan::place::position_of;
use crate::plan::spelled::plain_args;
use crate::plan::walk::{PartMut, walk_mut};

const CURRENT: &str = "current_setting";
const SET: &str = "set_config";

/// A call about a setting.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SettingCall {
    /// `current_setting(name [, missing_ok])`: the value.
    Current {
        /// The name of the setting.
        name: String,
        /// Whether a name that is none gives NULL.
        missing_ok: bool,
    },
    /// `set_config(name, value, false)`: sets it for the session, and gives the value.
    Set {
        /// The name of the setting.
        name: String,
        /// The value; `None` for its default.
        value: Option<String>,
    },
}

/// Whether a text may have such calls: a quick look.
#[must_use]
pub fn may_ask_settings(text: &str) -> bool {
    let has = |word: &str| {
        let mut places = text.as_bytes().windows(word.len());
        places.any(|place| place.eq_ignore_ascii_case(word.as_bytes()))
    };
    has(SET) || has(CURRENT)
}

/// The calls of a query in the order in which they are answered. A `current_setting` whose name is no constant is none of them: it is
/// answered row by row, from the settings of a new session.
///
/// # Errors
/// A `set_config` that is not in the select list of a query without FROM, whose arguments are no constants, or that is for one
/// transaction (0A000).
pub fn setting_calls(query: &Query) -> Result<Vec<SettingCall>, SqlError> {
    let is_alone = is_without_rows(query);
    let mut calls = Vec::new();
    each(&mut query.clone(), &mut |function| {
        match call_of(function)? {
            Some(SettingCall::Set { .. }) if !is_alone => {
                let error = unsupported(function, "set_config() in a query that reads rows");
                return Err(error.with_hint("SELECT set_config(name, value, false) sets a setting."));
            }
            call => calls.extend(call),
        }
        Ok(None)
    })?;
    Ok(calls)
}

/// The query with the answers in the place of the calls, in their order; without answers with NULLs, for a look at its columns.
///
/// # Errors
/// As [`setting_calls`].
pub fn with_settings(query: &Query, answers: Option<&[Option<String>]>) -> Result<Query, SqlError> {
    let mut query = query.clone();
    let mut at = 0;
    each(&mut query, &mut |function| {
        let Some(answers) = answers else {
            return Ok(Some(text(None)));
        };
        if call_of(function)?.is_none() {
            return Ok(None);
        }
        let answer = answers.get(at).cloned().flatten();
        at += 1;
        Ok(Some(text(answer)))
    })?;
    Ok(query)
}

/// Shows each call, and puts what `see` gives in its place. A column that is a call alone keeps its name.
fn each(
    query: &mut Query,
    see: &mut dyn FnMut(&Function) -> Result<Option<Expr>, SqlError>,
) -> Result<(), SqlError> {
    walk_mut(query, &mut |part| {
        match part {
            PartMut::Select(select) => {
                for item in &mut select.projection {
                    if let SelectItem::UnnamedExpr(expr) = item
                        && let Some(name) = column_name(expr)
                    {
                        *item = SelectItem::ExprWithAlias {
                            expr: expr.clone(),
                            alias: Ident::new(name),
                        };
                    }
                }
            }
            PartMut::Expr(expr) => {
                if let Expr::Function(function) = &*expr
                    && name_of(function).is_some()
                {
                    match see(function) {
                        Ok(Some(replaced)) => *expr = replaced,
                        Ok(None) => {}
                        Err(error) => return ControlFlow::Break(Box::new(error)),
                    }
                }
            }
            PartMut::Query(_) | PartMut::QueryEnd(_) | PartMut::TableFactor(_) => {}
        }
        ControlFlow::Continue(())
    })
}

/// The name of one of the two functions, which may stand behind its schema.
fn name_of(function: &Function) -> Option<&'static str> {
    let name = match function.name.0.as_slice() {
        [name] => name.as_ident()?,
        [schema, name] if schema.as_ident()?.value.eq_ignore_ascii_case("pg_catalog") => name.as_ident()?,
        _ => return None,
    };
    [CURRENT, SET]
        .into_iter()
        .find(|known| known.eq_ignore_ascii_case(&name.value))
}

fn column_name(expr: &Expr) -> Option<&'static str> {
    match expr {
        Expr::Nested(inner) | Expr::Cast { expr: inner, .. } => column_name(inner),
        Expr::Function(function) => name_of(function),
        _ => None,
    }
}

/// What a call asks; `None` for one that is left to the plan.
fn call_of(function: &Function) -> Result<Option<SettingCall>, SqlError> {
    let args = plain_args(function);
    match (name_of(function), args.as_slice()) {
        (Some(CURRENT), [name, rest @ ..]) if rest.len() <= 1 => {
            let missing_ok = match rest {
                [flag] => truth(flag),
                _ => Some(false),
            };
            let name = constant(name).flatten();
            Ok(name
                .zip(missing_ok)
                .map(|(name, missing_ok)| SettingCall::Current { name, missing_ok }))
        }
        (Some(SET), [name, value, is_local]) => {
            match (constant(name).flatten(), constant(value), truth(is_local)) {
                (Some(name), Some(value), Some(false)) => Ok(Some(SettingCall::Set { name, value })),
                (_, _, Some(true)) => {
                    let error = unsupported(function, "set_config() for one transaction");
                    Err(error.with_hint("Give false as its last argument, or use SET."))
                }
                _ => {
                    let error = unsupported(function, "set_config() of values that are no constants");
                    Err(error.with_hint("Give constants or parameters."))
                }
            }
        }
        _ => Ok(None),
    }
}

fn unsupported(function: &Function, what: &str) -> SqlError {
    let error = SqlError::unsupported(what);
    let first = function.name.0.first().and_then(ast::ObjectNamePart::as_ident);
    match first.and_then(|name| position_of(name.span)) {
        Some(position) => error.at(position),
        None => error,
    }
}

/// The text of a constant, `Some(None)` for NULL; `None` for what is no constant.
fn constant(expr: &Expr) -> Option<Option<String>> {
    match expr {
        Expr::Nested(inner) | Expr::Cast { expr: inner, .. } => constant(inner),
        Expr::Value(value) => match &value.value {
            Value::SingleQuotedString(text) => Some(Some(text.clone())),
            Value::Null => Some(None),
            _ => None,
        },
        _ => None,
    }
}

fn truth(expr: &Expr) -> Option<bool> {
    match expr {
        Expr::Value(value) => match value.value {
            Value::Boolean(truth) => Some(truth),
            _ => None,
        },
        _ => match constant(expr)??.as_str() {
            "t" | "true" => Some(true),
            "f" | "false" => Some(false),
            _ => None,
        },
    }
}

/// Whether a query is one SELECT without FROM, which gives one row.
fn is_without_rows(query: &Query) -> bool {
    let SetExpr::Select(select) = query.body.as_ref() else {
        return false;
    };
    let is_ungrouped = matches!(&select.group_by, GroupByExpr::Expressions(keys, _) if keys.is_empty());
    query.with.is_none()
        && select.from.is_empty()
        && select.selection.is_none()
        && select.having.is_none()
        && is_ungrouped
        && query.limit_clause.is_none()
}

fn text(value: Option<String>) -> Expr {
    let value = value.map_or(Value::Null, Value::SingleQuotedString);
    Expr::Cast {
        kind: CastKind::Cast,
        expr: Box::new(Expr::value(value)),
        data_type: DataType::Text,
        array: false,
        format: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse::parse_query;

    fn calls(sql: &str) -> Result<Vec<SettingCall>, SqlError> {
        setting_calls(&parse_query(sql).unwrap())
    }

    #[test]
    fn calls_are_answered_in_their_order() {
        let sql = "SELECT current_setting('jit') AS cur, pg_catalog.set_config('jit', 'off', false), upper(current_setting('x', true))";
        let found = calls(sql).unwrap();
        assert_eq!(
            found,
            [
                SettingCall::Current {
                    name: "jit".to_owned(),
                    missing_ok: false
                },
                SettingCall::Set {
                    name: "jit".to_owned(),
                    value: Some("off".to_owned())
                },
                SettingCall::Current {
                    name: "x".to_owned(),
                    missing_ok: true
                },
            ]
        );
        let answers = [Some("on".to_owned()), Some("off".to_owned()), None];
        let query = with_settings(&parse_query(sql).unwrap(), Some(&answers)).unwrap();
        assert_eq!(
            query.to_string(),
            "SELECT CAST('on' AS TEXT) AS cur, CAST('off' AS TEXT) AS set_config, upper(CAST(NULL AS TEXT))"
        );
    }

    #[test]
    fn what_cannot_be_set_so_is_refused() {
        for sql in [
            "SELECT set_config('jit', 'off', false) FROM t",
            "SELECT 1 WHERE set_config('jit', 'off', false) = 'off'",
            "SELECT set_config('jit', 'off', true)",
            "SELECT set_config('jit', upper('off'), false)",
        ] {
            assert!(calls(sql).is_err(), "{sql}");
        }
        assert_eq!(calls("SELECT current_setting(name) FROM t").unwrap(), []);
    }
}
