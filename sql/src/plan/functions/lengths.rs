//! The lengths of `VARCHAR(n)`: a cast cuts a text off, and a column takes none that is longer.

use arrow::datatypes::Int32Type;

use super::args::{Args, Computed};
use super::define::{Definition, Kind, Overload};
use crate::{SqlError, SqlState};

/// The first characters of a text, as a cast gives them.
pub(crate) const CUT: &str = "varchar of";
/// A text for a column, with blanks behind its length cut off.
pub(crate) const FITTED: &str = "varchar for";

pub(super) static LENGTHS: [Definition; 2] = [
    Definition::new(CUT, &[Overload::new(&[Kind::Text, Kind::Int4], Kind::Text, cut)]),
    Definition::new(
        FITTED,
        &[Overload::new(&[Kind::Text, Kind::Int4], Kind::Text, fitted)],
    ),
];

/// The first `length` characters, and the rest.
fn parts(text: &str, length: i32) -> (&str, &str) {
    let length = usize::try_from(length).unwrap_or(0);
    if text.len() <= length {
        return (text, "");
    }
    let end = text.char_indices().nth(length).map_or(text.len(), |(at, _)| at);
    text.split_at(end)
}

fn cut(args: &Args) -> Computed {
    let (texts, lengths) = (args.texts(0), args.numbers::<Int32Type>(1));
    args.strict_texts(|row, out| {
        out.push_str(parts(texts.get(row), lengths.get(row)).0);
        Ok(())
    })
}

fn fitted(args: &Args) -> Computed {
    let (texts, lengths) = (args.texts(0), args.numbers::<Int32Type>(1));
    args.strict_texts(|row, out| {
        let length = lengths.get(row);
        let (kept, rest) = parts(texts.get(row), length);
        if rest.bytes().any(|byte| byte != b' ') {
            let message = format!("value too long for type character varying({length})");
            return Err(SqlError::new(SqlState::StringDataRightTruncation, message));
        }
        out.push_str(kept);
        Ok(())
    })
}
