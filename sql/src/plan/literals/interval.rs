//! The text of an interval as PostgreSQL reads it: amounts with units, times, `years-months`, ISO 8601.
//!
//! The rules are those of `DecodeInterval` and `DecodeISO8601Interval` in PostgreSQL's `datetime.c`.

use arrow::datatypes::IntervalMonthDayNano;

use crate::{SqlError, SqlState};

const SECOND_US: i128 = 1_000_000;
const MINUTE_US: i128 = 60 * SECOND_US;
const HOUR_US: i128 = 60 * MINUTE_US;
const DAY_US: i128 = 24 * HOUR_US;
/// Fractions of an amount count these.
const FRACTION: i128 = 1_000_000_000_000;
const FRACTION_DIGITS: usize = 12;
/// A month as days, where a fraction of one is given.
const MONTH_DAYS: i128 = 30;

/// What an amount counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unit {
    Microsecond,
    Millisecond,
    Second,
    Minute,
    Hour,
    Day,
    Week,
    Month,
    Year,
    Decade,
    Century,
    Millennium,
}

impl Unit {
    /// The unit of this name, in any case.
    pub(crate) fn named(word: &str) -> Option<Self> {
        let unit = match word.to_lowercase().as_str() {
            "us" | "usec" | "usecs" | "usecond" | "useconds" | "microsecond" | "microseconds"
            | "microsecon" => Self::Microsecond,
            "ms" | "msec" | "msecs" | "msecond" | "mseconds" | "millisecond" | "milliseconds"
            | "millisecon" => Self::Millisecond,
            "s" | "sec" | "secs" | "second" | "seconds" => Self::Second,
            "m" | "min" | "mins" | "minute" | "minutes" => Self::Minute,
            "h" | "hr" | "hrs" | "hour" | "hours" => Self::Hour,
            "d" | "day" | "days" => Self::Day,
            "w" | "week" | "weeks" => Self::Week,
            "mon" | "mons" | "month" | "months" => Self::Month,
            "y" | "yr" | "yrs" | "year" | "years" => Self::Year,
            "dec" | "decs" | "decade" | "decades" => Self::Decade,
            "c" | "cent" | "century" | "centuries" => Self::Century,
            "mil" | "mils" | "millennia" | "millennium" => Self::Millennium,
            _ => return None,
        };
        Some(unit)
    }

    fn bit(self) -> u16 {
        1 << (self as u16)
    }
}

/// Months, days and microseconds, which do not convert into each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Interval {
    pub(crate) months: i32,
    pub(crate) days: i32,
    pub(crate) micros: i64,
}

impl Interval {
    /// The interval that takes time back; `None` where it would not fit.
    pub(crate) fn negated(self) -> Option<Self> {
        Some(Self {
            months: self.months.checked_neg()?,
            days: self.days.checked_neg()?,
            micros: self.micros.checked_neg()?,
        })
    }

    /// As Arrow has it; `None` beyond 292 years of hours, minutes and seconds.
    pub(crate) fn as_arrow(self) -> Option<IntervalMonthDayNano> {
        let nanos = self.micros.checked_mul(1000)?;
        Some(IntervalMonthDayNano::new(self.months, self.days, nanos))
    }

    /// A text that DataFusion reads as this interval.
    pub(crate) fn plain_text(self) -> String {
        let Self { months, days, micros } = self;
        format!("{months} months {days} days {micros} microseconds")
    }

    /// Without what is smaller than `unit`, as `INTERVAL '…' HOUR` says.
    fn down_to(self, unit: Unit) -> Self {
        let cut = |unit_us: i128| {
            let micros = i128::from(self.micros);
            i64::try_from(micros - micros % unit_us).unwrap_or(self.micros)
        };
        match unit {
            Unit::Year => Self {
                months: self.months - self.months % 12,
                ..Self::default()
            },
            Unit::Month => Self {
                months: self.months,
                ..Self::default()
            },
            Unit::Day => Self { micros: 0, ..self },
            Unit::Hour => Self {
                micros: cut(HOUR_US),
                ..self
            },
            Unit::Minute => Self {
                micros: cut(MINUTE_US),
                ..self
            },
            _ => self,
        }
    }
}

