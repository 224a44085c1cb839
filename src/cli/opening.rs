//! Opening a database: in memory, in a directory, read-only where another process holds it, or on a server.

use std::path::Path;

use crate::{Database, DatabaseBuilder, Error};

/// A database, and what the user should know about how it was opened.
pub(super) struct Opened {
    /// The database.
    pub(super) database: Database,
    /// A line for standard error.
    pub(super) remark: Option<String>,
}

/// SQLSTATE `object_in_use`: another process holds the directory.
const IN_USE: &str = "55006";

/// Opens `dir`, or a database in memory. A directory that another process holds is opened read-only.
///
/// # Errors
/// As [`Database::open`].
pub(super) async fn open(
    dir: Option<&Path>,
    read_only: bool,
    memory_limit: Option<usize>,
) -> Result<Opened, Error> {
    let builder = || with_memory(Database::builder(), memory_limit);
    let Some(dir) = dir else {
        let database = builder().in_memory().await?;
        return Ok(Opened {
            database,
            remark: None,
        });
    };
    if read_only {
        let database = builder().open_read_only(dir).await?;
        return Ok(Opened {
            database,
            remark: None,
        });
    }
    match builder().open(dir).await {
        Ok(database) => Ok(Opened {
            database,
            remark: None,
        }),
        Err(error) if error.sqlstate() == IN_USE => {
            let database = builder().open_read_only(dir).await?;
            let remark = format!("highwater: {error}; opened read-only at its last checkpoint");
            Ok(Opened {
                database,
                remark: Some(remark),
            })
        }
        Err(error) => Err(error),
    }
}

/// The builder with the memory that was asked for, if it was.
pub(super) fn with_memory(builder: DatabaseBuilder, limit: Option<usize>) -> DatabaseBuilder {
    match limit {
        Some(bytes) => builder.memory_limit(bytes),
        None => builder,
    }
}
