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
    "analyze",
    "verbose",
    "explain",
];

/// Words behind which one may stand unless a select list has begun, in which `table` is a name.
const BEFORE_LISTS: [&str; 2] = ["as", "for"];

/// The tokens with queries in place of such commands. What windows call `TABLE` is gone by now.
pub(crate) fn rewrite(tokens: Vec<TokenWithSpan>) -> Vec<TokenWithSpan> {
    let is_insert = tokens.iter().any(|token| is_word(&token.token, &["insert"]));
    let mut rewritten = Vec::with_capacity(tokens.len() + 2);
    // For each parenthesis that is open, whether a select list has begun in it.
    let mut lists = vec![false];
    for (index, token) in tokens.iter().enumerate() {
        match token.token {
            Token::LParen => lists.push(false),
            Token::RParen if lists.len() > 1 => drop(lists.pop()),
            _ if is_word(&token.token, &["select"]) => {
                lists.last_mut().into_iter().for_each(|has| *has = true)
            }
            _ => {}
        }
        let has_list = lists.last() == Some(&true);
        let before = index.checked_sub(1).map(|before| &tokens[before].token);
        let may_stand = match before {
            None | Some(Token::LParen) => true,
            Some(Token::RParen) => !has_list,
            Some(Token::Period) => false,
            Some(before) if is_word(before, &["into"]) => false,
            Some(before) => {
                is_word(before, &BEFORE)
                    || !has_list && (is_word(before, &BEFORE_LISTS) || (is_insert && lists.len() == 1))
            }
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
