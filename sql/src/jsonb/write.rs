//! Parts of documents put together.

use std::ops::Range;

use super::scan::{key_order, push_escaped};
use super::{DEPTH_MAX, too_deep};
use crate::SqlError;

/// A pair of an object in a text: where its key stands, without quotes, and where all of it does.
pub(super) struct Member {
    pub(super) key: Range<usize>,
    pub(super) whole: Range<usize>,
}

/// Writes the object that begins at `start` of `out`, and lacks its closing brace, with its pairs in order: of equal keys the
/// last one is kept.
pub(super) fn order_members(out: &mut String, start: usize, mut members: Vec<Member>) {
    let given = out.split_off(start);
    let at = |range: &Range<usize>| &given[range.start - start..range.end - start];
    members.sort_by(|a, b| key_order(at(&a.key), at(&b.key)));
    out.push('{');
    let mut first = true;
    for (place, member) in members.iter().enumerate() {
        let is_last = members
            .get(place + 1)
            .is_none_or(|next| at(&next.key) != at(&member.key));
        if !is_last {
            continue;
        }
        if !first {
            out.push_str(", ");
        }
        first = false;
        out.push_str(at(&member.whole));
    }
    out.push('}');
}

/// Appends the object of pairs, each of a key without quotes, escaped, and a value in normal form. Of equal keys the last one
/// is kept.
pub(crate) fn sorted_object<'a>(pairs: impl Iterator<Item = (&'a str, &'a str)>, out: &mut String) {
    let start = out.len();
    let mut members = Vec::new();
    out.push('{');
    for (key, value) in pairs {
        let from = out.len();
        push_pair(key, value, out);
        members.push(Member {
            key: from + 1..from + 1 + key.len(),
            whole: from..out.len(),
        });
    }
    order_members(out, start, members);
}

/// Appends `"key": value`; the key is escaped already.
pub(super) fn push_pair(key: &str, value: &str, out: &mut String) {
    out.push('"');
    out.push_str(key);
    out.push_str("\": ");
    out.push_str(value);
}

/// Appends a text as a JSON string.
pub(crate) fn push_quoted(text: &str, out: &mut String) {
    out.push('"');
    push_escaped(text, out);
    out.push('"');
}

/// Refuses a document that is nested too deeply; what is put together from documents may be.
///
/// # Errors
/// 54001.
pub(crate) fn check_depth(document: &str) -> Result<(), SqlError> {
    let (mut depth, mut in_string, mut escaped) = (0_usize, false, false);
    for byte in document.bytes() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if in_string => escaped = true,
            b'"' => in_string = !in_string,
            b'{' | b'[' if !in_string => depth += 1,
            b'}' | b']' if !in_string => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth > DEPTH_MAX {
            return Err(too_deep());
        }
    }
    Ok(())
}
