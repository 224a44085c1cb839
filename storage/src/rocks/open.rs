//! From a path to an open RocksDB: what is there, may it be opened, does it hold what it must.
//!
//! ```text
//! inspect files ─▶ lock ─▶ which families? ─ all ──────────────────────────▶ open ─▶ check format
//!                              │ some        ─▶ look in, read-only ─ empty ─▶ open ─▶ write format
//!                              └ foreign, other format ─▶ refused, nothing changed
//! ```

use std::path::Path;
use std::time::Duration;

use rocksdb::{Cache, DB, IteratorMode, Options, WriteOptions};
use tempfile::TempDir;

use super::directory::{self, Content, DirectoryLock};
use super::mark::DurableMark;
use super::{Instance, tuning};
use crate::error::StorageError;
use crate::family::Family;
use crate::format;
use crate::layout::FORMAT_KEY;
use crate::options::StoreOptions;

/// The family that every RocksDB has; ours stays empty.
const DEFAULT_FAMILY: &str = "default";

/// A reader's cache. It looks; it does not serve.
const SECONDARY_CACHE_BYTES: usize = 32 << 20;

/// The writer may remove a log or manifest between our listing and our opening it.
const SECONDARY_ATTEMPTS: u32 = 20;
/// How long a reader waits for a writer that has just opened the database.
const SECONDARY_PAUSE: Duration = Duration::from_millis(100);

/// Opens `dir` for reading and writing.
pub(super) fn primary(dir: &Path, options: &StoreOptions) -> Result<Instance, StorageError> {
    options.check()?;
    let content = directory::inspect(dir)?;
    if content == Content::Nothing {
        if !options.create_if_missing {
            return Err(StorageError::NotFound { dir: dir.to_owned() });
        }
        directory::create(dir)?;
    }
    let lock = DirectoryLock::acquire(dir)?;
    // Another process may have made the database before we got the lock.
    if directory::inspect(dir)? == Content::Database {
        directory::require_log(dir)?;
        check_families(dir)?;
    }

    let cache = Cache::new_lru_cache(options.memory_bytes);
    let db = DB::open_cf_descriptors(
        &tuning::primary(options, &cache),
        dir,
        tuning::families(options, &cache),
    )
    .map_err(|error| open_error(dir, &error))?;
    let mark = DurableMark::open(dir, db.latest_sequence_number())?;
    let instance = Instance {
        db,
        cache,
        mark: Some(mark),
        _lock: Some(lock),
        _scratch: None,
    };
    match instance.get(Family::Meta, FORMAT_KEY)? {
        Some(row) => format::check(&row)?,
        None if is_empty(&instance.db)? => write_format(&instance)?,
        None => return Err(not_ours(dir)),
    }
    Ok(instance)
}

/// Opens `dir` for reading, beside a writer if there is one.
pub(super) fn secondary(dir: &Path) -> Result<Instance, StorageError> {
    if directory::inspect(dir)? == Content::Nothing {
        return Err(StorageError::NotFound { dir: dir.to_owned() });
    }
    directory::require_log(dir)?;
    check_families(dir)?;
    let mut attempt = 1;
    loop {
        let last = attempt >= SECONDARY_ATTEMPTS;
        attempt += 1;
        match open_secondary(dir) {
            Err(StorageError::Engine { .. }) if !last => {}
            Err(error) => return Err(error),
            Ok(instance) => match instance.get(Family::Meta, FORMAT_KEY)? {
                Some(row) => {
                    format::check(&row)?;
                    return Ok(instance);
                }
                None if last => return Err(StorageError::NotFound { dir: dir.to_owned() }),
                // Its writer has just opened it: the rows are on their way from the old log into a file, and a look in
                // between sees neither.
                None => std::thread::sleep(SECONDARY_PAUSE),
            },
        }
    }
}

fn open_secondary(dir: &Path) -> Result<Instance, StorageError> {
    let scratch = tempfile::Builder::new().prefix("highwater-reader-").tempdir();
    let scratch: TempDir =
        scratch.map_err(|error| StorageError::file("create", &std::env::temp_dir(), error))?;
    let options = StoreOptions {
        memory_bytes: SECONDARY_CACHE_BYTES,
        ..StoreOptions::default()
    };
    let cache = Cache::new_lru_cache(options.memory_bytes);
    let db = DB::open_cf_descriptors_as_secondary(
        &tuning::secondary(),
        dir,
        scratch.path(),
        tuning::families(&options, &cache),
    )
    .map_err(|error| open_error(dir, &error))?;
    Ok(Instance {
        db,
        cache,
        mark: None,
        _lock: None,
        _scratch: Some(scratch),
    })
}

/// Refuses a RocksDB with other families than ours, before anything in it changes.
fn check_families(dir: &Path) -> Result<(), StorageError> {
    let mut found = DB::list_cf(&Options::default(), dir).map_err(|error| open_error(dir, &error))?;
    found.retain(|name| name != DEFAULT_FAMILY);
    let is_ours = |name: &String| Family::ALL.iter().any(|family| family.name() == name);
    if found.len() == Family::COUNT && found.iter().all(is_ours) {
        return Ok(());
    }
    look_in(dir, &found, found.iter().all(is_ours))
}

/// Families are missing or unknown. Either the making of the database was interrupted, so that it
/// holds no row yet, or it is of another format, or somebody else's.
fn look_in(dir: &Path, families: &[String], only_ours: bool) -> Result<(), StorageError> {
    let opened = families.iter().map(String::as_str).chain([DEFAULT_FAMILY]);
    let db = DB::open_cf_for_read_only(&Options::default(), dir, opened, false)
        .map_err(|error| open_error(dir, &error))?;
    if let Some(meta) = db.cf_handle(Family::Meta.name()) {
        let row = db
            .get_cf(meta, FORMAT_KEY)
            .map_err(|error| open_error(dir, &error))?;
        if let Some(row) = row {
            format::check(&row)?;
            let detail = format!("Its column families are {families:?}.");
            return Err(StorageError::corrupt("the database", detail));
        }
    }
    if only_ours && is_empty(&db)? {
        Ok(())
    } else {
        Err(not_ours(dir))
    }
}

/// Whether no family that is open has a row.
fn is_empty(db: &DB) -> Result<bool, StorageError> {
    let ours = Family::ALL.iter().map(|family| family.name());
    for family in ours.chain([DEFAULT_FAMILY]) {
        let Some(family) = db.cf_handle(family) else {
            continue;
        };
        if let Some(row) = db.iterator_cf(family, IteratorMode::Start).next() {
            row.map_err(|error| StorageError::rocks("read the first row", &error))?;
            return Ok(false);
        }
    }
    Ok(true)
}

fn write_format(instance: &Instance) -> Result<(), StorageError> {
    let mut options = WriteOptions::default();
    options.set_sync(true);
    instance
        .db
        .put_cf_opt(instance.family(Family::Meta), FORMAT_KEY, format::row(), &options)
        .map_err(|error| StorageError::rocks("write the format row", &error))?;
    instance.note_durable(1);
    Ok(())
}

fn not_ours(dir: &Path) -> StorageError {
    let found = "It is a RocksDB database of another program.".to_owned();
    StorageError::NotADatabase {
        dir: dir.to_owned(),
        found,
    }
}

/// RocksDB has no kind of error for a lock that is held; its message is all there is.
fn open_error(dir: &Path, error: &rocksdb::Error) -> StorageError {
    if error.kind() == rocksdb::ErrorKind::IOError && error.as_ref().contains("lock") {
        return StorageError::Locked {
            dir: dir.to_owned(),
            pid: None,
        };
    }
    StorageError::rocks("open the database", error)
}
