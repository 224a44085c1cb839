//! Sinks into tables against a model, with statements on the same tables, restarts and crashes.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use highwater::Database;

use crate::batch::Random;
use crate::support::{number, rows};

const OBJECTS: &str = "CREATE TABLE parts (id BIGINT PRIMARY KEY, k BIGINT, v BIGINT);
    CREATE TABLE sums (k BIGINT PRIMARY KEY, n BIGINT);
    CREATE MATERIALIZED VIEW totals AS SELECT k, sum(v)::bigint AS n FROM parts GROUP BY k;
    CREATE SINK by_key INTO sums FROM totals;
    CREATE SINK singles INTO sums AS SELECT id + 3, v FROM parts WHERE v > 50;
    CREATE MATERIALIZED VIEW overview AS SELECT count(*) AS rows, sum(n)::bigint AS total FROM sums;
    CREATE TABLE history (id BIGINT, v BIGINT) APPEND ONLY;
    CREATE TABLE events (id BIGINT, v BIGINT) APPEND ONLY;
    CREATE SINK keeping INTO history AS SELECT id, v FROM events WHERE v % 2 = 0";

type Rows = BTreeMap<i64, i64>;

#[derive(Default)]
struct Model {
    parts: BTreeMap<i64, (i64, i64)>,
    sums: Rows,
    history: Vec<String>,
}

impl Model {
    fn totals(&self) -> Rows {
        let mut totals = Rows::new();
        for (k, v) in self.parts.values() {
            *totals.entry(*k).or_default() += v;
        }
        totals
    }

    fn singles(&self) -> Rows {
        let high = self.parts.iter().filter(|(_, (_, v))| *v > 50);
        high.map(|(id, (_, v))| (id + 3, *v)).collect()
    }

    /// What a sink does whose rows were `before` and are `after`.
    fn sink(&mut self, before: &Rows, after: &Rows) {
        for (k, n) in before {
            if after.get(k) != Some(n) && self.sums.get(k) == Some(n) {
                self.sums.remove(k);
            }
        }
        for (k, n) in after.iter().filter(|(k, n)| before.get(k) != Some(n)) {
            self.sums.insert(*k, *n);
        }
    }

    /// One statement at random.
    fn statement(&mut self, random: &mut Random) -> String {
        let before = (self.totals(), self.singles());
        let (id, k, v) = (
            random.below(8) as i64,
            random.below(5) as i64,
            random.below(90) as i64,
        );
        let sql = match random.below(8) {
            0..=2 => {
                self.parts.insert(id, (k, v));
                format!("INSERT INTO parts VALUES ({id}, {k}, {v})")
            }
            3 => {
                self.parts.retain(|_, (own, _)| *own != k);
                format!("DELETE FROM parts WHERE k = {k}")
            }
            4 => {
                self.parts
                    .values_mut()
                    .filter(|(own, _)| *own >= k)
                    .for_each(|(_, own)| *own = v);
                format!("UPDATE parts SET v = {v} WHERE k >= {k}")
            }
            5 => {
                self.sums.insert(id, v);
                return format!("INSERT INTO sums VALUES ({id}, {v})");
            }
            6 => {
                self.sums.retain(|_, n| *n % 3 != 0);
                return "DELETE FROM sums WHERE n % 3 = 0".to_owned();
            }
            _ => {
                self.history.extend((v % 2 == 0).then(|| format!("{id}|{v}")));
                return format!("INSERT INTO events VALUES ({id}, {v})");
            }
        };
        let after = (self.totals(), self.singles());
        self.sink(&before.0, &after.0);
        self.sink(&before.1, &after.1);
        sql
    }
}

/// Only statements that change tables write checkpoints.
async fn open(dir: &Path) -> Database {
    let builder = Database::builder().checkpoint_interval(Duration::from_secs(3600));
    builder.open(dir).await.unwrap()
}

async fn run(seed: u64) {
    let mut random = Random(seed);
    let dir = tempfile::tempdir().unwrap();
    let mut database = open(dir.path()).await;
    database.execute(OBJECTS).await.unwrap();
    let mut model = Model::default();
    for turn in 0..80 {
        let sql = model.statement(&mut random);
        database
            .execute(&sql)
            .await
            .unwrap_or_else(|error| panic!("{sql}: {error}"));
        if random.below(15) == 0 {
            drop(database);
            database = open(dir.path()).await;
        }
        let mut expected: Vec<String> = model.sums.iter().map(|(k, n)| format!("{k}|{n}")).collect();
        expected.sort_unstable();
        let found = rows(&database, "SELECT * FROM sums").await;
        assert_eq!(found, expected, "seed {seed}, turn {turn}: {sql}");
        let overview = match expected.len() {
            0 => "0|NULL".to_owned(),
            count => format!("{count}|{}", model.sums.values().sum::<i64>()),
        };
        assert_eq!(rows(&database, "SELECT * FROM overview").await, [overview]);
    }
    model.history.sort_unstable();
    assert_eq!(rows(&database, "SELECT * FROM history").await, model.history);
}

#[tokio::test(flavor = "multi_thread")]
async fn sinks_and_statements_leave_their_table_as_a_model_has_it_wherever_the_process_dies() {
    for seed in 0..6 {
        run(seed).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn statements_and_a_sink_that_change_one_table_at_the_same_time_lose_nothing() {
    let database = Database::in_memory().await.unwrap();
    database
        .execute(
            "CREATE TABLE numbers (n BIGINT PRIMARY KEY);
             CREATE TABLE counters (k BIGINT PRIMARY KEY, n BIGINT);
             CREATE SINK counting INTO counters AS SELECT n % 3, count(*) FROM numbers GROUP BY n % 3;
             INSERT INTO counters VALUES (10, 0)",
        )
        .await
        .unwrap();
    let writer = {
        let database = database.clone();
        tokio::spawn(async move {
            for n in 0..60 {
                database
                    .execute(&format!("INSERT INTO numbers VALUES ({n})"))
                    .await
                    .unwrap();
            }
        })
    };
    for _ in 0..60 {
        database
            .execute("UPDATE counters SET n = n + 1 WHERE k = 10")
            .await
            .unwrap();
    }
    writer.await.unwrap();
    assert_eq!(number(&database, "SELECT n FROM counters WHERE k = 10").await, 60);
    assert_eq!(
        rows(&database, "SELECT * FROM counters WHERE k < 3").await,
        ["0|20", "1|20", "2|20"]
    );
}
