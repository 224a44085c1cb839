//! Plans that are made once and run again with other values: a placeholder stands where a parameter of a statement does.
//!
//! ```text
//! statement ──with_typed_markers──▶ planned as any other ──reusable──▶ a plan with placeholders
//! ```
//!
//! A plan is reusable if what it answers depends on its rows and its values alone, and if it is the plan that any values would have.

use arrow::datatypes::{DataType, IntervalUnit};
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::logical_expr::expr::{Cast, Placeholder, ScalarFunction, TryCast};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::{Expr, LogicalPlan, Volatility};

use crate::SqlError;
use crate::jsonb::is_jsonb;
use crate::plan::parameters::marker;
use crate::plan::translate;

/// Whether a plan is the same for all values of a type. The digits of a NUMERIC are part of its type.
#[must_use]
pub fn is_alike(data_type: &DataType) -> bool {
    matches!(
        data_type,
        DataType::Boolean
            | DataType::Int16
            | DataType::Int32
            | DataType::Int64
            | DataType::Float64
            | DataType::Utf8
            | DataType::Date32
            | DataType::Timestamp(..)
            | DataType::Interval(IntervalUnit::MonthDayNano)
            | DataType::Decimal128(..)
            | DataType::List(_)
    ) || is_jsonb(data_type)
}

/// Whether a node chooses rows by an array that is a parameter: where it is known, it may be a list of keys, and the plan is another one.
fn chooses_by_array(node: &LogicalPlan) -> bool {
    if !matches!(node, LogicalPlan::Filter(_) | LogicalPlan::Join(_)) {
        return false;
    }
    let is_array = |expr: &Expr| {
        let Expr::Placeholder(placeholder) = expr else {
            return Ok(false);
        };
        let field = placeholder.field.as_ref();
        Ok(field.is_some_and(|field| matches!(field.data_type(), DataType::List(_))))
    };
    let mut expressions = node.expressions().into_iter();
    expressions.any(|expr| expr.exists(is_array).unwrap_or(true))
}

/// The plan with placeholders `$1`, `$2` and so on, of these types, in the place of markers; `None` for one that is to be made anew each
/// time.
///
/// # Errors
/// What DataFusion finds wrong with the plan.
pub fn reusable(plan: LogicalPlan, types: &[DataType]) -> Result<Option<LogicalPlan>, SqlError> {
    let plan = plan.transform_up_with_subqueries(|node| {
        let names = NamePreserver::new(&node);
        node.map_expressions(|expr| {
            let name = names.save(&expr);
            let expr = expr.transform_up(|expr| Ok(placeholder(expr, types)))?;
            Ok(expr.update_data(|expr| name.restore(expr)))
        })
    });
    let plan = plan.map_err(translate)?.data;
    let mut is_reusable = true;
    let walked = plan.apply_with_subqueries(|node| {
        is_reusable &= !matches!(
            node,
            LogicalPlan::Extension(_) | LogicalPlan::RecursiveQuery(_) | LogicalPlan::Explain(_)
        );
        is_reusable &= !chooses_by_array(node);
        node.apply_expressions(|expr| {
            expr.apply(|expr| {
                is_reusable &= is_pure(expr);
                Ok(match is_reusable {
                    true => TreeNodeRecursion::Continue,
                    false => TreeNodeRecursion::Stop,
                })
            })
        })
    });
    walked.map_err(translate)?;
    Ok(is_reusable.then_some(plan))
}

/// A cast of a marker as the placeholder of its type; anything else as it is.
fn placeholder(expr: Expr, types: &[DataType]) -> Transformed<Expr> {
    let (Expr::Cast(Cast { expr: inner, field }) | Expr::TryCast(TryCast { expr: inner, field })) = &expr
    else {
        return Transformed::no(expr);
    };
    match marker(inner) {
        Some((number, false))
            if number.checked_sub(1).and_then(|at| types.get(at)) == Some(field.data_type()) =>
        {
            let placeholder = Placeholder::new_with_field(format!("${number}"), Some(field.clone()));
            Transformed::yes(Expr::Placeholder(placeholder))
        }
        _ => Transformed::no(expr),
    }
}

/// Whether an expression gives the same for the same values whenever it is computed. A marker that is left is of a type that is not
/// known, and does not.
fn is_pure(expr: &Expr) -> bool {
    match expr {
        Expr::ScalarFunction(call) => {
            call.func.signature().volatility == Volatility::Immutable && !is_constant_quotient(call)
        }
        Expr::AggregateFunction(call) => call.func.signature().volatility == Volatility::Immutable,
        _ => true,
    }
}

/// Whether it is the quotient of constants of which one is a parameter: how many digits it has depends on the values.
fn is_constant_quotient(call: &ScalarFunction) -> bool {
    let any = |is: fn(&Expr) -> bool| {
        let mut args = call.args.iter();
        args.any(|arg| arg.exists(|expr| Ok(is(expr))).unwrap_or(true))
    };
    call.name() == "numeric_div"
        && any(|expr| matches!(expr, Expr::Placeholder(_)))
        && !any(|expr| matches!(expr, Expr::Column(_)))
}
