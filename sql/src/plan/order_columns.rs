//! Names in expressions of ORDER BY mean columns of FROM; only a name that stands there alone means what the list calls so. DataFusion
//! takes them for what the list calls so everywhere, so that those that are columns get their relation in front.
//!
//! ```text
//! SELECT c AS a, max(a) FROM t GROUP BY c ORDER BY max(a)     ▶     … ORDER BY max(t.a)
//! ```

use std::collections::BTreeSet;
use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    Expr, GroupByExpr, Ident, OrderByKind, Query, Select, SelectItem, SetExpr,
};

use crate::SqlError;
use crate::catalog::Catalog;
use crate::plan::from_columns::{Row, Scope};
use crate::plan::inner_names::names_in_clauses;
use crate::plan::place::position_of;
use crate::plan::types::folded;
use crate::plan::walk::{Part, PartMut, walk, walk_mut};

/// Puts relations in front of such names.
///
/// # Errors
/// None of its own.
pub(crate) fn qualified(query: &mut Query, catalog: &Catalog) -> Result<(), SqlError> {
    let mut scopes = vec![Scope::new(catalog)];
    walk_mut(query, &mut |part| {
        match part {
            PartMut::Query(query) => {
                if let Some(inner) = scopes.last().map(|around| around.within(query)) {
                    scopes.push(inner);
                }
            }
            PartMut::QueryEnd(query) => {
                if let Some(scope) = scopes.pop() {
                    if scopes.len() == 1 {
                        out_of_the_way(query);
                    }
                    if let Err(error) = in_query(query, &scope) {
                        return ControlFlow::Break(Box::new(error));
                    }
                }
            }
            _ => {}
        }
        ControlFlow::Continue(())
    })
}

fn in_query(query: &mut Query, scope: &Scope<'_>) -> Result<(), SqlError> {
    let (SetExpr::Select(select), Some(order_by)) = (query.body.as_ref(), query.order_by.as_mut()) else {
        return Ok(());
    };
    let OrderByKind::Expressions(keys) = &mut order_by.kind else {
        return Ok(());
    };
    let given = given(select);
    if given.is_empty() {
        return Ok(());
    }
    let rows = scope.rows(select);
    let is_grouped = !matches!(&select.group_by, GroupByExpr::Expressions(groups, _) if groups.is_empty());
    let keys = keys.iter_mut().map(|key| &mut key.expr);
    for key in keys.filter(|key| !matches!(key, Expr::Identifier(_))) {
        if let Some(name) = in_expression(key, &given, &rows)?
            && !is_grouped
        {
            return Err(hidden(&name));
        }
    }
    Ok(())
}

/// Gives what the list of the outermost query calls like a column that its ORDER BY reads another name: its columns are named when all
/// is planned.
fn out_of_the_way(query: &mut Query) {
    let (SetExpr::Select(select), Some(order_by)) = (query.body.as_mut(), query.order_by.as_mut()) else {
        return;
    };
    let OrderByKind::Expressions(keys) = &mut order_by.kind else {
        return;
    };
    let mut read = BTreeSet::new();
    for key in keys.iter().filter(|key| !matches!(key.expr, Expr::Identifier(_))) {
        let walked = walk(&key.expr, &mut |part| {
            match part {
                Part::Expr(Expr::Identifier(name)) => read.extend([folded(name)]),
                Part::Expr(Expr::CompoundIdentifier(parts)) => read.extend(parts.last().map(folded)),
                _ => {}
            }
            ControlFlow::Continue(())
        });
        debug_assert!(walked.is_ok(), "the walk never breaks off");
    }
    let given = given(select);
    let kept = names_in_clauses(select);
    for (place, item) in select.projection.iter_mut().enumerate() {
        let SelectItem::ExprWithAlias { alias, .. } = item else {
            continue;
        };
        let name = folded(alias);
        if !given.contains(&name) || !read.contains(&name) || kept.contains(&name) {
            continue;
        }
        let other = Ident::with_quote('"', format!("?column {}?", place + 1));
        for key in keys.iter_mut() {
            if matches!(&key.expr, Expr::Identifier(own) if folded(own) == name) {
                key.expr = Expr::Identifier(other.clone());
            }
        }
        *alias = other;
    }
}

/// Beside what the list calls so, the planner has no place for a column of that name.
fn hidden(name: &Ident) -> SqlError {
    let error = SqlError::unsupported(format!(
        "an expression of ORDER BY over the column \"{}\", by whose name the list calls something else,",
        folded(name)
    ));
    let error = error.with_hint("Give the item of the list another name.");
    match position_of(name.span) {
        Some(position) => error.at(position),
        None => error,
    }
}

/// What the list calls otherwise than the column of that name.
fn given(select: &Select) -> Vec<String> {
    let given = select.projection.iter().filter_map(|item| match item {
        SelectItem::ExprWithAlias { expr, alias } => {
            let own = match expr {
                Expr::Identifier(name) => Some(name),
                Expr::CompoundIdentifier(parts) => parts.last(),
                _ => None,
            };
            let name = folded(alias);
            (own.map(folded).as_ref() != Some(&name)).then_some(name)
        }
        _ => None,
    });
    given.collect()
}

/// Puts relations in front of the names in an expression; one of those, if there is any.
fn in_expression(key: &mut Expr, given: &[String], rows: &[Row]) -> Result<Option<Ident>, SqlError> {
    let mut depth = 0_usize;
    let mut found = None;
    walk_mut(key, &mut |part| {
        match part {
            PartMut::Query(_) => depth += 1,
            PartMut::QueryEnd(_) => depth -= 1,
            PartMut::Expr(expr) if depth == 0 => {
                if let Expr::Identifier(name) = &*expr
                    && given.contains(&folded(name))
                    && let Some(relation) = owner(&folded(name), rows)
                {
                    let relation = Ident {
                        value: relation.to_owned(),
                        quote_style: Some('"'),
                        span: name.span,
                    };
                    found = Some(name.clone());
                    *expr = Expr::CompoundIdentifier(vec![relation, name.clone()]);
                }
            }
            _ => {}
        }
        ControlFlow::Continue(())
    })?;
    Ok(found)
}

/// The one relation that has a column of this name.
fn owner<'r>(column: &String, rows: &'r [Row]) -> Option<&'r str> {
    let mut owners = rows.iter().filter(|row| {
        row.columns
            .as_ref()
            .is_none_or(|columns| columns.contains(column))
    });
    match (owners.next(), owners.next()) {
        (Some(row), None) if row.columns.is_some() && !row.name.is_empty() => Some(&row.name),
        _ => None,
    }
}
