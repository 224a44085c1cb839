use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, BinaryArray, BooleanArray, Decimal128Array, Float64Array, Int64Array,
    RecordBatch, StringArray, TimestampMicrosecondArray,
};
use arrow::datatypes::{
    DataType, Date32Type, Decimal128Type, Field, Fields, Float32Type, Float64Type, Int16Type, Int32Type,
    Int64Type, Schema, Time64MicrosecondType, TimeUnit, TimestampMicrosecondType,
};
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::format::{
    Change, ColumnOrigin, DecodeColumn, Decoded, Decoder, EncodeOptions, JSON_EXTENSION, decoder, encoder,
};
use crate::options::OptionMap;
use crate::sink::{SinkMode, SinkRecord};
use crate::source::{PartitionId, RawPayload, RecordHeaders};

fn column(name: &str, data_type: DataType) -> DecodeColumn {
    DecodeColumn {
        field: Arc::new(Field::new(name, data_type, true)),
        origin: ColumnOrigin::Value(name.to_owned()),
        timestamp_format: None,
    }
}

fn jsonb(name: &str) -> DecodeColumn {
    let metadata = [(JSON_EXTENSION.0.to_owned(), JSON_EXTENSION.1.to_owned())];
    let field = Field::new(name, DataType::Utf8, true).with_metadata(metadata.into());
    DecodeColumn {
        field: Arc::new(field),
        ..column(name, DataType::Utf8)
    }
}

