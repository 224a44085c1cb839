//! Functions whose digits behind the point a constant says: `round(number, 2)`, `trunc(number, 2)`, `to_number(text, '999.99')`.

use arrow::datatypes::{DataType, Decimal128Type, Float64Type, Int32Type};
use datafusion::common::{DFSchema, Result as PlanResult, ScalarValue, plan_err};
use datafusion::logical_expr::{
    ColumnarValue, Expr, ExprSchemable, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};

use super::args::{Args, Computed};
use super::define::{Definition, Gives, Kind, Overload, run_with};
use super::number_pattern::NumberPattern;
use crate::plan::translate::external;
use crate::plan::types::{DECIMAL_DIGITS, column_type};
use crate::{SqlError, SqlState};

use Kind::{Float8, Int4, Numeric};

pub(crate) static ROUNDING: [Definition; 2] = [
    Definition::new(
        "round",
        &[
            Overload::new(&[Float8], Float8, |args| floats(args, f64::round_ties_even)),
            Overload::giving(&[Numeric], Gives::Of(whole_type), |args| {
                decimals(args, How::Round, 0)
            }),
            Overload::giving(&[Numeric, Int4], Gives::Same(0), |args| {
                by_column(args, How::Round)
            }),
            Overload::new(&[Float8, Int4], Float8, |args| {
                float_digits(args, f64::round_ties_even)
            }),
        ],
    ),
    Definition::new(
        "trunc",
        &[
            Overload::new(&[Float8], Float8, |args| floats(args, f64::trunc)),
            Overload::giving(&[Numeric], Gives::Of(whole_type), |args| {
                decimals(args, How::Cut, 0)
            }),
            Overload::giving(&[Numeric, Int4], Gives::Same(0), |args| by_column(args, How::Cut)),
            Overload::new(&[Float8, Int4], Float8, |args| float_digits(args, f64::trunc)),
        ],
    ),
];

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum How {
    Round,
    Cut,
}

fn whole_type(_: &[DataType]) -> DataType {
    DataType::Decimal128(DECIMAL_DIGITS, 0)
}

fn floats(args: &Args, round: fn(f64) -> f64) -> Computed {
    let numbers = args.numbers::<Float64Type>(0);
    args.strict::<Float64Type>(|row| Ok(round(numbers.get(row))))
}

/// Where PostgreSQL has NUMERIC, as of roots and deviations, DOUBLE PRECISION is rounded to digits too.
fn float_digits(args: &Args, round: fn(f64) -> f64) -> Computed {
    let (numbers, digits) = (args.numbers::<Float64Type>(0), args.numbers::<Int32Type>(1));
    args.strict::<Float64Type>(|row| {
        let power = 10f64.powi(digits.get(row));
        let moved = numbers.get(row) * power;
        Ok(match moved.is_finite() && power > 0.0 {
            true => round(moved) / power,
            false => numbers.get(row),
        })
    })
}

fn scale_of(data_type: &DataType) -> i32 {
    match data_type {
        DataType::Decimal128(_, scale) => i32::from(*scale),
        _ => 0,
    }
}

fn overflow() -> SqlError {
    SqlError::new(SqlState::NumericValueOutOfRange, "numeric field overflow")
}

/// The value with `digits` digits behind the point, in a type that has `gives` of them.
fn rounded(value: i128, (has, digits, gives): (i32, i32, i32), how: How) -> Result<i128, SqlError> {
    let power = |digits: i32| 10i128.checked_pow(digits.unsigned_abs());
    let dropped = has - digits;
    let kept = match (dropped > 0, power(dropped)) {
        (false, _) => value,
        // There are not as many digits.
        (true, None) => 0,
        (true, Some(one)) => {
            let (whole, rest) = (value / one, value % one);
            let is_up = how == How::Round && rest != 0 && rest.abs() >= one - rest.abs();
            let whole = if is_up { whole + value.signum() } else { whole };
            whole.checked_mul(one).ok_or_else(overflow)?
        }
    };
    let moved = match gives >= has {
        true => power(gives - has).and_then(|factor| kept.checked_mul(factor)),
        false => power(has - gives).map(|factor| kept / factor),
    };
    moved
        .filter(|value| value.unsigned_abs() < 10u128.pow(u32::from(DECIMAL_DIGITS)))
        .ok_or_else(overflow)
}

fn decimals(args: &Args, how: How, digits: i32) -> Computed {
    let scales = (scale_of(args.data_type(0)), digits, scale_of(args.gives()));
    let numbers = args.numbers::<Decimal128Type>(0);
    args.strict::<Decimal128Type>(|row| rounded(numbers.get(row), scales, how))
}

/// Where the number of digits differs from row to row, the type keeps those of the argument.
fn by_column(args: &Args, how: How) -> Computed {
    let (has, gives) = (scale_of(args.data_type(0)), scale_of(args.gives()));
    let (numbers, digits) = (args.numbers::<Decimal128Type>(0), args.numbers::<Int32Type>(1));
    args.strict::<Decimal128Type>(|row| {
        let digits = digits
            .get(row)
            .clamp(-i32::from(DECIMAL_DIGITS), i32::from(DECIMAL_DIGITS));
        rounded(numbers.get(row), (has, digits, gives), how)
    })
}

