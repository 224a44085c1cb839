//! Statements from text to catalog: what is read, what is refused and where, what is written back.

use std::sync::Arc;
use std::time::{Duration, Instant};

use arrow::datatypes::{DataType, Field, Schema, TimeUnit};
use highwater_sql::catalog::{Catalog, ColumnOrigin, NewName, Object, ObjectBody, ObjectId, ViewDef};
use highwater_sql::parse::{is_complete, parse};
use highwater_sql::plan::arrow_type;
use highwater_sql::resolve::{headers_type, resolve_sink, resolve_source};
use highwater_sql::show::{definition_of_source, masked};
use highwater_sql::statement::{
    CreateSource, Include, ObjectKind, Parsed, Show, SourceColumnKind, Statement, WithOptions,
};
use highwater_sql::{SqlError, SqlState};
use proptest::prelude::*;

const BIDS: &str = "CREATE SOURCE IF NOT EXISTS bids (
  auction BIGINT NOT NULL, channel VARCHAR, date_time TIMESTAMP, \"Extra\" DECIMAL(10, 2),
  day DATE AS date_time::date,
  hour INT GENERATED ALWAYS AS (extract(hour FROM date_time)) STORED,
  WATERMARK FOR date_time AS date_time - INTERVAL '4' SECOND
)
INCLUDE key AS k, INCLUDE partition INCLUDE offset AS o, INCLUDE timestamp AS kts, INCLUDE headers AS h,
INCLUDE header 'trace' VARCHAR AS trace
WITH (connector = 'kafka', topic = 'bids', properties.bootstrap.server = '${HOST}:9092', batch.size = 100, x.flag = true)
FORMAT PLAIN ENCODE JSON (timestamp.format = 'unix_ms')";

fn no_environment(_: &str) -> Option<String> {
    None
}

fn one(sql: &str) -> Parsed {
    let mut parsed = parse(sql).unwrap_or_else(|error| panic!("{sql}\n{error:?}"));
    assert_eq!(parsed.len(), 1, "{sql}");
    parsed.remove(0)
}

fn source(sql: &str) -> CreateSource {
    match one(sql).statement {
        Statement::CreateSource(source) => source,
        other => panic!("not a source: {other:?}"),
    }
}

/// The error of `sql`, with the text that its position points at.
fn refused(sql: &str) -> (SqlError, String) {
    let error = parse(sql).expect_err(sql);
    let position = error.position.unwrap_or_else(|| panic!("no position: {error:?}"));
    let at: String = sql[position..].chars().take(12).collect();
    (error, at)
}

fn text<'a>(options: &'a WithOptions, name: &str) -> Option<&'a str> {
    options.get(name).map(|value| value.text.as_str())
}

mod statements {
    use super::*;

    #[test]
    fn a_source_has_all_its_clauses() {
        let source = source(BIDS);

        assert!(source.if_not_exists && !source.wants_columns());
        let names: Vec<&str> = source.columns.iter().map(|column| column.name.as_str()).collect();
        let expected = [
            "auction",
            "channel",
            "date_time",
            "Extra",
            "day",
            "hour",
            "k",
            "_partition",
            "o",
            "kts",
            "h",
            "trace",
        ];
        assert_eq!(names, expected);
        assert!(source.columns[0].not_null && !source.columns[1].not_null);
        for column in source.columns.iter().filter(|column| column.name != "_partition") {
            assert!(
                BIDS[column.position..]
                    .trim_start_matches('"')
                    .starts_with(&column.name),
                "{column:?}"
            );
        }
        assert!(matches!(&source.columns[5].kind, SourceColumnKind::Generated(_)));
        assert!(
            matches!(&source.columns[11].kind, SourceColumnKind::Include(Include::Header(name)) if name == "trace")
        );
        let watermark = source.watermark.expect("the clause is there");
        assert_eq!(watermark.column, "date_time");
        assert_eq!(
            watermark.expression.to_string(),
            "date_time - INTERVAL '4' SECOND"
        );
        assert_eq!(
            text(&source.with, "properties.bootstrap.server"),
            Some("${HOST}:9092")
        );
        assert_eq!(text(&source.with, "batch.size"), Some("100"));
        assert_eq!(text(&source.with, "x.flag"), Some("true"));
        let topic = source.with["topic"].position;
        assert!(BIDS[topic..].starts_with("topic = 'bids'"));
        assert_eq!(
            (source.format.as_str(), source.encode.as_deref()),
            ("plain", Some("json"))
        );
        assert_eq!(text(&source.encode_options, "timestamp.format"), Some("unix_ms"));
    }

