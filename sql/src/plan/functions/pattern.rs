//! Regular expressions of PostgreSQL in the spelling of the engine that runs them.
//!
//! Classes, groups, quantifiers, anchors and the escapes `\m \M \y \Y \A \Z \d \s \w` are there. What looks around or back
//! is not: the engine takes time in proportion to the text. Of alternatives that match at one place the first is taken,
//! where PostgreSQL takes the longest.

use std::iter::Peekable;
use std::str::Chars;

use datafusion::functions::regex::compile_regex;

use crate::{SqlError, SqlState};

/// Begins what was translated already; it matches nothing.
const TRANSLATED: &str = "(?-u:)";

/// How a pattern is to be read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Flags {
    pub(crate) is_global: bool,
    ignores_case: bool,
    /// `.` and `[^a]` stop at the end of a line.
    stops_at_lines: bool,
    /// `^` and `$` match at the ends of lines too.
    has_line_anchors: bool,
    is_expanded: bool,
    is_literal: bool,
}

impl Flags {
    /// # Errors
    /// A letter that PostgreSQL does not have.
    pub(crate) fn read(text: &str) -> Result<Self, SqlError> {
        let mut flags = Self::default();
        for letter in text.chars() {
            match letter {
                'g' => flags.is_global = true,
                'i' => flags.ignores_case = true,
                'c' => flags.ignores_case = false,
                'n' | 'm' => (flags.stops_at_lines, flags.has_line_anchors) = (true, true),
                'p' => (flags.stops_at_lines, flags.has_line_anchors) = (true, false),
                'w' => (flags.stops_at_lines, flags.has_line_anchors) = (false, true),
                's' => (flags.stops_at_lines, flags.has_line_anchors) = (false, false),
                'x' => flags.is_expanded = true,
                't' => flags.is_expanded = false,
                'q' => flags.is_literal = true,
                'e' => {}
                _ => {
                    return Err(SqlError::new(
                        SqlState::InvalidParameterValue,
                        format!("invalid regular expression option: \"{letter}\""),
                    ));
                }
            }
        }
        Ok(flags)
    }
}

/// The places of a match and of its groups, in bytes.
pub(crate) type Groups = Vec<Option<(usize, usize)>>;

/// Finds the first match from a place on; it fills the groups, the whole match first.
///
/// # Errors
/// A pattern that is none, or has what the engine does not have.
pub(crate) fn matcher(
    pattern: &str,
    flags: Flags,
) -> Result<impl FnMut(&str, usize, &mut Groups) -> bool + use<>, SqlError> {
    let regex = compile_regex(&spelled(pattern, flags)?, None).map_err(|_| {
        SqlError::new(
            SqlState::InvalidRegularExpression,
            format!("invalid regular expression: \"{pattern}\""),
        )
    })?;
    let mut locations = regex.capture_locations();
    Ok(move |text: &str, from: usize, groups: &mut Groups| {
        if from > text.len() || regex.captures_read_at(&mut locations, text, from).is_none() {
            return false;
        }
        groups.clear();
        groups.extend((0..locations.len()).map(|group| locations.get(group)));
        true
    })
}

/// The pattern of an operator, which has no flags. What needs no change stays as it is.
///
/// # Errors
/// What the engine does not have.
pub(crate) fn for_operator(pattern: &str) -> Result<String, SqlError> {
    if pattern.starts_with(TRANSLATED) {
        return Ok(pattern.to_owned());
    }
    let body = translated(pattern)?;
    if body == pattern && !pattern.contains('.') {
        return Ok(body);
    }
    Ok(format!("{TRANSLATED}(?s){body}"))
}

fn spelled(pattern: &str, flags: Flags) -> Result<String, SqlError> {
    let mut text = String::from(TRANSLATED);
    for (is_set, letters) in [
        (flags.ignores_case, "(?i)"),
        (!flags.stops_at_lines, "(?s)"),
        (flags.has_line_anchors, "(?m)"),
        (flags.is_expanded, "(?x)"),
    ] {
        if is_set {
            text.push_str(letters);
        }
    }
    match flags.is_literal {
        true => pattern.chars().for_each(|char| push_literal(&mut text, char)),
        false => text.push_str(&translated(pattern)?),
    }
    Ok(text)
}

fn push_literal(text: &mut String, char: char) {
    if char.is_ascii_punctuation() {
        text.push('\\');
    }
    text.push(char);
}

