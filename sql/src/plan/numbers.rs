//! Numbers as PostgreSQL has them where DataFusion has them otherwise: constants, casts to integers.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray};
use arrow::datatypes::{DECIMAL256_MAX_PRECISION, DataType, Decimal128Type, Float32Type, Float64Type};
use arrow::error::ArrowError;
use datafusion::common::tree_node::Transformed;
use datafusion::common::{DFSchema, DataFusionError, Result as PlanResult, ScalarValue, exec_err};
use datafusion::logical_expr::expr::Cast;
use datafusion::logical_expr::{
    ColumnarValue, Expr, ExprSchemable, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};

use crate::plan::float_digits;
use crate::plan::translate::external;
use crate::plan::types::{DECIMAL_DIGITS, DECIMAL_SCALE};

/// A constant in a type that columns have: `1e15` is NUMERIC with no digit behind the point, and an integer beyond
/// BIGINT is NUMERIC.
pub(crate) fn constant(expr: Expr) -> Transformed<Expr> {
    let value = match &expr {
        Expr::Literal(ScalarValue::Decimal128(Some(digits), _, scale), _) if *scale < 0 => {
            whole_constant(*digits, scale.unsigned_abs())
        }
        Expr::Literal(ScalarValue::UInt64(Some(number)), _) => {
            ScalarValue::Decimal128(Some(i128::from(*number)), DECIMAL_DIGITS, 0)
        }
        // As NUMERIC without a precision it keeps all of its digits, where the type has room for 16 behind the point only.
        Expr::Cast(Cast { expr: inner, field }) => match (inner.as_ref(), field.data_type()) {
            (
                Expr::Literal(ScalarValue::Decimal128(Some(digits), _, scale), _),
                DataType::Decimal128(DECIMAL_DIGITS, DECIMAL_SCALE),
            ) if (0..DECIMAL_SCALE).contains(scale) && !has_room(*digits, *scale) => {
                ScalarValue::Decimal128(Some(*digits), DECIMAL_DIGITS, *scale)
            }
            _ => return Transformed::no(expr),
        },
        _ => return Transformed::no(expr),
    };
    Transformed::yes(Expr::Literal(value, None))
}

/// Whether a decimal can have as many digits behind the point as NUMERIC without a precision.
fn has_room(digits: i128, scale: i8) -> bool {
    let zeros = u32::from((DECIMAL_SCALE - scale).unsigned_abs());
    let padded = 10_i128
        .checked_pow(zeros)
        .and_then(|power| digits.checked_mul(power));
    padded.is_some_and(|padded| fits(padded, DECIMAL_DIGITS))
}

/// `digits` with zeros behind them; DOUBLE PRECISION where NUMERIC has not that many.
fn whole_constant(digits: i128, zeros: u8) -> ScalarValue {
    let exact = 10_i128
        .checked_pow(u32::from(zeros))
        .and_then(|power| digits.checked_mul(power))
        .filter(|value| value.unsigned_abs() < 10_u128.pow(u32::from(DECIMAL_DIGITS)));
    match exact {
        Some(value) => ScalarValue::Decimal128(Some(value), DECIMAL_DIGITS, 0),
        // Reading the text is exact where multiplying is not.
        None => ScalarValue::Float64(format!("{digits}e{zeros}").parse().ok()),
    }
}

/// Whether DataFusion has a decimal for a number as it is written. What has none is a float here.
pub(crate) fn is_exact(number: &str) -> bool {
    let (digits, exponent) = number.split_once(['e', 'E']).unwrap_or((number, "0"));
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let count = |digits: &str| i64::try_from(digits.bytes().filter(u8::is_ascii_digit).count());
    let (Ok(exponent), Ok(fraction), Ok(significant)) = (
        exponent.parse::<i64>(),
        count(fraction),
        count(format!("{whole}{fraction}").trim_start_matches(['0', '_'])),
    ) else {
        return false;
    };
    let scale = fraction.saturating_sub(exponent);
    significant.max(scale) <= i64::from(DECIMAL256_MAX_PRECISION) && scale >= i64::from(i8::MIN)
}

/// Whether a decimal of `precision` digits holds this number, all of whose digits are counted.
pub(crate) fn fits(digits: i128, precision: u8) -> bool {
    let end = 10_u128.checked_pow(u32::from(precision.min(DECIMAL_DIGITS)));
    end.is_some_and(|end| digits.unsigned_abs() < end)
}

/// An expression, whose types are resolved, with a cast to an integer that rounds, a cast from a float to NUMERIC by its
/// digits, or a negation that fails where it does not fit.
pub(crate) fn checked(expr: Expr, schema: &DFSchema) -> PlanResult<Transformed<Expr>> {
    let type_of = |expr: &Expr| {
        // An expression with outer columns has no type here; it stays as it is.
        expr.get_type(schema).ok()
    };
    match &expr {
        Expr::Cast(Cast { expr: inner, field })
            if type_of(inner).is_some_and(|from| matches!(from, DataType::Float32 | DataType::Float64))
                && matches!(field.data_type(), DataType::Decimal128(..)) =>
        {
            let wanted = NumberFunction::Decimal(field.data_type().clone());
            Ok(Transformed::yes(call(wanted, vec![inner.as_ref().clone()])))
        }
        Expr::Cast(Cast { expr: inner, field }) if is_integer(field.data_type()) => {
            if !type_of(inner).is_some_and(|from| has_fraction(&from)) || is_whole(inner) {
                return Ok(Transformed::no(expr));
            }
            Ok(Transformed::yes(Expr::Cast(Cast {
                expr: Box::new(call(NumberFunction::Whole, vec![inner.as_ref().clone()])),
                field: Arc::clone(field),
            })))
        }
        // Of the smallest integer there is no negative; a difference is checked.
        Expr::Negative(inner) if !matches!(**inner, Expr::Literal(..)) => match type_of(inner) {
            Some(data_type) if is_integer(&data_type) => {
                let zero = Expr::Literal(ScalarValue::new_zero(&data_type)?, None);
                Ok(Transformed::yes(zero - inner.as_ref().clone()))
            }
            _ => Ok(Transformed::no(expr)),
        },
        _ => Ok(Transformed::no(expr)),
    }
}

