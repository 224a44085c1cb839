//! `trim([BOTH | LEADING | TRAILING] [characters] [FROM] text)`, as PostgreSQL reads it: `btrim`, `ltrim` and `rtrim`.

use datafusion::sql::sqlparser::ast::{Expr, Ident};
use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::parser::{Parser, ParserError};
use datafusion::sql::sqlparser::tokenizer::Token;

use crate::calls;

/// Whether such a call begins here.
pub(crate) fn begins(parser: &Parser) -> bool {
    let is_trim = matches!(
        &parser.peek_token_ref().token,
        Token::Word(word) if word.quote_style.is_none() && word.keyword == Keyword::TRIM
    );
    is_trim && parser.peek_nth_token_ref(1).token == Token::LParen
}

/// The call.
///
/// # Errors
/// What is no such call.
pub(crate) fn call(parser: &mut Parser) -> Result<Expr, ParserError> {
    let span = parser.peek_token_ref().span;
    parser.advance_token();
    parser.expect_token(&Token::LParen)?;
    let side = parser.parse_one_of_keywords(&[Keyword::BOTH, Keyword::LEADING, Keyword::TRAILING]);
    let name = match side {
        Some(Keyword::LEADING) => "ltrim",
        Some(Keyword::TRAILING) => "rtrim",
        _ => "btrim",
    };
    let is_text_alone = parser.parse_keyword(Keyword::FROM);
    let mut args = parser.parse_comma_separated(Parser::parse_expr)?;
    if !is_text_alone && parser.parse_keyword(Keyword::FROM) {
        let mut texts = parser.parse_comma_separated(Parser::parse_expr)?;
        texts.append(&mut args);
        args = texts;
    }
    parser.expect_token(&Token::RParen)?;
    Ok(calls::call(Ident::with_span(span, name), args))
}
