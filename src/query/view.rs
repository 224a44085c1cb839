//! [`ViewProvider`]: a materialized view as a table of DataFusion.

use std::pin::Pin;
use std::sync::Arc;

use arrow::array::ArrayRef;
use arrow::datatypes::SchemaRef;
use datafusion::catalog::{Session, TableProvider};
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::{BinaryExpr, Expr, Operator, TableProviderFilterPushDown, TableType};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::stream::RecordBatchReceiverStream;
use datafusion::physical_plan::streaming::{PartitionStream, StreamingTableExec};
use datafusion::scalar::ScalarValue;
use parking_lot::Mutex;

use crate::engine::view::ViewReader;

/// Batches that wait between the thread that reads and the query.
const QUEUED_BATCHES: usize = 2;

/// A view as of one step. Only wanted columns are decoded; a filter that gives the whole key reads one row.
#[derive(Debug)]
pub(crate) struct ViewProvider {
    reader: Mutex<ViewReader>,
}

/// What a scan reads.
#[derive(Debug)]
struct ViewScanPartition {
    reader: ViewReader,
    /// The columns.
    projection: Option<Vec<usize>>,
    schema: SchemaRef,
    /// The key of the one row, if one is enough.
    key: Option<Vec<ArrayRef>>,
}

impl ViewProvider {
    /// For what `reader` reads.
    pub(crate) fn new(reader: ViewReader) -> Self {
        Self {
            reader: Mutex::new(reader),
        }
    }

    /// Reads as of another step from now on.
    pub(crate) fn renew(&self, reader: ViewReader) {
        *self.reader.lock() = reader;
    }

    fn reader(&self) -> ViewReader {
        self.reader.lock().clone()
    }

    /// The key that `filters` give, if they give a value for each of its columns.
    pub(super) fn key(&self, filters: &[Expr]) -> Result<Option<Vec<ArrayRef>>> {
        let reader = self.reader();
        let Some(columns) = reader.key() else {
            return Ok(None);
        };
        let values = columns.iter().map(|column| {
            let value = filters
                .iter()
                .find_map(|filter| self.key_value(filter).filter(|(c, _)| c == column));
            value.map(|(_, value)| value.to_array())
        });
        values.collect::<Option<Result<Vec<_>>>>().transpose()
    }

    /// The key column and the value that a filter demands of it.
    fn key_value<'f>(&self, filter: &'f Expr) -> Option<(usize, &'f ScalarValue)> {
        let Expr::BinaryExpr(BinaryExpr {
            left,
            op: Operator::Eq,
            right,
        }) = filter
        else {
            return None;
        };
        let (column, value) = match (&**left, &**right) {
            (Expr::Column(column), Expr::Literal(value, _))
            | (Expr::Literal(value, _), Expr::Column(column)) => (column, value),
            _ => return None,
        };
        let reader = self.reader();
        let (index, field) = reader.schema().column_with_name(&column.name)?;
        let is_key = reader.key()?.contains(&index);
        (is_key && !value.is_null() && value.data_type() == *field.data_type()).then_some((index, value))
    }

    fn plan(
        &self,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let schema = match projection {
            Some(columns) => Arc::new(self.reader().schema().project(columns)?),
            None => Arc::clone(self.reader().schema()),
        };
        let partition = ViewScanPartition {
            reader: self.reader(),
            projection: projection.cloned(),
            schema: Arc::clone(&schema),
            key: self.key(filters)?,
        };
        let scan = StreamingTableExec::try_new(schema, vec![Arc::new(partition)], None, [], false, limit)?;
        Ok(Arc::new(scan))
    }
}

impl TableProvider for ViewProvider {
    fn schema(&self) -> SchemaRef {
        Arc::clone(self.reader().schema())
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    /// The filters stay in the plan: they only narrow what is read.
    fn supports_filters_pushdown(&self, filters: &[&Expr]) -> Result<Vec<TableProviderFilterPushDown>> {
        let support = |filter: &&Expr| match self.key_value(filter) {
            Some(_) => TableProviderFilterPushDown::Inexact,
            None => TableProviderFilterPushDown::Unsupported,
        };
        Ok(filters.iter().map(support).collect())
    }

    // The signature is what an async function of this trait stands for.
    fn scan<'a, 's, 'p, 'f, 'r>(
        &'a self,
        _state: &'s dyn Session,
        projection: Option<&'p Vec<usize>>,
        filters: &'f [Expr],
        limit: Option<usize>,
    ) -> Pin<Box<dyn Future<Output = Result<Arc<dyn ExecutionPlan>>> + Send + 'r>>
    where
        'a: 'r,
        's: 'r,
        'p: 'r,
        'f: 'r,
        Self: 'r,
    {
        Box::pin(std::future::ready(self.plan(projection, filters, limit)))
    }
}

impl PartitionStream for ViewScanPartition {
    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn execute(&self, context: Arc<TaskContext>) -> SendableRecordBatchStream {
        let (reader, projection, key) = (self.reader.clone(), self.projection.clone(), self.key.clone());
        let batch_rows = context.session_config().batch_size();
        let mut stream = RecordBatchReceiverStream::builder(Arc::clone(&self.schema), QUEUED_BATCHES);
        let sender = stream.tx();
        // Reads of the store block, so they have a thread of their own; it ends when nobody takes its batches.
        stream.spawn_blocking(move || {
            let external = |error| DataFusionError::External(Box::new(error));
            if let Some(key) = key {
                if let Some(row) = reader.get(&key).map_err(external)? {
                    let row = match &projection {
                        Some(columns) => row.project(columns)?,
                        None => row,
                    };
                    // Who does not listen any more needs no row.
                    let _ = sender.blocking_send(Ok(row));
                }
                return Ok(());
            }
            for batch in reader.scan(projection.as_deref(), batch_rows).map_err(external)? {
                if sender.blocking_send(Ok(batch.map_err(external)?)).is_err() {
                    break;
                }
            }
            Ok(())
        });
        stream.build()
    }
}
