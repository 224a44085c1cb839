//! Functions that make dates, times, timestamps and intervals, or count between them.

use arrow::array::AsArray;
use arrow::datatypes::{
    Date32Type, Float64Type, Int32Type, IntervalMonthDayNanoType, Time64MicrosecondType,
    TimestampMicrosecondType,
};

use super::args::{Args, Computed};
use super::define::{Definition, Kind, Overload};
use super::moment::{MICROS_PER_DAY, MICROS_PER_SECOND, day_of};
use super::span::{Span, timestamp_out_of_range};
use crate::plan::literals::{all_in_zone, in_zone, offset_micros, shown_in_zone};
use crate::{SqlError, SqlState};

use Kind::{Bool, Date, Float8, Int4, Interval, Text, Time, Timestamp, TimestampTz};

/// The longest interval of whole microseconds, in seconds.
const SECONDS_MAX: f64 = 9.2e12;

pub(crate) static DATES: [Definition; 15] = [
    Definition::new(
        "make_date",
        &[Overload::new(&[Int4, Int4, Int4], Date, make_date)],
    ),
    Definition::new(
        "make_time",
        &[Overload::new(&[Int4, Int4, Float8], Time, make_time)],
    ),
    Definition::new(
        "make_timestamp",
        &[Overload::new(
            &[Int4, Int4, Int4, Int4, Int4, Float8],
            Timestamp,
            make_timestamp,
        )],
    ),
    Definition::new(
        "make_timestamptz",
        &[
            Overload::new(
                &[Int4, Int4, Int4, Int4, Int4, Float8],
                TimestampTz,
                make_timestamp,
            ),
            Overload::new(
                &[Int4, Int4, Int4, Int4, Int4, Float8, Text],
                TimestampTz,
                make_timestamp_in,
            ),
        ],
    ),
    Definition::new(
        "make_interval",
        &[
            Overload::new(&[], Interval, make_interval),
            Overload::new(&[Int4], Interval, make_interval),
            Overload::new(&[Int4, Int4], Interval, make_interval),
            Overload::new(&[Int4, Int4, Int4], Interval, make_interval),
            Overload::new(&[Int4, Int4, Int4, Int4], Interval, make_interval),
            Overload::new(&[Int4, Int4, Int4, Int4, Int4], Interval, make_interval),
            Overload::new(&[Int4, Int4, Int4, Int4, Int4, Int4], Interval, make_interval),
            Overload::new(
                &[Int4, Int4, Int4, Int4, Int4, Int4, Float8],
                Interval,
                make_interval,
            ),
        ],
    ),
    Definition::new(
        "justify_days",
        &[Overload::new(&[Interval], Interval, |args| {
            changed(args, Span::justified_days)
        })],
    ),
    Definition::new(
        "justify_hours",
        &[Overload::new(&[Interval], Interval, |args| {
            changed(args, Span::justified_hours)
        })],
    ),
    Definition::new(
        "justify_interval",
        &[Overload::new(&[Interval], Interval, |args| {
            changed(args, Span::justified)
        })],
    ),
    Definition::new(
        "age",
        &[
            Overload::new(&[TimestampTz, TimestampTz], Interval, age),
            Overload::new(&[Timestamp, Timestamp], Interval, age),
        ],
    ),
    Definition::new(
        "date_bin",
        &[
            Overload::new(&[Interval, Timestamp, Timestamp], Timestamp, date_bin),
            Overload::new(&[Interval, TimestampTz, TimestampTz], TimestampTz, date_bin),
        ],
    ),
    Definition::new(
        "isfinite",
        &[
            Overload::new(&[Date], Bool, is_finite),
            Overload::new(&[Timestamp], Bool, is_finite),
            Overload::new(&[TimestampTz], Bool, is_finite),
            Overload::new(&[Interval], Bool, is_finite),
        ],
    ),
    Definition::new(
        "timezone",
        &[
            Overload::new(&[Text, Timestamp], TimestampTz, at_zone),
            Overload::new(&[Text, TimestampTz], Timestamp, at_instants),
            Overload::new(&[Interval, Timestamp], TimestampTz, at_offset),
            Overload::new(&[Interval, TimestampTz], Timestamp, shown_at_offset),
        ],
    ),
    Definition::new(
        "overlaps",
        &[
            Overload::new(&[Timestamp, Timestamp, Timestamp, Timestamp], Bool, overlaps),
            Overload::new(&[Timestamp, Interval, Timestamp, Interval], Bool, overlaps),
            Overload::new(&[Timestamp, Interval, Timestamp, Timestamp], Bool, overlaps),
            Overload::new(&[Timestamp, Timestamp, Timestamp, Interval], Bool, overlaps),
        ],
    ),
    Definition::new(
        "date_add",
        &[
            Overload::new(&[Timestamp, Interval], Timestamp, |args| later(args, false)),
            Overload::new(&[TimestampTz, Interval], TimestampTz, |args| later(args, false)),
        ],
    ),
    Definition::new(
        "date_subtract",
        &[
            Overload::new(&[Timestamp, Interval], Timestamp, |args| later(args, true)),
            Overload::new(&[TimestampTz, Interval], TimestampTz, |args| later(args, true)),
        ],
    ),
];

