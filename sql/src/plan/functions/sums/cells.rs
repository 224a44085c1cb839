//! Sums of floats and of intervals, from which values are also taken away: those of views and of one-shot reads alike.

use std::sync::Arc;

use arrow::array::{ArrayRef, PrimitiveArray};
use arrow::datatypes::{
    DataType, Float32Type, Float64Type, IntervalMonthDayNano, IntervalMonthDayNanoType, ToByteSlice,
};

use super::super::span::{Span, out_of_range};
use super::{INTERVAL, Outcome, Statistic, SumCell};
use crate::SqlError;
use crate::plan::floats::{overflow, real};

/// What a sum is set aside in when it leaves the range of floats: 2^1023, half of where the range ends.
const UNIT: f64 = f64::from_bits(0x7fe0_0000_0000_0000);

/// A sum of floats that may leave their range and come back.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct WideFloat {
    /// The sum without what is set aside. Infinite or NaN only if such a value was added.
    pub sum: f64,
    /// How often 2^1023 is set aside, taken away if negative.
    pub aside: i64,
}

impl WideFloat {
    /// Adds a value; gives what rounding cut off, which is nothing for values that are not finite.
    #[inline]
    pub fn add(&mut self, value: f64) -> f64 {
        let sum = self.sum + value;
        if sum.is_finite() {
            let error = cut_off(self.sum, value, sum);
            self.sum = sum;
            return error;
        }
        self.add_beyond(value)
    }

    #[cold]
    fn add_beyond(&mut self, mut value: f64) -> f64 {
        while self.sum.is_finite() && value.is_finite() && (self.sum + value).is_infinite() {
            // Both have one sign, and one of them at least the size of a unit, so this is exact.
            let unit = UNIT.copysign(value);
            match self.sum.abs() >= UNIT {
                true => self.sum -= unit,
                false => value -= unit,
            }
            self.aside += if unit > 0.0 { 1 } else { -1 };
        }
        let sum = self.sum + value;
        let error = match sum.is_finite() {
            true => cut_off(self.sum, value, sum),
            false => 0.0,
        };
        self.sum = sum;
        error
    }

    /// The sum with a correction.
    ///
    /// # Errors
    /// A sum of finite values that is out of range (22003).
    pub fn total(&self, correction: f64) -> Result<f64, SqlError> {
        if !self.sum.is_finite() || self.aside == 0 {
            let total = self.sum + correction;
            return match total.is_infinite() && self.sum.is_finite() {
                true => Err(overflow()),
                false => Ok(total),
            };
        }
        // Halves are in range where the parts of a sum are not.
        let half = self.aside as f64 * (UNIT / 2.0) + self.sum / 2.0;
        let total = half * 2.0 + correction;
        match total.is_finite() {
            true => Ok(total),
            false => Err(overflow()),
        }
    }
}

/// What `left + right = sum` lost (Neumaier's summation).
#[inline]
fn cut_off(left: f64, right: f64, sum: f64) -> f64 {
    match left.abs() >= right.abs() {
        true => (left - sum) + right,
        false => (right - sum) + left,
    }
}

/// A sum of floats, some of which are taken away again. What cannot be subtracted from a sum is counted beside it, and the sum
/// carries its rounding error along.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct FloatSum {
    /// The sum of the finite values.
    pub sum: WideFloat,
    /// What rounding cut off the sum.
    pub error: f64,
    /// What rounding cut off the error: all that is left of small values while the sum is large.
    pub residue: f64,
    /// How many values there are.
    pub count: i64,
    /// How many of them are NaN.
    pub nan: i64,
    /// How many are infinite.
    pub infinite: i64,
    /// How many are negative and infinite.
    pub negative_infinite: i64,
}

impl FloatSum {
    /// Adds a value as often as its weight says.
    #[inline]
    pub fn add(&mut self, value: f64, weight: i64) {
        self.count += weight;
        if self.count == 0 {
            // Nothing is left, so nothing of a rounding error may be.
            *self = Self::default();
        } else if value.is_nan() {
            self.nan += weight;
        } else if value == f64::INFINITY {
            self.infinite += weight;
        } else if value == f64::NEG_INFINITY {
            self.negative_infinite += weight;
        } else if weight == 1 {
            self.add_finite(value);
        } else if weight == -1 {
            self.add_finite(-value);
        } else {
            self.add_times(value, weight);
        }
    }

