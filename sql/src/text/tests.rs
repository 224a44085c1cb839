//! Against what psql shows.

use std::sync::Arc;

use arrow::array::{
    BinaryArray, BooleanArray, Date32Array, Decimal128Array, DictionaryArray, DurationMicrosecondArray,
    FixedSizeListArray, Float32Array, Float64Array, Int16Array, Int32Array, Int64Array,
    IntervalMonthDayNanoArray, ListArray, MapArray, NullArray, StringArray, StringViewArray, StructArray,
    Time32SecondArray, Time64MicrosecondArray, TimestampMicrosecondArray, TimestampNanosecondArray,
    UInt64Array,
};
use arrow::buffer::OffsetBuffer;
use arrow::datatypes::{Field, Fields, Int32Type, IntervalMonthDayNano};

use super::*;

/// Writes all values; NULL as `None`.
fn texts(column: impl Array + 'static) -> Vec<Option<String>> {
    let column: ArrayRef = Arc::new(column);
    let text = ColumnText::new(&column);
    let write = |row| {
        let mut out = String::from("before ");
        let there = text.write(row, &mut out);
        let written = out.strip_prefix("before ").unwrap().to_owned();
        assert!(there || written.is_empty());
        there.then_some(written)
    };
    (0..column.len()).map(write).collect()
}

#[track_caller]
fn assert_texts(column: impl Array + 'static, expected: &[&str]) {
    let texts: Vec<_> = texts(column)
        .into_iter()
        .map(|text| text.unwrap_or("∅".to_owned()))
        .collect();
    assert_eq!(texts, expected);
}

#[test]
fn numbers_look_as_in_psql() {
    assert_texts(
        BooleanArray::from(vec![Some(true), Some(false), None]),
        &["t", "f", "∅"],
    );
    assert_texts(Int16Array::from(vec![i16::MIN, 0]), &["-32768", "0"]);
    assert_texts(
        Int64Array::from(vec![i64::MIN, i64::MAX]),
        &["-9223372036854775808", "9223372036854775807"],
    );
    assert_texts(UInt64Array::from(vec![u64::MAX]), &["18446744073709551615"]);
    assert_texts(NullArray::new(1), &["∅"]);
}

#[test]
fn numerics_keep_the_digits_of_their_scale() {
    let numeric = |values: Vec<i128>, scale| {
        Decimal128Array::from(values)
            .with_precision_and_scale(38, scale)
            .unwrap()
    };
    assert_texts(
        numeric(vec![0, 5, -5, 150, 12345, -12345], 2),
        &["0.00", "0.05", "-0.05", "1.50", "123.45", "-123.45"],
    );
    assert_texts(
        numeric(vec![0, -7, i128::MAX / 10], 0),
        &["0", "-7", "17014118346046923173168730371588410572"],
    );
    assert_texts(numeric(vec![0, 12], -2), &["0", "1200"]);
}

#[test]
fn floats_have_the_fewest_digits_that_keep_them() {
    assert_texts(
        Float64Array::from(vec![
            0.0,
            -0.0,
            1.0,
            0.1,
            1.5,
            100.0,
            1e14,
            123_456_789_012_345.0,
            1e15,
            1.25e20,
            0.0001,
            0.00001,
            -1.5e-7,
            0.1 + 0.2,
            f64::NAN,
            f64::INFINITY,
            f64::NEG_INFINITY,
            f64::MAX,
            5e-324,
            1234.5,
        ]),
        &[
            "0",
            "-0",
            "1",
            "0.1",
            "1.5",
            "100",
            "100000000000000",
            "123456789012345",
            "1e+15",
            "1.25e+20",
            "0.0001",
            "1e-05",
            "-1.5e-07",
            "0.30000000000000004",
            "NaN",
            "Infinity",
            "-Infinity",
            "1.7976931348623157e+308",
            "5e-324",
            "1234.5",
        ],
    );
    assert_texts(
        Float32Array::from(vec![0.1, 100_000.0, 1_000_000.0, 16_777_216.0, -3.5e-10]),
        &["0.1", "100000", "1e+06", "1.6777216e+07", "-3.5e-10"],
    );
}

#[test]
fn text_is_itself_and_bytes_are_hex() {
    assert_texts(
        StringArray::from(vec![Some(""), Some("a'b"), None]),
        &["", "a'b", "∅"],
    );
    assert_texts(
        StringViewArray::from(vec!["a text that is not inlined"]),
        &["a text that is not inlined"],
    );
    assert_texts(
        BinaryArray::from(vec![b"".as_slice(), b"\x00\xffA"]),
        &["\\x", "\\x00ff41"],
    );
    let dictionary: DictionaryArray<Int32Type> = vec![Some("a"), None, Some("a")].into_iter().collect();
    assert_texts(dictionary, &["a", "∅", "a"]);
}

#[test]
fn dates_and_times_look_as_in_psql() {
    assert_texts(
        Date32Array::from(vec![0, 19_782, -1, -719_162, -719_163, -735_160, 2_932_897]),
        &[
            "1970-01-01",
            "2024-02-29",
            "1969-12-31",
            "0001-01-01",
            "0001-12-31 BC",
            "0044-03-15 BC",
            "10000-01-01",
        ],
    );
    assert_texts(
        Time64MicrosecondArray::from(vec![0, 1_500_000, 86_399_999_999]),
        &["00:00:00", "00:00:01.5", "23:59:59.999999"],
    );
    assert_texts(Time32SecondArray::from(vec![61]), &["00:01:01"]);
}