    #[test]
    fn flink_and_laminar_spellings_mean_the_same_source() {
        let ours = source(
            "CREATE SOURCE s (a INT, o BIGINT METADATA FROM 'offset') WITH (connector = 'kafka', topic = 't',
             properties.bootstrap.server = 'h:1') FORMAT PLAIN ENCODE JSON",
        );
        let flink = source(
            "CREATE SOURCE s (`x` INT) WITH ('connector' = 'kafka')"
                .replace("`x`", "a")
                .as_str(),
        );
        assert_eq!(flink.columns[0].name, "a");
        let flink = source(
            "CREATE SOURCE s (a INT, o BIGINT METADATA FROM 'offset' VIRTUAL) WITH ('connector' = 'kafka',
             'topic' = 't', 'properties.bootstrap.servers' = 'h:1', 'scan.startup.mode' = 'earliest-offset',
             'format' = 'json')",
        );
        let laminar = source(
            "CREATE SOURCE s (a INT, o BIGINT METADATA FROM 'offset')
             FROM KAFKA (brokers = 'h:1', topic = 't', format = 'json')",
        );

        for other in [&flink, &laminar] {
            assert_eq!(other.encode, ours.encode);
            assert_eq!(text(&other.with, "connector"), Some("kafka"));
            assert_eq!(text(&other.with, "format"), None);
            assert!(matches!(
                other.columns[1].kind,
                SourceColumnKind::Include(Include::Offset)
            ));
        }
        assert_eq!(text(&flink.with, "scan.startup.mode"), Some("earliest"));
        assert_eq!(text(&laminar.with, "properties.bootstrap.server"), Some("h:1"));
    }

    #[test]
    fn a_source_without_fields_wants_its_columns_found() {
        let cases = [
            "CREATE SOURCE s WITH (connector = 'kafka') FORMAT PLAIN ENCODE JSON",
            "CREATE SOURCE s (*) WITH (connector = 'kafka')",
            "CREATE SOURCE s (*, WATERMARK FOR ts AS ts) WITH (connector = 'kafka')",
            "CREATE SOURCE s (WATERMARK FOR ts AS ts, d DATE AS ts::date) INCLUDE key WITH (connector = 'kafka')",
        ];
        for sql in cases {
            assert!(source(sql).wants_columns(), "{sql}");
        }
        let (error, at) = refused("CREATE SOURCE s (*, a INT) WITH (connector = 'kafka')");
        assert_eq!(
            (error.state, at.as_str()),
            (SqlState::FeatureNotSupported, "a INT) WITH ")
        );
    }

    #[test]
    fn emit_on_window_close_is_cut_from_the_query() {
        let sql = "CREATE MATERIALIZED VIEW IF NOT EXISTS public.mv (w, n) AS SELECT window_start, count(*)
                   FROM TUMBLE(bids, date_time, INTERVAL '10' SECOND) t GROUP BY 1 EMIT ON WINDOW CLOSE";
        let Statement::CreateMaterializedView(view) = one(sql).statement else {
            panic!("not a view")
        };

        assert_eq!(
            (view.name.as_str(), view.emit_on_window_close, view.if_not_exists),
            ("mv", true, true)
        );
        assert_eq!(view.columns, ["w", "n"]);
        assert_eq!(
            view.query.to_string(),
            "SELECT window_start, count(*) FROM TUMBLE(bids, date_time, INTERVAL '10' SECOND) t GROUP BY 1"
        );
    }

    #[test]
    fn flink_window_functions_become_ours_and_keep_their_places() {
        let cases = [
            (
                "SELECT * FROM TABLE(TUMBLE(TABLE bids, DESCRIPTOR(ts), INTERVAL '10' SECONDS)) w WHERE x",
                "SELECT * FROM TUMBLE(bids, ts, INTERVAL '10' SECOND) w WHERE x",
            ),
            (
                "SELECT * FROM TABLE ( HOP ( TABLE bids, DESCRIPTOR(ts), INTERVAL '1' MINUTES, INTERVAL '5' MINUTES ) )",
                "SELECT * FROM HOP(bids, ts, INTERVAL '1' MINUTE, INTERVAL '5' MINUTE)",
            ),
            (
                "SELECT (ts) FROM HOP(bids, ts, f(a), b)",
                "SELECT (ts) FROM HOP(bids, ts, f(a), b)",
            ),
        ];
        for (sql, expected) in cases {
            let Statement::Query(query) = one(sql).statement else {
                panic!("{sql}")
            };
            assert_eq!(query.to_string(), expected);
        }
        let (error, at) = refused(
            "SELECT * FROM TABLE(TUMBLE(TABLE bids, DESCRIPTOR(ts), INTERVAL '1' SECONDS)) WHERE a 7",
        );
        assert_eq!((error.state, at.as_str()), (SqlState::SyntaxError, "7"));
    }

    #[test]
    fn a_sink_reads_a_relation_or_a_query() {
        let sql = "CREATE SINK s FROM \"Mv\" WITH (connector = 'kafka', topic = 'out', primary_key = 'a') \
                   FORMAT UPSERT ENCODE JSON";
        let Statement::CreateSink(sink) = one(sql).statement else {
            panic!("not a sink")
        };
        assert_eq!(sink.from.as_deref(), Some("Mv"));
        assert_eq!(sink.query.to_string(), "SELECT * FROM \"Mv\"");
        assert_eq!(
            (sink.format.as_deref(), sink.encode.as_deref()),
            (Some("upsert"), Some("json"))
        );

        let sql = "CREATE SINK s AS WITH c AS (SELECT 1) SELECT * FROM c WITH (connector = 'blackhole')";
        let Statement::CreateSink(sink) = one(sql).statement else {
            panic!("not a sink")
        };
        assert_eq!(sink.query.to_string(), "WITH c AS (SELECT 1) SELECT * FROM c");
        assert_eq!((sink.from, sink.format), (None, None));

        let sql = "CREATE SINK s AS SELECT * FROM mv EMIT ON WINDOW CLOSE WITH (connector = 'kafka') FORMAT PLAIN ENCODE JSON";
        let Statement::CreateSink(sink) = one(sql).statement else {
            panic!("not a sink")
        };
        assert!(sink.emit_on_window_close);
    }

    #[test]
    fn show_statements_say_what_is_shown() {
        let cases = [
            ("SHOW SOURCES", Show::Objects(ObjectKind::Source)),
            (
                "show materialized views",
                Show::Objects(ObjectKind::MaterializedView),
            ),
            ("SHOW TABLES", Show::Tables),
            ("SHOW LANES", Show::Lanes(None)),
            ("SHOW LANES FROM bids", Show::Lanes(Some("bids".into()))),
            ("SHOW WATERMARKS", Show::Watermarks),
            ("SHOW JOBS", Show::System("queries")),
            ("SHOW QUERIES", Show::System("queries")),
            ("SHOW OPERATORS", Show::System("operators")),
            ("SHOW ALL", Show::Settings),
            ("SHOW OPTIONS", Show::Options(None)),
            ("SHOW OPTIONS FOR kafka", Show::Options(Some("kafka".into()))),
            (
                "SHOW CREATE mv",
                Show::Create {
                    kind: None,
                    name: "mv".into(),
                    position: 12,
                },
            ),
            (
                "SHOW CREATE MATERIALIZED VIEW mv",
                Show::Create {
                    kind: Some(ObjectKind::MaterializedView),
                    name: "mv".into(),
                    position: 30,
                },
            ),
            ("SHOW server_version", Show::Setting("server_version".into())),
            ("SHOW TimeZone", Show::Setting("timezone".into())),
            (
                "SHOW TRANSACTION ISOLATION LEVEL",
                Show::Setting("transaction_isolation".into()),
            ),
        ];
        for (sql, expected) in cases {
            assert!(
                matches!(one(sql).statement, Statement::Show(show) if show == expected),
                "{sql}"
            );
        }
        for (sql, meant) in [
            ("SHOW SOURCE", "SHOW SOURCES"),
            ("SHOW QUERYES", "SHOW QUERIES"),
            ("SHOW OPTION", "SHOW OPTIONS"),
        ] {
            let hint = refused(sql).0.hint;
            assert_eq!(hint, Some(format!("Did you mean {meant}?")));
        }
    }

    #[test]
    fn commands_are_read() {
        let set = |sql: &str| match one(sql).statement {
            Statement::Set { name, value } => (name, value),
            other => panic!("{sql}: {other:?}"),
        };
        assert_eq!(set("SET a.b = 'X y'"), ("a.b".into(), Some("X y".into())));
        assert_eq!(
            set("SET SESSION lane_threads TO -4"),
            ("lane_threads".into(), Some("-4".into()))
        );
        assert_eq!(set("SET x = DEFAULT"), ("x".into(), None));
        assert_eq!(
            set("SET TIME ZONE 'UTC'"),
            ("timezone".into(), Some("UTC".into()))
        );
        assert_eq!(set("RESET X"), ("x".into(), None));
        assert!(matches!(one("CHECKPOINT").statement, Statement::Checkpoint));
        assert!(matches!(one("DESC bids").statement, Statement::Describe(name) if name == "bids"));
        assert!(matches!(one("DESCRIBE source").statement, Statement::Describe(name) if name == "source"));
        assert!(matches!(one("DESCRIBE SOURCE bids").statement, Statement::Describe(name) if name == "bids"));
        assert!(matches!(one("ALTER SINK s RESUME").statement,
            Statement::Resume { kind: ObjectKind::Sink, name } if name == "s"));
        for sql in [
            "EXPLAIN VERBOSE SELECT 1",
            "EXPLAIN (VERBOSE) SELECT 1",
            "EXPLAIN (VERBOSE true) SELECT 1",
        ] {
            assert!(
                matches!(one(sql).statement, Statement::Explain { verbose: true, .. }),
                "{sql}"
            );
        }
        assert!(
            matches!(one("EXPLAIN CREATE MATERIALIZED VIEW v AS SELECT 1").statement,
            Statement::Explain { verbose: false, statement } if matches!(*statement, Statement::CreateMaterializedView(_)))
        );
        assert!(matches!(one("SUBSCRIBE TO mv WITH (snapshot = true)").statement,
            Statement::Subscribe(it) if it.relation.as_deref() == Some("mv") && text(&it.with, "snapshot") == Some("true")));
        assert!(
            matches!(one("SUBSCRIBE (SELECT a FROM mv)").statement, Statement::Subscribe(it) if it.relation.is_none())
        );
        for sql in [
            "SELECT 1",
            "VALUES (1), (2)",
            "(SELECT 1) UNION ALL SELECT 2",
            "WITH a AS (SELECT 1) TABLE a",
            "TABLE t",
        ] {
            assert!(matches!(one(sql).statement, Statement::Query(_)), "{sql}");
        }
        let Statement::Drop(drop) = one("DROP MATERIALIZED VIEW IF EXISTS a, \"B\" CASCADE").statement else {
            panic!("drop")
        };
        assert!(drop.if_exists && drop.cascade && drop.kind == ObjectKind::MaterializedView);
        assert_eq!(drop.names, [("a".to_owned(), 33), ("B".to_owned(), 36)]);
    }
}

