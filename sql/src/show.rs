//! Statements as text: what the catalog stores, and what SHOW CREATE shows.

use std::fmt::Write as _;
use std::ops::Range;

use arrow::datatypes::DataType;
use datafusion::sql::sqlparser::ast;
use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan};

use crate::jsonb::is_jsonb;
use crate::options::is_reference;
use crate::parse::{is_reserved, offset_of, tokenize};
use crate::plan::types::{DECIMAL_DIGITS, DECIMAL_SCALE, arrow_type, sql_type_name};
use crate::statement::{
    CreateSource, Include, Parsed, SourceColumn, SourceColumnKind, Statement, WithOptions,
};

/// What is shown instead of a secret.
const MASK: &str = "'********'";

/// The text that makes the object of a CREATE statement again, as the catalog stores it. A source is written anew (its
/// columns must stand in it: see [`crate::resolve::resolve_source`]); views and sinks stay as the user wrote them.
#[must_use]
pub fn definition(parsed: &Parsed) -> String {
    match &parsed.statement {
        Statement::CreateSource(source) => definition_of_source(source),
        _ => parsed.text.clone(),
    }
}

/// `CREATE SOURCE` as text that reads back to the same statement (less IF NOT EXISTS). References to the environment
/// stay as they are.
#[must_use]
pub fn definition_of_source(source: &CreateSource) -> String {
    let mut text = format!("CREATE SOURCE {}", name(&source.name));
    // INCLUDE columns before others, and those that are NOT NULL, came as METADATA columns; the rest are clauses.
    let is_clause =
        |column: &SourceColumn| matches!(column.kind, SourceColumnKind::Include(_)) && !column.not_null;
    let listed = source.columns.iter().rposition(|column| !is_clause(column));
    let (list, includes) = source.columns.split_at(listed.map_or(0, |last| last + 1));
    let mut lines: Vec<String> = list.iter().map(column).collect();
    if let Some(watermark) = &source.watermark {
        lines.push(format!(
            "WATERMARK FOR {} AS {}",
            name(&watermark.column),
            watermark.expression
        ));
    }
    if !lines.is_empty() {
        let _ = write!(text, " (\n  {}\n)", lines.join(",\n  "));
    }
    for column in includes {
        if let SourceColumnKind::Include(what) = &column.kind {
            let _ = write!(text, "\nINCLUDE {}", include(what));
            if let Some(data_type) = &column.data_type {
                let _ = write!(text, " {}", type_of(data_type));
            }
            let _ = write!(text, " AS {}", name(&column.name));
        }
    }
    if !source.with.is_empty() {
        let _ = write!(text, "\nWITH (\n  {}\n)", options(&source.with, ",\n  "));
    }
    if let Some(encode) = &source.encode {
        let _ = write!(
            text,
            "\nFORMAT {} ENCODE {}",
            source.format.to_uppercase(),
            encode.to_uppercase()
        );
        if !source.encode_options.is_empty() {
            let _ = write!(text, " ({})", options(&source.encode_options, ", "));
        }
    }
    text
}

fn column(column: &SourceColumn) -> String {
    let mut text = name(&column.name);
    if let Some(data_type) = &column.data_type {
        let _ = write!(text, " {}", type_of(data_type));
    }
    match &column.kind {
        SourceColumnKind::Field => {}
        SourceColumnKind::Generated(expression) => {
            let _ = write!(text, " GENERATED ALWAYS AS ({expression})");
        }
        SourceColumnKind::Include(what) => {
            let _ = write!(text, " METADATA FROM '{}'", include(what));
        }
    }
    if column.not_null {
        text.push_str(" NOT NULL");
    }
    text
}

/// The type as the dialect documents it, whichever of its names was written.
fn type_of(data_type: &ast::DataType) -> String {
    match arrow_type(data_type) {
        Ok(meant) => type_name(&meant),
        Err(_) => data_type.to_string(),
    }
}

fn type_name(data_type: &DataType) -> String {
    match data_type {
        DataType::Int32 => "INT".to_owned(),
        DataType::Utf8 => "VARCHAR".to_owned(),
        DataType::Time64(_) => "TIME".to_owned(),
        DataType::Timestamp(_, None) => "TIMESTAMP".to_owned(),
        DataType::Timestamp(_, Some(_)) => "TIMESTAMPTZ".to_owned(),
        DataType::Decimal128(DECIMAL_DIGITS, DECIMAL_SCALE) => "NUMERIC".to_owned(),
        DataType::Decimal128(precision, scale) => format!("NUMERIC({precision},{scale})"),
        DataType::List(item) => format!("{}[]", type_name(item.data_type())),
        DataType::Struct(fields) if !is_jsonb(data_type) => {
            let fields = fields
                .iter()
                .map(|field| format!("{} {}", name(field.name()), type_name(field.data_type())));
            format!("STRUCT<{}>", fields.collect::<Vec<_>>().join(", "))
        }
        other => sql_type_name(other).to_uppercase(),
    }
}

