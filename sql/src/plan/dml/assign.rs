//! Values on their way into columns: PostgreSQL's assignment casts.

use arrow::datatypes::DataType;
use datafusion::sql::sqlparser::ast::{self, Expr, SelectItem, SetExpr, Spanned, UnaryOperator, Value};

use super::scaffold::{aliased, relation, select_alone, select_of};
use super::{parse_expression, quoted};
use crate::calls;
use crate::catalog::{Catalog, TableColumnDef};
use crate::plan::context::{Names, Resolver};
use crate::plan::functions::FITTED;
use crate::plan::place::position_of;
use crate::plan::types::{arrow_type, sql_type_name, written_type};
use crate::plan::{parameters, query, spelled};
use crate::statement::Target;
use crate::{SqlError, SqlState, jsonb};

/// Where the values of a statement are resolved.
pub(super) struct Scope<'a> {
    pub(super) catalog: &'a Catalog,
    pub(super) resolver: Resolver<'a>,
    /// The relation whose columns the values may read.
    pub(super) target: Option<&'a Target>,
    /// Others that they may read beside it.
    pub(super) others: &'a [ast::TableWithJoins],
    /// Queries that they may read by their names.
    pub(super) with: Option<&'a ast::With>,
}

/// A value for a column.
pub(super) struct Assigned<'a> {
    pub(super) column: &'a TableColumnDef,
    pub(super) value: &'a Expr,
}

/// What is known of a value by its text alone.
enum Known {
    /// A constant in quotes, NULL, or a parameter: it takes any type.
    Untyped,
    /// A value of this type.
    Type(DataType),
    /// The planner has to say.
    Nothing,
}

impl Scope<'_> {
    /// The values, cast to the types of their columns.
    ///
    /// # Errors
    /// A value that does not become its type by itself, what is wrong with an expression.
    pub(super) fn assign(&self, all: &[Assigned<'_>]) -> Result<Vec<Expr>, SqlError> {
        let mut unknown = Vec::new();
        for assigned in all {
            match known(assigned.value) {
                Known::Untyped => {}
                Known::Type(data_type) => check_value(assigned, &data_type)?,
                Known::Nothing => unknown.push(assigned),
            }
        }
        for (assigned, data_type) in unknown.iter().zip(self.types(&unknown)?) {
            check_value(assigned, &data_type)?;
        }
        let mut casts: Vec<(&DataType, Cast)> = Vec::new();
        let mut cells = Vec::with_capacity(all.len());
        for assigned in all {
            let wanted = &assigned.column.data_type;
            let cast = match casts.iter().find(|(data_type, _)| *data_type == wanted) {
                Some((_, cast)) => cast,
                None => {
                    casts.push((wanted, cast_to(wanted)?));
                    &casts.last().expect("it was pushed a moment ago").1
                }
            };
            cells.push(cast.of(assigned.value.clone(), assigned.column));
        }
        Ok(cells)
    }

    fn types(&self, values: &[&Assigned<'_>]) -> Result<Vec<DataType>, SqlError> {
        if values.is_empty() {
            return Ok(Vec::new());
        }
        let items: Vec<SelectItem> = values
            .iter()
            .enumerate()
            .map(|(n, assigned)| aliased(assigned.value.clone(), &format!("?value {n}?")))
            .collect();
        let mut query = match self.target {
            Some(target) => select_of(items, &relation(target))?,
            None => select_alone(items)?,
        };
        if let SetExpr::Select(select) = query.body.as_mut() {
            select.from.extend(self.others.iter().cloned());
        }
        query.with = self.with.cloned();
        let bound = query::bind(&Names::new(self.catalog, Some(self.resolver)), &query)?;
        let fields = bound.plan.schema().fields().iter();
        Ok(fields.map(|field| field.data_type().clone()).collect())
    }
}

fn check_value(assigned: &Assigned<'_>, given: &DataType) -> Result<(), SqlError> {
    let checked = check_assignable(assigned.column, given);
    checked.map_err(|error| match position_of(assigned.value.span()) {
        Some(position) => error.at(position),
        None => error,
    })
}

/// Refuses a value of the type `given` for a column to whose type it does not convert by itself.
pub(super) fn check_assignable(column: &TableColumnDef, given: &DataType) -> Result<(), SqlError> {
    let wanted = &column.data_type;
    if assignable(given, wanted) {
        return Ok(());
    }
    let message = format!(
        "column \"{}\" is of type {} but expression is of type {}",
        column.name,
        sql_type_name(wanted),
        sql_type_name(given)
    );
    Err(SqlError::new(SqlState::DatatypeMismatch, message)
        .with_hint("You will need to rewrite or cast the expression."))
}

/// Whether PostgreSQL assigns values of one type to columns of another.
fn assignable(given: &DataType, wanted: &DataType) -> bool {
    use DataType as T;
    let number = |data_type: &DataType| data_type.is_numeric();
    match (given, wanted) {
        (T::Null, _) | (_, T::Utf8) => true,
        (T::List(given), T::List(wanted)) => assignable(given.data_type(), wanted.data_type()),
        (T::Struct(own), T::Struct(fields))
            if given != wanted && !jsonb::is_jsonb(given) && !jsonb::is_jsonb(wanted) =>
        {
            let mut pairs = own.iter().zip(fields);
            own.len() == fields.len()
                && pairs.all(|(own, field)| {
                    // What a row was written with may be a constant in quotes.
                    *own.data_type() == T::Utf8 || assignable(own.data_type(), field.data_type())
                })
        }
        (given, wanted) if given == wanted || (number(given) && number(wanted)) => true,
        (T::Date32, T::Timestamp(..)) => true,
        (T::Timestamp(..), T::Timestamp(..) | T::Date32 | T::Time64(_)) => true,
        (T::Time64(_), T::Interval(_)) | (T::Interval(_), T::Time64(_)) => true,
        _ => false,
    }
}

/// Whether item `index` of the query's list is a constant in quotes, or NULL.
pub(super) fn is_untyped_item(query: &ast::Query, index: usize) -> bool {
    let SetExpr::Select(select) = query.body.as_ref() else {
        return false;
    };
    let wildcard =
        |item: &SelectItem| matches!(item, SelectItem::Wildcard(_) | SelectItem::QualifiedWildcard(..));
    if select.projection.iter().any(wildcard) {
        return false;
    }
    match select.projection.get(index) {
        Some(SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. }) => {
            matches!(known(expr), Known::Untyped)
        }
        _ => false,
    }
}