fn out_of_range(what: &str, shown: String) -> SqlError {
    SqlError::new(
        SqlState::DatetimeFieldOverflow,
        format!("{what} field value out of range: {shown}"),
    )
}

fn int(args: &Args, at: usize, row: usize) -> i64 {
    i64::from(args.numbers::<Int32Type>(at).get(row))
}

/// Days since 1970 of year, month and day; years below zero are before Christ.
fn days(args: &Args, row: usize) -> Result<i64, SqlError> {
    let (year, month, day) = (int(args, 0, row), int(args, 1, row), int(args, 2, row));
    let astronomical = if year < 0 { year + 1 } else { year };
    let days = (year != 0).then(|| day_of(astronomical, month, day)).flatten();
    days.ok_or_else(|| out_of_range("date", format!("{year}-{month:02}-{day:02}")))
}

/// Microseconds since midnight of hour, minute and second, which are the arguments from `at` on.
fn clock(args: &Args, at: usize, row: usize) -> Result<i64, SqlError> {
    let (hour, minute) = (int(args, at, row), int(args, at + 1, row));
    let second = args.numbers::<Float64Type>(at + 2).get(row);
    let is_end_of_day = hour == 24 && minute == 0 && second == 0.0;
    let fits = (0..24).contains(&hour) && (0..60).contains(&minute) && (0.0..=60.0).contains(&second);
    if !fits && !is_end_of_day {
        return Err(out_of_range("time", format!("{hour}:{minute:02}:{second:02}")));
    }
    Ok((hour * 3600 + minute * 60) * MICROS_PER_SECOND + (second * 1e6).round_ties_even() as i64)
}

fn make_date(args: &Args) -> Computed {
    args.strict::<Date32Type>(|row| {
        let days = days(args, row)?;
        i32::try_from(days).map_err(|_| timestamp_out_of_range())
    })
}

fn make_time(args: &Args) -> Computed {
    args.strict::<Time64MicrosecondType>(|row| clock(args, 0, row))
}

fn make_timestamp(args: &Args) -> Computed {
    args.strict::<TimestampMicrosecondType>(|row| local_time(args, row))
}

/// Microseconds since 1970 of year, month, day, hour, minute and second.
fn local_time(args: &Args, row: usize) -> Result<i64, SqlError> {
    let (days, clock) = (days(args, row)?, clock(args, 3, row)?);
    let start = days.checked_mul(MICROS_PER_DAY);
    let at = start.and_then(|start| start.checked_add(clock));
    at.ok_or_else(timestamp_out_of_range)
}

fn make_timestamp_in(args: &Args) -> Computed {
    let zones = args.texts(6);
    args.strict::<TimestampMicrosecondType>(|row| {
        let local = local_time(args, row)?;
        // An offset counts to the east here, and to the west in other places that take a zone.
        match offset_micros(zones.get(row)) {
            Some(offset) => local.checked_sub(offset).ok_or_else(timestamp_out_of_range),
            None => in_zone(local, zones.get(row)),
        }
    })
}

fn make_interval(args: &Args) -> Computed {
    let part = |at: usize, row: usize| if args.len() > at { int(args, at, row) } else { 0 };
    args.strict::<IntervalMonthDayNanoType>(|row| {
        let seconds = match args.len() > 6 {
            true => args.numbers::<Float64Type>(6).get(row),
            false => 0.0,
        };
        if !seconds.is_finite() || seconds.abs() > SECONDS_MAX {
            return Err(super::span::out_of_range());
        }
        let micros = (seconds * 1e6).round_ties_even() as i64;
        Span {
            months: part(0, row) * 12 + part(1, row),
            days: part(2, row) * 7 + part(3, row),
            micros: (part(4, row) * 3600 + part(5, row) * 60) * MICROS_PER_SECOND + micros,
        }
        .arrow()
    })
}

fn changed(args: &Args, change: fn(Span) -> Span) -> Computed {
    let intervals = args.numbers::<IntervalMonthDayNanoType>(0);
    args.strict::<IntervalMonthDayNanoType>(|row| change(Span::of(intervals.get(row))).arrow())
}

fn age(args: &Args) -> Computed {
    let (to, from) = (
        args.numbers::<TimestampMicrosecondType>(0),
        args.numbers::<TimestampMicrosecondType>(1),
    );
    args.strict::<IntervalMonthDayNanoType>(|row| Span::age(from.get(row), to.get(row)).arrow())
}

