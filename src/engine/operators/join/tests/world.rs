//! What the tests run: a join over a store, fed with rows of the model, its output summed up.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{Array, AsArray, Int64Array, RecordBatch, StringArray, TimestampMicrosecondArray};
use arrow::datatypes::{DataType, Field, Int64Type, Schema, SchemaRef, TimeUnit, TimestampMicrosecondType};
use datafusion::common::ScalarValue;
use datafusion::logical_expr::Operator as Op;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::{BinaryExpr, Column, Literal};
use highwater_sql::stream_plan::{Join, JoinClosing, JoinInterval, JoinKey, JoinKind};
use highwater_storage::{CheckpointWriter, Durability, Epoch, MemoryStore, ObjectId, OperatorId, Store};

use super::model::{NUMBER, Row, Shape, WIDTH, WINDOW};
use crate::engine::delta::Delta;
use crate::engine::error::EngineError;
use crate::engine::memory::MemoryBudget;
use crate::engine::operators::join::JoinOperator;
use crate::engine::operators::state::evicted::StateHome;
use crate::engine::operators::{FrozenState, Input, Operator, StateAddress, StepContext};

const ADDRESS: StateAddress = StateAddress {
    object: ObjectId(7),
    operator: OperatorId(1),
};
const SECOND_US: i64 = 1_000_000;
/// A window ends so long after its column says.
pub(super) const WINDOW_S: i64 = 2;

/// A join, its store, and the sum of what it gave.
pub(super) struct World {
    shape: Shape,
    append_only: bool,
    operator: JoinOperator,
    pool: Arc<rayon::ThreadPool>,
    store: Arc<MemoryStore>,
    epoch: u64,
    pending: Vec<Box<dyn FrozenState>>,
    /// Of each input (seconds).
    watermarks: [Option<i64>; 2],
    pub(super) output: BTreeMap<String, i64>,
}

impl World {
    pub(super) fn new(shape: Shape, append_only: bool, shards: usize) -> Self {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(2).build().unwrap();
        Self {
            operator: operator(&shape, append_only, shards),
            shape,
            append_only,
            pool: Arc::new(pool),
            store: Arc::new(MemoryStore::new()),
            epoch: 0,
            pending: Vec::new(),
            watermarks: [None; 2],
            output: BTreeMap::new(),
        }
    }

    /// One step; adds its output up and checks what holds for the output of any step.
    pub(super) fn step(
        &mut self,
        inputs: [&[Delta]; 2],
        watermarks: [Option<i64>; 2],
    ) -> Result<(), EngineError> {
        let micros = |seconds: Option<i64>| seconds.map(|seconds| seconds * SECOND_US);
        let input = |side: usize| Input {
            deltas: inputs[side],
            closed_to: micros(self.watermarks[side]),
            watermark: micros(watermarks[side]),
        };
        let context = StepContext::of(&self.pool);
        let deltas = self.operator.step(&context, &[input(0), input(1)])?;
        self.watermarks = watermarks;
        let mut lines = Vec::new();
        for delta in &deltas {
            lines.extend(self.lines(delta));
        }
        for (line, weight) in &lines {
            *self.output.entry(line.clone()).or_default() += weight;
        }
        assert!(
            lines.is_sorted_by_key(|(_, weight)| *weight > 0),
            "rows are taken away first: {lines:?}"
        );
        let mut mentioned: Vec<_> = lines.iter().map(|(line, _)| line).collect();
        mentioned.sort_unstable();
        let several = mentioned.windows(2).any(|pair| pair[0] == pair[1]);
        assert!(self.append_only || !several, "a row is mentioned once: {lines:?}");
        assert!(
            !self.append_only || deltas.iter().all(|delta| delta.weights.is_none()),
            "what only grows has no weights"
        );
        self.output.retain(|_, weight| *weight != 0);
        Ok(())
    }

    pub(super) fn freeze(&mut self) {
        self.pending.extend(self.operator.freeze());
    }

