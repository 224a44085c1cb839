//! [`MemoryStore`]: a store without files, for tests and databases that need not outlive their
//! process.
//!
//! Each key has a list of versions, one per commit that changed it. A snapshot is a commit number and
//! reads the newest version that is not newer; versions that no snapshot can see are dropped by the
//! next commit or when the last such snapshot goes. So a snapshot costs nothing, a commit costs what
//! it changes, and a long scan holds up no commit: it takes the lock for a bounded number of rows at
//! a time.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;
use std::path::Path;
use std::sync::Arc;

use parking_lot::RwLock;

use crate::batch::{Operation, WriteBatch};
use crate::error::StorageError;
use crate::family::Family;
use crate::store::{Durability, RowVisitor, Rows, Snapshot, Store, StoreMetrics};

/// Rows that a scan takes out under one lock.
const CHUNK_ROWS: usize = 256;

type Bytes = Arc<[u8]>;

/// A store in memory. Its commits and snapshots behave as those of
/// [`RocksStore`](crate::RocksStore), but nothing is durable and there is no backup.
#[derive(Debug, Default)]
pub struct MemoryStore {
    tables: Arc<RwLock<Tables>>,
}

#[derive(Debug, Default)]
struct Tables {
    families: [BTreeMap<Bytes, Vec<Version>>; Family::COUNT],
    /// The number of the last commit.
    commit: u64,
    /// Keys that lost a version, with the commit that replaced it, ascending.
    superseded: VecDeque<(u64, Family, Bytes)>,
    /// How many snapshots look at each commit.
    live: BTreeMap<u64, usize>,
    /// Keys and the values of all versions.
    bytes: u64,
}

/// What a commit made of a key; `None` is a deletion. Versions of a key ascend by commit.
#[derive(Debug)]
struct Version {
    commit: u64,
    value: Option<Bytes>,
}

struct MemorySnapshot {
    tables: Arc<RwLock<Tables>>,
    commit: u64,
}

impl MemoryStore {
    /// An empty store.
    pub fn new() -> Self {
        Self::default()
    }
}

impl Store for MemoryStore {
    fn get(&self, family: Family, key: &[u8]) -> Result<Option<Vec<u8>>, StorageError> {
        let tables = self.tables.read();
        Ok(tables.get(family, key, tables.commit).map(|value| value.to_vec()))
    }

    fn snapshot(&self) -> Box<dyn Snapshot> {
        let mut tables = self.tables.write();
        let commit = tables.commit;
        *tables.live.entry(commit).or_default() += 1;
        Box::new(MemorySnapshot {
            tables: Arc::clone(&self.tables),
            commit,
        })
    }

    fn commit(&self, batch: WriteBatch, durability: Durability) -> Result<(), StorageError> {
        if durability == Durability::Sync {
            fail::fail_point!("checkpoint-before-write");
        }
        let mut tables = self.tables.write();
        tables.apply(batch);
        drop(tables);
        if durability == Durability::Sync {
            fail::fail_point!("checkpoint-after-write");
        }
        Ok(())
    }

    fn sync(&self) -> Result<(), StorageError> {
        Ok(())
    }

    fn metrics(&self) -> StoreMetrics {
        StoreMetrics {
            memtable_bytes: self.tables.read().bytes,
            ..StoreMetrics::default()
        }
    }

    fn backup_to(&self, _dir: &Path) -> Result<(), StorageError> {
        Err(StorageError::InMemory {
            action: "be backed up",
        })
    }

    fn is_read_only(&self) -> bool {
        false
    }
}

impl Tables {
    fn get(&self, family: Family, key: &[u8], commit: u64) -> Option<&Bytes> {
        visible(self.families[family.index()].get(key)?, commit)
    }

    fn apply(&mut self, batch: WriteBatch) {
        self.commit += 1;
        let applied = batch.replay(|operation| {
            match operation {
                Operation::Put { family, key, value } => self.write(family, key, Some(value)),
                Operation::Delete { family, key } => self.write(family, key, None),
                Operation::DeleteRange { family, from, to } => self.delete_range(family, from, to),
            }
            Ok::<(), std::convert::Infallible>(())
        });
        match applied {
            Ok(()) => self.drop_unseen(),
            Err(never) => match never {},
        }
    }

