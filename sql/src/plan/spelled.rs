//! What a query spells otherwise than DataFusion: prefix operators, `AT TIME ZONE`, `OVERLAPS`, functions without
//! parentheses, named arguments with defaults, and functions that give several rows.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    self, BinaryOperator, Expr, Function, FunctionArg, FunctionArgExpr, FunctionArgumentClause,
    FunctionArguments, Ident, ObjectName, Query, Select, SelectItem, SetExpr, TableAlias,
    TableAliasColumnDef, TableFactor, UnaryOperator, Value, VisitMut,
};

use crate::SqlError;
use crate::calls::call;
use crate::plan::arrays;
use crate::plan::functions::arrays::own;
use crate::plan::functions::{CUT, Functions, MATCHES, SERIES};
use crate::plan::hypothetical;
use crate::plan::named_windows;
use crate::plan::types::limited_text;
use crate::plan::walk::{Part, PartMut, walk, walk_mut};

/// Functions that give a row for each element of what another function gives as a list.
const SET_RETURNING: [(&str, &str); 5] = [
    ("regexp_matches", MATCHES),
    ("generate_series", SERIES),
    ("generate_subscripts", own::SUBSCRIPTS),
    ("regexp_split_to_table", "regexp_split_to_array"),
    ("string_to_table", "string_to_array"),
];

/// Whether a function of this name gives rows that a query can have in FROM.
pub(crate) fn is_set_returning(name: &ObjectName) -> bool {
    let name = name.to_string().to_lowercase();
    SET_RETURNING.iter().any(|(known, _)| *known == name)
}

/// Names of the arguments of `make_interval`, all of which may be left out.
const INTERVAL_PARTS: [&str; 7] = ["years", "months", "weeks", "days", "hours", "mins", "secs"];

/// Rewrites what is spelt otherwise.
///
/// # Errors
/// What no query can have, with its place.
pub(crate) fn in_our_words(ast: &mut impl VisitMut) -> Result<(), SqlError> {
    walk_mut(ast, &mut |part| {
        let changed = match part {
            PartMut::Query(_) => Ok(()),
            PartMut::QueryEnd(query) => named_windows::resolved(query),
            PartMut::Select(select) => {
                name_sets(select);
                Ok(())
            }
            PartMut::TableFactor(factor) => {
                table_of_set(factor);
                Ok(())
            }
            PartMut::Expr(expr) => {
                if let Expr::Function(function) = expr {
                    without_constant_keys(function);
                }
                expression(expr)
            }
        };
        match changed {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => ControlFlow::Break(Box::new(error)),
        }
    })
}

fn expression(expr: &mut Expr) -> Result<(), SqlError> {
    if arrays::in_our_words(expr)? {
        return Ok(());
    }
    let replaced = match expr {
        Expr::UnaryOp { op, expr: inner } => {
            let name = match op {
                UnaryOperator::PGSquareRoot => "sqrt",
                UnaryOperator::PGCubeRoot => "cbrt",
                UnaryOperator::PGAbs => "abs",
                UnaryOperator::BitwiseNot => {
                    let ones = Expr::UnaryOp {
                        op: UnaryOperator::Minus,
                        expr: Box::new(number("1")),
                    };
                    *expr = Expr::Nested(Box::new(Expr::BinaryOp {
                        left: inner.clone(),
                        op: BinaryOperator::PGBitwiseXor,
                        right: Box::new(Expr::Nested(Box::new(ones))),
                    }));
                    return Ok(());
                }
                _ => return Ok(()),
            };
            call(name, vec![take(inner)])
        }
        Expr::Cast { data_type, .. } => {
            let Some((plain, length)) = limited_text(data_type)? else {
                return Ok(());
            };
            *data_type = plain;
            call(CUT, vec![take(expr), number(&length.to_string())])
        }
        Expr::TypedString(typed) => {
            let Some((plain, length)) = limited_text(&typed.data_type)? else {
                return Ok(());
            };
            typed.data_type = plain;
            call(CUT, vec![take(expr), number(&length.to_string())])
        }
        Expr::AtTimeZone { timestamp, time_zone } => call("timezone", vec![take(time_zone), take(timestamp)]),
        Expr::BinaryOp {
            left,
            op: BinaryOperator::Overlaps,
            right,
        } => match (left.as_mut(), right.as_mut()) {
            (Expr::Tuple(left), Expr::Tuple(right)) if left.len() == 2 && right.len() == 2 => {
                call("overlaps", left.drain(..).chain(right.drain(..)).collect())
            }
            _ => return Ok(()),
        },
        Expr::Value(value) => {
            plain_text(&mut value.value);
            return Ok(());
        }
        Expr::Identifier(ident) if ident.quote_style.is_none() => match bare_function(ident) {
            Some(function) => function,
            None => return Ok(()),
        },
        Expr::Function(function) => match function_call(function)? {
            Some(replaced) => replaced,
            None => return Ok(()),
        },
        _ => return Ok(()),
    };
    *expr = replaced;
    Ok(())
}

