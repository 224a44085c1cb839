//! The change that a step makes to the output: rows taken away first.

use std::sync::Arc;

use arrow::array::ArrayRef;
use arrow::buffer::ScalarBuffer;
use arrow::record_batch::{RecordBatch, RecordBatchOptions};

use super::input::Layout;
use super::spans::Span;
use crate::engine::delta::Delta;
use crate::engine::error::EngineError;
use crate::engine::late_rows::LateRows;
use crate::engine::operators::state::arrangement::{row_behind_time, time_of};
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
    /// How many rows belong to closed sessions.
    pub(super) late: usize,
    /// The first of them, behind its time.
    pub(super) first_late: Option<Arc<[u8]>>,
}

/// Shows one late row of each shard.
///
/// # Errors
/// None that rows just encoded can cause.
pub(super) fn note_late(
    layout: &Layout,
    outputs: &[ShardOutput],
    watermark_us: i64,
    late: &LateRows,
) -> Result<(), EngineError> {
    for row in outputs.iter().filter_map(|output| output.first_late.as_ref()) {
        let mut decoder = layout.rows.decoder(|_| true, 1);
        decoder.append(row_behind_time(row)?)?;
        let columns: Vec<ArrayRef> = decoder.finish()?.into_iter().flatten().collect();
        let batch = RecordBatch::try_new(Arc::clone(&layout.input), columns)?;
        late.add(&batch, 0, time_of(row), watermark_us)?;
    }
    Ok(())
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
