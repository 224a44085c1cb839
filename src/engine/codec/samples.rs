//! Random columns of every type that is stored.
