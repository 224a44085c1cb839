//! The rows of a statement against the rows of a table: conflicts of keys, and the change that follows from them.
//!
//! The statement holds the table's lock from here until its change is visible, so the rows that are read are those that the
//! change meets.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray as _, UInt64Array};
use arrow::buffer::ScalarBuffer;
use arrow::compute::{concat_batches, filter_record_batch, interleave, is_null, not, take_record_batch};
use arrow::datatypes::{DataType, Decimal128Type, SchemaRef};
use arrow::record_batch::{RecordBatch, RecordBatchOptions};
use highwater_sql::statement::OnConflict;

use super::delta::Delta;
use super::error::EngineError;
use super::operators::state::values::plain_floats;
use super::view::ViewReader;
use crate::engine::exact::exact_cast;

/// What becomes of rows whose key is there already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ConflictRule {
    /// What is done.
    pub(crate) on_conflict: OnConflict,
    /// The column whose value must not be smaller than that of the row it replaces.
    pub(crate) version_column: Option<usize>,
}

/// What a statement changes.
pub(crate) struct Resolved {
    /// Rows added and taken away: for a table with a key at most one of each per key.
    pub(crate) deltas: Vec<Delta>,
    /// The rows as they are afterwards (for DELETE: as they were): what RETURNING sees.
    pub(crate) rows: RecordBatch,
    /// How many rows the statement has inserted, updated or deleted.
    pub(crate) count: usize,
}

/// A row of the candidates: 0 and a row that is stored, or another batch and a row that is given in it.
pub(super) type Place = (usize, usize);

pub(super) const STORED: usize = 0;
const GIVEN: usize = 1;

/// Inserts `given`, whose columns are those of the table.
///
/// # Errors
/// Rows that cannot be encoded or read.
pub(crate) fn insert(
    reader: &ViewReader,
    given: RecordBatch,
    rule: ConflictRule,
) -> Result<Resolved, EngineError> {
    if reader.key().is_none() {
        return Ok(Resolved {
            count: given.num_rows(),
            deltas: vec![Delta::inserts(given.clone())],
            rows: given,
        });
    }
    let keys = reader.encoded_keys(&given)?;
    let (stored, found) = reader.get_all(&keys)?;
    let conflicts = Conflicts {
        batches: &[&stored, &given],
        rule,
    };
    let mut count = 0;
    let mut by_key: HashMap<&[u8], usize> = HashMap::with_capacity(keys.len());
    let mut slots: Vec<Slot> = Vec::with_capacity(keys.len());
    for (row, key) in keys.iter().enumerate() {
        let at = *by_key.entry(key).or_insert_with(|| {
            let place = found[row].map(|stored| (STORED, stored));
            slots.push(Slot {
                before: found[row],
                now: place.map(|place| vec![place; given.num_columns()]),
                is_changed: false,
            });
            slots.len() - 1
        });
        let slot = &mut slots[at];
        if conflicts.take(&mut slot.now, (GIVEN, row))? {
            slot.is_changed = true;
            count += 1;
        }
    }
    slots.retain(|slot| slot.is_changed);
    let rows = conflicts.rows(&slots, reader.schema())?;
    Ok(Resolved {
        deltas: replaced(gone(&stored, &slots)?, rows.clone()),
        rows,
        count,
    })
}

/// The stored rows that the slots replace.
pub(super) fn gone(stored: &RecordBatch, slots: &[Slot]) -> Result<RecordBatch, EngineError> {
    let before = slots.iter().filter_map(|slot| slot.before);
    let before: Vec<u64> = before.map(|row| row as u64).collect();
    Ok(take_record_batch(stored, &UInt64Array::from(before))?)
}

/// What is known of one key while the rows of a statement are taken, in their order.
pub(super) struct Slot {
    /// The stored row of this key.
    pub(super) before: Option<usize>,
    /// The row as it is now: where each of its columns comes from.
    pub(super) now: Option<Vec<Place>>,
    pub(super) is_changed: bool,
}

/// Rows that meet in a change, the stored ones first.
pub(super) struct Conflicts<'a> {
    pub(super) batches: &'a [&'a RecordBatch],
    pub(super) rule: ConflictRule,
}

