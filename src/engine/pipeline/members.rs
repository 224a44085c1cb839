//! Which queries a pipeline runs: they come, start, are asked how they are, and go.

use highwater_storage::Durability;

use super::failure::fail;
use super::thread::{PipelineThread, fail_with_upstream, failed_queries};
use super::{Departure, Ending, PipelineStatus, Released, Reply, order, step};
use crate::engine::error::EngineError;
use crate::engine::merge::Origin;
use crate::engine::operators::StepContext;
use crate::engine::query::Query;
use crate::engine::query::backfill::{Backfill, Relations};
use crate::engine::query::output::Output;
use crate::engine::reaper::CLOSE_MAX;
use crate::engine::status::QueryStatus;

impl PipelineThread {
    /// Adds a new query at the end of a step.
    pub(super) fn attach(&mut self, mut query: Query) -> Result<(), EngineError> {
        if let Err(error) = self.begin(&mut query) {
            query.stop();
            return Err(error);
        }
        self.add(query);
        Ok(())
    }

    /// Adds queries of the catalog. One that cannot begin is FAILED alone.
    pub(super) fn restore(&mut self, queries: Vec<Query>) -> Result<(), EngineError> {
        let mut outcome = Ok(());
        for mut query in queries {
            if let Err(error) = self.begin(&mut query) {
                fail(&mut query, error.clone());
                outcome = outcome.and(Err(error));
            }
            self.add(query);
        }
        outcome
    }

    fn add(&mut self, query: Query) {
        self.queries.push(query);
        self.queries = order::in_order(std::mem::take(&mut self.queries));
    }

    /// Starts a query: a new one from the content of what it reads.
    fn begin(&mut self, query: &mut Query) -> Result<(), EngineError> {
        // Steps of a query that comes from another pipeline go on from there: their numbers never go back.
        self.steps = self.steps.max(query.output.step());
        if query.failure.is_none() {
            query.start(&self.options.parts, &self.signal)?;
        } else {
            query.output.end_subscriptions(query.failure.as_ref());
        }
        // Queries that come from another pipeline wake this one from now on, and are running already.
        let is_new = !query.is_recorded || query.stages.needs_first_step();
        // Rows of a relation that has failed are beyond its last checkpoint.
        let writes = order::writes(&self.queries);
        fail_with_upstream(query, &writes, &mut failed_queries(&self.queries));
        match query.failure.is_none() && is_new {
            true => self.first_step(query),
            false => Ok(()),
        }
    }

    /// A step of a new query alone: it has an answer for no rows, and the first part of the content of what it reads.
    fn first_step(&mut self, query: &mut Query) -> Result<(), EngineError> {
        let now_us = self.options.parts.clock.now_us();
        let taken = step::take(query, &self.options.parts, now_us)?;
        self.steps += 1;
        let step_us = self.step_us(now_us).max(query.time_us);
        let context = StepContext::at(step_us, &self.options.parts.shards);
        let upstream = (step::unchanged(&self.queries), relations(&self.queries));
        let (prepared, change) = step::run(query, taken, (&upstream.0, &upstream.1), &context)?;
        let table = query.spec.target_table();
        let table = self.queries.iter_mut().find(|other| Some(other.spec.id) == table);
        if let Some(input) = table.and_then(|table| table.table.as_mut()) {
            input.add(Origin::Sink, change.deltas);
        }
        let _visible = self.options.parts.publish.write();
        query
            .output
            .publish(prepared, self.steps, &query.spec.plan.root().schema);
        query.is_dirty = true;
        note_filled(query);
        Ok(())
    }

    /// Tells who waits for queries to have everything that they start from.
    pub(super) fn answer_filled(&mut self) {
        if self.filling.is_empty() {
            return;
        }
        for (id, reply) in std::mem::take(&mut self.filling) {
            match self.queries.iter().find(|query| query.spec.id == id) {
                Some(query) if query.is_filling() => self.filling.push((id, reply)),
                Some(query) => answer(reply, query.failure.clone()),
                None => answer(reply, None),
            }
        }
    }