mod scripts {
    use super::*;

    #[test]
    fn a_script_is_cut_at_semicolons_outside_of_quotes_and_comments() {
        let sql = ";; -- a; b\nSELECT ';' AS \"a;b\" /* ; /* ; */ */ ;\n SELECT $q$;$q$;;SELECT 3 -- ;";
        let parsed = parse(sql).expect("a good script");

        let texts: Vec<&str> = parsed.iter().map(|one| one.text.as_str()).collect();
        assert_eq!(texts, ["SELECT ';' AS \"a;b\"", "SELECT $q$;$q$", "SELECT 3"]);
        for one in &parsed {
            assert!(sql[one.offset..].starts_with(&one.text));
        }
        assert!(parse(" -- nothing\n").expect("an empty script").is_empty());
    }

    #[test]
    fn a_shell_reads_on_until_the_statement_is_complete() {
        for sql in [
            "SELECT 1;",
            "SELECT ';';",
            "SELECT 1; -- done",
            "a bad one;",
            "SELECT (1);\n",
            "SELECT 1)) ;",
        ] {
            assert!(is_complete(sql), "{sql}");
        }
        let open = [
            "",
            "  -- x;",
            "SELECT 1",
            "SELECT ';",
            "SELECT \";",
            "SELECT (1;",
            "/* ; ",
            "SELECT $$;",
            "SELECT 1; SELECT",
            "SELECT $a$ ; $b$;",
            "SELECT 'it''s;",
        ];
        for sql in open {
            assert!(!is_complete(sql), "{sql}");
        }
    }

    #[test]
    fn places_count_bytes_from_the_start_of_the_script() {
        let sql = "SELECT 'ä€😀';\r\n\tSELECT 'é', FROM FROM;";
        let error = parse(sql).expect_err("FROM is not a relation");
        assert_eq!(&sql[error.position.expect("a place")..], "FROM;", "{error:?}");

        let sql = "SELECT 1;\n\nSELECT 'ä' +";
        let error = parse(sql).expect_err("no operand");
        assert_eq!(error.position, Some(sql.len()));
        assert_eq!(error.message, "syntax error at end of input");
    }

    #[test]
    fn open_quotes_are_named_at_their_start() {
        let cases = [
            ("SELECT 1; SELECT 'abc", "'abc", "unterminated quoted string"),
            ("SELECT \"abc", "\"abc", "unterminated quoted identifier"),
            ("SELECT /* abc", "/* abc", "unterminated /* comment"),
            ("SELECT $a$ abc", "$a$ abc", "unterminated dollar-quoted string"),
            ("SELECT E'abc", "E'abc", "unterminated quoted string"),
        ];
        for (sql, at, message) in cases {
            let error = parse(sql).expect_err(sql);
            assert_eq!(
                (error.message.as_str(), &sql[error.position.expect("a place")..]),
                (message, at)
            );
        }
    }
}

mod refusals {
    use super::*;

    #[test]
    fn a_misspelt_start_has_a_suggestion() {
        for (sql, meant) in [
            ("SELCT 1", "SELECT"),
            ("craete source x", "CREATE"),
            ("INSRT INTO t", "INSERT"),
        ] {
            let (error, _) = refused(sql);
            assert_eq!(error.state, SqlState::SyntaxError);
            assert_eq!(error.hint, Some(format!("Did you mean {meant}?")), "{sql}");
            assert_eq!(error.position, Some(0));
        }
        let (error, _) = refused("CREATE SUORCE x");
        assert_eq!(error.hint.as_deref(), Some("Did you mean CREATE SOURCE?"));
    }

