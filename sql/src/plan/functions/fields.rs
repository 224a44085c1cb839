//! `extract`, `date_part` and `date_trunc`: the fields of times and intervals.

use arrow::array::TimestampMicrosecondArray;
use arrow::datatypes::{
    DataType, Date32Type, Decimal128Type, Float64Type, IntervalMonthDayNanoType, Time64MicrosecondType,
    TimeUnit, TimestampMicrosecondType,
};
use datafusion::common::{Result as PlanResult, plan_err};
use datafusion::logical_expr::{
    ColumnarValue, Expr, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};

use super::args::{Args, Computed};
use super::define::{Definition, Kind, Overload, run_with};
use super::moment::{MICROS_PER_DAY, MICROS_PER_SECOND, Moment, day_of};
use super::span::Span;
use crate::plan::literals::{in_zone, shown_in_zone};
use crate::plan::translate::external;
use crate::plan::types::{DECIMAL_DIGITS, column_type, sql_type_name};
use crate::{SqlError, SqlState};

use Kind::{Float8, Interval, Text, Timestamp, TimestampTz};

pub(crate) static FIELDS: [Definition; 2] = [
    Definition::new(
        "date_part",
        &[
            Overload::new(&[Text, Timestamp], Float8, part),
            Overload::new(&[Text, TimestampTz], Float8, part),
            Overload::new(&[Text, Kind::Date], Float8, part),
            Overload::new(&[Text, Kind::Time], Float8, part),
            Overload::new(&[Text, Interval], Float8, part),
        ],
    ),
    Definition::new(
        "date_trunc",
        &[
            Overload::new(&[Text, TimestampTz], TimestampTz, truncated),
            Overload::new(&[Text, Timestamp], Timestamp, truncated),
            Overload::new(&[Text, Interval], Interval, truncated_interval),
            Overload::new(&[Text, TimestampTz, Text], TimestampTz, truncated_in_zone),
        ],
    ),
];

/// What can be taken out of a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Field {
    Microseconds,
    Milliseconds,
    Second,
    Minute,
    Hour,
    Day,
    Week,
    Month,
    Quarter,
    Year,
    Decade,
    Century,
    Millennium,
    DayOfWeek,
    IsoDayOfWeek,
    DayOfYear,
    IsoYear,
    Julian,
    Epoch,
    Timezone,
    TimezoneHour,
    TimezoneMinute,
}

/// What kind of time it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum TimeKind {
    Date,
    Time,
    Timestamp,
    TimestampTz,
    Interval,
}

impl Field {
    /// The field of this name, in any case.
    fn named(name: &str) -> Option<Self> {
        Some(match name.trim().to_ascii_lowercase().as_str() {
            "microsecond" | "microseconds" | "us" | "usec" | "usecs" => Self::Microseconds,
            "millisecond" | "milliseconds" | "ms" | "msec" | "msecs" => Self::Milliseconds,
            "second" | "seconds" | "s" | "sec" | "secs" => Self::Second,
            "minute" | "minutes" | "m" | "min" | "mins" => Self::Minute,
            "hour" | "hours" | "h" | "hr" | "hrs" => Self::Hour,
            "day" | "days" | "d" => Self::Day,
            "week" | "weeks" | "w" => Self::Week,
            "month" | "months" | "mon" | "mons" => Self::Month,
            "quarter" | "qtr" => Self::Quarter,
            "year" | "years" | "y" | "yr" | "yrs" => Self::Year,
            "decade" | "decades" | "dec" | "decs" => Self::Decade,
            "century" | "centuries" | "c" | "cent" => Self::Century,
            "millennium" | "millennia" | "mil" | "mils" => Self::Millennium,
            "dow" => Self::DayOfWeek,
            "isodow" => Self::IsoDayOfWeek,
            "doy" => Self::DayOfYear,
            "isoyear" => Self::IsoYear,
            "julian" | "jd" => Self::Julian,
            "epoch" => Self::Epoch,
            "timezone" => Self::Timezone,
            "timezone_hour" => Self::TimezoneHour,
            "timezone_minute" => Self::TimezoneMinute,
            _ => return None,
        })
    }

