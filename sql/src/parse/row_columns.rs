//! `SET (a, b) = (SELECT x, y FROM …)`: a subquery for each of the columns.
//!
//! ```text
//! (SELECT x, y FROM u WHERE …)              ▶     (SELECT x FROM u WHERE …), (SELECT y FROM u WHERE …)
//! (SELECT DISTINCT x, y FROM u …)           ▶     (SELECT "?1?" FROM (SELECT DISTINCT x, y FROM u …) AS "?row?" ("?1?", "?2?")), …
//! ```

use datafusion::sql::sqlparser::ast::{
    Expr, GroupByExpr, Ident, OrderByKind, Query, Select, SelectItem, SetExpr, TableAlias,
    TableAliasColumnDef, TableFactor, Value,
};

use super::parse_query;

/// The columns of the row that a subquery gives, each by a query of its own. `None` where it has not so many.
pub(super) fn of_subquery(query: &Query, width: usize) -> Option<Vec<Expr>> {
    let list = match query.body.as_ref() {
        SetExpr::Select(select) if !select.projection.iter().any(is_wild) => {
            Some(select.projection.as_slice())
        }
        SetExpr::Values(values) => {
            let given = values.rows.first().map_or(0, |row| row.content.len());
            if given != width {
                return None;
            }
            None
        }
        _ => None,
    };
    match list {
        Some(list) if list.len() != width => None,
        Some(list) if is_apart(query, list) => (0..width).map(|place| alone(query, place)).collect(),
        _ => (0..width).map(|place| within(query, place, width)).collect(),
    }
}

fn is_wild(item: &SelectItem) -> bool {
    matches!(item, SelectItem::Wildcard(_) | SelectItem::QualifiedWildcard(..))
}

/// Whether nothing but the list itself depends on the list.
fn is_apart(query: &Query, list: &[SelectItem]) -> bool {
    let SetExpr::Select(select) = query.body.as_ref() else {
        return false;
    };
    let names_one = |key: &Expr| match key {
        Expr::Value(value) => matches!(value.value, Value::Number(..)),
        Expr::Identifier(name) => list.iter().any(|item| match item {
            SelectItem::ExprWithAlias { alias, .. } => alias.value.eq_ignore_ascii_case(&name.value),
            _ => false,
        }),
        _ => false,
    };
    let is_ordered_apart = match query.order_by.as_ref().map(|order| &order.kind) {
        None => true,
        Some(OrderByKind::Expressions(keys)) => !keys.iter().any(|key| names_one(&key.expr)),
        Some(_) => false,
    };
    let is_grouped_apart = match &select.group_by {
        // An aggregate in the list makes one group of all rows, also for what stands beside it.
        GroupByExpr::Expressions(keys, _) if keys.is_empty() => {
            list.iter().all(is_column) || list.iter().all(is_call)
        }
        GroupByExpr::Expressions(keys, _) => !keys.iter().any(names_one),
        GroupByExpr::All(_) => false,
    };
    select.distinct.is_none() && is_ordered_apart && is_grouped_apart
}

fn is_column(item: &SelectItem) -> bool {
    matches!(
        meant(item),
        Some(Expr::Identifier(_) | Expr::CompoundIdentifier(_))
    )
}

fn is_call(item: &SelectItem) -> bool {
    matches!(meant(item), Some(Expr::Function(_)))
}

fn meant(item: &SelectItem) -> Option<&Expr> {
    match item {
        SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. } => Some(expr),
        _ => None,
    }
}

/// The query with one item of its list.
fn alone(query: &Query, place: usize) -> Option<Expr> {
    let mut query = query.clone();
    select_of(&mut query)?.projection = {
        let item = select_of(&mut query)?.projection.get(place)?.clone();
        vec![item]
    };
    Some(Expr::Subquery(Box::new(query)))
}

/// A column of the query in FROM.
fn within(query: &Query, place: usize, width: usize) -> Option<Expr> {
    let name = |at: usize| Ident::with_quote('"', format!("?{at}?"));
    let mut outer = parse_query("SELECT x FROM (SELECT 1) AS \"?row?\"").ok()?;
    let select = select_of(&mut outer)?;
    select.projection = vec![SelectItem::UnnamedExpr(Expr::Identifier(name(place)))];
    let TableFactor::Derived { subquery, alias, .. } = &mut select.from.first_mut()?.relation else {
        return None;
    };
    **subquery = query.clone();
    let column = |at| TableAliasColumnDef {
        name: name(at),
        data_type: None,
    };
    let alias: &mut TableAlias = alias.as_mut()?;
    alias.columns = (0..width).map(column).collect();
    Some(Expr::Subquery(outer))
}

fn select_of(query: &mut Query) -> Option<&mut Select> {
    match query.body.as_mut() {
        SetExpr::Select(select) => Some(select),
        _ => None,
    }
}
