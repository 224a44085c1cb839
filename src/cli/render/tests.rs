//! Each layout against text as psql 17 prints it.

use std::sync::Arc;

use arrow::array::{
    ArrayRef, BooleanArray, Decimal128Array, Float64Array, Int64Array, ListArray, StringArray, StructArray,
    TimestampMicrosecondArray,
};
use arrow::datatypes::{DataType, Field, Int64Type, Schema};

use super::*;

fn rows_of(columns: Vec<(&str, ArrayRef)>) -> Rows {
    let batch = RecordBatch::try_from_iter_with_nullable(
        columns.into_iter().map(|(name, array)| (name, array, true)),
    );
    let batch = batch.unwrap();
    Rows {
        schema: batch.schema(),
        batches: vec![batch],
    }
}

fn look(format: Format, expanded: Expanded) -> Look {
    Look {
        format,
        expanded,
        width: None,
        title: None,
        footer: true,
    }
}

fn shown(rows: &Rows, look: &Look) -> String {
    let mut out = Vec::new();
    assert_eq!(write(rows, look, &|| false, &mut out).unwrap(), Written::Whole);
    String::from_utf8(out).unwrap()
}

fn integers(values: &[Option<i64>]) -> ArrayRef {
    Arc::new(Int64Array::from(values.to_vec()))
}

fn texts(values: &[Option<&str>]) -> ArrayRef {
    Arc::new(StringArray::from(values.to_vec()))
}

fn two_columns() -> Rows {
    rows_of(vec![
        ("id", integers(&[Some(1), Some(200), None])),
        ("name", texts(&[Some("a"), None, Some("")])),
    ])
}

#[test]
fn a_table_centres_names_and_puts_numbers_to_the_right() {
    let expected = "\
\x20id  | name 
-----+------
\x20  1 | a
\x20200 | 
\x20    | 
(3 rows)

";
    assert_eq!(
        shown(&two_columns(), &look(Format::Table, Expanded::Off)),
        expected
    );
}

#[test]
fn a_cell_of_many_lines_is_marked_where_it_goes_on() {
    let rows = rows_of(vec![
        ("a", texts(&[Some("x\nyy"), Some("z")])),
        ("b\nc", texts(&[Some("1"), Some("2\n3")])),
    ]);
    let expected = "\
\x20a  | b+
\x20   | c 
----+---
\x20x +| 1
\x20yy | 
\x20z  | 2+
\x20   | 3
(2 rows)

";
    assert_eq!(shown(&rows, &look(Format::Table, Expanded::Off)), expected);
}

