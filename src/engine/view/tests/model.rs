//! Random steps, checkpoints, failures, restarts and readers, against a plain model of a view.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array};
use highwater_storage::{KeyOrder, MemoryStore, RocksStore, Store, StoreOptions};
use proptest::prelude::*;

use super::*;
use crate::engine::view::{Cursor, KeyRange};

/// What can happen to a view.
#[derive(Debug, Clone)]
enum Event {
    /// A step changes rows with these keys and values; what becomes of them depends on the layout.
    Step(Vec<(u8, u8)>),
    /// A checkpoint begins.
    Freeze,
    /// It is written and committed.
    Commit,
    /// The pipeline hears of it.
    Thaw,
    /// Or its write fails.
    Fail,
    /// Someone begins to read.
    Read,
    /// The process is killed and opens the view again.
    Reopen,
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let change = (0_u8..12, 0_u8..4);
    let event = prop_oneof![
        6 => prop::collection::vec(change, 0..12).prop_map(Event::Step),
        2 => Just(Event::Freeze),
        2 => Just(Event::Commit),
        2 => Just(Event::Thaw),
        1 => Just(Event::Fail),
        2 => Just(Event::Read),
        1 => Just(Event::Reopen),
    ];
    prop::collection::vec(event, 0..40)
}

/// Rows in the order in which a scan gives them.
#[derive(Debug, Clone, Default, PartialEq)]
struct Model {
    /// Of a view with a key, and of a bag.
    sorted: BTreeMap<(bool, Row), u64>,
    /// Of a log.
    appended: Vec<Row>,
}

impl Model {
    fn rows(&self) -> Vec<Row> {
        let repeated = self
            .sorted
            .iter()
            .flat_map(|((_, row), count)| vec![row.clone(); *count as usize]);
        repeated.chain(self.appended.iter().cloned()).collect()
    }

    /// The weighted rows of a step, as an operator would give them; applied to the model.
    fn step(&mut self, layout: &ViewLayout, changes: &[(u8, u8)]) -> Vec<Delta> {
        let mut taken = Vec::new();
        let mut added = Vec::new();
        match layout {
            ViewLayout::Keyed { .. } | ViewLayout::Index { has_key: true, .. } => {
                let last: BTreeMap<u8, u8> = changes.iter().copied().collect();
                for (key, value) in last {
                    let k = key_of(key);
                    let old = self.sorted.keys().find(|(_, (other, _))| *other == k).cloned();
                    if let Some(old) = old {
                        self.sorted.remove(&old);
                        taken.push((old.1, -1));
                    }
                    if value > 0 {
                        let row = (k, "x".repeat(value.into()));
                        self.sorted.insert((k.is_none(), row.clone()), 1);
                        added.push((row, 1));
                    }
                }
            }
            ViewLayout::Bag | ViewLayout::Index { has_key: false, .. } => {
                for (key, value) in changes {
                    let row = (key_of(*key), "y".repeat((value / 2).into()));
                    let count = self.sorted.entry((row.0.is_none(), row.clone())).or_default();
                    if value % 2 == 1 && *count > 0 {
                        *count -= 1;
                        taken.push((row, -1));
                    } else {
                        *count += u64::from(*value) + 1;
                        added.push((row, i64::from(*value) + 1));
                    }
                }
                self.sorted.retain(|_, count| *count > 0);
            }
            ViewLayout::Log => {
                for (key, value) in changes {
                    let row = (key_of(*key), format!("{value}"));
                    self.appended
                        .extend(vec![row.clone(); 1 + usize::from(value % 2)]);
                    added.push((row, 1 + i64::from(value % 2)));
                }
            }
        }
        if taken.is_empty() {
            vec![delta(&added)]
        } else {
            vec![delta(&taken), delta(&added)]
        }
    }
}

/// Some keys are one byte, some nine, one is null.
fn key_of(key: u8) -> Option<i64> {
    match key {
        0 => None,
        key if key % 2 == 0 => Some(i64::from(key) - 6),
        key => Some(i64::from(key) << 40),
    }
}

/// All rows, read part by part.
fn in_parts(reader: &ViewReader, rows_max: usize) -> Vec<Row> {
    let (mut cursor, mut rows) = (Cursor::Start, Vec::new());
    while cursor != Cursor::End {
        let part = reader.part(&cursor, rows_max).unwrap();
        for delta in part.deltas {
            for (row, own) in rows_of(&delta.batch).into_iter().enumerate() {
                let weight = usize::try_from(delta.weight(row)).unwrap();
                rows.extend(std::iter::repeat_n(own, weight));
            }
        }
        assert_eq!(Cursor::decode(&part.next.encode()), Some(part.next.clone()));
        cursor = part.next;
    }
    rows
}

