//! `to_date(text, pattern)` and `to_timestamp(text, pattern)`: times read by the patterns that `to_char` writes.

use super::moment::{
    MICROS_PER_DAY, MICROS_PER_SECOND, MONTH_NAMES, day_of, day_of_julian, first_day, iso_week_start,
};
use crate::{SqlError, SqlState};

/// What a part of a pattern reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Word {
    Year(usize),
    IsoYear(usize),
    Month,
    MonthName,
    ShortMonthName,
    Day,
    DayOfYear,
    DayName,
    ShortDayName,
    DayOfWeek,
    IsoDay,
    IsoDayOfYear,
    IsoWeek,
    Week,
    Hour24,
    Hour12,
    Minute,
    Second,
    SecondOfDay,
    /// Digits behind the point of a second, so many of them.
    Fraction(usize),
    Half,
    Era,
    Julian,
    Quarter,
    Fill,
}

/// In capitals; what another begins with comes after that one.
const WORDS: [(&str, Word); 43] = [
    ("YYYY", Word::Year(4)),
    ("YYY", Word::Year(3)),
    ("YY", Word::Year(2)),
    ("Y", Word::Year(1)),
    ("IYYY", Word::IsoYear(4)),
    ("IYY", Word::IsoYear(3)),
    ("IY", Word::IsoYear(2)),
    ("IDDD", Word::IsoDayOfYear),
    ("IW", Word::IsoWeek),
    ("ID", Word::IsoDay),
    ("I", Word::IsoYear(1)),
    ("MONTH", Word::MonthName),
    ("MON", Word::ShortMonthName),
    ("MM", Word::Month),
    ("MI", Word::Minute),
    ("MS", Word::Fraction(3)),
    ("DDD", Word::DayOfYear),
    ("DD", Word::Day),
    ("DAY", Word::DayName),
    ("DY", Word::ShortDayName),
    ("D", Word::DayOfWeek),
    ("HH24", Word::Hour24),
    ("HH12", Word::Hour12),
    ("HH", Word::Hour12),
    ("SSSSS", Word::SecondOfDay),
    ("SSSS", Word::SecondOfDay),
    ("SS", Word::Second),
    ("US", Word::Fraction(6)),
    ("FF1", Word::Fraction(1)),
    ("FF2", Word::Fraction(2)),
    ("FF3", Word::Fraction(3)),
    ("FF4", Word::Fraction(4)),
    ("FF5", Word::Fraction(5)),
    ("FF6", Word::Fraction(6)),
    ("FM", Word::Fill),
    ("A.M.", Word::Half),
    ("P.M.", Word::Half),
    ("AM", Word::Half),
    ("PM", Word::Half),
    ("BC", Word::Era),
    ("AD", Word::Era),
    ("WW", Word::Week),
    ("J", Word::Julian),
];
const QUARTER: (&str, Word) = ("Q", Word::Quarter);
/// What PostgreSQL has beside.
const UNSUPPORTED: [&str; 8] = ["Y,YYY", "CC", "RM", "TZ", "OF", "B.C.", "A.D.", "FX"];

const DAYS: [&str; 7] = [
    "monday",
    "tuesday",
    "wednesday",
    "thursday",
    "friday",
    "saturday",
    "sunday",
];

enum Part {
    Word(Word),
    Text(char),
    /// In double quotes: as many characters are passed over.
    Quoted(usize),
}

/// A pattern that times are read by.
pub(crate) struct TimePattern(Vec<Part>);

/// What a text has said.
#[derive(Default)]
struct Read {
    date: CalendarDate,
    iso: IsoDate,
    clock: Clock,
    julian: Option<i64>,
}

#[derive(Default)]
struct CalendarDate {
    year: Option<i64>,
    month: Option<i64>,
    day: Option<i64>,
    day_of_year: Option<i64>,
    week: Option<i64>,
    is_bc: bool,
}

/// A day by the week that it is in.
#[derive(Default)]
struct IsoDate {
    year: Option<i64>,
    week: Option<i64>,
    day: Option<i64>,
    day_of_year: Option<i64>,
}

#[derive(Default)]
struct Clock {
    hour: i64,
    is_hour_12: bool,
    is_afternoon: Option<bool>,
    minute: i64,
    second: i64,
    micros: i64,
    second_of_day: Option<i64>,
}

