//! SUBSCRIBE over the wire: rows, COPY, cursors, clients that go and clients that are slow.

use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt as _;
use tokio_postgres::Client;

use super::{PATIENCE, Served, lines, told};

async fn table(client: &Client) {
    client
        .simple_query("CREATE TABLE t (a INT PRIMARY KEY, b VARCHAR); INSERT INTO t VALUES (1, 'x')")
        .await
        .unwrap();
}

/// The next line of a COPY, without its step.
async fn line(
    stream: &mut (impl futures::Stream<Item = Result<Bytes, tokio_postgres::Error>> + Unpin),
) -> String {
    let next = tokio::time::timeout(PATIENCE, stream.next())
        .await
        .expect("a change comes");
    let line = String::from_utf8(next.unwrap().unwrap().to_vec()).unwrap();
    line.split_once('\t').unwrap().1.to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn changes_come_as_lines_of_a_copy() {
    let served = Served::start().await;
    let (client, reader) = (served.connect().await, served.connect().await);
    table(&client).await;

    let stream = reader.copy_out("COPY (SUBSCRIBE TO t) TO STDOUT").await.unwrap();
    futures::pin_mut!(stream);
    assert_eq!(line(&mut stream).await, "1\t1\tx\n");
    client.simple_query("UPDATE t SET b = 'y'").await.unwrap();
    assert_eq!(line(&mut stream).await, "-1\t1\tx\n");
    assert_eq!(line(&mut stream).await, "1\t1\ty\n");
    client.simple_query("DROP TABLE t").await.unwrap();
    let end = tokio::time::timeout(PATIENCE, stream.next()).await.unwrap();
    let error = end
        .expect("who follows a table is told that it goes")
        .unwrap_err();
    assert_eq!(error.code().map(|code| code.code()), Some("42P01"), "{error:?}");
    served.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cursor_gives_changes_as_they_are_fetched() {
    let served = Served::start().await;
    let (client, writer) = (served.connect().await, served.connect().await);
    table(&client).await;

    writer.simple_query("CREATE TABLE gone (a INT)").await.unwrap();
    client
        .simple_query("BEGIN; DECLARE g CURSOR FOR SUBSCRIBE gone; FETCH ALL FROM g")
        .await
        .unwrap();
    writer.simple_query("DROP TABLE gone").await.unwrap();
    let fetched = client
        .simple_query("FETCH ALL FROM g WITH (timeout = '60s')")
        .await;
    let error = fetched.unwrap_err();
    assert_eq!(error.code().map(|code| code.code()), Some("42P01"), "{error:?}");
    client.simple_query("ROLLBACK").await.unwrap();

    client
        .simple_query("BEGIN; DECLARE c CURSOR FOR SUBSCRIBE t")
        .await
        .unwrap();
    assert_eq!(lines(&client, "FETCH ALL FROM c").await, ["0|1|1|x"]);
    assert!(
        lines(&client, "FETCH 10 FROM c").await.is_empty(),
        "nothing has changed"
    );
    writer
        .simple_query("INSERT INTO t VALUES (2, 'y'), (3, 'z')")
        .await
        .unwrap();
    let fetched = lines(&client, "FETCH 1 FROM c WITH (timeout = '20s')").await;
    assert_eq!(fetched.len(), 1);
    let fetched = lines(&client, "FETCH 5 FROM c WITH (timeout = '10ms')").await;
    assert_eq!(fetched.len(), 1, "one is left, and the others do not come");
    client.simple_query("COMMIT").await.unwrap();
    let error = client.simple_query("FETCH 1 FROM c").await.unwrap_err();
    assert_eq!(told(&error).0, "34000", "a cursor ends with its transaction");

    client
        .simple_query("DECLARE d CURSOR FOR SELECT a FROM t ORDER BY a")
        .await
        .unwrap();
    assert_eq!(lines(&client, "FETCH FORWARD 2 FROM d").await, ["1", "2"]);
    assert_eq!(lines(&client, "FETCH ALL d").await, ["3"]);
    client.simple_query("CLOSE d").await.unwrap();
    served.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_goes_leaves_nothing_behind() {
    let served = Served::start().await;
    let client = served.connect().await;
    table(&client).await;

    for _ in 0..3 {
        let (reader, connection) = tokio_postgres::connect(&served.url(), tokio_postgres::NoTls)
            .await
            .unwrap();
        let task = tokio::spawn(connection);
        let stream = reader.copy_out("COPY (SUBSCRIBE TO t) TO STDOUT").await.unwrap();
        let mut stream = Box::pin(stream);
        assert_eq!(line(&mut stream).await, "1\t1\tx\n");
        task.abort();
    }
    // All three have gone, and their statements with them: the server can stop at once.
    let started = std::time::Instant::now();
    drop(client);
    served.end().await;
    assert!(started.elapsed() < Duration::from_secs(10));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slow_client_is_told_that_it_lagged_and_holds_nobody_back() {
    let served = Served::start().await;
    let (client, reader) = (served.connect().await, served.connect().await);
    client
        .simple_query("CREATE TABLE t (a INT PRIMARY KEY, b VARCHAR)")
        .await
        .unwrap();

    let stream = reader.copy_out("COPY (SUBSCRIBE TO t) TO STDOUT").await.unwrap();
    let mut stream = Box::pin(stream);
    // More than sockets and buffers between the two hold, and more steps than wait for a subscriber.
    let row = "x".repeat(20_000);
    let insert = client.prepare("INSERT INTO t VALUES ($1, $2)").await.unwrap();
    for at in 0..2_000 {
        client.execute(&insert, &[&at, &row]).await.unwrap();
    }
    let end = async {
        loop {
            match stream.next().await {
                Some(Ok(_)) => {}
                Some(Err(error)) => return Some(told(&error).0),
                None => return None,
            }
        }
    };
    let end = tokio::time::timeout(PATIENCE, end).await.unwrap();
    assert_eq!(end.as_deref(), Some("53400"));
    served.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_query_is_followed_by_copy_and_by_cursor() {
    let served = Served::start().await;
    let client = served.connect().await;
    let (reader, connection) = tokio_postgres::connect(&served.url(), tokio_postgres::NoTls)
        .await
        .unwrap();
    let connection = tokio::spawn(connection);
    table(&client).await;
    client
        .simple_query("INSERT INTO t VALUES (2, 'x'); CREATE VIEW v AS SELECT b FROM t WHERE a > 1")
        .await
        .unwrap();

    let counted = "COPY (SUBSCRIBE (SELECT b, count(*) AS n FROM t GROUP BY b)) TO STDOUT";
    let stream = reader.copy_out(counted).await.unwrap();
    let mut stream = Box::pin(stream);
    assert_eq!(line(&mut stream).await, "1\tx\t2\n");
    client
        .simple_query("UPDATE t SET b = 'y' WHERE a = 2")
        .await
        .unwrap();
    let mut changes = Vec::new();
    for _ in 0..3 {
        changes.push(line(&mut stream).await);
    }
    changes.sort_unstable();
    assert_eq!(changes, ["-1\tx\t2\n", "1\tx\t1\n", "1\ty\t1\n"]);

    client
        .simple_query("BEGIN; DECLARE c CURSOR FOR SUBSCRIBE TO v WITH (snapshot = false, progress = true)")
        .await
        .unwrap();
    let told = lines(&client, "FETCH 1 FROM c WITH (timeout = '20s')").await;
    assert!(told[0].ends_with("|t|NULL|NULL"), "{told:?}");
    insert_by_another(&served).await;
    let mut fetched = Vec::new();
    while fetched.is_empty() {
        fetched = lines(&client, "FETCH 1 FROM c WITH (timeout = '20s')").await;
        fetched.retain(|row| row.ends_with("|f|1|z"));
    }
    let running = "SELECT count(*) FROM hw.queries WHERE kind = 'subscription'";
    assert_eq!(lines(&client, running).await, ["2"]);
    client.simple_query("COMMIT").await.unwrap();
    connection.abort();
    let gone = async {
        while lines(&client, running).await != ["0"] {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(PATIENCE, gone).await.unwrap();
    served.end().await;
}

async fn insert_by_another(served: &Served) {
    let writer = served.connect().await;
    writer
        .simple_query("INSERT INTO t VALUES (3, 'z')")
        .await
        .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_subscribed_to_is_refused() {
    let served = Served::start().await;
    let client = served.connect().await;
    client
        .simple_query("CREATE TABLE t (a INT PRIMARY KEY)")
        .await
        .unwrap();

    for (sql, code) in [
        ("SUBSCRIBE nothing", "42P01"),
        (
            "COPY (SUBSCRIBE (SELECT random() AS x FROM t)) TO STDOUT",
            "0A000",
        ),
        ("SUBSCRIBE (SELECT nothing FROM t)", "42703"),
        ("SUBSCRIBE t WITH (nothing = 1)", "22023"),
        ("SUBSCRIBE t WITH (progress = 'perhaps')", "22023"),
    ] {
        let error = client.simple_query(sql).await.unwrap_err();
        assert_eq!(told(&error).0, code, "{sql}");
    }
    served.end().await;
}
