//! Casts that are written as calls of a type: `date(ts)` is `CAST(ts AS DATE)`.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    CastKind, DataType, ExactNumberInfo, Expr, Function, ObjectNamePart, Query, TimezoneInfo,
};

use crate::SqlError;
use crate::catalog::Catalog;
use crate::plan::spelled::plain_args;
use crate::plan::types::folded;
use crate::plan::walk::{PartMut, walk_mut};

/// Writes such calls as casts, where no function of that name was made.
///
/// # Errors
/// None of its own.
pub(crate) fn as_casts(query: &mut Query, catalog: &Catalog) -> Result<(), SqlError> {
    let is_made = |name: &str| catalog.function(name).is_some() || catalog.host().scalar(name).is_some();
    walk_mut(query, &mut |part| {
        if let PartMut::Expr(expr) = part
            && let Expr::Function(function) = expr
            && let Some((name, data_type)) = called(function)
            && let [value] = plain_args(function).as_mut_slice()
            && !is_made(&name)
        {
            *expr = Expr::Cast {
                kind: CastKind::Cast,
                expr: Box::new(value.clone()),
                data_type,
                array: false,
                format: None,
            };
        }
        ControlFlow::Continue(())
    })
}

/// The type that a call names, and the name as functions have it.
fn called(function: &Function) -> Option<(String, DataType)> {
    let is_plain = function.over.is_none() && function.filter.is_none() && function.within_group.is_empty();
    let [ObjectNamePart::Identifier(name)] = function.name.0.as_slice() else {
        return None;
    };
    let name = folded(name);
    let data_type = match name.as_str() {
        "bool" => DataType::Boolean,
        "int2" => DataType::SmallInt(None),
        "int4" => DataType::Integer(None),
        "int8" => DataType::BigInt(None),
        "float4" => DataType::Real,
        "float8" => DataType::DoublePrecision,
        "numeric" => DataType::Numeric(ExactNumberInfo::None),
        "text" => DataType::Text,
        "varchar" => DataType::Varchar(None),
        "bytea" => DataType::Bytea,
        "date" => DataType::Date,
        "time" => DataType::Time(None, TimezoneInfo::None),
        "timestamp" => DataType::Timestamp(None, TimezoneInfo::None),
        "timestamptz" => DataType::Timestamp(None, TimezoneInfo::WithTimeZone),
        "jsonb" => DataType::JSONB,
        _ => return None,
    };
    is_plain.then_some((name, data_type))
}
