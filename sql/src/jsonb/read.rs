//! Any JSON text to normal text, with PostgreSQL's errors.

use super::scan::{key_order, push_escaped_char};
use super::write::{Member, order_members};
use super::{DEPTH_MAX, number, too_deep};
use crate::{SqlError, SqlState};

/// The document in normal form.
///
/// # Errors
/// 22P02 for a text that is no JSON, with what is wrong as DETAIL; 22P05 for `\u0000`, 22003 for a number with too many digits,
/// 54001 for a document that is nested too deeply.
pub fn normalized(text: &str) -> Result<String, SqlError> {
    let mut reader = Reader {
        text,
        pos: 0,
        out: String::with_capacity(text.len() + text.len() / 8),
    };
    reader.value(0, "JSON value")?;
    reader.skip_space();
    match reader.peek() {
        None => Ok(reader.out),
        Some(_) => Err(reader.expected("end of input")),
    }
}

struct Reader<'a> {
    text: &'a str,
    pos: usize,
    out: String,
}

impl Reader<'_> {
    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.pos).copied()
    }

    fn skip_space(&mut self) {
        while let Some(b' ' | b'\n' | b'\r' | b'\t') = self.peek() {
            self.pos += 1;
        }
    }

    /// Takes a value; `wanted` says what else could stand in its place.
    fn value(&mut self, depth: usize, wanted: &str) -> Result<(), SqlError> {
        self.skip_space();
        match self.peek() {
            Some(b'{' | b'[') if depth >= DEPTH_MAX => Err(too_deep()),
            Some(b'{') => self.object(depth + 1),
            Some(b'[') => self.array(depth + 1),
            Some(b'"') => self.string(),
            Some(b'-' | b'0'..=b'9') => self.number(),
            Some(byte) if byte.is_ascii_alphabetic() || byte == b'_' || !byte.is_ascii() => self.word(),
            _ => Err(self.expected(wanted)),
        }
    }

    fn word(&mut self) -> Result<(), SqlError> {
        let token = self.token();
        let word = ["true", "false", "null"].into_iter().find(|word| *word == token);
        let word = word.ok_or_else(|| self.invalid_token())?;
        self.pos += word.len();
        self.out.push_str(word);
        Ok(())
    }

    fn number(&mut self) -> Result<(), SqlError> {
        let start = self.pos;
        let bytes = self.text.as_bytes();
        let digits = |from: usize| {
            let rest = bytes.get(from..).unwrap_or_default();
            from + rest.iter().take_while(|byte| byte.is_ascii_digit()).count()
        };
        let mut end = start + usize::from(bytes[start] == b'-');
        let whole = digits(end);
        let mut sound = whole > end && (bytes[end] != b'0' || whole == end + 1);
        end = whole;
        if bytes.get(end) == Some(&b'.') {
            let fraction = digits(end + 1);
            sound &= fraction > end + 1;
            end = fraction;
        }
        if let Some(b'e' | b'E') = bytes.get(end) {
            let sign = usize::from(matches!(bytes.get(end + 1), Some(b'+' | b'-')));
            let exponent = digits(end + 1 + sign);
            sound &= exponent > end + 1 + sign;
            end = exponent;
        }
        let goes_on = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_' || !byte.is_ascii();
        if !sound || bytes.get(end).is_some_and(goes_on) {
            return Err(self.invalid_token());
        }
        self.pos = end;
        number::push_normal(&self.text[start..end], &mut self.out)
    }

    fn array(&mut self, depth: usize) -> Result<(), SqlError> {
        self.pos += 1;
        self.out.push('[');
        self.skip_space();
        if self.peek() == Some(b']') {
            self.pos += 1;
            self.out.push(']');
            return Ok(());
        }
        let mut wanted = "array element or \"]\"";
        loop {
            self.value(depth, wanted)?;
            wanted = "JSON value";
            self.skip_space();
            match self.peek() {
                Some(b',') => {
                    self.pos += 1;
                    self.out.push_str(", ");
                }
                Some(b']') => {
                    self.pos += 1;
                    self.out.push(']');
                    return Ok(());
                }
                _ => return Err(self.expected("\",\" or \"]\"")),
            }
        }
    }

    fn object(&mut self, depth: usize) -> Result<(), SqlError> {
        self.pos += 1;
        let start = self.out.len();
        self.out.push('{');
        self.skip_space();
        if self.peek() == Some(b'}') {
            self.pos += 1;
            self.out.push('}');
            return Ok(());
        }
        let mut members: Vec<Member> = Vec::new();
        let mut sorted = true;
        let mut wanted = "string or \"}\"";
        loop {
            self.skip_space();
            if self.peek() != Some(b'"') {
                return Err(self.expected(wanted));
            }
            wanted = "string";
            let from = self.out.len();
            self.string()?;
            let key = from + 1..self.out.len() - 1;
            self.skip_space();
            if self.peek() != Some(b':') {
                return Err(self.expected("\":\""));
            }
            self.pos += 1;
            self.out.push_str(": ");
            self.value(depth, "JSON value")?;
            sorted &= members
                .last()
                .is_none_or(|last| key_order(&self.out[last.key.clone()], &self.out[key.clone()]).is_lt());
            members.push(Member {
                key,
                whole: from..self.out.len(),
            });
            self.skip_space();
            match self.peek() {
                Some(b',') => {
                    self.pos += 1;
                    self.out.push_str(", ");
                }
                Some(b'}') => {
                    self.pos += 1;
                    break;
                }
                _ => return Err(self.expected("\",\" or \"}\"")),
            }
        }
        match sorted {
            true => self.out.push('}'),
            false => order_members(&mut self.out, start, members),
        }
        Ok(())
    }

    fn string(&mut self) -> Result<(), SqlError> {
        self.pos += 1;
        self.out.push('"');
        loop {
            let rest = &self.text.as_bytes()[self.pos..];
            let plain = rest
                .iter()
                .position(|byte| matches!(byte, b'"' | b'\\' | 0..=0x1f))
                .unwrap_or(rest.len());
            self.out.push_str(&self.text[self.pos..self.pos + plain]);
            self.pos += plain;
            match self.peek() {
                Some(b'"') => {
                    self.pos += 1;
                    self.out.push('"');
                    return Ok(());
                }
                Some(b'\\') => self.escape()?,
                Some(byte) => {
                    return Err(invalid(format!(
                        "Character with value 0x{byte:02x} must be escaped."
                    )));
                }
                None => {
                    self.pos = self.text.len() - plain;
                    return Err(invalid(format!("Token \"{}\" is invalid.", self.string_token())));
                }
            }
        }
    }

    /// The text of an unfinished string, from its opening quote.
    fn string_token(&self) -> &str {
        let before = &self.text[..self.pos];
        let open = before.rfind('"').unwrap_or(0);
        &self.text[open..]
    }

    fn escape(&mut self) -> Result<(), SqlError> {
        let rest = &self.text[self.pos + 1..];
        let Some(char) = rest.chars().next() else {
            return Err(invalid("The input string ended unexpectedly."));
        };
        let plain = match char {
            '"' | '\\' | '/' => char,
            'b' => '\u{8}',
            'f' => '\u{c}',
            'n' => '\n',
            'r' => '\r',
            't' => '\t',
            'u' => return self.unicode_escape(),
            _ => return Err(invalid(format!("Escape sequence \"\\{char}\" is invalid."))),
        };
        self.pos += 1 + char.len_utf8();
        push_escaped_char(plain, &mut self.out);
        Ok(())
    }

    fn unicode_escape(&mut self) -> Result<(), SqlError> {
        let first = self.hex4(self.pos)?;
        self.pos += 6;
        let code = match first {
            0 => {
                return Err(SqlError::new(
                    SqlState::UntranslatableCharacter,
                    "unsupported Unicode escape sequence",
                )
                .with_detail("\\u0000 cannot be converted to text."));
            }
            0xd800..=0xdbff => {
                if !self.text[self.pos..].starts_with("\\u") {
                    return Err(invalid("Unicode low surrogate must follow a high surrogate."));
                }
                let second = self.hex4(self.pos)?;
                match second {
                    0xdc00..=0xdfff => {}
                    0xd800..=0xdbff => {
                        return Err(invalid(
                            "Unicode high surrogate must not follow a high surrogate.",
                        ));
                    }
                    _ => return Err(invalid("Unicode low surrogate must follow a high surrogate.")),
                }
                self.pos += 6;
                0x10000 + ((first - 0xd800) << 10) + (second - 0xdc00)
            }
            0xdc00..=0xdfff => {
                return Err(invalid("Unicode low surrogate must follow a high surrogate."));
            }
            code => code,
        };
        let char = char::from_u32(code).ok_or_else(|| invalid("The code point is no character."))?;
        push_escaped_char(char, &mut self.out);
        Ok(())
    }

    /// The four digits of the `\u` at `at`.
    fn hex4(&self, at: usize) -> Result<u32, SqlError> {
        let digits = self.text.get(at + 2..at + 6);
        digits
            .filter(|digits| digits.bytes().all(|byte| byte.is_ascii_hexdigit()))
            .and_then(|digits| u32::from_str_radix(digits, 16).ok())
            .ok_or_else(|| invalid("\"\\u\" must be followed by four hexadecimal digits."))
    }

    /// What stands at the cursor, as far as it is one word or one character.
    fn token(&self) -> &str {
        let rest = &self.text[self.pos..];
        let is_word = |char: char| char.is_alphanumeric() || char == '_';
        let end = rest
            .find(|char: char| !is_word(char))
            .filter(|end| *end > 0)
            .or_else(|| {
                rest.chars()
                    .next()
                    .map(char::len_utf8)
                    .filter(|_| !rest.starts_with(is_word))
            })
            .unwrap_or(rest.len());
        &rest[..end]
    }

    fn invalid_token(&self) -> SqlError {
        let rest = &self.text[self.pos..];
        let end = rest
            .find(|char: char| !(char.is_alphanumeric() || matches!(char, '_' | '-' | '+' | '.')))
            .unwrap_or(rest.len());
        invalid(format!("Token \"{}\" is invalid.", &rest[..end]))
    }

    fn expected(&self, what: &str) -> SqlError {
        let token = self.token();
        if token.is_empty() {
            return invalid("The input string ended unexpectedly.");
        }
        let is_known = matches!(token, "true" | "false" | "null");
        let is_word = token.starts_with(|char: char| char.is_alphabetic() || char == '_');
        let is_mark = token.starts_with(['{', '}', '[', ']', ',', ':', '"', '-']);
        let is_number = token.starts_with(|char: char| char.is_ascii_digit());
        if (is_word && !is_known) || !(is_word || is_mark || is_number) {
            return invalid(format!("Token \"{token}\" is invalid."));
        }
        invalid(format!("Expected {what}, but found \"{token}\"."))
    }
}

fn invalid(detail: impl Into<String>) -> SqlError {
    SqlError::new(
        SqlState::InvalidTextRepresentation,
        "invalid input syntax for type json",
    )
    .with_detail(detail)
}
