//! A script's tokens with their byte offsets, cut into statements, with the bounds that keep parsing safe.
//!
//! Every token span is rewritten to line 1 and column *byte offset + 1*, so a place in a token, in an error of
//! sqlparser or in its AST is a byte offset into the script at once.

use std::ops::Range;

use datafusion::sql::sqlparser::tokenizer::{
    Location, Span, Token, TokenWithSpan, Tokenizer, TokenizerError, Whitespace,
};

use super::dialect::HighwaterDialect;
use super::escapes;
use crate::error::{SqlError, SqlState};

/// Longest script that is read, in bytes.
pub(crate) const SCRIPT_BYTES_MAX: usize = 16 * 1024 * 1024;
/// Deepest nesting of parentheses, brackets and nested types.
const NESTING_MAX: usize = 64;
/// Most operators in one expression without a comma or clause between them: each is a level of the expression's tree,
/// which planning goes down on the caller's stack.
const CHAIN_MAX: usize = 250;
/// Most queries chained by UNION, INTERSECT and EXCEPT after the first one: each is a level of the query's tree.
pub(crate) const SETS_MAX: usize = 64;

/// The tokens of one statement, without white space, comments and the semicolon.
#[derive(Debug)]
pub(crate) struct StatementTokens {
    /// At least one token.
    pub(crate) tokens: Vec<TokenWithSpan>,
    /// Bytes of the script from the first token to the last.
    pub(crate) bytes: Range<usize>,
}

/// Reads the tokens of `sql` and cuts them at semicolons; statements without a token are left out.
///
/// # Errors
/// The script is too long, a quote or comment has no end, or an expression is nested too deeply.
pub(crate) fn split(sql: &str) -> Result<Vec<StatementTokens>, SqlError> {
    let (tokens, fault) = tokenize(sql);
    if let Some(fault) = fault {
        return Err(fault);
    }
    let mut statements = Vec::new();
    let mut current = Vec::new();
    let mut is_next_line = false;
    for token in tokens {
        match &token.token {
            Token::Whitespace(space) => {
                is_next_line |= matches!(space, Whitespace::Newline | Whitespace::SingleLineComment { .. });
                continue;
            }
            Token::SemiColon => finish(&mut current, &mut statements),
            _ if is_next_line && continues(&mut current, &token) => {}
            _ => current.push(token),
        }
        is_next_line = false;
    }
    finish(&mut current, &mut statements);
    statements
        .iter()
        .try_for_each(|statement| check_bounds(&statement.tokens))?;
    Ok(statements)
}

/// Adds a text in quotes to the one before it, which it continues if it stands on a later line, and says whether it did.
fn continues(current: &mut [TokenWithSpan], more: &TokenWithSpan) -> bool {
    let (Some(before), Token::SingleQuotedString(rest)) = (current.last_mut(), &more.token) else {
        return false;
    };
    match &mut before.token {
        Token::SingleQuotedString(text) => text.push_str(rest),
        // Escapes go on in what follows, where they have been read as they stand.
        Token::EscapedStringLiteral(text) if !rest.contains('\\') => text.push_str(rest),
        _ => return false,
    }
    before.span = Span::new(before.span.start, more.span.end);
    true
}

/// Whether `sql` ends in a semicolon that ends a statement: no quote, comment or parenthesis is open.
pub(crate) fn is_complete(sql: &str) -> bool {
    let (tokens, fault) = tokenize(sql);
    if let Some(fault) = fault {
        return fault.state == SqlState::ProgramLimitExceeded || !fault.message.starts_with("unterminated");
    }
    let mut open = 0usize;
    let mut ended = false;
    for token in tokens {
        match token.token {
            Token::Whitespace(_) => continue,
            Token::LParen => open += 1,
            Token::RParen => open = open.saturating_sub(1),
            _ => {}
        }
        ended = open == 0 && token.token == Token::SemiColon;
    }
    ended
}

