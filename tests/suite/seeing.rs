//! What EXPLAIN WHY says when there is no output, or less than expected: each cause is made, and named first. And what EXPLAIN
//! ANALYZE and `hw.operators` count.

use std::sync::Arc;
use std::time::{Duration, Instant};

use arrow::array::{Int64Array, RecordBatch, TimestampMicrosecondArray};
use arrow::datatypes::{DataType, Field, Schema, TimeUnit};
use highwater::Database;
use highwater::connectors::kafka::mock::MockBroker;
use highwater::connectors::registry::Registry;

use crate::support::{cells, rows, until};

/// Nothing in a test takes this long unless it hangs.
const PATIENCE: Duration = Duration::from_secs(30);
const SECOND_US: i64 = 1_000_000;
/// 2024-05-01 00:00:00.
const START_US: i64 = 1_714_521_600 * SECOND_US;

/// The sentences, in their order.
async fn why(database: &Database, name: &str) -> Vec<String> {
    let answer = database.query(&format!("EXPLAIN WHY {name}")).await.unwrap();
    cells(&answer.batches).into_iter().flatten().collect()
}

/// Waits until the first sentence has all of `parts`; gives all sentences.
async fn first(database: &Database, name: &str, parts: &[&str]) -> Vec<String> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let sentences = why(database, name).await;
        if parts.iter().all(|part| sentences[0].contains(part)) {
            return sentences;
        }
        assert!(
            Instant::now() < deadline,
            "{parts:?} is not in the first of {sentences:#?}"
        );
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Waits until one of the sentences has all of `parts`.
async fn some(database: &Database, name: &str, parts: &[&str]) {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let sentences = why(database, name).await;
        if sentences
            .iter()
            .any(|sentence| parts.iter().all(|part| sentence.contains(part)))
        {
            return;
        }
        assert!(
            Instant::now() < deadline,
            "{parts:?} is in none of {sentences:#?}"
        );
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

fn numbers(values: &[i64]) -> RecordBatch {
    let schema = Schema::new(vec![Field::new("n", DataType::Int64, true)]);
    RecordBatch::try_new(
        Arc::new(schema),
        vec![Arc::new(Int64Array::from(values.to_vec()))],
    )
    .unwrap()
}

/// Rows `(n, at)`, with times in seconds from the start.
fn timed(values: &[(i64, Option<i64>)]) -> RecordBatch {
    let schema = Schema::new(vec![
        Field::new("n", DataType::Int64, true),
        Field::new("at", DataType::Timestamp(TimeUnit::Microsecond, None), true),
    ]);
    let numbers: Int64Array = values.iter().map(|(n, _)| Some(*n)).collect();
    let times = values
        .iter()
        .map(|(_, at)| at.map(|at| START_US + at * SECOND_US));
    let times: TimestampMicrosecondArray = times.collect();
    RecordBatch::try_new(Arc::new(schema), vec![Arc::new(numbers), Arc::new(times)]).unwrap()
}

fn push(database: &Database, source: &str, rows: RecordBatch) {
    database.memory_source(source).unwrap().push(rows).unwrap();
}

fn push_to(database: &Database, source: &str, partition: i32, rows: RecordBatch) {
    let handle = database.memory_source(source).unwrap();
    handle.push_to(partition, rows).unwrap();
}

async fn run(database: &Database, sql: &str) {
    let done = database.execute(sql).await;
    done.unwrap_or_else(|error| panic!("{sql}: {error} {:?}", error.detail()));
}

/// A database with a source `s (n)` of numbers and one `timed (n, at)` of two partitions.
async fn world() -> Database {
    let database = Database::in_memory().await.unwrap();
    run(
        &database,
        "CREATE SOURCE s (n BIGINT) WITH (connector = 'memory', topic = 's');
         CREATE SOURCE timed (n BIGINT, at TIMESTAMP, WATERMARK FOR at AS at - INTERVAL '2' SECOND)
           WITH (connector = 'memory', topic = 'timed', partitions = '2', idle.timeout = '1 h')",
    )
    .await;
    database
}

const WINDOWS: &str = "CREATE MATERIALIZED VIEW windows AS
    SELECT window_end, count(*) AS c FROM TUMBLE(timed, at, INTERVAL '10' SECOND) GROUP BY window_end EMIT ON WINDOW CLOSE";

#[tokio::test(flavor = "multi_thread")]
async fn a_source_without_data_and_one_that_starts_past_its_data_are_told_apart() {
    let database = world().await;
    run(&database, "CREATE MATERIALIZED VIEW v AS SELECT n FROM s").await;
    let sentences = first(
        &database,
        "v",
        &["source \"s\" has no data: its partition is empty"],
    )
    .await;
    assert_eq!(
        sentences[1..],
        ["materialized view \"v\" is RUNNING and has 0 rows.".to_owned()]
    );
    push(&database, "s", numbers(&[1, 2, 3]));
    until(&database, "SELECT count(*) FROM v", 3).await;
    run(
        &database,
        "CREATE SOURCE fresh (n BIGINT) WITH (connector = 'memory', topic = 's', scan.startup.mode = 'latest');
         CREATE MATERIALIZED VIEW late_comer AS SELECT n FROM fresh",
    )
    .await;
    let parts = [
        "Nothing has come from source \"fresh\"",
        "starts past the data",
        "'latest'",
        "offset 3",
    ];
    first(&database, "late_comer", &parts).await;
    let sentences = why(&database, "v").await;
    let fine = "materialized view \"v\" is RUNNING and has 3 rows. Nothing holds it back: it has taken all that came.";
    assert_eq!(sentences, [fine.to_owned()]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_filter_or_a_join_that_lets_nothing_through_is_named_with_its_rows_upstream_too() {
    let database = world().await;
    run(
        &database,
        "CREATE MATERIALIZED VIEW dear AS SELECT n FROM s WHERE n > 100;
         CREATE MATERIALIZED VIEW counted AS SELECT n, count(*) AS c FROM dear GROUP BY n;
         CREATE MATERIALIZED VIEW cheap AS SELECT n FROM s WHERE n < 3;
         CREATE TABLE other (m BIGINT);
         CREATE MATERIALIZED VIEW joined AS SELECT n, m FROM cheap JOIN other ON n = m;
         CREATE SINK out AS SELECT n FROM dear WITH (connector = 'blackhole')",
    )
    .await;
    push(&database, "s", numbers(&[1, 2, 3, 4]));
    let parts = [
        "n > 100",
        "materialized view \"dear\"",
        "lets nothing through",
        "4 rows came in",
    ];
    for name in ["dear", "counted", "MATERIALIZED VIEW counted", "out", "SINK out"] {
        first(&database, name, &parts).await;
    }
    some(&database, "cheap", &["n < 3", "lets 2 of 4 rows through"]).await;
    some(
        &database,
        "joined",
        &["finds no match", "nothing has come from its right side"],
    )
    .await;
    first(&database, "joined", &["table \"other\" has no rows"]).await;
    run(&database, "INSERT INTO other VALUES (8), (9)").await;
    first(
        &database,
        "joined",
        &["finds no match between 2 rows of its left side and 2 of its right side"],
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_window_that_waits_is_named_with_the_watermark_and_the_partition_that_holds_it_back() {
    let database = world().await;
    run(&database, WINDOWS).await;
    // An empty partition holds nobody back, so the one that is to do it comes first.
    push_to(&database, "timed", 1, timed(&[(1, Some(4))]));
    until(&database, "SELECT sum(rows)::bigint FROM hw.lanes", 1).await;
    push_to(&database, "timed", 0, timed(&[(1, Some(1)), (2, Some(60))]));
    let parts = [
        "the first open one ends at 2024-05-01 00:00:10",
        "the watermark is 2024-05-01 00:00:02",
        "Partition 1 of \"timed\" holds it back: its own watermark is 2024-05-01 00:00:02",
        "the furthest partition's is 2024-05-01 00:00:58",
    ];
    first(&database, "windows", &parts).await;
    push_to(&database, "timed", 1, timed(&[(1, Some(30))]));
    let parts = [
        "ends at 2024-05-01 00:00:40",
        "the watermark is 2024-05-01 00:00:28",
    ];
    first(&database, "windows", &parts).await;
    // Too late for windows that have closed; and in none at all.
    push_to(&database, "timed", 1, timed(&[(7, Some(3)), (8, None)]));
    let parts = ["1 row came too late for", "with the time 2024-05-01 00:00:10"];
    some(&database, "windows", &parts).await;
    some(
        &database,
        "windows",
        &["1 row of source \"timed\" came without an event time"],
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn partitions_that_are_idle_are_named_with_since_when() {
    let database = Database::in_memory().await.unwrap();
    run(
        &database,
        "CREATE SOURCE timed (n BIGINT, at TIMESTAMP, WATERMARK FOR at AS at)
           WITH (connector = 'memory', topic = 'timed', partitions = '3', idle.timeout = '50ms')",
    )
    .await;
    run(&database, WINDOWS).await;
    push_to(&database, "timed", 0, timed(&[(1, Some(1))]));
    push_to(&database, "timed", 2, timed(&[(1, Some(2))]));
    let parts = [
        "3 of 3 partitions of source \"timed\" are idle",
        "0 (silent since 20",
        "1 (it never had a row)",
    ];
    some(&database, "windows", &parts).await;
    first(
        &database,
        "windows",
        &["All partitions of \"timed\" are silent since", "idle.advance"],
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_query_that_failed_says_why_and_what_reads_it_names_the_root() {
    let database = world().await;
    run(
        &database,
        "CREATE MATERIALIZED VIEW shares AS SELECT 100 / n AS share FROM s;
         CREATE MATERIALIZED VIEW total AS SELECT sum(share) AS total FROM shares;
         CREATE SINK out AS SELECT 10 / n AS share FROM s WITH (connector = 'blackhole')",
    )
    .await;
    push(&database, "s", numbers(&[5, 0]));
    let parts = [
        "materialized view \"shares\" FAILED with 22012: division by zero",
        "RESUME",
    ];
    first(&database, "shares", &parts).await;
    let sentences = first(&database, "total", &parts[..1]).await;
    assert!(
        sentences[1].contains("\"total\" FAILED with 55000"),
        "{sentences:#?}"
    );
    first(
        &database,
        "out",
        &["sink \"out\" FAILED with 22012", "ALTER SINK out RESUME"],
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sink_that_cannot_deliver_and_what_it_pauses_are_named() {
    let registry = Registry::with_builtin();
    let builder = Database::builder().registry(registry.clone());
    let database = builder.in_memory().await.unwrap();
    run(
        &database,
        "CREATE SOURCE s (n BIGINT) WITH (connector = 'memory', topic = 's');
         CREATE MATERIALIZED VIEW v AS SELECT n FROM s;
         CREATE SINK out FROM v WITH (connector = 'memory', topic = 'out', outbox.max.bytes = '1') FORMAT PLAIN ENCODE JSON",
    )
    .await;
    let topic = registry.memory_sink().unwrap().handle("out");
    topic.hold(true);
    push(&database, "s", numbers(&[1]));
    first(
        &database,
        "v",
        &["source \"s\" is paused: the outbox of sink \"out\" is full"],
    )
    .await;
    topic.hold(false);
    until(&database, "SELECT sum(confirmed)::bigint FROM hw.sinks", 1).await;
    topic.fail_writes(1_000_000);
    push(&database, "s", numbers(&[2]));
    some(
        &database,
        "out",
        &[
            "sink \"out\" cannot deliver and tries again",
            "1 row wait in its outbox",
        ],
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_view_that_is_being_filled_says_how_far_it_is() {
    let builder = Database::builder()
        .backfill_rows(1)
        .checkpoint_interval(Duration::ZERO);
    let dir = tempfile::tempdir().unwrap();
    let database = builder.open(dir.path()).await.unwrap();
    run(
        &database,
        "CREATE TABLE t (n BIGINT);
         INSERT INTO t SELECT n FROM generate_series(1, 20000) AS g(n);
         CREATE MATERIALIZED VIEW v AS SELECT n FROM t",
    )
    .await;
    let sentences = why(&database, "v").await;
    assert!(
        sentences[0].contains("is being filled") && sentences[0].contains("of 20000 rows"),
        "{sentences:#?}"
    );
}

/// A mock broker with a topic of one partition.
fn broker(topic: &str) -> (MockBroker, String) {
    let broker = MockBroker::start(1).unwrap();
    broker.create_topic(topic, 1).unwrap();
    let servers = broker.bootstrap_servers();
    (broker, servers)
}

#[tokio::test(flavor = "multi_thread")]
async fn bad_records_are_named_with_the_last_reason_and_a_broker_that_is_away_too() {
    let (broker, servers) = broker("words");
    let database = Database::in_memory().await.unwrap();
    run(
        &database,
        &format!(
            "CREATE TABLE texts (n TEXT) APPEND ONLY;
             CREATE SINK words AS SELECT n FROM texts
               WITH (connector = 'kafka', topic = 'words', properties.bootstrap.server = '{servers}')
               FORMAT PLAIN ENCODE JSON;
             CREATE SOURCE words_back (n BIGINT)
               WITH (connector = 'kafka', topic = 'words', properties.bootstrap.server = '{servers}')
               FORMAT PLAIN ENCODE JSON;
             CREATE MATERIALIZED VIEW v AS SELECT n FROM words_back;
             INSERT INTO texts VALUES ('one'), ('two')"
        ),
    )
    .await;
    let parts = [
        "2 of 2 records of source \"words_back\" could not be decoded",
        "column \"n\"",
        "hw.errors",
    ];
    first(&database, "v", &parts).await;
    broker.go_down().unwrap();
    first(
        &database,
        "v",
        &["source \"words_back\" is in trouble", "goes on where it stopped"],
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_query_is_run_and_its_operators_are_measured() {
    let database = world().await;
    run(
        &database,
        "CREATE TABLE measured (k INT PRIMARY KEY, g INT);
         INSERT INTO measured SELECT n, n % 3 FROM generate_series(1, 100) AS n",
    )
    .await;
    let sql = "EXPLAIN ANALYZE SELECT g, count(*) FROM measured WHERE k > 10 GROUP BY g ORDER BY g";
    let answer = database.query(sql).await.unwrap();
    let lines: Vec<String> = cells(&answer.batches).into_iter().flatten().collect();
    let has = |parts: &[&str]| {
        lines
            .iter()
            .any(|line| parts.iter().all(|part| line.contains(part)))
    };
    assert!(
        has(&[
            "Reads measured: range of key (k)",
            "(actual rows=90 time=",
            " ms)"
        ]),
        "{lines:#?}"
    );
    assert!(has(&["AggregateExec", "(actual rows=3 time="]), "{lines:#?}");
    assert!(
        has(&["Planning Time: ", " ms"]) && has(&["Execution Time: "]),
        "{lines:#?}"
    );
    assert_eq!(lines.last().unwrap(), "Rows: 3");
    // It runs, and fails as it does.
    let error = database
        .query("EXPLAIN ANALYZE SELECT 1 / (k - 50) FROM measured")
        .await
        .unwrap_err();
    assert_eq!(error.sqlstate(), "22012");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_does_not_run_has_no_reasons_and_says_so() {
    let database = world().await;
    run(&database, "CREATE VIEW logical AS SELECT n FROM s").await;
    for (sql, expected) in [
        ("EXPLAIN WHY s", "42809 EXPLAIN WHY does not take a source"),
        ("EXPLAIN WHY logical", "42809 EXPLAIN WHY does not take a view"),
        (
            "EXPLAIN ANALYZE logical",
            "42809 EXPLAIN ANALYZE does not take a view",
        ),
        ("EXPLAIN WHY lost", "42P01 relation \"lost\" does not exist"),
        ("EXPLAIN WHY SINK s", "42809 source \"s\" is not a sink"),
        (
            "EXPLAIN ANALYZE DELETE FROM t",
            "0A000 EXPLAIN ANALYZE of a statement that changes something is not supported",
        ),
    ] {
        let error = database.execute(sql).await.unwrap_err();
        assert_eq!(
            format!("{} {}", error.sqlstate(), error.message()),
            expected,
            "{sql}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_plan_of_a_running_view_shows_what_each_node_took_gave_and_keeps() {
    let database = world().await;
    run(
        &database,
        "CREATE MATERIALIZED VIEW v AS SELECT n % 2 AS k, count(*) AS c FROM s WHERE n > 1 GROUP BY n % 2",
    )
    .await;
    push(&database, "s", numbers(&[1, 2, 3, 4]));
    push(&database, "s", numbers(&[5, 6]));
    until(&database, "SELECT sum(c)::bigint FROM v", 5).await;
    let operators =
        "SELECT split_part(operator, ':', 1), rows_in, state_rows FROM hw.operators WHERE rows_in <> 5";
    assert_eq!(
        rows(&database, operators).await,
        ["Filter|6|NULL", "Source s|6|NULL"]
    );
    let busy = "SELECT count(*) FROM hw.operators WHERE operator LIKE 'Aggregate%' AND rows_in = 5 AND busy_us >= 0 AND state_rows = 2";
    until(&database, busy, 1).await;
    let answer = database
        .query("EXPLAIN ANALYZE MATERIALIZED VIEW v")
        .await
        .unwrap();
    let plan: Vec<String> = cells(&answer.batches).into_iter().flatten().collect();
    let line = |part: &str| {
        plan.iter()
            .find(|line| line.contains(part))
            .unwrap_or_else(|| panic!("{part}: {plan:#?}"))
    };
    assert!(
        line("Filter: n > 1").contains("[lane]  (rows in 6, out 5; busy "),
        "{plan:#?}"
    );
    assert!(line("Source s").contains("(rows in 6, out 6; busy "), "{plan:#?}");
    let aggregate = line("Aggregate: count(*)");
    assert!(
        aggregate.contains("(rows in 5, out ") && aggregate.contains("; state 2 rows, "),
        "{plan:#?}"
    );
    assert!(line("State: RUNNING; 2 rows").contains("RUNNING"));
    line("Pipeline: ");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plan_says_what_each_operator_keeps_and_what_cleans_it() {
    let database = world().await;
    run(&database, "CREATE TABLE t (n BIGINT PRIMARY KEY, m BIGINT)").await;
    for (query, state) in [
        (
            "SELECT n, count(*) FROM s GROUP BY n",
            "state: a group for each (n), for good",
        ),
        ("SELECT count(*) FROM s", "state: one group, for good"),
        (
            "SELECT window_end, count(*) FROM TUMBLE(timed, at, INTERVAL '10' SECOND) GROUP BY window_end",
            "state: a group for each (window_end), until the watermark passes window_end",
        ),
        (
            "SELECT s.n, m FROM s JOIN t ON s.n = t.n",
            "state: the rows of both sides by (n), for good",
        ),
    ] {
        let answer = database.query(&format!("EXPLAIN VERBOSE {query}")).await.unwrap();
        let plan: Vec<String> = cells(&answer.batches).into_iter().flatten().collect();
        assert!(plan.iter().any(|line| line.trim() == state), "{state}: {plan:#?}");
    }
}
