//! Sums of NUMERIC: they may leave their 38 digits and come back. Those of views and of one-shot reads alike.

use std::sync::Arc;

use arrow::array::{ArrayRef, PrimitiveArray};
use arrow::datatypes::{DataType, Decimal128Type, DecimalType as _, i256};

use super::super::numeric::{quotient, wide_quotient};
use super::{Outcome, Statistic, SumCell};
use crate::plan::types::DECIMAL_DIGITS;
use crate::{SqlError, SqlState};

/// A sum of whole numbers, of 192 bits: no order of the values matters to it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct NumericSum {
    low: i128,
    /// How often `low` has gone round, upwards: the sum is `low + rounds × 2^128`.
    rounds: i64,
    count: i64,
}

impl NumericSum {
    /// The sum of `count` values; `None` for one that is beyond what so many values have.
    #[must_use]
    pub fn of(sum: i256, count: i64) -> Option<Self> {
        let (low, high) = sum.to_parts();
        let low = low.cast_signed();
        let rounds = high.checked_sub(low >> 127)?;
        Some(Self {
            low,
            rounds: i64::try_from(rounds).ok()?,
            count,
        })
    }

    /// How many values there are.
    #[must_use]
    pub fn count(&self) -> i64 {
        self.count
    }

    /// The sum, with all of its digits.
    #[must_use]
    pub fn sum(&self) -> i256 {
        i256::from_parts(
            self.low.cast_unsigned(),
            (self.low >> 127) + i128::from(self.rounds),
        )
    }

    /// Adds a value of at most 38 digits as often as its weight says.
    #[inline]
    pub fn add(&mut self, value: i128, weight: i64) {
        self.count += weight;
        match weight {
            1 => self.plus(value),
            -1 => self.plus(value.wrapping_neg()),
            _ => self.plus_times(value, weight),
        }
    }

    #[inline]
    fn plus(&mut self, value: i128) {
        let (low, is_round) = self.low.overflowing_add(value);
        self.low = low;
        if is_round {
            self.rounds += if value < 0 { -1 } else { 1 };
        }
    }

    fn plus_times(&mut self, value: i128, weight: i64) {
        let product = i256::from_i128(value).wrapping_mul(i256::from_i128(i128::from(weight)));
        // A product of 127 and 63 bits has its place in 192.
        if let Some(product) = Self::of(product, 0) {
            self.merge(&product);
        }
    }

    /// Adds what another sum has.
    pub fn merge(&mut self, other: &Self) {
        self.plus(other.low);
        self.rounds += other.rounds;
        self.count += other.count;
    }

    /// The sum; `None` of no values.
    ///
    /// # Errors
    /// A sum of more than 38 digits (22003).
    pub fn total(&self) -> Result<Option<i128>, SqlError> {
        if self.count == 0 {
            return Ok(None);
        }
        let fits = self.rounds == 0 && self.low.unsigned_abs() < 10_u128.pow(u32::from(DECIMAL_DIGITS));
        fits.then_some(Some(self.low)).ok_or_else(|| overflow("sum"))
    }

    /// The mean with `digits` more digits behind the point than the values have, rounded half away from zero; `None` of no
    /// values.
    ///
    /// # Errors
    /// A mean of more than 38 digits (22003).
    pub fn mean(&self, digits: u8) -> Result<Option<i128>, SqlError> {
        let mean = match (self.count, self.rounds) {
            (0, _) => return Ok(None),
            (count, 0) => quotient(self.low, i128::from(count), i32::from(digits)),
            (count, _) => i256::from_i128(10)
                .checked_pow(u32::from(digits))
                .and_then(|power| self.sum().checked_mul(power))
                .and_then(|sum| wide_quotient(sum, i256::from_i128(i128::from(count)))),
        };
        mean.map(Some).ok_or_else(|| overflow("mean"))
    }
}

/// How many digits a type has behind the point.
pub(super) fn scale_of(data_type: &DataType) -> i8 {
    match data_type {
        DataType::Decimal128(_, scale) => *scale,
        _ => 0,
    }
}

pub(super) fn overflow(what: &str) -> SqlError {
    SqlError::new(SqlState::NumericValueOutOfRange, "numeric field overflow")
        .with_detail(format!("A {what} has more than {DECIMAL_DIGITS} digits."))
}

