//! Flink SQL's spelling of window table functions, and PARTITION BY in their arguments, rewritten token by token into what
//! sqlparser reads. Spans stay, so places stay.
//!
//! ```text
//! TABLE(TUMBLE(TABLE bids, DESCRIPTOR(date_time), INTERVAL '10' SECONDS))
//!    →  TUMBLE(bids, date_time, INTERVAL '10' SECOND)
//! SESSION(bids PARTITION BY bidder, date_time, INTERVAL '10' SECOND)
//!    →  SESSION(bids, bidder, date_time, INTERVAL '10' SECOND)
//! ```

use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan};

use super::script::is_word;

const WINDOWS: [&str; 4] = ["tumble", "hop", "cumulate", "session"];
const UNITS: [(&str, &str); 7] = [
    ("milliseconds", "millisecond"),
    ("seconds", "second"),
    ("minutes", "minute"),
    ("hours", "hour"),
    ("days", "day"),
    ("months", "month"),
    ("years", "year"),
];

/// The tokens in our spelling.
pub(crate) fn rewrite(tokens: Vec<TokenWithSpan>) -> Vec<TokenWithSpan> {
    let mut dropped = vec![false; tokens.len()];
    let mut replaced = Vec::new();
    // For each open parenthesis: whether its pair goes, and whether it holds the arguments of a window.
    let mut open: Vec<(bool, bool)> = Vec::new();
    let word = |index: usize, words: &[&str]| {
        tokens
            .get(index)
            .is_some_and(|token| is_word(&token.token, words))
    };
    let paren = |index: usize| {
        tokens
            .get(index)
            .is_some_and(|token| token.token == Token::LParen)
    };
    for index in 0..tokens.len() {
        let in_window = open.last().is_some_and(|(_, window)| *window);
        let after_window = index > 0 && word(index - 1, &WINDOWS);
        match &tokens[index].token {
            Token::LParen => {
                let wrapper =
                    index > 0 && word(index - 1, &["table"]) && word(index + 1, &WINDOWS) && paren(index + 2);
                let descriptor = in_window && index > 0 && word(index - 1, &["descriptor"]);
                dropped[index] = wrapper || descriptor;
                open.push((wrapper || descriptor, after_window));
            }
            Token::RParen => dropped[index] = open.pop().is_some_and(|(goes, _)| goes),
            Token::Word(_) if word(index, &["table"]) => {
                let wrapper = paren(index + 1) && word(index + 2, &WINDOWS) && paren(index + 3);
                let argument =
                    in_window && matches!(tokens.get(index + 1).map(|t| &t.token), Some(Token::Word(_)));
                dropped[index] = wrapper || argument;
            }
            Token::Word(_) if in_window && word(index, &["descriptor"]) && paren(index + 1) => {
                dropped[index] = true
            }
            Token::Word(_) if in_window && word(index, &["partition"]) && word(index + 1, &["by"]) => {
                replaced.push((index, Token::Comma));
                dropped[index + 1] = true;
            }
            Token::Word(word) if index >= 2 && is_word(&tokens[index - 2].token, &["interval"]) => {
                if let Some((_, unit)) = UNITS
                    .iter()
                    .find(|(plural, _)| word.value.eq_ignore_ascii_case(plural))
                {
                    replaced.push((index, Token::make_word(&unit.to_uppercase(), None)));
                }
            }
            _ => {}
        }
    }
    let mut tokens = tokens;
    for (index, token) in replaced {
        tokens[index].token = token;
    }
    tokens
        .into_iter()
        .zip(dropped)
        .filter(|(_, goes)| !goes)
        .map(|(token, _)| token)
        .collect()
}
