//! Joins in time as plain DataFusion.
//!
//! ```text
//! ASOF:      Filter rank = 1 ◀─ row_number() OVER (PARTITION BY left row ORDER BY right rows, the nearest first)
//!                                   ◀─ [Left] Join on all conditions ◀─ row_number() OVER () of the left rows
//! temporal:  [Left] Join: what the right side has is what it has now
//! ```

use std::sync::Arc;

use datafusion::common::{Column, Result as PlanResult, internal_err};
use datafusion::logical_expr::expr::{Sort, WindowFunction};
use datafusion::logical_expr::{
    Expr, ExprFunctionExt, LogicalPlan, LogicalPlanBuilder, Operator, WindowFunctionDefinition, lit,
};

use super::node::{TimeJoin, TimeJoinNode};
use crate::plan::functions::Functions;

/// The number of the left row, and the rank among its matches; nobody sees them.
const LEFT_ROW: &str = "__asof_row";
const RANK: &str = "__asof_rank";

/// The node as joins and window functions.
///
/// # Errors
/// Conditions that such a join cannot have.
pub(crate) fn plain(node: &TimeJoinNode) -> PlanResult<LogicalPlan> {
    let conditions: Vec<Expr> = node.conditions().cloned().collect();
    if node.kind == TimeJoin::Temporal {
        return LogicalPlanBuilder::from(node.left.clone())
            .join_on(node.right.clone(), node.join_type(), conditions)?
            .build();
    }
    let (nearest, _) = node.nearest()?;
    let last_first = matches!(nearest.op, Operator::Gt | Operator::GtEq);
    // As the engine has it: ascending with NULLs last, or just the other way round.
    let sorted = |expr: Expr| Sort::new(expr, !last_first, last_first);
    let order = std::iter::once(nearest.right)
        .chain(node.right.schema().columns().into_iter().map(Expr::Column))
        .map(sorted);
    let order: Vec<Sort> = order.collect();
    let columns = node.left.schema().columns().into_iter();
    let columns: Vec<Expr> = columns
        .chain(node.right.schema().columns())
        .map(Expr::Column)
        .collect();
    let left_row = Expr::Column(Column::new_unqualified(LEFT_ROW));
    let rank = row_number()?
        .partition_by(vec![left_row])
        .order_by(order)
        .build()?;
    LogicalPlanBuilder::from(node.left.clone())
        .window([row_number()?.alias(LEFT_ROW)])?
        .join_on(node.right.clone(), node.join_type(), conditions)?
        .window([rank.alias(RANK)])?
        .filter(Expr::Column(Column::new_unqualified(RANK)).eq(lit(1_i64)))?
        .project(columns)?
        .build()
}

fn row_number() -> PlanResult<Expr> {
    let Some(function) = Functions::all().window.get("row_number") else {
        return internal_err!("there is no row_number()");
    };
    let function = WindowFunctionDefinition::WindowUDF(Arc::clone(function));
    Ok(Expr::from(WindowFunction::new(function, Vec::new())))
}
