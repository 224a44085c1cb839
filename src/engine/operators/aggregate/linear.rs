//! Aggregates that retract by subtraction: count, sum, avg.

use std::marker::PhantomData;
use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array};
use arrow::datatypes::DataType;

use super::accumulator::{Accumulator, Argument, FrozenAccumulator, Rows};
use crate::engine::error::EngineError;
use crate::engine::operators::state::chunks::{Chunks, FrozenChunks};
use crate::engine::operators::state::slots::{Kept, SlotSet};
use crate::engine::operators::state::values::{self, Values};
use crate::engine::operators::state::varint;

/// Numbers of more digits are refused: those of `Decimal128(38, _)`.
const DECIMAL_LIMIT: i128 = 10i128.pow(38);

/// Counts rows.
#[derive(Default)]
pub(super) struct Count {
    cells: Chunks<i64>,
    saved: Vec<i64>,
}

/// Sums of values, and how many there are.
pub(super) struct Linear<C> {
    cells: Chunks<C>,
    saved: Vec<C>,
    finish: Finish,
}

/// What a sum becomes.
#[derive(Debug, Clone)]
pub(super) enum Finish {
    /// Itself, as this type.
    Sum(DataType),
    /// Its quotient by the count.
    Mean(Mean),
}

/// How a mean is given.
#[derive(Debug, Clone)]
pub(super) struct Mean {
    result: DataType,
    /// A sum is multiplied by this to have the scale of the result.
    factor: i128,
}

/// Sum and count of one group.
pub(super) trait Cell: Copy + Default + PartialEq + Send + Sync + 'static {
    /// What is summed.
    type Value: Copy;

    /// The argument's values.
    fn values(argument: &Argument) -> Option<&[Self::Value]>;

    /// Adds a value as often as its weight says; whether the sum still fits its type.
    fn add(&mut self, value: Self::Value, weight: i64) -> bool;

    /// The error for a sum that does not fit.
    fn overflow() -> EngineError {
        numeric_overflow()
    }

    /// The results of cells.
    ///
    /// # Errors
    /// A result that exceeds its type.
    fn finish(cells: Vec<Self>, finish: &Finish) -> Result<ArrayRef, EngineError>;

    /// Appends the cell.
    fn encode(&self, out: &mut Vec<u8>);

    /// Takes a cell off `bytes`.
    ///
    /// # Errors
    /// Bytes that are no cell.
    fn decode(bytes: &mut &[u8]) -> Result<Self, EngineError>;
}

/// Sum of integers of at most 32 bits.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct IntegerCell {
    sum: i64,
    count: i64,
}

/// Sum of 64-bit integers or of decimals.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct ExactCell<V> {
    sum: i128,
    count: i64,
    values: PhantomData<V>,
}

impl Mean {
    /// A mean of type `result` over values of scale `scale`.
    ///
    /// # Errors
    /// A result of a smaller scale than the values.
    pub(super) fn new(result: DataType, scale: i8) -> Result<Self, EngineError> {
        let factor = match &result {
            DataType::Decimal128(_, own) => u32::try_from(i16::from(*own) - i16::from(scale))
                .ok()
                .and_then(|digits| 10i128.checked_pow(digits))
                .ok_or_else(|| EngineError::internal("an avg has a smaller scale than its argument"))?,
            _ => 1,
        };
        Ok(Self { result, factor })
    }

    /// `sum / count`, rounded half away from zero at the scale of the result, as PostgreSQL rounds it.
    fn exact(&self, sum: i128, count: i64) -> Option<i128> {
        let count = i128::from(count);
        let whole = (sum / count).checked_mul(self.factor)?;
        let rest = (sum % count).checked_mul(self.factor)?;
        let (quotient, left) = (rest / count, rest % count);
        let away = if left.abs() * 2 >= count.abs() {
            left.signum() * count.signum()
        } else {
            0
        };
        let mean = whole.checked_add(quotient)?.checked_add(away)?;
        (mean.abs() < DECIMAL_LIMIT).then_some(mean)
    }
}

impl<C: Cell> Linear<C> {
    /// No slots.
    pub(super) fn new(finish: Finish) -> Self {
        Self {
            cells: Chunks::new(),
            saved: Vec::new(),
            finish,
        }
    }
}

impl Accumulator for Count {
    fn grow(&mut self, slots: usize) {
        self.cells.grow(slots, 0);
    }

    fn save(&mut self, slots: &[u32]) {
        self.saved.extend(slots.iter().map(|slot| *self.cells.get(*slot)));
    }

    fn update(&mut self, rows: Rows<'_>, _argument: &Argument) -> Result<(), EngineError> {
        add_counts(&mut self.cells, rows);
        Ok(())
    }

    fn results(&self, slots: &[u32]) -> Result<ArrayRef, EngineError> {
        Ok(Arc::new(
            slots
                .iter()
                .map(|slot| Some(*self.cells.get(*slot)))
                .collect::<Int64Array>(),
        ))
    }

    fn saved_results(&self, positions: &[u32]) -> Result<ArrayRef, EngineError> {
        Ok(Arc::new(
            positions
                .iter()
                .map(|at| Some(self.saved[*at as usize]))
                .collect::<Int64Array>(),
        ))
    }

