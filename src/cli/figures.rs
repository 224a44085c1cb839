//! Rows of the `hw.*` tables as numbers and texts, for what the command line computes with.

use arrow::array::{Array as _, ArrayRef, AsArray as _};
use arrow::compute::{cast, concat_batches};
use arrow::datatypes::{DataType, Int64Type};
use arrow::record_batch::RecordBatch;

use crate::{Error, Result, Rows, Session};

/// The rows of one query.
pub(super) struct Figures {
    rows: RecordBatch,
}

/// One row.
#[derive(Clone, Copy)]
pub(super) struct Row<'a> {
    figures: &'a Figures,
    index: usize,
}

impl Figures {
    /// Takes rows apart.
    ///
    /// # Errors
    /// Rows that do not fit together.
    pub(super) fn new(rows: &Rows) -> Result<Self> {
        let whole = concat_batches(&rows.schema, &rows.batches);
        Ok(Self {
            rows: whole.map_err(|error| Error::new("XX000", error.to_string()))?,
        })
    }

    /// Asks for rows.
    ///
    /// # Errors
    /// What the query reports.
    pub(super) async fn ask(session: &Session, sql: &str) -> Result<Self> {
        let outcomes = session.execute(sql).await?;
        let rows = outcomes.into_iter().rev().find_map(|outcome| outcome.rows);
        Self::new(&rows.ok_or_else(|| Error::new("02000", "the statement returns no rows"))?)
    }

    /// The rows in order.
    pub(super) fn rows(&self) -> impl Iterator<Item = Row<'_>> {
        (0..self.rows.num_rows()).map(|index| Row { figures: self, index })
    }
}

impl Row<'_> {
    fn cell(&self, column: &str, as_type: &DataType) -> Option<ArrayRef> {
        let cell = self.figures.rows.column_by_name(column)?.slice(self.index, 1);
        cast(&cell, as_type).ok().filter(|cell| cell.is_valid(0))
    }

    /// A number; a timestamp is in microseconds since the epoch. `None` for NULL and for a column that is not there.
    pub(super) fn int(&self, column: &str) -> Option<i64> {
        Some(
            self.cell(column, &DataType::Int64)?
                .as_primitive::<Int64Type>()
                .value(0),
        )
    }

    /// A text; `None` for NULL and for a column that is not there.
    pub(super) fn text(&self, column: &str) -> Option<String> {
        Some(
            self.cell(column, &DataType::Utf8)?
                .as_string::<i32>()
                .value(0)
                .to_owned(),
        )
    }

    /// Whether a flag is set.
    pub(super) fn flag(&self, column: &str) -> bool {
        self.cell(column, &DataType::Boolean)
            .is_some_and(|cell| cell.as_boolean().value(0))
    }
}

/// A point of event time (µs since the epoch) as a clock shows it, with the date unless it is that of `today_us`.
pub(super) fn clock_time(us: i64, today_us: i64) -> String {
    const DAY_US: i64 = 86_400_000_000;
    let Some(time) = arrow::temporal_conversions::timestamp_us_to_datetime(us) else {
        return format!("{us} µs");
    };
    let pattern = if us.div_euclid(DAY_US) == today_us.div_euclid(DAY_US) {
        "%H:%M:%S%.3f"
    } else {
        "%F %H:%M:%S%.3f"
    };
    time.format(pattern).to_string()
}

/// Now, in microseconds since the epoch.
pub(super) fn now_us() -> i64 {
    let since = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .unwrap_or_default();
    i64::try_from(since.as_micros()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{BooleanArray, Int32Array, StringArray, TimestampMicrosecondArray};
    use arrow::datatypes::Schema;

    use super::*;

    #[test]
    fn cells_are_read_by_name_and_null_is_none() {
        let batch = RecordBatch::try_from_iter_with_nullable([
            (
                "n",
                Arc::new(Int32Array::from(vec![Some(7), None])) as ArrayRef,
                true,
            ),
            ("t", Arc::new(StringArray::from(vec![Some("a"), None])), true),
            (
                "at",
                Arc::new(TimestampMicrosecondArray::from(vec![Some(5), None])),
                true,
            ),
            ("f", Arc::new(BooleanArray::from(vec![Some(true), None])), true),
        ])
        .unwrap();
        let figures = Figures::new(&Rows {
            schema: batch.schema(),
            batches: vec![batch],
        })
        .unwrap();
        let seen: Vec<_> = figures
            .rows()
            .map(|row| {
                (
                    row.int("n"),
                    row.text("t"),
                    row.int("at"),
                    row.flag("f"),
                    row.int("x"),
                )
            })
            .collect();
        assert_eq!(seen[0], (Some(7), Some("a".to_owned()), Some(5), true, None));
        assert_eq!(seen[1], (None, None, None, false, None));
    }

    #[test]
    fn no_rows_are_no_error() {
        let rows = Rows {
            schema: Arc::new(Schema::empty()),
            batches: Vec::new(),
        };
        assert_eq!(Figures::new(&rows).unwrap().rows().count(), 0);
    }

    #[test]
    fn the_date_is_shown_when_it_is_another() {
        let noon_us = 43_200_000_000 + 123_000;
        assert_eq!(clock_time(noon_us, 0), "12:00:00.123");
        assert_eq!(clock_time(noon_us, 86_400_000_000), "1970-01-01 12:00:00.123");
    }
}
