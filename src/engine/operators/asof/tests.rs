//! Matches against a model that looks at all pairs each time: changing rows on both sides, random steps, watermarks that let
//! rows go, and restarts.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Int64Array, TimestampMicrosecondArray};
use arrow::datatypes::{DataType, Field, Int64Type, Schema, SchemaRef, TimeUnit, TimestampMicrosecondType};
use arrow::record_batch::RecordBatch;
use highwater_sql::stream_plan::{AsOf, JoinKey, Nearest};
use highwater_storage::{CheckpointWriter, Durability, Epoch, MemoryStore, ObjectId, OperatorId, Store};
use proptest::prelude::*;

use super::AsOfOperator;
use crate::engine::delta::Delta;
use crate::engine::memory::MemoryBudget;
use crate::engine::operators::state::evicted::StateHome;
use crate::engine::operators::{Input, Operator, StateAddress, StepContext};

const ADDRESS: StateAddress = StateAddress {
    object: ObjectId(3),
    operator: OperatorId(1),
};

/// Key, time, and what tells rows apart.
type Row = (Option<i64>, Option<i64>, i64);
type Rows = BTreeMap<Row, i64>;
/// A left row and its match.
type Pair = (Row, Option<Row>);

#[derive(Debug, Clone, Copy)]
struct Shape {
    nearest: Nearest,
    is_outer: bool,
    expires: bool,
    is_keyed: bool,
    /// Whether the times are BIGINTs.
    is_number: bool,
}

fn schema(shape: Shape) -> SchemaRef {
    let time = match shape.is_number {
        true => DataType::Int64,
        false => DataType::Timestamp(TimeUnit::Microsecond, None),
    };
    Arc::new(Schema::new(vec![
        Field::new("k", DataType::Int64, true),
        Field::new("t", time, true),
        Field::new("id", DataType::Int64, true),
    ]))
}

fn operator(shape: Shape, shards: usize) -> AsOfOperator {
    let input = schema(shape);
    let asof = AsOf {
        keys: match shape.is_keyed {
            true => vec![JoinKey {
                left: 0,
                right: 0,
                null_safe: false,
            }],
            false => Vec::new(),
        },
        left_time: 1,
        right_time: 1,
        nearest: shape.nearest,
        is_outer: shape.is_outer,
        left_output: vec![0, 1, 2],
        right_output: vec![0, 1, 2],
        right_order: vec![0, 1, 2],
        expires: shape.expires,
    };
    let fields = input.fields().iter().chain(input.fields()).cloned();
    let output = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
    AsOfOperator::try_new(&asof, [&input, &input], output, shards).unwrap()
}

fn delta(shape: Shape, rows: &[(Row, i64)]) -> Delta {
    let numbers = |of: fn(&Row) -> Option<i64>| rows.iter().map(|(row, _)| of(row)).collect::<Int64Array>();
    let times: ArrayRef = match shape.is_number {
        true => Arc::new(numbers(|row| row.1)),
        false => Arc::new(
            rows.iter()
                .map(|(row, _)| row.1)
                .collect::<TimestampMicrosecondArray>(),
        ),
    };
    let columns: Vec<ArrayRef> = vec![
        Arc::new(numbers(|row| row.0)),
        times,
        Arc::new(numbers(|row| Some(row.2))),
    ];
    let batch = RecordBatch::try_new(schema(shape), columns).unwrap();
    let weights: Vec<i64> = rows.iter().map(|(_, weight)| *weight).collect();
    Delta::weighted(batch, weights.into())
}

fn add<K: Ord + Clone>(sums: &mut BTreeMap<K, i64>, key: K, weight: i64) {
    let count = sums.entry(key.clone()).or_default();
    *count += weight;
    if *count == 0 {
        sums.remove(&key);
    }
}

