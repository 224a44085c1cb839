//! Scripts: SQL with backslash commands between its statements.

use std::io::{BufRead as _, Read as _, StdinLock};
use std::ops::Range;
use std::path::Path;

use super::failure::Failure;
use crate::sql::parse::is_complete;

/// What errors call standard input.
const STDIN_NAME: &str = "<stdin>";
/// The byte order mark, which says nothing in UTF-8.
const MARK: char = '\u{feff}';

/// A text that was read from somewhere.
#[derive(Debug)]
pub(super) struct Script {
    /// The file's name as errors show it; none for `-c`.
    pub(super) name: Option<String>,
    /// All of it.
    pub(super) text: String,
}

/// A part of a script, as bytes of its text.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Piece {
    /// Statements.
    Sql(Range<usize>),
    /// A line that starts with a backslash.
    Command(Range<usize>),
}

impl Script {
    /// Reads a file; `-` is standard input.
    ///
    /// # Errors
    /// When it cannot be read or is not UTF-8.
    pub(super) fn read(path: &Path) -> Result<Self, Failure> {
        if path.as_os_str() == "-" {
            return Self::stdin();
        }
        let name = path.display().to_string();
        let text = std::fs::read_to_string(path);
        let text = text.map_err(|error| Failure::file(format!("read \"{name}\""), error))?;
        Ok(Self {
            name: Some(name),
            text: without_mark(text),
        })
    }

    /// Reads standard input to its end.
    ///
    /// # Errors
    /// When it cannot be read or is not UTF-8.
    pub(super) fn stdin() -> Result<Self, Failure> {
        let mut text = String::new();
        let read = std::io::stdin().read_to_string(&mut text);
        read.map_err(|error| Failure::file("read standard input", error))?;
        Ok(Self {
            name: Some(STDIN_NAME.to_owned()),
            text: without_mark(text),
        })
    }

    /// A text from the command line.
    pub(super) fn command(text: &str) -> Self {
        Self {
            name: None,
            text: text.to_owned(),
        }
    }

    /// The same script with another text in place of a part of it.
    pub(super) fn with_part(&self, part: Range<usize>, text: &str) -> Self {
        let mut whole = self.text.clone();
        whole.replace_range(part, text);
        Self {
            name: self.name.clone(),
            text: whole,
        }
    }

    /// Its statements and backslash commands in order.
    pub(super) fn pieces(&self) -> Vec<Piece> {
        self.pieces_in(0..self.text.len())
    }

    /// The statements and backslash commands of a part. A line with a backslash inside a statement belongs to it, but for a command
    /// that runs the statement: that stands behind the open statement, in a line of its own or at the end of one.
    pub(super) fn pieces_in(&self, part: Range<usize>) -> Vec<Piece> {
        let mut pieces = Vec::new();
        let mut sql_from = part.start;
        let mut at = part.start;
        for line in self.text[part.clone()].split_inclusive('\n') {
            let (start, end) = (at, at + line.len());
            at = end;
            if line.trim_start().starts_with('\\') && is_between(&self.text[sql_from..start]) {
                push_sql(&self.text, sql_from..start, &mut pieces);
                pieces.push(Piece::Command(start..end));
                sql_from = end;
            } else if let Some(at) = runs_at(&self.text[sql_from..end], start - sql_from) {
                pieces.push(Piece::Sql(sql_from..sql_from + at));
                pieces.push(Piece::Command(sql_from + at..end));
                sql_from = end;
            }
        }
        push_sql(&self.text, sql_from..part.end, &mut pieces);
        pieces
    }
}

/// Standard input as it comes: what is complete can run before the rest is there.
pub(super) struct Piped {
    /// What was read so far.
    pub(super) script: Script,
    input: StdinLock<'static>,
    /// Where the part begins that is not complete yet.
    open_from: usize,
}

impl Piped {
    /// Has read nothing yet.
    pub(super) fn stdin() -> Self {
        Self {
            script: Script {
                name: Some(STDIN_NAME.to_owned()),
                text: String::new(),
            },
            input: std::io::stdin().lock(),
            open_from: 0,
        }
    }

