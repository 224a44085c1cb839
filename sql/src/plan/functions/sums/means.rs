//! `avg` of NUMERIC: as many digits behind the point as the values have, at least 16. DataFusion's own has four more than the
//! values, for which there is no room where these have 16 already.

use std::sync::Arc;

use arrow::datatypes::{DataType, FieldRef};
use datafusion::common::Result as PlanResult;
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, GroupsAccumulator, Signature, Volatility,
};

use crate::plan::types::{DECIMAL_DIGITS, DECIMAL_SCALE};

/// The mean as `theirs` computes it, of another type.
pub(super) fn of_numerics(theirs: &Arc<AggregateUDF>) -> Arc<AggregateUDF> {
    Arc::new(AggregateUDF::from(NumericMean {
        theirs: Arc::clone(theirs),
        signature: Signature::user_defined(Volatility::Immutable),
    }))
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct NumericMean {
    theirs: Arc<AggregateUDF>,
    signature: Signature,
}

impl AggregateUDFImpl for NumericMean {
    fn name(&self) -> &str {
        self.theirs.name()
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, args: &[DataType]) -> PlanResult<DataType> {
        match args {
            [DataType::Decimal128(_, scale)] => {
                Ok(DataType::Decimal128(DECIMAL_DIGITS, (*scale).max(DECIMAL_SCALE)))
            }
            args => self.theirs.return_type(args),
        }
    }

    fn coerce_types(&self, args: &[DataType]) -> PlanResult<Vec<DataType>> {
        Ok(args.to_vec())
    }

    fn accumulator(&self, args: AccumulatorArgs<'_>) -> PlanResult<Box<dyn Accumulator>> {
        self.theirs.accumulator(args)
    }

    fn state_fields(&self, args: StateFieldsArgs<'_>) -> PlanResult<Vec<FieldRef>> {
        self.theirs.state_fields(args)
    }

    fn groups_accumulator_supported(&self, args: AccumulatorArgs<'_>) -> bool {
        self.theirs.groups_accumulator_supported(args)
    }

    fn create_groups_accumulator(&self, args: AccumulatorArgs<'_>) -> PlanResult<Box<dyn GroupsAccumulator>> {
        self.theirs.create_groups_accumulator(args)
    }

    fn create_sliding_accumulator(&self, args: AccumulatorArgs<'_>) -> PlanResult<Box<dyn Accumulator>> {
        self.theirs.create_sliding_accumulator(args)
    }
}