    /// Takes queries out.
    pub(super) fn detach(&mut self, departure: Departure) -> Result<(), EngineError> {
        // No checkpoint has rows of them after what is written here.
        self.in_flight.wait();
        if let Some(batch) = departure.batch {
            self.options.parts.store.commit(batch, Durability::Sync)?;
        }
        let leaves = |query: &Query| departure.queries.contains(&query.spec.id);
        let (gone, stay) = std::mem::take(&mut self.queries).into_iter().partition(leaves);
        self.queries = stay;
        let gone: Vec<Query> = gone;
        for mut query in gone {
            query.stop();
            if let Some(table) = &mut query.table {
                let error = EngineError::new(
                    "40001",
                    "the table was resumed or dropped while the statement ran",
                );
                table.refuse_all(&error.with_hint("Run the statement again."));
            }
        }
        Ok(())
    }

    /// Ends the work, with a last checkpoint unless nothing is there.
    pub(super) fn release(&mut self, ending: Ending) -> Released {
        let mut outcome = Ok(());
        if ending != Ending::Empty {
            outcome = self.checkpoint_now();
        }
        for query in &mut self.queries {
            query.stop();
        }
        if ending == Ending::Closed {
            let stopped: Vec<_> = self.queries.iter().map(|query| query.spec.id).collect();
            if !self.options.parts.reaper.wait(&stopped, CLOSE_MAX) {
                tracing::warn!(pipeline = self.number, "sources or sinks are still closing");
            }
            // What sinks confirmed while they closed need not be sent again.
            if self.is_dirty() {
                outcome = outcome.and(self.checkpoint_now());
            }
        }
        self.in_flight.wait();
        for own in self.waiting.drain(..) {
            let _ = own
                .reply
                .send(Err(EngineError::new("57P01", "the pipeline has ended")));
        }
        Released {
            queries: std::mem::take(&mut self.queries),
            outcome,
        }
    }

    /// How everything is.
    pub(super) fn status(&self) -> PipelineStatus {
        let paused_by = self.blocked_by();
        let now_us = self.options.parts.clock.now_us();
        let queries = self.queries.iter().map(|query| {
            let lanes = query
                .intakes
                .iter()
                .flat_map(|intake| intake.status(&query.spec, paused_by.as_deref(), now_us));
            QueryStatus {
                id: query.spec.id,
                name: query.spec.name.clone(),
                kind: query.spec.kind(),
                failure: query.failure.clone(),
                watermark_us: query.watermark(),
                lanes: lanes.collect(),
                operators: query.operators(),
                rows: query.output.rows(),
                sink: query.output.sink_status(),
                phase: query.phase(),
                memory: query.memory(),
                clients: query.clients(),
            }
        });
        PipelineStatus {
            number: self.number,
            queries: queries.collect(),
            checkpoint: self.in_flight.status(),
            steps: self.steps,
        }
    }
}

/// Who does not wait any more needs no answer.
fn answer(reply: Reply<Result<(), EngineError>>, failure: Option<EngineError>) {
    let _ = reply.send(failure.map_or(Ok(()), Err));
}

/// The stored rows of the queries, for those that have not taken them yet.
pub(super) fn relations(queries: &[Query]) -> Relations {
    let views = queries.iter().filter_map(|query| match &query.output {
        Output::View(view) => Some((query.spec.id, std::sync::Arc::clone(view))),
        Output::Sink(_) | Output::Table(_) => None,
    });
    views.collect()
}

/// A query that has taken everything that it starts from goes on like the others. Called when the step that took the last of it
/// is visible.
pub(super) fn note_filled(query: &mut Query) {
    if query.backfill.as_ref().is_some_and(Backfill::is_done) {
        query.backfill = None;
        query.output.set_filling(false);
    }
}
