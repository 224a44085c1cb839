//! Comparisons of rows, `(a, b) = (c, d)`, column by column: PostgreSQL takes a NULL in a row for unknown, and a comparison of
//! structs would take it for a value.
//!
//! ```text
//! (a, b) = (c, d)          a = c AND b = d            with <> it is a <> c OR b <> d
//! (a, b) < (c, d)          a < c OR a = c AND b < d   the last with <= for <=
//! (a, b) IN ((c, d), …)    (a, b) = (c, d) OR …
//! ```

use datafusion::sql::sqlparser::ast::{
    AccessExpr, BinaryOperator, Expr, GroupByExpr, Ident, Query, SelectItem, SetExpr, Spanned, TableFactor,
    TableWithJoins, UnaryOperator,
};

use crate::calls::call;
use crate::parse::parse_query;
use crate::plan::functions::arrays::own;
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

/// The relation and the columns of a query whose rows are taken as values.
pub(crate) const ROWS: &str = "__row";

/// Gives a subquery with which a row is compared one row in place of its columns:
///
/// ```text
/// (a, b) IN (SELECT x, y …)     ROW(a, b) IN (SELECT ROW(x, y) …), which `subquery::rows` takes apart; = ANY and <> ALL too
/// (a, b) < (SELECT x, y …)      (a, b) < ((SELECT ROW(x, y) …).f1, (SELECT ROW(x, y) …).f2)
/// ```
///
/// # Errors
/// Rows of different widths (42601), comparisons with ANY and ALL other than these.
pub(crate) fn beside_queries(expr: &mut Expr) -> Result<(), SqlError> {
    match expr {
        Expr::InSubquery {
            expr: left, subquery, ..
        } => {
            if let Some(columns) = row(left) {
                as_rows(subquery, columns.len())?;
                **left = call(own::ROW, columns.to_vec());
            }
        }
        Expr::AnyOp {
            left,
            compare_op,
            right,
            ..
        }
        | Expr::AllOp {
            left,
            compare_op,
            right,
        } => {
            let (Some(columns), Some(query)) = (row(left), query_of(right)) else {
                return Ok(());
            };
            if !matches!(compare_op, BinaryOperator::Eq | BinaryOperator::NotEq) {
                let what = format!("a row {compare_op} ANY or ALL of a subquery");
                return Err(SqlError::unsupported(what).with_hint("Write it with EXISTS."));
            }
            as_rows(query, columns.len())?;
            **left = call(own::ROW, columns.to_vec());
        }
        Expr::BinaryOp { left, right, .. } => {
            if let (Some(columns), Some(query)) = (row(left), query_of(right)) {
                let fields = query_fields(query, columns.len())?;
                **right = fields;
            } else if let (Some(query), Some(columns)) = (query_of(left), row(right)) {
                let fields = query_fields(query, columns.len())?;
                **left = fields;
            }
        }
        _ => {}
    }
    Ok(())
}

fn query_of(expr: &mut Expr) -> Option<&mut Query> {
    match expr {
        Expr::Subquery(query) => Some(query),
        Expr::Nested(inner) => query_of(inner),
        _ => None,
    }
}

/// The columns of the one row of a query, each as a field of it.
fn query_fields(query: &mut Query, width: usize) -> Result<Expr, SqlError> {
    as_rows(query, width)?;
    let fields = (1..=width).map(|at| Expr::CompoundFieldAccess {
        root: Box::new(Expr::Subquery(Box::new(query.clone()))),
        access_chain: vec![AccessExpr::Dot(Expr::Identifier(Ident::new(format!("f{at}"))))],
    });
    Ok(Expr::Tuple(fields.collect()))
}

/// Makes one row of the columns that a query selects.
fn as_rows(query: &mut Query, width: usize) -> Result<(), SqlError> {
    if let Some(list) = plain_list(query) {
        if list.len() != width {
            let which = if list.len() < width { "few" } else { "many" };
            let error = SqlError::new(SqlState::SyntaxError, format!("subquery has too {which} columns"));
            let place = list.first().and_then(|expr| position_of(expr.span()));
            return Err(match place {
                Some(place) => error.at(place),
                None => error,
            });
        }
        if let SetExpr::Select(select) = query.body.as_mut() {
            select.projection = vec![SelectItem::UnnamedExpr(call(own::ROW, list))];
        }
        return Ok(());
    }
    let names: Vec<String> = (1..=width).map(|at| format!("\"{ROWS}_{at}\"")).collect();
    let names = names.join(", ");
    let mut around = *parse_query(&format!("SELECT {names} FROM (SELECT 1) AS \"{ROWS}\" ({names})"))?;
    if let SetExpr::Select(select) = around.body.as_mut() {
        let columns = select.projection.iter().filter_map(|item| match item {
            SelectItem::UnnamedExpr(column) => Some(column.clone()),
            _ => None,
        });
        let row = call(own::ROW, columns.collect());
        select.projection = vec![SelectItem::UnnamedExpr(row)];
        if let Some(TableWithJoins {
            relation: TableFactor::Derived { subquery, .. },
            ..
        }) = select.from.first_mut()
        {
            std::mem::swap(subquery.as_mut(), query);
        }
    }
    *query = around;
    Ok(())
}

/// What a query selects, if nothing else in it can mean an item of that list by its place or its name.
fn plain_list(query: &Query) -> Option<Vec<Expr>> {
    let SetExpr::Select(select) = query.body.as_ref() else {
        return None;
    };
    let is_place = |expr: &Expr| matches!(expr, Expr::Value(_));
    let groups_are_plain = match &select.group_by {
        GroupByExpr::Expressions(groups, _) => !groups.iter().any(is_place),
        GroupByExpr::All(_) => false,
    };
    if query.order_by.is_some() || !groups_are_plain {
        return None;
    }
    let items = select.projection.iter().map(|item| match item {
        SelectItem::UnnamedExpr(expr) => Some(expr.clone()),
        _ => None,
    });
    items.collect()
}
