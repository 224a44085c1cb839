//! Functions of regular expressions.

use std::sync::Arc;

use arrow::array::{ListBuilder, StringBuilder};
use arrow::datatypes::{DataType, Int32Type};

use super::args::{Args, Computed};
use super::define::{Definition, Gives, Kind, Overload};
use super::pattern::{Flags, Groups, matcher};
use crate::plan::types::list_of;
use crate::{SqlError, SqlState};

use Kind::{Bool, Int4, Text, TextArray};

/// `regexp_matches` as a list; a query unnests it.
pub(crate) const MATCHES: &str = "matches of";

pub(crate) static REGEX: [Definition; 8] = [
    Definition::new(
        "regexp_like",
        &[
            Overload::new(&[Text, Text], Bool, like),
            Overload::new(&[Text, Text, Text], Bool, like),
        ],
    ),
    Definition::new(
        "regexp_count",
        &[
            Overload::new(&[Text, Text], Int4, count),
            Overload::new(&[Text, Text, Int4], Int4, count),
            Overload::new(&[Text, Text, Int4, Text], Int4, count),
        ],
    ),
    Definition::new(
        "regexp_instr",
        &[
            Overload::new(&[Text, Text], Int4, instr),
            Overload::new(&[Text, Text, Int4], Int4, instr),
            Overload::new(&[Text, Text, Int4, Int4], Int4, instr),
            Overload::new(&[Text, Text, Int4, Int4, Int4], Int4, instr),
            Overload::new(&[Text, Text, Int4, Int4, Int4, Text], Int4, instr),
            Overload::new(&[Text, Text, Int4, Int4, Int4, Text, Int4], Int4, instr),
        ],
    ),
    Definition::new(
        "regexp_substr",
        &[
            Overload::new(&[Text, Text], Text, substr),
            Overload::new(&[Text, Text, Int4], Text, substr),
            Overload::new(&[Text, Text, Int4, Int4], Text, substr),
            Overload::new(&[Text, Text, Int4, Int4, Text], Text, substr),
            Overload::new(&[Text, Text, Int4, Int4, Text, Int4], Text, substr),
        ],
    ),
    Definition::new(
        "regexp_replace",
        &[
            Overload::new(&[Text, Text, Text], Text, replace),
            Overload::new(&[Text, Text, Text, Text], Text, replace),
            Overload::new(&[Text, Text, Text, Int4], Text, replace_from),
            Overload::new(&[Text, Text, Text, Int4, Int4], Text, replace_from),
            Overload::new(&[Text, Text, Text, Int4, Int4, Text], Text, replace_from),
        ],
    ),
    Definition::new(
        "regexp_match",
        &[
            Overload::new(&[Text, Text], TextArray, first_match),
            Overload::new(&[Text, Text, Text], TextArray, first_match),
        ],
    ),
    Definition::new(
        MATCHES,
        &[
            Overload::giving(&[Text, Text], Gives::Of(list_of_arrays), all_matches),
            Overload::giving(&[Text, Text, Text], Gives::Of(list_of_arrays), all_matches),
        ],
    ),
    Definition::new(
        "regexp_split_to_array",
        &[
            Overload::new(&[Text, Text], TextArray, split),
            Overload::new(&[Text, Text, Text], TextArray, split),
        ],
    ),
];

/// Calls `$use` for each row without NULL with the text and the matcher of its pattern; one matcher serves all rows of the
/// same pattern and flags.
macro_rules! each_match {
    ($args:expr, $flags:expr, $row:ident, |$text:ident, $find:ident, $read:ident| $use:expr) => {{
        let (texts, patterns) = ($args.texts(0), $args.texts(1));
        let flags = $flags.map(|arg: usize| $args.texts(arg));
        let mut known = None;
        move |$row: usize, out: &mut _| {
            let _ = &out;
            let ($text, pattern) = (texts.get($row), patterns.get($row));
            let flags = flags.map_or("", |flags| flags.get($row));
            let is_known = matches!(&known, Some((same, with, _, _)) if *same == pattern && *with == flags);
            if !is_known {
                let read = Flags::read(flags)?;
                known = Some((pattern, flags, read, matcher(pattern, read)?));
            }
            let Some((_, _, $read, $find)) = &mut known else {
                return Err(SqlError::new(SqlState::InternalError, "a pattern was lost"));
            };
            let _ = &$read;
            ($use)(out)
        }
    }};
}

