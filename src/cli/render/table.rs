//! Tables as psql draws them: centred names, numbers to the right, `+` where a cell goes on in the next line.

use std::borrow::Cow;
use std::io::{self, Read as _, Write};

use arrow::datatypes::Schema;

use super::cells::{Cells, aligns_right};
use crate::cli::paint::display_width;

/// Columns that a tab goes to the next multiple of.
const TAB_COLUMNS: usize = 8;

/// How wide each column is, and how it is aligned.
pub(super) struct Layout {
    names: Vec<String>,
    widths: Vec<usize>,
    value_width: usize,
    right: Vec<bool>,
    /// Reused for each cell.
    text: String,
}

/// One cell as the lines that it takes.
type CellLines<'a> = Vec<Cow<'a, str>>;

impl Layout {
    /// A table without rows: as wide as its names.
    pub(super) fn new(schema: &Schema) -> Self {
        let names: Vec<String> = schema.fields().iter().map(|field| field.name().clone()).collect();
        let widths = names.iter().map(|name| widest(&lines(name))).collect();
        let right = schema.fields().iter().map(|field| aligns_right(field)).collect();
        Self {
            names,
            widths,
            value_width: 0,
            right,
            text: String::new(),
        }
    }

    /// Makes room for a row.
    pub(super) fn measure(&mut self, cells: &Cells, row: usize) {
        for (column, width) in self.widths.iter_mut().enumerate() {
            self.text.clear();
            if cells.write(column, row, &mut self.text) {
                let value_width = widest(&lines(&self.text));
                *width = (*width).max(value_width);
                self.value_width = self.value_width.max(value_width);
            }
        }
    }

    /// The names.
    pub(super) fn names(&self) -> &[String] {
        &self.names
    }

    /// The widest value of all columns.
    pub(super) fn value_width(&self) -> usize {
        self.value_width
    }

    /// Columns of the whole table.
    pub(super) fn width(&self) -> usize {
        self.widths
            .iter()
            .map(|width| width + 3)
            .sum::<usize>()
            .saturating_sub(1)
    }

    /// A line centred above the table.
    pub(super) fn title(&self, title: &str, out: &mut dyn Write) -> io::Result<()> {
        let indent = self.width().saturating_sub(display_width(title)) / 2;
        blank(out, indent)?;
        writeln!(out, "{title}")
    }

    /// The names and the line below them.
    pub(super) fn header(&self, out: &mut dyn Write) -> io::Result<()> {
        let names: Vec<CellLines<'_>> = self.names.iter().map(|name| lines(name)).collect();
        let height = names.iter().map(Vec::len).max().unwrap_or(0);
        for line in 0..height {
            for (column, name) in names.iter().enumerate() {
                let text = name.get(line).map_or("", |text| text.as_ref());
                let blanks = self.widths[column] - display_width(text);
                let left = blanks / 2;
                let mark = if line + 1 < name.len() { "+" } else { " " };
                let end = if column + 1 < names.len() { "|" } else { "" };
                blank(out, left + 1)?;
                write!(out, "{text}")?;
                blank(out, blanks - left)?;
                write!(out, "{mark}{end}")?;
            }
            writeln!(out)?;
        }
        if names.is_empty() {
            return writeln!(out, "--");
        }
        let rules: Vec<String> = self.widths.iter().map(|width| "-".repeat(width + 2)).collect();
        writeln!(out, "{}", rules.join("+"))
    }

    /// One row, in as many lines as its highest cell needs.
    pub(super) fn row(&self, cells: &Cells, row: usize, out: &mut dyn Write) -> io::Result<()> {
        let mut texts = vec![String::new(); self.widths.len()];
        for (column, text) in texts.iter_mut().enumerate() {
            cells.write(column, row, text);
        }
        let cells: Vec<CellLines<'_>> = texts.iter().map(|text| lines(text)).collect();
        let height = cells.iter().map(Vec::len).max().unwrap_or(0);
        for line in 0..height {
            for (column, cell) in cells.iter().enumerate() {
                self.cell_line(cell, line, column, out)?;
            }
            writeln!(out)?;
        }
        Ok(())
    }

    fn cell_line(
        &self,
        cell: &CellLines<'_>,
        line: usize,
        column: usize,
        out: &mut dyn Write,
    ) -> io::Result<()> {
        let is_last = column + 1 == self.widths.len();
        let goes_on = line + 1 < cell.len();
        let text = cell.get(line).map(|text| text.as_ref());
        let blanks = self.widths[column].saturating_sub(text.map_or(0, display_width));
        out.write_all(b" ")?;
        match text {
            Some(text) if self.right[column] => {
                blank(out, blanks)?;
                out.write_all(text.as_bytes())?;
            }
            Some(text) if is_last && !goes_on => out.write_all(text.as_bytes())?,
            None if is_last => {}
            text => {
                out.write_all(text.unwrap_or("").as_bytes())?;
                blank(out, blanks)?;
            }
        }
        match (goes_on, is_last) {
            (true, true) => out.write_all(b"+"),
            (true, false) => out.write_all(b"+|"),
            (false, false) => out.write_all(b" |"),
            (false, true) => Ok(()),
        }
    }
}

fn widest(lines: &CellLines<'_>) -> usize {
    lines.iter().map(|line| display_width(line)).max().unwrap_or(0)
}

/// The lines of a cell, with what would move the cursor made visible.
pub(super) fn lines(text: &str) -> CellLines<'_> {
    text.split('\n').map(visible).collect()
}

/// Tabs become blanks, other control characters are written as psql does: `\r`, `\x1B`.
fn visible(line: &str) -> Cow<'_, str> {
    if !line.chars().any(char::is_control) {
        return Cow::Borrowed(line);
    }
    let mut text = String::with_capacity(line.len() + TAB_COLUMNS);
    for char in line.chars() {
        match char {
            '\t' => {
                let blanks = TAB_COLUMNS - display_width(&text) % TAB_COLUMNS;
                text.extend(std::iter::repeat_n(' ', blanks));
            }
            '\r' => text.push_str("\\r"),
            char if char.is_control() && u32::from(char) < 0x100 => {
                text.push_str(&format!("\\x{:02X}", u32::from(char)));
            }
            char => text.push(char),
        }
    }
    Cow::Owned(text)
}

/// So many blanks: a width in a format string may not exceed 65,535.
fn blank(out: &mut dyn Write, count: usize) -> io::Result<()> {
    io::copy(&mut io::repeat(b' ').take(count as u64), out).map(drop)
}
