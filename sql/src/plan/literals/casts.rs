//! Casts between texts and other types as functions, where Arrow's own would read less than PostgreSQL, or write otherwise.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, BinaryArray, BooleanArray, Date32Array, Decimal128Array, Float32Array,
    Float64Array, IntervalMonthDayNanoArray, StringArray, StringBuilder, Time64MicrosecondArray,
    TimestampMicrosecondArray,
};
use arrow::compute::cast;
use arrow::datatypes::{DataType, IntervalUnit, TimeUnit};
use datafusion::common::tree_node::Transformed;
use datafusion::common::{DFSchema, Result as PlanResult, ScalarValue, exec_err};
use datafusion::logical_expr::expr::{Cast, TryCast};
use datafusion::logical_expr::{
    ColumnarValue, Expr, ExprSchemable, LogicalPlan, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
    Volatility,
};

use super::{bytea, datetime, interval, nested, numeric};
use crate::plan::rewrite;
use crate::plan::translate::external;
use crate::plan::values::invalid_text;
use crate::text::ColumnText;
use crate::{SqlError, SqlState};

/// The plan with PostgreSQL's casts from text. Its types are settled already.
pub(crate) fn text_casts(plan: LogicalPlan) -> PlanResult<LogicalPlan> {
    rewrite::expressions(plan, text_cast)
}

