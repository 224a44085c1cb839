//! The on-disk format: the one row that says which program may read a database.
//!
//! ```text
//! meta/"format" = "highwater" | format version: u16 | key encoding version: u8
//! ```
//!
//! The format version changes when a key of [`layout`](crate::layout) or the set of families changes;
//! rows carry a version of their own. A database of another format is refused, never guessed at (INV-6).

use crate::error::StorageError;
use crate::keys::KEY_ENCODING_VERSION;

/// The on-disk format that this version of the crate writes and reads.
pub const FORMAT_VERSION: u16 = 1;

const MAGIC: &[u8] = b"highwater";

/// The value of the format row of a new database.
pub(crate) fn row() -> Vec<u8> {
    let [high, low] = FORMAT_VERSION.to_be_bytes();
    [MAGIC, &[high, low, KEY_ENCODING_VERSION]].concat()
}

/// Whether a format row allows the database to be opened.
pub(crate) fn check(row: &[u8]) -> Result<(), StorageError> {
    // A later format may say more behind its version, so the version is compared first.
    let Some([high, low, rest @ ..]) = row.strip_prefix(MAGIC) else {
        return Err(StorageError::corrupt(
            "the format row",
            "It does not start as it should.",
        ));
    };
    let found = u16::from_be_bytes([*high, *low]);
    if found != FORMAT_VERSION {
        return Err(StorageError::FormatVersion {
            part: "the on-disk format",
            found: found.into(),
            supported: FORMAT_VERSION.into(),
        });
    }
    match rest {
        [KEY_ENCODING_VERSION] => Ok(()),
        [found] => Err(StorageError::FormatVersion {
            part: "the key encoding",
            found: (*found).into(),
            supported: KEY_ENCODING_VERSION.into(),
        }),
        _ => Err(StorageError::corrupt("the format row", "Its length is wrong.")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_own_format_is_accepted() {
        check(&row()).unwrap();
    }

    #[test]
    fn another_format_is_refused_naming_both_versions() {
        let error = check(b"highwater\x00\x09and what format 9 adds").unwrap_err();
        assert_eq!(
            error.to_string(),
            "the on-disk format has version 9, this program reads version 1"
        );
        let error = check(b"highwater\x00\x01\x07").unwrap_err();
        assert_eq!(
            error.to_string(),
            "the key encoding has version 7, this program reads version 1"
        );
    }

    #[test]
    fn a_damaged_format_row_is_corrupt() {
        for row in [
            b"".as_slice(),
            b"highwater",
            b"lowwater\x00\x01\x01",
            b"highwater\x00\x01",
        ] {
            assert!(matches!(check(row), Err(StorageError::Corrupt { .. })));
        }
    }
}
