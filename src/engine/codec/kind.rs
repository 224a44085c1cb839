//! [`Kind`]: how a type lies in memory, which is all that the formats depend on.

use arrow::datatypes::{DataType, IntervalUnit};

use crate::engine::error::EngineError;

/// Deeper types are refused: encoding recurses over them.
const DEPTH_MAX: usize = 32;

/// The physical kind of a type: a timestamp, a time and a BIGINT are all 64-bit integers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Only nulls.
    Null,
    Bool,
    I8,
    I16,
    I32,
    I64,
    I128,
    U8,
    U16,
    U32,
    U64,
    F32,
    F64,
    /// Months, days and nanoseconds.
    Interval,
    /// UTF-8 text.
    Text,
    /// Bytes.
    Bytes,
    /// Any number of values of one kind.
    List(Box<Kind>),
    /// One value of each kind.
    Struct(Box<[Kind]>),
}

impl Kind {
    /// The kind of `data_type`.
    ///
    /// # Errors
    /// Types that cannot be stored (`0A000`).
    pub(super) fn of(data_type: &DataType) -> Result<Self, EngineError> {
        Self::at_depth(data_type, 0)
    }

    /// The kinds of several types.
    ///
    /// # Errors
    /// Types that cannot be stored (`0A000`).
    pub(super) fn of_all(types: &[DataType]) -> Result<Box<[Self]>, EngineError> {
        types.iter().map(Self::of).collect()
    }

    /// Appends a text that is equal for equal kinds, now and in later versions.
    fn sign(&self, out: &mut String) {
        let name = match self {
            Self::Null => "null",
            Self::Bool => "bool",
            Self::I8 => "i8",
            Self::I16 => "i16",
            Self::I32 => "i32",
            Self::I64 => "i64",
            Self::I128 => "i128",
            Self::U8 => "u8",
            Self::U16 => "u16",
            Self::U32 => "u32",
            Self::U64 => "u64",
            Self::F32 => "f32",
            Self::F64 => "f64",
            Self::Interval => "interval",
            Self::Text => "text",
            Self::Bytes => "bytes",
            Self::List(element) => {
                out.push_str("list");
                return sign_all(std::slice::from_ref(&**element), out);
            }
            Self::Struct(fields) => {
                out.push_str("struct");
                return sign_all(fields, out);
            }
        };
        out.push_str(name);
    }

    fn at_depth(data_type: &DataType, depth: usize) -> Result<Self, EngineError> {
        use DataType as T;
        if depth > DEPTH_MAX {
            return Err(EngineError::new(
                "0A000",
                "a column type is nested too deeply to be stored",
            ));
        }
        Ok(match data_type {
            T::Null => Self::Null,
            T::Boolean => Self::Bool,
            T::Int8 => Self::I8,
            T::Int16 => Self::I16,
            T::Int32 | T::Date32 | T::Time32(_) => Self::I32,
            T::Int64 | T::Date64 | T::Time64(_) | T::Timestamp(..) | T::Duration(_) => Self::I64,
            T::Decimal128(..) => Self::I128,
            T::UInt8 => Self::U8,
            T::UInt16 => Self::U16,
            T::UInt32 => Self::U32,
            T::UInt64 => Self::U64,
            T::Float32 => Self::F32,
            T::Float64 => Self::F64,
            T::Interval(IntervalUnit::MonthDayNano) => Self::Interval,
            T::Utf8 | T::LargeUtf8 | T::Utf8View => Self::Text,
            T::Binary | T::LargeBinary | T::BinaryView => Self::Bytes,
            T::List(element) => Self::List(Box::new(Self::at_depth(element.data_type(), depth + 1)?)),
            T::Struct(fields) => Self::Struct(
                fields
                    .iter()
                    .map(|field| Self::at_depth(field.data_type(), depth + 1))
                    .collect::<Result<_, _>>()?,
            ),
            other => {
                return Err(
                    EngineError::new("0A000", format!("a column of type {other} cannot be stored"))
                        .with_hint("Cast it to one of the types of the dialect."),
                );
            }
        })
    }
}

/// A text that is equal for equal kinds, now and in later versions: `(i64,list(text))`.
pub(super) fn signature(kinds: &[Kind]) -> String {
    let mut out = String::new();
    sign_all(kinds, &mut out);
    out
}

fn sign_all(kinds: &[Kind], out: &mut String) {
    out.push('(');
    for (index, kind) in kinds.iter().enumerate() {
        if index > 0 {
            out.push(',');
        }
        kind.sign(out);
    }
    out.push(')');
}
