//! What users read when a query is wrong: SQLSTATE, words and place; and constants in quotes.

use arrow::record_batch::RecordBatch;
use datafusion::prelude::SessionContext;

use super::*;

/// The error of a one-shot query, wherever it is found: planned, folded or run.
async fn told(text: &str) -> SqlError {
    match answer(text).await {
        Ok(rows) => panic!("{text} gives {rows:?}"),
        Err(error) => error,
    }
}

async fn answer(text: &str) -> Result<Vec<RecordBatch>, SqlError> {
    let query = parse_query(text)?;
    let planned = plan_select(&catalog(), &query, &|_: Option<&str>, _: &str| None)?;
    let frame = SessionContext::new().execute_logical_plan(planned.plan).await;
    let frame = frame.map_err(translate)?;
    frame.collect().await.map_err(translate)
}

/// The one value of a query, as text.
async fn value(text: &str) -> String {
    let rows = answer(text)
        .await
        .unwrap_or_else(|error| panic!("{text}: {error:?}"));
    arrow::util::display::array_value_to_string(rows[0].column(0), 0).unwrap()
}

/// A query, the state and the words of its error, and what stands at its position.
const WRONG: &[(&str, &str, &str, &str)] = &[
    (
        "SELECT nothing FROM totals",
        "42703",
        "column \"nothing\" does not exist",
        "nothing",
    ),
    (
        "SELECT 1 + true AS x",
        "42883",
        "operator does not exist: bigint + boolean",
        "true",
    ),
    (
        "SELECT sum('a')",
        "42883",
        "function sum(character varying) does not exist",
        "sum",
    ),
    (
        "SELECT length()",
        "42883",
        "function length() does not exist",
        "length",
    ),
    (
        "SELECT lenght('a')",
        "42883",
        "function lenght does not exist",
        "lenght",
    ),
    ("SELECT 1 / 0", "22012", "division by zero", ""),
    (
        "SELECT 'abc'::int",
        "22P02",
        "invalid input syntax for type integer: \"abc\"",
        "'abc'",
    ),
    (
        "SELECT CAST('99999999999' AS INT)",
        "22003",
        "value \"99999999999\" is out of range for type integer",
        "'99999999999'",
    ),
    (
        "SELECT DATE '2020-13-01'",
        "22008",
        "date/time field value out of range: \"2020-13-01\"",
        "'2020-13-01'",
    ),
    (
        "SELECT 'x'::timestamp",
        "22007",
        "invalid input syntax for type timestamp: \"x\"",
        "'x'",
    ),
    (
        "SELECT s::int FROM (VALUES ('abc')) t(s)",
        "22P02",
        "invalid input syntax for type integer: \"abc\"",
        "",
    ),
    (
        "SELECT n + 1 FROM (VALUES (9223372036854775807)) t(n)",
        "22003",
        "bigint out of range",
        "",
    ),
    ("SELECT 70000::smallint", "22003", "smallint out of range", ""),
    ("SELECT 1 LIMIT -1", "2201W", "LIMIT must not be negative", ""),
    (
        "SELECT 1 AS a ORDER BY 2",
        "42P10",
        "ORDER BY position 2 is not in select list",
        "",
    ),
    (
        "SELECT total FROM totals GROUP BY 3",
        "42P10",
        "GROUP BY position 3 is not in select list",
        "",
    ),
    (
        "SELECT count(*) FROM totals WHERE count(*) > 1",
        "42803",
        "aggregate functions are not allowed in WHERE",
        "",
    ),
    (
        "SELECT * FROM totals WHERE total",
        "42804",
        "a condition must be of type boolean, not of type numeric",
        "",
    ),
    (
        "SELECT (SELECT 1 AS n UNION ALL SELECT 2)",
        "21000",
        "more than one row returned by a subquery used as an expression",
        "",
    ),
    (
        "SELECT extract(nonsense FROM now())",
        "22023",
        "unit \"nonsense\" not recognized for type timestamp with time zone",
        "",
    ),
    (
        "SELECT regexp_replace('a', '(', 'b')",
        "2201B",
        "invalid regular expression: \"(\"",
        "",
    ),
    (
        "SELECT sqrt(-1)",
        "2201F",
        "cannot take square root of a negative number",
        "",
    ),
    (
        "SELECT a FROM (SELECT 1 AS a, 2 AS a) t",
        "42701",
        "column \"a\" specified more than once",
        "",
    ),
];

