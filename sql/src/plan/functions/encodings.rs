//! Bytes and texts made of each other: `encode`, `decode`, `convert_from`; single bits and bytes.

use std::sync::Arc;

use arrow::array::{ListBuilder, StringBuilder};
use arrow::datatypes::{Int32Type, Int64Type};

use super::args::{Args, Computed};
use super::define::{Definition, Kind, Overload};
use crate::{SqlError, SqlState};

use Kind::{Bytea, Int4, Int8, Text};

pub(crate) static ENCODINGS: [Definition; 9] = [
    Definition::new("encode", &[Overload::new(&[Bytea, Text], Text, encode)]),
    Definition::new("decode", &[Overload::new(&[Text, Text], Bytea, decode)]),
    Definition::new(
        "convert_from",
        &[Overload::new(&[Bytea, Text], Text, convert_from)],
    ),
    Definition::new("convert_to", &[Overload::new(&[Text, Text], Bytea, convert_to)]),
    Definition::new("get_byte", &[Overload::new(&[Bytea, Int4], Int4, get_byte)]),
    Definition::new(
        "set_byte",
        &[Overload::new(&[Bytea, Int4, Int4], Bytea, set_byte)],
    ),
    Definition::new("get_bit", &[Overload::new(&[Bytea, Int8], Int4, get_bit)]),
    Definition::new("set_bit", &[Overload::new(&[Bytea, Int8, Int4], Bytea, set_bit)]),
    Definition::new("bit_count", &[Overload::new(&[Bytea], Int8, bit_count)]),
];

const BASE64: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
/// Characters of a line of base64.
const BASE64_LINE: usize = 76;

fn invalid(message: impl Into<String>) -> SqlError {
    SqlError::new(SqlState::InvalidParameterValue, message)
}

fn no_encoding(name: &str) -> SqlError {
    invalid(format!("unrecognized encoding: \"{name}\"")).with_hint("Encodings are base64, escape and hex.")
}

fn encode(args: &Args) -> Computed {
    let (all, encodings) = (args.bytes(0), args.texts(1));
    args.strict_texts(|row, text| {
        let (bytes, encoding) = (all.get(row), encodings.get(row));
        match encoding.to_ascii_lowercase().as_str() {
            "hex" => {
                const DIGITS: &[u8; 16] = b"0123456789abcdef";
                for byte in bytes {
                    text.push(char::from(DIGITS[usize::from(byte >> 4)]));
                    text.push(char::from(DIGITS[usize::from(byte & 15)]));
                }
            }
            "base64" => push_base64(bytes, text),
            "escape" => {
                for byte in bytes {
                    match byte {
                        0 | 128.. => text.push_str(&format!("\\{byte:03o}")),
                        b'\\' => text.push_str("\\\\"),
                        _ => text.push(char::from(*byte)),
                    }
                }
            }
            _ => return Err(no_encoding(encoding)),
        }
        Ok(())
    })
}

fn push_base64(bytes: &[u8], text: &mut String) {
    let mut line = 0;
    for group in bytes.chunks(3) {
        if line == BASE64_LINE {
            text.push('\n');
            line = 0;
        }
        let number =
            group.iter().fold(0u32, |sum, byte| sum << 8 | u32::from(*byte)) << (8 * (3 - group.len()));
        for place in 0..4 {
            let digit = BASE64[(number >> (18 - 6 * place) & 63) as usize];
            text.push(if place <= group.len() {
                char::from(digit)
            } else {
                '='
            });
        }
        line += 4;
    }
}

fn decode(args: &Args) -> Computed {
    let (texts, encodings) = (args.texts(0), args.texts(1));
    args.strict_bytes(|row, bytes| {
        let (text, encoding) = (texts.get(row), encodings.get(row));
        match encoding.to_ascii_lowercase().as_str() {
            "hex" => read_hex(text, bytes),
            "base64" => read_base64(text, bytes),
            "escape" => read_escape(text, bytes),
            _ => Err(no_encoding(encoding)),
        }
    })
}

