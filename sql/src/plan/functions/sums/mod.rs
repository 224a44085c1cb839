//! `sum` and `avg` of NUMERIC, floats and intervals, and `min` and `max` of intervals, for one-shot reads and windows. Sums
//! leave their range where PostgreSQL's do, with an error, and a window that moves on forgets what it has left.

mod cells;
mod extremes;
mod numbers;
mod written;

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::{Arc, LazyLock};

use arrow::array::{Array, ArrayRef, AsArray, BinaryArray, BinaryBuilder, BooleanArray, PrimitiveArray};
use arrow::compute::cast;
use arrow::datatypes::{
    ArrowPrimitiveType, DataType, Field, FieldRef, Float32Type, Float64Type, IntervalMonthDayNano,
    IntervalMonthDayNanoType, IntervalUnit, ToByteSlice,
};
use datafusion::common::{
    DataFusionError, Result as PlanResult, ScalarValue, exec_datafusion_err, internal_err,
};
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, EmitTo, GroupsAccumulator, Signature, Volatility,
};

pub use self::cells::{FloatSum, IntervalSum, WideFloat};
pub use self::numbers::NumericSum;
use self::written::Written;
use crate::SqlError;
use crate::plan::floats::real;
use crate::plan::translate::external;
use crate::plan::types::{DECIMAL_DIGITS, DECIMAL_SCALE};

/// The type of intervals.
const INTERVAL: DataType = DataType::Interval(IntervalUnit::MonthDayNano);

static FLOATS: LazyLock<[Arc<AggregateUDF>; 2]> =
    LazyLock::new(|| [false, true].map(|mean| Summed::function(Kind::Floats, mean)));
static INTERVALS: LazyLock<[Arc<AggregateUDF>; 2]> =
    LazyLock::new(|| [false, true].map(|mean| Summed::function(Kind::Intervals, mean)));

static NUMERICS: LazyLock<[Arc<AggregateUDF>; 2]> =
    LazyLock::new(|| [false, true].map(|mean| Summed::function(Kind::Numerics, mean)));

