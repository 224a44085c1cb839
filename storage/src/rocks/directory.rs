//! The database directory as the file system shows it: what is in it, and who holds it.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::error::StorageError;

/// The lock file; it holds the pid of the process that has the database open.
const LOCK_FILE: &str = "highwater.pid";

/// What the write-ahead logs end in.
const LOG_SUFFIX: &str = ".log";

/// RocksDB makes this file last: where it is, there is a database.
const CURRENT_FILE: &str = "CURRENT";

/// What a directory holds.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Content {
    /// It does not exist, is empty, or holds what the making of a database leaves when it is
    /// interrupted.
    Nothing,
    /// A RocksDB database, of whomever.
    Database,
}

/// Refuses a database without a write-ahead log: an open one always has one, and without it the last commits are gone.
///
/// # Errors
///
/// [`StorageError::Corrupt`], or what the disk says.
pub(super) fn require_log(dir: &Path) -> Result<(), StorageError> {
    let entries = fs::read_dir(dir).map_err(|error| StorageError::file("read", dir, error))?;
    for entry in entries {
        let name = entry
            .map_err(|error| StorageError::file("read", dir, error))?
            .file_name();
        if name.to_string_lossy().ends_with(LOG_SUFFIX) {
            return Ok(());
        }
    }
    let detail = format!(
        "There is no file *{LOG_SUFFIX} in \"{}\": what was written last is lost.",
        dir.display()
    );
    Err(StorageError::corrupt("the write-ahead log", detail))
}

/// Looks at `dir` without changing anything.
///
/// # Errors
///
/// [`StorageError::NotADatabase`] if it holds other files, or is a file itself.
pub(super) fn inspect(dir: &Path) -> Result<Content, StorageError> {
    let entries = match fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Content::Nothing),
        Err(error) if error.kind() == io::ErrorKind::NotADirectory => {
            let found = "It is a file.".to_owned();
            return Err(StorageError::NotADatabase {
                dir: dir.to_owned(),
                found,
            });
        }
        Err(error) => return Err(StorageError::file("read", dir, error)),
    };
    let mut foreign = None;
    for entry in entries {
        let name = entry
            .map_err(|error| StorageError::file("read", dir, error))?
            .file_name();
        let name = name.to_string_lossy();
        if name == CURRENT_FILE {
            return Ok(Content::Database);
        }
        if !is_left_by_creation(&name) {
            foreign.get_or_insert(name.into_owned());
        }
    }
    match foreign {
        None => Ok(Content::Nothing),
        Some(name) => Err(StorageError::NotADatabase {
            dir: dir.to_owned(),
            found: format!("It has no file \"{CURRENT_FILE}\", but a file \"{name}\"."),
        }),
    }
}

/// Whether a file can lie in a directory in which a database is being made and has no row yet. Logs
/// and sorted files are none of them: a database that lost its CURRENT file is not a new one.
fn is_left_by_creation(name: &str) -> bool {
    matches!(
        name,
        LOCK_FILE | "LOCK" | "IDENTITY" | "MANIFEST-000001" | "lost+found"
    ) || name == "LOG"
        || name.starts_with("LOG.old.")
        || name.ends_with(".dbtmp")
}

/// Bytes of all files in `dir`; files that vanish meanwhile count as nothing.
pub(super) fn disk_bytes(dir: &Path) -> u64 {
    let Ok(entries) = fs::read_dir(dir) else {
        return 0;
    };
    let metadata = entries.flatten().filter_map(|entry| entry.metadata().ok());
    metadata
        .filter(fs::Metadata::is_file)
        .map(|file| file.len())
        .sum()
}

/// Holds a directory for this process until it is dropped.
///
/// The lock is the operating system's, so it goes with its process however that ends; the pid in
/// the file is there to be named. RocksDB has a lock of its own, which names nobody.
#[derive(Debug)]
pub(super) struct DirectoryLock {
    _file: File,
}

/// How long a handle of the same process may take to let go of the directory after it was dropped.
const OWN_HANDLE_PATIENCE: Duration = Duration::from_secs(2);
const OWN_HANDLE_LOOK: Duration = Duration::from_millis(10);

