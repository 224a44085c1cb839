//! Both stores must behave alike: each scenario runs over RocksDB and over memory.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use highwater_storage::{
    Durability, Family, MemoryStore, RocksStore, Snapshot, Store, StoreOptions, WriteBatch,
};
use proptest::prelude::*;

fn on_both(scenario: impl Fn(Arc<dyn Store>)) {
    scenario(Arc::new(MemoryStore::new()));
    let dir = tempfile::tempdir().unwrap();
    scenario(RocksStore::open(dir.path(), &options()).unwrap());
}

fn options() -> StoreOptions {
    StoreOptions {
        memory_bytes: 16 << 20,
        ..StoreOptions::default()
    }
}

fn commit(store: &dyn Store, fill: impl FnOnce(&mut WriteBatch)) {
    let mut batch = WriteBatch::new();
    fill(&mut batch);
    store.commit(batch, Durability::Buffered).unwrap();
}

type Rows = Vec<(Vec<u8>, Vec<u8>)>;

fn scanned(snapshot: &dyn Snapshot, from: &[u8], to: Option<&[u8]>) -> Rows {
    let rows = snapshot.scan(Family::State, from, to).unwrap();
    rows.map(|row| {
        row.map(|(key, value)| (key.into_vec(), value.into_vec()))
            .unwrap()
    })
    .collect()
}

fn visited(snapshot: &dyn Snapshot, from: &[u8], to: Option<&[u8]>) -> Rows {
    let mut rows = Vec::new();
    snapshot
        .for_each(Family::State, from, to, &mut |key, value| {
            rows.push((key.to_vec(), value.to_vec()));
            Ok(true)
        })
        .unwrap();
    rows
}

/// What a way back visits, in the order of a way on.
fn visited_back(snapshot: &dyn Snapshot, from: &[u8], to: Option<&[u8]>) -> Rows {
    let mut rows = Vec::new();
    snapshot
        .for_each_back(Family::State, from, to, &mut |key, value| {
            rows.push((key.to_vec(), value.to_vec()));
            Ok(true)
        })
        .unwrap();
    rows.reverse();
    rows
}

#[test]
fn families_are_apart() {
    on_both(|store| {
        commit(&*store, |batch| batch.put(Family::State, b"k", b"state"));
        assert_eq!(store.get(Family::Views, b"k").unwrap(), None);
        assert_eq!(store.get(Family::State, b"k").unwrap().unwrap(), b"state");
    });
}

#[test]
fn a_snapshot_does_not_see_later_commits() {
    on_both(|store| {
        commit(&*store, |batch| batch.put(Family::State, b"k", b"1"));
        let old = store.snapshot();
        commit(&*store, |batch| {
            batch.put(Family::State, b"k", b"2");
            batch.put(Family::State, b"l", b"2");
        });
        let middle = store.snapshot();
        commit(&*store, |batch| batch.delete_range(Family::State, b"", b"z"));

        assert_eq!(old.get(Family::State, b"k").unwrap().unwrap(), b"1");
        assert_eq!(old.get(Family::State, b"l").unwrap(), None);
        assert_eq!(middle.get(Family::State, b"k").unwrap().unwrap(), b"2");
        assert_eq!(scanned(&*old, b"", None).len(), 1);
        assert_eq!(scanned(&*middle, b"", None).len(), 2);
        assert_eq!(scanned(&*store.snapshot(), b"", None).len(), 0);
        assert_eq!(old.last_key(Family::State, b"", None).unwrap().unwrap(), b"k");
        assert_eq!(middle.last_key(Family::State, b"", None).unwrap().unwrap(), b"l");
        assert_eq!(
            middle.last_key(Family::State, b"", Some(b"l")).unwrap().unwrap(),
            b"k"
        );
    });
}

#[test]
fn a_snapshot_moves_to_another_thread_and_outlives_its_store() {
    on_both(|store| {
        commit(&*store, |batch| batch.put(Family::State, b"k", b"1"));
        let snapshot = store.snapshot();
        drop(store);
        let read = move || snapshot.get(Family::State, b"k").unwrap();
        assert_eq!(std::thread::spawn(read).join().unwrap().unwrap(), b"1");
    });
}

#[test]
fn a_put_behind_a_range_delete_survives_and_one_before_it_does_not() {
    on_both(|store| {
        commit(&*store, |batch| {
            batch.put(Family::State, b"a", b"before");
            batch.delete_range(Family::State, b"a", b"c");
            batch.put(Family::State, b"b", b"behind");
            batch.put(Family::State, b"c", b"outside");
        });
        let keys: Vec<_> = scanned(&*store.snapshot(), b"", None)
            .into_iter()
            .map(|(key, _)| key)
            .collect();
        assert_eq!(keys, [b"b", b"c"]);
    });
}

#[test]
fn a_visit_ends_when_it_is_told_to_and_passes_errors_on() {
    on_both(|store| {
        commit(&*store, |batch| {
            for number in 0..1_000u16 {
                batch.put(Family::State, &number.to_be_bytes(), b"");
            }
        });
        let mut seen = 0;
        let snapshot = store.snapshot();
        snapshot
            .for_each(Family::State, b"", None, &mut |_, _| {
                seen += 1;
                Ok(seen < 700)
            })
            .unwrap();
        assert_eq!(seen, 700);

        let failed = snapshot.for_each(Family::State, b"", None, &mut |_, _| {
            Err(highwater_storage::StorageError::ReadOnly)
        });
        assert!(failed.is_err());
    });
}

