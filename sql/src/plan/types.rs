//! SQL types as Arrow types, and back to PostgreSQL's names.
//!
//! All timestamps and times count microseconds, as PostgreSQL's do; texts are Utf8, never a view type. `NUMERIC` without
//! precision is `Decimal128(38, 16)`: 22 digits before the point and 16 behind it, like the result of `avg`.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, FieldRef, Fields, IntervalUnit, TimeUnit};
use datafusion::common::{DataFusionError, Result as PlanResult};
use datafusion::logical_expr::planner::TypePlanner;
use datafusion::sql::sqlparser::ast::{
    self, ArrayElemTypeDef, CharLengthUnits, CharacterLength, ExactNumberInfo, Ident, StructField,
    TimezoneInfo,
};

use crate::parse::parse_data_type;
use crate::suggest::closest;
use crate::{SqlError, SqlState, jsonb};

/// Digits of a decimal that is not limited by its declaration.
pub const DECIMAL_DIGITS: u8 = 38;
/// Digits behind the point of `NUMERIC` and of averages of integers.
pub const DECIMAL_SCALE: i8 = 16;
/// Characters that a text type may be limited to.
const TEXT_LENGTH_MAX: u32 = 10_485_760;
/// How deep arrays and structs may be nested.
const NESTING_MAX: usize = 16;

/// Which types there are.
const TYPES_HINT: &str = "Types are BOOLEAN, SMALLINT, INT, BIGINT, REAL, DOUBLE PRECISION, NUMERIC, VARCHAR, BYTEA, DATE, TIME, \
     TIMESTAMP, TIMESTAMPTZ, INTERVAL, JSONB, arrays and STRUCT<…>.";

/// Names of types that a misspelt one may mean.
const TYPES: [&str; 26] = [
    "boolean",
    "bool",
    "smallint",
    "integer",
    "int",
    "bigint",
    "int2",
    "int4",
    "int8",
    "real",
    "double precision",
    "float",
    "float4",
    "float8",
    "numeric",
    "decimal",
    "varchar",
    "text",
    "bytea",
    "date",
    "time",
    "timestamp",
    "timestamptz",
    "interval",
    "jsonb",
    "json",
];

/// Types of PostgreSQL that are not there.
const POSTGRES_TYPES: [&str; 39] = [
    "money",
    "inet",
    "cidr",
    "macaddr",
    "macaddr8",
    "xml",
    "tsvector",
    "tsquery",
    "point",
    "line",
    "lseg",
    "box",
    "path",
    "polygon",
    "circle",
    "oid",
    "name",
    "regclass",
    "regtype",
    "regproc",
    "regnamespace",
    "regrole",
    "hstore",
    "citext",
    "ltree",
    "serial",
    "bigserial",
    "smallserial",
    "jsonpath",
    "int4range",
    "int8range",
    "numrange",
    "tsrange",
    "tstzrange",
    "daterange",
    "pg_lsn",
    "txid_snapshot",
    "bpchar",
    "timetz",
];

/// The type of arrays of a type.
pub(crate) fn list_of(element: DataType) -> DataType {
    DataType::List(Arc::new(Field::new("item", element, true)))
}

/// The Arrow type of a SQL type.
///
/// # Errors
/// A type that is not supported, with what to use instead where there is something.
pub fn arrow_type(sql: &ast::DataType) -> Result<DataType, SqlError> {
    nested_type(sql, 0)
}

