//! What a query spells of arrays and rows, in words that DataFusion's planner has: constructors, subscripts, slices, fields,
//! `= ANY(array)`, `ROW(…)`.

use datafusion::sql::sqlparser::ast::{
    AccessExpr, BinaryOperator, Expr, Function, FunctionArg, FunctionArgExpr, FunctionArguments, Spanned,
    Subscript, Value,
};

use crate::calls::call;
use crate::plan::collected;
use crate::plan::functions::arrays::own;
use crate::plan::place::position_of;
use crate::plan::row_values;
use crate::plan::spelled::{number, plain_args};
use crate::plan::types::folded;
use crate::{SqlError, SqlState};

/// The bound of a slice that has none.
const BOUND: &str = "2147483647";

/// Rewrites an expression that has to do with arrays or rows; whether it was one.
///
/// # Errors
/// What no query can have, with its place.
pub(crate) fn in_our_words(expr: &mut Expr) -> Result<bool, SqlError> {
    compared_as_tuples(expr);
    row_values::beside_queries(expr)?;
    let replaced = match expr {
        Expr::Cast { expr: inner, .. } => {
            // Of an empty array the type is said by the cast.
            if let Expr::Array(array) = inner.as_mut()
                && array.elem.is_empty()
            {
                **inner = call(own::ARRAY, Vec::new());
                return Ok(true);
            }
            return Ok(false);
        }
        Expr::Array(array) if array.elem.is_empty() => return Err(empty_array(expr)),
        Expr::Array(array) => call(own::ARRAY, std::mem::take(&mut array.elem)),
        Expr::CompoundFieldAccess { access_chain, root } => {
            let is_name = matches!(root.as_ref(), Expr::Identifier(_));
            accessed(access_chain, is_name)?;
            return Ok(true);
        }
        Expr::AnyOp {
            left,
            compare_op,
            right,
            ..
        } if !is_query(right) => quantified("any", left, compare_op, right)?,
        Expr::AllOp {
            left,
            compare_op,
            right,
        } if !is_query(right) => quantified("all", left, compare_op, right)?,
        Expr::Like { any: true, .. } | Expr::ILike { any: true, .. } => match any_pattern(expr) {
            Some(chain) => chain,
            None => return Ok(false),
        },
        Expr::Like { .. } | Expr::ILike { .. } => match all_patterns(expr) {
            Some(chain) => chain,
            None => return Ok(false),
        },
        Expr::Function(function) if is_array_of_query(function) => array_of_query(function)?,
        Expr::Function(function) if row_fields(function).is_some() => {
            call(own::ROW, row_fields(function).unwrap_or_default())
        }
        _ => return Ok(false),
    };
    *expr = replaced;
    Ok(true)
}

/// Rows that are compared become tuples in their places.
fn compared_as_tuples(expr: &mut Expr) {
    match expr {
        Expr::BinaryOp { left, right, .. }
        | Expr::IsDistinctFrom(left, right)
        | Expr::IsNotDistinctFrom(left, right)
            if (is_row(left) || is_query(left)) && (is_row(right) || is_query(right)) =>
        {
            as_tuple(left);
            as_tuple(right);
        }
        Expr::InList { expr, list, .. } if is_row(expr) && list.iter().all(is_row) => {
            as_tuple(expr);
            list.iter_mut().for_each(as_tuple);
        }
        Expr::InSubquery { expr, .. } => as_tuple(expr),
        Expr::AnyOp { left, right, .. } | Expr::AllOp { left, right, .. } if is_query(right) => {
            as_tuple(left)
        }
        _ => {}
    }
}

/// Puts a call in the place of IS DISTINCT FROM with a constant in quotes, whose type follows from the other side.
pub(crate) fn untyped_distinct(expr: &mut Expr) {
    let (name, left, right) = match expr {
        Expr::IsDistinctFrom(left, right) => (own::DISTINCT, left, right),
        Expr::IsNotDistinctFrom(left, right) => (own::NOT_DISTINCT, left, right),
        _ => return,
    };
    if is_quoted(left) || is_quoted(right) {
        *expr = call(name, vec![left.as_ref().clone(), right.as_ref().clone()]);
    }
}

fn placed(error: SqlError, expr: &Expr) -> SqlError {
    match position_of(expr.span()) {
        Some(position) => error.at(position),
        None => error,
    }
}

