//! Aggregates over frames that move, of which nothing can be taken away: each frame is computed anew, as in PostgreSQL.

use std::fmt;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef};
use arrow::compute::concat;
use arrow::datatypes::{DataType, FieldRef, Schema};
use datafusion::common::{Result as PlanResult, ScalarValue, internal_err};
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::{Accumulator, AggregateUDF, AggregateUDFImpl, Signature, WindowFrame};
use datafusion::physical_expr::{PhysicalExpr, PhysicalSortExpr};

/// Aggregates that forget exactly what leaves the frame.
const RETRACTING: [&str; 6] = ["count", "sum", "avg", "min", "max", "array_agg"];

/// The function for a frame: one that computes frames anew, where that is needed.
pub(crate) fn in_frame(function: Arc<AggregateUDF>, frame: &WindowFrame) -> Arc<AggregateUDF> {
    let is_kept = RETRACTING.contains(&function.name()) || function.inner().is::<Framed>();
    match is_kept || frame.is_ever_expanding() {
        true => function,
        false => Arc::new(AggregateUDF::from(Framed { inner: function })),
    }
}

/// An aggregate over a frame that moves.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Framed {
    inner: Arc<AggregateUDF>,
}

impl AggregateUDFImpl for Framed {
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

    fn create_sliding_accumulator(&self, args: AccumulatorArgs<'_>) -> PlanResult<Box<dyn Accumulator>> {
        let call = Call::of(&self.inner, &args);
        let inner = self.inner.create_sliding_accumulator(args)?;
        Ok(match inner.supports_retract_batch() {
            true => inner,
            false => Box::new(Frame {
                call,
                columns: Vec::new(),
            }),
        })
    }

    fn state_fields(&self, args: StateFieldsArgs<'_>) -> PlanResult<Vec<FieldRef>> {
        self.inner.state_fields(args)
    }

    fn default_value(&self, data_type: &DataType) -> PlanResult<ScalarValue> {
        self.inner.default_value(data_type)
    }

    fn supports_null_handling_clause(&self) -> bool {
        self.inner.supports_null_handling_clause()
    }
}

/// An aggregate with what it is called with.
struct Call {
    function: Arc<AggregateUDF>,
    return_field: FieldRef,
    schema: Schema,
    order_bys: Vec<PhysicalSortExpr>,
    name: String,
    exprs: Vec<Arc<dyn PhysicalExpr>>,
    expr_fields: Vec<FieldRef>,
    ignore_nulls: bool,
    is_reversed: bool,
    is_distinct: bool,
}

impl Call {
    fn of(function: &Arc<AggregateUDF>, args: &AccumulatorArgs<'_>) -> Self {
        Self {
            function: Arc::clone(function),
            return_field: Arc::clone(&args.return_field),
            schema: args.schema.clone(),
            order_bys: args.order_bys.to_vec(),
            name: args.name.to_owned(),
            exprs: args.exprs.to_vec(),
            expr_fields: args.expr_fields.to_vec(),
            ignore_nulls: args.ignore_nulls,
            is_reversed: args.is_reversed,
            is_distinct: args.is_distinct,
        }
    }

    fn accumulator(&self) -> PlanResult<Box<dyn Accumulator>> {
        self.function.accumulator(AccumulatorArgs {
            return_field: Arc::clone(&self.return_field),
            schema: &self.schema,
            ignore_nulls: self.ignore_nulls,
            order_bys: &self.order_bys,
            is_reversed: self.is_reversed,
            name: &self.name,
            is_distinct: self.is_distinct,
            exprs: &self.exprs,
            expr_fields: &self.expr_fields,
        })
    }
}

/// The rows of a frame, in their order.
struct Frame {
    call: Call,
    columns: Vec<ArrayRef>,
}

impl fmt::Debug for Frame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.call.name)
    }
}

impl Accumulator for Frame {
    fn update_batch(&mut self, values: &[ArrayRef]) -> PlanResult<()> {
        if self.columns.is_empty() {
            self.columns = values.to_vec();
            return Ok(());
        }
        for (column, more) in self.columns.iter_mut().zip(values) {
            *column = concat(&[column.as_ref(), more.as_ref()])?;
        }
        Ok(())
    }

    fn retract_batch(&mut self, values: &[ArrayRef]) -> PlanResult<()> {
        let left = values.first().map_or(0, |column| column.len());
        for column in &mut self.columns {
            let Some(rest) = column.len().checked_sub(left) else {
                return internal_err!("more rows leave a frame than it has");
            };
            *column = column.slice(left, rest);
        }
        Ok(())
    }

    fn supports_retract_batch(&self) -> bool {
        true
    }

    fn evaluate(&mut self) -> PlanResult<ScalarValue> {
        let mut accumulator = self.call.accumulator()?;
        if !self.columns.is_empty() {
            accumulator.update_batch(&self.columns)?;
        }
        accumulator.evaluate()
    }

    fn size(&self) -> usize {
        let columns = self.columns.iter().map(|column| column.get_array_memory_size());
        size_of_val(self) + columns.sum::<usize>()
    }

    fn state(&mut self) -> PlanResult<Vec<ScalarValue>> {
        internal_err!("a frame has no state beyond its rows")
    }

    fn merge_batch(&mut self, _: &[ArrayRef]) -> PlanResult<()> {
        internal_err!("a frame has no state beyond its rows")
    }
}