fn nested_type(sql: &ast::DataType, depth: usize) -> Result<DataType, SqlError> {
    use ast::DataType as Sql;
    if depth > NESTING_MAX {
        return Err(SqlError::unsupported(format!(
            "a type nested deeper than {NESTING_MAX}"
        )));
    }
    let data_type = match sql {
        Sql::Boolean | Sql::Bool => DataType::Boolean,
        Sql::SmallInt(None) | Sql::Int2(None) => DataType::Int16,
        Sql::Int(None) | Sql::Integer(None) | Sql::Int4(None) => DataType::Int32,
        Sql::BigInt(None) | Sql::Int8(None) => DataType::Int64,
        Sql::Real | Sql::Float4 => DataType::Float32,
        Sql::Double(ExactNumberInfo::None) | Sql::DoublePrecision | Sql::Float8 => DataType::Float64,
        Sql::Float(precision) => float(*precision)?,
        Sql::Numeric(digits) | Sql::Decimal(digits) | Sql::Dec(digits) => decimal(*digits)?,
        Sql::Varchar(None)
        | Sql::CharacterVarying(None)
        | Sql::CharVarying(None)
        | Sql::Text
        | Sql::String(None)
        | Sql::Char(None)
        | Sql::Character(None) => DataType::Utf8,
        Sql::Varchar(_) | Sql::CharacterVarying(_) | Sql::CharVarying(_) => {
            return Err(SqlError::unsupported(format!("a length on a text type ({sql})"))
                .with_hint("Columns of tables and casts have lengths. Elsewhere use VARCHAR without one."));
        }
        Sql::Char(_) | Sql::Character(_) => {
            return Err(
                SqlError::unsupported(format!("type {sql}, whose values are filled up with blanks"))
                    .with_hint("Use VARCHAR with that length."),
            );
        }
        Sql::Bytea => DataType::Binary,
        Sql::Date => DataType::Date32,
        Sql::Time(precision, TimezoneInfo::None | TimezoneInfo::WithoutTimeZone) => {
            micros_only(*precision, sql)?;
            DataType::Time64(TimeUnit::Microsecond)
        }
        Sql::Timestamp(precision, zone) => {
            micros_only(*precision, sql)?;
            timestamp(matches!(zone, TimezoneInfo::Tz | TimezoneInfo::WithTimeZone))
        }
        Sql::Interval {
            fields: None,
            precision: None,
        } => DataType::Interval(IntervalUnit::MonthDayNano),
        Sql::Array(ArrayElemTypeDef::AngleBracket(item))
        | Sql::Array(ArrayElemTypeDef::SquareBracket(item, None)) => list_of(nested_type(item, depth + 1)?),
        Sql::Struct(fields, _) => struct_type(fields, depth)?,
        Sql::Custom(name, arguments) => match (of_pg_catalog(name), arguments.is_empty()) {
            (Some(known), true) => nested_type(&known, depth + 1)?,
            (_, plain) => custom(name, plain, sql)?,
        },
        // There is one type of documents: JSON is another name of it.
        Sql::JSON | Sql::JSONB => jsonb::data_type(),
        other => return Err(unknown_type(other)),
    };
    Ok(data_type)
}

/// A text type without its length, and the length in characters; `None` for any other type.
///
/// # Errors
/// A length that no text type has (22023).
pub(crate) fn limited_text(sql: &ast::DataType) -> Result<Option<(ast::DataType, u32)>, SqlError> {
    use ast::DataType as Sql;
    let (Sql::Varchar(Some(length)) | Sql::CharacterVarying(Some(length)) | Sql::CharVarying(Some(length))) =
        sql
    else {
        return Ok(None);
    };
    let CharacterLength::IntegerLength {
        length,
        unit: None | Some(CharLengthUnits::Characters),
    } = length
    else {
        return Ok(None);
    };
    let wrong = |what: &str| {
        let message = format!("length for type varchar {what}");
        Err(SqlError::new(SqlState::InvalidParameterValue, message))
    };
    match u32::try_from(*length) {
        Ok(0) => wrong("must be at least 1"),
        Ok(length) if length <= TEXT_LENGTH_MAX => Ok(Some((Sql::Varchar(None), length))),
        _ => wrong(&format!("cannot exceed {TEXT_LENGTH_MAX}")),
    }
}

fn unknown_type(sql: &ast::DataType) -> SqlError {
    SqlError::unsupported(format!("type {sql}")).with_hint(TYPES_HINT)
}

/// The type that a name with the schema `pg_catalog` means, as drivers write them.
fn of_pg_catalog(name: &ast::ObjectName) -> Option<ast::DataType> {
    let [schema, name] = name.0.as_slice() else {
        return None;
    };
    let is_there = folded(schema.as_ident()?) == "pg_catalog";
    let name = folded(name.as_ident()?);
    if is_there {
        parse_data_type(&name).ok()
    } else {
        None
    }
}

