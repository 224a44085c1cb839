//! Where results go, and how they look: standard output or a file, as a table, CSV or JSON.

use std::fs::File;
use std::io::{self, BufWriter, IsTerminal as _, Write};
use std::time::Duration;

use super::interrupt::Interrupt;
use super::pager::{self, Paging};
use super::paint::{display_width, terminal_size, terminal_width};
use super::render::{self, Expanded, Format, Look, Written};
use crate::{Outcome, Rows};

/// The writing end of the shell.
pub(super) struct Output {
    out: BufWriter<Box<dyn Write + Send>>,
    to_terminal: bool,
    /// `\pset pager`: only a person leafs through pages.
    pub(super) paging: Paging,
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
            paging: Paging::Off,
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
        let stop = || interrupt.is_pressed();
        let written = match self.terminal().filter(|_| self.paging != Paging::Off) {
            Some(terminal) => {
                let mut text = Vec::new();
                let written = render::write(rows, &look, &stop, &mut text)?;
                self.out.flush()?;
                if !self.is_paged(&text, terminal) || !pager::show(&text) {
                    self.out.write_all(&text)?;
                }
                written
            }
            None => render::write(rows, &look, &stop, &mut self.out)?,
        };
        self.out.flush()?;
        Ok(written)
    }

    /// Columns and lines of the terminal that is written to, if it is one.
    fn terminal(&self) -> Option<(usize, usize)> {
        if !self.to_terminal || !io::stdout().is_terminal() {
            return None;
        }
        Some(terminal_size())
    }

    fn is_paged(&self, text: &[u8], terminal: (usize, usize)) -> bool {
        let text = String::from_utf8_lossy(text);
        let (mut lines, mut columns) = (0, 0);
        for line in text.lines() {
            lines += 1;
            columns = columns.max(display_width(line));
        }
        self.paging.wants(lines, columns, terminal)
    }

    /// Whether a table can be drawn again and again.
    pub(super) fn is_drawn(&self) -> bool {
        self.format == Format::Table && self.expanded != Expanded::On && self.terminal().is_some()
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
    pub(super) fn writer(&mut self) -> &mut (dyn Write + Send) {
        &mut self.out
    }
}

/// Whether the tag is that of a statement that changes rows.
fn is_change(tag: &str) -> bool {
    ["INSERT ", "UPDATE ", "DELETE "]
        .iter()
        .any(|verb| tag.starts_with(verb))
}
