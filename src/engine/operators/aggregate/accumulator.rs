//! [`Accumulator`]: the values of one aggregate, a column with one value per group slot; and which one a call gets.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray};
use arrow::buffer::{BooleanBuffer, ScalarBuffer};
use arrow::datatypes::{
    DataType, Float32Type, Float64Type, IntervalMonthDayNano, IntervalMonthDayNanoType, Schema,
};
use arrow::record_batch::RecordBatch;
use highwater_sql::stream_plan::{AggregateCall, AggregateFunction};

use super::collected::{self, CollectedRows};
use super::distinct::Distinct;
use super::extreme::{Extreme, RetractableExtreme};
use super::floats::{FloatCell, RetractableFloatCell};
use super::intervals::IntervalCell;
use super::linear::{Count, ExactCell, Finish, IntegerCell, Linear, Mean};
use crate::engine::error::EngineError;
use crate::engine::operators::state::multiset::StateValue;
use crate::engine::operators::state::slots::{Kept, SlotSet};
use crate::engine::operators::state::values::{Form, Values};

/// Rows for a kernel: parallel lists.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rows<'a> {
    /// Rows of the batch.
    pub(super) rows: &'a [u32],
    /// The slot of the group of each.
    pub(super) slots: &'a [u32],
    /// The weight of each; absent: 1.
    pub(super) weights: Option<&'a [i64]>,
}

/// The argument of a call over a whole batch.
#[derive(Debug, Default)]
pub(super) struct Argument {
    /// Rows that count: the filter is true and the argument is not NULL. Absent: all.
    pub(super) counted: Option<BooleanBuffer>,
    /// The argument in its form.
    pub(super) values: Option<Values>,
    /// The argument of a sum of floats.
    pub(super) floats: Option<ScalarBuffer<f64>>,
    /// The argument of a sum of intervals.
    pub(super) intervals: Option<ScalarBuffer<IntervalMonthDayNano>>,
}

/// One value per slot.
pub(super) trait Accumulator: Send {
    /// Makes room for slots below `slots`; new ones have seen no row.
    fn grow(&mut self, slots: usize);

    /// Remembers the values of `slots` as they are, behind those remembered already.
    fn save(&mut self, slots: &[u32]);

    /// Takes rows, all of which count.
    ///
    /// # Errors
    /// A value that exceeds its type.
    fn update(&mut self, rows: Rows<'_>, argument: &Argument) -> Result<(), EngineError>;

    /// The results of `slots`.
    ///
    /// # Errors
    /// A result that exceeds its type.
    fn results(&self, slots: &[u32]) -> Result<ArrayRef, EngineError>;

    /// The results of the remembered values at `positions`.
    ///
    /// # Errors
    /// A result that exceeds its type.
    fn saved_results(&self, positions: &[u32]) -> Result<ArrayRef, EngineError>;

    /// Drops the remembered values.
    fn forget_saved(&mut self);

    /// Makes `slots` as if they had seen no row.
    fn clear(&mut self, slots: &[u32]);

    /// The values of `slots`, and all counted values that changed since the last freeze.
    fn freeze(&mut self, slots: &SlotSet) -> Box<dyn FrozenAccumulator>;

    /// Sets the value of a slot from what [`FrozenAccumulator::encode`] wrote, and takes that off `bytes`.
    ///
    /// # Errors
    /// Bytes that are not of this accumulator.
    fn restore(&mut self, slot: u32, bytes: &mut &[u8]) -> Result<(), EngineError>;

    /// Sets a counted value of a slot from what [`FrozenAccumulator::entries`] gave.
    ///
    /// # Errors
    /// An accumulator without counted values, or bytes that are no value of it.
    fn restore_entry(&mut self, _slot: u32, _value: &[u8], _count: i64) -> Result<(), EngineError> {
        Err(EngineError::recovery(
            "operator state has counted values for an aggregate without them",
        ))
    }

    /// Keeps the values of the slots that stay, under their new numbers. No values are remembered at that time.
    fn keep(&mut self, kept: &Kept);

    /// Whether it has counted values.
    fn has_entries(&self) -> bool {
        false
    }

    /// How many counted values it has.
    fn entries(&self) -> usize {
        0
    }

    /// Bytes of memory.
    fn bytes(&self) -> usize;
}

/// Values as of a freeze.
pub(super) trait FrozenAccumulator: Send {
    /// Appends the value of a slot that was frozen.
    fn encode(&self, slot: u32, out: &mut Vec<u8>);

