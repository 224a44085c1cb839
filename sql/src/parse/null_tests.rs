//! `value ISNULL`, which sqlparser takes for an alias: `value IS NULL`, token by token.

use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan};

use super::script::is_word;

/// Words that end no value, so that a name follows them.
const BEFORE_NAMES: [&str; 23] = [
    "select",
    "distinct",
    "all",
    "and",
    "or",
    "not",
    "where",
    "having",
    "on",
    "by",
    "as",
    "from",
    "join",
    "when",
    "then",
    "else",
    "case",
    "in",
    "between",
    "like",
    "set",
    "returning",
    "into",
];

/// The tokens with such tests in the words of the standard.
pub(crate) fn rewrite(tokens: Vec<TokenWithSpan>) -> Vec<TokenWithSpan> {
    if !tokens.iter().any(|token| is_word(&token.token, &["isnull"])) {
        return tokens;
    }
    let mut rewritten: Vec<TokenWithSpan> = Vec::with_capacity(tokens.len() + 4);
    for (index, token) in tokens.iter().enumerate() {
        let is_call = matches!(tokens.get(index + 1), Some(next) if next.token == Token::LParen);
        let before = rewritten.len().checked_sub(2).and_then(|at| rewritten.get(at));
        let is_field = before.is_some_and(|before| before.token == Token::Period);
        let ends_value = rewritten
            .last()
            .is_some_and(|last| ends_value(&last.token, is_field));
        if is_word(&token.token, &["isnull"]) && ends_value && !is_call {
            for word in ["IS", "NULL"] {
                rewritten.push(TokenWithSpan::new(Token::make_keyword(word), token.span));
            }
            continue;
        }
        rewritten.push(token.clone());
    }
    rewritten
}

/// Whether a value ends with a token, which is a field if a period stands before it.
fn ends_value(token: &Token, is_field: bool) -> bool {
    match token {
        Token::Word(_) => is_field || !is_word(token, &BEFORE_NAMES),
        Token::RParen
        | Token::RBracket
        | Token::Number(..)
        | Token::SingleQuotedString(_)
        | Token::EscapedStringLiteral(_)
        | Token::Placeholder(_) => true,
        _ => false,
    }
}
