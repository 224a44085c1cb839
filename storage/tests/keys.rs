//! The order of encoded keys is the order of their values, and what was put is read back.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::cmp::Ordering;

use highwater_storage::{Direction, KeyOrder, KeyReader, KeyWriter, Nulls};
use proptest::prelude::*;

/// A value of any type that a key can hold.
#[derive(Debug, Clone, PartialEq)]
enum Value {
    Bool(bool),
    I8(i8),
    I16(i16),
    I32(i32),
    I64(i64),
    I128(i128),
    U8(u8),
    U16(u16),
    U32(u32),
    U64(u64),
    I256(i128, u128),
    F32(f32),
    F64(f64),
    Text(String),
    Bytes(Vec<u8>),
}

impl Value {
    fn put(&self, key: &mut KeyWriter<'_>) {
        match self {
            Self::Bool(value) => key.put_bool(*value),
            Self::I8(value) => key.put_i8(*value),
            Self::I16(value) => key.put_i16(*value),
            Self::I32(value) => key.put_i32(*value),
            Self::I64(value) => key.put_i64(*value),
            Self::I128(value) => key.put_i128(*value),
            Self::U8(value) => key.put_u8(*value),
            Self::U16(value) => key.put_u16(*value),
            Self::U32(value) => key.put_u32(*value),
            Self::U64(value) => key.put_u64(*value),
            Self::I256(high, low) => key.put_i256(i256(*high, *low)),
            Self::F32(value) => key.put_f32(*value),
            Self::F64(value) => key.put_f64(*value),
            Self::Text(value) => key.put_str(value),
            Self::Bytes(value) => key.put_bytes(value),
        }
    }

    /// Takes a value of the type of `self`.
    fn read(&self, key: &mut KeyReader<'_>) -> Option<Self> {
        match self {
            Self::Bool(_) => key.read_bool().unwrap().map(Self::Bool),
            Self::I8(_) => key.read_i8().unwrap().map(Self::I8),
            Self::I16(_) => key.read_i16().unwrap().map(Self::I16),
            Self::I32(_) => key.read_i32().unwrap().map(Self::I32),
            Self::I64(_) => key.read_i64().unwrap().map(Self::I64),
            Self::I128(_) => key.read_i128().unwrap().map(Self::I128),
            Self::U8(_) => key.read_u8().unwrap().map(Self::U8),
            Self::U16(_) => key.read_u16().unwrap().map(Self::U16),
            Self::U32(_) => key.read_u32().unwrap().map(Self::U32),
            Self::U64(_) => key.read_u64().unwrap().map(Self::U64),
            Self::I256(..) => key.read_i256().unwrap().map(|bytes| {
                let (high, low) = bytes.split_at(16);
                let high = i128::from_be_bytes(high.try_into().unwrap());
                Self::I256(high, u128::from_be_bytes(low.try_into().unwrap()))
            }),
            Self::F32(_) => key.read_f32().unwrap().map(Self::F32),
            Self::F64(_) => key.read_f64().unwrap().map(Self::F64),
            Self::Text(_) => key.read_string().unwrap().map(Self::Text),
            Self::Bytes(_) => key.read_bytes().unwrap().map(Self::Bytes),
        }
    }

    /// The order of Postgres between two values of one type.
    fn compare(&self, other: &Self) -> Ordering {
        match (self, other) {
            (Self::Bool(a), Self::Bool(b)) => a.cmp(b),
            (Self::I8(a), Self::I8(b)) => a.cmp(b),
            (Self::I16(a), Self::I16(b)) => a.cmp(b),
            (Self::I32(a), Self::I32(b)) => a.cmp(b),
            (Self::I64(a), Self::I64(b)) => a.cmp(b),
            (Self::I128(a), Self::I128(b)) => a.cmp(b),
            (Self::U8(a), Self::U8(b)) => a.cmp(b),
            (Self::U16(a), Self::U16(b)) => a.cmp(b),
            (Self::U32(a), Self::U32(b)) => a.cmp(b),
            (Self::U64(a), Self::U64(b)) => a.cmp(b),
            (Self::I256(a, low_a), Self::I256(b, low_b)) => (a, low_a).cmp(&(b, low_b)),
            (Self::F32(a), Self::F32(b)) => float_order(f64::from(*a), f64::from(*b)),
            (Self::F64(a), Self::F64(b)) => float_order(*a, *b),
            (Self::Text(a), Self::Text(b)) => a.cmp(b),
            (Self::Bytes(a), Self::Bytes(b)) => a.cmp(b),
            _ => panic!("values of different types are not compared"),
        }
    }
}

