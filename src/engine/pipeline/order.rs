//! In which order the queries of a pipeline run: what is read before who reads it, and sinks before the tables that they write
//! into.

use highwater_storage::ObjectId;

use super::failure::fail;
use crate::engine::error::EngineError;
use crate::engine::query::Query;

/// A sink, and the table that it writes into.
pub(super) type Write = (ObjectId, ObjectId);

/// The sinks that write into tables.
pub(super) fn writes(queries: &[Query]) -> Vec<Write> {
    let writes = queries
        .iter()
        .filter_map(|query| Some((query.spec.id, query.spec.target_table()?)));
    writes.collect()
}

/// The queries in the order in which they run; those that do not depend on each other stay in the order of their creation.
pub(super) fn in_order(mut queries: Vec<Query>) -> Vec<Query> {
    let writes = writes(&queries);
    if writes.is_empty() {
        return queries;
    }
    queries.sort_by_key(|query| query.spec.id);
    let mut ordered: Vec<Query> = Vec::with_capacity(queries.len());
    while !queries.is_empty() {
        let waits = |query: &Query| {
            let is_open = |id: ObjectId| queries.iter().any(|other| other.spec.id == id);
            let table = query.spec.id;
            query.upstream().any(is_open)
                || writes.iter().any(|(sink, into)| *into == table && is_open(*sink))
        };
        // Nothing goes round in a circle, or the statement that closed it would have been refused.
        let next = queries.iter().position(|query| !waits(query)).unwrap_or(0);
        ordered.push(queries.remove(next));
    }
    ordered
}

/// Stops the sinks whose tables have failed: what they gave to them since the last checkpoint is lost, so none of it may become
/// durable in their own state (INV-2).
pub(super) fn fail_writers(queries: &mut [Query]) {
    let failed = queries.iter().filter(|query| query.failure.is_some());
    let failed: Vec<(ObjectId, String)> = failed
        .map(|query| (query.spec.id, query.spec.name.clone()))
        .collect();
    for query in queries.iter_mut().filter(|query| query.failure.is_none()) {
        let table = query.spec.target_table();
        if let Some((_, name)) = failed.iter().find(|(id, _)| Some(*id) == table) {
            let error = EngineError::new("55000", format!("\"{name}\", into which it writes, has failed"))
                .with_hint(format!(
                    "Resume \"{name}\": that resumes what writes into it too."
                ));
            fail(query, error);
        }
    }
}
