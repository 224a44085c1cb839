//! Scans: all rows of a view, changed rows merged over stored ones.
//!
//! ```text
//! changed rows, sorted by key ─┐
//!                              ├─ merge: a changed row hides the stored one ─▶ decode ─▶ batches
//! stored rows, in key order ───┘
//! ```
//!
//! The store is read one batch at a time, each from where the last one ended, so a scan that nobody goes on reading holds
//! nothing but its snapshot.

use std::collections::VecDeque;
use std::sync::Arc;

use arrow::array::UInt64Array;
use arrow::buffer::ScalarBuffer;
use arrow::compute::{concat_batches, take_record_batch};
use arrow::datatypes::SchemaRef;
use arrow::record_batch::RecordBatch;
use highwater_storage::{Family, StorageError};

use super::format::{Decoder, PREFIX_BYTES, Shape, record_batch};
use super::overlay::{Entry, SortedEntries};
use super::range::KeyRange;
use super::reader::ViewReader;
use super::{Dirty, HeldParts, read_count};
use crate::engine::delta::Delta;
use crate::engine::error::EngineError;

/// A batch ends when the bytes of its rows exceed this, whatever their number.
const BATCH_BYTES: usize = 16 << 20;

/// The rows of a view in batches; equal rows of a bag stand side by side.
pub(crate) struct ViewScan {
    merge: Merge,
    /// What follows when the merge is done.
    ranges: VecDeque<KeyRange>,
    /// The most rows of a batch; the first batches have fewer.
    rows_max: usize,
    schema: SchemaRef,
    /// Rows of a bag that are to be given yet, each with how often.
    repeated: Option<(RecordBatch, VecDeque<u64>, u64)>,
}

/// The rows of a view in batches, as changes that add them.
pub(crate) struct DeltaScan {
    merge: Merge,
}

/// Which way keys are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    /// From the least to the greatest.
    On,
    /// From the greatest to the least; not of a log, whose rows have no order of keys.
    Back,
}

/// Rows, and how often each is there unless each is there once.
type Counted = (RecordBatch, Option<Vec<u64>>);

impl ViewScan {
    /// Of the rows in `ranges`, which ascend. The first batch has about `first_rows` rows, the others more and more.
    pub(super) fn new(
        reader: &ViewReader,
        mut ranges: Vec<KeyRange>,
        projection: Option<&[usize]>,
        (first_rows, rows_max): (usize, usize),
        way: Way,
    ) -> Result<Self, EngineError> {
        if way == Way::Back {
            ranges.reverse();
        }
        let schema = match projection {
            Some(columns) => reader.schema().project(columns)?.into(),
            None => Arc::clone(reader.schema()),
        };
        let mut ranges = VecDeque::from(ranges);
        let nothing = || KeyRange {
            from: Vec::new(),
            to: Some(Vec::new()),
        };
        let first = ranges.pop_front().unwrap_or_else(nothing);
        Ok(Self {
            merge: Merge::new(reader, &first, projection, (first_rows, way)),
            ranges,
            rows_max,
            schema,
            repeated: None,
        })
    }

    fn next_batch(&mut self) -> Result<Option<RecordBatch>, EngineError> {
        loop {
            if let Some(batch) = self.next_repeated()? {
                return Ok(Some(batch));
            }
            match self.merge.next_batch()? {
                Some((batch, counts)) => {
                    self.merge.batch_rows = (self.merge.batch_rows * 2).min(self.rows_max.max(1));
                    match counts {
                        Some(counts) => self.repeated = Some((batch, counts.into(), 0)),
                        None => return Ok(Some(batch)),
                    }
                }
                None => match self.ranges.pop_front() {
                    Some(range) => self.merge = self.merge.of(&range),
                    None => return Ok(None),
                },
            }
        }
    }

    /// The next rows of `repeated`, at most a batch.
    fn next_repeated(&mut self) -> Result<Option<RecordBatch>, EngineError> {
        let Some((batch, counts, row)) = &mut self.repeated else {
            return Ok(None);
        };
        let mut rows = Vec::new();
        while let Some(count) = counts.front_mut()
            && rows.len() < self.merge.batch_rows
        {
            let times = (*count).min((self.merge.batch_rows - rows.len()) as u64);
            rows.extend(std::iter::repeat_n(*row, times as usize));
            *count -= times;
            if *count == 0 {
                counts.pop_front();
                *row += 1;
            }
        }
        if rows.is_empty() {
            self.repeated = None;
            return Ok(None);
        }
        if batch.num_columns() == 0 {
            return Ok(Some(record_batch(&self.schema, Vec::new(), rows.len())?));
        }
        Ok(Some(take_record_batch(batch, &UInt64Array::from(rows))?))
    }
}

impl Iterator for ViewScan {
    type Item = Result<RecordBatch, EngineError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.next_batch().transpose()
    }
}

