//! Dates, times and timestamps as text and as UNIX times, and `timestamp.format`.
//!
//! A time has microseconds; finer digits are cut off, never rounded up, so that no event moves into a later window.

use chrono::format::{Item, Parsed, StrftimeItems};
use chrono::{DateTime, NaiveTime};

use super::decimal::parse_scaled_floor;
use super::fault::quote;
use crate::error::ConnectorError;

const SECOND_US: i64 = 1_000_000;
const DAY_US: i64 = 86_400 * SECOND_US;

/// How a timestamp is written in a record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum TimestampFormat {
    /// `2026-01-31T12:34:56.789`, also with a space, also with a zone offset.
    Iso,
    /// A number, in this unit since 1970-01-01 00:00:00 UTC.
    Unix(UnixUnit),
    /// A pattern of `strftime` (`%d/%m/%Y %H:%M:%S`).
    Pattern(String),
}

/// The unit of a UNIX time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum UnixUnit {
    /// Seconds.
    Seconds,
    /// Milliseconds.
    Millis,
    /// Microseconds.
    Micros,
    /// Nanoseconds.
    Nanos,
}

impl TimestampFormat {
    /// Reads the value of `timestamp.format`.
    pub(crate) fn from_option(text: &str) -> Result<Self, ConnectorError> {
        let format = match text {
            "iso8601" => Self::Iso,
            "unix_s" => Self::Unix(UnixUnit::Seconds),
            "unix_ms" => Self::Unix(UnixUnit::Millis),
            "unix_us" => Self::Unix(UnixUnit::Micros),
            "unix_ns" => Self::Unix(UnixUnit::Nanos),
            pattern if is_pattern(pattern) => Self::Pattern(pattern.to_owned()),
            other => {
                let error = format!("option \"timestamp.format\" does not understand \"{other}\"");
                let hint = "Use iso8601, unix_s, unix_ms, unix_us, unix_ns, or a strftime pattern such as \
                            '%d/%m/%Y %H:%M:%S'.";
                return Err(ConnectorError::invalid(error).with_hint(hint));
            }
        };
        Ok(format)
    }

    /// What a value must look like, for an error message.
    fn expectation(&self) -> String {
        match self {
            Self::Iso => "an ISO 8601 timestamp".to_owned(),
            Self::Unix(unit) => format!("a number of {} since 1970", unit.noun()),
            Self::Pattern(pattern) => format!("a timestamp in the pattern \"{pattern}\""),
        }
    }

    /// Microseconds since the epoch of `text`. `zoned`: the column is a TIMESTAMPTZ.
    pub(crate) fn parse_text(&self, text: &[u8], zoned: bool) -> Result<i64, String> {
        match self {
            Self::Iso => parse_iso(text, zoned),
            Self::Unix(unit) => unit.parse(text),
            Self::Pattern(pattern) => parse_pattern(text, pattern, zoned),
        }
        .map_err(|why| match why {
            TimeFault::Form => format!("expected {}, found \"{}\"", self.expectation(), quote(text)),
            TimeFault::Range => format!("timestamp \"{}\" is out of range", quote(text)),
            TimeFault::Zone => format!(
                "timestamp \"{}\" has a zone offset, which a TIMESTAMP cannot hold; declare the column TIMESTAMPTZ",
                quote(text)
            ),
        })
    }

    /// Microseconds since the epoch of a JSON number.
    pub(crate) fn parse_number(&self, text: &[u8]) -> Result<i64, String> {
        match self {
            Self::Unix(_) => self.parse_text(text, true),
            _ => Err(format!(
                "expected {}, found the number {}; declare its unit with timestamp.format",
                self.expectation(),
                quote(text)
            )),
        }
    }

    /// Whether values are written as JSON numbers.
    pub(crate) fn is_number(&self) -> bool {
        matches!(self, Self::Unix(_))
    }

    /// Whether the text may hold anything, so that JSON must escape it.
    pub(crate) fn is_pattern(&self) -> bool {
        matches!(self, Self::Pattern(_))
    }

