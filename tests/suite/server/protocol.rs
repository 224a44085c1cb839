//! Statements, errors, transactions, settings, cancellation.

use futures::TryStreamExt as _;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio_postgres::error::ErrorPosition;
use tokio_postgres::types::Type;
use tokio_postgres::{NoTls, SimpleQueryMessage};

use super::{PATIENCE, Served, lines, told};
use crate::support::until;

#[tokio::test(flavor = "multi_thread")]
async fn several_statements_of_one_message_run_up_to_the_first_error() {
    let served = Served::start().await;
    let client = served.connect().await;

    let messages = client
        .simple_query(
            "CREATE TABLE t (a INT PRIMARY KEY); INSERT INTO t VALUES (1), (2); SELECT a FROM t ORDER BY a",
        )
        .await
        .unwrap();
    let counts: Vec<u64> = messages
        .iter()
        .filter_map(|message| match message {
            SimpleQueryMessage::CommandComplete(rows) => Some(*rows),
            _ => None,
        })
        .collect();
    assert_eq!(counts, [0, 2, 2]);

    let sql = "INSERT INTO t VALUES (3); SELECT 'ä', nothing FROM t; INSERT INTO t VALUES (4)";
    let error = client.simple_query(sql).await.unwrap_err();
    let error = error.as_db_error().unwrap();
    assert_eq!(error.code().code(), "42703");
    let at = sql
        .chars()
        .position(|char| char == 'n')
        .map(|_| sql.find("nothing").unwrap());
    let characters = sql[..at.unwrap()].chars().count() as u32 + 1;
    assert_eq!(error.position(), Some(&ErrorPosition::Original(characters)));
    assert_eq!(
        lines(&client, "SELECT a FROM t ORDER BY a").await,
        ["1", "2", "3"]
    );
    served.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_error_has_its_code_detail_and_hint_and_the_connection_goes_on() {
    let served = Served::start().await;
    let client = served.connect().await;
    client
        .simple_query("CREATE TABLE t (a INT NOT NULL)")
        .await
        .unwrap();

    let error = client
        .query("INSERT INTO t VALUES (NULL)", &[])
        .await
        .unwrap_err();
    let error = error.as_db_error().unwrap();
    assert_eq!(error.code().code(), "23502");
    assert_eq!(error.detail(), Some("Failing row contains (null)."));
    let error = client.query("SELECT * FROM s", &[]).await.unwrap_err();
    assert_eq!(
        told(&error),
        ("42P01".to_owned(), "relation \"s\" does not exist".to_owned())
    );
    let error = client.query("SELECT 1 / $1::int", &[&0i32]).await.unwrap_err();
    assert_eq!(told(&error).0, "22012");
    assert_eq!(lines(&client, "SELECT 1").await, ["1"]);
    assert!(lines(&client, "").await.is_empty());
    served.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn parameters_have_the_types_of_where_they_stand() {
    let served = Served::start().await;
    let client = served.connect().await;
    client
        .simple_query("CREATE TABLE t (a INT PRIMARY KEY, b VARCHAR, c NUMERIC(10, 2), d TIMESTAMPTZ, e JSONB, f BIGINT[])")
        .await
        .unwrap();

    for (sql, expected) in [
        (
            "SELECT * FROM t WHERE a = $1 AND b = $2",
            vec![Type::INT4, Type::TEXT],
        ),
        ("SELECT $1", vec![Type::TEXT]),
        ("SELECT $1::bigint, $2::date", vec![Type::INT8, Type::DATE]),
        (
            "SELECT a + $1 FROM t WHERE c > $2",
            vec![Type::INT4, Type::NUMERIC],
        ),
        (
            "SELECT * FROM t WHERE a IN ($1, $2) OR d < $3",
            vec![Type::INT4, Type::INT4, Type::TIMESTAMPTZ],
        ),
        (
            "SELECT * FROM t WHERE b LIKE $1 LIMIT $2",
            vec![Type::TEXT, Type::INT8],
        ),
        (
            "INSERT INTO t VALUES ($1, $2, $3, $4, $5, $6)",
            vec![
                Type::INT4,
                Type::TEXT,
                Type::NUMERIC,
                Type::TIMESTAMPTZ,
                Type::JSONB,
                Type::INT8_ARRAY,
            ],
        ),
        (
            "UPDATE t SET c = $2 WHERE a = $1",
            vec![Type::INT4, Type::NUMERIC],
        ),
        (
            "DELETE FROM t WHERE a BETWEEN $1 AND $2 RETURNING b",
            vec![Type::INT4, Type::INT4],
        ),
    ] {
        let statement = client
            .prepare(sql)
            .await
            .unwrap_or_else(|error| panic!("{sql}: {error:?}"));
        assert_eq!(statement.params(), expected, "{sql}");
    }
    let statement = client
        .prepare("SELECT a, b AS \"B\", c, count(*) OVER () FROM t WHERE a = $1")
        .await
        .unwrap();
    let columns: Vec<(&str, &Type)> = statement
        .columns()
        .iter()
        .map(|c| (c.name(), c.type_()))
        .collect();
    let expected = [
        ("a", &Type::INT4),
        ("B", &Type::VARCHAR),
        ("c", &Type::NUMERIC),
        ("count", &Type::INT8),
    ];
    assert_eq!(columns, expected);
    let error = client.prepare("CREATE VIEW v AS SELECT $1").await.unwrap_err();
    assert_eq!(told(&error).0, "42P02");
    served.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_prepared_statement_runs_again_with_other_values() {
    let served = Served::start().await;
    let client = served.connect().await;
    client
        .simple_query("CREATE TABLE t (a INT PRIMARY KEY, b VARCHAR)")
        .await
        .unwrap();

    let insert = client.prepare("INSERT INTO t VALUES ($1, $2)").await.unwrap();
    for (a, b) in [(1, Some("one")), (2, None), (3, Some("it's; DROP TABLE t"))] {
        assert_eq!(client.execute(&insert, &[&a, &b]).await.unwrap(), 1);
    }
    let select = client.prepare("SELECT b FROM t WHERE a = $1").await.unwrap();
    for (a, b) in [(1, Some("one")), (2, None), (3, Some("it's; DROP TABLE t"))] {
        let row = client.query_one(&select, &[&a]).await.unwrap();
        assert_eq!(row.get::<_, Option<&str>>(0), b);
    }
    assert_eq!(client.query(&select, &[&4]).await.unwrap().len(), 0);
    let found = client
        .query(
            "SELECT a FROM t WHERE a = ANY($1) ORDER BY a LIMIT $2",
            &[&vec![1, 3, 9], &1i64],
        )
        .await
        .unwrap();
    assert_eq!(found.iter().map(|row| row.get(0)).collect::<Vec<i32>>(), [1]);
    let error = client.execute(&insert, &[&1, &"other"]).await.map(|_| ());
    let again = lines(&client, "SELECT count(*) FROM t").await;
    assert!(error.is_ok(), "a table replaces rows by its key: {error:?}");
    assert_eq!(again, ["3"]);
    served.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_portal_gives_as_many_rows_as_it_is_asked_for() {
    let served = Served::start().await;
    let mut client = served.connect().await;
    client
        .simple_query("CREATE TABLE t (a INT PRIMARY KEY)")
        .await
        .unwrap();
    client
        .simple_query("INSERT INTO t SELECT * FROM generate_series(1, 20000)")
        .await
        .unwrap();

    let transaction = client.transaction().await.unwrap();
    let portal = transaction.bind("SELECT a FROM t ORDER BY a", &[]).await.unwrap();
    let mut all: Vec<i32> = Vec::new();
    for expected in [1, 9_999, 10_000, 0] {
        let rows = transaction
            .query_portal(&portal, 10_000.min(expected.max(1)))
            .await
            .unwrap();
        all.extend(rows.iter().map(|row| row.get::<_, i32>(0)));
        assert_eq!(rows.len(), usize::try_from(expected).unwrap());
    }
    assert_eq!(all, (1..=20_000).collect::<Vec<_>>());
    transaction.commit().await.unwrap();

    let rows = client
        .query_raw("SELECT a FROM t ORDER BY a", Vec::<i32>::new())
        .await
        .unwrap();
    let whole: Vec<i32> = rows
        .map_ok(|row| row.get::<_, i32>(0))
        .try_collect()
        .await
        .unwrap();
    assert_eq!(whole, all);
    served.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_transaction_block_is_what_it_can_be() {
    let served = Served::start().await;
    let mut client = served.connect().await;
    client.simple_query("CREATE TABLE t (a INT)").await.unwrap();

    let transaction = client.transaction().await.unwrap();
    transaction
        .execute("INSERT INTO t VALUES (1)", &[])
        .await
        .unwrap();
    transaction.commit().await.unwrap();
    assert_eq!(lines(&client, "BEGIN; SELECT a FROM t; ROLLBACK").await, ["1"]);

    client
        .simple_query("BEGIN; INSERT INTO t VALUES (2)")
        .await
        .unwrap();
    let error = client.simple_query("ROLLBACK").await.unwrap_err();
    assert_eq!(told(&error).0, "0A000");
    assert_eq!(lines(&client, "SELECT a FROM t ORDER BY a").await, ["1", "2"]);

    client.simple_query("BEGIN").await.unwrap();
    client.simple_query("SELECT nothing").await.unwrap_err();
    let error = client.simple_query("SELECT 1").await.unwrap_err();
    assert_eq!(told(&error).0, "25P02");
    client.simple_query("ROLLBACK").await.unwrap();

    let error = client
        .simple_query("BEGIN READ ONLY; DELETE FROM t")
        .await
        .unwrap_err();
    assert_eq!(told(&error).0, "25006");
    client.simple_query("ROLLBACK").await.unwrap();
    let error = client
        .simple_query("BEGIN ISOLATION LEVEL SERIALIZABLE")
        .await
        .unwrap_err();
    assert_eq!(told(&error).0, "0A000");
    assert_eq!(
        lines(&client, "SHOW transaction_isolation").await,
        ["read committed"]
    );
    served.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn settings_are_told_set_and_reset() {
    let served = Served::start().await;
    let options = format!(
        "{} application_name=suite options='-c extra_float_digits=2'",
        served.url()
    );
    let (client, mut connection) = tokio_postgres::connect(&options, NoTls).await.unwrap();
    assert!(connection.parameter("server_version").unwrap().starts_with("15."));
    assert_eq!(connection.parameter("client_encoding"), Some("UTF8"));
    assert_eq!(connection.parameter("DateStyle"), Some("ISO, MDY"));
    assert_eq!(connection.parameter("TimeZone"), Some("UTC"));
    assert_eq!(connection.parameter("integer_datetimes"), Some("on"));
    assert_eq!(connection.parameter("standard_conforming_strings"), Some("on"));
    let task = tokio::spawn(async move {
        let _ = std::future::poll_fn(|context| {
            while let std::task::Poll::Ready(message) = connection.poll_message(context) {
                if message.is_none() {
                    return std::task::Poll::Ready(());
                }
            }
            std::task::Poll::Pending
        })
        .await;
        connection.parameter("application_name").map(str::to_owned)
    });

    assert_eq!(lines(&client, "SHOW application_name").await, ["suite"]);
    assert_eq!(lines(&client, "SHOW extra_float_digits").await, ["2"]);
    client
        .simple_query("SET application_name = 'other'; SET search_path TO public, x")
        .await
        .unwrap();
    assert_eq!(lines(&client, "SHOW search_path").await, ["public, x"]);
    let error = client
        .simple_query("SET TimeZone = 'Europe/Berlin'")
        .await
        .unwrap_err();
    assert_eq!(told(&error).0, "22023");
    client.simple_query("RESET search_path").await.unwrap();
    assert_eq!(lines(&client, "SHOW search_path").await, ["public"]);
    drop(client);
    assert_eq!(task.await.unwrap().as_deref(), Some("other"));
    served.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn discard_and_deallocate_forget_prepared_statements() {
    let served = Served::start().await;
    let client = served.connect().await;

    client
        .simple_query("PREPARE p (int) AS SELECT $1 * 2, $2")
        .await
        .unwrap();
    assert_eq!(lines(&client, "EXECUTE p (20 + 1, 'x')").await, ["42|x"]);
    assert_eq!(lines(&client, "EXECUTE p (NULL, NULL)").await, ["NULL|NULL"]);
    client.simple_query("DEALLOCATE p").await.unwrap();
    assert_eq!(
        told(&client.simple_query("EXECUTE p (1, '')").await.unwrap_err()).0,
        "26000"
    );
    let statement = client.prepare("SELECT 1").await.unwrap();
    client.simple_query("DISCARD ALL").await.unwrap();
    assert_eq!(told(&client.query(&statement, &[]).await.unwrap_err()).0, "26000");
    served.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_statement_ends_by_its_timeout_and_by_a_cancel_request() {
    let served = Served::start().await;
    let client = served.connect().await;
    client.simple_query("CREATE TABLE t (a INT)").await.unwrap();

    client
        .simple_query("SET statement_timeout = '50ms'")
        .await
        .unwrap();
    let error = client.simple_query("SUBSCRIBE t").await.unwrap_err();
    let expected = (
        "57014".to_owned(),
        "canceling statement due to statement timeout".to_owned(),
    );
    assert_eq!(told(&error), expected);
    // Planning computes what is constant, which may take long.
    let slow = "length(replace(repeat('ab', 30000000), 'a', 'cc'))";
    for statement in [
        format!("CREATE MATERIALIZED VIEW slow AS SELECT a + {slow} AS l FROM t"),
        format!("EXPLAIN SELECT a + {slow} AS l FROM t"),
        format!("SELECT a + {slow} AS l FROM t"),
    ] {
        let error = client.simple_query(&statement).await.unwrap_err();
        assert_eq!(told(&error), expected, "{statement}");
    }
    client.simple_query("RESET statement_timeout").await.unwrap();

    let token = client.cancel_token();
    let (ended, ()) = tokio::join!(client.simple_query("SUBSCRIBE t"), async {
        let runs = "SELECT count(*) FROM hw.connections WHERE state = 'active' AND statement = 'SUBSCRIBE t'";
        until(&served.database, runs, 1).await;
        token.cancel_query(NoTls).await.unwrap();
    });
    let expected = (
        "57014".to_owned(),
        "canceling statement due to user request".to_owned(),
    );
    assert_eq!(told(&ended.unwrap_err()), expected);
    assert_eq!(lines(&client, "SELECT 1").await, ["1"]);
    served.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn after_an_error_messages_are_skipped_up_to_sync() {
    let served = Served::start().await;
    let client = served.connect().await;

    let (first, second) = tokio::join!(
        client.query("SELECT 1 / $1::int", &[&0i32]),
        client.query("SELECT 1", &[])
    );
    assert_eq!(told(&first.unwrap_err()).0, "22012");
    assert_eq!(second.unwrap().len(), 1);
    served.end().await;
}

/// Sends bytes and reads what comes back until the server closes.
async fn raw(served: &Served, bytes: &[u8]) -> Vec<u8> {
    let mut socket = tokio::net::TcpStream::connect(served.address).await.unwrap();
    socket.write_all(bytes).await.unwrap();
    let mut answer = Vec::new();
    let read = tokio::time::timeout(PATIENCE, socket.read_to_end(&mut answer)).await;
    // A connection that is reset is closed too.
    let _ = read.expect("the server closes the connection");
    answer
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_start_up_is_sent_away() {
    let served = Served::start().await;
    let contains = |answer: &[u8], code: &str| answer.windows(5).any(|window| window == code.as_bytes());

    assert!(contains(&raw(&served, &[0xff; 64]).await, "08P01"));
    assert!(contains(&raw(&served, &[0, 0, 0, 8, 0, 2, 0, 0]).await, "0A000"));
    assert!(contains(
        &raw(&served, &[0, 0, 0, 9, 0, 3, 0, 0, 0]).await,
        "28000"
    ));
    let mut huge = b"\0\0\0\x10\0\x03\0\0user\0a\0\0".to_vec();
    let length = u32::try_from(huge.len()).unwrap();
    huge[..4].copy_from_slice(&length.to_be_bytes());
    huge.extend_from_slice(b"Q\x7f\xff\xff\xff");
    assert!(contains(&raw(&served, &huge).await, "54000"));
    // The server goes on.
    assert_eq!(lines(&served.connect().await, "SELECT 1").await, ["1"]);
    served.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn more_clients_than_allowed_are_sent_away() {
    let database = highwater::Database::in_memory().await.unwrap();
    let options = highwater::server::ServerOptions {
        connections_max: 2,
        ..Default::default()
    };
    let served = Served::of(database, options).await;
    let (one, two) = (served.connect().await, served.connect().await);

    let error = tokio_postgres::connect(&served.url(), NoTls)
        .await
        .map(drop)
        .unwrap_err();
    assert_eq!(told(&error).0, "53300");
    drop(one);
    let waited = async {
        while tokio_postgres::connect(&served.url(), NoTls).await.is_err() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, waited).await.unwrap();
    drop(two);
    served.end().await;
}
