//! AND and OR of which a side may fail: it counts only for the rows that the other side leaves open, so that
//! `x <> 0 AND 10 / x > 1` fails for no row.
//!
//! PostgreSQL promises no order, but takes cheap conditions first and then from left to right, and people rely on it. A batch is
//! first computed as a whole; only if that fails are the rows looked at that one side leaves open.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use arrow::array::{AsArray, BooleanArray};
use arrow::compute::{and_kleene, or_kleene};
use arrow::datatypes::{FieldRef, Schema};
use arrow::record_batch::RecordBatch;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{DataFusionError, Result as PlanResult};
use datafusion::logical_expr::{ColumnarValue, Operator};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::{
    BinaryExpr, Column, InListExpr, IsNotNullExpr, IsNullExpr, LikeExpr, Literal, NotExpr,
};

/// The expression with each AND and OR guarded of which a side may fail.
///
/// # Errors
/// None of its own; what DataFusion finds wrong with the rewritten expression.
pub fn guarded(expr: Arc<dyn PhysicalExpr>) -> PlanResult<Arc<dyn PhysicalExpr>> {
    let guarded = expr.transform_up(|expr| match expr.downcast_ref::<BinaryExpr>() {
        Some(binary)
            if matches!(binary.op(), Operator::And | Operator::Or)
                && (may_fail(binary.left()) || may_fail(binary.right())) =>
        {
            let both: Arc<dyn PhysicalExpr> = Arc::new(Guarded { both: binary.clone() });
            Ok(Transformed::yes(both))
        }
        _ => Ok(Transformed::no(expr)),
    })?;
    Ok(guarded.data)
}

/// The parts of a condition that all hold where it holds, guarded or not.
pub(crate) fn conjuncts(condition: &Arc<dyn PhysicalExpr>) -> Vec<&Arc<dyn PhysicalExpr>> {
    let mut parts = Vec::new();
    let mut open = vec![condition];
    while let Some(expr) = open.pop() {
        let guarded = expr.downcast_ref::<Guarded>().map(|own| &own.both);
        match guarded.or_else(|| expr.downcast_ref::<BinaryExpr>()) {
            Some(both) if *both.op() == Operator::And => open.extend([both.right(), both.left()]),
            _ => parts.push(expr),
        }
    }
    parts
}

/// Whether computing an expression may fail for some row.
fn may_fail(expr: &Arc<dyn PhysicalExpr>) -> bool {
    let safe = match expr.downcast_ref::<BinaryExpr>() {
        Some(binary) => matches!(
            binary.op(),
            Operator::And
                | Operator::Or
                | Operator::Eq
                | Operator::NotEq
                | Operator::Lt
                | Operator::LtEq
                | Operator::Gt
                | Operator::GtEq
                | Operator::IsDistinctFrom
                | Operator::IsNotDistinctFrom
        ),
        None => {
            expr.is::<Column>()
                || expr.is::<Literal>()
                || expr.is::<InListExpr>()
                || expr.is::<IsNullExpr>()
                || expr.is::<IsNotNullExpr>()
                || expr.is::<LikeExpr>()
                || expr.is::<NotExpr>()
        }
    };
    !safe || expr.children().into_iter().any(may_fail)
}

/// AND or OR; a side may fail for rows in which the other one decides.
#[derive(Debug, Eq)]
struct Guarded {
    both: BinaryExpr,
}

impl Guarded {
    /// The result where one side fails for some row: first the left side with the right one for the rows that it leaves
    /// open; if it fails itself, the other way round.
    fn one_after_the_other(&self, batch: &RecordBatch) -> PlanResult<ColumnarValue> {
        let (left, right) = (self.both.left(), self.both.right());
        match left.evaluate(batch) {
            Ok(first) => self.with_the_rest(&first, right, batch),
            Err(failure) => match right.evaluate(batch) {
                Ok(first) => self.with_the_rest(&first, left, batch),
                Err(_) => Err(failure),
            },
        }
    }

    /// `rest` counts for the rows that `first` leaves open, and is computed for no others.
    fn with_the_rest(
        &self,
        first: &ColumnarValue,
        rest: &Arc<dyn PhysicalExpr>,
        batch: &RecordBatch,
    ) -> PlanResult<ColumnarValue> {
        let rows = batch.num_rows();
        let first = first.to_array(rows)?;
        let first = first.as_boolean();
        let is_and = *self.both.op() == Operator::And;
        let open: BooleanArray = first.iter().map(|value| Some(value != Some(!is_and))).collect();
        let rest = rest.evaluate_selection(batch, &open)?.into_array(rows)?;
        let result = match is_and {
            true => and_kleene(first, rest.as_boolean()),
            false => or_kleene(first, rest.as_boolean()),
        };
        result
            .map(|result| ColumnarValue::Array(Arc::new(result)))
            .map_err(DataFusionError::from)
    }
}

