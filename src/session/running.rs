//! EXPLAIN WHY and EXPLAIN ANALYZE: about what runs under a name.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use highwater_sql::statement::{Asks, ObjectKind};

use crate::database::Database;
use crate::error::{Error, Result};
use crate::outcome::Outcome;
use crate::system::{Look, Snapshot};

/// The name of the one column.
fn column(asks: Asks) -> &'static str {
    match asks {
        Asks::Analyze => "QUERY PLAN",
        Asks::Why => "reason",
    }
}

/// The one column that the statement gives.
pub(super) fn schema(asks: Asks) -> SchemaRef {
    Arc::new(Schema::new(vec![Field::new(column(asks), DataType::Utf8, true)]))
}

/// `EXPLAIN ANALYZE | WHY [kind] name`
///
/// # Errors
/// A name that is none, or is that of an object of which nothing runs.
pub(super) async fn explain(
    database: &Database,
    asks: Asks,
    (kind, name, position): (Option<ObjectKind>, &str, usize),
) -> Result<Outcome> {
    let catalog = database.shared.catalog();
    let verb = match asks {
        Asks::Analyze => "EXPLAIN ANALYZE",
        Asks::Why => "EXPLAIN WHY",
    };
    let object = match kind {
        Some(kind) => catalog.resolve_kind(name, kind, verb),
        None => catalog.resolve(name),
    };
    let object = object.map_err(|error| Error::from(error).at(Some(position)))?;
    let Some(plan) = object.body.plan() else {
        let noun = object.body.kind().noun();
        let message = format!("{verb} does not take a {noun}");
        return Err(Error::new("42809", message)
            .with_detail(format!("Nothing runs for {noun} \"{name}\" itself."))
            .with_hint("Name a materialized view, a sink or a table that reads it.")
            .at(Some(position)));
    };
    let snapshot = Snapshot::whole(database, Look::Outside).await?;
    let lines = match asks {
        Asks::Why => snapshot.why(object),
        Asks::Analyze => snapshot.analyze(&object.name, plan),
    };
    let rows = lines.into_iter().map(|line| vec![Some(line)]).collect();
    Outcome::text_rows("EXPLAIN", &[column(asks)], rows)
}
