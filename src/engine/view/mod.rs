//! The rows of materialized views: what changed since the last checkpoint in memory, over the rows in the store.
//!
//! ```text
//!                      ┌─ dirty:  keys changed since the last freeze ◀─ apply (end of a step)
//! reader = Arcs of     ├─ frozen: keys on their way into a checkpoint ─▶ FrozenView::write (checkpoint thread)
//!                      └─ a snapshot of the store ◀─ commit, then thaw
//! ```
//!
//! A reader sees the end of one step for as long as it likes and holds up none (INV-9): it shares the memory of the dirty
//! rows, which is copied part by part when a later step writes to it. Rows of a checkpoint that failed stay frozen and go
//! into the next one.

mod base;
mod change;
mod format;
mod header;
mod log;
mod overlay;
mod part;
mod range;
mod reader;
mod scan;
mod start;

#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::sync::Arc;

use arrow::array::ArrayRef;
use arrow::datatypes::SchemaRef;
use arrow::record_batch::RecordBatch;
use foldhash::fast::RandomState;
use highwater_storage::{CheckpointWriter, Family, ObjectId, Store};

use self::base::ViewBase;
use self::change::ChangeBody;
pub(crate) use self::change::ViewChange;
pub(crate) use self::format::ViewLayout;
use self::format::{Shape, ViewFormat};
use self::header::Counters;
use self::log::Log;
use self::overlay::{Overlay, SortedEntries};
pub(crate) use self::part::Cursor;
pub(crate) use self::range::{Bound, KeyRange};
pub(crate) use self::reader::ViewReader;
pub(crate) use self::scan::Way;
pub(crate) use self::start::{OpenStarts, StartRows};
use crate::engine::codec::take_varint;
use crate::engine::error::EngineError;

/// Parts of memory that are held, by their address, with their bytes. What is held twice is one part.
#[derive(Debug, Default)]
pub(crate) struct HeldParts(HashMap<usize, usize>);

impl HeldParts {
    fn add<T>(&mut self, part: &Arc<T>, bytes: usize) {
        self.0.insert(Arc::as_ptr(part).addr(), bytes);
    }

    /// Bytes of all of them.
    pub(crate) fn bytes(&self) -> usize {
        self.0.values().sum()
    }
}

/// The rows of a view.
pub(crate) struct ViewStore {
    store: Arc<dyn Store>,
    format: Arc<ViewFormat>,
    dirty: Dirty,
    frozen: Option<Dirty>,
    counters: Counters,
}

/// Changed rows in memory.
#[derive(Debug, Clone)]
enum Dirty {
    /// Of a view with a key, or a bag.
    Keys(Overlay),
    /// Of a log.
    Log(Log),
}

/// The rows of a view that are in the store.
pub(crate) struct StoredRows {
    store: Arc<dyn Store>,
    format: Arc<ViewFormat>,
}

impl StoredRows {
    /// The key of the row that has these values in all columns of the key: arrays of one value each.
    ///
    /// # Errors
    /// Columns that do not fit (internal).
    pub(crate) fn whole_key(&self, values: &[ArrayRef]) -> Result<Vec<u8>, EngineError> {
        let mut key = Vec::new();
        self.format.append_prefix(values, &mut key)?;
        Ok(key)
    }

    /// The value that the store has of a key.
    ///
    /// # Errors
    /// A store that cannot be read.
    pub(crate) fn value(&self, key: &[u8]) -> Result<Option<Vec<u8>>, EngineError> {
        let key = [&self.format.row_prefix()[..], key].concat();
        Ok(self.store.get(Family::Views, &key)?)
    }

    /// The columns `projection` of the row of this key and value; of no value no row.
    ///
    /// # Errors
    /// Bytes that are no such row (`XX001`).
    pub(crate) fn row(
        &self,
        key: &[u8],
        value: Option<&[u8]>,
        projection: &[usize],
    ) -> Result<RecordBatch, EngineError> {
        let mut decoder = self.format.decoder(Some(projection), 1)?;
        if let Some(value) = value {
            decoder.append(key, value)?;
        }
        decoder.finish()
    }
}

