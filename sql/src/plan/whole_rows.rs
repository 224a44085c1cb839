//! `row_to_json(t)`, where `t` is a relation: the row as a value, with the names of its columns.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    Expr, Function, FunctionArg, FunctionArgExpr, FunctionArguments, Ident, Query, Select, SetExpr,
    TableFactor, Value,
};

use crate::SqlError;
use crate::catalog::{Catalog, ObjectBody};
use crate::plan::context::catalog_table;
use crate::plan::spelled::call;
use crate::plan::types::folded;
use crate::plan::walk::{PartMut, walk_mut};

/// Functions that take a row.
const OF_ROWS: [&str; 5] = ["row_to_json", "to_json", "to_jsonb", "json_agg", "jsonb_agg"];

/// A relation of FROM: what it is called, and its columns.
pub(crate) struct Row {
    pub(crate) name: String,
    pub(crate) columns: Vec<String>,
    /// Those of its primary key; none, if it has no such key.
    pub(crate) key: Vec<String>,
}

/// Writes out the rows of tables, sources and views that such functions are given.
///
/// # Errors
/// None.
pub(crate) fn written_out(query: &mut Query, catalog: &Catalog) -> Result<(), SqlError> {
    walk_mut(query, &mut |part| {
        let written = match part {
            PartMut::QueryEnd(query) => in_query(query, catalog),
            _ => Ok(()),
        };
        match written {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => ControlFlow::Break(Box::new(error)),
        }
    })
}

fn in_query(query: &mut Query, catalog: &Catalog) -> Result<(), SqlError> {
    let ctes = names_of_ctes(query);
    let mut rest = vec![query.body.as_mut()];
    while let Some(body) = rest.pop() {
        match body {
            SetExpr::Select(select) => in_select(select, catalog, &ctes)?,
            SetExpr::SetOperation { left, right, .. } => rest.extend([left.as_mut(), right.as_mut()]),
            _ => {}
        }
    }
    Ok(())
}

/// What the common table expressions of a query are called.
pub(crate) fn names_of_ctes(query: &Query) -> Vec<String> {
    let tables = query.with.iter().flat_map(|with| &with.cte_tables);
    tables.map(|cte| folded(&cte.alias.name)).collect()
}

/// The tables, sources and views in the FROM of a SELECT.
pub(crate) fn rows_of(select: &Select, catalog: &Catalog, ctes: &[String]) -> Vec<Row> {
    let factors = select.from.iter().flat_map(|table| {
        let joined = table.joins.iter().map(|join| &join.relation);
        std::iter::once(&table.relation).chain(joined)
    });
    factors
        .filter_map(|factor| row_of(factor, catalog, ctes))
        .collect()
}

fn in_select(select: &mut Select, catalog: &Catalog, ctes: &[String]) -> Result<(), SqlError> {
    let rows = rows_of(select, catalog, ctes);
    if rows.is_empty() {
        return Ok(());
    }
    walk_mut(&mut select.projection, &mut |part| {
        if let PartMut::Expr(Expr::Function(function)) = part {
            in_call(function, &rows);
        }
        ControlFlow::Continue(())
    })
}

fn row_of(factor: &TableFactor, catalog: &Catalog, ctes: &[String]) -> Option<Row> {
    let TableFactor::Table {
        name,
        alias,
        args: None,
        ..
    } = factor
    else {
        return None;
    };
    let [part] = name.0.as_slice() else { return None };
    let relation = folded(part.as_ident()?);
    if ctes.contains(&relation) {
        return None;
    }
    let object = catalog.get(&relation)?;
    let table = catalog_table(object).ok()?;
    let schema = table.schema();
    let mut columns: Vec<String> = schema.fields().iter().map(|field| field.name().clone()).collect();
    let name = match alias {
        Some(alias) => {
            for (column, named) in columns.iter_mut().zip(&alias.columns) {
                *column = folded(&named.name);
            }
            folded(&alias.name)
        }
        None => relation,
    };
    let key = match &object.body {
        ObjectBody::Table(def) => def.primary_key.as_slice(),
        _ => &[],
    };
    let key = key.iter().filter_map(|at| columns.get(*at).cloned()).collect();
    Some(Row { name, columns, key })
}

fn in_call(function: &mut Function, rows: &[Row]) {
    let name = function.name.to_string().to_lowercase();
    let FunctionArguments::List(list) = &mut function.args else {
        return;
    };
    if !OF_ROWS.contains(&name.as_str()) {
        return;
    }
    let [FunctionArg::Unnamed(FunctionArgExpr::Expr(arg))] = list.args.as_mut_slice() else {
        return;
    };
    let Expr::Identifier(ident) = &*arg else { return };
    let wanted = folded(ident);
    // A column of that name is meant before a relation.
    if rows.iter().any(|row| row.columns.contains(&wanted)) {
        return;
    }
    let Some(row) = rows.iter().find(|row| row.name == wanted) else {
        return;
    };
    let quoted = |name: &str| Ident::with_quote('"', name);
    let fields = row.columns.iter().flat_map(|column| {
        let name = Expr::Value(Value::SingleQuotedString(column.clone()).with_empty_span());
        let value = Expr::CompoundIdentifier(vec![quoted(&row.name), quoted(column)]);
        [name, value]
    });
    *arg = call("named_struct", fields.collect());
}
