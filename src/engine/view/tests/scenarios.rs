//! What single calls promise.

use arrow::array::{Array, Int32Array};
use highwater_storage::{MemoryStore, RocksStore, StoreOptions};

use super::*;

fn memory() -> Arc<dyn Store> {
    Arc::new(MemoryStore::new())
}

#[test]
fn rows_survive_the_process_and_nothing_stays_in_memory() {
    let dir = tempfile::tempdir().unwrap();
    let rows: Vec<_> = (0..100).map(|k| (row(k, "value"), 1)).collect();
    {
        let store: Arc<dyn Store> = RocksStore::open(dir.path(), &StoreOptions::default()).unwrap();
        let mut view = open(&store, keyed());
        let empty = view.bytes();
        step(&mut view, &[delta(&rows)]);
        assert!(view.bytes() > empty);
        commit(&*store, view.freeze().unwrap());
        view.thaw();
        assert_eq!(view.bytes(), empty);
        assert!(view.freeze().is_none());
    }

    let store: Arc<dyn Store> = RocksStore::open(dir.path(), &StoreOptions::default()).unwrap();
    let view = open(&store, keyed());

    assert_eq!(view.rows(), 100);
    assert_eq!(
        contents(&view.reader(), 7),
        rows.into_iter().map(|(row, _)| row).collect::<Vec<_>>()
    );
}

#[test]
fn a_row_that_is_not_there_cannot_be_taken_from_a_bag() {
    let store = memory();
    let mut view = open(&store, ViewLayout::Bag);
    step(&mut view, &[delta(&[(row(1, "a"), 2)])]);

    let error = view
        .base()
        .prepare(&[delta(&[(row(1, "a"), -3), (row(2, "b"), 5)])])
        .unwrap_err();

    assert_eq!(error.sqlstate, "XX000");
    assert_eq!(
        error.detail.as_deref(),
        Some("The row is there 2 times and its weight is -3.")
    );
    assert_eq!(contents(&view.reader(), 10), [row(1, "a"), row(1, "a")]);
}

#[test]
fn rows_of_a_bag_count_once_though_their_checkpoint_becomes_durable_while_a_change_is_prepared() {
    let store = memory();
    let mut view = open(&store, ViewLayout::Bag);
    step(&mut view, &[delta(&[(row(1, "a"), 3)])]);
    let frozen = view.freeze().unwrap();

    let base = view.base();
    commit(&*store, frozen);
    view.thaw();
    let change = base.prepare(&[delta(&[(row(1, "a"), -1)])]).unwrap();
    drop(base);
    view.apply(change);

    assert_eq!(contents(&view.reader(), 10), [row(1, "a"), row(1, "a")]);
}

#[test]
fn a_log_takes_no_row_away() {
    let view = open(&memory(), ViewLayout::Log);

    let error = view.base().prepare(&[delta(&[(row(1, "a"), -1)])]).unwrap_err();

    assert_eq!(
        error.message,
        "a row is taken away from a relation that only grows"
    );
}

#[test]
fn two_rows_with_one_key_in_a_retracting_change_are_refused() {
    let view = open(&memory(), keyed());

    let change = [
        delta(&[(row(9, "old"), -1)]),
        delta(&[(row(1, "a"), 1), (row(1, "b"), 1)]),
    ];

    assert_eq!(
        view.base().prepare(&change).unwrap_err().detail.as_deref(),
        Some("Two rows with one key are added.")
    );
    assert_eq!(
        view.base()
            .prepare(&[delta(&[(row(1, "a"), 2)])])
            .unwrap_err()
            .sqlstate,
        "XX000"
    );
}

#[test]
fn the_old_row_of_a_key_may_stand_in_any_delta_of_the_step() {
    let mut view = open(&memory(), keyed());
    step(&mut view, &[delta(&[(row(1, "a"), 1), (row(2, "b"), 1)])]);

    step(
        &mut view,
        &[
            delta(&[(row(1, "c"), 1)]),
            delta(&[(row(2, "b"), -1), (row(1, "a"), -1)]),
        ],
    );

    assert_eq!(contents(&view.reader(), 10), [row(1, "c")]);
    assert_eq!(view.rows(), 1);
}

#[test]
fn a_view_whose_key_has_no_columns_has_one_row() {
    let store = memory();
    let layout = ViewLayout::choose(Some(&[]), false);
    let mut view = open(&store, layout.clone());
    step(&mut view, &[delta(&[(row(1, "a"), 1)])]);
    commit(&*store, view.freeze().unwrap());
    view.thaw();
    step(&mut view, &[delta(&[(row(1, "a"), -1), (row(2, "b"), 1)])]);

    assert_eq!(contents(&view.reader(), 10), [row(2, "b")]);
    let found = view.reader().get_keys(&[Vec::new()], None).unwrap();
    assert_eq!(rows_of(&found), [row(2, "b")]);
    assert_eq!(contents(&open(&store, layout).reader(), 10), [row(1, "a")]);
}

