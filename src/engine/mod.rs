//! The engine: lanes, steps, deltas, operators, state, checkpoints. Imports the leaves and nothing else of `src/`.
//!
//! ```text
//! lane threads                         pipeline thread (one step at a time)                checkpoint thread
//! poll → decode → prefix ─▶ queue ─▶ operators in plan order ─▶ views, outbox ─▶ freeze ─▶ one WriteBatch, fsync
//! ```

pub(crate) mod bounded;
pub(crate) mod clock;
pub(crate) mod codec;
pub(crate) mod delta;
pub(crate) mod error;
pub(crate) mod errors_log;
pub(crate) mod exact;
pub(crate) mod expression;
pub(crate) mod followed;
pub(crate) mod lane;
pub(crate) mod late_rows;
pub(crate) mod memory;
pub(crate) mod merge;
pub(crate) mod node_figures;
pub(crate) mod operators;
pub(crate) mod pipeline;
pub(crate) mod query;
pub(crate) mod rate;
pub(crate) mod reader;
pub(crate) mod reaper;
pub(crate) mod run;
pub(crate) mod sink;
pub(crate) mod source_settings;
pub(crate) mod status;
pub(crate) mod subscribe;
pub(crate) mod table;
pub(crate) mod view;
pub(crate) mod watermark;
