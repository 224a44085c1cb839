//! Products and quotients of NUMERIC, with as many digits behind the point as are kept here.

use arrow::datatypes::{DataType, Decimal128Type, i256};
use datafusion::common::{Result as PlanResult, ScalarValue};
use datafusion::logical_expr::Expr;

use super::args::{Args, Computed};
use super::define::{Definition, Gives, Kind, Overload};
use crate::plan::translate::external;
use crate::plan::types::{DECIMAL_DIGITS, DECIMAL_SCALE};
use crate::plan::values::numeric_overflow;
use crate::{SqlError, SqlState};

/// Significant digits of a quotient, at least.
const QUOTIENT_DIGITS: i32 = 16;

static DIVIDED: Definition = Definition::new(
    "numeric_div",
    &[Overload::giving(
        &[Kind::Numeric, Kind::Numeric],
        Gives::Of(quotient_type),
        quotients,
    )],
);
static MULTIPLIED: Definition = Definition::new(
    "numeric_mul",
    &[Overload::giving(
        &[Kind::Numeric, Kind::Numeric],
        Gives::Of(product_type),
        products,
    )],
);

/// A number without fraction, times a power of ten: the digits, and how many of them are behind the point.
type Exact = (i128, i32);

fn exact(expr: &Expr) -> Option<Exact> {
    let literal = |expr: &Expr| match expr {
        Expr::Literal(ScalarValue::Decimal128(Some(digits), _, scale), _) if *scale >= 0 => {
            Some((*digits, i32::from(*scale)))
        }
        // `1e10` has digits before the point only.
        Expr::Literal(ScalarValue::Decimal128(Some(digits), _, scale), _) => {
            let power = 10i128.checked_pow(u32::from(scale.unsigned_abs()))?;
            Some((digits.checked_mul(power)?, 0))
        }
        Expr::Literal(ScalarValue::Int64(Some(number)), _) => Some((i128::from(*number), 0)),
        Expr::Literal(ScalarValue::Int32(Some(number)), _) => Some((i128::from(*number), 0)),
        _ => None,
    };
    match expr {
        Expr::Negative(inner) => literal(inner).map(|(digits, scale)| (-digits, scale)),
        other => literal(other),
    }
}

/// `left / right`, one of them NUMERIC and the other exact.
///
/// # Errors
/// Constants of which the right one is zero.
pub(crate) fn divided(left: &Expr, right: &Expr) -> PlanResult<Expr> {
    let constant = match (exact(left), exact(right)) {
        (Some(left), Some(right)) => constant_quotient(left, right)?,
        _ => None,
    };
    Ok(constant.unwrap_or_else(|| DIVIDED.udf().call(vec![left.clone(), right.clone()])))
}

/// `left * right` of two NUMERIC whose product would have more digits behind the point than are kept; `None` for others, which
/// arrow multiplies exactly.
pub(super) fn times(
    (left, left_type): (&Expr, &DataType),
    (right, right_type): (&Expr, &DataType),
) -> Option<Expr> {
    let exact = scale_of(left_type) + scale_of(right_type);
    let kept = scale_of(&product_type(&[left_type.clone(), right_type.clone()]));
    (exact > kept).then(|| MULTIPLIED.udf().call(vec![left.clone(), right.clone()]))
}

/// The quotient of two constants with PostgreSQL's digits, if NUMERIC has that many here.
fn constant_quotient(left: Exact, right: Exact) -> PlanResult<Option<Expr>> {
    if right.0 == 0 {
        let error = SqlError::new(SqlState::DivisionByZero, "division by zero");
        return Err(external(error));
    }
    let ((weight_a, first_a), (weight_b, first_b)) = (leading(left), leading(right));
    let weight = weight_a - weight_b - i32::from(first_a <= first_b);
    let scale = (QUOTIENT_DIGITS - weight * 4).max(left.1).max(right.1).max(0);
    let Ok(shown) = i8::try_from(scale) else {
        return Ok(None);
    };
    let quotient = quotient(left.0, right.0, scale - left.1 + right.1);
    Ok(quotient
        .filter(|_| scale < i32::from(DECIMAL_DIGITS))
        .map(|value| Expr::Literal(ScalarValue::Decimal128(Some(value), DECIMAL_DIGITS, shown), None)))
}

/// The place of the first group of four digits, counted from the point, and the group.
fn leading((digits, scale): Exact) -> (i32, u128) {
    let mut digits = digits.unsigned_abs();
    if digits == 0 {
        return (0, 0);
    }
    // Groups are counted from the point, so the fraction must be whole groups.
    let (mut groups, rest) = (-(scale.div_euclid(4)), scale.rem_euclid(4));
    if rest > 0 {
        digits = digits.saturating_mul(10u128.pow(4 - rest.unsigned_abs()));
        groups -= 1;
    }
    let mut weight = groups;
    while digits >= 10_000 {
        digits /= 10_000;
        weight += 1;
    }
    (weight, digits)
}

/// `left × 10^shift ÷ right`, rounded half away from zero; `None` where it has too many digits.
pub(super) fn quotient(left: i128, right: i128, shift: i32) -> Option<i128> {
    let shift = u32::try_from(shift).ok()?;
    let small = 10i128
        .checked_pow(shift)
        .and_then(|power| left.checked_mul(power));
    if let Some(left) = small {
        let (whole, rest) = (left / right, left % right);
        let is_up = rest.unsigned_abs() >= right.unsigned_abs() - rest.unsigned_abs();
        let away = if (left < 0) == (right < 0) { 1 } else { -1 };
        return fitting(if is_up && rest != 0 { whole + away } else { whole });
    }
    let wide = i256::from_i128(left).checked_mul(i256::from_i128(10).checked_pow(shift)?)?;
    wide_quotient(wide, i256::from_i128(right))
}

