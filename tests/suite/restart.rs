//! kill -9 of the real binary on a real Apache Kafka: nothing is lost, views are exact, and what comes twice is the same
//! record again. The checks ask kcat, not Highwater, and beside each stands a wrong variant that they must catch.

use std::path::Path;
use std::time::Duration;

use highwater_storage::layout::{ProgressKey, split_progress_key};
use highwater_storage::{
    Durability, Family, LaneProgress, RocksStore, SinkProgress, Store as _, StoreOptions, WriteBatch,
};

use crate::kafka::auction::Auction;
use crate::kafka::process::Database;
use crate::kafka::{alone, eventually};

/// Bids per partition that are there before the first start.
const FIRST: i64 = 6_000;
/// Bids per partition that come while a process runs that is going to be killed.
const FURTHER: i64 = 1_500;

#[track_caller]
fn assert_faultless(auction: &Auction, database: &Database, when: &str) {
    assert!(!auction.expected().is_empty(), "nothing to check");
    let faults = auction.faults(database);
    let shown = &faults[..faults.len().min(5)];
    assert!(faults.is_empty(), "{when}: {} faults, {shown:#?}", faults.len());
}

/// Pseudo-random numbers from a printed seed.
struct Chance(u64);

impl Chance {
    fn new() -> Self {
        let given = std::env::var("HIGHWATER_SEED")
            .ok()
            .map(|seed| seed.parse().unwrap());
        let now = || {
            std::time::UNIX_EPOCH
                .elapsed()
                .map_or(1, |since| u64::from(since.subsec_nanos()))
        };
        let seed = given.unwrap_or_else(now);
        #[expect(clippy::print_stdout, reason = "whoever sees it fail wants the seed")]
        let () = println!("HIGHWATER_SEED={seed}");
        Self(seed)
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }
}

#[test]
fn killed_at_random_views_are_exact_and_topics_miss_nothing() {
    let _alone = alone();
    let mut chance = Chance::new();
    let mut auction = Auction::open("random", chance.below(1_000));
    auction.produce(FIRST);
    let database = Database::new(&auction.script());
    // The first process may die at any place of its start, the creation of its objects included.
    for kill in 0..6 {
        let running = database.start(&[]);
        if kill > 0 {
            auction.produce(FURTHER);
        }
        // When it dies is the chance that this test is about; nothing waits for it.
        std::thread::sleep(Duration::from_millis(chance.below(1_500)));
        running.kill();
    }
    database.catch_up();
    assert_faultless(&auction, &database, "after kills at random");
}

#[test]
fn killed_at_each_named_point_views_are_exact_and_topics_miss_nothing() {
    let _alone = alone();
    let mut auction = Auction::open("named", 7);
    auction.produce(FIRST);
    let database = Database::new(&auction.script());
    database.catch_up();
    assert_faultless(&auction, &database, "before any kill");
    let records = auction.window_records();
    let mut distinct = records.clone();
    distinct.sort_unstable();
    distinct.dedup();
    assert_eq!(
        records.len(),
        distinct.len(),
        "without a crash nothing comes twice"
    );

    for (point, passes) in [
        ("checkpoint-before-write", "3"),
        ("checkpoint-after-write", "2"),
        ("sink-before-write", "2"),
        ("sink-after-write", "2"),
        ("sink-before-confirm", "1"),
        ("offsets-before-commit", "1"),
    ] {
        let mut running = database.start(&[("HIGHWATER_DIE_AT", &format!("{point}:{passes}"))]);
        auction.produce(FURTHER);
        running.await_death_at(point);
    }
    database.catch_up();
    assert_faultless(&auction, &database, "after a death at each point");
}

#[test]
fn rows_that_a_stuck_sink_held_are_sent_after_the_crash() {
    let _alone = alone();
    let mut auction = Auction::open("stuck", 11);
    auction.produce(FIRST);
    let database = Database::new(&auction.script());
    database.catch_up();

    let running = database.start(&[("FAILPOINTS", "sink-before-write=pause")]);
    auction.produce(FURTHER);
    let durable = format!(
        "SELECT query, partition FROM hw.lanes WHERE durable_offset = {}",
        FIRST + FURTHER
    );
    eventually(
        "all of it is durable although the sinks are stuck",
        || database.rows(&durable).len(),
        |lanes| *lanes == 8,
    );
    running.kill();

    // The wrong variant counts the rows as confirmed, as if a checkpoint dropped what its sink still holds.
    let wrong = database.copy();
    forget_outbox(&wrong.dir());
    wrong.catch_up();
    let faults = auction.faults(&wrong);
    for kind in ["topic of windows: missing", "topic of bidders: not last"] {
        assert!(faults.iter().any(|fault| fault.starts_with(kind)), "{kind}");
    }

    database.catch_up();
    assert_faultless(&auction, &database, "after the crash of a stuck sink");
}

