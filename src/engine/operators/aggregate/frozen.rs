//! The state of an aggregate as of a freeze, and how it is written.

use highwater_storage::{CheckpointWriter, KeyWriter, prefix_end};

use super::accumulator::FrozenAccumulator;
use super::{GROUPS, Layout, entries_table};
use crate::engine::error::EngineError;
use crate::engine::operators::state::chunks::FrozenChunks;
use crate::engine::operators::state::group_table::FrozenKeys;
use crate::engine::operators::state::slots::SlotSet;
use crate::engine::operators::state::sorted::{Sorted, Target};
use crate::engine::operators::state::stored::VALUE_VERSION;
use crate::engine::operators::state::varint;
use crate::engine::operators::{FrozenState, StateAddress};

/// What all shards changed.
pub(super) struct FrozenAggregate {
    calls: usize,
    is_global: bool,
    /// Groups with a window column in this range are gone: after the first, if any, and through the second.
    closed: Option<(Option<i64>, i64)>,
    shards: Vec<FrozenShard>,
}

/// What one shard changed.
pub(super) struct FrozenShard {
    /// Keys of the dirty slots.
    pub(super) keys: FrozenKeys,
    /// Rows of the dirty slots, where rows can be taken away.
    pub(super) rows: Option<FrozenChunks<i64>>,
    /// Values of the dirty slots.
    pub(super) accumulators: Vec<Box<dyn FrozenAccumulator>>,
    /// Slots to be written; to be deleted if they have no rows.
    pub(super) dirty: SlotSet,
    /// Slots whose counted values are not to be written: the window of the group closed.
    pub(super) closed: SlotSet,
    /// Keys of groups that are gone because nothing has changed them for a while. Some may be there again.
    pub(super) gone: Vec<Vec<u8>>,
}

impl FrozenAggregate {
    /// What `shards` changed; groups with a window column in `closed` are gone.
    pub(super) fn new(layout: &Layout, closed: Option<(Option<i64>, i64)>, shards: Vec<FrozenShard>) -> Self {
        Self {
            calls: layout.calls.len(),
            is_global: layout.is_global(),
            closed,
            shards,
        }
    }

    fn delete_closed(&self, address: StateAddress, writer: &mut CheckpointWriter) {
        let Some((after, through)) = self.closed else {
            return;
        };
        let (mut from, mut to) = (Vec::new(), Vec::new());
        KeyWriter::new(&mut from).put_i64(after.map_or(i64::MIN, |after| after.saturating_add(1)));
        KeyWriter::new(&mut to).put_i64(through.saturating_add(1));
        let tables = std::iter::once(GROUPS).chain((0..self.calls).map(entries_table));
        for table in tables {
            writer.delete_state_range(address.table(table), &from, &to);
        }
    }
}

impl FrozenState for FrozenAggregate {
    fn write(
        self: Box<Self>,
        address: StateAddress,
        writer: &mut CheckpointWriter,
    ) -> Result<(), EngineError> {
        self.delete_closed(address, writer);
        for mut shard in self.shards {
            shard.delete_gone(self.calls, address, writer);
            shard.write_groups(
                self.is_global,
                &mut Target {
                    table: address.table(GROUPS),
                    writer,
                },
            );
            for call in 0..self.calls {
                shard.write_entries(
                    call,
                    &mut Target {
                        table: address.table(entries_table(call)),
                        writer,
                    },
                );
            }
        }
        Ok(())
    }
}

impl FrozenShard {
    /// Deletes groups with all that is counted of them, before those that are there again are written.
    fn delete_gone(&self, calls: usize, address: StateAddress, writer: &mut CheckpointWriter) {
        for key in &self.gone {
            let Some(end) = prefix_end(key) else { continue };
            for table in std::iter::once(GROUPS).chain((0..calls).map(entries_table)) {
                writer.delete_state_range(address.table(table), key, &end);
            }
        }
    }

    fn write_groups(&self, is_global: bool, target: &mut Target<'_>) {
        let mut sorted = Sorted::new(self.dirty.count());
        for slot in self.dirty.iter() {
            sorted.push(slot, |out| self.keys.encode(slot, out));
        }
        let mut value = Vec::new();
        sorted.for_each(|key, slot| {
            let rows = self.rows.as_ref().map(|rows| *rows.get(*slot));
            if rows == Some(0) && !is_global {
                target.delete(key);
                return;
            }
            value.clear();
            value.push(VALUE_VERSION);
            if let Some(rows) = rows {
                varint::put(&mut value, i128::from(rows));
            }
            for accumulator in &self.accumulators {
                accumulator.encode(*slot, &mut value);
            }
            target.put(key, &value);
        });
    }

    fn write_entries(&mut self, call: usize, target: &mut Target<'_>) {
        let Self {
            keys,
            accumulators,
            closed,
            ..
        } = self;
        let mut sorted = Sorted::new(0);
        accumulators[call].entries(&mut |slot, value, count| {
            if !closed.contains(slot) {
                sorted.push(count, |out| {
                    keys.encode(slot, out);
                    out.extend_from_slice(value);
                });
            }
        });
        let mut value = Vec::new();
        sorted.for_each(|key, count| {
            if *count == 0 {
                target.delete(key);
                return;
            }
            value.clear();
            value.push(VALUE_VERSION);
            varint::put(&mut value, i128::from(*count));
            target.put(key, &value);
        });
    }
}