impl TimePattern {
    /// # Errors
    /// Parts that PostgreSQL has and this function has not.
    pub(crate) fn read(text: &str) -> Result<Self, SqlError> {
        let mut parts = Vec::new();
        let mut rest = text;
        while let Some(char) = rest.chars().next() {
            let begins = |word: &str| {
                rest.get(..word.len())
                    .is_some_and(|start| start.eq_ignore_ascii_case(word))
            };
            if let Some(word) = UNSUPPORTED.iter().find(|word| begins(word)) {
                return Err(SqlError::unsupported(format!(
                    "\"{word}\" in a pattern of to_date() and to_timestamp()"
                )));
            }
            let found = WORDS.iter().chain([&QUARTER]).find(|(word, _)| begins(word));
            if let Some((word, kind)) = found {
                parts.push(Part::Word(*kind));
                rest = &rest[word.len()..];
                // `TH` behind a number is passed over by the digits.
                let has_ordinal = rest.get(..2).is_some_and(|end| end.eq_ignore_ascii_case("th"));
                if has_ordinal {
                    parts.push(Part::Quoted(2));
                    rest = &rest[2..];
                }
                continue;
            }
            rest = &rest[char.len_utf8()..];
            if char == '"' {
                let end = rest.find('"').unwrap_or(rest.len());
                parts.push(Part::Quoted(rest[..end].chars().count()));
                rest = rest.get(end + 1..).unwrap_or("");
            } else {
                parts.push(Part::Text(char));
            }
        }
        Ok(Self(parts))
    }

    /// Microseconds since 1970.
    ///
    /// # Errors
    /// 22007 for a text of another form, 22008 for a field that is too large.
    pub(crate) fn timestamp(&self, text: &str) -> Result<i64, SqlError> {
        let read = self.fields(text)?;
        let days = read.days().ok_or_else(|| out_of_range(text))?;
        let clock = read.clock().ok_or_else(|| out_of_range(text))?;
        days.checked_mul(MICROS_PER_DAY)
            .and_then(|start| start.checked_add(clock))
            .ok_or_else(|| out_of_range(text))
    }

    fn fields(&self, text: &str) -> Result<Read, SqlError> {
        let mut read = Read::default();
        let mut rest = text;
        for (at, part) in self.0.iter().enumerate() {
            match part {
                Part::Quoted(length) => {
                    let end = rest.char_indices().nth(*length).map_or(rest.len(), |(at, _)| at);
                    rest = &rest[end..];
                }
                Part::Text(char) => {
                    let trimmed = rest.trim_start();
                    let next = trimmed.chars().next();
                    let is_separator = |c: char| !c.is_alphanumeric() && !c.is_whitespace();
                    let passes = match char.is_whitespace() {
                        true => next.is_some_and(|next| is_separator(next) && next != '-' && next != '+'),
                        false if char.is_alphanumeric() => true,
                        false => next.is_some_and(is_separator),
                    };
                    rest = match next {
                        Some(next) if passes => &trimmed[next.len_utf8()..],
                        _ => trimmed,
                    };
                }
                Part::Word(word) => {
                    rest = rest.trim_start();
                    if rest.is_empty() {
                        break;
                    }
                    let is_fixed = matches!(self.0.get(at + 1), Some(Part::Word(next)) if next.is_number());
                    rest = read.take(*word, rest, is_fixed).ok_or_else(|| {
                        SqlError::new(
                            SqlState::InvalidDatetimeFormat,
                            format!("invalid value \"{}\" for \"{}\"", first_word(rest), word.name()),
                        )
                    })?;
                }
            }
        }
        Ok(read)
    }
}

fn first_word(text: &str) -> &str {
    let end = text.find(|c: char| !c.is_alphanumeric()).unwrap_or(text.len());
    &text[..end.max(text.chars().next().map_or(0, char::len_utf8))]
}

fn out_of_range(text: &str) -> SqlError {
    SqlError::new(
        SqlState::DatetimeFieldOverflow,
        format!("date/time field value out of range: \"{text}\""),
    )
}

impl Word {
    fn is_number(self) -> bool {
        !matches!(
            self,
            Self::MonthName
                | Self::ShortMonthName
                | Self::DayName
                | Self::ShortDayName
                | Self::Half
                | Self::Era
                | Self::Fill
        )
    }

