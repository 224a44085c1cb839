//! Slices of partitions against a model that sorts all rows each time; window functions are compared with the batch answer
//! by the oracle.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{Array, AsArray, Int64Array, TimestampMicrosecondArray};
use arrow::datatypes::{DataType, Field, Int64Type, Schema, SchemaRef, TimeUnit};
use arrow::record_batch::RecordBatch;
use highwater_sql::stream_plan::{Closing, Over, Rank, Slice, SortKey};
use highwater_storage::{CheckpointWriter, Durability, Epoch, MemoryStore, ObjectId, OperatorId, Store};
use proptest::prelude::*;

use super::OverOperator;
use crate::engine::delta::Delta;
use crate::engine::memory::MemoryBudget;
use crate::engine::operators::state::evicted::StateHome;
use crate::engine::operators::{FrozenState, Input, Operator, StateAddress, StepContext};

const ADDRESS: StateAddress = StateAddress {
    object: ObjectId(1),
    operator: OperatorId(2),
};

/// Partition, order, and what tells rows apart.
type Row = (i64, Option<i64>, i64);
type Rows = BTreeMap<Row, i64>;

fn schema() -> SchemaRef {
    let field = |name: &str| Field::new(name, DataType::Int64, true);
    Arc::new(Schema::new(vec![field("k"), field("v"), field("id")]))
}

fn delta(rows: &[(Row, i64)], append_only: bool) -> Delta {
    let column =
        |of: fn(&Row) -> Option<i64>| Arc::new(rows.iter().map(|(row, _)| of(row)).collect::<Int64Array>());
    let columns: Vec<Arc<dyn Array>> = vec![
        column(|row| Some(row.0)),
        column(|row| row.1),
        column(|row| Some(row.2)),
    ];
    let batch = RecordBatch::try_new(schema(), columns).unwrap();
    match append_only {
        true => Delta::inserts(batch),
        false => Delta::weighted(
            batch,
            rows.iter().map(|(_, weight)| *weight).collect::<Vec<_>>().into(),
        ),
    }
}

fn add(rows: &mut Rows, row: Row, weight: i64) {
    let count = rows.entry(row).or_default();
    *count += weight;
    if *count == 0 {
        rows.remove(&row);
    }
}

fn take(output: &mut Rows, deltas: &[Delta]) {
    for delta in deltas {
        let column = |at: usize| delta.batch.column(at).as_primitive::<Int64Type>();
        let value = |at: usize, row: usize| column(at).is_valid(row).then(|| column(at).value(row));
        for row in 0..delta.num_rows() {
            let own = (value(0, row).unwrap(), value(1, row), value(2, row).unwrap());
            add(output, own, delta.weight(row));
        }
    }
}

/// What the partitions give, found the simple way. Great values first, and NULL before them.
fn expected(rows: &Rows, slice: Slice) -> Rows {
    let mut given = Rows::new();
    let partitions: std::collections::BTreeSet<i64> = rows.keys().map(|row| row.0).collect();
    for k in partitions {
        let mut own: Vec<Row> = Vec::new();
        for (row, count) in rows.iter().filter(|(row, _)| row.0 == k) {
            own.extend((0..*count).map(|_| *row));
        }
        own.sort_by_key(|row| (row.1.map(|v| -v), row.2));
        let (mut rank, mut dense) = (0, 0);
        for (at, row) in own.iter().enumerate() {
            if at == 0 || own[at - 1].1 != row.1 {
                rank = at as u64 + 1;
                dense += 1;
            }
            let own = match slice.rank {
                Rank::RowNumber => at as u64 + 1,
                Rank::Rank => rank,
                Rank::DenseRank => dense,
            };
            if own > slice.skip && slice.take.is_none_or(|take| own <= slice.skip + take) {
                add(&mut given, *row, 1);
            }
        }
    }
    given
}

fn operator(slice: Slice, append_only: bool, shards: usize) -> OverOperator {
    let over = Over {
        partition: vec![0],
        order: vec![SortKey {
            column: 1,
            descending: true,
            nulls_first: true,
        }],
        functions: Vec::new(),
        slice: Some(slice),
        closing: None,
        emit_on_close: false,
    };
    OverOperator::try_new(&over, &schema(), append_only, schema(), shards).unwrap()
}

/// The operator, whose state may be evicted.
fn attached(mut operator: OverOperator, store: &Arc<MemoryStore>) -> OverOperator {
    let store: Arc<dyn Store> = store.clone();
    let memory = Arc::new(MemoryBudget::new(1 << 40));
    operator.attach(&Arc::new(StateHome::new(store, ADDRESS, memory)));
    operator
}

fn write(frozen: Box<dyn FrozenState>, store: &MemoryStore, epoch: u64) {
    let mut writer = CheckpointWriter::new(Epoch(epoch));
    frozen.write(ADDRESS, &mut writer).unwrap();
    store.commit(writer.finish(), Durability::Sync).unwrap();
}

fn slices() -> impl Strategy<Value = Slice> {
    let rank = prop_oneof![Just(Rank::RowNumber), Just(Rank::Rank), Just(Rank::DenseRank)];
    (rank, 0..3u64, prop::option::of(0..4u64)).prop_map(|(rank, skip, take)| Slice { rank, skip, take })
}

