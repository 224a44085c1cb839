//! `sum` and `avg` of NUMERIC, floats and intervals, variances and what else is found from sums, and `min` and `max` of intervals,
//! for one-shot reads and windows. Sums leave their range where PostgreSQL's do, with an error, and a window that moves on
//! forgets what it has left.

mod cells;
mod extremes;
mod kinds;
mod moments;
mod numbers;
mod pairs;
mod wide;
mod written;

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BinaryArray, BinaryBuilder, BooleanArray, PrimitiveArray};
use arrow::compute::cast;
use arrow::datatypes::{ArrowPrimitiveType, DataType, Field, FieldRef, IntervalUnit};
use datafusion::common::{
    DataFusionError, Result as PlanResult, ScalarValue, exec_datafusion_err, internal_err,
};
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::{Accumulator, AggregateUDF, EmitTo, GroupsAccumulator};

pub use self::cells::{FloatSum, IntervalSum, WideFloat};
use self::kinds::Kind;
pub use self::numbers::NumericSum;
use self::written::Written;
use crate::SqlError;
use crate::plan::translate::external;

/// The type of intervals.
const INTERVAL: DataType = DataType::Interval(IntervalUnit::MonthDayNano);

/// The aggregates with `sum` and `avg` that take intervals too. They stand in a plan until [`of_type`] replaces them.
pub(crate) fn with_intervals(
    mut functions: BTreeMap<String, Arc<AggregateUDF>>,
) -> BTreeMap<String, Arc<AggregateUDF>> {
    for name in ["sum", "avg"] {
        if let Some(function) = functions.get_mut(name) {
            *function = Written::of(function);
        }
    }
    functions.extend(moments::functions().chain(pairs::functions()));
    functions
}

/// The function that computes what `function` means for an argument of this type.
pub(crate) fn of_type(function: &Arc<AggregateUDF>, argument: &DataType) -> Arc<AggregateUDF> {
    let is_interval = matches!(argument, DataType::Interval(_));
    let is_decimal = matches!(argument, DataType::Decimal128(..));
    match function.name() {
        "min" if is_interval => extremes::smallest(),
        "max" if is_interval => extremes::greatest(),
        name @ ("sum" | "avg") => {
            let mean = name == "avg";
            match function.inner().downcast_ref::<Written>() {
                _ if is_interval => Kind::Intervals.function(mean),
                _ if argument.is_floating() => Kind::Floats.function(mean),
                // The mean of integers is NUMERIC.
                _ if is_decimal || (mean && argument.is_integer()) => Kind::Numerics.function(mean),
                Some(written) => Arc::clone(&written.theirs),
                None => Arc::clone(function),
            }
        }
        _ => Arc::clone(function),
    }
}

/// The sum of the values of a group.
trait SumCell: Copy + Default + fmt::Debug + Send + Sync + PartialEq + 'static {
    /// What is summed.
    type Value: ArrowPrimitiveType;

    /// The type of the values.
    const TYPE: DataType;

    /// Whether what is taken away leaves no trace.
    const RETRACTS: bool;

    fn add(&mut self, value: <Self::Value as ArrowPrimitiveType>::Native, weight: i64);

    fn merge(&mut self, other: &Self);

    /// A value as bytes that are equal for equal values.
    fn bytes_of(value: <Self::Value as ArrowPrimitiveType>::Native) -> Vec<u8>;

    fn value_of(bytes: &[u8]) -> Option<<Self::Value as ArrowPrimitiveType>::Native>;

    /// Appends the sum.
    fn put(&self, out: &mut Vec<u8>);

    fn read(bytes: &[u8]) -> Option<Self>;

    /// The column of what the sums become.
    fn finish(cells: &[Self], outcome: &Outcome) -> Result<ArrayRef, SqlError>;
}

/// What the values of a group become.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Statistic {
    Sum,
    Mean,
    Variance(Divisor),
    /// The square root of the variance.
    Deviation(Divisor),
}

