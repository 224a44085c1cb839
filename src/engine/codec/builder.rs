//! [`Builder`]: a column that is being decoded.

use arrow::array::{
    ArrayData, ArrayDataBuilder, ArrayRef, BooleanBufferBuilder, NullBufferBuilder, make_array,
};
use arrow::buffer::Buffer;
use arrow::datatypes::{DataType, IntervalMonthDayNano};

use crate::engine::error::EngineError;
use crate::engine::exact::exact_cast;

/// Gathers the values of one column.
pub(crate) struct Builder {
    data_type: DataType,
    nulls: NullBufferBuilder,
    /// A value for each row, and any value for null rows.
    pub(super) values: BuilderValues,
}

/// Typed values, by [`Kind`](super::kind::Kind).
pub(super) enum BuilderValues {
    Null,
    Bool(BooleanBufferBuilder),
    I8(Vec<i8>),
    I16(Vec<i16>),
    I32(Vec<i32>),
    I64(Vec<i64>),
    I128(Vec<i128>),
    U8(Vec<u8>),
    U16(Vec<u16>),
    U32(Vec<u32>),
    U64(Vec<u64>),
    F32(Vec<f32>),
    F64(Vec<f64>),
    Interval(Vec<IntervalMonthDayNano>),
    /// Where each value ends in `data`.
    Bytes {
        ends: Vec<usize>,
        data: Vec<u8>,
    },
    /// Where each value ends in `elements`.
    List {
        ends: Vec<usize>,
        elements: Box<Builder>,
    },
    Struct(Vec<Builder>),
}

impl Builder {
    /// For a column of a type that [`Kind::of`](super::kind::Kind::of) has accepted, of about `rows` rows.
    pub(super) fn new(data_type: &DataType, rows: usize) -> Self {
        use DataType as T;
        let values = match data_type {
            T::Boolean => BuilderValues::Bool(BooleanBufferBuilder::new(rows)),
            T::Int8 => BuilderValues::I8(Vec::with_capacity(rows)),
            T::Int16 => BuilderValues::I16(Vec::with_capacity(rows)),
            T::Int32 | T::Date32 | T::Time32(_) => BuilderValues::I32(Vec::with_capacity(rows)),
            T::Int64 | T::Date64 | T::Time64(_) | T::Timestamp(..) | T::Duration(_) => {
                BuilderValues::I64(Vec::with_capacity(rows))
            }
            T::Decimal128(..) => BuilderValues::I128(Vec::with_capacity(rows)),
            T::UInt8 => BuilderValues::U8(Vec::with_capacity(rows)),
            T::UInt16 => BuilderValues::U16(Vec::with_capacity(rows)),
            T::UInt32 => BuilderValues::U32(Vec::with_capacity(rows)),
            T::UInt64 => BuilderValues::U64(Vec::with_capacity(rows)),
            T::Float32 => BuilderValues::F32(Vec::with_capacity(rows)),
            T::Float64 => BuilderValues::F64(Vec::with_capacity(rows)),
            T::Interval(_) => BuilderValues::Interval(Vec::with_capacity(rows)),
            T::Utf8 | T::LargeUtf8 | T::Utf8View | T::Binary | T::LargeBinary | T::BinaryView => {
                BuilderValues::Bytes {
                    ends: Vec::with_capacity(rows),
                    data: Vec::new(),
                }
            }
            T::List(element) => BuilderValues::List {
                ends: Vec::with_capacity(rows),
                elements: Box::new(Self::new(element.data_type(), 0)),
            },
            T::Struct(fields) => BuilderValues::Struct(
                fields
                    .iter()
                    .map(|field| Self::new(field.data_type(), rows))
                    .collect(),
            ),
            _ => BuilderValues::Null,
        };
        Self {
            data_type: data_type.clone(),
            nulls: NullBufferBuilder::new(rows),
            values,
        }
    }

    /// How many rows it has.
    pub(super) fn len(&self) -> usize {
        self.nulls.len()
    }

    /// Completes a row whose value was appended to `values`, or stands there for a null.
    pub(super) fn count(&mut self, there: bool) {
        self.nulls.append(there);
    }

