//! [`Shard`]: the rows of one part of the keys, and how a step changes the matches of the left ones.

use std::ops::Bound;
use std::sync::Arc;

use super::input::Prepared;
use super::layout::{LEFT, Layout, RIGHT, SIDES, below};
use super::output::Changes;
use crate::engine::error::EngineError;
use crate::engine::operators::state::arrangement::{Arrangement, put_time};
use crate::engine::operators::state::evicted::EvictionFigures;
use crate::engine::operators::state::group_table::Probed;
use crate::engine::operators::state::order;
use crate::engine::operators::state::row_set::{Cell, RowSet};

/// Rows of both sides by key.
pub(super) struct Shard {
    rows: Arrangement,
    probed: Probed,
    /// The bytes of bounds, one after the other.
    scratch: Scratch,
}

#[derive(Debug, Default)]
struct Scratch {
    from: Vec<u8>,
    to: Vec<u8>,
}

/// The net change of a row in a step.
#[derive(Debug, Clone, Copy)]
struct RowDelta {
    slot: u32,
    batch: u32,
    row: u32,
    weight: i64,
}

/// A left row whose count or match changes.
#[derive(Debug)]
struct Touched {
    row: Arc<[u8]>,
    before: i64,
    after: i64,
    /// The match before the step.
    right: Option<Arc<[u8]>>,
}

/// A row of a step, and its count before and after.
struct Changed<'p> {
    bytes: &'p [u8],
    before: i64,
    after: i64,
}

impl Shard {
    /// No rows.
    pub(super) fn new(layout: &Layout) -> Self {
        let mut rows = Arrangement::new(&layout.key, SIDES, false);
        if layout.expires {
            rows = rows.with_times(LEFT).with_times(RIGHT);
        }
        Self {
            rows,
            probed: Probed::default(),
            scratch: Scratch::default(),
        }
    }

    /// Takes the rows of a step that belong to shard `number`, which is this one; lets go what changes no more when both
    /// inputs are at `watermark`.
    ///
    /// # Errors
    /// A row that is taken away without being there, and state that cannot be read.
    pub(super) fn step(
        &mut self,
        layout: &Layout,
        prepared: &[Prepared],
        number: usize,
        watermark: Option<i64>,
    ) -> Result<Changes, EngineError> {
        let mut changes = Changes::default();
        let deltas = [
            self.net(prepared, LEFT, number)?,
            self.net(prepared, RIGHT, number)?,
        ];
        for (batch, own) in prepared.iter().enumerate().filter(|(_, own)| own.side == LEFT) {
            for row in own.unmatched.get(number).into_iter().flatten() {
                let bytes = Arc::from(prepared[batch].rows.row(*row));
                changes.push(&bytes, None, own.rows.weight(*row));
            }
        }
        let mut rest = [&deltas[LEFT][..], &deltas[RIGHT][..]];
        while let Some(slot) = rest.iter().filter_map(|rows| rows.first()).map(|d| d.slot).min() {
            let own = rest.map(|rows| rows.split_at(rows.partition_point(|delta| delta.slot == slot)));
            rest = own.map(|(_, rest)| rest);
            self.change((layout, prepared), slot, own.map(|(own, _)| own), &mut changes)?;
        }
        if let (true, Some(watermark)) = (layout.expires, watermark) {
            self.let_go(layout, watermark)?;
        }
        Ok(changes)
    }

