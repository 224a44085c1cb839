//! Which types are cast to which: PostgreSQL has no cast between a number and a day, where Arrow would take the number for days
//! or microseconds since 1970.

use arrow::datatypes::DataType;
use datafusion::common::tree_node::Transformed;
use datafusion::common::{DFSchema, Result as PlanResult};
use datafusion::logical_expr::expr::{Cast, TryCast};
use datafusion::logical_expr::{Expr, ExprSchemable};

use crate::plan::parameters;
use crate::plan::translate::external;
use crate::plan::types::{column_type, sql_type_name};
use crate::{SqlError, SqlState};

/// The expression, unless it casts between types that PostgreSQL does not cast.
///
/// # Errors
/// Such a cast (42846).
pub(crate) fn refuse(expr: Expr, schema: &DFSchema) -> PlanResult<Transformed<Expr>> {
    let (Expr::Cast(Cast { expr: inner, field }) | Expr::TryCast(TryCast { expr: inner, field })) = &expr
    else {
        return Ok(Transformed::no(expr));
    };
    // Where the type of a parameter is looked for, the cast is what tells it.
    if parameters::marker(inner).is_some() {
        return Ok(Transformed::no(expr));
    }
    // What has no type here has an error of its own.
    match inner.get_type(schema) {
        Ok(from) if !are_cast(&from, field.data_type()) => {
            Err(external(cannot_cast(&from, field.data_type())))
        }
        _ => Ok(Transformed::no(expr)),
    }
}

/// The error for a cast that there is not.
pub(crate) fn cannot_cast(from: &DataType, to: &DataType) -> SqlError {
    let name = |data_type: &DataType| match data_type {
        DataType::Decimal128(..) => "numeric".to_owned(),
        other => sql_type_name(other),
    };
    let message = format!("cannot cast type {} to {}", name(from), name(to));
    SqlError::new(SqlState::CannotCoerce, message)
}

/// Whether values of one plain type are cast to the other, as far as times, BYTEA and BOOLEAN are among them.
pub(crate) fn are_cast(from: &DataType, to: &DataType) -> bool {
    use DataType as T;
    let (from, to) = (&column_type(from), &column_type(to));
    let is_plain = |data_type: &DataType| {
        data_type.is_numeric()
            || matches!(
                data_type,
                T::Boolean | T::Binary | T::Date32 | T::Time64(_) | T::Timestamp(..) | T::Interval(_)
            )
    };
    if !is_plain(from) || !is_plain(to) {
        return true;
    }
    match (from, to) {
        (T::Date32, T::Timestamp(..))
        | (T::Timestamp(..), T::Date32 | T::Time64(_) | T::Timestamp(..))
        | (T::Time64(_), T::Interval(_))
        | (T::Interval(_), T::Time64(_) | T::Interval(_))
        | (T::Int32, T::Boolean)
        | (T::Boolean, T::Int32) => true,
        (from, to) => from == to || (from.is_numeric() && to.is_numeric()),
    }
}
