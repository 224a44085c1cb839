//! Option lists: `(connector = 'kafka', properties.bootstrap.server = '…', 'quoted.key' = true)`.

use datafusion::sql::sqlparser::tokenizer::Token;

use super::cursor::Cursor;
use crate::error::{SqlError, SqlState};
use crate::statement::{OptionValue, WithOptions};

/// Takes `WITH (…)` if it stands next.
///
/// # Errors
/// As [`options`].
pub(crate) fn with_clause(cursor: &mut Cursor<'_>) -> Result<Option<WithOptions>, SqlError> {
    if cursor.sees(&["with"]) && *cursor.peek_nth(1) == Token::LParen {
        cursor.take();
        return options(cursor).map(Some);
    }
    Ok(None)
}

/// Takes a list of options in parentheses.
///
/// # Errors
/// A malformed list, an option given twice, a value that is not a text, number or boolean, SECRET. No error text holds
/// a value (INV-10).
pub(crate) fn options(cursor: &mut Cursor<'_>) -> Result<WithOptions, SqlError> {
    cursor.expect_token(&Token::LParen)?;
    let mut given = WithOptions::new();
    if cursor.eat_token(&Token::RParen) {
        return Ok(given);
    }
    loop {
        let position = cursor.position();
        let name = option_name(cursor)?;
        cursor.expect_token(&Token::Eq)?;
        let value_position = cursor.position();
        let text = option_text(cursor, &name)?;
        if given.contains_key(&name) {
            let message = format!("option \"{name}\" is given twice");
            return Err(SqlError::new(SqlState::SyntaxError, message).at(position));
        }
        let value = OptionValue {
            text,
            position,
            value_position,
        };
        given.insert(name, value);
        if !cursor.eat_token(&Token::Comma) {
            break;
        }
    }
    cursor.expect_token(&Token::RParen)?;
    Ok(given)
}

/// A name of words with dots or dashes between, or in quotes; lower-cased.
fn option_name(cursor: &mut Cursor<'_>) -> Result<String, SqlError> {
    const WHAT: &str = "the name of an option";
    let mut name = match cursor.peek() {
        Token::SingleQuotedString(text) => {
            let text = text.to_lowercase();
            cursor.take();
            return named(text, cursor);
        }
        Token::Word(word) => word.value.to_lowercase(),
        _ => return Err(cursor.unexpected(WHAT)),
    };
    cursor.take();
    loop {
        let mark = match cursor.peek() {
            Token::Period => '.',
            Token::Minus => '-',
            _ => return named(name, cursor),
        };
        cursor.take();
        match cursor.peek() {
            Token::Word(word) => name = format!("{name}{mark}{}", word.value.to_lowercase()),
            _ => {
                return Err(cursor
                    .unexpected(WHAT)
                    .with_hint("Put the name in single quotes."));
            }
        }
        cursor.take();
    }
}

fn named(name: String, cursor: &Cursor<'_>) -> Result<String, SqlError> {
    if name.is_empty() {
        Err(cursor.unexpected("the name of an option, not an empty text"))
    } else {
        Ok(name)
    }
}

fn option_text(cursor: &mut Cursor<'_>, name: &str) -> Result<String, SqlError> {
    let position = cursor.position();
    if cursor.sees(&["secret"]) {
        return Err(SqlError::unsupported("SECRET in an option")
            .with_hint(format!(
                "Take the value of \"{name}\" from the environment: '${{NAME}}'."
            ))
            .at(position));
    }
    let minus = cursor.eat_token(&Token::Minus);
    let text = match cursor.peek() {
        Token::Number(digits, _) => format!("{}{digits}", if minus { "-" } else { "" }),
        Token::SingleQuotedString(text) | Token::EscapedStringLiteral(text) if !minus => text.clone(),
        Token::DollarQuotedString(text) if !minus => text.value.clone(),
        Token::Word(word)
            if !minus
                && word.quote_style.is_none()
                && ["true", "false", "on", "off"].contains(&word.value.to_lowercase().as_str()) =>
        {
            word.value.to_lowercase()
        }
        _ => {
            let message = format!("the value of option \"{name}\" is not a text, a number or a boolean");
            return Err(SqlError::new(SqlState::SyntaxError, message)
                .with_hint("Put the value in single quotes.")
                .at(position));
        }
    };
    cursor.take();
    Ok(text)
}

