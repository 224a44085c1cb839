//! Watermarks of a source: one per partition, and their minimum over the partitions that are not idle.
//!
//! A partition's watermark never goes back (INV-3), nor does the source's. A partition leaves the minimum when it has
//! been at its end and silent for `idle.timeout`, or at once when it is at its end and never had a row.

use std::collections::BTreeMap;

use highwater_connectors::source::PartitionId;

/// How a source treats idle partitions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct WatermarkPolicy {
    /// How long a partition must be at its end and silent (µs).
    pub(crate) idle_timeout_us: i64,
    /// Whether the watermark follows wall-clock time while all partitions are idle.
    pub(crate) idle_advance: bool,
    /// How much longer windows stay open than the watermark says (µs).
    pub(crate) lateness_us: i64,
}

/// One partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct PartitionWatermark {
    /// The largest WATERMARK expression of its rows (µs).
    pub(crate) watermark: Option<i64>,
    /// Whether it is left out of the minimum.
    pub(crate) idle: bool,
    /// Since when it is silent, by the wall clock (µs): its last row, or when it was seen to be at its end. `None` before
    /// the first row of this process.
    pub(crate) last_row_us: Option<i64>,
    /// Whether everything that it holds has been taken.
    pub(crate) at_end: bool,
}

/// The watermarks of one reader of a source.
#[derive(Debug, Clone)]
pub(crate) struct WatermarkTracker {
    policy: WatermarkPolicy,
    partitions: BTreeMap<PartitionId, PartitionWatermark>,
    /// The published minimum; monotone.
    source: Option<i64>,
    /// Since when all partitions are idle (wall clock, µs), and the watermark at that time.
    all_idle_since: Option<(i64, i64)>,
    /// Whether a partition has become idle, or is no longer, since somebody asked.
    idle_changed: bool,
}

impl WatermarkTracker {
    /// A tracker with no partitions.
    pub(crate) fn new(policy: WatermarkPolicy) -> Self {
        Self {
            policy,
            partitions: BTreeMap::new(),
            source: None,
            all_idle_since: None,
            idle_changed: false,
        }
    }

    /// Sets what a checkpoint recorded for the source as a whole.
    pub(crate) fn restore_source(&mut self, watermark: Option<i64>) {
        self.source = watermark;
    }

    /// How far windows have closed (µs): the source's watermark, less the lateness that is allowed.
    pub(crate) fn closed(&self) -> Option<i64> {
        let lateness_us = self.policy.lateness_us;
        self.source.map(|watermark| watermark.saturating_sub(lateness_us))
    }

    /// Adds a partition, with what a checkpoint recorded of it.
    pub(crate) fn add(&mut self, partition: PartitionId, watermark: Option<i64>, idle: bool) {
        let entry = self.partitions.entry(partition).or_default();
        entry.watermark = entry.watermark.max(watermark);
        entry.idle = idle;
    }

    /// Takes note of rows of a partition.
    pub(crate) fn rows(&mut self, partition: PartitionId, watermark: Option<i64>, now_us: i64) {
        let entry = self.partitions.entry(partition).or_default();
        entry.watermark = entry.watermark.max(watermark);
        entry.last_row_us = Some(now_us);
        entry.idle = false;
    }

    /// Takes note of whether a partition is at its end. Its silence counts from when it came there, or was seen there
    /// again after nobody could tell.
    pub(crate) fn at_end(&mut self, partition: PartitionId, at_end: bool, now_us: i64) {
        let entry = self.partitions.entry(partition).or_default();
        if at_end && !entry.at_end && entry.last_row_us.is_some() {
            entry.last_row_us = Some(now_us);
        }
        entry.at_end = at_end;
    }

    /// Works out who is idle and the source's watermark at `now_us`. Returns the source's watermark.
    pub(crate) fn advance(&mut self, now_us: i64) -> Option<i64> {
        let timeout = self.policy.idle_timeout_us;
        for entry in self.partitions.values_mut() {
            let never_had_a_row = entry.watermark.is_none() && entry.last_row_us.is_none();
            // After a restart the silence counts from the first look at the partition's end.
            if entry.at_end && !never_had_a_row && entry.last_row_us.is_none() && !entry.idle {
                entry.last_row_us = Some(now_us);
            }
            let silent = entry
                .last_row_us
                .is_some_and(|last| now_us.saturating_sub(last) >= timeout);
            let idle = entry.at_end && (never_had_a_row || silent || entry.idle);
            self.idle_changed |= idle != entry.idle;
            entry.idle = idle;
        }
        // Where every partition is idle none holds the others back: the source is as far as the furthest of them.
        let watermarks = |idle: bool| {
            let chosen = self.partitions.values().filter(move |entry| entry.idle == idle);
            chosen.map(|entry| entry.watermark)
        };
        let minimum = match watermarks(false).min() {
            Some(minimum) => minimum,
            None => watermarks(true).max().flatten(),
        };
        self.source = self.source.max(minimum);
        self.advance_idle(now_us);
        self.source
    }

    /// Whether a partition has become idle, or is no longer, since the last call: worth a checkpoint, which shows it.
    pub(crate) fn take_idle_changed(&mut self) -> bool {
        std::mem::take(&mut self.idle_changed)
    }

    /// While every partition is idle: the rows that all have seen, then (if asked) the passing of time.
    fn advance_idle(&mut self, now_us: i64) {
        let all_idle = !self.partitions.is_empty() && self.partitions.values().all(|entry| entry.idle);
        if !all_idle {
            self.all_idle_since = None;
            return;
        }
        if !self.policy.idle_advance {
            return;
        }
        let Some(seen) = self.partitions.values().filter_map(|entry| entry.watermark).max() else {
            return;
        };
        let (since, base) = *self
            .all_idle_since
            .get_or_insert((now_us, self.source.unwrap_or(seen).max(seen)));
        self.source = self
            .source
            .max(Some(base.saturating_add(now_us.saturating_sub(since).max(0))));
    }

