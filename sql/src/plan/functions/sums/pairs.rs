//! Covariance, correlation and linear regression of pairs of floats, as PostgreSQL adds them up (Youngs and Cramer).

use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, BinaryArray};
use arrow::datatypes::{DataType, FieldRef, Float64Type};
use datafusion::common::{Result as PlanResult, ScalarValue, internal_err};
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::{Accumulator, AggregateUDF, AggregateUDFImpl, Signature, Volatility};

use super::cells::eight;
use super::moments::no_match;
use super::{damaged, state_fields, states_of};
use crate::SqlError;
use crate::plan::floats::overflow;
use crate::plan::translate::external;

/// What pairs become.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Pairs {
    CovarPop,
    CovarSamp,
    Corr,
    Count,
    AverageX,
    AverageY,
    SumXX,
    SumYY,
    SumXY,
    RSquared,
    Slope,
    Intercept,
}

/// What they are called, the name that a plan shows first.
const FUNCTIONS: [(&[&str], Pairs); 12] = [
    (&["covar_pop"], Pairs::CovarPop),
    (&["covar_samp", "covar"], Pairs::CovarSamp),
    (&["corr"], Pairs::Corr),
    (&["regr_count"], Pairs::Count),
    (&["regr_avgx"], Pairs::AverageX),
    (&["regr_avgy"], Pairs::AverageY),
    (&["regr_sxx"], Pairs::SumXX),
    (&["regr_syy"], Pairs::SumYY),
    (&["regr_sxy"], Pairs::SumXY),
    (&["regr_r2"], Pairs::RSquared),
    (&["regr_slope"], Pairs::Slope),
    (&["regr_intercept"], Pairs::Intercept),
];

/// The functions by name.
pub(super) fn functions() -> impl Iterator<Item = (String, Arc<AggregateUDF>)> {
    FUNCTIONS.into_iter().flat_map(|(names, pairs)| {
        let function = Arc::new(AggregateUDF::from(OfPairs {
            name: names[0],
            pairs,
            signature: Signature::user_defined(Volatility::Immutable),
        }));
        names
            .iter()
            .map(move |name| ((*name).to_owned(), Arc::clone(&function)))
    })
}

/// An aggregate of `(y, x)`.
#[derive(Debug, PartialEq, Eq, Hash)]
struct OfPairs {
    name: &'static str,
    pairs: Pairs,
    signature: Signature,
}

impl AggregateUDFImpl for OfPairs {
    fn name(&self) -> &str {
        self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> PlanResult<DataType> {
        Ok(match self.pairs {
            Pairs::Count => DataType::Int64,
            _ => DataType::Float64,
        })
    }

    fn coerce_types(&self, args: &[DataType]) -> PlanResult<Vec<DataType>> {
        let is_taken = |data_type: &DataType| data_type.is_numeric() || data_type.is_null();
        match args {
            [y, x] if is_taken(y) && is_taken(x) => Ok(vec![DataType::Float64, DataType::Float64]),
            _ => no_match(self.name, args),
        }
    }

    fn default_value(&self, data_type: &DataType) -> PlanResult<ScalarValue> {
        match self.pairs {
            Pairs::Count => Ok(ScalarValue::Int64(Some(0))),
            _ => ScalarValue::try_from(data_type),
        }
    }

    fn accumulator(&self, args: AccumulatorArgs<'_>) -> PlanResult<Box<dyn Accumulator>> {
        if args.is_distinct {
            let message = format!("DISTINCT in {}()", self.name);
            let error = SqlError::unsupported(message).with_hint("Take DISTINCT rows in FROM (SELECT …).");
            return Err(external(error));
        }
        Ok(Box::new(PairMoments {
            pairs: self.pairs,
            sums: PairSums::default(),
        }))
    }

    fn state_fields(&self, args: StateFieldsArgs<'_>) -> PlanResult<Vec<FieldRef>> {
        Ok(state_fields(&args))
    }
}

/// The sums of one coordinate: its values, and the squares of their distances from the mean.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct Coordinate {
    sum: f64,
    squares: f64,
}

