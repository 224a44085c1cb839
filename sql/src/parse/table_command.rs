//! `TABLE name` where a query may stand: `SELECT * FROM name`, token by token. The words have the place of TABLE.

use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan};

use super::script::is_word;

/// Words behind which a query may stand.
const BEFORE: [&str; 8] = [
    "union",
    "intersect",
    "except",
    "all",
    "distinct",
    "as",
    "for",
    "explain",
];

/// The tokens with queries in place of such commands. What windows call `TABLE` is gone by now.
pub(crate) fn rewrite(tokens: Vec<TokenWithSpan>) -> Vec<TokenWithSpan> {
    let is_insert = tokens.iter().any(|token| is_word(&token.token, &["insert"]));
    let mut rewritten = Vec::with_capacity(tokens.len() + 2);
    let mut open = 0usize;
    for (index, token) in tokens.iter().enumerate() {
        match token.token {
            Token::LParen => open += 1,
            Token::RParen => open = open.saturating_sub(1),
            _ => {}
        }
        let before = index.checked_sub(1).map(|before| &tokens[before].token);
        let may_stand = match before {
            None | Some(Token::LParen | Token::RParen) => true,
            Some(before) => is_word(before, &BEFORE) || (is_insert && open == 0),
        };
        let names = tokens.get(index + 1).map(|next| &next.token);
        if may_stand && is_word(&token.token, &["table"]) && matches!(names, Some(Token::Word(_))) {
            for word in [
                Token::make_keyword("SELECT"),
                Token::Mul,
                Token::make_keyword("FROM"),
            ] {
                rewritten.push(TokenWithSpan::new(word, token.span));
            }
            continue;
        }
        rewritten.push(token.clone());
    }
    rewritten
}