/// Reads the text of an interval. `last` is the last field behind it, as in `INTERVAL '1-2' YEAR TO MONTH`: an amount
/// without a unit counts it, and what is smaller is left out.
///
/// # Errors
/// 22007 for a text that is no interval, 22008 for one that is too long.
pub(crate) fn read(text: &str, last: Option<Unit>) -> Result<Interval, SqlError> {
    let mut sum = Sum::default();
    let read = match text.trim().strip_prefix('P') {
        Some(iso) => sum.add_iso(iso),
        None => sum.add_plain(text, last),
    };
    read.ok_or_else(|| {
        SqlError::new(
            SqlState::InvalidDatetimeFormat,
            format!("invalid input syntax for type interval: \"{text}\""),
        )
        .with_hint("Write for instance '90 seconds', '1 day 02:30:00', '1 year 2 months' or 'P1DT2H30M'.")
    })?;
    let interval = sum.interval().ok_or_else(|| {
        SqlError::new(
            SqlState::DatetimeFieldOverflow,
            format!("interval field value out of range: \"{text}\""),
        )
    })?;
    Ok(match last {
        Some(unit) => interval.down_to(unit),
        None => interval,
    })
}

/// A number with a fraction.
#[derive(Debug, Clone, Copy, Default)]
struct Amount {
    whole: i128,
    /// In parts of [`FRACTION`], of the same sign as the number.
    fraction: i128,
}

/// What the parts of a text add up to, wide enough for any of them.
#[derive(Debug, Default)]
struct Sum {
    months: i128,
    days: i128,
    micros: i128,
    /// The units that were given, which may be given once.
    given: u16,
}

impl Sum {
    /// `1 day 2 hours`, `3 04:05:06.7`, `1-2`, `90 min ago`.
    fn add_plain(&mut self, text: &str, last: Option<Unit>) -> Option<()> {
        let default = last.unwrap_or(Unit::Second);
        let mut rest = Text(text);
        // A number whose unit has not come yet.
        let mut open: Option<Amount> = None;
        let mut is_empty = true;
        let mut is_ago = false;
        while let Some(part) = rest.next_part(last)? {
            if is_ago {
                return None;
            }
            match part {
                Part::Number(amount) => {
                    if let Some(before) = open.replace(amount) {
                        self.add(before, default)?;
                    }
                }
                Part::Time(micros) => {
                    if let Some(before) = open.take() {
                        self.add(before, Unit::Day)?;
                    }
                    self.note(Unit::Hour.bit() | Unit::Minute.bit() | Unit::Second.bit())?;
                    self.micros += micros;
                }
                Part::YearsMonths(months) => {
                    if let Some(before) = open.take() {
                        self.add(before, default)?;
                    }
                    self.note(Unit::Year.bit() | Unit::Month.bit())?;
                    self.months += months;
                }
                Part::Word("ago") => {
                    if let Some(before) = open.take() {
                        self.add(before, default)?;
                    }
                    is_ago = true;
                    continue;
                }
                Part::Word(word) => self.add(open.take()?, Unit::named(word)?)?,
            }
            is_empty = false;
        }
        if let Some(before) = open {
            self.add(before, default)?;
        }
        if is_ago {
            (self.months, self.days, self.micros) = (-self.months, -self.days, -self.micros);
        }
        (!is_empty).then_some(())
    }

    /// What follows the `P` of ISO 8601: `1Y2M3DT4H5M6S`, or `0001-02-03T04:05:06`.
    fn add_iso(&mut self, text: &str) -> Option<()> {
        let (date, time) = match text.split_once('T') {
            Some((date, time)) => (date, Some(time)),
            None => (text, None),
        };
        if date.is_empty() && time.is_none_or(str::is_empty) {
            return None;
        }
        const DATE: [(char, Unit); 4] = [
            ('Y', Unit::Year),
            ('M', Unit::Month),
            ('W', Unit::Week),
            ('D', Unit::Day),
        ];
        const TIME: [(char, Unit); 3] = [('H', Unit::Hour), ('M', Unit::Minute), ('S', Unit::Second)];
        let is_plain = |text: &str| !text.is_empty() && !text.contains(|c: char| c.is_ascii_alphabetic());
        if is_plain(date) {
            self.add_separated(date, '-', &[Unit::Year, Unit::Month, Unit::Day])?;
        } else {
            self.add_designated(date, &DATE)?;
        }
        match time {
            Some(time) if is_plain(time) => {
                self.add_separated(time, ':', &[Unit::Hour, Unit::Minute, Unit::Second])
            }
            Some(time) => self.add_designated(time, &TIME),
            None => Some(()),
        }
    }

