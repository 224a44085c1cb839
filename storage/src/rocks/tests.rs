//! What only a store in a directory does: open, refuse, lock, back up, be followed by a reader.

use std::fs;

use rocksdb::{DB, Options};
use tempfile::TempDir;

use super::*;
use crate::layout::FORMAT_KEY;

fn temp() -> TempDir {
    tempfile::tempdir().unwrap()
}

fn options() -> StoreOptions {
    StoreOptions {
        memory_bytes: 32 << 20,
        ..StoreOptions::default()
    }
}

fn open(dir: &Path) -> Arc<RocksStore> {
    RocksStore::open(dir, &options()).unwrap()
}

fn refused(dir: &Path) -> StorageError {
    match RocksStore::open(dir, &options()) {
        Ok(_) => panic!("the directory was opened"),
        Err(error) => error,
    }
}

fn put(store: &dyn Store, key: &[u8], value: &[u8], durability: Durability) {
    let mut batch = WriteBatch::new();
    batch.put(Family::Views, key, value);
    store.commit(batch, durability).unwrap();
}

fn get(store: &dyn Store, key: &[u8]) -> Option<Vec<u8>> {
    store.get(Family::Views, key).unwrap()
}

#[test]
fn what_was_committed_is_there_after_reopening() {
    let dir = temp();
    let store = open(dir.path());
    put(&*store, b"synced", b"1", Durability::Sync);
    put(&*store, b"buffered", b"2", Durability::Buffered);
    store.sync().unwrap();
    drop(store);

    let store = open(dir.path());
    assert_eq!(get(&*store, b"synced").unwrap(), b"1");
    assert_eq!(get(&*store, b"buffered").unwrap(), b"2");
}

#[test]
fn the_bytes_of_rows_are_counted_and_estimated_where_they_are_many() {
    let dir = temp();
    let store = open(dir.path());
    put(&*store, b"a1", b"12345678", Durability::Buffered);
    put(&*store, b"a2", b"1", Durability::Buffered);
    put(&*store, b"b", b"1", Durability::Buffered);
    assert_eq!(store.bytes_under(Family::Views, b"a").unwrap(), 13);
    assert_eq!(store.bytes_under(Family::State, b"a").unwrap(), 0);

    let value: Vec<u8> = (0..1_000_000_u32)
        .flat_map(|n| n.wrapping_mul(2_654_435_761).to_be_bytes())
        .collect();
    for (n, part) in value.chunks(1_000).enumerate() {
        put(&*store, format!("c{n:06}").as_bytes(), part, Durability::Buffered);
    }
    let bytes = store.bytes_under(Family::Views, b"c").unwrap();
    assert!(bytes > COUNTED_BYTES_MAX && bytes < 8_000_000, "{bytes}");
}

#[test]
fn a_missing_directory_is_made_only_if_allowed() {
    let dir = temp();
    let missing = dir.path().join("a/b");
    let forbidden = StoreOptions {
        create_if_missing: false,
        ..options()
    };
    let error = RocksStore::open(&missing, &forbidden).err().unwrap();
    assert!(matches!(error, StorageError::NotFound { .. }));
    assert!(!missing.exists());

    drop(open(&missing));
    RocksStore::open(&missing, &forbidden).unwrap();
}

#[test]
fn a_second_opener_is_told_who_holds_the_directory() {
    let dir = temp();
    let first = open(dir.path());
    let error = refused(dir.path());
    let pid = std::process::id();
    assert!(
        error
            .to_string()
            .ends_with(&format!("is in use by process {pid}")),
        "{error}"
    );
    drop(first);
    open(dir.path());
}

#[test]
fn a_snapshot_keeps_the_database_open_after_its_store_is_dropped() {
    let dir = temp();
    let store = open(dir.path());
    put(&*store, b"k", b"v", Durability::Buffered);
    let snapshot = store.snapshot();
    drop(store);
    assert_eq!(snapshot.get(Family::Views, b"k").unwrap().unwrap(), b"v");
    assert!(matches!(refused(dir.path()), StorageError::Locked { .. }));
    drop(snapshot);
    open(dir.path());
}

#[test]
fn a_directory_with_other_files_is_refused_and_left_alone() {
    let dir = temp();
    fs::write(dir.path().join("letter.txt"), "dear").unwrap();
    let error = refused(dir.path());
    assert!(
        error.to_string().ends_with("is not a Highwater database"),
        "{error}"
    );
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
}

