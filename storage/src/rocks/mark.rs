//! [`DurableMark`]: up to which change the write-ahead log was made durable, in a file beside it.
//!
//! RocksDB takes a log that is cut at the end for one that a crash cut, and gives an older database. A log that ends before a
//! change that was acknowledged is another matter: it was damaged. The file is written after each commit that is durable, and not
//! synced itself, so what it says is never more than what the disk was told to keep.

use std::fs::{File, OpenOptions};
use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
use std::path::Path;

use parking_lot::Mutex;
use tracing::warn;

use crate::error::StorageError;

/// The file in the database directory.
const FILE: &str = "DURABLE";

/// The number of the last change that is durable; RocksDB counts each put and each deletion.
#[derive(Debug)]
pub(super) struct DurableMark {
    written: Mutex<Written>,
}

#[derive(Debug)]
struct Written {
    file: File,
    change: u64,
}

impl DurableMark {
    /// Opens the mark of the database in `dir`, whose log ends with change `last`, or makes it.
    ///
    /// # Errors
    ///
    /// [`StorageError::Corrupt`] if the log ends before the mark.
    pub(super) fn open(dir: &Path, last: u64) -> Result<Self, StorageError> {
        let path = dir.join(FILE);
        let opened = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(&path);
        let mut file = opened.map_err(|error| StorageError::file("open", &path, error))?;
        let mut bytes = Vec::with_capacity(16);
        let read = file.read_to_end(&mut bytes);
        read.map_err(|error| StorageError::file("read", &path, error))?;
        // One that a crash of the machine has torn says nothing.
        let change = change_of(&bytes).unwrap_or(0);
        if change > last {
            let detail = format!("It ends with change {last}, and changes up to {change} were durable.");
            return Err(StorageError::corrupt("the end of the write-ahead log", detail));
        }
        Ok(Self {
            written: Mutex::new(Written { file, change }),
        })
    }

    /// Notes that all changes up to `change` are durable.
    pub(super) fn raise(&self, change: u64) {
        let mut written = self.written.lock();
        if change <= written.change {
            return;
        }
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&change.to_be_bytes());
        bytes[8..].copy_from_slice(&(!change).to_be_bytes());
        let file = &mut written.file;
        let noted = file.seek(SeekFrom::Start(0)).and_then(|_| file.write_all(&bytes));
        match noted {
            Ok(()) => written.change = change,
            // The changes are durable all the same; only damage to the log would not be noticed.
            Err(error) => warn!(%error, "the mark of what is durable cannot be written"),
        }
    }
}

fn change_of(bytes: &[u8]) -> Option<u64> {
    let (change, check) = bytes.split_at_checked(8)?;
    let change = u64::from_be_bytes(change.try_into().ok()?);
    let check = u64::from_be_bytes(check.try_into().ok()?);
    (change == !check).then_some(change)
}
