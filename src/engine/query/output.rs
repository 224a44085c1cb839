//! Where a query's result goes: a stored view with its subscribers, or a sink's outbox.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use arrow::datatypes::SchemaRef;
use highwater_connectors::format;
use highwater_connectors::sink::SinkMode;
use highwater_connectors::statistics::ClientStatistics;
use highwater_storage::ObjectProgress;
use parking_lot::Mutex;

use super::into_table::IntoTable;
use super::spec::{EngineParts, QuerySpec, SinkTarget, Target};
use crate::engine::delta::Delta;
use crate::engine::error::EngineError;
use crate::engine::lane::queue::Signal;
use crate::engine::reaper::Predecessors;
use crate::engine::sink::outbox::{FrozenOutbox, Outbox};
use crate::engine::sink::rows::Shape;
use crate::engine::sink::worker::{SinkState, SinkWorker};
use crate::engine::status::SinkStatus;
use crate::engine::subscribe::{ChangeReceiver, Subscribers};
use crate::engine::view::{FrozenView, StartRows, ViewChange, ViewLayout, ViewStore};

/// A stored view as steps, reads and checkpoints share it.
pub(crate) struct SharedView {
    /// Its rows.
    pub(crate) rows: Mutex<ViewStore>,
    /// Who listens to its changes.
    pub(crate) subscribers: Subscribers,
    /// Whether it has not all rows yet that it starts with.
    pub(crate) is_filling: AtomicBool,
    /// Of a table: held by one statement at a time, from what it reads until its change is visible.
    pub(crate) writer: tokio::sync::Mutex<()>,
    /// Of a table: how many steps changed it otherwise than by a statement. Counts up when such a step is visible.
    pub(crate) written: AtomicU64,
    /// The last step that is visible.
    step: AtomicU64,
    /// Whether changes only pass through to who follows them: rows are not kept any more.
    passes: AtomicBool,
}

impl SharedView {
    fn new(rows: ViewStore) -> Self {
        Self {
            rows: Mutex::new(rows),
            subscribers: Subscribers::default(),
            is_filling: AtomicBool::new(false),
            writer: tokio::sync::Mutex::default(),
            written: AtomicU64::new(0),
            step: AtomicU64::new(0),
            passes: AtomicBool::new(false),
        }
    }

    /// The rows as they are, and who gets what steps change from now on. Of a query that is only followed the rows are kept no
    /// longer. Called while no step is published.
    pub(crate) fn follow(&self, is_followed: bool) -> ChangeReceiver {
        let mut rows = self.rows.lock();
        let start = StartRows::new(rows.reader());
        if is_followed && !self.passes.swap(true, Ordering::SeqCst) {
            rows.forget();
        }
        self.subscribers.add(self.step(), start)
    }

    /// The columns of its rows.
    pub(crate) fn schema(&self) -> SchemaRef {
        self.rows.lock().schema()
    }

    /// The last step that is visible.
    pub(crate) fn step(&self) -> u64 {
        self.step.load(Ordering::SeqCst)
    }

    fn passes(&self) -> bool {
        self.passes.load(Ordering::SeqCst)
    }

    /// Makes a step visible.
    fn publish(&self, change: Option<ViewChange>, deltas: &[Delta], step: u64, schema: &SchemaRef) {
        // Who follows it may have come since the change was prepared.
        if let Some(change) = change.filter(|_| !self.passes()) {
            self.rows.lock().apply(change);
        }
        self.step.store(step, Ordering::SeqCst);
        self.subscribers.send(step, schema, deltas);
    }
}

/// The result's place.
pub(crate) enum Output {
    /// A stored view.
    View(Arc<SharedView>),
    /// A sink.
    Sink(SinkOutput),
    /// A table, which takes the rows in the same step.
    Table(IntoTable),
}

/// A sink's outbox and its thread.
pub(crate) struct SinkOutput {
    shape: Shape,
    /// Rows on their way out.
    pub(crate) outbox: Arc<Outbox>,
    worker: Option<SinkWorker>,
}

/// What a step makes of its result before it becomes visible.
pub(crate) enum Prepared {
    /// Encoded view rows unless rows are not kept, with the deltas for subscribers.
    View(Option<ViewChange>, Vec<Delta>),
    /// Nothing more to do: the rows are in the outbox, or the table takes them.
    Sink,
}

/// What a checkpoint writes of an output.
pub(crate) enum FrozenOutput {
    /// Of a failed query.
    Nothing,
    /// Changed rows of a view.
    View(Arc<SharedView>, Option<FrozenView>),
    /// Unconfirmed rows of a sink.
    Sink(Arc<Outbox>, Option<FrozenOutbox>),
    /// Of a sink whose rows are written with the table that has taken them.
    Table,
}

