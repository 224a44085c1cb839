//! Every metric is there, moves, and stands in the reference.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use arrow::array::{Int64Array, RecordBatch, TimestampMicrosecondArray};
use arrow::datatypes::{DataType, Field, Schema, TimeUnit};
use highwater::connectors::kafka::mock::MockBroker;
use highwater::connectors::registry::Registry;
use highwater::{ClientInfo, Database};

/// Nothing in a test takes this long unless it hangs.
const PATIENCE: Duration = Duration::from_secs(90);
const SECOND_US: i64 = 1_000_000;
/// 2024-05-01 00:00:00.
const START_US: i64 = 1_714_521_600 * SECOND_US;

/// What stays 0 while all goes well, is gone before anybody looks, or is not told by every broker.
const RESTS: &[&str] = &[
    "highwater_checkpoint_failures_total",
    "highwater_checkpoint_in_flight_seconds",
    "highwater_kafka_broker_errors_total",
    "highwater_kafka_broker_timeouts_total",
    "highwater_kafka_broker_waiting_requests",
    "highwater_kafka_client_waiting_bytes",
    "highwater_kafka_client_waiting_messages",
    "highwater_kafka_partition_low_offset",
    "highwater_kafka_partition_queued_bytes",
    "highwater_kafka_partition_queued_messages",
    "highwater_lane_lag",
    "highwater_lane_lost_records_total",
    "highwater_operator_evicted_keys_total",
    "highwater_operator_read_back_keys_total",
];

/// The largest value of each series so far, by the name of its metric.
#[derive(Default)]
struct Seen(BTreeMap<String, f64>);

impl Seen {
    fn add(&mut self, text: &str) {
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            let (series, value) = line.rsplit_once(' ').unwrap_or_else(|| panic!("{line}"));
            let name = series.split('{').next().unwrap();
            let value: f64 = value.parse().unwrap_or_else(|_| panic!("{line}"));
            let largest = self.0.entry(name.to_owned()).or_insert(value);
            *largest = largest.max(value);
        }
    }

    /// What has not moved yet.
    fn missing(&self) -> Vec<String> {
        let specs = highwater::metric_specs().into_iter().map(|spec| spec.name);
        let has_moved = |name: &String| {
            let largest = self.0.get(name);
            largest.is_some_and(|largest| *largest > 0.0) || RESTS.contains(&name.as_str())
        };
        specs.filter(|name| !has_moved(name)).collect()
    }
}

/// Rows `(n, at)`, with times in seconds from the start.
fn timed(values: &[(i64, Option<i64>)]) -> RecordBatch {
    let schema = Schema::new(vec![
        Field::new("n", DataType::Int64, true),
        Field::new("at", DataType::Timestamp(TimeUnit::Microsecond, None), true),
    ]);
    let numbers: Int64Array = values.iter().map(|(n, _)| Some(*n)).collect();
    let times = values
        .iter()
        .map(|(_, at)| at.map(|at| START_US + at * SECOND_US));
    let times: TimestampMicrosecondArray = times.collect();
    RecordBatch::try_new(Arc::new(schema), vec![Arc::new(numbers), Arc::new(times)]).unwrap()
}

async fn run(database: &Database, sql: &str) {
    let done = database.execute(sql).await;
    done.unwrap_or_else(|error| panic!("{sql}: {error} {:?}", error.detail()));
}