    /// Appends a null row.
    pub(super) fn append_null(&mut self) {
        match &mut self.values {
            BuilderValues::Null => {}
            BuilderValues::Bool(values) => values.append(false),
            BuilderValues::I8(values) => values.push(0),
            BuilderValues::I16(values) => values.push(0),
            BuilderValues::I32(values) => values.push(0),
            BuilderValues::I64(values) => values.push(0),
            BuilderValues::I128(values) => values.push(0),
            BuilderValues::U8(values) => values.push(0),
            BuilderValues::U16(values) => values.push(0),
            BuilderValues::U32(values) => values.push(0),
            BuilderValues::U64(values) => values.push(0),
            BuilderValues::F32(values) => values.push(0.0),
            BuilderValues::F64(values) => values.push(0.0),
            BuilderValues::Interval(values) => values.push(IntervalMonthDayNano::default()),
            BuilderValues::Bytes { ends, data } => ends.push(data.len()),
            BuilderValues::List { ends, elements } => ends.push(elements.len()),
            BuilderValues::Struct(fields) => fields.iter_mut().for_each(Self::append_null),
        }
        self.count(false);
    }

    /// The column.
    ///
    /// # Errors
    /// More text than one array holds, or bytes that are no UTF-8 (`XX001`).
    pub(super) fn finish(self) -> Result<ArrayRef, EngineError> {
        let wanted = self.data_type.clone();
        let array = make_array(self.into_data()?);
        if *array.data_type() == wanted {
            Ok(array)
        } else {
            Ok(exact_cast(&array, &wanted)?)
        }
    }

    /// Its buffers; text and bytes in Arrow's plain form, whatever form is wanted.
    fn into_data(mut self) -> Result<ArrayData, EngineError> {
        let len = self.len();
        let plain = match &self.data_type {
            DataType::LargeUtf8 | DataType::Utf8View => DataType::Utf8,
            DataType::LargeBinary | DataType::BinaryView => DataType::Binary,
            other => other.clone(),
        };
        let data = ArrayData::builder(plain).len(len);
        let data = match self.values {
            BuilderValues::Null => return built(data),
            BuilderValues::Bool(mut values) => data.add_buffer(values.finish().into_inner()),
            BuilderValues::I8(values) => data.add_buffer(Buffer::from_vec(values)),
            BuilderValues::I16(values) => data.add_buffer(Buffer::from_vec(values)),
            BuilderValues::I32(values) => data.add_buffer(Buffer::from_vec(values)),
            BuilderValues::I64(values) => data.add_buffer(Buffer::from_vec(values)),
            BuilderValues::I128(values) => data.add_buffer(Buffer::from_vec(values)),
            BuilderValues::U8(values) => data.add_buffer(Buffer::from_vec(values)),
            BuilderValues::U16(values) => data.add_buffer(Buffer::from_vec(values)),
            BuilderValues::U32(values) => data.add_buffer(Buffer::from_vec(values)),
            BuilderValues::U64(values) => data.add_buffer(Buffer::from_vec(values)),
            BuilderValues::F32(values) => data.add_buffer(Buffer::from_vec(values)),
            BuilderValues::F64(values) => data.add_buffer(Buffer::from_vec(values)),
            BuilderValues::Interval(values) => data.add_buffer(Buffer::from_vec(values)),
            BuilderValues::Bytes { ends, data: bytes } => data
                .add_buffer(offsets(&ends)?)
                .add_buffer(Buffer::from_vec(bytes)),
            BuilderValues::List { ends, elements } => {
                let elements = elements.finish()?.to_data();
                data.add_buffer(offsets(&ends)?).add_child_data(elements)
            }
            BuilderValues::Struct(fields) => {
                let mut data = data;
                for field in fields {
                    data = data.add_child_data(field.finish()?.to_data());
                }
                data
            }
        };
        built(data.nulls(self.nulls.finish()))
    }
}

fn built(data: ArrayDataBuilder) -> Result<ArrayData, EngineError> {
    data.build().map_err(|error| {
        EngineError::recovery("a stored row is corrupt").with_detail(format!("Arrow says: {error}."))
    })
}

fn offsets(ends: &[usize]) -> Result<Buffer, EngineError> {
    if ends.last().is_some_and(|end| i32::try_from(*end).is_err()) {
        return Err(EngineError::new(
            "54000",
            "the values of a column exceed 2 GiB in one batch",
        ));
    }
    Ok(std::iter::once(0)
        .chain(ends.iter().map(|end| *end as i32))
        .collect::<Vec<i32>>()
        .into())
}
