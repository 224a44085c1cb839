//! Metrics of pipelines and their checkpoints.

use super::{Metric, Seen, Unit, Values, counter, gauge, number, seconds};
use crate::engine::pipeline::PipelineStatus;
use crate::engine::status::CheckpointStatus;

const LABELS: &[&str] = &["pipeline"];

/// Adds the value of each pipeline that has one.
fn each(seen: &Seen<'_>, values: &mut Values, of: impl Fn(&PipelineStatus) -> Option<f64>) {
    for pipeline in &seen.snapshot.pipelines {
        if let Some(value) = of(pipeline) {
            values.add(&[&pipeline.number.to_string()], value);
        }
    }
}

/// Adds the value of the checkpoints of each pipeline.
fn checkpoints(seen: &Seen<'_>, values: &mut Values, of: impl Fn(&CheckpointStatus) -> f64) {
    each(seen, values, |pipeline| Some(of(&pipeline.checkpoint)));
}

pub(super) const METRICS: &[Metric] = &[
    counter(
        "pipeline_steps",
        None,
        LABELS,
        "Steps since the pipeline was started.",
        |seen, values| each(seen, values, |pipeline| Some(number(pipeline.steps))),
    ),
    gauge(
        "checkpoint_epoch",
        None,
        LABELS,
        "The number of the last durable checkpoint.",
        |seen, values| checkpoints(seen, values, |own| number(own.epoch)),
    ),
    counter(
        "checkpoints",
        None,
        LABELS,
        "Checkpoints that became durable.",
        |seen, values| checkpoints(seen, values, |own| number(own.totals.count)),
    ),
    counter(
        "checkpoint_failures",
        None,
        LABELS,
        "Checkpoints that could not be written.",
        |seen, values| checkpoints(seen, values, |own| number(own.totals.failures)),
    ),
    counter(
        "checkpoint_write",
        Some(Unit::Seconds),
        LABELS,
        "How long building and writing checkpoints took.",
        |seen, values| checkpoints(seen, values, |own| seconds(own.totals.write_us)),
    ),
    counter(
        "checkpoint_freeze",
        Some(Unit::Seconds),
        LABELS,
        "How long steps stood still for checkpoints.",
        |seen, values| checkpoints(seen, values, |own| seconds(own.totals.freeze_us)),
    ),
    counter(
        "checkpoint_written",
        Some(Unit::Bytes),
        LABELS,
        "Bytes of checkpoints.",
        |seen, values| checkpoints(seen, values, |own| number(own.totals.bytes)),
    ),
    gauge(
        "checkpoint_last_write",
        Some(Unit::Seconds),
        LABELS,
        "How long building and writing the last checkpoint took.",
        |seen, values| checkpoints(seen, values, |own| seconds(own.write_us)),
    ),
    gauge(
        "checkpoint_last",
        Some(Unit::Bytes),
        LABELS,
        "Bytes of the last checkpoint.",
        |seen, values| checkpoints(seen, values, |own| number(own.bytes)),
    ),
    gauge(
        "checkpoint_age",
        Some(Unit::Seconds),
        LABELS,
        "How long ago the last checkpoint became durable. It grows while there is nothing to record.",
        |seen, values| {
            let now_us = seen.snapshot.now_us;
            each(seen, values, |pipeline| {
                let at_us = Some(pipeline.checkpoint.at_us).filter(|at_us| *at_us > 0)?;
                Some((now_us - at_us).max(0) as f64 / 1e6)
            });
        },
    ),
    gauge(
        "checkpoint_in_flight",
        Some(Unit::Seconds),
        LABELS,
        "How long the checkpoint has been written that is not durable yet; 0 if there is none.",
        |seen, values| checkpoints(seen, values, |own| seconds(own.in_flight_us)),
    ),
];