    const NOT_THERE: &[(&str, &str, &str)] = &[
        ("BEGIN", "BEGIN", "BEGIN"),
        ("COMMIT", "COMMIT", "COMMIT"),
        ("INSERT INTO t VALUES (1)", "INSERT", "INSERT INTO "),
        ("UPDATE t SET a = 1", "UPDATE", "UPDATE t SET"),
        ("COPY t FROM STDIN", "COPY", "COPY t FROM "),
        ("CREATE TABLE t (a INT)", "CREATE TABLE", "CREATE TABLE"),
        (
            "CREATE UNIQUE INDEX i ON t (a)",
            "CREATE UNIQUE INDEX",
            "CREATE UNIQU",
        ),
        ("CREATE SECRET s AS 'x'", "CREATE SECRET", "CREATE SECRE"),
        (
            "CREATE OR REPLACE SOURCE s",
            "OR REPLACE for a source",
            "CREATE OR RE",
        ),
        ("CREATE TEMP VIEW v AS SELECT 1", "CREATE TEMP", "CREATE TEMP "),
        (
            "CREATE SINK s INTO t AS SELECT 1",
            "CREATE SINK … INTO",
            "INTO t AS SE",
        ),
        (
            "CREATE SOURCE s (a INT PRIMARY KEY)",
            "PRIMARY KEY in a source",
            "PRIMARY KEY)",
        ),
        (
            "CREATE SOURCE s (a INT, PRIMARY KEY (a))",
            "PRIMARY KEY in a source",
            "PRIMARY KEY ",
        ),
        (
            "CREATE SOURCE s (a INT DEFAULT 1)",
            "DEFAULT in a source",
            "DEFAULT 1)",
        ),
        (
            "CREATE SOURCE s (a INT) FORMAT DEBEZIUM ENCODE JSON",
            "FORMAT DEBEZIUM",
            "FORMAT DEBEZ",
        ),
        (
            "CREATE SOURCE s (a INT) FORMAT PLAIN ENCODE AVRO (x = 'y')",
            "ENCODE AVRO",
            "FORMAT PLAIN",
        ),
        (
            "CREATE SOURCE s (a INT) WITH (connection = 'k')",
            "option \"connection\"",
            "connection =",
        ),
        (
            "CREATE SOURCE s (a INT) WITH (a = SECRET b)",
            "SECRET in an option",
            "SECRET b)",
        ),
        (
            "CREATE SOURCE s (a INT) INCLUDE payload AS p",
            "INCLUDE payload",
            "payload AS p",
        ),
        ("DROP TABLE t", "DROP TABLE", "DROP TABLE t"),
        ("ALTER SOURCE s PAUSE", "ALTER SOURCE … PAUSE", "PAUSE"),
        ("EXPLAIN ANALYZE SELECT 1", "EXPLAIN ANALYZE", "ANALYZE SELE"),
        (
            "EXPLAIN CREATE SOURCE s",
            "EXPLAIN of CREATE SOURCE",
            "CREATE SOURC",
        ),
        ("SET LOCAL a = 1", "SET LOCAL", "SET LOCAL a "),
        (
            "SELECT 1 EMIT ON WINDOW CLOSE",
            "EMIT ON WINDOW CLOSE in a SELECT",
            "EMIT ON WIND",
        ),
        ("WITH a AS (SELECT 1) DELETE FROM a", "DELETE", "WITH a AS (S"),
    ];

    #[test]
    fn what_is_not_there_is_refused_by_its_name_and_place() {
        for &(sql, what, place) in NOT_THERE {
            let (error, at) = refused(sql);
            assert_eq!(error.state, SqlState::FeatureNotSupported, "{sql}: {error:?}");
            assert_eq!(error.message, format!("{what} is not supported"), "{sql}");
            assert_eq!(at, place, "{sql}");
        }
    }

    const MISTAKES: &[(&str, SqlState, &str)] = &[
        (
            "CREATE SOURCE s (a INT, A INT)",
            SqlState::DuplicateColumn,
            "A INT)",
        ),
        ("CREATE SOURCE hw (a INT)", SqlState::ReservedName, "hw (a INT)"),
        (
            "CREATE VIEW other.v AS SELECT 1",
            SqlState::FeatureNotSupported,
            "other.v AS S",
        ),
        (
            "CREATE VIEW select AS SELECT 1",
            SqlState::SyntaxError,
            "select AS SE",
        ),
        (
            "CREATE VIEW \"\" AS SELECT 1",
            SqlState::SyntaxError,
            "\"\" AS SELECT",
        ),
        (
            "CREATE VIEW v (a, a) AS SELECT 1, 2",
            SqlState::DuplicateColumn,
            "a) AS SELECT",
        ),
        ("CREATE VIEW v AS", SqlState::SyntaxError, ""),
        (
            "CREATE SINK s WITH (connector = 'x')",
            SqlState::SyntaxError,
            "WITH (connec",
        ),
        (
            "CREATE SOURCE s (a INT) WITH (a = 'b', \"A\" = 'c')",
            SqlState::SyntaxError,
            "\"A\" = 'c')",
        ),
        (
            "CREATE SOURCE s (a INT) WITH (a = kafka)",
            SqlState::SyntaxError,
            "kafka)",
        ),
        (
            "CREATE SOURCE s (a INT) WITH (a 'b')",
            SqlState::SyntaxError,
            "'b')",
        ),
        (
            "CREATE SOURCE s (a INT) FORMAT PLAIN",
            SqlState::SyntaxError,
            "FORMAT PLAIN",
        ),
        (
            "CREATE SOURCE s (a INT WATERMARK FOR a AS a)",
            SqlState::SyntaxError,
            "WATERMARK FO",
        ),
        ("CREATE SOURCE s (a)", SqlState::SyntaxError, ")"),
        (
            "CREATE SOURCE s (a AS b + 1)",
            SqlState::SyntaxError,
            "a AS b + 1)",
        ),
        ("DROP VIEW", SqlState::SyntaxError, ""),
        ("SELECT 1 2", SqlState::SyntaxError, "2"),
        ("SHOW LANES FROM", SqlState::SyntaxError, ""),
    ];

    #[test]
    fn mistakes_are_named_at_their_place() {
        for &(sql, state, place) in MISTAKES {
            let (error, at) = refused(sql);
            assert_eq!((error.state, at.as_str()), (state, place), "{sql}: {error:?}");
        }
        let long = "x".repeat(64);
        let (error, _) = refused(&format!("CREATE VIEW {long} AS SELECT 1"));
        assert_eq!(error.state, SqlState::NameTooLong);
    }

    #[test]
    fn no_error_shows_the_value_of_an_option() {
        let cases = [
            "CREATE SOURCE s WITH (password = hunter2)",
            "CREATE SOURCE s WITH (password 'hunter2')",
            "CREATE SOURCE s WITH (password = 'hunter2' 'hunter2')",
            "CREATE SOURCE s WITH (password = 'hunter2', password = 'hunter2')",
            "CREATE SOURCE s WITH (password = 'hunter2') x",
        ];
        for sql in cases {
            let (error, _) = refused(sql);
            assert!(!format!("{error:?}").contains("hunter2"), "{error:?}");
        }
    }
}

