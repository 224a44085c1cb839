//! The catalog on disk: one row per object, the object id allocator, the writer's version.
//!
//! This module keeps text and does not understand it. The engine writes what a statement said after
//! its probe, found facts included, so that a restart depends on nothing outside.

use crate::batch::WriteBatch;
use crate::codec::{RowReader, RowWriter};
use crate::error::StorageError;
use crate::family::Family;
use crate::ids::ObjectId;
use crate::layout::{CATALOG_PREFIX, NEXT_OBJECT_ID_KEY, SYSTEM_VERSION_KEY, catalog_key};
use crate::store::{Snapshot, prefix_end};

const ROW_VERSION: u8 = 1;

/// The id that the first object of a new database gets.
pub const FIRST_OBJECT_ID: ObjectId = ObjectId(1);

/// One object of the catalog.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CatalogRow {
    /// Its id, which all its other rows are filed under.
    pub id: ObjectId,
    /// Its place in the order of creation: an object follows all that it refers to.
    pub sequence: u64,
    /// What it is, such as `source` or `materialized view`.
    pub kind: String,
    /// Its name as the user wrote it.
    pub name: String,
    /// The statement that makes it again.
    pub sql: String,
    /// What the probe found, by name: topic id, cluster id, resolved start positions.
    pub found: Vec<(String, String)>,
}

/// All that the catalog holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CatalogContent {
    /// The objects in the order of their creation.
    pub rows: Vec<CatalogRow>,
    /// The id for the next object.
    pub next_object_id: ObjectId,
    /// The version of the program that wrote the catalog last; `None` in a new database.
    pub system_version: Option<String>,
}

impl CatalogRow {
    /// The found fact called `name`.
    pub fn fact(&self, name: &str) -> Option<&str> {
        let (_, value) = self.found.iter().find(|(fact, _)| fact == name)?;
        Some(value)
    }

    /// Appends the row's bytes to `out`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let mut row = RowWriter::new(out, ROW_VERSION);
        row.put_u32(self.id.0);
        row.put_u64(self.sequence);
        row.put_bytes(self.kind.as_bytes());
        row.put_bytes(self.name.as_bytes());
        row.put_bytes(self.sql.as_bytes());
        row.put_u32(u32::try_from(self.found.len()).expect("an object has few facts"));
        for (name, value) in &self.found {
            row.put_bytes(name.as_bytes());
            row.put_bytes(value.as_bytes());
        }
    }

    /// Reads the row from its bytes.
    ///
    /// # Errors
    ///
    /// [`StorageError::Corrupt`], or [`StorageError::FormatVersion`] for an unknown version.
    pub fn decode(bytes: &[u8]) -> Result<Self, StorageError> {
        let mut row = RowReader::new(bytes, "catalog row", ROW_VERSION)?;
        let mut decoded = Self {
            id: ObjectId(row.u32()?),
            sequence: row.u64()?,
            kind: row.text()?,
            name: row.text()?,
            sql: row.text()?,
            found: Vec::new(),
        };
        for _ in 0..row.u32()? {
            decoded.found.push((row.text()?, row.text()?));
        }
        row.finish()?;
        Ok(decoded)
    }
}

/// Adds `row` to the catalog, or replaces the row of the same id.
pub fn put_row(batch: &mut WriteBatch, row: &CatalogRow) {
    let mut value = Vec::new();
    row.encode(&mut value);
    batch.put(Family::Meta, &catalog_key(row.id), &value);
}

/// Removes the row of `id` from the catalog. What the object has stored goes by
/// [`layout::delete_object`](crate::layout::delete_object), in the same batch.
pub fn delete_row(batch: &mut WriteBatch, id: ObjectId) {
    batch.delete(Family::Meta, &catalog_key(id));
}

/// Records the id for the next object. It belongs in the batch that adds the object before it.
pub fn put_next_object_id(batch: &mut WriteBatch, next: ObjectId) {
    batch.put(Family::Meta, NEXT_OBJECT_ID_KEY, &next.0.to_be_bytes());
}

/// Records the version of the program that writes.
pub fn put_system_version(batch: &mut WriteBatch, version: &str) {
    batch.put(Family::Meta, SYSTEM_VERSION_KEY, version.as_bytes());
}

