//! [`Shard`]: the partitions of one part of the keys.

use std::sync::Arc;

use super::layout::Layout;
use super::output::{Changes, difference};
use super::partition;
use crate::engine::error::EngineError;
use crate::engine::operators::state::arrangement::Arrangement;
use crate::engine::operators::state::encoded::EncodedRows;
use crate::engine::operators::state::evicted::EvictionFigures;
use crate::engine::operators::state::group_table::Probed;
use crate::engine::operators::state::idle::Idle;
use crate::engine::operators::state::row_set::Cell;

/// The arrangement's only relation.
const ROWS: usize = 0;

/// Ordered rows by partition.
pub(super) struct Shard {
    rows: Arrangement,
    probed: Probed,
    /// Which partitions nothing changes, where they go then.
    idle: Option<Idle>,
}

/// What a shard gives in a step.
#[derive(Debug, Default)]
pub(super) struct ShardOutput {
    /// Rows taken away.
    pub(super) old: Changes,
    /// Rows added.
    pub(super) new: Changes,
}

/// A row that changes in a step.
#[derive(Debug, Clone, Copy)]
struct RowDelta {
    slot: u32,
    batch: u32,
    row: u32,
}

impl Shard {
    /// No rows.
    pub(super) fn new(layout: &Layout) -> Self {
        Self {
            rows: Arrangement::new(&layout.key, 1, layout.closing.is_some()),
            probed: Probed::default(),
            idle: None,
        }
    }

    /// The window column of the first keys that are open, where keys close by one.
    pub(super) fn first_window(&self) -> Option<i64> {
        self.rows.first_window()
    }

    /// Lets partitions go that nothing has changed for so long (µs).
    pub(super) fn forget_idle(&mut self, ttl_us: i64) {
        self.idle = Some(Idle::new(ttl_us));
    }

    /// When the next partitions go.
    pub(super) fn due_us(&self) -> Option<i64> {
        self.idle.as_ref()?.due_us()
    }

    /// Takes the rows of a step that belong to shard `number`, which is this one. Partitions up to `close_through` close.
    ///
    /// # Errors
    /// A function that fails on a row.
    pub(super) fn step(
        &mut self,
        layout: &Layout,
        prepared: &[EncodedRows],
        number: usize,
        (close_through, now_us): (Option<i64>, i64),
    ) -> Result<ShardOutput, EngineError> {
        let mut output = ShardOutput::default();
        let deltas = self.locate(prepared, number)?;
        if let Some(idle) = &mut self.idle {
            idle.start(self.rows.slots(), now_us);
            idle.touch(deltas.iter().map(|delta| delta.slot), now_us);
            let gone = idle.take(now_us);
            self.let_go(layout, &gone, &mut output)?;
        }
        for own in deltas.chunk_by(|left, right| left.slot == right.slot) {
            self.change(layout, prepared, own, &mut output)?;
        }
        if let Some(through) = close_through {
            if layout.emit_on_close {
                for slot in self.rows.closing(through) {
                    output
                        .new
                        .append(&mut partition::given(layout, self.rows.rows(ROWS, slot))?);
                }
            }
            self.rows.close(through);
        }
        Ok(output)
    }

    /// Takes the rows of whole partitions away.
    fn let_go(
        &mut self,
        layout: &Layout,
        slots: &[u32],
        output: &mut ShardOutput,
    ) -> Result<(), EngineError> {
        for slot in slots {
            let rows = self.rows.rows(ROWS, *slot);
            output.old.append(&mut partition::given(layout, rows)?);
            let rows: Vec<_> = rows.iter().map(|(row, _)| Arc::clone(row)).collect();
            for row in rows {
                self.rows.set(ROWS, *slot, &row, Cell::default());
            }
        }
        Ok(())
    }

    /// The rows of this shard, by partition.
    fn locate(&mut self, prepared: &[EncodedRows], number: usize) -> Result<Vec<RowDelta>, EngineError> {
        let mut all = Vec::new();
        for (batch, own) in (0u32..).zip(prepared) {
            let rows = &own.shards[number];
            self.rows.find(&own.keys, rows, &mut self.probed)?;
            let found = rows.iter().zip(&self.probed.slots);
            all.extend(found.map(|(row, slot)| RowDelta {
                slot: *slot,
                batch,
                row: *row,
            }));
        }
        // Rows of one partition stay in the order in which they came.
        all.sort_by_key(|delta| delta.slot);
        Ok(all)
    }

    /// Changes one partition.
    fn change(
        &mut self,
        layout: &Layout,
        prepared: &[EncodedRows],
        deltas: &[RowDelta],
        output: &mut ShardOutput,
    ) -> Result<(), EngineError> {
        let Some(first) = deltas.first() else {
            return Ok(());
        };
        let slot = first.slot;
        let before = match layout.emit_on_close {
            true => Changes::new(),
            false => partition::given(layout, self.rows.rows(ROWS, slot))?,
        };
        self.take(prepared, deltas)?;
        if layout.prunes {
            for (row, kept) in partition::behind(layout, self.rows.rows(ROWS, slot))? {
                self.rows.set(ROWS, slot, &row, Cell { count: kept, note: 0 });
            }
        }
        if !layout.emit_on_close {
            let after = partition::given(layout, self.rows.rows(ROWS, slot))?;
            difference(before, after, &mut output.old, &mut output.new);
        }
        Ok(())
    }

    /// Adds and takes away the rows of one partition.
    fn take(&mut self, prepared: &[EncodedRows], deltas: &[RowDelta]) -> Result<(), EngineError> {
        // The net change of each row: in between a row may be taken away before it comes.
        let bytes = |delta: &RowDelta| prepared[delta.batch as usize].row(delta.row);
        let mut net: Vec<(&[u8], i64)> = deltas
            .iter()
            .map(|delta| (bytes(delta), prepared[delta.batch as usize].weight(delta.row)))
            .collect();
        net.sort_unstable_by(|left, right| left.0.cmp(right.0));
        let slot = deltas[0].slot;
        for own in net.chunk_by(|left, right| left.0 == right.0) {
            let weight: i64 = own.iter().map(|(_, weight)| weight).sum();
            if weight == 0 {
                continue;
            }
            let bytes = own[0].0;
            let (row, count) = match self.rows.rows(ROWS, slot).get(bytes) {
                Some((row, cell)) => (Arc::clone(row), cell.count),
                None => (Arc::from(bytes), 0),
            };
            let count = count + weight;
            if count < 0 {
                return Err(EngineError::internal("a row is taken away that is not there")
                    .with_detail("An ordering was given a change that does not fit its state."));
            }
            self.rows.set(ROWS, slot, &row, Cell { count, note: 0 });
        }
        Ok(())
    }

    /// The rows, to be loaded, frozen and evicted.
    pub(super) fn arrangement(&mut self) -> &mut Arrangement {
        &mut self.rows
    }

    /// How many different rows there are.
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
