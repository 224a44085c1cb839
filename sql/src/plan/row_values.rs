//! Comparisons of rows, `(a, b) = (c, d)`, column by column: PostgreSQL takes a NULL in a row for unknown, and a comparison of
//! structs would take it for a value.
//!
//! ```text
//! (a, b) = (c, d)          a = c AND b = d            with <> it is a <> c OR b <> d
//! (a, b) < (c, d)          a < c OR a = c AND b < d   the last with <= for <=
//! (a, b) IN ((c, d), …)    (a, b) = (c, d) OR …
//! ```

use datafusion::sql::sqlparser::ast::{BinaryOperator, Expr, Spanned, UnaryOperator};

use crate::plan::place::position_of;
use crate::{SqlError, SqlState};

/// The comparison of two rows as comparisons of their columns; `None` for anything else.
///
/// # Errors
/// Rows of different widths (42601), with the place.
pub(crate) fn by_column(expr: &Expr) -> Result<Option<Expr>, SqlError> {
    match expr {
        Expr::BinaryOp { left, op, right } => match (row(left), row(right)) {
            (Some(left), Some(right)) => comparison(left, op, right),
            _ => Ok(None),
        },
        Expr::IsDistinctFrom(left, right) => same(left, right).map(|same| same.map(negated)),
        Expr::IsNotDistinctFrom(left, right) => same(left, right),
        Expr::InList {
            expr,
            list,
            negated: is_negated,
        } => {
            let any = membership(expr, list)?;
            Ok(if *is_negated { any.map(negated) } else { any })
        }
        _ => Ok(None),
    }
}

/// The columns of a row that is written in place.
fn row(expr: &Expr) -> Option<&[Expr]> {
    match expr {
        Expr::Tuple(columns) if !columns.is_empty() => Some(columns),
        Expr::Nested(inner) => row(inner),
        _ => None,
    }
}

fn check_widths(left: &[Expr], right: &[Expr]) -> Result<(), SqlError> {
    if left.len() == right.len() {
        return Ok(());
    }
    let error = SqlError::new(
        SqlState::SyntaxError,
        "unequal number of entries in row expressions",
    );
    let place = right.first().and_then(|expr| position_of(expr.span()));
    Err(match place {
        Some(place) => error.at(place),
        None => error,
    })
}

fn comparison(left: &[Expr], op: &BinaryOperator, right: &[Expr]) -> Result<Option<Expr>, SqlError> {
    let strict = match op {
        BinaryOperator::Eq | BinaryOperator::NotEq => None,
        BinaryOperator::Lt | BinaryOperator::LtEq => Some(BinaryOperator::Lt),
        BinaryOperator::Gt | BinaryOperator::GtEq => Some(BinaryOperator::Gt),
        _ => return Ok(None),
    };
    check_widths(left, right)?;
    let pairs = || left.iter().zip(right);
    let each = || pairs().map(|(a, b)| binary(a.clone(), op.clone(), b.clone()));
    Ok(match (op, strict) {
        (_, Some(strict)) => ordered(pairs(), &strict, op),
        (BinaryOperator::NotEq, None) => joined(each(), &BinaryOperator::Or),
        (_, None) => joined(each(), &BinaryOperator::And),
    })
}

/// The first columns that differ decide; the last ones are compared with `last`.
fn ordered<'e>(
    pairs: impl DoubleEndedIterator<Item = (&'e Expr, &'e Expr)>,
    strict: &BinaryOperator,
    last: &BinaryOperator,
) -> Option<Expr> {
    pairs.rev().fold(None, |rest, (a, b)| {
        let Some(rest) = rest else {
            return Some(binary(a.clone(), last.clone(), b.clone()));
        };
        let decides = binary(a.clone(), strict.clone(), b.clone());
        let equal = binary(a.clone(), BinaryOperator::Eq, b.clone());
        Some(binary(
            decides,
            BinaryOperator::Or,
            binary(equal, BinaryOperator::And, rest),
        ))
    })
}

fn same(left: &Expr, right: &Expr) -> Result<Option<Expr>, SqlError> {
    let (Some(left), Some(right)) = (row(left), row(right)) else {
        return Ok(None);
    };
    check_widths(left, right)?;
    let each = left.iter().zip(right).map(|(a, b)| {
        Expr::Nested(Box::new(Expr::IsNotDistinctFrom(
            Box::new(nested(a.clone())),
            Box::new(nested(b.clone())),
        )))
    });
    Ok(joined(each, &BinaryOperator::And))
}

fn membership(expr: &Expr, list: &[Expr]) -> Result<Option<Expr>, SqlError> {
    let Some(left) = row(expr) else {
        return Ok(None);
    };
    let mut each = Vec::with_capacity(list.len());
    for other in list {
        let Some(right) = row(other) else {
            return Ok(None);
        };
        each.extend(comparison(left, &BinaryOperator::Eq, right)?);
    }
    Ok(joined(each.into_iter(), &BinaryOperator::Or))
}

fn joined(conditions: impl Iterator<Item = Expr>, op: &BinaryOperator) -> Option<Expr> {
    conditions.reduce(|left, right| binary(left, op.clone(), right))
}

/// A binary operation in parentheses, as it stands within others.
fn binary(left: Expr, op: BinaryOperator, right: Expr) -> Expr {
    nested(Expr::BinaryOp {
        left: Box::new(nested(left)),
        op,
        right: Box::new(nested(right)),
    })
}

fn nested(expr: Expr) -> Expr {
    match expr {
        Expr::BinaryOp { .. } => Expr::Nested(Box::new(expr)),
        other => other,
    }
}

fn negated(expr: Expr) -> Expr {
    Expr::UnaryOp {
        op: UnaryOperator::Not,
        expr: Box::new(expr),
    }
}
