//! One-shot reads, run by DataFusion.

use arrow::array::{Array, ArrayRef, AsArray, Int32Array, Int64Array, TimestampMicrosecondArray};
use arrow::datatypes::{Int64Type, TimestampMicrosecondType};
use arrow::record_batch::RecordBatch;
use datafusion::datasource::{MemTable, provider_as_source};
use datafusion::logical_expr::TableSource;
use datafusion::prelude::SessionContext;

use super::*;

/// Rows of bids; columns that are not given are NULL.
fn rows(given: &[(&str, ArrayRef)]) -> RecordBatch {
    let schema = schema_of_source(&bids());
    let length = given[0].1.len();
    let columns =
        schema.fields().iter().map(
            |field| match given.iter().find(|(name, _)| name == field.name()) {
                Some((_, array)) => Arc::clone(array),
                None => arrow::array::new_null_array(field.data_type(), length),
            },
        );
    RecordBatch::try_new(Arc::clone(&schema), columns.collect()).unwrap()
}

async fn run(text: &str, rows: RecordBatch) -> Result<RecordBatch, String> {
    let table = MemTable::try_new(rows.schema(), vec![vec![rows]]).unwrap();
    let table = provider_as_source(Arc::new(table));
    let resolver = |schema: Option<&str>, name: &str| -> Option<Arc<dyn TableSource>> {
        (schema.is_none() && name == "bids").then(|| Arc::clone(&table))
    };
    let planned = plan_select(&catalog(), &parse_query(text).unwrap(), &resolver).map_err(|e| e.message)?;
    let context = SessionContext::new();
    let frame = context
        .execute_logical_plan(planned.plan)
        .await
        .map_err(|e| e.to_string())?;
    let batches = frame.collect().await.map_err(|e| e.to_string())?;
    let schema = batches[0].schema();
    Ok(arrow::compute::concat_batches(&schema, &batches).unwrap())
}

fn times(values: &[Option<i64>]) -> ArrayRef {
    Arc::new(TimestampMicrosecondArray::from(values.to_vec()))
}

/// Pairs of time and start of a window that DataFusion finds.
async fn windows(call: &str, at: &[Option<i64>]) -> Vec<(i64, i64, i64)> {
    let text = format!("SELECT date_time, window_start, window_end FROM {call} ORDER BY 1, 2");
    let batch = run(&text, rows(&[("date_time", times(at))])).await.unwrap();
    let column = |n: usize| batch.column(n).as_primitive::<TimestampMicrosecondType>().clone();
    (0..batch.num_rows())
        .map(|row| (column(0).value(row), column(1).value(row), column(2).value(row)))
        .collect()
}

const TIMES: [Option<i64>; 11] = [
    Some(-10_000_001),
    Some(-10_000_000),
    Some(-9_999_999),
    Some(-3_000_001),
    Some(-1),
    None,
    Some(0),
    Some(1),
    Some(6_999_999),
    Some(7_000_000),
    Some(25_000_000),
];

fn expected(kind: WindowKind) -> Vec<(i64, i64, i64)> {
    let times = TIMES.iter().flatten();
    times
        .flat_map(|t| {
            kind.starts(*t)
                .flat_map(move |s| kind.ends(s, *t).map(move |end| (*t, s, end)))
        })
        .collect()
}

#[tokio::test]
async fn windows_agree_with_the_stream_before_the_epoch_and_with_offsets() {
    let seconds = 1_000_000;
    for (call, kind) in [
        (
            "TUMBLE(bids, date_time, INTERVAL '10' SECOND)",
            WindowKind::Tumble {
                size_us: 10 * seconds,
                offset_us: 0,
            },
        ),
        (
            "TUMBLE(bids, date_time, INTERVAL '10' SECOND, INTERVAL '-3' SECOND)",
            WindowKind::Tumble {
                size_us: 10 * seconds,
                offset_us: -3 * seconds,
            },
        ),
        (
            "HOP(bids, date_time, INTERVAL '3' SECOND, INTERVAL '10' SECOND, INTERVAL '1' SECOND)",
            WindowKind::Hop {
                size_us: 10 * seconds,
                slide_us: 3 * seconds,
                offset_us: seconds,
            },
        ),
        (
            "CUMULATE(bids, date_time, INTERVAL '2' SECOND, INTERVAL '8' SECOND, INTERVAL '3' SECOND)",
            WindowKind::Cumulate {
                size_us: 8 * seconds,
                step_us: 2 * seconds,
                offset_us: 3 * seconds,
            },
        ),
        (
            "HOP(bids, date_time, INTERVAL '10' SECOND, INTERVAL '4' SECOND)",
            WindowKind::Hop {
                size_us: 4 * seconds,
                slide_us: 10 * seconds,
                offset_us: 0,
            },
        ),
    ] {
        assert_eq!(windows(call, &TIMES).await, expected(kind), "{call}");
    }
}

