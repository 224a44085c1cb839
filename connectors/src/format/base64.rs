//! BYTEA as text: base64 (RFC 4648, with padding) on the way out; base64 or PostgreSQL's `\x` hexadecimal on the way in.
//! The two cannot be confused: no base64 text starts with a backslash.

use super::fault::quote;

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// Appends `bytes` in base64.
pub(crate) fn encode(bytes: &[u8], out: &mut Vec<u8>) {
    for group in bytes.chunks(3) {
        let word = group
            .iter()
            .fold(0_u32, |word, byte| word << 8 | u32::from(*byte))
            << (8 * (3 - group.len()));
        for place in 0..4 {
            let digit = ALPHABET[(word >> (18 - 6 * place) & 63) as usize];
            out.push(if place <= group.len() { digit } else { b'=' });
        }
    }
}

/// Appends the bytes of a BYTEA's `text`.
pub(crate) fn decode_bytea(text: &[u8], out: &mut Vec<u8>) -> Result<(), String> {
    let decoded = match text {
        [b'\\', b'x', digits @ ..] => decode_hex(digits, out),
        _ => decode_base64(text, out),
    };
    decoded.ok_or_else(|| {
        format!(
            "expected bytes in base64 or \\x hexadecimal, found \"{}\"",
            quote(text)
        )
    })
}

fn decode_hex(digits: &[u8], out: &mut Vec<u8>) -> Option<()> {
    let digit = |byte: u8| char::from(byte).to_digit(16).map(|value| value as u8);
    for pair in digits.chunks(2) {
        let [high, low] = pair else { return None };
        out.push(digit(*high)? << 4 | digit(*low)?);
    }
    Some(())
}

fn decode_base64(text: &[u8], out: &mut Vec<u8>) -> Option<()> {
    if !text.len().is_multiple_of(4) {
        return None;
    }
    let padding = text
        .iter()
        .rev()
        .take(2)
        .take_while(|byte| **byte == b'=')
        .count();
    let digits = &text[..text.len() - padding];
    for group in digits.chunks(4) {
        let mut word = 0_u32;
        for byte in group {
            word = word << 6 | digit_value(*byte)?;
        }
        word <<= 6 * (4 - group.len());
        let bytes = &word.to_be_bytes()[1..];
        let (kept, spare) = bytes.split_at(group.len() - 1);
        if spare.iter().any(|byte| *byte != 0) {
            return None;
        }
        out.extend_from_slice(kept);
    }
    Some(())
}

fn digit_value(byte: u8) -> Option<u32> {
    let value = match byte {
        b'A'..=b'Z' => byte - b'A',
        b'a'..=b'z' => byte - b'a' + 26,
        b'0'..=b'9' => byte - b'0' + 52,
        b'+' => 62,
        b'/' => 63,
        _ => return None,
    };
    Some(u32::from(value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_go_to_base64_and_back() {
        for (bytes, expected) in [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foob", "Zm9vYg=="),
            ("foobar", "Zm9vYmFy"),
        ] {
            let mut text = Vec::new();
            encode(bytes.as_bytes(), &mut text);
            assert_eq!(std::str::from_utf8(&text), Ok(expected));
            let mut back = Vec::new();
            assert_eq!(decode_bytea(&text, &mut back), Ok(()));
            assert_eq!(back, bytes.as_bytes());
        }
        let all: Vec<u8> = (0..=255).collect();
        let (mut text, mut back) = (Vec::new(), Vec::new());
        encode(&all, &mut text);
        assert_eq!(decode_bytea(&text, &mut back), Ok(()));
        assert_eq!(back, all);
    }

    #[test]
    fn postgres_hexadecimal_is_understood() {
        let mut out = Vec::new();
        assert_eq!(decode_bytea(b"\\x00fFa0", &mut out), Ok(()));
        assert_eq!(out, [0x00, 0xff, 0xa0]);
    }

    #[test]
    fn anything_else_is_refused() {
        for text in [
            "Zg", "Zg=", "Z===", "Zh==", "Zg==Zg==", "Zm9v!", "\\x0", "\\xzz", "=", "====", "Zm 9",
        ] {
            assert!(decode_bytea(text.as_bytes(), &mut Vec::new()).is_err(), "{text}");
        }
    }
}
