//! Relations that are called like a column of a query within: there, `a.c` means the column `c` of the relation `a`, and DataFusion
//! takes it for a field `c` of the column `a`. Such a relation gets another name.
//!
//! ```text
//! FROM t AS a WHERE EXISTS (SELECT 1 FROM u WHERE u.a = a.c)     ▶     FROM t AS a_1 WHERE EXISTS (… u.a = a_1.c)
//! ```

use std::collections::BTreeSet;
use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    Expr, Ident, Query, Select, SelectItem, SelectItemQualifiedWildcardKind, SetExpr, TableAlias, TableFactor,
};

use crate::SqlError;
use crate::catalog::Catalog;
use crate::plan::from_columns::{Row, Scope};
use crate::plan::types::folded;
use crate::plan::walk::{PartMut, walk_mut};

/// Gives such relations another name. One whose columns are all taken by `a.*` keeps its own.
///
/// # Errors
/// None of its own.
pub(crate) fn told_apart(query: &mut Query, catalog: &Catalog) -> Result<(), SqlError> {
    let mut hidden = BTreeSet::new();
    let mut known = BTreeSet::new();
    names(query, catalog, &mut |around, parts| {
        for row in around.iter().flat_map(|query| &query.rows) {
            known.insert(row.name.clone());
            known.extend(row.columns.iter().flatten().cloned());
        }
        let [relation, _] = parts else {
            return;
        };
        if let Some(at) = hides(around, &folded(relation)) {
            hidden.insert((at, folded(relation)));
        }
    })?;
    for (at, old) in hidden {
        let free = (1_usize..).map(|number| format!("{old}_{number}"));
        let Some(new) = free.into_iter().find(|name| !known.contains(name)) else {
            continue;
        };
        known.insert(new.clone());
        rename(query, catalog, (at, &old), &new)?;
    }
    Ok(())
}

/// A query around a name.
struct Around<'a> {
    /// Which one it is, in the order of the text.
    at: usize,
    rows: Vec<Row>,
    scope: Scope<'a>,
}

/// Shows each name of several parts, with the queries around it.
fn names(
    query: &mut Query,
    catalog: &Catalog,
    see: &mut dyn FnMut(&[Around<'_>], &mut [Ident]),
) -> Result<(), SqlError> {
    let mut around: Vec<Around<'_>> = Vec::new();
    let mut count = 0;
    walk_mut(query, &mut |part| {
        match part {
            PartMut::Query(query) => {
                let scope = match around.last() {
                    Some(last) => last.scope.within(query),
                    None => Scope::new(catalog).within(query),
                };
                let rows = match query.body.as_ref() {
                    SetExpr::Select(select) => scope.rows(select),
                    _ => Vec::new(),
                };
                around.push(Around {
                    at: count,
                    rows,
                    scope,
                });
                count += 1;
            }
            PartMut::QueryEnd(_) => {
                around.pop();
            }
            PartMut::Expr(Expr::CompoundIdentifier(parts)) => see(&around, parts),
            _ => {}
        }
        ControlFlow::Continue(())
    })
}

/// The query whose relation of this name is hidden by a column of the innermost one.
fn hides(around: &[Around<'_>], name: &String) -> Option<usize> {
    let (inner, outer) = around.split_last()?;
    let is_column = |row: &Row| row.columns.as_ref().is_some_and(|columns| columns.contains(name));
    if inner.rows.iter().any(|row| row.name == *name) || !inner.rows.iter().any(is_column) {
        return None;
    }
    owner(outer, name)
}

/// The innermost of these queries that has a relation of this name.
fn owner(around: &[Around<'_>], name: &String) -> Option<usize> {
    let mut inner = around.iter().rev();
    let found = inner.find(|query| query.rows.iter().any(|row| row.name == *name))?;
    Some(found.at)
}

fn rename(
    query: &mut Query,
    catalog: &Catalog,
    (at, old): (usize, &String),
    new: &str,
) -> Result<(), SqlError> {
    let mut count = 0;
    let mut is_renamed = false;
    // Names are told apart by what relations are called now, so that these come first.
    let mut owned = Vec::new();
    names(query, catalog, &mut |around, parts| {
        let is_own = matches!(parts, [relation, _] if folded(relation) == *old);
        owned.push(is_own && owner(around, old) == Some(at));
    })?;
    walk_mut(query, &mut |part| {
        if let PartMut::Query(query) = part {
            if count == at
                && let SetExpr::Select(select) = query.body.as_mut()
            {
                is_renamed = !takes_all(select, old) && called(select, old, new);
            }
            count += 1;
        }
        ControlFlow::Continue(())
    })?;
    if !is_renamed {
        return Ok(());
    }
    let mut owned = owned.into_iter();
    walk_mut(query, &mut |part| {
        if let PartMut::Expr(Expr::CompoundIdentifier(parts)) = part
            && owned.next() == Some(true)
            && let Some(relation) = parts.first_mut()
        {
            relation.value = new.to_owned();
            relation.quote_style = Some('"');
        }
        ControlFlow::Continue(())
    })
}

fn takes_all(select: &Select, name: &String) -> bool {
    select.projection.iter().any(|item| match item {
        SelectItem::QualifiedWildcard(SelectItemQualifiedWildcardKind::ObjectName(of), _) => {
            let own = of.0.last().and_then(|part| part.as_ident());
            own.is_some_and(|own| folded(own) == *name)
        }
        _ => false,
    })
}

/// Calls a relation of FROM otherwise; whether it was found.
fn called(select: &mut Select, old: &String, new: &str) -> bool {
    let relations = select.from.iter_mut().flat_map(|table| {
        let joined = table.joins.iter_mut().map(|join| &mut join.relation);
        std::iter::once(&mut table.relation).chain(joined)
    });
    for relation in relations {
        let (own, alias) = match relation {
            TableFactor::Table { name, alias, .. } => {
                let own = name.0.last().and_then(|part| part.as_ident()).map(folded);
                (own, alias)
            }
            TableFactor::Derived { alias, .. } => (None, alias),
            _ => continue,
        };
        let is_it = match &*alias {
            Some(alias) => folded(&alias.name) == *old,
            None => own.as_ref() == Some(old),
        };
        if is_it {
            let columns = alias.take().map(|alias| alias.columns).unwrap_or_default();
            *alias = Some(TableAlias {
                explicit: true,
                name: Ident::with_quote('"', new),
                columns,
                at: None,
            });
            return true;
        }
    }
    false
}