/// The argument of flags, where a call of so many has it.
fn flags_at(args: &Args, at: usize) -> Option<usize> {
    (args.len() > at).then_some(at)
}

fn no_global(flags: Flags, function: &str) -> Result<(), SqlError> {
    match flags.is_global {
        false => Ok(()),
        true => Err(SqlError::new(
            SqlState::InvalidParameterValue,
            format!("{function}() does not support the \"global\" option"),
        )),
    }
}

/// The number of an argument that a call may leave out, which must be at least `least`.
fn whole(
    args: &Args,
    at: usize,
    row: usize,
    (name, least, default): (&str, i32, i32),
) -> Result<usize, SqlError> {
    let value = match args.len() > at {
        true => args.numbers::<Int32Type>(at).get(row),
        false => default,
    };
    match usize::try_from(value) {
        Ok(number) if value >= least => Ok(number),
        _ => Err(SqlError::new(
            SqlState::InvalidParameterValue,
            format!("invalid value for parameter \"{name}\": {value}"),
        )),
    }
}

/// The byte at which the character of this number, counted from 1, begins; beyond the text, what is behind its end.
fn byte_of(text: &str, start: usize) -> usize {
    let mut places = text.char_indices().map(|(at, _)| at).chain([text.len()]);
    places.nth(start - 1).unwrap_or(text.len() + 1)
}

fn next_char(text: &str, at: usize) -> usize {
    at + text[at..].chars().next().map_or(1, char::len_utf8)
}

/// Shows every match from `from` on until `see` says that it has seen enough.
fn matches(
    text: &str,
    from: usize,
    find: &mut impl FnMut(&str, usize, &mut Groups) -> bool,
    see: &mut dyn FnMut(&Groups) -> bool,
) {
    let mut groups = Groups::new();
    let (mut at, mut last_end) = (from, None);
    while at <= text.len() && find(text, at, &mut groups) {
        let Some((start, end)) = groups[0] else { return };
        if start == end && last_end == Some(end) {
            at = next_char(text, end);
            continue;
        }
        if !see(&groups) {
            return;
        }
        last_end = Some(end);
        at = if start == end && end < text.len() {
            next_char(text, end)
        } else if start == end {
            end + 1
        } else {
            end
        };
    }
}

/// The match of this number, counted from 1.
fn nth(
    text: &str,
    (from, number): (usize, usize),
    find: &mut impl FnMut(&str, usize, &mut Groups) -> bool,
) -> Option<Groups> {
    let (mut left, mut found) = (number, None);
    matches(text, from, find, &mut |groups| {
        left -= 1;
        if left == 0 {
            found = Some(groups.clone());
        }
        left > 0
    });
    found
}

fn like(args: &Args) -> Computed {
    let mut is_match = each_match!(args, flags_at(args, 2), row, |text, find, read| |_: &mut ()| {
        no_global(*read, "regexp_like")?;
        Ok(find(text, 0, &mut Groups::new()))
    });
    args.strict_bools(|row| is_match(row, &mut ()))
}

fn count(args: &Args) -> Computed {
    let mut counted = each_match!(args, flags_at(args, 3), row, |text, find, read| |_: &mut ()| {
        no_global(*read, "regexp_count")?;
        let start = whole(args, 2, row, ("start", 1, 1))?;
        let mut number = 0;
        matches(text, byte_of(text, start), find, &mut |_| {
            number += 1;
            true
        });
        Ok(number)
    });
    args.strict::<Int32Type>(|row| counted(row, &mut ()))
}

