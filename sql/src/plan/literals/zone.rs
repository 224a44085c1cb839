//! Time zones by name: what their clocks show, and when they show it. A time that clocks show twice is the later one, and one
//! that they skip is counted on from before the gap, as PostgreSQL has both.

use arrow::array::{Array, AsArray, Int32Array, TimestampMicrosecondArray};
use arrow::compute::{DatePart, date_part};
use arrow::datatypes::{DataType, Int32Type, TimeUnit};

use crate::plan::functions::moment::{MICROS_PER_DAY, MICROS_PER_SECOND, day_of};
use crate::plan::functions::timestamp_out_of_range;
use crate::{SqlError, SqlState};

/// Hours east of Greenwich of the abbreviations that are no zones of their own.
const ABBREVIATIONS: [(&str, i64); 26] = [
    ("utc", 0),
    ("gmt", 0),
    ("ut", 0),
    ("z", 0),
    ("zulu", 0),
    ("wet", 0),
    ("west", 1),
    ("bst", 1),
    ("cet", 1),
    ("met", 1),
    ("cest", 2),
    ("eet", 2),
    ("ist", 2),
    ("sast", 2),
    ("eest", 3),
    ("jst", 9),
    ("kst", 9),
    ("est", -5),
    ("edt", -4),
    ("cst", -6),
    ("cdt", -5),
    ("mst", -7),
    ("mdt", -6),
    ("pst", -8),
    ("pdt", -7),
    ("hst", -10),
];
const HOURS_MAX: i64 = 24;
/// The times that clocks of zones show, as microseconds before and after 1970: 262,000 years.
const CLOCKS_END: u64 = 8_200_000_000_000_000_000;

/// How far clocks are ahead of Greenwich.
enum Clocks {
    /// By so many microseconds, always.
    Fixed(i64),
    /// By the rules of a zone that Arrow knows.
    Zone(DataType),
}

impl Clocks {
    fn named(name: &str) -> Result<Self, SqlError> {
        let lower = name.to_ascii_lowercase();
        if let Some((_, hours)) = ABBREVIATIONS.iter().find(|(known, _)| *known == lower) {
            return Ok(Self::Fixed(hours * 3600 * MICROS_PER_SECOND));
        }
        if let Some(micros) = posix_offset(name) {
            return Ok(Self::Fixed(micros));
        }
        let known = [name.to_owned(), name.to_ascii_uppercase(), capitalized(&lower)];
        let probe = TimestampMicrosecondArray::from(vec![0]);
        let is_offset = name.starts_with(['+', '-']);
        let found = known.into_iter().filter(|_| !is_offset).find_map(|zone| {
            let zone = DataType::Timestamp(TimeUnit::Microsecond, Some(zone.into()));
            let there = probe.clone().with_data_type(zone.clone());
            date_part(&there, DatePart::Hour).is_ok().then_some(zone)
        });
        found.map(Self::Zone).ok_or_else(|| {
            SqlError::new(
                SqlState::InvalidParameterValue,
                format!("time zone \"{name}\" not recognized"),
            )
        })
    }

    fn shown(&self, instants: &TimestampMicrosecondArray) -> Result<TimestampMicrosecondArray, SqlError> {
        match self {
            Self::Fixed(micros) => Ok(instants.unary(|at| at.saturating_add(*micros))),
            // Beyond them Arrow has no clock, and gives none.
            Self::Zone(_) if instants.iter().flatten().any(|at| at.unsigned_abs() > CLOCKS_END) => {
                Err(timestamp_out_of_range())
            }
            Self::Zone(zone) => shown_by_zone(instants, zone),
        }
    }

    fn instants(&self, local: &TimestampMicrosecondArray) -> Result<TimestampMicrosecondArray, SqlError> {
        if let Self::Fixed(micros) = self {
            return Ok(local.unary(|at| at.saturating_sub(*micros)));
        }
        let ahead = |instants: &TimestampMicrosecondArray| {
            let shown = self.shown(instants)?;
            let ahead = shown.values().iter().zip(instants.values());
            Ok::<_, SqlError>(
                ahead
                    .map(|(shown, at)| shown.wrapping_sub(*at))
                    .collect::<Vec<_>>(),
            )
        };
        let moved = |by: &[i64]| {
            let at = local.values().iter().zip(by);
            let at: Vec<i64> = at.map(|(at, by)| at.wrapping_sub(*by)).collect();
            TimestampMicrosecondArray::new(at.into(), local.nulls().cloned())
        };
        // Clocks are not set twice within two days.
        let before = ahead(&local.unary(|at| at.saturating_sub(MICROS_PER_DAY)))?;
        let after = ahead(&local.unary(|at| at.saturating_add(MICROS_PER_DAY)))?;
        let (early, late) = (moved(&before), moved(&after));
        let (at_early, at_late) = (ahead(&early)?, ahead(&late)?);
        let chosen = (0..local.len()).map(|row| {
            let (early, late) = (early.value(row), late.value(row));
            match (at_early[row] == before[row], at_late[row] == after[row]) {
                (true, false) => early,
                (false, true) => late,
                _ => early.max(late),
            }
        });
        let chosen: Vec<i64> = chosen.collect();
        Ok(TimestampMicrosecondArray::new(
            chosen.into(),
            local.nulls().cloned(),
        ))
    }
}

