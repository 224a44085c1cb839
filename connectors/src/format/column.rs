//! Column buffers that can take a row back.
//!
//! Arrow's builders only grow. A record that turns out to be bad after three of its columns were written must leave no
//! trace, so a [`Column`] keeps plain vectors, cuts them back with [`Column::truncate`], and hands them to Arrow whole.

use std::sync::Arc;

use arrow::array::{
    ArrayRef, BinaryArray, BooleanArray, Decimal128Array, ListArray, PrimitiveArray, StringArray, StructArray,
};
use arrow::buffer::{BooleanBuffer, Buffer, MutableBuffer, NullBuffer, OffsetBuffer, ScalarBuffer};
use arrow::datatypes::{
    ArrowPrimitiveType, DataType, Date32Type, FieldRef, Fields, Float32Type, Float64Type, Int16Type,
    Int32Type, Int64Type, Time64MicrosecondType, TimeUnit, TimestampMicrosecondType,
};
use arrow::error::ArrowError;

use super::is_jsonb;
use super::time::TimestampFormat;
use crate::error::ConnectorError;

/// One column while it is being filled.
pub(crate) struct Column {
    /// Its name, type and nullability.
    pub(crate) field: FieldRef,
    /// Rows so far.
    pub(crate) rows: usize,
    /// The values; a null has a placeholder.
    pub(crate) values: Values,
    /// The rows that are null, ascending.
    nulls: Vec<u32>,
}

/// Variable-length values, one after the other.
pub(crate) struct Blobs {
    offsets: Vec<i32>,
    /// All values; what lies beyond the last offset belongs to a row that is not finished.
    pub(crate) data: Vec<u8>,
}

/// The values of a column by type.
pub(crate) enum Values {
    Bool(Vec<bool>),
    I16(Vec<i16>),
    I32(Vec<i32>),
    I64(Vec<i64>),
    F32(Vec<f32>),
    F64(Vec<f64>),
    Decimal {
        values: Vec<i128>,
        precision: u8,
        scale: i8,
    },
    Utf8(Blobs),
    /// The text of any JSON value, as written, and the fields of JSONB.
    Json(Blobs, Fields),
    Binary(Blobs),
    Date(Vec<i32>),
    Time(Vec<i64>),
    Timestamp {
        values: Vec<i64>,
        zone: Option<Arc<str>>,
        format: TimestampFormat,
    },
    List {
        offsets: Vec<i32>,
        items: Box<Column>,
    },
    Struct {
        fields: Fields,
        columns: Vec<Column>,
    },
}

impl Blobs {
    fn new() -> Self {
        Self {
            offsets: vec![0],
            data: Vec::new(),
        }
    }

    /// Ends the value whose bytes have been appended to `data`. The caller bounds a batch to 2 GiB.
    #[inline]
    pub(crate) fn finish_value(&mut self) {
        self.offsets.push(self.data.len() as i32);
    }

    fn truncate(&mut self, rows: usize) {
        self.offsets.truncate(rows + 1);
        self.data.truncate(self.offsets[rows] as usize);
    }

    /// Offsets and values, leaving as much room behind as was needed.
    fn take(&mut self) -> (OffsetBuffer<i32>, Buffer) {
        let mut offsets = Vec::with_capacity(self.offsets.len());
        offsets.push(0);
        let offsets = std::mem::replace(&mut self.offsets, offsets);
        (
            OffsetBuffer::new(ScalarBuffer::from(offsets)),
            Buffer::from_vec(take(&mut self.data)),
        )
    }
}

/// Takes a vector, leaving as much room behind as was needed.
fn take<T>(values: &mut Vec<T>) -> Vec<T> {
    let room = Vec::with_capacity(values.len());
    std::mem::replace(values, room)
}