    fn write(&mut self, family: Family, key: &[u8], value: Option<&[u8]>) {
        let table = &mut self.families[family.index()];
        let key = match table.get_key_value(key) {
            Some((key, _)) => Arc::clone(key),
            None if value.is_none() => return,
            None => {
                self.bytes += key.len() as u64;
                Bytes::from(key)
            }
        };
        let versions = table.entry(Arc::clone(&key)).or_default();
        if let Some(last) = versions.pop_if(|last| last.commit == self.commit) {
            self.bytes -= last.bytes();
        }
        let version = Version {
            commit: self.commit,
            value: value.map(Bytes::from),
        };
        self.bytes += version.bytes();
        versions.push(version);
        if versions.len() > 1 || value.is_none() {
            self.superseded.push_back((self.commit, family, key));
        }
    }

    fn delete_range(&mut self, family: Family, from: &[u8], to: &[u8]) {
        let range = (Bound::Included(from), Bound::Excluded(to));
        let keys: Vec<Bytes> = self.families[family.index()]
            .range::<[u8], _>(range)
            .filter(|(_, versions)| visible(versions, self.commit).is_some())
            .map(|(key, _)| Arc::clone(key))
            .collect();
        for key in keys {
            self.write(family, &key, None);
        }
    }

    /// Drops the versions that no snapshot, present or future, can see.
    fn drop_unseen(&mut self) {
        let oldest = self.live.keys().next().copied().unwrap_or(self.commit);
        while let Some((_, family, key)) = self.superseded.pop_front_if(|(commit, ..)| *commit <= oldest) {
            let table = &mut self.families[family.index()];
            let Some(versions) = table.get_mut(&key) else {
                continue;
            };
            let newer = versions.partition_point(|version| version.commit <= oldest);
            for unseen in versions.drain(..newer.saturating_sub(1)) {
                self.bytes -= unseen.bytes();
            }
            let gone = matches!(versions.as_slice(), [only] if only.value.is_none());
            if gone {
                self.bytes -= key.len() as u64;
                table.remove(&key);
            }
        }
    }
}

impl Version {
    fn bytes(&self) -> u64 {
        self.value.as_ref().map_or(0, |value| value.len() as u64)
    }
}

fn visible(versions: &[Version], commit: u64) -> Option<&Bytes> {
    versions
        .iter()
        .rfind(|version| version.commit <= commit)?
        .value
        .as_ref()
}

impl MemorySnapshot {
    /// The last rows of a range, the greatest key first; fewer than [`CHUNK_ROWS`] if there are no more.
    fn chunk_back(&self, family: Family, from: &[u8], to: Option<&[u8]>) -> Vec<(Bytes, Bytes)> {
        if to.is_some_and(|to| from >= to) {
            return Vec::new();
        }
        let to = to.map_or(Bound::Unbounded, Bound::Excluded);
        let tables = self.tables.read();
        tables.families[family.index()]
            .range::<[u8], _>((Bound::Included(from), to))
            .rev()
            .filter_map(|(key, versions)| Some((key, visible(versions, self.commit)?)))
            .map(|(key, value)| (Arc::clone(key), Arc::clone(value)))
            .take(CHUNK_ROWS)
            .collect()
    }

    /// The next rows of a scan; fewer than [`CHUNK_ROWS`] if they are the last.
    fn chunk(&self, family: Family, from: Bound<&[u8]>, to: Option<&[u8]>) -> Vec<(Bytes, Bytes)> {
        if let (Bound::Included(from) | Bound::Excluded(from), Some(to)) = (from, to)
            && from >= to
        {
            return Vec::new();
        }
        let to = to.map_or(Bound::Unbounded, Bound::Excluded);
        let tables = self.tables.read();
        tables.families[family.index()]
            .range::<[u8], _>((from, to))
            .filter_map(|(key, versions)| Some((key, visible(versions, self.commit)?)))
            .map(|(key, value)| (Arc::clone(key), Arc::clone(value)))
            .take(CHUNK_ROWS)
            .collect()
    }
}

impl Snapshot for MemorySnapshot {
    fn get(&self, family: Family, key: &[u8]) -> Result<Option<Vec<u8>>, StorageError> {
        Ok(self
            .tables
            .read()
            .get(family, key, self.commit)
            .map(|value| value.to_vec()))
    }

