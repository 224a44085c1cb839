//! Statements that are not CREATE: DROP, ALTER … RESUME, SHOW, DESCRIBE, EXPLAIN, SUBSCRIBE, SET, CHECKPOINT.

use datafusion::sql::sqlparser::tokenizer::Token;

use super::create::{create, query_tail, refused_kind, whole_relation};
use super::cursor::Cursor;
use super::function::signature;
use super::transaction::modes;
use super::user::{drop_user, user_password};
use super::with::with_clause;
use crate::error::{SqlError, SqlState};
use crate::statement::{Asks, Drop, ObjectKind, Show, Statement, Subscribe, Transaction, UserChange};
use crate::suggest::closest;

/// Takes `DROP kind [IF EXISTS] name, … [CASCADE | RESTRICT]`.
///
/// # Errors
/// A malformed statement, or a kind that is not there.
pub(crate) fn drop(cursor: &mut Cursor<'_>) -> Result<Statement, SqlError> {
    let position = cursor.position();
    cursor.expect(&["drop"])?;
    if cursor.eat(&["user"]) {
        return drop_user(cursor);
    }
    let Some(kind) = object_kind(cursor) else {
        return Err(refused_kind(cursor, "DROP", position));
    };
    let if_exists = cursor.eat(&["if", "exists"]);
    let (mut names, mut signatures) = (Vec::new(), Vec::new());
    loop {
        let name = cursor.object_name("the name of an object")?;
        names.push((name.text, name.position));
        signatures.push(match kind {
            ObjectKind::Function => signature(cursor)?,
            _ => None,
        });
        if !cursor.eat_token(&Token::Comma) {
            break;
        }
    }
    let cascade = cursor.eat(&["cascade"]);
    if !cascade {
        cursor.eat(&["restrict"]);
    }
    cursor.expect_end()?;
    Ok(Statement::Drop(Drop {
        kind,
        names,
        signatures,
        if_exists,
        cascade,
    }))
}

fn object_kind(cursor: &mut Cursor<'_>) -> Option<ObjectKind> {
    let kinds: [(&[&str], ObjectKind); 7] = [
        (&["source"], ObjectKind::Source),
        (&["table"], ObjectKind::Table),
        (&["materialized", "view"], ObjectKind::MaterializedView),
        (&["view"], ObjectKind::View),
        (&["sink"], ObjectKind::Sink),
        (&["function"], ObjectKind::Function),
        (&["index"], ObjectKind::Index),
    ];
    kinds
        .into_iter()
        .find(|(words, _)| cursor.eat(words))
        .map(|(_, kind)| kind)
}

/// Takes `ALTER TABLE | MATERIALIZED VIEW | INDEX | SINK name RESUME`.
///
/// # Errors
/// Any other ALTER.
pub(crate) fn alter(cursor: &mut Cursor<'_>) -> Result<Statement, SqlError> {
    let position = cursor.position();
    cursor.expect(&["alter"])?;
    if cursor.eat(&["user"]) {
        return Ok(Statement::User(UserChange::Alter(user_password(cursor)?)));
    }
    let Some(kind) = object_kind(cursor) else {
        return Err(refused_kind(cursor, "ALTER", position));
    };
    let name = cursor.object_name("the name of an object")?;
    let action = match cursor.peek() {
        Token::Word(word) => word.value.to_uppercase(),
        _ => return Err(cursor.unexpected("RESUME")),
    };
    let resumable = matches!(
        kind,
        ObjectKind::Table | ObjectKind::MaterializedView | ObjectKind::Sink | ObjectKind::Index
    );
    if action != "RESUME" || !resumable {
        let noun = kind.noun().to_uppercase();
        return Err(SqlError::unsupported(format!("ALTER {noun} … {action}"))
            .with_hint("ALTER TABLE, ALTER MATERIALIZED VIEW, ALTER INDEX and ALTER SINK take RESUME.")
            .at(cursor.position()));
    }
    cursor.take();
    cursor.expect_end()?;
    Ok(Statement::Resume {
        kind,
        name: name.text,
    })
}

/// Lists that are system tables, by the word after SHOW.
const SYSTEM_LISTS: [(&str, &str); 6] = [
    ("queries", "queries"),
    ("jobs", "queries"),
    ("operators", "operators"),
    ("checkpoints", "checkpoints"),
    ("errors", "errors"),
    ("settings", "settings"),
];

