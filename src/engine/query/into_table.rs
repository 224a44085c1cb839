//! [`IntoTable`]: the end of a sink whose rows go into a table.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use arrow::array::Array;
use highwater_storage::ObjectId;

use crate::engine::delta::Delta;
use crate::engine::error::EngineError;
use crate::engine::status::SinkStatus;

/// The table that a sink writes into.
#[derive(Debug, Clone)]
pub(crate) struct TableTarget {
    /// Its number.
    pub(crate) id: ObjectId,
    /// Its name.
    pub(crate) name: String,
    /// Its columns that take no NULL: place and name.
    pub(crate) not_null: Vec<(usize, String)>,
}

/// Where a sink's rows leave its query: the table takes them in the same step.
pub(crate) struct IntoTable {
    target: TableTarget,
    /// Rows given since the start of the process.
    rows: AtomicU64,
    is_running: AtomicBool,
}

impl IntoTable {
    /// For a table.
    pub(crate) fn new(target: &TableTarget) -> Self {
        Self {
            target: target.clone(),
            rows: AtomicU64::new(0),
            is_running: AtomicBool::new(false),
        }
    }

    /// Counts the rows of a step, and makes sure that the table can take them.
    ///
    /// # Errors
    /// NULL in a column that takes none (`23502`).
    pub(crate) fn check(&self, deltas: &[Delta]) -> Result<(), EngineError> {
        let mut rows = 0;
        for delta in deltas {
            let is_added = |row: usize| delta.weight(row) > 0;
            for (column, name) in &self.target.not_null {
                let values = delta.batch.column(*column);
                let violates = values.null_count() > 0
                    && (0..values.len()).any(|row| values.is_null(row) && is_added(row));
                if violates {
                    let message = format!(
                        "null value in column \"{name}\" of relation \"{}\" violates not-null constraint",
                        self.target.name
                    );
                    return Err(EngineError::new("23502", message)
                        .with_detail("The row was given by a sink into the table.")
                        .with_hint("Leave such rows out in the query of the sink, or give them a value."));
                }
            }
            rows += delta.num_rows() as u64;
        }
        self.rows.fetch_add(rows, Ordering::Relaxed);
        Ok(())
    }

    /// Rows given since the start of the process.
    pub(crate) fn rows(&self) -> u64 {
        self.rows.load(Ordering::Relaxed)
    }

    /// Notes whether its query runs.
    pub(crate) fn set_running(&self, is_running: bool) {
        self.is_running.store(is_running, Ordering::Relaxed);
    }

    /// How the sink is: nothing waits, as the table takes what comes.
    pub(crate) fn status(&self) -> SinkStatus {
        SinkStatus {
            state: match self.is_running.load(Ordering::Relaxed) {
                true => "running",
                false => "stopped",
            },
            error: None,
            pending_rows: 0,
            pending_bytes: 0,
            confirmed: self.rows(),
            failures: 0,
        }
    }
}
