//! Functions and operators on arrays. Arrays are lists; an array of several dimensions is a list of lists.
//!
//! ```text
//! lists      the arguments by row, and the lists that a call makes
//! keys       bytes that are equal for equal values and sort as they do: what comparisons of elements, arrays and rows go by
//! shape      lengths, bounds, elements, slices          edit    append, cat, remove, replace …
//! search     positions, @>, &&, = ANY(…)                row     ROW(…) and its fields
//! ```

mod edit;
mod keys;
mod lists;
mod operators;
mod row;
mod search;
mod shape;

use datafusion::logical_expr::Expr;

use super::define::Definition;
use crate::{SqlError, SqlState};

pub(super) use self::search::bucket;

pub(crate) use self::keys::{greatest, is_key_of, key, least, typed_distinct};
pub(crate) use self::operators::{ArrayOperators, compared, is_nested};

/// Names of functions that no query writes: those for what has a syntax of its own.
pub(crate) mod own {
    /// `ARRAY[…]`
    pub(crate) const ARRAY: &str = "array of";
    /// `array[index]`
    pub(crate) const ELEMENT: &str = "element of";
    /// `array[from:to]`
    pub(crate) const SLICE: &str = "slice of";
    /// `ROW(…)`
    pub(crate) const ROW: &str = "row of";
    /// `IS DISTINCT FROM` with a constant in quotes, whose type is not known yet.
    pub(crate) const DISTINCT: &str = "distinct from";
    /// `IS NOT DISTINCT FROM` with such a constant.
    pub(crate) const NOT_DISTINCT: &str = "not distinct from";
    /// The elements of an array of any number of dimensions, as `unnest` gives them.
    pub(crate) const ELEMENTS: &str = "elements of";
    /// The numbers of the elements of the longest of several arrays.
    pub(crate) const ORDINALS: &str = "ordinals of";
    /// `generate_subscripts` as a list.
    pub(crate) const SUBSCRIPTS: &str = "subscripts of";
}

/// All of them.
pub(super) fn definitions() -> impl Iterator<Item = &'static Definition> {
    shape::SHAPE
        .iter()
        .chain(&edit::EDIT)
        .chain(&search::SEARCH)
        .chain(&search::QUANTIFIED)
        .chain(&row::ROWS)
        .chain(&keys::DISTINCT)
        .chain([&keys::KEY])
}

/// The error for a call of a function without a name of its own, written with the types of its arguments, which it does not
/// take.
pub(crate) fn no_form(call: &str) -> Option<SqlError> {
    let (name, types) = call.split_once('(')?;
    let types: Vec<&str> = types.strip_suffix(')')?.split(", ").collect();
    let first = types.first()?;
    if name == own::ARRAY {
        let other = types.iter().find(|other| *other != first)?;
        return Some(SqlError::new(
            SqlState::DatatypeMismatch,
            format!("ARRAY types {first} and {other} cannot be matched"),
        ));
    }
    let op = name.strip_prefix("any ").or_else(|| name.strip_prefix("all "))?;
    let Some(element) = types.last()?.strip_suffix("[]") else {
        return Some(SqlError::new(
            SqlState::WrongObjectType,
            "op ANY/ALL (array) requires array on right side",
        ));
    };
    let error = SqlError::new(
        SqlState::UndefinedFunction,
        format!("operator does not exist: {first} {op} {element}"),
    );
    Some(error.with_hint(
        "No operator matches the given argument types. You might need to add explicit type casts.",
    ))
}

/// The call of one of these functions.
pub(crate) fn call(name: &str, args: Vec<Expr>) -> Option<Expr> {
    let function = super::Functions::all().scalar.get(name)?;
    Some(function.call(args))
}
