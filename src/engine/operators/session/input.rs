//! What all shards know, and deltas on their way into them.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray};
use arrow::buffer::ScalarBuffer;
use arrow::datatypes::{SchemaRef, TimestampMicrosecondType};
use highwater_sql::stream_plan::Session;

use crate::engine::codec::RowCodec;
use crate::engine::delta::Delta;
use crate::engine::error::EngineError;
use crate::engine::operators::state::arrangement::put_time;
use crate::engine::operators::state::encoded::EncodedRows;
use crate::engine::operators::state::key::KeyLayout;
use crate::engine::operators::state::values::plain_floats;
use crate::engine::operators::stateless;

/// What all shards know.
#[derive(Debug)]
pub(super) struct Layout {
    pub(super) session: Session,
    pub(super) key: KeyLayout,
    /// The columns of the input.
    pub(super) rows: RowCodec,
    pub(super) input: SchemaRef,
    pub(super) output: SchemaRef,
}

/// Rows ready to be put into their sessions: the time first, then the row.
#[derive(Debug)]
pub(super) struct Prepared {
    pub(super) rows: EncodedRows,
    times: ScalarBuffer<i64>,
    /// Rows whose own gap was over before they came.
    pub(super) late: usize,
}

impl Layout {
    pub(super) fn try_new(
        session: &Session,
        input: &SchemaRef,
        output: SchemaRef,
    ) -> Result<Self, EngineError> {
        let type_of = |column: &usize| input.field(*column).data_type().clone();
        let all: Vec<usize> = (0..input.fields().len()).collect();
        Ok(Self {
            key: KeyLayout::new(session.partition.iter().map(type_of))?,
            rows: RowCodec::new(&all.iter().map(type_of).collect::<Vec<_>>())?,
            session: session.clone(),
            input: Arc::clone(input),
            output,
        })
    }
}

impl Prepared {
    /// Prepares a delta for `shards` shards. Rows without a time are left out, and so are those whose own gap was over at
    /// `closed_to` (µs), which are late.
    ///
    /// # Errors
    /// A time that is too far away; columns that are not of the planned types.
    pub(super) fn of(
        layout: &Layout,
        delta: &Delta,
        closed_to: Option<i64>,
        shards: usize,
    ) -> Result<Self, EngineError> {
        let Session { time, gap_us, .. } = layout.session;
        let in_time = match closed_to.filter(|_| layout.session.closes) {
            Some(closed_to) => stateless::in_time(delta, time, closed_to.saturating_sub(gap_us))?,
            None => None,
        };
        let late = in_time
            .as_ref()
            .map_or(0, |kept| delta.num_rows() - kept.num_rows());
        let delta = with_time(in_time.as_ref().unwrap_or(delta), time)?;
        let times = times_of(&delta, time)?;
        stateless::check_times(&times)?;
        let columns: Vec<ArrayRef> = delta.batch.columns().iter().map(plain_floats).collect();
        let encoder = layout.rows.encoder(&columns)?;
        let key = (&layout.key, layout.session.partition.as_slice());
        let rows = EncodedRows::of(key, &delta, shards, |row, out| {
            put_time(out, Some(times[row]));
            encoder.append(row, out);
            Ok(())
        })?;
        Ok(Self { rows, times, late })
    }

    /// The time of a row (µs).
    #[inline]
    pub(super) fn time(&self, row: u32) -> i64 {
        self.times[row as usize]
    }
}

/// The rows that have a time.
fn with_time(delta: &Delta, column: usize) -> Result<Delta, EngineError> {
    match delta.batch.column(column).nulls() {
        Some(nulls) if nulls.null_count() > 0 => {
            stateless::keep(&BooleanArray::new(nulls.inner().clone(), None), delta)
        }
        _ => Ok(delta.clone()),
    }
}

fn times_of(delta: &Delta, column: usize) -> Result<ScalarBuffer<i64>, EngineError> {
    let times = delta
        .batch
        .column(column)
        .as_primitive_opt::<TimestampMicrosecondType>();
    let times = times.ok_or_else(|| EngineError::internal("sessions are over a column that is no time"))?;
    Ok(times.values().clone())
}