    fn forget_saved(&mut self) {
        self.saved.clear();
    }

    fn clear(&mut self, slots: &[u32]) {
        clear_cells(&mut self.cells, slots);
    }

    fn freeze(&mut self, slots: &SlotSet) -> Box<dyn FrozenAccumulator> {
        Box::new(self.cells.freeze(slots))
    }

    fn restore(&mut self, slot: u32, bytes: &mut &[u8]) -> Result<(), EngineError> {
        *self.cells.get_mut(slot) = varint::read_i64(bytes)?;
        Ok(())
    }

    fn keep(&mut self, kept: &Kept) {
        self.cells.keep(kept);
    }

    fn bytes(&self) -> usize {
        self.cells.bytes() + self.saved.capacity() * size_of::<i64>()
    }
}

/// Adds the weight of each row to the count of its slot.
pub(super) fn add_counts(cells: &mut Chunks<i64>, rows: Rows<'_>) {
    match rows.weights {
        None => {
            for slot in rows.slots {
                *cells.get_mut(*slot) += 1;
            }
        }
        Some(weights) => {
            for (slot, weight) in rows.slots.iter().zip(weights) {
                *cells.get_mut(*slot) += weight;
            }
        }
    }
}

/// Makes cells empty. Writes none that is: its chunk may be shared.
fn clear_cells<C: Clone + Default + PartialEq>(cells: &mut Chunks<C>, slots: &[u32]) {
    for slot in slots {
        if *cells.get(*slot) != C::default() {
            *cells.get_mut(*slot) = C::default();
        }
    }
}

impl FrozenAccumulator for FrozenChunks<i64> {
    fn encode(&self, slot: u32, out: &mut Vec<u8>) {
        varint::put(out, i128::from(*self.get(slot)));
    }
}

impl<C: Cell> Accumulator for Linear<C> {
    fn grow(&mut self, slots: usize) {
        self.cells.grow(slots, C::default());
    }

    fn save(&mut self, slots: &[u32]) {
        self.saved.extend(slots.iter().map(|slot| *self.cells.get(*slot)));
    }

    fn update(&mut self, rows: Rows<'_>, argument: &Argument) -> Result<(), EngineError> {
        let values = C::values(argument);
        let values =
            values.ok_or_else(|| EngineError::internal("the argument of a sum is not of its type"))?;
        let mut fits = true;
        let pairs = rows.rows.iter().zip(rows.slots);
        match rows.weights {
            None => {
                for (row, slot) in pairs {
                    fits &= self.cells.get_mut(*slot).add(values[*row as usize], 1);
                }
            }
            Some(weights) => {
                for ((row, slot), weight) in pairs.zip(weights) {
                    fits &= self.cells.get_mut(*slot).add(values[*row as usize], *weight);
                }
            }
        }
        if fits { Ok(()) } else { Err(C::overflow()) }
    }

    fn results(&self, slots: &[u32]) -> Result<ArrayRef, EngineError> {
        C::finish(
            slots.iter().map(|slot| *self.cells.get(*slot)).collect(),
            &self.finish,
        )
    }

    fn saved_results(&self, positions: &[u32]) -> Result<ArrayRef, EngineError> {
        C::finish(
            positions.iter().map(|at| self.saved[*at as usize]).collect(),
            &self.finish,
        )
    }

    fn forget_saved(&mut self) {
        self.saved.clear();
    }

    fn clear(&mut self, slots: &[u32]) {
        clear_cells(&mut self.cells, slots);
    }

    fn freeze(&mut self, slots: &SlotSet) -> Box<dyn FrozenAccumulator> {
        Box::new(FrozenCells(self.cells.freeze(slots)))
    }

    fn restore(&mut self, slot: u32, bytes: &mut &[u8]) -> Result<(), EngineError> {
        *self.cells.get_mut(slot) = C::decode(bytes)?;
        Ok(())
    }

    fn keep(&mut self, kept: &Kept) {
        self.cells.keep(kept);
    }

    fn bytes(&self) -> usize {
        self.cells.bytes() + self.saved.capacity() * size_of::<C>()
    }
}

struct FrozenCells<C>(FrozenChunks<C>);

impl<C: Cell> FrozenAccumulator for FrozenCells<C> {
    fn encode(&self, slot: u32, out: &mut Vec<u8>) {
        self.0.get(slot).encode(out);
    }
}

impl Cell for IntegerCell {
    type Value = i64;

    fn values(argument: &Argument) -> Option<&[i64]> {
        <ExactCell<i64>>::values(argument)
    }

    #[inline]
    fn add(&mut self, value: i64, weight: i64) -> bool {
        self.count += weight;
        let (product, overflowed) = value.overflowing_mul(weight);
        let (sum, overflowed_too) = self.sum.overflowing_add(product);
        self.sum = sum;
        !(overflowed | overflowed_too)
    }

    fn overflow() -> EngineError {
        EngineError::new("22003", "bigint out of range")
    }

