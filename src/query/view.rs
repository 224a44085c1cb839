//! [`ViewProvider`]: a materialized view as a table of DataFusion.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use arrow::compute::SortOptions;
use arrow::datatypes::SchemaRef;
use arrow::record_batch::RecordBatch;
use datafusion::catalog::{Session, TableProvider};
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::{Expr, TableProviderFilterPushDown, TableType};
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_expr::{LexOrdering, PhysicalSortExpr};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::stream::RecordBatchReceiverStream;
use datafusion::physical_plan::streaming::{PartitionStream, StreamingTableExec};
use highwater_storage::{Direction, KeyOrder, Nulls};
use parking_lot::Mutex;

use super::access::{Access, Choice, Conditions, is_plain};
use crate::engine::view::{KeyRange, ViewReader, Way};

/// Batches that wait between the thread that reads and the query.
const QUEUED_BATCHES: usize = 2;

/// Rows of the first batch: where few are wanted, few are read. The next ones have more and more.
const FIRST_ROWS: usize = 64;

/// A view as of one step. Only wanted columns are decoded; of what a filter demands of the key only the rows that may have it.
#[derive(Debug)]
pub(crate) struct ViewProvider {
    name: String,
    readers: Mutex<Readers>,
    /// The order in which its first rows are wanted, if one is.
    wanted: Vec<(usize, KeyOrder)>,
    /// Whether it tells in which order its rows come.
    tells_order: bool,
}

/// The rows of a view in their own order, and in those of its indexes, all as of one step.
#[derive(Debug, Clone)]
pub(crate) struct Readers {
    /// In their own order.
    pub(crate) own: ViewReader,
    /// The names of indexes, and their rows.
    pub(crate) indexes: Vec<(String, ViewReader)>,
}

impl Readers {
    /// The reader at a place as [`Conditions::choose`] gives it, and the name of the index, if it is one.
    pub(crate) fn at(&self, place: usize) -> (&ViewReader, Option<&str>) {
        match place.checked_sub(1).and_then(|at| self.indexes.get(at)) {
            Some((name, reader)) => (reader, Some(name)),
            None => (&self.own, None),
        }
    }

    /// All of them, the own one first.
    pub(crate) fn all(&self) -> Vec<&ViewReader> {
        let indexes = self.indexes.iter().map(|(_, reader)| reader);
        std::iter::once(&self.own).chain(indexes).collect()
    }
}

/// What the debug text of a scan starts with; what follows is for people.
pub(super) const READS: &str = "Reads ";

/// What a scan reads.
pub(super) struct ViewScanPartition {
    name: String,
    /// The index by which it is read, if it is.
    index: Option<String>,
    reader: ViewReader,
    /// The columns.
    projection: Option<Vec<usize>>,
    schema: SchemaRef,
    /// Which rows.
    access: Access,
    /// How many columns of the key are given.
    given: usize,
    /// Whether each of them is given by values, and none by bounds.
    is_equality: bool,
    /// What was read so far.
    figures: Arc<ReadFigures>,
    /// Which way the keys are read.
    way: Way,
}

/// What a scan has read, for EXPLAIN ANALYZE.
#[derive(Default)]
struct ReadFigures {
    /// Whether it has begun.
    has_begun: AtomicBool,
    rows: AtomicU64,
    /// Time that reading took (ns), without that of those who wait for the rows.
    busy_ns: AtomicU64,
}

impl ReadFigures {
    fn add(&self, rows: usize, took: Duration) {
        self.rows.fetch_add(rows as u64, Ordering::Relaxed);
        let took = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        self.busy_ns.fetch_add(took, Ordering::Relaxed);
    }
}

impl ViewProvider {
    /// For what `readers` read of the view of this name.
    pub(crate) fn new(name: &str, readers: Readers) -> Self {
        Self {
            name: name.to_owned(),
            readers: Mutex::new(readers),
            wanted: Vec::new(),
            tells_order: true,
        }
    }

