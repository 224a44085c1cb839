//! Highwater's SQL front end: text → statement → stream plan. Pure: no I/O, no clock, no async (INV-8).

pub mod catalog;
pub mod error;
pub mod statement;
pub mod stream_plan;

pub use error::{SqlError, SqlState};
