//! The text of a BYTEA as PostgreSQL reads it: `\xdeadbeef`, or characters with `\ooo` for other bytes.

use crate::{SqlError, SqlState};

/// Reads the text of a BYTEA in the hex or the escape format.
///
/// # Errors
/// 22023 for hex digits that are none or not in pairs, 22P02 for a backslash that begins no byte.
pub(crate) fn read(text: &str) -> Result<Vec<u8>, SqlError> {
    match text.strip_prefix("\\x") {
        Some(digits) => hex(digits),
        None => escaped(text.as_bytes()),
    }
}

/// Pairs of hex digits; blanks may stand between pairs.
fn hex(text: &str) -> Result<Vec<u8>, SqlError> {
    let mut bytes = Vec::with_capacity(text.len() / 2);
    let mut high = None;
    for char in text.chars() {
        if high.is_none() && char.is_ascii_whitespace() {
            continue;
        }
        let digit = char.to_digit(16).and_then(|digit| u8::try_from(digit).ok());
        let digit = digit.ok_or_else(|| {
            SqlError::new(
                SqlState::InvalidParameterValue,
                format!("invalid hexadecimal digit: \"{char}\""),
            )
        })?;
        match high.take() {
            Some(high) => bytes.push(high << 4 | digit),
            None => high = Some(digit),
        }
    }
    match high {
        Some(_) => Err(SqlError::new(
            SqlState::InvalidParameterValue,
            "invalid hexadecimal data: odd number of digits",
        )),
        None => Ok(bytes),
    }
}

fn escaped(text: &[u8]) -> Result<Vec<u8>, SqlError> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text;
    while let [first, after @ ..] = rest {
        let (byte, after) = match (first, after) {
            (b'\\', [b'\\', after @ ..]) => (b'\\', after),
            (b'\\', [a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', after @ ..]) => {
                ((a - b'0') << 6 | (b - b'0') << 3 | (c - b'0'), after)
            }
            (b'\\', _) => {
                return Err(SqlError::new(
                    SqlState::InvalidTextRepresentation,
                    "invalid input syntax for type bytea",
                )
                .with_hint(
                    "Write '\\x' and hex digits, or '\\\\' for a backslash and '\\ooo' for other bytes.",
                ));
            }
            (byte, after) => (*byte, after),
        };
        bytes.push(byte);
        rest = after;
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_formats_are_read() {
        let bytes = |text: &str| read(text).unwrap();
        assert_eq!(bytes("\\xdeadBEEF"), [0xde, 0xad, 0xbe, 0xef]);
        assert_eq!(bytes("\\x de ad\n00"), [0xde, 0xad, 0]);
        assert_eq!(bytes("\\x"), [0u8; 0]);
        assert_eq!(bytes("a\\\\b\\000\\377ä"), b"a\\b\0\xff\xc3\xa4");
        assert_eq!(bytes(""), [0u8; 0]);
    }

    #[test]
    fn what_is_neither_is_refused() {
        let refused = |text: &str| read(text).unwrap_err().message;
        assert_eq!(
            refused("\\xabc"),
            "invalid hexadecimal data: odd number of digits"
        );
        assert_eq!(refused("\\xzz"), "invalid hexadecimal digit: \"z\"");
        assert_eq!(refused("\\xd e"), "invalid hexadecimal digit: \" \"");
        for text in ["\\", "\\9", "\\400", "\\01"] {
            assert_eq!(refused(text), "invalid input syntax for type bytea", "{text}");
        }
    }
}