fn translated(pattern: &str) -> Result<String, SqlError> {
    let mut text = String::with_capacity(pattern.len());
    let mut chars = pattern.chars().peekable();
    while let Some(char) = chars.next() {
        match char {
            '\\' => escape(&mut chars, &mut text, false)?,
            '[' => brackets(&mut chars, &mut text)?,
            '(' => {
                text.push('(');
                let mut ahead = chars.clone();
                let looks = ahead.next() == Some('?') && matches!(ahead.next(), Some('=' | '!' | '<'));
                if looks {
                    return Err(unsupported("a lookaround in a regular expression"));
                }
            }
            _ => text.push(char),
        }
    }
    Ok(text)
}

/// What follows a backslash.
fn escape(chars: &mut Peekable<Chars<'_>>, text: &mut String, in_brackets: bool) -> Result<(), SqlError> {
    let Some(char) = chars.next() else {
        return Err(SqlError::new(
            SqlState::InvalidRegularExpression,
            "invalid regular expression: invalid escape \\ sequence",
        ));
    };
    match char {
        'm' if !in_brackets => text.push_str("\\b{start}"),
        'M' if !in_brackets => text.push_str("\\b{end}"),
        'y' if !in_brackets => text.push_str("\\b"),
        'Y' if !in_brackets => text.push_str("\\B"),
        'Z' if !in_brackets => text.push_str("\\z"),
        '1'..='9' if !in_brackets => {
            return Err(unsupported("a back reference in a regular expression"));
        }
        'b' => text.push_str("\\x08"),
        'B' => text.push_str("\\\\"),
        'e' => text.push_str("\\x1B"),
        '0' => text.push_str("\\x00"),
        'u' => push_code(chars, 4, text),
        'U' => push_code(chars, 8, text),
        'x' => push_code(chars, 8, text),
        'a' | 'f' | 'n' | 'r' | 't' | 'v' | 'd' | 'D' | 's' | 'S' | 'w' | 'W' | 'A' => {
            text.push('\\');
            text.push(char);
        }
        _ if char.is_ascii_alphanumeric() => {
            return Err(SqlError::new(
                SqlState::InvalidRegularExpression,
                "invalid regular expression: invalid escape \\ sequence",
            ));
        }
        _ => push_literal(text, char),
    }
    Ok(())
}

/// A character by its hexadecimal number.
fn push_code(chars: &mut Peekable<Chars<'_>>, digits_max: usize, text: &mut String) {
    text.push_str("\\x{");
    for _ in 0..digits_max {
        match chars.next_if(char::is_ascii_hexdigit) {
            Some(digit) => text.push(digit),
            None => break,
        }
    }
    text.push('}');
}

/// A class in brackets, whose opening one has been taken.
fn brackets(chars: &mut Peekable<Chars<'_>>, text: &mut String) -> Result<(), SqlError> {
    let rest: String = chars.clone().take(6).collect();
    for (word, boundary) in [("[:<:]]", "\\b{start}"), ("[:>:]]", "\\b{end}")] {
        if rest == word {
            chars.nth(word.len() - 1);
            text.push_str(boundary);
            return Ok(());
        }
    }
    text.push('[');
    if chars.next_if_eq(&'^').is_some() {
        text.push('^');
    }
    if chars.next_if_eq(&']').is_some() {
        text.push_str("\\]");
    }
    while let Some(char) = chars.next() {
        match char {
            ']' => {
                text.push(']');
                return Ok(());
            }
            '\\' => escape(chars, text, true)?,
            '[' if chars.peek() == Some(&':') => {
                text.push('[');
                for char in chars.by_ref() {
                    text.push(char);
                    if char == ']' {
                        break;
                    }
                }
            }
            '[' | '&' | '~' => push_literal(text, char),
            _ => text.push(char),
        }
    }
    Err(SqlError::new(
        SqlState::InvalidRegularExpression,
        "invalid regular expression: brackets [] not balanced",
    ))
}

fn unsupported(what: &str) -> SqlError {
    SqlError::unsupported(what)
        .with_hint("Expressions that look around or back are not there: match in two steps.")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_postgres_spells_otherwise_is_translated_once() {
        assert_eq!(for_operator("ab+c").unwrap(), "ab+c");
        let once = for_operator(r"\mfoo\M.").unwrap();
        assert_eq!(once, r"(?-u:)(?s)\b{start}foo\b{end}.");
        assert_eq!(for_operator(&once).unwrap(), once);
        assert_eq!(translated(r"[[:alpha:][&]").unwrap(), r"[[:alpha:]\[\&]");
        assert_eq!(translated(r"[]a]").unwrap(), r"[\]a]");
        assert!(translated(r"(?=a)").is_err());
        assert!(translated(r"(a)\1").is_err());
    }
}