/// The offset of `+02`, `-03:30` or `UTC+2`, which POSIX counts to the west.
fn posix_offset(name: &str) -> Option<i64> {
    let digits_from = name.find(|c: char| !c.is_ascii_alphabetic())?;
    let (letters, offset) = name.split_at(digits_from);
    if !(letters.is_empty() || letters.len() >= 3) {
        return None;
    }
    let (sign, digits) = match offset.as_bytes().first()? {
        b'-' => (1, &offset[1..]),
        b'+' => (-1, &offset[1..]),
        _ => (-1, offset),
    };
    let mut seconds = 0;
    let mut unit = 3600;
    for (place, part) in digits.split(':').enumerate() {
        let is_number = (1..=2).contains(&part.len()) && part.bytes().all(|digit| digit.is_ascii_digit());
        let number: i64 = part.parse().ok().filter(|_| is_number && place < 3)?;
        let most = if place == 0 { HOURS_MAX } else { 59 };
        if number > most {
            return None;
        }
        seconds += number * unit;
        unit /= 60;
    }
    Some(sign * seconds * MICROS_PER_SECOND)
}

/// `America/New_York` of `america/new_york`.
fn capitalized(lower: &str) -> String {
    let mut is_first = true;
    let letters = lower.chars().map(|letter| {
        let shown = match is_first {
            true => letter.to_ascii_uppercase(),
            false => letter,
        };
        is_first = matches!(letter, '/' | '_' | '-');
        shown
    });
    letters.collect()
}

fn shown_by_zone(
    instants: &TimestampMicrosecondArray,
    zone: &DataType,
) -> Result<TimestampMicrosecondArray, SqlError> {
    let there = instants.clone().with_data_type(zone.clone());
    let part = |part: DatePart| {
        let values = date_part(&there, part)
            .map_err(|_| SqlError::new(SqlState::DatetimeFieldOverflow, "timestamp out of range"))?;
        Ok::<_, SqlError>(values.as_primitive::<Int32Type>().clone())
    };
    let [year, month, day] = [
        part(DatePart::Year)?,
        part(DatePart::Month)?,
        part(DatePart::Day)?,
    ];
    let clock = [
        part(DatePart::Hour)?,
        part(DatePart::Minute)?,
        part(DatePart::Second)?,
    ];
    let local = (0..instants.len()).map(|row| {
        if instants.is_null(row) {
            return None;
        }
        let value = |part: &Int32Array| i64::from(part.value(row));
        let days = day_of(value(&year), value(&month), value(&day))?;
        let seconds = value(&clock[0]) * 3600 + value(&clock[1]) * 60 + value(&clock[2]);
        let micros = instants.value(row).rem_euclid(MICROS_PER_SECOND);
        Some(days * MICROS_PER_DAY + seconds * MICROS_PER_SECOND + micros)
    });
    Ok(local.collect())
}

/// The instants at which clocks in a zone show local times.
///
/// # Errors
/// A zone that there is not.
pub(crate) fn all_in_zone(
    local: &TimestampMicrosecondArray,
    zone: &str,
) -> Result<TimestampMicrosecondArray, SqlError> {
    Clocks::named(zone)?.instants(local)
}

/// The instant at which clocks in a zone show a local time.
///
/// # Errors
/// A zone that there is not.
pub(crate) fn in_zone(local: i64, zone: &str) -> Result<i64, SqlError> {
    let one = TimestampMicrosecondArray::from(vec![local]);
    all_in_zone(&one, zone).map(|instants| instants.value(0))
}

/// What clocks in a zone show at instants.
///
/// # Errors
/// A zone that there is not.
pub(crate) fn shown_in_zone(
    instants: &TimestampMicrosecondArray,
    zone: &str,
) -> Result<TimestampMicrosecondArray, SqlError> {
    Clocks::named(zone)?.shown(instants)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn posix_counts_offsets_to_the_west() {
        let hour = 3600 * MICROS_PER_SECOND;
        assert_eq!(posix_offset("+02"), Some(-2 * hour));
        assert_eq!(posix_offset("-03:30"), Some(3 * hour + hour / 2));
        assert_eq!(posix_offset("UTC+2"), Some(-2 * hour));
        assert_eq!(posix_offset("5"), Some(-5 * hour));
        for name in ["+0530", "EST5EDT", "Europe/Berlin", "A+1", "", "+25"] {
            assert_eq!(posix_offset(name), None, "{name}");
        }
    }
}
