//! JSON lines: one object per row. Integers and decimals are written digit by digit, timestamps as ISO 8601, bytes as
//! PostgreSQL's `\x…`; what JSON has no number for (`NaN`, `Infinity`) is a string.

use std::io::{self, Write};

use arrow::array::{Array, ArrayRef, AsArray as _, BooleanArray, ListArray, StructArray};
use arrow::datatypes::{DataType, Field, Schema};
use arrow::record_batch::RecordBatch;

use super::cells::Meaning;
use super::{STOP_ROWS, Written};
use crate::text::ColumnText;

/// The names of the columns as JSON strings.
pub(super) fn names(schema: &Schema) -> Vec<String> {
    schema.fields().iter().map(|field| quoted(field.name())).collect()
}

/// Writes the rows of a batch.
pub(super) fn rows(
    names: &[String],
    batch: &RecordBatch,
    stop: &dyn Fn() -> bool,
    out: &mut dyn Write,
) -> io::Result<Written> {
    let schema = batch.schema();
    let columns: Vec<Value> = schema
        .fields()
        .iter()
        .zip(batch.columns())
        .map(|(field, array)| Value::of(field, array))
        .collect();
    let mut line = String::new();
    for row in 0..batch.num_rows() {
        if row % STOP_ROWS == 0 && stop() {
            return Ok(Written::Stopped);
        }
        line.clear();
        object(names, &columns, row, &mut line);
        line.push('\n');
        out.write_all(line.as_bytes())?;
    }
    Ok(Written::Whole)
}

fn object(names: &[String], values: &[Value], row: usize, line: &mut String) {
    line.push('{');
    for (column, (name, value)) in names.iter().zip(values).enumerate() {
        if column > 0 {
            line.push(',');
        }
        line.push_str(name);
        line.push(':');
        value.write(row, line);
    }
    line.push('}');
}

/// A column, by what its values are in JSON. Types nest only as deep as the statement that made them.
enum Value {
    Boolean(BooleanArray),
    /// A number where the text is one, else a string.
    Number(ColumnText),
    /// A timestamp: with `T` between date and time, and whether it has a zone.
    Instant(ColumnText, bool),
    Text(ColumnText),
    /// JSON as it is.
    Document(ColumnText),
    List(ListArray, Box<Value>),
    Object(StructArray, Vec<String>, Vec<Value>),
}

impl Value {
    /// A column, which may be of texts that stand for something else.
    fn of(field: &Field, array: &ArrayRef) -> Self {
        let text = || ColumnText::new(array);
        match Meaning::of(field) {
            None => Self::new(array),
            Some(Meaning::Number) => Self::Number(text()),
            Some(Meaning::Document) => Self::Document(text()),
            Some(Meaning::Instant { zoned }) => Self::Instant(text(), zoned),
        }
    }

    fn new(array: &ArrayRef) -> Self {
        let text = || ColumnText::new(array);
        match array.data_type() {
            DataType::Boolean => Self::Boolean(array.as_boolean().clone()),
            DataType::Timestamp(_, zone) => Self::Instant(text(), zone.is_some()),
            data_type if data_type.is_numeric() => Self::Number(text()),
            DataType::List(_) => {
                let list = array.as_list::<i32>().clone();
                let items = Self::new(list.values());
                Self::List(list, Box::new(items))
            }
            DataType::Struct(_) if text().is_json() => Self::Document(text()),
            DataType::Struct(fields) => {
                let object = array.as_struct().clone();
                let names = fields.iter().map(|field| quoted(field.name())).collect();
                let values = object.columns().iter().map(Self::new).collect();
                Self::Object(object, names, values)
            }
            _ => Self::Text(text()),
        }
    }

    fn write(&self, row: usize, line: &mut String) {
        match self {
            Self::Boolean(array) if array.is_valid(row) => line.push_str(&array.value(row).to_string()),
            Self::List(array, items) if array.is_valid(row) => {
                let (from, to) = (array.value_offsets()[row], array.value_offsets()[row + 1]);
                line.push('[');
                for item in from..to {
                    if item > from {
                        line.push(',');
                    }
                    items.write(item as usize, line);
                }
                line.push(']');
            }
            Self::Object(array, names, values) if array.is_valid(row) => object(names, values, row, line),
            Self::Number(column) | Self::Instant(column, _) | Self::Text(column) | Self::Document(column) => {
                let mut text = String::new();
                if column.write(row, &mut text) {
                    self.write_text(&text, line);
                } else {
                    line.push_str("null");
                }
            }
            Self::Boolean(_) | Self::List(..) | Self::Object(..) => line.push_str("null"),
        }
    }

    fn write_text(&self, text: &str, line: &mut String) {
        match self {
            Self::Number(_) if is_number(text) => line.push_str(text),
            Self::Document(_) => line.push_str(text),
            Self::Instant(_, zoned) => {
                let minutes = if *zoned && is_whole_hours(text) { ":00" } else { "" };
                line.push_str(&quoted(&format!("{}{minutes}", text.replacen(' ', "T", 1))));
            }
            _ => line.push_str(&quoted(text)),
        }
    }
}

/// Whether the zone at the end is like `+00`, which ISO 8601 wants as `+00:00`.
fn is_whole_hours(text: &str) -> bool {
    let zone = text.len().checked_sub(3).and_then(|at| text.get(at..));
    zone.is_some_and(|zone| {
        zone.starts_with(['+', '-']) && zone[1..].bytes().all(|byte| byte.is_ascii_digit())
    })
}

fn is_number(text: &str) -> bool {
    text.trim_start_matches('-')
        .starts_with(|char: char| char.is_ascii_digit())
}

/// `text` as a JSON string.
fn quoted(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for char in text.chars() {
        match char {
            '"' => quoted.push_str("\\\""),
            '\\' => quoted.push_str("\\\\"),
            '\n' => quoted.push_str("\\n"),
            '\r' => quoted.push_str("\\r"),
            '\t' => quoted.push_str("\\t"),
            char if u32::from(char) < 0x20 => quoted.push_str(&format!("\\u{:04x}", u32::from(char))),
            char => quoted.push(char),
        }
    }
    quoted.push('"');
    quoted
}
