//! The change that a step makes to the output: rows taken away first.

use std::sync::Arc;

use arrow::array::UInt32Array;
use arrow::buffer::ScalarBuffer;
use arrow::compute::take;
use arrow::record_batch::{RecordBatch, RecordBatchOptions};

use super::layout::{LEFT, Layout, RIGHT};
use crate::engine::delta::Delta;
use crate::engine::error::EngineError;
use crate::engine::operators::state::order;

/// A left row with its match, and how often it is added or taken away.
#[derive(Debug)]
pub(super) struct Change {
    pub(super) left: Arc<[u8]>,
    pub(super) right: Option<Arc<[u8]>>,
    pub(super) weight: i64,
}

/// What a shard gives in a step.
#[derive(Debug, Default)]
pub(super) struct Changes {
    /// Rows taken away.
    pub(super) old: Vec<Change>,
    /// Rows added.
    pub(super) new: Vec<Change>,
}

impl Changes {
    /// Notes a change of weight other than 0.
    pub(super) fn push(&mut self, left: &Arc<[u8]>, right: Option<&Arc<[u8]>>, weight: i64) {
        let change = Change {
            left: Arc::clone(left),
            right: right.map(Arc::clone),
            weight,
        };
        match weight {
            0 => {}
            ..0 => self.old.push(change),
            _ => self.new.push(change),
        }
    }
}

/// One output of all shards.
///
/// # Errors
/// Rows that cannot be read, as only damaged state holds them.
pub(super) fn merge(layout: &Layout, changes: Vec<Changes>) -> Result<Vec<Delta>, EngineError> {
    let (mut old, mut new) = (Vec::new(), Vec::new());
    for mut own in changes {
        old.append(&mut own.old);
        new.append(&mut own.new);
    }
    let mut deltas = Vec::new();
    for own in [old, new].iter().filter(|own| !own.is_empty()) {
        let batch = batch_of(layout, own)?;
        if own.iter().all(|change| change.weight == 1) {
            deltas.push(Delta::inserts(batch));
        } else {
            let weights: Vec<i64> = own.iter().map(|change| change.weight).collect();
            deltas.push(Delta::weighted(batch, ScalarBuffer::from(weights)));
        }
    }
    Ok(deltas)
}

/// The rows as columns, NULLs beside left rows without a match.
fn batch_of(layout: &Layout, changes: &[Change]) -> Result<RecordBatch, EngineError> {
    let [left, right] = &layout.sides;
    let mut lefts = layout
        .left_rows
        .decoder(|column| left.output.contains(&column), changes.len());
    let mut rights = layout
        .right_rows
        .decoder(|column| right.output.contains(&column), changes.len());
    let mut places: Vec<Option<u32>> = Vec::with_capacity(changes.len());
    let mut matches = 0u32;
    for change in changes {
        lefts.append(order::row_of(&change.left)?)?;
        match &change.right {
            Some(row) => {
                rights.append(order::row_of(row)?)?;
                places.push(Some(matches));
                matches += 1;
            }
            None => places.push(None),
        }
    }
    let decoded = [lefts.finish()?, rights.finish()?];
    let places = UInt32Array::from(places);
    let mut columns = Vec::with_capacity(layout.output.fields().len());
    for side in [LEFT, RIGHT] {
        for column in &layout.sides[side].output {
            let Some(values) = decoded[side].get(*column).and_then(Option::as_ref) else {
                return Err(EngineError::internal("a column of an ASOF join is not kept"));
            };
            columns.push(match side == RIGHT && (matches as usize) < changes.len() {
                true => take(values, &places, None)?,
                false => Arc::clone(values),
            });
        }
    }
    let options = RecordBatchOptions::new().with_row_count(Some(changes.len()));
    Ok(RecordBatch::try_new_with_options(
        Arc::clone(&layout.output),
        columns,
        &options,
    )?)
}