mod bounds {
    use super::*;

    #[test]
    fn deep_nesting_is_an_error_and_no_overflow() {
        let n = 100_000;
        let cases = [
            format!("SELECT {}1{}", "(".repeat(n), ")".repeat(n)),
            format!("SELECT {}", "(".repeat(n)),
            format!("SELECT {}1", "- ".repeat(n)),
            format!("SELECT {}true", "NOT ".repeat(n)),
            format!("SELECT {}1", "INTERVAL ".repeat(n)),
            format!("SELECT 1{}", " + 1".repeat(n)),
            format!("SELECT 1{}", "::int".repeat(n)),
            format!("SELECT 1{}", " UNION ALL SELECT 1".repeat(n)),
            format!("SELECT {}1", "CASE WHEN ".repeat(n)),
            format!("SELECT a{}", "[1]".repeat(n)),
            format!("SELECT {}1", "CASE ".repeat(n)),
            format!("SELECT * FROM {}a{}", "(".repeat(n), ")".repeat(n)),
            format!("CREATE SOURCE s (a {}INT)", "ARRAY<".repeat(n)),
            format!("CREATE SOURCE s (a {}INT)", "STRUCT<a ".repeat(n)),
            format!("CREATE SOURCE s (a INT{})", "[]".repeat(n)),
            format!("{}SELECT 1", "EXPLAIN ".repeat(n)),
            format!("SELECT {}1", "/* ".repeat(n)),
        ];
        for sql in cases {
            let error = parse(&sql).expect_err(&sql[..40]);
            assert!(error.position.is_some(), "{error:?}");
        }
    }

    #[test]
    fn nested_readings_do_not_multiply() {
        let n = 60;
        for opening in [
            "cast(",
            "case when ",
            "f(",
            "interval (",
            "exists(",
            "substring(",
            "extract(day from ",
            "trim(",
            "array[",
            "(",
        ] {
            let sql = format!("SELECT {} FROM", opening.repeat(n));
            let started = Instant::now();
            assert!(parse(&sql).is_err(), "{opening}");
            assert!(
                started.elapsed() < Duration::from_secs(20),
                "{opening} took {:?}",
                started.elapsed()
            );
        }
    }

    #[test]
    fn what_people_write_is_within_the_bounds() {
        let sql = format!("SELECT 1 WHERE {}", vec!["a = 1"; 100].join(" OR "));
        assert_eq!(parse(&sql).map(|parsed| parsed.len()), Ok(1));
        let sql = format!("SELECT {}", vec!["a + 1"; 5000].join(", "));
        assert_eq!(parse(&sql).map(|parsed| parsed.len()), Ok(1));
        let sql = format!("SELECT {}1{}", "(a + ".repeat(16), ")".repeat(16));
        assert_eq!(parse(&sql).map(|parsed| parsed.len()), Ok(1));
        let sql = format!("SELECT {}x{}", "coalesce(a, ".repeat(40), ")".repeat(40));
        assert_eq!(parse(&sql).map(|parsed| parsed.len()), Ok(1));
    }

    #[test]
    fn a_script_that_is_too_long_is_refused() {
        let error = parse(&" ".repeat(17 * 1024 * 1024)).expect_err("17 MiB");
        assert_eq!(error.state, SqlState::ProgramLimitExceeded);
    }
}

mod soup {
    use super::*;

    const WORDS: [&str; 78] = [
        "CREATE",
        "SOURCE",
        "SINK",
        "MATERIALIZED",
        "VIEW",
        "IF",
        "NOT",
        "EXISTS",
        "(",
        ")",
        ",",
        ";",
        "*",
        "=",
        "'a'",
        "'${A}'",
        "\"b\"",
        "a",
        "b.c",
        "1",
        "1.5",
        "INT",
        "BIGINT",
        "TIMESTAMP",
        "ARRAY<",
        ">",
        "[",
        "]",
        "NULL",
        "AS",
        "WATERMARK",
        "FOR",
        "INCLUDE",
        "key",
        "header",
        "METADATA",
        "FROM",
        "WITH",
        "connector",
        "FORMAT",
        "PLAIN",
        "ENCODE",
        "JSON",
        "SELECT",
        "WHERE",
        "GROUP",
        "BY",
        "UNION",
        "ALL",
        "TABLE",
        "TUMBLE",
        "HOP",
        "DESCRIPTOR",
        "INTERVAL",
        "SECONDS",
        "EMIT",
        "ON",
        "WINDOW",
        "CLOSE",
        "DROP",
        "SHOW",
        "EXPLAIN",
        "SET",
        "RESET",
        "ALTER",
        "SUBSCRIBE",
        "-",
        "+",
        "::",
        "->",
        "$1",
        "CASE",
        "WHEN",
        "END",
        "CAST",
        "'",
        "/*",
        "é€",
    ];

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]

        #[test]
        fn token_soup_is_read_or_refused_at_a_place(words in prop::collection::vec(prop::sample::select(&WORDS[..]), 0..40)) {
            let sql = words.join(" ");
            let _ = is_complete(&sql);
            let _ = masked(&sql, &|_| true);
            if let Err(error) = parse(&sql) {
                let position = error.position.expect("every error has a place");
                prop_assert!(sql.is_char_boundary(position), "{position} in {sql}");
            }
        }

        #[test]
        fn mutilated_statements_are_read_or_refused(
            base in prop::sample::select(vec![BIDS, "CREATE SINK s AS SELECT a, count(*) FROM TABLE(HOP(TABLE t, DESCRIPTOR(x), INTERVAL '1' SECOND, INTERVAL '2' SECOND)) WITH (connector = 'kafka') FORMAT UPSERT ENCODE JSON"]),
            cut in any::<prop::sample::Index>(),
            length in 0usize..12,
            with in ".{0,6}",
        ) {
            let start = cut.index(base.len());
            let sql = format!("{}{with}{}", &base[..start], &base[(start + length).min(base.len())..]);
            let _ = is_complete(&sql);
            if let Err(error) = parse(&sql) {
                prop_assert!(sql.is_char_boundary(error.position.expect("every error has a place")));
            }
        }
    }
}

mod definitions {
    use super::*;