/// Reads the whole catalog.
///
/// # Errors
///
/// If a row cannot be read exactly, or an id is in use that the allocator has yet to hand out.
/// Recovery must then stop (INV-6).
pub fn load(snapshot: &dyn Snapshot) -> Result<CatalogContent, StorageError> {
    let mut rows = Vec::new();
    let to = prefix_end(CATALOG_PREFIX);
    snapshot.for_each(Family::Meta, CATALOG_PREFIX, to.as_deref(), &mut |key, value| {
        let row = CatalogRow::decode(value)?;
        if key != catalog_key(row.id) {
            let detail = format!("The row of object {} lies under another key.", row.id);
            return Err(StorageError::corrupt("the catalog", detail));
        }
        rows.push(row);
        Ok(true)
    })?;
    rows.sort_by_key(|row| row.sequence);

    let next_object_id = load_next_object_id(snapshot)?;
    if let Some(row) = rows.iter().find(|row| row.id >= next_object_id) {
        let detail = format!(
            "Object \"{}\" has id {}, but the next free id is {next_object_id}.",
            row.name, row.id
        );
        return Err(StorageError::corrupt("the catalog", detail));
    }
    Ok(CatalogContent {
        rows,
        next_object_id,
        system_version: load_system_version(snapshot)?,
    })
}

fn load_next_object_id(snapshot: &dyn Snapshot) -> Result<ObjectId, StorageError> {
    let Some(bytes) = snapshot.get(Family::Meta, NEXT_OBJECT_ID_KEY)? else {
        return Ok(FIRST_OBJECT_ID);
    };
    let bytes = bytes.try_into().map_err(|bytes| {
        StorageError::corrupt("the object id allocator", format!("Its bytes are {bytes:?}."))
    })?;
    Ok(ObjectId(u32::from_be_bytes(bytes)))
}

fn load_system_version(snapshot: &dyn Snapshot) -> Result<Option<String>, StorageError> {
    let Some(bytes) = snapshot.get(Family::Meta, SYSTEM_VERSION_KEY)? else {
        return Ok(None);
    };
    let version = String::from_utf8(bytes)
        .map_err(|_| StorageError::corrupt("the version of the writer", "It is not UTF-8."))?;
    Ok(Some(version))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{Durability, MemoryStore, Store};

    fn row(id: u32, sequence: u64, name: &str) -> CatalogRow {
        CatalogRow {
            id: ObjectId(id),
            sequence,
            kind: "source".to_owned(),
            name: name.to_owned(),
            sql: format!("CREATE SOURCE {name} …"),
            found: vec![("topic id".to_owned(), "x1".to_owned())],
        }
    }

    proptest! {
        #[test]
        fn a_row_survives_its_codec(
            id: u32,
            sequence: u64,
            kind: String,
            name: String,
            sql: String,
            found: Vec<(String, String)>,
        ) {
            let row = CatalogRow { id: ObjectId(id), sequence, kind, name, sql, found };
            let mut bytes = Vec::new();
            row.encode(&mut bytes);
            prop_assert_eq!(CatalogRow::decode(&bytes).unwrap(), row);
        }

        #[test]
        fn no_bytes_make_the_decoder_panic(bytes: Vec<u8>) {
            let _ = CatalogRow::decode(&bytes);
        }
    }

    #[test]
    fn a_new_database_has_an_empty_catalog() {
        let content = load(&*MemoryStore::new().snapshot()).unwrap();
        assert_eq!(content.rows, []);
        assert_eq!(content.next_object_id, FIRST_OBJECT_ID);
        assert_eq!(content.system_version, None);
    }

    #[test]
    fn rows_come_back_in_the_order_of_creation_and_dropped_ones_do_not() {
        // given
        let store = MemoryStore::new();
        let mut batch = WriteBatch::new();
        put_row(&mut batch, &row(1, 30, "late"));
        put_row(&mut batch, &row(2, 10, "early"));
        put_row(&mut batch, &row(3, 20, "dropped"));
        put_next_object_id(&mut batch, ObjectId(4));
        put_system_version(&mut batch, "0.1.0");
        store.commit(batch, Durability::Sync).unwrap();

        // when
        let mut batch = WriteBatch::new();
        delete_row(&mut batch, ObjectId(3));
        store.commit(batch, Durability::Sync).unwrap();

        // then
        let content = load(&*store.snapshot()).unwrap();
        let names: Vec<_> = content.rows.iter().map(|row| row.name.as_str()).collect();
        assert_eq!(names, ["early", "late"]);
        assert_eq!(content.next_object_id, ObjectId(4));
        assert_eq!(content.system_version.as_deref(), Some("0.1.0"));
        assert_eq!(content.rows[0].fact("topic id"), Some("x1"));
        assert_eq!(content.rows[0].fact("cluster id"), None);
    }

    #[test]
    fn an_id_that_could_be_handed_out_again_is_refused() {
        let store = MemoryStore::new();
        let mut batch = WriteBatch::new();
        put_row(&mut batch, &row(5, 1, "orders"));
        put_next_object_id(&mut batch, ObjectId(5));
        store.commit(batch, Durability::Sync).unwrap();
        assert!(load(&*store.snapshot()).is_err());
    }
}
