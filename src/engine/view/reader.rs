//! [`ViewReader`]: a view as it was at the end of a step.

use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use arrow::record_batch::RecordBatch;
use highwater_storage::{Family, Snapshot};
use parking_lot::Mutex;

use super::format::{ViewFormat, ViewLayout};
use super::range::KeyRange;
use super::scan::{DeltaScan, ViewScan, Way};
use super::{Dirty, HeldParts};
use crate::engine::error::EngineError;

/// Reads the rows of a view at one instant, however long it takes; clones read the same rows.
#[derive(Clone)]
pub(crate) struct ViewReader {
    pub(super) format: Arc<ViewFormat>,
    /// Changed rows, newest first; none of them empty.
    pub(super) layers: Vec<Dirty>,
    /// What lies below. Locked for as long as a batch is read.
    pub(super) snapshot: Arc<Mutex<Box<dyn Snapshot>>>,
    rows: u64,
}

impl ViewReader {
    pub(super) fn new(
        format: Arc<ViewFormat>,
        layers: Vec<Dirty>,
        snapshot: Box<dyn Snapshot>,
        rows: u64,
    ) -> Self {
        Self {
            format,
            layers,
            snapshot: Arc::new(Mutex::new(snapshot)),
            rows,
        }
    }

    /// The columns of the rows.
    pub(crate) fn schema(&self) -> &SchemaRef {
        &self.format.schema
    }

    /// Adds the changed rows that it keeps in memory.
    pub(super) fn hold(&self, held: &mut HeldParts) {
        self.layers.iter().for_each(|layer| layer.hold(held));
    }

    /// How many rows there are.
    pub(crate) fn rows(&self) -> u64 {
        self.rows
    }

    /// The columns that identify a row, if some do.
    pub(crate) fn key(&self) -> Option<&[usize]> {
        match &self.format.layout {
            ViewLayout::Keyed { columns } => Some(columns),
            ViewLayout::Log | ViewLayout::Bag | ViewLayout::Index { .. } => None,
        }
    }

    /// The keys of rows that have the columns of the view, as bytes.
    ///
    /// # Errors
    /// Columns that do not fit (internal).
    pub(crate) fn encoded_keys(&self, rows: &RecordBatch) -> Result<Vec<Vec<u8>>, EngineError> {
        let columns = self.format.key_columns(rows);
        let encoder = self.format.keys.encoder(&columns)?;
        let keys = (0..rows.num_rows()).map(|row| {
            let mut key = Vec::new();
            self.format.append_key(&encoder, row, &mut key);
            key
        });
        Ok(keys.collect())
    }

    /// The rows that are there under these encoded keys, and for each key which of them is its row.
    ///
    /// # Errors
    /// A view without key (internal), a store that cannot be read.
    pub(crate) fn get_all(&self, keys: &[Vec<u8>]) -> Result<(RecordBatch, Vec<Option<usize>>), EngineError> {
        if self.key().is_none() {
            return Err(EngineError::internal(
                "rows of a view without key are looked up by key",
            ));
        }
        let mut decoder = self.format.decoder(None, keys.len())?;
        let mut found = Vec::with_capacity(keys.len());
        for key in keys {
            let value = self.value(key)?;
            found.push(value.is_some().then(|| decoder.len()));
            if let Some(value) = value {
                decoder.append(key, &value)?;
            }
        }
        Ok((decoder.finish()?, found))
    }

    /// All rows as batches of about `batch_rows` rows, of which they have the columns `projection` (all for `None`). Rows
    /// come in the order of their key; those of a log in the order in which they came.
    ///
    /// # Errors
    /// A column that is not there (internal).
    #[cfg(test)]
    pub(crate) fn scan(
        &self,
        projection: Option<&[usize]>,
        batch_rows: usize,
    ) -> Result<ViewScan, EngineError> {
        self.scan_ranges(vec![KeyRange::all()], projection, (batch_rows, batch_rows))
    }

    /// The rows in `ranges`, which ascend and do not overlap, as [`ViewReader::scan`] gives them. The first batch has about as many
    /// rows as the first of `rows` says, the others more and more, up to the second.
    ///
    /// # Errors
    /// A column that is not there (internal).
    pub(crate) fn scan_ranges(
        &self,
        ranges: Vec<KeyRange>,
        projection: Option<&[usize]>,
        rows: (usize, usize),
    ) -> Result<ViewScan, EngineError> {
        ViewScan::new(self, ranges, projection, rows, Way::On)
    }

    /// The same rows, those of the greatest keys first. Not of a log.
    ///
    /// # Errors
    /// A column that is not there (internal).
    pub(crate) fn scan_ranges_back(
        &self,
        ranges: Vec<KeyRange>,
        projection: Option<&[usize]>,
        rows: (usize, usize),
    ) -> Result<ViewScan, EngineError> {
        ViewScan::new(self, ranges, projection, rows, Way::Back)
    }

    /// The rows that are there under these encoded keys, with the columns `projection` (all for `None`).
    ///
    /// # Errors
    /// A store that cannot be read, a column that is not there (internal).
    pub(crate) fn get_keys(
        &self,
        keys: &[Vec<u8>],
        projection: Option<&[usize]>,
    ) -> Result<RecordBatch, EngineError> {
        let mut decoder = self.format.decoder(projection, keys.len())?;
        for key in keys {
            if let Some(value) = self.value(key)? {
                decoder.append(key, &value)?;
            }
        }
        decoder.finish()
    }

    /// All rows as deltas that add them, about `batch_rows` rows each.
    pub(crate) fn contents_as_deltas(&self, batch_rows: usize) -> DeltaScan {
        DeltaScan::starting_at(self, &[], batch_rows)
    }

    fn value(&self, key: &[u8]) -> Result<Option<Vec<u8>>, EngineError> {
        for layer in &self.layers {
            if let Dirty::Keys(overlay) = layer
                && let Some(entry) = overlay.get(overlay.hash(key), key)
            {
                return Ok(entry.value.map(<[u8]>::to_vec));
            }
        }
        let key = [&self.format.row_prefix()[..], key].concat();
        Ok(self.snapshot.lock().get(Family::Views, &key)?)
    }
}

impl std::fmt::Debug for ViewReader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ViewReader")
            .field("object", &self.format.object)
            .field("rows", &self.rows())
            .finish_non_exhaustive()
    }
}
