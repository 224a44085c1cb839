//! What the tests run: an operator over a store, fed with rows of the model, its output summed up.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, BooleanArray, Decimal128Array, Float64Array, Int32Array, Int64Array,
    StringArray, TimestampMicrosecondArray,
};
use arrow::datatypes::{
    DataType, Decimal128Type, Field, Float64Type, Int32Type, Int64Type, Schema, SchemaRef, TimeUnit,
    TimestampMicrosecondType,
};
use arrow::record_batch::RecordBatch;
use highwater_sql::stream_plan::{Aggregate, AggregateCall, AggregateFunction};
use highwater_storage::{CheckpointWriter, Durability, Epoch, MemoryStore, ObjectId, OperatorId, Store};

use super::model::{BIGINT, COLUMNS, DECIMAL, FLAG, FLOAT, INTEGER, Row, TEXT, Value, WINDOW};
use crate::engine::delta::Delta;
use crate::engine::error::EngineError;
use crate::engine::memory::MemoryBudget;
use crate::engine::operators::aggregate::AggregateOperator;
use crate::engine::operators::state::evicted::StateHome;
use crate::engine::operators::{FrozenState, Input, Operator, StateAddress, StepContext};

const ADDRESS: StateAddress = StateAddress {
    object: ObjectId(7),
    operator: OperatorId(1),
};

/// An operator, its store, and the sum of what it gave.
pub(super) struct World {
    aggregate: Aggregate,
    append_only: bool,
    shards: usize,
    operator: AggregateOperator,
    pool: Arc<rayon::ThreadPool>,
    store: Arc<MemoryStore>,
    /// Whether state is evicted; then a freeze is written before the next one, as pipelines do it.
    evicts: bool,
    epoch: u64,
    /// Freezes that are not written yet.
    pending: Vec<Box<dyn FrozenState>>,
    watermark: Option<i64>,
    /// Weights of output rows.
    pub(super) output: BTreeMap<String, i64>,
}

impl World {
    pub(super) fn new(aggregate: Aggregate, append_only: bool, shards: usize) -> Self {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(2).build().unwrap();
        Self {
            operator: operator(&aggregate, append_only, shards).unwrap(),
            aggregate,
            append_only,
            shards,
            pool: Arc::new(pool),
            store: Arc::new(MemoryStore::new()),
            evicts: false,
            epoch: 0,
            pending: Vec::new(),
            watermark: None,
            output: BTreeMap::new(),
        }
    }

    /// One step; adds its output up and checks what holds for the output of any step.
    pub(super) fn step(
        &mut self,
        input: &[Delta],
        watermark: Option<i64>,
    ) -> Result<Vec<String>, EngineError> {
        let context = StepContext::of(&self.pool);
        let input = Input {
            deltas: input,
            closed_to: self.watermark,
            watermark,
        };
        let deltas = self.operator.step(&context, &[input])?;
        self.watermark = watermark;
        let mut lines = Vec::new();
        for (line, weight) in deltas.iter().flat_map(rows_of) {
            lines.push(format!("{weight:+} {line}"));
            *self.output.entry(line).or_default() += weight;
        }
        let additions = lines.iter().skip_while(|line| line.starts_with('-'));
        assert!(
            additions.clone().all(|line| line.starts_with('+')),
            "rows are taken away first: {lines:?}"
        );
        for line in &lines {
            let opposite = format!("{}{}", if line.starts_with('+') { '-' } else { '+' }, &line[1..]);
            assert!(
                !lines.contains(&opposite),
                "a row that stays is not mentioned: {line}"
            );
        }
        assert!(
            self.output.values().all(|weight| (0..=1).contains(weight)),
            "{:?}",
            self.output
        );
        self.output.retain(|_, weight| *weight != 0);
        Ok(lines)
    }

    /// One step whose output nobody looks at.
    pub(super) fn step_quietly(&mut self, input: &[Delta], watermark: Option<i64>) {
        let context = StepContext::of(&self.pool);
        let input = Input {
            deltas: input,
            closed_to: self.watermark,
            watermark,
        };
        self.operator.step(&context, &[input]).unwrap();
        self.watermark = watermark;
    }

