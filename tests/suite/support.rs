//! What several tests need: rows as text, and waiting for a database to have taken everything.

use std::time::{Duration, Instant};

use arrow::array::{Array, AsArray, RecordBatch};
use arrow::datatypes::Int64Type;
use highwater::text::ColumnText;
use highwater::{Database, Rows};

/// Nothing in a test takes this long unless it hangs.
const PATIENCE: Duration = Duration::from_secs(120);

/// The cells of rows as text, NULL as `NULL`.
pub(crate) fn cells(batches: &[RecordBatch]) -> Vec<Vec<String>> {
    let mut rows = Vec::new();
    for batch in batches {
        let columns: Vec<_> = batch.columns().iter().map(ColumnText::new).collect();
        for row in 0..batch.num_rows() {
            let cells = columns.iter().map(|column| {
                let mut cell = String::new();
                if column.write(row, &mut cell) {
                    cell
                } else {
                    "NULL".to_owned()
                }
            });
            rows.push(cells.collect());
        }
    }
    rows
}

/// Rows as sorted lines of text, NULL as `NULL`.
pub(crate) fn lines(batches: &[RecordBatch]) -> Vec<String> {
    let mut lines: Vec<String> = cells(batches).iter().map(|cells| cells.join("|")).collect();
    lines.sort_unstable();
    lines
}

/// The rows of a query as sorted lines.
pub(crate) async fn rows(database: &Database, sql: &str) -> Vec<String> {
    let rows: Rows = database
        .query(sql)
        .await
        .unwrap_or_else(|error| panic!("{sql}: {error} {:?}", error.detail()));
    lines(&rows.batches)
}

/// A single number.
pub(crate) async fn number(database: &Database, sql: &str) -> i64 {
    let rows = database
        .query(sql)
        .await
        .unwrap_or_else(|error| panic!("{sql}: {error}"));
    let batch = rows
        .batches
        .iter()
        .find(|batch| batch.num_rows() > 0)
        .expect("one row");
    let column = batch.column(0).as_primitive::<Int64Type>();
    if column.is_null(0) { 0 } else { column.value(0) }
}

/// Waits until `sql` gives `expected`.
pub(crate) async fn until(database: &Database, sql: &str, expected: i64) {
    let deadline = Instant::now() + PATIENCE;
    // Asking costs a plan each time: what is not there at once is asked for less and less often.
    let mut pause = Duration::from_millis(2);
    loop {
        let found = number(database, sql).await;
        if found == expected {
            return;
        }
        if Instant::now() > deadline {
            let queries = rows(database, "SELECT name, state, error, detail FROM hw.queries").await;
            let lanes = rows(database, "SELECT * FROM hw.lanes").await;
            panic!("{sql} gives {found} and not {expected}; {queries:#?} {lanes:#?}");
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(Duration::from_millis(32));
    }
}
