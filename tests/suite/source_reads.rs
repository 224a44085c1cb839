//! SELECT over a source: the records that are there now, from where its conditions say.

use std::time::Duration;

use arrow::array::{Int64Array, RecordBatch};
use arrow::datatypes::{DataType, Field, Schema};
use highwater::Database;

use crate::kafka::{alone, broker};
use crate::support::{number, rows};

/// What EXPLAIN says of how a query reads.
async fn how(database: &Database, sql: &str) -> String {
    let lines = database.query(&format!("EXPLAIN {sql}")).await.unwrap();
    let lines = crate::support::cells(&lines.batches).concat();
    lines.last().unwrap().clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_select_over_a_memory_source_reads_what_is_there_and_leaves_it_there() {
    let database = Database::in_memory().await.unwrap();
    database
        .execute(
            "CREATE SOURCE s (n BIGINT, twice BIGINT AS n * 2) INCLUDE offset AS o
             WITH (connector = 'memory', topic = 's')",
        )
        .await
        .unwrap();
    assert_eq!(number(&database, "SELECT count(*) FROM s").await, 0);
    let schema = std::sync::Arc::new(Schema::new(vec![Field::new("n", DataType::Int64, true)]));
    let source = database.memory_source("s").unwrap();
    for from in [0, 10] {
        let column = std::sync::Arc::new(Int64Array::from_iter_values(from..from + 10));
        let batch = RecordBatch::try_new(std::sync::Arc::clone(&schema), vec![column]).unwrap();
        source.push(batch).unwrap();
    }
    for _ in 0..2 {
        assert_eq!(
            rows(&database, "SELECT count(*), sum(n)::bigint FROM s").await,
            ["20|190"]
        );
    }
    assert_eq!(
        rows(&database, "SELECT twice, n FROM s WHERE o BETWEEN 9 AND 11").await,
        ["18|9", "20|10", "22|11"]
    );
    assert_eq!(rows(&database, "SELECT n FROM s WHERE o > 100").await, [""; 0]);
    assert_eq!(
        rows(&database, "SELECT a.n FROM s a JOIN s b ON a.n = b.n + 18").await,
        ["18", "19"]
    );
    assert_eq!(rows(&database, "SELECT n FROM s LIMIT 3").await.len(), 3);
    assert_eq!(
        how(&database, "SELECT n FROM s WHERE o BETWEEN 9 AND 11").await,
        "Read now: s: records up to its ends now, from offset 9 through 11"
    );
    // A view that comes later has everything still.
    database
        .execute("CREATE MATERIALIZED VIEW v AS SELECT count(*) AS n FROM s")
        .await
        .unwrap();
    crate::support::until(&database, "SELECT n FROM v", 20).await;
    database.close().await.unwrap();
}

fn records(numbers: std::ops::Range<i64>) -> String {
    numbers.map(|n| format!("{{\"n\":{n}}}\n")).collect()
}

#[test]
fn a_select_over_a_topic_reads_from_where_its_conditions_say_to_its_ends() {
    let _alone = alone();
    broker().topic(&["create", "bounded", "2"]);
    broker().produce("bounded", 0, &records(0..100));
    broker().produce("bounded", 1, &records(100..150));
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let database = Database::in_memory().await.unwrap();
        let address = broker().address();
        database
            .execute(&format!(
                "CREATE SOURCE b (n BIGINT) INCLUDE partition AS p INCLUDE offset AS o INCLUDE timestamp AS kts
                 WITH (connector = 'kafka', topic = 'bounded', properties.bootstrap.server = '{address}',
                       scan.startup.mode = 'earliest') FORMAT PLAIN ENCODE JSON"
            ))
            .await
            .unwrap();
        let sum = "SELECT count(*), min(n), max(n) FROM b";
        assert_eq!(rows(&database, sum).await, ["150|0|149"]);
        let some = "SELECT n FROM b WHERE p = 1 AND o BETWEEN 3 AND 5";
        assert_eq!(rows(&database, some).await, ["103", "104", "105"]);
        assert_eq!(
            how(&database, some).await,
            "Read now: b: records up to its ends now, of partitions 1, from offset 3 through 5"
        );
        assert_eq!(number(&database, "SELECT count(*) FROM b WHERE o >= 90").await, 10);
        assert_eq!(number(&database, "SELECT count(*) FROM b WHERE p = 7").await, 0);
        assert_eq!(rows(&database, "SELECT n FROM b LIMIT 3").await.len(), 3);

        let last = rows(&database, "SELECT max(kts) FROM b").await;
        tokio::time::sleep(Duration::from_millis(50)).await;
        broker().produce("bounded", 0, &records(200..210));
        broker().produce("bounded", 0, "no record\n");
        let later = format!("SELECT n FROM b WHERE kts > TIMESTAMPTZ '{}'", last[0]);
        let expected: Vec<String> = (200..210).map(|n: i64| n.to_string()).collect();
        assert_eq!(rows(&database, &later).await, expected);
        let lately = "SELECT count(*) FROM b WHERE kts > now() - INTERVAL '10' MINUTE";
        assert_eq!(number(&database, lately).await, 160);
        for sql in [&later, lately] {
            let how = how(&database, sql).await;
            assert!(how.ends_with(", from a timestamp"), "{sql}: {how}");
        }
        let future = "SELECT count(*) FROM b WHERE kts > now() + INTERVAL '1' HOUR";
        assert_eq!(number(&database, future).await, 0);
        database.close().await.unwrap();
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn a_generator_gives_all_of_its_rows_to_a_read_whatever_its_pace() {
    let database = Database::in_memory().await.unwrap();
    database
        .execute("CREATE SOURCE bids WITH (connector = 'nexmark', rows.per.second = '1', event.num = '2000')")
        .await
        .unwrap();
    assert_eq!(number(&database, "SELECT count(*) FROM bids").await, 2000);
    assert_eq!(rows(&database, "SELECT auction FROM bids LIMIT 3").await.len(), 3);
}