fn i256(high: i128, low: u128) -> [u8; 32] {
    let mut bytes = [0; 32];
    bytes[..16].copy_from_slice(&high.to_be_bytes());
    bytes[16..].copy_from_slice(&low.to_be_bytes());
    bytes
}

fn float_order(a: f64, b: f64) -> Ordering {
    a.partial_cmp(&b).unwrap_or_else(|| a.is_nan().cmp(&b.is_nan()))
}

fn compare_nullable(a: &Option<Value>, b: &Option<Value>, order: KeyOrder) -> Ordering {
    let null_first = match order.nulls {
        Nulls::First => Ordering::Less,
        Nulls::Last => Ordering::Greater,
    };
    match (a, b) {
        (None, None) => Ordering::Equal,
        (None, Some(_)) => null_first,
        (Some(_), None) => null_first.reverse(),
        (Some(a), Some(b)) => match order.direction {
            Direction::Ascending => a.compare(b),
            Direction::Descending => b.compare(a),
        },
    }
}

fn put(row: &[Option<Value>], orders: &[KeyOrder]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut key = KeyWriter::new(&mut bytes);
    for (value, order) in row.iter().zip(orders) {
        key.set_order(*order);
        match value {
            Some(value) => value.put(&mut key),
            None => key.put_null(),
        }
    }
    bytes
}

fn f64s() -> impl Strategy<Value = f64> {
    let special = vec![
        0.0,
        -0.0,
        1.0,
        -1.0,
        f64::NAN,
        -f64::NAN,
        f64::INFINITY,
        f64::NEG_INFINITY,
        5e-324,
    ];
    prop_oneof![any::<f64>(), prop::sample::select(special)]
}

fn bytes() -> impl Strategy<Value = Vec<u8>> {
    let awkward = prop::sample::select(vec![0u8, 1, 2, 97, 254, 255]);
    prop_oneof![any::<Vec<u8>>(), prop::collection::vec(awkward, 0..6)]
}

/// Two values of one type, close enough to each other that their order is often decided late.
fn pair() -> impl Strategy<Value = (Value, Value)> {
    fn two<T: Strategy + Clone>(one: T) -> impl Strategy<Value = (T::Value, T::Value)>
    where
        T::Value: Clone,
    {
        prop_oneof![
            (one.clone(), one.clone()),
            one.prop_map(|value| (value.clone(), value))
        ]
    }
    macro_rules! of {
        ($one:expr, $make:path) => {
            two($one).prop_map(|(a, b)| ($make(a), $make(b))).boxed()
        };
    }
    let floats = f64s().boxed();
    let singles = f64s().prop_map(|value| value as f32).boxed();
    prop_oneof![
        of!(any::<bool>(), Value::Bool),
        of!(any::<i8>(), Value::I8),
        of!(any::<i16>(), Value::I16),
        of!(any::<i32>(), Value::I32),
        of!(any::<i64>(), Value::I64),
        of!(any::<i128>(), Value::I128),
        of!(any::<u8>(), Value::U8),
        of!(any::<u16>(), Value::U16),
        of!(any::<u32>(), Value::U32),
        of!(any::<u64>(), Value::U64),
        two((-2i128..2, 0u128..3)).prop_map(|(a, b)| (Value::I256(a.0, a.1), Value::I256(b.0, b.1))),
        of!(singles, Value::F32),
        of!(floats, Value::F64),
        of!("[a-c\u{0}é]{0,4}".boxed(), Value::Text),
        of!(bytes().boxed(), Value::Bytes),
    ]
}

