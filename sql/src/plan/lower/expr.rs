//! Logical expression → physical expression over the columns of a plan node.

use std::sync::Arc;

use arrow::datatypes::Schema;
use datafusion::common::DFSchema;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::logical_expr::Expr;
use datafusion::logical_expr::Operator;
use datafusion::logical_expr::execution_props::ExecutionProps;
use datafusion::logical_expr::physical_planning_context::PhysicalPlanningContext;
use datafusion::physical_expr::expressions::{BinaryExpr, Column};
use datafusion::physical_expr::{PhysicalExpr, create_physical_expr};

use crate::plan::context::planning_options;
use crate::plan::translate::{external, translate};
use crate::{SqlError, SqlState};

/// Compiles `expr`, whose columns are those of `schema`, over a node in which column `i` of `schema` stands at
/// `columns[i]` and has the name it has in `node`. Arithmetic that overflows is an error, as in PostgreSQL.
pub(crate) fn compile(
    expr: &Expr,
    schema: &DFSchema,
    columns: &[usize],
    node: &Schema,
) -> Result<Arc<dyn PhysicalExpr>, SqlError> {
    let mut props = ExecutionProps::new();
    props.config_options = Some(Arc::new(planning_options().clone()));
    let compiled = create_physical_expr(expr, schema, &props, &PhysicalPlanningContext::default())
        .and_then(|expr| {
            expr.transform_up(|expr| {
                if let Some(column) = expr.downcast_ref::<Column>() {
                    let index = columns
                        .get(column.index())
                        .copied()
                        .ok_or_else(|| lost(column.name()))?;
                    let name = node
                        .fields()
                        .get(index)
                        .ok_or_else(|| lost(column.name()))?
                        .name();
                    let moved: Arc<dyn PhysicalExpr> = Arc::new(Column::new(name, index));
                    return Ok(Transformed::yes(moved));
                }
                match expr.downcast_ref::<BinaryExpr>() {
                    Some(binary) if overflows(*binary.op()) => {
                        let checked: Arc<dyn PhysicalExpr> =
                            Arc::new(binary.clone().with_fail_on_overflow(true));
                        Ok(Transformed::yes(checked))
                    }
                    _ => Ok(Transformed::no(expr)),
                }
            })
        })
        .map_err(translate)?;
    Ok(compiled.data)
}

fn overflows(op: Operator) -> bool {
    matches!(op, Operator::Plus | Operator::Minus | Operator::Multiply)
}

fn lost(column: &str) -> datafusion::common::DataFusionError {
    external(SqlError::new(
        SqlState::InternalError,
        format!("column \"{column}\" was lost while planning"),
    ))
}

/// The index of a physical expression that is nothing but a column.
pub(crate) fn column_index(expr: &Arc<dyn PhysicalExpr>) -> Option<usize> {
    expr.downcast_ref::<Column>().map(Column::index)
}
