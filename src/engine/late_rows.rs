//! Late rows behind `hw.late_rows`: the last ones of this process, some of each step. All are counted with their operators.

use std::collections::VecDeque;

use arrow::array::{Array, AsArray, UInt32Array};
use arrow::compute::take_record_batch;
use arrow::datatypes::TimestampMicrosecondType;
use arrow::record_batch::RecordBatch;
use parking_lot::Mutex;

use super::delta::Delta;
use super::error::EngineError;

/// Rows that are kept.
const ROWS_MAX: usize = 1_000;
/// Rows that are taken of one operator in one step.
const ROWS_PER_STEP: usize = 10;

/// A late row.
#[derive(Debug, Clone)]
pub(crate) struct LateRow {
    /// When it came (µs since the epoch).
    pub(crate) at_us: i64,
    /// The view or sink.
    pub(crate) query: String,
    /// The operator whose window was closed, as EXPLAIN shows it.
    pub(crate) operator: String,
    /// The time by which it is late (µs): its event time, or the start or end of its window.
    pub(crate) time_us: i64,
    /// The watermark that had passed its window (µs).
    pub(crate) watermark_us: i64,
    /// The row, as the only one of a batch.
    pub(crate) row: RecordBatch,
}

/// Late rows of a step, from where they are found to the log.
#[derive(Debug, Default)]
pub(crate) struct LateRows {
    rows: Mutex<Vec<LateRow>>,
}

/// The log of one database.
#[derive(Debug, Default)]
pub(crate) struct LateLog {
    rows: Mutex<VecDeque<LateRow>>,
}

impl LateRows {
    /// Takes some of the rows whose time is at or before `last_late` (µs), as of a watermark.
    ///
    /// # Errors
    /// A column that is no time (internal).
    pub(crate) fn note<'d>(
        &self,
        deltas: impl IntoIterator<Item = &'d Delta>,
        column: usize,
        last_late: i64,
        watermark_us: i64,
    ) -> Result<(), EngineError> {
        let mut left = ROWS_PER_STEP;
        for delta in deltas {
            let times = delta.batch.column(column);
            let times = times
                .as_primitive_opt::<TimestampMicrosecondType>()
                .ok_or_else(|| EngineError::internal("rows are late by a column that is no time"))?;
            let is_late = |row: &usize| times.is_valid(*row) && times.value(*row) <= last_late;
            for row in (0..delta.num_rows()).filter(is_late).take(left) {
                self.add(&delta.batch, row, times.value(row), watermark_us)?;
                left -= 1;
            }
        }
        Ok(())
    }

    /// Takes one row.
    ///
    /// # Errors
    /// None that a well-formed batch can cause.
    pub(crate) fn add(
        &self,
        batch: &RecordBatch,
        row: usize,
        time_us: i64,
        watermark_us: i64,
    ) -> Result<(), EngineError> {
        // A copy: a slice would keep the whole batch.
        let row = u32::try_from(row).map_err(|_| EngineError::internal("a batch has 2^32 rows"))?;
        self.rows.lock().push(LateRow {
            at_us: 0,
            query: String::new(),
            operator: String::new(),
            time_us,
            watermark_us,
            row: take_record_batch(batch, &UInt32Array::from(vec![row]))?,
        });
        Ok(())
    }

    /// Says which operator the rows are from that nobody has claimed yet.
    pub(crate) fn of_operator(&self, describe: impl Fn() -> String) {
        for row in self.rows.lock().iter_mut().filter(|row| row.operator.is_empty()) {
            row.operator = describe();
        }
    }

    /// Says which query the rows are from that nobody has claimed yet, and when they came.
    pub(crate) fn of_query(&self, query: &str, at_us: i64) {
        for row in self.rows.lock().iter_mut().filter(|row| row.query.is_empty()) {
            query.clone_into(&mut row.query);
            row.at_us = at_us;
        }
    }
}

impl LateLog {
    /// Takes the rows of a step.
    pub(crate) fn add(&self, rows: LateRows) {
        let rows = rows.rows.into_inner();
        if rows.is_empty() {
            return;
        }
        let mut log = self.rows.lock();
        log.extend(rows);
        let over = log.len().saturating_sub(ROWS_MAX);
        log.drain(..over);
    }

    /// All that are kept, the oldest first.
    pub(crate) fn rows(&self) -> Vec<LateRow> {
        self.rows.lock().iter().cloned().collect()
    }
}