#[tokio::test]
async fn errors_have_postgresqls_states_and_words_and_a_place_where_there_is_one() {
    let mut wrong = Vec::new();
    for (text, state, message, place) in WRONG {
        let error = told(text).await;
        let at = error.position.map_or("", |position| &text[position..]);
        let is_there = at.starts_with(*place) && at.is_empty() == place.is_empty();
        if (error.state.code(), error.message.as_str()) != (*state, *message) || !is_there {
            wrong.push(format!(
                "{text}\n  {} {} at \"{at}\"",
                error.state.code(),
                error.message
            ));
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

#[tokio::test]
async fn intervals_are_read_as_postgresql_reads_them() {
    for (interval, seconds) in [
        ("INTERVAL '03:00:04.5'", "10804.500000"),
        ("INTERVAL '2 days 03:00:04'", "183604.000000"),
        ("INTERVAL '1:30' MINUTE TO SECOND", "90.000000"),
        ("INTERVAL '10' MINUTE", "600.000000"),
        ("- INTERVAL '1 day 02:00'", "-93600.000000"),
        ("'1 day 02:00'::interval", "93600.000000"),
        ("CAST(s AS INTERVAL)", "3723.000000"),
        ("INTERVAL 5 SECOND", "5.000000"),
    ] {
        let text = format!(
            "SELECT extract(epoch FROM TIMESTAMP '2020-01-10' + {interval}) - extract(epoch FROM TIMESTAMP '2020-01-10')
               FROM (VALUES ('01:02:03')) t(s)"
        );
        assert_eq!(value(&text).await, seconds, "{interval}");
    }
    assert_eq!(
        value("SELECT TIMESTAMP '2020-01-31' + INTERVAL '1-1' YEAR TO MONTH").await,
        "2021-02-28T00:00:00"
    );
    let text = "SELECT 1, INTERVAL '1 dya'";
    let error = told(text).await;
    assert_eq!(error.message, "invalid input syntax for type interval: \"1 dya\"");
    assert_eq!(
        (error.state.code(), &text[error.position.unwrap()..]),
        ("22007", "'1 dya'")
    );
}

#[tokio::test]
async fn bytea_is_read_in_both_formats_from_constants_and_columns() {
    for (bytea, hex) in [
        ("'\\xdeadBEEF'::bytea", "deadbeef"),
        ("BYTEA '\\x'", ""),
        ("'a\\001\\\\'::bytea", "61015c"),
        ("s::bytea", "00ff"),
        ("TRY_CAST('\\xz' AS BYTEA)", ""),
    ] {
        let text = format!("SELECT {bytea} FROM (VALUES ('\\x00ff')) t(s)");
        assert_eq!(value(&text).await, hex, "{bytea}");
    }
    let text = "SELECT '\\xabc'::bytea";
    let error = told(text).await;
    assert_eq!(error.message, "invalid hexadecimal data: odd number of digits");
    assert_eq!(error.position, Some(7));
    let plan = planned("SELECT channel::bytea AS b FROM bids");
    assert!(
        explain(&plan, false).contains("bytea(channel)"),
        "{}",
        explain(&plan, false)
    );
}

#[tokio::test]
async fn results_that_are_many_times_their_input_are_refused() {
    for call in [
        "repeat('a', 2000000000)",
        "repeat(s, 1000000000)",
        "lpad(s, 2000000000)",
        "rpad(s, 500000000, 'ä')",
        "replace(repeat('a', 10000), 'a', repeat('b', 100000))",
        "array_repeat(1, 1000000000)",
        "array_resize(ARRAY[1], 1000000000)",
        "range(0, 1000000000, 2)",
        "regexp_replace(repeat('a', 10000), 'a', repeat('b', 100000), 'g')",
        "array_to_string(array_repeat('a', 100000), repeat('b', 100000))",
    ] {
        let error = told(&format!("SELECT {call} FROM (VALUES ('a')) t(s)")).await;
        assert_eq!(
            (error.state.code(), error.message.as_str()),
            ("54000", "requested length too large"),
            "{call}"
        );
    }
    for (call, expected) in [
        ("length(repeat(s, 1000000))", "1000000"),
        ("lpad(s, 3, 'ä')", "ääa"),
        ("replace(s, 'a', 'bb')", "bb"),
        ("array_to_string(range(1, 6, 2), '-')", "1-3-5"),
        ("repeat(s, -1)", ""),
        ("regexp_replace(repeat('ab', 2), 'a', 'x', 'g')", "xbxb"),
        (
            "cardinality(range(DATE '2020-01-01', DATE '2020-01-04', INTERVAL '1 day'))",
            "3",
        ),
    ] {
        let text = format!("SELECT {call} FROM (VALUES ('a')) t(s)");
        assert_eq!(value(&text).await, expected, "{call}");
    }
    planned("SELECT repeat(channel, 10) AS r FROM bids");
}

#[tokio::test]
async fn averages_are_rounded_half_away_from_zero() {
    for (values, average) in [
        ("(1), (2), (2)", "1.6666666666666667"),
        ("(-1), (-2), (-2)", "-1.6666666666666667"),
        ("(1), (1), (2)", "1.3333333333333333"),
        (
            "(9223372036854775807), (9223372036854775807)",
            "9223372036854775807.0000000000000000",
        ),
    ] {
        let text = format!("SELECT avg(n) FROM (VALUES {values}) t(n)");
        assert_eq!(value(&text).await, average, "{values}");
    }
    let text = "SELECT avg(n) AS a FROM (VALUES ('a', 1), ('a', 2), ('a', 2), ('b', 1)) t(g, n) GROUP BY g HAVING avg(n) > 1.5";
    assert_eq!(value(text).await, "1.6666666666666667");
    assert_eq!(
        value("SELECT avg(DISTINCT n) FROM (VALUES (1), (2), (2), (2)) t(n)").await,
        "1.5000000000000000"
    );
}

/// Runs on a thread with the stack that threads have by default.
fn on_a_plain_thread<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    let thread = std::thread::Builder::new()
        .stack_size(2 << 20)
        .spawn(work)
        .unwrap();
    thread.join().unwrap()
}

#[test]
fn what_is_deep_or_long_is_answered_or_refused_and_overflows_no_stack() {
    let chain = |part: &str, between: &str, times: usize| vec![part; times].join(between);
    let with = |times: usize| {
        let next = |n: usize| format!("a{n} AS (SELECT n + 1 AS n FROM a{})", n - 1);
        let ctes: Vec<String> = (1..=times).map(next).collect();
        format!(
            "WITH a0 AS (SELECT 1 AS n), {} SELECT * FROM a{times}",
            ctes.join(", ")
        )
    };
    let doubled = |times: usize| {
        let next = |n: usize| format!("a{n} AS (SELECT x.n FROM a{0} x, a{0} y)", n - 1);
        let ctes: Vec<String> = (1..=times).map(next).collect();
        format!(
            "WITH a0 AS (SELECT 1 AS n), {} SELECT * FROM a{times}",
            ctes.join(", ")
        )
    };
    let joins = |times: usize| {
        let one = |n: usize| format!("(SELECT 1 AS n) t{n}");
        format!(
            "SELECT 1 FROM {}",
            (0..times).map(one).collect::<Vec<_>>().join(" CROSS JOIN ")
        )
    };
    let refused = [
        format!("SELECT {}", chain("1", "+", 50_000)),
        format!("SELECT {}1{}", "(".repeat(5000), ")".repeat(5000)),
        format!("SELECT 1 WHERE {}", chain("1 = 1", " OR ", 20_000)),
        format!("SELECT {}true", "NOT ".repeat(5000)),
        format!("SELECT 1{}", "::int".repeat(5000)),
        format!("SELECT {}1{}", "ARRAY[".repeat(500), "]".repeat(500)),
        chain("SELECT 1", " UNION ALL ", 5000),
        with(2000),
        doubled(40),
        joins(500),
    ];
    for text in refused {
        let error = on_a_plain_thread(move || {
            let outcome = parse_query(&text).and_then(|query| {
                plan_select(&catalog(), &query, &|_: Option<&str>, _: &str| None).map(drop)?;
                plan_view(&catalog(), &query, &[], ViewOptions::default()).map(drop)
            });
            (text[..40].to_owned(), outcome)
        });
        assert_eq!(
            error.1.map_err(|error| error.state),
            Err(SqlState::StatementTooComplex),
            "{}",
            error.0
        );
    }
    let numbers: Vec<String> = (0..20_000).map(|n| n.to_string()).collect();
    let answered = [
        format!("SELECT {}", chain("1", "+", 120)),
        with(60),
        joins(60),
        chain("SELECT 1", " UNION ALL ", 60),
        format!("SELECT 1 WHERE 5 IN ({})", numbers.join(", ")),
    ];
    for text in answered {
        on_a_plain_thread(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            let shown = text[..40].to_owned();
            let rows = runtime.block_on(answer(&text));
            assert!(rows.is_ok(), "{shown}: {rows:?}");
        });
    }
}
