//! A view against a model of it.
