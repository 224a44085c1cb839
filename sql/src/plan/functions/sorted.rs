//! Aggregates with DISTINCT and ORDER BY, which sort what they have gathered themselves: in a read they take their rows in any order.
//!
//! DataFusion would turn such a call around where its rows come in the opposite order for another aggregate or from a query
//! below, and what it sorts would be turned around with it.

use std::sync::Arc;

use arrow::datatypes::{DataType, FieldRef};
use datafusion::common::tree_node::Transformed;
use datafusion::common::{Result as PlanResult, ScalarValue};
use datafusion::logical_expr::expr::AggregateFunction;
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::utils::AggregateOrderSensitivity;
use datafusion::logical_expr::{Accumulator, AggregateUDF, AggregateUDFImpl, Expr, LogicalPlan, Signature};

use crate::plan::rewrite;

/// Aggregates that sort by themselves where they tell values apart.
const SORTING: [&str; 2] = ["array_agg", "string_agg"];

/// The node with such aggregates.
///
/// # Errors
/// What DataFusion finds wrong with the rewritten node.
pub(crate) fn sorted_by_themselves(node: LogicalPlan) -> PlanResult<LogicalPlan> {
    if !matches!(node, LogicalPlan::Aggregate(_)) {
        return Ok(node);
    }
    let changed = rewrite::of_node(node, |expr, _| match expr {
        Expr::AggregateFunction(call) if is_sorting(&call) => {
            let func = Arc::new(AggregateUDF::from(Sorted { inner: call.func }));
            let call = AggregateFunction { func, ..call };
            Ok(Transformed::yes(Expr::AggregateFunction(call)))
        }
        other => Ok(Transformed::no(other)),
    })?;
    match changed.transformed {
        true => changed.data.recompute_schema(),
        false => Ok(changed.data),
    }
}

fn is_sorting(call: &AggregateFunction) -> bool {
    let params = &call.params;
    let is_sorting = params.distinct && !params.order_by.is_empty() && SORTING.contains(&call.func.name());
    is_sorting && !call.func.inner().is::<Sorted>()
}

/// An aggregate that sorts what it has gathered.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Sorted {
    inner: Arc<AggregateUDF>,
}

impl AggregateUDFImpl for Sorted {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn signature(&self) -> &Signature {
        self.inner.signature()
    }

    fn return_type(&self, args: &[DataType]) -> PlanResult<DataType> {
        self.inner.return_type(args)
    }

    fn return_field(&self, args: &[FieldRef]) -> PlanResult<FieldRef> {
        self.inner.return_field(args)
    }

    fn is_nullable(&self) -> bool {
        self.inner.is_nullable()
    }

    fn coerce_types(&self, args: &[DataType]) -> PlanResult<Vec<DataType>> {
        self.inner.coerce_types(args)
    }

    fn accumulator(&self, args: AccumulatorArgs<'_>) -> PlanResult<Box<dyn Accumulator>> {
        self.inner.accumulator(args)
    }

    fn state_fields(&self, args: StateFieldsArgs<'_>) -> PlanResult<Vec<FieldRef>> {
        self.inner.state_fields(args)
    }

    // DataFusion asks this of all that are not insensitive.
    fn with_beneficial_ordering(
        self: Arc<Self>,
        _is_ordered: bool,
    ) -> PlanResult<Option<Arc<dyn AggregateUDFImpl>>> {
        Ok(Some(self))
    }

    fn order_sensitivity(&self) -> AggregateOrderSensitivity {
        // The call keeps its ORDER BY, by which it sorts, and nothing is sorted for it; one that is insensitive would lose it.
        AggregateOrderSensitivity::SoftRequirement
    }

    fn default_value(&self, data_type: &DataType) -> PlanResult<ScalarValue> {
        self.inner.default_value(data_type)
    }

    fn supports_null_handling_clause(&self) -> bool {
        self.inner.supports_null_handling_clause()
    }
}
