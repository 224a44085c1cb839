//! Whether the lanes still move. A lane shows its position; the watching thread compares it with what the broker holds,
//! and the control plane gives a lane that stands still a new queue and assigns its partition again.
//!
//! librdkafka has had faults after which one partition of a consumer gives nothing any more until it is assigned anew.
//! Nothing is lost by that, because the position does not move; but nobody would notice either.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

use parking_lot::Mutex;

use super::native::PartitionQueue;
use crate::source::{LaneWaker, PartitionId};

/// The most looks that a partition may be silent before it is assigned again once more.
const PATIENCE_MAX: u32 = 32;

/// What one lane shows of itself, and how the control plane reaches it.
#[derive(Default)]
pub(super) struct Pulse {
    next_offset: AtomicI64,
    resting: AtomicBool,
    held: AtomicBool,
    renewed: AtomicBool,
    renewal: Mutex<Option<PartitionQueue>>,
    waker: Mutex<Option<LaneWaker>>,
}

impl Pulse {
    /// A lane that starts at `next_offset`.
    pub(super) fn new(next_offset: i64) -> Self {
        Self {
            next_offset: AtomicI64::new(next_offset),
            ..Self::default()
        }
    }

    /// The lane found nothing more to take.
    pub(super) fn rest(&self) {
        self.resting.store(true, Ordering::Release);
    }

    /// The lane took something, and is now at `next_offset`.
    pub(super) fn beat(&self, next_offset: i64) {
        self.next_offset.store(next_offset, Ordering::Release);
        self.resting.store(false, Ordering::Release);
    }

    /// One past the last record that the lane took.
    pub(super) fn next_offset(&self) -> i64 {
        self.next_offset.load(Ordering::Acquire)
    }

    /// Whether the client was told to fetch nothing for the lane.
    pub(super) fn hold(&self, held: bool) {
        self.held.store(held, Ordering::Release);
    }

    /// Whom to call when the lane has a new queue.
    pub(super) fn set_waker(&self, waker: LaneWaker) {
        *self.waker.lock() = Some(waker);
    }

    /// Gives the lane another queue, which it takes at its next poll.
    pub(super) fn renew(&self, queue: PartitionQueue) {
        *self.renewal.lock() = Some(queue);
        self.renewed.store(true, Ordering::Release);
        let waker = self.waker.lock().clone();
        if let Some(waker) = waker {
            waker();
        }
    }

    /// The other queue, if there is one. One load where there is none.
    pub(super) fn take_renewal(&self) -> Option<PartitionQueue> {
        if !self.renewed.load(Ordering::Acquire) {
            return None;
        }
        self.renewed.store(false, Ordering::Release);
        self.renewal.lock().take()
    }

    /// The position of a lane that waits for records, which it may get.
    fn waits_at(&self) -> Option<i64> {
        let waits = self.resting.load(Ordering::Acquire) && !self.held.load(Ordering::Acquire);
        waits.then(|| self.next_offset())
    }
}

/// The pulses of all lanes of a source.
#[derive(Clone, Default)]
pub(super) struct Pulses(Arc<Mutex<BTreeMap<PartitionId, Arc<Pulse>>>>);

impl Pulses {
    /// The pulse of a new lane.
    pub(super) fn add(&self, partition: PartitionId, next_offset: i64) -> Arc<Pulse> {
        let pulse = Arc::new(Pulse::new(next_offset));
        self.0.lock().insert(partition, Arc::clone(&pulse));
        pulse
    }

    /// The pulse of the lane of `partition`.
    pub(super) fn get(&self, partition: PartitionId) -> Option<Arc<Pulse>> {
        self.0.lock().get(&partition).cloned()
    }

    /// Where the lanes that wait for records stand.
    fn waiting(&self) -> Vec<(PartitionId, i64)> {
        let pulses = self.0.lock();
        pulses
            .iter()
            .filter_map(|(partition, pulse)| Some((*partition, pulse.waits_at()?)))
            .collect()
    }
}

/// Finds lanes that wait although the broker has records for them.
#[derive(Default)]
pub(super) struct StallCheck {
    silent: BTreeMap<PartitionId, Silence>,
}

#[derive(Debug, Clone, Copy)]
struct Silence {
    position: i64,
    /// Looks since it came to its position, or since it was last assigned again.
    looks: u32,
    /// How many looks it may be silent. Doubled each time, so that a broker which is merely slow is not made slower.
    patience: u32,
}

impl StallCheck {
    /// Looks once; `end` asks the broker for the end of a partition and is called for those that have been silent for
    /// long enough. Gives those that have stalled, and their positions.
    pub(super) fn look(
        &mut self,
        pulses: &Pulses,
        mut end: impl FnMut(PartitionId) -> Option<i64>,
    ) -> Vec<(PartitionId, i64)> {
        let waiting = pulses.waiting();
        self.silent
            .retain(|partition, _| waiting.iter().any(|(other, _)| other == partition));
        let mut stalled = Vec::new();
        for (partition, position) in waiting {
            let fresh = Silence {
                position,
                looks: 0,
                patience: 1,
            };
            let silence = self.silent.entry(partition).or_insert(fresh);
            if silence.position != position {
                *silence = fresh;
                continue;
            }
            silence.looks += 1;
            if silence.looks <= silence.patience {
                continue;
            }
            if end(partition).is_some_and(|end| end > position) {
                silence.looks = 0;
                silence.patience = (silence.patience * 2).min(PATIENCE_MAX);
                stalled.push((partition, position));
            }
        }
        stalled
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const P0: PartitionId = PartitionId(0);

    /// The looks, of `looks`, at which a lane at offset 5 of a partition that ends at `end` is found stalled.
    fn stalls(pulses: &Pulses, check: &mut StallCheck, looks: u32, end: i64) -> Vec<u32> {
        (1..=looks)
            .filter(|_| check.look(pulses, |_| Some(end)) == [(P0, 5)])
            .collect()
    }

    #[test]
    fn a_lane_that_waits_before_the_end_has_stalled_and_is_given_more_time_each_time() {
        let (pulses, mut check) = (Pulses::default(), StallCheck::default());
        let pulse = pulses.add(P0, 5);
        pulse.rest();
        assert_eq!(stalls(&pulses, &mut check, 14, 9), [2, 5, 10]);
        pulse.beat(6);
        assert!(stalls(&pulses, &mut check, 5, 9).is_empty(), "it moves");
    }

    #[test]
    fn a_lane_at_the_end_a_busy_one_and_a_held_one_have_not() {
        let (pulses, mut check) = (Pulses::default(), StallCheck::default());
        let pulse = pulses.add(P0, 5);
        assert!(
            stalls(&pulses, &mut check, 5, 9).is_empty(),
            "nobody has polled it yet"
        );
        pulse.rest();
        assert!(stalls(&pulses, &mut check, 5, 5).is_empty(), "it is at the end");
        pulse.hold(true);
        assert!(stalls(&pulses, &mut check, 5, 9).is_empty(), "it is paused");
    }
}
