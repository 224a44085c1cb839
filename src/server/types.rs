//! PostgreSQL's type numbers for the types of columns, and back.

use arrow::datatypes::{DataType, IntervalUnit, TimeUnit};

use crate::sql::jsonb;
use crate::sql::plan::types::{DECIMAL_DIGITS, DECIMAL_SCALE, column_type};

/// The numbers of types, as `pg_type` has them.
pub(super) mod oid {
    pub(in crate::server) const BOOL: u32 = 16;
    pub(in crate::server) const BYTEA: u32 = 17;
    pub(in crate::server) const CHAR: u32 = 18;
    pub(in crate::server) const NAME: u32 = 19;
    pub(in crate::server) const INT8: u32 = 20;
    pub(in crate::server) const INT2: u32 = 21;
    pub(in crate::server) const INT4: u32 = 23;
    pub(in crate::server) const TEXT: u32 = 25;
    pub(in crate::server) const OID: u32 = 26;
    pub(in crate::server) const JSON: u32 = 114;
    pub(in crate::server) const FLOAT4: u32 = 700;
    pub(in crate::server) const FLOAT8: u32 = 701;
    pub(in crate::server) const UNKNOWN: u32 = 705;
    pub(in crate::server) const BPCHAR: u32 = 1042;
    pub(in crate::server) const VARCHAR: u32 = 1043;
    pub(in crate::server) const DATE: u32 = 1082;
    pub(in crate::server) const TIME: u32 = 1083;
    pub(in crate::server) const TIMESTAMP: u32 = 1114;
    pub(in crate::server) const TIMESTAMPTZ: u32 = 1184;
    pub(in crate::server) const INTERVAL: u32 = 1186;
    pub(in crate::server) const NUMERIC: u32 = 1700;
    pub(in crate::server) const RECORD: u32 = 2249;
    pub(in crate::server) const RECORD_ARRAY: u32 = 2287;
    pub(in crate::server) const UUID: u32 = 2950;
    pub(in crate::server) const JSONB: u32 = 3802;
}

/// Types with the types of their arrays.
const ARRAYS: [(u32, u32); 22] = [
    (oid::BOOL, 1000),
    (oid::BYTEA, 1001),
    (oid::CHAR, 1002),
    (oid::NAME, 1003),
    (oid::INT2, 1005),
    (oid::INT4, 1007),
    (oid::TEXT, 1009),
    (oid::BPCHAR, 1014),
    (oid::VARCHAR, 1015),
    (oid::INT8, 1016),
    (oid::FLOAT4, 1021),
    (oid::FLOAT8, 1022),
    (oid::OID, 1028),
    (oid::JSON, 199),
    (oid::TIMESTAMP, 1115),
    (oid::DATE, 1182),
    (oid::TIME, 1183),
    (oid::TIMESTAMPTZ, 1185),
    (oid::INTERVAL, 1187),
    (oid::NUMERIC, 1231),
    (oid::UUID, 2951),
    (oid::JSONB, 3807),
];

/// A type as a client sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct WireType {
    /// Its number.
    pub(super) oid: u32,
    /// Its bytes; −1 where they vary.
    pub(super) size: i16,
    /// Precision and scale of a NUMERIC; −1 for none.
    pub(super) modifier: i32,
}

/// The type of a column of results.
pub(super) fn wire_type(data_type: &DataType) -> WireType {
    let plain = |oid, size| WireType {
        oid,
        size,
        modifier: -1,
    };
    let data_type = column_type(data_type);
    if jsonb::is_jsonb(&data_type) {
        return plain(oid::JSONB, -1);
    }
    match &data_type {
        DataType::Boolean => plain(oid::BOOL, 1),
        DataType::Int16 => plain(oid::INT2, 2),
        DataType::Int32 => plain(oid::INT4, 4),
        DataType::Int64 => plain(oid::INT8, 8),
        DataType::Float32 => plain(oid::FLOAT4, 4),
        DataType::Float64 => plain(oid::FLOAT8, 8),
        DataType::Decimal128(precision, scale) => WireType {
            oid: oid::NUMERIC,
            size: -1,
            modifier: match (*precision, *scale) {
                (DECIMAL_DIGITS, 0 | DECIMAL_SCALE) => -1,
                (precision, scale) => ((i32::from(precision) << 16) | i32::from(scale)) + 4,
            },
        },
        DataType::Binary => plain(oid::BYTEA, -1),
        DataType::Date32 => plain(oid::DATE, 4),
        DataType::Time64(TimeUnit::Microsecond) => plain(oid::TIME, 8),
        DataType::Timestamp(_, None) => plain(oid::TIMESTAMP, 8),
        DataType::Timestamp(_, Some(_)) => plain(oid::TIMESTAMPTZ, 8),
        DataType::Interval(IntervalUnit::MonthDayNano) | DataType::Duration(_) => plain(oid::INTERVAL, 16),
        DataType::List(_) => plain(array_of(element(&data_type)), -1),
        DataType::Struct(_) => plain(oid::RECORD, -1),
        _ => plain(oid::VARCHAR, -1),
    }
}

/// The type of the elements of an array, however deep its arrays are nested: PostgreSQL does not tell their depths apart.
fn element(data_type: &DataType) -> u32 {
    let mut data_type = data_type;
    while let DataType::List(item) = data_type {
        data_type = item.data_type();
    }
    wire_type(data_type).oid
}

fn array_of(element: u32) -> u32 {
    let known = ARRAYS.iter().find(|(own, _)| *own == element);
    known.map_or(oid::RECORD_ARRAY, |(_, array)| *array)
}

/// The type of the elements of an array type.
pub(super) fn element_of(array: u32) -> Option<u32> {
    let known = ARRAYS.iter().find(|(_, own)| *own == array);
    known.map(|(element, _)| *element)
}

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