    #[inline]
    fn add_finite(&mut self, value: f64) {
        let cut_off = self.sum.add(value);
        self.correct(cut_off);
    }

    #[inline]
    fn correct(&mut self, by: f64) {
        let error = self.error + by;
        self.residue += cut_off(self.error, by, error);
        self.error = error;
    }

    fn add_times(&mut self, value: f64, weight: i64) {
        let times = weight as f64;
        let product = value * times;
        if product.is_finite() {
            self.correct(value.mul_add(times, -product));
            self.add_finite(product);
            return;
        }
        let value = if weight < 0 { -value } else { value };
        for _ in 0..weight.unsigned_abs() {
            self.add_finite(value);
        }
    }

    /// Adds what another sum has.
    pub fn merge(&mut self, other: &Self) {
        self.add_finite(other.sum.sum);
        self.correct(other.error);
        self.residue += other.residue;
        self.sum.aside += other.sum.aside;
        self.count += other.count;
        self.nan += other.nan;
        self.infinite += other.infinite;
        self.negative_infinite += other.negative_infinite;
    }

    /// The sum; `None` of no values.
    ///
    /// # Errors
    /// A sum of finite values that is out of range (22003).
    pub fn total(&self) -> Result<Option<f64>, SqlError> {
        if self.count == 0 {
            return Ok(None);
        }
        Ok(Some(match (self.nan, self.infinite, self.negative_infinite) {
            (0, 0, 0) => self.sum.total(self.error + self.residue)?,
            (0, _, 0) => f64::INFINITY,
            (0, 0, _) => f64::NEG_INFINITY,
            _ => f64::NAN,
        }))
    }
}

/// A sum of intervals, some of which are taken away again.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct IntervalSum {
    /// Months of all.
    pub months: i128,
    /// Days of all.
    pub days: i128,
    /// Microseconds of all.
    pub micros: i128,
    /// How many intervals there are.
    pub count: i64,
}

impl IntervalSum {
    /// Adds an interval as often as its weight says.
    #[inline]
    pub fn add(&mut self, value: IntervalMonthDayNano, weight: i64) {
        let times = i128::from(weight);
        self.months += i128::from(value.months) * times;
        self.days += i128::from(value.days) * times;
        self.micros += i128::from(value.nanoseconds / 1000) * times;
        self.count += weight;
    }

    /// Adds what another sum has.
    pub fn merge(&mut self, other: &Self) {
        self.months += other.months;
        self.days += other.days;
        self.micros += other.micros;
        self.count += other.count;
    }

    /// The sum; `None` of no intervals.
    ///
    /// # Errors
    /// A sum that is no interval any more (22008).
    pub fn total(&self) -> Result<Option<IntervalMonthDayNano>, SqlError> {
        match self.count {
            0 => Ok(None),
            _ => self.span()?.arrow().map(Some),
        }
    }

    /// The mean; `None` of no intervals.
    ///
    /// # Errors
    /// A sum that is no interval any more (22008).
    pub fn mean(&self) -> Result<Option<IntervalMonthDayNano>, SqlError> {
        if self.count == 0 {
            return Ok(None);
        }
        let sum = self.span()?;
        sum.arrow()?;
        sum.divided(self.count as f64)?.arrow().map(Some)
    }

    fn span(&self) -> Result<Span, SqlError> {
        let part = |value: i128| i64::try_from(value).map_err(|_| out_of_range());
        Ok(Span {
            months: part(self.months)?,
            days: part(self.days)?,
            micros: part(self.micros)?,
        })
    }
}

/// Eight bytes at a place, counted in eights.
pub(super) fn eight(bytes: &[u8], at: usize) -> Option<[u8; 8]> {
    bytes.get(at * 8..at * 8 + 8)?.try_into().ok()
}

