//! Highwater.