    /// Amounts that each end in the letter of their unit.
    fn add_designated(&mut self, text: &str, units: &[(char, Unit)]) -> Option<()> {
        let mut rest = Text(text);
        while !rest.0.is_empty() {
            let amount = rest.signed_amount()?;
            let letter = rest.0.chars().next()?;
            let (_, unit) = units.iter().find(|(known, _)| *known == letter)?;
            rest.0 = &rest.0[letter.len_utf8()..];
            self.add(amount, *unit)?;
        }
        Some(())
    }

    fn add_separated(&mut self, text: &str, separator: char, units: &[Unit]) -> Option<()> {
        let parts: Vec<&str> = text.split(separator).collect();
        if parts.len() > units.len() {
            return None;
        }
        for (part, unit) in parts.into_iter().zip(units) {
            let mut rest = Text(part);
            let amount = rest.signed_amount()?;
            if !rest.0.is_empty() {
                return None;
            }
            self.add(amount, *unit)?;
        }
        Some(())
    }

    /// Notes units; `None` if one was given before.
    fn note(&mut self, units: u16) -> Option<()> {
        let is_new = self.given & units == 0;
        self.given |= units;
        is_new.then_some(())
    }

    fn add(&mut self, amount: Amount, unit: Unit) -> Option<()> {
        self.note(unit.bit())?;
        match unit {
            Unit::Microsecond => self.add_time(amount, 1),
            Unit::Millisecond => self.add_time(amount, 1000),
            Unit::Second => self.add_time(amount, SECOND_US),
            Unit::Minute => self.add_time(amount, MINUTE_US),
            Unit::Hour => self.add_time(amount, HOUR_US),
            Unit::Day => self.add_days(amount, 1),
            Unit::Week => self.add_days(amount, 7),
            Unit::Month => {
                self.months += amount.whole;
                let days = Amount {
                    whole: 0,
                    fraction: amount.fraction,
                };
                self.add_days(days, MONTH_DAYS);
            }
            Unit::Year => self.add_years(amount, 1),
            Unit::Decade => self.add_years(amount, 10),
            Unit::Century => self.add_years(amount, 100),
            Unit::Millennium => self.add_years(amount, 1000),
        }
        Some(())
    }

    fn add_time(&mut self, amount: Amount, unit_us: i128) {
        self.micros += amount.whole * unit_us + rounded(amount.fraction * unit_us);
    }

    /// A fraction of a day counts as time.
    fn add_days(&mut self, amount: Amount, unit_days: i128) {
        let fraction = amount.fraction * unit_days;
        self.days += amount.whole * unit_days + fraction / FRACTION;
        self.micros += rounded(fraction % FRACTION * DAY_US);
    }

    /// A fraction of a year counts as whole months.
    fn add_years(&mut self, amount: Amount, unit_years: i128) {
        let unit_months = unit_years * 12;
        self.months += amount.whole * unit_months + rounded(amount.fraction * unit_months);
    }

    fn interval(&self) -> Option<Interval> {
        let interval = Interval {
            months: i32::try_from(self.months).ok()?,
            days: i32::try_from(self.days).ok()?,
            micros: i64::try_from(self.micros).ok()?,
        };
        interval.as_arrow().map(|_| interval)
    }
}

/// Parts of [`FRACTION`] as a whole number, rounded half away from zero.
fn rounded(parts: i128) -> i128 {
    let half = FRACTION / 2 * parts.signum();
    (parts + half) / FRACTION
}

/// What a text is made of.
#[derive(Debug)]
enum Part<'a> {
    Number(Amount),
    /// `[-]hh:mm[:ss[.fff]]`, in µs.
    Time(i128),
    /// `[-]years-months`, in months.
    YearsMonths(i128),
    /// Letters.
    Word(&'a str),
}

/// The rest of a text.
struct Text<'a>(&'a str);

