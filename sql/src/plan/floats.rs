//! Arithmetic of floats with PostgreSQL's errors: zero as the divisor, a result that is infinite although no operand is, one
//! that is zero although no operand is.

use std::fmt::Write;
use std::str::FromStr;
use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, ArrowPrimitiveType, AsArray, Float32Array, PrimitiveArray, PrimitiveBuilder,
};
use arrow::compute::kernels::numeric;
use arrow::datatypes::{DataType, Decimal128Type, Float32Type, Float64Type};
use datafusion::common::tree_node::Transformed;
use datafusion::common::{DFSchema, Result as PlanResult, ScalarValue, exec_err};
use datafusion::logical_expr::expr::{Cast, TryCast};
use datafusion::logical_expr::{
    BinaryExpr, ColumnarValue, Expr, ExprSchemable, Operator, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl,
    Signature, Volatility,
};

use crate::plan::operand::{Operand, OperandValues};
use crate::plan::translate::external;
use crate::{SqlError, SqlState};

/// A result beyond the largest float.
pub(crate) fn overflow() -> SqlError {
    SqlError::new(SqlState::NumericValueOutOfRange, "value out of range: overflow")
}

/// A result nearer to zero than any float.
pub(crate) fn underflow() -> SqlError {
    SqlError::new(SqlState::NumericValueOutOfRange, "value out of range: underflow")
}

/// An expression, whose types are resolved, that computes with floats or makes a REAL of a wider one: checked. A fixed point.
pub(crate) fn checked(expr: Expr, schema: &DFSchema) -> PlanResult<Transformed<Expr>> {
    // An expression with outer columns has no type here; it stays as it is.
    let is_double = |expr: &Expr| expr.get_type(schema).is_ok_and(|own| own == DataType::Float64);
    let is_numeric = |expr: &Expr| {
        let own = expr.get_type(schema);
        own.is_ok_and(|own| matches!(own, DataType::Decimal128(..)))
    };
    let call = match &expr {
        Expr::BinaryExpr(BinaryExpr { left, op, right }) => {
            let (Ok(left_type), Ok(right_type)) = (left.get_type(schema), right.get_type(schema)) else {
                return Ok(Transformed::no(expr));
            };
            match FloatFunction::of(*op) {
                Some(function) if left_type == right_type && left_type.is_floating() => {
                    function.call(vec![left.as_ref().clone(), right.as_ref().clone()])
                }
                _ => return Ok(Transformed::no(expr)),
            }
        }
        Expr::Cast(Cast { expr: inner, field }) if is_real(field.data_type()) && is_double(inner) => {
            FloatFunction::Real.call(vec![inner.as_ref().clone()])
        }
        Expr::Cast(Cast { expr: inner, field }) if field.data_type().is_floating() && is_numeric(inner) => {
            let function = match is_real(field.data_type()) {
                true => FloatFunction::RealOfNumeric,
                false => FloatFunction::DoubleOfNumeric,
            };
            function.call(vec![inner.as_ref().clone()])
        }
        Expr::TryCast(TryCast { expr: inner, field }) if is_real(field.data_type()) && is_double(inner) => {
            FloatFunction::TryReal.call(vec![inner.as_ref().clone()])
        }
        _ => return Ok(Transformed::no(expr)),
    };
    Ok(Transformed::yes(call))
}

