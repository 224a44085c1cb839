//! Whether a sink can say what its query does.

use crate::stream_plan::{StreamOp, StreamPlan};
use crate::{SqlError, SqlState};

/// Checks a sink's query against its format and gives what the user should know. `upsert` is FORMAT UPSERT; `primary_key` are
/// the columns of the record key.
///
/// # Errors
/// A query that updates or deletes rows needs FORMAT UPSERT; FORMAT UPSERT needs a `primary_key`.
pub fn plan_sink_checks(
    plan: &StreamPlan,
    upsert: bool,
    primary_key: &[usize],
) -> Result<Vec<String>, SqlError> {
    if !upsert {
        if plan.root().append_only {
            return Ok(Vec::new());
        }
        return Err(SqlError::new(
            SqlState::FeatureNotSupported,
            "FORMAT PLAIN cannot deliver a query that updates or deletes rows",
        )
        .with_detail(retracting(plan))
        .with_hint(plain_hint(plan)));
    }
    if primary_key.is_empty() {
        return Err(SqlError::new(
            SqlState::InvalidParameterValue,
            "FORMAT UPSERT needs a primary_key",
        )
        .with_detail("The record key says which row a record replaces or deletes.")
        .with_hint(key_hint(plan)));
    }
    Ok(uniqueness_notice(plan, primary_key).into_iter().collect())
}

/// Says that several rows may have one record key, if nothing shows that they do not.
fn uniqueness_notice(plan: &StreamPlan, primary_key: &[usize]) -> Option<String> {
    let unique = match &plan.root().key {
        Some(key) => key.iter().all(|column| primary_key.contains(column)),
        None => false,
    };
    (!unique).then(|| {
        format!(
            "primary_key ({}) is not known to be unique: the last of several rows with the same key wins. {}",
            names(plan, primary_key).join(", "),
            key_hint(plan)
        )
    })
}

fn key_hint(plan: &StreamPlan) -> String {
    match &plan.root().key {
        Some(key) if !key.is_empty() => {
            format!(
                "The rows of the query are told apart by primary_key = '{}'.",
                names(plan, key).join(",")
            )
        }
        _ => "The rows of the query have no key of their own: group by the columns that tell them apart."
            .to_owned(),
    }
}

fn names<'p>(plan: &'p StreamPlan, columns: &[usize]) -> Vec<&'p str> {
    let schema = &plan.root().schema;
    columns
        .iter()
        .map(|column| schema.field(*column).name().as_str())
        .collect()
}

/// Which part of the query makes it change rows.
fn retracting(plan: &StreamPlan) -> String {
    let cause = plan.nodes.iter().find(|node| !node.append_only);
    match cause.map(|node| &node.op) {
        Some(StreamOp::Aggregate(aggregate)) if aggregate.groups.is_empty() => {
            "Its aggregate changes with each row.".to_owned()
        }
        Some(StreamOp::Aggregate(_)) => {
            "A row of its GROUP BY changes as more rows of the group come.".to_owned()
        }
        Some(StreamOp::Join(_) | StreamOp::AsOf(_)) => {
            "What its join gives of a row changes as rows of the other side come.".to_owned()
        }
        Some(StreamOp::Session(_)) => "A row changes its window as more rows of its session come.".to_owned(),
        Some(StreamOp::TemporalFilter(_)) => "Its rows go as time passes, because of now().".to_owned(),
        Some(StreamOp::RelationScan { relation, kind, .. }) => {
            format!("Rows of {} \"{relation}\" are updated.", kind.noun())
        }
        _ => "It takes rows back.".to_owned(),
    }
}

fn plain_hint(plan: &StreamPlan) -> String {
    let can_close = plan.nodes.iter().any(|node| match &node.op {
        StreamOp::Aggregate(aggregate) => aggregate.closing.is_some(),
        StreamOp::Session(session) => session.closes,
        _ => false,
    });
    let upsert = "Use FORMAT UPSERT with primary_key.";
    match can_close {
        true => format!("{upsert} Or end the query with EMIT ON WINDOW CLOSE, which emits each window once."),
        false => upsert.to_owned(),
    }
}