/// A text with code points as any other: the tokenizer has read its escapes.
fn plain_text(value: &mut Value) {
    if let Value::UnicodeStringLiteral(text) = value {
        *value = Value::SingleQuotedString(std::mem::take(text));
    }
}

/// Takes numbers out of the ORDER BY of an aggregate, where they are constants and no places of columns.
fn without_constant_keys(function: &mut Function) {
    let FunctionArguments::List(list) = &mut function.args else {
        return;
    };
    let is_constant =
        |expr: &Expr| matches!(expr, Expr::Value(value) if matches!(value.value, Value::Number(..)));
    list.clauses.retain_mut(|clause| match clause {
        FunctionArgumentClause::OrderBy(keys) => {
            keys.retain(|key| !is_constant(&key.expr));
            !keys.is_empty()
        }
        _ => true,
    });
}

/// What stands for a call that is spelt otherwise; `None` for any other.
fn function_call(function: &Function) -> Result<Option<Expr>, SqlError> {
    if let Some(counts) = hypothetical::as_counts(function)? {
        return Ok(Some(counts));
    }
    let name = function.name.to_string().to_lowercase();
    Ok(match name.as_str() {
        "make_interval" => interval_parts(function).map(|args| call("make_interval", args)),
        "localtimestamp" => Some(local_now(ast::DataType::Timestamp(None, ast::TimezoneInfo::None))),
        "localtime" => Some(local_now(ast::DataType::Time(None, ast::TimezoneInfo::None))),
        "current_catalog" => Some(call("current_database", Vec::new())),
        "user" | "current_role" => Some(call("current_user", Vec::new())),
        // With one argument, up to midnight of the current day.
        "age" => match plain_args(function).as_slice() {
            [one] => Some(call("age", vec![call("current_date", Vec::new()), one.clone()])),
            _ => None,
        },
        "unnest" => match plain_args(function).as_slice() {
            [Expr::Function(inner)] if list_function(inner).is_some() => {
                list_function(inner).map(|list| call("unnest", vec![list]))
            }
            [list] => Some(call("unnest", vec![call(own::ELEMENTS, vec![list.clone()])])),
            _ => None,
        },
        _ => list_function(function).map(|list| call("unnest", vec![list])),
    })
}

/// The call of the function that gives as a list what this one gives as rows.
fn list_function(function: &Function) -> Option<Expr> {
    let name = function.name.to_string().to_lowercase();
    let (_, list) = SET_RETURNING.iter().find(|(known, _)| *known == name)?;
    Some(call(*list, plain_args(function)))
}

/// Arguments without names; none, if there is another.
pub(crate) fn plain_args(function: &Function) -> Vec<Expr> {
    let FunctionArguments::List(list) = &function.args else {
        return Vec::new();
    };
    unnamed(&list.args).unwrap_or_default()
}

fn unnamed(args: &[FunctionArg]) -> Option<Vec<Expr>> {
    let plain = args.iter().map(|arg| match arg {
        FunctionArg::Unnamed(FunctionArgExpr::Expr(expr)) => Some(expr.clone()),
        _ => None,
    });
    plain.collect()
}

/// All parts of an interval, those that are not named being zero.
fn interval_parts(function: &Function) -> Option<Vec<Expr>> {
    let FunctionArguments::List(list) = &function.args else {
        return None;
    };
    let mut parts: Vec<Expr> = INTERVAL_PARTS.iter().map(|_| number("0")).collect();
    let mut is_named = false;
    for (at, arg) in list.args.iter().enumerate() {
        let (place, value) = match arg {
            FunctionArg::Unnamed(FunctionArgExpr::Expr(value)) => (Some(at), value),
            FunctionArg::Named {
                name,
                arg: FunctionArgExpr::Expr(value),
                ..
            } => {
                is_named = true;
                let name = name.value.to_lowercase();
                (INTERVAL_PARTS.iter().position(|part| *part == name), value)
            }
            _ => return None,
        };
        *parts.get_mut(place?)? = value.clone();
    }
    is_named.then_some(parts)
}

/// Names that stand for a call without parentheses.
fn bare_function(ident: &Ident) -> Option<Expr> {
    match ident.value.to_lowercase().as_str() {
        "current_schema" => Some(call("current_schema", Vec::new())),
        "current_catalog" => Some(call("current_database", Vec::new())),
        "current_role" => Some(call("current_user", Vec::new())),
        "localtimestamp" => Some(local_now(ast::DataType::Timestamp(None, ast::TimezoneInfo::None))),
        "localtime" => Some(local_now(ast::DataType::Time(None, ast::TimezoneInfo::None))),
        _ => None,
    }
}

