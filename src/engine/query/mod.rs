//! A query at run time: the readers it takes rows from, its operators in plan order, and where its result goes.
//!
//! ```text
//! intake (lanes) ─┐
//! table changes  ─┼─▶ stages in plan order ─▶ output (view or sink)
//! upstream deltas ┘
//! ```

pub(crate) mod backfill;
pub(crate) mod change;
pub(crate) mod header;
pub(crate) mod intake;
pub(crate) mod into_table;
pub(crate) mod output;
pub(crate) mod spec;
pub(crate) mod stage;

use std::collections::HashMap;
use std::sync::Arc;

use highwater_connectors::statistics::ClientStatistics;
use highwater_sql::statement::ObjectKind;
use highwater_sql::stream_plan::NodeId;
use highwater_storage::{ObjectId, progress};

use self::backfill::Backfill;
use self::change::TableInput;
use self::header::QueryHeader;
use self::intake::{Intake, IntakeOutput};
use self::output::Output;
use self::spec::{EngineParts, Lifetime, QuerySpec};
use self::stage::Stages;
use crate::engine::delta::Delta;
use crate::engine::error::EngineError;
use crate::engine::lane::queue::Signal;
use crate::engine::merge::Origin;
use crate::engine::operators::StepContext;
use crate::engine::reaper::Reaper;
use crate::engine::status::{MemoryStatus, OperatorStatus, Phase};

/// A running query, owned by its pipeline's thread.
pub(crate) struct Query {
    /// What it was made from.
    pub(crate) spec: Arc<QuerySpec>,
    /// Its readers, one per source.
    pub(crate) intakes: Vec<Intake>,
    /// The changes that wait, for a table.
    pub(crate) table: Option<TableInput>,
    /// Its operators.
    pub(crate) stages: Stages,
    /// Where its result goes.
    pub(crate) output: Output,
    /// What it has not taken yet of the content of the relations that it reads.
    pub(crate) backfill: Option<Backfill>,
    /// Whether a checkpoint has recorded it.
    pub(crate) is_recorded: bool,
    /// Why it stopped, if it did.
    pub(crate) failure: Option<EngineError>,
    /// Whether anything changed since the last freeze.
    pub(crate) is_dirty: bool,
    /// The time of its last step (µs since the epoch); that of the next one is not before it.
    pub(crate) time_us: i64,
    reaper: Arc<Reaper>,
}

impl Query {
    /// Builds the query with the state of its last checkpoint. Its readers start when [`Self::start`] is called. One that
    /// failed and has missed changes of what it reads is FAILED.
    ///
    /// # Errors
    /// State that does not fit the plan or cannot be read exactly (INV-6).
    pub(crate) fn restore(spec: Arc<QuerySpec>, parts: &EngineParts) -> Result<Self, EngineError> {
        if let Some(obstacle) = &spec.obstacle {
            return Err(obstacle.clone());
        }
        let snapshot = parts.store.snapshot();
        let found = match &spec.lifetime {
            Lifetime::Stored => progress::load(snapshot.as_ref(), spec.id)?,
            Lifetime::Followed(start) => start.clone(),
        };
        let header = found
            .query
            .as_ref()
            .map(|query| QueryHeader::decode(&query.extra))
            .transpose()?;
        let stale = header.as_ref().filter(|header| header.stale);
        let stale = stale.map(|header| missed(&spec, header.cause.as_ref()));
        let failure = spec.missing.clone().or(stale);
        let mut stages = Stages::new(&spec, parts)?;
        let output = Output::open(&spec, parts, &found)?;
        if found.query.is_some() && failure.is_none() {
            stages.restore(spec.id, &found, snapshot.as_ref())?;
        }
        let mut intakes = Vec::with_capacity(spec.sources.len());
        for binding in &spec.sources {
            intakes.push(Intake::new(&spec, binding, &found, header.as_ref()));
        }
        stages.restore_watermarks(&intakes, header.as_ref());
        let is_table = spec.kind() == ObjectKind::Table;
        let backfill = Backfill::new(&spec, header.as_ref(), parts.backfill_rows);
        output.set_filling(backfill.is_some());
        // What it misses from now on is to be recorded; what it has missed is.
        let is_dirty = failure.is_none() || spec.missing.is_some();
        Ok(Self {
            table: is_table.then(TableInput::default),
            spec,
            intakes,
            stages,
            output,
            backfill,
            is_recorded: found.query.is_some(),
            is_dirty,
            failure,
            time_us: header.map_or(i64::MIN, |header| header.time_us),
            reaper: Arc::clone(&parts.reaper),
        })
    }

    /// Opens the readers and the sink.
    ///
    /// # Errors
    /// When the operating system gives no thread.
    pub(crate) fn start(&mut self, parts: &EngineParts, signal: &Arc<Signal>) -> Result<(), EngineError> {
        for intake in &mut self.intakes {
            intake.start(&self.spec, parts, signal)?;
        }
        let predecessors = parts.reaper.predecessors(self.spec.id);
        self.output.start(&self.spec, signal, predecessors)
    }

    /// Stops the readers and the sink; the state stays as it is. They close elsewhere: nobody waits here.
    pub(crate) fn stop(&mut self) {
        let readers: Vec<_> = self.intakes.iter_mut().filter_map(Intake::stop).collect();
        let worker = self.output.stop();
        if !readers.is_empty() {
            self.reaper.close(self.spec.id, readers);
        }
        if let Some(worker) = worker {
            self.reaper.close(self.spec.id, worker);
        }
    }

