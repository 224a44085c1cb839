//! `var_pop`, `var_samp`, `stddev_pop` and `stddev_samp`: of NUMERIC and integers exact and NUMERIC, of floats as PostgreSQL adds
//! them up (Youngs and Cramer), so that no variance is negative.

use std::sync::Arc;

use arrow::array::{ArrayRef, PrimitiveArray};
use arrow::datatypes::{DataType, Decimal128Type, FieldRef, Float64Type, i256};
use datafusion::common::{Result as PlanResult, plan_err};
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, GroupsAccumulator, Signature, Volatility,
};

use super::cells::{bytes_of_float, eight};
use super::numbers::{overflow as numeric_overflow, scale_of};
use super::wide::{Wide, root};
use super::{Divisor, Many, NumericSum, One, Outcome, Statistic, SumCell, state_fields};
use crate::SqlError;
use crate::plan::floats::overflow;
use crate::plan::types::{DECIMAL_DIGITS, DECIMAL_SCALE, sql_type_name};

/// What they are called, the name that a plan shows first.
const FUNCTIONS: [(&[&str], Statistic); 4] = [
    (
        &["var_pop", "var_population"],
        Statistic::Variance(Divisor::Population),
    ),
    (
        &["var_samp", "variance", "var", "var_sample"],
        Statistic::Variance(Divisor::Sample),
    ),
    (&["stddev_pop"], Statistic::Deviation(Divisor::Population)),
    (&["stddev", "stddev_samp"], Statistic::Deviation(Divisor::Sample)),
];

/// The functions by name.
pub(super) fn functions() -> impl Iterator<Item = (String, Arc<AggregateUDF>)> {
    FUNCTIONS.into_iter().flat_map(|(names, statistic)| {
        let function = Arc::new(AggregateUDF::from(Spread {
            name: names[0],
            statistic,
            signature: Signature::user_defined(Volatility::Immutable),
        }));
        names
            .iter()
            .map(move |name| ((*name).to_owned(), Arc::clone(&function)))
    })
}

/// How far values lie from their mean.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Spread {
    name: &'static str,
    statistic: Statistic,
    signature: Signature,
}

fn is_numeric(args: &AccumulatorArgs<'_>) -> bool {
    let argument = args.expr_fields.first();
    argument.is_some_and(|field| matches!(field.data_type(), DataType::Decimal128(..)))
}

impl AggregateUDFImpl for Spread {
    fn name(&self) -> &str {
        self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    /// Of NUMERIC with the digits behind the point that the values have, at least 16.
    fn return_type(&self, args: &[DataType]) -> PlanResult<DataType> {
        let taken = self.coerce_types(args)?;
        Ok(match taken.as_slice() {
            [DataType::Decimal128(_, scale)] => {
                DataType::Decimal128(DECIMAL_DIGITS, (*scale).max(DECIMAL_SCALE))
            }
            _ => DataType::Float64,
        })
    }

    fn coerce_types(&self, args: &[DataType]) -> PlanResult<Vec<DataType>> {
        match args {
            [decimal @ DataType::Decimal128(..)] => Ok(vec![decimal.clone()]),
            [integer] if integer.is_integer() => Ok(vec![NumericMoments::TYPE]),
            [number] if number.is_floating() || number.is_null() => Ok(vec![DataType::Float64]),
            _ => no_match(self.name, args),
        }
    }

    fn accumulator(&self, args: AccumulatorArgs<'_>) -> PlanResult<Box<dyn Accumulator>> {
        Ok(match is_numeric(&args) {
            true => Box::new(One::<NumericMoments>::new(self.statistic, &args)),
            false => Box::new(One::<FloatMoments>::new(self.statistic, &args)),
        })
    }

    fn state_fields(&self, args: StateFieldsArgs<'_>) -> PlanResult<Vec<FieldRef>> {
        Ok(state_fields(&args))
    }

    fn groups_accumulator_supported(&self, args: AccumulatorArgs<'_>) -> bool {
        !args.is_distinct
    }

    fn create_groups_accumulator(&self, args: AccumulatorArgs<'_>) -> PlanResult<Box<dyn GroupsAccumulator>> {
        Ok(match is_numeric(&args) {
            true => Box::new(Many::<NumericMoments>::new(self.statistic, &args)),
            false => Box::new(Many::<FloatMoments>::new(self.statistic, &args)),
        })
    }
}

/// The error for arguments that a function does not take.
pub(super) fn no_match<T>(name: &str, args: &[DataType]) -> PlanResult<T> {
    let types: Vec<String> = args.iter().map(sql_type_name).collect();
    plan_err!(
        "No function matches the given name and argument types '{name}({})'.",
        types.join(", ")
    )
}

/// How many floats there are, their sum, and the sum of the squares of their distances from the mean.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct FloatMoments {
    count: f64,
    sum: f64,
    squares: f64,
    /// Whether finite values led out of the range of floats.
    is_beyond: bool,
}

