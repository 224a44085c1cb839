//! The changes of a table on their way into its pipeline: each is one step, and acknowledged twice.

use std::collections::VecDeque;
use std::sync::Arc;

use super::output::SharedView;
use crate::engine::delta::Delta;
use crate::engine::error::EngineError;
use crate::engine::merge::{self, Incoming, Origin};
use crate::engine::table::ConflictRule;
use crate::engine::view::ViewReader;

/// Where an acknowledgement goes.
type Ack<T> = tokio::sync::oneshot::Sender<Result<T, EngineError>>;

/// What one statement changes in a table.
pub(crate) struct TableChange {
    /// Rows added and taken away, against the rows of `read`.
    pub(crate) deltas: Vec<Delta>,
    /// The rows that the statement has read. After the table was resumed from a checkpoint they are others.
    pub(crate) read: Arc<SharedView>,
    /// [`SharedView::written`] before it read them.
    pub(crate) written: u64,
    /// Told when the step that has the change is visible.
    pub(crate) visible: Ack<()>,
    /// Told when the checkpoint that has the change is durable.
    pub(crate) durable: Ack<u64>,
}

impl TableChange {
    /// Gives up: nothing of it is done.
    pub(crate) fn refuse(self, error: EngineError) {
        // Who does not wait any more needs no answer.
        let _ = self.visible.send(Err(error));
    }
}

/// The changes of a table that wait for a step. They go along when the table moves to another pipeline.
#[derive(Default)]
pub(crate) struct TableInput {
    waiting: VecDeque<TableChange>,
    taken: Option<TableChange>,
    /// What the connector and sinks change in the coming step.
    incoming: Vec<Incoming>,
    /// Whether they changed the table in the step that is to become visible.
    is_written: bool,
}

/// The SQLSTATE by which a statement is told to read again what it changes.
pub(crate) const READ_AGAIN: &str = "40001";

impl TableInput {
    /// Adds a change behind those that wait.
    pub(crate) fn push(&mut self, change: TableChange) {
        self.waiting.push_back(change);
    }

    /// Takes the next change of a statement for the coming step; `false` if nothing waits for it. A change that was read
    /// before others than statements changed the table, as `written` counts, is given back.
    pub(crate) fn take(&mut self, written: u64) -> bool {
        while let Some(change) = self.waiting.pop_front() {
            if change.written == written {
                self.taken = Some(change);
                break;
            }
            let error = EngineError::new(READ_AGAIN, "the table was changed while the statement ran");
            change.refuse(error.with_hint("Run the statement again."));
        }
        self.taken.is_some() || !self.incoming.is_empty()
    }

    /// Adds what the connector or a sink changes in the coming step.
    pub(crate) fn add(&mut self, origin: Origin, deltas: Vec<Delta>) {
        if deltas.iter().any(|delta| delta.num_rows() > 0) {
            self.incoming.push(Incoming { origin, deltas });
        }
    }

    /// Whether the connector or a sink changes something in the coming step.
    pub(crate) fn has_incoming(&self) -> bool {
        !self.incoming.is_empty()
    }

    /// What the coming step changes; `reader` reads the table as it is before.
    ///
    /// # Errors
    /// Rows that cannot be encoded or read.
    pub(crate) fn deltas(
        &mut self,
        rule: ConflictRule,
        reader: impl FnOnce() -> ViewReader,
    ) -> Result<Vec<Delta>, EngineError> {
        let own = self.taken.as_ref().map(|change| change.deltas.clone());
        if self.incoming.is_empty() {
            return Ok(own.unwrap_or_default());
        }
        self.is_written = true;
        let own = own.map(|deltas| Incoming {
            origin: Origin::Statement,
            deltas,
        });
        let all: Vec<Incoming> = own.into_iter().chain(self.incoming.drain(..)).collect();
        merge::merge(&reader(), rule, &all)
    }

    /// Whether others than statements changed the table in the step that has become visible; told once.
    pub(crate) fn take_written(&mut self) -> bool {
        std::mem::take(&mut self.is_written)
    }

    /// The step is visible; gives who waits for it to be durable.
    pub(crate) fn publish(&mut self) -> Option<Ack<u64>> {
        let change = self.taken.take()?;
        // Who does not wait any more needs no answer.
        let _ = change.visible.send(Ok(()));
        Some(change.durable)
    }

    /// Gives up all changes: the table has failed.
    pub(crate) fn refuse_all(&mut self, error: &EngineError) {
        self.incoming.clear();
        for change in self.taken.take().into_iter().chain(self.waiting.drain(..)) {
            change.refuse(error.clone());
        }
    }
}
