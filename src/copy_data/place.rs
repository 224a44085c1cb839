//! Where in a COPY something is: the lines of its rows, and PostgreSQL's CONTEXT.

use arrow::record_batch::RecordBatch;

/// Bytes of a line or a value that an error shows, at most.
const SHOWN_BYTES_MAX: usize = 100;

/// The rows that a COPY has brought, as batches of texts, and where they come from.
#[derive(Debug)]
pub struct CopiedRows {
    pub(crate) batches: Vec<RecordBatch>,
    pub(crate) lines: Lines,
}

/// The lines of rows: they go up by one from row to row, but for empty headers and values with line breaks.
#[derive(Debug, Default)]
pub(crate) struct Lines {
    rows: u64,
    /// A row, and its line: those that are not the next line of the row before.
    jumps: Vec<(u64, u64)>,
}

impl Lines {
    /// Notes the line of the next row.
    pub(super) fn add(&mut self, line: u64) {
        if self.rows == 0 || line != self.of(self.rows - 1) + 1 {
            self.jumps.push((self.rows, line));
        }
        self.rows += 1;
    }

    /// The line of a row, both counted as they come: rows from 0, lines from 1.
    pub(crate) fn of(&self, row: u64) -> u64 {
        let after = self.jumps.partition_point(|(first, _)| *first <= row);
        match after.checked_sub(1).map(|at| self.jumps[at]) {
            Some((first, line)) => line + (row - first),
            None => row + 1,
        }
    }
}

/// `COPY t, line 3, column b: "x"`, as far as it is known.
pub(crate) fn context(table: &str, line: u64, column: Option<&str>, text: Option<&str>) -> String {
    let mut context = format!("COPY {table}, line {line}");
    if let Some(column) = column {
        context.push_str(", column ");
        context.push_str(column);
    }
    if let Some(text) = text {
        context.push_str(": \"");
        context.push_str(&shown(text));
        context.push('"');
    }
    context
}

/// The first bytes of a text.
fn shown(text: &str) -> String {
    if text.len() <= SHOWN_BYTES_MAX {
        return text.to_owned();
    }
    let mut end = SHOWN_BYTES_MAX;
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    format!("{}...", &text[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_follow_rows_across_jumps() {
        let mut lines = Lines::default();
        for line in [2, 3, 5, 6, 9] {
            lines.add(line);
        }
        assert_eq!([0, 1, 2, 3, 4].map(|row| lines.of(row)), [2, 3, 5, 6, 9]);
        assert_eq!(lines.jumps.len(), 3);
    }

    #[test]
    fn long_texts_are_cut_between_characters() {
        let long = format!("{}ä", "x".repeat(99));
        let expected = format!("COPY t, line 7, column b: \"{}...\"", "x".repeat(99));
        assert_eq!(context("t", 7, Some("b"), Some(&long)), expected);
        assert_eq!(context("t", 1, None, Some("")), "COPY t, line 1: \"\"");
    }
}
