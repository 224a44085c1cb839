//! Reasons in what a query reads from outside: no data, a start past the data, trouble, records that were left out, idle
//! partitions.

use std::collections::BTreeMap;

use highwater_sql::statement::ObjectKind;
use highwater_sql::stream_plan::StreamOp;
use highwater_storage::LaneCounts;

use super::{Rank, Reason, Subject, count, instant, time};
use crate::engine::errors_log::ErrorRow;
use crate::engine::status::LaneStatus;
use crate::system::Snapshot;

/// Partitions that a sentence lists at most.
const LISTED_MAX: usize = 5;

/// One source as the query reads it.
struct Reading<'a> {
    subject: &'a Subject<'a>,
    /// Its kind and name.
    title: String,
    lanes: Vec<&'a LaneStatus>,
    counts: LaneCounts,
}

/// Adds what the lanes of a query explain.
pub(super) fn reasons(snapshot: &Snapshot, subject: &Subject<'_>, reasons: &mut Vec<Reason>) {
    let mut sources: BTreeMap<&str, Vec<&LaneStatus>> = BTreeMap::new();
    for lane in &subject.lanes {
        sources.entry(&lane.source).or_default().push(lane);
    }
    for source in subject.sources().filter(|source| !sources.contains_key(source)) {
        let sentence = format!(
            "{} has not begun to read \"{source}\": its partitions are being looked up.",
            subject.title()
        );
        reasons.push(subject.reason(Rank::Nothing, sentence));
    }
    for (name, lanes) in sources {
        let kind = snapshot.catalog.get(name).map(|object| object.body.kind());
        let mut counts = LaneCounts::default();
        lanes.iter().for_each(|lane| counts.add(&lane.counts));
        let reading = Reading {
            subject,
            title: format!("{} \"{name}\"", kind.unwrap_or(ObjectKind::Source).noun()),
            lanes,
            counts,
        };
        let bad = snapshot.errors.iter().rev();
        let last_bad = bad
            .clone()
            .find(|row| row.source == name && row.query == subject.status.name);
        let mode = snapshot.catalog.get(name).and_then(|object| {
            let source = object.body.source()?;
            source.options.get("scan.startup.mode").cloned()
        });
        reasons.extend(reading.trouble());
        reasons.extend(reading.nothing(mode.as_deref()));
        reasons.extend(reading.behind());
        reasons.extend(reading.bad(last_bad.map(AsRef::as_ref)));
        reasons.extend(reading.left_out());
        reasons.extend(reading.idle());
    }
}