/// A float as bytes that are equal for equal floats.
pub(super) fn bytes_of_float(value: f64) -> Vec<u8> {
    let plain = if value.is_nan() { f64::NAN } else { value + 0.0 };
    plain.to_le_bytes().to_vec()
}

impl SumCell for FloatSum {
    type Value = Float64Type;

    const TYPE: DataType = DataType::Float64;

    const RETRACTS: bool = true;

    #[inline]
    fn add(&mut self, value: f64, weight: i64) {
        Self::add(self, value, weight);
    }

    fn merge(&mut self, other: &Self) {
        Self::merge(self, other);
    }

    fn bytes_of(value: f64) -> Vec<u8> {
        bytes_of_float(value)
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
            Ok(cell.total()?.map(|total| match outcome.statistic {
                Statistic::Mean => total / cell.count as f64,
                _ => total,
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

    const RETRACTS: bool = true;

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
        let results = cells.iter().map(|cell| match outcome.statistic {
            Statistic::Mean => cell.mean(),
            _ => cell.total(),
        });
        let results = results.collect::<Result<Vec<_>, SqlError>>()?;
        Ok(Arc::new(PrimitiveArray::<IntervalMonthDayNanoType>::from(
            results,
        )))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sum_of(values: &[(f64, i64)]) -> FloatSum {
        let mut sum = FloatSum::default();
        for (value, weight) in values {
            sum.add(*value, *weight);
        }
        sum
    }

    #[test]
    fn a_sum_that_left_the_range_comes_back() {
        let beyond = sum_of(&[(1.5, 1), (1e308, 1), (1e308, 1), (f64::MAX, 5)]);
        assert!(beyond.total().is_err());
        let mut sum = beyond;
        for (value, weight) in [(1e308, -2), (f64::MAX, -3), (f64::MAX, -2)] {
            sum.add(value, weight);
        }
        assert_eq!(sum.total().unwrap(), Some(1.5));
        let negative = sum_of(&[(-1e308, 3), (1e308, 3), (2.5, 1)]);
        assert_eq!(negative.total().unwrap(), Some(2.5));
        assert_eq!(sum_of(&[(1e308, 1), (7e307, 1)]).total().unwrap(), Some(1.7e308));
    }

    #[test]
    fn what_is_no_number_leaves_no_trace() {
        let sum = sum_of(&[
            (1.5, 1),
            (f64::INFINITY, 1),
            (f64::NAN, 2),
            (1e300, 1),
            (f64::NAN, -2),
            (1e300, -1),
            (f64::INFINITY, -1),
        ]);
        assert_eq!(sum.total().unwrap(), Some(1.5));
        let both = sum_of(&[(f64::INFINITY, 1), (f64::NEG_INFINITY, 1)]);
        assert!(both.total().unwrap().is_some_and(f64::is_nan));
    }

    #[test]
    fn sums_are_merged() {
        let mut sum = sum_of(&[(1e308, 1), (1.0, 1)]);
        sum.merge(&sum_of(&[(1e308, 1), (f64::INFINITY, 1)]));
        sum.add(f64::INFINITY, -1);
        assert!(sum.total().is_err());
        sum.merge(&sum_of(&[(-1e308, 2)]));
        assert_eq!(sum.total().unwrap(), Some(1.0));
    }

    #[test]
    fn thirds_of_intervals_go_down_to_days_and_microseconds() {
        let mut sum = IntervalSum::default();
        sum.add(IntervalMonthDayNano::new(1, 0, 0), 2);
        sum.add(IntervalMonthDayNano::new(0, 1, 0), 1);
        assert_eq!(sum.total().unwrap(), Some(IntervalMonthDayNano::new(2, 1, 0)));
        let mean = IntervalMonthDayNano::new(0, 20, 8 * 3_600_000_000_000);
        assert_eq!(sum.mean().unwrap(), Some(mean));
        sum.add(IntervalMonthDayNano::new(i32::MAX, 0, 0), 1);
        assert!(sum.total().is_err());
    }
}