    /// When the next partition may become idle, or the idle watermark moves on (wall clock, µs).
    pub(crate) fn next_change_us(&self, now_us: i64) -> Option<i64> {
        let timeout = self.policy.idle_timeout_us;
        let idle = self
            .partitions
            .values()
            .filter(|entry| entry.at_end && !entry.idle);
        let next = idle
            .map(|entry| {
                entry
                    .last_row_us
                    .map_or(now_us, |last| last.saturating_add(timeout))
            })
            .min();
        if next.is_none() && self.all_idle_since.is_some() {
            Some(now_us.saturating_add(IDLE_TICK_US))
        } else {
            next
        }
    }

    /// The source's watermark as last worked out.
    pub(crate) fn source(&self) -> Option<i64> {
        self.source
    }

    /// One partition.
    pub(crate) fn partition(&self, partition: PartitionId) -> PartitionWatermark {
        self.partitions.get(&partition).copied().unwrap_or_default()
    }
}

/// How often the watermark follows the clock while all partitions are idle.
const IDLE_TICK_US: i64 = 200_000;

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: i64 = 1_000_000;

    fn tracker(idle_advance: bool) -> WatermarkTracker {
        WatermarkTracker::new(WatermarkPolicy {
            idle_timeout_us: 10 * SECOND,
            idle_advance,
            lateness_us: 0,
        })
    }

    #[test]
    fn the_source_follows_its_slowest_partition() {
        let mut tracker = tracker(false);
        tracker.add(PartitionId(0), None, false);
        tracker.add(PartitionId(1), None, false);
        tracker.rows(PartitionId(0), Some(100), 0);
        assert_eq!(tracker.advance(0), None, "partition 1 has not shown a row yet");
        tracker.rows(PartitionId(1), Some(40), 0);
        assert_eq!(tracker.advance(0), Some(40));
        tracker.rows(PartitionId(1), Some(30), 0);
        assert_eq!(tracker.advance(0), Some(40), "INV-3");
    }

    #[test]
    fn a_partition_that_never_had_a_row_is_idle_at_its_end() {
        let mut tracker = tracker(false);
        tracker.add(PartitionId(0), None, false);
        tracker.add(PartitionId(1), None, false);
        tracker.rows(PartitionId(0), Some(100), 0);
        tracker.at_end(PartitionId(1), true, 0);
        assert_eq!(tracker.advance(0), Some(100));
    }

    #[test]
    fn a_silent_partition_leaves_the_minimum_after_the_timeout_and_comes_back_with_its_next_row() {
        let mut tracker = tracker(false);
        for partition in [PartitionId(0), PartitionId(1)] {
            tracker.rows(partition, Some(10), 0);
            tracker.at_end(partition, true, 0);
        }
        tracker.rows(PartitionId(0), Some(90), 5 * SECOND);
        assert_eq!(tracker.advance(9 * SECOND), Some(10));
        assert_eq!(tracker.next_change_us(9 * SECOND), Some(10 * SECOND));
        assert!(!tracker.take_idle_changed());
        assert_eq!(tracker.advance(10 * SECOND), Some(90));
        assert!(tracker.take_idle_changed() && !tracker.take_idle_changed());
        tracker.rows(PartitionId(1), Some(95), 11 * SECOND);
        assert!(!tracker.partition(PartitionId(1)).idle);
        tracker.rows(PartitionId(0), Some(200), 11 * SECOND);
        assert_eq!(tracker.advance(11 * SECOND), Some(95));
    }

    #[test]
    fn a_partition_that_cannot_be_seen_is_not_idle_and_has_its_timeout_again_when_it_can() {
        let mut tracker = tracker(false);
        for (partition, watermark) in [(PartitionId(0), 30), (PartitionId(1), 10)] {
            tracker.rows(partition, Some(watermark), 0);
            tracker.at_end(partition, true, 0);
        }
        for partition in [PartitionId(0), PartitionId(1)] {
            tracker.at_end(partition, false, 5 * SECOND);
        }
        assert_eq!(tracker.advance(60 * SECOND), Some(10), "the broker is away");
        for partition in [PartitionId(0), PartitionId(1)] {
            tracker.at_end(partition, true, 61 * SECOND);
        }
        assert_eq!(tracker.advance(70 * SECOND), Some(10));
        assert_eq!(tracker.advance(71 * SECOND), Some(30));
    }

    #[test]
    fn when_all_are_idle_the_watermark_follows_the_clock_only_if_asked() {
        for (idle_advance, expected) in [(false, Some(50)), (true, Some(50 + 7 * SECOND))] {
            let mut tracker = tracker(idle_advance);
            tracker.rows(PartitionId(0), Some(50), 0);
            tracker.at_end(PartitionId(0), true, 0);
            tracker.advance(10 * SECOND);
            assert_eq!(tracker.advance(17 * SECOND), expected);
        }
    }

    #[test]
    fn a_restored_watermark_holds_until_rows_pass_it() {
        let mut tracker = tracker(false);
        tracker.restore_source(Some(70));
        tracker.add(PartitionId(0), Some(60), false);
        assert_eq!(tracker.advance(0), Some(70));
        tracker.rows(PartitionId(0), Some(80), 0);
        assert_eq!(tracker.advance(0), Some(80));
    }
}
