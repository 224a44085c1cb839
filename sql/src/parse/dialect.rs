//! PostgreSQL's syntax for sqlparser, with a bound on the work that a text can cause.

use std::any::TypeId;
use std::cell::Cell;

use datafusion::sql::sqlparser::ast::{BinaryOperator, Expr, UnaryOperator};
use datafusion::sql::sqlparser::dialect::{Dialect, PostgreSqlDialect, Precedence};
use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::parser::{Parser, ParserError};
use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan};

use super::script::is_word;
use super::trim;

/// [`PostgreSqlDialect`], which gives up after a number of expression prefixes. sqlparser tries several readings of a
/// text one after the other; nested, the number of readings doubles with each level.
#[derive(Debug)]
pub(crate) struct HighwaterDialect {
    inner: PostgreSqlDialect,
    prefixes_left: Cell<u64>,
    /// Whether the text names the time as of which a table is read. Only then are words such as CHANGES no aliases.
    has_versions: bool,
}

impl Default for HighwaterDialect {
    fn default() -> Self {
        Self::for_tokens(&[])
    }
}

impl HighwaterDialect {
    /// A dialect for one text of these tokens.
    pub(crate) fn for_tokens(tokens: &[TokenWithSpan]) -> Self {
        Self {
            inner: PostgreSqlDialect {},
            prefixes_left: Cell::new(10_000 + 64 * tokens.len() as u64),
            has_versions: tokens.iter().any(|token| is_word(&token.token, &["system_time"])),
        }
    }
}

impl HighwaterDialect {
    /// A prefix operator and how tightly it binds: signs bind tighter than `^`, all others as loosely as the operators that
    /// have no place of their own.
    fn prefix_operator(&self, token: &Token) -> Option<(UnaryOperator, u8)> {
        let sign = self.prec_value(Precedence::AtTz) + 1;
        let other = self.prec_value(Precedence::PgOther);
        match token {
            Token::Minus => Some((UnaryOperator::Minus, sign)),
            Token::Plus => Some((UnaryOperator::Plus, sign)),
            Token::Tilde => Some((UnaryOperator::BitwiseNot, other)),
            Token::PGSquareRoot => Some((UnaryOperator::PGSquareRoot, other)),
            Token::PGCubeRoot => Some((UnaryOperator::PGCubeRoot, other)),
            Token::AtSign => Some((UnaryOperator::PGAbs, other)),
            _ => None,
        }
    }

    /// What follows `BETWEEN SYMMETRIC`: within the bounds, whichever of them is the lower one.
    fn between(
        &self,
        parser: &mut Parser,
        expr: &Expr,
        is_negated: bool,
        is_symmetric: bool,
    ) -> Result<Expr, ParserError> {
        let precedence = self.prec_value(Precedence::Between);
        let low = parser.parse_subexpr(precedence)?;
        parser.expect_keyword_is(Keyword::AND)?;
        let high = parser.parse_subexpr(precedence)?;
        let within = |low: &Expr, high: &Expr, negated: bool| Expr::Between {
            expr: Box::new(expr.clone()),
            negated,
            low: Box::new(low.clone()),
            high: Box::new(high.clone()),
        };
        if !is_symmetric {
            return Ok(within(&low, &high, is_negated));
        }
        let op = match is_negated {
            true => BinaryOperator::And,
            false => BinaryOperator::Or,
        };
        Ok(Expr::Nested(Box::new(Expr::BinaryOp {
            left: Box::new(within(&low, &high, is_negated)),
            op,
            right: Box::new(within(&high, &low, is_negated)),
        })))
    }
}

/// Whether a word that other databases reserve is a name here: nothing that it begins there follows it.
fn is_free(keyword: Keyword, parser: &Parser) -> bool {
    let next = keyword_at(parser, 0);
    match keyword {
        Keyword::TOP => true,
        Keyword::SORT | Keyword::CLUSTER => next != Keyword::BY,
        Keyword::START => next != Keyword::WITH,
        Keyword::ASOF => !matches!(next, Keyword::JOIN | Keyword::LEFT | Keyword::INNER),
        Keyword::FORMAT => !matches!(parser.peek_token_ref().token, Token::Word(_)) || next == Keyword::FROM,
        _ => false,
    }
}

/// The keyword that a token ahead is.
fn keyword_at(parser: &Parser, ahead: usize) -> Keyword {
    match &parser.peek_nth_token_ref(ahead).token {
        Token::Word(word) if word.quote_style.is_none() => word.keyword,
        _ => Keyword::NoKeyword,
    }
}