fn order() -> impl Strategy<Value = KeyOrder> {
    (any::<bool>(), any::<bool>()).prop_map(|(descending, first)| KeyOrder {
        direction: if descending {
            Direction::Descending
        } else {
            Direction::Ascending
        },
        nulls: if first { Nulls::First } else { Nulls::Last },
    })
}

/// One column of two rows: both values, either may be null, and the order of the column.
fn column() -> impl Strategy<Value = (Value, [bool; 2], Value, KeyOrder)> {
    let present = prop::bool::weighted(0.85);
    (pair(), [present, present], order()).prop_map(|((a, b), present, order)| (a, present, b, order))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4_000, ..ProptestConfig::default() })]

    #[test]
    fn bytes_sort_as_the_rows_do_and_rows_read_back(
        columns in prop::collection::vec(column(), 1..4),
    ) {
        let orders: Vec<_> = columns.iter().map(|(.., order)| *order).collect();
        let a: Vec<_> =
            columns.iter().map(|(a, present, ..)| present[0].then(|| a.clone())).collect();
        let b: Vec<_> =
            columns.iter().map(|(_, present, b, _)| present[1].then(|| b.clone())).collect();
        let (key_a, key_b) = (put(&a, &orders), put(&b, &orders));

        let expected = a
            .iter()
            .zip(&b)
            .zip(&orders)
            .map(|((a, b), order)| compare_nullable(a, b, *order))
            .find(|order| order.is_ne())
            .unwrap_or(Ordering::Equal);
        prop_assert_eq!(key_a.cmp(&key_b), expected);

        let mut reader = KeyReader::new(&key_a);
        for ((value, (of_type, ..)), order) in a.iter().zip(&columns).zip(&orders) {
            reader.set_order(*order);
            let read = of_type.read(&mut reader);
            prop_assert_eq!(compare_nullable(&read, value, *order), Ordering::Equal);
        }
        prop_assert!(reader.is_empty());
    }

    #[test]
    fn no_bytes_make_a_reader_panic(bytes: Vec<u8>, order in order()) {
        let mut reader = KeyReader::new(&bytes);
        reader.set_order(order);
        let _ = reader.clone().read_bool();
        let _ = reader.clone().read_i64();
        let _ = reader.clone().read_f64();
        let _ = reader.clone().read_string();
        let _ = reader.read_bytes();
    }
}

#[test]
fn the_bytes_of_the_encoding_do_not_change() {
    let mut bytes = Vec::new();
    let mut key = KeyWriter::new(&mut bytes);
    key.put_i16(-2);
    key.put_str("a\0b");
    key.put_null();
    key.set_order(KeyOrder::DESCENDING);
    key.put_bool(true);
    key.put_bytes(b"a");
    key.put_null();
    key.put_f32(1.5);
    assert_eq!(
        bytes,
        [
            1, 0x7f, 0xfe, // -2
            1, b'a', 0, 255, b'b', 0, 0,   // "a\0b"
            255, // null, last
            1, 254, // true, descending
            1, !b'a', 255, 255, // "a", descending
            0,   // null, first
            1, 0x40, 0x3f, 255, 255, // 1.5, descending
        ]
    );
}

#[test]
fn all_nans_and_both_zeros_have_one_key_each() {
    let encoded = |value: f64| {
        let mut bytes = Vec::new();
        KeyWriter::new(&mut bytes).put_f64(value);
        bytes
    };
    assert_eq!(encoded(f64::NAN), encoded(-f64::NAN));
    assert_eq!(encoded(f64::NAN), encoded(f64::from_bits(0x7ff0_0000_0000_0001)));
    assert_eq!(encoded(0.0), encoded(-0.0));
    assert!(encoded(f64::NAN) > encoded(f64::INFINITY));
}

#[test]
fn a_key_that_is_read_as_something_else_is_an_error() {
    let mut bytes = Vec::new();
    KeyWriter::new(&mut bytes).put_i16(7);
    assert!(KeyReader::new(&bytes).read_i64().is_err());
    assert!(KeyReader::new(&bytes).read_bool().is_err());
    assert!(KeyReader::new(&bytes).read_bytes().is_err());
    assert!(KeyReader::new(&[7, 1]).read_bool().is_err());
    assert!(KeyReader::new(&[]).read_bool().is_err());
}