/// The aggregates with `sum` and `avg` that take intervals too. They stand in a plan until [`of_type`] replaces them.
pub(crate) fn with_intervals(
    mut functions: BTreeMap<String, Arc<AggregateUDF>>,
) -> BTreeMap<String, Arc<AggregateUDF>> {
    for name in ["sum", "avg"] {
        if let Some(function) = functions.get_mut(name) {
            *function = Written::of(function);
        }
    }
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
            let mean = usize::from(name == "avg");
            match function.inner().downcast_ref::<Written>() {
                _ if is_interval => Arc::clone(&INTERVALS[mean]),
                _ if argument.is_floating() => Arc::clone(&FLOATS[mean]),
                // The mean of integers is NUMERIC.
                _ if is_decimal || (mean == 1 && argument.is_integer()) => Arc::clone(&NUMERICS[mean]),
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

/// What sums become.
#[derive(Debug, Clone)]
struct Outcome {
    /// Whether it is their quotient by the count.
    mean: bool,
    /// The type of what is summed.
    argument: DataType,
    /// The type of the result.
    result: DataType,
}

impl Outcome {
    fn of(mean: bool, args: &AccumulatorArgs<'_>) -> Self {
        let argument = args.expr_fields.first();
        let result = args.return_field.data_type().clone();
        Self {
            mean,
            argument: argument.map_or_else(|| result.clone(), |field| field.data_type().clone()),
            result,
        }
    }
}

fn eight(bytes: &[u8], at: usize) -> Option<[u8; 8]> {
    bytes.get(at * 8..at * 8 + 8)?.try_into().ok()
}

impl SumCell for FloatSum {
    type Value = Float64Type;

    const TYPE: DataType = DataType::Float64;

    #[inline]
    fn add(&mut self, value: f64, weight: i64) {
        Self::add(self, value, weight);
    }

    fn merge(&mut self, other: &Self) {
        Self::merge(self, other);
    }

    fn bytes_of(value: f64) -> Vec<u8> {
        let plain = if value.is_nan() { f64::NAN } else { value + 0.0 };
        plain.to_le_bytes().to_vec()
    }

    fn value_of(bytes: &[u8]) -> Option<f64> {
        eight(bytes, 0).map(f64::from_le_bytes)
    }

    fn put(&self, out: &mut Vec<u8>) {
        for float in [self.sum.sum, self.error, self.residue] {
            out.extend_from_slice(&float.to_le_bytes());
        }
        let counts = [
            self.sum.aside,
            self.count,
            self.nan,
            self.infinite,
            self.negative_infinite,
        ];
        for count in counts {
            out.extend_from_slice(&count.to_le_bytes());
        }
    }

    fn read(bytes: &[u8]) -> Option<Self> {
        let float = |at| eight(bytes, at).map(f64::from_le_bytes);
        let count = |at| eight(bytes, at).map(i64::from_le_bytes);
        Some(Self {
            sum: WideFloat {
                sum: float(0)?,
                aside: count(3)?,
            },
            error: float(1)?,
            residue: float(2)?,
            count: count(4)?,
            nan: count(5)?,
            infinite: count(6)?,
            negative_infinite: count(7)?,
        })
    }

    fn finish(cells: &[Self], outcome: &Outcome) -> Result<ArrayRef, SqlError> {
        let totals = cells.iter().map(|cell| {
            Ok(cell.total()?.map(|total| match outcome.mean {
                true => total / cell.count as f64,
                false => total,
            }))
        });
        let totals = totals.collect::<Result<Vec<Option<f64>>, SqlError>>()?;
        if outcome.result != DataType::Float32 {
            return Ok(Arc::new(PrimitiveArray::<Float64Type>::from(totals)));
        }
        let reals = totals.into_iter().map(|total| total.map(real).transpose());
        let reals = reals.collect::<Result<Vec<Option<f32>>, SqlError>>()?;
        Ok(Arc::new(PrimitiveArray::<Float32Type>::from(reals)))
    }
}

impl SumCell for IntervalSum {
    type Value = IntervalMonthDayNanoType;

    const TYPE: DataType = INTERVAL;

    fn add(&mut self, value: IntervalMonthDayNano, weight: i64) {
        Self::add(self, value, weight);
    }

    fn merge(&mut self, other: &Self) {
        Self::merge(self, other);
    }

    fn bytes_of(value: IntervalMonthDayNano) -> Vec<u8> {
        value.to_byte_slice().to_vec()
    }

    fn value_of(bytes: &[u8]) -> Option<IntervalMonthDayNano> {
        let parts = |at: usize| bytes.get(at..at + 4)?.try_into().ok().map(i32::from_ne_bytes);
        let nanos = eight(bytes, 1).map(i64::from_ne_bytes)?;
        Some(IntervalMonthDayNano::new(parts(0)?, parts(4)?, nanos))
    }

    fn put(&self, out: &mut Vec<u8>) {
        for part in [self.months, self.days, self.micros, i128::from(self.count)] {
            out.extend_from_slice(&part.to_le_bytes());
        }
    }

    fn read(bytes: &[u8]) -> Option<Self> {
        let part = |at: usize| {
            let bytes = bytes.get(at * 16..at * 16 + 16)?;
            bytes.try_into().ok().map(i128::from_le_bytes)
        };
        Some(Self {
            months: part(0)?,
            days: part(1)?,
            micros: part(2)?,
            count: part(3)?.try_into().ok()?,
        })
    }

    fn finish(cells: &[Self], outcome: &Outcome) -> Result<ArrayRef, SqlError> {
        let results = cells.iter().map(|cell| match outcome.mean {
            true => cell.mean(),
            false => cell.total(),
        });
        let results = results.collect::<Result<Vec<_>, SqlError>>()?;
        Ok(Arc::new(PrimitiveArray::<IntervalMonthDayNanoType>::from(
            results,
        )))
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Kind {
    Floats,
    Intervals,
    Numerics,
}

/// `sum` or `avg` of one kind of values.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Summed {
    kind: Kind,
    mean: bool,
    signature: Signature,
}

impl Summed {
    fn function(kind: Kind, mean: bool) -> Arc<AggregateUDF> {
        Arc::new(AggregateUDF::from(Self {
            kind,
            mean,
            signature: Signature::user_defined(Volatility::Immutable),
        }))
    }

    /// The type of the result: sums of REAL are REAL, means are not. Means of NUMERIC have the digits behind the point that the
    /// values have, at least 16.
    fn result_type(&self, argument: &DataType) -> DataType {
        match (self.kind, self.mean, argument) {
            (Kind::Floats, false, DataType::Float32) => DataType::Float32,
            (Kind::Floats, ..) => FloatSum::TYPE,
            (Kind::Intervals, ..) => IntervalSum::TYPE,
            (Kind::Numerics, true, DataType::Decimal128(_, scale)) => {
                DataType::Decimal128(DECIMAL_DIGITS, (*scale).max(DECIMAL_SCALE))
            }
            (Kind::Numerics, false, DataType::Decimal128(precision, scale)) => {
                // As DataFusion has it: ten digits more, for ten thousand million values.
                DataType::Decimal128((precision + 10).min(DECIMAL_DIGITS), *scale)
            }
            (Kind::Numerics, ..) => NumericSum::TYPE,
        }
    }
}

impl AggregateUDFImpl for Summed {
    fn name(&self) -> &str {
        if self.mean { "avg" } else { "sum" }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, args: &[DataType]) -> PlanResult<DataType> {
        match args {
            [argument] => Ok(self.result_type(argument)),
            _ => internal_err!("{} takes one argument", self.name()),
        }
    }

    fn coerce_types(&self, args: &[DataType]) -> PlanResult<Vec<DataType>> {
        if self.kind == Kind::Numerics {
            return Ok(args.to_vec());
        }
        Ok(args.iter().map(|argument| self.result_type(argument)).collect())
    }

    fn accumulator(&self, args: AccumulatorArgs<'_>) -> PlanResult<Box<dyn Accumulator>> {
        Ok(match self.kind {
            Kind::Floats => Box::new(One::<FloatSum>::new(self.mean, &args)),
            Kind::Intervals => Box::new(One::<IntervalSum>::new(self.mean, &args)),
            Kind::Numerics => Box::new(One::<NumericSum>::new(self.mean, &args)),
        })
    }

    fn state_fields(&self, args: StateFieldsArgs<'_>) -> PlanResult<Vec<FieldRef>> {
        let name = format!("{}[sum]", args.name);
        Ok(vec![Arc::new(Field::new(name, DataType::Binary, true))])
    }

    fn groups_accumulator_supported(&self, args: AccumulatorArgs<'_>) -> bool {
        !args.is_distinct
    }

    fn create_groups_accumulator(&self, args: AccumulatorArgs<'_>) -> PlanResult<Box<dyn GroupsAccumulator>> {
        Ok(match self.kind {
            Kind::Floats => Box::new(Many::<FloatSum>::new(self.mean, &args)),
            Kind::Intervals => Box::new(Many::<IntervalSum>::new(self.mean, &args)),
            Kind::Numerics => Box::new(Many::<NumericSum>::new(self.mean, &args)),
        })
    }
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
    fn new(mean: bool, args: &AccumulatorArgs<'_>) -> Self {
        Self {
            sum: C::default(),
            values: args.is_distinct.then(HashMap::new),
            outcome: Outcome::of(mean, args),
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
        true
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
    fn new(mean: bool, args: &AccumulatorArgs<'_>) -> Self {
        Self {
            sums: Vec::new(),
            outcome: Outcome::of(mean, args),
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
