//! `CREATE SOURCE`, with the spellings of Flink SQL and LaminarDB that mean the same.

use std::collections::BTreeSet;

use datafusion::sql::sqlparser::ast;
use datafusion::sql::sqlparser::tokenizer::Token;

use super::cursor::{Cursor, Name};
use super::with::{FormatClause, check_with, format_clause, options, with_clause};
use crate::error::{SqlError, SqlState};
use crate::statement::{CreateSource, Include, SourceColumn, SourceColumnKind, WatermarkClause, WithOptions};

/// Takes what follows `CREATE SOURCE`.
///
/// # Errors
/// A clause that is malformed, given twice or not there.
pub(crate) fn create_source(cursor: &mut Cursor<'_>) -> Result<CreateSource, SqlError> {
    let if_not_exists = cursor.eat(&["if", "not", "exists"]);
    let name = super::new_name(cursor, "a name for the source")?;
    let mut parts = Parts::default();
    if *cursor.peek() == Token::LParen {
        parts.column_list(cursor)?;
    }
    while !cursor.at_end() {
        parts.clause(cursor)?;
    }
    check_duplicates(&parts.columns)?;
    let mut with = parts.with.unwrap_or_default();
    check_with(&with)?;
    let clause = match parts.format {
        Some(clause) => Some(clause),
        None => flink_format(&mut with),
    };
    if let Some(clause) = &clause {
        clause.check(&["plain"], &["json", "bytes"]).map_err(|error| {
            match ["upsert", "debezium"].contains(&clause.format.as_str()) {
                true => error.with_hint("Rows of a source are never replaced. Use CREATE TABLE … WITH (…) FORMAT … for a table of them."),
                false => error,
            }
        })?;
    }
    let (encode, encode_options) = clause.map(|c| (c.encode, c.encode_options)).unwrap_or_default();
    Ok(CreateSource {
        name: name.text,
        if_not_exists,
        columns: parts.columns,
        watermark: parts.watermark,
        with,
        format: "plain".to_owned(),
        encode,
        encode_options,
    })
}

#[derive(Default)]
struct Parts {
    columns: Vec<SourceColumn>,
    watermark: Option<WatermarkClause>,
    with: Option<WithOptions>,
    format: Option<FormatClause>,
}

impl Parts {
    /// `(column, …, WATERMARK FOR …)`; `*` stands for the columns that the probe finds.
    fn column_list(&mut self, cursor: &mut Cursor<'_>) -> Result<(), SqlError> {
        cursor.expect_token(&Token::LParen)?;
        let star = (*cursor.peek() == Token::Mul).then(|| cursor.position());
        if star.is_some() {
            cursor.take();
            if !cursor.eat_token(&Token::Comma) {
                return cursor.expect_token(&Token::RParen);
            }
        }
        loop {
            self.list_element(cursor)?;
            if !cursor.eat_token(&Token::Comma) {
                break;
            }
        }
        cursor.expect_token(&Token::RParen)?;
        let field = self
            .columns
            .iter()
            .find(|column| matches!(column.kind, SourceColumnKind::Field));
        match (star, field) {
            (Some(_), Some(field)) => Err(SqlError::unsupported(
                "a column beside * in a source's column list",
            )
            .with_detail("With *, the columns are those that are found in the data.")
            .at(field.position)),
            _ => Ok(()),
        }
    }

    fn list_element(&mut self, cursor: &mut Cursor<'_>) -> Result<(), SqlError> {
        let position = cursor.position();
        if cursor.sees(&["watermark", "for"]) {
            return self.watermark(cursor);
        }
        refuse_constraint(cursor, position)?;
        let column = column(cursor)?;
        self.columns.push(column);
        Ok(())
    }

    fn watermark(&mut self, cursor: &mut Cursor<'_>) -> Result<(), SqlError> {
        let position = cursor.position();
        cursor.expect(&["watermark", "for"])?;
        if self.watermark.is_some() {
            return Err(
                SqlError::new(SqlState::SyntaxError, "a source has one WATERMARK clause").at(position),
            );
        }
        let column = cursor.name("the event time column")?;
        cursor.expect(&["as"])?;
        let expression = cursor.column_expression()?;
        self.watermark = Some(WatermarkClause {
            column: column.text,
            position: column.position,
            expression: Box::new(expression),
        });
        Ok(())
    }

