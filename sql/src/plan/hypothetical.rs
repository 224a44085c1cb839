//! The place that a row would have among those of a group: `rank(value) WITHIN GROUP (ORDER BY key)` and its kin, as counts.
//!
//! ```text
//! rank(3) WITHIN GROUP (ORDER BY x)          1 + count(*) FILTER (WHERE x < 3)
//! dense_rank(3)                              1 + count(DISTINCT x) FILTER (WHERE x < 3)
//! percent_rank(3)                            count(*) FILTER (WHERE x < 3) / count(*), 0 of no rows
//! cume_dist(3)                               (1 + count(*) FILTER (WHERE x <= 3)) / (1 + count(*))
//! ```

use datafusion::sql::sqlparser::ast::{
    BinaryOperator, CastKind, DataType, DuplicateTreatment, Expr, Function, FunctionArg, FunctionArgExpr,
    FunctionArguments, OrderByExpr,
};

use crate::SqlError;
use crate::calls::call;
use crate::parse::parse_expression;
use crate::plan::spelled::plain_args;

/// The counts that such a call stands for; `None` for any other call.
///
/// # Errors
/// Several keys (0A000).
pub(crate) fn as_counts(function: &Function) -> Result<Option<Expr>, SqlError> {
    let name = function.name.to_string().to_lowercase();
    let is_known = matches!(
        name.as_str(),
        "rank" | "dense_rank" | "percent_rank" | "cume_dist"
    );
    if !is_known || function.within_group.is_empty() || function.over.is_some() {
        return Ok(None);
    }
    let args = plain_args(function);
    let ([key], [value]) = (function.within_group.as_slice(), args.as_slice()) else {
        let what = format!("{name}() WITHIN GROUP with several keys");
        return Err(SqlError::unsupported(what).with_hint("Order by one key, or count the rows before it."));
    };
    let filter = function.filter.as_deref();
    let before = before(key, value, filter);
    let all = || count(filter.cloned());
    let one = parse_expression("1")?;
    let expr = match name.as_str() {
        "rank" => binary(one, BinaryOperator::Plus, count(Some(before))),
        "dense_rank" => {
            let places = distinct(&key.expr, Some(before.clone()));
            let sum = binary(one, BinaryOperator::Plus, places);
            match goes_nulls_first(key) {
                // count(DISTINCT …) leaves out NULL, which is a place too.
                true => {
                    let nulls = both(Expr::IsNull(Box::new(key.expr.clone())), filter);
                    let has_null = call("least", vec![count(Some(nulls)), parse_expression("1")?]);
                    binary(sum, BinaryOperator::Plus, has_null)
                }
                false => sum,
            }
        }
        "percent_rank" => {
            let part = quotient(
                count(Some(before)),
                call("nullif", vec![all(), parse_expression("0")?]),
            );
            call("coalesce", vec![part, float(parse_expression("0")?)])
        }
        _ => {
            let same = binary(key.expr.clone(), BinaryOperator::Eq, value.clone());
            let same = both(same, filter);
            let up_to = Expr::Nested(Box::new(binary(before, BinaryOperator::Or, same)));
            let up_to = binary(parse_expression("1")?, BinaryOperator::Plus, count(Some(up_to)));
            quotient(up_to, binary(one, BinaryOperator::Plus, all()))
        }
    };
    Ok(Some(Expr::Nested(Box::new(expr))))
}

fn goes_nulls_first(key: &OrderByExpr) -> bool {
    let is_descending = key.options.asc == Some(false);
    key.options.nulls_first.unwrap_or(is_descending)
}

/// Whether a row stands before the value.
fn before(key: &OrderByExpr, value: &Expr, filter: Option<&Expr>) -> Expr {
    let op = match key.options.asc {
        Some(false) => BinaryOperator::Gt,
        _ => BinaryOperator::Lt,
    };
    let compared = binary(key.expr.clone(), op, value.clone());
    let condition = match goes_nulls_first(key) {
        true => {
            let is_null = Expr::IsNull(Box::new(key.expr.clone()));
            Expr::Nested(Box::new(binary(compared, BinaryOperator::Or, is_null)))
        }
        false => compared,
    };
    both(condition, filter)
}

fn both(condition: Expr, filter: Option<&Expr>) -> Expr {
    match filter {
        Some(filter) => {
            let filter = Expr::Nested(Box::new(filter.clone()));
            binary(condition, BinaryOperator::And, filter)
        }
        None => condition,
    }
}

fn binary(left: Expr, op: BinaryOperator, right: Expr) -> Expr {
    Expr::BinaryOp {
        left: Box::new(left),
        op,
        right: Box::new(right),
    }
}

fn float(expr: Expr) -> Expr {
    Expr::Cast {
        kind: CastKind::Cast,
        expr: Box::new(expr),
        data_type: DataType::DoublePrecision,
        array: false,
        format: None,
    }
}

fn quotient(left: Expr, right: Expr) -> Expr {
    let nested = |expr: Expr| Expr::Nested(Box::new(expr));
    binary(float(nested(left)), BinaryOperator::Divide, float(nested(right)))
}

fn count(filter: Option<Expr>) -> Expr {
    counted(FunctionArgExpr::Wildcard, false, filter)
}

fn distinct(key: &Expr, filter: Option<Expr>) -> Expr {
    counted(FunctionArgExpr::Expr(key.clone()), true, filter)
}

fn counted(arg: FunctionArgExpr, is_distinct: bool, filter: Option<Expr>) -> Expr {
    let mut counts = call("count", Vec::new());
    if let Expr::Function(function) = &mut counts {
        function.filter = filter.map(Box::new);
        if let FunctionArguments::List(list) = &mut function.args {
            list.args.push(FunctionArg::Unnamed(arg));
            list.duplicate_treatment = is_distinct.then_some(DuplicateTreatment::Distinct);
        }
    }
    counts
}
