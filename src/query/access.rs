//! [`Access`]: which rows a statement has to read for what it demands of columns, and by which order of them.

use std::collections::BTreeMap;

use arrow::array::ArrayRef;
use arrow::datatypes::{DataType, Schema};
use datafusion::common::Result as PlanResult;
use datafusion::error::DataFusionError;
use datafusion::logical_expr::expr::InList;
use datafusion::logical_expr::{Between, BinaryExpr, Expr, Operator};
use datafusion::scalar::ScalarValue;

use crate::engine::error::EngineError;
use crate::engine::view::{Bound, KeyRange, ViewReader};

/// More keys or ranges are not worth their lookups: the last list of values is left to a scan.
const PLACES_MAX: usize = 1_000;

/// What is demanded of columns, each by itself.
#[derive(Debug, Default)]
pub(crate) struct Conditions(BTreeMap<usize, Condition>);

/// What is demanded of one column.
#[derive(Debug, Default)]
struct Condition {
    /// One of these values.
    one_of: Option<Vec<ScalarValue>>,
    /// Not less, and whether equal is enough.
    lower: Option<(ScalarValue, bool)>,
    upper: Option<(ScalarValue, bool)>,
}

/// What is read.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Access {
    /// Everything.
    Scan,
    /// The rows of these keys, in their order.
    Keys(Vec<Vec<u8>>),
    /// What lies in these ranges, in the order of keys.
    Ranges(Vec<KeyRange>),
}

/// How a relation is read that has its rows in several orders.
#[derive(Debug)]
pub(crate) struct Choice {
    /// Which order: the place of its reader.
    pub(crate) place: usize,
    /// What is read.
    pub(crate) access: Access,
    /// How many columns, the first of the order, are given.
    pub(crate) given: usize,
    /// How many of these have given values.
    pub(crate) equal: usize,
    /// How many of these, the first ones, have exactly one value.
    pub(crate) single: usize,
    /// Whether the rows that are read are those that are demanded, and no others.
    pub(crate) is_exact: bool,
}

impl Conditions {
    /// What `filters` demand of columns of `schema`, as far as it is understood.
    pub(crate) fn of(filters: &[Expr], schema: &Schema) -> Self {
        let mut conditions = Self::default();
        for filter in filters {
            conditions.add(filter, schema);
        }
        conditions
    }

    /// Whether nothing is demanded.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Demands one of these values; those that are demanded already and are not among them are not demanded any more.
    pub(crate) fn one_of(&mut self, column: usize, values: Vec<ScalarValue>) {
        let own = &mut self.0.entry(column).or_default().one_of;
        match own {
            Some(own) => own.retain(|value| values.contains(value)),
            None => *own = Some(values),
        }
    }

    /// Demands a value that is not less than this one, or greater if `inclusive` is false.
    pub(crate) fn at_least(&mut self, column: usize, value: ScalarValue, inclusive: bool) {
        let own = &mut self.0.entry(column).or_default().lower;
        let is_tighter = own.as_ref().is_none_or(|(known, _)| value > *known);
        match own {
            Some((known, known_inclusive)) if *known == value => *known_inclusive &= inclusive,
            _ if is_tighter => *own = Some((value, inclusive)),
            _ => {}
        }
    }

    /// Demands a value that is not greater than this one, or less if `inclusive` is false.
    pub(crate) fn at_most(&mut self, column: usize, value: ScalarValue, inclusive: bool) {
        let own = &mut self.0.entry(column).or_default().upper;
        let is_tighter = own.as_ref().is_none_or(|(known, _)| value < *known);
        match own {
            Some((known, known_inclusive)) if *known == value => *known_inclusive &= inclusive,
            _ if is_tighter => *own = Some((value, inclusive)),
            _ => {}
        }
    }

    /// The values of the columns `key`, if exactly one value is demanded of each of them, and nothing else.
    pub(crate) fn point(&self, key: &[usize]) -> Option<Vec<&ScalarValue>> {
        if self.0.len() != key.len() {
            return None;
        }
        let value = |column: &usize| {
            let condition = self.0.get(column)?;
            match condition.one_of.as_deref() {
                Some([value]) if condition.lower.is_none() && condition.upper.is_none() => Some(value),
                _ => None,
            }
        };
        key.iter().map(value).collect()
    }

    /// The least and the greatest whole number, or time in µs, that a column may have.
    pub(crate) fn range_of(&self, column: usize) -> (Option<i64>, Option<i64>) {
        let Some(condition) = self.0.get(&column) else {
            return (None, None);
        };
        let own = |bound: &Option<(ScalarValue, bool)>| bound.as_ref().and_then(|(value, _)| whole(value));
        let values = condition
            .one_of
            .iter()
            .flatten()
            .map(whole)
            .collect::<Option<Vec<_>>>();
        let values = values.unwrap_or_default();
        let lower = own(&condition.lower)
            .into_iter()
            .chain(values.iter().min().copied());
        let upper = own(&condition.upper)
            .into_iter()
            .chain(values.iter().max().copied());
        (lower.max(), upper.min())
    }