    /// Digits behind the point of `extract`.
    fn scale(self, of: TimeKind) -> i8 {
        match (self, of) {
            (Self::Second, _) => 6,
            (Self::Milliseconds, _) => 3,
            (Self::Epoch, TimeKind::Date) | (Self::Julian, TimeKind::Date) => 0,
            (Self::Epoch, _) => 6,
            (Self::Julian, _) => 20,
            _ => 0,
        }
    }
}

impl TimeKind {
    fn of(data_type: &DataType) -> Option<Self> {
        Some(match data_type {
            DataType::Date32 => Self::Date,
            DataType::Time64(_) => Self::Time,
            DataType::Timestamp(_, None) => Self::Timestamp,
            DataType::Timestamp(_, Some(_)) => Self::TimestampTz,
            DataType::Interval(_) => Self::Interval,
            _ => return None,
        })
    }

    fn name(self) -> String {
        sql_type_name(&self.data_type())
    }

    fn data_type(self) -> DataType {
        match self {
            Self::Date => DataType::Date32,
            Self::Time => DataType::Time64(TimeUnit::Microsecond),
            Self::Timestamp => Timestamp.data_type(),
            Self::TimestampTz => TimestampTz.data_type(),
            Self::Interval => Interval.data_type(),
        }
    }
}

fn unrecognized(field: &str, of: TimeKind) -> SqlError {
    SqlError::new(
        SqlState::InvalidParameterValue,
        format!("unit \"{field}\" not recognized for type {}", of.name()),
    )
}

fn unsupported(field: &str, of: TimeKind) -> SqlError {
    SqlError::new(
        SqlState::FeatureNotSupported,
        format!("unit \"{field}\" not supported for type {}", of.name()),
    )
}

/// The call for `extract(field FROM value)`; its field is checked when the type of the value is known.
pub(crate) fn untyped(field: &str, value: Expr) -> Expr {
    let udf = Extract {
        name: field.to_lowercase(),
        signature: Signature::any(1, Volatility::Immutable),
    };
    ScalarUDF::from(udf).call(vec![value])
}

/// Whether times of this kind have the field.
fn has(of: TimeKind, field: Field) -> bool {
    use Field as F;
    let is_clock = matches!(
        field,
        F::Microseconds | F::Milliseconds | F::Second | F::Minute | F::Hour
    );
    let is_zone = matches!(field, F::Timezone | F::TimezoneHour | F::TimezoneMinute);
    match of {
        TimeKind::Timestamp => !is_zone,
        TimeKind::TimestampTz => true,
        TimeKind::Date => !is_zone && !is_clock,
        TimeKind::Time => is_clock || field == F::Epoch,
        TimeKind::Interval => {
            is_clock
                || matches!(
                    field,
                    F::Day
                        | F::Month
                        | F::Quarter
                        | F::Year
                        | F::Decade
                        | F::Century
                        | F::Millennium
                        | F::Epoch
                )
        }
    }
}

/// One field of times, as NUMERIC.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Extract {
    name: String,
    signature: Signature,
}

impl Extract {
    /// What is taken out of values of this type.
    fn resolve(&self, data_type: Option<&DataType>) -> PlanResult<(Field, TimeKind)> {
        let Some(of) = data_type.and_then(|data_type| TimeKind::of(&column_type(data_type))) else {
            let types: Vec<String> = data_type.iter().map(ToString::to_string).collect();
            return plan_err!(
                "No function matches the given name and argument types 'extract({})'.",
                types.join(", ")
            );
        };
        let field = Field::named(&self.name).ok_or_else(|| external(unrecognized(&self.name, of)))?;
        match has(of, field) {
            true => Ok((field, of)),
            false => Err(external(unsupported(&self.name, of))),
        }
    }
}

