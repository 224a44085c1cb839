//! Highwater: an embedded SQL streaming database.

mod engine;
