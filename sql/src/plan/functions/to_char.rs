//! `to_char(time, pattern)` with PostgreSQL's patterns; DataFusion's function of this name has those of `strftime`.

use std::fmt::Write;

use arrow::datatypes::TimestampMicrosecondType;

use super::args::{Args, Computed};
use super::moment::Moment;
use super::span::Span;
use crate::SqlError;

/// `to_char(time, pattern)`
pub(crate) fn texts(args: &Args) -> Computed {
    let (times, patterns) = (args.numbers::<TimestampMicrosecondType>(0), args.texts(1));
    let mut read: Option<(&str, Pattern)> = None;
    args.strict_texts(|row, text| {
        let pattern = patterns.get(row);
        if !matches!(&read, Some((same, _)) if *same == pattern) {
            read = Some((pattern, Pattern::read(pattern)?));
        }
        if let Some((_, pattern)) = &read {
            pattern.write(Moment::of_micros(times.get(row)), text);
        }
        Ok(())
    })
}

/// An interval: its hours may be more than a day has, and its days are not those of a month.
///
/// # Errors
/// Parts that PostgreSQL has and this function has not; those that an interval does not have.
pub(crate) fn write_interval(span: Span, pattern: &str, text: &mut String) -> Result<(), SqlError> {
    let pattern = Pattern::read(pattern)?;
    let (hours, micros) = (span.micros / MICROS_PER_HOUR, span.micros % MICROS_PER_HOUR);
    let clock = Moment::new(0, micros.abs());
    for part in &pattern.0 {
        let Part::Field {
            word,
            is_filled,
            ordinal,
            ..
        } = part
        else {
            if let Part::Text(char) = part {
                text.push(*char);
            }
            continue;
        };
        let width = |width: usize| if *is_filled { width } else { 0 };
        let number = |value: i64, digits: usize| {
            let digits = width(digits) + usize::from(value < 0 && *is_filled);
            format!("{value:0digits$}")
        };
        let written = match *word {
            "HH24" => number(hours, 2),
            "HH12" | "HH" => number(if hours % 12 == 0 { 12 } else { hours % 12 }, 2),
            "DD" => number(span.days, 2),
            "DDD" => number(span.months * 30 + span.days, 3),
            "MM" => number(span.months % 12, 2),
            "YYYY" => number(span.months / 12, 4),
            "MI" | "SS" | "MS" | "US" | "FF1" | "FF2" | "FF3" | "FF4" | "FF5" | "FF6" => {
                let start = text.len();
                if let Part::Field { field, letters, .. } = part {
                    field.write(clock, *letters, *is_filled, text);
                }
                end_ordinal(*ordinal, start, text);
                continue;
            }
            other => {
                return Err(SqlError::unsupported(format!(
                    "\"{other}\" in a pattern of to_char() for an interval"
                )));
            }
        };
        let start = text.len();
        text.push_str(&written);
        end_ordinal(*ordinal, start, text);
    }
    Ok(())
}

const MICROS_PER_HOUR: i64 = 3_600_000_000;

const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];
const DAYS: [&str; 7] = [
    "Monday",
    "Tuesday",
    "Wednesday",
    "Thursday",
    "Friday",
    "Saturday",
    "Sunday",
];
/// The length that names of months and days are filled up to.
const NAME_WIDTH: usize = 9;