impl FloatMoments {
    fn plus(&mut self, value: f64) {
        let (before, sum_before) = (self.count, self.sum);
        self.count += 1.0;
        self.sum += value;
        if before == 0.0 {
            if !value.is_finite() {
                self.squares = f64::NAN;
            }
            return;
        }
        let distance = value * self.count - self.sum;
        self.squares += distance * distance / (self.count * before);
        if self.sum.is_infinite() || self.squares.is_infinite() {
            self.is_beyond |= !sum_before.is_infinite() && !value.is_infinite();
            self.squares = f64::NAN;
        }
    }

    fn result(&self, statistic: Statistic) -> Result<Option<f64>, SqlError> {
        if self.is_beyond {
            return Err(overflow());
        }
        let divisor = match statistic {
            Statistic::Variance(Divisor::Sample) | Statistic::Deviation(Divisor::Sample) => self.count - 1.0,
            _ => self.count,
        };
        if divisor <= 0.0 {
            return Ok(None);
        }
        let variance = self.squares / divisor;
        Ok(Some(match statistic {
            Statistic::Deviation(_) => variance.sqrt(),
            _ => variance,
        }))
    }
}

impl SumCell for FloatMoments {
    type Value = Float64Type;

    const TYPE: DataType = DataType::Float64;

    /// What rounding cut off would stay: a window that moves on is computed anew.
    const RETRACTS: bool = false;

    fn add(&mut self, value: f64, weight: i64) {
        for _ in 0..weight {
            self.plus(value);
        }
    }

    fn merge(&mut self, other: &Self) {
        if self.count == 0.0 || other.count == 0.0 {
            if self.count == 0.0 {
                *self = *other;
            }
            return;
        }
        let distance = self.sum / self.count - other.sum / other.count;
        let count = self.count + other.count;
        self.squares += other.squares + self.count * other.count * distance * distance / count;
        self.is_beyond |= other.is_beyond;
        let sum = self.sum + other.sum;
        let is_infinite = |sum: f64| sum.is_infinite();
        self.is_beyond |= is_infinite(sum) && !is_infinite(self.sum) && !is_infinite(other.sum);
        self.is_beyond |= self.squares.is_infinite();
        (self.count, self.sum) = (count, sum);
    }

    fn bytes_of(value: f64) -> Vec<u8> {
        bytes_of_float(value)
    }

    fn value_of(bytes: &[u8]) -> Option<f64> {
        eight(bytes, 0).map(f64::from_le_bytes)
    }

    fn put(&self, out: &mut Vec<u8>) {
        for float in [self.count, self.sum, self.squares] {
            out.extend_from_slice(&float.to_le_bytes());
        }
        out.extend_from_slice(&u64::from(self.is_beyond).to_le_bytes());
    }

    fn read(bytes: &[u8]) -> Option<Self> {
        let float = |at| eight(bytes, at).map(f64::from_le_bytes);
        Some(Self {
            count: float(0)?,
            sum: float(1)?,
            squares: float(2)?,
            is_beyond: eight(bytes, 3)? != [0; 8],
        })
    }