fn read_hex(text: &str, bytes: &mut Vec<u8>) -> Result<(), SqlError> {
    let mut high = None;
    for char in text.chars().filter(|char| !char.is_ascii_whitespace()) {
        let digit = char
            .to_digit(16)
            .ok_or_else(|| invalid(format!("invalid hexadecimal digit: \"{char}\"")))?;
        high = match high {
            None => Some(digit),
            Some(high) => {
                bytes.push((high * 16 + digit) as u8);
                None
            }
        };
    }
    match high {
        None => Ok(()),
        Some(_) => Err(invalid("invalid hexadecimal data: odd number of digits")),
    }
}

fn read_base64(text: &str, bytes: &mut Vec<u8>) -> Result<(), SqlError> {
    let (mut number, mut digits, mut padding) = (0u32, 0usize, 0usize);
    for char in text.chars().filter(|char| !char.is_ascii_whitespace()) {
        if char == '=' {
            padding += 1;
            continue;
        }
        let place = BASE64.iter().position(|digit| char::from(*digit) == char);
        let Some(place) = place.filter(|_| padding == 0) else {
            return Err(invalid(format!(
                "invalid symbol \"{char}\" found while decoding base64 sequence"
            )));
        };
        number = number << 6 | place as u32;
        digits += 1;
        if digits == 4 {
            bytes.extend(&number.to_be_bytes()[1..]);
            (number, digits) = (0, 0);
        }
    }
    match (digits, padding) {
        (0, 0) => Ok(()),
        (2, 2) => {
            bytes.push((number >> 4) as u8);
            Ok(())
        }
        (3, 1) => {
            bytes.extend(&((number >> 2) as u16).to_be_bytes());
            Ok(())
        }
        _ => Err(invalid("invalid base64 end sequence")
            .with_hint("Input data is missing padding, is truncated, or is otherwise corrupted.")),
    }
}

fn read_escape(text: &str, bytes: &mut Vec<u8>) -> Result<(), SqlError> {
    let fault = || {
        SqlError::new(
            SqlState::InvalidTextRepresentation,
            "invalid input syntax for type bytea",
        )
    };
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        rest = after;
        if *first != b'\\' {
            bytes.push(*first);
        } else if let Some(after) = rest.strip_prefix(b"\\") {
            bytes.push(b'\\');
            rest = after;
        } else {
            let digits = rest.get(..3).ok_or_else(fault)?;
            let digits = std::str::from_utf8(digits).map_err(|_| fault())?;
            bytes.push(u8::from_str_radix(digits, 8).map_err(|_| fault())?);
            rest = &rest[3..];
        }
    }
    Ok(())
}

/// Whether texts can be converted by this name.
fn check_utf8(name: &str) -> Result<(), SqlError> {
    let plain: String = name.chars().filter(|char| char.is_ascii_alphanumeric()).collect();
    match plain.eq_ignore_ascii_case("utf8") {
        true => Ok(()),
        false => Err(SqlError::unsupported(format!("encoding \"{name}\""))
            .with_hint("All texts are UTF8: use 'UTF8'.")),
    }
}

fn convert_from(args: &Args) -> Computed {
    let (all, encodings) = (args.bytes(0), args.texts(1));
    args.strict_texts(|row, text| {
        check_utf8(encodings.get(row))?;
        match std::str::from_utf8(all.get(row)) {
            Ok(read) => {
                text.push_str(read);
                Ok(())
            }
            Err(fault) => {
                let byte = all.get(row).get(fault.valid_up_to()).copied().unwrap_or(0);
                Err(SqlError::new(
                    SqlState::CharacterNotInRepertoire,
                    format!("invalid byte sequence for encoding \"UTF8\": 0x{byte:02x}"),
                ))
            }
        }
    })
}