/// How many pairs there are, the sums of both coordinates, and of the products of their distances.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct PairSums {
    count: f64,
    x: Coordinate,
    y: Coordinate,
    products: f64,
    /// Whether finite values led out of the range of floats.
    is_beyond: bool,
}

impl PairSums {
    fn plus(&mut self, y: f64, x: f64) {
        let before = *self;
        self.count += 1.0;
        self.x.sum += x;
        self.y.sum += y;
        if before.count == 0.0 {
            for (value, own) in [(x, &mut self.x), (y, &mut self.y)] {
                if !value.is_finite() {
                    (own.squares, self.products) = (f64::NAN, f64::NAN);
                }
            }
            return;
        }
        let from_x = x * self.count - self.x.sum;
        let from_y = y * self.count - self.y.sum;
        let scale = 1.0 / (self.count * before.count);
        self.x.squares += from_x * from_x * scale;
        self.y.squares += from_y * from_y * scale;
        self.products += from_x * from_y * scale;
        let was_finite = |value: f64, before: Coordinate| !value.is_infinite() && !before.sum.is_infinite();
        let left = |own: Coordinate| own.sum.is_infinite() || own.squares.is_infinite();
        let (x_finite, y_finite) = (was_finite(x, before.x), was_finite(y, before.y));
        self.is_beyond |= left(self.x) && x_finite || left(self.y) && y_finite;
        self.is_beyond |= self.products.is_infinite() && x_finite && y_finite;
        for sum in [&mut self.x.squares, &mut self.y.squares, &mut self.products] {
            if sum.is_infinite() {
                *sum = f64::NAN;
            }
        }
    }

    fn merge(&mut self, other: &Self) {
        if self.count == 0.0 || other.count == 0.0 {
            if self.count == 0.0 {
                *self = *other;
            }
            return;
        }
        let count = self.count + other.count;
        let apart = |one: Coordinate, two: Coordinate| one.sum / self.count - two.sum / other.count;
        let (in_x, in_y) = (apart(self.x, other.x), apart(self.y, other.y));
        let weight = |product: f64| self.count * other.count * product / count;
        self.x.squares += other.x.squares + weight(in_x * in_x);
        self.y.squares += other.y.squares + weight(in_y * in_y);
        self.products += other.products + weight(in_x * in_y);
        for (own, more) in [(&mut self.x.sum, other.x.sum), (&mut self.y.sum, other.y.sum)] {
            let sum = *own + more;
            self.is_beyond |= sum.is_infinite() && !own.is_infinite() && !more.is_infinite();
            *own = sum;
        }
        self.count = count;
        let sums = [self.x.squares, self.y.squares, self.products];
        self.is_beyond |= other.is_beyond || sums.iter().any(|sum| sum.is_infinite());
    }

    fn result(&self, pairs: Pairs) -> Result<Option<f64>, SqlError> {
        if self.is_beyond {
            return Err(overflow());
        }
        let (count, x, y, products) = (self.count, self.x, self.y, self.products);
        let least = if pairs == Pairs::CovarSamp { 2.0 } else { 1.0 };
        if count < least {
            return Ok(None);
        }
        let is_flat = x.squares == 0.0;
        Ok(match pairs {
            Pairs::CovarPop => Some(products / count),
            Pairs::CovarSamp => Some(products / (count - 1.0)),
            Pairs::Corr if is_flat || y.squares == 0.0 => None,
            Pairs::Corr => Some(products / (x.squares * y.squares).sqrt()),
            Pairs::Count => Some(count),
            Pairs::AverageX => Some(x.sum / count),
            Pairs::AverageY => Some(y.sum / count),
            Pairs::SumXX => Some(x.squares),
            Pairs::SumYY => Some(y.squares),
            Pairs::SumXY => Some(products),
            Pairs::RSquared | Pairs::Slope | Pairs::Intercept if is_flat => None,
            Pairs::RSquared if y.squares == 0.0 => Some(1.0),
            Pairs::RSquared => Some((products * products) / (x.squares * y.squares)),
            Pairs::Slope => Some(products / x.squares),
            Pairs::Intercept => Some((y.sum - x.sum * products / x.squares) / count),
        })
    }

