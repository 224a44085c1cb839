//! The seam: what a store must do, whoever keeps the bytes.

use std::path::Path;

use crate::batch::WriteBatch;
use crate::error::StorageError;
use crate::family::Family;

/// A row as a scan yields it: key and value.
pub type Row = (Box<[u8]>, Box<[u8]>);

/// The rows of a scan, in key order.
pub type Rows<'a> = Box<dyn Iterator<Item = Result<Row, StorageError>> + 'a>;

/// What [`Snapshot::for_each`] calls with each key and value; `false` ends the walk.
pub type RowVisitor<'a> = dyn FnMut(&[u8], &[u8]) -> Result<bool, StorageError> + 'a;

/// What [`Snapshot::get_sorted`] and [`Snapshot::scan_under`] call with the place of a key or prefix, and a key or value.
pub type PlaceVisitor<'a> = dyn FnMut(usize, &[u8], &[u8]) -> Result<(), StorageError> + 'a;

/// When a commit counts as done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Durability {
    /// After an fsync: the batch survives the loss of power.
    Sync,
    /// When the operating system has it: the batch survives the death of the process, and becomes
    /// durable with the next [`Durability::Sync`] commit or [`Store::sync`].
    Buffered,
}

/// Sizes of a store in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct StoreMetrics {
    /// All files of the database directory; 0 for an in-memory store.
    pub disk_bytes: u64,
    /// Writes held in memory until they are flushed to a sorted file; for an in-memory store, all
    /// of its keys and values.
    pub memtable_bytes: u64,
    /// Memory in use out of [`StoreOptions::memory_bytes`](crate::StoreOptions::memory_bytes): the
    /// blocks of files in the cache, and the write buffers, which are charged to it in steps.
    pub block_cache_bytes: u64,
}

/// Bytes under keys, one atomic commit at a time.
pub trait Store: Send + Sync {
    /// The value under `key` after the last commit.
    ///
    /// # Errors
    ///
    /// If the file that holds the key cannot be read.
    fn get(&self, family: Family, key: &[u8]) -> Result<Option<Vec<u8>>, StorageError>;

    /// A view of the store as it is now, which later commits do not change.
    ///
    /// It costs microseconds and borrows nothing: the files stay open until it is dropped, even
    /// when the store is dropped earlier. An old snapshot keeps overwritten rows on disk alive.
    fn snapshot(&self) -> Box<dyn Snapshot>;

    /// Applies all of `batch` or nothing of it.
    ///
    /// # Errors
    ///
    /// [`StorageError::ReadOnly`] for a read-only store, [`StorageError::DiskFull`] when there is
    /// no room. After any other error the store must be opened again before it is written to.
    fn commit(&self, batch: WriteBatch, durability: Durability) -> Result<(), StorageError>;

    /// Makes earlier [`Durability::Buffered`] commits durable by one fsync.
    ///
    /// # Errors
    ///
    /// If the fsync fails; whether those commits are durable is then unknown.
    fn sync(&self) -> Result<(), StorageError>;

    /// How large the store is.
    fn metrics(&self) -> StoreMetrics;

    /// How many bytes the keys and values take that start with `prefix`. A store with files counts no more than a MiB of them one by one; beyond, it says
    /// what they take on disk.
    ///
    /// # Errors
    ///
    /// If a file cannot be read.
    fn bytes_under(&self, family: Family, prefix: &[u8]) -> Result<u64, StorageError> {
        counted_bytes(&*self.snapshot(), family, prefix, u64::MAX)
    }

    /// Makes a database of its own in `dir` with the content of the last commit. Files are shared
    /// by hard links where both directories are on one device.
    ///
    /// # Errors
    ///
    /// [`StorageError::BackupExists`] if there is anything at `dir`, [`StorageError::InMemory`]
    /// from a store without files.
    fn backup_to(&self, dir: &Path) -> Result<(), StorageError>;

    /// Whether every commit is refused.
    fn is_read_only(&self) -> bool;
}

/// A consistent view of a store at one instant, across all families.
pub trait Snapshot: Send {
    /// The value under `key`.
    ///
    /// # Errors
    ///
    /// If the file that holds the key cannot be read.
    fn get(&self, family: Family, key: &[u8]) -> Result<Option<Vec<u8>>, StorageError>;

