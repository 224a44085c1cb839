//! Decimal text to exact integers: the unscaled value of a DECIMAL, microseconds of a UNIX time.

/// Why a text has no exact value at a scale.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DecimalFault {
    /// It is not a number.
    NotANumber,
    /// It has digits beyond the scale.
    Inexact,
    /// It has more digits than fit.
    TooLarge,
}

/// `mantissa × 10^exponent`; the last digit of the mantissa is not zero, unless it is zero itself.
struct Parsed {
    mantissa: i128,
    exponent: i64,
}

/// The unscaled value of `text` at `precision` and `scale`, exactly.
pub(crate) fn parse_decimal(text: &[u8], precision: u8, scale: i8) -> Result<i128, DecimalFault> {
    let parsed = parse(text)?;
    let shift = parsed.exponent + i64::from(scale);
    if parsed.mantissa != 0 && shift < 0 {
        return Err(DecimalFault::Inexact);
    }
    let value = shift_up(parsed.mantissa, shift)?;
    if value.unsigned_abs() >= 10_u128.pow(u32::from(precision)) {
        Err(DecimalFault::TooLarge)
    } else {
        Ok(value)
    }
}

/// `text × 10^scale`, rounded down to an integer.
pub(crate) fn parse_scaled_floor(text: &[u8], scale: i8) -> Result<i64, DecimalFault> {
    let parsed = parse(text)?;
    let shift = parsed.exponent + i64::from(scale);
    let value = if shift >= 0 {
        shift_up(parsed.mantissa, shift)?
    } else {
        match u32::try_from(-shift)
            .ok()
            .and_then(|shift| 10_i128.checked_pow(shift))
        {
            Some(divisor) => parsed.mantissa.div_euclid(divisor),
            None => parsed.mantissa.signum().min(0),
        }
    };
    i64::try_from(value).map_err(|_| DecimalFault::TooLarge)
}

fn shift_up(mantissa: i128, shift: i64) -> Result<i128, DecimalFault> {
    if mantissa == 0 {
        return Ok(0);
    }
    let factor = u32::try_from(shift)
        .ok()
        .and_then(|shift| 10_i128.checked_pow(shift));
    factor
        .and_then(|factor| mantissa.checked_mul(factor))
        .ok_or(DecimalFault::TooLarge)
}

fn parse(text: &[u8]) -> Result<Parsed, DecimalFault> {
    let (negative, text) = match text {
        [b'-', rest @ ..] => (true, rest),
        [b'+', rest @ ..] => (false, rest),
        _ => (false, text),
    };
    let (digits, exponent) = match text.iter().position(|byte| matches!(byte, b'e' | b'E')) {
        Some(at) => (&text[..at], parse_exponent(&text[at + 1..])?),
        None => (text, 0),
    };
    let mut mantissa = 0_i128;
    let mut zeros = 0_u32;
    let mut count = 0_usize;
    let mut point = None;
    for &byte in digits {
        match byte {
            b'0' => zeros += 1,
            b'1'..=b'9' => {
                mantissa = push_digit(mantissa, zeros, byte - b'0')?;
                zeros = 0;
            }
            b'.' if point.is_none() => {
                point = Some(count);
                continue;
            }
            _ => return Err(DecimalFault::NotANumber),
        }
        count += 1;
    }
    if count == 0 {
        return Err(DecimalFault::NotANumber);
    }
    let fraction_digits = point.map_or(0, |point| count - point) as i64;
    let mantissa = if negative { -mantissa } else { mantissa };
    Ok(Parsed {
        mantissa,
        exponent: exponent + i64::from(zeros) - fraction_digits,
    })
}

/// Appends `zeros` zeros and a digit.
fn push_digit(mantissa: i128, zeros: u32, digit: u8) -> Result<i128, DecimalFault> {
    if mantissa == 0 {
        return Ok(i128::from(digit));
    }
    let factor = zeros
        .checked_add(1)
        .and_then(|places| 10_i128.checked_pow(places));
    let shifted = factor.and_then(|factor| mantissa.checked_mul(factor));
    shifted
        .and_then(|shifted| shifted.checked_add(i128::from(digit)))
        .ok_or(DecimalFault::TooLarge)
}