fn known(value: &Expr) -> Known {
    match value {
        Expr::Value(value) => match &value.value {
            Value::SingleQuotedString(_)
            | Value::EscapedStringLiteral(_)
            | Value::DollarQuotedString(_)
            | Value::Placeholder(_)
            | Value::Null => Known::Untyped,
            Value::Boolean(_) => Known::Type(DataType::Boolean),
            Value::Number(digits, _) => Known::Type(number_type(digits)),
            _ => Known::Nothing,
        },
        Expr::UnaryOp {
            op: UnaryOperator::Minus,
            expr,
        } => match expr.as_ref() {
            Expr::Value(value) => match &value.value {
                Value::Number(digits, _) => Known::Type(number_type(digits)),
                _ => Known::Nothing,
            },
            _ => Known::Nothing,
        },
        Expr::Function(call) if parameters::is_marker(call) => Known::Untyped,
        Expr::Cast { data_type, .. } => as_known(data_type),
        Expr::TypedString(typed) => as_known(&typed.data_type),
        _ => Known::Nothing,
    }
}

fn as_known(data_type: &ast::DataType) -> Known {
    match arrow_type(data_type) {
        Ok(data_type) => Known::Type(data_type),
        Err(_) => Known::Nothing,
    }
}

/// The type of a number as PostgreSQL reads it.
fn number_type(digits: &str) -> DataType {
    if digits.parse::<i32>().is_ok() {
        DataType::Int32
    } else if digits.parse::<i64>().is_ok() {
        DataType::Int64
    } else {
        DataType::Decimal128(38, 16)
    }
}

/// A cast to one type, to be put around values.
pub(super) struct Cast(Expr);

/// The cast to a type.
///
/// # Errors
/// None for the types that columns have.
pub(super) fn cast_to(data_type: &DataType) -> Result<Cast, SqlError> {
    parse_expression(&format!("CAST(NULL AS {})", struct_quoted(data_type))).map(Cast)
}

/// The type as text; the names of a STRUCT's fields are quoted.
fn struct_quoted(data_type: &DataType) -> String {
    match data_type {
        DataType::Struct(fields) if !jsonb::is_jsonb(data_type) => {
            let fields = fields
                .iter()
                .map(|field| format!("{} {}", quoted(field.name()), struct_quoted(field.data_type())));
            format!("STRUCT<{}>", fields.collect::<Vec<_>>().join(", "))
        }
        DataType::List(item) => format!("{}[]", struct_quoted(item.data_type())),
        other => written_type(other),
    }
}

impl Cast {
    /// The cast of a value for a column, whose length it must not exceed.
    pub(super) fn of(&self, value: Expr, column: &TableColumnDef) -> Expr {
        let mut cast = self.0.clone();
        if let Expr::Cast { expr, .. } = &mut cast {
            **expr = value;
        }
        match column.length {
            Some(length) => calls::call(FITTED, vec![cast, spelled::number(&length.to_string())]),
            None => cast,
        }
    }
}