impl<'a> Text<'a> {
    /// The next part, if there is one; outer `None` for what is none.
    fn next_part(&mut self, last: Option<Unit>) -> Option<Option<Part<'a>>> {
        self.0 = self.0.trim_start_matches(|c: char| c.is_whitespace() || c == '@');
        let Some(first) = self.0.chars().next() else {
            return Some(None);
        };
        if first.is_ascii_alphabetic() {
            return Some(Some(Part::Word(self.take_while(|c| c.is_ascii_alphabetic()))));
        }
        let sign = self.sign();
        let before = self.0;
        let whole = self.take_while(|c| c.is_ascii_digit());
        let part = match self.0.chars().next() {
            Some(':') if !whole.is_empty() => Part::Time(sign * self.time(whole, last)?),
            Some('-') if !whole.is_empty() => {
                self.0 = &self.0[1..];
                let months = number(self.take_while(|c| c.is_ascii_digit()))?;
                if months >= 12 {
                    return None;
                }
                Part::YearsMonths(sign * (number(whole)? * 12 + months))
            }
            _ => {
                self.0 = before;
                Part::Number(self.amount(sign)?)
            }
        };
        Some(Some(part))
    }

    fn signed_amount(&mut self) -> Option<Amount> {
        let sign = self.sign();
        self.amount(sign)
    }

    /// Takes a sign and the blanks behind it.
    fn sign(&mut self) -> i128 {
        let sign = match self.0.chars().next() {
            Some('-') => -1,
            Some('+') => 1,
            _ => return 1,
        };
        self.0 = self.0[1..].trim_start();
        sign
    }

    /// Takes `12`, `1.5` or `.5`.
    fn amount(&mut self, sign: i128) -> Option<Amount> {
        let whole = self.take_while(|c| c.is_ascii_digit());
        let mut fraction = "";
        if self.0.starts_with('.') {
            self.0 = &self.0[1..];
            fraction = self.take_while(|c| c.is_ascii_digit());
        }
        if whole.is_empty() && fraction.is_empty() {
            return None;
        }
        Some(Amount {
            whole: sign * if whole.is_empty() { 0 } else { number(whole)? },
            fraction: sign * fraction_of(fraction),
        })
    }

    /// The rest of a time whose first number was taken.
    fn time(&mut self, first: &str, last: Option<Unit>) -> Option<i128> {
        self.0 = &self.0[1..];
        let second = number(self.take_while(|c| c.is_ascii_digit()))?;
        let first = number(first)?;
        let mut third = None;
        if self.0.starts_with(':') {
            self.0 = &self.0[1..];
            third = Some(number(self.take_while(|c| c.is_ascii_digit()))?);
        }
        let has_fraction = self.0.starts_with('.');
        let mut fraction = 0;
        if has_fraction {
            self.0 = &self.0[1..];
            fraction = fraction_of(self.take_while(|c| c.is_ascii_digit()));
        }
        // Two numbers are hours and minutes, unless a fraction or the field says that the last are seconds.
        let (hours, minutes, seconds) = match third {
            Some(seconds) => (first, second, seconds),
            None if has_fraction || last == Some(Unit::Second) => (0, first, second),
            None => (first, second, 0),
        };
        let fits = minutes < 60 && seconds <= 60;
        fits.then(|| {
            hours * HOUR_US + minutes * MINUTE_US + seconds * SECOND_US + rounded(fraction * SECOND_US)
        })
    }

    fn take_while(&mut self, belongs: impl Fn(char) -> bool) -> &'a str {
        let end = self.0.find(|c| !belongs(c)).unwrap_or(self.0.len());
        let (taken, rest) = self.0.split_at(end);
        self.0 = rest;
        taken
    }
}

/// A whole number of at most 18 digits, so that no sum of parts overflows on the way.
fn number(digits: &str) -> Option<i128> {
    digits
        .parse::<i128>()
        .ok()
        .filter(|number| *number < 10i128.pow(18))
}

