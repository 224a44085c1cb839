//! CREATE, DROP and RESUME while everything goes on: processes die inside them, and sinks are slow. What is read and who reads it
//! agree afterwards, whatever came between.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use arrow::array::{ArrayRef, Int64Array, RecordBatch};
use arrow::datatypes::{DataType, Field, Schema};
use highwater::connectors::ConnectorError;
use highwater::connectors::options::{OptionMap, OptionSpec};
use highwater::connectors::registry::Registry;
use highwater::connectors::sink::{Sink, SinkChunk, SinkConnector};
use highwater::{Database, DatabaseBuilder, ScalarFunction};
use highwater_storage::{Family, RocksStore, Store as _, StoreOptions, catalog, layout};

use crate::batch::Random;
use crate::support::{number, rows, until};
use crate::tables::in_a_process;

const FAILED: &str = "SELECT count(*) FROM hw.queries WHERE state = 'FAILED'";

/// A database with a function that gives its argument, and fails while it is told to.
fn with_touchy(registry: &Registry, fails: &Arc<AtomicBool>) -> DatabaseBuilder {
    let fails = Arc::clone(fails);
    let touchy =
        ScalarFunction::new(
            "touchy",
            vec![DataType::Int64],
            DataType::Int64,
            move |columns| match fails.load(Ordering::SeqCst) {
                true => Err("it was told to".into()),
                false => Ok(Arc::clone(&columns[0])),
            },
        );
    Database::builder()
        .registry(registry.clone())
        .with_scalar_function(touchy)
}

fn push(database: &Database, source: &str, values: std::ops::Range<i64>) {
    let schema = Schema::new(vec![Field::new("n", DataType::Int64, true)]);
    let column: ArrayRef = Arc::new(Int64Array::from_iter_values(values));
    let batch = RecordBatch::try_new(Arc::new(schema), vec![column]).unwrap();
    database.memory_source(source).unwrap().push(batch).unwrap();
}

/// A view has the rows that its query gives, both as of one step.
async fn assert_exact(database: &Database, view: &str, query: &str, when: &str) {
    let sql =
        format!("(SELECT * FROM {view} EXCEPT {query}) UNION ALL ({query} EXCEPT SELECT * FROM {view})");
    assert_eq!(rows(database, &sql).await, [""; 0], "{view} {when}");
    let sql = format!("SELECT (SELECT count(*) FROM {view}) - (SELECT count(*) FROM ({query}) AS own)");
    assert_eq!(number(database, &sql).await, 0, "{view} {when}");
}