/// Byte offset in the script of a place in a rewritten token or AST; `None` where sqlparser knows no place.
pub(crate) fn offset_of(place: Location) -> Option<usize> {
    if place.line == 0 {
        None
    } else {
        usize::try_from(place.column).ok()?.checked_sub(1)
    }
}

/// All tokens with rewritten spans, and what stopped the reading if something did.
pub(crate) fn tokenize(sql: &str) -> (Vec<TokenWithSpan>, Option<SqlError>) {
    if sql.len() > SCRIPT_BYTES_MAX {
        let fault = SqlError::new(
            SqlState::ProgramLimitExceeded,
            format!(
                "the script is {} bytes long, more than {SCRIPT_BYTES_MAX}",
                sql.len()
            ),
        );
        return (Vec::new(), Some(fault));
    }
    let dialect = HighwaterDialect::default();
    let mut tokens = Vec::new();
    let outcome = Tokenizer::new(&dialect, sql).tokenize_with_location_into_buf(&mut tokens);
    let mut places = Places::new(sql);
    for token in &mut tokens {
        let start = places.byte_of(token.span.start);
        let end = places.byte_of(token.span.end);
        token.span = byte_span(start..end);
    }
    let fault = outcome.err().map(|error| tokenizer_error(&error, sql, &tokens));
    (tokens, fault)
}

/// The span that stands for these bytes.
fn byte_span(bytes: Range<usize>) -> Span {
    let place = |byte: usize| Location::new(1, byte as u64 + 1);
    Span::new(place(bytes.start), place(bytes.end))
}

/// Turns growing (line, column) places into byte offsets in one walk over the text.
struct Places<'a> {
    rest: std::str::Chars<'a>,
    length: usize,
    line: u64,
    column: u64,
}

impl<'a> Places<'a> {
    fn new(sql: &'a str) -> Self {
        Self {
            rest: sql.chars(),
            length: sql.len(),
            line: 1,
            column: 1,
        }
    }

    fn byte_of(&mut self, place: Location) -> usize {
        while (self.line, self.column) < (place.line, place.column) {
            match self.rest.next() {
                None => break,
                Some('\n') => (self.line, self.column) = (self.line + 1, 1),
                Some(_) => self.column += 1,
            }
        }
        self.length - self.rest.as_str().len()
    }
}

fn tokenizer_error(error: &TokenizerError, sql: &str, read: &[TokenWithSpan]) -> SqlError {
    // The token at fault begins where the last good one ends: that is where a quote was opened.
    let position = read
        .last()
        .and_then(|token| offset_of(token.span.end))
        .unwrap_or(0);
    let rest = &sql[position..];
    let is_escaped = rest.starts_with("E'") || rest.starts_with("e'");
    if let Some(mut fault) = is_escaped.then(|| escapes::fault(rest)).flatten() {
        fault.position = Some(position + fault.position.unwrap_or(0));
        return fault;
    }
    let message = if rest.starts_with("/*") {
        "unterminated /* comment".to_owned()
    } else if rest.starts_with('"') {
        "unterminated quoted identifier".to_owned()
    } else if rest.starts_with('$') && error.message.starts_with("Unterminated") {
        "unterminated dollar-quoted string".to_owned()
    } else if error.message.starts_with("Unterminated") {
        "unterminated quoted string".to_owned()
    } else {
        let mut text = error.message.clone();
        text.get_mut(..1).map(str::make_ascii_lowercase);
        text.trim_end_matches('.').to_owned()
    };
    SqlError::new(SqlState::SyntaxError, message).at(position)
}

fn finish(current: &mut Vec<TokenWithSpan>, statements: &mut Vec<StatementTokens>) {
    let ends = |token: &TokenWithSpan| (offset_of(token.span.start), offset_of(token.span.end));
    if let (Some((Some(start), _)), Some((_, Some(end)))) =
        (current.first().map(ends), current.last().map(ends))
    {
        statements.push(StatementTokens {
            tokens: std::mem::take(current),
            bytes: start..end,
        });
    }
}

