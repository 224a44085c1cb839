//! A checkpoint that cannot be written, as when the disk is full: what it was to write is seen by nobody.

use super::program::Program;
use crate::wire::Client;

fn lines(client: &mut Client, sql: &str) -> Vec<String> {
    let outcome = client
        .simple(sql)
        .unwrap_or_else(|refused| panic!("{sql}: {refused:?}"));
    outcome.rows.iter().map(|row| row.join("|")).collect()
}

#[test]
fn rows_that_could_not_be_written_are_seen_by_nobody_and_the_table_is_failed_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let made = "CREATE TABLE t (k INT PRIMARY KEY, v INT);
        CREATE INDEX by_v ON t (v);
        CREATE MATERIALIZED VIEW totals AS SELECT count(*) AS n, sum(v) AS total FROM t;
        INSERT INTO t VALUES (1, 10)";
    {
        let program = Program::start(dir.path(), &[]);
        lines(&mut Client::connect(program.address).unwrap(), made);
    }
    let program = Program::start(
        dir.path(),
        &[("FAILPOINTS", "checkpoint-write-error=1*return->off")],
    );
    let client = &mut Client::connect(program.address).unwrap();
    let refused = client.simple("INSERT INTO t VALUES (2, 20)").unwrap_err();
    let message = refused.field('M').unwrap_or_default();
    assert!(message.contains("cannot write"), "{refused:?}");
    assert_eq!(lines(client, "SELECT count(*), sum(v) FROM t"), ["1|10"]);
    assert!(lines(client, "SELECT * FROM t WHERE k = 2").is_empty());
    assert!(lines(client, "SELECT * FROM t WHERE v = 20").is_empty());
    assert_eq!(lines(client, "SELECT * FROM totals"), ["1|10"]);
    let failed = "SELECT count(*) FROM hw.queries WHERE state = 'FAILED'";
    assert_eq!(lines(client, failed), ["3"]);

    lines(client, "ALTER TABLE t RESUME");
    lines(client, "INSERT INTO t VALUES (3, 30)");
    assert_eq!(lines(client, "SELECT count(*), sum(v) FROM t"), ["2|40"]);
    assert_eq!(lines(client, "SELECT * FROM totals"), ["2|40"]);
    assert_eq!(lines(client, failed), ["0"]);
}