    /// The name of the table or view.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// The same rows, of which the first ones in this order are wanted.
    pub(super) fn ordered(&self, wanted: Vec<(usize, KeyOrder)>) -> Self {
        Self {
            name: self.name.clone(),
            readers: Mutex::new(self.readers.lock().clone()),
            wanted,
            tells_order: self.tells_order,
        }
    }

    /// The same rows, in an order that nobody is told.
    pub(super) fn unordered(&self) -> Self {
        Self {
            tells_order: false,
            ..self.ordered(Vec::new())
        }
    }

    /// Which of `readers` gives the rows of a choice in the order that is wanted, and which way: where all rows are read, any; or else the
    /// chosen one.
    fn in_order(&self, readers: &Readers, choice: &Choice) -> Option<(usize, Way)> {
        if self.wanted.is_empty() || matches!(choice.access, Access::Keys(_)) {
            return None;
        }
        let places = match choice.access {
            Access::Scan => 0..readers.all().len(),
            Access::Keys(_) | Access::Ranges(_) => choice.place..choice.place + 1,
        };
        let is_sorted = |place: usize, way: Way| {
            // Columns that have one value each order nothing.
            let sorted_by = readers.at(place).0.sorted_by().iter().skip(choice.single);
            let sorted_by = sorted_by.map(|(column, order)| match way {
                Way::On => (*column, *order),
                Way::Back => (*column, order.reversed()),
            });
            let sorted_by: Vec<_> = sorted_by.take(self.wanted.len()).collect();
            sorted_by == self.wanted
        };
        let ways = [Way::On, Way::Back].map(|way| places.clone().map(move |place| (place, way)));
        ways.into_iter()
            .flatten()
            .find(|(place, way)| is_sorted(*place, *way))
    }

    /// Reads as of another step from now on.
    pub(crate) fn renew(&self, readers: Readers) {
        *self.readers.lock() = readers;
    }

    fn reader(&self) -> ViewReader {
        self.readers.lock().own.clone()
    }

    fn plan(
        &self,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let readers = self.readers.lock().clone();
        let schema = match projection {
            Some(columns) => Arc::new(readers.own.schema().project(columns)?),
            None => Arc::clone(readers.own.schema()),
        };
        let choice = Conditions::of(filters, readers.own.schema()).choose(&readers.all())?;
        let (place, way) = self
            .in_order(&readers, &choice)
            .unwrap_or((choice.place, Way::On));
        let (reader, index) = readers.at(place);
        let partition = ViewScanPartition {
            name: self.name.clone(),
            projection: projection.cloned(),
            schema: Arc::clone(&schema),
            access: choice.access,
            given: choice.given,
            is_equality: choice.equal == choice.given,
            index: index.map(str::to_owned),
            reader: reader.clone(),
            figures: Arc::default(),
            way,
        };
        let ordering = partition.ordering().filter(|_| self.tells_order);
        let scan =
            StreamingTableExec::try_new(schema, vec![Arc::new(partition)], None, ordering, false, limit)?;
        Ok(Arc::new(scan))
    }
}

impl ViewScanPartition {
    /// In which order the rows come, as far as the columns are wanted.
    fn ordering(&self) -> Option<LexOrdering> {
        let reader = &self.reader;
        let sorted = reader.sorted_by().iter().map_while(|(column, order)| {
            let place = match &self.projection {
                Some(columns) => columns.iter().position(|wanted| wanted == column)?,
                None => *column,
            };
            let order = match self.way {
                Way::On => *order,
                Way::Back => order.reversed(),
            };
            let field = self.schema.field(place);
            is_plain(field.data_type()).then(|| PhysicalSortExpr {
                expr: Arc::new(Column::new(field.name(), place)),
                options: SortOptions {
                    descending: order.direction == Direction::Descending,
                    nulls_first: order.nulls == Nulls::First,
                },
            })
        });
        LexOrdering::new(sorted)
    }