/// Forwards to [`PostgreSqlDialect`] what it overrides.
macro_rules! as_postgres {
    ($($name:ident)*) => { $(fn $name(&self) -> bool { self.inner.$name() })* };
}

impl Dialect for HighwaterDialect {
    fn dialect(&self) -> TypeId {
        TypeId::of::<PostgreSqlDialect>()
    }

    fn identifier_quote_style(&self, identifier: &str) -> Option<char> {
        self.inner.identifier_quote_style(identifier)
    }

    fn is_delimited_identifier_start(&self, ch: char) -> bool {
        self.inner.is_delimited_identifier_start(ch)
    }

    fn is_identifier_start(&self, ch: char) -> bool {
        self.inner.is_identifier_start(ch)
    }

    fn is_identifier_part(&self, ch: char) -> bool {
        self.inner.is_identifier_part(ch)
    }

    fn is_reserved_for_identifier(&self, keyword: Keyword) -> bool {
        self.inner.is_reserved_for_identifier(keyword)
    }

    fn is_custom_operator_part(&self, ch: char) -> bool {
        self.inner.is_custom_operator_part(ch)
    }

    fn get_next_precedence(&self, parser: &Parser) -> Option<Result<u8, ParserError>> {
        self.inner.get_next_precedence(parser)
    }

    fn prec_value(&self, precedence: Precedence) -> u8 {
        self.inner.prec_value(precedence)
    }

    fn parse_prefix(&self, parser: &mut Parser) -> Option<Result<Expr, ParserError>> {
        match self.prefixes_left.get() {
            0 => return Some(Err(ParserError::RecursionLimitExceeded)),
            left => self.prefixes_left.set(left - 1),
        }
        if trim::begins(parser) {
            return Some(trim::call(parser));
        }
        let (op, precedence) = self.prefix_operator(&parser.peek_token_ref().token)?;
        parser.advance_token();
        let operand = parser.parse_subexpr(precedence);
        Some(operand.map(|expr| Expr::UnaryOp {
            op,
            expr: Box::new(expr),
        }))
    }

    fn parse_infix(
        &self,
        parser: &mut Parser,
        expr: &Expr,
        _precedence: u8,
    ) -> Option<Result<Expr, ParserError>> {
        let is_negated = keyword_at(parser, 0) == Keyword::NOT;
        let between = usize::from(is_negated);
        if keyword_at(parser, between) != Keyword::BETWEEN {
            return None;
        }
        let is_symmetric = match keyword_at(parser, between + 1) {
            Keyword::SYMMETRIC => true,
            Keyword::ASYMMETRIC => false,
            _ => return None,
        };
        for _ in 0..between + 2 {
            parser.advance_token();
        }
        Some(self.between(parser, expr, is_negated, is_symmetric))
    }

    fn is_column_alias(&self, keyword: &Keyword, parser: &mut Parser) -> bool {
        is_free(*keyword, parser) || self.inner.is_column_alias(keyword, parser)
    }

    fn is_table_alias(&self, keyword: &Keyword, parser: &mut Parser) -> bool {
        is_free(*keyword, parser) || self.inner.is_table_alias(keyword, parser)
    }

    /// For `FOR SYSTEM_TIME AS OF`.
    fn supports_table_versioning(&self) -> bool {
        self.has_versions
    }

    /// For the type `STRUCT<a INT>`, which RisingWave has.
    fn supports_struct_literal(&self) -> bool {
        true
    }

    /// Each function call would be read twice, and its arguments four times, and so on: twelve calls in each other
    /// take seconds. All that is lost is `json_object('label': 'value')`.
    fn supports_named_fn_args_with_expr_name(&self) -> bool {
        false
    }

    as_postgres! {
        supports_unicode_string_literal supports_filter_during_aggregation supports_group_by_expr
        allow_extract_custom allow_extract_single_quotes supports_create_index_with_clause
        supports_explain_with_utility_options supports_listen_notify supports_factorial_operator
        supports_bitwise_shift_operators supports_comment_on supports_load_extension
        supports_named_fn_args_with_colon_operator supports_empty_projections
        supports_nested_comments supports_string_escape_constant supports_numeric_literal_underscores
        supports_array_typedef_with_brackets supports_geometric_types supports_set_names
        supports_alter_column_type_using supports_notnull_operator supports_interval_options
        supports_insert_table_alias supports_create_table_like_parenthesized supports_select_wildcard_with_alias
        supports_comma_separated_trim supports_xml_expressions
    }
}
