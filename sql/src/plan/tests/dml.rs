//! Statements that change tables: the queries that are planned for them, and what is refused.

use datafusion::datasource::MemTable;
use datafusion::datasource::provider_as_source;
use datafusion::logical_expr::TableSource;
use datafusion::prelude::SessionContext;

use super::*;
use crate::parse::parse;
use crate::resolve::resolve_table;
use crate::statement::Statement;

const TABLE: &str = "CREATE TABLE t (id INT PRIMARY KEY, name VARCHAR DEFAULT 'none', at TIMESTAMP, \
                     price NUMERIC(8, 2), twice INT AS id * 2)";

fn tables() -> Catalog {
    let mut catalog = Catalog::default();
    let parsed = parse(TABLE).unwrap().remove(0);
    let Statement::CreateTable(table) = &parsed.statement else {
        panic!("a table");
    };
    add(
        &mut catalog,
        "t",
        ObjectBody::Table(resolve_table(table, &|_| None).unwrap()),
    );
    catalog
}

/// The rows that a statement changes, as text, run by DataFusion over an empty table.
async fn changed(sql: &str) -> Result<Vec<String>, SqlError> {
    let catalog = tables();
    let object = Arc::clone(catalog.get("t").unwrap());
    let ObjectBody::Table(def) = &object.body else {
        panic!("a table");
    };
    let table = TableRef {
        name: "t",
        def,
        user: None,
    };
    let empty = MemTable::try_new(Arc::clone(def.schema()), vec![vec![]]).unwrap();
    let empty = provider_as_source(Arc::new(empty));
    let resolver = |_: Option<&str>, name: &str| -> Option<Arc<dyn TableSource>> {
        (name == "t").then(|| Arc::clone(&empty))
    };
    let parsed = parse(sql)?.remove(0);
    let planned = match &parsed.statement {
        Statement::Insert(insert) => plan_insert(&catalog, table, insert, &resolver),
        Statement::Update(update) => plan_update(&catalog, table, update, &resolver),
        Statement::Delete(delete) => plan_delete(&catalog, table, delete, &resolver),
        other => panic!("{other:?}"),
    }?;
    let frame = SessionContext::new().execute_logical_plan(planned.plan).await;
    let batches = frame.map_err(translate)?.collect().await.map_err(translate)?;
    let mut lines = Vec::new();
    for batch in &batches {
        for row in 0..batch.num_rows() {
            let cells = batch
                .columns()
                .iter()
                .map(|column| arrow::util::display::array_value_to_string(column, row).unwrap());
            lines.push(cells.collect::<Vec<_>>().join("|"));
        }
    }
    Ok(lines)
}

#[tokio::test]
async fn an_insert_gives_all_columns_in_their_order_and_types() {
    for (sql, expected) in [
        (
            "INSERT INTO t VALUES (1, 'a', '2024-01-01', 1.005)",
            "1|a|2024-01-01T00:00:00|1.01|2",
        ),
        ("INSERT INTO t (price, id) VALUES ('7', 2.4)", "2|none||7.00|4"),
        ("INSERT INTO t (id, name) VALUES (3, DEFAULT)", "3|none|||6"),
        ("INSERT INTO t (id, name) SELECT 2 + 2, NULL", "4||||8"),
        (
            "INSERT INTO t SELECT '5', 6, DATE '2024-01-02', 1",
            "5|6|2024-01-02T00:00:00|1.00|10",
        ),
        ("INSERT INTO t (id) VALUES ((SELECT 6))", "6|none|||12"),
    ] {
        assert_eq!(changed(sql).await.unwrap(), [expected], "{sql}");
    }
    let planned = changed("UPDATE t SET id = id + 1 WHERE name = 'x'").await;
    assert_eq!(planned.unwrap(), [""; 0]);
    assert_eq!(
        changed("DELETE FROM t AS x WHERE x.id > 1").await.unwrap(),
        [""; 0]
    );
}

#[tokio::test]
async fn values_that_do_not_fit_are_refused_at_their_place() {
    for (sql, state, place) in [
        ("INSERT INTO t VALUES (true)", SqlState::DatatypeMismatch, "true)"),
        (
            "INSERT INTO t VALUES (1, 'a', 5)",
            SqlState::DatatypeMismatch,
            "5)",
        ),
        (
            "INSERT INTO t VALUES (1, 'a', 'x')",
            SqlState::InvalidDatetimeFormat,
            "'x')",
        ),
        (
            "INSERT INTO t VALUES (upper('a'))",
            SqlState::DatatypeMismatch,
            "upper('a'))",
        ),
        (
            "INSERT INTO t (id, nam) VALUES (1, 2)",
            SqlState::UndefinedColumn,
            "nam) VALUES (1, 2)",
        ),
        (
            "INSERT INTO t (id, name) VALUES (1)",
            SqlState::SyntaxError,
            "name) VALUES (1)",
        ),
        ("INSERT INTO t VALUES (x)", SqlState::UndefinedColumn, "x)"),
        ("UPDATE t SET at = id", SqlState::DatatypeMismatch, "id"),
        ("UPDATE t SET nam = 1", SqlState::UndefinedColumn, "nam = 1"),
        ("UPDATE t SET twice = 1", SqlState::GeneratedAlways, "twice = 1"),
        (
            "UPDATE t SET id = 1 WHERE nam = 1",
            SqlState::UndefinedColumn,
            "nam = 1",
        ),
        (
            "DELETE FROM t WHERE nothing",
            SqlState::UndefinedColumn,
            "nothing",
        ),
    ] {
        let error = changed(sql).await.expect_err(sql);
        assert_eq!(error.state, state, "{sql}: {error:?}");
        let at = error.position.unwrap_or_else(|| panic!("{sql}: {error:?}"));
        assert_eq!(&sql[at..], place, "{sql}: {error:?}");
    }
}

#[test]
fn a_view_over_a_table_knows_its_key_and_that_its_rows_change() {
    let query = parse_query("SELECT id, name FROM t WHERE price > 1").unwrap();
    let planned = plan_view(&tables(), &query, &[], ViewOptions::default()).unwrap();
    assert_eq!(planned.depends_on, ["t"]);
    let root = planned.plan.root();
    assert_eq!((root.key.as_deref(), root.append_only), (Some(&[0][..]), false));
    assert!(explain(&planned.plan, false).contains("Table t: "));
}