/// Rows as of a freeze, on their way into a checkpoint.
#[derive(Debug)]
pub(crate) struct FrozenView {
    format: Arc<ViewFormat>,
    dirty: Dirty,
    counters: Counters,
}

impl ViewStore {
    /// Opens the rows of the view `object`, which the store may know already.
    ///
    /// # Errors
    /// Column types that cannot be stored (`0A000`), stored rows that do not fit schema and layout (`XX001`).
    pub(crate) fn open(
        store: Arc<dyn Store>,
        object: ObjectId,
        schema: SchemaRef,
        layout: ViewLayout,
    ) -> Result<Self, EngineError> {
        let format = ViewFormat::new(object, schema, layout)?;
        let counters = header::read(&format, &*store.snapshot())?;
        let dirty = match format.layout.shape() {
            Shape::Keyed | Shape::Bag => Dirty::Keys(Overlay::new(RandomState::default())),
            Shape::Log => Dirty::Log(Log::default()),
        };
        Ok(Self {
            store,
            format: Arc::new(format),
            dirty,
            frozen: None,
            counters,
        })
    }

    /// The columns of the rows.
    pub(crate) fn schema(&self) -> SchemaRef {
        Arc::clone(&self.format.schema)
    }

    /// How many rows there are.
    pub(crate) fn rows(&self) -> u64 {
        self.counters.rows
    }

    /// Bytes of memory that changed rows take.
    pub(crate) fn bytes(&self) -> usize {
        self.dirty.bytes() + self.frozen.as_ref().map_or(0, Dirty::bytes)
    }

    /// What the change of a step is prepared on. To be let go of before that change is applied: a part that something still
    /// holds is copied when it is written to.
    pub(crate) fn base(&self) -> ViewBase {
        let layers = std::iter::once(&self.dirty).chain(&self.frozen);
        let overlays = layers.filter_map(|layer| match layer {
            Dirty::Keys(overlay) => Some(overlay.clone()),
            Dirty::Log(_) => None,
        });
        ViewBase {
            store: Arc::clone(&self.store),
            format: Arc::clone(&self.format),
            overlays: overlays.collect(),
            rows: self.counters.rows,
        }
    }

    /// Applies what was prepared last. Short: no encoding, no I/O.
    pub(crate) fn apply(&mut self, change: ViewChange) {
        let rows = self.counters.rows.checked_add_signed(change.rows);
        self.counters.rows = rows.expect("prepare has refused a change that takes away too many rows");
        match (change.body, &mut self.dirty) {
            (ChangeBody::Keys(changes), Dirty::Keys(overlay)) => changes.apply(overlay),
            (ChangeBody::Append(batches), Dirty::Log(log)) => {
                for batch in batches {
                    self.counters.next_sequence = log.append(self.counters.next_sequence, batch);
                }
            }
            (ChangeBody::Keys(_), Dirty::Log(_)) | (ChangeBody::Append(_), Dirty::Keys(_)) => {
                unreachable!("a change is applied to the view that prepared it")
            }
        }
    }

    /// Takes all rows that are not durable for a checkpoint: those changed since the last freeze, and those of a checkpoint
    /// that failed. `None` if there are none. No earlier checkpoint may still be on its way.
    pub(crate) fn freeze(&mut self) -> Option<FrozenView> {
        let fresh = self.dirty.emptied();
        let dirty = std::mem::replace(&mut self.dirty, fresh);
        let frozen = match self.frozen.take() {
            None if dirty.is_empty() => return None,
            None => dirty,
            Some(mut failed) => {
                failed.absorb(dirty);
                failed
            }
        };
        self.frozen = Some(frozen.clone());
        Some(FrozenView {
            format: Arc::clone(&self.format),
            dirty: frozen,
            counters: self.counters,
        })
    }

    /// Forgets the frozen rows: the checkpoint that has them is in the store. Readers made from now on take a snapshot of
    /// the store that has them.
    pub(crate) fn thaw(&mut self) {
        self.frozen = None;
    }

