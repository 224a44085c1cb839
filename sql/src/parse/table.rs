//! `CREATE TABLE`.

use datafusion::sql::sqlparser::tokenizer::Token;

use super::cursor::{Cursor, Name};
use super::source;
use super::with::{FormatClause, check_with, format_clause, with_clause};
use crate::error::{SqlError, SqlState};
use crate::statement::{
    CreateTable, Filled, OnConflict, SourceColumnKind, TableColumn, TableConnector, WithOptions,
};

/// Words before which a DEFAULT ends.
const COLUMN_OPTIONS: [&[&str]; 8] = [
    &["not", "null"],
    &["null"],
    &["primary", "key"],
    &["default"],
    &["unique"],
    &["check"],
    &["references"],
    &["generated"],
];

/// Takes what follows `CREATE TABLE`.
///
/// # Errors
/// A clause that is malformed, given twice or not there.
pub(crate) fn create_table(cursor: &mut Cursor<'_>) -> Result<CreateTable, SqlError> {
    let if_not_exists = cursor.eat(&["if", "not", "exists"]);
    let name = super::new_name(cursor, "a name for the table")?;
    if cursor.sees(&["as"]) {
        return Err(SqlError::unsupported("CREATE TABLE … AS")
            .with_hint("Create the table with its columns, then INSERT INTO it the rows of the query.")
            .at(cursor.position()));
    }
    let mut table = CreateTable {
        name: name.text,
        if_not_exists,
        columns: Vec::new(),
        primary_key: Vec::new(),
        append_only: false,
        on_conflict: None,
        version_column: None,
        connector: None,
    };
    let mut outside = Outside::default();
    cursor.expect_token(&Token::LParen)?;
    loop {
        list_element(cursor, &mut table)?;
        if !cursor.eat_token(&Token::Comma) {
            break;
        }
    }
    cursor.expect_token(&Token::RParen)?;
    while !cursor.at_end() {
        if !outside.clause(cursor, &mut table)? {
            clause(cursor, &mut table)?;
        }
    }
    table.connector = outside.finish()?;
    Ok(table)
}

fn list_element(cursor: &mut Cursor<'_>, table: &mut CreateTable) -> Result<(), SqlError> {
    let position = cursor.position();
    if cursor.eat(&["primary", "key"]) {
        let names = cursor.name_list("a column name")?;
        if names.is_empty() {
            return Err(cursor.unexpected("a list of columns"));
        }
        return primary_key(table, names, position);
    }
    let refused: [&[&str]; 7] = [
        &["constraint"],
        &["unique"],
        &["check"],
        &["foreign", "key"],
        &["exclude"],
        &["like"],
        &["watermark", "for"],
    ];
    if let Some(words) = refused.iter().find(|words| cursor.sees(words)) {
        return Err(in_a_table(words).at(position));
    }
    column(cursor, table)
}

fn in_a_table(words: &[&str]) -> SqlError {
    SqlError::unsupported(format!("{} in a table", words.join(" ").to_uppercase()))
}

/// `name TYPE [NOT NULL | NULL] [DEFAULT expression | AS expression] [PRIMARY KEY]`
fn column(cursor: &mut Cursor<'_>, table: &mut CreateTable) -> Result<(), SqlError> {
    let name = cursor.name("a column name")?;
    if table.columns.iter().any(|column| column.name == name.text) {
        let message = format!("column \"{}\" specified more than once", name.text);
        return Err(SqlError::new(SqlState::DuplicateColumn, message).at(name.position));
    }
    let data_type = cursor.data_type()?;
    let mut column = TableColumn {
        name: name.text.clone(),
        data_type,
        not_null: false,
        filled: Filled::Null,
        position: name.position,
    };
    while !matches!(cursor.peek(), Token::Comma | Token::RParen) {
        let position = cursor.position();
        if cursor.eat(&["primary", "key"]) {
            let of = Name {
                text: name.text.clone(),
                position: name.position,
            };
            primary_key(table, vec![of], position)?;
        } else {
            column_option(cursor, &mut column)?;
        }
    }
    table.columns.push(column);
    Ok(())
}

fn primary_key(table: &mut CreateTable, names: Vec<Name>, position: usize) -> Result<(), SqlError> {
    if !table.primary_key.is_empty() {
        let message = format!(
            "multiple primary keys for table \"{}\" are not allowed",
            table.name
        );
        return Err(SqlError::new(SqlState::InvalidTableDefinition, message).at(position));
    }
    table.primary_key = names
        .into_iter()
        .map(|Name { text, position }| (text, position))
        .collect();
    Ok(())
}

fn column_option(cursor: &mut Cursor<'_>, column: &mut TableColumn) -> Result<(), SqlError> {
    let position = cursor.position();
    let is_null = matches!(column.filled, Filled::Null);
    if cursor.eat(&["not", "null"]) {
        column.not_null = true;
    } else if cursor.eat(&["null"]) {
        column.not_null = false;
    } else if is_null && cursor.eat(&["default"]) {
        let expression = cursor.expression_before(&COLUMN_OPTIONS)?;
        column.filled = Filled::Default(Box::new(expression));
    } else if is_null && cursor.eat(&["as"]) {
        let expression = cursor.expression_before(&COLUMN_OPTIONS)?;
        column.filled = Filled::Generated(Box::new(expression));
    } else if is_null && cursor.eat(&["generated", "always", "as"]) {
        cursor.expect_token(&Token::LParen)?;
        column.filled = Filled::Generated(Box::new(cursor.expression()?));
        cursor.expect_token(&Token::RParen)?;
        cursor.eat(&["stored"]);
    } else {
        let refused: [&[&str]; 6] = [
            &["unique"],
            &["check"],
            &["references"],
            &["collate"],
            &["constraint"],
            &["generated"],
        ];
        return Err(match refused.iter().find(|words| cursor.sees(words)) {
            Some(words) => in_a_table(words).at(position),
            None => cursor.unexpected("NOT NULL, DEFAULT, AS, PRIMARY KEY, a comma or a closing parenthesis"),
        });
    }
    Ok(())
}