#[test]
fn the_checks_catch_offsets_that_are_not_from_the_write_of_the_state() {
    let _alone = alone();
    let mut auction = Auction::open("shifted", 13);
    auction.produce(FIRST);
    let database = Database::new(&auction.script());
    database.catch_up();
    assert_faultless(&auction, &database, "before offsets are shifted");
    for (shift, what) in [(-1, "a record is taken again"), (1, "a record is skipped")] {
        let wrong = database.copy();
        shift_offsets(&wrong.dir(), shift);
        auction.produce(1);
        wrong.catch_up();
        let faults = auction.faults(&wrong);
        assert!(
            faults.iter().any(|fault| fault.starts_with("view bidders")),
            "{what}: {faults:?}"
        );
    }
}

#[test]
fn the_checks_catch_one_record_that_is_missing_changed_or_old() {
    let _alone = alone();
    let mut auction = Auction::open("checks", 17);
    auction.produce(FIRST);
    let database = Database::new(&auction.script());
    database.catch_up();
    let (expected, mut records) = (auction.expected(), auction.window_records());
    assert_eq!(expected.faults_of_windows(records.clone()), Vec::<String>::new());

    let again = [records.clone(), records.clone()].concat();
    assert_eq!(
        expected.faults_of_windows(again),
        Vec::<String>::new(),
        "the same again is allowed"
    );
    let taken = records.swap_remove(records.len() / 2);
    assert_eq!(
        expected.faults_of_windows(records.clone()),
        [format!("topic of windows: missing {taken}")]
    );
    let changed = taken.replace("\"bids\":", "\"bids\":1");
    records.extend([taken, changed.clone()]);
    assert_eq!(
        expected.faults_of_windows(records),
        [format!("topic of windows: wrong {changed}")]
    );

    let mut bidders = auction.bidder_records();
    assert_eq!(expected.faults_of_bidders(bidders.clone()), Vec::<String>::new());
    let (key, value) = bidders[0].clone();
    bidders.push((key, value.replace("\"total\":", "\"total\":1")));
    assert_eq!(expected.faults_of_bidders(bidders).len(), 2);
}

/// Moves the offsets of all lanes, and leaves the state that belongs to them.
fn shift_offsets(dir: &Path, by: i64) {
    let changed = change_progress(dir, |key, bytes| {
        matches!(key, ProgressKey::Lane(..)).then(|| {
            let mut lane = LaneProgress::decode(bytes).unwrap();
            lane.next_offset += by;
            let mut out = Vec::new();
            lane.encode(&mut out);
            out
        })
    });
    assert_eq!(changed, 8, "two queries with four lanes each");
}

/// Counts all output as confirmed, and drops the outbox.
fn forget_outbox(dir: &Path) {
    let changed = change_progress(dir, |key, bytes| {
        let sink = matches!(key, ProgressKey::Sink).then(|| SinkProgress::decode(bytes).unwrap())?;
        let confirmed = SinkProgress {
            confirmed_seq: sink.next_seq,
            ..sink
        };
        let mut out = Vec::new();
        confirmed.encode(&mut out);
        (confirmed != sink).then_some(out)
    });
    assert_eq!(changed, 2, "both sinks hold rows");
    let store = RocksStore::open(dir, &StoreOptions::default()).unwrap();
    let mut batch = WriteBatch::new();
    batch.delete_range(Family::Outbox, &[], &[0xff; 16]);
    store.commit(batch, Durability::Sync).unwrap();
}

/// Rewrites rows of the progress; gives how many.
fn change_progress(dir: &Path, change: impl Fn(&ProgressKey, &[u8]) -> Option<Vec<u8>>) -> usize {
    let store = RocksStore::open(dir, &StoreOptions::default()).unwrap();
    let mut batch = WriteBatch::new();
    let snapshot = store.snapshot();
    for row in snapshot.scan(Family::Progress, &[], None).unwrap() {
        let (row, value) = row.unwrap();
        let (_, key) = split_progress_key(&row).unwrap();
        if let Some(bytes) = change(&key, &value) {
            batch.put(Family::Progress, &row, &bytes);
        }
    }
    let changed = batch.len();
    store.commit(batch, Durability::Sync).unwrap();
    changed
}
