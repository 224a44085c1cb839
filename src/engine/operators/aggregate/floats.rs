//! Sums of floats.

use std::sync::Arc;

use arrow::array::{ArrayRef, Float32Array, Float64Array};
use arrow::datatypes::DataType;

use super::accumulator::Argument;
use super::linear::{Cell, Finish};
use crate::engine::error::EngineError;
use crate::engine::operators::state::varint;

/// Sum of floats that are only added.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct FloatCell {
    sum: f64,
    count: i64,
}

/// Sum of floats that are also taken away. What cannot be subtracted from a sum is counted beside it, and the sum carries
/// its rounding error along (Neumaier's summation).
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct RetractableFloatCell {
    sum: f64,
    error: f64,
    count: i64,
    nan: i64,
    infinite: i64,
    negative_infinite: i64,
}

impl Cell for FloatCell {
    type Value = f64;

    fn values(argument: &Argument) -> Option<&[f64]> {
        argument.floats.as_deref()
    }

    #[inline]
    fn add(&mut self, value: f64, weight: i64) -> bool {
        self.count += weight;
        self.sum += value * weight as f64;
        true
    }

    fn finish(cells: Vec<Self>, finish: &Finish) -> Result<ArrayRef, EngineError> {
        float_results(cells.iter().map(|cell| (cell.sum, cell.count)), finish)
    }

    fn encode(&self, out: &mut Vec<u8>) {
        varint::put(out, i128::from(self.count));
        out.extend_from_slice(&self.sum.to_bits().to_le_bytes());
    }

    fn decode(bytes: &mut &[u8]) -> Result<Self, EngineError> {
        Ok(Self {
            count: varint::read_i64(bytes)?,
            sum: read_f64(bytes)?,
        })
    }
}

impl Cell for RetractableFloatCell {
    type Value = f64;

    fn values(argument: &Argument) -> Option<&[f64]> {
        argument.floats.as_deref()
    }

    #[inline]
    fn add(&mut self, value: f64, weight: i64) -> bool {
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
        } else {
            let value = value * weight as f64;
            let sum = self.sum + value;
            self.error += if self.sum.abs() >= value.abs() {
                (self.sum - sum) + value
            } else {
                (value - sum) + self.sum
            };
            self.sum = sum;
        }
        true
    }

    fn finish(cells: Vec<Self>, finish: &Finish) -> Result<ArrayRef, EngineError> {
        let sums = cells.iter().map(|cell| {
            let sum = match (cell.nan, cell.infinite, cell.negative_infinite) {
                (0, 0, 0) => cell.sum + cell.error,
                (0, _, 0) => f64::INFINITY,
                (0, 0, _) => f64::NEG_INFINITY,
                _ => f64::NAN,
            };
            (sum, cell.count)
        });
        float_results(sums, finish)
    }

    fn encode(&self, out: &mut Vec<u8>) {
        for count in [self.count, self.nan, self.infinite, self.negative_infinite] {
            varint::put(out, i128::from(count));
        }
        for float in [self.sum, self.error] {
            out.extend_from_slice(&float.to_bits().to_le_bytes());
        }
    }

    fn decode(bytes: &mut &[u8]) -> Result<Self, EngineError> {
        Ok(Self {
            count: varint::read_i64(bytes)?,
            nan: varint::read_i64(bytes)?,
            infinite: varint::read_i64(bytes)?,
            negative_infinite: varint::read_i64(bytes)?,
            sum: read_f64(bytes)?,
            error: read_f64(bytes)?,
        })
    }
}

fn float_results(cells: impl Iterator<Item = (f64, i64)>, finish: &Finish) -> Result<ArrayRef, EngineError> {
    // One NaN and one zero, so that equal results are equal bytes.
    let canonical = |float: f64| if float.is_nan() { f64::NAN } else { float + 0.0 };
    let sums = cells.map(|(sum, count)| (count != 0).then_some((canonical(sum), count)));
    Ok(match finish {
        Finish::Sum(DataType::Float32) => Arc::new(
            sums.map(|sum| sum.map(|(sum, _)| sum as f32))
                .collect::<Float32Array>(),
        ),
        Finish::Sum(_) => Arc::new(sums.map(|sum| sum.map(|(sum, _)| sum)).collect::<Float64Array>()),
        Finish::Mean(_) => {
            let means = sums.map(|sum| sum.map(|(sum, count)| canonical(sum / count as f64)));
            Arc::new(means.collect::<Float64Array>())
        }
    })
}

fn read_f64(bytes: &mut &[u8]) -> Result<f64, EngineError> {
    let (float, rest) = bytes
        .split_first_chunk::<8>()
        .ok_or_else(|| EngineError::recovery("a float in operator state has no end"))?;
    *bytes = rest;
    Ok(f64::from_bits(u64::from_le_bytes(*float)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_infinity_that_is_taken_away_leaves_no_trace() {
        let mut cell = RetractableFloatCell::default();
        for (value, weight) in [(1.5, 1), (f64::INFINITY, 1), (f64::NAN, 2), (1e300, 1)] {
            cell.add(value, weight);
        }
        for (value, weight) in [(f64::NAN, -2), (1e300, -1), (f64::INFINITY, -1)] {
            cell.add(value, weight);
        }
        let sums = RetractableFloatCell::finish(vec![cell], &Finish::Sum(DataType::Float64)).unwrap();
        assert_eq!(sums.as_ref(), &Float64Array::from(vec![1.5]));
    }
}
