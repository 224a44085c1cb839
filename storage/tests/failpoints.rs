//! The failpoints of a commit stand where the restart tests believe them to be. Failpoints belong to
//! the process, so this file has one test.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::Arc;

use highwater_storage::{Durability, Family, RocksStore, Store, StoreOptions, WriteBatch};

fn batch(value: &[u8]) -> WriteBatch {
    let mut batch = WriteBatch::new();
    batch.put(Family::State, b"k", value);
    batch
}

fn dies_at(point: &str, store: &Arc<RocksStore>, value: &[u8]) {
    fail::cfg(point, "panic").unwrap();
    let store = Arc::clone(store);
    let batch = batch(value);
    let commit = move || store.commit(batch, Durability::Sync);
    std::thread::spawn(commit)
        .join()
        .expect_err("the failpoint is passed");
    fail::remove(point);
}

#[test]
fn a_commit_dies_before_and_after_its_write_and_fails_without_a_trace() {
    let scenario = fail::FailScenario::setup();
    let dir = tempfile::tempdir().unwrap();
    let store = RocksStore::open(dir.path(), &StoreOptions::default()).unwrap();
    let value = || store.get(Family::State, b"k").unwrap();

    dies_at("checkpoint-before-write", &store, b"1");
    assert_eq!(value(), None);

    dies_at("checkpoint-after-write", &store, b"2");
    assert_eq!(value().unwrap(), b"2");

    fail::cfg("checkpoint-write-error", "return").unwrap();
    store.commit(batch(b"3"), Durability::Sync).unwrap_err();
    assert_eq!(value().unwrap(), b"2");
    store.commit(batch(b"4"), Durability::Buffered).unwrap();
    assert_eq!(value().unwrap(), b"4");
    scenario.teardown();
}