fn text_cast(expr: Expr, schema: &DFSchema) -> PlanResult<Transformed<Expr>> {
    let nested = nested::nested_cast(expr, schema)?;
    if nested.transformed {
        return Ok(nested);
    }
    let expr = nested.data;
    let (text, field, on_fault) = match &expr {
        Expr::Cast(Cast { expr, field }) => (expr, field, OnFault::Fail),
        Expr::TryCast(TryCast { expr, field }) => (expr, field, OnFault::Null),
        _ => return Ok(Transformed::no(expr)),
    };
    // An expression with outer columns has no type here; it stays as it is.
    let Ok(from) = text.get_type(schema) else {
        return Ok(Transformed::no(expr));
    };
    if !matches!(from, DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View) {
        return Ok(
            match *field.data_type() == DataType::Utf8 && is_written_otherwise(&from) {
                true => Transformed::yes(to_text(text.as_ref().clone())),
                false => Transformed::no(expr),
            },
        );
    }
    let Some(target) = Target::of(field.data_type()) else {
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

/// Whether Arrow writes values of this type otherwise than PostgreSQL.
fn is_written_otherwise(data_type: &DataType) -> bool {
    let same = data_type.is_integer()
        || matches!(
            data_type,
            DataType::Boolean | DataType::Decimal128(..) | DataType::Null | DataType::Dictionary(..)
        );
    !same
}

/// The value as PostgreSQL writes it.
pub(crate) fn to_text(value: Expr) -> Expr {
    ScalarUDF::from(ToText {
        signature: Signature::any(1, Volatility::Immutable),
    })
    .call(vec![value])
}

/// Writes values as texts.
#[derive(Debug, PartialEq, Eq, Hash)]
struct ToText {
    signature: Signature,
}

impl ScalarUDFImpl for ToText {
    fn name(&self) -> &str {
        "text"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _arg_types: &[DataType]) -> PlanResult<DataType> {
        Ok(DataType::Utf8)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> PlanResult<ColumnarValue> {
        let [value] = args.args.as_slice() else {
            return exec_err!("text takes one value");
        };
        Ok(match value {
            ColumnarValue::Array(values) => ColumnarValue::Array(texts_of(values)),
            ColumnarValue::Scalar(value) => {
                let texts = texts_of(&value.to_array_of_size(1)?);
                ColumnarValue::Scalar(ScalarValue::try_from_array(&texts, 0)?)
            }
        })
    }
}

/// Values as PostgreSQL casts them to texts.
pub(super) fn texts_of(values: &ArrayRef) -> ArrayRef {
    let writer = ColumnText::new(values);
    let mut texts = StringBuilder::with_capacity(values.len(), values.len() * 8);
    let mut text = String::new();
    for row in 0..values.len() {
        text.clear();
        match (values.data_type(), writer.write(row, &mut text)) {
            (_, false) => texts.append_null(),
            (DataType::Boolean, true) => texts.append_value(match text.as_str() {
                "t" => "true",
                _ => "false",
            }),
            (_, true) => texts.append_value(&text),
        }
    }
    Arc::new(texts.finish())
}

/// Texts as values of a type, if it is one of those that are read here.
pub(super) fn of_texts(texts: &StringArray, data_type: &DataType) -> Option<Result<ArrayRef, SqlError>> {
    let function = FromText {
        target: Target::of(data_type)?,
        on_fault: OnFault::Fail,
        signature: Signature::any(1, Volatility::Immutable),
    };
    Some(function.values(texts))
}

/// The types that are read here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Target {
    Boolean,
    Real,
    Double,
    Numeric { precision: u8, scale: i8 },
    Bytea,
    Interval,
    Date,
    Time,
    Timestamp,
    TimestampTz,
}

impl Target {
    fn of(data_type: &DataType) -> Option<Self> {
        Some(match data_type {
            DataType::Boolean => Self::Boolean,
            DataType::Float32 => Self::Real,
            DataType::Float64 => Self::Double,
            DataType::Decimal128(precision, scale) if *scale >= 0 => Self::Numeric {
                precision: *precision,
                scale: *scale,
            },
            DataType::Binary => Self::Bytea,
            DataType::Interval(IntervalUnit::MonthDayNano) => Self::Interval,
            DataType::Date32 => Self::Date,
            DataType::Time64(TimeUnit::Microsecond) => Self::Time,
            DataType::Timestamp(TimeUnit::Microsecond, None) => Self::Timestamp,
            DataType::Timestamp(TimeUnit::Microsecond, Some(_)) => Self::TimestampTz,
            _ => return None,
        })
    }

    fn data_type(self) -> DataType {
        match self {
            Self::Boolean => DataType::Boolean,
            Self::Real => DataType::Float32,
            Self::Double => DataType::Float64,
            Self::Numeric { precision, scale } => DataType::Decimal128(precision, scale),
            Self::Bytea => DataType::Binary,
            Self::Interval => DataType::Interval(IntervalUnit::MonthDayNano),
            Self::Date => DataType::Date32,
            Self::Time => DataType::Time64(TimeUnit::Microsecond),
            Self::Timestamp => DataType::Timestamp(TimeUnit::Microsecond, None),
            Self::TimestampTz => DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())),
        }
    }

    /// The names of the functions that fail and that give NULL.
    fn names(self) -> [&'static str; 2] {
        match self {
            Self::Boolean => ["bool", "try_bool"],
            Self::Real => ["float4", "try_float4"],
            Self::Double => ["float8", "try_float8"],
            Self::Numeric { .. } => ["numeric", "try_numeric"],
            Self::Bytea => ["bytea", "try_bytea"],
            Self::Interval => ["interval", "try_interval"],
            Self::Date => ["date", "try_date"],
            Self::Time => ["time", "try_time"],
            Self::Timestamp => ["timestamp", "try_timestamp"],
            Self::TimestampTz => ["timestamptz", "try_timestamptz"],
        }
    }
}

