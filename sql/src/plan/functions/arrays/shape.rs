//! What an array looks like: lengths, bounds, single elements and parts of it, its text.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, Int32Array, Int64Array, ListArray, UInt32Array, new_empty_array,
};
use arrow::buffer::OffsetBuffer;
use arrow::compute::take;
use arrow::datatypes::{DataType, Int32Type, Int64Type};

use super::super::args::{Args, Computed};
use super::super::define::{Definition, Gives, Kind, Overload};
use super::lists::{Lists, Picked, fault, flattened, kernel, range};
use super::own;
use crate::plan::types::list_of;
use crate::text::ColumnText;
use crate::{SqlError, SqlState};

use Kind::{Array as AnyArray, Bool, Element, Int4, Int8, Text};

/// Dimensions that an array has at most.
const DIMENSIONS_MAX: usize = 16;

pub(super) static SHAPE: [Definition; 14] = [
    Definition::new(
        own::ARRAY,
        &[Overload {
            takes: &[Element],
            is_variadic: true,
            gives: Gives::Of(list_of_first),
            run: array,
        }],
    ),
    Definition::new(
        "array_length",
        &[Overload::new(&[AnyArray, Int4], Int4, |args| {
            bound(args, |length| length)
        })],
    ),
    Definition::new(
        "array_upper",
        &[Overload::new(&[AnyArray, Int4], Int4, |args| {
            bound(args, |length| length)
        })],
    ),
    Definition::new(
        "array_lower",
        &[Overload::new(&[AnyArray, Int4], Int4, |args| bound(args, |_| 1))],
    ),
    Definition::new(
        "array_ndims",
        &[Overload::new(&[AnyArray], Int4, dimension_count)],
    ),
    Definition::new("array_dims", &[Overload::new(&[AnyArray], Text, dimension_text)]),
    Definition::new("cardinality", &[Overload::new(&[AnyArray], Int4, cardinality)]),
    Definition::new(
        own::ELEMENT,
        &[Overload::giving(
            &[AnyArray, Int8],
            Gives::Of(item_of_first),
            element,
        )],
    ),
    Definition::new(
        own::SLICE,
        &[Overload::giving(&[AnyArray, Int8, Int8], Gives::Same(0), slice)],
    ),
    Definition::new(
        own::ELEMENTS,
        &[Overload::giving(&[AnyArray], Gives::Of(flat), elements)],
    ),
    Definition::new(
        own::ORDINALS,
        &[Overload {
            takes: &[Kind::Any],
            is_variadic: true,
            gives: Gives::Of(|_| list_of(DataType::Int64)),
            run: ordinals,
        }],
    ),
    Definition::new(
        own::SUBSCRIPTS,
        &[
            Overload::giving(
                &[AnyArray, Int4],
                Gives::Of(|_| list_of(DataType::Int32)),
                subscripts,
            ),
            Overload::giving(
                &[AnyArray, Int4, Bool],
                Gives::Of(|_| list_of(DataType::Int32)),
                subscripts,
            ),
        ],
    ),
    Definition::new(
        "array_to_string",
        &[
            Overload::new(&[AnyArray, Text], Text, joined),
            Overload::new(&[AnyArray, Text, Text], Text, joined),
        ],
    ),
    Definition::new(
        "trim_array",
        &[Overload::giving(&[AnyArray, Int4], Gives::Same(0), trimmed)],
    ),
];

fn list_of_first(args: &[DataType]) -> DataType {
    list_of(args.first().cloned().unwrap_or(DataType::Null))
}

fn item_of_first(args: &[DataType]) -> DataType {
    match args.first() {
        Some(DataType::List(item)) => item.data_type().clone(),
        _ => DataType::Utf8,
    }
}

fn flat(args: &[DataType]) -> DataType {
    let mut item = item_of_first(args);
    while let DataType::List(inner) = item {
        item = inner.data_type().clone();
    }
    list_of(item)
}

/// `ARRAY[…]`
fn array(args: &Args) -> Computed {
    if args.len() == 0 {
        return made(args, new_empty_array(&DataType::Null), vec![0; args.rows()]);
    }
    let is_nested = matches!(args.data_type(0), DataType::List(_));
    let sources: Vec<&dyn Array> = (0..args.len()).map(|arg| args.array(arg).as_ref()).collect();
    let mut lists = Picked::from(sources, args.rows());
    for row in 0..args.rows() {
        for arg in 0..args.len() {
            lists.pick(arg, args.place(arg, row));
        }
        if is_nested {
            same_dimensions(args, row)?;
        }
        lists.end();
    }
    lists.finish(args.gives())
}

