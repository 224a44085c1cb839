//! The name of a relation where a value stands, `row_to_json(t)` or `count(t)`: the row as a value, with the names of its columns.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    CaseWhen, Expr, Function, FunctionArg, FunctionArgExpr, FunctionArguments, GroupByExpr, Ident, OrderBy,
    Query, Select, SelectItem, SetExpr, Value, VisitMut,
};

use crate::SqlError;
use crate::calls::call;
use crate::catalog::Catalog;
use crate::plan::from_columns::{Row, Scope};
use crate::plan::place::position_of;
use crate::plan::types::folded;
use crate::plan::walk::{PartMut, walk_mut};

/// Functions that take a row whatever else may have that name.
const OF_ROWS: [&str; 5] = ["row_to_json", "to_json", "to_jsonb", "json_agg", "jsonb_agg"];

/// Writes out the rows that relations stand for, and the common columns of NATURAL joins.
///
/// # Errors
/// The row of a relation without primary key on the outer side of a join: whether it is there is not known.
pub(crate) fn written_out(query: &mut Query, catalog: &Catalog) -> Result<(), SqlError> {
    let mut scopes = vec![Scope::new(catalog)];
    walk_mut(query, &mut |part| {
        let written = match part {
            PartMut::Query(query) => {
                if let Some(inner) = scopes.last().map(|around| around.within(query)) {
                    scopes.push(inner);
                }
                Ok(())
            }
            PartMut::QueryEnd(query) => match scopes.pop() {
                Some(scope) => in_query(query, &scope),
                None => Ok(()),
            },
            _ => Ok(()),
        };
        match written {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => ControlFlow::Break(Box::new(error)),
        }
    })
}

fn in_query(query: &mut Query, scope: &Scope<'_>) -> Result<(), SqlError> {
    let Query { body, order_by, .. } = query;
    if let SetExpr::Select(select) = body.as_mut() {
        return in_select(select, order_by.as_mut(), scope);
    }
    let mut rest = vec![body.as_mut()];
    while let Some(body) = rest.pop() {
        match body {
            SetExpr::Select(select) => in_select(select, None, scope)?,
            SetExpr::SetOperation { left, right, .. } => rest.extend([left.as_mut(), right.as_mut()]),
            _ => {}
        }
    }
    Ok(())
}

fn in_select(select: &mut Select, order_by: Option<&mut OrderBy>, scope: &Scope<'_>) -> Result<(), SqlError> {
    for table in &mut select.from {
        scope.write_out_natural(table, 0);
    }
    let rows = Rows {
        all: scope.rows(select),
    };
    for item in &mut select.projection {
        if let SelectItem::UnnamedExpr(Expr::Identifier(name)) = item
            && rows.meant(name).is_some()
        {
            *item = SelectItem::ExprWithAlias {
                expr: Expr::Identifier(name.clone()),
                alias: name.clone(),
            };
        }
    }
    let aliases: Vec<String> = select
        .projection
        .iter()
        .filter_map(|item| match item {
            SelectItem::ExprWithAlias { alias, .. } => Some(folded(alias)),
            _ => None,
        })
        .collect();
    rows.write(&mut select.projection, &[])?;
    rows.write(&mut select.selection, &[])?;
    rows.write(&mut select.having, &[])?;
    // What the list names is meant before a relation.
    if let GroupByExpr::Expressions(groups, _) = &mut select.group_by {
        let shown = |name: &Ident| {
            let name = folded(name);
            select.projection.iter().find_map(|item| match item {
                SelectItem::ExprWithAlias { expr, alias } if folded(alias) == name => Some(expr.clone()),
                _ => None,
            })
        };
        for group in groups.iter_mut() {
            if let Expr::Identifier(name) = &*group
                && rows.meant(name).is_some()
                && let Some(expr) = shown(name)
            {
                *group = expr;
            }
        }
        rows.write(groups, &[])?;
    }
    match order_by {
        Some(order_by) => rows.write(order_by, &aliases),
        None => Ok(()),
    }
}

/// The relations of a SELECT.
struct Rows {
    all: Vec<Row>,
}

impl Rows {
    /// The relation that a name means where a value stands. A column of that name is meant before a relation.
    fn meant(&self, name: &Ident) -> Option<&Row> {
        let known = self.all.iter().all(|row| row.columns.is_some());
        self.named(name).filter(|_| known)
    }

    /// As `meant`, if no relation whose columns are not known has a column of that name.
    fn named(&self, name: &Ident) -> Option<&Row> {
        let wanted = folded(name);
        let is_column = self
            .all
            .iter()
            .any(|row| row.columns.iter().flatten().any(|column| *column == wanted));
        let row = self.all.iter().find(|row| row.name == wanted);
        row.filter(|row| !is_column && row.columns.is_some())
    }