    /// The net change of each row of a side, by slot and bytes; keys get their slots.
    ///
    /// # Errors
    /// State that cannot be read.
    fn net(
        &mut self,
        prepared: &[Prepared],
        side: usize,
        number: usize,
    ) -> Result<Vec<RowDelta>, EngineError> {
        let mut all: Vec<RowDelta> = Vec::new();
        for (batch, own) in (0u32..).zip(prepared).filter(|(_, own)| own.side == side) {
            self.rows
                .find(&own.rows.keys, &own.rows.shards[number], &mut self.probed)?;
            let found = own.rows.shards[number].iter().zip(&self.probed.slots);
            all.extend(found.map(|(row, slot)| RowDelta {
                slot: *slot,
                batch,
                row: *row,
                weight: own.rows.weight(*row),
            }));
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

    /// Changes the rows of one key, and says what becomes of the matches.
    fn change(
        &mut self,
        (layout, prepared): (&Layout, &[Prepared]),
        slot: u32,
        deltas: [&[RowDelta]; SIDES],
        changes: &mut Changes,
    ) -> Result<(), EngineError> {
        let left = self.changed(prepared, LEFT, deltas[LEFT])?;
        let right = self.changed(prepared, RIGHT, deltas[RIGHT])?;
        let mut touched = self.touched_by_right(layout, slot, &left, &right)?;
        for own in &left {
            let known = self.rows.rows(LEFT, slot).get(own.bytes);
            let row = known.map_or_else(|| Arc::from(own.bytes), |(row, _)| Arc::clone(row));
            let rights = self.rows.rows(RIGHT, slot);
            touched.push(Touched {
                right: nearest(layout, rights, &row, &mut self.scratch.from)?,
                row,
                before: own.before,
                after: own.after,
            });
        }
        for (side, own) in [(LEFT, &left), (RIGHT, &right)] {
            for row in own {
                self.set(side, slot, row);
            }
        }
        let rights = self.rows.rows(RIGHT, slot);
        for own in &touched {
            let right = nearest(layout, rights, &own.row, &mut self.scratch.from)?;
            let mut push = |right: Option<&Arc<[u8]>>, weight: i64| {
                if right.is_some() || layout.is_outer {
                    changes.push(&own.row, right, weight);
                }
            };
            if right == own.right {
                push(right.as_ref(), own.after - own.before);
            } else {
                push(own.right.as_ref(), -own.before);
                push(right.as_ref(), own.after);
            }
        }
        Ok(())
    }

    /// The changed rows of a side with how often they were and are there.
    fn changed<'p>(
        &self,
        prepared: &'p [Prepared],
        side: usize,
        deltas: &[RowDelta],
    ) -> Result<Vec<Changed<'p>>, EngineError> {
        let changed = deltas.iter().map(|delta| {
            let bytes = prepared[delta.batch as usize].rows.row(delta.row);
            let known = self.rows.rows(side, delta.slot).get(bytes);
            let before = known.map_or(0, |(_, cell)| cell.count);
            let after = before + delta.weight;
            if after < 0 {
                return Err(EngineError::internal("a row is taken away that is not there")
                    .with_detail("An ASOF join was given a change that does not fit its state."));
            }
            Ok(Changed { bytes, before, after })
        });
        changed.collect()
    }

    fn set(&mut self, side: usize, slot: u32, changed: &Changed<'_>) {
        let known = self.rows.rows(side, slot).get(changed.bytes);
        let row = known.map_or_else(|| Arc::from(changed.bytes), |(row, _)| Arc::clone(row));
        let cell = Cell {
            count: changed.after,
            note: 0,
        };
        self.rows.set(side, slot, &row, cell);
    }