/// By what squares of deviations are divided for a variance.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Divisor {
    /// The count of the values.
    Population,
    /// One less.
    Sample,
}

/// What sums become.
#[derive(Debug, Clone)]
struct Outcome {
    statistic: Statistic,
    /// The type of what is summed.
    argument: DataType,
    /// The type of the result.
    result: DataType,
}

impl Outcome {
    fn of(statistic: Statistic, args: &AccumulatorArgs<'_>) -> Self {
        let argument = args.expr_fields.first();
        let result = args.return_field.data_type().clone();
        Self {
            statistic,
            argument: argument.map_or_else(|| result.clone(), |field| field.data_type().clone()),
            result,
        }
    }
}

/// The state of a part of a group, as one value.
fn state_fields(args: &StateFieldsArgs<'_>) -> Vec<FieldRef> {
    let name = format!("{}[sum]", args.name);
    vec![Arc::new(Field::new(name, DataType::Binary, true))]
}

type Native<C> = <<C as SumCell>::Value as ArrowPrimitiveType>::Native;

/// The values of the one argument, as the cells take them.
fn values_of<C: SumCell>(columns: &[ArrayRef]) -> PlanResult<PrimitiveArray<C::Value>> {
    let [column] = columns else {
        return internal_err!("a sum takes one argument");
    };
    // Numbers of any scale are summed as they are.
    if let Some(values) = column.as_primitive_opt::<C::Value>() {
        return Ok(values.clone());
    }
    Ok(cast(column, &C::TYPE)?.as_primitive::<C::Value>().clone())
}

fn states_of(columns: &[ArrayRef]) -> PlanResult<&BinaryArray> {
    let column = columns.first().and_then(|column| column.as_binary_opt::<i32>());
    column.ok_or_else(damaged)
}

fn damaged() -> DataFusionError {
    exec_datafusion_err!("the state of a sum cannot be read")
}

/// The sum of one group.
#[derive(Debug)]
struct One<C: SumCell> {
    sum: C,
    /// How often each value is there, if each counts once.
    values: Option<HashMap<Vec<u8>, i64>>,
    outcome: Outcome,
}

impl<C: SumCell> One<C> {
    fn new(statistic: Statistic, args: &AccumulatorArgs<'_>) -> Self {
        Self {
            sum: C::default(),
            values: args.is_distinct.then(HashMap::new),
            outcome: Outcome::of(statistic, args),
        }
    }

    fn add(&mut self, value: Native<C>, weight: i64) {
        let Some(values) = &mut self.values else {
            return self.sum.add(value, weight);
        };
        let key = C::bytes_of(value);
        let times = values.get(&key).copied().unwrap_or(0) + weight;
        match times {
            0 => values.remove(&key),
            times => values.insert(key, times),
        };
        match (times, weight) {
            (1, 1) => self.sum.add(value, 1),
            (0, _) => self.sum.add(value, -1),
            _ => {}
        }
    }
}

impl<C: SumCell> Accumulator for One<C> {
    fn update_batch(&mut self, values: &[ArrayRef]) -> PlanResult<()> {
        for value in values_of::<C>(values)?.iter().flatten() {
            self.add(value, 1);
        }
        Ok(())
    }

    fn retract_batch(&mut self, values: &[ArrayRef]) -> PlanResult<()> {
        for value in values_of::<C>(values)?.iter().flatten() {
            self.add(value, -1);
        }
        Ok(())
    }

    fn supports_retract_batch(&self) -> bool {
        C::RETRACTS
    }

    fn evaluate(&mut self) -> PlanResult<ScalarValue> {
        let result = C::finish(&[self.sum], &self.outcome).map_err(external)?;
        ScalarValue::try_from_array(&result, 0)
    }

