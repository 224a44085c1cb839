//! Ordered-set aggregates that DataFusion does not have, or with fewer digits: `mode()`, `percentile_disc(fraction)` and
//! `percentile_cont(fraction)`, all with WITHIN GROUP.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, ListArray, new_empty_array};
use arrow::buffer::OffsetBuffer;
use arrow::compute::{SortOptions, concat, filter, is_not_null, sort};
use arrow::datatypes::{DataType, Field, FieldRef, Float64Type};
use datafusion::common::{Result as PlanResult, ScalarValue, plan_err};
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::{Accumulator, AggregateUDF, AggregateUDFImpl, Signature, Volatility};
use datafusion::physical_expr::expressions::Literal;

use crate::plan::translate::external;
use crate::plan::types::{column_type, sql_type_name};
use crate::{SqlError, SqlState};

/// The aggregates.
pub(crate) fn ordered_sets() -> Vec<Arc<AggregateUDF>> {
    let udf = |choice| {
        Arc::new(AggregateUDF::from(OrderedSet {
            choice,
            signature: Signature::user_defined(Volatility::Immutable),
        }))
    };
    vec![
        udf(Choice::Mode),
        udf(Choice::Percentile),
        udf(Choice::Interpolated),
    ]
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Choice {
    /// The value that is there most often; of several the first.
    Mode,
    /// The first value at whose place at least this part of all values has been passed.
    Percentile,
    /// What lies at this part of the way from the first to the last value, in DOUBLE PRECISION.
    Interpolated,
}

/// Chooses one value of a group by its place in an order.
#[derive(Debug, PartialEq, Eq, Hash)]
struct OrderedSet {
    choice: Choice,
    signature: Signature,
}

impl AggregateUDFImpl for OrderedSet {
    fn name(&self) -> &str {
        match self.choice {
            Choice::Mode => "mode",
            Choice::Percentile => "percentile_disc",
            Choice::Interpolated => "percentile_cont",
        }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, args: &[DataType]) -> PlanResult<DataType> {
        self.coerce_types(args).map(|types| types[0].clone())
    }

    fn coerce_types(&self, args: &[DataType]) -> PlanResult<Vec<DataType>> {
        match (self.choice, args) {
            (Choice::Mode, [value]) => Ok(vec![column_type(value)]),
            (Choice::Percentile, [value, fraction]) if fraction.is_numeric() => {
                Ok(vec![column_type(value), DataType::Float64])
            }
            (Choice::Interpolated, [value, fraction])
                if fraction.is_numeric() && (value.is_numeric() || value.is_null()) =>
            {
                Ok(vec![DataType::Float64, DataType::Float64])
            }
            _ => {
                let types: Vec<String> = args.iter().map(sql_type_name).collect();
                plan_err!(
                    "No function matches the given name and argument types '{}({})'.",
                    self.name(),
                    types.join(", ")
                )
            }
        }
    }

    fn accumulator(&self, args: AccumulatorArgs<'_>) -> PlanResult<Box<dyn Accumulator>> {
        let fraction = match self.choice {
            Choice::Mode => None,
            Choice::Percentile | Choice::Interpolated => Some(fraction_of(&args, self.name())?),
        };
        Ok(Box::new(Chosen {
            data_type: args.return_field.data_type().clone(),
            options: args
                .order_bys
                .first()
                .map_or_else(SortOptions::default, |key| key.options),
            is_interpolated: self.choice == Choice::Interpolated,
            fraction,
            values: Vec::new(),
        }))
    }

    fn state_fields(&self, args: StateFieldsArgs<'_>) -> PlanResult<Vec<FieldRef>> {
        let item = Arc::new(Field::new_list_field(args.return_type().clone(), true));
        Ok(vec![Arc::new(Field::new(
            format!("{}[0]", args.name),
            DataType::List(item),
            true,
        ))])
    }

    fn supports_within_group_clause(&self) -> bool {
        true
    }

    fn supports_null_handling_clause(&self) -> bool {
        false
    }
}

/// The constant fraction.
fn fraction_of(args: &AccumulatorArgs<'_>, name: &str) -> PlanResult<f64> {
    let literal = args.exprs.get(1).and_then(|expr| expr.downcast_ref::<Literal>());
    let value = literal
        .map(|literal| literal.value().cast_to(&DataType::Float64))
        .transpose()?;
    let Some(ScalarValue::Float64(Some(fraction))) = value else {
        let error = SqlError::unsupported(format!("{name}() with a fraction that is no constant"));
        return Err(external(error));
    };
    match (0.0..=1.0).contains(&fraction) {
        true => Ok(fraction),
        false => Err(external(SqlError::new(
            SqlState::NumericValueOutOfRange,
            format!("percentile value {fraction} is not between 0 and 1"),
        ))),
    }
}

/// The values of a group so far.
#[derive(Debug)]
struct Chosen {
    data_type: DataType,
    options: SortOptions,
    fraction: Option<f64>,
    is_interpolated: bool,
    values: Vec<ArrayRef>,
}

impl Chosen {
    fn all(&self) -> PlanResult<ArrayRef> {
        let parts: Vec<&dyn Array> = self.values.iter().map(AsRef::as_ref).collect();
        Ok(match parts.is_empty() {
            true => new_empty_array(&self.data_type),
            false => concat(&parts)?,
        })
    }
}

impl Accumulator for Chosen {
    fn update_batch(&mut self, values: &[ArrayRef]) -> PlanResult<()> {
        if let Some(values) = values.first() {
            self.values.push(filter(values, &is_not_null(values)?)?);
        }
        Ok(())
    }

    fn evaluate(&mut self) -> PlanResult<ScalarValue> {
        let sorted = sort(&self.all()?, Some(self.options))?;
        if sorted.is_empty() {
            return ScalarValue::try_from(&self.data_type);
        }
        if let (true, Some(fraction)) = (self.is_interpolated, self.fraction) {
            let between = interpolated(sorted.as_primitive::<Float64Type>().values(), fraction);
            return Ok(ScalarValue::Float64(Some(between)));
        }
        let place = match self.fraction {
            Some(fraction) => (fraction * sorted.len() as f64).ceil().max(1.0) as usize - 1,
            None => longest_run(&sorted)?,
        };
        ScalarValue::try_from_array(&sorted, place.min(sorted.len() - 1))
    }

    fn size(&self) -> usize {
        size_of_val(self)
            + self
                .values
                .iter()
                .map(|values| values.get_array_memory_size())
                .sum::<usize>()
    }

    fn state(&mut self) -> PlanResult<Vec<ScalarValue>> {
        let values = self.all()?;
        let list = ListArray::try_new(
            Arc::new(Field::new_list_field(self.data_type.clone(), true)),
            OffsetBuffer::from_lengths([values.len()]),
            values,
            None,
        )?;
        Ok(vec![ScalarValue::List(Arc::new(list))])
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> PlanResult<()> {
        let lists = states
            .iter()
            .flat_map(|state| state.as_list::<i32>().iter().flatten());
        self.values.extend(lists);
        Ok(())
    }
}

/// What lies at this part of the way through sorted values, of which there is one at least.
fn interpolated(sorted: &[f64], fraction: f64) -> f64 {
    let way = fraction * (sorted.len() - 1) as f64;
    let (low, high) = (sorted[way.floor() as usize], sorted[way.ceil() as usize]);
    match low == high {
        true => low,
        false => low + (way - way.floor()) * (high - low),
    }
}

/// Where the longest run of equal values begins; of several the first.
fn longest_run(sorted: &ArrayRef) -> PlanResult<usize> {
    let runs = arrow::compute::partition(std::slice::from_ref(sorted))?.ranges();
    let longest = runs.iter().map(ExactSizeIterator::len).max().unwrap_or(0);
    Ok(runs
        .iter()
        .find(|run| run.len() == longest)
        .map_or(0, |run| run.start))
}
