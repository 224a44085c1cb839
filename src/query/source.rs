//! [`SourceProvider`]: a source as a table of DataFusion, from where it starts up to where it ends when the query runs.
//!
//! What a filter demands of the record's offset, partition and timestamp decides where reading starts and ends.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use arrow::datatypes::SchemaRef;
use datafusion::catalog::{Session, TableProvider};
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::{Expr, TableProviderFilterPushDown, TableType};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::stream::RecordBatchReceiverStream;
use datafusion::physical_plan::streaming::{PartitionStream, StreamingTableExec};
use highwater_connectors::options::OptionMap;
use highwater_connectors::source::{PartitionId, Positions};

use super::access::Conditions;
use super::in_schema;
use super::view::READS;
use crate::engine::bounded::BoundedRead;
use crate::engine::error::EngineError;

/// How long the outside world may take to say where partitions end, or where a time stands.
const LOOK_TIMEOUT: Duration = Duration::from_secs(10);

/// Options by which a connector says where the records of a time begin.
const MODE: &str = "scan.startup.mode";
const MILLIS: &str = "scan.startup.timestamp.millis";

/// Batches that wait between the thread that reads and the query.
const QUEUED_BATCHES: usize = 2;

/// Makes a read of some columns, from the source's start, with no ends yet.
pub(crate) type MakeRead = dyn Fn(&[usize]) -> std::result::Result<BoundedRead, EngineError> + Send + Sync;

/// A source as a table.
pub(crate) struct SourceProvider {
    name: String,
    schema: SchemaRef,
    places: RecordColumns,
    make: Arc<MakeRead>,
}

/// The columns of a source that tell where a record stands, as far as it has them.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct RecordColumns {
    pub(crate) partition: Option<usize>,
    pub(crate) offset: Option<usize>,
    pub(crate) timestamp: Option<usize>,
}

/// Which records are read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Records {
    /// All for `None`.
    partitions: Option<Vec<i64>>,
    /// The first offset, and the last one.
    offsets: (Option<i64>, Option<i64>),
    /// None has an earlier time (ms since the epoch).
    from_ms: Option<i64>,
}

struct SourceScanPartition {
    name: String,
    schema: SchemaRef,
    columns: Vec<usize>,
    records: Records,
    make: Arc<MakeRead>,
}

impl SourceProvider {
    /// A source of this name and these columns.
    pub(crate) fn new(name: &str, schema: SchemaRef, places: RecordColumns, make: Arc<MakeRead>) -> Self {
        Self {
            name: name.to_owned(),
            schema,
            places,
            make,
        }
    }

    fn plan(
        &self,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let columns = match projection {
            Some(columns) => columns.clone(),
            None => (0..self.schema.fields().len()).collect(),
        };
        let schema = Arc::new(self.schema.project(&columns)?);
        let partition = SourceScanPartition {
            name: self.name.clone(),
            schema: Arc::clone(&schema),
            columns,
            records: Records::of(&Conditions::of(filters, &self.schema), self.places),
            make: Arc::clone(&self.make),
        };
        let scan = StreamingTableExec::try_new(schema, vec![Arc::new(partition)], None, [], false, limit)?;
        Ok(Arc::new(scan))
    }
}

impl std::fmt::Debug for SourceProvider {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SourceProvider")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

impl Records {
    fn of(conditions: &Conditions, places: RecordColumns) -> Self {
        let range = |place: Option<usize>| place.map_or((None, None), |column| conditions.range_of(column));
        Self {
            partitions: places.partition.and_then(|column| conditions.values_of(column)),
            offsets: range(places.offset),
            from_ms: range(places.timestamp).0.map(|from_us| from_us.div_euclid(1000)),
        }
    }

