//! Plans over a small catalog, as EXPLAIN shows them.

mod batch;
mod dml;
mod joins;
mod messages;
mod refusals;

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::datatypes::{DataType, TimeUnit};

use super::*;
use crate::catalog::{
    ColumnDef, ColumnOrigin, MaterializedViewDef, Object, ObjectBody, ObjectId, SourceDef, ViewDef,
    WatermarkDef,
};
use crate::parse::parse_query;
use crate::plan::explain::explain;
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
        changes: None,
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
    add_reading(catalog, name, &[], body);
}

fn add_reading(catalog: &mut Catalog, name: &str, depends_on: &[String], body: ObjectBody) {
    let id = ObjectId(u32::try_from(catalog.iter().count()).unwrap());
    catalog.insert(Arc::new(Object {
        id,
        name: name.into(),
        definition: String::new(),
        depends_on: depends_on.to_vec(),
        body,
    }));
}

fn add_view(catalog: &mut Catalog, name: &str, text: &str) {
    let planned = plan_logical_view(catalog, &parse_query(text).unwrap(), &[]).unwrap();
    let body = ObjectBody::View(ViewDef {
        schema: planned.schema,
        query: text.into(),
    });
    add_reading(catalog, name, &planned.depends_on, body);
}

fn add_materialized(catalog: &mut Catalog, name: &str, text: &str) {
    let planned = plan_view(catalog, &parse_query(text).unwrap(), &[], ViewOptions::default()).unwrap();
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
    plan_view(
        &catalog(),
        parse_query(text)?.as_ref(),
        &[],
        ViewOptions::emitting(emit),
    )
}

fn planned(text: &str) -> StreamPlan {
    plan_of(text, false)
        .unwrap_or_else(|e| panic!("{text}: {e:?}"))
        .plan
}

#[track_caller]
fn assert_plan(text: &str, expected: &[&str]) {
    let shown = explain(&planned(text), false);
    assert_eq!(shown.lines().collect::<Vec<_>>(), expected, "\n{text}\n{shown}");
}

#[track_caller]
fn error_of(text: &str) -> SqlError {
    plan_of(text, false)
        .err()
        .unwrap_or_else(|| panic!("planned: {text}"))
}

/// Message and what stands at the position of an error.
#[track_caller]
fn message_at(text: &str) -> (String, &str) {
    let error = error_of(text);
    let position = error.position.unwrap_or_else(|| panic!("no position: {error:?}"));
    (error.message, &text[position..])
}

fn types(plan: &StreamPlan) -> Vec<String> {
    plan.root()
        .schema
        .fields()
        .iter()
        .map(|f| format!("{} {}", f.name(), lower_type(f.data_type())))
        .collect()
}

fn lower_type(data_type: &DataType) -> String {
    match data_type {
        DataType::Decimal128(p, s) => format!("numeric({p},{s})"),
        other => sql_type_name(other),
    }
}

const WATERMARK: &str = "watermark date_time - interval '4 s'";

#[test]
fn a_filter_and_a_projection_run_on_the_lane() {
    assert_plan(
        "SELECT auction, price * 2 AS twice FROM bids WHERE price > 100",
        &[
            "Project: auction, price * 2 AS twice [lane]",
            "  Filter: price > 100 [lane]",
            &format!("    Source bids: auction, price; {WATERMARK} [lane]"),
        ],
    );
}

#[test]
fn only_the_columns_that_are_needed_are_decoded() {
    let plan = planned("SELECT day FROM bids");
    let StreamOp::SourceScan(scan) = &plan.nodes[0].op else {
        panic!("{:?}", plan.nodes[0].op)
    };
    assert_eq!(
        scan.decoded,
        [4],
        "date_time, for the generated column and the watermark"
    );
    assert_eq!(scan.generated.len(), 1);
    assert_eq!(scan.output, [1]);
    assert_eq!(plan.nodes.len(), 1);
}

#[test]
fn a_projection_that_only_picks_and_renames_makes_no_node_of_its_own() {
    let plan = planned("SELECT * FROM (SELECT price AS p, auction FROM bids) t");
    assert_eq!(types(&plan), ["p bigint", "auction bigint"]);
    assert_eq!(plan.nodes.len(), 2, "the scan, and the order of the result");
    assert_eq!(planned("SELECT auction AS a, price FROM bids").nodes.len(), 1);
}

#[test]
fn a_source_that_is_read_twice_is_scanned_once() {
    assert_plan(
        "SELECT auction FROM dear UNION ALL SELECT bidder FROM bids",
        &[
            "Union",
            "  Project: auction [lane]",
            "    Filter: price > 100 [lane]",
            &format!("      Source bids: auction, bidder, price; {WATERMARK} [lane]"),
            "  Project: bidder AS auction [lane]",
            &format!("    Source bids: auction, bidder, price; {WATERMARK} (the same scan as above)"),
        ],
    );
}

