//! The change that a step makes to the output: old rows of changed groups, then new ones; or the rows of closed windows.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, BooleanArray, make_comparator};
use arrow::buffer::{BooleanBuffer, ScalarBuffer};
use arrow::compute::kernels::cmp::distinct;
use arrow::compute::{
    SortColumn, SortOptions, concat_batches, filter_record_batch, lexsort_to_indices, take_record_batch,
};
use arrow::record_batch::{RecordBatch, RecordBatchOptions};

use super::Layout;
use super::accumulator::Accumulator;
use crate::engine::delta::Delta;
use crate::engine::error::EngineError;
use crate::engine::operators::state::group_table::GroupTable;
use crate::engine::operators::state::key::reorder;

/// What a shard gives in a step.
#[derive(Debug, Default)]
pub(super) struct ShardOutput {
    /// Rows taken away.
    pub(super) old: Option<RecordBatch>,
    /// Rows added.
    pub(super) new: Option<RecordBatch>,
    /// Columns of rows added because their windows closed.
    pub(super) closed: Option<Vec<ArrayRef>>,
    /// Columns of rows taken away because nothing has changed them for a while.
    pub(super) idle: Option<Vec<ArrayRef>>,
}

/// The touched groups of a step, by whether they were in the output and whether they are.
#[derive(Debug, Default)]
pub(super) struct Changed {
    /// Was and is: slots, and positions of their saved values.
    both: (Vec<u32>, Vec<u32>),
    /// Was.
    gone: (Vec<u32>, Vec<u32>),
    /// Is.
    new: Vec<u32>,
}

impl Changed {
    /// Notes the slot whose old values were saved at position `at`.
    pub(super) fn note(&mut self, slot: u32, at: u32, was_and_is: (bool, bool)) {
        match was_and_is {
            (true, true) => {
                self.both.0.push(slot);
                self.both.1.push(at);
            }
            (true, false) => {
                self.gone.0.push(slot);
                self.gone.1.push(at);
            }
            (false, true) => self.new.push(slot),
            (false, false) => {}
        }
    }

    /// The rows taken away and added. A group whose row stays as it was gives none.
    ///
    /// # Errors
    /// A result that exceeds its type.
    pub(super) fn into_output(
        self,
        layout: &Layout,
        table: &GroupTable,
        accumulators: &[Box<dyn Accumulator>],
    ) -> Result<ShardOutput, EngineError> {
        let (gone, both) = (self.gone.0.len(), self.both.0.len());
        let old_positions = [self.gone.1, self.both.1].concat();
        let slots = [self.gone.0, self.both.0, self.new].concat();
        let old = accumulators.iter().map(|own| own.saved_results(&old_positions));
        let old = old.collect::<Result<Vec<_>, _>>()?;
        let new = accumulators.iter().map(|own| own.results(&slots[gone..]));
        let new = new.collect::<Result<Vec<_>, _>>()?;
        let differs = differing(&slices(&old, gone, both), &slices(&new, 0, both), both)?;
        // Old and new rows of a group share its key columns.
        let keys = table.columns(&layout.key, &slots)?;
        let batch = |from: usize, rows: usize, results: Vec<ArrayRef>| {
            let batch = batch_of(layout, slices(&keys, from, rows), results, rows)?;
            let Some(differs) = &differs else { return Ok(batch) };
            let stays = |row: usize| (gone..gone + both).contains(&row) && !differs.value(row - gone);
            let keep = BooleanBuffer::collect_bool(rows, |row| !stays(from + row));
            Ok::<_, EngineError>(filter_record_batch(&batch, &BooleanArray::new(keep, None))?)
        };
        let some = |batch: RecordBatch| Some(batch).filter(|batch| batch.num_rows() > 0);
        Ok(ShardOutput {
            old: some(batch(0, gone + both, old)?),
            new: some(batch(gone, slots.len() - gone, new)?),
            closed: None,
            idle: None,
        })
    }
}

fn slices(columns: &[ArrayRef], from: usize, rows: usize) -> Vec<ArrayRef> {
    columns.iter().map(|column| column.slice(from, rows)).collect()
}

