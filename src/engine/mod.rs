//! The engine: lanes, steps, deltas, operators, state, checkpoints. Imports the leaves and nothing else of `src/`.
//!
//! ```text
//! lane threads                         pipeline thread (one step at a time)                checkpoint thread
//! poll → decode → prefix ─▶ queue ─▶ operators in plan order ─▶ views, outbox ─▶ freeze ─▶ one WriteBatch, fsync
//! ```

pub(crate) mod codec;
pub(crate) mod delta;
pub(crate) mod error;
pub(crate) mod operators;
pub(crate) mod view;
