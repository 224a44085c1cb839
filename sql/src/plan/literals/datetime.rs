//! The text of a date, a time or a timestamp as PostgreSQL reads it: ISO 8601, names of months, `AM` and `PM`, `BC`, days of
//! the year and Julian days, offsets and names of time zones. Months come before days where slashes stand between them.

use crate::plan::functions::moment::{
    MICROS_PER_DAY, MICROS_PER_SECOND, MONTH_NAMES, YEAR_MAX, day_of, day_of_julian, first_day,
};
use crate::plan::literals::zone::in_zone;
use crate::{SqlError, SqlState};

/// What a text says.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Read {
    /// Since 1970-01-01.
    days: Option<i64>,
    micros_of_day: Option<i64>,
    zone: Option<Zone>,
}

#[derive(Debug, Clone, PartialEq)]
enum Zone {
    /// Seconds east of Greenwich.
    Offset(i64),
    Named(String),
}

/// Why a text is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    /// It has another form.
    Syntax,
    /// A field is too large or too small.
    Range,
    /// The day or the moment is too far away.
    Far,
}

/// Days since 1970.
///
/// # Errors
/// 22007 for a text that is no date, 22008 for a day that there is not.
pub(crate) fn date(text: &str) -> Result<i32, SqlError> {
    let read = read(text).map_err(|fault| fault.told(text, "date"))?;
    let days = read.days.ok_or_else(|| Fault::Syntax.told(text, "date"))?;
    i32::try_from(days).map_err(|_| Fault::Far.told(text, "date"))
}

/// Microseconds since midnight.
///
/// # Errors
/// As [`date`].
pub(crate) fn time(text: &str) -> Result<i64, SqlError> {
    let read = read_time(text).map_err(|fault| fault.told(text, "time"))?;
    read.micros_of_day.ok_or_else(|| Fault::Syntax.told(text, "time"))
}

/// Microseconds since 1970, whatever the time zone.
///
/// # Errors
/// As [`date`].
pub(crate) fn timestamp(text: &str) -> Result<i64, SqlError> {
    if let Some(micros) = plain(text.as_bytes()) {
        return Ok(micros);
    }
    let read = read(text).map_err(|fault| fault.told(text, "timestamp"))?;
    read.local().map_err(|fault| fault.told(text, "timestamp"))
}

/// Microseconds since 1970-01-01 00:00 UTC; without a time zone the text is of UTC.
///
/// # Errors
/// As [`date`].
pub(crate) fn timestamp_tz(text: &str) -> Result<i64, SqlError> {
    const NAME: &str = "timestamp with time zone";
    if let Some(micros) = plain(text.as_bytes()) {
        return Ok(micros);
    }
    let read = read(text).map_err(|fault| fault.told(text, NAME))?;
    let local = read.local().map_err(|fault| fault.told(text, NAME))?;
    match read.zone {
        None => Ok(local),
        Some(Zone::Offset(seconds)) => local
            .checked_sub(seconds * MICROS_PER_SECOND)
            .ok_or_else(|| Fault::Far.told(text, NAME)),
        Some(Zone::Named(name)) => in_zone(local, &name),
    }
}

impl Fault {
    fn told(self, text: &str, name: &str) -> SqlError {
        match self {
            Self::Syntax => SqlError::new(
                SqlState::InvalidDatetimeFormat,
                format!("invalid input syntax for type {name}: \"{text}\""),
            ),
            Self::Range => SqlError::new(
                SqlState::DatetimeFieldOverflow,
                format!("date/time field value out of range: \"{text}\""),
            ),
            Self::Far => {
                let name = name.split(' ').next().unwrap_or(name);
                SqlError::new(
                    SqlState::DatetimeFieldOverflow,
                    format!("{name} out of range: \"{text}\""),
                )
            }
        }
    }
}

impl Read {
    fn local(&self) -> Result<i64, Fault> {
        let days = self.days.ok_or(Fault::Syntax)?;
        let micros = self.micros_of_day.unwrap_or(0);
        let at = days
            .checked_mul(MICROS_PER_DAY)
            .and_then(|at| at.checked_add(micros));
        at.ok_or(Fault::Far)
    }
}