/// Lists of what there is none of, by the word after SHOW, and what is said of that.
const NOT_THERE: [(&str, &str); 2] = [
    (
        "connections",
        "there are no connections of connectors, whose options stand in each statement; hw.connections shows the clients",
    ),
    (
        "secrets",
        "there are no secrets: an option takes one from the environment as '${NAME}'",
    ),
];

/// Takes a `SHOW` statement.
///
/// # Errors
/// A malformed statement, or something that cannot be shown.
pub(crate) fn show(cursor: &mut Cursor<'_>) -> Result<Statement, SqlError> {
    cursor.expect(&["show"])?;
    let show = if cursor.eat(&["create"]) {
        let kind = object_kind(cursor);
        let name = cursor.object_name("the name of an object")?;
        Show::Create {
            kind,
            name: name.text,
            position: name.position,
        }
    } else if cursor.eat(&["sources"]) {
        Show::Objects(ObjectKind::Source)
    } else if cursor.eat(&["materialized", "views"]) {
        Show::Objects(ObjectKind::MaterializedView)
    } else if cursor.eat(&["views"]) {
        Show::Objects(ObjectKind::View)
    } else if cursor.eat(&["sinks"]) {
        Show::Objects(ObjectKind::Sink)
    } else if cursor.eat(&["tables"]) {
        Show::Objects(ObjectKind::Table)
    } else if cursor.eat(&["functions"]) {
        Show::Objects(ObjectKind::Function)
    } else if cursor.eat(&["indexes"]) {
        Show::Objects(ObjectKind::Index)
    } else if cursor.eat(&["lanes"]) {
        let named = cursor.eat(&["from"]) || cursor.eat(&["for"]);
        Show::Lanes(if named {
            Some(cursor.object_name("the name of a source")?.text)
        } else {
            None
        })
    } else if cursor.eat(&["watermarks"]) {
        Show::Watermarks
    } else if let Some((_, table)) = SYSTEM_LISTS.iter().find(|(word, _)| cursor.eat(&[word])) {
        Show::System(table)
    } else if cursor.eat(&["options"]) {
        Show::Options(match cursor.eat(&["for"]) {
            true => Some(connector_name(cursor)?),
            false => None,
        })
    } else if cursor.eat(&["all"]) {
        Show::Settings
    } else if cursor.eat(&["columns"]) {
        if !cursor.eat(&["from"]) && !cursor.eat(&["in"]) {
            return Err(cursor.unexpected("FROM and the name of a relation"));
        }
        return described(cursor);
    } else if let Some((_, told)) = NOT_THERE.iter().find(|(word, _)| cursor.eat(&[word])) {
        Show::None(told)
    } else {
        setting_shown(cursor)?
    };
    cursor.expect_end()?;
    Ok(Statement::Show(show))
}

fn connector_name(cursor: &mut Cursor<'_>) -> Result<String, SqlError> {
    match cursor.peek() {
        Token::SingleQuotedString(_) => cursor
            .string("the name of a connector")
            .map(|name| name.to_lowercase()),
        _ => cursor.name("the name of a connector").map(|name| name.text),
    }
}

fn setting_shown(cursor: &mut Cursor<'_>) -> Result<Show, SqlError> {
    const LISTS: [&str; 14] = [
        "columns",
        "connections",
        "secrets",
        "functions",
        "indexes",
        "sources",
        "views",
        "materialized",
        "sinks",
        "tables",
        "lanes",
        "watermarks",
        "options",
        "all",
    ];
    let position = cursor.position();
    let refused = ["schemas", "databases", "clusters"];
    if let Some(word) = refused.iter().find(|word| cursor.sees(&[word])) {
        return Err(SqlError::unsupported(format!("SHOW {}", word.to_uppercase())).at(position));
    }
    let name = setting_name(cursor)?;
    let lists = LISTS.into_iter().chain(SYSTEM_LISTS.map(|(word, _)| word));
    match closest(&name, lists) {
        Some(meant) => {
            let meant = if meant == "materialized" {
                "materialized views"
            } else {
                meant
            };
            Err(SqlError::new(
                SqlState::SyntaxError,
                format!("there is no list \"{name}\" to show"),
            )
            .with_hint(format!("Did you mean SHOW {}?", meant.to_uppercase()))
            .at(position))
        }
        None => Ok(Show::Setting(name)),
    }
}

