//! Numbers.

use super::put;

/// Writes `REAL`: the fewest digits that give the same value, with an exponent from 10⁶ on.
pub(super) fn write_float4(value: f32, out: &mut String) {
    if !write_special(f64::from(value), out) {
        write_shortest(&format!("{value:e}"), 6, out);
    }
}

/// Writes `DOUBLE PRECISION`: the fewest digits that give the same value, with an exponent from 10¹⁵ on.
pub(super) fn write_float8(value: f64, out: &mut String) {
    if !write_special(value, out) {
        write_shortest(&format!("{value:e}"), 15, out);
    }
}

/// Writes `NUMERIC` with all digits of its scale.
pub(super) fn write_numeric(value: i128, scale: i8, out: &mut String) {
    let digits = value.unsigned_abs().to_string();
    if value < 0 {
        out.push('-');
    }
    let Ok(scale @ 1..) = usize::try_from(scale) else {
        out.push_str(&digits);
        if value != 0 {
            out.extend(std::iter::repeat_n('0', usize::from(scale.unsigned_abs())));
        }
        return;
    };
    match digits.len().checked_sub(scale) {
        Some(whole @ 1..) => {
            out.push_str(&digits[..whole]);
            out.push('.');
            out.push_str(&digits[whole..]);
        }
        _ => {
            out.push_str("0.");
            out.extend(std::iter::repeat_n('0', scale - digits.len()));
            out.push_str(&digits);
        }
    }
}

fn write_special(value: f64, out: &mut String) -> bool {
    let text = match value {
        _ if value.is_nan() => "NaN",
        f64::INFINITY => "Infinity",
        f64::NEG_INFINITY => "-Infinity",
        _ => return false,
    };
    out.push_str(text);
    true
}

/// Writes a number given as `-1.25e-7`, with an exponent if it is below -4 or not below `exponent_max`.
fn write_shortest(scientific: &str, exponent_max: i32, out: &mut String) {
    let parts = scientific.split_once('e').and_then(|(mantissa, exponent)| {
        let exponent = exponent.parse::<i32>().ok()?;
        Some((mantissa, exponent))
    });
    let (mantissa, exponent) = parts.expect("Rust writes a finite float with an exponent when asked for one");
    if !(-4..exponent_max).contains(&exponent) {
        let sign = if exponent < 0 { '-' } else { '+' };
        put(
            out,
            format_args!("{mantissa}e{sign}{:02}", exponent.unsigned_abs()),
        );
        return;
    }
    let mantissa = match mantissa.strip_prefix('-') {
        Some(mantissa) => {
            out.push('-');
            mantissa
        }
        None => mantissa,
    };
    let (first, others) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let Ok(shift) = usize::try_from(exponent) else {
        out.push_str("0.");
        out.extend(std::iter::repeat_n('0', exponent.unsigned_abs() as usize - 1));
        out.push_str(first);
        out.push_str(others);
        return;
    };
    out.push_str(first);
    let (whole, fraction) = others.split_at(shift.min(others.len()));
    out.push_str(whole);
    out.extend(std::iter::repeat_n('0', shift - whole.len()));
    if !fraction.is_empty() {
        out.push('.');
        out.push_str(fraction);
    }
}
