//! PostgreSQL's binary format of values: what its `typsend` functions write and its `typreceive` functions read.

mod read;
mod write;

pub use self::read::{text_of, utf8};
pub use self::write::{ColumnBinary, is_there, put_length, put_value};

/// Days from 1970-01-01 to 2000-01-01, from which PostgreSQL counts.
const DAYS_TO_2000: i32 = 10_957;
/// The same in microseconds.
const MICROS_TO_2000: i64 = 946_684_800_000_000;