    /// The rows in `from..to` in key order, each an allocation of its own. `None` means: to the end
    /// of the family. Prefer [`for_each`](Self::for_each) where many rows pass.
    ///
    /// # Errors
    ///
    /// An item is an error if a file cannot be read; nothing follows it.
    fn scan<'a>(&'a self, family: Family, from: &[u8], to: Option<&[u8]>) -> Result<Rows<'a>, StorageError>;

    /// Calls `visit` with each row in `from..to` in key order until it answers `false`. No row is
    /// copied. `None` means: to the end of the family.
    ///
    /// # Errors
    ///
    /// What `visit` returns, or a file that cannot be read.
    fn for_each(
        &self,
        family: Family,
        from: &[u8],
        to: Option<&[u8]>,
        visit: &mut RowVisitor<'_>,
    ) -> Result<(), StorageError>;

    /// As [`for_each`](Self::for_each), from the greatest key to the least.
    ///
    /// # Errors
    ///
    /// What `visit` returns, or a file that cannot be read.
    fn for_each_back(
        &self,
        family: Family,
        from: &[u8],
        to: Option<&[u8]>,
        visit: &mut RowVisitor<'_>,
    ) -> Result<(), StorageError>;

    /// Looks up `keys`, which ascend, together: calls `visit` with the place, key and value of each one that is there, in order.
    /// Of keys that are not there little is read.
    ///
    /// # Errors
    ///
    /// What `visit` returns, or a file that cannot be read.
    fn get_sorted(
        &self,
        family: Family,
        keys: &[&[u8]],
        visit: &mut PlaceVisitor<'_>,
    ) -> Result<(), StorageError> {
        for (place, key) in keys.iter().enumerate() {
            if let Some(value) = self.get(family, key)? {
                visit(place, key, &value)?;
            }
        }
        Ok(())
    }

    /// Calls `visit` with each row whose key starts with one of `prefixes`, in order: the place of the prefix, key and value. The
    /// prefixes ascend, and none is the beginning of another one.
    ///
    /// # Errors
    ///
    /// What `visit` returns, or a file that cannot be read.
    fn scan_under(
        &self,
        family: Family,
        prefixes: &[&[u8]],
        visit: &mut PlaceVisitor<'_>,
    ) -> Result<(), StorageError> {
        for (place, prefix) in prefixes.iter().enumerate() {
            let to = prefix_end(prefix);
            self.for_each(family, prefix, to.as_deref(), &mut |key, value| {
                visit(place, key, value)?;
                Ok(true)
            })?;
        }
        Ok(())
    }

    /// The greatest key in `from..to`; `None` as `to` means: to the end of the family.
    ///
    /// # Errors
    ///
    /// If a file cannot be read.
    fn last_key(
        &self,
        family: Family,
        from: &[u8],
        to: Option<&[u8]>,
    ) -> Result<Option<Vec<u8>>, StorageError>;
}

/// The bytes of the keys and values that start with `prefix`; counting ends when there are more than `max`.
pub(crate) fn counted_bytes(
    snapshot: &dyn Snapshot,
    family: Family,
    prefix: &[u8],
    max: u64,
) -> Result<u64, StorageError> {
    let mut bytes = 0;
    let to = prefix_end(prefix);
    snapshot.for_each(family, prefix, to.as_deref(), &mut |key, value| {
        bytes += (key.len() + value.len()) as u64;
        Ok(bytes <= max)
    })?;
    Ok(bytes)
}

/// The least key that is greater than every key that starts with `prefix`, to be used as the upper
/// end of a scan. `None` if there is none, that is if `prefix` has only bytes 255.
pub fn prefix_end(prefix: &[u8]) -> Option<Vec<u8>> {
    let last = prefix.iter().rposition(|byte| *byte != u8::MAX)?;
    let mut end = prefix[..=last].to_vec();
    end[last] += 1;
    Some(end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_prefix_is_the_next_key_that_does_not_start_with_it() {
        assert_eq!(prefix_end(b"ab"), Some(b"ac".to_vec()));
        assert_eq!(prefix_end(&[1, 255, 255]), Some(vec![2]));
        assert_eq!(prefix_end(&[255, 255]), None);
        assert_eq!(prefix_end(b""), None);
    }
}
