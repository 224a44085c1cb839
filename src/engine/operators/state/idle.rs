//! [`Idle`]: which keys nothing has changed for a while, for `state.ttl`.
//!
//! ```text
//! stamps[slot]   the span of time in which the key changed last
//! spans          span → slots that changed in it; a slot whose stamp is a later one stands here for nothing
//! ```
//!
//! Spans are a sixteenth of the time to live, so a key goes after that time and no more than a sixteenth later.

use std::collections::BTreeMap;

/// Parts of the time to live that are told apart.
const SPANS: i64 = 16;

/// The stamp of a slot of which nothing is known.
const NEVER: i64 = i64::MIN;

/// When keys changed last.
#[derive(Debug)]
pub(crate) struct Idle {
    ttl_us: i64,
    span_us: i64,
    stamps: Vec<i64>,
    spans: BTreeMap<i64, Vec<u32>>,
    /// Whether it knows the keys that were there before its first step.
    has_started: bool,
}

impl Idle {
    /// Keys go when nothing has changed them for `ttl_us`, which is more than zero.
    pub(crate) fn new(ttl_us: i64) -> Self {
        Self {
            ttl_us,
            span_us: (ttl_us / SPANS).max(1),
            stamps: Vec::new(),
            spans: BTreeMap::new(),
            has_started: false,
        }
    }

    /// Before the first step: the keys of `slots`, which come from a checkpoint, count as changed now.
    pub(crate) fn start(&mut self, slots: impl Iterator<Item = u32>, now_us: i64) {
        if !std::mem::replace(&mut self.has_started, true) {
            self.touch(slots, now_us);
        }
    }

    /// The keys of `slots` change.
    pub(crate) fn touch(&mut self, slots: impl Iterator<Item = u32>, now_us: i64) {
        let span = now_us.div_euclid(self.span_us);
        let own = self.spans.entry(span).or_default();
        for slot in slots {
            let at = slot as usize;
            if at >= self.stamps.len() {
                self.stamps.resize(at + 1, NEVER);
            }
            if std::mem::replace(&mut self.stamps[at], span) != span {
                own.push(slot);
            }
        }
        if own.is_empty() {
            self.spans.remove(&span);
        }
    }

    /// The slots whose keys nothing has changed for the time to live, each once. Some may have lost their key meanwhile.
    pub(crate) fn take(&mut self, now_us: i64) -> Vec<u32> {
        let mut idle = Vec::new();
        while let Some(first) = self.spans.first_entry() {
            let span = *first.key();
            if self.ends_at(span) > now_us {
                break;
            }
            let slots = self.spans.remove(&span).unwrap_or_default();
            for slot in slots {
                let stamp = &mut self.stamps[slot as usize];
                if *stamp == span {
                    *stamp = NEVER;
                    idle.push(slot);
                }
            }
        }
        idle.sort_unstable();
        idle
    }

    /// When the next keys go, if nothing changes them (µs since the epoch).
    pub(crate) fn due_us(&self) -> Option<i64> {
        if !self.has_started {
            // It has yet to see which keys there are.
            return Some(i64::MIN);
        }
        self.spans.keys().next().map(|span| self.ends_at(*span))
    }

    fn ends_at(&self, span: i64) -> i64 {
        let end = span.saturating_add(1).saturating_mul(self.span_us);
        end.saturating_add(self.ttl_us)
    }

    /// Bytes of memory.
    pub(crate) fn bytes(&self) -> usize {
        let slots: usize = self.spans.values().map(|slots| slots.capacity() * 4 + 32).sum();
        self.stamps.capacity() * size_of::<i64>() + slots
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_goes_when_nothing_has_changed_it_for_the_time_to_live() {
        let mut idle = Idle::new(160);
        assert_eq!(idle.due_us(), Some(i64::MIN));
        idle.start([].into_iter(), 0);
        idle.touch([0, 1].into_iter(), 5);
        idle.touch([1, 2].into_iter(), 100);
        assert_eq!(idle.due_us(), Some(170));
        assert_eq!(idle.take(169), [0; 0]);
        assert_eq!(idle.take(170), [0]);
        assert_eq!(idle.take(269), [0; 0]);
        assert_eq!(idle.take(1_000), [1, 2]);
        assert_eq!((idle.due_us(), idle.take(10_000)), (None, Vec::new()));
    }

    #[test]
    fn keys_of_a_checkpoint_count_from_the_first_step_on() {
        let mut idle = Idle::new(160);
        idle.start([4, 2].into_iter(), 1_000);
        idle.start([7].into_iter(), 2_000);
        assert_eq!(idle.take(1_169), [0; 0]);
        assert_eq!(idle.take(1_170), [2, 4]);
    }
}
