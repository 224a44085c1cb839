//! Rows in PostgreSQL's binary format.

use arrow::array::ArrayRef;
use arrow::datatypes::Schema;
use arrow::record_batch::RecordBatch;
use bytes::{BufMut as _, BytesMut};

use super::read_binary::SIGNATURE;
use crate::binary::{ColumnBinary, is_there, put_value};
use crate::sql::oids::wire_type_of;
use crate::{Error, Result};

/// Behind the last row: a row of −1 columns.
pub(super) const TRAILER: [u8; 2] = (-1_i16).to_be_bytes();

/// The values of a batch.
pub(super) struct BinaryRows {
    columns: Vec<(ArrayRef, ColumnBinary)>,
    count: i16,
}

/// Refuses columns that have no binary format.
pub(super) fn check(schema: &Schema) -> Result<()> {
    for field in schema.fields() {
        if !is_there(field.data_type()) {
            let message = format!("column \"{}\" has no binary format", field.name());
            return Err(Error::new("42883", message).with_hint("Use FORMAT text or FORMAT csv."));
        }
    }
    Ok(())
}

/// Appends what stands before all rows: the signature, no flags, and no extension.
pub(super) fn header(out: &mut BytesMut) {
    out.put_slice(SIGNATURE);
    out.put_i32(0);
    out.put_i32(0);
}

impl BinaryRows {
    pub(super) fn new(batch: &RecordBatch) -> Result<Self> {
        let fields = batch.schema_ref().fields().iter();
        let columns = batch.columns().iter().zip(fields);
        let columns = columns
            .map(|(column, field)| {
                let binary = ColumnBinary::told(column, wire_type_of(field).oid)?;
                Ok((ArrayRef::clone(column), binary))
            })
            .collect::<Result<Vec<_>>>()?;
        let count = i16::try_from(columns.len())
            .map_err(|_| Error::new("54011", "a COPY has more columns than the format can say"))?;
        Ok(Self { columns, count })
    }

    /// Appends a row: how many columns there are, and the length and the bytes of each.
    pub(super) fn write(&self, row: usize, out: &mut BytesMut) -> Result<()> {
        out.put_i16(self.count);
        let mut columns = self.columns.iter();
        columns.try_for_each(|(column, binary)| put_value(column, binary, row, out))
    }
}
