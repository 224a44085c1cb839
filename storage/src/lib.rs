//! Highwater's storage: bytes under keys, one atomic commit at a time.
//!
//! This crate knows nothing of Kafka, Arrow or SQL. It keeps a database in one directory, on
//! RocksDB, or in memory, and knows where each kind of row lives.
//!
//! ```text
//!  the engine, at the end of a step                                       the engine, at a restart
//!        │                                                                            ▲
//!        ▼ state, view rows, progress, output rows                                    │
//!  CheckpointWriter ─ layout: which key? ─▶ WriteBatch                catalog · progress · outbox
//!                     codecs: which bytes?      │                                     ▲
//!                                               ▼                                     │ for_each
//!                                        Store::commit ──▶ RocksStore ──▶ Snapshot ───┘
//!                                        one batch, fsync   MemoryStore   one instant
//! ```
//!
//! - [`Store`] and [`Snapshot`] are the seam; [`RocksStore`] and [`MemoryStore`] stand behind it.
//! - [`WriteBatch`] gathers writes; a commit applies all of them or none.
//! - [`CheckpointWriter`] fills a batch with one checkpoint of a pipeline.
//! - [`keys`] encodes values so that bytes sort as values do; [`layout`] says what a key starts with.
//! - [`catalog`], [`progress`] and [`outbox`] encode this crate's own rows and read them back.
//! - [`StorageError`] says what to do about it.
//!
//! A checkpoint, and what a restart finds:
//!
//! ```
//! use highwater_storage::{
//!     CheckpointWriter, Durability, Epoch, LaneCounts, LaneProgress, ObjectId, PartitionNo, RocksStore, Store,
//!     StoreOptions, progress,
//! };
//!
//! let (view, source) = (ObjectId(2), ObjectId(1));
//! let dir = tempfile::tempdir()?;
//! let store = RocksStore::open(dir.path(), &StoreOptions::default())?;
//!
//! let mut checkpoint = CheckpointWriter::new(Epoch(1));
//! checkpoint.put_view(view, b"berlin", b"17");
//! let lane = LaneProgress { next_offset: 42, watermark: None, idle: false, counts: LaneCounts::default() };
//! checkpoint.put_lane_progress(view, source, PartitionNo(0), &lane);
//! store.commit(checkpoint.finish(), Durability::Sync)?;
//! drop(store);
//!
//! let store = RocksStore::open(dir.path(), &StoreOptions::default())?;
//! let found = progress::load(&*store.snapshot(), view)?;
//! assert_eq!(found.lanes, [(source, PartitionNo(0), lane)]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod batch;
pub mod catalog;
mod checkpoint;
mod codec;
mod error;
mod family;
mod format;
mod ids;
pub mod keys;
pub mod layout;
mod memory;
mod options;
pub mod outbox;
pub mod progress;
mod rocks;
mod store;

pub use batch::WriteBatch;
pub use catalog::{CatalogContent, CatalogRow};
pub use checkpoint::CheckpointWriter;
pub use error::StorageError;
pub use family::Family;
pub use format::FORMAT_VERSION;
pub use ids::{Epoch, ObjectId, OperatorId, PartitionNo, StateTable, TableId};
pub use keys::{Direction, KeyOrder, KeyReader, KeyWriter, Nulls};
pub use memory::MemoryStore;
pub use options::StoreOptions;
pub use outbox::OutboxRecord;
pub use progress::{LaneCounts, LaneProgress, ObjectProgress, OperatorHeader, QueryProgress, SinkProgress};
pub use rocks::RocksStore;
pub use store::{Durability, PlaceVisitor, Row, RowVisitor, Rows, Snapshot, Store, StoreMetrics, prefix_end};