/// Takes `FORMAT word [ENCODE word [(options)]]` if it stands next.
///
/// # Errors
/// A malformed clause.
pub(crate) fn format_clause(cursor: &mut Cursor<'_>) -> Result<Option<FormatClause>, SqlError> {
    let position = cursor.position();
    if !cursor.eat(&["format"]) {
        return Ok(None);
    }
    let format = word(cursor, "the name of a format")?;
    let mut clause = FormatClause {
        format,
        encode: None,
        encode_options: WithOptions::new(),
        position,
    };
    if cursor.eat(&["encode"]) {
        clause.encode = Some(word(cursor, "the name of an encoding")?);
        if *cursor.peek() == Token::LParen {
            clause.encode_options = options(cursor)?;
        }
    }
    Ok(Some(clause))
}

/// What `FORMAT … ENCODE …` says.
#[derive(Debug)]
pub(crate) struct FormatClause {
    /// Lowercase.
    pub(crate) format: String,
    /// Lowercase.
    pub(crate) encode: Option<String>,
    pub(crate) encode_options: WithOptions,
    /// Byte offset of FORMAT.
    pub(crate) position: usize,
}

impl FormatClause {
    /// The clause that Flink and LaminarDB write as an option: `format = 'json'` stands for FORMAT PLAIN ENCODE JSON.
    /// The option is taken out of `with`.
    pub(crate) fn from_option(with: &mut WithOptions) -> Option<Self> {
        let name = ["format", "value.format"]
            .into_iter()
            .find(|name| with.contains_key(*name))?;
        let value = with.remove(name)?;
        Some(Self {
            format: "plain".to_owned(),
            encode: Some(value.text.trim().to_lowercase()),
            encode_options: WithOptions::new(),
            position: value.position,
        })
    }

    /// Refuses a format or encoding that is not there, by its name.
    ///
    /// # Errors
    /// As said.
    pub(crate) fn check(&self, formats: &[&str], encodes: &[&str]) -> Result<(), SqlError> {
        let known = |list: &[&str]| {
            list.iter()
                .map(|word| word.to_uppercase())
                .collect::<Vec<_>>()
                .join(", ")
        };
        if !formats.contains(&self.format.as_str()) {
            return Err(
                SqlError::unsupported(format!("FORMAT {}", self.format.to_uppercase()))
                    .with_hint(format!("Formats here: {}.", known(formats)))
                    .at(self.position),
            );
        }
        match &self.encode {
            None => Err(
                SqlError::new(SqlState::SyntaxError, "FORMAT has no ENCODE clause")
                    .with_hint(format!("Write ENCODE and one of {}.", known(encodes)))
                    .at(self.position),
            ),
            Some(encode) if !encodes.contains(&encode.as_str()) => {
                Err(SqlError::unsupported(format!("ENCODE {}", encode.to_uppercase()))
                    .with_hint(format!("Encodings here: {}.", known(encodes)))
                    .at(self.position))
            }
            Some(_) => Ok(()),
        }
    }
}

fn word(cursor: &mut Cursor<'_>, what: &str) -> Result<String, SqlError> {
    match cursor.peek() {
        Token::Word(word) if word.quote_style.is_none() => {
            let word = word.value.to_lowercase();
            cursor.take();
            Ok(word)
        }
        _ => Err(cursor.unexpected(what)),
    }
}

/// Refuses the options that stand for what is not there yet.
///
/// # Errors
/// `connection` is given.
pub(crate) fn check_with(with: &WithOptions) -> Result<(), SqlError> {
    match with.get("connection") {
        Some(connection) => Err(SqlError::unsupported("option \"connection\"")
            .with_hint("Give the options of the connection in this statement.")
            .at(connection.position)),
        None => Ok(()),
    }
}
