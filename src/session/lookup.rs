//! Lookups: a SELECT of the columns of one relation by its key is answered from the rows, without a plan.
//!
//! ```text
//! SELECT columns FROM relation WHERE key column = constant AND … [ORDER BY key columns] [LIMIT n]
//!   the whole key, one value: changed rows in memory, else the store          no snapshot is taken
//!   lists, prefixes, ranges: a reader of the view, up to a number of rows     beyond it, the query is planned
//! ```
//!
//! What is not exactly of this form is left to the planner, which looks up by key as well.

use std::sync::Arc;

use arrow::compute::concat_batches;
use arrow::datatypes::{DataType, Schema, SchemaRef};
use arrow::record_batch::RecordBatch;
use datafusion::scalar::ScalarValue;
use datafusion::sql::sqlparser::ast::{self, BinaryOperator, Expr, SelectItem, UnaryOperator, Value};
use highwater_sql::catalog::{Catalog, Object};
use highwater_sql::plan::arrow_type;
use highwater_storage::KeyOrder;

use super::select;
use crate::database::Database;
use crate::engine::query::output::SharedView;
use crate::error::{Error, Result};
use crate::outcome::Rows;
use crate::query::{self, Access, Conditions, Readers};

/// The most rows that are collected here; more come as a stream.
const ROWS_MAX: usize = 1_000;

/// What a query of this form says.
struct Lookup<'q> {
    /// The relation.
    name: String,
    /// What columns may be qualified by.
    qualifier: String,
    items: &'q [SelectItem],
    condition: &'q Expr,
    order_by: Vec<&'q Expr>,
    limit: Option<usize>,
}

/// The rows of a query that looks up by key; `None` for any other. `objects` are those that it names.
///
/// # Errors
/// Rows that cannot be read.
pub(super) fn rows(
    database: &Database,
    catalog: &Catalog,
    objects: &[Arc<Object>],
    query: &ast::Query,
) -> Result<Option<Rows>> {
    let ([object], Some(lookup)) = (objects, Lookup::of(query)) else {
        return Ok(None);
    };
    if object.name != lookup.name {
        return Ok(None);
    }
    let Some(plan) = object.body.stored() else {
        return Ok(None);
    };
    let (schema, key) = (&plan.root().schema, plan.root().key.as_deref());
    let mut conditions = Conditions::default();
    if lookup
        .demands(lookup.condition, schema, &mut conditions)
        .is_none()
    {
        return Ok(None);
    }
    let (Some(wanted), Some(order)) = (lookup.columns(schema), lookup.order(schema)) else {
        return Ok(None);
    };
    // What is being filled, or does not run, is waited for or told of elsewhere.
    let Ok(Some(view)) = database.shared.filled_view(object) else {
        return Ok(None);
    };
    let projection: Vec<usize> = wanted.iter().map(|(column, _)| *column).collect();
    let names: Vec<String> = wanted.into_iter().map(|(_, name)| name).collect();
    let batch = match key.and_then(|key| conditions.point(key)) {
        Some(values) if lookup.limit != Some(0) => Some(point(&view, &values, &projection)?),
        _ => {
            let own = view.rows.lock().reader();
            let readers = select::readers(database, catalog, &lookup.name, own);
            some(&readers, &conditions, (&projection, &order, lookup.limit))?
        }
    };
    batch.map(|batch| named(&batch, &names)).transpose()
}

/// The row of one key.
fn point(view: &SharedView, values: &[&ScalarValue], projection: &[usize]) -> Result<RecordBatch> {
    let arrays = values.iter().map(|value| value.to_array());
    let arrays = arrays
        .collect::<std::result::Result<Vec<_>, _>>()
        .map_err(query::translate)?;
    let stored = view.rows.lock().stored();
    let key = stored.whole_key(&arrays)?;
    let changed = view.rows.lock().changed(&key);
    // A checkpoint that becomes durable between the two has the row in the store.
    let value = match changed {
        Some(value) => value,
        None => stored.value(&key)?,
    };
    Ok(stored.row(&key, value.as_deref(), projection)?)
}

