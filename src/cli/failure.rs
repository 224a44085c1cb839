//! Errors as psql shows them: the message, the line with a caret below the place, the detail, the hint.

use std::io::{self, Write};

use super::paint::{Paint, Tone, display_width};
use crate::Error;

/// How many columns of a line an error shows at most.
const LINE_COLUMNS_MAX: usize = 72;
/// How many columns before the place stay when a line is cut.
const LEFT_COLUMNS: usize = 40;

/// Why the command line stops.
#[derive(Debug)]
pub(super) enum Failure {
    /// It is told already.
    Told,
    /// An error of the database, without a text to point into.
    Database(Error),
    /// What was written to is gone, or a file cannot be read.
    Io(String, io::Error),
}

impl Failure {
    /// A file operation that failed: `what` is a verb with its object.
    pub(super) fn file(what: impl Into<String>, error: io::Error) -> Self {
        Self::Io(what.into(), error)
    }

    /// Says it on `out`. A reader that went away wants to hear nothing.
    pub(super) fn write(&self, out: &mut dyn Write, paint: Paint) -> io::Result<()> {
        match self {
            Self::Told => Ok(()),
            Self::Database(error) => write_error(out, error, None, paint),
            Self::Io(_, error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
            Self::Io(what, error) if what.is_empty() => writeln!(out, "highwater: {error}"),
            Self::Io(what, error) => writeln!(out, "highwater: cannot {what}: {error}"),
        }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Database(error)
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::Io(String::new(), error)
    }
}

/// Says on standard error what is wrong with something that is no statement.
pub(super) fn told(text: &str) -> Failure {
    match writeln!(io::stderr(), "{text}") {
        Ok(()) => Failure::Told,
        Err(error) => error.into(),
    }
}

/// Where an error's position points into.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place<'a> {
    /// The file's name, if the text comes from one.
    pub(super) file: Option<&'a str>,
    /// The whole text.
    pub(super) text: &'a str,
    /// The byte of the whole text that the error's positions count from.
    pub(super) start: usize,
    /// Where the statement starts, counted from `start`: told for errors in a file that know no place of their own.
    pub(super) statement: usize,
}

/// Writes an error in psql's layout.
pub(super) fn write_error(
    out: &mut dyn Write,
    error: &Error,
    place: Option<Place<'_>>,
    paint: Paint,
) -> io::Result<()> {
    if let Some(Place {
        file: Some(file),
        text,
        start,
        statement,
    }) = place
    {
        let byte = start + error.position().unwrap_or(statement);
        write!(out, "{file}:{}: ", line_number(text, byte))?;
    }
    writeln!(out, "{}  {}", paint.on(Tone::Bad, "ERROR:"), error.message())?;
    if let (Some(place), Some(position)) = (place, error.position()) {
        write_line(out, place.text, place.start + position, paint)?;
    }
    if let Some(detail) = error.detail() {
        writeln!(out, "{}  {detail}", paint.on(Tone::Strong, "DETAIL:"))?;
    }
    if let Some(hint) = error.hint() {
        writeln!(out, "{}  {hint}", paint.on(Tone::Strong, "HINT:"))?;
    }
    if let Some(context) = error.context() {
        writeln!(out, "{}  {context}", paint.on(Tone::Strong, "CONTEXT:"))?;
    }
    Ok(())
}

/// Writes a notice.
pub(super) fn write_notice(out: &mut dyn Write, message: &str, paint: Paint) -> io::Result<()> {
    writeln!(out, "{}  {message}", paint.on(Tone::Warning, "NOTICE:"))
}

fn line_number(text: &str, byte: usize) -> usize {
    let before = floor(text, byte);
    text[..before].matches('\n').count() + 1
}

/// The start of the character that `byte` is in, or the end of the text.
fn floor(text: &str, byte: usize) -> usize {
    let mut at = byte.min(text.len());
    while !text.is_char_boundary(at) {
        at -= 1;
    }
    at
}

