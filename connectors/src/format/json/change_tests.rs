//! What records of changes say of rows, and why some say nothing.

use std::sync::Arc;

use arrow::array::{Array, AsArray};
use arrow::datatypes::{DataType, Field, Int64Type};

use super::tests::column;
use crate::format::{ChangeFormat, Changes, DecodeColumn, Decoded, change_decoder};
use crate::options::OptionMap;
use crate::source::{PartitionId, RawPayload};

fn columns() -> Vec<DecodeColumn> {
    let required = |name: &str, data_type| DecodeColumn {
        field: Arc::new(Field::new(name, data_type, false)),
        ..column(name, DataType::Utf8)
    };
    vec![
        column("name", DataType::Utf8),
        required("id", DataType::Int64),
        required("n", DataType::Int64),
    ]
}

fn decoded(format: ChangeFormat, records: &[(Option<&str>, Option<&str>)]) -> Decoded {
    let changes = Changes { format, key: vec![1] };
    let mut decoder = change_decoder("json", &columns(), &changes, &OptionMap::new()).unwrap();
    let payloads: Vec<_> = (0..)
        .zip(records)
        .map(|(offset, (key, value))| RawPayload {
            value: value.map(str::as_bytes),
            key: key.map(str::as_bytes),
            offset,
            timestamp_ms: None,
            headers: None,
        })
        .collect();
    decoder.decode(PartitionId(0), &payloads).unwrap()
}

/// Each row as `name|id|n`, a row that is gone with a minus before it.
fn lines(decoded: &Decoded) -> Vec<String> {
    let rows = &decoded.rows;
    let deleted = decoded.deleted.as_ref().unwrap();
    let names = rows.column(0).as_string::<i32>();
    let number = |at: usize, row: usize| {
        let column = rows.column(at).as_primitive::<Int64Type>();
        match column.is_null(row) {
            true => "-".to_owned(),
            false => column.value(row).to_string(),
        }
    };
    (0..rows.num_rows())
        .map(|row| {
            let name = if names.is_null(row) { "-" } else { names.value(row) };
            let sign = if deleted[row] { "-" } else { "" };
            format!("{sign}{name}|{}|{}", number(1, row), number(2, row))
        })
        .collect()
}

#[test]
fn the_key_of_an_upsert_is_an_object_or_a_value_or_stands_in_the_row() {
    let decoded = decoded(
        ChangeFormat::Upsert,
        &[
            (Some(r#"{"id": 1}"#), Some(r#"{"name": "Ann", "n": 5, "id": 99}"#)),
            (Some("2"), Some(r#"{"name": "Bob", "n": 6}"#)),
            (None, Some(r#"{"id": 3, "n": 7}"#)),
            (Some(r#"{"schema": {}, "payload": {"id": 4}}"#), None),
            (Some(" 5 "), None),
        ],
    );
    assert_eq!(
        lines(&decoded),
        ["Ann|1|5", "Bob|2|6", "-|3|7", "--|4|-", "--|5|-"]
    );
    assert!(decoded.bad.is_empty() && decoded.tombstones == 0);
}

#[test]
fn a_record_without_its_key_or_a_value_that_must_be_there_is_bad_and_hurts_no_other() {
    let decoded = decoded(
        ChangeFormat::Upsert,
        &[
            (None, None),
            (None, Some(r#"{"name": "x", "n": 1}"#)),
            (Some("1"), Some(r#"{"name": "x"}"#)),
            (Some("1"), Some(r#"{"name": "x", "n": null}"#)),
            (Some("one"), Some(r#"{"n": 1}"#)),
            (Some("1"), Some("[]")),
            (Some(r#"{"id": "1"}"#), None),
            (Some("8"), Some(r#"{"n": 8}"#)),
        ],
    );
    assert_eq!(lines(&decoded), ["-|8|8"]);
    let offsets: Vec<i64> = decoded.bad.iter().map(|bad| bad.offset).collect();
    assert_eq!(offsets, [0, 1, 2, 3, 4, 5, 6]);
    assert_eq!(decoded.bad[2].column.as_deref(), Some("n"));
}

#[test]
fn a_text_key_may_stand_without_quotes() {
    let columns = [
        DecodeColumn {
            field: Arc::new(Field::new("k", DataType::Utf8, false)),
            ..column("k", DataType::Utf8)
        },
        column("v", DataType::Int64),
    ];
    let changes = Changes {
        format: ChangeFormat::Upsert,
        key: vec![0],
    };
    let mut decoder = change_decoder("json", &columns, &changes, &OptionMap::new()).unwrap();
    let keys = ["user-1", r#""user-2""#, r#"{"k": "user-3"}"#, "12"];
    let payloads: Vec<_> = (0..)
        .zip(keys)
        .map(|(offset, key)| RawPayload {
            value: Some(br#"{"v": 1}"#.as_slice()),
            key: Some(key.as_bytes()),
            offset,
            timestamp_ms: None,
            headers: None,
        })
        .collect();
    let decoded = decoder.decode(PartitionId(0), &payloads).unwrap();
    let found: Vec<_> = decoded
        .rows
        .column(0)
        .as_string::<i32>()
        .iter()
        .flatten()
        .collect();
    assert_eq!(found, ["user-1", "user-2", "user-3", "12"]);
}

#[test]
fn an_envelope_gives_the_row_after_a_change_and_the_key_of_one_that_is_gone() {
    let decoded = decoded(
        ChangeFormat::Debezium,
        &[
            (
                None,
                Some(r#"{"before": null, "after": {"id": 1, "name": "Ann", "n": 5}, "op": "c"}"#),
            ),
            (
                None,
                Some(r#"{"schema": {"x": [1]}, "payload": {"op": "r", "after": {"n": 6, "id": 2}}}"#),
            ),
            (
                None,
                Some(r#"{"op": "u", "before": {"id": 1}, "after": {"id": 1, "n": 8}, "ts_ms": 1}"#),
            ),
            (
                None,
                Some(r#"{"op": "d", "before": {"id": 2, "name": null}, "after": null}"#),
            ),
            (Some(r#"{"id": 2}"#), None),
            (
                Some(r#"{"schema": null, "payload": {"id": 1}}"#),
                Some(r#"{"op": "d", "before": null}"#),
            ),
            (None, Some(r#"{"schema": null, "payload": null}"#)),
        ],
    );
    assert_eq!(lines(&decoded), ["Ann|1|5", "-|2|6", "-|1|8", "--|2|-", "--|1|-"]);
    assert_eq!((decoded.bad.len(), decoded.tombstones), (0, 2));
}

#[test]
fn what_is_no_envelope_is_bad_and_says_why() {
    let decoded = decoded(
        ChangeFormat::Debezium,
        &[
            (None, Some(r#"{"id": 1}"#)),
            (None, Some(r#"{"op": "t"}"#)),
            (None, Some(r#"{"op": "c", "after": null}"#)),
            (None, Some(r#"{"op": "d", "before": null}"#)),
            (None, Some(r#"{"op": "c", "after": {"id": 1}} x"#)),
            (None, Some("")),
            (None, Some(r#"{"op": "c", "after": {"name": "no key", "n": 1}}"#)),
        ],
    );
    assert_eq!(decoded.rows.num_rows(), 0);
    assert_eq!(decoded.bad.len(), 7);
    assert!(
        decoded.bad[0].reason.contains("no \"op\""),
        "{}",
        decoded.bad[0].reason
    );
    assert!(
        decoded.bad[1].reason.contains("\"t\""),
        "{}",
        decoded.bad[1].reason
    );
    assert_eq!(decoded.bad[6].column.as_deref(), Some("id"));
}