impl Reading<'_> {
    fn reason(&self, rank: Rank, sentence: String) -> Reason {
        self.subject.reason(rank, sentence)
    }

    /// Records that came.
    fn taken(&self) -> u64 {
        self.counts.rows + self.counts.bad + self.counts.tombstones
    }

    /// Records that are there and not taken.
    fn lag(&self) -> u64 {
        let lag = |lane: &&LaneStatus| lane.end_offset.map_or(0, |end| (end - lane.position).max(0));
        self.lanes.iter().map(lag).sum::<i64>().unsigned_abs()
    }

    /// The outside world does not answer, or the source was told to wait.
    fn trouble(&self) -> Vec<Reason> {
        let title = &self.title;
        let mut reasons = Vec::new();
        if let Some(error) = self.lanes.iter().find_map(|lane| lane.last_error.as_ref()) {
            let sentence =
                format!("{title} is in trouble: {error}. It is tried again, and goes on where it stopped.");
            reasons.push(self.reason(Rank::Trouble, sentence));
        }
        let mut paused: BTreeMap<&str, Vec<i32>> = BTreeMap::new();
        for lane in &self.lanes {
            if let Some(why) = &lane.paused {
                paused.entry(why).or_default().push(lane.partition);
            }
        }
        for (why, partitions) in paused {
            let sentence = match partitions.len() == self.lanes.len() {
                true => format!("{title} is paused: {why}."),
                false => format!("{} of {title} paused: {why}.", listed(&partitions)),
            };
            reasons.push(self.reason(Rank::Trouble, sentence));
        }
        reasons
    }

    /// Nothing has ever come.
    fn nothing(&self, mode: Option<&str>) -> Option<Reason> {
        if self.taken() > 0 || self.lag() > 0 {
            return None;
        }
        let title = &self.title;
        let past = self.lanes.iter().find(|lane| lane.position > 0);
        let sentence = match past {
            Some(lane) => {
                let mode = mode.map(|mode| format!(" (scan.startup.mode = '{mode}')"));
                format!(
                    "Nothing has come from {title} since {} was created: it starts past the data{}. Partition {} is read from offset {} on, and nothing stands there yet. What is before is read by a source with scan.startup.mode = 'earliest'.",
                    self.subject.title(),
                    mode.unwrap_or_default(),
                    lane.partition,
                    lane.position,
                )
            }
            None if self.lanes.iter().all(|lane| lane.end_offset.is_none()) => {
                format!("Nothing is known of {title} yet: it has not said where its partitions end.")
            }
            None => format!(
                "{title} has no data: {}.",
                match self.lanes.len() {
                    1 => "its partition is empty".to_owned(),
                    partitions => format!("its {partitions} partitions are empty"),
                }
            ),
        };
        Some(self.reason(Rank::Nothing, sentence))
    }

    fn behind(&self) -> Option<Reason> {
        let lag = self.lag();
        let sentence = format!("{} of {} are not taken yet.", count(lag, "record"), self.title);
        (lag > 0).then(|| self.reason(Rank::Behind, sentence))
    }

    /// Records that could not be decoded, and why the last one could not.
    fn bad(&self, last: Option<&ErrorRow>) -> Option<Reason> {
        let (bad, taken) = (self.counts.bad, self.taken());
        if bad == 0 {
            return None;
        }
        let mut sentence = format!(
            "{bad} of {} of {} could not be decoded and were left out",
            count(taken, "record"),
            self.title
        );
        if let Some(last) = last {
            let column = last
                .column
                .as_ref()
                .map(|column| format!("column \"{column}\": "));
            sentence.push_str(&format!(
                "; the last one, at offset {} of partition {}: {}{}",
                last.place.1,
                last.place.0,
                column.unwrap_or_default(),
                last.reason
            ));
        }
        sentence.push_str(". hw.errors has them.");
        let rank = if bad == taken { Rank::Lost } else { Rank::Partly };
        Some(self.reason(rank, sentence))
    }

    /// Other records that change nothing.
    fn left_out(&self) -> Vec<Reason> {
        let (title, counts) = (&self.title, &self.counts);
        let operators = || self.subject.plan.nodes.iter().map(|node| &node.op);
        let has_windows = operators().any(|op| matches!(op, StreamOp::Window { .. } | StreamOp::Session(_)));
        let mut reasons = Vec::new();
        let mut add = |number: u64, rank: Rank, noun: &str, what: &str| {
            if number > 0 {
                let sentence = format!("{} of {title} {what}.", count(number, noun));
                reasons.push(self.reason(rank, sentence));
            }
        };
        let of_all = |number: u64| match number == self.taken() {
            true => Rank::Lost,
            false => Rank::Partly,
        };
        if has_windows {
            let what = "came without an event time (NULL), and stand in no window";
            add(counts.untimed, of_all(counts.untimed), "row", what);
        }
        let what = "came with a time too far ahead of the clock, and did not move the watermark";
        add(counts.skewed, of_all(counts.skewed), "row", what);
        let what = "were gone before they could be read";
        add(counts.lost, Rank::Partly, "record", what);
        let what = "had no value, and changed nothing or took a row away";
        add(counts.tombstones, Rank::Note, "record", what);
        reasons
    }

    /// Partitions that the watermark does not wait for.
    fn idle(&self) -> Vec<Reason> {
        let (idle, awake): (Vec<_>, Vec<_>) = self.lanes.iter().partition(|lane| lane.time.idle);
        // Where no partition had a row, or one is the whole source, nobody asks.
        if idle.is_empty() || self.taken() == 0 || (awake.is_empty() && idle.len() == 1) {
            return Vec::new();
        }
        let sentence = |lane: &&&LaneStatus| {
            let partition = lane.partition;
            match (lane.time.silent_since_us, lane.time.watermark_us) {
                (Some(since), _) => format!("{partition} (silent since {})", instant(since)),
                (None, Some(watermark)) => {
                    format!(
                        "{partition} (no row since the start of the process, at {} before)",
                        time(watermark)
                    )
                }
                (None, None) => format!("{partition} (it never had a row)"),
            }
        };
        let mut shown: Vec<String> = idle.iter().take(LISTED_MAX).map(|lane| sentence(&lane)).collect();
        if idle.len() > LISTED_MAX {
            shown.push(format!("{} more", idle.len() - LISTED_MAX));
        }
        let sentence = format!(
            "{} of {} of {} idle, and the watermark does not wait for them: {}.",
            idle.len(),
            count(self.lanes.len() as u64, "partition"),
            self.title,
            shown.join(", ")
        );
        vec![self.reason(
            Rank::Note,
            sentence.replacen(
                " idle,",
                if idle.len() == 1 {
                    " is idle,"
                } else {
                    " are idle,"
                },
                1,
            ),
        )]
    }
}

/// `Partition 0 is` or `Partitions 0, 2 are`.
fn listed(partitions: &[i32]) -> String {
    let numbers: Vec<String> = partitions.iter().take(LISTED_MAX).map(i32::to_string).collect();
    let more = match partitions.len() > LISTED_MAX {
        true => format!(" and {} more", partitions.len() - LISTED_MAX),
        false => String::new(),
    };
    match partitions.len() {
        1 => format!("Partition {}", numbers.join(", ")),
        _ => format!("Partitions {}{more}", numbers.join(", ")),
    }
}