/// What INCLUDE takes, as it is written.
#[must_use]
pub fn include(what: &Include) -> String {
    match what {
        Include::Key => "key".to_owned(),
        Include::Partition => "partition".to_owned(),
        Include::Offset => "offset".to_owned(),
        Include::Timestamp => "timestamp".to_owned(),
        Include::Headers => "headers".to_owned(),
        Include::Header(header) => format!("header {}", quoted(header)),
    }
}

fn options(options: &WithOptions, separator: &str) -> String {
    let one = |(name, value): (&String, &crate::statement::OptionValue)| {
        let plain = name.split('.').all(is_plain);
        let name = if plain { name.clone() } else { quoted(name) };
        format!("{name} = {}", quoted(&value.text))
    };
    options.iter().map(one).collect::<Vec<_>>().join(separator)
}

/// A name as SQL: in double quotes if it needs them.
#[must_use]
pub fn name(name: &str) -> String {
    if is_plain(name) && !is_reserved(name) {
        name.to_owned()
    } else {
        format!("\"{}\"", name.replace('"', "\"\""))
    }
}

fn is_plain(word: &str) -> bool {
    word.starts_with(|first: char| first.is_ascii_lowercase() || first == '_')
        && word
            .chars()
            .all(|char| char.is_ascii_lowercase() || char.is_ascii_digit() || char == '_')
}

fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

/// `definition` with the values of secret options replaced (INV-10); `is_secret` is asked for lowercase option names. A
/// value that only names an environment variable stays. A text that cannot be read is not shown at all.
#[must_use]
pub fn masked(definition: &str, is_secret: &dyn Fn(&str) -> bool) -> String {
    let (tokens, fault) = tokenize(definition);
    if fault.is_some() {
        return MASK.to_owned();
    }
    let tokens: Vec<TokenWithSpan> = tokens
        .into_iter()
        .filter(|token| !matches!(token.token, Token::Whitespace(_)))
        .collect();
    let mut shown = String::with_capacity(definition.len());
    let mut copied = 0;
    for secret in secret_values(&tokens, is_secret) {
        shown.push_str(&definition[copied..secret.start]);
        shown.push_str(MASK);
        copied = secret.end;
    }
    shown.push_str(&definition[copied..]);
    shown
}

/// Bytes of the values of secret options, in order.
fn secret_values(tokens: &[TokenWithSpan], is_secret: &dyn Fn(&str) -> bool) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    let mut index = 0;
    while index < tokens.len() {
        if tokens[index].token != Token::LParen || !opens_options(&tokens[..index]) {
            index += 1;
            continue;
        }
        index += 1;
        while index < tokens.len() && tokens[index].token != Token::RParen {
            let name = index..until(tokens, index, |token| {
                matches!(token, Token::Eq | Token::Comma | Token::RParen)
            });
            let value = name.end..until(tokens, name.end, |token| {
                matches!(token, Token::Comma | Token::RParen)
            });
            if value.len() > 1 && is_secret(&option_name(&tokens[name])) {
                found.extend(hidden(&tokens[value.start + 1..value.end]));
            }
            index = value.end
                + usize::from(
                    tokens
                        .get(value.end)
                        .is_some_and(|token| token.token == Token::Comma),
                );
        }
    }
    found
}

fn until(tokens: &[TokenWithSpan], from: usize, ends: impl Fn(&Token) -> bool) -> usize {
    tokens[from..]
        .iter()
        .position(|token| ends(&token.token))
        .map_or(tokens.len(), |length| from + length)
}

/// Whether a parenthesis after these tokens opens a list of options.
fn opens_options(before: &[TokenWithSpan]) -> bool {
    let word = |back: usize, expected: &[&str]| {
        before
            .len()
            .checked_sub(back)
            .and_then(|index| before.get(index))
            .is_some_and(|token| {
                matches!(&token.token, Token::Word(word)
                if expected.iter().any(|expected| word.value.eq_ignore_ascii_case(expected)))
            })
    };
    word(1, &["with"]) || word(2, &["encode", "from"])
}

fn option_name(tokens: &[TokenWithSpan]) -> String {
    let part = |token: &TokenWithSpan| match &token.token {
        Token::Word(word) => word.value.to_lowercase(),
        Token::SingleQuotedString(text) => text.to_lowercase(),
        other => other.to_string(),
    };
    tokens.iter().map(part).collect()
}

fn hidden(value: &[TokenWithSpan]) -> Option<Range<usize>> {
    match value {
        [
            TokenWithSpan {
                token: Token::SingleQuotedString(text),
                ..
            },
        ] if is_reference(text) => None,
        _ => Some(offset_of(value.first()?.span.start)?..offset_of(value.last()?.span.end)?),
    }
}