impl Column {
    /// An empty column. `format` says how its timestamps are written.
    ///
    /// # Errors
    /// A type that records cannot be decoded to.
    pub(crate) fn new(field: &FieldRef, format: &TimestampFormat) -> Result<Self, ConnectorError> {
        let values = match field.data_type() {
            DataType::Boolean => Values::Bool(Vec::new()),
            DataType::Int16 => Values::I16(Vec::new()),
            DataType::Int32 => Values::I32(Vec::new()),
            DataType::Int64 => Values::I64(Vec::new()),
            DataType::Float32 => Values::F32(Vec::new()),
            DataType::Float64 => Values::F64(Vec::new()),
            DataType::Decimal128(precision, scale) => Values::Decimal {
                values: Vec::new(),
                precision: *precision,
                scale: *scale,
            },
            DataType::Utf8 => Values::Utf8(Blobs::new()),
            DataType::Binary => Values::Binary(Blobs::new()),
            DataType::Date32 => Values::Date(Vec::new()),
            DataType::Time64(TimeUnit::Microsecond) => Values::Time(Vec::new()),
            DataType::Timestamp(TimeUnit::Microsecond, zone) => Values::Timestamp {
                values: Vec::new(),
                zone: zone.clone(),
                format: format.clone(),
            },
            DataType::List(item) => Values::List {
                offsets: vec![0],
                items: Box::new(Self::new(item, format)?),
            },
            DataType::Struct(fields) if is_jsonb(field.data_type()) => {
                Values::Json(Blobs::new(), fields.clone())
            }
            DataType::Struct(fields) => {
                let columns = fields
                    .iter()
                    .map(|field| Self::new(field, format))
                    .collect::<Result<_, _>>()?;
                Values::Struct {
                    fields: fields.clone(),
                    columns,
                }
            }
            other => {
                let message = format!(
                    "column \"{}\" has a type that records cannot be decoded to",
                    field.name()
                );
                return Err(
                    ConnectorError::invalid(message).with_detail(format!("The Arrow type is {other}."))
                );
            }
        };
        Ok(Self {
            field: Arc::clone(field),
            rows: 0,
            values,
            nulls: Vec::new(),
        })
    }

    /// Whether `row`, the last one, is null.
    pub(crate) fn is_null(&self, row: usize) -> bool {
        self.nulls.last().is_some_and(|last| *last as usize == row)
    }

    /// Appends a null.
    #[inline]
    pub(crate) fn push_null(&mut self) {
        // A batch holds fewer than 2^31 bytes of records, so its rows fit as well.
        self.nulls.push(self.rows as u32);
        self.rows += 1;
        match &mut self.values {
            Values::Bool(values) => values.push(false),
            Values::I16(values) => values.push(0),
            Values::I32(values) | Values::Date(values) => values.push(0),
            Values::I64(values) | Values::Time(values) | Values::Timestamp { values, .. } => values.push(0),
            Values::F32(values) => values.push(0.0),
            Values::F64(values) => values.push(0.0),
            Values::Decimal { values, .. } => values.push(0),
            Values::Utf8(blobs) | Values::Json(blobs, _) | Values::Binary(blobs) => blobs.finish_value(),
            Values::List { offsets, items } => offsets.push(items.rows as i32),
            Values::Struct { columns, .. } => columns.iter_mut().for_each(Self::push_null),
        }
    }

    /// Appends a value to a BIGINT, TIME or TIMESTAMP column.
    #[inline]
    pub(crate) fn push_i64(&mut self, value: i64) {
        self.rows += 1;
        match &mut self.values {
            Values::I64(values) | Values::Time(values) | Values::Timestamp { values, .. } => {
                values.push(value)
            }
            _ => unreachable!("the type was checked when the decoder was made"),
        }
    }

    /// Appends a value to an INTEGER column.
    pub(crate) fn push_i32(&mut self, value: i32) {
        self.rows += 1;
        match &mut self.values {
            Values::I32(values) => values.push(value),
            _ => unreachable!("the type was checked when the decoder was made"),
        }
    }

    /// Appends a value to a VARCHAR (the caller has checked its UTF-8) or BYTEA column.
    #[inline]
    pub(crate) fn push_bytes(&mut self, value: &[u8]) {
        self.rows += 1;
        match &mut self.values {
            Values::Utf8(blobs) | Values::Json(blobs, _) | Values::Binary(blobs) => {
                blobs.data.extend_from_slice(value);
                blobs.finish_value();
            }
            _ => unreachable!("the type was checked when the decoder was made"),
        }
    }

