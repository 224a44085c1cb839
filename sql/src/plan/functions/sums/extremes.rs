//! `min` and `max` of intervals, which are compared by their length. Of several of one length the one with the fewest months and
//! days is the smallest, as it is in views.

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

use arrow::array::{ArrayRef, AsArray};
use arrow::datatypes::{DataType, Field, FieldRef, IntervalMonthDayNano, IntervalMonthDayNanoType};
use datafusion::common::{Result as PlanResult, ScalarValue, internal_err};
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::{Accumulator, AggregateUDF, AggregateUDFImpl, Signature, Volatility};

use super::super::span::length;
use super::INTERVAL;

static EXTREMES: LazyLock<[Arc<AggregateUDF>; 2]> = LazyLock::new(|| {
    [false, true].map(|max| {
        Arc::new(AggregateUDF::from(Extreme {
            max,
            signature: Signature::user_defined(Volatility::Immutable),
        }))
    })
});

/// `min` of intervals.
pub(super) fn smallest() -> Arc<AggregateUDF> {
    Arc::clone(&EXTREMES[0])
}

/// `max` of intervals.
pub(super) fn greatest() -> Arc<AggregateUDF> {
    Arc::clone(&EXTREMES[1])
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Extreme {
    max: bool,
    signature: Signature,
}

impl AggregateUDFImpl for Extreme {
    fn name(&self) -> &str {
        if self.max { "max" } else { "min" }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> PlanResult<DataType> {
        Ok(INTERVAL)
    }

    fn coerce_types(&self, args: &[DataType]) -> PlanResult<Vec<DataType>> {
        Ok(vec![INTERVAL; args.len()])
    }

    fn accumulator(&self, _: AccumulatorArgs<'_>) -> PlanResult<Box<dyn Accumulator>> {
        Ok(Box::new(Seen {
            max: self.max,
            values: BTreeMap::new(),
            retracts: false,
        }))
    }

    fn create_sliding_accumulator(&self, _: AccumulatorArgs<'_>) -> PlanResult<Box<dyn Accumulator>> {
        Ok(Box::new(Seen {
            max: self.max,
            values: BTreeMap::new(),
            retracts: true,
        }))
    }

    fn state_fields(&self, args: StateFieldsArgs<'_>) -> PlanResult<Vec<FieldRef>> {
        Ok(vec![Arc::new(Field::new(args.name, INTERVAL, true))])
    }
}

/// An interval by its length, then by its months and days.
type Key = (i128, i32, i32);

/// The intervals of a group that may be the extreme one: all, if they are taken away again.
#[derive(Debug)]
struct Seen {
    max: bool,
    values: BTreeMap<Key, (IntervalMonthDayNano, u64)>,
    retracts: bool,
}

impl Seen {
    fn add(&mut self, value: IntervalMonthDayNano) {
        let key = (length(value), value.months, value.days);
        self.values.entry(key).or_insert((value, 0)).1 += 1;
        if !self.retracts && self.values.len() > 1 {
            match self.max {
                true => self.values.pop_first(),
                false => self.values.pop_last(),
            };
        }
    }

    fn take(&mut self, value: IntervalMonthDayNano) {
        let key = (length(value), value.months, value.days);
        if let Some((_, times)) = self.values.get_mut(&key) {
            *times -= 1;
            if *times == 0 {
                self.values.remove(&key);
            }
        }
    }

    fn extreme(&self) -> Option<IntervalMonthDayNano> {
        let entry = match self.max {
            true => self.values.last_key_value(),
            false => self.values.first_key_value(),
        };
        entry.map(|(_, (value, _))| *value)
    }

    fn each(&mut self, columns: &[ArrayRef], visit: fn(&mut Self, IntervalMonthDayNano)) -> PlanResult<()> {
        let column = columns
            .first()
            .and_then(|column| column.as_primitive_opt::<IntervalMonthDayNanoType>());
        let Some(column) = column else {
            return internal_err!("min and max of intervals take intervals");
        };
        for value in column.iter().flatten() {
            visit(self, value);
        }
        Ok(())
    }
}

impl Accumulator for Seen {
    fn update_batch(&mut self, values: &[ArrayRef]) -> PlanResult<()> {
        self.each(values, Self::add)
    }

    fn retract_batch(&mut self, values: &[ArrayRef]) -> PlanResult<()> {
        self.each(values, Self::take)
    }

    fn supports_retract_batch(&self) -> bool {
        self.retracts
    }

    fn evaluate(&mut self) -> PlanResult<ScalarValue> {
        Ok(ScalarValue::IntervalMonthDayNano(self.extreme()))
    }

    fn state(&mut self) -> PlanResult<Vec<ScalarValue>> {
        Ok(vec![self.evaluate()?])
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> PlanResult<()> {
        self.each(states, Self::add)
    }

    fn size(&self) -> usize {
        size_of::<Self>() + self.values.len() * size_of::<(Key, (IntervalMonthDayNano, u64))>()
    }
}
