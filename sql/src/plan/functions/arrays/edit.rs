//! Arrays with elements added, taken away or replaced.

use arrow::array::{Array, AsArray};
use arrow::datatypes::{DataType, Int32Type};

use super::super::args::{Args, Computed};
use super::super::define::{Definition, Gives, Kind, Overload};
use super::keys::keys;
use super::lists::{Lists, Picked, fault};
use crate::plan::types::list_of;
use crate::{SqlError, SqlState};

use Kind::{Array as AnyArray, Element};

pub(super) static EDIT: [Definition; 6] = [
    Definition::new(
        "array_append",
        &[Overload::giving(&[AnyArray, Element], Gives::Same(0), |args| {
            extended(args, 0, 1, false)
        })],
    ),
    Definition::new(
        "array_prepend",
        &[Overload::giving(&[Element, AnyArray], Gives::Same(1), |args| {
            extended(args, 1, 0, true)
        })],
    ),
    Definition::new(
        "array_cat",
        &[
            Overload::giving(&[AnyArray, AnyArray], Gives::Same(0), joined),
            // An array joined to an array of arrays is one of its elements.
            Overload::giving(&[AnyArray, Element], Gives::Same(0), |args| {
                extended(args, 0, 1, false)
            }),
            Overload::giving(&[Element, AnyArray], Gives::Same(1), |args| {
                extended(args, 1, 0, true)
            }),
        ],
    ),
    Definition::new(
        "array_remove",
        &[Overload::giving(&[AnyArray, Element], Gives::Same(0), removed)],
    ),
    Definition::new(
        "array_replace",
        &[Overload::giving(
            &[AnyArray, Element, Element],
            Gives::Same(0),
            replaced,
        )],
    ),
    Definition::new(
        "array_fill",
        &[Overload::giving(
            &[Element, Kind::Int4Array],
            Gives::Of(|args| list_of(args.first().cloned().unwrap_or(DataType::Utf8))),
            filled,
        )],
    ),
];

/// An element at the one end or the other. NULL counts as an array without elements.
fn extended(args: &Args, array: usize, element: usize, is_first: bool) -> Computed {
    let lists = Lists::of(args, array)?;
    let sources: Vec<&dyn Array> = vec![lists.values().as_ref(), args.array(element).as_ref()];
    let mut made = Picked::from(sources, args.rows());
    for row in 0..args.rows() {
        let place = args.place(element, row);
        if is_first {
            made.pick(1, place);
        }
        if let Some(places) = lists.range(row) {
            made.pick_all(0, places);
        }
        if !is_first {
            made.pick(1, place);
        }
        made.end();
    }
    made.finish(args.gives())
}

/// One array behind the other; NULL is nothing beside an array.
fn joined(args: &Args) -> Computed {
    let (left, right) = (Lists::of(args, 0)?, Lists::of(args, 1)?);
    let sources: Vec<&dyn Array> = vec![left.values().as_ref(), right.values().as_ref()];
    let mut made = Picked::from(sources, args.rows());
    for row in 0..args.rows() {
        let both = [left.range(row), right.range(row)];
        if both.iter().all(Option::is_none) {
            made.null();
            continue;
        }
        for (source, places) in both.into_iter().enumerate() {
            if let Some(places) = places {
                made.pick_all(source, places);
            }
        }
        made.end();
    }
    made.finish(args.gives())
}

fn removed(args: &Args) -> Computed {
    let lists = Lists::of(args, 0)?;
    let found = keys(&[lists.values(), args.array(1)])?;
    let [elements, wanted] = found.as_slice() else {
        return Err(fault("there are two columns of keys"));
    };
    let mut made = Picked::from(vec![lists.values().as_ref()], args.rows());
    for row in 0..args.rows() {
        let Some(places) = lists.range(row) else {
            made.null();
            continue;
        };
        let wanted = wanted.row(args.place(1, row));
        for place in places {
            if elements.row(place) != wanted {
                made.pick(0, place);
            }
        }
        made.end();
    }
    made.finish(args.gives())
}

fn replaced(args: &Args) -> Computed {
    let lists = Lists::of(args, 0)?;
    let found = keys(&[lists.values(), args.array(1)])?;
    let [elements, wanted] = found.as_slice() else {
        return Err(fault("there are two columns of keys"));
    };
    let sources: Vec<&dyn Array> = vec![lists.values().as_ref(), args.array(2).as_ref()];
    let mut made = Picked::from(sources, args.rows());
    for row in 0..args.rows() {
        let Some(places) = lists.range(row) else {
            made.null();
            continue;
        };
        let wanted = wanted.row(args.place(1, row));
        for place in places {
            match elements.row(place) == wanted {
                true => made.pick(1, args.place(2, row)),
                false => made.pick(0, place),
            }
        }
        made.end();
    }
    made.finish(args.gives())
}

/// `array_fill(value, ARRAY[length])`
fn filled(args: &Args) -> Computed {
    let lengths = Lists::of(args, 1)?;
    let numbers = lengths.values().as_primitive::<Int32Type>();
    let mut made = Picked::from(vec![args.array(0).as_ref()], args.rows());
    for row in 0..args.rows() {
        let null = || {
            SqlError::new(
                SqlState::NullValueNotAllowed,
                "dimension array or low bound array cannot be null",
            )
        };
        let places = lengths.range(row).ok_or_else(null)?;
        if places.len() > 1 {
            return Err(SqlError::unsupported("array_fill() with several dimensions")
                .with_hint("Fill the inner arrays first."));
        }
        if let Some(place) = places.into_iter().next() {
            if numbers.is_null(place) {
                return Err(SqlError::new(
                    SqlState::NullValueNotAllowed,
                    "dimension values cannot be null",
                ));
            }
            let length = usize::try_from(numbers.value(place)).unwrap_or(0);
            made.check_room(length)?;
            for _ in 0..length {
                made.pick(0, args.place(0, row));
            }
        }
        made.end();
    }
    made.finish(args.gives())
}
