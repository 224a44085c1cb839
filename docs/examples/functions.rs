//! Functions of your own in Rust: one from values to a value, one from the rows of a group to a value.
//!
//! `cargo run --example functions`
#![cfg_attr(
    not(test),
    expect(clippy::print_stdout, reason = "an example shows what it finds")
)]

use std::error::Error;
use std::sync::Arc;

use highwater::arrow::array::{ArrayRef, AsArray, Int64Array};
use highwater::arrow::datatypes::{DataType, Int64Type};
use highwater::{Accumulate, AggregateFunction, Database, HostError, ScalarFunction};

/// `clamped(value, most)`: arrays in, one array out. NULLs are the function's own business.
fn clamped() -> ScalarFunction {
    let types = vec![DataType::Int64, DataType::Int64];
    ScalarFunction::new("clamped", types, DataType::Int64, |columns| {
        let (values, most) = (
            columns[0].as_primitive::<Int64Type>(),
            columns[1].as_primitive::<Int64Type>(),
        );
        let pairs = values.iter().zip(most.iter());
        let clamped = pairs.map(|(value, most)| Some(value?.min(most?)));
        Ok(Arc::new(clamped.collect::<Int64Array>()))
    })
}

/// The distance between the largest and the smallest value of a group.
#[derive(Default)]
struct Spread(Option<(i64, i64)>);

impl Accumulate for Spread {
    fn add(&mut self, columns: &[ArrayRef]) -> Result<(), HostError> {
        for value in columns[0].as_primitive::<Int64Type>().iter().flatten() {
            let (low, high) = self.0.unwrap_or((value, value));
            self.0 = Some((low.min(value), high.max(value)));
        }
        Ok(())
    }

    fn result(&mut self) -> Result<ArrayRef, HostError> {
        let spread = self.0.map(|(low, high)| high - low);
        Ok(Arc::new(Int64Array::from(vec![spread])))
    }
}

fn spread() -> AggregateFunction {
    AggregateFunction::new("spread", vec![DataType::Int64], DataType::Int64, || {
        Box::<Spread>::default()
    })
}

/// Gives what the view shows of the two customers.
pub(crate) async fn run() -> Result<Vec<i64>, Box<dyn Error>> {
    let database = Database::builder()
        .with_scalar_function(clamped())
        .with_aggregate(spread())
        .in_memory()
        .await?;
    database
        .execute(
            "CREATE TABLE orders (customer VARCHAR, amount BIGINT);
             CREATE MATERIALIZED VIEW spreads AS
               SELECT customer, spread(clamped(amount, 100)) AS spread FROM orders GROUP BY customer;
             INSERT INTO orders VALUES ('ada', 10), ('ada', 4000), ('bob', 7), ('bob', 9);
             DELETE FROM orders WHERE amount = 9;",
        )
        .await?;
    let rows = database
        .query("SELECT spread FROM spreads ORDER BY customer")
        .await?;
    let mut spreads = Vec::new();
    for batch in &rows.batches {
        let column = batch.column(0).as_primitive::<Int64Type>();
        spreads.extend((0..column.len()).map(|row| column.value(row)));
    }
    database.close().await?;
    Ok(spreads)
}

#[cfg(not(test))]
#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    println!("{:?}", run().await?);
    Ok(())
}
