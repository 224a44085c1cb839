//! `to_char` of numbers and intervals, `to_date`, `to_timestamp`: kernels around the patterns.

use std::fmt::Write;

use arrow::datatypes::{
    DataType, Date32Type, Decimal128Type, Float64Type, IntervalMonthDayNanoType, TimestampMicrosecondType,
};

use super::args::{Args, Computed};
use super::define::{Definition, Kind, Overload};
use super::moment::MICROS_PER_DAY;
use super::number_pattern::NumberPattern;
use super::span::{Span, timestamp_out_of_range};
use super::time_pattern::TimePattern;
use super::to_char;
use crate::{SqlError, SqlState};

use Kind::{Float8, Interval, Numeric, Text, Timestamp, TimestampTz};

/// Digits that DOUBLE PRECISION is sure of.
const FLOAT_DIGITS: usize = 15;

pub(crate) static FORMATTING: [Definition; 3] = [
    Definition::new(
        "to_char",
        &[
            Overload::new(&[TimestampTz, Text], Text, to_char::texts),
            Overload::new(&[Timestamp, Text], Text, to_char::texts),
            Overload::new(&[Interval, Text], Text, interval_texts),
            Overload::new(&[Numeric, Text], Text, number_texts),
            Overload::new(&[Float8, Text], Text, float_texts),
        ],
    ),
    Definition::new("to_date", &[Overload::new(&[Text, Text], Kind::Date, dates)]),
    Definition::new(
        "to_timestamp",
        &[
            Overload::new(&[Float8], TimestampTz, from_seconds),
            Overload::new(&[Text, Text], TimestampTz, timestamps),
        ],
    ),
];

/// The pattern of the last row, which is that of all rows almost always.
struct Known<'a, P> {
    last: Option<(&'a str, P)>,
    read: fn(&str) -> Result<P, SqlError>,
}

impl<'a, P> Known<'a, P> {
    fn new(read: fn(&str) -> Result<P, SqlError>) -> Self {
        Self { last: None, read }
    }

    fn get(&mut self, text: &'a str) -> Result<&P, SqlError> {
        let is_same = self.last.as_ref().is_some_and(|(same, _)| *same == text);
        if !is_same {
            self.last = Some((text, (self.read)(text)?));
        }
        match &self.last {
            Some((_, pattern)) => Ok(pattern),
            None => Err(SqlError::new(SqlState::InternalError, "a pattern was lost")),
        }
    }
}

fn interval_texts(args: &Args) -> Computed {
    let (spans, patterns) = (args.numbers::<IntervalMonthDayNanoType>(0), args.texts(1));
    args.strict_texts(|row, text| to_char::write_interval(Span::of(spans.get(row)), patterns.get(row), text))
}

fn number_texts(args: &Args) -> Computed {
    let DataType::Decimal128(_, scale) = args.data_type(0) else {
        return Err(SqlError::new(SqlState::InternalError, "to_char of no number"));
    };
    let scale = usize::from(scale.unsigned_abs());
    let (numbers, patterns) = (args.numbers::<Decimal128Type>(0), args.texts(1));
    let mut known = Known::new(NumberPattern::read);
    args.strict_texts(|row, text| {
        let pattern = known.get(patterns.get(row))?;
        let value = numbers.get(row);
        let number = match pattern.is_scientific() {
            true => scientific(value as f64 / 10f64.powi(scale as i32), pattern.scale()),
            false => rounded(value, scale, pattern)?,
        };
        pattern.write(&number, text);
        Ok(())
    })
}

/// The decimal text of a number with the digits of the pattern, halves away from zero.
fn rounded(value: i128, scale: usize, pattern: &NumberPattern) -> Result<String, SqlError> {
    let fault = || SqlError::new(SqlState::NumericValueOutOfRange, "numeric field overflow");
    let power = |digits: usize| 10i128.checked_pow(u32::try_from(digits).ok()?);
    let kept = pattern.scale();
    let has = (scale as i64) - (pattern.shift() as i64) - (kept as i64);
    let digits = match usize::try_from(has) {
        Ok(surplus) => {
            let one = power(surplus).ok_or_else(fault)?;
            let (whole, rest) = (value / one, value % one);
            let is_up = rest != 0 && rest.abs() >= one - rest.abs();
            if is_up { whole + value.signum() } else { whole }
        }
        Err(_) => power(has.unsigned_abs() as usize)
            .and_then(|factor| value.checked_mul(factor))
            .ok_or_else(fault)?,
    };
    let mut text = format!("{:0width$}", digits.unsigned_abs(), width = kept + 1);
    if kept > 0 {
        text.insert(text.len() - kept, '.');
    }
    if digits < 0 {
        text.insert(0, '-');
    }
    Ok(text)
}

fn float_texts(args: &Args) -> Computed {
    let (numbers, patterns) = (args.numbers::<Float64Type>(0), args.texts(1));
    let mut known = Known::new(NumberPattern::read);
    args.strict_texts(|row, text| {
        let pattern = known.get(patterns.get(row))?;
        let value = numbers.get(row);
        if pattern.is_scientific() {
            pattern.write(&scientific(value, pattern.scale()), text);
            return Ok(());
        }
        let value = value * 10f64.powi(pattern.shift() as i32);
        let mut number = String::new();
        write!(number, "{:.0}", value.abs()).expect("a text takes everything");
        let kept = pattern.scale().min(FLOAT_DIGITS.saturating_sub(number.len()));
        number.clear();
        write!(number, "{value:.kept$}").expect("a text takes everything");
        // The digits that a float does not have are zeros.
        if kept < pattern.scale() {
            if kept == 0 {
                number.push('.');
            }
            number.push_str(&"0".repeat(pattern.scale() - kept));
        }
        pattern.write(&number, text);
        Ok(())
    })
}

/// `1.23e+04`
fn scientific(value: f64, digits: usize) -> String {
    let text = format!("{value:.digits$e}");
    match text.split_once('e') {
        Some((mantissa, exponent)) => {
            let (sign, exponent) = match exponent.strip_prefix('-') {
                Some(exponent) => ('-', exponent),
                None => ('+', exponent),
            };
            format!("{mantissa}e{sign}{exponent:0>2}")
        }
        None => text,
    }
}

fn dates(args: &Args) -> Computed {
    let (texts, patterns) = (args.texts(0), args.texts(1));
    let mut known = Known::new(TimePattern::read);
    args.strict::<Date32Type>(|row| {
        let at = known.get(patterns.get(row))?.timestamp(texts.get(row))?;
        i32::try_from(at.div_euclid(MICROS_PER_DAY)).map_err(|_| timestamp_out_of_range())
    })
}

fn timestamps(args: &Args) -> Computed {
    let (texts, patterns) = (args.texts(0), args.texts(1));
    let mut known = Known::new(TimePattern::read);
    args.strict::<TimestampMicrosecondType>(|row| known.get(patterns.get(row))?.timestamp(texts.get(row)))
}

fn from_seconds(args: &Args) -> Computed {
    let seconds = args.numbers::<Float64Type>(0);
    args.strict::<TimestampMicrosecondType>(|row| {
        let seconds = seconds.get(row);
        let micros = (seconds * 1e6).round_ties_even();
        match micros.is_finite() && micros.abs() < 9.2e18 {
            true => Ok(micros as i64),
            false => Err(SqlError::new(
                SqlState::DatetimeFieldOverflow,
                format!("timestamp out of range: \"{seconds}\""),
            )),
        }
    })
}
