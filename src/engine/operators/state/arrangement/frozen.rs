//! What changed in arrangements since the last freeze, on its way into a checkpoint.

use highwater_storage::{CheckpointWriter, KeyWriter};

use super::super::group_table::FrozenKeys;
use super::super::slots::SlotSet;
use super::super::sorted::{Sorted, Target};
use super::super::stored::VALUE_VERSION;
use super::super::varint;
use super::relation::{RowChange, keep_last};
use super::{Arrangement, table_of};
use crate::engine::error::EngineError;
use crate::engine::operators::{FrozenState, StateAddress};

/// What changed in an arrangement since the last freeze.
#[derive(Debug)]
pub(crate) struct FrozenArrangement {
    pub(super) keys: FrozenKeys,
    pub(super) closed: SlotSet,
    pub(super) changes: Vec<Vec<RowChange>>,
}

/// Keys that are gone because their windows closed: after the first window column, if any, and through the second.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ClosedRange {
    after: Option<i64>,
    through: i64,
}

/// How far windows have closed, in memory and in the store.
#[derive(Debug, Default)]
pub(crate) struct Closed {
    through: Option<i64>,
    deleted_through: Option<i64>,
}

/// The arrangements of all shards of an operator as of a freeze.
pub(crate) struct FrozenArrangements {
    relations: usize,
    closed: Option<ClosedRange>,
    shards: Vec<FrozenArrangement>,
}

impl FrozenArrangements {
    /// What changed in `shards` since the last freeze, with the windows of `closed` that closed since; `None` if nothing did.
    pub(crate) fn freeze(shards: Vec<&mut Arrangement>, closed: &mut Closed) -> Option<Box<dyn FrozenState>> {
        let relations = shards.first().map_or(0, |shard| shard.relations.len());
        let any_closed = shards.iter().any(|shard| shard.has_closed());
        let closed = if any_closed { closed.take_range() } else { None };
        let shards: Vec<_> = shards.into_iter().filter_map(Arrangement::freeze).collect();
        (closed.is_some() || !shards.is_empty()).then(|| {
            Box::new(Self {
                relations,
                closed,
                shards,
            }) as Box<dyn FrozenState>
        })
    }
}

impl FrozenState for FrozenArrangements {
    fn write(
        self: Box<Self>,
        address: StateAddress,
        writer: &mut CheckpointWriter,
    ) -> Result<(), EngineError> {
        if let Some(closed) = self.closed {
            closed.delete(self.relations, address, writer);
        }
        for shard in self.shards {
            shard.write(address, writer);
        }
        Ok(())
    }
}

impl FrozenArrangement {
    /// Writes the changed rows of each relation to the table of its number.
    pub(crate) fn write(mut self, address: StateAddress, writer: &mut CheckpointWriter) {
        for (relation, changes) in self.changes.iter_mut().enumerate() {
            changes.retain(|change| !self.closed.contains(change.slot));
            keep_last(changes);
            let mut sorted = Sorted::new(changes.len());
            for change in changes.iter() {
                sorted.push(change.cell, |out| {
                    self.keys.encode(change.slot, out);
                    out.extend_from_slice(&change.row);
                });
            }
            let mut target = Target {
                table: address.table(table_of(relation)),
                writer,
            };
            let mut value = Vec::new();
            sorted.for_each(|key, cell| {
                if cell.count == 0 {
                    target.delete(key);
                    return;
                }
                value.clear();
                value.push(VALUE_VERSION);
                varint::put(&mut value, i128::from(cell.count));
                if cell.note != 0 {
                    varint::put(&mut value, i128::from(cell.note));
                }
                target.put(key, &value);
            });
        }
    }
}

impl Closed {
    /// Notes that windows up to `through` closed.
    pub(crate) fn advance(&mut self, through: Option<i64>) {
        self.through = self.through.max(through);
    }

    /// What is to be deleted in the store; called once per freeze, if any window closed since the last one.
    pub(crate) fn take_range(&mut self) -> Option<ClosedRange> {
        let through = self.through?;
        Some(ClosedRange {
            after: self.deleted_through.replace(through),
            through,
        })
    }
}

impl ClosedRange {
    /// Deletes the range in the tables of so many relations.
    pub(crate) fn delete(self, relations: usize, address: StateAddress, writer: &mut CheckpointWriter) {
        let (mut from, mut to) = (Vec::new(), Vec::new());
        let after = self.after.map_or(i64::MIN, |after| after.saturating_add(1));
        KeyWriter::new(&mut from).put_i64(after);
        KeyWriter::new(&mut to).put_i64(self.through.saturating_add(1));
        for relation in 0..relations {
            writer.delete_state_range(address.table(table_of(relation)), &from, &to);
        }
    }
}
