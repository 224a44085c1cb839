//! Why a record could not be decoded: the reason, and the path to the column at fault.

use super::BadRecord;

/// How much of a bad record is kept.
const KEPT_BYTES_MAX: usize = 64 * 1024;

/// How much of an offending value an error message quotes.
const QUOTED_BYTES_MAX: usize = 60;

/// The reason one record is bad. Boxed, so that a `Result` of the hot path stays one word.
pub(crate) type Fault = Box<FaultBody>;

/// What a [`Fault`] holds.
#[derive(Debug)]
pub(crate) struct FaultBody {
    /// Field names from the inside out; empty when the record as a whole is at fault.
    path: Vec<String>,
    /// Why, lowercase and without a full stop.
    reason: String,
    /// The text is not JSON at all, so that no column is to blame.
    syntax: bool,
}

/// The record is not well formed.
#[cold]
pub(crate) fn malformed(reason: impl Into<String>) -> Fault {
    Box::new(FaultBody {
        path: Vec::new(),
        reason: reason.into(),
        syntax: true,
    })
}

/// A value does not fit its column.
#[cold]
pub(crate) fn unfit(reason: impl Into<String>) -> Fault {
    Box::new(FaultBody {
        path: Vec::new(),
        reason: reason.into(),
        syntax: false,
    })
}

/// Quotes at most [`QUOTED_BYTES_MAX`] bytes of `text`.
#[cold]
pub(crate) fn quote(text: &[u8]) -> String {
    if text.len() <= QUOTED_BYTES_MAX {
        return String::from_utf8_lossy(text).into_owned();
    }
    let cut = text[..QUOTED_BYTES_MAX]
        .utf8_chunks()
        .next()
        .map_or("", |chunk| chunk.valid());
    format!("{cut}…")
}

impl FaultBody {
    /// The fault lies within `field`. Malformed text stays the fault of the record.
    #[cold]
    pub(crate) fn within(mut self: Box<Self>, field: &str) -> Fault {
        if !self.syntax {
            self.path.push(field.to_owned());
        }
        self
    }

    /// The bad record to report.
    #[cold]
    pub(crate) fn into_bad_record(mut self, offset: i64, value: &[u8]) -> BadRecord {
        let column = self.path.pop();
        self.path.reverse();
        let reason = if self.path.is_empty() {
            self.reason
        } else {
            format!("in field \"{}\": {}", self.path.join("."), self.reason)
        };
        BadRecord {
            offset,
            column,
            reason,
            bytes: value[..value.len().min(KEPT_BYTES_MAX)].to_vec(),
        }
    }
}
