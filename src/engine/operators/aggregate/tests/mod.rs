//! The aggregate against a naive model, and the cases that deserve a name.

mod model;
mod named;
mod random;
mod world;
