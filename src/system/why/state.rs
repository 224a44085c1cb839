//! Reasons in the state of a query: it has failed, does not run, is being filled, cannot deliver.

use highwater_sql::show;
use highwater_sql::statement::ObjectKind;

use super::{Rank, Reason, Subject, count};
use crate::engine::error::EngineError;
use crate::engine::status::{Phase, SinkStatus};

/// Adds what the state explains; whether more is to be looked for.
pub(super) fn reasons(subject: &Subject<'_>, reasons: &mut Vec<Reason>) -> bool {
    let (status, title) = (subject.status, subject.title());
    if let Some(failure) = &status.failure {
        reasons.push(subject.reason(Rank::Stopped, failed(subject, failure)));
        return false;
    }
    if status.phase == Phase::NotRunning {
        let sentence = format!("{title} does not run in this process; its last checkpoint is what there is.");
        reasons.push(subject.reason(Rank::Stopped, sentence));
        return true;
    }
    if let Phase::Filling(done, all) = status.phase {
        let sentence = format!(
            "{title} is being filled with what was there before it: it has taken {done} of {}. Who reads it waits until it has all.",
            count(all, "row")
        );
        reasons.push(subject.reason(Rank::Filling, sentence));
    }
    if let Some(sink) = &status.sink {
        reasons.extend(delivery(subject, sink));
    }
    if subject.kind == ObjectKind::Table && status.rows == 0 && subject.lanes.is_empty() {
        reasons.push(subject.reason(Rank::Nothing, format!("{title} has no rows.")));
    }
    true
}

/// How the query is.
pub(super) fn summary(subject: &Subject<'_>, is_alone: bool) -> Reason {
    let (status, title) = (subject.status, subject.title());
    let state = status.state();
    let rows = count(status.rows, "row");
    let mut sentence = match (&status.failure, status.phase, &status.sink) {
        (None, Phase::NotRunning, _) | (Some(_), ..) => format!("{title} is {state}."),
        (None, _, None) => format!("{title} is {state} and has {rows}."),
        (None, _, Some(sink)) => format!(
            "{title} is {state} and has made {rows}, of which {} are confirmed.",
            sink.confirmed
        ),
    };
    if is_alone {
        sentence.push_str(" Nothing holds it back: it has taken all that came.");
    }
    subject.reason(Rank::Summary, sentence)
}

fn failed(subject: &Subject<'_>, failure: &EngineError) -> String {
    let mut sentence = format!(
        "{} FAILED with {}: {}.",
        subject.title(),
        failure.sqlstate,
        failure.message
    );
    for more in failure.detail.iter().chain(&failure.hint) {
        sentence.push(' ');
        sentence.push_str(more);
    }
    if !sentence.contains("RESUME") && !sentence.contains("Resume") {
        sentence.push_str(&format!(
            " ALTER {} {} RESUME lets it go on from its last checkpoint.",
            subject.kind.noun().to_uppercase(),
            show::name(&subject.status.name)
        ));
    }
    sentence
}

fn delivery(subject: &Subject<'_>, sink: &SinkStatus) -> Option<Reason> {
    let title = subject.title();
    let waiting = count(sink.pending_rows, "row");
    match &sink.error {
        Some(error) => {
            let detail = error.detail.as_deref().map(|detail| format!(" {detail}"));
            let sentence = format!(
                "{title} cannot deliver and tries again: {}.{} {waiting} wait in its outbox.",
                error.message,
                detail.unwrap_or_default()
            );
            Some(subject.reason(Rank::Trouble, sentence))
        }
        None if sink.pending_rows > 0 => {
            let sentence = format!("{waiting} of {title} are on their way and not confirmed yet.");
            Some(subject.reason(Rank::Note, sentence))
        }
        None => None,
    }
}
