//! The TemporalFilter operator: rows by the instant at which they come or go.
//!
//! ```text
//! now goes on ─▶ waiting rows that are due: +1, ─▶ given ─▶ given rows that are due: −1, and forgotten
//! deltas ─▶ gone already? dropped : not there yet? waiting : +1 or −1, and given until they go
//! ```
//!
//! Where a row is depends on the row and the time of the step alone, so a row that is taken away is found where it is, and one
//! that has gone needs no memory. Rows that never go are not kept.
//!
//! State on disk:
//!
//! | table | key | value |
//! |---|---|---|
//! | 0 | instant at which the row comes, instant at which it goes, row | version, how often it is there |
//! | 1 | instant at which the row goes, row | the same |

use std::ops::Bound;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray};
use arrow::buffer::ScalarBuffer;
use arrow::datatypes::{DataType, SchemaRef, TimestampMicrosecondType};
use arrow::record_batch::{RecordBatch, RecordBatchOptions};
use highwater_sql::stream_plan::{Instant, TemporalFilter};
use highwater_storage::Snapshot;

use super::state::arrangement::{
    self, Arrangement, Closed, FrozenArrangements, put_time, row_behind_time, time_bytes, time_of,
};
use super::state::group_table::Probed;
use super::state::key::KeyLayout;
use super::state::row_set::Cell;
use super::state::values::plain_floats;
use super::{FrozenState, Input, Operator, OperatorStats, StateAddress, StepContext, stateless};
use crate::engine::codec::RowCodec;
use crate::engine::delta::Delta;
use crate::engine::error::EngineError;

/// The relation of rows that are not given yet.
const WAITING: usize = 0;
/// The relation of rows that are given and will go.
const GIVEN: usize = 1;

/// Gives rows from one instant on and up to another one.
pub(crate) struct TemporalOperator {
    filter: TemporalFilter,
    codec: RowCodec,
    schema: SchemaRef,
    append_only: bool,
    key: KeyLayout,
    rows: Arrangement,
    stats: OperatorStats,
}

/// When a row is given: from the first instant up to the second one.
#[derive(Debug, Clone, Copy)]
struct Stay {
    from: i64,
    until: i64,
}

/// What a step changes, before equal rows are brought together.
#[derive(Default)]
struct Changes {
    /// Of the state: the relation, the row behind its instants, and how often.
    kept: Vec<(usize, Vec<u8>, i64)>,
    /// Of the output.
    given: Vec<(Vec<u8>, i64)>,
    /// Rows that go on as they came.
    passed: Vec<Delta>,
}

impl TemporalOperator {
    /// An operator without rows, whose input has the columns of its output.
    ///
    /// # Errors
    /// Types that cannot be stored (`0A000`).
    pub(crate) fn try_new(
        filter: &TemporalFilter,
        schema: SchemaRef,
        append_only: bool,
    ) -> Result<Self, EngineError> {
        let types: Vec<DataType> = schema
            .fields()
            .iter()
            .map(|field| field.data_type().clone())
            .collect();
        let key = KeyLayout::new([])?;
        Ok(Self {
            filter: filter.clone(),
            codec: RowCodec::new(&types)?,
            schema,
            append_only,
            rows: Arrangement::new(&key, 2, false),
            key,
            stats: OperatorStats::default(),
        })
    }

    /// The one slot of the arrangement.
    fn slot(&mut self) -> Result<u32, EngineError> {
        let mut probed = Probed::default();
        self.rows.find(&self.key.batch(&[])?, &[0], &mut probed)?;
        let slot = probed.slots.first().copied();
        slot.ok_or_else(|| EngineError::internal("the one key was not found"))
    }

