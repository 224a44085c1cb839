//! Names for the columns of subqueries in expressions. DataFusion calls such a subquery by its column, and takes `sum(v)` of the
//! query and `sum(v)` of the subquery for one where it looks for a column of that name.
//!
//! ```text
//! SELECT sum(v) / (SELECT sum(v) FROM t) FROM t     ▶     SELECT sum(v) / (SELECT sum(v) AS "__subquery_1" FROM t) FROM t
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::ptr;

use datafusion::sql::sqlparser::ast::{
    Expr, FunctionArg, FunctionArgExpr, GroupByExpr, Ident, Query, SelectItem, SetExpr, TableFactor,
};

use crate::SqlError;
use crate::plan::names::leading_select_mut;
use crate::plan::walk::{PartMut, walk_mut};

/// Gives each column that has no name one of its own; subqueries of one text have the same, so that GROUP BY finds them.
///
/// # Errors
/// None of its own.
pub(crate) fn given(query: &mut Query) -> Result<(), SqlError> {
    let mut names: BTreeMap<String, usize> = BTreeMap::new();
    // Where those are that a function in FROM takes for its rows: their columns are named by who wrote them.
    let mut relations: BTreeSet<*const Query> = BTreeSet::new();
    walk_mut(query, &mut |part| {
        match part {
            PartMut::TableFactor(factor) => relations.extend(taken_as_rows(factor)),
            PartMut::Expr(Expr::Subquery(query) | Expr::InSubquery { subquery: query, .. })
                if !relations.contains(&ptr::from_ref(query.as_ref())) =>
            {
                name_column(query, &mut names);
            }
            _ => {}
        }
        ControlFlow::Continue(())
    })
}

/// The subqueries among the arguments of a function in FROM: `TUMBLE((SELECT …), …)`.
fn taken_as_rows(factor: &TableFactor) -> impl Iterator<Item = *const Query> {
    let args = match factor {
        TableFactor::Table { args: Some(own), .. } => own.args.as_slice(),
        TableFactor::Function { args, .. } => args.as_slice(),
        _ => &[],
    };
    args.iter().filter_map(|arg| match arg {
        FunctionArg::Unnamed(FunctionArgExpr::Expr(Expr::Subquery(query))) => {
            Some(ptr::from_ref(query.as_ref()))
        }
        _ => None,
    })
}

fn name_column(query: &mut Query, names: &mut BTreeMap<String, usize>) {
    let text = query.to_string();
    let is_plain = matches!(*query.body, SetExpr::Select(_)) && query.order_by.is_none();
    let Some(select) = leading_select_mut(&mut query.body) else {
        return;
    };
    // A name that nothing reads may be that of a column in WHERE.
    let is_unread = is_plain
        && select.distinct.is_none()
        && select.having.is_none()
        && matches!(&select.group_by, GroupByExpr::Expressions(keys, _) if keys.is_empty());
    if let [item] = select.projection.as_mut_slice()
        && let Some(expr) = match &*item {
            // A column has its relation in front of its name, and a window over a subquery names it.
            SelectItem::UnnamedExpr(Expr::Identifier(_) | Expr::CompoundIdentifier(_)) => None,
            SelectItem::UnnamedExpr(expr) => Some(expr),
            SelectItem::ExprWithAlias { expr, .. } if is_unread => Some(expr),
            _ => None,
        }
    {
        let next = names.len() + 1;
        let number = *names.entry(text).or_insert(next);
        *item = SelectItem::ExprWithAlias {
            expr: expr.clone(),
            alias: Ident::with_quote('"', format!("__subquery_{number}")),
        };
    }
}
