//! Functions of numbers. Roots, logarithms and powers are DOUBLE PRECISION, of NUMERIC too.

use arrow::datatypes::{ArrowPrimitiveType, DataType, Decimal128Type, Float64Type, Int32Type, Int64Type};

use super::args::{Args, Computed};
use super::arrays;
use super::define::{Definition, Gives, Kind, Overload};
use crate::plan::floats::{overflow, underflow};
use crate::plan::types::DECIMAL_DIGITS;
use crate::{SqlError, SqlState};

use Kind::{Float8, Int4, Int8, Numeric};

type Fallible = Result<f64, SqlError>;

/// Radians of a degree, as PostgreSQL has them.
const DEGREE: f64 = std::f64::consts::PI / 180.0;

pub(crate) static MATH: [Definition; 20] = [
    Definition::new("exp", &[Overload::new(&[Float8], Float8, |args| each(args, exp))]),
    Definition::new(
        "ln",
        &[Overload::new(&[Float8], Float8, |args| {
            each(args, |x| logarithm(x, f64::ln))
        })],
    ),
    Definition::new(
        "log10",
        &[Overload::new(&[Float8], Float8, |args| {
            each(args, |x| logarithm(x, f64::log10))
        })],
    ),
    Definition::new(
        "log2",
        &[Overload::new(&[Float8], Float8, |args| {
            each(args, |x| logarithm(x, f64::log2))
        })],
    ),
    Definition::new(
        "log",
        &[
            Overload::new(&[Float8], Float8, |args| each(args, |x| logarithm(x, f64::log10))),
            Overload::new(&[Float8, Float8], Float8, |args| pairs(args, logarithm_to)),
        ],
    ),
    Definition::new(
        "sqrt",
        &[Overload::new(&[Float8], Float8, |args| each(args, root))],
    ),
    Definition::new(
        "cbrt",
        &[Overload::new(&[Float8], Float8, |args| {
            each(args, |x| Ok(x.cbrt()))
        })],
    ),
    Definition::new(
        "power",
        &[Overload::new(&[Float8, Float8], Float8, |args| {
            pairs(args, power)
        })],
    ),
    Definition::new(
        "pow",
        &[Overload::new(&[Float8, Float8], Float8, |args| {
            pairs(args, power)
        })],
    ),
    Definition::new(
        "degrees",
        &[Overload::new(&[Float8], Float8, |args| {
            each(args, |x| in_range(x / DEGREE, x != 0.0 && x.is_finite()))
        })],
    ),
    Definition::new(
        "radians",
        &[Overload::new(&[Float8], Float8, |args| {
            each(args, |x| in_range(x * DEGREE, x != 0.0 && x.is_finite()))
        })],
    ),
    Definition::new(
        "div",
        &[
            Overload::new(&[Int8, Int8], Int8, |args| {
                integers::<Int64Type>(args, |a, b| divisor(b).map(|b| a.checked_div(b)))
            }),
            Overload::giving(&[Numeric, Numeric], Gives::Of(whole_type), whole_quotients),
        ],
    ),
    Definition::new(
        "mod",
        &[
            Overload::new(&[Int4, Int4], Int4, |args| {
                integers::<Int32Type>(args, |a, b| divisor(b).map(|b| Some(a.wrapping_rem(b))))
            }),
            Overload::new(&[Int8, Int8], Int8, |args| {
                integers::<Int64Type>(args, |a, b| divisor(b).map(|b| Some(a.wrapping_rem(b))))
            }),
            Overload::giving(&[Numeric, Numeric], Gives::Of(common_type), |args| {
                aligned(args, |a, b| divisor(b).map(|b| Some(a % b)))
            }),
        ],
    ),
    Definition::new(
        "gcd",
        &[
            Overload::new(&[Int4, Int4], Int4, |args| {
                integers::<Int32Type>(args, |a, b| Ok(gcd(a.into(), b.into()).try_into().ok()))
            }),
            Overload::new(&[Int8, Int8], Int8, |args| {
                integers::<Int64Type>(args, |a, b| Ok(gcd(a.into(), b.into()).try_into().ok()))
            }),
            Overload::giving(&[Numeric, Numeric], Gives::Of(common_type), |args| {
                aligned(args, |a, b| Ok(Some(gcd(a, b))))
            }),
        ],
    ),
    Definition::new(
        "lcm",
        &[
            Overload::new(&[Int4, Int4], Int4, |args| {
                integers::<Int32Type>(args, |a, b| {
                    Ok(lcm(a.into(), b.into()).and_then(|v| v.try_into().ok()))
                })
            }),
            Overload::new(&[Int8, Int8], Int8, |args| {
                integers::<Int64Type>(args, |a, b| {
                    Ok(lcm(a.into(), b.into()).and_then(|v| v.try_into().ok()))
                })
            }),
            Overload::giving(&[Numeric, Numeric], Gives::Of(common_type), |args| {
                aligned(args, |a, b| Ok(lcm(a, b)))
            }),
        ],
    ),
    Definition::new("factorial", &[Overload::new(&[Int8], Numeric, factorial)]),
    Definition::new(
        "sign",
        &[
            Overload::new(&[Float8], Float8, |args| {
                each(args, |x| Ok(if x == 0.0 || x.is_nan() { x } else { x.signum() }))
            }),
            Overload::new(&[Numeric], Numeric, |args| {
                let numbers = args.numbers::<Decimal128Type>(0);
                args.strict::<Decimal128Type>(|row| Ok(numbers.get(row).signum()))
            }),
        ],
    ),
    Definition::new("scale", &[Overload::new(&[Numeric], Int4, scale)]),
    Definition::new("min_scale", &[Overload::new(&[Numeric], Int4, min_scale)]),
    Definition::new(
        "width_bucket",
        &[
            Overload::new(&[Float8, Float8, Float8, Int4], Int4, width_bucket),
            Overload::new(&[Numeric, Numeric, Numeric, Int4], Int4, width_bucket_exact),
            Overload::new(&[Kind::Element, Kind::Array], Int4, arrays::bucket),
        ],
    ),
];