/// `2024-01-31 01:02:03[.456789]`, the form that almost all texts have.
fn plain(text: &[u8]) -> Option<i64> {
    let is_plain = text.len() >= 19
        && text[4] == b'-'
        && text[7] == b'-'
        && matches!(text[10], b' ' | b'T')
        && text[13] == b':'
        && text[16] == b':';
    if !is_plain {
        return None;
    }
    let number = |from: usize, to: usize| {
        text[from..to].iter().try_fold(0i64, |sum, digit| {
            digit.is_ascii_digit().then(|| sum * 10 + i64::from(digit - b'0'))
        })
    };
    let days = day_of(
        number(0, 4).filter(|year| *year > 0)?,
        number(5, 7)?,
        number(8, 10)?,
    )?;
    let clock = (number(11, 13)?, number(14, 16)?, number(17, 19)?);
    if clock.0 > 23 || clock.1 > 59 || clock.2 > 59 {
        return None;
    }
    let fraction = match &text[19..] {
        [] => 0,
        [b'.', digits @ ..] if (1..=6).contains(&digits.len()) => {
            number(20, text.len())? * 10i64.pow(6 - digits.len() as u32)
        }
        _ => return None,
    };
    let seconds = clock.0 * 3600 + clock.1 * 60 + clock.2;
    Some(days * MICROS_PER_DAY + seconds * MICROS_PER_SECOND + fraction)
}

fn read(text: &str) -> Result<Read, Fault> {
    let mut fields = Fields::default();
    for word in words(text) {
        fields.add(word, false)?;
    }
    fields.finish()
}

/// A time of day: digits without colons are one too.
fn read_time(text: &str) -> Result<Read, Fault> {
    let mut fields = Fields::default();
    for word in words(text) {
        fields.add(word, true)?;
    }
    fields.finish()
}

/// Parts between blanks and commas, a date and its time parted at the `T`.
fn words(text: &str) -> impl Iterator<Item = &str> {
    let parts = text.split(|c: char| c.is_whitespace() || c == ',');
    parts.filter(|word| !word.is_empty()).flat_map(|word| {
        let is_digit = |c: Option<char>| c.is_some_and(|c| c.is_ascii_digit());
        let parted = word
            .split_once(['T', 't'])
            .filter(|(date, time)| is_digit(date.chars().next_back()) && is_digit(time.chars().next()));
        match parted {
            Some((date, time)) => [Some(date), Some(time)],
            None => [Some(word), None],
        }
        .into_iter()
        .flatten()
    })
}

/// What the words of a text have said so far.
#[derive(Default)]
struct Fields {
    year: Option<i64>,
    month: Option<i64>,
    day: Option<i64>,
    days: Option<i64>,
    clock: Option<i64>,
    is_afternoon: Option<bool>,
    is_bc: bool,
    zone: Option<Zone>,
}

const MONTHS: [&str; 12] = [
    "jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec",
];
const WEEKDAYS: [&str; 7] = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"];

/// The number of the month of this name.
fn month_named(word: &str) -> Option<i64> {
    let word = word.to_ascii_lowercase();
    let place = MONTHS
        .iter()
        .zip(MONTH_NAMES)
        .position(|(short, long)| word == *short || word == long || (word == "sept" && *short == "sep"))?;
    Some(place as i64 + 1)
}

impl Fields {
    fn add(&mut self, word: &str, is_time: bool) -> Result<(), Fault> {
        let first = word.chars().next().ok_or(Fault::Syntax)?;
        if word.contains(':') && first.is_ascii_digit() {
            return self.add_clock(word);
        }
        if first.is_ascii_digit() {
            let digits = word.chars().all(|c| c.is_ascii_digit());
            if is_time || (digits && self.has_date() && self.clock.is_none() && word.len() >= 4) {
                return self.add_compact_clock(word);
            }
            return if digits {
                self.add_number(word)
            } else {
                self.add_date(word)
            };
        }
        if matches!(first, '+' | '-') && self.clock.is_some() {
            return self.set_zone(Zone::Offset(offset(word)?));
        }
        self.add_word(word)
    }

    fn has_date(&self) -> bool {
        self.days.is_some() || (self.year.is_some() && self.month.is_some() && self.day.is_some())
    }

