//! `CREATE INDEX`.

/// `CREATE INDEX [IF NOT EXISTS] name ON relation (column [ASC | DESC] [NULLS FIRST | LAST], …)`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CreateIndex {
    /// Its name, made of the relation and the columns where none is given.
    pub name: String,
    /// `IF NOT EXISTS`
    pub if_not_exists: bool,
    /// The table or materialized view.
    pub relation: String,
    /// Byte offset of its name in the script.
    pub position: usize,
    /// What rows are sorted by, first things first.
    pub columns: Vec<IndexColumn>,
}

/// A column that rows are sorted by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IndexColumn {
    /// Its name.
    pub name: String,
    /// Byte offset of its name in the script.
    pub position: usize,
    /// Whether great values come first.
    pub descending: bool,
    /// Whether NULLs come first.
    pub nulls_first: bool,
}
