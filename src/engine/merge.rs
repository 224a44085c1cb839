//! Changes of one table that come from several places in one step, merged into the one change that the table takes.
//!
//! ```text
//! statement   rows as they were read: each −1 row is there                         ┐
//! connector   a +1 row replaces the row of its key, a −1 row takes it away         ├─▶ key by key, in this order ─▶ −1, +1
//! sinks       the same, but a −1 row takes away only the row that it is            ┘
//! ```
//!
//! What a row does to the row of its key says the ON CONFLICT clause of the table. A table without key takes rows as they come.

use std::collections::HashMap;

use arrow::array::{Array, ArrayRef, DynComparator, make_comparator};
use arrow::compute::SortOptions;
use arrow::record_batch::{RecordBatch, RecordBatchOptions};
use highwater_sql::statement::OnConflict;

use super::delta::Delta;
use super::error::EngineError;
use super::operators::state::values::plain_floats;
use super::table::{ConflictRule, Conflicts, Place, STORED, Slot, gone, replaced};
use super::view::ViewReader;

/// Where a change comes from, and so what its rows mean.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Origin {
    /// A statement, which has read the rows that it takes away.
    Statement,
    /// The connector of the table: rows are taken away by their keys.
    Connector,
    /// A sink: rows are taken away if they are there.
    Sink,
}

/// A change on its way into a table.
#[derive(Debug, Clone)]
pub(crate) struct Incoming {
    /// Where it comes from.
    pub(crate) origin: Origin,
    /// Rows with the columns of the table; they count one after the other.
    pub(crate) deltas: Vec<Delta>,
}

/// The change of the table that is read by `reader`: at most one −1 and one +1 row per key.
///
/// # Errors
/// Rows that cannot be encoded or read.
pub(crate) fn merge(
    reader: &ViewReader,
    rule: ConflictRule,
    incoming: &[Incoming],
) -> Result<Vec<Delta>, EngineError> {
    let mut given = Vec::new();
    for own in incoming {
        for delta in own.deltas.iter().filter(|delta| delta.num_rows() > 0) {
            check_not_null(reader, delta)?;
            given.push((own.origin, stored_form(delta)?));
        }
    }
    if reader.key().is_none() {
        return given
            .into_iter()
            .map(|(_, delta)| with_schema(reader, delta))
            .collect();
    }
    let mut keys = Vec::new();
    let mut slot_of: HashMap<Vec<u8>, usize> = HashMap::new();
    // The slot of each row.
    let mut places = Vec::with_capacity(given.len());
    for (_, delta) in &given {
        let own = reader.encoded_keys(&delta.batch)?.into_iter().map(|key| {
            *slot_of.entry(key).or_insert_with_key(|key| {
                keys.push(key.clone());
                keys.len() - 1
            })
        });
        places.push(own.collect::<Vec<usize>>());
    }
    let (stored, found) = reader.get_all(&keys)?;
    let width = reader.schema().fields().len();
    let slots = found.into_iter().map(|before| Slot {
        before,
        now: before.map(|row| vec![(STORED, row); width]),
        is_changed: false,
    });
    let mut slots: Vec<Slot> = slots.collect();
    let batches: Vec<&RecordBatch> = std::iter::once(&stored)
        .chain(given.iter().map(|(_, delta)| &delta.batch))
        .collect();
    let mut merging = Merging {
        batches: &batches,
        rule,
        comparators: HashMap::new(),
    };
    for (at, ((origin, delta), places)) in given.iter().zip(&places).enumerate() {
        for (row, slot) in places.iter().enumerate() {
            let weight = delta.weight(row);
            merging.take(*origin, &mut slots[*slot], (at + 1, row), weight)?;
        }
    }
    slots.retain(|slot| slot.is_changed && !is_same(slot));
    let conflicts = merging.conflicts(rule);
    let rows = conflicts.rows(&slots, reader.schema())?;
    Ok(replaced(gone(&stored, &slots)?, rows))
}

