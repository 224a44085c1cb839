//! Rows as text: tables in psql's layout, CSV, JSON lines. Everything is written as it is made, never held as a whole.

mod cells;
mod csv;
mod expanded;
mod json;
mod table;

use std::io::{self, Write};

use arrow::datatypes::SchemaRef;
use arrow::record_batch::RecordBatch;

use self::cells::Cells;
pub(super) use self::cells::{Element, Meaning, aligns_right};
use crate::Rows;

/// How rows are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Format {
    /// Aligned columns, for people
    Table,
    /// Comma-separated values with a header; NULL is an empty field
    Csv,
    /// One JSON object per line, numbers exact
    Json,
}

/// Whether a table shows one row below the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Expanded {
    /// Columns side by side.
    Off,
    /// One line per column.
    On,
    /// One line per column when the table is wider than the terminal.
    Auto,
}

/// How a result is shown.
#[derive(Debug, Clone)]
pub(super) struct Look {
    /// How rows are written.
    pub(super) format: Format,
    /// Whether a table shows one row below the other.
    pub(super) expanded: Expanded,
    /// Columns of the terminal, if it is one.
    pub(super) width: Option<usize>,
    /// A line above the table.
    pub(super) title: Option<String>,
    /// `(3 rows)` below the table.
    pub(super) footer: bool,
}

/// What ended the writing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Written {
    /// All of it is written.
    Whole,
    /// Somebody asked to stop.
    Stopped,
}

/// Rows between two looks at whether to stop.
const STOP_ROWS: usize = 1024;

/// Writes `rows`; `stop` is asked now and then.
///
/// # Errors
/// When `out` takes no more.
pub(super) fn write(
    rows: &Rows,
    look: &Look,
    stop: &dyn Fn() -> bool,
    out: &mut dyn Write,
) -> io::Result<Written> {
    match look.format {
        Format::Csv => {
            csv::header(&rows.schema, out)?;
            each(rows, stop, &mut |cells, row| csv::row(cells, row, out))
        }
        Format::Json => {
            let names = json::names(&rows.schema);
            for batch in &rows.batches {
                if json::rows(&names, batch, stop, out)? == Written::Stopped {
                    return Ok(Written::Stopped);
                }
            }
            Ok(Written::Whole)
        }
        Format::Table => write_table(rows, look, stop, out),
    }
}

fn write_table(
    rows: &Rows,
    look: &Look,
    stop: &dyn Fn() -> bool,
    out: &mut dyn Write,
) -> io::Result<Written> {
    let mut layout = table::Layout::new(&rows.schema);
    if each(rows, stop, &mut |cells, row| {
        layout.measure(cells, row);
        Ok(())
    })? == Written::Stopped
    {
        return Ok(Written::Stopped);
    }
    let count = rows.num_rows();
    let too_wide = || look.width.is_some_and(|width| layout.width() > width);
    let expanded = match look.expanded {
        Expanded::On => true,
        Expanded::Off => false,
        Expanded::Auto => too_wide(),
    };
    if expanded && count > 0 {
        let mut number = 0;
        let layout = expanded::Layout::new(&layout);
        if let Some(title) = &look.title {
            writeln!(out, "{title}")?;
        }
        let written = each(rows, stop, &mut |cells, row| {
            number += 1;
            layout.row(cells, row, number, out)
        })?;
        writeln!(out)?;
        return Ok(written);
    }
    if expanded {
        writeln!(out, "(0 rows)\n")?;
        return Ok(Written::Whole);
    }
    if let Some(title) = &look.title {
        layout.title(title, out)?;
    }
    layout.header(out)?;
    if each(rows, stop, &mut |cells, row| layout.row(cells, row, out))? == Written::Stopped {
        return Ok(Written::Stopped);
    }
    if look.footer {
        writeln!(out, "({count} {})", if count == 1 { "row" } else { "rows" })?;
    }
    writeln!(out)?;
    Ok(Written::Whole)
}

/// Calls `visit` for each row with the cells of its batch.
fn each(
    rows: &Rows,
    stop: &dyn Fn() -> bool,
    visit: &mut dyn FnMut(&Cells, usize) -> io::Result<()>,
) -> io::Result<Written> {
    for batch in &rows.batches {
        let cells = Cells::new(batch);
        for row in 0..batch.num_rows() {
            if row % STOP_ROWS == 0 && stop() {
                return Ok(Written::Stopped);
            }
            visit(&cells, row)?;
        }
    }
    Ok(Written::Whole)
}

/// A header and rows.
type TableLines = (Vec<String>, Vec<Vec<String>>);

/// A table as lines: those of the header, and those of each row.
///
/// # Errors
/// None: memory takes what is written.
pub(super) fn table_lines(batch: &RecordBatch) -> io::Result<TableLines> {
    let mut layout = table::Layout::new(&batch.schema());
    let cells = Cells::new(batch);
    (0..batch.num_rows()).for_each(|row| layout.measure(&cells, row));
    let lines = |bytes: Vec<u8>| {
        let text = String::from_utf8_lossy(&bytes).into_owned();
        text.lines().map(str::to_owned).collect::<Vec<_>>()
    };
    let mut header = Vec::new();
    layout.header(&mut header)?;
    let rows = (0..batch.num_rows()).map(|row| {
        let mut written = Vec::new();
        layout.row(&cells, row, &mut written)?;
        Ok(lines(written))
    });
    let rows = rows.collect::<io::Result<Vec<_>>>()?;
    Ok((lines(header), rows))
}

/// Writes batches that come one after another, with one header: what a subscription shows.
pub(super) struct Stream {
    format: Format,
    layout: table::Layout,
    names: Vec<String>,
    schema: SchemaRef,
    started: bool,
}

impl Stream {
    /// Nothing is written yet.
    pub(super) fn new(schema: &SchemaRef, format: Format) -> Self {
        Self {
            format,
            layout: table::Layout::new(schema),
            names: json::names(schema),
            schema: SchemaRef::clone(schema),
            started: false,
        }
    }

    /// Writes the rows of one batch. Columns of a table grow when a later batch needs it.
    ///
    /// # Errors
    /// When `out` takes no more.
    pub(super) fn write(&mut self, batch: &RecordBatch, out: &mut dyn Write) -> io::Result<()> {
        let first = !std::mem::replace(&mut self.started, true);
        if self.format == Format::Json {
            return json::rows(&self.names, batch, &|| false, out).map(drop);
        }
        let cells = Cells::new(batch);
        if self.format == Format::Table {
            (0..batch.num_rows()).for_each(|row| self.layout.measure(&cells, row));
        }
        match self.format {
            Format::Table if first => self.layout.header(out)?,
            Format::Csv if first => csv::header(&self.schema, out)?,
            _ => {}
        }
        for row in 0..batch.num_rows() {
            match self.format {
                Format::Table => self.layout.row(&cells, row, out)?,
                Format::Csv => csv::row(&cells, row, out)?,
                Format::Json => {}
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