    /// Appends `micros` since the epoch, without quotes. `zoned`: the column is a TIMESTAMPTZ.
    pub(crate) fn write(&self, micros: i64, zoned: bool, out: &mut Vec<u8>) -> Result<(), String> {
        match self {
            Self::Iso => {
                write_date(micros.div_euclid(DAY_US), out);
                out.push(b'T');
                write_time(micros.rem_euclid(DAY_US), out);
                if zoned {
                    out.push(b'Z');
                }
            }
            Self::Unix(unit) => {
                let value = unit.of_micros(micros);
                out.extend_from_slice(itoa::Buffer::new().format(value).as_bytes());
            }
            Self::Pattern(pattern) => {
                use std::fmt::Write;
                let moment = DateTime::from_timestamp_micros(micros)
                    .ok_or_else(|| format!("timestamp of {micros} µs is out of range"))?;
                let mut text = String::new();
                let written = if zoned {
                    write!(text, "{}", moment.format(pattern))
                } else {
                    write!(text, "{}", moment.naive_utc().format(pattern))
                };
                written.map_err(|_| format!("a TIMESTAMP cannot be written in the pattern \"{pattern}\""))?;
                out.extend_from_slice(text.as_bytes());
            }
        }
        Ok(())
    }
}

impl UnixUnit {
    fn noun(self) -> &'static str {
        match self {
            Self::Seconds => "seconds",
            Self::Millis => "milliseconds",
            Self::Micros => "microseconds",
            Self::Nanos => "nanoseconds",
        }
    }

    /// Microseconds of an integer in this unit.
    #[inline]
    pub(crate) fn to_micros(self, value: i64) -> Option<i64> {
        match self {
            Self::Seconds => value.checked_mul(SECOND_US),
            Self::Millis => value.checked_mul(1_000),
            Self::Micros => Some(value),
            Self::Nanos => Some(value.div_euclid(1_000)),
        }
    }

    fn of_micros(self, micros: i64) -> i128 {
        match self {
            Self::Seconds => i128::from(micros.div_euclid(SECOND_US)),
            Self::Millis => i128::from(micros.div_euclid(1_000)),
            Self::Micros => i128::from(micros),
            Self::Nanos => i128::from(micros) * 1_000,
        }
    }

    fn parse(self, text: &[u8]) -> Result<i64, TimeFault> {
        let scale = match self {
            Self::Seconds => 6,
            Self::Millis => 3,
            Self::Micros => 0,
            Self::Nanos => -3,
        };
        parse_scaled_floor(text, scale).map_err(|fault| match fault {
            super::decimal::DecimalFault::TooLarge => TimeFault::Range,
            _ => TimeFault::Form,
        })
    }
}

/// Why a text is no timestamp.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TimeFault {
    Form,
    Range,
    Zone,
}

fn is_pattern(text: &str) -> bool {
    let items: Vec<Item<'_>> = StrftimeItems::new(text).collect();
    !items.contains(&Item::Error)
        && items
            .iter()
            .any(|item| matches!(item, Item::Numeric(..) | Item::Fixed(_)))
}

fn parse_pattern(text: &[u8], pattern: &str, zoned: bool) -> Result<i64, TimeFault> {
    let text = std::str::from_utf8(text).map_err(|_| TimeFault::Form)?;
    let mut parsed = Parsed::new();
    chrono::format::parse(&mut parsed, text, StrftimeItems::new(pattern)).map_err(|_| TimeFault::Form)?;
    if let Ok(moment) = parsed.to_datetime() {
        if !zoned && moment.offset().local_minus_utc() != 0 {
            return Err(TimeFault::Zone);
        }
        return Ok(moment.timestamp_micros());
    }
    let local = match (parsed.to_naive_date(), parsed.to_naive_time()) {
        (Ok(date), Ok(time)) => date.and_time(time),
        (Ok(date), Err(_)) if parsed.hour_mod_12().is_none() => date.and_time(NaiveTime::MIN),
        _ => parsed
            .to_naive_datetime_with_offset(0)
            .map_err(|_| TimeFault::Form)?,
    };
    Ok(local.and_utc().timestamp_micros())
}

/// Two digits at `at`.
#[inline]
fn two(text: &[u8], at: usize) -> Option<u32> {
    let tens = text[at].wrapping_sub(b'0');
    let ones = text[at + 1].wrapping_sub(b'0');
    if tens < 10 && ones < 10 {
        Some(u32::from(tens) * 10 + u32::from(ones))
    } else {
        None
    }
}

