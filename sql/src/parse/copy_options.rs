//! The options of COPY, in parentheses or, as PostgreSQL had them before, one after another.

use datafusion::sql::sqlparser::tokenizer::Token;

use super::cursor::{Cursor, Name};
use crate::error::{SqlError, SqlState};
use crate::statement::{CopyDirection, CopyFormat, CopyHeader, CopyOptions, ForceQuote};

/// What the options say, as far as it is given; each with its place.
#[derive(Default)]
struct Given {
    format: Option<(CopyFormat, usize)>,
    header: Option<(CopyHeader, usize)>,
    delimiter: Option<(u8, usize)>,
    null: Option<(String, usize)>,
    quote: Option<(u8, usize)>,
    escape: Option<(u8, usize)>,
    force_quote: Option<(ForceQuote, usize)>,
    force_not_null: Option<(Vec<String>, usize)>,
    force_null: Option<(Vec<String>, usize)>,
    encoding: Option<((), usize)>,
}

/// Takes the options, up to the end or to WHERE.
///
/// # Errors
/// An option that there is not or that stands twice, values that it does not take, options that do not go together.
pub(super) fn options(cursor: &mut Cursor<'_>, direction: CopyDirection) -> Result<CopyOptions, SqlError> {
    cursor.eat(&["with"]);
    let mut given = Given::default();
    if cursor.eat_token(&Token::LParen) {
        loop {
            option(cursor, &mut given, true)?;
            if !cursor.eat_token(&Token::Comma) {
                break;
            }
        }
        cursor.expect_token(&Token::RParen)?;
    } else {
        while !cursor.at_end() && !cursor.sees(&["where"]) {
            option(cursor, &mut given, false)?;
        }
    }
    given.checked(direction)
}

fn option(cursor: &mut Cursor<'_>, given: &mut Given, is_listed: bool) -> Result<(), SqlError> {
    let position = cursor.position();
    if cursor.eat(&["format"]) {
        let format = format(cursor)?;
        once(&mut given.format, format, position)
    } else if cursor.eat(&["binary"]) {
        once(&mut given.format, CopyFormat::Binary, position)
    } else if cursor.eat(&["csv"]) {
        once(&mut given.format, CopyFormat::Csv, position)
    } else if cursor.eat(&["header"]) {
        let header = header(cursor)?;
        once(&mut given.header, header, position)
    } else if cursor.eat(&["delimiter"]) || cursor.eat(&["delimiters"]) {
        let byte = byte(cursor, "COPY delimiter")?;
        once(&mut given.delimiter, byte, position)
    } else if cursor.eat(&["null"]) {
        cursor.eat(&["as"]);
        let null = cursor.string("what stands for NULL")?;
        once(&mut given.null, null, position)
    } else if cursor.eat(&["quote"]) {
        let byte = byte(cursor, "COPY quote")?;
        once(&mut given.quote, byte, position)
    } else if cursor.eat(&["escape"]) {
        let byte = byte(cursor, "COPY escape")?;
        once(&mut given.escape, byte, position)
    } else if cursor.eat(&["force_quote"]) || cursor.eat(&["force", "quote"]) {
        let columns = match cursor.eat_token(&Token::Mul) {
            true => ForceQuote::All,
            false => ForceQuote::Columns(columns(cursor, is_listed)?),
        };
        once(&mut given.force_quote, columns, position)
    } else if cursor.eat(&["force_not_null"]) || cursor.eat(&["force", "not", "null"]) {
        let columns = columns(cursor, is_listed)?;
        once(&mut given.force_not_null, columns, position)
    } else if cursor.eat(&["force_null"]) || cursor.eat(&["force", "null"]) {
        let columns = columns(cursor, is_listed)?;
        once(&mut given.force_null, columns, position)
    } else if cursor.eat(&["encoding"]) {
        let encoding = cursor.string("the name of an encoding")?;
        if !matches!(
            encoding.to_lowercase().as_str(),
            "utf8" | "utf-8" | "unicode" | "sql_ascii"
        ) {
            return Err(SqlError::unsupported(format!("encoding \"{encoding}\""))
                .with_hint("The encoding is UTF8.")
                .at(position));
        }
        once(&mut given.encoding, (), position)
    } else if cursor.sees(&["freeze"]) {
        Err(SqlError::unsupported("COPY FREEZE")
            .with_detail("Rows are stored in one way only.")
            .at(position))
    } else {
        Err(cursor.unexpected("an option of COPY"))
    }
}

