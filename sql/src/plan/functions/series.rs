//! `generate_series` as a function that gives lists; a query unnests them.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, ListArray, MutableArrayData, PrimitiveArray, make_array};
use arrow::buffer::{NullBuffer, OffsetBuffer, ScalarBuffer};
use arrow::datatypes::{
    ArrowPrimitiveType, DataType, Decimal128Type, Field, Int32Type, Int64Type, IntervalMonthDayNanoType,
    TimestampMicrosecondType,
};

use datafusion::logical_expr::Expr;

use super::args::{Args, Computed};
use super::define::{Definition, Gives, Kind, Overload};
use super::span::Span;
use crate::plan::types::DECIMAL_DIGITS;
use crate::{SqlError, SqlState};

use Kind::{Int4, Int8, Interval, Numeric, Timestamp, TimestampTz};

/// The most elements of the series for one batch of rows.
pub(crate) const ELEMENTS_MAX: usize = 10_000_000;

/// The name under which queries call it once its elements are unnested.
pub(crate) const SERIES: &str = "series";

pub(crate) static SERIES_FUNCTION: Definition = Definition::new(
    SERIES,
    &[
        Overload::giving(&[Int4, Int4], Gives::Of(list_of_first), integers::<Int32Type>),
        Overload::giving(
            &[Int4, Int4, Int4],
            Gives::Of(list_of_first),
            integers::<Int32Type>,
        ),
        Overload::giving(&[Int8, Int8], Gives::Of(list_of_first), integers::<Int64Type>),
        Overload::giving(
            &[Int8, Int8, Int8],
            Gives::Of(list_of_first),
            integers::<Int64Type>,
        ),
        Overload::giving(&[Numeric, Numeric], Gives::Of(list_of_numbers), numbers),
        Overload::giving(&[Numeric, Numeric, Numeric], Gives::Of(list_of_numbers), numbers),
        Overload::giving(
            &[TimestampTz, TimestampTz, Interval],
            Gives::Of(list_of_first),
            times,
        ),
        Overload::giving(&[Timestamp, Timestamp, Interval], Gives::Of(list_of_first), times),
    ],
);

/// The list, or one with NULL where it has no elements.
pub(crate) fn or_one_null(list: Expr) -> Expr {
    OR_ONE_NULL.udf().call(vec![list])
}

static OR_ONE_NULL: Definition = Definition::new(
    "or_one_null",
    &[Overload::giving(&[Kind::Any], Gives::Same(0), with_one_null)],
);

/// The name of the function that gives a list without elements for one that is NULL. No query can write it.
pub(crate) const OR_EMPTY: &str = "or empty";

pub(crate) static OR_EMPTY_FUNCTION: Definition = Definition::new(
    OR_EMPTY,
    &[Overload::giving(&[Kind::Any], Gives::Same(0), |args| {
        let fault = |error: String| SqlError::new(SqlState::InternalError, error);
        let Some(lists) = args.array(0).as_list_opt::<i32>() else {
            return Err(fault("or_empty takes a list".to_owned()));
        };
        let values = lists.values().to_data();
        let mut elements = MutableArrayData::new(vec![&values], false, values.len());
        let mut lengths = Vec::with_capacity(args.rows());
        for row in 0..args.rows() {
            let row = args.place(0, row);
            let offsets = lists.value_offsets();
            let (start, end) = match lists.is_null(row) {
                true => (0, 0),
                false => (offsets[row] as usize, offsets[row + 1] as usize),
            };
            let extended = elements.try_extend(0, start, end);
            extended.map_err(|error| fault(error.to_string()))?;
            lengths.push(end - start);
        }
        let DataType::List(field) = args.gives() else {
            return Err(fault("or_empty gives a list".to_owned()));
        };
        let offsets = OffsetBuffer::from_lengths(lengths);
        ListArray::try_new(Arc::clone(field), offsets, make_array(elements.freeze()), None)
            .map(|lists| Arc::new(lists) as ArrayRef)
            .map_err(|error| fault(error.to_string()))
    })],
);