#[test]
fn ranges_that_hold_nothing_yield_nothing() {
    on_both(|store| {
        commit(&*store, |batch| batch.put(Family::State, b"m", b""));
        let snapshot = store.snapshot();
        for (from, to) in [(b"z", b"a"), (b"m", b"m"), (b"n", b"o")] {
            assert_eq!(scanned(&*snapshot, from, Some(to)), []);
            assert_eq!(visited(&*snapshot, from, Some(to)), []);
            assert_eq!(visited_back(&*snapshot, from, Some(to)), []);
            assert_eq!(snapshot.last_key(Family::State, from, Some(to)).unwrap(), None);
        }
    });
}

#[derive(Debug, Clone)]
enum Write {
    Put(Vec<u8>, Vec<u8>),
    Delete(Vec<u8>),
    DeleteRange(Vec<u8>, Vec<u8>),
}

fn key() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(prop::sample::select(vec![0u8, 1, 7, 255]), 0..4)
}

fn write() -> impl Strategy<Value = Write> {
    prop_oneof![
        4 => (key(), any::<Vec<u8>>()).prop_map(|(key, value)| Write::Put(key, value)),
        2 => key().prop_map(Write::Delete),
        1 => (key(), key()).prop_map(|(from, to)| Write::DeleteRange(from, to)),
    ]
}

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

fn apply(model: &mut Model, batch: &mut WriteBatch, write: &Write) {
    match write {
        Write::Put(key, value) => {
            batch.put(Family::State, key, value);
            model.insert(key.clone(), value.clone());
        }
        Write::Delete(key) => {
            batch.delete(Family::State, key);
            model.remove(key);
        }
        Write::DeleteRange(from, to) => {
            batch.delete_range(Family::State, from, to);
            model.retain(|key, _| key < from || key >= to);
        }
    }
}

fn check(snapshot: &dyn Snapshot, model: &Model, from: &[u8], to: &[u8]) {
    let all: Rows = model
        .iter()
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect();
    assert_eq!(scanned(snapshot, b"", None), all);
    assert_eq!(visited(snapshot, b"", None), all);
    if from < to {
        let range = (Bound::Included(from), Bound::Excluded(to));
        let part = model.range::<[u8], _>(range);
        let part: Rows = part.map(|(key, value)| (key.clone(), value.clone())).collect();
        assert_eq!(scanned(snapshot, from, Some(to)), part);
        assert_eq!(visited(snapshot, from, Some(to)), part);
        assert_eq!(visited_back(snapshot, from, Some(to)), part);
        let last = snapshot.last_key(Family::State, from, Some(to)).unwrap();
        assert_eq!(last, part.last().map(|(key, _)| key.clone()));
    }
    for (key, value) in model {
        assert_eq!(snapshot.get(Family::State, key).unwrap().as_ref(), Some(value));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    /// Snapshots taken between commits, dropped in any order, each show the model as it was then.
    #[test]
    fn both_stores_agree_with_a_map(
        commits in prop::collection::vec(prop::collection::vec(write(), 0..12), 1..8),
        kept in prop::collection::vec(any::<bool>(), 8),
        from in key(),
        to in key(),
    ) {
        on_both(|store| {
            let mut model = Model::new();
            let mut snapshots: Vec<(Box<dyn Snapshot>, Model)> = Vec::new();
            for (number, writes) in commits.iter().enumerate() {
                commit(&*store, |batch| {
                    for write in writes {
                        apply(&mut model, batch, write);
                    }
                });
                snapshots.push((store.snapshot(), model.clone()));
                if !kept[number] {
                    snapshots.remove(snapshots.len() / 2);
                }
                for (snapshot, model) in &snapshots {
                    check(&**snapshot, model, &from, &to);
                }
            }
            snapshots.clear();
            check(&*store.snapshot(), &model, &from, &to);
        });
    }
}

#[test]
fn sorted_keys_and_prefixes_are_found_together() {
    on_both(|store| {
        commit(&*store, |batch| {
            for number in (0..3_000u16).step_by(3) {
                batch.put(Family::State, &number.to_be_bytes(), &number.to_le_bytes());
            }
            for (key, value) in [("pa1", "1"), ("pa2", "2"), ("pc1", "3"), ("pd", "4")] {
                batch.put(Family::State, key.as_bytes(), value.as_bytes());
            }
        });
        let snapshot = store.snapshot();
        commit(&*store, |batch| batch.delete_range(Family::State, b"", b"z"));

        let keys: Vec<[u8; 2]> = (0..3_001u16).map(u16::to_be_bytes).collect();
        let keys: Vec<&[u8]> = keys.iter().map(<[u8; 2]>::as_slice).collect();
        let mut found = Vec::new();
        snapshot
            .get_sorted(Family::State, &keys, &mut |place, key, value| {
                assert_eq!(key, keys[place]);
                found.push((place, value.to_vec()));
                Ok(())
            })
            .unwrap();
        let expected = (0..3_000u16)
            .step_by(3)
            .map(|own| (usize::from(own), own.to_le_bytes().to_vec()));
        assert_eq!(found, expected.collect::<Vec<_>>());

        let prefixes = ["o", "pa", "pb", "pc", "pd", "q", "r"].map(str::as_bytes);
        let mut found = Vec::new();
        snapshot
            .scan_under(Family::State, &prefixes, &mut |place, key, value| {
                found.push((place, key.to_vec(), value.to_vec()));
                Ok(())
            })
            .unwrap();
        let expected = [(1, "pa1", "1"), (1, "pa2", "2"), (3, "pc1", "3"), (4, "pd", "4")];
        let expected =
            expected.map(|(place, key, value)| (place, key.as_bytes().to_vec(), value.as_bytes().to_vec()));
        assert_eq!(found, expected);
        snapshot
            .scan_under(Family::State, &[], &mut |_, _, _| Ok(()))
            .unwrap();
    });
}