    fn add_word(&mut self, word: &str) -> Result<(), Fault> {
        let lower = word.to_ascii_lowercase();
        if let Some(julian) = lower
            .strip_prefix('j')
            .and_then(|digits| digits.parse::<i64>().ok())
        {
            return once(&mut self.days, day_of_julian(julian));
        }
        if lower.contains(['-', '/', '.'])
            && !lower.contains("/")
            && month_named(lower.split(['-', '.']).next().unwrap_or("")).is_some()
        {
            return self.add_date(word);
        }
        match lower.as_str() {
            "am" => once(&mut self.is_afternoon, false),
            "pm" => once(&mut self.is_afternoon, true),
            "bc" => {
                self.is_bc = true;
                Ok(())
            }
            "ad" => Ok(()),
            "z" | "utc" | "gmt" | "zulu" => self.set_zone(Zone::Offset(0)),
            "epoch" => {
                once(&mut self.days, 0)?;
                once(&mut self.clock, 0)
            }
            _ => {
                if let Some(month) = month_named(&lower) {
                    // `8 January`: what came first was the day.
                    return once(&mut self.month, month);
                }
                let is_weekday = WEEKDAYS
                    .iter()
                    .any(|day| lower.starts_with(day) && lower.chars().all(|c| c.is_ascii_alphabetic()));
                if is_weekday && self.clock.is_none() {
                    return Ok(());
                }
                if self.clock.is_none() || !lower.starts_with(|c: char| c.is_ascii_alphabetic()) {
                    return Err(Fault::Syntax);
                }
                self.set_zone(Zone::Named(word.to_owned()))
            }
        }
    }

    fn set_zone(&mut self, zone: Zone) -> Result<(), Fault> {
        once(&mut self.zone, zone)
    }

    /// `20240131`, `240131`, a year or a day.
    fn add_number(&mut self, digits: &str) -> Result<(), Fault> {
        let number: i64 = digits.parse().map_err(|_| Fault::Range)?;
        match digits.len() {
            8 => {
                once(&mut self.year, number / 10_000)?;
                once(&mut self.month, number / 100 % 100)?;
                once(&mut self.day, number % 100)
            }
            6 if self.month.is_none() => {
                once(&mut self.year, short_year(number / 10_000))?;
                once(&mut self.month, number / 100 % 100)?;
                once(&mut self.day, number % 100)
            }
            1 | 2 if self.day.is_none() => once(&mut self.day, number),
            1 | 2 => once(&mut self.year, short_year(number)),
            3.. => once(&mut self.year, number),
            _ => Err(Fault::Syntax),
        }
    }

    /// Three fields with `-`, `/` or `.` between them, or a year and its day.
    fn add_date(&mut self, word: &str) -> Result<(), Fault> {
        // An offset may follow a date: `2024-01-01+02`.
        let (word, rest) = match word.find('+') {
            Some(at) => (&word[..at], Some(&word[at..])),
            None => match word.strip_suffix(['Z', 'z']) {
                Some(date) => (date, Some("+00")),
                None => (word, None),
            },
        };
        let separator = word
            .chars()
            .find(|c| matches!(c, '-' | '/' | '.'))
            .ok_or(Fault::Syntax)?;
        let parts: Vec<&str> = word.split(separator).collect();
        let number = |part: &str| part.parse::<i64>().map_err(|_| Fault::Syntax);
        match parts.as_slice() {
            [year, day] if separator == '.' && day.len() == 3 => {
                let (year, day) = (number(year)?, number(day)?);
                once(&mut self.days, first_day(year) + day - 1)?;
            }
            [first, second, third] => {
                let (year, month, day) = match (month_named(first), month_named(second)) {
                    (Some(month), _) => (long_year(third)?, month, number(second)?),
                    (_, Some(month)) if first.len() > 2 => (number(first)?, month, number(third)?),
                    (_, Some(month)) => (long_year(third)?, month, number(first)?),
                    _ if first.len() > 2 => (number(first)?, number(second)?, number(third)?),
                    _ => (long_year(third)?, number(first)?, number(second)?),
                };
                once(&mut self.year, year)?;
                once(&mut self.month, month)?;
                once(&mut self.day, day)?;
            }
            _ => return Err(Fault::Syntax),
        }
        match rest {
            Some(rest) => self.set_zone(Zone::Offset(offset(rest)?)),
            None => Ok(()),
        }
    }

