//! `EXPLAIN WHY`: why a query has no output, or less than expected, in plain sentences from how things are.
//!
//! ```text
//! the query and all that it reads ─▶ reasons of each, with how much they explain ─▶ the most likely cause first
//! ```

mod lanes;
mod operators;
mod state;

use std::cmp::Reverse;
use std::collections::BTreeSet;

use arrow::array::{ArrayRef, TimestampMicrosecondArray};
use highwater_sql::catalog::{Object, ObjectBody};
use highwater_sql::statement::ObjectKind;
use highwater_sql::stream_plan::{StreamOp, StreamPlan};
use highwater_sql::text::ColumnText;

use super::Snapshot;
use crate::engine::status::{LaneStatus, QueryStatus};

/// How much a reason explains; the first explains most.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Rank {
    /// It does not run.
    Stopped,
    /// The outside world does not answer, or something full holds it up.
    Trouble,
    /// It has not all rows yet that it starts with.
    Filling,
    /// Nothing comes in.
    Nothing,
    /// Everything is left out on the way.
    Lost,
    /// The result waits for time to pass.
    Waits,
    /// There is more to take.
    Behind,
    /// Some rows are left out on the way.
    Partly,
    /// Good to know.
    Note,
    /// How the query is.
    Summary,
}

/// A reason in words.
struct Reason {
    rank: Rank,
    /// How far upstream it is.
    depth: usize,
    sentence: String,
}

/// The query in question, or one whose changes it takes.
struct Subject<'a> {
    kind: ObjectKind,
    status: &'a QueryStatus,
    plan: &'a StreamPlan,
    lanes: Vec<LaneStatus>,
    /// How far upstream it is.
    depth: usize,
}

impl Subject<'_> {
    /// Kind and name.
    fn title(&self) -> String {
        format!("{} \"{}\"", self.kind.noun(), self.status.name)
    }

    /// The sources that it reads itself.
    fn sources(&self) -> impl Iterator<Item = &str> {
        self.plan.nodes.iter().filter_map(|node| match &node.op {
            StreamOp::SourceScan(scan) => Some(scan.source.as_str()),
            _ => None,
        })
    }

    fn reason(&self, rank: Rank, sentence: String) -> Reason {
        Reason {
            rank,
            depth: self.depth,
            sentence,
        }
    }
}

impl Snapshot {
    /// Why the query of an object has no output, or less than expected: sentences, the most likely cause first, how the query
    /// is last. Nothing for an object without a query.
    pub(crate) fn why(&self, object: &Object) -> Vec<String> {
        let subjects = self.subjects(object);
        let mut reasons = Vec::new();
        for subject in &subjects {
            let goes_on = state::reasons(subject, &mut reasons);
            if goes_on {
                lanes::reasons(self, subject, &mut reasons);
                let upstream = subjects.iter().filter(|other| other.depth >= subject.depth);
                let lanes: Vec<&LaneStatus> = upstream.flat_map(|other| &other.lanes).collect();
                operators::reasons(self, subject, &lanes, &mut reasons);
            }
        }
        if let Some(subject) = subjects.first() {
            let is_alone = reasons.is_empty();
            reasons.push(state::summary(subject, is_alone));
        }
        // What comes first in the data's way explains what comes behind it.
        reasons.sort_by_key(|reason| (reason.rank, Reverse(reason.depth)));
        reasons.into_iter().map(|reason| reason.sentence).collect()
    }

    /// The query of an object, and all whose changes it takes.
    fn subjects(&self, object: &Object) -> Vec<Subject<'_>> {
        let lanes = self.all_lanes();
        let mut seen = BTreeSet::from([object.name.clone()]);
        let mut names = vec![object.name.clone()];
        let mut subjects = Vec::new();
        for depth in 0.. {
            if names.is_empty() {
                break;
            }
            let mut next = Vec::new();
            for name in std::mem::take(&mut names) {
                let Some(subject) = self.subject(&name, depth, &lanes) else {
                    continue;
                };
                next.extend(
                    self.upstream(&subject)
                        .into_iter()
                        .filter(|name| seen.insert(name.clone())),
                );
                subjects.push(subject);
            }
            names = next;
        }
        subjects
    }

    fn subject(&self, name: &str, depth: usize, lanes: &[LaneStatus]) -> Option<Subject<'_>> {
        let object = self.catalog.get(name)?;
        let stored = self.stored.queries.iter().map(|(query, _)| query);
        let mut all = self.all_queries().chain(&self.broken).chain(stored);
        Some(Subject {
            kind: object.body.kind(),
            status: all.find(|query| query.name == name)?,
            plan: object.body.plan()?,
            lanes: lanes.iter().filter(|lane| lane.query == name).cloned().collect(),
            depth,
        })
    }

    /// The relations that a query reads, and the sinks that write into it.
    fn upstream(&self, subject: &Subject<'_>) -> Vec<String> {
        let read = subject.plan.nodes.iter().filter_map(|node| match &node.op {
            StreamOp::RelationScan { relation, .. } => Some(relation.clone()),
            _ => None,
        });
        let name = &subject.status.name;
        let writers = self.catalog.iter().filter_map(|object| match &object.body {
            ObjectBody::Sink(sink) if sink.into.as_ref() == Some(name) => Some(object.name.clone()),
            _ => None,
        });
        read.chain(writers).collect()
    }
}

/// A time without a zone (µs), as SQL shows it.
fn time(us: i64) -> String {
    text(std::sync::Arc::new(TimestampMicrosecondArray::from(vec![us])))
}

/// A time of the clock (µs since the epoch), as SQL shows it.
fn instant(us: i64) -> String {
    let times = TimestampMicrosecondArray::from(vec![us]).with_timezone("UTC");
    text(std::sync::Arc::new(times))
}

fn text(column: ArrayRef) -> String {
    let mut text = String::new();
    ColumnText::new(&column).write(0, &mut text);
    text
}

/// A count and what is counted, in the singular.
fn count(number: u64, noun: &str) -> String {
    match number {
        1 => format!("1 {noun}"),
        number => format!("{number} {noun}s"),
    }
}
