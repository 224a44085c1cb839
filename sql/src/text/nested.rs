//! Arrays as `{1,2}` and composite values as `(1,b)`.

use arrow::array::{ArrayRef, ListArray, StructArray};
use arrow::buffer::OffsetBuffer;
use arrow::datatypes::DataType;

use super::ColumnText;

/// Writes lists.
#[derive(Debug)]
pub(super) struct ListText {
    offsets: OffsetBuffer<i32>,
    elements: ColumnText,
    /// Whether the elements are lists, which need no quotes.
    is_nested: bool,
}

/// Writes structs.
#[derive(Debug)]
pub(super) struct StructText {
    fields: Vec<ColumnText>,
}

impl ListText {
    pub(super) fn new(lists: &ListArray) -> Self {
        Self {
            offsets: lists.offsets().clone(),
            elements: ColumnText::new(lists.values()),
            is_nested: matches!(
                lists.value_type(),
                DataType::List(_) | DataType::LargeList(_) | DataType::FixedSizeList(..)
            ),
        }
    }

    pub(super) fn write(&self, row: usize, out: &mut String) {
        out.push('{');
        let (from, to) = (self.offsets[row] as usize, self.offsets[row + 1] as usize);
        for element in from..to {
            if element > from {
                out.push(',');
            }
            let start = out.len();
            if !self.elements.write(element, out) {
                out.push_str("NULL");
            } else if !self.is_nested && needs_quotes_in_list(&out[start..]) {
                quote(out, start, |character| {
                    if matches!(character, '"' | '\\') {
                        Some('\\')
                    } else {
                        None
                    }
                });
            }
        }
        out.push('}');
    }
}

impl StructText {
    pub(super) fn new(structs: &StructArray) -> Self {
        Self {
            fields: structs
                .columns()
                .iter()
                .map(|field: &ArrayRef| ColumnText::new(field))
                .collect(),
        }
    }

    pub(super) fn write(&self, row: usize, out: &mut String) {
        out.push('(');
        for (index, field) in self.fields.iter().enumerate() {
            if index > 0 {
                out.push(',');
            }
            let start = out.len();
            if field.write(row, out) && needs_quotes_in_struct(&out[start..]) {
                quote(out, start, |character| {
                    matches!(character, '"' | '\\').then_some(character)
                });
            }
        }
        out.push(')');
    }
}

fn needs_quotes_in_list(text: &str) -> bool {
    text.is_empty()
        || text.eq_ignore_ascii_case("null")
        || text.contains(|c: char| matches!(c, '{' | '}' | ',' | '"' | '\\') || is_space(c))
}

fn needs_quotes_in_struct(text: &str) -> bool {
    text.is_empty() || text.contains(|c: char| matches!(c, '(' | ')' | ',' | '"' | '\\') || is_space(c))
}

/// What PostgreSQL's scanner takes for white space.
fn is_space(character: char) -> bool {
    matches!(character, ' ' | '\t' | '\n' | '\r' | '\x0b' | '\x0c')
}

/// Puts what follows `start` in quotes; `escape` says what stands before a character.
fn quote(out: &mut String, start: usize, escape: impl Fn(char) -> Option<char>) {
    let text = out.split_off(start);
    out.push('"');
    for character in text.chars() {
        out.extend(escape(character));
        out.push(character);
    }
    out.push('"');
}
