//! `state.ttl`: keys that nothing changes for a while go, with a clock that the test holds.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use arrow::array::{Int64Array, RecordBatch, StringArray};
use arrow::datatypes::{DataType, Field, Schema};
use highwater::connectors::memory::MemoryHold;
use highwater::connectors::registry::Registry;
use highwater::{Database, Error};
use tempfile::TempDir;

use crate::support::{rows, until};

const MINUTE_US: i64 = 60_000_000;

const OBJECTS: &str = "
    CREATE SOURCE s (k BIGINT, v VARCHAR) WITH (connector = 'memory', topic = 's');
    CREATE SOURCE other (k BIGINT, v VARCHAR) WITH (connector = 'memory', topic = 'other');
    CREATE MATERIALIZED VIEW grouped WITH (state.ttl = '10 min') AS
      SELECT k, count(*) AS n, count(DISTINCT v) AS d, max(v) AS most FROM s GROUP BY k;
    CREATE MATERIALIZED VIEW above AS SELECT count(*) AS groups, sum(n)::bigint AS n FROM grouped;
    CREATE MATERIALIZED VIEW firsts WITH (state.ttl = '10 min') AS SELECT DISTINCT ON (k) k, v FROM s ORDER BY k, v;
    CREATE MATERIALIZED VIEW joined WITH (state.ttl = '10 min') AS
      SELECT s.k, s.v AS a, other.v AS b FROM s JOIN other ON s.k = other.k";

/// A database, and the clock.
struct World {
    registry: Registry,
    _holds: Vec<MemoryHold>,
    dir: TempDir,
    database: Option<Database>,
    clock: Arc<AtomicI64>,
    pushed: i64,
}

impl World {
    async fn new() -> Self {
        let registry = Registry::with_builtin();
        let hold = |name: &str| {
            let topic = registry.memory().unwrap().handle(name);
            topic.ensure_partitions(1);
            topic.hold().unwrap()
        };
        let mut world = Self {
            _holds: vec![hold("s"), hold("other")],
            registry,
            dir: tempfile::tempdir().unwrap(),
            database: None,
            clock: Arc::new(AtomicI64::new(1_000 * MINUTE_US)),
            pushed: 0,
        };
        world.open().await;
        world.database().execute(OBJECTS).await.unwrap();
        world
    }

    fn database(&self) -> &Database {
        self.database.as_ref().unwrap()
    }

    /// Opens the database again, as after a crash.
    async fn open(&mut self) {
        self.database = None;
        let clock = Arc::clone(&self.clock);
        let builder = Database::builder()
            .registry(self.registry.clone())
            .checkpoint_interval(Duration::from_secs(3600))
            .clock(move || clock.load(Ordering::SeqCst));
        let dir: &Path = self.dir.path();
        self.database = Some(builder.open(dir).await.unwrap());
    }

    async fn push(&mut self, topic: &str, new: &[(i64, &str)]) {
        let schema = Schema::new(vec![
            Field::new("k", DataType::Int64, true),
            Field::new("v", DataType::Utf8, true),
        ]);
        let keys = Int64Array::from_iter_values(new.iter().map(|(k, _)| *k));
        let values = StringArray::from_iter_values(new.iter().map(|(_, v)| *v));
        let batch = RecordBatch::try_new(Arc::new(schema), vec![Arc::new(keys), Arc::new(values)]).unwrap();
        self.registry.memory().unwrap().handle(topic).push(batch).unwrap();
        if topic == "s" {
            self.pushed += new.len() as i64;
        }
        let taken = "SELECT min(position)::bigint FROM hw.lanes WHERE source = 's'";
        until(self.database(), taken, self.pushed).await;
    }

    fn pass(&self, minutes: i64) {
        self.clock.fetch_add(minutes * MINUTE_US, Ordering::SeqCst);
    }