/// A function of one number.
macro_rules! of_float {
    ($name:literal, $run:expr) => {
        Definition::new($name, &[Overload::new(&[Float8], Float8, $run)])
    };
}

pub(crate) static ANGLES: [Definition; 24] = [
    of_float!("acos", |args| each(args, |x| within(x).map(f64::acos))),
    of_float!("asin", |args| each(args, |x| within(x).map(f64::asin))),
    of_float!("atan", |args| each(args, |x| Ok(x.atan()))),
    of_float!("cos", |args| each(args, |x| finite(x).map(f64::cos))),
    of_float!("sin", |args| each(args, |x| finite(x).map(f64::sin))),
    of_float!("tan", |args| each(args, |x| finite(x).map(f64::tan))),
    of_float!("cot", |args| each(args, |x| finite(x).map(|x| 1.0 / x.tan()))),
    of_float!("acosd", |args| each(args, |x| within(x)
        .map(|x| nearly(x.acos().to_degrees())))),
    of_float!("asind", |args| each(args, |x| within(x)
        .map(|x| nearly(x.asin().to_degrees())))),
    of_float!("atand", |args| each(args, |x| Ok(nearly(x.atan().to_degrees())))),
    of_float!("cosd", |args| each(args, |x| finite(x).map(cosine))),
    of_float!("sind", |args| each(args, |x| finite(x).map(sine))),
    of_float!("tand", |args| each(args, |x| finite(x)
        .map(|x| sine(x) / cosine(x)))),
    of_float!("cotd", |args| each(args, |x| finite(x)
        .map(|x| cosine(x) / sine(x)))),
    of_float!("sinh", |args| each(args, |x| Ok(x.sinh()))),
    of_float!("cosh", |args| each(args, |x| Ok(x.cosh()))),
    of_float!("tanh", |args| each(args, |x| Ok(x.tanh()))),
    of_float!("asinh", |args| each(args, |x| Ok(x.asinh()))),
    of_float!("acosh", |args| each(args, |x| if x < 1.0 {
        Err(out_of_range())
    } else {
        Ok(x.acosh())
    })),
    of_float!("atanh", |args| each(args, |x| within(x).map(f64::atanh))),
    Definition::new(
        "atan2",
        &[Overload::new(&[Float8, Float8], Float8, |args| {
            pairs(args, |y, x| Ok(y.atan2(x)))
        })],
    ),
    Definition::new(
        "atan2d",
        &[Overload::new(&[Float8, Float8], Float8, |args| {
            pairs(args, |y, x| Ok(nearly(y.atan2(x).to_degrees())))
        })],
    ),
    Definition::new("ceil", &ROUNDED_UP),
    Definition::new("floor", &ROUNDED_DOWN),
];

