//! Highwater's SQL front end: text → statement → stream plan. Pure: no I/O, no clock, no async (INV-8).

mod calls;
pub mod catalog;
pub mod error;
pub mod host;
pub mod jsonb;
pub mod oids;
pub mod options;
pub mod parse;
pub mod plan;
pub mod resolve;
pub mod show;
pub mod statement;
pub mod stream_plan;
pub mod suggest;
pub mod text;

pub use error::{SqlError, SqlState};
pub use plan::explain;