/// Refuses what would make a recursive parser or planner overflow its stack.
fn check_bounds(tokens: &[TokenWithSpan]) -> Result<(), SqlError> {
    let mut chains = vec![Chain::default()];
    let mut types = 0usize;
    for (index, token) in tokens.iter().enumerate() {
        let before = index
            .checked_sub(1)
            .and_then(|before| tokens.get(before))
            .map(|token| &token.token);
        match &token.token {
            Token::LParen | Token::LBracket | Token::LBrace => {
                let chain = chains
                    .last_mut()
                    .expect("the statement's own chain is never popped");
                chain.operators += usize::from(token.token == Token::LBracket);
                chains.push(Chain::default());
            }
            Token::RParen | Token::RBracket | Token::RBrace if chains.len() > 1 => {
                chains.pop();
            }
            Token::Lt if before.is_some_and(|before| is_word(before, &["array", "struct", "map"])) => {
                types += 1
            }
            Token::Gt => types = types.saturating_sub(1),
            Token::ShiftRight => types = types.saturating_sub(2),
            _ => {}
        }
        let levels = chains.len() + types;
        let chain = chains
            .last_mut()
            .expect("the statement's own chain is never popped");
        chain.take(&token.token, before);
        let position = || offset_of(token.span.start).unwrap_or(0);
        if levels > NESTING_MAX || chain.operators > CHAIN_MAX {
            return Err(too_complex(position()));
        }
        if chain.sets > SETS_MAX {
            return Err(too_many_chained().at(position()));
        }
    }
    Ok(())
}

/// The error for a statement that is nested too deeply, at a byte offset.
pub(crate) fn too_complex(position: usize) -> SqlError {
    SqlError::new(SqlState::StatementTooComplex, "the statement is nested too deeply")
        .with_hint(format!(
            "At most {NESTING_MAX} levels and {CHAIN_MAX} operators in a row are read: split it with WITH or into views."
        ))
        .at(position)
}

/// The error for a chain of too many UNIONs.
pub(crate) fn too_many_chained() -> SqlError {
    SqlError::new(SqlState::StatementTooComplex, "too many queries are chained").with_hint(format!(
        "At most {} are read: make views of parts of the chain.",
        SETS_MAX + 1
    ))
}

/// What stands in a row at one level of nesting.
#[derive(Default)]
struct Chain {
    operators: usize,
    sets: usize,
}

impl Chain {
    fn take(&mut self, token: &Token, before: Option<&Token>) {
        match token {
            Token::Comma => self.operators = 0,
            Token::Word(_) if is_word(token, &["union", "intersect", "except", "minus"]) => {
                self.sets += 1;
                self.operators = 0;
            }
            Token::Word(_) if is_word(token, &CLAUSES) => self.operators = 0,
            Token::Word(_) if is_word(token, &["interval"]) => {
                // A literal follows; anything else makes the parser go down one level for each.
                self.operators += if before.is_some_and(|before| is_word(before, &["interval"])) {
                    100
                } else {
                    0
                };
            }
            Token::Word(_) if is_word(token, &OPERATOR_WORDS) => self.operators += 1,
            Token::Word(_)
            | Token::Number(..)
            | Token::SingleQuotedString(_)
            | Token::Period
            | Token::LParen
            | Token::LBracket
            | Token::LBrace
            | Token::RParen
            | Token::RBracket
            | Token::RBrace => {}
            _ => self.operators += 1,
        }
    }
}

const CLAUSES: [&str; 12] = [
    "select", "from", "where", "group", "having", "order", "limit", "when", "then", "else", "on", "window",
];
const OPERATOR_WORDS: [&str; 18] = [
    "and", "or", "xor", "not", "is", "isnull", "notnull", "like", "ilike", "similar", "regexp", "rlike",
    "between", "in", "overlaps", "collate", "at", "operator",
];

/// Whether the token is one of these words, unquoted.
pub(crate) fn is_word(token: &Token, words: &[&str]) -> bool {
    matches!(token, Token::Word(word)
        if word.quote_style.is_none() && words.iter().any(|known| word.value.eq_ignore_ascii_case(known)))
}
