//! Metrics of queries (tables, materialized views, sinks) and of the delivery of sinks.

use super::{Metric, Seen, Unit, Values, counter, flag, gauge, number, timestamp};
use crate::engine::status::{Phase, QueryStatus, SinkStatus};

const LABELS: &[&str] = &["query", "kind"];
const SINK: &[&str] = &["sink"];

/// Adds the value of each query that has one.
fn each(seen: &Seen<'_>, values: &mut Values, of: impl Fn(&QueryStatus) -> Option<f64>) {
    for query in seen.queries() {
        if let Some(value) = of(query) {
            values.add(&[&query.name, query.kind.noun()], value);
        }
    }
}

/// Adds the value of each sink.
fn sinks(seen: &Seen<'_>, values: &mut Values, of: impl Fn(&SinkStatus) -> f64) {
    for query in seen.queries() {
        if let Some(sink) = &query.sink {
            values.add(&[&query.name], of(sink));
        }
    }
}

/// How far a query is that is being filled.
fn filling(query: &QueryStatus) -> Option<(u64, u64)> {
    match query.phase {
        Phase::Filling(done, rows) => Some((done, rows)),
        Phase::Running | Phase::Ended | Phase::NotRunning => None,
    }
}

pub(super) const METRICS: &[Metric] = &[
    gauge(
        "query_failed",
        None,
        LABELS,
        "1 for a query that is FAILED.",
        |seen, values| each(seen, values, |query| Some(flag(query.failure.is_some()))),
    ),
    gauge(
        "query_rows",
        None,
        LABELS,
        "Rows of a table or view; rows that a sink has made.",
        |seen, values| {
            let is_counted = |query: &QueryStatus| query.phase != Phase::NotRunning;
            each(seen, values, |query| {
                is_counted(query).then(|| number(query.rows))
            });
        },
    ),
    gauge(
        "query_watermark_timestamp",
        Some(Unit::Seconds),
        LABELS,
        "The watermark of the result, in seconds since the epoch.",
        |seen, values| {
            // A query over what never changes has the end of time.
            let known = |us: &i64| *us < i64::MAX;
            each(seen, values, |query| {
                query.watermark_us.filter(known).map(timestamp)
            });
        },
    ),
    gauge(
        "query_backfill_rows_done",
        None,
        LABELS,
        "Rows taken of those that were there before the query, while it takes them.",
        |seen, values| each(seen, values, |query| filling(query).map(|(done, _)| number(done))),
    ),
    gauge(
        "query_backfill_rows",
        None,
        LABELS,
        "Rows that were there before the query, while it takes them.",
        |seen, values| each(seen, values, |query| filling(query).map(|(_, rows)| number(rows))),
    ),
    gauge(
        "sink_outbox_rows",
        None,
        SINK,
        "Rows that the other side has not confirmed.",
        |seen, values| sinks(seen, values, |sink| number(sink.pending_rows)),
    ),
    gauge(
        "sink_outbox",
        Some(Unit::Bytes),
        SINK,
        "Bytes of the rows that the other side has not confirmed.",
        |seen, values| sinks(seen, values, |sink| number(sink.pending_bytes)),
    ),
    gauge(
        "sink_retrying",
        None,
        SINK,
        "1 while the other side does not answer as it should, and delivery is tried again.",
        |seen, values| sinks(seen, values, |sink| flag(sink.state == "retrying")),
    ),
    counter(
        "sink_delivered_rows",
        None,
        SINK,
        "Rows that the other side has confirmed, over all runs.",
        |seen, values| sinks(seen, values, |sink| number(sink.confirmed)),
    ),
    counter(
        "sink_failures",
        None,
        SINK,
        "Deliveries that failed and were tried again, or ended the sink.",
        |seen, values| sinks(seen, values, |sink| number(sink.failures)),
    ),
];