    fn finish(cells: &[Self], outcome: &Outcome) -> Result<ArrayRef, SqlError> {
        let results = cells.iter().map(|cell| cell.result(outcome.statistic));
        let results = results.collect::<Result<Vec<_>, SqlError>>()?;
        Ok(Arc::new(PrimitiveArray::<Float64Type>::from(results)))
    }
}

/// The sum of whole numbers, and the sum of their squares: `low + high × 2^128`.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct NumericMoments {
    sum: NumericSum,
    low: i256,
    high: i256,
}

impl NumericMoments {
    /// The variance or its root, of values of `scale` digits behind the point, with `digits` behind it; rounded half up.
    fn result(&self, statistic: Statistic, scale: u32, digits: u32) -> Result<Option<i128>, SqlError> {
        let Ok(count) = u64::try_from(self.sum.count()) else {
            return Ok(None);
        };
        let divisor = match statistic {
            Statistic::Variance(Divisor::Sample) | Statistic::Deviation(Divisor::Sample) => {
                count.saturating_sub(1)
            }
            _ => count,
        };
        if divisor == 0 {
            return Ok(None);
        }
        let squares = Wide::of(self.low).plus(&Wide::of(self.high).up(2));
        // count² times the variance, exactly; never below zero.
        let spread = squares.times(count).minus(&Wide::of(self.sum.sum()).squared());
        let whole = |number: Wide| number.divided(count).divided(divisor);
        let result = match statistic {
            Statistic::Deviation(_) => {
                let more = 2 * digits.saturating_sub(scale);
                whole(spread.scaled(more)).narrow().and_then(root)
            }
            _ => {
                // Rounded with as many digits as the squares have, if these are more, and then cut.
                let cut = (2 * scale).saturating_sub(digits);
                let half = Wide::of(i256::ONE)
                    .scaled(cut)
                    .times(count)
                    .times(divisor)
                    .halved();
                let spread = spread.scaled(digits.saturating_sub(2 * scale)).plus(&half);
                let cut_off = (0..cut).fold(whole(spread), |number, _| number.divided(10));
                cut_off.narrow().and_then(i256::to_i128)
            }
        };
        let fits = |value: &i128| value.unsigned_abs() < 10_u128.pow(u32::from(DECIMAL_DIGITS));
        let name = match statistic {
            Statistic::Deviation(_) => "standard deviation",
            _ => "variance",
        };
        result.filter(fits).map(Some).ok_or_else(|| {
            numeric_overflow(name).with_hint("Cast the values to DOUBLE PRECISION to have it in that type.")
        })
    }
}

impl SumCell for NumericMoments {
    type Value = Decimal128Type;

    /// Values come as they are, whatever their scale.
    const TYPE: DataType = NumericSum::TYPE;

    const RETRACTS: bool = true;

    fn add(&mut self, value: i128, weight: i64) {
        self.sum.add(value, weight);
        let value = i256::from_i128(value);
        let (low, high) = value.wrapping_mul(value).to_parts();
        let weight = i256::from_i128(i128::from(weight));
        let times = |part: u128| i256::from_parts(part, 0).wrapping_mul(weight);
        self.low = self.low.wrapping_add(times(low));
        self.high = self.high.wrapping_add(times(high.cast_unsigned()));
    }

    fn merge(&mut self, other: &Self) {
        self.sum.merge(&other.sum);
        self.low = self.low.wrapping_add(other.low);
        self.high = self.high.wrapping_add(other.high);
    }

    fn bytes_of(value: i128) -> Vec<u8> {
        NumericSum::bytes_of(value)
    }

    fn value_of(bytes: &[u8]) -> Option<i128> {
        NumericSum::value_of(bytes)
    }

    fn put(&self, out: &mut Vec<u8>) {
        for part in [self.low, self.high] {
            out.extend_from_slice(&part.to_le_bytes());
        }
        self.sum.put(out);
    }

    fn read(bytes: &[u8]) -> Option<Self> {
        let (low, rest) = bytes.split_first_chunk::<32>()?;
        let (high, rest) = rest.split_first_chunk::<32>()?;
        Some(Self {
            sum: NumericSum::read(rest)?,
            low: i256::from_le_bytes(*low),
            high: i256::from_le_bytes(*high),
        })
    }

