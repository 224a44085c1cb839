//! Tables with one line per column: psql's `\x`.

use std::io::{self, Write};

use super::cells::Cells;
use super::table::{self, lines};
use crate::cli::paint::display_width;

/// How wide names and values are.
pub(super) struct Layout<'a> {
    names: &'a [String],
    name_width: usize,
    value_width: usize,
}

impl<'a> Layout<'a> {
    /// Takes the measures of the table.
    pub(super) fn new(table: &'a table::Layout) -> Self {
        let widths = table
            .names()
            .iter()
            .flat_map(|name| lines(name))
            .map(|line| display_width(&line));
        Self {
            names: table.names(),
            name_width: widths.max().unwrap_or(0),
            value_width: table.value_width(),
        }
    }

    /// One row, below its number.
    pub(super) fn row(
        &self,
        cells: &Cells,
        row: usize,
        number: usize,
        out: &mut dyn Write,
    ) -> io::Result<()> {
        self.rule(number, out)?;
        let mut text = String::new();
        for (column, name) in self.names.iter().enumerate() {
            text.clear();
            cells.write(column, row, &mut text);
            let (names, values) = (lines(name), lines(&text));
            for line in 0..names.len().max(values.len()) {
                let name = names.get(line).map_or("", |text| text.as_ref());
                let name_mark = if line + 1 < names.len() { '+' } else { ' ' };
                let value = values.get(line).map_or("", |text| text.as_ref());
                let blanks = self.name_width - display_width(name);
                write!(out, "{name}{:blanks$}{name_mark}|", "")?;
                if line + 1 < values.len() {
                    let blanks = self.value_width.saturating_sub(display_width(value));
                    write!(out, " {value}{:blanks$}+", "")?;
                } else if !value.is_empty() || line < values.len() {
                    write!(out, " {value}")?;
                }
                writeln!(out)?;
            }
        }
        Ok(())
    }

    /// `-[ RECORD 1 ]--+-----`: the number covers the beginning of the line.
    fn rule(&self, number: usize, out: &mut dyn Write) -> io::Result<()> {
        let name = format!("-[ RECORD {number} ]");
        let line = format!(
            "{}+{}",
            "-".repeat(self.name_width + 1),
            "-".repeat(self.value_width + 1)
        );
        writeln!(out, "{name}{}", line.get(name.len()..).unwrap_or(""))
    }
}
