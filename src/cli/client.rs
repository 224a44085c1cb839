//! A client of one database, of this process or of a server: runs statements and backslash commands, and shows what they give.

use std::io::Write as _;
use std::ops::Range;
use std::time::Instant;

use super::failure::{Failure, Place, write_error, write_notice};
use super::interrupt::Interrupt;
use super::link::{Link, cancelled};
use super::output::Output;
use super::paint::Paint;
use super::render::{Expanded, Written};
use super::script::{Piece, Script, runs_open_statement};
use super::shell::commands::{self, Next};
use super::shell::variables::Variables;
use super::subscription;
use crate::sql::parse::{is_complete, parse, parse_each};
use crate::sql::statement::{CopyDirection, Parsed, Statement};
use crate::{Error, Notice};

/// How deeply scripts may include others.
const INCLUDES_MAX: usize = 16;

/// Where statements run, and where their results go.
pub(super) struct Client {
    /// Where statements run.
    pub(super) link: Link,
    /// Where their results go.
    pub(super) output: Output,
    /// Ctrl-C.
    pub(super) interrupt: Interrupt,
    /// The last statements that ran, for `\g` and `\watch`.
    pub(super) last_sql: String,
    /// `\\set`
    pub(super) variables: Variables,
    includes: usize,
}

/// What is wrong with a script that is only planned.
#[derive(Debug, Default)]
pub(super) struct Found {
    /// Statements that would be refused.
    refused: usize,
    /// Statements that read what a refused one would have made.
    unknown: usize,
    /// What refused statements would have made.
    missing: Vec<String>,
}

impl Found {
    /// Notes a statement with an error; whether that is to be told, because no earlier one is its cause.
    fn is_news(&mut self, made: Option<String>, error: &Error) -> bool {
        let is_of = |name: &String| {
            let message = error.message();
            let function = message.strip_prefix("function ");
            let is_function = |text: &str| {
                let behind = text.strip_prefix(name.as_str());
                behind.is_some_and(|behind| behind.starts_with(['(', ' ']))
            };
            match error.sqlstate() {
                "42P01" | "42704" => message.contains(&format!("\"{name}\" does not exist")),
                "42883" => function.is_some_and(is_function),
                _ => false,
            }
        };
        let is_caused = self.missing.iter().any(is_of);
        self.missing.extend(made);
        match is_caused {
            true => self.unknown += 1,
            false => self.refused += 1,
        }
        !is_caused
    }

    /// All of it in a sentence, if there is anything.
    pub(super) fn summary(&self) -> Option<String> {
        let count = |count: usize| match count {
            1 => "1 statement".to_owned(),
            more => format!("{more} statements"),
        };
        if self.refused == 0 {
            return None;
        }
        let mut text = format!("{} of the script would be refused", count(self.refused));
        if self.unknown > 0 {
            text.push_str(&format!(
                "; {} more could not be planned without them",
                count(self.unknown)
            ));
        }
        text.push('.');
        Some(text)
    }
}

impl Statements<'_> {
    /// Whether a command runs the last of them, which is open.
    fn is_open_before(&self, command: &str) -> bool {
        self.is_open && self.last_by.is_none() && !self.all.is_empty() && runs_open_statement(command)
    }
}

/// What a statement that cannot be read would make: what is named behind `CREATE` and its kind.
fn named_by(text: &str) -> Option<String> {
    let mut words = text.split(|letter: char| letter.is_whitespace() || letter == '(');
    let mut words = words.by_ref().filter(|word| !word.is_empty()).peekable();
    let is = |word: &&str, one_of: &[&str]| one_of.iter().any(|known| word.eq_ignore_ascii_case(known));
    words.next_if(|word| is(word, &["create"]))?;
    while words
        .next_if(|word| is(word, &["or", "replace", "materialized", "temporary", "temp"]))
        .is_some()
    {}
    words.next_if(|word| is(word, &["source", "table", "view", "index", "sink", "function"]))?;
    while words.next_if(|word| is(word, &["if", "not", "exists"])).is_some() {}
    let name = words.next()?.trim_end_matches([';', ',']);
    let name = name.strip_prefix("public.").unwrap_or(name);
    let quoted = name.strip_prefix('"').and_then(|name| name.strip_suffix('"'));
    Some(quoted.map_or_else(|| name.to_lowercase(), str::to_owned))
}

/// The name of the relation or function that a statement makes.
fn made_by(statement: &Statement) -> Option<String> {
    match statement {
        Statement::CreateSource(source) => Some(source.name.clone()),
        Statement::CreateTable(table) => Some(table.name.clone()),
        Statement::CreateView(view) => Some(view.name.clone()),
        Statement::CreateMaterializedView(view) => Some(view.name.clone()),
        Statement::CreateFunction(function) => Some(function.name.clone()),
        _ => None,
    }
}

/// Statements that follow each other.
struct Statements<'a> {
    /// Where they begin in the script.
    start: usize,
    /// The script with the values of its variables, if it has any in this part.
    filled: Option<Script>,
    all: Vec<Parsed>,
    /// Whether the last one has no end.
    is_open: bool,
    /// The command that runs the last one.
    last_by: Option<&'a str>,
}