/// Which of `rows` rows differ between two sets of columns; `None` if all do.
fn differing(old: &[ArrayRef], new: &[ArrayRef], rows: usize) -> Result<Option<BooleanBuffer>, EngineError> {
    if rows == 0 {
        return Ok(None);
    }
    let mut differs = BooleanBuffer::new_unset(rows);
    for (old, new) in old.iter().zip(new) {
        differs = &differs | &differing_values(old, new)?;
        if differs.count_set_bits() == rows {
            return Ok(None);
        }
    }
    Ok(Some(differs))
}

fn differing_values(old: &ArrayRef, new: &ArrayRef) -> Result<BooleanBuffer, EngineError> {
    if !old.data_type().is_nested() {
        return Ok(distinct(old, new)?.values().clone());
    }
    // The kernel has no lists.
    let compare = make_comparator(old, new, SortOptions::default())?;
    Ok(BooleanBuffer::collect_bool(old.len(), |row| {
        compare(row, row).is_ne()
    }))
}

/// The columns of the output rows of `slots`, in key order and then the aggregates.
///
/// # Errors
/// A result that exceeds its type.
pub(super) fn rows_of(
    layout: &Layout,
    table: &GroupTable,
    accumulators: &[Box<dyn Accumulator>],
    slots: &[u32],
) -> Result<Vec<ArrayRef>, EngineError> {
    let mut columns = table.columns(&layout.key, slots)?;
    for accumulator in accumulators {
        columns.push(accumulator.results(slots)?);
    }
    Ok(columns)
}

/// One output of those of all shards: rows taken away first. Rows of closed windows are sorted by their keys.
///
/// # Errors
/// Columns that are not of the planned types.
pub(super) fn merge(layout: &Layout, outputs: Vec<ShardOutput>) -> Result<Vec<Delta>, EngineError> {
    let (mut old, mut new, mut closed) = (Vec::new(), Vec::new(), Vec::new());
    for output in outputs {
        old.extend(output.old);
        old.extend(
            output
                .idle
                .map(|columns| row_batch(layout, columns))
                .transpose()?,
        );
        new.extend(output.new);
        closed.extend(output.closed);
    }
    let mut deltas: Vec<Delta> = Vec::with_capacity(old.len() + new.len() + 1);
    for batch in old {
        let weights = ScalarBuffer::from(vec![-1; batch.num_rows()]);
        deltas.push(Delta::weighted(batch, weights));
    }
    deltas.extend(new.into_iter().map(Delta::inserts));
    if !closed.is_empty() {
        let closed = closed.into_iter().map(|columns| row_batch(layout, columns));
        let closed = closed.collect::<Result<Vec<_>, _>>()?;
        let rows = sorted(layout, &concat_batches(&layout.output, &closed)?)?;
        if rows.num_rows() > 0 {
            deltas.push(Delta::inserts(rows));
        }
    }
    Ok(deltas)
}

fn sorted(layout: &Layout, rows: &RecordBatch) -> Result<RecordBatch, EngineError> {
    let options = Some(SortOptions {
        descending: false,
        nulls_first: false,
    });
    let key = layout.key_positions.iter();
    let key: Vec<_> = key
        .map(|at| SortColumn {
            values: Arc::clone(rows.column(*at)),
            options,
        })
        .collect();
    Ok(take_record_batch(rows, &lexsort_to_indices(&key, None)?)?)
}

/// Columns as [`rows_of`] gives them, of groups with a key.
fn row_batch(layout: &Layout, mut columns: Vec<ArrayRef>) -> Result<RecordBatch, EngineError> {
    let results = columns.split_off(layout.key_columns.len());
    let rows = columns.first().map_or(0, |column| column.len());
    batch_of(layout, columns, results, rows)
}

fn batch_of(
    layout: &Layout,
    keys: Vec<ArrayRef>,
    results: Vec<ArrayRef>,
    rows: usize,
) -> Result<RecordBatch, EngineError> {
    let mut columns = reorder(keys, &layout.key_positions);
    columns.extend(results);
    let options = RecordBatchOptions::new().with_row_count(Some(rows));
    Ok(RecordBatch::try_new_with_options(
        Arc::clone(&layout.output),
        columns,
        &options,
    )?)
}