fn with_one_null(args: &Args) -> Computed {
    let fault = |error: String| SqlError::new(SqlState::InternalError, error);
    let Some(lists) = args.array(0).as_list_opt::<i32>() else {
        return Err(fault("or_one_null takes a list".to_owned()));
    };
    let values = lists.values().to_data();
    let mut elements = MutableArrayData::new(vec![&values], true, values.len());
    let mut lengths = Vec::with_capacity(args.rows());
    for row in 0..args.rows() {
        let row = args.place(0, row);
        let (start, end) = (
            lists.value_offsets()[row] as usize,
            lists.value_offsets()[row + 1] as usize,
        );
        if lists.is_null(row) || start == end {
            elements
                .try_extend_nulls(1)
                .map_err(|error| fault(error.to_string()))?;
            lengths.push(1);
        } else {
            let extended = elements.try_extend(0, start, end);
            extended.map_err(|error| fault(error.to_string()))?;
            lengths.push(end - start);
        }
    }
    let DataType::List(field) = args.gives() else {
        return Err(fault("or_one_null gives a list".to_owned()));
    };
    let offsets = OffsetBuffer::from_lengths(lengths);
    ListArray::try_new(Arc::clone(field), offsets, make_array(elements.freeze()), None)
        .map(|lists| Arc::new(lists) as ArrayRef)
        .map_err(|error| fault(error.to_string()))
}

fn list_of(element: DataType) -> DataType {
    DataType::List(Arc::new(Field::new("item", element, true)))
}

fn list_of_first(args: &[DataType]) -> DataType {
    list_of(args.first().cloned().unwrap_or(DataType::Int64))
}

fn scale_of(data_type: &DataType) -> i8 {
    match data_type {
        DataType::Decimal128(_, scale) => *scale,
        _ => 0,
    }
}

/// With as many digits behind the point as the argument that has the most.
fn list_of_numbers(args: &[DataType]) -> DataType {
    let scale = args.iter().map(scale_of).max().unwrap_or(0);
    list_of(DataType::Decimal128(DECIMAL_DIGITS, scale))
}

fn no_step() -> SqlError {
    SqlError::new(SqlState::InvalidParameterValue, "step size cannot equal zero")
}

fn too_long() -> SqlError {
    SqlError::new(SqlState::ProgramLimitExceeded, "a series is too long")
        .with_detail(format!("Series may have {ELEMENTS_MAX} elements together."))
        .with_hint("Make the step larger, or read the numbers from a table.")
}

/// Collects the elements of all rows.
struct Lists<T: ArrowPrimitiveType> {
    elements: Vec<T::Native>,
    ends: Vec<i32>,
    is_there: Vec<bool>,
}

impl<T: ArrowPrimitiveType> Lists<T> {
    fn new(rows: usize) -> Self {
        let mut ends = Vec::with_capacity(rows + 1);
        ends.push(0);
        Self {
            elements: Vec::new(),
            ends,
            is_there: Vec::with_capacity(rows),
        }
    }

    fn add(&mut self, element: T::Native) -> Result<(), SqlError> {
        if self.elements.len() == ELEMENTS_MAX {
            return Err(too_long());
        }
        self.elements.push(element);
        Ok(())
    }

    /// Refuses what will be too long before any of it is made.
    fn expect(&mut self, (first, last, step): (i128, i128, i128)) -> Result<(), SqlError> {
        let steps = (last - first).checked_div(step).unwrap_or(0);
        let more = usize::try_from(steps + 1).unwrap_or(if steps < 0 { 0 } else { usize::MAX });
        if self.elements.len().saturating_add(more) > ELEMENTS_MAX {
            return Err(too_long());
        }
        self.elements.reserve(more);
        Ok(())
    }

    fn end(&mut self, is_there: bool) {
        let end = i32::try_from(self.elements.len()).expect("there are at most ELEMENTS_MAX elements");
        self.ends.push(end);
        self.is_there.push(is_there);
    }

