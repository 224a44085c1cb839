//! Bounds on functions whose result may be many times their input: what they would give is counted before they are called.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Int64Array, StringArray};
use arrow::compute::cast;
use arrow::datatypes::{DataType, FieldRef, Int64Type, TimeUnit};
use datafusion::common::{Result as PlanResult, ScalarValue};
use datafusion::logical_expr::{
    ColumnarValue, Documentation, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
};

use crate::plan::translate::external;
use crate::{SqlError, SqlState};

/// Longest result of one call, in bytes.
pub(crate) const VALUE_BYTES_MAX: u128 = 256 << 20;
/// Longest results of the calls for one batch of rows together, in bytes.
const BATCH_BYTES_MAX: u128 = 1 << 30;
/// Results that may be longer than this are counted exactly, where that takes time.
const COUNTED_BYTES_MIN: u128 = 4096;
/// What an element of an array takes at least.
const ELEMENT_BYTES: u128 = 8;

/// The functions by name, those that multiply their input with bounds.
pub(crate) fn bounded(functions: BTreeMap<String, Arc<ScalarUDF>>) -> BTreeMap<String, Arc<ScalarUDF>> {
    let bound = |(name, function): (String, Arc<ScalarUDF>)| {
        let function = match Growth::of(function.name()) {
            Some(growth) => Arc::new(ScalarUDF::from(Bounded {
                inner: function,
                growth,
            })),
            None => function,
        };
        (name, function)
    };
    functions.into_iter().map(bound).collect()
}

/// The error for a result that is longer than a value may be.
pub(crate) fn too_long(function: &str) -> SqlError {
    SqlError::new(SqlState::ProgramLimitExceeded, "requested length too large").with_detail(format!(
        "The result of {function}() would take more than {VALUE_BYTES_MAX} bytes."
    ))
}

/// How the length of a result follows from the arguments.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Growth {
    /// `repeat(text, n)`
    Repeat,
    /// `lpad(text, n [, fill])`
    Pad,
    /// `replace(text, from, to)`
    Replace,
    /// `array_repeat(element, n)`
    RepeatElement,
    /// `array_resize(array, n [, element])`
    Resize,
    /// `range([start,] stop [, step])`, `generate_series(…)`
    Series,
    /// `array_to_string(array, delimiter [, null])`
    Join,
}

impl Growth {
    fn of(function: &str) -> Option<Self> {
        match function {
            "repeat" => Some(Self::Repeat),
            "lpad" | "rpad" => Some(Self::Pad),
            "replace" => Some(Self::Replace),
            "array_repeat" => Some(Self::RepeatElement),
            "array_resize" => Some(Self::Resize),
            "range" | "generate_series" => Some(Self::Series),
            "array_to_string" => Some(Self::Join),
            _ => None,
        }
    }

    /// At most how many bytes each row gives.
    fn bytes(self, args: &[ArrayRef], rows: usize) -> PlanResult<Vec<u128>> {
        Ok(match self {
            Self::Repeat => {
                let (texts, counts) = (texts_of(&args[0])?, numbers(&args[1])?);
                each(rows, |row| length(&texts, row) * count(&counts, row))
            }
            Self::Pad => {
                let (texts, counts) = (texts_of(&args[0])?, numbers(&args[1])?);
                let fill = args.get(2).map(texts_of).transpose()?;
                each(rows, |row| {
                    let widest = fill.as_ref().map_or(1, |fill| widest_char(fill, row));
                    length(&texts, row) + count(&counts, row) * widest
                })
            }
            Self::Replace => {
                let (texts, from, to) = (texts_of(&args[0])?, texts_of(&args[1])?, texts_of(&args[2])?);
                each(rows, |row| replaced(&texts, &from, &to, row))
            }
            Self::RepeatElement => {
                let counts = numbers(&args[1])?;
                let element = element_bytes(&args[0]);
                each(rows, |row| element * count(&counts, row))
            }
            Self::Resize => {
                let counts = numbers(&args[1])?;
                each(rows, |row| ELEMENT_BYTES * count(&counts, row))
            }
            Self::Series => series(args, rows)?,
            Self::Join => {
                let delimiters = texts_of(&args[1])?;
                let null = args.get(2).map(texts_of).transpose()?;
                let elements = element_bytes(&args[0]);
                each(rows, |row| {
                    let null = null.as_ref().map_or(0, |null| length(null, row));
                    elements / ELEMENT_BYTES * (length(&delimiters, row) + null) + elements
                })
            }
        })
    }
}

fn each(rows: usize, bytes: impl Fn(usize) -> u128) -> Vec<u128> {
    (0..rows).map(bytes).collect()
}

fn texts_of(array: &ArrayRef) -> PlanResult<StringArray> {
    Ok(cast(array, &DataType::Utf8)?.as_string::<i32>().clone())
}

fn numbers(array: &ArrayRef) -> PlanResult<Int64Array> {
    Ok(cast(array, &DataType::Int64)?.as_primitive::<Int64Type>().clone())
}

fn value(texts: &StringArray, row: usize) -> &str {
    if texts.is_null(row) { "" } else { texts.value(row) }
}

fn length(texts: &StringArray, row: usize) -> u128 {
    value(texts, row).len() as u128
}

/// A number of times; a negative one is none.
fn count(numbers: &Int64Array, row: usize) -> u128 {
    if numbers.is_null(row) {
        return 0;
    }
    u128::try_from(numbers.value(row)).unwrap_or(0)
}

