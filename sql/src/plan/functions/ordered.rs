//! Ordered-set aggregates that DataFusion does not have, or with fewer digits: `mode()`, `percentile_disc(fraction)` and
//! `percentile_cont(fraction)`, all with WITHIN GROUP; an array of fractions gives an array.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, ListArray, new_empty_array};
use arrow::buffer::OffsetBuffer;
use arrow::compute::{SortOptions, cast, concat, filter, is_not_null, sort};
use arrow::datatypes::{DataType, Field, FieldRef, Float64Type};
use datafusion::common::{DataFusionError, Result as PlanResult, ScalarValue, plan_err};
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::{Accumulator, AggregateUDF, AggregateUDFImpl, Signature, Volatility};
use datafusion::physical_expr::expressions::Literal;

use crate::plan::translate::external;
use crate::plan::types::{column_type, list_of, sql_type_name};
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
        let types = self.coerce_types(args)?;
        Ok(match types.get(1) {
            Some(DataType::List(_)) => list_of(types[0].clone()),
            _ => types[0].clone(),
        })
    }

    fn coerce_types(&self, args: &[DataType]) -> PlanResult<Vec<DataType>> {
        if let [value, DataType::List(fraction)] = args
            && (fraction.data_type().is_numeric() || fraction.data_type().is_null())
        {
            let types = self.coerce_types(&[value.clone(), DataType::Float64])?;
            return Ok(vec![types[0].clone(), list_of(DataType::Float64)]);
        }
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
            Choice::Percentile | Choice::Interpolated => Some(Fractions::of(&args, self.name())?),
        };
        Ok(Box::new(Chosen {
            data_type: match args.return_field.data_type() {
                DataType::List(value) if matches!(fraction, Some(Fractions::Several(_))) => {
                    value.data_type().clone()
                }
                value => value.clone(),
            },
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
        let value = args
            .input_fields
            .first()
            .map_or(args.return_type(), |field| field.data_type());
        let item = Arc::new(Field::new_list_field(value.clone(), true));
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

/// The constant fractions.
#[derive(Debug, Clone, PartialEq)]
enum Fractions {
    One(f64),
    /// An array, whose NULLs give NULLs.
    Several(Vec<Option<f64>>),
}

impl Fractions {
    fn of(args: &AccumulatorArgs<'_>, name: &str) -> PlanResult<Self> {
        let literal = args.exprs.get(1).and_then(|expr| expr.downcast_ref::<Literal>());
        let fractions = match literal.map(Literal::value) {
            Some(ScalarValue::List(list)) if list.len() == 1 && list.is_valid(0) => {
                let fractions = cast(&list.value(0), &DataType::Float64)?;
                Self::Several(fractions.as_primitive::<Float64Type>().iter().collect())
            }
            Some(value) => match value.cast_to(&DataType::Float64)? {
                ScalarValue::Float64(Some(fraction)) => Self::One(fraction),
                _ => return Err(no_constant(name)),
            },
            None => return Err(no_constant(name)),
        };
        for fraction in fractions.each() {
            if !(0.0..=1.0).contains(&fraction) {
                return Err(external(SqlError::new(
                    SqlState::NumericValueOutOfRange,
                    format!("percentile value {fraction} is not between 0 and 1"),
                )));
            }
        }
        Ok(fractions)
    }

    fn each(&self) -> impl Iterator<Item = f64> {
        let (one, several) = match self {
            Self::One(fraction) => (Some(*fraction), [].as_slice()),
            Self::Several(fractions) => (None, fractions.as_slice()),
        };
        one.into_iter().chain(several.iter().flatten().copied())
    }
}

fn no_constant(name: &str) -> DataFusionError {
    external(SqlError::unsupported(format!(
        "{name}() with a fraction that is no constant"
    )))
}

/// The values of a group so far.
#[derive(Debug)]
struct Chosen {
    data_type: DataType,
    options: SortOptions,
    fraction: Option<Fractions>,
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

impl Chosen {
    /// The value at this part of the way through sorted values.
    fn at(&self, sorted: &ArrayRef, fraction: f64) -> PlanResult<ScalarValue> {
        if sorted.is_empty() {
            return ScalarValue::try_from(&self.data_type);
        }
        if self.is_interpolated {
            let between = interpolated(sorted.as_primitive::<Float64Type>().values(), fraction);
            return Ok(ScalarValue::Float64(Some(between)));
        }
        let place = (fraction * sorted.len() as f64).ceil().max(1.0) as usize - 1;
        ScalarValue::try_from_array(sorted, place.min(sorted.len() - 1))
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
        match &self.fraction {
            None if sorted.is_empty() => ScalarValue::try_from(&self.data_type),
            None => ScalarValue::try_from_array(&sorted, longest_run(&sorted)?),
            Some(Fractions::One(fraction)) => self.at(&sorted, *fraction),
            // Without a value there is no array.
            Some(Fractions::Several(_)) if sorted.is_empty() => {
                ScalarValue::try_from(&list_of(self.data_type.clone()))
            }
            Some(Fractions::Several(fractions)) => {
                let values = fractions.iter().map(|fraction| match fraction {
                    Some(fraction) => self.at(&sorted, *fraction),
                    None => ScalarValue::try_from(&self.data_type),
                });
                let values = values.collect::<PlanResult<Vec<_>>>()?;
                Ok(ScalarValue::List(ScalarValue::new_list_nullable(
                    &values,
                    &self.data_type,
                )))
            }
        }
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