fn date_bin(args: &Args) -> Computed {
    let strides = args.numbers::<IntervalMonthDayNanoType>(0);
    let (times, origins) = (
        args.numbers::<TimestampMicrosecondType>(1),
        args.numbers::<TimestampMicrosecondType>(2),
    );
    args.strict::<TimestampMicrosecondType>(|row| {
        let stride = Span::of(strides.get(row));
        if stride.months != 0 {
            return Err(SqlError::unsupported("a stride of months or years in date_bin()"));
        }
        let stride = stride.days * MICROS_PER_DAY + stride.micros;
        if stride <= 0 {
            return Err(SqlError::new(
                SqlState::DatetimeFieldOverflow,
                "stride must be greater than zero",
            ));
        }
        let (time, origin) = (times.get(row), origins.get(row));
        let since = time.checked_sub(origin).ok_or_else(super::span::out_of_range)?;
        Ok(time - since.rem_euclid(stride))
    })
}

fn is_finite(args: &Args) -> Computed {
    args.strict_bools(|_| Ok(true))
}

/// The instants at which clocks of a zone show local times.
fn at_zone(args: &Args) -> Computed {
    let (zones, times) = (args.texts(0), args.numbers::<TimestampMicrosecondType>(1));
    if args.is_constant(0)
        && let Some(zone) = zones.opt(0)
    {
        let instants = all_in_zone(args.array(1).as_primitive(), zone)?;
        return args.strict::<TimestampMicrosecondType>(|row| Ok(instants.value(args.place(1, row))));
    }
    args.strict::<TimestampMicrosecondType>(|row| in_zone(times.get(row), zones.get(row)))
}

/// What clocks of a zone show at instants: all rows at once for the zone that they have in common, others one by one.
fn at_instants(args: &Args) -> Computed {
    let zones = args.texts(0);
    let instants = args.array(1).as_primitive::<TimestampMicrosecondType>();
    if args.is_constant(0)
        && let Some(zone) = zones.opt(0)
    {
        let local = shown_in_zone(instants, zone)?;
        return args.strict::<TimestampMicrosecondType>(|row| Ok(local.value(args.place(1, row))));
    }
    args.strict::<TimestampMicrosecondType>(|row| {
        let one = instants.slice(args.place(1, row), 1);
        Ok(shown_in_zone(&one, zones.get(row))?.value(0))
    })
}

/// The distance of an offset from Greenwich in microseconds.
fn offset(args: &Args, row: usize) -> Result<i64, SqlError> {
    let span = Span::of(args.numbers::<IntervalMonthDayNanoType>(0).get(row));
    match span.months == 0 && span.days == 0 {
        true => Ok(span.micros),
        false => Err(SqlError::new(
            SqlState::InvalidParameterValue,
            "interval time zone must not include months or days",
        )),
    }
}

fn at_offset(args: &Args) -> Computed {
    let times = args.numbers::<TimestampMicrosecondType>(1);
    args.strict::<TimestampMicrosecondType>(|row| Ok(times.get(row) - offset(args, row)?))
}

fn shown_at_offset(args: &Args) -> Computed {
    let times = args.numbers::<TimestampMicrosecondType>(1);
    args.strict::<TimestampMicrosecondType>(|row| Ok(times.get(row) + offset(args, row)?))
}

fn later(args: &Args, is_back: bool) -> Computed {
    let times = args.numbers::<TimestampMicrosecondType>(0);
    let spans = args.numbers::<IntervalMonthDayNanoType>(1);
    args.strict::<TimestampMicrosecondType>(|row| {
        let span = Span::of(spans.get(row));
        let span = if is_back { span.negated() } else { span };
        span.after(times.get(row))
    })
}

/// `(start, end) OVERLAPS (start, end)`, where an end may be a length.
fn overlaps(args: &Args) -> Computed {
    let period = |from: usize, row: usize| {
        let start = args.numbers::<TimestampMicrosecondType>(from).get(row);
        let end = match args.data_type(from + 1) == &Interval.data_type() {
            true => {
                let length = args.numbers::<IntervalMonthDayNanoType>(from + 1).get(row);
                Span::of(length).after(start)?
            }
            false => args.numbers::<TimestampMicrosecondType>(from + 1).get(row),
        };
        Ok::<_, SqlError>((start.min(end), start.max(end)))
    };
    args.strict_bools(|row| {
        let (first, second) = (period(0, row)?, period(2, row)?);
        // Each holds its start and not its end, unless it is one instant.
        Ok(match first.0.cmp(&second.0) {
            std::cmp::Ordering::Equal => true,
            std::cmp::Ordering::Less => second.0 < first.1,
            std::cmp::Ordering::Greater => first.0 < second.1,
        })
    })
}
