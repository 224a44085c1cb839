//! Highwater sql.
