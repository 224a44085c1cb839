//! Walking a document in normal form: no tree, no allocation.

use std::borrow::Cow;
use std::cmp::Ordering;

/// What a document or a part of it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Null,
    String,
    Number,
    Boolean,
    Array,
    Object,
}

impl Kind {
    /// What `jsonb_typeof` calls it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::String => "string",
            Self::Number => "number",
            Self::Boolean => "boolean",
            Self::Array => "array",
            Self::Object => "object",
        }
    }
}

/// What a value in normal form is: its first byte says it.
pub(crate) fn kind_of(value: &str) -> Kind {
    match value.as_bytes().first() {
        Some(b'{') => Kind::Object,
        Some(b'[') => Kind::Array,
        Some(b'"') => Kind::String,
        Some(b't' | b'f') => Kind::Boolean,
        Some(b'-' | b'0'..=b'9') => Kind::Number,
        _ => Kind::Null,
    }
}

/// Where the string that begins at `at` ends, behind its closing quote.
fn string_end(bytes: &[u8], at: usize) -> usize {
    let mut pos = at + 1;
    while let Some(byte) = bytes.get(pos) {
        match byte {
            b'"' => return pos + 1,
            b'\\' => pos += 2,
            _ => pos += 1,
        }
    }
    bytes.len()
}

/// Where the value that begins at `at` ends.
fn value_end(bytes: &[u8], at: usize) -> usize {
    match bytes.get(at) {
        Some(b'"') => string_end(bytes, at),
        Some(b'{' | b'[') => {
            let mut depth = 0_usize;
            let mut pos = at;
            while let Some(byte) = bytes.get(pos) {
                match byte {
                    b'"' => {
                        pos = string_end(bytes, pos);
                        continue;
                    }
                    b'{' | b'[' => depth += 1,
                    b'}' | b']' => depth = depth.saturating_sub(1),
                    _ => {}
                }
                pos += 1;
                if depth == 0 {
                    return pos;
                }
            }
            bytes.len()
        }
        _ => {
            let rest = bytes.get(at..).unwrap_or_default();
            let length = rest.iter().position(|byte| matches!(byte, b',' | b'}' | b']'));
            at + length.unwrap_or(rest.len())
        }
    }
}

/// The elements of an array; of a value that is none there are none.
#[derive(Debug, Clone)]
pub(crate) struct Elements<'a> {
    text: &'a str,
    pos: usize,
}

impl<'a> Elements<'a> {
    /// From the first one on.
    pub(crate) fn of(value: &'a str) -> Self {
        let pos = match kind_of(value) {
            Kind::Array if value.len() > 2 => 1,
            _ => value.len(),
        };
        Self { text: value, pos }
    }
}

impl<'a> Iterator for Elements<'a> {
    type Item = &'a str;

    fn next(&mut self) -> Option<&'a str> {
        if self.pos >= self.text.len() {
            return None;
        }
        let end = value_end(self.text.as_bytes(), self.pos);
        let element = self.text.get(self.pos..end)?;
        // A comma and a blank, or the closing bracket.
        self.pos = match self.text.as_bytes().get(end) {
            Some(b',') => end + 2,
            _ => self.text.len(),
        };
        Some(element)
    }
}

/// The pairs of an object: keys without their quotes, escaped as they stand there, and values.
#[derive(Debug, Clone)]
pub(crate) struct Pairs<'a> {
    text: &'a str,
    pos: usize,
}

impl<'a> Pairs<'a> {
    /// From the first one on.
    pub(crate) fn of(value: &'a str) -> Self {
        let pos = match kind_of(value) {
            Kind::Object if value.len() > 2 => 1,
            _ => value.len(),
        };
        Self { text: value, pos }
    }
}

impl<'a> Iterator for Pairs<'a> {
    type Item = (&'a str, &'a str);

    fn next(&mut self) -> Option<(&'a str, &'a str)> {
        if self.pos >= self.text.len() {
            return None;
        }
        let bytes = self.text.as_bytes();
        let key_end = string_end(bytes, self.pos);
        let key = self.text.get(self.pos + 1..key_end.checked_sub(1)?)?;
        // A colon and a blank.
        let from = key_end + 2;
        let end = value_end(bytes, from);
        let value = self.text.get(from..end)?;
        self.pos = match bytes.get(end) {
            Some(b',') => end + 2,
            _ => self.text.len(),
        };
        Some((key, value))
    }
}

