//! NUMERIC from texts: with or without a point, and with an exponent.

use arrow::datatypes::DataType;
use datafusion::common::ScalarValue;

use crate::SqlError;
use crate::plan::numbers::fits;
use crate::plan::types::DECIMAL_DIGITS;
use crate::plan::values::{invalid_text, numeric_overflow};

/// A number as it is written.
struct Written<'t> {
    is_negative: bool,
    /// Digits before the point.
    whole: &'t str,
    /// Digits behind the point.
    fraction: &'t str,
    exponent: i64,
}

impl<'t> Written<'t> {
    fn of(text: &'t str) -> Option<Self> {
        let text = text.trim();
        let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
        let (mantissa, exponent) = match unsigned.split_once(['e', 'E']) {
            Some((mantissa, exponent)) => (mantissa, Some(exponent)),
            None => (unsigned, None),
        };
        let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
        let is_digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
        if whole.len() + fraction.len() == 0 || !is_digits(whole) || !is_digits(fraction) {
            return None;
        }
        let exponent = match exponent {
            Some(exponent) => {
                let digits = exponent.strip_prefix(['-', '+']).unwrap_or(exponent);
                if digits.is_empty() || !is_digits(digits) {
                    return None;
                }
                exponent.parse::<i64>().ok()?
            }
            None => 0,
        };
        Some(Self {
            is_negative: text.starts_with('-'),
            whole,
            fraction,
            exponent,
        })
    }

    fn digits(&self) -> impl Iterator<Item = u8> {
        self.whole.bytes().chain(self.fraction.bytes())
    }

    /// How many digits stand behind the point once the exponent has moved it; below zero, zeros stand before it.
    fn behind(&self) -> Option<i64> {
        i64::try_from(self.fraction.len())
            .ok()?
            .checked_sub(self.exponent)
    }

    /// The number with this many digits behind the point, rounded half away from zero; `None` for one that is too large.
    fn scaled(&self, scale: i64) -> Option<i128> {
        let count = i64::try_from(self.whole.len() + self.fraction.len()).ok()?;
        let kept = count.checked_sub(self.behind()?)?.checked_add(scale)?;
        let mut size = 0_i128;
        for (digit, place) in self.digits().zip(0_i64..) {
            let digit = digit - b'0';
            if place < kept {
                size = size.checked_mul(10)?.checked_add(i128::from(digit))?;
            } else {
                let is_up = place == kept && digit >= 5;
                size = size.checked_add(i128::from(is_up))?;
                break;
            }
        }
        if kept > count && size != 0 {
            let zeros = u32::try_from(kept - count).ok()?;
            size = 10_i128
                .checked_pow(zeros)
                .and_then(|power| size.checked_mul(power))?;
        }
        Some(if self.is_negative { -size } else { size })
    }
}

/// The text as a number of this precision and scale.
///
/// # Errors
/// A text that is no number (22P02), a number that has no place in the type (22003).
pub(super) fn read(text: &str, precision: u8, scale: i8) -> Result<i128, SqlError> {
    let wanted = DataType::Decimal128(precision, scale);
    let written = Written::of(text).ok_or_else(|| invalid_text(text, &wanted))?;
    let value = written.scaled(i64::from(scale));
    value
        .filter(|value| fits(*value, precision))
        .ok_or_else(|| numeric_overflow(&wanted))
}

/// The text as the constant that it would be without quotes: with the digits that it has. `None` for what is no number, or one
/// of too many digits.
pub(crate) fn exact_constant(text: &str) -> Option<ScalarValue> {
    let written = Written::of(text)?;
    let behind = written.behind()?;
    let scale = i8::try_from(behind.max(0)).ok()?;
    let digits = i64::try_from(written.digits().skip_while(|digit| *digit == b'0').count()).ok()?;
    let precision = digits.checked_sub(behind.min(0))?.max(i64::from(scale)).max(1);
    let precision = u8::try_from(precision)
        .ok()
        .filter(|own| *own <= DECIMAL_DIGITS)?;
    let value = written.scaled(i64::from(scale))?;
    Some(ScalarValue::Decimal128(Some(value), precision, scale))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_as_postgresql_reads_them() {
        for (text, scale, expected) in [
            ("1e2", 2, 10_000),
            (" 1.255 ", 2, 126),
            ("-.5", 0, -1),
            ("+5.", 0, 5),
            ("0.4999", 0, 0),
            ("1.5E-1", 1, 2),
            ("1e-400", 16, 0),
            ("-0", 3, 0),
            ("9.99e1", 0, 100),
            ("0.05", 0, 0),
        ] {
            assert_eq!(read(text, 38, scale).unwrap(), expected, "{text}");
        }
        for (text, state) in [
            ("", "22P02"),
            (".", "22P02"),
            ("1e", "22P02"),
            ("1_000", "22P02"),
            ("1 2", "22P02"),
            ("--1", "22P02"),
            ("1e38", "22003"),
            ("1e999999999999", "22003"),
            ("999.995", "22003"),
        ] {
            assert_eq!(read(text, 5, 2).unwrap_err().state.code(), state, "{text}");
        }
    }

    #[test]
    fn constants_keep_the_digits_that_they_have() {
        let decimal = |value, precision, scale| Some(ScalarValue::Decimal128(Some(value), precision, scale));
        assert_eq!(exact_constant("1e2"), decimal(100, 3, 0));
        assert_eq!(exact_constant("0.00000000001"), decimal(1, 11, 11));
        assert_eq!(exact_constant(" -12.50"), decimal(-1250, 4, 2));
        assert_eq!(exact_constant("0"), decimal(0, 1, 0));
        assert_eq!(exact_constant("x"), None);
        assert_eq!(exact_constant("1e38"), None);
        assert_eq!(exact_constant("1e9223372036854775807"), None);
    }
}