    /// Visits counted values that changed: slot, encoded value, count (0: gone). Once.
    fn entries(&mut self, _visit: &mut dyn FnMut(u32, &[u8], i64)) {}
}

/// A value in state that input columns have.
pub(super) trait ArgumentValue: StateValue {
    /// A column of such values.
    type Column;

    /// The column of an argument, if it is of this form.
    fn column(argument: &Argument) -> Option<&Self::Column>;

    /// The value of a row.
    fn raw(column: &Self::Column, row: u32) -> &Self::Raw;

    /// A column of `data_type`.
    ///
    /// # Errors
    /// Values that are not of that type, as only damaged state holds them.
    fn array(data_type: &DataType, values: Vec<Option<Self>>) -> Result<ArrayRef, EngineError>;
}

impl Argument {
    /// The argument of `call` over `batch`.
    ///
    /// # Errors
    /// A column that is not of the planned type.
    pub(super) fn of(call: &AggregateCall, batch: &RecordBatch) -> Result<Self, EngineError> {
        let mut argument = Self::default();
        if let Some(filter) = call.filter {
            let filter = batch.column(filter).as_boolean_opt();
            let filter = filter.ok_or_else(|| EngineError::internal("a FILTER is not boolean"))?;
            argument.counted = Some(match filter.nulls() {
                Some(nulls) => filter.values() & nulls.inner(),
                None => filter.values().clone(),
            });
        }
        if let AggregateFunction::Collected(collected) = &call.function {
            argument.values = Some(Values::Bytes(collected::values_of(collected, batch)?));
            return Ok(argument);
        }
        let Some(column) = call.argument.map(|column| batch.column(column)) else {
            return Ok(argument);
        };
        if let Some(nulls) = column.nulls().filter(|nulls| nulls.null_count() > 0) {
            argument.counted = Some(match argument.counted {
                Some(counted) => &counted & nulls.inner(),
                None => nulls.inner().clone(),
            });
        }
        let plain_count = call.function == AggregateFunction::Count && !call.distinct;
        let float_sum = is_sum(&call.function) && column.data_type().is_floating();
        if float_sum {
            argument.floats = Some(floats(column));
        }
        let intervals = column.as_primitive_opt::<IntervalMonthDayNanoType>();
        argument.intervals = intervals
            .filter(|_| is_sum(&call.function))
            .map(|intervals| intervals.values().clone());
        let has_values = float_sum || argument.intervals.is_some();
        if !plain_count && (call.distinct || !has_values) {
            argument.values = Some(Values::of(column)?);
        }
        Ok(argument)
    }
}

/// An empty accumulator for `call` over columns of `input`.
///
/// # Errors
/// A function that does not take columns of that type.
pub(super) fn accumulator(
    call: &AggregateCall,
    input: &Schema,
    append_only: bool,
) -> Result<Box<dyn Accumulator>, EngineError> {
    if let AggregateFunction::Collected(collected) = &call.function {
        let columns = collected.arguments.iter();
        let types: Vec<_> = columns
            .map(|column| input.field(*column).data_type().clone())
            .collect();
        let rows = CollectedRows::try_new(collected, call.distinct, call.result_type.clone(), &types)?;
        return Ok(Box::new(rows));
    }
    let argument = call.argument.map(|column| input.field(column).data_type());
    let Some(argument) = argument else {
        return match call.function {
            AggregateFunction::Count => Ok(Box::new(Count::default())),
            _ => Err(EngineError::internal("an aggregate has no argument")),
        };
    };
    let Some(form) = Form::of(argument) else {
        if call.function == AggregateFunction::Count && !call.distinct {
            return Ok(Box::new(Count::default()));
        }
        return Err(unsupported(call, argument));
    };
    match call.function {
        AggregateFunction::Min | AggregateFunction::Max => Ok(extreme(call, form, append_only)),
        _ if call.distinct => {
            // Each value counts once: what the inner accumulator sees still retracts if the input does.
            let inner = linear(call, argument, append_only)?;
            Ok(match form {
                Form::I64 => Box::new(Distinct::<i64>::new(inner, append_only)),
                Form::I128 => Box::new(Distinct::<i128>::new(inner, append_only)),
                Form::Bytes => Box::new(Distinct::<Arc<[u8]>>::new(inner, append_only)),
            })
        }
        _ => linear(call, argument, append_only),
    }
}

fn extreme(call: &AggregateCall, form: Form, append_only: bool) -> Box<dyn Accumulator> {
    let max = call.function == AggregateFunction::Max;
    let data_type = call.result_type.clone();
    match (form, append_only) {
        (Form::I64, true) => Box::new(Extreme::<i64>::new(max, data_type)),
        (Form::I128, true) => Box::new(Extreme::<i128>::new(max, data_type)),
        (Form::Bytes, true) => Box::new(Extreme::<Arc<[u8]>>::new(max, data_type)),
        (Form::I64, false) => Box::new(RetractableExtreme::<i64>::new(max, data_type)),
        (Form::I128, false) => Box::new(RetractableExtreme::<i128>::new(max, data_type)),
        (Form::Bytes, false) => Box::new(RetractableExtreme::<Arc<[u8]>>::new(max, data_type)),
    }
}

fn linear(
    call: &AggregateCall,
    argument: &DataType,
    append_only: bool,
) -> Result<Box<dyn Accumulator>, EngineError> {
    let scale = match argument {
        DataType::Decimal128(_, scale) => *scale,
        _ => 0,
    };
    let result = call.result_type.clone();
    let finish = match call.function {
        AggregateFunction::Count => return Ok(Box::new(Count::default())),
        AggregateFunction::Avg => Finish::Mean(Mean::new(result, scale)?),
        _ => Finish::Sum(result),
    };
    Ok(match argument {
        DataType::Int8 | DataType::Int16 | DataType::Int32 if call.function == AggregateFunction::Sum => {
            Box::new(Linear::<IntegerCell>::new(finish))
        }
        DataType::Int8 | DataType::Int16 | DataType::Int32 | DataType::Int64 => {
            Box::new(Linear::<ExactCell<i64>>::new(finish))
        }
        DataType::Decimal128(..) => Box::new(Linear::<ExactCell<i128>>::new(finish)),
        DataType::Float32 | DataType::Float64 if append_only => Box::new(Linear::<FloatCell>::new(finish)),
        DataType::Float32 | DataType::Float64 => Box::new(Linear::<RetractableFloatCell>::new(finish)),
        DataType::Interval(_) => Box::new(Linear::<IntervalCell>::new(finish)),
        other => return Err(unsupported(call, other)),
    })
}

fn is_sum(function: &AggregateFunction) -> bool {
    matches!(function, AggregateFunction::Sum | AggregateFunction::Avg)
}

fn floats(column: &ArrayRef) -> ScalarBuffer<f64> {
    match column.data_type() {
        DataType::Float32 => {
            let values = column.as_primitive::<Float32Type>().values();
            values
                .iter()
                .map(|value| f64::from(*value))
                .collect::<Vec<_>>()
                .into()
        }
        _ => column.as_primitive::<Float64Type>().values().clone(),
    }
}

fn unsupported(call: &AggregateCall, argument: &DataType) -> EngineError {
    let function = match &call.function {
        AggregateFunction::Count => "count",
        AggregateFunction::Sum => "sum",
        AggregateFunction::Avg => "avg",
        AggregateFunction::Min => "min",
        AggregateFunction::Max => "max",
        AggregateFunction::Collected(collected) => collected.function.fun().name(),
    };
    let distinct = if call.distinct { "DISTINCT " } else { "" };
    EngineError::new(
        "0A000",
        format!("{function}({distinct}{argument}) is not supported"),
    )
}
