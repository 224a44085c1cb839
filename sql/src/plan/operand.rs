//! An argument of a checked operator, in the form that Arrow's kernels take.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, ArrowPrimitiveType, AsArray, Datum, PrimitiveArray, Scalar};
use datafusion::common::Result as PlanResult;
use datafusion::logical_expr::ColumnarValue;

/// An argument: a column, or a constant.
pub(crate) enum Operand {
    Column(ArrayRef),
    Constant(Scalar<ArrayRef>),
}

impl Operand {
    /// The operand that an argument is.
    ///
    /// # Errors
    /// A constant that has no column.
    pub(crate) fn of(value: &ColumnarValue) -> PlanResult<Self> {
        Ok(match value {
            ColumnarValue::Array(column) => Self::Column(Arc::clone(column)),
            ColumnarValue::Scalar(value) => Self::Constant(value.to_scalar()?),
        })
    }

    /// What kernels take.
    pub(crate) fn datum(&self) -> &dyn Datum {
        match self {
            Self::Column(column) => column,
            Self::Constant(value) => value,
        }
    }

    /// The values, which are of type `T`.
    pub(crate) fn values<T: ArrowPrimitiveType>(&self) -> OperandValues<'_, T> {
        let (values, is_constant) = self.datum().get();
        OperandValues {
            values: values.as_primitive(),
            is_constant,
        }
    }
}

/// The values of an [`Operand`].
pub(crate) struct OperandValues<'a, T: ArrowPrimitiveType> {
    values: &'a PrimitiveArray<T>,
    is_constant: bool,
}

impl<T: ArrowPrimitiveType> OperandValues<'_, T> {
    /// How many values there are: one of a constant.
    pub(crate) fn len(&self) -> usize {
        self.values.len()
    }

    /// The value of a row; `None` for NULL.
    pub(crate) fn get(&self, row: usize) -> Option<T::Native> {
        let row = if self.is_constant { 0 } else { row };
        self.values.is_valid(row).then(|| self.values.value(row))
    }

    /// Whether this holds for any value, those below NULL among them.
    pub(crate) fn any(&self, is_meant: impl Fn(T::Native) -> bool) -> bool {
        self.values.values().iter().any(|value| is_meant(*value))
    }

    /// How many rows an operator over both has; no more than one if both are constants.
    pub(crate) fn rows_with(&self, other: &Self) -> usize {
        match (self.is_constant, other.is_constant) {
            (true, _) => other.len(),
            _ => self.len(),
        }
    }
}
