//! The one error of this crate: few kinds, each of which asks something different of its reader.

use std::io;
use std::path::{Path, PathBuf};

use thiserror::Error;

/// What went wrong in storage. The message names the thing; [`detail`](Self::detail) says why and
/// [`hint`](Self::hint) says what to do, both in whole sentences.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum StorageError {
    /// Another process, or another handle in this one, has the directory open.
    #[error("database directory \"{}\" is in use{}", dir.display(), holder(*pid))]
    Locked {
        /// The database directory.
        dir: PathBuf,
        /// The process that holds the lock, if it could be read.
        pid: Option<u32>,
    },
    /// The directory holds something else than a Highwater database, and is left untouched.
    #[error("directory \"{}\" is not a Highwater database", dir.display())]
    NotADatabase {
        /// The directory.
        dir: PathBuf,
        /// What was found in it, as a sentence.
        found: String,
    },
    /// There is no database in the directory and the options forbid making one.
    #[error("there is no database in \"{}\"", dir.display())]
    NotFound {
        /// The directory.
        dir: PathBuf,
    },
    /// Something on disk was written in a format that this version does not read.
    #[error("{part} has version {found}, this program reads version {supported}")]
    FormatVersion {
        /// What carries the version, such as `on-disk format`.
        part: &'static str,
        /// The version found on disk.
        found: u32,
        /// The newest version that this program reads.
        supported: u32,
    },
    /// The bytes on disk are not what was written.
    #[error("{what} is corrupt")]
    Corrupt {
        /// What cannot be read, such as `outbox record`.
        what: String,
        /// What was seen, as a sentence.
        detail: String,
    },
    /// The disk has no room for the write. Nothing of the batch was applied.
    #[error("no space left on the device that holds the database")]
    DiskFull {
        /// What the operating system or RocksDB said.
        detail: String,
    },
    /// The operating system refused a file operation.
    #[error("cannot {action} \"{}\"", path.display())]
    File {
        /// The verb: `create`, `read`, `write`, `lock`.
        action: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// RocksDB failed in a way that has no kind of its own here.
    #[error("the storage engine cannot {action}")]
    Engine {
        /// What was being done, as a verb with its object.
        action: &'static str,
        /// What RocksDB said.
        detail: String,
    },
    /// A write to a store that was opened for reading only.
    #[error("the database was opened read-only")]
    ReadOnly,
    /// The in-memory store has no files for this to work on.
    #[error("an in-memory database cannot {action}")]
    InMemory {
        /// What was asked for, as a verb with its object.
        action: &'static str,
    },
    /// A backup never overwrites: its directory must not exist yet.
    #[error("backup directory \"{}\" exists already", dir.display())]
    BackupExists {
        /// The directory.
        dir: PathBuf,
    },
    /// A value in [`StoreOptions`](crate::StoreOptions) that cannot work.
    #[error("storage option \"{option}\" cannot be {value}")]
    InvalidOption {
        /// The name of the option.
        option: &'static str,
        /// The refused value.
        value: String,
        /// What would be accepted, as a sentence.
        accepted: String,
    },
}

impl StorageError {
    /// Why it happened, as a sentence, where there is more to say than the message.
    pub fn detail(&self) -> Option<String> {
        match self {
            Self::NotADatabase { found, .. } => Some(found.clone()),
            Self::Corrupt { detail, .. } | Self::DiskFull { detail } | Self::Engine { detail, .. } => {
                Some(detail.clone())
            }
            Self::File { source, .. } => Some(format!("The operating system says: {source}.")),
            Self::Locked { pid: Some(pid), .. } => {
                Some(format!("Process {pid} holds the lock file of the directory."))
            }
            Self::Locked { .. }
            | Self::NotFound { .. }
            | Self::FormatVersion { .. }
            | Self::ReadOnly
            | Self::InMemory { .. }
            | Self::BackupExists { .. }
            | Self::InvalidOption { .. } => None,
        }
    }

    /// What to do about it, as a sentence.
    pub fn hint(&self) -> Option<String> {
        let hint = match self {
            Self::Locked { .. } => "Stop the other process, or open the database read-only.",
            Self::NotADatabase { .. } => "Choose an empty directory or one that holds a database.",
            Self::NotFound { .. } => "Check the path, or allow the database to be created.",
            Self::FormatVersion { found, supported, .. } if found > supported => {
                "Open the database with the newer version of Highwater that wrote it."
            }
            Self::FormatVersion { .. } => "Open the database with the version of Highwater that wrote it.",
            Self::Corrupt { .. } => "Restore the database from a backup.",
            Self::DiskFull { .. } => "Free space on the device, then start again.",
            Self::File { .. } => "Check that the path exists and that this user may write to it.",
            Self::Engine { .. } => "Look into the file LOG of the database directory.",
            Self::ReadOnly => "Run the statement in the process that has the database open.",
            Self::InMemory { .. } => "Open the database in a directory.",
            Self::BackupExists { .. } => "Choose a directory that does not exist yet.",
            Self::InvalidOption { accepted, .. } => accepted,
        };
        Some(hint.to_owned())
    }

    /// A [`StorageError::Corrupt`] about `what`; `detail` is a sentence.
    pub(crate) fn corrupt(what: impl Into<String>, detail: impl Into<String>) -> Self {
        Self::Corrupt {
            what: what.into(),
            detail: detail.into(),
        }
    }

    /// A [`StorageError::File`], or [`StorageError::DiskFull`] where that is the cause.
    pub(crate) fn file(action: &'static str, path: &Path, source: io::Error) -> Self {
        if source.kind() == io::ErrorKind::StorageFull {
            return Self::DiskFull {
                detail: format!("The operating system says: {source}."),
            };
        }
        Self::File {
            action,
            path: path.to_owned(),
            source,
        }
    }

    /// Sorts an error of RocksDB into a kind. `action` is a verb with its object.
    pub(crate) fn rocks(action: &'static str, error: &rocksdb::Error) -> Self {
        let detail = format!("RocksDB says: {}.", error.as_ref().trim_end_matches('.'));
        match error.kind() {
            rocksdb::ErrorKind::Corruption => Self::corrupt("the database", detail),
            rocksdb::ErrorKind::IOError if detail.contains("No space left") => Self::DiskFull { detail },
            _ => Self::Engine { action, detail },
        }
    }
}

fn holder(pid: Option<u32>) -> String {
    pid.map_or_else(String::new, |pid| format!(" by process {pid}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_error_names_directory_and_holder() {
        let error = StorageError::Locked {
            dir: PathBuf::from("/db"),
            pid: Some(42),
        };
        assert_eq!(
            error.to_string(),
            "database directory \"/db\" is in use by process 42"
        );
        let error = StorageError::Locked {
            dir: PathBuf::from("/db"),
            pid: None,
        };
        assert_eq!(error.to_string(), "database directory \"/db\" is in use");
    }

    #[test]
    fn a_full_disk_is_told_apart_from_other_file_errors() {
        let full = io::Error::from(io::ErrorKind::StorageFull);
        let error = StorageError::file("write", Path::new("/db"), full);
        assert!(matches!(error, StorageError::DiskFull { .. }));
    }
}