impl Output {
    /// The output with what the last checkpoint left.
    ///
    /// # Errors
    /// What cannot be restored exactly (INV-6).
    pub(crate) fn open(
        spec: &QuerySpec,
        parts: &EngineParts,
        found: &ObjectProgress,
    ) -> Result<Self, EngineError> {
        match &spec.target {
            Target::View | Target::Index(_) => {
                let root = spec.plan.root();
                // Who follows changes is told of rows, whatever their key.
                let key = root.key.as_deref().filter(|_| !spec.is_followed());
                let layout = match &spec.target {
                    Target::Index(columns) => ViewLayout::index(columns, key, root.schema.fields().len()),
                    _ => ViewLayout::choose(key, root.append_only),
                };
                let rows = ViewStore::open(
                    Arc::clone(&parts.store),
                    spec.id,
                    Arc::clone(&root.schema),
                    layout,
                )?;
                Ok(Self::View(Arc::new(SharedView::new(rows))))
            }
            Target::Sink(target) => SinkOutput::open(spec, target, parts, found).map(Self::Sink),
            Target::Table(target) => Ok(Self::Table(IntoTable::new(target))),
        }
    }

    /// Starts delivering, for a sink.
    ///
    /// # Errors
    /// When the operating system gives no thread.
    pub(crate) fn start(
        &mut self,
        spec: &QuerySpec,
        signal: &Arc<Signal>,
        predecessors: Predecessors,
    ) -> Result<(), EngineError> {
        if let Self::Table(table) = self {
            table.set_running(true);
            return Ok(());
        }
        let (Self::Sink(sink), Target::Sink(target)) = (self, &spec.target) else {
            return Ok(());
        };
        let (connector, options, name) = (
            Arc::clone(&target.connector),
            target.options.clone(),
            spec.name.clone(),
        );
        let make = Box::new(move || connector.open(&name, &options));
        let outbox = Arc::clone(&sink.outbox);
        let worker = SinkWorker::start(&spec.name, make, outbox, (Arc::clone(signal), predecessors))?;
        sink.worker = Some(worker);
        Ok(())
    }

    /// Stops delivering. Dropping the sink's thread that is given waits for what is in flight, which may take time.
    pub(crate) fn stop(&mut self) -> Option<SinkWorker> {
        match self {
            Self::View(_) => None,
            Self::Sink(sink) => {
                let worker = sink.worker.take();
                worker.iter().for_each(SinkWorker::end);
                worker
            }
            Self::Table(table) => {
                table.set_running(false);
                None
            }
        }
    }

    /// Notes whether there is still to come what the query starts with.
    pub(crate) fn set_filling(&self, is_filling: bool) {
        if let Self::View(view) = self {
            view.is_filling.store(is_filling, Ordering::SeqCst);
        }
    }

    /// Whether the pipeline must wait for this output.
    pub(crate) fn is_full(&self) -> bool {
        match self {
            Self::View(_) | Self::Table(_) => false,
            Self::Sink(sink) => sink.outbox.is_full(),
        }
    }

    /// Encodes a step's change of a view; puts a sink's rows into the outbox. Gives the change as those take it who read the
    /// result.
    ///
    /// # Errors
    /// Changes that the output cannot take.
    pub(crate) fn prepare(
        &self,
        spec: &QuerySpec,
        deltas: Vec<Delta>,
    ) -> Result<(Prepared, Vec<Delta>), EngineError> {
        match self {
            Self::View(view) => {
                // Encoding and lookups take time: the lock is not held meanwhile, for readers wait for it.
                let base = view.rows.lock().base();
                if view.passes() {
                    let deltas = base.netted(&deltas)?.unwrap_or(deltas);
                    return Ok((Prepared::View(None, deltas.clone()), deltas));
                }
                let mut change = base.prepare(&deltas)?;
                let deltas = change.netted.take().unwrap_or(deltas);
                Ok((Prepared::View(Some(change), deltas.clone()), deltas))
            }
            Self::Sink(sink) => {
                if let Some(rows) = sink.shape.rows(&spec.plan.root().schema, &deltas)? {
                    sink.outbox.append(rows);
                }
                Ok((Prepared::Sink, deltas))
            }
            Self::Table(table) => {
                table.check(&deltas)?;
                Ok((Prepared::Sink, deltas))
            }
        }
    }

    /// Makes a prepared change visible; called with the publish lock held.
    pub(crate) fn publish(&self, prepared: Prepared, step: u64, schema: &SchemaRef) {
        if let (Self::View(view), Prepared::View(change, deltas)) = (self, prepared) {
            view.publish(change, &deltas, step, schema);
        }
    }

    /// Goes back to the rows of a view that the store has; called with the publish lock held.
    ///
    /// # Errors
    /// A store that cannot be read.
    pub(crate) fn revert(&self) -> Result<(), EngineError> {
        match self {
            Self::View(view) if !view.passes() => view.rows.lock().revert(),
            _ => Ok(()),
        }
    }

    /// Forgets the rows of a view that the store does not have.
    pub(crate) fn discard(&self) {
        if let Self::View(view) = self {
            view.rows.lock().forget();
        }
    }

