//! JSON of all shapes, whole and damaged, held against serde_json; and what is written reads back.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, Float64Array, Int64Array, RecordBatch, StringArray, TimestampMicrosecondArray,
};
use arrow::datatypes::{DataType, Int64Type};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::encode_tests::encode;
use super::tests::{column, decode, decode_with, json_decoder, jsonb, texts, timestamp};
use crate::format::Decoded;
use crate::sink::SinkMode;

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
        // JSONB does not take what no text and no number has.
        if let [bad] = decoded.bad.as_slice() {
            let is_known = ["\\u0000", "surrogate", "out of range for JSONB"].iter().any(|odd| bad.reason.contains(odd));
            prop_assert!(is_known, "{document}: {bad:?}");
            return Ok(());
        }
        // Values that serde_json cannot hold (lone surrogates, 1e999) are compared as text elsewhere.
        if let Ok(whole) = serde_json::from_str::<Value>(&document) {
            for (index, name) in ["a", "b"].into_iter().enumerate() {
                let column = texts(decoded.rows.column(index));
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
            // serde_json keeps `-0` as a float; as an integer it is zero.
            let expected = value.as_i64().or_else(|| (value.as_f64() == Some(0.0)).then_some(0));
            prop_assert_eq!(found.is_valid(0).then(|| found.value(0)), expected);
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
