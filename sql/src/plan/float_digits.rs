//! Floats as NUMERIC: by the digits that a float surely has, 15 of DOUBLE PRECISION and 6 of REAL.

use std::io::Write;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Decimal128Array};
use arrow::datatypes::{DataType, Float32Type, Float64Type};

use crate::plan::numbers::fits;
use crate::{SqlError, SqlState};

const DOUBLE_DIGITS: usize = 15;
const REAL_DIGITS: usize = 6;

/// The decimals of a type nearest to floats, as PostgreSQL casts them.
///
/// # Errors
/// 22003 for a number with more digits before the point than the type has, 0A000 for NaN and infinities.
pub(crate) fn decimals(floats: &ArrayRef, wanted: &DataType) -> Result<ArrayRef, SqlError> {
    let DataType::Decimal128(precision, scale) = wanted else {
        return Err(SqlError::new(
            SqlState::InternalError,
            format!("{wanted} is no decimal"),
        ));
    };
    let of = |value: f64, digits: usize| decimal(value, digits, *precision, *scale);
    let values: Decimal128Array = match floats.data_type() {
        DataType::Float32 => {
            let floats = floats.as_primitive::<Float32Type>();
            floats.try_unary(|value| of(f64::from(value), REAL_DIGITS))?
        }
        _ => floats
            .as_primitive::<Float64Type>()
            .try_unary(|value| of(value, DOUBLE_DIGITS))?,
    };
    Ok(Arc::new(values.with_data_type(wanted.clone())))
}

fn decimal(value: f64, digits: usize, precision: u8, scale: i8) -> Result<i128, SqlError> {
    if !value.is_finite() {
        return Err(SqlError::unsupported(format!("{value} as NUMERIC")));
    }
    let overflow = || SqlError::new(SqlState::NumericValueOutOfRange, "numeric field overflow");
    // `-1.23456789012345e-308` at most.
    let mut text = [0u8; 32];
    let mut rest = text.as_mut_slice();
    write!(rest, "{value:.*e}", digits - 1).map_err(|_| overflow())?;
    let unused = rest.len();
    let written = &text[..text.len() - unused];
    let mut mantissa = 0i128;
    let mut exponent = 0i32;
    let mut parts = written.splitn(2, |byte| *byte == b'e');
    for byte in parts.next().into_iter().flatten() {
        if byte.is_ascii_digit() {
            mantissa = mantissa * 10 + i128::from(byte - b'0');
        }
    }
    if let Some(digits) = parts.next().and_then(|digits| std::str::from_utf8(digits).ok()) {
        exponent = digits.parse().map_err(|_| overflow())?;
    }
    let shift = exponent - (digits as i32 - 1) + i32::from(scale);
    let power = |by: u32| 10i128.checked_pow(by);
    let scaled = match shift >= 0 {
        true if mantissa == 0 => Some(0),
        true => power(shift.unsigned_abs()).and_then(|power| mantissa.checked_mul(power)),
        // Half away from zero; what is far below the last digit is nothing.
        false => Some(power(shift.unsigned_abs()).map_or(0, |power| (mantissa + power / 2) / power)),
    };
    let scaled = scaled
        .filter(|scaled| fits(*scaled, precision))
        .ok_or_else(overflow)?;
    Ok(if value < 0.0 { -scaled } else { scaled })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_float_has_the_digits_that_it_surely_has() {
        for (value, digits, scale, wanted) in [
            (1e10, 15, 0, 10_000_000_000),
            (0.1 + 0.2, 15, 16, 3_000_000_000_000_000),
            (-2.5, 15, 0, -3),
            (1.0 / 3.0, 15, 16, 3_333_333_333_333_330),
            (f64::from(0.1f32), 6, 10, 1_000_000_000),
            (1e-300, 15, 16, 0),
            (0.0, 15, 16, 0),
        ] {
            assert_eq!(decimal(value, digits, 38, scale), Ok(wanted), "{value}");
        }
        for value in [1e30, f64::NAN, f64::INFINITY] {
            assert!(decimal(value, 15, 38, 16).is_err(), "{value}");
        }
    }
}
