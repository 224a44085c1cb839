//! Acknowledgements: what tells a connector that everything up to an offset is durable.
//!
//! A lane gives each batch one [`AckRef`] from its source's [`AckIssuer`]. The runtime keeps it with the batch's effects
//! and resolves it when the checkpoint that covers them is durable. The *committable offset* of a partition is the end
//! of its contiguous resolved prefix, in the order of issue: it never passes a batch whose effects are not durable
//! (INV-1).
//!
//! ```text
//! issued   [0,10) [10,25) [25,40) [40,41)
//! resolved    ✓              ✓              committable = 10: [10,25) holds the others back
//! ```

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use crate::partition::{PartitionId, Positions};

/// Hands out [`AckRef`]s for one assignment and knows the contiguous resolved prefix per partition. Clones share one
/// ledger; a call costs one short lock, and there is one call per batch.
#[derive(Debug, Clone, Default)]
pub struct AckIssuer {
    ledger: Arc<Mutex<Ledger>>,
}

impl AckIssuer {
    /// An issuer without partitions, in its first assignment epoch.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The claim of a batch that covers the offsets `first_offset .. next_offset` of `partition`. Batches of a
    /// partition are issued in the order of their offsets; an empty batch that moves the position is issued too.
    #[must_use = "an acknowledgement that is dropped unresolved counts as failed"]
    pub fn issue(&self, partition: PartitionId, first_offset: i64, next_offset: i64) -> AckRef {
        debug_assert!(first_offset <= next_offset, "a batch ends before it begins");
        let mut ledger = self.ledger.lock();
        let epoch = ledger.epoch;
        let account = ledger.accounts.entry(partition).or_default();
        let number = account.first_number + account.open.len() as u64;
        account.open.push_back(Claim {
            next_offset,
            state: ClaimState::Open,
        });
        AckRef {
            ledger: Some(Arc::clone(&self.ledger)),
            epoch,
            partition,
            number,
        }
    }

    /// Begins a new assignment epoch: acknowledgements issued before are discarded whatever becomes of them, and the
    /// committable offsets start over.
    pub fn begin_epoch(&self) {
        let mut ledger = self.ledger.lock();
        ledger.epoch += 1;
        ledger.accounts.clear();
    }

    /// Committable offsets of the partitions that have a resolved batch in this epoch.
    #[must_use]
    pub fn committable(&self) -> Positions {
        let ledger = self.ledger.lock();
        ledger
            .accounts
            .iter()
            .filter_map(|(partition, account)| Some((*partition, account.committable?)))
            .collect()
    }

    /// How many batches are neither resolved nor failed.
    #[must_use]
    pub fn outstanding(&self) -> usize {
        let ledger = self.ledger.lock();
        let open = |account: &Account| {
            account
                .open
                .iter()
                .filter(|claim| claim.state == ClaimState::Open)
                .count()
        };
        ledger.accounts.values().map(open).sum()
    }

    /// How many batches of this epoch were dropped unresolved. Each of them stops its partition's committable offset
    /// until the partition is assigned again.
    #[must_use]
    pub fn failed(&self) -> u64 {
        self.ledger
            .lock()
            .accounts
            .values()
            .map(|account| account.failed)
            .sum()
    }
}

/// One batch's claim: resolved when the checkpoint that covers it is durable, failed when dropped unresolved.
#[derive(Debug)]
pub struct AckRef {
    /// `None` once resolved.
    ledger: Option<Arc<Mutex<Ledger>>>,
    epoch: u64,
    partition: PartitionId,
    number: u64,
}

impl AckRef {
    /// Says that the effects of the batch are durable.
    pub fn resolve(mut self) {
        self.settle(ClaimState::Resolved);
    }

    fn settle(&mut self, state: ClaimState) {
        if let Some(ledger) = self.ledger.take() {
            ledger
                .lock()
                .settle(self.epoch, self.partition, self.number, state);
        }
    }
}

impl Drop for AckRef {
    fn drop(&mut self) {
        self.settle(ClaimState::Failed);
    }
}