    /// What it reads, for people.
    fn describe(&self) -> String {
        let names = |count: usize| {
            let columns = self.reader.sorted_by()[..count].iter();
            let names = columns.map(|(column, _)| self.reader.schema().field(*column).name().as_str());
            names.collect::<Vec<_>>().join(", ")
        };
        let by = match &self.index {
            Some(index) => format!("index {index}"),
            None => "key".to_owned(),
        };
        match &self.access {
            Access::Scan => match (&self.index, self.way) {
                (None, Way::On) => "scan".to_owned(),
                (None, Way::Back) => "scan of key, backwards".to_owned(),
                (Some(_), Way::On) => format!("scan of {by}"),
                (Some(_), Way::Back) => format!("scan of {by}, backwards"),
            },
            Access::Keys(keys) => {
                let many = match keys.len() {
                    1 => String::new(),
                    count => format!(", {count} keys"),
                };
                format!("lookup by {by} ({}){many}", names(self.given))
            }
            Access::Ranges(ranges) => {
                let many = match ranges.len() {
                    1 => String::new(),
                    count => format!(", {count} ranges"),
                };
                let how = match self.is_equality {
                    true => "lookup by",
                    false => "range of",
                };
                let way = match self.way {
                    Way::On => "",
                    Way::Back => ", backwards",
                };
                format!("{how} {by} ({}){many}{way}", names(self.given))
            }
        }
    }
}

impl std::fmt::Debug for ViewScanPartition {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{READS}{}: {}", self.name, self.describe())?;
        let figures = &self.figures;
        if figures.has_begun.load(Ordering::Relaxed) {
            let rows = figures.rows.load(Ordering::Relaxed);
            let busy_ms = figures.busy_ns.load(Ordering::Relaxed) as f64 / 1e6;
            write!(f, " (actual rows={rows} time={busy_ms:.3} ms)")?;
        }
        Ok(())
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
        let reader = self.reader();
        let support = |filter: &&Expr| {
            let conditions = Conditions::of(std::slice::from_ref(*filter), reader.schema());
            match conditions.is_empty() {
                false => TableProviderFilterPushDown::Inexact,
                true => TableProviderFilterPushDown::Unsupported,
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

impl PartitionStream for ViewScanPartition {
    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn execute(&self, context: Arc<TaskContext>) -> SendableRecordBatchStream {
        let (reader, projection, access) =
            (self.reader.clone(), self.projection.clone(), self.access.clone());
        let (batch_rows, way) = (context.session_config().batch_size(), self.way);
        let mut stream = RecordBatchReceiverStream::builder(Arc::clone(&self.schema), QUEUED_BATCHES);
        let sender = stream.tx();
        let figures = Arc::clone(&self.figures);
        figures.has_begun.store(true, Ordering::Relaxed);
        // Reads of the store block, so they have a thread of their own; it ends when nobody takes its batches.
        stream.spawn_blocking(move || {
            let mut begun = Instant::now();
            for batch in batches(&reader, projection.as_deref(), access, (batch_rows, way))? {
                let batch = batch?;
                figures.add(batch.num_rows(), begun.elapsed());
                if sender.blocking_send(Ok(batch)).is_err() {
                    break;
                }
                begun = Instant::now();
            }
            Ok(())
        });
        stream.build()
    }
}

/// The rows of an access, in batches of at most about `batch_rows`.
///
/// # Errors
/// What cannot be read.
fn batches<'r>(
    reader: &'r ViewReader,
    projection: Option<&[usize]>,
    access: Access,
    (batch_rows, way): (usize, Way),
) -> Result<Box<dyn Iterator<Item = Result<RecordBatch>> + 'r>> {
    let external = |error| DataFusionError::External(Box::new(error));
    let ranges = match access {
        Access::Keys(keys) => {
            let rows = reader.get_keys(&keys, projection).map_err(external);
            let rows = rows.map(|rows| (rows.num_rows() > 0).then_some(rows)).transpose();
            return Ok(Box::new(rows.into_iter()));
        }
        Access::Ranges(ranges) => ranges,
        Access::Scan => vec![KeyRange::all()],
    };
    let rows = (FIRST_ROWS.min(batch_rows), batch_rows);
    let scan = match way {
        Way::On => reader.scan_ranges(ranges, projection, rows),
        Way::Back => reader.scan_ranges_back(ranges, projection, rows),
    };
    let scan = scan.map_err(external)?;
    Ok(Box::new(scan.map(move |batch| batch.map_err(external))))
}