/// The rows of some keys or ranges of them, by key or by an index, as of one step; `None` for too many.
fn some(
    readers: &Readers,
    conditions: &Conditions,
    (projection, order, limit): (&[usize], &[usize], Option<usize>),
) -> Result<Option<RecordBatch>> {
    let choice = conditions.choose(&readers.all()).map_err(query::translate)?;
    let (reader, _) = readers.at(choice.place);
    // Columns that have one value each order nothing.
    let mut sorted_by = reader.sorted_by().iter().skip(choice.single);
    let is_sorted = order
        .iter()
        .all(|column| sorted_by.next() == Some(&(*column, KeyOrder::ASCENDING)));
    if !choice.is_exact || !is_sorted {
        return Ok(None);
    }
    let rows_max = limit.unwrap_or(ROWS_MAX);
    let batch = match choice.access {
        Access::Scan => return Ok(None),
        Access::Keys(keys) => reader.get_keys(&keys, Some(projection))?,
        Access::Ranges(ranges) => {
            if rows_max > ROWS_MAX {
                return Ok(None);
            }
            // One more than wanted tells that there are more.
            let wanted = rows_max + 1;
            let mut batches = Vec::new();
            let mut rows = 0;
            for batch in reader.scan_ranges(ranges, Some(projection), (wanted, wanted))? {
                let batch = batch?;
                rows += batch.num_rows();
                batches.push(batch);
                if rows >= wanted {
                    break;
                }
            }
            if limit.is_none() && rows > ROWS_MAX {
                return Ok(None);
            }
            let schema: SchemaRef = Arc::new(reader.schema().project(projection).map_err(broken)?);
            concat_batches(&schema, &batches).map_err(broken)?
        }
    };
    Ok(Some(batch.slice(0, batch.num_rows().min(rows_max))))
}

/// The rows with the names that the query gives the columns.
fn named(batch: &RecordBatch, names: &[String]) -> Result<Rows> {
    let schema = query::renamed(&batch.schema(), names)?;
    let batch = query::in_schema(&schema, batch).map_err(broken)?;
    Ok(Rows {
        schema,
        batches: vec![batch],
    })
}

fn broken(error: arrow::error::ArrowError) -> Error {
    Error::new("XX000", error.to_string())
}

impl<'q> Lookup<'q> {
    /// What a query says, if it is of this form.
    fn of(query: &'q ast::Query) -> Option<Self> {
        let ast::Query {
            with: None,
            body,
            order_by,
            limit_clause,
            fetch: None,
            locks,
            for_clause: None,
            settings: None,
            format_clause: None,
            pipe_operators,
        } = query
        else {
            return None;
        };
        let ast::SetExpr::Select(select) = body.as_ref() else {
            return None;
        };
        if !locks.is_empty() || !pipe_operators.is_empty() {
            return None;
        }
        let [relation] = select.from.as_slice() else {
            return None;
        };
        let (name, qualifier) = relation_of(relation)?;
        Some(Self {
            name,
            qualifier,
            items: &select.projection,
            condition: condition_alone(select)?,
            order_by: order_of(order_by.as_ref())?,
            limit: match limit_clause {
                None => None,
                Some(limit) => Some(limit_of(limit)?),
            },
        })
    }

    /// The column of this expression, if it is one.
    fn column(&self, expr: &Expr, schema: &Schema) -> Option<usize> {
        let name = match expr {
            Expr::Identifier(name) => folded(name),
            Expr::CompoundIdentifier(parts) => match parts.as_slice() {
                [relation, name] if folded(relation) == self.qualifier => folded(name),
                _ => return None,
            },
            _ => return None,
        };
        schema.index_of(&name).ok()
    }

    /// The columns that are wanted, and what they are called.
    fn columns(&self, schema: &Schema) -> Option<Vec<(usize, String)>> {
        let mut columns = Vec::with_capacity(self.items.len());
        for item in self.items {
            match item {
                SelectItem::Wildcard(options) if *options == ast::WildcardAdditionalOptions::default() => {
                    let all = schema.fields().iter().enumerate();
                    columns.extend(all.map(|(column, field)| (column, field.name().clone())));
                }
                SelectItem::UnnamedExpr(expr) => {
                    let column = self.column(expr, schema)?;
                    columns.push((column, schema.field(column).name().clone()));
                }
                SelectItem::ExprWithAlias { expr, alias } => {
                    columns.push((self.column(expr, schema)?, folded(alias)));
                }
                _ => return None,
            }
        }
        Some(columns)
    }

