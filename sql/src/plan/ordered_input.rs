//! `array_agg`, `string_agg` and the like over a query with ORDER BY: PostgreSQL gives them the rows in that order, so it is
//! written into their calls.
//!
//! ```text
//! SELECT array_agg(a) FROM (SELECT a FROM t ORDER BY b) q
//!   ▶   SELECT array_agg(a ORDER BY q."?order 0?") FROM (SELECT a, b AS "?order 0?" FROM t ORDER BY b) q
//! ```

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    Expr, Function, FunctionArgumentClause, FunctionArgumentList, FunctionArguments, Ident, OrderByExpr,
    OrderByKind, Query, Select, SelectItem, SetExpr, TableFactor, Value, WildcardAdditionalOptions,
};

use crate::SqlError;
use crate::plan::names::{item_name, leading_select_mut};
use crate::plan::types::folded;
use crate::plan::walk::{Flow, PartMut, walk_mut};

/// Aggregates whose result depends on the order of their rows.
const SENSITIVE: [&str; 6] = [
    "array_agg",
    "string_agg",
    "jsonb_agg",
    "json_agg",
    "jsonb_object_agg",
    "json_object_agg",
];

/// Writes the order of the query in FROM into such aggregates without an order of their own.
///
/// # Errors
/// None of its own.
pub(crate) fn written_in(query: &mut Query) -> Result<(), SqlError> {
    walk_mut(query, &mut |part| {
        if let PartMut::QueryEnd(query) = part {
            in_query(query);
        }
        ControlFlow::Continue(())
    })
}

fn in_query(query: &mut Query) {
    let named: Vec<(String, Query)> = query
        .with
        .iter()
        .flat_map(|with| &with.cte_tables)
        .filter(|table| table.alias.columns.is_empty())
        .map(|table| (folded(&table.alias.name), table.query.as_ref().clone()))
        .collect();
    if let SetExpr::Select(select) = query.body.as_mut()
        && each_call(select, &mut |_| {})
        && let Some(mut keys) = order_below(select, &named)
    {
        // A key that stands there once more orders nothing.
        let mut known: Vec<Expr> = Vec::new();
        keys.retain(|key| {
            let is_new = !known.contains(&key.expr);
            known.push(key.expr.clone());
            is_new
        });
        each_call(select, &mut |list| {
            list.clauses.push(FunctionArgumentClause::OrderBy(keys.clone()));
        });
    }
}

/// Visits the arguments of such calls of a SELECT; whether there is one.
fn each_call(select: &mut Select, visit: &mut dyn FnMut(&mut FunctionArgumentList)) -> bool {
    let (mut found, mut depth) = (false, 0_usize);
    let mut see = |part: PartMut<'_>| -> Flow {
        match part {
            PartMut::Query(_) => depth += 1,
            PartMut::QueryEnd(_) => depth = depth.saturating_sub(1),
            PartMut::Expr(Expr::Function(function)) if depth == 0 => {
                if let Some(list) = unordered(function) {
                    found = true;
                    visit(list);
                }
            }
            _ => {}
        }
        ControlFlow::Continue(())
    };
    let mut walked = vec![walk_mut(&mut select.projection, &mut see)];
    walked.push(walk_mut(&mut select.having, &mut see));
    debug_assert!(walked.iter().all(Result::is_ok), "the walk never breaks off");
    found
}

/// The arguments of a call whose rows have no order.
fn unordered(function: &mut Function) -> Option<&mut FunctionArgumentList> {
    let name = function.name.to_string().to_lowercase();
    let is_plain = function.over.is_none() && function.within_group.is_empty();
    match &mut function.args {
        FunctionArguments::List(list)
            if is_plain
                && SENSITIVE.contains(&name.as_str())
                && list.duplicate_treatment.is_none()
                && list.clauses.is_empty() =>
        {
            Some(list)
        }
        _ => None,
    }
}

/// The order of the one query in FROM, by columns that it gives.
fn order_below(select: &mut Select, named: &[(String, Query)]) -> Option<Vec<OrderByExpr>> {
    // What a wildcard stands for must not become more.
    let has_wildcard = select.projection.iter().any(is_wild);
    let [table] = select.from.as_mut_slice() else {
        return None;
    };
    if !table.joins.is_empty() {
        return None;
    }
    match &mut table.relation {
        TableFactor::Derived { subquery, alias, .. } => {
            let called = alias.as_ref().map(|alias| &alias.name);
            let columns = alias.iter().flat_map(|alias| &alias.columns);
            let columns: Vec<Ident> = columns.map(|column| column.name.clone()).collect();
            let hides = !has_wildcard && columns.is_empty();
            keys_of(subquery, called, &columns, hides)
        }
        TableFactor::Table { name, alias, .. } => {
            let own = name.0.last().filter(|_| name.0.len() == 1)?.as_ident()?;
            let (_, query) = named.iter().find(|(known, _)| *known == folded(own))?;
            let called = alias.as_ref().map_or(own, |alias| &alias.name);
            keys_of(&mut query.clone(), Some(called), &[], false)
        }
        _ => None,
    }
}