#[test]
fn a_rocksdb_of_another_program_is_refused_and_left_alone() {
    // given
    let dir = temp();
    let db = DB::open_default(dir.path()).unwrap();
    db.put(b"theirs", b"1").unwrap();
    drop(db);

    // when
    let error = refused(dir.path());

    // then
    assert!(matches!(error, StorageError::NotADatabase { .. }));
    let families = DB::list_cf(&Options::default(), dir.path()).unwrap();
    assert_eq!(families, ["default"]);
}

#[test]
fn an_interrupted_creation_is_completed() {
    let dir = temp();
    let mut db = DB::open_default(dir.path()).unwrap();
    db.create_cf(Family::Meta.name(), &Options::default()).unwrap();
    db.create_cf(Family::State.name(), &Options::default()).unwrap();
    drop(db);

    put(&*open(dir.path()), b"k", b"v", Durability::Sync);
    assert_eq!(get(&*open(dir.path()), b"k").unwrap(), b"v");
}

#[test]
fn a_format_from_the_future_is_refused_naming_both_versions() {
    let dir = temp();
    let store = open(dir.path());
    let mut batch = WriteBatch::new();
    batch.put(Family::Meta, FORMAT_KEY, b"highwater\x00\x02\x01");
    store.commit(batch, Durability::Sync).unwrap();
    drop(store);

    let expected = "the on-disk format has version 2, this program reads version 1";
    assert_eq!(refused(dir.path()).to_string(), expected);
    let error = RocksStore::open_read_only(dir.path()).err().unwrap();
    assert_eq!(error.to_string(), expected);
}

#[test]
fn a_future_format_with_families_of_its_own_is_refused_by_its_version_too() {
    let dir = temp();
    let mut db = DB::open_default(dir.path()).unwrap();
    db.create_cf("meta", &Options::default()).unwrap();
    db.create_cf("indexes", &Options::default()).unwrap();
    let meta = db.cf_handle("meta").unwrap();
    db.put_cf(meta, FORMAT_KEY, b"highwater\x00\x03\x01more").unwrap();
    drop(db);

    let error = refused(dir.path());
    assert!(
        matches!(error, StorageError::FormatVersion { found: 3, .. }),
        "{error}"
    );
}

#[test]
fn a_database_that_lost_a_family_does_not_start_afresh() {
    let dir = temp();
    drop(open(dir.path()));
    let families = DB::list_cf(&Options::default(), dir.path()).unwrap();
    let mut db = DB::open_cf(&Options::default(), dir.path(), families).unwrap();
    db.drop_cf(Family::State.name()).unwrap();
    drop(db);
    assert!(matches!(refused(dir.path()), StorageError::Corrupt { .. }));
}

/// The write-ahead log that holds something.
fn log_of(dir: &Path) -> PathBuf {
    let entries = fs::read_dir(dir).unwrap().flatten().map(|entry| entry.path());
    entries
        .filter(|path| path.extension().is_some_and(|extension| extension == "log"))
        .max_by_key(|path| fs::metadata(path).unwrap().len())
        .unwrap()
}

#[test]
fn a_log_that_is_missing_or_damaged_in_its_middle_is_refused() {
    let dir = temp();
    let store = open(dir.path());
    for number in 0..1_000u32 {
        put(&*store, &number.to_be_bytes(), &[1; 100], Durability::Sync);
    }
    drop(store);
    let log = log_of(dir.path());
    let whole = fs::read(&log).unwrap();

    let mut damaged = whole.clone();
    damaged[whole.len() / 2..][..64].fill(0x5a);
    fs::write(&log, damaged).unwrap();
    assert!(matches!(
        refused(dir.path()),
        StorageError::Corrupt { .. } | StorageError::Engine { .. }
    ));

    fs::remove_file(&log).unwrap();
    let error = refused(dir.path());
    assert!(error.to_string().contains("write-ahead log"), "{error}");

    fs::write(&log, whole).unwrap();
    assert_eq!(get(&*open(dir.path()), &999u32.to_be_bytes()), Some(vec![1; 100]));
}

#[test]
fn a_cut_file_is_noticed_when_the_database_is_opened() {
    // given
    let dir = temp();
    let store = open(dir.path());
    for number in 0..1_000u32 {
        put(&*store, &number.to_be_bytes(), &[1; 100], Durability::Buffered);
    }
    store
        .writable()
        .unwrap()
        .db
        .flush_cf(store.writable().unwrap().family(Family::Views))
        .unwrap();
    drop(store);

    // when
    let file = fs::read_dir(dir.path()).unwrap().flatten().find(|entry| {
        entry
            .path()
            .extension()
            .is_some_and(|extension| extension == "sst")
    });
    let path = file.unwrap().path();
    let bytes = fs::read(&path).unwrap();
    fs::write(&path, &bytes[..bytes.len() / 2]).unwrap();

    // then
    assert!(matches!(refused(dir.path()), StorageError::Corrupt { .. }));
}

