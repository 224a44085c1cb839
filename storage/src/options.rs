//! [`StoreOptions`]: the few numbers that an opener may set.

use crate::error::StorageError;

const MIB: usize = 1 << 20;

/// Below this the caches thrash and each checkpoint flushes.
const MEMORY_BYTES_MIN: usize = 16 * MIB;

/// How a database directory is opened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoreOptions {
    /// Memory of block cache and write buffers together, in bytes. Default 256 MiB, at least 16.
    pub memory_bytes: usize,
    /// Threads that flush and compact. Default 2, from 1 to 64.
    pub background_jobs: usize,
    /// Whether a missing or empty directory becomes a new database. Default true.
    pub create_if_missing: bool,
}

impl Default for StoreOptions {
    fn default() -> Self {
        Self {
            memory_bytes: 256 * MIB,
            background_jobs: 2,
            create_if_missing: true,
        }
    }
}

impl StoreOptions {
    /// Checks the values.
    ///
    /// # Errors
    ///
    /// [`StorageError::InvalidOption`] names the option and what it accepts.
    pub fn check(&self) -> Result<(), StorageError> {
        if self.memory_bytes < MEMORY_BYTES_MIN {
            return Err(StorageError::InvalidOption {
                option: "memory_bytes",
                value: self.memory_bytes.to_string(),
                accepted: format!("Give storage at least {MEMORY_BYTES_MIN} bytes."),
            });
        }
        if !(1..=64).contains(&self.background_jobs) {
            return Err(StorageError::InvalidOption {
                option: "background_jobs",
                value: self.background_jobs.to_string(),
                accepted: "Choose a number from 1 to 64.".to_owned(),
            });
        }
        Ok(())
    }

    /// Bytes for the write buffers of all families; they are charged to the block cache, so that
    /// both stay within [`memory_bytes`](Self::memory_bytes).
    pub(crate) fn write_buffers_bytes(&self) -> usize {
        (self.memory_bytes / 4).min(64 * MIB)
    }

    /// Bytes for one write buffer of a family with many rows.
    pub(crate) fn write_buffer_bytes(&self) -> usize {
        (self.write_buffers_bytes() / 4).min(32 * MIB)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_are_accepted_and_too_little_memory_is_refused() {
        StoreOptions::default().check().unwrap();

        let small = StoreOptions {
            memory_bytes: MIB,
            ..StoreOptions::default()
        };
        let error = small.check().unwrap_err();
        assert_eq!(
            error.to_string(),
            "storage option \"memory_bytes\" cannot be 1048576"
        );

        let idle = StoreOptions {
            background_jobs: 0,
            ..StoreOptions::default()
        };
        assert!(idle.check().is_err());
    }
}
