//! [`ViewChange`]: the change of a step, encoded and grouped, so that applying it is short.

use arrow::array::UInt64Array;
use arrow::compute::take_record_batch;
use arrow::record_batch::RecordBatch;
use hashbrown::HashTable;

use super::format::ViewFormat;
use super::overlay::{Entry, Overlay, PARTS, part_of};
use crate::engine::codec::{KeyEncoder, RowEncoder, put_varint};
use crate::engine::delta::Delta;
use crate::engine::error::EngineError;

/// What [`ViewStore::apply`](super::ViewStore::apply) applies. It holds only for the state that it was prepared on.
#[derive(Debug)]
pub(crate) struct ViewChange {
    pub(super) body: ChangeBody,
    /// Rows added less rows taken away.
    pub(super) rows: i64,
    /// The deltas with equal rows put together, those that go first; `None` where no two were equal.
    pub(crate) netted: Option<Vec<Delta>>,
}

#[derive(Debug)]
pub(super) enum ChangeBody {
    /// Keys to be set and deleted.
    Keys(KeyChanges),
    /// Rows to be appended.
    Append(Vec<RecordBatch>),
}

/// Keys to be set and deleted, grouped by the part of the overlay.
#[derive(Debug, Default)]
pub(super) struct KeyChanges {
    arena: Vec<u8>,
    changes: Vec<KeyChange>,
    /// Where each part begins in `changes`, and their end; filled by [`KeyChanges::group`].
    bounds: Vec<usize>,
}

#[derive(Debug, Clone, Copy, Default)]
struct KeyChange {
    hash: u64,
    key_start: usize,
    value_start: usize,
    key_len: u32,
    /// [`DELETED`], or the length of the value.
    value_len: u32,
}

const DELETED: u32 = u32::MAX;

/// Changes whose places in memory are loaded together: few enough to stay in the nearest cache.
const TOUCHED: usize = 64;

impl KeyChanges {
    /// Bytes that applying may add to one arena of an overlay, at most.
    pub(super) fn bytes(&self) -> usize {
        self.arena.len() + self.changes.len() * 20
    }

    /// Applies all changes.
    pub(super) fn apply(&self, overlay: &mut Overlay) {
        for part in 0..PARTS {
            let changes = &self.changes[self.bounds[part]..self.bounds[part + 1]];
            if changes.is_empty() {
                continue;
            }
            let mut part = overlay.part_mut(part);
            for some in changes.chunks(TOUCHED) {
                part.touch(some.iter().map(|change| change.hash));
                for change in some {
                    part.set(change.hash, self.entry(change));
                }
            }
            part.finish();
        }
    }

    /// Appends a change whose key stands in the arena from `key_start` to `value_start`, and its value from there to the end.
    fn push(&mut self, hash: u64, key_start: usize, value_start: usize) -> Result<(), EngineError> {
        let (key_len, value_len) = (value_start - key_start, self.arena.len() - value_start);
        match (u32::try_from(key_len), u32::try_from(value_len)) {
            (Ok(key_len), Ok(value_len)) if value_len != DELETED => {
                self.changes.push(KeyChange {
                    hash,
                    key_start,
                    value_start,
                    key_len,
                    value_len,
                });
                Ok(())
            }
            _ => Err(EngineError::new("54000", "a row exceeds 4 GiB")),
        }
    }

    fn key(&self, change: &KeyChange) -> &[u8] {
        &self.arena[change.key_start..change.key_start + change.key_len as usize]
    }

    fn entry(&self, change: &KeyChange) -> Entry<'_> {
        let value = (change.value_len != DELETED)
            .then(|| &self.arena[change.value_start..change.value_start + change.value_len as usize]);
        Entry {
            key: self.key(change),
            value,
        }
    }

    /// Groups the changes by part; those of one part keep their order.
    fn group(mut self) -> Self {
        let mut bounds = vec![0; PARTS + 1];
        for change in &self.changes {
            bounds[part_of(change.hash) + 1] += 1;
        }
        for part in 0..PARTS {
            bounds[part + 1] += bounds[part];
        }
        let mut next = bounds.clone();
        let mut grouped = vec![KeyChange::default(); self.changes.len()];
        for change in self.changes {
            let place = &mut next[part_of(change.hash)];
            grouped[*place] = change;
            *place += 1;
        }
        self.changes = grouped;
        self.bounds = bounds;
        self
    }
}

