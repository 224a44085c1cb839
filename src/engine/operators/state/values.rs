//! Column values in one of three physical forms, so that tables and kernels exist three times at most.
//!
//! A form keeps the order and the equality of SQL: -0.0 is 0.0, NaN equals NaN and is the greatest number, text sorts by
//! its bytes.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, ArrowPrimitiveType, AsArray, BinaryArray, BooleanArray, Decimal128Array, Int64Array,
    PrimitiveArray, new_null_array,
};
use arrow::buffer::{BooleanBuffer, NullBuffer, OffsetBuffer, ScalarBuffer};
use arrow::compute::cast;
use arrow::datatypes::{
    DataType, Date32Type, Date64Type, Decimal128Type, DurationMicrosecondType, Float32Type, Float64Type,
    Int8Type, Int16Type, Int32Type, Int64Type, IntervalUnit, Time64MicrosecondType, Time64NanosecondType,
    TimeUnit, TimestampMicrosecondType, TimestampMillisecondType, TimestampNanosecondType,
    TimestampSecondType, UInt8Type, UInt16Type, UInt32Type,
};

use highwater_sql::jsonb;

use crate::engine::codec::KeyCodec;
use crate::engine::error::EngineError;
use crate::engine::exact::exact_cast;

/// How the values of a type are held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// Integers, dates, times, booleans and floats, as an `i64` of the same order.
    I64,
    /// Decimals.
    I128,
    /// Text, documents and bytes; arrays, rows and intervals by the bytes of their keys.
    Bytes,
}

/// The values of a column. What stands at a NULL is arbitrary.
#[derive(Debug, Clone)]
pub(crate) enum Values {
    /// See [`Form::I64`].
    I64(ScalarBuffer<i64>),
    /// See [`Form::I128`].
    I128(ScalarBuffer<i128>),
    /// See [`Form::Bytes`].
    Bytes(BinaryArray),
}

/// Runs `$run!(Type)` with the arrow type of `$data_type` if its natives are integers that fit an `i64`.
macro_rules! with_integer_type {
    ($data_type:expr, $run:ident, $otherwise:expr) => {
        match $data_type {
            DataType::Int8 => $run!(Int8Type),
            DataType::Int16 => $run!(Int16Type),
            DataType::Int32 => $run!(Int32Type),
            DataType::Int64 => $run!(Int64Type),
            DataType::UInt8 => $run!(UInt8Type),
            DataType::UInt16 => $run!(UInt16Type),
            DataType::UInt32 => $run!(UInt32Type),
            DataType::Date32 => $run!(Date32Type),
            DataType::Date64 => $run!(Date64Type),
            DataType::Time64(TimeUnit::Microsecond) => $run!(Time64MicrosecondType),
            DataType::Time64(TimeUnit::Nanosecond) => $run!(Time64NanosecondType),
            DataType::Duration(TimeUnit::Microsecond) => $run!(DurationMicrosecondType),
            DataType::Timestamp(TimeUnit::Second, _) => $run!(TimestampSecondType),
            DataType::Timestamp(TimeUnit::Millisecond, _) => $run!(TimestampMillisecondType),
            DataType::Timestamp(TimeUnit::Microsecond, _) => $run!(TimestampMicrosecondType),
            DataType::Timestamp(TimeUnit::Nanosecond, _) => $run!(TimestampNanosecondType),
            _ => $otherwise,
        }
    };
}

impl Form {
    /// The form of a type; `None` for types that cannot be grouped or ordered here, such as arrays of documents.
    pub(crate) fn of(data_type: &DataType) -> Option<Self> {
        macro_rules! integer {
            ($type:ty) => {
                Some(Self::I64)
            };
        }
        match data_type {
            DataType::Boolean | DataType::Float32 | DataType::Float64 => Some(Self::I64),
            DataType::Decimal128(..) => Some(Self::I128),
            DataType::Utf8
            | DataType::LargeUtf8
            | DataType::Utf8View
            | DataType::Binary
            | DataType::LargeBinary
            | DataType::BinaryView => Some(Self::Bytes),
            document if jsonb::is_jsonb(document) => Some(Self::Bytes),
            keyed if is_keyed(keyed) => Some(Self::Bytes),
            other => with_integer_type!(other, integer, None),
        }
    }
}