fn same_dimensions(args: &Args, row: usize) -> Result<(), SqlError> {
    let of_arg = |arg: usize| -> Result<Vec<usize>, SqlError> {
        let lists = Lists::of(args, arg)?;
        Ok(dimensions(lists.list(), args.place(arg, row)))
    };
    let first = of_arg(0)?;
    for arg in 1..args.len() {
        if of_arg(arg)? != first {
            return Err(SqlError::new(
                SqlState::ArraySubscriptError,
                "multidimensional arrays must have array expressions with matching dimensions",
            ));
        }
    }
    Ok(())
}

/// The length of each dimension; none for an empty array and for NULL.
fn dimensions(list: &ListArray, row: usize) -> Vec<usize> {
    let mut found = Vec::new();
    let (mut list, mut row) = (list.clone(), row);
    while let Some(places) = range(&list, row).filter(|places| !places.is_empty()) {
        found.push(places.len());
        let Some(inner) = list.values().as_list_opt::<i32>().cloned() else {
            return found;
        };
        if found.len() == DIMENSIONS_MAX {
            return found;
        }
        row = places.start;
        list = inner;
    }
    // Of arrays that are empty inside nothing is left.
    match range(&list, row) {
        Some(_) => Vec::new(),
        None => found,
    }
}

fn bound(args: &Args, bound: impl Fn(usize) -> usize) -> Computed {
    let lists = Lists::of(args, 0)?;
    let dimension = args.numbers::<Int32Type>(1);
    args.maybe::<Int32Type>(|row| {
        let wanted = usize::try_from(dimension.get(row)).unwrap_or(0);
        if wanted == 0 {
            return Ok(None);
        }
        let lengths = dimensions(lists.list(), args.place(0, row));
        Ok(lengths
            .get(wanted - 1)
            .and_then(|length| i32::try_from(bound(*length)).ok()))
    })
}

fn dimension_count(args: &Args) -> Computed {
    let lists = Lists::of(args, 0)?;
    args.maybe::<Int32Type>(|row| {
        let count = dimensions(lists.list(), args.place(0, row)).len();
        Ok(i32::try_from(count).ok().filter(|count| *count > 0))
    })
}

fn dimension_text(args: &Args) -> Computed {
    use std::fmt::Write;
    let lists = Lists::of(args, 0)?;
    args.maybe_texts(|row, text| {
        let lengths = dimensions(lists.list(), args.place(0, row));
        for length in &lengths {
            write!(text, "[1:{length}]").map_err(|_| fault("a text takes what is written to it"))?;
        }
        Ok(!lengths.is_empty())
    })
}

fn cardinality(args: &Args) -> Computed {
    let flat = flattened(Lists::of(args, 0)?.list());
    args.strict::<Int32Type>(|row| {
        let count = range(&flat, args.place(0, row)).map_or(0, |places| places.len());
        Ok(i32::try_from(count).unwrap_or(i32::MAX))
    })
}

/// The place of the element of this number, counted from 1.
fn place_of(places: &std::ops::Range<usize>, number: i64) -> Option<usize> {
    let number = usize::try_from(number).ok().filter(|number| *number > 0)?;
    (number <= places.len()).then(|| places.start + number - 1)
}

fn element(args: &Args) -> Computed {
    let lists = Lists::of(args, 0)?;
    let index = args.numbers::<Int64Type>(1);
    let places = (0..args.rows()).map(|row| {
        let places = lists.range(row)?;
        place_of(&places, index.opt(row)?).and_then(|place| u32::try_from(place).ok())
    });
    let places: UInt32Array = places.collect();
    take(lists.values(), &places, None).map_err(|error| kernel(&error))
}

fn slice(args: &Args) -> Computed {
    let lists = Lists::of(args, 0)?;
    let (from, to) = (args.numbers::<Int64Type>(1), args.numbers::<Int64Type>(2));
    let mut slices = Picked::from(vec![lists.values().as_ref()], args.rows());
    for row in 0..args.rows() {
        match (lists.range(row), from.opt(row), to.opt(row)) {
            (Some(places), Some(from), Some(to)) => {
                let length = i64::try_from(places.len()).unwrap_or(i64::MAX);
                let (from, to) = (from.max(1), to.min(length));
                if from <= to {
                    let before = |number: i64| places.start + usize::try_from(number).unwrap_or(0);
                    slices.pick_all(0, before(from - 1)..before(to));
                }
                slices.end();
            }
            _ => slices.null(),
        }
    }
    slices.finish(args.gives())
}