impl SumCell for NumericSum {
    type Value = Decimal128Type;

    /// Values come as they are, whatever their scale.
    const TYPE: DataType = DataType::Decimal128(Decimal128Type::MAX_PRECISION, 0);

    const RETRACTS: bool = true;

    fn add(&mut self, value: i128, weight: i64) {
        Self::add(self, value, weight);
    }

    fn merge(&mut self, other: &Self) {
        Self::merge(self, other);
    }

    fn bytes_of(value: i128) -> Vec<u8> {
        value.to_le_bytes().to_vec()
    }

    fn value_of(bytes: &[u8]) -> Option<i128> {
        bytes.try_into().ok().map(i128::from_le_bytes)
    }

    fn put(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.low.to_le_bytes());
        out.extend_from_slice(&self.rounds.to_le_bytes());
        out.extend_from_slice(&self.count.to_le_bytes());
    }

    fn read(bytes: &[u8]) -> Option<Self> {
        let counts = |at: usize| bytes.get(at..at + 8)?.try_into().ok().map(i64::from_le_bytes);
        Some(Self {
            low: bytes.get(..16)?.try_into().ok().map(i128::from_le_bytes)?,
            rounds: counts(16)?,
            count: counts(24)?,
        })
    }

    fn finish(cells: &[Self], outcome: &Outcome) -> Result<ArrayRef, SqlError> {
        let digits = scale_of(&outcome.result).saturating_sub(scale_of(&outcome.argument));
        let results = cells.iter().map(|cell| match outcome.statistic {
            Statistic::Mean => cell.mean(u8::try_from(digits).unwrap_or(0)),
            _ => cell.total(),
        });
        let results = results.collect::<Result<Vec<Option<i128>>, SqlError>>()?;
        let results = PrimitiveArray::<Decimal128Type>::from(results);
        Ok(Arc::new(results.with_data_type(outcome.result.clone())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sum_that_was_beyond_its_digits_is_right_when_it_is_back() {
        let large = 10_i128.pow(38) - 1;
        let mut sum = NumericSum::default();
        for _ in 0..5 {
            sum.add(large, 1);
        }
        assert!(sum.total().is_err());
        assert_eq!(sum.mean(0).unwrap(), Some(large));
        let mut bytes = Vec::new();
        sum.put(&mut bytes);
        let mut sum = NumericSum::read(&bytes).unwrap();
        assert_eq!(NumericSum::of(sum.sum(), 5), Some(sum));
        let mut other = NumericSum::default();
        other.add(large, -3);
        other.add(-7, 1);
        sum.merge(&other);
        assert!(sum.total().is_err());
        sum.add(large, -1);
        assert_eq!(sum.total().unwrap(), Some(large - 7));
    }

    #[test]
    fn sums_below_zero_go_round_too() {
        let least = 1 - 10_i128.pow(38);
        let mut sum = NumericSum::default();
        sum.add(least, 1_000_000);
        assert_eq!(NumericSum::of(sum.sum(), 1_000_000), Some(sum));
        assert_eq!(sum.mean(0).unwrap(), Some(least));
        assert!(sum.mean(1).is_err());
        sum.add(least, -999_999);
        assert_eq!(sum.total().unwrap(), Some(least));
        assert_eq!(sum.sum(), i256::from_i128(least));
    }

    #[test]
    fn means_are_rounded_half_away_from_zero() {
        let mean = |sum: i128, count: i64, digits: u8| {
            let sum = NumericSum::of(i256::from_i128(sum), count).unwrap();
            sum.mean(digits).unwrap()
        };
        assert_eq!(mean(5, 2, 0), Some(3));
        assert_eq!(mean(-5, 2, 0), Some(-3));
        assert_eq!(mean(-4, 3, 0), Some(-1));
        assert_eq!(mean(-5, 3, 0), Some(-2));
        assert_eq!(mean(4, 3, 0), Some(1));
        assert_eq!(mean(2, 3, 16), Some(6_666_666_666_666_667));
        let large = i128::from(i64::MAX) * 1_000_000;
        assert_eq!(
            mean(large, 1_000_000, 16),
            Some(i128::from(i64::MAX) * 10i128.pow(16))
        );
        assert_eq!(mean(7, 0, 16), None);
    }
}
