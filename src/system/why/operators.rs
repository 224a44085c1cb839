//! Reasons in what the operators of a query do: one lets nothing through, a window waits for the watermark, rows come late.

use std::collections::BTreeMap;

use highwater_sql::stream_plan::StreamOp;

use super::{Rank, Reason, Subject, count, instant, time};
use crate::engine::status::{LaneStatus, OperatorStatus};
use crate::system::Snapshot;
use crate::system::late_rows::json;

/// Adds what the operators of a query explain. `lanes` are all whose rows come to it, by whatever way.
pub(super) fn reasons(
    snapshot: &Snapshot,
    subject: &Subject<'_>,
    lanes: &[&LaneStatus],
    reasons: &mut Vec<Reason>,
) {
    for operator in &subject.status.operators {
        reasons.extend(lets_nothing_through(subject, operator));
        reasons.extend(waits(subject, operator, lanes));
        reasons.extend(late(snapshot, subject, operator));
    }
    let is_fresh = |operator: &OperatorStatus| operator.figures.rows_in == 0;
    let has_rows = subject.lanes.iter().any(|lane| lane.counts.rows > 0);
    if has_rows && subject.status.operators.iter().all(is_fresh) {
        let sentence = format!(
            "No row has come to {} since this process started; what its operators did before is not counted.",
            subject.title()
        );
        reasons.push(subject.reason(Rank::Note, sentence));
    }
}

/// The operator with its query.
fn title(subject: &Subject<'_>, operator: &OperatorStatus) -> String {
    format!("\"{}\" of {}", operator.description, subject.title())
}

fn lets_nothing_through(subject: &Subject<'_>, operator: &OperatorStatus) -> Option<Reason> {
    let node = &subject.plan.nodes[operator.node];
    let (rows_in, rows_out) = (operator.figures.rows_in, operator.figures.rows_out);
    let title = title(subject, operator);
    let sentence = match &node.op {
        StreamOp::Filter(_) if rows_out > 0 && rows_out < rows_in => {
            let sentence = format!("{title} lets {rows_out} of {} through.", count(rows_in, "row"));
            return Some(subject.reason(Rank::Partly, sentence));
        }
        _ if rows_in == 0 || rows_out > 0 => return None,
        StreamOp::Join(_) | StreamOp::AsOf(_) => {
            let given = |at: usize| {
                let input = node
                    .inputs
                    .get(at)
                    .and_then(|input| subject.status.operators.get(*input));
                input.map_or(0, |input| input.figures.rows_out)
            };
            match (given(0), given(1)) {
                (_, 0) => format!("{title} finds no match: nothing has come from its right side."),
                (0, _) => format!("{title} finds no match: nothing has come from its left side."),
                (left, right) => {
                    let left = count(left, "row");
                    format!(
                        "{title} finds no match between {left} of its left side and {right} of its right side."
                    )
                }
            }
        }
        StreamOp::TemporalFilter(_) => {
            let next = operator
                .due_us
                .map(|due| format!(" The next change is at {}.", instant(due)));
            let rows = count(rows_in, "row");
            format!(
                "{title} lets none of {rows} through now.{}",
                next.unwrap_or_default()
            )
        }
        StreamOp::Filter(_) | StreamOp::Unnest(_) | StreamOp::Window { .. } => {
            format!(
                "{title} lets nothing through: {} came in, and none went out.",
                count(rows_in, "row")
            )
        }
        _ => return None,
    };
    Some(subject.reason(Rank::Lost, sentence))
}

/// A window that is given when it closes, and is open.
fn waits(subject: &Subject<'_>, operator: &OperatorStatus, lanes: &[&LaneStatus]) -> Option<Reason> {
    let is_given_when_closed = subject.plan.nodes[operator.node].op.emits_on_close();
    let end_us = operator.next_close_us.filter(|_| is_given_when_closed)?;
    let mut sentence = format!(
        "{} gives a window when the watermark has passed its end: the first open one ends at {}, and ",
        title(subject, operator),
        time(end_us)
    );
    match operator.watermark_us {
        Some(watermark) => sentence.push_str(&format!("the watermark is {}.", time(watermark))),
        None => sentence.push_str("there is no watermark yet."),
    }
    if let Some(holder) = held_back_by(lanes) {
        sentence.push(' ');
        sentence.push_str(&holder);
    }
    Some(subject.reason(Rank::Waits, sentence))
}

/// Whom the watermark waits for.
fn held_back_by(lanes: &[&LaneStatus]) -> Option<String> {
    let mut readings: BTreeMap<(&str, &str), Vec<&LaneStatus>> = BTreeMap::new();
    for lane in lanes {
        readings
            .entry((&lane.query, &lane.source))
            .or_default()
            .push(lane);
    }
    let far = |lanes: &[&LaneStatus]| {
        let awake = lanes
            .iter()
            .filter(|lane| !lane.time.idle)
            .map(|lane| lane.time.watermark_us);
        awake
            .min()
            .unwrap_or_else(|| lanes.iter().map(|lane| lane.time.watermark_us).max().flatten())
    };
    let ((_, source), lanes) = readings.into_iter().min_by_key(|(_, lanes)| far(lanes))?;
    let awake = lanes.iter().filter(|lane| !lane.time.idle);
    let Some(holder) = awake.min_by_key(|lane| lane.time.watermark_us) else {
        let last = lanes.iter().filter_map(|lane| lane.time.silent_since_us).max();
        let since = last.map(|last| format!(" since {}", instant(last)));
        return Some(format!(
            "All partitions of \"{source}\" are silent{}: the watermark stands still until a row with a later time comes, or moves with the clock where the source says idle.advance = 'wall_clock'.",
            since.unwrap_or_default()
        ));
    };
    let mut sentence = format!("Partition {} of \"{source}\" holds it back: ", holder.partition);
    match holder.time.watermark_us {
        None => sentence.push_str("it has shown no row with a time yet"),
        Some(own) => sentence.push_str(&format!("its own watermark is {}", time(own))),
    }
    let furthest = lanes.iter().filter_map(|lane| lane.time.watermark_us).max();
    if let Some(furthest) = furthest.filter(|furthest| holder.time.watermark_us < Some(*furthest)) {
        sentence.push_str(&format!(", the furthest partition's is {}", time(furthest)));
    }
    if let Some(since) = holder.time.silent_since_us {
        sentence.push_str(&format!(", and its last row came at {}", instant(since)));
    }
    sentence.push('.');
    Some(sentence)
}

/// Rows that came when their window had closed.
fn late(snapshot: &Snapshot, subject: &Subject<'_>, operator: &OperatorStatus) -> Option<Reason> {
    let late = operator.stats.as_ref()?.late_rows;
    if late == 0 {
        return None;
    }
    let mut sentence = format!(
        "{} came too late for {}: the watermark had passed their windows, and they were left out.",
        count(late, "row"),
        title(subject, operator)
    );
    let last = snapshot.late.iter().rev();
    let mut last =
        last.filter(|row| row.query == subject.status.name && row.operator == *operator.description);
    if let Some(row) = last.next() {
        sentence.push_str(&format!(
            " One of the last came at {} with the time {}, when the watermark was {}: {}.",
            instant(row.at_us),
            time(row.time_us),
            time(row.watermark_us),
            json(&row.row).unwrap_or_else(|| "it cannot be shown".to_owned())
        ));
    }
    let rank = match late >= operator.figures.rows_in {
        true => Rank::Lost,
        false => Rank::Partly,
    };
    Some(subject.reason(rank, sentence))
}
