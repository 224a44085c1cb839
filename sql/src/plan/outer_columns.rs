//! Comparisons of a subquery with the columns of the query around it.

use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{DFSchema, DataFusionError, ExprSchema, Result as PlanResult};
use datafusion::logical_expr::{BinaryExpr, Expr, ExprSchemable, LogicalPlan, Operator, Subquery, cast};

use crate::plan::common_type;

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

/// The column that a subquery gives.
pub(crate) fn first_column(own: &Subquery) -> PlanResult<Expr> {
    let column = own.subquery.schema().columns().into_iter().next();
    let column = column.ok_or_else(|| DataFusionError::Internal("a subquery gives no column".into()))?;
    Ok(Expr::Column(column))
}

/// Both sides of a comparison in the type in which they meet.
pub(crate) fn alike(outer: &Expr, value: Expr, plan: &LogicalPlan) -> PlanResult<(Expr, Expr)> {
    let types = (outer.get_type(plan.schema())?, value.get_type(plan.schema())?);
    Ok(match common_type::common_type(&types.0, &types.1) {
        Some(common) if types.0 != types.1 => (cast(outer.clone(), common.clone()), cast(value, common)),
        _ => (outer.clone(), value),
    })
}

/// The expression as a subquery below it sees it.
pub(crate) fn outer_reference(expr: &Expr, schema: &DFSchema) -> PlanResult<Expr> {
    let outer = expr.clone().transform_up(|expr| match expr {
        Expr::Column(column) => {
            let field = Arc::clone(schema.field_from_column(&column)?);
            Ok(Transformed::yes(Expr::OuterReferenceColumn(field, column)))
        }
        other => Ok(Transformed::no(other)),
    })?;
    Ok(outer.data)
}