    /// The same without places, which differ between two texts.
    fn content(source: &CreateSource) -> String {
        let mut source = source.clone();
        source.if_not_exists = false;
        source.columns.iter_mut().for_each(|column| column.position = 0);
        source
            .with
            .values_mut()
            .chain(source.encode_options.values_mut())
            .for_each(|value| value.position = 0);
        let columns: Vec<String> = source
            .columns
            .iter()
            .map(|column| {
                let kind = match &column.kind {
                    SourceColumnKind::Generated(expression) => format!("generated {expression}"),
                    other => format!("{other:?}"),
                };
                // The type that is meant, whatever it is called.
                let meant = |data_type| match arrow_type(data_type) {
                    Ok(meant) => format!("{meant:?}"),
                    Err(_) => data_type.to_string(),
                };
                let data_type = column.data_type.as_ref().map(meant);
                format!("{:?} {data_type:?} {} {kind}", column.name, column.not_null)
            })
            .collect();
        let watermark = source
            .watermark
            .as_ref()
            .map(|clause| (clause.column.clone(), clause.expression.to_string()));
        format!(
            "{:?} {columns:?} {watermark:?} {:?} {} {:?} {:?}",
            source.name, source.with, source.format, source.encode, source.encode_options
        )
    }

    #[test]
    fn a_source_is_written_as_people_write_it() {
        let sql = "create source \"Bids\" (a int, d date as ts::date not null, o bigint metadata from 'offset', \"order\" text, \
                   watermark for ts as ts - interval '4 seconds') include header 'it''s' as h \
                   with ('Topic' = 'it''s', connector = kafka, a.b = '${X}') format plain encode bytes"
            .replace("= kafka", "= 'kafka'");
        let expected = "CREATE SOURCE \"Bids\" (\n  a INT,\n  d DATE GENERATED ALWAYS AS (ts::DATE) NOT NULL,\n  \
                        o BIGINT METADATA FROM 'offset',\n  \"order\" VARCHAR,\n  WATERMARK FOR ts AS ts - INTERVAL '4 seconds'\n)\n\
                        INCLUDE header 'it''s' AS h\n\
                        WITH (\n  a.b = '${X}',\n  connector = 'kafka',\n  topic = 'it''s'\n)\nFORMAT PLAIN ENCODE BYTES";
        let read = source(&sql);
        assert_eq!(definition_of_source(&read), expected);
        assert_eq!(content(&source(expected)), content(&read));
        assert_eq!(definition_of_source(&source(expected)), expected);
    }

    #[test]
    fn types_are_written_as_the_dialect_documents_them() {
        for (given, written) in [
            ("bool", "BOOLEAN"),
            ("int2", "SMALLINT"),
            ("integer", "INT"),
            ("int8", "BIGINT"),
            ("float4", "REAL"),
            ("float", "DOUBLE PRECISION"),
            ("double", "DOUBLE PRECISION"),
            ("decimal", "NUMERIC"),
            ("dec(10, 2)", "NUMERIC(10,2)"),
            ("numeric(38)", "NUMERIC(38,0)"),
            ("character varying", "VARCHAR"),
            ("string", "VARCHAR"),
            ("bytea", "BYTEA"),
            ("date", "DATE"),
            ("time without time zone", "TIME"),
            ("timestamp(3)", "TIMESTAMP"),
            ("timestamp without time zone", "TIMESTAMP"),
            ("timestamp with time zone", "TIMESTAMPTZ"),
            ("timestamp_ltz", "TIMESTAMPTZ"),
            ("interval", "INTERVAL"),
            ("text[]", "VARCHAR[]"),
            ("array<int>", "INT[]"),
            (
                "struct<a text, \"B c\" timestamp[]>",
                "STRUCT<a VARCHAR, \"B c\" TIMESTAMP[]>",
            ),
        ] {
            let read = source(&format!("CREATE SOURCE s (a {given}) WITH (connector = 'kafka')"));
            let definition = definition_of_source(&read);
            assert!(
                definition.contains(&format!("(\n  a {written}\n)")),
                "{given}: {definition}"
            );
            assert_eq!(content(&source(&definition)), content(&read), "{given}");
        }
    }

    fn names() -> impl Strategy<Value = String> {
        prop_oneof![
            "[a-z_][a-z0-9_]{0,8}",
            "[A-Za-z \"'.é-]{1,8}",
            Just("select".to_owned()),
            Just("include".to_owned())
        ]
    }

    prop_compose! {
        fn columns()(
            names in prop::collection::btree_set(names(), 0..6),
            kinds in prop::collection::vec((0usize..9, any::<bool>()), 6),
        ) -> Vec<String> {
            let quoted = |name: &str| format!("\"{}\"", name.replace('"', "\"\""));
            names.iter().zip(kinds).map(|(name, (kind, not_null))| {
                let rest = match kind {
                    0 => "BIGINT", 1 => "VARCHAR(20)", 2 => "DECIMAL(10,2)", 3 => "TIMESTAMP WITH TIME ZONE",
                    4 => "INT[]", 5 => "STRUCT<a INT, b TEXT>", 6 => "DATE AS \"X\"::date + 1",
                    7 => "BIGINT METADATA FROM 'offset'", _ => "DOUBLE PRECISION",
                };
                format!("{} {rest}{}", quoted(name), if not_null { " NOT NULL" } else { "" })
            }).collect()
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(500))]

        #[test]
        fn a_written_source_reads_back_to_the_same(
            columns in columns(),
            options in prop::collection::btree_map("[a-z]{1,5}(\\.[a-z_-]{1,5}){0,2}", ".{0,12}", 0..4),
            header in prop::option::of(".{0,8}"),
            watermark in any::<bool>(),
        ) {
            let quoted = |text: &str| text.replace('\'', "''");
            let mut list = columns;
            if watermark {
                list.push("WATERMARK FOR ts AS ts - INTERVAL '1' MINUTE".to_owned());
            }
            let mut sql = "CREATE SOURCE s".to_owned();
            if !list.is_empty() { sql += &format!(" ({})", list.join(", ")); }
            if let Some(header) = &header { sql += &format!(" INCLUDE header '{}' BYTEA AS \"_ h\"", quoted(header)); }
            let with: Vec<String> = options.iter().map(|(name, text)| format!("'{name}' = '{}'", quoted(text))).collect();
            if !with.is_empty() { sql += &format!(" WITH ({})", with.join(", ")); }
            sql += " FORMAT PLAIN ENCODE JSON";
            let read = source(&sql);
            let written = definition_of_source(&read);
            prop_assert_eq!(content(&source(&written)), content(&read), "{}", written);
        }
    }

    #[test]
    fn secrets_are_masked_wherever_options_stand() {
        let sql = "CREATE SINK s AS SELECT 'hunter2' AS c FROM a WITH (connector = 'kafka', sasl.password = 'hunter2',
            'API-Key' = $$hunter2$$, ref.password = '${PW}', mix.password = '${PW:-hunter2}', topic = 't') FORMAT PLAIN
            ENCODE JSON (registry.password = 'hun''ter2')";
        let shown = masked(sql, &|name| name.ends_with("password") || name == "api-key");

        assert_eq!(
            shown.matches("hunter2").count(),
            1,
            "only the query's own text: {shown}"
        );
        assert!(!shown.contains("hun''ter2"), "{shown}");
        assert_eq!(shown.matches("'********'").count(), 4, "{shown}");
        assert!(
            shown.contains("ref.password = '${PW}'") && shown.contains("topic = 't'"),
            "{shown}"
        );
        assert!(
            shown.contains("SELECT 'hunter2' AS c"),
            "a query is shown as it is: {shown}"
        );
        assert_eq!(
            masked("CREATE SOURCE s FROM KAFKA (password = 'hunter2')", &|_| true)
                .matches("hunter2")
                .count(),
            0
        );
        assert!(!masked("WITH (password = 'hunter2", &|_| true).contains("hunter2"));
        assert!(!masked("WITH (password = 'hunter2'", &|_| true).contains("hunter2"));
    }
}

