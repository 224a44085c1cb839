//! `EXPLAIN ANALYZE`: the plan of a query that runs, with what each node has taken, given, spent and kept.

use std::fmt::Write as _;

use highwater_sql::explain;
use highwater_sql::stream_plan::StreamPlan;

use super::Snapshot;
use crate::engine::status::{OperatorStatus, QueryStatus};

impl Snapshot {
    /// The plan of a query as lines, with the figures of its nodes since the start of the process; then what holds for all.
    pub(crate) fn analyze(&self, name: &str, plan: &StreamPlan) -> Vec<String> {
        let stored = self.stored.queries.iter().map(|(query, _)| query);
        let mut all = self.all_queries().chain(&self.broken).chain(stored);
        let status = all.find(|query| query.name == name);
        let operators = status.map_or(&[][..], |status| status.operators.as_slice());
        let note = |node: usize| operators.get(node).map(figures);
        let text = explain::annotated(plan, &note);
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        lines.extend(status.map(|status| self.totals(status)).into_iter().flatten());
        lines
    }

    fn totals(&self, status: &QueryStatus) -> Vec<String> {
        let result = match &status.sink {
            Some(sink) => format!("{} rows made, {} confirmed", status.rows, sink.confirmed),
            None => format!("{} rows", status.rows),
        };
        let mut lines = vec![format!("State: {}; {result}", status.state())];
        let busy_ns: u64 = status.operators.iter().map(|own| own.figures.busy_ns).sum();
        let state: u64 = status
            .operators
            .iter()
            .filter_map(|own| own.stats)
            .map(|own| own.state_bytes)
            .sum();
        lines.push(format!(
            "Busy: {}; operator state {}, memory beside it {}",
            span(busy_ns),
            size(state),
            size(status.memory.sum() as u64)
        ));
        let pipeline = self
            .pipelines
            .iter()
            .find(|own| own.queries.iter().any(|query| query.id == status.id));
        if let Some(pipeline) = pipeline {
            lines.push(format!(
                "Pipeline: {} steps, last checkpoint {} of {}",
                pipeline.steps,
                pipeline.checkpoint.epoch,
                size(pipeline.checkpoint.bytes)
            ));
        }
        lines
    }
}

/// What stands behind a node.
fn figures(operator: &OperatorStatus) -> String {
    let own = operator.figures;
    let mut text = format!(
        "rows in {}, out {}; busy {}",
        own.rows_in,
        own.rows_out,
        span(own.busy_ns)
    );
    if let Some(stats) = operator.stats {
        // Writing to a text does not fail.
        let _ = write!(
            text,
            "; state {} rows, {}",
            stats.state_rows,
            size(stats.state_bytes)
        );
        if stats.late_rows > 0 {
            let _ = write!(text, "; late {}", stats.late_rows);
        }
        if stats.evictions.evicted > 0 {
            let _ = write!(
                text,
                "; evicted {}, read back {}",
                stats.evictions.evicted, stats.evictions.read_back
            );
        }
    }
    text
}

/// A length of time in a fitting unit.
fn span(ns: u64) -> String {
    match ns {
        0..1_000_000 => format!("{:.3} ms", ns as f64 / 1e6),
        1_000_000..1_000_000_000 => format!("{:.1} ms", ns as f64 / 1e6),
        _ => format!("{:.2} s", ns as f64 / 1e9),
    }
}

/// A size in a fitting unit.
fn size(bytes: u64) -> String {
    match bytes {
        0..10_000 => format!("{bytes} bytes"),
        10_000..10_000_000 => format!("{} kB", bytes / 1000),
        _ => format!("{} MB", bytes / 1_000_000),
    }
}
