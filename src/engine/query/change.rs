//! The changes of a table on their way into its pipeline: each is one step, and acknowledged twice.

use std::collections::VecDeque;
use std::sync::Arc;

use super::output::SharedView;
use crate::engine::delta::Delta;
use crate::engine::error::EngineError;

/// Where an acknowledgement goes.
type Ack<T> = tokio::sync::oneshot::Sender<Result<T, EngineError>>;

/// What one statement changes in a table.
pub(crate) struct TableChange {
    /// Rows added and taken away, against the rows of `read`.
    pub(crate) deltas: Vec<Delta>,
    /// The rows that the statement has read. After the table was resumed from a checkpoint they are others.
    pub(crate) read: Arc<SharedView>,
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
}

impl TableInput {
    /// Adds a change behind those that wait.
    pub(crate) fn push(&mut self, change: TableChange) {
        self.waiting.push_back(change);
    }

    /// Takes the next change for the coming step; `false` if none waits.
    pub(crate) fn take(&mut self) -> bool {
        self.taken = self.waiting.pop_front();
        self.taken.is_some()
    }

    /// What the coming step changes.
    pub(crate) fn deltas(&self) -> Vec<Delta> {
        self.taken
            .as_ref()
            .map_or_else(Vec::new, |change| change.deltas.clone())
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
        for change in self.taken.take().into_iter().chain(self.waiting.drain(..)) {
            change.refuse(error.clone());
        }
    }
}
