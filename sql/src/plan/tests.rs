//! Plans over a small catalog, as EXPLAIN shows them.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::datatypes::{DataType, TimeUnit};

use super::*;
use crate::catalog::{
    ColumnDef, ColumnOrigin, MaterializedViewDef, Object, ObjectBody, ObjectId, SourceDef, ViewDef,
    WatermarkDef,
};
use crate::explain::explain;
use crate::parse::parse_query;
use crate::statement::Include;
use crate::stream_plan::{StreamOp, WindowKind};

fn micros() -> DataType {
    DataType::Timestamp(TimeUnit::Microsecond, None)
}

fn column(name: &str, data_type: DataType) -> ColumnDef {
    ColumnDef {
        name: name.into(),
        data_type,
        nullable: true,
        origin: ColumnOrigin::Field,
    }
}

fn source(columns: Vec<ColumnDef>, watermark: Option<(usize, &str)>) -> SourceDef {
    SourceDef {
        columns,
        watermark: watermark.map(|(column, text)| WatermarkDef {
            column,
            expression: text.into(),
        }),
        connector: "memory".into(),
        options: BTreeMap::new(),
        encode: None,
        encode_options: BTreeMap::new(),
    }
}

fn bids() -> SourceDef {
    let mut columns = vec![
        column("auction", DataType::Int64),
        column("bidder", DataType::Int64),
        column("price", DataType::Int64),
        column("channel", DataType::Utf8),
        column("date_time", micros()),
        column("quantity", DataType::Int32),
        column("rate", DataType::Float64),
        column("cost", DataType::Decimal128(10, 2)),
    ];
    columns.push(ColumnDef {
        origin: ColumnOrigin::Generated("date_time::date".into()),
        ..column("day", DataType::Date32)
    });
    columns.push(ColumnDef {
        origin: ColumnOrigin::Include(Include::Timestamp),
        ..column(
            "kts",
            DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())),
        )
    });
    source(columns, Some((4, "date_time - INTERVAL '4' SECOND")))
}

fn add(catalog: &mut Catalog, name: &str, body: ObjectBody) {
    let id = ObjectId(u32::try_from(catalog.iter().count()).unwrap());
    catalog.insert(Arc::new(Object {
        id,
        name: name.into(),
        definition: String::new(),
        depends_on: Vec::new(),
        body,
    }));
}

fn add_view(catalog: &mut Catalog, name: &str, text: &str) {
    let planned = plan_logical_view(catalog, &parse_query(text).unwrap(), &[]).unwrap();
    add(
        catalog,
        name,
        ObjectBody::View(ViewDef {
            schema: planned.schema,
            query: text.into(),
        }),
    );
}

fn add_materialized(catalog: &mut Catalog, name: &str, text: &str) {
    let planned = plan_view(catalog, &parse_query(text).unwrap(), &[], false).unwrap();
    let def = MaterializedViewDef {
        plan: Arc::new(planned.plan),
        query: text.into(),
    };
    add(catalog, name, ObjectBody::MaterializedView(def));
}

fn catalog() -> Catalog {
    let mut catalog = Catalog::default();
    add(&mut catalog, "bids", ObjectBody::Source(bids()));
    let clicks = vec![column("user_id", DataType::Int64), column("at", micros())];
    add(&mut catalog, "clicks", ObjectBody::Source(source(clicks, None)));
    add_view(
        &mut catalog,
        "dear",
        "SELECT auction, price, date_time FROM bids WHERE price > 100",
    );
    add_materialized(
        &mut catalog,
        "totals",
        "SELECT auction, sum(price) AS total FROM bids GROUP BY auction",
    );
    catalog
}

fn plan_of(text: &str, emit: bool) -> Result<PlannedQuery, SqlError> {
    plan_view(&catalog(), &parse_query(text)?, &[], emit)
}

fn planned(text: &str) -> StreamPlan {
    plan_of(text, false)
        .unwrap_or_else(|e| panic!("{text}: {e:?}"))
        .plan
}

#[track_caller]
fn assert_plan(text: &str, expected: &str) {
    let shown = explain(&planned(text), false);
    let expected: Vec<&str> = expected.lines().map(|l| l.trim_start_matches("    |")).collect();
    assert_eq!(shown.trim_end(), expected.join("\n").trim(), "\n{shown}");
}

#[track_caller]
fn error_of(text: &str) -> SqlError {
    plan_of(text, false)
        .err()
        .unwrap_or_else(|| panic!("planned: {text}"))
}

#[test]
fn a_filter_and_a_projection_run_on_the_lane() {
    println!(
        "{}",
        explain(
            &planned("SELECT auction, price * 2 AS twice FROM bids WHERE price > 100"),
            true
        )
    );
    println!(
        "{}",
        explain(
            &planned(
                "SELECT auction, window_end, count(*), sum(price), avg(quantity) FROM TUMBLE(bids, date_time, INTERVAL '10' SECOND) GROUP BY auction, window_end"
            ),
            true
        )
    );
    println!(
        "{}",
        explain(
            &planned("SELECT auction FROM dear UNION ALL SELECT bidder FROM bids"),
            true
        )
    );
    println!(
        "{}",
        explain(&planned("SELECT total FROM totals WHERE total > 3"), true)
    );
    println!(
        "{}",
        explain(&planned("SELECT DISTINCT lower(channel), day FROM bids"), true)
    );
}
