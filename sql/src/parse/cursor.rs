//! A place in a statement's tokens, from which words, names, expressions and queries are read.

use datafusion::sql::sqlparser::ast;
use datafusion::sql::sqlparser::dialect::Dialect;
use datafusion::sql::sqlparser::parser::{Parser, ParserError};
use datafusion::sql::sqlparser::tokenizer::{Span, Token, TokenWithSpan};

use super::script::{StatementTokens, is_word, offset_of, too_complex};
use crate::error::{SqlError, SqlState};

/// Deepest recursion of sqlparser; it must fit [`super::deep_stack`].
const RECURSION_MAX: usize = 100;
/// Longest name in bytes, as in PostgreSQL.
const NAME_BYTES_MAX: usize = 63;
/// Words that cannot be names without quotes.
const RESERVED: [&str; 54] = [
    "all",
    "analyze",
    "and",
    "any",
    "array",
    "as",
    "asc",
    "both",
    "case",
    "cast",
    "check",
    "collate",
    "column",
    "constraint",
    "create",
    "cross",
    "default",
    "desc",
    "distinct",
    "do",
    "else",
    "end",
    "except",
    "false",
    "fetch",
    "for",
    "foreign",
    "from",
    "full",
    "grant",
    "group",
    "having",
    "in",
    "inner",
    "intersect",
    "into",
    "join",
    "left",
    "limit",
    "natural",
    "not",
    "null",
    "on",
    "or",
    "order",
    "right",
    "select",
    "table",
    "true",
    "union",
    "unique",
    "where",
    "window",
    "with",
];

/// Whether a name must be quoted because it is a word of the grammar.
pub(crate) fn is_reserved(word: &str) -> bool {
    RESERVED
        .iter()
        .any(|reserved| word.eq_ignore_ascii_case(reserved))
}

/// A name with its place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Name {
    pub(crate) text: String,
    pub(crate) position: usize,
}

/// Reads one statement.
pub(crate) struct Cursor<'a> {
    script: &'a str,
    statement: &'a StatementTokens,
    dialect: &'a dyn Dialect,
    parser: Parser<'a>,
}

impl<'a> Cursor<'a> {
    pub(crate) fn new(script: &'a str, statement: &'a StatementTokens, dialect: &'a dyn Dialect) -> Self {
        let parser = Self::parser_over(dialect, &statement.tokens);
        Self {
            script,
            statement,
            dialect,
            parser,
        }
    }

    fn parser_over(dialect: &'a dyn Dialect, tokens: &[TokenWithSpan]) -> Parser<'a> {
        Parser::new(dialect)
            .with_recursion_limit(RECURSION_MAX)
            .with_tokens_with_locations(tokens.to_vec())
    }

    /// Byte offset of the next token, or of the statement's end.
    pub(crate) fn position(&self) -> usize {
        match self.parser.peek_token_ref() {
            TokenWithSpan {
                token: Token::EOF, ..
            } => self.statement.bytes.end,
            token => offset_of(token.span.start).unwrap_or(self.statement.bytes.end),
        }
    }

    /// Index of the next token in the statement.
    pub(crate) fn index(&self) -> usize {
        let position = self.position();
        self.tokens()
            .partition_point(|token| offset_of(token.span.start).unwrap_or(0) < position)
    }

    /// The statement's tokens.
    pub(crate) fn tokens(&self) -> &'a [TokenWithSpan] {
        &self.statement.tokens
    }

