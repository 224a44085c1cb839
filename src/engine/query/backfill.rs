//! [`Backfill`]: a new query takes the content of the relations that it reads in parts, one per step, while the pipeline goes on.
//!
//! ```text
//! keys of a relation   ──────────── cursor ────────────────▶
//!                      taken: its   │      the next part is read here, as of the end of the last step
//!                      changes are  │      its changes are not taken yet: a later part has them
//!                      taken too    │
//! ```
//!
//! After each step the query has exactly the rows before the cursor, as of that step. A checkpoint records the cursors, so a
//! restart goes on there.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use arrow::array::UInt64Array;
use arrow::buffer::ScalarBuffer;
use arrow::compute::take_record_batch;
use highwater_sql::stream_plan::StreamOp;
use highwater_storage::ObjectId;

use super::UpstreamChange;
use super::header::QueryHeader;
use super::output::SharedView;
use super::spec::QuerySpec;
use crate::engine::delta::Delta;
use crate::engine::error::EngineError;
use crate::engine::view::{Cursor, ViewReader};

/// What a query has not taken yet of the relations that it reads.
pub(crate) struct Backfill {
    /// Only those that are not taken to the end.
    relations: BTreeMap<ObjectId, Progress>,
    /// Rows of a relation in a step, at most.
    rows_max: usize,
    /// Rows of a relation in the next step.
    rows_next: usize,
}

/// About how long a step of a query takes that is being filled: statements and other views of the pipeline wait no longer for it.
const STEP: Duration = Duration::from_millis(50);
/// The first part is no larger than this: how long a row takes is not known yet.
const ROWS_FIRST: usize = 4096;
/// With fewer rows a step does little but begin and end.
const ROWS_MIN: usize = 512;

/// How far one relation is taken.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Progress {
    /// The first row that is not.
    pub(crate) cursor: Cursor,
    /// Rows taken.
    pub(crate) rows: u64,
    /// Rows of the relation when the last part was taken.
    pub(crate) of_rows: u64,
}

/// The relations of a pipeline that a query may read, by their numbers.
pub(crate) type Relations = HashMap<ObjectId, Arc<SharedView>>;

impl Backfill {
    /// Of a query that reads relations, in parts of about `rows` rows. What is not recorded in a header has nothing yet.
    pub(crate) fn new(spec: &QuerySpec, header: Option<&QueryHeader>, rows: usize) -> Option<Self> {
        let relations: BTreeMap<_, _> = match header {
            Some(header) => header.backfill.iter().cloned().collect(),
            None => spec
                .relations
                .iter()
                .map(|(_, id)| (*id, Progress::default()))
                .collect(),
        };
        // What a temporal join gives for a row depends on what its right side has by then.
        let at_once = spec
            .plan
            .nodes
            .iter()
            .any(|node| matches!(&node.op, StreamOp::Join(join) if join.is_temporal));
        let rows = rows.max(1);
        let (rows_max, rows_next) = if at_once {
            (usize::MAX, usize::MAX)
        } else {
            (rows, rows.min(ROWS_FIRST))
        };
        (!relations.is_empty()).then_some(Self {
            relations,
            rows_max,
            rows_next,
        })
    }

    /// Makes the next part smaller or larger, given how long the step of this one took. How large parts are changes no answer.
    pub(crate) fn pace(&mut self, took: Duration) {
        if self.rows_max == usize::MAX {
            return;
        }
        let ratio = STEP.as_secs_f64() / took.as_secs_f64().max(1e-6);
        let rows = self.rows_next as f64 * ratio.clamp(0.25, 2.0);
        self.rows_next = (rows as usize).clamp(ROWS_MIN.min(self.rows_max), self.rows_max);
    }

    /// What the header of the query records.
    pub(crate) fn recorded(&self) -> Vec<(ObjectId, Progress)> {
        self.relations
            .iter()
            .map(|(id, progress)| (*id, progress.clone()))
            .collect()
    }

    /// Rows taken, and rows that there are, of the relations that are not taken to the end.
    pub(crate) fn rows(&self) -> (u64, u64) {
        let all = self.relations.values();
        all.fold((0, 0), |(rows, of_rows), one| {
            (rows + one.rows, of_rows + one.of_rows.max(one.rows))
        })
    }

    /// Whether everything is taken.
    pub(crate) fn is_done(&self) -> bool {
        self.relations.is_empty()
    }

    /// What the query takes of its relations in this step: the next part of each, as of the last step, and of the changes of
    /// this step those of rows that it has taken. `relations` are as of the end of the last step.
    ///
    /// # Errors
    /// Rows that cannot be read.
    pub(crate) fn take(
        &mut self,
        upstream: &HashMap<ObjectId, UpstreamChange>,
        relations: &Relations,
    ) -> Result<HashMap<ObjectId, UpstreamChange>, EngineError> {
        let mut taken = HashMap::with_capacity(upstream.len());
        for (id, change) in upstream {
            let (Some(progress), Some(view)) = (self.relations.get_mut(id), relations.get(id)) else {
                taken.insert(*id, change.clone());
                continue;
            };
            let reader = view.rows.lock().reader();
            let mut deltas = take_part(progress, &reader, self.rows_next)?;
            for delta in &change.deltas {
                deltas.extend(before(&progress.cursor, &reader, delta)?);
            }
            // Time passes when all rows are there: none is late because a part of the content came after another.
            let is_whole = progress.cursor == Cursor::End && !view.is_filling.load(Ordering::SeqCst);
            let watermark = change.watermark.filter(|_| is_whole);
            if is_whole {
                self.relations.remove(id);
            }
            taken.insert(*id, UpstreamChange { deltas, watermark });
        }
        Ok(taken)
    }
}

/// The next part of the content.
fn take_part(progress: &mut Progress, reader: &ViewReader, rows: usize) -> Result<Vec<Delta>, EngineError> {
    if progress.cursor == Cursor::End {
        return Ok(Vec::new());
    }
    let part = reader.part(&progress.cursor, rows)?;
    progress.rows += part
        .deltas
        .iter()
        .map(|delta| delta.num_rows() as u64)
        .sum::<u64>();
    progress.of_rows = reader.rows();
    progress.cursor = part.next;
    Ok(part.deltas)
}

/// Of the change of a step what concerns rows before the cursor.
fn before(cursor: &Cursor, reader: &ViewReader, delta: &Delta) -> Result<Option<Delta>, EngineError> {
    let key = match cursor {
        Cursor::End => return Ok(Some(delta.clone())),
        // Rows of a log come behind those that are there.
        Cursor::Key(_) if reader.is_log() => return Ok(None),
        Cursor::Start => return Ok(None),
        Cursor::Key(key) => key,
    };
    let keys = reader.encoded_keys(&delta.batch)?;
    let rows: Vec<u64> = (0u64..)
        .zip(&keys)
        .filter(|(_, own)| *own < key)
        .map(|(row, _)| row)
        .collect();
    if rows.is_empty() {
        return Ok(None);
    }
    let weights = delta
        .weights
        .as_ref()
        .map(|weights| rows.iter().map(|row| weights[*row as usize]).collect());
    Ok(Some(Delta {
        batch: take_record_batch(&delta.batch, &UInt64Array::from(rows))?,
        weights: weights.map(|weights: Vec<i64>| ScalarBuffer::from(weights)),
    }))
}