/// Names that sqlparser does not know as types.
fn custom(name: &ast::ObjectName, plain: bool, sql: &ast::DataType) -> Result<DataType, SqlError> {
    match name.to_string().to_lowercase().as_str() {
        "timestamp_ltz" if plain => Ok(timestamp(true)),
        name if POSTGRES_TYPES.contains(&name) => Err(unknown_type(sql)),
        name => Err(no_such_type(name)),
    }
}

/// The error for a name that is none of a type.
fn no_such_type(name: &str) -> SqlError {
    let error = SqlError::new(
        SqlState::UndefinedObject,
        format!("type \"{name}\" does not exist"),
    );
    match closest(name, TYPES.into_iter()) {
        Some(near) => error.with_hint(format!("Did you mean {near}?")),
        None => error.with_hint(TYPES_HINT),
    }
}

fn timestamp(with_zone: bool) -> DataType {
    DataType::Timestamp(TimeUnit::Microsecond, with_zone.then(|| "UTC".into()))
}

/// Precisions 3 and 6 are taken, all kept as microseconds.
fn micros_only(precision: Option<u64>, sql: &ast::DataType) -> Result<(), SqlError> {
    match precision {
        None | Some(3 | 6) => Ok(()),
        Some(_) => Err(SqlError::unsupported(format!("type {sql}"))
            .with_hint("Timestamps and times count microseconds: use precision 3, 6 or none.")),
    }
}

fn float(precision: ExactNumberInfo) -> Result<DataType, SqlError> {
    match precision {
        ExactNumberInfo::None => Ok(DataType::Float64),
        ExactNumberInfo::Precision(1..=24) => Ok(DataType::Float32),
        ExactNumberInfo::Precision(25..=53) => Ok(DataType::Float64),
        _ => Err(SqlError::new(
            SqlState::InvalidParameterValue,
            "precision for type float must be between 1 and 53",
        )),
    }
}

fn decimal(digits: ExactNumberInfo) -> Result<DataType, SqlError> {
    let (precision, scale) = match digits {
        ExactNumberInfo::None => (u64::from(DECIMAL_DIGITS), i64::from(DECIMAL_SCALE)),
        ExactNumberInfo::Precision(precision) => (precision, 0),
        ExactNumberInfo::PrecisionAndScale(precision, scale) => (precision, scale),
    };
    let valid = (1..=u64::from(DECIMAL_DIGITS)).contains(&precision);
    if !valid || scale < 0 || scale.unsigned_abs() > precision {
        return Err(SqlError::new(
            SqlState::InvalidParameterValue,
            format!("NUMERIC({precision}, {scale}) is out of range"),
        )
        .with_detail("The precision must be between 1 and 38, the scale between 0 and the precision."));
    }
    let precision = u8::try_from(precision).expect("checked above to be at most 38");
    let scale = i8::try_from(scale).expect("checked above to be at most 38");
    Ok(DataType::Decimal128(precision, scale))
}

fn struct_type(fields: &[StructField], depth: usize) -> Result<DataType, SqlError> {
    let fields = fields
        .iter()
        .map(|field| {
            let name = field.field_name.as_ref().ok_or_else(|| {
                SqlError::new(SqlState::SyntaxError, "a field of a STRUCT type needs a name")
            })?;
            Ok(Field::new(
                folded(name),
                nested_type(&field.field_type, depth + 1)?,
                true,
            ))
        })
        .collect::<Result<Fields, SqlError>>()?;
    Ok(DataType::Struct(fields))
}

/// The name that an identifier means: lowercase unless quoted.
#[must_use]
pub fn folded(ident: &Ident) -> String {
    match ident.quote_style {
        Some(_) => ident.value.clone(),
        None => ident.value.to_lowercase(),
    }
}