static ROUNDED_UP: [Overload; 2] = [
    Overload::new(&[Float8], Float8, |args| each(args, |x| Ok(x.ceil()))),
    Overload::giving(&[Numeric], Gives::Of(whole_type), |args| {
        wholes(args, |value, one| {
            value.div_euclid(one) + i128::from(value.rem_euclid(one) != 0)
        })
    }),
];
static ROUNDED_DOWN: [Overload; 2] = [
    Overload::new(&[Float8], Float8, |args| each(args, |x| Ok(x.floor()))),
    Overload::giving(&[Numeric], Gives::Of(whole_type), |args| {
        wholes(args, |value, one| value.div_euclid(one))
    }),
];

pub(crate) static CEILING: Definition = Definition::new("ceiling", &ROUNDED_UP);

fn each(args: &Args, compute: fn(f64) -> Fallible) -> Computed {
    let numbers = args.numbers::<Float64Type>(0);
    args.strict::<Float64Type>(|row| compute(numbers.get(row)))
}

fn pairs(args: &Args, compute: fn(f64, f64) -> Fallible) -> Computed {
    let (left, right) = (args.numbers::<Float64Type>(0), args.numbers::<Float64Type>(1));
    args.strict::<Float64Type>(|row| compute(left.get(row), right.get(row)))
}

fn integers<T: ArrowPrimitiveType>(
    args: &Args,
    compute: impl Fn(T::Native, T::Native) -> Result<Option<T::Native>, SqlError>,
) -> Computed {
    let (left, right) = (args.numbers::<T>(0), args.numbers::<T>(1));
    args.strict::<T>(|row| {
        let computed = compute(left.get(row), right.get(row))?;
        computed.ok_or_else(|| too_large(args.gives()))
    })
}

fn out_of_range() -> SqlError {
    SqlError::new(SqlState::NumericValueOutOfRange, "input is out of range")
}

fn too_large(data_type: &DataType) -> SqlError {
    let name = crate::plan::types::sql_type_name(data_type);
    SqlError::new(SqlState::NumericValueOutOfRange, format!("{name} out of range"))
}

fn divisor<T: Default + PartialEq>(value: T) -> Result<T, SqlError> {
    match value == T::default() {
        true => Err(SqlError::new(SqlState::DivisionByZero, "division by zero")),
        false => Ok(value),
    }
}

fn finite(x: f64) -> Fallible {
    if x.is_infinite() {
        Err(out_of_range())
    } else {
        Ok(x)
    }
}

fn within(x: f64) -> Fallible {
    if x.abs() > 1.0 { Err(out_of_range()) } else { Ok(x) }
}

fn exp(x: f64) -> Fallible {
    in_range(x.exp(), x.is_finite())
}

/// The result, unless it is out of range: infinite or zero where all arguments are finite and it can be neither.
fn in_range(result: f64, is_finite: bool) -> Fallible {
    match is_finite {
        true if result.is_infinite() => Err(overflow()),
        true if result == 0.0 => Err(underflow()),
        _ => Ok(result),
    }
}

fn logarithm(x: f64, compute: fn(f64) -> f64) -> Fallible {
    let fault = |message| Err(SqlError::new(SqlState::InvalidArgumentForLogarithm, message));
    match x {
        _ if x == 0.0 => fault("cannot take logarithm of zero"),
        _ if x < 0.0 => fault("cannot take logarithm of a negative number"),
        _ => Ok(compute(x)),
    }
}

fn logarithm_to(base: f64, x: f64) -> Fallible {
    let (base, x) = (logarithm(base, f64::ln)?, logarithm(x, f64::ln)?);
    Ok(x / divisor(base)?)
}

fn root(x: f64) -> Fallible {
    match x < 0.0 {
        true => Err(SqlError::new(
            SqlState::InvalidArgumentForPowerFunction,
            "cannot take square root of a negative number",
        )),
        false => Ok(x.sqrt()),
    }
}

fn power(base: f64, exponent: f64) -> Fallible {
    let fault = |message| Err(SqlError::new(SqlState::InvalidArgumentForPowerFunction, message));
    if base == 0.0 && exponent < 0.0 {
        return fault("zero raised to a negative power is undefined");
    }
    if base < 0.0 && exponent.is_finite() && exponent.fract() != 0.0 {
        return fault("a negative number raised to a non-integer power yields a complex result");
    }
    let is_finite = base != 0.0 && base.is_finite() && exponent.is_finite();
    in_range(base.powf(exponent), is_finite)
}

