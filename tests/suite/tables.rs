//! Tables from a program: statements of many tasks at once, crashes after the acknowledgement, what follows a table.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use highwater::Database;
use highwater::connectors::registry::Registry;

use crate::support::{number, rows, until};

const ACCOUNTS: &str =
    "CREATE TABLE accounts (id BIGINT PRIMARY KEY, branch BIGINT NOT NULL, balance BIGINT NOT NULL);
    CREATE MATERIALIZED VIEW branches AS
      SELECT branch, count(*) AS n, sum(balance) AS total, max(balance) AS most FROM accounts GROUP BY branch;
    CREATE MATERIALIZED VIEW busy AS SELECT count(*) AS n FROM branches WHERE total > 50";

/// Only statements that change tables write checkpoints.
async fn open(dir: &Path) -> Database {
    let builder = Database::builder().checkpoint_interval(Duration::from_secs(3600));
    builder.open(dir).await.unwrap()
}

/// Rows in which a view and its batch answer differ, read at one instant.
async fn differences(database: &Database) -> Vec<String> {
    let answer = "SELECT branch, count(*) AS n, sum(balance) AS total, max(balance) AS most FROM accounts GROUP BY branch";
    let busy = "SELECT count(*) AS n, 0 AS b, 0 AS c, 0 AS d FROM branches WHERE total > 50";
    let sql = format!(
        "(SELECT * FROM branches EXCEPT {answer}) UNION ALL ({answer} EXCEPT SELECT * FROM branches)
         UNION ALL (SELECT n, 0 AS b, 0 AS c, 0 AS d FROM busy EXCEPT {busy})"
    );
    rows(database, &sql).await
}

#[tokio::test(flavor = "multi_thread")]
async fn inserts_of_many_tasks_are_seen_with_their_views_when_they_are_acknowledged_and_share_checkpoints() {
    const TASKS: i64 = 16;
    const EACH: i64 = 25;
    let dir = tempfile::tempdir().unwrap();
    let database = open(dir.path()).await;
    database.execute(ACCOUNTS).await.unwrap();
    let tasks = (0..TASKS).map(|task| {
        let database = database.clone();
        tokio::spawn(async move {
            for number in 0..EACH {
                let id = task * EACH + number;
                let sql = format!("INSERT INTO accounts VALUES ({id}, {}, {number})", id % 5);
                let outcomes = database.execute(&sql).await.unwrap();
                assert_eq!(outcomes[0].tag, "INSERT 0 1");
                let own = format!("SELECT id FROM accounts WHERE id = {id}");
                assert_eq!(rows(&database, &own).await, [id.to_string()]);
                assert_eq!(differences(&database).await, [""; 0], "after {sql}");
            }
        })
    });
    for task in tasks.collect::<Vec<_>>() {
        task.await.unwrap();
    }
    assert_eq!(
        number(&database, "SELECT count(*) FROM accounts").await,
        TASKS * EACH
    );
    let epoch = number(&database, "SELECT max(epoch) FROM hw.checkpoints").await;
    // How many statements share one depends on how fast the disk is; no statement needs more than one of its own.
    assert!(
        epoch <= TASKS * EACH,
        "{epoch} checkpoints for {} statements",
        TASKS * EACH
    );
    drop(database);

    let database = open(dir.path()).await;
    assert_eq!(
        number(&database, "SELECT count(*) FROM accounts").await,
        TASKS * EACH
    );
    assert_eq!(differences(&database).await, [""; 0]);
}

/// Pseudo-random numbers from a printed seed.
struct Chance(u64);

impl Chance {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }
}

