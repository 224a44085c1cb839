//! Subscriptions to queries: they run as views do, for as long as somebody follows them, and leave nothing behind.

use std::collections::BTreeMap;
use std::time::Duration;

use arrow::array::{Int64Array, RecordBatch};
use arrow::datatypes::{DataType, Field, Schema};
use futures::StreamExt as _;
use highwater::{Changes, Database, Error, Subscription};
use highwater_storage::{Family, RocksStore, Store as _, StoreOptions};

use crate::support::{cells, number, rows, until};

/// Nothing in a test takes this long unless it hangs.
const PATIENCE: Duration = Duration::from_secs(30);

const RUNNING: &str = "SELECT count(*) FROM hw.queries WHERE name LIKE 'subscription %'";

/// The next changes.
async fn next(changes: &mut Subscription) -> Result<Changes, Error> {
    let next = tokio::time::timeout(PATIENCE, changes.next()).await;
    next.expect("something comes").expect("it has not ended")
}

/// The sum of the changes that have come so far, by row.
#[derive(Default)]
struct Sum(BTreeMap<String, i64>);

impl Sum {
    fn add(&mut self, changes: &Changes) {
        for (row, weight) in cells(std::slice::from_ref(&changes.rows))
            .iter()
            .zip(&changes.weights)
        {
            let sum = self.0.entry(row.join("|")).or_default();
            *sum += weight;
            assert!(*sum >= 0, "{row:?} is taken away and not there");
        }
        self.0.retain(|_, weight| *weight != 0);
    }

    /// Its rows as sorted lines.
    fn lines(&self) -> Vec<String> {
        let lines = self.0.iter().flat_map(|(row, weight)| {
            let times = usize::try_from(*weight).unwrap();
            std::iter::repeat_n(row.clone(), times)
        });
        lines.collect()
    }

