//! Sums of floats.

use std::sync::Arc;

use arrow::array::{ArrayRef, Float32Array, Float64Array};
use arrow::datatypes::DataType;
use highwater_sql::plan::{FloatSum, WideFloat, real};

use super::accumulator::Argument;
use super::linear::{Cell, Finish};
use crate::engine::error::EngineError;
use crate::engine::operators::state::varint;

/// Stands before a sum of which something is set aside or left over: a NaN that no sum is.
const ASIDE: u64 = 0x7ff8_0000_6173_6964;

/// Sum of floats that are only added.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct FloatCell {
    sum: WideFloat,
    count: i64,
}

/// Sum of floats that are also taken away.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct RetractableFloatCell(FloatSum);

impl Cell for FloatCell {
    type Value = f64;

    fn values(argument: &Argument) -> Option<&[f64]> {
        argument.floats.as_deref()
    }

    #[inline]
    fn add(&mut self, value: f64, weight: i64) -> bool {
        self.count += weight;
        // What rounding cuts off is kept where values are taken away again.
        for _ in 0..weight {
            self.sum.add(value);
        }
        true
    }

    fn finish(cells: Vec<Self>, finish: &Finish) -> Result<ArrayRef, EngineError> {
        let sums = cells.iter().map(|cell| {
            let sum = match cell.count {
                0 => None,
                _ => Some(cell.sum.total(0.0)?),
            };
            Ok((sum, cell.count))
        });
        float_results(sums, finish)
    }

    fn encode(&self, out: &mut Vec<u8>) {
        varint::put(out, i128::from(self.count));
        put_sum(&self.sum, 0.0, out);
    }

    fn decode(bytes: &mut &[u8]) -> Result<Self, EngineError> {
        Ok(Self {
            count: varint::read_i64(bytes)?,
            sum: read_sum(bytes)?.0,
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
        self.0.add(value, weight);
        true
    }

    fn finish(cells: Vec<Self>, finish: &Finish) -> Result<ArrayRef, EngineError> {
        let sums = cells.iter().map(|Self(sum)| Ok((sum.total()?, sum.count)));
        float_results(sums, finish)
    }

    fn encode(&self, out: &mut Vec<u8>) {
        let Self(sum) = self;
        for count in [sum.count, sum.nan, sum.infinite, sum.negative_infinite] {
            varint::put(out, i128::from(count));
        }
        put_sum(&sum.sum, sum.residue, out);
        out.extend_from_slice(&sum.error.to_bits().to_le_bytes());
    }

    fn decode(bytes: &mut &[u8]) -> Result<Self, EngineError> {
        let counts = [(); 4].map(|()| varint::read_i64(bytes));
        let [count, nan, infinite, negative_infinite] = counts;
        let (sum, residue) = read_sum(bytes)?;
        Ok(Self(FloatSum {
            count: count?,
            nan: nan?,
            infinite: infinite?,
            negative_infinite: negative_infinite?,
            sum,
            error: read_f64(bytes)?,
            residue,
        }))
    }
}

fn float_results(
    cells: impl Iterator<Item = Result<(Option<f64>, i64), EngineError>>,
    finish: &Finish,
) -> Result<ArrayRef, EngineError> {
    // One NaN and one zero, so that equal results are equal bytes.
    let canonical = |float: f64| if float.is_nan() { f64::NAN } else { float + 0.0 };
    let is_mean = matches!(finish, Finish::Mean(_));
    let results = cells.map(|cell| {
        let (sum, count) = cell?;
        let result = sum.map(|sum| if is_mean { sum / count as f64 } else { sum });
        Ok(result.map(canonical))
    });
    Ok(match finish {
        Finish::Sum(DataType::Float32) => {
            let reals = results.map(|sum| Ok(sum?.map(real).transpose()?));
            Arc::new(reals.collect::<Result<Float32Array, EngineError>>()?)
        }
        _ => Arc::new(results.collect::<Result<Float64Array, EngineError>>()?),
    })
}

fn put_sum(sum: &WideFloat, residue: f64, out: &mut Vec<u8>) {
    if sum.aside != 0 || residue != 0.0 {
        out.extend_from_slice(&ASIDE.to_le_bytes());
        varint::put(out, i128::from(sum.aside));
        out.extend_from_slice(&residue.to_bits().to_le_bytes());
    }
    // One NaN, so that none is taken for what stands before other sums.
    let sum = if sum.sum.is_nan() { f64::NAN } else { sum.sum };
    out.extend_from_slice(&sum.to_bits().to_le_bytes());
}

/// A sum, and what is left over beside it.
fn read_sum(bytes: &mut &[u8]) -> Result<(WideFloat, f64), EngineError> {
    let first = read_f64(bytes)?;
    if first.to_bits() != ASIDE {
        return Ok((WideFloat { sum: first, aside: 0 }, 0.0));
    }
    let aside = varint::read_i64(bytes)?;
    let residue = read_f64(bytes)?;
    let sum = read_f64(bytes)?;
    Ok((WideFloat { sum, aside }, residue))
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

    #[test]
    fn a_sum_that_left_the_range_of_floats_comes_back_across_a_restart() {
        let mut cell = RetractableFloatCell::default();
        for (value, weight) in [(2.5, 1), (1e308, 3)] {
            cell.add(value, weight);
        }
        let beyond = RetractableFloatCell::finish(vec![cell], &Finish::Sum(DataType::Float64)).unwrap_err();
        assert_eq!(
            (beyond.sqlstate, beyond.message.as_str()),
            ("22003", "value out of range: overflow")
        );
        let mut bytes = Vec::new();
        cell.encode(&mut bytes);
        let mut restored = RetractableFloatCell::decode(&mut bytes.as_slice()).unwrap();
        assert_eq!(restored, cell);
        restored.add(1e308, -3);
        let sums = RetractableFloatCell::finish(vec![restored], &Finish::Sum(DataType::Float64)).unwrap();
        assert_eq!(sums.as_ref(), &Float64Array::from(vec![2.5]));
    }

    #[test]
    fn sums_of_rows_that_only_come_leave_the_range_with_an_error() {
        let mut cell = FloatCell::default();
        for value in [1e308, 1e308, -1e308] {
            cell.add(value, 1);
        }
        let sums = FloatCell::finish(vec![cell], &Finish::Sum(DataType::Float64)).unwrap();
        assert_eq!(sums.as_ref(), &Float64Array::from(vec![1e308]));
        cell.add(1e308, 1);
        assert!(FloatCell::finish(vec![cell], &Finish::Sum(DataType::Float64)).is_err());
        let reals = FloatCell {
            sum: WideFloat { sum: 1e39, aside: 0 },
            count: 1,
        };
        assert!(FloatCell::finish(vec![reals], &Finish::Sum(DataType::Float32)).is_err());
    }
}
