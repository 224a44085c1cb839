//! [`Shard`]: the sessions of one part of the keys.

use std::collections::BTreeSet;
use std::ops::Bound;
use std::sync::Arc;

use super::input::{Layout, Prepared};
use super::output::{Change, ShardOutput};
use super::spans::{Span, Spans};
use crate::engine::error::EngineError;
use crate::engine::operators::state::arrangement::{Arrangement, time_bytes, time_of};
use crate::engine::operators::state::group_table::Probed;
use crate::engine::operators::state::row_set::{Cell, RowSet};

/// The arrangement's only relation.
const ROWS: usize = 0;

/// The note of a row that stays of a closed session, so that rows which belong to that are known to be late.
const MARKER: i64 = 1;

/// Rows by key and time, and the sessions that they make.
pub(super) struct Shard {
    rows: Arrangement,
    /// By slot.
    spans: Vec<Spans>,
    /// The last time of each session that will close, and its slot.
    open: BTreeSet<(i64, u32)>,
    /// The same for closed sessions of which a marker stays.
    markers: BTreeSet<(i64, u32)>,
    probed: Probed,
}

/// A row that changes in a step.
#[derive(Debug, Clone, Copy)]
struct RowDelta {
    slot: u32,
    batch: u32,
    row: u32,
}

/// The net change of a row.
struct RowChange {
    row: Arc<[u8]>,
    time: i64,
    old: i64,
    new: i64,
}

impl Shard {
    /// No rows.
    pub(super) fn new(layout: &Layout) -> Self {
        Self {
            rows: Arrangement::new(&layout.key, 1, false),
            spans: Vec::new(),
            open: BTreeSet::new(),
            markers: BTreeSet::new(),
            probed: Probed::default(),
        }
    }

    /// The time of the last row of the session that closes first, if one is open.
    pub(super) fn first_open(&self) -> Option<i64> {
        self.open.first().map(|(last, _)| *last)
    }

    /// Takes the rows of a step that belong to shard `number`, which is this one. Sessions that ended at or before `watermark`
    /// close.
    ///
    /// # Errors
    /// A row that is taken away and was not there.
    pub(super) fn step(
        &mut self,
        layout: &Layout,
        prepared: &[Prepared],
        number: usize,
        watermark: Option<i64>,
    ) -> Result<ShardOutput, EngineError> {
        let mut output = ShardOutput::default();
        let deltas = self.locate(prepared, number)?;
        for own in deltas.chunk_by(|left, right| left.slot == right.slot) {
            self.change(layout, prepared, own, &mut output)?;
        }
        if let Some(watermark) = watermark.filter(|_| layout.session.closes) {
            self.close(layout, watermark, &mut output);
        }
        Ok(output)
    }

    /// The rows of this shard, by key.
    fn locate(&mut self, prepared: &[Prepared], number: usize) -> Result<Vec<RowDelta>, EngineError> {
        let mut all = Vec::new();
        for (batch, own) in (0u32..).zip(prepared) {
            let rows = &own.rows.shards[number];
            self.rows.find(&own.rows.keys, rows, &mut self.probed)?;
            let found = rows.iter().zip(&self.probed.slots);
            all.extend(found.map(|(row, slot)| RowDelta {
                slot: *slot,
                batch,
                row: *row,
            }));
        }
        all.sort_by_key(|delta| delta.slot);
        if let Some(last) = all.last() {
            self.grow(last.slot);
        }
        Ok(all)
    }

    fn grow(&mut self, slot: u32) {
        if self.spans.len() <= slot as usize {
            self.spans.resize_with(slot as usize + 1, Spans::default);
        }
    }

