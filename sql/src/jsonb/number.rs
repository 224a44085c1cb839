//! Numbers of a document as PostgreSQL's NUMERIC writes them.

use std::cmp::Ordering;

use crate::{SqlError, SqlState};

/// How many zeros an exponent may write out.
const ZEROS_MAX: i64 = 1_000;

/// Appends a number of JSON's grammar in normal form: no exponent, no negative zero, all digits behind the point.
///
/// # Errors
/// An exponent that stands for too many digits.
pub(super) fn push_normal(number: &str, out: &mut String) -> Result<(), SqlError> {
    let Some(at) = number.find(['e', 'E']) else {
        out.push_str(without_zero_sign(number));
        return Ok(());
    };
    let (mantissa, exponent) = (without_zero_sign(&number[..at]), &number[at + 1..]);
    let digits = match mantissa.strip_prefix('-') {
        Some(digits) => {
            out.push('-');
            digits
        }
        None => mantissa,
    };
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let exponent: i64 = exponent.trim_start_matches('+').parse().map_err(|_| overflow())?;
    let length = |text: &str| i64::try_from(text.len()).unwrap_or(i64::MAX);
    // Where the point stands among the digits, and how many of them it leaves behind.
    let point = length(whole).saturating_add(exponent);
    let behind = length(fraction).saturating_sub(exponent).max(0);
    if exponent.abs() > ZEROS_MAX {
        return Err(overflow());
    }
    let all = [whole, fraction].concat();
    let digit = |at: i64| match usize::try_from(at).ok().and_then(|at| all.as_bytes().get(at)) {
        Some(digit) => char::from(*digit),
        None => '0',
    };
    let first = (0..point).find(|at| digit(*at) != '0').unwrap_or(point);
    match first < point {
        true => out.extend((first..point).map(digit)),
        false => out.push('0'),
    }
    if behind > 0 {
        out.push('.');
        out.extend((point..point + behind).map(digit));
    }
    Ok(())
}

/// The number without a sign if it is zero.
fn without_zero_sign(number: &str) -> &str {
    match number.strip_prefix('-') {
        Some(digits) if digits.bytes().all(|byte| matches!(byte, b'0' | b'.')) => digits,
        _ => number,
    }
}

fn overflow() -> SqlError {
    SqlError::new(SqlState::NumericValueOutOfRange, "value overflows numeric format")
}

/// The number without zeros at the end of its fraction: one text for all equal numbers.
pub(super) fn canonical(number: &str) -> &str {
    match number.contains('.') {
        true => number.trim_end_matches('0').trim_end_matches('.'),
        false => number,
    }
}

/// Appends bytes that sort as the numbers do, and are equal for equal numbers.
///
/// ```text
/// zero 0x80 | positive 0x81, exponent: u32, (digit + 1)*, 0 | negative 0x7f, the complement of what follows 0x81
/// ```
pub(super) fn push_key(number: &str, out: &mut Vec<u8>) {
    let (negative, digits) = match number.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, number),
    };
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let whole = whole.trim_start_matches('0');
    let (exponent, significant) = match whole.is_empty() {
        false => (i64::try_from(whole.len()).unwrap_or(i64::MAX), fraction),
        true => {
            let rest = fraction.trim_start_matches('0');
            let zeros = i64::try_from(fraction.len() - rest.len()).unwrap_or(i64::MAX);
            (-zeros, rest)
        }
    };
    let significant = [whole, significant].concat();
    let significant = significant.trim_end_matches('0');
    if significant.is_empty() {
        return out.push(0x80);
    }
    out.push(if negative { 0x7f } else { 0x81 });
    let start = out.len();
    let biased = u32::try_from(exponent + (1 << 31)).unwrap_or(u32::MAX);
    out.extend_from_slice(&biased.to_be_bytes());
    out.extend(significant.bytes().map(|digit| digit.saturating_sub(b'0') + 1));
    out.push(0);
    if negative {
        out[start..].iter_mut().for_each(|byte| *byte = !*byte);
    }
}

/// The integer nearest to a number in normal form, halves away from zero; `None` if it is beyond `i128`.
pub(crate) fn rounded(number: &str) -> Option<i128> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let value: i128 = whole.parse().ok()?;
    let up = fraction
        .bytes()
        .next()
        .is_some_and(|digit| digit.cmp(&b'5') != Ordering::Less);
    match (up, number.starts_with('-')) {
        (false, _) => Some(value),
        (true, false) => value.checked_add(1),
        (true, true) => value.checked_sub(1),
    }
}
