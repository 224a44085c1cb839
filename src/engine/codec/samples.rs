//! Random columns of every type that is stored, from a seed.

use std::sync::Arc;

use arrow::array::{
    ArrayRef, BinaryArray, BooleanArray, Decimal128Array, Float32Array, Float64Array, Int16Array, Int32Array,
    Int64Array, IntervalMonthDayNanoArray, ListArray, NullArray, PrimitiveArray, StringArray, StructArray,
    UInt64Array,
};
use arrow::buffer::{NullBuffer, OffsetBuffer};
use arrow::compute::cast;
use arrow::datatypes::{
    DataType, Date32Type, Field, Fields, IntervalMonthDayNano, IntervalUnit, Time64MicrosecondType, TimeUnit,
    TimestampMicrosecondType,
};

/// One type of each sort that the dialect has, nested ones included.
pub(crate) fn types() -> Vec<DataType> {
    let list = |element| DataType::List(Arc::new(Field::new("item", element, true)));
    let fields = Fields::from(vec![
        Field::new("a", DataType::Int64, true),
        Field::new("b", DataType::Utf8, true),
        Field::new("c", list(DataType::Float64), true),
    ]);
    vec![
        DataType::Null,
        DataType::Boolean,
        DataType::Int16,
        DataType::Int32,
        DataType::Int64,
        DataType::UInt64,
        DataType::Float32,
        DataType::Float64,
        DataType::Decimal128(38, 6),
        DataType::Utf8,
        DataType::Utf8View,
        DataType::LargeUtf8,
        DataType::Binary,
        DataType::Date32,
        DataType::Time64(TimeUnit::Microsecond),
        DataType::Timestamp(TimeUnit::Microsecond, None),
        DataType::Timestamp(TimeUnit::Microsecond, Some("+00:00".into())),
        DataType::Interval(IntervalUnit::MonthDayNano),
        list(DataType::Int32),
        list(list(DataType::Utf8)),
        DataType::Struct(fields.clone()),
        list(DataType::Struct(fields)),
    ]
}

/// A small generator (SplitMix64), so that a column follows from a seed that a failed test prints.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    /// Small numbers, edges and any.
    fn integer(&mut self) -> i64 {
        match self.below(4) {
            0 => self.below(5) as i64 - 2,
            1 => [i64::MIN, i64::MAX, 0, i64::from(i32::MIN), i64::from(i32::MAX)][self.below(5) as usize],
            _ => self.next() as i64,
        }
    }

    fn float(&mut self) -> f64 {
        match self.below(3) {
            0 => [
                0.0,
                -1.5,
                f64::INFINITY,
                f64::NEG_INFINITY,
                f64::NAN,
                f64::MIN_POSITIVE,
            ][self.below(6) as usize],
            _ => self.integer() as f64 / 3.0,
        }
    }

    fn bytes(&mut self) -> Vec<u8> {
        (0..self.below(6))
            .map(|_| [0, 1, b'a', b'b', 255][self.below(5) as usize])
            .collect()
    }

    fn text(&mut self) -> String {
        (0..self.below(6))
            .map(|_| ['\0', 'a', 'b', 'é', '水'][self.below(5) as usize])
            .collect()
    }

    fn interval(&mut self) -> IntervalMonthDayNano {
        IntervalMonthDayNano {
            months: self.integer() as i32,
            days: self.integer() as i32,
            nanoseconds: self.integer(),
        }
    }

    fn option<T>(&mut self, value: impl FnOnce(&mut Self) -> T) -> Option<T> {
        (self.below(5) > 0).then(|| value(self))
    }
}

/// A column of `rows` random values, a fifth of them null.
pub(crate) fn column(data_type: &DataType, rows: usize, random: &mut Random) -> ArrayRef {
    macro_rules! column {
        ($array:ty, $value:expr) => {
            Arc::new((0..rows).map(|_| random.option($value)).collect::<$array>())
        };
    }
    match data_type {
        DataType::Null => Arc::new(NullArray::new(rows)),
        DataType::Boolean => column!(BooleanArray, |random| random.below(2) == 1),
        DataType::Int16 => column!(Int16Array, |random| random.integer() as i16),
        DataType::Int32 => column!(Int32Array, |random| random.integer() as i32),
        DataType::Int64 => column!(Int64Array, |random| random.integer()),
        DataType::UInt64 => column!(UInt64Array, |random| random.integer() as u64),
        DataType::Float32 => column!(Float32Array, |random| random.float() as f32),
        DataType::Float64 => column!(Float64Array, |random| random.float()),
        DataType::Decimal128(..) => {
            let values: Decimal128Array = (0..rows)
                .map(|_| random.option(|random| i128::from(random.integer()) * 1_000_003))
                .collect();
            Arc::new(values.with_data_type(data_type.clone()))
        }
        DataType::Utf8 => column!(StringArray, |random| random.text()),
        DataType::Binary => column!(BinaryArray, |random| random.bytes()),
        DataType::Date32 => column!(PrimitiveArray<Date32Type>, |random| random.integer() as i32),
        DataType::Time64(_) => {
            column!(
                PrimitiveArray<Time64MicrosecondType>,
                |random| random.below(86_400_000_000) as i64
            )
        }
        DataType::Timestamp(..) => {
            let values: PrimitiveArray<TimestampMicrosecondType> =
                (0..rows).map(|_| random.option(Random::integer)).collect();
            Arc::new(values.with_data_type(data_type.clone()))
        }
        DataType::Interval(_) => column!(IntervalMonthDayNanoArray, |random| random.interval()),
        DataType::List(element) => {
            let lengths: Vec<usize> = (0..rows).map(|_| random.below(4) as usize).collect();
            let elements = column(element.data_type(), lengths.iter().sum(), random);
            let offsets = OffsetBuffer::from_lengths(lengths);
            Arc::new(ListArray::new(
                Arc::clone(element),
                offsets,
                elements,
                nulls(rows, random),
            ))
        }
        DataType::Struct(fields) => {
            let columns = fields
                .iter()
                .map(|field| column(field.data_type(), rows, random))
                .collect();
            Arc::new(StructArray::new(fields.clone(), columns, nulls(rows, random)))
        }
        DataType::Utf8View | DataType::LargeUtf8 => {
            cast(&column(&DataType::Utf8, rows, random), data_type).expect("text has three forms")
        }
        other => panic!("no samples of {other}"),
    }
}

fn nulls(rows: usize, random: &mut Random) -> Option<NullBuffer> {
    Some(NullBuffer::from(
        (0..rows).map(|_| random.below(5) > 0).collect::<Vec<_>>(),
    ))
}
