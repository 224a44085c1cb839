//! [`Shard`]: the groups of one part of the keys.

use std::collections::BTreeMap;

use arrow::array::ArrayRef;
use arrow::buffer::BooleanBuffer;
use arrow::datatypes::SchemaRef;

use super::Layout;
use super::accumulator::{self, Accumulator, Rows};
use super::frozen::FrozenShard;
use super::input::Prepared;
use super::linear::add_counts;
use super::output::{Changed, ShardOutput};
use crate::engine::error::EngineError;
use crate::engine::operators::state::chunks::Chunks;
use crate::engine::operators::state::evicted::Evicted;
use crate::engine::operators::state::group_table::{GroupTable, Probed};
use crate::engine::operators::state::idle::Idle;
use crate::engine::operators::state::key::KeyBatch;
use crate::engine::operators::state::slots::SlotSet;
use crate::engine::operators::state::varint;

/// Groups and their aggregates.
pub(super) struct Shard {
    pub(super) table: GroupTable,
    pub(super) accumulators: Vec<Box<dyn Accumulator>>,
    /// Rows per group, where rows can be taken away.
    pub(super) rows: Option<Chunks<i64>>,
    pub(super) marks: Marks,
    /// Slots touched in this step, in the order in which they were; their old values are saved.
    touched: Vec<u32>,
    /// Slots by window column.
    pub(super) windows: Option<BTreeMap<i64, Vec<u32>>>,
    probed: Probed,
    pub(super) evicted: Evicted,
    /// Which groups nothing changes, where they go then.
    idle: Option<Idle>,
    /// Keys of those that went since the last freeze, as they are stored.
    gone: Vec<Vec<u8>>,
}

/// What is known of each slot.
#[derive(Debug, Default)]
pub(super) struct Marks {
    /// It has a key.
    pub(super) live: SlotSet,
    /// Its group's row is in the output.
    pub(super) shown: SlotSet,
    /// It is in `touched`.
    pub(super) touched: SlotSet,
    /// It changed since the last freeze.
    pub(super) dirty: SlotSet,
    /// Its group has no row left. It goes at the next freeze, which still needs its key; where groups are evicted, when that
    /// freeze is durable, for until then the store still has the group.
    pub(super) emptied: SlotSet,
    /// Its window closed since the last freeze.
    pub(super) closed: SlotSet,
    /// It changed since something was evicted last.
    pub(super) warm: SlotSet,
}

impl Shard {
    /// No groups.
    ///
    /// # Errors
    /// Types that cannot be aggregated.
    pub(super) fn try_new(layout: &Layout, input: &SchemaRef) -> Result<Self, EngineError> {
        let accumulators = layout
            .calls
            .iter()
            .map(|call| accumulator::accumulator(call, input, layout.append_only))
            .collect::<Result<_, _>>()?;
        Ok(Self {
            table: GroupTable::new(&layout.key),
            accumulators,
            rows: (!layout.append_only).then(Chunks::new),
            marks: Marks::default(),
            touched: Vec::new(),
            windows: layout.windows.map(|_| BTreeMap::new()),
            probed: Probed::default(),
            evicted: Evicted::default(),
            idle: None,
            gone: Vec::new(),
        })
    }

    /// Lets groups go that nothing has changed for so long (µs).
    pub(super) fn forget_idle(&mut self, ttl_us: i64) {
        self.idle = Some(Idle::new(ttl_us));
    }

    /// The window column of the first groups that are open.
    pub(super) fn first_window(&self) -> Option<i64> {
        let in_memory = self.windows.as_ref()?.keys().next().copied();
        in_memory
            .into_iter()
            .chain(self.evicted.first_window(i64::MAX))
            .min()
    }

    /// When the next groups go.
    pub(super) fn due_us(&self) -> Option<i64> {
        self.idle.as_ref()?.due_us()
    }