#[test]
fn stored_rows_of_another_layout_or_type_are_not_opened() {
    let store = memory();
    let mut view = open(&store, keyed());
    step(&mut view, &[delta(&[(row(1, "a"), 1)])]);
    commit(&*store, view.freeze().unwrap());

    let other_type = Arc::new(Schema::new(vec![
        Field::new("k", DataType::Int64, true),
        Field::new("v", DataType::Int32, false),
    ]));
    let errors = [
        ViewStore::open(Arc::clone(&store), VIEW, schema(), ViewLayout::Bag).err(),
        ViewStore::open(Arc::clone(&store), VIEW, other_type, keyed()).err(),
        ViewStore::open(
            Arc::clone(&store),
            VIEW,
            schema(),
            ViewLayout::Keyed { columns: vec![1] },
        )
        .err(),
    ];

    for error in errors {
        assert_eq!(error.unwrap().sqlstate, "XX001");
    }
}

#[test]
fn rows_without_a_header_and_headers_of_another_version_are_not_opened() {
    let store = memory();
    let mut writer = CheckpointWriter::new(Epoch(1));
    writer.put_view(VIEW, &[1, 1], b"row");
    store.commit(writer.finish(), Durability::Sync).unwrap();
    let orphan = ViewStore::open(Arc::clone(&store), VIEW, schema(), keyed())
        .err()
        .unwrap();
    assert_eq!(orphan.detail.as_deref(), Some("It has rows and no header."));

    let mut writer = CheckpointWriter::new(Epoch(2));
    writer.put_view(VIEW, &[0], &[9, 9, 9]);
    store.commit(writer.finish(), Durability::Sync).unwrap();
    let newer = ViewStore::open(Arc::clone(&store), VIEW, schema(), keyed())
        .err()
        .unwrap();
    assert_eq!(
        newer.detail.as_deref(),
        Some("The rows have format 9.9.9, the program reads 1.1.1.")
    );
}

#[test]
fn a_change_of_other_columns_is_refused_and_text_views_are_taken_as_text() {
    let mut view = open(&memory(), ViewLayout::Log);
    let int: ArrayRef = Arc::new(Int32Array::from(vec![1]));
    let other = RecordBatch::try_from_iter([("k", int)]).unwrap();
    assert_eq!(
        view.base()
            .prepare(&[Delta::inserts(other)])
            .unwrap_err()
            .sqlstate,
        "XX000"
    );

    let plain = delta(&[(row(1, "a"), 1)]).batch;
    let text = arrow::compute::cast(plain.column(1), &DataType::Utf8View).unwrap();
    let views = RecordBatch::try_from_iter([("other", Arc::clone(plain.column(0))), ("name", text)]).unwrap();
    step(&mut view, &[Delta::inserts(views)]);

    assert_eq!(contents(&view.reader(), 10), [row(1, "a")]);
    assert!(
        view.reader()
            .scan(None, 10)
            .unwrap()
            .next()
            .unwrap()
            .unwrap()
            .schema()
            == schema()
    );
}

#[test]
fn an_update_in_place_takes_no_memory_and_garbage_is_swept() {
    let mut view = open(&memory(), keyed());
    let rows = |value: &str| delta(&(0..1000).map(|k| (row(k, value), 1)).collect::<Vec<_>>());
    step(&mut view, &[rows("a")]);
    let bytes = view.bytes();

    for _ in 0..50 {
        step(&mut view, &[rows("b")]);
    }
    assert_eq!(view.bytes(), bytes);

    let mut most = 0;
    for length in 1..200 {
        let value = "c".repeat(1 + length % 5 * 40);
        step(&mut view, &[rows(&value)]);
        most = most.max(view.bytes());
    }
    assert!(
        most < 1000 * 200 * 5,
        "{most} bytes for 1000 rows of at most 180 bytes"
    );
}

#[test]
fn a_reader_keeps_its_rows_while_steps_and_checkpoints_go_on() {
    let store = memory();
    let mut view = open(&store, keyed());
    step(&mut view, &[delta(&[(row(1, "a"), 1), (row(2, "b"), 1)])]);
    let reader = view.reader();
    let mut scan = reader.scan(None, 1).unwrap();
    assert_eq!(rows_of(&scan.next().unwrap().unwrap()), [row(1, "a")]);

    step(&mut view, &[delta(&[(row(2, "b"), -1), (row(3, "c"), 1)])]);
    commit(&*store, view.freeze().unwrap());
    view.thaw();

    assert_eq!(rows_of(&scan.next().unwrap().unwrap()), [row(2, "b")]);
    assert!(scan.next().is_none());
    assert_eq!(contents(&view.reader(), 10), [row(1, "a"), row(3, "c")]);
}

#[test]
fn a_row_that_is_there_very_often_comes_in_batches() {
    let mut view = open(&memory(), ViewLayout::Bag);
    step(&mut view, &[delta(&[(row(1, "a"), 10_000), (row(2, "b"), 1)])]);

    let sizes = |projection| -> Vec<usize> {
        let scan = view.reader().scan(projection, 4096).unwrap();
        scan.map(|batch| batch.unwrap().num_rows()).collect()
    };

    assert_eq!(sizes(None), [4096, 4096, 1809]);
    assert_eq!(sizes(Some(&[])), [4096, 4096, 1809]);
    assert!(
        view.reader()
            .contents_as_deltas(4096)
            .next()
            .unwrap()
            .unwrap()
            .batch
            .column(0)
            .len()
            == 2
    );
}
