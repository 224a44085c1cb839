//! What JSONB does not take of what JSON allows: `\u0000`, halves of surrogate pairs, exponents that stand for endless digits.

use crate::format::fault::{Fault, unfit};

/// Largest exponent of a number in a document.
const EXPONENT_MAX: u32 = 1_000;

/// Checks a value, which is well formed, for what JSONB does not take.
pub(super) fn check(value: &[u8]) -> Result<(), Fault> {
    let mut at = 0;
    let mut in_string = false;
    while let Some(byte) = value.get(at) {
        match byte {
            b'"' => in_string = !in_string,
            b'\\' => {
                at += escape(&value[at..])?;
                continue;
            }
            b'e' | b'E' if !in_string && at > 0 && value[at - 1].is_ascii_digit() => {
                exponent(&value[at + 1..])?
            }
            _ => {}
        }
        at += 1;
    }
    Ok(())
}

/// The length of the escape, or the pair of them, that `text` starts with.
fn escape(text: &[u8]) -> Result<usize, Fault> {
    if text.get(1) != Some(&b'u') {
        return Ok(2);
    }
    match hex4(text) {
        Some(0) => Err(unfit("a string holds \\u0000, which no text has")),
        Some(0xd800..=0xdbff) => match text.get(6..).and_then(hex4) {
            Some(0xdc00..=0xdfff) => Ok(12),
            _ => Err(unfit("a string holds half of a surrogate pair")),
        },
        Some(0xdc00..=0xdfff) => Err(unfit("a string holds half of a surrogate pair")),
        _ => Ok(6),
    }
}

/// The code of the `\u` with four hexadecimal digits that `text` starts with.
fn hex4(text: &[u8]) -> Option<u32> {
    let digits = text.strip_prefix(b"\\u")?.get(..4)?;
    u32::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
}

fn exponent(text: &[u8]) -> Result<(), Fault> {
    let text = match text {
        [b'+' | b'-', rest @ ..] => rest,
        rest => rest,
    };
    let digits = text.iter().take_while(|byte| byte.is_ascii_digit());
    let value = digits.fold(0_u32, |value, digit| {
        value.saturating_mul(10).saturating_add(u32::from(digit - b'0'))
    });
    match value > EXPONENT_MAX {
        true => Err(unfit("a number is out of range for JSONB")),
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_no_text_and_no_number_has_is_refused() {
        for sound in [
            r#"{"a\\u0000": "\ud83d\ude00\u0041", "e": [1e1000, 1.5E-10, true, false]}"#,
            "\"1e99999\"",
            "\"\\\\\"",
        ] {
            assert!(check(sound.as_bytes()).is_ok(), "{sound}");
        }
        for odd in [
            r#""\u0000""#,
            r#"["\ud800"]"#,
            r#"["\ud800\u0041"]"#,
            r#""\udc00""#,
            "1e1001",
            "[1.5E-99999999999]",
        ] {
            assert!(check(odd.as_bytes()).is_err(), "{odd}");
        }
    }
}
