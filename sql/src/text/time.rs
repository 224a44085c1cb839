//! Dates, times and lengths of time.

use arrow::datatypes::IntervalMonthDayNano;

use super::put;

const SECONDS_PER_DAY: i64 = 86_400;
const NANOS_PER_SECOND: i64 = 1_000_000_000;

/// Writes days since 1970 as `2024-01-31`.
pub(super) fn write_date(days: i32, out: &mut String) {
    let is_bc = write_day(i64::from(days), out);
    if is_bc {
        out.push_str(" BC");
    }
}

/// Writes a time of day, counted in `per_second` parts of a second, as `01:02:03.5`.
pub(super) fn write_time(value: i64, per_second: i64, out: &mut String) {
    write_clock(
        value.div_euclid(per_second),
        value.rem_euclid(per_second),
        per_second,
        out,
    );
}

/// Writes a timestamp, counted in `per_second` parts of a second since 1970, as `2024-01-31 01:02:03.5`, and `zone`.
pub(super) fn write_timestamp(value: i64, per_second: i64, zone: &str, out: &mut String) {
    let (seconds, fraction) = (value.div_euclid(per_second), value.rem_euclid(per_second));
    let is_bc = write_day(seconds.div_euclid(SECONDS_PER_DAY), out);
    out.push(' ');
    write_clock(seconds.rem_euclid(SECONDS_PER_DAY), fraction, per_second, out);
    out.push_str(zone);
    if is_bc {
        out.push_str(" BC");
    }
}

/// Writes an interval as PostgreSQL's style `postgres` does: `1 year 2 mons -3 days +04:05:06.5`.
pub(super) fn write_interval(value: IntervalMonthDayNano, out: &mut String) {
    let start = out.len();
    let mut is_before = false;
    for (count, unit) in [
        (value.months / 12, "year"),
        (value.months % 12, "mon"),
        (value.days, "day"),
    ] {
        if count == 0 {
            continue;
        }
        let space = if out.len() > start { " " } else { "" };
        let sign = if is_before && count > 0 { "+" } else { "" };
        let plural = if count == 1 { "" } else { "s" };
        put(out, format_args!("{space}{sign}{count} {unit}{plural}"));
        is_before = count < 0;
    }
    // PostgreSQL counts in microseconds.
    let micros = value.nanoseconds / 1_000;
    if micros == 0 && out.len() > start {
        return;
    }
    if out.len() > start {
        out.push(' ');
    }
    match (micros < 0, is_before) {
        (true, _) => out.push('-'),
        (false, true) => out.push('+'),
        (false, false) => {}
    }
    let micros = micros.abs();
    write_clock(micros / 1_000_000, micros % 1_000_000, 1_000_000, out);
}

/// Writes a length of time, counted in `per_second` parts of a second, as an interval of hours and less.
pub(super) fn write_duration(value: i64, per_second: i64, out: &mut String) {
    if value < 0 {
        out.push('-');
    }
    let parts = value.unsigned_abs();
    let (seconds, fraction) = (
        parts / per_second.unsigned_abs(),
        parts % per_second.unsigned_abs(),
    );
    write_clock(seconds as i64, fraction as i64, per_second, out);
}

/// Writes a day; `true` if it is before Christ, and the year is counted backwards.
fn write_day(days: i64, out: &mut String) -> bool {
    let (year, month, day) = civil(days);
    let is_bc = year <= 0;
    let year = if is_bc { 1 - year } else { year };
    put(out, format_args!("{year:04}-{month:02}-{day:02}"));
    is_bc
}

fn write_clock(seconds: i64, fraction: i64, per_second: i64, out: &mut String) {
    let (minutes, second) = (seconds / 60, seconds % 60);
    put(
        out,
        format_args!("{:02}:{:02}:{second:02}", minutes / 60, minutes % 60),
    );
    if fraction != 0 {
        put(
            out,
            format_args!(".{:09}", fraction * (NANOS_PER_SECOND / per_second)),
        );
        out.truncate(out.trim_end_matches('0').len());
    }
}

/// Year, month and day of a count of days since 1970 in the proleptic Gregorian calendar (Howard Hinnant, "chrono-Compatible
/// Low-Level Date Algorithms"). The year 0 is 1 BC.
pub(crate) fn civil(days: i64) -> (i64, i64, i64) {
    // Days since 0000-03-01, so that leap days end a year; eras of 400 years.
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted.div_euclid(146_097), shifted.rem_euclid(146_097));
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 {
        month_from_march + 3
    } else {
        month_from_march - 9
    };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    (year, month, day)
}
