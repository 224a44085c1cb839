//! Rows that live in the process: a source that a program pushes Arrow batches into, and a sink that keeps what it is
//! given.
//!
//! ```
//! use std::sync::Arc;
//! use arrow::array::{Int64Array, RecordBatch};
//! use highwater_connectors::memory::MemoryConnector;
//!
//! let connector = MemoryConnector::new();
//! let clicks = connector.handle("clicks");
//! let column = Arc::new(Int64Array::from(vec![1, 2, 3]));
//! clicks.push(RecordBatch::try_from_iter([("user_id", column as _)])?)?;
//! assert_eq!(clicks.end_offset(0), Some(3));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod sink;
mod source;
mod topic;

pub use sink::{MemorySinkConnector, MemorySinkHandle};
pub use source::MemoryConnector;
pub use topic::{MemoryHandle, MemoryHold};
