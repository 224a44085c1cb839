//! What fails, fails alone; what it had is still there when it is resumed; half of a statement is never left behind.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arrow::array::{Int64Array, RecordBatch};
use arrow::datatypes::{DataType, Field, Schema};
use futures::StreamExt;
use highwater::Database;
use highwater::connectors::registry::Registry;

use crate::support::{number, rows, until};

fn numbers(values: &[i64]) -> RecordBatch {
    let schema = Schema::new(vec![Field::new("n", DataType::Int64, true)]);
    RecordBatch::try_new(
        Arc::new(schema),
        vec![Arc::new(Int64Array::from(values.to_vec()))],
    )
    .unwrap()
}

async fn sources(database: &Database, names: &[&str]) {
    for name in names {
        database
            .execute(&format!(
                "CREATE SOURCE {name} (n BIGINT) WITH (connector = 'memory', topic = '{name}')"
            ))
            .await
            .unwrap();
    }
}

fn push(database: &Database, source: &str, values: &[i64]) {
    let handle = database.memory_source(source).unwrap();
    handle.push(numbers(values)).unwrap();
}

async fn refused(database: &Database, sql: &str) -> String {
    match database.execute(sql).await {
        Ok(_) => panic!("{sql} is refused"),
        Err(error) => format!("{} {}", error.sqlstate(), error.message()),
    }
}

const FAILED: &str = "SELECT count(*) FROM hw.queries WHERE state = 'FAILED'";

