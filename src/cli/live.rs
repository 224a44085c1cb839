//! Lines at the bottom of a terminal that are redrawn in place. Logs go above them.

use std::io::{self, IsTerminal as _, Write};

use crossterm::QueueableCommand as _;
use crossterm::cursor::MoveUp;
use crossterm::terminal::{Clear, ClearType};
use parking_lot::Mutex;

use super::paint::{Line, Paint, terminal_size, terminal_width};

/// How many lines stand there now. There is one terminal, so there is one block.
static DRAWN: Mutex<u16> = Mutex::new(0);

/// The block of lines on standard output.
#[derive(Debug, Clone, Copy)]
pub(super) struct Live {
    paint: Paint,
    is_terminal: bool,
}

impl Live {
    /// A block on standard output.
    pub(super) fn stdout() -> Self {
        Self {
            paint: Paint::stdout(),
            is_terminal: io::stdout().is_terminal(),
        }
    }

    /// Whether lines can be redrawn at all.
    pub(super) fn is_terminal(self) -> bool {
        self.is_terminal
    }

    /// Replaces the block. Without a terminal it does nothing: lines that cannot be redrawn are printed once.
    ///
    /// # Errors
    /// When standard output takes no more.
    pub(super) fn draw(self, lines: &[Line]) -> io::Result<()> {
        if !self.is_terminal {
            return Ok(());
        }
        let (_, rows) = terminal_size();
        // A block higher than the screen could not be found again.
        let lines = &lines[..lines.len().min(rows.saturating_sub(1))];
        let mut drawn = DRAWN.lock();
        let mut out = io::stdout().lock();
        erase(&mut drawn, &mut out)?;
        for line in lines {
            writeln!(out, "{}", line.paint(self.paint, terminal_width()))?;
        }
        *drawn = u16::try_from(lines.len()).unwrap_or(u16::MAX);
        out.flush()
    }

    /// Prints a line that stays, above the block.
    ///
    /// # Errors
    /// When standard output takes no more.
    pub(super) fn print(self, line: &Line) -> io::Result<()> {
        let mut drawn = DRAWN.lock();
        let mut out = io::stdout().lock();
        erase(&mut drawn, &mut out)?;
        writeln!(out, "{}", line.paint(self.paint, None))?;
        out.flush()
    }

    /// Leaves the block where it is and starts a new one below it.
    pub(super) fn keep(self) {
        *DRAWN.lock() = 0;
    }
}

fn erase(drawn: &mut u16, out: &mut impl Write) -> io::Result<()> {
    if *drawn > 0 {
        out.queue(MoveUp(*drawn))?
            .queue(Clear(ClearType::FromCursorDown))?;
        *drawn = 0;
    }
    Ok(())
}

/// Standard error for logs: takes the block away first, so that the two do not mix. The next drawing brings it back.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct AboveBlock;

impl Write for AboveBlock {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut drawn = DRAWN.lock();
        if *drawn > 0 {
            let mut out = io::stdout().lock();
            erase(&mut drawn, &mut out)?;
            out.flush()?;
        }
        io::stderr().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().flush()
    }
}
