//! [`ViewBase`]: the rows of a view as the change of a step meets them.

use std::sync::Arc;

use highwater_storage::{Family, Store};

use super::change::{self, ChangeBody, ViewChange};
use super::format::{Shape, ViewFormat};
use super::overlay::Overlay;
use super::read_count;
use crate::engine::delta::Delta;
use crate::engine::error::EngineError;

/// Pointers to the rows of a view: a change is encoded and looked up on them while readers and checkpoints come and go. A
/// checkpoint that becomes durable meanwhile changes nothing, since its rows are here still.
pub(crate) struct ViewBase {
    pub(super) store: Arc<dyn Store>,
    pub(super) format: Arc<ViewFormat>,
    /// The dirty keys, then the frozen ones; none of a log.
    pub(super) overlays: Vec<Overlay>,
    /// How many rows there are.
    pub(super) rows: u64,
}

impl ViewBase {
    /// Encodes the change of a step, to be applied before anything else is prepared. `deltas` are what an operator's step
    /// gives: for a view with a key at most one −1 and one +1 row per key.
    ///
    /// # Errors
    /// A change that cannot be of this view: rows taken away that are not there, columns that do not fit (internal); too much
    /// memory (`53200`), rows too large (`54000`), a store that cannot be read.
    pub(crate) fn prepare(&self, deltas: &[Delta]) -> Result<ViewChange, EngineError> {
        let change = match (self.format.layout.shape(), self.overlays.first()) {
            (Shape::Keyed, Some(dirty)) => change::keyed(&self.format, dirty, deltas),
            (_, Some(dirty)) => change::bag(&self.format, dirty, deltas, |hash, key| self.count(hash, key)),
            (_, None) => change::append(&self.format, deltas),
        }?;
        if self.rows.checked_add_signed(change.rows).is_none() {
            return Err(EngineError::internal("more rows are taken away than a view has"));
        }
        if let ChangeBody::Keys(changes) = &change.body {
            let arenas = self.overlays.iter().map(Overlay::arena_bytes_max);
            if u32::try_from(arenas.sum::<usize>() + changes.bytes()).is_err() {
                return Err(EngineError::new(
                    "53200",
                    "a view has too many rows that are not checkpointed yet",
                )
                .with_hint("Lower checkpoint_interval, or see in hw.checkpoints why none succeeds."));
            }
        }
        Ok(change)
    }

    /// The change of a step with equal rows put together, for who keeps no rows; `None` where no two are equal.
    ///
    /// # Errors
    /// As [`ViewBase::prepare`].
    pub(crate) fn netted(&self, deltas: &[Delta]) -> Result<Option<Vec<Delta>>, EngineError> {
        match (self.format.layout.shape(), self.overlays.first()) {
            (Shape::Bag, Some(dirty)) => {
                // Nobody counts the rows, so there are always enough to take away.
                let change = change::bag(&self.format, dirty, deltas, |_, _| Ok(u64::MAX / 2))?;
                Ok(change.netted)
            }
            _ => Ok(None),
        }
    }

    /// How often a row of a bag is there.
    fn count(&self, hash: u64, key: &[u8]) -> Result<u64, EngineError> {
        if let Some(entry) = self.overlays.iter().find_map(|overlay| overlay.get(hash, key)) {
            return entry.value.map_or(Ok(0), read_count);
        }
        let key = [&self.format.row_prefix()[..], key].concat();
        self.store
            .get(Family::Views, &key)?
            .map_or(Ok(0), |value| read_count(&value))
    }
}
