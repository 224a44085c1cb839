//! `DISTINCT ON` with its keys in the sequence of ORDER BY, in which DataFusion wants them; PostgreSQL takes them for a set.
//!
//! ```text
//! SELECT DISTINCT ON (a, b) … ORDER BY b DESC, a, c     ▶     SELECT DISTINCT ON (b, a) … ORDER BY b DESC, a, c
//! SELECT DISTINCT ON (a, b) … ORDER BY b DESC           ▶     SELECT DISTINCT ON (b, a) … ORDER BY b DESC, a
//! SELECT DISTINCT ON (1) a AS x … ORDER BY x, 1, b      ▶     SELECT DISTINCT ON (a) a AS x … ORDER BY a, b
//! ```

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    Distinct, Expr, OrderByExpr, OrderByKind, OrderByOptions, Query, SelectItem, SetExpr, Value,
};

use crate::SqlError;
use crate::plan::types::folded;
use crate::plan::walk::{PartMut, walk_mut};

/// Brings such keys into the sequence of their ORDER BY.
///
/// # Errors
/// None of its own.
pub(crate) fn in_sequence(query: &mut Query) -> Result<(), SqlError> {
    walk_mut(query, &mut |part| {
        if let PartMut::Query(query) = part
            && let Some((keys, order)) = sequence(query)
            && let SetExpr::Select(select) = query.body.as_mut()
        {
            select.distinct = Some(Distinct::On(keys));
            if let Some(own) = &mut query.order_by {
                own.kind = OrderByKind::Expressions(order);
            }
        }
        ControlFlow::Continue(())
    })
}

/// The keys and the order that they are to have. `None` where the query stays as it is: DataFusion says what is wrong with it.
fn sequence(query: &Query) -> Option<(Vec<Expr>, Vec<OrderByExpr>)> {
    let SetExpr::Select(select) = query.body.as_ref() else {
        return None;
    };
    let Some(Distinct::On(given)) = &select.distinct else {
        return None;
    };
    let mut keys: Vec<Expr> = Vec::new();
    for key in given {
        push_new(&mut keys, meant(key, &select.projection)?);
    }
    let own = match query.order_by.as_ref().map(|order| &order.kind) {
        None => return Some((keys, Vec::new())),
        Some(OrderByKind::Expressions(own)) => own,
        Some(OrderByKind::All(_)) => return None,
    };
    let mut order: Vec<OrderByExpr> = Vec::new();
    for key in own {
        let expr = meant(&key.expr, &select.projection)?;
        if order.iter().any(|earlier| earlier.expr == expr) {
            continue;
        }
        if order.len() < keys.len() && !keys.contains(&expr) {
            return None;
        }
        order.push(OrderByExpr { expr, ..key.clone() });
    }
    for key in &keys {
        if !order.iter().any(|own| own.expr == *key) {
            order.push(ascending(key.clone()));
        }
    }
    let first = order.iter().take(keys.len());
    Some((first.map(|key| key.expr.clone()).collect(), order))
}

fn push_new(keys: &mut Vec<Expr>, key: Expr) {
    if !keys.contains(&key) {
        keys.push(key);
    }
}

fn ascending(expr: Expr) -> OrderByExpr {
    OrderByExpr {
        expr,
        options: OrderByOptions {
            asc: None,
            nulls_first: None,
        },
        with_fill: None,
    }
}

/// The expression that a key stands for: a number and a name are those of a column of the list, before all.
fn meant(key: &Expr, list: &[SelectItem]) -> Option<Expr> {
    let item = match key {
        Expr::Value(value) => match &value.value {
            Value::Number(digits, _) => {
                let place = digits.parse::<usize>().ok()?.checked_sub(1)?;
                list.get(..=place)?.last()
            }
            _ => None,
        },
        Expr::Identifier(name) => list.iter().find(|item| match item {
            SelectItem::ExprWithAlias { alias, .. } => folded(alias) == folded(name),
            _ => false,
        }),
        _ => None,
    };
    match (key, item) {
        // How many columns a wildcard stands for is not known yet.
        (Expr::Value(_), _) if list.iter().any(is_wild) => None,
        (_, Some(SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. })) => {
            Some(expr.clone())
        }
        _ => Some(key.clone()),
    }
}

fn is_wild(item: &SelectItem) -> bool {
    matches!(item, SelectItem::Wildcard(_) | SelectItem::QualifiedWildcard(..))
}
