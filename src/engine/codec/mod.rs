//! Arrow values as bytes of our own, and back: keys that sort as their values do, and compact rows.
//!
//! ```text
//! RecordBatch ─▶ KeyEncoder  ─▶ key bytes   (highwater_storage::keys: order-preserving, self-delimiting)
//!             └▶ RowEncoder  ─▶ row bytes   (bitmap of nulls, then the values that are there)
//! bytes       ─▶ KeyDecoder / RowDecoder ─▶ columns, only those that are wanted
//! ```
//!
//! Columns are resolved to typed slices once per batch; nothing is downcast per row. The formats carry no version byte of
//! their own: whoever stores them keeps [`ROW_FORMAT_VERSION`] and
//! [`KEY_ENCODING_VERSION`](highwater_storage::keys::KEY_ENCODING_VERSION) beside them and compares at a restart.

mod builder;
mod column;
mod encoding;
mod key;
mod kind;
mod row;

pub(crate) use key::{KeyCodec, KeyDecoder, KeyEncoder};
pub(crate) use row::{RowCodec, RowDecoder, RowEncoder, put_varint, take_varint};

#[cfg(test)]
pub(crate) mod samples;
#[cfg(test)]
mod tests;

/// The version of the row format; a change of the format changes this number.
pub(crate) const ROW_FORMAT_VERSION: u8 = 1;
