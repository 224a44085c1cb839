//! The rows that a subscription starts with: no more of them are read than are asked for.

use std::sync::atomic::{AtomicUsize, Ordering};

use highwater_storage::{Family, MemoryStore, RowVisitor, Rows, Snapshot, StorageError};

use super::*;
use crate::engine::view::StartRows;

/// A snapshot that counts the bytes of the rows that pass.
struct Counting {
    inner: Box<dyn Snapshot>,
    bytes: Arc<AtomicUsize>,
}

impl Snapshot for Counting {
    fn get(&self, family: Family, key: &[u8]) -> Result<Option<Vec<u8>>, StorageError> {
        self.inner.get(family, key)
    }

    fn scan<'a>(&'a self, family: Family, from: &[u8], to: Option<&[u8]>) -> Result<Rows<'a>, StorageError> {
        self.inner.scan(family, from, to)
    }

    fn for_each(
        &self,
        family: Family,
        from: &[u8],
        to: Option<&[u8]>,
        visit: &mut RowVisitor<'_>,
    ) -> Result<(), StorageError> {
        self.inner.for_each(family, from, to, &mut |key, value| {
            self.bytes.fetch_add(key.len() + value.len(), Ordering::SeqCst);
            visit(key, value)
        })
    }

    fn for_each_back(
        &self,
        family: Family,
        from: &[u8],
        to: Option<&[u8]>,
        visit: &mut RowVisitor<'_>,
    ) -> Result<(), StorageError> {
        self.inner.for_each_back(family, from, to, visit)
    }

    fn last_key(
        &self,
        family: Family,
        from: &[u8],
        to: Option<&[u8]>,
    ) -> Result<Option<Vec<u8>>, StorageError> {
        self.inner.last_key(family, from, to)
    }
}

/// A durable view with so many rows of 200 bytes, its start rows, and the count of bytes that are read for them.
fn started(layout: ViewLayout, count: i64) -> (StartRows, Arc<AtomicUsize>) {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let mut view = open(&store, layout);
    let text = "x".repeat(200);
    let rows: Vec<(Row, i64)> = (0..count).map(|k| ((Some(k), text.clone()), 1)).collect();
    step(&mut view, &[delta(&rows)]);
    commit(&*store, view.freeze().unwrap());
    view.thaw();
    let reader = view.reader();
    let bytes = Arc::new(AtomicUsize::new(0));
    let counting = Counting {
        inner: store.snapshot(),
        bytes: Arc::clone(&bytes),
    };
    let reader = ViewReader::new(
        Arc::clone(&reader.format),
        reader.layers.clone(),
        Box::new(counting),
        reader.rows(),
    );
    (StartRows::new(reader), bytes)
}

#[test]
fn each_part_reads_its_own_rows_and_nothing_ahead() {
    const ROWS: usize = 50_000;
    // A part has 8192 rows of some 220 bytes, and looks at the next one.
    const PART_BYTES: usize = 8_193 * 260;
    for layout in [keyed(), ViewLayout::Bag, ViewLayout::Log] {
        let (start, bytes) = started(layout.clone(), ROWS as i64);
        assert_eq!(bytes.load(Ordering::SeqCst), 0, "nothing was asked for");
        let (mut rows, mut parts) = (0, 0);
        while let Some(part) = start.next_part().unwrap() {
            parts += 1;
            rows += part.num_rows();
            let read = bytes.swap(0, Ordering::SeqCst);
            assert!(read <= PART_BYTES, "{layout:?}: a part has read {read} bytes");
            assert!(part.num_rows() <= 8_192);
        }
        assert_eq!((rows, parts), (ROWS, ROWS.div_ceil(8_192)), "{layout:?}");
        assert!(start.is_done() && !start.is_cut());
    }
}

#[test]
fn behind_the_last_row_nothing_is_kept() {
    let (start, _) = started(keyed(), 10);
    assert_eq!(start.next_part().unwrap().unwrap().num_rows(), 10);
    assert!(start.is_done(), "no further part is asked for");
}

#[test]
fn rows_that_were_cut_do_not_come() {
    let (start, _) = started(keyed(), 20_000);
    start.next_part().unwrap().unwrap();
    let other = start.clone();
    other.cut();
    assert!(start.next_part().unwrap().is_none());
    assert!(start.is_cut() && !start.is_done());
}
