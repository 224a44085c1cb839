//! One step: take what the lanes have decoded, run every query once in dependency order, make the results visible.

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};

use highwater_storage::ObjectId;

use crate::engine::delta::Delta;
use crate::engine::error::EngineError;
use crate::engine::operators::StepContext;
use crate::engine::query::intake::IntakeOutput;
use crate::engine::query::output::{Output, Prepared};
use crate::engine::query::spec::EngineParts;
use crate::engine::query::{Query, UpstreamChange};

/// Rows per batch of a view's content.
const CONTENT_ROWS: usize = 65_536;

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
            row.source.clone_from(&binding.name);
            row.query.clone_from(&query.spec.name);
            parts.errors.add(row);
            tracing::debug!(source = %row.source, offset = row.place.1, reason = %row.reason, "bad record");
        }
    }
    Ok(taken)
}

/// Runs one query and prepares its output. A panic is an error of this query alone.
///
/// # Errors
/// What fails on a row.
pub(super) fn run(
    query: &mut Query,
    taken: Vec<IntakeOutput>,
    upstream: &HashMap<ObjectId, UpstreamChange>,
    context: &StepContext<'_>,
) -> Result<(Prepared, UpstreamChange), EngineError> {
    let run = || {
        let deltas: Vec<Delta> = query.step(taken, upstream, context)?;
        let change = UpstreamChange {
            deltas: deltas.clone(),
            watermark: query.watermark(),
        };
        let prepared = query.output.prepare(&query.spec, deltas)?;
        Ok((prepared, change))
    };
    catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|_| Err(EngineError::internal("an operator panicked")))
}

/// The content of the relations that a new query reads, as if it had just been inserted.
///
/// # Errors
/// Rows that cannot be read.
pub(super) fn content(
    query: &Query,
    all: &[Query],
) -> Result<HashMap<ObjectId, UpstreamChange>, EngineError> {
    let mut content = HashMap::new();
    for id in query.upstream() {
        let Some(upstream) = all.iter().find(|other| other.spec.id == id) else {
            continue;
        };
        let Output::View(view) = &upstream.output else {
            continue;
        };
        let reader = view.rows.lock().reader();
        let deltas = reader
            .contents_as_deltas(CONTENT_ROWS)?
            .collect::<Result<Vec<_>, _>>()?;
        content.insert(
            id,
            UpstreamChange {
                deltas,
                watermark: upstream.watermark(),
            },
        );
    }
    Ok(content)
}