impl Values {
    /// The values of a column.
    ///
    /// # Errors
    /// A type without a [`Form`].
    pub(crate) fn of(column: &ArrayRef) -> Result<Self, EngineError> {
        macro_rules! integer {
            ($type:ty) => {
                Self::I64(widen::<$type>(column))
            };
        }
        Ok(match column.data_type() {
            DataType::Boolean => Self::I64(
                column
                    .as_boolean()
                    .values()
                    .iter()
                    .map(i64::from)
                    .collect::<Vec<_>>()
                    .into(),
            ),
            DataType::Float32 => {
                let values = column.as_primitive::<Float32Type>().values();
                Self::I64(
                    values
                        .iter()
                        .map(|value| i64_of_f64(f64::from(*value)))
                        .collect::<Vec<_>>()
                        .into(),
                )
            }
            DataType::Float64 => {
                let values = column.as_primitive::<Float64Type>().values();
                Self::I64(
                    values
                        .iter()
                        .map(|value| i64_of_f64(*value))
                        .collect::<Vec<_>>()
                        .into(),
                )
            }
            DataType::Decimal128(..) => Self::I128(column.as_primitive::<Decimal128Type>().values().clone()),
            DataType::Utf8
            | DataType::Utf8View
            | DataType::LargeUtf8
            | DataType::LargeBinary
            | DataType::BinaryView => {
                Self::Bytes(cast(column, &DataType::Binary)?.as_binary::<i32>().clone())
            }
            DataType::Binary => Self::Bytes(column.as_binary::<i32>().clone()),
            document if jsonb::is_jsonb(document) => {
                let texts = jsonb::texts(column)
                    .ok_or_else(|| EngineError::internal("a column of JSONB has no documents"))?;
                Self::Bytes(BinaryArray::from(texts))
            }
            keyed if is_keyed(keyed) => Self::Bytes(keys_of(column)?),
            other => with_integer_type!(other, integer, {
                return Err(EngineError::internal(format!(
                    "values of type {other} cannot be kept in state"
                )));
            }),
        })
    }
}

/// A column of type `data_type` from its `i64` form.
///
/// # Errors
/// Values that are not of that type, as only damaged state holds them.
pub(crate) fn column_of_i64(
    data_type: &DataType,
    values: Vec<i64>,
    nulls: Option<NullBuffer>,
) -> Result<ArrayRef, EngineError> {
    macro_rules! integer {
        ($type:ty) => {
            narrow::<$type>(data_type, values, nulls)?
        };
    }
    Ok(match data_type {
        DataType::Boolean => {
            let values = BooleanBuffer::collect_bool(values.len(), |row| values[row] != 0);
            Arc::new(BooleanArray::new(values, nulls))
        }
        DataType::Float32 => {
            let values = values
                .into_iter()
                .map(|value| f64_of_i64(value) as f32)
                .collect::<Vec<_>>();
            Arc::new(PrimitiveArray::<Float32Type>::new(values.into(), nulls))
        }
        DataType::Float64 => {
            let values = values.into_iter().map(f64_of_i64).collect::<Vec<_>>();
            Arc::new(PrimitiveArray::<Float64Type>::new(values.into(), nulls))
        }
        other => with_integer_type!(other, integer, {
            return Err(EngineError::internal(format!(
                "type {other} is not held as a 64-bit integer"
            )));
        }),
    })
}

/// A decimal column from its values, or one of BIGINT: the sum of a constant is one, though its summands may be.
///
/// # Errors
/// A type that is neither, and a value that BIGINT does not hold.
pub(crate) fn column_of_i128(
    data_type: &DataType,
    values: Vec<i128>,
    nulls: Option<NullBuffer>,
) -> Result<ArrayRef, EngineError> {
    if data_type == &DataType::Int64 {
        let values: Result<Vec<i64>, _> = values.into_iter().map(i64::try_from).collect();
        let values = values.map_err(|_| EngineError::new("22003", "bigint out of range"))?;
        return Ok(Arc::new(Int64Array::new(values.into(), nulls)));
    }
    let DataType::Decimal128(precision, scale) = data_type else {
        return Err(EngineError::internal(format!(
            "type {data_type} is not held as a 128-bit integer"
        )));
    };
    let values = Decimal128Array::new(values.into(), nulls).with_precision_and_scale(*precision, *scale)?;
    Ok(Arc::new(values))
}