#[tokio::test(flavor = "multi_thread")]
async fn many_readers_that_are_resumed_with_what_they_read_miss_nothing_while_the_source_delivers() {
    let (registry, fails) = (Registry::with_builtin(), Arc::new(AtomicBool::new(false)));
    let database = with_touchy(&registry, &fails).in_memory().await.unwrap();
    let sql = "CREATE SOURCE s (n BIGINT) WITH (connector = 'memory', topic = 's');
        CREATE MATERIALIZED VIEW a AS
          SELECT n % 97 AS k, count(*) AS times, sum(touchy(n))::bigint AS total FROM s GROUP BY n % 97";
    database.execute(sql).await.unwrap();
    let reader = |at: usize| {
        let by = at + 2;
        format!(
            "SELECT k % {by} AS g, count(*) AS keys, sum(times)::bigint AS times, sum(total)::bigint AS total
               FROM a GROUP BY k % {by}"
        )
    };
    for at in 0..21 {
        let sql = format!("CREATE MATERIALIZED VIEW b{at} AS {}", reader(at));
        database.execute(&sql).await.unwrap();
    }
    let mut given = 0;
    for round in 0..3 {
        push(&database, "s", given..given + 500);
        given += 500;
        until(&database, "SELECT coalesce(sum(times), 0)::bigint FROM a", given).await;
        database.checkpoint().await.unwrap();
        fails.store(true, Ordering::SeqCst);
        push(&database, "s", given..given + 10);
        given += 10;
        until(&database, FAILED, 22).await;
        fails.store(false, Ordering::SeqCst);
        let ends = Arc::new(AtomicBool::new(false));
        let delivers = {
            let (database, ends) = (database.clone(), Arc::clone(&ends));
            std::thread::spawn(move || {
                while !ends.load(Ordering::SeqCst) {
                    push(&database, "s", given..given + 10);
                    given += 10;
                    std::thread::yield_now();
                }
                given
            })
        };
        database
            .execute("ALTER MATERIALIZED VIEW a RESUME")
            .await
            .unwrap();
        ends.store(true, Ordering::SeqCst);
        given = delivers.join().unwrap();
        until(&database, "SELECT sum(times)::bigint FROM a", given).await;
        assert_eq!(number(&database, FAILED).await, 0);
        for at in 0..21 {
            assert_exact(
                &database,
                &format!("b{at}"),
                &reader(at),
                &format!("in round {round}"),
            )
            .await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reader_that_is_left_out_of_a_resumption_knows_after_a_crash_that_it_missed_changes() {
    let dir = tempfile::tempdir().unwrap();
    let (registry, fails) = (Registry::with_builtin(), Arc::new(AtomicBool::new(false)));
    let database = with_touchy(&registry, &fails).open(dir.path()).await.unwrap();
    let join = "SELECT x.k, x.times AS left_times, y.times AS right_times FROM x JOIN y ON x.k = y.k";
    let sql = format!(
        "CREATE SOURCE s (n BIGINT) WITH (connector = 'memory', topic = 's');
         CREATE SOURCE r (n BIGINT) WITH (connector = 'memory', topic = 'r');
         CREATE MATERIALIZED VIEW x AS SELECT touchy(n) % 5 AS k, count(*) AS times FROM s GROUP BY 1;
         CREATE MATERIALIZED VIEW y AS SELECT touchy(n) % 5 AS k, count(*) AS times FROM r GROUP BY 1;
         CREATE MATERIALIZED VIEW z AS {join}"
    );
    database.execute(&sql).await.unwrap();
    for source in ["s", "r"] {
        push(&database, source, 0..10);
    }
    until(
        &database,
        "SELECT sum(left_times + right_times)::bigint FROM z",
        20,
    )
    .await;
    database.checkpoint().await.unwrap();
    fails.store(true, Ordering::SeqCst);
    for source in ["s", "r"] {
        push(&database, source, 10..20);
    }
    until(&database, FAILED, 3).await;
    database.checkpoint().await.unwrap();
    fails.store(false, Ordering::SeqCst);
    let outcome = database
        .execute("ALTER MATERIALIZED VIEW x RESUME")
        .await
        .unwrap();
    let notice = &outcome[0].notices[0].message;
    assert!(notice.contains("\"z\" stays failed"), "{notice}");
    until(&database, "SELECT sum(times)::bigint FROM x", 20).await;
    database.checkpoint().await.unwrap();
    drop(database);

    let database = with_touchy(&registry, &fails).open(dir.path()).await.unwrap();
    until(&database, "SELECT sum(times)::bigint FROM y", 20).await;
    assert_eq!(
        rows(&database, "SELECT name, state FROM hw.queries").await,
        ["x|RUNNING", "y|RUNNING", "z|FAILED"]
    );
    assert_eq!(
        rows(
            &database,
            "SELECT sqlstate, error FROM hw.queries WHERE name = 'z'"
        )
        .await,
        ["55000|\"y\", which it reads, has failed"]
    );
    database
        .execute("ALTER MATERIALIZED VIEW z RESUME")
        .await
        .unwrap();
    assert_exact(&database, "z", join, "after it was resumed").await;
}

/// Everything stored belongs to an object of the catalog.
fn assert_swept(dir: &Path) {
    let store = RocksStore::open(dir, &StoreOptions::default()).unwrap();
    let snapshot = store.snapshot();
    let rows = catalog::load(snapshot.as_ref()).unwrap().rows;
    let known: BTreeSet<_> = rows.iter().map(|row| row.id).collect();
    for row in snapshot.scan(Family::Progress, &[], None).unwrap() {
        let (object, _) = layout::split_progress_key(&row.unwrap().0).unwrap();
        assert!(known.contains(&object), "{object:?} was dropped");
    }
    for family in [Family::State, Family::Views, Family::Outbox] {
        for row in snapshot.scan(family, &[], None).unwrap() {
            let (key, _) = row.unwrap();
            let is_known = known
                .iter()
                .any(|id| key.starts_with(&layout::object_prefix(*id)));
            assert!(is_known, "{family:?} {key:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_that_dies_in_a_drop_has_dropped_all_of_it_or_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let a = "SELECT g, count(*) AS n FROM t GROUP BY g";
    let b = "SELECT n, count(*) AS groups FROM a GROUP BY n";
    let create = format!(
        "CREATE MATERIALIZED VIEW IF NOT EXISTS a AS {a}; CREATE MATERIALIZED VIEW IF NOT EXISTS b AS {b};
         CREATE SINK IF NOT EXISTS k INTO kept AS SELECT g, n FROM a"
    );
    let database = Database::open(dir.path()).await.unwrap();
    let tables = "CREATE TABLE t (g BIGINT) APPEND ONLY; CREATE TABLE kept (g BIGINT PRIMARY KEY, n BIGINT)";
    database.execute(tables).await.unwrap();
    database.close().await.unwrap();
    for (point, is_there) in [
        ("drop-before-erase", true),
        ("drop-before-stop", false),
        ("drop-after-stop", false),
    ] {
        let database = Database::open(dir.path()).await.unwrap();
        database.execute(&create).await.unwrap();
        database
            .execute("INSERT INTO t VALUES (1), (2), (2)")
            .await
            .unwrap();
        database.close().await.unwrap();
        let sql = "INSERT INTO t VALUES (3); DROP MATERIALIZED VIEW a CASCADE";
        let (written, is_success) = in_a_process(dir.path(), sql, &[("HIGHWATER_DIE_AT", point)]);
        assert!(!is_success && written.contains("dies at"), "{point}: {written}");

        let database = Database::open(dir.path()).await.unwrap();
        let names = rows(&database, "SELECT name FROM hw.queries").await;
        let expected: &[&str] = match is_there {
            true => &["a", "b", "k", "kept", "t"],
            false => &["kept", "t"],
        };
        assert_eq!(names, expected, "{point}");
        database.execute("INSERT INTO t VALUES (4), (2)").await.unwrap();
        database.execute(&create).await.unwrap();
        assert_exact(&database, "a", a, point).await;
        assert_exact(&database, "b", b, point).await;
        assert_exact(&database, "kept", "SELECT g, n FROM a", point).await;
        database.close().await.unwrap();
        assert_swept(dir.path());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_table_does_not_run_without_its_sink_that_this_process_cannot_open() {
    let dir = tempfile::tempdir().unwrap();
    let variable = [("HIGHWATER_TEST_TOPIC", "out")];
    let sql = "CREATE TABLE t (n BIGINT) APPEND ONLY;
        CREATE SINK k FROM t WITH (connector = 'memory', topic = '${HIGHWATER_TEST_TOPIC}') FORMAT PLAIN ENCODE JSON;
        INSERT INTO t VALUES (1)";
    let (written, is_success) = in_a_process(dir.path(), sql, &variable);
    assert!(is_success, "{written}");

    let database = Database::open(dir.path()).await.unwrap();
    assert_eq!(number(&database, FAILED).await, 2);
    let error = database
        .execute("ALTER TABLE t RESUME")
        .await
        .map(drop)
        .unwrap_err();
    assert!(error.message().contains("\"k\""), "{error}");
    let error = database
        .execute("INSERT INTO t VALUES (2)")
        .await
        .map(drop)
        .unwrap_err();
    assert_eq!(error.sqlstate(), "55000", "{error}");
    assert_eq!(number(&database, FAILED).await, 2);
    database.close().await.unwrap();

    let taken = "INSERT INTO t VALUES (2); SELECT 'taken ' || rows FROM hw.queries WHERE name = 'k'";
    let (written, is_success) = in_a_process(dir.path(), taken, &variable);
    assert!(is_success && written.contains("taken 2"), "{written}");

    // Without the sink the table runs at once.
    let database = Database::open(dir.path()).await.unwrap();
    database
        .execute("DROP SINK k; INSERT INTO t VALUES (3)")
        .await
        .unwrap();
    assert_eq!(number(&database, "SELECT count(*) FROM t").await, 3);
    database.close().await.unwrap();
    assert_swept(dir.path());
}

/// A sink that does not close before its gate is open.
#[derive(Clone, Default)]
struct Slow {
    gate: Arc<(Mutex<Gate>, Condvar)>,
}

#[derive(Default)]
struct Gate {
    is_closing: bool,
    is_open: bool,
}

impl Slow {
    fn is_closing(&self) -> bool {
        self.gate.0.lock().unwrap().is_closing
    }

    fn open_gate(&self) {
        self.gate.0.lock().unwrap().is_open = true;
        self.gate.1.notify_all();
    }
}

impl SinkConnector for Slow {
    fn name(&self) -> &'static str {
        "slow"
    }

    fn options(&self) -> &'static [OptionSpec] {
        &[]
    }

    fn validate(&self, _options: &OptionMap) -> Result<(), ConnectorError> {
        Ok(())
    }

    fn probe(&self, _options: &OptionMap, _timeout: Duration) -> Result<Vec<String>, ConnectorError> {
        Ok(Vec::new())
    }

    fn open(&self, _name: &str, _options: &OptionMap) -> Result<Box<dyn Sink>, ConnectorError> {
        Ok(Box::new(SlowClient {
            slow: self.clone(),
            confirmed: 0,
        }))
    }
}

struct SlowClient {
    slow: Slow,
    confirmed: u64,
}

impl Sink for SlowClient {
    fn write(&mut self, chunk: &SinkChunk, from: usize, _timeout: Duration) -> Result<usize, ConnectorError> {
        self.confirmed = chunk.first_seq + chunk.records.len() as u64;
        Ok(chunk.records.len() - from)
    }

    fn poll_confirmed(&mut self, _timeout: Duration) -> Result<u64, ConnectorError> {
        Ok(self.confirmed)
    }

    fn rewind(&mut self, seq: u64) {
        self.confirmed = seq;
    }

    fn close(&mut self, _timeout: Duration) {
        let (gate, opened) = &*self.slow.gate;
        let mut gate = gate.lock().unwrap();
        gate.is_closing = true;
        while !gate.is_open {
            gate = opened.wait(gate).unwrap();
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sink_that_is_slow_to_close_holds_up_its_drop_and_nobody_else() {
    let (mut registry, slow) = (Registry::with_builtin(), Slow::default());
    registry.add_sink(Arc::new(slow.clone()));
    let database = Database::builder().registry(registry).in_memory().await.unwrap();
    let sql = "CREATE TABLE t (n BIGINT) APPEND ONLY; CREATE TABLE other (n BIGINT);
        CREATE SINK k FROM t WITH (connector = 'slow') FORMAT PLAIN ENCODE JSON;
        INSERT INTO t VALUES (1)";
    let created = database.execute(sql).await;
    if let Err(error) = created {
        panic!("{error} {:?} {:?}", error.detail(), error.hint());
    }
    until(&database, "SELECT confirmed FROM hw.sinks", 1).await;
    let dropping = {
        let database = database.clone();
        tokio::spawn(async move { database.execute("DROP SINK k").await.map(drop) })
    };
    while !slow.is_closing() {
        tokio::task::yield_now().await;
    }
    let others = async {
        database
            .execute("INSERT INTO t VALUES (2); INSERT INTO other VALUES (2); CREATE MATERIALIZED VIEW v AS SELECT n FROM t")
            .await
            .unwrap();
        assert_eq!(
            rows(&database, "SELECT name, state FROM hw.queries").await,
            ["other|RUNNING", "t|RUNNING", "v|RUNNING"]
        );
    };
    tokio::time::timeout(Duration::from_secs(8), others)
        .await
        .expect("nobody waits for the sink");
    assert!(!dropping.is_finished(), "the statement waits for its sink");
    slow.open_gate();
    dropping.await.unwrap().unwrap();
    database.close().await.unwrap();
}

const A: &str = "SELECT auction % 50 AS k, count(*) AS times, sum(price)::bigint AS total FROM bids GROUP BY auction % 50";

const SHARES: &str = "SELECT k, 100 / (v - 7) AS share FROM u";
const SHARED: &str = "SELECT k, count(*) AS n, sum(share)::bigint AS s FROM shares GROUP BY k";

fn reader(at: u64) -> String {
    format!(
        "SELECT k % {by} AS g, count(*) AS keys, sum(times)::bigint AS times, sum(total)::bigint AS total FROM a GROUP BY k % {by}",
        by = at + 2
    )
}

/// A script that makes what is not there, and then changes it at random.
fn script(random: &mut Random, names: &[String]) -> String {
    let mut there: BTreeSet<String> = names.iter().cloned().collect();
    let mut statements = vec![
        "CREATE SOURCE IF NOT EXISTS bids (auction BIGINT, price BIGINT)
           WITH (connector = 'nexmark', rows.per.second = 2000)"
            .to_owned(),
        "CREATE MATERIALIZED VIEW IF NOT EXISTS raw AS SELECT auction, price FROM bids".to_owned(),
        format!("CREATE MATERIALIZED VIEW IF NOT EXISTS a AS {A}"),
        "CREATE TABLE IF NOT EXISTS u (k BIGINT, v BIGINT)".to_owned(),
        format!("CREATE MATERIALIZED VIEW IF NOT EXISTS shares AS {SHARES}"),
        format!("CREATE MATERIALIZED VIEW IF NOT EXISTS shared AS {SHARED}"),
    ];
    for turn in 0..16 {
        let at = random.below(4);
        let (view, sink) = (format!("b{at}"), format!("k{at}"));
        statements.push(match random.below(9) {
            0..=2 if there.insert(view.clone()) => {
                format!("CREATE MATERIALIZED VIEW {view} AS {}", reader(at))
            }
            3..=4 if there.remove(&view) => format!("DROP MATERIALIZED VIEW {view}"),
            5 if there.insert(sink.clone()) => format!(
                "DROP TABLE IF EXISTS h{at}; CREATE TABLE h{at} (auction BIGINT, price BIGINT) APPEND ONLY;
                 CREATE SINK {sink} INTO h{at} FROM raw"
            ),
            6 if there.remove(&sink) => format!("DROP SINK {sink}; DROP TABLE h{at}"),
            7 => format!(
                "INSERT INTO u VALUES ({turn}, 7); DELETE FROM u WHERE v = 7;
                 ALTER MATERIALIZED VIEW shares RESUME"
            ),
            // Runs unless a checkpoint has failed.
            8 => "ALTER MATERIALIZED VIEW a RESUME; ALTER MATERIALIZED VIEW raw RESUME".to_owned(),
            _ => format!("INSERT INTO u VALUES ({turn}, {})", 8 + random.below(5)),
        });
    }
    statements.push(String::new());
    statements.join(";\n")
}

/// Runs a script until it dies at a point, or is killed. Gives what it wrote to standard error.
fn die(dir: &Path, script: &Path, random: &mut Random) -> String {
    let log = script.with_extension("log");
    let point = random.of(&[
        "create-before-run",
        "create-after-run",
        "drop-before-erase",
        "drop-before-stop",
        "drop-after-stop",
        "resume-before-stop",
        "resume-after-stop",
        "resume-after-run",
        "checkpoint-before-write",
        "checkpoint-after-write",
        "none",
    ]);
    let dies_at = format!("{point}:{}", 1 + random.below(3));
    // Pipelines go on in the middle of a change, and a checkpoint may fail.
    let slowly = random.of(&[
        "drop-before-stop",
        "drop-after-stop",
        "resume-after-stop",
        "create-before-run",
    ]);
    let slowly = format!("{slowly}=sleep(60)");
    let points = match random.below(3) {
        0 => format!(
            "{slowly};checkpoint-write-error={}*off->1*return->off",
            5 + random.below(60)
        ),
        1 => slowly,
        _ => String::new(),
    };
    let mut child = Command::new(env!("CARGO_BIN_EXE_highwater"))
        .arg("run")
        .arg(script)
        .arg("--data")
        .arg(dir)
        .args(["--checkpoint-interval", "5ms", "--quiet"])
        .env("HIGHWATER_DIE_AT", dies_at)
        .env("FAILPOINTS", points)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(std::fs::File::create(&log).unwrap())
        .spawn()
        .unwrap();
    let kill_at = Instant::now() + Duration::from_millis(300 + random.below(4_000));
    while child.try_wait().unwrap().is_none() {
        if Instant::now() > kill_at {
            // It may end at this very moment.
            let _ = child.kill();
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    String::from_utf8_lossy(&std::fs::read(log).unwrap()).into_owned()
}

/// Everything that runs agrees with what it reads; and so does everything when it was resumed.
async fn assert_agreement(database: &Database, when: &str) -> Vec<String> {
    let names = rows(database, "SELECT name FROM hw.queries").await;
    for is_resumed in [false, true] {
        let filling = "SELECT count(*) FROM hw.queries WHERE state = 'BACKFILLING'";
        until(database, filling, 0).await;
        let failed = rows(database, "SELECT name FROM hw.queries WHERE state = 'FAILED'").await;
        let mut queries = vec![
            ("shares".to_owned(), SHARES.to_owned()),
            ("shared".to_owned(), SHARED.to_owned()),
        ];
        for at in 0..4 {
            queries.push((format!("b{at}"), reader(at)));
        }
        for (view, query) in &queries {
            if names.contains(view) && !failed.contains(view) {
                assert_exact(database, view, query, &format!("{when}, resumed: {is_resumed}")).await;
            }
        }
        for at in 0..4 {
            let (sink, table) = (format!("k{at}"), format!("h{at}"));
            if names.contains(&sink) && !failed.contains(&sink) && !is_resumed {
                let sql = format!(
                    "SELECT count(*) FROM (SELECT count(*) AS n, sum(price) AS p, sum(auction) AS o FROM {table}) AS own
                       JOIN (SELECT count(*) AS n, sum(price) AS p, sum(auction) AS o FROM raw) AS other
                         ON own.n = other.n AND own.p IS NOT DISTINCT FROM other.p AND own.o IS NOT DISTINCT FROM other.o"
                );
                assert_eq!(number(database, &sql).await, 1, "{sink} {when}");
            }
        }
        // It may have died between the two statements of which one divides by zero and the other takes that away.
        if names.contains(&"u".to_owned()) {
            database.execute("DELETE FROM u WHERE v = 7").await.unwrap();
        }
        for name in ["raw", "a", "shares"] {
            if names.contains(&name.to_owned()) {
                let sql = format!("ALTER MATERIALIZED VIEW {name} RESUME");
                database
                    .execute(&sql)
                    .await
                    .unwrap_or_else(|error| panic!("{sql}: {error} {when}"));
            }
        }
    }
    names
}

/// Gives in how many of the rounds the process died at a point of a change.
async fn die_and_look(seed: u64) -> usize {
    let mut random = Random(seed);
    let place = tempfile::tempdir().unwrap();
    let (dir, file) = (place.path().join("db"), place.path().join("script.sql"));
    let (mut names, mut died) = (Vec::new(), 0);
    for round in 0..6 {
        std::fs::write(&file, script(&mut random, &names)).unwrap();
        let log = die(&dir, &file, &mut random);
        let points = ["create", "drop", "resume"];
        died += usize::from(
            points
                .iter()
                .any(|point| log.contains(&format!("dies at {point}-"))),
        );
        assert!(!log.contains("panicked"), "{log}");
        let builder = Database::builder().checkpoint_interval(Duration::from_millis(5));
        let database = builder.open(&dir).await.unwrap();
        names = assert_agreement(&database, &format!("with seed {seed} in round {round}")).await;
        match random.below(2) {
            0 => drop(database),
            _ => {
                database.close().await.unwrap();
                assert_swept(&dir);
            }
        }
    }
    died
}

#[tokio::test(flavor = "multi_thread")]
async fn views_and_sinks_agree_with_what_they_read_wherever_a_process_dies_in_create_drop_and_resume() {
    let seeds = match std::env::var("HIGHWATER_SEED") {
        Ok(seed) => vec![seed.parse().unwrap()],
        Err(_) => vec![1, 2, 3],
    };
    let mut died = 0;
    for seed in &seeds {
        died += die_and_look(*seed).await;
    }
    assert!(died >= seeds.len(), "{died} deaths in changes prove little");
}