    /// Lets state be evicted from now on.
    pub(super) fn attach(&mut self, room: usize) {
        let store: Arc<dyn Store> = self.store.clone();
        let memory = Arc::new(MemoryBudget::new(room));
        self.evicts = true;
        self.operator
            .attach(&Arc::new(StateHome::new(store, ADDRESS, memory)));
    }

    /// Evicts a part of what is clean, when all that was frozen is written.
    pub(super) fn evict(&mut self, part: f64) {
        if self.evicts {
            self.write();
            let goal = self.operator.evictable_bytes() as f64 * part;
            self.operator.evict(goal as usize);
        }
    }

    /// Freezes; the checkpoint thread has not come to writing it yet.
    pub(super) fn freeze(&mut self) {
        if self.evicts {
            self.write();
        }
        self.pending.extend(self.operator.freeze());
    }

    /// Writes what is frozen.
    pub(super) fn write(&mut self) {
        self.epoch += 1;
        let mut writer = CheckpointWriter::new(Epoch(self.epoch));
        for frozen in self.pending.drain(..) {
            frozen.write(ADDRESS, &mut writer).unwrap();
        }
        self.store.commit(writer.finish(), Durability::Sync).unwrap();
    }

    /// Goes on with an operator that knows only what the store has, in another number of shards. Of evicted state no more than
    /// `room` bytes are loaded.
    pub(super) fn restart_with(&mut self, room: usize) -> Result<(), EngineError> {
        self.freeze();
        self.write();
        self.shards = self.shards % 3 + 1;
        self.operator = operator(&self.aggregate, self.append_only, self.shards).unwrap();
        self.attach(room);
        self.operator.restore(ADDRESS, &*self.store.snapshot())?;
        assert!(self.operator.freeze().is_none(), "nothing changed since");
        Ok(())
    }

    /// Goes on with an operator that knows only what the store has, in another number of shards.
    pub(super) fn restart(&mut self) -> Result<(), EngineError> {
        self.freeze();
        self.write();
        let before = self.operator.stats().state_rows;
        self.shards = self.shards % 3 + 1;
        self.operator = operator(&self.aggregate, self.append_only, self.shards).unwrap();
        self.operator.restore(ADDRESS, &*self.store.snapshot())?;
        assert_eq!(
            self.operator.stats().state_rows,
            before,
            "the store has all of the state and nothing else"
        );
        assert!(self.operator.freeze().is_none(), "nothing changed since");
        Ok(())
    }

    pub(super) fn operator(&self) -> &AggregateOperator {
        &self.operator
    }

    pub(super) fn store(&self) -> &MemoryStore {
        &self.store
    }

    pub(super) fn watermark(&self) -> Option<i64> {
        self.watermark
    }
}

/// An operator over the test's columns.
pub(super) fn operator(
    aggregate: &Aggregate,
    append_only: bool,
    shards: usize,
) -> Result<AggregateOperator, EngineError> {
    let input = schema();
    let groups = aggregate.groups.iter().map(|column| input.field(*column).clone());
    let calls = aggregate.calls.iter().enumerate();
    let calls = calls.map(|(at, call)| Field::new(format!("c{at}"), call.result_type.clone(), true));
    let output = Arc::new(Schema::new(groups.chain(calls).collect::<Vec<_>>()));
    AggregateOperator::try_new(aggregate, &input, append_only, output, shards)
}

pub(super) fn schema() -> SchemaRef {
    let types = (0..COLUMNS).map(data_type).enumerate();
    Arc::new(Schema::new(
        types
            .map(|(at, own)| Field::new(format!("i{at}"), own, true))
            .collect::<Vec<_>>(),
    ))
}

fn data_type(column: usize) -> DataType {
    match column {
        WINDOW => DataType::Timestamp(TimeUnit::Microsecond, None),
        BIGINT => DataType::Int64,
        TEXT => DataType::Utf8,
        INTEGER => DataType::Int32,
        DECIMAL => DataType::Decimal128(10, 2),
        FLOAT => DataType::Float64,
        _ => DataType::Boolean,
    }
}