#[test]
fn a_backup_is_a_database_and_never_overwrites() {
    // given
    let dir = temp();
    let store = open(&dir.path().join("live"));
    put(&*store, b"k", b"then", Durability::Buffered);

    // when
    let backup = dir.path().join("backup");
    store.backup_to(&backup).unwrap();
    put(&*store, b"k", b"now", Durability::Buffered);

    // then
    assert_eq!(get(&*open(&backup), b"k").unwrap(), b"then");
    assert_eq!(get(&*store, b"k").unwrap(), b"now");
    let error = store.backup_to(&backup).unwrap_err();
    assert!(matches!(error, StorageError::BackupExists { .. }));
    let nowhere = dir.path().join("a/b/c");
    store
        .backup_to(&nowhere)
        .expect_err("the parent directory is missing");
}

#[test]
fn a_reader_beside_the_writer_sees_a_commit_after_a_refresh_and_writes_nothing() {
    // given
    let dir = temp();
    let writer = open(dir.path());
    put(&*writer, b"k", b"1", Durability::Sync);
    let reader = RocksStore::open_read_only(dir.path()).unwrap();
    assert!(reader.is_read_only());
    assert_eq!(get(&*reader, b"k").unwrap(), b"1");
    let snapshot = reader.snapshot();

    // when
    put(&*writer, b"k", b"2", Durability::Sync);
    put(&*writer, b"l", b"3", Durability::Sync);

    // then
    assert_eq!(get(&*reader, b"k").unwrap(), b"1");
    reader.refresh().unwrap();
    assert_eq!(get(&*reader, b"k").unwrap(), b"2");
    assert_eq!(snapshot.get(Family::Views, b"k").unwrap().unwrap(), b"1");
    assert_eq!(snapshot.scan(Family::Views, b"", None).unwrap().count(), 1);
    drop(snapshot);

    put(&*writer, b"k", b"4", Durability::Sync);
    reader.refresh().unwrap();
    assert_eq!(get(&*reader, b"k").unwrap(), b"4");
    assert_eq!(
        reader
            .snapshot()
            .last_key(Family::Views, b"", None)
            .unwrap()
            .unwrap(),
        b"l"
    );

    let refused = reader.commit(WriteBatch::new(), Durability::Sync).unwrap_err();
    assert!(matches!(refused, StorageError::ReadOnly));
    assert!(matches!(reader.sync(), Err(StorageError::ReadOnly)));
    let refused = reader.backup_to(&dir.path().join("b")).unwrap_err();
    assert!(matches!(refused, StorageError::ReadOnly));
}

#[test]
fn a_reader_keeps_reading_files_that_the_writer_has_compacted_away() {
    // given
    let dir = temp();
    let writer = open(dir.path());
    let flush = || {
        let instance = writer.writable().unwrap();
        instance.db.flush_cf(instance.family(Family::Views)).unwrap();
    };
    for round in 0..4u32 {
        for number in 0..500u32 {
            put(
                &*writer,
                &number.to_be_bytes(),
                &round.to_be_bytes(),
                Durability::Buffered,
            );
        }
        flush();
    }
    let reader = RocksStore::open_read_only(dir.path()).unwrap();
    let snapshot = reader.snapshot();

    // when
    let mut batch = WriteBatch::new();
    batch.delete_range(Family::Views, b"", &[255; 5]);
    writer.commit(batch, Durability::Sync).unwrap();
    flush();
    let instance = writer.writable().unwrap();
    instance
        .db
        .compact_range_cf(instance.family(Family::Views), None::<&[u8]>, None::<&[u8]>);

    // then
    assert_eq!(snapshot.scan(Family::Views, b"", None).unwrap().count(), 500);
    reader.refresh().unwrap();
    assert_eq!(
        reader.snapshot().scan(Family::Views, b"", None).unwrap().count(),
        0
    );
}

#[test]
fn opening_read_only_makes_nothing() {
    let dir = temp();
    let missing = dir.path().join("missing");
    let error = RocksStore::open_read_only(&missing).err().unwrap();
    assert!(matches!(error, StorageError::NotFound { .. }));
    assert!(!missing.exists());
    let error = RocksStore::open_read_only(dir.path()).err().unwrap();
    assert!(matches!(error, StorageError::NotFound { .. }));
}

