//! Metrics of the nodes of plans.

use super::{Metric, Seen, Unit, Values, counter, gauge, number, timestamp};
use crate::engine::status::OperatorStatus;

const LABELS: &[&str] = &["query", "node", "operator"];

/// Adds the value of each node that has one.
fn each(seen: &Seen<'_>, values: &mut Values, of: impl Fn(&OperatorStatus) -> Option<f64>) {
    for query in seen.snapshot.all_queries() {
        for operator in &query.operators {
            if let Some(value) = of(operator) {
                values.add(&[&query.name, &operator.node.to_string(), operator.kind], value);
            }
        }
    }
}

pub(super) const METRICS: &[Metric] = &[
    counter(
        "operator_rows_in",
        None,
        LABELS,
        "Rows taken; of a source, records.",
        |seen, values| each(seen, values, |own| Some(number(own.figures.rows_in))),
    ),
    counter(
        "operator_rows_out",
        None,
        LABELS,
        "Rows given.",
        |seen, values| each(seen, values, |own| Some(number(own.figures.rows_out))),
    ),
    counter(
        "operator_busy",
        Some(Unit::Seconds),
        LABELS,
        "How long the operator worked; for a source, how long decoding took.",
        |seen, values| each(seen, values, |own| Some(own.figures.busy_ns as f64 / 1e9)),
    ),
    counter(
        "operator_late_rows",
        None,
        LABELS,
        "Rows that came after their window had closed.",
        |seen, values| each(seen, values, |own| own.stats.map(|stats| number(stats.late_rows))),
    ),
    gauge(
        "operator_state_rows",
        None,
        LABELS,
        "Keys and rows of state in memory.",
        |seen, values| {
            each(seen, values, |own| {
                own.stats.map(|stats| number(stats.state_rows))
            })
        },
    ),
    gauge(
        "operator_state",
        Some(Unit::Bytes),
        LABELS,
        "Bytes of state in memory.",
        |seen, values| {
            each(seen, values, |own| {
                own.stats.map(|stats| number(stats.state_bytes))
            })
        },
    ),
    counter(
        "operator_evicted_keys",
        None,
        LABELS,
        "Keys of state that were evicted to disk.",
        |seen, values| {
            each(seen, values, |own| {
                own.stats.map(|stats| number(stats.evictions.evicted))
            })
        },
    ),
    counter(
        "operator_read_back_keys",
        None,
        LABELS,
        "Keys of state that were read back from disk.",
        |seen, values| {
            each(seen, values, |own| {
                own.stats.map(|stats| number(stats.evictions.read_back))
            })
        },
    ),
    gauge(
        "operator_watermark_timestamp",
        Some(Unit::Seconds),
        LABELS,
        "The watermark by which windows close, in seconds since the epoch.",
        |seen, values| {
            let known = |us: &i64| *us < i64::MAX;
            each(seen, values, |own| own.watermark_us.filter(known).map(timestamp));
        },
    ),
];
