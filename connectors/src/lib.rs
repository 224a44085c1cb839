//! Highwater connectors.