impl Conflicts<'_> {
    /// Takes a given row for its key; `false` if it leaves the row that is there as it is.
    pub(super) fn take(&self, now: &mut Option<Vec<Place>>, given: Place) -> Result<bool, EngineError> {
        let (batch, row) = given;
        let Some(places) = now else {
            *now = Some(vec![given; self.batches[batch].num_columns()]);
            return Ok(true);
        };
        if self.rule.on_conflict == OnConflict::Nothing || self.is_older(places, given)? {
            return Ok(false);
        }
        for (column, place) in places.iter_mut().enumerate() {
            let keeps = self.rule.on_conflict == OnConflict::UpdateIfNotNull
                && self.batches[batch].column(column).is_null(row);
            if !keeps {
                *place = given;
            }
        }
        Ok(true)
    }

    /// Whether the given row has a smaller version than the row that is there; NULL is smaller than anything.
    fn is_older(&self, places: &[Place], (given, row): Place) -> Result<bool, EngineError> {
        let Some(column) = self.rule.version_column else {
            return Ok(false);
        };
        let (batch, there) = places[column];
        let (new, old) = (
            self.batches[given].column(column),
            self.batches[batch].column(column),
        );
        Ok(match (new.is_null(row), old.is_null(there)) {
            (_, true) => false,
            (true, false) => true,
            (false, false) => {
                let options = arrow::compute::SortOptions::default();
                let compare = arrow::array::make_comparator(new, old, options)?;
                compare(row, there).is_lt()
            }
        })
    }

    /// The rows of the slots as they are now.
    pub(super) fn rows(&self, slots: &[Slot], schema: &SchemaRef) -> Result<RecordBatch, EngineError> {
        let columns = (0..schema.fields().len()).map(|column| {
            let places: Vec<Place> = slots
                .iter()
                .filter_map(|slot| slot.now.as_ref().map(|places| places[column]))
                .collect();
            let batches: Vec<&dyn Array> = self
                .batches
                .iter()
                .map(|batch| batch.column(column).as_ref())
                .collect();
            Ok(interleave(&batches, &places)?)
        });
        let columns = columns.collect::<Result<Vec<ArrayRef>, EngineError>>()?;
        let rows = slots.iter().filter(|slot| slot.now.is_some()).count();
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        Ok(RecordBatch::try_new_with_options(
            Arc::clone(schema),
            columns,
            &options,
        )?)
    }
}

/// Replaces the rows `old` by the rows `new`, row by row; `table` is for messages.
///
/// # Errors
/// `23505` if a new row has the key of a row that stays, or of another new row.
pub(crate) fn update(
    reader: &ViewReader,
    table: &str,
    old: RecordBatch,
    new: RecordBatch,
) -> Result<Resolved, EngineError> {
    if let Some(key) = reader.key() {
        let (gone, come) = (reader.encoded_keys(&old)?, reader.encoded_keys(&new)?);
        let gone: HashSet<&[u8]> = gone.iter().map(Vec::as_slice).collect();
        let (_, found) = reader.get_all(&come)?;
        let mut added = HashSet::with_capacity(come.len());
        let violates = come.iter().zip(&found).position(|(key, stored)| {
            let stays = stored.is_some() && !gone.contains(key.as_slice());
            !added.insert(key.as_slice()) || stays
        });
        if let Some(row) = violates {
            return Err(duplicate_key(table, key, &new, row));
        }
    }
    Ok(Resolved {
        count: new.num_rows(),
        deltas: replaced(old, new.clone()),
        rows: new,
    })
}

