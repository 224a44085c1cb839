//! Formats: record bytes to Arrow columns and back.

use std::sync::Arc;

use arrow::datatypes::{FieldRef, SchemaRef};
use arrow::record_batch::RecordBatch;

use crate::error::ConnectorError;
use crate::options::OptionMap;
use crate::sink::{SinkMode, SinkRecord};
use crate::source::{PartitionId, RawPayload};

/// Where a column of a source comes from.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum ColumnOrigin {
    /// A field of the decoded value, by its name in the record.
    Value(String),
    /// The record key, as bytes.
    Key,
    /// The partition number (Int32).
    Partition,
    /// The offset (Int64).
    Offset,
    /// The record timestamp (Timestamp(µs, "UTC")), null if absent.
    Timestamp,
    /// All headers: List<Struct<name: Utf8, value: Binary>>.
    Headers,
    /// The first header of this name, as Utf8 or Binary.
    Header(String),
}

/// One column that a reader needs.
#[derive(Debug, Clone)]
pub struct DecodeColumn {
    /// Its name, type and nullability.
    pub field: FieldRef,
    /// Where it comes from.
    pub origin: ColumnOrigin,
    /// `timestamp.format` of this column, if it differs from the source's.
    pub timestamp_format: Option<String>,
}

/// A record that could not be decoded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BadRecord {
    /// Its offset.
    pub offset: i64,
    /// The column at fault, if it is one.
    pub column: Option<String>,
    /// Why, as in an error message.
    pub reason: String,
    /// The record value (at most the first 64 KiB).
    pub bytes: Vec<u8>,
}

/// What decoding one batch gave: rows taken = rows + bad + tombstones (INV-5).
#[derive(Debug, Clone)]
pub struct Decoded {
    /// The good rows, in order, with the columns that the reader asked for.
    pub rows: RecordBatch,
    /// The bad records.
    pub bad: Vec<BadRecord>,
    /// Null payloads, which a plain format has no row for.
    pub tombstones: u64,
}

/// Turns payloads into columns; one per lane, its buffers are reused. A bad record never hurts its neighbours and
/// never leaves the decoder unusable.
pub trait Decoder: Send {
    /// The schema of [`Decoded::rows`].
    fn schema(&self) -> SchemaRef;
    /// Decodes a batch of one partition.
    ///
    /// # Errors
    /// Only for faults that are not a record's own (out of memory in a column buffer).
    fn decode(&mut self, partition: PartitionId, payloads: &[RawPayload<'_>]) -> Result<Decoded, ConnectorError>;
}

/// One change per row, after the step's delta was consolidated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// The row is there now (inserted, or the newest version of its key).
    Put,
    /// The row (of an upsert sink: its key) is gone.
    Delete,
}

/// Turns rows into records; one per sink.
pub trait Encoder: Send {
    /// Appends one record per row to `records`.
    ///
    /// # Errors
    /// A value that the format cannot carry.
    fn encode(
        &mut self,
        rows: &RecordBatch,
        changes: &[Change],
        records: &mut Vec<SinkRecord>,
    ) -> Result<(), ConnectorError>;
}

/// What an encoder is made from.
#[derive(Debug, Clone)]
pub struct EncodeOptions {
    /// Columns of the sink's rows.
    pub schema: SchemaRef,
    /// How the sink takes changes.
    pub mode: SinkMode,
    /// Columns (by index) that make the record key; empty: no key.
    pub key: Vec<usize>,
}

/// A decoder for `FORMAT PLAIN ENCODE <encode>` by its lowercase name (`json`, `bytes`).
///
/// # Errors
/// An unknown format or option, a column type that the format cannot give.
pub fn decoder(
    _encode: &str,
    _columns: &[DecodeColumn],
    _options: &OptionMap,
) -> Result<Box<dyn Decoder>, ConnectorError> {
    Err(ConnectorError::invalid("no format is built in yet"))
}

/// An encoder by its lowercase name (`json`).
///
/// # Errors
/// An unknown format or option, a column type that the format cannot carry.
pub fn encoder(
    _encode: &str,
    _options: &EncodeOptions,
    _format_options: &OptionMap,
) -> Result<Box<dyn Encoder>, ConnectorError> {
    Err(ConnectorError::invalid("no format is built in yet"))
}

/// Shared by decoders: the output schema of a set of columns.
#[must_use]
pub fn schema_of(columns: &[DecodeColumn]) -> SchemaRef {
    Arc::new(arrow::datatypes::Schema::new(columns.iter().map(|column| Arc::clone(&column.field)).collect::<Vec<_>>()))
}
