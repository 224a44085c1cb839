//! A client of one database: runs statements and backslash commands, and shows what they give.

use std::io::Write as _;
use std::ops::Range;
use std::time::Instant;

use super::failure::{Failure, Place, write_error, write_notice};
use super::interrupt::Interrupt;
use super::output::Output;
use super::paint::Paint;
use super::render::{Expanded, Written};
use super::script::{Piece, Script};
use super::shell::commands::{self, Next};
use super::subscription;
use crate::sql::parse::parse;
use crate::sql::statement::{Parsed, Statement};
use crate::{Database, Error, Rows, Session};

/// How deeply scripts may include others.
const INCLUDES_MAX: usize = 16;

/// A session with its output.
pub(super) struct Client {
    /// What statements run in.
    pub(super) session: Session,
    /// Where their results go.
    pub(super) output: Output,
    /// Ctrl-C.
    pub(super) interrupt: Interrupt,
    /// The last statements that ran, for `\g` and `\watch`.
    pub(super) last_sql: String,
    includes: usize,
}

/// A part of a script, ready to run.
enum Ready<'a> {
    Statements(usize, Vec<Parsed>),
    Command(&'a str),
}

impl Client {
    /// A client that has run nothing yet.
    pub(super) fn new(database: &Database, output: Output, interrupt: Interrupt) -> Self {
        Self {
            session: database.session(),
            output,
            interrupt,
            last_sql: String::new(),
            includes: 0,
        }
    }

    /// The database.
    pub(super) fn database(&self) -> &Database {
        self.session.database()
    }

    /// Runs a script up to its first error, which is told. Nothing of it runs when it cannot be read as a whole.
    ///
    /// # Errors
    /// [`Failure::Told`] after an error; an output that takes no more.
    pub(super) async fn run_script(&mut self, script: &Script) -> Result<Next, Failure> {
        self.run_part(script, 0..script.text.len()).await
    }

    /// Runs a part of a script, as [`Self::run_script`] runs all of it.
    ///
    /// # Errors
    /// As [`Self::run_script`].
    pub(super) async fn run_part(&mut self, script: &Script, part: Range<usize>) -> Result<Next, Failure> {
        if self.includes == INCLUDES_MAX {
            let error = Error::new(
                "54001",
                format!("scripts include each other more than {INCLUDES_MAX} deep"),
            );
            return Err(error.into());
        }
        let mut ready = Vec::new();
        for piece in script.pieces_in(part) {
            match piece {
                Piece::Command(range) => ready.push(Ready::Command(script.text[range].trim())),
                Piece::Sql(range) => {
                    let start = range.start;
                    let statements = parse(&script.text[range]).map_err(Error::from);
                    let statements = statements.map_err(|error| self.tell(&error, script, start, 0))?;
                    ready.push(Ready::Statements(start, statements));
                }
            }
        }
        self.includes += 1;
        let ended = self.run_pieces(script, &ready).await;
        self.includes -= 1;
        ended
    }

    async fn run_pieces(&mut self, script: &Script, pieces: &[Ready<'_>]) -> Result<Next, Failure> {
        for piece in pieces {
            match piece {
                Ready::Statements(start, statements) => {
                    for parsed in statements {
                        self.last_sql.clone_from(&parsed.text);
                        self.run_statement(script, *start, parsed).await?;
                    }
                }
                Ready::Command(line) => {
                    if Box::pin(commands::run(self, line)).await? == Next::Quit {
                        return Ok(Next::Quit);
                    }
                }
            }
        }
        Ok(Next::GoOn)
    }

    async fn run_statement(&mut self, script: &Script, start: usize, parsed: &Parsed) -> Result<(), Failure> {
        match self.statement(parsed).await {
            Err(Failure::Database(error)) => Err(self.tell(&error, script, start, parsed.offset)),
            other => other,
        }
    }

    /// Runs one statement and shows what it gives.
    ///
    /// # Errors
    /// What the statement reports, untold; an output that takes no more.
    pub(super) async fn statement(&mut self, parsed: &Parsed) -> Result<(), Failure> {
        let started = Instant::now();
        if let Statement::Subscribe(subscribe) = &parsed.statement {
            let database = self.session.database().clone();
            return subscription::show(&database, subscribe, &mut self.output, &self.interrupt).await;
        }
        let outcome = tokio::select! {
            outcome = self.session.run(parsed) => outcome?,
            () = self.interrupt.pressed() => return Err(cancelled().into()),
        };
        for notice in &outcome.notices {
            write_notice(&mut std::io::stderr().lock(), &notice.message, Paint::stderr())?;
        }
        if self.output.outcome(&outcome, &self.interrupt)? == Written::Stopped {
            return Err(cancelled().into());
        }
        self.output.time(started.elapsed())?;
        Ok(())
    }

    /// Asks the session for rows, for a backslash command.
    ///
    /// # Errors
    /// What the statement reports.
    pub(super) async fn ask(&self, sql: &str) -> Result<Rows, Error> {
        let outcomes = self.session.execute(sql).await?;
        let rows = outcomes.into_iter().rev().find_map(|outcome| outcome.rows);
        rows.ok_or_else(|| Error::new("02000", "the statement returns no rows"))
    }

    /// Runs a text with `\x` on for this once.
    ///
    /// # Errors
    /// As [`Self::run_script`].
    pub(super) async fn run_expanded(&mut self, script: &Script) -> Result<Next, Failure> {
        let before = std::mem::replace(&mut self.output.expanded, Expanded::On);
        let ended = self.run_script(script).await;
        self.output.expanded = before;
        ended
    }

    fn tell(&self, error: &Error, script: &Script, start: usize, statement: usize) -> Failure {
        let place = Place {
            file: script.name.as_deref(),
            text: &script.text,
            start,
            statement,
        };
        let mut stderr = std::io::stderr().lock();
        match write_error(&mut stderr, error, Some(place), Paint::stderr()).and_then(|()| stderr.flush()) {
            Ok(()) => Failure::Told,
            Err(error) => error.into(),
        }
    }
}

fn cancelled() -> Error {
    Error::new("57014", "canceling statement due to user request")
}
