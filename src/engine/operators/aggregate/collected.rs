//! Aggregates without a kernel: the rows of each group are kept in their order, and the function is computed from them.
//!
//! ```text
//! row of the argument columns ─▶ place in the order | arguments | length of the place: u32     (bytes, which sort as the rows do)
//! slot → { bytes → count }    ─▶ arguments in order ─▶ DataFusion's accumulator ─▶ result
//! ```
//!
//! Rows of the same place are taken by their arguments' bytes, so that the result does not depend on how the input came.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, BinaryArray, BinaryBuilder, new_empty_array};
use arrow::datatypes::DataType;
use arrow::record_batch::{RecordBatch, RecordBatchOptions};
use datafusion::common::ScalarValue;
use highwater_sql::stream_plan::{Collected, Takes};
use highwater_storage::KeyOrder;

use super::accumulator::{Accumulator, Argument, ArgumentValue, FrozenAccumulator, Rows};
use super::distinct::FrozenChanges;
use crate::engine::codec::{KeyCodec, RowCodec};
use crate::engine::error::EngineError;
use crate::engine::exact::exact_cast;
use crate::engine::operators::state::multiset::{Multiset, Ordered};
use crate::engine::operators::state::order;
use crate::engine::operators::state::slots::{Kept, SlotSet};
use crate::engine::operators::state::values::plain_floats;

type Value = Arc<[u8]>;

/// The rows of each slot, and the function over them.
pub(super) struct CollectedRows {
    call: Arc<Collected>,
    distinct: bool,
    result: DataType,
    arguments: RowCodec,
    values: Multiset<Value, Ordered<Value>>,
    saved: Vec<Result<ScalarValue, EngineError>>,
}

impl CollectedRows {
    /// No slots.
    ///
    /// # Errors
    /// Arguments of types that cannot be stored (`0A000`).
    pub(super) fn try_new(
        call: &Arc<Collected>,
        distinct: bool,
        result: DataType,
        types: &[DataType],
    ) -> Result<Self, EngineError> {
        Ok(Self {
            call: Arc::clone(call),
            distinct,
            result,
            arguments: RowCodec::new(types)?,
            values: Multiset::new(),
            saved: Vec::new(),
        })
    }

    /// The result over the rows of one slot.
    fn result(&self, slot: u32) -> Result<ScalarValue, EngineError> {
        let rows = self.values.get(slot);
        let mut decoder = self.arguments.decoder(|_| true, rows.len());
        let mut count = 0;
        let mut take = |value: &Value, times: i64| -> Result<(), EngineError> {
            for _ in 0..times {
                decoder.append(order::row_of(value)?)?;
                count += 1;
            }
            Ok(())
        };
        match self.call.takes {
            Takes::All => {
                for (value, times) in rows {
                    take(value, if self.distinct { 1 } else { *times })?;
                }
            }
            Takes::First => rows
                .first_key_value()
                .map_or(Ok(()), |(value, _)| take(value, 1))?,
            Takes::Last => rows
                .last_key_value()
                .map_or(Ok(()), |(value, _)| take(value, 1))?,
        }
        let columns: Vec<ArrayRef> = decoder.finish()?.into_iter().flatten().collect();
        self.compute(columns, count)
    }

    fn compute(&self, columns: Vec<ArrayRef>, rows: usize) -> Result<ScalarValue, EngineError> {
        let function = &self.call.function;
        let mut accumulator = function.create_accumulator()?;
        if rows > 0 {
            let schema = Arc::new(arrow::datatypes::Schema::new(function_fields(&columns)));
            let options = RecordBatchOptions::new().with_row_count(Some(rows));
            let batch = RecordBatch::try_new_with_options(schema, columns, &options)?;
            let arguments = function
                .expressions()
                .iter()
                .map(|argument| argument.evaluate(&batch)?.into_array(rows))
                .collect::<Result<Vec<_>, _>>()?;
            accumulator.update_batch(&arguments)?;
        }
        Ok(accumulator.evaluate()?)
    }

    fn column(&self, values: Vec<ScalarValue>) -> Result<ArrayRef, EngineError> {
        if values.is_empty() {
            return Ok(new_empty_array(&self.result));
        }
        let column = ScalarValue::iter_to_array(values)?;
        match column.data_type() == &self.result {
            true => Ok(column),
            false => Ok(exact_cast(&column, &self.result)?),
        }
    }
}

