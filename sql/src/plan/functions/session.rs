//! What a statement can ask about itself, its values and its session.

use std::sync::Arc;

use arrow::array::{ArrayRef, Int32Array, StringArray};
use arrow::datatypes::DataType;

use super::args::{Args, Computed};
use super::define::{Definition, Kind, Overload};
use crate::plan::types::sql_type_name;

use Kind::{Any, Int4, Text};

pub(crate) static SESSION: [Definition; 8] = [
    Definition::new(
        "pg_typeof",
        &[Overload::new(&[Any], Text, |args| {
            // The digits of a NUMERIC are none of its type.
            match args.data_type(0) {
                DataType::Decimal128(..) => same(args, "numeric"),
                other => same(args, &sql_type_name(other)),
            }
        })],
    ),
    Definition::new(
        "num_nulls",
        &[Overload::variadic(&[Any, Any], Int4, |args| counted(args, true))],
    ),
    Definition::new(
        "num_nonnulls",
        &[Overload::variadic(&[Any, Any], Int4, |args| counted(args, false))],
    ),
    Definition::new(
        "version",
        &[Overload::new(&[], Text, |args| {
            same(
                args,
                concat!("PostgreSQL 15.0 (Highwater ", env!("CARGO_PKG_VERSION"), ")"),
            )
        })],
    ),
    Definition::new(
        "current_database",
        &[Overload::new(&[], Text, |args| same(args, "highwater"))],
    ),
    Definition::new(
        "current_schema",
        &[Overload::new(&[], Text, |args| same(args, "public"))],
    ),
    Definition::new(
        "current_user",
        &[Overload::new(&[], Text, |args| same(args, "highwater"))],
    ),
    Definition::new(
        "session_user",
        &[Overload::new(&[], Text, |args| same(args, "highwater"))],
    ),
];

/// Names that answer for the session at hand: a view does not have one.
pub(crate) const OF_SESSION: [&str; 5] = [
    "version",
    "current_database",
    "current_schema",
    "current_user",
    "session_user",
];

fn same(args: &Args, text: &str) -> Computed {
    let texts: ArrayRef = Arc::new(StringArray::from_iter_values(std::iter::repeat_n(
        text,
        args.rows(),
    )));
    Ok(texts)
}

fn counted(args: &Args, nulls: bool) -> Computed {
    let count = |row: usize| {
        let counted = (0..args.len()).filter(|arg| args.is_null(*arg, row) == nulls);
        counted.count() as i32
    };
    Ok(Arc::new((0..args.rows()).map(count).collect::<Int32Array>()))
}
