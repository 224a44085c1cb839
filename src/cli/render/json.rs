//! JSON lines: one object per row. Integers and decimals are written digit by digit, timestamps as ISO 8601, bytes as
//! PostgreSQL's `\x…`; what JSON has no number for (`NaN`, `Infinity`) is a string.

use std::io::{self, Write};

use arrow::array::{Array, ArrayRef, AsArray as _, BooleanArray, ListArray, StructArray};
use arrow::datatypes::{DataType, Field, Schema};
use arrow::record_batch::RecordBatch;

use super::cells::{Element, Meaning};
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
    /// Arrays as PostgreSQL writes them, by what their elements are.
    Array(ColumnText, Element),
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
            Some(Meaning::Array(element)) => Self::Array(text(), element),
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
            Self::Number(column)
            | Self::Instant(column, _)
            | Self::Text(column)
            | Self::Document(column)
            | Self::Array(column, _) => {
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
            Self::Number(_) => element(text, Element::Number, line),
            Self::Document(_) => element(text, Element::Document, line),
            Self::Instant(_, zoned) => element(text, Element::Instant { zoned: *zoned }, line),
            Self::Array(_, of) => array(text, *of, line),
            _ => element(text, Element::Text, line),
        }
    }
}

/// Writes a value that stands in a text.
fn element(text: &str, of: Element, line: &mut String) {
    match of {
        Element::Boolean => line.push_str(if text == "t" { "true" } else { "false" }),
        Element::Number if is_number(text) => line.push_str(text),
        Element::Document => line.push_str(text),
        Element::Instant { zoned } => {
            let minutes = if zoned && is_whole_hours(text) { ":00" } else { "" };
            line.push_str(&quoted(&format!("{}{minutes}", text.replacen(' ', "T", 1))));
        }
        Element::Number | Element::Text => line.push_str(&quoted(text)),
    }
}

/// Writes an array that PostgreSQL has written: `{1,NULL,"a b",{…}}`.
fn array(text: &str, of: Element, line: &mut String) {
    // What begins an array or ends it stands beside the elements; a quote hides it.
    let (mut value, mut was_quoted, mut in_quotes) = (String::new(), false, false);
    let mut chars = text.chars();
    while let Some(char) = chars.next() {
        match char {
            '\\' => value.extend(chars.next()),
            '"' => {
                in_quotes = !in_quotes;
                was_quoted = true;
            }
            char if in_quotes => value.push(char),
            '{' => line.push('['),
            ',' | '}' => {
                if was_quoted || !value.is_empty() {
                    match !was_quoted && value == "NULL" {
                        true => line.push_str("null"),
                        false => element(&value, of, line),
                    }
                }
                value.clear();
                was_quoted = false;
                line.push(if char == ',' { ',' } else { ']' });
            }
            char => value.push(char),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrays_of_texts_are_json() {
        for (text, of, expected) in [
            ("{}", Element::Text, "[]"),
            ("{1,NULL,-2.50}", Element::Number, "[1,null,-2.50]"),
            ("{NaN}", Element::Number, "[\"NaN\"]"),
            ("{{t,f},{NULL,t}}", Element::Boolean, "[[true,false],[null,true]]"),
            (
                r#"{"a b","NULL","","\\ \"q\" {,}",plain}"#,
                Element::Text,
                r#"["a b","NULL","","\\ \"q\" {,}","plain"]"#,
            ),
            (r#"{"{\"a\": 1}"}"#, Element::Document, r#"[{"a": 1}]"#),
            (
                "{\"2024-05-06 12:00:00+00\"}",
                Element::Instant { zoned: true },
                "[\"2024-05-06T12:00:00+00:00\"]",
            ),
        ] {
            let mut line = String::new();
            array(text, of, &mut line);
            assert_eq!(line, expected, "{text}");
        }
    }
}