/// What stands in a pattern, with how it is computed; what another begins with comes after that one.
const FIELDS: [(&str, Field); 43] = [
    ("HH24", Field::Number(2, |at| at.hour())),
    ("HH12", Field::Number(2, |at| (at.hour() + 11) % 12 + 1)),
    ("HH", Field::Number(2, |at| (at.hour() + 11) % 12 + 1)),
    ("MI", Field::Number(2, |at| at.second_of_day() / 60 % 60)),
    ("SSSSS", Field::Number(0, |at| at.second_of_day())),
    ("SSSS", Field::Number(0, |at| at.second_of_day())),
    ("SS", Field::Number(2, |at| at.second_of_day() % 60)),
    ("MS", Field::Fraction(3, |at| at.micros() / 1000)),
    ("US", Field::Fraction(6, |at| at.micros())),
    ("FF1", Field::Fraction(1, |at| at.micros() / 100_000)),
    ("FF2", Field::Fraction(2, |at| at.micros() / 10_000)),
    ("FF3", Field::Fraction(3, |at| at.micros() / 1000)),
    ("FF4", Field::Fraction(4, |at| at.micros() / 100)),
    ("FF5", Field::Fraction(5, |at| at.micros() / 10)),
    ("FF6", Field::Fraction(6, |at| at.micros())),
    ("A.M.", Field::Half(["A.M.", "P.M."])),
    ("P.M.", Field::Half(["A.M.", "P.M."])),
    ("AM", Field::Half(["AM", "PM"])),
    ("PM", Field::Half(["AM", "PM"])),
    ("B.C.", Field::Era(["B.C.", "A.D."])),
    ("A.D.", Field::Era(["B.C.", "A.D."])),
    ("BC", Field::Era(["BC", "AD"])),
    ("AD", Field::Era(["BC", "AD"])),
    ("CC", Field::Number(2, century)),
    ("RM", Field::Roman),
    ("Y,YYY", Field::Thousands),
    ("YYYY", Field::Number(4, year)),
    ("YYY", Field::Number(3, |at| year(at) % 1000)),
    ("YY", Field::Number(2, |at| year(at) % 100)),
    ("Y", Field::Number(1, |at| year(at) % 10)),
    ("IYYY", Field::Number(4, |at| at.iso_week().0)),
    ("IYY", Field::Number(3, |at| at.iso_week().0 % 1000)),
    ("IY", Field::Number(2, |at| at.iso_week().0 % 100)),
    ("IDDD", Field::Number(3, |at| at.iso_day_of_year())),
    ("IW", Field::Number(2, |at| at.iso_week().1)),
    ("ID", Field::Number(1, |at| at.iso_day())),
    ("I", Field::Number(1, |at| at.iso_week().0 % 10)),
    ("DDD", Field::Number(3, |at| at.day_of_year())),
    ("DD", Field::Number(2, |at| at.day())),
    ("D", Field::Number(1, |at| at.iso_day() % 7 + 1)),
    ("MM", Field::Number(2, |at| at.month())),
    ("WW", Field::Number(2, |at| (at.day_of_year() - 1) / 7 + 1)),
    ("W", Field::Number(1, |at| (at.day() - 1) / 7 + 1)),
];
/// These have no upper and lower case of their own, and no other begins with them.
const LAST_FIELDS: [(&str, Field); 2] = [
    ("Q", Field::Number(1, |at| (at.month() - 1) / 3 + 1)),
    ("J", Field::Number(0, |at| at.julian_day())),
];
/// Names, as they are written; another case gives the name in that case.
const NAMES: [(&str, Field); 4] = [
    (
        "Month",
        Field::Name(&MONTHS, NAME_WIDTH, |at| at.month() as usize - 1),
    ),
    ("Mon", Field::Name(&MONTHS, 3, |at| at.month() as usize - 1)),
    (
        "Day",
        Field::Name(&DAYS, NAME_WIDTH, |at| at.iso_day() as usize - 1),
    ),
    ("Dy", Field::Name(&DAYS, 3, |at| at.iso_day() as usize - 1)),
];
/// What PostgreSQL has beside.
const UNSUPPORTED: [&str; 6] = ["TZH", "TZM", "TZ", "OF", "FX", "TM"];

/// Months from January to December.
const ROMAN: [&str; 12] = [
    "I", "II", "III", "IV", "V", "VI", "VII", "VIII", "IX", "X", "XI", "XII",
];
/// The length that they are filled up to.
const ROMAN_WIDTH: usize = 4;

/// The year of its era: there is none between 1 BC and 1.
fn year(at: Moment) -> i64 {
    at.year().abs()
}

fn century(at: Moment) -> i64 {
    match at.astronomical_year() {
        year @ 1.. => (year - 1) / 100 + 1,
        year => year / 100 - 1,
    }
}

