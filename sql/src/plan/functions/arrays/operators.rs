//! PostgreSQL's operators on arrays and rows, their subscripts and fields.

use arrow::datatypes::DataType;
use datafusion::common::utils::list_ndims;
use datafusion::common::{DFSchema, Result as PlanResult, ScalarValue};
use datafusion::logical_expr::planner::{ExprPlanner, PlannerResult, RawBinaryExpr, RawFieldAccessExpr};
use datafusion::logical_expr::{BinaryExpr, Expr, ExprSchemable, GetFieldAccess, Operator, cast};
use datafusion::sql::sqlparser::ast::BinaryOperator;

use super::{call, key, own};
use crate::plan::common_type::common_type;
use crate::plan::json;
use crate::plan::translate::external;
use crate::plan::types::sql_type_name;
use crate::{SqlError, SqlState, jsonb};

/// Plans operators with an array or a row on one of their sides.
#[derive(Debug)]
pub(crate) struct ArrayOperators;

impl ExprPlanner for ArrayOperators {
    fn plan_binary_op(
        &self,
        expr: RawBinaryExpr,
        schema: &DFSchema,
    ) -> PlanResult<PlannerResult<RawBinaryExpr>> {
        let (Ok(left), Ok(right)) = (expr.left.get_type(schema), expr.right.get_type(schema)) else {
            return Ok(PlannerResult::Original(expr));
        };
        if !is_nested(&left) && !is_nested(&right) {
            return Ok(PlannerResult::Original(expr));
        }
        let sides = || vec![elements(&expr.left, &left), elements(&expr.right, &right)];
        let are_arrays = is_array_beside(&left, &expr.right, &right);
        let planned = match expr.op {
            BinaryOperator::StringConcat => concatenated(&expr, &left, &right),
            BinaryOperator::AtArrow if are_arrays => call("arraycontains", sides()),
            BinaryOperator::ArrowAt if are_arrays => call("arraycontained", sides()),
            BinaryOperator::PGOverlap if are_arrays => call("arrayoverlap", sides()),
            ref op => match comparison(op) {
                Some(op) => Some(compared(&expr.left, op, &expr.right, schema)?),
                None => None,
            },
        };
        Ok(match planned {
            Some(planned) => PlannerResult::Planned(planned),
            None => PlannerResult::Original(expr),
        })
    }

    fn plan_field_access(
        &self,
        access: RawFieldAccessExpr,
        schema: &DFSchema,
    ) -> PlanResult<PlannerResult<RawFieldAccessExpr>> {
        let Ok(data_type) = access.expr.get_type(schema) else {
            return Ok(PlannerResult::Original(access));
        };
        let RawFieldAccessExpr { field_access, expr } = access;
        let is_document = jsonb::is_jsonb(&data_type);
        let planned = match field_access {
            GetFieldAccess::NamedStructField { name } if is_document => {
                json::field(expr, Expr::Literal(name, None))
            }
            GetFieldAccess::ListIndex { key } if is_document => json::field(expr, *key),
            GetFieldAccess::NamedStructField { name } => field(expr, &data_type, name)?,
            GetFieldAccess::ListIndex { key } => subscripted(own::ELEMENT, vec![expr, *key], &data_type)?,
            GetFieldAccess::ListRange { start, stop, .. } => {
                subscripted(own::SLICE, vec![expr, *start, *stop], &data_type)?
            }
        };
        Ok(PlannerResult::Planned(planned))
    }

    fn plan_struct_literal(
        &self,
        args: Vec<Expr>,
        is_named_struct: bool,
    ) -> PlanResult<PlannerResult<Vec<Expr>>> {
        Ok(match is_named_struct {
            true => PlannerResult::Original(args),
            false => match call(own::ROW, args.clone()) {
                Some(row) => PlannerResult::Planned(row),
                None => PlannerResult::Original(args),
            },
        })
    }
}

/// Whether values of a type are arrays or rows.
pub(crate) fn is_nested(data_type: &DataType) -> bool {
    match data_type {
        DataType::List(_) => true,
        DataType::Struct(_) => !jsonb::is_jsonb(data_type),
        _ => false,
    }
}

/// A constant in quotes, or NULL: it becomes a value of any type.
fn is_unknown(expr: &Expr) -> bool {
    matches!(expr, Expr::Literal(ScalarValue::Utf8(_) | ScalarValue::Null, _))
}

