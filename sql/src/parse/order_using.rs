//! `ORDER BY value USING <`, token by token: `ORDER BY value ASC`.

use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan};

use super::script::is_word;

/// The tokens with the direction of each order in the words of the standard.
pub(crate) fn rewrite(tokens: Vec<TokenWithSpan>) -> Vec<TokenWithSpan> {
    let direction = |at: usize| {
        let operator = tokens.get(at + 1).map(|token| &token.token);
        let word = match operator {
            Some(Token::Lt) => "ASC",
            Some(Token::Gt) => "DESC",
            _ => return None,
        };
        is_word(&tokens[at].token, &["using"]).then_some(word)
    };
    if (0..tokens.len()).all(|at| direction(at).is_none()) {
        return tokens;
    }
    let mut rewritten = Vec::with_capacity(tokens.len());
    let mut at = 0;
    while let Some(token) = tokens.get(at) {
        match direction(at) {
            Some(word) => {
                rewritten.push(TokenWithSpan::new(Token::make_keyword(word), token.span));
                at += 2;
            }
            None => {
                rewritten.push(token.clone());
                at += 1;
            }
        }
    }
    rewritten
}