    fn name(self) -> &'static str {
        let found = WORDS.iter().chain([&QUARTER]).find(|(_, word)| *word == self);
        found.map_or("?", |(name, _)| *name)
    }

    /// The most digits that it has, where nothing parts it from the next.
    fn width(self) -> usize {
        match self {
            Self::Year(width) | Self::IsoYear(width) | Self::Fraction(width) => width,
            Self::DayOfYear | Self::IsoDayOfYear => 3,
            Self::DayOfWeek | Self::IsoDay | Self::Quarter => 1,
            Self::SecondOfDay => 5,
            Self::Julian => 7,
            _ => 2,
        }
    }
}

impl Read {
    /// Takes one part from the text; gives the rest.
    fn take<'t>(&mut self, word: Word, text: &'t str, is_fixed: bool) -> Option<&'t str> {
        match word {
            Word::Fill => Some(text),
            Word::MonthName | Word::ShortMonthName => {
                let (month, rest) = named(text, &MONTH_NAMES)?;
                self.date.month = Some(month);
                Some(rest)
            }
            Word::DayName | Word::ShortDayName => named(text, &DAYS).map(|(_, rest)| rest),
            Word::Half => {
                let letter = text.chars().next()?.to_ascii_lowercase();
                let rest = ["a.m.", "p.m.", "am", "pm"].into_iter().find_map(|half| {
                    let start = text.get(..half.len())?;
                    start.eq_ignore_ascii_case(half).then(|| &text[half.len()..])
                })?;
                self.clock.is_afternoon = Some(letter == 'p');
                Some(rest)
            }
            Word::Era => {
                self.date.is_bc = text.get(..2)?.eq_ignore_ascii_case("bc");
                let is_era = self.date.is_bc || text.get(..2)?.eq_ignore_ascii_case("ad");
                is_era.then(|| &text[2..])
            }
            _ => self.take_number(word, text, is_fixed),
        }
    }

    fn take_number<'t>(&mut self, word: Word, text: &'t str, is_fixed: bool) -> Option<&'t str> {
        let (is_negative, digits) = match text.strip_prefix('-') {
            Some(digits) if matches!(word, Word::Year(_)) => (true, digits),
            _ => (false, text),
        };
        let end = digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len());
        let width = word.width();
        let is_open = matches!(word, Word::Year(_) | Word::IsoYear(_) | Word::Julian);
        let end = if is_fixed || !is_open {
            end.min(width.max(usize::from(matches!(word, Word::Fraction(_))) * 6))
        } else {
            end
        };
        let end = if is_fixed { end.min(width) } else { end };
        let number: i64 = digits[..end].parse().ok()?;
        let signed = if is_negative { -number } else { number };
        match word {
            Word::Year(_) => self.date.year = Some(full_year(signed, end)),
            Word::IsoYear(_) => self.iso.year = Some(full_year(signed, end)),
            Word::Month => self.date.month = Some(number),
            Word::Day => self.date.day = Some(number),
            Word::DayOfYear => self.date.day_of_year = Some(number),
            Word::IsoDay => self.iso.day = Some(number),
            Word::IsoDayOfYear => self.iso.day_of_year = Some(number),
            Word::IsoWeek => self.iso.week = Some(number),
            Word::Week => self.date.week = Some(number),
            Word::Hour24 => self.clock.hour = number,
            Word::Hour12 => (self.clock.hour, self.clock.is_hour_12) = (number, true),
            Word::Minute => self.clock.minute = number,
            Word::Second => self.clock.second = number,
            Word::SecondOfDay => self.clock.second_of_day = Some(number),
            Word::Fraction(_) => {
                let places = u32::try_from(6usize.checked_sub(end)?).ok()?;
                self.clock.micros = number * 10i64.pow(places);
            }
            Word::Julian => self.julian = Some(number),
            _ => {}
        }
        Some(&digits[end..])
    }

    fn days(&self) -> Option<i64> {
        if let Some(julian) = self.julian {
            return Some(day_of_julian(julian));
        }
        if self.iso.year.is_some() || self.iso.week.is_some() {
            let start = iso_week_start(self.iso.year?, 1);
            if let Some(day) = self.iso.day_of_year {
                return Some(start + day - 1);
            }
            let week = self.iso.week.unwrap_or(1);
            let day = self.iso.day.unwrap_or(1);
            let fits = (1..=53).contains(&week) && (1..=7).contains(&day);
            return fits.then_some(start + (week - 1) * 7 + day - 1);
        }
        let is_bc = self.date.is_bc;
        let year = self
            .date
            .year
            .map_or(0, |year| if is_bc { 1 - year } else { year });
        // Without a year it is the first before Christ, as in PostgreSQL.
        let year = if self.date.year.is_some_and(|year| year < 0) {
            year + 1
        } else {
            year
        };
        if let Some(day) = self.date.day_of_year {
            let fits = (1..=first_day(year + 1) - first_day(year)).contains(&day);
            return fits.then(|| first_day(year) + day - 1);
        }
        if let Some(week) = self.date.week {
            return (1..=53).contains(&week).then(|| first_day(year) + (week - 1) * 7);
        }
        day_of(year, self.date.month.unwrap_or(1), self.date.day.unwrap_or(1))
    }

    fn clock(&self) -> Option<i64> {
        if let Some(second) = self.clock.second_of_day {
            return (0..86_400)
                .contains(&second)
                .then_some(second * MICROS_PER_SECOND);
        }
        let mut hour = self.clock.hour;
        if self.clock.is_hour_12 || self.clock.is_afternoon.is_some() {
            let is_none = hour == 0 && self.clock.is_afternoon.is_none();
            if !(1..=12).contains(&hour) && !is_none {
                return None;
            }
            hour = hour % 12
                + if self.clock.is_afternoon == Some(true) {
                    12
                } else {
                    0
                };
        }
        let fits = hour < 24 && self.clock.minute < 60 && self.clock.second < 60;
        fits.then(|| {
            (hour * 3600 + self.clock.minute * 60 + self.clock.second) * MICROS_PER_SECOND + self.clock.micros
        })
    }
}