    /// Changes the sessions of one key.
    fn change(
        &mut self,
        layout: &Layout,
        prepared: &[Prepared],
        deltas: &[RowDelta],
        output: &mut ShardOutput,
    ) -> Result<(), EngineError> {
        let (slot, gap_us) = (deltas[0].slot, layout.session.gap_us);
        let changes = self.take(layout, prepared, deltas, output)?;
        let times = || {
            let mut times: Vec<i64> = changes.iter().map(|change| change.time).collect();
            times.dedup();
            times
        };
        let spans = &mut self.spans[slot as usize];
        let near = |spans: &Spans| -> BTreeSet<Span> {
            let near = changes.iter().flat_map(|change| spans.near(change.time, gap_us));
            near.copied().collect()
        };
        let old = near(spans);
        let rows = self.rows.rows(ROWS, slot);
        let (there, gone): (Vec<i64>, Vec<i64>) = times().into_iter().partition(|time| {
            rows.range(
                Bound::Included(&time_bytes(*time)),
                Bound::Excluded(&time_bytes(time + 1)),
            )
            .next()
            .is_some()
        });
        there.iter().for_each(|time| spans.add(*time, gap_us));
        for time in gone {
            let bytes = time_bytes(time);
            let before = rows.range(Bound::Unbounded, Bound::Excluded(&bytes)).next_back();
            let after = rows.range(Bound::Included(&bytes), Bound::Unbounded).next();
            spans.remove(
                time,
                gap_us,
                before.map(|(row, _)| time_of(row)),
                after.map(|(row, _)| time_of(row)),
            );
        }
        let mut new = near(spans);
        for own in &old {
            new.extend(spans.within(*own));
        }
        if layout.session.closes {
            for own in old.difference(&new) {
                self.open.remove(&(own.last, slot));
            }
            self.open.extend(new.difference(&old).map(|own| (own.last, slot)));
        }
        if !layout.session.emit_on_close {
            differences(rows, &changes, &old, &new, output);
        }
        Ok(())
    }

    /// Adds and takes away the rows of one key, but for late ones: what changed, in the order of the rows.
    fn take(
        &mut self,
        layout: &Layout,
        prepared: &[Prepared],
        deltas: &[RowDelta],
        output: &mut ShardOutput,
    ) -> Result<Vec<RowChange>, EngineError> {
        let slot = deltas[0].slot;
        let mut net: Vec<(&[u8], i64)> = Vec::with_capacity(deltas.len());
        for delta in deltas {
            let own = &prepared[delta.batch as usize];
            if self.is_late(layout, slot, own.time(delta.row)) {
                output.late += 1;
                let first = || Arc::from(own.rows.row(delta.row));
                output.first_late.get_or_insert_with(first);
            } else {
                net.push((own.rows.row(delta.row), own.rows.weight(delta.row)));
            }
        }
        // In between a row may be taken away before it comes.
        net.sort_unstable_by(|left, right| left.0.cmp(right.0));
        let mut changes = Vec::with_capacity(net.len());
        for own in net.chunk_by(|left, right| left.0 == right.0) {
            let weight: i64 = own.iter().map(|(_, weight)| weight).sum();
            if weight == 0 {
                continue;
            }
            let (row, old) = match self.rows.rows(ROWS, slot).get(own[0].0) {
                Some((row, cell)) => (Arc::clone(row), cell.count),
                None => (Arc::from(own[0].0), 0),
            };
            let new = old + weight;
            if new < 0 {
                return Err(EngineError::internal("a row is taken away that is not there")
                    .with_detail("Sessions were given a change that does not fit their state."));
            }
            self.rows.set(ROWS, slot, &row, Cell { count: new, note: 0 });
            let time = time_of(&row);
            changes.push(RowChange { row, time, old, new });
        }
        Ok(changes)
    }

    /// Whether a row of this time belongs to a closed session.
    fn is_late(&self, layout: &Layout, slot: u32, time: i64) -> bool {
        if self.markers.is_empty() {
            return false;
        }
        let rows = self.rows.rows(ROWS, slot);
        let before = rows
            .range(Bound::Unbounded, Bound::Excluded(&time_bytes(time)))
            .next_back();
        before.is_some_and(|(row, cell)| {
            cell.note == MARKER && time.saturating_sub(time_of(row)) < layout.session.gap_us
        })
    }