/// Degrees that a float misses by its last digit are whole.
fn nearly(degrees: f64) -> f64 {
    let whole = degrees.round();
    if (degrees - whole).abs() < 1e-12 {
        whole
    } else {
        degrees
    }
}

/// Exact where the angle is a multiple of 30 or 45 degrees.
fn sine(degrees: f64) -> f64 {
    let angle = degrees.rem_euclid(360.0);
    let half = |angle: f64| match angle {
        30.0 | 150.0 => 0.5,
        90.0 => 1.0,
        0.0 | 180.0 => 0.0,
        _ => angle.to_radians().sin(),
    };
    if angle > 180.0 {
        -half(angle - 180.0)
    } else {
        half(angle)
    }
}

fn cosine(degrees: f64) -> f64 {
    let angle = degrees.abs().rem_euclid(360.0);
    match angle {
        60.0 | 300.0 => 0.5,
        120.0 | 240.0 => -0.5,
        90.0 | 270.0 => 0.0,
        0.0 => 1.0,
        180.0 => -1.0,
        // Tangents of 45 degrees are one.
        45.0 | 315.0 => sine(45.0),
        135.0 | 225.0 => -sine(45.0),
        _ => angle.to_radians().cos(),
    }
}

fn scale_of(data_type: &DataType) -> i8 {
    match data_type {
        DataType::Decimal128(_, scale) => *scale,
        _ => 0,
    }
}

/// NUMERIC without digits behind the point.
fn whole_type(_: &[DataType]) -> DataType {
    DataType::Decimal128(DECIMAL_DIGITS, 0)
}

/// NUMERIC with as many digits behind the point as the argument that has the most.
fn common_type(args: &[DataType]) -> DataType {
    let scale = args.iter().map(scale_of).max().unwrap_or(0);
    DataType::Decimal128(DECIMAL_DIGITS, scale)
}

fn power_of_ten(digits: i8) -> i128 {
    10i128.pow(u32::from(digits.unsigned_abs()))
}

/// Whole numbers from numbers with a fraction: `round` gets the value and what counts as one in it.
fn wholes(args: &Args, round: fn(i128, i128) -> i128) -> Computed {
    let one = power_of_ten(scale_of(args.data_type(0)));
    let numbers = args.numbers::<Decimal128Type>(0);
    args.strict::<Decimal128Type>(|row| Ok(round(numbers.get(row), one)))
}

/// Two numbers with the same digits behind the point.
fn aligned(args: &Args, compute: fn(i128, i128) -> Result<Option<i128>, SqlError>) -> Computed {
    let wanted = scale_of(args.gives());
    let factors = [0, 1].map(|arg| power_of_ten(wanted - scale_of(args.data_type(arg))));
    let (left, right) = (
        args.numbers::<Decimal128Type>(0),
        args.numbers::<Decimal128Type>(1),
    );
    args.strict::<Decimal128Type>(|row| {
        let scaled = (
            left.get(row).checked_mul(factors[0]),
            right.get(row).checked_mul(factors[1]),
        );
        let value = match scaled {
            (Some(left), Some(right)) => compute(left, right)?,
            _ => None,
        };
        value.ok_or_else(|| too_large(&DataType::Decimal128(DECIMAL_DIGITS, 0)))
    })
}

fn whole_quotients(args: &Args) -> Computed {
    let scales = [0, 1].map(|arg| scale_of(args.data_type(arg)));
    let wanted = scales[0].max(scales[1]);
    let factors = scales.map(|scale| power_of_ten(wanted - scale));
    let (left, right) = (
        args.numbers::<Decimal128Type>(0),
        args.numbers::<Decimal128Type>(1),
    );
    args.strict::<Decimal128Type>(|row| {
        let divisor = divisor(right.get(row))?.checked_mul(factors[1]);
        let value = left.get(row).checked_mul(factors[0]);
        value
            .zip(divisor)
            .map(|(value, divisor)| value / divisor)
            .ok_or_else(|| too_large(&DataType::Decimal128(DECIMAL_DIGITS, 0)))
    })
}

fn gcd(a: i128, b: i128) -> i128 {
    let (mut a, mut b) = (a.unsigned_abs(), b.unsigned_abs());
    while b != 0 {
        (a, b) = (b, a % b);
    }
    i128::try_from(a).unwrap_or(i128::MAX)
}