impl PhysicalExpr for Guarded {
    fn return_field(&self, input_schema: &Schema) -> PlanResult<FieldRef> {
        self.both.return_field(input_schema)
    }

    fn evaluate(&self, batch: &RecordBatch) -> PlanResult<ColumnarValue> {
        match self.both.evaluate(batch) {
            Ok(value) => Ok(value),
            Err(_) => self.one_after_the_other(batch),
        }
    }

    fn children(&self) -> Vec<&Arc<dyn PhysicalExpr>> {
        self.both.children()
    }

    fn with_new_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn PhysicalExpr>>,
    ) -> PlanResult<Arc<dyn PhysicalExpr>> {
        match <[_; 2]>::try_from(children) {
            Ok([left, right]) => Ok(Arc::new(Self {
                both: BinaryExpr::new(left, *self.both.op(), right),
            })),
            Err(_) => Err(DataFusionError::Internal("a condition needs two sides".into())),
        }
    }

    fn fmt_sql(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.both.fmt_sql(f)
    }
}

impl fmt::Display for Guarded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.both.fmt(f)
    }
}

impl PartialEq for Guarded {
    fn eq(&self, other: &Self) -> bool {
        self.both == other.both
    }
}

impl Hash for Guarded {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.both.hash(state);
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::{ArrayRef, Int64Array};
    use datafusion::common::ScalarValue;

    use super::*;

    fn binary(
        left: Arc<dyn PhysicalExpr>,
        op: Operator,
        right: Arc<dyn PhysicalExpr>,
    ) -> Arc<dyn PhysicalExpr> {
        Arc::new(BinaryExpr::new(left, op, right))
    }

    fn number(value: i64) -> Arc<dyn PhysicalExpr> {
        Arc::new(Literal::new(ScalarValue::Int64(Some(value))))
    }

    fn column() -> Arc<dyn PhysicalExpr> {
        Arc::new(Column::new("x", 0))
    }

    fn rows(values: &[Option<i64>]) -> RecordBatch {
        let x: ArrayRef = Arc::new(Int64Array::from(values.to_vec()));
        RecordBatch::try_from_iter_with_nullable([("x", x, true)]).unwrap()
    }

    /// `10 / x > 1`
    fn quotient() -> Arc<dyn PhysicalExpr> {
        binary(
            binary(number(10), Operator::Divide, column()),
            Operator::Gt,
            number(1),
        )
    }

    fn result(expr: Arc<dyn PhysicalExpr>, batch: &RecordBatch) -> PlanResult<Vec<Option<bool>>> {
        let value = guarded(expr)?.evaluate(batch)?.into_array(batch.num_rows())?;
        Ok(value.as_boolean().iter().collect())
    }

    #[test]
    fn a_row_that_the_left_side_decides_does_not_fail_on_the_right() {
        let batch = rows(&[Some(0), Some(2), None, Some(20)]);
        let both = binary(
            binary(column(), Operator::NotEq, number(0)),
            Operator::And,
            quotient(),
        );
        let found = result(both, &batch).unwrap();
        assert_eq!(found, [Some(false), Some(true), None, Some(false)]);
        let either = binary(
            binary(column(), Operator::Eq, number(0)),
            Operator::Or,
            quotient(),
        );
        let found = result(either, &batch).unwrap();
        assert_eq!(found, [Some(true), Some(true), None, Some(false)]);
    }

    #[test]
    fn the_order_of_the_sides_does_not_matter() {
        let batch = rows(&[Some(0), Some(2)]);
        let both = binary(
            quotient(),
            Operator::And,
            binary(column(), Operator::NotEq, number(0)),
        );
        assert_eq!(result(both, &batch).unwrap(), [Some(false), Some(true)]);
    }

    #[test]
    fn a_row_that_no_side_decides_fails() {
        let batch = rows(&[Some(0), Some(2)]);
        let both = binary(
            binary(column(), Operator::GtEq, number(0)),
            Operator::And,
            quotient(),
        );
        assert!(result(both, &batch).is_err());
    }

    #[test]
    fn nothing_is_guarded_that_cannot_fail() {
        let both = binary(
            binary(column(), Operator::Gt, number(0)),
            Operator::And,
            binary(column(), Operator::Lt, number(9)),
        );
        assert!(guarded(both).unwrap().is::<BinaryExpr>());
    }
}