fn is_integer(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Int16 | DataType::Int32 | DataType::Int64)
}

fn has_fraction(data_type: &DataType) -> bool {
    match data_type {
        DataType::Decimal128(_, scale) => *scale > 0,
        DataType::Float32 | DataType::Float64 => true,
        _ => false,
    }
}

fn is_whole(expr: &Expr) -> bool {
    matches!(expr, Expr::ScalarFunction(call) if call.name() == NumberFunction::Whole.name())
}

fn call(function: NumberFunction, args: Vec<Expr>) -> Expr {
    let arity = args.len();
    ScalarUDF::from(NumberUdf {
        function,
        signature: Signature::any(arity, Volatility::Immutable),
    })
    .call(args)
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum NumberFunction {
    /// The nearest whole number: halves of NUMERIC go away from zero, halves of floats to the even neighbour.
    Whole,
    /// A float as a decimal of this type.
    Decimal(DataType),
}

impl NumberFunction {
    fn name(&self) -> &'static str {
        match self {
            Self::Whole => "whole",
            Self::Decimal(_) => "numeric",
        }
    }
}

/// A [`NumberFunction`] for DataFusion. The result has the type of the arguments, unless the function says another.
#[derive(Debug, PartialEq, Eq, Hash)]
struct NumberUdf {
    function: NumberFunction,
    signature: Signature,
}

impl ScalarUDFImpl for NumberUdf {
    fn name(&self) -> &str {
        self.function.name()
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, arg_types: &[DataType]) -> PlanResult<DataType> {
        match (arg_types.first(), &self.function) {
            (Some(DataType::Float32 | DataType::Float64), NumberFunction::Decimal(wanted)) => {
                Ok(wanted.clone())
            }
            (Some(number), _) if has_fraction(number) => Ok(number.clone()),
            _ => exec_err!("{} takes numbers with a fraction", self.name()),
        }
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> PlanResult<ColumnarValue> {
        let arrays = ColumnarValue::values_to_arrays(&args.args)?;
        let result = match (&self.function, arrays.as_slice()) {
            (NumberFunction::Whole, [numbers]) => whole(numbers),
            (NumberFunction::Decimal(wanted), [numbers]) => {
                return float_digits::decimals(numbers, wanted)
                    .map(ColumnarValue::Array)
                    .map_err(external);
            }
            _ => return exec_err!("{} has a wrong number of arguments", self.name()),
        };
        result.map(ColumnarValue::Array).map_err(DataFusionError::from)
    }
}

/// The nearest whole numbers.
///
/// # Errors
/// A type whose values have no fraction.
pub(crate) fn whole(numbers: &ArrayRef) -> Result<ArrayRef, ArrowError> {
    Ok(match numbers.data_type() {
        DataType::Float32 => {
            let values = numbers.as_primitive::<Float32Type>();
            Arc::new(values.unary::<_, Float32Type>(f32::round_ties_even))
        }
        DataType::Float64 => {
            let values = numbers.as_primitive::<Float64Type>();
            Arc::new(values.unary::<_, Float64Type>(f64::round_ties_even))
        }
        DataType::Decimal128(_, scale) => {
            let one = 10_i128.pow(u32::from(scale.unsigned_abs()));
            let values = numbers.as_primitive::<Decimal128Type>();
            let whole = values.unary::<_, Decimal128Type>(|value| whole_decimal(value, one));
            Arc::new(whole.with_data_type(numbers.data_type().clone()))
        }
        other => {
            return Err(ArrowError::InvalidArgumentError(format!(
                "{other} has no fraction to round"
            )));
        }
    })
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
    fn halves_of_decimals_go_away_from_zero() {
        let rounded = [24, 25, -24, -25, 0, 99].map(|value| whole_decimal(value, 10));
        assert_eq!(rounded, [20, 30, -20, -30, 0, 100]);
        let one = 10_i128.pow(38);
        assert_eq!(whole_decimal(one / 2, one), one);
        assert_eq!(whole_decimal(1 - one / 2, one), 0);
    }

    #[test]
    fn numbers_that_have_no_decimal_are_known() {
        for (number, is_decimal) in [
            ("1.5", true),
            ("1e100", true),
            ("1e308", false),
            ("1.5E-80", false),
            ("0.00000000000000000000000000000000000000001", true),
            ("1e99999999999999999999", false),
        ] {
            assert_eq!(is_exact(number), is_decimal, "{number}");
        }
    }

    #[test]
    fn constants_with_an_exponent_are_exact() {
        assert_eq!(
            whole_constant(15, 14),
            ScalarValue::Decimal128(Some(1_500_000_000_000_000), 38, 0)
        );
        assert_eq!(whole_constant(1, 100), ScalarValue::Float64(Some(1e100)));
    }
}
