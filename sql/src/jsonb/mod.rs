//! JSONB: documents as text in PostgreSQL's normal form, and what is computed from them (ADR-18).
//!
//! ```text
//! any JSON text ─▶ read ─▶ normal text ─▶ scan (paths, elements)   edit (set, delete, concatenate)   compare (contains)
//!                              │
//!                              └────────▶ order: `canonical` is equal for equal values, `key` sorts as PostgreSQL does
//! ```
//!
//! The normal form: keys sorted by length and then by their bytes, the last of equal keys, one blank after commas and colons,
//! numbers written out with their digits behind the point, strings with no more escapes than they need. A document in this
//! form is walked without building a tree; functions here may rely on the form, but none of them panics on another text.

mod compare;
mod edit;
mod number;
mod order;
mod read;
mod scan;
mod value;
mod write;

#[cfg(test)]
mod tests;

use std::sync::{Arc, LazyLock};

use arrow::array::{Array, ArrayRef, AsArray, StringArray, StructArray};
use arrow::buffer::NullBuffer;
use arrow::datatypes::{DataType, Field, Fields};

pub(crate) use compare::{contains, has_key};
pub use edit::pretty;
pub(crate) use edit::{
    SetMode, concatenated, delete_index, delete_keys, delete_path, set_path, without_nulls,
};
pub(crate) use number::rounded;
pub(crate) use order::{canonical, key};
pub use read::normalized;
pub(crate) use scan::{
    Elements, Kind, Pairs, Step, at_path, element_count, kind_of, push_escaped, text_of, unescaped,
};
pub use value::Writer;
pub(crate) use write::{check_depth, sorted_object};

use crate::{SqlError, SqlState};

/// How deep arrays and objects may be nested in a document.
pub const DEPTH_MAX: usize = 128;

/// The name of the one field of a JSONB column, by which the type is known.
const FIELD: &str = "jsonb";

static TYPE: LazyLock<DataType> =
    LazyLock::new(|| DataType::Struct(Fields::from(vec![Field::new(FIELD, DataType::Utf8, true)])));

/// The Arrow type of JSONB: a struct with the document as its one field. No other SQL type has it, and nothing converts to it by
/// itself.
#[must_use]
pub fn data_type() -> DataType {
    TYPE.clone()
}

/// Whether a type is JSONB.
#[must_use]
pub fn is_jsonb(data_type: &DataType) -> bool {
    match data_type {
        DataType::Struct(fields) => match fields.as_ref() {
            [field] => field.name() == FIELD && field.data_type() == &DataType::Utf8,
            _ => false,
        },
        _ => false,
    }
}

/// Whether values of a type are documents, or arrays or rows with documents in them.
#[must_use]
pub fn holds_documents(data_type: &DataType) -> bool {
    match data_type {
        document if is_jsonb(document) => true,
        DataType::List(item) => holds_documents(item.data_type()),
        DataType::Struct(fields) => fields.iter().any(|field| holds_documents(field.data_type())),
        _ => false,
    }
}

/// The JSONB column of documents in normal form.
#[must_use]
pub fn column(texts: StringArray) -> ArrayRef {
    let DataType::Struct(fields) = data_type() else {
        unreachable!("JSONB is a struct")
    };
    let nulls = texts.nulls().cloned();
    Arc::new(StructArray::new(fields, vec![Arc::new(texts)], nulls))
}

/// The documents of a JSONB column; `None` for another type.
#[must_use]
pub fn texts(column: &ArrayRef) -> Option<StringArray> {
    if !is_jsonb(column.data_type()) {
        return None;
    }
    let column = column.as_struct_opt()?;
    let texts = column.column(0).as_string_opt::<i32>()?;
    if column.null_count() == 0 {
        return Some(texts.clone());
    }
    let nulls = NullBuffer::union(column.nulls(), texts.nulls());
    let (offsets, values, _) = texts.clone().into_parts();
    StringArray::try_new(offsets, values, nulls).ok()
}

/// The error for a document that is nested too deeply.
pub(crate) fn too_deep() -> SqlError {
    SqlError::new(
        SqlState::StatementTooComplex,
        "a JSON document is nested too deeply",
    )
    .with_detail(format!("At most {DEPTH_MAX} levels are taken."))
}