    async fn shows(&self, view: &str, expected: &[&str]) {
        let count = format!("SELECT count(*) FROM {view}");
        until(self.database(), &count, expected.len() as i64).await;
        assert_eq!(
            rows(self.database(), &format!("SELECT * FROM {view}")).await,
            expected,
            "{view}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_nothing_changes_for_a_while_goes_and_begins_anew_when_it_comes_again() {
    let mut world = World::new().await;
    world.push("s", &[(1, "b"), (1, "a"), (1, "a"), (2, "x")]).await;
    world.push("other", &[(1, "B")]).await;
    world.shows("grouped", &["1|3|2|b", "2|1|1|x"]).await;
    world.shows("joined", &["1|a|B", "1|a|B", "1|b|B"]).await;
    world.pass(8);
    world.push("s", &[(1, "c")]).await;
    world.database().checkpoint().await.unwrap();
    world.pass(5);
    // The second group is thirteen minutes old, the first one five.
    world.shows("grouped", &["1|4|3|c"]).await;
    world.shows("above", &["1|4"]).await;
    world.shows("firsts", &["1|a"]).await;

    // What has gone stays gone after a crash, and what is there counts from then on.
    world.database().checkpoint().await.unwrap();
    world.open().await;
    world.shows("grouped", &["1|4|3|c"]).await;
    world.push("s", &[(2, "y")]).await;
    world.shows("grouped", &["1|4|3|c", "2|1|1|y"]).await;
    world.pass(9);
    world.push("s", &[(2, "x")]).await;
    world.pass(3);
    world.shows("grouped", &["2|2|2|y"]).await;
    world.shows("firsts", &["2|x"]).await;
    world.shows("above", &["1|2"]).await;
    world.database().checkpoint().await.unwrap();
    world.open().await;
    world.shows("grouped", &["2|2|2|y"]).await;
    world.pass(30);
    world.shows("grouped", &[]).await;
    world.shows("above", &["0|NULL"]).await;

    // Rows that a join has given stay; new ones find no match in what was let go.
    world.push("s", &[(1, "d")]).await;
    world.push("other", &[(1, "D")]).await;
    world
        .shows("joined", &["1|a|B", "1|a|B", "1|b|B", "1|c|B", "1|d|D"])
        .await;
    let left = "SELECT sum(state_rows)::bigint FROM hw.operators WHERE query = 'joined'";
    until(world.database(), left, 2).await;
}

#[tokio::test]
async fn a_time_to_live_without_effect_is_refused_and_one_with_it_needs_no_notice() {
    let database = Database::in_memory().await.unwrap();
    let objects = "CREATE SOURCE s (k BIGINT, at TIMESTAMP, WATERMARK FOR at AS at) WITH (connector = 'memory', topic = 's');
        CREATE TABLE t (k BIGINT PRIMARY KEY)";
    database.execute(objects).await.unwrap();
    let create = |ttl: &str, query: &str| {
        let sql = format!("CREATE MATERIALIZED VIEW v WITH (state.ttl = '{ttl}') AS {query}");
        let database = database.clone();
        async move { database.execute(&sql).await }
    };
    let state = |outcome: Result<Vec<highwater::Outcome>, Error>| {
        outcome.map(drop).unwrap_err().sqlstate().to_owned()
    };
    for query in [
        "SELECT k FROM s",
        "SELECT count(*) FROM s",
        "SELECT k, count(*) FROM t GROUP BY k",
        "SELECT window_end, count(*) FROM TUMBLE(s, at, INTERVAL '1' SECOND) GROUP BY window_end",
    ] {
        assert_eq!(state(create("1 h", query).await), "42P17", "{query}");
    }
    assert_eq!(
        state(create("soon", "SELECT k, count(*) FROM s GROUP BY k").await),
        "22023"
    );
    assert_eq!(
        state(create("0s", "SELECT k, count(*) FROM s GROUP BY k").await),
        "22023"
    );
    let outcomes = create("1 h", "SELECT k, count(*) FROM s GROUP BY k")
        .await
        .unwrap();
    assert!(outcomes[0].notices.is_empty(), "{:?}", outcomes[0].notices);
    let plan = rows(
        &database,
        "SELECT operator FROM hw.operators WHERE state_rows IS NOT NULL",
    )
    .await;
    assert!(plan[0].ends_with("state.ttl 1 h"), "{plan:?}");
}
