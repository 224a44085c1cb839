//! Set-returning functions in the text of a query: `unnest()` of lists, and in FROM lateral subqueries of them.
//!
//! ```text
//! SELECT jsonb_array_elements(j)            ─▶ SELECT unnest(jsonb_array_elements(j))        the inner one gives a list
//! FROM t, jsonb_each(t.j) AS e              ─▶ FROM t, LATERAL (SELECT unnest(jsonb_object_keys(t.j)) AS key,
//!                                                                unnest(jsonb_object_values(t.j)) AS value) AS e
//! ```

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    Expr, FunctionArg, FunctionArgExpr, Ident, ObjectName, ObjectNamePart, Query, Select, SelectItem,
    SetExpr, TableAlias, TableFactor,
};
use datafusion::sql::sqlparser::tokenizer::Span;

use crate::calls;
use crate::parse::parse_query;
use crate::plan::functions::arrays::own;
use crate::plan::types::folded;
use crate::plan::walk::{PartMut, walk_mut};
use crate::{SqlError, SqlState};

/// What the name of a function has behind it where the function gives a list.
pub(super) const LIST_SUFFIX: &str = " list";

/// The columns of a function in FROM, and the list function of each.
type Columns = &'static [(&'static str, &'static str)];

fn columns_of(name: &str) -> Option<Columns> {
    let columns: Columns = match name
        .strip_prefix("jsonb_")
        .or_else(|| name.strip_prefix("json_"))?
    {
        "array_elements" => &[("value", "jsonb_array_elements")],
        "array_elements_text" => &[("value", "jsonb_array_elements_text")],
        // Without a name of its own the column is called like the table.
        "object_keys" => &[("", "jsonb_object_keys")],
        "each" => &[("key", "jsonb_each keys"), ("value", "jsonb_object_values")],
        "each_text" => &[
            ("key", "jsonb_each_text keys"),
            ("value", "jsonb_object_values_text"),
        ],
        _ => return None,
    };
    Some(columns)
}

/// Whether a relation in FROM is a call of one of these functions, or `unnest()`.
pub(crate) fn is_set_function(factor: &TableFactor) -> bool {
    call_of(factor).is_some()
}

/// The list function that a set-returning function of the select list takes its rows from.
fn list_function(name: &str) -> Option<&'static str> {
    match name
        .strip_prefix("jsonb_")
        .or_else(|| name.strip_prefix("json_"))?
    {
        "each" => Some("jsonb_each"),
        "each_text" => Some("jsonb_each_text"),
        _ => columns_of(name)?.first().map(|(_, list)| *list),
    }
}

/// A call in FROM.
struct Call<'a> {
    name: String,
    args: Vec<&'a Expr>,
    columns: Columns,
    alias: Option<&'a TableAlias>,
    /// WITH ORDINALITY
    is_numbered: bool,
}

fn call_of(factor: &TableFactor) -> Option<Call<'_>> {
    let (name, args, alias, is_numbered) = match factor {
        TableFactor::Table {
            name,
            args: Some(args),
            alias,
            with_ordinality,
            ..
        } => (name, &args.args, alias, *with_ordinality),
        TableFactor::Function {
            name,
            args,
            alias,
            with_ordinality,
            ..
        } => (name, args, alias, *with_ordinality),
        TableFactor::UNNEST {
            alias,
            array_exprs,
            with_offset: false,
            with_offset_alias: None,
            with_ordinality,
        } => {
            return Some(Call {
                name: "unnest".to_owned(),
                args: array_exprs.iter().collect(),
                columns: &[],
                alias: alias.as_ref(),
                is_numbered: *with_ordinality,
            });
        }
        _ => return None,
    };
    let [ObjectNamePart::Identifier(ident)] = name.0.as_slice() else {
        return None;
    };
    let name = folded(ident);
    let columns = match name.as_str() {
        "unnest" => &[],
        name => columns_of(name)?,
    };
    let args = args.iter().map(|arg| match arg {
        FunctionArg::Unnamed(FunctionArgExpr::Expr(expr)) => Some(expr),
        _ => None,
    });
    Some(Call {
        args: args.collect::<Option<_>>()?,
        name,
        columns,
        alias: alias.as_ref(),
        is_numbered,
    })
}

/// Writes the calls in FROM as subqueries; those behind another relation are lateral.
///
/// # Errors
/// None but for faults of the parser.
pub(crate) fn spread_from(query: &mut Query) -> Result<(), SqlError> {
    let mut open = vec![query.body.as_mut()];
    while let Some(body) = open.pop() {
        match body {
            SetExpr::SetOperation { left, right, .. } => open.extend([left.as_mut(), right.as_mut()]),
            SetExpr::Select(select) => {
                name_values(select)?;
                for (place, table) in select.from.iter_mut().enumerate() {
                    as_subquery(&mut table.relation, place > 0)?;
                    for join in &mut table.joins {
                        as_subquery(&mut join.relation, true)?;
                    }
                }
            }
            _ => {}
        }
    }
    Ok(())
}

