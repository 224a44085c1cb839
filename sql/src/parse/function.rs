//! `CREATE FUNCTION … LANGUAGE SQL`: arguments, result, properties and body.

use datafusion::sql::sqlparser::ast;
use datafusion::sql::sqlparser::tokenizer::Token;

use super::cursor::{Cursor, Name};
use crate::error::{SqlError, SqlState};
use crate::statement::{CreateFunction, FunctionArgument, Purity};

/// Words that begin a type of several words.
const TYPE_STARTS: [&str; 6] = ["double", "timestamp", "time", "character", "char", "struct"];

/// Properties of functions that are not there.
const REFUSED: [&str; 8] = [
    "parallel",
    "cost",
    "rows",
    "security",
    "leakproof",
    "support",
    "window",
    "set",
];

/// Takes what follows `CREATE [OR REPLACE] FUNCTION`.
///
/// # Errors
/// A malformed statement; a language or a property that is not there.
pub(crate) fn create_function(cursor: &mut Cursor<'_>, or_replace: bool) -> Result<CreateFunction, SqlError> {
    let name = super::new_name(cursor, "a name for the function")?;
    let arguments = arguments(cursor)?;
    if !cursor.eat(&["returns"]) {
        return Err(cursor.unexpected("RETURNS"));
    }
    for word in ["setof", "table"] {
        if cursor.sees(&[word]) {
            let what = format!("a function that RETURNS {}", word.to_uppercase());
            return Err(SqlError::unsupported(what)
                .with_hint("Create a view instead.")
                .at(cursor.position()));
        }
    }
    let returns = cursor.data_type()?;
    let mut read = Properties::default();
    while !cursor.at_end() {
        read.property(cursor)?;
    }
    let Some((body, body_position)) = read.body else {
        return Err(
            SqlError::new(SqlState::InvalidFunctionDefinition, "no function body specified")
                .with_hint("Write AS $$ SELECT … $$, or RETURN expression.")
                .at(name.position),
        );
    };
    Ok(CreateFunction {
        name: name.text,
        position: name.position,
        or_replace,
        arguments,
        returns,
        body,
        body_position,
        purity: read.purity,
        is_strict: read.is_strict.unwrap_or(false),
    })
}

fn arguments(cursor: &mut Cursor<'_>) -> Result<Vec<FunctionArgument>, SqlError> {
    cursor.expect_token(&Token::LParen)?;
    let mut arguments: Vec<FunctionArgument> = Vec::new();
    if cursor.eat_token(&Token::RParen) {
        return Ok(arguments);
    }
    loop {
        for mode in ["out", "inout", "variadic"] {
            if cursor.sees(&[mode]) {
                let what = format!("an argument that is {}", mode.to_uppercase());
                return Err(SqlError::unsupported(what).at(cursor.position()));
            }
        }
        let name = argument_name(cursor)?;
        let position = cursor.position();
        let data_type = cursor.data_type()?;
        if cursor.sees(&["default"]) || *cursor.peek() == Token::Eq {
            return Err(SqlError::unsupported("DEFAULT of an argument").at(cursor.position()));
        }
        if let Some(name) = &name
            && arguments
                .iter()
                .any(|other| other.name.as_ref() == Some(&name.text))
        {
            let message = format!("parameter name \"{}\" used more than once", name.text);
            return Err(SqlError::new(SqlState::InvalidFunctionDefinition, message).at(name.position));
        }
        arguments.push(FunctionArgument {
            name: name.map(|name| name.text),
            data_type,
            position,
        });
        if !cursor.eat_token(&Token::Comma) {
            break;
        }
    }
    cursor.expect_token(&Token::RParen)?;
    Ok(arguments)
}

/// The name in front of a type, if there is one.
fn argument_name(cursor: &mut Cursor<'_>) -> Result<Option<Name>, SqlError> {
    let Token::Word(word) = cursor.peek() else {
        return Ok(None);
    };
    let is_type = word.quote_style.is_none()
        && TYPE_STARTS
            .iter()
            .any(|start| word.value.eq_ignore_ascii_case(start));
    let is_named = matches!(cursor.peek_nth(1), Token::Word(_)) && !is_type;
    if is_named {
        cursor.name("the name of an argument").map(Some)
    } else {
        Ok(None)
    }
}

/// What stands behind the type of the result, in any order.
#[derive(Default)]
struct Properties {
    purity: Option<Purity>,
    is_strict: Option<bool>,
    body: Option<(Box<ast::Expr>, usize)>,
}