/// How many elements an array has.
pub(crate) fn element_count(value: &str) -> usize {
    Elements::of(value).count()
}

/// One step of a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step<'a> {
    /// Into an object: the key, escaped.
    Key(&'a str),
    /// Into an array, from its end if negative.
    Index(i64),
    /// Into either: the key, escaped, and the index that the same text is, if it is one.
    Either(&'a str, Option<i64>),
}

/// What stands at the end of a path; `None` if the path leads nowhere.
pub(crate) fn at_path<'a, 's>(document: &'a str, steps: impl Iterator<Item = Step<'s>>) -> Option<&'a str> {
    let mut value = document;
    for step in steps {
        value = match (kind_of(value), step) {
            (Kind::Object, Step::Key(key) | Step::Either(key, _)) => {
                Pairs::of(value).find(|(own, _)| *own == key)?.1
            }
            (Kind::Array, Step::Index(index) | Step::Either(_, Some(index))) => element_at(value, index)?,
            // PostgreSQL takes a scalar for an array of one element here.
            (kind, Step::Index(0 | -1)) if kind != Kind::Object => value,
            _ => return None,
        };
    }
    Some(value)
}

fn element_at(array: &str, index: i64) -> Option<&str> {
    let index = match usize::try_from(index) {
        Ok(index) => index,
        Err(_) => element_count(array).checked_sub(usize::try_from(index.unsigned_abs()).ok()?)?,
    };
    Elements::of(array).nth(index)
}

/// A value as `->>` gives it: the characters of a string, the text of anything else, `None` for null.
pub(crate) fn text_of(value: &str) -> Option<Cow<'_, str>> {
    match kind_of(value) {
        Kind::Null => None,
        Kind::String => Some(unescaped(
            value.get(1..value.len().saturating_sub(1)).unwrap_or_default(),
        )),
        _ => Some(Cow::Borrowed(value)),
    }
}

/// The characters of a string's content.
pub(crate) fn unescaped(content: &str) -> Cow<'_, str> {
    if !content.contains('\\') {
        return Cow::Borrowed(content);
    }
    let mut text = String::with_capacity(content.len());
    let mut rest = content;
    while let Some(at) = rest.find('\\') {
        text.push_str(&rest[..at]);
        let mut chars = rest[at + 1..].chars();
        let plain = match chars.next() {
            Some('b') => '\u{8}',
            Some('f') => '\u{c}',
            Some('n') => '\n',
            Some('r') => '\r',
            Some('t') => '\t',
            Some('u') => {
                let digits = chars.as_str().get(..4).unwrap_or_default();
                chars = chars.as_str().get(4..).unwrap_or_default().chars();
                let code = u32::from_str_radix(digits, 16).ok();
                code.and_then(char::from_u32).unwrap_or('\u{fffd}')
            }
            Some(char) => char,
            None => break,
        };
        text.push(plain);
        rest = chars.as_str();
    }
    text.push_str(rest);
    Cow::Owned(text)
}

/// Appends a text as the content of a string.
pub(crate) fn push_escaped(text: &str, out: &mut String) {
    let mut rest = text;
    while let Some(at) = rest
        .bytes()
        .position(|byte| matches!(byte, b'"' | b'\\' | 0..=0x1f))
    {
        out.push_str(&rest[..at]);
        push_escaped_char(char::from(rest.as_bytes()[at]), out);
        rest = &rest[at + 1..];
    }
    out.push_str(rest);
}

/// Appends a character as a string holds it.
pub(super) fn push_escaped_char(char: char, out: &mut String) {
    match char {
        '"' => out.push_str("\\\""),
        '\\' => out.push_str("\\\\"),
        '\u{8}' => out.push_str("\\b"),
        '\u{c}' => out.push_str("\\f"),
        '\n' => out.push_str("\\n"),
        '\r' => out.push_str("\\r"),
        '\t' => out.push_str("\\t"),
        char if char < ' ' => {
            const DIGITS: &[u8; 16] = b"0123456789abcdef";
            let code = char as usize;
            out.push_str("\\u00");
            out.push(char::from(DIGITS[code >> 4 & 15]));
            out.push(char::from(DIGITS[code & 15]));
        }
        char => out.push(char),
    }
}

/// How keys, escaped, follow one another in an object: by length, then by their bytes.
pub(super) fn key_order(a: &str, b: &str) -> Ordering {
    let (a, b) = (unescaped(a), unescaped(b));
    (a.len(), a.as_bytes()).cmp(&(b.len(), b.as_bytes()))
}