#[derive(Debug, Default)]
struct Ledger {
    epoch: u64,
    accounts: BTreeMap<PartitionId, Account>,
}

impl Ledger {
    fn settle(&mut self, epoch: u64, partition: PartitionId, number: u64, state: ClaimState) {
        if epoch != self.epoch {
            return;
        }
        if let Some(account) = self.accounts.get_mut(&partition) {
            account.settle(number, state);
        }
    }
}

/// The claims of one partition that are not part of its resolved prefix yet.
#[derive(Debug, Default)]
struct Account {
    committable: Option<i64>,
    /// The number of `open[0]`.
    first_number: u64,
    open: VecDeque<Claim>,
    failed: u64,
}

impl Account {
    fn settle(&mut self, number: u64, state: ClaimState) {
        let Some(claim) = number
            .checked_sub(self.first_number)
            .and_then(|index| self.open.get_mut(index as usize))
        else {
            return;
        };
        claim.state = state;
        if state == ClaimState::Failed {
            self.failed += 1;
        }
        while let Some(claim) = self.open.front()
            && claim.state == ClaimState::Resolved
        {
            self.committable = Some(claim.next_offset);
            self.first_number += 1;
            self.open.pop_front();
        }
    }
}

#[derive(Debug)]
struct Claim {
    next_offset: i64,
    state: ClaimState,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ClaimState {
    Open,
    Resolved,
    Failed,
}

/// Held by the runtime while revoked lanes drain; the connector lets go of them when it is released. Dropped
/// unreleased, it tells the connector that the drain was given up.
#[derive(Debug)]
pub struct DrainBarrier {
    shared: Arc<DrainShared>,
}

impl DrainBarrier {
    /// A barrier for the runtime, and the connector's end of it.
    #[must_use]
    pub fn new() -> (Self, DrainWait) {
        let shared = Arc::new(DrainShared::default());
        (
            Self {
                shared: Arc::clone(&shared),
            },
            DrainWait { shared },
        )
    }

    /// Says that the rows of the revoked lanes are durable.
    pub fn release(self) {
        self.shared.settle(DrainOutcome::Released);
    }
}

impl Drop for DrainBarrier {
    fn drop(&mut self) {
        self.shared.settle(DrainOutcome::Abandoned);
    }
}

/// The connector's end of a [`DrainBarrier`]; clones wait for the same release.
#[derive(Debug, Clone)]
pub struct DrainWait {
    shared: Arc<DrainShared>,
}

impl DrainWait {
    /// Waits at most `timeout`. A caller that must serve its client meanwhile waits in short turns.
    #[must_use]
    pub fn wait(&self, timeout: Duration) -> DrainOutcome {
        let deadline = Instant::now() + timeout;
        let mut outcome = self.shared.outcome.lock();
        loop {
            if let Some(outcome) = *outcome {
                return outcome;
            }
            if self.shared.settled.wait_until(&mut outcome, deadline).timed_out() {
                return outcome.unwrap_or(DrainOutcome::TimedOut);
            }
        }
    }

    /// Ends all waits, present and to come: the process is stopping.
    pub fn stop(&self) {
        self.shared.settle(DrainOutcome::Stopped);
    }
}

/// How a wait for a [`DrainBarrier`] ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DrainOutcome {
    /// The rows are durable.
    Released,
    /// The runtime dropped the barrier: the rows may not be durable and will be read again.
    Abandoned,
    /// [`DrainWait::stop`] was called.
    Stopped,
    /// Not yet.
    TimedOut,
}

#[derive(Debug, Default)]
struct DrainShared {
    outcome: Mutex<Option<DrainOutcome>>,
    settled: Condvar,
}