fn function_fields(columns: &[ArrayRef]) -> Vec<arrow::datatypes::Field> {
    let field = |(at, column): (usize, &ArrayRef)| {
        arrow::datatypes::Field::new(format!("a{at}"), column.data_type().clone(), true)
    };
    columns.iter().enumerate().map(field).collect()
}

/// The rows of a batch as values, one per row.
///
/// # Errors
/// Columns of types that cannot be stored.
pub(super) fn values_of(call: &Collected, batch: &RecordBatch) -> Result<BinaryArray, EngineError> {
    let columns: Vec<ArrayRef> = call
        .arguments
        .iter()
        .map(|column| plain_floats(batch.column(*column)))
        .collect();
    let places: Vec<ArrayRef> = call
        .order
        .iter()
        .map(|key| Arc::clone(batch.column(key.column)))
        .collect();
    let (argument_codec, place_codec) = (RowCodec::new(&types(&columns))?, KeyCodec::new(&types(&places))?);
    let (arguments, place) = (argument_codec.encoder(&columns)?, place_codec.encoder(&places)?);
    let orders: Vec<KeyOrder> = call.order.iter().map(order::key_order).collect();
    let mut values = BinaryBuilder::with_capacity(batch.num_rows(), batch.num_rows() * 16);
    let mut bytes = Vec::new();
    for row in 0..batch.num_rows() {
        bytes.clear();
        order::append_ordered(&place, &arguments, &orders, row, &mut bytes)?;
        values.append_value(&bytes);
    }
    Ok(values.finish())
}

fn types(columns: &[ArrayRef]) -> Vec<DataType> {
    columns.iter().map(|column| column.data_type().clone()).collect()
}

impl Accumulator for CollectedRows {
    fn grow(&mut self, slots: usize) {
        self.values.grow(slots);
    }

    fn save(&mut self, slots: &[u32]) {
        let saved: Vec<_> = slots.iter().map(|slot| self.result(*slot)).collect();
        self.saved.extend(saved);
    }

    fn update(&mut self, rows: Rows<'_>, argument: &Argument) -> Result<(), EngineError> {
        let column = Value::column(argument)
            .ok_or_else(|| EngineError::internal("the rows of an aggregate are not collected"))?;
        for (at, (row, slot)) in rows.rows.iter().zip(rows.slots).enumerate() {
            let weight = rows.weights.map_or(1, |weights| weights[at]);
            self.values.add(*slot, Value::raw(column, *row), weight);
        }
        Ok(())
    }

    fn results(&self, slots: &[u32]) -> Result<ArrayRef, EngineError> {
        let values: Result<Vec<_>, _> = slots.iter().map(|slot| self.result(*slot)).collect();
        self.column(values?)
    }

    fn saved_results(&self, positions: &[u32]) -> Result<ArrayRef, EngineError> {
        let values: Result<Vec<_>, _> = positions
            .iter()
            .map(|at| self.saved[*at as usize].clone())
            .collect();
        self.column(values?)
    }

    fn forget_saved(&mut self) {
        self.saved.clear();
    }

    fn clear(&mut self, slots: &[u32]) {
        for slot in slots {
            self.values.clear(*slot);
        }
    }

    fn freeze(&mut self, _slots: &SlotSet) -> Box<dyn FrozenAccumulator> {
        Box::new(FrozenChanges::new(None, self.values.take_changes()))
    }

    fn restore(&mut self, _slot: u32, _bytes: &mut &[u8]) -> Result<(), EngineError> {
        Ok(())
    }

    fn restore_entry(&mut self, slot: u32, value: &[u8], count: i64) -> Result<(), EngineError> {
        self.values.restore(slot, Value::from(value), count);
        Ok(())
    }

    fn keep(&mut self, kept: &Kept) {
        self.values.keep(kept);
    }

    fn has_entries(&self) -> bool {
        true
    }

    fn entries(&self) -> usize {
        self.values.len()
    }

    fn bytes(&self) -> usize {
        self.values.bytes() + self.saved.capacity() * size_of::<ScalarValue>()
    }
}
