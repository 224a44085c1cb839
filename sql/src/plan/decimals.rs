//! Arithmetic of NUMERIC whose result may have more digits than there are: it fails, where Arrow's kernels look at 128 bits
//! only and give numbers of 39 digits.

use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, PrimitiveBuilder};
use arrow::compute::kernels::numeric;
use arrow::datatypes::{DataType, Decimal128Type, i256};
use arrow::error::ArrowError;
use datafusion::common::tree_node::Transformed;
use datafusion::common::{DFSchema, Result as PlanResult, ScalarValue, exec_err};
use datafusion::logical_expr::binary::BinaryTypeCoercer;
use datafusion::logical_expr::{
    BinaryExpr, ColumnarValue, Expr, ExprSchemable, Operator, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl,
    Signature, Volatility,
};

use crate::plan::operand::Operand;
use crate::plan::translate::external;
use crate::plan::types::DECIMAL_DIGITS;
use crate::plan::values::numeric_overflow;
use crate::{SqlError, SqlState};

/// The least number, without its sign, that has too many digits.
const LIMIT: u128 = 10_u128.pow(DECIMAL_DIGITS as u32);

/// An expression, whose types are resolved, that computes with NUMERIC: checked where the types of its operands do not show
/// that the result has room. A fixed point.
pub(crate) fn checked(expr: Expr, schema: &DFSchema) -> PlanResult<Transformed<Expr>> {
    let Expr::BinaryExpr(BinaryExpr { left, op, right }) = &expr else {
        return Ok(Transformed::no(expr));
    };
    let Some(function) = DecimalFunction::of(*op) else {
        return Ok(Transformed::no(expr));
    };
    // An expression with outer columns has no type here; it stays as it is.
    let digits = |expr: &Expr| match expr.get_type(schema) {
        Ok(DataType::Decimal128(precision, scale)) => Some(Digits::of(precision, scale)),
        _ => None,
    };
    match (digits(left), digits(right)) {
        (Some(a), Some(b)) if function.may_overflow(a, b) => Ok(Transformed::yes(
            function.call(vec![left.as_ref().clone(), right.as_ref().clone()]),
        )),
        _ => Ok(Transformed::no(expr)),
    }
}

/// The digits that numbers of a type have at most.
#[derive(Debug, Clone, Copy)]
struct Digits {
    before: i32,
    behind: i32,
}

