//! Views against a model of them, and what single calls promise.

mod figures;
mod model;
mod scenarios;
mod start;

use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, Int64Array, StringArray};
use arrow::buffer::ScalarBuffer;
use arrow::datatypes::{DataType, Field, Int64Type, Schema, SchemaRef};
use arrow::record_batch::RecordBatch;
use highwater_storage::{CheckpointWriter, Durability, Epoch, ObjectId, Store};

use super::{FrozenView, ViewLayout, ViewReader, ViewStore};
use crate::engine::delta::Delta;

const VIEW: ObjectId = ObjectId(7);

/// A row of the views here: `k BIGINT, v VARCHAR`.
type Row = (Option<i64>, String);

fn schema() -> SchemaRef {
    Arc::new(Schema::new(vec![
        Field::new("k", DataType::Int64, true),
        Field::new("v", DataType::Utf8, false),
    ]))
}

fn open(store: &Arc<dyn Store>, layout: ViewLayout) -> ViewStore {
    ViewStore::open(Arc::clone(store), VIEW, schema(), layout).unwrap()
}

fn keyed() -> ViewLayout {
    ViewLayout::Keyed { columns: vec![0] }
}

fn delta(rows: &[(Row, i64)]) -> Delta {
    let k: Int64Array = rows.iter().map(|((k, _), _)| *k).collect();
    let v: StringArray = rows.iter().map(|((_, v), _)| Some(v)).collect();
    let columns: Vec<ArrayRef> = vec![Arc::new(k), Arc::new(v)];
    let batch = RecordBatch::try_new(schema(), columns).unwrap();
    Delta::weighted(
        batch,
        ScalarBuffer::from(rows.iter().map(|(_, weight)| *weight).collect::<Vec<_>>()),
    )
}

fn row(k: i64, v: &str) -> Row {
    (Some(k), v.to_owned())
}

fn step(view: &mut ViewStore, deltas: &[Delta]) {
    let change = view.base().prepare(deltas).unwrap();
    view.apply(change);
}

fn commit(store: &dyn Store, frozen: FrozenView) {
    let mut writer = CheckpointWriter::new(Epoch(1));
    frozen.write(&mut writer).unwrap();
    store.commit(writer.finish(), Durability::Sync).unwrap();
}

fn rows_of(batch: &RecordBatch) -> Vec<Row> {
    let (k, v) = (
        batch.column(0).as_primitive::<Int64Type>(),
        batch.column(1).as_string::<i32>(),
    );
    k.iter().zip(v).map(|(k, v)| (k, v.unwrap().to_owned())).collect()
}

fn contents(reader: &ViewReader, batch_rows: usize) -> Vec<Row> {
    let batches = reader.scan(None, batch_rows).unwrap().map(Result::unwrap);
    batches
        .inspect(|batch| assert!(batch.num_rows() <= batch_rows))
        .flat_map(|batch| rows_of(&batch))
        .collect()
}
