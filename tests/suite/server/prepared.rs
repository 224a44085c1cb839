//! Prepared statements that are run again: their plan is made once, and always gives the answer of the rows, the objects and the values
//! of the moment.

use tokio_postgres::Client;

use super::{Served, lines};

/// How many runs of prepared statements had a plan that was there already.
async fn reused(served: &Served) -> u64 {
    let text = served.database.metrics().await.unwrap();
    let mut lines = text.lines();
    let line = lines.find_map(|line| line.strip_prefix("highwater_plans_reused_total "));
    line.unwrap().parse::<f64>().unwrap() as u64
}

async fn world(client: &Client) {
    client
        .simple_query(
            "CREATE TABLE t (k BIGINT PRIMARY KEY, v VARCHAR, d DOUBLE PRECISION, at TIMESTAMP);
             INSERT INTO t SELECT g, 'v' || g % 3, g / 2.0, TIMESTAMP '2024-01-01' + g * INTERVAL '1' DAY FROM generate_series(1, 9) AS g;
             CREATE VIEW logical AS SELECT k, upper(v) AS v FROM t;
             CREATE MATERIALIZED VIEW stored AS SELECT v, count(*) AS n FROM t GROUP BY v",
        )
        .await
        .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plan_is_made_once_and_takes_all_values() {
    let served = Served::start().await;
    let client = served.connect().await;
    world(&client).await;

    let select = "SELECT upper(v) || $2, k FROM t WHERE k >= $1 AND d < $3 AND at > $4 ORDER BY k LIMIT $5";
    let select = client.prepare(select).await.unwrap();
    let at = |text: &str| chrono::NaiveDateTime::parse_from_str(text, "%Y-%m-%d %H:%M:%S").unwrap();
    let early = at("2024-01-01 00:00:00");
    for (from, limit, expected) in [
        (1_i64, 2_i64, vec![1_i64, 2]),
        (7, 9, vec![7]),
        (4, 3, vec![4, 5, 6]),
        (100, 3, vec![]),
    ] {
        let rows = client
            .query(&select, &[&from, &"!", &4.0_f64, &early, &limit])
            .await
            .unwrap();
        let keys: Vec<i64> = rows.iter().map(|row| row.get(1)).collect();
        assert_eq!(keys, expected, "from {from}");
        assert!(rows.iter().all(|row| row.get::<_, &str>(0).ends_with('!')));
    }
    assert_eq!(reused(&served).await, 3, "all but the first run");
    // NULL, and a value that the plan does not know of.
    let none: Option<i64> = None;
    let rows = client
        .query(&select, &[&none, &"!", &4.0_f64, &early, &9_i64])
        .await;
    assert!(rows.unwrap().is_empty());
    let rows = client
        .query(&select, &[&1_i64, &"!", &f64::NAN, &early, &9_i64])
        .await;
    assert_eq!(rows.unwrap().len(), 9);
    served.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kept_plan_reads_by_key_and_index_and_over_views() {
    let served = Served::start().await;
    let client = served.connect().await;
    world(&client).await;
    client.simple_query("CREATE INDEX ON t (v, d)").await.unwrap();

    for (sql, expected) in [
        ("SELECT k + 0 FROM t WHERE k = $1", vec![vec![2_i64], vec![5]]),
        (
            "SELECT a.k FROM t a JOIN t b ON a.k = b.k WHERE b.k = $1",
            vec![vec![2], vec![5]],
        ),
        (
            "SELECT k FROM logical WHERE k > $1 ORDER BY k DESC",
            vec![vec![9, 8, 7, 6, 5, 4, 3], vec![9, 8, 7, 6]],
        ),
        (
            "SELECT sum(n)::bigint FROM stored WHERE n > $1",
            vec![vec![9], vec![]],
        ),
        (
            "SELECT k FROM t WHERE v IN (SELECT v FROM stored WHERE n >= $1) AND k < 3 ORDER BY k",
            vec![vec![1, 2], vec![]],
        ),
    ] {
        let select = client.prepare(sql).await.unwrap();
        for _ in 0..3 {
            for (value, expected) in [2_i64, 5].iter().zip(&expected) {
                let rows = client.query(&select, &[value]).await.unwrap();
                let found: Vec<i64> = rows.iter().filter_map(|row| row.get(0)).collect();
                assert_eq!(&found, expected, "{sql} with {value}");
            }
        }
    }
    let by_index = client
        .prepare("SELECT k + 0 FROM t WHERE v = $1 AND d >= $2 ORDER BY k")
        .await
        .unwrap();
    for _ in 0..3 {
        let rows = client.query(&by_index, &[&"v1", &2.0_f64]).await.unwrap();
        assert_eq!(
            rows.iter().map(|row| row.get::<_, i64>(0)).collect::<Vec<_>>(),
            [4, 7]
        );
    }
    assert!(reused(&served).await >= 20);
    served.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plan_goes_when_objects_change() {
    let served = Served::start().await;
    let client = served.connect().await;
    world(&client).await;
    let select = client
        .prepare("SELECT v || '' FROM logical WHERE k = $1")
        .await
        .unwrap();
    let read = async || -> Vec<String> {
        let rows = client.query(&select, &[&1_i64]).await.unwrap();
        rows.iter().map(|row| row.get(0)).collect()
    };
    for _ in 0..3 {
        assert_eq!(read().await, ["V1"]);
    }
    let before = reused(&served).await;
    client
        .simple_query("DROP VIEW logical; CREATE VIEW logical AS SELECT k, v FROM t")
        .await
        .unwrap();
    assert_eq!(read().await, ["v1"]);
    client
        .simple_query("UPDATE t SET v = 'new' WHERE k = 1")
        .await
        .unwrap();
    assert_eq!(read().await, ["new"]);
    client
        .simple_query("CREATE INDEX ON t (v); CREATE TABLE other (a INT)")
        .await
        .unwrap();
    assert_eq!(read().await, ["new"]);
    assert!(reused(&served).await > before);
    client.simple_query("DROP VIEW logical").await.unwrap();
    let error = client.query(&select, &[&1_i64]).await.unwrap_err();
    assert_eq!(error.code().unwrap().code(), "42P01");
    served.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_depends_on_more_than_values_is_planned_each_time() {
    let served = Served::start().await;
    let client = served.connect().await;
    world(&client).await;
    let clock = client
        .prepare("SELECT clock_timestamp() > now() OR $1::bigint > 0, now() FROM t LIMIT 1")
        .await
        .unwrap();
    let mut earlier = None;
    for _ in 0..3 {
        let rows = client.query(&clock, &[&1_i64]).await.unwrap();
        let now: chrono::DateTime<chrono::Utc> = rows[0].get(1);
        assert!(earlier.is_none_or(|earlier| earlier < now));
        earlier = Some(now);
    }
    let setting = client
        .prepare("SELECT current_setting('application_name') || $1")
        .await
        .unwrap();
    for name in ["a", "b", "c"] {
        client
            .simple_query(&format!("SET application_name = {name}"))
            .await
            .unwrap();
        let rows = client.query(&setting, &[&"!"]).await.unwrap();
        assert_eq!(rows[0].get::<_, &str>(0), format!("{name}!"));
    }
    assert_eq!(reused(&served).await, 0);
    served.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn changes_of_tables_use_their_plan_again() {
    let served = Served::start().await;
    let client = served.connect().await;
    world(&client).await;
    let insert = client
        .prepare("INSERT INTO t (k, v, at) VALUES ($1, $2, $3)")
        .await
        .unwrap();
    let update = client
        .prepare("UPDATE t SET d = d + $2 WHERE k = $1")
        .await
        .unwrap();
    let delete = client
        .prepare("DELETE FROM t WHERE k = $1 AND v = $2")
        .await
        .unwrap();
    let at = chrono::NaiveDateTime::parse_from_str("2024-02-29 12:00:00", "%Y-%m-%d %H:%M:%S").unwrap();
    for k in 101..105_i64 {
        assert_eq!(client.execute(&insert, &[&k, &"new", &at]).await.unwrap(), 1);
        assert_eq!(client.execute(&update, &[&(k - 100), &1.5_f64]).await.unwrap(), 1);
    }
    let none: Option<&str> = None;
    assert_eq!(client.execute(&insert, &[&200_i64, &none, &at]).await.unwrap(), 1);
    assert_eq!(client.execute(&delete, &[&101_i64, &"new"]).await.unwrap(), 1);
    assert_eq!(client.execute(&delete, &[&102_i64, &"old"]).await.unwrap(), 0);
    assert_eq!(client.execute(&delete, &[&102_i64, &"new"]).await.unwrap(), 1);
    assert_eq!(
        lines(
            &client,
            "SELECT k, v, d, at FROM t WHERE k > 100 OR k < 3 ORDER BY k"
        )
        .await,
        [
            "1|v1|2|2024-01-02 00:00:00",
            "2|v2|2.5|2024-01-03 00:00:00",
            "103|new|NULL|2024-02-29 12:00:00",
            "104|new|NULL|2024-02-29 12:00:00",
            "200|NULL|NULL|2024-02-29 12:00:00",
        ]
    );
    assert_eq!(
        lines(&client, "SELECT * FROM stored WHERE v = 'new'").await,
        ["new|2"]
    );
    assert!(reused(&served).await >= 8);
    served.end().await;
}

/// The answers of a prepared statement to each list of values, run often enough that its plans are kept, beside those of the same
/// statement planned each time.
async fn same_as_planned(client: &Client, sql: &str, types: &str, values: &[&str]) {
    client
        .simple_query(&format!("PREPARE p ({types}) AS {sql}"))
        .await
        .unwrap_or_else(|error| panic!("{sql}: {error:?}"));
    let mut planned = Vec::new();
    for values in values {
        client
            .simple_query(&format!("PREPARE once ({types}) AS {sql}"))
            .await
            .unwrap();
        planned.push(lines(client, &format!("EXECUTE once ({values})")).await);
        client.simple_query("DEALLOCATE once").await.unwrap();
    }
    for _ in 0..3 {
        for (values, planned) in values.iter().zip(&planned) {
            let kept = lines(client, &format!("EXECUTE p ({values})")).await;
            assert_eq!(&kept, planned, "{sql} with {values}");
        }
    }
    client.simple_query("DEALLOCATE p").await.unwrap();
}

/// A row for each of nine days.
async fn days(client: &Client) {
    client
        .simple_query(
            "CREATE TABLE n (k BIGINT PRIMARY KEY, price NUMERIC(10, 2), at TIMESTAMP, doc JSONB, tags VARCHAR[]);
             INSERT INTO n SELECT g, g * 1.25, TIMESTAMP '2024-01-01' + g * INTERVAL '1' DAY,
                 ('{\"a\": ' || g || '}')::jsonb, ARRAY['t' || g % 3, 'all'] FROM generate_series(1, 9) AS g",
        )
        .await
        .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn plans_for_numbers_are_kept_by_their_digits() {
    let served = Served::start().await;
    let client = served.connect().await;
    days(&client).await;
    let numbers = [
        "1.25",
        "-2.50",
        "7",
        "0.005",
        "10.0",
        "NULL",
        "123456.789",
        "2.50",
    ];
    for sql in [
        "SELECT k, price * $1, price + $1, price - $1 FROM n ORDER BY k",
        "SELECT k, round(price / nullif($1, 0), 4), price % nullif($1, 0), price / nullif($1, 0) FROM n ORDER BY k",
        "SELECT k FROM n WHERE price >= $1 OR price = -$1 ORDER BY k",
        "SELECT sum(price * $1), avg(price + $1), max(greatest(price, $1)) FROM n",
        "SELECT $1, coalesce($1, 0.1), $1::text, round($1, 1), $1 IN (7, 2.5) FROM n WHERE k = 1",
        "SELECT k, $1 / 3, 10.0 / nullif($1, 0), -$1 / 7 FROM n WHERE k = 1 AND price > $1 / 3 - 100",
    ] {
        same_as_planned(&client, sql, "NUMERIC", &numbers).await;
    }
    assert!(reused(&served).await >= 50, "{}", reused(&served).await);
    served.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn plans_for_intervals_documents_and_arrays_are_kept() {
    let served = Served::start().await;
    let client = served.connect().await;
    days(&client).await;
    let intervals = ["'1 day'", "'36 hours'", "NULL", "'1 month -2 days'"];
    let documents = ["'{\"a\": 3}'", "'{}'", "NULL", "'[1, {\"b\": null}]'"];
    let arrays = ["'{1,2,NULL}'", "'{}'", "NULL", "'{7}'"];
    for (sql, types, values) in [
        (
            "SELECT k, at + $1, at - $1 > TIMESTAMP '2024-01-05' FROM n ORDER BY k",
            "INTERVAL",
            &intervals,
        ),
        (
            "SELECT $1, $1 * 2, -$1, $1 > INTERVAL '1' DAY FROM n WHERE k = 1",
            "INTERVAL",
            &intervals,
        ),
        (
            "SELECT k, doc || $1, doc @> $1, $1 -> 'a' FROM n ORDER BY k",
            "JSONB",
            &documents,
        ),
        ("SELECT k FROM n WHERE doc = $1 ORDER BY k", "JSONB", &documents),
        (
            "SELECT k, $1, $1[1] + k, cardinality($1), array_append($1, k) FROM n ORDER BY k",
            "BIGINT[]",
            &arrays,
        ),
        (
            "SELECT k FROM n WHERE k = ANY($1) ORDER BY k",
            "BIGINT[]",
            &arrays,
        ),
        (
            "SELECT v, count(*) FROM unnest($1) AS u(v) GROUP BY v ORDER BY v",
            "BIGINT[]",
            &arrays,
        ),
    ] {
        same_as_planned(&client, sql, types, values).await;
    }
    assert!(reused(&served).await >= 50, "{}", reused(&served).await);
    served.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_with_numbers_documents_and_arrays_are_inserted_by_one_plan() {
    let served = Served::start().await;
    let client = served.connect().await;
    client
        .simple_query(
            "CREATE TABLE n (k BIGINT PRIMARY KEY, price NUMERIC(10, 2), doc JSONB, tags VARCHAR[], took INTERVAL);
             PREPARE add (BIGINT, NUMERIC, JSONB, VARCHAR[], INTERVAL) AS INSERT INTO n VALUES ($1, $2, $3, $4, $5);
             PREPARE raise (BIGINT, NUMERIC) AS UPDATE n SET price = price * $2 WHERE k = $1",
        )
        .await
        .unwrap();
    for k in 1..=5 {
        let add = format!("EXECUTE add ({k}, {k}.25, '{{\"k\": {k}}}', ARRAY['a', '{k}'], '{k} hours')");
        client.simple_query(&add).await.unwrap();
        client
            .simple_query(&format!("EXECUTE raise ({k}, 1.5)"))
            .await
            .unwrap();
    }
    assert_eq!(
        lines(&client, "SELECT * FROM n WHERE k > 3 ORDER BY k").await,
        [
            "4|6.38|{\"k\": 4}|{a,4}|04:00:00",
            "5|7.88|{\"k\": 5}|{a,5}|05:00:00",
        ]
    );
    assert!(reused(&served).await >= 8, "{}", reused(&served).await);
    let error = client
        .simple_query("EXECUTE add (9, 123456789.00, NULL, NULL, NULL)")
        .await
        .unwrap_err();
    assert_eq!(error.code().unwrap().code(), "22003");
    // An array that chooses rows is a list of keys where it is known, and is planned so.
    let before = reused(&served).await;
    let by_keys = client
        .prepare("SELECT price FROM n WHERE k = ANY($1) ORDER BY k")
        .await
        .unwrap();
    for keys in [vec![1_i64, 2], vec![5], vec![], vec![4, 1, 9]] {
        let found = client.query(&by_keys, &[&keys]).await.unwrap().len();
        assert_eq!(found, keys.iter().filter(|key| **key <= 5).count());
    }
    assert_eq!(reused(&served).await, before);
    served.end().await;
}
