//! JSONB in queries: PostgreSQL's operators, functions, casts and aggregates, and equality by value (ADR-18).
//!
//! ```text
//! ast::Query ──[sets]──▶ set-returning functions are unnest() of lists, in FROM they are lateral
//!     │ SqlToRel, with [operators]: `->`, `@>`, `=` … are calls of [functions] as soon as the types of their sides are known
//!     ▼
//! LogicalPlan ─[typed]──▶ arguments checked, constants in quotes read, casts are calls
//!     │       ─[by_value]─▶ GROUP BY, DISTINCT, ORDER BY, joins take documents by their value
//!     ▼
//! Analyzer, which finds no JSONB that it would convert
//! ```

mod aggregates;
mod by_value;
mod casts;
mod compute;
mod functions;
mod lateral;
mod operators;
mod path;
mod sets;
mod typed;
mod values;

pub(crate) use aggregates::aggregates;
pub(crate) use by_value::by_value;
pub(crate) use casts::null_casts;
pub(crate) use functions::{is_sort_key_of, scalar_functions};
pub(crate) use lateral::unnested;
pub(crate) use operators::{JsonOperators, field};
pub(crate) use sets::{is_set_function, spread, spread_from};
pub(crate) use typed::typed;
pub(crate) use values::no_operator;
