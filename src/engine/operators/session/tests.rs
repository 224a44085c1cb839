//! Sessions against a model that sorts all rows each time.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{Array, AsArray, Int64Array, TimestampMicrosecondArray};
use arrow::datatypes::{DataType, Field, Int64Type, Schema, SchemaRef, TimeUnit, TimestampMicrosecondType};
use arrow::record_batch::RecordBatch;
use highwater_sql::stream_plan::Session;
use highwater_storage::{CheckpointWriter, Durability, Epoch, MemoryStore, ObjectId, OperatorId, Store};
use proptest::prelude::*;

use super::SessionOperator;
use crate::engine::delta::Delta;
use crate::engine::operators::{Input, Operator, StateAddress, StepContext};

const ADDRESS: StateAddress = StateAddress {
    object: ObjectId(1),
    operator: OperatorId(2),
};
const GAP: i64 = 4;
const TIMESTAMP: DataType = DataType::Timestamp(TimeUnit::Microsecond, None);

/// Key, time, and what tells rows apart.
type Row = (Option<i64>, Option<i64>, i64);
/// A row with the start and the end of its session.
type Given = (Row, i64, i64);
type Bag<T> = BTreeMap<T, i64>;

fn schema(windowed: bool) -> SchemaRef {
    let mut fields = vec![
        Field::new("k", DataType::Int64, true),
        Field::new("t", TIMESTAMP, true),
        Field::new("id", DataType::Int64, true),
    ];
    if windowed {
        fields.push(Field::new("window_start", TIMESTAMP, false));
        fields.push(Field::new("window_end", TIMESTAMP, false));
    }
    Arc::new(Schema::new(fields))
}

fn delta(rows: &[(Row, i64)], append_only: bool) -> Delta {
    let k: Int64Array = rows.iter().map(|(row, _)| row.0).collect();
    let t: TimestampMicrosecondArray = rows.iter().map(|(row, _)| row.1).collect();
    let id: Int64Array = rows.iter().map(|(row, _)| Some(row.2)).collect();
    let columns: Vec<Arc<dyn Array>> = vec![Arc::new(k), Arc::new(t), Arc::new(id)];
    let batch = RecordBatch::try_new(schema(false), columns).unwrap();
    match append_only {
        true => Delta::inserts(batch),
        false => Delta::weighted(
            batch,
            rows.iter().map(|(_, weight)| *weight).collect::<Vec<_>>().into(),
        ),
    }
}

fn add<T: Ord + Copy>(bag: &mut Bag<T>, row: T, weight: i64) {
    let count = bag.entry(row).or_default();
    *count += weight;
    if *count == 0 {
        bag.remove(&row);
    }
}

/// Adds what an operator gave; no row may be taken away that is not there.
fn take(output: &mut Bag<Given>, deltas: &[Delta]) {
    for delta in deltas {
        let number = |at: usize, row: usize| {
            let column = delta.batch.column(at).as_primitive::<Int64Type>();
            column.is_valid(row).then(|| column.value(row))
        };
        let time = |at: usize, row: usize| {
            let column = delta.batch.column(at).as_primitive::<TimestampMicrosecondType>();
            column.is_valid(row).then(|| column.value(row))
        };
        for row in 0..delta.num_rows() {
            let own = (number(0, row), time(1, row), number(2, row).unwrap());
            let given = (own, time(3, row).unwrap(), time(4, row).unwrap());
            add(output, given, delta.weight(row));
            assert!(output.get(&given).is_none_or(|count| *count > 0), "{given:?}");
        }
    }
}

/// All rows in their sessions.
fn expected(rows: &Bag<Row>) -> Bag<Given> {
    let mut by_key: BTreeMap<Option<i64>, Vec<(i64, Row, i64)>> = BTreeMap::new();
    for (row, count) in rows {
        if let Some(time) = row.1 {
            by_key.entry(row.0).or_default().push((time, *row, *count));
        }
    }
    let mut given = Bag::new();
    for mut own in by_key.into_values() {
        own.sort_unstable();
        for session in own.chunk_by(|left, right| right.0 - left.0 < GAP) {
            let (start, end) = (session[0].0, session[session.len() - 1].0 + GAP);
            given.extend(session.iter().map(|(_, row, count)| ((*row, start, end), *count)));
        }
    }
    given
}

struct World {
    operator: SessionOperator,
    session: Session,
    shards: usize,
    store: MemoryStore,
    pool: rayon::ThreadPool,
    epoch: u64,
    watermark: Option<i64>,
}

impl World {
    fn new(partition: Vec<usize>, closes: bool, emit_on_close: bool, shards: usize) -> Self {
        let session = Session {
            partition,
            time: 1,
            gap_us: GAP,
            closes,
            emit_on_close,
        };
        Self {
            operator: SessionOperator::try_new(&session, &schema(false), schema(true), shards).unwrap(),
            session,
            shards,
            store: MemoryStore::new(),
            pool: rayon::ThreadPoolBuilder::new().num_threads(1).build().unwrap(),
            epoch: 0,
            watermark: None,
        }
    }

    fn step(&mut self, deltas: &[Delta], watermark: Option<i64>) -> Vec<Delta> {
        let closed_to = std::mem::replace(&mut self.watermark, watermark);
        let input = Input {
            deltas,
            closed_to,
            watermark,
        };
        self.operator
            .step(&StepContext::of(&self.pool), &[input])
            .unwrap()
    }

