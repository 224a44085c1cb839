//! PostgreSQL's operators on JSONB as calls of functions.

use arrow::datatypes::DataType;
use datafusion::common::{DFSchema, Result as PlanResult};
use datafusion::logical_expr::planner::{ExprPlanner, PlannerResult, RawBinaryExpr};
use datafusion::logical_expr::{BinaryExpr, Expr, ExprSchemable, Operator, not};
use datafusion::sql::sqlparser::ast::BinaryOperator;

use super::functions::JsonFunction;
use super::values::{as_document, as_text_list, is_document, no_operator, unknown_text};
use crate::SqlError;
use crate::plan::translate::external;

/// Plans operators with JSONB on one of their sides.
#[derive(Debug)]
pub(crate) struct JsonOperators;

impl ExprPlanner for JsonOperators {
    fn plan_binary_op(
        &self,
        expr: RawBinaryExpr,
        schema: &DFSchema,
    ) -> PlanResult<PlannerResult<RawBinaryExpr>> {
        let documents = (is_document(&expr.left, schema), is_document(&expr.right, schema));
        let planned = match documents {
            (false, false) => {
                if is_of_json(&expr.op) {
                    return no_operator(&expr.left, &expr.op.to_string(), &expr.right, schema);
                }
                None
            }
            _ => match comparison(&expr.op) {
                Some(op) => Some(compared(&expr.left, op, &expr.right, schema)?),
                None => operation(&expr, schema)?,
            },
        };
        Ok(match planned {
            Some(planned) => PlannerResult::Planned(planned),
            None => PlannerResult::Original(expr),
        })
    }
}

/// `document[step]`
pub(crate) fn field(document: Expr, step: Expr) -> Expr {
    JsonFunction::Get.call(vec![document, step])
}

