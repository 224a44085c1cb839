//! What a join gives, in the plainest way: every left row with every right row.

use std::collections::BTreeMap;

use highwater_sql::stream_plan::JoinKind;

/// A row of an input: key, window (seconds), number, text.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Row {
    pub(super) key: Option<i64>,
    pub(super) window: i64,
    pub(super) number: Option<i64>,
    pub(super) text: Option<&'static str>,
}

/// Columns of an input.
pub(super) const KEY: usize = 0;
pub(super) const WINDOW: usize = 1;
pub(super) const NUMBER: usize = 2;
pub(super) const TEXT: usize = 3;
pub(super) const WIDTH: usize = 4;

/// What is asked of pairs.
#[derive(Debug, Clone)]
pub(super) struct Shape {
    pub(super) kind: JoinKind,
    /// Columns that are equal on both sides.
    pub(super) keys: Vec<usize>,
    pub(super) null_safe: bool,
    /// Whether the left number must be less than the right one.
    pub(super) less: bool,
    /// Whether keys with a window close.
    pub(super) closes: bool,
    /// By how much the left window may be before the right one, and by how much behind it.
    pub(super) within: Option<(i64, i64)>,
}

impl Row {
    pub(super) fn line(&self) -> String {
        let shown = |value: Option<String>| value.unwrap_or_else(|| "-".to_owned());
        let (key, number) = (
            self.key.map(|key| key.to_string()),
            self.number.map(|n| n.to_string()),
        );
        let text = self.text.map(str::to_owned);
        format!("{} {} {} {}", shown(key), self.window, shown(number), shown(text))
    }

    /// The column as text; `None` for NULL.
    fn column(&self, column: usize) -> Option<String> {
        match column {
            KEY => self.key.map(|key| key.to_string()),
            WINDOW => Some(self.window.to_string()),
            NUMBER => self.number.map(|number| number.to_string()),
            _ => self.text.map(str::to_owned),
        }
    }
}

impl Shape {
    fn is_match(&self, left: &Row, right: &Row) -> bool {
        let equal = self.keys.iter().all(|column| {
            let (left, right) = (left.column(*column), right.column(*column));
            left == right && (self.null_safe || left.is_some())
        });
        let less = || {
            left.number
                .zip(right.number)
                .is_some_and(|(left, right)| left < right)
        };
        let is_within = self.within.is_none_or(|(before, behind)| {
            (right.window - before..=right.window + behind).contains(&left.window)
        });
        equal && is_within && (!self.less || less())
    }

    /// The lines of the output and how often each is there.
    pub(super) fn answer(&self, lefts: &[Row], rights: &[Row]) -> BTreeMap<String, i64> {
        const NONE: &str = "- - - -";
        let mut lines = Vec::new();
        for left in lefts {
            let matches: Vec<_> = rights.iter().filter(|right| self.is_match(left, right)).collect();
            let pairs = matches
                .iter()
                .map(|right| format!("{} | {}", left.line(), right.line()));
            match self.kind {
                JoinKind::Inner => lines.extend(pairs),
                JoinKind::Left | JoinKind::Full if matches.is_empty() => {
                    lines.push(format!("{} | {NONE}", left.line()));
                }
                JoinKind::Left | JoinKind::Full => lines.extend(pairs),
                JoinKind::Semi if !matches.is_empty() => lines.push(left.line()),
                JoinKind::Anti if matches.is_empty() => lines.push(left.line()),
                JoinKind::Mark => lines.push(format!("{} {}", left.line(), !matches.is_empty())),
                JoinKind::Semi | JoinKind::Anti => {}
            }
        }
        if self.kind == JoinKind::Full {
            let alone = rights
                .iter()
                .filter(|right| !lefts.iter().any(|left| self.is_match(left, right)));
            lines.extend(alone.map(|right| format!("{NONE} | {}", right.line())));
        }
        let mut answer = BTreeMap::new();
        for line in lines {
            *answer.entry(line).or_default() += 1;
        }
        answer
    }
}