    /// Forgets everything after the first `rows` rows, also what an unfinished row has left.
    pub(crate) fn truncate(&mut self, rows: usize) {
        if self.rows > rows {
            self.rows = rows;
        }
        while self.nulls.last().is_some_and(|row| *row as usize >= rows) {
            self.nulls.pop();
        }
        match &mut self.values {
            Values::Bool(values) => values.truncate(rows),
            Values::I16(values) => values.truncate(rows),
            Values::I32(values) | Values::Date(values) => values.truncate(rows),
            Values::I64(values) | Values::Time(values) | Values::Timestamp { values, .. } => {
                values.truncate(rows)
            }
            Values::F32(values) => values.truncate(rows),
            Values::F64(values) => values.truncate(rows),
            Values::Decimal { values, .. } => values.truncate(rows),
            Values::Utf8(blobs) | Values::Json(blobs, _) | Values::Binary(blobs) => blobs.truncate(rows),
            Values::List { offsets, items } => {
                offsets.truncate(rows + 1);
                items.truncate(offsets[rows] as usize);
            }
            Values::Struct { columns, .. } => columns.iter_mut().for_each(|column| column.truncate(rows)),
        }
    }

    /// The column as an Arrow array; the buffers are empty afterwards.
    pub(crate) fn finish(&mut self) -> Result<ArrayRef, ArrowError> {
        let nulls = self.take_nulls();
        let rows = std::mem::take(&mut self.rows);
        let array: ArrayRef = match &mut self.values {
            Values::Bool(values) => {
                let array = BooleanArray::new(BooleanBuffer::from(values.as_slice()), nulls);
                values.clear();
                Arc::new(array)
            }
            Values::I16(values) => primitive::<Int16Type>(values, nulls),
            Values::I32(values) => primitive::<Int32Type>(values, nulls),
            Values::I64(values) => primitive::<Int64Type>(values, nulls),
            Values::F32(values) => primitive::<Float32Type>(values, nulls),
            Values::F64(values) => primitive::<Float64Type>(values, nulls),
            Values::Decimal {
                values,
                precision,
                scale,
            } => {
                let array = Decimal128Array::new(ScalarBuffer::from(take(values)), nulls);
                Arc::new(array.with_precision_and_scale(*precision, *scale)?)
            }
            Values::Utf8(blobs) => {
                let (offsets, data) = blobs.take();
                Arc::new(StringArray::try_new(offsets, data, nulls)?)
            }
            Values::Json(blobs, fields) => {
                let (offsets, data) = blobs.take();
                let texts = StringArray::try_new(offsets, data, nulls.clone())?;
                Arc::new(StructArray::try_new(
                    fields.clone(),
                    vec![Arc::new(texts)],
                    nulls,
                )?)
            }
            Values::Binary(blobs) => {
                let (offsets, data) = blobs.take();
                Arc::new(BinaryArray::try_new(offsets, data, nulls)?)
            }
            Values::Date(values) => primitive::<Date32Type>(values, nulls),
            Values::Time(values) => primitive::<Time64MicrosecondType>(values, nulls),
            Values::Timestamp { values, zone, .. } => {
                let values = ScalarBuffer::from(take(values));
                let array = PrimitiveArray::<TimestampMicrosecondType>::new(values, nulls);
                Arc::new(array.with_timezone_opt(zone.clone()))
            }
            Values::List { offsets, items } => {
                let offsets = OffsetBuffer::new(ScalarBuffer::from(std::mem::replace(offsets, vec![0])));
                let field = Arc::clone(&items.field);
                Arc::new(ListArray::try_new(field, offsets, items.finish()?, nulls)?)
            }
            Values::Struct { fields, columns } => {
                let arrays = columns.iter_mut().map(Self::finish).collect::<Result<_, _>>()?;
                Arc::new(StructArray::try_new_with_length(
                    fields.clone(),
                    arrays,
                    nulls,
                    rows,
                )?)
            }
        };
        Ok(array)
    }

    fn take_nulls(&mut self) -> Option<NullBuffer> {
        if self.nulls.is_empty() {
            return None;
        }
        let mut bits = MutableBuffer::new(self.rows.div_ceil(8)).with_bitset(self.rows.div_ceil(8), true);
        for row in self.nulls.drain(..) {
            arrow::util::bit_util::unset_bit(bits.as_slice_mut(), row as usize);
        }
        Some(NullBuffer::new(BooleanBuffer::new(bits.into(), 0, self.rows)))
    }
}

fn primitive<T: ArrowPrimitiveType>(values: &mut Vec<T::Native>, nulls: Option<NullBuffer>) -> ArrayRef {
    Arc::new(PrimitiveArray::<T>::new(ScalarBuffer::from(take(values)), nulls))
}
