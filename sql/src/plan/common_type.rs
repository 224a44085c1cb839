//! The type in which values of two types meet, as PostgreSQL resolves it for the elements of an array and for what is compared
//! with them.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, TimeUnit};

use crate::jsonb;
use crate::plan::types::{DECIMAL_DIGITS, column_type, list_of};

/// The type to which both convert by themselves; `None` where there is none. NULL takes any type.
pub(crate) fn common_type(left: &DataType, right: &DataType) -> Option<DataType> {
    use DataType as T;
    if let (T::Null, other) | (other, T::Null) = (left, right) {
        return Some(other.clone());
    }
    if let (T::List(one), T::List(other)) = (left, right) {
        return common_type(one.data_type(), other.data_type()).map(list_of);
    }
    let (left, right) = (column_type(left), column_type(right));
    if left == right {
        return Some(left);
    }
    match (&left, &right) {
        (one, other) if jsonb::is_jsonb(one) || jsonb::is_jsonb(other) => None,
        (T::Struct(one), T::Struct(other)) if one.len() == other.len() => {
            let fields = one.iter().zip(other).map(|(one, other)| {
                let data_type = common_type(one.data_type(), other.data_type())?;
                Some(Arc::new(Field::new(one.name(), data_type, true)))
            });
            Some(T::Struct(fields.collect::<Option<_>>()?))
        }
        (T::Date32, T::Timestamp(..)) => Some(right),
        (T::Timestamp(..), T::Date32) => Some(left),
        (T::Timestamp(..), T::Timestamp(..)) => Some(T::Timestamp(TimeUnit::Microsecond, Some("UTC".into()))),
        (one, other) => number(one, other),
    }
}

fn number(left: &DataType, right: &DataType) -> Option<DataType> {
    use DataType as T;
    let rank = |data_type: &DataType| match data_type {
        T::Int16 => Some(0),
        T::Int32 => Some(1),
        T::Int64 => Some(2),
        T::Decimal128(..) => Some(3),
        T::Float32 => Some(4),
        T::Float64 => Some(5),
        _ => None,
    };
    let (low, high) = match rank(left)? <= rank(right)? {
        true => (left, right),
        false => (right, left),
    };
    Some(match (low, high) {
        (T::Decimal128(_, one), T::Decimal128(_, other)) => T::Decimal128(DECIMAL_DIGITS, *one.max(other)),
        (_, T::Decimal128(_, scale)) => T::Decimal128(DECIMAL_DIGITS, *scale),
        // Integers and NUMERIC meet REAL in DOUBLE PRECISION.
        (_, T::Float32) => T::Float64,
        (_, high) => high.clone(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_meet_in_the_wider_type_and_texts_meet_no_numbers() {
        use DataType as T;
        for (left, right, common) in [
            (T::Int32, T::Int64, Some(T::Int64)),
            (T::Int32, T::Decimal128(5, 2), Some(T::Decimal128(38, 2))),
            (T::Float32, T::Int16, Some(T::Float64)),
            (T::Null, T::Utf8, Some(T::Utf8)),
            (list_of(T::Int32), list_of(T::Int64), Some(list_of(T::Int64))),
            (T::Utf8, T::Int32, None),
            (list_of(T::Int32), T::Int32, None),
        ] {
            assert_eq!(common_type(&left, &right), common, "{left} {right}");
            assert_eq!(common_type(&right, &left), common, "{right} {left}");
        }
    }
}
