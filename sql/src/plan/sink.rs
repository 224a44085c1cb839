//! Whether a sink can say what its query does.

use crate::stream_plan::{StreamOp, StreamPlan};
use crate::suggest::closest;
use crate::{SqlError, SqlState};

/// What was found out about a sink.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SinkCheck {
    /// Columns of the record key, in the order of `primary_key`.
    pub primary_key: Vec<usize>,
    /// What the user should know.
    pub notices: Vec<String>,
}

/// Checks a sink's query against its format. `upsert` is FORMAT UPSERT; `primary_key` names the columns of the key.
///
/// # Errors
/// A query that updates or deletes rows needs FORMAT UPSERT; FORMAT UPSERT needs a `primary_key`, whose columns must exist.
pub fn plan_sink_checks(
    plan: &StreamPlan,
    upsert: bool,
    primary_key: &[String],
) -> Result<SinkCheck, SqlError> {
    let primary_key_columns = key_columns(plan, primary_key)?;
    let mut notices = Vec::new();
    if upsert {
        if primary_key.is_empty() {
            return Err(SqlError::new(
                SqlState::InvalidParameterValue,
                "FORMAT UPSERT needs a primary_key",
            )
            .with_detail("The record key says which row a record replaces or deletes.")
            .with_hint(key_hint(plan)));
        }
        notices.extend(uniqueness_notice(plan, &primary_key_columns, primary_key));
    } else if !plan.root().append_only {
        return Err(SqlError::new(
            SqlState::FeatureNotSupported,
            "FORMAT PLAIN cannot deliver a query that updates or deletes rows",
        )
        .with_detail(retracting(plan))
        .with_hint(plain_hint(plan)));
    }
    Ok(SinkCheck {
        primary_key: primary_key_columns,
        notices,
    })
}

fn key_columns(plan: &StreamPlan, names: &[String]) -> Result<Vec<usize>, SqlError> {
    let schema = &plan.root().schema;
    let mut columns = Vec::with_capacity(names.len());
    for name in names {
        let Some((column, _)) = schema.column_with_name(name) else {
            let error = SqlError::new(
                SqlState::UndefinedColumn,
                format!("column \"{name}\" does not exist"),
            )
            .with_detail("The option primary_key names columns of the sink's query.");
            let near = closest(name, schema.fields().iter().map(|f| f.name().as_str()));
            return Err(match near {
                Some(other) => error.with_hint(format!("Did you mean \"{other}\"?")),
                None => error,
            });
        };
        if columns.contains(&column) {
            return Err(SqlError::new(
                SqlState::DuplicateColumn,
                format!("column \"{name}\" appears twice in primary_key"),
            ));
        }
        columns.push(column);
    }
    Ok(columns)
}

/// Says that several rows may have one record key, if nothing shows that they do not.
fn uniqueness_notice(plan: &StreamPlan, columns: &[usize], names: &[String]) -> Option<String> {
    let unique = match &plan.root().key {
        Some(key) => key.iter().all(|column| columns.contains(column)),
        None => false,
    };
    (!unique).then(|| {
        format!(
            "primary_key ({}) is not known to be unique: the last of several rows with the same key wins. {}",
            names.join(", "),
            key_hint(plan)
        )
    })
}

fn key_hint(plan: &StreamPlan) -> String {
    let root = plan.root();
    match &root.key {
        Some(key) if !key.is_empty() => {
            let names: Vec<&str> = key
                .iter()
                .map(|c| root.schema.field(*c).name().as_str())
                .collect();
            format!(
                "The rows of the query are told apart by primary_key = '{}'.",
                names.join(",")
            )
        }
        _ => "The rows of the query have no key of their own: group by the columns that tell them apart."
            .to_owned(),
    }
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
        Some(StreamOp::RelationScan { relation, .. }) => {
            format!("Rows of materialized view \"{relation}\" are updated.")
        }
        _ => "It takes rows back.".to_owned(),
    }
}

fn plain_hint(plan: &StreamPlan) -> String {
    let can_close = plan
        .nodes
        .iter()
        .any(|node| matches!(&node.op, StreamOp::Aggregate(aggregate) if aggregate.closing.is_some()));
    let upsert = "Use FORMAT UPSERT with primary_key.";
    match can_close {
        true => format!("{upsert} Or end the query with EMIT ON WINDOW CLOSE, which emits each window once."),
        false => upsert.to_owned(),
    }
}
