//! `CREATE INDEX`.

use datafusion::sql::sqlparser::tokenizer::Token;

use super::cursor::Cursor;
use super::new_name;
use crate::error::SqlError;
use crate::statement::{CreateIndex, IndexColumn};

/// Takes what stands behind `CREATE INDEX`:
/// `[[IF NOT EXISTS] name] ON relation [USING btree] (column [ASC | DESC] [NULLS FIRST | LAST], …)`.
///
/// # Errors
/// A malformed statement; what PostgreSQL's indexes have and ours do not, by its name.
pub(crate) fn create_index(cursor: &mut Cursor<'_>) -> Result<CreateIndex, SqlError> {
    if cursor.sees(&["concurrently"]) {
        let error = SqlError::unsupported("CREATE INDEX CONCURRENTLY").at(cursor.position());
        return Err(
            error.with_hint("Leave CONCURRENTLY out: an index never holds back what changes its relation.")
        );
    }
    let if_not_exists = cursor.eat(&["if", "not", "exists"]);
    let name = match cursor.sees(&["on"]) && !if_not_exists {
        true => None,
        false => Some(new_name(cursor, "the name of an index")?.text),
    };
    cursor.expect(&["on"])?;
    cursor.eat(&["only"]);
    let relation = cursor.object_name("the name of a table or materialized view")?;
    if cursor.eat(&["using"]) {
        let method = cursor.name("btree")?;
        if !method.text.eq_ignore_ascii_case("btree") {
            return Err(
                SqlError::unsupported(format!("CREATE INDEX … USING {}", method.text))
                    .with_hint("All indexes are sorted: btree.")
                    .at(method.position),
            );
        }
    }
    cursor.expect_token(&Token::LParen)?;
    let mut columns = Vec::new();
    loop {
        columns.push(index_column(cursor)?);
        if !cursor.eat_token(&Token::Comma) {
            break;
        }
    }
    cursor.expect_token(&Token::RParen)?;
    for (word, hint) in [
        ("include", "An index has all columns of its relation."),
        ("where", ""),
        ("with", ""),
        ("distributed", ""),
        ("tablespace", ""),
        ("nulls", ""),
    ] {
        if cursor.sees(&[word]) {
            let error = SqlError::unsupported(format!("CREATE INDEX … {}", word.to_uppercase()));
            let error = error.at(cursor.position());
            return Err(if hint.is_empty() {
                error
            } else {
                error.with_hint(hint)
            });
        }
    }
    cursor.expect_end()?;
    let name = name.unwrap_or_else(|| {
        let columns = columns.iter().map(|column: &IndexColumn| column.name.as_str());
        format!("{}_{}_idx", relation.text, columns.collect::<Vec<_>>().join("_"))
    });
    Ok(CreateIndex {
        name,
        if_not_exists,
        relation: relation.text,
        position: relation.position,
        columns,
    })
}

fn index_column(cursor: &mut Cursor<'_>) -> Result<IndexColumn, SqlError> {
    let ends = |token: &Token| {
        matches!(
            token,
            Token::Comma | Token::RParen | Token::Word(_) | Token::SemiColon | Token::EOF
        )
    };
    if !ends(cursor.peek()) || (matches!(cursor.peek(), Token::Word(_)) && !ends(cursor.peek_nth(1))) {
        let error = SqlError::unsupported("an index on an expression").at(cursor.position());
        return Err(error.with_hint("Make a materialized view that has the expression as a column."));
    }
    let name = cursor.name("the name of a column")?;
    let descending = cursor.eat(&["desc"]);
    if !descending {
        cursor.eat(&["asc"]);
    }
    let nulls_first = match cursor.eat(&["nulls"]) {
        false => descending,
        true if cursor.eat(&["first"]) => true,
        true => {
            cursor.expect(&["last"])?;
            false
        }
    };
    Ok(IndexColumn {
        name: name.text,
        position: name.position,
        descending,
        nulls_first,
    })
}
