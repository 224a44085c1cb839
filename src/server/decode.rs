//! Values of parameters, from either format to PostgreSQL's text of them.

use super::encode::Format;
use crate::Result;
use crate::binary::{self, utf8};

/// The text of a value of the type `oid`.
///
/// # Errors
/// Bytes that are no value of the type, a type that has no binary format here.
pub(super) fn text_of(oid: u32, format: Format, bytes: &[u8]) -> Result<String> {
    match format {
        Format::Text => utf8(bytes),
        Format::Binary => binary::text_of(oid, bytes),
    }
}
