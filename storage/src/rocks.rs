//! [`RocksStore`]: a store in a directory, on RocksDB.
//!
//! ```text
//! commit ──▶ rocksdb::WriteBatch ──▶ WAL (fsync) ──▶ memtables ──▶ sorted files, LZ4 then zstd
//! read   ◀── snapshot ◀───────────────────────────── memtables ◀── block cache ◀── bloom filter
//! ```
//!
//! Failpoints, which are nothing unless the feature `failpoints` of the crate `fail` is on:
//!
//! | name | where |
//! |---|---|
//! | `checkpoint-before-write` | before a synchronous commit writes anything |
//! | `checkpoint-write-error` | there too; `return` makes the commit fail and apply nothing |
//! | `checkpoint-after-write` | after a synchronous commit is durable, before its caller knows |
//! | `sync-before-fsync`, `sync-after-fsync` | around the fsync of [`Store::sync`] |

mod directory;
mod mark;
mod open;
mod snapshot;
mod tuning;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use rocksdb::checkpoint::Checkpoint;
use rocksdb::{Cache, ColumnFamily, DB, WriteOptions};
use tempfile::TempDir;
use tracing::warn;

use crate::batch::{Operation, WriteBatch};
use crate::error::StorageError;
use crate::family::Family;
use crate::options::StoreOptions;
use crate::store::{Durability, Snapshot, Store, StoreMetrics, counted_bytes, prefix_end};

use directory::DirectoryLock;
use mark::DurableMark;
use snapshot::RocksSnapshot;

/// How many bytes of rows are counted one by one.
const COUNTED_BYTES_MAX: u64 = 1 << 20;

/// A database directory. Open it for writing with [`open`](Self::open), which only one process can
/// do at a time, or look into it with [`open_read_only`](Self::open_read_only).
pub struct RocksStore {
    dir: PathBuf,
    access: Access,
}

enum Access {
    Primary(Arc<Instance>),
    /// Never changes while somebody reads from it: see [`RocksStore::refresh`].
    Secondary(Mutex<Arc<Instance>>),
}

/// An open RocksDB with what must live as long as it. Fields drop in this order.
pub(crate) struct Instance {
    db: DB,
    cache: Cache,
    /// What a writer has made durable.
    mark: Option<DurableMark>,
    _lock: Option<DirectoryLock>,
    /// Where a secondary keeps its own log.
    _scratch: Option<TempDir>,
}

impl RocksStore {
    /// Opens the database in `dir` for reading and writing, or makes one there if the directory is
    /// missing or empty.
    ///
    /// # Errors
    ///
    /// [`StorageError::Locked`] if it is open elsewhere, [`StorageError::FormatVersion`] if another
    /// version wrote it, [`StorageError::NotADatabase`] if the directory holds something else,
    /// [`StorageError::NotFound`] if it is missing and must not be made,
    /// [`StorageError::InvalidOption`], or what the disk says.
    pub fn open(dir: impl AsRef<Path>, options: &StoreOptions) -> Result<Arc<Self>, StorageError> {
        let dir = dir.as_ref();
        let instance = open::primary(dir, options)?;
        Ok(Arc::new(Self {
            dir: dir.to_owned(),
            access: Access::Primary(Arc::new(instance)),
        }))
    }

    /// Opens the database in `dir` to look into it, whether or not a process has it open. It shows
    /// the last commit at the time of opening; see [`refresh`](Self::refresh).
    ///
    /// # Errors
    ///
    /// [`StorageError::NotFound`] or [`StorageError::NotADatabase`] if there is none,
    /// [`StorageError::FormatVersion`] if another version wrote it.
    pub fn open_read_only(dir: impl AsRef<Path>) -> Result<Arc<Self>, StorageError> {
        let dir = dir.as_ref();
        let instance = Arc::new(open::secondary(dir)?);
        Ok(Arc::new(Self {
            dir: dir.to_owned(),
            access: Access::Secondary(Mutex::new(instance)),
        }))
    }

    /// Brings a read-only store up to the last commit. Snapshots taken earlier do not change. A
    /// store that is open for writing is always up to date.
    ///
    /// # Errors
    ///
    /// If the files cannot be read; the store then still shows what it showed before.
    pub fn refresh(&self) -> Result<(), StorageError> {
        let Access::Secondary(current) = &self.access else {
            return Ok(());
        };
        let mut current = current.lock();
        // A secondary has no snapshots of its own: while one is out, its instance must stand still.
        if Arc::strong_count(&current) == 1 {
            let caught_up = current.db.try_catch_up_with_primary();
            return caught_up.map_err(|error| StorageError::rocks("follow the writer", &error));
        }
        *current = Arc::new(open::secondary(&self.dir)?);
        Ok(())
    }

    /// The database directory.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Reads from the open database; a writer's readers share no counter.
    fn read<T>(&self, read: impl FnOnce(&Instance) -> T) -> T {
        match &self.access {
            Access::Primary(instance) => read(instance),
            Access::Secondary(current) => {
                let instance = Arc::clone(&current.lock());
                read(&instance)
            }
        }
    }

    fn writable(&self) -> Result<&Instance, StorageError> {
        match &self.access {
            Access::Primary(instance) => Ok(instance),
            Access::Secondary(_) => Err(StorageError::ReadOnly),
        }
    }
}

