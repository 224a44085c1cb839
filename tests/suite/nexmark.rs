//! The queries of Nexmark, in `tests/nexmark`, as materialized views over three sources: each equals the batch answer, although
//! the views are made, closed and crashed in the middle of the events.
//!
//! The queries are those of the benchmark in RisingWave's form, q101 to q106 included. Ranks have a total order, bounds are
//! those of a few hundred auctions, and q14 counts characters without a function of its own. q102 divides by `nullif(…, 0)`:
//! a subquery is computed before there is a row to compare with, so dividing by the number of bids fails while there are
//! none, where PostgreSQL would not divide yet. q11 has SESSION of event time in place of Flink's of processing time. Left out is
//! q12 (bids per window of processing time): there is no processing time.

use std::sync::Arc;
use std::time::Duration;

use arrow::array::{ArrayRef, Int64Array, RecordBatch, StringArray, TimestampMicrosecondArray};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef, TimeUnit};
use highwater::Database;
use highwater::connectors::registry::Registry;
use tempfile::TempDir;

use crate::batch::{Random, Relation, answer, difference, queries};
use crate::support::{rows, until};

const EVENTS: usize = 1500;
const SECOND_US: i64 = 1_000_000;
/// 2024-05-01 23:58:00, so that bids are from several days.
const START_US: i64 = 1_714_607_880 * SECOND_US;
const FIRST_ID: i64 = 1000;

const SOURCES: &str = "
    CREATE SOURCE person (id BIGINT, name VARCHAR, email_address VARCHAR, credit_card VARCHAR, city VARCHAR,
        state VARCHAR, date_time TIMESTAMP, extra VARCHAR, WATERMARK FOR date_time AS date_time - INTERVAL '4' SECOND)
      WITH (connector = 'memory', topic = 'person');
    CREATE SOURCE auction (id BIGINT, item_name VARCHAR, description VARCHAR, initial_bid BIGINT, reserve BIGINT,
        date_time TIMESTAMP, expires TIMESTAMP, seller BIGINT, category BIGINT, extra VARCHAR,
        WATERMARK FOR date_time AS date_time - INTERVAL '4' SECOND)
      WITH (connector = 'memory', topic = 'auction');
    CREATE SOURCE bid (auction BIGINT, bidder BIGINT, price BIGINT, channel VARCHAR, url VARCHAR, date_time TIMESTAMP,
        extra VARCHAR, WATERMARK FOR date_time AS date_time - INTERVAL '4' SECOND)
      WITH (connector = 'memory', topic = 'bid');
    CREATE TABLE side_input (key BIGINT PRIMARY KEY, value VARCHAR);
    INSERT INTO side_input VALUES (0, 'zero'), (1, 'one'), (2, NULL), (3, 'three'), (5, 'five'), (8, 'eight')";

/// Values of a row, in the order of the columns.
enum Value {
    Number(Option<i64>),
    Text(Option<String>),
    Time(Option<i64>),
}

use Value::{Number, Text, Time};

fn text(value: impl Into<String>) -> Value {
    Text(Some(value.into()))
}

const KINDS: [(&str, &[(&str, char)]); 3] = [
    (
        "person",
        &[
            ("id", 'n'),
            ("name", 't'),
            ("email_address", 't'),
            ("credit_card", 't'),
            ("city", 't'),
            ("state", 't'),
            ("date_time", '@'),
            ("extra", 't'),
        ],
    ),
    (
        "auction",
        &[
            ("id", 'n'),
            ("item_name", 't'),
            ("description", 't'),
            ("initial_bid", 'n'),
            ("reserve", 'n'),
            ("date_time", '@'),
            ("expires", '@'),
            ("seller", 'n'),
            ("category", 'n'),
            ("extra", 't'),
        ],
    ),
    (
        "bid",
        &[
            ("auction", 'n'),
            ("bidder", 'n'),
            ("price", 'n'),
            ("channel", 't'),
            ("url", 't'),
            ("date_time", '@'),
            ("extra", 't'),
        ],
    ),
];

fn schema(columns: &[(&str, char)]) -> SchemaRef {
    let fields = columns.iter().map(|(name, kind)| {
        let data_type = match kind {
            'n' => DataType::Int64,
            't' => DataType::Utf8,
            _ => DataType::Timestamp(TimeUnit::Microsecond, None),
        };
        Field::new(*name, data_type, true)
    });
    Arc::new(Schema::new(fields.collect::<Vec<_>>()))
}