    /// Puts rows in the place of names of relations; `aliases` are not meant.
    fn write(&self, part: &mut impl VisitMut, aliases: &[String]) -> Result<(), SqlError> {
        let mut depth = 0_usize;
        walk_mut(part, &mut |part| {
            let written = match part {
                PartMut::Query(_) => {
                    depth += 1;
                    Ok(())
                }
                PartMut::QueryEnd(_) => {
                    depth -= 1;
                    Ok(())
                }
                PartMut::Expr(expr) if depth == 0 => self.write_one(expr, aliases),
                _ => Ok(()),
            };
            match written {
                Ok(()) => ControlFlow::Continue(()),
                Err(error) => ControlFlow::Break(Box::new(error)),
            }
        })
    }

    fn write_one(&self, expr: &mut Expr, aliases: &[String]) -> Result<(), SqlError> {
        match expr {
            Expr::Function(function) => self.write_argument(function),
            Expr::Identifier(name) if !aliases.contains(&folded(name)) => {
                let Some(row) = self.meant(name) else {
                    return Ok(());
                };
                *expr = value_of(row, name)?;
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn write_argument(&self, function: &mut Function) -> Result<(), SqlError> {
        let name = function.name.to_string().to_lowercase();
        let FunctionArguments::List(list) = &mut function.args else {
            return Ok(());
        };
        let [FunctionArg::Unnamed(arg)] = list.args.as_mut_slice() else {
            return Ok(());
        };
        let of_rows = OF_ROWS.contains(&name.as_str());
        let (ident, row) = match arg {
            FunctionArgExpr::Expr(Expr::Identifier(ident)) if of_rows => (ident.clone(), self.named(ident)),
            FunctionArgExpr::QualifiedWildcard(name) => match name.0.as_slice() {
                [part] => match part.as_ident() {
                    Some(ident) => (ident.clone(), self.starred(ident)?),
                    None => return Ok(()),
                },
                _ => return Ok(()),
            },
            _ => return Ok(()),
        };
        if let Some(row) = row {
            *arg = FunctionArgExpr::Expr(value_of(row, &ident)?);
        }
        Ok(())
    }

    /// The relation of `name.*`, which no column is. `None` for one whose rows are always there, and for one of an outer query.
    fn starred(&self, name: &Ident) -> Result<Option<&Row>, SqlError> {
        let wanted = folded(name);
        let row = self.all.iter().find(|row| row.name == wanted);
        let Some(row) = row.filter(|row| row.columns.is_some() || row.may_be_missing) else {
            return Ok(None);
        };
        if row.columns.is_some() {
            return Ok(Some(row));
        }
        let error = SqlError::unsupported(format!("the row of \"{wanted}\" on the outer side of a join"))
            .with_detail("Its columns are not known here.")
            .with_hint("Name its columns.");
        Err(match position_of(name.span) {
            Some(position) => error.at(position),
            None => error,
        })
    }
}

/// The row as a value; NULL where an outer join found none.
fn value_of(row: &Row, place: &Ident) -> Result<Expr, SqlError> {
    let quoted = |name: &str| Ident::with_quote('"', name);
    let column = |column: &str| Expr::CompoundIdentifier(vec![quoted(&row.name), quoted(column)]);
    let fields = row.columns.iter().flatten().flat_map(|own| {
        let name = Expr::Value(Value::SingleQuotedString(own.clone()).with_empty_span());
        [name, column(own)]
    });
    let value = call("named_struct", fields.collect());
    if !row.may_be_missing {
        return Ok(value);
    }
    let Some(key) = row.key.first() else {
        let what = format!("the row of \"{}\" on the outer side of a join", row.name);
        let error = SqlError::unsupported(what)
            .with_detail("It is NULL where the join finds none, and only a primary key tells.")
            .with_hint("Name its columns, or give the table a primary key.");
        return Err(match position_of(place.span) {
            Some(position) => error.at(position),
            None => error,
        });
    };
    let null = || Box::new(Expr::Value(Value::Null.with_empty_span()));
    Ok(Expr::Case {
        case_token: datafusion::sql::sqlparser::ast::helpers::attached_token::AttachedToken::empty(),
        end_token: datafusion::sql::sqlparser::ast::helpers::attached_token::AttachedToken::empty(),
        operand: None,
        conditions: vec![CaseWhen {
            condition: Expr::IsNotNull(Box::new(column(key))),
            result: value,
        }],
        else_result: Some(null()),
    })
}
