//! `SIMILAR TO`: a pattern of SQL as the regular expression that means the same.

use std::iter::Peekable;
use std::str::Chars;

use datafusion::common::tree_node::Transformed;
use datafusion::common::{Result as PlanResult, ScalarValue};
use datafusion::logical_expr::{BinaryExpr, Expr, Like, Operator, lit};

use crate::plan::functions::{Functions, for_operator};
use crate::plan::translate::external;
use crate::{SqlError, SqlState};

/// The operator of regular expressions in place of SIMILAR TO, which DataFusion takes for one.
///
/// # Errors
/// A pattern that is no constant, or an escape of nothing.
pub(crate) fn as_regular_expression(expr: Expr) -> PlanResult<Transformed<Expr>> {
    let Expr::SimilarTo(Like {
        negated,
        expr: text,
        pattern,
        escape_char,
        ..
    }) = expr
    else {
        return Ok(Transformed::no(expr));
    };
    let regex = match pattern.as_ref() {
        Expr::Literal(ScalarValue::Utf8(Some(pattern)), _) => {
            regular_expression(pattern, escape_char.unwrap_or('\\')).map_err(external)?
        }
        _ => {
            let error = SqlError::unsupported("SIMILAR TO with a pattern that is no constant");
            return Err(external(error.with_hint("Use ~ and a regular expression.")));
        }
    };
    let op = match negated {
        true => Operator::RegexNotMatch,
        false => Operator::RegexMatch,
    };
    Ok(Transformed::yes(Expr::BinaryExpr(BinaryExpr::new(
        text,
        op,
        Box::new(lit(regex)),
    ))))
}

/// `LIKE … ESCAPE` with the one escape that the engine has, where the pattern is a constant.
///
/// # Errors
/// An escape of nothing.
pub(crate) fn with_backslash(expr: Expr) -> PlanResult<Transformed<Expr>> {
    let Expr::Like(like) = &expr else {
        return Ok(Transformed::no(expr));
    };
    let (Some(escape), Some(pattern)) = (
        like.escape_char.filter(|escape| *escape != '\\'),
        constant_text(&like.pattern),
    ) else {
        return Ok(Transformed::no(expr));
    };
    let mut spelled = String::new();
    let mut chars = pattern.chars();
    while let Some(char) = chars.next() {
        match char {
            _ if char == escape => {
                let escaped = chars.next().ok_or_else(|| {
                    let message = "LIKE pattern must not end with escape character";
                    external(SqlError::new(SqlState::InvalidEscapeSequence, message))
                })?;
                spelled.push('\\');
                spelled.push(escaped);
            }
            '\\' => spelled.push_str("\\\\"),
            _ => spelled.push(char),
        }
    }
    let like = Like {
        pattern: Box::new(lit(spelled)),
        escape_char: None,
        ..like.clone()
    };
    Ok(Transformed::yes(Expr::Like(like)))
}

/// The text that constants, perhaps joined to each other, make.
fn constant_text(expr: &Expr) -> Option<String> {
    match expr {
        Expr::Literal(ScalarValue::Utf8(text), _) => text.clone(),
        Expr::BinaryExpr(BinaryExpr {
            left,
            op: Operator::StringConcat,
            right,
        }) => Some(constant_text(left)? + &constant_text(right)?),
        _ => None,
    }
}