/// PostgreSQL's name of a type, as `\d` shows it.
#[must_use]
pub fn sql_type_name(data_type: &DataType) -> String {
    match data_type {
        document if jsonb::is_jsonb(document) => "jsonb".into(),
        DataType::Boolean => "boolean".into(),
        DataType::Int8 | DataType::Int16 | DataType::UInt8 => "smallint".into(),
        DataType::Int32 | DataType::UInt16 => "integer".into(),
        DataType::Int64 | DataType::UInt32 | DataType::UInt64 => "bigint".into(),
        DataType::Float16 | DataType::Float32 => "real".into(),
        DataType::Float64 => "double precision".into(),
        DataType::Decimal128(DECIMAL_DIGITS, 0 | DECIMAL_SCALE) => "numeric".into(),
        DataType::Decimal32(p, s)
        | DataType::Decimal64(p, s)
        | DataType::Decimal128(p, s)
        | DataType::Decimal256(p, s) => format!("numeric({p},{s})"),
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => "character varying".into(),
        DataType::Binary | DataType::LargeBinary | DataType::BinaryView | DataType::FixedSizeBinary(_) => {
            "bytea".into()
        }
        DataType::Date32 | DataType::Date64 => "date".into(),
        DataType::Time32(_) | DataType::Time64(_) => "time without time zone".into(),
        DataType::Timestamp(_, None) => "timestamp without time zone".into(),
        DataType::Timestamp(_, Some(_)) => "timestamp with time zone".into(),
        DataType::Interval(_) | DataType::Duration(_) => "interval".into(),
        DataType::List(item)
        | DataType::LargeList(item)
        | DataType::ListView(item)
        | DataType::LargeListView(item)
        | DataType::FixedSizeList(item, _) => format!("{}[]", sql_type_name(item.data_type())),
        DataType::Struct(fields) => {
            let fields: Vec<String> = fields
                .iter()
                .map(|f| format!("{} {}", f.name(), sql_type_name(f.data_type())))
                .collect();
            format!("struct<{}>", fields.join(", "))
        }
        DataType::Dictionary(_, value) => sql_type_name(value),
        DataType::Null => "unknown".into(),
        other => other.to_string().to_lowercase(),
    }
}

/// The type as text that reads back to it, with all of its digits.
#[must_use]
pub fn written_type(data_type: &DataType) -> String {
    match data_type {
        DataType::Decimal128(precision, scale) => format!("numeric({precision},{scale})"),
        DataType::List(item) => format!("{}[]", written_type(item.data_type())),
        other => sql_type_name(other),
    }
}

/// The type that a value has once it leaves an expression for a column: one Arrow type for each SQL type.
#[must_use]
pub fn column_type(data_type: &DataType) -> DataType {
    match data_type {
        DataType::Int8 | DataType::UInt8 => DataType::Int16,
        DataType::UInt16 => DataType::Int32,
        DataType::UInt32 | DataType::UInt64 => DataType::Int64,
        DataType::Float16 => DataType::Float32,
        DataType::Decimal32(p, s) | DataType::Decimal64(p, s) => DataType::Decimal128(*p, *s),
        DataType::Null | DataType::LargeUtf8 | DataType::Utf8View => DataType::Utf8,
        DataType::LargeBinary | DataType::BinaryView => DataType::Binary,
        DataType::Date64 => timestamp(false),
        DataType::Time32(_) | DataType::Time64(_) => DataType::Time64(TimeUnit::Microsecond),
        DataType::Timestamp(_, zone) => timestamp(zone.is_some()),
        DataType::Interval(_) => DataType::Interval(IntervalUnit::MonthDayNano),
        DataType::Dictionary(_, value) => column_type(value),
        DataType::LargeList(item) | DataType::FixedSizeList(item, _) => DataType::List(column_field(item)),
        DataType::List(item) => DataType::List(column_field(item)),
        DataType::Struct(fields) => DataType::Struct(fields.iter().map(column_field).collect()),
        other => other.clone(),
    }
}

fn column_field(field: &FieldRef) -> FieldRef {
    let data_type = column_type(field.data_type());
    if &data_type == field.data_type() {
        return Arc::clone(field);
    }
    Arc::new(field.as_ref().clone().with_data_type(data_type))
}

/// Makes DataFusion plan the types of casts and typed literals as [`arrow_type`] does.
#[derive(Debug)]
pub(crate) struct SqlTypes;

impl TypePlanner for SqlTypes {
    fn plan_type_field(&self, sql: &ast::DataType) -> PlanResult<Option<FieldRef>> {
        let data_type = arrow_type(sql).map_err(|error| DataFusionError::External(Box::new(error)))?;
        Ok(Some(Arc::new(Field::new("", data_type, true))))
    }
}
