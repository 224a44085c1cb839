//! [`Shard`]: the rows of one part of the keys, and how a step changes them.

use std::sync::Arc;

use super::input::Prepared;
use super::layout::{LEFT, Layout, RIGHT, SIDES};
use super::output::Part;
use super::work::{Entry, Work};
use crate::engine::error::EngineError;
use crate::engine::operators::state::arrangement::Arrangement;
use crate::engine::operators::state::evicted::EvictionFigures;
use crate::engine::operators::state::group_table::Probed;
use crate::engine::operators::state::idle::Idle;
use crate::engine::operators::state::row_set::Cell;

/// Stands for the keys that match nothing; no slot of theirs exists.
pub(super) const UNMATCHED: u32 = u32::MAX;

/// Pairs, and rows, after which what was gathered is worked off.
pub(super) const GATHERED_PAIRS_MAX: usize = 1 << 16;
pub(super) const GATHERED_ROWS_MAX: usize = 1 << 16;

/// Rows of both sides by key.
pub(super) struct Shard {
    pub(super) rows: Arrangement,
    probed: Probed,
    /// Which keys nothing changes, where they go then.
    idle: Option<Idle>,
}

/// The net change of a row in a step.
#[derive(Debug, Clone, Copy)]
pub(super) struct RowDelta {
    pub(super) slot: u32,
    pub(super) batch: u32,
    pub(super) row: u32,
    pub(super) weight: i64,
}

impl Shard {
    /// No rows.
    pub(super) fn new(layout: &Layout) -> Self {
        let mut rows = Arrangement::new(&layout.key, SIDES, layout.closing_add_us.is_some());
        for side in [LEFT, RIGHT] {
            if layout.sides[side].times.expiry.is_some() {
                rows = rows.with_times(side);
            }
        }
        Self {
            rows,
            probed: Probed::default(),
            idle: None,
        }
    }

    /// The window column of the first keys that are open, where keys close by one.
    pub(super) fn first_window(&self) -> Option<i64> {
        self.rows.first_window()
    }

    /// Lets keys go that nothing has changed for so long (µs).
    pub(super) fn forget_idle(&mut self, ttl_us: i64) {
        self.idle = Some(Idle::new(ttl_us));
    }

    /// When the next keys go.
    pub(super) fn due_us(&self) -> Option<i64> {
        self.idle.as_ref()?.due_us()
    }

    /// Takes the rows of a step that belong to shard `number`, which is this one; lets go what can have no
    /// further match when both inputs are at `watermark`. Gives what changed.
    ///
    /// # Errors
    /// A condition that fails on a pair.
    pub(super) fn step(
        &mut self,
        layout: &Layout,
        prepared: &[Prepared],
        number: usize,
        (watermark, now_us): (Option<i64>, i64),
    ) -> Result<Vec<Part>, EngineError> {
        if layout.is_temporal {
            return self.step_temporal(layout, prepared, number);
        }
        let deltas = [
            self.net(prepared, LEFT, number)?,
            self.net(prepared, RIGHT, number)?,
        ];
        self.forget(&deltas, now_us);
        let mut parts = Vec::new();
        let mut work = Work::default();
        let mut rest = [&deltas[LEFT][..], &deltas[RIGHT][..]];
        while let Some(slot) = rest.iter().filter_map(|rows| rows.first()).map(|d| d.slot).min() {
            let own = rest.map(|rows| rows.split_at(rows.partition_point(|delta| delta.slot == slot)));
            rest = own.map(|(_, rest)| rest);
            self.gather((layout, prepared), slot, own.map(|(own, _)| own), &mut work)?;
            if work.num_pairs() >= GATHERED_PAIRS_MAX || work.num_rows() >= GATHERED_ROWS_MAX {
                self.finish(layout, &mut work, &mut parts)?;
            }
        }
        self.finish(layout, &mut work, &mut parts)?;
        if let Some(watermark) = watermark {
            self.let_go(layout, watermark);
        }
        Ok(parts)
    }

    /// Forgets the keys that nothing has changed for a while, before the step; what they gave stays.
    fn forget(&mut self, deltas: &[Vec<RowDelta>; SIDES], now_us: i64) {
        let Some(idle) = &mut self.idle else { return };
        idle.start(self.rows.slots(), now_us);
        let touched = deltas.iter().flatten().map(|delta| delta.slot);
        idle.touch(touched.filter(|slot| *slot != UNMATCHED), now_us);
        for slot in idle.take(now_us) {
            for side in [LEFT, RIGHT] {
                let rows = self.rows.rows(side, slot).iter();
                let rows: Vec<_> = rows.map(|(row, _)| Arc::clone(row)).collect();
                for row in rows {
                    self.rows.set(side, slot, &row, Cell::default());
                }
            }
        }
    }

    /// Forgets what can have no further match.
    fn let_go(&mut self, layout: &Layout, watermark: i64) {
        if let Some(add_us) = layout.closing_add_us {
            self.rows.close(watermark.saturating_sub(add_us));
        }
        for side in [LEFT, RIGHT] {
            if let Some((_, after_us)) = layout.sides[side].times.expiry {
                // The watermark must be past the last time of a match.
                self.rows
                    .expire(side, watermark.saturating_sub(after_us).saturating_sub(1));
            }
        }
    }