/// The line around `byte` and a caret below it. What would move the cursor is shown as a blank.
fn write_line(out: &mut dyn Write, text: &str, byte: usize, paint: Paint) -> io::Result<()> {
    let at = floor(text, byte);
    let start = text[..at].rfind('\n').map_or(0, |newline| newline + 1);
    let end = text[at..].find('\n').map_or(text.len(), |newline| at + newline);
    let blank = |text: &str| {
        text.chars()
            .map(|char| if char.is_control() { ' ' } else { char })
            .collect::<String>()
    };
    let (before, mut after) = (blank(&text[start..at]), blank(&text[at..end]));
    let mut before = before.as_str();
    let mut lead = format!("LINE {}: ", line_number(text, byte));
    if display_width(before) + display_width(&after) > LINE_COLUMNS_MAX {
        if display_width(before) > LEFT_COLUMNS {
            lead.push_str("...");
            before = tail(before, LEFT_COLUMNS);
        }
        let room = LINE_COLUMNS_MAX - display_width(before);
        let kept = super::paint::cut(&after, room).len();
        if kept < after.len() {
            after.truncate(kept);
            after.push_str("...");
        }
    }
    writeln!(out, "{lead}{before}{}", after.trim_end())?;
    let indent = display_width(&lead) + display_width(before);
    writeln!(out, "{:indent$}{}", "", paint.on(Tone::Bad, "^"))
}

/// The longest end of `text` that takes at most `width` columns.
fn tail(text: &str, width: usize) -> &str {
    let from = text
        .char_indices()
        .map(|(at, _)| at)
        .find(|at| display_width(&text[*at..]) <= width);
    &text[from.unwrap_or(text.len())..]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(error: &Error, place: Option<Place<'_>>) -> String {
        let mut out = Vec::new();
        write_error(&mut out, error, place, Paint::Plain).unwrap();
        String::from_utf8(out).unwrap()
    }

    fn place(text: &str) -> Option<Place<'_>> {
        Some(Place {
            file: None,
            text,
            start: 0,
            statement: 0,
        })
    }

    #[test]
    fn the_caret_stands_below_the_character() {
        let text = "SELECT 1,\n\t'日本' + äö, x FROM t;";
        let at = text.find("x FROM").unwrap();
        let error = Error::new("42703", "column \"x\" does not exist")
            .at(Some(at))
            .with_hint("Try y.");
        assert_eq!(
            shown(&error, place(text)),
            "ERROR:  column \"x\" does not exist\n\
             LINE 2:  '日本' + äö, x FROM t;\n\
             \x20                     ^\n\
             HINT:  Try y.\n"
        );
    }

    #[test]
    fn a_position_inside_a_character_or_behind_the_end_does_no_harm() {
        let error = |at| Error::new("42601", "syntax error").at(Some(at));
        assert!(shown(&error(2), place("aä")).ends_with("LINE 1: aä\n         ^\n"));
        assert!(shown(&error(99), place("ab")).ends_with("LINE 1: ab\n          ^\n"));
    }

    #[test]
    fn a_long_line_is_cut_around_the_place() {
        let text = format!("{}HERE{}", "a".repeat(100), "b".repeat(100));
        let error = Error::new("42601", "syntax error").at(Some(100));
        let shown = shown(&error, place(&text));
        let lines: Vec<&str> = shown.lines().collect();
        assert!(
            lines[1].starts_with("LINE 1: ...aaa") && lines[1].ends_with("bbb..."),
            "{shown}"
        );
        let caret = lines[2].find('^').unwrap();
        assert_eq!(&lines[1][caret..caret + 4], "HERE");
    }

    #[test]
    fn an_error_in_a_file_names_file_and_line() {
        let text = "SELECT 1;\nSELECT 2;";
        let place = |statement| {
            Some(Place {
                file: Some("a.sql"),
                text,
                start: 0,
                statement,
            })
        };
        let error = Error::new("22012", "division by zero").with_detail("Row 1.");
        assert_eq!(
            shown(&error, place(10)),
            "a.sql:2: ERROR:  division by zero\nDETAIL:  Row 1.\n"
        );
        assert!(shown(&error.at(Some(3)), place(10)).starts_with("a.sql:1: ERROR:"));
    }
}
