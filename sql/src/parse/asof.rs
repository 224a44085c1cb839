//! Joins in time, rewritten token by token into the spelling that sqlparser reads. Spans stay, so places stay.
//!
//! ```text
//! a ASOF JOIN b ON c         →  a ASOF JOIN b MATCH_CONDITION (TRUE) ON c
//! a ASOF LEFT JOIN b ON c    →  a GLOBAL ASOF JOIN b MATCH_CONDITION (TRUE) ON c
//! a JOIN b AS c FOR SYSTEM_TIME AS OF PROCTIME()    →  a JOIN b FOR SYSTEM_TIME AS OF PROCTIME() AS c
//! ```
//!
//! sqlparser knows no outer ASOF join; its flag for GLOBAL, a word that means nothing else
//! here, says that it is one. A tree that is written out reads back to itself.

use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan};

use super::script::is_word;

/// The tokens as sqlparser reads them.
pub(crate) fn rewrite(tokens: Vec<TokenWithSpan>) -> Vec<TokenWithSpan> {
    let tokens = versions_first(tokens);
    if !tokens.iter().any(|token| is_word(&token.token, &["asof"])) {
        return tokens;
    }
    let word = |index: usize, words: &[&str]| {
        tokens
            .get(index)
            .is_some_and(|token| is_word(&token.token, words))
    };
    let mut rewritten = Vec::with_capacity(tokens.len() + 8);
    // Before which tokens a match condition is put.
    let mut conditions = Vec::new();
    let mut index = 0;
    while let Some(token) = tokens.get(index) {
        let made = |token_of: Token| TokenWithSpan {
            token: token_of,
            span: token.span,
        };
        if conditions.contains(&index) {
            let keyword = |word: &str| made(Token::make_word(word, None));
            rewritten.push(keyword("MATCH_CONDITION"));
            rewritten.push(made(Token::LParen));
            rewritten.push(keyword("TRUE"));
            rewritten.push(made(Token::RParen));
        }
        if word(index, &["asof"]) {
            let is_left = word(index + 1, &["left"]);
            let skipped = match (is_left, word(index + 1, &["inner"])) {
                (true, _) => 1 + usize::from(word(index + 2, &["outer"])),
                (false, is_inner) => usize::from(is_inner),
            };
            if word(index + 1 + skipped, &["join"]) {
                if is_left {
                    rewritten.push(made(Token::make_word("GLOBAL", None)));
                }
                conditions.extend(place_of_condition(&tokens, index + 2 + skipped));
                rewritten.push(token.clone());
                index += 1 + skipped;
                continue;
            }
        }
        rewritten.push(token.clone());
        index += 1;
    }
    rewritten
}

/// Puts the time of a relation before its alias: trees are written out with the alias first.
fn versions_first(mut tokens: Vec<TokenWithSpan>) -> Vec<TokenWithSpan> {
    const VERSION: [&[&str]; 5] = [&["for"], &["system_time"], &["as"], &["of"], &["proctime"]];
    /// The words, and a pair of parentheses.
    const VERSION_TOKENS: usize = VERSION.len() + 2;
    for at in 2..tokens.len() {
        let is_version = VERSION
            .iter()
            .enumerate()
            .all(|(n, words)| tokens.get(at + n).is_some_and(|own| is_word(&own.token, words)));
        let is_closed = tokens
            .get(at + VERSION.len())
            .is_some_and(|own| own.token == Token::LParen)
            && tokens
                .get(at + VERSION.len() + 1)
                .is_some_and(|own| own.token == Token::RParen);
        if !is_version || !is_closed || !matches!(tokens[at - 1].token, Token::Word(_)) {
            continue;
        }
        // How many tokens the alias has.
        let alias = match &tokens[at - 2].token {
            before if is_word(before, &["as"]) => 2,
            before if is_word(before, &["join", "from"]) => 0,
            Token::Word(_) => 1,
            _ => 0,
        };
        tokens[at - alias..at + VERSION_TOKENS].rotate_left(alias);
    }
    tokens
}

/// Where the match condition of a join belongs whose right side starts at `from`; `None` if it has one.
fn place_of_condition(tokens: &[TokenWithSpan], from: usize) -> Option<usize> {
    const NEXT_CLAUSES: [&str; 9] = [
        "match_condition",
        "join",
        "where",
        "group",
        "having",
        "order",
        "limit",
        "union",
        "asof",
    ];
    let mut depth = 0usize;
    for (index, token) in tokens.iter().enumerate().skip(from) {
        match &token.token {
            Token::LParen => depth += 1,
            Token::RParen => depth = depth.checked_sub(1)?,
            other if depth == 0 && is_word(other, &["on", "using"]) => return Some(index),
            other if depth == 0 && is_word(other, &NEXT_CLAUSES) => return None,
            _ => {}
        }
    }
    None
}