    fn finish(self, gives: &DataType) -> Computed {
        let DataType::List(field) = gives else {
            return Err(SqlError::new(SqlState::InternalError, "a series is a list"));
        };
        let elements =
            PrimitiveArray::<T>::from_iter_values(self.elements).with_data_type(field.data_type().clone());
        let elements: ArrayRef = Arc::new(elements);
        let lists = ListArray::try_new(
            Arc::clone(field),
            OffsetBuffer::new(ScalarBuffer::from(self.ends)),
            elements,
            Some(NullBuffer::from(self.is_there)),
        );
        match lists {
            Ok(lists) => Ok(Arc::new(lists)),
            Err(error) => Err(SqlError::new(SqlState::InternalError, error.to_string())),
        }
    }
}

fn integers<T>(args: &Args) -> Computed
where
    T: ArrowPrimitiveType,
    T::Native: Into<i64> + TryFrom<i64>,
{
    let mut lists = Lists::<T>::new(args.rows());
    for row in 0..args.rows() {
        if args.any_null(row) {
            lists.end(false);
            continue;
        }
        let value = |arg: usize| i128::from(args.numbers::<T>(arg).get(row).into());
        let step = if args.len() > 2 { value(2) } else { 1 };
        lists.expect((value(0), value(1), step))?;
        walk((value(0), value(1), step), |at| {
            let at = i64::try_from(at).ok().and_then(|at| T::Native::try_from(at).ok());
            at.map_or(Ok(()), |at| lists.add(at))
        })?;
        lists.end(true);
    }
    lists.finish(args.gives())
}

fn numbers(args: &Args) -> Computed {
    let DataType::List(field) = args.gives() else {
        return Err(SqlError::new(SqlState::InternalError, "a series is a list"));
    };
    let wanted = scale_of(field.data_type());
    let mut lists = Lists::<Decimal128Type>::new(args.rows());
    for row in 0..args.rows() {
        if args.any_null(row) {
            lists.end(false);
            continue;
        }
        let value = |arg: usize| {
            let factor = 10i128.pow(u32::from((wanted - scale_of(args.data_type(arg))).unsigned_abs()));
            args.numbers::<Decimal128Type>(arg)
                .get(row)
                .checked_mul(factor)
                .ok_or_else(|| SqlError::new(SqlState::NumericValueOutOfRange, "numeric field overflow"))
        };
        let step = match args.len() > 2 {
            true => value(2)?,
            false => 10i128.pow(u32::from(wanted.unsigned_abs())),
        };
        walk((value(0)?, value(1)?, step), |at| lists.add(at))?;
        lists.end(true);
    }
    lists.finish(args.gives())
}

/// Shows each number from the first up or down to the last.
fn walk(
    (first, last, step): (i128, i128, i128),
    mut show: impl FnMut(i128) -> Result<(), SqlError>,
) -> Result<(), SqlError> {
    if step == 0 {
        return Err(no_step());
    }
    let mut at = first;
    while if step > 0 { at <= last } else { at >= last } {
        show(at)?;
        at = match at.checked_add(step) {
            Some(next) => next,
            None => break,
        };
    }
    Ok(())
}

fn times(args: &Args) -> Computed {
    let (first, last) = (
        args.numbers::<TimestampMicrosecondType>(0),
        args.numbers::<TimestampMicrosecondType>(1),
    );
    let steps = args.numbers::<IntervalMonthDayNanoType>(2);
    let mut lists = Lists::<TimestampMicrosecondType>::new(args.rows());
    for row in 0..args.rows() {
        if args.any_null(row) {
            lists.end(false);
            continue;
        }
        let (mut at, last, step) = (first.get(row), last.get(row), Span::of(steps.get(row)));
        // The sign of an interval is that of its length with months of 30 days.
        let days = i128::from(step.months) * 30 + i128::from(step.days);
        let length = days * i128::from(super::moment::MICROS_PER_DAY) + i128::from(step.micros);
        if length == 0 {
            return Err(no_step());
        }
        while if length > 0 { at <= last } else { at >= last } {
            lists.add(at)?;
            let next = step.after(at)?;
            // Parts of different signs may cancel each other out.
            if next == at {
                return Err(no_step());
            }
            at = next;
        }
        lists.end(true);
    }
    lists.finish(args.gives())
}
