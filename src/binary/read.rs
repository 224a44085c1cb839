//! PostgreSQL's binary format to PostgreSQL's text of values.

use std::fmt::Write as _;
use std::sync::Arc;

use arrow::array::{
    ArrayRef, Date32Array, IntervalMonthDayNanoArray, Time64MicrosecondArray, TimestampMicrosecondArray,
};
use arrow::datatypes::IntervalMonthDayNano;

use super::{DAYS_TO_2000, MICROS_TO_2000};
use crate::sql::oids::{element_of, oid};
use crate::text::ColumnText;
use crate::{Error, Result};

/// The most dimensions of an array, as in PostgreSQL.
const DIMENSIONS_MAX: usize = 6;

/// PostgreSQL's text of a value of the type `oid` that is sent as binary.
///
/// # Errors
/// Bytes that are no value of the type, a type that has no binary format here.
pub fn text_of(oid: u32, bytes: &[u8]) -> Result<String> {
    if let Some(element) = element_of(oid) {
        return array(element, bytes);
    }
    Ok(match oid {
        oid::BOOL => match take::<1>(bytes)? {
            [0] => "f".to_owned(),
            _ => "t".to_owned(),
        },
        oid::INT2 => i16::from_be_bytes(take(bytes)?).to_string(),
        oid::INT4 => i32::from_be_bytes(take(bytes)?).to_string(),
        oid::INT8 => i64::from_be_bytes(take(bytes)?).to_string(),
        oid::OID => u32::from_be_bytes(take(bytes)?).to_string(),
        oid::FLOAT4 => float(f64::from(f32::from_be_bytes(take(bytes)?)), || {
            f32::from_be_bytes(take(bytes).unwrap_or_default()).to_string()
        }),
        oid::FLOAT8 => {
            let value = f64::from_be_bytes(take(bytes)?);
            float(value, || format!("{value:e}"))
        }
        oid::NUMERIC => numeric(bytes)?,
        oid::BYTEA => hex(bytes),
        oid::DATE => {
            let days = i32::from_be_bytes(take(bytes)?).checked_add(DAYS_TO_2000);
            written(Arc::new(Date32Array::from(vec![days.ok_or_else(malformed)?])))
        }
        oid::TIME => written(Arc::new(Time64MicrosecondArray::from(vec![i64::from_be_bytes(
            take(bytes)?,
        )]))),
        oid::TIMESTAMP | oid::TIMESTAMPTZ => {
            let micros = i64::from_be_bytes(take(bytes)?).checked_add(MICROS_TO_2000);
            let micros = TimestampMicrosecondArray::from(vec![micros.ok_or_else(malformed)?]);
            let zone = (oid == oid::TIMESTAMPTZ).then(|| Arc::from("UTC"));
            written(Arc::new(micros.with_timezone_opt::<Arc<str>>(zone)))
        }
        oid::INTERVAL => interval(bytes)?,
        oid::UUID => uuid(take(bytes)?),
        oid::JSONB => match bytes.split_first() {
            Some((1, document)) => utf8(document)?,
            _ => return Err(malformed()),
        },
        oid::TEXT | oid::VARCHAR | oid::BPCHAR | oid::NAME | oid::CHAR | oid::JSON | oid::UNKNOWN | 0 => {
            utf8(bytes)?
        }
        other => {
            let message = format!("values of type {other} have no binary format");
            return Err(Error::new("42883", message).with_hint("Send it as text."));
        }
    })
}

/// A text that a client sends.
///
/// # Errors
/// Bytes that are no UTF-8.
pub fn utf8(bytes: &[u8]) -> Result<String> {
    let text = std::str::from_utf8(bytes)
        .map_err(|_| Error::new("22021", "invalid byte sequence for encoding \"UTF8\""))?;
    if text.contains('\0') {
        return Err(Error::new(
            "22021",
            "invalid byte sequence for encoding \"UTF8\": 0x00",
        ));
    }
    Ok(text.to_owned())
}

fn malformed() -> Error {
    Error::new("22P03", "incorrect binary data format")
}

fn take<const N: usize>(bytes: &[u8]) -> Result<[u8; N]> {
    bytes.try_into().map_err(|_| malformed())
}

/// A value as it is written.
fn written(array: ArrayRef) -> String {
    let mut text = String::new();
    ColumnText::new(&array).write(0, &mut text);
    text
}

