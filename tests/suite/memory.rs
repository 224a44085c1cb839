//! State larger than memory (INV-10): what is clean is evicted, what is needed again is read back, and nothing of it changes an
//! answer.

use std::sync::Arc;
use std::time::{Duration, Instant};

use arrow::array::{Int64Array, RecordBatch};
use arrow::datatypes::{DataType, Field, Schema};
use highwater::connectors::registry::Registry;
use highwater::{Database, DatabaseBuilder};

use crate::support::{number, rows, until};

const ROWS_PER_BATCH: i64 = 1 << 16;
const MIB: usize = 1 << 20;

/// Groups that are counted once, some of them again, with so much memory.
#[derive(Clone, Copy)]
struct Load {
    groups: i64,
    again: i64,
    memory_limit: usize,
}

impl Load {
    fn builder(self, registry: &Registry) -> DatabaseBuilder {
        Database::builder()
            .registry(registry.clone())
            .memory_limit(self.memory_limit)
    }

    /// A key in no order: so many in a row are different ones.
    fn key(self, at: i64) -> i64 {
        (i128::from(at) * 7_919_999_983 % i128::from(self.groups)) as i64
    }

    fn batch(self, from: i64, to: i64) -> RecordBatch {
        let keys: Int64Array = (from..to).map(|at| Some(self.key(at))).collect();
        let values: Int64Array = (from..to).map(|at| Some(value_of(self.key(at)))).collect();
        let fields = ["k", "v"].map(|name| Field::new(name, DataType::Int64, true));
        let schema = Arc::new(Schema::new(fields.to_vec()));
        RecordBatch::try_new(schema, vec![Arc::new(keys), Arc::new(values)]).unwrap()
    }

    /// What all groups add up to when so many have come again.
    fn expected(self, again: i64) -> Vec<String> {
        let all: i64 = (0..self.groups).map(value_of).sum();
        let more: i64 = (0..again).map(|at| value_of(self.key(at))).sum();
        let times = [i64::from(again >= self.groups), i64::from(again > 0)].map(|more| 1 + more);
        let groups = self.groups;
        let [least, most] = times;
        vec![format!(
            "{groups}|{}|{least}|{most}|{}",
            groups + again,
            all + more
        )]
    }

    /// Pushes so many rows and waits until they are taken: how much the queries hold meanwhile, at most.
    async fn push(self, database: &Database, registry: &Registry, (taken, rows): (i64, i64)) -> i64 {
        let topic = registry.memory().unwrap().handle("s");
        let mut most = 0;
        for from in (0..rows).step_by(ROWS_PER_BATCH as usize) {
            let to = (from + ROWS_PER_BATCH).min(rows);
            topic.push_to(0, self.batch(from, to)).unwrap();
            // What waits in the topic is not what is measured.
            wait(database, taken + to - 2 * ROWS_PER_BATCH).await;
            most = most.max(number(database, STATE_BYTES).await);
        }
        wait(database, taken + rows).await;
        most
    }
}

fn value_of(key: i64) -> i64 {
    key % 1_000
}

const STATE_BYTES: &str =
    "SELECT sum(bytes)::bigint FROM hw.memory WHERE part IN ('state', 'changed rows', 'lanes')";
const EVICTED: &str = "SELECT sum(evicted)::bigint FROM hw.memory";
const READ_BACK: &str = "SELECT sum(read_back)::bigint FROM hw.memory";
const ALL: &str =
    "SELECT count(*), sum(n)::bigint, min(n), max(n), sum(total)::bigint FROM counts WHERE total IS NOT NULL";