    /// Whether rows are not kept and nobody gets the changes.
    pub(crate) fn is_unfollowed(&self) -> bool {
        matches!(self, Self::View(view) if view.passes() && view.subscribers.is_empty())
    }

    /// The last step that is visible in a view.
    pub(crate) fn step(&self) -> u64 {
        match self {
            Self::View(view) => view.step(),
            Self::Sink(_) | Self::Table(_) => 0,
        }
    }

    /// Tells the subscribers of a view that nothing more comes, and why.
    pub(crate) fn end_subscriptions(&self, reason: Option<&EngineError>) {
        if let (Self::View(view), Some(reason)) = (self, reason) {
            view.subscribers.end(reason);
        }
    }

    /// Takes what changed since the last freeze.
    pub(crate) fn freeze(&self) -> FrozenOutput {
        match self {
            Self::View(view) => FrozenOutput::View(Arc::clone(view), view.rows.lock().freeze()),
            Self::Sink(sink) => FrozenOutput::Sink(Arc::clone(&sink.outbox), sink.outbox.freeze()),
            Self::Table(_) => FrozenOutput::Table,
        }
    }

    /// Whether there is something for a checkpoint that no step has made: confirmations of a sink.
    pub(crate) fn is_unrecorded(&self) -> bool {
        matches!(self, Self::Sink(sink) if sink.outbox.is_unrecorded())
    }

    /// The error for which a sink has stopped for good.
    pub(crate) fn sink_failure(&self) -> Option<EngineError> {
        let Self::Sink(sink) = self else { return None };
        match sink.worker.as_ref()?.state() {
            SinkState::Failed(error) => Some(error),
            SinkState::Running | SinkState::Retrying(_) => None,
        }
    }

    /// How a sink is.
    pub(crate) fn sink_status(&self) -> Option<SinkStatus> {
        let sink = match self {
            Self::View(_) => return None,
            Self::Sink(sink) => sink,
            Self::Table(table) => return Some(table.status()),
        };
        let (pending_bytes, pending_rows) = sink.outbox.pending();
        let (state, error) = match sink.worker.as_ref().map(SinkWorker::state) {
            None => ("stopped", None),
            Some(SinkState::Running) => ("running", None),
            Some(SinkState::Retrying(error)) => ("retrying", Some(error)),
            Some(SinkState::Failed(error)) => ("failed", Some(error)),
        };
        Some(SinkStatus {
            state,
            error,
            pending_rows,
            pending_bytes,
            confirmed: sink.outbox.confirmed_seq(),
            failures: sink.worker.as_ref().map_or(0, SinkWorker::failures),
        })
    }

    /// What the client of a sink told of itself last.
    pub(crate) fn client(&self) -> Option<Arc<ClientStatistics>> {
        match self {
            Self::Sink(sink) => sink.worker.as_ref()?.statistics(),
            Self::View(_) | Self::Table(_) => None,
        }
    }

    /// Bytes of the rows of a view that are not durable yet.
    pub(crate) fn overlay_bytes(&self) -> usize {
        match self {
            Self::View(view) => view.rows.lock().bytes(),
            Self::Sink(_) | Self::Table(_) => 0,
        }
    }

    /// Bytes that are kept for subscribers of a view who have not taken them.
    pub(crate) fn subscribed_bytes(&self) -> usize {
        match self {
            Self::View(view) => view.subscribers.bytes(),
            Self::Sink(_) | Self::Table(_) => 0,
        }
    }

    /// Bytes of a sink's unconfirmed rows.
    pub(crate) fn outbox_bytes(&self) -> usize {
        match self {
            Self::Sink(sink) => usize::try_from(sink.outbox.pending().0).unwrap_or(usize::MAX),
            Self::View(_) | Self::Table(_) => 0,
        }
    }

    /// Rows of a view; rows made by a sink.
    pub(crate) fn rows(&self) -> u64 {
        match self {
            Self::View(view) => view.rows.lock().rows(),
            Self::Sink(sink) => sink.outbox.confirmed_seq() + sink.outbox.pending().1,
            Self::Table(table) => table.rows(),
        }
    }
}

impl SinkOutput {
    fn open(
        spec: &QuerySpec,
        target: &SinkTarget,
        parts: &EngineParts,
        found: &ObjectProgress,
    ) -> Result<Self, EngineError> {
        let schema = &spec.plan.root().schema;
        let shape = match target.encoding.mode {
            SinkMode::Append => Shape::Append,
            SinkMode::Upsert => Shape::upsert(schema, target.encoding.key.clone())?,
        };
        let encoder = match &target.encode {
            Some(encode) => Some(format::encoder(encode, &target.encoding, &target.format_options)?),
            None => None,
        };
        let outbox = Arc::new(Outbox::new(spec.id, encoder, target.outbox_bytes_max));
        if let Some(progress) = found.sink {
            outbox.restore(progress, parts.store.snapshot().as_ref())?;
        }
        Ok(Self {
            shape,
            outbox,
            worker: None,
        })
    }
}
