//! What runs in a database: throughput of three queries, a checkpoint, a recovery, memory.
//!
//! A database in a directory with the settings that a user gets, unless a measurement says otherwise: a checkpoint
//! each second is part of a query's cost.

use std::time::Duration;

use arrow::array::{Array as _, AsArray as _};
use arrow::datatypes::Int64Type;
use arrow::util::pretty::pretty_format_batches;
use highwater::{Database, DatabaseBuilder};

use crate::Failure;
use crate::arguments::{Arguments, Job};
use crate::process::{Figures, Stretch, memory_bytes};
use crate::topic::TOPIC;

/// A query that gets no further for this many seconds stands still.
const PATIENCE_S: f64 = 60.0;
/// Longer than any measurement: no checkpoint but the one that is measured.
const NEVER: Duration = Duration::from_secs(86_400);
/// After this the allocator has given back what steps and checkpoints have freed.
const REST: Duration = Duration::from_secs(5);
/// How many groups the memory of a view is measured with.
const GROUPS: i64 = 1_000_000;

const EVEN_AUCTIONS: &str = "CREATE SINK even_auctions AS
    SELECT auction, bidder, price, date_time FROM bids WHERE auction % 2 = 0
    WITH (connector = 'blackhole')";
const PER_AUCTION: &str = "CREATE MATERIALIZED VIEW per_auction AS
    SELECT window_start, window_end, auction, count(*) AS bids
    FROM TUMBLE(bids, date_time, INTERVAL '10' SECOND)
    GROUP BY window_start, window_end, auction
    EMIT ON WINDOW CLOSE";
const PER_BIDDER: &str = "CREATE MATERIALIZED VIEW per_bidder AS
    SELECT bidder, count(*) AS bids FROM bids GROUP BY bidder";

fn topic_source(servers: &str) -> String {
    format!(
        "CREATE SOURCE bids (auction BIGINT, bidder BIGINT, price BIGINT, channel VARCHAR, url VARCHAR,
             date_time TIMESTAMP, extra VARCHAR, WATERMARK FOR date_time AS date_time - INTERVAL '4' SECOND)
         WITH (connector = 'kafka', topic = '{TOPIC}', properties.bootstrap.server = '{servers}',
               scan.startup.mode = 'earliest')
         FORMAT PLAIN ENCODE JSON"
    )
}

/// Runs `work` on a runtime of its own.
pub(crate) fn in_runtime<T>(work: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?
        .block_on(work)
}

/// The first column of the first row; NULL is zero.
pub(crate) async fn number(database: &Database, sql: &str) -> Result<i64, Failure> {
    let rows = database.query(sql).await?;
    let filled = rows.batches.iter().find(|batch| batch.num_rows() > 0);
    let batch = filled.ok_or_else(|| format!("no rows: {sql}"))?;
    let column = batch
        .column(0)
        .as_primitive_opt::<Int64Type>()
        .ok_or_else(|| format!("no BIGINT: {sql}"))?;
    Ok(if column.is_null(0) { 0 } else { column.value(0) })
}

async fn expect(database: &Database, sql: &str, expected: i64) -> Result<(), Failure> {
    let found = number(database, sql).await?;
    if found == expected {
        return Ok(());
    }
    Err(format!("{sql} gives {found} and not {expected}").into())
}

async fn shown(database: &Database, sql: &str) -> Result<String, Failure> {
    let rows = database.query(sql).await?;
    Ok(pretty_format_batches(&rows.batches)?.to_string())
}

/// Waits until `sql` gives `goal`. It asks when half of what is missing should be there, so that asking costs little.
pub(crate) async fn reach(database: &Database, sql: &str, goal: i64, since: &Stretch) -> Result<(), Failure> {
    let (mut before, mut moved_s) = (0, 0.0);
    loop {
        let found = number(database, sql).await?;
        if found >= goal {
            return Ok(());
        }
        if found > before {
            (before, moved_s) = (found, since.elapsed_s());
        }
        if since.elapsed_s() - moved_s > PATIENCE_S {
            let queries = shown(database, "SELECT name, state, error, detail FROM hw.queries").await?;
            let lanes = shown(database, "SELECT * FROM hw.lanes").await?;
            return Err(format!("{sql} stays at {found} of {goal}\n{queries}\n{lanes}").into());
        }
        let per_row_s = since.elapsed_s() / found.max(1) as f64;
        let half_s = per_row_s * (goal - found) as f64 / 2.0;
        tokio::time::sleep(Duration::from_secs_f64(half_s.clamp(0.005, 0.25))).await;
    }
}

/// How many records the lanes have taken.
pub(crate) const POSITIONS: &str = "SELECT sum(\"position\")::bigint FROM hw.lanes";