    /// `h:m[:s[.fraction]]` and what follows it without a blank: `AM`, an offset, a zone.
    fn add_clock(&mut self, word: &str) -> Result<(), Fault> {
        let end = word
            .find(|c: char| !(c.is_ascii_digit() || c == ':' || c == '.'))
            .unwrap_or(word.len());
        let (clock, rest) = word.split_at(end);
        let mut parts = clock.split(':');
        let number = |part: Option<&str>| match part {
            Some(digits) if !digits.is_empty() && digits.len() <= 2 => {
                digits.parse::<i64>().map_err(|_| Fault::Syntax)
            }
            _ => Err(Fault::Syntax),
        };
        let hours = number(parts.next())?;
        let minutes = number(parts.next())?;
        let (seconds, micros) = match parts.next() {
            None => (0, 0),
            Some(part) => {
                let (whole, fraction) = part.split_once('.').unwrap_or((part, ""));
                (number(Some(whole))?, fraction_micros(fraction)?)
            }
        };
        if parts.next().is_some() {
            return Err(Fault::Syntax);
        }
        self.set_clock(hours, minutes, seconds, micros)?;
        match rest.chars().next() {
            None => Ok(()),
            Some('+' | '-') => self.set_zone(Zone::Offset(offset(rest)?)),
            Some(_) => self.add_word(rest),
        }
    }

    /// `hhmm`, `hhmmss` and a fraction.
    fn add_compact_clock(&mut self, word: &str) -> Result<(), Fault> {
        let end = word
            .find(|c: char| !(c.is_ascii_digit() || c == '.'))
            .unwrap_or(word.len());
        let (clock, rest) = word.split_at(end);
        let (digits, fraction) = clock.split_once('.').unwrap_or((clock, ""));
        let number: i64 = digits.parse().map_err(|_| Fault::Syntax)?;
        let micros = fraction_micros(fraction)?;
        match digits.len() {
            6 => self.set_clock(number / 10_000, number / 100 % 100, number % 100, micros)?,
            4 => self.set_clock(number / 100, number % 100, 0, micros)?,
            1 | 2 if rest.is_empty() => self.set_clock(number, 0, 0, micros)?,
            _ => return Err(Fault::Syntax),
        }
        match rest.chars().next() {
            None => Ok(()),
            Some('+' | '-') => self.set_zone(Zone::Offset(offset(rest)?)),
            Some(_) => self.add_word(rest),
        }
    }

    fn set_clock(&mut self, hours: i64, minutes: i64, seconds: i64, micros: i64) -> Result<(), Fault> {
        let is_end_of_day = hours == 24 && minutes == 0 && seconds == 0 && micros == 0;
        if (hours > 23 && !is_end_of_day) || minutes > 59 || seconds > 60 {
            return Err(Fault::Range);
        }
        let all = (hours * 3600 + minutes * 60 + seconds) * MICROS_PER_SECOND + micros;
        once(&mut self.clock, all)
    }

    fn finish(self) -> Result<Read, Fault> {
        let mut clock = self.clock;
        if let (Some(is_afternoon), Some(at)) = (self.is_afternoon, clock) {
            let hour = at / (3600 * MICROS_PER_SECOND);
            if !(1..=12).contains(&hour) {
                return Err(Fault::Range);
            }
            let half = 12 * 3600 * MICROS_PER_SECOND;
            clock = Some(at % half + if is_afternoon { half } else { 0 });
        }
        let days = match (self.days, self.year, self.month, self.day) {
            (Some(days), None, None, None) => Some(days),
            (None, Some(year), Some(month), Some(day)) => {
                if year == 0 {
                    return Err(Fault::Range);
                }
                let year = if self.is_bc { 1 - year } else { year };
                if year.abs() > YEAR_MAX {
                    return Err(Fault::Far);
                }
                Some(day_of(year, month, day).ok_or(Fault::Range)?)
            }
            (None, None, None, None) => None,
            _ => return Err(Fault::Syntax),
        };
        if days.is_none() && clock.is_none() {
            return Err(Fault::Syntax);
        }
        Ok(Read {
            days,
            micros_of_day: clock,
            zone: self.zone,
        })
    }
}

fn once<T>(field: &mut Option<T>, value: T) -> Result<(), Fault> {
    match field.replace(value) {
        None => Ok(()),
        Some(_) => Err(Fault::Syntax),
    }
}

