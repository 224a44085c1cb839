//! Equality and order of documents, as bytes.

use super::scan::{Elements, Kind, Pairs, kind_of, unescaped};
use super::{DEPTH_MAX, number, too_deep};
use crate::SqlError;

/// The document that is the same text for all equal documents, if it differs from this one: numbers lose the zeros at the end of
/// their fractions.
pub(crate) fn canonical(document: &str) -> Option<String> {
    if !document.contains('.') {
        return None;
    }
    let bytes = document.as_bytes();
    let mut out: Option<String> = None;
    let (mut pos, mut kept) = (0, 0);
    while let Some(byte) = bytes.get(pos) {
        match byte {
            b'"' => {
                pos += 1;
                while let Some(byte) = bytes.get(pos).filter(|byte| **byte != b'"') {
                    pos += if *byte == b'\\' { 2 } else { 1 };
                }
                pos += 1;
            }
            b'-' | b'0'..=b'9' => {
                let rest = &bytes[pos..];
                let is_digit = |byte: &u8| matches!(byte, b'-' | b'.' | b'0'..=b'9');
                let length = rest.iter().take_while(|byte| is_digit(byte)).count();
                let number = &document[pos..pos + length];
                let short = number::canonical(number);
                if short.len() < number.len() {
                    let out = out.get_or_insert_with(|| String::with_capacity(document.len()));
                    out.push_str(&document[kept..pos]);
                    out.push_str(short);
                    kept = pos + length;
                }
                pos += length;
            }
            _ => pos += 1,
        }
    }
    let mut out = out?;
    out.push_str(document.get(kept..).unwrap_or_default());
    Some(out)
}

/// Whether two scalars are equal.
pub(super) fn equal_scalars(a: &str, b: &str) -> bool {
    match (kind_of(a), kind_of(b)) {
        (Kind::Number, Kind::Number) => number::canonical(a) == number::canonical(b),
        _ => a == b,
    }
}

// PostgreSQL's order of the types, and what an empty array at the top has below all of them.
const EMPTY_TOP_ARRAY: u8 = 1;
const NULL: u8 = 2;
const STRING: u8 = 3;
const NUMBER: u8 = 4;
const BOOLEAN: u8 = 5;
const ARRAY: u8 = 6;
const OBJECT: u8 = 7;

/// Appends bytes that sort as PostgreSQL sorts documents, and are equal for equal ones.
///
/// ```text
/// null 2 | string 3, bytes, 0 | number 4, see there | boolean 5, 0 or 1
/// array 6, count: u32, elements | object 7, count: u32, (key, 0, value)*         an empty array at the top: 1
/// ```
///
/// # Errors
/// 54001 for a document that is nested too deeply.
pub(crate) fn key(document: &str, out: &mut Vec<u8>) -> Result<(), SqlError> {
    match document {
        "[]" => out.push(EMPTY_TOP_ARRAY),
        document => push(document, 0, out)?,
    }
    Ok(())
}

fn push(value: &str, depth: usize, out: &mut Vec<u8>) -> Result<(), SqlError> {
    if depth > DEPTH_MAX {
        return Err(too_deep());
    }
    match kind_of(value) {
        Kind::Null => out.push(NULL),
        Kind::String => {
            out.push(STRING);
            push_text(
                value.get(1..value.len().saturating_sub(1)).unwrap_or_default(),
                out,
            );
        }
        Kind::Number => {
            out.push(NUMBER);
            number::push_key(value, out);
        }
        Kind::Boolean => out.extend_from_slice(&[BOOLEAN, u8::from(value == "true")]),
        Kind::Array => {
            let start = open(ARRAY, out);
            let mut count = 0;
            for element in Elements::of(value) {
                push(element, depth + 1, out)?;
                count += 1;
            }
            close(start, count, out);
        }
        Kind::Object => {
            let start = open(OBJECT, out);
            let mut count = 0;
            for (key, value) in Pairs::of(value) {
                push_text(key, out);
                push(value, depth + 1, out)?;
                count += 1;
            }
            close(start, count, out);
        }
    }
    Ok(())
}

/// A string cannot hold the byte 0.
fn push_text(content: &str, out: &mut Vec<u8>) {
    out.extend_from_slice(unescaped(content).as_bytes());
    out.push(0);
}

/// Begins a container, whose count is not known yet.
fn open(tag: u8, out: &mut Vec<u8>) -> usize {
    out.push(tag);
    let start = out.len();
    out.extend_from_slice(&[0; 4]);
    start
}

fn close(start: usize, count: u32, out: &mut [u8]) {
    out[start..start + 4].copy_from_slice(&count.to_be_bytes());
}
