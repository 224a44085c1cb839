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
use super::output::Output;
use super::paint::Paint;
use super::render::Format;
use super::script::Script;
use super::status::Status;
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
    /// Nothing is left that could go on.
    AllFailed,
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
    let database = builder.open(&options.data).await?;
    let ended = drive(&database, &script, options, &mut signals).await;
    let closed = tokio::select! {
        closed = database.clone().close() => closed,
        signal = signals.next() => {
            writeln!(std::io::stderr(), "highwater: {signal} again: stopped without a last checkpoint")?;
            return Ok(ExitCode::FAILURE);
        }
    };
    let reason = ended?;
    closed?;
    if !options.quiet {
        let why = match reason {
            Reason::Signal(name) => format!("stopped by {name}"),
            Reason::CaughtUp => "caught up".to_owned(),
            Reason::Ended => "all sources have ended".to_owned(),
            Reason::AllFailed => "every query has failed".to_owned(),
            Reason::NothingRuns => "the script runs no query".to_owned(),
        };
        writeln!(
            std::io::stderr(),
            "highwater: {why}; the last checkpoint is durable"
        )?;
    }
    Ok(if reason == Reason::AllFailed {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    })
}

async fn drive(
    database: &Database,
    script: &Script,
    options: &RunOptions,
    signals: &mut Signals,
) -> Result<Reason, Failure> {
    let output = Output::stdout(Format::Table, options.quiet);
    let mut client = Client::new(database, output, Interrupt::default());
    tokio::select! {
        applied = apply::apply(&mut client, script) => applied?,
        signal = signals.next() => return Ok(Reason::Signal(signal)),
    }
    let mut report = Report::new(options);
    report.start()?;
    let mut was_caught_up = false;
    loop {
        let status = Status::take(&client.session).await?;
        report.show(&status)?;
        if let Some(reason) = over(&status) {
            report.end(&status)?;
            return Ok(reason);
        }
        // Twice in a row: a lane that was about to be assigned is seen by then.
        let is_caught_up = options.until_caught_up && status.is_caught_up();
        if is_caught_up && was_caught_up {
            report.end(&status)?;
            return Ok(if status.failed().next().is_some() {
                Reason::AllFailed
            } else {
                Reason::CaughtUp
            });
        }
        was_caught_up = is_caught_up;
        tokio::select! {
            () = tokio::time::sleep(LOOK) => {}
            signal = signals.next() => {
                report.end(&status)?;
                return Ok(Reason::Signal(signal));
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
    let is_over = status.queries.iter().all(|query| query.state != "RUNNING");
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