/// Makes everything happen that a metric counts, but for what needs a broker.
async fn happen(database: &Database) {
    run(
        database,
        "CREATE SOURCE timed (n BIGINT, at TIMESTAMP, WATERMARK FOR at AS at - INTERVAL '2' SECOND)
           WITH (connector = 'memory', topic = 'timed', partitions = '2', idle.timeout = '100ms');
         CREATE MATERIALIZED VIEW windows AS SELECT window_end, count(*) AS c
           FROM TUMBLE(timed, at, INTERVAL '10' SECOND) GROUP BY window_end EMIT ON WINDOW CLOSE;
         CREATE MATERIALIZED VIEW shares AS SELECT 100 / (n - 7) AS share FROM timed;
         CREATE TABLE t (n BIGINT) APPEND ONLY;
         CREATE SINK held AS SELECT n FROM timed
           WITH (connector = 'memory', topic = 'held', outbox.max.bytes = '1') FORMAT PLAIN ENCODE JSON;
         CREATE SINK out FROM t WITH (connector = 'memory', topic = 'out') FORMAT PLAIN ENCODE JSON",
    )
    .await;
    let handle = database.memory_source("timed").unwrap();
    let far = 100 * 365 * 86_400;
    let rows = [(1, Some(1)), (2, Some(60)), (3, None), (4, Some(far))];
    handle.push_to(0, timed(&rows)).unwrap();
    // An empty partition holds nobody back: rows of the other one that were taken first would make these late.
    let taken = "SELECT position FROM hw.lanes WHERE query = 'windows' AND partition = 0";
    crate::support::until(database, taken, 4).await;
    handle.push_to(1, timed(&[(1, Some(90))])).unwrap();
    crate::support::until(database, "SELECT least(count(*), 1) FROM windows", 1).await;
    handle.push_to(0, timed(&[(5, Some(2))])).unwrap();
    handle.push_to(1, timed(&[(7, Some(91))])).unwrap();
    run(database, "INSERT INTO t VALUES (1), (2)").await;
    let again = "EXECUTE again(1);".repeat(2);
    let session = database.session();
    let prepared = session
        .execute(&format!("PREPARE again AS SELECT n + $1 FROM t; {again}"))
        .await;
    prepared.unwrap();
    database.execute("SELECT no_such_column").await.unwrap_err();
}

/// A table to and from a topic, with a bad record and a tombstone.
async fn happen_on_kafka(database: &Database, servers: &str) {
    run(
        database,
        &format!(
            "CREATE TABLE texts (k TEXT PRIMARY KEY, n TEXT);
             CREATE SINK words FROM texts
               WITH (connector = 'kafka', topic = 'words', properties.bootstrap.server = '{servers}', primary_key = 'k')
               FORMAT UPSERT ENCODE JSON;
             CREATE SOURCE words_back (n BIGINT)
               WITH (connector = 'kafka', topic = 'words', properties.bootstrap.server = '{servers}')
               FORMAT PLAIN ENCODE JSON;
             CREATE MATERIALIZED VIEW words_seen AS SELECT n FROM words_back;
             INSERT INTO texts VALUES ('a', 'one'), ('b', '2'), ('c', '3');
             DELETE FROM texts WHERE k = 'b'"
        ),
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_metric_is_there_and_moves() {
    let broker = MockBroker::start(1).unwrap();
    broker.create_topic("words", 1).unwrap();
    let registry = Registry::with_builtin();
    let dir = tempfile::tempdir().unwrap();
    let database = Database::builder()
        .registry(registry.clone())
        .checkpoint_interval(Duration::from_millis(20))
        .backfill_rows(1)
        .open(dir.path())
        .await
        .unwrap();
    let session = database.session_of(ClientInfo {
        pid: 7,
        user: "tester".to_owned(),
        address: None,
    });
    session.execute("SELECT 1").await.unwrap();
    let mut seen = Seen::default();
    happen(&database).await;
    happen_on_kafka(&database, &broker.bootstrap_servers()).await;
    run(
        &database,
        "CREATE TABLE many (n BIGINT);
         INSERT INTO many SELECT n FROM generate_series(1, 30000) AS g(n);
         CREATE MATERIALIZED VIEW filled AS SELECT n FROM many",
    )
    .await;
    let deadline = Instant::now() + PATIENCE;
    let sink = |topic: &str| registry.memory_sink().unwrap().handle(topic);
    let (held, out) = (sink("held"), sink("out"));
    let handle = database.memory_source("timed").unwrap();
    let (mut turn, mut is_down) = (0, false);
    loop {
        seen.add(&database.metrics().await.unwrap());
        let missing = seen.missing();
        if missing.is_empty() {
            break;
        }
        assert!(Instant::now() < deadline, "{missing:#?}");
        // A sink that holds back has a full outbox, and its pipeline waits; then it goes on, and more comes.
        turn += 1;
        held.hold(turn % 4 != 0);
        out.fail_writes(u32::from(turn % 4 == 0));
        handle.push_to(0, timed(&[(turn, Some(100 + turn))])).unwrap();
        let statement = tokio::time::timeout(
            Duration::from_millis(50),
            database.execute("INSERT INTO t VALUES (9)"),
        );
        drop(statement.await);
        // The client has told of its broker; now it is away.
        if !is_down
            && missing
                .iter()
                .all(|name| name.contains("trouble") || name.contains("disconnects"))
        {
            broker.go_down().unwrap();
            is_down = true;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