    fn put(&self) -> Vec<u8> {
        let sums = [
            self.count,
            self.x.sum,
            self.x.squares,
            self.y.sum,
            self.y.squares,
            self.products,
            f64::from(u8::from(self.is_beyond)),
        ];
        sums.into_iter().flat_map(f64::to_le_bytes).collect()
    }

    fn read(bytes: &[u8]) -> Option<Self> {
        let float = |at| eight(bytes, at).map(f64::from_le_bytes);
        let coordinate = |at| {
            Some(Coordinate {
                sum: float(at)?,
                squares: float(at + 1)?,
            })
        };
        Some(Self {
            count: float(0)?,
            x: coordinate(1)?,
            y: coordinate(3)?,
            products: float(5)?,
            is_beyond: float(6)? != 0.0,
        })
    }
}

/// The sums of one group. It takes nothing away: a window that moves on is computed anew.
#[derive(Debug)]
struct PairMoments {
    pairs: Pairs,
    sums: PairSums,
}

impl Accumulator for PairMoments {
    fn update_batch(&mut self, values: &[ArrayRef]) -> PlanResult<()> {
        let floats = |at: usize| values.get(at)?.as_primitive_opt::<Float64Type>();
        let (Some(ys), Some(xs)) = (floats(0), floats(1)) else {
            return internal_err!("pairs are two columns of floats");
        };
        for (y, x) in ys.iter().zip(xs) {
            if let (Some(y), Some(x)) = (y, x) {
                self.sums.plus(y, x);
            }
        }
        Ok(())
    }

    fn evaluate(&mut self) -> PlanResult<ScalarValue> {
        if self.pairs == Pairs::Count {
            return Ok(ScalarValue::Int64(Some(self.sums.count as i64)));
        }
        let result = self.sums.result(self.pairs).map_err(external)?;
        Ok(ScalarValue::Float64(result))
    }

    fn size(&self) -> usize {
        size_of_val(self)
    }

    fn state(&mut self) -> PlanResult<Vec<ScalarValue>> {
        Ok(vec![ScalarValue::Binary(Some(self.sums.put()))])
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> PlanResult<()> {
        let states: &BinaryArray = states_of(states)?;
        for state in states.iter().flatten() {
            self.sums.merge(&PairSums::read(state).ok_or_else(damaged)?);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sums(pairs: &[(f64, f64)]) -> PairSums {
        let mut sums = PairSums::default();
        for (y, x) in pairs {
            sums.plus(*y, *x);
        }
        sums
    }

    #[test]
    fn pairs_of_which_one_coordinate_is_equal_have_no_correlation() {
        let flat = sums(&[(1.0, 0.1), (2.0, 0.1), (3.0, 0.1)]);
        for pairs in [Pairs::Corr, Pairs::Slope, Pairs::Intercept, Pairs::RSquared] {
            assert_eq!(flat.result(pairs).unwrap(), None, "{pairs:?}");
        }
        assert_eq!(flat.result(Pairs::CovarPop).unwrap(), Some(0.0));
        let level = sums(&[(0.1, 1.0), (0.1, 2.0), (0.1, 4.0)]);
        assert_eq!(level.result(Pairs::RSquared).unwrap(), Some(1.0));
        assert_eq!(level.result(Pairs::Corr).unwrap(), None);
    }

    #[test]
    fn parts_of_a_line_are_merged_and_read_back() {
        let mut line = sums(&[(3.0, 1.0), (5.0, 2.0)]);
        line.merge(&sums(&[(7.0, 3.0), (9.0, 4.0)]));
        assert_eq!(line.result(Pairs::Slope).unwrap(), Some(2.0));
        assert_eq!(line.result(Pairs::Intercept).unwrap(), Some(1.0));
        assert_eq!(PairSums::read(&line.put()), Some(line));
        let mut large = sums(&[(1e308, 1e308)]);
        large.merge(&sums(&[(1e308, 1e308)]));
        assert!(large.result(Pairs::AverageX).is_err());
        assert!(sums(&[(1e200, 1.0), (-1e200, 2.0)]).result(Pairs::Slope).is_err());
    }
}