/// Days since the epoch of a proleptic Gregorian date (H. Hinnant's published algorithm).
#[inline]
fn days_from_civil(year: i64, month: u32, day: u32) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let month_from_march = (i64::from(month) + 9) % 12;
    let day_of_year = (153 * month_from_march + 2) / 5 + i64::from(day) - 1;
    era * 146_097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year - 719_468
}

/// Year, month and day of days since the epoch (H. Hinnant's published algorithm).
fn civil_from_days(days: i64) -> (i64, u32, u32) {
    let days = days + 719_468;
    let era = days.div_euclid(146_097);
    let day_of_era = days.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = (day_of_year - (153 * month_from_march + 2) / 5 + 1) as u32;
    let month = (if month_from_march < 10 {
        month_from_march + 3
    } else {
        month_from_march - 9
    }) as u32;
    (year_of_era + era * 400 + i64::from(month <= 2), month, day)
}

#[inline]
fn days_in_month(year: u32, month: u32) -> u32 {
    match month {
        2 if year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400)) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// Days since the epoch of `YYYY-MM-DD`, which `text` starts with.
#[inline]
fn parse_date_prefix(text: &[u8]) -> Option<i64> {
    if text.len() < 10 || text[4] != b'-' || text[7] != b'-' {
        return None;
    }
    let year = two(text, 0)? * 100 + two(text, 2)?;
    let (month, day) = (two(text, 5)?, two(text, 8)?);
    let known = year >= 1 && (1..=12).contains(&month) && day >= 1 && day <= days_in_month(year, month);
    known.then(|| days_from_civil(i64::from(year), month, day))
}

/// Microseconds of `HH:MM[:SS[.fraction]]`, which `text` starts with, and its length.
#[inline]
fn parse_time_prefix(text: &[u8]) -> Option<(i64, usize)> {
    if text.len() < 5 || text[2] != b':' {
        return None;
    }
    let (hour, minute) = (two(text, 0)?, two(text, 3)?);
    if hour > 23 || minute > 59 {
        return None;
    }
    let minutes = i64::from(hour * 60 + minute);
    if text.len() < 8 || text[5] != b':' {
        return Some((minutes * 60 * SECOND_US, 5));
    }
    let second = two(text, 6)?;
    if second > 59 {
        return None;
    }
    let micros = (minutes * 60 + i64::from(second)) * SECOND_US;
    if text.get(8) != Some(&b'.') {
        return Some((micros, 8));
    }
    let (fraction, len) = parse_fraction(&text[9..])?;
    Some((micros + fraction, 9 + len))
}

/// Microseconds of 1 to 9 fraction digits, and how many there are.
#[inline]
fn parse_fraction(text: &[u8]) -> Option<(i64, usize)> {
    let len = text.iter().take_while(|byte| byte.is_ascii_digit()).count();
    if len == 0 || len > 9 {
        return None;
    }
    let kept = len.min(6);
    let value = text[..kept]
        .iter()
        .fold(0, |value, digit| value * 10 + i64::from(digit - b'0'));
    const UP: [i64; 7] = [1_000_000, 100_000, 10_000, 1_000, 100, 10, 1];
    Some((value * UP[kept], len))
}

/// Microseconds east of UTC of `Z`, `±HH`, `±HHMM` or `±HH:MM`, which must be all of `text`.
fn parse_offset(text: &[u8]) -> Option<i64> {
    let sign = match text {
        b"Z" | b"z" => return Some(0),
        [b'+', ..] => 1,
        [b'-', ..] => -1,
        _ => return None,
    };
    let (hours, minutes) = match text.len() {
        3 => (two(text, 1)?, 0),
        5 => (two(text, 1)?, two(text, 3)?),
        6 if text[3] == b':' => (two(text, 1)?, two(text, 4)?),
        _ => return None,
    };
    (hours <= 15 && minutes <= 59).then(|| sign * i64::from(hours * 60 + minutes) * 60 * SECOND_US)
}

