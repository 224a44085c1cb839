//! [`Column`]: an array resolved to typed slices, so that reading a row downcasts nothing.

use arrow::array::{
    Array, ArrayRef, AsArray, BinaryViewArray, BooleanArray, GenericBinaryArray, GenericStringArray,
    OffsetSizeTrait, StringViewArray,
};
use arrow::buffer::NullBuffer;
use arrow::datatypes::{
    ArrowPrimitiveType, DataType, Date32Type, Date64Type, Decimal128Type, DurationMicrosecondType,
    DurationMillisecondType, DurationNanosecondType, DurationSecondType, Float32Type, Float64Type, Int8Type,
    Int16Type, Int32Type, Int64Type, IntervalMonthDayNano, IntervalMonthDayNanoType, Time32MillisecondType,
    Time32SecondType, Time64MicrosecondType, Time64NanosecondType, TimeUnit, TimestampMicrosecondType,
    TimestampMillisecondType, TimestampNanosecondType, TimestampSecondType, UInt8Type, UInt16Type,
    UInt32Type, UInt64Type,
};

use super::kind::Kind;
use crate::engine::error::EngineError;

/// A column of a batch.
pub(crate) struct Column<'a> {
    nulls: Option<&'a NullBuffer>,
    /// The values; those of null rows mean nothing.
    pub(super) values: Values<'a>,
}

