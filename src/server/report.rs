//! Errors and notices as messages.

use pgwire::messages::PgWireBackendMessage;
use pgwire::messages::response::{ErrorResponse, NoticeResponse};

use crate::Error;

/// An error. `sql` is the text to which its position belongs.
pub(super) fn error(error: &Error, severity: &str, sql: Option<&str>) -> PgWireBackendMessage {
    let mut fields = vec![
        (b'S', severity.to_owned()),
        (b'V', severity.to_owned()),
        (b'C', error.sqlstate().to_owned()),
        (b'M', sendable(error.message())),
    ];
    fields.extend(error.detail().map(|detail| (b'D', sendable(detail))));
    fields.extend(error.hint().map(|hint| (b'H', sendable(hint))));
    fields.extend(error.context().map(|context| (b'W', sendable(context))));
    let place = sql.zip(error.position());
    fields.extend(place.map(|(sql, at)| (b'P', character(sql, at).to_string())));
    PgWireBackendMessage::ErrorResponse(ErrorResponse::new(fields))
}

/// What the user should know.
pub(super) fn notice(message: &str) -> PgWireBackendMessage {
    let fields = vec![
        (b'S', "NOTICE".to_owned()),
        (b'V', "NOTICE".to_owned()),
        (b'C', "00000".to_owned()),
        (b'M', sendable(message)),
    ];
    PgWireBackendMessage::NoticeResponse(NoticeResponse::new(fields))
}

/// The number of the character at a byte offset, from 1.
fn character(sql: &str, at: usize) -> usize {
    let before = sql.get(..at).unwrap_or(sql);
    before.chars().count() + 1
}

/// A text without the byte that ends texts.
fn sendable(text: &str) -> String {
    text.replace('\0', "")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_count_characters_from_one() {
        assert_eq!(character("select x", 0), 1);
        assert_eq!(character("select 'ä', x", 13), 13);
        assert_eq!(character("ab", 9), 3);
    }
}
