//! Rows that do not come one to one from a relation: VALUES, a SELECT without FROM, and the elements of lists.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef};
use arrow::compute::concat;
use arrow::datatypes::{Field, Schema};
use arrow::record_batch::{RecordBatch, RecordBatchOptions};
use datafusion::common::DFSchema;
use datafusion::logical_expr::{EmptyRelation, Unnest, Values};

use super::{Facts, Lowering, Relation, compile, refused, types_of};
use crate::plan::translate::translate;
use crate::stream_plan::{PlanNode, StreamOp, UnnestColumn};
use crate::{SqlError, SqlState};

impl Lowering {
    /// VALUES: each expression is a constant.
    pub(super) fn values(&mut self, values: &Values) -> Result<Relation, SqlError> {
        let nothing = one_row()?;
        let schema = DFSchema::empty();
        let mut columns: Vec<Vec<ArrayRef>> = vec![Vec::new(); values.schema.fields().len()];
        for row in &values.values {
            for (column, expr) in columns.iter_mut().zip(row) {
                let value = compile(expr, &schema, &[], &Schema::empty())?;
                let value = value.evaluate(&nothing).and_then(|value| value.into_array(1));
                column.push(value.map_err(translate)?);
            }
        }
        let fields: Vec<Field> = values
            .schema
            .fields()
            .iter()
            .map(|f| f.as_ref().clone())
            .collect();
        let mut arrays = Vec::with_capacity(columns.len());
        for column in &columns {
            let parts: Vec<&dyn Array> = column.iter().map(AsRef::as_ref).collect();
            arrays.push(concat(&parts).map_err(|error| translate(error.into()))?);
        }
        let batch = RecordBatch::try_new(Arc::new(Schema::new(fields)), arrays);
        Ok(self.constant(batch.map_err(|error| translate(error.into()))?))
    }

    /// A SELECT without FROM, or a relation that is known to be empty.
    pub(super) fn empty(&mut self, empty: &EmptyRelation) -> Result<Relation, SqlError> {
        let batch = match empty.produce_one_row {
            true => one_row()?,
            false => RecordBatch::new_empty(Arc::clone(empty.schema.inner())),
        };
        Ok(self.constant(batch))
    }

    fn constant(&mut self, batch: RecordBatch) -> Relation {
        let columns = (0..batch.num_columns()).collect();
        let schema = batch.schema();
        let node = PlanNode {
            inputs: Vec::new(),
            append_only: true,
            key: None,
            event_time: None,
            fingerprint: format!("values {:?}: {}", batch.columns(), types_of(&schema)),
            schema,
            op: StreamOp::Values(batch),
        };
        Relation {
            node: self.push(node, Facts::default()),
            columns,
        }
    }

    /// The elements of lists, as PostgreSQL's unnest() in SELECT gives them.
    pub(super) fn unnest(&mut self, unnest: &Unnest, input: &Relation) -> Result<Relation, SqlError> {
        if !unnest.struct_type_columns.is_empty() {
            return Err(refused("unnest() of a struct"));
        }
        let node = &self.nodes[input.node];
        let mut columns = Vec::with_capacity(unnest.dependency_indices.len());
        let mut fields = Vec::with_capacity(unnest.dependency_indices.len());
        for (place, from) in unnest.dependency_indices.iter().enumerate() {
            let field = unnest.schema.field(place);
            let list = unnest
                .list_type_columns
                .iter()
                .find(|(column, list)| column == from && list.output_column.name == *field.name());
            if list.is_some_and(|(_, list)| list.depth != 1) {
                return Err(refused("unnest() of lists in lists"));
            }
            let column = *input.columns.get(*from).ok_or_else(lost)?;
            let nullable = list.is_some() || node.schema.field(column).is_nullable();
            fields.push(Field::new(field.name(), field.data_type().clone(), nullable));
            columns.push(UnnestColumn {
                column,
                unnested: list.is_some(),
            });
        }
        let moved = |column: usize| {
            let keeps = |other: &UnnestColumn| !other.unnested && other.column == column;
            columns.iter().position(keeps)
        };
        let closing = self.facts[input.node].closing.iter();
        let closing = closing
            .filter_map(|(column, add)| Some((moved(*column)?, *add)))
            .collect();
        let schema = Arc::new(Schema::new(fields));
        let next = PlanNode {
            inputs: vec![input.node],
            append_only: node.append_only,
            key: None,
            event_time: node.event_time.and_then(moved),
            fingerprint: format!("unnest {columns:?}: {}", types_of(&schema)),
            op: StreamOp::Unnest(columns),
            schema,
        };
        let columns = (0..next.schema.fields().len()).collect();
        Ok(Relation {
            node: self.push(next, Facts { closing }),
            columns,
        })
    }
}

/// A batch of one row without columns.
fn one_row() -> Result<RecordBatch, SqlError> {
    let options = RecordBatchOptions::new().with_row_count(Some(1));
    RecordBatch::try_new_with_options(Arc::new(Schema::empty()), Vec::new(), &options)
        .map_err(|error| translate(error.into()))
}

fn lost() -> SqlError {
    SqlError::new(SqlState::InternalError, "a column of unnest() was lost")
}