impl DeltaScan {
    /// Of the rows from the key `from` on; an empty one is before all.
    pub(super) fn starting_at(reader: &ViewReader, from: &[u8], batch_rows: usize) -> Self {
        Self {
            merge: Merge::new(
                reader,
                &KeyRange {
                    from: from.to_vec(),
                    to: None,
                },
                None,
                (batch_rows, Way::On),
            ),
        }
    }

    /// The key of the row that comes next; `None` behind the last one. To be asked between two deltas.
    pub(super) fn next_key(&self) -> Option<Vec<u8>> {
        self.merge.next_key()
    }

    /// Adds the changed rows that it keeps in memory.
    pub(super) fn hold(&self, held: &mut HeldParts) {
        self.merge.reader.hold(held);
    }

    fn next_delta(&mut self) -> Result<Option<Delta>, EngineError> {
        let Some((batch, counts)) = self.merge.next_batch()? else {
            return Ok(None);
        };
        let Some(counts) = counts.filter(|counts| counts.iter().any(|count| *count != 1)) else {
            return Ok(Some(Delta::inserts(batch)));
        };
        let weights = counts
            .into_iter()
            .map(i64::try_from)
            .collect::<Result<Vec<_>, _>>();
        let weights = weights.map_err(|_| EngineError::internal("a row is there too often"))?;
        Ok(Some(Delta::weighted(batch, ScalarBuffer::from(weights))))
    }
}

impl Iterator for DeltaScan {
    type Item = Result<Delta, EngineError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.next_delta().transpose()
    }
}

/// Where a merge stands.
struct Merge {
    reader: ViewReader,
    projection: Option<Vec<usize>>,
    batch_rows: usize,
    /// The next key in the store, going back the least one; `None` when it is read to the end.
    from: Option<Vec<u8>>,
    /// Behind the last key; going back behind the next one.
    to: Vec<u8>,
    changed: Changed,
    way: Way,
}

/// Changed rows that are to be given yet.
enum Changed {
    Keys {
        entries: SortedEntries,
        next: usize,
    },
    /// Batches with all columns, and the sequence of the first row of them.
    Log(VecDeque<RecordBatch>, u64),
}

impl Merge {
    /// Of another range of the same rows.
    fn of(&self, range: &KeyRange) -> Self {
        Self::new(
            &self.reader,
            range,
            self.projection.as_deref(),
            (self.batch_rows, self.way),
        )
    }

    fn new(
        reader: &ViewReader,
        range: &KeyRange,
        projection: Option<&[usize]>,
        (batch_rows, way): (usize, Way),
    ) -> Self {
        let format = &reader.format;
        let from = range.from.as_slice();
        let mut to = match &range.to {
            Some(to) => [&format.row_prefix()[..], to].concat(),
            None => format.rows_end().to_vec(),
        };
        let changed = if format.layout.shape() == Shape::Log {
            let chunks = || {
                reader.layers.iter().rev().filter_map(|layer| match layer {
                    Dirty::Log(log) => Some(log.chunks()),
                    Dirty::Keys(_) => None,
                })
            };
            if let Some(first) = chunks().flatten().next() {
                // The store may have the frozen rows already.
                to = [&format.row_prefix()[..], &first.first_sequence.to_be_bytes()].concat();
            }
            let from = from.try_into().map_or(0, u64::from_be_bytes);
            let batches = chunks().flatten().filter_map(|chunk| chunk.starting_at(from));
            let sequence = chunks()
                .flatten()
                .next()
                .map_or(from, |first| first.first_sequence);
            Changed::Log(batches.collect(), sequence.max(from))
        } else {
            let overlays = reader.layers.iter().filter_map(|layer| match layer {
                Dirty::Keys(overlay) => Some(overlay.clone()),
                Dirty::Log(_) => None,
            });
            let mut entries = SortedEntries::new(overlays.collect(), (from, range.to.as_deref()));
            if way == Way::Back {
                entries.reverse();
            }
            Changed::Keys { entries, next: 0 }
        };
        Self {
            from: Some([&format.row_prefix()[..], from].concat()),
            to,
            changed,
            reader: reader.clone(),
            projection: projection.map(<[usize]>::to_vec),
            batch_rows: batch_rows.max(1),
            way,
        }
    }

    fn next_batch(&mut self) -> Result<Option<Counted>, EngineError> {
        let reader = self.reader.clone();
        let decoder = reader
            .format
            .decoder(self.projection.as_deref(), self.batch_rows.min(8192))?;
        let counts = (reader.format.layout.shape() == Shape::Bag).then(Vec::new);
        let mut out = Output {
            decoder,
            counts,
            bytes: 0,
            batch_rows: self.batch_rows,
        };
        if let Some(from) = self.from.take() {
            let next = self.read_store(&from, &mut out)?;
            self.from = match (next, self.way) {
                (Some(next), Way::Back) => {
                    // No key lies between a key and that key with a zero behind it.
                    self.to = next;
                    self.to.push(0);
                    Some(from)
                }
                (next, _) => next,
            };
        }
        if self.from.is_none()
            && let Changed::Keys { entries, next } = &mut self.changed
        {
            while let Some(entry) = entries.get(*next)
                && !out.is_full()
            {
                out.append(entry)?;
                *next += 1;
            }
        }
        if out.decoder.len() > 0 {
            return Ok(Some((out.decoder.finish()?, out.counts)));
        }
        match &mut self.changed {
            Changed::Log(batches, sequence) => {
                let batch = next_of_log(batches, self.projection.as_deref(), self.batch_rows)?;
                *sequence += batch.as_ref().map_or(0, |batch| batch.num_rows() as u64);
                Ok(batch.map(|batch| (batch, None)))
            }
            Changed::Keys { .. } => Ok(None),
        }
    }