fn lcm(a: i128, b: i128) -> Option<i128> {
    match gcd(a, b) {
        0 => Some(0),
        common => (a / common).checked_mul(b).and_then(i128::checked_abs),
    }
}

fn factorial(args: &Args) -> Computed {
    let numbers = args.numbers::<Int64Type>(0);
    args.strict::<Decimal128Type>(|row| {
        let number = numbers.get(row);
        if number < 0 {
            return Err(SqlError::new(
                SqlState::NumericValueOutOfRange,
                "factorial of a negative number is undefined",
            ));
        }
        let product = (1..=i128::from(number.min(40))).try_fold(1i128, i128::checked_mul);
        product
            .filter(|product| number <= 40 && *product < power_of_ten(38))
            .ok_or_else(|| SqlError::new(SqlState::NumericValueOutOfRange, "value overflows numeric format"))
    })
}

fn scale(args: &Args) -> Computed {
    let scale = i32::from(scale_of(args.data_type(0)));
    args.strict::<Int32Type>(|_| Ok(scale))
}

fn min_scale(args: &Args) -> Computed {
    let scale = scale_of(args.data_type(0));
    let numbers = args.numbers::<Decimal128Type>(0);
    args.strict::<Int32Type>(|row| {
        let (mut value, mut digits) = (numbers.get(row), i32::from(scale));
        while digits > 0 && value % 10 == 0 {
            value /= 10;
            digits -= 1;
        }
        Ok(digits)
    })
}

fn bucket_fault(message: &str) -> SqlError {
    SqlError::new(SqlState::InvalidArgumentForWidthBucket, message)
}

/// The number of buckets, which counts at least one.
fn buckets(args: &Args, row: usize) -> Result<i32, SqlError> {
    let count = args.numbers::<Int32Type>(3).get(row);
    match count > 0 && count < i32::MAX {
        true => Ok(count),
        false => Err(bucket_fault("count must be greater than zero")),
    }
}

fn width_bucket(args: &Args) -> Computed {
    let [value, low, high] = [0, 1, 2].map(|arg| args.numbers::<Float64Type>(arg));
    args.strict::<Int32Type>(|row| {
        let (value, low, high) = (value.get(row), low.get(row), high.get(row));
        let count = buckets(args, row)?;
        if value.is_nan() || low.is_nan() || high.is_nan() {
            return Err(bucket_fault(
                "operand, lower bound, and upper bound cannot be NaN",
            ));
        }
        if !low.is_finite() || !high.is_finite() {
            return Err(bucket_fault("lower and upper bounds must be finite"));
        }
        if low == high {
            return Err(bucket_fault("lower bound cannot equal upper bound"));
        }
        let place = (value - low) / (high - low);
        Ok(match place {
            _ if place < 0.0 => 0,
            _ if place >= 1.0 => count + 1,
            _ => (place * f64::from(count)) as i32 + 1,
        })
    })
}

fn width_bucket_exact(args: &Args) -> Computed {
    let wanted = [0, 1, 2]
        .map(|arg| scale_of(args.data_type(arg)))
        .into_iter()
        .max()
        .unwrap_or(0);
    let columns = [0, 1, 2].map(|arg| {
        let factor = power_of_ten(wanted - scale_of(args.data_type(arg)));
        (args.numbers::<Decimal128Type>(arg), factor)
    });
    args.strict::<Int32Type>(|row| {
        let count = buckets(args, row)?;
        let fault = || too_large(&DataType::Decimal128(DECIMAL_DIGITS, 0));
        let mut values = [0i128; 3];
        for (value, (column, factor)) in values.iter_mut().zip(&columns) {
            *value = column.get(row).checked_mul(*factor).ok_or_else(fault)?;
        }
        let [value, low, high] = values;
        let (since, width) = match low.cmp(&high) {
            std::cmp::Ordering::Equal => return Err(bucket_fault("lower bound cannot equal upper bound")),
            std::cmp::Ordering::Less => (value.checked_sub(low), high.checked_sub(low)),
            std::cmp::Ordering::Greater => (low.checked_sub(value), low.checked_sub(high)),
        };
        let (since, width) = since.zip(width).ok_or_else(fault)?;
        if since < 0 {
            return Ok(0);
        }
        if since >= width {
            return Ok(count + 1);
        }
        let place = since.checked_mul(i128::from(count)).ok_or_else(fault)? / width;
        Ok(i32::try_from(place).unwrap_or(count) + 1)
    })
}