fn float(value: f64, finite: impl FnOnce() -> String) -> String {
    if value.is_nan() {
        "NaN".to_owned()
    } else if value.is_infinite() {
        if value > 0.0 { "Infinity" } else { "-Infinity" }.to_owned()
    } else {
        finite()
    }
}

fn hex(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(2 + 2 * bytes.len());
    text.push_str("\\x");
    for byte in bytes {
        // A string takes what is written to it.
        let _ = write!(text, "{byte:02x}");
    }
    text
}

fn uuid(bytes: [u8; 16]) -> String {
    let digits = hex(&bytes);
    let digits = &digits[2..];
    let parts = [
        &digits[..8],
        &digits[8..12],
        &digits[12..16],
        &digits[16..20],
        &digits[20..],
    ];
    parts.join("-")
}

fn interval(bytes: &[u8]) -> Result<String> {
    let bytes = take::<16>(bytes)?;
    let micros = i64::from_be_bytes(take(&bytes[..8])?);
    let days = i32::from_be_bytes(take(&bytes[8..12])?);
    let months = i32::from_be_bytes(take(&bytes[12..])?);
    let nanos = micros.checked_mul(1_000).ok_or_else(malformed)?;
    let value = IntervalMonthDayNano::new(months, days, nanos);
    Ok(written(Arc::new(IntervalMonthDayNanoArray::from(vec![value]))))
}

/// Reads big-endian numbers one after another.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn bytes(&mut self, count: usize) -> Result<&'a [u8]> {
        if count > self.0.len() {
            return Err(malformed());
        }
        let (taken, rest) = self.0.split_at(count);
        self.0 = rest;
        Ok(taken)
    }

    fn i16(&mut self) -> Result<i16> {
        Ok(i16::from_be_bytes(take(self.bytes(2)?)?))
    }

    fn i32(&mut self) -> Result<i32> {
        Ok(i32::from_be_bytes(take(self.bytes(4)?)?))
    }
}

fn numeric(bytes: &[u8]) -> Result<String> {
    let mut reader = Reader(bytes);
    let count = usize::try_from(reader.i16()?).map_err(|_| malformed())?;
    let weight = i32::from(reader.i16()?);
    let sign = reader.i16()? as u16;
    let scale = usize::try_from(reader.i16()?).map_err(|_| malformed())?;
    let special = match sign {
        0 | 0x4000 => None,
        0xC000 => Some("NaN"),
        0xD000 => Some("Infinity"),
        0xF000 => Some("-Infinity"),
        _ => return Err(malformed()),
    };
    if let Some(special) = special {
        return Ok(special.to_owned());
    }
    let mut digits = Vec::with_capacity(count);
    for _ in 0..count {
        let digit = reader.i16()?;
        if !(0..10_000).contains(&digit) {
            return Err(malformed());
        }
        digits.push(digit);
    }
    let digit = |place: i32| {
        let at = usize::try_from(weight - place).ok();
        at.and_then(|at| digits.get(at)).copied().unwrap_or(0)
    };
    let mut text = String::new();
    if sign == 0x4000 {
        text.push('-');
    }
    if weight < 0 {
        text.push('0');
    }
    for place in (0..=weight).rev() {
        let _ = match place == weight {
            true => write!(text, "{}", digit(place)),
            false => write!(text, "{:04}", digit(place)),
        };
    }
    if scale > 0 {
        text.push('.');
        let start = text.len();
        let mut place = -1;
        while text.len() - start < scale {
            let _ = write!(text, "{:04}", digit(place));
            place -= 1;
        }
        text.truncate(start + scale);
    }
    Ok(text)
}