/// Inserts or changes rows: the columns of `batches` are those of the table as they are, NULL in a row that is new, and then as
/// they become.
///
/// # Errors
/// `21000` if two rows have one key.
pub(crate) fn upsert(reader: &ViewReader, batches: &[RecordBatch]) -> Result<Resolved, EngineError> {
    let width = reader.schema().fields().len();
    let key = reader.key().and_then(|key| key.first().copied());
    let key = key.ok_or_else(|| EngineError::internal("a table without a key has no conflicts"))?;
    let (mut there, mut added) = (Vec::new(), Vec::new());
    for batch in batches {
        let is_new = is_null(batch.column(key))?;
        there.push(filter_record_batch(batch, &not(&is_new)?)?);
        added.push(filter_record_batch(batch, &is_new)?);
    }
    let old = conformed(reader, &there, 0..width)?;
    let new = conformed(reader, &added, width..2 * width)?;
    let mut keys = reader.encoded_keys(&old)?;
    keys.append(&mut reader.encoded_keys(&new)?);
    let mut met = HashSet::with_capacity(keys.len());
    if !keys.iter().all(|key| met.insert(key.as_slice())) {
        let message = "ON CONFLICT DO UPDATE command cannot affect row a second time";
        return Err(EngineError::new("21000", message).with_hint(
            "Ensure that no rows proposed for insertion within the same command have duplicate constrained values.",
        ));
    }
    let changed = conformed(reader, &there, width..2 * width)?;
    let rows = concat_batches(reader.schema(), [&changed, &new])?;
    Ok(Resolved {
        count: rows.num_rows(),
        deltas: replaced(old, rows.clone()),
        rows,
    })
}

fn duplicate_key(table: &str, key: &[usize], rows: &RecordBatch, row: usize) -> EngineError {
    let schema = rows.schema();
    let names: Vec<&str> = key
        .iter()
        .map(|column| schema.field(*column).name().as_str())
        .collect();
    let values: Vec<String> = key
        .iter()
        .map(|column| {
            arrow::util::display::array_value_to_string(rows.column(*column), row).unwrap_or_default()
        })
        .collect();
    EngineError::new(
        "23505",
        format!("duplicate key value violates unique constraint \"{table}_pkey\""),
    )
    .with_detail(format!(
        "Key ({})=({}) already exists.",
        names.join(", "),
        values.join(", ")
    ))
}

/// Takes rows away.
pub(crate) fn delete(old: RecordBatch) -> Resolved {
    Resolved {
        count: old.num_rows(),
        deltas: weighted(old.clone(), -1).into_iter().collect(),
        rows: old,
    }
}

/// The change that takes `old` away and adds `new`.
pub(super) fn replaced(old: RecordBatch, new: RecordBatch) -> Vec<Delta> {
    let come = (new.num_rows() > 0).then(|| Delta::inserts(new));
    weighted(old, -1).into_iter().chain(come).collect()
}

fn weighted(rows: RecordBatch, weight: i64) -> Option<Delta> {
    let weights = vec![weight; rows.num_rows()];
    (rows.num_rows() > 0).then(|| Delta::weighted(rows, ScalarBuffer::from(weights)))
}

/// Refuses numbers with more digits than their type has: sums of them come without a check.
fn check_digits(column: &ArrayRef) -> Result<(), EngineError> {
    match column.data_type() {
        DataType::Decimal128(digits, scale) => column
            .as_primitive::<Decimal128Type>()
            .validate_decimal_precision(*digits)
            .map_err(|_| {
                let error = EngineError::new("22003", "numeric field overflow");
                error.with_detail(format!(
                    "A number has more than {} digits before the point.",
                    i16::from(*digits) - i16::from(*scale)
                ))
            }),
        _ => Ok(()),
    }
}

/// The rows of a query as one batch with the columns of the table, floats as they are stored.
///
/// # Errors
/// Columns of other types (internal).
pub(crate) fn conformed(
    reader: &ViewReader,
    batches: &[RecordBatch],
    columns: std::ops::Range<usize>,
) -> Result<RecordBatch, EngineError> {
    let schema = reader.schema();
    let fields: Vec<&DataType> = schema.fields().iter().map(|field| field.data_type()).collect();
    let mut parts = Vec::with_capacity(batches.len());
    for batch in batches {
        let of_table = batch.columns().get(columns.clone()).unwrap_or_default();
        if of_table.len() != fields.len() {
            return Err(EngineError::internal(
                "the rows of a statement have other columns than its table",
            ));
        }
        let cast = of_table.iter().zip(&fields).map(|(column, wanted)| {
            let column = exact_cast(column, wanted)?;
            check_digits(&column)?;
            Ok(plain_floats(&column))
        });
        let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
        let cast = cast.collect::<Result<Vec<_>, EngineError>>()?;
        parts.push(RecordBatch::try_new_with_options(
            Arc::clone(schema),
            cast,
            &options,
        )?);
    }
    Ok(concat_batches(schema, &parts)?)
}
