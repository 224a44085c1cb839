//! What is wrong with the escapes of a text `E'…'` that the tokenizer does not take.

use crate::error::{SqlError, SqlState};

/// The first fault of the text whose `E'` begins `text`; `None` if its end is missing. Positions count from there.
pub(super) fn fault(text: &str) -> Option<SqlError> {
    let mut bytes = Vec::new();
    let mut fault = None;
    let mut rest = text.char_indices().skip(2).peekable();
    while let Some((at, letter)) = rest.next() {
        match letter {
            '\'' if rest.next_if(|(_, next)| *next == '\'').is_none() => {
                return Some(fault.unwrap_or_else(|| not_utf8(&bytes)));
            }
            '\\' => {}
            other => {
                bytes.extend_from_slice(other.encode_utf8(&mut [0; 4]).as_bytes());
                continue;
            }
        }
        let (_, escape) = rest.next()?;
        let mut digits = |most: usize, radix: u32| {
            let mut value = None;
            for _ in 0..most {
                let Some((_, digit)) = rest.next_if(|(_, next)| next.is_digit(radix)) else {
                    break;
                };
                value = Some(value.unwrap_or(0) * radix + digit.to_digit(radix).unwrap_or(0));
            }
            value
        };
        match escape {
            'u' | 'U' => {
                let most = if escape == 'u' { 4 } else { 8 };
                let from = rest.peek().map_or(at, |(from, _)| *from);
                let written: String = text[from..].chars().take(most).collect();
                let is_whole = written.chars().filter(char::is_ascii_hexdigit).count() == most;
                fault = fault.or_else(|| {
                    let pair = is_whole.then(|| paired(&written, &text[from + written.len()..]));
                    let pair = pair.flatten().map(|character| a_pair(character, at));
                    pair.or_else(|| unicode_fault(&written, is_whole, at))
                });
                (0..written.chars().take_while(char::is_ascii_hexdigit).count()).for_each(|_| {
                    rest.next();
                });
            }
            'x' => bytes.push(digits(2, 16).map_or(b'x', |value| (value & 0xff) as u8)),
            octal if octal.is_digit(8) => {
                let first = octal.to_digit(8).unwrap_or(0);
                let more = digits(1, 8).map(|next| first * 8 + next);
                let value = match more {
                    Some(two) => digits(1, 8).map_or(two, |next| two * 8 + next),
                    None => first,
                };
                bytes.push((value & 0xff) as u8);
            }
            other => bytes.extend_from_slice(other.encode_utf8(&mut [0; 4]).as_bytes()),
        }
    }
    None
}

/// The character that a surrogate and the one behind it are, if the two are a pair.
fn paired(high: &str, behind: &str) -> Option<char> {
    let unit = |digits: &str| u16::from_str_radix(digits, 16).ok();
    let low = behind.strip_prefix("\\u").and_then(|behind| behind.get(..4))?;
    let mut characters = char::decode_utf16([unit(high)?, unit(low)?]);
    let first = characters.next()?.ok()?;
    characters.next().is_none().then_some(first)
}

/// Two surrogates that are one character, at `position`.
fn a_pair(character: char, position: usize) -> SqlError {
    SqlError::unsupported("a surrogate pair in a text E'…'")
        .with_hint(format!(
            "Write \\U{:08X}, or the character itself.",
            u32::from(character)
        ))
        .at(position)
}

/// What is wrong with the digits behind `\u` or `\U`, which stands at `position`.
fn unicode_fault(written: &str, is_whole: bool, position: usize) -> Option<SqlError> {
    if !is_whole {
        let error = SqlError::new(SqlState::InvalidEscapeSequence, "invalid Unicode escape");
        return Some(
            error
                .with_hint("Write \\u and four hex digits, or \\U and eight.")
                .at(position),
        );
    }
    let value = u32::from_str_radix(written, 16).ok()?;
    let message = match value {
        0xd800..=0xdfff => "invalid Unicode surrogate pair",
        0 | 0x11_0000.. => "invalid Unicode escape value",
        _ => return None,
    };
    Some(SqlError::new(SqlState::SyntaxError, message).at(position))
}

/// Why the bytes that escapes say are no text here: they are no UTF-8, or characters that must be written otherwise.
fn not_utf8(bytes: &[u8]) -> SqlError {
    let zero = bytes.iter().position(|byte| *byte == 0);
    let wrong = match std::str::from_utf8(bytes) {
        Ok(_) => zero,
        Err(error) => Some(zero.map_or(error.valid_up_to(), |zero| zero.min(error.valid_up_to()))),
    };
    let Some(wrong) = wrong else {
        return SqlError::unsupported("a character beyond ASCII as the bytes of \\x or octal escapes")
            .with_hint("Write the character itself, or \\u and four hex digits.");
    };
    // What follows is the text, which may be a secret (INV-10).
    SqlError::new(
        SqlState::CharacterNotInRepertoire,
        format!(
            "invalid byte sequence for encoding \"UTF8\": 0x{:02x}",
            bytes[wrong]
        ),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(text: &str) -> (&'static str, String) {
        let fault = fault(text).expect("the text has an end");
        (fault.state.code(), fault.message)
    }

    #[test]
    fn bytes_that_are_no_text_are_named() {
        for (text, shown) in [
            ("E'\\xff' x", "0xff"),
            ("E'a\\377b'", "0xff"),
            ("E'\\xc3a'", "0xc3"),
            ("E'\\xe2\\x82'", "0xe2"),
            ("E'it''s \\x00'", "0x00"),
            ("e'\\0'", "0x00"),
        ] {
            let message = format!("invalid byte sequence for encoding \"UTF8\": {shown}");
            assert_eq!(told(text), ("22021", message), "{text}");
        }
    }

    #[test]
    fn unicode_escapes_are_whole_and_mean_a_character() {
        for (text, state, message) in [
            ("E'\\u12'", "22025", "invalid Unicode escape"),
            ("E'\\u12zz'", "22025", "invalid Unicode escape"),
            ("E'\\U00110000'", "42601", "invalid Unicode escape value"),
            ("E'\\u0000'", "42601", "invalid Unicode escape value"),
            ("E'\\ud800'", "42601", "invalid Unicode surrogate pair"),
            ("E'\\ud83dx\\ude00'", "42601", "invalid Unicode surrogate pair"),
            ("E'\\ude00\\ud83d'", "42601", "invalid Unicode surrogate pair"),
        ] {
            assert_eq!(told(text), (state, message.to_owned()), "{text}");
        }
        assert_eq!(told("E'\\xc3\\xa9'").0, "0A000");
        let pair = fault("E'a \\ud83d\\ude00'").unwrap();
        assert_eq!((pair.state.code(), pair.position), ("0A000", Some(4)));
        assert_eq!(
            pair.hint.as_deref(),
            Some("Write \\U0001F600, or the character itself.")
        );
    }

    #[test]
    fn a_text_without_an_end_has_another_fault() {
        for text in ["E'\\xff", "E'a\\", "E'a''", "E'\\"] {
            assert!(fault(text).is_none(), "{text}");
        }
    }
}
