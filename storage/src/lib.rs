//! Highwater storage.