impl DirectoryLock {
    /// Takes the lock of `dir`, which must exist.
    ///
    /// # Errors
    ///
    /// [`StorageError::Locked`] names the holder.
    pub(super) fn acquire(dir: &Path) -> Result<Self, StorageError> {
        let path = dir.join(LOCK_FILE);
        let opened = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(&path);
        let mut file = opened.map_err(|error| StorageError::file("create", &path, error))?;
        let begun = Instant::now();
        loop {
            match file.try_lock() {
                Ok(()) => break,
                Err(TryLockError::WouldBlock) => {
                    let held = Self::held(dir, &mut file);
                    // A handle of this process that was dropped lets go when its last reader does.
                    let is_own = matches!(&held, StorageError::Locked { pid: Some(pid), .. } if *pid == std::process::id());
                    if !is_own || begun.elapsed() >= OWN_HANDLE_PATIENCE {
                        return Err(held);
                    }
                    std::thread::sleep(OWN_HANDLE_LOOK);
                }
                Err(TryLockError::Error(error)) => {
                    return Err(StorageError::file("lock", &path, error));
                }
            }
        }
        let written = write_pid(&mut file);
        written.map_err(|error| StorageError::file("write", &path, error))?;
        Ok(Self { _file: file })
    }

    fn held(dir: &Path, file: &mut File) -> StorageError {
        let mut text = String::new();
        // It may have been read before.
        let _ = file.rewind();
        let pid = file
            .read_to_string(&mut text)
            .ok()
            .and_then(|_| text.trim().parse().ok());
        StorageError::Locked {
            dir: dir.to_owned(),
            pid,
        }
    }
}

fn write_pid(file: &mut File) -> io::Result<()> {
    file.set_len(0)?;
    file.rewind()?;
    writeln!(file, "{}", std::process::id())
}

/// Makes `dir` and makes its entry in the parent durable. What is stored is for its owner alone: a new directory lets nobody else in.
pub(super) fn create(dir: &Path) -> Result<(), StorageError> {
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder
        .create(dir)
        .map_err(|error| StorageError::file("create", dir, error))?;
    let parent = dir.parent().filter(|parent| !parent.as_os_str().is_empty());
    let parent = parent.map_or_else(|| PathBuf::from("."), Path::to_path_buf);
    // Not every file system lets a directory be opened and synced; RocksDB syncs what is in ours.
    if let Ok(parent) = File::open(parent) {
        let _ = parent.sync_all();
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_an_empty_and_a_half_made_directory_are_nothing_yet() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(inspect(&dir.path().join("missing")).unwrap(), Content::Nothing);
        assert_eq!(inspect(dir.path()).unwrap(), Content::Nothing);
        for name in [
            "highwater.pid",
            "LOCK",
            "LOG",
            "IDENTITY",
            "MANIFEST-000001",
            "1.dbtmp",
        ] {
            File::create(dir.path().join(name)).unwrap();
        }
        assert_eq!(inspect(dir.path()).unwrap(), Content::Nothing);
    }

    #[test]
    fn a_database_that_lost_its_current_file_is_not_a_new_one() {
        let dir = tempfile::tempdir().unwrap();
        File::create(dir.path().join("000012.sst")).unwrap();
        let error = inspect(dir.path()).unwrap_err();
        assert_eq!(
            error.detail().unwrap(),
            "It has no file \"CURRENT\", but a file \"000012.sst\"."
        );
    }

    #[test]
    fn a_file_is_not_a_database() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        File::create(&path).unwrap();
        assert!(matches!(inspect(&path), Err(StorageError::NotADatabase { .. })));
    }

    #[test]
    fn a_second_holder_is_told_who_the_first_is_and_may_follow_it() {
        let dir = tempfile::tempdir().unwrap();
        let first = DirectoryLock::acquire(dir.path()).unwrap();
        let error = DirectoryLock::acquire(dir.path()).unwrap_err();
        let own = std::process::id();
        assert!(matches!(error, StorageError::Locked { pid: Some(pid), .. } if pid == own));
        drop(first);
        DirectoryLock::acquire(dir.path()).unwrap();
    }
}
