//! `generate_series` of constants in FROM: its rows can be made one after the other, without a list of all of them.

use arrow::datatypes::DataType;
use datafusion::common::ScalarValue;
use datafusion::logical_expr::{Cast, Expr, LogicalPlan, Unnest};

use crate::plan::functions::SERIES;
use crate::plan::functions::arrays::own::ELEMENTS;

/// The integers from a first one up or down to a last one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IntegerSeries {
    /// The first number.
    pub first: i64,
    /// No number is beyond it.
    pub last: i64,
    /// From one number to the next; not 0.
    pub step: i64,
}

impl IntegerSeries {
    /// The series that `unnest` gives the elements of, if it is one of constants and there is nothing else in its rows.
    #[must_use]
    pub fn of(unnest: &Unnest) -> Option<Self> {
        let LogicalPlan::Projection(projection) = unnest.input.as_ref() else {
            return None;
        };
        let ([list], LogicalPlan::EmptyRelation(empty)) =
            (projection.expr.as_slice(), projection.input.as_ref())
        else {
            return None;
        };
        let [(_, column)] = unnest.list_type_columns.as_slice() else {
            return None;
        };
        if !empty.produce_one_row || column.depth != 1 {
            return None;
        }
        Self::called(list)
    }

    /// How many numbers there are.
    #[must_use]
    pub fn rows(&self) -> i128 {
        let steps = (i128::from(self.last) - i128::from(self.first)) / i128::from(self.step);
        let is_empty = (self.last < self.first) == (self.step > 0) && self.last != self.first;
        if is_empty { 0 } else { steps + 1 }
    }

    fn called(expr: &Expr) -> Option<Self> {
        match expr {
            Expr::Alias(alias) => Self::called(&alias.expr),
            Expr::ScalarFunction(call) if call.name() == ELEMENTS => match call.args.as_slice() {
                [list] => Self::called(list),
                _ => None,
            },
            Expr::ScalarFunction(call) if call.name() == SERIES => {
                let values: Option<Vec<i64>> = call.args.iter().map(constant).collect();
                let (first, last, step) = match values?.as_slice() {
                    [first, last] => (*first, *last, 1),
                    [first, last, step] => (*first, *last, *step),
                    _ => return None,
                };
                (step != 0).then_some(Self { first, last, step })
            }
            _ => None,
        }
    }
}

/// The integer that a constant is.
fn constant(expr: &Expr) -> Option<i64> {
    match expr {
        Expr::Literal(ScalarValue::Int32(Some(value)), _) => Some(i64::from(*value)),
        Expr::Literal(ScalarValue::Int64(Some(value)), _) => Some(*value),
        Expr::Cast(Cast { expr, field }) => match (expr.as_ref(), field.data_type()) {
            (Expr::Literal(..), DataType::Int64) => constant(expr),
            // One that its type does not have is an error, which is told elsewhere.
            (Expr::Literal(..), DataType::Int32) => {
                constant(expr).filter(|value| i32::try_from(*value).is_ok())
            }
            _ => None,
        },
        _ => None,
    }
}
