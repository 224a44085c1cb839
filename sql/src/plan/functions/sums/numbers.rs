//! Sums of NUMERIC, which leave their 38 digits with an error and not in silence.

use std::sync::Arc;

use arrow::array::{ArrayRef, PrimitiveArray};
use arrow::datatypes::{DataType, Decimal128Type, DecimalType as _};

use super::SumCell;
use crate::plan::types::DECIMAL_DIGITS;
use crate::{SqlError, SqlState};

/// A sum of whole numbers, of 192 bits: no order of the values matters to it.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct NumericSum {
    low: i128,
    /// How often `low` has gone round, upwards.
    rounds: i64,
    count: i64,
}

impl NumericSum {
    fn plus(&mut self, value: i128) {
        let (low, is_round) = self.low.overflowing_add(value);
        self.low = low;
        if is_round {
            self.rounds += if value < 0 { -1 } else { 1 };
        }
    }

    fn total(&self) -> Result<Option<i128>, SqlError> {
        if self.count == 0 {
            return Ok(None);
        }
        let fits = self.rounds == 0 && self.low.unsigned_abs() < 10_u128.pow(u32::from(DECIMAL_DIGITS));
        fits.then_some(Some(self.low)).ok_or_else(|| {
            SqlError::new(SqlState::NumericValueOutOfRange, "numeric field overflow")
                .with_detail(format!("A sum has more than {DECIMAL_DIGITS} digits."))
        })
    }
}

impl SumCell for NumericSum {
    type Value = Decimal128Type;

    /// Values come as they are, whatever their scale.
    const TYPE: DataType = DataType::Decimal128(Decimal128Type::MAX_PRECISION, 0);

    fn add(&mut self, value: i128, weight: i64) {
        self.count += weight;
        for _ in 0..weight.unsigned_abs() {
            // The negation of a value of 38 digits fits.
            self.plus(if weight < 0 { value.wrapping_neg() } else { value });
        }
    }

    fn merge(&mut self, other: &Self) {
        self.plus(other.low);
        self.rounds += other.rounds;
        self.count += other.count;
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

    fn finish(cells: &[Self], _: bool, data_type: &DataType) -> Result<ArrayRef, SqlError> {
        let totals = cells.iter().map(Self::total);
        let totals = totals.collect::<Result<Vec<Option<i128>>, SqlError>>()?;
        let totals = PrimitiveArray::<Decimal128Type>::from(totals);
        Ok(Arc::new(totals.with_data_type(data_type.clone())))
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
        let mut bytes = Vec::new();
        sum.put(&mut bytes);
        let mut sum = NumericSum::read(&bytes).unwrap();
        let mut other = NumericSum::default();
        other.add(large, -3);
        other.add(-7, 1);
        sum.merge(&other);
        assert!(sum.total().is_err());
        sum.add(large, -1);
        assert_eq!(sum.total().unwrap(), Some(large - 7));
    }
}