impl Store for RocksStore {
    fn get(&self, family: Family, key: &[u8]) -> Result<Option<Vec<u8>>, StorageError> {
        self.read(|instance| instance.get(family, key))
    }

    fn snapshot(&self) -> Box<dyn Snapshot> {
        match &self.access {
            Access::Primary(instance) => Box::new(RocksSnapshot::of_primary(Arc::clone(instance))),
            Access::Secondary(current) => Box::new(RocksSnapshot::of_secondary(Arc::clone(&current.lock()))),
        }
    }

    fn commit(&self, batch: WriteBatch, durability: Durability) -> Result<(), StorageError> {
        let instance = self.writable()?;
        let batch = instance.rocks_batch(batch)?;
        // Whoever else writes meanwhile, what was there before and this batch are durable when it is.
        let change = instance.db.latest_sequence_number() + batch.len() as u64;
        let mut options = WriteOptions::default();
        options.set_sync(durability == Durability::Sync);

        if durability == Durability::Sync {
            fail::fail_point!("checkpoint-before-write");
            fail::fail_point!("checkpoint-write-error", |_| Err(StorageError::Engine {
                action: "write a batch",
                detail: "The failpoint checkpoint-write-error is on.".to_owned(),
            }));
        }
        instance
            .db
            .write_opt(batch, &options)
            .map_err(|error| StorageError::rocks("write a batch", &error))?;
        if durability == Durability::Sync {
            fail::fail_point!("checkpoint-after-write");
            instance.note_durable(change);
        }
        Ok(())
    }

    fn sync(&self) -> Result<(), StorageError> {
        let instance = self.writable()?;
        fail::fail_point!("sync-before-fsync");
        let change = instance.db.latest_sequence_number();
        let synced = instance.db.flush_wal(true);
        synced.map_err(|error| StorageError::rocks("sync the write-ahead log", &error))?;
        fail::fail_point!("sync-after-fsync");
        instance.note_durable(change);
        Ok(())
    }

    fn metrics(&self) -> StoreMetrics {
        let (memtable_bytes, block_cache_bytes) =
            self.read(|instance| (instance.memtable_bytes(), instance.cache.get_usage() as u64));
        let disk_bytes = directory::disk_bytes(&self.dir);
        StoreMetrics {
            disk_bytes,
            memtable_bytes,
            block_cache_bytes,
        }
    }

    fn bytes_under(&self, family: Family, prefix: &[u8]) -> Result<u64, StorageError> {
        let counted = counted_bytes(&*self.snapshot(), family, prefix, COUNTED_BYTES_MAX)?;
        let Some(to) = prefix_end(prefix).filter(|_| counted > COUNTED_BYTES_MAX) else {
            return Ok(counted);
        };
        let range = rocksdb::Range::new(prefix, &to);
        let sizes = self.read(|instance| {
            let family = instance.family(family);
            instance.db.get_approximate_sizes_cf(&family, &[range])
        });
        // What is in the write buffers is on no disk yet.
        Ok(sizes.into_iter().sum::<u64>().max(counted))
    }

    fn backup_to(&self, dir: &Path) -> Result<(), StorageError> {
        let instance = self.writable()?;
        if dir.symlink_metadata().is_ok() {
            return Err(StorageError::BackupExists { dir: dir.to_owned() });
        }
        Checkpoint::new(&instance.db)
            .and_then(|checkpoint| checkpoint.create_checkpoint(dir))
            .map_err(|error| StorageError::rocks("write the backup", &error))
    }

    fn is_read_only(&self) -> bool {
        matches!(self.access, Access::Secondary(_))
    }
}

impl Instance {
    fn family(&self, family: Family) -> &ColumnFamily {
        self.db
            .cf_handle(family.name())
            .expect("all families were opened")
    }

    fn note_durable(&self, change: u64) {
        if let Some(mark) = &self.mark {
            mark.raise(change);
        }
    }

    fn get(&self, family: Family, key: &[u8]) -> Result<Option<Vec<u8>>, StorageError> {
        let value = self.db.get_cf(self.family(family), key);
        value.map_err(|error| StorageError::rocks("read a key", &error))
    }

    fn rocks_batch(&self, batch: WriteBatch) -> Result<rocksdb::WriteBatch, StorageError> {
        let families = Family::ALL.map(|family| self.family(family));
        let mut rocks = rocksdb::WriteBatch::with_capacity_bytes(batch.bytes());
        batch.replay(|operation| {
            match operation {
                Operation::Put { family, key, value } => {
                    rocks.put_cf(families[family.index()], key, value);
                }
                Operation::Delete { family, key } => {
                    rocks.delete_cf(families[family.index()], key);
                }
                Operation::DeleteRange { family, from, to } => {
                    rocks.delete_range_cf(families[family.index()], from, to);
                }
            }
            Ok(())
        })?;
        Ok(rocks)
    }

    fn memtable_bytes(&self) -> u64 {
        let property = "rocksdb.cur-size-all-mem-tables";
        let bytes = |family| self.db.property_int_value_cf(self.family(family), property);
        let sum: Result<u64, _> = Family::ALL
            .into_iter()
            .map(|family| Ok(bytes(family)?.unwrap_or(0)))
            .sum();
        sum.unwrap_or_else(|error: rocksdb::Error| {
            warn!(%error, "the size of the write buffers is unknown");
            0
        })
    }
}

#[cfg(test)]
#[path = "rocks/tests.rs"]
mod tests;
