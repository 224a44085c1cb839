//! Aggregates that retract by subtraction: count, sum, avg.

use std::marker::PhantomData;
use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array};
use arrow::datatypes::DataType;
use highwater_sql::plan::NumericSum;

use super::accumulator::{Accumulator, Argument, FrozenAccumulator, Rows};
use crate::engine::error::EngineError;
use crate::engine::operators::state::chunks::{Chunks, FrozenChunks};
use crate::engine::operators::state::slots::{Kept, SlotSet};
use crate::engine::operators::state::values::{self, Values};
use crate::engine::operators::state::varint;

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
    /// How many digits behind the point the result has more than the values.
    digits: u8,
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
        EngineError::new("22003", "numeric field overflow")
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
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct ExactCell<V> {
    sum: NumericSum,
    values: PhantomData<V>,
}

impl Mean {
    /// A mean of type `result` over values of scale `scale`.
    ///
    /// # Errors
    /// A result of a smaller scale than the values.
    pub(super) fn new(result: DataType, scale: i8) -> Result<Self, EngineError> {
        let digits = match &result {
            DataType::Decimal128(_, own) => u8::try_from(i16::from(*own) - i16::from(scale))
                .map_err(|_| EngineError::internal("an avg has a smaller scale than its argument"))?,
            _ => 0,
        };
        Ok(Self { result, digits })
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
                self.sum.add(i128::from(value), weight);
                true
            }

            fn finish(cells: Vec<Self>, finish: &Finish) -> Result<ArrayRef, EngineError> {
                exact_results(cells.iter().map(|cell| &cell.sum), finish)
            }

            fn encode(&self, out: &mut Vec<u8>) {
                varint::put(out, i128::from(self.sum.count()));
                varint::put_wide(out, self.sum.sum());
            }

            fn decode(bytes: &mut &[u8]) -> Result<Self, EngineError> {
                let count = varint::read_i64(bytes)?;
                let sum = NumericSum::of(varint::read_wide(bytes)?, count);
                Ok(Self {
                    sum: sum.ok_or_else(|| EngineError::recovery("a sum in operator state is too large"))?,
                    values: PhantomData,
                })
            }
        }
    };
}

exact_cell!(i64, I64);
exact_cell!(i128, I128);

fn exact_results<'a>(
    sums: impl Iterator<Item = &'a NumericSum>,
    finish: &Finish,
) -> Result<ArrayRef, EngineError> {
    let (data_type, results) = match finish {
        Finish::Sum(data_type) => (
            data_type,
            sums.map(NumericSum::total).collect::<Result<Vec<_>, _>>()?,
        ),
        Finish::Mean(mean) => (
            &mean.result,
            sums.map(|sum| sum.mean(mean.digits)).collect::<Result<_, _>>()?,
        ),
    };
    let nulls = values::nulls_of(results.len(), |row| results[row].is_some());
    values::column_of_i128(
        data_type,
        results.iter().map(|sum| sum.unwrap_or_default()).collect(),
        nulls,
    )
}

#[cfg(test)]
mod tests {
    use arrow::array::AsArray;
    use arrow::datatypes::Decimal128Type;

    use super::*;

    const MOST: i128 = 10i128.pow(38) - 1;

    fn argument(values: Vec<i128>) -> Argument {
        Argument {
            values: Some(Values::I128(values.into())),
            ..Argument::default()
        }
    }

    #[test]
    fn a_sum_of_decimals_has_at_most_38_digits() {
        let argument = argument(vec![MOST, 1, -1]);
        let mut sums = Linear::<ExactCell<i128>>::new(Finish::Sum(DataType::Decimal128(38, 0)));
        sums.grow(1);
        let rows = |row: &'static [u32]| Rows {
            rows: row,
            slots: &[0],
            weights: None,
        };

        sums.update(rows(&[0]), &argument).unwrap();
        sums.results(&[0]).unwrap();
        sums.update(rows(&[1]), &argument).unwrap();
        let error = sums.results(&[0]).unwrap_err();
        assert_eq!(
            (error.sqlstate, error.message.as_str()),
            ("22003", "numeric field overflow")
        );
        // It is back as soon as what took it beyond is gone.
        sums.update(rows(&[2]), &argument).unwrap();
        sums.results(&[0]).unwrap();
    }

    #[test]
    fn a_mean_of_decimals_holds_sums_of_more_digits_across_a_restart() {
        let mut cell = ExactCell::<i128>::default();
        cell.add(MOST, 1_000_000);
        let mut bytes = Vec::new();
        cell.encode(&mut bytes);
        let restored = ExactCell::<i128>::decode(&mut bytes.as_slice()).unwrap();
        assert_eq!(restored, cell);
        let mean = Finish::Mean(Mean::new(DataType::Decimal128(38, 16), 16).unwrap());
        let means = ExactCell::finish(vec![restored], &mean).unwrap();
        assert_eq!(means.as_primitive::<Decimal128Type>().value(0), MOST);
    }

    #[test]
    fn sums_of_an_older_state_are_read() {
        let mut bytes = Vec::new();
        varint::put(&mut bytes, 3);
        varint::put(&mut bytes, -MOST);
        let restored = ExactCell::<i128>::decode(&mut bytes.as_slice()).unwrap();
        assert_eq!(
            (restored.sum.count(), restored.sum.total().unwrap()),
            (3, Some(-MOST))
        );
    }
}