/// Years of two digits are those from 1970 to 2069.
fn short_year(year: i64) -> i64 {
    if year < 70 { year + 2000 } else { year + 1900 }
}

fn long_year(digits: &str) -> Result<i64, Fault> {
    let year = digits.parse::<i64>().map_err(|_| Fault::Syntax)?;
    Ok(if digits.len() <= 2 { short_year(year) } else { year })
}

/// Digits behind the point as microseconds, rounded.
fn fraction_micros(digits: &str) -> Result<i64, Fault> {
    if digits.is_empty() {
        return Ok(0);
    }
    let fraction: f64 = format!("0.{digits}").parse().map_err(|_| Fault::Syntax)?;
    Ok((fraction * 1e6).round() as i64)
}

/// Microseconds east of Greenwich that the text of an offset says; `None` for any other text.
pub(crate) fn offset_micros(text: &str) -> Option<i64> {
    Some(offset(text).ok()? * MICROS_PER_SECOND)
}

/// `+02`, `-0530`, `+05:30[:15]` in seconds.
fn offset(text: &str) -> Result<i64, Fault> {
    let (sign, digits) = match text.strip_prefix('-') {
        Some(digits) => (-1, digits),
        None => (1, text.strip_prefix('+').ok_or(Fault::Syntax)?),
    };
    let number = |part: &str| part.parse::<i64>().map_err(|_| Fault::Syntax);
    let parts: Vec<&str> = digits.split(':').collect();
    let (hours, minutes, seconds) = match parts.as_slice() {
        [all] if all.len() > 2 => (number(all)? / 100, number(all)? % 100, 0),
        [hours] => (number(hours)?, 0, 0),
        [hours, minutes] => (number(hours)?, number(minutes)?, 0),
        [hours, minutes, seconds] => (number(hours)?, number(minutes)?, number(seconds)?),
        _ => return Err(Fault::Syntax),
    };
    if hours > 15 || minutes > 59 || seconds > 59 {
        return Err(Fault::Range);
    }
    Ok(sign * (hours * 3600 + minutes * 60 + seconds))
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: i64 = MICROS_PER_DAY;

    #[test]
    fn dates_of_all_forms_are_the_same_day() {
        for text in [
            "1999-01-08",
            "January 8, 1999",
            "Jan 8, 1999",
            "1/8/1999",
            "1999-Jan-08",
            "Jan-08-1999",
            "08-Jan-1999",
            "19990108",
            "990108",
            "1999.008",
            "J2451187",
            "8 January 1999",
            "Fri Jan 8 1999",
        ] {
            assert_eq!(date(text), Ok(10_599), "{text}");
        }
        for text in ["2024-02-30", "2024-13-01", "0000-01-01"] {
            assert_eq!(
                date(text).unwrap_err().state,
                SqlState::DatetimeFieldOverflow,
                "{text}"
            );
        }
        for text in ["", "x", "2024", "2024-01", "1:2:3:4", "foo 2024-01-01"] {
            assert_eq!(
                date(text).unwrap_err().state,
                SqlState::InvalidDatetimeFormat,
                "{text}"
            );
        }
    }

    #[test]
    fn clocks_and_zones_follow_dates() {
        let noon = 12 * 3600 * MICROS_PER_SECOND;
        for text in [
            "1970-01-02 12:00",
            "1970-01-02T12:00:00",
            "1970-01-02 12:00 PM",
            "1970-01-02 12:00:00.000",
            "19700102T120000",
            "1970-01-02 12:00:00+05",
            "1970-1-2 12:0",
        ] {
            assert_eq!(timestamp(text), Ok(DAY + noon), "{text}");
        }
        for text in [
            "1970-01-02 12:00+00",
            "1970-01-02 14:00+02:00",
            "1970-01-02 07:00 -0500",
            "1970-01-02 12:00Z",
            "1970-01-02 13:00 Europe/Berlin",
        ] {
            assert_eq!(timestamp_tz(text), Ok(DAY + noon), "{text}");
        }
        assert_eq!(time("040506"), time("04:05:06"));
        assert_eq!(time("12:05 AM"), Ok(300 * MICROS_PER_SECOND));
        assert!(time("25:00").is_err());
        assert_eq!(timestamp("0044-03-15 BC"), Ok(-735_160 * DAY));
    }
}