impl DrainShared {
    /// The first outcome stands.
    fn settle(&self, outcome: DrainOutcome) {
        let mut current = self.outcome.lock();
        if current.is_none() {
            *current = Some(outcome);
            self.settled.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const P: PartitionId = PartitionId(3);

    #[test]
    fn a_batch_that_is_not_durable_holds_back_those_behind_it() {
        let issuer = AckIssuer::new();
        let first = issuer.issue(P, 0, 10);
        let second = issuer.issue(P, 10, 25);
        let third = issuer.issue(P, 25, 40);

        third.resolve();
        assert_eq!(issuer.committable(), Positions::new());
        first.resolve();
        assert_eq!(issuer.committable(), Positions::from([(P, 10)]));
        second.resolve();
        assert_eq!(issuer.committable(), Positions::from([(P, 40)]));
    }

    #[test]
    fn an_acknowledgement_dropped_unresolved_stops_the_committable_offset() {
        let issuer = AckIssuer::new();
        issuer.issue(P, 0, 10).resolve();
        drop(issuer.issue(P, 10, 20));
        issuer.issue(P, 20, 30).resolve();

        assert_eq!(issuer.committable(), Positions::from([(P, 10)]));
        assert_eq!((issuer.failed(), issuer.outstanding()), (1, 0));
    }

    #[test]
    fn acknowledgements_of_an_older_epoch_are_discarded() {
        let issuer = AckIssuer::new();
        let stale = issuer.issue(P, 0, 10);
        issuer.begin_epoch();
        let fresh = issuer.issue(P, 100, 110);

        stale.resolve();
        assert_eq!(issuer.committable(), Positions::new());
        fresh.resolve();
        assert_eq!(issuer.committable(), Positions::from([(P, 110)]));
    }

    #[test]
    fn a_released_barrier_ends_the_wait_and_an_unreleased_one_times_out() {
        let (barrier, wait) = DrainBarrier::new();
        assert_eq!(wait.wait(Duration::from_millis(1)), DrainOutcome::TimedOut);
        let waiter = std::thread::spawn({
            let wait = wait.clone();
            move || wait.wait(Duration::from_secs(60))
        });
        barrier.release();
        assert_eq!(waiter.join().expect("the waiter returns"), DrainOutcome::Released);
    }

    #[test]
    fn a_stop_is_seen_inside_a_wait() {
        let (barrier, wait) = DrainBarrier::new();
        let waiter = std::thread::spawn({
            let wait = wait.clone();
            move || wait.wait(Duration::from_secs(60))
        });
        wait.stop();
        assert_eq!(waiter.join().expect("the waiter returns"), DrainOutcome::Stopped);
        drop(barrier);
    }

    #[test]
    fn a_barrier_dropped_unreleased_is_abandoned() {
        let (barrier, wait) = DrainBarrier::new();
        drop(barrier);
        assert_eq!(wait.wait(Duration::ZERO), DrainOutcome::Abandoned);
    }

    proptest! {
        /// Whatever the order of resolving, dropping and keeping: the committable offset of each partition is the end
        /// of the longest prefix of resolved batches.
        #[test]
        fn the_committable_offset_is_the_end_of_the_resolved_prefix(
            batches in prop::collection::vec((0..3_i32, 0..5_i64, 0..3_u8), 1..60),
            order in prop::collection::vec(any::<prop::sample::Index>(), 60),
        ) {
            let issuer = AckIssuer::new();
            let mut next = [0_i64; 3];
            let mut held = Vec::new();
            for (partition, length, fate) in &batches {
                let first = next[*partition as usize];
                next[*partition as usize] += length;
                held.push(Some((issuer.issue(PartitionId(*partition), first, first + length), *fate)));
            }
            let mut kept = Vec::new();
            let mut settle = |slot: &mut Option<(AckRef, u8)>| match slot.take() {
                Some((ack, 0)) => drop(ack),
                Some((ack, 1)) => kept.push(ack),
                Some((ack, _)) => ack.resolve(),
                None => {}
            };
            for index in order {
                let at = index.index(held.len());
                settle(&mut held[at]);
            }
            held.iter_mut().for_each(&mut settle);

            let mut expected = Positions::new();
            let mut stopped = [false; 3];
            let mut end = [0_i64; 3];
            for (partition, length, fate) in &batches {
                let at = *partition as usize;
                end[at] += length;
                stopped[at] |= *fate < 2;
                if !stopped[at] {
                    expected.insert(PartitionId(*partition), end[at]);
                }
            }
            prop_assert_eq!(issuer.committable(), expected);
        }
    }
}
