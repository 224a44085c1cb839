//! Comparisons of a subquery with the columns of the query around it.

use datafusion::logical_expr::{BinaryExpr, Expr, Operator};

/// The side of an equality that reads no outer column, and the one that reads nothing else.
pub(crate) fn equal_sides(condition: &Expr) -> Option<(&Expr, &Expr)> {
    let Expr::BinaryExpr(BinaryExpr {
        left,
        op: Operator::Eq,
        right,
    }) = condition
    else {
        return None;
    };
    let is_outer = |side: &Expr| side.contains_outer() && side.column_refs().is_empty();
    match (left.contains_outer(), right.contains_outer()) {
        (true, false) if is_outer(left) => Some((right, left)),
        (false, true) if is_outer(right) => Some((left, right)),
        _ => None,
    }
}