    /// The whole numbers of which a column has one; `None` if that is not demanded.
    pub(crate) fn values_of(&self, column: usize) -> Option<Vec<i64>> {
        let values = self.0.get(&column)?.one_of.as_ref()?;
        values.iter().map(whole).collect()
    }

    fn add(&mut self, filter: &Expr, schema: &Schema) {
        match filter {
            Expr::BinaryExpr(BinaryExpr {
                left,
                op: Operator::And,
                right,
            }) => {
                self.add(left, schema);
                self.add(right, schema);
            }
            Expr::BinaryExpr(BinaryExpr { left, op, right }) => {
                let compared = match (compared(left, right, schema), compared(right, left, schema)) {
                    (Some(compared), _) => Some((compared, *op)),
                    (None, Some(compared)) => op.swap().map(|op| (compared, op)),
                    (None, None) => None,
                };
                match compared {
                    Some(((column, value), Operator::Eq)) => self.one_of(column, vec![value]),
                    Some(((column, value), Operator::Gt)) => self.at_least(column, value, false),
                    Some(((column, value), Operator::GtEq)) => self.at_least(column, value, true),
                    Some(((column, value), Operator::Lt)) => self.at_most(column, value, false),
                    Some(((column, value), Operator::LtEq)) => self.at_most(column, value, true),
                    _ => {
                        let mut values = Vec::new();
                        if let Some(column) = alternatives(filter, schema, &mut values) {
                            self.one_of(column, values);
                        }
                    }
                }
            }
            Expr::InList(InList {
                expr,
                list,
                negated: false,
            }) => {
                let each = list.iter().map(|value| compared(expr, value, schema));
                if let Some(values) = each.collect::<Option<Vec<_>>>()
                    && let Some((column, _)) = values.first()
                {
                    let column = *column;
                    self.one_of(column, values.into_iter().map(|(_, value)| value).collect());
                }
            }
            Expr::Between(Between {
                expr,
                negated: false,
                low,
                high,
            }) => {
                if let (Some((column, low)), Some((_, high))) =
                    (compared(expr, low, schema), compared(expr, high, schema))
                {
                    self.at_least(column, low, true);
                    self.at_most(column, high, true);
                }
            }
            _ => {}
        }
    }

    /// How what is demanded is read, of a relation that has its rows in the orders of `readers`: the first of the best.
    ///
    /// # Errors
    /// Values that do not fit their columns (internal).
    pub(crate) fn choose(&self, readers: &[&ViewReader]) -> PlanResult<Choice> {
        let mut best = Choice {
            place: 0,
            access: Access::Scan,
            given: 0,
            equal: 0,
            single: 0,
            is_exact: self.is_empty(),
        };
        let mut best_score = 0;
        for (place, reader) in readers.iter().enumerate() {
            let fit = self.fit(reader);
            let Fit { equal, ranged, .. } = fit;
            let is_whole = reader.key().is_some_and(|key| key.len() == equal);
            // Given values narrow more than bounds do.
            let score = match is_whole {
                true => usize::MAX,
                false => 2 * equal + usize::from(ranged),
            };
            if score <= best_score {
                continue;
            }
            best_score = score;
            let given = equal + usize::from(ranged);
            let columns = &reader.sorted_by()[..given];
            let single = columns[..equal].iter().take_while(|(column, _)| {
                self.0[column]
                    .one_of
                    .as_ref()
                    .is_some_and(|values| values.len() == 1)
            });
            best = Choice {
                place,
                given,
                equal,
                single: single.count(),
                is_exact: self.0.len() == given && self.is_exact(columns, ranged),
                access: self.access(reader, &fit, is_whole)?,
            };
        }
        Ok(best)
    }

    /// What the conditions say of the first columns.
    fn fit(&self, reader: &ViewReader) -> Fit {
        let fit = |equal, ranged, places| Fit {
            equal,
            ranged,
            places,
        };
        let (mut equal, mut places) = (0, 1_usize);
        for (column, _) in reader.sorted_by() {
            let Some(condition) = self.0.get(column) else {
                return fit(equal, false, places);
            };
            match &condition.one_of {
                Some(values) if places.saturating_mul(values.len()) <= PLACES_MAX => {
                    places *= values.len();
                    equal += 1;
                }
                Some(_) => return fit(equal, false, places),
                None => return fit(equal, true, places),
            }
        }
        fit(equal, false, places)
    }

