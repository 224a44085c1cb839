//! `SIMILAR TO`: a pattern of SQL as the regular expression that means the same.

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
    let (Some(escape), Expr::Literal(ScalarValue::Utf8(Some(pattern)), _)) = (
        like.escape_char.filter(|escape| *escape != '\\'),
        like.pattern.as_ref(),
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

/// Outside of brackets `%` is any text, `_` any character, and what only regular expressions know stands for itself.
fn regular_expression(pattern: &str, escape: char) -> Result<String, SqlError> {
    let mut regex = String::from("(?s)^(?:");
    let mut in_brackets = false;
    let mut chars = pattern.chars();
    while let Some(char) = chars.next() {
        match char {
            _ if char == escape => {
                let escaped = chars.next().ok_or_else(|| {
                    SqlError::new(
                        SqlState::InvalidParameterValue,
                        "SIMILAR TO pattern ends in its escape character",
                    )
                })?;
                push_literal(&mut regex, escaped);
            }
            ']' => {
                in_brackets = false;
                regex.push(char);
            }
            _ if in_brackets => regex.push(char),
            '[' => {
                in_brackets = true;
                regex.push(char);
            }
            '%' => regex.push_str(".*"),
            '_' => regex.push('.'),
            '(' => regex.push_str("(?:"),
            '.' | '^' | '$' | '\\' => push_literal(&mut regex, char),
            _ => regex.push(char),
        }
    }
    regex.push_str(")$");
    Ok(regex)
}

fn push_literal(regex: &mut String, char: char) {
    if char.is_ascii_punctuation() {
        regex.push('\\');
    }
    regex.push(char);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_is_of_the_whole_text_and_its_wildcards_are_those_of_like() {
        let regex = |pattern| regular_expression(pattern, '\\').unwrap();
        assert_eq!(regex("a_%(b|c)*"), "(?s)^(?:a..*(?:b|c)*)$");
        assert_eq!(regex("1.5\\%[%_]"), "(?s)^(?:1\\.5\\%[%_])$");
        assert!(regular_expression("a\\", '\\').is_err());
    }
}