fn is_real(data_type: &DataType) -> bool {
    *data_type == DataType::Float32
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum FloatFunction {
    Add,
    Subtract,
    Multiply,
    Divide,
    /// The nearest REAL of a DOUBLE PRECISION.
    Real,
    /// The same; NULL where there is none.
    TryReal,
    /// The nearest REAL of a NUMERIC.
    RealOfNumeric,
    /// The nearest DOUBLE PRECISION of a NUMERIC.
    DoubleOfNumeric,
}

impl FloatFunction {
    fn of(op: Operator) -> Option<Self> {
        match op {
            Operator::Plus => Some(Self::Add),
            Operator::Minus => Some(Self::Subtract),
            Operator::Multiply => Some(Self::Multiply),
            Operator::Divide => Some(Self::Divide),
            _ => None,
        }
    }

    fn call(self, args: Vec<Expr>) -> Expr {
        let arity = args.len();
        ScalarUDF::from(FloatUdf {
            function: self,
            signature: Signature::any(arity, Volatility::Immutable),
        })
        .call(args)
    }

    fn compute<T: ArrowPrimitiveType>(self, left: &Operand, right: &Operand) -> PlanResult<ArrayRef>
    where
        T::Native: Into<f64>,
    {
        let (left_values, right_values) = (left.values::<T>(), right.values::<T>());
        // A division by zero is looked for before anything is divided.
        if self == Self::Divide && right_values.any(|value| value.into() == 0.0) {
            self.check(&left_values, &right_values, None::<&PrimitiveArray<T>>)?;
        }
        let results = match self {
            Self::Add => numeric::add(left.datum(), right.datum()),
            Self::Subtract => numeric::sub(left.datum(), right.datum()),
            Self::Multiply => numeric::mul(left.datum(), right.datum()),
            _ => numeric::div(left.datum(), right.datum()),
        }?;
        let floats = results.as_primitive::<T>();
        let may_vanish = matches!(self, Self::Multiply | Self::Divide);
        let is_suspect = floats.values().iter().fold(false, |suspect, value| {
            let value: f64 = (*value).into();
            suspect | value.is_infinite() | (may_vanish & (value == 0.0))
        });
        if is_suspect {
            self.check(&left_values, &right_values, Some(floats))?;
        }
        Ok(results)
    }

    /// Looks at each row for an error; without results for a division by zero only.
    fn check<T: ArrowPrimitiveType>(
        self,
        left: &OperandValues<'_, T>,
        right: &OperandValues<'_, T>,
        results: Option<&PrimitiveArray<T>>,
    ) -> PlanResult<()>
    where
        T::Native: Into<f64>,
    {
        let rows = results.map_or_else(|| left.rows_with(right), Array::len);
        for row in 0..rows {
            let (Some(left), Some(right)) = (left.get(row), right.get(row)) else {
                continue;
            };
            let (left, right): (f64, f64) = (left.into(), right.into());
            let fault = match results {
                Some(results) => self.fault(left, right, results.value(row).into()),
                None if right == 0.0 && !left.is_nan() => {
                    Some(SqlError::new(SqlState::DivisionByZero, "division by zero"))
                }
                None => None,
            };
            if let Some(fault) = fault {
                return Err(external(fault));
            }
        }
        Ok(())
    }

    fn fault(self, left: f64, right: f64, result: f64) -> Option<SqlError> {
        let (overflows, vanishes) = match self {
            Self::Add | Self::Subtract => (!left.is_infinite() && !right.is_infinite(), false),
            Self::Multiply => (
                !left.is_infinite() && !right.is_infinite(),
                left != 0.0 && right != 0.0,
            ),
            _ => (
                !left.is_infinite() && right != 0.0,
                left != 0.0 && !right.is_infinite(),
            ),
        };
        match result {
            _ if result.is_infinite() && overflows => Some(overflow()),
            _ if result == 0.0 && vanishes => Some(underflow()),
            _ => None,
        }
    }
}

/// A [`FloatFunction`] for DataFusion.
#[derive(Debug, PartialEq, Eq, Hash)]
struct FloatUdf {
    function: FloatFunction,
    signature: Signature,
}

impl ScalarUDFImpl for FloatUdf {
    fn name(&self) -> &str {
        match self.function {
            FloatFunction::Add => "add",
            FloatFunction::Subtract => "subtract",
            FloatFunction::Multiply => "multiply",
            FloatFunction::Divide => "divide",
            FloatFunction::Real => "real",
            FloatFunction::TryReal => "try_real",
            FloatFunction::RealOfNumeric => "numeric_to_real",
            FloatFunction::DoubleOfNumeric => "numeric_to_double",
        }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, arg_types: &[DataType]) -> PlanResult<DataType> {
        match (self.function, arg_types) {
            (FloatFunction::Real | FloatFunction::TryReal | FloatFunction::RealOfNumeric, _) => {
                Ok(DataType::Float32)
            }
            (FloatFunction::DoubleOfNumeric, _) => Ok(DataType::Float64),
            (_, [float, _]) if float.is_floating() => Ok(float.clone()),
            _ => exec_err!("{} takes floats", self.name()),
        }
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> PlanResult<ColumnarValue> {
        let result = match args.args.as_slice() {
            [value] => {
                let value = Operand::of(value)?;
                let values = value.datum().get().0;
                match self.function {
                    FloatFunction::RealOfNumeric => of_numeric::<Float32Type>(values)?,
                    FloatFunction::DoubleOfNumeric => of_numeric::<Float64Type>(values)?,
                    function => reals(values, function)?,
                }
            }
            [left, right] => {
                let (left, right) = (Operand::of(left)?, Operand::of(right)?);
                match left.datum().get().0.data_type() {
                    DataType::Float32 => self.function.compute::<Float32Type>(&left, &right)?,
                    _ => self.function.compute::<Float64Type>(&left, &right)?,
                }
            }
            _ => return exec_err!("{} has a wrong number of arguments", self.name()),
        };
        let is_constant = args
            .args
            .iter()
            .all(|arg| matches!(arg, ColumnarValue::Scalar(_)));
        Ok(match is_constant {
            true => ColumnarValue::Scalar(ScalarValue::try_from_array(&result, 0)?),
            false => ColumnarValue::Array(result),
        })
    }
}

/// The nearest REAL.
///
/// # Errors
/// A value that is out of its range (22003).
pub fn real(value: f64) -> Result<f32, SqlError> {
    let real = value as f32;
    match real {
        _ if real.is_infinite() && value.is_finite() => Err(overflow()),
        _ if real == 0.0 && value != 0.0 => Err(underflow()),
        _ => Ok(real),
    }
}

/// The nearest float of each number: its digits are read as a text is, since a division would round twice.
fn of_numeric<T: ArrowPrimitiveType>(values: &dyn Array) -> PlanResult<ArrayRef>
where
    T::Native: FromStr,
{
    let DataType::Decimal128(_, scale) = values.data_type() else {
        return exec_err!("{} is no NUMERIC", values.data_type());
    };
    let mut text = String::new();
    let mut floats = PrimitiveBuilder::<T>::with_capacity(values.len());
    for value in values.as_primitive::<Decimal128Type>() {
        let float = value.and_then(|value| {
            text.clear();
            write!(text, "{value}e-{scale}").ok()?;
            text.parse::<T::Native>().ok()
        });
        floats.append_option(float);
    }
    Ok(Arc::new(floats.finish()))
}

/// The nearest REAL of each value; NULL where there is none, if that is asked for.
fn reals(values: &dyn Array, function: FloatFunction) -> PlanResult<ArrayRef> {
    if function != FloatFunction::TryReal {
        return as_reals(values).map_err(external);
    }
    let values = values.as_primitive::<Float64Type>().iter();
    let reals: Float32Array = values.map(|value| real(value?).ok()).collect();
    Ok(Arc::new(reals))
}

/// The nearest REAL of each DOUBLE PRECISION.
///
/// # Errors
/// A value that is out of its range (22003).
pub(crate) fn as_reals(values: &dyn Array) -> Result<ArrayRef, SqlError> {
    let values = values.as_primitive::<Float64Type>().iter();
    let reals = values.map(|value| value.map(real).transpose());
    Ok(Arc::new(reals.collect::<Result<Float32Array, SqlError>>()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn infinity_comes_from_infinity_only() {
        let infinity = f64::INFINITY;
        let fault = |function: FloatFunction, left, right, result| {
            function.fault(left, right, result).map(|error| error.message)
        };
        let overflow = Some("value out of range: overflow".to_owned());
        let underflow = Some("value out of range: underflow".to_owned());
        assert_eq!(fault(FloatFunction::Add, 1e308, 1e308, infinity), overflow);
        assert_eq!(fault(FloatFunction::Add, infinity, 1.0, infinity), None);
        assert_eq!(fault(FloatFunction::Multiply, 1e-300, 1e-300, 0.0), underflow);
        assert_eq!(fault(FloatFunction::Multiply, 0.0, 1e-300, 0.0), None);
        assert_eq!(fault(FloatFunction::Divide, 1e-300, 1e300, 0.0), underflow);
        assert_eq!(fault(FloatFunction::Divide, 1.0, infinity, 0.0), None);
        assert_eq!(fault(FloatFunction::Divide, 1e300, 1e-300, infinity), overflow);
    }
}
