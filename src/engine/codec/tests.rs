//! Both formats: what goes in comes out, and keys sort as their values do.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, Float64Array, IntervalMonthDayNanoArray, make_comparator};
use arrow::compute::{SortOptions, concat};
use arrow::datatypes::{DataType, IntervalMonthDayNano, IntervalUnit};
use proptest::prelude::*;

use super::samples::{Random, column, types};
use super::{KeyCodec, RowCodec};

fn keys(types: &[DataType], columns: &[ArrayRef]) -> Vec<Vec<u8>> {
    let codec = KeyCodec::new(types).unwrap();
    let encoder = codec.encoder(columns).unwrap();
    let key = |row| {
        let mut key = Vec::new();
        encoder.append(row, &mut key);
        key
    };
    (0..columns[0].len()).map(key).collect()
}

fn rows(types: &[DataType], columns: &[ArrayRef]) -> Vec<Vec<u8>> {
    let codec = RowCodec::new(types).unwrap();
    let encoder = codec.encoder(columns).unwrap();
    let row = |row| {
        let mut bytes = Vec::new();
        encoder.append(row, &mut bytes);
        bytes
    };
    (0..columns[0].len()).map(row).collect()
}

/// Some types, and a column of each.
fn table() -> impl Strategy<Value = (Vec<DataType>, Vec<ArrayRef>)> {
    let types = prop::collection::vec(prop::sample::select(types()), 1..10);
    (types, any::<u64>(), 1_usize..20).prop_map(|(types, seed, rows)| {
        let mut random = Random(seed);
        let columns = types
            .iter()
            .map(|data_type| column(data_type, rows, &mut random))
            .collect();
        (types, columns)
    })
}

proptest! {
    #[test]
    fn rows_come_back_as_they_were((types, columns) in table()) {
        let codec = RowCodec::new(&types).unwrap();
        let mut decoder = codec.decoder(|_| true, 0);
        for row in rows(&types, &columns) {
            decoder.append(&row).unwrap();
        }
        for (decoded, column) in decoder.finish().unwrap().iter().zip(&columns) {
            prop_assert_eq!(decoded.as_ref().unwrap(), column);
        }
    }

    #[test]
    fn keys_come_back_as_they_were((types, columns) in table()) {
        let codec = KeyCodec::new(&types).unwrap();
        let mut decoder = codec.decoder(|_| true, 0);
        for key in keys(&types, &columns) {
            decoder.append(&key).unwrap();
        }
        for (decoded, column) in decoder.finish().unwrap().iter().zip(&columns) {
            prop_assert_eq!(decoded.as_ref().unwrap(), column);
        }
    }

    #[test]
    fn columns_that_are_not_wanted_are_passed_over((types, columns) in table(), wanted in any::<u16>()) {
        let wanted = |index: usize| wanted >> index & 1 == 1;
        let (key_codec, row_codec) = (KeyCodec::new(&types).unwrap(), RowCodec::new(&types).unwrap());
        let (mut key, mut row) = (key_codec.decoder(wanted, 0), row_codec.decoder(wanted, 0));
        for (key_bytes, row_bytes) in keys(&types, &columns).iter().zip(rows(&types, &columns)) {
            key.append(key_bytes).unwrap();
            row.append(&row_bytes).unwrap();
        }
        for decoded in [key.finish().unwrap(), row.finish().unwrap()] {
            for (index, (decoded, column)) in decoded.iter().zip(&columns).enumerate() {
                prop_assert_eq!(decoded.as_ref(), wanted(index).then_some(column));
            }
        }
    }

    #[test]
    fn a_slice_encodes_as_the_rows_that_it_shows((types, columns) in table()) {
        let from = columns[0].len() / 2;
        let slices: Vec<ArrayRef> =
            columns.iter().map(|column| column.slice(from, column.len() - from)).collect();
        if slices[0].is_empty() {
            return Ok(());
        }
        prop_assert_eq!(&keys(&types, &columns)[from..], &keys(&types, &slices)[..]);
        prop_assert_eq!(&rows(&types, &columns)[from..], &rows(&types, &slices)[..]);
    }

    #[test]
    fn keys_sort_as_arrow_sorts_their_values((types, columns) in table()) {
        let options = SortOptions { descending: false, nulls_first: false };
        for (data_type, column) in types.iter().zip(&columns) {
            if matches!(data_type, DataType::Interval(_)) {
                continue; // Arrow has no order of intervals that PostgreSQL would know.
            }
            let keys = keys(std::slice::from_ref(data_type), std::slice::from_ref(column));
            let compare = make_comparator(column, column, options).unwrap();
            for a in 0..column.len() {
                for b in 0..column.len() {
                    prop_assert_eq!(keys[a].cmp(&keys[b]), compare(a, b), "{} {:?} {} {}", data_type, column, a, b);
                }
            }
        }
    }

    #[test]
    fn cut_or_lengthened_rows_are_errors_and_never_panics((types, columns) in table(), at in any::<prop::sample::Index>()) {
        let (key_codec, row_codec) = (KeyCodec::new(&types).unwrap(), RowCodec::new(&types).unwrap());
        for wanted in [true, false] {
            let key = &keys(&types, &columns)[0];
            let row = &rows(&types, &columns)[0];
            let mut decoder = key_codec.decoder(|_| wanted, 0);
            prop_assert!(decoder.append(&key[..at.index(key.len())]).is_err());
            prop_assert!(decoder.append(&[&key[..], &[1]].concat()).is_err());
            let mut decoder = row_codec.decoder(|_| wanted, 0);
            prop_assert!(decoder.append(&row[..at.index(row.len())]).is_err());
            prop_assert!(decoder.append(&[&row[..], &[1]].concat()).is_err());
        }
    }

    #[test]
    fn any_bytes_decode_or_are_refused(bytes in prop::collection::vec(any::<u8>(), 0..40), types in prop::collection::vec(prop::sample::select(types()), 1..4)) {
        let (key_codec, row_codec) = (KeyCodec::new(&types).unwrap(), RowCodec::new(&types).unwrap());
        let mut decoder = key_codec.decoder(|_| true, 0);
        if decoder.append(&bytes).is_ok() {
            let _ = decoder.finish();
        }
        let mut decoder = row_codec.decoder(|_| true, 0);
        if decoder.append(&bytes).is_ok() {
            let _ = decoder.finish();
        }
    }
}