/// A part of a script, ready to run.
enum Ready<'a> {
    Statements(Statements<'a>),
    Command(&'a str),
}

impl Client {
    /// A client that has run nothing yet.
    pub(super) fn new(link: Link, output: Output, interrupt: Interrupt) -> Self {
        Self {
            link,
            output,
            interrupt,
            last_sql: String::new(),
            variables: Variables::default(),
            includes: 0,
        }
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
        // What the script sets is seen by its statements behind it.
        let mut variables = self.variables.clone();
        for piece in script.pieces_in(part) {
            match piece {
                Piece::Command(range) => {
                    let line = script.text[range].trim();
                    variables.preview(line);
                    match ready.last_mut() {
                        Some(Ready::Statements(open)) if open.is_open_before(line) => {
                            open.last_by = Some(line)
                        }
                        _ => ready.push(Ready::Command(line)),
                    }
                }
                Piece::Sql(range) => {
                    let start = range.start;
                    let filled = variables.fill(&script.text[range.clone()]);
                    let filled = filled.map(|text| (script.with_part(range.clone(), &text), text));
                    let text = filled.as_ref().map_or(&script.text[range], |(_, text)| text);
                    let shown = filled.as_ref().map_or(script, |(script, _)| script);
                    let statements = parse(text).map_err(Error::from);
                    let statements = statements.map_err(|error| self.tell(&error, shown, start, 0))?;
                    ready.push(Ready::Statements(Statements {
                        is_open: !is_complete(text),
                        start,
                        filled: filled.map(|(script, _)| script),
                        all: statements,
                        last_by: None,
                    }));
                }
            }
        }
        self.includes += 1;
        let ended = self.run_pieces(script, &ready).await;
        self.includes -= 1;
        ended
    }

    /// Plans the statements of a part of a script, and tells every error that is not the consequence of an earlier one.
    ///
    /// # Errors
    /// An output that takes no more.
    pub(super) async fn check_part(
        &mut self,
        script: &Script,
        part: Range<usize>,
        found: &mut Found,
    ) -> Result<(), Failure> {
        let start = part.start;
        let told = |failure: Failure| match failure {
            Failure::Told => Ok(()),
            other => Err(other),
        };
        let text = &script.text[part];
        let statements = match parse_each(text) {
            Ok(statements) => statements,
            Err(error) => {
                let error = error.into();
                found.is_news(None, &error);
                return told(self.tell(&error, script, start, 0));
            }
        };
        for (offset, parsed) in statements {
            let (made, planned) = match parsed {
                Ok(parsed) => (made_by(&parsed.statement), self.statement(&parsed).await),
                Err(error) => (named_by(&text[offset..]), Err(Error::from(error).into())),
            };
            match planned {
                Ok(()) => {}
                Err(Failure::Database(error)) => {
                    if found.is_news(made, &error) {
                        told(self.tell(&error, script, start, offset))?;
                    }
                }
                Err(other) => return Err(other),
            }
        }
        Ok(())
    }

    async fn run_pieces(&mut self, script: &Script, pieces: &[Ready<'_>]) -> Result<Next, Failure> {
        for piece in pieces {
            match piece {
                Ready::Statements(statements) => self.run_statements(script, statements).await?,
                Ready::Command(line) => {
                    if Box::pin(commands::run(self, line)).await? == Next::Quit {
                        return Ok(Next::Quit);
                    }
                }
            }
        }
        Ok(Next::GoOn)
    }

    async fn run_statements(&mut self, script: &Script, statements: &Statements<'_>) -> Result<(), Failure> {
        let script = statements.filled.as_ref().unwrap_or(script);
        for (at, parsed) in statements.all.iter().enumerate() {
            self.last_sql.clone_from(&parsed.text);
            let is_last = at + 1 == statements.all.len();
            match statements.last_by.filter(|_| is_last) {
                Some(command) if command.starts_with("\\watch") => {
                    Box::pin(commands::run(self, command)).await?;
                }
                command => {
                    let expanded = self.output.expanded;
                    if command.is_some_and(|command| command.starts_with("\\gx")) {
                        self.output.expanded = Expanded::On;
                    }
                    let ended = self.run_statement(script, statements.start, parsed).await;
                    self.output.expanded = expanded;
                    ended?;
                }
            }
        }
        Ok(())
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
        if let Some(notices) = self.link.planned(parsed).await? {
            return tell_notices(&notices);
        }
        match &parsed.statement {
            Statement::Subscribe(_) => {
                return subscription::show(&self.link, parsed, &mut self.output, &self.interrupt).await;
            }
            Statement::Copy(copy) if copy.direction == CopyDirection::Out => {
                let out = self.output.writer();
                self.link.copy_out(parsed, out, &self.interrupt).await?;
                return Ok(out.flush()?);
            }
            _ => {}
        }
        let outcome = self.link.run(parsed, &self.interrupt).await?;
        tell_notices(&outcome.notices)?;
        if self.output.outcome(&outcome, &self.interrupt)? == Written::Stopped {
            return Err(cancelled().into());
        }
        self.output.time(started.elapsed())?;
        Ok(())
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

fn tell_notices(notices: &[Notice]) -> Result<(), Failure> {
    for notice in notices {
        write_notice(&mut std::io::stderr().lock(), &notice.message, Paint::stderr())?;
    }
    Ok(())
}
