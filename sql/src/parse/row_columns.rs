//! `SET (a, b) = (SELECT x, y FROM …)`: a subquery for each of the columns.
//!
//! ```text
//! (SELECT x, y FROM u WHERE …)              ▶     (SELECT x FROM u WHERE …), (SELECT y FROM u WHERE …)
//! (SELECT DISTINCT x, y FROM u …)           ▶     (SELECT "?1?" FROM (SELECT DISTINCT x, y FROM u …) AS "?row?" ("?1?", "?2?")), …
//! (SELECT x, y FROM u ORDER BY z LIMIT 1)   ▶     (SELECT "?1?" FROM (SELECT … ORDER BY z, 1, 2 LIMIT 1) AS "?row?" ("?1?", "?2?")), …
//! ```
//!
//! All of them find the same row: among rows that an order leaves equal, their columns decide.

use datafusion::sql::sqlparser::ast::{
    Distinct, Expr, Function, GroupByExpr, Ident, ObjectNamePart, OrderByExpr, OrderByKind, Query, Select,
    SelectItem, SetExpr, TableAlias, TableAliasColumnDef, TableFactor,
};

use super::parse_query;

/// The name of the relation that has the columns of such a row, and has as many as it names.
pub(crate) const ROW: &str = "?row?";

/// Aggregates that make one group of all rows, whatever stands in the list beside them.
const AGGREGATES: [&str; 5] = ["count", "sum", "min", "max", "avg"];

/// The columns of the row that a subquery gives, each by a query of its own. `None` where it is seen to have not so many.
pub(super) fn of_subquery(query: &Query, width: usize) -> Option<Vec<Expr>> {
    if given(&query.body).is_some_and(|given| given != width) {
        return None;
    }
    let column = if is_apart(query) { alone } else { within };
    (0..width).map(|place| column(query, place, width)).collect()
}

/// How many columns a query gives, where that is seen.
fn given(body: &SetExpr) -> Option<usize> {
    let mut body = body;
    loop {
        body = match body {
            SetExpr::Select(select) if select.projection.iter().any(is_wild) => return None,
            SetExpr::Select(select) => return Some(select.projection.len()),
            SetExpr::Values(values) => return values.rows.first().map(|row| row.content.len()),
            SetExpr::SetOperation { left, .. } => left,
            SetExpr::Query(query) => &query.body,
            _ => return None,
        };
    }
}

fn is_wild(item: &SelectItem) -> bool {
    matches!(item, SelectItem::Wildcard(_) | SelectItem::QualifiedWildcard(..))
}

/// Whether nothing depends on the list but what each of its items says.
fn is_apart(query: &Query) -> bool {
    let SetExpr::Select(select) = query.body.as_ref() else {
        return false;
    };
    let is_grouped = match &select.group_by {
        GroupByExpr::Expressions(keys, _) => !keys.is_empty(),
        GroupByExpr::All(_) => true,
    };
    let list = &select.projection;
    let is_limited = query.limit_clause.is_some() || query.fetch.is_some() || query.order_by.is_some();
    let is_plain = !is_limited && !is_grouped && select.distinct.is_none() && select.having.is_none();
    is_plain && (list.iter().all(is_column) || list.iter().all(is_aggregate))
}

fn is_column(item: &SelectItem) -> bool {
    matches!(
        meant(item),
        Some(Expr::Identifier(_) | Expr::CompoundIdentifier(_))
    )
}

fn is_aggregate(item: &SelectItem) -> bool {
    let Some(Expr::Function(Function { name, over: None, .. })) = meant(item) else {
        return false;
    };
    match name.0.as_slice() {
        [ObjectNamePart::Identifier(name)] => {
            AGGREGATES.iter().any(|own| name.value.eq_ignore_ascii_case(own))
        }
        _ => false,
    }
}

fn meant(item: &SelectItem) -> Option<&Expr> {
    match item {
        SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. } => Some(expr),
        _ => None,
    }
}

/// The query with one item of its list.
fn alone(query: &Query, place: usize, _width: usize) -> Option<Expr> {
    let mut query = query.clone();
    let select = select_of(&mut query)?;
    let item = select.projection.get(place)?.clone();
    select.projection = vec![item];
    Some(Expr::Subquery(Box::new(query)))
}

/// A column of the query in FROM.
fn within(query: &Query, place: usize, width: usize) -> Option<Expr> {
    let name = |at: usize| Ident::with_quote('"', format!("?{at}?"));
    let mut outer = parse_query(&format!("SELECT x FROM (SELECT 1) AS \"{ROW}\"")).ok()?;
    let select = select_of(&mut outer)?;
    select.projection = vec![SelectItem::UnnamedExpr(Expr::Identifier(name(place)))];
    let TableFactor::Derived { subquery, alias, .. } = &mut select.from.first_mut()?.relation else {
        return None;
    };
    **subquery = in_one_order(query.clone(), width)?;
    let column = |at| TableAliasColumnDef {
        name: name(at),
        data_type: None,
    };
    let alias: &mut TableAlias = alias.as_mut()?;
    alias.columns = (0..width).map(column).collect();
    Some(Expr::Subquery(outer))
}

/// The query, whose LIMIT, OFFSET or DISTINCT ON takes the same rows however often it is run.
fn in_one_order(mut query: Query, width: usize) -> Option<Query> {
    let first_of = match select_of(&mut query).and_then(|select| select.distinct.clone()) {
        Some(Distinct::On(keys)) => keys,
        _ if query.limit_clause.is_none() && query.fetch.is_none() => return Some(query),
        _ => Vec::new(),
    };
    let places: Vec<String> = (1..=width).map(|place| place.to_string()).collect();
    let mut order = parse_query(&format!("SELECT 1 ORDER BY {}", places.join(", ")))
        .ok()?
        .order_by?;
    let OrderByKind::Expressions(places) = &mut order.kind else {
        return None;
    };
    let mut keys = match query.order_by.take().map(|order| order.kind) {
        Some(OrderByKind::Expressions(keys)) => keys,
        Some(OrderByKind::All(_)) => return None,
        None => Vec::new(),
    };
    let place = places.first()?.clone();
    for expr in first_of {
        if !keys.iter().any(|key| key.expr == expr) {
            keys.push(OrderByExpr {
                expr,
                ..place.clone()
            });
        }
    }
    keys.append(places);
    *places = keys;
    query.order_by = Some(order);
    Some(query)
}

fn select_of(query: &mut Query) -> Option<&mut Select> {
    match query.body.as_mut() {
        SetExpr::Select(select) => Some(select),
        _ => None,
    }
}
