//! Queries over views, as DataFusion plans them.

use std::sync::Mutex;

use arrow::array::{ArrayRef, Int64Array, StringArray};
use arrow::datatypes::{DataType, Field};
use arrow::util::pretty::pretty_format_batches;
use datafusion::catalog::streaming::StreamingTable;
use datafusion::common::tree_node::TreeNode;
use datafusion::execution::TaskContext;
use datafusion::logical_expr::{ColumnarValue, Expr, Volatility, create_udf};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::streaming::{PartitionStream, StreamingTableExec};
use datafusion::prelude::SessionContext;
use datafusion::scalar::ScalarValue;
use highwater_storage::{CheckpointWriter, Durability, Epoch, MemoryStore};
use tokio::sync::oneshot;

use super::*;
use crate::engine::delta::Delta;

fn schema() -> SchemaRef {
    Arc::new(Schema::new(vec![
        Field::new("k", DataType::Int64, true),
        Field::new("name", DataType::Utf8, true),
        Field::new("n", DataType::Int64, false),
    ]))
}

/// Rows `(k, "name k", k * 10)`, half of them in the store and half not yet.
fn view(rows: i64) -> ViewProvider {
    let readers = Readers {
        own: reader(rows),
        indexes: Vec::new(),
    };
    ViewProvider::new("v", readers)
}

fn reader(rows: i64) -> ViewReader {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let layout = ViewLayout::choose(Some(&[0]), false);
    let mut view = ViewStore::open(Arc::clone(&store), ObjectId(1), schema(), layout).unwrap();
    for (from, to) in [(0, rows / 2), (rows / 2, rows)] {
        let k = Int64Array::from_iter_values(from..to);
        let name = StringArray::from_iter_values((from..to).map(|k| format!("name {k}")));
        let n = Int64Array::from_iter_values((from..to).map(|k| k * 10));
        let columns: Vec<ArrayRef> = vec![Arc::new(k), Arc::new(name), Arc::new(n)];
        let change = view
            .base()
            .prepare(&[Delta::inserts(RecordBatch::try_new(schema(), columns).unwrap())])
            .unwrap();
        view.apply(change);
        if from == 0
            && let Some(frozen) = view.freeze()
        {
            let mut writer = CheckpointWriter::new(Epoch(1));
            frozen.write(&mut writer).unwrap();
            store.commit(writer.finish(), Durability::Sync).unwrap();
            view.thaw();
        }
    }
    view.reader()
}

/// Runs a plan to its end.
async fn collect(
    runtime: &Handle,
    plan: LogicalPlan,
    columns: &[String],
) -> Result<(SchemaRef, Vec<RecordBatch>)> {
    collected(stream(runtime, Work::Plan(plan), columns, &[]).await?).await
}

async fn plan(context: &SessionContext, sql: &str) -> (LogicalPlan, Vec<String>) {
    let plan = context.sql(sql).await.unwrap().into_unoptimized_plan();
    let columns = plan
        .schema()
        .fields()
        .iter()
        .map(|field| field.name().clone())
        .collect();
    (plan, columns)
}

fn context(rows: i64) -> SessionContext {
    let context = SessionContext::new();
    context.register_table("v", Arc::new(view(rows))).unwrap();
    context
}

async fn answer(sql: &str) -> Result<String> {
    let (plan, columns) = plan(&context(10), sql).await;
    let (_, batches) = collect(&Handle::current(), plan, &columns).await?;
    let table = pretty_format_batches(&batches).unwrap().to_string();
    let rows = table.lines().filter(|line| line.starts_with("| ")).skip(1);
    let cells = |line: &str| {
        line.trim_matches('|')
            .split('|')
            .map(|cell| cell.trim().to_owned())
            .collect::<Vec<_>>()
    };
    Ok(rows
        .map(|line| cells(line).join(","))
        .collect::<Vec<_>>()
        .join(";"))
}

