//! Whether a document contains another one or has a key.

use super::order::equal_scalars;
use super::scan::{Elements, Kind, Pairs, kind_of};
use super::{DEPTH_MAX, too_deep};
use crate::SqlError;

/// `document @> part`.
///
/// # Errors
/// 54001 for documents that are nested too deeply.
pub(crate) fn contains(document: &str, part: &str) -> Result<bool, SqlError> {
    match (kind_of(document), kind_of(part)) {
        (Kind::Object, Kind::Object) | (Kind::Array, Kind::Array) => within(document, part, 0),
        // An array contains a scalar that is one of its elements; that holds at the top only.
        (Kind::Array, Kind::Object) | (Kind::Object, _) => Ok(false),
        (Kind::Array, _) => Ok(Elements::of(document).any(|own| equal_scalars(own, part))),
        _ => Ok(equal_scalars(document, part)),
    }
}

/// Whether a container contains another one of its kind.
fn within(value: &str, part: &str, depth: usize) -> Result<bool, SqlError> {
    if depth > DEPTH_MAX {
        return Err(too_deep());
    }
    match (kind_of(value), kind_of(part)) {
        (Kind::Object, Kind::Object) => {
            for (key, wanted) in Pairs::of(part) {
                let Some((_, own)) = Pairs::of(value).find(|(own, _)| *own == key) else {
                    return Ok(false);
                };
                if !member_within(own, wanted, depth)? {
                    return Ok(false);
                }
            }
            Ok(true)
        }
        (Kind::Array, Kind::Array) => {
            for wanted in Elements::of(part) {
                let mut found = false;
                for own in Elements::of(value) {
                    if member_within(own, wanted, depth)? {
                        found = true;
                        break;
                    }
                }
                if !found {
                    return Ok(false);
                }
            }
            Ok(true)
        }
        _ => Ok(false),
    }
}

fn member_within(own: &str, wanted: &str, depth: usize) -> Result<bool, SqlError> {
    match kind_of(wanted) {
        Kind::Object | Kind::Array => within(own, wanted, depth + 1),
        _ => Ok(equal_scalars(own, wanted)),
    }
}

/// `document ? key`: a key of an object, a string among the elements of an array, or a string itself. The key is escaped.
pub(crate) fn has_key(document: &str, key: &str) -> bool {
    let is_key = |value: &str| {
        kind_of(value) == Kind::String && value.get(1..value.len().saturating_sub(1)) == Some(key)
    };
    match kind_of(document) {
        Kind::Object => Pairs::of(document).any(|(own, _)| own == key),
        Kind::Array => Elements::of(document).any(is_key),
        _ => is_key(document),
    }
}