    /// Closes the sessions that ended at or before `watermark`.
    fn close(&mut self, layout: &Layout, watermark: i64, output: &mut ShardOutput) {
        let gap_us = layout.session.gap_us;
        let through = watermark.saturating_sub(gap_us);
        while let Some((last, slot)) = self.open.first().copied().filter(|(last, _)| *last <= through) {
            self.open.pop_first();
            // Sessions of a key end in their order.
            let span = self.spans[slot as usize].take_first();
            let span = span.expect("an open session is one of its key");
            debug_assert_eq!(span.last, last);
            let rows: Vec<(Arc<[u8]>, Cell)> = rows_of(self.rows.rows(ROWS, slot), span)
                .map(|(row, cell)| (Arc::clone(row), cell))
                .collect();
            let is_marked = last > through.saturating_sub(gap_us);
            for (at, (row, cell)) in rows.iter().enumerate() {
                let stays = is_marked && at + 1 == rows.len();
                let marker = Cell {
                    count: 1,
                    note: MARKER,
                };
                self.rows
                    .set(ROWS, slot, row, if stays { marker } else { Cell::default() });
                if layout.session.emit_on_close {
                    output.new.push(Change {
                        row: Arc::clone(row),
                        span,
                        times: cell.count,
                    });
                }
            }
            if is_marked {
                self.markers.insert((last, slot));
            }
        }
        // Rows within a gap after them are late by themselves from here on.
        let over = through.saturating_sub(gap_us);
        while let Some((last, slot)) = self.markers.first().copied().filter(|(last, _)| *last <= over) {
            self.markers.pop_first();
            let span = Span { start: last, last };
            let marked = rows_of(self.rows.rows(ROWS, slot), span).find(|(_, cell)| cell.note == MARKER);
            if let Some(row) = marked.map(|(row, _)| Arc::clone(row)) {
                self.rows.set(ROWS, slot, &row, Cell::default());
            }
        }
    }

    /// Finds the sessions of rows that were restored.
    pub(super) fn find_sessions(&mut self, layout: &Layout) {
        let slots: Vec<u32> = self.rows.slots().collect();
        for slot in slots {
            self.grow(slot);
            let spans = &mut self.spans[slot as usize];
            for (row, cell) in self.rows.rows(ROWS, slot).iter() {
                match cell.note {
                    MARKER => {
                        self.markers.insert((time_of(row), slot));
                    }
                    _ => spans.add(time_of(row), layout.session.gap_us),
                }
            }
            if layout.session.closes {
                self.open.extend(spans.iter().map(|span| (span.last, slot)));
            }
        }
    }

    /// The rows, to be loaded, frozen and evicted.
    pub(super) fn arrangement(&mut self) -> &mut Arrangement {
        &mut self.rows
    }

    /// How many different rows there are.
    pub(super) fn state_rows(&self) -> usize {
        self.rows.len()
    }

    /// Bytes of memory; those of ordered sets are estimated.
    pub(super) fn state_bytes(&self) -> usize {
        let spans: usize = self.spans.iter().map(Spans::bytes).sum();
        let ordered = (self.open.len() + self.markers.len()) * 32;
        let probed = (self.probed.slots.capacity() + self.probed.created.capacity()) * 4;
        self.rows.bytes() + self.spans.capacity() * size_of::<Spans>() + spans + ordered + probed
    }
}

/// The rows of a session.
fn rows_of(rows: &RowSet, span: Span) -> impl Iterator<Item = (&Arc<[u8]>, Cell)> {
    rows.range(
        Bound::Included(&time_bytes(span.start)),
        Bound::Excluded(&time_bytes(span.last + 1)),
    )
}

/// What leads from the rows as they stood in the sessions `old` to the rows as they stand in the sessions `new`. Of a session
/// that is the same in both only the rows that changed count.
fn differences(
    rows: &RowSet,
    changes: &[RowChange],
    old: &BTreeSet<Span>,
    new: &BTreeSet<Span>,
    output: &mut ShardOutput,
) {
    let add = |to: &mut Vec<Change>, row: &Arc<[u8]>, span: Span, times: i64| {
        if times > 0 {
            to.push(Change {
                row: Arc::clone(row),
                span,
                times,
            });
        }
    };
    let of = |span: Span| {
        let from = changes.partition_point(|change| change.time < span.start);
        let to = changes.partition_point(|change| change.time <= span.last);
        &changes[from..to]
    };
    for span in old.intersection(new) {
        for change in of(*span) {
            add(&mut output.old, &change.row, *span, change.old - change.new);
            add(&mut output.new, &change.row, *span, change.new - change.old);
        }
    }
    for span in old.difference(new) {
        let own = of(*span);
        let before = |row: &Arc<[u8]>| own.binary_search_by(|change| change.row.cmp(row)).ok();
        for (row, cell) in rows_of(rows, *span) {
            let count = before(row).map_or(cell.count, |at| own[at].old);
            add(&mut output.old, row, *span, count);
        }
        for gone in own.iter().filter(|change| change.new == 0) {
            add(&mut output.old, &gone.row, *span, gone.old);
        }
    }
    for span in new.difference(old) {
        for (row, cell) in rows_of(rows, *span) {
            add(&mut output.new, row, *span, cell.count);
        }
    }
}