/// The name of a setting, which may have dots; the two that SQL writes as words are called as PostgreSQL calls them.
fn setting_name(cursor: &mut Cursor<'_>) -> Result<String, SqlError> {
    if cursor.eat(&["time", "zone"]) {
        return Ok("timezone".to_owned());
    }
    if cursor.eat(&["transaction", "isolation", "level"]) {
        return Ok("transaction_isolation".to_owned());
    }
    let mut name = cursor.name("the name of a setting")?.text;
    while cursor.eat_token(&Token::Period) {
        name = format!("{name}.{}", cursor.name("the name of a setting")?.text);
    }
    Ok(name.to_lowercase())
}

/// Takes `DESCRIBE name`.
///
/// # Errors
/// A malformed statement.
pub(crate) fn describe(cursor: &mut Cursor<'_>) -> Result<Statement, SqlError> {
    if !cursor.eat(&["describe"]) {
        cursor.expect(&["desc"])?;
    }
    if let Some((words, _)) = KIND_WORDS
        .iter()
        .find(|(words, kind)| cursor.sees(words) && names_next(cursor, *kind))
    {
        cursor.eat(words);
    }
    described(cursor)
}

/// Takes the name of a relation of any schema, and the end.
fn described(cursor: &mut Cursor<'_>) -> Result<Statement, SqlError> {
    let first = cursor.name("the name of a relation")?.text;
    let (schema, name) = match cursor.eat_token(&Token::Period) {
        true => (Some(first), cursor.name("the name of a relation")?.text),
        false => (None, first),
    };
    cursor.expect_end()?;
    Ok(Statement::Describe {
        schema: schema.filter(|schema| schema != "public"),
        name,
    })
}

const KIND_WORDS: [(&[&str], usize); 5] = [
    (&["materialized", "view"], 2),
    (&["source"], 1),
    (&["table"], 1),
    (&["view"], 1),
    (&["sink"], 1),
];

fn names_next(cursor: &Cursor<'_>, after: usize) -> bool {
    matches!(cursor.peek_nth(after), Token::Word(_))
}

/// Options that PostgreSQL's EXPLAIN has in parentheses.
const EXPLAIN_OPTIONS: [&str; 9] = [
    "analyze", "verbose", "costs", "settings", "buffers", "wal", "timing", "summary", "format",
];

/// Statements that change rows, which have no plan that EXPLAIN shows.
const CHANGES: [&str; 3] = ["insert", "update", "delete"];

/// Takes `[ANALYZE] [VERBOSE]`, or both in parentheses.
fn explain_options(cursor: &mut Cursor<'_>) -> Result<(bool, bool), SqlError> {
    let analyze = |cursor: &mut Cursor<'_>| cursor.eat(&["analyze"]) || cursor.eat(&["analyse"]);
    let is_list =
        *cursor.peek() == Token::LParen && super::script::is_word(cursor.peek_nth(1), &EXPLAIN_OPTIONS);
    if !is_list {
        let analyze = analyze(cursor);
        return Ok((analyze, cursor.eat(&["verbose"])));
    }
    cursor.take();
    let (mut analyzes, mut verbose) = (false, false);
    loop {
        let position = cursor.position();
        if analyze(cursor) {
            analyzes = is_on(cursor);
        } else if cursor.eat(&["verbose"]) {
            verbose = is_on(cursor);
        } else if !cursor.eat(&["format", "text"]) {
            let mut option = cursor.name("an option of EXPLAIN")?.text.to_uppercase();
            if option == "FORMAT" {
                option = format!("{option} {}", cursor.name("a format")?.text.to_uppercase());
            }
            return Err(SqlError::unsupported(format!("EXPLAIN with {option}"))
                .with_hint("EXPLAIN takes ANALYZE, VERBOSE and FORMAT text.")
                .at(position));
        }
        if !cursor.eat_token(&Token::Comma) {
            break;
        }
    }
    cursor.expect_token(&Token::RParen)?;
    Ok((analyzes, verbose))
}

/// Takes the value of an option, if one stands there.
fn is_on(cursor: &mut Cursor<'_>) -> bool {
    let is_off = cursor.eat(&["false"]) || cursor.eat(&["off"]);
    if !is_off && !cursor.eat(&["true"]) {
        cursor.eat(&["on"]);
    }
    !is_off
}