/// Typed values, by [`Kind`].
pub(super) enum Values<'a> {
    Null,
    Bool(&'a BooleanArray),
    I8(&'a [i8]),
    I16(&'a [i16]),
    I32(&'a [i32]),
    I64(&'a [i64]),
    I128(&'a [i128]),
    U8(&'a [u8]),
    U16(&'a [u16]),
    U32(&'a [u32]),
    U64(&'a [u64]),
    F32(&'a [f32]),
    F64(&'a [f64]),
    Interval(&'a [IntervalMonthDayNano]),
    Bytes(Bytes<'a>),
    List {
        offsets: &'a [i32],
        elements: Box<Column<'a>>,
    },
    Struct(Box<[Column<'a>]>),
}

/// Text or bytes, in any of Arrow's three forms.
pub(super) enum Bytes<'a> {
    Small { offsets: &'a [i32], data: &'a [u8] },
    Large { offsets: &'a [i64], data: &'a [u8] },
    TextView(&'a StringViewArray),
    BinaryView(&'a BinaryViewArray),
}

impl<'a> Column<'a> {
    /// Resolves `array`, whose type must be of `kind`.
    ///
    /// # Errors
    /// An array of another kind (internal).
    pub(super) fn new(array: &'a ArrayRef, kind: &Kind) -> Result<Self, EngineError> {
        let array: &dyn Array = array.as_ref();
        let values = match kind {
            Kind::Null if *array.data_type() == DataType::Null => Some(Values::Null),
            Kind::Bool => array.as_boolean_opt().map(Values::Bool),
            Kind::I8 => natives::<Int8Type>(array).map(Values::I8),
            Kind::I16 => natives::<Int16Type>(array).map(Values::I16),
            Kind::I32 => integers_32(array).map(Values::I32),
            Kind::I64 => integers_64(array).map(Values::I64),
            Kind::I128 => natives::<Decimal128Type>(array).map(Values::I128),
            Kind::U8 => natives::<UInt8Type>(array).map(Values::U8),
            Kind::U16 => natives::<UInt16Type>(array).map(Values::U16),
            Kind::U32 => natives::<UInt32Type>(array).map(Values::U32),
            Kind::U64 => natives::<UInt64Type>(array).map(Values::U64),
            Kind::F32 => natives::<Float32Type>(array).map(Values::F32),
            Kind::F64 => natives::<Float64Type>(array).map(Values::F64),
            Kind::Interval => natives::<IntervalMonthDayNanoType>(array).map(Values::Interval),
            Kind::Text => text(array).map(Values::Bytes),
            Kind::Bytes => bytes(array).map(Values::Bytes),
            Kind::List(element) => list(array, element)?,
            Kind::Struct(fields) => structure(array, fields)?,
            Kind::Null => None,
        };
        let values = values.ok_or_else(|| {
            EngineError::internal(format!(
                "a column of type {} came where {kind:?} is stored",
                array.data_type()
            ))
        })?;
        Ok(Self {
            nulls: array.nulls(),
            values,
        })
    }

    /// Resolves the columns of a batch.
    ///
    /// # Errors
    /// Arrays of another number or of other kinds (internal).
    pub(super) fn all(arrays: &'a [ArrayRef], kinds: &[Kind]) -> Result<Box<[Self]>, EngineError> {
        if arrays.len() != kinds.len() {
            let (found, wanted) = (arrays.len(), kinds.len());
            return Err(EngineError::internal(format!(
                "{found} columns came where {wanted} are stored"
            )));
        }
        arrays
            .iter()
            .zip(kinds)
            .map(|(array, kind)| Self::new(array, kind))
            .collect()
    }

    /// Whether the value of `row` is null.
    #[inline]
    pub(super) fn is_null(&self, row: usize) -> bool {
        match (&self.values, self.nulls) {
            (Values::Null, _) => true,
            (_, None) => false,
            (_, Some(nulls)) => nulls.is_null(row),
        }
    }
}

impl<'a> Bytes<'a> {
    /// The bytes of `row`.
    #[inline]
    pub(super) fn get(&self, row: usize) -> &'a [u8] {
        match self {
            Self::Small { offsets, data } => &data[offsets[row] as usize..offsets[row + 1] as usize],
            Self::Large { offsets, data } => &data[offsets[row] as usize..offsets[row + 1] as usize],
            Self::TextView(array) => array.value(row).as_bytes(),
            Self::BinaryView(array) => array.value(row),
        }
    }
}

fn natives<T: ArrowPrimitiveType>(array: &dyn Array) -> Option<&[T::Native]> {
    array.as_primitive_opt::<T>().map(|array| &array.values()[..])
}

fn integers_32(array: &dyn Array) -> Option<&[i32]> {
    match array.data_type() {
        DataType::Int32 => natives::<Int32Type>(array),
        DataType::Date32 => natives::<Date32Type>(array),
        DataType::Time32(TimeUnit::Second) => natives::<Time32SecondType>(array),
        _ => natives::<Time32MillisecondType>(array),
    }
}

fn integers_64(array: &dyn Array) -> Option<&[i64]> {
    use TimeUnit::{Microsecond, Millisecond, Nanosecond, Second};
    match array.data_type() {
        DataType::Int64 => natives::<Int64Type>(array),
        DataType::Date64 => natives::<Date64Type>(array),
        DataType::Time64(Microsecond) => natives::<Time64MicrosecondType>(array),
        DataType::Time64(_) => natives::<Time64NanosecondType>(array),
        DataType::Timestamp(Second, _) => natives::<TimestampSecondType>(array),
        DataType::Timestamp(Millisecond, _) => natives::<TimestampMillisecondType>(array),
        DataType::Timestamp(Microsecond, _) => natives::<TimestampMicrosecondType>(array),
        DataType::Timestamp(Nanosecond, _) => natives::<TimestampNanosecondType>(array),
        DataType::Duration(Second) => natives::<DurationSecondType>(array),
        DataType::Duration(Millisecond) => natives::<DurationMillisecondType>(array),
        DataType::Duration(Microsecond) => natives::<DurationMicrosecondType>(array),
        _ => natives::<DurationNanosecondType>(array),
    }
}

fn text(array: &dyn Array) -> Option<Bytes<'_>> {
    fn flat<O: OffsetSizeTrait>(array: &GenericStringArray<O>) -> (&[O], &[u8]) {
        (array.value_offsets(), array.value_data())
    }
    match array.data_type() {
        DataType::Utf8 => array.as_string_opt::<i32>().map(flat).map(Bytes::small),
        DataType::LargeUtf8 => array.as_string_opt::<i64>().map(flat).map(Bytes::large),
        _ => array.as_string_view_opt().map(Bytes::TextView),
    }
}

fn bytes(array: &dyn Array) -> Option<Bytes<'_>> {
    fn flat<O: OffsetSizeTrait>(array: &GenericBinaryArray<O>) -> (&[O], &[u8]) {
        (array.value_offsets(), array.value_data())
    }
    match array.data_type() {
        DataType::Binary => array.as_binary_opt::<i32>().map(flat).map(Bytes::small),
        DataType::LargeBinary => array.as_binary_opt::<i64>().map(flat).map(Bytes::large),
        _ => array.as_binary_view_opt().map(Bytes::BinaryView),
    }
}

impl<'a> Bytes<'a> {
    fn small((offsets, data): (&'a [i32], &'a [u8])) -> Self {
        Self::Small { offsets, data }
    }

    fn large((offsets, data): (&'a [i64], &'a [u8])) -> Self {
        Self::Large { offsets, data }
    }
}

fn list<'a>(array: &'a dyn Array, element: &Kind) -> Result<Option<Values<'a>>, EngineError> {
    let Some(array) = array.as_list_opt::<i32>() else {
        return Ok(None);
    };
    let elements = Box::new(Column::new(array.values(), element)?);
    Ok(Some(Values::List {
        offsets: array.value_offsets(),
        elements,
    }))
}

fn structure<'a>(array: &'a dyn Array, fields: &[Kind]) -> Result<Option<Values<'a>>, EngineError> {
    let Some(array) = array.as_struct_opt() else {
        return Ok(None);
    };
    Column::all(array.columns(), fields).map(|fields| Some(Values::Struct(fields)))
}
