//! Ranks in PostgreSQL's types: `row_number()`, `rank()` and `dense_rank()` are BIGINT and `ntile()` is INTEGER. DataFusion's are
//! integers without a sign, which meet others as NUMERIC and have no negative.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use arrow::array::ArrayRef;
use arrow::compute::{SortOptions, cast};
use arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::common::{Result as PlanResult, ScalarValue};
use datafusion::logical_expr::function::{ExpressionArgs, PartitionEvaluatorArgs, WindowUDFFieldArgs};
use datafusion::logical_expr::window_state::WindowAggState;
use datafusion::logical_expr::{
    Documentation, LimitEffect, PartitionEvaluator, ReversedUDWF, Signature, WindowUDF, WindowUDFImpl,
};
use datafusion::physical_expr::PhysicalExpr;

/// The functions, and their types.
const RANKS: [(&str, DataType); 4] = [
    ("row_number", DataType::Int64),
    ("rank", DataType::Int64),
    ("dense_rank", DataType::Int64),
    ("ntile", DataType::Int32),
];

/// The functions with ranks of these types.
pub(super) fn with_signs(
    mut functions: BTreeMap<String, Arc<WindowUDF>>,
) -> BTreeMap<String, Arc<WindowUDF>> {
    for (name, data_type) in RANKS {
        if let Some(function) = functions.get_mut(name) {
            let inner = Arc::clone(function);
            *function = Arc::new(WindowUDF::from(Signed { inner, data_type }));
        }
    }
    functions
}

/// A function that counts, in a type with a sign.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Signed {
    inner: Arc<WindowUDF>,
    data_type: DataType,
}

impl WindowUDFImpl for Signed {
    fn name(&self) -> &str {
        self.inner.inner().name()
    }

    fn aliases(&self) -> &[String] {
        self.inner.inner().aliases()
    }

    fn signature(&self) -> &Signature {
        self.inner.inner().signature()
    }

    fn expressions(&self, args: ExpressionArgs) -> Vec<Arc<dyn PhysicalExpr>> {
        self.inner.inner().expressions(args)
    }

    fn partition_evaluator(&self, args: PartitionEvaluatorArgs) -> PlanResult<Box<dyn PartitionEvaluator>> {
        Ok(Box::new(SignedEvaluator {
            inner: self.inner.inner().partition_evaluator(args)?,
            data_type: self.data_type.clone(),
        }))
    }

    fn field(&self, args: WindowUDFFieldArgs) -> PlanResult<FieldRef> {
        let name = args.name().to_owned();
        let nullable = self.inner.inner().field(args)?.is_nullable();
        Ok(Arc::new(Field::new(name, self.data_type.clone(), nullable)))
    }

    fn sort_options(&self) -> Option<SortOptions> {
        self.inner.inner().sort_options()
    }

    fn coerce_types(&self, types: &[DataType]) -> PlanResult<Vec<DataType>> {
        self.inner.inner().coerce_types(types)
    }

    fn reverse_expr(&self) -> ReversedUDWF {
        self.inner.inner().reverse_expr()
    }

    fn documentation(&self) -> Option<&Documentation> {
        self.inner.inner().documentation()
    }

    fn limit_effect(&self, args: &[Arc<dyn PhysicalExpr>]) -> LimitEffect {
        self.inner.inner().limit_effect(args)
    }
}

#[derive(Debug)]
struct SignedEvaluator {
    inner: Box<dyn PartitionEvaluator>,
    data_type: DataType,
}

impl PartitionEvaluator for SignedEvaluator {
    fn memoize(&mut self, state: &mut WindowAggState) -> PlanResult<()> {
        self.inner.memoize(state)
    }

    fn get_range(&self, row: usize, rows: usize) -> PlanResult<Range<usize>> {
        self.inner.get_range(row, rows)
    }

    fn is_causal(&self) -> bool {
        self.inner.is_causal()
    }

    fn evaluate_all(&mut self, values: &[ArrayRef], rows: usize) -> PlanResult<ArrayRef> {
        let ranks = self.inner.evaluate_all(values, rows)?;
        Ok(cast(&ranks, &self.data_type)?)
    }

    fn evaluate(&mut self, values: &[ArrayRef], range: &Range<usize>) -> PlanResult<ScalarValue> {
        self.inner.evaluate(values, range)?.cast_to(&self.data_type)
    }

    fn evaluate_all_with_rank(&self, rows: usize, peers: &[Range<usize>]) -> PlanResult<ArrayRef> {
        let ranks = self.inner.evaluate_all_with_rank(rows, peers)?;
        Ok(cast(&ranks, &self.data_type)?)
    }

    fn supports_bounded_execution(&self) -> bool {
        self.inner.supports_bounded_execution()
    }

    fn uses_window_frame(&self) -> bool {
        self.inner.uses_window_frame()
    }

    fn include_rank(&self) -> bool {
        self.inner.include_rank()
    }
}
