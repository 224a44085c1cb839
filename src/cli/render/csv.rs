//! CSV as COPY writes it: NULL is an empty field, an empty text is `""`.

use std::io::{self, Write};

use arrow::datatypes::Schema;

use super::cells::Cells;

/// The names.
pub(super) fn header(schema: &Schema, out: &mut dyn Write) -> io::Result<()> {
    for (column, field) in schema.fields().iter().enumerate() {
        separator(column, out)?;
        field_text(field.name(), out)?;
    }
    out.write_all(b"\n")
}

/// One row.
pub(super) fn row(cells: &Cells, row: usize, out: &mut dyn Write) -> io::Result<()> {
    let mut text = String::new();
    for column in 0..cells.columns() {
        separator(column, out)?;
        text.clear();
        if cells.write(column, row, &mut text) {
            field_text(&text, out)?;
        }
    }
    out.write_all(b"\n")
}

fn separator(column: usize, out: &mut dyn Write) -> io::Result<()> {
    if column == 0 { Ok(()) } else { out.write_all(b",") }
}

fn field_text(text: &str, out: &mut dyn Write) -> io::Result<()> {
    let plain = !text.is_empty() && text != "\\." && !text.contains(['"', ',', '\n', '\r']);
    if plain {
        return out.write_all(text.as_bytes());
    }
    write!(out, "\"{}\"", text.replace('"', "\"\""))
}