    pub(super) fn write(&mut self) {
        self.epoch += 1;
        let mut writer = CheckpointWriter::new(Epoch(self.epoch));
        for frozen in self.pending.drain(..) {
            frozen.write(ADDRESS, &mut writer).unwrap();
        }
        self.store.commit(writer.finish(), Durability::Sync).unwrap();
    }

    /// Lets state be evicted from now on; a restart loads no more than `room` bytes.
    pub(super) fn attach(&mut self, room: usize) {
        let store: Arc<dyn Store> = self.store.clone();
        let memory = Arc::new(MemoryBudget::new(room));
        self.operator
            .attach(&Arc::new(StateHome::new(store, ADDRESS, memory)));
    }

    /// Evicts a part of what is clean, when all that was frozen is written.
    pub(super) fn evict(&mut self, part: f64) {
        self.write();
        let goal = self.operator.evictable_bytes() as f64 * part;
        self.operator.evict(goal as usize);
    }

    /// Goes on with an operator that knows only what the store has and loads no more than `room` bytes of it.
    pub(super) fn restart_with(&mut self, shards: usize, room: usize) {
        self.write();
        self.freeze();
        self.write();
        self.operator = operator(&self.shape, self.append_only, shards);
        self.attach(room);
        self.operator.restore(ADDRESS, &*self.store.snapshot()).unwrap();
        assert!(self.operator.freeze().is_none(), "nothing changed since");
    }

    /// Goes on with an operator that knows only what the store has.
    pub(super) fn restart(&mut self, shards: usize) {
        self.freeze();
        self.write();
        let before = self.operator.stats().state_rows;
        self.operator = operator(&self.shape, self.append_only, shards);
        self.operator.restore(ADDRESS, &*self.store.snapshot()).unwrap();
        assert_eq!(
            self.operator.stats().state_rows,
            before,
            "the store has all of the state and nothing else"
        );
        assert!(self.operator.freeze().is_none(), "nothing changed since");
    }

    pub(super) fn operator(&self) -> &JoinOperator {
        &self.operator
    }

    /// The window up to which everything is closed (seconds).
    pub(super) fn closed_through(&self) -> Option<i64> {
        let watermark = self.watermarks[0].min(self.watermarks[1])?;
        match self.shape.within {
            Some(_) => Some(watermark - 1),
            None => self.shape.closes.then_some(watermark - WINDOW_S),
        }
    }

    /// The rows of a delta as the model writes them.
    fn lines(&self, delta: &Delta) -> Vec<(String, i64)> {
        let columns = delta.batch.columns();
        let cell = |column: usize, row: usize| {
            let column = &columns[column];
            if column.is_null(row) {
                return "-".to_owned();
            }
            match column.data_type() {
                DataType::Int64 => column.as_primitive::<Int64Type>().value(row).to_string(),
                DataType::Timestamp(..) => {
                    (column.as_primitive::<TimestampMicrosecondType>().value(row) / SECOND_US).to_string()
                }
                DataType::Utf8 => column.as_string::<i32>().value(row).to_owned(),
                _ => column.as_boolean().value(row).to_string(),
            }
        };
        let line = |row: usize| {
            let cells: Vec<String> = (0..columns.len()).map(|column| cell(column, row)).collect();
            match cells.split_at_checked(WIDTH) {
                Some((left, right)) if right.len() == WIDTH => {
                    format!("{} | {}", left.join(" "), right.join(" "))
                }
                _ => cells.join(" "),
            }
        };
        (0..delta.num_rows())
            .map(|row| (line(row), delta.weight(row)))
            .collect()
    }
}