/// Rows as one batch.
fn batch(schema: &SchemaRef, rows: &[Vec<Value>]) -> RecordBatch {
    let columns = (0..schema.fields().len()).map(|column| -> ArrayRef {
        let values = || rows.iter().map(|row| &row[column]);
        let numbers = || {
            values().map(|value| match value {
                Number(number) | Time(number) => *number,
                Text(_) => None,
            })
        };
        match schema.field(column).data_type() {
            DataType::Int64 => Arc::new(numbers().collect::<Int64Array>()),
            DataType::Utf8 => {
                let texts = values().map(|value| match value {
                    Text(text) => text.clone(),
                    Number(_) | Time(_) => None,
                });
                Arc::new(texts.collect::<StringArray>())
            }
            _ => Arc::new(numbers().collect::<TimestampMicrosecondArray>()),
        }
    });
    RecordBatch::try_new(Arc::clone(schema), columns.collect()).unwrap()
}

/// Makes events: of sixteen one is a person and three are auctions.
struct Events {
    random: Random,
    count: i64,
    clock_us: i64,
    persons: i64,
    auctions: i64,
}

impl Events {
    fn new() -> Self {
        Self {
            random: Random(2024),
            count: 0,
            clock_us: START_US,
            persons: 0,
            auctions: 0,
        }
    }

    /// The kind of the next event, and its row.
    fn next(&mut self) -> (usize, Vec<Value>) {
        self.count += 1;
        self.clock_us += self.random.below(400_000) as i64;
        if self.count % 500 == 0 {
            self.clock_us += 7 * 3600 * SECOND_US;
        }
        // Two seconds out of order at most, and no two at the same time: the number of the event is in the last digits.
        let early = self.random.below(2000) as i64 * 1000;
        let time = (self.clock_us - early) / 10_000 * 10_000 + self.count;
        match self.count % 16 {
            1 => (0, self.person(time)),
            2..=4 => (1, self.auction(time)),
            _ => (2, self.bid(time)),
        }
    }

    /// One of the `recent` last ids, more often one of the last few.
    fn recent(&mut self, made: i64, recent: i64) -> i64 {
        let few = if self.random.below(2) == 0 { 3 } else { recent };
        FIRST_ID + made - 1 - self.random.below(few.min(made).max(1) as u64) as i64
    }

    fn extra(&mut self) -> Value {
        let extra = self.random.of(&["", "abc", "cc-cc", "c", "xyz"]);
        Text(self.random.mostly(9, extra.to_owned()))
    }

    fn person(&mut self, time: i64) -> Vec<Value> {
        let id = FIRST_ID + self.persons;
        self.persons += 1;
        let name = self.random.of(&["Ann", "Bo", "Cy", "Di"]);
        let state = self.random.of(&["or", "id", "ca", "wa", "az"]);
        vec![
            Number(Some(id)),
            text(name),
            text(format!("{name}{id}@example.com")),
            text(format!("{:016}", id * 7919)),
            Text(self.random.mostly(8, "Portland".to_owned())),
            Text(self.random.mostly(8, state.to_owned())),
            Time(Some(time)),
            self.extra(),
        ]
    }

    fn auction(&mut self, time: i64) -> Vec<Value> {
        let id = FIRST_ID + self.auctions;
        self.auctions += 1;
        let (seller, bid) = (self.recent(self.persons, 12), self.random.below(1000) as i64);
        let expires = time + self.random.below(30) as i64 * SECOND_US;
        let item = self.random.of(&["lamp", "vase", "clock"]);
        vec![
            Number(Some(id)),
            text(format!("{item} {id}")),
            Text(self.random.mostly(5, format!("a fine {item}"))),
            Number(Some(bid)),
            Number(self.random.mostly(6, bid * 2)),
            Time(Some(time)),
            Time(self.random.mostly(15, expires)),
            Number(self.random.mostly(15, seller)),
            Number(Some(10 + self.random.below(5) as i64)),
            self.extra(),
        ]
    }

    fn bid(&mut self, time: i64) -> Vec<Value> {
        let (auction, bidder) = (self.recent(self.auctions, 25), self.recent(self.persons, 10));
        let size = self.random.of(&[10, 1000, 100_000, 2_000_000]);
        let price = size * (1 + self.random.below(40) as i64);
        let channel = self
            .random
            .of(&["apple", "Google", "facebook", "baidu", "channel-7", "channel-8"]);
        let tail = self
            .random
            .of(&["?query=1", "?query=1&channel_id=7", "&channel_id=", ""]);
        let folder = self.random.of(&["item", "x/y", ""]);
        vec![
            Number(self.random.mostly(12, auction)),
            Number(self.random.mostly(12, bidder)),
            Number(self.random.mostly(40, price)),
            Text(self.random.mostly(15, channel.to_owned())),
            Text(
                self.random
                    .mostly(15, format!("https://www.nexmark.com/{folder}/{auction}{tail}")),
            ),
            Time(Some(time)),
            self.extra(),
        ]
    }
}