/// One statement at random, done to the model too.
fn statement(chance: &mut Chance, model: &mut BTreeMap<u64, (u64, u64)>) -> String {
    let (id, branch, balance) = (chance.below(40), chance.below(6), chance.below(100));
    match chance.below(5) {
        0 | 1 => {
            let other = chance.below(40);
            model.insert(id, (branch, balance));
            model.insert(other, (branch, 1));
            format!("INSERT INTO accounts VALUES ({id}, {branch}, {balance}), ({other}, {branch}, 1)")
        }
        2 => {
            for (_, row) in model.range_mut(id..).filter(|(_, row)| row.0 == branch) {
                row.1 += balance;
            }
            format!(
                "UPDATE accounts SET balance = balance + {balance} WHERE id >= {id} AND branch = {branch}"
            )
        }
        3 => {
            model.retain(|key, row| !(*key % 7 == id % 7 && row.0 == branch));
            format!("DELETE FROM accounts WHERE id % 7 = {id} % 7 AND branch = {branch}")
        }
        _ => {
            if let Some(row) = model.get_mut(&id) {
                row.0 = branch;
            }
            format!("UPDATE accounts SET branch = {branch} WHERE id = {id}")
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn statements_at_random_leave_table_and_views_as_a_model_has_them_wherever_the_process_dies() {
    let now = || {
        std::time::UNIX_EPOCH
            .elapsed()
            .map_or(1, |since| u64::from(since.subsec_nanos()))
    };
    let given = std::env::var("HIGHWATER_SEED")
        .ok()
        .map(|seed| seed.parse().unwrap());
    let seed: u64 = given.unwrap_or_else(now);
    #[expect(clippy::print_stdout, reason = "whoever sees it fail wants the seed")]
    let () = println!("HIGHWATER_SEED={seed}");
    let mut chance = Chance(seed);
    let mut model = BTreeMap::new();
    let dir = tempfile::tempdir().unwrap();
    let mut database = open(dir.path()).await;
    database.execute(ACCOUNTS).await.unwrap();
    for turn in 0..150 {
        let sql = statement(&mut chance, &mut model);
        database.execute(&sql).await.unwrap();
        if chance.below(12) == 0 {
            drop(database);
            database = open(dir.path()).await;
        }
        let mut expected: Vec<String> = model
            .iter()
            .map(|(id, (branch, balance))| format!("{id}|{branch}|{balance}"))
            .collect();
        expected.sort_unstable();
        assert_eq!(
            rows(&database, "SELECT * FROM accounts").await,
            expected,
            "turn {turn}: {sql}"
        );
        assert_eq!(differences(&database).await, [""; 0], "turn {turn}: {sql}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_updates_of_one_row_lose_none() {
    let database = Database::in_memory().await.unwrap();
    database
        .execute("CREATE TABLE counters (id INT PRIMARY KEY, n INT); INSERT INTO counters VALUES (1, 0)")
        .await
        .unwrap();
    let tasks = (0..8).map(|_| {
        let database = database.clone();
        tokio::spawn(async move {
            for _ in 0..20 {
                database
                    .execute("UPDATE counters SET n = n + 1 WHERE id = 1")
                    .await
                    .unwrap();
            }
        })
    });
    for task in tasks.collect::<Vec<_>>() {
        task.await.unwrap();
    }
    assert_eq!(rows(&database, "SELECT n FROM counters").await, ["160"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_subscription_and_a_sink_follow_a_table() {
    let registry = Registry::with_builtin();
    let topic = registry.memory_sink().unwrap().handle("out");
    let builder = Database::builder().registry(registry);
    let database = builder.in_memory().await.unwrap();
    database
        .execute(
            "CREATE TABLE t (k INT PRIMARY KEY, v VARCHAR);
             INSERT INTO t VALUES (1, 'a');
             CREATE SINK s FROM t WITH (connector = 'memory', topic = 'out', primary_key = 'k') FORMAT UPSERT ENCODE JSON",
        )
        .await
        .unwrap();
    let mut changes = database.subscribe("t").await.unwrap();
    assert_eq!(changes.next().await.unwrap().unwrap().weights, [1]);

    database
        .execute("INSERT INTO t VALUES (1, 'b'), (2, 'c')")
        .await
        .unwrap();
    let change = changes.next().await.unwrap().unwrap();
    assert_eq!(change.weights, [-1, 1, 1], "the row that is replaced goes");
    database.execute("DELETE FROM t WHERE k = 1").await.unwrap();
    assert_eq!(changes.next().await.unwrap().unwrap().weights, [-1]);

    until(&database, "SELECT confirmed FROM hw.sinks", 4).await;
    let values: Vec<_> = topic
        .records()
        .into_iter()
        .map(|record| {
            record
                .value
                .map(|value| String::from_utf8(value.to_vec()).unwrap())
        })
        .collect();
    let values: Vec<_> = values.iter().map(Option::as_deref).collect();
    assert_eq!(
        values,
        [
            Some(r#"{"k":1,"v":"a"}"#),
            Some(r#"{"k":1,"v":"b"}"#),
            Some(r#"{"k":2,"v":"c"}"#),
            None
        ]
    );
    let error = database
        .execute("CREATE SINK plain FROM t WITH (connector = 'memory', topic = 'p') FORMAT PLAIN ENCODE JSON")
        .await
        .unwrap_err();
    assert_eq!(error.detail(), Some("Rows of table \"t\" are updated."));
}

#[tokio::test(flavor = "multi_thread")]
async fn tables_that_a_view_joins_into_one_pipeline_go_on_while_statements_run() {
    let dir = tempfile::tempdir().unwrap();
    let database = open(dir.path()).await;
    database
        .execute("CREATE TABLE a (n BIGINT); CREATE TABLE b (n BIGINT)")
        .await
        .unwrap();
    let writers = ["a", "b"].map(|table| {
        let database = database.clone();
        tokio::spawn(async move {
            for n in 0..60 {
                let sql = format!("INSERT INTO {table} VALUES ({n})");
                database.execute(&sql).await.unwrap();
            }
        })
    });
    database
        .execute(
            "CREATE MATERIALIZED VIEW both_tables AS SELECT n FROM a UNION ALL SELECT n FROM b;
             CREATE MATERIALIZED VIEW per_n AS SELECT n, count(*) AS times FROM both_tables GROUP BY n",
        )
        .await
        .unwrap();
    for writer in writers {
        writer.await.unwrap();
    }
    let twice = "SELECT count(*) FROM per_n WHERE times = 2";
    assert_eq!(number(&database, twice).await, 60);
    drop(database);
    let database = open(dir.path()).await;
    assert_eq!(number(&database, twice).await, 60);
    assert_eq!(number(&database, "SELECT count(*) FROM both_tables").await, 120);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_view_that_fails_on_a_row_does_not_hold_back_its_table_and_is_built_anew() {
    let dir = tempfile::tempdir().unwrap();
    let database = open(dir.path()).await;
    database
        .execute(
            "CREATE TABLE t (n INT);
             CREATE MATERIALIZED VIEW shares AS SELECT 100 / n AS share FROM t;
             CREATE MATERIALIZED VIEW plain AS SELECT count(*) AS n FROM t;
             INSERT INTO t VALUES (1), (2)",
        )
        .await
        .unwrap();
    let outcomes = database.execute("INSERT INTO t VALUES (0), (4)").await.unwrap();
    assert_eq!(outcomes[0].tag, "INSERT 0 2");
    assert_eq!(rows(&database, "SELECT n FROM plain").await, ["4"]);
    let failed = "SELECT name FROM hw.queries WHERE state = 'FAILED'";
    assert_eq!(rows(&database, failed).await, ["shares"]);
    drop(database);

    let database = open(dir.path()).await;
    assert_eq!(rows(&database, failed).await, ["shares"]);
    database
        .execute("DELETE FROM t WHERE n = 0; ALTER MATERIALIZED VIEW shares RESUME")
        .await
        .unwrap();
    assert_eq!(rows(&database, failed).await, [""; 0]);
    assert_eq!(
        rows(&database, "SELECT share FROM shares").await,
        ["100", "25", "50"]
    );
    let outcomes = database.execute("ALTER TABLE t RESUME").await.unwrap();
    assert_eq!(outcomes[0].notices[0].message, "table \"t\" runs");
}

#[tokio::test(flavor = "multi_thread")]
async fn who_looks_at_a_running_database_sees_its_tables_and_changes_none() {
    let dir = tempfile::tempdir().unwrap();
    let database = open(dir.path()).await;
    database
        .execute("CREATE TABLE t (k INT PRIMARY KEY, v VARCHAR); INSERT INTO t VALUES (1, 'a'), (2, 'b')")
        .await
        .unwrap();
    let looking = Database::builder().open_read_only(dir.path()).await.unwrap();
    assert_eq!(rows(&looking, "SELECT * FROM t").await, ["1|a", "2|b"]);
    for sql in [
        "INSERT INTO t VALUES (3, 'c')",
        "UPDATE t SET v = 'x'",
        "DELETE FROM t",
        "CREATE TABLE u (a INT)",
        "FLUSH",
    ] {
        let error = looking.execute(sql).await.unwrap_err();
        assert_eq!(error.sqlstate(), "25006", "{sql}");
    }
    assert_eq!(rows(&database, "SELECT * FROM t").await, ["1|a", "2|b"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_statement_that_nobody_waits_for_is_done_or_not_done_and_the_table_goes_on() {
    let database = Database::in_memory().await.unwrap();
    database
        .execute("CREATE TABLE t (n BIGINT); CREATE MATERIALIZED VIEW v AS SELECT n, count(*) AS times FROM t GROUP BY n")
        .await
        .unwrap();
    let mut acknowledged = Vec::new();
    for n in 0..40 {
        let statement = {
            let database = database.clone();
            tokio::spawn(async move { database.execute(&format!("INSERT INTO t VALUES ({n})")).await })
        };
        tokio::time::sleep(Duration::from_micros(n * 20)).await;
        statement.abort();
        if statement.await.is_ok_and(|done| done.is_ok()) {
            acknowledged.push(format!("{n}|1"));
        }
    }
    // What was not waited for is done when a later statement on the table is.
    database.execute("INSERT INTO t VALUES (1000)").await.unwrap();
    let counted = rows(&database, "SELECT n, count(*) AS times FROM t GROUP BY n").await;
    assert_eq!(rows(&database, "SELECT * FROM v").await, counted);
    assert!(counted.iter().all(|row| row.ends_with("|1")), "{counted:?}");
    assert!(
        acknowledged.iter().all(|row| counted.contains(row)),
        "{acknowledged:?} {counted:?}"
    );
    let failed = "SELECT count(*) FROM hw.queries WHERE state = 'FAILED'";
    assert_eq!(number(&database, failed).await, 0);
    database.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_statement_that_is_cancelled_while_it_reads_changes_nothing_and_gives_the_table_free() {
    let database = Database::in_memory().await.unwrap();
    database
        .execute(
            "CREATE TABLE t (n BIGINT); CREATE TABLE u (n BIGINT);
             INSERT INTO u SELECT n FROM generate_series(1, 100000) AS g(n)",
        )
        .await
        .unwrap();
    let endless = {
        let database = database.clone();
        tokio::spawn(async move {
            let sql = "INSERT INTO t SELECT a.n FROM u a, u b, u c WHERE a.n + b.n * c.n = 0";
            database.execute(sql).await
        })
    };
    // It would read for years, and holds the table while it does.
    let probe = || tokio::time::timeout(Duration::from_millis(50), database.execute("DELETE FROM t"));
    while probe().await.is_ok() {}
    endless.abort();
    let _ = endless.await;
    database.execute("INSERT INTO t VALUES (7)").await.unwrap();
    assert_eq!(rows(&database, "SELECT * FROM t").await, ["7"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_large_statement_is_one_change() {
    let database = Database::in_memory().await.unwrap();
    database
        .execute(
            "CREATE TABLE t (k BIGINT PRIMARY KEY, v VARCHAR);
             CREATE MATERIALIZED VIEW counted AS SELECT count(*) AS n, sum(k) AS total FROM t",
        )
        .await
        .unwrap();
    let values: Vec<String> = (0..5000).map(|k| format!("({k}, 'row {k}')")).collect();
    let sql = format!("INSERT INTO t VALUES {}", values.join(", "));
    let mut changes = database.subscribe("counted").await.unwrap();
    assert_eq!(changes.next().await.unwrap().unwrap().step, 0);
    database.execute(&sql).await.unwrap();
    assert_eq!(rows(&database, "SELECT * FROM counted").await, ["5000|12497500"]);
    let change = changes.next().await.unwrap().unwrap();
    assert_eq!(change.weights, [-1, 1], "one step shows all of it");
    let shared = Arc::new(database);
    shared
        .execute("INSERT INTO t SELECT k + 5000, v FROM t; DELETE FROM t WHERE k % 2 = 0")
        .await
        .unwrap();
    assert_eq!(number(&shared, "SELECT n FROM counted").await, 5000);
}

/// Runs one statement in a process of its own, with these variables; what it wrote, and whether it ended well.
pub(crate) fn in_a_process(dir: &Path, sql: &str, variables: &[(&str, &str)]) -> (String, bool) {
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_highwater"))
        .args([dir.to_str().unwrap(), "-c", sql])
        .envs(variables.iter().copied())
        .output()
        .unwrap();
    let text = [output.stdout, output.stderr].concat();
    (String::from_utf8(text).unwrap(), output.status.success())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_that_dies_around_the_checkpoint_of_a_statement_has_it_in_table_and_view_or_in_neither() {
    let dir = tempfile::tempdir().unwrap();
    let database = open(dir.path()).await;
    database
        .execute(
            "CREATE TABLE t (k INT PRIMARY KEY, v INT);
             CREATE MATERIALIZED VIEW totals AS SELECT count(*) AS n, sum(v) AS total FROM t;
             INSERT INTO t VALUES (0, 0)",
        )
        .await
        .unwrap();
    database.close().await.unwrap();
    let mut there = 1;
    for (turn, (variable, value, may_stay)) in [
        ("HIGHWATER_DIE_AT", "checkpoint-before-write", false),
        ("HIGHWATER_DIE_AT", "checkpoint-after-write", true),
        ("FAILPOINTS", "checkpoint-write-error=return", false),
    ]
    .into_iter()
    .enumerate()
    {
        let sql = format!("INSERT INTO t VALUES ({}, 1)", turn + 1);
        let (written, is_success) = in_a_process(dir.path(), &sql, &[(variable, value)]);
        assert!(
            !is_success && !written.contains("INSERT 0 1"),
            "{value}: {written}"
        );
        let database = open(dir.path()).await;
        let rows_now = number(&database, "SELECT count(*) FROM t").await;
        assert!(
            rows_now == there || (may_stay && rows_now == there + 1),
            "{value}: {rows_now}"
        );
        there = rows_now;
        let agree = "SELECT count(*) FROM totals WHERE n = (SELECT count(*) FROM t)
                       AND total = (SELECT sum(v) FROM t)";
        assert_eq!(number(&database, agree).await, 1, "{value}");
        database.close().await.unwrap();
    }
    let (written, is_success) = in_a_process(dir.path(), "INSERT INTO t VALUES (9, 1) RETURNING k", &[]);
    assert!(is_success && written.contains("INSERT 0 1"), "{written}");
    let database = open(dir.path()).await;
    assert_eq!(number(&database, "SELECT n FROM totals").await, there + 1);
}