/// Waits until so many rows are taken.
async fn wait(database: &Database, position: i64) {
    let deadline = Instant::now() + Duration::from_secs(600);
    while number(database, "SELECT min(position) FROM hw.lanes").await < position {
        let failed = rows(database, "SELECT error FROM hw.queries WHERE state = 'FAILED'").await;
        assert!(failed.is_empty(), "{failed:?}");
        assert!(Instant::now() < deadline, "rows are not taken");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[expect(clippy::print_stdout, reason = "how much it took is what make memory is for")]
fn tell(line: &str) {
    println!("{line}");
}

/// All groups, some of them again, a restart, and some more.
async fn run(load: Load) {
    let started = Instant::now();
    let registry = Registry::with_builtin();
    let topic = registry.memory().unwrap().handle("s");
    topic.ensure_partitions(1);
    let dir = tempfile::tempdir().unwrap();
    let database = load.builder(&registry).open(dir.path()).await.unwrap();
    for sql in [
        "CREATE SOURCE s (k BIGINT, v BIGINT) WITH (connector = 'memory', topic = 's')",
        "CREATE MATERIALIZED VIEW counts AS SELECT k, count(*) AS n, sum(v) AS total FROM s GROUP BY k",
    ] {
        database.execute(sql).await.unwrap();
    }
    let first = load.push(&database, &registry, (0, load.groups)).await;
    let evicted = number(&database, EVICTED).await;
    assert!(evicted > load.groups / 4, "{evicted} groups were evicted");
    assert_eq!(rows(&database, ALL).await, load.expected(0));
    let second = load.push(&database, &registry, (load.groups, load.again)).await;
    let read_back = number(&database, READ_BACK).await;
    assert!(read_back > load.again / 4, "{read_back} groups were read back");
    assert_eq!(rows(&database, ALL).await, load.expected(load.again));
    let state = number(&database, STATE_BYTES).await;
    tell(&format!(
        "{} groups, limit {} MiB: at most {} MiB, then {} MiB, at the end {} MiB; {evicted} evicted in the first round, {read_back} read back, {:.0?}",
        load.groups,
        load.memory_limit / MIB,
        first / MIB as i64,
        second / MIB as i64,
        state / MIB as i64,
        started.elapsed(),
    ));
    assert!(first.max(second) < load.memory_limit as i64);
    database.close().await.unwrap();

    // All of it does not fit, so nothing is loaded.
    let database = load.builder(&registry).open(dir.path()).await.unwrap();
    assert_eq!(rows(&database, ALL).await, load.expected(load.again));
    assert_eq!(
        number(&database, "SELECT sum(state_rows)::bigint FROM hw.operators").await,
        0
    );
    topic.push_to(0, load.batch(0, 10_000)).unwrap();
    wait(&database, load.groups + load.again + 10_000).await;
    let key = load.key(0);
    let expected = [format!("{key}|3|{}", 3 * value_of(key))];
    let own = format!("SELECT * FROM counts WHERE k = {key}");
    assert_eq!(rows(&database, &own).await, expected);
    database.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn more_groups_than_there_is_memory_for_are_counted_right() {
    run(Load {
        groups: 1_000_000,
        again: 200_000,
        memory_limit: 24 * MIB,
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "takes minutes; make memory"]
async fn twenty_million_groups_are_counted_right_with_256_mb() {
    run(Load {
        groups: 20_000_000,
        again: 4_000_000,
        memory_limit: 256_000_000,
    })
    .await;
}

#[tokio::test]
async fn the_memory_table_shows_what_holds_how_much() {
    let database = Database::builder()
        .memory_limit(64 * MIB)
        .in_memory()
        .await
        .unwrap();
    for sql in [
        "CREATE TABLE t (k BIGINT PRIMARY KEY, v BIGINT)",
        "CREATE MATERIALIZED VIEW m AS SELECT v, count(*) AS n FROM t GROUP BY v",
        "INSERT INTO t VALUES (1, 1), (2, 1), (3, 2)",
    ] {
        database.execute(sql).await.unwrap();
    }
    let parts =
        "SELECT part, query, node, bytes > 0, evicted, read_back FROM hw.memory WHERE part <> 'changed rows'";
    assert_eq!(
        rows(&database, parts).await,
        [
            "block cache|NULL|NULL|f|NULL|NULL",
            "limit|NULL|NULL|t|NULL|NULL",
            "state|m|1|t|0|0",
            "write buffers|NULL|NULL|t|NULL|NULL",
        ]
    );
    let changed = "SELECT query FROM hw.memory WHERE part = 'changed rows'";
    assert_eq!(rows(&database, changed).await, ["m", "t"]);
    assert_eq!(
        rows(&database, "SHOW memory_limit").await,
        [(64 * MIB).to_string()]
    );
    let few = Database::builder().memory_limit(16 * MIB).in_memory().await;
    assert_eq!(
        few.err().map(|error| error.sqlstate().to_owned()),
        Some("22023".to_owned())
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_row_that_was_deleted_is_not_read_back_from_the_last_checkpoint() {
    let dir = tempfile::tempdir().unwrap();
    let builder = Database::builder()
        .storage_memory_bytes(16 * MIB)
        .memory_limit(16 * MIB + 1)
        .checkpoint_interval(Duration::from_millis(1));
    let database = builder.open(dir.path()).await.unwrap();
    for sql in [
        "CREATE TABLE t (k BIGINT PRIMARY KEY, v BIGINT)",
        "CREATE MATERIALIZED VIEW m AS SELECT v, count(*) AS n, count(DISTINCT k) AS d, max(k) AS hi FROM t GROUP BY v",
        "CREATE MATERIALIZED VIEW j AS SELECT a.k, b.k AS other FROM t a LEFT JOIN t b ON a.k = b.v",
        "CREATE MATERIALIZED VIEW o AS SELECT v, k FROM (SELECT *, row_number() OVER (PARTITION BY v ORDER BY k) AS n FROM t) x WHERE n = 1",
    ] {
        database.execute(sql).await.unwrap();
    }
    for round in 0..40 {
        database
            .execute("INSERT INTO t VALUES (1, 1), (2, 1), (3, 2)")
            .await
            .unwrap();
        assert_eq!(
            rows(&database, "SELECT * FROM m").await,
            ["1|2|2|2", "2|1|1|3"],
            "round {round}"
        );
        assert_eq!(
            rows(&database, "SELECT * FROM j").await,
            ["1|1", "1|2", "2|3", "3|NULL"]
        );
        assert_eq!(rows(&database, "SELECT * FROM o").await, ["1|1", "2|3"]);
        database.execute("DELETE FROM t WHERE k <> 2").await.unwrap();
        assert_eq!(rows(&database, "SELECT * FROM m").await, ["1|1|1|2"]);
        assert_eq!(rows(&database, "SELECT * FROM j").await, ["2|NULL"]);
        assert_eq!(rows(&database, "SELECT * FROM o").await, ["1|2"]);
        database.execute("DELETE FROM t").await.unwrap();
        assert!(rows(&database, "SELECT * FROM m").await.is_empty());
        assert!(rows(&database, "SELECT * FROM j").await.is_empty());
    }
    let evicted = number(&database, EVICTED).await;
    assert!(evicted > 0, "{evicted} keys were evicted");
    until(
        &database,
        "SELECT count(*) FROM hw.queries WHERE state = 'FAILED'",
        0,
    )
    .await;
    database.close().await.unwrap();
}
