//! The change that a step makes to the output: parts with a weight per row, rows taken away first.

use std::sync::Arc;

use arrow::array::{ArrayRef, BooleanArray, UInt32Array, UInt64Array};
use arrow::buffer::ScalarBuffer;
use arrow::compute::{take, take_record_batch};
use arrow::datatypes::SchemaRef;
use arrow::record_batch::{RecordBatch, RecordBatchOptions};

use super::layout::{LEFT, Layout, RIGHT, SIDES, Side};
use crate::engine::delta::Delta;
use crate::engine::error::EngineError;
use crate::engine::operators::stateless;

/// Rows of the output, and how often each is added or taken away.
#[derive(Debug)]
pub(super) struct Part {
    batch: RecordBatch,
    weights: Vec<i64>,
}

/// The rows of a side that a part of a step reads, as columns.
#[derive(Debug)]
pub(super) struct Pool {
    /// Where each row stands in the columns; only of those that are used.
    places: Vec<Option<u32>>,
    used: Vec<u32>,
    columns: Vec<ArrayRef>,
}

impl Pool {
    /// For that many rows, none of them used yet.
    pub(super) fn new(rows: usize) -> Self {
        Self {
            places: vec![None; rows],
            used: Vec::new(),
            columns: Vec::new(),
        }
    }

    /// Notes that a row is read.
    pub(super) fn use_row(&mut self, row: u32) {
        let place = &mut self.places[row as usize];
        if place.is_none() {
            *place = Some(u32::try_from(self.used.len()).expect("there are fewer than 2^32 rows"));
            self.used.push(row);
        }
    }

    /// Decodes the rows that are used; `row` gives the bytes of one.
    ///
    /// # Errors
    /// Bytes that are no row of this side, as only damaged state holds them.
    pub(super) fn load<'a>(
        &mut self,
        side: &Side,
        row: impl Fn(u32) -> &'a Arc<[u8]>,
    ) -> Result<(), EngineError> {
        let mut decoder = side.codec.decoder(|_| true, self.used.len());
        for used in &self.used {
            decoder.append(side.columns_of(row(*used)))?;
        }
        self.columns = decoder.finish()?.into_iter().flatten().collect();
        Ok(())
    }

    /// One of the stored columns.
    pub(super) fn column(&self, column: usize) -> &ArrayRef {
        &self.columns[column]
    }

    /// Where rows stand in the columns; NULL for no row.
    pub(super) fn indices(&self, rows: impl Iterator<Item = Option<u32>>) -> UInt32Array {
        rows.map(|row| self.places[row? as usize]).collect()
    }
}

impl Part {
    /// Pairs of rows; where there is no row, NULLs stand.
    ///
    /// # Errors
    /// Columns that are not of the planned types.
    pub(super) fn of_pairs(
        layout: &Layout,
        pools: &[Pool; SIDES],
        pairs: &[(Option<u32>, Option<u32>)],
        weights: Vec<i64>,
    ) -> Result<Self, EngineError> {
        let indices = [
            pools[LEFT].indices(pairs.iter().map(|(left, _)| *left)),
            pools[RIGHT].indices(pairs.iter().map(|(_, right)| *right)),
        ];
        let mut columns = Vec::with_capacity(layout.output.fields().len());
        for side in [LEFT, RIGHT] {
            for column in &layout.sides[side].output {
                columns.push(take(pools[side].column(*column), &indices[side], None)?);
            }
        }
        Ok(Self {
            batch: batch_of(&layout.output, columns, pairs.len())?,
            weights,
        })
    }

    /// Left rows, with whether they have a match if the output says so.
    ///
    /// # Errors
    /// Columns that are not of the planned types.
    pub(super) fn of_left(
        layout: &Layout,
        pools: &[Pool; SIDES],
        rows: &[u32],
        mark: Option<bool>,
        weights: Vec<i64>,
    ) -> Result<Self, EngineError> {
        let indices = pools[LEFT].indices(rows.iter().map(|row| Some(*row)));
        let columns = layout.sides[LEFT].output.iter();
        let mut columns = columns
            .map(|column| take(pools[LEFT].column(*column), &indices, None))
            .collect::<Result<Vec<_>, _>>()?;
        if let Some(mark) = mark {
            columns.push(Arc::new(BooleanArray::from(vec![mark; rows.len()])));
        }
        Ok(Self {
            batch: batch_of(&layout.output, columns, rows.len())?,
            weights,
        })
    }

    /// The rows for whose weight `keep` is true.
    fn filtered(&self, keep: impl Fn(i64) -> bool) -> Result<Delta, EngineError> {
        let delta = Delta::weighted(self.batch.clone(), ScalarBuffer::from(self.weights.clone()));
        let mask = stateless::mask(self.weights.len(), |row| keep(self.weights[row]));
        stateless::keep(&mask, &delta)
    }

    /// Each row as often as its weight says.
    fn repeated(self) -> Result<Delta, EngineError> {
        if self.weights.iter().any(|weight| *weight != 1) {
            let rows = (0u64..).zip(&self.weights).flat_map(|(row, weight)| {
                let times = usize::try_from(*weight).unwrap_or_default();
                std::iter::repeat_n(row, times)
            });
            let rows = UInt64Array::from_iter_values(rows);
            return Ok(Delta::inserts(take_record_batch(&self.batch, &rows)?));
        }
        Ok(Delta::inserts(self.batch))
    }
}

/// One output of all parts: rows taken away first. An output that only ever inserts has no weights.
///
/// # Errors
/// None that well-formed parts can cause.
pub(super) fn merge(parts: impl Iterator<Item = Part>, append_only: bool) -> Result<Vec<Delta>, EngineError> {
    let (mut old, mut new) = (Vec::new(), Vec::new());
    for part in parts {
        let taken_away = part.weights.iter().filter(|weight| **weight < 0).count();
        if append_only {
            if taken_away > 0 {
                return Err(EngineError::internal("a join that only adds rows took one away"));
            }
            new.push(part.repeated()?);
        } else if taken_away == 0 && part.weights.iter().all(|weight| *weight == 1) {
            new.push(Delta::inserts(part.batch));
        } else {
            if taken_away > 0 {
                old.push(part.filtered(|weight| weight < 0)?);
            }
            if taken_away < part.weights.len() {
                new.push(part.filtered(|weight| weight > 0)?);
            }
        }
    }
    old.append(&mut new);
    Ok(old)
}

/// A batch of so many rows, which need not have columns.
pub(super) fn batch_of(
    schema: &SchemaRef,
    columns: Vec<ArrayRef>,
    rows: usize,
) -> Result<RecordBatch, EngineError> {
    let options = RecordBatchOptions::new().with_row_count(Some(rows));
    Ok(RecordBatch::try_new_with_options(
        Arc::clone(schema),
        columns,
        &options,
    )?)
}
