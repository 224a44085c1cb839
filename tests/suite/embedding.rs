//! The embedding API as a program uses it.

use std::sync::Arc;

use arrow::array::{Int64Array, RecordBatch, StringArray, TimestampMicrosecondArray};
use arrow::datatypes::{DataType, Field, Schema, TimeUnit};
use futures::StreamExt;
use highwater::Database;
use highwater::connectors::registry::Registry;

use crate::support::{rows, until};

fn orders(customers: &[&str], amounts: &[i64]) -> RecordBatch {
    let schema = Schema::new(vec![
        Field::new("customer", DataType::Utf8, true),
        Field::new("amount", DataType::Int64, true),
    ]);
    let columns: Vec<arrow::array::ArrayRef> = vec![
        Arc::new(StringArray::from(customers.to_vec())),
        Arc::new(Int64Array::from(amounts.to_vec())),
    ];
    RecordBatch::try_new(Arc::new(schema), columns).unwrap()
}

const ORDERS: &str =
    "CREATE SOURCE orders (customer VARCHAR, amount BIGINT) WITH (connector = 'memory', topic = 'orders')";
const SPENDING: &str = "CREATE MATERIALIZED VIEW spending AS
    SELECT customer, count(*) AS orders, sum(amount) AS total FROM orders GROUP BY customer";