fn take(shape: Shape, output: &mut BTreeMap<Pair, i64>, deltas: &[Delta]) {
    for delta in deltas {
        let value = |at: usize, row: usize| {
            let column = delta.batch.column(at);
            column
                .is_valid(row)
                .then(|| match shape.is_number || at % 3 != 1 {
                    true => column.as_primitive::<Int64Type>().value(row),
                    false => column.as_primitive::<TimestampMicrosecondType>().value(row),
                })
        };
        for row in 0..delta.num_rows() {
            let left = (value(0, row), value(1, row), value(2, row).unwrap());
            let right = value(5, row).map(|id| (value(3, row), value(4, row), id));
            add(output, (left, right), delta.weight(row));
        }
    }
}

fn expected(shape: Shape, left: &Rows, right: &Rows) -> BTreeMap<Pair, i64> {
    let mut pairs = BTreeMap::new();
    for (row, count) in left {
        let matches = right.keys().filter(|other| {
            let (Some(t), Some(u)) = (row.1, other.1) else {
                return false;
            };
            let is_of_key = !shape.is_keyed || (row.0.is_some() && row.0 == other.0);
            is_of_key
                && match shape.nearest {
                    Nearest::Before => t > u,
                    Nearest::BeforeOrAt => t >= u,
                    Nearest::After => t < u,
                    Nearest::AfterOrAt => t <= u,
                }
        });
        // NULLs last, as in ORDER BY.
        let place = |row: &&Row| (row.1, row.0.is_none(), row.0, row.2);
        let best = match shape.nearest {
            Nearest::Before | Nearest::BeforeOrAt => matches.max_by_key(place),
            Nearest::After | Nearest::AfterOrAt => matches.min_by_key(place),
        };
        if best.is_some() || shape.is_outer {
            add(&mut pairs, (*row, best.copied()), *count);
        }
    }
    pairs
}

/// A change that the test makes: the side, the row, whether one that is there goes, and whether the step ends behind it.
type Change = (bool, (u8, u8, u8), bool, bool);

struct World {
    shape: Shape,
    operator: AsOfOperator,
    pool: rayon::ThreadPool,
    store: Arc<MemoryStore>,
    epoch: u64,
    watermark: Option<i64>,
    rows: [Rows; 2],
    output: BTreeMap<Pair, i64>,
}

impl World {
    fn new(shape: Shape) -> Self {
        Self {
            shape,
            operator: operator(shape, 3),
            pool: rayon::ThreadPoolBuilder::new().num_threads(1).build().unwrap(),
            store: Arc::new(MemoryStore::new()),
            epoch: 0,
            watermark: None,
            rows: [Rows::new(), Rows::new()],
            output: BTreeMap::new(),
        }
    }

    fn attach(&mut self) {
        let store: Arc<dyn Store> = self.store.clone();
        let memory = Arc::new(MemoryBudget::new(1 << 40));
        self.operator
            .attach(&Arc::new(StateHome::new(store, ADDRESS, memory)));
    }

    fn step(&mut self, deltas: &[Vec<(Row, i64)>; 2], watermark: Option<i64>) {
        let deltas = [0, 1].map(|side| match deltas[side].is_empty() {
            true => Vec::new(),
            false => vec![delta(self.shape, &deltas[side])],
        });
        let closed_to = self.watermark;
        let input = |side: usize| Input {
            deltas: &deltas[side],
            closed_to,
            watermark,
        };
        let context = StepContext::of(&self.pool);
        let given = self.operator.step(&context, &[input(0), input(1)]).unwrap();
        let negative = |delta: &Delta| (0..delta.num_rows()).any(|row| delta.weight(row) < 0);
        assert!(
            given.iter().skip(1).all(|delta| !negative(delta)),
            "rows are taken away first"
        );
        take(self.shape, &mut self.output, &given);
        self.watermark = watermark;
        assert_eq!(self.operator.stats().late_rows, 0);
    }

    fn write(&mut self) {
        self.epoch += 1;
        let mut writer = CheckpointWriter::new(Epoch(self.epoch));
        if let Some(frozen) = self.operator.freeze() {
            frozen.write(ADDRESS, &mut writer).unwrap();
        }
        self.store.commit(writer.finish(), Durability::Sync).unwrap();
    }

