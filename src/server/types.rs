//! The types of parameters, as clients declare and see them.

use arrow::datatypes::{DataType, IntervalUnit, TimeUnit};

use crate::sql::jsonb;
use crate::sql::oids::array_of;
use crate::sql::plan::types::{DECIMAL_DIGITS, DECIMAL_SCALE};

pub(super) use crate::sql::oids::wire_type_of;
use crate::sql::oids::{element, element_of, oid, wire_type};

/// The number of the type of a parameter: what is a text is called TEXT, as PostgreSQL does.
pub(super) fn parameter_oid(data_type: &DataType) -> u32 {
    match (wire_type(data_type).oid, data_type) {
        (oid::VARCHAR, _) => oid::TEXT,
        (_, DataType::List(_)) if element(data_type) == oid::VARCHAR => array_of(oid::TEXT),
        (oid, _) => oid,
    }
}

/// The type that a client declares for a parameter; `None` where it leaves it open, or where it is one that there is not.
pub(super) fn declared_type(oid: u32) -> Option<DataType> {
    Some(match oid {
        oid::BOOL => DataType::Boolean,
        oid::INT2 => DataType::Int16,
        oid::INT4 => DataType::Int32,
        oid::INT8 | oid::OID => DataType::Int64,
        oid::FLOAT4 => DataType::Float32,
        oid::FLOAT8 => DataType::Float64,
        oid::NUMERIC => DataType::Decimal128(DECIMAL_DIGITS, DECIMAL_SCALE),
        oid::TEXT | oid::VARCHAR | oid::BPCHAR | oid::NAME | oid::CHAR | oid::UUID => DataType::Utf8,
        oid::BYTEA => DataType::Binary,
        oid::DATE => DataType::Date32,
        oid::TIME => DataType::Time64(TimeUnit::Microsecond),
        oid::TIMESTAMP => DataType::Timestamp(TimeUnit::Microsecond, None),
        oid::TIMESTAMPTZ => DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())),
        oid::INTERVAL => DataType::Interval(IntervalUnit::MonthDayNano),
        oid::JSON | oid::JSONB => jsonb::data_type(),
        array => DataType::new_list(declared_type(element_of(array)?)?, true),
    })
}

/// Whether a parameter's declared number means no type at all.
pub(super) fn is_open(oid: u32) -> bool {
    matches!(oid, 0 | oid::UNKNOWN)
}
