//! Values of every type, in both directions and both formats.

use std::error::Error;

use bytes::{BufMut as _, BytesMut};
use chrono::{DateTime, NaiveDate, NaiveDateTime, NaiveTime, Utc};
use serde_json::{Value, json};
use tokio_postgres::Client;
use tokio_postgres::types::{FromSql, IsNull, ToSql, Type, to_sql_checked};

use super::{Served, lines, told};

/// The binary form of a value, as it is.
#[derive(Debug, Clone, PartialEq)]
struct Raw(Vec<u8>);

impl ToSql for Raw {
    fn to_sql(&self, _: &Type, out: &mut BytesMut) -> Result<IsNull, Box<dyn Error + Sync + Send>> {
        out.put_slice(&self.0);
        Ok(IsNull::No)
    }

    fn accepts(_: &Type) -> bool {
        true
    }

    to_sql_checked!();
}

impl FromSql<'_> for Raw {
    fn from_sql(_: &Type, raw: &[u8]) -> Result<Self, Box<dyn Error + Sync + Send>> {
        Ok(Self(raw.to_vec()))
    }

    fn accepts(_: &Type) -> bool {
        true
    }
}

/// Sends values as a parameter of a type, and expects them to come back, and their text to be what PostgreSQL writes.
async fn goes_round<T>(client: &Client, sql_type: &str, values: &[(T, &str)])
where
    T: ToSql + Sync + PartialEq + std::fmt::Debug + for<'a> FromSql<'a>,
{
    let sql = format!("SELECT $1::{sql_type}, ($1::{sql_type})::varchar");
    for (value, text) in values {
        let row = client.query_one(&sql, &[value]).await;
        let row = row.unwrap_or_else(|error| panic!("{sql_type} {value:?}: {error:?}"));
        assert_eq!(row.get::<_, T>(0), *value, "{sql_type}");
        assert_eq!(row.get::<_, &str>(1), *text, "{sql_type}");
        let quoted = text.replace('\'', "''");
        let shown = lines(client, &format!("SELECT '{quoted}'::{sql_type}")).await;
        let expected = match (sql_type, *text) {
            ("boolean", "true") => "t",
            ("boolean", "false") => "f",
            (_, text) => text,
        };
        assert_eq!(shown, [expected], "{sql_type}");
    }
    let null = client.query_one(&sql, &[&None::<T>]).await.unwrap();
    assert_eq!(null.get::<_, Option<T>>(0), None);
    assert_eq!(null.get::<_, Option<&str>>(1), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn numbers_and_truth_values_go_round() {
    let served = Served::start().await;
    let client = served.connect().await;

    goes_round(&client, "boolean", &[(true, "true"), (false, "false")]).await;
    goes_round(&client, "smallint", &[(i16::MIN, "-32768"), (7, "7")]).await;
    goes_round(&client, "int", &[(i32::MIN, "-2147483648"), (7, "7")]).await;
    goes_round(
        &client,
        "bigint",
        &[
            (i64::MIN, "-9223372036854775808"),
            (i64::MAX, "9223372036854775807"),
        ],
    )
    .await;
    goes_round(
        &client,
        "real",
        &[
            (0.1f32, "0.1"),
            (-1.5e30, "-1.5e+30"),
            (f32::INFINITY, "Infinity"),
        ],
    )
    .await;
    goes_round(
        &client,
        "double precision",
        &[
            (0.1f64, "0.1"),
            (1e300, "1e+300"),
            (-123.456, "-123.456"),
            (f64::NEG_INFINITY, "-Infinity"),
        ],
    )
    .await;
    let row = client
        .query_one("SELECT $1::double precision", &[&f64::NAN])
        .await
        .unwrap();
    assert!(row.get::<_, f64>(0).is_nan());
    served.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn texts_and_bytes_go_round() {
    let served = Served::start().await;
    let client = served.connect().await;

    let texts = ["", "a", "it's", "\\x", "äöü €", "line\nbreak", "$1"];
    goes_round(&client, "varchar", &texts.map(|text| (text.to_owned(), text))).await;
    goes_round(&client, "text", &texts.map(|text| (text.to_owned(), text))).await;
    goes_round(
        &client,
        "bytea",
        &[(vec![], "\\x"), (vec![0u8, 255, b'\''], "\\x00ff27")],
    )
    .await;
    let jsonb = [
        (
            json!({"b": [1, 2.5, null], "a": "x\"y"}),
            r#"{"a": "x\"y", "b": [1, 2.5, null]}"#,
        ),
        (json!(1), "1"),
        (Value::Null, "null"),
    ];
    goes_round(&client, "jsonb", &jsonb).await;
    served.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn times_go_round() {
    let served = Served::start().await;
    let client = served.connect().await;

    let date = |y, m, d| NaiveDate::from_ymd_opt(y, m, d).unwrap();
    goes_round(
        &client,
        "date",
        &[
            (date(2000, 1, 1), "2000-01-01"),
            (date(1969, 12, 31), "1969-12-31"),
        ],
    )
    .await;
    let time = |h, m, s, us| NaiveTime::from_hms_micro_opt(h, m, s, us).unwrap();
    goes_round(
        &client,
        "time",
        &[
            (time(0, 0, 0, 0), "00:00:00"),
            (time(23, 59, 59, 999_999), "23:59:59.999999"),
        ],
    )
    .await;
    let stamp: NaiveDateTime = date(2015, 7, 15).and_time(time(1, 2, 3, 456_000));
    goes_round(&client, "timestamp", &[(stamp, "2015-07-15 01:02:03.456")]).await;
    let instant: DateTime<Utc> = stamp.and_utc();
    goes_round(&client, "timestamptz", &[(instant, "2015-07-15 01:02:03.456+00")]).await;

    // Microseconds, days, months.
    let interval = |us: i64, days: i32, months: i32| {
        Raw([&us.to_be_bytes()[..], &days.to_be_bytes(), &months.to_be_bytes()].concat())
    };
    goes_round(
        &client,
        "interval",
        &[
            (interval(0, 0, 0), "00:00:00"),
            (interval(3_661_500_000, 2, 14), "1 year 2 mons 2 days 01:01:01.5"),
            (interval(-1_000_000, 0, -1), "-1 mons -00:00:01"),
        ],
    )
    .await;
    served.end().await;
}

/// The binary form of a NUMERIC, as `numeric_send` of PostgreSQL 15 gives it.
fn numeric(digits: &[i16], weight: i16, sign: u16, scale: i16) -> Raw {
    let words = [digits.len() as i16, weight, sign as i16, scale];
    Raw(words
        .iter()
        .chain(digits)
        .flat_map(|word| word.to_be_bytes())
        .collect())
}

#[tokio::test(flavor = "multi_thread")]
async fn numerics_go_round_with_their_digits() {
    let served = Served::start().await;
    let client = served.connect().await;

    goes_round(
        &client,
        "numeric(20,4)",
        &[
            (numeric(&[1, 2345, 6789], 1, 0, 4), "12345.6789"),
            (numeric(&[1], 0, 0x4000, 4), "-1.0000"),
            (numeric(&[], 0, 0, 4), "0.0000"),
            (numeric(&[5], -1, 0, 4), "0.0005"),
        ],
    )
    .await;
    let row = client
        .query_one("SELECT $1::numeric(10,2)", &[&numeric(&[1, 2350], 0, 0, 3)])
        .await
        .unwrap();
    assert_eq!(
        row.get::<_, Raw>(0),
        numeric(&[1, 2400], 0, 0, 2),
        "1.235 is rounded to 1.24"
    );
    client
        .simple_query("CREATE TABLE n (v NUMERIC(10, 2))")
        .await
        .unwrap();
    client
        .execute("INSERT INTO n VALUES ($1)", &[&numeric(&[7, 1000], 0, 0, 1)])
        .await
        .unwrap();
    let rows = client
        .query("SELECT v FROM n WHERE v > $1", &[&numeric(&[7, 990], 0, 0, 3)])
        .await
        .unwrap();
    assert_eq!(
        rows.len(),
        1,
        "a parameter keeps its digits: 7.10 is more than 7.099"
    );
    served.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn arrays_go_round() {
    let served = Served::start().await;
    let client = served.connect().await;

    let row = client
        .query_one(
            "SELECT $1::int[], $1::int[], $2::varchar[], $3::bigint[]",
            &[
                &vec![Some(1), None, Some(3)],
                &vec![Some("a b"), None, Some("NULL"), Some("q\"\\"), Some("")],
                &Vec::<i64>::new(),
            ],
        )
        .await
        .unwrap();
    assert_eq!(row.get::<_, Vec<Option<i32>>>(0), [Some(1), None, Some(3)]);
    assert_eq!(row.get::<_, Vec<Option<i32>>>(1), [Some(1), None, Some(3)]);
    let texts: Vec<Option<&str>> = row.get(2);
    assert_eq!(texts, [Some("a b"), None, Some("NULL"), Some("q\"\\"), Some("")]);
    assert_eq!(row.get::<_, Vec<i64>>(3), Vec::<i64>::new());
    assert_eq!(row.columns()[0].type_(), &Type::INT4_ARRAY);
    assert_eq!(row.columns()[2].type_(), &Type::VARCHAR_ARRAY);
    let (times, truths, nothing) = (vec![DateTime::<Utc>::UNIX_EPOCH], vec![true, false], None::<Raw>);
    let sql = "SELECT $1::timestamptz[], $2::boolean[], $3::numeric[]";
    let row = client.query_one(sql, &[&times, &truths, &nothing]).await.unwrap();
    assert_eq!(row.get::<_, Vec<DateTime<Utc>>>(0), [DateTime::<Utc>::UNIX_EPOCH]);
    assert_eq!(row.get::<_, Vec<bool>>(1), [true, false]);
    assert_eq!(row.get::<_, Option<Raw>>(2), None);
    served.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn all_types_stand_in_one_row_of_a_table() {
    let served = Served::start().await;
    let client = served.connect().await;
    client
        .simple_query(
            "CREATE TABLE t (k BIGINT PRIMARY KEY, b BOOLEAN, i SMALLINT, r REAL, d DOUBLE PRECISION, n NUMERIC, v VARCHAR,
             y BYTEA, e DATE, m TIME, s TIMESTAMP, z TIMESTAMPTZ, l INTERVAL, j JSONB, a INT[])",
        )
        .await
        .unwrap();

    let nulls = "INSERT INTO t (k) VALUES ($1)";
    client.execute(nulls, &[&1i64]).await.unwrap();
    let insert = client
        .prepare("INSERT INTO t VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15)")
        .await
        .unwrap();
    let day = NaiveDate::from_ymd_opt(2024, 2, 29).unwrap();
    let noon = NaiveTime::from_hms_opt(12, 0, 0).unwrap();
    let stamp = day.and_time(noon);
    let hour = Raw([&3_600_000_000i64.to_be_bytes()[..], &[0; 8]].concat());
    let values: [&(dyn ToSql + Sync); 15] = [
        &2i64,
        &true,
        &3i16,
        &1.5f32,
        &2.5f64,
        &numeric(&[12, 5000], 0, 0, 1),
        &"text",
        &&b"bytes"[..],
        &day,
        &noon,
        &stamp,
        &stamp.and_utc(),
        &hour,
        &json!([1]),
        &vec![1, 2],
    ];
    client.execute(&insert, &values).await.unwrap();
    let rows = client.query("SELECT * FROM t ORDER BY k", &[]).await.unwrap();
    for at in 1..15 {
        assert_eq!(rows[0].get::<_, Option<Raw>>(at), None, "{at}");
        assert!(rows[1].get::<_, Option<Raw>>(at).is_some(), "{at}");
    }
    assert_eq!(rows[1].get::<_, NaiveDateTime>(10), stamp);
    let expected = "2|t|3|1.5|2.5|12.5000000000000000|text|\\x6279746573|2024-02-29|12:00:00|2024-02-29 12:00:00|\
                    2024-02-29 12:00:00+00|01:00:00|[1]|{1,2}";
    assert_eq!(lines(&client, "SELECT * FROM t WHERE k = 2").await, [expected]);
    served.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_value_of_its_type_is_refused() {
    let served = Served::start().await;
    let client = served.connect().await;

    let error = client
        .query("SELECT $1::int", &[&Raw(vec![1, 2, 3])])
        .await
        .unwrap_err();
    assert_eq!(told(&error).0, "22P03");
    let error = client
        .query("SELECT $1::varchar", &[&Raw(vec![0xff])])
        .await
        .unwrap_err();
    assert_eq!(told(&error).0, "22021");
    let error = client
        .query("SELECT $1::jsonb", &[&Raw(b"\x01{".to_vec())])
        .await
        .unwrap_err();
    assert_eq!(told(&error).0, "22P02");
    assert_eq!(lines(&client, "SELECT 1").await, ["1"]);
    served.end().await;
}