/// Lets the name of a function of one column stand for its values: `SELECT f FROM jsonb_array_elements(…) AS f`. A column of
/// that name in another relation would be meant first, which is not looked at.
fn name_values(select: &mut Select) -> Result<(), SqlError> {
    let joined = select.from.iter().flat_map(|table| {
        let joins = table.joins.iter().map(|join| &join.relation);
        std::iter::once(&table.relation).chain(joins)
    });
    let named: Vec<(String, &'static str)> = joined
        .filter_map(|factor| {
            let call = call_of(factor)?;
            let alias = call.alias.filter(|alias| alias.columns.is_empty())?;
            match call.columns {
                [(column, _)] if !column.is_empty() => Some((folded(&alias.name), *column)),
                _ => None,
            }
        })
        .collect();
    if named.is_empty() {
        return Ok(());
    }
    walk_mut(select, &mut |part| {
        if let PartMut::Expr(expr) = part
            && let Expr::Identifier(ident) = expr
            && let Some((_, column)) = named.iter().find(|(alias, _)| *alias == folded(ident))
        {
            let mut column = Ident::with_quote('"', *column);
            column.span = ident.span;
            *expr = Expr::CompoundIdentifier(vec![ident.clone(), column]);
        }
        ControlFlow::Continue(())
    })
}

fn as_subquery(factor: &mut TableFactor, lateral: bool) -> Result<(), SqlError> {
    let Some(call) = call_of(factor) else {
        return Ok(());
    };
    let own_name = match call.alias {
        Some(alias) => alias.name.clone(),
        None => Ident::with_quote('"', &call.name),
    };
    let mut lists: Vec<(Ident, Expr)> = Vec::new();
    if call.columns.is_empty() {
        for (place, arg) in call.args.iter().enumerate() {
            // Columns of several arrays are told apart by the alias's list of columns.
            let name = match place {
                0 => own_name.clone(),
                _ => Ident::with_quote('"', format!("{}_{}", own_name.value, place + 1)),
            };
            lists.push((name, elements(arg)));
        }
    }
    for (name, list) in call.columns {
        let args = call.args.iter().map(|arg| (*arg).clone()).collect();
        let mut inner = calls::call("", args);
        if let Expr::Function(inner) = &mut inner {
            inner.name = list_name(list, Span::empty());
        }
        let name = match name.is_empty() {
            true => own_name.clone(),
            false => Ident::with_quote('"', *name),
        };
        lists.push((name, inner));
    }
    if call.is_numbered {
        let all = lists.iter().map(|(_, list)| list.clone()).collect();
        lists.push((Ident::new("ordinality"), calls::call(own::ORDINALS, all)));
    }
    let items = lists.into_iter().map(|(alias, list)| SelectItem::ExprWithAlias {
        expr: calls::call("unnest", vec![list]),
        alias,
    });
    let alias = call.alias.cloned().unwrap_or(TableAlias {
        explicit: true,
        name: own_name,
        columns: Vec::new(),
        at: None,
    });
    let mut subquery = parse_query("SELECT 1")?;
    match subquery.body.as_mut() {
        SetExpr::Select(select) => select.projection = items.collect(),
        _ => {
            return Err(SqlError::new(
                SqlState::InternalError,
                "a query of ours is not what it was",
            ));
        }
    }
    *factor = TableFactor::Derived {
        lateral,
        subquery,
        alias: Some(alias),
        sample: None,
    };
    Ok(())
}

/// The list whose elements `unnest(arg)` gives.
fn elements(arg: &Expr) -> Expr {
    match arg {
        // It is one of ours already.
        Expr::Function(inner) if inner.name.to_string().contains(' ') => arg.clone(),
        other => calls::call(own::ELEMENTS, vec![other.clone()]),
    }
}

/// Writes a call in the select list as `unnest()` of a list.
pub(crate) fn spread(expr: &mut Expr) {
    let Expr::Function(call) = expr else {
        return;
    };
    let [ObjectNamePart::Identifier(name)] = call.name.0.as_slice() else {
        return;
    };
    let Some(list) = list_function(&folded(name)) else {
        return;
    };
    let span = name.span;
    let mut inner = call.clone();
    inner.name = list_name(list, span);
    *expr = calls::call(Ident::with_span(span, "unnest"), vec![Expr::Function(inner)]);
}

fn list_name(function: &str, span: Span) -> ObjectName {
    let mut ident = Ident::with_quote('"', format!("{function}{LIST_SUFFIX}"));
    ident.span = span;
    ObjectName::from(vec![ident])
}