/// Digits behind a point, in parts of [`FRACTION`]; further ones are dropped.
fn fraction_of(digits: &str) -> i128 {
    let kept = &digits[..digits.len().min(FRACTION_DIGITS)];
    let missing = u32::try_from(FRACTION_DIGITS - kept.len()).unwrap_or(0);
    kept.parse::<i128>().unwrap_or(0) * 10i128.pow(missing)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn shown(text: &str) -> (i32, i32, i64) {
        fields(text, None)
    }

    #[track_caller]
    fn fields(text: &str, last: Option<Unit>) -> (i32, i32, i64) {
        let read = read(text, last).unwrap_or_else(|error| panic!("{error:?}"));
        (read.months, read.days, read.micros)
    }

    const SECOND: i64 = 1_000_000;
    const HOUR: i64 = 3600 * SECOND;

    #[test]
    fn amounts_times_and_years_months_are_read_as_postgresql_reads_them() {
        for (text, expected) in [
            ("03:00:04.5", (0, 0, 3 * HOUR + 4_500_000)),
            ("2 days 03:00:04", (0, 2, 3 * HOUR + 4 * SECOND)),
            ("1 year 2 mons", (14, 0, 0)),
            ("1-2", (14, 0, 0)),
            ("-1-2", (-14, 0, 0)),
            ("1-2 3 4:05:06", (14, 3, 4 * HOUR + 306 * SECOND)),
            ("3 4:05", (0, 3, 4 * HOUR + 300 * SECOND)),
            ("10", (0, 0, 10 * SECOND)),
            ("1.5 days", (0, 1, 12 * HOUR)),
            ("1.5 months", (1, 15, 0)),
            ("0.5 years", (6, 0, 0)),
            ("1.5 weeks", (0, 10, 12 * HOUR)),
            ("-1 day +2:03", (0, -1, 2 * HOUR + 180 * SECOND)),
            ("1 day -2:00", (0, 1, -2 * HOUR)),
            ("- 1 day", (0, -1, 0)),
            ("1h30m", (0, 0, HOUR + 1800 * SECOND)),
            ("@ 1 hour 2 min ago", (0, 0, -HOUR - 120 * SECOND)),
            ("1 s 250 ms 3 us", (0, 0, 1_250_003)),
            ("04:05.25", (0, 0, 245_250_000)),
            ("25:00:00", (0, 0, 25 * HOUR)),
            ("1 century 1 decade", (1320, 0, 0)),
            ("P1Y2M3DT4H5M6S", (14, 3, 4 * HOUR + 306 * SECOND)),
            ("P0001-02-03T04:05:06", (14, 3, 4 * HOUR + 306 * SECOND)),
            ("PT-1.5H", (0, 0, -HOUR - HOUR / 2)),
            ("P2W", (0, 14, 0)),
            (".5 s", (0, 0, SECOND / 2)),
        ] {
            assert_eq!(shown(text), expected, "{text}");
        }
    }

    #[test]
    fn the_field_behind_the_text_is_the_unit_and_cuts_what_is_smaller() {
        assert_eq!(fields("10", Some(Unit::Minute)), (0, 0, 600 * SECOND));
        assert_eq!(fields("1-2", Some(Unit::Month)), (14, 0, 0));
        assert_eq!(
            fields("1 2:03:04", Some(Unit::Minute)),
            (0, 1, 2 * HOUR + 180 * SECOND)
        );
        assert_eq!(fields("1 2:03:04", Some(Unit::Day)), (0, 1, 0));
        assert_eq!(fields("2:03", Some(Unit::Second)), (0, 0, 123 * SECOND));
        assert_eq!(fields("1 year 5 months", Some(Unit::Year)), (12, 0, 0));
    }

    #[test]
    fn what_is_no_interval_is_refused_and_so_is_one_that_is_too_long() {
        for text in [
            "",
            "x",
            "1 x",
            "day",
            "1 day 2 days",
            "1:2:3:4",
            "1:61",
            "1-13",
            "ago",
            "1 day ago 2 hours",
            "P",
            "PT",
            "P1X",
            "1--2",
            "1 day 1:00 2:00",
            "ä",
            "1 dayä",
        ] {
            assert_eq!(
                read(text, None).map_err(|error| error.state),
                Err(SqlState::InvalidDatetimeFormat),
                "{text}"
            );
        }
        for text in [
            "200000000 years",
            "3000000000 days",
            "9999999 hours 9999999999 min",
        ] {
            assert_eq!(
                read(text, None).map_err(|error| error.state),
                Err(SqlState::DatetimeFieldOverflow),
                "{text}"
            );
        }
    }
}