/// Takes `EXPLAIN [ANALYZE] [VERBOSE] statement`, and what it says of what runs.
///
/// # Errors
/// A malformed statement, or one that has no plan.
pub(crate) fn explain(cursor: &mut Cursor<'_>) -> Result<Statement, SqlError> {
    cursor.expect(&["explain"])?;
    if cursor.eat(&["why"]) {
        return explain_running(cursor, Asks::Why);
    }
    let (analyze, verbose) = explain_options(cursor)?;
    if analyze {
        let words = ["select", "with", "values"];
        let is_query = words.iter().any(|word| cursor.sees(&[word])) || *cursor.peek() == Token::LParen;
        if !is_query {
            return explain_running(cursor, Asks::Analyze);
        }
    }
    let position = cursor.position();
    if let Some(word) = CHANGES.iter().find(|word| cursor.sees(&[word])) {
        return Err(
            SqlError::unsupported(format!("EXPLAIN of {}", word.to_uppercase()))
                .with_detail("EXPLAIN tells of queries, and of what runs for views and sinks.")
                .with_hint("Use EXPLAIN with the SELECT that finds the rows.")
                .at(position),
        );
    }
    let statement = if cursor.sees(&["create"]) {
        create(cursor)?
    } else {
        query(cursor)?
    };
    let planless = match statement {
        Statement::CreateSource(_) => Some("source"),
        Statement::CreateTable(_) => Some("table"),
        _ => None,
    };
    if let Some(noun) = planless {
        return Err(
            SqlError::unsupported(format!("EXPLAIN of CREATE {}", noun.to_uppercase()))
                .with_detail(format!("A {noun} has no plan; the query that reads it has one."))
                .at(position),
        );
    }
    Ok(Statement::Explain {
        verbose,
        analyze,
        statement: Box::new(statement),
    })
}

/// Takes `[kind] name` behind EXPLAIN ANALYZE and EXPLAIN WHY.
fn explain_running(cursor: &mut Cursor<'_>, asks: Asks) -> Result<Statement, SqlError> {
    let position = cursor.position();
    let verb = match asks {
        Asks::Analyze => "EXPLAIN ANALYZE",
        Asks::Why => "EXPLAIN WHY",
    };
    let is_query = ["select", "with", "values", "create", "insert", "update", "delete"];
    let is_query = is_query.iter().any(|word| cursor.sees(&[word])) || *cursor.peek() == Token::LParen;
    if is_query {
        let what = match asks {
            Asks::Analyze => "a statement that changes something",
            Asks::Why => "a statement",
        };
        return Err(SqlError::unsupported(format!("{verb} of {what}"))
            .with_detail(format!(
                "{verb} tells of a materialized view, sink or table that runs."
            ))
            .with_hint(format!(
                "Use {verb} with its name, or EXPLAIN with the statement."
            ))
            .at(position));
    }
    let kind = object_kind(cursor);
    let name = cursor.object_name("the name of a materialized view or sink")?;
    cursor.expect_end()?;
    Ok(Statement::ExplainRunning {
        asks,
        kind,
        name: name.text,
        position: name.position,
    })
}

/// Takes a query that is a statement of its own.
///
/// # Errors
/// A malformed query.
pub(crate) fn query(cursor: &mut Cursor<'_>) -> Result<Statement, SqlError> {
    let tail = query_tail(cursor)?;
    if let Some(position) = tail.emit {
        return Err(SqlError::unsupported("EMIT ON WINDOW CLOSE in a SELECT")
            .with_detail("A SELECT answers once, from what is there now.")
            .with_hint("Write it in CREATE MATERIALIZED VIEW or CREATE SINK.")
            .at(position));
    }
    cursor.expect_end()?;
    Ok(Statement::Query(tail.query))
}

/// Takes `SUBSCRIBE [TO] name | (query) [WITH (…)]`.
///
/// # Errors
/// A malformed statement.
pub(crate) fn subscribe(cursor: &mut Cursor<'_>) -> Result<Statement, SqlError> {
    let subscribe = subscription(cursor)?;
    cursor.expect_end()?;
    Ok(Statement::Subscribe(subscribe))
}