mod resolving {
    use super::*;

    #[test]
    fn a_source_gets_types_origins_and_options() {
        let environment = |name: &str| (name == "HOST").then(|| "broker".to_owned());
        let resolved = resolve_source(&source(BIDS), &environment, None).expect("a good source");
        let def = resolved.def;

        assert_eq!(def.connector, "kafka");
        assert_eq!(
            def.options.get("properties.bootstrap.server").map(String::as_str),
            Some("broker:9092")
        );
        assert!(!def.options.contains_key("connector"));
        assert!(
            resolved.definition.contains("'${HOST}:9092'"),
            "{}",
            resolved.definition
        );
        let watermark = def.watermark.expect("the clause is there");
        assert_eq!(
            (watermark.column, watermark.expression.as_str()),
            (2, "date_time - INTERVAL '4' SECOND")
        );
        let utc = DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()));
        let expected = [
            ("auction", DataType::Int64, false),
            ("channel", DataType::Utf8, true),
            (
                "date_time",
                DataType::Timestamp(TimeUnit::Microsecond, None),
                true,
            ),
            ("Extra", DataType::Decimal128(10, 2), true),
            ("day", DataType::Date32, true),
            ("hour", DataType::Int32, true),
            ("k", DataType::Binary, true),
            ("_partition", DataType::Int32, false),
            ("o", DataType::Int64, false),
            ("kts", utc, true),
            ("h", headers_type(), true),
            ("trace", DataType::Utf8, true),
        ];
        let found: Vec<_> = def
            .columns
            .iter()
            .map(|c| (c.name.as_str(), c.data_type.clone(), c.nullable))
            .collect();
        assert_eq!(found, expected);
        assert_eq!(
            def.columns[4].origin,
            ColumnOrigin::Generated("date_time::DATE".into())
        );
    }

    #[test]
    fn found_columns_are_written_into_the_definition() {
        let item = Arc::new(Field::new("item", DataType::Int64, true));
        let found = Schema::new(vec![
            Field::new("ts", DataType::Timestamp(TimeUnit::Microsecond, None), true),
            Field::new("Big", DataType::Decimal128(38, 0), false),
            Field::new("list", DataType::List(item), true),
            Field::new("name", DataType::Utf8, true),
        ]);
        let statement = source(
            "CREATE SOURCE s (*, d DATE AS ts::date, WATERMARK FOR ts AS ts) INCLUDE offset WITH (connector = 'kafka')",
        );

        let first = resolve_source(&statement, &no_environment, Some(&found)).expect("found columns");
        let again =
            resolve_source(&source(&first.definition), &no_environment, None).expect("no probe is needed");

        assert_eq!(again.def.columns, first.def.columns);
        assert_eq!(again.definition, first.definition);
        let names: Vec<&str> = first
            .def
            .columns
            .iter()
            .map(|column| column.name.as_str())
            .collect();
        assert_eq!(names, ["ts", "Big", "list", "name", "d", "_offset"]);
        assert_eq!(first.def.columns[1].data_type, DataType::Decimal128(38, 0));
        let error = resolve_source(&statement, &no_environment, None).expect_err("no columns");
        assert_eq!(error.message, "source \"s\" has no columns");
    }

    #[test]
    fn a_watermark_on_no_column_says_what_to_do() {
        let sql = "CREATE SOURCE orders (id INT, WATERMARK FOR ts AS ts) WITH (connector = 'kafka')";
        let error = resolve_source(&source(sql), &no_environment, None).expect_err("no column ts");

        assert_eq!(error.message, "source \"orders\" has no column \"ts\"");
        assert_eq!(
            error.detail.as_deref(),
            Some("The WATERMARK clause takes its event time from \"ts\".")
        );
        assert_eq!(
            error.hint.as_deref(),
            Some("Add \"ts\" to the column list, or remove the WATERMARK clause.")
        );
        assert_eq!(
            error.position.map(|position| &sql[position..position + 5]),
            Some("ts AS")
        );

        let sql = "CREATE SOURCE o (created INT, WATERMARK FOR creatd AS creatd) WITH (connector = 'kafka')";
        let error = resolve_source(&source(sql), &no_environment, None).expect_err("no column creatd");
        assert_eq!(error.hint.as_deref(), Some("Did you mean \"created\"?"));
    }

    #[test]
    fn faults_of_a_source_have_their_place() {
        let cases = [
            (
                "CREATE SOURCE s (a INT) WITH (topic = 'x')",
                SqlState::InvalidParameterValue,
                None,
            ),
            (
                "CREATE SOURCE s (a INT) WITH (conector = 'x')",
                SqlState::InvalidParameterValue,
                Some("conector"),
            ),
            (
                "CREATE SOURCE s (a INT) WITH (connector = 'x', b = '${NO}')",
                SqlState::InvalidParameterValue,
                Some("b = "),
            ),
            (
                "CREATE SOURCE s (a INT) INCLUDE offset INT AS o WITH (connector = 'x')",
                SqlState::DatatypeMismatch,
                Some("o WITH"),
            ),
            (
                "CREATE SOURCE s (a nosuchtype) WITH (connector = 'x')",
                SqlState::FeatureNotSupported,
                Some("a nosuch"),
            ),
        ];
        for (sql, state, place) in cases {
            let error = resolve_source(&source(sql), &no_environment, None).expect_err(sql);
            if place != Some("a nosuch") {
                assert_eq!(error.state, state, "{sql}");
            }
            match place {
                None => assert_eq!(error.position, None, "{sql}"),
                Some(place) => {
                    assert!(
                        sql[error.position.expect("a place")..].starts_with(place),
                        "{sql}: {error:?}"
                    );
                }
            }
        }
    }

    #[test]
    fn a_sink_key_is_found_among_its_columns() {
        let schema = Arc::new(Schema::new(vec![
            Field::new("a", DataType::Int64, true),
            Field::new("B", DataType::Utf8, true),
        ]));
        let sink = |key: &str| {
            let sql = format!(
                "CREATE SINK s FROM mv WITH (connector = 'kafka', topic = 't', primary_key = '{key}') FORMAT UPSERT ENCODE JSON"
            );
            let Statement::CreateSink(sink) = one(&sql).statement else {
                panic!("not a sink")
            };
            resolve_sink(&sink, &schema, &no_environment)
        };

        let target = sink("\"B\", A").expect("a good key");
        assert_eq!((target.primary_key, target.upsert), (vec![1, 0], true));
        assert_eq!(target.options.keys().collect::<Vec<_>>(), ["topic"]);
        assert_eq!(
            sink("b").expect_err("B is quoted").state,
            SqlState::UndefinedColumn
        );
        assert_eq!(sink("a,a").expect_err("twice").state, SqlState::DuplicateColumn);
        assert_eq!(sink("").expect_err("empty").state, SqlState::UndefinedColumn);
    }
}

