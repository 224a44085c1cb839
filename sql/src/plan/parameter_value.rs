//! Values of parameters without a statement around them, for plans that are run again.

use arrow::datatypes::{DataType, IntervalUnit};
use datafusion::common::ScalarValue;

use crate::jsonb;
use crate::plan::literals;
use crate::plan::parameters::decimal;

/// The digits that a NUMERIC may have.
const DIGITS_MAX: u8 = 38;

/// The value of a parameter of type INTERVAL, NUMERIC, JSONB or an array, as the planner reads its text. That of a NUMERIC has the
/// digits of the text in its type, as a constant has. `None` for another type, and for a text that is left to the planner: it says
/// what is wrong with it, or takes it otherwise.
#[must_use]
pub fn value_of_parameter(text: &str, data_type: &DataType) -> Option<ScalarValue> {
    match data_type {
        DataType::Decimal128(..) => number(text),
        // An array with another number of dimensions is none of this type.
        DataType::Interval(IntervalUnit::MonthDayNano) | DataType::List(_) => {
            literals::nested_constant(text, data_type).ok()
        }
        document if jsonb::is_jsonb(document) => literals::nested_constant(text, document).ok(),
        _ => None,
    }
}

fn number(text: &str) -> Option<ScalarValue> {
    let (negative, digits) = decimal(text)?;
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let value: i128 = format!("{whole}{fraction}").parse().ok()?;
    let value = if negative { -value } else { value };
    if !digits.contains('.') {
        return Some(ScalarValue::Decimal128(Some(value), DIGITS_MAX, 0));
    }
    let scale = i8::try_from(fraction.len()).ok()?;
    let significant = u8::try_from(value.unsigned_abs().to_string().len()).ok()?;
    let precision = significant.max(scale.unsigned_abs());
    (precision <= DIGITS_MAX).then_some(ScalarValue::Decimal128(Some(value), precision, scale))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_has_its_digits_in_its_type() {
        let any = DataType::Decimal128(38, 16);
        for (text, value, precision, scale) in [
            ("12.50", 1250, 4, 2),
            ("-0.05", -5, 2, 2),
            ("0.00", 0, 2, 2),
            ("+007.5", 75, 2, 1),
            ("42", 42, 38, 0),
        ] {
            let expected = ScalarValue::Decimal128(Some(value), precision, scale);
            assert_eq!(value_of_parameter(text, &any), Some(expected), "{text}");
        }
        for text in ["NaN", "1e5", "", "1.", ".5", "x"] {
            assert_eq!(value_of_parameter(text, &any), None, "{text}");
        }
    }

    #[test]
    fn arrays_of_other_dimensions_are_left_to_the_planner() {
        let list = DataType::new_list(DataType::Int64, true);
        assert!(value_of_parameter("{1,NULL}", &list).is_some());
        assert_eq!(value_of_parameter("{{1},{2}}", &list), None);
        assert_eq!(value_of_parameter("{x}", &list), None);
    }
}
