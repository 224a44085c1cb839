//! The lines of COPY, text or CSV: what the server and the shell read and write. `session` has the statement itself.

mod read;
mod write;

pub use self::read::CopyReader;
pub use self::write::CopyWriter;

use crate::{Error, Result};

/// A text that a client sends.
///
/// # Errors
/// Bytes that are no UTF-8.
pub(crate) fn utf8(bytes: &[u8]) -> Result<String> {
    let text = std::str::from_utf8(bytes)
        .map_err(|_| Error::new("22021", "invalid byte sequence for encoding \"UTF8\""))?;
    if text.contains('\0') {
        return Err(Error::new(
            "22021",
            "invalid byte sequence for encoding \"UTF8\": 0x00",
        ));
    }
    Ok(text.to_owned())
}