    /// One of the clauses after the column list, in any order.
    fn clause(&mut self, cursor: &mut Cursor<'_>) -> Result<(), SqlError> {
        let position = cursor.position();
        let twice =
            |what: &str| SqlError::new(SqlState::SyntaxError, format!("{what} is given twice")).at(position);
        if cursor.sees(&["include"]) || (*cursor.peek() == Token::Comma && is_include(cursor.peek_nth(1))) {
            cursor.eat_token(&Token::Comma);
            cursor.expect(&["include"])?;
            self.columns.push(include(cursor)?);
        } else if let Some(with) = with_clause(cursor)? {
            match self.with.replace(with) {
                None => {}
                Some(_) => return Err(twice("the WITH clause")),
            }
        } else if let Some(format) = format_clause(cursor)? {
            match self.format.replace(format) {
                None => {}
                Some(_) => return Err(twice("the FORMAT clause")),
            }
        } else if cursor.eat(&["from", "kafka"]) {
            match self.with.replace(laminar_options(options(cursor)?, position)?) {
                None => {}
                Some(_) => return Err(twice("the WITH clause")),
            }
        } else {
            return Err(cursor.unexpected("INCLUDE, WITH, FORMAT or the end of the statement"));
        }
        Ok(())
    }
}

pub(super) fn is_include(token: &Token) -> bool {
    super::script::is_word(token, &["include"])
}

/// Refuses table constraints in a source's column list.
fn refuse_constraint(cursor: &Cursor<'_>, position: usize) -> Result<(), SqlError> {
    if cursor.sees(&["primary", "key"]) {
        return Err(no_primary_key().at(position));
    }
    let refused = ["constraint", "unique", "check", "foreign", "exclude", "like"];
    match refused.iter().find(|word| cursor.sees(&[word])) {
        Some(word) => Err(SqlError::unsupported(format!("{} in a source", word.to_uppercase())).at(position)),
        None => Ok(()),
    }
}

fn no_primary_key() -> SqlError {
    SqlError::unsupported("PRIMARY KEY in a source")
        .with_detail(
            "A source is a stream that is not stored: every record is a row, and none replaces another.",
        )
        .with_hint("Take the newest row of each key in a materialized view.")
}

/// `name TYPE [NOT NULL]`, `name TYPE AS expression`, `name TYPE METADATA [FROM 'key'] [VIRTUAL]`.
fn column(cursor: &mut Cursor<'_>) -> Result<SourceColumn, SqlError> {
    let name = cursor.name("a column name")?;
    if cursor.eat(&["as"]) {
        return untyped_column(cursor, name);
    }
    let data_type = cursor.data_type()?;
    let mut column = SourceColumn {
        name: name.text,
        data_type: Some(data_type),
        not_null: false,
        kind: SourceColumnKind::Field,
        position: name.position,
    };
    while !matches!(cursor.peek(), Token::Comma | Token::RParen) {
        column_option(cursor, &mut column)?;
    }
    Ok(column)
}

/// ≈ Flink's `name AS expression`, whose type is known where the expression is a cast.
fn untyped_column(cursor: &mut Cursor<'_>, name: Name) -> Result<SourceColumn, SqlError> {
    let expression = cursor.column_expression()?;
    let data_type = match &expression {
        ast::Expr::Cast { data_type, .. } => Some(data_type.clone()),
        _ => {
            let message = format!("generated column \"{}\" has no type", name.text);
            return Err(SqlError::new(SqlState::SyntaxError, message)
                .with_hint(format!(
                    "Write the type between the name and AS: {} BIGINT AS ….",
                    name.text
                ))
                .at(name.position));
        }
    };
    let kind = SourceColumnKind::Generated(Box::new(expression));
    Ok(SourceColumn {
        name: name.text,
        data_type,
        not_null: false,
        kind,
        position: name.position,
    })
}

fn column_option(cursor: &mut Cursor<'_>, column: &mut SourceColumn) -> Result<(), SqlError> {
    let position = cursor.position();
    let field = matches!(column.kind, SourceColumnKind::Field);
    if cursor.eat(&["not", "null"]) {
        column.not_null = true;
    } else if cursor.eat(&["null"]) {
        column.not_null = false;
    } else if field && cursor.eat(&["as"]) {
        column.kind = SourceColumnKind::Generated(Box::new(cursor.column_expression()?));
    } else if field && cursor.eat(&["generated", "always", "as"]) {
        cursor.expect_token(&Token::LParen)?;
        column.kind = SourceColumnKind::Generated(Box::new(cursor.expression()?));
        cursor.expect_token(&Token::RParen)?;
        if !cursor.eat(&["stored"]) {
            cursor.eat(&["virtual"]);
        }
    } else if field && cursor.eat(&["metadata"]) {
        let position = cursor.position();
        let key = if cursor.eat(&["from"]) {
            cursor.string("the name of the metadata")?
        } else {
            column.name.clone()
        };
        column.kind = SourceColumnKind::Include(metadata(&key, position)?);
        cursor.eat(&["virtual"]);
    } else if cursor.sees(&["primary", "key"]) {
        return Err(no_primary_key().at(position));
    } else {
        let refused = [
            "default",
            "unique",
            "check",
            "references",
            "collate",
            "comment",
            "constraint",
        ];
        return Err(match refused.iter().find(|word| cursor.sees(&[word])) {
            Some(word) => SqlError::unsupported(format!("{} in a source", word.to_uppercase())).at(position),
            None => cursor.unexpected("NOT NULL, AS, a comma or a closing parenthesis"),
        });
    }
    Ok(())
}

