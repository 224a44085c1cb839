//! COPY both ways.

use bytes::Bytes;
use futures::{SinkExt as _, TryStreamExt as _};
use tokio_postgres::Client;

use super::{Served, lines, told};

async fn copied_out(client: &Client, sql: &str) -> String {
    let stream = client
        .copy_out(sql)
        .await
        .unwrap_or_else(|error| panic!("{sql}: {error:?}"));
    let pieces: Vec<Bytes> = stream.try_collect().await.unwrap();
    String::from_utf8(pieces.concat()).unwrap()
}

async fn copy_in(client: &Client, sql: &str, pieces: &[&str]) -> Result<u64, tokio_postgres::Error> {
    let sink = client.copy_in::<_, Bytes>(sql).await?;
    futures::pin_mut!(sink);
    for piece in pieces {
        sink.send(Bytes::copy_from_slice(piece.as_bytes())).await?;
    }
    sink.finish().await
}

const TABLE: &str = "CREATE TABLE t (a INT PRIMARY KEY, b VARCHAR, c NUMERIC(6, 2), d TIMESTAMP, e INT[])";

#[tokio::test(flavor = "multi_thread")]
async fn rows_go_out_as_text_and_as_csv() {
    let served = Served::start().await;
    let client = served.connect().await;
    client.simple_query(TABLE).await.unwrap();
    client
        .simple_query(
            "INSERT INTO t VALUES (1, E'tab\\tand \\\\ back', 1.5, '2024-01-02 03:04:05', ARRAY[1, NULL]),
             (2, '', NULL, NULL, NULL), (3, 'comma, \"quote\"', -0.25, NULL, NULL)",
        )
        .await
        .unwrap();

    let text = "1\ttab\\tand \\\\ back\t1.50\t2024-01-02 03:04:05\t{1,NULL}\n2\t\t\\N\t\\N\t\\N\n3\tcomma, \"quote\"\t-0.25\t\\N\t\\N\n";
    assert_eq!(
        copied_out(&client, "COPY (SELECT * FROM t ORDER BY a) TO STDOUT").await,
        text
    );
    let csv = "a,b,e\n1,tab\tand \\ back,\"{1,NULL}\"\n2,\"\",\n3,\"comma, \"\"quote\"\"\",\n";
    let sql = "COPY (SELECT a, b, e FROM t ORDER BY a) TO STDOUT WITH (FORMAT csv, HEADER true)";
    assert_eq!(copied_out(&client, sql).await, csv);
    let sql = "COPY (SELECT a, c FROM t ORDER BY a) TO STDOUT WITH (DELIMITER '|', NULL 'none')";
    assert_eq!(copied_out(&client, sql).await, "1|1.50\n2|none\n3|-0.25\n");
    let one = copied_out(&client, "COPY t (a) TO STDOUT").await;
    assert_eq!(one.lines().count(), 3);
    served.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_come_in_as_text_and_as_csv_and_views_show_them() {
    let served = Served::start().await;
    let client = served.connect().await;
    client.simple_query(TABLE).await.unwrap();
    client
        .simple_query("CREATE MATERIALIZED VIEW v AS SELECT count(*) AS n, sum(c) AS c FROM t")
        .await
        .unwrap();

    let pieces = ["1\tx\\ty\t1.5\t2024-01-02\t{1,2}\n2\t\\N\t", "\\N\t\\N\t\\N\n"];
    assert_eq!(copy_in(&client, "COPY t FROM STDIN", &pieces).await.unwrap(), 2);
    let csv = ["c,a,b\n2.25,3,\"two\nlines\"\n,4,\n"];
    let sql = "COPY t (c, a, b) FROM STDIN WITH (FORMAT csv, HEADER)";
    assert_eq!(copy_in(&client, sql, &csv).await.unwrap(), 2);
    let expected = [
        "1|x\ty|1.50|2024-01-02 00:00:00|{1,2}",
        "2|NULL|NULL|NULL|NULL",
        "3|two\nlines|2.25|NULL|NULL",
        "4|NULL|NULL|NULL|NULL",
    ];
    assert_eq!(lines(&client, "SELECT * FROM t ORDER BY a").await, expected);
    assert_eq!(lines(&client, "SELECT * FROM v").await, ["4|3.75"]);
    assert_eq!(copy_in(&client, "COPY t FROM STDIN", &[]).await.unwrap(), 0);
    served.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_go_out_and_come_in_as_binary() {
    let served = Served::start().await;
    let client = served.connect().await;
    client.simple_query(TABLE).await.unwrap();
    client
        .simple_query(&TABLE.replace("TABLE t", "TABLE u"))
        .await
        .unwrap();
    client
        .simple_query("INSERT INTO t VALUES (1, 'x', -1.5, '2024-01-02 03:04:05', ARRAY[1, NULL]), (2, NULL, NULL, NULL, NULL)")
        .await
        .unwrap();

    let sql = "COPY (SELECT a, b FROM t ORDER BY a) TO STDOUT (FORMAT binary)";
    let pieces: Vec<Bytes> = client.copy_out(sql).await.unwrap().try_collect().await.unwrap();
    // What PostgreSQL writes for these rows.
    let expected = b"PGCOPY\n\xff\r\n\0\0\0\0\0\0\0\0\0\0\x02\0\0\0\x04\0\0\0\x01\0\0\0\x01x\0\x02\0\0\0\x04\0\0\0\x02\xff\xff\xff\xff\xff\xff";
    assert_eq!(pieces.concat(), expected);

    let all: Vec<Bytes> = client
        .copy_out("COPY t TO STDOUT BINARY")
        .await
        .unwrap()
        .try_collect()
        .await
        .unwrap();
    let sink = client
        .copy_in::<_, Bytes>("COPY u FROM STDIN (FORMAT 'binary')")
        .await
        .unwrap();
    futures::pin_mut!(sink);
    sink.send(Bytes::from(all.concat())).await.unwrap();
    assert_eq!(sink.finish().await.unwrap(), 2);
    let expected = ["1|x|-1.50|2024-01-02 03:04:05|{1,NULL}", "2|NULL|NULL|NULL|NULL"];
    assert_eq!(lines(&client, "SELECT * FROM u ORDER BY a").await, expected);

    let error = copy_in(&client, "COPY u FROM STDIN (FORMAT binary)", &["1\tx\n"])
        .await
        .unwrap_err();
    assert_eq!(told(&error).0, "22P04");
    assert_eq!(lines(&client, "SELECT count(*) FROM u").await, ["2"]);
    served.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn options_of_csv_are_those_of_postgresql() {
    let served = Served::start().await;
    let client = served.connect().await;
    client
        .simple_query("CREATE TABLE o (a INT PRIMARY KEY, b VARCHAR, c VARCHAR)")
        .await
        .unwrap();
    let csv = "(FORMAT csv, HEADER match, NULL '-', QUOTE '~', ESCAPE '!', DELIMITER ';', ENCODING 'UTF8', FORCE_NOT_NULL (b), FORCE_NULL (c))";
    let rows = ["a;b;c\n1;-;~-~\n2;~x!~y~;z\n"];
    assert_eq!(
        copy_in(&client, &format!("COPY o FROM STDIN {csv}"), &rows)
            .await
            .unwrap(),
        2
    );
    assert_eq!(
        lines(&client, "SELECT * FROM o ORDER BY a").await,
        ["1|-|NULL", "2|x~y|z"]
    );

    let error = copy_in(&client, "COPY o (a, c) FROM STDIN (HEADER match)", &["a\tb\n"])
        .await
        .unwrap_err();
    assert_eq!(told(&error).0, "22P04");
    assert!(
        error
            .as_db_error()
            .unwrap()
            .message()
            .contains("got \"b\", expected \"c\"")
    );

    let query = "COPY (SELECT * FROM o ORDER BY a) TO STDOUT";
    let out = copied_out(&client, &format!("{query} (FORMAT csv, FORCE_QUOTE (b))")).await;
    assert_eq!(out, "1,\"-\",\n2,\"x~y\",z\n");
    let out = copied_out(&client, &format!("{query} WITH CSV HEADER FORCE QUOTE *")).await;
    assert_eq!(out, "a,b,c\n\"1\",\"-\",\n\"2\",\"x~y\",\"z\"\n");
    let out = copied_out(&client, &format!("{query} (HEADER 1)")).await;
    assert_eq!(out, "a\tb\tc\n1\t-\t\\N\n2\tx~y\tz\n");
    served.end().await;
}

/// SQLSTATE and CONTEXT of a COPY that fails.
fn placed(error: &tokio_postgres::Error) -> (String, Option<String>) {
    let told = error.as_db_error().unwrap();
    (told.code().code().to_owned(), told.where_().map(str::to_owned))
}

/// More lines than a batch has, of which two have a wrong value.
fn many_lines() -> String {
    let line = |n| match n {
        68_000 => format!("{n}\tx\tno number\n"),
        68_001 => "no key\tx\t1\n".to_owned(),
        n => format!("{n}\tx\t1\n"),
    };
    (0..70_000).map(line).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn errors_of_values_tell_where_they_are() {
    let served = Served::start().await;
    let client = served.connect().await;
    client.simple_query(TABLE).await.unwrap();
    let many = many_lines();
    let long = format!("{}\n", "x".repeat(150));
    let cut = format!("COPY t, line 1, column a: \"{}...\"", "x".repeat(100));
    for (sql, rows, state, context) in [
        (
            "COPY t (a, b, c) FROM STDIN",
            "1\ta\t1\nx\tb\t1\n",
            "22P02",
            "COPY t, line 2, column a: \"x\"",
        ),
        (
            "COPY t (a, b, c) FROM STDIN",
            "1\ta\t1\n2\tb\t123456\ny\tb\t1\n",
            "22003",
            "COPY t, line 2, column c: \"123456\"",
        ),
        (
            "COPY t (a, b, c) FROM STDIN",
            "1\ta\t1\n\\N\tb\t1\n",
            "23502",
            "COPY t, line 2: \"\\N\tb\t1\"",
        ),
        (
            "COPY t (a, b, c) FROM STDIN",
            "1\ta\n",
            "22P04",
            "COPY t, line 1: \"1\ta\"",
        ),
        (
            "COPY t (a, b, c) FROM STDIN (FORMAT csv, HEADER)",
            "a,b,c\n1,\"x\ny\",1\n2,z,w\n",
            "22P02",
            "COPY t, line 4, column c: \"w\"",
        ),
        (
            "COPY t (a, b, c) FROM STDIN",
            &many,
            "22P02",
            "COPY t, line 68001, column c: \"no number\"",
        ),
        ("COPY t (a) FROM STDIN", &long, "22P02", &cut),
        (
            "COPY t (a) FROM STDIN (FORMAT binary)",
            "PGCOPY\n\u{0}",
            "22P04",
            "",
        ),
    ] {
        let error = copy_in(&client, sql, &[rows]).await.unwrap_err();
        let context = (!context.is_empty()).then(|| context.to_owned());
        assert_eq!(placed(&error), (state.to_owned(), context), "{sql}");
    }

    let rows: &[u8] = b"PGCOPY\n\xff\r\n\0\0\0\0\0\0\0\0\0\0\x01\0\0\0\x04\0\0\0\x01\0\x01\0\0\0\x02\0\0";
    let sink = client
        .copy_in::<_, Bytes>("COPY t (a) FROM STDIN BINARY")
        .await
        .unwrap();
    futures::pin_mut!(sink);
    sink.send(Bytes::from_static(rows)).await.unwrap();
    let error = sink.finish().await.unwrap_err();
    let context = "COPY t, line 2, column a".to_owned();
    assert_eq!(placed(&error), ("22P03".to_owned(), Some(context)));
    assert_eq!(lines(&client, "SELECT count(*) FROM t").await, ["0"]);
    served.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_option_of_copy_stands_once() {
    let served = Served::start().await;
    for options in [
        "FORMAT csv, FORMAT text",
        "FORMAT csv, HEADER, HEADER false",
        "DELIMITER '|', DELIMITER '|'",
        "NULL 'x', NULL 'y'",
        "FORMAT csv, QUOTE '~', QUOTE '~'",
        "FORMAT csv, ESCAPE '~', ESCAPE '~'",
        "FORMAT csv, FORCE_NULL (b), FORCE_NULL (c)",
        "FORMAT csv, FORCE_NOT_NULL (b), FORCE_NOT_NULL (b)",
        "ENCODING 'UTF8', ENCODING 'UTF8'",
    ] {
        let client = served.connect().await;
        let sql = format!("COPY t FROM STDIN ({options})");
        let error = client.copy_in::<_, Bytes>(&sql).await.map(drop).unwrap_err();
        let redundant = ("42601".to_owned(), "conflicting or redundant options".to_owned());
        assert_eq!(told(&error), redundant, "{options}");
    }
    served.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_copy_that_fails_inserts_nothing() {
    let served = Served::start().await;
    let client = served.connect().await;
    client.simple_query(TABLE).await.unwrap();

    for (rows, code) in [
        ("1\ta\t1\t\\N\t\\N\n2\n", "22P04"),
        ("1\ta\t1\t\\N\t\\N\nx\tb\t1\t\\N\t\\N\n", "22P02"),
        ("1\ta\t1\t\\N\t\\N\n\\N\tb\t1\t\\N\t\\N\n", "23502"),
    ] {
        let error = copy_in(&client, "COPY t FROM STDIN", &[rows]).await.unwrap_err();
        assert_eq!(told(&error).0, code, "{rows}");
        assert_eq!(lines(&client, "SELECT count(*) FROM t").await, ["0"], "{rows}");
    }
    let sink = client.copy_in::<_, Bytes>("COPY t FROM STDIN").await.unwrap();
    {
        futures::pin_mut!(sink);
        sink.send(Bytes::from_static(b"1\ta\t1\t\\N\t\\N\n"))
            .await
            .unwrap();
        // It is dropped without an end, which gives the COPY up.
    }
    assert_eq!(lines(&client, "SELECT count(*) FROM t").await, ["0"]);
    for (sql, code) in [
        ("COPY t FROM STDIN (FORMAT binary, NULL 'x')", "42601"),
        ("COPY t FROM STDIN (FREEZE)", "0A000"),
        ("COPY t FROM STDIN (FORMAT csv, FORCE_QUOTE *)", "0A000"),
        ("COPY t FROM STDIN (FORMAT csv, FORCE_NULL (x))", "42P10"),
        ("COPY t FROM STDIN (FORCE_NULL (b))", "0A000"),
        ("COPY t FROM STDIN (FORMAT csv, FORMAT csv)", "42601"),
        ("COPY t FROM STDIN (ENCODING 'latin1')", "0A000"),
        ("COPY t (a, nothing) FROM STDIN", "42703"),
        ("COPY nothing FROM STDIN", "42P01"),
        ("COPY t FROM '/tmp/x'", "0A000"),
    ] {
        // The driver sends one Sync too many after a COPY that does not begin, and takes its answer for that of the next statement.
        let client = served.connect().await;
        let error = client.copy_in::<_, Bytes>(sql).await.map(drop).unwrap_err();
        assert_eq!(told(&error).0, code, "{sql}");
    }
    served.end().await;
}