    /// How far the query is: it takes what was there before it, goes on, or its bounded sources have been taken to their ends.
    pub(crate) fn phase(&self) -> Phase {
        if let Some(backfill) = &self.backfill {
            let (rows, of_rows) = backfill.rows();
            return Phase::Filling(rows, of_rows);
        }
        match !self.intakes.is_empty() && self.intakes.iter().all(Intake::is_ended) {
            true => Phase::Ended,
            false => Phase::Running,
        }
    }

    /// Takes what the lanes have decoded.
    ///
    /// # Errors
    /// A lane or source that stopped.
    pub(crate) fn take(&mut self, now_us: i64) -> Result<Vec<IntakeOutput>, EngineError> {
        self.intakes
            .iter_mut()
            .map(|intake| intake.take(now_us))
            .collect()
    }

    /// Runs the operators once over what the lanes and the upstream relations gave. Returns the change of the result.
    ///
    /// # Errors
    /// An expression or aggregate that fails on a row.
    pub(crate) fn step(
        &mut self,
        taken: Vec<IntakeOutput>,
        upstream: &HashMap<ObjectId, UpstreamChange>,
        context: &StepContext<'_>,
    ) -> Result<Vec<Delta>, EngineError> {
        debug_assert!(
            context.now_us >= self.time_us,
            "the time of steps does not go back"
        );
        self.time_us = context.now_us;
        let mut inputs: HashMap<NodeId, Vec<Delta>> = HashMap::new();
        for (intake, output) in self.intakes.iter().zip(taken) {
            for (node, deltas) in intake.tap_nodes().iter().zip(output.taps) {
                match &mut self.table {
                    Some(table) => table.add(Origin::Connector, deltas),
                    None => drop(inputs.insert(*node, deltas)),
                }
            }
            self.stages
                .set_source_watermark(intake.scan_node(), intake.watermark());
        }
        if let (Some(table), Some(rule), Output::View(view)) = (&mut self.table, self.spec.rule, &self.output)
        {
            // The last node of a table takes the change, which is its output.
            let change = table.deltas(rule, || view.rows.lock().reader())?;
            inputs.insert(self.spec.plan.nodes.len() - 1, change);
        }
        let output = self.stages.step(inputs, upstream, context);
        context.late.of_query(&self.spec.name, context.now_us);
        output
    }

    /// Lets go of what it kept for a checkpoint, of a query that none records.
    pub(crate) fn let_go(&mut self) {
        drop(self.stages.freeze());
        for (intake, binding) in self.intakes.iter_mut().zip(&self.spec.sources) {
            let contract = binding.connector.contract(&binding.options);
            let frozen = intake.freeze();
            frozen.resolve(!contract.shares_commits);
        }
    }

    /// Lets go of its state, of a query that runs no more and that no checkpoint records.
    pub(crate) fn discard(&mut self) {
        self.stages.discard();
        self.output.discard();
    }

    /// Whether it has still to take some of what it starts from.
    pub(crate) fn is_filling(&self) -> bool {
        self.failure.is_none() && self.backfill.is_some()
    }

    /// Measures what it holds in memory.
    pub(crate) fn measure(&mut self) {
        let beside = self.memory();
        self.stages.measure(beside.sum());
    }

    /// What the clients of its sources and its sink told of themselves last.
    pub(crate) fn clients(&self) -> Vec<Arc<ClientStatistics>> {
        let sources = self.intakes.iter().filter_map(Intake::client);
        sources.chain(self.output.client()).collect()
    }

    /// Figures of each node of its plan.
    pub(crate) fn operators(&self) -> Vec<OperatorStatus> {
        let on_lanes = self.intakes.iter().flat_map(Intake::figures).collect();
        self.stages.status(&on_lanes)
    }

    /// What it holds in memory beside the state of its operators.
    pub(crate) fn memory(&self) -> MemoryStatus {
        MemoryStatus {
            overlay_bytes: self.output.overlay_bytes(),
            subscribed_bytes: self.output.subscribed_bytes(),
            queue_bytes: self.intakes.iter().map(Intake::queue_bytes).sum(),
            outbox_bytes: self.output.outbox_bytes(),
        }
    }

    /// The objects whose changes it takes.
    pub(crate) fn upstream(&self) -> impl Iterator<Item = ObjectId> + '_ {
        self.spec.relations.iter().map(|(_, id)| *id)
    }

    /// What its dependents see as its watermark.
    pub(crate) fn watermark(&self) -> Option<i64> {
        self.stages.output_watermark()
    }
}

/// The error of a query that failed in an earlier process and has missed changes since: the one for which it failed, if that was
/// recorded.
fn missed(spec: &QuerySpec, cause: Option<&EngineError>) -> EngineError {
    let what = spec.kind().noun().to_uppercase();
    let resume = format!("Run ALTER {what} {} RESUME, which builds it anew.", spec.name);
    let Some(cause) = cause else {
        let message = format!("\"{}\" failed, and missed changes of what it reads", spec.name);
        return EngineError::new("55000", message).with_hint(resume);
    };
    let since = "It has missed changes of what it reads since.";
    // What an earlier restart has added is said once.
    let own = cause.hint.iter().filter_map(|hint| hint.split(since).next());
    let own = own.map(str::trim_end).filter(|hint| !hint.is_empty());
    let hint: Vec<&str> = own.chain([since, &resume]).collect();
    cause.clone().with_hint(hint.join(" "))
}

/// What a step changed in an upstream relation.
#[derive(Debug, Clone, Default)]
pub(crate) struct UpstreamChange {
    /// The change.
    pub(crate) deltas: Vec<Delta>,
    /// The watermark of the relation's event time column after the step (µs).
    pub(crate) watermark: Option<i64>,
}