#[tokio::test]
async fn integer_overflow_is_an_error_in_one_shot_reads() {
    let row = || rows(&[("price", Arc::new(Int64Array::from(vec![i64::MAX])) as ArrayRef)]);
    for text in [
        "SELECT price + 1 FROM bids",
        "SELECT * FROM bids WHERE price * 2 > 3",
    ] {
        let error = run(text, row()).await.unwrap_err();
        assert!(error.to_lowercase().contains("overflow"), "{error}");
    }
    assert!(run("SELECT price - 1 FROM bids", row()).await.is_ok());
}

#[tokio::test]
async fn one_shot_reads_have_the_types_of_streaming_queries() {
    let text =
        "SELECT count(*), sum(price), avg(quantity), sum(quantity) AS q, min(channel), max(day) FROM bids";
    let quantities = Arc::new(Int32Array::from(vec![1, 2, 2])) as ArrayRef;
    let prices = Arc::new(Int64Array::from(vec![i64::MAX, i64::MAX, 1])) as ArrayRef;
    let batch = run(text, rows(&[("quantity", quantities), ("price", prices)]))
        .await
        .unwrap();
    let streaming = planned(text);
    let types = |schema: &arrow::datatypes::Schema| {
        schema
            .fields()
            .iter()
            .map(|f| f.data_type().clone())
            .collect::<Vec<_>>()
    };
    assert_eq!(types(&batch.schema()), types(&streaming.root().schema));
    assert_eq!(batch.column(0).as_primitive::<Int64Type>().value(0), 3);
    let text = |n: usize| arrow::util::display::array_value_to_string(batch.column(n), 0).unwrap();
    assert_eq!(text(1), "18446744073709551615");
    assert_eq!(text(2), "1.6666666666666667");
}

#[tokio::test]
async fn one_shot_reads_may_use_all_of_sql() {
    let prices = Arc::new(Int64Array::from(vec![3, 1, 2])) as ArrayRef;
    let text =
        "SELECT a.price, row_number() OVER (ORDER BY a.price) FROM bids a JOIN bids b ON a.price = b.price
                WHERE a.price IN (SELECT price FROM bids) ORDER BY a.price DESC LIMIT 2";
    let batch = run(text, rows(&[("price", prices)])).await.unwrap();
    assert_eq!(batch.column(0).as_primitive::<Int64Type>().values(), &[3, 2]);
}

#[test]
fn column_names_of_one_shot_reads_need_not_differ() {
    let none = |_: Option<&str>, _: &str| -> Option<Arc<dyn TableSource>> { None };
    let query = parse_query("SELECT count(*), count(*), price * 1 FROM bids GROUP BY price").unwrap();
    let planned = plan_select(&catalog(), &query, &none).unwrap();
    assert_eq!(planned.columns, ["count", "count", "?column?"]);
}

#[test]
fn system_tables_are_found_by_schema_and_name() {
    let table = MemTable::try_new(schema_of_source(&bids()), vec![vec![]]).unwrap();
    let table = provider_as_source(Arc::new(table));
    let resolver = |schema: Option<&str>, name: &str| -> Option<Arc<dyn TableSource>> {
        (schema == Some("hw") && name == "lanes").then(|| Arc::clone(&table))
    };
    let plan = |text: &str| plan_select(&catalog(), &parse_query(text).unwrap(), &resolver);
    assert_eq!(plan("SELECT price FROM hw.lanes").unwrap().columns, ["price"]);
    let error = plan("SELECT price FROM hw.lines").unwrap_err();
    assert_eq!(error.message, "relation \"hw.lines\" does not exist");
}