fn timestamp() -> DataType {
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

fn json_decoder(columns: &[DecodeColumn]) -> Box<dyn Decoder> {
    decoder("json", columns, &OptionMap::new()).unwrap()
}

fn decode_with(decoder: &mut dyn Decoder, records: &[&[u8]]) -> Decoded {
    let payloads: Vec<_> = (0..)
        .zip(records)
        .map(|(offset, record)| payload(Some(record), offset))
        .collect();
    decoder.decode(PartitionId(3), &payloads).unwrap()
}

fn decode(columns: &[DecodeColumn], records: &[&str]) -> Decoded {
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
fn each_type_takes_its_values() {
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
    assert!(one(DataType::Boolean, r#"{"c":true}"#).as_boolean().value(0));
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

#[test]
fn a_wrong_type_is_a_bad_row_with_column_and_reason() {
    for (data_type, value, reason) in [
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
    ] {
        assert_eq!(fault(data_type, value), reason);
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
    let values: Vec<Value> = lines.iter().map(|record| value_of(record)).collect();
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
    assert_eq!(rows.column(0).as_ref(), &expected as &dyn Array);
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

fn encode(rows: &RecordBatch, mode: SinkMode, key: &[usize], options: &[(&str, &str)]) -> Vec<SinkRecord> {
    let changes = vec![Change::Put; rows.num_rows()];
    encode_changes(rows, mode, key, options, &changes).unwrap()
}

fn encode_changes(
    rows: &RecordBatch,
    mode: SinkMode,
    key: &[usize],
    options: &[(&str, &str)],
    changes: &[Change],
) -> Result<Vec<SinkRecord>, crate::ConnectorError> {
    let made = EncodeOptions {
        schema: rows.schema(),
        mode,
        key: key.to_vec(),
    };
    let options = options
        .iter()
        .map(|(name, text)| ((*name).to_owned(), (*text).to_owned()))
        .collect();
    let mut records = Vec::new();
    encoder("json", &made, &options)?.encode(rows, changes, &mut records)?;
    Ok(records)
}

fn text_of(record: &SinkRecord) -> &str {
    std::str::from_utf8(record.value.as_ref().unwrap()).unwrap()
}

fn value_of(record: &SinkRecord) -> Value {
    serde_json::from_slice(record.value.as_ref().unwrap()).unwrap()
}

#[test]
fn each_type_is_written_as_documented() {
    let array = |array: ArrayRef| array;
    let rows = RecordBatch::try_from_iter_with_nullable([
        (
            "i",
            array(Arc::new(Int64Array::from(vec![Some(i64::MIN), None]))),
            true,
        ),
        (
            "s",
            array(Arc::new(StringArray::from(vec!["a\"\\\n\u{1}é", ""]))),
            true,
        ),
        ("b", array(Arc::new(BooleanArray::from(vec![true, false]))), true),
        (
            "f",
            array(Arc::new(Float64Array::from(vec![1.5, f64::NAN]))),
            true,
        ),
        (
            "d",
            array(Arc::new(
                Decimal128Array::from(vec![-5, 123])
                    .with_precision_and_scale(10, 2)
                    .unwrap(),
            )),
            true,
        ),
        (
            "t",
            array(Arc::new(TimestampMicrosecondArray::from(vec![1_500_000, -1]))),
            true,
        ),
        (
            "z",
            array(Arc::new(
                TimestampMicrosecondArray::from(vec![0, 1]).with_timezone("UTC"),
            )),
            true,
        ),
        (
            "y",
            array(Arc::new(BinaryArray::from(vec![&b"\x00\xff"[..], b""]))),
            true,
        ),
    ])
    .unwrap();
    let lines = encode(&rows, SinkMode::Append, &[], &[]);
    assert_eq!(
        text_of(&lines[0]),
        r#"{"i":-9223372036854775808,"s":"a\"\\\n\u0001é","b":true,"f":1.5,"d":-0.05,"t":"1970-01-01T00:00:01.5","z":"1970-01-01T00:00:00Z","y":"AP8="}"#
    );
    assert_eq!(
        text_of(&lines[1]),
        r#"{"i":null,"s":"","b":false,"f":"NaN","d":1.23,"t":"1969-12-31T23:59:59.999999","z":"1970-01-01T00:00:00.000001Z","y":""}"#
    );
    assert!(lines.iter().all(|record| record.key.is_none()));
}

#[test]
fn timestamp_format_is_obeyed_on_the_way_out() {
    let stamps = Arc::new(TimestampMicrosecondArray::from(vec![1_500_000])) as ArrayRef;
    let rows = RecordBatch::try_from_iter([("t", stamps)]).unwrap();
    for (format, expected) in [
        ("iso8601", r#"{"t":"1970-01-01T00:00:01.5"}"#),
        ("unix_s", r#"{"t":1}"#),
        ("unix_ms", r#"{"t":1500}"#),
        ("unix_us", r#"{"t":1500000}"#),
        ("unix_ns", r#"{"t":1500000000}"#),
        ("%H:%M:%S \"", r#"{"t":"00:00:01 \""}"#),
    ] {
        let lines = encode(&rows, SinkMode::Append, &[], &[("timestamp.format", format)]);
        assert_eq!(text_of(&lines[0]), expected);
    }
}

#[test]
fn an_upsert_has_its_key_columns_as_key_and_deletes_by_tombstone() {
    let rows = RecordBatch::try_from_iter([
        ("a", Arc::new(Int64Array::from(vec![1, 2])) as ArrayRef),
        ("b", Arc::new(StringArray::from(vec!["x", "y"])) as ArrayRef),
    ])
    .unwrap();
    let changes = [Change::Put, Change::Delete];
    let records = encode_changes(&rows, SinkMode::Upsert, &[1, 0], &[], &changes).unwrap();
    assert_eq!(records[0].key.as_deref(), Some(&br#"{"b":"x","a":1}"#[..]));
    assert_eq!(records[0].value.as_deref(), Some(&br#"{"a":1,"b":"x"}"#[..]));
    assert_eq!(
        records[1],
        SinkRecord {
            key: Some(r#"{"b":"y","a":2}"#.into()),
            value: None
        }
    );
    assert!(encode_changes(&rows, SinkMode::Append, &[], &[], &changes).is_err());
    assert!(encode_changes(&rows, SinkMode::Upsert, &[], &[], &changes).is_err());
}

/// Documents of all shapes, with white space wherever it may stand.
fn document() -> impl Strategy<Value = String> {
    let scalar = prop_oneof![
        Just("null".to_owned()),
        any::<bool>().prop_map(|value| value.to_string()),
        any::<i64>().prop_map(|value| value.to_string()),
        any::<f64>()
            .prop_filter("JSON has no such number", |value| value.is_finite())
            .prop_map(|value| json!(value).to_string()),
        "-?(0|[1-9][0-9]{0,30})(\\.[0-9]{1,20})?([eE][+-]?[0-9]{1,3})?",
        any::<String>().prop_map(|value| json!(value).to_string()),
        r#""([a-z]{0,12}|\\u[0-9a-fA-F]{4}|\\[nrtbf/"\\]|é|😀){0,8}""#,
    ];
    let value = scalar.prop_recursive(4, 32, 5, |inner| {
        let name = prop_oneof![
            Just("a".to_owned()),
            Just("b".to_owned()),
            "[a-z]{1,20}",
            any::<String>()
        ];
        prop_oneof![
            (proptest::collection::vec(inner.clone(), 0..5), space())
                .prop_map(|(items, space)| format!("[{space}{}{space}]", items.join(&format!("{space},")))),
            object(name, inner),
        ]
    });
    object(
        prop_oneof![
            Just("a".to_owned()),
            Just("b".to_owned()),
            Just("c".to_owned()),
            any::<String>()
        ],
        value,
    )
}

fn space() -> impl Strategy<Value = &'static str> {
    prop_oneof![4 => Just(""), 1 => Just(" "), 1 => Just("\n\t\r ")]
}

fn object(
    name: impl Strategy<Value = String>,
    value: impl Strategy<Value = String>,
) -> impl Strategy<Value = String> {
    (proptest::collection::vec((name, value), 0..6), space()).prop_map(|(fields, space)| {
        let fields: Vec<String> = fields
            .iter()
            .map(|(name, value)| format!("{}{space}:{space}{value}", json!(name)))
            .collect();
        format!("{{{space}{}{space}}}", fields.join(&format!("{space},{space}")))
    })
}

/// What RFC 8259 says, told by serde_json.
fn is_object(record: &[u8]) -> bool {
    std::str::from_utf8(record).is_ok()
        && serde_json::from_slice::<serde::de::IgnoredAny>(record).is_ok()
        && record.trim_ascii_start().first() == Some(&b'{')
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1500))]

    #[test]
    fn every_document_is_taken_and_its_values_are_those_of_serde_json(document in document()) {
        let columns = [jsonb("a"), jsonb("b")];
        let decoded = decode(&columns, &[&document]);
        prop_assert!(decoded.bad.is_empty(), "{document}: {:?}", decoded.bad);
        // Values that serde_json cannot hold (lone surrogates, 1e999) are compared as text elsewhere.
        if let Ok(whole) = serde_json::from_str::<Value>(&document) {
            for (index, name) in ["a", "b"].into_iter().enumerate() {
                let column = decoded.rows.column(index).as_string::<i32>();
                let found = if column.is_null(0) { Value::Null } else { serde_json::from_str(column.value(0)).unwrap() };
                let exact = whole.get(name).cloned();
                let folded = whole.get(name.to_uppercase()).cloned();
                prop_assert_eq!(found, exact.or(folded).unwrap_or(Value::Null));
            }
        }
    }

    #[test]
    fn typed_values_are_those_of_serde_json_or_the_record_is_bad(document in document()) {
        let Ok(whole) = serde_json::from_str::<Value>(&document) else { return Ok(()) };
        let columns = [column("a", DataType::Int64), column("b", DataType::Utf8)];
        let decoded = decode(&columns, &[&document]);
        let Some(row) = (decoded.rows.num_rows() == 1).then_some(&decoded.rows) else {
            return Ok(());
        };
        if let Some(value) = whole.get("a") {
            let found = row.column(0).as_primitive::<Int64Type>();
            prop_assert_eq!(found.is_valid(0).then(|| found.value(0)), value.as_i64());
        }
        if let Some(value) = whole.get("b") {
            let found = row.column(1).as_string::<i32>();
            prop_assert_eq!(found.is_valid(0).then(|| found.value(0)), value.as_str());
        }
    }

    #[test]
    fn a_damaged_document_is_taken_if_and_only_if_it_still_is_json(
        document in document(),
        damage in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>(), 0..3), 1..4),
    ) {
        let mut record = document.into_bytes();
        for (at, byte, how) in damage {
            let at = at.index(record.len());
            match how {
                0 => record[at] = byte,
                1 => record.insert(at, br#"{}[]",:\0123e.-tfn u"#[usize::from(byte) % 20]),
                _ => drop(record.remove(at)),
            }
            if record.is_empty() {
                break;
            }
        }
        let decoded = decode_with(json_decoder(&[]).as_mut(), &[&record]);
        prop_assert_eq!(decoded.rows.num_rows() == 1, is_object(&record), "{:?}", String::from_utf8_lossy(&record));
        // Declared columns see the same text: they may refuse a value, but never take what is no JSON.
        let columns = [column("a", DataType::Int64), column("b", DataType::Utf8), column("c", timestamp())];
        let declared = decode_with(json_decoder(&columns).as_mut(), &[&record]);
        prop_assert!(declared.rows.num_rows() == 0 || is_object(&record));
    }

    #[test]
    fn a_batch_gives_what_its_records_give_alone(documents in proptest::collection::vec((document(), 0..4), 1..12)) {
        let columns = [jsonb("a"), column("b", DataType::Utf8), column("c", DataType::Int64)];
        let records: Vec<String> = documents
            .into_iter()
            .map(|(document, cut)| document.chars().take(if cut == 0 { document.len() / 2 } else { usize::MAX }).collect())
            .collect();
        let together = decode(&columns, &records.iter().map(String::as_str).collect::<Vec<_>>());
        let alone: Vec<Decoded> = records.iter().map(|record| decode(&columns, &[record.as_str()])).collect();
        let rows = alone.iter().map(|decoded| &decoded.rows);
        prop_assert_eq!(&together.rows, &arrow::compute::concat_batches(&together.rows.schema(), rows).unwrap());
        let reasons: Vec<_> = alone.iter().flat_map(|decoded| &decoded.bad).map(|bad| &bad.reason).collect();
        prop_assert_eq!(together.bad.iter().map(|bad| &bad.reason).collect::<Vec<_>>(), reasons);
    }

    #[test]
    fn what_is_written_reads_back(
        rows in proptest::collection::vec((any::<Option<i64>>(), any::<Option<String>>(), any::<Option<f64>>(), -60_000_000_000_000_000_i64..250_000_000_000_000_000), 1..20),
    ) {
        let floats: Float64Array = rows.iter().map(|row| row.2.filter(|value| !value.is_nan())).collect();
        let batch = RecordBatch::try_from_iter_with_nullable([
            ("i", Arc::new(rows.iter().map(|row| row.0).collect::<Int64Array>()) as ArrayRef, true),
            ("s", Arc::new(rows.iter().map(|row| row.1.as_deref()).collect::<StringArray>()) as ArrayRef, true),
            ("f", Arc::new(floats) as ArrayRef, true),
            ("t", Arc::new(TimestampMicrosecondArray::from_iter_values(rows.iter().map(|row| row.3))) as ArrayRef, true),
        ]).unwrap();
        let columns: Vec<_> = batch.schema().fields().iter().map(|field| column(field.name(), field.data_type().clone())).collect();
        let records = encode(&batch, SinkMode::Append, &[], &[]);
        let values: Vec<&[u8]> = records.iter().map(|record| record.value.as_deref().unwrap()).collect();
        let decoded = decode_with(json_decoder(&columns).as_mut(), &values);
        prop_assert_eq!(decoded.rows, batch);
    }
}

#[test]
fn the_schema_is_that_of_the_columns() {
    let decoder = json_decoder(&[column("a", DataType::Int64)]);
    let expected = Schema::new(vec![Field::new("a", DataType::Int64, true)]);
    assert_eq!(decoder.schema().as_ref(), &expected);
}