    fn state(&mut self) -> PlanResult<Vec<ScalarValue>> {
        let mut bytes = Vec::new();
        match &self.values {
            // Which values there are says their sum.
            Some(values) => values.keys().for_each(|key| bytes.extend_from_slice(key)),
            None => self.sum.put(&mut bytes),
        }
        Ok(vec![ScalarValue::Binary(Some(bytes))])
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> PlanResult<()> {
        for state in states_of(states)?.iter().flatten() {
            if self.values.is_none() {
                self.sum.merge(&C::read(state).ok_or_else(damaged)?);
                continue;
            }
            for bytes in state.chunks(size_of::<Native<C>>()) {
                let is_new = self
                    .values
                    .as_ref()
                    .is_some_and(|values| !values.contains_key(bytes));
                if is_new {
                    self.add(C::value_of(bytes).ok_or_else(damaged)?, 1);
                }
            }
        }
        Ok(())
    }

    fn size(&self) -> usize {
        let entry = size_of::<(Vec<u8>, i64)>() + size_of::<Native<C>>();
        size_of::<Self>() + self.values.as_ref().map_or(0, |values| values.capacity() * entry)
    }
}

/// The sums of many groups.
struct Many<C> {
    sums: Vec<C>,
    outcome: Outcome,
}

impl<C: SumCell> Many<C> {
    fn new(statistic: Statistic, args: &AccumulatorArgs<'_>) -> Self {
        Self {
            sums: Vec::new(),
            outcome: Outcome::of(statistic, args),
        }
    }
}

fn encoded<C: SumCell>(sums: &[C]) -> ArrayRef {
    let mut states = BinaryBuilder::with_capacity(sums.len(), size_of_val(sums));
    let mut bytes = Vec::new();
    for sum in sums {
        bytes.clear();
        sum.put(&mut bytes);
        states.append_value(&bytes);
    }
    Arc::new(states.finish())
}

/// Visits the values that count: those that are there and for which the filter holds.
fn each_counted<C: SumCell>(
    values: &[ArrayRef],
    filter: Option<&BooleanArray>,
    mut visit: impl FnMut(usize, Native<C>),
) -> PlanResult<()> {
    for (row, value) in values_of::<C>(values)?.iter().enumerate() {
        let counts = filter.is_none_or(|filter| filter.is_valid(row) && filter.value(row));
        if let Some(value) = value.filter(|_| counts) {
            visit(row, value);
        }
    }
    Ok(())
}

impl<C: SumCell> GroupsAccumulator for Many<C> {
    fn update_batch(
        &mut self,
        values: &[ArrayRef],
        group_indices: &[usize],
        opt_filter: Option<&BooleanArray>,
        total_num_groups: usize,
    ) -> PlanResult<()> {
        self.sums.resize(total_num_groups, C::default());
        let sums = &mut self.sums;
        each_counted::<C>(values, opt_filter, |row, value| {
            sums[group_indices[row]].add(value, 1)
        })
    }

    fn evaluate(&mut self, emit_to: EmitTo) -> PlanResult<ArrayRef> {
        let sums = emit_to.take_needed(&mut self.sums);
        C::finish(&sums, &self.outcome).map_err(external)
    }

    fn state(&mut self, emit_to: EmitTo) -> PlanResult<Vec<ArrayRef>> {
        Ok(vec![encoded(&emit_to.take_needed(&mut self.sums))])
    }

    fn merge_batch(
        &mut self,
        values: &[ArrayRef],
        group_indices: &[usize],
        total_num_groups: usize,
    ) -> PlanResult<()> {
        self.sums.resize(total_num_groups, C::default());
        for (state, group) in states_of(values)?.iter().zip(group_indices) {
            if let Some(state) = state {
                self.sums[*group].merge(&C::read(state).ok_or_else(damaged)?);
            }
        }
        Ok(())
    }

    fn convert_to_state(
        &self,
        values: &[ArrayRef],
        opt_filter: Option<&BooleanArray>,
    ) -> PlanResult<Vec<ArrayRef>> {
        let mut sums = vec![C::default(); values.first().map_or(0, |column| column.len())];
        each_counted::<C>(values, opt_filter, |row, value| sums[row].add(value, 1))?;
        Ok(vec![encoded(&sums)])
    }

    fn size(&self) -> usize {
        self.sums.capacity() * size_of::<C>()
    }
}
