//! Logical expression → physical expression over the columns of a plan node.

use std::sync::Arc;

use arrow::datatypes::{DataType, IntervalMonthDayNano, Schema, TimeUnit};
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{DFSchema, DataFusionError, ScalarValue};
use datafusion::logical_expr::Expr;
use datafusion::logical_expr::Operator;
use datafusion::logical_expr::execution_props::ExecutionProps;
use datafusion::logical_expr::physical_planning_context::PhysicalPlanningContext;
use datafusion::physical_expr::expressions::{BinaryExpr, Column, Literal};
use datafusion::physical_expr::{PhysicalExpr, create_physical_expr};

use crate::plan::context::planning_options;
use crate::plan::guarded::guarded;
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
                        let checked = with_plain_interval(binary, node)?.with_fail_on_overflow(true);
                        let checked: Arc<dyn PhysicalExpr> = Arc::new(checked);
                        Ok(Transformed::yes(checked))
                    }
                    _ => Ok(Transformed::no(expr)),
                }
            })
        })
        .and_then(|expr| guarded(expr.data))
        .map_err(translate)?;
    Ok(compiled)
}

fn overflows(op: Operator) -> bool {
    matches!(op, Operator::Plus | Operator::Minus | Operator::Multiply)
}

/// `timestamp ± interval` as a sum of integers, where the interval is a constant of whole microseconds without months
/// and the timestamp without time zone: then a day is 24 hours, and no row needs a calendar.
fn with_plain_interval(binary: &BinaryExpr, node: &Schema) -> Result<BinaryExpr, DataFusionError> {
    let is_timestamp = matches!(
        binary.left().data_type(node)?,
        DataType::Timestamp(TimeUnit::Microsecond, None)
    );
    let interval = binary.right().downcast_ref::<Literal>().map(Literal::value);
    let Some(ScalarValue::IntervalMonthDayNano(Some(interval))) = interval.filter(|_| is_timestamp) else {
        return Ok(binary.clone());
    };
    let Some(micros) = plain_micros(*interval) else {
        return Ok(binary.clone());
    };
    let duration = Arc::new(Literal::new(ScalarValue::DurationMicrosecond(Some(micros))));
    Ok(BinaryExpr::new(Arc::clone(binary.left()), *binary.op(), duration))
}

/// The length of an interval that is the same wherever it begins, if it is one of whole microseconds.
fn plain_micros(interval: IntervalMonthDayNano) -> Option<i64> {
    const DAY_US: i64 = 86_400_000_000;
    let whole = interval.months == 0 && interval.nanoseconds % 1_000 == 0;
    whole.then(|| i64::from(interval.days) * DAY_US + interval.nanoseconds / 1_000)
}

fn lost(column: &str) -> DataFusionError {
    external(SqlError::new(
        SqlState::InternalError,
        format!("column \"{column}\" was lost while planning"),
    ))
}

/// The index of a physical expression that is nothing but a column.
pub(crate) fn column_index(expr: &Arc<dyn PhysicalExpr>) -> Option<usize> {
    expr.downcast_ref::<Column>().map(Column::index)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_is_a_number_unless_it_has_months_or_fractions_of_a_microsecond() {
        let micros = |months, days, nanos| plain_micros(IntervalMonthDayNano::new(months, days, nanos));
        assert_eq!(micros(0, 0, 4_000_000_000), Some(4_000_000));
        assert_eq!(micros(0, -1, 1_000), Some(-86_399_999_999));
        assert_eq!(micros(1, 0, 0), None);
        assert_eq!(micros(0, 0, 1), None);
    }
}