    /// The key of the row that comes next, of a log its sequence as bytes; `None` behind the last one.
    fn next_key(&self) -> Option<Vec<u8>> {
        let stored = self.from.as_ref().map(|from| from[PREFIX_BYTES..].to_vec());
        match &self.changed {
            Changed::Keys { entries, next } => {
                let changed = entries.get(*next).map(|entry| entry.key.to_vec());
                changed.into_iter().chain(stored).min()
            }
            Changed::Log(batches, sequence) => {
                stored.or_else(|| (!batches.is_empty()).then(|| sequence.to_be_bytes().to_vec()))
            }
        }
    }

    /// Merges stored rows from the key `from` on until `out` is full; gives the key to go on with.
    fn read_store(&mut self, from: &[u8], out: &mut Output<'_>) -> Result<Option<Vec<u8>>, EngineError> {
        let mut go_on = None;
        let mut failed = None;
        let (changed, way) = (&mut self.changed, self.way);
        let mut visit = |stored: &[u8], value: &[u8]| -> Result<bool, StorageError> {
            let key = stored.get(PREFIX_BYTES..).unwrap_or_default();
            match merge_row(
                changed,
                Entry {
                    key,
                    value: Some(value),
                },
                (out, way),
            ) {
                Ok(true) => return Ok(true),
                Ok(false) => go_on = Some(stored.to_vec()),
                Err(error) => failed = Some(error),
            }
            Ok(false)
        };
        let snapshot = self.reader.snapshot.lock();
        match way {
            Way::On => snapshot.for_each(Family::Views, from, Some(&self.to), &mut visit)?,
            Way::Back => snapshot.for_each_back(Family::Views, from, Some(&self.to), &mut visit)?,
        }
        match failed {
            Some(error) => Err(error),
            None => Ok(go_on),
        }
    }
}

/// Gives the changed rows before a stored row, then that row unless it changed; `false` if there was no room for all.
fn merge_row(
    changed: &mut Changed,
    stored: Entry<'_>,
    (out, way): (&mut Output<'_>, Way),
) -> Result<bool, EngineError> {
    let is_first = |key: &[u8]| match way {
        Way::On => key <= stored.key,
        Way::Back => key >= stored.key,
    };
    if let Changed::Keys { entries, next } = changed {
        while let Some(entry) = entries.get(*next)
            && is_first(entry.key)
        {
            if out.is_full() {
                return Ok(false);
            }
            out.append(entry)?;
            *next += 1;
            if entry.key == stored.key {
                return Ok(true);
            }
        }
    }
    if out.is_full() {
        return Ok(false);
    }
    out.append(stored)?;
    Ok(true)
}

/// The batch that is being filled.
struct Output<'f> {
    decoder: Decoder<'f>,
    /// How often each row is there, for a bag.
    counts: Option<Vec<u64>>,
    bytes: usize,
    batch_rows: usize,
}

impl Output<'_> {
    fn is_full(&self) -> bool {
        self.decoder.len() >= self.batch_rows || self.bytes >= BATCH_BYTES
    }

    /// Adds a row; a deleted one is none.
    fn append(&mut self, entry: Entry<'_>) -> Result<(), EngineError> {
        let Some(value) = entry.value else {
            return Ok(());
        };
        self.bytes += entry.key.len() + value.len();
        self.decoder.append(entry.key, value)?;
        if let Some(counts) = &mut self.counts {
            counts.push(read_count(value)?);
        }
        Ok(())
    }
}

/// The next rows of a log: small batches put together, a large one cut.
fn next_of_log(
    batches: &mut VecDeque<RecordBatch>,
    projection: Option<&[usize]>,
    batch_rows: usize,
) -> Result<Option<RecordBatch>, EngineError> {
    let mut taken = Vec::new();
    let mut rows = 0;
    while rows < batch_rows
        && let Some(batch) = batches.front_mut()
    {
        let take = batch.num_rows().min(batch_rows - rows);
        let part = batch.slice(0, take);
        taken.push(match projection {
            Some(columns) => part.project(columns)?,
            None => part,
        });
        rows += take;
        *batch = batch.slice(take, batch.num_rows() - take);
        if batch.num_rows() == 0 {
            batches.pop_front();
        }
    }
    match &taken[..] {
        [] => Ok(None),
        [_] => Ok(taken.pop()),
        [first, ..] => Ok(Some(concat_batches(&first.schema(), &taken)?)),
    }
}
