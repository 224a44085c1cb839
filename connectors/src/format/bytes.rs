//! The `bytes` format: one BYTEA column that is the record value, untouched.

use std::sync::Arc;

use arrow::array::Array;
use arrow::datatypes::{DataType, SchemaRef};
use arrow::record_batch::{RecordBatch, RecordBatchOptions};

use super::column::Column;
use super::metadata::{self, MetadataColumn};
use super::time::TimestampFormat;
use super::{ColumnOrigin, DecodeColumn, Decoded, Decoder, schema_of};
use crate::error::{ConnectorError, ErrorKind};
use crate::source::{PartitionId, RawPayload};

/// Takes record values as they are.
pub(crate) struct BytesDecoder {
    schema: SchemaRef,
    value: Option<Column>,
    metadata: Vec<MetadataColumn>,
    /// Where the value stands among the columns.
    value_place: usize,
}

impl BytesDecoder {
    /// A decoder for these columns, of which at most one is the value.
    ///
    /// # Errors
    /// When a second column wants the value, or one that is not BYTEA.
    pub(crate) fn new(columns: &[DecodeColumn]) -> Result<Self, ConnectorError> {
        let mut decoder = Self {
            schema: schema_of(columns),
            value: None,
            metadata: Vec::new(),
            value_place: 0,
        };
        for (place, column) in columns.iter().enumerate() {
            if !matches!(column.origin, ColumnOrigin::Value(_)) {
                decoder.metadata.push(MetadataColumn::new(column)?);
                continue;
            }
            let name = column.field.name();
            if *column.field.data_type() != DataType::Binary {
                return Err(ConnectorError::invalid(format!(
                    "column \"{name}\" cannot hold the record value"
                ))
                .with_hint("With ENCODE BYTES the one column is a BYTEA."));
            }
            if decoder.value.is_some() {
                return Err(
                    ConnectorError::invalid(format!("column \"{name}\" is one too many"))
                        .with_detail("With ENCODE BYTES a record is one value.")
                        .with_hint("Declare one BYTEA column; take the rest with INCLUDE."),
                );
            }
            decoder.value = Some(Column::new(&column.field, &TimestampFormat::Iso)?);
            decoder.value_place = place;
        }
        Ok(decoder)
    }
}

impl Decoder for BytesDecoder {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn decode(
        &mut self,
        partition: PartitionId,
        payloads: &[RawPayload<'_>],
    ) -> Result<Decoded, ConnectorError> {
        metadata::check_batch_size(payloads)?;
        let mut row = 0;
        let mut bad = Vec::new();
        let mut tombstones = 0;
        for payload in payloads {
            let Some(value) = payload.value else {
                tombstones += 1;
                continue;
            };
            if let Err(fault) = metadata::push_all(&mut self.metadata, partition, payload) {
                self.metadata
                    .iter_mut()
                    .for_each(|metadata| metadata.column.truncate(row));
                bad.push(fault.into_bad_record(payload.offset, value));
                continue;
            }
            if let Some(column) = &mut self.value {
                column.push_bytes(value);
            }
            row += 1;
        }
        let columns = self.metadata.iter_mut().map(|metadata| metadata.column.finish());
        let mut arrays = columns.collect::<Result<Vec<_>, _>>().map_err(column_error)?;
        if let Some(column) = &mut self.value {
            arrays.insert(self.value_place, column.finish().map_err(column_error)?);
        }
        debug_assert!(arrays.iter().all(|array| array.len() == row));
        let options = RecordBatchOptions::new().with_row_count(Some(row));
        let rows = RecordBatch::try_new_with_options(Arc::clone(&self.schema), arrays, &options);
        Ok(Decoded {
            rows: rows.map_err(column_error)?,
            deleted: None,
            bad,
            tombstones,
        })
    }
}

fn column_error(error: arrow::error::ArrowError) -> ConnectorError {
    ConnectorError::new(ErrorKind::Permanent, "decoded columns do not make a batch")
        .with_detail(format!("{error}."))
}