/// Checks that a text is a value of this type, if it is one of those that are read here.
///
/// # Errors
/// As PostgreSQL reports it.
pub(crate) fn check(text: &str, data_type: &DataType) -> Option<Result<(), SqlError>> {
    let read = of_texts(&StringArray::from(vec![text]), data_type)?;
    Some(read.map(drop))
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
        self.values(texts).map_err(external)
    }

    fn values(&self, texts: &StringArray) -> Result<ArrayRef, SqlError> {
        Ok(match self.target {
            Target::Boolean => Arc::new(BooleanArray::from(self.each(texts, boolean)?)),
            Target::Real => Arc::new(Float32Array::from(self.each(texts, real)?)),
            Target::Double => Arc::new(Float64Array::from(self.each(texts, double)?)),
            Target::Numeric { precision, scale } => {
                let values = self.each(texts, |text| numeric::read(text, precision, scale))?;
                Arc::new(Decimal128Array::from(values).with_data_type(self.target.data_type()))
            }
            Target::Bytea => {
                let values = self.each(texts, bytea::read)?;
                Arc::new(values.iter().map(Option::as_deref).collect::<BinaryArray>())
            }
            Target::Interval => Arc::new(IntervalMonthDayNanoArray::from(self.each(texts, |text| {
                let read = interval::read(text, None)?.as_arrow();
                read.ok_or_else(|| SqlError::new(SqlState::DatetimeFieldOverflow, "interval out of range"))
            })?)),
            Target::Date => Arc::new(Date32Array::from(self.each(texts, datetime::date)?)),
            Target::Time => Arc::new(Time64MicrosecondArray::from(self.each(texts, datetime::time)?)),
            Target::Timestamp => Arc::new(TimestampMicrosecondArray::from(
                self.each(texts, datetime::timestamp)?,
            )),
            Target::TimestampTz => Arc::new(
                TimestampMicrosecondArray::from(self.each(texts, datetime::timestamp_tz)?)
                    .with_timezone("UTC"),
            ),
        })
    }

    fn each<T>(
        &self,
        texts: &StringArray,
        read: impl Fn(&str) -> Result<T, SqlError>,
    ) -> Result<Vec<Option<T>>, SqlError> {
        let values = texts.iter().map(|text| match (text.map(&read), self.on_fault) {
            (None, _) | (Some(Err(_)), OnFault::Null) => Ok(None),
            (Some(Err(error)), OnFault::Fail) => Err(error),
            (Some(Ok(value)), _) => Ok(Some(value)),
        });
        values.collect()
    }
}

/// `true`, `yes`, `on`, `1` and their first letters, and their contraries.
fn boolean(text: &str) -> Result<bool, SqlError> {
    let word = text.trim().to_ascii_lowercase();
    let is_start_of = |whole: &str| !word.is_empty() && whole.starts_with(&word);
    if is_start_of("true") || is_start_of("yes") || word == "on" || word == "1" {
        return Ok(true);
    }
    if is_start_of("false") || is_start_of("no") || word == "of" || word == "off" || word == "0" {
        return Ok(false);
    }
    Err(SqlError::new(
        SqlState::InvalidTextRepresentation,
        format!("invalid input syntax for type boolean: \"{text}\""),
    ))
}

fn real(text: &str) -> Result<f32, SqlError> {
    let value: f32 = text
        .trim()
        .parse()
        .map_err(|_| invalid_text(text, &DataType::Float32))?;
    match is_in_range(text, value == 0.0, value.is_infinite()) {
        true => Ok(value),
        false => Err(out_of_range(text, "real")),
    }
}

fn double(text: &str) -> Result<f64, SqlError> {
    let value: f64 = text
        .trim()
        .parse()
        .map_err(|_| invalid_text(text, &DataType::Float64))?;
    match is_in_range(text, value == 0.0, value.is_infinite()) {
        true => Ok(value),
        false => Err(out_of_range(text, "double precision")),
    }
}

/// Whether what is read as zero or as infinity is meant so.
fn is_in_range(text: &str, is_zero: bool, is_infinite: bool) -> bool {
    let digits = text.split(['e', 'E']).next().unwrap_or_default();
    let has_digits = |wanted: std::ops::RangeInclusive<u8>| digits.bytes().any(|byte| wanted.contains(&byte));
    !(is_zero && has_digits(b'1'..=b'9') || is_infinite && has_digits(b'0'..=b'9'))
}

fn out_of_range(text: &str, name: &str) -> SqlError {
    SqlError::new(
        SqlState::NumericValueOutOfRange,
        format!("\"{text}\" is out of range for type {name}"),
    )
}

impl ScalarUDFImpl for FromText {
    fn name(&self) -> &str {
        let [fails, gives_null] = self.target.names();
        match self.on_fault {
            OnFault::Fail => fails,
            OnFault::Null => gives_null,
        }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _arg_types: &[DataType]) -> PlanResult<DataType> {
        Ok(self.target.data_type())
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> PlanResult<ColumnarValue> {
        let [text] = args.args.as_slice() else {
            return exec_err!("{} takes one text", self.name());
        };
        let texts = cast(&text.to_array(args.number_rows)?, &DataType::Utf8)?;
        self.read(texts.as_string::<i32>()).map(ColumnarValue::Array)
    }
}
