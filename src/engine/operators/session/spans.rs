//! [`Spans`]: the sessions of one key, kept up to date row by row.

use std::ops::Range;

/// The times of a session's first and of its last row (µs).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Span {
    pub(super) start: i64,
    pub(super) last: i64,
}

/// Sessions in order. Each starts a gap or more after the last row of the one before.
#[derive(Debug, Clone, Default)]
pub(super) struct Spans {
    spans: Vec<Span>,
}

impl Span {
    /// Whether a time lies between its first and its last row.
    pub(super) fn holds(self, time: i64) -> bool {
        (self.start..=self.last).contains(&time)
    }
}

impl Spans {
    /// All sessions that have times within those of `span`.
    pub(super) fn within(&self, span: Span) -> &[Span] {
        let from = self.spans.partition_point(|own| own.last < span.start);
        let to = self.spans.partition_point(|own| own.start <= span.last);
        &self.spans[from..to.max(from)]
    }

    /// The sessions to which a row of this time would belong, or that it would join: no more than two.
    pub(super) fn near(&self, time: i64, gap_us: i64) -> &[Span] {
        &self.spans[self.near_range(time, gap_us)]
    }

    /// There is a row of this time.
    pub(super) fn add(&mut self, time: i64, gap_us: i64) {
        let near = self.near_range(time, gap_us);
        let own = match (self.spans[near.clone()].first(), self.spans[near.clone()].last()) {
            (Some(first), Some(last)) => Span {
                start: first.start.min(time),
                last: last.last.max(time),
            },
            _ => Span {
                start: time,
                last: time,
            },
        };
        if self.spans[near.clone()] != [own] {
            self.spans.splice(near, [own]);
        }
    }

    /// There is no row of this time any more; `before` and `after` are the times of the rows around it. Of several times that
    /// go together the earliest is told first.
    pub(super) fn remove(&mut self, time: i64, gap_us: i64, before: Option<i64>, after: Option<i64>) {
        let at = self.spans.partition_point(|own| own.last < time);
        let Some(own) = self.spans.get(at).copied().filter(|own| own.holds(time)) else {
            return;
        };
        let before = before.filter(|before| own.holds(*before));
        let after = after.filter(|after| own.holds(*after));
        match (before, after) {
            (None, None) => {
                self.spans.remove(at);
            }
            (None, Some(after)) => self.spans[at].start = after,
            (Some(before), None) => self.spans[at].last = before,
            (Some(before), Some(after)) if after.saturating_sub(before) >= gap_us => {
                self.spans[at].last = before;
                let rest = Span {
                    start: after,
                    last: own.last,
                };
                self.spans.insert(at + 1, rest);
            }
            (Some(_), Some(_)) => {}
        }
    }

    /// Takes the first session away.
    pub(super) fn take_first(&mut self) -> Option<Span> {
        let first = self.spans.first().copied()?;
        self.spans.remove(0);
        Some(first)
    }

    /// All of them.
    pub(super) fn iter(&self) -> impl Iterator<Item = Span> {
        self.spans.iter().copied()
    }

    /// Bytes of memory beside its own.
    pub(super) fn bytes(&self) -> usize {
        self.spans.capacity() * size_of::<Span>()
    }

    fn near_range(&self, time: i64, gap_us: i64) -> Range<usize> {
        let is_before = |own: &Span| own.last.saturating_add(gap_us) <= time;
        let from = self.spans.partition_point(is_before);
        let to = self
            .spans
            .partition_point(|own| own.start.saturating_sub(gap_us) < time);
        from..to.max(from)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    fn sessions(times: &BTreeSet<i64>, gap_us: i64) -> Vec<Span> {
        let mut spans: Vec<Span> = Vec::new();
        for time in times {
            match spans.last_mut() {
                Some(last) if time - last.last < gap_us => last.last = *time,
                _ => spans.push(Span {
                    start: *time,
                    last: *time,
                }),
            }
        }
        spans
    }

    proptest! {
        #[test]
        fn sessions_are_those_of_all_times_in_order(
            steps in prop::collection::vec(prop::collection::btree_set(0..60i64, 0..8), 0..20),
            gap_us in 1..8i64,
        ) {
            let (mut spans, mut times) = (Spans::default(), BTreeSet::new());
            for step in steps {
                // A time that is there goes, another one comes.
                let (gone, new): (Vec<i64>, Vec<i64>) = step.into_iter().partition(|time| times.contains(time));
                times.extend(&new);
                gone.iter().for_each(|time| { times.remove(time); });
                new.iter().for_each(|time| spans.add(*time, gap_us));
                for time in gone {
                    let (before, after) = (times.range(..time).next_back(), times.range(time..).next());
                    spans.remove(time, gap_us, before.copied(), after.copied());
                }
                prop_assert_eq!(spans.iter().collect::<Vec<_>>(), sessions(&times, gap_us));
            }
        }
    }
}
