//! Functions of texts and of bytes.

use std::fmt::Write;
use std::sync::Arc;

use arrow::array::{ListBuilder, StringBuilder};
use arrow::datatypes::{Int32Type, Int64Type};

use super::args::{Args, Computed};
use super::bounds::VALUE_BYTES_MAX;
use super::define::{Definition, Kind, Overload};
use super::{encodings, letters};
use crate::{SqlError, SqlState};

use Kind::{Bytea, Int4, Int8, Text, TextArray};

pub(crate) static STRINGS: [Definition; 20] = [
    Definition::new(
        "upper",
        &[Overload::new(&[Text], Text, |args| {
            each_letter(args, letters::upper)
        })],
    ),
    Definition::new(
        "lower",
        &[Overload::new(&[Text], Text, |args| {
            each_letter(args, letters::lower)
        })],
    ),
    Definition::new("ascii", &[Overload::new(&[Text], Int4, ascii)]),
    Definition::new("chr", &[Overload::new(&[Int4], Text, chr)]),
    Definition::new("initcap", &[Overload::new(&[Text], Text, initcap)]),
    Definition::new("length", &LENGTH),
    Definition::new("char_length", &LENGTH),
    Definition::new("character_length", &LENGTH),
    Definition::new(
        "octet_length",
        &[
            Overload::new(&[Text], Int4, |args| text_lengths(args, |text| text.len())),
            Overload::new(&[Bytea], Int4, |args| byte_lengths(args, |bytes| bytes.len())),
        ],
    ),
    Definition::new(
        "bit_length",
        &[
            Overload::new(&[Text], Int4, |args| text_lengths(args, |text| text.len() * 8)),
            Overload::new(&[Bytea], Int4, |args| byte_lengths(args, |bytes| bytes.len() * 8)),
        ],
    ),
    Definition::new(
        "to_hex",
        &[
            Overload::new(&[Int4], Text, |args| {
                let numbers = args.numbers::<Int32Type>(0);
                args.strict_texts(|row, text| {
                    write!(text, "{:x}", numbers.get(row)).expect("a text takes everything");
                    Ok(())
                })
            }),
            Overload::new(&[Int8], Text, |args| {
                let numbers = args.numbers::<Int64Type>(0);
                args.strict_texts(|row, text| {
                    write!(text, "{:x}", numbers.get(row)).expect("a text takes everything");
                    Ok(())
                })
            }),
        ],
    ),
    Definition::new("substring", &SUBSTRING),
    Definition::new("substr", &SUBSTRING),
    Definition::new(
        "overlay",
        &[
            Overload::new(&[Text, Text, Int4], Text, overlay),
            Overload::new(&[Text, Text, Int4, Int4], Text, overlay),
            Overload::new(&[Bytea, Bytea, Int4], Bytea, overlay_bytes),
            Overload::new(&[Bytea, Bytea, Int4, Int4], Bytea, overlay_bytes),
        ],
    ),
    Definition::new(
        "split_part",
        &[Overload::new(&[Text, Text, Int4], Text, split_part)],
    ),
    Definition::new(
        "string_to_array",
        &[
            Overload::new(&[Text, Text], TextArray, string_to_array),
            Overload::new(&[Text, Text, Text], TextArray, string_to_array),
        ],
    ),
    Definition::new(
        "strpos",
        &[
            Overload::new(&[Text, Text], Int4, strpos),
            Overload::new(&[Bytea, Bytea], Int4, bytepos),
        ],
    ),
    Definition::new(
        "starts_with",
        &[Overload::new(&[Text, Text], Kind::Bool, starts_with)],
    ),
    Definition::new("unistr", &[Overload::new(&[Text], Text, unistr)]),
    Definition::new(
        "parse_ident",
        &[Overload::new(&[Text], TextArray, encodings::parse_ident)],
    ),
];

static LENGTH: [Overload; 2] = [
    Overload::new(&[Text], Int4, |args| {
        text_lengths(args, |text| text.chars().count())
    }),
    Overload::new(&[Bytea], Int4, |args| byte_lengths(args, |bytes| bytes.len())),
];

static SUBSTRING: [Overload; 5] = [
    Overload::new(&[Text, Int4], Text, substring),
    Overload::new(&[Text, Int4, Int4], Text, substring),
    Overload::new(&[Bytea, Int4], Bytea, substring_bytes),
    Overload::new(&[Bytea, Int4, Int4], Bytea, substring_bytes),
    Overload::new(&[Text, Text], Text, super::regex::substring),
];

fn text_lengths(args: &Args, length: fn(&str) -> usize) -> Computed {
    let texts = args.texts(0);
    args.strict::<Int32Type>(|row| Ok(i32::try_from(length(texts.get(row))).unwrap_or(i32::MAX)))
}