    fn order(&self, schema: &Schema) -> Option<Vec<usize>> {
        // What is sorted by may be the name of a column of the result.
        let is_alias = |expr: &Expr| {
            self.items.iter().any(|item| {
                matches!((item, expr), (SelectItem::ExprWithAlias { alias, .. }, Expr::Identifier(name))
                    if folded(alias) == folded(name))
            })
        };
        let column = |expr: &&Expr| self.column(expr, schema).filter(|_| !is_alias(expr));
        self.order_by.iter().map(column).collect()
    }

    /// Notes what a condition demands of columns; `None` if that is not all that it says.
    fn demands(&self, condition: &Expr, schema: &Schema, out: &mut Conditions) -> Option<()> {
        let typed = |column: usize, value: &Expr| constant(value, schema.field(column).data_type());
        match condition {
            Expr::Nested(inner) => self.demands(inner, schema, out),
            Expr::BinaryOp {
                left,
                op: BinaryOperator::And,
                right,
            } => {
                self.demands(left, schema, out)?;
                self.demands(right, schema, out)
            }
            Expr::BinaryOp { left, op, right } => {
                let (column, value, op) = match self.column(left, schema) {
                    Some(column) => (column, right, op.clone()),
                    None => (self.column(right, schema)?, left, swapped(op)?),
                };
                let value = typed(column, value)?;
                match op {
                    BinaryOperator::Eq => out.one_of(column, vec![value]),
                    BinaryOperator::Gt => out.at_least(column, value, false),
                    BinaryOperator::GtEq => out.at_least(column, value, true),
                    BinaryOperator::Lt => out.at_most(column, value, false),
                    BinaryOperator::LtEq => out.at_most(column, value, true),
                    _ => return None,
                }
                Some(())
            }
            Expr::InList {
                expr,
                list,
                negated: false,
            } => {
                let column = self.column(expr, schema)?;
                let values = list.iter().map(|value| typed(column, value));
                out.one_of(column, values.collect::<Option<Vec<_>>>()?);
                Some(())
            }
            Expr::Between {
                expr,
                negated: false,
                low,
                high,
            } => {
                let column = self.column(expr, schema)?;
                out.at_least(column, typed(column, low)?, true);
                out.at_most(column, typed(column, high)?, true);
                Some(())
            }
            _ => None,
        }
    }
}

/// The name of a relation, and what columns may be qualified by.
fn relation_of(relation: &ast::TableWithJoins) -> Option<(String, String)> {
    let ast::TableFactor::Table {
        name,
        alias,
        args: None,
        with_hints,
        version: None,
        with_ordinality: false,
        partitions,
        json_path: None,
        sample: None,
        index_hints,
    } = &relation.relation
    else {
        return None;
    };
    let is_plain =
        relation.joins.is_empty() && with_hints.is_empty() && partitions.is_empty() && index_hints.is_empty();
    let part = |part: &ast::ObjectNamePart| part.as_ident().map(folded);
    let name = match name.0.as_slice() {
        [name] => part(name)?,
        [schema, name] if part(schema)? == "public" => part(name)?,
        _ => return None,
    };
    let qualifier = match alias {
        None => name.clone(),
        Some(alias) if alias.columns.is_empty() => folded(&alias.name),
        Some(_) => return None,
    };
    is_plain.then_some((name, qualifier))
}

/// The condition of a SELECT that has nothing else.
fn condition_alone(select: &ast::Select) -> Option<&Expr> {
    let ast::Select {
        select_token: _,
        optimizer_hints,
        distinct: None,
        select_modifiers: None,
        top: None,
        top_before_distinct: _,
        projection: _,
        exclude: None,
        into: None,
        from: _,
        lateral_views,
        prewhere: None,
        selection: Some(condition),
        connect_by,
        group_by: ast::GroupByExpr::Expressions(groups, modifiers),
        cluster_by,
        distribute_by,
        sort_by,
        having: None,
        named_window,
        qualify: None,
        window_before_qualify: _,
        value_table_mode: None,
        flavor: ast::SelectFlavor::Standard,
    } = select
    else {
        return None;
    };
    let is_alone = optimizer_hints.is_empty()
        && lateral_views.is_empty()
        && connect_by.is_empty()
        && groups.is_empty()
        && modifiers.is_empty()
        && cluster_by.is_empty()
        && distribute_by.is_empty()
        && sort_by.is_empty()
        && named_window.is_empty();
    is_alone.then_some(condition)
}

