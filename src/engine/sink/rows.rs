//! A step's delta as a sink takes it: inserts, or the newest row per key and deletes.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch, UInt32Array};
use arrow::compute::take_record_batch;
use arrow::datatypes::SchemaRef;
use highwater_connectors::format::Change;

use crate::engine::codec::KeyCodec;
use crate::engine::delta::Delta;
use crate::engine::error::EngineError;

/// Rows to deliver, with what happened to each.
pub(crate) struct SinkRows {
    /// The rows.
    pub(crate) rows: RecordBatch,
    /// One change per row.
    pub(crate) changes: Vec<Change>,
}

/// How a sink takes changes.
pub(crate) enum Shape {
    /// Inserts only.
    Append,
    /// The newest row per key.
    Upsert {
        /// The key columns.
        key: Vec<usize>,
        /// Their encoding, to compare keys.
        codec: KeyCodec,
    },
}

impl Shape {
    /// An upsert by these columns of `schema`.
    pub(crate) fn upsert(schema: &SchemaRef, key: Vec<usize>) -> Result<Self, EngineError> {
        let types: Vec<_> = key
            .iter()
            .map(|column| schema.field(*column).data_type().clone())
            .collect();
        Ok(Self::Upsert {
            key,
            codec: KeyCodec::new(&types)?,
        })
    }

    /// What a step's deltas mean for the sink; `None` if nothing.
    ///
    /// # Errors
    /// A deletion for a sink that cannot take one.
    pub(crate) fn rows(&self, schema: &SchemaRef, deltas: &[Delta]) -> Result<Option<SinkRows>, EngineError> {
        let Some(delta) = Delta::concat(schema, deltas)? else {
            return Ok(None);
        };
        match self {
            Self::Append => inserts(&delta).map(Some),
            Self::Upsert { key, codec } => newest(&delta, key, codec),
        }
    }
}

fn inserts(delta: &Delta) -> Result<SinkRows, EngineError> {
    let Some(weights) = &delta.weights else {
        let changes = vec![Change::Put; delta.num_rows()];
        return Ok(SinkRows {
            rows: delta.batch.clone(),
            changes,
        });
    };
    let mut indices = Vec::with_capacity(weights.len());
    for (row, weight) in weights.iter().enumerate() {
        let copies = usize::try_from(*weight)
            .map_err(|_| EngineError::internal("an append-only sink was given a row to take back"))?;
        indices.extend(std::iter::repeat_n(row as u32, copies));
    }
    let rows = take_record_batch(&delta.batch, &UInt32Array::from(indices))?;
    let changes = vec![Change::Put; rows.num_rows()];
    Ok(SinkRows { rows, changes })
}

/// One change per key: a row that is there after the step, or a delete where none is.
fn newest(delta: &Delta, key: &[usize], codec: &KeyCodec) -> Result<Option<SinkRows>, EngineError> {
    let columns: Vec<_> = key
        .iter()
        .map(|column| Arc::clone(delta.batch.column(*column)))
        .collect();
    let (keys, ends) = encoded(codec, &columns, delta.num_rows())?;
    let key_of = |row: usize| &keys[row.checked_sub(1).map_or(0, |before| ends[before])..ends[row]];
    let mut last: HashMap<&[u8], usize> = HashMap::with_capacity(delta.num_rows());
    let mut order: Vec<(u32, Change)> = Vec::new();
    let puts_last = [false, true]
        .into_iter()
        .flat_map(|puts| (0..delta.num_rows()).map(move |row| (row, puts)));
    for (row, puts) in puts_last.filter(|(row, puts)| (delta.weight(*row) > 0) == *puts) {
        let change = if puts { Change::Put } else { Change::Delete };
        match last.entry(key_of(row)) {
            std::collections::hash_map::Entry::Occupied(place) => order[*place.get()] = (row as u32, change),
            std::collections::hash_map::Entry::Vacant(place) => {
                place.insert(order.len());
                order.push((row as u32, change));
            }
        }
    }
    let indices = UInt32Array::from_iter_values(order.iter().map(|(row, _)| *row));
    let changes = order.iter().map(|(_, change)| *change).collect();
    Ok(Some(SinkRows {
        rows: take_record_batch(&delta.batch, &indices)?,
        changes,
    }))
}

/// The keys of all rows, one behind the other, and where each ends.
fn encoded(
    codec: &KeyCodec,
    columns: &[ArrayRef],
    rows: usize,
) -> Result<(Vec<u8>, Vec<usize>), EngineError> {
    let encoder = codec.encoder(columns)?;
    let mut keys = Vec::with_capacity(rows * 16);
    let ends = (0..rows).map(|row| {
        encoder.append(row, &mut keys);
        keys.len()
    });
    let ends = ends.collect();
    Ok((keys, ends))
}
