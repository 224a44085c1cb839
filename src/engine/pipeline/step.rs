//! One step: take what the lanes have decoded, run every query once in dependency order, make the results visible.

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Instant;

use highwater_storage::ObjectId;

use crate::engine::delta::Delta;
use crate::engine::error::EngineError;
use crate::engine::operators::StepContext;
use crate::engine::query::backfill::Relations;
use crate::engine::query::intake::IntakeOutput;
use crate::engine::query::output::Prepared;
use crate::engine::query::spec::EngineParts;
use crate::engine::query::{Query, UpstreamChange};

/// Takes what is there for one query.
///
/// # Errors
/// A lane or source that stopped.
pub(super) fn take(
    query: &mut Query,
    parts: &EngineParts,
    now_us: i64,
) -> Result<Vec<IntakeOutput>, EngineError> {
    let taken = query.take(now_us)?;
    for (intake, binding) in query.intakes.iter_mut().zip(&query.spec.sources) {
        for row in intake.new_errors() {
            let own = Arc::make_mut(row);
            own.source.clone_from(&binding.name);
            own.query.clone_from(&query.spec.name);
            parts.errors.add(row);
            tracing::debug!(source = %row.source, offset = row.place.1, reason = %row.reason, "bad record");
        }
    }
    Ok(taken)
}

/// Runs one query and prepares its output; `upstream` are the changes of the relations of this step, and their rows at the end of
/// the one before for who has not taken them yet. A panic is an error of this query alone.
///
/// # Errors
/// What fails on a row.
pub(super) fn run(
    query: &mut Query,
    taken: Vec<IntakeOutput>,
    (upstream, relations): (&HashMap<ObjectId, UpstreamChange>, &Relations),
    context: &StepContext<'_>,
) -> Result<(Prepared, UpstreamChange), EngineError> {
    let run = || {
        let started = Instant::now();
        let backfill = query.backfill.as_mut();
        let parts = backfill
            .map(|backfill| backfill.take(upstream, relations))
            .transpose()?;
        let deltas: Vec<Delta> = query.step(taken, parts.as_ref().unwrap_or(upstream), context)?;
        let (prepared, deltas) = query.output.prepare(&query.spec, deltas)?;
        if let Some(backfill) = &mut query.backfill {
            backfill.pace(started.elapsed());
        }
        let change = UpstreamChange {
            deltas,
            watermark: query.watermark(),
        };
        Ok((prepared, change))
    };
    catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|_| Err(EngineError::internal("an operator panicked")))
}

/// What a step in which nothing changes gives of each relation.
pub(super) fn unchanged(queries: &[Query]) -> HashMap<ObjectId, UpstreamChange> {
    let unchanged = queries.iter().map(|query| {
        let change = UpstreamChange {
            deltas: Vec::new(),
            watermark: query.watermark(),
        };
        (query.spec.id, change)
    });
    unchanged.collect()
}