fn instr(args: &Args) -> Computed {
    let mut place = each_match!(args, flags_at(args, 5), row, |text, find, read| |_: &mut ()| {
        no_global(*read, "regexp_instr")?;
        let start = whole(args, 2, row, ("start", 1, 1))?;
        let number = whole(args, 3, row, ("n", 1, 1))?;
        let is_end = whole(args, 4, row, ("endoption", 0, 0))?;
        if is_end > 1 {
            return Err(SqlError::new(
                SqlState::InvalidParameterValue,
                format!("invalid value for parameter \"endoption\": {is_end}"),
            ));
        }
        let group = whole(args, 6, row, ("subexpr", 0, 0))?;
        let found = nth(text, (byte_of(text, start), number), find);
        let span = found.and_then(|groups| groups.get(group).copied().flatten());
        let at = span.map(|(start, end)| if is_end == 1 { end } else { start });
        Ok(at.map_or(0, |at| 1 + text[..at].chars().count() as i32))
    });
    args.strict::<Int32Type>(|row| place(row, &mut ()))
}

fn substr(args: &Args) -> Computed {
    let mut part = each_match!(args, flags_at(args, 4), row, |text, find, read| {
        |out: &mut String| {
            no_global(*read, "regexp_substr")?;
            let start = whole(args, 2, row, ("start", 1, 1))?;
            let number = whole(args, 3, row, ("n", 1, 1))?;
            let group = whole(args, 5, row, ("subexpr", 0, 0))?;
            let found = nth(text, (byte_of(text, start), number), find);
            let span = found.and_then(|groups| groups.get(group).copied().flatten());
            if let Some((start, end)) = span {
                out.push_str(&text[start..end]);
            }
            Ok(span.is_some())
        }
    });
    args.maybe_texts(|row, out| part(row, out))
}

/// `substring(text from pattern)`: the first group, if the pattern has one.
pub(crate) fn substring(args: &Args) -> Computed {
    let mut part = each_match!(args, None, row, |text, find, read| |out: &mut String| {
        let mut groups = Groups::new();
        let is_found = find(text, 0, &mut groups);
        let span = if is_found {
            groups.get(1).or(groups.first()).copied().flatten()
        } else {
            None
        };
        if let Some((start, end)) = span {
            out.push_str(&text[start..end]);
        }
        Ok(span.is_some())
    });
    args.maybe_texts(|row, out| part(row, out))
}

fn replace(args: &Args) -> Computed {
    let by = args.texts(2);
    let mut replaced = each_match!(args, flags_at(args, 3), row, |text, find, read| {
        |out: &mut String| {
            let last = if read.is_global { usize::MAX } else { 1 };
            write_replaced(text, by.get(row), (0, 1, last), find, out)
        }
    });
    args.strict_texts(|row, out| replaced(row, out))
}

fn replace_from(args: &Args) -> Computed {
    let by = args.texts(2);
    let mut replaced = each_match!(args, flags_at(args, 5), row, |text, find, read| {
        |out: &mut String| {
            no_global(*read, "regexp_replace")?;
            let start = whole(args, 3, row, ("start", 1, 1))?;
            let number = whole(args, 4, row, ("n", 0, 1))?;
            let (first, last) = if number == 0 {
                (1, usize::MAX)
            } else {
                (number, number)
            };
            write_replaced(text, by.get(row), (byte_of(text, start), first, last), find, out)
        }
    });
    args.strict_texts(|row, out| replaced(row, out))
}

/// Writes the text with the matches of these numbers replaced.
fn write_replaced(
    text: &str,
    by: &str,
    (from, first, last): (usize, usize, usize),
    find: &mut impl FnMut(&str, usize, &mut Groups) -> bool,
    out: &mut String,
) -> Result<(), SqlError> {
    let (mut written, mut number) = (0, 0);
    let mut is_too_long = false;
    matches(text, from, find, &mut |groups| {
        number += 1;
        let Some((start, end)) = groups[0] else {
            return false;
        };
        if number >= first {
            out.push_str(&text[written..start]);
            push_replacement(text, by, groups, out);
            written = end;
        }
        is_too_long = out.len() > super::bounds::VALUE_BYTES_MAX as usize;
        number < last && !is_too_long
    });
    if is_too_long {
        return Err(super::bounds::too_long("regexp_replace"));
    }
    out.push_str(&text[written..]);
    Ok(())
}

