//! Casts between the types that one value may have: what is stored, what an operator computes, what a column is declared as.

use arrow::array::{Array, ArrayRef};
use arrow::compute::{CastOptions, cast_with_options};
use arrow::datatypes::DataType;
use arrow::error::ArrowError;

/// The column in another type, the same where it has that type.
///
/// # Errors
/// A value that has no place in the type, where Arrow's plain cast would give NULL.
pub(crate) fn exact_cast(column: &dyn Array, wanted: &DataType) -> Result<ArrayRef, ArrowError> {
    let options = CastOptions {
        safe: false,
        ..CastOptions::default()
    };
    cast_with_options(column, wanted, &options)
}

#[cfg(test)]
mod tests {
    use arrow::array::{BinaryArray, Decimal128Array};

    use super::*;

    #[test]
    fn what_has_no_place_is_an_error_and_no_null() {
        let number = Decimal128Array::from(vec![10_i128.pow(25)]);
        let number = number.with_precision_and_scale(38, 1).unwrap();
        assert!(exact_cast(&number, &DataType::Decimal128(38, 16)).is_err());
        assert!(exact_cast(&number, &DataType::Decimal128(38, 2)).is_ok());
        let text = BinaryArray::from(vec![&b"\xff"[..]]);
        assert!(exact_cast(&text, &DataType::Utf8).is_err());
    }
}