    /// Takes the rows of a batch that belong to shard `number`, which is this one.
    ///
    /// # Errors
    /// A value that exceeds its type, and state that cannot be read.
    pub(super) fn apply(
        &mut self,
        layout: &Layout,
        batch: &Prepared,
        number: usize,
    ) -> Result<(), EngineError> {
        let rows = &batch.shards[number];
        if rows.is_empty() {
            return Ok(());
        }
        let mut probed = std::mem::take(&mut self.probed);
        self.find(&batch.keys, rows, &mut probed);
        if self.evicted.is_any() && !probed.created.is_empty() {
            self.read_back(layout, &probed.created)?;
        }
        self.touch(&probed.slots, !layout.emits_on_close());
        let weights: Option<Vec<i64>> = batch
            .weights
            .as_ref()
            .map(|weights| rows.iter().map(|row| weights[*row as usize]).collect());
        let all = Rows {
            rows,
            slots: &probed.slots,
            weights: weights.as_deref(),
        };
        if let Some(counts) = &mut self.rows {
            add_counts(counts, all);
        }
        for (accumulator, argument) in self.accumulators.iter_mut().zip(&batch.arguments) {
            match &argument.counted {
                None => accumulator.update(all, argument)?,
                Some(counted) => {
                    let counted = CountedRows::of(all, counted);
                    accumulator.update(counted.rows(), argument)?;
                }
            }
        }
        self.probed = probed;
        Ok(())
    }

    /// Ends a step: what changed, and what was emitted because its window closed. Windows up to `close_through` close.
    ///
    /// # Errors
    /// A result that exceeds its type.
    pub(super) fn finish_step(
        &mut self,
        layout: &Layout,
        (close_through, now_us): (Option<i64>, i64),
    ) -> Result<ShardOutput, EngineError> {
        if layout.is_global() && self.table.len() == 0 {
            let mut probed = Probed::default();
            self.find(&layout.key.batch(&[])?, &[], &mut probed);
            self.touch(&probed.created, true);
        }
        if let Some(idle) = &mut self.idle {
            idle.start(self.marks.live.iter(), now_us);
            idle.touch(self.touched.iter().copied(), now_us);
        }
        let mut output = self.changes(layout)?;
        output.idle = self.let_idle_go(layout, now_us)?;
        if let Some(through) = close_through {
            output.closed = self.close(layout, through)?;
        }
        Ok(output)
    }

    /// Finds the slots of keys, with new ones where there are none yet.
    pub(super) fn find(&mut self, keys: &KeyBatch, rows: &[u32], probed: &mut Probed) {
        probed.slots.clear();
        probed.created.clear();
        self.table.find_or_insert(keys, rows, probed);
        if probed.created.is_empty() {
            return;
        }
        let slots = self.table.slots_end();
        for accumulator in &mut self.accumulators {
            accumulator.grow(slots);
        }
        if let Some(rows) = &mut self.rows {
            rows.grow(slots, 0);
        }
        for slot in &probed.created {
            self.marks.live.insert(*slot);
            if let Some(windows) = &mut self.windows
                && let Some(window) = self.table.first_word(*slot)
            {
                windows.entry(window).or_default().push(*slot);
            }
        }
    }

    /// Notes which slots change, and what their values were.
    fn touch(&mut self, slots: &[u32], save: bool) {
        let first = self.touched.len();
        self.marks.touched.grow(self.table.slots_end());
        for slot in slots {
            if self.marks.touched.insert(*slot) {
                self.touched.push(*slot);
            }
        }
        let fresh = &self.touched[first..];
        for slot in fresh {
            self.marks.dirty.insert(*slot);
        }
        if save {
            for accumulator in &mut self.accumulators {
                accumulator.save(fresh);
            }
        }
    }

    /// The changed rows of the touched groups.
    fn changes(&mut self, layout: &Layout) -> Result<ShardOutput, EngineError> {
        let touched = std::mem::take(&mut self.touched);
        self.marks.touched.remove_all(&touched);
        if self.rows.is_some() && !layout.is_global() {
            self.note_emptied(&touched)?;
        }
        if layout.emits_on_close() {
            return Ok(ShardOutput::default());
        }
        let mut changed = Changed::default();
        for (slot, at) in touched.iter().zip(0u32..) {
            let (was, is) = (
                self.marks.shown.contains(*slot),
                !self.marks.emptied.contains(*slot),
            );
            changed.note(*slot, at, (was, is));
            if was && !is {
                self.marks.shown.remove(*slot);
            } else if is && !was {
                self.marks.shown.insert(*slot);
            }
        }
        let output = changed.into_output(layout, &self.table, &self.accumulators)?;
        for accumulator in &mut self.accumulators {
            accumulator.forget_saved();
        }
        self.touched = touched;
        self.touched.clear();
        Ok(output)
    }