/// A column of text or bytes from the bytes of each row; `lengths` are those of the rows, in order.
///
/// # Errors
/// Text that is not UTF-8, as only damaged state holds it, or more than 2 GiB.
pub(crate) fn column_of_bytes(
    data_type: &DataType,
    bytes: Vec<u8>,
    lengths: impl IntoIterator<Item = usize>,
    nulls: Option<NullBuffer>,
) -> Result<ArrayRef, EngineError> {
    if i32::try_from(bytes.len()).is_err() {
        return Err(EngineError::new(
            "54000",
            "one step gives more than 2 GiB of text",
        ));
    }
    let offsets = OffsetBuffer::<i32>::from_lengths(lengths);
    let binary: ArrayRef = Arc::new(BinaryArray::try_new(offsets, bytes.into(), nulls)?);
    match data_type {
        DataType::Binary => Ok(binary),
        // Casting checks UTF-8: what is stored may be damaged.
        DataType::Utf8
        | DataType::LargeUtf8
        | DataType::Utf8View
        | DataType::LargeBinary
        | DataType::BinaryView => Ok(exact_cast(&binary, data_type)?),
        document if jsonb::is_jsonb(document) => {
            let texts = exact_cast(&binary, &DataType::Utf8)?;
            Ok(jsonb::column(texts.as_string::<i32>().clone()))
        }
        keyed if is_keyed(keyed) => column_of_keys(keyed, binary.as_binary::<i32>()),
        other => Err(EngineError::internal(format!(
            "type {other} is not held as bytes"
        ))),
    }
}

/// Whether values of a type are held as the bytes of their keys. Equal documents may differ in their texts, so nothing that
/// holds documents is.
fn is_keyed(data_type: &DataType) -> bool {
    match data_type {
        DataType::Interval(IntervalUnit::MonthDayNano) => true,
        DataType::List(_) | DataType::Struct(_) => !jsonb::holds_documents(data_type),
        _ => false,
    }
}

fn keys_of(column: &ArrayRef) -> Result<BinaryArray, EngineError> {
    let codec = KeyCodec::new(std::slice::from_ref(column.data_type()))?;
    let columns = [Arc::clone(column)];
    let keys = codec.encoder(&columns)?;
    let mut bytes = Vec::new();
    let mut lengths = Vec::with_capacity(column.len());
    for row in 0..column.len() {
        let start = bytes.len();
        keys.append(row, &mut bytes);
        lengths.push(bytes.len() - start);
    }
    if i32::try_from(bytes.len()).is_err() {
        return Err(EngineError::new(
            "54000",
            "one step has more than 2 GiB of arrays",
        ));
    }
    let offsets = OffsetBuffer::<i32>::from_lengths(lengths);
    Ok(BinaryArray::try_new(
        offsets,
        bytes.into(),
        column.nulls().cloned(),
    )?)
}

fn column_of_keys(data_type: &DataType, keys: &BinaryArray) -> Result<ArrayRef, EngineError> {
    let codec = KeyCodec::new(std::slice::from_ref(data_type))?;
    let null = codec.encoder(&[new_null_array(data_type, 1)]).map(|null| {
        let mut bytes = Vec::new();
        null.append(0, &mut bytes);
        bytes
    })?;
    let mut decoder = codec.decoder(|_| true, keys.len());
    for row in 0..keys.len() {
        // What stands at a NULL is arbitrary.
        decoder.append(if keys.is_null(row) { &null } else { keys.value(row) })?;
    }
    let column = decoder.finish()?.pop().flatten();
    column.ok_or_else(|| EngineError::internal("a decoder lost its column"))
}

/// The column with one zero and one NaN, as PostgreSQL compares floats: a row is found again however its zero is written.
pub(crate) fn plain_floats(column: &ArrayRef) -> ArrayRef {
    fn mapped<T: ArrowPrimitiveType>(column: &ArrayRef, map: impl Fn(T::Native) -> T::Native) -> ArrayRef {
        let mapped: PrimitiveArray<T> = column.as_primitive::<T>().unary(map);
        Arc::new(mapped)
    }
    match column.data_type() {
        DataType::Float32 => mapped::<Float32Type>(column, |value| match value {
            _ if value.is_nan() => f32::NAN,
            _ => value + 0.0,
        }),
        DataType::Float64 => mapped::<Float64Type>(column, |value| match value {
            _ if value.is_nan() => f64::NAN,
            _ => value + 0.0,
        }),
        _ => Arc::clone(column),
    }
}

/// Nulls from a validity per row; `None` if all are valid.
pub(crate) fn nulls_of(rows: usize, is_valid: impl FnMut(usize) -> bool) -> Option<NullBuffer> {
    Some(NullBuffer::new(BooleanBuffer::collect_bool(rows, is_valid))).filter(|nulls| nulls.null_count() > 0)
}

/// A float as an integer of the same order: -0.0 becomes 0.0, every NaN the one greatest value.
#[inline]
pub(crate) fn i64_of_f64(value: f64) -> i64 {
    let canonical = if value.is_nan() {
        f64::NAN.copysign(1.0)
    } else {
        value + 0.0
    };
    flip(canonical.to_bits().cast_signed())
}