fn convert_to(args: &Args) -> Computed {
    let (texts, encodings) = (args.texts(0), args.texts(1));
    args.strict_bytes(|row, bytes| {
        check_utf8(encodings.get(row))?;
        bytes.extend_from_slice(texts.get(row).as_bytes());
        Ok(())
    })
}

/// An index into bytes or bits.
fn index(value: i64, length: usize) -> Result<usize, SqlError> {
    match usize::try_from(value) {
        Ok(index) if index < length => Ok(index),
        _ => Err(SqlError::new(
            SqlState::ArraySubscriptError,
            format!("index {value} out of valid range, 0..{}", length as i64 - 1),
        )),
    }
}

fn get_byte(args: &Args) -> Computed {
    let (all, places) = (args.bytes(0), args.numbers::<Int32Type>(1));
    args.strict::<Int32Type>(|row| {
        let bytes = all.get(row);
        Ok(i32::from(bytes[index(places.get(row).into(), bytes.len())?]))
    })
}

fn set_byte(args: &Args) -> Computed {
    let (all, places, values) = (
        args.bytes(0),
        args.numbers::<Int32Type>(1),
        args.numbers::<Int32Type>(2),
    );
    args.strict_bytes(|row, bytes| {
        bytes.extend_from_slice(all.get(row));
        let at = index(places.get(row).into(), bytes.len())?;
        bytes[at] = values.get(row) as u8;
        Ok(())
    })
}

fn get_bit(args: &Args) -> Computed {
    let (all, places) = (args.bytes(0), args.numbers::<Int64Type>(1));
    args.strict::<Int32Type>(|row| {
        let bytes = all.get(row);
        let at = index(places.get(row), bytes.len() * 8)?;
        Ok(i32::from(bytes[at / 8] >> (at % 8) & 1))
    })
}

fn set_bit(args: &Args) -> Computed {
    let (all, places, values) = (
        args.bytes(0),
        args.numbers::<Int64Type>(1),
        args.numbers::<Int32Type>(2),
    );
    args.strict_bytes(|row, bytes| {
        bytes.extend_from_slice(all.get(row));
        let at = index(places.get(row), bytes.len() * 8)?;
        let bit = 1u8 << (at % 8);
        match values.get(row) {
            0 => bytes[at / 8] &= !bit,
            1 => bytes[at / 8] |= bit,
            _ => return Err(invalid("new bit must be 0 or 1")),
        }
        Ok(())
    })
}

fn bit_count(args: &Args) -> Computed {
    let all = args.bytes(0);
    args.strict::<Int64Type>(|row| Ok(all.get(row).iter().map(|byte| i64::from(byte.count_ones())).sum()))
}

/// The parts of a qualified name.
pub(crate) fn parse_ident(args: &Args) -> Computed {
    let texts = args.texts(0);
    let mut lists = ListBuilder::new(StringBuilder::new());
    for row in 0..args.rows() {
        let Some(text) = texts.opt(row) else {
            lists.append(false);
            continue;
        };
        let fault = || invalid(format!("string is not a valid identifier: \"{text}\""));
        let mut rest = text.trim();
        loop {
            let (name, after) = match rest.strip_prefix('"') {
                Some(quoted) => {
                    let (name, after) = quoted.split_once('"').ok_or_else(fault)?;
                    (name.to_owned(), after)
                }
                None => {
                    let is_part = |c: char| c.is_alphanumeric() || c == '_' || c == '$';
                    let end = rest.find(|c: char| !is_part(c)).unwrap_or(rest.len());
                    (rest[..end].to_lowercase(), &rest[end..])
                }
            };
            if name.is_empty() {
                return Err(fault());
            }
            lists.values().append_value(&name);
            rest = after.trim_start();
            match rest.strip_prefix('.') {
                Some(after) => rest = after.trim_start(),
                None if rest.is_empty() => break,
                None => return Err(fault()),
            }
        }
        lists.append(true);
    }
    Ok(Arc::new(lists.finish()))
}