/// Whether the stored row is there again as it was.
fn is_same(slot: &Slot) -> bool {
    match (slot.before, &slot.now) {
        (Some(row), Some(now)) => now.iter().all(|place| *place == (STORED, row)),
        (None, None) => true,
        _ => false,
    }
}

struct Merging<'a> {
    batches: &'a [&'a RecordBatch],
    rule: ConflictRule,
    /// By column and two batches.
    comparators: HashMap<(usize, usize, usize), DynComparator>,
}

impl<'a> Merging<'a> {
    fn conflicts(&self, rule: ConflictRule) -> Conflicts<'a> {
        Conflicts {
            batches: self.batches,
            rule,
        }
    }

    fn take(
        &mut self,
        origin: Origin,
        slot: &mut Slot,
        given: Place,
        weight: i64,
    ) -> Result<(), EngineError> {
        if weight > 0 {
            let rule = match origin {
                // What a statement says is settled.
                Origin::Statement => ConflictRule {
                    on_conflict: OnConflict::Update,
                    version_column: None,
                },
                Origin::Connector | Origin::Sink => self.rule,
            };
            slot.is_changed |= self.conflicts(rule).take(&mut slot.now, given)?;
            return Ok(());
        }
        let Some(now) = &slot.now else {
            return Ok(());
        };
        let goes = match origin {
            Origin::Statement | Origin::Connector => true,
            Origin::Sink => self.is_equal(&now.clone(), given)?,
        };
        if goes {
            slot.now = None;
            slot.is_changed = true;
        }
        Ok(())
    }

    /// Whether the row that is there is the given one, as far as the given one decides it.
    fn is_equal(&mut self, now: &[Place], (batch, row): Place) -> Result<bool, EngineError> {
        for (column, (there_in, there)) in now.iter().enumerate() {
            let given = self.batches[batch].column(column);
            let stays = self.rule.on_conflict == OnConflict::UpdateIfNotNull && given.is_null(row);
            if stays {
                continue;
            }
            let key = (column, *there_in, batch);
            let compare = match self.comparators.entry(key) {
                std::collections::hash_map::Entry::Occupied(known) => known.into_mut(),
                std::collections::hash_map::Entry::Vacant(place) => {
                    let there = self.batches[*there_in].column(column);
                    place.insert(make_comparator(there, given, SortOptions::default())?)
                }
            };
            if !compare(*there, row).is_eq() {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// Refuses added rows with NULL in a column that takes none.
fn check_not_null(reader: &ViewReader, delta: &Delta) -> Result<(), EngineError> {
    let fields = reader.schema().fields().iter();
    for (field, values) in fields.zip(delta.batch.columns()) {
        let is_violated = |row: usize| values.is_null(row) && delta.weight(row) > 0;
        if !field.is_nullable() && values.null_count() > 0 && (0..values.len()).any(is_violated) {
            let message = format!(
                "null value in column \"{}\" violates not-null constraint",
                field.name()
            );
            return Err(EngineError::new("23502", message)
                .with_detail("The row came from the connector of the table."));
        }
    }
    Ok(())
}

/// The delta with floats as they are stored.
fn stored_form(delta: &Delta) -> Result<Delta, EngineError> {
    let columns: Vec<ArrayRef> = delta.batch.columns().iter().map(plain_floats).collect();
    let options = RecordBatchOptions::new().with_row_count(Some(delta.num_rows()));
    Ok(Delta {
        batch: RecordBatch::try_new_with_options(delta.batch.schema(), columns, &options)?,
        weights: delta.weights.clone(),
    })
}

/// The delta as one of the table.
fn with_schema(reader: &ViewReader, delta: Delta) -> Result<Delta, EngineError> {
    let options = RecordBatchOptions::new().with_row_count(Some(delta.num_rows()));
    Ok(Delta {
        batch: RecordBatch::try_new_with_options(
            std::sync::Arc::clone(reader.schema()),
            delta.batch.columns().to_vec(),
            &options,
        )?,
        weights: delta.weights,
    })
}
