//! How large things are: what of them is in the store, and changed rows in memory that are not yet there.

use std::sync::Arc;

use highwater_sql::catalog::ObjectId;
use highwater_storage::{self as storage, Family, layout};

use super::facts::{Facts, IndexFact, Relation};
use crate::database::{Database, Shared};

/// Looks up sizes when a query asks for them.
pub(crate) struct Sizes(Arc<Shared>);

impl std::fmt::Debug for Sizes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Sizes")
    }
}

impl Sizes {
    /// Of what a database has.
    pub(super) fn of(database: &Database) -> Self {
        Self(Arc::clone(&database.shared))
    }

    /// Bytes of the whole database, on disk and in write buffers.
    pub(super) fn database(&self) -> i64 {
        let metrics = self.0.store.metrics();
        whole(metrics.disk_bytes + metrics.memtable_bytes)
    }

    /// How many rows a relation keeps; `None` where nothing runs.
    pub(super) fn count(&self, relation: &Relation) -> Option<i64> {
        let id = storage::ObjectId(relation.object.as_ref()?.id.0);
        let view = self.0.engine.view(id)?;
        let rows = view.rows.lock().rows();
        Some(whole(rows))
    }

    /// Bytes of the rows of a table, a materialized view or an index.
    fn rows(&self, id: ObjectId) -> i64 {
        let id = storage::ObjectId(id.0);
        let changed = self.0.engine.view(id).map_or(0, |view| view.rows.lock().bytes());
        self.stored(id, Family::Views) + whole(changed as u64)
    }

    /// Bytes that have these objects' prefix; what cannot be read has none, and whoever reads it is told.
    fn stored(&self, id: storage::ObjectId, family: Family) -> i64 {
        let bytes = self.0.store.bytes_under(family, &layout::object_prefix(id));
        whole(bytes.unwrap_or(0))
    }

    /// Bytes of the state of operators and of output that no sink has confirmed.
    fn state(&self, id: ObjectId) -> i64 {
        let id = storage::ObjectId(id.0);
        self.stored(id, Family::State) + self.stored(id, Family::Outbox)
    }
}

fn whole(bytes: u64) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}

/// Which of the parts of a relation are meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Part {
    /// Its rows: `pg_relation_size`.
    Rows,
    /// Its rows and state: `pg_table_size`.
    Table,
    /// Its indexes: `pg_indexes_size`.
    Indexes,
    /// All of it: `pg_total_relation_size`.
    Total,
}

/// Bytes of a relation. What keeps nothing has none.
pub(super) fn of_relation(facts: &Facts, relation: &Relation, part: Part) -> i64 {
    let id = relation.object.as_ref().map(|object| object.id);
    let own = || match (relation.kind, id) {
        ("r" | "m", Some(id)) => facts.sizes.rows(id),
        _ => 0,
    };
    let state = || id.map_or(0, |id| facts.sizes.state(id));
    let indexes = || {
        facts
            .indexes_of(relation)
            .map(|index| of_index(facts, index))
            .sum::<i64>()
    };
    match part {
        Part::Rows => own(),
        Part::Table => own() + state(),
        Part::Indexes => indexes(),
        Part::Total => own() + state() + indexes(),
    }
}

/// Bytes of an index. That of a primary key is how the rows themselves are sorted, and takes nothing.
pub(super) fn of_index(facts: &Facts, index: &IndexFact) -> i64 {
    index.id.map_or(0, |id| facts.sizes.rows(id))
}
