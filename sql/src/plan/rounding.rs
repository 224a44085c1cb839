//! Casts of numbers with a fraction to integers: PostgreSQL rounds where Arrow cuts the fraction off.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray};
use arrow::datatypes::{DataType, Decimal128Type, Float32Type, Float64Type};
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{DFSchema, Result as PlanResult, exec_err};
use datafusion::logical_expr::expr::Cast;
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::{
    ColumnarValue, Expr, ExprSchemable, LogicalPlan, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
    Volatility,
};

/// The plan, whose types are resolved, with casts to integers that round: halves of NUMERIC away from zero, halves of
/// REAL and DOUBLE PRECISION to the even neighbour.
pub(crate) fn rounded_casts(plan: LogicalPlan) -> PlanResult<LogicalPlan> {
    plan.transform_up_with_subqueries(|node| {
        let mut schema = DFSchema::empty();
        for input in node.inputs() {
            schema.merge(input.schema());
        }
        let names = NamePreserver::new(&node);
        node.map_expressions(|expr| {
            let name = names.save(&expr);
            Ok(expr
                .transform_up(|expr| rounded_cast(expr, &schema))?
                .update_data(|expr| name.restore(expr)))
        })
    })
    .map(|plan| plan.data)
}

fn rounded_cast(expr: Expr, schema: &DFSchema) -> PlanResult<Transformed<Expr>> {
    let Expr::Cast(Cast { expr: inner, field }) = &expr else {
        return Ok(Transformed::no(expr));
    };
    let to_integer = matches!(
        field.data_type(),
        DataType::Int16 | DataType::Int32 | DataType::Int64
    );
    // An expression with outer columns has no type here; it stays as it is.
    let from_fraction = inner.get_type(schema).is_ok_and(|from| has_fraction(&from));
    if !to_integer || !from_fraction {
        return Ok(Transformed::no(expr));
    }
    let whole = ScalarUDF::from(Whole {
        signature: Signature::any(1, Volatility::Immutable),
    });
    Ok(Transformed::yes(Expr::Cast(Cast {
        expr: Box::new(whole.call(vec![inner.as_ref().clone()])),
        field: Arc::clone(field),
    })))
}

fn has_fraction(data_type: &DataType) -> bool {
    match data_type {
        DataType::Decimal128(_, scale) => *scale > 0,
        DataType::Float32 | DataType::Float64 => true,
        _ => false,
    }
}

/// The nearest whole number, in the type of the number.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Whole {
    signature: Signature,
}

impl ScalarUDFImpl for Whole {
    fn name(&self) -> &str {
        "whole"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, arg_types: &[DataType]) -> PlanResult<DataType> {
        match arg_types {
            [number] if has_fraction(number) => Ok(number.clone()),
            _ => exec_err!("only a number with a fraction can be rounded"),
        }
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> PlanResult<ColumnarValue> {
        let arrays = ColumnarValue::values_to_arrays(&args.args)?;
        let [numbers] = arrays.as_slice() else {
            return exec_err!("one number is rounded at a time");
        };
        let rounded: ArrayRef = match numbers.data_type() {
            DataType::Float32 => Arc::new(
                numbers
                    .as_primitive::<Float32Type>()
                    .unary::<_, Float32Type>(f32::round_ties_even),
            ),
            DataType::Float64 => Arc::new(
                numbers
                    .as_primitive::<Float64Type>()
                    .unary::<_, Float64Type>(f64::round_ties_even),
            ),
            DataType::Decimal128(_, scale) => {
                let one = 10_i128.pow(u32::from(scale.unsigned_abs()));
                let values = numbers.as_primitive::<Decimal128Type>();
                let whole = values.unary::<_, Decimal128Type>(|value| whole_decimal(value, one));
                Arc::new(whole.with_data_type(numbers.data_type().clone()))
            }
            other => return exec_err!("only a number with a fraction can be rounded, not {other}"),
        };
        Ok(ColumnarValue::Array(rounded))
    }
}

/// The multiple of `one`, which is even, that is nearest to `value`; of two, that which is further from zero.
fn whole_decimal(value: i128, one: i128) -> i128 {
    let rest = value % one;
    let step = match rest.abs() >= one - rest.abs() {
        true => one * value.signum(),
        false => 0,
    };
    value - rest + step
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn halves_go_away_from_zero() {
        let rounded = [24, 25, -24, -25, 0, 99].map(|value| whole_decimal(value, 10));
        assert_eq!(rounded, [20, 30, -20, -30, 0, 100]);
    }
}