/// The keys of the order of a query as its columns, which are called `columns` where they are renamed. A key that is no column is
/// added to them if it may be.
fn keys_of(
    query: &mut Query,
    called: Option<&Ident>,
    columns: &[Ident],
    may_add: bool,
) -> Option<Vec<OrderByExpr>> {
    let Query { body, order_by, .. } = query;
    let OrderByKind::Expressions(keys) = &order_by.as_ref()?.kind else {
        return None;
    };
    let may_add = may_add && matches!(body.as_ref(), SetExpr::Select(_));
    let select = leading_select_mut(body)?;
    if !columns.is_empty() && select.projection.iter().any(is_wild) {
        return None;
    }
    let places: Option<Vec<Place>> = keys.iter().map(|key| place_of(&key.expr, select)).collect();
    let keys = keys.iter().zip(places?).enumerate().map(|(at, (key, place))| {
        let known = match &place {
            Place::Item(place) => match columns.get(*place) {
                Some(column) => Some(column.clone()),
                None => only_name(&select.projection, *place),
            },
            Place::Column(name) if columns.is_empty() => Some(name.clone()),
            _ => None,
        };
        let name = match known {
            Some(name) => name,
            None if may_add && select.distinct.is_none() => {
                let name = format!("?order {at}?");
                let expr = match place {
                    Place::Item(place) => meant(select.projection.get(place)?)?.clone(),
                    _ => key.expr.clone(),
                };
                select.projection.push(SelectItem::ExprWithAlias {
                    expr,
                    alias: quoted(name.clone()),
                });
                quoted(name)
            }
            None => return None,
        };
        let expr = match called {
            Some(called) => Expr::CompoundIdentifier(vec![called.clone(), name]),
            None => Expr::Identifier(name),
        };
        Some(OrderByExpr { expr, ..key.clone() })
    });
    keys.collect()
}

fn is_wild(item: &SelectItem) -> bool {
    matches!(item, SelectItem::Wildcard(_) | SelectItem::QualifiedWildcard(..))
}

fn quoted(name: String) -> Ident {
    Ident::with_quote('"', name)
}

/// What an item of the list gives.
fn meant(item: &SelectItem) -> Option<&Expr> {
    match item {
        SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. } => Some(expr),
        _ => None,
    }
}

/// The name of an item of the list, where no other column is called so.
fn only_name(list: &[SelectItem], place: usize) -> Option<Ident> {
    let name = item_name(list.get(place)?)?;
    let is_other = |(at, item): (usize, &SelectItem)| at != place && item_name(item).as_ref() == Some(&name);
    let is_told = !list.iter().any(is_wild) && !list.iter().enumerate().any(is_other);
    is_told.then(|| quoted(name))
}

/// Where a key of ORDER BY stands among what a query gives.
enum Place {
    /// At this item of the list.
    Item(usize),
    /// Among the columns of a wildcard, under this name.
    Column(Ident),
    /// Nowhere.
    Beside,
}

/// `None` for a number that is none of the list, as far as that is known.
fn place_of(key: &Expr, select: &Select) -> Option<Place> {
    let list = select.projection.as_slice();
    if let Expr::Value(value) = key
        && let Value::Number(digits, _) = &value.value
    {
        let place = digits.parse::<usize>().ok()?.checked_sub(1)?;
        return (place < list.len() && !list.iter().any(is_wild)).then_some(Place::Item(place));
    }
    // A name alone is that of a column of the list before it is one of FROM.
    let called = match key {
        Expr::Identifier(name) => list
            .iter()
            .position(|item| item_name(item).as_ref() == Some(&folded(name))),
        _ => None,
    };
    let same = || list.iter().position(|item| meant(item) == Some(key));
    Some(match called.or_else(same) {
        Some(place) => Place::Item(place),
        None => of_all(key, select).map_or(Place::Beside, Place::Column),
    })
}

/// The column that a key is, where the list is all columns of the one relation of FROM.
fn of_all(key: &Expr, select: &Select) -> Option<Ident> {
    let ([SelectItem::Wildcard(options)], [table]) = (select.projection.as_slice(), select.from.as_slice())
    else {
        return None;
    };
    if !table.joins.is_empty() || *options != WildcardAdditionalOptions::default() {
        return None;
    }
    let relation = match &table.relation {
        TableFactor::Table { name, alias, .. } => match alias {
            Some(alias) => Some(&alias.name),
            None => name.0.last().and_then(|part| part.as_ident()),
        },
        TableFactor::Derived { alias, .. } => alias.as_ref().map(|alias| &alias.name),
        _ => None,
    };
    match key {
        Expr::Identifier(name) => Some(name.clone()),
        Expr::CompoundIdentifier(parts) => match parts.as_slice() {
            [.., table, name] if relation.map(folded) == Some(folded(table)) => Some(name.clone()),
            _ => None,
        },
        _ => None,
    }
}
