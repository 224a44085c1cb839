//! Views with `now()` against a model, with a clock that the test holds: rows come and go as time passes, whatever else changes,
//! and wherever the database is closed or dies. The seed of a failure is printed.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant};

use arrow::array::{Int64Array, RecordBatch, TimestampMicrosecondArray};
use arrow::datatypes::{DataType, Field, Schema, TimeUnit};
use highwater::Database;
use highwater::connectors::memory::MemoryHold;
use highwater::connectors::registry::Registry;
use tempfile::TempDir;

use crate::batch::Random;
use crate::support::rows;

const SECOND_US: i64 = 1_000_000;
/// 2024-05-01 00:00:00.
const START_US: i64 = 1_714_521_600 * SECOND_US;
const PATIENCE: Duration = Duration::from_secs(20);

const OBJECTS: &str = "
    CREATE TABLE t (id BIGINT PRIMARY KEY, k BIGINT, starts TIMESTAMP, ends TIMESTAMPTZ);
    CREATE SOURCE s (id BIGINT, at TIMESTAMP, WATERMARK FOR at AS at - INTERVAL '5' SECOND)
      WITH (connector = 'memory', topic = 's', watermark.max.skew = '365 days');
    CREATE MATERIALIZED VIEW open AS SELECT id FROM t WHERE starts <= now() AND ends > now();
    CREATE MATERIALIZED VIEW later AS SELECT id FROM t WHERE now() - INTERVAL '10' SECOND < starts;
    CREATE MATERIALIZED VIEW counted AS SELECT k, count(*) AS n FROM t WHERE now() >= ends GROUP BY k;
    CREATE MATERIALIZED VIEW recent AS SELECT id FROM s WHERE at BETWEEN now() - INTERVAL '20' SECOND AND now();
    CREATE MATERIALIZED VIEW seen AS SELECT count(*) AS n FROM s WHERE at < now();
    CREATE MATERIALIZED VIEW pairs AS SELECT s.id, t.k FROM s JOIN t ON s.id = t.id
      WHERE s.at > now() - INTERVAL '30' SECOND AND t.ends + INTERVAL '5' SECOND >= now()";

/// A row of the table.
#[derive(Clone, Copy)]
struct Row {
    k: i64,
    starts: Option<i64>,
    ends: i64,
}

/// A database, the clock, and what is in it.
struct World {
    registry: Registry,
    dir: TempDir,
    database: Option<Database>,
    /// A view that was opened again first must not let go of rows that another one has yet to open for.
    _hold: MemoryHold,
    clock: Arc<AtomicI64>,
    /// The latest time that the clock has ever shown.
    now_us: i64,
    table: BTreeMap<i64, Row>,
    stream: Vec<(i64, i64)>,
    random: Random,
}

impl World {
    async fn new(seed: u64) -> Self {
        let registry = Registry::with_builtin();
        let topic = registry.memory().unwrap().handle("s");
        topic.ensure_partitions(1);
        let mut world = Self {
            _hold: topic.hold().unwrap(),
            registry,
            dir: tempfile::tempdir().unwrap(),
            database: None,
            clock: Arc::new(AtomicI64::new(START_US)),
            now_us: START_US,
            table: BTreeMap::new(),
            stream: Vec::new(),
            random: Random(seed),
        };
        world.open().await;
        world.database().execute(OBJECTS).await.unwrap();
        world
    }

    fn database(&self) -> &Database {
        self.database.as_ref().expect("the database is open")
    }

    async fn open(&mut self) {
        self.database = None;
        let clock = Arc::clone(&self.clock);
        let builder = Database::builder()
            .registry(self.registry.clone())
            .clock(move || clock.load(Ordering::SeqCst));
        self.database = Some(builder.open(self.dir.path()).await.unwrap());
    }

    /// An instant around now, often at a bound.
    fn instant(&mut self) -> i64 {
        let step = self.random.of(&[1, SECOND_US / 2, SECOND_US, 5 * SECOND_US]);
        self.now_us + (self.random.below(16) as i64 - 8) * step
    }

    async fn change_table(&mut self) {
        for _ in 0..=self.random.below(4) {
            let id = self.random.below(8) as i64;
            if self.table.contains_key(&id) && self.random.below(2) == 0 {
                self.table.remove(&id);
                self.database()
                    .execute(&format!("DELETE FROM t WHERE id = {id}"))
                    .await
                    .unwrap();
                continue;
            }
            let (starts, ends) = (self.instant(), self.instant());
            let row = Row {
                k: self.random.below(3) as i64,
                starts: self.random.mostly(6, starts),
                ends,
            };
            let starts = row
                .starts
                .map_or("NULL".to_owned(), |us| format!("to_timestamp_micros({us})"));
            let insert = format!(
                "INSERT INTO t VALUES ({id}, {}, {starts}, to_timestamp_micros({})::timestamptz)",
                row.k, row.ends
            );
            self.table.insert(id, row);
            self.database().execute(&insert).await.unwrap();
        }
    }

