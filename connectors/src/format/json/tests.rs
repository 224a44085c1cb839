//! What JSON records become, and why some are bad.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BinaryArray, Int64Array, StringArray};
use arrow::datatypes::{
    DataType, Date32Type, Decimal128Type, Field, Fields, Float32Type, Float64Type, Int16Type, Int32Type,
    Int64Type, Schema, Time64MicrosecondType, TimeUnit, TimestampMicrosecondType,
};
use serde_json::{Value, json};

use super::encode_tests::{encode, value_of};
use crate::format::{ColumnOrigin, DecodeColumn, Decoded, Decoder, JSONB_FIELD, decoder};
use crate::options::OptionMap;
use crate::sink::SinkMode;
use crate::source::{PartitionId, RawPayload, RecordHeaders};

pub(super) fn column(name: &str, data_type: DataType) -> DecodeColumn {
    DecodeColumn {
        field: Arc::new(Field::new(name, data_type, true)),
        origin: ColumnOrigin::Value(name.to_owned()),
        timestamp_format: None,
    }
}

pub(super) fn jsonb_type() -> DataType {
    DataType::Struct(vec![Field::new(JSONB_FIELD, DataType::Utf8, true)].into())
}

pub(super) fn jsonb(name: &str) -> DecodeColumn {
    column(name, jsonb_type())
}

/// The texts of a JSONB column.
pub(super) fn texts(column: &ArrayRef) -> StringArray {
    let column = column.as_struct();
    assert_eq!(column.nulls(), column.column(0).nulls());
    column.column(0).as_string().clone()
}

pub(super) fn timestamp() -> DataType {
    DataType::Timestamp(TimeUnit::Microsecond, None)
}

fn timestamptz() -> DataType {
    DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()))
}

fn payload(value: Option<&[u8]>, offset: i64) -> RawPayload<'_> {
    RawPayload {
        value,
        key: None,
        offset,
        timestamp_ms: None,
        headers: None,
    }
}

pub(super) fn json_decoder(columns: &[DecodeColumn]) -> Box<dyn Decoder> {
    decoder("json", columns, &OptionMap::new()).unwrap()
}

pub(super) fn decode_with(decoder: &mut dyn Decoder, records: &[&[u8]]) -> Decoded {
    let payloads: Vec<_> = (0..)
        .zip(records)
        .map(|(offset, record)| payload(Some(record), offset))
        .collect();
    decoder.decode(PartitionId(3), &payloads).unwrap()
}

pub(super) fn decode(columns: &[DecodeColumn], records: &[&str]) -> Decoded {
    let records: Vec<&[u8]> = records.iter().map(|record| record.as_bytes()).collect();
    decode_with(json_decoder(columns).as_mut(), &records)
}

/// The only column of the only record.
fn one(data_type: DataType, record: &str) -> ArrayRef {
    let decoded = decode(&[column("c", data_type)], &[record]);
    assert!(decoded.bad.is_empty(), "{record}: {:?}", decoded.bad);
    Arc::clone(decoded.rows.column(0))
}

/// Why the only record is bad.
fn fault(data_type: DataType, value: &str) -> String {
    let decoded = decode(&[column("c", data_type)], &[&format!("{{\"c\":{value}}}")]);
    assert_eq!(
        (decoded.rows.num_rows(), decoded.bad.len()),
        (0, 1),
        "{value} is taken"
    );
    let bad = &decoded.bad[0];
    assert_eq!(bad.column.as_deref(), Some("c"), "{}", bad.reason);
    bad.reason.clone()
}