#[inline]
fn parse_iso(text: &[u8], zoned: bool) -> Result<i64, TimeFault> {
    let days = parse_date_prefix(text).ok_or(TimeFault::Form)?;
    let midnight = days * DAY_US;
    if text.len() == 10 {
        return Ok(midnight);
    }
    if !matches!(text[10], b'T' | b't' | b' ') {
        return Err(TimeFault::Form);
    }
    let (time, len) = parse_time_prefix(&text[11..]).ok_or(TimeFault::Form)?;
    let rest = &text[11 + len..];
    if rest.is_empty() {
        return Ok(midnight + time);
    }
    match parse_offset(rest.trim_ascii_start()) {
        None => Err(TimeFault::Form),
        Some(0) => Ok(midnight + time),
        Some(offset) if zoned => Ok(midnight + time - offset),
        Some(_) => Err(TimeFault::Zone),
    }
}

/// Days since the epoch of a date `YYYY-MM-DD`.
pub(crate) fn parse_date(text: &[u8]) -> Option<i32> {
    if text.len() == 10 {
        parse_date_prefix(text).and_then(|days| i32::try_from(days).ok())
    } else {
        None
    }
}

/// Microseconds since midnight of a time `HH:MM[:SS[.fraction]]`.
pub(crate) fn parse_time(text: &[u8]) -> Option<i64> {
    parse_time_prefix(text)
        .filter(|(_, len)| *len == text.len())
        .map(|(micros, _)| micros)
}

#[inline]
fn push_two(value: u32, out: &mut Vec<u8>) {
    out.extend_from_slice(&[b'0' + (value / 10) as u8, b'0' + (value % 10) as u8]);
}

/// Appends a date of days since the epoch as `YYYY-MM-DD`.
pub(crate) fn write_date(days: i64, out: &mut Vec<u8>) {
    let (year, month, day) = civil_from_days(days);
    match u32::try_from(year) {
        Ok(year) if year <= 9999 => {
            push_two(year / 100, out);
            push_two(year % 100, out);
        }
        // ISO 8601 wants a sign before years of more than four digits.
        _ => out.extend_from_slice(format!("{year:+05}").as_bytes()),
    }
    out.push(b'-');
    push_two(month, out);
    out.push(b'-');
    push_two(day, out);
}

