//! Formats: record bytes to Arrow columns and back.

mod base64;
mod bytes;
mod column;
mod decimal;
mod fault;
mod json;
mod metadata;
mod time;

use std::sync::Arc;

use arrow::datatypes::{DataType, FieldRef, SchemaRef};
use arrow::record_batch::RecordBatch;

use crate::error::ConnectorError;
use crate::options::{OptionKind, OptionMap, OptionSpec, nearest};
use crate::sink::{SinkMode, SinkRecord};
use crate::source::{PartitionId, RawPayload};
use time::TimestampFormat;
pub(crate) use time::write_date;

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
    /// Of a stream of changes: for each row whether the row of its key is gone. Such a row has its key alone.
    pub deleted: Option<Vec<bool>>,
    /// The bad records.
    pub bad: Vec<BadRecord>,
    /// Null payloads, which a plain format has no row for.
    pub tombstones: u64,
}

/// How the records of a stream of changes say what becomes of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChangeFormat {
    /// The value is the row of the record's key; without a value the row is gone.
    Upsert,
    /// Debezium's envelope: an operation, and the row before and after it.
    Debezium,
}

/// A stream of changes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Changes {
    /// How records say what becomes of a row.
    pub format: ChangeFormat,
    /// Columns (by index) that are the key of the rows.
    pub key: Vec<usize>,
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
    fn decode(
        &mut self,
        partition: PartitionId,
        payloads: &[RawPayload<'_>],
    ) -> Result<Decoded, ConnectorError>;
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

/// The formats of sources, by their lowercase names.
pub const DECODERS: &[&str] = &["bytes", "json"];

/// The formats of sinks, by their lowercase names.
pub const ENCODERS: &[&str] = &["json"];

/// The name of the one field of a struct that is JSONB: the text of any JSON value, as it was written (ADR-18).
pub const JSONB_FIELD: &str = "jsonb";

/// Whether a type is JSONB.
#[must_use]
pub fn is_jsonb(data_type: &DataType) -> bool {
    match data_type {
        DataType::Struct(fields) => match fields.as_ref() {
            [field] => field.name() == JSONB_FIELD && field.data_type() == &DataType::Utf8,
            _ => false,
        },
        _ => false,
    }
}

const TIMESTAMP_FORMAT: OptionSpec = OptionSpec {
    name: "timestamp.format",
    aliases: &[],
    kind: OptionKind::Text,
    default: Some("iso8601"),
    required: false,
    secret: false,
    doc: "How timestamps are written: iso8601, unix_s, unix_ms, unix_us, unix_ns, or a strftime pattern.",
};

/// The options that a source's or sink's format takes beside its connector's.
///
/// # Errors
/// An unknown format.
pub fn options(encode: &str) -> Result<&'static [OptionSpec], ConnectorError> {
    match encode {
        "json" => Ok(&[TIMESTAMP_FORMAT]),
        "bytes" => Ok(&[]),
        other => Err(unknown_format(other, DECODERS)),
    }
}

fn unknown_format(name: &str, known: &'static [&'static str]) -> ConnectorError {
    let error = ConnectorError::invalid(format!("unknown format \"{name}\""));
    let hint = match nearest(name, known.iter().copied()) {
        Some(near) => format!("Did you mean \"{near}\"?"),
        None => format!("The formats are: {}.", known.join(", ")),
    };
    error.with_hint(hint)
}

/// The value of `timestamp.format` among the options, which may also hold the connector's.
fn timestamp_format(options: &OptionMap) -> Result<TimestampFormat, ConnectorError> {
    TimestampFormat::from_option(
        options
            .get(TIMESTAMP_FORMAT.name)
            .map_or("iso8601", String::as_str),
    )
}

/// Checks the format options of a statement without columns at hand.
///
/// # Errors
/// An unknown format, a value that the format does not understand.
pub fn validate(encode: &str, options: &OptionMap) -> Result<(), ConnectorError> {
    match encode {
        "json" => timestamp_format(options).map(drop),
        "bytes" => Ok(()),
        other => Err(unknown_format(other, DECODERS)),
    }
}

/// A decoder for `FORMAT PLAIN ENCODE <encode>` by its lowercase name (`json`, `bytes`). It reads its own options and
/// leaves the others alone, so the whole map of a statement may be given.
///
/// # Errors
/// An unknown format, a value that an option does not take, a column type that the format cannot give.
pub fn decoder(
    encode: &str,
    columns: &[DecodeColumn],
    options: &OptionMap,
) -> Result<Box<dyn Decoder>, ConnectorError> {
    match encode {
        "json" => Ok(Box::new(json::JsonDecoder::new(
            columns,
            &timestamp_format(options)?,
        )?)),
        "bytes" => Ok(Box::new(bytes::BytesDecoder::new(columns)?)),
        other => Err(unknown_format(other, DECODERS)),
    }
}

/// A decoder for `FORMAT UPSERT | DEBEZIUM ENCODE <encode>` by its lowercase name (`json`), as [`decoder`] is for FORMAT PLAIN.
///
/// # Errors
/// A format that has no keys, a value that an option does not take, a column type that the format cannot give.
pub fn change_decoder(
    encode: &str,
    columns: &[DecodeColumn],
    changes: &Changes,
    options: &OptionMap,
) -> Result<Box<dyn Decoder>, ConnectorError> {
    match encode {
        "json" => Ok(Box::new(json::ChangeDecoder::new(
            columns,
            changes,
            &timestamp_format(options)?,
        )?)),
        other => Err(unknown_format(other, &["json"])),
    }
}

/// An encoder by its lowercase name (`json`). It reads its own options and leaves the others alone.
///
/// # Errors
/// An unknown format, a value that an option does not take, a column type that the format cannot carry.
pub fn encoder(
    encode: &str,
    options: &EncodeOptions,
    format_options: &OptionMap,
) -> Result<Box<dyn Encoder>, ConnectorError> {
    match encode {
        "json" => Ok(Box::new(json::JsonEncoder::new(
            options,
            timestamp_format(format_options)?,
        )?)),
        other => Err(unknown_format(other, ENCODERS)),
    }
}

/// Microseconds since the epoch of an ISO 8601 timestamp without a zone, as an option may hold it.
pub(crate) fn parse_timestamp(text: &str) -> Result<i64, String> {
    TimestampFormat::Iso.parse_text(text.as_bytes(), false)
}

/// Shared by decoders: the output schema of a set of columns.
#[must_use]
pub fn schema_of(columns: &[DecodeColumn]) -> SchemaRef {
    Arc::new(arrow::datatypes::Schema::new(
        columns
            .iter()
            .map(|column| Arc::clone(&column.field))
            .collect::<Vec<_>>(),
    ))
}