    fn restart(&mut self) {
        self.epoch += 1;
        let mut writer = CheckpointWriter::new(Epoch(self.epoch));
        if let Some(frozen) = self.operator.freeze() {
            frozen.write(ADDRESS, &mut writer).unwrap();
        }
        self.store.commit(writer.finish(), Durability::Sync).unwrap();
        let late = self.operator.stats.late_rows;
        self.operator =
            SessionOperator::try_new(&self.session, &schema(false), schema(true), self.shards).unwrap();
        self.operator.restore(ADDRESS, &*self.store.snapshot()).unwrap();
        self.operator.stats.late_rows = late;
    }
}

/// A row that may come, whether one is taken away instead, and its place in time.
type Draw = (Option<i64>, Option<i64>, i64, bool);

fn draws(times: i64) -> impl Strategy<Value = Vec<Draw>> {
    let key = prop::option::weighted(0.8, 0..2i64);
    let time = prop::option::weighted(0.9, 0..times);
    prop::collection::vec((key, time, 0..2i64, prop::bool::weighted(0.4)), 0..8)
}

proptest! {
    #[test]
    fn each_row_stands_in_the_session_that_sorting_all_rows_gives(
        append_only: bool,
        partitioned: bool,
        shards in 1..3usize,
        steps in prop::collection::vec((draws(40), prop::bool::weighted(0.3)), 1..10),
    ) {
        let partition = if partitioned { vec![0] } else { Vec::new() };
        let mut world = World::new(partition, false, false, shards);
        let (mut rows, mut output) = (Bag::new(), Bag::new());
        for (changes, restart) in steps {
            let mut step = Vec::new();
            for (k, t, id, takes) in changes {
                let row = (k, t, id);
                let weight = if takes && !append_only && rows.contains_key(&row) { -1 } else { 1 };
                add(&mut rows, row, weight);
                step.push((row, weight));
            }
            take(&mut output, &world.step(&[delta(&step, append_only)], None));
            // Without partitions all rows share their sessions, whatever their keys: the model has them in one.
            let one = |row: Row| match partitioned {
                true => row,
                false => (None, row.1, row.2 * 10 + row.0.map_or(9, |k| k)),
            };
            let all: Bag<Row> = rows.iter().map(|(row, count)| (one(*row), *count)).collect();
            let found: Bag<Given> = output
                .iter()
                .map(|((row, start, end), count)| ((one(*row), *start, *end), *count))
                .collect();
            prop_assert_eq!(&found, &expected(&all));
            if restart {
                world.restart();
            }
        }
    }

    #[test]
    fn sessions_close_with_the_watermark_and_late_rows_change_nothing(
        emit_on_close: bool,
        shards in 1..3usize,
        steps in prop::collection::vec((draws(14), 0..6i64, prop::bool::weighted(0.3)), 1..14),
    ) {
        let mut world = World::new(vec![0], true, emit_on_close, shards);
        let (mut rows, mut output) = (Bag::new(), Bag::new());
        let (mut watermark, mut late) = (None, 0);
        for (number, (changes, advance, restart)) in (0i64..).zip(steps) {
            let is_closed = |end: i64| watermark.is_some_and(|own| end <= own);
            // What is late is so by what was closed before the step, whatever else the step brings: a row whose own gap is over,
            // or one that is less than a gap from a closed session.
            let mut closed = expected(&rows);
            closed.retain(|given, _| is_closed(given.2));
            let mut step = Vec::new();
            for (k, t, id, _) in changes {
                // Around the watermark, before it as after it.
                let t = t.map(|t| number * 3 + t - 7);
                let joins = |given: &Given, t: i64| given.0.0 == k && t > given.1 - GAP && t < given.2;
                let is_late = t.is_some_and(|t| is_closed(t + GAP) || closed.keys().any(|given| joins(given, t)));
                match is_late {
                    true => late += 1,
                    false => add(&mut rows, (k, t, id), 1),
                }
                step.push(((k, t, id), 1));
            }
            let next = watermark.max(Some(number * 3 + advance - 4));
            take(&mut output, &world.step(&[delta(&step, true)], next));
            watermark = next;
            let mut all = expected(&rows);
            if emit_on_close {
                all.retain(|given, _| watermark.is_some_and(|watermark| given.2 <= watermark));
            }
            prop_assert_eq!(&output, &all);
            prop_assert_eq!(world.operator.stats.late_rows, late);
            if restart {
                world.restart();
            }
        }
        world.step(&[], Some(1000));
        prop_assert_eq!(world.operator.stats().state_rows, 0);
    }
}

#[test]
fn a_row_within_a_long_session_changes_one_row() {
    let mut world = World::new(vec![0], true, false, 1);
    let row = |t: i64, id: i64| ((Some(1), Some(t), id), 1);
    let many: Vec<_> = (0..1000).map(|t| row(t, 0)).collect();
    world.step(&[delta(&many, true)], None);
    let output = world.step(&[delta(&[row(500, 1)], true)], None);
    assert_eq!(output.iter().map(Delta::num_rows).sum::<usize>(), 1);
}