/// What [`i64_of_f64`] was given.
#[inline]
pub(crate) fn f64_of_i64(value: i64) -> f64 {
    f64::from_bits(flip(value).cast_unsigned())
}

#[inline]
fn flip(bits: i64) -> i64 {
    bits ^ ((bits >> 63).cast_unsigned() >> 1).cast_signed()
}

fn widen<T: ArrowPrimitiveType<Native: Into<i64>>>(column: &ArrayRef) -> ScalarBuffer<i64> {
    let column = column.as_primitive::<T>();
    if size_of::<T::Native>() == size_of::<i64>() {
        // The natives are i64 themselves: the buffer is shared, not copied.
        return ScalarBuffer::from(column.values().inner().clone());
    }
    column
        .values()
        .iter()
        .map(|value| (*value).into())
        .collect::<Vec<_>>()
        .into()
}

fn narrow<T>(
    data_type: &DataType,
    values: Vec<i64>,
    nulls: Option<NullBuffer>,
) -> Result<ArrayRef, EngineError>
where
    T: ArrowPrimitiveType<Native: TryFrom<i64> + Into<i64>>,
{
    let damaged = || EngineError::recovery(format!("operator state holds a value that is no {data_type}"));
    let values: ScalarBuffer<T::Native> = if size_of::<T::Native>() == size_of::<i64>() {
        ScalarBuffer::from(arrow::buffer::Buffer::from_vec(values))
    } else {
        let values: Result<Vec<_>, _> = values.into_iter().map(T::Native::try_from).collect();
        values.map_err(|_| damaged())?.into()
    };
    Ok(Arc::new(
        PrimitiveArray::<T>::new(values, nulls).with_data_type(data_type.clone()),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floats_keep_their_order_as_integers() {
        let ascending = [
            f64::NEG_INFINITY,
            -1.5,
            -1e-300,
            0.0,
            2.0,
            f64::INFINITY,
            f64::NAN,
        ];
        let mapped: Vec<i64> = ascending.iter().map(|value| i64_of_f64(*value)).collect();
        assert!(mapped.is_sorted_by(|left, right| left < right));
        assert_eq!(i64_of_f64(-0.0), i64_of_f64(0.0));
        assert_eq!(i64_of_f64(-f64::NAN), i64_of_f64(f64::NAN));
        for value in &ascending[..6] {
            assert!((f64_of_i64(i64_of_f64(*value)) - value).abs() < 1e-9 || value.is_infinite());
        }
    }

    #[test]
    fn columns_come_back_from_their_form() {
        let columns: Vec<ArrayRef> = vec![
            Arc::new(arrow::array::Int32Array::from(vec![Some(-4), None])),
            Arc::new(arrow::array::TimestampMicrosecondArray::from(vec![5, -5]).with_timezone("UTC")),
            Arc::new(BooleanArray::from(vec![Some(true), None])),
            Arc::new(arrow::array::Float32Array::from(vec![1.5, -2.5])),
        ];
        for column in columns {
            let Values::I64(values) = Values::of(&column).unwrap() else {
                panic!("not of this form")
            };
            let back = column_of_i64(column.data_type(), values.to_vec(), column.nulls().cloned()).unwrap();
            assert_eq!(&back, &column);
        }
        let text: ArrayRef = Arc::new(arrow::array::StringArray::from(vec![Some("a"), None, Some("bc")]));
        let Values::Bytes(values) = Values::of(&text).unwrap() else {
            panic!("not of this form")
        };
        let back = column_of_bytes(
            &DataType::Utf8,
            values.value_data().to_vec(),
            [1, 0, 2],
            text.nulls().cloned(),
        );
        assert_eq!(&back.unwrap(), &text);
        let lists: ArrayRef = Arc::new(arrow::array::ListArray::from_iter_primitive::<Int32Type, _, _>([
            Some(vec![Some(1), None]),
            None,
            Some(vec![]),
        ]));
        let Values::Bytes(keys) = Values::of(&lists).unwrap() else {
            panic!("not of this form")
        };
        let lengths: Vec<usize> = (0..3).map(|row| keys.value(row).len()).collect();
        let back = column_of_bytes(
            lists.data_type(),
            keys.value_data().to_vec(),
            lengths,
            lists.nulls().cloned(),
        );
        assert_eq!(&back.unwrap(), &lists);
        let damaged = column_of_bytes(&DataType::Utf8, vec![0xff], [1], None);
        assert!(damaged.is_err(), "text that is not UTF-8 is refused");
    }
}