pub(super) fn operator(shape: &Shape, append_only: bool, shards: usize) -> JoinOperator {
    let input = schema();
    let all: Vec<usize> = (0..WIDTH).collect();
    let window = shape.keys.iter().position(|column| *column == WINDOW);
    let join = Join {
        kind: shape.kind,
        keys: shape
            .keys
            .iter()
            .map(|column| JoinKey {
                left: *column,
                right: *column,
                null_safe: shape.null_safe,
            })
            .collect(),
        condition: condition(shape),
        left_output: all.clone(),
        right_output: if shape.kind.has_right_columns() {
            all
        } else {
            Vec::new()
        },
        closing: window.filter(|_| shape.closes).map(|key| JoinClosing {
            key,
            add_us: WINDOW_S * SECOND_US,
        }),
        interval: shape.within.map(|(before, behind)| JoinInterval {
            left_time: WINDOW,
            right_time: WINDOW,
            left_after_us: Some(before * SECOND_US),
            right_after_us: Some(behind * SECOND_US),
        }),
        is_temporal: false,
    };
    let mut fields: Vec<_> = input.fields().iter().cloned().collect();
    if shape.kind.has_right_columns() {
        fields.extend(input.fields().iter().cloned());
    }
    if shape.kind == JoinKind::Mark {
        fields.push(Arc::new(Field::new("mark", DataType::Boolean, false)));
    }
    let output = Arc::new(Schema::new(fields));
    JoinOperator::try_new(&join, [&input, &input], output, append_only, shards).unwrap()
}

/// What is asked of pairs beside their keys.
fn condition(shape: &Shape) -> Option<Arc<dyn PhysicalExpr>> {
    let binary = |left: Arc<dyn PhysicalExpr>,
                  op: Op,
                  right: Arc<dyn PhysicalExpr>|
     -> Arc<dyn PhysicalExpr> { Arc::new(BinaryExpr::new(left, op, right)) };
    let column = |at: usize| -> Arc<dyn PhysicalExpr> { Arc::new(Column::new("c", at)) };
    let less = shape
        .less
        .then(|| binary(column(NUMBER), Op::Lt, column(WIDTH + NUMBER)));
    let within = shape.within.map(|(before, behind)| {
        let shifted = |op: Op, seconds: i64| {
            let length = ScalarValue::DurationMicrosecond(Some(seconds * SECOND_US));
            binary(column(WIDTH + WINDOW), op, Arc::new(Literal::new(length)))
        };
        let from = binary(column(WINDOW), Op::GtEq, shifted(Op::Minus, before));
        binary(
            from,
            Op::And,
            binary(column(WINDOW), Op::LtEq, shifted(Op::Plus, behind)),
        )
    });
    match (less, within) {
        (Some(less), Some(within)) => Some(binary(less, Op::And, within)),
        (less, within) => less.or(within),
    }
}

fn schema() -> SchemaRef {
    let time = DataType::Timestamp(TimeUnit::Microsecond, None);
    let columns = [
        ("key", DataType::Int64),
        ("window", time),
        ("number", DataType::Int64),
        ("text", DataType::Utf8),
    ];
    Arc::new(Schema::new(
        columns
            .map(|(name, data_type)| Field::new(name, data_type, true))
            .to_vec(),
    ))
}

/// A delta of rows with weights; without weights if all are 1 and `plain` says so.
pub(super) fn delta(rows: &[(Row, i64)], plain: bool) -> Delta {
    let column = |of: fn(&Row) -> Option<i64>| rows.iter().map(|(row, _)| of(row)).collect::<Vec<_>>();
    let texts: Vec<_> = rows.iter().map(|(row, _)| row.text).collect();
    let batch = RecordBatch::try_new(
        schema(),
        vec![
            Arc::new(Int64Array::from(column(|row| row.key))),
            Arc::new(TimestampMicrosecondArray::from(column(|row| {
                Some(row.window * SECOND_US)
            }))),
            Arc::new(Int64Array::from(column(|row| row.number))),
            Arc::new(StringArray::from(texts)),
        ],
    )
    .unwrap();
    let weights: Vec<i64> = rows.iter().map(|(_, weight)| *weight).collect();
    match plain && weights.iter().all(|weight| *weight == 1) {
        true => Delta::inserts(batch),
        false => Delta::weighted(batch, weights.into()),
    }
}
