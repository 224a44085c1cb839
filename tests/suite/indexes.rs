//! Indexes: whatever changes and wherever the process dies, they give the rows that a scan gives.

use std::path::Path;
use std::time::Duration;

use highwater::Database;

use crate::support::{rows, until};

const SCHEMA: &str = "CREATE TABLE items (id BIGINT PRIMARY KEY, kind BIGINT, name VARCHAR);
    CREATE TABLE events (kind BIGINT, at BIGINT);
    CREATE MATERIALIZED VIEW kinds AS SELECT kind, count(*) AS n, max(id) AS last FROM items GROUP BY kind";

const INDEXES: &str = "CREATE INDEX items_kind ON items (kind DESC, name);
    CREATE INDEX events_at ON events (at);
    CREATE INDEX kinds_n ON kinds (n, last DESC)";

/// A read that an index answers, and the same in a form that none does.
const READS: [(&str, &str); 7] = [
    (
        "SELECT id, kind, name FROM items WHERE kind = {k}",
        "SELECT id, kind, name FROM items WHERE kind + 0 = {k}",
    ),
    (
        "SELECT id FROM items WHERE kind = {k} AND name > 'n3'",
        "SELECT id FROM items WHERE kind + 0 = {k} AND name || '' > 'n3'",
    ),
    (
        "SELECT id, name FROM items WHERE kind >= {k}",
        "SELECT id, name FROM items WHERE kind + 0 >= {k}",
    ),
    (
        "SELECT kind, id FROM items WHERE kind IN ({k}, 3) AND name BETWEEN 'n2' AND 'n6'",
        "SELECT kind, id FROM items WHERE kind + 0 IN ({k}, 3) AND name || '' BETWEEN 'n2' AND 'n6'",
    ),
    (
        "SELECT kind, at FROM events WHERE at = {k}",
        "SELECT kind, at FROM events WHERE at + 0 = {k}",
    ),
    (
        "SELECT kind, at FROM events WHERE at < {k}",
        "SELECT kind, at FROM events WHERE at + 0 < {k}",
    ),
    (
        "SELECT kind, last FROM kinds WHERE n = {k} AND last > 3",
        "SELECT kind, last FROM kinds WHERE n + 0 = {k} AND last + 0 > 3",
    ),
];

async fn open(dir: &Path) -> Database {
    let builder = Database::builder()
        .checkpoint_interval(Duration::from_millis(1))
        .backfill_rows(9);
    builder.open(dir).await.unwrap()
}

/// Changes at random.
struct Chance(u64);

impl Chance {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }

    fn statement(&mut self) -> String {
        let (id, kind) = (self.below(200), self.below(8));
        let name = self.below(9);
        match self.below(6) {
            0 => format!(
                "INSERT INTO items SELECT n, n % 8, 'n' || (n % 9)::text FROM generate_series({id} + 1000 * {kind}, {id} + 1000 * {kind} + 20) AS t(n) WHERE n NOT IN (SELECT id FROM items)"
            ),
            1 => format!(
                "UPDATE items SET kind = {kind}, name = 'n{name}' WHERE id % 13 = {}",
                id % 13
            ),
            2 => format!("DELETE FROM items WHERE kind = {kind} AND name = 'n{name}'"),
            3 => format!("UPDATE items SET kind = NULL WHERE id % 29 = {}", id % 29),
            4 => format!(
                "INSERT INTO events SELECT n % 3, n % 8 FROM generate_series(1, {}) AS t(n)",
                1 + id % 20
            ),
            _ => format!("DELETE FROM events WHERE at = {kind} AND kind = {}", id % 3),
        }
    }
}

async fn check(database: &Database, when: &str) {
    for (indexed, scanned) in READS {
        for k in 0..8 {
            let sql = |text: &str| text.replace("{k}", &k.to_string());
            let (found, expected) = (
                rows(database, &sql(indexed)).await,
                rows(database, &sql(scanned)).await,
            );
            assert_eq!(found, expected, "{when}: {}", sql(indexed));
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn reads_through_an_index_are_those_of_a_scan_wherever_the_process_dies() {
    let dir = tempfile::tempdir().unwrap();
    let mut chance = Chance(7);
    let mut database = open(dir.path()).await;
    database.execute(SCHEMA).await.unwrap();
    for _ in 0..12 {
        database.execute(&chance.statement()).await.unwrap();
    }
    // Built in parts for the rows that are there, while others change.
    database.execute(INDEXES).await.unwrap();
    for round in 0..12 {
        for _ in 0..4 {
            database.execute(&chance.statement()).await.unwrap();
        }
        if round % 3 == 1 {
            // As a crash would: nobody closes anything.
            drop(database);
            database = open(dir.path()).await;
        }
        check(&database, &format!("round {round}")).await;
    }
    let filling = "SELECT count(*) FROM hw.queries WHERE kind = 'index' AND state <> 'RUNNING'";
    until(&database, filling, 0).await;
    for (indexed, scanned) in READS {
        let how = async |sql: &str| {
            let lines = rows(&database, &format!("EXPLAIN {}", sql.replace("{k}", "1"))).await;
            lines.join("\n")
        };
        assert!(how(indexed).await.contains("index"), "{indexed}");
        assert!(how(scanned).await.contains(": scan"), "{scanned}");
    }
    check(&database, "at the end").await;
    database
        .execute("DROP INDEX items_kind; DROP TABLE events")
        .await
        .unwrap();
    let (indexed, scanned) = READS[0];
    assert_eq!(
        rows(&database, &indexed.replace("{k}", "1")).await,
        rows(&database, &scanned.replace("{k}", "1")).await
    );
    database.close().await.unwrap();
}
