//! Highwater inside a Rust program: push rows, keep a view up to date, read it, follow it.
//!
//! `cargo run --example embed`
#![expect(clippy::print_stdout, reason = "an example shows what it finds")]

use std::error::Error;
use std::sync::Arc;

use futures::StreamExt;
use highwater::Database;
use highwater::arrow::array::{Int64Array, RecordBatch, StringArray};
use highwater::arrow::datatypes::{DataType, Field, Schema};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let database = Database::in_memory().await?;
    database
        .execute(
            "CREATE SOURCE orders (customer VARCHAR, amount BIGINT) WITH (connector = 'memory', topic = 'orders');
             CREATE MATERIALIZED VIEW spending AS
               SELECT customer, count(*) AS orders, sum(amount) AS total FROM orders GROUP BY customer;",
        )
        .await?;

    // Follow the view: first its rows as they are, then every change.
    let mut changes = database.subscribe("spending").await?;

    // Push rows, as columns in the order of the CREATE SOURCE statement.
    let schema = Arc::new(Schema::new(vec![
        Field::new("customer", DataType::Utf8, true),
        Field::new("amount", DataType::Int64, true),
    ]));
    let rows = RecordBatch::try_new(
        schema,
        vec![
            Arc::new(StringArray::from(vec!["ada", "bob", "ada"])),
            Arc::new(Int64Array::from(vec![10, 20, 32])),
        ],
    )?;
    database.memory_source("orders")?.push(rows)?;

    // The change arrives as soon as the step that made it is over; +1 is a row that is there now, -1 one that is gone.
    let change = changes.next().await.ok_or("the view is gone")??;
    println!(
        "step {}: {} rows changed, weights {:?}",
        change.step,
        change.rows.num_rows(),
        change.weights
    );

    // A query sees the end of a step, all views of a pipeline alike.
    let result = database
        .query("SELECT customer, orders, total FROM spending ORDER BY customer")
        .await?;
    for batch in &result.batches {
        println!("{batch:?}");
    }

    // Everything so far becomes durable (here it lives as long as the process).
    database.checkpoint().await?;
    database.close().await?;
    Ok(())
}