/// A call with the type that the planner gives it.
pub(super) fn call(function: AggregateFunction, argument: Option<usize>) -> AggregateCall {
    let result_type = match (&function, argument.map(data_type)) {
        (AggregateFunction::Count, _) | (_, None) => DataType::Int64,
        (AggregateFunction::Min | AggregateFunction::Max, Some(own)) => own,
        (_, Some(DataType::Float64)) => DataType::Float64,
        (AggregateFunction::Avg, _) => DataType::Decimal128(38, 16),
        (_, Some(DataType::Int32)) => DataType::Int64,
        (_, Some(DataType::Decimal128(_, scale))) => DataType::Decimal128(38, scale),
        _ => DataType::Decimal128(38, 0),
    };
    AggregateCall {
        function,
        argument,
        filter: None,
        distinct: false,
        result_type,
    }
}

/// A delta of rows of the model.
pub(super) fn delta(rows: &[(Row, i64)], append_only: bool) -> Delta {
    let number = |column: usize| {
        rows.iter().map(move |(row, _)| match &row[column] {
            Some(Value::Number(number)) => Some(*number),
            _ => None,
        })
    };
    let int64 = |column: usize| number(column).map(|own| own.map(|own| i64::try_from(own).unwrap()));
    let columns: Vec<ArrayRef> = vec![
        Arc::new(int64(WINDOW).collect::<TimestampMicrosecondArray>()),
        Arc::new(int64(BIGINT).collect::<Int64Array>()),
        Arc::new(StringArray::from_iter(rows.iter().map(|(row, _)| {
            match &row[TEXT] {
                Some(Value::Text(text)) => Some(text.clone()),
                _ => None,
            }
        }))),
        Arc::new(
            number(INTEGER)
                .map(|own| own.map(|own| i32::try_from(own).unwrap()))
                .collect::<Int32Array>(),
        ),
        Arc::new(
            number(DECIMAL)
                .collect::<Decimal128Array>()
                .with_precision_and_scale(10, 2)
                .unwrap(),
        ),
        Arc::new(Float64Array::from_iter(rows.iter().map(|(row, _)| {
            match &row[FLOAT] {
                Some(Value::Float(float)) => Some(float.as_f64()),
                _ => None,
            }
        }))),
        Arc::new(BooleanArray::from_iter(
            number(FLAG).map(|own| own.map(|own| own == 1)),
        )),
    ];
    let batch = RecordBatch::try_new(schema(), columns).unwrap();
    if append_only {
        return Delta::inserts(batch);
    }
    Delta::weighted(
        batch,
        rows.iter().map(|(_, weight)| *weight).collect::<Vec<_>>().into(),
    )
}

/// The rows of a delta as the model writes them.
fn rows_of(delta: &Delta) -> Vec<(String, i64)> {
    let row_text = |row: usize| {
        let columns = delta.batch.columns().iter();
        columns
            .map(|column| cell(column, row))
            .collect::<Vec<_>>()
            .join(" | ")
    };
    (0..delta.num_rows())
        .map(|row| (row_text(row), delta.weight(row)))
        .collect()
}

fn cell(column: &ArrayRef, row: usize) -> String {
    if column.is_null(row) {
        return "NULL".to_owned();
    }
    match column.data_type() {
        DataType::Int64 => column.as_primitive::<Int64Type>().value(row).to_string(),
        DataType::Int32 => column.as_primitive::<Int32Type>().value(row).to_string(),
        DataType::Timestamp(..) => column
            .as_primitive::<TimestampMicrosecondType>()
            .value(row)
            .to_string(),
        DataType::Decimal128(..) => column.as_primitive::<Decimal128Type>().value_as_string(row),
        DataType::Float64 => format!("{:?}", column.as_primitive::<Float64Type>().value(row)),
        DataType::Utf8 => column.as_string::<i32>().value(row).to_owned(),
        DataType::Boolean => column.as_boolean().value(row).to_string(),
        other => panic!("no test has a column of type {other}"),
    }
}