    /// Writes what changed, and evicts all that may be.
    fn evict(&mut self) {
        self.write();
        self.operator.evict(self.operator.evictable_bytes());
    }

    fn restart(&mut self) {
        self.write();
        let (before, evicted) = (
            self.operator.stats().state_rows,
            self.operator.stats().evictions.evicted,
        );
        let late = self.operator.stats().late_rows;
        self.operator = operator(self.shape, 2);
        self.attach();
        self.operator.restore(ADDRESS, &*self.store.snapshot()).unwrap();
        let after = self.operator.stats().state_rows;
        assert!(after == before || evicted > 0 && after > before);
        assert_eq!(late, 0);
    }
}

fn run(shape: Shape, changes: &[Change], restart_every: usize) -> World {
    let mut world = World::new(shape);
    let mut step = [Vec::new(), Vec::new()];
    for (at, (is_left, (k, t, id), goes, ends)) in changes.iter().enumerate() {
        let side = usize::from(!is_left);
        let floor = world.watermark.filter(|_| shape.expires).unwrap_or(0);
        let time = floor + i64::from(*t);
        let row = (
            (*k > 0).then_some(i64::from(*k % 3)),
            (*t != 7).then_some(time),
            i64::from(*id),
        );
        // Only what the watermark has not passed can be taken back.
        let found = world.rows[side]
            .keys()
            .rev()
            .find(|own| own.1.is_none_or(|time| time >= floor))
            .copied();
        let (row, weight) = match found {
            Some(found) if *goes => (found, -1),
            _ => (row, 1),
        };
        add(&mut world.rows[side], row, weight);
        step[side].push((row, weight));
        if *ends || at + 1 == changes.len() {
            let watermark = shape.expires.then_some(floor + i64::from(*id));
            world.step(&step, watermark);
            step = [Vec::new(), Vec::new()];
            assert_eq!(world.output, expected(shape, &world.rows[0], &world.rows[1]));
            if at % restart_every == 0 {
                world.restart();
            } else if at % 3 == 0 {
                world.evict();
            }
        }
    }
    world
}

fn shapes() -> impl Strategy<Value = Shape> {
    let nearest = prop::sample::select(vec![
        Nearest::Before,
        Nearest::BeforeOrAt,
        Nearest::After,
        Nearest::AfterOrAt,
    ]);
    (nearest, any::<[bool; 3]>(), prop::bool::weighted(0.8)).prop_map(
        |(nearest, [is_outer, expires, is_number], is_keyed)| Shape {
            nearest,
            is_outer,
            expires,
            is_keyed,
            is_number: is_number && !expires,
        },
    )
}

proptest! {
    #[test]
    fn the_sum_of_the_outputs_of_an_asof_join_is_the_answer_of_the_model(
        shape in shapes(),
        changes in prop::collection::vec(
            (any::<bool>(), (0..4u8, 0..12u8, 0..3u8), prop::bool::weighted(0.3), prop::bool::weighted(0.4)),
            1..120,
        ),
        restart_every in 1..20usize,
    ) {
        run(shape, &changes, restart_every);
    }
}

#[test]
fn where_rows_expire_a_key_keeps_what_later_rows_may_need_and_no_more() {
    for nearest in [Nearest::BeforeOrAt, Nearest::AfterOrAt] {
        let shape = Shape {
            nearest,
            is_outer: true,
            expires: true,
            is_keyed: true,
            is_number: false,
        };
        let mut world = World::new(shape);
        for second in 0..100_i64 {
            let time = second * 10_000_000;
            let row = |id| vec![((Some(1), Some(time), id), 1)];
            world.step(&[row(1), row(2)], Some(time));
        }
        let rows = world.operator.stats().state_rows;
        assert!(rows <= 4, "{rows} rows are kept");
        assert_eq!(world.output.values().sum::<i64>(), 100);
        world.restart();
    }
}