    fn push(&mut self) {
        let count = 1 + self.random.below(5);
        let new: Vec<(i64, i64)> = (0..count)
            .map(|_| (self.random.below(8) as i64, self.instant()))
            .collect();
        let timestamp = DataType::Timestamp(TimeUnit::Microsecond, None);
        let schema = Schema::new(vec![
            Field::new("id", DataType::Int64, true),
            Field::new("at", timestamp, true),
        ]);
        let ids: Int64Array = new.iter().map(|(id, _)| Some(*id)).collect();
        let times: TimestampMicrosecondArray = new.iter().map(|(_, at)| Some(*at)).collect();
        let batch = RecordBatch::try_new(Arc::new(schema), vec![Arc::new(ids), Arc::new(times)]).unwrap();
        self.registry.memory().unwrap().handle("s").push(batch).unwrap();
        self.stream.extend(new);
    }

    fn pass_time(&mut self) {
        let step = self.random.of(&[0, 1, SECOND_US, 3 * SECOND_US, 12 * SECOND_US]);
        self.now_us += step;
        self.clock.store(self.now_us, Ordering::SeqCst);
    }

    /// Lets the database die, or closes it and opens it with a clock that is behind for a while: no row comes back for that.
    async fn restart(&mut self, seed: u64) {
        if self.random.below(2) == 0 {
            return self.open().await;
        }
        self.check(seed).await;
        self.database().clone().close().await.unwrap();
        self.clock.store(self.now_us - 7 * SECOND_US, Ordering::SeqCst);
        self.open().await;
        self.check(seed).await;
        self.clock.store(self.now_us, Ordering::SeqCst);
    }

    /// What each view has, found the simple way.
    fn expected(&self) -> Vec<(&'static str, Vec<String>)> {
        let now = self.now_us;
        let of_table = |is_there: &dyn Fn(&Row) -> bool| -> Vec<i64> {
            let rows = self.table.iter().filter(|(_, row)| is_there(row));
            rows.map(|(id, _)| *id).collect()
        };
        let of_stream = |is_there: &dyn Fn(i64) -> bool| -> Vec<i64> {
            let rows = self.stream.iter().filter(|(_, at)| is_there(*at));
            rows.map(|(id, _)| *id).collect()
        };
        let lines = |ids: Vec<i64>| {
            let mut lines: Vec<String> = ids.iter().map(ToString::to_string).collect();
            lines.sort_unstable();
            lines
        };
        let open = of_table(&|row| row.starts.is_some_and(|starts| starts <= now) && row.ends > now);
        let later = of_table(&|row| row.starts.is_some_and(|starts| starts > now - 10 * SECOND_US));
        let mut counts: BTreeMap<i64, i64> = BTreeMap::new();
        for row in self.table.values().filter(|row| now >= row.ends) {
            *counts.entry(row.k).or_default() += 1;
        }
        let recent = of_stream(&|at| now - 20 * SECOND_US <= at && at <= now);
        let seen = of_stream(&|at| at < now).len();
        let mut pairs = Vec::new();
        for id in of_stream(&|at| at > now - 30 * SECOND_US) {
            let row = self.table.get(&id);
            if let Some(row) = row.filter(|row| row.ends + 5 * SECOND_US >= now) {
                pairs.push(format!("{id}|{}", row.k));
            }
        }
        pairs.sort_unstable();
        vec![
            ("open", lines(open)),
            ("later", lines(later)),
            (
                "counted",
                counts.iter().map(|(k, n)| format!("{k}|{n}")).collect(),
            ),
            ("recent", lines(recent)),
            ("seen", vec![seen.to_string()]),
            ("pairs", pairs),
        ]
    }

    /// Waits until every view has what it should have.
    async fn check(&self, seed: u64) {
        let deadline = Instant::now() + PATIENCE;
        for (view, expected) in self.expected() {
            loop {
                let found = rows(self.database(), &format!("SELECT * FROM {view}")).await;
                if found == expected {
                    break;
                }
                if Instant::now() > deadline {
                    let failed = rows(
                        self.database(),
                        "SELECT name, error, detail FROM hw.queries WHERE state <> 'RUNNING'",
                    )
                    .await;
                    panic!("seed {seed}: {view} has {found:?}, not {expected:?}; {failed:?}");
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_come_and_go_as_the_clock_says_whatever_changes_and_wherever_the_process_dies() {
    let seeds = std::env::var("HIGHWATER_ORACLE_SEEDS").ok();
    let seeds: u64 = seeds.and_then(|text| text.parse().ok()).unwrap_or(3);
    for seed in 0..seeds {
        let mut world = World::new(seed).await;
        for _ in 0..25 {
            match world.random.below(8) {
                0..=2 => world.change_table().await,
                3 | 4 => world.push(),
                5 | 6 => world.pass_time(),
                _ => world.restart(seed).await,
            }
            if world.random.below(3) > 0 {
                world.check(seed).await;
            }
        }
        world.check(seed).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn of_rows_that_have_gone_nothing_is_kept() {
    let mut world = World::new(1).await;
    world.push();
    world.check(1).await;
    world.now_us += 3600 * SECOND_US;
    world.clock.store(world.now_us, Ordering::SeqCst);
    world.check(1).await;
    let state = "SELECT state_rows FROM hw.operators WHERE query = 'recent' AND state_rows IS NOT NULL";
    assert_eq!(rows(world.database(), state).await, ["0"]);
}