#[test]
fn numbers_are_exact() {
    let long = |value: &str| one(DataType::Int64, value).as_primitive::<Int64Type>().value(0);
    assert_eq!(long(r#"{"c":9223372036854775807}"#), i64::MAX);
    assert_eq!(long(r#"{"c":-9223372036854775808}"#), i64::MIN);
    assert_eq!(long(r#"{"c":-0}"#), 0);
    assert_eq!(long(r#" { "c" : 12345678 , "d" : [ ] } "#), 12_345_678);
    assert_eq!(
        one(DataType::Int32, r#"{"c":-2147483648}"#)
            .as_primitive::<Int32Type>()
            .value(0),
        i32::MIN
    );
    assert_eq!(
        one(DataType::Int16, r#"{"c":32767}"#)
            .as_primitive::<Int16Type>()
            .value(0),
        i16::MAX
    );
    assert_eq!(
        one(DataType::Float64, r#"{"c":1e-7}"#)
            .as_primitive::<Float64Type>()
            .value(0),
        1e-7
    );
    assert_eq!(
        one(DataType::Float64, r#"{"c":"-Infinity"}"#)
            .as_primitive::<Float64Type>()
            .value(0),
        f64::NEG_INFINITY
    );
    assert_eq!(
        one(DataType::Float32, r#"{"c":3}"#)
            .as_primitive::<Float32Type>()
            .value(0),
        3.0
    );
    let decimal = |value| {
        one(DataType::Decimal128(38, 10), value)
            .as_primitive::<Decimal128Type>()
            .value(0)
    };
    assert_eq!(
        decimal(r#"{"c":1234567890123456789012345678.0123456789}"#),
        12345678901234567890123456780123456789
    );
    assert_eq!(decimal(r#"{"c":"-0.5"}"#), -5_000_000_000);
}

#[test]
fn times_truth_and_bytes_are_taken_as_declared() {
    assert!(one(DataType::Boolean, r#"{"c":true}"#).as_boolean().value(0));
    assert_eq!(
        one(DataType::Date32, r#"{"c":"1970-01-02"}"#)
            .as_primitive::<Date32Type>()
            .value(0),
        1
    );
    let time = one(DataType::Time64(TimeUnit::Microsecond), r#"{"c":"00:00:01.5"}"#);
    assert_eq!(time.as_primitive::<Time64MicrosecondType>().value(0), 1_500_000);
    let stamp = |data_type, record| {
        one(data_type, record)
            .as_primitive::<TimestampMicrosecondType>()
            .value(0)
    };
    assert_eq!(stamp(timestamp(), r#"{"c":"1970-01-01 00:00:01"}"#), 1_000_000);
    assert_eq!(
        stamp(timestamptz(), r#"{"c":"1970-01-01T02:00:01+02:00"}"#),
        1_000_000
    );
    assert_eq!(
        stamp(timestamp(), r#"{"c":"1970-01-01T00:00:01\u005a"}"#),
        1_000_000
    );
    assert_eq!(
        one(DataType::Binary, r#"{"c":"\\x00ff"}"#)
            .as_binary::<i32>()
            .value(0),
        [0, 255]
    );
    assert_eq!(
        one(DataType::Binary, r#"{"c":"AP8="}"#)
            .as_binary::<i32>()
            .value(0),
        [0, 255]
    );
}

#[test]
fn strings_are_exact() {
    let text = |record: &str| one(DataType::Utf8, record).as_string::<i32>().value(0).to_owned();
    assert_eq!(text(r#"{"c":""}"#), "");
    assert_eq!(
        text(r#"{"c":"a\"\\\/\b\f\n\r\t\u0041é\ud83d\ude00 ü 😀"}"#),
        "a\"\\/\u{8}\u{c}\n\r\tAé😀 ü 😀"
    );
    assert_eq!(text(r#"{"c":"\u0000"}"#), "\0");
    for length in 0..40 {
        let plain = "x".repeat(length);
        assert_eq!(text(&format!(r#"{{"c":"{plain}"}}"#)), plain);
        assert_eq!(
            text(&format!(r#"{{"c":"{plain}\n{plain}#"}}"#)),
            format!("{plain}\n{plain}#")
        );
    }
}

/// Type, value, and why the one does not take the other.
const WRONG_VALUES: &[(DataType, &str, &str)] = &[
    (DataType::Int64, "\"1\"", "expected BIGINT, found \"1\""),
    (DataType::Int64, "true", "expected BIGINT, found true"),
    (
        DataType::Int64,
        "1.0",
        "expected BIGINT, found 1.0, which is not written as an integer",
    ),
    (
        DataType::Int64,
        "9223372036854775808",
        "9223372036854775808 is out of range for BIGINT",
    ),
    (
        DataType::Int64,
        "-9223372036854775809",
        "-9223372036854775809 is out of range for BIGINT",
    ),
    (
        DataType::Int64,
        "18446744073709551617",
        "18446744073709551617 is out of range for BIGINT",
    ),
    (
        DataType::Int32,
        "2147483648",
        "2147483648 is out of range for INTEGER",
    ),
    (DataType::Int16, "-32769", "-32769 is out of range for SMALLINT"),
    (
        DataType::Float64,
        "1e400",
        "1e400 is out of range for DOUBLE PRECISION",
    ),
    (DataType::Float32, "1e40", "1e40 is out of range for REAL"),
    (
        DataType::Float64,
        "\"1\"",
        "expected DOUBLE PRECISION, found \"1\"",
    ),
    (DataType::Boolean, "1", "expected BOOLEAN, found 1"),
    (DataType::Utf8, "1", "expected a string, found 1"),
    (
        DataType::Utf8,
        "{\"a\": [1]}",
        "expected a string, found {\"a\": [1]}",
    ),
    (
        DataType::Utf8,
        "\"\\ud800\"",
        "a string holds half of a surrogate pair",
    ),
    (
        DataType::Utf8,
        "\"\\udc00x\"",
        "a string holds half of a surrogate pair",
    ),
    (
        DataType::Decimal128(5, 2),
        "1000",
        "1000 is out of range for NUMERIC(5,2)",
    ),
    (
        DataType::Decimal128(5, 2),
        "0.125",
        "0.125 has more than 2 digits after the point",
    ),
    (
        DataType::Decimal128(5, 2),
        "\"x\"",
        "expected NUMERIC(5,2), found \"x\"",
    ),
    (
        DataType::Date32,
        "\"2026-02-30\"",
        "expected a date as YYYY-MM-DD, found \"2026-02-30\"",
    ),
    (
        DataType::Binary,
        "\"é\"",
        "expected bytes in base64 or \\x hexadecimal, found \"é\"",
    ),
];

#[test]
fn a_wrong_type_is_a_bad_row_with_column_and_reason() {
    for (data_type, value, reason) in WRONG_VALUES {
        assert_eq!(fault(data_type.clone(), value), *reason);
    }
    assert!(fault(timestamp(), "1700000000").contains("declare its unit with timestamp.format"));
    assert!(fault(timestamp(), "\"1970-01-01T00:00:00+01:00\"").contains("TIMESTAMPTZ"));
}

#[test]
fn a_bad_record_does_not_hurt_its_neighbours() {
    // given a record of every fault that a lexer or a column can find, between good ones
    let columns = [
        column("a", DataType::Int64),
        column("s", DataType::Utf8),
        column(
            "l",
            DataType::List(Arc::new(Field::new_list_field(DataType::Utf8, true))),
        ),
    ];
    let bad = [
        "",
        " ",
        "null",
        "[]",
        "1",
        "{",
        "{}}",
        "{\"a\"}",
        "{\"a\":1,}",
        "{\"s\":\"x\",\"a\":01}",
        "{\"s\":\"x\",\"a\":1.}",
        "{\"s\":\"ok\",\"l\":[\"a\",\"b\",3]}",
        "{\"s\":\"half \\u12",
        "{\"s\":\"tab\t\"}",
        "{\"a\":1,\"s\":\"x\",\"l\":[\"y\"]} x",
        "{\"zzz\":{\"a\":[1,2}}",
        "{\"a\":--1}",
        "{\"a\":tru}",
        "{\"zzz\":+1}",
        "{\"zzz\":.5}",
        "{'a':1}",
        "\u{feff}{}",
    ];
    let good = r#"{"a":7,"s":"seven","l":["x",null]}"#;
    let mut records = vec![good];
    for record in bad {
        records.extend([record, good]);
    }
    // when they are decoded together
    let mut decoder = json_decoder(&columns);
    let bytes: Vec<&[u8]> = records.iter().map(|record| record.as_bytes()).collect();
    let decoded = decode_with(decoder.as_mut(), &bytes);
    // then every good one is whole, every bad one is told, and the decoder goes on
    assert_eq!(
        decoded.bad.iter().map(|bad| bad.offset).collect::<Vec<_>>(),
        (0..bad.len() as i64).map(|n| 2 * n + 1).collect::<Vec<_>>()
    );
    let alone = decode(&columns, &[good]).rows;
    assert_eq!(decoded.rows.num_rows(), bad.len() + 1);
    for row in 0..decoded.rows.num_rows() {
        assert_eq!(decoded.rows.slice(row, 1), alone);
    }
    assert_eq!(decode_with(decoder.as_mut(), &[good.as_bytes()]).rows, alone);
}

#[test]
fn faults_of_the_text_name_no_column() {
    for (record, reason) in [
        (&b""[..], "the record is empty"),
        (b"[1]", "the record is not a JSON object"),
        (b"{\"c\":1", "expected ',' or '}' at byte 6, but the record ends"),
        (
            b"{\"c\":1}x",
            "expected the end of the record at byte 7, but found 'x'",
        ),
        (b"{\"c\":\"a", "a string is not closed"),
        (b"{\"c\":\"\xff\"}", "invalid UTF-8 at byte 6"),
        (
            b"{\"c\":\"a\nb\"}",
            "unescaped control character in a string at byte 7",
        ),
        (b"{\"c\":\"\\x\"}", "invalid escape at byte 6"),
    ] {
        let decoded = decode_with(json_decoder(&[column("c", DataType::Int64)]).as_mut(), &[record]);
        let bad = &decoded.bad[0];
        assert_eq!((bad.column.as_deref(), bad.reason.as_str()), (None, reason));
        assert_eq!(bad.bytes, record);
    }
}

#[test]
fn null_and_missing_are_null_and_unknown_is_ignored() {
    let columns = [column("a", DataType::Int64), column("b", DataType::Utf8)];
    let decoded = decode(
        &columns,
        &[
            r#"{"a":null}"#,
            r#"{"x":99999999999999999999999999,"b":"t"}"#,
            "{}",
        ],
    );
    assert!(decoded.bad.is_empty());
    assert_eq!(
        decoded.rows.column(0).as_ref(),
        &Int64Array::from(vec![None, None, None]) as &dyn Array
    );
    assert_eq!(
        decoded.rows.column(1).as_ref(),
        &StringArray::from(vec![None, Some("t"), None]) as &dyn Array
    );
}

#[test]
fn a_column_that_is_not_null_refuses_null_and_missing() {
    let mut strict = column("a", DataType::Int64);
    strict.field = Arc::new(Field::new("a", DataType::Int64, false));
    let decoded = decode(&[strict], &[r#"{"a":null}"#, "{}", r#"{"a":1}"#]);
    let reasons: Vec<_> = decoded
        .bad
        .iter()
        .map(|bad| (bad.column.as_deref(), bad.reason.as_str()))
        .collect();
    let null = (Some("a"), "is null, but declared NOT NULL");
    assert_eq!(reasons, [null, (Some("a"), "is missing, but declared NOT NULL")]);
    assert_eq!(decoded.rows.num_rows(), 1);
}

#[test]
fn the_last_of_duplicate_keys_wins_and_case_matters_only_in_doubt() {
    let columns = [column("a", DataType::Int64), column("b", DataType::Utf8)];
    let values = |record: &str| {
        let rows = decode(&columns, &[record]).rows;
        (
            rows.column(0).as_primitive::<Int64Type>().value(0),
            rows.column(1).as_string::<i32>().value(0).to_owned(),
        )
    };
    assert_eq!(values(r#"{"a":1,"b":"x","a":2,"b":"y"}"#), (2, "y".to_owned()));
    assert_eq!(values(r#"{"A":1,"B":"x"}"#), (1, "x".to_owned()));
    assert_eq!(values(r#"{"A":1,"a":2,"B":"x","b":"y"}"#), (2, "y".to_owned()));
    assert_eq!(
        values(r#"{"a":2,"A":"other","b":"y","B":3}"#),
        (2, "y".to_owned())
    );
    assert_eq!(values(r#"{"\u0061":3,"b":"z"}"#), (3, "z".to_owned()));
}

#[test]
fn the_order_of_fields_may_change_from_record_to_record() {
    let columns = [
        column("a", DataType::Int64),
        column("a_rather_long_name", DataType::Int64),
        column("c", DataType::Int64),
    ];
    let records = [
        r#"{"a":1,"a_rather_long_name":2,"c":3}"#,
        r#"{"c":3,"a":1,"a_rather_long_name":2}"#,
        r#"{"a":1,"c":3,"x":0,"a_rather_long_name":2}"#,
        r#"{"a_rather_long_name":2,"c":3,"a":1}"#,
        r#"{"a_rather_long_nam":9,"a_rather_long_name":2,"c":3,"a":1,"a_rather_long_name_":9}"#,
        r#"{"a":1,"a_rather_long_name":2,"c":3}"#,
    ];
    let rows = decode(&columns, &records).rows;
    for (column, expected) in (0..).zip([1, 2, 3]) {
        assert_eq!(
            rows.column(column).as_primitive::<Int64Type>().values().as_ref(),
            &[expected; 6]
        );
    }
}

#[test]
fn arrays_and_structs_nest() {
    let inner = Fields::from(vec![
        Field::new("x", DataType::Int64, true),
        Field::new("y", DataType::Utf8, true),
    ]);
    let list = DataType::List(Arc::new(Field::new_list_field(DataType::Struct(inner), true)));
    let columns = [column("l", list)];
    let records = [
        r#"{"l":[{"x":1,"y":"a"},{"y":"b"},null]}"#,
        r#"{"l":[{"x":1},{"x":"oops"}]}"#,
        r#"{"l":[]}"#,
        r#"{"l":null}"#,
        r#"{"l":[{"y":"c","x":3,"x":4,"z":{}}]}"#,
    ];
    let decoded = decode(&columns, &records);
    assert_eq!(
        decoded.bad[0].reason,
        "in field \"x\": expected BIGINT, found \"oops\""
    );
    assert_eq!(decoded.bad[0].column.as_deref(), Some("l"));
    let lines = encode(&decoded.rows, SinkMode::Append, &[], &[]);
    let values: Vec<Value> = lines.iter().map(value_of).collect();
    let expected = [
        json!({"l": [{"x": 1, "y": "a"}, {"x": null, "y": "b"}, null]}),
        json!({"l": []}),
        json!({"l": null}),
        json!({"l": [{"x": 4, "y": "c"}]}),
    ];
    assert_eq!(values, expected);
}

#[test]
fn jsonb_keeps_the_text_of_any_value() {
    let rows = decode(
        &[jsonb("j")],
        &[r#"{"j": {"a" : [1, 2.50]} }"#, r#"{"j":"s"}"#, r#"{"j":null}"#],
    )
    .rows;
    let expected = StringArray::from(vec![Some(r#"{"a" : [1, 2.50]}"#), Some("\"s\""), None]);
    assert_eq!(texts(rows.column(0)), expected);
    let bad = decode(
        &[jsonb("j")],
        &[r#"{"j": "\u0000"}"#, r#"{"j": 1e9999}"#, r#"{"j": [1}"#],
    )
    .bad;
    let reasons: Vec<&str> = bad.iter().map(|bad| bad.reason.as_str()).collect();
    assert_eq!(
        reasons,
        [
            "a string holds \\u0000, which no text has",
            "a number is out of range for JSONB",
            "expected ',' or ']' at byte 8, but found '}'"
        ]
    );
    assert_eq!(bad[0].column.as_deref(), Some("j"));
}

#[test]
fn deep_nesting_is_an_error_and_not_an_overflow() {
    let nested = |depth: usize| format!("{{\"x\":{}{}}}", "[".repeat(depth), "]".repeat(depth));
    let decoded = decode(&[], &[&nested(128), &nested(129), &nested(1_000_000)]);
    assert_eq!(decoded.rows.num_rows(), 1);
    assert!(
        decoded
            .bad
            .iter()
            .all(|bad| bad.reason == "values are nested deeper than 128 levels")
    );
    assert_eq!(decoded.bad[1].bytes.len(), 64 * 1024);
}

#[test]
fn a_null_payload_is_a_tombstone_and_an_empty_one_is_bad() {
    let mut decoder = json_decoder(&[column("a", DataType::Int64)]);
    let payloads = [payload(None, 0), payload(Some(b""), 1), payload(Some(b"{}"), 2)];
    let decoded = decoder.decode(PartitionId(0), &payloads).unwrap();
    assert_eq!(
        (decoded.tombstones, decoded.bad.len(), decoded.rows.num_rows()),
        (1, 1, 1)
    );
}

struct Headers(Vec<(&'static str, Option<&'static [u8]>)>);

impl RecordHeaders for Headers {
    fn len(&self) -> usize {
        self.0.len()
    }

    fn get(&self, index: usize) -> (&str, Option<&[u8]>) {
        self.0[index]
    }
}

fn metadata(name: &str, data_type: DataType, origin: ColumnOrigin) -> DecodeColumn {
    DecodeColumn {
        origin,
        ..column(name, data_type)
    }
}

fn headers_type() -> DataType {
    let fields = vec![
        Field::new("name", DataType::Utf8, true),
        Field::new("value", DataType::Binary, true),
    ];
    DataType::List(Arc::new(Field::new_list_field(
        DataType::Struct(fields.into()),
        true,
    )))
}

#[test]
fn metadata_columns_come_from_the_record() {
    let columns = [
        metadata("o", DataType::Int64, ColumnOrigin::Offset),
        column("a", DataType::Int64),
        metadata("p", DataType::Int32, ColumnOrigin::Partition),
        metadata("k", DataType::Binary, ColumnOrigin::Key),
        metadata("t", timestamptz(), ColumnOrigin::Timestamp),
        metadata("h", headers_type(), ColumnOrigin::Headers),
        metadata("trace", DataType::Utf8, ColumnOrigin::Header("trace".to_owned())),
    ];
    let headers = Headers(vec![
        ("trace", Some(b"t1")),
        ("other", None),
        ("trace", Some(b"t2")),
    ]);
    let broken = Headers(vec![("trace", Some(b"\xff"))]);
    let full = RawPayload {
        value: Some(b"{\"a\":1}"),
        key: Some(b"key"),
        offset: 17,
        timestamp_ms: Some(5),
        headers: Some(&headers),
    };
    let payloads = [
        full,
        RawPayload {
            headers: Some(&broken),
            ..full
        },
        payload(Some(b"{\"a\":2}"), 19),
    ];
    let decoded = json_decoder(&columns).decode(PartitionId(3), &payloads).unwrap();
    assert_eq!(decoded.bad[0].column.as_deref(), Some("trace"));
    let lines = encode(&decoded.rows, SinkMode::Append, &[], &[]);
    let first = json!({"o": 17, "a": 1, "p": 3, "k": "a2V5", "t": "1970-01-01T00:00:00.005Z",
        "h": [{"name": "trace", "value": "dDE="}, {"name": "other", "value": null}, {"name": "trace", "value": "dDI="}],
        "trace": "t1"});
    let second = json!({"o": 19, "a": 2, "p": 3, "k": null, "t": null, "h": [], "trace": null});
    assert_eq!([value_of(&lines[0]), value_of(&lines[1])], [first, second]);
}

#[test]
fn a_metadata_column_of_another_type_is_refused() {
    let error = decoder(
        "json",
        &[metadata("p", DataType::Int64, ColumnOrigin::Partition)],
        &OptionMap::new(),
    )
    .err();
    let error = error.unwrap();
    assert_eq!(error.message, "column \"p\" cannot hold the record partition");
    assert_eq!(error.hint.as_deref(), Some("Declare it INTEGER."));
}

#[test]
fn timestamp_format_is_taken_per_source_and_per_column() {
    let options = OptionMap::from([("timestamp.format".to_owned(), "unix_ms".to_owned())]);
    let own = DecodeColumn {
        timestamp_format: Some("%d.%m.%Y".to_owned()),
        ..column("d", timestamp())
    };
    let columns = [column("t", timestamp()), own];
    let mut made = decoder("json", &columns, &options).unwrap();
    let record = br#"{"t":1000.5,"d":"02.01.1970"}"#;
    let rows = decode_with(made.as_mut(), &[record, br#"{"t":"1970-01-01T00:00:00"}"#]);
    assert_eq!(
        rows.rows
            .column(0)
            .as_primitive::<TimestampMicrosecondType>()
            .value(0),
        1_000_500
    );
    assert_eq!(
        rows.rows
            .column(1)
            .as_primitive::<TimestampMicrosecondType>()
            .value(0),
        86_400_000_000
    );
    assert_eq!(rows.bad.len(), 1);
    let far = decode_with(made.as_mut(), &[br#"{"t":9223372036854775807,"d":null}"#]);
    assert_eq!(
        far.bad[0].reason,
        "timestamp \"9223372036854775807\" is out of range"
    );
    let wrong = OptionMap::from([("timestamp.format".to_owned(), "unix_years".to_owned())]);
    assert!(decoder("json", &columns, &wrong).is_err());
}

#[test]
fn an_unknown_format_is_refused_with_the_nearest_name() {
    let error = decoder("jsn", &[], &OptionMap::new()).err().unwrap();
    assert_eq!(
        (error.message.as_str(), error.hint.as_deref()),
        ("unknown format \"jsn\"", Some("Did you mean \"json\"?"))
    );
}

#[test]
fn the_bytes_format_gives_the_value_as_it_is() {
    let columns = [
        column("v", DataType::Binary),
        metadata("o", DataType::Int64, ColumnOrigin::Offset),
    ];
    let mut bytes = decoder("bytes", &columns, &OptionMap::new()).unwrap();
    let payloads = [payload(Some(b"\xff"), 4), payload(None, 5), payload(Some(b""), 6)];
    let decoded = bytes.decode(PartitionId(0), &payloads).unwrap();
    assert_eq!(decoded.tombstones, 1);
    assert_eq!(
        decoded.rows.column(0).as_ref(),
        &BinaryArray::from(vec![&b"\xff"[..], b""]) as &dyn Array
    );
    assert_eq!(
        decoded.rows.column(1).as_ref(),
        &Int64Array::from(vec![4, 6]) as &dyn Array
    );
    for wrong in [
        vec![column("v", DataType::Utf8)],
        vec![column("v", DataType::Binary), column("w", DataType::Binary)],
    ] {
        assert!(decoder("bytes", &wrong, &OptionMap::new()).is_err());
    }
}

#[test]
fn the_schema_is_that_of_the_columns() {
    let decoder = json_decoder(&[column("a", DataType::Int64)]);
    let expected = Schema::new(vec![Field::new("a", DataType::Int64, true)]);
    assert_eq!(decoder.schema().as_ref(), &expected);
}
