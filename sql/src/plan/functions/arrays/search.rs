//! Elements looked for: positions, arrays that hold others, comparisons with any or all elements.

use std::cmp::Ordering;
use std::collections::HashSet;
use std::sync::Arc;

use arrow::array::{Array, BooleanArray, Int32Array, ListArray};
use arrow::buffer::{NullBuffer, OffsetBuffer};
use arrow::datatypes::{DataType, Int32Type};

use super::super::args::{Args, Computed};
use super::super::define::{Definition, Gives, Kind, Overload};
use super::keys::keys;
use super::lists::{Lists, fault, flattened, kernel, range};
use crate::plan::types::list_of;
use crate::{SqlError, SqlState};

use Kind::{Array as AnyArray, Bool, Element, Int4};

pub(super) static SEARCH: [Definition; 5] = [
    Definition::new(
        "array_position",
        &[
            Overload::new(&[AnyArray, Element], Int4, position),
            Overload::new(&[AnyArray, Element, Int4], Int4, position),
        ],
    ),
    Definition::new(
        "array_positions",
        &[Overload::giving(
            &[AnyArray, Element],
            Gives::Of(|_| list_of(DataType::Int32)),
            positions,
        )],
    ),
    Definition::new(
        "arraycontains",
        &[Overload::new(&[AnyArray, AnyArray], Bool, |args| {
            among(args, 0, 1, true)
        })],
    ),
    Definition::new(
        "arraycontained",
        &[Overload::new(&[AnyArray, AnyArray], Bool, |args| {
            among(args, 1, 0, true)
        })],
    ),
    Definition::new(
        "arrayoverlap",
        &[Overload::new(&[AnyArray, AnyArray], Bool, |args| {
            among(args, 0, 1, false)
        })],
    ),
];

macro_rules! quantified {
    ($name:literal, $quantifier:expr, $holds:expr) => {
        Definition::new(
            $name,
            &[Overload::new(&[Element, AnyArray], Bool, |args| {
                compared(args, $quantifier, $holds)
            })],
        )
    };
}

/// `value operator ANY(array)` and `value operator ALL(array)`, by names such as `any =`.
pub(super) static QUANTIFIED: [Definition; 12] = [
    quantified!("any =", Quantifier::Any, Ordering::is_eq),
    quantified!("any <>", Quantifier::Any, Ordering::is_ne),
    quantified!("any <", Quantifier::Any, Ordering::is_lt),
    quantified!("any <=", Quantifier::Any, Ordering::is_le),
    quantified!("any >", Quantifier::Any, Ordering::is_gt),
    quantified!("any >=", Quantifier::Any, Ordering::is_ge),
    quantified!("all =", Quantifier::All, Ordering::is_eq),
    quantified!("all <>", Quantifier::All, Ordering::is_ne),
    quantified!("all <", Quantifier::All, Ordering::is_lt),
    quantified!("all <=", Quantifier::All, Ordering::is_le),
    quantified!("all >", Quantifier::All, Ordering::is_gt),
    quantified!("all >=", Quantifier::All, Ordering::is_ge),
];

#[derive(Clone, Copy, PartialEq, Eq)]
enum Quantifier {
    Any,
    All,
}

/// Shows the numbers of the elements that are not distinct from the value, counted from 1, row by row.
fn found(
    args: &Args,
    mut see: impl FnMut(usize, Option<&mut dyn FnMut() -> Option<i32>>),
) -> Result<(), SqlError> {
    let lists = Lists::of(args, 0)?;
    let both = keys(&[lists.values(), args.array(1)])?;
    let [elements, wanted] = both.as_slice() else {
        return Err(fault("there are two columns of keys"));
    };
    for row in 0..args.rows() {
        let wanted = wanted.row(args.place(1, row));
        match lists.range(row) {
            Some(places) => {
                let mut numbers = (1..)
                    .zip(places)
                    .filter_map(|(number, place)| (elements.row(place) == wanted).then_some(number));
                see(row, Some(&mut || numbers.next()));
            }
            None => see(row, None),
        }
    }
    Ok(())
}

fn position(args: &Args) -> Computed {
    let from = (args.len() > 2).then(|| args.numbers::<Int32Type>(2));
    let mut first: Vec<Option<i32>> = Vec::with_capacity(args.rows());
    found(args, |row, numbers| {
        let from = from.and_then(|from| from.opt(row)).unwrap_or(1);
        let numbers = numbers.into_iter().flat_map(std::iter::from_fn);
        first.push(numbers.into_iter().find(|number| *number >= from));
    })?;
    Ok(Arc::new(Int32Array::from(first)))
}