/// Takes the same, and leaves what follows it.
///
/// # Errors
/// A malformed statement.
pub(crate) fn subscription(cursor: &mut Cursor<'_>) -> Result<Subscribe, SqlError> {
    cursor.expect(&["subscribe"])?;
    cursor.eat(&["to"]);
    let (query, relation) = if *cursor.peek() == Token::LParen {
        cursor.take();
        let end = cursor.closing();
        let query = cursor.query_to(end)?;
        cursor.expect_token(&Token::RParen)?;
        (query, None)
    } else {
        let (query, name) = whole_relation(cursor)?;
        (query, Some(name))
    };
    let with = with_clause(cursor)?.unwrap_or_default();
    Ok(Subscribe {
        relation,
        query,
        with,
    })
}

/// Takes `CHECKPOINT`.
///
/// # Errors
/// Something follows it.
pub(crate) fn checkpoint(cursor: &mut Cursor<'_>) -> Result<Statement, SqlError> {
    cursor.expect(&["checkpoint"])?;
    cursor.expect_end()?;
    Ok(Statement::Checkpoint)
}

/// Takes `FLUSH`.
///
/// # Errors
/// Something follows it.
pub(crate) fn flush(cursor: &mut Cursor<'_>) -> Result<Statement, SqlError> {
    cursor.expect(&["flush"])?;
    cursor.expect_end()?;
    Ok(Statement::Flush)
}

/// Takes `SET [SESSION] name {= | TO} value | DEFAULT`, `SET TIME ZONE value`.
///
/// # Errors
/// A malformed statement, or a SET that is not one of a session setting.
pub(crate) fn set(cursor: &mut Cursor<'_>) -> Result<Statement, SqlError> {
    let position = cursor.position();
    cursor.expect(&["set"])?;
    if cursor.eat(&["transaction"]) {
        return Ok(Statement::Transaction(Transaction::Set(modes(cursor)?)));
    }
    if cursor.eat(&["session", "characteristics", "as", "transaction"]) {
        return Ok(Statement::Transaction(Transaction::SetDefault(modes(cursor)?)));
    }
    let refused: [&[&str]; 4] = [
        &["local"],
        &["session", "authorization"],
        &["role"],
        &["constraints"],
    ];
    if let Some(words) = refused.iter().find(|words| cursor.sees(words)) {
        return Err(SqlError::unsupported(format!("SET {}", words.join(" ").to_uppercase())).at(position));
    }
    if cursor.eat(&["names"]) {
        let value = match cursor.eat(&["default"]) {
            true => None,
            false => Some(setting_value(cursor)?),
        };
        cursor.expect_end()?;
        return Ok(Statement::Set {
            name: "client_encoding".to_owned(),
            value,
        });
    }
    cursor.eat(&["session"]);
    let time_zone = cursor.sees(&["time", "zone"]);
    let name = setting_name(cursor)?;
    if !time_zone && !cursor.eat_token(&Token::Eq) {
        cursor.expect(&["to"])?;
    }
    let value = if cursor.eat(&["default"]) {
        None
    } else {
        Some(setting_value(cursor)?)
    };
    cursor.expect_end()?;
    Ok(Statement::Set { name, value })
}

/// Values with commas between, as text.
fn setting_value(cursor: &mut Cursor<'_>) -> Result<String, SqlError> {
    let mut values = Vec::new();
    loop {
        let minus = if cursor.eat_token(&Token::Minus) { "-" } else { "" };
        values.push(match cursor.peek() {
            Token::Number(digits, _) => format!("{minus}{digits}"),
            Token::SingleQuotedString(text) | Token::EscapedStringLiteral(text) if minus.is_empty() => {
                text.clone()
            }
            Token::Word(word) if minus.is_empty() && word.quote_style.is_some() => word.value.clone(),
            Token::Word(word) if minus.is_empty() => word.value.to_lowercase(),
            _ => return Err(cursor.unexpected("a value")),
        });
        cursor.take();
        if !cursor.eat_token(&Token::Comma) {
            return Ok(values.join(", "));
        }
    }
}

/// Takes `RESET name | ALL`.
///
/// # Errors
/// A malformed statement.
pub(crate) fn reset(cursor: &mut Cursor<'_>) -> Result<Statement, SqlError> {
    cursor.expect(&["reset"])?;
    if cursor.eat(&["all"]) {
        cursor.expect_end()?;
        return Ok(Statement::ResetAll);
    }
    let name = setting_name(cursor)?;
    cursor.expect_end()?;
    Ok(Statement::Set { name, value: None })
}