    fn finish(cells: Vec<Self>, _finish: &Finish) -> Result<ArrayRef, EngineError> {
        let sums = cells.iter().map(|cell| (cell.count != 0).then_some(cell.sum));
        Ok(Arc::new(sums.collect::<Int64Array>()))
    }

    fn encode(&self, out: &mut Vec<u8>) {
        varint::put(out, i128::from(self.count));
        varint::put(out, i128::from(self.sum));
    }

    fn decode(bytes: &mut &[u8]) -> Result<Self, EngineError> {
        Ok(Self {
            count: varint::read_i64(bytes)?,
            sum: varint::read_i64(bytes)?,
        })
    }
}

impl<V> Default for ExactCell<V> {
    fn default() -> Self {
        Self {
            sum: 0,
            count: 0,
            values: PhantomData,
        }
    }
}

/// The two argument types of an [`ExactCell`] differ in where their values are.
macro_rules! exact_cell {
    ($value:ty, $form:ident) => {
        impl Cell for ExactCell<$value> {
            type Value = $value;

            fn values(argument: &Argument) -> Option<&[$value]> {
                match &argument.values {
                    Some(Values::$form(values)) => Some(values),
                    _ => None,
                }
            }

            #[inline]
            fn add(&mut self, value: $value, weight: i64) -> bool {
                self.count += weight;
                let (product, overflowed) = i128::from(value).overflowing_mul(i128::from(weight));
                let (sum, overflowed_too) = self.sum.overflowing_add(product);
                self.sum = sum;
                !(overflowed | overflowed_too) && (-DECIMAL_LIMIT < sum) & (sum < DECIMAL_LIMIT)
            }

            fn finish(cells: Vec<Self>, finish: &Finish) -> Result<ArrayRef, EngineError> {
                exact_results(cells.iter().map(|cell| (cell.sum, cell.count)), finish)
            }

            fn encode(&self, out: &mut Vec<u8>) {
                varint::put(out, i128::from(self.count));
                varint::put(out, self.sum);
            }

            fn decode(bytes: &mut &[u8]) -> Result<Self, EngineError> {
                let count = varint::read_i64(bytes)?;
                Ok(Self {
                    count,
                    sum: varint::read(bytes)?,
                    values: PhantomData,
                })
            }
        }
    };
}

exact_cell!(i64, I64);
exact_cell!(i128, I128);

fn exact_results(cells: impl Iterator<Item = (i128, i64)>, finish: &Finish) -> Result<ArrayRef, EngineError> {
    let (data_type, results) = match finish {
        Finish::Sum(data_type) => (
            data_type,
            cells
                .map(|(sum, count)| (count != 0).then_some(sum))
                .collect::<Vec<_>>(),
        ),
        Finish::Mean(mean) => {
            let means = cells.map(|(sum, count)| match count {
                0 => Ok(None),
                _ => mean.exact(sum, count).map(Some).ok_or_else(numeric_overflow),
            });
            (&mean.result, means.collect::<Result<_, _>>()?)
        }
    };
    let nulls = values::nulls_of(results.len(), |row| results[row].is_some());
    values::column_of_i128(
        data_type,
        results.iter().map(|sum| sum.unwrap_or_default()).collect(),
        nulls,
    )
}

fn numeric_overflow() -> EngineError {
    EngineError::new("22003", "numeric field overflow")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn means_are_rounded_half_away_from_zero_and_do_not_overflow_on_the_way() {
        let whole = Mean::new(DataType::Decimal128(38, 0), 0).unwrap();
        assert_eq!(whole.exact(5, 2), Some(3));
        assert_eq!(whole.exact(-5, 2), Some(-3));
        assert_eq!(whole.exact(-4, 3), Some(-1));
        assert_eq!(whole.exact(-5, 3), Some(-2));
        assert_eq!(whole.exact(4, 3), Some(1));
        let fine = Mean::new(DataType::Decimal128(38, 16), 0).unwrap();
        assert_eq!(fine.exact(2, 3), Some(6_666_666_666_666_667));
        let large = i128::from(i64::MAX) * 1_000_000;
        assert_eq!(
            fine.exact(large, 1_000_000),
            Some(i128::from(i64::MAX) * 10i128.pow(16))
        );
        let decimal = Mean::new(DataType::Decimal128(38, 16), 2).unwrap();
        assert_eq!(decimal.exact(DECIMAL_LIMIT - 1, 1), None);
    }

    #[test]
    fn a_sum_of_decimals_has_at_most_38_digits() {
        let largest = DECIMAL_LIMIT - 1;
        let argument = Argument {
            values: Some(Values::I128(vec![largest, 1].into())),
            ..Argument::default()
        };
        let mut sums = Linear::<ExactCell<i128>>::new(Finish::Sum(DataType::Decimal128(38, 0)));
        sums.grow(1);
        let rows = |row: &'static [u32]| Rows {
            rows: row,
            slots: &[0],
            weights: None,
        };

        sums.update(rows(&[0]), &argument).unwrap();
        let error = sums.update(rows(&[1]), &argument).unwrap_err();
        assert_eq!(
            (error.sqlstate, error.message.as_str()),
            ("22003", "numeric field overflow")
        );
    }
}