/// Years of fewer than four digits are those nearest to 2020.
fn full_year(year: i64, digits: usize) -> i64 {
    match digits {
        1 | 2 if year < 70 => year + 2000,
        1 | 2 => year + 1900,
        3 if year < 520 => year + 2000,
        3 => year + 1000,
        _ => year,
    }
}

/// The number of a name, or of its first three letters, that the text begins with.
fn named<'t>(text: &'t str, names: &[&str]) -> Option<(i64, &'t str)> {
    let begins = |word: &str| {
        text.get(..word.len())
            .is_some_and(|start| start.eq_ignore_ascii_case(word))
    };
    let place = names.iter().position(|name| begins(&name[..3]))?;
    let length = if begins(names[place]) {
        names[place].len()
    } else {
        3
    };
    Some((place as i64 + 1, &text[length..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str, pattern: &str) -> Result<i64, SqlError> {
        TimePattern::read(pattern)?.timestamp(text)
    }

    #[test]
    fn texts_are_read_by_their_pattern() {
        let day = day_of(2024, 5, 6).unwrap() * MICROS_PER_DAY;
        for (text, pattern) in [
            ("2024-05-06", "YYYY-MM-DD"),
            ("20240506", "YYYYMMDD"),
            ("06 May 2024", "DD Mon YYYY"),
            ("May 6, 2024", "FMMonth DD, YYYY"),
            ("2024 127", "YYYY DDD"),
            ("2024-W19-1", "IYYY-\"W\"IW-ID"),
            ("06/05/24", "DD/MM/YY"),
            ("2460437", "J"),
        ] {
            assert_eq!(read(text, pattern), Ok(day), "{text}");
        }
        let clock = (15 * 3600 + 4 * 60 + 5) * MICROS_PER_SECOND + 500_000;
        assert_eq!(
            read("2024-05-06 03:04:05.5 PM", "YYYY-MM-DD HH12:MI:SS.MS AM"),
            Ok(day + clock)
        );
        assert_eq!(
            read("2024-02-30", "YYYY-MM-DD").unwrap_err().state,
            SqlState::DatetimeFieldOverflow
        );
        assert_eq!(
            read("abc", "YYYY-MM-DD").unwrap_err().state,
            SqlState::InvalidDatetimeFormat
        );
    }
}