#[test]
fn a_window_over_event_time_closes_its_groups() {
    let text = "SELECT auction, window_end, count(*) AS n FROM TUMBLE(bids, date_time, INTERVAL '10' SECOND)
                GROUP BY auction, window_end";
    assert_plan(
        text,
        &[
            "Aggregate: count(*) BY auction, window_end; closes at window_end",
            "  Window: TUMBLE(10 s) over date_time [lane]",
            &format!("    Source bids: auction, date_time; {WATERMARK} [lane]"),
        ],
    );
    let plan = planned(text);
    assert_eq!(plan.root().key, Some(vec![0, 1]));
    assert_eq!(plan.root().event_time, Some(1));
    assert!(!plan.root().append_only);
    assert!(plan.notices.is_empty());
    let emitted = plan_of(text, true).unwrap().plan;
    assert!(emitted.root().append_only);
    assert!(explain(&emitted, false).contains("; emits on close"));
}

#[test]
fn a_group_by_window_start_closes_one_size_later() {
    let plan = planned(
        "SELECT s, max(price) FROM (SELECT window_start AS s, price
           FROM HOP(bids, date_time, INTERVAL '2' SECOND, INTERVAL '10' SECOND)) w GROUP BY s",
    );
    assert!(
        explain(&plan, false).contains("closes at window_start + 10 s"),
        "{}",
        explain(&plan, false)
    );
    assert_eq!(plan.root().event_time, None);
    let kinds: Vec<WindowKind> = plan
        .nodes
        .iter()
        .filter_map(|n| match n.op {
            StreamOp::Window { kind, .. } => Some(kind),
            _ => None,
        })
        .collect();
    assert_eq!(
        kinds,
        [WindowKind::Hop {
            size_us: 10_000_000,
            slide_us: 2_000_000,
            offset_us: 0
        }]
    );
}

#[test]
fn windows_stand_over_views_queries_and_ctes_and_in_flinks_spelling() {
    for text in [
        "SELECT count(*) FROM TUMBLE(dear, date_time, INTERVAL '1' MINUTE) GROUP BY window_end",
        "SELECT count(*) FROM TUMBLE((SELECT * FROM bids WHERE price > 1), date_time, INTERVAL '1' MINUTE) GROUP BY window_end",
        "WITH b AS (SELECT * FROM bids) SELECT count(*) FROM TUMBLE(b, date_time, INTERVAL '60' SECOND) AS w GROUP BY w.window_end",
        "SELECT count(*) FROM TABLE(TUMBLE(TABLE bids, DESCRIPTOR(date_time), INTERVAL '60' SECONDS)) GROUP BY window_end",
    ] {
        let shown = explain(&planned(text), false);
        assert!(shown.contains("closes at window_end"), "{text}\n{shown}");
        assert!(shown.contains("TUMBLE(1 min) over date_time"), "{text}\n{shown}");
    }
}

#[test]
fn windows_of_windows_close_too() {
    let plan = planned(
        "SELECT window_end, max(n) FROM TUMBLE(
             (SELECT window_end AS e, count(*) AS n FROM TUMBLE(bids, date_time, INTERVAL '10' SECOND) GROUP BY window_end),
             e, INTERVAL '1' MINUTE)
         GROUP BY window_end",
    );
    let shown = explain(&plan, false);
    assert_eq!(shown.matches("closes at window_end").count(), 2, "{shown}");
}

#[test]
fn aggregates_have_the_types_of_postgresql() {
    let plan = planned(
        "SELECT count(*), count(price) AS n, sum(price), sum(quantity) AS q, sum(rate) AS r, sum(cost) AS c,
                avg(price), avg(quantity) AS aq, avg(rate) AS ar, avg(cost) AS ac, min(channel), max(date_time)
         FROM bids",
    );
    assert_eq!(
        types(&plan),
        [
            "count bigint",
            "n bigint",
            "sum numeric(38,0)",
            "q bigint",
            "r double precision",
            "c numeric(38,2)",
            "avg numeric(38,16)",
            "aq numeric(38,16)",
            "ar double precision",
            "ac numeric(38,16)",
            "min character varying",
            "max timestamp without time zone",
        ]
    );
    let StreamOp::Aggregate(aggregate) = &plan
        .nodes
        .iter()
        .rev()
        .find(|n| matches!(n.op, StreamOp::Aggregate(_)))
        .unwrap()
        .op
    else {
        panic!()
    };
    assert_eq!(aggregate.calls[0].argument, None);
    assert_eq!(plan.root().key, Some(vec![]));
}