fn check(reader: &ViewReader, expected: &[Row]) {
    for batch_rows in [1, 3, 100] {
        assert_eq!(contents(reader, batch_rows), expected);
    }
    assert_eq!(reader.rows(), expected.len() as u64);
    let rows = |projection: &[usize]| -> usize {
        reader
            .scan(Some(projection), 4)
            .unwrap()
            .map(|batch| batch.unwrap().num_rows())
            .sum()
    };
    assert_eq!(rows(&[]), expected.len());
    let values = reader
        .scan(Some(&[1]), 4)
        .unwrap()
        .map(Result::unwrap)
        .flat_map(|batch| {
            batch
                .column(0)
                .as_string::<i32>()
                .iter()
                .map(|v| v.unwrap().to_owned())
                .collect::<Vec<_>>()
        });
    assert_eq!(
        values.collect::<Vec<_>>(),
        expected.iter().map(|(_, v)| v.clone()).collect::<Vec<_>>()
    );
    for rows_max in [1, 3, 100] {
        assert_eq!(in_parts(reader, rows_max), expected);
    }
    let deltas = reader
        .contents_as_deltas(5)
        .map(Result::unwrap)
        .flat_map(|delta| {
            let weights: Vec<_> = (0..delta.num_rows())
                .map(|row| delta.weight(row) as usize)
                .collect();
            let rows = rows_of(&delta.batch).into_iter().zip(weights);
            rows.flat_map(|(row, times)| vec![row; times]).collect::<Vec<_>>()
        });
    assert_eq!(deltas.collect::<Vec<_>>(), expected);
    if reader.key().is_some() {
        let at = |k: Option<i64>| -> ArrayRef { Arc::new(Int64Array::from(vec![k])) };
        for k in (0..12).map(key_of) {
            let key = reader.whole_key(&[at(k)]).unwrap();
            let found = rows_of(&reader.get_keys(&[key], None).unwrap());
            let wanted: Vec<_> = expected.iter().filter(|row| row.0 == k).cloned().collect();
            assert_eq!(found, wanted);
        }
        let (first, last) = (key_of(4), key_of(7));
        let bounds = (Some((at(first), true)), Some((at(last), false)));
        let range = reader.range(&[], Some(&bounds)).unwrap();
        let within = |k: &Option<i64>| k.is_some() && *k >= first && *k < last;
        let mut wanted: Vec<_> = expected.iter().filter(|row| within(&row.0)).cloned().collect();
        let found = reader.scan_ranges(vec![range.clone()], None, (1, 4)).unwrap();
        let found: Vec<_> = found.flat_map(|batch| rows_of(&batch.unwrap())).collect();
        assert_eq!(found, wanted);
        let found = reader.scan_ranges_back(vec![range], None, (1, 4)).unwrap();
        let found: Vec<_> = found.flat_map(|batch| rows_of(&batch.unwrap())).collect();
        wanted.reverse();
        assert_eq!(found, wanted);
        let all = reader.scan_ranges_back(vec![KeyRange::all()], None, (1, 4));
        let all: Vec<_> = all.unwrap().flat_map(|batch| rows_of(&batch.unwrap())).collect();
        assert!(all.iter().rev().eq(expected));
    }
}

/// Plays `events` and checks at the end that each reader still sees what it saw first.
fn play(store: &Arc<dyn Store>, layout: &ViewLayout, events: &[Event]) {
    let mut view = open(store, layout.clone());
    let (mut now, mut durable) = (Model::default(), Model::default());
    let mut readers = Vec::new();
    // A checkpoint on its way: not yet committed, and what the view was when it began.
    let mut on_its_way: Option<(Option<FrozenView>, Model)> = None;
    for event in events {
        match event {
            Event::Step(changes) => {
                let deltas = now.step(layout, changes);
                step(&mut view, &deltas);
            }
            Event::Freeze if on_its_way.is_none() => {
                on_its_way = view.freeze().map(|frozen| (Some(frozen), now.clone()));
            }
            Event::Commit => {
                if let Some((frozen, model)) = &mut on_its_way
                    && let Some(frozen) = frozen.take()
                {
                    commit(&**store, frozen);
                    durable = model.clone();
                }
            }
            Event::Thaw if matches!(on_its_way, Some((None, _))) => {
                view.thaw();
                on_its_way = None;
            }
            Event::Fail => on_its_way = None,
            Event::Read => readers.push((view.reader(), now.rows())),
            Event::Reopen => {
                view = open(store, layout.clone());
                now = durable.clone();
                on_its_way = None;
            }
            Event::Freeze | Event::Thaw => {}
        }
    }
    readers.push((view.reader(), now.rows()));
    for (reader, rows) in &readers {
        check(reader, rows);
    }
    check(&open(store, layout.clone()).reader(), &durable.rows());
}

fn layouts() -> impl Strategy<Value = ViewLayout> {
    let index = |has_key| ViewLayout::index(&[(0, KeyOrder::ASCENDING)], has_key, 2);
    prop_oneof![
        Just(keyed()),
        Just(ViewLayout::Log),
        Just(ViewLayout::Bag),
        Just(index(Some(&[0][..]))),
        Just(index(None)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    #[test]
    fn a_view_in_memory_is_what_its_model_is(layout in layouts(), events in events()) {
        play(&(Arc::new(MemoryStore::new()) as Arc<dyn Store>), &layout, &events);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(20))]

    #[test]
    fn a_view_on_disk_is_what_its_model_is(layout in layouts(), events in events()) {
        let dir = tempfile::tempdir().unwrap();
        let store = RocksStore::open(dir.path(), &StoreOptions::default()).unwrap();
        play(&(store as Arc<dyn Store>), &layout, &events);
    }
}