    /// The net change of each row of a side, by slot and bytes; keys get their slots.
    ///
    /// # Errors
    /// State that cannot be read.
    pub(super) fn net(
        &mut self,
        prepared: &[Prepared],
        side: usize,
        number: usize,
    ) -> Result<Vec<RowDelta>, EngineError> {
        let mut all: Vec<RowDelta> = Vec::new();
        for (batch, own) in (0u32..).zip(prepared).filter(|(_, own)| own.side == side) {
            let delta = |slot: u32, row: u32| RowDelta {
                slot,
                batch,
                row,
                weight: own.rows.weight(row),
            };
            self.rows
                .find(&own.rows.keys, &own.rows.shards[number], &mut self.probed)?;
            let found = own.rows.shards[number].iter().zip(&self.probed.slots);
            all.extend(found.map(|(row, slot)| delta(*slot, *row)));
            let unmatched = own.unmatched.get(number).into_iter().flatten();
            all.extend(unmatched.map(|row| delta(UNMATCHED, *row)));
        }
        let bytes = |delta: &RowDelta| prepared[delta.batch as usize].rows.row(delta.row);
        all.sort_unstable_by(|left, right| {
            let by_bytes = || bytes(left).cmp(bytes(right));
            left.slot.cmp(&right.slot).then_with(by_bytes)
        });
        all.dedup_by(|next, first| {
            let same = next.slot == first.slot && bytes(next) == bytes(first);
            if same {
                first.weight += next.weight;
            }
            same
        });
        all.retain(|delta| delta.weight != 0);
        Ok(all)
    }

    /// Notes the changed rows of a key, the rows that they may match, and the pairs to be looked at.
    fn gather(
        &self,
        (layout, prepared): (&Layout, &[Prepared]),
        slot: u32,
        deltas: [&[RowDelta]; SIDES],
        work: &mut Work,
    ) -> Result<(), EngineError> {
        let first = [work.rows[LEFT].len(), work.rows[RIGHT].len()];
        let bytes = |delta: &RowDelta| prepared[delta.batch as usize].rows.row(delta.row);
        for (side, deltas) in deltas.iter().enumerate() {
            for delta in deltas.iter() {
                let entry = self.changed(side, delta, bytes(delta))?;
                work.rows[side].push(entry);
            }
        }
        if slot == UNMATCHED {
            return Ok(());
        }
        let changed_right = work.rows[RIGHT].len();
        let before = [self.rows.total(LEFT, slot), self.rows.total(RIGHT, slot)];
        let change = deltas.map(|deltas| deltas.iter().map(|delta| delta.weight).sum::<i64>());
        let after = [before[LEFT] + change[LEFT], before[RIGHT] + change[RIGHT]];
        for side in [LEFT, RIGHT] {
            let other = 1 - side;
            let flips = layout.sides[side].counts_matches && (before[other] == 0) != (after[other] == 0);
            if flips || (layout.needs_pairs() && !deltas[other].is_empty()) {
                let mut changed = deltas[side].iter().map(bytes).peekable();
                for (row, cell) in self.rows.rows(side, slot).iter() {
                    while changed.next_if(|bytes| *bytes < row.as_ref()).is_some() {}
                    if changed.next_if(|bytes| *bytes == row.as_ref()).is_none() {
                        work.rows[side].push(Entry::unchanged(slot, row, cell));
                    }
                }
            }
        }
        if layout.condition.is_none() {
            for side in [LEFT, RIGHT] {
                for entry in &mut work.rows[side][first[side]..] {
                    (entry.matches_before, entry.matches) = (before[1 - side], after[1 - side]);
                }
            }
        }
        if layout.needs_pairs() {
            work.pair(first, changed_right);
        }
        Ok(())
    }

    /// A changed row with how often it was there and is.
    pub(super) fn changed(&self, side: usize, delta: &RowDelta, bytes: &[u8]) -> Result<Entry, EngineError> {
        if delta.slot == UNMATCHED {
            // Nobody keeps such a row, and nobody needs to know how often it is there.
            let count = (-delta.weight).max(0);
            let cell = Cell { count, note: 0 };
            return Ok(Entry::changed(UNMATCHED, Arc::from(bytes), cell, delta.weight));
        }
        let (row, cell) = match self.rows.rows(side, delta.slot).get(bytes) {
            Some((row, cell)) => (Arc::clone(row), cell),
            None => (Arc::from(bytes), Cell::default()),
        };
        if cell.count + delta.weight < 0 {
            return Err(EngineError::internal("a row is taken away that is not there")
                .with_detail("A join was given a change that does not fit its state."));
        }
        Ok(Entry::changed(delta.slot, row, cell, delta.weight))
    }

    /// Works off what was gathered: pairs and rows go to the output, changed rows to the state.
    fn finish(&mut self, layout: &Layout, work: &mut Work, parts: &mut Vec<Part>) -> Result<(), EngineError> {
        work.finish(layout, parts)?;
        for side in [LEFT, RIGHT] {
            let notes = layout.notes_matches(side);
            for entry in work.rows[side].drain(..) {
                if entry.slot == UNMATCHED {
                    continue;
                }
                if entry.is_changed || (notes && entry.matches != entry.matches_before) {
                    let cell = Cell {
                        count: entry.count,
                        note: if notes { entry.matches } else { 0 },
                    };
                    self.rows.set(side, entry.slot, &entry.row, cell);
                }
            }
        }
        Ok(())
    }

    /// The rows, to be loaded, frozen and evicted.
    pub(super) fn arrangement(&mut self) -> &mut Arrangement {
        &mut self.rows
    }

    /// Rows in state.
    pub(super) fn state_rows(&self) -> usize {
        self.rows.len()
    }

    /// Whether keys can be evicted.
    pub(super) fn is_evictable(&self) -> bool {
        self.rows.is_evictable()
    }

    /// What was evicted and read back.
    pub(super) fn eviction_figures(&self) -> EvictionFigures {
        self.rows.eviction_figures()
    }

    /// Bytes of memory.
    pub(super) fn state_bytes(&self) -> usize {
        let idle = self.idle.as_ref().map_or(0, Idle::bytes);
        idle + self.rows.bytes() + (self.probed.slots.capacity() + self.probed.created.capacity()) * 4
    }
}