    /// Notes which of the touched groups have no row left.
    fn note_emptied(&mut self, touched: &[u32]) -> Result<(), EngineError> {
        for slot in touched {
            match self.rows.as_ref().map_or(1, |rows| *rows.get(*slot)) {
                0 => {
                    self.marks.emptied.insert(*slot);
                }
                1.. => self.marks.emptied.remove(*slot),
                _ => {
                    let message = "more rows of a group were taken away than it had";
                    return Err(EngineError::internal(message));
                }
            }
        }
        Ok(())
    }

    /// Frees the groups of windows up to `through`; their rows, if they are emitted now.
    fn close(&mut self, layout: &Layout, through: i64) -> Result<Option<Vec<ArrayRef>>, EngineError> {
        let Some(windows) = &mut self.windows else {
            return Ok(None);
        };
        self.evicted.close(through);
        let mut closed = Vec::new();
        while let Some(first) = windows.first_entry().filter(|first| *first.key() <= through) {
            let (window, slots) = first.remove_entry();
            for slot in slots {
                // A slot that was emptied may belong to another window by now, or stand here twice.
                if self.marks.live.contains(slot) && self.table.first_word(slot) == Some(window) {
                    self.marks.live.remove(slot);
                    closed.push(slot);
                }
            }
        }
        if closed.is_empty() {
            return Ok(None);
        }
        let emitted = if layout.emits_on_close() {
            let with_rows = |slot: &&u32| self.rows.as_ref().is_none_or(|rows| *rows.get(**slot) > 0);
            let emitted: Vec<u32> = closed.iter().filter(with_rows).copied().collect();
            Some(super::output::rows_of(
                layout,
                &self.table,
                &self.accumulators,
                &emitted,
            )?)
        } else {
            None
        };
        for slot in &closed {
            self.marks.shown.remove(*slot);
            self.marks.dirty.remove(*slot);
            self.marks.emptied.remove(*slot);
            self.marks.closed.insert(*slot);
        }
        self.discard(&closed);
        Ok(emitted)
    }

    /// Frees the groups that nothing has changed for a while: their rows, which leave the output.
    fn let_idle_go(&mut self, layout: &Layout, now_us: i64) -> Result<Option<Vec<ArrayRef>>, EngineError> {
        let Some(idle) = &mut self.idle else {
            return Ok(None);
        };
        let mut slots = idle.take(now_us);
        slots.retain(|slot| self.marks.live.contains(*slot));
        if slots.is_empty() {
            return Ok(None);
        }
        let rows = super::output::rows_of(layout, &self.table, &self.accumulators, &slots)?;
        for slot in &slots {
            let mut key = Vec::new();
            self.table.encode(*slot, &mut key);
            self.gone.push(key);
            self.marks.live.remove(*slot);
            self.marks.shown.remove(*slot);
            self.marks.dirty.remove(*slot);
            self.marks.closed.insert(*slot);
        }
        self.discard(&slots);
        Ok(Some(rows))
    }

    /// Forgets groups. Their slots stay unused until the next freeze is over.
    fn discard(&mut self, slots: &[u32]) {
        self.table.remove(slots);
        for accumulator in &mut self.accumulators {
            accumulator.clear(slots);
        }
        if let Some(rows) = &mut self.rows {
            for slot in slots {
                if *rows.get(*slot) != 0 {
                    *rows.get_mut(*slot) = 0;
                }
            }
        }
    }

    /// Whether windows closed since the last freeze.
    pub(super) fn has_closed(&self) -> bool {
        !self.marks.closed.is_empty() || self.evicted.has_closed()
    }

    /// What changed since the last freeze, but for closed windows.
    pub(super) fn freeze(&mut self) -> Option<FrozenShard> {
        let closed = self.marks.closed.take();
        let dirty = self.marks.dirty.take();
        self.evicted.forget_closed();
        if self.is_evictable() {
            self.marks.warm.add_all(&dirty);
        }
        let gone = self.take_emptied(&dirty);
        let frozen = (!dirty.is_empty() || !closed.is_empty()).then(|| FrozenShard {
            keys: self.table.freeze(&dirty),
            rows: self.rows.as_mut().map(|rows| rows.freeze(&dirty)),
            accumulators: self
                .accumulators
                .iter_mut()
                .map(|own| own.freeze(&dirty))
                .collect(),
            dirty,
            closed,
            gone: std::mem::take(&mut self.gone),
        });
        for slot in &gone {
            self.marks.live.remove(*slot);
        }
        self.discard(&gone);
        self.table.reuse_retired();
        frozen
    }