impl Digits {
    fn of(precision: u8, scale: i8) -> Self {
        Self {
            before: i32::from(precision) - i32::from(scale),
            behind: i32::from(scale),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum DecimalFunction {
    Add,
    Subtract,
    Multiply,
    Remainder,
}

impl DecimalFunction {
    fn of(op: Operator) -> Option<Self> {
        match op {
            Operator::Plus => Some(Self::Add),
            Operator::Minus => Some(Self::Subtract),
            Operator::Multiply => Some(Self::Multiply),
            Operator::Modulo => Some(Self::Remainder),
            _ => None,
        }
    }

    fn operator(self) -> Operator {
        match self {
            Self::Add => Operator::Plus,
            Self::Subtract => Operator::Minus,
            Self::Multiply => Operator::Multiply,
            Self::Remainder => Operator::Modulo,
        }
    }

    /// Whether a result, or what Arrow computes on the way, may have more digits than there are.
    fn may_overflow(self, left: Digits, right: Digits) -> bool {
        let behind = left.behind.max(right.behind);
        let before = left.before.max(right.before);
        let digits = match self {
            Self::Add | Self::Subtract => before + 1 + behind,
            Self::Multiply => left.before + left.behind + right.before + right.behind,
            Self::Remainder => before + behind,
        };
        digits > i32::from(DECIMAL_DIGITS)
    }

    fn call(self, args: Vec<Expr>) -> Expr {
        let arity = args.len();
        ScalarUDF::from(DecimalUdf {
            function: self,
            signature: Signature::any(arity, Volatility::Immutable),
        })
        .call(args)
    }

    /// The results of whole columns by Arrow's kernel; row by row only if it gives one that has too many digits, or overflows.
    fn compute(self, left: &Operand, right: &Operand, gives: &DataType) -> PlanResult<ArrayRef> {
        let results = match self {
            Self::Add => numeric::add(left.datum(), right.datum()),
            Self::Subtract => numeric::sub(left.datum(), right.datum()),
            Self::Multiply => numeric::mul(left.datum(), right.datum()),
            Self::Remainder => numeric::rem(left.datum(), right.datum()),
        };
        match results {
            Ok(results) => {
                let values = results.as_primitive::<Decimal128Type>().values();
                let is_suspect = values
                    .iter()
                    .fold(false, |suspect, value| suspect | (value.unsigned_abs() >= LIMIT));
                match is_suspect {
                    true => self.row_by_row(left, right, gives),
                    false => Ok(results),
                }
            }
            Err(ArrowError::ArithmeticOverflow(_)) => self.row_by_row(left, right, gives),
            Err(other) => Err(other.into()),
        }
    }

    /// The results, for which 256 bits are always enough.
    fn row_by_row(self, left: &Operand, right: &Operand, gives: &DataType) -> PlanResult<ArrayRef> {
        let scale_of = |operand: &Operand| match operand.datum().get().0.data_type() {
            DataType::Decimal128(_, scale) => *scale,
            _ => 0,
        };
        let scale = scale_of(left).max(scale_of(right));
        let power = |own: i8| i256::from_i128(10).wrapping_pow(u32::from((scale - own).unsigned_abs()));
        let powers = match self {
            Self::Multiply => (i256::ONE, i256::ONE),
            _ => (power(scale_of(left)), power(scale_of(right))),
        };
        let (left, right) = (left.values::<Decimal128Type>(), right.values::<Decimal128Type>());
        let rows = left.rows_with(&right);
        let mut results = PrimitiveBuilder::<Decimal128Type>::with_capacity(rows);
        for row in 0..rows {
            let (Some(left), Some(right)) = (left.get(row), right.get(row)) else {
                results.append_null();
                continue;
            };
            let result = self
                .exact(
                    i256::from_i128(left).wrapping_mul(powers.0),
                    i256::from_i128(right).wrapping_mul(powers.1),
                )
                .map_err(external)?;
            let result = result.to_i128().filter(|result| result.unsigned_abs() < LIMIT);
            results.append_value(result.ok_or_else(|| external(numeric_overflow(gives)))?);
        }
        Ok(Arc::new(results.finish().with_data_type(gives.clone())))
    }

    fn exact(self, left: i256, right: i256) -> Result<i256, SqlError> {
        match self {
            Self::Add => Ok(left.wrapping_add(right)),
            Self::Subtract => Ok(left.wrapping_sub(right)),
            Self::Multiply => Ok(left.wrapping_mul(right)),
            Self::Remainder => left
                .checked_rem(right)
                .ok_or_else(|| SqlError::new(SqlState::DivisionByZero, "division by zero")),
        }
    }
}

/// A [`DecimalFunction`] for DataFusion. The result has the type that its operator gives.
#[derive(Debug, PartialEq, Eq, Hash)]
struct DecimalUdf {
    function: DecimalFunction,
    signature: Signature,
}

impl ScalarUDFImpl for DecimalUdf {
    fn name(&self) -> &str {
        match self.function {
            DecimalFunction::Add => "checked_add",
            DecimalFunction::Subtract => "checked_sub",
            DecimalFunction::Multiply => "checked_mul",
            DecimalFunction::Remainder => "checked_mod",
        }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, arg_types: &[DataType]) -> PlanResult<DataType> {
        match arg_types {
            [left @ DataType::Decimal128(..), right @ DataType::Decimal128(..)] => {
                BinaryTypeCoercer::new(left, &self.function.operator(), right).get_result_type()
            }
            _ => exec_err!("{} takes two decimals", self.name()),
        }
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> PlanResult<ColumnarValue> {
        let [left, right] = args.args.as_slice() else {
            return exec_err!("{} takes two decimals", self.name());
        };
        let is_constant = |arg: &ColumnarValue| matches!(arg, ColumnarValue::Scalar(_));
        let all_constant = is_constant(left) && is_constant(right);
        let (left, right) = (Operand::of(left)?, Operand::of(right)?);
        let result = self.function.compute(&left, &right, args.return_type())?;
        Ok(match all_constant {
            true => ColumnarValue::Scalar(ScalarValue::try_from_array(&result, 0)?),
            false => ColumnarValue::Array(result),
        })
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::{Array, Decimal128Array};

    use super::*;

    fn column(values: Vec<Option<i128>>, scale: i8) -> Operand {
        let values = Decimal128Array::from(values).with_precision_and_scale(DECIMAL_DIGITS, scale);
        Operand::Column(Arc::new(values.unwrap()))
    }

    fn computed(function: DecimalFunction, left: &Operand, right: &Operand) -> PlanResult<Vec<Option<i128>>> {
        let udf = DecimalUdf {
            function,
            signature: Signature::any(2, Volatility::Immutable),
        };
        let types = [left, right].map(|operand| operand.datum().get().0.data_type().clone());
        let gives = udf.return_type(&types)?;
        let results = function.compute(left, right, &gives)?;
        assert_eq!(results.data_type(), &gives);
        Ok(results.as_primitive::<Decimal128Type>().iter().collect())
    }

    #[test]
    fn numbers_of_39_digits_are_errors_and_38_are_not() {
        let most = 10_i128.pow(38) - 1;
        for (function, left, right, expected) in [
            (DecimalFunction::Add, most, 1, None),
            (DecimalFunction::Add, most - 1, 1, Some(most)),
            (DecimalFunction::Add, most, most, None),
            (DecimalFunction::Add, -most, -1, None),
            (DecimalFunction::Add, -most, most, Some(0)),
            (DecimalFunction::Subtract, -most, 1, None),
            (DecimalFunction::Subtract, -most, -most, Some(0)),
            (DecimalFunction::Multiply, most, 1, Some(most)),
            (DecimalFunction::Multiply, most, -2, None),
            (DecimalFunction::Multiply, most, most, None),
        ] {
            let (left, right) = (
                column(vec![None, Some(left)], 0),
                column(vec![Some(1), Some(right)], 0),
            );
            let found = computed(function, &left, &right);
            match expected {
                Some(expected) => assert_eq!(found.unwrap(), [None, Some(expected)]),
                None => assert!(found.unwrap_err().to_string().contains("numeric field overflow")),
            }
        }
    }

    #[test]
    fn what_overflows_on_the_way_only_has_a_result() {
        // With sixteen digits behind the point the first number has 39 digits; the sum has not.
        let left = column(vec![Some(175 * 10_i128.pow(20))], 0);
        let right = column(vec![Some(-9 * 10_i128.pow(37))], 16);
        let found = computed(DecimalFunction::Add, &left, &right).unwrap();
        assert_eq!(found, [Some(85 * 10_i128.pow(36))]);
        let three = column(vec![Some(3 * 10_i128.pow(16))], 16);
        let found = computed(DecimalFunction::Remainder, &left, &three).unwrap();
        assert_eq!(found, [Some(10_i128.pow(16))]);
    }
}