/// A database and what was pushed into its sources.
struct World {
    registry: Registry,
    dir: TempDir,
    database: Option<Database>,
    events: Events,
    relations: Vec<Relation>,
    queries: Vec<(String, String)>,
}

impl World {
    async fn new() -> Self {
        let relations = KINDS.map(|(name, columns)| Relation {
            name,
            schema: schema(columns),
            rows: Vec::new(),
        });
        let mut world = Self {
            registry: Registry::with_builtin(),
            dir: tempfile::tempdir().unwrap(),
            database: None,
            events: Events::new(),
            relations: relations.into(),
            queries: queries("nexmark"),
        };
        world.open().await;
        world.database().execute(SOURCES).await.unwrap();
        let side = world.database().query("SELECT * FROM side_input").await.unwrap();
        world.relations.push(Relation {
            name: "side_input",
            schema: side.schema,
            rows: side.batches,
        });
        world
    }

    fn database(&self) -> &Database {
        self.database.as_ref().expect("the database is open")
    }

    /// Opens the database, as after a crash if it was not closed.
    async fn open(&mut self) {
        self.database = None;
        let builder = Database::builder()
            .registry(self.registry.clone())
            .backfill_rows(50)
            .checkpoint_interval(Duration::from_secs(3600));
        self.database = Some(builder.open(self.dir.path()).await.unwrap());
    }

    /// Pushes events in small batches.
    fn push(&mut self, count: usize) {
        let mut left = count;
        while left > 0 {
            let some = left.min(1 + self.events.random.below(60) as usize);
            left -= some;
            let mut rows: [Vec<Vec<Value>>; 3] = Default::default();
            for _ in 0..some {
                let (kind, row) = self.events.next();
                rows[kind].push(row);
            }
            for (relation, rows) in self.relations.iter_mut().zip(rows) {
                if rows.is_empty() {
                    continue;
                }
                let rows = batch(&relation.schema, &rows);
                let topic = self.registry.memory().unwrap().handle(relation.name);
                topic.push(rows.clone()).unwrap();
                relation.rows.push(rows);
            }
        }
    }

    /// Makes the views; tells which cannot be made, and goes on without them.
    async fn create(&mut self) -> Vec<String> {
        let mut faults = Vec::new();
        for (name, sql) in std::mem::take(&mut self.queries) {
            let view = format!("CREATE MATERIALIZED VIEW {name} AS {sql}");
            match self.database().execute(&view).await {
                Ok(_) => self.queries.push((name, sql)),
                Err(error) => faults.push(format!("{name}: {error} {:?}", error.detail())),
            }
        }
        faults
    }

    async fn wait(&self) {
        for (name, _) in KINDS {
            let end = self.registry.memory().unwrap().handle(name).end_offset(0);
            let behind = format!(
                "SELECT count(*) FROM hw.lanes WHERE source = '{name}' AND \"position\" < {}",
                end.unwrap_or(0)
            );
            until(self.database(), &behind, 0).await;
        }
    }

    /// Which views differ from the batch answer, and how.
    async fn faults(&self, when: &str) -> Vec<String> {
        self.wait().await;
        let mut faults = Vec::new();
        let failed =
            "SELECT name, state, error, detail FROM hw.queries WHERE state NOT IN ('RUNNING', 'BACKFILLING')";
        faults.extend(rows(self.database(), failed).await);
        for (name, sql) in &self.queries {
            let expected = answer(sql, &self.relations).await;
            assert!(!expected.is_empty(), "{name} has no rows {when}");
            let found = rows(self.database(), &format!("SELECT * FROM {name}")).await;
            if found != expected {
                faults.push(format!("{name} {when}: {}", difference(&found, &expected)));
            }
        }
        faults
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_views_of_nexmark_equal_the_batch_answer_across_a_restart_and_a_crash() {
    let mut world = World::new().await;
    world.push(EVENTS / 3);
    let mut faults = world.create().await;
    world.push(EVENTS / 6);
    faults.extend(world.faults("before the restart").await);

    world.database().clone().close().await.unwrap();
    world.push(EVENTS / 6);
    world.open().await;
    world.wait().await;
    world.database().checkpoint().await.unwrap();
    world.push(EVENTS / 6);
    world.wait().await;
    world.open().await;
    world.push(EVENTS / 6);
    faults.extend(world.faults("at the end").await);
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}