#[tokio::test(flavor = "multi_thread")]
async fn pushed_rows_show_in_views_and_in_subscriptions() {
    let database = Database::in_memory().await.unwrap();
    database.execute(ORDERS).await.unwrap();
    database.execute(SPENDING).await.unwrap();
    let source = database.memory_source("orders").unwrap();
    let mut changes = database.subscribe("spending").await.unwrap();

    source
        .push(orders(&["ada", "bob", "ada"], &[10, 20, 32]))
        .unwrap();
    let change = changes.next().await.unwrap().unwrap();
    assert_eq!(change.weights, vec![1, 1]);
    until(&database, "SELECT sum(orders)::bigint FROM spending", 3).await;
    assert_eq!(
        rows(&database, "SELECT * FROM spending").await,
        ["ada|2|42", "bob|1|20"]
    );

    source.push(orders(&["bob"], &[5])).unwrap();
    let change = changes.next().await.unwrap().unwrap();
    assert_eq!(
        change.weights,
        vec![-1, 1],
        "an update takes the old row away and adds the new one"
    );
    database.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn views_stand_on_views_and_a_new_one_starts_with_what_is_there() {
    let database = Database::in_memory().await.unwrap();
    database.execute(ORDERS).await.unwrap();
    database.execute(SPENDING).await.unwrap();
    let source = database.memory_source("orders").unwrap();
    source
        .push(orders(&["ada", "bob", "ada"], &[10, 20, 32]))
        .unwrap();
    until(&database, "SELECT count(*) FROM spending", 2).await;

    database
        .execute("CREATE MATERIALIZED VIEW sizes AS SELECT orders, count(*) AS customers FROM spending GROUP BY orders")
        .await
        .unwrap();
    assert_eq!(rows(&database, "SELECT * FROM sizes").await, ["1|1", "2|1"]);

    source.push(orders(&["bob", "eve"], &[1, 1])).unwrap();
    until(&database, "SELECT sum(customers)::bigint FROM sizes", 3).await;
    assert_eq!(rows(&database, "SELECT * FROM sizes").await, ["1|1", "2|2"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_closed_database_goes_on_where_it_was() {
    let dir = tempfile::tempdir().unwrap();
    let registry = Registry::with_builtin();
    let memory = Arc::clone(registry.memory().unwrap());
    let database = Database::builder()
        .registry(registry.clone())
        .open(dir.path())
        .await
        .unwrap();
    database.execute(ORDERS).await.unwrap();
    database.execute(SPENDING).await.unwrap();
    memory
        .handle("orders")
        .push(orders(&["ada", "bob"], &[1, 2]))
        .unwrap();
    until(&database, "SELECT count(*) FROM spending", 2).await;
    database.close().await.unwrap();

    memory
        .handle("orders")
        .push(orders(&["ada", "eve"], &[10, 3]))
        .unwrap();
    let database = Database::builder()
        .registry(registry)
        .open(dir.path())
        .await
        .unwrap();
    until(&database, "SELECT count(*) FROM spending", 3).await;
    assert_eq!(
        rows(&database, "SELECT * FROM spending").await,
        ["ada|2|11", "bob|1|2", "eve|1|3"]
    );
    database.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_window_closes_when_the_watermark_passes_it_and_late_rows_are_counted() {
    let database = Database::in_memory().await.unwrap();
    database
        .execute(
            "CREATE SOURCE t (at TIMESTAMP, WATERMARK FOR at AS at - INTERVAL '1' SECOND)
               WITH (connector = 'memory', topic = 't');
             CREATE MATERIALIZED VIEW per_second AS
               SELECT window_end, count(*) AS n FROM TUMBLE(t, at, INTERVAL '1' SECOND)
               GROUP BY window_end EMIT ON WINDOW CLOSE",
        )
        .await
        .unwrap();
    let source = database.memory_source("t").unwrap();
    let push = |seconds: &[i64]| {
        let field = Field::new("at", DataType::Timestamp(TimeUnit::Microsecond, None), true);
        let times =
            TimestampMicrosecondArray::from_iter_values(seconds.iter().map(|second| second * 1_000_000));
        let batch = RecordBatch::try_new(Arc::new(Schema::new(vec![field])), vec![Arc::new(times)]).unwrap();
        source.push(batch).unwrap();
    };
    push(&[0, 0, 1]);
    until(&database, "SELECT sum(\"position\")::bigint FROM hw.lanes", 3).await;
    assert_eq!(rows(&database, "SELECT * FROM per_second").await, [""; 0]);
    push(&[2]);
    until(&database, "SELECT count(*) FROM per_second", 1).await;
    assert_eq!(
        rows(&database, "SELECT * FROM per_second").await,
        ["1970-01-01 00:00:01|2"]
    );
    push(&[0, 2]);
    until(&database, "SELECT sum(late_rows)::bigint FROM hw.queries", 1).await;
    assert_eq!(
        rows(&database, "SELECT * FROM per_second").await,
        ["1970-01-01 00:00:01|2"]
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_query_fails_alone_with_its_reason() {
    let database = Database::in_memory().await.unwrap();
    database.execute(ORDERS).await.unwrap();
    database.execute(SPENDING).await.unwrap();
    database
        .execute("CREATE MATERIALIZED VIEW odd AS SELECT 100 / amount AS share FROM orders")
        .await
        .unwrap();
    let source = database.memory_source("orders").unwrap();
    source.push(orders(&["ada", "bob"], &[5, 0])).unwrap();
    until(
        &database,
        "SELECT count(*) FROM hw.queries WHERE state = 'FAILED'",
        1,
    )
    .await;
    until(&database, "SELECT count(*) FROM spending", 2).await;
    let states = rows(&database, "SELECT name, state, sqlstate, error FROM hw.queries").await;
    assert_eq!(
        states,
        ["odd|FAILED|22012|division by zero", "spending|RUNNING|NULL|NULL"]
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn what_reads_a_failed_view_stops_with_it_and_never_has_its_rows_twice() {
    let dir = tempfile::tempdir().unwrap();
    let registry = Registry::with_builtin();
    let memory = Arc::clone(registry.memory().unwrap());
    let open = || Database::builder().registry(registry.clone()).open(dir.path());
    let mut database = open().await.unwrap();
    database.execute(ORDERS).await.unwrap();
    database
        .execute(
            "CREATE MATERIALIZED VIEW shares AS SELECT customer, 100 / amount AS share FROM orders;
             CREATE MATERIALIZED VIEW per_customer AS SELECT customer, count(*) AS n FROM shares GROUP BY customer;
             CREATE MATERIALIZED VIEW customers AS SELECT count(*) AS n FROM per_customer",
        )
        .await
        .unwrap();
    memory
        .handle("orders")
        .push(orders(&["ada", "bob"], &[1, 2]))
        .unwrap();
    until(&database, "SELECT count(*) FROM per_customer", 2).await;
    memory.handle("orders").push(orders(&["eve"], &[0])).unwrap();
    for _ in 0..3 {
        until(
            &database,
            "SELECT count(*) FROM hw.queries WHERE state = 'FAILED'",
            3,
        )
        .await;
        database.checkpoint().await.unwrap();
        drop(database);
        database = open().await.unwrap();
    }
    until(
        &database,
        "SELECT count(*) FROM hw.queries WHERE state = 'FAILED'",
        3,
    )
    .await;
    let states = rows(&database, "SELECT name, sqlstate FROM hw.queries").await;
    assert_eq!(states, ["customers|55000", "per_customer|55000", "shares|22012"]);
    let counted = rows(&database, "SELECT customer, n FROM per_customer").await;
    assert_eq!(
        counted,
        rows(
            &database,
            "SELECT customer, count(*) FROM shares GROUP BY customer"
        )
        .await
    );

    database
        .execute("ALTER MATERIALIZED VIEW shares RESUME")
        .await
        .unwrap();
    until(
        &database,
        "SELECT count(*) FROM hw.queries WHERE state = 'FAILED'",
        3,
    )
    .await;
    let counted = rows(&database, "SELECT customer, n FROM per_customer").await;
    assert_eq!(
        counted,
        rows(
            &database,
            "SELECT customer, count(*) FROM shares GROUP BY customer"
        )
        .await
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn declared_columns_of_a_connector_that_has_its_own_are_found_by_name() {
    let database = Database::in_memory().await.unwrap();
    database
        .execute(
            "CREATE SOURCE bids (price BIGINT, auction BIGINT) WITH (connector = 'nexmark', event.num = 100);
             CREATE MATERIALIZED VIEW v AS SELECT min(price) AS price, max(auction) AS auction FROM bids;
             CREATE SOURCE whole WITH (connector = 'nexmark', event.num = 100);
             CREATE MATERIALIZED VIEW w AS SELECT min(price) AS price, max(auction) AS auction FROM whole",
        )
        .await
        .unwrap();
    until(
        &database,
        "SELECT count(*) FROM hw.queries WHERE state = 'ENDED'",
        2,
    )
    .await;
    assert_eq!(
        rows(&database, "SELECT * FROM v").await,
        rows(&database, "SELECT * FROM w").await
    );

    for (columns, sqlstate) in [
        ("auction BIGINT, foo VARCHAR", "42703"),
        ("auction VARCHAR", "42804"),
    ] {
        let sql = format!("CREATE SOURCE wrong ({columns}) WITH (connector = 'nexmark')");
        assert_eq!(
            database.execute(&sql).await.unwrap_err().sqlstate(),
            sqlstate,
            "{sql}"
        );
    }
}

#[test]
fn the_example_runs() {
    let binary = std::path::Path::new(env!("CARGO_BIN_EXE_highwater"));
    let example = binary.with_file_name("examples").join("embed");
    let output = std::process::Command::new(example)
        .output()
        .expect("cargo test builds the examples");
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(
        text.starts_with("step 2: 2 rows changed, weights [1, 1]"),
        "{text}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn reads_that_compute_for_long_stop_no_other_and_end_when_nobody_listens() {
    let database = Database::in_memory().await.unwrap();
    let heavy =
        "SELECT count(*) FROM generate_series(1, 1000000) AS a(n), generate_series(1, 1000000) AS b(n)
                 WHERE a.n * b.n = -1";
    let running: Vec<_> = (0..4)
        .map(|_| {
            let database = database.clone();
            tokio::spawn(async move { database.query(heavy).await.map(|rows| rows.num_rows()) })
        })
        .collect();
    let answered = async {
        for _ in 0..20 {
            assert_eq!(rows(&database, "SELECT 1 + 1").await, ["2"]);
            tokio::task::yield_now().await;
        }
    };
    let patience = std::time::Duration::from_secs(30);
    tokio::time::timeout(patience, answered)
        .await
        .expect("other reads have their turn");
    // Whoever is dropped does not compute on: closing waits for nothing.
    running.iter().for_each(tokio::task::JoinHandle::abort);
    let closed = tokio::time::timeout(patience, database.close()).await;
    closed.expect("nothing holds the database").unwrap();
}
