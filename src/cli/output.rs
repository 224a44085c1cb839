//! Where results go, and how they look: standard output or a file, as a table, CSV or JSON.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::time::Duration;

use super::interrupt::Interrupt;
use super::paint::terminal_width;
use super::render::{self, Expanded, Format, Look, Written};
use crate::{Outcome, Rows};

/// The writing end of the shell.
pub(super) struct Output {
    out: BufWriter<Box<dyn Write + Send>>,
    to_terminal: bool,
    /// How rows are written.
    pub(super) format: Format,
    /// `\x`
    pub(super) expanded: Expanded,
    /// `\timing`
    pub(super) timing: bool,
    /// No command tags.
    pub(super) quiet: bool,
}

impl Output {
    /// Writes to standard output.
    pub(super) fn stdout(format: Format, quiet: bool) -> Self {
        Self {
            out: BufWriter::new(Box::new(io::stdout())),
            to_terminal: true,
            format,
            expanded: Expanded::Off,
            timing: false,
            quiet,
        }
    }

    /// Writes to `file` from now on, or to standard output again.
    ///
    /// # Errors
    /// When the last output cannot be written out.
    pub(super) fn redirect(&mut self, file: Option<File>) -> io::Result<()> {
        self.out.flush()?;
        self.to_terminal = file.is_none();
        let out: Box<dyn Write + Send> = match file {
            Some(file) => Box::new(file),
            None => Box::new(io::stdout()),
        };
        self.out = BufWriter::new(out);
        Ok(())
    }

    /// What a statement gave: its rows, or its tag. CSV and JSON carry rows alone.
    ///
    /// # Errors
    /// When nothing more can be written.
    pub(super) fn outcome(&mut self, outcome: &Outcome, interrupt: &Interrupt) -> io::Result<Written> {
        let written = match &outcome.rows {
            Some(rows) => {
                let written = self.rows(rows, None, interrupt)?;
                // As psql does: the rows of RETURNING, then what was done.
                if is_change(&outcome.tag) {
                    self.tag(&outcome.tag)?;
                }
                written
            }
            None => {
                self.tag(&outcome.tag)?;
                Written::Whole
            }
        };
        self.out.flush()?;
        Ok(written)
    }

    /// A command tag, where tags are shown.
    fn tag(&mut self, tag: &str) -> io::Result<()> {
        if !self.quiet && self.format == Format::Table {
            writeln!(self.out, "{tag}")?;
        }
        Ok(())
    }

    /// Rows, with a title above a table.
    ///
    /// # Errors
    /// When nothing more can be written.
    pub(super) fn rows(
        &mut self,
        rows: &Rows,
        title: Option<&str>,
        interrupt: &Interrupt,
    ) -> io::Result<Written> {
        let look = Look {
            format: self.format,
            expanded: self.expanded,
            width: if self.to_terminal { terminal_width() } else { None },
            title: title.map(str::to_owned),
            footer: title.is_none(),
        };
        let written = render::write(rows, &look, &|| interrupt.is_pressed(), &mut self.out)?;
        self.out.flush()?;
        Ok(written)
    }

    /// `Time: 1.234 ms`, if asked for.
    ///
    /// # Errors
    /// When nothing more can be written.
    pub(super) fn time(&mut self, taken: Duration) -> io::Result<()> {
        if self.timing {
            let ms = taken.as_secs_f64() * 1000.0;
            writeln!(self.out, "Time: {ms:.3} ms")?;
            self.out.flush()?;
        }
        Ok(())
    }

    /// A line of text.
    ///
    /// # Errors
    /// When nothing more can be written.
    pub(super) fn line(&mut self, text: &str) -> io::Result<()> {
        writeln!(self.out, "{text}")?;
        self.out.flush()
    }

    /// For output that comes in pieces.
    pub(super) fn writer(&mut self) -> &mut dyn Write {
        &mut self.out
    }
}

/// Whether the tag is that of a statement that changes rows.
fn is_change(tag: &str) -> bool {
    ["INSERT ", "UPDATE ", "DELETE "]
        .iter()
        .any(|verb| tag.starts_with(verb))
}