fn local_now(data_type: ast::DataType) -> Expr {
    let timestamp = Expr::Cast {
        kind: ast::CastKind::Cast,
        expr: Box::new(call("now", Vec::new())),
        data_type: ast::DataType::Timestamp(None, ast::TimezoneInfo::None),
        array: false,
        format: None,
    };
    match data_type {
        ast::DataType::Timestamp(..) => timestamp,
        other => Expr::Cast {
            kind: ast::CastKind::Cast,
            expr: Box::new(timestamp),
            data_type: other,
            array: false,
            format: None,
        },
    }
}

/// Gives functions of several rows in a select list the names that PostgreSQL gives them.
fn name_sets(select: &mut Select) {
    for item in &mut select.projection {
        if let SelectItem::UnnamedExpr(Expr::Function(function)) = item
            && list_function(function).is_some()
        {
            let name = function.name.to_string().to_lowercase();
            *item = SelectItem::ExprWithAlias {
                expr: Expr::Function(function.clone()),
                alias: Ident::new(name),
            };
        }
    }
}

/// A function of several rows in FROM becomes a query of its own, LATERAL where it reads columns.
fn table_of_set(factor: &mut TableFactor) {
    let (name, args, alias, is_numbered) = match factor {
        TableFactor::Table {
            name,
            args: Some(args),
            alias,
            with_ordinality,
            ..
        } => (name, args.args.as_slice(), alias, *with_ordinality),
        TableFactor::Function {
            name,
            args,
            alias,
            with_ordinality,
            ..
        } => (name, args.as_slice(), alias, *with_ordinality),
        _ => return,
    };
    let called = name.to_string().to_lowercase();
    let Some(args) = unnamed(args) else { return };
    let set = SET_RETURNING.iter().find(|(known, _)| *known == called);
    if set.is_none() && !gives_one_value(&called) {
        return;
    }
    let lateral = args.iter().any(reads_columns);
    // The one column is called like the table, unless the alias names it.
    let table = alias.clone().unwrap_or_else(|| TableAlias {
        explicit: true,
        name: Ident::new(called.clone()),
        columns: Vec::new(),
        at: None,
    });
    let column = table.name.clone();
    let named = |name: Ident| TableAliasColumnDef {
        name,
        data_type: None,
    };
    let mut columns = table.columns.clone();
    if columns.is_empty() {
        columns.push(named(column.clone()));
    }
    let mut items = Vec::with_capacity(2);
    match set {
        Some((_, list)) => {
            let list = call(*list, args);
            items.push((call("unnest", vec![list.clone()]), column));
            if is_numbered {
                let number = Ident::new("ordinality");
                if columns.len() == 1 {
                    columns.push(named(number.clone()));
                }
                items.push((call("unnest", vec![call(own::ORDINALS, vec![list])]), number));
            }
        }
        // A function of one value gives one row.
        None => items.push((call(called.as_str(), args), column)),
    }
    let Some(query) = select_of(items) else { return };
    *factor = TableFactor::Derived {
        lateral,
        subquery: Box::new(query),
        alias: Some(TableAlias { columns, ..table }),
        sample: None,
    };
}

/// Whether a function of this name gives one value, so that a query has a row of it in FROM.
fn gives_one_value(name: &str) -> bool {
    Functions::all().scalar.contains_key(name) && !["unnest", "session"].contains(&name)
}

/// `SELECT items`
fn select_of(items: Vec<(Expr, Ident)>) -> Option<Query> {
    let mut query = *crate::parse::parse_query("SELECT 1").ok()?;
    if let SetExpr::Select(select) = query.body.as_mut() {
        let items = items.into_iter();
        select.projection = items
            .map(|(expr, alias)| SelectItem::ExprWithAlias { expr, alias })
            .collect();
    }
    Some(query)
}

fn reads_columns(expr: &Expr) -> bool {
    let mut found = false;
    let walked = walk(expr, &mut |part| {
        found |= matches!(
            part,
            Part::Expr(Expr::Identifier(_) | Expr::CompoundIdentifier(_))
        );
        ControlFlow::Continue(())
    });
    debug_assert!(walked.is_ok(), "the walk never breaks off");
    found
}

/// A number as it stands in a query.
pub(crate) fn number(digits: &str) -> Expr {
    Expr::Value(Value::Number(digits.to_owned(), false).with_empty_span())
}

/// Takes the expression out of its place, which is replaced as a whole.
fn take(expr: &mut Expr) -> Expr {
    std::mem::replace(expr, Expr::Value(Value::Null.with_empty_span()))
}