/// Appends a time of microseconds since midnight as `HH:MM:SS[.fraction]`, the fraction without trailing zeros.
pub(crate) fn write_time(micros: i64, out: &mut Vec<u8>) {
    let seconds = (micros / SECOND_US) as u32;
    push_two(seconds / 3600, out);
    out.push(b':');
    push_two(seconds / 60 % 60, out);
    out.push(b':');
    push_two(seconds % 60, out);
    let mut fraction = (micros % SECOND_US) as u32;
    if fraction == 0 {
        return;
    }
    let mut digits = *b".000000";
    for digit in digits[1..].iter_mut().rev() {
        *digit = b'0' + (fraction % 10) as u8;
        fraction /= 10;
    }
    out.extend_from_slice(&digits);
    while out.last() == Some(&b'0') {
        out.pop();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn micros(text: &str) -> i64 {
        DateTime::parse_from_rfc3339(text).unwrap().timestamp_micros()
    }

    fn iso(text: &str, zoned: bool) -> Result<i64, String> {
        TimestampFormat::Iso.parse_text(text.as_bytes(), zoned)
    }

    #[test]
    fn iso_timestamps_are_read_as_declared() {
        let expected = micros("2026-01-31T12:34:56.789Z");
        for text in [
            "2026-01-31T12:34:56.789",
            "2026-01-31 12:34:56.789",
            "2026-01-31T12:34:56.789000999Z",
        ] {
            assert_eq!(iso(text, false), Ok(expected), "{text}");
            assert_eq!(iso(text, true), Ok(expected), "{text}");
        }
        assert_eq!(iso("2026-01-31T14:34:56.789+02:00", true), Ok(expected));
        assert_eq!(iso("2026-01-31T14:34:56.789+02", true), Ok(expected));
        assert_eq!(iso("2026-01-31 10:04:56.789 -0230", true), Ok(expected));
        assert_eq!(iso("2026-01-31", false), Ok(micros("2026-01-31T00:00:00Z")));
        assert_eq!(iso("1969-12-31T23:59:59.9999999", false), Ok(-1));
        assert_eq!(iso("0001-01-01T00:00", false), Ok(micros("0001-01-01T00:00:00Z")));
        assert_eq!(
            iso("2000-02-29T00:00:00", false),
            Ok(micros("2000-02-29T00:00:00Z"))
        );
    }

    #[test]
    fn what_is_no_iso_timestamp_is_refused_with_a_reason() {
        for text in [
            "",
            "now",
            "2026-02-29",
            "2026-13-01",
            "2026-01-31X12:00:00",
            "2026-01-31T24:00:00",
            "2026-01-31T12:60:00",
            "2026-01-31T12:00:60",
            "2026-01-31T12:00:00.",
            "2026-01-31T12:00:00.1234567890",
            "2026-01-31T12:00:00+2",
            "2026-01-31T12:00:00Zulu",
            "20260131T120000",
            "2026-1-31",
        ] {
            assert!(
                iso(text, true)
                    .unwrap_err()
                    .starts_with("expected an ISO 8601 timestamp"),
                "{text}"
            );
        }
        let zone = iso("2026-01-31T12:00:00+02:00", false).unwrap_err();
        assert!(zone.contains("declare the column TIMESTAMPTZ"), "{zone}");
    }

    #[test]
    fn every_unit_of_a_unix_time_is_understood_and_none_is_guessed() {
        let expected = Ok(micros("2023-11-14T22:13:20.123456Z"));
        for (option, number) in [
            ("unix_s", "1700000000.123456"),
            ("unix_ms", "1700000000123.456"),
            ("unix_us", "1700000000123456"),
            ("unix_ns", "1700000000123456789"),
        ] {
            let format = TimestampFormat::from_option(option).unwrap();
            assert_eq!(format.parse_number(number.as_bytes()), expected, "{option}");
        }
        assert!(
            TimestampFormat::Iso
                .parse_number(b"1700000000")
                .unwrap_err()
                .contains("timestamp.format")
        );
    }

    #[test]
    fn a_pattern_reads_and_writes() {
        let format = TimestampFormat::from_option("%d/%m/%Y %H:%M:%S").unwrap();
        let moment = micros("2026-01-31T12:34:56Z");
        assert_eq!(format.parse_text(b"31/01/2026 12:34:56", false), Ok(moment));
        assert!(format.parse_text(b"2026-01-31", false).is_err());
        let mut out = Vec::new();
        format.write(moment, false, &mut out).unwrap();
        assert_eq!(out, b"31/01/2026 12:34:56");
        let date = TimestampFormat::from_option("%Y%m%d").unwrap();
        assert_eq!(
            date.parse_text(b"20260131", false),
            Ok(micros("2026-01-31T00:00:00Z"))
        );
        let offset = TimestampFormat::from_option("%d/%m/%Y %H:%M %z").unwrap();
        assert_eq!(
            offset.parse_text(b"31/01/2026 14:34 +0200", true),
            Ok(micros("2026-01-31T12:34:00Z"))
        );
        assert!(offset.parse_text(b"31/01/2026 14:34 +0200", false).is_err());
    }

    #[test]
    fn an_option_that_is_no_format_is_refused() {
        for option in ["unix", "yyyy-MM-dd", "%Q", ""] {
            let error = TimestampFormat::from_option(option).unwrap_err();
            assert!(
                error.hint.is_some_and(|hint| hint.contains("unix_ms")),
                "{option}"
            );
        }
    }

    #[test]
    fn every_day_of_four_thousand_years_goes_to_text_and_back() {
        for days in -719_162..740_000 {
            let mut text = Vec::new();
            write_date(days, &mut text);
            assert_eq!(parse_date(&text).map(i64::from), Some(days));
        }
    }

    #[test]
    fn times_are_written_without_trailing_zeros() {
        for (micros, expected) in [
            (0, "00:00:00"),
            (500_000, "00:00:00.5"),
            (1, "00:00:00.000001"),
            (86_399_999_000, "23:59:59.999"),
        ] {
            let mut text = Vec::new();
            write_time(micros, &mut text);
            assert_eq!(std::str::from_utf8(&text), Ok(expected));
            assert_eq!(parse_time(&text), Some(micros));
        }
    }
}
