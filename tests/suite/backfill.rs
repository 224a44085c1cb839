//! Views over tables that have rows already: filled in parts, while the tables change and processes die.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use arrow::array::{RecordBatch, TimestampMicrosecondArray};
use arrow::datatypes::{DataType, Field, Schema, TimeUnit};
use futures::StreamExt;
use highwater::Database;
use highwater::connectors::registry::Registry;

use crate::support::{number, rows, until};

/// What there is to read: by key, in the order of coming, and as a bag.
const TABLES: &str = "CREATE TABLE items (id BIGINT PRIMARY KEY, kind BIGINT, price BIGINT);
    CREATE TABLE events (item BIGINT, at BIGINT) APPEND ONLY;
    CREATE MATERIALIZED VIEW prices AS SELECT kind, price, id / 2 AS pair FROM items WHERE price > 3;
    INSERT INTO items SELECT n, n % 7, n % 50 FROM generate_series(1, 12000) AS t(n);
    INSERT INTO events SELECT n % 300, n FROM generate_series(1, 9000) AS t(n)";

/// The views that are made later, and their queries.
const VIEWS: [(&str, &str); 4] = [
    (
        "by_kind",
        "SELECT kind, count(*) AS n, sum(price) AS total, min(price) AS least FROM items GROUP BY kind",
    ),
    (
        "by_price",
        "SELECT price, count(*) AS n, max(kind) AS most FROM prices GROUP BY price",
    ),
    (
        "by_item",
        "SELECT item, count(*) AS n, max(at) AS last FROM events GROUP BY item",
    ),
    (
        "joined",
        "SELECT kind, count(*) AS n, sum(at) AS total FROM items JOIN events ON item = id GROUP BY kind",
    ),
];

/// A step takes one row, and checkpoints are made all the time.
async fn open(dir: &Path) -> Database {
    let builder = Database::builder()
        .checkpoint_interval(Duration::ZERO)
        .backfill_rows(1);
    builder.open(dir).await.unwrap()
}

async fn backfilling(database: &Database) -> i64 {
    number(
        database,
        "SELECT count(*) FROM hw.queries WHERE state = 'BACKFILLING'",
    )
    .await
}

/// Changes everything that the views read.
async fn change(database: &Database, turn: i64) {
    let sql = format!(
        "INSERT INTO items SELECT n, n % 5, {turn} FROM generate_series({turn}, {turn} + 4) AS t(n);
         UPDATE items SET kind = kind + 1, price = price + 1 WHERE id % 97 = {turn} % 97;
         DELETE FROM items WHERE id = {} OR id = {};
         INSERT INTO events VALUES ({turn} % 300, {turn}), ({turn} % 17, -{turn})",
        turn * 3 % 2000,
        1999 - turn % 2000
    );
    database
        .execute(&sql)
        .await
        .unwrap_or_else(|error| panic!("{sql}: {error} {:?}", error.detail()));
}