    /// The rows that come or go because time has passed.
    fn pass_time(&mut self, slot: u32, now_us: i64, changes: &mut Changes) -> Result<(), EngineError> {
        let end = time_bytes(now_us.saturating_add(1));
        let due = |relation: usize, rows: &Arrangement| -> Vec<(Arc<[u8]>, i64)> {
            let due = rows
                .rows(relation, slot)
                .range(Bound::Unbounded, Bound::Excluded(&end));
            due.map(|(row, cell)| (Arc::clone(row), cell.count)).collect()
        };
        for (row, count) in due(GIVEN, &self.rows) {
            self.rows.set(GIVEN, slot, &row, Cell::default());
            changes.given.push((row_behind_time(&row)?.to_vec(), -count));
        }
        for (row, count) in due(WAITING, &self.rows) {
            self.rows.set(WAITING, slot, &row, Cell::default());
            let given = row_behind_time(&row)?;
            let until = time_of(given);
            // While nobody looked it may have come and gone.
            if until > now_us {
                changes.given.push((row_behind_time(given)?.to_vec(), count));
                if until < i64::MAX {
                    changes.kept.push((GIVEN, given.to_vec(), count));
                }
            }
        }
        Ok(())
    }

    /// The rows of a delta.
    fn take(&self, delta: &Delta, now_us: i64, changes: &mut Changes) -> Result<(), EngineError> {
        let columns: Vec<ArrayRef> = delta.batch.columns().iter().map(plain_floats).collect();
        let stays = self.stays(&columns, delta.num_rows())?;
        let encoder = self.codec.encoder(&columns)?;
        let is_given =
            |stay: &Option<Stay>| stay.is_some_and(|stay| stay.from <= now_us && now_us < stay.until);
        for (row, stay) in stays.iter().enumerate() {
            let Some(stay) = stay.filter(|stay| stay.from < stay.until && now_us < stay.until) else {
                continue;
            };
            let weight = delta.weight(row);
            let is_waiting = now_us < stay.from;
            if is_waiting || stay.until < i64::MAX {
                let mut bytes = Vec::with_capacity(64);
                if is_waiting {
                    put_time(&mut bytes, Some(stay.from));
                }
                put_time(&mut bytes, Some(stay.until));
                encoder.append(row, &mut bytes);
                let relation = if is_waiting { WAITING } else { GIVEN };
                changes.kept.push((relation, bytes, weight));
            }
            // Those without weights go on as columns.
            if !is_waiting && delta.weights.is_some() {
                let mut bytes = Vec::with_capacity(48);
                encoder.append(row, &mut bytes);
                changes.given.push((bytes, weight));
            }
        }
        if delta.weights.is_none() {
            let options = RecordBatchOptions::new().with_row_count(Some(delta.num_rows()));
            let batch = RecordBatch::try_new_with_options(Arc::clone(&self.schema), columns, &options)?;
            let mask = stateless::mask(stays.len(), |row| is_given(&stays[row]));
            changes
                .passed
                .push(stateless::keep(&mask, &Delta::inserts(batch))?);
        }
        Ok(())
    }

    /// When each row is given; `None` for those that name no time.
    fn stays(&self, columns: &[ArrayRef], rows: usize) -> Result<Vec<Option<Stay>>, EngineError> {
        let always = Stay {
            from: i64::MIN,
            until: i64::MAX,
        };
        let mut stays = vec![Some(always); rows];
        let from = self.filter.from.iter().map(|instant| (instant, true));
        let until = self.filter.until.iter().map(|instant| (instant, false));
        for (Instant { column, add_us }, is_from) in from.chain(until) {
            let times = columns[*column].as_primitive_opt::<TimestampMicrosecondType>();
            let times = times.ok_or_else(|| EngineError::internal("rows go by a column that is no time"))?;
            for (row, stay) in stays.iter_mut().enumerate() {
                match stay {
                    Some(stay) if times.is_valid(row) => {
                        let at = times.value(row).saturating_add(*add_us);
                        if is_from {
                            stay.from = stay.from.max(at);
                        } else {
                            stay.until = stay.until.min(at);
                        }
                    }
                    _ => *stay = None,
                }
            }
        }
        Ok(stays)
    }