    fn finish(cells: &[Self], outcome: &Outcome) -> Result<ArrayRef, SqlError> {
        let digits_of = |data_type: &DataType| u32::try_from(scale_of(data_type)).unwrap_or(0);
        let (scale, digits) = (digits_of(&outcome.argument), digits_of(&outcome.result));
        let results = cells
            .iter()
            .map(|cell| cell.result(outcome.statistic, scale, digits));
        let results = results.collect::<Result<Vec<Option<i128>>, SqlError>>()?;
        let results = PrimitiveArray::<Decimal128Type>::from(results);
        Ok(Arc::new(results.with_data_type(outcome.result.clone())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAMPLE: Statistic = Statistic::Variance(Divisor::Sample);
    const POPULATION: Statistic = Statistic::Variance(Divisor::Population);

    fn numbers(values: &[i128]) -> NumericMoments {
        let mut moments = NumericMoments::default();
        for value in values {
            moments.add(*value, 1);
        }
        moments
    }

    #[test]
    fn variances_of_numbers_are_those_of_postgresql() {
        let thirds = numbers(&[1, 1, 3]);
        assert_eq!(
            thirds.result(SAMPLE, 0, 16).unwrap(),
            Some(13_333_333_333_333_333)
        );
        assert_eq!(
            thirds.result(POPULATION, 0, 16).unwrap(),
            Some(8_888_888_888_888_889)
        );
        let root = Statistic::Deviation(Divisor::Sample);
        assert_eq!(thirds.result(root, 0, 16).unwrap(), Some(11_547_005_383_792_515));
        // 1.50, 1.25 and 3.00.
        let parts = numbers(&[150, 125, 300]);
        assert_eq!(parts.result(SAMPLE, 2, 16).unwrap(), Some(8_958_333_333_333_333));
        assert_eq!(parts.result(root, 2, 16).unwrap(), Some(9_464_847_243_000_456));
        // Rounded, with fewer digits behind the point than squares have.
        assert_eq!(parts.result(SAMPLE, 2, 2).unwrap(), Some(90));
        assert_eq!(numbers(&[7]).result(SAMPLE, 0, 16).unwrap(), None);
        assert_eq!(numbers(&[7]).result(POPULATION, 0, 16).unwrap(), Some(0));
        assert_eq!(numbers(&[]).result(POPULATION, 0, 16).unwrap(), None);
    }

    #[test]
    fn numbers_that_are_taken_away_leave_no_trace() {
        let large = 10_i128.pow(38) - 1;
        let mut moments = numbers(&[5, 5, large, -large, large]);
        assert!(moments.result(POPULATION, 0, 0).is_err());
        let deviation = moments.result(Statistic::Deviation(Divisor::Population), 0, 0);
        assert!(deviation.unwrap().is_some_and(|deviation| deviation > large / 2));
        moments.add(large, -2);
        moments.add(-large, -1);
        assert_eq!(moments, numbers(&[5, 5]));
        assert_eq!(moments.result(SAMPLE, 0, 16).unwrap(), Some(0));
        let mut bytes = Vec::new();
        moments.put(&mut bytes);
        assert_eq!(NumericMoments::read(&bytes), Some(moments));
    }

    #[test]
    fn equal_floats_have_no_variance() {
        let mut moments = FloatMoments::default();
        moments.add(0.1, 3);
        assert_eq!(moments.result(SAMPLE).unwrap(), Some(0.0));
        let mut other = FloatMoments::default();
        other.add(0.1, 1);
        moments.merge(&other);
        let merged = moments.result(POPULATION).unwrap();
        assert!(merged.is_some_and(|variance| (0.0..1e-30).contains(&variance)));
        moments.add(f64::INFINITY, 1);
        assert!(moments.result(SAMPLE).unwrap().is_some_and(f64::is_nan));
        let mut beyond = FloatMoments::default();
        for value in [1e200, -1e200] {
            beyond.add(value, 1);
        }
        assert!(beyond.result(SAMPLE).is_err());
    }
}
