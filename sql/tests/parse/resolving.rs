//! From a statement to what the catalog keeps: types, origins, options, keys.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Schema, TimeUnit};
use highwater_sql::SqlState;
use highwater_sql::catalog::ColumnOrigin;
use highwater_sql::resolve::{headers_type, resolve_sink, resolve_source};
use highwater_sql::statement::Statement;

use crate::{BIDS, no_environment, one, source};

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
        Field::new("price", DataType::Int64, true),
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
    let error = sink("prise").expect_err("misspelt");
    assert_eq!(error.message, "sink \"s\" has no column \"prise\"");
    assert_eq!(error.hint.as_deref(), Some("Did you mean \"price\"?"));
    assert_eq!(sink("a,a").expect_err("twice").state, SqlState::DuplicateColumn);
    assert_eq!(sink("").expect_err("empty").state, SqlState::UndefinedColumn);
}