#[test]
fn intervals_sort_by_length_and_keep_their_parts() {
    let interval = |months, days, nanoseconds| IntervalMonthDayNano {
        months,
        days,
        nanoseconds,
    };
    let ascending = [
        interval(-1, 0, 0),
        interval(0, 0, -1),
        interval(0, 0, 0),
        interval(0, 0, 1),
        interval(0, 1, -1),
        interval(0, 0, 86_400_000_000_000),
        interval(0, 1, 0),
        interval(0, 30, 0),
        interval(1, 0, 0),
        interval(i32::MAX, i32::MAX, i64::MAX),
    ];
    let types = [DataType::Interval(IntervalUnit::MonthDayNano)];
    let column: ArrayRef = Arc::new(IntervalMonthDayNanoArray::from(ascending.to_vec()));

    let keys = keys(&types, std::slice::from_ref(&column));

    assert!(keys.is_sorted());
    let codec = KeyCodec::new(&types).unwrap();
    let mut decoder = codec.decoder(|_| true, 0);
    keys.iter().for_each(|key| decoder.append(key).unwrap());
    assert_eq!(decoder.finish().unwrap(), [Some(column)]);
}

#[test]
fn floats_that_postgres_calls_equal_have_one_key_and_rows_of_their_own() {
    let negative_nan = f64::from_bits(f64::NAN.to_bits() | 1 << 63);
    let column: ArrayRef = Arc::new(Float64Array::from(vec![0.0, -0.0, f64::NAN, negative_nan]));

    let keys = keys(&[DataType::Float64], std::slice::from_ref(&column));
    let rows = rows(&[DataType::Float64], &[column]);

    assert_eq!(keys[0], keys[1]);
    assert_eq!(keys[2], keys[3]);
    assert_ne!(rows[0], rows[1]);
    assert_ne!(rows[2], rows[3]);
}

#[test]
fn a_type_that_cannot_be_stored_is_named() {
    let error = RowCodec::new(&[DataType::Float16]).unwrap_err();

    assert_eq!(error.sqlstate, "0A000");
    assert_eq!(error.message, "a column of type Float16 cannot be stored");
}

#[test]
fn a_column_of_another_type_is_an_internal_error() {
    let codec = KeyCodec::new(&[DataType::Int64]).unwrap();
    let text = column(&DataType::Utf8, 1, &mut Random(0));

    assert_eq!(
        codec.encoder(std::slice::from_ref(&text)).err().unwrap().sqlstate,
        "XX000"
    );
    assert_eq!(codec.encoder(&[]).err().unwrap().sqlstate, "XX000");
    assert_eq!(
        codec
            .encoder(&[concat(&[&text, &text]).unwrap()])
            .err()
            .unwrap()
            .sqlstate,
        "XX000"
    );
}

#[test]
fn the_bytes_on_disk_stay_as_they_are() {
    let types = [DataType::Int64, DataType::Utf8, DataType::Boolean];
    let columns: [ArrayRef; 3] = [
        Arc::new(arrow::array::Int64Array::from(vec![-2])),
        Arc::new(arrow::array::StringArray::from(vec!["a\0"])),
        Arc::new(arrow::array::BooleanArray::from(vec![None])),
    ];

    assert_eq!(
        rows(&types, &columns)[0],
        b"\x04\xfe\xff\xff\xff\xff\xff\xff\xff\x02a\0"
    );
    assert_eq!(
        keys(&types, &columns)[0],
        b"\x01\x7f\xff\xff\xff\xff\xff\xff\xfe\x01a\0\xff\0\0\xff"
    );
    assert_eq!(RowCodec::new(&types).unwrap().signature(), "(i64,text,bool)");
}
