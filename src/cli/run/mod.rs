//! `highwater run`: a script whose pipelines go on until a signal. Running the same script again goes on from the last
//! checkpoint.

mod apply;
mod existing;
mod report;
mod signals;

use std::io::Write as _;
use std::process::ExitCode;
use std::time::Duration;

use self::report::Report;
use self::signals::Signals;
use super::args::RunOptions;
use super::client::Client;
use super::failure::{Failure, Place, write_error};
use super::interrupt::Interrupt;
use super::link::Link;
use super::opening::with_memory;
use super::output::Output;
use super::paint::Paint;
use super::render::Format;
use super::script::Script;
use super::status::{QueryStatus, Status};
use crate::Database;

/// Time between two looks at what runs.
const LOOK: Duration = Duration::from_millis(250);

/// Why the pipelines are stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reason {
    /// SIGTERM, or SIGINT as Ctrl-C sends it.
    Signal(&'static str),
    /// `--until-caught-up`
    CaughtUp,
    /// All sources have an end, and it is reached.
    Ended,
    /// Every query has failed: nothing is left that could go on.
    AllFailed,
    /// Some queries have failed; the others have taken all there is.
    SomeFailed,
    /// The script creates no view and no sink.
    NothingRuns,
}

/// Runs the script, then its pipelines until something stops them; ends with a last checkpoint.
///
/// # Errors
/// What the script reports, a directory that cannot be opened, a last checkpoint that failed.
pub(super) async fn run(options: &RunOptions) -> Result<ExitCode, Failure> {
    let script = Script::read(&options.file)?;
    let mut signals = Signals::listen()?;
    let builder = Database::builder().checkpoint_interval(options.checkpoint_interval);
    let builder = with_memory(builder, options.memory_limit);
    let database = builder.open(&options.data).await?;
    let ended = drive(&database, &script, options, &mut signals).await;
    let closed = tokio::select! {
        closed = database.clone().close() => closed,
        signal = signals.next() => {
            writeln!(std::io::stderr(), "highwater: {signal} again: stopped without a last checkpoint")?;
            return Ok(ExitCode::FAILURE);
        }
    };
    let end = ended?;
    closed?;
    end.tell(options.quiet)?;
    Ok(match end.reason {
        Reason::AllFailed | Reason::SomeFailed => ExitCode::FAILURE,
        Reason::Signal(_) | Reason::CaughtUp | Reason::Ended | Reason::NothingRuns => ExitCode::SUCCESS,
    })
}

/// How a run came to its end.
struct End {
    reason: Reason,
    failed: Vec<QueryStatus>,
    /// Queries that did not fail.
    good: usize,
}

impl End {
    fn new(reason: Reason, status: &Status) -> Self {
        let failed: Vec<QueryStatus> = status.failed().cloned().collect();
        let good = status.queries.len() - failed.len();
        let reason = match reason {
            Reason::CaughtUp | Reason::Ended if !failed.is_empty() => Reason::SomeFailed,
            other => other,
        };
        Self { reason, failed, good }
    }

    /// Says on standard error which queries failed and why; why the run ended, unless it is to be quiet.
    fn tell(&self, quiet: bool) -> Result<(), Failure> {
        let mut stderr = std::io::stderr().lock();
        for query in &self.failed {
            let error = query.error.as_deref().unwrap_or("no reason is recorded");
            writeln!(stderr, "highwater: query \"{}\" has failed: {error}", query.name)?;
            if let Some(detail) = &query.detail {
                writeln!(stderr, "DETAIL:  {detail}")?;
            }
        }
        if quiet {
            return Ok(());
        }
        let why = match self.reason {
            Reason::Signal(name) => format!("stopped by {name}"),
            Reason::CaughtUp => "caught up".to_owned(),
            Reason::Ended => "all sources have ended".to_owned(),
            Reason::AllFailed => "every query has failed".to_owned(),
            Reason::SomeFailed => {
                let (failed, all) = (self.failed.len(), self.failed.len() + self.good);
                format!("{failed} of {all} queries failed, the others have caught up")
            }
            Reason::NothingRuns => "the script runs no query".to_owned(),
        };
        writeln!(stderr, "highwater: {why}; the last checkpoint is durable")?;
        Ok(())
    }
}

async fn drive(
    database: &Database,
    script: &Script,
    options: &RunOptions,
    signals: &mut Signals,
) -> Result<End, Failure> {
    let output = Output::stdout(Format::Table, options.quiet);
    let link = Link::Own(Box::new(database.session()));
    let mut client = Client::new(link, output, Interrupt::default());
    let session = database.session();
    tokio::select! {
        applied = apply::apply(&mut client, &session, script) => applied?,
        signal = signals.next() => return Ok(End::new(Reason::Signal(signal), &Status::default())),
    }
    let mut report = Report::new(options);
    report.start()?;
    let mut was_caught_up = false;
    loop {
        let status = Status::take(&session).await?;
        report.show(&status)?;
        if let Some(reason) = over(&status) {
            report.end(&status)?;
            return Ok(End::new(reason, &status));
        }
        // Twice in a row: a lane that was about to be assigned is seen by then.
        let is_caught_up = options.until_caught_up && status.is_caught_up();
        if is_caught_up && was_caught_up {
            report.end(&status)?;
            return Ok(End::new(Reason::CaughtUp, &status));
        }
        was_caught_up = is_caught_up;
        tokio::select! {
            () = tokio::time::sleep(LOOK) => {}
            signal = signals.next() => {
                report.end(&status)?;
                return Ok(End::new(Reason::Signal(signal), &status));
            }
        }
    }
}

/// Whether nothing can go on by itself.
fn over(status: &Status) -> Option<Reason> {
    if status.queries.is_empty() {
        return Some(Reason::NothingRuns);
    }
    if status.failed().count() == status.queries.len() {
        return Some(Reason::AllFailed);
    }
    let is_over = status
        .queries
        .iter()
        .all(|query| !matches!(query.state.as_str(), "RUNNING" | "BACKFILLING"));
    (is_over && status.pending_rows() == 0).then_some(Reason::Ended)
}

/// Tells an error of the script, pointing into it.
fn tell(error: &crate::Error, script: &Script, statement: usize) -> Failure {
    let place = Place {
        file: script.name.as_deref(),
        text: &script.text,
        start: 0,
        statement,
    };
    match write_error(&mut std::io::stderr().lock(), error, Some(place), Paint::stderr()) {
        Ok(()) => Failure::Told,
        Err(error) => error.into(),
    }
}
