//! A pager for what is longer than the terminal.

use std::io::{self, Write as _};
use std::process::{Command, Stdio};

/// When a pager is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Paging {
    /// Never.
    Off,
    /// For what has more lines than the terminal, or longer ones.
    On,
    /// For all rows.
    Always,
}

impl Paging {
    /// Whether a text of so many lines, the longest of so many columns, is shown by a pager.
    pub(super) fn wants(self, lines: usize, columns: usize, terminal: (usize, usize)) -> bool {
        match self {
            Self::Off => false,
            Self::Always => true,
            // The last line is for the prompt.
            Self::On => lines + 1 > terminal.1 || columns > terminal.0,
        }
    }
}

/// Shows a text by `HIGHWATER_PAGER`, `PAGER` or `less`; gives whether there was one.
pub(super) fn show(text: &[u8]) -> bool {
    let variable = |name| std::env::var(name).ok();
    let command = variable("HIGHWATER_PAGER").or_else(|| variable("PAGER"));
    let command = command.unwrap_or_else(|| "less".to_owned());
    if command.trim().is_empty() {
        return false;
    }
    let mut pager = Command::new("/bin/sh");
    pager.args(["-c", &command]).stdin(Stdio::piped());
    if std::env::var_os("LESS").is_none() {
        // Long lines are not folded, colours stay, and what fits on the screen ends the pager at once.
        pager.env("LESS", "FRSX");
    }
    let Ok(mut pager) = pager.spawn() else {
        return false;
    };
    let written = pager.stdin.take().map(|mut stdin| stdin.write_all(text));
    // Who leaves a pager early has seen enough.
    let was_left = |error: &io::Error| error.kind() == io::ErrorKind::BrokenPipe;
    let is_shown = match written {
        Some(Err(error)) => was_left(&error),
        Some(Ok(())) => true,
        None => false,
    };
    // 126 and 127 are the shell's own: the command cannot be run.
    pager
        .wait()
        .is_ok_and(|status| is_shown && !matches!(status.code(), Some(126 | 127)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pager_is_for_what_does_not_fit() {
        let terminal = (80, 24);
        assert!(!Paging::On.wants(23, 80, terminal));
        assert!(Paging::On.wants(24, 10, terminal));
        assert!(Paging::On.wants(1, 81, terminal));
        assert!(!Paging::Off.wants(1000, 1000, terminal));
        assert!(Paging::Always.wants(1, 1, terminal));
    }
}