#[test]
fn timestamps_look_as_in_psql() {
    let micros = vec![
        1_704_067_201_500_000,
        1_704_067_200_000_000,
        -1,
        -62_135_596_800_000_001,
    ];
    assert_texts(
        TimestampMicrosecondArray::from(micros.clone()),
        &[
            "2024-01-01 00:00:01.5",
            "2024-01-01 00:00:00",
            "1969-12-31 23:59:59.999999",
            "0001-12-31 23:59:59.999999 BC",
        ],
    );
    assert_texts(
        TimestampMicrosecondArray::from(micros).with_timezone("+00:00"),
        &[
            "2024-01-01 00:00:01.5+00",
            "2024-01-01 00:00:00+00",
            "1969-12-31 23:59:59.999999+00",
            "0001-12-31 23:59:59.999999+00 BC",
        ],
    );
    assert_texts(
        TimestampNanosecondArray::from(vec![1]),
        &["1970-01-01 00:00:00.000000001"],
    );
    assert_eq!(
        texts(TimestampMicrosecondArray::from(vec![i64::MIN, i64::MAX])).len(),
        2
    );
}

#[test]
fn intervals_look_as_in_psql() {
    const SECOND: i64 = 1_000_000_000;
    let interval = IntervalMonthDayNano::new;
    assert_texts(
        IntervalMonthDayNanoArray::from(vec![
            interval(0, 0, 0),
            interval(0, 0, 10 * SECOND),
            interval(0, 0, -(3 * 3600 + 62) * SECOND - SECOND / 2),
            interval(14, 3, 14_706 * SECOND + SECOND / 4),
            interval(1, 1, 0),
            interval(-14, 3, -14_706 * SECOND),
            interval(12, -1, 1_500_000),
            interval(0, 2, -SECOND),
            interval(0, 0, 100 * 3600 * SECOND),
        ]),
        &[
            "00:00:00",
            "00:00:10",
            "-03:01:02.5",
            "1 year 2 mons 3 days 04:05:06.25",
            "1 mon 1 day",
            "-1 years -2 mons +3 days -04:05:06",
            "1 year -1 days +00:00:00.0015",
            "2 days -00:00:01",
            "100:00:00",
        ],
    );
    assert_texts(
        DurationMicrosecondArray::from(vec![90_500_000, -90_500_000]),
        &["00:01:30.5", "-00:01:30.5"],
    );
}

#[test]
fn arrays_quote_what_could_be_misread() {
    let words = ["a", "", "null", "a b", "{", "q\"", "b\\", "x,y"];
    let words = StringArray::from(words.map(Some).into_iter().chain([None]).collect::<Vec<_>>());
    let field = |data_type: &DataType| Arc::new(Field::new("item", data_type.clone(), true));
    let list = ListArray::new(
        field(&DataType::Utf8),
        OffsetBuffer::from_lengths([9, 0]),
        Arc::new(words),
        None,
    );
    assert_texts(list, &[r#"{a,"","null","a b","{","q\"","b\\","x,y",NULL}"#, "{}"]);

    let numbers =
        ListArray::from_iter_primitive::<Int32Type, _, _>([Some(vec![Some(1), None]), Some(vec![]), None]);
    let nested = ListArray::new(
        field(numbers.data_type()),
        OffsetBuffer::from_lengths([3]),
        Arc::new(numbers),
        None,
    );
    assert_texts(nested, &["{{1,NULL},{},NULL}"]);

    let pairs = FixedSizeListArray::from_iter_primitive::<Int32Type, _, _>([Some(vec![Some(1), Some(2)])], 2);
    assert_texts(pairs, &["{1,2}"]);
}

#[test]
fn a_sliced_array_shows_its_own_rows() {
    let numbers =
        ListArray::from_iter_primitive::<Int32Type, _, _>([Some(vec![Some(1)]), Some(vec![Some(2)])]);
    assert_texts(numbers.slice(1, 1), &["{2}"]);
}

#[test]
fn composite_values_quote_what_could_be_misread_and_leave_null_empty() {
    let fields = Fields::from(vec![
        Field::new("a", DataType::Int32, true),
        Field::new("b", DataType::Utf8, true),
    ]);
    let structs = StructArray::new(
        fields,
        vec![
            Arc::new(Int32Array::from(vec![Some(1), None, Some(2)])),
            Arc::new(StringArray::from(vec![
                Some("x"),
                Some(""),
                Some("say \"hi\" \\"),
            ])),
        ],
        None,
    );
    assert_texts(structs.clone(), &["(1,x)", "(,\"\")", r#"(2,"say ""hi"" \\")"#]);

    let field = Arc::new(Field::new("item", structs.data_type().clone(), true));
    let list = ListArray::new(field, OffsetBuffer::from_lengths([1, 2]), Arc::new(structs), None);
    assert_texts(list.slice(0, 1), &[r#"{"(1,x)"}"#]);
}

#[test]
fn a_type_that_postgres_does_not_have_is_shown_as_arrow_shows_it() {
    let map = MapArray::new_from_strings(["k"].into_iter(), &Int32Array::from(vec![1]), &[0, 1]).unwrap();
    assert_texts(map, &["{k: 1}"]);
}