#[tokio::test(flavor = "multi_thread")]
async fn queries_over_stored_and_changed_rows_have_the_right_answers() {
    let cases = [
        (
            "SELECT n, k FROM v WHERE k BETWEEN 4 AND 5 ORDER BY k",
            "40,4;50,5",
        ),
        ("SELECT count(*), sum(n), min(name) FROM v", "10,450,name 0"),
        ("SELECT count(*) FROM v AS a JOIN v AS b ON a.k = b.k + 1", "9"),
        ("SELECT name FROM v WHERE k = 7", "name 7"),
        ("SELECT k FROM v WHERE k > 2 AND k <= 6 ORDER BY k", "3;4;5;6"),
        ("SELECT n FROM v WHERE k >= 8", "80;90"),
        ("SELECT k FROM v WHERE k < 2 ORDER BY k DESC", "1;0"),
        ("SELECT k FROM v WHERE k > 4 ORDER BY k LIMIT 2", "5;6"),
        ("SELECT k FROM v WHERE k IN (9, 1, 77, 1) ORDER BY k", "1;9"),
        ("SELECT k FROM v WHERE k > 5 AND k < 3", ""),
        ("SELECT k FROM v ORDER BY k LIMIT 3", "0;1;2"),
        ("SELECT name FROM v WHERE k = 2 AND n = 20", "name 2"),
        ("SELECT name FROM v WHERE 2 = k AND n = 21", ""),
        ("SELECT count(*) FROM v WHERE k = 77", "0"),
        ("SELECT count(*) FROM v WHERE k = NULL", "0"),
        (
            "SELECT k % 3 AS r, count(*) FROM v GROUP BY r ORDER BY r",
            "0,4;1,3;2,3",
        ),
        ("SELECT k FROM v LIMIT 2", "0;1"),
        ("SELECT 1 + 1", "2"),
    ];
    for (sql, expected) in cases {
        assert_eq!(answer(sql).await.unwrap(), expected, "{sql}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn columns_have_the_names_of_the_user_even_when_they_are_alike() {
    let (plan, _) = plan(&context(3), "SELECT k, n FROM v").await;
    let names = ["x".to_owned(), "x".to_owned()];

    let (schema, batches) = collect(&Handle::current(), plan.clone(), &names).await.unwrap();

    assert_eq!(
        schema
            .fields()
            .iter()
            .map(|field| field.name().as_str())
            .collect::<Vec<_>>(),
        ["x", "x"]
    );
    assert!(batches.iter().all(|batch| batch.schema() == schema));
    let error = collect(&Handle::current(), plan, &names[..1]).await.unwrap_err();
    assert_eq!(error.sqlstate(), "XX000");
}

/// What is read of the view for these filters.
fn access(filters: &[Expr]) -> Access {
    let reader = reader(10);
    let choice = Conditions::of(filters, reader.schema()).choose(&[&reader]);
    choice.unwrap().access
}

#[test]
fn filters_on_the_key_choose_what_is_read() {
    use datafusion::prelude::{col, lit};
    let keys = |access: Access| match access {
        Access::Keys(keys) => keys.len(),
        other => panic!("{other:?}"),
    };
    let equals = |column: &str, value: ScalarValue| col(column).eq(Expr::Literal(value, None));
    assert_eq!(
        keys(access(&[
            equals("n", ScalarValue::from(1_i64)),
            equals("k", ScalarValue::from(7_i64))
        ])),
        1
    );
    assert_eq!(
        keys(access(&[
            col("k").in_list(vec![lit(1_i64), lit(2_i64), lit(1_i64)], false)
        ])),
        2
    );
    assert_eq!(
        keys(access(&[
            equals("k", ScalarValue::from(1_i64)).or(lit(2_i64).eq(col("k")))
        ])),
        2
    );
    let contradiction = [
        equals("k", ScalarValue::from(1_i64)),
        equals("k", ScalarValue::from(2_i64)),
    ];
    assert_eq!(keys(access(&contradiction)), 0);
    for scan in [
        equals("n", ScalarValue::from(7_i64)),
        equals("k", ScalarValue::from(7_i32)),
        equals("k", ScalarValue::Int64(None)),
        equals("k", ScalarValue::from(1_i64)).or(equals("n", ScalarValue::from(2_i64))),
        col("k").in_list(vec![lit(1_i64)], true),
    ] {
        assert_eq!(access(std::slice::from_ref(&scan)), Access::Scan, "{scan}");
    }
    assert!(matches!(access(&[col("k").gt(lit(3_i64))]), Access::Ranges(ranges) if ranges.len() == 1));
    let empty = [col("k").gt(lit(3_i64)), col("k").lt(lit(3_i64))];
    assert_eq!(access(&empty), Access::Ranges(Vec::new()));
}

/// What the scans of a query read, as their debug text.
async fn scans(sql: &str) -> String {
    let context = context(10);
    let physical = context
        .sql(sql)
        .await
        .unwrap()
        .create_physical_plan()
        .await
        .unwrap();
    let mut scans = String::new();
    let walked = physical.apply(|node| {
        if let Some(scan) = node.downcast_ref::<StreamingTableExec>() {
            scans += &format!("{:?}", scan.partitions());
        }
        Ok(TreeNodeRecursion::Continue)
    });
    walked.unwrap();
    scans
}

#[tokio::test]
async fn a_scan_decodes_the_wanted_columns_and_looks_up_a_whole_key() {
    let scan = scans("SELECT n FROM v WHERE n > 3").await;
    assert!(scan == "[Reads v: scan]", "{scan}");

    let scan = scans("SELECT n FROM v WHERE k = 3 AND n > 3").await;
    assert!(scan == "[Reads v: lookup by key (k)]", "{scan}");
}

#[tokio::test(flavor = "multi_thread")]
async fn runtime_errors_have_their_sqlstate() {
    let error = answer("SELECT 10 / (k - 3) FROM v").await.unwrap_err();
    assert_eq!((error.sqlstate(), error.message()), ("22012", "division by zero"));

    let error = answer("SELECT CAST(name AS BIGINT) FROM v").await.unwrap_err();
    assert_eq!(error.sqlstate(), "22P02");
    assert!(error.message().contains("name 0"), "{}", error.message());

    let error =
        translate(DataFusionError::ResourcesExhausted("Failed to allocate\nmore".to_owned()).context("sort"));
    assert_eq!((error.sqlstate(), error.message()), ("53200", "out of memory"));
    assert_eq!(error.detail(), Some("Failed to allocate."));
}

#[test]
fn an_error_of_a_view_comes_out_of_all_its_wrappings() {
    use crate::engine::error::EngineError;
    let inner = || DataFusionError::External(Box::new(EngineError::recovery("a stored row is corrupt")));
    let wrapped = [
        inner(),
        inner().context("scan"),
        DataFusionError::from(ArrowError::ExternalError(Box::new(inner()))),
        DataFusionError::Shared(Arc::new(inner())),
        DataFusionError::Collection(vec![inner(), inner()]),
    ];
    for error in wrapped {
        let error = translate(error);
        assert_eq!(
            (error.sqlstate(), error.message()),
            ("XX001", "a stored row is corrupt")
        );
    }
    let shared = Arc::new(inner());
    let error = translate(DataFusionError::Shared(Arc::clone(&shared)));
    assert_eq!(error.sqlstate(), "XX001");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_panic_becomes_an_error_and_the_next_query_runs() {
    let context = context(10);
    let function = |_: &[ColumnarValue]| panic!("the function is broken");
    let types = vec![DataType::Int64];
    context.register_udf(create_udf(
        "broken",
        types,
        DataType::Int64,
        Volatility::Volatile,
        Arc::new(function),
    ));
    let (broken, columns) = plan(&context, "SELECT broken(k) FROM v").await;

    let error = collect(&Handle::current(), broken, &columns).await.unwrap_err();

    assert_eq!(
        (error.sqlstate(), error.message()),
        ("XX000", "the query crashed")
    );
    assert_eq!(error.detail(), Some("The panic says: the function is broken"));
    assert_eq!(answer("SELECT count(*) FROM v").await.unwrap(), "10");
}

/// A stream without an end that says when it is dropped.
#[derive(Debug)]
struct Endless {
    schema: SchemaRef,
    dropped: Mutex<Option<oneshot::Sender<()>>>,
}

impl PartitionStream for Endless {
    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn execute(&self, _context: Arc<TaskContext>) -> SendableRecordBatchStream {
        let guard = self.dropped.lock().unwrap().take();
        let column: ArrayRef = Arc::new(Int64Array::from(vec![1]));
        let batch = RecordBatch::try_new(Arc::clone(&self.schema), vec![column]).unwrap();
        let batches = futures::stream::repeat_with(move || {
            let _held = &guard;
            Ok(batch.clone())
        });
        Box::pin(RecordBatchStreamAdapter::new(Arc::clone(&self.schema), batches))
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_come_before_the_query_ends_and_a_dropped_query_ends() {
    let (sender, dropped) = oneshot::channel();
    let schema = Arc::new(Schema::new(vec![Field::new("x", DataType::Int64, false)]));
    let endless = Endless {
        schema: Arc::clone(&schema),
        dropped: Mutex::new(Some(sender)),
    };
    let context = SessionContext::new();
    let table = StreamingTable::try_new(schema, vec![Arc::new(endless)]).unwrap();
    context.register_table("endless", Arc::new(table)).unwrap();
    let (plan, columns) = plan(&context, "SELECT x + 1 AS y FROM endless").await;

    let mut rows = stream(&Handle::current(), Work::Plan(plan), &columns, &[])
        .await
        .unwrap();
    assert!(rows.next().await.unwrap().is_some());
    drop(rows);

    // The sender is dropped with the stream, unused.
    assert!(dropped.await.is_err());
}

#[test]
fn a_stored_view_shows_the_last_checkpoint() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let node = PlanNode {
        op: highwater_sql::stream_plan::StreamOp::Union,
        inputs: Vec::new(),
        schema: schema(),
        append_only: false,
        key: None,
        event_time: None,
        fingerprint: String::new(),
    };

    assert_eq!(stored_view(&store, ObjectId(3), &node).unwrap().rows(), 0);
}