/// The change of a view with a key: rows that are added replace, keys that only lose a row are deleted.
pub(super) fn keyed(
    format: &ViewFormat,
    overlay: &Overlay,
    deltas: &[Delta],
) -> Result<ViewChange, EngineError> {
    let retracts = deltas
        .iter()
        .any(|delta| delta.weights.as_ref().is_some_and(|w| w.iter().any(|w| *w < 0)));
    let mut out = KeyChanges::default();
    let mut rows = 0;
    // Keys that get a row, so that a −1 row of the same key is no deletion.
    let mut set: HashTable<usize> = HashTable::new();
    for delta in deltas {
        let (keys, values) = (
            format.key_columns(&delta.batch),
            format.value_columns(&delta.batch),
        );
        let (keys, values) = (format.keys.encoder(&keys)?, format.rows.encoder(&values)?);
        for row in 0..delta.num_rows() {
            match delta.weight(row) {
                1 => put_row(&mut out, (format, overlay), (&keys, &values), row)?,
                -1 => continue,
                weight => return Err(not_consolidated(&format!("A row has the weight {weight}."))),
            }
            rows += 1;
            if retracts && !remember(&mut set, &out) {
                return Err(not_consolidated("Two rows with one key are added."));
            }
        }
    }
    if retracts {
        for delta in deltas.iter().filter(|delta| delta.weights.is_some()) {
            let keys = format.key_columns(&delta.batch);
            let keys = format.keys.encoder(&keys)?;
            for row in (0..delta.num_rows()).filter(|row| delta.weight(*row) < 0) {
                rows -= 1;
                delete_row(&mut out, (format, overlay), (&keys, row), &set)?;
            }
        }
    }
    Ok(ViewChange {
        body: ChangeBody::Keys(out.group()),
        rows,
        netted: None,
    })
}

fn put_row(
    out: &mut KeyChanges,
    (format, overlay): (&ViewFormat, &Overlay),
    (keys, values): (&KeyEncoder<'_>, &RowEncoder<'_>),
    row: usize,
) -> Result<(), EngineError> {
    let key_start = out.arena.len();
    format.append_key(keys, row, &mut out.arena);
    let hash = overlay.hash(&out.arena[key_start..]);
    let value_start = out.arena.len();
    values.append(row, &mut out.arena);
    out.push(hash, key_start, value_start)
}

