//! `highwater demo`: an auction house in the process, a crash in the middle, and the proof that nothing was lost.
//!
//! ```text
//! house ──bids──▶ producer ──▶ topic bids (mock broker) ──▶ docs/examples/demo.sql ──▶ views, topic hot_auctions
//!   └────────────────────── the truth ───────────────────────────▶ proof ◀───────────────────┘
//! ```

mod house;
mod producer;
mod proof;
mod screen;
mod sql;

use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use self::house::House;
use self::producer::Producer;
use self::screen::Screen;
use super::args::DemoOptions;
use super::failure::Failure;
use super::figures::Figures;
use super::paint::{Tone, grouped};
use super::status::Status;
use crate::connectors::kafka::mock::MockBroker;
use crate::{Database, Error, Session};

/// Partitions of the topic `bids`.
const PARTITIONS: i32 = 4;
/// Time between two pictures.
const PICTURE: Duration = Duration::from_millis(250);
/// How long the pipeline may take to read what is left at the end, and to open again.
const PATIENCE: Duration = Duration::from_secs(30);

/// Shows the demo. The exit status is 0 only when the views agree with what the house knows it has sold.
///
/// # Errors
/// When something that the demo needs cannot be had: threads, ports, a directory for a while.
pub(super) async fn show(options: &DemoOptions) -> Result<ExitCode, Failure> {
    tokio::select! {
        shown = play(options) => shown,
        _ = tokio::signal::ctrl_c() => Ok(ExitCode::FAILURE),
    }
}

async fn play(options: &DemoOptions) -> Result<ExitCode, Failure> {
    let mut screen = Screen::new(options.seconds);
    screen.headline(
        "Highwater demo",
        "an auction house on a Kafka broker inside this process",
    )?;
    let broker = MockBroker::start(1).map_err(Error::from)?;
    broker.create_topic("bids", PARTITIONS).map_err(Error::from)?;
    broker.create_topic("hot_auctions", 1).map_err(Error::from)?;
    let servers = broker.bootstrap_servers();
    let dir = tempfile::Builder::new().prefix("highwater-demo-").tempdir()?;
    let script = sql::script(&servers);
    screen.sql(&script)?;

    let database = Database::open(dir.path()).await?;
    database.execute(&script).await?;
    let house = House::open();
    let producer = Producer::start(house.clone(), &servers)?;
    let started = Instant::now();
    let whole = Duration::from_secs(options.seconds);
    let session = database.session();
    watch(&session, &mut screen, started, started + whole / 2).await?;
    let before = Status::take(&session).await?;
    let read = positions(&session).await?;
    drop(session);
    // No close and no last checkpoint: what is not durable by now is lost with the memory.
    drop(database);
    screen.headline(
        "Crash",
        "the pipeline is dropped in full run, without a last checkpoint",
    )?;

    let database = reopen(dir.path(), &mut screen, before.epoch, read).await?;
    let session = database.session();
    watch(&session, &mut screen, started, started + whole).await?;
    let sold = producer.stop()?;
    settle(&session, &house, sold).await?;
    screen
        .last_picture(&Status::take(&session).await?, &session, started.elapsed())
        .await?;
    let holds = prove(&session, &mut screen, &house, sold, &servers).await?;
    drop(session);
    database.close().await?;
    screen.next_steps(holds)?;
    Ok(if holds {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// Draws what the views show until `end`.
async fn watch(
    session: &Session,
    screen: &mut Screen,
    started: Instant,
    end: Instant,
) -> Result<(), Failure> {
    while Instant::now() < end {
        let status = Status::take(session).await?;
        screen.picture(&status, session, started.elapsed()).await?;
        tokio::time::sleep(PICTURE).await;
    }
    screen.keep(session).await
}

/// Records that the closed windows were computed from, over all partitions.
async fn positions(session: &Session) -> Result<i64, Error> {
    let sql = "SELECT sum(position) AS position FROM hw.lanes WHERE query = 'closed_windows'";
    let figures = Figures::ask(session, sql).await?;
    Ok(figures.rows().find_map(|row| row.int("position")).unwrap_or(0))
}

/// Opens the directory again, after a look at what the crash has left on disk.
async fn reopen(dir: &Path, screen: &mut Screen, epoch: i64, read: i64) -> Result<Database, Failure> {
    let left = Database::builder().open_read_only(dir).await?;
    let durable = positions(&left.session()).await?;
    drop(left);
    let deadline = Instant::now() + PATIENCE;
    let opened = Instant::now();
    let database = loop {
        match Database::open(dir).await {
            Ok(database) => break database,
            // The dropped pipeline may still be letting go of the directory.
            Err(error) if Instant::now() >= deadline => return Err(error.into()),
            Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
        }
    };
    let again = (read - durable).max(0).unsigned_abs();
    screen.fact(&format!(
        "it had read {} bids; checkpoint {epoch} is on disk",
        grouped(read.unsigned_abs())
    ))?;
    screen.fact(&format!(
        "opened again in {:.0} ms: goes on at bid {} and reads {} again",
        opened.elapsed().as_secs_f64() * 1000.0,
        grouped(durable.unsigned_abs()),
        grouped(again)
    ))?;
    Ok(database)
}

/// Waits until all that was sold has been read and delivered.
async fn settle(session: &Session, house: &House, sold: i64) -> Result<(), Failure> {
    let expected = house.truth(sold).total;
    let deadline = Instant::now() + PATIENCE;
    loop {
        let counted = Figures::ask(session, "SELECT sum(bids) AS bids FROM auctions").await?;
        let counted = counted.rows().find_map(|row| row.int("bids")).unwrap_or(0);
        let status = Status::take(session).await?;
        let is_settled = counted >= expected && status.is_caught_up();
        if is_settled || status.failed().next().is_some() || Instant::now() >= deadline {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Compares the views and the topic with what the house knows, and says what it finds.
async fn prove(
    session: &Session,
    screen: &mut Screen,
    house: &House,
    sold: i64,
    servers: &str,
) -> Result<bool, Failure> {
    let truth = house.truth(sold);
    screen.headline("Proof", "the views against what the house knows it has sold")?;
    session.execute(&sql::read_back(servers)).await?;
    let deadline = Instant::now() + PATIENCE;
    let delivered = loop {
        let delivered = proof::delivered(session, &truth).await?;
        if delivered.holds || Instant::now() >= deadline {
            break delivered;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    };
    let verdicts = [
        proof::windows(session, &truth).await?,
        proof::auctions(session, &truth).await?,
        delivered,
    ];
    for verdict in &verdicts {
        screen.verdict(verdict.holds, &verdict.text)?;
    }
    for query in Status::take(session).await?.failed() {
        let error = query.error.clone().unwrap_or_default();
        screen.line(Tone::Bad, &format!("  FAILED {}: {error}", query.name))?;
    }
    Ok(verdicts.iter().all(|verdict| verdict.holds))
}