fn empty_array(expr: &Expr) -> SqlError {
    let error = SqlError::new(
        SqlState::IndeterminateDatatype,
        "cannot determine type of empty array",
    )
    .with_hint("Explicitly cast to the desired type, for example ARRAY[]::integer[].");
    placed(error, expr)
}

/// Gives slices both of their bounds, and fields as texts, which is how DataFusion's planner takes them.
fn accessed(chain: &mut [AccessExpr], root_is_name: bool) -> Result<(), SqlError> {
    // Names at the beginning are those of a relation, its column and the fields of that.
    let mut is_name = root_is_name;
    for access in chain {
        match access {
            AccessExpr::Dot(field) => {
                if let Expr::Identifier(ident) = field
                    && !is_name
                {
                    let name = Value::SingleQuotedString(folded(ident));
                    *field = Expr::Value(name.with_span(ident.span));
                }
            }
            AccessExpr::Subscript(Subscript::Slice {
                lower_bound,
                upper_bound,
                stride,
            }) => {
                is_name = false;
                if let Some(stride) = stride {
                    return Err(placed(SqlError::unsupported("a slice with a stride"), stride));
                }
                lower_bound.get_or_insert_with(|| number("1"));
                upper_bound.get_or_insert_with(|| number(BOUND));
            }
            AccessExpr::Subscript(Subscript::Index { .. }) => is_name = false,
        }
    }
    Ok(())
}

fn is_query(expr: &Expr) -> bool {
    match expr {
        Expr::Subquery(_) => true,
        Expr::Nested(inner) => is_query(inner),
        _ => false,
    }
}

/// The elements of an array that is written in place.
fn written_elements(expr: &Expr) -> Option<&[Expr]> {
    match expr {
        Expr::Array(array) if !array.elem.is_empty() => Some(&array.elem),
        Expr::Nested(inner) => written_elements(inner),
        _ => None,
    }
}

/// `left op ANY(right)`, `left op ALL(right)`
fn quantified(quantifier: &str, left: &Expr, op: &BinaryOperator, right: &Expr) -> Result<Expr, SqlError> {
    let elements = written_elements(right);
    let is_flat = elements.is_some_and(|elements| !elements.iter().any(|e| matches!(e, Expr::Array(_))));
    let op_name = match op {
        BinaryOperator::Eq => "=",
        BinaryOperator::NotEq => "<>",
        BinaryOperator::Lt => "<",
        BinaryOperator::LtEq => "<=",
        BinaryOperator::Gt => ">",
        BinaryOperator::GtEq => ">=",
        other => {
            let joined = match quantifier {
                "any" => BinaryOperator::Or,
                _ => BinaryOperator::And,
            };
            let chain = elements.and_then(|elements| {
                let each = elements.iter().map(|element| Expr::BinaryOp {
                    left: Box::new(nested(left)),
                    op: other.clone(),
                    right: Box::new(nested(element)),
                });
                chained(each, &joined)
            });
            return chain.ok_or_else(|| {
                let shown = quantifier.to_uppercase();
                placed(
                    SqlError::unsupported(format!(
                        "{other} {shown}() of an array that is not written in place"
                    ))
                    .with_hint(format!("Write {shown}(ARRAY[…]), or EXISTS over unnest().")),
                    right,
                )
            });
        }
    };
    Ok(match (quantifier, op_name, elements) {
        ("any", "=", Some(elements)) if is_flat => in_list(left, elements, false),
        ("all", "<>", Some(elements)) if is_flat => in_list(left, elements, true),
        _ => {
            let right = match right {
                // A constant in quotes takes its type from the left side.
                Expr::Value(_) => right.clone(),
                right => call(own::ELEMENTS, vec![right.clone()]),
            };
            call(
                format!("{quantifier} {op_name}").as_str(),
                vec![left.clone(), right],
            )
        }
    })
}

fn in_list(left: &Expr, elements: &[Expr], negated: bool) -> Expr {
    Expr::InList {
        expr: Box::new(left.clone()),
        list: elements.to_vec(),
        negated,
    }
}

fn nested(expr: &Expr) -> Expr {
    match expr {
        Expr::BinaryOp { .. } => Expr::Nested(Box::new(expr.clone())),
        other => other.clone(),
    }
}