fn metadata(key: &str, position: usize) -> Result<Include, SqlError> {
    include_kind(&key.to_lowercase()).ok_or_else(|| {
        SqlError::unsupported(format!("metadata \"{key}\""))
            .with_hint("Metadata here: key, partition, offset, timestamp, headers.")
            .at(position)
    })
}

fn include_kind(word: &str) -> Option<Include> {
    match word {
        "key" => Some(Include::Key),
        "partition" => Some(Include::Partition),
        "offset" => Some(Include::Offset),
        "timestamp" => Some(Include::Timestamp),
        "headers" => Some(Include::Headers),
        _ => None,
    }
}

/// What follows `INCLUDE`: `key|partition|offset|timestamp|headers|header 'name' [TYPE] [AS name]`. Without AS the
/// column is called `_key`, `_partition`, … and `_header_name`.
pub(super) fn include(cursor: &mut Cursor<'_>) -> Result<SourceColumn, SqlError> {
    let position = cursor.position();
    let word = match cursor.peek() {
        Token::Word(word) => word.value.to_lowercase(),
        _ => return Err(cursor.unexpected("key, partition, offset, timestamp, headers or header")),
    };
    let what = if word == "header" {
        cursor.take();
        Include::Header(cursor.string("the name of a header in single quotes")?)
    } else {
        let what = include_kind(&word).ok_or_else(|| {
            SqlError::unsupported(format!("INCLUDE {word}"))
                .with_hint("INCLUDE takes key, partition, offset, timestamp, headers and header 'name'.")
                .at(position)
        })?;
        cursor.take();
        what
    };
    let typed = !cursor.at_end()
        && *cursor.peek() != Token::Comma
        && !["as", "include", "with", "format", "from"]
            .iter()
            .any(|word| cursor.sees(&[word]));
    let data_type = if typed { Some(cursor.data_type()?) } else { None };
    let name = if cursor.eat(&["as"]) {
        cursor.name("a column name")?
    } else {
        let text = match &what {
            Include::Header(header) => format!("_header_{}", header.to_lowercase()),
            _ => format!("_{word}"),
        };
        Name { text, position }
    };
    let kind = SourceColumnKind::Include(what);
    Ok(SourceColumn {
        name: name.text,
        data_type,
        not_null: false,
        kind,
        position: name.position,
    })
}

fn check_duplicates(columns: &[SourceColumn]) -> Result<(), SqlError> {
    let mut names = BTreeSet::new();
    match columns.iter().find(|column| !names.insert(column.name.as_str())) {
        Some(twice) => {
            let message = format!("column \"{}\" is given twice", twice.name);
            Err(SqlError::new(SqlState::DuplicateColumn, message).at(twice.position))
        }
        None => Ok(()),
    }
}

/// ≈ Flink: the format as an option, and its words for the start mode.
pub(super) fn flink_format(with: &mut WithOptions) -> Option<FormatClause> {
    let clause = FormatClause::from_option(with)?;
    if let Some(mode) = with.get_mut("scan.startup.mode") {
        match mode.text.as_str() {
            "earliest-offset" => mode.text = "earliest".to_owned(),
            "latest-offset" => mode.text = "latest".to_owned(),
            _ => {}
        }
    }
    Some(clause)
}

/// ≈ LaminarDB's `FROM KAFKA (brokers = …, topic = …)`.
fn laminar_options(mut given: WithOptions, position: usize) -> Result<WithOptions, SqlError> {
    if let Some(brokers) = given
        .remove("brokers")
        .or_else(|| given.remove("bootstrap.servers"))
    {
        given.insert("properties.bootstrap.server".to_owned(), brokers);
    }
    if let Some(connector) = given.get("connector") {
        let message = "FROM KAFKA names the connector already";
        return Err(SqlError::new(SqlState::SyntaxError, message).at(connector.position));
    }
    let connector = crate::statement::OptionValue {
        text: "kafka".to_owned(),
        position,
        value_position: position,
    };
    given.insert("connector".to_owned(), connector);
    Ok(given)
}