/// An array as `{1,NULL,"a b"}`.
fn array(element: u32, bytes: &[u8]) -> Result<String> {
    let mut reader = Reader(bytes);
    let dimensions = usize::try_from(reader.i32()?).map_err(|_| malformed())?;
    let _has_nulls = reader.i32()?;
    let sent = reader.i32()? as u32;
    // What is sent knows best what it is.
    let element = if sent == 0 { element } else { sent };
    if dimensions == 0 {
        return Ok("{}".to_owned());
    }
    if dimensions > DIMENSIONS_MAX {
        return Err(malformed());
    }
    let mut lengths = Vec::with_capacity(dimensions);
    for _ in 0..dimensions {
        lengths.push(usize::try_from(reader.i32()?).map_err(|_| malformed())?);
        let _lower_bound = reader.i32()?;
    }
    if lengths.contains(&0) {
        return Ok("{}".to_owned());
    }
    // Each element has a length of four bytes at least: there are as many as were sent.
    let elements = lengths
        .iter()
        .try_fold(1usize, |product, length| product.checked_mul(*length));
    if elements.is_none_or(|elements| elements > reader.0.len() / 4) {
        return Err(malformed());
    }
    let mut text = String::new();
    level(element, &lengths, &mut reader, &mut text)?;
    Ok(text)
}

/// Writes the arrays of one dimension; there are few of them.
fn level(element: u32, lengths: &[usize], reader: &mut Reader<'_>, text: &mut String) -> Result<()> {
    let Some((length, inner)) = lengths.split_first() else {
        return Ok(());
    };
    text.push('{');
    for at in 0..*length {
        if at > 0 {
            text.push(',');
        }
        if !inner.is_empty() {
            level(element, inner, reader, text)?;
            continue;
        }
        match usize::try_from(reader.i32()?) {
            Err(_) => text.push_str("NULL"),
            Ok(count) => {
                let value = text_of(element, reader.bytes(count)?)?;
                text.push('"');
                for character in value.chars() {
                    if matches!(character, '"' | '\\') {
                        text.push('\\');
                    }
                    text.push(character);
                }
                text.push('"');
            }
        }
    }
    text.push('}');
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_array_has_no_more_elements_than_were_sent() {
        let send = |words: &[i32]| {
            words
                .iter()
                .flat_map(|word| word.to_be_bytes())
                .collect::<Vec<_>>()
        };
        let int4 = i32::try_from(oid::INT4).unwrap();
        let dimensions = |lengths: &[i32], rest: &[i32]| {
            let mut words = vec![i32::try_from(lengths.len()).unwrap(), 0, int4];
            words.extend(lengths.iter().flat_map(|length| [*length, 1]));
            words.extend(rest);
            array(oid::INT4, &send(&words))
        };
        assert_eq!(dimensions(&[2], &[4, 7, -1]).unwrap(), "{\"7\",NULL}");
        assert_eq!(dimensions(&[0], &[]).unwrap(), "{}");
        assert_eq!(dimensions(&[i32::MAX, 0], &[]).unwrap(), "{}");
        assert!(dimensions(&[i32::MAX, i32::MAX, i32::MAX], &[4, 7]).is_err());
        assert!(dimensions(&[2], &[4, 7]).is_err());
        assert!(dimensions(&[-1], &[4, 7]).is_err());
    }

    #[test]
    fn numerics_are_read_as_postgresql_sends_them() {
        let send = |words: &[i16]| {
            words
                .iter()
                .flat_map(|word| word.to_be_bytes())
                .collect::<Vec<_>>()
        };
        for (words, expected) in [
            (&[0, 0, 0, 2][..], "0.00"),
            (&[2, 1, 0, 0, 1, 2345], "12345"),
            (&[2, 0, 0x4000, 2, 123, 4500], "-123.45"),
            (&[1, -2, 0, 5, 1000], "0.00001"),
            (&[1, 1, 0, 0, 1], "10000"),
            (&[0, 0, 0xC000u16 as i16, 0], "NaN"),
        ] {
            assert_eq!(numeric(&send(words)).unwrap(), expected);
        }
        assert!(numeric(&send(&[1, 0, 0, 0, 10_000])).is_err());
        assert!(numeric(&send(&[9, 0, 0, 0, 1])).is_err());
    }

    #[test]
    fn bytes_that_are_no_value_are_refused() {
        for (oid, bytes) in [
            (oid::INT4, &[0u8; 3][..]),
            (oid::BOOL, &[]),
            (oid::JSONB, b"\x02{}"),
            (oid::TEXT, b"\xff"),
            (oid::TEXT, b"a\0b"),
            (1007, &[0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0, 23]),
            (
                1007,
                &[
                    0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 23, 0x7f, 0xff, 0xff, 0xff, 0, 0, 0, 1,
                ],
            ),
        ] {
            assert!(text_of(oid, bytes).is_err(), "{oid} {bytes:?}");
        }
    }
}