/// The array, or the elements of one of several dimensions.
fn elements(array: &Expr, data_type: &DataType) -> Expr {
    match list_ndims(data_type) > 1 {
        true => call(own::ELEMENTS, vec![array.clone()]).unwrap_or_else(|| array.clone()),
        false => array.clone(),
    }
}

fn is_array_beside(left: &DataType, right: &Expr, right_type: &DataType) -> bool {
    let is_list = |data_type: &DataType| matches!(data_type, DataType::List(_));
    match (is_list(left), is_list(right_type)) {
        (true, true) => true,
        (true, false) => is_unknown(right),
        (false, is_right) => is_right,
    }
}

fn comparison(op: &BinaryOperator) -> Option<Operator> {
    Some(match op {
        BinaryOperator::Eq => Operator::Eq,
        BinaryOperator::NotEq => Operator::NotEq,
        BinaryOperator::Lt => Operator::Lt,
        BinaryOperator::LtEq => Operator::LtEq,
        BinaryOperator::Gt => Operator::Gt,
        BinaryOperator::GtEq => Operator::GtEq,
        _ => return None,
    })
}

/// `||`: an array joined to another one, or with an element at one of its ends.
fn concatenated(expr: &RawBinaryExpr, left: &DataType, right: &DataType) -> Option<Expr> {
    let sides = vec![expr.left.clone(), expr.right.clone()];
    let (dimensions_left, dimensions_right) = (list_ndims(left), list_ndims(right));
    if dimensions_left + dimensions_right == 0 {
        return None;
    }
    let name = if is_unknown(&expr.left) || is_unknown(&expr.right) || dimensions_left == dimensions_right {
        "array_cat"
    } else if dimensions_left > dimensions_right {
        "array_append"
    } else {
        "array_prepend"
    };
    call(name, sides)
}

/// A comparison of arrays or rows by their keys.
///
/// # Errors
/// Sides that have no type in common (42883).
pub(crate) fn compared(left: &Expr, op: Operator, right: &Expr, schema: &DFSchema) -> PlanResult<Expr> {
    let types = (left.get_type(schema)?, right.get_type(schema)?);
    let common = match (is_unknown(left), is_unknown(right)) {
        (true, _) => Some(types.1.clone()),
        (_, true) => Some(types.0.clone()),
        _ => common_type(&types.0, &types.1),
    };
    let Some(common) = common.filter(is_nested) else {
        return json::no_operator(left, &op.to_string(), right, schema);
    };
    // Constants within the sides may still become narrower, so both are cast.
    let side = |expr: &Expr| key(cast(expr.clone(), common.clone()));
    Ok(Expr::BinaryExpr(BinaryExpr::new(
        Box::new(side(left)),
        op,
        Box::new(side(right)),
    )))
}

fn field(row: Expr, data_type: &DataType, name: ScalarValue) -> PlanResult<Expr> {
    let shown = match &name {
        ScalarValue::Utf8(Some(name)) => name.clone(),
        other => other.to_string(),
    };
    let DataType::Struct(fields) = data_type else {
        return Err(external(SqlError::new(
            SqlState::WrongObjectType,
            format!(
                "column notation .{shown} applied to type {}, which is not a composite type",
                sql_type_name(data_type)
            ),
        )));
    };
    if fields.find(&shown).is_none() {
        return Err(external(SqlError::new(
            SqlState::UndefinedColumn,
            format!(
                "column \"{shown}\" not found in data type {}",
                sql_type_name(data_type)
            ),
        )));
    }
    Ok(datafusion::functions::core::get_field().call(vec![row, Expr::Literal(name, None)]))
}

fn subscripted(function: &str, args: Vec<Expr>, data_type: &DataType) -> PlanResult<Expr> {
    if !matches!(data_type, DataType::List(_)) {
        return Err(external(SqlError::new(
            SqlState::DatatypeMismatch,
            format!(
                "cannot subscript type {} because it does not support subscripting",
                sql_type_name(data_type)
            ),
        )));
    }
    call(function, args).ok_or_else(|| {
        external(SqlError::new(
            SqlState::InternalError,
            "a subscript has no function",
        ))
    })
}