/// `\1` to `\9` are groups, `\&` is the whole match, `\\` a backslash.
fn push_replacement(text: &str, by: &str, groups: &Groups, out: &mut String) {
    let mut chars = by.chars();
    while let Some(char) = chars.next() {
        if char != '\\' {
            out.push(char);
            continue;
        }
        let group = match chars.next() {
            Some(digit @ '1'..='9') => digit as usize - '0' as usize,
            Some('&') => 0,
            Some('\\') | None => {
                out.push('\\');
                continue;
            }
            Some(other) => {
                out.push('\\');
                out.push(other);
                continue;
            }
        };
        if let Some(Some((start, end))) = groups.get(group) {
            out.push_str(&text[*start..*end]);
        }
    }
}

fn first_match(args: &Args) -> Computed {
    let mut lists = ListBuilder::new(StringBuilder::new());
    let mut list = each_match!(args, flags_at(args, 2), row, |text, find, read| {
        |lists: &mut ListBuilder<StringBuilder>| {
            if read.is_global {
                return no_global(*read, "regexp_match");
            }
            let mut groups = Groups::new();
            let is_found = find(text, 0, &mut groups);
            // Without groups, the whole match is the one element.
            let from = usize::from(groups.len() > 1);
            for group in groups.iter().skip(from) {
                lists
                    .values()
                    .append_option(group.map(|(start, end)| &text[start..end]));
            }
            lists.append(is_found);
            Ok(())
        }
    });
    for row in 0..args.rows() {
        match args.any_null(row) {
            true => lists.append(false),
            false => list(row, &mut lists)?,
        }
    }
    Ok(Arc::new(lists.finish()))
}

fn list_of_arrays(_: &[DataType]) -> DataType {
    list_of(list_of(DataType::Utf8))
}

fn all_matches(args: &Args) -> Computed {
    let mut lists = ListBuilder::new(ListBuilder::new(StringBuilder::new()));
    let mut list = each_match!(args, flags_at(args, 2), row, |text, find, read| {
        |lists: &mut ListBuilder<ListBuilder<StringBuilder>>| {
            let is_global = read.is_global;
            matches(text, 0, find, &mut |groups| {
                let found = lists.values();
                // Without groups, the whole match is the one element.
                let from = usize::from(groups.len() > 1);
                for group in groups.iter().skip(from) {
                    found
                        .values()
                        .append_option(group.map(|(start, end)| &text[start..end]));
                }
                found.append(true);
                is_global
            });
            lists.append(true);
            Ok(())
        }
    });
    for row in 0..args.rows() {
        match args.any_null(row) {
            true => lists.append(false),
            false => list(row, &mut lists)?,
        }
    }
    Ok(Arc::new(lists.finish()))
}

fn split(args: &Args) -> Computed {
    let mut lists = ListBuilder::new(StringBuilder::new());
    let mut list = each_match!(args, flags_at(args, 2), row, |text, find, read| {
        |lists: &mut ListBuilder<StringBuilder>| {
            no_global(*read, "regexp_split_to_array")?;
            let mut from = 0;
            matches(text, 0, find, &mut |groups| {
                let Some((start, end)) = groups[0] else {
                    return false;
                };
                // An empty match at an end of the text, or behind a match, splits nothing.
                let splits = start < end || (start > from && end < text.len());
                if splits {
                    lists.values().append_value(&text[from..start]);
                    from = end;
                }
                true
            });
            lists.values().append_value(&text[from..]);
            lists.append(true);
            Ok(())
        }
    });
    for row in 0..args.rows() {
        match args.any_null(row) {
            true => lists.append(false),
            false => list(row, &mut lists)?,
        }
    }
    Ok(Arc::new(lists.finish()))
}
