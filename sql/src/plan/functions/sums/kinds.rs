//! `sum` and `avg` of one kind of values.

use std::sync::{Arc, LazyLock};

use arrow::datatypes::{DataType, FieldRef};
use datafusion::common::{Result as PlanResult, internal_err};
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, GroupsAccumulator, Signature, Volatility,
};

use super::{FloatSum, IntervalSum, Many, NumericSum, One, Statistic, SumCell, state_fields};
use crate::plan::types::{DECIMAL_DIGITS, DECIMAL_SCALE};

static FLOATS: LazyLock<[Arc<AggregateUDF>; 2]> =
    LazyLock::new(|| [false, true].map(|mean| Summed::function(Kind::Floats, mean)));
static INTERVALS: LazyLock<[Arc<AggregateUDF>; 2]> =
    LazyLock::new(|| [false, true].map(|mean| Summed::function(Kind::Intervals, mean)));
static NUMERICS: LazyLock<[Arc<AggregateUDF>; 2]> =
    LazyLock::new(|| [false, true].map(|mean| Summed::function(Kind::Numerics, mean)));

/// What is summed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Kind {
    Floats,
    Intervals,
    Numerics,
}

impl Kind {
    /// `sum` of such values, or `avg`.
    pub(super) fn function(self, mean: bool) -> Arc<AggregateUDF> {
        let functions = match self {
            Self::Floats => &FLOATS,
            Self::Intervals => &INTERVALS,
            Self::Numerics => &NUMERICS,
        };
        Arc::clone(&functions[usize::from(mean)])
    }
}

/// `sum` or `avg` of one kind of values.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Summed {
    kind: Kind,
    mean: bool,
    signature: Signature,
}

impl Summed {
    fn function(kind: Kind, mean: bool) -> Arc<AggregateUDF> {
        Arc::new(AggregateUDF::from(Self {
            kind,
            mean,
            signature: Signature::user_defined(Volatility::Immutable),
        }))
    }

    fn statistic(&self) -> Statistic {
        if self.mean {
            Statistic::Mean
        } else {
            Statistic::Sum
        }
    }

    /// The type of the result: sums of REAL are REAL, means are not. Means of NUMERIC have the digits behind the point that the
    /// values have, at least 16.
    fn result_type(&self, argument: &DataType) -> DataType {
        match (self.kind, self.mean, argument) {
            (Kind::Floats, false, DataType::Float32) => DataType::Float32,
            (Kind::Floats, ..) => FloatSum::TYPE,
            (Kind::Intervals, ..) => IntervalSum::TYPE,
            (Kind::Numerics, true, DataType::Decimal128(_, scale)) => {
                DataType::Decimal128(DECIMAL_DIGITS, (*scale).max(DECIMAL_SCALE))
            }
            (Kind::Numerics, false, DataType::Decimal128(precision, scale)) => {
                // As DataFusion has it: ten digits more, for ten thousand million values.
                DataType::Decimal128((precision + 10).min(DECIMAL_DIGITS), *scale)
            }
            (Kind::Numerics, ..) => NumericSum::TYPE,
        }
    }
}

impl AggregateUDFImpl for Summed {
    fn name(&self) -> &str {
        if self.mean { "avg" } else { "sum" }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, args: &[DataType]) -> PlanResult<DataType> {
        match args {
            [argument] => Ok(self.result_type(argument)),
            _ => internal_err!("{} takes one argument", self.name()),
        }
    }

    fn coerce_types(&self, args: &[DataType]) -> PlanResult<Vec<DataType>> {
        if self.kind == Kind::Numerics {
            return Ok(args.to_vec());
        }
        Ok(args.iter().map(|argument| self.result_type(argument)).collect())
    }

    fn accumulator(&self, args: AccumulatorArgs<'_>) -> PlanResult<Box<dyn Accumulator>> {
        Ok(match self.kind {
            Kind::Floats => Box::new(One::<FloatSum>::new(self.statistic(), &args)),
            Kind::Intervals => Box::new(One::<IntervalSum>::new(self.statistic(), &args)),
            Kind::Numerics => Box::new(One::<NumericSum>::new(self.statistic(), &args)),
        })
    }

    fn state_fields(&self, args: StateFieldsArgs<'_>) -> PlanResult<Vec<FieldRef>> {
        Ok(state_fields(&args))
    }

    fn groups_accumulator_supported(&self, args: AccumulatorArgs<'_>) -> bool {
        !args.is_distinct
    }

    fn create_groups_accumulator(&self, args: AccumulatorArgs<'_>) -> PlanResult<Box<dyn GroupsAccumulator>> {
        Ok(match self.kind {
            Kind::Floats => Box::new(Many::<FloatSum>::new(self.statistic(), &args)),
            Kind::Intervals => Box::new(Many::<IntervalSum>::new(self.statistic(), &args)),
            Kind::Numerics => Box::new(Many::<NumericSum>::new(self.statistic(), &args)),
        })
    }
}
