//! GROUP BY the primary key of a table: its other columns have one value in each group, so that they may stand beside it.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    Expr, GroupByExpr, Ident, OrderBy, Query, Select, SelectItem, SelectItemQualifiedWildcardKind, SetExpr,
    Visit,
};

use crate::SqlError;
use crate::catalog::Catalog;
use crate::plan::from_columns::{Row, Scope};
use crate::plan::functions::Functions;
use crate::plan::types::folded;
use crate::plan::walk::{Part, PartMut, walk, walk_mut};

/// Groups by the columns that depend on the primary keys by which a query groups, as far as it shows them.
///
/// # Errors
/// None.
pub(crate) fn grouped(query: &mut Query, catalog: &Catalog) -> Result<(), SqlError> {
    walk_mut(query, &mut |part| {
        let changed = match part {
            PartMut::QueryEnd(query) => in_query(query, catalog),
            _ => Ok(()),
        };
        match changed {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => ControlFlow::Break(Box::new(error)),
        }
    })
}

fn in_query(query: &mut Query, catalog: &Catalog) -> Result<(), SqlError> {
    let scope = Scope::new(catalog).within(query);
    let Query { body, order_by, .. } = query;
    match body.as_mut() {
        SetExpr::Select(select) => in_select(select, order_by.as_ref(), &scope),
        SetExpr::SetOperation { left, right, .. } => {
            let mut rest = vec![left.as_mut(), right.as_mut()];
            while let Some(body) = rest.pop() {
                match body {
                    SetExpr::Select(select) => in_select(select, None, &scope)?,
                    SetExpr::SetOperation { left, right, .. } => {
                        rest.extend([left.as_mut(), right.as_mut()]);
                    }
                    _ => {}
                }
            }
            Ok(())
        }
        _ => Ok(()),
    }
}

fn in_select(select: &mut Select, order_by: Option<&OrderBy>, scope: &Scope<'_>) -> Result<(), SqlError> {
    let groups = match &select.group_by {
        GroupByExpr::Expressions(groups, modifiers) if !groups.is_empty() && modifiers.is_empty() => groups,
        _ => return Ok(()),
    };
    let rows = scope.rows(select);
    let is_grouped = |row: &Row, column: &str| groups.iter().any(|group| row.has(group, column, &rows));
    let known: Vec<&Row> = rows
        .iter()
        .filter(|row| !row.key.is_empty() && row.key.iter().all(|column| is_grouped(row, column)))
        .collect();
    if known.is_empty() {
        return Ok(());
    }
    let mut shown = Vec::new();
    see(&select.projection, &mut shown)?;
    see(&select.having, &mut shown)?;
    see(&order_by.cloned(), &mut shown)?;
    let mut more = Vec::new();
    for row in known {
        let is_whole = select.projection.iter().any(|item| match item {
            SelectItem::Wildcard(_) => true,
            SelectItem::QualifiedWildcard(SelectItemQualifiedWildcardKind::ObjectName(name), _) => {
                name.to_string().to_lowercase() == row.name
            }
            _ => false,
        });
        for column in row.columns.iter().flatten() {
            let is_shown = is_whole || shown.iter().any(|expr| row.has(expr, column, &rows));
            if is_shown && !is_grouped(row, column) {
                let quoted = |name: &str| Ident::with_quote('"', name);
                more.push(Expr::CompoundIdentifier(vec![quoted(&row.name), quoted(column)]));
            }
        }
    }
    if let GroupByExpr::Expressions(groups, _) = &mut select.group_by {
        groups.extend(more);
    }
    Ok(())
}

/// The columns that stand outside of aggregates.
fn see(part: &impl Visit, shown: &mut Vec<Expr>) -> Result<(), SqlError> {
    // For each expression around the place, whether it is an aggregate.
    let mut around: Vec<bool> = Vec::new();
    walk(part, &mut |part| {
        match part {
            Part::Expr(expr) => {
                let is_aggregate = match expr {
                    Expr::Function(call) => {
                        let name = call.name.to_string().to_lowercase();
                        call.over.is_none() && Functions::all().aggregate.contains_key(&name)
                    }
                    _ => false,
                };
                around.push(is_aggregate);
                let is_column = matches!(expr, Expr::Identifier(_) | Expr::CompoundIdentifier(_));
                if is_column && !around.contains(&true) {
                    shown.push(expr.clone());
                }
            }
            Part::ExprEnd => {
                around.pop();
            }
            _ => {}
        }
        ControlFlow::Continue(())
    })
}

impl Row {
    /// Whether an expression is this column of the relation; without a relation in front no other one has it.
    fn has(&self, expr: &Expr, column: &str, all: &[Row]) -> bool {
        match expr {
            Expr::Identifier(ident) => {
                let owners = all
                    .iter()
                    .filter(|row| row.columns.iter().flatten().any(|own| own == column));
                folded(ident) == column && owners.count() == 1
            }
            Expr::CompoundIdentifier(parts) => match parts.as_slice() {
                [relation, own] => folded(relation) == self.name && folded(own) == column,
                _ => false,
            },
            _ => false,
        }
    }
}