fn parse_exponent(text: &[u8]) -> Result<i64, DecimalFault> {
    let (sign, digits) = match text {
        [b'-', rest @ ..] => (-1, rest),
        [b'+', rest @ ..] => (1, rest),
        _ => (1, text),
    };
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return Err(DecimalFault::NotANumber);
    }
    // Beyond a billion the answer is the same: too large, or too small.
    Ok(sign
        * digits.iter().fold(0, |value: i64, digit| {
            (value * 10 + i64::from(digit - b'0')).min(1_000_000_000)
        }))
}

/// Appends the unscaled `value` at `scale` as a plain decimal number.
pub(crate) fn write_decimal(value: i128, scale: i8, out: &mut Vec<u8>) {
    let mut digits = itoa::Buffer::new();
    let text = digits.format(value.unsigned_abs()).as_bytes();
    if value < 0 {
        out.push(b'-');
    }
    match usize::try_from(scale) {
        Ok(0) => out.extend_from_slice(text),
        Ok(scale) if text.len() > scale => {
            out.extend_from_slice(&text[..text.len() - scale]);
            out.push(b'.');
            out.extend_from_slice(&text[text.len() - scale..]);
        }
        Ok(scale) => {
            out.extend_from_slice(b"0.");
            out.resize(out.len() + scale - text.len(), b'0');
            out.extend_from_slice(text);
        }
        Err(_) => {
            out.extend_from_slice(text);
            if value != 0 {
                out.resize(out.len() + usize::from(scale.unsigned_abs()), b'0');
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decimals_are_exact_or_refused() {
        for (text, precision, scale, expected) in [
            ("0", 10, 2, Ok(0)),
            ("-0.00", 10, 2, Ok(0)),
            ("12.34", 10, 2, Ok(1234)),
            ("-12.3", 10, 2, Ok(-1230)),
            ("1.2300000000000000000000000000000000000000000000", 10, 2, Ok(123)),
            ("1e3", 10, 2, Ok(100_000)),
            ("12345E-2", 10, 2, Ok(12345)),
            ("0e999999999999", 10, 2, Ok(0)),
            ("1e999999999999", 10, 2, Err(DecimalFault::TooLarge)),
            ("1e-999999999999", 10, 2, Err(DecimalFault::Inexact)),
            ("0.001", 10, 2, Err(DecimalFault::Inexact)),
            ("99999999.99", 10, 2, Ok(9_999_999_999)),
            ("100000000", 10, 2, Err(DecimalFault::TooLarge)),
            (
                "99999999999999999999999999999999999999",
                38,
                0,
                Ok(10_i128.pow(38) - 1),
            ),
            (
                "100000000000000000000000000000000000000",
                38,
                0,
                Err(DecimalFault::TooLarge),
            ),
            (".5", 10, 2, Ok(50)),
            ("", 10, 2, Err(DecimalFault::NotANumber)),
            ("-", 10, 2, Err(DecimalFault::NotANumber)),
            (".", 10, 2, Err(DecimalFault::NotANumber)),
            ("1.2.3", 10, 2, Err(DecimalFault::NotANumber)),
            ("NaN", 10, 2, Err(DecimalFault::NotANumber)),
        ] {
            assert_eq!(
                parse_decimal(text.as_bytes(), precision, scale),
                expected,
                "{text}"
            );
        }
    }

    #[test]
    fn scaled_values_are_rounded_down() {
        assert_eq!(
            parse_scaled_floor(b"1700000000.1234567", 6),
            Ok(1_700_000_000_123_456)
        );
        assert_eq!(parse_scaled_floor(b"-0.0000001", 6), Ok(-1));
        assert_eq!(parse_scaled_floor(b"1999", -3), Ok(1));
        assert_eq!(parse_scaled_floor(b"-1", -3), Ok(-1));
        assert_eq!(parse_scaled_floor(b"1.7e9", 6), Ok(1_700_000_000_000_000));
        assert_eq!(parse_scaled_floor(b"1e30", 0), Err(DecimalFault::TooLarge));
    }

    #[test]
    fn what_is_written_reads_back() {
        for (value, scale, expected) in [
            (1234, 2, "12.34"),
            (-5, 3, "-0.005"),
            (0, 2, "0.00"),
            (7, 0, "7"),
            (7, -2, "700"),
            (0, -2, "0"),
        ] {
            let mut out = Vec::new();
            write_decimal(value, scale, &mut out);
            assert_eq!(std::str::from_utf8(&out), Ok(expected));
            assert_eq!(parse_decimal(&out, 38, scale), Ok(value));
        }
    }
}