/// What is sorted by, ascending.
fn order_of(order_by: Option<&ast::OrderBy>) -> Option<Vec<&Expr>> {
    let Some(order_by) = order_by else {
        return Some(Vec::new());
    };
    let (ast::OrderByKind::Expressions(all), None) = (&order_by.kind, &order_by.interpolate) else {
        return None;
    };
    let is_ascending = |one: &ast::OrderByExpr| {
        one.options.asc != Some(false) && one.options.nulls_first != Some(true) && one.with_fill.is_none()
    };
    all.iter()
        .all(is_ascending)
        .then(|| all.iter().map(|one| &one.expr).collect())
}

fn limit_of(limit: &ast::LimitClause) -> Option<usize> {
    let ast::LimitClause::LimitOffset {
        limit: Some(Expr::Value(limit)),
        offset: None,
        limit_by,
    } = limit
    else {
        return None;
    };
    match &limit.value {
        Value::Number(digits, _) if limit_by.is_empty() => digits.parse().ok(),
        _ => None,
    }
}

/// The operator with its sides changed.
fn swapped(op: &BinaryOperator) -> Option<BinaryOperator> {
    Some(match op {
        BinaryOperator::Eq => BinaryOperator::Eq,
        BinaryOperator::Gt => BinaryOperator::Lt,
        BinaryOperator::GtEq => BinaryOperator::LtEq,
        BinaryOperator::Lt => BinaryOperator::Gt,
        BinaryOperator::LtEq => BinaryOperator::GtEq,
        _ => return None,
    })
}

/// A constant that is compared with a column of this type, as a value of it; `None` where it is no such value, or not for certain.
fn constant(expr: &Expr, data_type: &DataType) -> Option<ScalarValue> {
    match expr {
        Expr::Nested(inner) => constant(inner, data_type),
        Expr::Value(value) => match (&value.value, data_type) {
            (Value::Number(digits, _), _) => integer(digits.parse().ok()?, data_type),
            (Value::SingleQuotedString(text), DataType::Utf8) => Some(ScalarValue::from(text.as_str())),
            (Value::Boolean(value), DataType::Boolean) => Some(ScalarValue::from(*value)),
            _ => None,
        },
        Expr::UnaryOp {
            op: UnaryOperator::Minus,
            expr,
        } => match expr.as_ref() {
            Expr::Value(value) => match &value.value {
                Value::Number(digits, _) => integer(format!("-{digits}").parse().ok()?, data_type),
                _ => None,
            },
            _ => None,
        },
        // The value of a parameter.
        Expr::Cast {
            kind: ast::CastKind::Cast,
            expr,
            data_type: cast_to,
            array: false,
            format: None,
        } => match (expr.as_ref(), arrow_type(cast_to).ok()?) {
            (Expr::Value(value), own) => match &value.value {
                Value::SingleQuotedString(digits) => {
                    let value: i64 = digits.parse().ok()?;
                    // One that its own type does not have is an error.
                    integer(value, &own).and_then(|_| integer(value, data_type))
                }
                _ => None,
            },
            _ => None,
        },
        _ => None,
    }
}

/// An integer as a value of an integer type that has it.
fn integer(value: i64, data_type: &DataType) -> Option<ScalarValue> {
    Some(match data_type {
        DataType::Int16 => ScalarValue::from(i16::try_from(value).ok()?),
        DataType::Int32 => ScalarValue::from(i32::try_from(value).ok()?),
        DataType::Int64 => ScalarValue::from(value),
        _ => return None,
    })
}

/// A name as SQL reads it.
fn folded(name: &ast::Ident) -> String {
    match name.quote_style {
        Some(_) => name.value.clone(),
        None => name.value.to_lowercase(),
    }
}
