//! The change that a step makes to the output: rows taken away first.

use std::cmp::Ordering;
use std::sync::Arc;

use arrow::array::ArrayRef;
use arrow::buffer::ScalarBuffer;
use arrow::record_batch::{RecordBatch, RecordBatchOptions};

use super::layout::Layout;
use super::partition::Given;
use super::shard::ShardOutput;
use crate::engine::delta::Delta;
use crate::engine::error::EngineError;
use crate::engine::operators::state::order;

/// Rows and how often each is added or taken away.
pub(super) type Changes = Vec<(Given, i64)>;

/// Appends to `old` and `new` what leads from what a partition gave to what it gives, both in order.
pub(super) fn difference(before: Changes, after: Changes, old: &mut Changes, new: &mut Changes) {
    let (mut before, mut after) = (before.into_iter().peekable(), after.into_iter().peekable());
    loop {
        let order = match (before.peek(), after.peek()) {
            (None, None) => return,
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (Some((was, _)), Some((is, _))) => was.cmp(is),
        };
        match order {
            Ordering::Less => old.extend(before.next()),
            Ordering::Greater => new.extend(after.next()),
            Ordering::Equal => {
                if let (Some((_, was)), Some((given, is))) = (before.next(), after.next()) {
                    match is.cmp(&was) {
                        Ordering::Less => old.push((given, was - is)),
                        Ordering::Greater => new.push((given, is - was)),
                        Ordering::Equal => {}
                    }
                }
            }
        }
    }
}

/// One output of all shards.
///
/// # Errors
/// Rows that cannot be read, as only damaged state holds them.
pub(super) fn merge(layout: &Layout, outputs: Vec<ShardOutput>) -> Result<Vec<Delta>, EngineError> {
    let (mut old, mut new) = (Vec::new(), Vec::new());
    for mut output in outputs {
        old.append(&mut output.old);
        new.append(&mut output.new);
    }
    let mut deltas = Vec::new();
    if layout.emit_on_close {
        if !old.is_empty() {
            return Err(EngineError::internal("a complete partition has changed"));
        }
        if !new.is_empty() {
            deltas.push(Delta::inserts(batch_of(layout, &new, true)?));
        }
        return Ok(deltas);
    }
    for (changes, sign) in [(old, -1), (new, 1)] {
        if !changes.is_empty() {
            let weights: Vec<i64> = changes.iter().map(|(_, times)| sign * times).collect();
            let batch = batch_of(layout, &changes, false)?;
            deltas.push(Delta::weighted(batch, ScalarBuffer::from(weights)));
        }
    }
    Ok(deltas)
}

/// The rows as columns; each as often as it is there, if they are repeated.
fn batch_of(layout: &Layout, changes: &Changes, repeated: bool) -> Result<RecordBatch, EngineError> {
    let mut rows = layout.rows.decoder(|_| true, changes.len());
    let mut values = layout.functions.values.decoder(|_| true, changes.len());
    let mut count = 0;
    for (given, times) in changes {
        for _ in 0..if repeated { *times } else { 1 } {
            rows.append(order::row_of(&given.row)?)?;
            if !layout.functions.exprs.is_empty() {
                values.append(&given.values)?;
            }
            count += 1;
        }
    }
    let mut columns: Vec<ArrayRef> = rows.finish()?.into_iter().flatten().collect();
    if !layout.functions.exprs.is_empty() {
        columns.extend(values.finish()?.into_iter().flatten());
    }
    let options = RecordBatchOptions::new().with_row_count(Some(count));
    Ok(RecordBatch::try_new_with_options(
        Arc::clone(&layout.output),
        columns,
        &options,
    )?)
}