fn positions(args: &Args) -> Computed {
    let (mut all, mut lengths, mut is_there) = (Vec::new(), Vec::new(), Vec::new());
    found(args, |_, numbers| {
        let before = all.len();
        is_there.push(numbers.is_some());
        all.extend(numbers.into_iter().flat_map(std::iter::from_fn));
        lengths.push(all.len() - before);
    })?;
    let DataType::List(field) = args.gives() else {
        return Err(fault("positions are an array"));
    };
    let lists = ListArray::try_new(
        Arc::clone(field),
        OffsetBuffer::from_lengths(lengths),
        Arc::new(Int32Array::from(all)),
        Some(NullBuffer::from(is_there)),
    );
    match lists {
        Ok(lists) => Ok(Arc::new(lists)),
        Err(error) => Err(kernel(&error)),
    }
}

/// How many of the bounds, which ascend, are not greater than the value.
pub(in crate::plan::functions) fn bucket(args: &Args) -> Computed {
    let lists = Lists::of(args, 1)?;
    let both = keys(&[args.array(0), lists.values()])?;
    let [values, bounds] = both.as_slice() else {
        return Err(fault("there are two columns of keys"));
    };
    args.strict::<Int32Type>(|row| {
        let places = lists.range(row).unwrap_or(0..0);
        if places.clone().any(|place| lists.values().is_null(place)) {
            return Err(SqlError::new(
                SqlState::NullValueNotAllowed,
                "thresholds array must not contain NULLs",
            ));
        }
        let value = values.row(args.place(0, row));
        let (mut low, mut high) = (places.start, places.end);
        while low < high {
            let middle = low + (high - low) / 2;
            match bounds.row(middle) <= value {
                true => low = middle + 1,
                false => high = middle,
            }
        }
        Ok(i32::try_from(low - places.start).unwrap_or(i32::MAX))
    })
}

/// Whether all, or any, elements of one array are in another one. NULL is in none.
fn among(args: &Args, holder: usize, held: usize, all: bool) -> Computed {
    let holders = flattened(Lists::of(args, holder)?.list());
    let helds = flattened(Lists::of(args, held)?.list());
    let both = keys(&[holders.values(), helds.values()])?;
    let [in_holder, in_held] = both.as_slice() else {
        return Err(fault("there are two columns of keys"));
    };
    // Cleared for each row: its room stays.
    let mut there: HashSet<&[u8]> = HashSet::new();
    let mut last = None;
    args.strict_bools(|row| {
        let place = args.place(holder, row);
        if last != Some(place) {
            there.clear();
            let places = range(&holders, place).unwrap_or(0..0);
            let valid = places.filter(|place| holders.values().is_valid(*place));
            there.extend(valid.map(|place| in_holder.row(place).data()));
            last = Some(place);
        }
        let mut wanted = range(&helds, args.place(held, row)).unwrap_or(0..0);
        let is_there =
            |place: usize| helds.values().is_valid(place) && there.contains(in_held.row(place).data());
        Ok(match all {
            true => wanted.all(is_there),
            false => wanted.any(is_there),
        })
    })
}

/// A value compared with the elements of an array: unknown where a NULL leaves it open.
fn compared(args: &Args, quantifier: Quantifier, holds: fn(Ordering) -> bool) -> Computed {
    let lists = Lists::of(args, 1)?;
    let flat = flattened(lists.list());
    let both = keys(&[args.array(0), flat.values()])?;
    let [values, elements] = both.as_slice() else {
        return Err(fault("there are two columns of keys"));
    };
    // What one element says by which all is said.
    let decides = quantifier == Quantifier::Any;
    let result = (0..args.rows()).map(|row| {
        let places = range(&flat, args.place(1, row))?;
        if places.is_empty() {
            return Some(!decides);
        }
        if args.is_null(0, row) {
            return None;
        }
        let value = values.row(args.place(0, row));
        let mut is_open = false;
        for place in places {
            if flat.values().is_null(place) {
                is_open = true;
            } else if holds(value.cmp(&elements.row(place))) == decides {
                return Some(decides);
            }
        }
        (!is_open).then_some(!decides)
    });
    Ok(Arc::new(result.collect::<BooleanArray>()))
}
