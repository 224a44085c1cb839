//! What an operator keeps, and what cleans it, as text for EXPLAIN VERBOSE.

use arrow::datatypes::Schema;

use super::{name_of, names_of};
use crate::plan::Micros;
use crate::stream_plan::{
    Aggregate, AsOf, Join, Over, PlanNode, Session, StreamOp, StreamPlan, TemporalFilter,
};

/// What the node keeps and until when; `None` for one without state.
pub(super) fn text(plan: &StreamPlan, node: &PlanNode) -> Option<String> {
    let empty = Schema::empty();
    let input = |at: usize| {
        let input = node.inputs.get(at).map(|id| plan.nodes[*id].schema.as_ref());
        input.unwrap_or(&empty)
    };
    let (what, until) = match &node.op {
        StreamOp::Aggregate(aggregate) => of_aggregate(aggregate, input(0)),
        StreamOp::Over(over) => of_over(over, input(0)),
        StreamOp::Session(session) => of_session(session, input(0)),
        StreamOp::Join(join) => of_join(join, input(0), input(1)),
        StreamOp::AsOf(asof) => of_asof(asof, input(0)),
        StreamOp::TemporalFilter(filter) => of_temporal(filter),
        StreamOp::SingleRow => ("how many rows there are".to_owned(), None),
        StreamOp::SourceScan(_)
        | StreamOp::TableChanges
        | StreamOp::RelationScan { .. }
        | StreamOp::Values(_)
        | StreamOp::Unnest(_)
        | StreamOp::Filter(_)
        | StreamOp::Project(_)
        | StreamOp::Window { .. }
        | StreamOp::Union => return None,
    };
    let ttl = plan.ttl_us(node);
    let ttl = ttl.map(|ttl_us| format!("until nothing has changed it for {}", Micros(ttl_us)));
    let until = until.or(ttl).unwrap_or_else(|| "for good".to_owned());
    Some(format!("{what}, {until}"))
}

/// Until the watermark has passed a column and what is added to it.
fn passed(column: &str, add_us: i64) -> String {
    match add_us {
        0 => format!("until the watermark passes {column}"),
        add => format!("until the watermark passes {column} + {}", Micros(add)),
    }
}

fn of_aggregate(aggregate: &Aggregate, input: &Schema) -> (String, Option<String>) {
    let what = match aggregate.groups.is_empty() {
        true => "one group".to_owned(),
        false => format!("a group for each ({})", names_of(input, &aggregate.groups)),
    };
    let closing = aggregate.closing.map(|closing| {
        let column = aggregate.groups.get(closing.group).copied();
        passed(name_of(input, column.unwrap_or(usize::MAX)), closing.add_us)
    });
    (what, closing)
}

fn of_over(over: &Over, input: &Schema) -> (String, Option<String>) {
    let what = match over.partition.is_empty() {
        true => "all rows in order".to_owned(),
        false => format!("the rows of each ({}) in order", names_of(input, &over.partition)),
    };
    let closing = over.closing.map(|closing| {
        let column = over.partition.get(closing.group).copied();
        passed(name_of(input, column.unwrap_or(usize::MAX)), closing.add_us)
    });
    (what, closing)
}

fn of_session(session: &Session, input: &Schema) -> (String, Option<String>) {
    let what = match session.partition.is_empty() {
        true => "all rows by time".to_owned(),
        false => format!(
            "the rows of each ({}) by time",
            names_of(input, &session.partition)
        ),
    };
    let closes = session.closes.then(|| passed("window_end", 0));
    (what, closes)
}

fn of_join(join: &Join, left: &Schema, right: &Schema) -> (String, Option<String>) {
    let left_keys: Vec<usize> = join.keys.iter().map(|key| key.left).collect();
    let right_keys: Vec<usize> = join.keys.iter().map(|key| key.right).collect();
    if join.is_temporal {
        let what = format!("the rows of the right side by ({})", names_of(right, &right_keys));
        return (what, Some("until they are taken away".to_owned()));
    }
    let what = match join.keys.is_empty() {
        true => "all rows of both sides".to_owned(),
        false => format!("the rows of both sides by ({})", names_of(left, &left_keys)),
    };
    let closing = join.closing.map(|closing| {
        let column = left_keys.get(closing.key).copied();
        passed(name_of(left, column.unwrap_or(usize::MAX)), closing.add_us)
    });
    let interval = join.interval.map(|interval| {
        let side = |schema: &Schema, time: usize, after_us: Option<i64>| match after_us {
            Some(after_us) => passed(name_of(schema, time), after_us),
            None => "for good".to_owned(),
        };
        format!(
            "left ones {}, right ones {}",
            side(left, interval.left_time, interval.left_after_us),
            side(right, interval.right_time, interval.right_after_us)
        )
    });
    (what, closing.or(interval))
}

fn of_asof(asof: &AsOf, left: &Schema) -> (String, Option<String>) {
    let keys: Vec<usize> = asof.keys.iter().map(|key| key.left).collect();
    let what = match keys.is_empty() {
        true => "the rows of both sides by time".to_owned(),
        false => format!("the rows of both sides by ({}) and time", names_of(left, &keys)),
    };
    let expires = asof.expires.then(|| passed(name_of(left, asof.left_time), 0));
    (what, expires)
}

fn of_temporal(filter: &TemporalFilter) -> (String, Option<String>) {
    let until = match filter.until.is_empty() {
        true => "until their time has come",
        false => "until they are to go",
    };
    ("rows by time".to_owned(), Some(until.to_owned()))
}
