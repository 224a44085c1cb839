//! Evicting keys of an arrangement, and reading them back: all rows of a key, of all relations, together.

use std::sync::Arc;

use super::super::evicted::{Evicted, EvictionFigures, SlotKeys, StateHome, coldest, keys_for, share_of};
use super::super::slots::Kept;
use super::restore::cell_of;
use super::{Arrangement, table_of};
use crate::engine::error::EngineError;

/// Evicts from each shard in proportion, until about `goal_bytes` are free: how many are.
pub(crate) fn evict<'s>(shards: impl Iterator<Item = &'s mut Arrangement>, goal_bytes: usize) -> usize {
    let mut shards: Vec<_> = shards.collect();
    let all: usize = shards.iter().map(|shard| shard.bytes()).sum();
    let goals = shards
        .iter_mut()
        .map(|shard| (share_of(goal_bytes, shard.bytes(), all), shard));
    let freed = goals.map(|(goal, shard)| shard.evict(goal)).sum();
    Evicted::together(shards.into_iter().map(|shard| &mut shard.evicted));
    freed
}

impl Arrangement {
    /// Lets keys be evicted: they are found again at `home`.
    pub(crate) fn attach(&mut self, home: &Arc<StateHome>) {
        self.evicted.attach(home);
    }

    /// Whether keys can be evicted: not the only one, and not where rows expire one by one, which bounds them already.
    pub(crate) fn is_evictable(&self) -> bool {
        let expires = self.relations.iter().any(|own| own.times.is_some());
        self.evicted.is_attached() && !self.is_single && !expires
    }

    /// Lets keys go that did not change since the last freeze, until about `goal_bytes` are free: how many are. The store must
    /// have all that was frozen.
    pub(crate) fn evict(&mut self, goal_bytes: usize) -> usize {
        if !self.is_evictable() {
            return 0;
        }
        let before = self.bytes();
        let wanted = keys_for(goal_bytes, before, self.table.len());
        let coldest = coldest(&self.marks.live, &self.marks.dirty, &self.marks.warm, wanted);
        if coldest.is_empty() {
            return 0;
        }
        for slot in coldest.iter() {
            // A key without rows is not in the store either.
            if !self.is_empty(slot) {
                let window = self.windows.is_some().then(|| self.table.first_word(slot));
                self.evicted.note(window.flatten());
            }
        }
        let kept = self.marks.live.iter().filter(|slot| !coldest.contains(*slot));
        self.keep(&Kept::new(kept.collect(), self.table.slots_end()));
        self.marks.warm.take();
        before.saturating_sub(self.bytes())
    }

    /// Lets all go that was loaded; keys of `windows` may be in the store.
    pub(super) fn start_cold(&mut self, windows: &[i64]) {
        self.keep(&Kept::new(Vec::new(), self.table.slots_end()));
        self.evicted.start_cold(windows);
    }

    /// Bytes that a restart may load.
    pub(super) fn room(&self) -> usize {
        if self.is_evictable() {
            self.evicted.room()
        } else {
            usize::MAX
        }
    }

    /// Reads the rows of keys back that have just got their slots.
    pub(super) fn read_back(&mut self, created: &[u32]) -> Result<(), EngineError> {
        let Some(reader) = self.evicted.reader() else {
            return Ok(());
        };
        let keys = SlotKeys::new(&self.table, created);
        for (relation, own) in self.relations.iter_mut().enumerate() {
            reader.under(table_of(relation), &keys, &mut |slot, row, value| {
                own.put(slot, &Arc::from(row), cell_of(value)?);
                Ok(())
            })?;
        }
        let found = created.iter().filter(|slot| !self.is_empty(**slot)).count();
        self.evicted.note_read_back(found);
        Ok(())
    }

    /// Figures for people.
    pub(crate) fn eviction_figures(&self) -> EvictionFigures {
        self.evicted.figures()
    }

    fn keep(&mut self, kept: &Kept) {
        self.table.keep(kept);
        for relation in &mut self.relations {
            relation.keep(kept);
        }
        let marks = &mut self.marks;
        // Changes of closed windows are dropped; that there were some is not forgotten.
        if !marks.closed.take().is_empty() {
            self.evicted.note_closed();
        }
        for marks in [
            &mut marks.live,
            &mut marks.dirty,
            &mut marks.emptied,
            &mut marks.warm,
        ] {
            marks.keep(kept);
        }
        if let Some(windows) = &mut self.windows {
            windows.retain(|_, slots| {
                kept.renumber(slots);
                !slots.is_empty()
            });
        }
    }
}
