//! A source written back as SQL, and secrets masked in it.

use highwater_sql::plan::arrow_type;
use highwater_sql::show::{definition_of_source, masked};
use highwater_sql::statement::{CreateSource, SourceColumnKind};
use proptest::prelude::*;

use crate::source;

/// The same without places, which differ between two texts.
fn content(source: &CreateSource) -> String {
    let mut source = source.clone();
    source.if_not_exists = false;
    source.columns.iter_mut().for_each(|column| column.position = 0);
    source
        .with
        .values_mut()
        .chain(source.encode_options.values_mut())
        .for_each(|value| (value.position, value.value_position) = (0, 0));
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