fn once<T>(place: &mut Option<(T, usize)>, value: T, position: usize) -> Result<(), SqlError> {
    if place.is_some() {
        return Err(SqlError::new(SqlState::SyntaxError, "conflicting or redundant options").at(position));
    }
    *place = Some((value, position));
    Ok(())
}

fn format(cursor: &mut Cursor<'_>) -> Result<CopyFormat, SqlError> {
    let position = cursor.position();
    let format = match cursor.peek() {
        Token::SingleQuotedString(_) => cursor.string("a format")?.to_lowercase(),
        _ => cursor.name("a format")?.text,
    };
    match format.as_str() {
        "csv" => Ok(CopyFormat::Csv),
        "text" => Ok(CopyFormat::Text),
        "binary" => Ok(CopyFormat::Binary),
        other => {
            let message = format!("COPY format \"{other}\" not recognized");
            Err(SqlError::new(SqlState::InvalidParameterValue, message).at(position))
        }
    }
}

fn header(cursor: &mut Cursor<'_>) -> Result<CopyHeader, SqlError> {
    let position = cursor.position();
    let word = match cursor.peek() {
        Token::SingleQuotedString(text) => Some(text.to_lowercase()),
        Token::Number(digits, _) => Some(digits.clone()),
        Token::Word(word) => Some(word.value.to_lowercase()),
        _ => None,
    };
    let header = match word.as_deref() {
        Some("false" | "off" | "0") => CopyHeader::None,
        Some("true" | "on" | "1") => CopyHeader::Names,
        Some("match") => CopyHeader::Match,
        _ if matches!(cursor.peek(), Token::SingleQuotedString(_) | Token::Number(..)) => {
            let message = "header requires a Boolean value or \"match\"";
            return Err(SqlError::new(SqlState::SyntaxError, message).at(position));
        }
        // The next option, or the end.
        _ => return Ok(CopyHeader::Names),
    };
    cursor.take();
    Ok(header)
}

/// `(a, b)`; `a, b` where options are not listed.
fn columns(cursor: &mut Cursor<'_>, is_listed: bool) -> Result<Vec<String>, SqlError> {
    if is_listed || *cursor.peek() == Token::LParen {
        let names = cursor.name_list("a column name")?;
        if names.is_empty() {
            return Err(cursor.unexpected("columns in parentheses"));
        }
        return Ok(names.into_iter().map(|Name { text, .. }| text).collect());
    }
    let mut names = vec![cursor.name("a column name")?.text];
    while cursor.eat_token(&Token::Comma) {
        names.push(cursor.name("a column name")?.text);
    }
    Ok(names)
}

/// A text of one byte.
fn byte(cursor: &mut Cursor<'_>, what: &str) -> Result<u8, SqlError> {
    cursor.eat(&["as"]);
    let position = cursor.position();
    let text = cursor.string("a text of one character")?;
    match text.as_bytes() {
        [byte] if !matches!(byte, b'\n' | b'\r') => Ok(*byte),
        _ => {
            let message = format!("{what} must be a single one-byte character");
            Err(SqlError::new(SqlState::FeatureNotSupported, message).at(position))
        }
    }
}

/// The place of an option, if it is given.
fn place<T>(option: &Option<(T, usize)>) -> Option<usize> {
    option.as_ref().map(|(_, position)| *position)
}