fn byte_lengths(args: &Args, length: fn(&[u8]) -> usize) -> Computed {
    let bytes = args.bytes(0);
    args.strict::<Int32Type>(|row| Ok(i32::try_from(length(bytes.get(row))).unwrap_or(i32::MAX)))
}

fn ascii(args: &Args) -> Computed {
    let texts = args.texts(0);
    args.strict::<Int32Type>(|row| Ok(texts.get(row).chars().next().map_or(0, |char| char as i32)))
}

fn chr(args: &Args) -> Computed {
    let codes = args.numbers::<Int32Type>(0);
    args.strict_texts(|row, text| {
        let code = codes.get(row);
        let fault = |state, message: String| Err(SqlError::new(state, message));
        match u32::try_from(code).ok().map(char::from_u32) {
            None => fault(
                SqlState::InvalidParameterValue,
                "character number must be positive".into(),
            ),
            Some(_) if code == 0 => fault(
                SqlState::ProgramLimitExceeded,
                "null character not permitted".into(),
            ),
            Some(None) => fault(
                SqlState::ProgramLimitExceeded,
                format!("requested character not valid for encoding: {code}"),
            ),
            Some(Some(char)) => {
                text.push(char);
                Ok(())
            }
        }
    })
}

/// A word begins at each letter or digit that follows none.
fn each_letter(args: &Args, map: fn(char) -> char) -> Computed {
    let texts = args.texts(0);
    args.strict_texts(|row, text| {
        text.extend(texts.get(row).chars().map(map));
        Ok(())
    })
}

fn initcap(args: &Args) -> Computed {
    let texts = args.texts(0);
    args.strict_texts(|row, text| {
        let mut is_inside = false;
        for char in texts.get(row).chars() {
            text.push(match is_inside {
                true => letters::lower(char),
                false => letters::upper(char),
            });
            is_inside = char.is_alphanumeric();
        }
        Ok(())
    })
}

/// From which element on, and how many of them, where the first has the number 1 and a part may begin before it.
fn part(args: &Args, row: usize) -> Result<(usize, usize), SqlError> {
    let start = i64::from(args.numbers::<Int32Type>(1).get(row));
    let length = match args.len() > 2 {
        true => i64::from(args.numbers::<Int32Type>(2).get(row)),
        false => i64::from(i32::MAX) * 2,
    };
    if length < 0 {
        return Err(SqlError::new(
            SqlState::SubstringError,
            "negative substring length not allowed",
        ));
    }
    let (first, end) = (start.max(1) - 1, (start + length).max(1) - 1);
    let at = |place: i64| usize::try_from(place).unwrap_or(0);
    Ok((at(first), at(end - first)))
}

fn substring(args: &Args) -> Computed {
    let texts = args.texts(0);
    args.strict_texts(|row, text| {
        let (skipped, length) = part(args, row)?;
        text.push_str(characters(texts.get(row), skipped, length));
        Ok(())
    })
}

/// So many characters of a text, behind those that are skipped.
fn characters(text: &str, skipped: usize, length: usize) -> &str {
    if text.is_ascii() {
        let from = skipped.min(text.len());
        return &text[from..from.saturating_add(length).min(text.len())];
    }
    let place = |text: &str, number: usize| text.char_indices().nth(number).map_or(text.len(), |(at, _)| at);
    let rest = &text[place(text, skipped)..];
    &rest[..place(rest, length)]
}

fn substring_bytes(args: &Args) -> Computed {
    let all = args.bytes(0);
    args.strict_bytes(|row, bytes| {
        let (skipped, length) = part(args, row)?;
        bytes.extend(all.get(row).iter().skip(skipped).take(length));
        Ok(())
    })
}

/// Where a replacement begins, counted from 0, and how many elements it takes away.
fn place(args: &Args, row: usize, default: usize) -> Result<(usize, i64), SqlError> {
    let start = args.numbers::<Int32Type>(2).get(row);
    let Ok(first @ 1..) = usize::try_from(start) else {
        return Err(SqlError::new(
            SqlState::SubstringError,
            "negative substring length not allowed",
        ));
    };
    let length = match args.len() > 3 {
        true => i64::from(args.numbers::<Int32Type>(3).get(row)),
        false => i64::try_from(default).unwrap_or(i64::MAX),
    };
    Ok((first - 1, length))
}

fn overlay(args: &Args) -> Computed {
    let (texts, by) = (args.texts(0), args.texts(1));
    args.strict_texts(|row, text| {
        let (all, by) = (texts.get(row), by.get(row));
        let (from, length) = place(args, row, by.chars().count())?;
        text.push_str(characters(all, 0, from));
        text.push_str(by);
        let rest = usize::try_from(from as i64 + length).unwrap_or(0);
        text.push_str(characters(all, rest, usize::MAX));
        Ok(())
    })
}