/// Runs one query over all bids of the topic.
pub(crate) fn throughput(job: Job, arguments: &Arguments) -> Result<Figures, Failure> {
    let (query, pending) = match job {
        Job::Filter => (EVEN_AUCTIONS, "SELECT sum(pending_rows)::bigint FROM hw.sinks"),
        Job::Window => (PER_AUCTION, "SELECT 0::bigint"),
        _ => (PER_BIDDER, "SELECT 0::bigint"),
    };
    in_runtime(async {
        let database = Database::open(arguments.dir.join(job.name())).await?;
        database.execute(&topic_source(&arguments.servers)).await?;
        let stretch = Stretch::begin()?;
        database.execute(query).await?;
        reach(&database, POSITIONS, arguments.events, &stretch).await?;
        while number(&database, pending).await? > 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let figures = stretch.end()?;
        verify(&database, job, arguments.events).await?;
        let state = number(&database, "SELECT sum(state_rows)::bigint FROM hw.queries").await?;
        database.close().await?;
        Ok(figures.with("state_rows", state as f64))
    })
}

/// A fast wrong answer is none.
async fn verify(database: &Database, job: Job, events: i64) -> Result<(), Failure> {
    match job {
        Job::Filter => {
            let confirmed = number(database, "SELECT sum(confirmed)::bigint FROM hw.sinks").await?;
            if confirmed == 0 || confirmed >= events {
                return Err(format!("{confirmed} of {events} bids are on even auctions").into());
            }
            Ok(())
        }
        Job::Window => expect(database, "SELECT sum(late_rows)::bigint FROM hw.queries", 0).await,
        _ => expect(database, "SELECT sum(bids)::bigint FROM per_bidder", events).await,
    }
}

/// Where the checkpoint leaves its database for the recovery.
fn checkpointed(arguments: &Arguments) -> std::path::PathBuf {
    arguments.dir.join("checkpointed")
}

/// Takes all bids, then makes one checkpoint of everything.
pub(crate) fn checkpoint(arguments: &Arguments) -> Result<Figures, Failure> {
    in_runtime(async {
        let builder = DatabaseBuilder::new().checkpoint_interval(NEVER);
        let database = builder.open(checkpointed(arguments)).await?;
        database.execute(&topic_source(&arguments.servers)).await?;
        database.execute(PER_BIDDER).await?;
        reach(&database, POSITIONS, arguments.events, &Stretch::begin()?).await?;
        let keys = number(&database, "SELECT count(*) FROM per_bidder").await?;
        let stretch = Stretch::begin()?;
        database.checkpoint().await?;
        let mut figures = stretch.end()?.with("keys", keys as f64);
        for name in ["bytes", "write_us", "freeze_max_us"] {
            let found = number(&database, &format!("SELECT max({name}) FROM hw.checkpoints")).await?;
            figures = figures.with(name, found as f64);
        }
        Ok(figures)
    })
}

/// Opens what the checkpoint left, until its view answers.
pub(crate) fn recovery(arguments: &Arguments) -> Result<Figures, Failure> {
    in_runtime(async {
        let stretch = Stretch::begin()?;
        let database = Database::open(checkpointed(arguments)).await?;
        let bids = "SELECT sum(bids)::bigint FROM per_bidder";
        let found = number(&database, bids).await?;
        let figures = stretch.end()?;
        if found != arguments.events {
            return Err(format!("{bids} gives {found} and not {}", arguments.events).into());
        }
        let keys = number(&database, "SELECT count(*) FROM per_bidder").await?;
        database.close().await?;
        Ok(figures.with("keys", keys as f64))
    })
}

/// Resident memory of a view with a million groups, over the process before it opens its database. The rows are made
/// up inside the process, and of so many bidders that hardly any bids twice: no client holds records.
pub(crate) fn memory(arguments: &Arguments) -> Result<Figures, Failure> {
    in_runtime(async {
        let empty = memory_bytes("VmRSS")?;
        let database = Database::open(arguments.dir.join("memory")).await?;
        number(&database, "SELECT 1::bigint").await?;
        let opened = memory_bytes("VmRSS")?;
        let source = format!(
            "CREATE SOURCE bids WITH (connector = 'nexmark', event.num = '{GROUPS}', rows.per.second = '0',
                 bidders = '1000000000000')"
        );
        database.execute(&source).await?;
        database.execute(PER_BIDDER).await?;
        reach(&database, POSITIONS, GROUPS, &Stretch::begin()?).await?;
        database.checkpoint().await?;
        tokio::time::sleep(REST).await;
        let full = memory_bytes("VmRSS")?;
        let peak = memory_bytes("VmHWM")?;
        let state = number(&database, "SELECT sum(state_bytes)::bigint FROM hw.queries").await?;
        let groups = number(&database, "SELECT count(*) FROM per_bidder").await?;
        database.close().await?;
        Ok(Figures::default()
            .with("opened_bytes", opened - empty)
            .with("groups_bytes", full - empty)
            .with("peak_bytes", peak - empty)
            .with("state_bytes", state as f64)
            .with("keys", groups as f64))
    })
}
