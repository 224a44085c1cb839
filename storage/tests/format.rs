//! Databases of earlier on-disk formats, kept as they were written, open or are refused by name.
//!
//! tests/fixtures/format-N is the directory of a database of format N without its option and log
//! files. A change of the format keeps the old fixture and adds one:
//! `cargo test -p highwater-storage --test format -- --ignored`.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::path::{Path, PathBuf};

use highwater_storage::{
    CatalogRow, CheckpointWriter, Durability, Epoch, FORMAT_VERSION, Family, KeyReader, KeyWriter,
    LaneCounts, LaneProgress, ObjectId, ObjectProgress, OperatorHeader, OperatorId, OutboxRecord,
    PartitionNo, QueryProgress, RocksStore, SinkProgress, StateTable, Store, StoreOptions, TableId,
    WriteBatch, catalog, layout, outbox, progress,
};

const SOURCE: ObjectId = ObjectId(1);
const VIEW: ObjectId = ObjectId(2);
const OPERATOR: OperatorId = OperatorId(3);
const TABLE: StateTable = StateTable {
    object: VIEW,
    operator: OPERATOR,
    table: TableId(0),
};

fn fixture(version: u16) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/fixtures/format-{version}"))
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap().flatten() {
        fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
    }
}

fn row() -> CatalogRow {
    CatalogRow {
        id: SOURCE,
        sequence: 1,
        kind: "source".to_owned(),
        name: "orders".to_owned(),
        sql: "CREATE SOURCE orders …".to_owned(),
        found: vec![("topic id".to_owned(), "q1Sh9".to_owned())],
    }
}

fn lane() -> LaneProgress {
    LaneProgress {
        next_offset: 42,
        watermark: Some(-7),
        idle: true,
        counts: LaneCounts::default(),
    }
}

fn header(epoch: Epoch) -> QueryProgress {
    QueryProgress {
        epoch,
        next_row_id: 5,
        extra: b"more".to_vec(),
    }
}

fn operator() -> OperatorHeader {
    OperatorHeader {
        fingerprint: 0xfeed,
        description: "aggregate".to_owned(),
    }
}

fn key() -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut key = KeyWriter::new(&mut bytes);
    key.put_str("berlin");
    key.put_i64(-1);
    bytes
}

fn checkpoint(epoch: Epoch) -> WriteBatch {
    let mut checkpoint = CheckpointWriter::new(epoch);
    checkpoint.put_state(TABLE, &key(), b"state");
    checkpoint.put_view(VIEW, &key(), b"row");
    checkpoint.put_lane_progress(VIEW, SOURCE, PartitionNo(0), &lane());
    checkpoint.put_query_progress(VIEW, &header(epoch));
    checkpoint.put_operator_header(VIEW, OPERATOR, &operator());
    checkpoint.put_sink_progress(
        VIEW,
        &SinkProgress {
            next_seq: 1,
            confirmed_seq: 0,
        },
    );
    let mut record = Vec::new();
    OutboxRecord {
        key: Some(b"k"),
        value: None,
        partition: Some(1),
        timestamp_ms: Some(2),
    }
    .encode(&mut record);
    checkpoint.put_outbox(VIEW, 0, &record);
    checkpoint.put_error(0, b"error");
    checkpoint.finish()
}

#[test]
fn a_database_of_format_1_opens_and_shows_its_rows() {
    // given
    let dir = tempfile::tempdir().unwrap();
    copy(&fixture(1), dir.path());

    // when
    let store = RocksStore::open(dir.path(), &StoreOptions::default()).unwrap();

    // then
    let snapshot = store.snapshot();
    let content = catalog::load(&*snapshot).unwrap();
    assert_eq!(content.rows, [row()]);
    assert_eq!(content.next_object_id, ObjectId(3));
    assert_eq!(content.system_version.as_deref(), Some("0.1.0"));
    let expected = ObjectProgress {
        query: Some(header(Epoch(2))),
        sink: Some(SinkProgress {
            next_seq: 1,
            confirmed_seq: 0,
        }),
        lanes: vec![(SOURCE, PartitionNo(0), lane())],
        operators: vec![(OPERATOR, operator())],
    };
    assert_eq!(progress::load(&*snapshot, VIEW).unwrap(), expected);

    let state_key = [&layout::state_prefix(TABLE)[..], &key()].concat();
    assert_eq!(
        snapshot.get(Family::State, &state_key).unwrap().unwrap(),
        b"state"
    );
    let rows: Vec<_> = snapshot
        .scan(Family::Views, b"", None)
        .unwrap()
        .map(Result::unwrap)
        .collect();
    let mut reader = KeyReader::new(rows[0].0.strip_prefix(&layout::view_prefix(VIEW)).unwrap());
    assert_eq!(reader.read_string().unwrap().unwrap(), "berlin");
    assert_eq!(reader.read_i64().unwrap(), Some(-1));
    assert_eq!(
        snapshot
            .get(Family::Errors, &layout::error_key(0))
            .unwrap()
            .unwrap(),
        b"error"
    );

    let mut records = 0;
    outbox::for_each(&*snapshot, VIEW, 0, &mut |sequence, record| {
        assert_eq!(
            (sequence, record.key, record.value),
            (0, Some(b"k".as_slice()), None)
        );
        assert_eq!((record.partition, record.timestamp_ms), (Some(1), Some(2)));
        records += 1;
        Ok(true)
    })
    .unwrap();
    assert_eq!(records, 1);
}

#[test]
#[ignore = "writes the fixture of the current format"]
fn write_the_fixture_of_the_current_format() {
    // given rows in sorted files, from the first opening, and rows in a log
    let dir = tempfile::tempdir().unwrap();
    let store = RocksStore::open(dir.path(), &StoreOptions::default()).unwrap();
    let mut batch = WriteBatch::new();
    catalog::put_row(&mut batch, &row());
    catalog::put_next_object_id(&mut batch, ObjectId(3));
    catalog::put_system_version(&mut batch, "0.1.0");
    batch.append(checkpoint(Epoch(1)));
    store.commit(batch, Durability::Sync).unwrap();
    drop(store);
    let store = RocksStore::open(dir.path(), &StoreOptions::default()).unwrap();
    store.commit(checkpoint(Epoch(2)), Durability::Sync).unwrap();
    drop(store);

    let fixture = fixture(FORMAT_VERSION);
    assert!(!fixture.exists(), "a fixture is never overwritten");
    copy(dir.path(), &fixture);
    for entry in fs::read_dir(&fixture).unwrap().flatten() {
        let name = entry.file_name().into_string().unwrap();
        let needless = ["OPTIONS-", "LOG", "LOCK", "highwater.pid"];
        if needless.iter().any(|prefix| name.starts_with(prefix)) {
            fs::remove_file(entry.path()).unwrap();
        }
    }
}