fn delete_row(
    out: &mut KeyChanges,
    (format, overlay): (&ViewFormat, &Overlay),
    (keys, row): (&KeyEncoder<'_>, usize),
    set: &HashTable<usize>,
) -> Result<(), EngineError> {
    let key_start = out.arena.len();
    format.append_key(keys, row, &mut out.arena);
    let key = &out.arena[key_start..];
    let hash = overlay.hash(key);
    if set
        .find(hash, |index| out.key(&out.changes[*index]) == key)
        .is_some()
    {
        out.arena.truncate(key_start);
        return Ok(());
    }
    out.push(hash, key_start, out.arena.len())?;
    if let Some(change) = out.changes.last_mut() {
        change.value_len = DELETED;
    }
    Ok(())
}

/// Notes the key of the last change; `false` if it was noted before.
fn remember(set: &mut HashTable<usize>, out: &KeyChanges) -> bool {
    let index = out.changes.len() - 1;
    let change = &out.changes[index];
    if set
        .find(change.hash, |other| {
            out.key(&out.changes[*other]) == out.key(change)
        })
        .is_some()
    {
        return false;
    }
    set.insert_unique(change.hash, index, |other| out.changes[*other].hash);
    true
}

/// The change of a bag: the weights of equal rows are summed and added to what `count` says is there.
pub(super) fn bag(
    format: &ViewFormat,
    overlay: &Overlay,
    deltas: &[Delta],
    mut count: impl FnMut(u64, &[u8]) -> Result<u64, EngineError>,
) -> Result<ViewChange, EngineError> {
    let mut out = KeyChanges::default();
    let mut weights: Vec<i64> = Vec::new();
    // Where each of them stands.
    let mut places: Vec<Place> = Vec::new();
    let (mut rows, mut rows_in) = (0, 0);
    let mut known: HashTable<usize> = HashTable::new();
    for (at, delta) in deltas.iter().enumerate() {
        rows_in += delta.num_rows();
        let keys = format.key_columns(&delta.batch);
        let keys = format.keys.encoder(&keys)?;
        for row in 0..delta.num_rows() {
            let key_start = out.arena.len();
            format.append_key(&keys, row, &mut out.arena);
            let key = &out.arena[key_start..];
            let hash = overlay.hash(key);
            let weight = delta.weight(row);
            rows += weight;
            if let Some(index) = known.find(hash, |index| out.key(&out.changes[*index]) == key) {
                weights[*index] += weight;
                out.arena.truncate(key_start);
                continue;
            }
            let index = out.changes.len();
            out.push(hash, key_start, out.arena.len())?;
            weights.push(weight);
            places.push(Place { delta: at, row });
            known.insert_unique(hash, index, |other| out.changes[*other].hash);
        }
    }
    let netted = (places.len() < rows_in)
        .then(|| netted(deltas, &places, &weights))
        .transpose()?;
    let mut value = Vec::new();
    for (index, weight) in weights.iter().enumerate().filter(|(_, weight)| **weight != 0) {
        let change = out.changes[index];
        let there = count(change.hash, out.key(&change))?;
        let there = there.checked_add_signed(*weight).ok_or_else(|| {
            EngineError::internal("a row is taken away that is not there").with_detail(format!(
                "The row is there {there} times and its weight is {weight}."
            ))
        })?;
        let value_start = out.arena.len();
        value.clear();
        put_varint(there, &mut value);
        out.arena.extend_from_slice(&value);
        let value_len = if there == 0 { DELETED } else { value.len() as u32 };
        out.changes[index] = KeyChange {
            value_start,
            value_len,
            ..change
        };
    }
    let mut weights = weights.iter();
    out.changes
        .retain(|_| weights.next().is_some_and(|weight| *weight != 0));
    Ok(ViewChange {
        body: ChangeBody::Keys(out.group()),
        rows,
        netted,
    })
}

/// A row of some deltas.
struct Place {
    delta: usize,
    row: usize,
}

/// The rows at `places` with `weights`, but for those whose weight is zero: first the rows that go.
fn netted(deltas: &[Delta], places: &[Place], weights: &[i64]) -> Result<Vec<Delta>, EngineError> {
    let mut netted = Vec::new();
    for goes in [true, false] {
        for (at, delta) in deltas.iter().enumerate() {
            let own = places.iter().zip(weights);
            let own =
                own.filter(|(place, weight)| place.delta == at && **weight != 0 && (**weight < 0) == goes);
            let (rows, weights): (Vec<u64>, Vec<i64>) =
                own.map(|(place, weight)| (place.row as u64, *weight)).unzip();
            if !rows.is_empty() {
                let batch = take_record_batch(&delta.batch, &UInt64Array::from(rows))?;
                netted.push(Delta::weighted(batch, weights.into()));
            }
        }
    }
    Ok(netted)
}

/// The change of a log: rows that are added, each as often as its weight says.
pub(super) fn append(format: &ViewFormat, deltas: &[Delta]) -> Result<ViewChange, EngineError> {
    let mut batches = Vec::with_capacity(deltas.len());
    let mut rows = 0;
    for delta in deltas.iter().filter(|delta| delta.num_rows() > 0) {
        let batch = format.conform(&delta.batch)?;
        let batch = match &delta.weights {
            Some(weights) if weights.iter().any(|weight| *weight < 0) => {
                return Err(EngineError::internal(
                    "a row is taken away from a relation that only grows",
                ));
            }
            Some(weights) if weights.iter().any(|weight| *weight != 1) => repeat(&batch, weights)?,
            _ => batch,
        };
        rows += batch.num_rows() as i64;
        batches.push(batch);
    }
    Ok(ViewChange {
        body: ChangeBody::Append(batches),
        rows,
        netted: None,
    })
}

/// Each row as often as its weight says.
fn repeat(batch: &RecordBatch, weights: &[i64]) -> Result<RecordBatch, EngineError> {
    let times = weights
        .iter()
        .enumerate()
        .map(|(row, weight)| std::iter::repeat_n(row as u64, *weight as usize));
    Ok(take_record_batch(
        batch,
        &UInt64Array::from_iter_values(times.flatten()),
    )?)
}

fn not_consolidated(detail: &str) -> EngineError {
    EngineError::internal("the change of a view with a key is not consolidated").with_detail(detail)
}