fn chained(conditions: impl Iterator<Item = Expr>, op: &BinaryOperator) -> Option<Expr> {
    let chain = conditions.reduce(|left, right| Expr::BinaryOp {
        left: Box::new(left),
        op: op.clone(),
        right: Box::new(right),
    });
    chain.map(|chain| Expr::Nested(Box::new(chain)))
}

/// `text LIKE ANY(ARRAY[…])` as one LIKE for each pattern; NOT LIKE ANY is not NOT (LIKE ANY).
fn any_pattern(expr: &Expr) -> Option<Expr> {
    let pattern = match expr {
        Expr::Like { pattern, .. } | Expr::ILike { pattern, .. } => pattern,
        _ => return None,
    };
    let each = one_pattern_each(expr, written_elements(pattern)?);
    chained(each, &BinaryOperator::Or)
}

/// `text LIKE ALL(ARRAY[…])`, whose pattern the parser takes for the call of a function.
fn all_patterns(expr: &Expr) -> Option<Expr> {
    let pattern = match expr {
        Expr::Like { pattern, .. } | Expr::ILike { pattern, .. } => pattern,
        _ => return None,
    };
    let Expr::Function(all) = pattern.as_ref() else {
        return None;
    };
    let args = plain_args(all);
    let ([array], true) = (args.as_slice(), all.name.to_string().eq_ignore_ascii_case("all")) else {
        return None;
    };
    chained(
        one_pattern_each(expr, written_elements(array)?),
        &BinaryOperator::And,
    )
}

/// The LIKE once for each of the patterns.
fn one_pattern_each<'e>(expr: &'e Expr, patterns: &'e [Expr]) -> impl Iterator<Item = Expr> + 'e {
    patterns.iter().map(|own| {
        let mut like = expr.clone();
        if let Expr::Like { any, pattern, .. } | Expr::ILike { any, pattern, .. } = &mut like {
            *any = false;
            **pattern = own.clone();
        }
        like
    })
}

/// What stands in `ROW(…)`.
fn row_fields(function: &Function) -> Option<Vec<Expr>> {
    if function.name.to_string().to_lowercase() != "row" || function.over.is_some() {
        return None;
    }
    let FunctionArguments::List(list) = &function.args else {
        return None;
    };
    let fields = list.args.iter().map(|arg| match arg {
        FunctionArg::Unnamed(FunctionArgExpr::Expr(expr)) => Some(expr.clone()),
        _ => None,
    });
    fields.collect()
}

/// Whether it is a constant in quotes.
fn is_quoted(expr: &Expr) -> bool {
    match expr {
        Expr::Value(value) => matches!(
            value.value,
            Value::SingleQuotedString(_) | Value::EscapedStringLiteral(_) | Value::DollarQuotedString(_)
        ),
        _ => false,
    }
}

/// `ARRAY(SELECT …)`: the values of a query as an array, which is empty where there are none.
fn array_of_query(function: &mut Function) -> Result<Expr, SqlError> {
    let args = std::mem::replace(&mut function.args, FunctionArguments::None);
    let FunctionArguments::Subquery(query) = args else {
        return Err(SqlError::new(SqlState::InternalError, "ARRAY lost its query"));
    };
    let collected = collected::as_array(*query)?;
    let empty = Expr::Value(Value::SingleQuotedString("{}".to_owned()).with_empty_span());
    Ok(call("coalesce", vec![Expr::Subquery(Box::new(collected)), empty]))
}

fn is_array_of_query(function: &Function) -> bool {
    function.name.to_string().eq_ignore_ascii_case("array")
        && matches!(function.args, FunctionArguments::Subquery(_))
}

fn is_row(expr: &Expr) -> bool {
    match expr {
        Expr::Tuple(_) => true,
        Expr::Function(function) => row_fields(function).is_some(),
        Expr::Nested(inner) => is_row(inner),
        _ => false,
    }
}

/// `ROW(a, b)` as `(a, b)`, which comparisons are taken apart by.
fn as_tuple(expr: &mut Expr) {
    let fields = match expr {
        Expr::Function(function) => row_fields(function),
        Expr::Nested(inner) => return as_tuple(inner),
        _ => None,
    };
    if let Some(fields) = fields {
        *expr = Expr::Tuple(fields);
    }
}
