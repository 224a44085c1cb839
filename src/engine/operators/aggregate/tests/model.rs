//! The model: rows in a list, aggregated from scratch with the plainest code there is.

use std::collections::BTreeMap;

use highwater_sql::stream_plan::{AggregateCall, AggregateFunction};

/// Columns of the test's input.
pub(super) const WINDOW: usize = 0;
pub(super) const BIGINT: usize = 1;
pub(super) const TEXT: usize = 2;
pub(super) const INTEGER: usize = 3;
pub(super) const DECIMAL: usize = 4;
pub(super) const FLOAT: usize = 5;
pub(super) const FLAG: usize = 6;
pub(super) const COLUMNS: usize = 7;

/// A value of whatever column.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Value {
    Number(i128),
    Text(String),
    /// Halves, or one of the three that are no number.
    Float(Float),
}

/// In the order of Postgres.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Float {
    NegativeInfinity,
    Halves(i64),
    Infinity,
    NaN,
}

pub(super) type Row = Vec<Option<Value>>;

impl Float {
    pub(super) fn as_f64(self) -> f64 {
        match self {
            Self::NegativeInfinity => f64::NEG_INFINITY,
            // An odd spelling of zero must not matter.
            Self::Halves(0) => -0.0,
            Self::Halves(halves) => halves as f64 / 2.0,
            Self::Infinity => f64::INFINITY,
            Self::NaN => f64::NAN,
        }
    }
}

/// The groups of `rows`, and the text of each one's output row.
pub(super) fn aggregate(
    rows: &[(Row, i64)],
    groups: &[usize],
    calls: &[AggregateCall],
) -> BTreeMap<Row, String> {
    let mut grouped: BTreeMap<Row, BTreeMap<Row, i64>> = BTreeMap::new();
    if groups.is_empty() {
        grouped.insert(Vec::new(), BTreeMap::new());
    }
    for (row, weight) in rows {
        let key: Row = groups.iter().map(|column| row[*column].clone()).collect();
        *grouped.entry(key).or_default().entry(row.clone()).or_default() += weight;
    }
    let mut output = BTreeMap::new();
    for (key, mut rows) in grouped {
        rows.retain(|_, weight| *weight != 0);
        assert!(
            rows.values().all(|weight| *weight > 0),
            "the test takes away only rows that are there"
        );
        if rows.is_empty() && !groups.is_empty() {
            continue;
        }
        let keys = key
            .iter()
            .zip(groups)
            .map(|(value, column)| text(value.as_ref(), *column));
        let results = calls.iter().map(|call| result(call, &rows));
        output.insert(key.clone(), keys.chain(results).collect::<Vec<_>>().join(" | "));
    }
    output
}

fn result(call: &AggregateCall, rows: &BTreeMap<Row, i64>) -> String {
    let is_true = |row: &Row, column: usize| row[column] == Some(Value::Number(1));
    let counted = rows
        .iter()
        .filter(|(row, _)| call.filter.is_none_or(|column| is_true(row, column)));
    let Some(argument) = call.argument else {
        return counted.map(|(_, weight)| weight).sum::<i64>().to_string();
    };
    let mut values: Vec<(Value, i64)> = counted
        .filter_map(|(row, weight)| row[argument].clone().map(|value| (value, *weight)))
        .collect();
    if call.distinct {
        values.sort();
        values.dedup_by(|left, right| left.0 == right.0);
        values.iter_mut().for_each(|(_, weight)| *weight = 1);
    }
    let count: i64 = values.iter().map(|(_, weight)| weight).sum();
    match &call.function {
        AggregateFunction::Count => count.to_string(),
        AggregateFunction::Min => text(values.iter().map(|(value, _)| value).min(), argument),
        AggregateFunction::Max => text(values.iter().map(|(value, _)| value).max(), argument),
        _ if count == 0 => "NULL".to_owned(),
        function if argument == FLOAT => {
            let sum = float_sum(&values);
            let shown = if *function == AggregateFunction::Sum {
                sum
            } else {
                sum / count as f64
            };
            format!("{shown:?}")
        }
        function => {
            let sum: i128 = values
                .iter()
                .map(|(value, weight)| match value {
                    Value::Number(number) => number * i128::from(*weight),
                    _ => panic!("only numbers are summed"),
                })
                .sum();
            if *function == AggregateFunction::Sum {
                return text(Some(&Value::Number(sum)), argument);
            }
            let factor = 10i128.pow(if argument == DECIMAL { 14 } else { 16 });
            let count = i128::from(count);
            // Half a unit, away from zero, and then cut off.
            decimal((2 * sum * factor + count * sum.signum()) / (2 * count), 16)
        }
    }
}

fn float_sum(values: &[(Value, i64)]) -> f64 {
    let floats = values.iter().flat_map(|(value, weight)| match value {
        Value::Float(float) => std::iter::repeat_n(float.as_f64(), usize::try_from(*weight).unwrap()),
        _ => panic!("only floats are summed"),
    });
    floats.fold(0.0, |sum, float| sum + float)
}

/// A value as arrow shows it.
pub(super) fn text(value: Option<&Value>, column: usize) -> String {
    match value {
        None => "NULL".to_owned(),
        Some(Value::Text(text)) => text.clone(),
        Some(Value::Float(Float::Halves(0))) => "0.0".to_owned(),
        Some(Value::Float(float)) => format!("{:?}", float.as_f64()),
        Some(Value::Number(number)) if column == DECIMAL => decimal(*number, 2),
        Some(Value::Number(number)) if column == FLAG => (*number == 1).to_string(),
        Some(Value::Number(number)) => number.to_string(),
    }
}

fn decimal(value: i128, scale: usize) -> String {
    let digits = format!("{:0width$}", value.unsigned_abs(), width = scale + 1);
    let (whole, fraction) = digits.split_at(digits.len() - scale);
    format!("{}{whole}.{fraction}", if value < 0 { "-" } else { "" })
}
