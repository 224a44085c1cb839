//! What becomes of a query that fails: it stops, and the others go on.

use crate::engine::error::EngineError;
use crate::engine::query::Query;

/// Stops one query; the others go on.
pub(super) fn fail(query: &mut Query, error: EngineError) {
    if query.failure.is_none() {
        if query.spec.is_followed() {
            // Who follows it is told.
            tracing::debug!(query = %query.spec.name, sqlstate = error.sqlstate, error = %error, "subscription ended");
            query.discard();
        } else {
            tracing::error!(
                query = %query.spec.name,
                sqlstate = error.sqlstate,
                error = %error,
                detail = error.detail.as_deref(),
                hint = error.hint.as_deref(),
                "query failed"
            );
        }
        if let Some(table) = &mut query.table {
            table.refuse_all(&error);
        }
        query.failure = Some(error);
        query.output.end_subscriptions(query.failure.as_ref());
        // The next checkpoint says of it whether it misses changes of what it reads.
        query.is_dirty = true;
        query.stop();
    }
}

/// Stops all queries: what the last checkpoint was to write is lost, so they stand at the one before.
pub(super) fn fail_all(queries: &mut [Query], error: &EngineError) {
    queries.iter_mut().for_each(|query| fail(query, error.clone()));
}

/// Stops the queries that nobody follows any more: who did is gone, or was told that it lagged.
pub(super) fn end_unfollowed(queries: &mut [Query]) {
    for query in queries.iter_mut().filter(|query| query.failure.is_none()) {
        if query.output.is_unfollowed() {
            fail(query, EngineError::new("57014", "nobody follows the query"));
        }
    }
}

/// The error of a query that has failed with what it reads.
pub(crate) fn failed_with(upstream: &str) -> EngineError {
    EngineError::new("55000", format!("\"{upstream}\", which it reads, has failed"))
        .with_hint(format!("Resume \"{upstream}\": that resumes what reads it too."))
}

/// What a statement is told that changes a table which has failed.
pub(super) fn failed_table(name: &str, error: &EngineError) -> EngineError {
    let first = match error.sqlstate {
        // What the store could not write it takes again only when it is opened anew.
        "58030" | "53100" => "Free space or mend the disk, start the process again, and then run",
        _ => "Run",
    };
    EngineError::new("55000", format!("table \"{name}\" has failed"))
        .with_detail(format!("Its error is: {}.", error.message))
        .with_hint(format!(
            "{first} ALTER TABLE {name} RESUME, then the statement again."
        ))
}