impl ScalarUDFImpl for Extract {
    fn name(&self) -> &str {
        "extract"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn schema_name(&self, args: &[Expr]) -> PlanResult<String> {
        let args: Vec<String> = args.iter().map(|arg| arg.schema_name().to_string()).collect();
        Ok(format!("extract({},{})", self.name, args.join(",")))
    }

    fn display_name(&self, args: &[Expr]) -> PlanResult<String> {
        self.schema_name(args)
    }

    fn return_type(&self, args: &[DataType]) -> PlanResult<DataType> {
        let (field, of) = self.resolve(args.first())?;
        Ok(DataType::Decimal128(DECIMAL_DIGITS, field.scale(of)))
    }

    fn invoke_with_args(&self, call: ScalarFunctionArgs) -> PlanResult<ColumnarValue> {
        let types: Vec<DataType> = call
            .args
            .iter()
            .map(|arg| column_type(&arg.data_type()))
            .collect();
        let (field, of) = self.resolve(types.first())?;
        let scale = u32::from(field.scale(of).unsigned_abs());
        run_with(&call, &types, |args| {
            let values = Values::of(args, 0, of);
            args.strict::<Decimal128Type>(|row| {
                let Part { value, scale: has } = values.part(row, field);
                Ok(match has <= scale {
                    true => value * 10i128.pow(scale - has),
                    false => value / 10i128.pow(has - scale),
                })
            })
        })
    }
}

/// `date_part(field, value)`
fn part(args: &Args) -> Computed {
    let of = TimeKind::of(args.data_type(1)).expect("the overloads take times only");
    let (fields, values) = (args.texts(0), Values::of(args, 1, of));
    args.strict::<Float64Type>(|row| {
        let name = fields.get(row);
        let field = Field::named(name).ok_or_else(|| unrecognized(&name.to_lowercase(), of))?;
        if !has(of, field) {
            return Err(unsupported(&name.to_lowercase(), of));
        }
        let Part { value, scale } = values.part(row, field);
        Ok(value as f64 / 10f64.powi(scale as i32))
    })
}

/// A number with so many digits behind the point.
struct Part {
    value: i128,
    scale: u32,
}

/// Times of which parts are taken: those of a day are counted from midnight, others from 1970.
enum Values<'a> {
    Days(super::args::Column<&'a arrow::array::Date32Array>),
    Times(super::args::Column<&'a arrow::array::Time64MicrosecondArray>),
    Micros(super::args::Column<&'a TimestampMicrosecondArray>),
    Spans(super::args::Column<&'a arrow::array::IntervalMonthDayNanoArray>),
}

impl<'a> Values<'a> {
    fn of(args: &'a Args, at: usize, of: TimeKind) -> Self {
        match of {
            TimeKind::Date => Self::Days(args.numbers::<Date32Type>(at)),
            TimeKind::Time => Self::Times(args.numbers::<Time64MicrosecondType>(at)),
            TimeKind::Timestamp | TimeKind::TimestampTz => {
                Self::Micros(args.numbers::<TimestampMicrosecondType>(at))
            }
            TimeKind::Interval => Self::Spans(args.numbers::<IntervalMonthDayNanoType>(at)),
        }
    }

    fn part(&self, row: usize, field: Field) -> Part {
        match self {
            Self::Days(days) => {
                let day = i64::from(days.get(row));
                match field {
                    Field::Epoch => whole(day * 86_400),
                    _ => part_of(Moment::new(day, 0), field),
                }
            }
            Self::Times(times) => match field {
                Field::Epoch => micros(times.get(row)),
                _ => part_of(Moment::new(0, times.get(row)), field),
            },
            Self::Micros(times) => part_of(Moment::of_micros(times.get(row)), field),
            Self::Spans(spans) => part_of_span(Span::of(spans.get(row)), field),
        }
    }
}

fn whole(value: i64) -> Part {
    Part {
        value: i128::from(value),
        scale: 0,
    }
}

fn micros(value: i64) -> Part {
    Part {
        value: i128::from(value),
        scale: 6,
    }
}

fn part_of(at: Moment, field: Field) -> Part {
    let seconds = at.micros_of_day() % (60 * MICROS_PER_SECOND);
    let year = at.astronomical_year();
    // There is no year 0.
    let counted = if year <= 0 { year - 1 } else { year };
    match field {
        Field::Microseconds => whole(seconds),
        Field::Milliseconds => Part {
            value: i128::from(seconds),
            scale: 3,
        },
        Field::Second => micros(seconds),
        Field::Minute => whole(at.second_of_day() / 60 % 60),
        Field::Hour => whole(at.hour()),
        Field::Day => whole(at.day()),
        Field::Week => whole(at.iso_week().1),
        Field::Month => whole(at.month()),
        Field::Quarter => whole((at.month() - 1) / 3 + 1),
        Field::Year => whole(counted),
        Field::Decade => whole(year.div_euclid(10)),
        Field::Century => whole(hundreds(counted, 100)),
        Field::Millennium => whole(hundreds(counted, 1000)),
        Field::DayOfWeek => whole(at.iso_day() % 7),
        Field::IsoDayOfWeek => whole(at.iso_day()),
        Field::DayOfYear => whole(at.day_of_year()),
        Field::IsoYear => whole(at.iso_week().0),
        Field::Julian => Part {
            value: i128::from(at.julian_day()) * 10i128.pow(20)
                + i128::from(at.micros_of_day()) * 10i128.pow(20) / i128::from(MICROS_PER_DAY),
            scale: 20,
        },
        Field::Epoch => Part {
            value: i128::from(at.days()) * i128::from(MICROS_PER_DAY) + i128::from(at.micros_of_day()),
            scale: 6,
        },
        Field::Timezone | Field::TimezoneHour | Field::TimezoneMinute => whole(0),
    }
}

/// Centuries begin with the year 1.
fn hundreds(year: i64, length: i64) -> i64 {
    match year > 0 {
        true => (year + length - 1) / length,
        false => -((length - 1 - year) / length),
    }
}

fn part_of_span(span: Span, field: Field) -> Part {
    const HOUR: i64 = 3600 * MICROS_PER_SECOND;
    let (years, months) = (span.months / 12, span.months % 12);
    let seconds = span.micros % (60 * MICROS_PER_SECOND);
    match field {
        Field::Microseconds => whole(seconds),
        Field::Milliseconds => Part {
            value: i128::from(seconds),
            scale: 3,
        },
        Field::Second => micros(seconds),
        Field::Minute => whole(span.micros % HOUR / (60 * MICROS_PER_SECOND)),
        Field::Hour => whole(span.micros / HOUR),
        Field::Day => whole(span.days),
        Field::Month => whole(months),
        Field::Quarter => whole(months / 3 + 1),
        Field::Year => whole(years),
        Field::Decade => whole(years / 10),
        Field::Century => whole(years / 100),
        Field::Millennium => whole(years / 1000),
        _ => {
            // A year has 365.25 days, a month 30.
            let quarter_days = i128::from(years) * 1461 + i128::from(months * 30 + span.days) * 4;
            Part {
                value: quarter_days * i128::from(MICROS_PER_DAY) / 4 + i128::from(span.micros),
                scale: 6,
            }
        }
    }
}

/// The start of the field in which a local time lies.
fn start_of(at: i64, field: Field) -> Option<i64> {
    let moment = Moment::of_micros(at);
    let year = moment.astronomical_year();
    let cut = |length: i64| Some(at - at.rem_euclid(length));
    let first = |year: i64, month: i64| day_of(year, month, 1)?.checked_mul(MICROS_PER_DAY);
    match field {
        Field::Microseconds => Some(at),
        Field::Milliseconds => cut(1000),
        Field::Second => cut(MICROS_PER_SECOND),
        Field::Minute => cut(60 * MICROS_PER_SECOND),
        Field::Hour => cut(3600 * MICROS_PER_SECOND),
        Field::Day => cut(MICROS_PER_DAY),
        Field::Week => Some((moment.days() - moment.iso_day() + 1) * MICROS_PER_DAY),
        Field::Month => first(year, moment.month()),
        Field::Quarter => first(year, (moment.month() - 1) / 3 * 3 + 1),
        Field::Year => first(year, 1),
        Field::Decade => first(year.div_euclid(10) * 10, 1),
        Field::Century => first((year - 1).div_euclid(100) * 100 + 1, 1),
        Field::Millennium => first((year - 1).div_euclid(1000) * 1000 + 1, 1),
        _ => None,
    }
}

fn truncated_at(at: i64, name: &str, of: TimeKind) -> Result<i64, SqlError> {
    let lower = || name.to_lowercase();
    let field = Field::named(name).ok_or_else(|| unrecognized(&lower(), of))?;
    start_of(at, field).ok_or_else(|| unsupported(&lower(), of))
}

fn truncated(args: &Args) -> Computed {
    let of = TimeKind::of(args.data_type(1)).expect("the overloads take times only");
    let (fields, times) = (args.texts(0), args.numbers::<TimestampMicrosecondType>(1));
    args.strict::<TimestampMicrosecondType>(|row| truncated_at(times.get(row), fields.get(row), of))
}

/// Whether a field is a part of a day.
fn is_of_a_day(field: Field) -> bool {
    matches!(
        field,
        Field::Microseconds | Field::Milliseconds | Field::Second | Field::Minute | Field::Hour
    )
}

fn truncated_in_zone(args: &Args) -> Computed {
    let (fields, zones) = (args.texts(0), args.texts(2));
    let times = args.numbers::<TimestampMicrosecondType>(1);
    args.strict::<TimestampMicrosecondType>(|row| {
        let one = TimestampMicrosecondArray::from(vec![times.get(row)]);
        let local = shown_in_zone(&one, zones.get(row))?.value(0);
        let cut = truncated_at(local, fields.get(row), TimeKind::TimestampTz)?;
        // Within an hour that clocks show twice, a shorter field begins in the same one of them.
        match Field::named(fields.get(row)).is_some_and(is_of_a_day) {
            true => Ok(times.get(row) - (local - cut)),
            false => in_zone(cut, zones.get(row)),
        }
    })
}

fn truncated_interval(args: &Args) -> Computed {
    let (fields, spans) = (args.texts(0), args.numbers::<IntervalMonthDayNanoType>(1));
    args.strict::<IntervalMonthDayNanoType>(|row| {
        let (name, span) = (fields.get(row), Span::of(spans.get(row)));
        let lower = || name.to_lowercase();
        let field = Field::named(name).ok_or_else(|| unrecognized(&lower(), TimeKind::Interval))?;
        let of_months = |length: i64| Span {
            months: span.months - span.months % length,
            ..Span::default()
        };
        let of_micros = |length: i64| Span {
            micros: span.micros - span.micros % length,
            ..span
        };
        let cut = match field {
            Field::Microseconds => span,
            Field::Milliseconds => of_micros(1000),
            Field::Second => of_micros(MICROS_PER_SECOND),
            Field::Minute => of_micros(60 * MICROS_PER_SECOND),
            Field::Hour => of_micros(3600 * MICROS_PER_SECOND),
            Field::Day => Span { micros: 0, ..span },
            Field::Month => of_months(1),
            Field::Quarter => of_months(3),
            Field::Year => of_months(12),
            Field::Decade => of_months(120),
            Field::Century => of_months(1200),
            Field::Millennium => of_months(12_000),
            _ => return Err(unsupported(&lower(), TimeKind::Interval)),
        };
        cut.arrow()
    })
}
