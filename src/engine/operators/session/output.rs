//! The change that a step makes to the output: rows taken away first.

use std::sync::Arc;

use arrow::array::ArrayRef;
use arrow::buffer::ScalarBuffer;
use arrow::record_batch::{RecordBatch, RecordBatchOptions};

use super::input::Layout;
use super::spans::Span;
use crate::engine::delta::Delta;
use crate::engine::error::EngineError;
use crate::engine::operators::state::arrangement::row_behind_time;
use crate::engine::operators::stateless;

/// A row in its session, and how often it is added or taken away.
#[derive(Debug)]
pub(super) struct Change {
    /// The row, behind its time.
    pub(super) row: Arc<[u8]>,
    pub(super) span: Span,
    pub(super) times: i64,
}

/// What a shard gives in a step.
#[derive(Debug, Default)]
pub(super) struct ShardOutput {
    /// Rows taken away.
    pub(super) old: Vec<Change>,
    /// Rows added.
    pub(super) new: Vec<Change>,
    /// Rows that belong to closed sessions.
    pub(super) late: usize,
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
    let mut deltas = Vec::with_capacity(2);
    for (changes, sign) in [(old, -1), (new, 1)] {
        if !changes.is_empty() {
            deltas.push(delta_of(layout, &changes, sign)?);
        }
    }
    Ok(deltas)
}

fn delta_of(layout: &Layout, changes: &[Change], sign: i64) -> Result<Delta, EngineError> {
    // Rows that are emitted once have no weights, and stand there as often as they are.
    let repeats = layout.session.emit_on_close;
    let mut rows = layout.rows.decoder(|_| true, changes.len());
    let (mut starts, mut ends) = (
        Vec::with_capacity(changes.len()),
        Vec::with_capacity(changes.len()),
    );
    for change in changes {
        for _ in 0..if repeats { change.times } else { 1 } {
            rows.append(row_behind_time(&change.row)?)?;
            starts.push(change.span.start);
            ends.push(change.span.last.saturating_add(layout.session.gap_us));
        }
    }
    let columns: Vec<ArrayRef> = rows.finish()?.into_iter().flatten().collect();
    let options = RecordBatchOptions::new().with_row_count(Some(starts.len()));
    let batch = RecordBatch::try_new_with_options(Arc::clone(&layout.input), columns, &options)?;
    let weights = (!repeats).then(|| {
        let weights: Vec<i64> = changes.iter().map(|change| sign * change.times).collect();
        ScalarBuffer::from(weights)
    });
    stateless::with_windows(&layout.output, Delta { batch, weights }, starts, ends)
}
