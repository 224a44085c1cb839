//! Columns that come from around a record's value: key, partition, offset, timestamp, headers.

use arrow::datatypes::{DataType, TimeUnit};

use super::column::{Column, Values};
use super::fault::{Fault, unfit};
use super::time::TimestampFormat;
use super::{ColumnOrigin, DecodeColumn};
use crate::error::{ConnectorError, ErrorKind};
use crate::source::{PartitionId, RawPayload, RecordHeaders};

/// A metadata column while it is being filled.
pub(crate) struct MetadataColumn {
    /// Its values.
    pub(crate) column: Column,
    origin: ColumnOrigin,
}

impl MetadataColumn {
    /// An empty column.
    ///
    /// # Errors
    /// A type that the origin does not give.
    pub(crate) fn new(column: &DecodeColumn) -> Result<Self, ConnectorError> {
        let given = column.field.data_type();
        let (fits, what, sql_type) = match &column.origin {
            ColumnOrigin::Value(name) => {
                return Err(ConnectorError::invalid(format!(
                    "column \"{name}\" is not metadata"
                )));
            }
            ColumnOrigin::Key => (*given == DataType::Binary, "key", "BYTEA"),
            ColumnOrigin::Partition => (*given == DataType::Int32, "partition", "INTEGER"),
            ColumnOrigin::Offset => (*given == DataType::Int64, "offset", "BIGINT"),
            ColumnOrigin::Timestamp => {
                let zoned = matches!(given, DataType::Timestamp(TimeUnit::Microsecond, Some(_)));
                (zoned, "timestamp", "TIMESTAMPTZ")
            }
            ColumnOrigin::Headers => (
                is_headers(given),
                "headers",
                "STRUCT<name VARCHAR, value BYTEA>[]",
            ),
            ColumnOrigin::Header(_) => (
                matches!(given, DataType::Utf8 | DataType::Binary),
                "header",
                "VARCHAR or BYTEA",
            ),
        };
        if !fits {
            let message = format!("column \"{}\" cannot hold the record {what}", column.field.name());
            return Err(ConnectorError::invalid(message).with_hint(format!("Declare it {sql_type}.")));
        }
        let values = Column::new(&column.field, &TimestampFormat::Iso)?;
        Ok(Self {
            column: values,
            origin: column.origin.clone(),
        })
    }

    fn push(&mut self, partition: PartitionId, payload: &RawPayload<'_>) -> Result<(), Fault> {
        match &self.origin {
            ColumnOrigin::Offset => self.column.push_i64(payload.offset),
            ColumnOrigin::Partition => self.column.push_i32(partition.0),
            ColumnOrigin::Timestamp => match payload.timestamp_ms.map(|ms| ms.checked_mul(1_000)) {
                Some(Some(micros)) => self.column.push_i64(micros),
                Some(None) => return Err(unfit("the record timestamp is out of range")),
                None => self.push_null()?,
            },
            ColumnOrigin::Key => match payload.key {
                Some(key) => self.column.push_bytes(key),
                None => self.push_null()?,
            },
            ColumnOrigin::Header(name) => {
                match payload.headers.and_then(|headers| find_header(headers, name)) {
                    Some(value) => {
                        if matches!(self.column.values, Values::Utf8(_) | Values::Json(..)) {
                            std::str::from_utf8(value).map_err(|_| unfit("the header is not UTF-8"))?;
                        }
                        self.column.push_bytes(value);
                    }
                    None => self.push_null()?,
                }
            }
            ColumnOrigin::Headers => push_headers(&mut self.column, payload.headers),
            ColumnOrigin::Value(_) => unreachable!("refused when the column was made"),
        }
        Ok(())
    }

    fn push_null(&mut self) -> Result<(), Fault> {
        if !self.column.field.is_nullable() {
            return Err(unfit("is null, but declared NOT NULL"));
        }
        self.column.push_null();
        Ok(())
    }
}

/// Appends a row to each metadata column.
#[inline]
pub(crate) fn push_all(
    columns: &mut [MetadataColumn],
    partition: PartitionId,
    payload: &RawPayload<'_>,
) -> Result<(), Fault> {
    for column in columns {
        if let Err(fault) = column.push(partition, payload) {
            return Err(fault.within(column.column.field.name()));
        }
    }
    Ok(())
}

/// Makes sure that the offsets of any column fit into 32 bits.
///
/// # Errors
/// When the batch holds 2 GiB or more.
pub(crate) fn check_batch_size(payloads: &[RawPayload<'_>]) -> Result<(), ConnectorError> {
    let bytes: usize = payloads.iter().map(payload_bytes).sum();
    if i32::try_from(bytes).is_ok() {
        return Ok(());
    }
    let message = format!(
        "a batch of {} records holds {bytes} bytes, more than one column can",
        payloads.len()
    );
    Err(ConnectorError::new(ErrorKind::Permanent, message).with_hint("Poll fewer records at once."))
}

#[inline]
fn payload_bytes(payload: &RawPayload<'_>) -> usize {
    let headers = payload.headers.map_or(0, |headers| {
        (0..headers.len())
            .map(|index| headers.get(index))
            .map(|(name, value)| name.len() + value.map_or(0, <[u8]>::len))
            .sum()
    });
    payload.value.map_or(0, <[u8]>::len) + payload.key.map_or(0, <[u8]>::len) + headers
}

fn is_headers(data_type: &DataType) -> bool {
    let DataType::List(item) = data_type else {
        return false;
    };
    let DataType::Struct(fields) = item.data_type() else {
        return false;
    };
    let types: Vec<_> = fields
        .iter()
        .map(|field| (field.name().as_str(), field.data_type()))
        .collect();
    types == [("name", &DataType::Utf8), ("value", &DataType::Binary)]
}

/// The value of the first header called `name`; a header without a value counts as absent.
fn find_header<'a>(headers: &'a dyn RecordHeaders, name: &str) -> Option<&'a [u8]> {
    (0..headers.len())
        .map(|index| headers.get(index))
        .find(|(found, _)| *found == name)?
        .1
}

fn push_headers(column: &mut Column, headers: Option<&dyn RecordHeaders>) {
    let Values::List { offsets, items } = &mut column.values else {
        unreachable!("the type was checked when the column was made")
    };
    let Values::Struct { columns, .. } = &mut items.values else {
        unreachable!("the type was checked when the column was made")
    };
    for (name, value) in headers
        .iter()
        .flat_map(|headers| (0..headers.len()).map(|index| headers.get(index)))
    {
        columns[0].push_bytes(name.as_bytes());
        match value {
            Some(value) => columns[1].push_bytes(value),
            None => columns[1].push_null(),
        }
        items.rows += 1;
    }
    offsets.push(items.rows as i32);
    column.rows += 1;
}