    /// Waits for the next statements or backslash command, as bytes of the script; none at the end of the input.
    ///
    /// # Errors
    /// When it cannot be read or is not UTF-8.
    pub(super) fn next_part(&mut self) -> Result<Option<Range<usize>>, Failure> {
        loop {
            let start = self.script.text.len();
            let read = self.input.read_line(&mut self.script.text);
            let read = read.map_err(|error| Failure::file("read standard input", error))?;
            if start == 0 && self.script.text.starts_with(MARK) {
                self.script.text.remove(0);
            }
            let text = &self.script.text;
            let (open, line) = (&text[self.open_from..start], &text[start..]);
            let is_command = (line.trim_start().starts_with('\\') && is_between(open))
                || runs_at(&text[self.open_from..], start - self.open_from).is_some();
            let is_whole =
                read == 0 || is_command || (line.contains(';') && is_complete(&text[self.open_from..]));
            if is_whole {
                let part = self.open_from..text.len();
                self.open_from = part.end;
                return Ok((read > 0 || !part.is_empty()).then_some(part));
            }
        }
    }
}

/// The commands that run an open statement.
const RUNNING: [&str; 3] = ["\\g", "\\gx", "\\watch"];

/// Whether a command runs the statement before it, if that is open.
pub(super) fn runs_open_statement(command: &str) -> bool {
    let name = command.split_whitespace().next();
    name.is_some_and(|name| RUNNING.contains(&name))
}

/// Where in the last line of `text`, which starts at `line`, a command begins that runs the open statement before it.
fn runs_at(text: &str, line: usize) -> Option<usize> {
    let mut places = text[line..].match_indices('\\').map(|(at, _)| line + at);
    places.find(|at| {
        let (open, command) = text.split_at(*at);
        runs_open_statement(command) && !is_between(open) && is_complete(&format!("{open};"))
    })
}

/// A text without the mark that some editors begin a file with.
fn without_mark(mut text: String) -> String {
    if text.starts_with(MARK) {
        text.remove(0);
    }
    text
}

/// Whether a text ends between two statements: an empty statement behind it changes nothing.
fn is_between(text: &str) -> bool {
    text.trim().is_empty() || is_complete(text) || is_comment_only(text)
}

fn is_comment_only(text: &str) -> bool {
    text.lines()
        .map(str::trim)
        .all(|line| line.is_empty() || line.starts_with("--"))
}

fn push_sql(text: &str, range: Range<usize>, pieces: &mut Vec<Piece>) {
    if !text[range.clone()].trim().is_empty() {
        pieces.push(Piece::Sql(range));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pieces(text: &str) -> Vec<(bool, &str)> {
        let script = Script::command(text);
        let ranges = script.pieces().into_iter().map(|piece| match piece {
            Piece::Sql(range) => (false, range),
            Piece::Command(range) => (true, range),
        });
        ranges
            .map(|(is_command, range)| (is_command, text[range].trim()))
            .collect()
    }

    #[test]
    fn commands_stand_between_statements() {
        let found = pieces("SELECT 1;\nSELECT 2;\n\\d\n  \\x on\nSELECT 3");
        let expected = [
            (false, "SELECT 1;\nSELECT 2;"),
            (true, "\\d"),
            (true, "\\x on"),
            (false, "SELECT 3"),
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn a_backslash_inside_a_statement_belongs_to_it() {
        let text = "SELECT '\n\\d\n';";
        assert_eq!(pieces(text), [(false, text)]);
    }

    #[test]
    fn an_open_statement_is_run_by_a_command_behind_it() {
        let found =
            pieces("SELECT 1\n\\g\nSELECT 2 \\gx\nSELECT '\\g'\n\\g\nSELECT '\n\\g\n';\nSELECT 3 -- \\g\n;");
        let expected = [
            (false, "SELECT 1"),
            (true, "\\g"),
            (false, "SELECT 2"),
            (true, "\\gx"),
            (false, "SELECT '\\g'"),
            (true, "\\g"),
            (false, "SELECT '\n\\g\n';\nSELECT 3 -- \\g\n;"),
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn a_comment_before_a_command_is_no_open_statement() {
        assert_eq!(
            pieces("-- all of it\n\\d"),
            [(false, "-- all of it"), (true, "\\d")]
        );
    }
}
