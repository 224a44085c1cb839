//! PostgreSQL's numbers: those of its types for the types of columns, and those of the objects of the catalog.
//!
//! A number belongs to its object for as long as that lives, whatever comes and goes beside it: it follows from the number that the
//! catalog has stored, or from a name, and never from a place in a list.

use arrow::datatypes::{DataType, Field, IntervalUnit, TimeUnit};

use crate::catalog::ObjectId;
use crate::jsonb;
use crate::plan::types::{DECIMAL_DIGITS, DECIMAL_SCALE, column_type};

/// The numbers of types, as `pg_type` has them.
pub mod oid {
    /// `bool`
    pub const BOOL: u32 = 16;
    /// `bytea`
    pub const BYTEA: u32 = 17;
    /// `"char"`
    pub const CHAR: u32 = 18;
    /// `name`
    pub const NAME: u32 = 19;
    /// `int8`
    pub const INT8: u32 = 20;
    /// `int2`
    pub const INT2: u32 = 21;
    /// `int4`
    pub const INT4: u32 = 23;
    /// `text`
    pub const TEXT: u32 = 25;
    /// `oid`
    pub const OID: u32 = 26;
    /// `json`
    pub const JSON: u32 = 114;
    /// `float4`
    pub const FLOAT4: u32 = 700;
    /// `float8`
    pub const FLOAT8: u32 = 701;
    /// `unknown`
    pub const UNKNOWN: u32 = 705;
    /// `bpchar`
    pub const BPCHAR: u32 = 1042;
    /// `varchar`
    pub const VARCHAR: u32 = 1043;
    /// `date`
    pub const DATE: u32 = 1082;
    /// `time`
    pub const TIME: u32 = 1083;
    /// `timestamp`
    pub const TIMESTAMP: u32 = 1114;
    /// `timestamptz`
    pub const TIMESTAMPTZ: u32 = 1184;
    /// `interval`
    pub const INTERVAL: u32 = 1186;
    /// `numeric`
    pub const NUMERIC: u32 = 1700;
    /// `record`
    pub const RECORD: u32 = 2249;
    /// `record[]`
    pub const RECORD_ARRAY: u32 = 2287;
    /// `uuid`
    pub const UUID: u32 = 2950;
    /// `jsonb`
    pub const JSONB: u32 = 3802;
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
pub struct WireType {
    /// Its number.
    pub oid: u32,
    /// Its bytes; −1 where they vary.
    pub size: i16,
    /// Precision and scale of a NUMERIC; −1 for none.
    pub modifier: i32,
}

/// The type of a column of results.
#[must_use]
pub fn wire_type(data_type: &DataType) -> WireType {
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
#[must_use]
pub fn element(data_type: &DataType) -> u32 {
    let mut data_type = data_type;
    while let DataType::List(item) = data_type {
        data_type = item.data_type();
    }
    wire_type(data_type).oid
}

/// The type of arrays of a type.
#[must_use]
pub fn array_of(element: u32) -> u32 {
    let known = ARRAYS.iter().find(|(own, _)| *own == element);
    known.map_or(oid::RECORD_ARRAY, |(_, array)| *array)
}

/// The type of the elements of an array type.
#[must_use]
pub fn element_of(array: u32) -> Option<u32> {
    let known = ARRAYS.iter().find(|(_, own)| *own == array);
    known.map(|(element, _)| *element)
}

/// The key under which the metadata of a field names the type, by its number, that a column of the catalogs has for clients.
const DECLARED: &str = "highwater.pg_type";

/// The field, of a type that catalogs have beside those of users: numbers of objects, names and single characters.
#[must_use]
pub fn declared(field: Field, oid: u32) -> Field {
    let mut metadata = field.metadata().clone();
    metadata.insert(DECLARED.to_owned(), oid.to_string());
    field.with_metadata(metadata)
}

/// The type of a column of results as clients see it: that of its values, or the one of a catalog's column.
#[must_use]
pub fn wire_type_of(field: &Field) -> WireType {
    let declared = field.metadata().get(DECLARED).and_then(|oid| oid.parse().ok());
    declared
        .and_then(|oid| declared_type(field.data_type(), oid))
        .unwrap_or_else(|| wire_type(field.data_type()))
}

/// The declared type, if values of `data_type` can be of it.
fn declared_type(data_type: &DataType, oid: u32) -> Option<WireType> {
    let size = match (data_type, oid) {
        (DataType::Int64, oid::OID) => 4,
        (DataType::Utf8, oid::NAME) => 64,
        (DataType::Utf8, oid::CHAR) => 1,
        (DataType::Utf8, oid::TEXT) => -1,
        (DataType::List(item), array) => {
            declared_type(item.data_type(), element_of(array)?)?;
            -1
        }
        _ => return None,
    };
    Some(WireType {
        oid,
        size,
        modifier: -1,
    })
}

/// The first number that is not PostgreSQL's own.
const FIRST_OBJECT: i64 = 16_384;
/// How many numbers an object has: its own, and those of what comes with it.
const NUMBERS_PER_OBJECT: i64 = 8;
/// Where the numbers of what has no number in the catalog begin.
const FIRST_NAMED: i64 = 1 << 30;

/// What of an object a number stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Numbered {
    /// The object itself.
    Object = 0,
    /// The index of its primary key.
    KeyIndex = 1,
    /// The constraint that its primary key is.
    KeyConstraint = 2,
    /// The rule that a view is.
    Rule = 3,
}

/// The number of an object of the catalog, or of what comes with it.
#[must_use]
pub fn object_oid(id: ObjectId, what: Numbered) -> i64 {
    FIRST_OBJECT + i64::from(id.0) * NUMBERS_PER_OBJECT + what as i64
}

/// The number of something that only has a name, such as a view of the system or the default of a column: a hash (FNV-1a) of its
/// kind and its name, between 2³⁰ and 2³¹.
#[must_use]
pub fn named_oid(kind: &str, name: &str) -> i64 {
    let bytes = kind.bytes().chain([0]).chain(name.bytes());
    let hash = bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    FIRST_NAMED + ((hash ^ (hash >> 32)) & 0x3fff_ffff) as i64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_the_same_in_every_process() {
        assert_eq!(named_oid("pg_catalog", "pg_tables"), 1_896_983_075);
        assert_eq!(object_oid(ObjectId(1), Numbered::Object), 16_392);
        assert_eq!(object_oid(ObjectId(1), Numbered::KeyIndex), 16_393);
    }

    #[test]
    fn a_declared_type_is_told_of_values_that_can_be_of_it() {
        let told = |data_type: DataType, number| {
            wire_type_of(&declared(Field::new("x", data_type, true), number)).oid
        };
        assert_eq!(told(DataType::Int64, oid::OID), oid::OID);
        assert_eq!(
            told(DataType::new_list(DataType::Int64, true), array_of(oid::OID)),
            1028
        );
        assert_eq!(
            told(DataType::new_list(DataType::Utf8, true), array_of(oid::TEXT)),
            1009
        );
        assert_eq!(
            told(DataType::new_list(DataType::Utf8, true), array_of(oid::OID)),
            1015
        );
        assert_eq!(told(DataType::Int32, oid::OID), oid::INT4);
    }
}