impl Properties {
    fn property(&mut self, cursor: &mut Cursor<'_>) -> Result<(), SqlError> {
        let position = cursor.position();
        if let Some(word) = REFUSED.iter().find(|word| cursor.sees(&[word])) {
            return Err(
                SqlError::unsupported(format!("{} of a function", word.to_uppercase()))
                    .with_hint("Leave it out.")
                    .at(position),
            );
        }
        if cursor.eat(&["language"]) {
            return language(cursor);
        }
        for (word, purity) in [
            ("immutable", Purity::Immutable),
            ("stable", Purity::Stable),
            ("volatile", Purity::Volatile),
        ] {
            if cursor.eat(&[word]) {
                return once(&mut self.purity, purity, position);
            }
        }
        let null: [(&[&str], bool); 3] = [
            (&["strict"], true),
            (&["returns", "null", "on", "null", "input"], true),
            (&["called", "on", "null", "input"], false),
        ];
        for (words, is_strict) in null {
            if cursor.eat(words) {
                return once(&mut self.is_strict, is_strict, position);
            }
        }
        if cursor.eat(&["return"]) {
            let body = cursor.expression()?;
            return once(&mut self.body, (Box::new(body), position), position);
        }
        if cursor.eat(&["as"]) {
            let position = cursor.position();
            let text = body_text(cursor)?;
            let body = body_of(&text).map_err(|error| SqlError {
                position: Some(position),
                ..error
            })?;
            return once(&mut self.body, (Box::new(body), position), position);
        }
        Err(cursor.unexpected("LANGUAGE SQL, IMMUTABLE, STRICT, AS or RETURN"))
    }
}

fn once<T>(place: &mut Option<T>, value: T, position: usize) -> Result<(), SqlError> {
    match place.replace(value) {
        None => Ok(()),
        Some(_) => Err(SqlError::new(SqlState::SyntaxError, "conflicting or redundant options").at(position)),
    }
}

fn language(cursor: &mut Cursor<'_>) -> Result<(), SqlError> {
    let position = cursor.position();
    let language = match cursor.peek() {
        Token::SingleQuotedString(_) => cursor.string("a language")?,
        _ => cursor.name("a language")?.text,
    };
    match language.eq_ignore_ascii_case("sql") {
        true => Ok(()),
        false => Err(SqlError::unsupported(format!("language \"{language}\""))
            .with_hint("Write the function in SQL, or register it with the builder of the database.")
            .at(position)),
    }
}

fn body_text(cursor: &mut Cursor<'_>) -> Result<String, SqlError> {
    match cursor.peek() {
        Token::DollarQuotedString(text) => {
            let text = text.value.clone();
            cursor.take();
            Ok(text)
        }
        _ => cursor.string("the body of the function in quotes"),
    }
}

/// The one expression that the query of a body selects.
fn body_of(text: &str) -> Result<ast::Expr, SqlError> {
    let text = text.trim().trim_end_matches(';');
    let refused = || {
        SqlError::unsupported("a function body that is more than SELECT and one expression")
            .with_hint("Create a view for what reads relations.")
    };
    let query = super::parse_query(text)?;
    let ast::SetExpr::Select(select) = query.body.as_ref() else {
        return Err(refused());
    };
    let expr = match select.projection.as_slice() {
        [ast::SelectItem::UnnamedExpr(expr) | ast::SelectItem::ExprWithAlias { expr, .. }] => expr.clone(),
        _ => return Err(refused()),
    };
    // What else a query may have makes another text than SELECT and the expression.
    let plain = super::parse_query(&format!("SELECT {expr}"))?;
    let mut bare = query.clone();
    if let ast::SetExpr::Select(select) = bare.body.as_mut() {
        select.projection = vec![ast::SelectItem::UnnamedExpr(expr.clone())];
    }
    match bare.to_string() == plain.to_string() {
        true => Ok(expr),
        false => Err(refused()),
    }
}

/// Takes the types of a function's arguments in parentheses, if they stand there; names in front of them say nothing.
///
/// # Errors
/// Something else stands in the parentheses.
pub(crate) fn signature(cursor: &mut Cursor<'_>) -> Result<Option<Vec<ast::DataType>>, SqlError> {
    if !cursor.eat_token(&Token::LParen) {
        return Ok(None);
    }
    let mut types = Vec::new();
    while !cursor.eat_token(&Token::RParen) {
        if !types.is_empty() {
            cursor.expect_token(&Token::Comma)?;
        }
        argument_name(cursor)?;
        types.push(cursor.data_type()?);
    }
    Ok(Some(types))
}
