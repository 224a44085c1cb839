//! `sum` and `avg` as they stand in a text: they take intervals too, and are replaced as soon as the type of their argument is known.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::common::{Result as PlanResult, internal_err};
use datafusion::logical_expr::function::AccumulatorArgs;
use datafusion::logical_expr::type_coercion::functions::fields_with_udf;
use datafusion::logical_expr::{Accumulator, AggregateUDF, AggregateUDFImpl, Signature, Volatility};

use super::INTERVAL;

/// `sum` or `avg` as it is written, of any type that it takes.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct Written {
    /// DataFusion's function.
    pub(super) theirs: Arc<AggregateUDF>,
    signature: Signature,
}

impl Written {
    /// What stands for DataFusion's function.
    pub(super) fn of(theirs: &Arc<AggregateUDF>) -> Arc<AggregateUDF> {
        Arc::new(AggregateUDF::from(Self {
            theirs: Arc::clone(theirs),
            signature: Signature::user_defined(Volatility::Immutable),
        }))
    }
}

impl AggregateUDFImpl for Written {
    fn name(&self) -> &str {
        self.theirs.name()
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, args: &[DataType]) -> PlanResult<DataType> {
        match args {
            [DataType::Interval(_)] => Ok(INTERVAL),
            args => self.theirs.return_type(args),
        }
    }

    fn coerce_types(&self, args: &[DataType]) -> PlanResult<Vec<DataType>> {
        if let [DataType::Interval(_)] = args {
            return Ok(vec![INTERVAL]);
        }
        let fields = args
            .iter()
            .map(|arg| Arc::new(Field::new("", arg.clone(), true)) as FieldRef);
        let fields = fields_with_udf(&fields.collect::<Vec<_>>(), self.theirs.as_ref())?;
        Ok(fields.iter().map(|field| field.data_type().clone()).collect())
    }

    fn accumulator(&self, _: AccumulatorArgs<'_>) -> PlanResult<Box<dyn Accumulator>> {
        internal_err!("{} was planned without the type of its argument", self.name())
    }
}
