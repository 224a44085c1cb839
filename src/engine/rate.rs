//! [`Rate`]: how much comes per second, over the last seconds.

/// What a rate looks back on (µs).
const SPAN_US: i64 = 5_000_000;

/// Counts in two spans of time, of which the older one leaves the rate bit by bit.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Rate {
    /// When the present span began (µs since the epoch); 0 before the first count.
    begun_us: i64,
    before: u64,
    now: u64,
}

impl Rate {
    /// Adds what came at `now_us`.
    pub(crate) fn add(&mut self, count: u64, now_us: i64) {
        self.pass(now_us);
        self.now += count;
    }

    /// What comes per second at `now_us`.
    pub(crate) fn per_second(mut self, now_us: i64) -> f64 {
        self.pass(now_us);
        let passed = (now_us - self.begun_us).clamp(0, SPAN_US) as f64 / SPAN_US as f64;
        let counted = self.before as f64 * (1.0 - passed) + self.now as f64;
        counted / (SPAN_US as f64 / 1e6)
    }

    fn pass(&mut self, now_us: i64) {
        let passed_us = now_us.saturating_sub(self.begun_us);
        // A clock that was set back begins anew.
        if !(0..2 * SPAN_US).contains(&passed_us) {
            *self = Self {
                begun_us: now_us,
                ..Self::default()
            };
        } else if passed_us >= SPAN_US {
            *self = Self {
                begun_us: self.begun_us + SPAN_US,
                before: self.now,
                now: 0,
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_follows_what_comes_and_fades() {
        let second = 1_000_000;
        let start = 1_000 * second;
        let mut rate = Rate::default();
        for at in 0..10 {
            rate.add(100, start + at * second);
        }
        assert_eq!(rate.per_second(start + 10 * second), 100.0);
        assert_eq!(rate.per_second(start + 12 * second + second / 2), 50.0);
        assert_eq!(rate.per_second(start + 30 * second), 0.0);
        assert_eq!(rate.per_second(start - 30 * second), 0.0);
    }
}