impl Given {
    fn checked(self, direction: CopyDirection) -> Result<CopyOptions, SqlError> {
        let format = self.format.map_or(CopyFormat::Text, |(format, _)| format);
        self.refuse_beside(format)?;
        self.refuse_going(direction)?;
        let defaults = match format {
            CopyFormat::Csv => CopyOptions::csv(),
            CopyFormat::Text | CopyFormat::Binary => CopyOptions::text(),
        };
        let value = |option: Option<(u8, usize)>| option.map(|(byte, _)| byte);
        let quote = value(self.quote).unwrap_or(defaults.quote);
        let options = CopyOptions {
            format,
            header: self.header.map_or(CopyHeader::None, |(header, _)| header),
            delimiter: value(self.delimiter).unwrap_or(defaults.delimiter),
            null: self.null.as_ref().map_or(defaults.null, |(null, _)| null.clone()),
            quote,
            escape: value(self.escape).unwrap_or(quote),
            force_quote: self
                .force_quote
                .map_or(defaults.force_quote, |(columns, _)| columns),
            force_not_null: self
                .force_not_null
                .map(|(columns, _)| columns)
                .unwrap_or_default(),
            force_null: self.force_null.map(|(columns, _)| columns).unwrap_or_default(),
        };
        let position = self.delimiter.map(|(_, position)| position);
        check(&options).map_err(
            |error| match position.or(self.null.map(|(_, position)| position)) {
                Some(position) => error.at(position),
                None => error,
            },
        )?;
        Ok(options)
    }

    /// Refuses options that a format does not have.
    fn refuse_beside(&self, format: CopyFormat) -> Result<(), SqlError> {
        let refused = |state, message: &str, position| Err(SqlError::new(state, message).at(position));
        if format == CopyFormat::Binary {
            for (option, position) in [("DELIMITER", place(&self.delimiter)), ("NULL", place(&self.null))] {
                if let Some(position) = position {
                    let message = format!("cannot specify {option} in BINARY mode");
                    return refused(SqlState::SyntaxError, &message, position);
                }
            }
            if let Some((CopyHeader::Names | CopyHeader::Match, position)) = self.header {
                let message = "cannot specify HEADER in BINARY mode";
                return refused(SqlState::FeatureNotSupported, message, position);
            }
        }
        if format != CopyFormat::Csv {
            for (option, position) in [
                ("quote", place(&self.quote)),
                ("escape", place(&self.escape)),
                ("force quote", place(&self.force_quote)),
                ("force not null", place(&self.force_not_null)),
                ("force null", place(&self.force_null)),
            ] {
                if let Some(position) = position {
                    let message = format!("COPY {option} available only in CSV mode");
                    return refused(SqlState::FeatureNotSupported, &message, position);
                }
            }
        }
        Ok(())
    }

    /// Refuses options that the other direction has.
    fn refuse_going(&self, direction: CopyDirection) -> Result<(), SqlError> {
        let refused = |message: String, position| {
            Err(SqlError::new(SqlState::FeatureNotSupported, message).at(position))
        };
        let (other, options) = match direction {
            CopyDirection::In => ("TO", vec![("force quote", place(&self.force_quote))]),
            CopyDirection::Out => (
                "FROM",
                vec![
                    ("force not null", place(&self.force_not_null)),
                    ("force null", place(&self.force_null)),
                ],
            ),
        };
        for (option, position) in options {
            if let Some(position) = position {
                let message = format!("COPY {option} only available using COPY {other}");
                return refused(message, position);
            }
        }
        match (direction, self.header) {
            (CopyDirection::Out, Some((CopyHeader::Match, position))) => {
                refused("cannot use \"match\" with HEADER in COPY TO".to_owned(), position)
            }
            _ => Ok(()),
        }
    }
}

/// Refuses bytes that cannot be told apart.
fn check(options: &CopyOptions) -> Result<(), SqlError> {
    let CopyOptions {
        delimiter,
        null,
        quote,
        ..
    } = options;
    let is_csv = options.format == CopyFormat::Csv;
    let invalid = |message: &str| Err(SqlError::new(SqlState::InvalidParameterValue, message));
    if null.contains(['\n', '\r']) {
        return invalid("COPY null representation cannot use newline or carriage return");
    }
    if null.bytes().any(|byte| byte == *delimiter) {
        return invalid("COPY delimiter character must not appear in the NULL specification");
    }
    if is_csv && delimiter == quote {
        return invalid("COPY delimiter and quote must be different");
    }
    if is_csv && null.bytes().any(|byte| byte == *quote) {
        return invalid("CSV quote character must not appear in the NULL specification");
    }
    if !is_csv && (delimiter.is_ascii_alphanumeric() || *delimiter == b'\\' || *delimiter == b'.') {
        return invalid("COPY delimiter cannot be a letter, a digit, a dot or a backslash");
    }
    Ok(())
}