/// The call with its digits in the type, where a constant says how many there are.
///
/// # Errors
/// A pattern of `to_number` that is none, or no constant.
pub(crate) fn with_constant_digits(expr: &Expr, schema: &DFSchema) -> PlanResult<Option<Expr>> {
    let Expr::ScalarFunction(call) = expr else {
        return Ok(None);
    };
    let [value, second] = call.args.as_slice() else {
        return Ok(None);
    };
    if let Ok(DataType::Float32 | DataType::Float64) = value.get_type(schema) {
        return Ok(None);
    }
    let action = match (call.name(), integer(second)) {
        ("round", Some(digits)) => Action::Digits(How::Round, digits),
        ("trunc", Some(digits)) => Action::Digits(How::Cut, digits),
        ("to_number", _) => {
            let Expr::Literal(ScalarValue::Utf8(Some(pattern)), _) = second else {
                let error = SqlError::unsupported("to_number() with a pattern that is no constant");
                return Err(external(error));
            };
            NumberPattern::read(pattern).map_err(external)?;
            Action::Read(pattern.clone())
        }
        _ => return Ok(None),
    };
    let udf = Digits {
        action,
        signature: Signature::user_defined(Volatility::Immutable),
    };
    Ok(Some(ScalarUDF::from(udf).call(vec![value.clone()])))
}

fn integer(expr: &Expr) -> Option<i32> {
    let literal = |expr: &Expr| match expr {
        Expr::Literal(ScalarValue::Int64(Some(number)), _) => i32::try_from(*number).ok(),
        Expr::Literal(ScalarValue::Int32(Some(number)), _) => Some(*number),
        _ => None,
    };
    let number = match expr {
        Expr::Negative(inner) => literal(inner).and_then(i32::checked_neg),
        other => literal(other),
    };
    number.filter(|number| number.unsigned_abs() <= u32::from(DECIMAL_DIGITS))
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Action {
    Digits(How, i32),
    /// `to_number` by this pattern.
    Read(String),
}

/// `to_number`, which is never called under this name.
pub(crate) static TO_NUMBER: Definition = Definition::new(
    "to_number",
    &[Overload::new(&[Kind::Text, Kind::Text], Numeric, |_| {
        Err(SqlError::unsupported(
            "to_number() with a pattern that is no constant",
        ))
    })],
);

#[derive(Debug, PartialEq, Eq, Hash)]
struct Digits {
    action: Action,
    signature: Signature,
}

impl Digits {
    fn takes(&self, args: &[DataType]) -> PlanResult<DataType> {
        let given = args.first().map(column_type);
        let fits = match (&self.action, &given) {
            (Action::Read(_), Some(DataType::Utf8)) => Some(DataType::Utf8),
            (Action::Digits(..), Some(DataType::Decimal128(..))) => given.clone(),
            (Action::Digits(..), Some(DataType::Int16 | DataType::Int32 | DataType::Int64)) => {
                Some(DataType::Decimal128(19, 0))
            }
            (Action::Digits(..), Some(DataType::Utf8)) => Some(DataType::Decimal128(
                DECIMAL_DIGITS,
                crate::plan::types::DECIMAL_SCALE,
            )),
            _ => None,
        };
        match fits {
            Some(fits) => Ok(fits),
            None => {
                let types: Vec<String> = args.iter().map(ToString::to_string).collect();
                plan_err!(
                    "No function matches the given name and argument types '{}({}, Int32)'.",
                    self.name(),
                    types.join(", ")
                )
            }
        }
    }
}

impl ScalarUDFImpl for Digits {
    fn name(&self) -> &str {
        match self.action {
            Action::Digits(How::Round, _) => "round",
            Action::Digits(How::Cut, _) => "trunc",
            Action::Read(_) => "to_number",
        }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn schema_name(&self, args: &[Expr]) -> PlanResult<String> {
        let args: Vec<String> = args.iter().map(|arg| arg.schema_name().to_string()).collect();
        let name = self.name();
        Ok(match &self.action {
            Action::Digits(_, digits) => format!("{name}({},{digits})", args.join(",")),
            Action::Read(pattern) => format!("{name}({},{pattern})", args.join(",")),
        })
    }

    fn display_name(&self, args: &[Expr]) -> PlanResult<String> {
        self.schema_name(args)
    }

    fn return_type(&self, args: &[DataType]) -> PlanResult<DataType> {
        self.takes(args)?;
        let digits = match &self.action {
            Action::Digits(_, digits) => (*digits).max(0),
            Action::Read(pattern) => {
                let pattern = NumberPattern::read(pattern).map_err(external)?;
                i32::try_from(pattern.scale()).unwrap_or(i32::MAX)
            }
        };
        let digits = digits.min(i32::from(DECIMAL_DIGITS) - 1);
        Ok(DataType::Decimal128(
            DECIMAL_DIGITS,
            i8::try_from(digits).unwrap_or(0),
        ))
    }

    fn coerce_types(&self, args: &[DataType]) -> PlanResult<Vec<DataType>> {
        Ok(vec![self.takes(args)?])
    }

    fn invoke_with_args(&self, call: ScalarFunctionArgs) -> PlanResult<ColumnarValue> {
        let types: Vec<DataType> = call.args.iter().map(ColumnarValue::data_type).collect();
        let types = vec![self.takes(&types)?];
        run_with(&call, &types, |args| match &self.action {
            Action::Digits(how, digits) => decimals(args, *how, *digits),
            Action::Read(pattern) => read(args, &NumberPattern::read(pattern)?),
        })
    }
}

fn read(args: &Args, pattern: &NumberPattern) -> Computed {
    let scale = scale_of(args.gives()).unsigned_abs() as usize;
    let texts = args.texts(0);
    args.strict::<Decimal128Type>(|row| {
        let number = pattern.number_in(texts.get(row))?;
        let (whole, fraction) = number.split_once('.').unwrap_or((&number, ""));
        let fraction = &fraction[..fraction.len().min(scale)];
        format!("{whole}{fraction:0<scale$}")
            .parse::<i128>()
            .map_err(|_| overflow())
    })
}