/// The operators of regular expressions with patterns that the engine reads; a pattern that is no constant is read for each
/// row by `regexp_like`.
///
/// # Errors
/// A pattern that looks around or back.
pub(crate) fn in_our_spelling(expr: Expr) -> PlanResult<Transformed<Expr>> {
    use Operator::{RegexIMatch, RegexMatch, RegexNotIMatch, RegexNotMatch};
    let Expr::BinaryExpr(BinaryExpr {
        left,
        op: op @ (RegexMatch | RegexIMatch | RegexNotMatch | RegexNotIMatch),
        right,
    }) = &expr
    else {
        return Ok(Transformed::no(expr));
    };
    if let Expr::Literal(ScalarValue::Utf8(Some(pattern)), _) = right.as_ref() {
        let spelled = for_operator(pattern).map_err(external)?;
        if spelled == *pattern {
            return Ok(Transformed::no(expr));
        }
        let spelled = BinaryExpr::new(left.clone(), *op, Box::new(lit(spelled)));
        return Ok(Transformed::yes(Expr::BinaryExpr(spelled)));
    }
    let Some(function) = Functions::all().scalar.get("regexp_like") else {
        return Ok(Transformed::no(expr));
    };
    let mut args = vec![left.as_ref().clone(), right.as_ref().clone()];
    if matches!(op, RegexIMatch | RegexNotIMatch) {
        args.push(lit("i"));
    }
    let call = function.call(args);
    Ok(Transformed::yes(match op {
        RegexNotMatch | RegexNotIMatch => Expr::Not(Box::new(call)),
        _ => call,
    }))
}

/// Outside of brackets `%` is any text, `_` any character, and what only regular expressions know stands for itself. An escaped
/// character is what it is in a regular expression, so that `\d` is a digit.
fn regular_expression(pattern: &str, escape: char) -> Result<String, SqlError> {
    let mut regex = String::from("^(?:");
    let mut chars = pattern.chars().peekable();
    while let Some(char) = chars.next() {
        match char {
            _ if char == escape => {
                let escaped = chars.next().ok_or_else(|| {
                    SqlError::new(
                        SqlState::InvalidParameterValue,
                        "SIMILAR TO pattern ends in its escape character",
                    )
                })?;
                regex.extend(['\\', escaped]);
            }
            '[' => brackets(&mut chars, &mut regex),
            '%' => regex.push_str(".*"),
            '_' => regex.push('.'),
            '(' => regex.push_str("(?:"),
            '.' | '^' | '$' | '\\' => regex.extend(['\\', char]),
            _ => regex.push(char),
        }
    }
    regex.push_str(")$");
    for_operator(&regex)
}

/// Copies what stands in brackets, with the classes in it (`[[:alpha:]_]`). Nothing is special there but the bracket that ends them.
fn brackets(chars: &mut Peekable<Chars<'_>>, regex: &mut String) {
    regex.push('[');
    regex.extend(chars.next_if_eq(&'^'));
    // The first one ends nothing.
    regex.extend(chars.next_if_eq(&']'));
    while let Some(char) = chars.next() {
        match char {
            '\\' => regex.push_str("\\\\"),
            _ => regex.push(char),
        }
        match char {
            ']' => return,
            '[' => {
                let Some(kind) = chars.next_if(|next| matches!(next, ':' | '.' | '=')) else {
                    continue;
                };
                regex.push(kind);
                let mut last = '\0';
                for inner in chars.by_ref() {
                    regex.push(inner);
                    if (last, inner) == (kind, ']') {
                        break;
                    }
                    last = inner;
                }
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_is_of_the_whole_text_and_its_wildcards_are_those_of_like() {
        let matches = |text: &str, pattern: &str| {
            let regex = regular_expression(pattern, '\\').unwrap();
            datafusion::functions::regex::compile_regex(&regex, None)
                .unwrap()
                .is_match(text)
        };
        assert!(matches("axyzbcb", "a_%(b|c)*"));
        assert!(matches("1.5%_", "1.5\\%[%_]"));
        assert!(!matches("1x5%_", "1.5\\%[%_]"));
        assert!(!matches("abc", "b"));
        assert!(matches("a_1", "[[:alnum:]_]+"));
        assert!(matches("]a", "[]a]+"));
        assert!(matches("12", "\\d+"));
        assert!(matches("a&&b", "[a&&b]+"));
        assert!(matches("a\nb", "a%b"));
        assert!(regular_expression("a\\", '\\').is_err());
    }
}