/// How a field is computed.
#[derive(Clone, Copy)]
enum Field {
    /// A number, filled with zeros up to so many digits.
    Number(usize, fn(Moment) -> i64),
    /// Digits of a second behind the point; they are never left out.
    Fraction(usize, fn(Moment) -> i64),
    /// Before noon, after noon.
    Half([&'static str; 2]),
    /// Before and after the year 1.
    Era([&'static str; 2]),
    /// The month in Roman numerals.
    Roman,
    /// The year with a comma.
    Thousands,
    /// A name, filled with spaces up to [`NAME_WIDTH`], or its first characters.
    Name(&'static [&'static str], usize, fn(Moment) -> usize),
}

/// Whether names are written in capitals, small letters, or as names are.
#[derive(Clone, Copy, PartialEq)]
enum Letters {
    Upper,
    Lower,
    Name,
}

enum Part {
    Text(char),
    Field {
        word: &'static str,
        field: Field,
        letters: Letters,
        is_filled: bool,
        /// In which letters the end of an ordinal number follows, if it does.
        ordinal: Option<Letters>,
    },
}

struct Pattern(Vec<Part>);

impl Pattern {
    /// # Errors
    /// Parts that PostgreSQL has and this function has not.
    fn read(text: &str) -> Result<Self, SqlError> {
        let mut parts = Vec::new();
        let mut rest = text;
        while let Some(char) = rest.chars().next() {
            if let Some(word) = UNSUPPORTED.iter().find(|word| begins_with(rest, word).is_some()) {
                return Err(unsupported(word));
            }
            let (is_filled, at) = match rest.strip_prefix("FM").or_else(|| rest.strip_prefix("fm")) {
                Some(after) => (false, after),
                None => (true, rest),
            };
            if let Some((word, field, letters)) = field_at(at) {
                rest = &at[word.len()..];
                if begins_with(rest, "SP").is_some() {
                    return Err(unsupported("SP"));
                }
                let ordinal = begins_with(rest, "TH");
                if ordinal.is_some() {
                    rest = &rest[2..];
                }
                parts.push(Part::Field {
                    word,
                    field,
                    letters,
                    is_filled,
                    ordinal: ordinal.filter(|_| field.is_number()),
                });
                continue;
            }
            if !is_filled {
                rest = at;
                continue;
            }
            rest = match char {
                '"' => quoted(&rest[1..], &mut parts),
                '\\' if rest[1..].starts_with('"') => {
                    parts.push(Part::Text('"'));
                    &rest[2..]
                }
                _ => {
                    parts.push(Part::Text(char));
                    &rest[char.len_utf8()..]
                }
            };
        }
        Ok(Self(parts))
    }

    fn write(&self, at: Moment, text: &mut String) {
        for part in &self.0 {
            match part {
                Part::Text(char) => text.push(*char),
                Part::Field {
                    field,
                    letters,
                    is_filled,
                    ordinal,
                    ..
                } => {
                    let start = text.len();
                    field.write(at, *letters, *is_filled, text);
                    end_ordinal(*ordinal, start, text);
                }
            }
        }
    }
}

/// Ends an ordinal number, which begins at `start`: `1st`, `2ND`, `11th`.
fn end_ordinal(letters: Option<Letters>, start: usize, text: &mut String) {
    let Some(letters) = letters else { return };
    let mut digits = text.bytes().skip(start).rev();
    let (last, before) = (digits.next(), digits.next());
    let end = match (before, last) {
        (Some(b'1'), _) => "TH",
        (_, Some(b'1')) => "ST",
        (_, Some(b'2')) => "ND",
        (_, Some(b'3')) => "RD",
        _ => "TH",
    };
    match letters {
        Letters::Lower => text.push_str(&end.to_lowercase()),
        Letters::Upper | Letters::Name => text.push_str(end),
    }
}

impl Field {
    fn is_number(self) -> bool {
        matches!(self, Self::Number(..) | Self::Fraction(..) | Self::Thousands)
    }

    fn write(self, at: Moment, letters: Letters, is_filled: bool, text: &mut String) {
        let in_letters = |name: &str| match letters {
            Letters::Upper => name.to_uppercase(),
            Letters::Lower => name.to_lowercase(),
            Letters::Name => name.to_owned(),
        };
        let written = match self {
            Self::Number(width, number) => {
                let width = if is_filled { width } else { 0 };
                let number = number(at);
                let width = width + usize::from(number < 0 && is_filled);
                write!(text, "{number:0width$}")
            }
            Self::Fraction(width, number) => write!(text, "{:0width$}", number(at)),
            Self::Half([morning, afternoon]) => {
                let name = if at.hour() < 12 { morning } else { afternoon };
                write!(text, "{}", in_letters(name))
            }
            Self::Era([before, after]) => {
                let name = if at.astronomical_year() > 0 { after } else { before };
                write!(text, "{}", in_letters(name))
            }
            Self::Roman => {
                let month = in_letters(ROMAN[at.month() as usize - 1]);
                let width = if is_filled { ROMAN_WIDTH } else { 0 };
                write!(text, "{month:width$}")
            }
            Self::Thousands => write!(text, "{},{:03}", year(at) / 1000, year(at) % 1000),
            Self::Name(names, length, index) => {
                let name = names[index(at)];
                let name = in_letters(&name[..name.len().min(length)]);
                let width = if is_filled { length } else { 0 };
                write!(text, "{name:width$}")
            }
        };
        written.expect("a text takes everything");
    }
}

/// The field that the text begins with, as it is written there.
fn field_at(text: &str) -> Option<(&'static str, Field, Letters)> {
    let name = NAMES.iter().find_map(|(word, field)| {
        let as_name = text.starts_with(word).then_some(Letters::Name);
        let letters = as_name.or_else(|| begins_with(text, word))?;
        Some((*word, *field, letters))
    });
    name.or_else(|| {
        FIELDS.iter().chain(&LAST_FIELDS).find_map(|(word, field)| {
            let letters = begins_with(text, word)?;
            Some((*word, *field, letters))
        })
    })
}

/// In which letters the text begins with the word: all capital or all small.
fn begins_with(text: &str, word: &str) -> Option<Letters> {
    let start = text.get(..word.len())?;
    if start == word.to_uppercase() {
        return Some(Letters::Upper);
    }
    (start == word.to_lowercase()).then_some(Letters::Lower)
}

/// Takes the text up to the next double quote as it is; gives what comes after it.
fn quoted<'text>(text: &'text str, parts: &mut Vec<Part>) -> &'text str {
    let mut chars = text.char_indices();
    while let Some((at, char)) = chars.next() {
        match char {
            '"' => return &text[at + 1..],
            '\\' => parts.extend(chars.next().map(|(_, escaped)| Part::Text(escaped))),
            _ => parts.push(Part::Text(char)),
        }
    }
    ""
}

fn unsupported(word: &str) -> SqlError {
    SqlError::unsupported(format!("\"{word}\" in a pattern of to_char()"))
        .with_hint("Text that stands for itself is written in double quotes.")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(pattern: &str, micros: i64) -> String {
        let mut text = String::new();
        Pattern::read(pattern)
            .unwrap()
            .write(Moment::of_micros(micros), &mut text);
        text
    }

    #[test]
    fn patterns_give_what_they_give_in_postgres() {
        // 2024-12-30 15:04:05.678901, a Monday of the first ISO week of 2025.
        let at = 1_735_571_045_678_901;
        let cases = [
            ("YYYY-MM-DD HH24:MI:SS.US", "2024-12-30 15:04:05.678901"),
            ("yyyy-mm-dd hh:mi:ss pm", "2024-12-30 03:04:05 pm"),
            ("YYY YY Y MS FF2 SSSS", "024 24 4 678 67 54245"),
            ("IYYY IYY IY I IW ID IDDD", "2025 025 25 5 01 1 001"),
            ("DDD D WW W Q J", "365 2 53 5 4 2460675"),
            (
                "[Month] [FMMonth] [MONTH] [mon] [Dy] [day]",
                "[December ] [December] [DECEMBER ] [dec] [Mon] [monday   ]",
            ),
            ("FMHH12 FMMI FMDDD FMFF1 FMUS A.M.", "3 4 365 6 678901 P.M."),
            ("\"Week of\" IW \\\" \"a\\\"b\" é", "Week of 01 \" a\"b é"),
            (
                "DDTH FMDDth CC Y,YYY HH12TH MIth DDDth",
                "30TH 30th 21 2,024 03RD 04th 365th",
            ),
            ("[RM] [FMrm] AD b.c.", "[XII ] [xii] AD a.d."),
        ];
        for (pattern, expected) in cases {
            assert_eq!(shown(pattern, at), expected, "{pattern}");
        }
        assert_eq!(
            shown("YYYY-MM-DD HH12:MI:SS.MS AM", -1),
            "1969-12-31 11:59:59.999 PM"
        );
        assert_eq!(shown("HH12 HH24", 0), "12 00");
        // 2021-01-01
        assert_eq!(shown("YYYYFMDDTH", 1_609_459_200_000_000), "20211ST");
    }

    #[test]
    fn what_is_not_there_is_refused_by_name() {
        for pattern in ["HH24 TZ", "DDsp", "tm", "FX", "of"] {
            assert!(Pattern::read(pattern).is_err(), "{pattern}");
        }
    }
}