async fn assert_exact(database: &Database, when: &str) {
    for (name, query) in VIEWS {
        let sql =
            format!("(SELECT * FROM {name} EXCEPT {query}) UNION ALL ({query} EXCEPT SELECT * FROM {name})");
        assert_eq!(rows(database, &sql).await, [""; 0], "{name} {when}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_view_is_filled_in_parts_while_its_tables_change_and_wherever_the_process_dies() {
    let dir = tempfile::tempdir().unwrap();
    let mut database = open(dir.path()).await;
    database.execute(TABLES).await.unwrap();
    let mut turn = 0;
    let mut died = 0;
    for (name, query) in VIEWS {
        let create = format!("CREATE MATERIALIZED VIEW {name} AS {query}");
        let outcome = database.execute(&create).await.unwrap().remove(0);
        let notice = &outcome.notices.last().unwrap().message;
        assert!(notice.contains("is being filled"), "{notice}");
        // One that reads it has all rows when it has.
        let over = format!(
            "CREATE MATERIALIZED VIEW over_{name} AS SELECT count(*) AS n, sum(n) AS total FROM {name}"
        );
        database.execute(&over).await.unwrap();
        turn += 1;
        change(&database, turn).await;
        assert_eq!(
            backfilling(&database).await,
            2,
            "{name} is large enough to be met"
        );
        drop(database);
        database = open(dir.path()).await;
        died += backfilling(&database).await;
        for _ in 0..20 {
            turn += 1;
            change(&database, turn).await;
        }
        // A read waits until the view has all rows.
        assert_exact_so_far(&database, name).await;
    }
    assert!(died > 0, "some view went on after the crash where it was");
    for _ in 0..20 {
        turn += 1;
        change(&database, turn).await;
    }
    assert_exact(&database, "after all changes").await;
    drop(database);
    assert_exact(&open(dir.path()).await, "after another crash").await;
}

async fn assert_exact_so_far(database: &Database, name: &str) {
    let (_, query) = VIEWS.iter().find(|(own, _)| *own == name).unwrap();
    let over = format!("SELECT count(*) AS n, sum(n) AS total FROM ({query}) AS q");
    for (name, query) in [(name, *query), (&format!("over_{name}"), &over)] {
        let sql =
            format!("(SELECT * FROM {name} EXCEPT {query}) UNION ALL ({query} EXCEPT SELECT * FROM {name})");
        assert_eq!(rows(database, &sql).await, [""; 0], "{name} when it is filled");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn who_reads_a_view_waits_until_it_has_all_rows_or_hears_why_it_never_will() {
    let dir = tempfile::tempdir().unwrap();
    let database = open(dir.path()).await;
    database.execute(TABLES).await.unwrap();
    let ids = "CREATE MATERIALIZED VIEW ids AS SELECT id FROM items; CREATE VIEW plain AS SELECT id FROM ids";
    database.execute(ids).await.unwrap();
    assert_eq!(number(&database, "SELECT count(*) FROM plain").await, 12000);
    database
        .execute("CREATE MATERIALIZED VIEW again AS SELECT id FROM ids; CREATE TABLE copy (id BIGINT); INSERT INTO copy SELECT id FROM again")
        .await
        .unwrap();
    assert_eq!(number(&database, "SELECT count(*) FROM copy").await, 12000);
    database
        .execute("CREATE MATERIALIZED VIEW third AS SELECT id FROM ids; FLUSH")
        .await
        .unwrap();
    assert_eq!(backfilling(&database).await, 0);
    let mut changes = database.subscribe("third").await.unwrap();
    let mut followed = 0;
    while followed < 12000 {
        followed += changes.next().await.unwrap().unwrap().rows.num_rows();
    }

    database
        .execute("UPDATE items SET price = -1 WHERE id = 1990")
        .await
        .unwrap();
    let fails =
        "CREATE MATERIALIZED VIEW shares AS SELECT id, 100 / (price + 1) AS share FROM items WHERE id > 50";
    database.execute(fails).await.unwrap();
    let error = database.query("SELECT * FROM shares").await.unwrap_err();
    assert_eq!(error.sqlstate(), "55000", "{error}");
    assert!(
        error.message().contains("failed before it had all rows"),
        "{error}"
    );
    assert!(error.detail().unwrap().contains("division by zero"), "{error:?}");
    database
        .execute("UPDATE items SET price = 1 WHERE id = 1990; ALTER MATERIALIZED VIEW shares RESUME")
        .await
        .unwrap();
    assert_eq!(number(&database, "SELECT count(*) FROM shares").await, 11950);
}

#[tokio::test(flavor = "multi_thread")]
async fn who_only_looks_at_a_database_does_not_take_a_part_of_a_view_for_all_of_it() {
    let dir = tempfile::tempdir().unwrap();
    let database = open(dir.path()).await;
    database.execute(TABLES).await.unwrap();
    database
        .execute("CREATE MATERIALIZED VIEW ids AS SELECT id FROM items")
        .await
        .unwrap();
    database.checkpoint().await.unwrap();
    assert_eq!(backfilling(&database).await, 1);
    drop(database);
    let looks = Database::builder().open_read_only(dir.path()).await.unwrap();
    let error = looks.query("SELECT count(*) FROM ids").await.unwrap_err();
    assert_eq!(error.sqlstate(), "55000", "{error}");
    assert_eq!(number(&looks, "SELECT count(*) FROM items").await, 12000);
}

#[tokio::test(flavor = "multi_thread")]
async fn windows_of_a_view_that_is_filled_in_parts_close_when_all_rows_are_there() {
    let registry = Registry::with_builtin();
    let memory = Arc::clone(registry.memory().unwrap());
    let builder = Database::builder().registry(registry).backfill_rows(30);
    let database = builder.in_memory().await.unwrap();
    let sql = "CREATE SOURCE clicks (at TIMESTAMP, WATERMARK FOR at AS at) WITH (connector = 'memory', topic = 'clicks');
        CREATE MATERIALIZED VIEW stored AS SELECT at FROM clicks";
    database.execute(sql).await.unwrap();
    // Out of order, so that most rows are behind the watermark that the source has in the end.
    let times = (0..1000_i64).map(|n| n * 7919 % 1000 * 1_000_000);
    let times = TimestampMicrosecondArray::from_iter_values(times);
    let at = Field::new("at", DataType::Timestamp(TimeUnit::Microsecond, None), true);
    let batch = RecordBatch::try_new(Arc::new(Schema::new(vec![at])), vec![Arc::new(times)]).unwrap();
    memory.handle("clicks").push(batch).unwrap();
    until(&database, "SELECT count(*) FROM stored", 1000).await;
    let sql = "CREATE MATERIALIZED VIEW minutes AS
          SELECT window_start, count(*) AS n FROM TUMBLE(stored, at, INTERVAL '1 minute') GROUP BY window_start
          EMIT ON WINDOW CLOSE";
    if let Err(error) = database.execute(sql).await {
        panic!("{error} {:?}", error.detail());
    }
    assert_eq!(number(&database, "SELECT sum(n)::bigint FROM minutes").await, 960);
    assert_eq!(
        number(&database, "SELECT sum(late_rows)::bigint FROM hw.queries").await,
        0
    );
}