/// One of the clauses after the column list, in any order.
fn clause(cursor: &mut Cursor<'_>, table: &mut CreateTable) -> Result<(), SqlError> {
    let position = cursor.position();
    let twice =
        |what: &str| Err(SqlError::new(SqlState::SyntaxError, format!("{what} is given twice")).at(position));
    if cursor.eat(&["append", "only"]) {
        if std::mem::replace(&mut table.append_only, true) {
            return twice("APPEND ONLY");
        }
    } else if cursor.eat(&["on", "conflict"]) {
        let on_conflict = on_conflict(cursor)?;
        if table.on_conflict.replace((on_conflict, position)).is_some() {
            return twice("ON CONFLICT");
        }
    } else if cursor.eat(&["with", "version", "column"]) {
        cursor.expect_token(&Token::LParen)?;
        let column = cursor.name("a column name")?;
        cursor.expect_token(&Token::RParen)?;
        if table
            .version_column
            .replace((column.text, column.position))
            .is_some()
        {
            return twice("WITH VERSION COLUMN");
        }
    } else {
        return Err(if cursor.sees(&["as"]) {
            SqlError::unsupported("CREATE TABLE … AS").at(position)
        } else {
            cursor.unexpected("APPEND ONLY, ON CONFLICT, WITH, INCLUDE, FORMAT or the end of the statement")
        });
    }
    Ok(())
}

/// The clauses of a table whose rows come from outside.
#[derive(Default)]
struct Outside {
    with: Option<WithOptions>,
    format: Option<FormatClause>,
    /// Byte offset of the first of them.
    position: Option<usize>,
}

impl Outside {
    /// Takes one of the clauses if it stands next.
    fn clause(&mut self, cursor: &mut Cursor<'_>, table: &mut CreateTable) -> Result<bool, SqlError> {
        let position = cursor.position();
        let twice =
            |what: &str| SqlError::new(SqlState::SyntaxError, format!("{what} is given twice")).at(position);
        if cursor.sees(&["include"])
            || (*cursor.peek() == Token::Comma && source::is_include(cursor.peek_nth(1)))
        {
            cursor.eat_token(&Token::Comma);
            cursor.expect(&["include"])?;
            table.columns.push(included(cursor, table)?);
        } else if let Some(with) = with_clause(cursor)? {
            if self.with.replace(with).is_some() {
                return Err(twice("the WITH clause"));
            }
        } else if let Some(format) = format_clause(cursor)? {
            if self.format.replace(format).is_some() {
                return Err(twice("the FORMAT clause"));
            }
        } else {
            return Ok(false);
        }
        self.position.get_or_insert(position);
        Ok(true)
    }

    /// The connector, if one of the clauses is there.
    fn finish(self) -> Result<Option<TableConnector>, SqlError> {
        let Some(position) = self.position else {
            return Ok(None);
        };
        let mut with = self.with.unwrap_or_default();
        check_with(&with)?;
        let clause = match self.format {
            Some(clause) => Some(clause),
            None => source::flink_format(&mut with),
        };
        if let Some(clause) = &clause {
            clause.check(&["plain", "upsert", "debezium"], &["json", "bytes"])?;
            if clause.format != "plain" {
                clause.check(&["upsert", "debezium"], &["json"])?;
            }
        }
        let (format, encode, encode_options) = match clause {
            Some(clause) => (clause.format, clause.encode, clause.encode_options),
            None => ("plain".to_owned(), None, WithOptions::new()),
        };
        Ok(Some(TableConnector {
            with,
            format,
            encode,
            encode_options,
            position,
        }))
    }
}

/// A column of metadata.
fn included(cursor: &mut Cursor<'_>, table: &CreateTable) -> Result<TableColumn, SqlError> {
    let column = source::include(cursor)?;
    if table.columns.iter().any(|other| other.name == column.name) {
        let message = format!("column \"{}\" specified more than once", column.name);
        return Err(SqlError::new(SqlState::DuplicateColumn, message).at(column.position));
    }
    let SourceColumnKind::Include(include) = column.kind else {
        return Err(cursor.unexpected("the metadata of a record"));
    };
    let data_type = match column.data_type {
        Some(data_type) => data_type,
        None => super::parse_data_type(include.written_type())?,
    };
    Ok(TableColumn {
        name: column.name,
        data_type,
        not_null: false,
        filled: Filled::Included(include),
        position: column.position,
    })
}

fn on_conflict(cursor: &mut Cursor<'_>) -> Result<OnConflict, SqlError> {
    if cursor.eat(&["do", "nothing"]) {
        return Ok(OnConflict::Nothing);
    }
    if cursor.eat(&["do", "update", "if", "not", "null"]) {
        return Ok(OnConflict::UpdateIfNotNull);
    }
    if cursor.eat(&["do", "update"]) {
        return Ok(OnConflict::Update);
    }
    Err(cursor.unexpected("DO UPDATE, DO NOTHING or DO UPDATE IF NOT NULL"))
}