#[test]
fn arguments_filters_and_groups_are_computed_once_before_the_aggregate() {
    assert_plan(
        "SELECT lower(channel) AS c, sum(price * 2), count(DISTINCT bidder) FILTER (WHERE price > 3), max(price * 2)
         FROM bids GROUP BY lower(channel) HAVING count(*) > 1",
        &[
            "Project: lower(channel) AS c, sum(price * 2) AS sum, count(DISTINCT bidder) FILTER (WHERE price > 3) AS count, max(price * 2) AS max",
            "  Filter: count(*) > 1",
            "    Aggregate: sum(price * 2), count(DISTINCT bidder) FILTER (WHERE price > 3), max(price * 2), count(*) BY lower(channel); never closes",
            "      Project: lower(channel), price * 2, bidder, price > 3 [lane]",
            &format!("        Source bids: bidder, price, channel; {WATERMARK} [lane]"),
            "NOTICE: nothing cleans the state of GROUP BY lower(channel). It grows with the number of groups: group by a window over event time to bound it.",
        ],
    );
}

#[test]
fn distinct_is_a_group_by_that_only_ever_inserts() {
    let plan = planned("SELECT DISTINCT auction FROM bids");
    assert!(plan.root().append_only);
    assert!(
        explain(&plan, false).starts_with("Distinct BY auction; never closes"),
        "{}",
        explain(&plan, false)
    );
    let union = planned("SELECT auction FROM bids UNION SELECT bidder FROM bids");
    assert!(
        explain(&union, false).starts_with("Distinct BY auction"),
        "{}",
        explain(&union, false)
    );
}

#[test]
fn a_materialized_view_is_read_with_its_key() {
    let plan = planned("SELECT total, auction FROM totals WHERE total > 10");
    assert_eq!(plan.root().key, Some(vec![1]));
    assert!(!plan.root().append_only);
    assert!(plan.notices.is_empty());
}

#[test]
fn columns_are_called_as_postgresql_calls_them() {
    let plan = planned(
        "SELECT bids.auction, price * 2, lower(channel), date_time::date, CASE WHEN price > 1 THEN 1 END, \"price\" AS \"P\" FROM bids",
    );
    let names: Vec<&str> = plan
        .root()
        .schema
        .fields()
        .iter()
        .map(|f| f.name().as_str())
        .collect();
    assert_eq!(names, ["auction", "?column?", "lower", "date_time", "case", "P"]);
}

#[test]
fn listed_column_names_come_first_and_must_fit() {
    let names = |text: &str, columns: &[&str]| {
        let columns: Vec<String> = columns.iter().map(|c| (*c).to_owned()).collect();
        plan_view(
            &catalog(),
            parse_query(text).unwrap().as_ref(),
            &columns,
            ViewOptions::default(),
        )
    };
    let planned = names("SELECT auction, price FROM bids", &["a"]).unwrap();
    assert_eq!(types(&planned.plan), ["a bigint", "price bigint"]);
    let error = names("SELECT auction FROM bids", &["a", "b"]).unwrap_err();
    assert_eq!(
        error.message,
        "CREATE VIEW specifies more column names than columns"
    );
    let error = names("SELECT auction, price FROM bids", &["price"]).unwrap_err();
    assert_eq!(error.message, "column \"price\" specified more than once");
}

#[test]
fn a_plan_names_what_it_reads() {
    let reads = |text: &str| plan_of(text, false).unwrap().depends_on;
    assert_eq!(reads("SELECT auction FROM dear"), ["dear"]);
    assert_eq!(
        reads("SELECT auction FROM totals UNION ALL SELECT bidder FROM bids"),
        ["bids", "totals"]
    );
    assert_eq!(
        reads("WITH totals AS (SELECT auction FROM bids) SELECT * FROM totals"),
        ["bids"]
    );
    assert_eq!(
        reads("SELECT count(*) FROM TUMBLE(bids, date_time, INTERVAL '1' SECOND)"),
        ["bids"]
    );
}

#[test]
fn order_by_without_limit_has_no_effect_and_says_so() {
    let plan = planned("SELECT auction FROM bids ORDER BY price");
    assert_eq!(
        plan.notices,
        ["ORDER BY without LIMIT has no effect in a streaming query"]
    );
    assert_eq!(types(&plan), ["auction bigint"]);
}