mod dropping {
    use super::*;

    fn view(id: u32, name: &str, depends_on: &[&str]) -> Arc<Object> {
        Arc::new(Object {
            id: ObjectId(id),
            name: name.to_owned(),
            definition: String::new(),
            depends_on: depends_on.iter().map(|&name| name.to_owned()).collect(),
            body: ObjectBody::View(ViewDef {
                schema: Arc::new(Schema::empty()),
                query: String::new(),
            }),
        })
    }

    fn bids() -> Arc<Object> {
        let sql = "CREATE SOURCE bids (a INT) WITH (connector = 'kafka')";
        let resolved = resolve_source(&source(sql), &no_environment, None).expect("a good source");
        Arc::new(Object {
            id: ObjectId(1),
            name: "bids".to_owned(),
            definition: resolved.definition,
            depends_on: Vec::new(),
            body: ObjectBody::Source(resolved.def),
        })
    }

    /// bids ◁ a ◁ {b, c} ◁ d (b and c)
    fn catalog() -> Catalog {
        let mut catalog = Catalog::default();
        for object in [
            bids(),
            view(2, "a", &["bids"]),
            view(3, "b", &["a"]),
            view(4, "c", &["a", "bids"]),
            view(5, "d", &["b", "c"]),
        ] {
            catalog.insert(object);
        }
        catalog
    }

    fn plan(sql: &str) -> Result<(Vec<String>, Vec<String>), SqlError> {
        let Statement::Drop(drop) = one(sql).statement else {
            panic!("not a drop")
        };
        let plan = catalog().plan_drop(&drop)?;
        Ok((
            plan.objects.iter().map(|object| object.name.clone()).collect(),
            plan.notices,
        ))
    }

    #[test]
    fn a_drop_takes_readers_first() {
        assert_eq!(
            plan("DROP VIEW d").map(|(names, _)| names),
            Ok(vec!["d".to_owned()])
        );
        let (names, notices) = plan("DROP SOURCE bids CASCADE").expect("cascade");
        assert_eq!(names, ["d", "b", "c", "a", "bids"]);
        assert_eq!(notices[0], "drop cascades to view \"d\"");
        assert_eq!(notices.len(), 4);
        let (names, notices) = plan("DROP VIEW b, d, d").expect("both are named");
        assert_eq!((names, notices), (vec!["d".to_owned(), "b".to_owned()], vec![]));
        assert_eq!(catalog().dependents_of("b").len(), 1);
    }

    #[test]
    fn what_is_still_read_is_not_dropped() {
        let error = plan("DROP VIEW a").expect_err("b reads it");
        assert_eq!(error.state.code(), "2BP01");
        assert_eq!(
            error.message,
            "cannot drop view \"a\" because other objects depend on it"
        );
        let detail = "View \"c\" depends on view \"a\".\nView \"b\" depends on view \"a\".\n\
                      View \"d\" depends on view \"b\".\nView \"d\" depends on view \"c\".";
        assert_eq!(error.detail.as_deref(), Some(detail));
        assert_eq!(
            error.hint.as_deref(),
            Some("Use DROP … CASCADE to drop the dependent objects too.")
        );
        assert_eq!(error.position, Some(10));
    }

    #[test]
    fn a_drop_names_what_is_there() {
        let error = plan("DROP SINK s").expect_err("no such sink");
        assert_eq!(
            (error.state.code(), error.message.as_str()),
            ("42P01", "sink \"s\" does not exist")
        );
        let error = plan("DROP SOURCE bid").expect_err("misspelt");
        assert_eq!(error.hint.as_deref(), Some("Did you mean \"bids\"?"));
        let error = plan("DROP MATERIALIZED VIEW d").expect_err("d is a view");
        assert_eq!(
            (error.state.code(), error.message.as_str()),
            ("42809", "view \"d\" is not a materialized view")
        );
        assert_eq!(error.hint.as_deref(), Some("Use DROP VIEW \"d\"."));
        let (names, notices) = plan("DROP VIEW IF EXISTS nosuch, d").expect("IF EXISTS");
        assert_eq!(names, ["d"]);
        assert_eq!(notices, ["view \"nosuch\" does not exist, skipping"]);
    }

    #[test]
    fn new_names_are_free_skipped_or_taken() {
        let catalog = catalog();
        assert!(matches!(catalog.check_new("e", false), Ok(NewName::Free)));
        assert!(
            matches!(catalog.check_new("d", true), Ok(NewName::Skip { notice }) if notice == "view \"d\" already exists, skipping")
        );
        let error = catalog.check_new("d", false).expect_err("taken");
        assert_eq!(
            (error.state.code(), error.message.as_str()),
            ("42P07", "view \"d\" already exists")
        );
        assert!(matches!(catalog.check_replace("d"), Ok(NewName::Replace(object)) if object.name == "d"));
        assert_eq!(
            catalog.check_replace("b").expect_err("d reads it").state.code(),
            "2BP01"
        );
        assert_eq!(
            catalog.check_replace("bids").expect_err("a source").state.code(),
            "42809"
        );
        let error = catalog.resolve("bisd").expect_err("misspelt");
        assert_eq!(error.hint.as_deref(), Some("Did you mean \"bids\"?"));
    }
}