#[test]
fn metrics_follow_what_is_written_and_read() {
    // given
    let dir = temp();
    let store = open(dir.path());
    let before = store.metrics();

    // when rows are written, then they are in the log and in a write buffer
    for number in 0..128u8 {
        put(&*store, &[number], &[number; 8 << 10], Durability::Buffered);
    }
    let written = store.metrics();
    assert!(written.disk_bytes > before.disk_bytes + (1 << 20));
    assert!(written.memtable_bytes > before.memtable_bytes + (1 << 20));

    // when they are flushed, then the buffer is free, and reads fill the cache
    let instance = store.writable().unwrap();
    instance.db.flush_cf(instance.family(Family::Views)).unwrap();
    let flushed = store.metrics();
    assert!(flushed.memtable_bytes < written.memtable_bytes);
    for number in 0..128u8 {
        get(&*store, &[number]).unwrap();
    }
    assert!(store.metrics().block_cache_bytes > flushed.block_cache_bytes + (1 << 19));
}

#[test]
fn a_log_cut_in_its_last_batch_loses_that_batch_whole_and_no_other() {
    // given two batches of two families each, as the operating system left them after a crash
    let dir = temp();
    let live = dir.path().join("live");
    let crashed = dir.path().join("crashed");
    let store = open(&live);
    for (value, durability) in [(b"first", Durability::Sync), (b"later", Durability::Buffered)] {
        let mut batch = WriteBatch::new();
        batch.put(Family::State, b"k", value);
        batch.put(Family::Progress, b"k", value);
        store.commit(batch, durability).unwrap();
    }
    copy_files(&live, &crashed);

    // when
    cut_log(&crashed, |len| len - 1);

    // then
    let store = open(&crashed);
    for family in [Family::State, Family::Progress] {
        assert_eq!(store.get(family, b"k").unwrap().unwrap(), b"first");
    }
}

#[test]
fn a_log_that_lost_what_was_durable_is_refused_and_not_an_older_database() {
    // given
    let dir = temp();
    let live = dir.path().join("live");
    let store = open(&live);
    for number in 0..5u8 {
        put(&*store, &[number], b"row", Durability::Sync);
    }

    for (name, left) in [("all", 0), ("half", 2), ("little", 5)] {
        // when
        let damaged = dir.path().join(name);
        copy_files(&live, &damaged);
        cut_log(&damaged, |len| len * left / 6);

        // then
        let error = refused(&damaged);
        assert!(matches!(error, StorageError::Corrupt { .. }), "{name}: {error}");
    }

    // and what is whole opens, again and again
    drop(store);
    for _ in 0..3 {
        let store = open(&live);
        assert_eq!(get(&*store, &[4]).unwrap(), b"row");
        put(&*store, b"more", b"row", Durability::Sync);
    }
}

fn copy_files(from: &Path, to: &Path) {
    fs::create_dir(to).unwrap();
    for entry in fs::read_dir(from).unwrap().flatten() {
        fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
    }
}

/// Cuts the log that has rows to the length that `left` makes of its own.
fn cut_log(dir: &Path, left: impl Fn(u64) -> u64) {
    let files = fs::read_dir(dir).unwrap().flatten().map(|entry| entry.path());
    let is_log = |path: &PathBuf| path.extension().is_some_and(|extension| extension == "log");
    let log = files
        .filter(is_log)
        .find(|path| path.metadata().unwrap().len() > 0)
        .unwrap();
    let len = log.metadata().unwrap().len();
    fs::OpenOptions::new()
        .write(true)
        .open(&log)
        .unwrap()
        .set_len(left(len))
        .unwrap();
}

#[test]
fn a_database_that_grew_beyond_its_write_buffers_reopens_whole() {
    // given
    let dir = temp();
    let small = StoreOptions {
        memory_bytes: 16 << 20,
        ..options()
    };
    let store = RocksStore::open(dir.path(), &small).unwrap();
    for epoch in 0..8u32 {
        let mut batch = WriteBatch::new();
        for number in 0..20_000u32 {
            batch.put(Family::State, &number.to_be_bytes(), &[epoch as u8; 64]);
        }
        batch.put(Family::Progress, b"epoch", &epoch.to_be_bytes());
        store.commit(batch, Durability::Buffered).unwrap();
    }
    drop(store);

    // when
    let store = RocksStore::open(dir.path(), &small).unwrap();

    // then
    assert_eq!(
        store.get(Family::Progress, b"epoch").unwrap().unwrap(),
        7u32.to_be_bytes()
    );
    let mut rows = 0;
    store
        .snapshot()
        .for_each(Family::State, b"", None, &mut |_, value| {
            assert_eq!(value, [7; 64]);
            rows += 1;
            Ok(true)
        })
        .unwrap();
    assert_eq!(rows, 20_000);
}
