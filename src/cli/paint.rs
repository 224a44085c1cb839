//! Colours, where the reader is a terminal and has not asked for none, and text as wide as a terminal shows it.

use std::io::IsTerminal as _;

use unicode_width::{UnicodeWidthChar as _, UnicodeWidthStr as _};

/// Whether to colour.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Paint {
    /// Plain text.
    Plain,
    /// ANSI colours.
    Colour,
}

/// What a piece of text is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Tone {
    /// As everything else.
    Plain,
    /// What matters most.
    Strong,
    /// What can be overlooked.
    Faint,
    /// All is well.
    Good,
    /// Something is odd.
    Warning,
    /// Something is wrong.
    Bad,
    /// A bar of a chart.
    Bar,
}

impl Tone {
    fn code(self) -> &'static str {
        match self {
            Self::Plain => "",
            Self::Strong => "1",
            Self::Faint => "2",
            Self::Good => "32",
            Self::Warning => "33",
            Self::Bad => "1;31",
            Self::Bar => "36",
        }
    }
}

impl Paint {
    /// For standard output.
    pub(super) fn stdout() -> Self {
        Self::of(std::io::stdout().is_terminal())
    }

    /// For standard error.
    pub(super) fn stderr() -> Self {
        Self::of(std::io::stderr().is_terminal())
    }

    /// As <https://no-color.org> asks.
    fn of(terminal: bool) -> Self {
        let refused = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        if terminal && !refused {
            Self::Colour
        } else {
            Self::Plain
        }
    }

    /// `text` in its tone.
    pub(super) fn on(self, tone: Tone, text: &str) -> String {
        if self == Self::Plain || tone == Tone::Plain || text.is_empty() {
            return text.to_owned();
        }
        format!("\x1b[{}m{text}\x1b[0m", tone.code())
    }
}

/// A line in pieces, so that it can be cut to a width before it is coloured.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Line(Vec<(Tone, String)>);

impl Line {
    /// An empty line.
    pub(super) fn new() -> Self {
        Self::default()
    }

    /// A line of one tone.
    pub(super) fn of(tone: Tone, text: impl Into<String>) -> Self {
        Self::new().with(tone, text)
    }

    /// Adds a piece.
    #[must_use]
    pub(super) fn with(mut self, tone: Tone, text: impl Into<String>) -> Self {
        self.0.push((tone, text.into()));
        self
    }

    /// The line as text, at most `width` columns wide.
    pub(super) fn paint(&self, paint: Paint, width: Option<usize>) -> String {
        let mut left = width.unwrap_or(usize::MAX);
        let mut text = String::new();
        for (tone, piece) in &self.0 {
            let kept = cut(piece, left);
            left -= display_width(kept);
            text.push_str(&paint.on(*tone, kept));
            if kept.len() < piece.len() {
                break;
            }
        }
        text
    }
}

/// How many columns of a terminal `text` takes.
pub(super) fn display_width(text: &str) -> usize {
    if text.is_ascii() { text.len() } else { text.width() }
}

/// The longest beginning of `text` that takes at most `width` columns.
pub(super) fn cut(text: &str, width: usize) -> &str {
    let mut taken = 0;
    for (at, char) in text.char_indices() {
        taken += char.width().unwrap_or(0);
        if taken > width {
            return &text[..at];
        }
    }
    text
}

/// `1234567` as `1,234,567`.
pub(super) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Columns and lines of a terminal; those of an old one where it does not say.
pub(super) fn terminal_size() -> (usize, usize) {
    match crossterm::terminal::size() {
        Ok((columns, lines)) if columns > 0 && lines > 0 => (usize::from(columns), usize::from(lines)),
        _ => (80, 24),
    }
}

/// The width of the terminal behind standard output, if it is one.
pub(super) fn terminal_width() -> Option<usize> {
    if !std::io::stdout().is_terminal() {
        return None;
    }
    crossterm::terminal::size()
        .ok()
        .map(|(columns, _)| usize::from(columns))
        .filter(|columns| *columns > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_cut_by_columns_and_only_then_coloured() {
        let line = Line::of(Tone::Bad, "日本").with(Tone::Plain, "abc");
        assert_eq!(line.paint(Paint::Plain, Some(5)), "日本a");
        assert_eq!(line.paint(Paint::Plain, Some(3)), "日");
        assert_eq!(line.paint(Paint::Colour, Some(2)), "\x1b[1;31m日\x1b[0m");
    }

    #[test]
    fn numbers_are_grouped_by_three() {
        let shown = [0, 999, 1000, 1_234_567].map(grouped);
        assert_eq!(shown, ["0", "999", "1,000", "1,234,567"]);
    }
}