    fn scan<'a>(&'a self, family: Family, from: &[u8], to: Option<&[u8]>) -> Result<Rows<'a>, StorageError> {
        let to = to.map(<[u8]>::to_vec);
        let mut chunk = self
            .chunk(family, Bound::Included(from), to.as_deref())
            .into_iter();
        let mut last: Option<Bytes> = None;
        Ok(Box::new(std::iter::from_fn(move || {
            if chunk.len() == 0 {
                let from = Bound::Excluded(&**last.as_ref()?);
                chunk = self.chunk(family, from, to.as_deref()).into_iter();
            }
            let (key, value) = chunk.next()?;
            let row = (Box::from(&*key), Box::from(&*value));
            last = Some(key);
            Some(Ok(row))
        })))
    }

    fn for_each(
        &self,
        family: Family,
        from: &[u8],
        to: Option<&[u8]>,
        visit: &mut RowVisitor<'_>,
    ) -> Result<(), StorageError> {
        let mut chunk = self.chunk(family, Bound::Included(from), to);
        loop {
            for (key, value) in &chunk {
                if !visit(key, value)? {
                    return Ok(());
                }
            }
            let Some((last, _)) = chunk.last().filter(|_| chunk.len() == CHUNK_ROWS) else {
                return Ok(());
            };
            chunk = self.chunk(family, Bound::Excluded(last), to);
        }
    }

    fn for_each_back(
        &self,
        family: Family,
        from: &[u8],
        to: Option<&[u8]>,
        visit: &mut RowVisitor<'_>,
    ) -> Result<(), StorageError> {
        let mut chunk = self.chunk_back(family, from, to);
        loop {
            for (key, value) in &chunk {
                if !visit(key, value)? {
                    return Ok(());
                }
            }
            let Some((last, _)) = chunk.last().filter(|_| chunk.len() == CHUNK_ROWS) else {
                return Ok(());
            };
            chunk = self.chunk_back(family, from, Some(last));
        }
    }

    fn last_key(
        &self,
        family: Family,
        from: &[u8],
        to: Option<&[u8]>,
    ) -> Result<Option<Vec<u8>>, StorageError> {
        if to.is_some_and(|to| from >= to) {
            return Ok(None);
        }
        let range = (
            Bound::Included(from),
            to.map_or(Bound::Unbounded, Bound::Excluded),
        );
        let tables = self.tables.read();
        let last = tables.families[family.index()]
            .range::<[u8], _>(range)
            .rfind(|(_, versions)| visible(versions, self.commit).is_some());
        Ok(last.map(|(key, _)| key.to_vec()))
    }
}

impl Drop for MemorySnapshot {
    fn drop(&mut self) {
        let mut tables = self.tables.write();
        if let Some(count) = tables.live.get_mut(&self.commit) {
            *count -= 1;
            if *count == 0 {
                tables.live.remove(&self.commit);
            }
        }
        tables.drop_unseen();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(store: &MemoryStore, key: &[u8], value: &[u8]) {
        let mut batch = WriteBatch::new();
        batch.put(Family::State, key, value);
        store.commit(batch, Durability::Buffered).unwrap();
    }

    #[test]
    fn memory_returns_to_what_is_visible_when_snapshots_go() {
        // given
        let store = MemoryStore::new();
        put(&store, b"key", b"0123456789");
        let old = store.snapshot();
        for _ in 0..10 {
            put(&store, b"key", b"0123456789");
        }
        let mut batch = WriteBatch::new();
        batch.delete_range(Family::State, b"a", b"z");
        store.commit(batch, Durability::Buffered).unwrap();
        assert!(store.metrics().memtable_bytes > 100);
        assert_eq!(old.get(Family::State, b"key").unwrap().unwrap(), b"0123456789");

        // when
        drop(old);

        // then
        assert_eq!(store.metrics().memtable_bytes, 0);
        assert!(store.tables.read().families[Family::State.index()].is_empty());
        assert!(store.tables.read().superseded.is_empty());
    }

    #[test]
    fn without_snapshots_one_version_per_key_is_kept() {
        let store = MemoryStore::new();
        for _ in 0..10 {
            put(&store, b"key", b"0123456789");
        }
        assert_eq!(store.metrics().memtable_bytes, 13);
    }

    #[test]
    fn a_commit_goes_through_in_the_middle_of_a_scan() {
        let store = MemoryStore::new();
        for number in 0..1_000u32 {
            put(&store, &number.to_be_bytes(), b"old");
        }
        let snapshot = store.snapshot();
        let mut seen = 0u32;
        snapshot
            .for_each(Family::State, b"", None, &mut |key, value| {
                assert_eq!(key, seen.to_be_bytes());
                assert_eq!(value, b"old");
                put(&store, &(seen + 1).to_be_bytes(), b"new");
                seen += 1;
                Ok(true)
            })
            .unwrap();
        assert_eq!(seen, 1_000);
    }
}
