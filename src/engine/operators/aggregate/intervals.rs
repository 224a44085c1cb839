//! Sums of intervals.

use std::sync::Arc;

use arrow::array::{ArrayRef, IntervalMonthDayNanoArray};
use arrow::datatypes::IntervalMonthDayNano;
use highwater_sql::SqlError;
use highwater_sql::plan::IntervalSum;

use super::accumulator::Argument;
use super::linear::{Cell, Finish};
use crate::engine::error::EngineError;
use crate::engine::operators::state::varint;

/// Sum of intervals, part by part.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct IntervalCell(IntervalSum);

impl Cell for IntervalCell {
    type Value = IntervalMonthDayNano;

    fn values(argument: &Argument) -> Option<&[IntervalMonthDayNano]> {
        argument.intervals.as_deref()
    }

    #[inline]
    fn add(&mut self, value: IntervalMonthDayNano, weight: i64) -> bool {
        self.0.add(value, weight);
        true
    }

    fn finish(cells: Vec<Self>, finish: &Finish) -> Result<ArrayRef, EngineError> {
        let results = cells.iter().map(|Self(sum)| match finish {
            Finish::Sum(_) => sum.total(),
            Finish::Mean(_) => sum.mean(),
        });
        let results = results.collect::<Result<Vec<_>, SqlError>>()?;
        Ok(Arc::new(IntervalMonthDayNanoArray::from(results)))
    }

    fn encode(&self, out: &mut Vec<u8>) {
        let Self(sum) = self;
        for part in [i128::from(sum.count), sum.months, sum.days, sum.micros] {
            varint::put(out, part);
        }
    }

    fn decode(bytes: &mut &[u8]) -> Result<Self, EngineError> {
        Ok(Self(IntervalSum {
            count: varint::read_i64(bytes)?,
            months: varint::read(bytes)?,
            days: varint::read(bytes)?,
            micros: varint::read(bytes)?,
        }))
    }
}