    /// Whether the ranges of an access say all that is demanded: a column with given values has no bounds besides.
    fn is_exact(&self, columns: &[(usize, highwater_storage::KeyOrder)], ranged: bool) -> bool {
        let equal = &columns[..columns.len() - usize::from(ranged)];
        equal.iter().all(|(column, _)| {
            let condition = &self.0[column];
            condition.lower.is_none() && condition.upper.is_none()
        })
    }

    fn access(&self, reader: &ViewReader, fit: &Fit, is_whole: bool) -> PlanResult<Access> {
        let Fit {
            equal,
            ranged,
            places,
        } = *fit;
        let columns = reader.sorted_by();
        let mut prefixes: Vec<Vec<ArrayRef>> = Vec::with_capacity(places);
        prefixes.push(Vec::new());
        for (column, _) in &columns[..equal] {
            let values = self.0[column].one_of.iter().flatten();
            let values = values
                .map(ScalarValue::to_array)
                .collect::<PlanResult<Vec<_>>>()?;
            let longer = prefixes.iter().flat_map(|prefix| {
                let longer =
                    move |value: &ArrayRef| [prefix.as_slice(), std::slice::from_ref(value)].concat();
                values.iter().map(longer)
            });
            prefixes = longer.collect();
        }
        if is_whole {
            let keys = prefixes.iter().map(|prefix| reader.whole_key(prefix));
            let mut keys = keys.collect::<Result<Vec<_>, _>>().map_err(external)?;
            keys.sort_unstable();
            keys.dedup();
            return Ok(Access::Keys(keys));
        }
        let bounds = match columns.get(equal).and_then(|(column, _)| self.0.get(column)) {
            Some(condition) if ranged => Some((bound(&condition.lower)?, bound(&condition.upper)?)),
            _ => None,
        };
        let ranges = prefixes
            .iter()
            .map(|prefix| reader.range(prefix, bounds.as_ref()));
        let mut ranges = ranges.collect::<Result<Vec<_>, _>>().map_err(external)?;
        ranges.retain(|range| !range.is_empty());
        ranges.sort_unstable();
        ranges.dedup();
        Ok(Access::Ranges(ranges))
    }
}

/// What conditions say of the columns that rows are sorted by.
#[derive(Debug, Clone, Copy)]
struct Fit {
    /// How many of the first ones have given values.
    equal: usize,
    /// Whether the next one lies in a range.
    ranged: bool,
    /// How many places the given values are.
    places: usize,
}

fn external(error: EngineError) -> DataFusionError {
    DataFusionError::External(Box::new(error))
}

fn bound(of: &Option<(ScalarValue, bool)>) -> PlanResult<Bound> {
    let array = |(value, inclusive): &(ScalarValue, bool)| Ok((value.to_array()?, *inclusive));
    of.as_ref().map(array).transpose()
}

/// A whole number, or a time in µs.
fn whole(value: &ScalarValue) -> Option<i64> {
    match value {
        ScalarValue::Int16(value) => value.map(i64::from),
        ScalarValue::Int32(value) => value.map(i64::from),
        ScalarValue::Int64(value) | ScalarValue::TimestampMicrosecond(value, _) => *value,
        _ => None,
    }
}

/// The column and the value of a comparison of the two, if keys are equal and sorted as they are compared.
fn compared(column: &Expr, value: &Expr, schema: &Schema) -> Option<(usize, ScalarValue)> {
    let (Expr::Column(column), Expr::Literal(value, _)) = (column, value) else {
        return None;
    };
    let (index, field) = schema.column_with_name(&column.name)?;
    let fits = !value.is_null() && value.data_type() == *field.data_type() && is_plain(field.data_type());
    fits.then(|| (index, value.clone()))
}

/// The column of which one of several values is demanded, by OR.
fn alternatives(filter: &Expr, schema: &Schema, values: &mut Vec<ScalarValue>) -> Option<usize> {
    let Expr::BinaryExpr(BinaryExpr { left, op, right }) = filter else {
        return None;
    };
    match op {
        Operator::Eq => {
            let (column, value) = compared(left, right, schema).or_else(|| compared(right, left, schema))?;
            values.push(value);
            Some(column)
        }
        Operator::Or => {
            let column = alternatives(left, schema, values)?;
            (alternatives(right, schema, values)? == column).then_some(column)
        }
        _ => None,
    }
}

/// Whether values of a type are equal where their keys are, and sorted as these.
pub(crate) fn is_plain(data_type: &DataType) -> bool {
    matches!(
        data_type,
        DataType::Boolean
            | DataType::Int16
            | DataType::Int32
            | DataType::Int64
            | DataType::Float32
            | DataType::Float64
            | DataType::Decimal128(..)
            | DataType::Utf8
            | DataType::Binary
            | DataType::Date32
            | DataType::Time64(_)
            | DataType::Timestamp(..)
    )
}