fn widest_char(texts: &StringArray, row: usize) -> u128 {
    value(texts, row)
        .chars()
        .map(|char| char.len_utf8() as u128)
        .max()
        .unwrap_or(0)
}

/// The length of a text after `replace`; matches are only counted where their number may matter.
fn replaced(texts: &StringArray, from: &StringArray, to: &StringArray, row: usize) -> u128 {
    let (text, from, to) = (value(texts, row), value(from, row), value(to, row));
    let length = text.len() as u128;
    if from.is_empty() || to.len() <= from.len() {
        return length;
    }
    let grows = (to.len() - from.len()) as u128;
    let most = length + length / from.len() as u128 * grows;
    if most <= COUNTED_BYTES_MIN {
        return most;
    }
    length + text.matches(from).count() as u128 * grows
}

/// The mean size of a row of the array, at least one element's.
fn element_bytes(array: &ArrayRef) -> u128 {
    let bytes = array.to_data().get_slice_memory_size().unwrap_or(0) as u128;
    (bytes / array.len().max(1) as u128).max(ELEMENT_BYTES)
}

/// Elements of a series of integers; of times, by their steps.
fn series(args: &[ArrayRef], rows: usize) -> PlanResult<Vec<u128>> {
    let micros = DataType::Timestamp(TimeUnit::Microsecond, None);
    let bound = |array: &ArrayRef| match array.data_type() {
        DataType::Date32 | DataType::Date64 | DataType::Timestamp(..) => numbers(&cast(array, &micros)?),
        _ => numbers(array),
    };
    let (start, stop) = match args {
        [stop] => (None, bound(stop)?),
        [start, stop, ..] => (Some(bound(start)?), bound(stop)?),
        [] => return Ok(Vec::new()),
    };
    let steps = args.get(2).map(step_of).transpose()?;
    let at = |array: &Int64Array, row: usize| match array.is_null(row) {
        true => 0,
        false => i128::from(array.value(row)),
    };
    Ok(each(rows, |row| {
        let start = start.as_ref().map_or(0, |start| at(start, row));
        let step = steps
            .as_ref()
            .map_or(1, |steps| at(steps, row))
            .unsigned_abs()
            .max(1);
        ((at(&stop, row) - start).unsigned_abs() / step + 1) * ELEMENT_BYTES
    }))
}

/// Steps of a series: integers, or intervals in µs with months of 28 days.
fn step_of(array: &ArrayRef) -> PlanResult<Int64Array> {
    let DataType::Interval(_) = array.data_type() else {
        return numbers(array);
    };
    let steps = (0..array.len()).map(|row| {
        let ScalarValue::IntervalMonthDayNano(Some(step)) = ScalarValue::try_from_array(array, row)? else {
            return Ok(None);
        };
        let days = i64::from(step.months) * 28 + i64::from(step.days);
        Ok(Some(
            days.saturating_mul(86_400_000_000)
                .saturating_add(step.nanoseconds / 1000),
        ))
    });
    Ok(steps.collect::<PlanResult<Vec<Option<i64>>>>()?.into())
}

/// A function that is not called where its result would be too long.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Bounded {
    inner: Arc<ScalarUDF>,
    growth: Growth,
}

impl Bounded {
    fn check(&self, args: &ScalarFunctionArgs) -> PlanResult<()> {
        let has_rows = args.args.iter().any(|arg| matches!(arg, ColumnarValue::Array(_)));
        let rows = if has_rows { args.number_rows } else { 1 };
        let arrays = args.args.iter().map(|arg| arg.to_array(rows));
        let bytes = self
            .growth
            .bytes(&arrays.collect::<PlanResult<Vec<_>>>()?, rows)?;
        let longest = bytes.iter().copied().max().unwrap_or(0);
        let all = bytes.iter().fold(0u128, |sum, bytes| sum.saturating_add(*bytes));
        if longest > VALUE_BYTES_MAX {
            return Err(external(self.too_long(longest)));
        }
        if all > BATCH_BYTES_MAX {
            let name = self.inner.name();
            let error = SqlError::new(SqlState::ProgramLimitExceeded, "requested length too large")
                .with_detail(format!(
                    "The results of {name}() for {rows} rows would take {all} bytes together."
                ))
                .with_hint("Filter rows before the call.");
            return Err(external(error));
        }
        Ok(())
    }

    fn too_long(&self, bytes: u128) -> SqlError {
        let name = self.inner.name();
        SqlError::new(SqlState::ProgramLimitExceeded, "requested length too large").with_detail(format!(
            "The result of {name}() would take up to {bytes} bytes; a value may take {VALUE_BYTES_MAX}."
        ))
    }
}

impl ScalarUDFImpl for Bounded {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn aliases(&self) -> &[String] {
        self.inner.aliases()
    }

    fn signature(&self) -> &Signature {
        self.inner.signature()
    }

    fn return_type(&self, arg_types: &[DataType]) -> PlanResult<DataType> {
        self.inner.return_type(arg_types)
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs) -> PlanResult<FieldRef> {
        self.inner.return_field_from_args(args)
    }

    fn coerce_types(&self, arg_types: &[DataType]) -> PlanResult<Vec<DataType>> {
        self.inner.coerce_types(arg_types)
    }

    fn documentation(&self) -> Option<&Documentation> {
        self.inner.documentation()
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> PlanResult<ColumnarValue> {
        self.check(&args)?;
        self.inner.invoke_with_args(args)
    }
}
