//! Reading statements from a person: line editing, history over all sessions, completion.

use std::borrow::Cow;
use std::path::PathBuf;

use rustyline::completion::{Completer, Pair};
use rustyline::error::ReadlineError;
use rustyline::highlight::{CmdKind, Highlighter};
use rustyline::hint::Hinter;
use rustyline::history::FileHistory;
use rustyline::validate::Validator;
use rustyline::{CompletionType, Config, Context, Helper};

use super::highlight::highlight;
use super::words::{self, KEYWORDS};
use crate::cli::failure::Failure;
use crate::cli::interrupt::Interrupt;
use crate::cli::paint::{Paint, Tone};
use crate::sql::parse::is_complete;

const PROMPT: &str = "highwater=> ";
const PROMPT_OPEN: &str = "highwater-> ";
/// How many entries the history keeps.
const HISTORY_MAX: usize = 5000;

/// What the person entered.
pub(super) enum Entered {
    /// One or more whole statements.
    Statements(String),
    /// A backslash command, and the statement that was open when it came.
    Command {
        /// The line from the backslash on.
        line: String,
        /// A statement without its semicolon.
        open: String,
    },
    /// An empty line, or Ctrl-C.
    Nothing,
    /// Ctrl-D, `exit` or `quit`.
    Leave,
}

/// The line editor.
pub(super) struct Editor {
    lines: rustyline::Editor<Completion, FileHistory>,
    file: Option<PathBuf>,
    paint: Paint,
    buffer: String,
}

impl Editor {
    /// An editor with the history of earlier sessions.
    ///
    /// # Errors
    /// When the terminal cannot be used.
    pub(super) fn new(paint: Paint) -> Result<Self, Failure> {
        let config = Config::builder()
            .completion_type(CompletionType::List)
            .history_ignore_space(true)
            .max_history_size(HISTORY_MAX)
            .and_then(|builder| builder.history_ignore_dups(true))
            .map_err(broken)?
            .build();
        let mut lines = rustyline::Editor::with_config(config).map_err(broken)?;
        lines.set_helper(Some(Completion {
            names: Vec::new(),
            paint,
        }));
        let file = history_file();
        if let Some(file) = &file {
            // At the first start there is none.
            let _ = lines.load_history(file);
        }
        Ok(Self {
            lines,
            file,
            paint,
            buffer: String::new(),
        })
    }

    /// The names of objects, for completion.
    pub(super) fn set_names(&mut self, names: Vec<String>) {
        if let Some(helper) = self.lines.helper_mut() {
            helper.names = names;
        }
    }

    /// Reads on until a statement or a command is complete. Ctrl-C forgets what was typed.
    ///
    /// # Errors
    /// When the terminal is gone.
    pub(super) fn read(&mut self, interrupt: &Interrupt) -> Result<Entered, Failure> {
        interrupt.clear();
        loop {
            let prompt = if self.buffer.is_empty() {
                PROMPT
            } else {
                PROMPT_OPEN
            };
            interrupt.set_prompt(Some(self.paint.on(Tone::Strong, PROMPT)));
            let line = self
                .lines
                .readline(&(prompt, self.paint.on(Tone::Strong, prompt)));
            interrupt.set_prompt(None);
            if interrupt.is_pressed() {
                // The terminal dropped the line that was open; this one was typed at a new prompt.
                interrupt.clear();
                self.buffer.clear();
            }
            let line = match line {
                Ok(line) => line,
                Err(ReadlineError::Interrupted) => {
                    self.buffer.clear();
                    return Ok(Entered::Nothing);
                }
                Err(ReadlineError::Eof) => return Ok(Entered::Leave),
                Err(error) => return Err(broken(error)),
            };
            if let Some(entered) = self.take(&line) {
                return Ok(entered);
            }
        }
    }

    fn take(&mut self, line: &str) -> Option<Entered> {
        let word = line.trim().trim_end_matches(';');
        if self.buffer.is_empty() {
            match word.to_ascii_lowercase().as_str() {
                "" => return None,
                "exit" | "quit" => return Some(Entered::Leave),
                "help" => return Some(self.command("\\?", "")),
                _ => {}
            }
        }
        if let Some((before, command)) = words::trailing_command(&self.buffer, line) {
            if !before.trim().is_empty() {
                self.buffer.push_str(before);
            }
            self.remember(&format!("{}{}", self.buffer, command));
            let open = std::mem::take(&mut self.buffer);
            return Some(self.command(command, &open));
        }
        self.buffer.push_str(line);
        if !is_complete(&self.buffer) {
            self.buffer.push('\n');
            return None;
        }
        let sql = std::mem::take(&mut self.buffer);
        self.remember(&sql);
        Some(Entered::Statements(sql))
    }

    fn command(&mut self, line: &str, open: &str) -> Entered {
        // Only these use the open statement; after the others it stays open.
        let name = line.split_whitespace().next().unwrap_or(line);
        if !words::TAKES_STATEMENT.contains(&name) {
            open.clone_into(&mut self.buffer);
            return Entered::Command {
                line: line.to_owned(),
                open: String::new(),
            };
        }
        if name == "\\p" {
            open.clone_into(&mut self.buffer);
        }
        Entered::Command {
            line: line.to_owned(),
            open: open.to_owned(),
        }
    }

    fn remember(&mut self, entry: &str) {
        // A history that is full or locked must not stop the work.
        let _ = self.lines.add_history_entry(entry.trim_end());
    }

    /// Writes the history.
    pub(super) fn save(&mut self) {
        if let Some(file) = &self.file {
            // A home directory that cannot be written to costs the history, nothing else.
            let _ = self.lines.append_history(file);
        }
    }
}

fn broken(error: ReadlineError) -> Failure {
    match error {
        ReadlineError::Io(error) => Failure::file("use the terminal", error),
        other => Failure::file("use the terminal", std::io::Error::other(other.to_string())),
    }
}

/// `HIGHWATER_HISTORY`, or a file in the XDG state directory where that is set, or in the home directory.
fn history_file() -> Option<PathBuf> {
    let variable = |name| {
        std::env::var_os(name)
            .filter(|value| !value.is_empty())
            .map(PathBuf::from)
    };
    let own = variable("HIGHWATER_HISTORY");
    let state = || variable("XDG_STATE_HOME").map(|dir| dir.join("highwater_history"));
    own.or_else(state)
        .or_else(|| variable("HOME").map(|home| home.join(".highwater_history")))
}

/// Completes keywords, names of objects, and backslash commands.
struct Completion {
    names: Vec<String>,
    paint: Paint,
}

impl Completer for Completion {
    type Candidate = Pair;

    fn complete(&self, line: &str, pos: usize, _: &Context<'_>) -> rustyline::Result<(usize, Vec<Pair>)> {
        let (start, found) = words::complete(&line[..pos], &self.names, KEYWORDS);
        let pair = |text: String| Pair {
            display: text.clone(),
            replacement: text,
        };
        Ok((start, found.into_iter().map(pair).collect()))
    }
}

impl Hinter for Completion {
    type Hint = String;
}

impl Highlighter for Completion {
    fn highlight<'l>(&self, line: &'l str, _: usize) -> Cow<'l, str> {
        match self.paint {
            Paint::Plain => Cow::Borrowed(line),
            Paint::Colour => Cow::Owned(highlight(line, self.paint)),
        }
    }

    fn highlight_char(&self, _: &str, _: usize, _: CmdKind) -> bool {
        self.paint == Paint::Colour
    }
}

impl Validator for Completion {}
impl Helper for Completion {}
