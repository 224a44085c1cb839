//! Evicting groups and reading them back: the values of a group and its counted values, together.

use std::sync::Arc;

use super::shard::Shard;
use super::{GROUPS, Layout, entries_table};
use crate::engine::error::EngineError;
use crate::engine::operators::state::evicted::{
    Evicted, EvictionFigures, SlotKeys, StateHome, coldest, keys_for, share_of,
};
use crate::engine::operators::state::slots::{Kept, SlotSet};
use crate::engine::operators::state::stored::versioned;
use crate::engine::operators::state::varint;

/// Evicts from each shard in proportion, until about `goal_bytes` are free: how many are.
pub(super) fn evict(shards: &mut [Shard], goal_bytes: usize) -> usize {
    let all: usize = shards.iter().map(Shard::state_bytes).sum();
    let goals = shards
        .iter_mut()
        .map(|shard| (share_of(goal_bytes, shard.state_bytes(), all), shard));
    let freed = goals.map(|(goal, shard)| shard.evict(goal)).sum();
    Evicted::together(shards.iter_mut().map(|shard| &mut shard.evicted));
    freed
}

impl Shard {
    /// Lets groups be evicted: they are found again at `home`.
    pub(super) fn attach(&mut self, home: &Arc<StateHome>) {
        self.evicted.attach(home);
    }

    /// Whether groups can be evicted.
    pub(super) fn is_evictable(&self) -> bool {
        self.evicted.is_attached()
    }

    /// Bytes that a restart may load.
    pub(super) fn room(&self) -> usize {
        self.evicted.room()
    }

    /// What was evicted and read back.
    pub(super) fn eviction_figures(&self) -> EvictionFigures {
        self.evicted.figures()
    }

    fn evict(&mut self, goal_bytes: usize) -> usize {
        let before = self.state_bytes();
        let wanted = keys_for(goal_bytes, before, self.table.len());
        let coldest = coldest(&self.marks.live, &self.marks.dirty, &self.marks.warm, wanted);
        if coldest.is_empty() || !self.is_evictable() {
            return 0;
        }
        // A group without rows is not in the store either: a checkpoint has deleted it.
        for slot in coldest.iter().filter(|slot| !self.marks.emptied.contains(*slot)) {
            let window = self.windows.is_some().then(|| self.table.first_word(slot));
            self.evicted.note(window.flatten());
        }
        let kept = self.marks.live.iter().filter(|slot| !coldest.contains(*slot));
        self.keep(&Kept::new(kept.collect(), self.table.slots_end()));
        self.marks.warm.take();
        before.saturating_sub(self.state_bytes())
    }

    /// Lets all go that was loaded; groups of `windows` may be in the store.
    pub(super) fn start_cold(&mut self, windows: &[i64]) {
        self.keep(&Kept::new(Vec::new(), self.table.slots_end()));
        self.evicted.start_cold(windows);
    }

    fn keep(&mut self, kept: &Kept) {
        self.table.keep(kept);
        for accumulator in &mut self.accumulators {
            accumulator.keep(kept);
        }
        if let Some(rows) = &mut self.rows {
            rows.keep(kept);
        }
        let marks = &mut self.marks;
        // Counted values of closed windows are dropped; that there were some is not forgotten.
        if !marks.closed.take().is_empty() {
            self.evicted.note_closed();
        }
        let marks = [
            &mut marks.live,
            &mut marks.shown,
            &mut marks.touched,
            &mut marks.dirty,
            &mut marks.emptied,
            &mut marks.warm,
        ];
        marks.into_iter().for_each(|marks| marks.keep(kept));
        if let Some(windows) = &mut self.windows {
            windows.retain(|_, slots| {
                kept.renumber(slots);
                !slots.is_empty()
            });
        }
    }

    /// Reads groups back that have just got their slots.
    ///
    /// # Errors
    /// State that cannot be read (INV-6).
    pub(super) fn read_back(&mut self, layout: &Layout, created: &[u32]) -> Result<(), EngineError> {
        let Some(reader) = self.evicted.reader() else {
            return Ok(());
        };
        let mut keys = SlotKeys::new(&self.table, created);
        let mut found = SlotSet::default();
        reader.get(GROUPS, &keys, &mut |slot, value| {
            found.insert(slot);
            self.restore_group(slot, versioned(value)?, !layout.emits_on_close())
        })?;
        if found.is_empty() {
            return Ok(());
        }
        self.evicted.note_read_back(found.count());
        keys.retain(&found);
        for call in 0..self.accumulators.len() {
            if self.accumulators[call].has_entries() {
                reader.under(entries_table(call), &keys, &mut |slot, value, count| {
                    let count = varint::read_i64(&mut versioned(count)?)?;
                    self.restore_entry(call, slot, value, count)
                })?;
            }
        }
        Ok(())
    }
}