    /// Goes back to the rows that the store has, when what a checkpoint was to write is lost. No other one may be on its way.
    ///
    /// # Errors
    /// A store that cannot be read; nothing is changed then.
    pub(crate) fn revert(&mut self) -> Result<(), EngineError> {
        self.counters = header::read(&self.format, &*self.store.snapshot())?;
        self.dirty = self.dirty.emptied();
        self.frozen = None;
        Ok(())
    }

    /// Forgets all rows, of a view that the store does not have.
    pub(crate) fn forget(&mut self) {
        self.dirty = self.dirty.emptied();
        self.frozen = None;
        self.counters = Counters::default();
    }

    /// Looks for the row of an encoded key among those that are not in the store yet: `None` if it is not among them, and within
    /// that `None` if it was deleted. Short: what the store has of the key is looked for without this.
    pub(crate) fn changed(&self, key: &[u8]) -> Option<Option<Vec<u8>>> {
        let layers = std::iter::once(&self.dirty).chain(&self.frozen);
        layers.into_iter().find_map(|layer| match layer {
            Dirty::Keys(overlay) => {
                let entry = overlay.get(overlay.hash(key), key)?;
                Some(entry.value.map(<[u8]>::to_vec))
            }
            Dirty::Log(_) => None,
        })
    }

    /// How the rows are stored, and where.
    pub(crate) fn stored(&self) -> StoredRows {
        StoredRows {
            store: Arc::clone(&self.store),
            format: Arc::clone(&self.format),
        }
    }

    /// A reader of the rows as they are now.
    pub(crate) fn reader(&self) -> ViewReader {
        let layers = std::iter::once(&self.dirty).chain(&self.frozen);
        ViewReader::new(
            Arc::clone(&self.format),
            layers.filter(|layer| !layer.is_empty()).cloned().collect(),
            self.store.snapshot(),
            self.counters.rows,
        )
    }
}

impl FrozenView {
    /// Adds the rows to a checkpoint, in key order, and the view's header. Runs on the checkpoint thread.
    pub(crate) fn write(self, writer: &mut CheckpointWriter) -> Result<(), EngineError> {
        header::write(&self.format, self.counters, writer);
        match self.dirty {
            Dirty::Log(log) => log.write(&self.format, writer),
            Dirty::Keys(overlay) => {
                let entries = SortedEntries::new(vec![overlay], (&[], None));
                let mut key = vec![format::ROW_TAG];
                for entry in entries.iter() {
                    key.truncate(1);
                    key.extend_from_slice(entry.key);
                    match entry.value {
                        Some(value) => writer.put_view(self.format.object, &key, value),
                        None => writer.delete_view(self.format.object, &key),
                    }
                }
                Ok(())
            }
        }
    }
}

impl Dirty {
    fn is_empty(&self) -> bool {
        match self {
            Self::Keys(overlay) => overlay.is_empty(),
            Self::Log(log) => log.is_empty(),
        }
    }

    fn bytes(&self) -> usize {
        match self {
            Self::Keys(overlay) => overlay.bytes(),
            Self::Log(log) => log.bytes(),
        }
    }

    fn hold(&self, held: &mut HeldParts) {
        match self {
            Self::Keys(overlay) => overlay.hold(held),
            Self::Log(log) => log.hold(held),
        }
    }

    fn emptied(&self) -> Self {
        match self {
            Self::Keys(overlay) => Self::Keys(overlay.emptied()),
            Self::Log(_) => Self::Log(Log::default()),
        }
    }

    fn absorb(&mut self, newer: Self) {
        match (self, newer) {
            (Self::Keys(older), Self::Keys(newer)) => older.absorb(&newer),
            (Self::Log(older), Self::Log(newer)) => older.absorb(newer),
            (Self::Keys(_), Self::Log(_)) | (Self::Log(_), Self::Keys(_)) => {
                unreachable!("the layout of a view never changes")
            }
        }
    }
}

/// The count in a value of a bag.
fn read_count(mut value: &[u8]) -> Result<u64, EngineError> {
    match take_varint(&mut value) {
        Some(count) if value.is_empty() && count > 0 => Ok(count),
        _ => Err(EngineError::recovery("a stored row is corrupt").with_detail("Its count cannot be read.")),
    }
}
