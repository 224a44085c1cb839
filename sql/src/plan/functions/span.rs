//! Lengths of time: months, days and microseconds, computed with as PostgreSQL does.

use arrow::datatypes::IntervalMonthDayNano;

use super::moment::{MICROS_PER_DAY, Moment, day_of, month_length};
use crate::{SqlError, SqlState};

/// Days that a month counts where a fraction of one becomes days.
const MONTH_DAYS: i64 = 30;

/// An interval.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Span {
    pub(crate) months: i64,
    pub(crate) days: i64,
    pub(crate) micros: i64,
}

impl Span {
    pub(crate) fn of(interval: IntervalMonthDayNano) -> Self {
        Self {
            months: i64::from(interval.months),
            days: i64::from(interval.days),
            micros: interval.nanoseconds / 1000,
        }
    }

    /// # Errors
    /// 22008 for one that is too long.
    pub(crate) fn arrow(self) -> Result<IntervalMonthDayNano, SqlError> {
        let parts = (
            i32::try_from(self.months),
            i32::try_from(self.days),
            self.micros.checked_mul(1000),
        );
        match parts {
            (Ok(months), Ok(days), Some(nanos)) => Ok(IntervalMonthDayNano::new(months, days, nanos)),
            _ => Err(out_of_range()),
        }
    }

    /// Times a number; fractions of months become days, and those of days microseconds.
    pub(crate) fn times(self, factor: f64) -> Result<Self, SqlError> {
        self.scaled(|value| value * factor)
    }

    /// Divides by a number that is not zero, as [`Self::times`].
    pub(crate) fn divided(self, divisor: f64) -> Result<Self, SqlError> {
        self.scaled(|value| value / divisor)
    }

    fn scaled(self, scale: impl Fn(f64) -> f64) -> Result<Self, SqlError> {
        let months = scale(self.months as f64);
        let days = scale(self.days as f64);
        let whole = |value: f64| -> Result<i64, SqlError> {
            let fits = value.is_finite() && value.abs() < 9e18;
            if fits {
                Ok(value as i64)
            } else {
                Err(out_of_range())
            }
        };
        // Rounded to microseconds, as PostgreSQL does, so that a third of a month is ten days.
        let round = |value: f64| (value * 1e6).round_ties_even() / 1e6;
        let month_days = round((months - months.trunc()) * MONTH_DAYS as f64);
        let mut rest = round((days - days.trunc() + month_days - month_days.trunc()) * 86_400.0);
        let mut days = whole(days)? + whole(month_days)?;
        if rest.abs() >= 86_400.0 {
            days += whole(rest / 86_400.0)?;
            rest %= 86_400.0;
        }
        let micros = whole((scale(self.micros as f64) + rest * 1e6).round_ties_even())?;
        Ok(Self {
            months: whole(months)?,
            days,
            micros,
        })
    }

    /// Whole thirties of days as months.
    pub(crate) fn justified_days(self) -> Self {
        let mut span = self;
        carry(&mut span.months, &mut span.days, MONTH_DAYS);
        let sign = span.days;
        share_sign(&mut span.months, &mut span.days, MONTH_DAYS, sign);
        span
    }

    /// Whole 24 hours as days.
    pub(crate) fn justified_hours(self) -> Self {
        let mut span = self;
        carry(&mut span.days, &mut span.micros, MICROS_PER_DAY);
        let sign = span.micros;
        share_sign(&mut span.days, &mut span.micros, MICROS_PER_DAY, sign);
        span
    }

    /// Both, with one sign for all.
    pub(crate) fn justified(self) -> Self {
        let mut span = self;
        // Days are moved first so that none is lost between the two.
        carry(&mut span.days, &mut span.micros, MICROS_PER_DAY);
        carry(&mut span.months, &mut span.days, MONTH_DAYS);
        let below = if span.days == 0 { span.micros } else { span.days };
        share_sign(&mut span.months, &mut span.days, MONTH_DAYS, below);
        let sign = span.micros;
        share_sign(&mut span.days, &mut span.micros, MICROS_PER_DAY, sign);
        span
    }

    /// From one timestamp to another in whole days and the rest.
    pub(crate) fn between(from: i64, to: i64) -> Result<Self, SqlError> {
        let micros = to.checked_sub(from).ok_or_else(out_of_range)?;
        Ok(Self {
            months: 0,
            days: micros / MICROS_PER_DAY,
            micros: micros % MICROS_PER_DAY,
        })
    }