#[tokio::test(flavor = "multi_thread")]
async fn a_view_that_is_resumed_goes_on_from_its_checkpoint_and_not_from_the_beginning() {
    let database = Database::in_memory().await.unwrap();
    sources(&database, &["s"]).await;
    database
        .execute(
            "CREATE MATERIALIZED VIEW shares AS SELECT 100 / n AS share FROM s;
             CREATE MATERIALIZED VIEW total AS SELECT sum(share) AS total FROM shares",
        )
        .await
        .unwrap();
    push(&database, "s", &[1, 2, 4]);
    until(&database, "SELECT count(*) FROM shares", 3).await;
    // What is durable need not be kept by the source any more.
    database.checkpoint().await.unwrap();
    push(&database, "s", &[0]);
    until(&database, FAILED, 2).await;
    let notices = database
        .execute("ALTER MATERIALIZED VIEW shares RESUME")
        .await
        .unwrap();
    assert!(
        notices[0].notices.is_empty(),
        "nothing is built anew: {:?}",
        notices[0].notices
    );
    until(&database, FAILED, 2).await;
    assert_eq!(
        rows(&database, "SELECT share FROM shares").await,
        ["100", "25", "50"]
    );
    assert_eq!(rows(&database, "SELECT total FROM total").await, ["175"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reader_that_failed_is_built_anew_and_holds_back_nobody_after_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let registry = Registry::with_builtin();
    let open = || Database::builder().registry(registry.clone()).open(dir.path());
    let database = open().await.unwrap();
    sources(&database, &["s"]).await;
    database
        .execute(
            "CREATE MATERIALIZED VIEW counted AS SELECT n, count(*) AS times FROM s GROUP BY n;
             CREATE MATERIALIZED VIEW shares AS SELECT n, 100 / (n - times) AS share FROM counted",
        )
        .await
        .unwrap();
    push(&database, "s", &[5, 7]);
    until(&database, "SELECT count(*) FROM shares", 2).await;
    database.checkpoint().await.unwrap();
    push(&database, "s", &[1]);
    until(&database, FAILED, 1).await;
    let cause = rows(
        &database,
        "SELECT error, detail FROM hw.queries WHERE name = 'shares'",
    )
    .await;
    assert!(cause[0].contains("(n = 1, times = 1)"), "{cause:?}");
    push(&database, "s", &[1, 9]);
    until(&database, "SELECT count(*) FROM counted", 4).await;
    database.checkpoint().await.unwrap();
    database.close().await.unwrap();

    let database = open().await.unwrap();
    assert_eq!(
        rows(&database, "SELECT name, state, sqlstate FROM hw.queries").await,
        ["counted|RUNNING|NULL", "shares|FAILED|22012"]
    );
    assert_eq!(
        rows(
            &database,
            "SELECT error, detail FROM hw.queries WHERE name = 'shares'"
        )
        .await,
        cause,
        "the cause is told as before the restart"
    );
    let hint = rows(&database, "SELECT hint FROM hw.queries WHERE name = 'shares'").await;
    assert!(
        hint[0].contains("missed changes") && hint[0].contains("RESUME, which builds it anew"),
        "{hint:?}"
    );
    push(&database, "s", &[11]);
    until(&database, "SELECT count(*) FROM counted", 5).await;
    let outcome = database
        .execute("ALTER MATERIALIZED VIEW shares RESUME")
        .await
        .unwrap();
    assert!(outcome[0].notices[0].message.contains("is built anew"));
    assert_eq!(number(&database, FAILED).await, 0);
    assert_eq!(
        rows(&database, "SELECT n, share FROM shares").await,
        rows(&database, "SELECT n, 100 / (n - times) FROM counted").await
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn sinks_go_on_delivering_after_their_pipelines_became_one() {
    let database = Database::in_memory().await.unwrap();
    sources(&database, &["a", "b"]).await;
    for name in ["a", "b"] {
        database
            .execute(&format!(
                "CREATE MATERIALIZED VIEW v{name} AS SELECT n FROM {name};
                 CREATE SINK s{name} FROM v{name} WITH (connector = 'memory', topic = 'out{name}') FORMAT PLAIN ENCODE JSON"
            ))
            .await
            .unwrap();
        push(&database, name, &[1]);
    }
    until(&database, "SELECT sum(confirmed)::bigint FROM hw.sinks", 2).await;
    database
        .execute("CREATE MATERIALIZED VIEW joined AS SELECT n FROM va UNION ALL SELECT n FROM vb")
        .await
        .unwrap();
    push(&database, "a", &[2]);
    push(&database, "b", &[2]);
    until(&database, "SELECT count(*) FROM joined", 4).await;
    until(&database, "SELECT sum(confirmed)::bigint FROM hw.sinks", 4).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lane_that_fails_is_seen_while_the_others_go_on() {
    let database = Database::in_memory().await.unwrap();
    database
        .execute(
            "CREATE SOURCE s (n BIGINT) WITH (connector = 'memory', topic = 's', partitions = 2);
             CREATE MATERIALIZED VIEW shares AS SELECT 100 / n AS share FROM s",
        )
        .await
        .unwrap();
    let source = database.memory_source("s").unwrap();
    let ends = Arc::new(AtomicBool::new(false));
    let delivers = {
        let (source, ends) = (source.clone(), Arc::clone(&ends));
        std::thread::spawn(move || {
            while !ends.load(Ordering::SeqCst) {
                source.push_to(0, numbers(&[1])).unwrap();
            }
        })
    };
    source.push_to(1, numbers(&[2])).unwrap();
    until(&database, "SELECT count(*) FROM shares WHERE share = 50", 1).await;
    source.push_to(1, numbers(&[0])).unwrap();
    until(&database, FAILED, 1).await;
    ends.store(true, Ordering::SeqCst);
    delivers.join().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_view_is_replaced_as_a_whole_or_not_at_all() {
    let database = Database::in_memory().await.unwrap();
    sources(&database, &["s"]).await;
    database
        .execute("CREATE VIEW v AS SELECT n FROM s")
        .await
        .unwrap();
    let refusal = refused(&database, "CREATE OR REPLACE VIEW v AS SELECT m FROM s").await;
    assert!(refusal.starts_with("42703"), "{refusal}");
    let refusal = refused(&database, "CREATE OR REPLACE VIEW v AS SELECT n FROM v").await;
    assert!(refusal.starts_with("42P17"), "{refusal}");
    database
        .execute(
            "CREATE MATERIALIZED VIEW doubled AS SELECT n * 2 AS d FROM v;
             CREATE OR REPLACE VIEW v AS SELECT n FROM s",
        )
        .await
        .expect("the same definition changes nothing, though something reads the view");
    let refusal = refused(&database, "CREATE OR REPLACE VIEW v AS SELECT n + 1 AS n FROM s").await;
    assert!(refusal.starts_with("2BP01"), "{refusal}");
    push(&database, "s", &[21]);
    until(&database, "SELECT max(d) FROM doubled", 42).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_follows_a_view_is_told_when_it_fails_or_the_database_closes() {
    let database = Database::in_memory().await.unwrap();
    sources(&database, &["s", "t"]).await;
    database
        .execute(
            "CREATE MATERIALIZED VIEW shares AS SELECT 100 / n AS share FROM s;
             CREATE MATERIALIZED VIEW others AS SELECT n FROM t",
        )
        .await
        .unwrap();
    let mut shares = database.subscribe("shares").await.unwrap();
    let mut others = database.subscribe("others").await.unwrap();
    push(&database, "s", &[0]);
    let error = shares.next().await.unwrap().unwrap_err();
    assert_eq!(error.sqlstate(), "22012");
    assert!(shares.next().await.is_none());
    let mut again = database.subscribe("shares").await.unwrap();
    let error = again.next().await.unwrap().unwrap_err();
    assert_eq!(
        error.sqlstate(),
        "22012",
        "one that has failed already says so at once"
    );

    let handle = database.clone();
    database.close().await.unwrap();
    assert!(others.next().await.is_none());
    let refusal = refused(&handle, "CREATE MATERIALIZED VIEW late AS SELECT n FROM t").await;
    assert!(refusal.starts_with("57P01"), "{refusal}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_statement_that_nobody_waits_for_is_carried_to_its_end() {
    let database = Database::in_memory().await.unwrap();
    sources(&database, &["s"]).await;
    for round in 0..20 {
        let create = database.execute("CREATE MATERIALIZED VIEW v AS SELECT count(*) AS n FROM s");
        // The statement is dropped after a number of polls that grows, as by a Ctrl-C at any moment.
        tokio::select! {
            biased;
            _ = create => {}
            () = async { for _ in 0..round { tokio::task::yield_now().await } } => {}
        }
        // What was begun comes to its end before the next change begins.
        database
            .execute(
                "CREATE SOURCE IF NOT EXISTS after (n BIGINT) WITH (connector = 'memory', topic = 'after')",
            )
            .await
            .unwrap();
        let dropped = database.execute("DROP MATERIALIZED VIEW IF EXISTS v").await;
        dropped.expect("what was begun is whole");
        assert_eq!(number(&database, "SELECT count(*) FROM hw.queries").await, 0);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_query_that_fails_on_a_value_names_the_row_and_the_expression() {
    let database = Database::in_memory().await.unwrap();
    sources(&database, &["s"]).await;
    database
        .execute(
            "CREATE TABLE t (id BIGINT PRIMARY KEY, name VARCHAR, n BIGINT);
             CREATE TABLE u (id BIGINT PRIMARY KEY, m BIGINT);
             INSERT INTO u VALUES (1, 0), (2, 7);
             CREATE MATERIALIZED VIEW on_lane AS SELECT 100 / n AS share FROM s;
             CREATE MATERIALIZED VIEW projected AS SELECT id, 100 / (n - 5) AS share FROM t;
             CREATE MATERIALIZED VIEW filtered AS SELECT id FROM t WHERE CAST(name AS BIGINT) > 3;
             CREATE MATERIALIZED VIEW joined AS SELECT t.id FROM t JOIN u ON t.id = u.id AND t.n / u.m > 1",
        )
        .await
        .unwrap();
    push(&database, "s", &[1, 2, 0, 4]);
    database
        .execute("INSERT INTO t SELECT g, g::varchar, 9 FROM generate_series(10, 60) AS g; INSERT INTO t VALUES (3, '12', 5), (4, repeat('x', 5000), 6), (1, '1', 8)")
        .await
        .unwrap();
    until(&database, FAILED, 4).await;
    let details = rows(
        &database,
        "SELECT name, sqlstate, detail FROM hw.queries WHERE state = 'FAILED' ORDER BY name",
    )
    .await;
    for (line, starts, shows) in [
        (&details[0], "filtered|22P02|", vec!["(name = xxxxxx", "…"]),
        (
            &details[1],
            "joined|22012|",
            vec!["fails for the row (n = 8, m = 0"],
        ),
        (
            &details[2],
            "on_lane|22012|",
            vec!["100 / n fails for the row (n = 0)."],
        ),
        (
            &details[3],
            "projected|22012|",
            vec!["100 / (n - 5) fails for the row (n = 5, id = 3"],
        ),
    ] {
        assert!(line.starts_with(starts), "{line}");
        for shown in shows {
            assert!(line.contains(shown), "{line}");
        }
        assert!(line.len() < 700, "{line}");
    }
    database.close().await.unwrap();
}