    /// The groups that need not stay although their keys were in use: they have no rows, and a freeze says so.
    fn take_emptied(&mut self, dirty: &SlotSet) -> Vec<u32> {
        // An emptied group may have got rows again.
        let has_none = |slot: &u32| self.rows.as_ref().is_some_and(|rows| *rows.get(*slot) == 0);
        let mut emptied: Vec<u32> = self.marks.emptied.take().iter().filter(has_none).collect();
        if self.evicted.is_any() {
            // Those that change with this freeze stay until it is durable, which it is at the next one.
            for slot in emptied.extract_if(.., |slot| dirty.contains(*slot)) {
                self.marks.emptied.insert(slot);
            }
        }
        emptied
    }

    /// Sets the values of a group from what was stored.
    ///
    /// # Errors
    /// Bytes that are not of this operator.
    pub(super) fn restore_group(
        &mut self,
        slot: u32,
        mut bytes: &[u8],
        shown: bool,
    ) -> Result<(), EngineError> {
        if let Some(rows) = &mut self.rows {
            *rows.get_mut(slot) = varint::read_i64(&mut bytes)?;
        }
        for accumulator in &mut self.accumulators {
            accumulator.restore(slot, &mut bytes)?;
        }
        if !bytes.is_empty() {
            return Err(EngineError::recovery(
                "a group in operator state is longer than it should be",
            ));
        }
        if shown {
            self.marks.shown.insert(slot);
        }
        Ok(())
    }

    /// Sets a counted value of aggregate `call` from what was stored.
    ///
    /// # Errors
    /// Bytes that are not of this operator.
    pub(super) fn restore_entry(
        &mut self,
        call: usize,
        slot: u32,
        value: &[u8],
        count: i64,
    ) -> Result<(), EngineError> {
        self.accumulators[call].restore_entry(slot, value, count)
    }

    /// Groups and counted values.
    pub(super) fn state_rows(&self) -> usize {
        self.table.len() + self.accumulators.iter().map(|own| own.entries()).sum::<usize>()
    }

    /// Bytes of memory.
    pub(super) fn state_bytes(&self) -> usize {
        let marks = &self.marks;
        let marks = [
            &marks.live,
            &marks.shown,
            &marks.touched,
            &marks.dirty,
            &marks.emptied,
            &marks.closed,
            &marks.warm,
        ];
        let windows = self.windows.iter().flat_map(|windows| windows.values());
        self.table.bytes()
            + self.idle.as_ref().map_or(0, Idle::bytes)
            + self.accumulators.iter().map(|own| own.bytes()).sum::<usize>()
            + self.rows.as_ref().map_or(0, Chunks::bytes)
            + marks.iter().map(|set| set.bytes()).sum::<usize>()
            + windows.map(|slots| slots.capacity() * 4 + 32).sum::<usize>()
            + self.touched.capacity() * 4
            + (self.probed.slots.capacity() + self.probed.created.capacity()) * 4
    }
}

/// The rows that an aggregate counts, out of all rows of a shard.
struct CountedRows {
    rows: Vec<u32>,
    slots: Vec<u32>,
    weights: Option<Vec<i64>>,
}

impl CountedRows {
    fn of(all: Rows<'_>, counted: &BooleanBuffer) -> Self {
        // Every row is written; the end moves only past those that count. No branch to predict.
        let mut rows = vec![0; all.rows.len()];
        let mut slots = vec![0; all.rows.len()];
        let mut end = 0;
        for (row, slot) in all.rows.iter().zip(all.slots) {
            rows[end] = *row;
            slots[end] = *slot;
            end += usize::from(counted.value(*row as usize));
        }
        rows.truncate(end);
        slots.truncate(end);
        let weights = all.weights.map(|weights| {
            let pairs = all.rows.iter().zip(weights);
            pairs
                .filter(|(row, _)| counted.value(**row as usize))
                .map(|(_, weight)| *weight)
                .collect()
        });
        Self { rows, slots, weights }
    }

    fn rows(&self) -> Rows<'_> {
        Rows {
            rows: &self.rows,
            slots: &self.slots,
            weights: self.weights.as_deref(),
        }
    }
}
