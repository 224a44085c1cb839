//! `ARRAY(SELECT …)` as the aggregate that it stands for: `(SELECT array_agg(… ORDER BY …) FROM …)`.

use std::fmt::Write;
use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    Expr, FunctionArgumentClause, FunctionArguments, GroupByExpr, Ident, OrderByExpr, OrderByKind, Query,
    Select, SelectItem, SetExpr, TableFactor, Value,
};

use crate::calls::call;
use crate::parse::parse_query;
use crate::plan::functions::Functions;
use crate::plan::spelled::is_set_returning;
use crate::plan::walk::{Part, walk};
use crate::{SqlError, SqlState};

/// The column of the values, where the query stands in FROM.
const VALUE: &str = "?value?";

/// The query of the array of the values of a query of one column.
///
/// # Errors
/// A query of several columns (42601).
pub(crate) fn as_array(mut query: Query) -> Result<Query, SqlError> {
    let keys = match query.order_by.take().map(|order| order.kind) {
        Some(OrderByKind::Expressions(keys)) => keys,
        _ => Vec::new(),
    };
    if let SetExpr::Select(select) = query.body.as_ref()
        && select.projection.len() > 1
    {
        let message = "subquery must return only one column";
        return Err(SqlError::new(SqlState::SyntaxError, message));
    }
    let is_cut = query.limit_clause.is_some() || query.fetch.is_some();
    match query.body.as_mut() {
        SetExpr::Select(select) if !is_cut && is_plain(select) => {
            in_place(select, keys);
            Ok(query)
        }
        _ => around(query, keys, is_cut),
    }
}

/// Whether a SELECT gives a row for each of its FROM.
fn is_plain(select: &Select) -> bool {
    let is_ungrouped = matches!(&select.group_by, GroupByExpr::Expressions(keys, _) if keys.is_empty());
    let item = match select.projection.as_slice() {
        [SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. }] => expr,
        _ => return false,
    };
    let walked = walk(item, &mut |part| match part {
        Part::Expr(Expr::Function(function)) => {
            let name = function.name.to_string().to_lowercase();
            let is_row_by_row = function.over.is_none()
                && !Functions::all().aggregate.contains_key(&name)
                && name != "unnest"
                && !name.starts_with("json")
                && !is_set_returning(&function.name);
            match is_row_by_row {
                true => ControlFlow::Continue(()),
                false => ControlFlow::Break(Box::new(SqlError::unsupported("an aggregate"))),
            }
        }
        _ => ControlFlow::Continue(()),
    });
    select.distinct.is_none() && is_ungrouped && select.having.is_none() && walked.is_ok()
}

/// Whether a key of ORDER BY is the value itself, by its number or its name.
fn is_value(key: &Expr, alias: Option<&Ident>) -> bool {
    match key {
        Expr::Value(value) => matches!(&value.value, Value::Number(digits, _) if digits == "1"),
        Expr::Identifier(name) => alias.is_some_and(|alias| alias.value == name.value),
        _ => false,
    }
}

fn in_place(select: &mut Select, keys: Vec<OrderByExpr>) {
    let (value, alias) = match select.projection.pop() {
        Some(SelectItem::UnnamedExpr(expr)) => (expr, None),
        Some(SelectItem::ExprWithAlias { expr, alias }) => (expr, Some(alias)),
        _ => return,
    };
    let keys: Vec<OrderByExpr> = keys
        .into_iter()
        .map(|mut key| {
            if is_value(&key.expr, alias.as_ref()) {
                key.expr = value.clone();
            }
            key
        })
        .collect();
    let mut aggregate = call("array_agg", vec![value]);
    if let Expr::Function(function) = &mut aggregate
        && let FunctionArguments::List(list) = &mut function.args
        && !keys.is_empty()
    {
        list.clauses.push(FunctionArgumentClause::OrderBy(keys));
    }
    select.projection.push(SelectItem::UnnamedExpr(aggregate));
}

/// The array over the query in FROM, which gives the keys of its order too.
fn around(mut query: Query, keys: Vec<OrderByExpr>, is_cut: bool) -> Result<Query, SqlError> {
    let (mut order, mut names) = (String::new(), format!("\"{VALUE}\""));
    let alias = match query.body.as_ref() {
        SetExpr::Select(select) => match select.projection.first() {
            Some(SelectItem::ExprWithAlias { alias, .. }) => Some(alias.clone()),
            Some(SelectItem::UnnamedExpr(Expr::Identifier(name))) => Some(name.clone()),
            _ => None,
        },
        _ => None,
    };
    for (at, key) in keys.iter().enumerate() {
        let mut name = VALUE.to_owned();
        if let (SetExpr::Select(select), false) = (query.body.as_mut(), is_value(&key.expr, alias.as_ref())) {
            let is_same = match select.projection.first() {
                Some(SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. }) => {
                    *expr == key.expr
                }
                _ => false,
            };
            if !is_same {
                name = format!("?order {at}?");
                let _ = write!(names, ", \"{name}\"");
                select.projection.push(SelectItem::ExprWithAlias {
                    expr: key.expr.clone(),
                    alias: Ident::with_quote('"', &name),
                });
            }
        }
        order.push_str(if at == 0 { " ORDER BY " } else { ", " });
        let _ = write!(order, "\"{name}\"{}", key.options);
    }
    if is_cut && !keys.is_empty() {
        query.order_by = Some(datafusion::sql::sqlparser::ast::OrderBy {
            kind: OrderByKind::Expressions(keys),
            interpolate: None,
        });
    }
    let text = format!("SELECT array_agg(\"{VALUE}\"{order}) FROM (SELECT 1) AS \"?given?\" ({names})");
    let mut collected = *parse_query(&text)?;
    if let SetExpr::Select(select) = collected.body.as_mut()
        && let Some(TableFactor::Derived { subquery, .. }) =
            select.from.first_mut().map(|table| &mut table.relation)
    {
        **subquery = query;
    }
    Ok(collected)
}