/// Operators that no other type has.
fn is_of_json(op: &BinaryOperator) -> bool {
    matches!(
        op,
        BinaryOperator::Arrow
            | BinaryOperator::LongArrow
            | BinaryOperator::HashArrow
            | BinaryOperator::HashLongArrow
            | BinaryOperator::HashMinus
            | BinaryOperator::Question
            | BinaryOperator::QuestionAnd
            | BinaryOperator::QuestionPipe
            | BinaryOperator::AtQuestion
    )
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

/// A comparison by the keys of both sides.
pub(super) fn compared(left: &Expr, op: Operator, right: &Expr, schema: &DFSchema) -> PlanResult<Expr> {
    let (Some(one), Some(other)) = (as_document(left, schema)?, as_document(right, schema)?) else {
        return no_operator(left, &op.to_string(), right, schema);
    };
    Ok(Expr::BinaryExpr(BinaryExpr::new(
        Box::new(JsonFunction::Key.call(vec![one])),
        op,
        Box::new(JsonFunction::Key.call(vec![other])),
    )))
}

/// The call for an operator that is none of comparison; `None` for one that JSONB does not have.
fn operation(expr: &RawBinaryExpr, schema: &DFSchema) -> PlanResult<Option<Expr>> {
    let (left, right) = (&expr.left, &expr.right);
    let none = || no_operator(left, &expr.op.to_string(), right, schema);
    let call = match &expr.op {
        BinaryOperator::Arrow => stepped(JsonFunction::Get, left, right, schema)?,
        BinaryOperator::LongArrow => stepped(JsonFunction::GetText, left, right, schema)?,
        BinaryOperator::HashArrow => with_path(JsonFunction::ExtractPath, left, right, schema)?,
        BinaryOperator::HashLongArrow => with_path(JsonFunction::ExtractPathText, left, right, schema)?,
        BinaryOperator::HashMinus => with_path(JsonFunction::DeletePath, left, right, schema)?,
        BinaryOperator::AtArrow => both(JsonFunction::Contains, left, right, schema)?,
        BinaryOperator::ArrowAt => both(JsonFunction::Contains, right, left, schema)?,
        BinaryOperator::StringConcat => match both(JsonFunction::Concat, left, right, schema)? {
            Some(call) => Some(call),
            // PostgreSQL takes the text of what stands beside a text.
            None => return Ok(texts_joined(left, right, schema)),
        },
        BinaryOperator::Minus => deleted(left, right, schema)?,
        BinaryOperator::Question => match is_document(left, schema) && is_text(right, schema) {
            true => Some(JsonFunction::Exists.call(vec![left.clone(), right.clone()])),
            false => None,
        },
        BinaryOperator::QuestionPipe => with_path(JsonFunction::ExistsAny, left, right, schema)?,
        BinaryOperator::QuestionAnd => with_path(JsonFunction::ExistsAll, left, right, schema)?,
        BinaryOperator::AtQuestion | BinaryOperator::AtAt => {
            return Err(external(
                SqlError::unsupported(format!("the operator {} of SQL/JSON paths", expr.op))
                    .with_hint("Use ->, #>, @> and ? instead."),
            ));
        }
        _ => None,
    };
    match call {
        Some(call) => Ok(Some(call)),
        None => none(),
    }
}

/// `left -> right`: one more step of a path.
fn stepped(function: JsonFunction, left: &Expr, right: &Expr, schema: &DFSchema) -> PlanResult<Option<Expr>> {
    let is_step = unknown_text(right).is_some()
        || matches!(
            right.get_type(schema)?,
            DataType::Utf8 | DataType::Int16 | DataType::Int32 | DataType::Int64 | DataType::Null
        );
    if !is_step || !is_document(left, schema) {
        return Ok(None);
    }
    // Steps in a row are one walk.
    let mut args = match left {
        Expr::ScalarFunction(inner) if JsonFunction::of(&inner.func) == Some(JsonFunction::Get) => {
            inner.args.clone()
        }
        _ => vec![left.clone()],
    };
    args.push(right.clone());
    Ok(Some(function.call(args)))
}

fn with_path(
    function: JsonFunction,
    left: &Expr,
    right: &Expr,
    schema: &DFSchema,
) -> PlanResult<Option<Expr>> {
    match (is_document(left, schema), as_text_list(right, schema)?) {
        (true, Some(path)) => Ok(Some(function.call(vec![left.clone(), path]))),
        _ => Ok(None),
    }
}

fn both(function: JsonFunction, left: &Expr, right: &Expr, schema: &DFSchema) -> PlanResult<Option<Expr>> {
    match (as_document(left, schema)?, as_document(right, schema)?) {
        (Some(left), Some(right)) => Ok(Some(function.call(vec![left, right]))),
        _ => Ok(None),
    }
}

fn deleted(left: &Expr, right: &Expr, schema: &DFSchema) -> PlanResult<Option<Expr>> {
    if !is_document(left, schema) {
        return Ok(None);
    }
    let is_list = matches!(right.get_type(schema), Ok(DataType::List(_)));
    let right = match is_list {
        true => as_text_list(right, schema)?,
        false => Some(right.clone()),
    };
    Ok(right.map(|right| JsonFunction::Delete.call(vec![left.clone(), right])))
}

fn texts_joined(left: &Expr, right: &Expr, schema: &DFSchema) -> Option<Expr> {
    let text = |expr: &Expr| match is_document(expr, schema) {
        true => JsonFunction::Text.call(vec![expr.clone()]),
        false => expr.clone(),
    };
    let joined = is_text(left, schema) || is_text(right, schema);
    joined.then(|| {
        Expr::BinaryExpr(BinaryExpr::new(
            Box::new(text(left)),
            Operator::StringConcat,
            Box::new(text(right)),
        ))
    })
}

fn is_text(expr: &Expr, schema: &DFSchema) -> bool {
    expr.get_type(schema)
        .is_ok_and(|data_type| data_type.is_string() || data_type.is_null())
}

/// `expr IN (list)` as comparisons of keys.
pub(super) fn among(expr: &Expr, list: &[Expr], negated: bool, schema: &DFSchema) -> PlanResult<Expr> {
    let mut keys = Vec::with_capacity(list.len());
    for item in list {
        let Some(item) = as_document(item, schema)? else {
            return no_operator(expr, "=", item, schema);
        };
        keys.push(JsonFunction::Key.call(vec![item]));
    }
    let Some(value) = as_document(expr, schema)? else {
        return no_operator(expr, "=", &list[0], schema);
    };
    Ok(JsonFunction::Key.call(vec![value]).in_list(keys, negated))
}

/// `expr BETWEEN low AND high`.
pub(super) fn between(expr: &Expr, low: &Expr, high: &Expr, schema: &DFSchema) -> PlanResult<Expr> {
    let from = compared(expr, Operator::GtEq, low, schema)?;
    Ok(from.and(compared(expr, Operator::LtEq, high, schema)?))
}

/// The opposite of a condition, if it is asked for.
pub(super) fn negated_if(is_negated: bool, condition: Expr) -> Expr {
    match is_negated {
        true => not(condition),
        false => condition,
    }
}