fn elements(args: &Args) -> Computed {
    Ok(Arc::new(flattened(Lists::of(args, 0)?.list())))
}

fn ordinals(args: &Args) -> Computed {
    let mut numbers = Vec::new();
    let mut lengths = Vec::with_capacity(args.rows());
    for row in 0..args.rows() {
        let mut longest = 0;
        for arg in 0..args.len() {
            let length = Lists::of(args, arg)?.range(row).map_or(0, |places| places.len());
            longest = length.max(longest);
        }
        numbers.extend((1..=longest).filter_map(|number| i64::try_from(number).ok()));
        lengths.push(longest);
    }
    made(args, Arc::new(Int64Array::from(numbers)), lengths)
}

/// Arrays of these lengths, none of them NULL.
fn made(args: &Args, values: ArrayRef, lengths: Vec<usize>) -> Computed {
    let DataType::List(field) = args.gives() else {
        return Err(fault("a function on arrays gives something else"));
    };
    let lists = ListArray::try_new(
        Arc::clone(field),
        OffsetBuffer::from_lengths(lengths),
        values,
        None,
    );
    lists
        .map(|lists| Arc::new(lists) as ArrayRef)
        .map_err(|error| kernel(&error))
}

fn subscripts(args: &Args) -> Computed {
    let lists = Lists::of(args, 0)?;
    let dimension = args.numbers::<Int32Type>(1);
    let mut numbers: Vec<i32> = Vec::new();
    let mut lengths = Vec::with_capacity(args.rows());
    for row in 0..args.rows() {
        let before = numbers.len();
        if !args.any_null(row) {
            let found = dimensions(lists.list(), args.place(0, row));
            let wanted = usize::try_from(dimension.get(row))
                .ok()
                .filter(|wanted| *wanted > 0);
            let length = wanted
                .and_then(|wanted| found.get(wanted - 1))
                .copied()
                .unwrap_or(0);
            let length = i32::try_from(length).unwrap_or(i32::MAX);
            let is_down = args.len() > 2 && args.array(2).as_boolean().value(args.place(2, row));
            match is_down {
                true => numbers.extend((1..=length).rev()),
                false => numbers.extend(1..=length),
            }
        }
        lengths.push(numbers.len() - before);
    }
    made(args, Arc::new(Int32Array::from(numbers)), lengths)
}

fn joined(args: &Args) -> Computed {
    let flat = flattened(Lists::of(args, 0)?.list());
    let (between, for_null) = (args.texts(1), (args.len() > 2).then(|| args.texts(2)));
    let texts = ColumnText::new(flat.values());
    args.texts_of(|row, out| {
        let (Some(places), Some(between)) = (range(&flat, args.place(0, row)), between.opt(row)) else {
            return Ok(false);
        };
        let mut is_first = true;
        for place in places {
            let start = out.len();
            if !is_first {
                out.push_str(between);
            }
            let is_written = texts.write(place, out)
                || for_null.and_then(|text| text.opt(row)).is_some_and(|text| {
                    out.push_str(text);
                    true
                });
            match is_written {
                true => is_first = false,
                false => out.truncate(start),
            }
        }
        Ok(true)
    })
}

fn trimmed(args: &Args) -> Computed {
    let lists = Lists::of(args, 0)?;
    let count = args.numbers::<Int32Type>(1);
    let mut slices = Picked::from(vec![lists.values().as_ref()], args.rows());
    for row in 0..args.rows() {
        let (Some(places), Some(count)) = (lists.range(row), count.opt(row)) else {
            slices.null();
            continue;
        };
        let kept = usize::try_from(count)
            .ok()
            .and_then(|count| places.len().checked_sub(count));
        let Some(kept) = kept else {
            return Err(SqlError::new(
                SqlState::ArraySubscriptError,
                format!(
                    "number of elements to trim must be between 0 and {}",
                    places.len()
                ),
            ));
        };
        slices.pick_all(0, places.start..places.start + kept);
        slices.end();
    }
    slices.finish(args.gives())
}