    /// Left rows that stay as they are, and whose match may be another one because of `right`. Each stands between a row of
    /// `right` that comes or goes and the neighbour that this row has, or would have, before the step.
    fn touched_by_right(
        &mut self,
        layout: &Layout,
        slot: u32,
        left: &[Changed<'_>],
        right: &[Changed<'_>],
    ) -> Result<Vec<Touched>, EngineError> {
        let lefts = self.rows.rows(LEFT, slot);
        let rights = self.rows.rows(RIGHT, slot);
        let mut touched: Vec<Touched> = Vec::new();
        if lefts.is_empty() {
            return Ok(touched);
        }
        let mut own_match = Vec::new();
        for changed in right.iter().filter(|own| (own.before == 0) != (own.after == 0)) {
            let from_row = Bound::Excluded(changed.bytes);
            let (first, last) = match layout.looks_back() {
                true => {
                    let next = rights.range(from_row, Bound::Unbounded).next();
                    (Some(changed.bytes), next.map(|(row, _)| row.as_ref()))
                }
                false => {
                    let previous = rights.range(Bound::Unbounded, from_row).next_back();
                    (previous.map(|(row, _)| row.as_ref()), Some(changed.bytes))
                }
            };
            let from = match first {
                None => Bound::Unbounded,
                Some(row) => match layout.left_edge(order::place_of(row)?, &mut self.scratch.from) {
                    Some(edge) => Bound::Included(edge),
                    None => continue,
                },
            };
            let to = match last {
                None => Bound::Unbounded,
                Some(row) => below(layout.left_edge(order::place_of(row)?, &mut self.scratch.to)),
            };
            // The rows of the step come in their order, so what was met before stands before all that was not.
            let met = touched.last().map(|last| Arc::clone(&last.row));
            let from = match (&met, from) {
                (Some(met), Bound::Included(edge)) if edge > met.as_ref() => Bound::Included(edge),
                (Some(met), _) => Bound::Excluded(met.as_ref()),
                (None, from) => from,
            };
            for (row, cell) in lefts.range(from, to) {
                if left.binary_search_by(|own| own.bytes.cmp(row)).is_ok() {
                    continue;
                }
                touched.push(Touched {
                    right: nearest(layout, rights, row, &mut own_match)?,
                    row: Arc::clone(row),
                    before: cell.count,
                    after: cell.count,
                });
            }
        }
        Ok(touched)
    }

    /// Forgets what changes no more.
    fn let_go(&mut self, layout: &Layout, watermark: i64) -> Result<(), EngineError> {
        let through = watermark.saturating_sub(1);
        let mut slots = self.rows.slots_through(LEFT, through);
        slots.append(&mut self.rows.slots_through(RIGHT, through));
        slots.sort_unstable();
        slots.dedup();
        let mut limit = Vec::new();
        put_time(&mut limit, Some(watermark));
        for slot in slots {
            let rights = self.rows.rows(RIGHT, slot);
            let last = rights
                .range(Bound::Unbounded, Bound::Excluded(&limit))
                .next_back();
            let last = last.map(|(row, _)| Arc::clone(row));
            // Left rows look back to right rows that are all there, or wait for the first one behind them.
            let left_end = match (layout.looks_back(), &last) {
                (true, _) => Some(limit.as_slice()),
                (false, Some(last)) => layout.left_edge(order::place_of(last)?, &mut self.scratch.to),
                (false, None) => Some([].as_slice()),
            };
            let gone = rows_of(self.rows.rows(LEFT, slot), below(left_end));
            gone.iter().for_each(|row| {
                self.rows.set(LEFT, slot, row, Cell::default());
            });
            let right_end = match (layout.looks_back(), &last) {
                (true, Some(last)) => Bound::Excluded(last.as_ref()),
                _ => Bound::Excluded(limit.as_slice()),
            };
            let gone = rows_of(self.rows.rows(RIGHT, slot), right_end);
            gone.iter().for_each(|row| {
                self.rows.set(RIGHT, slot, row, Cell::default());
            });
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
        self.rows.bytes() + (self.probed.slots.capacity() + self.probed.created.capacity()) * 4
    }
}

/// The right row that is nearest to a left row.
fn nearest(
    layout: &Layout,
    rights: &RowSet,
    left: &[u8],
    scratch: &mut Vec<u8>,
) -> Result<Option<Arc<[u8]>>, EngineError> {
    let bound = layout.bound(order::place_of(left)?, scratch);
    let found = match (layout.looks_back(), bound) {
        (true, bound) => rights.range(Bound::Unbounded, below(bound)).next_back(),
        (false, Some(bound)) => rights.range(Bound::Included(bound), Bound::Unbounded).next(),
        (false, None) => None,
    };
    Ok(found.map(|(row, _)| Arc::clone(row)))
}

/// The rows up to a bound.
fn rows_of(rows: &RowSet, to: Bound<&[u8]>) -> Vec<Arc<[u8]>> {
    let rows = rows.range(Bound::Unbounded, to);
    rows.map(|(row, _)| Arc::clone(row)).collect()
}