fn overlay_bytes(args: &Args) -> Computed {
    let (all, by) = (args.bytes(0), args.bytes(1));
    args.strict_bytes(|row, bytes| {
        let (all, by) = (all.get(row), by.get(row));
        let (from, length) = place(args, row, by.len())?;
        bytes.extend(all.iter().take(from));
        bytes.extend_from_slice(by);
        bytes.extend(
            all.iter()
                .skip(usize::try_from(from as i64 + length).unwrap_or(0)),
        );
        Ok(())
    })
}

fn split_part(args: &Args) -> Computed {
    let (texts, delimiters) = (args.texts(0), args.texts(1));
    let numbers = args.numbers::<Int32Type>(2);
    args.strict_texts(|row, text| {
        let (all, delimiter, number) = (texts.get(row), delimiters.get(row), numbers.get(row));
        let place = match number {
            0 => {
                return Err(SqlError::new(
                    SqlState::InvalidParameterValue,
                    "field position must not be zero",
                ));
            }
            _ => number.unsigned_abs() as usize - 1,
        };
        let found = match (delimiter.is_empty(), number > 0) {
            (true, _) => (place == 0).then_some(all),
            (false, true) => all.split(delimiter).nth(place),
            (false, false) => all.rsplit(delimiter).nth(place),
        };
        text.push_str(found.unwrap_or(""));
        Ok(())
    })
}

fn string_to_array(args: &Args) -> Computed {
    let (texts, delimiters) = (args.texts(0), args.texts(1));
    let nulls = (args.len() > 2).then(|| args.texts(2));
    let mut lists = ListBuilder::new(StringBuilder::new());
    for row in 0..args.rows() {
        let Some(text) = texts.opt(row) else {
            lists.append(false);
            continue;
        };
        let null = nulls.as_ref().and_then(|nulls| nulls.opt(row));
        let mut add = |part: &str| lists.values().append_option((null != Some(part)).then_some(part));
        match delimiters.opt(row) {
            _ if text.is_empty() => {}
            None => {
                let mut buffer = [0; 4];
                text.chars().for_each(|char| add(char.encode_utf8(&mut buffer)));
            }
            Some("") => add(text),
            Some(delimiter) => text.split(delimiter).for_each(&mut add),
        }
        lists.append(true);
    }
    Ok(Arc::new(lists.finish()))
}

fn strpos(args: &Args) -> Computed {
    let (texts, parts) = (args.texts(0), args.texts(1));
    args.strict::<Int32Type>(|row| {
        let text = texts.get(row);
        let at = text.find(parts.get(row));
        Ok(at.map_or(0, |at| text[..at].chars().count() as i32 + 1))
    })
}

fn bytepos(args: &Args) -> Computed {
    let (all, parts) = (args.bytes(0), args.bytes(1));
    args.strict::<Int32Type>(|row| {
        let part = parts.get(row);
        if part.is_empty() {
            return Ok(1);
        }
        let at = all.get(row).windows(part.len()).position(|window| window == part);
        Ok(at.map_or(0, |at| at as i32 + 1))
    })
}

fn starts_with(args: &Args) -> Computed {
    let (texts, starts) = (args.texts(0), args.texts(1));
    args.strict_bools(|row| Ok(texts.get(row).starts_with(starts.get(row))))
}

/// Four hexadecimal digits behind `\` or `\u`, six behind `\+` and eight behind `\U` are a character by its number.
fn unistr(args: &Args) -> Computed {
    let texts = args.texts(0);
    args.strict_texts(|row, text| {
        let mut rest = texts.get(row);
        let fault = || SqlError::new(SqlState::SyntaxError, "invalid Unicode escape");
        while let Some(at) = rest.find('\\') {
            text.push_str(&rest[..at]);
            rest = &rest[at + 1..];
            if let Some(after) = rest.strip_prefix('\\') {
                text.push('\\');
                rest = after;
                continue;
            }
            let (skipped, digits) = match rest.chars().next() {
                Some('+') => (1, 6),
                Some('u') => (1, 4),
                Some('U') => (1, 8),
                _ => (0, 4),
            };
            let code = rest.get(skipped..skipped + digits).ok_or_else(fault)?;
            let code = u32::from_str_radix(code, 16).ok().and_then(char::from_u32);
            text.push(code.ok_or_else(fault)?);
            rest = &rest[skipped + digits..];
        }
        text.push_str(rest);
        match text.len() > VALUE_BYTES_MAX as usize {
            true => Err(super::bounds::too_long("unistr")),
            false => Ok(()),
        }
    })
}