#[test]
fn planning_twice_gives_the_same_plan() {
    let text = "SELECT channel, window_end, avg(price), count(DISTINCT bidder) FROM HOP(bids, date_time, INTERVAL '1' SECOND, INTERVAL '5' SECOND) WHERE channel LIKE 'a%' GROUP BY 1, 2";
    let prints = |plan: &StreamPlan| {
        plan.nodes
            .iter()
            .map(|n| n.fingerprint.clone())
            .collect::<Vec<_>>()
    };
    let first = prints(&planned(text));
    for _ in 0..8 {
        assert_eq!(prints(&planned(text)), first);
    }
    assert!(first.iter().all(|f| !f.is_empty()));
}

#[test]
fn a_source_checks_what_it_computes() {
    let with = |change: &dyn Fn(&mut SourceDef)| {
        let mut def = bids();
        change(&mut def);
        check_source(&def)
    };
    let generated = |text: &str| ColumnOrigin::Generated(text.to_owned());
    with(&|_| {}).unwrap();
    let error = with(&|d| {
        d.watermark = Some(WatermarkDef {
            column: 2,
            expression: "price".into(),
        })
    })
    .unwrap_err();
    assert_eq!(error.message, "column \"price\" is of type bigint");
    let error = with(&|d| {
        d.watermark = Some(WatermarkDef {
            column: 4,
            expression: "price + 1".into(),
        })
    })
    .unwrap_err();
    assert_eq!(error.message, "the watermark expression is of type bigint");
    let error = with(&|d| {
        d.watermark = Some(WatermarkDef {
            column: 4,
            expression: "dat_time".into(),
        })
    })
    .unwrap_err();
    assert_eq!(error.message, "column \"dat_time\" does not exist");
    assert_eq!(error.hint.as_deref(), Some("Did you mean \"date_time\"?"));
    let error = with(&|d| d.columns[0].origin = generated("day + 1")).unwrap_err();
    assert_eq!(
        error.message,
        "a generated column that uses another generated column is not supported"
    );
    let error = with(&|d| d.columns[0].origin = generated("max(price)")).unwrap_err();
    assert_eq!(
        error.message,
        "an aggregate function in an expression of a source is not supported"
    );
    let error = with(&|d| d.columns[0].origin = generated("now()::date - date '2024-01-01'")).unwrap_err();
    assert_eq!(error.state, SqlState::FeatureNotSupported);
    let error = with(&|d| d.columns[1].name = "auction".into()).unwrap_err();
    assert_eq!(error.state, SqlState::DuplicateColumn);
}

#[test]
fn a_sink_must_be_able_to_say_what_its_query_does() {
    let updating = planned("SELECT auction, sum(price) AS total FROM bids GROUP BY auction");
    let error = plan_sink_checks(&updating, false, &[]).unwrap_err();
    assert_eq!(error.state, SqlState::FeatureNotSupported);
    assert_eq!(
        error.detail.as_deref(),
        Some("A row of its GROUP BY changes as more rows of the group come.")
    );
    assert_eq!(plan_sink_checks(&updating, true, &[0]), Ok(Vec::new()));
    let odd = plan_sink_checks(&updating, true, &[1]).unwrap();
    assert_eq!(
        odd,
        [
            "primary_key (total) is not known to be unique: the last of several rows with the same key wins. \
          The rows of the query are told apart by primary_key = 'auction'."
        ]
    );
    let error = plan_sink_checks(&updating, true, &[]).unwrap_err();
    assert_eq!(
        error.hint.as_deref(),
        Some("The rows of the query are told apart by primary_key = 'auction'.")
    );
    let append = planned("SELECT auction FROM bids");
    assert_eq!(plan_sink_checks(&append, false, &[]), Ok(Vec::new()));
}

#[test]
fn views_stand_on_views_up_to_a_depth() {
    let mut catalog = catalog();
    for level in 1..=15 {
        let below = if level == 1 {
            "dear".to_owned()
        } else {
            format!("v{}", level - 1)
        };
        add_view(
            &mut catalog,
            &format!("v{level}"),
            &format!("SELECT auction, price + 1 AS price FROM {below}"),
        );
    }
    let planned = plan_view(
        &catalog,
        &parse_query("SELECT * FROM v15").unwrap(),
        &[],
        ViewOptions::default(),
    )
    .unwrap();
    assert_eq!(planned.depends_on, ["v15"]);
    let text = "SELECT auction, price FROM v15";
    add_view(&mut catalog, "v16", text);
    let error = plan_view(
        &catalog,
        &parse_query("SELECT * FROM v16").unwrap(),
        &[],
        ViewOptions::default(),
    )
    .unwrap_err();
    assert_eq!(error.state, SqlState::StatementTooComplex);
}
