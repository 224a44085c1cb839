//! Rows to JSON records.

use std::sync::Arc;

use arrow::array::{
    ArrayRef, BinaryArray, BooleanArray, Decimal128Array, Float64Array, Int64Array, RecordBatch, StringArray,
    TimestampMicrosecondArray,
};
use serde_json::Value;

use crate::format::{Change, EncodeOptions, encoder};
use crate::sink::{SinkMode, SinkRecord};

pub(super) fn encode(
    rows: &RecordBatch,
    mode: SinkMode,
    key: &[usize],
    options: &[(&str, &str)],
) -> Vec<SinkRecord> {
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

pub(super) fn value_of(record: &SinkRecord) -> Value {
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