    /// From one timestamp to another in years, months, days and the rest, as `age` counts.
    pub(crate) fn age(from: i64, to: i64) -> Self {
        let is_negative = to < from;
        let (early, late) = if is_negative { (to, from) } else { (from, to) };
        let (a, b) = (Moment::of_micros(early), Moment::of_micros(late));
        let mut micros = b.micros_of_day() - a.micros_of_day();
        let mut days = b.day() - a.day();
        let mut months = (b.astronomical_year() - a.astronomical_year()) * 12 + b.month() - a.month();
        if micros < 0 {
            micros += MICROS_PER_DAY;
            days -= 1;
        }
        while days < 0 {
            // The month of the earlier timestamp lends its days.
            days += month_length(a.astronomical_year(), a.month());
            months -= 1;
        }
        let sign = if is_negative { -1 } else { 1 };
        Self {
            months: sign * months,
            days: sign * days,
            micros: sign * micros,
        }
    }

    /// A timestamp so much later: months first, whose last day may be an earlier one.
    ///
    /// # Errors
    /// 22008 beyond what timestamps count.
    pub(crate) fn after(self, at: i64) -> Result<i64, SqlError> {
        let moment = Moment::of_micros(at);
        let mut days = moment.days();
        if self.months != 0 {
            let months = moment.astronomical_year() * 12 + moment.month() - 1 + self.months;
            let (year, month) = (months.div_euclid(12), months.rem_euclid(12) + 1);
            let day = moment.day().min(month_length(year, month));
            days = day_of(year, month, day).ok_or_else(timestamp_out_of_range)?;
        }
        let later = days
            .checked_add(self.days)
            .and_then(|days| days.checked_mul(MICROS_PER_DAY))
            .and_then(|start| start.checked_add(moment.micros_of_day()))
            .and_then(|at| at.checked_add(self.micros));
        later.ok_or_else(timestamp_out_of_range)
    }

    /// The interval that takes time back.
    pub(crate) fn negated(self) -> Self {
        Self {
            months: -self.months,
            days: -self.days,
            micros: -self.micros,
        }
    }
}

/// The length by which PostgreSQL compares intervals, in nanoseconds: months have 30 days and days 24 hours.
pub(crate) fn length(interval: IntervalMonthDayNano) -> i128 {
    let days = i128::from(interval.months) * i128::from(MONTH_DAYS) + i128::from(interval.days);
    days * i128::from(MICROS_PER_DAY) * 1000 + i128::from(interval.nanoseconds)
}

pub(crate) fn out_of_range() -> SqlError {
    SqlError::new(SqlState::DatetimeFieldOverflow, "interval out of range")
}

pub(crate) fn timestamp_out_of_range() -> SqlError {
    SqlError::new(SqlState::DatetimeFieldOverflow, "timestamp out of range")
}

/// Moves whole units of a part up to the part above it.
fn carry(above: &mut i64, part: &mut i64, unit: i64) {
    let whole = *part / unit;
    *part -= whole * unit;
    *above += whole;
}

/// Moves one unit down where what is below, whose sign is that of `below`, has another sign than the part above.
fn share_sign(above: &mut i64, part: &mut i64, unit: i64, below: i64) {
    if *above > 0 && below < 0 {
        *part += unit;
        *above -= 1;
    } else if *above < 0 && below > 0 {
        *part -= unit;
        *above += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn span(months: i64, days: i64, micros: i64) -> Span {
        Span { months, days, micros }
    }

    const HOUR: i64 = MICROS_PER_DAY / 24;

    #[test]
    fn fractions_go_down_and_whole_parts_go_up() {
        assert_eq!(span(1, 0, 0).times(1.5).unwrap(), span(1, 15, 0));
        assert_eq!(span(0, 1, 0).times(1.5).unwrap(), span(0, 1, 12 * HOUR));
        assert_eq!(span(1, 0, 0).times(1.0 / 3.0).unwrap(), span(0, 10, 0));
        assert_eq!(span(12, 65, 0).justified_days(), span(14, 5, 0));
        assert_eq!(span(0, 0, 50 * HOUR).justified_hours(), span(0, 2, 2 * HOUR));
        assert_eq!(span(1, 0, -HOUR).justified(), span(0, 29, 23 * HOUR));
    }

    #[test]
    fn months_end_on_their_last_day() {
        let day = |year, month, day| day_of(year, month, day).unwrap() * MICROS_PER_DAY;
        assert_eq!(span(1, 0, 0).after(day(2024, 1, 31)).unwrap(), day(2024, 2, 29));
        assert_eq!(span(-12, 0, 0).after(day(2024, 2, 29)).unwrap(), day(2023, 2, 28));
        assert_eq!(Span::age(day(2024, 2, 29), day(2024, 3, 31)), span(1, 2, 0));
        assert_eq!(
            Span::age(day(1957, 6, 13), day(2001, 4, 10)),
            span(43 * 12 + 9, 27, 0)
        );
    }
}
