//! The real psql.

use std::io::Read as _;
use std::process::Command;

use super::Served;
use super::introspection::CATALOG;

#[tokio::test(flavor = "multi_thread")]
async fn psql_runs_statements_and_shows_errors() {
    let served = Served::start().await;

    let (out, err) = served.psql(&["-A", "-t", "-c", "select 1"]).await;
    assert_eq!((out.as_str(), err.as_str()), ("1\n", ""));
    let script = "CREATE TABLE t (a INT PRIMARY KEY, b VARCHAR);
        INSERT INTO t VALUES (1, 'one'), (2, NULL);
        UPDATE t SET b = 'two' WHERE a = 2;
        SELECT * FROM t ORDER BY a;
        DELETE FROM t;
        BEGIN; COMMIT;";
    let (out, err) = served.psql(&["-c", script]).await;
    let expected = "CREATE TABLE\nINSERT 0 2\nUPDATE 1\n a |  b  \n---+-----\n 1 | one\n 2 | two\n(2 rows)\n\nDELETE 2\nBEGIN\nCOMMIT\n";
    assert_eq!((out.as_str(), err.as_str()), (expected, ""));
    let (_, err) = served.psql(&["-c", "SELECT a,\n  nothing FROM t"]).await;
    assert!(
        err.contains("ERROR:  column \"nothing\" does not exist\nLINE 2:   nothing FROM t\n          ^"),
        "{err}"
    );
    let (_, err) = served
        .psql(&[
            "-c",
            "CREATE MATERIALIZED VIEW IF NOT EXISTS v AS SELECT a FROM t",
            "-c",
            "CREATE MATERIALIZED VIEW IF NOT EXISTS v AS SELECT a FROM t",
        ])
        .await;
    assert!(err.contains("NOTICE:"), "{err}");
    served.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_time_zone_that_is_not_there_is_told_and_keeps_nobody_out() {
    let served = Served::start().await;
    let mut psql = served.psql_command();
    psql.env("PGTZ", "Europe/Berlin")
        .args(["-A", "-t", "-c", "SHOW timezone"]);
    let output = tokio::task::spawn_blocking(move || psql.output().unwrap())
        .await
        .unwrap();
    assert_eq!(String::from_utf8(output.stdout).unwrap(), "UTC\n");
    let told = String::from_utf8(output.stderr).unwrap();
    assert!(
        told.contains("time zone \"Europe/Berlin\" is not there"),
        "{told}"
    );
    served.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn psql_copies_both_ways() {
    let served = Served::start().await;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("rows.csv");
    std::fs::write(&file, "a,b\n1,\"x, y\"\n2,\n").unwrap();

    let copy_in = format!("\\copy t from '{}' csv header", file.display());
    let copy_out = "\\copy (select * from t order by a) to stdout (format csv, delimiter ';')";
    let (out, err) = served
        .psql(&[
            "-q",
            "-c",
            "CREATE TABLE t (a INT PRIMARY KEY, b VARCHAR)",
            "-c",
            &copy_in,
            "-c",
            copy_out,
        ])
        .await;
    assert_eq!((out.as_str(), err.as_str()), ("1;x, y\n2;\n", ""));
    served.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn psql_fetches_by_cursor_and_binds_parameters() {
    let served = Served::start().await;

    let (out, err) = served
        .psql(&[
            "-q",
            "-A",
            "-t",
            "-v",
            "FETCH_COUNT=2",
            "-c",
            "SELECT * FROM generate_series(1, 5) AS g",
        ])
        .await;
    assert_eq!((out.as_str(), err.as_str()), ("1\n2\n3\n4\n5\n", ""));
    served.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn ctrl_c_in_psql_ends_the_statement() {
    let served = Served::start().await;
    served
        .psql(&[
            "-c",
            "CREATE TABLE t (a INT PRIMARY KEY, b VARCHAR); INSERT INTO t VALUES (7, repeat('x', 100000))",
        ])
        .await;

    let mut psql = served.psql_command();
    psql.args(["-c", "COPY (SUBSCRIBE t) TO STDOUT"]);
    let ended = tokio::task::spawn_blocking(move || {
        let mut psql = psql.spawn().unwrap();
        // Its output says that the statement runs; psql holds some of it back.
        let mut out = psql.stdout.take().unwrap();
        let mut first = [0; 1];
        out.read_exact(&mut first).unwrap();
        let kill = Command::new("kill")
            .args(["-INT", &psql.id().to_string()])
            .status();
        assert!(kill.unwrap().success());
        // Somebody must go on reading, or psql would wait for us.
        std::io::copy(&mut out, &mut std::io::sink()).unwrap();
        let output = psql.wait_with_output().unwrap();
        String::from_utf8(output.stderr).unwrap()
    });
    let err = tokio::time::timeout(super::PATIENCE, ended)
        .await
        .unwrap()
        .unwrap();
    assert!(
        err.contains("ERROR:  canceling statement due to user request"),
        "{err}"
    );
    served.end().await;
}

/// Commands of psql, and lines that their answers have.
const DESCRIBED: &[(&str, &[&str])] = &[
    (
        "\\d",
        &[
            "public|big_orders|view|highwater",
            "public|clicks|foreign table|highwater",
            "public|into_totals|foreign table|highwater",
            "public|orders|table|highwater",
            "public|urls|materialized view|highwater",
        ],
    ),
    (
        "\\d orders",
        &[
            "id|bigint||not null|",
            "customer|character varying||not null|'nobody'",
            "total|numeric(12,2)|||",
            "tags|character varying[]|||",
            "placed|timestamp with time zone|||",
            "\"orders_pkey\" PRIMARY KEY, btree (id)",
            "\"orders_placed\" btree (placed DESC, customer)",
        ],
    ),
    (
        "\\d+ clicks",
        &["url|character varying||not null|", "Server: memory"],
    ),
    (
        "\\d+ big_orders",
        &["SELECT id, total FROM orders WHERE total > 100"],
    ),
    ("\\d urls", &["n|bigint|||"]),
    (
        "\\d orders_pkey",
        &["primary key, btree, for table \"public.orders\""],
    ),
    ("\\dt", &["public|orders|table|highwater"]),
    ("\\dv", &["public|big_orders|view|highwater"]),
    ("\\dm", &["public|urls|materialized view|highwater"]),
    (
        "\\di",
        &[
            "public|orders_pkey|index|highwater|orders",
            "public|orders_placed|index|highwater|orders",
        ],
    ),
    (
        "\\d orders_placed",
        &[
            "placed|timestamp with time zone|yes|placed",
            "btree, for table \"public.orders\"",
        ],
    ),
    (
        "\\di+ orders_pkey",
        &["public|orders_pkey|index|highwater|orders|permanent|btree|0 bytes|"],
    ),
    (
        "\\dt+ orders",
        &["public|orders|table|highwater|permanent|heap|0 bytes|"],
    ),
    ("\\l+", &["|pg_default|"]),
    ("\\df", &["public|with_tax|numeric|net numeric|func"]),
    ("\\dn", &["hw|highwater", "public|highwater"]),
    ("\\du", &["highwater|Superuser, Create role, Bypass RLS|{}"]),
    ("\\l", &["highwater|highwater|UTF8|C|C||libc|"]),
    ("\\dT", &[]),
    ("\\dT int4", &["pg_catalog|integer|"]),
    ("\\d+", &["public|clicks|foreign table|highwater|permanent||"]),
    ("\\des", &["memory|highwater|highwater"]),
    ("\\dp orders", &["public|orders|table|||"]),
    (
        "\\sv big_orders",
        &["CREATE OR REPLACE VIEW public.big_orders AS"],
    ),
    ("\\dE", &["public|clicks|foreign table|highwater"]),
    ("\\d hw.queries", &["name|character varying|||"]),
    (
        "\\doS +",
        &[
            "pg_catalog|+|date|integer|date|add",
            "pg_catalog|+||bigint|bigint|unary plus",
        ],
    ),
    (
        "\\dC",
        &[
            "bigint|integer|int4|in assignment",
            "json|jsonb|(with inout)|in assignment",
        ],
    ),
    ("\\dd", &["(0 rows)"]),
    ("\\dAc+", &["btree|integer||int4_ops|yes|integer_ops|highwater"]),
];

#[tokio::test(flavor = "multi_thread")]
async fn psql_describes_what_is_there() {
    let served = Served::start().await;
    served.database.execute(CATALOG).await.unwrap();

    for (command, lines) in DESCRIBED.iter().copied() {
        let (out, err) = served.psql(&["-A", "-c", command]).await;
        assert_eq!(err, "", "{command}");
        for line in lines {
            assert!(out.contains(line), "{command} has no {line}:\n{out}");
        }
    }
    let (_, err) = served.psql(&["-A", "-t", "-c", "\\d nothing"]).await;
    assert_eq!(err, "Did not find any relation named \"nothing\".\n");
    served.end().await;
}

/// Commands that describe, with letters that they take.
const COMMANDS: [(&str, &[&str]); 52] = [
    ("\\d", &["", "S", "+", "S+"]),
    ("\\da", &["", "S", "+"]),
    ("\\dA", &["", "+"]),
    ("\\dAc", &["", "+"]),
    ("\\dAf", &["", "+"]),
    ("\\dAo", &["", "+"]),
    ("\\dAp", &["", "+"]),
    ("\\db", &["", "+"]),
    ("\\dc", &["", "S", "+", "S+"]),
    ("\\dC", &["", "+"]),
    ("\\dconfig", &["", "+"]),
    ("\\dd", &["", "S"]),
    ("\\dD", &["", "S", "+", "S+"]),
    ("\\ddp", &[""]),
    ("\\dE", &["", "S", "+"]),
    ("\\des", &["", "+"]),
    ("\\det", &["", "+"]),
    ("\\deu", &["", "+"]),
    ("\\dew", &["", "+"]),
    ("\\df", &["", "S", "+", "a", "n", "p", "t", "w"]),
    ("\\dF", &["", "+"]),
    ("\\dFd", &["", "+"]),
    ("\\dFp", &["", "+"]),
    ("\\dFt", &["", "+"]),
    ("\\dg", &["", "S", "+"]),
    ("\\di", &["", "S", "+"]),
    ("\\dl", &["", "+"]),
    ("\\dL", &["", "S", "+"]),
    ("\\dm", &["", "S", "+"]),
    ("\\dn", &["", "S", "+"]),
    ("\\do", &["", "S", "+", "S+"]),
    ("\\dO", &["", "S", "+"]),
    ("\\dp", &["", "S"]),
    ("\\dP", &["", "+", "i", "t", "n", "in+"]),
    ("\\drds", &[""]),
    ("\\dRp", &["", "+"]),
    ("\\dRs", &["", "+"]),
    ("\\ds", &["", "S", "+"]),
    ("\\dt", &["", "S", "+"]),
    ("\\dT", &["", "S", "+", "S+"]),
    ("\\du", &["", "S", "+"]),
    ("\\dv", &["", "S", "+"]),
    ("\\dx", &["", "+"]),
    ("\\dX", &[""]),
    ("\\dy", &["", "+"]),
    ("\\dtvmsE", &["", "S+"]),
    ("\\l", &["", "+"]),
    ("\\lo_list", &[" "]),
    ("\\z", &[""]),
    ("\\do", &[" + int4 int4", "+ - date"]),
    ("\\dAo", &[" btree int4_ops"]),
    ("\\df", &[" with_tax numeric"]),
];

#[tokio::test(flavor = "multi_thread")]
async fn no_command_of_psql_that_describes_fails() {
    let served = Served::start().await;
    served.database.execute(CATALOG).await.unwrap();
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("described.sql");
    for (command, letters) in COMMANDS {
        let mut script = String::new();
        for letters in letters {
            // `\d *` would describe each relation of the system, each in some queries of its own.
            let patterns: &[&str] = match *letters {
                "" => &["", " orders", " public.b*", " int4"],
                arguments if arguments.contains(' ') => &[""],
                _ => &["", " o*"],
            };
            for pattern in patterns {
                script.push_str(&format!("{command}{letters}{pattern}\n"));
            }
        }
        std::fs::write(&file, &script).unwrap();
        let (_, err) = served.psql(&["-A", "-f", &file.display().to_string()]).await;
        // What psql itself has to say.
        let own = [
            "Did not find any",
            "too many dotted names",
            "cross-database references",
        ];
        let is_own = |line: &str| own.iter().any(|own| line.contains(own));
        let other: Vec<&str> = err.lines().filter(|line| !is_own(line)).collect();
        assert!(other.is_empty(), "{other:#?} of\n{script}");
    }
    served.end().await;
}