    /// Sets where a read starts and ends, after a look at the outside world.
    fn settle(&self, read: &mut BoundedRead) -> std::result::Result<(), EngineError> {
        let (connector, options) = (Arc::clone(&read.binding.connector), read.binding.options.clone());
        let mut end = connector.end_offsets(&options, LOOK_TIMEOUT)?;
        if end.is_empty() {
            end = read.ends()?;
        }
        if end.is_empty() {
            let message = format!(
                "reading source \"{}\" by SELECT is not supported",
                read.binding.name
            );
            return Err(EngineError::new("0A000", message)
                .with_detail("Its connector does not say where it ends.")
                .with_hint("Create a materialized view over it and read that."));
        }
        let (first, last) = self.offsets;
        let of_partitions = |partition: &PartitionId| {
            let all = self.partitions.as_ref();
            all.is_none_or(|partitions| partitions.contains(&i64::from(partition.0)))
        };
        end.retain(|partition, _| of_partitions(partition));
        if let Some(last) = last {
            end.values_mut()
                .for_each(|end| *end = (*end).min(last.saturating_add(1)));
        }
        let takes = |name: &str| connector.options().iter().any(|option| option.name == name);
        let mut begin = Positions::new();
        if first.is_some() && takes(MODE) {
            // Records before the beginning are gone, and nobody asks for them.
            begin = connector
                .probe(&starting(&options, "earliest", None), LOOK_TIMEOUT)?
                .start;
        }
        let mut later = |partition: PartitionId, from: i64| {
            // A partition that starts at its beginning has no start yet.
            let start = read.start.entry(partition).or_insert(from);
            *start = (*start).max(from);
        };
        if let Some(first) = first {
            for partition in end.keys() {
                let begin = begin.get(partition).copied().unwrap_or(0);
                later(*partition, first.max(begin));
            }
        }
        if let Some(from_ms) = self.from_ms.filter(|from_ms| takes(MILLIS) && *from_ms >= 0) {
            let at_time = starting(&options, "timestamp", Some(from_ms));
            for (partition, from) in connector.probe(&at_time, LOOK_TIMEOUT)?.start {
                later(partition, from);
            }
        }
        // Where nothing is left to read nothing is fetched.
        end.retain(|partition, end| read.start.get(partition).is_none_or(|start| *start < *end));
        read.start.retain(|partition, _| end.contains_key(partition));
        read.end = end;
        Ok(())
    }
}

/// The options of a source that starts elsewhere.
fn starting(options: &OptionMap, mode: &str, millis: Option<i64>) -> OptionMap {
    let others = options
        .iter()
        .filter(|(name, _)| !name.starts_with("scan.startup."));
    let others = others.map(|(name, text)| (name.clone(), text.clone()));
    let mode = (MODE.to_owned(), mode.to_owned());
    let millis = millis.map(|millis| (MILLIS.to_owned(), millis.to_string()));
    others.chain([mode]).chain(millis).collect()
}

impl TableProvider for SourceProvider {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    /// The filters stay in the plan: they only say where reading starts and ends.
    fn supports_filters_pushdown(&self, filters: &[&Expr]) -> Result<Vec<TableProviderFilterPushDown>> {
        let support = |filter: &&Expr| {
            let conditions = Conditions::of(std::slice::from_ref(*filter), &self.schema);
            match Records::of(&conditions, self.places) == Records::default() {
                true => TableProviderFilterPushDown::Unsupported,
                false => TableProviderFilterPushDown::Inexact,
            }
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

impl std::fmt::Debug for SourceScanPartition {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{READS}{}: records up to its ends now", self.name)?;
        let records = &self.records;
        if let Some(partitions) = &records.partitions {
            let partitions: Vec<String> = partitions.iter().map(i64::to_string).collect();
            write!(f, ", of partitions {}", partitions.join(", "))?;
        }
        match records.offsets {
            (None, None) => {}
            (Some(first), None) => write!(f, ", from offset {first}")?,
            (None, Some(last)) => write!(f, ", through offset {last}")?,
            (Some(first), Some(last)) => write!(f, ", from offset {first} through {last}")?,
        }
        match records.from_ms {
            Some(_) => f.write_str(", from a timestamp"),
            None => Ok(()),
        }
    }
}

impl PartitionStream for SourceScanPartition {
    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn execute(&self, _context: Arc<TaskContext>) -> SendableRecordBatchStream {
        let (make, columns, records) = (Arc::clone(&self.make), self.columns.clone(), self.records.clone());
        let mut stream = RecordBatchReceiverStream::builder(Arc::clone(&self.schema), QUEUED_BATCHES);
        let (sender, schema) = (stream.tx(), Arc::clone(&self.schema));
        // Clients block, so they have a thread of their own; it ends when nobody takes its batches.
        stream.spawn_blocking(move || {
            let external = |error| DataFusionError::External(Box::new(error));
            let mut read = make(&columns).map_err(external)?;
            records.settle(&mut read).map_err(external)?;
            let mut give = |rows: Option<arrow::array::RecordBatch>| match rows {
                Some(rows) if rows.num_rows() > 0 => {
                    let rows = in_schema(&schema, &rows).map_err(DataFusionError::from);
                    sender.blocking_send(rows).is_ok()
                }
                _ => !sender.is_closed(),
            };
            read.run(&mut give).map_err(external)
        });
        stream.build()
    }
}