/// `left ÷ right`, rounded half away from zero; `None` where it has too many digits.
pub(super) fn wide_quotient(left: i256, right: i256) -> Option<i128> {
    let whole = left.checked_div(right)?;
    let rest = left.checked_rem(right)?;
    let (rest_abs, right_abs) = (rest.wrapping_abs(), right.wrapping_abs());
    let is_up = rest != i256::ZERO && rest_abs >= right_abs.wrapping_sub(rest_abs);
    let away = if (left < i256::ZERO) == (right < i256::ZERO) {
        1
    } else {
        -1
    };
    let rounded = if is_up {
        whole.checked_add(i256::from_i128(away))?
    } else {
        whole
    };
    fitting(rounded.to_i128()?)
}

fn fitting(value: i128) -> Option<i128> {
    (value.unsigned_abs() < 10u128.pow(u32::from(DECIMAL_DIGITS))).then_some(value)
}

fn scale_of(data_type: &DataType) -> i32 {
    match data_type {
        DataType::Decimal128(_, scale) => i32::from(*scale),
        _ => 0,
    }
}

/// As many digits behind the point as the operands have, at least 16.
fn quotient_type(args: &[DataType]) -> DataType {
    let scale = args.iter().map(scale_of).max().unwrap_or(0);
    let scale = scale.max(i32::from(DECIMAL_SCALE));
    DataType::Decimal128(DECIMAL_DIGITS, i8::try_from(scale).unwrap_or(DECIMAL_SCALE))
}

fn quotients(args: &Args) -> Computed {
    let shift = scale_of(args.gives()) - scale_of(args.data_type(0)) + scale_of(args.data_type(1));
    let (left, right) = (
        args.numbers::<Decimal128Type>(0),
        args.numbers::<Decimal128Type>(1),
    );
    args.strict::<Decimal128Type>(|row| {
        let divisor = right.get(row);
        if divisor == 0 {
            return Err(SqlError::new(SqlState::DivisionByZero, "division by zero"));
        }
        quotient(left.get(row), divisor, shift).ok_or_else(|| numeric_overflow(args.gives()))
    })
}

/// As many digits behind the point as the operands have together, but no more than 16, or than one of them has.
fn product_type(args: &[DataType]) -> DataType {
    let exact: i32 = args.iter().map(scale_of).sum();
    let kept = scale_of(&quotient_type(args));
    DataType::Decimal128(
        DECIMAL_DIGITS,
        i8::try_from(exact.min(kept)).unwrap_or(DECIMAL_SCALE),
    )
}

fn products(args: &Args) -> Computed {
    let dropped = scale_of(args.data_type(0)) + scale_of(args.data_type(1)) - scale_of(args.gives());
    let (left, right) = (
        args.numbers::<Decimal128Type>(0),
        args.numbers::<Decimal128Type>(1),
    );
    args.strict::<Decimal128Type>(|row| {
        product(left.get(row), right.get(row), dropped).ok_or_else(|| numeric_overflow(args.gives()))
    })
}

/// `left × right ÷ 10^dropped`, rounded half away from zero; `None` where it has too many digits.
fn product(left: i128, right: i128, dropped: i32) -> Option<i128> {
    let dropped = u32::try_from(dropped).ok()?;
    if let (Some(product), Some(power)) = (left.checked_mul(right), 10i128.checked_pow(dropped)) {
        return quotient(product, power, 0);
    }
    let wide = i256::from_i128(left).checked_mul(i256::from_i128(right))?;
    wide_quotient(wide, i256::from_i128(10).checked_pow(dropped)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotients_of_constants_have_the_digits_of_postgres() {
        let shown = |left: Exact, right: Exact| match constant_quotient(left, right).unwrap() {
            Some(Expr::Literal(value, _)) => value.to_string(),
            other => format!("{other:?}"),
        };
        for (left, right, expected) in [
            ((50, 1), (2, 0), "2.5000000000000000"),
            ((10, 1), (3, 0), "0.33333333333333333333"),
            ((20, 1), (30, 1), "0.66666666666666666667"),
            ((1000, 2), (3, 0), "3.3333333333333333"),
            ((10_000_000_000, 0), (3, 0), "3333333333.33333333"),
            ((1, 4), (3, 0), "0.000033333333333333333333"),
            ((123_456_789_123, 3), (7, 0), "17636684.160428571429"),
        ] {
            assert!(
                shown(left, right).contains(expected.trim_start_matches("0.")),
                "{expected} {}",
                shown(left, right)
            );
        }
    }

    #[test]
    fn halves_of_quotients_go_away_from_zero() {
        assert_eq!(quotient(1, 8, 2), Some(13));
        assert_eq!(quotient(-1, 8, 2), Some(-13));
        assert_eq!(quotient(10i128.pow(36), 1000, 3), Some(10i128.pow(36)));
        assert_eq!(quotient(1, 3, 40), None);
    }

    #[test]
    fn products_keep_their_digits_and_round_the_last_one() {
        // 2000 * 1000 with sixteen digits behind the point each.
        let one = 10i128.pow(16);
        assert_eq!(product(2000 * one, 1000 * one, 16), Some(2_000_000 * one));
        assert_eq!(product(15, 1, 1), Some(2));
        assert_eq!(product(-15, 1, 1), Some(-2));
        assert_eq!(product(10i128.pow(37), 10i128.pow(17), 16), None);
    }
}
