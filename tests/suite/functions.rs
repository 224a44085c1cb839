//! Functions of the program that embeds the database.

use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, Int64Array};
use arrow::datatypes::{DataType, Int64Type};
use highwater::{Database, DatabaseBuilder, ScalarFunction};

use crate::support::{rows, until};

#[path = "../../docs/examples/functions.rs"]
mod example;

fn doubled() -> ScalarFunction {
    ScalarFunction::new("doubled", vec![DataType::Int64], DataType::Int64, |columns| {
        let values = columns[0].as_primitive::<Int64Type>().iter();
        Ok(Arc::new(
            values
                .map(|value| value.map(|value| value * 2))
                .collect::<Int64Array>(),
        ) as ArrayRef)
    })
}

/// Fails on 13 and panics on 14.
fn touchy() -> ScalarFunction {
    ScalarFunction::new("touchy", vec![DataType::Int64], DataType::Int64, |columns| {
        let values = columns[0].as_primitive::<Int64Type>();
        if values.iter().flatten().any(|value| value == 13) {
            return Err("thirteen is not liked".into());
        }
        assert!(
            !values.iter().flatten().any(|value| value == 14),
            "fourteen is too much"
        );
        Ok(Arc::clone(&columns[0]))
    })
}

fn builder() -> DatabaseBuilder {
    Database::builder()
        .with_scalar_function(doubled())
        .with_scalar_function(touchy())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_example_of_functions_shows_what_its_view_has() {
    assert_eq!(example::run().await.unwrap(), [90, 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_view_whose_function_is_not_registered_fails_alone_and_goes_on_when_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let database = builder().open(dir.path()).await.unwrap();
    database
        .execute(
            "CREATE TABLE t (v BIGINT);
             CREATE MATERIALIZED VIEW twice AS SELECT doubled(v) AS d FROM t;
             CREATE MATERIALIZED VIEW plain AS SELECT v FROM t;
             INSERT INTO t VALUES (4)",
        )
        .await
        .unwrap();
    database.close().await.unwrap();

    let database = Database::open(dir.path()).await.unwrap();
    let failed = "SELECT name, state FROM hw.queries WHERE state = 'FAILED' ORDER BY name";
    let shown = rows(&database, failed).await;
    assert_eq!(shown.len(), 1, "{shown:?}");
    assert!(format!("{shown:?}").contains("twice"), "{shown:?}");
    let error = database.query("SELECT doubled(1)").await.unwrap_err();
    assert!(error.message().contains("doubled"), "{error:?}");
    let resumed = database.execute("ALTER MATERIALIZED VIEW twice RESUME").await;
    assert_eq!(
        resumed.map(drop).unwrap_err().message(),
        "function doubled is not registered"
    );
    database.execute("INSERT INTO t VALUES (5)").await.unwrap();
    assert_eq!(
        rows(&database, "SELECT v FROM plain ORDER BY v").await,
        ["4", "5"]
    );
    database.close().await.unwrap();

    // It has missed a change, so it is built anew.
    let database = builder().open(dir.path()).await.unwrap();
    database
        .execute("ALTER MATERIALIZED VIEW twice RESUME")
        .await
        .unwrap();
    until(&database, "SELECT count(*) FROM twice", 2).await;
    assert_eq!(rows(&database, "SELECT d FROM twice").await, ["10", "8"]);
    database.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_error_and_a_panic_of_a_function_fail_the_query_that_called_it() {
    let database = builder().in_memory().await.unwrap();
    for (sql, told) in [
        ("SELECT touchy(13)", "function touchy failed"),
        ("SELECT touchy(14)", "function touchy panicked"),
    ] {
        let error = database.query(sql).await.unwrap_err();
        assert_eq!(error.sqlstate(), "38000", "{error:?}");
        assert_eq!(error.message(), told);
    }
    assert_eq!(rows(&database, "SELECT touchy(1), doubled(21)").await, ["1|42"]);
    let error = database.query("SELECT doubled(true)").await.unwrap_err();
    assert_eq!(error.sqlstate(), "42883");
    let taken = Database::builder()
        .with_scalar_function(ScalarFunction::new("lower", vec![], DataType::Int64, |columns| {
            Ok(Arc::clone(&columns[0]))
        }))
        .in_memory()
        .await;
    assert_eq!(taken.map(drop).unwrap_err().sqlstate(), "42723");
}
