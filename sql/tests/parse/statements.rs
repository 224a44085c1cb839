//! What each statement is read as.

use highwater_sql::SqlState;
use highwater_sql::statement::{Include, ObjectKind, Show, SourceColumnKind, Statement};

use crate::{BIDS, one, refused, source, text};

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
    let (error, at) =
        refused("SELECT * FROM TABLE(TUMBLE(TABLE bids, DESCRIPTOR(ts), INTERVAL '1' SECONDS)) WHERE a 7");
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
        ("SHOW TABLES", Show::Objects(ObjectKind::Table)),
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
fn explain_and_show_columns_are_read() {
    assert!(
        matches!(one("SHOW COLUMNS FROM hw.lanes").statement, Statement::Describe { schema: Some(schema), name }
            if schema == "hw" && name == "lanes")
    );
    for (sql, expected) in [
        ("EXPLAIN VERBOSE SELECT 1", (true, false)),
        ("EXPLAIN (VERBOSE) SELECT 1", (true, false)),
        ("EXPLAIN (VERBOSE true) SELECT 1", (true, false)),
        (
            "EXPLAIN (ANALYZE, VERBOSE off, FORMAT text) SELECT 1",
            (false, true),
        ),
        (
            "EXPLAIN ANALYZE VERBOSE WITH a AS (SELECT 1) SELECT * FROM a",
            (true, true),
        ),
        ("EXPLAIN ANALYZE (SELECT 1)", (false, true)),
        ("EXPLAIN (SELECT 1)", (false, false)),
    ] {
        let Statement::Explain { verbose, analyze, .. } = one(sql).statement else {
            panic!("{sql}");
        };
        assert_eq!((verbose, analyze), expected, "{sql}");
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
    assert!(
        matches!(one("DESC bids").statement, Statement::Describe { schema: None, name } if name == "bids")
    );
    assert!(
        matches!(one("DESCRIBE source").statement, Statement::Describe { schema: None, name } if name == "source")
    );
    assert!(
        matches!(one("DESCRIBE SOURCE bids").statement, Statement::Describe { schema: None, name } if name == "bids")
    );
    assert!(matches!(one("ALTER SINK s RESUME").statement,
        Statement::Resume { kind: ObjectKind::Sink, name } if name == "s"));
    assert!(
        matches!(one("EXPLAIN CREATE MATERIALIZED VIEW v AS SELECT 1").statement,
        Statement::Explain { verbose: false, statement, .. } if matches!(*statement, Statement::CreateMaterializedView(_)))
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
