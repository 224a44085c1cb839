//! [`RocksSnapshot`]: a view of an open RocksDB that keeps the database open by itself.

use std::sync::Arc;

use rocksdb::{DB, DBRawIterator, IteratorMode, ReadOptions};

use super::Instance;
use crate::error::StorageError;
use crate::family::Family;
use crate::store::{PlaceVisitor, RowVisitor, Rows, Snapshot, prefix_end};

/// Keys that are looked up in one call: their values are held meanwhile.
const KEYS_AT_ONCE: usize = 1024;

pub(super) struct RocksSnapshot {
    /// Borrows from `instance`, so it must drop first: fields drop in the order of their declaration.
    /// `None` over a secondary, whose instance does not change while it is referred to.
    snapshot: Option<rocksdb::Snapshot<'static>>,
    /// Options for reads of single keys, made once.
    get_options: ReadOptions,
    instance: Arc<Instance>,
}

impl RocksSnapshot {
    pub(super) fn of_primary(instance: Arc<Instance>) -> Self {
        let db: *const DB = &raw const instance.db;
        // SAFETY: the database lies inside the `Arc`, so it does not move and lives as long as
        // `instance`, which is a field of the same value and drops after `snapshot`. The reference
        // leaves this value only through methods that bind it to `&self`.
        let db: &'static DB = unsafe { &*db };
        Self::new(Some(db.snapshot()), instance)
    }

    pub(super) fn of_secondary(instance: Arc<Instance>) -> Self {
        Self::new(None, instance)
    }

    fn new(snapshot: Option<rocksdb::Snapshot<'static>>, instance: Arc<Instance>) -> Self {
        let get_options = read_options(snapshot.as_ref());
        Self {
            snapshot,
            get_options,
            instance,
        }
    }

    fn range_options(&self, from: &[u8], to: Option<&[u8]>) -> ReadOptions {
        let mut options = read_options(self.snapshot.as_ref());
        options.set_iterate_lower_bound(from);
        if let Some(to) = to {
            options.set_iterate_upper_bound(to);
        }
        options
    }

    fn cursor(&self, family: Family, from: &[u8], to: Option<&[u8]>) -> DBRawIterator<'_> {
        let options = self.range_options(from, to);
        self.instance
            .db
            .raw_iterator_cf_opt(self.instance.family(family), options)
    }
}

impl Snapshot for RocksSnapshot {
    fn get(&self, family: Family, key: &[u8]) -> Result<Option<Vec<u8>>, StorageError> {
        let db = &self.instance.db;
        let value = db.get_cf_opt(self.instance.family(family), key, &self.get_options);
        value.map_err(|error| StorageError::rocks("read a key", &error))
    }

    fn scan<'a>(&'a self, family: Family, from: &[u8], to: Option<&[u8]>) -> Result<Rows<'a>, StorageError> {
        if to.is_some_and(|to| from >= to) {
            return Ok(Box::new(std::iter::empty()));
        }
        let rows = self.instance.db.iterator_cf_opt(
            self.instance.family(family),
            self.range_options(from, to),
            IteratorMode::Start,
        );
        Ok(Box::new(rows.map(|row| row.map_err(|error| scan_error(&error)))))
    }

    fn for_each(
        &self,
        family: Family,
        from: &[u8],
        to: Option<&[u8]>,
        visit: &mut RowVisitor<'_>,
    ) -> Result<(), StorageError> {
        if to.is_some_and(|to| from >= to) {
            return Ok(());
        }
        let mut cursor = self.cursor(family, from, to);
        cursor.seek_to_first();
        while let Some((key, value)) = cursor.item() {
            if !visit(key, value)? {
                return Ok(());
            }
            cursor.next();
        }
        cursor.status().map_err(|error| scan_error(&error))
    }

    fn for_each_back(
        &self,
        family: Family,
        from: &[u8],
        to: Option<&[u8]>,
        visit: &mut RowVisitor<'_>,
    ) -> Result<(), StorageError> {
        if to.is_some_and(|to| from >= to) {
            return Ok(());
        }
        let mut cursor = self.cursor(family, from, to);
        cursor.seek_to_last();
        while let Some((key, value)) = cursor.item() {
            if !visit(key, value)? {
                return Ok(());
            }
            cursor.prev();
        }
        cursor.status().map_err(|error| scan_error(&error))
    }

    fn get_sorted(
        &self,
        family: Family,
        keys: &[&[u8]],
        visit: &mut PlaceVisitor<'_>,
    ) -> Result<(), StorageError> {
        let (db, family) = (&self.instance.db, self.instance.family(family));
        for (chunk, keys) in keys.chunks(KEYS_AT_ONCE).enumerate() {
            let values = db.batched_multi_get_cf_opt(family, keys.iter(), true, &self.get_options);
            for (at, value) in values.into_iter().enumerate() {
                let value = value.map_err(|error| StorageError::rocks("read a key", &error))?;
                if let Some(value) = value {
                    visit(chunk * KEYS_AT_ONCE + at, keys[at], &value)?;
                }
            }
        }
        Ok(())
    }

    /// One cursor for all prefixes. It is not moved for those that it has passed already.
    fn scan_under(
        &self,
        family: Family,
        prefixes: &[&[u8]],
        visit: &mut PlaceVisitor<'_>,
    ) -> Result<(), StorageError> {
        let (Some(first), Some(last)) = (prefixes.first(), prefixes.last()) else {
            return Ok(());
        };
        let mut cursor = self.cursor(family, first, prefix_end(last).as_deref());
        let mut has_moved = false;
        for (place, prefix) in prefixes.iter().enumerate() {
            let is_before = cursor.key().is_none_or(|key| key < *prefix);
            if is_before && has_moved && !cursor.valid() {
                break;
            }
            if is_before {
                cursor.seek(prefix);
                has_moved = true;
            }
            while let Some((key, value)) = cursor.item().filter(|(key, _)| key.starts_with(prefix)) {
                visit(place, key, value)?;
                cursor.next();
            }
        }
        cursor.status().map_err(|error| scan_error(&error))
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
        let mut cursor = self.cursor(family, from, to);
        cursor.seek_to_last();
        let key = cursor.key().map(<[u8]>::to_vec);
        cursor.status().map_err(|error| scan_error(&error))?;
        Ok(key)
    }
}

fn read_options(snapshot: Option<&rocksdb::Snapshot<'_>>) -> ReadOptions {
    let mut options = ReadOptions::default();
    if let Some(snapshot) = snapshot {
        options.set_snapshot(snapshot);
    }
    options
}

fn scan_error(error: &rocksdb::Error) -> StorageError {
    StorageError::rocks("scan a range", error)
}
