//! Casts from text to BYTEA and INTERVAL as functions: Arrow's own would take the bytes of the text, and read less.

use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, BinaryArray, IntervalMonthDayNanoArray, StringArray};
use arrow::compute::cast;
use arrow::datatypes::{DataType, IntervalMonthDayNano, IntervalUnit};
use datafusion::common::tree_node::Transformed;
use datafusion::common::{DFSchema, Result as PlanResult, ScalarValue, exec_err};
use datafusion::logical_expr::expr::{Cast, TryCast};
use datafusion::logical_expr::{
    ColumnarValue, Expr, ExprSchemable, LogicalPlan, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
    Volatility,
};

use super::{bytea, interval};
use crate::plan::rewrite;
use crate::plan::translate::external;
use crate::{SqlError, SqlState};

/// The plan with PostgreSQL's casts from text. Its types are settled already.
pub(crate) fn text_casts(plan: LogicalPlan) -> PlanResult<LogicalPlan> {
    rewrite::expressions(plan, text_cast)
}

fn text_cast(expr: Expr, schema: &DFSchema) -> PlanResult<Transformed<Expr>> {
    let (text, field, on_fault) = match &expr {
        Expr::Cast(Cast { expr, field }) => (expr, field, OnFault::Fail),
        Expr::TryCast(TryCast { expr, field }) => (expr, field, OnFault::Null),
        _ => return Ok(Transformed::no(expr)),
    };
    let target = match field.data_type() {
        DataType::Binary => Target::Bytea,
        DataType::Interval(IntervalUnit::MonthDayNano) => Target::Interval,
        _ => return Ok(Transformed::no(expr)),
    };
    // An expression with outer columns has no type here; it stays as it is.
    let Ok(DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View) = text.get_type(schema) else {
        return Ok(Transformed::no(expr));
    };
    let function = FromText {
        target,
        on_fault,
        signature: Signature::any(1, Volatility::Immutable),
    };
    if let Expr::Literal(ScalarValue::Utf8(Some(text)), _) = text.as_ref() {
        let value = function.read(&StringArray::from(vec![text.as_str()]))?;
        return Ok(Transformed::yes(Expr::Literal(
            ScalarValue::try_from_array(&value, 0)?,
            None,
        )));
    }
    let call = ScalarUDF::from(function).call(vec![text.as_ref().clone()]);
    Ok(Transformed::yes(call))
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Target {
    Bytea,
    Interval,
}

/// What becomes of a text that is no value of the type.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum OnFault {
    /// `CAST`
    Fail,
    /// `TRY_CAST`
    Null,
}

/// Reads texts as values of another type.
#[derive(Debug, PartialEq, Eq, Hash)]
struct FromText {
    target: Target,
    on_fault: OnFault,
    signature: Signature,
}

impl FromText {
    fn read(&self, texts: &StringArray) -> PlanResult<ArrayRef> {
        let value = |text: Option<&str>| text.map(|text| self.target.kept(text)).transpose();
        let values = texts.iter().map(|text| match (value(text), self.on_fault) {
            (Err(_), OnFault::Null) => Ok(None),
            (Err(error), OnFault::Fail) => Err(external(error)),
            (Ok(value), _) => Ok(value),
        });
        let values = values.collect::<PlanResult<Vec<Option<Kept>>>>()?;
        Ok(match self.target {
            Target::Bytea => Arc::new(values.iter().map(bytes_of).collect::<BinaryArray>()),
            Target::Interval => Arc::new(
                values
                    .iter()
                    .map(interval_of)
                    .collect::<IntervalMonthDayNanoArray>(),
            ),
        })
    }
}

/// A value that was read.
enum Kept {
    Bytes(Vec<u8>),
    Interval(IntervalMonthDayNano),
}

fn bytes_of(value: &Option<Kept>) -> Option<&[u8]> {
    match value {
        Some(Kept::Bytes(bytes)) => Some(bytes),
        _ => None,
    }
}

fn interval_of(value: &Option<Kept>) -> Option<IntervalMonthDayNano> {
    match value {
        Some(Kept::Interval(interval)) => Some(*interval),
        _ => None,
    }
}

impl Target {
    fn kept(self, text: &str) -> Result<Kept, SqlError> {
        match self {
            Self::Bytea => bytea::read(text).map(Kept::Bytes),
            Self::Interval => {
                let read = interval::read(text, None)?.as_arrow();
                read.map(Kept::Interval)
                    .ok_or_else(|| SqlError::new(SqlState::DatetimeFieldOverflow, "interval out of range"))
            }
        }
    }
}

impl ScalarUDFImpl for FromText {
    fn name(&self) -> &str {
        match (self.target, self.on_fault) {
            (Target::Bytea, OnFault::Fail) => "bytea",
            (Target::Bytea, OnFault::Null) => "try_bytea",
            (Target::Interval, OnFault::Fail) => "interval",
            (Target::Interval, OnFault::Null) => "try_interval",
        }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _arg_types: &[DataType]) -> PlanResult<DataType> {
        Ok(match self.target {
            Target::Bytea => DataType::Binary,
            Target::Interval => DataType::Interval(IntervalUnit::MonthDayNano),
        })
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> PlanResult<ColumnarValue> {
        let [text] = args.args.as_slice() else {
            return exec_err!("{} takes one text", self.name());
        };
        let texts = cast(&text.to_array(args.number_rows)?, &DataType::Utf8)?;
        self.read(texts.as_string::<i32>()).map(ColumnarValue::Array)
    }
}
