//! A step of a temporal join: the right side's changes first, then each left row beside what is there.

use std::sync::Arc;

use super::input::Prepared;
use super::layout::{LEFT, Layout, RIGHT};
use super::output::Part;
use super::shard::{GATHERED_PAIRS_MAX, GATHERED_ROWS_MAX, RowDelta, Shard, UNMATCHED};
use super::work::{Entry, Work};
use crate::engine::error::EngineError;
use crate::engine::operators::state::row_set::Cell;

impl Shard {
    /// Takes the rows of a step that belong to shard `number`, which is this one. The left ones are not kept.
    ///
    /// # Errors
    /// A condition that fails on a pair.
    pub(super) fn step_temporal(
        &mut self,
        layout: &Layout,
        prepared: &[Prepared],
        number: usize,
    ) -> Result<Vec<Part>, EngineError> {
        let bytes = |delta: &RowDelta| prepared[delta.batch as usize].rows.row(delta.row);
        for delta in self.net(prepared, RIGHT, number)? {
            let entry = self.changed(RIGHT, &delta, bytes(&delta))?;
            let cell = Cell {
                count: entry.count,
                note: 0,
            };
            self.rows.set(RIGHT, delta.slot, &entry.row, cell);
        }
        let deltas = self.net(prepared, LEFT, number)?;
        let (mut parts, mut work) = (Vec::new(), Work::default());
        for own in deltas.chunk_by(|one, other| one.slot == other.slot) {
            self.gather_now(layout, own, &bytes, &mut work)?;
            if work.num_pairs() >= GATHERED_PAIRS_MAX || work.num_rows() >= GATHERED_ROWS_MAX {
                work.finish(layout, &mut parts)?;
                work = Work::default();
            }
        }
        work.finish(layout, &mut parts)?;
        Ok(parts)
    }

    /// Notes left rows of a key, and the right rows that are there.
    fn gather_now<'p>(
        &self,
        layout: &Layout,
        deltas: &[RowDelta],
        bytes: &impl Fn(&RowDelta) -> &'p [u8],
        work: &mut Work,
    ) -> Result<(), EngineError> {
        let first = [work.rows[LEFT].len(), work.rows[RIGHT].len()];
        let slot = deltas.first().map_or(UNMATCHED, |delta| delta.slot);
        let matches = match slot {
            UNMATCHED => 0,
            _ => self.rows.total(RIGHT, slot),
        };
        for delta in deltas {
            if delta.weight < 0 {
                return Err(EngineError::internal(
                    "a temporal join was given a left row that is taken away",
                ));
            }
            let mut entry = Entry::changed(slot, Arc::from(bytes(delta)), Cell::default(), delta.weight);
            if layout.condition.is_none() {
                entry.matches = matches;
            }
            work.rows[LEFT].push(entry);
        }
        if slot != UNMATCHED {
            let rights = self.rows.rows(RIGHT, slot).iter();
            work.rows[RIGHT].extend(rights.map(|(row, cell)| Entry::unchanged(slot, row, cell)));
            work.pair(first, first[RIGHT]);
        }
        Ok(())
    }
}