proptest! {
    #[test]
    fn a_slice_of_each_partition_is_what_sorting_all_rows_gives(
        slice in slices(),
        append_only: bool,
        shards in 1..3usize,
        steps in prop::collection::vec(
            (prop::collection::vec((0..3i64, prop::option::of(0..4i64), 0..3i64, prop::bool::weighted(0.35)), 0..8), 0..5u8),
            1..12,
        ),
    ) {
        let store = Arc::new(MemoryStore::new());
        let pool = rayon::ThreadPoolBuilder::new().num_threads(1).build().unwrap();
        let mut operator = attached(operator(slice, append_only, shards), &store);
        let (mut rows, mut output, mut pending) = (Rows::new(), Rows::new(), None);
        for (epoch, (changes, event)) in (1..).zip(steps) {
            let mut step = Vec::new();
            for (k, v, id, takes) in changes {
                let row = (k, v, id);
                let weight = if takes && !append_only && rows.contains_key(&row) { -1 } else { 1 };
                add(&mut rows, row, weight);
                step.push((row, weight));
            }
            let deltas = [delta(&step, append_only)];
            let input = Input { deltas: &deltas, closed_to: None, watermark: None };
            take(&mut output, &operator.step(&StepContext::of(&pool), &[input]).unwrap());
            prop_assert_eq!(&output, &expected(&rows, slice));
            // What is frozen is written a step later, so that a step reads back while it is on its way.
            if let Some(frozen) = pending.take() {
                write(frozen, &store, epoch);
            }
            match event {
                0 => pending = operator.freeze(),
                1 => {
                    operator.freeze().into_iter().for_each(|frozen| write(frozen, &store, epoch + 100));
                    operator.evict(operator.evictable_bytes());
                }
                2 => {
                    operator.freeze().into_iter().for_each(|frozen| write(frozen, &store, epoch + 100));
                    operator = attached(self::operator(slice, append_only, shards), &store);
                    operator.restore(ADDRESS, &*store.snapshot()).unwrap();
                }
                3 => drop(operator.evict(operator.evictable_bytes() / 2)),
                _ => {}
            }
        }
    }
}

#[test]
fn of_rows_that_are_only_added_no_more_than_the_slice_is_kept() {
    let slice = Slice {
        rank: Rank::RowNumber,
        skip: 1,
        take: Some(2),
    };
    let mut operator = operator(slice, true, 1);
    let pool = rayon::ThreadPoolBuilder::new().num_threads(1).build().unwrap();
    let rows: Vec<(Row, i64)> = (0..100).map(|id| ((1, Some(id % 50), id), 1)).collect();
    let deltas = [delta(&rows, true)];
    let input = Input {
        deltas: &deltas,
        closed_to: None,
        watermark: None,
    };
    operator.step(&StepContext::of(&pool), &[input]).unwrap();
    assert_eq!(operator.stats().state_rows, 3);
}

/// Rows of windows: when the window ends, what partitions it further, and what orders.
fn windows(rows: &[([i64; 3], i64)]) -> Delta {
    let column = |at: usize| rows.iter().map(move |(row, _)| row[at]);
    let columns: Vec<Arc<dyn Array>> = vec![
        Arc::new(TimestampMicrosecondArray::from_iter_values(column(0))),
        Arc::new(Int64Array::from_iter_values(column(1))),
        Arc::new(Int64Array::from_iter_values(column(2))),
    ];
    let batch = RecordBatch::try_new(windowed_schema(), columns).unwrap();
    let weights: Vec<i64> = rows.iter().map(|(_, weight)| *weight).collect();
    Delta::weighted(batch, weights.into())
}

fn windowed_schema() -> SchemaRef {
    let at = Field::new("at", DataType::Timestamp(TimeUnit::Microsecond, None), true);
    let field = |name: &str| Field::new(name, DataType::Int64, true);
    Arc::new(Schema::new(vec![at, field("k"), field("v")]))
}

#[test]
fn a_partition_that_is_gone_does_not_come_back_with_what_another_shard_evicted() {
    let pool = rayon::ThreadPoolBuilder::new().num_threads(1).build().unwrap();
    for other in 1..16 {
        let over = Over {
            partition: vec![0, 1],
            order: vec![SortKey {
                column: 2,
                descending: false,
                nulls_first: false,
            }],
            functions: Vec::new(),
            slice: Some(Slice {
                rank: Rank::RowNumber,
                skip: 0,
                take: Some(1),
            }),
            closing: Some(Closing { group: 0, add_us: 0 }),
            emit_on_close: true,
        };
        let store = Arc::new(MemoryStore::new());
        let schema = windowed_schema();
        let mut operator = attached(
            OverOperator::try_new(&over, &schema, false, schema.clone(), 2).unwrap(),
            &store,
        );
        let step = |operator: &mut OverOperator, rows: &[([i64; 3], i64)], watermark| {
            let deltas = [windows(rows)];
            let input = Input {
                deltas: &deltas,
                closed_to: Some(0),
                watermark: Some(watermark),
            };
            operator.step(&StepContext::of(&pool), &[input]).unwrap()
        };
        step(&mut operator, &[([10, 0, 0], 1)], 0);
        write(operator.freeze().unwrap(), &store, 1);
        step(&mut operator, &[([10, other, 0], 1)], 0);
        operator.evict(operator.evictable_bytes());
        write(operator.freeze().unwrap(), &store, 2);
        step(&mut operator, &[([10, other, 0], -1)], 0);
        // The store has the partition until this freeze is written.
        let _pending = operator.freeze().unwrap();
        let closed = step(&mut operator, &[], 20);
        let keys = closed.iter().flat_map(|delta| {
            let keys = delta.batch.column(1).as_primitive::<Int64Type>();
            keys.values().to_vec()
        });
        assert_eq!(keys.collect::<Vec<_>>(), [0], "beside {other}");
    }
}
