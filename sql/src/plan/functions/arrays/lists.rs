//! Arrays of a call by row, and the arrays that it makes.

use std::ops::Range;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, ListArray};
use arrow::buffer::{NullBuffer, OffsetBuffer};
use arrow::compute::interleave;
use arrow::datatypes::DataType;
use arrow::error::ArrowError;

use super::super::args::{Args, Computed};
use super::super::series::ELEMENTS_MAX;
use crate::{SqlError, SqlState};

/// An argument that is an array.
pub(super) struct Lists<'a> {
    list: &'a ListArray,
    is_constant: bool,
}

impl<'a> Lists<'a> {
    pub(super) fn of(args: &'a Args, arg: usize) -> Result<Self, SqlError> {
        let list = args.array(arg).as_list_opt::<i32>();
        Ok(Self {
            list: list.ok_or_else(|| fault("a function on arrays was given something else"))?,
            is_constant: args.is_constant(arg),
        })
    }

    /// The elements of all rows.
    pub(super) fn values(&self) -> &'a ArrayRef {
        self.list.values()
    }

    pub(super) fn list(&self) -> &'a ListArray {
        self.list
    }

    /// Where the elements of `row` stand in [`Self::values`]; `None` if the array is NULL.
    pub(super) fn range(&self, row: usize) -> Option<Range<usize>> {
        range(self.list, if self.is_constant { 0 } else { row })
    }
}

/// Where the elements of a row stand; `None` if the array is NULL.
pub(super) fn range(list: &ListArray, row: usize) -> Option<Range<usize>> {
    let offsets = list.value_offsets();
    list.is_valid(row)
        .then(|| offsets[row] as usize..offsets[row + 1] as usize)
}

/// The elements of arrays of several dimensions, in one list for each row.
pub(super) fn flattened(list: &ListArray) -> ListArray {
    let mut flat = list.clone();
    while let Some(inner) = flat.values().as_list_opt::<i32>() {
        let offsets = flat.offsets().iter();
        let offsets: Vec<i32> = offsets.map(|at| inner.value_offsets()[*at as usize]).collect();
        let field = match inner.data_type() {
            DataType::List(field) => Arc::clone(field),
            _ => break,
        };
        let nulls = flat.nulls().cloned();
        flat = ListArray::new(
            field,
            OffsetBuffer::new(offsets.into()),
            Arc::clone(inner.values()),
            nulls,
        );
    }
    flat
}

/// Arrays that are put together from elements of other columns.
pub(super) struct Picked<'a> {
    sources: Vec<&'a dyn Array>,
    picks: Vec<(usize, usize)>,
    /// How many of the picks belong to arrays that have ended.
    ended: usize,
    lengths: Vec<usize>,
    is_there: Vec<bool>,
}

impl<'a> Picked<'a> {
    /// From elements of these columns, which are of one type.
    pub(super) fn from(sources: Vec<&'a dyn Array>, rows: usize) -> Self {
        Self {
            sources,
            picks: Vec::new(),
            ended: 0,
            lengths: Vec::with_capacity(rows),
            is_there: Vec::with_capacity(rows),
        }
    }

    /// Refuses more elements than one step may make.
    ///
    /// # Errors
    /// Too many with those that are there (54000).
    pub(super) fn check_room(&self, more: usize) -> Result<(), SqlError> {
        if self.picks.len().saturating_add(more) <= ELEMENTS_MAX {
            return Ok(());
        }
        Err(SqlError::new(
            SqlState::ProgramLimitExceeded,
            format!("arrays of more than {ELEMENTS_MAX} elements in one step are not supported"),
        ))
    }

    /// Puts an element behind those of the array at hand.
    pub(super) fn pick(&mut self, source: usize, place: usize) {
        self.picks.push((source, place));
    }

    /// Puts all of these there.
    pub(super) fn pick_all(&mut self, source: usize, places: Range<usize>) {
        self.picks.extend(places.map(|place| (source, place)));
    }

    /// Ends the array at hand.
    pub(super) fn end(&mut self) {
        self.lengths.push(self.picks.len() - self.ended);
        self.is_there.push(true);
        self.ended = self.picks.len();
    }

    /// The next array is NULL.
    pub(super) fn null(&mut self) {
        self.lengths.push(0);
        self.is_there.push(false);
    }

    pub(super) fn finish(self, gives: &DataType) -> Computed {
        let DataType::List(field) = gives else {
            return Err(fault("a function on arrays gives something else"));
        };
        if i32::try_from(self.picks.len()).is_err() {
            return Err(SqlError::new(
                SqlState::ProgramLimitExceeded,
                "arrays have too many elements in one step",
            ));
        }
        let values = interleave(&self.sources, &self.picks).map_err(|error| kernel(&error))?;
        let nulls = Some(NullBuffer::from(self.is_there)).filter(|nulls| nulls.null_count() > 0);
        let lists = ListArray::try_new(
            Arc::clone(field),
            OffsetBuffer::from_lengths(self.lengths),
            values,
            nulls,
        );
        lists
            .map(|lists| Arc::new(lists) as ArrayRef)
            .map_err(|error| kernel(&error))
    }
}

/// A call that was planned wrongly.
pub(super) fn fault(message: &str) -> SqlError {
    SqlError::new(SqlState::InternalError, message)
}

pub(super) fn kernel(error: &ArrowError) -> SqlError {
    crate::plan::values::arrow_error(error)
}
