//! `highwater run --until-caught-up`, and when that is.

use super::{COUNT_SQL, err, good, run, text};

#[test]
fn a_run_until_caught_up_ends_where_tables_alone_are_read_and_sources_are_not() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("a.sql");
    const TABLE: &str = "CREATE TABLE t (a BIGINT PRIMARY KEY); INSERT INTO t SELECT n FROM generate_series(1, 5000) AS g(n);";
    for (name, sql, end) in [
        ("tables", TABLE.to_owned(), "the script runs no query"),
        (
            "views",
            format!(
                "{TABLE} CREATE SOURCE unread WITH (connector = 'nexmark', rows.per.second = '10');
                 CREATE MATERIALIZED VIEW v AS SELECT count(*) AS n FROM t"
            ),
            "caught up",
        ),
        (
            "both",
            format!("{TABLE} {COUNT_SQL} CREATE MATERIALIZED VIEW v AS SELECT count(*) AS n FROM t"),
            "caught up",
        ),
    ] {
        std::fs::write(&file, sql).unwrap();
        let data = dir.path().join(name);
        let output = run(&["run", text(&file), "--data", text(&data), "--until-caught-up"]);
        assert_eq!(output.status.code(), Some(0), "{}", err(&output));
        assert!(
            err(&output).contains(&format!("highwater: {end}; the last checkpoint")),
            "{name}: {}",
            err(&output)
        );
        let view = if name == "tables" {
            "SELECT count(*) AS n FROM t"
        } else {
            "SELECT n FROM v"
        };
        let shown = good(&[text(&data), "--read-only", "--format", "csv", "-c", view]);
        assert_eq!(shown, "n\n5000\n", "{name}");
    }
}
