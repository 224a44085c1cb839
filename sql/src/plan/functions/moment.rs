//! A moment taken apart: year, month, day, week and clock, in the proleptic Gregorian calendar.

use std::ops::RangeInclusive;

use crate::text::civil;

pub(crate) const MICROS_PER_SECOND: i64 = 1_000_000;
pub(crate) const MICROS_PER_DAY: i64 = 86_400 * MICROS_PER_SECOND;
/// The Julian day of 1970-01-01.
const EPOCH_JULIAN_DAY: i64 = 2_440_588;

/// The days that a date can be, counted from 1970-01-01: from 4714-11-24 BC to 5874897-12-31.
pub(crate) const DAYS: RangeInclusive<i64> = -EPOCH_JULIAN_DAY..=2_145_042_905;

/// Years beyond this have no date.
pub(crate) const YEAR_MAX: i64 = 5_874_897;

/// Names of the months, in lower case.
pub(crate) const MONTH_NAMES: [&str; 12] = [
    "january",
    "february",
    "march",
    "april",
    "may",
    "june",
    "july",
    "august",
    "september",
    "october",
    "november",
    "december",
];

/// A local time.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Moment {
    /// Since 1970-01-01.
    days: i64,
    micros_of_day: i64,
    /// 1 BC is the year 0.
    year: i64,
    month: i64,
    day: i64,
}

impl Moment {
    /// From days since 1970-01-01 and microseconds since midnight.
    pub(crate) fn new(days: i64, micros_of_day: i64) -> Self {
        let (year, month, day) = civil(days);
        Self {
            days,
            micros_of_day,
            year,
            month,
            day,
        }
    }

    /// From microseconds since 1970-01-01 00:00:00.
    pub(crate) fn of_micros(micros: i64) -> Self {
        Self::new(
            micros.div_euclid(MICROS_PER_DAY),
            micros.rem_euclid(MICROS_PER_DAY),
        )
    }

    /// The year; those before Christ are counted backwards from 1.
    pub(crate) fn year(self) -> i64 {
        counted(self.year)
    }

    /// The year as it counts on; that before 1 is 0.
    pub(crate) fn astronomical_year(self) -> i64 {
        self.year
    }

    /// Days since 1970-01-01.
    pub(crate) fn days(self) -> i64 {
        self.days
    }

    /// Microseconds since midnight.
    pub(crate) fn micros_of_day(self) -> i64 {
        self.micros_of_day
    }

    /// 1 to 12.
    pub(crate) fn month(self) -> i64 {
        self.month
    }

    /// 1 to 31.
    pub(crate) fn day(self) -> i64 {
        self.day
    }

    /// 0 to 23.
    pub(crate) fn hour(self) -> i64 {
        self.second_of_day() / 3600
    }

    /// Seconds since midnight.
    pub(crate) fn second_of_day(self) -> i64 {
        self.micros_of_day / MICROS_PER_SECOND
    }

    /// Microseconds of the second.
    pub(crate) fn micros(self) -> i64 {
        self.micros_of_day % MICROS_PER_SECOND
    }

    /// 1 to 366.
    pub(crate) fn day_of_year(self) -> i64 {
        self.days - first_day(self.year) + 1
    }

    /// Monday is 1, Sunday is 7.
    pub(crate) fn iso_day(self) -> i64 {
        (self.days + 3).rem_euclid(7) + 1
    }

    /// Year and number of the week: that of its Thursday.
    pub(crate) fn iso_week(self) -> (i64, i64) {
        let thursday = self.thursday();
        let (year, ..) = civil(thursday);
        (counted(year), (thursday - first_day(year)) / 7 + 1)
    }

    /// The day of the year of ISO weeks.
    pub(crate) fn iso_day_of_year(self) -> i64 {
        (self.iso_week().1 - 1) * 7 + self.iso_day()
    }

    /// Days since 4714-11-24 BC.
    pub(crate) fn julian_day(self) -> i64 {
        self.days + EPOCH_JULIAN_DAY
    }

    fn thursday(self) -> i64 {
        self.days - self.iso_day() + 4
    }
}

/// Days from 1970-01-01 to a day that there is; the year 0 is 1 BC.
pub(crate) fn day_of(year: i64, month: i64, day: i64) -> Option<i64> {
    if !(1..=12).contains(&month) || day < 1 || day > month_length(year, month) || year.abs() > YEAR_MAX {
        return None;
    }
    let before: i64 = (1..month).map(|month| month_length(year, month)).sum();
    Some(first_day(year) + before + day - 1)
}

/// How many days a month has.
pub(crate) fn month_length(year: i64, month: i64) -> i64 {
    match month {
        2 if year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// Days from 1970-01-01 to the Monday of a week of an ISO year.
pub(crate) fn iso_week_start(year: i64, week: i64) -> i64 {
    // The fourth of January is in the first week.
    let fourth = first_day(year) + 3;
    fourth - (fourth + 3).rem_euclid(7) + (week - 1) * 7
}

/// Days from 1970-01-01 to a Julian day.
pub(crate) fn day_of_julian(julian: i64) -> i64 {
    julian - EPOCH_JULIAN_DAY
}

fn counted(year: i64) -> i64 {
    if year <= 0 { 1 - year } else { year }
}

/// Days from 1970-01-01 to the first day of a year.
pub(crate) fn first_day(year: i64) -> i64 {
    let before = year - 1;
    before * 365 + before.div_euclid(4) - before.div_euclid(100) + before.div_euclid(400) - 719_162
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_weeks_and_years_meet_at_their_ends() {
        // 2024-02-29, 2023-01-01 (in the last week of 2022), 0001-01-01.
        let leap = Moment::new(19_782, 0);
        assert_eq!((leap.year(), leap.month(), leap.day()), (2024, 2, 29));
        assert_eq!(
            (leap.day_of_year(), leap.iso_day(), leap.iso_week()),
            (60, 4, (2024, 9))
        );
        let new_year = Moment::new(19_358, 0);
        assert_eq!((new_year.iso_week(), new_year.iso_day()), ((2022, 52), 7));
        assert_eq!(new_year.iso_day_of_year(), 364);
        let first = Moment::new(-719_162, 0);
        assert_eq!((first.year(), first.day_of_year()), (1, 1));
    }
}
