//! Names for the columns of queries in FROM and in WITH, which outer queries read by them: PostgreSQL's, not DataFusion's.
//!
//! ```text
//! SELECT count FROM (SELECT count(*) FROM t) q     ▶     SELECT count FROM (SELECT count(*) AS "count" FROM t) q
//! ```

use std::collections::BTreeSet;
use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{Expr, GroupByExpr, Ident, Query, Select, SelectItem, TableFactor};

use crate::SqlError;
use crate::plan::names::{UNNAMED, is_column, item_name, leading_select_mut};
use crate::plan::types::folded;
use crate::plan::walk::{Part, PartMut, walk, walk_mut};

/// Gives each expression without a name in the list of such a query its name, unless that would take another meaning from it.
///
/// # Errors
/// None of its own.
pub(crate) fn given(query: &mut Query) -> Result<(), SqlError> {
    walk_mut(query, &mut |part| {
        match part {
            PartMut::TableFactor(TableFactor::Derived { subquery, alias, .. }) => {
                named(subquery, alias.as_ref().map_or(0, |alias| alias.columns.len()));
            }
            PartMut::Query(query) => {
                let tables = query.with.iter_mut().flat_map(|with| &mut with.cte_tables);
                tables.for_each(|table| named(&mut table.query, table.alias.columns.len()));
            }
            _ => {}
        }
        ControlFlow::Continue(())
    })
}

/// Gives every expression without a name in a list of columns a name of its own, for queries with expressions that are written
/// differently and mean the same.
///
/// # Errors
/// None of its own.
pub(crate) fn apart(query: &mut Query) -> Result<(), SqlError> {
    walk_mut(query, &mut |part| {
        if let PartMut::Select(select) = part {
            for (index, item) in select.projection.iter_mut().enumerate() {
                alias(item, || format!("?column {}?", index + 1));
            }
        }
        ControlFlow::Continue(())
    })
}

fn alias(item: &mut SelectItem, name: impl FnOnce() -> String) {
    if let SelectItem::UnnamedExpr(expr) = item
        && !is_column(expr)
    {
        *item = SelectItem::ExprWithAlias {
            expr: expr.clone(),
            alias: Ident::with_quote('"', name()),
        };
    }
}

/// The first columns, as many as `renamed`, have other names outside.
fn named(query: &mut Query, renamed: usize) {
    let Some(select) = leading_select_mut(&mut query.body) else {
        return;
    };
    tell_apart(&mut select.projection, renamed);
    // A name in these clauses means a column of FROM.
    let mut taken = names_in_clauses(select);
    let is_alone = |item: &SelectItem| match item {
        SelectItem::UnnamedExpr(expr) => is_column(expr),
        _ => true,
    };
    let own = select.projection.iter().filter(|item| is_alone(item));
    taken.extend(own.filter_map(item_name));
    for item in &mut select.projection {
        if is_alone(item) {
            continue;
        }
        let name = item_name(item).unwrap_or_else(|| UNNAMED.to_owned());
        if taken.insert(name.clone()) {
            alias(item, || name);
        }
    }
}

/// Gives columns that are called alike names of their own where nobody outside sees them: `(SELECT a, a FROM t) AS q (x, y)`.
fn tell_apart(list: &mut [SelectItem], renamed: usize) {
    let mut seen: BTreeSet<String> = list.iter().skip(renamed).filter_map(item_name).collect();
    for (place, item) in list.iter_mut().enumerate().take(renamed) {
        let (SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. }) = &*item else {
            return;
        };
        let expr = expr.clone();
        if item_name(item).is_some_and(|name| !seen.insert(name)) {
            *item = SelectItem::ExprWithAlias {
                expr,
                alias: Ident::with_quote('"', format!("?column {}?", place + 1)),
            };
        }
    }
}

/// The names that stand alone in GROUP BY, HAVING, DISTINCT ON and WINDOW.
pub(super) fn names_in_clauses(select: &Select) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    let mut see = |part: Part<'_>| {
        if let Part::Expr(Expr::Identifier(name)) = part {
            names.insert(folded(name));
        }
        ControlFlow::Continue(())
    };
    let grouped: &[Expr] = match &select.group_by {
        GroupByExpr::Expressions(keys, _) => keys,
        GroupByExpr::All(_) => &[],
    };
    let clauses = grouped.iter().chain(&select.having).chain(&select.qualify);
    let mut walked: Vec<_> = clauses.map(|expr| walk(expr, &mut see)).collect();
    walked.extend(select.distinct.iter().map(|distinct| walk(distinct, &mut see)));
    walked.extend(select.named_window.iter().map(|window| walk(window, &mut see)));
    debug_assert!(walked.iter().all(Result::is_ok), "the walk never breaks off");
    names
}