    /// The script's text of a token.
    pub(crate) fn text_of(&self, token: &TokenWithSpan) -> &'a str {
        let bytes = offset_of(token.span.start).unwrap_or(0)..offset_of(token.span.end).unwrap_or(0);
        self.script.get(bytes).unwrap_or_default()
    }

    /// The script's text from the next token to the end of the statement.
    pub(crate) fn rest(&self) -> &'a str {
        let (from, to) = (self.position(), self.statement.bytes.end);
        self.script.get(from..to).unwrap_or_default()
    }

    /// The next token.
    pub(crate) fn peek(&self) -> &Token {
        &self.parser.peek_token_ref().token
    }

    /// The token after `n` others.
    pub(crate) fn peek_nth(&self, n: usize) -> &Token {
        &self.parser.peek_nth_token_ref(n).token
    }

    /// Takes the next token.
    pub(crate) fn take(&mut self) -> Token {
        self.parser.next_token().token
    }

    pub(crate) fn at_end(&self) -> bool {
        *self.peek() == Token::EOF
    }

    /// Whether these words stand next.
    pub(crate) fn sees(&self, words: &[&str]) -> bool {
        words
            .iter()
            .enumerate()
            .all(|(n, word)| is_word(self.peek_nth(n), &[word]))
    }

    /// Takes these words if they stand next.
    pub(crate) fn eat(&mut self, words: &[&str]) -> bool {
        let there = self.sees(words);
        if there {
            words.iter().for_each(|_| self.parser.advance_token());
        }
        there
    }

    /// Takes the token if it stands next.
    pub(crate) fn eat_token(&mut self, token: &Token) -> bool {
        self.parser.consume_token(token)
    }

    /// Takes these words.
    ///
    /// # Errors
    /// Something else stands there.
    pub(crate) fn expect(&mut self, words: &[&str]) -> Result<(), SqlError> {
        for word in words {
            if !self.eat(&[word]) {
                return Err(self.unexpected(&word.to_ascii_uppercase()));
            }
        }
        Ok(())
    }

    /// Takes the token.
    ///
    /// # Errors
    /// Something else stands there.
    pub(crate) fn expect_token(&mut self, token: &Token) -> Result<(), SqlError> {
        if self.eat_token(token) {
            Ok(())
        } else {
            Err(self.unexpected(&format!("\"{token}\"")))
        }
    }

    /// # Errors
    /// Something stands after the statement.
    pub(crate) fn expect_end(&self) -> Result<(), SqlError> {
        if self.at_end() {
            Ok(())
        } else {
            Err(self.unexpected("the end of the statement"))
        }
    }

    /// Takes a name: lower-cased unless quoted. `what` says what it names, as in "a column name".
    ///
    /// # Errors
    /// No name stands there, or it is reserved, empty or too long.
    pub(crate) fn name(&mut self, what: &str) -> Result<Name, SqlError> {
        let position = self.position();
        let (text, quoted) = match self.peek() {
            Token::Word(word) => (word.value.clone(), word.quote_style.is_some()),
            _ => return Err(self.unexpected(what)),
        };
        if !quoted && is_reserved(&text) {
            return Err(self
                .unexpected(what)
                .with_hint(format!("To use \"{text}\" as a name, put it in double quotes.")));
        }
        self.take();
        let text = if quoted { text } else { text.to_lowercase() };
        if text.is_empty() {
            return Err(SqlError::new(SqlState::SyntaxError, "a quoted name is empty").at(position));
        }
        if text.len() > NAME_BYTES_MAX {
            let message = format!("name \"{text}\" is longer than {NAME_BYTES_MAX} bytes");
            return Err(SqlError::new(SqlState::NameTooLong, message).at(position));
        }
        Ok(Name { text, position })
    }

    /// Takes the name of a catalog object, which may stand in schema `public`.
    ///
    /// # Errors
    /// As [`Cursor::name`], or another schema is named.
    pub(crate) fn object_name(&mut self, what: &str) -> Result<Name, SqlError> {
        let first = self.name(what)?;
        if !self.eat_token(&Token::Period) {
            return Ok(first);
        }
        if first.text != "public" {
            let message = format!("schema \"{}\" takes no objects", first.text);
            return Err(SqlError::new(SqlState::FeatureNotSupported, message)
                .with_hint("All objects are in the schema \"public\".")
                .at(first.position));
        }
        let name = self.name(what)?;
        if *self.peek() == Token::Period {
            return Err(self.unexpected("a name of at most two parts"));
        }
        Ok(name)
    }

    /// Takes a list of names in parentheses, if one stands there.
    ///
    /// # Errors
    /// The list is not one of names.
    pub(crate) fn name_list(&mut self, what: &str) -> Result<Vec<Name>, SqlError> {
        let mut names = Vec::new();
        if self.eat_token(&Token::LParen) {
            loop {
                names.push(self.name(what)?);
                if !self.eat_token(&Token::Comma) {
                    break;
                }
            }
            self.expect_token(&Token::RParen)?;
        }
        Ok(names)
    }

    /// Takes a text in single quotes.
    ///
    /// # Errors
    /// Something else stands there.
    pub(crate) fn string(&mut self, what: &str) -> Result<String, SqlError> {
        match self.peek() {
            Token::SingleQuotedString(text) | Token::EscapedStringLiteral(text) => {
                let text = text.clone();
                self.take();
                Ok(text)
            }
            _ => Err(self.unexpected(what)),
        }
    }

    /// Takes an expression.
    ///
    /// # Errors
    /// sqlparser's, with their place.
    pub(crate) fn expression(&mut self) -> Result<ast::Expr, SqlError> {
        self.parser
            .parse_expr()
            .map_err(|error| self.parser_error(&error))
    }

    /// Takes an expression that ends before the comma, the closing parenthesis or the `NOT NULL` of its column.
    ///
    /// # Errors
    /// sqlparser's, with their place; tokens that do not belong to the expression.
    pub(crate) fn column_expression(&mut self) -> Result<ast::Expr, SqlError> {
        let start = self.index();
        let mut end = self.element_end(start);
        let word = |index: usize, word: &str| is_word(&self.tokens()[index].token, &[word]);
        // sqlparser reads `expression NOT NULL` as a test.
        if end >= start + 3 && word(end - 2, "not") && word(end - 1, "null") && !word(end - 3, "is") {
            end -= 2;
        }
        self.expression_to(end)
    }

    /// Takes an expression that ends before the comma or the closing parenthesis of its column, or before one of `words`
    /// outside of parentheses.
    ///
    /// # Errors
    /// sqlparser's, with their place; tokens that do not belong to the expression.
    pub(crate) fn expression_before(&mut self, words: &[&[&str]]) -> Result<ast::Expr, SqlError> {
        let start = self.index();
        let end = self.element_end(start);
        let tokens = self.tokens();
        let mut open = 0usize;
        let stop = (start..end).find(|index| {
            match tokens[*index].token {
                Token::LParen | Token::LBracket => open += 1,
                Token::RParen | Token::RBracket => open = open.saturating_sub(1),
                _ => {}
            }
            let after_is = *index > start && is_word(&tokens[*index - 1].token, &["is"]);
            open == 0
                && *index > start
                && !after_is
                && words.iter().any(|words| {
                    let place = |n: usize| tokens.get(*index + n);
                    let mut each = words.iter().enumerate();
                    each.all(|(n, word)| place(n).is_some_and(|token| is_word(&token.token, &[word])))
                })
        });
        self.expression_to(stop.unwrap_or(end))
    }

    /// Takes the tokens before index `end` as one expression.
    fn expression_to(&mut self, end: usize) -> Result<ast::Expr, SqlError> {
        let start = self.index();
        if start >= end {
            return Err(self.unexpected("an expression"));
        }
        let mut parser = Self::parser_over(self.dialect, &self.tokens()[start..end]);
        let expression = parser.parse_expr().map_err(|error| self.parser_error(&error))?;
        let next = parser.peek_token_ref();
        if next.token != Token::EOF {
            return Err(self.syntax_error(offset_of(next.span.start), Some("the end of the expression")));
        }
        (start..end).for_each(|_| self.parser.advance_token());
        Ok(expression)
    }

    /// Index of the comma or closing parenthesis that ends the list element at `start`.
    fn element_end(&self, start: usize) -> usize {
        let mut open = 0usize;
        for (index, token) in self.tokens().iter().enumerate().skip(start) {
            match token.token {
                Token::LParen | Token::LBracket => open += 1,
                Token::RParen | Token::Comma if open == 0 => return index,
                Token::RParen | Token::RBracket => open = open.saturating_sub(1),
                _ => {}
            }
        }
        self.tokens().len()
    }

    /// Index of the parenthesis that closes the one that was taken last.
    pub(crate) fn closing(&self) -> usize {
        let tokens = self.tokens();
        let mut open = 0usize;
        for (index, token) in tokens.iter().enumerate().skip(self.index()) {
            match token.token {
                Token::LParen => open += 1,
                Token::RParen if open == 0 => return index,
                Token::RParen => open -= 1,
                _ => {}
            }
        }
        tokens.len()
    }

    /// Takes the list of a SELECT or of RETURNING.
    ///
    /// # Errors
    /// sqlparser's, with their place.
    pub(crate) fn select_list(&mut self) -> Result<Vec<ast::SelectItem>, SqlError> {
        self.parser
            .parse_comma_separated(Parser::parse_select_item)
            .map_err(|error| self.parser_error(&error))
    }

    /// Takes the list of relations that stands behind FROM.
    ///
    /// # Errors
    /// sqlparser's, with their place.
    pub(crate) fn relation_list(&mut self) -> Result<Vec<ast::TableWithJoins>, SqlError> {
        self.parser
            .parse_comma_separated(Parser::parse_table_and_joins)
            .map_err(|error| self.parser_error(&error))
    }

    /// Takes a type.
    ///
    /// # Errors
    /// sqlparser's, with their place.
    pub(crate) fn data_type(&mut self) -> Result<ast::DataType, SqlError> {
        if self.at_end() || matches!(self.peek(), Token::Comma | Token::RParen) {
            return Err(self.unexpected("a type"));
        }
        self.parser
            .parse_data_type()
            .map_err(|error| self.parser_error(&error))
    }

    /// Takes the tokens before index `end` as one query.
    ///
    /// # Errors
    /// sqlparser's, with their place; tokens that do not belong to the query.
    pub(crate) fn query_to(&mut self, end: usize) -> Result<Box<ast::Query>, SqlError> {
        let start = self.index();
        if start >= end {
            return Err(self.unexpected("a query"));
        }
        let mut parser = Self::parser_over(self.dialect, &self.tokens()[start..end]);
        let query = parser.parse_query().map_err(|error| self.parser_error(&error))?;
        let next = parser.peek_token_ref();
        if next.token != Token::EOF {
            return Err(self.syntax_error(offset_of(next.span.start), Some("the end of the query")));
        }
        (start..end).for_each(|_| self.parser.advance_token());
        match query.body.as_ref() {
            ast::SetExpr::Insert(_) if query.with.is_some() => {
                let error = SqlError::unsupported("INSERT behind WITH").at(self.position_at(start));
                Err(error.with_hint("Write INSERT INTO … WITH … SELECT …."))
            }
            ast::SetExpr::Insert(_) => Err(SqlError::unsupported("INSERT").at(self.position_at(start))),
            ast::SetExpr::Update(_) => Err(SqlError::unsupported("UPDATE").at(self.position_at(start))),
            ast::SetExpr::Delete(_) => Err(SqlError::unsupported("DELETE").at(self.position_at(start))),
            ast::SetExpr::Merge(_) => Err(SqlError::unsupported("MERGE").at(self.position_at(start))),
            _ => Ok(query),
        }
    }

    /// Takes the tokens before index `end` as `WITH name AS (…), …`.
    ///
    /// # Errors
    /// sqlparser's, with their place; tokens that are no such list.
    pub(crate) fn common_tables(&mut self, end: usize) -> Result<ast::With, SqlError> {
        let start = self.index();
        let mut tokens = self.tokens()[start..end].to_vec();
        // A list has no parser of its own: a query of one row ends it.
        let place = tokens.last().map_or(Span::empty(), |token| token.span);
        for token in [
            Token::make_keyword("SELECT"),
            Token::Number("1".to_owned(), false),
        ] {
            tokens.push(TokenWithSpan::new(token, place));
        }
        let mut parser = Self::parser_over(self.dialect, &tokens);
        let query = parser.parse_query().map_err(|error| self.parser_error(&error))?;
        let next = parser.peek_token_ref();
        if next.token != Token::EOF {
            return Err(self.syntax_error(offset_of(next.span.start), None));
        }
        (start..end).for_each(|_| self.parser.advance_token());
        query.with.ok_or_else(|| self.unexpected("WITH"))
    }

    fn position_at(&self, index: usize) -> usize {
        self.tokens()
            .get(index)
            .and_then(|token| offset_of(token.span.start))
            .unwrap_or(self.statement.bytes.end)
    }

    /// The error that the next token is not what the grammar wants.
    pub(crate) fn unexpected(&self, expected: &str) -> SqlError {
        self.syntax_error(Some(self.position()), Some(expected))
    }

    fn syntax_error(&self, position: Option<usize>, expected: Option<&str>) -> SqlError {
        let position = position.unwrap_or(self.statement.bytes.end);
        let tokens = self.tokens();
        let at = tokens
            .iter()
            .position(|token| offset_of(token.span.start) == Some(position));
        let word = |index: usize, words: &[&str]| {
            tokens
                .get(index)
                .is_some_and(|token| is_word(&token.token, words))
        };
        if at.is_some_and(|at| word(at, &["exclude"]) && word(at + 1, &["current", "group", "ties", "no"])) {
            return SqlError::unsupported("EXCLUDE in a window frame")
                .with_hint(
                    "Use two windows: one that ends before the current row, and one that begins after it.",
                )
                .at(position);
        }
        if at.is_some_and(|at| word(at, &["collate"])) {
            return SqlError::unsupported("COLLATE behind such an expression")
                .with_hint("Put the expression in parentheses: (…) COLLATE \"C\".")
                .at(position);
        }
        let found = at.map(|at| &tokens[at]);
        let message = match found {
            // What is in quotes may be a secret (INV-10).
            Some(token) if is_text(&token.token) => "syntax error at or near a text in quotes".to_owned(),
            Some(token) => format!("syntax error at or near \"{}\"", shortened(self.text_of(token))),
            None => "syntax error at end of input".to_owned(),
        };
        let error = SqlError::new(SqlState::SyntaxError, message).at(position);
        match expected {
            Some(expected) => error.with_detail(format!("Expected {expected}.")),
            None => error,
        }
    }

    fn parser_error(&self, error: &ParserError) -> SqlError {
        let text = match error {
            ParserError::RecursionLimitExceeded => return too_complex(self.position()),
            ParserError::TokenizerError(text) | ParserError::ParserError(text) => text,
        };
        let (text, position) = match text.rsplit_once(" at Line: 1, Column: ") {
            Some((text, column)) => (
                text,
                column
                    .trim()
                    .parse::<usize>()
                    .ok()
                    .and_then(|column| column.checked_sub(1)),
            ),
            None => (text.as_str(), None),
        };
        match text
            .strip_prefix("Expected: ")
            .and_then(|rest| rest.rsplit_once(", found: "))
        {
            Some((expected, _)) => self.syntax_error(position, Some(expected)),
            // The token is named by its place, and its name in the parser says nothing to a user.
            None if text.starts_with("No infix parser for token") => {
                self.syntax_error(Some(position.unwrap_or_else(|| self.position())), None)
            }
            None => {
                let mut detail = text.trim_end_matches('.').to_owned();
                detail.get_mut(..1).map(str::make_ascii_uppercase);
                self.syntax_error(Some(position.unwrap_or_else(|| self.position())), None)
                    .with_detail(format!("{detail}."))
            }
        }
    }
}

/// Whether the token is a text literal.
fn is_text(token: &Token) -> bool {
    matches!(
        token,
        Token::SingleQuotedString(_)
            | Token::EscapedStringLiteral(_)
            | Token::DollarQuotedString(_)
            | Token::UnicodeStringLiteral(_)
            | Token::NationalStringLiteral(_)
            | Token::HexStringLiteral(_)
            | Token::SingleQuotedByteStringLiteral(_)
    )
}

/// A token's text, short enough for a message.
fn shortened(text: &str) -> String {
    const CHARS_MAX: usize = 40;
    match text.char_indices().nth(CHARS_MAX) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}
