//! Metrics of lanes: one partition as one query reads it.

use super::{Metric, Seen, Unit, Values, counter, flag, gauge, number, timestamp};
use crate::engine::status::LaneStatus;

const LABELS: &[&str] = &["source", "query", "partition"];

/// Adds the value of each lane that has one.
fn each(seen: &Seen<'_>, values: &mut Values, of: impl Fn(&LaneStatus) -> Option<f64>) {
    for lane in &seen.lanes {
        if let Some(value) = of(lane) {
            values.add(&[&lane.source, &lane.query, &lane.partition.to_string()], value);
        }
    }
}

pub(super) const METRICS: &[Metric] = &[
    gauge(
        "lane_position",
        None,
        LABELS,
        "The next offset that the query takes.",
        |seen, values| each(seen, values, |lane| Some(lane.position as f64)),
    ),
    gauge(
        "lane_durable_offset",
        None,
        LABELS,
        "The next offset as of the last durable checkpoint.",
        |seen, values| {
            each(seen, values, |lane| {
                lane.durable_offset.map(|offset| offset as f64)
            })
        },
    ),
    gauge(
        "lane_end_offset",
        None,
        LABELS,
        "One past the last record of the partition, as last heard.",
        |seen, values| each(seen, values, |lane| lane.end_offset.map(|offset| offset as f64)),
    ),
    gauge(
        "lane_lag",
        None,
        LABELS,
        "Records that are there and not taken yet.",
        |seen, values| {
            let lag = |lane: &LaneStatus| lane.end_offset.map(|end| (end - lane.position).max(0) as f64);
            each(seen, values, lag);
        },
    ),
    gauge(
        "lane_watermark_timestamp",
        Some(Unit::Seconds),
        LABELS,
        "The watermark of the partition, in seconds since the epoch.",
        |seen, values| each(seen, values, |lane| lane.time.watermark_us.map(timestamp)),
    ),
    gauge(
        "lane_idle",
        None,
        LABELS,
        "1 while the watermark does not wait for the partition.",
        |seen, values| each(seen, values, |lane| Some(flag(lane.time.idle))),
    ),
    gauge(
        "lane_paused",
        None,
        LABELS,
        "1 while the partition stands still because something else is behind.",
        |seen, values| each(seen, values, |lane| Some(flag(lane.paused.is_some()))),
    ),
    gauge(
        "lane_in_trouble",
        None,
        LABELS,
        "1 while the outside world does not answer as it should.",
        |seen, values| each(seen, values, |lane| Some(flag(lane.last_error.is_some()))),
    ),
    gauge(
        "lane_rows_per_second",
        None,
        LABELS,
        "Rows taken per second, over the last seconds.",
        |seen, values| each(seen, values, |lane| Some(lane.traffic.rows_per_second)),
    ),
    counter(
        "lane_rows",
        None,
        LABELS,
        "Rows taken, over all runs.",
        |seen, values| each(seen, values, |lane| Some(number(lane.counts.rows))),
    ),
    counter(
        "lane_read",
        Some(Unit::Bytes),
        LABELS,
        "Bytes of the records taken, or of their rows where the source gives rows.",
        |seen, values| each(seen, values, |lane| Some(number(lane.traffic.bytes))),
    ),
    counter(
        "lane_bad_records",
        None,
        LABELS,
        "Records that could not be decoded, over all runs.",
        |seen, values| each(seen, values, |lane| Some(number(lane.counts.bad))),
    ),
    counter(
        "lane_tombstones",
        None,
        LABELS,
        "Records without a value, over all runs.",
        |seen, values| each(seen, values, |lane| Some(number(lane.counts.tombstones))),
    ),
    counter(
        "lane_skewed_rows",
        None,
        LABELS,
        "Rows too far ahead of the clock to move the watermark, over all runs.",
        |seen, values| each(seen, values, |lane| Some(number(lane.counts.skewed))),
    ),
    counter(
        "lane_untimed_rows",
        None,
        LABELS,
        "Rows without an event time, over all runs.",
        |seen, values| each(seen, values, |lane| Some(number(lane.counts.untimed))),
    ),
    counter(
        "lane_lost_records",
        None,
        LABELS,
        "Records that were gone before they were read, over all runs.",
        |seen, values| each(seen, values, |lane| Some(number(lane.counts.lost))),
    ),
];
