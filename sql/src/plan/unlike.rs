//! Texts are not compared with values of other types: PostgreSQL has no such operator, where DataFusion would read the
//! text as a number and fail at the first row that holds none.

use arrow::datatypes::DataType;
use datafusion::common::tree_node::Transformed;
use datafusion::common::{DFSchema, Result as PlanResult, plan_err};
use datafusion::logical_expr::expr::{Between, InList};
use datafusion::logical_expr::{BinaryExpr, Expr, ExprSchemable, Operator};

/// The expression, unless it compares a text that is no constant with a value of another type.
///
/// # Errors
/// Such a comparison, as DataFusion reports those that it does not have.
pub(crate) fn refuse(expr: Expr, schema: &DFSchema) -> PlanResult<Transformed<Expr>> {
    match &expr {
        Expr::BinaryExpr(BinaryExpr { left, op, right }) if is_comparison(*op) => {
            check(left, *op, right, schema)?;
        }
        Expr::Between(Between { expr, low, high, .. }) => {
            check(expr, Operator::GtEq, low, schema)?;
            check(expr, Operator::LtEq, high, schema)?;
        }
        Expr::InList(InList { expr, list, .. }) => {
            for item in list {
                check(expr, Operator::Eq, item, schema)?;
            }
        }
        Expr::ScalarFunction(call) if call.name().starts_with("array") || call.name().contains(' ') => {
            check_elements(call.name(), &call.args, schema)?;
        }
        _ => {}
    }
    Ok(Transformed::no(expr))
}

/// Texts stand in no array of values of another type.
fn check_elements(name: &str, args: &[Expr], schema: &DFSchema) -> PlanResult<()> {
    let Ok(types) = args
        .iter()
        .map(|arg| arg.get_type(schema))
        .collect::<PlanResult<Vec<_>>>()
    else {
        return Ok(());
    };
    let is_other = |data_type: &DataType| match data_type {
        DataType::List(item) => is_no_text(item.data_type()),
        _ => false,
    };
    let is_text_of_a_row = |(arg, data_type): (&Expr, &DataType)| {
        is_text(data_type) && !matches!(arg, Expr::Literal(..) | Expr::Placeholder(_))
    };
    let has_array_of_others = types.iter().any(is_other);
    let takes_texts = matches!(name, "array_to_string");
    if has_array_of_others && !takes_texts && args.iter().zip(&types).any(is_text_of_a_row) {
        let types: Vec<String> = types.iter().map(ToString::to_string).collect();
        return plan_err!(
            "No function matches the given name and argument types '{name}({})'.",
            types.join(", ")
        );
    }
    Ok(())
}

fn check(left: &Expr, op: Operator, right: &Expr, schema: &DFSchema) -> PlanResult<()> {
    // An expression with outer columns has no type here; it is left to DataFusion.
    let (Ok(left_type), Ok(right_type)) = (left.get_type(schema), right.get_type(schema)) else {
        return Ok(());
    };
    let unlike = |text: &Expr, text_type: &DataType, other: &DataType| {
        is_text(text_type) && !matches!(text, Expr::Literal(..) | Expr::Placeholder(_)) && is_no_text(other)
    };
    if unlike(left, &left_type, &right_type) || unlike(right, &right_type, &left_type) {
        return plan_err!(
            "Cannot infer common argument type for comparison operation {left_type} {op} {right_type}"
        );
    }
    Ok(())
}

/// Whether an operator compares two values.
pub(crate) fn is_comparison(op: Operator) -> bool {
    matches!(
        op,
        Operator::Eq
            | Operator::NotEq
            | Operator::Lt
            | Operator::LtEq
            | Operator::Gt
            | Operator::GtEq
            | Operator::IsDistinctFrom
            | Operator::IsNotDistinctFrom
    )
}

fn is_text(data_type: &DataType) -> bool {
    matches!(
        data_type,
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View
    )
}

fn is_no_text(data_type: &DataType) -> bool {
    data_type.is_numeric()
        || data_type.is_temporal()
        || matches!(
            data_type,
            DataType::Boolean | DataType::Binary | DataType::Interval(_)
        )
}
