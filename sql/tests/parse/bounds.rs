//! The depth and the length that a text may have.

use std::time::{Duration, Instant};

use highwater_sql::SqlState;
use highwater_sql::parse::parse;

#[test]
fn deep_nesting_is_an_error_and_no_overflow() {
    let n = 100_000;
    let cases = [
        format!("SELECT {}1{}", "(".repeat(n), ")".repeat(n)),
        format!("SELECT {}", "(".repeat(n)),
        format!("SELECT {}1", "- ".repeat(n)),
        format!("SELECT {}true", "NOT ".repeat(n)),
        format!("SELECT {}1", "INTERVAL ".repeat(n)),
        format!("SELECT 1{}", " + 1".repeat(n)),
        format!("SELECT 1{}", "::int".repeat(n)),
        format!("SELECT 1{}", " UNION ALL SELECT 1".repeat(n)),
        format!("SELECT {}1", "CASE WHEN ".repeat(n)),
        format!("SELECT a{}", "[1]".repeat(n)),
        format!("SELECT {}1", "CASE ".repeat(n)),
        format!("SELECT * FROM {}a{}", "(".repeat(n), ")".repeat(n)),
        format!("CREATE SOURCE s (a {}INT)", "ARRAY<".repeat(n)),
        format!("CREATE SOURCE s (a {}INT)", "STRUCT<a ".repeat(n)),
        format!("CREATE SOURCE s (a INT{})", "[]".repeat(n)),
        format!("{}SELECT 1", "EXPLAIN ".repeat(n)),
        format!("SELECT {}1", "/* ".repeat(n)),
    ];
    for sql in cases {
        let error = parse(&sql).expect_err(&sql[..40]);
        assert!(error.position.is_some(), "{error:?}");
    }
}

#[test]
fn chains_of_queries_are_as_long_as_planning_allows() {
    let chain = |n: usize| vec!["SELECT id FROM t"; n].join(" UNION ALL ");
    for what in [
        "CREATE MATERIALIZED VIEW v AS",
        "CREATE VIEW v AS",
        "INSERT INTO t",
        "",
    ] {
        let sql = format!("{what} {}", chain(65));
        assert_eq!(parse(&sql).map(|parsed| parsed.len()), Ok(1), "{what}");
        let error = parse(&format!("{what} {}", chain(66))).expect_err(what);
        assert_eq!(error.state, SqlState::StatementTooComplex);
        assert_eq!(error.message, "too many queries are chained");
    }
}

#[test]
fn nested_readings_do_not_multiply() {
    let n = 60;
    for opening in [
        "cast(",
        "case when ",
        "f(",
        "interval (",
        "exists(",
        "substring(",
        "extract(day from ",
        "trim(",
        "array[",
        "(",
    ] {
        let sql = format!("SELECT {} FROM", opening.repeat(n));
        let started = Instant::now();
        assert!(parse(&sql).is_err(), "{opening}");
        assert!(
            started.elapsed() < Duration::from_secs(20),
            "{opening} took {:?}",
            started.elapsed()
        );
    }
}

#[test]
fn what_people_write_is_within_the_bounds() {
    let sql = format!("SELECT 1 WHERE {}", vec!["a = 1"; 100].join(" OR "));
    assert_eq!(parse(&sql).map(|parsed| parsed.len()), Ok(1));
    let sql = format!("SELECT {}", vec!["a + 1"; 5000].join(", "));
    assert_eq!(parse(&sql).map(|parsed| parsed.len()), Ok(1));
    let sql = format!("SELECT {}1{}", "(a + ".repeat(16), ")".repeat(16));
    assert_eq!(parse(&sql).map(|parsed| parsed.len()), Ok(1));
    let sql = format!("SELECT {}x{}", "coalesce(a, ".repeat(40), ")".repeat(40));
    assert_eq!(parse(&sql).map(|parsed| parsed.len()), Ok(1));
}

#[test]
fn a_script_that_is_too_long_is_refused() {
    let error = parse(&" ".repeat(17 * 1024 * 1024)).expect_err("17 MiB");
    assert_eq!(error.state, SqlState::ProgramLimitExceeded);
}