#[test]
fn wide_characters_take_two_columns_and_control_characters_do_no_harm() {
    let rows = rows_of(vec![
        (
            "t",
            texts(&[Some("日本"), Some("é"), Some("a\tb"), Some("\x1b[31m\r")]),
        ),
        ("n", integers(&[Some(1); 4])),
    ]);
    let expected = "\
\x20    t      | n 
------------+---
\x20日本       | 1
\x20é          | 1
\x20a       b  | 1
\x20\\x1B[31m\\r | 1
(4 rows)

";
    assert_eq!(shown(&rows, &look(Format::Table, Expanded::Off)), expected);
}

#[test]
fn one_row_and_none_are_counted_as_in_psql() {
    let one = rows_of(vec![("n", integers(&[Some(1)]))]);
    assert_eq!(
        shown(&one, &look(Format::Table, Expanded::Off)),
        " n \n---\n 1\n(1 row)\n\n"
    );
    let none = Rows {
        schema: one.schema,
        batches: Vec::new(),
    };
    assert_eq!(
        shown(&none, &look(Format::Table, Expanded::Off)),
        " n \n---\n(0 rows)\n\n"
    );
    assert_eq!(shown(&none, &look(Format::Table, Expanded::On)), "(0 rows)\n\n");
}

#[test]
fn expanded_rows_have_a_line_per_column() {
    let expected = "\
-[ RECORD 1 ]
id   | 1
name | a
-[ RECORD 2 ]
id   | 200
name | 
-[ RECORD 3 ]
id   | 
name | 

";
    assert_eq!(
        shown(&two_columns(), &look(Format::Table, Expanded::On)),
        expected
    );
    let rows = rows_of(vec![("a long name", texts(&[Some("one\ntwo and more")]))]);
    let expected = "\
-[ RECORD 1 ]-------------
a long name | one         +
            | two and more

";
    assert_eq!(shown(&rows, &look(Format::Table, Expanded::On)), expected);
}

#[test]
fn auto_expands_what_is_wider_than_the_terminal() {
    let auto = |width| Look {
        width: Some(width),
        ..look(Format::Table, Expanded::Auto)
    };
    assert!(shown(&two_columns(), &auto(80)).starts_with(" id "));
    assert!(shown(&two_columns(), &auto(8)).starts_with("-[ RECORD 1 ]"));
}

#[test]
fn a_title_stands_centred_above_the_table_and_replaces_the_count() {
    let titled = Look {
        title: Some("List".into()),
        footer: false,
        ..look(Format::Table, Expanded::Off)
    };
    let rows = rows_of(vec![("name", texts(&[Some("bids_out")]))]);
    assert_eq!(
        shown(&rows, &titled),
        "   List\n   name   \n----------\n bids_out\n\n"
    );
}

#[test]
fn csv_tells_null_from_an_empty_text() {
    let rows = rows_of(vec![
        (
            "a,b",
            texts(&[
                None,
                Some(""),
                Some("x"),
                Some("say \"hi\""),
                Some("1\n2"),
                Some("\\."),
            ]),
        ),
        ("n", integers(&[Some(1), None, Some(3), None, None, None])),
    ]);
    let expected = "\"a,b\",n\n,1\n\"\",\nx,3\n\"say \"\"hi\"\"\",\n\"1\n2\",\n\"\\.\",\n";
    assert_eq!(shown(&rows, &look(Format::Csv, Expanded::Off)), expected);
}

#[test]
fn json_keeps_every_digit() {
    let decimal = Decimal128Array::from(vec![Some(12_345_678_901_234_567_890_i128), None]);
    let decimal = decimal.with_precision_and_scale(38, 2).unwrap();
    let list = ListArray::from_iter_primitive::<Int64Type, _, _>([Some(vec![Some(1), None]), None]);
    let field = Arc::new(Field::new("x", DataType::Int64, true));
    let object = StructArray::from(vec![(field, integers(&[Some(7), None]))]);
    let rows = rows_of(vec![
        ("i", integers(&[Some(i64::MAX), None])),
        ("d", Arc::new(decimal)),
        ("f", Arc::new(Float64Array::from(vec![0.1, f64::NAN]))),
        ("b", Arc::new(BooleanArray::from(vec![Some(true), None]))),
        ("t\"", texts(&[Some("a\"\\\n\u{1}é"), None])),
        (
            "at",
            Arc::new(TimestampMicrosecondArray::from(vec![Some(125_000), None])),
        ),
        (
            "z",
            Arc::new(TimestampMicrosecondArray::from(vec![Some(0), None]).with_timezone("UTC")),
        ),
        ("l", Arc::new(list)),
        ("o", Arc::new(object)),
    ]);
    let first = concat!(
        r#"{"i":9223372036854775807,"d":123456789012345678.90,"f":0.1,"b":true,"t\"":"a\"\\\n\u0001é","#,
        r#""at":"1970-01-01T00:00:00.125","z":"1970-01-01T00:00:00+00:00","l":[1,null],"o":{"x":7}}"#
    );
    let second =
        r#"{"i":null,"d":null,"f":"NaN","b":null,"t\"":null,"at":null,"z":null,"l":null,"o":{"x":null}}"#;
    assert_eq!(
        shown(&rows, &look(Format::Json, Expanded::Off)),
        format!("{first}\n{second}\n")
    );
}

#[test]
fn writing_stops_when_asked() {
    let rows = rows_of(vec![("n", integers(&vec![Some(1); 10_000]))]);
    for format in [Format::Table, Format::Csv, Format::Json] {
        let asked = std::cell::Cell::new(0);
        let stop = || asked.replace(asked.get() + 1) > 1;
        let mut out = Vec::new();
        assert_eq!(
            write(&rows, &look(format, Expanded::Off), &stop, &mut out).unwrap(),
            Written::Stopped
        );
    }
}

#[test]
fn a_stream_has_one_header_and_its_columns_grow() {
    let schema = Arc::new(Schema::new(vec![Field::new("n", DataType::Int64, true)]));
    let mut stream = Stream::new(&schema, Format::Table);
    let mut out = Vec::new();
    for value in [1, 1000] {
        let batch = RecordBatch::try_new(Arc::clone(&schema), vec![integers(&[Some(value)])]).unwrap();
        stream.write(&batch, &mut out).unwrap();
    }
    assert_eq!(String::from_utf8(out).unwrap(), " n \n---\n 1\n 1000\n");
}
