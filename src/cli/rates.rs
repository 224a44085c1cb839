//! Rows per second, from counts that are looked at now and then.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

/// The time that rows per second are counted over.
const RATE_OVER: Duration = Duration::from_secs(3);

/// Rows per second of each source.
#[derive(Default)]
pub(super) struct Rates {
    samples: BTreeMap<String, VecDeque<(Instant, i64)>>,
}

impl Rates {
    /// Notes how many rows there were at an instant.
    pub(super) fn note(&mut self, source: &str, at: Instant, rows: i64) {
        let samples = self.samples.entry(source.to_owned()).or_default();
        if samples.back().is_some_and(|(_, before)| *before > rows) {
            // Counters start anew with the pipeline.
            samples.clear();
        }
        samples.push_back((at, rows));
        while samples.len() > 2 && at - samples[1].0 >= RATE_OVER {
            samples.pop_front();
        }
    }

    /// Rows per second over the last seconds; `None` before there are two samples.
    pub(super) fn of(&self, source: &str) -> Option<u64> {
        let samples = self.samples.get(source)?;
        let ((from, rows_before), (to, rows)) = (samples.front()?, samples.back()?);
        let seconds = (*to - *from).as_secs_f64();
        (seconds > 0.0).then(|| ((rows - rows_before) as f64 / seconds).round() as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_per_second_are_counted_over_the_last_seconds() {
        let mut rates = Rates::default();
        let start = Instant::now();
        assert_eq!(rates.of("s"), None);
        for second in 0..10_u32 {
            let rows = if second < 5 {
                0
            } else {
                i64::from(second - 5) * 1000
            };
            rates.note("s", start + Duration::from_secs(second.into()), rows);
        }
        assert_eq!(rates.of("s"), Some(1000));
        rates.note("s", start + Duration::from_secs(10), 0);
        assert_eq!(rates.of("s"), None);
    }
}