    /// Takes changes until their sum is `expected`.
    async fn until(&mut self, changes: &mut Subscription, expected: &[String]) {
        while self.lines() != expected {
            let next = tokio::time::timeout(PATIENCE, changes.next()).await;
            let Ok(next) = next else {
                panic!("{:#?} and not {expected:#?}", self.lines());
            };
            self.add(&next.unwrap().unwrap());
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_sum_of_the_changes_of_a_query_is_its_answer() {
    let database = Database::builder().backfill_rows(7).in_memory().await.unwrap();
    database
        .execute(
            "CREATE TABLE items (id BIGINT PRIMARY KEY, kind BIGINT, price BIGINT);
             CREATE TABLE kinds (kind BIGINT PRIMARY KEY, name VARCHAR);
             CREATE MATERIALIZED VIEW cheap AS SELECT id, kind FROM items WHERE price < 50;
             CREATE VIEW named AS SELECT i.id, k.name FROM items i JOIN kinds k ON i.kind = k.kind;
             INSERT INTO kinds SELECT n, 'kind ' || n::text FROM generate_series(0, 6) AS t(n);
             INSERT INTO items SELECT n, n % 7, n % 100 FROM generate_series(1, 500) AS t(n)",
        )
        .await
        .unwrap();
    let queries = [
        "SELECT kind, count(*) AS n, max(price) AS most FROM items GROUP BY kind",
        "SELECT kind FROM items WHERE price < 10",
        "SELECT name, count(*) AS n FROM named GROUP BY name HAVING count(*) > 5",
        "SELECT DISTINCT kind FROM cheap",
        "SELECT i.id, k.name FROM items i LEFT JOIN kinds k ON i.kind = k.kind AND k.name <> 'kind 3' WHERE i.id < 40",
        "SELECT id, price FROM items ORDER BY price DESC, id LIMIT 5",
        "SELECT count(*) AS n FROM items WHERE price > 1000",
        "SELECT kind FROM items UNION ALL SELECT kind FROM kinds",
    ];
    let mut followed = Vec::new();
    for query in queries {
        let changes = database.subscribe_query(query).await.unwrap();
        followed.push((query, changes, Sum::default()));
    }
    assert_eq!(number(&database, RUNNING).await, queries.len() as i64);
    for turn in 0..6 {
        for (query, changes, sum) in &mut followed {
            sum.until(changes, &rows(&database, query).await).await;
        }
        let id = 100 * turn;
        database
            .execute(&format!(
                "UPDATE items SET price = price + 13 WHERE id % 11 = {turn};
                 DELETE FROM items WHERE id BETWEEN {id} AND {id} + 20;
                 INSERT INTO items VALUES ({id} + 1000, {turn}, 3), ({id} + 1001, 99, 200);
                 UPDATE kinds SET name = name || '!' WHERE kind = {turn}"
            ))
            .await
            .unwrap();
    }
    drop(followed);
    until(&database, RUNNING, 0).await;
    database.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_followed_query_leaves_nothing_behind_not_even_after_a_crash() {
    let dir = tempfile::tempdir().unwrap();
    let open = || {
        Database::builder()
            .checkpoint_interval(Duration::ZERO)
            .open(dir.path())
    };
    let database = open().await.unwrap();
    database
        .execute("CREATE TABLE t (a BIGINT PRIMARY KEY, b BIGINT); INSERT INTO t VALUES (1, 1), (2, 1)")
        .await
        .unwrap();
    const SUMS: &str = "SELECT b, sum(a)::bigint AS s FROM t GROUP BY b";
    for round in 0..3_i64 {
        let mut changes = database.subscribe_query(SUMS).await.unwrap();
        let mut sum = Sum::default();
        database
            .execute(&format!(
                "UPDATE t SET b = b + 1; INSERT INTO t VALUES (10 + {round}, 1)"
            ))
            .await
            .unwrap();
        database.checkpoint().await.unwrap();
        sum.until(&mut changes, &rows(&database, SUMS).await).await;
        drop(changes);
        until(&database, RUNNING, 0).await;
    }
    let mut changes = database.subscribe_query(SUMS).await.unwrap();
    next(&mut changes).await.unwrap();
    database.execute("INSERT INTO t VALUES (100, 100)").await.unwrap();
    database.checkpoint().await.unwrap();
    // As a crash would: nobody closes anything.
    drop(database);
    let ended = tokio::time::timeout(PATIENCE, async { while changes.next().await.is_some() {} });
    ended.await.unwrap();
    drop(changes);

    {
        let store = RocksStore::open(dir.path(), &StoreOptions::default()).unwrap();
        let snapshot = store.snapshot();
        for family in [Family::Progress, Family::State, Family::Views, Family::Outbox] {
            // Objects of the catalog have numbers below this.
            let left = snapshot.scan(family, &[0x80], None).unwrap().count();
            assert_eq!(left, 0, "{family:?}");
        }
    }
    let database = open().await.unwrap();
    assert_eq!(number(&database, RUNNING).await, 0);
    assert_eq!(rows(&database, "SELECT name FROM hw.queries").await, ["t"]);
    assert_eq!(number(&database, "SELECT count(*) FROM t").await, 6);
    database.close().await.unwrap();
}

fn numbers(values: std::ops::Range<i64>) -> RecordBatch {
    let schema = Schema::new(vec![Field::new("n", DataType::Int64, true)]);
    let column = Int64Array::from_iter_values(values);
    RecordBatch::try_new(std::sync::Arc::new(schema), vec![std::sync::Arc::new(column)]).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_source_is_followed_from_where_a_view_would_start() {
    let database = Database::builder()
        .checkpoint_interval(Duration::from_millis(20))
        .in_memory()
        .await
        .unwrap();
    database
        .execute("CREATE SOURCE s (n BIGINT) WITH (connector = 'memory', topic = 's', retention.rows = 100)")
        .await
        .unwrap();
    let source = database.memory_source("s").unwrap();
    source.push(numbers(0..10)).unwrap();

    let mut plain = database.subscribe("s").await.unwrap();
    let mut even = database
        .subscribe_query("SELECT n / 2 AS half FROM s WHERE n % 2 = 0")
        .await
        .unwrap();
    let mut sums = (Sum::default(), Sum::default());
    let lines = |values: std::ops::Range<i64>| {
        let mut lines: Vec<String> = values.map(|n| n.to_string()).collect();
        lines.sort_unstable();
        lines
    };
    // What was read of a source is a change, made by a step.
    let first = next(&mut even).await.unwrap();
    assert!(first.step > 0);
    sums.1.add(&first);
    sums.0.until(&mut plain, &lines(0..10)).await;
    sums.1.until(&mut even, &lines(0..5)).await;
    // More than the topic keeps: it lets go of what both have taken.
    for round in 1..40 {
        let push = || source.push(numbers(round * 10..round * 10 + 10));
        let pushed = async {
            while push().is_err() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(PATIENCE, pushed).await.unwrap();
        sums.0.until(&mut plain, &lines(0..round * 10 + 10)).await;
        sums.1.until(&mut even, &lines(0..round * 5 + 5)).await;
    }
    database.execute("DROP SOURCE s").await.unwrap();
    let ended = tokio::time::timeout(PATIENCE, async {
        while let Some(changes) = plain.next().await {
            changes.unwrap();
        }
    });
    ended.await.expect("it ends with the source");
    until(&database, RUNNING, 0).await;
    database.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_query_that_fails_or_whose_table_goes_ends_alone() {
    let database = Database::in_memory().await.unwrap();
    database
        .execute(
            "CREATE TABLE t (a BIGINT PRIMARY KEY); CREATE TABLE u (a BIGINT PRIMARY KEY);
             INSERT INTO t VALUES (1), (2); INSERT INTO u VALUES (1)",
        )
        .await
        .unwrap();
    let error = database.subscribe_query("SELECT 1 / 0 AS x FROM t").await;
    assert_eq!(error.err().unwrap().sqlstate(), "22012");
    let error = database.subscribe_query("SELECT a, a FROM t").await;
    assert_eq!(error.err().unwrap().sqlstate(), "42701");
    let error = database.subscribe_query("SELECT a FROM nothing").await;
    assert_eq!(error.err().unwrap().sqlstate(), "42P01");

    let mut failing = database
        .subscribe_query("SELECT 10 / (a - 5) AS x FROM t")
        .await
        .unwrap();
    let mut joined = database
        .subscribe_query("SELECT t.a FROM t JOIN u ON t.a = u.a")
        .await
        .unwrap();
    next(&mut failing).await.unwrap();
    assert_eq!(cells(&[next(&mut joined).await.unwrap().rows]), [["1"]]);
    database.execute("INSERT INTO t VALUES (5)").await.unwrap();
    let error = next(&mut failing).await.unwrap_err();
    assert_eq!(error.sqlstate(), "22012");
    assert!(failing.next().await.is_none());
    database.execute("INSERT INTO u VALUES (2)").await.unwrap();
    assert_eq!(cells(&[next(&mut joined).await.unwrap().rows]), [["2"]]);
    database.execute("DROP TABLE u").await.unwrap();
    let ended = tokio::time::timeout(PATIENCE, joined.next()).await.unwrap();
    assert!(
        ended.is_none(),
        "the subscription ends with a table that it reads"
    );
    drop(failing);
    until(&database, RUNNING, 0).await;
    assert_eq!(number(&database, "SELECT count(*) FROM t").await, 3);
    database.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn progress_is_told_of_steps_that_change_nothing() {
    let database = Database::in_memory().await.unwrap();
    database
        .execute("CREATE TABLE t (a BIGINT PRIMARY KEY, b BIGINT); INSERT INTO t VALUES (1, 1)")
        .await
        .unwrap();
    let changes = database
        .subscribe_query("SELECT a FROM t WHERE b > 0")
        .await
        .unwrap();
    let mut changes = changes.with_progress();
    let first = next(&mut changes).await.unwrap();
    assert_eq!((first.step, first.weights), (0, vec![1]));
    let whole = next(&mut changes).await.unwrap();
    assert!(whole.weights.is_empty(), "the rows at the start are complete");
    database.execute("INSERT INTO t VALUES (2, -1)").await.unwrap();
    let later = next(&mut changes).await.unwrap();
    assert!(later.weights.is_empty() && later.step > whole.step);
    database.execute("UPDATE t SET b = 7 WHERE a = 2").await.unwrap();
    let mut change = next(&mut changes).await.unwrap();
    while change.weights.is_empty() {
        change = next(&mut changes).await.unwrap();
    }
    assert!(change.step > later.step);
    let reached = next(&mut changes).await.unwrap();
    assert!(reached.weights.is_empty() && reached.step >= change.step);
    database.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_query_that_nobody_reads_ends_and_holds_nobody_back() {
    let database = Database::in_memory().await.unwrap();
    database
        .execute("CREATE TABLE t (a BIGINT PRIMARY KEY)")
        .await
        .unwrap();
    let mut changes = database
        .subscribe_query("SELECT count(*) AS n FROM t")
        .await
        .unwrap();
    // More steps than wait for a subscriber.
    for n in 0..1_100 {
        database
            .execute(&format!("INSERT INTO t VALUES ({n})"))
            .await
            .unwrap();
    }
    // Its query does not run on for nobody.
    until(
        &database,
        "SELECT count(*) FROM hw.queries WHERE name LIKE 'subscription %' AND state = 'RUNNING'",
        0,
    )
    .await;
    let error = loop {
        if let Err(error) = next(&mut changes).await {
            break error;
        }
    };
    assert_eq!(error.sqlstate(), "53400");
    assert!(changes.next().await.is_none());
    until(&database, RUNNING, 0).await;
    database.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_rows_at_the_start_come_in_parts_while_steps_go_on() {
    let database = Database::in_memory().await.unwrap();
    database
        .execute(
            "CREATE TABLE t (a BIGINT PRIMARY KEY, b BIGINT);
             INSERT INTO t SELECT n, 0 FROM generate_series(1, 30000) AS g(n)",
        )
        .await
        .unwrap();
    database.checkpoint().await.unwrap();
    let mut changes = database.subscribe("t").await.unwrap();
    let mut answers = database
        .subscribe_query("SELECT a, b FROM t WHERE a % 2 = 0")
        .await
        .unwrap();
    let mut sums = (Sum::default(), Sum::default());
    for turn in 0..4 {
        let (first, second) = (
            next(&mut changes).await.unwrap(),
            next(&mut answers).await.unwrap(),
        );
        if turn < 3 {
            assert_eq!(first.step, 0, "what was there comes before all changes");
        }
        assert!(first.rows.num_rows() <= 8_192 && second.rows.num_rows() <= 8_192);
        sums.0.add(&first);
        sums.1.add(&second);
        database
            .execute("UPDATE t SET b = b + 1 WHERE a % 1000 = 0; DELETE FROM t WHERE a < 10")
            .await
            .unwrap();
        database.checkpoint().await.unwrap();
    }
    sums.0
        .until(&mut changes, &rows(&database, "SELECT * FROM t").await)
        .await;
    let even = rows(&database, "SELECT a, b FROM t WHERE a % 2 = 0").await;
    sums.1.until(&mut answers, &even).await;
    database.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn steps_that_wait_are_bounded_in_bytes() {
    let database = Database::in_memory().await.unwrap();
    database
        .execute("CREATE TABLE t (a BIGINT PRIMARY KEY, b VARCHAR)")
        .await
        .unwrap();
    let mut changes = database.subscribe("t").await.unwrap();
    const WAITING: &str = "SELECT coalesce(max(bytes), 0) FROM hw.memory WHERE part = 'subscriptions'";
    let mut most = 0;
    for n in 0..40 {
        database
            .execute(&format!("INSERT INTO t VALUES ({n}, repeat('x', 2000000))"))
            .await
            .unwrap();
        most = most.max(number(&database, WAITING).await);
    }
    assert!((40_000_000..=64 << 20).contains(&most), "{most} bytes waited");
    assert_eq!(number(&database, WAITING).await, 0, "who has lagged is let go of");
    let error = loop {
        if let Err(error) = next(&mut changes).await {
            break error;
        }
    };
    assert_eq!(error.sqlstate(), "53400");
    assert!(changes.next().await.is_none());
    database.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_that_were_not_read_keep_no_database_open() {
    let dir = tempfile::tempdir().unwrap();
    let database = Database::open(dir.path()).await.unwrap();
    database
        .execute(
            "CREATE TABLE t (n BIGINT PRIMARY KEY);
             INSERT INTO t SELECT n FROM generate_series(1, 30000) AS g(n)",
        )
        .await
        .unwrap();
    let unread = database.subscribe("t").await.unwrap();
    let mut begun = database.subscribe("t").await.unwrap();
    next(&mut begun).await.unwrap();
    database.close().await.unwrap();
    let again = Database::open(dir.path()).await.unwrap();
    let mut unread = unread;
    for changes in [&mut unread, &mut begun] {
        let error = next(changes).await.unwrap_err();
        assert_eq!(error.sqlstate(), "57P03");
        assert!(changes.next().await.is_none());
    }
    assert_eq!(number(&again, "SELECT count(*) FROM t").await, 30_000);
    again.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_of_what_was_dropped_or_resumed_keep_no_database_open() {
    let dir = tempfile::tempdir().unwrap();
    let database = Database::open(dir.path()).await.unwrap();
    database
        .execute(
            "CREATE TABLE t (n BIGINT PRIMARY KEY);
             CREATE TABLE kept (n BIGINT PRIMARY KEY);
             CREATE MATERIALIZED VIEW v AS SELECT n, 10 / (n + 1) AS share FROM kept;
             INSERT INTO t SELECT n FROM generate_series(1, 30000) AS g(n);
             INSERT INTO kept SELECT n FROM generate_series(1, 30000) AS g(n)",
        )
        .await
        .unwrap();
    let unread = database.subscribe("t").await.unwrap();
    let mut begun = database.subscribe("t").await.unwrap();
    next(&mut begun).await.unwrap();
    let query = database
        .subscribe_query("SELECT n % 10000 AS m FROM t")
        .await
        .unwrap();
    let resumed = database.subscribe("v").await.unwrap();
    database
        .execute("DROP TABLE t; INSERT INTO kept VALUES (-1)")
        .await
        .unwrap();
    until(
        &database,
        "SELECT count(*) FROM hw.queries WHERE state = 'FAILED'",
        1,
    )
    .await;
    database
        .execute("DELETE FROM kept WHERE n = -1; ALTER MATERIALIZED VIEW v RESUME")
        .await
        .unwrap();
    let after = database.subscribe("v").await.unwrap();
    database.close().await.unwrap();
    let again = Database::open(dir.path()).await.unwrap();
    for mut changes in [unread, begun, query, after] {
        let error = next(&mut changes).await.unwrap_err();
        assert_eq!(error.sqlstate(), "57P03");
        assert!(changes.next().await.is_none());
    }
    let mut resumed = resumed;
    let error = next(&mut resumed).await.unwrap_err();
    assert_eq!(error.sqlstate(), "22012", "its view had failed before");
    assert_eq!(number(&again, "SELECT count(*) FROM v").await, 30_000);
    again.close().await.unwrap();
}