    /// Brings the changes of the state into it.
    fn keep(&mut self, slot: u32, mut kept: Vec<(usize, Vec<u8>, i64)>) -> Result<(), EngineError> {
        kept.sort_unstable_by(|left, right| (left.0, &left.1).cmp(&(right.0, &right.1)));
        for own in kept.chunk_by(|left, right| left.0 == right.0 && left.1 == right.1) {
            let weight: i64 = own.iter().map(|(_, _, weight)| weight).sum();
            if weight == 0 {
                continue;
            }
            let (relation, bytes, _) = &own[0];
            let (row, count) = match self.rows.rows(*relation, slot).get(bytes) {
                Some((row, cell)) => (Arc::clone(row), cell.count + weight),
                None => (Arc::from(bytes.as_slice()), weight),
            };
            if count < 0 {
                return Err(EngineError::internal("a row is taken away that is not there")
                    .with_detail("A temporal filter was given a change that does not fit its state."));
            }
            self.rows.set(*relation, slot, &row, Cell { count, note: 0 });
        }
        Ok(())
    }

    /// The output: rows taken away first.
    fn give(&self, changes: Changes) -> Result<Vec<Delta>, EngineError> {
        let mut given = changes.given;
        given.sort_unstable();
        let mut net: [Vec<(&[u8], i64)>; 2] = Default::default();
        for own in given.chunk_by(|left, right| left.0 == right.0) {
            let weight: i64 = own.iter().map(|(_, weight)| weight).sum();
            if weight != 0 {
                net[usize::from(weight > 0)].push((&own[0].0, weight));
            }
        }
        let mut deltas = Vec::with_capacity(net.len() + changes.passed.len());
        for own in net.iter().filter(|own| !own.is_empty()) {
            deltas.push(self.delta_of(own)?);
        }
        deltas.extend(changes.passed.into_iter().filter(|delta| delta.num_rows() > 0));
        Ok(deltas)
    }

    fn delta_of(&self, rows: &[(&[u8], i64)]) -> Result<Delta, EngineError> {
        let mut decoder = self.codec.decoder(|_| true, rows.len());
        let mut count = 0;
        for (row, weight) in rows {
            // Rows that are only ever added have no weights, and stand there as often as they are.
            for _ in 0..if self.append_only { *weight } else { 1 } {
                decoder.append(row)?;
                count += 1;
            }
        }
        let columns: Vec<ArrayRef> = decoder.finish()?.into_iter().flatten().collect();
        let options = RecordBatchOptions::new().with_row_count(Some(count));
        let batch = RecordBatch::try_new_with_options(Arc::clone(&self.schema), columns, &options)?;
        let weights = rows.iter().map(|(_, weight)| *weight).collect::<Vec<_>>();
        Ok(match self.append_only {
            true => Delta::inserts(batch),
            false => Delta::weighted(batch, ScalarBuffer::from(weights)),
        })
    }
}

impl Operator for TemporalOperator {
    fn step(&mut self, context: &StepContext<'_>, inputs: &[Input<'_>]) -> Result<Vec<Delta>, EngineError> {
        let slot = self.slot()?;
        let mut changes = Changes::default();
        self.pass_time(slot, context.now_us, &mut changes)?;
        for delta in inputs.iter().flat_map(|input| input.deltas) {
            self.take(delta, context.now_us, &mut changes)?;
        }
        self.keep(slot, std::mem::take(&mut changes.kept))?;
        self.give(changes)
    }

    fn due_us(&self) -> Option<i64> {
        let slot = self.rows.slots().next()?;
        let first = |relation: usize| self.rows.rows(relation, slot).iter().next();
        let due = [first(WAITING), first(GIVEN)].into_iter().flatten();
        due.map(|(row, _)| time_of(row)).min()
    }

    fn freeze(&mut self) -> Option<Box<dyn FrozenState>> {
        FrozenArrangements::freeze(vec![&mut self.rows], &mut Closed::default())
    }

    fn restore(&mut self, address: StateAddress, snapshot: &dyn Snapshot) -> Result<(), EngineError> {
        arrangement::restore(&self.key, &mut [&mut self.rows], address, snapshot)
    }

    fn stats(&self) -> OperatorStats {
        OperatorStats {
            state_rows: self.rows.len() as u64,
            state_bytes: self.rows.bytes() as u64,
            ..self.stats
        }
    }
}
