//! `EXPLAIN ANALYZE` of a query: its plan as DataFusion runs it, with the rows and the time of each operator.

use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use datafusion::logical_expr::LogicalPlan;
use datafusion::physical_plan::streaming::StreamingTableExec;
use datafusion::physical_plan::{ExecutionPlan, displayable, execute_stream};
use futures::StreamExt as _;
use tokio::runtime::Handle;
use tokio::task::AbortHandle;

use super::pool::Lease;
use super::stop::Stopped;
use super::view::READS;
use super::{Work, crashed, partitions_wanted, physical, translate};
use crate::error::Result;

/// Ends a query when nobody waits for it any more.
struct EndWithMe(AbortHandle, Stopped);

impl Drop for EndWithMe {
    fn drop(&mut self) {
        self.1.store(true, Ordering::Relaxed);
        self.0.abort();
    }
}

/// Runs `plan` to its end and lets its rows go; gives the lines of EXPLAIN ANALYZE. The planning has `begun` before.
///
/// # Errors
/// What the query fails with.
pub(crate) async fn analyzed(runtime: &Handle, plan: LogicalPlan, begun: Instant) -> Result<Vec<String>> {
    let stopped = Stopped::default();
    let mut lease = Lease::take();
    let task = lease
        .handle(runtime)
        .spawn(run(plan, begun, Arc::clone(&stopped)));
    let guard = EndWithMe(task.abort_handle(), stopped);
    let lines = task.await;
    drop(guard);
    lease.free();
    lines.map_err(|error| crashed(error.try_into_panic().ok()))?
}

async fn run(plan: LogicalPlan, begun: Instant, stopped: Stopped) -> Result<Vec<String>> {
    let (plan, context) = physical(Work::Plan(plan), partitions_wanted(), stopped).await?;
    let planned = begun.elapsed();
    let begun = Instant::now();
    let mut stream = execute_stream(Arc::clone(&plan), context).map_err(translate)?;
    let mut rows = 0;
    while let Some(batch) = stream.next().await {
        rows += batch.map_err(translate)?.num_rows();
    }
    drop(stream);
    let took = begun.elapsed();
    let mut lines = Vec::new();
    node(&plan, 0, &mut lines);
    lines.push(format!("Planning Time: {}", shown(planned)));
    lines.push(format!("Execution Time: {}", shown(took)));
    lines.push(format!("Rows: {rows}"));
    Ok(lines)
}

fn shown(time: Duration) -> String {
    format!("{:.3} ms", time.as_secs_f64() * 1e3)
}

/// The line of an operator, and below it those of its inputs. The depth of a plan is bounded.
fn node(plan: &Arc<dyn ExecutionPlan>, depth: usize, lines: &mut Vec<String>) {
    let indent = match depth {
        0 => String::new(),
        depth => format!("{}->  ", " ".repeat(6 * depth - 4)),
    };
    let scan = plan.downcast_ref::<StreamingTableExec>();
    let text = match scan.and_then(reads) {
        // It says itself how many rows it has read.
        Some(reads) => reads,
        None => {
            let mut text = displayable(plan.as_ref()).one_line().to_string();
            text.truncate(text.trim_end().len());
            text.push_str(&figures(plan));
            text
        }
    };
    lines.push(format!("{indent}{text}"));
    for child in plan.children() {
        node(child, depth + 1, lines);
    }
}

/// What a scan of a table or a view has read.
fn reads(scan: &StreamingTableExec) -> Option<String> {
    let partitions = scan.partitions().iter();
    let texts = partitions
        .map(|partition| format!("{partition:?}"))
        .filter(|text| text.starts_with(READS));
    let texts: Vec<String> = texts.collect();
    (!texts.is_empty()).then(|| texts.join("; "))
}

/// Rows and time of an operator, as far as it measures them.
fn figures(plan: &Arc<dyn ExecutionPlan>) -> String {
    let metrics = plan.metrics().map(|metrics| metrics.aggregate_by_name());
    let mut text = String::new();
    if let Some(metrics) = metrics {
        let rows = metrics.output_rows().map(|rows| format!("rows={rows}"));
        let time = metrics.elapsed_compute().map(|ns| {
            let time = Duration::from_nanos(u64::try_from(ns).unwrap_or(u64::MAX));
            format!("time={}", shown(time))
        });
        let figures: Vec<String> = rows.into_iter().chain(time).collect();
        if !figures.is_empty() {
            // Writing to a text does not fail.
            let _ = write!(text, " (actual {})", figures.join(" "));
        }
    }
    text
}
