//! What a partition gives: the rows of the slice, with what the functions say of them.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, Int64Array};
use arrow::record_batch::{RecordBatch, RecordBatchOptions};
use highwater_sql::stream_plan::Rank;

use super::layout::Layout;
use crate::engine::error::EngineError;
use crate::engine::exact::exact_cast;
use crate::engine::operators::state::order;
use crate::engine::operators::state::row_set::RowSet;

/// A row that a partition gives.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Given {
    /// The row, behind its place.
    pub(super) row: Arc<[u8]>,
    /// What the functions say of it.
    pub(super) values: Box<[u8]>,
}

/// Rows at the beginning of a partition, up to the end of the slice.
struct Beginning<'r> {
    /// Each row, how often it counts, and how often of that it lies before the slice.
    rows: Vec<(&'r Arc<[u8]>, u64, u64)>,
}

/// What a partition with these rows gives: rows and how often, in order.
///
/// # Errors
/// A function that fails on a row.
pub(super) fn given(layout: &Layout, rows: &RowSet) -> Result<Vec<(Given, i64)>, EngineError> {
    let beginning = Beginning::of(layout, rows)?;
    if layout.functions.exprs.is_empty() {
        let counted = beginning
            .rows
            .into_iter()
            .filter(|(_, count, before)| count > before);
        let given = counted.map(|(row, count, before)| {
            let given = Given {
                row: Arc::clone(row),
                values: Box::default(),
            };
            (given, i64::try_from(count - before).unwrap_or(i64::MAX))
        });
        return Ok(given.collect());
    }
    let mut given = beginning.with_values(layout)?;
    // Equal rows may have got different values, in whatever order.
    given.sort_unstable();
    given.dedup_by(|(next, times), (first, sum)| {
        let same = next == first;
        if same {
            *sum += *times;
        }
        same
    });
    Ok(given)
}

/// A row and how often it is there.
pub(super) type Counted = (Arc<[u8]>, i64);

/// The rows behind the slice, each with how often it is still there before.
///
/// # Errors
/// Rows that cannot be read, as only damaged state holds them.
pub(super) fn behind(layout: &Layout, rows: &RowSet) -> Result<Vec<Counted>, EngineError> {
    let beginning = Beginning::of(layout, rows)?;
    let mut kept = beginning.rows.iter().peekable();
    let mut behind = Vec::new();
    for (row, cell) in rows.iter() {
        let kept = kept
            .next_if(|(kept, ..)| Arc::ptr_eq(kept, row))
            .map_or(0, |(_, count, _)| *count);
        let kept = i64::try_from(kept).unwrap_or(i64::MAX);
        if kept < cell.count {
            behind.push((Arc::clone(row), kept));
        }
    }
    Ok(behind)
}

impl<'r> Beginning<'r> {
    fn of(layout: &Layout, rows: &'r RowSet) -> Result<Self, EngineError> {
        let (skip, end) = (layout.slice.skip, layout.end());
        let mut all = Vec::new();
        // Rows, and different places, that were passed.
        let (mut passed, mut places) = (0u64, 0u64);
        let mut place: Option<&[u8]> = None;
        let mut rank = 0;
        for (row, cell) in rows.iter() {
            let count = u64::try_from(cell.count).unwrap_or(0);
            if layout.slice.rank == Rank::RowNumber {
                if passed >= end {
                    break;
                }
                let taken = count.min(end - passed);
                all.push((row, taken, skip.saturating_sub(passed).min(taken)));
            } else {
                let own = order::place_of(row)?;
                if place != Some(own) {
                    place = Some(own);
                    places += 1;
                    rank = if layout.slice.rank == Rank::Rank {
                        passed + 1
                    } else {
                        places
                    };
                }
                if rank > end {
                    break;
                }
                all.push((row, count, if rank <= skip { count } else { 0 }));
            }
            passed += count;
        }
        Ok(Self { rows: all })
    }

    /// The rows of the slice one by one, with the values of the functions.
    fn with_values(self, layout: &Layout) -> Result<Vec<(Given, i64)>, EngineError> {
        let total: u64 = self.rows.iter().map(|(_, count, _)| count).sum();
        let total = usize::try_from(total).map_err(|_| too_large())?;
        let values = match &layout.functions.ranks {
            Some(ranks) => self.ranked(ranks, total)?,
            None => self.evaluated(layout, total)?,
        };
        let encoder = layout.functions.values.encoder(&values)?;
        let mut given = Vec::with_capacity(total);
        let mut at = 0;
        for (row, count, before) in &self.rows {
            for number in 0..*count {
                if number >= *before {
                    let mut bytes = Vec::new();
                    encoder.append(at, &mut bytes);
                    let own = Given {
                        row: Arc::clone(row),
                        values: bytes.into_boxed_slice(),
                    };
                    given.push((own, 1));
                }
                at += 1;
            }
        }
        Ok(given)
    }
}

impl Beginning<'_> {
    /// What the window functions say of the rows.
    fn evaluated(&self, layout: &Layout, total: usize) -> Result<Vec<ArrayRef>, EngineError> {
        let mut decoder = layout.rows.decoder(|_| true, total);
        for (row, count, _) in &self.rows {
            let columns = order::row_of(row)?;
            for _ in 0..*count {
                decoder.append(columns)?;
            }
        }
        let columns: Vec<ArrayRef> = decoder.finish()?.into_iter().flatten().collect();
        let options = RecordBatchOptions::new().with_row_count(Some(total));
        let batch = RecordBatch::try_new_with_options(Arc::clone(&layout.input), columns, &options)?;
        values_of(layout, &batch)
    }

    /// The ranks of the rows, which need none of their columns.
    fn ranked(&self, ranks: &[Rank], total: usize) -> Result<Vec<ArrayRef>, EngineError> {
        let mut columns: Vec<Vec<i64>> = ranks.iter().map(|_| Vec::with_capacity(total)).collect();
        let (mut passed, mut rank, mut places) = (0, 0, 0);
        let mut place: Option<&[u8]> = None;
        for (row, count, _) in &self.rows {
            let own = order::place_of(row)?;
            if place != Some(own) {
                place = Some(own);
                places += 1;
                rank = passed + 1;
            }
            for _ in 0..*count {
                passed += 1;
                for (column, kind) in columns.iter_mut().zip(ranks) {
                    column.push(match kind {
                        Rank::RowNumber => passed,
                        Rank::Rank => rank,
                        Rank::DenseRank => places,
                    });
                }
            }
        }
        let columns = columns
            .into_iter()
            .map(|column| Arc::new(Int64Array::from(column)) as ArrayRef);
        Ok(columns.collect())
    }
}

fn values_of(layout: &Layout, batch: &RecordBatch) -> Result<Vec<ArrayRef>, EngineError> {
    if batch.num_rows() == 0 {
        return Ok(layout
            .functions
            .types
            .iter()
            .map(arrow::array::new_empty_array)
            .collect());
    }
    let functions = layout.functions.exprs.iter().zip(&layout.functions.types);
    let values = functions.map(|(function, data_type)| {
        let values = function.evaluate(batch)?;
        match values.data_type() == data_type {
            true => Ok(values),
            false => Ok(exact_cast(&values, data_type)?),
        }
    });
    values.collect()
}

fn too_large() -> EngineError {
    EngineError::new("54000", "a partition has more rows than memory can hold")
}
